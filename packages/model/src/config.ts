/**
 * What a model is: config.json of HuggingFace, or the metadata of a GGUF file → {@link DecoderConfig}.
 *
 * The decoder computes Llama's layer, with the variations that families.ts lists. A file that asks for anything else is
 * refused by the name of the field: a step that is left out silently only shows as a model that talks nonsense.
 * RoPE, and with it the size of a head, is read by src/dialects.
 *
 * @module
 */
import { gguf, huggingface, type ModelRope } from '@ropewalk/dialects';
import type { GgufFile } from '@ropewalk/formats';
import { Fields, fail, refuse } from 'ropewalk/backend';
import { FAMILIES, type Family, GGUF_IGNORED, GGUF_OTHER_STEPS, OTHER_STEPS } from './families.js';
import type { DecoderConfig } from './types.js';

/** Models have some dozens of layers. A larger count is forged. */
const MAX_LAYERS = 10000;
/** No vector of a model is nearly as long, and a product of two such lengths is still an exact number. */
const MAX_WIDTH = 2 ** 22;
/** Layer types that config.json may name in `layer_types`. */
const [FULL, SLIDING] = ['full_attention', 'sliding_attention'];
const NO_SUCH_STEP = 'This decoder does not compute that step: convert the model, or take another one.';

/** The RoPE of every layer, for a session of `context` tokens. */
type RopeReader = (context: number) => ModelRope;

/**
 * Reads config.json; end tokens of generation_config.json, if there is one, replace its own.
 *
 * @throws {RopewalkError} FORMAT for a field that is missing or malformed; UNSUPPORTED for what is not computed here
 */
export function configFromJson(json: unknown, generation?: unknown, where = 'config.json'): DecoderConfig {
  const fields: Fields = new Fields(json, where);
  const architecture = fields.text('model_type');
  const family = Object.hasOwn(FAMILIES, architecture) ? FAMILIES[architecture]! : undefined;
  if (!family) return refuseArchitecture(fields, 'model_type', Object.keys(FAMILIES));
  refuseSteps(fields, OTHER_STEPS, '');
  const act = fields.optionalText('hidden_act') ?? 'silu';
  if (act !== 'silu' && act !== 'swish') fields.refuse('UNSUPPORTED', 'hidden_act', 'silu');

  const numHeads = fields.integer('num_attention_heads', 1, MAX_WIDTH);
  const numLayers = fields.integer('num_hidden_layers', 1, MAX_LAYERS);
  const bias = !family.noBias && fields.flag('attention_bias');
  const extra = new Fields(generation ?? {}, 'generation_config.json');
  return finish(fields, (context) => huggingface.ropeFromConfig(json, { where, context }), {
    architecture,
    source: 'huggingface',
    vocabSize: fields.integer('vocab_size', 1, MAX_WIDTH),
    numLayers,
    hiddenSize: fields.integer('hidden_size', 1, MAX_WIDTH),
    numHeads,
    numKvHeads: fields.optionalInteger('num_key_value_heads', 1, MAX_WIDTH) ?? family.numKvHeads ?? numHeads,
    intermediateSize: fields.integer('intermediate_size', 1, MAX_WIDTH),
    normEps: fields.has('rms_norm_eps') ? epsOf(fields, 'rms_norm_eps') : 1e-6,
    maxContext: fields.optionalInteger('max_position_embeddings') ?? family.maxContext,
    tiedHead: fields.flag('tie_word_embeddings'),
    qkvBias: family.qkvBias ?? bias,
    outputBias: bias,
    mlpBias: family.mlpBias === true && fields.flag('mlp_bias'),
    qkNorm: family.qkNorm ?? false,
    bosToken: fields.optionalInteger('bos_token_id', 0),
    eosTokens: endTokensOf(extra) ?? endTokensOf(fields) ?? [],
    windowsOf: (types) => windowsOf(fields, family, types),
  });
}

/** A number, or a list of them. */
function endTokensOf(fields: Fields): number[] | undefined {
  if (Array.isArray(fields.raw('eos_token_id'))) return fields.integers('eos_token_id');
  const id = fields.optionalInteger('eos_token_id', 0);
  return id === undefined ? undefined : [id];
}

/** How many tokens each layer sees; undefined for all. `types` are the layers' types, where the file has them. */
function windowsOf(
  fields: Fields,
  family: Family,
  types: readonly (string | undefined)[],
): readonly (number | undefined)[] {
  for (const [n, type] of types.entries()) {
    if (type === undefined || type === FULL || (type === SLIDING && family.window)) continue;
    const known = family.window ? `${FULL} and ${SLIDING} are` : `${FULL} is`;
    fields.fail('UNSUPPORTED', `layer_types[${n}]`, `only ${known} computed for this model, not ${type}`);
  }
  // A window that is left out is the class's own; `null` means none.
  const given = fields.keys().includes('sliding_window');
  const window = given ? fields.optionalInteger('sliding_window') : 4096;
  if (family.window === 'all') return types.map(() => window);
  if (!family.window || !fields.flag('use_sliding_window')) {
    if (types.includes(SLIDING))
      fields.fail('FORMAT', 'use_sliding_window', `it must be true, because layer_types has ${SLIDING}`);
    return types.map(() => undefined);
  }
  if (window === undefined)
    fields.fail('FORMAT', 'sliding_window', 'it must be an integer, because use_sliding_window is true');
  const first = fields.optionalInteger('max_window_layers', 0, MAX_LAYERS) ?? 28;
  return types.map((type, layer) => ((type ? type === SLIDING : layer >= first) ? window : undefined));
}

/**
 * Reads the metadata of a GGUF file, and what only its list of tensors says: which biases there are, and whether the
 * output head is a separate tensor. `readTensor` reads the small F32 tensors that hold frequency factors.
 *
 * @throws {RopewalkError} FORMAT for a key that is missing or malformed; UNSUPPORTED for what is not computed here
 */
export function configFromGguf(
  file: GgufFile,
  readTensor: (name: string) => Float32Array | undefined = () => undefined,
  where = 'gguf',
): DecoderConfig {
  const keys: Fields = new Fields(file.metadata, where);
  const a = keys.text('general.architecture');
  const families = Object.values(FAMILIES);
  const family = families.find((one) => one.gguf === a);
  if (!family) return refuseArchitecture(keys, 'general.architecture', [...new Set(families.map((one) => one.gguf))]);
  if (file.bigEndian) fail('UNSUPPORTED', where, BIG_ENDIAN);
  if ((keys.optionalInteger('split.count', 0) ?? 1) > 1)
    keys.refuse('UNSUPPORTED', 'split.count', 'a whole GGUF file', 'Merge the parts with llama-gguf-split first.');
  refuseSteps(keys, GGUF_OTHER_STEPS, `${a}.`);
  const numLayers = keys.integer(`${a}.block_count`, 1, MAX_LAYERS);
  const perLayer = (key: string): number | undefined => sameInAllLayers(keys, `${a}.${key}`, numLayers);
  const numHeads = perLayer('attention.head_count') ?? keys.integer(`${a}.attention.head_count`);
  const eos = tokenId(keys, 'tokenizer.ggml.eos_token_id');
  const shapeOf = (name: string): readonly number[] | undefined =>
    file.tensors.find((tensor) => tensor.name === name)?.shape;
  const ropes: RopeReader = (context) =>
    gguf.ropeFromGguf({ metadata: file.metadata, tensors: file.tensors, readTensor }, { where, context });
  const config = finish(keys, ropes, {
    architecture: a,
    source: 'gguf',
    vocabSize: shapeOf('token_embd.weight')?.[1] ?? keys.integer(`${a}.vocab_size`, 1, MAX_WIDTH),
    numLayers,
    hiddenSize: keys.integer(`${a}.embedding_length`, 1, MAX_WIDTH),
    numHeads,
    numKvHeads: perLayer('attention.head_count_kv') ?? numHeads,
    intermediateSize: perLayer('feed_forward_length') ?? keys.integer(`${a}.feed_forward_length`, 1, MAX_WIDTH),
    normEps: epsOf(keys, `${a}.attention.layer_norm_rms_epsilon`),
    maxContext: keys.integer(`${a}.context_length`, 1, 2 ** 31),
    tiedHead: !shapeOf('output.weight'),
    qkvBias: shapeOf('blk.0.attn_q.bias') !== undefined,
    outputBias: shapeOf('blk.0.attn_output.bias') !== undefined,
    mlpBias: shapeOf('blk.0.ffn_gate.bias') !== undefined,
    qkNorm: family.qkNorm ?? false,
    bosToken: tokenId(keys, 'tokenizer.ggml.bos_token_id'),
    eosTokens: eos === undefined ? [] : [eos],
    // llama.cpp has no sliding windows in these architectures.
    windowsOf: (types) => types.map(() => undefined),
    notes: GGUF_IGNORED.map((key) => `${a}.${key}`)
      .filter((key) => keys.has(key))
      .map((key) => `${key} = ${String(keys.raw(key))} is not applied: llama.cpp does not read it for ${a}.`),
  });
  const valueDim = keys.optionalInteger(`${a}.attention.value_length`, 1, MAX_WIDTH) ?? config.headDim;
  if (valueDim !== config.headDim)
    keys.refuse('UNSUPPORTED', `${a}.attention.value_length`, `key_length=${config.headDim}`, 'Take another model.');
  return config;
}

const BIG_ENDIAN = 'the file is big-endian, which is not read. Convert it with gguf-py/gguf_convert_endian.';

/** A number, or a list with the same number for every layer; undefined when the key is missing. */
function sameInAllLayers(keys: Fields, key: string, numLayers: number): number | undefined {
  if (!Array.isArray(keys.raw(key))) return keys.optionalInteger(key, 1, MAX_WIDTH);
  const list = keys.integers(key, 0, MAX_WIDTH);
  if (list.length !== numLayers)
    refuse('FORMAT', keys.path(key), `${numLayers} integers, one for each layer`, list.length);
  if (list.some((n) => n !== list[0] || n === 0))
    keys.refuse('UNSUPPORTED', key, 'the same number in all layers', 'Take another model.');
  return list[0];
}

/** The id of a token. 2^32 − 1 means none: C's −1. */
export function tokenId(keys: Fields, key: string): number | undefined {
  const id = keys.optionalInteger(key, 0, 2 ** 32 - 1);
  return id === 2 ** 32 - 1 ? undefined : id;
}

function epsOf(fields: Fields, key: string): number {
  const eps = fields.number(key);
  return eps >= 0 && eps <= 1 ? eps : fields.refuse('FORMAT', key, 'a number in [0, 1]');
}

function refuseArchitecture(fields: Fields, key: string, known: readonly string[]): never {
  return fields.refuse('UNSUPPORTED', key, known.join(', '), 'Other architectures are not computed here.');
}

function refuseSteps(fields: Fields, steps: Readonly<Record<string, readonly unknown[]>>, prefix: string): void {
  for (const [key, neutral] of Object.entries(steps)) {
    const value = fields.raw(prefix + key);
    if (value !== undefined && !neutral.includes(value))
      fields.refuse('UNSUPPORTED', prefix + key, 'none', NO_SUCH_STEP);
  }
}

/** What a file says of a model, before RoPE is read. */
type Draft = Omit<DecoderConfig, 'headDim' | 'layers' | 'notes'> & {
  readonly windowsOf: (types: readonly (string | undefined)[]) => readonly (number | undefined)[];
  readonly notes?: readonly string[];
};

/** Reads RoPE, and checks what must hold between the fields. */
function finish(fields: Fields, read: RopeReader, { windowsOf, notes = [], ...draft }: Draft): DecoderConfig {
  const { numHeads, numKvHeads, maxContext } = draft;
  // The last answer is kept, because sessions of the same size share tables by the identity of their specs.
  let last: { context: number; rope: ModelRope } | undefined;
  const ropes: RopeReader = (context) => {
    if (last?.context !== context) last = { context, rope: read(context) };
    return last.rope;
  };
  const { layers, notes: ropeNotes } = ropes(maxContext);
  const windows = windowsOf(layers.map(({ layerType }) => layerType));
  const headDim = layers.find(({ rope }) => rope)?.rope?.headDim ?? 0;
  if (headDim < 1 || headDim > MAX_WIDTH)
    refuse('FORMAT', `${fields.where}: head_dim`, `an integer in [1, ${MAX_WIDTH}]`, headDim);
  if (numHeads % numKvHeads !== 0) {
    const next = 'The file is damaged or forged.';
    refuse('FORMAT', `${fields.where}: heads`, `a multiple of the ${numKvHeads} key/value heads`, numHeads, next);
  }
  for (const { rope, layer } of layers) {
    if (rope && rope.headDim !== headDim)
      refuse('FORMAT', `${fields.where}: head_dim of layer ${layer}`, String(headDim), rope.headDim);
    if (rope?.axes)
      fail('UNSUPPORTED', `${fields.where}: layer ${layer}`, 'it has several position axes, as models for images have');
  }
  return Object.freeze({
    ...draft,
    headDim,
    layers: (context: number) => ropes(context).layers.map(({ rope }, layer) => ({ rope, window: windows[layer] })),
    notes: [...notes, ...ropeNotes],
  });
}
