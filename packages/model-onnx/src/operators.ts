/**
 * What differs between the forms of a decoder's graph.
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
  /** `[batch, seq, kv_heads · d]`. */
  readonly k: string;
  /** `[batch, seq, kv_heads · dv]`. */
  readonly v: string;
}

/** One layer's attention. */
export interface AttentionCall {
  readonly layer: number;
  readonly heads: number;
  readonly kvHeads: number;
  readonly headDim: number;
  readonly valueDim: number;
  /** Rotation of q and k; undefined where they do not rotate, or have rotated already. */
  readonly rope: RopeSpec | undefined;
  readonly window: number | undefined;
  /** A score without a value for each head, f32 `[heads]`. */
  readonly sinks: string | undefined;
}

/** The operators of one form. */
export interface DecoderOperators {
  /** Rows of a table, `[n, …]`, in f32: ids, i64 `[a, b]`, → `[a, b, …]`. */
  rows(ids: string, table: WeightPlan): string;
  /** Root mean square norm over the last dimension, f32. */
  rmsNorm(x: string, weight: string): string;
  /** Layer norm over the last dimension, f32. */
  layerNorm(x: string, weight: string, bias: string | undefined): string;
  /** `[batch, seq, k]` → `[batch, seq, n]`. */
  linear(x: string, matrix: Matrix): string;
  /** gate, up → silu(gate) · up, with the clamps of the family. */
  swiglu(gate: string, up: string): string;
  /** 1 / (1 + exp(−x)). */
  sigmoid(x: string): string;
  /** The chosen experts of a layer, weighted: `[tokens, h]` → `[tokens, h]`. */
  experts(x: string, chosen: Chosen, layer: number): string;
  /** GELU of x. */
  gelu(x: string, approximate: 'none' | 'tanh'): string;
  /** Whether attention wants each row's tokens first, and padding after them; see padding.ts. */
  readonly tokensFirst: boolean;
  /** Whether {@link attentionOfPacked} takes this layer's q, k and v as one value. */
  packs(call: AttentionCall): boolean;
  /** As {@link attention}, of `[batch, seq, (heads + 2 · kv_heads) · d]`. */
  attentionOfPacked(qkv: string, call: AttentionCall): string;
  /** Rotates, reads past_key_values.N, writes present.N; → `[batch, seq, heads · dv]`. */
  attention(heads: Heads, call: AttentionCall): string;
}
