/**
 * The forward pass, top to bottom.
 *
 * Letters in shapes: t tokens of this batch, p tokens before them, h hidden, n heads, m key/value heads, d head_dim, f
 * intermediate.
 *
 * @module
 * @see karpathy/llama2.c@350e04f run.c, forward, whose reading order this keeps; arXiv:2302.13971 (Llama),
 *   arXiv:2505.09388 (Qwen3)
 */
import {
  bindRopeParts,
  planAdd,
  planEmbedding,
  planLinear,
  planRearrange,
  planRmsNorm,
  planSelfAttention,
  planSwiglu,
  type RopePlan,
  type RopeSpec,
  type Runner,
  type Tensor,
  tensorFrom,
} from 'ropewalk';
import type { KvCache } from './kv-cache.js';
import { activationWidths, batchRows, logitRows } from './memory.js';
import type { DecoderConfig } from './types.js';
import type { Gain, Linear, Weights } from './weights.js';

/** A decoder ready to run: its config, its weights, and the memory that batches share. */
export interface Decoder {
  readonly runner: Runner;
  readonly config: DecoderConfig;
  readonly weights: Weights;
  readonly scratch: Scratch;
}

/**
 * Runs a batch of tokens through all layers, and appends their keys and values to the cache.
 *
 * @param tokens - `[t]`, ids below the vocabulary's size, 1 <= t <= CHUNK_TOKENS
 * @param cache - of the session, with room for t more tokens; its length grows by t
 * @returns the residual stream after the last layer, `[t, h]`, f32: a view of the scratch memory, valid until the next
 *   batch
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
  const headNorm = (weight: Gain | undefined) => weight && { weight, eps: normEps };
  // Positions are the same in every layer, so layers that rotate alike share a plan.
  const plans = new Map<RopeSpec, RopePlan>();
  const planOf = (rope: RopeSpec): RopePlan => {
    const plan = plans.get(rope) ?? cache.ropes.plan(rope, past, batch);
    plans.set(rope, plan);
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

    // Heads are normalised first where the model does that. Queries rotate in place, keys on their way into the cache.
    const [qHeads, kHeads] = [heads(q, numHeads), heads(k, numKvHeads)];
    if (rope) {
      const parts = [
        { x: qHeads, out: qHeads, norm: headNorm(w.qNorm) },
        { x: kHeads, out: kCache, norm: headNorm(w.kNorm), rows: past },
      ];
      runner.run(bindRopeParts(planOf(rope), parts));
    } else {
      if (w.qNorm) norm(qHeads, w.qNorm, qHeads);
      if (w.kNorm) norm(kHeads, w.kNorm, kHeads);
      runner.run(planRearrange(kHeads, kCache.slice(0, past, total)));
    }
    runner.run(planRearrange(heads(v, numKvHeads), vCache.slice(0, past, total)));

    const keys = kCache.slice(0, 0, total); // [p + t, m, d]
    const values = vCache.slice(0, 0, total);
    runner.run(planSelfAttention(qHeads, keys, values, heads(attended, numHeads), { window })); // [t, n, d]
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

/** The final norm over the residual stream, or some rows of it: `[r, h]` → `[r, h]`, a view of the scratch memory. */
export function finalNorm({ runner, config, weights, scratch }: Decoder, x: Tensor<'f32'>): Tensor<'f32'> {
  const { normed } = scratch.rows(x.shape[0]!);
  runner.run(planRmsNorm(x, weights.norm, config.normEps, normed));
  return normed;
}

/** The head: `[r, h]`, at most {@link logitRows} rows → `[r, vocab]`, a view of the scratch memory. */
export function logitsOf(decoder: Decoder, x: Tensor<'f32'>): Tensor<'f32'> {
  const { runner, weights, scratch } = decoder;
  const logits = scratch.logits(x.shape[0]!);
  runner.run(planLinear(finalNorm(decoder, x), weights.head, undefined, logits));
  return logits;
}

/** The activations of a batch, `[t, width]` each. */
type Rows = { readonly [P in keyof ReturnType<typeof activationWidths>]: Tensor<'f32'> };

/** Memory for activations, shared by all batches of all sessions. It grows when a larger batch comes. */
export class Scratch {
  readonly #runner: Runner;
  readonly #config: DecoderConfig;
  #all: Rows | undefined;
  #capacity = 0;
  #latest: { readonly rows: Rows; readonly count: number } | undefined;
  #logits: Tensor<'f32'> | undefined;

  constructor(runner: Runner, config: DecoderConfig) {
    this.#runner = runner;
    this.#config = config;
  }

  /** Memory for a batch of `count` tokens. It holds whatever the batch before left there. */
  rows(count: number): Rows {
    if (this.#latest?.count === count) return this.#latest.rows;
    if (count > this.#capacity) this.#grow(batchRows(count));
    const rows = mapRows(this.#all!, (tensor) => tensor.slice(0, 0, count));
    this.#latest = { rows, count };
    return rows;
  }

  /** Memory for the logits of `count` tokens, `[count, vocab]`. */
  logits(count: number): Tensor<'f32'> {
    const { vocabSize } = this.#config;
    if ((this.#logits?.shape[0] ?? 0) < count) {
      this.#logits?.dispose();
      this.#logits = undefined;
      // Generating needs one row only.
      this.#logits = this.#runner.allocate('f32', [count === 1 ? 1 : logitRows(vocabSize), vocabSize]);
    }
    return this.#logits!.slice(0, 0, count);
  }

  /** Bytes that are allocated now. */
  get heldBytes(): number {
    return this.#tensors().reduce((sum, { size }) => sum + 4 * size, 0);
  }

  /** Gives the memory back; the next batch allocates it again. */
  dispose(): void {
    for (const tensor of this.#tensors()) tensor.dispose();
    this.#all = this.#latest = this.#logits = undefined;
    this.#capacity = 0;
  }

  #tensors(): Tensor[] {
    return [...Object.values(this.#all ?? {}), ...(this.#logits ? [this.#logits] : [])];
  }

  #grow(capacity: number): void {
    this.dispose();
    const taken: Tensor[] = [];
    try {
      this.#all = mapRows(activationWidths(this.#config), (width) => {
        const tensor = this.#runner.allocate('f32', [capacity, width]);
        taken.push(tensor);
        return tensor;
      });
    } catch (error) {
      for (const tensor of taken) tensor.dispose();
      throw error;
    }
    this.#capacity = capacity;
  }
}

function mapRows<T>(from: Readonly<Record<keyof Rows, T>>, make: (value: T) => Tensor<'f32'>): Rows {
  return Object.fromEntries(Object.entries(from).map(([name, value]) => [name, make(value)])) as Rows;
}
