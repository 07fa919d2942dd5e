/** Causal attention with a past and grouped KV heads. @module */
import { readField } from '../core/arguments.js';
import type { FloatDtype } from '../core/dtypes.js';
import { fail, refuse } from '../core/errors.js';
import { checkTensor, type Tensor } from '../core/tensor.js';
import { CHECKED, checkApart, checkDims, checkedPlan, checkFloat, checkOutput, checkStored } from './checks.js';

/** Options of attention. */
export interface SelfAttentionOptions {
  /** Multiplies the scores; 1/√d unless given. */
  readonly scale?: number;
  /** Query i attends to keys 0 to total − seq + i; true unless given. */
  readonly causal?: boolean;
  /**
   * Sliding window, as HuggingFace's sliding_window: a query at position p attends to keys p − window + 1 to p; off
   * unless given.
   */
  readonly window?: number;
  /** Scores become softcap · tanh(score / softcap), after the scale and before the mask; off unless given. */
  readonly softcap?: number;
  /**
   * `[num_heads]`, in the dtypes of k: a score for each head that joins the softmax and has no value, so that a head
   * may attend to nothing (gpt-oss). None unless given.
   */
  readonly sinks?: Tensor;
}

/** A checked attention. Frozen. */
export interface SelfAttentionPlan {
  readonly op: 'self_attention';
  /** `[batch, seq, num_heads, d]` */
  readonly q: Tensor<FloatDtype>;
  /** `[batch, total, num_kv_heads, d]` */
  readonly k: Tensor<FloatDtype>;
  /** `[batch, total, num_kv_heads, dv]` */
  readonly v: Tensor<FloatDtype>;
  /** `[batch, seq, num_heads, dv]` */
  readonly out: Tensor<FloatDtype>;
  readonly scale: number;
  readonly causal: boolean;
  readonly window: number | undefined;
  readonly softcap: number | undefined;
  /** `[num_heads]` */
  readonly sinks: Tensor<FloatDtype> | undefined;
}

/**
 * Checks `out = softmax(q·kᵀ·scale + mask)·v` for each head; query head h uses KV head ⌊h / (num_heads /
 * num_kv_heads)⌋.
 *
 * @param q - `[seq, num_heads, d]`, any strides, any float dtype; or with a batch in front, then on all four
 * @param k - `[total, num_kv_heads, d]`; total − seq keys are the past; in q's dtype, or in f16 or bf16 where q is f32:
 *   a KV cache of halves
 * @param v - `[total, num_kv_heads, dv]`, the dtype of k; dv may differ from d
 * @param out - `[seq, num_heads, dv]`, the dtype of q; written; shares no memory with the inputs
 * @param options - scale, causal, window, softcap, sinks
 * @throws {RopewalkError} SHAPE, DTYPE, RANGE or ALIAS
 * @see seed document 001, self_attention
 */
export function planSelfAttention(
  q: Tensor,
  k: Tensor,
  v: Tensor,
  out: Tensor,
  options: SelfAttentionOptions = {},
): SelfAttentionPlan {
  const where = 'self_attention: options';
  let causal = readField(options, 'causal', where);
  if (causal === undefined) causal = true;
  const window = readField(options, 'window', where);
  const softcap = readField(options, 'softcap', where);
  const sinks = readField(options, 'sinks', where);
  const given = readField(options, 'scale', where);
  checkTensor(q, 'self_attention: q');
  if (q.rank !== 3 && q.rank !== 4)
    refuse('SHAPE', 'self_attention: q', 'three dimensions [seq, num_heads, d], or four with batch in front', q.shape);
  checkRank(k, 'self_attention: k', q.rank);
  checkRank(v, 'self_attention: v', q.rank);
  const [seq, numHeads, d] = q.shape.slice(-3) as [number, number, number];
  const [total, numKvHeads] = k.shape.slice(-3) as [number, number, number];
  const lead = q.shape.slice(0, -3);
  const dv = v.shape.at(-1)!;
  checkDims(k, 'self_attention: k', [...lead, total, numKvHeads, d]);
  checkDims(v, 'self_attention: v', [...lead, total, numKvHeads, dv]);
  checkDims(out, 'self_attention: attn_val', [...lead, seq, numHeads, dv]);
  if (numKvHeads === 0 ? numHeads > 0 : numHeads % numKvHeads !== 0) {
    refuse('SHAPE', 'self_attention: q', `num_heads to be a multiple of num_kv_heads=${numKvHeads}`, numHeads);
  }
  if (typeof causal !== 'boolean') refuse('RANGE', 'self_attention: causal', 'true or false', causal);
  if (causal && total < seq)
    refuse('SHAPE', 'self_attention: k', `total_len >= seqlen=${seq}, as each query has a key`, total);
  if (!causal && total === 0 && out.size > 0) refuse('SHAPE', 'self_attention: k', 'at least one key', total);
  checkFloat(q, 'self_attention: q');
  checkStored(k, 'self_attention: k', q.dtype);
  checkFloat(v, 'self_attention: v', k.dtype);
  if (sinks !== undefined) {
    checkDims(sinks, 'self_attention: sinks', [numHeads]);
    checkStored(sinks, 'self_attention: sinks', q.dtype);
  }
  checkFloat(out, 'self_attention: attn_val', q.dtype);
  // With d = 0 every score is an empty sum, which 1/√0 would make 0·∞ = NaN.
  const scale = given ?? (d === 0 ? 1 : 1 / Math.sqrt(d));
  if (!Number.isFinite(scale)) refuse('RANGE', 'self_attention: scale', 'a finite number', scale);
  if (window !== undefined && (!Number.isInteger(window) || window < 1))
    refuse('RANGE', 'self_attention: window', 'an integer >= 1', window);
  if (window !== undefined && !causal)
    fail(
      'UNSUPPORTED',
      'self_attention: window',
      'a window needs causal attention. Leave out window, or causal=false.',
    );
  if (softcap !== undefined && !(Number.isFinite(softcap) && softcap > 0))
    refuse('RANGE', 'self_attention: softcap', 'a finite number > 0', softcap);
  checkOutput(out, 'self_attention: attn_val');
  checkApart(out, 'self_attention: attn_val', 'q', q);
  checkApart(out, 'self_attention: attn_val', 'k', k);
  checkApart(out, 'self_attention: attn_val', 'v', v);
  if (sinks) checkApart(out, 'self_attention: attn_val', 'sinks', sinks);
  const four = (t: Tensor): Tensor<FloatDtype> => (t.rank === 4 ? t : t.unsqueeze()) as Tensor<FloatDtype>;
  return checkedPlan({
    checked: CHECKED,
    op: 'self_attention',
    q: four(q),
    k: four(k),
    v: four(v),
    out: four(out),
    scale,
    causal,
    window,
    softcap,
    sinks: sinks as Tensor<FloatDtype> | undefined,
  });
}

function checkRank(tensor: Tensor, where: string, rank: number): void {
  checkTensor(tensor, where);
  if (tensor.rank !== rank) refuse('SHAPE', where, `${rank} dimensions, as q has`, tensor.shape);
}
