/** Normalisation by the root mean square. @module */
import type { FloatDtype } from '../core/dtypes.js';
import { refuse } from '../core/errors.js';
import { checkTensor, type Tensor } from '../core/tensor.js';
import { CHECKED, checkApart, checkDims, checkedPlan, checkFloat, checkOutput, checkStored } from './checks.js';

/** A checked RMS norm over the last dimension. Frozen. */
export interface RmsNormPlan {
  readonly op: 'rms_norm';
  /** `[…, d]` */
  readonly x: Tensor<FloatDtype>;
  /** `[d]` */
  readonly weight: Tensor<FloatDtype>;
  readonly eps: number;
  /** `[…, d]` */
  readonly out: Tensor<FloatDtype>;
}

/**
 * Checks `out = weight · x / √(mean(x²) + eps)`, row by row.
 *
 * @param x - `[…, d]`, any strides, any float dtype; only read
 * @param weight - `[d]`, in x's dtype, or in f16 or bf16 where x is f32
 * @param eps - finite, >= 0
 * @param out - same shape and dtype as x; written; may be exactly `x`
 * @throws {RopewalkError} SHAPE, DTYPE, RANGE or ALIAS
 * @see seed document 001, rms_norm; arXiv:1910.07467
 */
export function planRmsNorm(x: Tensor, weight: Tensor, eps: number, out: Tensor): RmsNormPlan {
  checkTensor(x, 'rms_norm: x');
  checkNormInput('rms_norm', x, weight, eps);
  checkDims(out, 'rms_norm: out', x.shape);
  checkFloat(x, 'rms_norm: x');
  checkStored(weight, 'rms_norm: weight', x.dtype);
  checkFloat(out, 'rms_norm: out', x.dtype);
  checkOutput(out, 'rms_norm: out');
  checkApart(out, 'rms_norm: out', 'x', x, true);
  checkApart(out, 'rms_norm: out', 'weight', weight);
  return checkedPlan({ checked: CHECKED, op: 'rms_norm', x, weight, eps, out });
}

/** Checks what both norms require of x `[…, d]`, the weight `[d]` and eps. */
export function checkNormInput(op: 'rms_norm' | 'layer_norm', x: Tensor, weight: Tensor, eps: number): void {
  if (x.rank === 0) refuse('SHAPE', `${op}: x`, 'at least one dimension', x.shape);
  checkDims(weight, `${op}: weight`, [x.shape.at(-1)!]);
  if (!Number.isFinite(eps) || eps < 0) refuse('RANGE', `${op}: eps`, 'a finite number >= 0', eps);
}
