/**
 * The report of a run on the modelled AI Core: instructions, cycles, bytes, the unified buffer and the findings; and
 * the options.
 *
 * Every time is in cycles of the core's clock; every address and size in bytes. @module
 */
import type { FloatDtype, HostArray, Pairing } from 'ropewalk';
import type { Assumption, ChipName } from './costs.js';

/** The queues of a vector core: scalar, vector, global memory → unified buffer, unified buffer → global memory. */
export type QueueName = 'S' | 'V' | 'MTE2' | 'MTE3';
/** All queues, in the order of reports. */
export const QUEUES: readonly QueueName[] = /* @__PURE__ */ Object.freeze(['S', 'V', 'MTE2', 'MTE3'] as const);

/** The RoPE kernels. `baseline`, `infinicore-gptj` and `infinicore-neox` are InfiniCore's, with their faults. */
export type KernelName = 'baseline' | 'correct' | 'fast' | 'infinicore-gptj' | 'infinicore-neox';

/** The pairings that the RoPE kernels take: (2j, 2j + 1), GPT-J; or (j, j + half), GPT-NeoX. */
export type KernelPairing = Extract<Pairing, 'interleaved' | 'half'>;

/** The kinds of findings. */
export type FindingKind =
  | 'gm-over-read' // an access reads past a tensor in global memory
  | 'gm-over-write' // an access writes past a tensor in global memory, or between its rows
  | 'gm-unallocated' // as above, past the memory that holds the tensor: the device would access whatever is there
  | 'unaligned' // the instruction does not allow an address or a length
  | 'before-dequeue' // a queue's buffer is used before DeQue, after FreeTensor, or in another wrong state
  | 'no-free-buffer' // AllocTensor or DeQue would wait for ever: the kernel hangs
  | 'deadlock' // WaitFlag waits for a flag that is never set
  | 'overflow' // an instruction reads or writes past its buffer, into a neighbour's
  | 'race' // nothing orders two accesses of the same bytes, of which at least one is a write
  | 'too-many-buffers' // there are more than 64 buffers
  | 'ub-capacity' // the buffers do not fit the unified buffer
  | 'unsupported-dtype' // this architecture does not have the instruction for the dtype
  | 'coverage' // some rows of the output were never written, or some elements of an input never read
  | 'wrong-operand'; // the kernel writes an input

/** A fault of a kernel. Equal faults of one line are counted, not repeated. */
export interface Finding {
  readonly kind: FindingKind;
  /** A sentence with the numbers of the first occurrence. */
  readonly message: string;
  /** The kernel's statement, `copyIn: DataCopy(x)`; `launch` for a fault of the whole run. */
  readonly line: string;
  /** The block and the cycle in which it happened first. */
  readonly first: { readonly block: number; readonly cycle: number };
  /** How often it happened in the whole run. */
  readonly count: number;
  /** Whether the kernel cannot go on after it (it hangs, or does not start). */
  readonly fatal: boolean;
}

/** One instruction of a recorded block. Successive scalar accesses of one line are one entry with a count. */
export interface InstructionRecord {
  /** Position in the block's program order. */
  readonly index: number;
  readonly queue: QueueName;
  /** AscendC's name, `DataCopyPad`; a run of scalar accesses has all of its names, `GetValue, SetValue`. */
  readonly name: string;
  /** The kernel's statement, `compute: Mul(tmp_odd1, tmp_odd, cos)`. */
  readonly line: string;
  /** When the scalar unit issued it. */
  readonly issue: number;
  readonly start: number;
  readonly end: number;
  /** How many instructions this entry stands for: 1, or a run of scalar accesses. */
  readonly count: number;
  /** Bytes moved (MTE2, MTE3, scalar), or written (V). */
  readonly bytes: number;
  /** Elements computed or moved. */
  readonly elements: number;
  /** The reason and the instruction it waited for; undefined if it started at its issue or right after its queue. */
  readonly waitsFor?: { readonly why: string; readonly index?: number };
  /** Extra cycles from conflicts of the unified buffer's banks. */
  readonly conflictCycles: number;
}

/** A number for each queue. */
export type PerQueue = { readonly [Q in QueueName]: number };

/** How long several queues worked at the same time. */
export interface Overlap {
  /** Cycles in which at least one of MTE2, V, MTE3, S worked. */
  readonly any: number;
  /** Cycles in which two or more worked. */
  readonly several: number;
  /** `several / any`, 0 when nothing ran. */
  readonly share: number;
  /** Sum of busy cycles of all queues over `any`: 1 means one after the other, 4 all at once. */
  readonly parallelism: number;
}

/** One core's part of a run. */
export interface BlockRun {
  /** GetBlockIdx. */
  readonly block: number;
  /** From the launch to the end of the last instruction. */
  readonly cycles: number;
  readonly busy: PerQueue;
  readonly instructionCount: PerQueue;
  readonly overlap: Overlap;
  /** Its instructions in program order, if it is recorded. */
  readonly instructions?: readonly InstructionRecord[];
  /** Whether a fatal finding ended it early. */
  readonly stopped: boolean;
}

/** Bytes over the whole run. */
export interface ByteCounts {
  /** Global memory → unified buffer. */
  readonly load: number;
  /** Unified buffer → global memory. */
  readonly store: number;
  /** Read by GetValue from global memory, in lines of 64 B. */
  readonly scalar: number;
  /** Loads and stores by tensor: `x`, `sin`, `cos`, `y`. */
  readonly byTensor: { readonly [tensor: string]: number };
  /** The fewest bytes that any kernel must move for the same rows: x once, each used table row once, y once. */
  readonly least: { readonly load: number; readonly store: number };
}

/** One allocation of the unified buffer. */
export interface BufferEntry {
  /** The kernel's member, `_in_que`. */
  readonly name: string;
  readonly kind: 'TQue VECIN' | 'TQue VECOUT' | 'TBuf VECCALC';
  /** The first byte of the first of its buffers. */
  readonly offset: number;
  /** The bytes of each buffer, rounded up to 32. */
  readonly size: number;
  /** The number of buffers; 2 is double buffering. */
  readonly num: number;
}

/** The limit of a run's speed. */
export interface Bottleneck {
  /** The queue that is busiest, or `start` when the one-off heads are longer than the work. */
  readonly what: QueueName | 'start';
  /** Its share of the slowest block's cycles, 0…1. */
  readonly share: number;
  /** The line that costs most on that queue. */
  readonly line: string;
  /** A sentence that says what to change. */
  readonly advice: string;
}

/** The report of a run on the model. */
export interface KernelRun {
  readonly kernel: KernelName | string;
  readonly dtype: FloatDtype;
  readonly chip: ChipName;
  readonly clockGHz: number;
  /** Blocks launched (`<<<blocks>>>`); the chip has 40 vector cores, more blocks run in waves. */
  readonly blockCount: number;
  readonly waves: number;
  /** From the operator's start to the end of the slowest block, with the one-off heads. */
  readonly cycles: number;
  /**
   * How it ended. `hangs`: it waits for ever. `stopped`: it cannot go on, or does not start; a finding says why. `did
   * nothing`: rows are missing, and no block has an instruction.
   */
  readonly outcome: 'ended' | 'hangs' | 'stopped' | 'did nothing';
  /** The modelled time of a run that ended, with the fixed cost of a task: see calibration.ts. */
  readonly microseconds?: number;
  /**
   * The band that the time lies in, low and high, by the largest error of a calibration row that is predicted from the
   * other 12. A run that is unlike these rows (kernel, tiling, chip, dtypes, pairing, bytes) is `extrapolated`.
   */
  readonly microsecondsBand?: readonly [low: number, high: number] | 'extrapolated';
  /** The busy cycles of the slowest block. */
  readonly busy: PerQueue;
  /** The one-off heads inside `cycles`. */
  readonly heads: PerQueue & { readonly operator: number };
  /** Rows (a head of a token) that the kernel wrote, and that it should have written. */
  readonly rows: { readonly written: number; readonly wanted: number };
  /** `cycles` over the rows written. */
  readonly cyclesPerRow: number;
  /** The overlap in the slowest block. */
  readonly overlap: Overlap;
  readonly bytes: ByteCounts;
  readonly unifiedBuffer: {
    readonly capacity: number;
    readonly used: number;
    readonly buffers: readonly BufferEntry[];
  };
  /** Repeats whose operands met in a bank. Writes of one repeat cannot meet, because its datablocks are dense. */
  readonly bankConflicts: { readonly [kind in 'readRead' | 'readWrite' | 'writeWrite' | 'cycles']: number };
  /** The limit of a run that ended. */
  readonly bottleneck?: Bottleneck;
  readonly findings: readonly Finding[];
  readonly assumptions: readonly Assumption[];
  readonly blocks: readonly BlockRun[];
  /** The index of the slowest block in `blocks`. */
  readonly slowest: number;
}

/** A tensor in the modelled global memory: the caller's own memory, read and written in place. */
export interface GlobalView {
  /** The typed array that holds the dtype's bits (core/dtypes.ts). */
  readonly data: HostArray;
  /** `[batch, seq, heads, dim]`. */
  readonly shape: readonly [number, number, number, number];
  /** Strides in elements; the last is 1. */
  readonly strides: readonly [number, number, number, number];
  /** The index of element 0 in `data`. Default: 0. */
  readonly offset?: number;
}

/** Options of the modelled chip. */
export interface MachineOptions {
  /** Default: 910B3. */
  readonly chip?: ChipName;
  /** Bytes of the unified buffer. Default: 196608. */
  readonly unifiedBufferBytes?: number;
  /** Whether the compiler synchronises automatically. Default: the kernel's choice; `fast` sets its own flags. */
  readonly autoSync?: boolean;
  /** Vector cores to spread over. Default: all of the chip's. */
  readonly cores?: number;
  /**
   * The cost of a vector instruction: `published` (the autofuse model's n·slope + head, the default) or `repeats`
   * (a repeat a cycle + head, as the Add of 64 repeats was measured). Bank conflicts come on top of both.
   */
  readonly vectorTiming?: 'published' | 'repeats';
  /** Whether to look for races. Default: true. */
  readonly checkRaces?: boolean;
}

/** How a kernel cuts its work. The kernel chooses what is absent. */
export interface Tiling {
  /** Blocks that share the rows. Default: one for each vector core, and no more than rows. */
  readonly blocks?: number;
  /** Rows (heads of one token) that are loaded, rotated and stored together. */
  readonly tileRows?: number;
  /** Buffers of each queue. Default: 2, double buffering. */
  readonly buffers?: number;
}

/** How a run is watched. */
export interface WatchOptions {
  /** Keep the instructions of these blocks: all, none (the default), or a list. */
  readonly record?: boolean | readonly number[];
  /** Called after each block with the number of blocks done and of all blocks. */
  readonly onBlock?: (done: number, total: number) => void;
}

/** One call of a RoPE kernel on the model. */
export interface RopeKernelOptions extends WatchOptions {
  readonly kernel: KernelName;
  /** f16 or f32, or bf16 on `correct` and `fast`. f64 is refused: the core has no f64 vector arithmetic. */
  readonly dtype: FloatDtype;
  readonly pairing: KernelPairing;
  readonly x: GlobalView;
  /** The result, in the shape of x; it may be the same memory with the same strides (in place). */
  readonly y: GlobalView;
  /** Each token's row in the tables: `[seq]`, shared by all batches, or `[batch, seq]` flat. */
  readonly positions: ArrayLike<number | bigint>;
  /** `[rows, rotaryDim / 2]`, dense, of `tableDtype`. */
  readonly sin: HostArray;
  /** As `sin`. */
  readonly cos: HostArray;
  /** Leading elements of each head that rotate, an even number; the rest is copied. Default: the whole head. */
  readonly rotaryDim?: number;
  /**
   * The dtype of cos and sin: `dtype` (the default) or, on `correct` and `fast`, f32. With f32 tables, f16 and bf16 are
   * widened, rotated in f32 and rounded once.
   */
  readonly tableDtype?: FloatDtype;
  /** How the work is cut: `fast` takes all of it, `correct` blocks and buffers, the other kernels nothing. */
  readonly tiling?: Tiling;
  readonly machine?: MachineOptions;
}
