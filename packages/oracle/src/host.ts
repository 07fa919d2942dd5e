/**
 * Moving test data in and out of a runner.
 *
 * @module
 */
import {
  type ArrayOf,
  type Dtype,
  type FloatDtype,
  type HostArray,
  RopewalkError,
  sizeBytes,
  Tensor,
  type TensorOptions,
  tensorFrom,
} from 'ropewalk';
import { countElements, loadNumber, newArray, refuse, storeNumber } from 'ropewalk/backend';

/**
 * Makes a dense floating tensor for a runner, element by element.
 *
 * @param dtype - element type; values are rounded once
 * @param value - gives the next element, row-major
 */
export function hostTensor<D extends FloatDtype>(
  dtype: D,
  shape: readonly number[],
  value: (n: number) => number,
): Tensor<D> {
  const data = newArray(dtype, countElements(shape));
  for (let n = 0; n < data.length; n++) storeNumber(data, dtype, n, value(n));
  return tensorFrom<D>(data, { dtype, shape });
}

/** Reads elements as float64 numbers. */
export function numbersOf(data: HostArray, dtype: Dtype): Float64Array {
  return Float64Array.from({ length: data.length }, (_, n) => loadNumber(data, dtype, n));
}

/**
 * Takes raw little-endian bytes as elements.
 *
 * @returns a fresh array: the caller may write into it
 * @throws {RopewalkError} FORMAT when the size is not a multiple of the element size
 */
export function bytesToArray<D extends Dtype>(bytes: Uint8Array, dtype: D, where: string): ArrayOf[D] {
  const unit = sizeBytes(dtype);
  if (bytes.length % unit !== 0) refuse('FORMAT', where, `a multiple of ${unit} bytes for ${dtype}`, bytes.length);
  const data = newArray(dtype, bytes.length / unit);
  new Uint8Array(data.buffer).set(bytes); // every platform that JavaScript runs on today is little-endian
  return data;
}

/**
 * Takes raw little-endian bytes as a dense tensor.
 *
 * @throws {RopewalkError} FORMAT when the size does not fit
 */
export function bytesToTensor<D extends Dtype>(
  bytes: Uint8Array,
  dtype: D,
  shape: readonly number[],
  where: string,
): Tensor<D> {
  const data = bytesToArray(bytes, dtype, where);
  if (data.length !== countElements(shape))
    refuse('FORMAT', where, `${countElements(shape)} elements for shape [${shape}]`, data.length);
  return tensorFrom<D>(data, { dtype, shape });
}

/**
 * Lays a view over a tensor as a manifest describes it.
 *
 * @param whole - the buffer that the manifest's file holds
 * @param options - shape, strides and offset in elements, from the manifest
 * @throws {RopewalkError} FORMAT when the view reaches outside the buffer: the manifest is malformed, and no backend is
 *   at fault
 */
export function viewOf<D extends Dtype>(whole: Tensor<D>, options: TensorOptions, where: string): Tensor<D> {
  try {
    return new Tensor(whole.storage, options);
  } catch (error) {
    if (!(error instanceof RopewalkError)) throw error;
    throw new RopewalkError('FORMAT', `${where}: ${error.message}`, { cause: error });
  }
}

/** The largest tensor that a manifest may ask for: a gigabyte of f64, a hundred times the largest real vector. */
const MAX_MANIFEST_ELEMENTS = 2 ** 27;

/**
 * Checks a shape that a manifest asks to be allocated or walked.
 *
 * @throws {RopewalkError} FORMAT past 2^27 elements: a forged manifest must not exhaust memory or time
 */
export function boundedShape(shape: readonly number[], where: string): readonly number[] {
  if (!(countElements(shape) <= MAX_MANIFEST_ELEMENTS))
    refuse('FORMAT', where, `at most ${MAX_MANIFEST_ELEMENTS} elements`, shape);
  return shape;
}
