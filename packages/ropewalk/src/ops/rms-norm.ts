/** Normalisation by the root mean square. @module */
import { type OptionNames, readOptions } from '../core/arguments.js';
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
  checkNorm('rms_norm', x, weight, undefined, eps, out);
  return checkedPlan<RmsNormPlan>({ checked: CHECKED, op: 'rms_norm', x, weight, eps, out });
}

/** Checks the arguments of either norm. */
export function checkNorm(
  op: 'rms_norm' | 'layer_norm',
  x: Tensor,
  weight: Tensor,
  bias: Tensor | undefined,
  eps: number,
  out: Tensor,
): void {
  checkTensor(x, `${op}: x`);
  if (x.rank === 0) refuse('SHAPE', `${op}: x`, 'at least one dimension', x.shape);
  const vector = [x.shape.at(-1)!];
  checkDims(weight, `${op}: weight`, vector);
  if (!Number.isFinite(eps) || eps < 0) refuse('RANGE', `${op}: eps`, 'a finite number >= 0', eps);
  if (bias !== undefined) checkDims(bias, `${op}: bias`, vector);
  checkDims(out, `${op}: out`, x.shape);
  checkFloat(x, `${op}: x`);
  checkStored(weight, `${op}: weight`, x.dtype);
  if (bias) checkStored(bias, `${op}: bias`, x.dtype);
  checkFloat(out, `${op}: out`, x.dtype);
  checkOutput(out, `${op}: out`);
  checkApart(out, `${op}: out`, 'x', x, true);
  checkApart(out, `${op}: out`, 'weight', weight);
  if (bias) checkApart(out, `${op}: out`, 'bias', bias);
}
