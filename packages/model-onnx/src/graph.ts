/**
 * A whole decoder as one ONNX graph, from the same description as our own forward pass. The order is that of
 * packages/model/src/decoder.ts. Parts without weights are left out.
 *
 * @module
 */
import type { DecoderConfig } from '@ropewalk/model';
import { layerSizes, type WeightPlan } from '@ropewalk/model/internal';
import { ANGLE_MODES, type AngleMode, type GraphBuilder } from '@ropewalk/onnx';
import { angleConstants, MAX_TABLE, valueTypes } from '@ropewalk/onnx/internal';
import { fail, refuse } from 'ropewalk/backend';
import { type OptionNames, optionNames, reading, readList, readName, readOptions } from 'ropewalk/internal';
import {
  addToOthers,
  correctStreams,
  gateInput,
  mergeStreams,
  predictStreams,
  spreadStreams,
  streamOf,
  withLaurel,
} from './altup.js';
import { attend, normOf } from './attention.js';
import { contribOperators } from './contrib.js';
import { activated, dense, feedForward, mixture } from './feed-forward.js';
import type { DecoderOperators } from './operators.js';
import { asGiven, tokensFirst } from './padding.js';
import { portableOperators } from './portable.js';
import type { DecoderForm, DecoderSettings, WeightConstant } from './scope.js';
import { BATCH, DECODER_FORMS, DecoderScope, NUM_LOGITS, PAST, SEQ, TOTAL } from './scope.js';
import { shortConv } from './short-conv.js';

/** Options of {@link decoderGraph}. */
export interface DecoderGraphOptions {
  /** The kind of operators. Default: contrib. */
  readonly form?: DecoderForm;
  /** How angles are computed. Default: f32-table. GroupQueryAttention rotates with tables only. */
  readonly angles?: AngleMode;
  /** The number of positions that the graph serves. Default: the model's own context. */
  readonly context?: number;
  /**
   * Makes present.N.* the rows of this call's tokens only, f32 `[batch, kv_heads, seq, head_dim]`, for a program that
   * keeps the caches itself. Then past_key_values.N.* may have more rows than there are past tokens, and batches have
   * no padding. Default: false.
   */
  readonly newRows?: boolean;
  /**
   * The dtype of past_key_values.N.* and present.N.*; attention widens f16 to f32. The config files of an export say
   * nothing of it: transformers.js and onnxruntime-genai feed f32. Default: f32.
   */
  readonly cacheDtype?: 'f32' | 'f16';
  /**
   * Form contrib: how activations are multiplied with matrices in blocks. `q8`, the default, rounds them in blocks of
   * 32, like llama.cpp (accuracy_level 4 of MatMulNBits). `f32` is exact, and takes many times as long. In form
   * standard the runtime decides (session.qdq_matmulnbits_accuracy_level of ONNX Runtime); primitives do not round.
   */
  readonly activations?: 'q8' | 'f32';
  /** Adds the output hidden_states, f32 `[batch, rows, h]`, which is the input of the head. Default: false. */
  readonly hidden?: boolean;
}

export const DECODER_NAMES: OptionNames<DecoderGraphOptions> = /* @__PURE__ */ optionNames(
  'form angles context newRows cacheDtype activations hidden',
);

/** A decoder's graph. */
export interface DecoderGraph {
  readonly graph: GraphBuilder;
  /** The constants that get the model's weights. */
  readonly constants: readonly WeightConstant[];
  readonly settings: DecoderSettings;
}

/**
 * Builds the graph of a whole decoder.
 *
 * Inputs: input_ids, i64 `[batch, seq]`; attention_mask, i64 `[batch, total]`; position_ids, i64 `[batch, seq]`, or
 * `[axes, batch, seq]`, unless GroupQueryAttention counts the tokens of every layer; num_logits_to_keep, i64 `[]`, how
 * many of the last tokens have logits, 0 for all; past_key_values.N.key and .value, f32 `[batch, kv_heads, past,
 * head_dim]`; for a short convolution past_conv.N, f32 `[batch, h, width − 1]`, zeros at first. Outputs: logits, f32
 * `[batch, rows, vocab]`; present.N.key and .value, `[batch, kv_heads, total, head_dim]`; present_conv.N.
 *
 * @param config - of the model
 * @param weights - all of the model's weights
 * @param options - form, angles, context, newRows, activations
 * @throws {RopewalkError} UNSUPPORTED for a model that the form cannot express; RANGE for an invalid context
 */
export function decoderGraph(
  config: DecoderConfig,
  weights: readonly WeightPlan[],
  options: DecoderGraphOptions = {},
): DecoderGraph {
  const given = readOptions(options, 'export: options', DECODER_NAMES);
  const all = Array.from(readList(weights, 'export: weights', 'the weights of a model'));
  return reading('export: config', () => graphOf(readOptions(config, 'export: config'), all, given));
}

function graphOf(config: DecoderConfig, weights: readonly WeightPlan[], options: DecoderGraphOptions): DecoderGraph {
  const { architecture, recurrent, bidirectional, headless } = config;
  if (bidirectional)
    fail(
      'UNSUPPORTED',
      'export: model',
      `${architecture} sees later tokens, and there is no graph for that yet. ${OURS}`,
    );
  if (headless)
    fail('UNSUPPORTED', 'export: model', `the files have no output head, and a graph gives logits. ${OURS}`);
  if (recurrent && recurrent.kind !== 'conv') {
    const layers = recurrent.kind === 'ssm' ? 'state spaces' : 'delta nets';
    fail('UNSUPPORTED', 'export: model', `${architecture} has ${layers}, and there is no graph for them yet. ${OURS}`);
  }
  const settings = settingsOf(config, options);
  const s = new DecoderScope(config, weights, settings);
  const ops = settings.form === 'contrib' ? contribOperators(s) : portableOperators(s);
  declareInputs(s);
  const x = normOf(s, ops, forward(s, ops), 'norm');
  const logits = logitsOf(s, ops, x);
  s.b.output(logits, 'logits', 'f32', [BATCH, NUM_LOGITS, config.vocabSize]);
  s.b.outputs.unshift(s.b.outputs.pop()!); // logits come first
  dropUnread(s);
  if (options.hidden) s.b.output(x, 'hidden_states', 'f32', [BATCH, NUM_LOGITS, config.hiddenSize]);
  checkShapes(s);
  return { graph: s.b, constants: s.constants, settings };
}

const OURS = 'Our kernels run it: leave the engine out.';

/** Removes the input position_ids if no node reads it, because attention counts tokens itself. */
function dropUnread({ b }: DecoderScope): void {
  const at = b.inputs.findIndex(({ name }) => name === 'position_ids');
  if (!b.nodes.some(({ inputs }) => inputs.includes('position_ids'))) b.inputs.splice(at, 1);
}

/** Checks types and shapes of every value. All sizes differ, so that none fit by chance. */
function checkShapes({ b, constants }: DecoderScope): void {
  const sizes = { [BATCH]: 2, [SEQ]: 3, [PAST]: 8, [TOTAL]: 11, [NUM_LOGITS]: 3 };
  const none = { location: '', byteOffset: 0, sizeBytes: 0 };
  const external = new Map(constants.map(({ name, dtype, shape }) => [name, { dtype, shape, ...none }]));
  valueTypes({ ...b.model('', ''), external }, sizes, { num_logits_to_keep: [0] });
}

function settingsOf(config: DecoderConfig, options: DecoderGraphOptions): DecoderSettings {
  const { form = 'contrib', angles = 'f32-table', context = config.maxContext } = options;
  const { newRows = false, cacheDtype = 'f32', activations = 'q8' } = options;
  readName(form, DECODER_FORMS, 'export: form');
  readName(angles, ANGLE_MODES, 'export: angles');
  if (angles === 'f16-table')
    fail(
      'UNSUPPORTED',
      'export: angles',
      'f16-table is for f16 data, and a whole model computes in f32. Use f32-table.',
    );
  if (!Number.isInteger(context) || context < 1 || context > config.maxContext)
    refuse('RANGE', 'export: context', `an integer in [1, ${config.maxContext}], the model's own context`, context);
  if (typeof newRows !== 'boolean') refuse('RANGE', 'export: newRows', 'true or false', newRows);
  readName(cacheDtype, ['f32', 'f16'], 'export: cacheDtype');
  readName(activations, ['q8', 'f32'], 'export: activations');
  return { form, angles, context, newRows, cacheDtype, activations };
}

function declareInputs({ b, config, settings }: DecoderScope): void {
  b.input('input_ids', 'i64', [BATCH, SEQ]);
  b.input('attention_mask', 'i64', [BATCH, TOTAL]);
  const layers = config.layers(settings.context);
  const ropes = layers.flatMap(({ rope }) => rope ?? []);
  const angles = ropes.map((rope) => angleConstants(rope));
  checkTables(config, settings, Math.max(0, ...angles.map(({ invFreq }) => invFreq.length)));
  const axes = Math.max(1, ...angles.map(({ numAxes }) => numAxes));
  b.input('position_ids', 'i64', axes > 1 ? [axes, BATCH, SEQ] : [BATCH, SEQ]);
  b.input('num_logits_to_keep', 'i64', []);
  for (let layer = 0; layer < config.numLayers; layer++) {
    if (layers[layer]!.recurrent) {
      const { width } = config.recurrent!;
      if (width > 1) b.input(`past_conv.${layer}`, 'f32', [BATCH, config.hiddenSize, width - 1]);
      continue;
    }
    const { numKvHeads, headDim, valueDim, sharesWith } = layerSizes(config, layer);
    if (sharesWith !== undefined) continue;
    const name = `past_key_values.${layer}`;
    b.input(`${name}.key`, settings.cacheDtype, [BATCH, numKvHeads, PAST, headDim]);
    b.input(`${name}.value`, settings.cacheDtype, [BATCH, numKvHeads, PAST, valueDim]);
  }
}

/** Refuses tables that are too large. Later errors could not name the model. */
function checkTables({ architecture, maxContext }: DecoderConfig, { angles, context }: DecoderSettings, pairs: number) {
  if (angles !== 'f32-table' || context * pairs <= MAX_TABLE) return;
  const table = `${context} positions of ${pairs} pairs are more than the ${MAX_TABLE} entries of a table`;
  const next = `Give --context ${Math.floor(MAX_TABLE / pairs)}, or --angles f32-reduced, which needs no table.`;
  fail('RANGE', 'export: context', `${table}; the context of this ${architecture} model is ${maxContext}. ${next}`);
}

/** Returns the residual stream after the last layer, for the rows that have logits. */
function forward(s: DecoderScope, ops: DecoderOperators): string {
  const { b, config, settings } = s;
  const { parallel, embeddingScale, residualScale, numLayers } = config;
  const scaled = (x: string, factor: number): string => (factor === 1 ? x : b.add('Mul', [x, s.number(factor)]));
  const norm = (x: string, place: string): string => (s.at(`${place}.weight`) ? normOf(s, ops, x, place) : x);
  const ids = ops.tokensFirst ? tokensFirst(s, 'input_ids') : 'input_ids';
  let x = scaled(ops.rows(ids, s.at('embedding.weight')!), embeddingScale);
  const own = config.perLayerWidth > 0 ? perLayerInputs(s, ops, x, ids) : undefined;
  const { altup } = config;
  let streams = altup && spreadStreams(s, ops, x);
  for (const [layer, { rope, window, recurrent }] of config.layers(settings.context).entries()) {
    const at = (part: string): string => `${layer}.${part}`;
    const addToStream = (made: string, post: string): void => {
      x = b.add('Add', [x, scaled(norm(made, at(post)), residualScale)]);
    };
    if (streams) {
      streams = predictStreams(s, ops, streams, layer);
      x = streamOf(s, streams, altup!.active);
    }
    let input = norm(x, at('attentionNorm'));
    let attended = recurrent ? shortConv(s, ops, input, layer) : attend(s, ops, input, layer, rope, window);
    const last = layer === numLayers - 1;
    if (last) {
      // Only later layers need earlier rows.
      [x, input, attended] = [keptRows(s, ops, x), keptRows(s, ops, input), keptRows(s, ops, attended)];
      streams = streams && keptRows(s, ops, streams);
    }
    const branch = ops.linear(attended, s.matrix(at(recurrent ? 'convOut' : 'output'))!);
    if (!parallel) addToStream(branch, 'attentionPostNorm');
    if (altup) x = withLaurel(s, ops, x, input, layer);
    const mlpInput = s.at(at('mlpNorm.weight')) ? norm(x, at('mlpNorm')) : parallel ? input : x;
    const made = s.at(at('denseNorm.weight'))
      ? denseAndExperts(s, ops, mlpInput, x, layer)
      : feedForward(s, ops, mlpInput, layer);
    if (parallel) addToStream(branch, 'attentionPostNorm');
    addToStream(made, 'mlpPostNorm');
    if (streams) {
      streams = correctStreams(s, ops, streams, x, layer);
      x = gateInput(s, streams, layer);
    }
    if (own) {
      const up = last ? keptRows(s, ops, own[layer]!) : own[layer]!;
      const gated = activated(s, ops, ops.linear(x, s.matrix(at('perLayerGate'))!), up);
      const added = ops.linear(gated, s.matrix(at('perLayerOut'))!);
      if (streams) streams = addToOthers(s, streams, norm(added, at('perLayerPostNorm')));
      else addToStream(added, 'perLayerPostNorm');
    }
    const factor = s.at(at('layerScale.weight'));
    if (factor) x = b.add('Mul', [x, s.numbers([factor])]);
  }
  return streams ? mergeStreams(s, streams) : x;
}

/** Returns the embeddings that each layer has of its own, `[batch, seq, width]`. */
function perLayerInputs(s: DecoderScope, ops: DecoderOperators, x: string, ids: string): readonly string[] {
  const { b, config } = s;
  const { perLayerWidth: width, perLayerVocab, vocabSize, numLayers, hiddenSize } = config;
  const scaled = (y: string, factor: number): string => b.add('Mul', [y, s.number(factor)]);
  // Tokens beyond the table have the row of token 0.
  const known = (): string => b.add('Where', [b.add('Less', [ids, s.integer(perLayerVocab)]), ids, s.integer(0)]);
  const rows = ops.rows(perLayerVocab < vocabSize ? known() : ids, s.at('perLayerEmbedding.weight')!);
  const tokens = scaled(rows, Math.sqrt(width));
  const projected = scaled(ops.linear(x, s.matrix('perLayerProjection')!), 1 / Math.sqrt(hiddenSize));
  const normed = normOf(s, ops, s.reshape(projected, numLayers, width), 'perLayerNorm');
  const sum = scaled(b.add('Add', [tokens, s.reshape(normed, numLayers * width)]), Math.SQRT1_2);
  return b.addMany('Split', [sum, s.integers(...new Array<number>(numLayers).fill(width))], { axis: 2 }, numLayers);
}

/** Appends the dense block beside the experts, which read the residual stream `x`. */
function denseAndExperts(s: DecoderScope, ops: DecoderOperators, input: string, x: string, layer: number): string {
  const norm = (y: string, part: string): string => normOf(s, ops, y, `${layer}.${part}`);
  const made = norm(dense(s, ops, input, layer, 'gate up down'), 'denseNorm');
  const scale = s.number(1 / Math.sqrt(s.config.hiddenSize));
  const routed = mixture(s, ops, norm(x, 'expertsNorm'), layer, s.b.add('Mul', [norm(x, 'routerNorm'), scale]));
  return s.b.add('Add', [made, norm(routed, 'expertsPostNorm')]);
}

/** Takes the last num_logits_to_keep rows of `[batch, seq, …]`, or all for 0. */
function keptRows(s: DecoderScope, ops: DecoderOperators, x: string): string {
  const { b } = s;
  const first = s.once('first kept row', () =>
    // Some programs give it one dimension, others none.
    b.add('Reshape', [b.add('Neg', ['num_logits_to_keep']), s.integers(1)]),
  );
  if (ops.tokensFirst) return asGiven(s, x, first);
  return b.add('Slice', [x, first, s.integers(Number.MAX_SAFE_INTEGER), s.integers(1)]);
}

/** Appends the head, for rows of the final norm. */
function logitsOf(s: DecoderScope, ops: DecoderOperators, x: string): string {
  const { b, config } = s;
  const head = s.at(config.tiedHead ? 'embedding.weight' : 'head.weight')!;
  const bias = s.at('head.bias');
  let logits = ops.linear(x, { weights: [head], biases: bias ? [bias] : [] });
  if (config.logitScale !== 1) logits = b.add('Mul', [logits, s.number(config.logitScale)]);
  const cap = config.logitSoftcap;
  if (cap === undefined) return logits;
  return b.add('Mul', [b.add('Tanh', [b.add('Mul', [logits, s.number(1 / cap)])]), s.number(cap)]);
}
