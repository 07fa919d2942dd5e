/**
 * Every figure of the model in one place, each with where it comes from; and what is assumed because nobody has published it.
 *
 * "autofuse" is CANN's published performance model for architecture 2201: hicann/ge@74573e24, `api_perf_register/v1/perf_param_v1.cpp`
 * and the comments of `ascendc_api_perf.cpp`. Its costs are in cycles: slope · elements + head.
 *
 * @module
 */
import type { FloatDtype } from 'ropewalk';
import type { Assumption, ChipName } from './trace.js';

/** A chip's vector cores and clock: CANN's platform files, `Ascend910B3.ini`, `Ascend910B4.ini`. */
export const CHIPS: { readonly [C in ChipName]: { readonly cores: number; readonly clockGHz: number } } =
  /* @__PURE__ */ Object.freeze({
    '910B3': { cores: 40, clockGHz: 1.8 },
    '910B4': { cores: 40, clockGHz: 1.5 },
  });

/** Bytes of the unified buffer: AscendC's guide on bank conflicts, 48 banks of 128 rows of 32 bytes. */
export const UB_BYTES = 192 * 1024;
/** Bytes of a datablock: what copies and vector operands are aligned to. */
export const BLOCK = 32;
/** Bytes of one repeat of a vector instruction: eight datablocks. */
export const REPEAT = 256;
/** Buffers that a kernel may allocate: AscendC's TPipe::InitBuffer, at most 64 in all. */
export const MAX_BUFFERS = 64;
/** Event ids of a pair of queues: AscendC's SetFlag and WaitFlag, 0 to 7. */
export const MAX_EVENTS = 8;
/** Bytes of a line of the scalar unit's cache of global memory: AscendC's guide on DataCacheCleanAndInvalid. */
export const CACHE_LINE = 64;

/** What a vector instruction is called in {@link VECTOR_COSTS}. */
export type VectorOp =
  | 'GatherMask'
  | 'Gather'
  | 'Mul'
  | 'Add'
  | 'Sub'
  | 'Adds'
  | 'Muls'
  | 'Copy'
  | 'Duplicate'
  | 'Cast';

interface Linear {
  /** Cycles an element. */
  readonly slope: number;
  /** Cycles an instruction. */
  readonly head: number;
}

/** autofuse, `SimpleLinear`: the key is the dtype of the elements, for Cast the dtype that is read. */
export const VECTOR_COSTS: { readonly [O in VectorOp]: { readonly f16: Linear; readonly f32: Linear } } =
  /* @__PURE__ */ Object.freeze({
    GatherMask: { f16: { slope: 0.0156, head: 14.0242 }, f32: { slope: 0.0313, head: 14.0207 } },
    Gather: { f16: { slope: 0.1873, head: 17.0248 }, f32: { slope: 0.1875, head: 15.0 } },
    Mul: { f16: { slope: 0.011, head: 23.1243 }, f32: { slope: 0.0206, head: 23.2291 } },
    Add: { f16: { slope: 0.0103, head: 22.2173 }, f32: { slope: 0.0206, head: 23.2225 } },
    Sub: { f16: { slope: 0.0107, head: 22.1226 }, f32: { slope: 0.0213, head: 22.1254 } },
    Adds: { f16: { slope: 0.0071, head: 22.0938 }, f32: { slope: 0.0141, head: 22.0936 } },
    Muls: { f16: { slope: 0.0071, head: 23.1006 }, f32: { slope: 0.0142, head: 23.0966 } },
    Copy: { f16: { slope: 0.0078, head: 13.0049 }, f32: { slope: 0.0157, head: 12.9966 } },
    Duplicate: { f16: { slope: 0.0078, head: 16.9993 }, f32: { slope: 0.0156, head: 16.9965 } },
    // float16tofloat32 and float32tofloat16; bf16 is assumed to cost the same.
    Cast: { f16: { slope: 0.0147, head: 20.1204 }, f32: { slope: 0.0087, head: 20.4393 } },
  });

/**
 * Extra cycles of a repeat whose operands meet in a bank: an Add of 64 repeats takes 86 cycles clean, 150 with a read-read conflict,
 * 135 with a read-write conflict (AscendC's guide on bank conflicts, measured there).
 */
export const CONFLICT_CYCLES = /* @__PURE__ */ Object.freeze({
  readRead: (150 - 86) / 64,
  readWrite: (135 - 86) / 64,
  writeWrite: (150 - 86) / 64,
});

/**
 * Cycles of a vector instruction without conflicts.
 *
 * @param op - its name
 * @param dtype - of its elements, or of what a Cast reads
 * @param elements - lanes that it works through: whole repeats where a mask hides some
 * @param repeats - of 256 bytes
 * @param timing - see MachineOptions
 */
export function vectorCycles(
  op: VectorOp,
  dtype: FloatDtype,
  elements: number,
  repeats: number,
  timing: 'published' | 'repeats',
): number {
  const { slope, head } = VECTOR_COSTS[op][dtype === 'f32' ? 'f32' : 'f16'];
  return (timing === 'published' ? slope * elements : repeats) + head;
}

/** Bytes from which autofuse counts a load as large. */
export const LARGE_LOAD = 25000;

/**
 * Cycles of a load, global memory → unified buffer: autofuse `LoadSmallBlk` and `LoadNormalBlk`.
 *
 * @param bytes - of the whole instruction, > 0
 * @param blocks - cores that load at the same time
 */
export function loadCycles(bytes: number, blocks: number): number {
  return bytes < LARGE_LOAD ? bytes / (7.9052 + 7.31 / blocks) + 27.01 : bytes / (9.907 + 15.9 / blocks) + 27.01;
}

/**
 * Cycles of a store, unified buffer → global memory: autofuse `Store`; rows of up to 512 bytes that are no whole datablocks go at two bytes
 * a cycle (`StoreUnaligned`, S / 2 + 1.3; of shorter ones than 32 bytes see {@link ASSUMPTIONS}).
 *
 * @param bytes - of the whole instruction
 * @param rowBytes - of one of its rows
 * @param rows - how many
 * @param blocks - cores that store at the same time
 */
export function storeCycles(bytes: number, rowBytes: number, rows: number, blocks: number): number {
  if (rowBytes % BLOCK !== 0 && rowBytes <= 512) return rows * (Math.max(rowBytes, BLOCK) / 2) + 1.3;
  return bytes / (9.96 + 3.79 / blocks) + 12.1;
}

/** One-off heads, in cycles: autofuse `kVecheadcost`, `kMte3PipeHeadcost`, `GetMTE2PipeHead`, and the operator's own. */
export const HEADS = /* @__PURE__ */ Object.freeze({
  operator: 300,
  V: 37.37,
  MTE3: 497.36,
  mte2: (blocks: number, large: boolean): number => (large ? 1575.03 + 32.72 * blocks : 882.09 + 15.89 * blocks),
});

/** Cycles of one GetValue or SetValue on the unified buffer, see {@link ASSUMPTIONS}. */
export const SCALAR_UB = 33.5 / 3;
/** Cycles of GetValue on global memory that misses the cache, see {@link ASSUMPTIONS}. */
export const SCALAR_MISS = 300;
/** Cycles to hand one instruction to a queue, see {@link ASSUMPTIONS}. */
export const ISSUE = 6;
/** Instructions that a queue holds, see {@link ASSUMPTIONS}. */
export const QUEUE_DEPTH = 32;
/** Bytes that a row of a copy costs at least, see {@link ASSUMPTIONS}. */
export const MIN_BURST = 64;

/** What nobody has published, and what the model puts in its place. */
export const ASSUMPTIONS: readonly Assumption[] = /* @__PURE__ */ Object.freeze([
  {
    name: 'scalarUnifiedBuffer',
    value: 11.17,
    unit: 'cycles an access',
    why: 'a loop of GetValue, GetValue, SetValue in f16 takes 33 to 34 cycles an element (derived from measured examples): a third each, loop included',
  },
  {
    name: 'scalarGlobalMiss',
    value: SCALAR_MISS,
    unit: 'cycles',
    why: 'the latency of GetValue on global memory is not published',
  },
  {
    name: 'scalarIssue',
    value: ISSUE,
    unit: 'cycles an instruction',
    why: 'address arithmetic and hand-over by the scalar unit are not published',
  },
  {
    name: 'queueDepth',
    value: QUEUE_DEPTH,
    unit: 'instructions',
    why: 'how many instructions a queue holds before the scalar unit waits is not published',
  },
  {
    name: 'queueOverlap',
    value: 0,
    unit: 'cycles',
    why: 'the published costs of one queue are added up, as autofuse does; overlap within a queue is not modelled',
  },
  {
    name: 'minBurst',
    value: MIN_BURST,
    unit: 'bytes a row',
    why: 'what many short rows in one copy cost is not published: a row counts as at least one line of 64 bytes',
  },
  {
    name: 'unalignedStore',
    value: BLOCK,
    unit: 'bytes a row',
    why: 'the cost of a store that is no whole datablocks is published for one row from 32 to 512 bytes: a shorter row counts as 32, and rows of one copy add up',
  },
  {
    name: 'heads',
    value: 'from the launch on',
    unit: '',
    why: 'when the one-off heads of V, MTE2 and MTE3 run is not published: each delays the first instruction of its queue, all at the same time',
  },
  {
    name: 'writeAfterRead',
    value: 'ordered',
    unit: '',
    why: 'a queue starts its instructions in order: one that writes what an earlier one of the same queue reads is taken to come after it without a barrier',
  },
  {
    name: 'maskedRepeat',
    value: 'a whole repeat',
    unit: '',
    why: 'a repeat with lanes masked out costs as one with all lanes',
  },
  { name: 'castBf16', value: 'as f16', unit: '', why: 'autofuse has no figures for Cast with bf16' },
  { name: 'integerAdds', value: 'as f32', unit: '', why: 'autofuse has no figures for Adds with int32' },
  { name: 'customPattern', value: 'as the fixed patterns', unit: '', why: 'autofuse has one figure for GatherMask' },
  {
    name: 'bankConflicts',
    value: 'added to the published costs',
    unit: '',
    why: 'which layout the published costs were fitted on is not said; conflicts are looked for within a repeat',
  },
]);
