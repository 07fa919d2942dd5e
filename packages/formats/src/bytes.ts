/**
 * Elements and counts from untrusted bytes, for all readers.
 *
 * @module
 */
import { type ArrayOf, type Dtype, sizeBytes } from 'ropewalk';
import { newArray, refuse } from 'ropewalk/backend';
import { checkBytes, checkInteger, type OptionNames, readList, readOptions } from 'ropewalk/internal';

/**
 * Counts the elements of a shape from a file. The product of the dimensions other than 0 is bounded too.
 *
 * @param shape - dimensions, each a safe integer >= 0
 * @returns their product, or undefined when the product of those other than 0 is 2^50 or more
 * @throws {RopewalkError} SHAPE or RANGE for what is no list of integers >= 0
 */
export function countClaimed(shape: readonly number[]): number | undefined {
  const dims = Array.from(readList(shape, 'shape', 'a list of integers'), (dim) => checkInteger(dim, 'shape', 0));
  let product = 1;
  for (const dim of dims) if ((product *= Math.max(1, dim)) >= 2 ** 50) return undefined;
  return dims.includes(0) ? 0 : product;
}

/**
 * Copies a list of tensors that will be written.
 *
 * @param names - the fields of each
 * @param where - the format, for the message
 * @returns the tensors, and how many elements each has
 * @throws {RopewalkError} SHAPE or RANGE for what is no list of these, and for 2^50 elements or more
 */
export function readNewTensors<T extends { readonly name: string; readonly shape: readonly number[] }>(
  tensors: readonly T[],
  names: OptionNames<NoInfer<T>>,
  where: string,
): (T & { readonly count: number })[] {
  return Array.from(readList(tensors, `${where}: tensors`, 'a list of tensors'), (given) => {
    const tensor = readOptions(given, `${where}: tensors`, names);
    if (typeof tensor.name !== 'string') refuse('RANGE', `${where}: tensors: name`, 'a string', tensor.name);
    const shape = Array.from(readList(tensor.shape, `${where}: tensors: shape`, 'a list of integers'));
    const count = countClaimed(shape);
    return { ...tensor, shape, count: count ?? refuse('SHAPE', `${where}: shape`, 'fewer than 2^50 elements', shape) };
  });
}

/**
 * Takes elements out of a file: a view of its memory where alignment and byte order allow, else a copy.
 *
 * @param bytes - the file
 * @param start - byte of the first element
 * @param dtype - their type
 * @param count - how many
 * @param swap - the file is big-endian
 * @throws {RopewalkError} DTYPE for what is no bytes; RANGE when the elements do not lie inside them
 */
export function elementsAt<D extends Dtype>(
  bytes: Uint8Array,
  start: number,
  dtype: D,
  count: number,
  swap = false,
): ArrayOf[D] {
  checkBytes(bytes, 'bytes');
  const unit = sizeBytes(dtype);
  checkInteger(start, 'start', 0, bytes.length);
  checkInteger(count, 'count', 0, Math.floor((bytes.length - start) / unit));
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
