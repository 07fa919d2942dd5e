/**
 * The forward pass, top to bottom. A step that a model does not have is missing in its weights, so there is no case for
 * a family.
 *
 * Letters in shapes: t tokens of this batch, p tokens before them, h hidden size, n heads, m key/value heads, d size of a
 * head of q and k, dv of a head of v, f intermediate size, e experts, c size of the latent vector, a residual streams.
 *
 * @module
 * @see karpathy/llama2.c@350e04f run.c, forward, whose reading order this keeps; arXiv:2302.13971 (Llama),
 *   arXiv:2505.09388 (Qwen3)
 */
import {
  bindRopeParts,
  type Dtype,
  planAdd,
  planCausalConv,
  planEmbedding,
  planExpertLinear,
  planGatedDelta,
  planGeglu,
  planGelu,
  planLayerNorm,
  planLinear,
  planRearrange,
  planRmsNorm,
  planRoute,
  planScale,
  planSelfAttention,
  planSsmScan,
  planSwiglu,
  planXielu,
  type RopePlan,
  type RopeSpec,
  type Runner,
  type SelfAttentionOptions,
  Tensor,
  tensorFrom,
} from 'ropewalk';
import type { Activations } from 'ropewalk/internal';
import { normalQuantile, xieluFactors } from './config.js';
import { type KvCache, storeRows, widenRows } from './kv-cache.js';
import { type Activation, activationsOf, batchRows, type CacheDtype, isEightBits, logitRows } from './memory.js';
import type { DecoderConfig, DeltaConfig, StateSpaceConfig } from './types.js';
import type { LayerWeights, Linear, Norm, Weight, Weights } from './upload.js';
import { attends, layerSizes, spaceSizes } from './weights.js';

/** A decoder that is ready to run: its config, its weights, and the memory that batches share. */
export interface Decoder {
  readonly runner: Runner;
  readonly config: DecoderConfig;
  readonly weights: Weights;
  readonly scratch: Scratch;
  /** The precision of activations in products with blocks. */
  readonly activations: Activations;
  /** Sees tensors of the forward pass as they are made. */
  readonly observe: Observer | undefined;
}

/**
 * Sees a tensor of the forward pass, whose first dimension counts tokens. It is scratch: read it before you return.
 *
 * @param name - `layers.3.q`; docs/trace.md lists the names in the order of the pass
 */
export type Observer = (name: string, tensor: Tensor) => void;

/**
 * Runs a batch of tokens through all layers, and appends their keys and values to the cache.
 *
 * @param tokens - `[t]`, ids below the vocabulary's size, 1 <= t <= CHUNK_TOKENS, or the whole text of a bidirectional
 *   model; the cache has room for them
 * @param positions - `[axes, t]`, row by row; without them the tokens follow those in the cache
 * @returns the residual stream after the last layer, `[t, h]`, f32: a scratch view, valid until the next batch
 */
export function forward(decoder: Decoder, tokens: Int32Array, cache: KvCache, positions?: Int32Array): Tensor<'f32'> {
  const { runner, config, weights, scratch } = decoder;
  const { parallel, embeddingScale, residualScale } = config;
  const batch = tokens.length;
  const step = stepOf(decoder, cache, batch, positions);
  const { x, normed, branch } = scratch.rows(batch);
  const { norm, seen } = step;
  /** Adds the output of a block to the residual stream. */
  const addToStream = (made: Tensor<'f32'>, postNorm: Norm | undefined, layer: number, part: string): void => {
    const ofSum = config.family.blockNorms === 'sum';
    if (postNorm && !ofSum) {
      norm(made, postNorm, made);
      seen?.(part, made, layer);
    }
    if (residualScale !== 1) runner.run(planScale(made, residualScale, made));
    runner.run(planAdd(x, made, x));
    if (postNorm && ofSum) norm(x, postNorm, x);
  };

  runner.run(planEmbedding(tensorFrom(tokens), weights.embedding, x)); // [t] → [t, h]
  if (embeddingScale !== 1) runner.run(planScale(x, embeddingScale, x));
  if (weights.tokenTypes) {
    runner.run(planEmbedding(tensorFrom(new Int32Array(batch)), weights.tokenTypes, normed));
    runner.run(planAdd(x, normed, x));
  }
  if (weights.embeddingNorm) norm(x, weights.embeddingNorm, x);

  seen?.('embedding', x);
  const perLayer = weights.perLayer && perLayerInputs(step, weights.perLayer, tokens); // [t, layers · width]
  if (weights.altup) spreadStreams(step, weights.altup.projection);

  for (const [layer, w] of weights.layers.entries()) {
    const kind = cache.layers[layer]!;
    if (weights.altup) predictStreams(step, w);
    const input = w.attentionNorm ? norm(x, w.attentionNorm, normed) : x; // [t, h]
    seen?.('attn_norm', input, layer);
    if (kind.recurrent || attends(kind)) {
      if (w.laurelNorm) laurel(step, w, input);
      mix(step, w, layer, input); // [t, h], in branch
      seen?.('attn', branch, layer);
      if (!parallel) addToStream(branch, w.attentionPostNorm, layer, 'attn_post');
      if (w.laurelNorm) {
        runner.run(planAdd(x, scratch.rows(batch).laurel, x));
        runner.run(planScale(x, Math.SQRT1_2, x));
      }
      if (!parallel) seen?.('mid', x, layer);
    }
    if (kind.feedForward === false) {
      seen?.('out', x, layer);
      continue;
    }
    const mlpInput = w.mlpNorm ? norm(x, w.mlpNorm, normed) : parallel ? input : x; // [t, h]
    seen?.('mlp_norm', mlpInput, layer);
    const { intermediateSize: width } = layerSizes(config, layer);
    const made =
      w.router && !w.up
        ? mixtureOfExperts(step, w, mlpInput)
        : dense(step, [w.gate, w.up!, w.down!], mlpInput, width, normed, layer); // [t, h]
    if (w.denseNorm) expertsBeside(step, w, norm(made, w.denseNorm, made));
    seen?.('mlp', made, layer);
    if (parallel) addToStream(branch, w.attentionPostNorm, layer, 'attn_post');
    addToStream(made, w.mlpPostNorm, layer, 'mlp_post');
    if (weights.altup) correctStreams(step, w);
    if (perLayer) {
      const { perLayerWidth: own } = config;
      const gate = step.linear(x, w.perLayerGate!, scratch.rows(batch).perLayerGate);
      const gated = step.activate(gate, perLayer.slice(1, layer * own, (layer + 1) * own)); // [t, width]
      const added = step.linear(gated, w.perLayerOut!, branch);
      if (weights.altup) addToOthers(step, w, added, layer);
      else addToStream(added, w.perLayerPostNorm, layer, 'per_layer');
    }
    if (w.layerScale) multiply(step, x, w.layerScale);
    seen?.('out', weights.altup ? streamsOf(step).active : x, layer);
  }
  if (weights.altup) mergeStreams(step, weights.altup.unembed);
  cache.length += batch;
  return x;
}

/** Runs a layer's attention, or what has a state, or both: `[t, h]` → `[t, h]` in `branch`. */
function mix(step: Step, w: LayerWeights, layer: number, input: Tensor<'f32'>): void {
  const { runner, config, rows } = step;
  const kind = step.cache.layers[layer]!;
  const scales = config.branchScales;
  const recurrent = kind.recurrent && RECURRENT[config.recurrent!.kind];
  const read = (factor = 1): Tensor<'f32'> => step.scaled(input, factor, rows.scaled);
  if (recurrent) recurrent(step, w, layer, read(scales?.ssmIn));
  if (!attends(kind)) return;
  if (recurrent) step.scaled(rows.branch, scales?.ssmOut ?? 1, rows.beside, true);
  attention(step, w, layer, read(scales?.attentionIn));
  step.scaled(rows.branch, scales?.attentionOut ?? 1, rows.branch);
  if (recurrent) runner.run(planAdd(rows.branch, rows.beside, rows.branch));
}

/** Multiplies all of `x` by one number. */
function multiply({ runner }: Step, x: Tensor<'f32'>, { weight }: Norm): void {
  const flat = x.view([1, x.size]);
  runner.run(planScale(flat, weight, flat));
}

/**
 * Computes the embeddings that layers have of their own, `[t, layers · width]`: those of the tokens, and the stream's in
 * the same width, normalised. Both halves have a variance of about 1, so the sum is divided by √2.
 */
function perLayerInputs(
  { runner, config, activations, batch, rows, norm }: Step,
  { embedding, projection, norm: gains }: NonNullable<Weights['perLayer']>,
  tokens: Int32Array,
): Tensor<'f32'> {
  const { perLayerWidth, perLayerVocab, numLayers, hiddenSize } = config;
  const { x, perLayer, perLayerProjected: projected } = rows;
  const own = tokens.map((id) => (id < perLayerVocab ? id : 0));
  runner.run(planEmbedding(tensorFrom(own), embedding, perLayer));
  runner.run(planScale(perLayer, Math.sqrt(perLayerWidth), perLayer));
  runner.run(planLinear(x, projection, projected, { activations }));
  runner.run(planScale(projected, 1 / Math.sqrt(hiddenSize), projected));
  const ofLayers = projected.view([batch, numLayers, perLayerWidth]);
  norm(ofLayers, gains, ofLayers);
  runner.run(planAdd(perLayer, projected, perLayer));
  runner.run(planScale(perLayer, Math.SQRT1_2, perLayer));
  return perLayer;
}

/** The squares of a row of zeros have this mean, so that it is not divided by 0. */
const TINY = 1e-30;
/** The least root mean square of a stream that is divided by its own. */
const LEAST_MAGNITUDE = Math.sqrt(1e-5);

/** Returns a view that repeats `x` along a new dimension. */
function repeated({ storage, shape, strides, offset }: Tensor<'f32'>, at: number, count: number): Tensor<'f32'> {
  return new Tensor(storage, { shape: shape.toSpliced(at, 0, count), strides: strides.toSpliced(at, 0, 0), offset });
}

/** The first elements of scratch memory, in another shape. */
function shaped(scratch: Tensor<'f32'>, ...shape: readonly number[]): Tensor<'f32'> {
  const size = shape.reduce((product, length) => product * length, 1);
  return scratch.view([scratch.size]).slice(0, 0, size).view(shape);
}

/** Returns Gemma 3n's streams: all, `[t, a, h]`, the active one, `[t, h]`, and all but the first, `[t, a − 1, h]`. */
function streamsOf({ config, batch, rows }: Step, from: 'streams' | 'predicted' = 'streams') {
  const { streams, active } = config.altup!;
  const all = rows[from].view([batch, streams, config.hiddenSize]);
  const one = (n: number): Tensor<'f32'> => all.slice(1, n, n + 1).view([batch, config.hiddenSize]);
  return { all, one, active: one(active), others: all.slice(1, 1, streams) };
}

/**
 * Computes the root mean square of each row of `x`, `[r, w]` → `[r]`, as the product of the row and itself divided by it,
 * which is left in `unit`.
 */
function magnitudes({ runner }: Step, x: Tensor<'f32'>, unit: Tensor<'f32'>, out: Tensor<'f32'>): Tensor<'f32'> {
  const [count, width] = x.shape as [number, number];
  runner.run(planRmsNorm(x, onesOf(width), unit, { eps: TINY }));
  // Row r is multiplied by the "expert" r, a matrix of one row.
  const order = tensorFrom(
    Int32Array.from({ length: count }, (_, row) => row),
    { shape: [count, 1] },
  );
  runner.run(planExpertLinear(x, unit.view([count, 1, width]), order, out.view([count, 1, 1])));
  runner.run(planScale(out, 1 / width, out));
  return out;
}

/**
 * Multiplies by the matrices of the other streams, and gives each row the magnitude of the row of `like`, `[t, h]`.
 *
 * @param input - `[t, h]`, or `[t, a − 1, h]`
 * @param out - `[t, a − 1, h]`
 */
function projectOthers(
  step: Step,
  input: Tensor<'f32'>,
  weight: Weight,
  like: Tensor<'f32'>,
  out: Tensor<'f32'>,
): void {
  const { runner, config, activations, batch, rows } = step;
  const [others, h] = [config.altup!.streams - 1, config.hiddenSize];
  const target = magnitudes(step, like, rows.branch, rows.magnitude.view([batch])); // [t]
  const order = Int32Array.from({ length: batch * others }, (_, n) => n % others);
  const made = shaped(rows.mixed, batch, others, h);
  runner.run(planExpertLinear(input, weight, tensorFrom(order, { shape: [batch, others] }), made, { activations }));
  const unit = shaped(rows.predicted, batch * others, h);
  const own = shaped(rows.modalities, batch * others);
  magnitudes(step, made.view([batch * others, h]), unit, own);
  // Rows are divided by max(own, least): own / max(own, least) is 1 − max(1 − own / least, 0).
  const [ones, relu] = [onesOf(own.size), { activation: 'relu' } as const];
  runner.run(planScale(own, -1 / LEAST_MAGNITUDE, own));
  runner.run(planAdd(own, ones, own));
  runner.run(planSwiglu(own, ones, own, relu));
  runner.run(planScale(own, -1, own));
  runner.run(planAdd(own, ones, own));
  const factors = own.view([batch, others]);
  runner.run(planSwiglu(repeated(target, 1, others), factors, factors, relu)); // their product, as none is below 0
  runner.run(planScale(unit.view([batch, others, h]), factors, out));
}

/** Makes the streams of Gemma 3n (AltUp) from the embeddings: themselves, and projections that are as long. */
function spreadStreams(step: Step, projection: Weight): void {
  const { x } = step.rows;
  const { one, others } = streamsOf(step);
  projectOthers(step, x, projection, x, others);
  step.runner.run(planRearrange(x, one(0)));
}

/** Makes one stream of all, in `x`: the mean of the first and of projections of the others. */
function mergeStreams(step: Step, unembed: Weight): void {
  const { runner, config, batch, rows } = step;
  const { streams } = config.altup!;
  const { one, others } = streamsOf(step);
  const made = shaped(rows.mixed, batch, streams - 1, config.hiddenSize);
  projectOthers(step, others, unembed, one(0), made);
  runner.run(planRearrange(one(0), rows.x));
  for (let n = 0; n < streams - 1; n++)
    runner.run(planAdd(rows.x, made.slice(1, n, n + 1).view([batch, config.hiddenSize]), rows.x));
  runner.run(planScale(rows.x, 1 / streams, rows.x));
}

/** Computes how much a layer takes of each stream, `[t, h]` → `[t, a]`, from −1 to 1. */
function modalities({ runner, config, norm, linear, rows }: Step, w: LayerWeights, x: Tensor<'f32'>): Tensor<'f32'> {
  const logits = linear(norm(x, w.altupRouterNorm!, rows.normed), w.altupRouter!, rows.modalities);
  runner.run(planScale(logits, 1 / config.hiddenSize, logits, { softcap: 1 })); // tanh
  return logits;
}

/** Predicts all streams behind a layer as sums of the streams before it. The active one is copied to `x`. */
function predictStreams(step: Step, w: LayerWeights): void {
  const { runner, config, batch, rows } = step;
  const { streams } = config.altup!;
  const [before, predicted] = [streamsOf(step), streamsOf(step, 'predicted')];
  const coefs = step
    .linear(modalities(step, w, before.active), w.altupPredict!, rows.coefs)
    .view([batch, streams, streams]); // to, from
  const mixed = rows.mixed.view(before.all.shape);
  for (let n = 0; n < streams; n++) {
    const factors = coefs.slice(2, n, n + 1).view([batch, streams]);
    runner.run(planScale(repeated(before.one(n), 1, streams), factors, mixed));
    runner.run(planAdd(n === 0 ? before.all : predicted.all, mixed, predicted.all));
  }
  runner.run(planRearrange(predicted.active, rows.x));
}

/**
 * Corrects the predicted streams by what the layer made of the active one, `x`; then `x` is the active one, multiplied by
 * a vector if the model has it.
 */
function correctStreams(step: Step, w: LayerWeights): void {
  const { runner, config, activations, batch, rows } = step;
  const { x, branch, normed } = rows;
  const { streams, scaled } = config.altup!;
  const [predicted, after] = [streamsOf(step, 'predicted'), streamsOf(step)];
  const factors = rows.coefs.slice(1, 0, streams); // [t, a]
  const bias = onesOf(streams);
  runner.run(planLinear(modalities(step, w, x), w.altupCorrect!.weight, factors, { bias, activations }));
  runner.run(planScale(predicted.active, -1, branch));
  runner.run(planAdd(x, branch, branch));
  const mixed = rows.mixed.view(after.all.shape);
  runner.run(planScale(repeated(branch, 1, streams), factors, mixed));
  runner.run(planAdd(predicted.all, mixed, after.all));
  runner.run(planRearrange(after.active, x));
  if (!scaled) return;
  const size = magnitudes(step, x, normed, rows.magnitude.view([batch]));
  runner.run(planRmsNorm(x, w.altupScale!.weight, x, { eps: TINY }));
  runner.run(planScale(x, size, x));
}

/** Normalises a layer's own embeddings, `[t, h]`, and adds them to all streams but the first. */
function addToOthers(step: Step, w: LayerWeights, added: Tensor<'f32'>, layer: number): void {
  const { others } = streamsOf(step);
  step.norm(added, w.perLayerPostNorm!, added);
  step.seen?.('per_layer', added, layer);
  step.runner.run(planAdd(others, repeated(added, 1, others.shape[1]!), others));
}

/** Computes LAuReL's residual, what the layer read and its normed product of low rank: `[t, h]` → `[t, h]`, in `laurel`. */
function laurel({ runner, linear, norm, rows }: Step, w: LayerWeights, input: Tensor<'f32'>): void {
  linear(linear(input, w.laurelLeft!, rows.laurelInner), w.laurelRight!, rows.laurel);
  norm(rows.laurel, w.laurelNorm!, rows.laurel);
  runner.run(planAdd(rows.laurel, input, rows.laurel));
}

/** Cuts gates, `[t, f]`, at their mean and so many standard deviations: what is above it is left. `unit` is overwritten. */
function cutGates(step: Step, gate: Tensor<'f32'>, unit: Tensor<'f32'>, share: number): void {
  const { runner, batch, rows } = step;
  const width = gate.shape[1]!;
  const number = rows.magnitude.view([batch]);
  const ones = onesOf(width);
  const add = (factor: number): void => {
    runner.run(planScale(number, factor, number));
    runner.run(planAdd(gate, repeated(number, 1, width), gate));
  };
  runner.run(planLinear(gate, ones.view([1, width]), rows.magnitude));
  add(-1 / width);
  magnitudes(step, gate, unit, number);
  add(-normalQuantile(share));
  runner.run(planSwiglu(gate, repeated(ones, 0, batch), gate, { activation: 'relu' }));
}

/** The state that the parts of a layer share in one batch. */
type Step = ReturnType<typeof stepOf>;

function stepOf(decoder: Decoder, cache: KvCache, batch: number, positions: Int32Array | undefined) {
  const { runner, config, scratch, activations, observe } = decoder;
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
    seen:
      observe &&
      ((part: string, x: Tensor, layer?: number): void =>
        observe(layer === undefined ? part : `layers.${layer}.${part}`, x)),
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
    /** Returns `x` times a factor, in `out`; or `x` itself for the factor 1, unless it is to be copied. */
    scaled(x: Tensor<'f32'>, factor: number, out: Tensor<'f32'>, copy = false): Tensor<'f32'> {
      if (factor === 1 && !copy) return x;
      runner.run(planScale(x, factor, out));
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
    activate(gate: Tensor<'f32'> | undefined, up: Tensor<'f32'>, layer?: number): Tensor<'f32'> {
      const { activation } = config;
      const approximate = activation === 'gelu-tanh' ? 'tanh' : 'none';
      if (activation === 'xielu') runner.run(planXielu(up, up, xieluFactors(config.xielu![layer!]!)));
      else if (activation === 'relu2') runner.run(planSwiglu(up, up, up, { activation: 'relu' }));
      else if (!gate) runner.run(planGelu(up, up, { approximate }));
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

/** Attends: `[t, h]` → `[t, h]` in `branch`. */
function attention(step: Step, w: LayerWeights, layer: number, input: Tensor<'f32'>): void {
  const { runner, config, cache, batch, past, rows } = step;
  const { q, gate, ...cached } = (config.latent ? latentHeads : plainHeads)(step, w, layer, input);
  const { keys, values, kScales, vScales } = cached;
  scaleByPosition(step, layer, q);
  step.seen?.('q_rope', q, layer);
  if (step.seen) {
    const added = keys.slice(0, past, past + batch);
    const wide = rows.k.slice(1, 0, added.size / batch).view(added.shape);
    if (isEightBits(keys.dtype)) widenRows(runner, added, wide, kScales?.slice(0, past, past + batch));
    step.seen('k_rope', isEightBits(keys.dtype) ? wide : added, layer);
  }

  // [t, n, d] and [p + t, m, d], [p + t, m, dv] → [t, n, dv]
  const { window, chunk, sinks: other } = cache.layers[layer]!;
  const learned = other === 'none' ? undefined : w.sinks?.weight;
  const sinks = learned && other === 'zero' ? tensorFrom(new Float32Array(learned.size)) : learned;
  const width = q.shape[1]! * values.shape[2]!;
  const attended = rows.attended.slice(1, 0, width);
  const out = attended.view([batch, q.shape[1]!, values.shape[2]!]);
  const { attentionScale: scale, attentionSoftcap: softcap } = config;
  const options = { scale, softcap, sinks };
  if (config.bidirectional) attendBothWays(step, { q, ...cached }, out, window, options);
  else
    for (const [first, from, to] of piecesOf(chunk, past, past + batch)) {
      const rowsOf = (x: Tensor<'f32'>): Tensor<'f32'> => x.slice(0, from - past, to - past);
      const [k, v] = [keys, values].map((all) => all.slice(0, first, to)) as [Tensor, Tensor];
      const scales = { kRowScales: kScales?.slice(0, first, to), vRowScales: vScales?.slice(0, first, to) };
      runner.run(planSelfAttention(rowsOf(q), k, v, rowsOf(out), { ...options, ...scales, window }));
    }
  if (gate) runner.run(planSwiglu(gate, out, out, { activation: 'sigmoid' }));
  if (w.vB) step.perHead(out, w.vB.weight, rows.values);
  step.seen?.('heads', w.vB ? rows.values : out, layer);
  step.linear(w.vB ? rows.values : attended, w.output!, rows.branch); // [t, h]
}

/** Cuts tokens [from, to) where chunks begin. `first` is the first token that a piece sees. */
function piecesOf(chunk: number | undefined, from: number, to: number): [first: number, from: number, to: number][] {
  if (chunk === undefined) return [[0, from, to]];
  const pieces: [first: number, from: number, to: number][] = [];
  for (let at = from; at < to; at = pieces.at(-1)![2]) {
    const first = at - (at % chunk);
    pieces.push([first, at, Math.min(to, first + chunk)]);
  }
  return pieces;
}

/**
 * Attends to all tokens, or to those less than `window` away on both sides, with the operator's causal window.
 *
 * With t keys, the first t − window + 1 queries see the same keys as causal queries that are window − 1 further on and
 * have a window of 2·window − 1. The last queries are the first ones in reverse order. Those between see all keys.
 */
function attendBothWays(
  { runner, batch }: Step,
  { q, keys, values, kScales, vScales }: Heads,
  out: Tensor<'f32'>,
  window: number | undefined,
  options: SelfAttentionOptions,
): void {
  const first = window === undefined ? 0 : Math.max(0, batch - window + 1);
  const last = window === undefined ? 0 : Math.min(first, window - 1);
  const between = [first, batch - last] as const;
  if (between[1] > between[0])
    runner.run(
      planSelfAttention(q.slice(0, ...between), keys, values, out.slice(0, ...between), {
        ...options,
        ...{ kRowScales: kScales, vRowScales: vScales, causal: false },
      }),
    );
  const sides = [[first, (x: Tensor) => x] as const, [last, reversed] as const];
  for (const [count, turned] of sides) {
    if (count === 0) continue;
    const head = <D extends Dtype>(x: Tensor<D>, rows: number): Tensor<D> => turned(x).slice(0, 0, rows) as Tensor<D>;
    const seen = count + window! - 1;
    const scales = { kRowScales: kScales && head(kScales, seen), vRowScales: vScales && head(vScales, seen) };
    const wide = { ...options, ...scales, window: 2 * window! - 1 };
    runner.run(planSelfAttention(head(q, count), head(keys, seen), head(values, seen), head(out, count), wide));
  }
}

/** Returns the rows in reverse order, as a view. */
function reversed(x: Tensor): Tensor {
  const { shape, strides, offset } = x;
  const [step, ...rest] = strides as [number, ...number[]];
  return new Tensor(x.storage, { shape, strides: [-step, ...rest], offset: offset + (shape[0]! - 1) * step });
}

/** Runs LFM2's gated short convolution: `[t, h]` → `[t, h]` in `branch`. */
function shortConv(step: Step, w: LayerWeights, layer: number, input: Tensor<'f32'>): void {
  const { runner, config, cache, past, rows } = step;
  const { hiddenSize: h } = config;
  const projected = step.linear(input, w.convIn!, rows.projected); // [t, 3h]
  const [before, after, x] = [0, 1, 2].map((n) => projected.slice(1, n * h, (n + 1) * h)) as Tensor<'f32'>[];
  const [state] = cache.states[layer]!;
  const { weight, bias } = w.conv!;
  const options = { bias, before, after, fresh: past === 0 };
  runner.run(planCausalConv(x!, weight as Tensor, state!, rows.convolved, options)); // [t, h]
  step.linear(rows.convolved, w.convOut!, rows.branch);
}

/** Runs a gated delta net: `[t, h]` → `[t, h]` in `branch`. @see arXiv:2412.06464 */
function deltaNet(step: Step, w: LayerWeights, layer: number, input: Tensor<'f32'>): void {
  const { runner, config, cache, batch, past, rows } = step;
  const { keyHeads, heads, keyDim, valueDim, tiled } = config.recurrent as DeltaConfig;
  const [window, memory] = cache.states[layer]!;
  const fresh = past === 0;
  const projected = step.linear(input, w.deltaQkv!, rows.projected); // q of all heads, k, v
  const kernel = w.deltaConv!.weight as Tensor;
  runner.run(planCausalConv(projected, kernel, window!, rows.convolved, { activation: 'silu', fresh }));
  const part = (from: number, count: number, d: number): Tensor<'f32'> =>
    rows.convolved.slice(1, from, from + count * d).view([batch, count, d]);
  const keys = keyHeads * keyDim;
  const [q, k, v] = [part(0, keyHeads, keyDim), part(keys, keyHeads, keyDim), part(2 * keys, heads, valueDim)];
  const decay = step.linear(input, w.deltaDecay!, rows.deltaDecay);
  const beta = step.linear(input, w.deltaBeta!, rows.deltaBeta);
  const [rate, bias, gain] = [w.deltaRate!, w.deltaBias!, w.deltaGain!].map(({ weight }) => weight as Tensor);
  const gates = { decay, beta, rate: rate!, bias: bias! };
  const out = rows.deltaOut.view([batch, heads, valueDim]);
  const options = { eps: DELTA_EPS, heads: tiled ? 'tiled' : 'grouped', fresh } as const;
  runner.run(planGatedDelta(q, k, v, gates, memory!, out, options));
  runner.run(planRmsNorm(out, gain!, out, { eps: config.normEps }));
  const z = step.linear(input, w.deltaZ!, rows.deltaZ);
  runner.run(planSwiglu(z, rows.deltaOut, rows.deltaOut));
  step.linear(rows.deltaOut, w.deltaOut!, rows.branch);
}

/** Is added to the squares of q and k, whatever the eps of the model's norms. */
const DELTA_EPS = 1e-6;

/** Runs a state space of Mamba-2: `[t, h]` → `[t, h]` in `branch`. @see arXiv:2405.21060 */
function stateSpace(step: Step, w: LayerWeights, layer: number, input: Tensor<'f32'>): void {
  const { runner, config, cache, batch, past, rows } = step;
  const { heads, headDim, groups, stateDim, limits, norm } = config.recurrent as StateSpaceConfig;
  const { inner, perGroup, xbc, ssm } = spaceSizes(config);
  const [window, memory] = cache.states[layer]!;
  const fresh = past === 0;
  const projected = step.linear(input, w.ssmIn!, rows.projected);
  if (config.branchScales) {
    const ends = [0, inner, 2 * inner, 2 * inner + groups * stateDim, inner + xbc, ssm]; // of the gate, x, B, C and dt
    for (const [n, factor] of config.branchScales.ssm.entries()) {
      const some = projected.slice(1, ends[n]!, ends[n + 1]!);
      step.scaled(some, factor, some);
    }
  }
  const gate = projected.slice(1, 0, inner);
  const { weight, bias: ofConv } = w.ssmConv!;
  const convolved = rows.convolved;
  const options = { bias: ofConv, activation: 'silu', fresh } as const;
  runner.run(planCausalConv(projected.slice(1, inner, inner + xbc), weight as Tensor, window!, convolved, options));
  const part = (from: number, count: number, d: number): Tensor<'f32'> =>
    convolved.slice(1, from, from + count * d).view([batch, count, d]);
  const b = part(inner, groups, stateDim);
  const c = part(inner + groups * stateDim, groups, stateDim);
  const [rate, bias, skip] = [w.ssmRate!, w.ssmBias!, w.ssmSkip!].map(({ weight }) => weight as Tensor);
  const steps = { dt: projected.slice(1, inner + xbc, ssm), rate: rate!, bias: bias! };
  const out = rows.scanned; // [t, inner]
  const y = out.view([batch, heads, headDim]);
  runner.run(planSsmScan(part(0, heads, headDim), b, c, steps, memory!, y, { skip, limits, fresh }));
  const gains = w.ssmGain?.weight as Tensor | undefined; // [groups, inner / groups]
  const normGroups = (): void => {
    for (let g = 0; gains && g < groups; g++) {
      const group = out.slice(1, g * perGroup, (g + 1) * perGroup);
      runner.run(planRmsNorm(group, gains.slice(0, g, g + 1).view([perGroup]), group, { eps: config.normEps }));
    }
  };
  if (norm === 'before-gate') normGroups();
  runner.run(planSwiglu(gate, out, out));
  if (norm === 'after-gate') normGroups();
  step.linear(out, w.ssmOut!, rows.branch);
}

const RECURRENT = { conv: shortConv, delta: deltaNet, ssm: stateSpace } as const;

/** The queries `[t, n, d]`, and all keys and values so far, `[p + t, m, d]` and `[p + t, m, dv]`. */
interface Heads {
  readonly q: Tensor<'f32'>;
  /** Its sigmoid multiplies the result, `[t, n, dv]`. */
  readonly gate?: Tensor<'f32'> | undefined;
  readonly keys: Tensor<CacheDtype>;
  readonly values: Tensor<CacheDtype>;
  /** `[p + t, m]`, of a cache in i8. */
  readonly kScales?: Tensor<'f32'> | undefined;
  readonly vScales?: Tensor<'f32'> | undefined;
}

/** Computes heads with three matrices. Queries rotate in place, keys on their way into the cache. */
function plainHeads(step: Step, w: LayerWeights, layer: number, input: Tensor<'f32'>): Heads {
  const { runner, config, cache, batch, past, rows } = step;
  const { numHeads, normEps, family } = config;
  const { numKvHeads, headDim, valueDim, sharesWith = layer } = layerSizes(config, layer);
  const total = past + batch;
  const { rope } = cache.layers[layer]!;
  const [kCache, vCache] = [cache.k[sharesWith]!, cache.v[sharesWith]!]; // [capacity, m, d], [capacity, m, dv]
  const [keys, values] = [kCache.slice(0, 0, total), vCache.slice(0, 0, total)];
  const [kScales, vScales] = [cache.kScales, cache.vScales].map((all) => all[sharesWith]?.slice(0, 0, total));
  const added = (all: Tensor<'f32'> | undefined): Tensor<'f32'> | undefined => all?.slice(0, past, total);
  const parts = family.outputGate ? 2 : 1;
  const first = (x: Tensor<'f32'>, count: number): Tensor<'f32'> => x.slice(1, 0, count);
  const queries = step
    .linear(input, w.q!, first(rows.q, numHeads * parts * headDim))
    .view([batch, numHeads, parts * headDim]);
  const q = queries.slice(2, 0, headDim);
  const gate = family.outputGate && queries.slice(2, headDim, 2 * headDim);
  step.seen?.('q', q, layer);
  // A norm of each head and the rotation are one pass, unless somebody looks between; other norms come first, or last.
  const last = family.qkNormLast === true;
  const rotated = config.qkNorm && family.qkNorm === 'rotated';
  const together = ((family.qkNorm === 'head' && !step.seen) || rotated) && rope !== undefined && !last;
  const ones = (d: number): Norm => ({ weight: onesOf(d), bias: undefined });
  const [qNorm, kNorm] = rotated ? [ones(headDim), ones(headDim)] : [w.qNorm, w.kNorm];
  const headNorm = (norm: Norm | undefined) => (together && norm ? { weight: norm.weight, eps: normEps } : undefined);
  const normed = (name: string, heads: Tensor<'f32'>, gains: Norm | undefined): void => {
    if (!gains) return;
    normHeads(step, heads, gains);
    step.seen?.(name, heads, layer);
  };
  if (!w.k) {
    if (!together) normed('q_norm', q, w.qNorm);
    runner.run(bindRopeParts(step.ropePlan(rope!), [{ x: q, out: q, norm: headNorm(qNorm) }]));
    return { q, keys, values, kScales, vScales };
  }
  const k = step.linear(input, w.k, first(rows.k, numKvHeads * headDim)).view([batch, numKvHeads, headDim]);
  step.seen?.('k', k, layer);
  const valueRows = first(rows.v, numKvHeads * valueDim);
  let v = w.v ? step.linear(input, w.v, valueRows).view([batch, numKvHeads, valueDim]) : k;
  if (family.valueNorm) {
    v = step.norm(v, ones(valueDim), valueRows.view([batch, numKvHeads, valueDim]));
  }
  step.seen?.('v', v, layer);
  if (last) {
    for (const x of rope ? [q, k] : []) runner.run(bindRopeParts(step.ropePlan(rope!), [{ x, out: x }]));
  }
  if (!together) {
    normed('q_norm', q, w.qNorm);
    normed('k_norm', k, w.kNorm);
  }
  if (rope && !last) {
    const pair = [
      { x: q, out: q, norm: headNorm(qNorm) },
      { x: k, out: kCache, norm: headNorm(kNorm), rows: past, rowScales: cache.kScales[layer] },
    ];
    runner.run(bindRopeParts(step.ropePlan(rope), pair));
  } else storeRows(runner, k, kCache.slice(0, past, total), added(kScales));
  storeRows(runner, v, vCache.slice(0, past, total), added(vScales));
  return { q, gate, keys, values, kScales, vScales };
}

const onesOf = (d: number): Tensor<'f32'> => tensorFrom(new Float32Array(d).fill(1)) as Tensor<'f32'>;

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
  storeRows(runner, c.view([batch, 1, rank]), kCache.slice(0, past, total).slice(2, 0, rank));
  const key = kv.slice(1, rank, rank + latent!.rope).view([batch, 1, latent!.rope]);
  const parts = [
    { x: own.slice(2, nope, headDim), out: q.slice(2, rank, rank + latent!.rope) },
    { x: key, out: kCache.slice(2, rank, rank + latent!.rope), rows: past },
  ];
  runner.run(bindRopeParts(step.ropePlan(cache.layers[layer]!.rope!), parts));
  const keys = kCache.slice(0, 0, total);
  return { q, keys, values: keys.slice(2, 0, rank) };
}

/** Multiplies queries, `[t, n, d]`, by a factor that grows with their position (Mistral 3, Llama 4). */
function scaleByPosition({ runner, config, cache, batch, positionOf }: Step, layer: number, q: Tensor<'f32'>): void {
  const { temperature } = config;
  if (!temperature || (temperature.still && cache.layers[layer]!.rope)) return;
  const offset = temperature.still ? 1 : 0;
  const factors = Float32Array.from({ length: batch }, (_, token) => {
    return 1 + temperature.scale * Math.log(Math.floor((positionOf(token) + offset) / temperature.context) + 1);
  });
  if (factors.every((factor) => factor === 1)) return;
  const flat = q.view([batch, q.size / batch]);
  runner.run(planScale(flat, tensorFrom(factors), flat));
}

/**
 * Runs a dense feed-forward block: `[t, h]` → `[t, h]`, `down(activation(gate(x)) · up(x))`, written to `out`.
 *
 * @param layer - the layer whose block it is, for observers; undefined for a part of one
 */
function dense(
  step: Step,
  [gate, up, down]: readonly [Linear | undefined, Linear, Linear],
  input: Tensor<'f32'>,
  width: number,
  out: Tensor<'f32'>,
  layer?: number,
): Tensor<'f32'> {
  const { rows, config } = step;
  const see = (part: string, x: Tensor<'f32'>): Tensor<'f32'> => {
    if (layer !== undefined) step.seen?.(part, x, layer);
    return x;
  };
  const { gate: ofGate, down: ofDown } = config.branchScales ?? { gate: 1, down: 1 };
  const gated = gate && step.linear(input, gate, rows.gate.slice(1, 0, width)); // [t, width]
  if (gated) see('gate', step.scaled(gated, ofGate, gated));
  const sparse = (layer !== undefined && config.altup?.sparsity[layer]) || 0;
  if (gated && sparse > 0) cutGates(step, gated, rows.up.slice(1, 0, width), sparse);
  const raised = see('up', step.linear(input, up, rows.up.slice(1, 0, width)));
  step.linear(see('act', step.activate(gated, raised, layer)), down, out);
  return step.scaled(out, ofDown, out);
}

/** Runs the experts that the router chooses for each token, and the expert that all share: `[t, h]` → `[t, h]`. */
function mixtureOfExperts(step: Step, w: LayerWeights, given: Tensor<'f32'>): Tensor<'f32'> {
  const { runner, config, activations, batch, rows, norm } = step;
  const { used, width, route, sharedWidth } = config.experts!;
  const { indices, chosen: weights, routed } = rows;
  const routerInput = w.routerNorm ? norm(given, w.routerNorm, rows.branch) : given;
  const logits = step.linear(routerInput, w.router!, rows.routerLogits); // [t, e]
  if (w.routerNorm) runner.run(planScale(logits, 1 / Math.sqrt(config.hiddenSize), logits));
  runner.run(planRoute(logits, indices, weights, { ...route, bias: w.choiceBias?.weight }));
  if (w.expertScale) scaleChosen(step, w.expertScale);
  const input = w.expertsNorm ? norm(given, w.expertsNorm, rows.branch) : given;
  const inner = (row: Tensor<'f32'>): Tensor<'f32'> => row.slice(1, 0, used * width).view([batch, used, width]);
  const gate = w.expertGate && inner(rows.gate);
  const up = inner(rows.up);
  const expert = (from: Tensor<'f32'>, { weight, bias }: Linear, to: Tensor<'f32'>, sum?: Tensor<'f32'>): void =>
    runner.run(planExpertLinear(from, weight, indices, to, { bias, weights: sum, activations }));
  const { scalesInput } = config.family.experts!;
  const latent = w.expertIn && step.linear(input, w.expertIn, rows.expertLatent); // [t, latent]
  const from = scalesInput ? rows.branch : (latent ?? input);
  if (scalesInput) runner.run(planScale(input, weights.view([batch]), from));
  if (gate) expert(from, w.expertGate!, gate);
  expert(from, w.expertUp!, up);
  const activated = step.activate(gate, up);
  if (scalesInput) expert(activated, w.expertDown!, routed.view([batch, 1, config.hiddenSize]));
  else expert(activated, w.expertDown!, latent ?? routed, weights); // [t, h]
  if (latent) step.linear(latent, w.expertOut!, routed);
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

/** Adds the output of Gemma 4's experts to that of the dense block, `made`. Both read the residual stream. */
function expertsBeside(step: Step, w: LayerWeights, made: Tensor<'f32'>): void {
  const { runner, norm, rows } = step;
  const routed = mixtureOfExperts(step, w, rows.x);
  runner.run(planAdd(made, norm(routed, w.expertsPostNorm!, routed), made));
}

/** Multiplies the weights of the chosen experts by a factor of each expert, `[e]`: its product with 1. */
function scaleChosen({ runner, batch, rows: { indices, chosen, expertScales } }: Step, { weight }: Norm): void {
  const one = tensorFrom(new Float32Array(batch).fill(1), { shape: [batch, 1] });
  const factors = expertScales.view([...expertScales.shape, 1]);
  runner.run(planExpertLinear(one, weight.view([weight.size, 1, 1]), indices, factors));
  const column = chosen.view([chosen.size, 1]);
  runner.run(planScale(column, expertScales.view([chosen.size]), column));
}

/** Runs the final norm, if there is one, over some rows of the residual stream: `[r, h]` → `[r, h]`, a scratch view. */
export function finalNorm(decoder: Decoder, x: Tensor<'f32'>): Tensor<'f32'> {
  const { norm } = decoder.weights;
  const normed = norm ? runNorm(decoder, x, norm, decoder.scratch.rows(x.shape[0]!).normed) : x;
  decoder.observe?.('norm', normed);
  return normed;
}

/** Computes logits, scaled and soft-capped, of at most {@link logitRows} rows: `[r, h]` → `[r, vocab]`, a scratch view. */
export function logitsOf(decoder: Decoder, x: Tensor<'f32'>): Tensor<'f32'> {
  const { runner, config, weights, scratch, activations } = decoder;
  const { logitScale, logitSoftcap: softcap } = config;
  const logits = scratch.logits(x.shape[0]!);
  const { weight, bias } = weights.head;
  runner.run(planLinear(finalNorm(decoder, x), weight, logits, { bias, activations }));
  if (logitScale !== 1 || softcap !== undefined) {
    decoder.observe?.('head', logits);
    runner.run(planScale(logits, logitScale, logits, { softcap }));
  }
  decoder.observe?.('logits', logits);
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
    if (count > this.#capacity) this.#grow(batchRows(count, this.#config));
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
