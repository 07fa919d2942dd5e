/**
 * Reads config.json of HuggingFace, or the metadata of a GGUF file → {@link DecoderConfig}.
 *
 * The decoder computes the families of families.ts. A file that asks for another step is refused by the name of the
 * field: without the step the model would only talk nonsense. @ropewalk/dialects reads RoPE.
 *
 * @module
 */
import { gguf, huggingface, type ModelRope } from '@ropewalk/dialects/internal/models';
import type { GgufFile } from '@ropewalk/formats';
import { frequenciesOf, type RopeSpec, type XieluOptions } from 'ropewalk';
import { fail, refuse } from 'ropewalk/backend';
import { erfc, Fields, type RouteGroups, show } from 'ropewalk/internal';
import {
  type Activation,
  type BiasGroup,
  FAMILIES,
  type Family,
  GGUF_IGNORED,
  GGUF_OTHER_STEPS,
  MISSING,
  OTHER_STEPS,
} from './families.js';
import { packingOf } from './packed.js';
import type {
  AltupConfig,
  DecoderConfig,
  DeltaConfig,
  ExpertConfig,
  LatentConfig,
  LayerSizes,
  RecurrentConfig,
  StateSpaceConfig,
  XieluConfig,
} from './types.js';

/** Models have some dozens of layers. A larger count is forged. */
const MAX_LAYERS = 10000;
/** No vector of a model is nearly as long, and a product of two such lengths is still an exact number. */
const MAX_WIDTH = 2 ** 22;
/** Layers with states have some dozens of heads, each of some hundred dimensions, and convolve some tokens. */
const MAX_HEADS = 2 ** 16;
/** Models have some hundreds of experts. */
const MAX_EXPERTS = 2 ** 16;
/** The layer types of `layer_types` in config.json. */
const [FULL, SLIDING] = ['full_attention', 'sliding_attention'];
/** HuggingFace's type of layers in chunks, and that of GGUF. */
const CHUNKED = ['chunked_attention', SLIDING];
/** The types of layers without attention: HuggingFace's, and that of GGUF. */
const RECURRENT: Readonly<Record<RecurrentConfig['kind'], readonly (string | undefined)[]>> = {
  conv: ['conv', 'recurrent'],
  delta: ['linear_attention', 'recurrent'],
  ssm: ['linear_attention', 'mamba', 'recurrent'],
};
const NO_SUCH_STEP = 'This decoder does not compute that step: convert the model, or take another one.';

/** Reads a number that may be a list with the same number for every layer. */
type PerLayer = (key: string) => number | undefined;
/** Returns the RoPE of every layer, for a session of `context` tokens. */
type RopeReader = (context: number) => Pick<ModelRope, 'layers' | 'notes'>;

/** Scales and caps of a model that are not Llama's. */
type Multipliers = {
  readonly [F in keyof DecoderConfig as F extends `${string}Scale` | `${string}Softcap` | 'branchScales' | 'temperature'
    ? F
    : never]?: DecoderConfig[F];
};
/** The sizes from which multipliers are computed. */
type Sizes = Pick<DecoderConfig, 'numLayers' | 'hiddenSize' | 'numHeads' | 'headDim'>;
/** The sizes of a layer but for its heads, whose size its RoPE has. */
type LayerShare = Omit<LayerSizes, 'headDim' | 'valueDim'>;
/** Those of the model. */
type ModelShare = LayerShare & Pick<DecoderConfig, 'altup'>;

/**
 * Reads config.json. End tokens of generation_config.json, if there is one, replace its own.
 *
 * @throws {RopewalkError} FORMAT for a field that is missing or malformed; UNSUPPORTED for what is not computed here
 */
export function configFromJson(given: unknown, generation?: unknown, where = 'config.json'): DecoderConfig {
  const json = renamed(given);
  const outer: Fields = new Fields(json, where);
  // Models for images and text keep the language model in text_config.
  const fields: Fields = outer.optionalObject('text_config') ?? outer;
  const architecture = fields.optionalText('model_type') ?? outer.text('model_type');
  const name = architecture.replace(/_text$/, '');
  const found = Object.hasOwn(FAMILIES, name) ? FAMILIES[name]! : undefined;
  if (!found) return refuseArchitecture(fields, 'model_type', architecture, Object.keys(FAMILIES));
  const blocks = found.singleBlocks && blocksOf(fields);
  const dense = blocks
    ? !blocks.includes('moe')
    : found.experts?.beside
      ? !fields.optionalFlag('enable_moe_block')
      : fields.raw(countField(found)) === 0;
  const hybrid =
    (fields.raw('use_bidirectional_attention') === true ? found.whenBidirectional : undefined) ??
    ((dense && found.withoutExperts) || found);
  const family = (!hasStates(fields) && hybrid.withoutStates) || hybrid;
  const windowKey = fields.has('local_attention') ? 'local_attention' : 'sliding_window';
  refuseSteps(fields, OTHER_STEPS, '', [...(family.reads ?? []), ...(family.experts ? EXPERT_COUNTS : [])]);
  for (const one of [fields, outer]) {
    const quantized = one.optionalObject('quantization_config');
    if (quantized) packingOf(quantized, family.quantMethod);
  }

  const numLayers = blocks?.length ?? fields.integer('num_hidden_layers', 1, MAX_LAYERS);
  const hiddenSize = fields.integer('hidden_size', 1, MAX_WIDTH);
  const numHeads = orDefault(fields, 'num_attention_heads', family.numHeads);
  const latent = family.latent ? latentFromJson(fields) : undefined;
  const flag = fields.optionalFlag('use_parallel_residual') ?? family.gguf === 'gptneox';
  const eps = ['rms_norm_eps', 'layer_norm_eps', 'norm_epsilon', 'norm_eps'].find((key) => fields.has(key));
  const extra = new Fields(generation ?? {}, 'generation_config.json');
  const experts = family.experts && expertsFromJson(fields, family, numLayers, blocks);
  const vocabSize = orDefault(fields, 'vocab_size', family.vocabSize);
  const widths = family.altup && widthsFromJson(fields, numLayers);
  const hasKv = !latent && family.qkvRows !== 'by-head';
  const kv = hasKv ? fields.optionalInteger('num_key_value_heads', 1, MAX_WIDTH) : undefined;
  const ropes: RopeReader = (context) =>
    blocks ? withoutRope(blocks) : huggingface.ropeFromConfig(json, { where, context });
  return finish(fields, ropes, {
    numLayers,
    furtherLayers: 0,
    hiddenSize,
    numHeads,
    architecture,
    source: 'huggingface',
    family,
    vocabSize,
    numKvHeads: kv ?? (latent ? undefined : family.numKvHeads) ?? numHeads,
    headDim: latent ? latent.nope + latent.rope : fields.optionalInteger('head_dim', 1, MAX_WIDTH),
    valueDim: latent ? fields.integer('v_head_dim', 1, MAX_WIDTH) : undefined,
    // A model of experts only may leave it out.
    intermediateSize: denseWidth(family, experts, () => widths?.[0] ?? feedForwardWidth(fields, family.width)),
    activation: activationOf(fields, family),
    normEps: eps === undefined ? 1e-6 : epsOf(fields, eps),
    maxContext: fields.optionalInteger('max_position_embeddings') ?? family.maxContext,
    tiedHead:
      family.encoder ??
      (family.recurrent === 'conv' ? fields.optionalFlag('tie_embedding') : undefined) ??
      outer.optionalFlag('tie_word_embeddings') ??
      fields.optionalFlag('tie_word_embeddings') ??
      family.tied ??
      false,
    biases: biasesFromJson(fields, family),
    qkNorm: family.qkNormFlag
      ? (fields.optionalFlag(family.qkNormFlag) ?? family.qkNorm === 'rotated')
      : family.qkNorm !== undefined,
    chunk: family.chunked ? chunkFromJson(fields) : undefined,
    parallel: family.parallel !== undefined && (family.parallel.when === 'always' || flag),
    headless: false, // the tensors tell
    xielu: undefined, // likewise
    bidirectional: family.encoder === true || fields.raw('is_causal') === false,
    tokenTypes: family.tokenTypes ? fields.integer('type_vocab_size', 1, MAX_WIDTH) : 0,
    bothSides: family.bothSides && sideOf(fields.optionalInteger(windowKey, 1) ?? family.bothSides),
    latent,
    experts,
    recurrent: recurrentFromJson(fields, family, hiddenSize),
    perLayerWidth:
      name === 'gemma4' || family.altup
        ? (fields.optionalInteger('hidden_size_per_layer_input', family.altup ? 1 : 0, MAX_WIDTH) ?? PER_LAYER_WIDTH)
        : 0,
    perLayerVocab: family.altup
      ? (fields.optionalInteger('vocab_size_per_layer_input', 1, MAX_WIDTH) ?? 262144)
      : vocabSize,
    altup: family.altup && altupFromJson(fields, numLayers),
    sizesOf: (layers, common) => sizesFromJson(fields, layers, common, widths),
    bosToken: fields.optionalInteger('bos_token_id', 0),
    eosTokens: endTokensOf(extra) ?? endTokensOf(fields) ?? endTokensOf(outer) ?? [],
    multipliersOf: (all) => (family.multipliers ? MULTIPLIERS[family.multipliers].json(fields, all) : {}),
    windowSaidBy: 'layer_types, sliding_window and use_sliding_window',
  });
}

/** Gives fields transformers' names, where the file has others. */
function renamed(json: unknown): unknown {
  const { model_type: type } = (json ?? {}) as { readonly model_type?: unknown };
  const aliases = typeof type === 'string' && Object.hasOwn(FAMILIES, type) ? FAMILIES[type]!.aliases : undefined;
  if (!aliases) return json;
  const entries = Object.entries(json as object);
  return Object.fromEntries([...entries.map(([key, value]) => [aliases[key] ?? key, value] as const), ...entries]);
}

/** Counts the tokens that a token sees on one side, itself included, if it sees half of `size` on each. */
const sideOf = (size: number): number => Math.floor(size / 2) + 1;

/** The types of layers that are one block. */
const BLOCKS = { attention: FULL, mamba: 'mamba', mlp: 'mlp', moe: 'moe' } as const;
const PATTERN: Readonly<Record<string, string>> = { M: 'mamba', '*': FULL, '-': 'mlp', E: 'moe' };

/** Lists the layers of a model whose layers are one block. Older files have a letter for each. */
function blocksOf(fields: Fields): readonly string[] {
  const [key, old] = ['layer_types', 'hybrid_override_pattern'];
  const given: readonly unknown[] | undefined =
    fields.optionalList(key) ??
    fields
      .optionalText(old)
      ?.split('')
      .map((letter) => PATTERN[letter]);
  const types = given?.map((type) => (type === 'attention' ? FULL : type === 'linear_attention' ? 'mamba' : type));
  if (types && types.length > 0 && types.length <= MAX_LAYERS && types.every(isBlock)) return types;
  return fields.refuse(
    'FORMAT',
    given ? (fields.has(key) ? key : old) : key,
    'a list of layers: mamba, attention, mlp or moe',
  );
}

const isBlock = (type: unknown): type is string => Object.values<unknown>(BLOCKS).includes(type);

/** The layers of a model that does not rotate. */
function withoutRope(types: readonly string[]): ReturnType<RopeReader> {
  const layers = types.map((layerType, layer) => ({ layer, layerType, window: undefined, rope: undefined }));
  return { layers, notes: [] };
}

/** Whether some layers have a state, as all have that say nothing. */
function hasStates(fields: Fields): boolean {
  const types = fields.optionalList('layer_types');
  return types === undefined || types.some((type) => RECURRENT.ssm.includes(type as string));
}

/** Reads the width of dense blocks. LFM2's files may have a number from which it is computed. */
function feedForwardWidth(fields: Fields, key = 'intermediate_size'): number {
  let width = fields.optionalInteger('block_ff_dim', 1, MAX_WIDTH) ?? fields.integer(key, 1, MAX_WIDTH);
  if (!(fields.optionalFlag('block_auto_adjust_ff_dim') ?? fields.optionalText('model_type') === 'lfm2')) return width;
  width = Math.floor((2 * width) / 3);
  // null leaves the width as it is.
  const multiplier = orNull(fields, 'block_ffn_dim_multiplier', 1, (key) => fields.optionalPositive(key));
  if (multiplier === undefined) return width;
  const multiple = fields.optionalInteger('block_multiple_of', 1, MAX_WIDTH) ?? 256;
  return multiple * Math.ceil(Math.floor(multiplier * width) / multiple);
}

/** Reads the widths of Gemma 3n's feed-forward blocks; undefined if all have one. */
function widthsFromJson(fields: Fields, numLayers: number): readonly number[] | undefined {
  const key = 'intermediate_size';
  if (!Array.isArray(fields.raw(key))) return undefined;
  const widths = fields.integers(key, 1, MAX_WIDTH);
  return widths.length === numLayers ? widths : fields.refuse('FORMAT', key, `${numLayers} integers`);
}

/**
 * Gemma 3n's defaults. llama.cpp has them in its code, with the number of layers that have keys of their own, for all
 * files.
 *
 * @see ggml-org/llama.cpp@3688fa86 src/models/gemma3n.cpp, src/llama-hparams.h
 */
const ALTUP = { streams: 4, active: 0, scaled: true, laurelRank: 64 };
const [PER_LAYER_WIDTH, OWN_KEYS, SPARSE_LAYERS] = [256, 20, 10];

function altupFromJson(fields: Fields, numLayers: number): AltupConfig {
  const streams = fields.optionalInteger('altup_num_inputs', 2, MAX_HEADS) ?? ALTUP.streams;
  const key = 'activation_sparsity_pattern';
  const sparsity = fields.optionalNumbers(key) ?? usualSparsity(numLayers, numLayers > SPARSE_LAYERS);
  if (sparsity.length !== numLayers || sparsity.some((share) => share < 0 || share >= 1))
    fields.refuse('FORMAT', key, `${numLayers} numbers >= 0 and < 1, one for each layer`);
  return {
    streams,
    active: fields.optionalInteger('altup_active_idx', 0, streams - 1) ?? ALTUP.active,
    scaled: fields.optionalFlag('altup_correct_scale') ?? ALTUP.scaled,
    laurelRank: fields.optionalInteger('laurel_rank', 1, MAX_WIDTH) ?? ALTUP.laurelRank,
    sparsity,
  };
}

const usualSparsity = (numLayers: number, sparse = true): number[] =>
  Array.from({ length: numLayers }, (_, n) => (sparse && n < SPARSE_LAYERS ? 0.95 : 0));

/**
 * Returns the number of standard deviations above the mean below which a share of a normal distribution lies, by Newton's
 * steps from 0.
 */
export function normalQuantile(share: number): number {
  if (share <= 0) return Number.NEGATIVE_INFINITY;
  if (share < 0.5) return -normalQuantile(1 - share);
  let z = 0;
  for (let n = 0; n < 64; n++) {
    const density = Math.exp((-z * z) / 2) / Math.sqrt(2 * Math.PI);
    z += (erfc(z / Math.SQRT2) / 2 - (1 - share)) / density;
  }
  return z;
}

/** Reads a size. Without the family's default the field must be there. */
function orDefault(fields: Fields, key: string, missing: number | undefined): number {
  return missing !== undefined && !fields.has(key) ? missing : fields.integer(key, 1, MAX_WIDTH);
}

/** Reads a field that has a default, and for which null means none. */
function orNull(
  fields: Fields,
  key: string,
  missing: number,
  read: (key: string) => number | undefined,
): number | undefined {
  return read(key) ?? (fields.keys().includes(key) ? undefined : missing);
}

/** Reads a number, or a list of numbers. */
function endTokensOf(fields: Fields): number[] | undefined {
  if (Array.isArray(fields.raw('eos_token_id'))) return fields.integers('eos_token_id');
  const id = fields.optionalInteger('eos_token_id', 0);
  return id === undefined ? undefined : [id];
}

const ACTIVATIONS: Readonly<Record<string, Activation>> = {
  silu: 'silu',
  swish: 'silu',
  gelu: 'gelu',
  gelu_new: 'gelu-tanh',
  gelu_fast: 'gelu-tanh',
  gelu_pytorch_tanh: 'gelu-tanh',
};

function activationOf(fields: Fields, family: Family): Activation {
  // Gemma's first files say `gelu` in hidden_act and mean hidden_activation.
  const key = fields.has('hidden_activation') ? 'hidden_activation' : 'hidden_act';
  const name = fields.optionalText(key);
  if (name === undefined) return family.activation ?? 'silu';
  // SiLU is computed beside a gate only; relu2 and xielu where the family has them.
  const taken = new Map(Object.entries(ACTIVATIONS).filter(([, one]) => !(family.ungated && one === 'silu')));
  if (family.activation === 'relu2' || family.activation === 'xielu') taken.set(family.activation, family.activation);
  return taken.get(name) ?? fields.refuse('UNSUPPORTED', key, [...taken.keys()].join(', '), NO_SUCH_STEP);
}

/** Returns the factors of the operator xielu. */
export function xieluFactors({ alphaP, alphaN, beta }: XieluConfig): Required<XieluOptions> {
  const softplus = (x: number): number => Math.max(x, 0) + Math.log1p(Math.exp(-Math.abs(x)));
  return { positive: softplus(alphaP), negative: beta + softplus(alphaN), beta };
}

function biasesFromJson(fields: Fields, family: Family): DecoderConfig['biases'] {
  const one = (group: BiasGroup): boolean => {
    const rule = family.biases?.[group];
    if (rule === undefined || rule === 'always') return rule !== undefined;
    return fields.optionalFlag(rule[0]) ?? rule[1];
  };
  return {
    qkv: one('qkv'),
    output: one('output'),
    mlp: one('mlp'),
    conv: one('conv'),
    ssmIn: one('ssmIn'),
    ssmOut: one('ssmOut'),
    head: one('head'),
  };
}

/** The chunk of Llama 4, and the tokens after which its temperature grows. llama.cpp has no keys for them. */
const LLAMA4_CHUNK = 8192;

function chunkFromJson(fields: Fields): number | undefined {
  return orNull(fields, 'attention_chunk_size', LLAMA4_CHUNK, (key) => fields.optionalInteger(key, 1));
}

function latentFromJson(fields: Fields): LatentConfig {
  if (fields.flag('attention_bias')) fields.refuse('UNSUPPORTED', 'attention_bias', 'false', NO_SUCH_STEP);
  return {
    rank: fields.integer('kv_lora_rank', 1, MAX_WIDTH),
    queryRank: fields.optionalInteger('q_lora_rank', 1, MAX_WIDTH),
    nope: fields.integer('qk_nope_head_dim', 1, MAX_WIDTH),
    rope: fields.integer('qk_rope_head_dim', 1, MAX_WIDTH),
  };
}

function recurrentFromJson(fields: Fields, family: Family, hiddenSize: number): RecurrentConfig | undefined {
  const { recurrent: kind } = family;
  const size = (key: string, missing: number): number => fields.optionalInteger(key, 1, MAX_HEADS) ?? missing;
  if (kind === undefined) return undefined;
  if (kind === 'conv') return { kind, width: size('conv_L_cache', 3) };
  if (kind === 'ssm') return stateSpaceFromJson(fields, family, hiddenSize);
  return checkDelta(fields, {
    kind,
    width: size('linear_conv_kernel_dim', 4),
    keyHeads: size('linear_num_key_heads', 16),
    heads: size('linear_num_value_heads', 32),
    keyDim: size('linear_key_head_dim', 128),
    valueDim: size('linear_value_head_dim', 128),
    tiled: false,
  });
}

/** Reads state spaces. Those of Falcon-H1 may have no norm, and have a width of their own. */
function stateSpaceFromJson(
  fields: Fields,
  { stateBeside, singleBlocks }: Family,
  hiddenSize: number,
): StateSpaceConfig {
  const size = (key: string, missing: number): number => fields.optionalInteger(key, 1, MAX_WIDTH) ?? missing;
  const heads = size('mamba_n_heads', 128);
  const given = stateBeside && orNull(fields, 'mamba_d_ssm', 1024, (key) => fields.optionalInteger(key, 1, MAX_WIDTH));
  const inner = given ?? size('mamba_expand', 2) * hiddenSize;
  const norm = !stateBeside || fields.flag('mamba_rms_norm');
  const before = stateBeside && (fields.optionalFlag('mamba_norm_before_gate') ?? true);
  const ofHead =
    fields.raw('mamba_d_head') === 'auto' ? undefined : fields.optionalInteger('mamba_d_head', 1, MAX_WIDTH);
  return checkStateSpace(fields, {
    kind: 'ssm',
    width: size('mamba_d_conv', 4),
    groups: size('mamba_n_groups', singleBlocks ? 8 : 1),
    heads,
    stateDim: size('mamba_d_state', singleBlocks ? 128 : 256),
    headDim: ofHead ?? (singleBlocks ? 64 : inner / heads),
    // transformers reads the lower one only, and not in steps with a cache, and llama.cpp has none.
    limits: singleBlocks ? [fields.optionalNumber('time_step_min') ?? 0.001, Infinity] : limitsOf(fields),
    norm: norm ? (before ? 'before-gate' : 'after-gate') : undefined,
  });
}

/** Reads the limits of time steps. transformers 5 writes an infinity as an object. */
function limitsOf(fields: Fields): StateSpaceConfig['limits'] {
  const key = 'time_step_limit';
  const [min = 0, max = Number.POSITIVE_INFINITY, ...more] = (fields.optionalList(key) ?? []).map((one) =>
    (one as { __float__?: unknown } | null)?.__float__ === 'Infinity' ? Number.POSITIVE_INFINITY : one,
  );
  if (more.length === 0 && typeof min === 'number' && typeof max === 'number' && min >= 0 && min <= 1 && max >= min)
    return [min, max];
  return fields.refuse('FORMAT', key, 'two numbers [min, max] with 0 <= min <= 1 and max >= min');
}

function checkStateSpace(fields: Fields, space: StateSpaceConfig): StateSpaceConfig {
  const { groups, heads, headDim } = space;
  if (!Number.isInteger(headDim))
    refuse(
      'FORMAT',
      `${fields.where}: the inner size of state spaces`,
      `a multiple of the ${heads} heads`,
      headDim * heads,
    );
  if (heads % groups !== 0)
    refuse('FORMAT', `${fields.where}: heads of state spaces`, `a multiple of the ${groups} groups`, heads);
  return space;
}

/** Reads what differs between the layers of Gemma 4 and 3n. */
function sizesFromJson(
  fields: Fields,
  layers: ModelRope['layers'],
  common: ModelShare,
  widths: readonly number[] | undefined,
): LayerShare[] {
  const { numKvHeads, intermediateSize } = common;
  const equal = fields.optionalFlag('attention_k_eq_v') ?? false;
  const global = equal ? fields.optionalInteger('num_global_key_value_heads', 1, MAX_WIDTH) : undefined;
  const own = fields.optionalObject('per_layer_config');
  const missing = common.altup ? 15 : 0;
  const first = layers.length - (fields.optionalInteger('num_kv_shared_layers', 0, layers.length - 1) ?? missing);
  const wide = fields.optionalFlag('use_double_wide_mlp') ?? false;
  return layers.map(({ layerType }, n) => {
    const full = layerType === FULL;
    const shares = n >= first;
    const sharesWith = shares ? layers.slice(0, first).findLastIndex((one) => one.layerType === layerType) : undefined;
    if (sharesWith === -1)
      fields.refuse('FORMAT', 'num_kv_shared_layers', `a layer of ${layerType} before the layers that share its keys`);
    const said = own?.optionalObject(String(n))?.optionalInteger('num_key_value_heads', 1, MAX_WIDTH);
    return {
      numKvHeads: said ?? (full && !own ? global : undefined) ?? numKvHeads,
      intermediateSize: widths?.[n] ?? intermediateSize * (wide && shares ? 2 : 1),
      sharesWith,
      valuesAreKeys: equal && full && !shares,
    };
  });
}

function checkDelta(fields: Fields, delta: DeltaConfig): DeltaConfig {
  const { keyHeads, heads } = delta;
  if (heads % keyHeads !== 0)
    refuse('FORMAT', `${fields.where}: heads of linear attention`, `a multiple of the ${keyHeads} key heads`, heads);
  return delta;
}

/** The fields of config.json with the number of experts. transformers' classes read more than one. */
const EXPERT_COUNTS = ['num_experts', 'num_local_experts', 'n_routed_experts', 'moe_num_experts'];

/** Returns the usual one of a family. */
export function countField({ reads = [] }: Family): string {
  return reads.find((key) => EXPERT_COUNTS.includes(key)) ?? 'num_experts';
}

function expertsFromJson(
  fields: Fields,
  family: Family,
  numLayers: number,
  blocks: readonly string[] | undefined,
): ExpertConfig {
  const { gguf: kind, experts } = family;
  const rules = experts!;
  const { deepseek, fields: named = {} } = rules;
  const usual = countField(family);
  const countKey = fields.has(usual) ? usual : EXPERT_COUNTS.find((key) => fields.has(key));
  const count = fields.integer(countKey ?? usual, 1, MAX_EXPERTS);
  const widthKey = named.width ?? (fields.has('moe_intermediate_size') ? 'moe_intermediate_size' : 'intermediate_size');
  const width = sameInAllLayers(fields, widthKey, numLayers) ?? fields.integer(widthKey, 1, MAX_WIDTH);
  const sharedWidth = rules.shared === 'gated' ? 'shared_expert_intermediate_size' : named.sharedWidth;
  const shared = sharedWidth
    ? (fields.optionalInteger(sharedWidth, 0, MAX_WIDTH) ?? 0)
    : (fields.optionalInteger(named.shared ?? 'n_shared_experts', 0, MAX_EXPERTS) ?? 0) * width;
  const step = fields.optionalInteger(named.step ?? (deepseek ? 'moe_layer_freq' : 'decoder_sparse_step')) ?? 1;
  // DeepSeek counts every n-th layer from 0, others from 1.
  const from = deepseek && !named.step ? 0 : 1;
  const dense = fields.optionalInteger(named.first ?? 'first_k_dense_replace', 0) ?? (kind === 'lfm2moe' ? 2 : 0);
  const last = (named.last === undefined ? undefined : fields.optionalInteger(named.last, -1)) ?? -1;
  const without = fields.optionalNumbers('mlp_only_layers') ?? [];
  const types = fields.optionalList('mlp_layer_types');
  const listed = rules.scalesInput ? fields.optionalNumbers('moe_layers') : undefined;
  const sigmoid = fields.optionalText('scoring_func') === 'sigmoid' || rules.gate === 'sigmoid';
  const scale =
    deepseek || kind === 'lfm2moe' ? (fields.optionalNumber(named.scale ?? 'routed_scaling_factor') ?? 1) : 1;
  const usedKey = named.used ?? 'num_experts_per_tok';
  if (rules.scalesInput && fields.raw(usedKey) !== 1) fields.refuse('UNSUPPORTED', usedKey, '1', NO_SUCH_STEP);
  return checkExperts(fields, usedKey, {
    count,
    used: sameInAllLayers(fields, usedKey, numLayers) ?? fields.integer(usedKey, 1, MAX_EXPERTS),
    width,
    sharedWidth: rules.shared ? shared : 0,
    latent: family.singleBlocks && fields.optionalInteger('moe_latent_size', 1, MAX_WIDTH),
    route: {
      gate: sigmoid ? 'sigmoid' : rules.gate,
      ...(rules.gate === 'sparsemixer' && { jitter: fields.optionalNumber('router_jitter_noise') ?? 0.01 }),
      normalize: fields.optionalFlag('norm_topk_prob') ?? (kind === 'qwen3moe' ? false : rules.normalize),
      scale,
      groups: deepseek ? groupsFromJson(fields, sigmoid || kind !== 'deepseek2') : undefined,
    },
    layers: Array.from({ length: numLayers }, (_, n) => {
      if (blocks) return blocks[n] === 'moe';
      if (types) return types[n] === 'sparse';
      if (listed) return listed.includes(n);
      return n >= dense && (last === -1 || n <= last) && (n + from) % step === 0 && !without.includes(n);
    }),
  });
}

function groupsFromJson(fields: Fields, grouped: boolean): RouteGroups | undefined {
  const method = fields.optionalText('topk_method') ?? (grouped ? 'noaux_tc' : 'greedy');
  if (method === 'greedy') return undefined;
  if (method !== 'noaux_tc' && method !== 'group_limited_greedy')
    fields.refuse('UNSUPPORTED', 'topk_method', 'greedy, group_limited_greedy or noaux_tc', NO_SUCH_STEP);
  const count = fields.optionalInteger('n_group') ?? 1;
  const used = fields.optionalInteger('topk_group') ?? 1;
  return count === 1 ? undefined : { count, used, best: method === 'noaux_tc' ? 2 : 1 };
}

/**
 * Reads the metadata of a GGUF file. Its list of tensors shows which biases there are, and whether the head is a tensor
 * of its own.
 *
 * @param readTensor - reads the small F32 tensors that hold frequency factors
 * @throws {RopewalkError} FORMAT for a key that is missing or malformed; UNSUPPORTED for what is not computed here
 */
export function configFromGguf(
  file: GgufFile,
  readTensor: (name: string) => Float32Array | undefined = () => undefined,
  where = 'gguf',
): DecoderConfig {
  const keys: Fields = new Fields(file.metadata, where);
  const a = keys.text('general.architecture');
  const hasExperts = (keys.optionalInteger(`${a}.expert_count`, 0, MAX_EXPERTS) ?? 0) > 0;
  const families = Object.values(FAMILIES)
    .flatMap((one) =>
      [one, one.withoutExperts, one.whenBidirectional].flatMap((other) => [other, other?.withoutStates]),
    )
    .filter((one) => one !== undefined);
  const named = families.filter((one) => one.gguf === a);
  if (named.length === 0)
    return refuseArchitecture(keys, 'general.architecture', a, [
      ...new Set(families.flatMap((one) => (one.ggufApart ? [] : one.gguf))),
    ]);
  const family = named.find(({ experts }) => (experts !== undefined) === hasExperts);
  if (!family && hasExperts) return keys.refuse('UNSUPPORTED', `${a}.expert_count`, 'none', NO_SUCH_STEP);
  if (!family) return keys.refuse('FORMAT', `${a}.expert_count`, 'the number of experts');
  if (family.ggufApart) return keys.fail('UNSUPPORTED', 'general.architecture', `${a}: ${family.ggufApart}`);
  if (file.bigEndian) fail('UNSUPPORTED', where, BIG_ENDIAN);
  refuseSteps(keys, GGUF_OTHER_STEPS, `${a}.`);
  // The last blocks of some files predict further tokens. Generation does not need them.
  const blocks = keys.integer(`${a}.block_count`, 1, MAX_LAYERS);
  const furtherLayers = keys.optionalInteger(`${a}.nextn_predict_layers`, 0, blocks - 1) ?? 0;
  const numLayers = blocks - furtherLayers;
  const perLayer: PerLayer = (key) => sameInAllLayers(keys, `${a}.${key}`, blocks);
  const listed = (key: string): readonly number[] | undefined =>
    family.sizesByLayer && Array.isArray(keys.raw(`${a}.${key}`)) ? listOf(keys, `${a}.${key}`, blocks) : undefined;
  // Layers without attention have 0.
  const kvHeads = (): number | undefined =>
    listed('attention.head_count_kv')?.[0] ??
    sameInAllLayers(keys, `${a}.attention.head_count_kv`, blocks, family.recurrent !== undefined);
  const numHeads = perLayer('attention.head_count') ?? keys.integer(`${a}.attention.head_count`);
  const eos = tokenId(keys, 'tokenizer.ggml.eos_token_id');
  const shapeOf = (name: string): readonly number[] | undefined =>
    file.tensors.find((tensor) => tensor.name === name)?.shape;
  const has = (name: string): boolean => shapeOf(name) !== undefined;
  const latent = family.latent ? latentFromGguf(keys, a, numHeads, perLayer) : undefined;
  const split = keys.has(`${a}.attention.key_length_mla`) ? '_mla' : '';
  const headDim = keys.optionalInteger(`${a}.attention.key_length${split}`, 1, MAX_WIDTH);
  const feedForward = (): number =>
    listed('feed_forward_length')?.[0] ??
    sameInAllLayers(keys, `${a}.feed_forward_length`, blocks, family.singleBlocks) ??
    keys.integer(`${a}.feed_forward_length`, 1, MAX_WIDTH);
  const experts = family.experts && expertsFromGguf(keys, a, family, numLayers, { perLayer, feedForward, has });
  const eps = `${a}.attention.layer_norm_${family.norm ? '' : 'rms_'}epsilon`;
  const ropes: RopeReader = (context) =>
    family.singleBlocks
      ? withoutRope(blocksFromGguf(keys, a, blocks))
      : gguf.ropeFromGguf({ metadata: file.metadata, tensors: file.tensors, readTensor }, { where, context });
  // llama.cpp takes biases of q, k and v in every architecture, each where the file has it.
  const biases = (group: BiasGroup): boolean | 'stored' => {
    const rule = family.biases?.[group];
    return (group !== 'qkv' && group !== 'conv' && (rule === 'always' || rule?.[1] === true)) || 'stored';
  };
  const parallel = family.parallel;
  const flag = keys.optionalFlag(`${a}.use_parallel_residual`);
  const vocabSize = shapeOf('token_embd.weight')?.[1] ?? keys.integer(`${a}.vocab_size`, 1, MAX_WIDTH);
  return finish(keys, ropes, {
    architecture: a,
    source: 'gguf',
    family,
    vocabSize,
    numLayers,
    furtherLayers,
    hiddenSize: keys.integer(`${a}.embedding_length`, 1, MAX_WIDTH),
    numHeads,
    numKvHeads: latent ? numHeads : (kvHeads() ?? numHeads),
    headDim: latent ? latent.nope + latent.rope : headDim,
    valueDim: keys.optionalInteger(`${a}.attention.value_length${split}`, 1, MAX_WIDTH),
    intermediateSize: denseWidth(family, experts, feedForward),
    activation: family.activation ?? 'silu',
    normEps: epsOf(keys, eps),
    maxContext: keys.integer(`${a}.context_length`, 1, 2 ** 31),
    tiedHead: family.ggufHead ? family.ggufHead === 'tied' : !has('output.weight'),
    biases: {
      qkv: biases('qkv'),
      output: biases('output'),
      mlp: biases('mlp'),
      conv: biases('conv'),
      ssmIn: biases('ssmIn'),
      ssmOut: biases('ssmOut'),
      head: family.ggufHeadBias ? 'stored' : false,
    },
    qkNorm:
      family.qkNorm === 'rotated'
        ? experts?.count !== 128 // llama.cpp knows Maverick by it
        : family.qkNormFlag
          ? has('blk.0.attn_q_norm.weight')
          : family.qkNorm !== undefined,
    chunk: family.chunked && keys.raw(`${a}.attention.sliding_window`) !== 0 ? LLAMA4_CHUNK : undefined,
    // For families with one norm, llama.cpp decides by whether the file has a second one.
    parallel:
      parallel !== undefined &&
      (parallel.when === 'always' ||
        (parallel.norms === 1
          ? !has('blk.0.ffn_norm.weight')
          : keys.need(flag, `${a}.use_parallel_residual`, 'true or false'))),
    headless: false,
    xielu: family.activation === 'xielu' ? xieluFromGguf(keys, numLayers) : undefined,
    bidirectional: family.encoder === true || keys.optionalFlag(`${a}.attention.causal`) === false,
    tokenTypes: shapeOf('token_types.weight')?.[1] ?? 0,
    bothSides: family.bothSides && sideOf(keys.optionalInteger(`${a}.attention.sliding_window`) ?? family.bothSides),
    latent,
    experts,
    recurrent: recurrentFromGguf(keys, a, family, has),
    perLayerWidth: family.altup
      ? PER_LAYER_WIDTH
      : family.layerEnd
        ? keys.integer(`${a}.embedding_length_per_layer_input`, 0, MAX_WIDTH)
        : 0,
    perLayerVocab: vocabSize,
    altup: family.altup && { ...ALTUP, sparsity: usualSparsity(numLayers) },
    sizesOf(layers, common) {
      for (const one of family.altup ? [] : ['', '_swa']) {
        const size = keys.integer(`${a}.attention.key_length${one}`);
        if (keys.integer(`${a}.attention.value_length${one}`) !== size)
          keys.refuse('FORMAT', `${a}.attention.value_length${one}`, `${size}, as key_length${one}`);
      }
      const [kv, widths] = [listed('attention.head_count_kv'), listed('feed_forward_length')];
      const first = family.altup
        ? OWN_KEYS
        : numLayers - (keys.optionalInteger(`${a}.attention.shared_kv_layers`, 0, numLayers - 2) ?? 0);
      return layers.map(({ window }, n) => ({
        numKvHeads: kv?.[n] ?? common.numKvHeads,
        intermediateSize: widths?.[n] ?? common.intermediateSize,
        sharesWith: n < first ? undefined : first - (window === undefined ? 1 : 2),
        valuesAreKeys: n < first && !has(`blk.${n}.attn_v.weight`) && !has(`blk.${n}.attn_qkv.weight`),
      }));
    },
    bosToken: tokenId(keys, 'tokenizer.ggml.bos_token_id'),
    eosTokens: eos === undefined ? [] : [eos],
    multipliersOf: (sizes) => (family.multipliers ? MULTIPLIERS[family.multipliers].gguf(keys, a, sizes) : {}),
    windowSaidBy: `${a}.attention.sliding_window`,
    notesOf: (layers) => {
      const ignored = GGUF_IGNORED.filter(([, readBy]) => !readBy.includes(family.multipliers)).map(([key]) => key);
      if (!family.bothSides && layers.every(({ window }) => window === undefined))
        ignored.push('attention.sliding_window');
      if (family.altup) ignored.push(...unusualKeys(keys, a, numLayers));
      const notes = ignored
        .map((key) => `${a}.${key}`)
        .filter((key) => keys.has(key))
        .map((key) => `${key} = ${String(keys.raw(key))} is not applied: llama.cpp does not read it for ${a}.`);
      const unused = file.tensors.find(({ name }) => family.ggufUnused?.test(name));
      if (unused) notes.push(`${unused.name} is not applied: llama.cpp loads it for ${a} and does not use it.`);
      return notes;
    },
  });
}

/** Names the keys of Gemma 3n with which llama.cpp's code does not agree. */
function unusualKeys(keys: Fields, a: string, numLayers: number): string[] {
  const usual: Readonly<Record<string, readonly number[]>> = {
    'altup.active_idx': [ALTUP.active],
    'attention.shared_kv_layers': [Math.max(0, numLayers - OWN_KEYS)],
    activation_sparsity_scale: usualSparsity(numLayers).map(normalQuantile),
  };
  return Object.keys(usual).filter((key) => {
    const given = [keys.raw(`${a}.${key}`) ?? usual[key]!].flat() as number[];
    return given.length !== usual[key]!.length || given.some((value, n) => Math.abs(value - usual[key]![n]!) > 1e-3);
  });
}

const BIG_ENDIAN = 'the file is big-endian, which is not read. Convert it with gguf-py/gguf_convert_endian.';

/**
 * Reads the sizes of latent attention. In its newer form, k and v of all heads are one latent, and the other counts
 * follow from it: llama.cpp sizes its cache by them.
 *
 * @see ggml-org/llama.cpp@de3ff815 src/models/deepseek2.cpp
 */
function latentFromGguf(keys: Fields, a: string, numHeads: number, perLayer: PerLayer): LatentConfig {
  const rope = keys.integer(`${a}.rope.dimension_count`, 1, MAX_WIDTH);
  const rank = keys.integer(`${a}.attention.kv_lora_rank`, 1, MAX_WIDTH);
  const one = keys.has(`${a}.attention.key_length_mla`);
  const follows = one ? { key_length: rank + rope, value_length: rank, head_count_kv: 1 } : { head_count_kv: numHeads };
  const next = 'It does not fit the latent: convert the model again.';
  for (const [name, count] of Object.entries(follows))
    if ((perLayer(`attention.${name}`) ?? count) !== count)
      keys.refuse('FORMAT', `${a}.attention.${name}`, String(count), next);
  return {
    rank,
    queryRank: keys.optionalInteger(`${a}.attention.q_lora_rank`, 0, MAX_WIDTH) || undefined,
    nope: keys.integer(`${a}.attention.${one ? 'key_length_mla' : 'key_length'}`, rope + 1, MAX_WIDTH) - rope,
    rope,
  };
}

/** Reads the numbers of each layer's xIELU: a number for all layers, or one for each. */
function xieluFromGguf(keys: Fields, numLayers: number): XieluConfig[] {
  const listOf = (key: string): readonly number[] => {
    const one = keys.raw(`xielu.${key}`);
    const list =
      typeof one === 'number' ? new Array<number>(numLayers).fill(one) : (keys.optionalNumbers(`xielu.${key}`) ?? []);
    return list.length >= numLayers ? list : keys.refuse('FORMAT', `xielu.${key}`, `${numLayers} numbers`);
  };
  const [p, n, beta, eps] = ['alpha_p', 'alpha_n', 'beta', 'eps'].map(listOf);
  return Array.from({ length: numLayers }, (_, l) => {
    return { alphaP: p![l]!, alphaN: n![l]!, beta: beta![l]!, eps: eps![l]! };
  });
}

function recurrentFromGguf(
  keys: Fields,
  a: string,
  { recurrent: kind, ggufTiled }: Family,
  has: (tensor: string) => boolean,
): RecurrentConfig | undefined {
  const size = (key: string, most = MAX_HEADS): number => keys.integer(`${a}.${key}`, 1, most);
  if (kind === undefined) return undefined;
  if (kind === 'conv') return { kind, width: size('shortconv.l_cache') };
  const heads = size('ssm.time_step_rank');
  const valueDim = size('ssm.inner_size', MAX_WIDTH) / heads;
  if (kind === 'ssm')
    return checkStateSpace(keys, {
      kind,
      width: size('ssm.conv_kernel'),
      groups: size('ssm.group_count'),
      heads,
      stateDim: size('ssm.state_size'),
      headDim: valueDim,
      limits: [0, Number.POSITIVE_INFINITY],
      norm: has('blk.0.ssm_norm.weight') ? 'after-gate' : undefined,
    });
  if (!Number.isInteger(valueDim)) keys.refuse('FORMAT', `${a}.ssm.inner_size`, `a multiple of the ${heads} heads`);
  return checkDelta(keys, {
    kind,
    width: size('ssm.conv_kernel'),
    keyHeads: size('ssm.group_count'),
    heads,
    keyDim: size('ssm.state_size'),
    valueDim,
    tiled: ggufTiled === true,
  });
}

/** Lists the layers of a model whose layers are one block, by llama.cpp's rule. */
function blocksFromGguf(keys: Fields, a: string, blocks: number): string[] {
  const of = (key: string): readonly number[] => {
    if (Array.isArray(keys.raw(`${a}.${key}`))) return listOf(keys, `${a}.${key}`, blocks);
    return new Array<number>(blocks).fill(keys.integer(`${a}.${key}`, 0, MAX_WIDTH));
  };
  const [heads, widths] = [of('attention.head_count_kv'), of('feed_forward_length')];
  return heads.map((count, n) => (widths[n]! > 0 ? BLOCKS.mlp : count > 0 ? FULL : BLOCKS.mamba));
}

function expertsFromGguf(
  keys: Fields,
  a: string,
  { experts }: Family,
  numLayers: number,
  { perLayer, feedForward, has }: { perLayer: PerLayer; feedForward: () => number; has: (tensor: string) => boolean },
): ExpertConfig {
  const rules = experts!;
  const used = perLayer('expert_used_count') ?? keys.integer(`${a}.expert_used_count`, 1, MAX_EXPERTS);
  const width =
    perLayer('expert_feed_forward_length') ??
    (rules.ggufWidth === 'whole' ? feedForward() : Math.floor(feedForward() / used));
  const own = keys.optionalInteger(`${a}.expert_shared_feed_forward_length`, 0, MAX_WIDTH) || undefined;
  const counted = (): number => (keys.optionalInteger(`${a}.expert_shared_count`, 0, MAX_EXPERTS) ?? 0) * width;
  const sharedWidth =
    rules.shared === 'gated'
      ? (own ?? feedForward())
      : rules.ggufShared === 'width'
        ? (own ?? 0)
        : rules.ggufShared
          ? width
          : counted();
  const gate = keys.optionalInteger(`${a}.expert_gating_func`, 0, 3) || undefined;
  if (gate === 3) keys.refuse('UNSUPPORTED', `${a}.expert_gating_func`, '1 (softmax) or 2 (sigmoid)', NO_SUCH_STEP);
  if (rules.scalesInput && used !== 1) keys.refuse('UNSUPPORTED', `${a}.expert_used_count`, '1', NO_SUCH_STEP);
  const { deepseek } = rules;
  const count = keys.optionalInteger(`${a}.expert_group_count`, 0, MAX_EXPERTS) ?? 0;
  const scale = deepseek ? keys.optionalNumber(`${a}.expert_weights_scale`) || 1 : 1;
  const dense =
    deepseek || a === 'lfm2moe' ? (keys.optionalInteger(`${a}.leading_dense_block_count`, 0, MAX_LAYERS) ?? 0) : 0;
  const step = keys.optionalInteger(`${a}.interleave_moe_layer_step`) ?? 1;
  return checkExperts(keys, `${a}.expert_used_count`, {
    count: keys.integer(`${a}.expert_count`, 1, MAX_EXPERTS),
    used,
    width,
    sharedWidth: rules.shared ? sharedWidth : 0,
    latent: keys.optionalInteger(`${a}.moe_latent_size`, 0, MAX_WIDTH) || undefined,
    route: {
      gate: deepseek && gate ? (gate === 2 ? 'sigmoid' : 'softmax') : rules.gate,
      normalize: (deepseek ? keys.optionalFlag(`${a}.expert_weights_norm`) : undefined) ?? rules.normalize,
      scale,
      groups: count > 1 ? { count, used: keys.integer(`${a}.expert_group_used_count`, 1, count), best: 2 } : undefined,
    },
    layers: Array.from({ length: numLayers }, (_, n) => {
      if (rules.ggufDense) return has(`blk.${n}.ffn_gate_inp.weight`);
      return n >= dense && (n + 1) % step === 0;
    }),
  });
}

function checkExperts(fields: Fields, usedKey: string, experts: ExpertConfig): ExpertConfig {
  const { count, used, route } = experts;
  if (route.gate === 'sparsemixer' && used !== 2) fields.refuse('UNSUPPORTED', usedKey, '2', NO_SUCH_STEP);
  if (route.jitter !== undefined && route.jitter < 0) fields.refuse('FORMAT', 'router_jitter_noise', 'a number >= 0');
  const of = route.groups ? (count / route.groups.count) * route.groups.used : count;
  if (route.groups && count % route.groups.count !== 0)
    refuse('FORMAT', `${fields.where}: experts`, `a multiple of the ${route.groups.count} groups`, count);
  if (used > of) refuse('FORMAT', fields.path(usedKey), `at most ${of}, the experts to choose from`, used);
  return experts;
}

/** Reads the width of dense layers. Without any, it is the width of an expert. */
function denseWidth(family: Family, experts: ExpertConfig | undefined, read: () => number): number {
  return !family.experts?.beside && experts?.layers.every((is) => is) ? experts.width : read();
}

/** Reads a number, or a list with the same number for every layer; undefined when the key is missing. */
function sameInAllLayers(keys: Fields, key: string, numLayers: number, zeros = false): number | undefined {
  if (!Array.isArray(keys.raw(key))) return keys.optionalInteger(key, 1, MAX_WIDTH);
  const list = listOf(keys, key, numLayers);
  const some = list.find((n) => n !== 0);
  if (some === undefined || list.some((n) => n !== some && !(zeros && n === 0)))
    keys.refuse('UNSUPPORTED', key, 'the same number in all layers', 'Take another model.');
  return some;
}

function listOf(keys: Fields, key: string, numLayers: number): readonly number[] {
  const list = keys.integers(key, 0, MAX_WIDTH);
  if (list.length === numLayers) return list;
  return refuse('FORMAT', keys.path(key), `${numLayers} integers, one for each layer`, list.length);
}

/** Reads the id of a token. 2^32 − 1, which is C's −1, means none. */
export function tokenId(keys: Fields, key: string): number | undefined {
  const id = keys.optionalInteger(key, 0, 2 ** 32 - 1);
  return id === 2 ** 32 - 1 ? undefined : id;
}

function epsOf(fields: Fields, key: string): number {
  const eps = fields.number(key);
  return eps >= 0 && eps <= 1 ? eps : fields.refuse('FORMAT', key, 'a number in [0, 1]');
}

interface MultiplierReaders {
  json(fields: Fields, sizes: Sizes): Multipliers;
  gguf(keys: Fields, a: string, sizes: Sizes): Multipliers;
}

/** Reads the scales and caps of each {@link Family.multipliers}, from config.json and from GGUF keys. */
const MULTIPLIERS: Readonly<Record<NonNullable<Family['multipliers']>, MultiplierReaders>> = {
  gemma: {
    json: (_fields, { hiddenSize }) => ({ embeddingScale: Math.sqrt(hiddenSize) }),
    gguf: (_keys, _a, { hiddenSize }) => ({ embeddingScale: Math.sqrt(hiddenSize) }),
  },
  gemma2: {
    json: gemma,
    gguf: (keys, a, sizes) => ({
      ...gemmaScales(sizes, 46),
      attentionSoftcap: cap(keys, `${a}.attn_logit_softcapping`, 50),
      logitSoftcap: cap(keys, `${a}.final_logit_softcapping`, 30),
    }),
  },
  gemma3: {
    json: gemma,
    gguf: (keys, a, sizes) => ({
      ...gemmaScales(sizes, 62),
      logitSoftcap: cap(keys, `${a}.final_logit_softcapping`, 0),
    }),
  },
  gemma3n: {
    json: (fields, sizes) => {
      const given = orNull(fields, 'final_logit_softcapping', GEMMA3N_CAP, (key) => fields.optionalPositive(key));
      return gemma4(sizes, given);
    },
    gguf: (_keys, _a, sizes) => gemma4(sizes, GEMMA3N_CAP),
  },
  gemma4: {
    json: (fields, sizes) => gemma4(sizes, cap(fields, 'final_logit_softcapping', 0)),
    gguf: (keys, a, sizes) => gemma4(sizes, cap(keys, `${a}.final_logit_softcapping`, 0)),
  },
  llama4: {
    json(fields) {
      const scale =
        (fields.optionalFlag('attn_temperature_tuning') ?? true) && (fields.optionalNumber('attn_scale') ?? 0.1);
      return scale
        ? { temperature: { scale, context: fields.optionalInteger('floor_scale', 1) ?? LLAMA4_CHUNK, still: true } }
        : {};
    },
    gguf: (keys, a) =>
      keys.raw(`${a}.attention.sliding_window`) === 0
        ? {}
        : { temperature: { scale: 0.1, context: LLAMA4_CHUNK, still: true } },
  },
  granite: {
    json: (fields) => ({
      attentionScale: fields.optionalNumber('attention_multiplier') ?? 1,
      embeddingScale: fields.optionalNumber('embedding_multiplier') ?? 1,
      residualScale: fields.optionalNumber('residual_multiplier') ?? 1,
      logitScale: 1 / (fields.optionalPositive('logits_scaling') ?? 1),
    }),
    gguf: (keys, a) => ({
      attentionScale: keys.optionalNumber(`${a}.attention.scale`) || undefined,
      embeddingScale: keys.optionalNumber(`${a}.embedding_scale`) || undefined,
      residualScale: keys.optionalNumber(`${a}.residual_scale`) || undefined,
      logitScale: 1 / (keys.optionalNumber(`${a}.logit_scale`) || 1),
    }),
  },
  minicpm: {
    json: (fields, { hiddenSize, numLayers }) => ({
      embeddingScale: fields.optionalNumber('scale_emb') ?? 1,
      residualScale: (fields.optionalNumber('scale_depth') ?? 1) / Math.sqrt(numLayers),
      logitScale: (fields.optionalPositive('dim_model_base') ?? 1) / hiddenSize,
    }),
    // These are llama.cpp's defaults. The last is the inverse of what its converter writes.
    gguf: (keys, a, { hiddenSize, numLayers }) => ({
      embeddingScale: keys.optionalNumber(`${a}.embedding_scale`) ?? 12,
      residualScale: keys.optionalNumber(`${a}.residual_scale`) ?? 1.4 / Math.sqrt(numLayers),
      logitScale: 1 / (keys.optionalPositive(`${a}.logit_scale`) ?? 256 / hiddenSize),
    }),
  },
  cohere: {
    json: (fields) => ({ logitScale: fields.optionalNumber('logit_scale') ?? 0.0625 }),
    gguf: (keys, a) => ({ logitScale: keys.number(`${a}.logit_scale`) || undefined }), // 0: none
  },
  falcon: {
    json: (fields, { headDim }) => {
      const one = (key: string): number => fields.optionalNumber(key) ?? 1;
      const several = (key: string, count: number): readonly number[] => {
        const list = fields.optionalNumbers(key) ?? new Array<number>(count).fill(1);
        return list.length === count ? list : fields.refuse('FORMAT', key, `${count} numbers`);
      };
      const [gate, down] = several('mlp_multipliers', 2) as [number, number];
      return {
        attentionScale: one('key_multiplier') / Math.sqrt(headDim),
        embeddingScale: one('embedding_multiplier'),
        logitScale: one('lm_head_multiplier'),
        branchScales: {
          attentionIn: one('attention_in_multiplier'),
          attentionOut: one('attention_out_multiplier'),
          ssmIn: one('ssm_in_multiplier'),
          ssmOut: one('ssm_out_multiplier'),
          ssm: several('ssm_multipliers', 5),
          gate,
          down,
        },
      };
    },
    gguf: () => ({}),
  },
  temperature: {
    json: (fields) => {
      const rope = fields.optionalObject('rope_parameters') ?? fields.optionalObject('rope_scaling');
      return temperature(rope?.optionalNumber('llama_4_scaling_beta'), () =>
        rope!.integer('original_max_position_embeddings', 1),
      );
    },
    gguf: (keys, a) =>
      temperature(keys.optionalNumber(`${a}.attention.temperature_scale`), () => {
        if (a !== 'mistral3') return keys.integer(`${a}.attention.temperature_length`, 1);
        const original = keys.optionalInteger(`${a}.rope.scaling.original_context_length`);
        return original ?? keys.integer(`${a}.context_length`, 1);
      }),
  },
};

/** The default of config.json, and llama.cpp's cap for all files. */
const GEMMA3N_CAP = 30;

function gemma(fields: Fields, { hiddenSize }: Sizes): Multipliers {
  return {
    attentionScale: 1 / Math.sqrt(fields.optionalPositive('query_pre_attn_scalar') ?? 256),
    attentionSoftcap: cap(fields, 'attn_logit_softcapping', 0),
    logitSoftcap: cap(fields, 'final_logit_softcapping', 0),
    embeddingScale: Math.sqrt(hiddenSize),
  };
}

function gemma4({ hiddenSize }: Sizes, logitSoftcap: number | undefined): Multipliers {
  return { attentionScale: 1, embeddingScale: Math.sqrt(hiddenSize), logitSoftcap };
}

/** The file does not have query_pre_attn_scalar: llama.cpp knows the largest model by its number of layers. */
function gemmaScales({ numLayers, hiddenSize, numHeads, headDim }: Sizes, largest: number): Multipliers {
  const scalar = numLayers === largest ? hiddenSize / numHeads : headDim;
  return { attentionScale: 1 / Math.sqrt(scalar), embeddingScale: Math.sqrt(hiddenSize) };
}

/** Reads a soft cap; 0 means none. */
function cap(fields: Fields, key: string, missing: number): number | undefined {
  const given = fields.optionalNumber(key) ?? missing;
  if (given < 0) fields.refuse('FORMAT', key, 'a number >= 0');
  return given || undefined;
}

function temperature(scale: number | undefined, context: () => number): Multipliers {
  return { temperature: scale ? { scale, context: context() } : undefined };
}

/**
 * Computes DeepSeek's attention scale: YaRN's magnitude for all dimensions of a head, squared, over the square root of
 * their number. In GGUF it comes from the RoPE that llama.cpp executes: with attn_factor A and factor f, it is A·(1 +
 * 0.1·ln f)·(1 + yarn_log_multiplier·ln f).
 *
 * @see ggml-org/llama.cpp@de3ff815 src/models/deepseek2.cpp; deepseek-ai/DeepSeek-V3 modeling_deepseek.py
 */
function latentScale(
  fields: Fields,
  { source, architecture }: Pick<Draft, 'source' | 'architecture'>,
  headDim: number,
  rope: RopeSpec,
): number {
  let m = 1;
  if (source === 'gguf') {
    const { scaling } = rope;
    const yarn = scaling?.kind === 'yarn';
    const factor = yarn || scaling?.kind === 'linear' ? scaling.factor : 1;
    const multiplier = fields.optionalNumber(`${architecture}.rope.scaling.yarn_log_multiplier`) ?? 0;
    // YaRN's magnitude is A·(1 + 0.1·ln f) already.
    const magnitude = frequenciesOf(rope).attentionFactor * (yarn ? 1 : 1 + 0.1 * Math.log(factor));
    m = magnitude * (1 + multiplier * Math.log(factor));
  } else {
    const scaling = fields.optionalObject('rope_parameters') ?? fields.optionalObject('rope_scaling');
    const factor = scaling?.optionalPositive('factor') ?? 1;
    const type = scaling?.optionalText('rope_type') ?? scaling?.optionalText('type');
    if (type === 'yarn' && factor > 1)
      m = 1 + 0.1 * (scaling!.optionalNumber('mscale_all_dim') ?? 0) * Math.log(factor);
  }
  return (m * m) / Math.sqrt(headDim);
}

function refuseArchitecture(fields: Fields, key: string, name: string, known: readonly string[]): never {
  const plain = name.replace(/_text$/, '').replaceAll(/[-_]/g, '');
  const missing = MISSING.find(([, names]) => names.split(' ').includes(plain))?.[0];
  const why = missing ?? 'it has no row among the families of this decoder';
  return fields.fail('UNSUPPORTED', key, `${show(name)} is not computed here: ${why}. Known are ${known.join(', ')}.`);
}

function refuseSteps(
  fields: Fields,
  steps: Readonly<Record<string, readonly unknown[]>>,
  prefix: string,
  computed: readonly string[] = [],
): void {
  for (const [key, neutral] of Object.entries(steps)) {
    const value = fields.raw(prefix + key);
    // null switches a field off.
    if (value !== undefined && value !== null && !neutral.includes(value) && !computed.includes(key))
      fields.refuse('UNSUPPORTED', prefix + key, 'none', NO_SUCH_STEP);
  }
}

/** The settings of a file before RoPE is read. */
type Draft = Omit<DecoderConfig, 'headDim' | 'valueDim' | 'layers' | 'layerSizes' | 'notes' | keyof Multipliers> & {
  /** Default: RoPE's, or the hidden size over the heads. */
  readonly headDim: number | undefined;
  /** Default: the size of a head of q and k. */
  readonly valueDim: number | undefined;
  readonly multipliersOf: (sizes: Sizes) => Multipliers;
  /** The window of sliding layers on each side, the token itself included. */
  readonly bothSides: number | undefined;
  /** The fields that decide on windows, for messages. */
  readonly windowSaidBy: string;
  readonly notesOf?: (layers: ModelRope['layers']) => readonly string[];
  /** Is called for families whose layers differ. `model` has the sizes of the others. */
  readonly sizesOf: (layers: ModelRope['layers'], model: ModelShare) => readonly LayerShare[];
};

const DENSE =
  'Attention sees all tokens: the indexer, which chooses index_topk of them, is left out. Texts that are no longer ' +
  'than that are the same.';

const blockOf = (type: string | undefined) => ({
  attends: type === FULL,
  feedForward: type === BLOCKS.mlp || type === BLOCKS.moe,
});

/** Reads RoPE, and checks the rules that hold between fields. */
function finish(
  fields: Fields,
  read: RopeReader,
  { windowSaidBy, multipliersOf, notesOf, sizesOf, bothSides, headDim: given, valueDim, ...draft }: Draft,
): DecoderConfig {
  const { numLayers, numHeads, maxContext, hiddenSize, latent, family } = draft;
  // The last answer is kept, because sessions of the same size share tables by the identity of their specs.
  let last: { context: number; rope: ReturnType<RopeReader> } | undefined;
  const ropes: RopeReader = (context) => {
    if (last?.context === context) return last.rope;
    const rope = read(context);
    last = { context, rope: { ...rope, layers: rope.layers.slice(0, numLayers) } };
    return last.rope;
  };
  const { layers, notes: ropeNotes } = ropes(maxContext);
  const isRecurrent = (layerType: string | undefined): boolean =>
    draft.recurrent !== undefined && RECURRENT[draft.recurrent.kind].includes(layerType);
  const windowOf = ({ layerType, window }: ModelRope['layers'][number]): number | undefined =>
    layerType === SLIDING ? (bothSides ?? window) : window;
  for (const one of layers) {
    const { layer, layerType } = one;
    const window = windowOf(one);
    if (draft.bidirectional && (draft.recurrent || (window !== undefined && bothSides === undefined)))
      fail(
        'UNSUPPORTED',
        `${fields.where}: layer ${layer}`,
        `its window or state does not go with attention to later tokens. ${NO_SUCH_STEP}`,
      );
    const full = [
      FULL,
      'attention',
      ...(family.sparse ? ['indexed_attention'] : []),
      ...(family.chunked ? CHUNKED : []),
      ...(family.stateBeside ? ['hybrid'] : []),
      ...(family.singleBlocks ? [BLOCKS.mlp, BLOCKS.moe] : []),
    ];
    if (layerType === undefined || full.includes(layerType) || window !== undefined) continue;
    if (isRecurrent(layerType)) continue;
    const where = `${fields.where}: layer ${layer}`;
    if (layerType !== SLIDING) fail('UNSUPPORTED', where, `only ${FULL} and ${SLIDING} are computed, not ${layerType}`);
    fail('FORMAT', where, `it has sliding attention but no window. Check ${windowSaidBy}.`);
  }
  const ofRope = latent ? undefined : layers.find(({ rope }) => rope)?.rope?.headDim;
  const layerSizes = family.sizesByLayer
    ? sizesOf(layers, draft).map((one, n): LayerSizes => {
        const size = layers[n]!.rope?.headDim ?? given ?? 0;
        return { ...one, headDim: size, valueDim: size };
      })
    : undefined;
  const largest = (key: 'numKvHeads' | 'headDim' | 'intermediateSize'): number | undefined =>
    layerSizes && Math.max(...layerSizes.map((one) => one[key]));
  const headDim = largest('headDim') ?? given ?? ofRope ?? hiddenSize / numHeads;
  if (!Number.isInteger(headDim) || headDim < 1 || headDim > MAX_WIDTH)
    refuse('FORMAT', `${fields.where}: head_dim`, `an integer in [1, ${MAX_WIDTH}]`, headDim);
  for (const { numKvHeads } of layerSizes ?? [draft]) {
    const next = 'The file is damaged or forged.';
    if (numHeads % numKvHeads !== 0)
      refuse('FORMAT', `${fields.where}: heads`, `a multiple of the ${numKvHeads} key/value heads`, numHeads, next);
  }
  for (const [n, own] of layerSizes?.entries() ?? []) {
    const from = layerSizes![own.sharesWith ?? n]!;
    if (from.numKvHeads === own.numKvHeads && from.headDim === own.headDim) continue;
    const sizes = [own, from].map((one) => `${one.numKvHeads} key/value heads of ${one.headDim}`);
    const sentence = `it has ${sizes[0]}, and layer ${own.sharesWith}, whose keys it reads, ${sizes[1]}`;
    fail('FORMAT', `${fields.where}: layer ${n}`, sentence);
  }
  const rotated = latent?.rope ?? headDim;
  for (const { rope, layer } of layers)
    if (rope && !layerSizes && rope.headDim !== rotated)
      refuse('FORMAT', `${fields.where}: head_dim of layer ${layer}`, String(rotated), rope.headDim);
  const multipliers = multipliersOf({ numLayers, hiddenSize, numHeads, headDim });
  const scale = latent ? latentScale(fields, draft, headDim, layers[0]!.rope!) : 1 / Math.sqrt(headDim);
  return Object.freeze({
    ...draft,
    numKvHeads: largest('numKvHeads') ?? draft.numKvHeads,
    intermediateSize: largest('intermediateSize') ?? draft.intermediateSize,
    headDim,
    valueDim: layerSizes ? headDim : (valueDim ?? headDim),
    layerSizes,
    attentionScale: multipliers.attentionScale ?? scale,
    attentionSoftcap: multipliers.attentionSoftcap,
    embeddingScale: multipliers.embeddingScale ?? 1,
    residualScale: multipliers.residualScale ?? 1,
    logitScale: multipliers.logitScale ?? 1,
    logitSoftcap: multipliers.logitSoftcap,
    temperature: multipliers.temperature,
    branchScales: multipliers.branchScales,
    layers: (context: number) =>
      ropes(context).layers.map((layer) => ({
        rope: layer.rope,
        window: windowOf(layer),
        ...(isRecurrent(layer.layerType) && { recurrent: true }),
        ...(family.stateBeside && { recurrent: true, attends: true }),
        ...(family.singleBlocks && blockOf(layer.layerType)),
        ...(draft.chunk && layer.rope && layer.layerType !== FULL && { chunk: draft.chunk }),
      })),
    notes: [...(notesOf?.(layers) ?? []), ...(family.sparse ? [DENSE] : []), ...ropeNotes],
  });
}
