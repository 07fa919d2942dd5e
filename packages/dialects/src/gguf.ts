/**
 * Reads the effective RoPE of each layer from GGUF metadata, as llama.cpp does.
 *
 * The file has neither the pairing nor the layers that rotate. llama.cpp derives both from the architecture, and so
 * does the table in gguf-architectures.ts. Keys that llama.cpp does not read are not applied; a note names them.
 *
 * @module
 * @see ggml-org/llama.cpp@de3ff815 src/llama-model.cpp, src/llama-context.cpp, src/models; ggml docs/gguf.md
 */

import type { RopeScaling, RopeSpec } from 'ropewalk';
import { fail, refuse } from 'ropewalk/backend';
import { Fields, reading, readList, readOptions } from 'ropewalk/internal';
import { FREQS, GGUF_ARCHITECTURES, type GgufArchitecture, LONG, SHORT } from './gguf-architectures.js';
import type { LayerRope, ModelRope, ModelRopeOptions } from './model-rope.js';
import { compact, readModelRopeOptions, shareRecord } from './model-rope.js';

/** The header of a GGUF file, and perhaps a reader of its small factor tensors. */
export interface GgufHeader {
  readonly metadata: ReadonlyMap<string, unknown>;
  readonly tensors: readonly { readonly name: string }[];
  /** Reads a small f32 tensor, where the weights are available. */
  readonly readTensor?: (name: string) => Float32Array | undefined;
}

/** LLAMA_MAX_LAYERS of llama.cpp. */
const MAX_LAYERS = 512;
/** llama.cpp makes every context a multiple of this. */
const CONTEXT_STEP = 256;

/**
 * Reads the effective RoPE of each layer from a GGUF header.
 *
 * @param given - the header, from parseGguf or another reader
 * @param how - the context in use, and the file's name for messages
 * @returns one record a layer; `planRope({ ...layer.rope, positions })` plans it
 * @throws {RopewalkError} FORMAT for missing or malformed keys; UNSUPPORTED for an unknown architecture or scaling, an
 *   architecture without RoPE, and a file that llama.cpp refuses because of its RoPE
 */
export function ropeFromGguf(given: GgufHeader, how: ModelRopeOptions = {}): ModelRope {
  const options = readModelRopeOptions(how, 'gguf');
  const file = readOptions(given, options.where);
  const { readTensor } = file;
  if (readTensor !== undefined && typeof readTensor !== 'function')
    refuse('RANGE', `${options.where}: readTensor`, 'a function', readTensor);
  const at = `${options.where}: tensors`;
  const tensors = Array.from(readList(file.tensors, at), (tensor) => readOptions(tensor, at).name);
  const keys = new Fields(file.metadata, options.where);
  const architecture = keys.text('general.architecture');
  const where = keys.path('general.architecture');
  const known = `one of the ${Object.keys(GGUF_ARCHITECTURES).length} architectures of llama.cpp`;
  const row = rowOf(architecture) ?? refuse('UNSUPPORTED', where, known, architecture);
  if (row.rope === 'none') refuse('UNSUPPORTED', where, 'a model with rotary position embedding', architecture);
  const a = (key: string): string => `${architecture}.${key}`;
  const numLayers = keys.integer(a('block_count'), 1, MAX_LAYERS);
  const model: Model = {
    keys,
    tensors,
    factors: (name) => reading(`${options.where}: ${name}`, () => readTensor?.(name)),
    options,
    architecture,
    row,
    a,
    numLayers,
    // The last layers may be for multi-token prediction; rules that count layers leave them out.
    numMain: numLayers - (keys.optionalInteger(a('nextn_predict_layers'), 0, numLayers) ?? 0),
    notes: [],
  };
  const kinds = layerKinds(model);
  const made = new Map<string, RopeSpec>();
  const records = new Map<string, RopeSpec>();
  const scaling = scalingOf(model);
  checkFactorTensors(model, scaling.type);
  if (row.window === 'mla')
    model.notes.push(`head_dim is ${a('rope.dimension_count')}, the part of each head that rotates.`);
  const twoKinds = kinds.some((kind) => kind.sliding);
  const layers = kinds.map((kind, layer): LayerRope => {
    const attention = kind.sliding ? 'sliding_attention' : 'full_attention';
    const layerType = kind.recurrent ? 'recurrent' : twoKinds ? attention : undefined;
    const common = { layer, layerType, window: kind.sliding ? windowOf(model) : undefined };
    if (!kind.rotates) return { ...common, rope: undefined };
    const id = `${kind.sliding} ${kind.compressed}`;
    const rope = made.get(id) ?? shareRecord(ropeOf(model, kind, kinds, scaling), records);
    made.set(id, rope);
    return { ...common, rope };
  });
  noteIgnored(model, kinds);
  const { numMain, notes } = model;
  if (numMain < numLayers && numMain > 0)
    notes.push(`Layers from ${numMain} on (nextn_predict_layers) predict further tokens and were not checked.`);
  return {
    source: 'gguf',
    architecture,
    known: true, // Any other was refused.
    numLayers,
    layers,
    maxContext: keys.optionalInteger(a('context_length')),
    notes,
  };
}

/**
 * Looks up what llama.cpp does with RoPE in an architecture.
 *
 * @param architecture - general.architecture
 * @returns its row; undefined for a name that llama.cpp does not have
 */
export function rowOf(architecture: string): GgufArchitecture | undefined {
  if (typeof architecture !== 'string' || !Object.hasOwn(GGUF_ARCHITECTURES, architecture)) return undefined;
  return GGUF_ARCHITECTURES[architecture];
}

interface Model {
  readonly keys: Fields;
  /** The names of all tensors. */
  readonly tensors: readonly string[];
  /** Reads a tensor of factors, where the weights are available. */
  readonly factors: (name: string) => Float32Array | undefined;
  readonly options: ModelRopeOptions;
  readonly architecture: string;
  readonly row: GgufArchitecture;
  /** Gives the full name of one of the architecture's keys. */
  readonly a: (key: string) => string;
  readonly numLayers: number;
  /** This count leaves out the layers for multi-token prediction. */
  readonly numMain: number;
  readonly notes: string[];
}

interface LayerKind {
  readonly sliding: boolean;
  readonly recurrent: boolean;
  readonly rotates: boolean;
  readonly compressed: boolean;
}

function layerKinds(model: Model): LayerKind[] {
  const { keys, a, row, numLayers, numMain } = model;
  const recurrent = recurrentLayers(model);
  const slides = slidingLayers(model, recurrent);
  const active = slides !== undefined;
  const compressed = row.compressed ? listOf(model, 'attention.compress_ratios') : undefined;
  if (compressed && compressed.length < numLayers) {
    const where = keys.path(a('attention.compress_ratios'));
    refuse('FORMAT', where, `${numLayers} numbers, one for each layer`, compressed.length);
  }
  const hasPattern = row.skips === 'rope-pattern' && Array.isArray(keys.raw(a('attention.rope_pattern')));
  const pattern = hasPattern ? listOf(model, 'attention.rope_pattern') : [];
  const dense = row.skips === 'full-after-dense' ? (keys.optionalInteger(a('leading_dense_block_count'), 0) ?? 0) : 0;
  const finetuned = row.skips !== 'not-finetuned' || (keys.optionalFlag(a('rope.scaling.finetuned')) ?? true);
  const skips: Record<NonNullable<typeof row.skips>, (layer: number, sliding: boolean) => boolean> = {
    full: (_layer, sliding) => active && !sliding,
    'full-after-dense': (layer, sliding) => !sliding && layer >= dense,
    fourth: (layer) => (layer + 1) % 4 === 0,
    // Without sliding layers, only the last layer does not rotate.
    llama4: (layer) => (layer + 1) % (active ? 4 : numMain) === 0,
    smallthinker: (layer) => active && numMain !== 4 && layer % 4 === 0,
    'rope-pattern': (layer) => pattern[layer] === 0,
    'not-finetuned': () => !finetuned,
    'unless-32-layers': () => numMain !== 32, // Baichuan 13B has ALiBi.
  };
  return Array.from({ length: numLayers }, (_item, layer) => {
    const sliding = slides?.[layer] ?? false;
    return {
      sliding,
      recurrent: recurrent[layer]!,
      rotates: !recurrent[layer] && !(row.skips && skips[row.skips](layer, sliding)),
      compressed: (compressed?.[layer] ?? 0) !== 0,
    };
  });
}

function recurrentLayers(model: Model): boolean[] {
  const { keys, a, row, numLayers, numMain } = model;
  const layers = (is: (layer: number) => boolean): boolean[] =>
    Array.from({ length: numLayers }, (_item, layer) => layer < numMain && is(layer));
  if (row.recurrent === undefined) return layers(() => false);
  if (row.recurrent === 'no-kv-heads') {
    const heads = keys.raw(a('attention.head_count_kv'));
    return layers((layer) => Array.isArray(heads) && Number(heads[layer]) === 0);
  }
  if (Array.isArray(keys.raw(a('attention.recurrent_layers')))) {
    const flags = listOf(model, 'attention.recurrent_layers');
    return layers((layer) => flags[layer] === 1);
  }
  const interval = keys.optionalInteger(a('full_attention_interval')) ?? row.recurrent;
  return layers((layer) => (layer + 1) % interval !== 0);
}

/** Says whether each layer has a sliding window; undefined where the model has one kind of layer. */
function slidingLayers(model: Model, recurrent: readonly boolean[]): boolean[] | undefined {
  const { keys, a, row, numLayers, numMain } = model;
  if (!row.sliding) return undefined;
  const { when, full, fullFirst } = row.sliding;
  const window = keys.optionalInteger(a('attention.sliding_window'), 0);
  if ((when === 'window' && !window) || (when === 'not-0' && window === 0) || (when === '64-layers' && numMain !== 64))
    return undefined;
  if (full === 0) return recurrent.map((is) => !is);
  const key = 'attention.sliding_window_pattern';
  if (Array.isArray(keys.raw(a(key)))) {
    const flags = listOf(model, key);
    return Array.from({ length: numLayers }, (_item, layer) => (flags[layer] ?? 0) !== 0);
  }
  if (full === 'list') {
    const next = 'llama.cpp needs it too: convert the model again.';
    refuse('FORMAT', keys.path(a(key)), 'a list with a flag for each layer', keys.raw(a(key)), next);
  }
  const period = keys.optionalInteger(a(key), 0) ?? full;
  return Array.from({ length: numLayers }, (_item, layer) => {
    if (layer >= numMain) return false;
    if (period === 0) return true;
    return fullFirst ? layer % period !== 0 : layer % period < period - 1;
  });
}

/** Counts the tokens that a sliding layer sees. */
function windowOf({ keys, a, row }: Model): number | undefined {
  const usual = row.sliding!.window;
  if (usual === 'other') return undefined;
  return keys.optionalInteger(a('attention.sliding_window'), 0) || usual;
}

function listOf({ keys, a }: Model, key: string): number[] {
  const list = keys.raw(a(key));
  const numbers = Array.isArray(list) ? list.map(Number) : [];
  if (numbers.length === 0 || !numbers.every(Number.isSafeInteger))
    refuse('FORMAT', keys.path(a(key)), 'a list of flags or integers, one for each layer', list);
  return numbers;
}

/** The scaling of full layers in ggml's numbers. `fileFactor` is the file's factor, for every `type`. */
type Scaling = ReturnType<typeof scalingOf>;

const TYPES = ['none', 'linear', 'yarn', 'longrope'] as const;

/** @see ggml-org/llama.cpp@de3ff815 src/llama-model.cpp load_hparams, src/llama-context.cpp llama_context */
function scalingOf({ keys, a, row, notes }: Model) {
  const text = keys.optionalText(a('rope.scaling.type')) ?? 'linear';
  const type =
    TYPES.find((name) => name === text) ??
    refuse('UNSUPPORTED', keys.path(a('rope.scaling.type')), 'none, linear, yarn or longrope', text);
  // Old files have the key scale_linear; 0 means none.
  const key = keys.has(a('rope.scaling.factor')) ? a('rope.scaling.factor') : a('rope.scale_linear');
  const given = keys.optionalNumber(key) ?? 0;
  if (given < 0) refuse('FORMAT', keys.path(key), 'a number >= 0', given);
  const fileFactor = given === 0 ? 1 : given;
  const factor = type === 'none' ? 1 : fileFactor;
  if (type === 'none' && fileFactor !== 1 && row.sliding?.scale !== 'shared')
    notes.push(`${key} = ${fileFactor} is not applied: the scaling type is none.`);
  const read = (name: string, usual: number, reads: boolean): number =>
    (reads ? keys.optionalNumber(a(`rope.scaling.${name}`)) : undefined) ?? usual;
  const beta = (name: string, usual: number): number => {
    const value = read(name, usual, row.yarn !== undefined);
    return value >= 0 ? value : refuse('FORMAT', keys.path(a(`rope.scaling.${name}`)), 'a number >= 0', value);
  };
  const all = row.yarn === 'all';
  const ext = read('yarn_ext_factor', -1, all);
  const extFactor = ext < 0 ? (type === 'yarn' ? 1 : 0) : ext;
  const attn = read('attn_factor', 1, true);
  const yarnAttn = read('yarn_attn_factor', 1, all);
  const mscales = extFactor === 0 ? undefined : mscalesOf(row, read('yarn_log_multiplier', 0, true));
  const ignored = `${a('rope.scaling.yarn_attn_factor')} = ${yarnAttn}`;
  if (extFactor !== 0 && yarnAttn !== 1) notes.push(`${ignored} is not applied: llama.cpp computes YaRN's magnitude.`);
  return {
    type,
    fileFactor,
    factor,
    extFactor,
    mscales,
    // ggml multiplies by 1 + 0.1 ln(factor) where ext_factor is not 0, and llama.cpp divides by it first.
    attnFactor: attn * (extFactor === 0 ? yarnAttn : mscales || factor > 1 ? 1 : 1 / (1 + 0.1 * Math.log(factor))),
    betaFast: beta('yarn_beta_fast', row.betaFast ?? 32),
    betaSlow: beta('yarn_beta_slow', 1),
  };
}

/** Computes YaRN's two mscales from yarn_log_multiplier; undefined without one. */
function mscalesOf({ logMultiplier }: GgufArchitecture, given: number) {
  if (given === 0 || logMultiplier === undefined) return undefined;
  const cancels = logMultiplier === 'cancels';
  // An f32 has 7 digits.
  const mscaleAllDim = Number((given / (cancels ? 0.1 : logMultiplier)).toPrecision(7));
  return { mscale: cancels ? mscaleAllDim : 1, mscaleAllDim };
}

function ropeOf(model: Model, kind: LayerKind, kinds: readonly LayerKind[], scaling: Scaling): RopeSpec {
  const { keys, a, row, architecture, notes } = model;
  // Without sizes by layer, those of the first layer hold.
  const { headDim, rotaryDim } = sizesOf(model, (row.sizesByLayer ? kind : kinds[0]!).sliding);
  const base = keys.optionalPositive(a('rope.freq_base'));
  if (base === undefined && row.base === undefined)
    noteOnce(notes, `${a('rope.freq_base')} is missing: llama.cpp takes 10000.`);
  // DFlash has two forms, and one of them is DeepSeek-V4's.
  const asDeepseek4 = architecture === 'dflash' && (keys.optionalInteger(a('hyper_connection.count'), 0) ?? 0) > 0;
  const sections = asDeepseek4 ? undefined : sectionsOf(model);
  const tail = row.window === 'tail' || asDeepseek4;
  const plain =
    row.plain || asDeepseek4 || (row.compressed && !kind.compressed) || (kind.sliding && row.sliding?.plain);
  const numbers: Partial<RopeSpec> = plain ? {} : ggmlScaling(model, kind, scaling);
  return compact<RopeSpec>({
    headDim,
    rotaryDim,
    rotaryOffset: (tail && headDim - rotaryDim) || undefined,
    pairing: (row.rope === 'norm' || asDeepseek4) && !sections ? 'interleaved' : 'half',
    base: baseOf(model, kind, base ?? 10000, headDim),
    ...numbers,
    ...(asDeepseek4 || sections ? undefined : factorsOf(model, kind, kinds, scaling.type, numbers.scaling)),
    axes: sections && { rule: row.rope === 'imrope' ? 'interleaved-ggml' : 'sections', sections },
  });
}

function ggmlScaling({ keys, a, row }: Model, kind: LayerKind, scaling: Scaling): Partial<RopeSpec> {
  const { extFactor, betaFast, betaSlow } = scaling;
  const rule = kind.sliding ? row.sliding!.scale : 'same';
  const factor = rule === 'none' ? 1 : rule === 'shared' ? scaling.fileFactor : scaling.factor;
  // DeepSeek-V4 does not read attn_factor.
  const attnFactor = row.compressed ? 1 / (extFactor === 0 ? 1 : 1 + 0.1 * Math.log(factor)) : scaling.attnFactor;
  if (extFactor === 0)
    return {
      scaling: factor === 1 ? undefined : { kind: 'linear', factor },
      attentionFactor: attnFactor === 1 ? undefined : attnFactor,
    };
  const originalContext =
    keys.optionalInteger(a('rope.scaling.original_context_length'), 0) ||
    keys.need(keys.optionalInteger(a('context_length')), a('rope.scaling.original_context_length'), 'an integer');
  const yarn = { factor, originalContext, extFactor, attnFactor, betaFast, betaSlow };
  return { scaling: { kind: 'yarn', ...yarn, ...scaling.mscales } };
}

function baseOf({ keys, a, row }: Model, kind: LayerKind, base: number, headDim: number): number {
  if (row.base !== undefined) return row.base;
  if (kind.compressed) {
    const key = a('attention.compress_rope_freq_base');
    return keys.need(keys.optionalPositive(key), key, 'a number > 0');
  }
  if (row.alpha) {
    const alpha = keys.optionalNumber(a('rope.scaling.alpha')) ?? 0;
    return alpha > 0 && headDim > 2 ? base * alpha ** (headDim / (headDim - 2)) : base;
  }
  if (!kind.sliding || row.sliding!.base === 'same') return base;
  const key = a('rope.freq_base_swa');
  const usual = { shared: base, own: 10000, needed: undefined }[row.sliding!.base];
  return keys.need(keys.optionalPositive(key) ?? usual, key, 'a number > 0');
}

function sizesOf(model: Model, sliding: boolean): { headDim: number; rotaryDim: number } {
  const { keys, a, row, architecture } = model;
  const full = fullHeadDim(model);
  const head = (sliding ? keys.optionalInteger(a('attention.key_length_swa')) : undefined) ?? full;
  const count = keys.optionalInteger(a('rope.dimension_count')) ?? full;
  const ofSliding = keys.optionalInteger(a('rope.dimension_count_swa')) ?? count;
  const rotaryDim =
    architecture === 'deepseek2-ocr' ? head : sliding ? ofSliding : row.halvesFull ? Math.floor(count / 2) : count;
  const key = a(sliding && ofSliding !== count ? 'rope.dimension_count_swa' : 'rope.dimension_count');
  const headDim = row.window === 'mla' ? rotaryDim : head;
  if (rotaryDim % 2 !== 0 || rotaryDim < 2 || rotaryDim > headDim)
    refuse('FORMAT', keys.path(key), `an even integer in [2, head_dim=${headDim}]`, rotaryDim);
  const next = `llama.cpp refuses such a file: its ${architecture} rotates whole heads.`;
  if (row.whole && rotaryDim !== headDim) refuse('UNSUPPORTED', keys.path(key), `head_dim=${headDim}`, rotaryDim, next);
  return { headDim, rotaryDim };
}

function fullHeadDim({ keys, a, row }: Model): number {
  const given = keys.optionalInteger(a('attention.key_length'));
  if (given !== undefined) return given;
  const rope = keys.optionalInteger(a('rope.dimension_count'));
  if (row.window === 'mla' && rope !== undefined) return rope;
  const width = keys.optionalInteger(a('embedding_length'));
  const counts = keys.raw(a('attention.head_count'));
  // Some architectures list heads by layer; head_dim is the same in all layers.
  const heads = Array.isArray(counts)
    ? Number(counts.find((n) => Number(n) > 0))
    : keys.optionalInteger(a('attention.head_count'));
  if (width !== undefined && heads !== undefined && heads > 0 && width % heads === 0) return width / heads;
  const expected = 'an integer, or embedding_length and head_count that give one';
  return refuse('FORMAT', keys.path(a('attention.key_length')), expected, undefined);
}

/** Reads the sections of M-RoPE; undefined for one axis. */
function sectionsOf({ keys, a, row }: Model): number[] | undefined {
  const multi = row.rope === 'mrope' || row.rope === 'imrope';
  const key = a('rope.dimension_sections');
  if (!multi && (row.sections === undefined || !keys.has(key))) return undefined;
  const list = keys.raw(key);
  const given = Array.isArray(list) ? list.map(Number) : [];
  if (
    given.length !== 4 ||
    !given.every((n) => Number.isSafeInteger(n) && n >= 0) ||
    (multi && !given.slice(0, 3).some((n) => n > 0))
  )
    refuse('FORMAT', keys.path(key), 'four integers >= 0, pairs of t, h, w and e', list);
  if (row.sections === 't-and-h' && !(given[0]! > 0 && given[1]! > 0)) return undefined;
  if (row.sections === 'any' && given.every((n) => n === 0)) return undefined;
  return given;
}

/** Refuses a file with factor tensors that llama.cpp does not load, as it counts the tensors. */
function checkFactorTensors({ tensors, keys, row, architecture }: Model, type: Scaling['type']): void {
  const loaded = readsBoth(row, type) ? [LONG, SHORT] : row.factors === undefined ? [] : [FREQS];
  const extra = [FREQS, LONG, SHORT].find((name) => tensors.includes(name) && !loaded.includes(name));
  if (extra === undefined) return;
  const when = row.factors === 'by-type' ? ` where rope.scaling.type is ${type}` : '';
  const why = `its ${architecture} reads ${loaded.length > 0 ? loaded.join(' and ') : 'no factors'}${when}`;
  fail('UNSUPPORTED', keys.path(extra), `llama.cpp refuses a file with this tensor: ${why}`);
}

/** Says whether an architecture has factors for long and for short contexts, instead of one list. */
function readsBoth(row: GgufArchitecture, type: Scaling['type']): boolean {
  return row.factors === 'long-short' || (row.factors === 'by-type' && type === 'longrope');
}

/** Reads the factors of each pair: one list, or LongRoPE with both where no other scaling is beside it. */
function factorsOf(
  model: Model,
  kind: LayerKind,
  kinds: readonly LayerKind[],
  type: Scaling['type'],
  beside: RopeScaling | undefined,
): Partial<RopeSpec> | undefined {
  const { tensors, keys, row, notes } = model;
  if (row.factors === undefined) return undefined;
  if (row.factorsFor === 'none' || (row.factorsFor === 'full' && kind.sliding)) return undefined;
  const both = readsBoth(row, type);
  const there = (both ? [LONG, SHORT] : [FREQS]).filter((name) => tensors.includes(name));
  if (there.length === 0) return undefined;
  const wanted = factorCount(model, kind, kinds);
  const lists = there.map(model.factors);
  for (const [n, { length } = { length: wanted }] of lists.entries())
    if (length !== wanted)
      refuse('FORMAT', keys.path(there[n]!), `${wanted} values`, length, 'llama.cpp refuses such a file.');
  const { original, context } = both ? contextOf(model) : { original: 0, context: 0 };
  const [longFactor, shortFactor] = lists.map((list) => list && Array.from(list));
  if (shortFactor && longFactor && original > 0 && !beside)
    return { scaling: { kind: 'longrope', shortFactor, longFactor, originalContext: original, context } };
  const name = both ? (context > original ? LONG : SHORT) : FREQS;
  if (!there.includes(name)) return undefined;
  const freqFactors = lists[there.indexOf(name)];
  if (!freqFactors)
    noteOnce(notes, `${name} divides the frequencies, but its values were not read: the frequencies lack them.`);
  return { freqFactors };
}

function factorCount(model: Model, kind: LayerKind, kinds: readonly LayerKind[]): number {
  const { headDim, rotaryDim } = sizesOf(model, kind.sliding);
  const { factorsOver } = model.row;
  if (factorsOver !== 'widest') return (factorsOver === 'head' ? headDim : rotaryDim) / 2;
  return Math.max(...kinds.map(({ sliding }) => sizesOf(model, sliding).rotaryDim)) / 2;
}

/** llama.cpp chooses LongRoPE's list by the size of the context, not by the length of the sequence. */
function contextOf({ keys, a, options, notes }: Model): { readonly original: number; readonly context: number } {
  const key = a('rope.scaling.original_context_length');
  const given = keys.optionalInteger(key, 0) ?? keys.optionalInteger(a('context_length'));
  const original = keys.need(given, key, 'an integer');
  if (options.context === undefined) {
    noteOnce(notes, `The frequencies depend on the context; up to ${original} tokens are assumed.`);
    return { original, context: original };
  }
  return { original, context: Math.ceil(options.context / CONTEXT_STEP) * CONTEXT_STEP };
}

function noteOnce(notes: string[], note: string): void {
  if (!notes.includes(note)) notes.push(note);
}

/** Adds a note for each key about RoPE that llama.cpp does not read. */
function noteIgnored(model: Model, kinds: readonly LayerKind[]): void {
  const { keys, a, row, architecture, notes } = model;
  const sliding = kinds.some((kind) => kind.sliding && kind.rotates);
  const note = (key: string, why: string): void => {
    const given = keys.raw(a(key));
    if (given === undefined) return;
    const list = Array.isArray(given) && `[${given.slice(0, 8).join(', ')}${given.length > 8 ? ', …' : ''}]`;
    notes.push(`${a(key)} = ${list || String(given)} is not applied: ${why}.`);
  };
  const ignored = (key: string, reads: (row: GgufArchitecture) => boolean): void => {
    if (reads(row)) return;
    const readers = Object.keys(GGUF_ARCHITECTURES).filter((name) => reads(GGUF_ARCHITECTURES[name]!));
    note(key, `llama.cpp reads it for ${readers.sort().join(', ')} only`);
  };
  ignored('rope.scaling.yarn_ext_factor', ({ yarn }) => yarn === 'all');
  ignored('rope.scaling.yarn_attn_factor', ({ yarn }) => yarn === 'all');
  ignored('rope.scaling.yarn_beta_fast', ({ yarn }) => yarn !== undefined);
  ignored('rope.scaling.yarn_beta_slow', ({ yarn }) => yarn !== undefined);
  ignored('rope.scaling.yarn_log_multiplier', ({ logMultiplier }) => logMultiplier !== undefined);
  ignored('rope.scaling.finetuned', ({ skips }) => skips === 'not-finetuned');
  ignored('rope.scaling.alpha', ({ alpha }) => alpha === true);
  ignored('rope.dimension_sections', ({ rope, sections }) => rope.endsWith('mrope') || sections !== undefined);
  if (!sliding) note('rope.freq_base_swa', `this ${architecture} has no sliding layers`);
  else if (row.sliding!.base === 'same')
    note('rope.freq_base_swa', `the sliding layers of ${architecture} have the base of the full ones`);
  if (row.factorsFor === 'none' && [FREQS, LONG, SHORT].some((name) => model.tensors.includes(name)))
    notes.push(`llama.cpp's ${architecture} loads the factor tensors but does not use them.`);
  if (!keys.has(a('rope.scaling.type'))) return;
  const all = a('rope.scaling.*');
  if (row.plain) notes.push(`${all} is not applied: llama.cpp's ${architecture} scales nothing.`);
  else if (sliding && row.sliding!.plain) notes.push(`${all} is not applied to sliding layers.`);
}
