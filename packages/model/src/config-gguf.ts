/**
 * Writes {@link DecoderConfig} as GGUF's keys. It is configFromGguf backwards, for models that come from a HuggingFace
 * folder. The keys are read back and compared, so a model that they cannot express is refused.
 *
 * @module
 * @see ggml-org/llama.cpp@de3ff815 conversion/NAME.py and src/models/NAME.cpp load_arch_hparams
 */
import { convertRope } from '@ropewalk/dialects';
import type { GgufValue } from '@ropewalk/formats';
import type { TypedValue } from '@ropewalk/formats/internal';
import { frequenciesOf, type RopeSpec } from 'ropewalk';
import { fail } from 'ropewalk/backend';
import { countLayers, nameLayers } from 'ropewalk/internal';
import { normalQuantile } from './config.js';
import type { Family } from './families.js';
import type { DecoderConfig, ExpertConfig } from './types.js';

/** The metadata of a model, without its vocabulary. */
export interface GgufConfig {
  readonly metadata: Map<string, TypedValue>;
  /** Frequency factors by name; in the file they are tensors. */
  readonly factors: ReadonlyMap<string, Float32Array>;
}

/** The ends of keys whose numbers are integers. Other numbers are f32. */
const INTEGERS =
  /(_length|_length_mla|_length_swa|_count|_count_kv|_count_swa|_window|_rank|_func|_size|_cache|_kernel|_layer_step|_layers|_layer_input|_idx|_inputs)$/;

/**
 * @param explicit - whether the keys repeat llama.cpp's rules for the architecture: which layers slide, and their base
 * @throws {RopewalkError} UNSUPPORTED for a RoPE that the architecture has no keys for
 */
export function configToGguf(config: DecoderConfig, explicit = false): GgufConfig {
  const { family, latent, experts } = config;
  if (config.bidirectional) fail('UNSUPPORTED', 'gguf', ENCODER_UNWRITTEN);
  const a = family.gguf;
  if (config.recurrent?.kind === 'conv' && config.biases.conv === true)
    fail('UNSUPPORTED', 'gguf: conv_bias', `a GGUF of ${a} has no place for biases of convolutions.`);
  const rope = ropeKeys(config, explicit);
  const keys: Record<string, unknown> = {
    vocab_size: config.vocabSize,
    context_length: config.maxContext,
    block_count: config.numLayers,
    embedding_length: config.hiddenSize,
    feed_forward_length: config.intermediateSize,
    'attention.head_count': config.numHeads,
    // The latent vector is one head of keys, and its part without positions is their values.
    'attention.head_count_kv': latent ? 1 : kvHeadsOf(config),
    'attention.key_length': latent ? latent.rank + latent.rope : config.headDim,
    'attention.value_length': latent ? latent.rank : config.valueDim,
    'attention.key_length_mla': latent && config.headDim,
    'attention.value_length_mla': latent && config.valueDim,
    'attention.kv_lora_rank': latent?.rank,
    'attention.q_lora_rank': latent && (latent.queryRank ?? 0),
    [`attention.layer_norm_${family.norm ? '' : 'rms_'}epsilon`]: config.normEps,
    ...recurrentKeys(config),
    ...sizesKeys(config),
    use_parallel_residual: family.parallel?.when === 'flag' ? config.parallel : undefined,
    ...windowKeys(config, explicit),
    ...(experts ? expertKeys(experts, config) : latent ? denseKeys(config) : {}),
    ...MULTIPLIERS[family.multipliers ?? 'none'](config),
  };
  const metadata = new Map<string, TypedValue>([['general.architecture', { type: 'string', value: a }]]);
  const named = Object.entries(keys).map(([key, value]) => [`${a}.${key}`, value] as const);
  for (const [key, of] of Object.entries({ alpha_p: 'alphaP', alpha_n: 'alphaN', beta: 'beta', eps: 'eps' } as const))
    if (config.xielu)
      metadata.set(`xielu.${key}`, { type: 'f32', value: config.xielu.map((one) => one[of]), array: true });
  const scales = config.altup?.sparsity.map(normalQuantile);
  if (scales) metadata.set(`${a}.activation_sparsity_scale`, { type: 'f32', value: scales, array: true });
  for (const [key, value] of [...named, ...rope.keys]) if (value !== undefined) metadata.set(key, typed(key, value));
  return { metadata, factors: rope.factors };
}

function typed(key: string, value: unknown): TypedValue {
  if (typeof value === 'string') return { type: 'string', value };
  if (typeof value === 'boolean') return { type: 'bool', value };
  if (Array.isArray(value)) return { type: typeof value[0] === 'boolean' ? 'bool' : 'i32', value, array: true };
  return { type: INTEGERS.test(key) ? 'u32' : 'f32', value: value as number };
}

/** Returns the number of key/value heads; for short convolutions one of each layer, as llama.cpp finds these by it. */
function kvHeadsOf({ recurrent, numKvHeads, layers, maxContext }: DecoderConfig): number | number[] {
  if (recurrent?.kind !== 'conv') return numKvHeads;
  return layers(maxContext).map((layer) => (layer.recurrent ? 0 : numKvHeads));
}

export const ENCODER_UNWRITTEN =
  'models whose attention sees later tokens are not written in another form yet: run the file as it is.';
export const UNWRITTEN = {
  delta: 'models with delta nets are not written in another form yet: run the file as it is.',
  xielu: 'models with xIELU are not written as a folder yet: run the file as it is.',
  ssm: 'models with state spaces are not written in another form yet: run the file as it is.',
} as const;

/** Writes the sizes of layers that differ, as llama.cpp's converter does for Gemma 4. */
function sizesKeys({ layerSizes, perLayerWidth, layers, maxContext, altup }: DecoderConfig): Record<string, unknown> {
  if (!layerSizes) return {};
  const types = layers(maxContext);
  const windows = types.map(({ window }) => window);
  const sliding = types.find(({ window }) => window !== undefined)?.rope;
  const sizeOf = (sliding: boolean): number | undefined =>
    layerSizes.find((_one, n) => (windows[n] !== undefined) === sliding)?.headDim;
  const [full, swa] = [sizeOf(false), sizeOf(true) ?? sizeOf(false)];
  const list = (key: 'numKvHeads' | 'intermediateSize'): number | number[] => {
    const all = layerSizes.map((one) => one[key]);
    return all.every((one) => one === all[0]) ? all[0]! : all;
  };
  const common = {
    feed_forward_length: list('intermediateSize'),
    embedding_length_per_layer_input: perLayerWidth,
    'attention.shared_kv_layers': layerSizes.filter(({ sharesWith }) => sharesWith !== undefined).length,
    'attention.sliding_window_pattern': windows.map((one) => one !== undefined),
  };
  if (altup) return { ...common, 'altup.num_inputs': altup.streams, 'altup.active_idx': altup.active };
  return {
    ...common,
    'attention.head_count_kv': list('numKvHeads'),
    'attention.key_length': full,
    'attention.value_length': full,
    'attention.key_length_swa': swa,
    'attention.value_length_swa': swa,
    'rope.dimension_count_swa': sliding ? (sliding.rotaryDim ?? sliding.headDim) : swa,
  };
}

function recurrentKeys({ recurrent }: DecoderConfig): Record<string, unknown> {
  if (recurrent && recurrent.kind !== 'conv') fail('UNSUPPORTED', 'gguf', UNWRITTEN[recurrent.kind]);
  return recurrent ? { 'shortconv.l_cache': recurrent.width } : {};
}

/** Writes the window of sliding layers, and which layers slide. */
function windowKeys({ layers, maxContext }: DecoderConfig, explicit: boolean): Record<string, unknown> {
  const windows = layers(maxContext).map(({ window }) => window);
  const window = windows.find((one) => one !== undefined);
  if (window === undefined) return {};
  return {
    'attention.sliding_window': window,
    ...(explicit && { 'attention.sliding_window_pattern': windows.map((one) => one !== undefined) }),
  };
}

function expertKeys({ count, used, width, sharedWidth, route, layers }: ExpertConfig, { family }: DecoderConfig) {
  const { shared, ggufShared, ggufWidth, deepseek, fields } = family.experts!;
  const common = {
    expert_count: count,
    expert_used_count: used,
    expert_shared_feed_forward_length:
      shared === 'gated' || (ggufShared === 'width' && sharedWidth > 0) ? sharedWidth : undefined,
  };
  if (ggufWidth === 'whole') return { ...common, feed_forward_length: width };
  const first = { leading_dense_block_count: layers.includes(true) ? layers.indexOf(true) : layers.length };
  if (family.gguf === 'lfm2moe')
    return { ...common, expert_feed_forward_length: width, ...first, expert_gating_func: 2 };
  return {
    ...common,
    expert_feed_forward_length: width,
    interleave_moe_layer_step: fields?.step && stepOf(layers),
    ...(deepseek && {
      expert_shared_count: sharedWidth / width,
      expert_weights_scale: route.scale ?? 1,
      expert_weights_norm: route.normalize === true,
      expert_gating_func: route.gate === 'sigmoid' ? 2 : 1,
      expert_group_count: route.groups?.count,
      expert_group_used_count: route.groups?.used,
      ...first,
    }),
  };
}

/** Writes what llama.cpp asks of a latent model without experts. */
function denseKeys({ numLayers, intermediateSize }: DecoderConfig) {
  return {
    leading_dense_block_count: numLayers,
    expert_feed_forward_length: intermediateSize,
    expert_shared_count: 0,
  };
}

/** Returns the distance of two layers with experts. */
export function stepOf(layers: readonly boolean[]): number {
  const [first, second] = layers.flatMap((is, n) => (is ? [n] : []));
  return second === undefined ? 1 : second - first!;
}

/** Writes the scales and caps of each family; configFromGguf has the same list. */
const MULTIPLIERS: Readonly<Record<NonNullable<Family['multipliers']> | 'none', (config: DecoderConfig) => object>> = {
  none: () => ({}),
  gemma: () => ({}),
  // 0 means no cap; a file without the key has one.
  gemma2: ({ attentionSoftcap = 0, logitSoftcap = 0 }) => ({
    attn_logit_softcapping: attentionSoftcap,
    final_logit_softcapping: logitSoftcap,
  }),
  gemma3: ({ logitSoftcap }) => ({ final_logit_softcapping: logitSoftcap }),
  gemma3n: () => ({}),
  gemma4: ({ logitSoftcap }) => ({ final_logit_softcapping: logitSoftcap }),
  // llama.cpp has them in its code. 0 means no chunks, and no temperature.
  llama4: ({ chunk }) => ({ 'attention.sliding_window': chunk === undefined ? 0 : undefined }),
  granite: ({ attentionScale, embeddingScale, residualScale, logitScale }) => ({
    'attention.scale': attentionScale,
    embedding_scale: embeddingScale,
    residual_scale: residualScale,
    logit_scale: 1 / logitScale,
  }),
  minicpm: ({ embeddingScale, residualScale, logitScale }) => ({
    embedding_scale: embeddingScale,
    residual_scale: residualScale,
    logit_scale: 1 / logitScale,
  }),
  cohere: ({ logitScale }) => ({ logit_scale: logitScale }),
  falcon: () => ({}),
  temperature: ({ temperature, family }) => ({
    'attention.temperature_scale': temperature?.scale,
    'attention.temperature_length': family.latent ? temperature?.context : undefined,
  }),
};

/** Writes the RoPE keys of all kinds of layers. */
function ropeKeys(config: DecoderConfig, explicit: boolean) {
  const architecture = config.family.gguf;
  const keys = new Map<string, unknown>();
  const factors = new Map<string, Float32Array>();
  const layers = config.layers(config.maxContext);
  const [full, sliding] = [true, false].map((isFull) => {
    const own = layers.filter(({ rope, window }) => rope && (window === undefined) === isFull);
    return [...new Set(own.map(({ rope }) => rope!))];
  }) as [RopeSpec[], RopeSpec[]];
  // Sliding layers that rotate as full ones do take their keys.
  const more = explicit || full.length === 0 ? sliding : sliding.filter((rope) => !full.includes(rope));
  const kinds: [string, RopeSpec[]][] = [
    // In a file without full layers that rotate, the sliding layers' keys stand in the place of the full ones'.
    ['full_attention', full.length > 0 ? full : more],
    ['sliding_attention', full.length > 0 || explicit ? more : []],
  ];
  for (const [layerType, rope] of kinds.flatMap(([type, ropes]) => ropes.map((one) => [type, one] as const))) {
    const options = { architecture, layerType, context: config.maxContext };
    for (const [key, value] of Object.entries(convertRope(rope, 'gguf', options).arguments)) {
      // The sizes of heads are written elsewhere: in latent attention the rotated part has other sizes.
      if (key === 'general.architecture' || /\.key_length(_swa)?$/.test(key)) continue;
      if (key.endsWith('.weight')) factors.set(key, Float32Array.from(value as number[]));
      // If full and sliding layers differ in a key, the full layers decide. Reading back tells whether that is right.
      else if (layerType === 'full_attention' || !keys.has(key)) keys.set(key, value);
    }
  }
  const { latent, attentionScale, headDim } = config;
  if (latent) setLatentScale(keys, architecture, attentionScale * Math.sqrt(headDim));
  return { keys, factors };
}

/** Writes DeepSeek's attention scale for latentScale of config.ts: yarn_log_multiplier m gives (1 + m·ln factor)². */
function setLatentScale(keys: Map<string, unknown>, a: string, squared: number): void {
  const factor = keys.get(`${a}.rope.scaling.factor`);
  if (typeof factor !== 'number' || factor <= 1) return;
  keys.set(`${a}.rope.scaling.yarn_log_multiplier`, (Math.sqrt(squared) - 1) / Math.log(factor));
  keys.delete(`${a}.rope.scaling.attn_factor`);
}

/** Refuses a config that differs after it was read back. A window that llama.cpp does not have becomes a note. */
export function checkSame(config: DecoderConfig, back: DecoderConfig, where: string, notes: string[]): void {
  const { family, architecture } = config;
  const wrong = (what: string): never =>
    fail('UNSUPPORTED', where, `GGUF's keys of ${family.gguf} do not say ${what} of this ${architecture}.`);
  const [own, other] = [config, back].map((one) => fieldsOf(one));
  for (const key of new Set([...Object.keys(own!), ...Object.keys(other!)]))
    if (own![key] !== other![key]) wrong(`its ${key}, ${own![key]} and read back ${other![key]}`);
  const context = config.maxContext;
  const [layers, read] = [config.layers(context), back.layers(context)];
  if (layers.length !== read.length) wrong(`its ${countLayers(layers.length)}`);
  for (const [n, { rope }] of layers.entries()) {
    const there = read[n]!.rope;
    if ((rope === undefined) !== (there === undefined)) wrong(`which layers rotate: layer ${n} is another`);
    if (rope && there && !sameRope(rope, there)) wrong(`the RoPE of layer ${n}`);
  }
  const [windows, others] = [layers, read].map((list) => String(list.map(({ window }) => window)));
  if (windows === others) return;
  if (read.some(({ window }) => window !== undefined)) wrong('which layers slide');
  const sliding = [...layers.keys()].filter((n) => layers[n]!.window !== undefined);
  const { window } = layers[sliding[0]!]!;
  notes.push(
    `llama.cpp has no windows in ${family.gguf}: ${nameLayers(sliding)} see all tokens, where the model sees ${window}. ` +
      'Texts that are no longer are the same.',
  );
}

/**
 * The fields that may differ: eosTokens, because the vocabulary has more of them; tiedHead, as a head may be stored
 * twice; perLayerVocab, as the rows of other tokens are written out.
 */
const NOT_COMPARED =
  'source architecture notes layers biases family eosTokens bosToken tiedHead headless perLayerVocab'.split(' ');

/** Lists the fields to compare, with numbers rounded to the precision of f32. */
function fieldsOf(config: DecoderConfig): Readonly<Record<string, string>> {
  // A key is f32, and some keys are divided or multiplied again.
  const near = (_key: string, value: unknown): unknown =>
    typeof value === 'number' && !Number.isInteger(value) ? Number(value.toPrecision(6)) : (value ?? null);
  const fields = Object.entries(config).filter(([key, value]) => value !== undefined && !NOT_COMPARED.includes(key));
  return Object.fromEntries(fields.map(([key, value]) => [key, JSON.stringify(value, near)]));
}

/** Whether axes, sizes and frequencies are the same. Pairings may differ by the order of rows. */
function sameRope(a: RopeSpec, b: RopeSpec): boolean {
  if ((a.rotaryDim ?? a.headDim) !== (b.rotaryDim ?? b.headDim) || a.headDim !== b.headDim) return false;
  // A fourth axis without pairs is the same as none.
  const sections = ({ axes }: RopeSpec): string => [...(axes?.sections ?? []), 0].slice(0, 4).join();
  if (sections(a) !== sections(b)) return false;
  const [one, two] = [frequenciesOf(a), frequenciesOf(b)];
  // The factor 1e30 of a GGUF stops a pair at every position that there is.
  const near = (x: number, y: number): boolean => Math.abs(x - y) <= 1e-5 * Math.max(Math.abs(x), Math.abs(y), 1e-15);
  return near(one.attentionFactor, two.attentionFactor) && one.invFreq.every((x, j) => near(x, two.invFreq[j]!));
}

/** Returns the values of typed keys, for reading back. */
export function valuesOf(metadata: ReadonlyMap<string, TypedValue>): Map<string, GgufValue> {
  return new Map(Array.from(metadata, ([key, { value }]) => [key, value]));
}
