/** The largest element and where it is. @module */
import type { FloatDtype } from '../core/dtypes.js';
import { refuse } from '../core/errors.js';
import { checkTensor, type Tensor } from '../core/tensor.js';
import { CHECKED, checkApart, checkDims, checkedPlan, checkFloat, checkOutput } from './checks.js';

/** A checked argmax over the last dimension. Frozen. */
export interface ArgmaxPlan {
  readonly op: 'argmax';
  /** `[…, n]` */
  readonly values: Tensor<FloatDtype>;
  /** `[…, 1]` */
  readonly outIndex: Tensor<'i64' | 'i32'>;
  /** `[…, 1]` */
  readonly outValue: Tensor<FloatDtype>;
}

/**
 * Checks an argmax. Of equal maxima (−0 equals +0) the first is taken. If there is a NaN, the first NaN is taken, even
 * beside +∞.
 *
 * @param values - `[…, n]`, n >= 1, any strides, any float dtype; only read
 * @param outIndex - `[…, 1]`, i64 or i32; written
 * @param outValue - `[…, 1]`, the dtype of values; the element is copied bit for bit
 * @throws {RopewalkError} SHAPE, DTYPE or ALIAS
 * @see InfiniTensor/llaisys@7740d46f, argmax; torch.max on ties and NaN
 */
export function planArgmax(values: Tensor, outIndex: Tensor, outValue: Tensor): ArgmaxPlan {
  checkTensor(values, 'argmax: vals');
  if (values.rank === 0 || values.shape.at(-1) === 0) {
    refuse('SHAPE', 'argmax: vals', 'at least one element in the last dimension', values.shape);
  }
  const shape = values.shape.with(-1, 1);
  checkDims(outIndex, 'argmax: max_idx', shape);
  checkDims(outValue, 'argmax: max_val', shape);
  checkFloat(values, 'argmax: vals');
  if (outIndex.dtype !== 'i64' && outIndex.dtype !== 'i32')
    refuse('DTYPE', 'argmax: max_idx', 'dtype i64 or i32', outIndex.dtype);
  checkFloat(outValue, 'argmax: max_val', values.dtype);
  checkOutput(outIndex, 'argmax: max_idx');
  checkApart(outIndex, 'argmax: max_idx', 'vals', values);
  checkOutput(outValue, 'argmax: max_val');
  checkApart(outValue, 'argmax: max_val', 'vals', values);
  checkApart(outValue, 'argmax: max_val', 'max_idx', outIndex);
  return checkedPlan<ArgmaxPlan>({ checked: CHECKED, op: 'argmax', values, outIndex, outValue });
}
