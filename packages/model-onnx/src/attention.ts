/**
 * Attention of one layer of a decoder's graph, up to its output matrix.
 *
 * Letters in shapes: n heads, m key/value heads, d head of q and k, dv head of v, c latent of keys and values.
 *
 * @module
 */
import { layerSizes } from '@ropewalk/model/internal';
import type { RopeSpec } from 'ropewalk';
import type { AttentionCall, DecoderOperators, Heads } from './operators.js';
import { tokensFirst } from './padding.js';
import { numbersOf, rotated } from './portable.js';
import { alike, type DecoderScope } from './scope.js';

/** Appends attention: `[batch, seq, h]` → `[batch, seq, n · dv]`. */
export function attend(
  s: DecoderScope,
  ops: DecoderOperators,
  input: string,
  layer: number,
  rope: RopeSpec | undefined,
  window: number | undefined,
): string {
  const { numHeads: heads, latent, temperature, family } = s.config;
  const { numKvHeads: kvHeads, headDim } = layerSizes(s.config, layer);
  const at = (part: string): string => `${layer}.${part}`;
  const stored = s.at(at('sinks.weight'));
  const sinks = stored && s.numbers([stored]);
  const call: AttentionCall = { layer, rope, window, sinks };
  if (latent) {
    const { q, k, v } = latentHeads(s, ops, input, layer, rope!);
    return ops.attention({ q: byPosition(s, ops, q), k, v }, { ...call, rope: undefined });
  }
  const places = ['q', 'k', 'v'].map(at).filter((place) => s.at(`${place}.weight`));
  const weights = s.matrix(...places)!.weights;
  const biases = places.filter((place) => s.at(`${place}.bias`)).length;
  const normed = s.at(at('qNorm.weight')) !== undefined;
  const last = family.qkNormLast === true;
  if (places.length === 3 && alike(weights) && biases % 3 === 0 && !normed && !temperature && ops.packs(call))
    return ops.attentionOfPacked(ops.linear(input, s.matrix(...places)!), call);
  const [q, k = '', v = k] = places.map((place) => ops.linear(input, s.matrix(place)!)) as [string, string?, string?];
  const withNorm = (x: string, part: string, count: number): string => {
    if (s.config.qkNorm && family.qkNorm === 'rotated') return rope ? withoutGains(s, ops, x, count, headDim) : x;
    const turned =
      last && rope
        ? s.reshape(s.headsFirst(rotated(s, s.headsFirst(s.reshape(x, count, headDim)), rope, count)), count * headDim)
        : x;
    return normed ? normHeads(s, ops, turned, at(part), count, headDim) : turned;
  };
  const tempered = temperature?.still && rope ? (x: string) => x : (x: string) => byPosition(s, ops, x);
  const queries = tempered(withNorm(q, 'qNorm', heads));
  if (k === '') return ops.attention({ q: queries, k, v }, call);
  const keys = withNorm(k, 'kNorm', kvHeads);
  const values = family.valueNorm ? withoutGains(s, ops, v, kvHeads, headDim) : v;
  return ops.attention({ q: queries, k: keys, v: values }, last ? { ...call, rope: undefined } : call);
}

/** Normalises q or k: each head, all heads together, or each head with its own gain. */
function normHeads(
  s: DecoderScope,
  ops: DecoderOperators,
  x: string,
  place: string,
  count: number,
  headDim: number,
): string {
  const { family } = s.config;
  if (family.qkNorm === 'all') return normOf(s, ops, x, place);
  const heads = s.reshape(x, count, headDim);
  const gain = s.at(`${place}.weight`)!;
  if (family.qkNorm === 'head') return s.reshape(normOf(s, ops, heads, place), count * headDim);
  const y = s.b.add('Mul', [ops.layerNorm(heads, onesOf(s, headDim), undefined), s.numbers([gain])]);
  return s.reshape(y, count * headDim);
}

/** Appends an RMS norm of each head without gains. */
function withoutGains(s: DecoderScope, ops: DecoderOperators, x: string, count: number, d: number): string {
  return s.reshape(ops.rmsNorm(s.reshape(x, count, d), onesOf(s, d)), count * d);
}

const onesOf = (s: DecoderScope, d: number): string =>
  s.once(`ones ${d}`, () => s.b.add('Expand', [s.number(1), s.integers(d)]));

/** Multiplies queries, `[batch, seq, n · d]`, by 1 + scale · ln(⌊p / context⌋ + 1), where p is their first position. */
function byPosition(s: DecoderScope, ops: DecoderOperators, q: string): string {
  const { b, config } = s;
  const { temperature } = config;
  if (!temperature) return q;
  const factor = s.once('temperature', () => {
    const given = b.inputs.find(({ name }) => name === 'position_ids')!;
    const first =
      given.shape.length === 3 ? b.add('Gather', ['position_ids', s.integer(0)], { axis: 0 }) : 'position_ids';
    const positions = ops.tokensFirst ? tokensFirst(s, first) : first;
    const counted = temperature.still ? b.add('Add', [positions, s.integers(1)]) : positions;
    const step = b.cast(b.add('Div', [counted, s.integers(temperature.context)]), 'f32');
    const log = b.add('Log', [b.add('Add', [step, s.number(1)])]);
    const whole = b.add('Add', [b.add('Mul', [log, s.number(temperature.scale)]), s.number(1)]);
    return b.add('Unsqueeze', [whole, s.integers(2)]);
  });
  return b.add('Mul', [q, factor]);
}

/**
 * Builds the heads of multi-head latent attention: `[batch, seq, n · d]` for queries and keys, `[batch, seq, n · dv]`
 * for values. The keys and values of a token come from one latent vector c, and from one rotated key that all heads
 * share. The caches hold whole heads, as in transformers.
 *
 * @see arXiv:2405.04434, section 2.1; huggingface/transformers@v5.18.0 models/deepseek_v3/modeling_deepseek_v3.py
 */
function latentHeads(s: DecoderScope, ops: DecoderOperators, input: string, layer: number, rope: RopeSpec): Heads {
  const { b, config } = s;
  const { numHeads: n, headDim, valueDim, latent } = config;
  const { rank, nope, rope: turning } = latent!;
  const at = (part: string): string => `${layer}.${part}`;
  const linear = (x: string, part: string): string => ops.linear(x, s.matrix(at(part))!);
  const split = (x: string, axis: number, ...sizes: readonly [number, number]): readonly [string, string] =>
    b.addMany('Split', [x, s.integers(...sizes)], { axis: axis }, 2) as [string, string];
  const joinedHeads = (still: string, turned: string): string => {
    const heads = b.add('Concat', [still, turned], { axis: 3 });
    return s.reshape(s.headsFirst(heads), n * headDim);
  };

  const queries = s.at(at('qA.weight'))
    ? linear(normOf(s, ops, linear(input, 'qA'), at('qANorm')), 'qB')
    : linear(input, 'q');
  const [qStill, qTurning] = split(s.headsFirst(s.reshape(queries, n, headDim)), 3, nope, turning);
  const q = joinedHeads(qStill, rotated(s, qTurning, rope, n));

  const [latents, shared] = split(linear(input, 'kvA'), 2, rank, turning);
  const c = normOf(s, ops, latents, at('kvANorm'));
  const key = rotated(s, s.headsFirst(s.reshape(shared, 1, turning)), rope, 1);
  const kTurned = b.add('Expand', [key, s.integers(1, n, 1, 1)]);
  const kB = s.at(at('kB.weight'));
  if (!kB) {
    const both = s.headsFirst(s.reshape(linear(c, 'kvB'), n, nope + valueDim));
    const [kStill, v] = split(both, 3, nope, valueDim);
    return { q, k: joinedHeads(kStill, kTurned), v: s.reshape(s.headsFirst(v), n * valueDim) };
  }
  // kB is [n, c, nope]. The rows of vB, [n, dv, c], are those of one matrix.
  const kStill = b.add('MatMul', [b.add('Unsqueeze', [c, s.integers(1)]), numbersOf(s, [kB])]);
  const vB = s.at(at('vB.weight'))!;
  const v = ops.linear(c, { weights: [{ ...vB, shape: [n * valueDim, rank] }], biases: [] });
  return { q, k: joinedHeads(kStill, kTurned), v };
}

/** Appends the norm of a place such as `3.attentionNorm` over the last dimension. */
export function normOf(s: DecoderScope, ops: DecoderOperators, x: string, place: string): string {
  const [weight, bias] = ['weight', 'bias'].map((part) => s.at(`${place}.${part}`));
  const gain = s.numbers([weight!]);
  return s.config.family.norm ? ops.layerNorm(x, gain, bias && s.numbers([bias])) : ops.rmsNorm(x, gain);
}
