/** Copies between tensors and dense float64 arrays, for the oracle only. @module */
import { type FloatDtype, loadNumber, storeNumber } from '../core/dtypes.js';
import { walk } from '../core/shape.js';
import { hostOf, type Tensor } from '../core/tensor.js';

/** Reads every element into a fresh array, in row-major order. @throws {RopewalkError} DEVICE for a device's memory */
export function readAll(tensor: Tensor, where: string): Float64Array {
  const host = hostOf(tensor, where);
  const values = new Float64Array(tensor.size);
  walk(tensor, (at, n) => {
    values[n] = loadNumber(host, tensor.dtype, at);
  });
  return values;
}

/**
 * Writes every element, in row-major order, each rounded once; memory between the elements is not changed.
 *
 * @throws {RopewalkError} DEVICE for a device's memory
 */
export function writeAll(tensor: Tensor<FloatDtype>, values: Float64Array, where: string): void {
  const host = hostOf(tensor, where);
  walk(tensor, (at, n) => storeNumber(host, tensor.dtype, at, values[n]!));
}
