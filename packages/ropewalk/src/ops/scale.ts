/** Multiplication by a number, or of each row by its own, and a soft cap. @module */
import { type OptionNames, readOptions } from '../core/arguments.js';
import type { FloatDtype } from '../core/dtypes.js';
import { refuse } from '../core/errors.js';
import { Tensor } from '../core/tensor.js';
import { CHECKED, checkApart, checkDims, checkElementwise, checkedPlan, checkFloat, labelsOf } from './checks.js';

/** Options of scale. */
export interface ScaleOptions {
  /** The product becomes softcap · tanh(product / softcap). Default: no cap. */
  readonly softcap?: number;
}

const NAMES: OptionNames<ScaleOptions> = { softcap: true };

/** A checked multiplication. Frozen. */
export interface ScalePlan {
  readonly op: 'scale';
  /** `[…, d]` */
  readonly x: Tensor<FloatDtype>;
  /** One number; or `[…]`, one for each row of x. */
  readonly factor: number | Tensor<FloatDtype>;
  readonly softcap: number | undefined;
  /** `[…, d]` */
  readonly out: Tensor<FloatDtype>;
}

const LABELS = /* @__PURE__ */ labelsOf('scale', 'out', 'x');

/**
 * Checks `out = x · factor`, or `out = softcap · tanh(x · factor / softcap)`.
 *
 * @param x - any shape and strides, any float dtype; only read
 * @param factor - a finite number; or a tensor with the dimensions of x but the last, and its dtype: one factor for
 *   each row
 * @param out - same shape and dtype as x; written; may be exactly `x`
 * @param options - softcap
 * @throws {RopewalkError} SHAPE, DTYPE, RANGE or ALIAS
 */
export function planScale(x: Tensor, factor: number | Tensor, out: Tensor, options: ScaleOptions = {}): ScalePlan {
  const { softcap } = readOptions(options, 'scale: options', NAMES);
  checkElementwise(LABELS, out, 'x', x);
  if (Tensor.isTensor(factor)) {
    if (x.rank === 0) refuse('SHAPE', 'scale: x', 'at least one dimension beside factors of rows', x.shape);
    checkDims(factor, 'scale: factor', x.shape.slice(0, -1));
    checkFloat(factor, 'scale: factor', x.dtype);
    checkApart(out, 'scale: out', 'factor', factor);
  } else if (typeof factor !== 'number' || !Number.isFinite(factor))
    refuse('RANGE', 'scale: factor', 'a finite number, or a tensor with one for each row', factor);
  if (softcap !== undefined && !(Number.isFinite(softcap) && softcap > 0))
    refuse('RANGE', 'scale: softcap', 'a finite number > 0', softcap);
  return checkedPlan<ScalePlan>({ checked: CHECKED, op: 'scale', x, factor, softcap, out });
}
