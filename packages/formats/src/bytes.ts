/**
 * What the readers share: elements and counts from untrusted bytes.
 *
 * @module
 */
import { type ArrayOf, type Dtype, sizeBytes } from 'ropewalk';
import { newArray } from 'ropewalk/backend';

/**
 * Counts the elements of a shape from a file. The dimensions other than 0 are bounded too.
 *
 * @param shape - dimensions, each a safe integer >= 0
 * @returns their product, or undefined when the product of those other than 0 is 2^50 or more
 */
export function countClaimed(shape: readonly number[]): number | undefined {
  let product = 1;
  for (const dim of shape) if ((product *= Math.max(1, dim)) >= 2 ** 50) return undefined;
  return shape.includes(0) ? 0 : product;
}

/**
 * Takes elements out of a file: a view of its memory where alignment and byte order allow, else a copy.
 *
 * @param bytes - the file
 * @param start - byte of the first element; the caller has checked that all elements are inside `bytes`
 * @param dtype - their type
 * @param count - how many
 * @param swap - the file is big-endian
 */
export function elementsAt<D extends Dtype>(
  bytes: Uint8Array,
  start: number,
  dtype: D,
  count: number,
  swap = false,
): ArrayOf[D] {
  const unit = sizeBytes(dtype);
  const at = bytes.byteOffset + start;
  if (!swap && at % unit === 0) {
    const view = newArray(dtype, 0).constructor as new (...args: [ArrayBufferLike, number, number]) => ArrayOf[D];
    return new view(bytes.buffer, at, count);
  }
  const copy = newArray(dtype, count);
  const raw = new Uint8Array(copy.buffer);
  raw.set(bytes.subarray(start, start + raw.length));
  if (swap) for (let i = 0; i < raw.length; i += unit) raw.subarray(i, i + unit).reverse();
  return copy;
}
