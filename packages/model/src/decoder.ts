/**
 * The forward pass, top to bottom. A step that a model does not have is missing in its weights, so there is no case for
 * a family.
 *
 * Letters in shapes: t tokens of this batch, p tokens before them, h hidden size, n heads, m key/value heads, d size of a
 * head of q and k, dv of a head of v, f intermediate size, e experts, c size of the latent vector.
 *
 * @module
 * @see karpathy/llama2.c@350e04f run.c, forward, whose reading order this keeps; arXiv:2302.13971 (Llama),
 *   arXiv:2505.09388 (Qwen3)
 */
import {
  bindRopeParts,
  planAdd,
  planEmbedding,
  planExpertLinear,
  planGeglu,
  planGelu,
  planLayerNorm,
  planLinear,
  planRearrange,
  planRmsNorm,
  planRoute,
  planScale,
  planSelfAttention,
  planSwiglu,
  type RopePlan,
  type RopeSpec,
  type Runner,
  type Tensor,
  tensorFrom,
} from 'ropewalk';
import type { Activations } from 'ropewalk/internal';
import type { KvCache } from './kv-cache.js';
import { type Activation, activationsOf, batchRows, logitRows } from './memory.js';
import type { DecoderConfig } from './types.js';
import type { LayerWeights, Linear, Norm, Weight, Weights } from './upload.js';

/** A decoder that is ready to run: its config, its weights, and the memory that batches share. */
export interface Decoder {
  readonly runner: Runner;
  readonly config: DecoderConfig;
  readonly weights: Weights;
  readonly scratch: Scratch;
  /** The precision of activations in products with blocks. */
  readonly activations: Activations;
}

/**
 * Runs a batch of tokens through all layers, and appends their keys and values to the cache.
 *
 * @param tokens - `[t]`, ids below the vocabulary's size, 1 <= t <= CHUNK_TOKENS; the cache has room for them
 * @param positions - `[axes, t]`, row by row; without them the tokens follow those in the cache
 * @returns the residual stream after the last layer, `[t, h]`, f32: a scratch view, valid until the next batch
 */
export function forward(decoder: Decoder, tokens: Int32Array, cache: KvCache, positions?: Int32Array): Tensor<'f32'> {
  const { runner, config, weights, scratch } = decoder;
  const { parallel, embeddingScale, residualScale } = config;
  const batch = tokens.length;
  const step = stepOf(decoder, cache, batch, positions);
  const { x, normed, branch, attended, values: headValues } = scratch.rows(batch);
  const { norm, linear } = step;
  /** Adds the output of a block to the residual stream. */
  const addToStream = (made: Tensor<'f32'>, postNorm: Norm | undefined): void => {
    if (postNorm) norm(made, postNorm, made);
    if (residualScale !== 1) runner.run(planScale(made, residualScale, made));
    runner.run(planAdd(x, made, x));
  };

  runner.run(planEmbedding(tensorFrom(tokens), weights.embedding, x)); // [t] → [t, h]
  if (embeddingScale !== 1) runner.run(planScale(x, embeddingScale, x));

  for (const [layer, w] of weights.layers.entries()) {
    const input = w.attentionNorm ? norm(x, w.attentionNorm, normed) : x; // [t, h]
    const { q, keys, values } = (config.latent ? latentHeads : plainHeads)(step, w, layer, input);
    scaleByPosition(step, q);

    // [t, n, d] and [p + t, m, d], [p + t, m, dv] → [t, n, dv]
    const { window } = cache.layers[layer]!;
    const out = attended.view([batch, q.shape[1]!, values.shape[2]!]);
    const { attentionScale: scale, attentionSoftcap: softcap } = config;
    runner.run(planSelfAttention(q, keys, values, out, { scale, window, softcap, sinks: w.sinks?.weight }));
    if (w.vB) step.perHead(out, w.vB.weight, headValues);
    linear(w.vB ? headValues : attended, w.output!, branch); // [t, h]

    if (!parallel) addToStream(branch, w.attentionPostNorm);
    const mlpInput = w.mlpNorm ? norm(x, w.mlpNorm, normed) : parallel ? input : x; // [t, h]
    const made = w.router
      ? mixtureOfExperts(step, w, mlpInput)
      : dense(step, [w.gate, w.up!, w.down!], mlpInput, config.intermediateSize, normed); // [t, h]
    if (parallel) addToStream(branch, w.attentionPostNorm);
    addToStream(made, w.mlpPostNorm);
  }
  cache.length += batch;
  return x;
}

/** The state that the parts of a layer share in one batch. */
type Step = ReturnType<typeof stepOf>;

function stepOf(decoder: Decoder, cache: KvCache, batch: number, positions: Int32Array | undefined) {
  const { runner, config, scratch, activations } = decoder;
  const { numHeads, family } = config;
  // Positions are the same in every layer, so layers that rotate alike share a plan.
  const plans = new Map<RopeSpec, RopePlan>();
  let headOrder: Int32Array | undefined;
  return {
    runner,
    config,
    activations,
    cache,
    batch,
    past: cache.length,
    rows: scratch.rows(batch),
    /** Returns the position of a token on the first axis. */
    positionOf: (token: number): number => positions?.[token] ?? cache.length + token,
    ropePlan(rope: RopeSpec): RopePlan {
      const plan = plans.get(rope) ?? cache.planRope(rope, cache.length, batch, positions);
      plans.set(rope, plan);
      return plan;
    },
    norm: (input: Tensor<'f32'>, gains: Norm, out: Tensor<'f32'>) => runNorm(decoder, input, gains, out),
    linear(input: Tensor<'f32'>, { weight, bias }: Linear, out: Tensor<'f32'>): Tensor<'f32'> {
      runner.run(planLinear(input, weight, out, { bias, activations }));
      return out;
    },
    /** Multiplies each head by its own matrix: `[t, n, k]` → `[t, n, rows]`. */
    perHead(heads: Tensor<'f32'>, weight: Weight, out: Tensor<'f32'>): void {
      headOrder ??= Int32Array.from({ length: batch * numHeads }, (_, i) => i % numHeads);
      const order = tensorFrom(headOrder, { shape: [batch, numHeads] });
      const shaped = out.rank === 3 ? out : out.view([batch, numHeads, weight.shape[1]!]);
      runner.run(planExpertLinear(heads, weight, order, shaped, { activations }));
    },
    /** Applies the activation of a feed-forward block; the result is in `up`. */
    activate(gate: Tensor<'f32'> | undefined, up: Tensor<'f32'>): Tensor<'f32'> {
      const { activation } = config;
      const approximate = activation === 'gelu-tanh' ? 'tanh' : 'none';
      if (!gate) runner.run(planGelu(up, up, { approximate }));
      else if (activation === 'silu') runner.run(planSwiglu(gate, up, up, family.swiglu));
      else runner.run(planGeglu(gate, up, up, { approximate }));
      return up;
    },
  };
}

/** Runs the family's norm over the rows of `input`. */
function runNorm(
  { runner, config }: Decoder,
  input: Tensor<'f32'>,
  { weight, bias }: Norm,
  out: Tensor<'f32'>,
): Tensor<'f32'> {
  const { family, normEps } = config;
  runner.run(
    family.norm
      ? planLayerNorm(input, weight, out, { bias, eps: normEps })
      : planRmsNorm(input, weight, out, { eps: normEps }),
  );
  return out;
}

/** The queries `[t, n, d]`, and all keys and values so far, `[p + t, m, d]` and `[p + t, m, dv]`. */
interface Heads {
  readonly q: Tensor<'f32'>;
  readonly keys: Tensor;
  readonly values: Tensor;
}

/** Computes heads with three matrices. Queries rotate in place, keys on their way into the cache. */
function plainHeads(step: Step, w: LayerWeights, layer: number, input: Tensor<'f32'>): Heads {
  const { runner, config, cache, batch, past, rows } = step;
  const { numHeads, numKvHeads, headDim, valueDim, normEps, family } = config;
  const total = past + batch;
  const { rope } = cache.layers[layer]!;
  const [kCache, vCache] = [cache.k[layer]!, cache.v[layer]!]; // [capacity, m, d], [capacity, m, dv]
  const q = step.linear(input, w.q!, rows.q).view([batch, numHeads, headDim]);
  const k = step.linear(input, w.k!, rows.k).view([batch, numKvHeads, headDim]);
  const v = step.linear(input, w.v!, rows.v).view([batch, numKvHeads, valueDim]);
  // A norm of each head and the rotation are one pass; other norms come first, or last.
  const last = family.qkNormLast === true;
  const together = family.qkNorm === 'head' && rope !== undefined && !last;
  const normBoth = (): void => {
    if (w.qNorm) normHeads(step, q, w.qNorm);
    if (w.kNorm) normHeads(step, k, w.kNorm);
  };
  if (last) {
    for (const x of rope ? [q, k] : []) runner.run(bindRopeParts(step.ropePlan(rope!), [{ x, out: x }]));
  }
  if (!together) normBoth();
  if (rope && !last) {
    const headNorm = (norm: Norm | undefined) => (together && norm ? { weight: norm.weight, eps: normEps } : undefined);
    const parts = [
      { x: q, out: q, norm: headNorm(w.qNorm) },
      { x: k, out: kCache, norm: headNorm(w.kNorm), rows: past },
    ];
    runner.run(bindRopeParts(step.ropePlan(rope), parts));
  } else runner.run(planRearrange(k, kCache.slice(0, past, total)));
  runner.run(planRearrange(v, vCache.slice(0, past, total)));
  return { q, keys: kCache.slice(0, 0, total), values: vCache.slice(0, 0, total) };
}

/** Normalises q or k, `[t, n, d]`, in place: each head, all heads together, or each head with a gain of its own. */
function normHeads({ runner, config, norm }: Step, heads: Tensor<'f32'>, gains: Norm): void {
  const [batch, count, d] = heads.shape as [number, number, number];
  const { qkNorm } = config.family;
  if (qkNorm === 'head') norm(heads, gains, heads);
  else if (qkNorm === 'all') norm(heads.view([batch, count * d]), gains, heads.view([batch, count * d]));
  else {
    for (let h = 0; h < count; h++) {
      const [one, gain] = [heads.slice(1, h, h + 1), gains.weight.slice(0, h, h + 1).view([d])];
      runner.run(planLayerNorm(one, gain, one, { eps: config.normEps }));
    }
  }
}

/**
 * Computes heads of multi-head latent attention. A token's keys and values are one latent vector, c, and one key that
 * rotates and that all heads share; the cache holds these two. A query's part without RoPE is multiplied by kB, so that
 * its product with c is that with the head's key. The caller multiplies the output of attention by vB.
 *
 * @see arXiv:2405.04434, section 2.1
 */
function latentHeads(step: Step, w: LayerWeights, layer: number, input: Tensor<'f32'>): Heads {
  const { runner, config, cache, batch, past, rows } = step;
  const { numHeads, headDim, latent } = config;
  const { rank, nope } = latent!;
  const total = past + batch;
  const kCache = cache.k[layer]!; // [capacity, 1, c + rope]
  const queries = w.qA
    ? step.linear(step.norm(step.linear(input, w.qA, rows.queryLatent), w.qANorm!, rows.queryLatent), w.qB!, rows.q)
    : step.linear(input, w.q!, rows.q);
  const own = queries.view([batch, numHeads, headDim]);
  const q = rows.absorbed.view([batch, numHeads, rank + latent!.rope]);
  step.perHead(own.slice(2, 0, nope), w.kB!.weight, q.slice(2, 0, rank));
  const kv = step.linear(input, w.kvA!, rows.k); // [t, c + rope]
  const c = kv.slice(1, 0, rank);
  step.norm(c, w.kvANorm!, c);
  runner.run(planRearrange(c, kCache.slice(0, past, total).slice(2, 0, rank).view([batch, rank])));
  const key = kv.slice(1, rank, rank + latent!.rope).view([batch, 1, latent!.rope]);
  const parts = [
    { x: own.slice(2, nope, headDim), out: q.slice(2, rank, rank + latent!.rope) },
    { x: key, out: kCache.slice(2, rank, rank + latent!.rope), rows: past },
  ];
  runner.run(bindRopeParts(step.ropePlan(cache.layers[layer]!.rope!), parts));
  const keys = kCache.slice(0, 0, total);
  return { q, keys, values: keys.slice(2, 0, rank) };
}

/** Multiplies queries, `[t, n, d]`, by a factor that grows with their position (Mistral 3). */
function scaleByPosition({ runner, config, batch, positionOf }: Step, q: Tensor<'f32'>): void {
  const { temperature } = config;
  if (!temperature) return;
  const factors = Float32Array.from({ length: batch }, (_, token) => {
    return 1 + temperature.scale * Math.log(Math.floor(positionOf(token) / temperature.context) + 1);
  });
  if (factors.every((factor) => factor === 1)) return;
  const flat = q.view([batch, q.size / batch]);
  runner.run(planScale(flat, tensorFrom(factors), flat));
}

/** Runs a dense feed-forward block: `[t, h]` → `[t, h]`, `down(activation(gate(x)) · up(x))`, written to `out`. */
function dense(
  step: Step,
  [gate, up, down]: readonly [Linear | undefined, Linear, Linear],
  input: Tensor<'f32'>,
  width: number,
  out: Tensor<'f32'>,
): Tensor<'f32'> {
  const { rows } = step;
  const gated = gate && step.linear(input, gate, rows.gate.slice(1, 0, width)); // [t, width]
  return step.linear(step.activate(gated, step.linear(input, up, rows.up.slice(1, 0, width))), down, out);
}

/** Runs the experts that the router chooses for each token, and the expert that all share: `[t, h]` → `[t, h]`. */
function mixtureOfExperts(step: Step, w: LayerWeights, input: Tensor<'f32'>): Tensor<'f32'> {
  const { runner, config, activations, batch, rows } = step;
  const { used, width, route, sharedWidth } = config.experts!;
  const { indices, chosen: weights, routed } = rows;
  const logits = step.linear(input, w.router!, rows.routerLogits); // [t, e]
  runner.run(planRoute(logits, indices, weights, { ...route, bias: w.choiceBias?.weight }));
  const inner = (row: Tensor<'f32'>): Tensor<'f32'> => row.slice(1, 0, used * width).view([batch, used, width]);
  const [gate, up] = [inner(rows.gate), inner(rows.up)];
  const expert = (from: Tensor<'f32'>, { weight, bias }: Linear, to: Tensor<'f32'>, sum?: Tensor<'f32'>): void =>
    runner.run(planExpertLinear(from, weight, indices, to, { bias, weights: sum, activations }));
  expert(input, w.expertGate!, gate);
  expert(input, w.expertUp!, up);
  expert(step.activate(gate, up), w.expertDown!, routed, weights); // [t, h]
  if (!w.sharedUp) return routed;

  if (w.sharedRouter) {
    // A choice of one expert out of one is the sigmoid.
    const logit = step.linear(input, w.sharedRouter, rows.sharedLogit); // [t, 1]
    runner.run(planRoute(logit, rows.sharedIndex, rows.sharedLogitWeight, { gate: 'sigmoid' }));
  }
  const shared = dense(step, [w.sharedGate, w.sharedUp, w.sharedDown!], input, sharedWidth, rows.normed);
  if (w.sharedRouter) runner.run(planScale(shared, rows.sharedLogitWeight.view([batch]), shared));
  runner.run(planAdd(routed, shared, routed));
  return routed;
}

/** Runs the final norm over some rows of the residual stream: `[r, h]` → `[r, h]`, a view of the scratch memory. */
export function finalNorm(decoder: Decoder, x: Tensor<'f32'>): Tensor<'f32'> {
  return runNorm(decoder, x, decoder.weights.norm, decoder.scratch.rows(x.shape[0]!).normed);
}

/** Computes logits, scaled and soft-capped, of at most {@link logitRows} rows: `[r, h]` → `[r, vocab]`, a scratch view. */
export function logitsOf(decoder: Decoder, x: Tensor<'f32'>): Tensor<'f32'> {
  const { runner, config, weights, scratch, activations } = decoder;
  const { logitScale, logitSoftcap: softcap } = config;
  const logits = scratch.logits(x.shape[0]!);
  runner.run(planLinear(finalNorm(decoder, x), weights.head, logits, { activations }));
  if (logitScale !== 1 || softcap !== undefined) runner.run(planScale(logits, logitScale, logits, { softcap }));
  return logits;
}

/** The activations of a batch, `[t, width]` each. Those that the model does not need are missing. */
type Rows = { readonly [P in Activation]: Tensor<P extends 'indices' | 'sharedIndex' ? 'i32' : 'f32'> };

/** The memory for activations, which all batches of all sessions share. It grows for a larger batch. */
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

  /** Returns memory for a batch of `count` tokens. It is not cleared. */
  rows(count: number): Rows {
    if (this.#latest?.count === count) return this.#latest.rows;
    if (count > this.#capacity) this.#grow(batchRows(count));
    const parts = Object.entries(this.#all!).map(([name, tensor]) => [name, (tensor as Tensor).slice(0, 0, count)]);
    const rows = Object.fromEntries(parts) as Rows;
    this.#latest = { rows, count };
    return rows;
  }

  /** Returns memory for the logits of `count` tokens, `[count, vocab]`. */
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

  /** Frees the memory; the next batch allocates it again. */
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
      const all = activationsOf(this.#config).map(([name, width]) => {
        const tensor = this.#runner.allocate(/ind/i.test(name) ? 'i32' : 'f32', [capacity, width]);
        taken.push(tensor);
        return [name, tensor];
      });
      this.#all = Object.fromEntries(all) as Rows;
    } catch (error) {
      for (const tensor of taken) tensor.dispose();
      throw error;
    }
    this.#capacity = capacity;
  }
}
