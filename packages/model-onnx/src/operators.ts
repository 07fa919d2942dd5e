/**
 * The operators that differ between the forms of a decoder's graph.
 *
 * @module
 */
import type { WeightPlan } from '@ropewalk/model/internal';
import type { Chosen } from '@ropewalk/onnx/internal';
import type { RopeSpec } from 'ropewalk';
import type { Matrix } from './scope.js';

/** Queries, keys and values of one layer. */
export interface Heads {
  /** `[batch, seq, heads · d]`. */
  readonly q: string;
  /** `[batch, seq, kv_heads · d]`; empty, as the values, for a layer that reads another layer's. */
  readonly k: string;
  /** `[batch, seq, kv_heads · dv]`. */
  readonly v: string;
}

/** The attention of one layer. */
export interface AttentionCall {
  readonly layer: number;
  /** The rotation of q and k; undefined if they do not rotate, or have rotated before. */
  readonly rope: RopeSpec | undefined;
  readonly window: number | undefined;
  /** A score without a value for each head, f32 `[heads]`. */
  readonly sinks: string | undefined;
}

/** The operators of one form. */
export interface DecoderOperators {
  /** Gathers rows of a table, `[n, …]`, in f32: ids, i64 `[a, b]`, → `[a, b, …]`. */
  rows(ids: string, table: WeightPlan): string;
  /** Appends the root mean square norm over the last dimension, f32. */
  rmsNorm(x: string, weight: string): string;
  /** Appends the layer norm over the last dimension, f32. */
  layerNorm(x: string, weight: string, bias: string | undefined): string;
  /** `[batch, seq, k]` → `[batch, seq, n]`. */
  linear(x: string, matrix: Matrix): string;
  /** Appends silu(gate) · up, with the clamps of the family. */
  swiglu(gate: string, up: string): string;
  /** Appends 1 / (1 + exp(−x)). */
  sigmoid(x: string): string;
  /** Appends the chosen experts of a layer, weighted: `[tokens, h]` → `[tokens, h]`. */
  experts(x: string, chosen: Chosen, layer: number): string;
  gelu(x: string, approximate: 'none' | 'tanh'): string;
  /** True if attention needs each row's tokens first, and padding after them; see padding.ts. */
  readonly tokensFirst: boolean;
  /** True if {@link attentionOfPacked} takes q, k and v of this layer as one value. */
  packs(call: AttentionCall): boolean;
  /** Does {@link attention} with `[batch, seq, (heads + 2 · kv_heads) · d]`. */
  attentionOfPacked(qkv: string, call: AttentionCall): string;
  /** Rotates, reads past_key_values.N, writes present.N; → `[batch, seq, heads · dv]`. */
  attention(heads: Heads, call: AttentionCall): string;
}
