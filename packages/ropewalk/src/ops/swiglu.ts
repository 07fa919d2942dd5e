/** The gated activation of Llama's feed-forward layer, and its clamped form. @module */
import { checkFields, type OptionNames, readField } from '../core/arguments.js';
import type { FloatDtype } from '../core/dtypes.js';
import { refuse } from '../core/errors.js';
import { checkTensor, type Tensor } from '../core/tensor.js';
import { CHECKED, checkApart, checkDims, checkedPlan, checkFloat, checkOutput } from './checks.js';

/** Options of SwiGLU. gpt-oss has `{ limit: 7, alpha: 1.702, offset: 1 }`. */
export interface SwigluOptions {
  /** The gate is at most this, and up lies within ± this; off unless given. */
  readonly limit?: number;
  /** Multiplies the gate inside the sigmoid; 1 unless given. */
  readonly alpha?: number;
  /** Added to up; 0 unless given. */
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

/**
 * Checks `out = (u + offset) · g / (1 + exp(−alpha·g))` with `g = min(gate, limit)` and `u = clip(up, ±limit)`; without
 * options `out = up · gate / (1 + exp(−gate))`.
 *
 * @param gate - any shape and strides, any float dtype; only read
 * @param up - same shape and dtype; only read
 * @param out - same shape and dtype; written; may be exactly `gate` or `up`
 * @param options - limit, alpha, offset
 * @throws {RopewalkError} SHAPE, DTYPE, RANGE or ALIAS
 * @see seed document 001, swiglu; arXiv:2002.05202
 * @see huggingface/transformers@v5.18.0 src/transformers/models/gpt_oss/modeling_gpt_oss.py
 */
export function planSwiglu(gate: Tensor, up: Tensor, out: Tensor, options: SwigluOptions = {}): SwigluPlan {
  const where = 'swiglu: options';
  checkFields(options, NAMES, where);
  const limit = readField(options, 'limit', where);
  const alpha = readField(options, 'alpha', where) ?? 1;
  const offset = readField(options, 'offset', where) ?? 0;
  checkGate('swiglu', gate, up, out);
  if (limit !== undefined && !(Number.isFinite(limit) && limit > 0))
    refuse('RANGE', 'swiglu: limit', 'a finite number > 0', limit);
  if (!Number.isFinite(alpha)) refuse('RANGE', 'swiglu: alpha', 'a finite number', alpha);
  if (!Number.isFinite(offset)) refuse('RANGE', 'swiglu: offset', 'a finite number', offset);
  return checkedPlan({
    checked: CHECKED,
    op: 'swiglu',
    gate,
    up: up as Tensor<FloatDtype>,
    out: out as Tensor<FloatDtype>,
    limit,
    alpha,
    offset,
  });
}

/** Checks the tensors of a gated activation. */
export function checkGate(
  op: 'swiglu' | 'geglu',
  gate: Tensor,
  up: Tensor,
  out: Tensor,
): asserts gate is Tensor<FloatDtype> {
  checkTensor(gate, `${op}: gate`);
  checkDims(up, `${op}: up`, gate.shape);
  checkDims(out, `${op}: out`, gate.shape);
  checkFloat(gate, `${op}: gate`);
  checkFloat(up, `${op}: up`, gate.dtype);
  checkFloat(out, `${op}: out`, gate.dtype);
  checkOutput(out, `${op}: out`);
  checkApart(out, `${op}: out`, 'gate', gate, true);
  checkApart(out, `${op}: out`, 'up', up, true);
}
