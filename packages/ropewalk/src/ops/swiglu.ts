/** The gated activation of Llama's feed-forward layer, and its clamped form. @module */
import { type OptionNames, readOptions } from '../core/arguments.js';
import type { FloatDtype } from '../core/dtypes.js';
import { refuse } from '../core/errors.js';
import type { Tensor } from '../core/tensor.js';
import { CHECKED, checkElementwise, checkedPlan, labelsOf } from './checks.js';

/** Options of SwiGLU. gpt-oss has `{ limit: 7, alpha: 1.702, offset: 1 }`. */
export interface SwigluOptions {
  /** The gate is clipped to at most this, and up to ± this. Default: no limit. */
  readonly limit?: number;
  /** Multiplies the gate inside the sigmoid. Default: 1. */
  readonly alpha?: number;
  /** Is added to up. Default: 0. */
  readonly offset?: number;
}

const NAMES: OptionNames<SwigluOptions> = { limit: true, alpha: true, offset: true };

/** A checked SwiGLU. Frozen. */
export interface SwigluPlan {
  readonly op: 'swiglu';
  readonly gate: Tensor<FloatDtype>;
  readonly up: Tensor<FloatDtype>;
  readonly out: Tensor<FloatDtype>;
  readonly limit: number | undefined;
  readonly alpha: number;
  readonly offset: number;
}

const LABELS = /* @__PURE__ */ labelsOf('swiglu', 'out', 'gate', 'up');

/**
 * Checks `out = (u + offset) · g / (1 + exp(−alpha·g))` with `g = min(gate, limit)` and `u = clip(up, ±limit)`; without
 * options `out = up · gate / (1 + exp(−gate))`.
 *
 * @param gate - any shape and strides, any float dtype; only read
 * @param up - same shape and dtype; only read
 * @param out - same shape and dtype; written; may be exactly `gate` or `up`
 * @param options - limit, alpha, offset
 * @throws {RopewalkError} SHAPE, DTYPE, RANGE or ALIAS
 * @see arXiv:2002.05202; InfiniTensor/llaisys@7740d46f, swiglu
 * @see huggingface/transformers@v5.18.0 src/transformers/models/gpt_oss/modeling_gpt_oss.py
 */
export function planSwiglu(gate: Tensor, up: Tensor, out: Tensor, options: SwigluOptions = {}): SwigluPlan {
  const given = readOptions(options, 'swiglu: options', NAMES);
  const { limit } = given;
  const alpha = given.alpha ?? 1;
  const offset = given.offset ?? 0;
  checkElementwise(LABELS, out, 'gate', gate, 'up', up);
  if (limit !== undefined && !(Number.isFinite(limit) && limit > 0))
    refuse('RANGE', 'swiglu: limit', 'a finite number > 0', limit);
  if (!Number.isFinite(alpha)) refuse('RANGE', 'swiglu: alpha', 'a finite number', alpha);
  if (!Number.isFinite(offset)) refuse('RANGE', 'swiglu: offset', 'a finite number', offset);
  return checkedPlan<SwigluPlan>({ checked: CHECKED, op: 'swiglu', gate, up, out, limit, alpha, offset });
}
