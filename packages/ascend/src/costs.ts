/**
 * Every figure of the model, with its source, and the assumptions about figures that are not published.
 *
 * "autofuse" is CANN's published performance model for architecture 2201: hicann/ge@74573e24,
 * `api_perf_register/v1/perf_param_v1.cpp` and the comments of `ascendc_api_perf.cpp`. Its costs are in cycles: slope ·
 * elements + head. @module
 */
import type { FloatDtype } from 'ropewalk';

/**
 * The vector cores, clock and L2 of each chip: CANN's platform files, `Ascend<name>.ini` in hicann/runtime@681ef761,
 * src/platform/platform_config/cann. All have one unified buffer of 192 KB a vector core.
 */
export const CHIPS = /* @__PURE__ */ Object.freeze({
  '910B1': { cores: 48, clockGHz: 1.85, l2Bytes: 201326592 },
  '910B2': { cores: 48, clockGHz: 1.8, l2Bytes: 201326592 },
  '910B2C': { cores: 48, clockGHz: 1.8, l2Bytes: 201326592 },
  '910B3': { cores: 40, clockGHz: 1.8, l2Bytes: 201326592 },
  '910B4': { cores: 40, clockGHz: 1.5, l2Bytes: 100663296 },
  '910B4-1': { cores: 40, clockGHz: 1.5, l2Bytes: 176160768 },
  '910_9362': { cores: 40, clockGHz: 1.5, l2Bytes: 176160768 },
  '910_9363': { cores: 40, clockGHz: 1.5, l2Bytes: 176160768 },
  '910_9372': { cores: 40, clockGHz: 1.8, l2Bytes: 201326592 },
  '910_9381': { cores: 48, clockGHz: 1.8, l2Bytes: 201326592 },
  '910_9382': { cores: 48, clockGHz: 1.8, l2Bytes: 201326592 },
  '910_9391': { cores: 48, clockGHz: 1.85, l2Bytes: 201326592 },
  '910_9392': { cores: 48, clockGHz: 1.85, l2Bytes: 201326592 },
});
/** The chips that are modelled, all of architecture 2201: A2 is 910B…, A3 is 910_93…. */
export type ChipName = keyof typeof CHIPS;

/** Bytes of the unified buffer: AscendC's guide on bank conflicts, 48 banks of 128 rows of 32 bytes. */
export const UB_BYTES = 192 * 1024;
/** Bytes of a datablock, the alignment of copies and vector operands. */
export const BLOCK = 32;
/** Bytes of one repeat of a vector instruction: eight datablocks. */
export const REPEAT = 256;
/** Buffers that a kernel may allocate: AscendC's TPipe::InitBuffer, at most 64 in all. */
export const MAX_BUFFERS = 64;
/** Blocks of a launch: the count has 16 bits on the device. */
export const MAX_BLOCKS = 2 ** 16 - 1;
/** Repeats of one vector instruction, and so rows of a tile: repeatTimes is a byte. */
export const MAX_REPEATS = 255;
/** Event ids of a pair of queues: AscendC's SetFlag and WaitFlag, 0 to 7. */
export const MAX_EVENTS = 8;
/** Bytes of a line of the scalar unit's cache of global memory: AscendC's guide on DataCacheCleanAndInvalid. */
export const CACHE_LINE = 64;

/**
 * The costs of vector instructions: autofuse, `SimpleLinear`, in cycles an element (slope) and an instruction (head).
 * The key is the dtype of the elements; for Cast, the dtype that it reads.
 */
export const VECTOR_COSTS = /* @__PURE__ */ Object.freeze({
  GatherMask: { f16: { slope: 0.0156, head: 14.0242 }, f32: { slope: 0.0313, head: 14.0207 } },
  Gather: { f16: { slope: 0.1873, head: 17.0248 }, f32: { slope: 0.1875, head: 15.0 } },
  Mul: { f16: { slope: 0.011, head: 23.1243 }, f32: { slope: 0.0206, head: 23.2291 } },
  Add: { f16: { slope: 0.0103, head: 22.2173 }, f32: { slope: 0.0206, head: 23.2225 } },
  Sub: { f16: { slope: 0.0107, head: 22.1226 }, f32: { slope: 0.0213, head: 22.1254 } },
  Adds: { f16: { slope: 0.0071, head: 22.0938 }, f32: { slope: 0.0141, head: 22.0936 } },
  Muls: { f16: { slope: 0.0071, head: 23.1006 }, f32: { slope: 0.0142, head: 23.0966 } },
  Div: { f16: { slope: 0.046, head: 29.1233 }, f32: { slope: 0.0454, head: 29.0892 } },
  Max: { f16: { slope: 0.0111, head: 20.12 }, f32: { slope: 0.0215, head: 20.1333 } },
  Maxs: { f16: { slope: 0.0071, head: 20.0912 }, f32: { slope: 0.0141, head: 20.0887 } },
  Abs: { f16: { slope: 0.0077, head: 20.0153 }, f32: { slope: 0.0147, head: 20.0592 } },
  Exp: { f16: { slope: 0.0311, head: 28.0144 }, f32: { slope: 0.0307, head: 28.0376 } },
  Sqrt: { f16: { slope: 0.0312, head: 29.0056 }, f32: { slope: 0.0313, head: 28.9961 } },
  Rsqrt: { f16: { slope: 0.0071, head: 21.097 }, f32: { slope: 0.0143, head: 21.0979 } },
  Reciprocal: { f16: { slope: 0.0078, head: 21.0076 }, f32: { slope: 0.0146, head: 21.0639 } },
  WholeReduceSum: { f16: { slope: 0.0547, head: 35.0021 }, f32: { slope: 0.1094, head: 32.0029 } },
  WholeReduceMax: { f16: { slope: 0.0547, head: 21.0027 }, f32: { slope: 0.1094, head: 20.0051 } },
  Copy: { f16: { slope: 0.0078, head: 13.0049 }, f32: { slope: 0.0157, head: 12.9966 } },
  Duplicate: { f16: { slope: 0.0078, head: 16.9993 }, f32: { slope: 0.0156, head: 16.9965 } },
  // float16tofloat32 and float32tofloat16; bf16 is assumed to cost the same.
  Cast: { f16: { slope: 0.0147, head: 20.1204 }, f32: { slope: 0.0087, head: 20.4393 } },
});
/** A vector instruction of {@link VECTOR_COSTS}. */
export type VecOp = keyof typeof VECTOR_COSTS;

/**
 * Extra cycles of a repeat whose operands meet in a bank: an Add of 64 repeats takes 86 cycles clean, 150 with a
 * read-read conflict, 135 with a read-write conflict (AscendC's guide on bank conflicts, measured there).
 */
export const CONFLICT_CYCLES = /* @__PURE__ */ Object.freeze({
  readRead: (150 - 86) / 64,
  readWrite: (135 - 86) / 64,
  writeWrite: (150 - 86) / 64,
});

/** Computes the cycles of a vector instruction without conflicts; with a mask, `elements` counts whole repeats. */
export function vectorCycles(
  op: VecOp,
  dtype: FloatDtype,
  elements: number,
  repeats: number,
  timing: 'published' | 'repeats',
): number {
  const { slope, head } = VECTOR_COSTS[op][dtype === 'f32' ? 'f32' : 'f16'];
  return (timing === 'published' ? slope * elements : repeats) + head;
}

/** The fewest bytes of a load that autofuse counts as large. */
export const LARGE_LOAD = 25000;

/** Computes the cycles of a load by `blocks` cores at the same time: autofuse `LoadSmallBlk`, `LoadNormalBlk`. */
export function loadCycles(bytes: number, blocks: number): number {
  return bytes < LARGE_LOAD ? bytes / (7.9052 + 7.31 / blocks) + 27.01 : bytes / (9.907 + 15.9 / blocks) + 27.01;
}

/**
 * Computes the cycles of a store by `blocks` cores at the same time: autofuse `Store`. Rows of up to 512 bytes that are
 * no whole datablocks take a cycle for two bytes (`StoreUnaligned`, S / 2 + 1.3).
 */
export function storeCycles(bytes: number, rowBytes: number, rows: number, blocks: number): number {
  if (rowBytes % BLOCK !== 0 && rowBytes <= 512) return rows * (Math.max(rowBytes, BLOCK) / 2) + 1.3;
  return bytes / (9.96 + 3.79 / blocks) + 12.1;
}

/**
 * One-off heads, in cycles: autofuse `kVecheadcost`, `kMte3PipeHeadcost`, `GetMTE2PipeHead`, and the operator's own.
 */
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
/** Cycles to issue one instruction to a queue, see {@link ASSUMPTIONS}. */
export const ISSUE = 6;
/** Instructions that a queue holds, see {@link ASSUMPTIONS}. */
export const QUEUE_DEPTH = 32;
/** The fewest bytes that a row of a copy is charged for, see {@link ASSUMPTIONS}. */
export const MIN_BURST = 64;

/** An assumption of the model about something that is not published. */
export interface Assumption {
  readonly name: string;
  readonly value: number | string;
  readonly unit: string;
  readonly why: string;
}

const TABLE: readonly (readonly [name: string, why: string, value: number | string, unit?: string])[] = [
  [
    'scalarUnifiedBuffer',
    'a loop of GetValue, GetValue, SetValue in f16 takes 33 to 34 cycles an element (from measured examples): a third each',
    11.17,
    'cycles an access',
  ],
  ['scalarGlobalMiss', 'the latency of GetValue on global memory is not published', SCALAR_MISS, 'cycles'],
  [
    'scalarIssue',
    'the time of the scalar unit to issue an instruction is not published',
    ISSUE,
    'cycles an instruction',
  ],
  ['queueDepth', 'how many instructions a queue holds is not published', QUEUE_DEPTH, 'instructions'],
  ['queueOverlap', 'costs within one queue are added up, as autofuse does: no overlap within a queue', 0, 'cycles'],
  [
    'minBurst',
    'short rows of one copy have no published cost: a row counts as 64 bytes or more',
    MIN_BURST,
    'bytes a row',
  ],
  [
    'unalignedStore',
    'stores that are no whole datablocks have a published cost for one row of 32 to 512 bytes: a shorter row counts as 32, and rows of one copy add up',
    BLOCK,
    'bytes a row',
  ],
  [
    'heads',
    'when the one-off heads of V, MTE2 and MTE3 run is not published: each delays the first instruction of its queue, all at the same time',
    'from the launch on',
  ],
  [
    'writeAfterRead',
    'a queue starts its instructions in order: a write after a read in the same queue needs no barrier',
    'ordered',
  ],
  ['maskedRepeat', 'a repeat with masked lanes costs as much as one with all lanes', 'a whole repeat'],
  ['castBf16', 'autofuse has no figures for Cast with bf16', 'as f16'],
  ['integerAdds', 'autofuse has no figures for Adds with int32', 'as f32'],
  [
    'elementaryFunctions',
    'the errors of Div, Exp, Sqrt, Rsqrt and Reciprocal on this architecture are not published: here each result is rounded once',
    'rounded to nearest',
  ],
  ['customPattern', 'autofuse has one figure for GatherMask', 'as the fixed patterns'],
  [
    'bankConflicts',
    'the memory layout behind the published costs is not known; conflicts are counted within a repeat',
    'added to the published costs',
  ],
];

/** The model's assumptions about what is not published. */
export const ASSUMPTIONS: readonly Assumption[] = /* @__PURE__ */ Object.freeze(
  TABLE.map(([name, why, value, unit = '']) => ({ name, value, unit, why })),
);
