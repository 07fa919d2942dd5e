/** Attention in float64. @module */
import type { SelfAttentionPlan } from '../ops/self-attention.js';
import { readAll, writeAll } from './elements.js';

/**
 * Computes `softmax(q·kᵀ·scale + mask)·v` for each query and head, rounded once. For k and v in 8 bits a value is
 * stored · scale; in a paged cache a key is found by the block table.
 */
export function selfAttentionReference(plan: SelfAttentionPlan): void {
  const { q, k, v, out, kScale, vScale, kRowScales, vRowScales, pages, scale, causal, window, softcap, sinks } = plan;
  const [batch, seq, numHeads, d] = q.shape as [number, number, number, number];
  const numKvHeads = k.shape[2]!;
  const dv = v.shape[3]!;
  const group = numHeads / numKvHeads; // query heads that share a KV head
  const qs = readAll(q, 'self_attention: q'); // [batch, seq, num_heads, d]
  const ks = readAll(k, 'self_attention: k'); // [batch, total, num_kv_heads, d]
  const vs = readAll(v, 'self_attention: v'); // [batch, total, num_kv_heads, dv]
  const logits = sinks && readAll(sinks, 'self_attention: sinks'); // [num_heads]
  const y = new Float64Array(batch * seq * numHeads * dv); // [batch, seq, num_heads, dv]
  multiply(ks, kScale);
  multiply(vs, vScale);
  if (kRowScales) multiplyRows(ks, readAll(kRowScales, 'self_attention: kRowScales'));
  if (vRowScales) multiplyRows(vs, readAll(vRowScales, 'self_attention: vRowScales'));
  const weights = new Float64Array(plan.total);
  for (let b = 0; b < batch; b++) {
    const total = pages ? pages.lengths[b]! : plan.total;
    const rowOf = (t: number): number => {
      if (!pages) return b * total + t;
      const { table, maxBlocks, blockSize } = pages;
      return table[b * maxBlocks + Math.floor(t / blockSize)]! * blockSize + (t % blockSize);
    };
    for (let s = 0; s < seq; s++) {
      const position = total - seq + s; // The position of this query among the keys.
      const last = causal ? position : total - 1;
      const first = window === undefined ? 0 : Math.max(0, position - window + 1);
      for (let h = 0; h < numHeads; h++) {
        const kvHead = Math.floor(h / group);
        const query = ((b * seq + s) * numHeads + h) * d;
        let max = logits ? logits[h]! : Number.NEGATIVE_INFINITY;
        for (let t = first; t <= last; t++) {
          const key = (rowOf(t) * numKvHeads + kvHead) * d;
          let score = 0;
          for (let i = 0; i < d; i++) score += qs[query + i]! * ks[key + i]!;
          score *= scale;
          if (softcap !== undefined) score = softcap * Math.tanh(score / softcap);
          weights[t] = score;
          max = Math.max(max, score);
        }
        // Subtracting the largest score does not change the quotient, and exp cannot overflow.
        let sum = logits ? Math.exp(logits[h]! - max) : 0;
        for (let t = first; t <= last; t++) sum += weights[t] = Math.exp(weights[t]! - max);
        const target = ((b * seq + s) * numHeads + h) * dv;
        for (let t = first; t <= last; t++) {
          const value = (rowOf(t) * numKvHeads + kvHead) * dv;
          for (let i = 0; i < dv; i++) y[target + i]! += weights[t]! * vs[value + i]!;
        }
        for (let i = 0; i < dv; i++) y[target + i]! /= sum;
      }
    }
  }
  writeAll(out, y, 'self_attention: attn_val');
}

/** Multiplies stored values by their scales, which repeat for each row. */
function multiply(values: Float64Array, scales: Float32Array | undefined): void {
  if (scales) for (let n = 0; n < values.length; n++) values[n]! *= scales[n % scales.length]!;
}

/** Multiplies the stored values of each row and head by their scale. */
function multiplyRows(values: Float64Array, scales: Float64Array): void {
  const d = values.length / scales.length;
  for (let n = 0; n < values.length; n++) values[n]! *= scales[Math.floor(n / d)]!;
}
