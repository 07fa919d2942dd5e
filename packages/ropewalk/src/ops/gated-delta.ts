/** The gated delta rule: linear attention with a state that forgets, and that corrects what it holds. @module */
import { type OptionNames, readName, readOptions } from '../core/arguments.js';
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
  checkState,
  checkStored,
} from './checks.js';

/** How the gated delta rule computes. */
export interface GatedDeltaOptions {
  /** Is added to the sum of squares by whose root q and k are divided: finite, > 0. */
  readonly eps: number;
  /** Multiplies the output. Default: 1/√d. */
  readonly scale?: number;
  /**
   * The head of q and k that belongs to head h of v: `grouped` has ⌊h / (heads / keyHeads)⌋, `tiled` has h mod
   * keyHeads. Default: grouped.
   */
  readonly heads?: 'grouped' | 'tiled';
  /** Whether the sequence starts here: the state counts as zeros. Default: false. */
  readonly fresh?: boolean;
}

const NAMES: OptionNames<GatedDeltaOptions> = { eps: true, scale: true, heads: true, fresh: true };

/** The tensors that a step reads beside q, k and v. */
export interface GatedDeltaGates {
  /** `[tokens, heads]`: the state is multiplied by exp(rate · softplus(decay + bias)). */
  readonly decay: Tensor;
  /** `[heads]`, negative. */
  readonly rate: Tensor;
  /** `[heads]` */
  readonly bias: Tensor;
  /** `[tokens, heads]`: a correction is multiplied by the sigmoid. */
  readonly beta: Tensor;
}

const GATE_NAMES: OptionNames<GatedDeltaGates> = { decay: true, rate: true, bias: true, beta: true };

/** A checked gated delta rule. Frozen. */
export interface GatedDeltaPlan {
  readonly op: 'gated_delta';
  /** `[tokens, keyHeads, d]` */
  readonly q: Tensor<FloatDtype>;
  readonly k: Tensor<FloatDtype>;
  /** `[tokens, heads, dv]` */
  readonly v: Tensor<FloatDtype>;
  /** `[tokens, heads]` */
  readonly decay: Tensor<FloatDtype>;
  readonly beta: Tensor<FloatDtype>;
  /** `[heads]` */
  readonly rate: Tensor<FloatDtype>;
  readonly bias: Tensor<FloatDtype>;
  /** `[heads, d, dv]` */
  readonly state: Tensor<'f32' | 'f64'>;
  readonly eps: number;
  readonly scale: number;
  readonly tiled: boolean;
  readonly fresh: boolean;
  /** `[tokens, heads, dv]` */
  readonly out: Tensor<FloatDtype>;
}

/**
 * Checks, for each head and token, `S ← γ·S; S ← S + k ⊗ (σ(beta) · (v − Sᵀk)); out = scale · Sᵀq`, where γ =
 * exp(rate · softplus(decay + bias)), and q and k are divided by √(Σx² + eps).
 *
 * @param q - `[tokens, keyHeads, d]`, any strides, any float dtype; only read
 * @param k - same shape and dtype; only read
 * @param v - `[tokens, heads, dv]`, same dtype; heads is a multiple of keyHeads; only read
 * @param gates - decay and beta, in the same dtype; rate and bias, in it, or in f16 or bf16 where it is f32
 * @param state - `[heads, d, dv]`, dense, f32, or f64 where q is f64; read and written
 * @param out - the shape and dtype of v; written
 * @param options - eps, scale, heads, fresh
 * @throws {RopewalkError} SHAPE, DTYPE, RANGE or ALIAS
 * @see arXiv:2412.06464; huggingface/transformers@v5.24.0 src/transformers/models/qwen3_next/modeling_qwen3_next.py
 */
export function planGatedDelta(
  q: Tensor,
  k: Tensor,
  v: Tensor,
  gates: GatedDeltaGates,
  state: Tensor,
  out: Tensor,
  options: GatedDeltaOptions,
): GatedDeltaPlan {
  const given = readOptions(options, 'gated_delta: options', NAMES);
  const { decay, rate, bias, beta } = readOptions(gates, 'gated_delta: gates', GATE_NAMES);
  const { eps, heads: order = 'grouped', fresh = false } = given;
  checkTensor(q, 'gated_delta: q');
  if (q.rank !== 3) refuse('SHAPE', 'gated_delta: q', 'three dimensions [tokens, keyHeads, d]', q.shape);
  const [tokens, keyHeads, d] = q.shape as [number, number, number];
  checkDims(k, 'gated_delta: k', q.shape);
  checkTensor(v, 'gated_delta: v');
  const [, heads = 0, dv = 0] = v.shape;
  checkDims(v, 'gated_delta: v', [tokens, heads, dv]);
  if (keyHeads === 0 ? heads > 0 : heads % keyHeads !== 0)
    refuse('SHAPE', 'gated_delta: v', `a multiple of the ${keyHeads} heads of q`, heads);
  for (const [name, gate] of Object.entries({ decay, beta })) checkDims(gate, `gated_delta: ${name}`, [tokens, heads]);
  for (const [name, vector] of Object.entries({ rate, bias })) checkDims(vector, `gated_delta: ${name}`, [heads]);
  checkDims(state, 'gated_delta: state', [heads, d, dv]);
  checkDims(out, 'gated_delta: out', v.shape);
  checkFloat(q, 'gated_delta: q');
  for (const [name, one] of Object.entries({ k, v, decay, beta, out }))
    checkFloat(one, `gated_delta: ${name}`, q.dtype);
  for (const [name, vector] of Object.entries({ rate, bias })) checkStored(vector, `gated_delta: ${name}`, q.dtype);
  if (!Number.isFinite(eps) || eps <= 0) refuse('RANGE', 'gated_delta: eps', 'a finite number > 0', eps);
  const scale = given.scale ?? 1 / Math.sqrt(d);
  if (!Number.isFinite(scale)) refuse('RANGE', 'gated_delta: scale', 'a finite number', scale);
  readName(order, ['grouped', 'tiled'], 'gated_delta: heads');
  if (typeof fresh !== 'boolean') refuse('RANGE', 'gated_delta: fresh', 'true or false', fresh);
  checkState(state, 'gated_delta: state', q.dtype);
  checkOutput(out, 'gated_delta: out');
  checkApart(out, 'gated_delta: out', 'state', state);
  const inputs = { q, k, v, decay, beta, rate, bias };
  for (const [name, input] of Object.entries(inputs)) {
    checkApart(out, 'gated_delta: out', name, input);
    checkApart(state, 'gated_delta: state', name, input);
  }
  const rest = { state, eps, scale, tiled: order === 'tiled', fresh, out };
  return checkedPlan<GatedDeltaPlan>({ checked: CHECKED, op: 'gated_delta', ...inputs, ...rest });
}
