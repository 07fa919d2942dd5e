/**
 * What a model is: config.json of HuggingFace, or the metadata of a GGUF → {@link DecoderConfig}.
 *
 * The decoder computes one thing: Llama's layer, with the biases and head norms of Qwen. A file that asks for anything else is refused here,
 * by name: left out silently it would only show as a model that talks nonsense. RoPE is the dialects' business.
 *
 * @module
 */
import { refuse } from '../core/errors.js';
import { Fields } from '../core/fields.js';
import { ropeFromGguf } from '../dialects/gguf.js';
import { ropeFromConfig } from '../dialects/huggingface.js';
import type { ModelRope } from '../dialects/model-rope.js';
import type { GgufFile } from '../formats/gguf.js';
import type { DecoderConfig, LayerConfig } from './types.js';

/** What transformers' classes fill in where config.json leaves something out. */
interface Family {
  readonly numKvHeads?: number;
  readonly headDim?: number;
  readonly maxContext: number;
  /** q, k and v have biases whatever the file says; else where attention_bias is true, and then the output too. */
  readonly qkvBias?: true;
  /** attention_bias and mlp_bias are not read. */
  readonly noBias?: true;
  readonly mlpBias?: true;
  readonly qkNorm?: true;
  /** `all`: sliding_window, and what it is where the file leaves it out, holds for every layer. `late`: from max_window_layers on, if use_sliding_window. */
  readonly window?: 'all' | 'late';
}

/** @see huggingface/transformers@v5.18.0 src/transformers/models/NAME/configuration_NAME.py and modeling_NAME.py */
const FAMILIES: Readonly<Record<string, Family>> = {
  llama: { maxContext: 2048, mlpBias: true },
  mistral: { maxContext: 131072, numKvHeads: 8, noBias: true, window: 'all' },
  qwen2: { maxContext: 32768, numKvHeads: 32, qkvBias: true, noBias: true, window: 'late' },
  qwen3: { maxContext: 32768, numKvHeads: 32, headDim: 128, qkNorm: true, window: 'late' },
};
const KNOWN = Object.keys(FAMILIES).join(', ');

/** Steps of other families' forward passes, and the values that switch them off. */
const OTHER_STEPS: Readonly<Record<string, readonly unknown[]>> = {
  quantization_config: [],
  attn_logit_softcapping: [0],
  final_logit_softcapping: [0],
  query_pre_attn_scalar: [],
  attention_multiplier: [],
  residual_multiplier: [1],
  embedding_multiplier: [1],
  logits_scaling: [1],
  logit_scale: [1],
  scale_emb: [1],
  scale_depth: [],
  clip_qkv: [],
  num_experts: [0],
  num_local_experts: [0, 1],
  n_routed_experts: [0],
  attention_chunk_size: [],
  cross_attention_layers: [],
  is_encoder_decoder: [false],
};

/** A model has some dozens; a forged count stops here. */
const MAX_LAYERS = 10000;
/** No vector of a model is near as long, and the product of two stays an exact number. */
const MAX_WIDTH = 2 ** 22;

/**
 * Reads config.json.
 *
 * @param json - the parsed file
 * @param generation - generation_config.json, parsed, where there is one: its end tokens go before those of config.json
 * @param where - names the file in messages
 * @throws {RopewalkError} FORMAT for a field that is missing or malformed; UNSUPPORTED for a model or a step that is not computed here
 */
export function configFromJson(json: unknown, generation?: unknown, where = 'config.json'): DecoderConfig {
  const fields = new Fields(json, where);
  const architecture = fields.text('model_type');
  const family = Object.hasOwn(FAMILIES, architecture) ? FAMILIES[architecture]! : undefined;
  if (!family)
    refuse('UNSUPPORTED', fields.path('model_type'), KNOWN, architecture, 'Other architectures are not computed here.');
  for (const [key, neutral] of Object.entries(OTHER_STEPS)) {
    const value = fields.raw(key);
    if (value === undefined || neutral.includes(value)) continue;
    refuse(
      'UNSUPPORTED',
      fields.path(key),
      'none',
      value,
      `${architecture} has no such step here; convert the model, or take another.`,
    );
  }
  const act = fields.optionalText('hidden_act') ?? 'silu';
  if (act !== 'silu' && act !== 'swish') refuse('UNSUPPORTED', fields.path('hidden_act'), 'silu', act);

  const hiddenSize = fields.integer('hidden_size', 1, MAX_WIDTH);
  const numHeads = fields.integer('num_attention_heads', 1, MAX_WIDTH);
  const numKvHeads = fields.optionalInteger('num_key_value_heads', 1, MAX_WIDTH) ?? family.numKvHeads ?? numHeads;
  const headDim = headDimOf(fields, family, hiddenSize, numHeads);
  const maxContext = fields.optionalInteger('max_position_embeddings') ?? family.maxContext;
  const numLayers = fields.integer('num_hidden_layers', 1, MAX_LAYERS);
  const windows = windowsOf(fields, architecture, family, numLayers);
  const bias = !family.noBias && (fields.optionalFlag('attention_bias') ?? false);
  const extra = new Fields(generation ?? {}, 'generation_config.json');
  const eosOf = (from: Fields): number[] | undefined =>
    Array.isArray(from.raw('eos_token_id'))
      ? from.integers('eos_token_id')
      : single(from.optionalInteger('eos_token_id', 0));
  const notes: string[] = [];
  const ropes = remembered((context) => ropeFromConfig(json, { where, context }));
  return checked(
    {
      architecture,
      source: 'huggingface',
      vocabSize: fields.integer('vocab_size', 1, MAX_WIDTH),
      numLayers,
      hiddenSize,
      numHeads,
      numKvHeads,
      headDim,
      intermediateSize: fields.integer('intermediate_size', 1, MAX_WIDTH),
      normEps: epsOf(fields, 'rms_norm_eps', 1e-6),
      maxContext,
      tiedHead: fields.optionalFlag('tie_word_embeddings') ?? false,
      qkvBias: family.qkvBias ?? bias,
      outputBias: bias,
      mlpBias: family.mlpBias === true && (fields.optionalFlag('mlp_bias') ?? false),
      qkNorm: family.qkNorm ?? false,
      ...named('bosToken', fields.optionalInteger('bos_token_id', 0)),
      eosTokens: eosOf(extra) ?? eosOf(fields) ?? [],
      layers: layersOf(ropes, windows),
      notes,
    },
    where,
    ropes,
    notes,
  );
}

function headDimOf(fields: Fields, family: Family, hiddenSize: number, numHeads: number): number {
  const given = fields.optionalInteger('head_dim', 1, MAX_WIDTH);
  if (given !== undefined) return given;
  // head_dim: null is no omission, but asks for the quotient.
  if (family.headDim !== undefined && !fields.keys().includes('head_dim')) return family.headDim;
  if (hiddenSize % numHeads !== 0)
    refuse(
      'FORMAT',
      fields.path('hidden_size'),
      `a multiple of num_attention_heads=${numHeads}, or head_dim beside it`,
      hiddenSize,
    );
  return hiddenSize / numHeads;
}

/** How far each layer sees. */
function windowsOf(fields: Fields, architecture: string, family: Family, numLayers: number): (number | undefined)[] {
  const none = new Array<undefined>(numLayers).fill(undefined);
  const given = fields.optionalInteger('sliding_window');
  if (family.window === 'all') {
    // sliding_window: null switches it off; left out, it is what the class says.
    return new Array(numLayers).fill(given ?? (fields.keys().includes('sliding_window') ? undefined : 4096));
  }
  const types = fields.optionalList('layer_types');
  for (const [n, type] of (types ?? []).entries()) {
    if (type === 'full_attention' || (type === 'sliding_attention' && family.window === 'late')) continue;
    const expected = family.window === 'late' ? 'full_attention or sliding_attention' : 'full_attention';
    refuse(
      'UNSUPPORTED',
      `${fields.path('layer_types')}[${n}]`,
      expected,
      type,
      `${architecture} has no other layers here.`,
    );
  }
  if (family.window !== 'late' || !(fields.optionalFlag('use_sliding_window') ?? false)) {
    if (types?.includes('sliding_attention'))
      refuse(
        'FORMAT',
        fields.path('use_sliding_window'),
        'true, as layer_types has sliding_attention',
        fields.raw('use_sliding_window'),
      );
    return none;
  }
  const window = given ?? (fields.keys().includes('sliding_window') ? undefined : 4096);
  if (window === undefined)
    refuse('FORMAT', fields.path('sliding_window'), 'an integer, as use_sliding_window is true', undefined);
  const first = fields.optionalInteger('max_window_layers', 0, MAX_LAYERS) ?? 28;
  return none.map((_, layer) => ((types ? types[layer] === 'sliding_attention' : layer >= first) ? window : undefined));
}

/** GGUF's architectures that are computed here. llama also means Mistral. */
const GGUF_KNOWN = ['llama', 'qwen2', 'qwen3'];

/** GGUF's keys for steps that llama.cpp runs and this decoder does not, and the values that switch them off. */
const GGUF_OTHER_STEPS: Readonly<Record<string, readonly unknown[]>> = {
  expert_count: [0],
  nextn_predict_layers: [0],
  'attention.causal': [true],
};

/**
 * GGUF's keys for steps of other families, which llama.cpp does not read for these.
 *
 * @see ggml-org/llama.cpp@de3ff815 src/models/llama.cpp, qwen2.cpp and qwen3.cpp load_arch_hparams
 */
const GGUF_IGNORED = [
  'attention.scale',
  'attention.clamp_kqv',
  'attention.max_alibi_bias',
  'attention.sliding_window',
  'attn_logit_softcapping',
  'final_logit_softcapping',
  'logit_scale',
  'embedding_scale',
  'residual_scale',
];

/**
 * Reads the metadata of a GGUF, and what only its list of tensors says: biases, a head of its own.
 *
 * @param file - the header
 * @param readTensor - the small F32 tensors that hold frequency factors
 * @param where - names the file in messages
 * @throws {RopewalkError} FORMAT for a key that is missing or malformed; UNSUPPORTED for a model or a step that is not computed here
 */
export function configFromGguf(
  file: GgufFile,
  readTensor: (name: string) => Float32Array | undefined = () => undefined,
  where = 'gguf',
): DecoderConfig {
  const keys = new Fields(file.metadata, where);
  const a = keys.text('general.architecture');
  if (!GGUF_KNOWN.includes(a))
    refuse(
      'UNSUPPORTED',
      keys.path('general.architecture'),
      GGUF_KNOWN.join(', '),
      a,
      'Other architectures are not computed here.',
    );
  if (file.bigEndian)
    refuse(
      'UNSUPPORTED',
      where,
      'a little-endian file',
      'a big-endian one',
      'Convert it with gguf-py/gguf_convert_endian.',
    );
  const parts = keys.optionalInteger('split.count', 0);
  if (parts !== undefined && parts > 1)
    refuse('UNSUPPORTED', keys.path('split.count'), 'a whole GGUF', parts, 'Merge it with llama-gguf-split first.');
  for (const [key, neutral] of Object.entries(GGUF_OTHER_STEPS)) {
    const value = keys.raw(`${a}.${key}`);
    if (value === undefined || neutral.includes(value)) continue;
    refuse('UNSUPPORTED', keys.path(`${a}.${key}`), 'none', value, `${a} has no such step here; take another model.`);
  }
  const has = (name: string): boolean => file.tensors.some((tensor) => tensor.name === name);
  const hiddenSize = keys.integer(`${a}.embedding_length`, 1, MAX_WIDTH);
  const numLayers = keys.integer(`${a}.block_count`, 1, MAX_LAYERS);
  const numHeads =
    sameInAllLayers(keys, `${a}.attention.head_count`, numLayers) ?? keys.integer(`${a}.attention.head_count`);
  const numKvHeads = sameInAllLayers(keys, `${a}.attention.head_count_kv`, numLayers) ?? numHeads;
  const headDim =
    keys.optionalInteger(`${a}.attention.key_length`, 1, MAX_WIDTH) ??
    (hiddenSize % numHeads === 0
      ? hiddenSize / numHeads
      : refuse(
          'FORMAT',
          keys.path(`${a}.attention.key_length`),
          'an integer, as embedding_length / head_count is none',
          undefined,
        ));
  const valueDim = keys.optionalInteger(`${a}.attention.value_length`, 1, MAX_WIDTH) ?? headDim;
  if (valueDim !== headDim)
    refuse(
      'UNSUPPORTED',
      keys.path(`${a}.attention.value_length`),
      `key_length=${headDim}`,
      valueDim,
      'Take another model.',
    );
  const notes = GGUF_IGNORED.filter((key) => keys.has(`${a}.${key}`)).map(
    (key) => `${a}.${key} = ${String(keys.raw(`${a}.${key}`))} is not applied: llama.cpp does not read it for ${a}.`,
  );
  const table = file.tensors.find((tensor) => tensor.name === 'token_embd.weight');
  const vocabSize = table?.shape[1] ?? keys.integer(`${a}.vocab_size`, 1, MAX_WIDTH);
  const ropes = remembered((context) =>
    ropeFromGguf({ metadata: file.metadata, tensors: file.tensors, readTensor }, { where, context }),
  );
  const maxContext = keys.integer(`${a}.context_length`, 1, 2 ** 31);
  return checked(
    {
      architecture: a,
      source: 'gguf',
      vocabSize,
      numLayers,
      hiddenSize,
      numHeads,
      numKvHeads,
      headDim,
      intermediateSize:
        sameInAllLayers(keys, `${a}.feed_forward_length`, numLayers) ??
        keys.integer(`${a}.feed_forward_length`, 1, MAX_WIDTH),
      normEps: epsOf(keys, `${a}.attention.layer_norm_rms_epsilon`, undefined),
      maxContext,
      tiedHead: !has('output.weight'),
      qkvBias: has('blk.0.attn_q.bias'),
      outputBias: has('blk.0.attn_output.bias'),
      mlpBias: has('blk.0.ffn_gate.bias'),
      qkNorm: a === 'qwen3',
      ...named('bosToken', tokenId(keys, 'tokenizer.ggml.bos_token_id')),
      eosTokens: single(tokenId(keys, 'tokenizer.ggml.eos_token_id')) ?? [],
      layers: layersOf(ropes, new Array<undefined>(numLayers).fill(undefined)),
      notes,
    },
    where,
    ropes,
    notes,
  );
}

/** A number, or a list with the same number for each layer. */
function sameInAllLayers(keys: Fields, key: string, numLayers: number): number | undefined {
  const value = keys.raw(key);
  if (!Array.isArray(value)) return keys.optionalInteger(key, 1, MAX_WIDTH);
  const list = keys.integers(key, 0, MAX_WIDTH);
  if (list.length !== numLayers) refuse('FORMAT', keys.path(key), `${numLayers} integers, one a layer`, list.length);
  const other = list.find((n) => n !== list[0] || n === 0);
  if (other !== undefined)
    refuse('UNSUPPORTED', keys.path(key), 'the same number in all layers', list, 'Take another model.');
  return list[0];
}

function tokenId(keys: Fields, key: string): number | undefined {
  const id = keys.optionalInteger(key, 0, 2 ** 32 - 1);
  return id === 2 ** 32 - 1 ? undefined : id; // "none", as C writes it
}

function epsOf(fields: Fields, key: string, usual: number | undefined): number {
  const eps = fields.optionalNumber(key) ?? usual;
  if (eps === undefined) refuse('FORMAT', fields.path(key), 'a number', undefined);
  // A file that says 100 means something else.
  if (!(eps >= 0 && eps <= 1)) refuse('FORMAT', fields.path(key), 'a number in [0, 1]', eps);
  return eps;
}

function single<T>(value: T | undefined): T[] | undefined {
  return value === undefined ? undefined : [value];
}

function named<K extends string, T>(key: K, value: T | undefined): { [P in K]?: T } {
  return value === undefined ? {} : ({ [key]: value } as { [P in K]: T });
}

/** The latest answer is kept: sessions of one size are opened again and again, and share their tables by the identity of the specs. */
function remembered(read: (context: number) => ModelRope): (context: number) => ModelRope {
  let last: { context: number; rope: ModelRope } | undefined;
  return (context) => {
    if (last?.context !== context) last = { context, rope: read(context) };
    return last.rope;
  };
}

function layersOf(
  ropes: (context: number) => ModelRope,
  windows: readonly (number | undefined)[],
): DecoderConfig['layers'] {
  return (context) => {
    const { layers } = ropes(context);
    return windows.map((window, layer): LayerConfig => ({ rope: layers[layer]!.rope, window }));
  };
}

/** What must hold between the fields, whoever said them. */
function checked(
  config: DecoderConfig,
  where: string,
  ropes: (context: number) => ModelRope,
  notes: string[],
): DecoderConfig {
  const { numHeads, numKvHeads, headDim } = config;
  if (numHeads % numKvHeads !== 0)
    refuse(
      'FORMAT',
      `${where}: heads`,
      `a multiple of the ${numKvHeads} key/value heads`,
      numHeads,
      'The file is damaged or forged.',
    );
  const { layers, notes: about } = ropes(config.maxContext);
  for (const { rope, layer } of layers) {
    if (rope && rope.headDim !== headDim)
      refuse('FORMAT', `${where}: head_dim of layer ${layer}`, headDim.toString(), rope.headDim);
    if (rope?.axes)
      refuse(
        'UNSUPPORTED',
        `${where}: layer ${layer}`,
        'positions on one axis',
        'several',
        'This is a model for images.',
      );
  }
  notes.push(...about);
  return Object.freeze(config);
}
