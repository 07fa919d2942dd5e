/** xIELU, the activation of Apertus: a square above 0, an exponential below, and a line through both. @module */
import { type OptionNames, readOptions } from '../core/arguments.js';
import type { FloatDtype } from '../core/dtypes.js';
import { refuse } from '../core/errors.js';
import type { Tensor } from '../core/tensor.js';
import { CHECKED, checkElementwise, checkedPlan, labelsOf } from './checks.js';

/** The factors of xIELU, which a model learns for each layer. The defaults are those with which learning begins. */
export interface XieluOptions {
  /** Multiplies x² above 0. Default: 0.8. */
  readonly positive?: number;
  /** Multiplies e^x − 1 − x below 0. Default: 0.8. */
  readonly negative?: number;
  /** Multiplies x. Default: 0.5. */
  readonly beta?: number;
}

const NAMES: OptionNames<XieluOptions> = { positive: true, negative: true, beta: true };

/** A checked xIELU. Frozen. */
export interface XieluPlan {
  readonly op: 'xielu';
  readonly x: Tensor<FloatDtype>;
  readonly out: Tensor<FloatDtype>;
  readonly positive: number;
  readonly negative: number;
  readonly beta: number;
}

const LABELS = /* @__PURE__ */ labelsOf('xielu', 'out', 'x');

/**
 * Checks `out = positive · max(x, 0)² + negative · (e^n − 1 − n) + beta · x` with `n = min(x, 0)`. transformers takes
 * min(n, −10⁻⁶) in the exponent, which differs by less than 10⁻⁶ · negative.
 *
 * @param x - any shape and strides, any float dtype; only read
 * @param out - same shape and dtype; written; may be exactly `x`
 * @param options - positive, negative, beta
 * @throws {RopewalkError} SHAPE, DTYPE, RANGE or ALIAS
 * @see arXiv:2411.13010; huggingface/transformers@v5.24.0 src/transformers/activations.py XIELUActivation
 */
export function planXielu(x: Tensor, out: Tensor, options: XieluOptions = {}): XieluPlan {
  const { positive = 0.8, negative = 0.8, beta = 0.5 } = readOptions(options, 'xielu: options', NAMES);
  checkElementwise(LABELS, out, 'x', x);
  for (const [name, factor] of Object.entries({ positive, negative, beta }))
    if (!Number.isFinite(factor)) refuse('RANGE', `xielu: ${name}`, 'a finite number', factor);
  return checkedPlan<XieluPlan>({ checked: CHECKED, op: 'xielu', x, out, positive, negative, beta });
}
