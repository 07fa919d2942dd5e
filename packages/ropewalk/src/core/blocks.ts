/**
 * Weights in ggml's quantised blocks, as GGUF files store them.
 *
 * A block is 32 weights of one row with one f16 scale d. q8_0: d, then 32 signed bytes q; weight = d·q. q4_0: d, then
 * 16 bytes; weight = d·(q − 8), where q of weight j is the low half of byte j, q of weight j + 16 its high half.
 *
 * @module
 * @see ggml-org/ggml@d99724f src/ggml-quants.c, dequantize_row_q8_0 and dequantize_row_q4_0
 */
import { readName } from './arguments.js';
import type { Dtype } from './dtypes.js';
import { refuse } from './errors.js';
import { numberFromF16 } from './float16.js';
import { checkShape, countElements } from './shape.js';
import { hostOf, Tensor, tensorFrom } from './tensor.js';

/** A block format. */
export type BlockFormat = 'q8_0' | 'q4_0';

/** Weights in a block, of either format. */
export const BLOCK_WEIGHTS = 32;

/** Bytes in a block. */
export const BLOCK_BYTES: Readonly<Record<BlockFormat, number>> = /* @__PURE__ */ Object.freeze({ q8_0: 34, q4_0: 18 });

/** A weight matrix in blocks: `[n, k]`, or `[experts, n, k]`; rows one after the other, k a multiple of 32. */
export interface BlockTensor {
  readonly format: BlockFormat;
  readonly shape: readonly number[];
  /** The blocks, dense. */
  readonly bytes: Tensor<'u8'>;
  /** Returns the memory to its owner, as {@link Tensor.dispose}. */
  dispose(): void;
}

/**
 * Says whether a weight is in blocks.
 *
 * @param weight - a tensor or blocks
 */
export function isBlocks(weight: Tensor | BlockTensor): weight is BlockTensor {
  return !Tensor.isTensor(weight) && BLOCKS.has(weight); // a WeakSet is slower, so it is asked last
}

/** Every object that {@link blocksFrom} has made. */
const BLOCKS = /* @__PURE__ */ new WeakSet<object>();

/**
 * Checks that an argument is a weight.
 *
 * @throws {RopewalkError} DTYPE when it is neither a tensor nor blocks
 */
export function checkWeight(value: unknown, where: string): asserts value is Tensor | BlockTensor {
  if (!Tensor.isTensor(value) && !isBlocks(value as BlockTensor))
    refuse('DTYPE', where, 'a tensor, or blocks from uploadBlocks() or blocksFrom()', value);
}

/**
 * Makes a weight of bytes in quantised blocks, sharing their memory.
 *
 * @param format - how they are packed
 * @param bytes - exactly n · k / 32 blocks, dense: a typed array, or a u8 tensor of one dimension
 * @param shape - `[n, k]`: rows of the matrix, and weights of a row, a multiple of 32; or `[experts, n, k]`
 * @throws {RopewalkError} UNSUPPORTED for another format; SHAPE when the bytes are not as many as the shape needs
 */
export function blocksFrom(
  format: BlockFormat,
  bytes: Uint8Array | Tensor<'u8'>,
  shape: readonly number[],
): BlockTensor {
  readName(format, ['q8_0', 'q4_0'], 'blocks: format');
  const dims = checkShape(shape, 'blocks: shape');
  if ((dims.length !== 2 && dims.length !== 3) || dims.at(-1)! % BLOCK_WEIGHTS !== 0) {
    const wanted = `two dimensions [n, k], or three [experts, n, k], with k a multiple of ${BLOCK_WEIGHTS}`;
    refuse('SHAPE', 'blocks: shape', wanted, shape);
  }
  const tensor = Tensor.isTensor(bytes) ? bytes : tensorFrom<'u8'>(bytes, { dtype: 'u8' });
  if (tensor.dtype !== 'u8') refuse('DTYPE', 'blocks: bytes', 'dtype u8', tensor.dtype);
  const needed = (countElements(dims) / BLOCK_WEIGHTS) * BLOCK_BYTES[format];
  if (tensor.size !== needed || !tensor.isContiguous())
    refuse('SHAPE', 'blocks: bytes', `${needed} dense bytes for ${format} [${dims.join(', ')}]`, tensor.size);
  const blocks = Object.freeze({
    format,
    shape: Object.freeze(dims),
    bytes: tensor,
    dispose: () => tensor.dispose(),
  });
  BLOCKS.add(blocks);
  return blocks;
}

/**
 * Converts blocks to numbers, exactly: an f16 times an integer below 2^8 fits a float64 (and an f32).
 *
 * @param blocks - in host memory
 * @param where - operator and argument, for the message
 * @returns all weights, row-major
 * @throws {RopewalkError} DEVICE when they are not in host memory
 */
export function readBlocks(blocks: BlockTensor, where: string): Float64Array {
  const host = hostOf(blocks.bytes, where);
  const unit = BLOCK_BYTES[blocks.format];
  const values = new Float64Array(countElements(blocks.shape));
  for (let block = 0; block < values.length / BLOCK_WEIGHTS; block++) {
    const at = blocks.bytes.offset + block * unit;
    const scale = numberFromF16(host[at]! | (host[at + 1]! << 8));
    for (let j = 0; j < BLOCK_WEIGHTS; j++) {
      const byte = host[at + 2 + (blocks.format === 'q8_0' ? j : j % 16)]!;
      const q = blocks.format === 'q8_0' ? (byte << 24) >> 24 : (j < 16 ? byte & 15 : byte >> 4) - 8;
      values[block * BLOCK_WEIGHTS + j] = scale * q;
    }
  }
  return values;
}

/**
 * One expert's matrix.
 *
 * @param weight - `[experts, n, k]`
 * @param expert - in [0, experts)
 * @returns `[n, k]`, sharing the memory
 */
export function expertOf<D extends Dtype>(weight: Tensor<D> | BlockTensor, expert: number): Tensor<D> | BlockTensor {
  const [experts, n, k] = weight.shape as [number, number, number];
  if (!isBlocks(weight)) return weight.slice(0, expert, expert + 1).view([n, k]);
  const size = weight.bytes.size / experts;
  return blocksFrom(weight.format, weight.bytes.slice(0, expert * size, (expert + 1) * size), [n, k]);
}
