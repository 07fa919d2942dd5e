/** Small helpers that tests share. */
import { type FloatDtype, type Tensor, tensorFrom } from 'ropewalk';
import { newArray, storeNumber } from 'ropewalk/backend';

/** Makes a dense tensor of numbers. Default dtype: float64. */
export function f64Tensor(
  values: ArrayLike<number>,
  shape: readonly number[],
  dtype: FloatDtype = 'f64',
): Tensor<FloatDtype> {
  const data = newArray(dtype, values.length);
  for (let n = 0; n < values.length; n++) storeNumber(data, dtype, n, values[n]!);
  return tensorFrom(data, { dtype, shape }) as Tensor<FloatDtype>;
}

/** Returns the elements of a host tensor as numbers. */
export function floats(tensor: Tensor): Float64Array {
  return tensor.readNumbers() as Float64Array;
}
