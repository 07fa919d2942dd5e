/** The gated activation of Llama's feed-forward layer, and its clamped form. @module */
import { type OptionNames, readName, readOptions } from '../core/arguments.js';
import type { FloatDtype } from '../core/dtypes.js';
import { refuse } from '../core/errors.js';
import type { Tensor } from '../core/tensor.js';
import { CHECKED, checkElementwise, checkedPlan, labelsOf } from './checks.js';

/** Options of SwiGLU. gpt-oss has `{ limit: 7, alpha: 1.702, offset: 1 }`. */
export interface SwigluOptions {
  /**
   * `sigmoid` leaves the factor g out, as GLU and Qwen3-Next's attention do; `relu` takes max(g, 0) in place of silu(g),
   * as ReGLU does, and gives the squared ReLU where up is the gate. Both go without the other options. Default: silu.
   */
  readonly activation?: 'silu' | 'sigmoid' | 'relu';
  /** The gate is clipped to at most this, and up to ± this. Default: no limit. */
  readonly limit?: number;
  /** Multiplies the gate inside the sigmoid. Default: 1. */
  readonly alpha?: number;
  /** Is added to up. Default: 0. */
  readonly offset?: number;
}

const NAMES: OptionNames<SwigluOptions> = { activation: true, limit: true, alpha: true, offset: true };

/** A checked SwiGLU. Frozen. */
export interface SwigluPlan {
  readonly op: 'swiglu';
  readonly gate: Tensor<FloatDtype>;
  readonly up: Tensor<FloatDtype>;
  readonly out: Tensor<FloatDtype>;
  readonly limit: number | undefined;
  readonly alpha: number;
  readonly offset: number;
  readonly activation: 'silu' | 'sigmoid' | 'relu';
}

const LABELS = /* @__PURE__ */ labelsOf('swiglu', 'out', 'gate', 'up');

/**
 * Checks `out = (u + offset) · g / (1 + exp(−alpha·g))` with `g = min(gate, limit)` and `u = clip(up, ±limit)`; without
 * options `out = up · gate / (1 + exp(−gate))`, with sigmoid `out = up / (1 + exp(−gate))`, and with relu `out = up ·
 * max(gate, 0)`.
 *
 * @param gate - any shape and strides, any float dtype; only read
 * @param up - same shape and dtype; only read
 * @param out - same shape and dtype; written; may be exactly `gate` or `up`
 * @param options - activation, limit, alpha, offset
 * @throws {RopewalkError} SHAPE, DTYPE, RANGE or ALIAS
 * @see arXiv:2002.05202; InfiniTensor/llaisys@7740d46f, swiglu
 * @see huggingface/transformers@v5.18.0 src/transformers/models/gpt_oss/modeling_gpt_oss.py
 */
export function planSwiglu(gate: Tensor, up: Tensor, out: Tensor, options: SwigluOptions = {}): SwigluPlan {
  const given = readOptions(options, 'swiglu: options', NAMES);
  const { limit, activation = 'silu' } = given;
  readName(activation, ['silu', 'sigmoid', 'relu'], 'swiglu: activation');
  const alpha = given.alpha ?? 1;
  const offset = given.offset ?? 0;
  checkElementwise(LABELS, out, 'gate', gate, 'up', up);
  if (limit !== undefined && !(Number.isFinite(limit) && limit > 0))
    refuse('RANGE', 'swiglu: limit', 'a finite number > 0', limit);
  if (!Number.isFinite(alpha)) refuse('RANGE', 'swiglu: alpha', 'a finite number', alpha);
  if (!Number.isFinite(offset)) refuse('RANGE', 'swiglu: offset', 'a finite number', offset);
  if (activation !== 'silu' && (limit !== undefined || alpha !== 1 || offset !== 0))
    refuse('RANGE', 'swiglu: activation', 'silu beside limit, alpha or offset', activation);
  return checkedPlan<SwigluPlan>({ checked: CHECKED, op: 'swiglu', gate, up, out, limit, alpha, offset, activation });
}
