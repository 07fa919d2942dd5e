/**
 * Reads the effective RoPE of each layer from HuggingFace's config.json.
 *
 * The old form has rope_theta and rope_scaling, the new one rope_parameters, flat or by layer type. Missing fields get
 * the defaults of the model's classes. A rotation that one plan a layer cannot express is refused. A model that is in no
 * table here is read by the common rules, and a note says so.
 *
 * @module
 * @see huggingface/transformers@v5.18.0 src/transformers/modeling_rope_utils.py
 * @see huggingface/transformers@v5.18.0 src/transformers/models/NAME/{configuration,modeling}_NAME.py
 */

import type { Pairing, RopeAxes, RopeScaling, RopeSpec } from 'ropewalk';
import { fail, refuse } from 'ropewalk/backend';
import { Fields } from 'ropewalk/internal';
import { type FourReading, notesOnFour, readAsFour } from './huggingface-four.js';
import { FULL, familyOf, LINEAR, REFUSED, type Rules, rulesOf, SLIDING, WITHOUT_ROPE } from './huggingface-models.js';
import type { LayerRope, ModelRope, ModelRopeOptions } from './model-rope.js';
import { compact, readModelRopeOptions, shareRecord } from './model-rope.js';

/** Layers of these types have no attention or no position encoding. */
const WITHOUT_ATTENTION = [LINEAR, 'mamba', 'conv', 'recurrent'];
const TYPES = 'default linear dynamic yarn longrope llama3 proportional'.split(' ');
const KNOWN_TYPES = 'default, linear, dynamic, yarn, longrope (su), llama3, mrope or proportional';
/** Bounds the counts of forged files. */
const MAX_LAYERS = 10000;

/**
 * Reads the effective RoPE of each layer from a parsed config.json.
 *
 * @param json - the parsed file
 * @param given - the context in use, and the file's name for messages
 * @returns one record a layer; `planRope({ ...layer.rope, positions })` plans it
 * @throws {RopewalkError} FORMAT for missing or malformed fields; UNSUPPORTED for an unknown rope_type, a model without
 *   RoPE, or one whose rotation no plan can express
 */
export function ropeFromConfig(json: unknown, given: ModelRopeOptions = {}): ModelRope {
  return readingsOfConfig(json, given).five;
}

/** The base in the code of GPT-J and CodeGen. */
const GPTJ_BASE = 10000;

/**
 * Reads a parsed config.json as transformers 5 and 4 do.
 *
 * @param json - the parsed file
 * @param given - the context in use, and the file's name for messages
 * @returns `four` where transformers 4 may read the file differently
 * @throws {RopewalkError} as {@link ropeFromConfig}
 */
export function readingsOfConfig(
  json: unknown,
  given: ModelRopeOptions = {},
): { five: ModelRope; four: FourReading | undefined } {
  const options = readModelRopeOptions(given, 'config.json');
  const outer = new Fields(json, options.where);
  // Multimodal configs keep the language model in text_config; copies of its fields outside do not count.
  const config = outer.optionalObject('text_config') ?? outer;
  const modelType =
    config.optionalText('model_type') ??
    outer.optionalText('model_type') ??
    refuse('FORMAT', config.path('model_type'), 'a string', undefined);
  const family = familyOf(modelType);
  const rules = rulesOf(family);
  if (WITHOUT_ROPE.includes(family) || (family === 'falcon' && config.optionalFlag('alibi')))
    refuse('UNSUPPORTED', config.path('model_type'), 'a model with rotary position embedding', modelType);
  const lacks = `a plan cannot express the RoPE of ${modelType}`;
  if (Object.hasOwn(REFUSED, family)) fail('UNSUPPORTED', config.path('model_type'), `${lacks}: ${REFUSED[family]}`);

  // GPT-J's code has no scaling, and one base.
  for (const key of rules?.rotaryDim === undefined ? [] : ['rope_theta', 'rope_scaling', 'rope_parameters'])
    if (config.has(key) && !(key === 'rope_theta' && config.raw(key) === GPTJ_BASE))
      fail('UNSUPPORTED', config.path(key), `${modelType} does not read it. Remove it.`);

  const notes: string[] = [];
  if (!rules)
    notes.push(
      `${modelType} is unknown here. As in most models of transformers, every attention layer is assumed to rotate ` +
        'the part of the head that partial_rotary_factor gives, with half pairing.',
    );
  const read = (own: Fields, ownRules: Rules | undefined, ownNotes: string[]): [Model, LayerRope[]] => {
    const model = { config: own, modelType, family, rules: ownRules, notes: ownNotes, options };
    const sized: Model = { ...model, ...sizesOf(own, ownRules) };
    return [sized, layersOf(sized)];
  };
  const [model, layers] = read(config, rules, notes);
  const four = readAsFour(config, family, rules, (own, ownRules) => read(own, ownRules, [])[1]);
  notes.push(...notesOnFour(four, layers));
  const five: ModelRope = {
    source: 'huggingface',
    architecture: modelType,
    known: rules !== undefined,
    numLayers: model.numLayers,
    layers,
    maxContext: model.maxContext,
    notes: [...new Set(model.notes)],
  };
  return { five, four };
}

function layersOf(model: Model): LayerRope[] {
  const cache = new Map<string, RopeSpec>();
  const records = new Map<string, RopeSpec>();
  return layerTypes(model).map((layerType, layer) => {
    let rope: RopeSpec | undefined;
    if (rotates(model, layer, layerType)) {
      const headDim = headDimOf(model, layer, layerType);
      const key = `${headDim} ${layerType ?? ''}`;
      rope = cache.get(key) ?? shareRecord(ropeOf({ ...model, headDim }, layerType), records);
      cache.set(key, rope);
    }
    return { layer, layerType, window: windowOf(model, layer, layerType, rope !== undefined), rope };
  });
}

interface Model {
  readonly config: Fields;
  readonly modelType: string;
  readonly family: string;
  /** An unknown model has none. */
  readonly rules: Rules | undefined;
  readonly notes: string[];
  readonly options: ModelRopeOptions;
  readonly numLayers: number;
  readonly headDim: number;
  /** The head_dim of each layer, where layers differ. */
  readonly headDims: ReadonlyMap<number, number> | undefined;
  readonly maxContext: number | undefined;
}

/** Reads the first field that is present, as models use different names. */
function firstInteger(config: Fields, keys: readonly string[], high?: number): number | undefined {
  for (const key of keys) {
    const value = config.optionalInteger(key, 1, high);
    if (value !== undefined) return value;
  }
  return undefined;
}

function sizesOf(config: Fields, rules: Rules | undefined) {
  const count = firstInteger(
    config,
    ['num_hidden_layers', 'n_layer', 'num_layers', 'decoder_num_hidden_layers'],
    MAX_LAYERS,
  );
  const numLayers = config.need(count, 'num_hidden_layers');
  const maxContext = firstInteger(config, ['max_position_embeddings', 'n_positions', 'seq_length']) ?? rules?.context;
  const overrides = config.optionalObject('per_layer_config');
  const headDims = overrides && new Map<number, number>();
  for (const key of overrides?.keys() ?? []) {
    const own = overrides!.optionalObject(key)?.optionalInteger('head_dim');
    if (own !== undefined) headDims!.set(Number(key), own);
  }
  return { numLayers, headDim: commonHeadDim(config, rules), headDims, maxContext };
}

function commonHeadDim(config: Fields, rules: Rules | undefined): number {
  if (rules?.mla !== undefined) return config.optionalInteger('qk_rope_head_dim') ?? rules.mla;
  const given = firstInteger(config, rules ? ['head_dim'] : ['qk_rope_head_dim', 'head_dim', 'kv_channels']);
  if (given !== undefined) return given;
  // head_dim: null asks for the quotient.
  if (rules?.headDim !== undefined && !config.keys().includes('head_dim')) return rules.headDim;
  const hidden = config.need(firstInteger(config, ['hidden_size', 'n_embd']), 'head_dim, or hidden_size');
  const count = firstInteger(config, ['num_attention_heads', 'n_head', 'decoder_num_attention_heads']);
  const heads = config.need(count, 'head_dim, or num_attention_heads');
  if (hidden % heads === 0) return hidden / heads;
  const expected = `a multiple of num_attention_heads=${heads}, or head_dim beside it`;
  return refuse('FORMAT', config.path('hidden_size'), expected, hidden);
}

function headDimOf({ config, rules, headDim, headDims }: Model, layer: number, layerType: string | undefined): number {
  if (headDims) return headDims.get(layer) ?? headDim;
  if (rules?.globalHeadDim === undefined || layerType !== FULL) return headDim;
  return config.optionalInteger('global_head_dim') ?? rules.globalHeadDim;
}

/** Lists the type of each layer, where a model has several. */
function layerTypes({ config, rules, numLayers }: Model): readonly (string | undefined)[] {
  const given = config.optionalList('layer_types');
  if (given) {
    if (given.length !== numLayers || !given.every((t) => typeof t === 'string'))
      refuse('FORMAT', config.path('layer_types'), `${numLayers} strings, one for each layer`, given.length);
    // Gemma 4's last layer is always full.
    return rules?.globalHeadDim === undefined ? (given as string[]) : [...(given as string[]).slice(0, -1), FULL];
  }
  const full = rules?.attentionAt === undefined ? undefined : config.optionalNumbers(rules.attentionAt);
  if (full) return Array.from({ length: numLayers }, (_item, layer) => (full.includes(layer) ? FULL : 'conv'));
  if (!rules?.layers) return new Array<undefined>(numLayers).fill(undefined);
  const { other, period: usual, key, first } = rules.layers;
  const period = (key === undefined ? undefined : config.optionalInteger(key)) ?? usual;
  const start = first ? 0 : 1;
  const types = Array.from({ length: numLayers }, (_item, n) => ((n + start) % period === 0 ? FULL : other));
  if (rules.globalHeadDim !== undefined) types[numLayers - 1] = FULL;
  return types;
}

/** Says whether a layer rotates. Some have no attention, some have no position encoding (NoPE). */
function rotates({ config, family, rules, numLayers }: Model, layer: number, layerType: string | undefined): boolean {
  if (layerType !== undefined && WITHOUT_ATTENTION.includes(layerType)) return false;
  // Granite 4 rotates only where the file says so.
  if (family === 'granitemoehybrid') return config.optionalText('position_embedding_type') === 'rope';
  if (family === 'mllama')
    return !(config.optionalNumbers('cross_attention_layers') ?? [3, 8, 13, 18, 23, 28, 33, 38]).includes(layer);
  if (rules?.onlySliding) {
    // EXAONE with sliding_window: null has no sliding layers, and rotates all.
    const windowless =
      family.startsWith('exaone') && config.keys().includes('sliding_window') && !config.has('sliding_window');
    return windowless || layerType === SLIDING;
  }
  if (rules && rules.nopeEvery === undefined) return true;
  const list = config.optionalList('no_rope_layers');
  if (list && list.length > 0) {
    if (list.length !== numLayers)
      refuse('FORMAT', config.path('no_rope_layers'), `${numLayers} entries, one for each layer`, list.length);
    return Boolean(list[layer]); // The number 1 means that the layer does rotate.
  }
  return !rules || (layer + 1) % (config.optionalInteger('no_rope_layer_interval') ?? rules.nopeEvery!) !== 0;
}

/** Counts the tokens that a layer sees; undefined for all. */
function windowOf({ config, rules }: Model, layer: number, layerType: string | undefined, rotates: boolean) {
  // Some classes read no window.
  if (rules && !rules.window && rules.layers?.other !== SLIDING) return undefined;
  const { size, layers } = rules?.window ?? {};
  const optional = layers !== undefined && layers !== 'all';
  if (optional && !config.optionalFlag('use_sliding_window')) return undefined;
  const slides = (): boolean => {
    const first = (): number => config.optionalInteger('max_window_layers', 0) ?? 28;
    if (layers === 'late') return layer >= first();
    if (layers === 'early') return layer % 2 === 0 && layer < first();
    return layers === 'nope' ? !rotates : layers !== undefined;
  };
  if (!(layerType === undefined ? slides() : layerType === SLIDING)) return undefined;
  // A missing window is the class's default; null means none.
  const given = config.keys().includes('sliding_window');
  return given ? config.optionalInteger('sliding_window', 0) || undefined : size;
}

/** The fields of a layer's RoPE. The file may have them by layer type. */
interface Parameters {
  readonly fields: Fields;
  readonly byType: boolean;
}

/** Finds the parameters of a layer: rope_scaling beside rope_theta, else rope_parameters, flat or by layer type. */
function parametersOf({ config, modelType, rules }: Model, layerType: string | undefined): Parameters {
  const parameters = notEmpty(config.optionalObject('rope_parameters'));
  const scaling = notEmpty(config.optionalObject('rope_scaling'));
  if (parameters && scaling) refuseContradiction(config, parameters, scaling);
  if (rules?.needsParameters && !parameters && !scaling) {
    const next = `transformers' defaults are those of one ${modelType} checkpoint. Add this model's own.`;
    refuse('FORMAT', config.path('rope_parameters'), 'an object', undefined, next);
  }
  if (scaling && rules?.byType) {
    if (!rules.byType.scalesSliding && layerType !== FULL)
      return { fields: new Fields({}, config.path('rope_scaling')), byType: true };
    if (!scaling.has('rope_type') && scaling.has('type'))
      refuse('FORMAT', scaling.path('rope_type'), `a string, as ${modelType} does not read "type"`, undefined);
    return { fields: scaling, byType: !rules.flatScaling };
  }
  if (scaling) return { fields: scaling, byType: false };
  if (!parameters) return { fields: new Fields({}, config.path('rope_scaling')), byType: rules?.byType !== undefined };
  const isObject = (value: unknown) => typeof value === 'object' && value !== null && !Array.isArray(value);
  const nested = parameters.keys().some((key) => isObject(parameters.raw(key)));
  if (!nested && !rules?.byType) return { fields: parameters, byType: false };
  const needed = 'a list of strings, one for each layer, because rope_parameters is by layer type';
  const key = config.need(layerType, 'layer_types', needed);
  const own = parameters.optionalObject(key);
  return { fields: config.need(own, `rope_parameters.${key}`, 'an object for this type of layer'), byType: true };
}

function notEmpty(fields: Fields | undefined): Fields | undefined {
  return fields && fields.keys().length > 0 ? fields : undefined;
}

/** Refuses two forms that disagree: transformers reads rope_scaling, others may read the other. */
function refuseContradiction(config: Fields, parameters: Fields, scaling: Fields): void {
  const text = (value: unknown): string | undefined =>
    JSON.stringify(value, (_key, v) => (typeof v === 'bigint' ? Number(v) : v));
  for (const key of parameters.keys()) {
    const isType = key === 'rope_type' || key === 'type';
    const other = isType ? (scaling.raw('rope_type') ?? scaling.raw('type')) : (scaling.raw(key) ?? config.raw(key));
    if (text(other) === text(parameters.raw(key))) continue;
    const expected = `${text(parameters.raw(key))}, as in rope_parameters`;
    refuse('FORMAT', config.path(`rope_scaling.${key}`), expected, other, 'Delete one of the two.');
  }
}

function thetaOf({ config, modelType, rules, notes }: Model, fields: Fields, layerType: string | undefined): number {
  const own = fields.optionalPositive('rope_theta');
  if (own !== undefined) return own;
  if (!rules) {
    const keys = ['rope_theta', 'rotary_emb_base', 'rope_base'];
    const theta = keys.map((key) => config.optionalPositive(key)).find((value) => value !== undefined);
    const next = `The default of ${modelType} is unknown here. Add it to the config.`;
    return theta ?? refuse('FORMAT', config.path('rope_theta'), 'a number', undefined, next);
  }
  if (rules.ratioKey !== undefined) return (rules.theta ?? 10000) * (config.optionalPositive(rules.ratioKey) ?? 1);
  const [key, known] = rules.byType?.[layerType === SLIDING ? 'sliding' : 'full'] ?? [
    rules.thetaKey ?? 'rope_theta',
    rules.theta ?? 10000,
  ];
  const theta = config.optionalPositive(key);
  if (theta !== undefined) return theta;
  notes.push(`${key} is missing. transformers' default for ${modelType} is used: ${known}.`);
  return known;
}

function ropeOf(model: Model, layerType: string | undefined): RopeSpec {
  const { config, headDim } = model;
  const parameters = parametersOf(model, layerType);
  const type = typeOf(model, parameters.fields, layerType);
  const share = shareOf(model, parameters.fields, type);
  const rotaryDim = type === 'proportional' ? headDim : (rotaryDimOf(model) ?? Math.trunc(headDim * share));
  if (rotaryDim % 2 !== 0 || rotaryDim < 2 || rotaryDim > headDim) {
    const expected = `an even number of dimensions in [2, head_dim=${headDim}]`;
    refuse('FORMAT', config.path('rotary_dim'), expected, rotaryDim, 'It is head_dim × partial_rotary_factor.');
  }
  const base = thetaOf(model, parameters.fields, layerType);
  const axes = axesOf(model, parameters.fields);
  const scaled = scalingOf(model, parameters, { type, share, rotaryDim, base });
  return compact<RopeSpec>({ headDim, rotaryDim, pairing: pairingOf(model), base, axes, ...scaled });
}

function rotaryDimOf({ config, rules }: Model): number | undefined {
  if (rules && rules.rotaryDim === undefined) return undefined;
  return config.optionalInteger('rotary_dim') ?? rules?.rotaryDim;
}

function shareOf({ config, modelType, family, rules, headDim, notes }: Model, fields: Fields, type: string): number {
  // Mistral 4's factor tells which part of the whole head qk_rope_head_dim is.
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
  if (type !== 'default') {
    const next = `${modelType} fails on it in transformers.`;
    refuse('UNSUPPORTED', config.path('partial_rotary_factor'), `1 beside rope_type ${type}`, share, next);
  }
  notes.push(`${modelType} does not read partial_rotary_factor: the whole head rotates.`);
  return 1;
}

function typeOf({ family }: Model, fields: Fields, layerType: string | undefined): string {
  const type = fields.optionalText('rope_type') ?? fields.optionalText('type') ?? 'default';
  // Early Phi-3 files say yarn but have LongRoPE's factors.
  if (type === 'yarn' && (family === 'phi3' || family === 'phi4_multimodal')) return 'longrope';
  if (type === 'mrope') return 'default';
  if (type === 'su') return 'longrope';
  if (TYPES.includes(type)) return type;
  return refuse('UNSUPPORTED', `${fields.path('rope_type')}${layerType ? ` (${layerType})` : ''}`, KNOWN_TYPES, type);
}

function pairingOf({ config, rules, notes }: Model): Pairing {
  if (rules?.mla !== undefined || (!rules && config.has('qk_rope_head_dim')))
    notes.push('head_dim is qk_rope_head_dim, the part of each head that rotates. qk_nope_head_dim is not included.');
  if (rules?.interleaveKey !== undefined && config.optionalFlag(rules.interleaveKey) === false) return 'half';
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
  if (sections.length < 3 || sections.length > 4 || !sections.every((n) => Number.isInteger(n) && n >= 0))
    refuse('FORMAT', fields.path('mrope_section'), 'three or four integers', sections);
  const rule = rules?.axes?.rule ?? (fields.optionalFlag('mrope_interleaved') ? 'interleaved' : 'sections');
  return { rule, sections };
}

function originalContextOf({ config, family, rules }: Model, { fields, byType }: Parameters): number | undefined {
  const key = 'original_max_position_embeddings';
  const own = fields.optionalInteger(key);
  // The outer field wins, but not in PhiMoE and not in parameters by layer type.
  if (byType || family === 'phimoe') return own;
  const outer = config.optionalInteger(key);
  return outer ?? (rules && (family === 'phi3' || family === 'phi4_multimodal') ? 4096 : own);
}

/** Reads the scaling rule, and the attention factor or base where transformers' differ from the rule's. */
function scalingOf(
  model: Model,
  parameters: Parameters,
  { type, share, rotaryDim, base }: { type: string; share: number; rotaryDim: number; base: number },
): Partial<RopeSpec> {
  const { config, family, rules, headDim, notes } = model;
  const { fields, byType } = parameters;
  const maxContext = (): number => config.need(model.maxContext, 'max_position_embeddings');
  const original = originalContextOf(model, parameters);
  const attentionFactor = fields.optionalPositive('attention_factor');
  const needFactor = (): number => fields.need(fields.optionalPositive('factor'), 'factor');
  if (family === 'phimoe' && type !== 'default' && type !== 'longrope')
    refuse('UNSUPPORTED', fields.path('rope_type'), 'default or longrope, for phimoe', type);
  switch (type) {
    case 'linear':
      return { scaling: { kind: 'linear', factor: needFactor() } };
    case 'dynamic': {
      const originalContext = maxContext();
      const warning = 'Dynamic NTK changes the base with the sequence length';
      notes.push(`${warning}; keys cached at a shorter length keep the old one.`);
      const context = contextOf(model, originalContext);
      // HunYuan raises the base by alpha; past the context transformers ignores alpha.
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
          originalContext: original ?? maxContext(),
        },
      };
    case 'longrope': {
      const pairs = rotaryDim / 2;
      const factors = (key: string): number[] => {
        const list = fields.need(fields.optionalNumbers(key), key);
        if (list.length === pairs) return list;
        return refuse('FORMAT', fields.path(key), `${pairs} numbers, one for each pair`, list.length);
      };
      const originalContext = original ?? maxContext();
      const shortFactor = factors('short_factor');
      const longFactor = factors('long_factor');
      const context = contextOf(model, originalContext);
      if (family === 'phimoe') {
        // PhiMoE's forward pass never uses the long factors; only the magnitude changes.
        const key = context > originalContext ? 'long_mscale' : 'short_mscale';
        return {
          scaling: { kind: 'longrope', shortFactor, longFactor: shortFactor, originalContext, context },
          attentionFactor: fields.need(fields.optionalPositive(key), key),
        };
      }
      const factor = fields.optionalPositive('factor') ?? maxContext() / originalContext;
      const scaling: RopeScaling = { kind: 'longrope', shortFactor, longFactor, originalContext, context, factor };
      return { scaling, attentionFactor };
    }
    case 'yarn': {
      const originalContext = original ?? maxContext();
      const factor = fields.optionalPositive('factor') ?? maxContext() / originalContext;
      // transformers takes 0 as missing.
      const optional = (key: string): number | undefined => fields.optionalNumber(key) || undefined;
      const scaling = compact<RopeScaling>({
        kind: 'yarn',
        factor,
        originalContext,
        betaFast: optional('beta_fast'),
        betaSlow: optional('beta_slow'),
        mscale: optional('mscale'),
        mscaleAllDim: optional('mscale_all_dim'),
        // In parameters by layer type, transformers does not find truncate.
        truncate: byType ? undefined : fields.optionalFlag('truncate'),
      });
      if (fields.has('mscale_all_dim') && (!rules || rules.mla !== undefined))
        notes.push('DeepSeek models also scale the attention scores by mscale_all_dim, which is not part of RoPE.');
      // transformers' get_mscale is 1 for factors up to 1; ggml's is below 1 there.
      return { scaling, attentionFactor: attentionFactor ?? (factor <= 1 ? 1 : undefined) };
    }
    default:
      return {};
  }
}

function contextOf({ options, notes }: Model, originalContext: number): number {
  if (options.context !== undefined) return options.context;
  notes.push(`The frequencies depend on the sequence length; up to ${originalContext} tokens are assumed.`);
  return originalContext;
}
