/** Test data as tensors and arrays. @module */
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

/** Makes a dense floating tensor of values in row-major order. Each value is rounded once. */
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

/** Copies raw little-endian bytes into an array of elements. */
export function bytesToArray<D extends Dtype>(bytes: Uint8Array, dtype: D, where: string): ArrayOf[D] {
  const unit = sizeBytes(dtype);
  if (bytes.length % unit !== 0) refuse('FORMAT', where, `a multiple of ${unit} bytes for ${dtype}`, bytes.length);
  const data = newArray(dtype, bytes.length / unit);
  new Uint8Array(data.buffer).set(bytes); // JavaScript runs on little-endian platforms only today.
  return data;
}

/** Copies raw little-endian bytes into a dense tensor. */
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

/** Makes a view of a file's buffer. One that reaches outside is refused with FORMAT, as the manifest is at fault. */
export function viewOf<D extends Dtype>(whole: Tensor<D>, options: TensorOptions, where: string): Tensor<D> {
  try {
    return new Tensor(whole.storage, options);
  } catch (error) {
    throw asFormatError(error, where);
  }
}

/** Turns a plan's refusal of a case into FORMAT, as the folder is malformed and no backend has failed. */
export function asFormatError(error: unknown, where: string): RopewalkError {
  if (!(error instanceof RopewalkError)) throw error;
  return error.code === 'FORMAT' ? error : new RopewalkError('FORMAT', `${where}: ${error.message}`, { cause: error });
}

/** The largest tensor that a manifest may ask for: a gigabyte of f64, a hundred times the largest real vector. */
const MAX_MANIFEST_ELEMENTS = 2 ** 27;

/** Checks a shape that a manifest asks for: a forged one must not exhaust memory or time. */
export function boundedShape(shape: readonly number[], where: string): readonly number[] {
  if (!(countElements(shape) <= MAX_MANIFEST_ELEMENTS))
    refuse('FORMAT', where, `at most ${MAX_MANIFEST_ELEMENTS} elements`, shape);
  return shape;
}

/** Makes a dense tensor of integers. */
export function integerTensor<D extends 'i32' | 'i64'>(
  dtype: D,
  shape: readonly number[],
  values: ArrayLike<number>,
): Tensor<D> {
  const data = newArray(dtype, countElements(shape));
  for (let n = 0; n < data.length; n++) data[n] = dtype === 'i64' ? BigInt(values[n]!) : values[n]!;
  return tensorFrom<D>(data, { dtype, shape });
}
