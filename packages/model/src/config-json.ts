/**
 * Writes {@link DecoderConfig} as config.json with transformers' names. It is configFromJson backwards, for models that
 * come from a GGUF file.
 *
 * @module
 * @see huggingface/transformers@v5.18.0 src/transformers/models/NAME/configuration_NAME.py
 */
import { convertRope } from '@ropewalk/dialects';
import { frequenciesOf, type RopeSpec, RopewalkError } from 'ropewalk';
import { fail } from 'ropewalk/backend';
import { countField } from './config.js';
import { ENCODER_UNWRITTEN, stepOf, UNWRITTEN } from './config-gguf.js';
import { type Activation, type BiasGroup, FAMILIES, type Family } from './families.js';
import type { DecoderConfig, ExpertConfig, LayerConfig } from './types.js';

type Json = Record<string, unknown>;

/** The settings of config.json that {@link DecoderConfig} does not have. */
export interface ConfigNames {
  hasBias(group: BiasGroup): boolean;
  readonly padToken: number | undefined;
}

/** The classes whose names are not the model_type in capitals. */
const CLASSES: Readonly<Record<string, string>> = {
  ernie4_5_moe: 'Ernie4_5_Moe',
  gpt_neox: 'GPTNeoX',
  granitemoe: 'GraniteMoe',
  granitemoeshared: 'GraniteMoeShared',
  hy_v3: 'HYV3',
  hunyuan_v1_dense: 'HunYuanDenseV1',
  hunyuan_v1_moe: 'HunYuanMoEV1',
  minimax_m2: 'MiniMaxM2',
  minicpm: 'MiniCPM',
  qwen2_vl: 'Qwen2VL',
  qwen3_vl: 'Qwen3VL',
  qwen3_vl_moe: 'Qwen3VLMoe',
  smollm3: 'SmolLM3',
  stablelm: 'StableLm',
  ernie4_5: 'Ernie4_5',
};
const EPS: Readonly<Record<string, string>> = { starcoder2: 'norm_epsilon', lfm2: 'norm_eps', lfm2_moe: 'norm_eps' };
/** The families whose classes choose sliding layers if layer_types does not. */
const SLIDES = 'llama4 gemma2 gemma3 gemma3n gemma4 cohere2 olmo3 gpt_oss exaone4 exaone_moe'.split(' ');
const ACTIVATIONS: Readonly<Record<Activation, string>> = {
  silu: 'silu',
  gelu: 'gelu',
  'gelu-tanh': 'gelu_pytorch_tanh',
  relu2: 'relu2',
  xielu: 'xielu',
};

/**
 * Returns transformers' `model_type`. Families that compute the same have one name: a Mistral without windows is a
 * Llama.
 */
export function familyNameOf(config: DecoderConfig): string {
  const { family, experts } = config;
  if (family.gguf === 'deepseek2' && !experts) return 'youtu';
  if (family.gguf === 'deepseek2') return experts?.route.gate === 'sigmoid' ? 'deepseek_v3' : 'deepseek_v2';
  if (family.gguf === 'granitemoe' && experts!.sharedWidth > 0) return 'granitemoeshared';
  const slides = config.layers(config.maxContext).some(({ window }) => window !== undefined);
  const names = Object.entries(FAMILIES).filter(([, row]) => row === family || row.withoutExperts === family);
  return (slides ? names.at(-1) : names[0])![0];
}

/**
 * Makes config.json. Numbers that were f32 become the shortest decimals.
 *
 * @param notes - takes a sentence for a setting that transformers' class has no fields for
 */
export function configToJson(config: DecoderConfig, names: ConfigNames, notes: string[]): Json {
  if (config.bidirectional) fail('UNSUPPORTED', 'config.json', ENCODER_UNWRITTEN);
  if (config.xielu) fail('UNSUPPORTED', 'config.json', UNWRITTEN.xielu);
  const { family, latent, experts } = config;
  const name = familyNameOf(config);
  const eps = { layer: 'layer_norm_eps', 'layer-without-bias': 'layer_norm_eps', rms: 'rms_norm_eps' } as const;
  const [eos] = config.eosTokens;
  return plain({
    architectures: [`${classOf(name)}${/_vl(_moe)?$/.test(name) ? 'ForConditionalGeneration' : 'ForCausalLM'}`],
    // These are transformers' names of models without images.
    model_type: /^(gemma(3|3n|4)|llama4)$/.test(name) ? `${name}_text` : name,
    vocab_size: config.vocabSize,
    hidden_size: config.hiddenSize,
    [family.width ?? 'intermediate_size']: config.intermediateSize,
    num_hidden_layers: config.numLayers,
    num_attention_heads: config.numHeads,
    num_key_value_heads: config.numKvHeads,
    head_dim: latent ? undefined : config.headDim,
    max_position_embeddings: config.maxContext,
    hidden_act: ACTIVATIONS[config.activation],
    hidden_activation: /^gemma\d/.test(family.multipliers ?? '') ? ACTIVATIONS[config.activation] : undefined,
    [EPS[name] ?? eps[family.norm ?? 'rms']]: decimal(config.normEps),
    ...recurrentOf(config),
    ...sizesOf(config),
    tie_word_embeddings: config.tiedHead,
    ...biasesOf(family, names),
    ...(family.qkNormFlag && { [family.qkNormFlag]: config.qkNorm }),
    use_parallel_residual: family.parallel?.when === 'flag' ? config.parallel : undefined,
    kv_lora_rank: latent?.rank,
    q_lora_rank: latent && (latent.queryRank ?? null),
    qk_nope_head_dim: latent?.nope,
    qk_rope_head_dim: latent?.rope,
    v_head_dim: latent && config.valueDim,
    ...(experts ? expertsOf(experts, family) : {}),
    ...MULTIPLIERS[family.multipliers ?? 'none'](config),
    ...layersOf(config, name, notes),
    bos_token_id: config.bosToken,
    eos_token_id: eos,
    pad_token_id: names.padToken,
    torch_dtype: 'float32',
  });
}

/** The fields that transformers' classes take as floats only, or as either kind of number. */
const FLOATS =
  /"(\w+_softcapping|logit_scale|logits_scaling|\w+_multiplier|rout(?:ed|er)_scaling_factor|\w*_eps)": (-?\d+)(?=[,\n])/g;

/** Writes config.json as text: these fields have a point, also in whole numbers. */
export function configText(config: Json): string {
  const text = `${JSON.stringify(config, null, 2)}\n`.replace(FLOATS, '"$1": $2.0');
  return text.replace(/"activation_sparsity_pattern": \[[^\]]*/, (list) => list.replace(/ \d+(?=[,\n])/g, '$&.0'));
}

const plain = (fields: Json): Json =>
  Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined));

function classOf(name: string): string {
  return CLASSES[name] ?? name.replace(/(?:^|_)(.)/g, (_all, first: string) => first.toUpperCase());
}

/** Returns the shortest decimal of an f32, as its author wrote it: 1e-5 for 9.999999747378752e-6. */
function decimal(value: number): number {
  const digits = [6, 7, 8, 9].find((count) => Math.fround(Number(value.toPrecision(count))) === Math.fround(value));
  return Number(value.toPrecision(digits ?? 17));
}

function biasesOf({ biases = {} }: Family, { hasBias }: ConfigNames): Json {
  const fields: Json = {};
  // The groups of a class share a field. One group with biases is enough to set it.
  for (const [group, rule] of Object.entries(biases) as [BiasGroup, (typeof biases)[BiasGroup]][])
    if (rule && rule !== 'always') fields[rule[0]] = fields[rule[0]] === true || hasBias(group);
  return fields;
}

/** Writes the sizes of layers without attention. LFM2's widths are written as they are. */
function recurrentOf({ recurrent }: DecoderConfig): Json {
  if (recurrent && recurrent.kind !== 'conv') fail('UNSUPPORTED', 'config.json', UNWRITTEN[recurrent.kind]);
  return recurrent ? { conv_L_cache: recurrent.width, block_auto_adjust_ff_dim: false } : {};
}

/** Writes the sizes of Gemma 4's layers, whose full ones have theirs in fields of their own, and of Gemma 3n's. */
function sizesOf(config: DecoderConfig): Json {
  const { layerSizes, layers, maxContext, experts, altup } = config;
  if (!layerSizes) return {};
  const types = layers(maxContext).map(typeOf);
  const shared = layerSizes.filter(({ sharesWith }) => sharesWith !== undefined);
  const perLayer = {
    num_kv_shared_layers: shared.length,
    hidden_size_per_layer_input: config.perLayerWidth,
    vocab_size_per_layer_input: config.perLayerVocab,
  };
  if (altup)
    return {
      ...perLayer,
      intermediate_size: layerSizes.map((one) => one.intermediateSize),
      altup_num_inputs: altup.streams,
      altup_active_idx: altup.active,
      altup_correct_scale: altup.scaled,
      laurel_rank: altup.laurelRank,
      activation_sparsity_pattern: altup.sparsity,
    };
  const full = layerSizes[types.indexOf('full_attention')]!;
  const sliding = layerSizes[Math.max(0, types.indexOf('sliding_attention'))]!;
  return {
    num_key_value_heads: sliding.numKvHeads,
    num_global_key_value_heads: full.numKvHeads === sliding.numKvHeads ? null : full.numKvHeads,
    head_dim: sliding.headDim,
    global_head_dim: full.headDim,
    intermediate_size: layerSizes[0]!.intermediateSize,
    use_double_wide_mlp: shared.some((one) => one.intermediateSize !== layerSizes[0]!.intermediateSize),
    attention_k_eq_v: layerSizes.some(({ valuesAreKeys }) => valuesAreKeys),
    ...perLayer,
    enable_moe_block: experts !== undefined,
  };
}

function expertsOf(experts: ExpertConfig, family: Family): Json {
  const { count, used, width, sharedWidth, route, layers } = experts;
  const { shared, deepseek, ggufWidth, fields: named = {} } = family.experts!;
  const common = { [countField(family)]: count, [named.used ?? 'num_experts_per_tok']: used };
  if (family.gguf === 'gpt-oss') return { ...common, swiglu_limit: 7 };
  if (ggufWidth === 'whole') return { ...common, ...(named.sharedWidth && { [named.sharedWidth]: sharedWidth }) };
  const first = layers.indexOf(true);
  const chooses = route.groups?.best === 2 || route.gate === 'sigmoid';
  if (family.gguf === 'lfm2moe')
    return {
      ...common,
      moe_intermediate_size: width,
      num_dense_layers: first === -1 ? layers.length : first,
      norm_topk_prob: true,
      use_expert_bias: true,
    };
  if (!deepseek)
    return {
      ...common,
      ...(named.width && { [named.width]: width }),
      moe_intermediate_size: width,
      shared_expert_intermediate_size: shared ? sharedWidth : undefined,
      decoder_sparse_step: 1,
      mlp_only_layers: [...layers.keys()].filter((layer) => !layers[layer]),
      norm_topk_prob: route.normalize,
      ...(named.step && { [named.step]: stepOf(layers) }),
    };
  return {
    ...common,
    moe_intermediate_size: width,
    [named.shared ?? 'n_shared_experts']: sharedWidth / width,
    [named.first ?? 'first_k_dense_replace']: first === -1 ? layers.length : first,
    [named.step ?? 'moe_layer_freq']: stepOf(layers),
    norm_topk_prob: route.normalize,
    [named.scale ?? 'routed_scaling_factor']: decimal(route.scale ?? 1),
    scoring_func: route.gate,
    topk_method: chooses ? 'noaux_tc' : route.groups ? 'group_limited_greedy' : 'greedy',
    n_group: route.groups?.count ?? 1,
    topk_group: route.groups?.used ?? 1,
  };
}

/** Writes the scales and caps of each {@link Family.multipliers}. */
const MULTIPLIERS: Readonly<Record<NonNullable<Family['multipliers']> | 'none', (config: DecoderConfig) => Json>> = {
  none: () => ({}),
  falcon: () => ({}),
  gemma: () => ({}),
  gemma2: gemma,
  gemma3: gemma,
  llama4: ({ chunk, temperature }) => ({
    attention_chunk_size: chunk ?? null,
    attn_temperature_tuning: temperature !== undefined,
    attn_scale: temperature && decimal(temperature.scale),
    floor_scale: temperature?.context,
  }),
  gemma3n: capOf,
  gemma4: capOf,
  granite: ({ attentionScale, embeddingScale, residualScale, logitScale }) => ({
    attention_multiplier: decimal(attentionScale),
    embedding_multiplier: decimal(embeddingScale),
    residual_multiplier: decimal(residualScale),
    logits_scaling: decimal(1 / logitScale),
  }),
  minicpm: ({ embeddingScale, residualScale, logitScale, numLayers, hiddenSize }) => ({
    scale_emb: decimal(embeddingScale),
    scale_depth: decimal(residualScale * Math.sqrt(numLayers)),
    dim_model_base: decimal(logitScale * hiddenSize),
  }),
  cohere: ({ logitScale }) => ({ logit_scale: decimal(logitScale) }),
  // They are among the RoPE parameters.
  temperature: () => ({}),
};

function gemma({ attentionScale, attentionSoftcap, logitSoftcap }: DecoderConfig): Json {
  return {
    query_pre_attn_scalar: decimal(attentionScale ** -2),
    attn_logit_softcapping: attentionSoftcap === undefined ? null : decimal(attentionSoftcap),
    ...capOf({ logitSoftcap }),
  };
}

function capOf({ logitSoftcap }: Pick<DecoderConfig, 'logitSoftcap'>): Json {
  return { final_logit_softcapping: logitSoftcap === undefined ? null : decimal(logitSoftcap) };
}

/** A rope_type that no reader knows, so readers refuse it. Their default would be another RoPE than the model's. */
const IN_GRAPH: Json = { rope_parameters: { rope_type: 'as-in-graph' } };

/** Writes RoPE, windows, and the layers that have them. */
function layersOf(config: DecoderConfig, name: string, notes: string[]): Json {
  const layers = config.layers(config.maxContext);
  const window = layers.find((layer) => layer.window !== undefined)?.window;
  const fields: Json = { sliding_window: window ?? null };
  if (window !== undefined || SLIDES.includes(name) || config.recurrent) fields.layer_types = layers.map(typeOf);
  if (name === 'smollm3' || name === 'llama4')
    fields.no_rope_layers = layers.map(({ rope }) => Number(rope !== undefined));
  try {
    return { ...fields, ...ropeFields(config, name, layers) };
  } catch (error) {
    if (!(error instanceof RopewalkError)) throw error;
    const why = 'no fields of its class say it. The graph has it.';
    notes.push(`config.json does not tell the RoPE of this ${name}, or how it scales attention: ${why}`);
    return { ...fields, ...IN_GRAPH };
  }
}

const typeOf = ({ window, recurrent, chunk }: LayerConfig): string =>
  recurrent ? 'conv' : chunk ? 'chunked_attention' : window === undefined ? 'full_attention' : 'sliding_attention';

/** @throws {RopewalkError} UNSUPPORTED for a RoPE that the class has no fields for */
function ropeFields(config: DecoderConfig, name: string, layers: readonly LayerConfig[]): Json {
  const fields: Json = {};
  const done = new Map<unknown, string[]>();
  for (const layer of layers) {
    const { rope } = layer;
    const layerType = typeOf(layer);
    const types = done.get(rope) ?? [];
    if (!rope || types.includes(layerType)) continue;
    done.set(rope, [...types, layerType]);
    const options = { modelType: name, layerType, context: config.maxContext };
    const written = convertRope(withStillPairs(rope), 'huggingface', options).arguments.config as Json;
    const all = written.rope_parameters as Json;
    const own = layerType in all ? { [layerType]: all[layerType] } : all;
    const before = fields.rope_parameters as Json | undefined;
    const differs = before && !(layerType in own) && JSON.stringify(before) !== JSON.stringify(own);
    if (written.model_type !== name || differs) fail('UNSUPPORTED', 'rope_parameters', `${name} has no such RoPE`);
    const key = 'original_max_position_embeddings';
    if (written[key] !== undefined) fields[key] = written[key];
    fields.rope_parameters = { ...before, ...own };
  }
  if (
    layers.some(({ rope, recurrent }) => !rope && !recurrent) &&
    !['smollm3', 'llama4', 'cohere2', 'exaone4', 'exaone_moe'].includes(name)
  )
    fail('UNSUPPORTED', 'rope_parameters', `all layers of ${name} rotate`);
  const own = { ...(fields.rope_parameters as Json | undefined), ...latentScaleOf(config) };
  return { ...fields, rope_parameters: { ...own, ...temperatureOf(config, own.original_max_position_embeddings) } };
}

/** Says proportional for a RoPE whose last pairs have a factor that stops them, as in GGUF files of Gemma 4. */
function withStillPairs(rope: RopeSpec): RopeSpec {
  const rotatedPairs = frequenciesOf(rope).invFreq.findIndex((frequency) => frequency < 1e-20);
  return rotatedPairs < 1 ? rope : { ...rope, freqFactors: undefined, scaling: { kind: 'proportional', rotatedPairs } };
}

/** Writes the factor of q at later positions. Its length must be that of YaRN. */
function temperatureOf({ temperature }: DecoderConfig, original: unknown): Json {
  if (!temperature || temperature.still) return {};
  const { scale, context } = temperature;
  if (original !== undefined && original !== context)
    fail('UNSUPPORTED', 'rope_parameters', `the factor of q and YaRN have one length, not ${context} and ${original}`);
  return { llama_4_scaling_beta: decimal(scale), original_max_position_embeddings: context };
}

/** Writes DeepSeek's attention scale if the RoPE alone would give another one: see latentScale in config.ts. */
function latentScaleOf({ latent, attentionScale, headDim, ...config }: DecoderConfig): Json {
  const rope = latent && config.layers(config.maxContext)[0]!.rope;
  if (!rope) return {};
  const m = Math.sqrt(attentionScale * Math.sqrt(headDim));
  const { scaling } = rope;
  const said = scaling?.kind === 'yarn' ? 1 + 0.1 * (scaling.mscaleAllDim ?? 0) * Math.log(scaling.factor) : 1;
  if (Math.abs(m - said) < 1e-6) return {};
  if (scaling?.kind !== 'yarn' || scaling.factor <= 1)
    return fail('UNSUPPORTED', 'rope_parameters', 'without YaRN the scale of attention is 1 / √head_dim');
  const mscale = decimal((m - 1) / (0.1 * Math.log(scaling.factor)));
  return { mscale, mscale_all_dim: mscale, attention_factor: frequenciesOf(rope).attentionFactor };
}
