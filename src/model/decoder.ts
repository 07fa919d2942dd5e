/**
 * The forward pass, top to bottom.
 *
 * Letters in shapes: t tokens of this batch, p tokens before them, h hidden, n heads, m key/value heads, d head_dim, f intermediate.
 *
 * @module
 * @see karpathy/llama2.c@350e04f run.c, forward, whose reading order this keeps; arXiv:2302.13971 (Llama), arXiv:2505.09388 (Qwen3)
 */
import type { Tensor } from '../core/tensor.js';
import { tensorFrom } from '../core/tensor.js';
import { planAdd } from '../ops/add.js';
import { planEmbedding } from '../ops/embedding.js';
import { planLinear } from '../ops/linear.js';
import { planRearrange } from '../ops/rearrange.js';
import { planRmsNorm } from '../ops/rms-norm.js';
import { bindRopeParts } from '../ops/rope/call.js';
import type { RopePlan, RopeSpec } from '../ops/rope/plan.js';
import type { Runner } from '../ops/runner.js';
import { planSelfAttention } from '../ops/self-attention.js';
import { planSwiglu } from '../ops/swiglu.js';
import type { KvCache } from './kv-cache.js';
import { batchRows, logitRows } from './memory.js';
import type { DecoderConfig } from './types.js';
import type { Gain, Linear, Weight, Weights } from './weights.js';

/** A decoder ready to run: what it is, its weights, and the memory that every batch uses anew. */
export interface Decoder {
  readonly runner: Runner;
  readonly config: DecoderConfig;
  readonly weights: Weights;
  readonly scratch: Scratch;
}

/**
 * Runs a batch of tokens through all layers, and appends their keys and values to the cache.
 *
 * @param decoder - what runs
 * @param tokens - `[t]`, ids below the vocabulary's size, t >= 1; at most CHUNK_TOKENS
 * @param cache - of the session, with room for t more; its length grows by t
 * @returns the residual stream after the last layer, `[t, h]`, f32: a view of the scratch memory, until the next batch
 */
export function forward(
  { runner, config, weights, scratch }: Decoder,
  tokens: Int32Array,
  cache: KvCache,
): Tensor<'f32'> {
  const { numHeads, numKvHeads, headDim, normEps } = config;
  const batch = tokens.length;
  const past = cache.length;
  const total = past + batch;
  const { x, normed, q, k, v, attended, gate, up } = scratch.rows(batch);
  const heads = (tensor: Tensor<'f32'>, count: number): Tensor<'f32'> => tensor.view([batch, count, headDim]);

  const norm = (input: Tensor<'f32'>, weight: Gain, out: Tensor<'f32'>): void =>
    runner.run(planRmsNorm(input, weight, normEps, out));
  const linear = (input: Tensor<'f32'>, { weight, bias }: Linear, out: Tensor<'f32'>): void =>
    runner.run(planLinear(input, weight, bias, out));
  const addTo = (sum: Tensor<'f32'>, term: Tensor<'f32'>): void => runner.run(planAdd(sum, term, sum));
  // Positions are the same in every layer, so one plan serves all that turn alike.
  const turns = new Map<RopeSpec, RopePlan>();
  const turnOf = (rope: RopeSpec): RopePlan => {
    const plan = turns.get(rope) ?? cache.ropes.plan(rope, past, batch);
    turns.set(rope, plan);
    return plan;
  };

  runner.run(planEmbedding(tensorFrom(tokens), weights.embedding, x)); // [t] → [t, h]

  for (const [layer, w] of weights.layers.entries()) {
    const { rope, window } = cache.layers[layer]!;
    const [kCache, vCache] = [cache.k[layer]!, cache.v[layer]!]; // [capacity, m, d]

    norm(x, w.attentionNorm, normed); // [t, h]
    linear(normed, w.q, q); // [t, n·d]
    linear(normed, w.k, k); // [t, m·d]
    linear(normed, w.v, v); // [t, m·d]

    // Queries turn where they are; keys turn on their way into the cache, each head normalised first where the model does that.
    const [qHeads, kHeads] = [heads(q, numHeads), heads(k, numKvHeads)];
    if (rope) {
      const qNorm = w.qNorm && { weight: w.qNorm, eps: normEps };
      const kNorm = w.kNorm && { weight: w.kNorm, eps: normEps };
      runner.run(
        bindRopeParts(turnOf(rope), [
          { x: qHeads, out: qHeads, ...(qNorm && { norm: qNorm }) },
          { x: kHeads, out: kCache, rows: past, ...(kNorm && { norm: kNorm }) },
        ]),
      );
    } else {
      if (w.qNorm) norm(qHeads, w.qNorm, qHeads);
      if (w.kNorm) norm(kHeads, w.kNorm, kHeads);
      runner.run(planRearrange(kHeads, kCache.slice(0, past, total)));
    }
    runner.run(planRearrange(heads(v, numKvHeads), vCache.slice(0, past, total)));

    const keys = kCache.slice(0, 0, total); // [p + t, m, d]
    const values = vCache.slice(0, 0, total);
    runner.run(
      planSelfAttention(qHeads, keys, values, heads(attended, numHeads), window === undefined ? {} : { window }),
    ); // [t, n, d]
    linear(attended, w.output, normed); // [t, h]
    addTo(x, normed);

    norm(x, w.mlpNorm, normed); // [t, h]
    linear(normed, w.gate, gate); // [t, f]
    linear(normed, w.up, up); // [t, f]
    runner.run(planSwiglu(gate, up, gate));
    linear(gate, w.down, normed); // [t, h]
    addTo(x, normed);
  }
  cache.length = total;
  return x;
}

/**
 * The last hidden states: the final norm over the residual stream.
 *
 * @param decoder - what runs
 * @param x - of {@link forward}, or some rows of it, `[r, h]`
 * @returns `[r, h]`, a view of the scratch memory
 */
export function finalNorm({ runner, config, weights, scratch }: Decoder, x: Tensor<'f32'>): Tensor<'f32'> {
  const { normed } = scratch.rows(x.shape[0]!);
  runner.run(planRmsNorm(x, weights.norm, config.normEps, normed));
  return normed;
}

/**
 * The head: a score for each token of the vocabulary.
 *
 * @param decoder - what runs
 * @param x - of {@link forward}, or some rows of it, `[r, h]`; at most {@link logitRows}
 * @returns `[r, vocab]`, a view of the scratch memory
 */
export function logitsOf(decoder: Decoder, x: Tensor<'f32'>): Tensor<'f32'> {
  const { runner, weights, scratch } = decoder;
  const logits = scratch.logits(x.shape[0]!);
  runner.run(planLinear(finalNorm(decoder, x), weights.head as Weight, undefined, logits));
  return logits;
}

/** What a batch is computed in. */
export interface Rows {
  /** The residual stream, `[t, h]`. */
  readonly x: Tensor<'f32'>;
  /** Normalised, and what a block adds to the stream, `[t, h]`. */
  readonly normed: Tensor<'f32'>;
  /** `[t, n·d]` */
  readonly q: Tensor<'f32'>;
  /** `[t, m·d]` */
  readonly k: Tensor<'f32'>;
  /** `[t, m·d]` */
  readonly v: Tensor<'f32'>;
  /** `[t, n·d]` */
  readonly attended: Tensor<'f32'>;
  /** `[t, f]` */
  readonly gate: Tensor<'f32'>;
  /** `[t, f]` */
  readonly up: Tensor<'f32'>;
}

/** Activations: taken when a larger batch than any before comes, used by all batches, whichever session's. */
export class Scratch {
  private all: Rows | undefined;
  private capacity = 0;
  private latest: { readonly rows: Rows; readonly count: number } | undefined;
  private logitRows: Tensor<'f32'> | undefined;

  constructor(
    private readonly runner: Runner,
    private readonly config: DecoderConfig,
  ) {}

  /** Memory for a batch of `count` tokens; what is in it is whatever the batch before left. */
  rows(count: number): Rows {
    if (this.latest?.count === count) return this.latest.rows;
    if (count > this.capacity) this.grow(batchRows(count));
    const cut = (tensor: Tensor<'f32'>): Tensor<'f32'> => tensor.slice(0, 0, count);
    const { x, normed, q, k, v, attended, gate, up } = this.all!;
    const rows: Rows = {
      ...{ x: cut(x), normed: cut(normed), q: cut(q), k: cut(k), v: cut(v) },
      ...{ attended: cut(attended), gate: cut(gate), up: cut(up) },
    };
    this.latest = { rows, count };
    return rows;
  }

  /** Memory for the logits of `count` tokens, `[count, vocab]`. */
  logits(count: number): Tensor<'f32'> {
    const { vocabSize } = this.config;
    // One row until somebody asks for more: that is all that generating needs.
    if ((this.logitRows?.shape[0] ?? 0) < count) {
      this.logitRows?.dispose();
      this.logitRows = undefined;
      this.logitRows = this.runner.allocate('f32', [count === 1 ? 1 : logitRows(vocabSize), vocabSize]);
    }
    return this.logitRows!.slice(0, 0, count);
  }

  /** Bytes that are taken now. */
  get heldBytes(): number {
    const tensors = [...(Object.values(this.all ?? {}) as Tensor[]), ...(this.logitRows ? [this.logitRows] : [])];
    return tensors.reduce((sum, { size }) => sum + 4 * size, 0);
  }

  private grow(capacity: number): void {
    this.dispose();
    const { hiddenSize, numHeads, numKvHeads, headDim, intermediateSize } = this.config;
    const taken: Tensor<'f32'>[] = [];
    const take = (width: number): Tensor<'f32'> => {
      const tensor = this.runner.allocate('f32', [capacity, width]);
      taken.push(tensor);
      return tensor;
    };
    try {
      this.all = {
        x: take(hiddenSize),
        normed: take(hiddenSize),
        q: take(numHeads * headDim),
        k: take(numKvHeads * headDim),
        v: take(numKvHeads * headDim),
        attended: take(numHeads * headDim),
        gate: take(intermediateSize),
        up: take(intermediateSize),
      };
    } catch (error) {
      for (const tensor of taken) tensor.dispose();
      throw error;
    }
    this.capacity = capacity;
  }

  /** Gives the memory back; the next batch takes it anew. */
  dispose(): void {
    for (const tensor of Object.values(this.all ?? {}) as Tensor[]) tensor.dispose();
    this.logitRows?.dispose();
    this.all = this.latest = this.logitRows = undefined;
    this.capacity = 0;
  }
}
