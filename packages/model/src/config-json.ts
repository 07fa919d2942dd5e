/**
 * {@link DecoderConfig} → config.json with transformers' names: configFromJson backwards, for models that come from a
 * GGUF file.
 *
 * @module
 * @see huggingface/transformers@v5.18.0 src/transformers/models/NAME/configuration_NAME.py
 */
import { convertRope } from '@ropewalk/dialects';
import { frequenciesOf } from 'ropewalk';
import { fail, refuse } from 'ropewalk/backend';
import { type Activation, type BiasGroup, FAMILIES, type Family } from './families.js';
import type { DecoderConfig, ExpertConfig, LayerConfig } from './types.js';

type Json = Record<string, unknown>;

/** What config.json says and {@link DecoderConfig} does not. */
export interface ConfigNames {
  /** Whether the file has biases of a group. */
  hasBias(group: BiasGroup): boolean;
  readonly padToken: number | undefined;
}

/** Classes whose names are not the model_type with capitals. */
const CLASSES: Readonly<Record<string, string>> = {
  gpt_neox: 'GPTNeoX',
  minicpm: 'MiniCPM',
  qwen2_vl: 'Qwen2VL',
  qwen3_vl: 'Qwen3VL',
  smollm3: 'SmolLM3',
  stablelm: 'StableLm',
  ernie4_5: 'Ernie4_5',
};
/** Families whose classes choose sliding layers where layer_types does not. */
const SLIDES = ['gemma2', 'gemma3', 'cohere2', 'olmo3', 'gpt_oss', 'exaone4'];
const ACTIVATIONS: Readonly<Record<Activation, string>> = {
  silu: 'silu',
  gelu: 'gelu',
  'gelu-tanh': 'gelu_pytorch_tanh',
};

/**
 * The `model_type` of a model, as {@link FAMILIES} has it. GGUF has one architecture for some families; those that
 * compute the same are one here: a Mistral without windows is a Llama.
 */
export function familyNameOf(config: DecoderConfig): string {
  const { family, experts } = config;
  if (family.gguf === 'deepseek2') return experts?.route.gate === 'sigmoid' ? 'deepseek_v3' : 'deepseek_v2';
  const slides = config.layers(config.maxContext).some(({ window }) => window !== undefined);
  const names = Object.entries(FAMILIES).filter(([, row]) => row === family);
  return (slides ? names.at(-1) : names[0])![0];
}

/**
 * Makes config.json.
 *
 * @param config - of a GGUF file
 * @param names - what only the file says
 * @param where - the file's name in messages
 * @returns the object; numbers that were f32 are the shortest decimals
 * @throws {RopewalkError} UNSUPPORTED for a RoPE or windows that transformers' class does not have
 */
export function configToJson(config: DecoderConfig, names: ConfigNames, where = 'config.json'): Json {
  const { family, latent, experts } = config;
  const name = familyNameOf(config);
  const eps = { layer: 'layer_norm_eps', 'layer-without-bias': 'layer_norm_eps', rms: 'rms_norm_eps' } as const;
  const [eos] = config.eosTokens;
  return plain({
    architectures: [`${classOf(name)}${name.endsWith('_vl') ? 'ForConditionalGeneration' : 'ForCausalLM'}`],
    // transformers' name of Gemma 3 without images.
    model_type: name === 'gemma3' ? 'gemma3_text' : name,
    vocab_size: config.vocabSize,
    hidden_size: config.hiddenSize,
    intermediate_size: config.intermediateSize,
    num_hidden_layers: config.numLayers,
    num_attention_heads: config.numHeads,
    num_key_value_heads: config.numKvHeads,
    head_dim: latent ? undefined : config.headDim,
    max_position_embeddings: config.maxContext,
    hidden_act: ACTIVATIONS[config.activation],
    hidden_activation: family.multipliers?.startsWith('gemma') ? ACTIVATIONS[config.activation] : undefined,
    [name === 'starcoder2' ? 'norm_epsilon' : eps[family.norm ?? 'rms']]: decimal(config.normEps),
    tie_word_embeddings: config.tiedHead,
    ...biasesOf(family, names),
    qk_layernorm: family.qkNorm === 'each-head' ? config.qkNorm : undefined,
    use_parallel_residual: family.parallel?.when === 'flag' ? config.parallel : undefined,
    kv_lora_rank: latent?.rank,
    q_lora_rank: latent && (latent.queryRank ?? null),
    qk_nope_head_dim: latent?.nope,
    qk_rope_head_dim: latent?.rope,
    v_head_dim: latent && config.valueDim,
    ...(experts ? expertsOf(experts, family) : {}),
    ...MULTIPLIERS[family.multipliers ?? 'none'](config),
    ...layersOf(config, name, where),
    bos_token_id: config.bosToken,
    eos_token_id: eos,
    pad_token_id: names.padToken,
    torch_dtype: 'float32',
  });
}

const plain = (fields: Json): Json =>
  Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined));

function classOf(name: string): string {
  return CLASSES[name] ?? name.replace(/(?:^|_)(.)/g, (_all, first: string) => first.toUpperCase());
}

/** The shortest decimal of an f32, as its author wrote it: 1e-5 for 9.999999747378752e-6. */
function decimal(value: number): number {
  const digits = [6, 7, 8, 9].find((count) => Math.fround(Number(value.toPrecision(count))) === Math.fround(value));
  return Number(value.toPrecision(digits ?? 17));
}

function biasesOf({ biases = {} }: Family, { hasBias }: ConfigNames): Json {
  const fields: Json = {};
  // The groups of a class share a field: one group is enough to say that it has biases.
  for (const [group, rule] of Object.entries(biases) as [BiasGroup, (typeof biases)[BiasGroup]][])
    if (rule && rule !== 'always') fields[rule[0]] = fields[rule[0]] === true || hasBias(group);
  return fields;
}

function expertsOf(experts: ExpertConfig, { reads = [], experts: rules, gguf }: Family): Json {
  const { count, used, width, sharedWidth, route, layers } = experts;
  const key = reads.find((one) => one.endsWith('experts'))!;
  const common = { [key]: count, num_experts_per_tok: used };
  if (gguf === 'gpt-oss') return { ...common, swiglu_limit: 7 };
  if (gguf === 'llama') return common;
  const first = layers.indexOf(true);
  if (gguf !== 'deepseek2')
    return {
      ...common,
      moe_intermediate_size: width,
      shared_expert_intermediate_size: rules?.shared ? sharedWidth : undefined,
      decoder_sparse_step: 1,
      mlp_only_layers: [...layers.keys()].filter((layer) => !layers[layer]),
      norm_topk_prob: route.normalise,
    };
  return {
    ...common,
    moe_intermediate_size: width,
    n_shared_experts: sharedWidth / width,
    first_k_dense_replace: first === -1 ? layers.length : first,
    moe_layer_freq: 1,
    norm_topk_prob: route.normalise,
    routed_scaling_factor: decimal(route.scale ?? 1),
    scoring_func: route.gate,
    topk_method:
      route.groups?.best === 2 || route.gate === 'sigmoid'
        ? 'noaux_tc'
        : route.groups
          ? 'group_limited_greedy'
          : 'greedy',
    n_group: route.groups?.count ?? 1,
    topk_group: route.groups?.used ?? 1,
  };
}

/** Scales and caps, by the name that {@link Family.multipliers} gives. */
const MULTIPLIERS: Readonly<Record<NonNullable<Family['multipliers']> | 'none', (config: DecoderConfig) => Json>> = {
  none: () => ({}),
  gemma2: gemma,
  gemma3: gemma,
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
  // It is among the RoPE parameters.
  temperature: () => ({}),
};

function gemma({ attentionScale, attentionSoftcap, logitSoftcap }: DecoderConfig): Json {
  return {
    query_pre_attn_scalar: decimal(attentionScale ** -2),
    attn_logit_softcapping: attentionSoftcap === undefined ? null : decimal(attentionSoftcap),
    final_logit_softcapping: logitSoftcap === undefined ? null : decimal(logitSoftcap),
  };
}

/** RoPE, windows, and which layers have them. */
function layersOf(config: DecoderConfig, name: string, where: string): Json {
  const layers = config.layers(config.maxContext);
  const typeOf = ({ window }: LayerConfig): string => (window === undefined ? 'full_attention' : 'sliding_attention');
  const [window, ...others] = new Set(layers.map((layer) => layer.window).filter((one) => one !== undefined));
  if (others.length > 0)
    refuse('UNSUPPORTED', `${where}: sliding_window`, 'one window for all layers', [window, ...others]);
  const fields: Json = { sliding_window: window ?? null };
  if (window !== undefined || SLIDES.includes(name)) fields.layer_types = layers.map(typeOf);
  if (name === 'smollm3') fields.no_rope_layers = layers.map(({ rope }) => Number(rope !== undefined));
  const done = new Set<unknown>();
  for (const layer of layers) {
    const { rope } = layer;
    if (!rope || done.has(rope)) continue;
    done.add(rope);
    const layerType = typeOf(layer);
    const { arguments: made } = convertRope(rope, 'huggingface', {
      modelType: name,
      layerType,
      context: config.maxContext,
    });
    const { model_type, rope_parameters, original_max_position_embeddings } = made.config as Json;
    const own = rope_parameters as Json;
    if (model_type !== name || (done.size > 1 && !(layerType in own)))
      fail(
        'UNSUPPORTED',
        `${where}: rope_parameters`,
        `the classes of ${name} have no fields for the RoPE of this model`,
      );
    if (original_max_position_embeddings) fields.original_max_position_embeddings = original_max_position_embeddings;
    fields.rope_parameters = { ...(fields.rope_parameters as Json | undefined), ...own };
  }
  fields.rope_parameters = {
    ...(fields.rope_parameters as Json),
    ...latentScaleOf(config, where),
    ...temperatureOf(config),
  };
  return fields;
}

/** The factor of q at later positions. */
function temperatureOf({ temperature }: DecoderConfig): Json {
  return temperature
    ? { llama_4_scaling_beta: decimal(temperature.scale), original_max_position_embeddings: temperature.context }
    : {};
}

/** What makes DeepSeek's attention scale, where the RoPE alone would give another: see latentScale in config.ts. */
function latentScaleOf({ latent, attentionScale, headDim, ...config }: DecoderConfig, where: string): Json {
  const rope = latent && config.layers(config.maxContext)[0]!.rope;
  if (!rope) return {};
  const m = Math.sqrt(attentionScale * Math.sqrt(headDim));
  const { scaling } = rope;
  const said = scaling?.kind === 'yarn' ? 1 + 0.1 * (scaling.mscaleAllDim ?? 0) * Math.log(scaling.factor) : 1;
  if (Math.abs(m - said) < 1e-6) return {};
  if (scaling?.kind !== 'yarn' || scaling.factor <= 1)
    return refuse('UNSUPPORTED', `${where}: attention scale`, '1 / √head_dim without YaRN', attentionScale);
  const mscale = decimal((m - 1) / (0.1 * Math.log(scaling.factor)));
  return { mscale, mscale_all_dim: mscale, attention_factor: frequenciesOf(rope).attentionFactor };
}
