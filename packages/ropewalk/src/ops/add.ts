/** Addition. @module */
import type { FloatDtype } from '../core/dtypes.js';
import { checkTensor, type Tensor } from '../core/tensor.js';
import { CHECKED, checkApart, checkDims, checkedPlan, checkFloat, checkOutput } from './checks.js';

/** A checked addition. Frozen. */
export interface AddPlan {
  readonly op: 'add';
  readonly a: Tensor<FloatDtype>;
  readonly b: Tensor<FloatDtype>;
  readonly out: Tensor<FloatDtype>;
}

/**
 * Checks `out = a + b`.
 *
 * @param a - any shape and strides, any float dtype; only read
 * @param b - same shape and dtype; there is no broadcasting
 * @param out - same shape and dtype; written; may be exactly `a` or `b`
 * @throws {RopewalkError} SHAPE, then DTYPE, then ALIAS
 * @see InfiniTensor/llaisys@7740d46f, add
 */
export function planAdd(a: Tensor, b: Tensor, out: Tensor): AddPlan {
  // The checks of checkElementwise with constant labels, because a small sum is the cheapest call of all.
  checkTensor(a, 'add: a');
  checkDims(b, 'add: b', a.shape);
  checkDims(out, 'add: out', a.shape);
  checkFloat(a, 'add: a');
  checkFloat(b, 'add: b', a.dtype);
  checkFloat(out, 'add: out', a.dtype);
  checkOutput(out, 'add: out');
  checkApart(out, 'add: out', 'a', a, true);
  checkApart(out, 'add: out', 'b', b, true);
  return checkedPlan<AddPlan>({ checked: CHECKED, op: 'add', a, b, out });
}
