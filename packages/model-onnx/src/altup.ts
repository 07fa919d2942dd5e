/**
 * The residual streams of Gemma 3n in a decoder's graph (AltUp), and LAuReL beside its attention.
 *
 * Letters in shapes: a streams, h hidden.
 *
 * @module
 */
import { normOf } from './attention.js';
import { meanOf } from './feed-forward.js';
import type { DecoderOperators } from './operators.js';
import { numbersOf } from './portable.js';
import type { DecoderScope } from './scope.js';

/** Returns one stream of `[batch, rows, a, h]`: `[batch, rows, h]`. */
export function streamOf(s: DecoderScope, streams: string, n: number): string {
  return s.b.add('Gather', [streams, s.integer(n)], { axis: 2 });
}

/** Returns the streams from one on. */
function streamsFrom(s: DecoderScope, streams: string, from: number, to = Number.MAX_SAFE_INTEGER): string {
  return s.b.add('Slice', [streams, s.integers(from), s.integers(to), s.integers(2)]);
}

/** Gives rows of `others`, `[batch, rows, a − 1, h]`, the magnitude of `like`, `[batch, rows, 1, h]`. */
function asLong(s: DecoderScope, others: string, like: string): string {
  const { b } = s;
  const squares = (x: string): string => meanOf(s, b.add('Mul', [x, x]));
  const own = b.add('Sqrt', [b.add('Max', [squares(others), s.number(1e-5)])]);
  return b.add('Mul', [others, b.add('Div', [b.add('Sqrt', [squares(like)]), own])]);
}

/** Appends the streams of embeddings: `[batch, seq, h]` → `[batch, seq, a, h]`. */
export function spreadStreams(s: DecoderScope, ops: DecoderOperators, x: string): string {
  const { config, b } = s;
  const { streams } = config.altup!;
  const plan = s.at('altupProjection.weight')!;
  const rows = { ...plan, shape: [(streams - 1) * config.hiddenSize, config.hiddenSize] };
  const made = s.reshape(ops.linear(x, { weights: [rows], biases: [] }), streams - 1, config.hiddenSize);
  const first = b.add('Unsqueeze', [x, s.integers(2)]);
  return b.add('Concat', [first, asLong(s, made, first)], { axis: 2 });
}

/** Appends the mean of the first stream and of projections of the others: `[batch, rows, a, h]` → `[batch, rows, h]`. */
export function mergeStreams(s: DecoderScope, streams: string): string {
  const { b } = s;
  const matrices = b.add('Transpose', [numbersOf(s, [s.at('altupUnembed.weight')!])], { perm: [0, 2, 1] });
  const made = s.headsFirst(b.add('MatMul', [s.headsFirst(streamsFrom(s, streams, 1)), matrices]));
  const first = streamsFrom(s, streams, 0, 1);
  const all = b.add('Concat', [first, asLong(s, made, first)], { axis: 2 });
  return b.add('ReduceMean', [all, s.integers(2)], { keepdims: 0 });
}

/** Appends how much a layer takes of each stream, from −1 to 1: `[batch, rows, h]` → `[batch, rows, a]`. */
function modalities(s: DecoderScope, ops: DecoderOperators, x: string, layer: number): string {
  const { b } = s;
  const normed = normOf(s, ops, x, `${layer}.altupRouterNorm`);
  const logits = ops.linear(normed, s.matrix(`${layer}.altupRouter`)!);
  return b.add('Tanh', [b.add('Mul', [logits, s.number(1 / s.config.hiddenSize)])]);
}

/** Appends the streams behind a layer as sums of those before it. */
export function predictStreams(s: DecoderScope, ops: DecoderOperators, streams: string, layer: number): string {
  const { b, config } = s;
  const { streams: a, active } = config.altup!;
  const given = modalities(s, ops, streamOf(s, streams, active), layer);
  const coefs = s.reshape(ops.linear(given, s.matrix(`${layer}.altupPredict`)!), a, a); // to, from
  return b.add('Add', [b.add('MatMul', [coefs, streams]), streams]);
}

/** Appends the streams behind a layer, which made `x` of the active one, `[batch, rows, h]`. */
export function correctStreams(
  s: DecoderScope,
  ops: DecoderOperators,
  predicted: string,
  x: string,
  layer: number,
): string {
  const { b, config } = s;
  const { active } = config.altup!;
  const coefs = ops.linear(modalities(s, ops, x, layer), s.matrix(`${layer}.altupCorrect`)!);
  const factors = b.add('Unsqueeze', [b.add('Add', [coefs, s.number(1)]), s.integers(3)]);
  const change = b.add('Unsqueeze', [b.add('Sub', [x, streamOf(s, predicted, active)]), s.integers(2)]);
  return b.add('Add', [b.add('Mul', [change, factors]), predicted]);
}

/** Returns the active stream, multiplied by a vector if the model has it. */
export function gateInput(s: DecoderScope, streams: string, layer: number): string {
  const { active, scaled } = s.config.altup!;
  const x = streamOf(s, streams, active);
  return scaled ? s.b.add('Mul', [x, s.numbers([s.at(`${layer}.altupScale.weight`)!])]) : x;
}

/** Adds a layer's own embeddings, `[batch, rows, h]`, to all streams but the first. */
export function addToOthers(s: DecoderScope, streams: string, added: string): string {
  const { b } = s;
  const first = streamsFrom(s, streams, 0, 1);
  const others = b.add('Add', [streamsFrom(s, streams, 1), b.add('Unsqueeze', [added, s.integers(2)])]);
  return b.add('Concat', [first, others], { axis: 2 });
}

/** Adds what a layer read, and its normed product of low rank, to `x`; the variance stays. */
export function withLaurel(s: DecoderScope, ops: DecoderOperators, x: string, input: string, layer: number): string {
  const { b } = s;
  const low = ops.linear(input, s.matrix(`${layer}.laurelLeft`)!);
  const normed = normOf(s, ops, ops.linear(low, s.matrix(`${layer}.laurelRight`)!), `${layer}.laurelNorm`);
  const sum = b.add('Add', [x, b.add('Add', [input, normed])]);
  return b.add('Mul', [sum, s.number(Math.SQRT1_2)]);
}
