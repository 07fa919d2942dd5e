/**
 * A whole decoder as one ONNX graph, from the description that our own forward pass reads. The order is that of
 * packages/model/src/decoder.ts; what a model does not have, its weights do not have.
 *
 * @module
 */
import type { DecoderConfig } from '@ropewalk/model';
import type { WeightPlan } from '@ropewalk/model/description';
import { fail, readName, refuse } from 'ropewalk/backend';
import { ANGLE_MODES, type AngleMode, angleConstants } from '../export/angles.js';
import type { GraphBuilder } from '../export/builder.js';
import type { WeightConstant } from './constants.js';
import { contribOperators } from './contrib.js';
import type { AttentionCall, DecoderOperators } from './operators.js';
import { asGiven, tokensFirst } from './padding.js';
import { portableOperators } from './portable.js';
import {
  BATCH,
  DECODER_FORMS,
  type DecoderForm,
  DecoderScope,
  type DecoderSettings,
  PAST,
  SEQ,
  TOTAL,
} from './scope.js';

/** What {@link decoderGraph} builds. */
export interface DecoderGraphOptions {
  /** contrib unless given. */
  readonly form?: DecoderForm;
  /** How angles are computed; f32-table unless given, or f64 where positions have several axes. */
  readonly angles?: AngleMode;
  /** Positions that the graph serves; the model's own context unless given. */
  readonly context?: number;
}

/** A decoder's graph. */
export interface DecoderGraph {
  readonly graph: GraphBuilder;
  /** Constants that are to be filled with the model's weights. */
  readonly constants: readonly WeightConstant[];
  readonly settings: DecoderSettings;
  /** Whether past and present may be the same memory: each then has room for the whole context. */
  readonly sharedCaches: boolean;
}

/**
 * Builds the graph of a whole decoder.
 *
 * Inputs: input_ids, i64 `[batch, seq]`; attention_mask, i64 `[batch, total]`; position_ids, i64 `[batch, seq]`, or
 * `[axes, batch, seq]`; num_logits_to_keep, i64 `[]`, how many of the last tokens have logits, 0 for all;
 * past_key_values.N.key and .value, f32 `[batch, kv_heads, past, head_dim]`. Outputs: logits, f32 `[batch, rows, vocab]`; present.N.key and .value, `[batch, kv_heads, total, head_dim]`.
 *
 * @param config - of the model
 * @param weights - all of the model's weights
 * @param options - form, angles, context
 * @throws {RopewalkError} UNSUPPORTED for what the form cannot express; RANGE for a context of no size
 */
export function decoderGraph(
  config: DecoderConfig,
  weights: readonly WeightPlan[],
  options: DecoderGraphOptions = {},
): DecoderGraph {
  const settings = settingsOf(config, options);
  const s = new DecoderScope(config, weights, settings);
  const ops = settings.form === 'contrib' ? contribOperators(s) : portableOperators(s);
  declareInputs(s);
  const x = forward(s, ops);
  const logits = logitsOf(s, ops, x);
  s.b.output(logits, 'logits', 'f32', [BATCH, 'num_logits', config.vocabSize]);
  s.b.outputs.unshift(s.b.outputs.pop()!); // logits come first
  const sharedCaches = s.b.nodes.filter(({ opType }) => opType === 'GroupQueryAttention').length === config.numLayers;
  return { graph: s.b, constants: s.constants, settings, sharedCaches };
}

function settingsOf(config: DecoderConfig, options: DecoderGraphOptions): DecoderSettings {
  const { form = 'contrib', angles = 'f32-table', context = config.maxContext } = options;
  readName(form, DECODER_FORMS, 'export: form');
  readName(angles, ANGLE_MODES, 'export: angles');
  if (!Number.isInteger(context) || context < 1 || context > config.maxContext)
    refuse('RANGE', 'export: context', `an integer in [1, ${config.maxContext}], the model's own context`, context);
  return { form, angles, context };
}

function declareInputs({ b, config, settings }: DecoderScope): void {
  b.input('input_ids', 'i64', [BATCH, SEQ]);
  b.input('attention_mask', 'i64', [BATCH, TOTAL]);
  const ropes = config.layers(settings.context).flatMap(({ rope }) => rope ?? []);
  const axes = Math.max(1, ...ropes.map((rope) => angleConstants(rope).numAxes));
  b.input('position_ids', 'i64', axes > 1 ? [axes, BATCH, SEQ] : [BATCH, SEQ]);
  b.input('num_logits_to_keep', 'i64', []);
  for (let layer = 0; layer < config.numLayers; layer++) {
    const name = `past_key_values.${layer}`;
    b.input(`${name}.key`, 'f32', [BATCH, config.numKvHeads, PAST, config.headDim]);
    b.input(`${name}.value`, 'f32', [BATCH, config.numKvHeads, PAST, config.valueDim]);
  }
}

/** The residual stream after the last layer, of the rows that have logits. */
function forward(s: DecoderScope, ops: DecoderOperators): string {
  const { b, config, settings } = s;
  const { parallel, embeddingScale, residualScale, numLayers } = config;
  const scaled = (x: string, factor: number): string => (factor === 1 ? x : b.add('Mul', [x, s.number(factor)]));
  const norm = (x: string, place: string): string => (s.at(`${place}.weight`) ? normOf(s, ops, x, place) : x);
  const ids = ops.tokensFirst ? tokensFirst(s, 'input_ids') : 'input_ids';
  let x = scaled(ops.embed(ids, s.at('embedding.weight')!), embeddingScale);
  for (const [layer, { rope, window }] of config.layers(settings.context).entries()) {
    const at = (part: string): string => `${layer}.${part}`;
    const addToStream = (made: string, post: string): void => {
      x = b.add('Add', [x, scaled(norm(made, at(post)), residualScale)]);
    };
    let input = norm(x, at('attentionNorm'));
    let attended = attend(s, ops, input, layer, rope, window);
    if (layer === numLayers - 1)
      // Earlier rows matter to later layers only.
      [x, input, attended] = [keptRows(s, ops, x), keptRows(s, ops, input), keptRows(s, ops, attended)];
    const branch = ops.linear(attended, s.matrix(at('output'))!);
    if (!parallel) addToStream(branch, 'attentionPostNorm');
    const mlpInput = s.at(at('mlpNorm.weight')) ? norm(x, at('mlpNorm')) : parallel ? input : x;
    const made = feedForward(s, ops, mlpInput, layer);
    if (parallel) addToStream(branch, 'attentionPostNorm');
    addToStream(made, 'mlpPostNorm');
  }
  return x;
}

function normOf(s: DecoderScope, ops: DecoderOperators, x: string, place: string): string {
  const [weight, bias] = ['weight', 'bias'].map((part) => s.at(`${place}.${part}`));
  const gain = s.numbers([weight!]);
  return s.config.family.norm ? ops.layerNorm(x, gain, bias && s.numbers([bias])) : ops.rmsNorm(x, gain);
}

/** The last num_logits_to_keep rows of `[batch, seq, …]`; all for 0. */
function keptRows(s: DecoderScope, ops: DecoderOperators, x: string): string {
  const { b } = s;
  const first = s.once('first kept row', () =>
    // Some clients give it with one dimension, others with none.
    b.add('Reshape', [b.add('Neg', ['num_logits_to_keep']), s.integers(1)]),
  );
  if (ops.tokensFirst) return asGiven(s, x, first);
  return b.add('Slice', [x, first, s.integers(Number.MAX_SAFE_INTEGER), s.integers(1)]);
}

/** Attention of one layer: `[batch, seq, h]` → `[batch, seq, heads · dv]`. */
function attend(
  s: DecoderScope,
  ops: DecoderOperators,
  input: string,
  layer: number,
  rope: AttentionCall['rope'],
  window: number | undefined,
): string {
  const { config } = s;
  const { numHeads: heads, numKvHeads: kvHeads, headDim, valueDim, latent, temperature } = config;
  const at = (part: string): string => `${layer}.${part}`;
  if (latent || temperature) fail('UNSUPPORTED', 'export: model', 'not yet');
  const sinks = s.at(at('sinks.weight'));
  const call: AttentionCall = {
    layer,
    heads,
    kvHeads,
    headDim,
    valueDim,
    rope,
    window,
    sinks: sinks && s.numbers([sinks]),
  };
  const places = ['q', 'k', 'v'].map(at);
  const weights = s.matrix(...places)!.weights;
  const alike = weights.every(({ held }) => held === weights[0]!.held);
  const biases = places.filter((place) => s.at(`${place}.bias`)).length;
  const normed = s.at(at('qNorm.weight')) !== undefined;
  if (alike && biases % 3 === 0 && !normed && ops.packs(call))
    return ops.attentionOfPacked(ops.linear(input, s.matrix(...places)!), call);
  const [q, k, v] = places.map((place) => ops.linear(input, s.matrix(place)!)) as [string, string, string];
  const withNorm = (x: string, part: string, count: number): string =>
    normed ? normHeads(s, ops, x, at(part), count) : x;
  return ops.attention({ q: withNorm(q, 'qNorm', heads), k: withNorm(k, 'kNorm', kvHeads), v }, call);
}

/** Normalises q or k: each head, all heads together, or each head with a gain of its own. */
function normHeads(s: DecoderScope, ops: DecoderOperators, x: string, place: string, count: number): string {
  const { headDim, family } = s.config;
  if (family.qkNorm === 'all') return normOf(s, ops, x, place);
  const heads = s.reshape(x, count, headDim);
  const gain = s.at(`${place}.weight`)!;
  if (family.qkNorm === 'head') return s.reshape(normOf(s, ops, heads, place), count * headDim);
  const one = s.once(`ones ${headDim}`, () => s.b.add('Expand', [s.number(1), s.integers(headDim)]));
  const y = s.b.add('Mul', [ops.layerNorm(heads, one, undefined), s.numbers([gain])]);
  return s.reshape(y, count * headDim);
}

/** The dense feed-forward block. */
function feedForward(s: DecoderScope, ops: DecoderOperators, input: string, layer: number): string {
  const { config, b } = s;
  const at = (part: string): string => `${layer}.${part}`;
  if (s.at(at('router.weight'))) fail('UNSUPPORTED', 'export: model', 'not yet');
  const gateMatrix = s.matrix(at('gate'));
  const gate = gateMatrix && ops.linear(input, gateMatrix);
  const up = ops.linear(input, s.matrix(at('up'))!);
  const approximate = config.activation === 'gelu-tanh' ? 'tanh' : 'none';
  let made: string;
  if (!gate) made = ops.gelu(up, approximate);
  else if (config.activation === 'silu') made = ops.swiglu(gate, up);
  else made = b.add('Mul', [ops.gelu(gate, approximate), up]);
  return ops.linear(made, s.matrix(at('down'))!);
}

function logitsOf(s: DecoderScope, ops: DecoderOperators, x: string): string {
  const { b, config } = s;
  const head = s.at(config.tiedHead ? 'embedding.weight' : 'head.weight')!;
  let logits = ops.linear(normOf(s, ops, x, 'norm'), { weights: [head], biases: [] });
  if (config.logitScale !== 1) logits = b.add('Mul', [logits, s.number(config.logitScale)]);
  const cap = config.logitSoftcap;
  if (cap === undefined) return logits;
  return b.add('Mul', [b.add('Tanh', [b.add('Mul', [logits, s.number(1 / cap)])]), s.number(cap)]);
}
