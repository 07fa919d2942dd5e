/** Normalisation by the root mean square. @module */
import { type OptionNames, readOptions } from '../core/arguments.js';
import type { FloatDtype } from '../core/dtypes.js';
import { refuse } from '../core/errors.js';
import { checkTensor, type Tensor } from '../core/tensor.js';
import {
  CHECKED,
  checkApart,
  checkDims,
  checkedPlan,
  checkFloat,
  checkOutput,
  checkStored,
  labelsOf,
} from './checks.js';

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

/** How an RMS norm computes. */
export interface RmsNormOptions {
  /** The number that is added to the mean of the squares: finite, >= 0. */
  readonly eps: number;
}

const NAMES: OptionNames<RmsNormOptions> = { eps: true };

/**
 * Checks `out = weight · x / √(mean(x²) + eps)`, row by row.
 *
 * @param x - `[…, d]`, any strides, any float dtype; only read
 * @param weight - `[d]`, in x's dtype, or in f16 or bf16 where x is f32
 * @param out - same shape and dtype as x; written; may be exactly `x`
 * @param options - eps
 * @throws {RopewalkError} SHAPE, DTYPE, RANGE or ALIAS
 * @see arXiv:1910.07467; InfiniTensor/llaisys@7740d46f, rms_norm
 */
export function planRmsNorm(x: Tensor, weight: Tensor, out: Tensor, options: RmsNormOptions): RmsNormPlan {
  const { eps } = readOptions(options, 'rms_norm: options', NAMES);
  checkNorm(NORM_LABELS.rms_norm, x, weight, undefined, eps, out);
  return checkedPlan<RmsNormPlan>({ checked: CHECKED, op: 'rms_norm', x, weight, eps, out });
}

/** The labels of either norm. */
export const NORM_LABELS = {
  rms_norm: /* @__PURE__ */ labelsOf('rms_norm', 'x', 'weight', 'bias', 'eps', 'out'),
  layer_norm: /* @__PURE__ */ labelsOf('layer_norm', 'x', 'weight', 'bias', 'eps', 'out'),
};

/** Checks the arguments of either norm. */
export function checkNorm(
  labels: (typeof NORM_LABELS)['rms_norm'],
  x: Tensor,
  weight: Tensor,
  bias: Tensor | undefined,
  eps: number,
  out: Tensor,
): void {
  checkTensor(x, labels.x);
  if (x.rank === 0) refuse('SHAPE', labels.x, 'at least one dimension', x.shape);
  const vector = [x.shape.at(-1)!];
  checkDims(weight, labels.weight, vector);
  if (!Number.isFinite(eps) || eps < 0) refuse('RANGE', labels.eps, 'a finite number >= 0', eps);
  if (bias !== undefined) checkDims(bias, labels.bias, vector);
  checkDims(out, labels.out, x.shape);
  checkFloat(x, labels.x);
  checkStored(weight, labels.weight, x.dtype);
  if (bias) checkStored(bias, labels.bias, x.dtype);
  checkFloat(out, labels.out, x.dtype);
  checkOutput(out, labels.out);
  checkApart(out, labels.out, 'x', x, true);
  checkApart(out, labels.out, 'weight', weight);
  if (bias) checkApart(out, labels.out, 'bias', bias);
}
