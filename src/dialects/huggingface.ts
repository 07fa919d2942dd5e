/**
 * HuggingFace: config.json → the effective RoPE of each layer.
 *
 * Reads the old form (rope_theta, rope_scaling) and the new one (rope_parameters, flat or by layer type), and fills in what
 * a file leaves out as the model's own classes do. What one plan a layer cannot say is refused: taken for something else it
 * would only show as a model that slowly loses its thread. A model that is in no table here is read by the common rules,
 * and a note says so.
 *
 * @module
 * @see huggingface/transformers@v5.18.0 src/transformers/modeling_rope_utils.py and models/NAME/{configuration,modeling}_NAME.py
 */
import { refuse } from '../core/errors.js';
import { Fields } from '../core/fields.js';
import type { RopeAxes } from '../ops/rope/axes.js';
import type { RopeScaling } from '../ops/rope/frequencies.js';
import type { Pairing, RopeSpec } from '../ops/rope/plan.js';
import { type LayerRope, type ModelRope, type ModelRopeOptions, readModelRopeOptions } from './model-rope.js';

const FULL = 'full_attention';
const SLIDING = 'sliding_attention';
const LINEAR = 'linear_attention';

/** Where a model departs from Llama: θ = 10000, head_dim = hidden_size / num_attention_heads, all of it turned, in halves. */
interface Rules {
  /** Where the file leaves rope_theta out; 10000 unless given. */
  readonly theta?: number;
  /** The old name of rope_theta, where it had another. */
  readonly thetaKey?: string;
  readonly pairing?: Pairing;
  /** The file may say rope_interleave: false, and halves are turned. */
  readonly readsInterleave?: true;
  /** Where the file leaves head_dim out. */
  readonly headDim?: number;
  /** head_dim of the full layers, where the file leaves global_head_dim out. */
  readonly globalHeadDim?: number;
  /** Where the file leaves qk_rope_head_dim out (MLA): a part of the head of its own, turned as a whole. */
  readonly mla?: number;
  /** Where the file leaves partial_rotary_factor out. Models without this do not read it. */
  readonly partial?: number;
  /** The old name of partial_rotary_factor, where it had another. */
  readonly partialKey?: string;
  /** Where the file leaves rotary_dim out. Models without this do not read it. */
  readonly rotaryDim?: number;
  /** The rule of the axes, and the sections where the file leaves mrope_section out. */
  readonly axes?: RopeAxes;
  /** Where the file leaves layer_types out: `other`, but full attention in every `period`-th layer, which a field may set. */
  readonly layers?: { readonly other: string; readonly period: number; readonly key?: string; readonly first?: true };
  /** The old name of a list of the full layers; the others are convolutions. All are full where it is left out too. */
  readonly attentionAt?: string;
  /** One RoPE a layer type, and how the old fields, [name, θ where left out], become two. rope_scaling is for full layers. */
  readonly byType?: {
    readonly full: [string, number];
    readonly sliding: [string, number];
    readonly scalesSliding?: true;
  };
  /** Full layers do not turn. */
  readonly onlySliding?: true;
  /** Every so many layers one does not turn, unless no_rope_layers says which. */
  readonly nopeEvery?: number;
  /** Without parameters transformers takes a scaling rule from one checkpoint: here the file must say. */
  readonly needsParameters?: true;
}

/** The same rules for several models. */
function each(models: string, rules: Rules): Record<string, Rules> {
  return Object.fromEntries(models.split(' ').map((name) => [name, rules]));
}

/** By model_type, without a closing _text. */
const MODELS: Readonly<Record<string, Rules>> = {
  ...each(
    'llama mistral ministral qwen2 qwen2_moe qwen3_moe olmo olmo2 olmoe starcoder2 granite granitemoe granitemoeshared',
    {},
  ),
  ...each('falcon falcon_h1 diffllama arcee dots1 jais2 hunyuan_v1_dense hunyuan_v1_moe', {}),
  ...each('mixtral phimoe lfm2_moe', { theta: 1e6 }),
  ...each('bitnet flex_olmo mllama', { theta: 5e5 }),
  ...each('gemma gemma2 vaultgemma', { headDim: 256 }),
  ...each('qwen3 seed_oss', { headDim: 128 }),
  smollm3: { theta: 2e6, nopeEvery: 4 },
  minimax: { theta: 1e6, layers: { other: LINEAR, period: 2, first: true } },
  hy_v3: { theta: 11158840, headDim: 128 },
  apertus: { theta: 12e6, needsParameters: true },
  cwm: { theta: 1e6, headDim: 128, needsParameters: true },
  ministral3: { headDim: 128, needsParameters: true },
  gpt_oss: { theta: 150000, headDim: 64, needsParameters: true },
  openai_privacy_filter: { theta: 150000, headDim: 64, needsParameters: true, pairing: 'interleaved' },

  // A part of each head turns.
  ...each('phi persimmon nemotron glm4_moe', { partial: 0.5 }),
  ...each('phi3 phi4_multimodal', { partial: 1 }),
  stablelm: { partial: 0.25 },
  gpt_neox: { partial: 0.25, partialKey: 'rotary_pct', thetaKey: 'rotary_emb_base' },
  gpt_neox_japanese: { partial: 1, partialKey: 'rotary_pct', thetaKey: 'rotary_emb_base' },
  solar_open: { theta: 1e6, headDim: 128, partial: 1 },
  minimax_m2: { theta: 5e6, headDim: 128, partial: 1 },
  qwen3_next: { headDim: 256, partial: 0.25, layers: { other: LINEAR, period: 4, key: 'full_attention_interval' } },

  // Neighbours turn.
  ...each('gptj codegen', { pairing: 'interleaved', rotaryDim: 64 }),
  ...each('cohere ernie4_5_moe', { pairing: 'interleaved', theta: 5e5 }),
  ...each('glm glm4', { pairing: 'interleaved', headDim: 128, partial: 0.5 }),
  ernie4_5: { pairing: 'interleaved', theta: 5e5, headDim: 128 },
  helium: { pairing: 'interleaved', theta: 1e5, headDim: 128 },
  moonshine: { pairing: 'interleaved', partial: 0.9 },
  llama4: { pairing: 'interleaved', theta: 5e5, headDim: 128, nopeEvery: 4 },

  // Multi-head latent attention.
  deepseek_v2: { mla: 64, pairing: 'interleaved' },
  ...each('deepseek_v3 youtu', { mla: 64, pairing: 'interleaved-to-half', readsInterleave: true }),
  glm4_moe_lite: { mla: 64, pairing: 'interleaved-to-half', readsInterleave: true, partial: 1 },
  mistral4: { mla: 64, pairing: 'interleaved-to-half', readsInterleave: true, needsParameters: true },
  ...each('deepseek_v32 glm_moe_dsa', { mla: 64, pairing: 'interleaved-to-half' }),
  longcat_flash: { mla: 64, pairing: 'interleaved-to-half', theta: 1e7 },
  minicpm3: { mla: 32 },

  // Several position axes.
  ...each('qwen2_vl qwen2_5_vl', { theta: 1e6, axes: { rule: 'sections', sections: [16, 24, 24] } }),
  paddleocr_vl: { theta: 5e5, headDim: 128, axes: { rule: 'sections', sections: [16, 24, 24] } },
  ...each('glm4v glm_ocr', { pairing: 'interleaved', partial: 1, axes: { rule: 'sections', sections: [8, 12, 12] } }),
  glm4v_moe: { partial: 0.5, axes: { rule: 'sections', sections: [8, 12, 12] } },
  qwen3_vl: { theta: 5e5, headDim: 128, axes: { rule: 'interleaved', sections: [24, 20, 20] } },
  qwen3_vl_moe: { theta: 5e5, axes: { rule: 'interleaved', sections: [24, 20, 20] } },
  ...each('qwen3_5 qwen3_5_moe', {
    headDim: 256,
    partial: 0.25,
    layers: { other: LINEAR, period: 4, key: 'full_attention_interval' },
    axes: { rule: 'interleaved', sections: [11, 11, 10] },
  }),

  // Layers differ.
  granitemoehybrid: { layers: { other: LINEAR, period: Number.POSITIVE_INFINITY } },
  lfm2: { theta: 1e6, attentionAt: 'full_attn_idxs' },
  cohere2: {
    pairing: 'interleaved',
    onlySliding: true,
    layers: { other: SLIDING, period: 4, key: 'sliding_window_pattern' },
  },
  ...each('exaone4 exaone_moe', {
    onlySliding: true,
    layers: { other: SLIDING, period: 4, key: 'sliding_window_pattern' },
  }),
  afmoe: { headDim: 128, onlySliding: true, layers: { other: SLIDING, period: 4, key: 'global_attn_every_n_layers' } },
  gemma3: {
    headDim: 256,
    layers: { other: SLIDING, period: 6, key: 'sliding_window_pattern' },
    byType: { full: ['rope_theta', 1e6], sliding: ['rope_local_base_freq', 1e4] },
  },
  gemma3n: {
    headDim: 256,
    layers: { other: SLIDING, period: 5 },
    byType: { full: ['rope_theta', 1e6], sliding: ['rope_local_base_freq', 1e4] },
  },
  ...each('gemma4 gemma4_unified', {
    headDim: 256,
    globalHeadDim: 512,
    layers: { other: SLIDING, period: 6 },
    byType: { full: ['rope_theta', 1e6], sliding: ['rope_theta', 1e4] },
    needsParameters: true,
  }),
  ...each('modernbert modernbert-decoder', {
    layers: { other: SLIDING, period: 3, key: 'global_attn_every_n_layers', first: true },
    byType: { full: ['global_rope_theta', 160000], sliding: ['local_rope_theta', 1e4], scalesSliding: true },
  }),
  olmo3: {
    layers: { other: SLIDING, period: 4 },
    // The sliding layers never see an old file's rope_theta.
    byType: { full: ['rope_theta', 5e5], sliding: ['rope_parameters.sliding_attention.rope_theta', 5e5] },
  },
};

/** Models without rotary embedding: naming them beats a guess. */
const WITHOUT_ROPE =
  'gpt2 bert roberta opt bloom mpt t5 gpt_bigcode gpt_neo mamba mamba2 distilbert bart xlnet jamba nemotron_h kimi_linear'.split(
    ' ',
  );
/** Models that turn in a way that no plan can say. */
const REFUSED: Readonly<Record<string, string>> = {
  nanochat: 'It turns the other way round, by minus the angle.',
  deepseek_v4: 'It also turns the attention output back, and its compressed keys have positions of their own.',
  cohere2_moe: 'Which of its full layers turn depends on where it is dense.',
  ernie4_5_vl_moe: 'It shares out the pairs among its axes in an order of its own.',
  cohere_compass: 'It shares out the pairs among its axes in an order of its own.',
  hunyuan_vl: 'It gives the two members of a pair to different axes.',
  neomme: 'It turns by rows and columns in turn.',
};
/** Layers of these types hold no attention, or one without position encoding. */
const WITHOUT_ATTENTION = [LINEAR, 'mamba', 'conv', 'recurrent'];
const KNOWN_TYPES = 'default, linear, dynamic, yarn, longrope (su), llama3, mrope or proportional';
/** No model comes near; a forged count stops here. */
const MAX_LAYERS = 10000;

/**
 * Reads the effective RoPE of each layer from a parsed config.json.
 *
 * @param json - the parsed file
 * @param given - the context in use, and the file's name for messages
 * @returns a layer each; `planRope({ ...layer.rope, positions })` makes it runnable
 * @throws {RopewalkError} FORMAT for missing or malformed fields; UNSUPPORTED for an unknown rope_type, a model without RoPE
 * or one whose rotation no plan can say
 */
export function ropeFromConfig(json: unknown, given: ModelRopeOptions = {}): ModelRope {
  const options = readModelRopeOptions(given, 'config.json');
  const outer = new Fields(json, options.where);
  // Multimodal configs keep the language model's in text_config; copies of its fields beside it do not count.
  const config = outer.optionalObject('text_config') ?? outer;
  const modelType =
    config.optionalText('model_type') ??
    outer.optionalText('model_type') ??
    refuse('FORMAT', config.path('model_type'), 'a text', undefined);
  const family = modelType.replace(/_text(_model)?$/, '');
  const rules = Object.hasOwn(MODELS, family) ? MODELS[family] : undefined;
  if (WITHOUT_ROPE.includes(family) || (family === 'falcon' && config.optionalFlag('alibi')))
    refuse('UNSUPPORTED', config.path('model_type'), 'a model with rotary position embedding', modelType);
  if (Object.hasOwn(REFUSED, family))
    refuse(
      'UNSUPPORTED',
      config.path('model_type'),
      'a model whose rotation a plan can say',
      modelType,
      REFUSED[family],
    );

  // GPT-J's code has θ = 10000 and no scaling written into it.
  for (const key of rules?.rotaryDim === undefined ? [] : ['rope_theta', 'rope_scaling', 'rope_parameters'])
    if (config.has(key))
      refuse('UNSUPPORTED', config.path(key), `nothing, as ${modelType} does not read it`, config.raw(key));

  const notes: string[] = [];
  if (!rules)
    notes.push(
      `${modelType} is not known here: as most models in transformers have it, RoPE is assumed to turn halves, in every attention layer, ` +
        'and as much of the head as partial_rotary_factor says.',
    );
  const model: Model = { config, modelType, family, rules, notes, ...sizesOf(config, rules), options };
  const layers: LayerRope[] = [];
  const cache = new Map<string, RopeSpec>();
  const types = layerTypes(model);
  for (let layer = 0; layer < model.numLayers; layer++) {
    const layerType = types[layer];
    const named = layerType === undefined ? {} : { layerType };
    if (!turns(model, layer, layerType)) {
      layers.push({ layer, ...named, rope: undefined });
      continue;
    }
    const headDim = headDimOf(model, layer, layerType);
    const key = `${headDim} ${layerType ?? ''}`;
    const rope = cache.get(key) ?? ropeOf({ ...model, headDim }, layerType);
    cache.set(key, rope);
    layers.push({ layer, ...named, rope });
  }
  return {
    source: 'huggingface',
    architecture: modelType,
    known: rules !== undefined,
    numLayers: model.numLayers,
    layers,
    maxContext: model.maxContext,
    notes: [...new Set(model.notes)],
  };
}

interface Model {
  readonly config: Fields;
  readonly modelType: string;
  readonly family: string;
  /** undefined for a model that is not known here. */
  readonly rules: Rules | undefined;
  readonly notes: string[];
  readonly options: ModelRopeOptions;
  readonly numLayers: number;
  readonly headDim: number;
  /** head_dim of single layers, by number. */
  readonly headDims: ReadonlyMap<number, number> | undefined;
  readonly maxContext: number | undefined;
}

/** The first of several fields that is there: models name one thing differently. */
function firstInteger(config: Fields, keys: readonly string[], high?: number): number | undefined {
  for (const key of keys) {
    const value = config.optionalInteger(key, 1, high);
    if (value !== undefined) return value;
  }
  return undefined;
}

function sizesOf(
  config: Fields,
  rules: Rules | undefined,
): Pick<Model, 'numLayers' | 'headDim' | 'headDims' | 'maxContext'> {
  const numLayers = config.need(
    firstInteger(config, ['num_hidden_layers', 'n_layer', 'num_layers'], MAX_LAYERS),
    'num_hidden_layers',
  );
  const maxContext = firstInteger(config, ['max_position_embeddings', 'n_positions', 'seq_length']);
  const overrides = config.optionalObject('per_layer_config');
  const headDims =
    overrides &&
    new Map(
      overrides
        .keys()
        .flatMap((key) => [[Number(key), overrides.optionalObject(key)?.optionalInteger('head_dim')] as const])
        .filter((entry): entry is readonly [number, number] => entry[1] !== undefined),
    );
  return { numLayers, headDim: commonHeadDim(config, rules), headDims, maxContext };
}

function commonHeadDim(config: Fields, rules: Rules | undefined): number {
  if (rules?.mla !== undefined) return config.optionalInteger('qk_rope_head_dim') ?? rules.mla;
  // head_dim need not be hidden_size / num_attention_heads; where it is given, it counts.
  const given = firstInteger(config, rules ? ['head_dim'] : ['qk_rope_head_dim', 'head_dim', 'kv_channels']);
  if (given !== undefined) return given;
  // head_dim: null is no omission, but asks for the quotient.
  if (rules?.headDim !== undefined && !config.keys().includes('head_dim')) return rules.headDim;
  const hidden = config.need(firstInteger(config, ['hidden_size', 'n_embd']), 'head_dim, or hidden_size');
  const heads = config.need(
    firstInteger(config, ['num_attention_heads', 'n_head']),
    'head_dim, or num_attention_heads',
  );
  if (hidden % heads !== 0)
    refuse(
      'FORMAT',
      config.path('hidden_size'),
      `a multiple of num_attention_heads=${heads}, or head_dim beside it`,
      hidden,
    );
  return hidden / heads;
}

function headDimOf({ config, rules, headDim, headDims }: Model, layer: number, layerType: string | undefined): number {
  if (headDims) return headDims.get(layer) ?? headDim;
  if (rules?.globalHeadDim === undefined || layerType !== FULL) return headDim;
  return config.optionalInteger('global_head_dim') ?? rules.globalHeadDim;
}

/** The kind of each layer, where a model has more than one. */
function layerTypes({ config, rules, numLayers }: Model): readonly (string | undefined)[] {
  const given = config.optionalList('layer_types');
  if (given) {
    if (given.length !== numLayers || !given.every((t) => typeof t === 'string')) {
      refuse('FORMAT', config.path('layer_types'), `${numLayers} texts, one a layer`, given.length);
    }
    // Gemma 4 makes its last layer a full one, whatever the file says.
    return rules?.globalHeadDim === undefined ? (given as string[]) : [...(given as string[]).slice(0, -1), FULL];
  }
  const full = rules?.attentionAt === undefined ? undefined : config.optionalNumbers(rules.attentionAt);
  if (full) return Array.from({ length: numLayers }, (_, layer) => (full.includes(layer) ? FULL : 'conv'));
  if (!rules?.layers) return new Array<undefined>(numLayers).fill(undefined);
  const { other, period: usual, key, first } = rules.layers;
  const period = (key === undefined ? undefined : config.optionalInteger(key)) ?? usual;
  const types = Array.from({ length: numLayers }, (_, layer) =>
    (first ? layer : layer + 1) % period === 0 ? FULL : other,
  );
  if (rules.globalHeadDim !== undefined) types[numLayers - 1] = FULL;
  return types;
}

/** Whether a layer turns: some hold no attention, some attend without position encoding (NoPE). */
function turns({ config, family, rules, numLayers }: Model, layer: number, layerType: string | undefined): boolean {
  if (layerType !== undefined && WITHOUT_ATTENTION.includes(layerType)) return false;
  // Granite 4 turns only where the file says so.
  if (family === 'granitemoehybrid') return config.optionalText('position_embedding_type') === 'rope';
  if (family === 'mllama')
    return !(config.optionalNumbers('cross_attention_layers') ?? [3, 8, 13, 18, 23, 28, 33, 38]).includes(layer);
  if (rules?.onlySliding) {
    // EXAONE with sliding_window: null has no sliding layers, and turns all.
    const windowless =
      family.startsWith('exaone') && config.keys().includes('sliding_window') && !config.has('sliding_window');
    return windowless || layerType === SLIDING;
  }
  if (rules && rules.nopeEvery === undefined) return true;
  const list = config.optionalList('no_rope_layers');
  if (list && list.length > 0) {
    if (list.length !== numLayers)
      refuse('FORMAT', config.path('no_rope_layers'), `${numLayers} entries, one a layer`, list.length);
    return Boolean(list[layer]); // 1 means that the layer does rotate, whatever the key's name suggests
  }
  return !rules || (layer + 1) % (config.optionalInteger('no_rope_layer_interval') ?? rules.nopeEvery!) !== 0;
}

/** What says how a layer turns, and whether the file says it by layer type. */
interface Parameters {
  readonly fields: Fields;
  readonly byType: boolean;
}

/** The parameters of one kind of layer: rope_scaling beside rope_theta, else rope_parameters, flat or by layer type. */
function parametersOf({ config, modelType, rules }: Model, layerType: string | undefined): Parameters {
  const parameters = notEmpty(config.optionalObject('rope_parameters'));
  const scaling = notEmpty(config.optionalObject('rope_scaling'));
  if (parameters && scaling) refuseContradiction(config, parameters, scaling);
  if (rules?.needsParameters && !parameters && !scaling)
    refuse(
      'FORMAT',
      config.path('rope_parameters'),
      'an object',
      undefined,
      `transformers has defaults of one ${modelType} checkpoint; write yours.`,
    );
  if (scaling && rules?.byType) {
    if (!rules.byType.scalesSliding && layerType !== FULL)
      return { fields: new Fields({}, config.path('rope_scaling')), byType: true };
    if (!scaling.has('rope_type') && scaling.has('type'))
      refuse('FORMAT', scaling.path('rope_type'), `a text, as ${modelType} does not read "type"`, undefined);
    return { fields: scaling, byType: true };
  }
  // As in transformers, rope_scaling comes first.
  if (scaling) return { fields: scaling, byType: false };
  if (!parameters) return { fields: new Fields({}, config.path('rope_scaling')), byType: rules?.byType !== undefined };
  const nested = parameters
    .keys()
    .map((key) => parameters.raw(key))
    .some((value) => typeof value === 'object' && value !== null && !Array.isArray(value));
  if (!nested && !rules?.byType) return { fields: parameters, byType: false };
  // Which layer is of which type must be known; the first entry for all would be a guess.
  const key = config.need(
    layerType,
    'layer_types',
    'a list, one text a layer, as rope_parameters is given by layer type',
  );
  const fields = config.need(
    parameters.optionalObject(key),
    `rope_parameters.${key}`,
    'an object for this type of layer',
  );
  return { fields, byType: true };
}

function notEmpty(fields: Fields | undefined): Fields | undefined {
  return fields && fields.keys().length > 0 ? fields : undefined;
}

/** Where a file has both forms, they must say the same: transformers reads rope_scaling, others may not. */
function refuseContradiction(config: Fields, parameters: Fields, scaling: Fields): void {
  const text = (value: unknown): string | undefined =>
    JSON.stringify(value, (_, v) => (typeof v === 'bigint' ? Number(v) : v));
  for (const key of parameters.keys()) {
    const said =
      key === 'rope_type' || key === 'type'
        ? (scaling.raw('rope_type') ?? scaling.raw('type'))
        : (scaling.raw(key) ?? config.raw(key));
    if (text(said) === text(parameters.raw(key))) continue;
    const expected = `what rope_parameters says, ${text(parameters.raw(key))}`;
    refuse('FORMAT', config.path(`rope_scaling.${key}`), expected, said, 'Delete one of the two.');
  }
}

function thetaOf({ config, modelType, rules, notes }: Model, fields: Fields, layerType: string | undefined): number {
  const own = fields.optionalPositive('rope_theta');
  if (own !== undefined) return own;
  if (!rules) {
    const theta = ['rope_theta', 'rotary_emb_base', 'rope_base']
      .map((key) => config.optionalPositive(key))
      .find((value) => value !== undefined);
    const next = `The default of ${modelType} is not known here; write it into the config.`;
    return theta ?? refuse('FORMAT', config.path('rope_theta'), 'a number', undefined, next);
  }
  const [key, known] = rules.byType?.[layerType === SLIDING ? 'sliding' : 'full'] ?? [
    rules.thetaKey ?? 'rope_theta',
    rules.theta ?? 10000,
  ];
  const theta = config.optionalPositive(key);
  if (theta !== undefined) return theta;
  notes.push(`${key} is missing: transformers' default for ${modelType}, ${known}, is used.`);
  return known;
}

function ropeOf(model: Model, layerType: string | undefined): RopeSpec {
  const { config, headDim } = model;
  const parameters = parametersOf(model, layerType);
  const type = typeOf(model, parameters.fields, layerType);
  const share = shareOf(model, parameters.fields, type);
  const rotaryDim = type === 'proportional' ? headDim : (rotaryDimOf(model) ?? Math.trunc(headDim * share));
  if (rotaryDim % 2 !== 0 || rotaryDim < 2 || rotaryDim > headDim) {
    refuse(
      'FORMAT',
      config.path('rotary_dim'),
      `an even number of dimensions in [2, head_dim=${headDim}]`,
      rotaryDim,
      'It is head_dim × partial_rotary_factor.',
    );
  }
  const base = thetaOf(model, parameters.fields, layerType);
  const axes = axesOf(model, parameters.fields);
  return {
    headDim,
    rotaryDim,
    pairing: pairingOf(model),
    base,
    ...scalingOf(model, parameters, { type, share, rotaryDim, base }),
    ...(axes ? { axes } : {}),
  };
}

function rotaryDimOf({ config, rules }: Model): number | undefined {
  return rules && rules.rotaryDim === undefined
    ? undefined
    : (config.optionalInteger('rotary_dim') ?? rules?.rotaryDim);
}

/** The share of each head that turns. */
function shareOf({ config, modelType, family, rules, headDim, notes }: Model, fields: Fields, type: string): number {
  // Mistral 4 writes down which part of the whole head qk_rope_head_dim is.
  if (family === 'mistral4') return 1;
  const old = rules?.partialKey ?? 'partial_rotary_factor';
  const dims = family === 'minimax_m2' ? config.optionalInteger('rotary_dim') : undefined;
  const share =
    fields.optionalPositive('partial_rotary_factor') ??
    config.optionalPositive(old) ??
    (rules ? undefined : config.optionalPositive('rotary_pct')) ??
    (dims === undefined ? (rules?.partial ?? 1) : dims / headDim);
  if (share > 1) refuse('FORMAT', config.path('partial_rotary_factor'), 'a number in (0, 1]', share);
  if (share === 1 || type === 'proportional' || !rules || rules.partial !== undefined) return share;
  if (type !== 'default')
    refuse(
      'UNSUPPORTED',
      config.path('partial_rotary_factor'),
      `1 beside rope_type ${type}`,
      share,
      `${modelType} fails on it in transformers.`,
    );
  notes.push(`${modelType} does not read partial_rotary_factor: the whole head turns.`);
  return 1;
}

function typeOf({ family }: Model, fields: Fields, layerType: string | undefined): string {
  const type = fields.optionalText('rope_type') ?? fields.optionalText('type') ?? 'default';
  const known: Record<string, string> = {
    default: 'default',
    mrope: 'default',
    linear: 'linear',
    dynamic: 'dynamic',
    // Early Phi-3 files say yarn, and give LongRoPE's factors.
    yarn: family === 'phi3' || family === 'phi4_multimodal' ? 'longrope' : 'yarn',
    longrope: 'longrope',
    su: 'longrope',
    llama3: 'llama3',
    proportional: 'proportional',
  };
  if (Object.hasOwn(known, type)) return known[type]!;
  return refuse('UNSUPPORTED', `${fields.path('rope_type')}${layerType ? ` (${layerType})` : ''}`, KNOWN_TYPES, type);
}

function pairingOf({ config, rules, notes }: Model): Pairing {
  if (rules?.mla !== undefined || (!rules && config.has('qk_rope_head_dim')))
    notes.push(
      'RoPE turns the qk_rope_head_dim part of each head; the other part (qk_nope_head_dim) is not among these dimensions.',
    );
  if (rules?.readsInterleave && config.optionalFlag('rope_interleave') === false) return 'half';
  return rules?.pairing ?? 'half';
}

function axesOf({ modelType, rules, notes }: Model, fields: Fields): RopeAxes | undefined {
  const given = fields.optionalNumbers('mrope_section');
  if (rules && !rules.axes) {
    if (given) notes.push(`${modelType} does not read mrope_section.`);
    return undefined;
  }
  const sections = given ?? rules?.axes?.sections;
  if (!sections) return undefined;
  if (sections.length < 3 || sections.length > 4 || !sections.every((n) => Number.isInteger(n) && n >= 0)) {
    refuse('FORMAT', fields.path('mrope_section'), 'three or four integers', sections);
  }
  return {
    rule: rules?.axes?.rule ?? (fields.optionalFlag('mrope_interleaved') ? 'interleaved' : 'sections'),
    sections,
  };
}

/** The context the model was trained with, where the file says it. */
function originalContextOf({ config, family, rules }: Model, { fields, byType }: Parameters): number | undefined {
  const key = 'original_max_position_embeddings';
  const own = fields.optionalInteger(key);
  // PhiMoE and parameters by layer type have one place for it; elsewhere the outer one wins.
  if (byType || family === 'phimoe') return own;
  const outer = config.optionalInteger(key);
  return outer ?? (rules && (family === 'phi3' || family === 'phi4_multimodal') ? 4096 : own);
}

/** The scaling rule, and the attention factor or base where transformers computes them otherwise than the rule itself. */
function scalingOf(
  model: Model,
  parameters: Parameters,
  { type, share, rotaryDim, base }: { type: string; share: number; rotaryDim: number; base: number },
): Pick<RopeSpec, 'scaling' | 'attentionFactor'> & { base?: number } {
  const { config, family, headDim, notes } = model;
  const { fields, byType } = parameters;
  const maxContext = (): number => config.need(model.maxContext, 'max_position_embeddings');
  const original = originalContextOf(model, parameters);
  const given = fields.optionalPositive('attention_factor');
  const override = given === undefined ? {} : { attentionFactor: given };
  const needFactor = (): number => fields.need(fields.optionalPositive('factor'), 'factor');
  if (family === 'phimoe' && type !== 'default' && type !== 'longrope')
    refuse('UNSUPPORTED', fields.path('rope_type'), 'default or longrope, for phimoe', type);
  switch (type) {
    case 'linear':
      return { scaling: { kind: 'linear', factor: needFactor() } };
    case 'dynamic': {
      const originalContext = maxContext();
      notes.push(
        'Dynamic NTK changes the base with the sequence length: keys cached at a shorter length carry the old one.',
      );
      const context = contextOf(model, originalContext);
      // HunYuan raises the base once and for all; past the context transformers forgets about it.
      const alpha = family.startsWith('hunyuan_v1') ? fields.optionalPositive('alpha') : undefined;
      if (alpha !== undefined && context <= originalContext) return { base: base * alpha ** (headDim / (headDim - 2)) };
      return { scaling: { kind: 'dynamicNtk', factor: needFactor(), originalContext, context } };
    }
    case 'proportional': {
      const rotatedPairs = Math.floor((share * headDim) / 2);
      return { scaling: { kind: 'proportional', rotatedPairs, factor: fields.optionalPositive('factor') ?? 1 } };
    }
    case 'llama3':
      return {
        scaling: {
          kind: 'llama3',
          factor: needFactor(),
          lowFreqFactor: fields.need(fields.optionalPositive('low_freq_factor'), 'low_freq_factor'),
          highFreqFactor: fields.need(fields.optionalPositive('high_freq_factor'), 'high_freq_factor'),
          originalContext: fields.need(original, 'original_max_position_embeddings'),
        },
      };
    case 'longrope': {
      const pairs = rotaryDim / 2;
      const factors = (key: string): number[] => {
        const list = fields.need(fields.optionalNumbers(key), key);
        return list.length === pairs
          ? list
          : refuse('FORMAT', fields.path(key), `${pairs} numbers, one a pair`, list.length);
      };
      const originalContext = original ?? maxContext();
      const shortFactor = factors('short_factor');
      const longFactor = factors('long_factor');
      const context = contextOf(model, originalContext);
      if (family === 'phimoe') {
        // Its forward pass asks for no length, and so never gets the long factors; only the magnitude changes.
        const key = context > originalContext ? 'long_mscale' : 'short_mscale';
        const attentionFactor = fields.need(fields.optionalPositive(key), key);
        return {
          scaling: { kind: 'longrope', shortFactor, longFactor: shortFactor, originalContext, context },
          attentionFactor,
        };
      }
      // Phi-3 and others leave the factor out, and it follows from the two contexts.
      const factor = fields.optionalPositive('factor') ?? maxContext() / originalContext;
      return { scaling: { kind: 'longrope', shortFactor, longFactor, originalContext, context, factor }, ...override };
    }
    case 'yarn': {
      const originalContext = original ?? maxContext();
      const factor = fields.optionalPositive('factor') ?? maxContext() / originalContext;
      const optional = (key: string, name: string): Record<string, number> => {
        const value = fields.optionalNumber(key);
        return value === undefined || value === 0 ? {} : { [name]: value };
      };
      // By layer type, transformers looks for truncate where it is not.
      const truncate = byType ? undefined : fields.optionalFlag('truncate');
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
      if (fields.has('mscale_all_dim'))
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
  notes.push(
    `The frequencies depend on the sequence length; one within the original context of ${originalContext} tokens is assumed.`,
  );
  return originalContext;
}
