/**
 * What the host (TypeScript) and the kernels (AssemblyScript, assembly/) agree on. Both compilers read this file, so it
 * holds nothing but enums and constants.
 *
 * A kernel's arguments are 32-bit words at one address; an enum below names the place of each word. Addresses are in
 * bytes, strides in elements, types are a {@link Type}, and a flag is 0 or 1. `walk` stands for several words: a rank,
 * as many sizes, slowest first, and as many strides for each tensor, in the order that the enum's comment gives.
 *
 * @module
 */

/** How elements are stored; types from q8_0 on are blocks. The names are those of dtypes and block formats. */
export enum Type {
  f32, f16, bf16, i8, f8_e4m3, f8_e5m2, q8_0, q4_0, iq4_nl, mxfp4, q4_K, q5_K, q6_K, iq4_xs,
}

/** The kernels, by the number that `run` (assembly/index.ts) takes. */
export enum Kernel {
  rope, norm, elementwise, rearrange, convert, embedding, embeddingWide, argmax,
  widenRows, packRows, splitRows, roundRows, linearFew, linearBlocks, linearMany, linearRounded,
  attentionFew, attentionMany,
  jobs, weighRows,
}

/** Many jobs of one kernel, each with arguments of its own, as one: unit u is unit u % each of job u / each. */
export enum Jobs {
  /** The kernel of all jobs. */
  kernel,
  /** Units of a job. */
  each,
  /** Address of the jobs' arguments, one after the other, and words of each. */
  list, words,
}

/** What elementwise computes; the activations multiply by b where there is one. */
export enum Activation {
  add, swiglu,
  /** SwiGLU with a limit, alpha and offset, which are its parameters. */
  clamped,
  gelu, geluTanh,
  /** a · first parameter, and · b where there is one. */
  scale,
  /** scale, then the soft cap: the second parameter. */
  softcap,
}

/**
 * add, the activations and scale. A row is cut into blocks of `block` elements. The walk goes over rows: y, a, and b
 * where there is one.
 */
export enum Elementwise {
  a,
  /** 0: none. */
  b,
  y, type, activation,
  /** f32. */
  first, second, third,
  /** Elements of a row. */
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
  /** Elements of a row. */
  n,
  block, xStride, yStride, walk,
}

/** embedding, also where rows are widened to f32. */
export enum Embedding {
  table, y,
  /** Address of i32 row numbers. */
  index,
  /** Bytes of an element, where bits are copied. */
  size,
  /** The table's type, where it is widened. */
  type,
  width,
  /** From row to row of the table: elements, or bytes where it is blocks. */
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
  centred,
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
  /** The largest of a part. */
  headDim,
  rotaryOffset, pairs, readStep, readGap, writeStep, writeGap,
  /** How many. */
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
  /** Address of i32 `[batch, seq]`, the rows of y, -1 for none; 0: token s goes to row s. */
  rows,
  /** Rows of a block where `rows` are slots: yBatch is then the stride of blocks; or 0. */
  blockSize,
  /** Address of f32 `[heads, headDim]`: what is stored is divided by it; or 0. */
  scale,
  /** Address of f32 `[headDim]`; 0: no norm. */
  weight,
  /** An f64, in two words. */
  eps, epsHigh,
  /** Flag: x and y are dense in their last dimension and of one type, and there is no norm. */
  dense,
  words,
}

/** Rows of x made ready for linear: widenRows, packRows, splitRows and roundRows. The walk goes over all rows: x. */
export enum Rows {
  x, to,
  /** Of x; of the weights, where rows are split or rounded for them. */
  type,
  k, stride,
  /** Address of i32 row numbers, the rows to read; or 0: all. Not in splitRows and roundRows. */
  list,
  /** The first row to read, or the first of the list. */
  first,
  /** How many rows there are, where rows are packed. */
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
  /** From row to row of the weight: elements, or bytes where it is blocks. */
  weightRow,
  weightStride, weightType,
  /** Address, or 0. */
  bias,
  biasStride, biasType, y, yStride, yType,
  /** Rows of x here, and the first row of y that they give. */
  m, first,
  n, k,
  /** Addresses of i32 row numbers: the rows of x, unless they are packed, and those of y; or 0: rows as they come. */
  xRows, yRows,
  walk,
}

/** The rows of each expert, weighted and added up. A unit is a token. */
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
  /** Of q and y. */
  type,
  /** Of k and v. */
  cacheType,
  /** Of attentionMany, a flag: keys and values are gathered in scratch memory, as they are paged or of 8 bits. */
  gathers,
  /** Address of i32 `[batch]`, the keys of each where k and v are paged; or 0. */
  lengths,
  /** Address of i32 `[batch, maxBlocks]`; kBatch and vBatch are then strides of blocks. */
  table,
  maxBlocks, blockSize,
  /** Addresses of f32 `[kvHeads, d]` and `[kvHeads, dv]`, or 0. */
  kScale, vScale,
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
  /** Tokens of a unit, and how many such blocks there are. */
  tokens, blocks,
  qBatch, qSeq, qHead, qDim,
  kBatch, kSeq, kHead, kDim,
  vBatch, vSeq, vHead, vDim,
  yBatch, ySeq, yHead, yDim,
}

/** Columns of a tile. Its rows, MR, differ between the two modules: `tileRows` in assembly/index.ts. */
export const NR = 8;
/** Elements of k that linearMany packs at a time: a panel of W then takes 8 KiB of the first-level cache. */
export const KC = 256;
/** Columns of y that a unit of linearMany computes. */
export const NC = 64;
/** Keys that attention takes at a time: a multiple of a tile's rows. */
export const KEYS = 96;

/** What splitRows writes: a flag that is 0 if the row could be split, room up to SPLIT_HEAD bytes, then the blocks. */
export const SPLIT_HEAD = 16;
/** Elements of a unit: blocks have one or eight. */
export const UNIT = 32;
/** What a unit takes: high parts, low parts, the sum of each (i32), the scale, and room that keeps vectors aligned. */
export const SPLIT_BLOCK = 144;
/** What a unit takes that roundRows wrote, after a flag as in splitRows: 32 integers of 16 bits, what their sum takes
 * away, the scale, and room that keeps vectors aligned. */
export const ROUNDED_BLOCK = 80;
/** Rows of a tile of linearRounded. */
export const ROUNDED_ROWS = 4;

/** The job board, which all threads see: the place of each word. */
export enum Board {
  /**
   * An i64: the job's number, its chunks and the next chunk to claim, in 24, 20 and 20 bits. So one addition claims a
   * chunk and says to which job it belongs.
   */
  ticket, ticketHigh,
  /** Chunks that are done. */
  done,
  /** Changed, and notified, to wake sleepers. */
  wake,
  sleepers, kernel, args, units,
  /** Units of a chunk. */
  chunk,
  /** Address of thread 0's scratch memory, and bytes of each thread's. */
  scratch, scratchBytes,
  stop,
  /** Workers that run, and workers that failed. */
  workers, failed,
  /** A word that never changes: to wait on it is to sleep for a time. */
  never,
  words,
}
