/**
 * HuggingFace: config.json → the effective RoPE of each layer.
 *
 * Reads the old form (rope_theta, rope_scaling) and the new one (rope_parameters, flat or by layer type). An unknown
 * rope_type is an error: taken for another one it would only show as a model that slowly loses its thread.
 *
 * @module
 * @see huggingface/transformers@ef46806 src/transformers/modeling_rope_utils.py
 */
import { refuse } from '../core/errors.js';
import { Fields } from '../core/fields.js';
import type { RopeAxes } from '../ops/rope/axes.js';
import type { RopeScaling } from '../ops/rope/frequencies.js';
import type { Pairing, RopeSpec } from '../ops/rope/plan.js';
import type { LayerRope, ModelRope, ModelRopeOptions } from './model-rope.js';

/** Splits a list of model_type names. */
function names(list: string): string[] {
  return list.split(' ');
}

/** Models whose code turns neighbours (2j, 2j+1); all others turn halves. */
const INTERLEAVED = names('gptj codegen cohere cohere2 glm glm4 ernie4_5 ernie4_5_moe helium moonshine deepseek_v2 llama4 llama4_text');
/** Models that read neighbours and write halves, unless rope_interleave is false. */
const INTERLEAVED_TO_HALF = names('deepseek_v3 deepseek_v32 glm_moe_dsa longcat_flash mistral4 youtu');
/** Models whose code is known to turn halves; for others the pairing is assumed and said to be. */
const HALF = names(
  'llama mistral mixtral qwen2 qwen2_moe qwen2_vl qwen2_vl_text qwen2_5_vl qwen2_5_vl_text qwen3 qwen3_moe qwen3_vl ' +
    'qwen3_vl_text qwen3_vl_moe qwen3_vl_moe_text qwen3_next phi phi3 phimoe gemma gemma2 gemma3 gemma3_text gemma3n ' +
    'gemma3n_text gemma4 gemma4_text gpt_neox gpt_oss falcon stablelm persimmon olmo olmo2 olmo3 olmoe starcoder2 ' +
    'granite granitemoe smollm3 modernbert nemotron exaone4 seed_oss ministral ministral3 minimax bitnet',
);
/** Models without rotary embedding: naming them beats a guess. */
const WITHOUT_ROPE = names('gpt2 bert roberta opt bloom mpt t5 gpt_bigcode gpt_neo mamba mamba2 distilbert bart xlnet');
/** rope_theta where the config leaves it out, from the configuration classes. */
const DEFAULT_THETA: Readonly<Record<string, number>> = {
  ...Object.fromEntries(
    names(
      'llama mistral qwen2 qwen2_moe qwen3 qwen3_moe phi phi3 gemma gemma2 gpt_neox gptj codegen falcon stablelm ' +
        'cohere cohere2 olmo olmo2 starcoder2 deepseek_v2 deepseek_v3 glm glm4',
    ).map((name) => [name, 10000]),
  ),
  mixtral: 1e6,
  gpt_oss: 150000,
  smollm3: 2e6,
};
const KNOWN_TYPES = 'default, linear, dynamic, yarn, longrope (su), llama3, mrope or proportional';
/** No model comes near; a forged count stops here. */
const MAX_LAYERS = 10000;

/** The first of several fields that is there: models name one thing differently. */
function firstInteger(config: Fields, keys: readonly string[], high?: number): number | undefined {
  for (const key of keys) {
    const value = config.optionalInteger(key, 1, high);
    if (value !== undefined) return value;
  }
  return undefined;
}

/**
 * Reads the effective RoPE of each layer from a parsed config.json.
 *
 * @param json - the parsed file
 * @param options - the context in use, and the file's name for messages
 * @returns a layer each; `planRope({ ...layer.rope, positions })` makes it runnable
 * @throws {RopewalkError} FORMAT for missing or malformed fields; UNSUPPORTED for an unknown rope_type or a model without RoPE
 */
export function ropeFromConfig(json: unknown, options: ModelRopeOptions = {}): ModelRope {
  const outer = new Fields(json, options.where ?? 'config.json');
  // Multimodal configs keep the language model's in text_config.
  const config = !outer.has('hidden_size') && outer.has('text_config') ? outer.optionalObject('text_config')! : outer;
  const modelType =
    config.optionalText('model_type') ??
    outer.optionalText('model_type') ??
    refuse('FORMAT', config.path('model_type'), 'a text', undefined);
  if (WITHOUT_ROPE.includes(modelType))
    refuse('UNSUPPORTED', config.path('model_type'), 'a model with rotary position embedding', modelType);
  const model: Model = { config, modelType, notes: [], ...sizesOf(config), options };

  const layers: LayerRope[] = [];
  const cache = new Map<string, RopeSpec>();
  const types = layerTypes(model);
  for (let layer = 0; layer < model.numLayers; layer++) {
    const layerType = types[layer];
    const named = layerType === undefined ? {} : { layerType };
    if (isNoPe(model, layer, layerType)) {
      layers.push({ layer, ...named, rope: undefined });
      continue;
    }
    const key = layerType ?? '';
    const rope = cache.get(key) ?? ropeOf(model, layerType);
    cache.set(key, rope);
    layers.push({ layer, ...named, rope });
  }
  return {
    source: 'huggingface',
    architecture: modelType,
    numLayers: model.numLayers,
    layers,
    maxContext: model.maxContext,
    notes: [...new Set(model.notes)],
  };
}

interface Model {
  readonly config: Fields;
  readonly modelType: string;
  readonly notes: string[];
  readonly options: ModelRopeOptions;
  readonly numLayers: number;
  readonly headDim: number;
  readonly maxContext: number | undefined;
}

function sizesOf(config: Fields): Pick<Model, 'numLayers' | 'headDim' | 'maxContext'> {
  const numLayers = config.need(firstInteger(config, ['num_hidden_layers', 'n_layer', 'num_layers'], MAX_LAYERS), 'num_hidden_layers');
  const maxContext = firstInteger(config, ['max_position_embeddings', 'n_positions', 'seq_length']);
  // head_dim need not be hidden_size / num_attention_heads; where it is given, it counts.
  const given = firstInteger(config, ['qk_rope_head_dim', 'head_dim', 'kv_channels']);
  if (given !== undefined) return { numLayers, headDim: given, maxContext };
  const hidden = config.need(firstInteger(config, ['hidden_size', 'n_embd']), 'head_dim, or hidden_size');
  const heads = config.need(firstInteger(config, ['num_attention_heads', 'n_head']), 'head_dim, or num_attention_heads');
  if (hidden % heads !== 0)
    refuse('FORMAT', config.path('hidden_size'), `a multiple of num_attention_heads=${heads}, or head_dim beside it`, hidden);
  return { numLayers, headDim: hidden / heads, maxContext };
}

/** The kind of each layer, where a model has more than one. */
function layerTypes({ config, modelType, numLayers }: Model): readonly (string | undefined)[] {
  const given = config.optionalList('layer_types');
  if (given) {
    if (given.length !== numLayers || !given.every((t) => typeof t === 'string')) {
      refuse('FORMAT', config.path('layer_types'), `${numLayers} texts, one a layer`, given.length);
    }
    return given as string[];
  }
  const every = (period: number, first: number): string[] =>
    Array.from({ length: numLayers }, (_, layer) => ((layer + first) % period === 0 ? 'full_attention' : 'sliding_attention'));
  if (['gemma3', 'gemma3_text', 'cohere2'].includes(modelType))
    return every(config.optionalInteger('sliding_window_pattern') ?? (modelType === 'cohere2' ? 4 : 6), 1);
  if (modelType === 'modernbert') return every(config.optionalInteger('global_attn_every_n_layers') ?? 3, 0);
  return new Array<undefined>(numLayers).fill(undefined);
}

function isNoPe({ config, modelType, numLayers }: Model, layer: number, layerType: string | undefined): boolean {
  // Cohere2 turns only its sliding layers.
  if (modelType === 'cohere2') return layerType === 'full_attention';
  const list = config.optionalList('no_rope_layers');
  if (list && list.length > 0) {
    if (list.length !== numLayers) refuse('FORMAT', config.path('no_rope_layers'), `${numLayers} entries, one a layer`, list.length);
    return list[layer] === 0; // 1 means that the layer does rotate, whatever the key's name suggests
  }
  const interval = ['smollm3', 'llama4', 'llama4_text'].includes(modelType)
    ? (config.optionalInteger('no_rope_layer_interval') ?? 4)
    : undefined;
  return interval !== undefined && (layer + 1) % interval === 0;
}

/** The parameters of one kind of layer: rope_parameters (flat or nested), else rope_scaling beside rope_theta. */
function parametersOf({ config, modelType }: Model, layerType: string | undefined): Fields {
  const parameters = config.optionalObject('rope_parameters');
  const scaling = config.optionalObject('rope_scaling');
  if (parameters && scaling) {
    for (const key of ['rope_type', 'type', 'factor']) {
      if (parameters.has(key) && scaling.has(key) && parameters.raw(key) !== scaling.raw(key)) {
        refuse(
          'FORMAT',
          config.path(`rope_scaling.${key}`),
          `what rope_parameters says, ${JSON.stringify(parameters.raw(key))}`,
          scaling.raw(key),
          'Delete one of the two.',
        );
      }
    }
  }
  if (parameters) {
    const nested = parameters
      .keys()
      .map((key) => parameters.raw(key))
      .some((value) => typeof value === 'object' && value !== null && !Array.isArray(value));
    if (!nested) return parameters;
    // Which layer is of which type must be known; the first entry for all would be a guess.
    const key = config.need(layerType, 'layer_types', 'a list, one text a layer, as rope_parameters is given by layer type');
    return config.need(parameters.optionalObject(key), `rope_parameters.${key}`, 'an object for this type of layer');
  }
  // Gemma 3 stretches its global layers only.
  if (scaling && !(modelType.startsWith('gemma3') && layerType === 'sliding_attention')) return scaling;
  return new Fields({}, config.path('rope_scaling'));
}

function thetaOf(model: Model, parameters: Fields, layerType: string | undefined): number {
  const { config, modelType } = model;
  const own = parameters.optionalPositive('rope_theta');
  if (own !== undefined) return own;
  const local = layerType === 'sliding_attention';
  if (modelType.startsWith('gemma3')) {
    const theta = local ? config.optionalPositive('rope_local_base_freq') : config.optionalPositive('rope_theta');
    if (theta !== undefined) return theta;
    model.notes.push(`rope_theta is missing for ${local ? 'sliding' : 'full'} layers: the default of ${modelType} is used.`);
    return local ? 10000 : 1e6;
  }
  if (modelType === 'modernbert')
    return config.optionalPositive(local ? 'local_rope_theta' : 'global_rope_theta') ?? (local ? 10000 : 160000);
  const theta = config.optionalPositive('rope_theta') ?? config.optionalPositive('rotary_emb_base') ?? config.optionalPositive('rope_base');
  if (theta !== undefined) return theta;
  const known = DEFAULT_THETA[modelType];
  if (known === undefined)
    refuse(
      'FORMAT',
      config.path('rope_theta'),
      'a number',
      undefined,
      `The default of ${modelType} is not known here; write it into the config.`,
    );
  model.notes.push(`rope_theta is missing: transformers' default for ${modelType}, ${known}, is used.`);
  return known;
}

function ropeOf(model: Model, layerType: string | undefined): RopeSpec {
  const { config, headDim } = model;
  const parameters = parametersOf(model, layerType);
  const type = normaliseType(parameters, layerType);
  const partial =
    parameters.optionalPositive('partial_rotary_factor') ??
    config.optionalPositive('partial_rotary_factor') ??
    config.optionalPositive('rotary_pct') ??
    1;
  if (partial > 1) refuse('FORMAT', config.path('partial_rotary_factor'), 'a number in (0, 1]', partial);
  const proportional = type === 'proportional';
  const rotaryDim = proportional ? headDim : (config.optionalInteger('rotary_dim') ?? Math.trunc(headDim * partial));
  if (rotaryDim % 2 !== 0 || rotaryDim < 2 || rotaryDim > headDim) {
    refuse(
      'FORMAT',
      config.path('rotary_dim'),
      `an even number of dimensions in [2, head_dim=${headDim}]`,
      rotaryDim,
      'It is head_dim × partial_rotary_factor.',
    );
  }
  const base = thetaOf(model, parameters, layerType);
  const axes = axesOf(model, parameters);
  return {
    headDim,
    rotaryDim,
    pairing: pairingOf(model),
    base,
    ...scalingOf(model, parameters, type, partial),
    ...(axes ? { axes } : {}),
  };
}

function normaliseType(parameters: Fields, layerType: string | undefined): string {
  const type = parameters.optionalText('rope_type') ?? parameters.optionalText('type') ?? 'default';
  const known: Record<string, string> = {
    default: 'default',
    mrope: 'default',
    linear: 'linear',
    dynamic: 'dynamic',
    yarn: 'yarn',
    longrope: 'longrope',
    su: 'longrope',
    llama3: 'llama3',
    proportional: 'proportional',
  };
  return known[type] ?? refuse('UNSUPPORTED', `${parameters.path('rope_type')}${layerType ? ` (${layerType})` : ''}`, KNOWN_TYPES, type);
}

function pairingOf({ config, modelType, notes }: Model): Pairing {
  if (config.has('qk_rope_head_dim'))
    notes.push('RoPE turns the qk_rope_head_dim part of each head; the other part (qk_nope_head_dim) is not among these dimensions.');
  if (INTERLEAVED_TO_HALF.includes(modelType)) return config.optionalFlag('rope_interleave') === false ? 'half' : 'interleaved-to-half';
  if (INTERLEAVED.includes(modelType)) return 'interleaved';
  if (!HALF.includes(modelType))
    notes.push(`The pairing of ${modelType} is not known here; half is assumed, as most models in transformers have it.`);
  return 'half';
}

function axesOf({ modelType }: Model, parameters: Fields): RopeAxes | undefined {
  const sections = parameters.optionalNumbers('mrope_section');
  if (!sections) return undefined;
  if (sections.length < 3 || sections.length > 4 || !sections.every((n) => Number.isInteger(n) && n >= 0)) {
    refuse('FORMAT', parameters.path('mrope_section'), 'three or four integers', sections);
  }
  const interleaved = parameters.optionalFlag('mrope_interleaved') ?? modelType.startsWith('qwen3_vl');
  return { rule: interleaved ? 'interleaved' : 'sections', sections };
}

/** The scaling rule, and the attention factor where transformers computes it otherwise than the rule itself. */
function scalingOf(model: Model, parameters: Fields, type: string, partial: number): { scaling?: RopeScaling; attentionFactor?: number } {
  const { config, headDim, notes } = model;
  const maxContext = (): number => config.need(model.maxContext, 'max_position_embeddings');
  const original =
    parameters.optionalInteger('original_max_position_embeddings') ?? config.optionalInteger('original_max_position_embeddings');
  const given = parameters.optionalPositive('attention_factor');
  const override = given === undefined ? {} : { attentionFactor: given };
  const needFactor = (): number => parameters.need(parameters.optionalPositive('factor'), 'factor');
  switch (type) {
    case 'linear':
      return { scaling: { kind: 'linear', factor: needFactor() } };
    case 'dynamic': {
      const originalContext = original ?? maxContext();
      notes.push('Dynamic NTK changes the base with the sequence length: keys cached at a shorter length carry the old one.');
      return { scaling: { kind: 'dynamicNtk', factor: needFactor(), originalContext, context: contextOf(model, originalContext) } };
    }
    case 'proportional': {
      const rotatedPairs = Math.floor((partial * headDim) / 2);
      return { scaling: { kind: 'proportional', rotatedPairs, factor: parameters.optionalPositive('factor') ?? 1 } };
    }
    case 'llama3':
      return {
        scaling: {
          kind: 'llama3',
          factor: needFactor(),
          lowFreqFactor: parameters.need(parameters.optionalPositive('low_freq_factor'), 'low_freq_factor'),
          highFreqFactor: parameters.need(parameters.optionalPositive('high_freq_factor'), 'high_freq_factor'),
          originalContext: parameters.need(original, 'original_max_position_embeddings'),
        },
      };
    case 'longrope': {
      const pairs = Math.trunc(headDim * partial) / 2;
      const factors = (key: string): number[] => {
        const list = parameters.need(parameters.optionalNumbers(key), key);
        return list.length === pairs ? list : refuse('FORMAT', parameters.path(key), `${pairs} numbers, one a pair`, list.length);
      };
      const originalContext = original ?? maxContext();
      // Phi-3 and others give the original context and let the factor follow from it.
      const factor = original === undefined ? parameters.optionalPositive('factor') : maxContext() / original;
      const scaling: RopeScaling = {
        kind: 'longrope',
        shortFactor: factors('short_factor'),
        longFactor: factors('long_factor'),
        originalContext,
        context: contextOf(model, originalContext),
        ...(factor === undefined ? {} : { factor }),
      };
      return { scaling, ...override };
    }
    case 'yarn': {
      const originalContext = original ?? maxContext();
      const factor = parameters.optionalPositive('factor') ?? maxContext() / originalContext;
      const optional = (key: string, name: string): Record<string, number> => {
        const value = parameters.optionalNumber(key);
        return value === undefined || value === 0 ? {} : { [name]: value };
      };
      const truncate = parameters.optionalFlag('truncate');
      const scaling: RopeScaling = {
        kind: 'yarn',
        factor,
        originalContext,
        ...optional('beta_fast', 'betaFast'),
        ...optional('beta_slow', 'betaSlow'),
        ...optional('mscale', 'mscale'),
        ...optional('mscale_all_dim', 'mscaleAllDim'),
        ...(truncate === undefined ? {} : { truncate }),
      };
      if (parameters.has('mscale_all_dim'))
        notes.push('mscale_all_dim also scales the attention scores in DeepSeek models; that is no part of RoPE.');
      // transformers' get_mscale is 1 up to a factor of 1, where ggml goes on below 1.
      return { scaling, ...(factor <= 1 ? { attentionFactor: 1 } : {}), ...override };
    }
    default:
      return {};
  }
}

function contextOf({ options, notes }: Model, originalContext: number): number {
  if (options.context !== undefined) return options.context;
  notes.push(`The frequencies depend on the sequence length; one within the original context of ${originalContext} tokens is assumed.`);
  return originalContext;
}
