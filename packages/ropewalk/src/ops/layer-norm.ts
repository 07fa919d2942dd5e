/** Normalisation by mean and variance. @module */
import { type OptionNames, readOptions } from '../core/arguments.js';
import type { FloatDtype } from '../core/dtypes.js';
import type { Tensor } from '../core/tensor.js';
import { CHECKED, checkedPlan } from './checks.js';
import { checkNorm, NORM_LABELS } from './rms-norm.js';

/** A checked layer norm over the last dimension. Frozen. */
export interface LayerNormPlan {
  readonly op: 'layer_norm';
  /** `[…, d]` */
  readonly x: Tensor<FloatDtype>;
  /** `[d]` */
  readonly weight: Tensor<FloatDtype>;
  /** `[d]` */
  readonly bias: Tensor<FloatDtype> | undefined;
  readonly eps: number;
  /** `[…, d]` */
  readonly out: Tensor<FloatDtype>;
}

/** How a layer norm computes. */
export interface LayerNormOptions {
  /** `[d]`, in the dtypes of the weight. */
  readonly bias?: Tensor | undefined;
  /** The number that is added to the variance: finite, >= 0. */
  readonly eps: number;
}

const NAMES: OptionNames<LayerNormOptions> = { bias: true, eps: true };

/**
 * Checks `out = weight · (x − mean(x)) / √(var(x) + eps) + bias`, row by row; var is the mean of the squared
 * differences.
 *
 * @param x - `[…, d]`, any strides, any float dtype; only read
 * @param weight - `[d]`, in x's dtype, or in f16 or bf16 where x is f32
 * @param out - same shape and dtype as x; written; may be exactly `x`
 * @param options - bias and eps
 * @throws {RopewalkError} SHAPE, DTYPE, RANGE or ALIAS
 * @see arXiv:1607.06450; torch.nn.functional.layer_norm
 */
export function planLayerNorm(x: Tensor, weight: Tensor, out: Tensor, options: LayerNormOptions): LayerNormPlan {
  const { bias, eps } = readOptions(options, 'layer_norm: options', NAMES);
  checkNorm(NORM_LABELS.layer_norm, x, weight, bias, eps, out);
  return checkedPlan<LayerNormPlan>({ checked: CHECKED, op: 'layer_norm', x, weight, bias, eps, out });
}
