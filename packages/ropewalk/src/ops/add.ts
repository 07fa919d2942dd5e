/** Addition. @module */
import type { FloatDtype } from '../core/dtypes.js';
import type { Tensor } from '../core/tensor.js';
import { CHECKED, checkElementwise, checkedPlan } from './checks.js';

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
  checkElementwise('add', out, 'a', a, 'b', b);
  return checkedPlan<AddPlan>({ checked: CHECKED, op: 'add', a, b, out });
}
