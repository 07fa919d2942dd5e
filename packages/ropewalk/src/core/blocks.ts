/** Weights in ggml's quantised blocks, as GGUF files store them. @module */
import { readName } from './arguments.js';
import { BLOCK_FORMAT_NAMES, BLOCK_FORMATS, type BlockFormat, WIDEN_BLOCK } from './block-formats.js';
import type { Dtype } from './dtypes.js';
import { refuse } from './errors.js';
import { checkShape, countElements } from './shape.js';
import { hostOf, Tensor, tensorFrom } from './tensor.js';

/** A weight matrix in blocks: `[n, k]`, or `[experts, n, k]`. Each row is a whole number of blocks. */
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
  return !Tensor.isTensor(weight) && BLOCKS.has(weight); // A WeakSet is slower, so it is asked last.
}

/** Every object that {@link blocksFrom} has made. */
const BLOCKS = /* @__PURE__ */ new WeakSet<object>();

/** Checks that an argument is a weight. @throws {RopewalkError} DTYPE when it is neither a tensor nor blocks */
export function checkWeight(value: unknown, where: string): asserts value is Tensor | BlockTensor {
  if (!Tensor.isTensor(value) && !isBlocks(value as BlockTensor))
    refuse('DTYPE', where, 'a tensor, or blocks from uploadBlocks() or blocksFrom()', value);
}

/**
 * Makes a weight of bytes in quantised blocks, sharing their memory.
 *
 * @param format - the format of the blocks
 * @param bytes - exactly as many blocks, dense: a typed array, or a u8 tensor of one dimension
 * @param shape - `[n, k]`: rows of the matrix, and weights of a row, a multiple of a block's; or `[experts, n, k]`
 * @throws {RopewalkError} UNSUPPORTED for another format; SHAPE when the bytes are not as many as the shape needs
 */
export function blocksFrom(
  format: BlockFormat,
  bytes: Uint8Array | Tensor<'u8'>,
  shape: readonly number[],
): BlockTensor {
  readName(format, BLOCK_FORMAT_NAMES, 'blocks: format');
  const { weights } = BLOCK_FORMATS[format];
  const dims = checkShape(shape, 'blocks: shape');
  if ((dims.length !== 2 && dims.length !== 3) || dims.at(-1)! % weights !== 0) {
    const wanted = `two dimensions [n, k], or three [experts, n, k], with k a multiple of ${weights}`;
    refuse('SHAPE', 'blocks: shape', wanted, shape);
  }
  const tensor = Tensor.isTensor(bytes) ? bytes : tensorFrom<'u8'>(bytes, { dtype: 'u8' });
  if (tensor.dtype !== 'u8') refuse('DTYPE', 'blocks: bytes', 'dtype u8', tensor.dtype);
  const needed = blockBytes(format, countElements(dims));
  if (tensor.size !== needed || !tensor.isContiguous())
    refuse('SHAPE', 'blocks: bytes', `${needed} dense bytes for ${format} [${dims.join(', ')}]`, tensor.size);
  const blocks = Object.freeze({ format, shape: dims, bytes: tensor, dispose: () => tensor.dispose() });
  BLOCKS.add(blocks);
  return blocks;
}

/** Counts the bytes of whole blocks that hold so many weights. */
export function blockBytes(format: BlockFormat, count: number): number {
  const { weights, bytes } = BLOCK_FORMATS[format];
  return (count / weights) * bytes;
}

/** Converts blocks in host memory to numbers, exactly, row-major. @throws {RopewalkError} DEVICE for other memory */
export function readBlocks({ format, shape, bytes }: BlockTensor, where: string): Float64Array {
  const host = hostOf(bytes, where);
  const b = new Uint8Array(host.buffer, host.byteOffset + bytes.offset, bytes.size);
  const unit = BLOCK_FORMATS[format];
  const values = new Float64Array(countElements(shape));
  for (let at = 0, to = 0; at < b.length; at += unit.bytes, to += unit.weights)
    WIDEN_BLOCK[format](b, at, values.subarray(to, to + unit.weights));
  return values;
}

/** Takes the matrix `[n, k]` of one expert from `[experts, n, k]`, sharing the memory. */
export function expertOf<D extends Dtype>(weight: Tensor<D> | BlockTensor, expert: number): Tensor<D> | BlockTensor {
  const [experts, n, k] = weight.shape as [number, number, number];
  if (!isBlocks(weight)) return weight.slice(0, expert, expert + 1).view([n, k]);
  const size = weight.bytes.size / experts;
  return blocksFrom(weight.format, weight.bytes.slice(0, expert * size, (expert + 1) * size), [n, k]);
}
