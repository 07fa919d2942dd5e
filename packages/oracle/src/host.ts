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
import { loadNumber, newArray, refuse, storeNumber } from 'ropewalk/backend';
import { countElements } from 'ropewalk/internal';

/** Makes a dense floating tensor of values in row-major order, each rounded once. */
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

/** Takes raw little-endian bytes as elements, in a fresh array. */
export function bytesToArray<D extends Dtype>(bytes: Uint8Array, dtype: D, where: string): ArrayOf[D] {
  const unit = sizeBytes(dtype);
  if (bytes.length % unit !== 0) refuse('FORMAT', where, `a multiple of ${unit} bytes for ${dtype}`, bytes.length);
  const data = newArray(dtype, bytes.length / unit);
  new Uint8Array(data.buffer).set(bytes); // every platform that JavaScript runs on today is little-endian
  return data;
}

/** Takes raw little-endian bytes as a dense tensor. */
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

/** Lays a view over a file's buffer. One that reaches outside is FORMAT: the manifest is at fault, not a backend. */
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

/** Checks a shape that a manifest asks for: a forged one must not exhaust memory or time. */
export function boundedShape(shape: readonly number[], where: string): readonly number[] {
  if (!(countElements(shape) <= MAX_MANIFEST_ELEMENTS))
    refuse('FORMAT', where, `at most ${MAX_MANIFEST_ELEMENTS} elements`, shape);
  return shape;
}
