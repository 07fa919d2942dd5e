/**
 * The interface between the host (TypeScript) and the kernels (AssemblyScript, assembly/). Both compilers read this file,
 * so it holds nothing but enums and constants.
 *
 * A kernel's arguments are 32-bit words at one address; an enum below names the place of each word. Addresses are in
 * bytes, strides in elements, types are a {@link Type}, and a flag is 0 or 1. `walk` stands for several words: a rank,
 * as many sizes, slowest first, and as many strides for each tensor, in the order that the enum's comment gives.
 *
 * @module
 */

/** The storage types of elements; those from q8_0 on are blocks. The names are those of dtypes and block formats. */
export enum Type {
  f32, f16, bf16, i8, f8_e4m3, f8_e5m2, q8_0, q4_0, iq4_nl, mxfp4, q4_K, q5_K, q6_K, iq4_xs,
}

/** The kernels, by the number that `run` (assembly/index.ts) takes. */
export enum Kernel {
  rope, norm, elementwise, rearrange, convert, embedding, embeddingWide, argmax,
  widenRows, packRows, splitRows, roundRows, linearFew, linearBlocks, linearMany, linearRounded,
  attentionFew, attentionMany,
  jobs, weighRows,
  causalConv, gatedDelta, ssmScan,
}

/** Many jobs of one kernel as one job; each has its own arguments. Unit u is unit u % each of job u / each. */
export enum Jobs {
  /** The kernel of all jobs. */
  kernel,
  /** The number of units of a job. */
  each,
  /** The address of the jobs' arguments, one after the other, and the words of each. */
  list, words,
}

/** The functions that elementwise computes; the activations multiply by b where there is one. */
export enum Activation {
  add, swiglu,
  /** The sigmoid of a, which is always multiplied by b. */
  sigmoid,
  /** The larger of a and 0, likewise. */
  relu,
  /** SwiGLU with a limit, alpha and offset, which are its parameters. */
  clamped,
  gelu, geluTanh,
  /** xIELU, whose factors are its parameters. */
  xielu,
  /** a · first parameter, and · b where there is one. */
  scale,
  /** scale, then the soft cap, which is the second parameter. */
  softcap,
}

/**
 * add, the activations and scale. A row is cut into blocks of `block` elements. The walk goes over rows: y, a, and b
 * where there is one.
 */
export enum Elementwise {
  a,
  /** 0 means none. */
  b,
  y, type, activation,
  /** These are f32. */
  first, second, third,
  /** The elements of a row. */
  n,
  block, aStride, bStride, yStride, walk,
}

/** rearrange within one type: a unit is a plane of `rows` × `n` elements. The walk goes over planes: x, y. */
export enum Rearrange {
  x, y,
  /** Bytes of an element. */
  size,
  n, xStride, yStride, rows, xRow, yRow, walk,
}

/** rearrange from one type to another. A row is cut into blocks of `block` elements. The walk goes over rows: x, y. */
export enum Convert {
  x, y, xType, yType,
  /** The elements of a row. */
  n,
  block, xStride, yStride, walk,
}

/** embedding, also where it widens rows to f32. */
export enum Embedding {
  table, y,
  /** Address of i32 row numbers. */
  index,
  /** The bytes of an element, where bits are copied. */
  size,
  /** The table's type, where it is widened. */
  type,
  width,
  /** The step from row to row of the table: in elements, or in bytes where it is blocks. */
  tableRow,
  tableStride, yRow, yStride,
}

/** argmax. The walk goes over rows: values, index, value. */
export enum Argmax {
  values, index, value, type, n, stride,
  /** Bytes of an index: 4 or 8. */
  indexSize,
  walk,
}

/** rms_norm and layer_norm. The walk goes over rows: x, y. */
export enum Norm {
  x, y,
  /** Address of dense f32 `[n]`. */
  weight,
  /** Flag: the mean is subtracted. */
  centered,
  /** Address of dense f32 `[n]`, or 0. */
  bias,
  type, n, xStride, yStride,
  /** An f64, in two words. */
  eps, epsHigh,
  walk,
}

/** rope: the words before the parts. Each part is {@link RopePart.words} words. */
export enum Rope {
  /** Addresses of f32 `[rows, pairs]`. */
  cos, sin,
  /** Address of i32 `[batch or 1, seq]`. */
  tableRows,
  /** Flag: each batch has table rows of its own. */
  perBatch,
  seq,
  /** The largest head_dim of a part. */
  headDim,
  rotaryOffset, pairs, readStep, readGap, writeStep, writeGap,
  /** The number of parts. */
  parts,
  firstPart,
}

/** rope: the words of one part. Strides are those of batch, seq, head and dim. */
export enum RopePart {
  x, y, xType, yType, heads,
  xBatch, xSeq, xHead, xDim,
  yBatch, ySeq, yHead, yDim,
  headDim,
  /** Flag: heads are rotated, not copied. */
  rotate,
  /** Address of i32 `[batch, seq]`, the rows of y, -1 for none; or 0 where token s goes to row s. */
  rows,
  /** Rows of a block where `rows` are slots, and yBatch is then the stride of blocks; or 0. */
  blockSize,
  /** Address of f32 `[heads, headDim]`, by which values are divided before they are stored; or 0. */
  scale,
  /** Address of f32 that receive the scale of each row and head, or 0; and their strides of batch, seq and head. */
  own, ownBatch, ownSeq, ownHead,
  /** Address of f32 `[headDim]`; or 0 for no norm. */
  weight,
  /** An f64, in two words. */
  eps, epsHigh,
  /** Flag: x and y are dense in their last dimension and of one type, and there is no norm. */
  dense,
  words,
}

/** widenRows, packRows, splitRows and roundRows, which prepare rows of x for linear. The walk goes over all rows: x. */
export enum Rows {
  x, to,
  /** The type of x; or that of the weights, where rows are split or rounded for them. */
  type,
  k, stride,
  /** Address of i32 row numbers, the rows to read; or 0 for all. splitRows and roundRows do not read it. */
  list,
  /** The first row to read, or the first of the list. */
  first,
  /** The number of rows, where rows are packed. */
  count,
  walk,
}

/** linear. The walk goes over rows: y. */
export enum Linear {
  /** Address of dense f32 `[m, k]` beside few rows, and beside rounded ones; of packed rows beside many. */
  x,
  /** Address of the rows that splitRows or roundRows wrote; only beside blocks. */
  split,
  /** Flag: roundRows wrote them. */
  rounded,
  weight,
  /** The step from row to row of the weight: in elements, or in bytes where it is blocks. */
  weightRow,
  weightStride, weightType,
  /** Address, or 0. */
  bias,
  biasStride, biasType, y, yStride, yType,
  /** The number of rows of x in this job, and the first row of y that they give. */
  m, first,
  n, k,
  /** Addresses of i32 row numbers: the rows of x, unless they are packed, and those of y; or 0 for rows in order. */
  xRows, yRows,
  walk,
}

/** weighRows adds up the weighted rows of a token's experts. A unit is a token. */
export enum WeighRows {
  /** Address of dense f32 `[tokens, chosen, n]`. */
  x,
  chosen, n,
  /** `[tokens, chosen]` */
  weights,
  weightsType, weightsToken, weightsStride,
  /** `[tokens, n]` */
  y, yType, yRow, yStride,
}

/** self_attention. Strides are those of batch, seq, head and dim. */
export enum Attention {
  q, k, v, y,
  /** The type of q and y. */
  type,
  /** The type of k and v. */
  cacheType,
  /** Flag of attentionMany: keys and values are gathered in scratch memory, as they are paged or have 8 bits. */
  gathers,
  /** Address of i32 `[batch]`, the keys of each where k and v are paged; or 0. */
  lengths,
  /** Address of i32 `[batch, maxBlocks]`; kBatch and vBatch are then strides of blocks. */
  table,
  maxBlocks, blockSize,
  /** Addresses of f32 `[kvHeads, d]` and `[kvHeads, dv]`, or 0. */
  kScale, vScale,
  /** Addresses of f32, the scales of each row and head, or 0; and their strides of batch, seq and head. */
  kOwn, kOwnBatch, kOwnSeq, kOwnHead,
  vOwn, vOwnBatch, vOwnSeq, vOwnHead,
  seq, total, kvHeads,
  /** Query heads of a KV head. */
  group,
  d, dv,
  /** An f32. */
  scale,
  /** An f32, or 0 for none. */
  softcap,
  /** Address of dense f32 `[heads]`, or 0 for none. */
  sinks,
  causal,
  /** Keys that a query sees, or 0 for all. */
  window,
  /** The tokens of a unit, and the number of such blocks. */
  tokens, blocks,
  qBatch, qSeq, qHead, qDim,
  kBatch, kSeq, kHead, kDim,
  vBatch, vSeq, vHead, vDim,
  yBatch, ySeq, yHead, yDim,
}

/** causal_conv. A unit is a block of {@link CHANNELS} channels. */
export enum CausalConv {
  x, y,
  /** Addresses, or 0. */
  before, after, bias,
  weight,
  /** Address of dense f32 `[width - 1, channels]`. */
  state,
  /** The type of x, y, before and after. */
  type,
  weightType, biasType, tokens, channels, width,
  /** Flags. */
  silu, fresh,
  xRow, xStride, yRow, yStride, beforeRow, beforeStride, afterRow, afterStride, weightRow, weightStride, biasStride,
}

/** gated_delta. A unit is a head. */
export enum GatedDelta {
  q, k, v, y,
  /** Address of f32 `[heads, tokens, 2]`: the factor of the state, and that of a correction. */
  gates,
  /** Address of dense f32 `[heads, d, dv]`. */
  state,
  /** The type of q, k, v and y. */
  type,
  tokens, keyHeads, heads, d, dv,
  /** Flags. */
  tiled, fresh,
  /** An f32. */
  scale,
  qRow, qHead, qStride, kRow, kHead, kStride, vRow, vHead, vStride, yRow, yHead, yStride,
  /** An f64, in two words. */
  eps, epsHigh,
}

/** ssm_scan. A unit is a head. */
export enum SsmScan {
  b, c, x, y,
  /** Address of f32 `[heads, tokens, 2]`: the factor of the state, and the time step. */
  steps,
  /** Address of f32 `[heads]`, or 0. */
  skip,
  /** Address of dense f32 `[heads, d, dv]`. */
  state,
  /** The type of b, c, x and y. */
  type,
  tokens,
  /** The heads that share a group of b and c. */
  share,
  d, dv,
  /** A flag. */
  fresh,
  bRow, bGroup, bStride, cRow, cGroup, cStride, xRow, xHead, xStride, yRow, yHead, yStride,
}

/** The channels that a unit of causalConv computes. */
export const CHANNELS = 64;
/** The columns of a tile. Its rows, MR, differ between the two modules: `tileRows` in assembly/index.ts. */
export const NR = 8;
/** The elements of k that linearMany packs at a time: a panel of W then takes 8 KiB of the first-level cache. */
export const KC = 256;
/** The columns of y that a unit of linearMany computes. */
export const NC = 64;
/** The keys that attention reads at a time: a multiple of a tile's rows. */
export const KEYS = 96;

/** The head of a row of splitRows: a flag that is 0 if the row could be split, then padding up to this many bytes. */
export const SPLIT_HEAD = 16;
/** The elements of a unit: blocks have one unit or eight. */
export const UNIT = 32;
/** The bytes of a unit of splitRows: high parts, low parts, the sum of each (i32), the scale, and padding. */
export const SPLIT_BLOCK = 144;
/**
 * The bytes of a unit of roundRows, after a flag as in splitRows: 32 integers of 16 bits, the number that their sum
 * subtracts, the scale, and padding.
 */
export const ROUNDED_BLOCK = 80;
/** The rows of a tile of linearRounded. */
export const ROUNDED_ROWS = 4;

/** The job board, which all threads see: the place of each word. */
export enum Board {
  /**
   * An i64: the job's number, its chunks and the next chunk to claim, in 24, 20 and 20 bits. So one addition claims a
   * chunk and says to which job it belongs.
   */
  ticket, ticketHigh,
  /** The number of chunks that are done. */
  done,
  /** A word that is changed and notified to wake sleepers. */
  wake,
  sleepers, kernel, args, units,
  /** The units of a chunk. */
  chunk,
  /** The address of thread 0's scratch memory, and the bytes of each thread's. */
  scratch, scratchBytes,
  stop,
  /** The number of workers that run, and of those that failed. */
  workers, failed,
  /** A word that never changes: waiting on it means to sleep for a time. */
  never,
  words,
}
