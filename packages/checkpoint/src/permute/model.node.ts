/**
 * Reads the facts about a model on disk that a permutation of its weights needs: the places of its tensors, the number
 * of their heads, and the pairing that they are laid out for (Node only).
 *
 * @module
 */
import { existsSync } from 'node:fs';
import { readdir, stat } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import type { WeightPairing } from '@ropewalk/dialects/internal/models';
import { gguf, huggingface, type ModelRope } from '@ropewalk/dialects/internal/models';
import type { GgufFile, GgufTensor, GgufValue } from '@ropewalk/formats';
import type { GgufPart } from '@ropewalk/formats/internal';
import { joinGguf, partNames } from '@ropewalk/formats/internal';
import { checkShard, partsOf, SAFETENSORS_INDEX, safetensorsShards } from '@ropewalk/formats/internal/models';
import { checkPath, readGgufPart, readJsonFile, refuseSystem } from '@ropewalk/formats/internal/node';
import { readGgufModel, readSafetensorsHeader } from '@ropewalk/formats/node';
import { type RopeSpec, RopewalkError } from 'ropewalk';
import { fail, refuse } from 'ropewalk/backend';
import { checkInteger, Fields, nameForMessage } from 'ropewalk/internal';
import type { FusedLayout, HeadGeometry, LocatedTensor } from './plan.js';

/** A model on disk, of which only headers were read. */
export interface OpenModel {
  readonly path: string;
  readonly kind: 'file' | 'folder';
  readonly format: 'safetensors' | 'gguf';
  /** The files with weights. A tensor's `file` is an index of this list. */
  readonly files: readonly string[];
  readonly sizes: readonly number[];
  readonly tensors: readonly LocatedTensor[];
  readonly gguf: GgufFile | undefined;
  /** The metadata of the files. Those of several .safetensors are merged. */
  readonly metadata: ReadonlyMap<string, GgufValue>;
  /** The names in the folder that are copied unchanged. */
  readonly companions: readonly string[];
  /** The names in the folder that are not copied: other weights, and folders. */
  readonly leftOut: readonly string[];
}

/** Weights in these files would stay in the old order, and a runtime that finds them might use them. */
const OTHER_WEIGHTS = /\.(bin|pt|pth|gguf|safetensors|onnx|onnx_data|msgpack|h5|index\.json)$/i;

/**
 * Reads the headers of a .safetensors or .gguf file, or of a folder with one model of either kind. One part of a model
 * of several files stands for all of them; the result then names their folder.
 */
export async function openModel(path: string): Promise<OpenModel> {
  checkPath(path);
  const info = await stat(path).catch((cause) => refuseSystem('FORMAT', path, 'a readable file or folder', cause));
  if (info.isDirectory()) return vectorFolder(path);
  const parts = partNames(basename(path)) ?? [];
  if (parts.length > 1) return vectorFolder(dirname(path), parts);
  const common = { path, kind: 'file' as const, files: [path], sizes: [info.size], companions: [], leftOut: [] };
  if (/\.safetensors$/i.test(path))
    return { ...common, format: 'safetensors', ...(await safetensorsOf(path, 0)), gguf: undefined };
  if (!/\.gguf$/i.test(path))
    refuse('FORMAT', path, 'a .safetensors or .gguf file, or a folder with one model', basename(path));
  return { ...common, ...(await ggufWeights([path])) };
}

async function safetensorsOf(path: string, file: number): Promise<Pick<OpenModel, 'tensors' | 'metadata'>> {
  const { tensors, metadata } = await readSafetensorsHeader(path);
  return { tensors: [...tensors].map(([name, tensor]) => ({ name, file, ...tensor })), metadata };
}

/** @param wanted - the parts of the model, if the folder may hold other files too */
async function vectorFolder(path: string, wanted?: readonly string[]): Promise<OpenModel> {
  const entries = await readdir(path).catch((cause) => refuseSystem('FORMAT', path, 'a readable folder', cause));
  const weightsOf = (ending: RegExp): string[] =>
    entries.filter((name) => ending.test(name) && (wanted?.includes(name) ?? true));
  const isSafetensors = weightsOf(/\.safetensors$/i).length > 0;
  const ggufs = weightsOf(/\.gguf$/i);
  const parts = isSafetensors ? undefined : partsOf(ggufs, path);
  if (parts?.length === 1) return openModel(join(path, parts[0]!));
  const weights = parts
    ? await ggufWeights(parts.map((name) => join(path, name)))
    : await safetensorsWeights(path, entries);
  const companions: string[] = [];
  const leftOut: string[] = [];
  for (const name of entries.sort()) {
    if (weights.files.includes(join(path, name))) continue;
    const info = await stat(join(path, name)).catch(() => undefined);
    if (info?.isFile() && (name === SAFETENSORS_INDEX || !OTHER_WEIGHTS.test(name))) companions.push(name);
    else leftOut.push(name);
  }
  return { path, kind: 'folder', ...weights, companions, leftOut };
}

/** The files that hold a model's weights, with the content of their headers. */
type Weights = Pick<OpenModel, 'format' | 'files' | 'sizes' | 'tensors' | 'gguf' | 'metadata'>;

async function safetensorsWeights(folder: string, entries: readonly string[]): Promise<Weights> {
  const where = join(folder, SAFETENSORS_INDEX);
  const index = entries.includes(SAFETENSORS_INDEX) ? readJsonFile(where) : undefined;
  const files: string[] = [];
  const sizes: number[] = [];
  const tensors: LocatedTensor[] = [];
  const metadata = new Map<string, GgufValue>();
  for (const [name, claimed] of safetensorsShards(entries, index, folder, where)) {
    const path = join(folder, name);
    const { tensors: own, metadata: said } = await safetensorsOf(path, files.length);
    for (const [key, value] of said) metadata.set(key, value);
    checkShard(new Map(own.map((tensor) => [tensor.name, tensor])), claimed, path);
    const unlisted = claimed && own.find((tensor) => !claimed.includes(tensor.name));
    if (unlisted) fail('FORMAT', path, `it has ${nameForMessage(unlisted.name)}, which the index does not list`);
    files.push(path);
    sizes.push((await stat(path)).size);
    tensors.push(...own);
  }
  return { format: 'safetensors', files, sizes, tensors, gguf: undefined, metadata };
}

async function ggufWeights(files: readonly string[]): Promise<Weights> {
  const parts: GgufPart[] = [];
  const sizes: number[] = [];
  const tensors: LocatedTensor[] = [];
  for (const [n, path] of files.entries()) {
    const part = await readGgufPart(path);
    const { size } = await stat(path);
    tensors.push(...locateGguf(part.header, n, size));
    sizes.push(size);
    parts.push(part);
  }
  const { header } = joinGguf(parts);
  return { format: 'gguf', files, sizes, tensors, gguf: header, metadata: header.metadata };
}

/** Withdrawn types that interleave several rows. @see ggml-org/llama.cpp@0024aa7 ggml/include/ggml.h */
const WOVEN = new Set(['TYPE_31', 'TYPE_32', 'TYPE_33', 'TYPE_36', 'TYPE_37', 'TYPE_38']);

function locateGguf({ tensors, dataOffset, alignment }: GgufFile, file: number, fileSize: number): LocatedTensor[] {
  const offsets = [...new Set(tensors.map(({ offset }) => offset))].sort((a, b) => a - b);
  const nextOf = new Map(offsets.map((offset, n) => [offset, offsets[n + 1] ?? fileSize - dataOffset]));
  return tensors.map((tensor) => ({
    name: tensor.name,
    file,
    shape: [...tensor.shape].reverse(),
    type: tensor.type,
    byteOffset: dataOffset + tensor.offset,
    sizeBytes: tensor.sizeBytes ?? sizeByPlace(tensor, nextOf.get(tensor.offset)! - tensor.offset, alignment),
  }));
}

/** Finds the size of a tensor of unknown type, if only one number of bytes per row fits before the next tensor. */
function sizeByPlace({ type, shape }: GgufTensor, room: number, alignment: number): number | undefined {
  const rows = shape.at(-1) ?? 0;
  if (WOVEN.has(type) || rows < 1 || shape.length < 2) return undefined;
  const size = Math.floor(room / rows) * rows;
  return size > 0 && room - size < alignment && room - (size - rows) >= alignment ? size : undefined;
}

/** Facts about a model from the user, for those that its own files do not state. */
export interface GivenGeometry {
  /** The pairing that the weights are laid out for. */
  readonly from?: WeightPairing;
  /** The model's config.json, if it is not beside the weights. */
  readonly config?: string;
  /** The number of q heads. */
  readonly heads?: number;
  /** The number of k heads. */
  readonly kvHeads?: number;
  /** The rows of a head. */
  readonly headDim?: number;
  /** The rows of a head that are rotated. */
  readonly rotaryDim?: number;
}

/** The facts about a model. */
export interface ModelFacts {
  /** The pairing that the weights are laid out for. Undefined when neither the model nor the user states it. */
  readonly from: WeightPairing | undefined;
  /** The source of the pairing, as a full sentence. */
  readonly evidence: string;
  /** The pairing that the file's metadata imply. */
  readonly native: WeightPairing | undefined;
  /** The program that reads these metadata. */
  readonly runtime: 'transformers' | 'llama.cpp' | undefined;
  readonly architecture: string;
  readonly geometryOf: (layer: number) => HeadGeometry;
  /** The rotation, for the proof. Undefined if it is not known. */
  readonly ropeOf: (layer: number) => RopeSpec | undefined;
  readonly fused: FusedLayout | undefined;
  readonly sharesKeys: boolean;
  readonly notes: readonly string[];
}

/** Combines the facts of a model's config.json or GGUF metadata with the user's. Refuses when they contradict. */
export async function factsOf(model: OpenModel, given: GivenGeometry): Promise<ModelFacts> {
  if (model.gguf) {
    if (given.config !== undefined)
      fail('FORMAT', 'permute: config', 'a GGUF has metadata of its own. Leave config out.');
    return combine(ggufFacts(model.gguf, model.path, given), given);
  }
  const beside = join(model.kind === 'folder' ? model.path : dirname(model.path), 'config.json');
  const path = given.config ?? (existsSync(beside) ? beside : undefined);
  return combine(path === undefined ? undefined : huggingfaceFacts(readJsonFile(path), path, given), given);
}

/**
 * Reads the numbers of heads of a layer.
 *
 * @param file - a config.json or a .gguf
 * @param layer - counted from 0
 * @returns the numbers; undefined for each that the file does not state in a known way
 * @throws {RopewalkError} FORMAT when the file cannot be read
 */
export async function headsOf(file: string, layer: number): Promise<Pick<GivenGeometry, 'heads' | 'kvHeads'>> {
  checkPath(file);
  checkInteger(layer, 'layer', 0);
  const header = /\.gguf$/i.test(file) ? (await readGgufModel(file)).header : undefined;
  const config = header ? undefined : readJsonFile(file);
  try {
    const own = header ? ggufFacts(header, file, {}) : huggingfaceFacts(config, file, {});
    const { numHeads, numKvHeads } = own.geometryOf!(layer);
    return { heads: numHeads, kvHeads: numKvHeads };
  } catch (error) {
    if (error instanceof RopewalkError) return {};
    throw error;
  }
}

/** The facts that a model's own metadata state. */
interface OwnFacts extends Partial<Pick<ModelFacts, 'runtime' | 'native' | 'fused' | 'sharesKeys'>> {
  /** The file's name, for messages. */
  readonly where: string;
  readonly architecture: string;
  readonly evidence?: string;
  readonly geometryOf?: (layer: number) => Partial<HeadGeometry>;
  readonly ropeOf?: (layer: number) => RopeSpec | undefined;
  readonly notes: readonly string[];
}

function combine(own: OwnFacts | undefined, given: GivenGeometry): ModelFacts {
  const notes = [...(own?.notes ?? [])];
  const agreed = (known: number | undefined, name: 'heads' | 'kvHeads' | 'headDim' | 'rotaryDim'): number => {
    const said = given[name];
    const expected = `${known}, as ${own?.where} says`;
    if (known !== undefined && said !== undefined && known !== said)
      refuse('FORMAT', `permute: ${name}`, expected, said, 'Leave it out, or correct the file.');
    const flag = `--${name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)}`;
    return known ?? said ?? fail('FORMAT', `permute: ${name}`, `no config.json or metadata says it. Give ${flag}.`);
  };
  if (own?.geometryOf === undefined && given.rotaryDim === undefined)
    notes.push('--rotary-dim is not given: all of head_dim is taken to rotate.');
  return {
    from: given.from ?? own?.native,
    native: own?.native,
    evidence: own?.evidence ?? 'Nothing in the file says how it is laid out; --from says it.',
    runtime: own?.runtime,
    architecture: own?.architecture ?? 'unknown model',
    geometryOf: (layer) => {
      const known = own?.geometryOf?.(layer) ?? {};
      const headDim = agreed(known.headDim, 'headDim');
      return {
        ...known,
        numHeads: agreed(known.numHeads, 'heads'),
        numKvHeads: agreed(known.numKvHeads, 'kvHeads'),
        headDim,
        rotaryDim: agreed(known.rotaryDim ?? (given.rotaryDim === undefined ? headDim : undefined), 'rotaryDim'),
      };
    },
    ropeOf: (layer) => own?.ropeOf?.(layer),
    fused: own?.fused,
    sharesKeys: own?.sharesKeys ?? false,
    notes,
  };
}

/** Whether the user states every fact, so that metadata with an unknown meaning do no harm. */
function saysAll({ from, heads, kvHeads, headDim }: GivenGeometry): boolean {
  return from !== undefined && heads !== undefined && kvHeads !== undefined && headDim !== undefined;
}

function pairingOf(spec: RopeSpec | undefined): WeightPairing | undefined {
  if (spec === undefined || spec.pairing === 'vision') return undefined;
  // DeepSeek-V3 reads neighbours and writes halves: its weights are laid out for neighbours.
  return spec.pairing === 'half' ? 'half' : 'interleaved';
}

/**
 * Returns the RoPE of a layer. A layer without RoPE, or after the last (an extra prediction head), takes that of the
 * others if they are equal.
 */
function specAt(model: ModelRope): (layer: number) => RopeSpec | undefined {
  const specs = model.layers.flatMap(({ rope }) => (rope ? [rope] : []));
  const uniform = specs.every((spec) => spec.headDim === specs[0]!.headDim && spec.rotaryDim === specs[0]!.rotaryDim);
  return (layer) => model.layers[layer]?.rope ?? (uniform ? specs[0] : undefined);
}

function needSpec(spec: RopeSpec | undefined, where: string, layer: number): RopeSpec {
  return spec ?? fail('UNSUPPORTED', where, `layer ${layer} has no RoPE of its own, and the other layers differ.`);
}

/**
 * The layout of the tensor that q, k and v share, by model_type.
 *
 * @see huggingface/transformers@00dcc6d models/NAME/modeling_NAME.py
 */
const FUSED_OF: Readonly<Record<string, FusedLayout>> = {
  gpt_neox: 'by-head',
  gpt_neox_japanese: 'by-head',
  persimmon: 'by-head',
  phi3: 'concatenated',
  phi4_multimodal: 'concatenated',
  modernbert: 'concatenated',
  codegen: 'codegen',
};
/** Each q head has a gate in the same projection. */
const GATED = ['qwen3_next', 'qwen3_5', 'qwen3_5_moe'];

function huggingfaceFacts(json: unknown, where: string, given: GivenGeometry): OwnFacts {
  const outer = new Fields(json, where);
  const config = outer.optionalObject('text_config') ?? outer;
  const name = String(config.raw('model_type') ?? outer.raw('model_type') ?? 'unknown model');
  let model: ModelRope;
  try {
    model = huggingface.ropeFromConfig(json, { where });
  } catch (error) {
    if (!(error instanceof RopewalkError) || !saysAll(given)) throw error;
    return { where, architecture: name, notes: [`What ${where} says is not used: ${error.message}`] };
  }
  const family = model.architecture.replace(/_text(_model)?$/, '');
  // Weights are never rewritten on a guess.
  const { known } = model;
  const spec = specAt(model);
  const native = known ? pairingOf(model.layers.find(({ rope }) => rope)?.rope) : undefined;
  if (config.optionalFlag('attention_k_eq_v'))
    fail('UNSUPPORTED', config.path('attention_k_eq_v'), 'k_proj makes the values too, and their order must stay.');
  const integer = (...keys: string[]): number | undefined => {
    for (const key of keys) {
      const value = Array.isArray(config.raw(key)) ? undefined : config.optionalInteger(key, 1, 2 ** 16);
      if (value !== undefined) return value;
    }
    return undefined;
  };
  const heads = integer('num_attention_heads', 'n_head', 'n_heads');
  const falcon = family === 'falcon' ? falconLayout(config, heads) : undefined;
  const kvHeads = falcon?.kvHeads ?? integer('num_key_value_heads', 'n_head_kv', 'num_kv_heads') ?? heads;
  const mla = config.has('kv_lora_rank') || config.has('qk_rope_head_dim');
  const geometryOf = (layer: number): Partial<HeadGeometry> => {
    const { headDim, rotaryDim = headDim } = needSpec(spec(layer), where, layer);
    if (mla) {
      const nope = config.integer('qk_nope_head_dim', 0, 2 ** 16);
      const rank = config.integer('kv_lora_rank', 0, 2 ** 16);
      const q = { queryRows: nope + headDim, queryOffset: nope };
      return { numHeads: heads, numKvHeads: 1, headDim, rotaryDim, ...q, keyRows: rank + headDim, keyOffset: rank };
    }
    const full = model.layers[layer]?.layerType === 'full_attention';
    const kv = (full ? integer('num_global_key_value_heads') : undefined) ?? kvHeads;
    const gated = GATED.includes(family) && config.optionalFlag('attn_output_gate') !== false;
    const geometry = { numHeads: heads, numKvHeads: kv, headDim, rotaryDim };
    return gated ? { ...geometry, queryRows: 2 * headDim } : geometry;
  };
  const fused = falcon?.fused ?? (Object.hasOwn(FUSED_OF, family) ? FUSED_OF[family] : undefined);
  return {
    where,
    architecture: model.architecture,
    runtime: 'transformers',
    native,
    evidence: known
      ? `${where}: model_type ${model.architecture}: transformers rotates ${native === 'half' ? 'halves' : 'neighbors'}.`
      : `${where}: model_type ${model.architecture} is not known here; --from says it.`,
    geometryOf,
    ropeOf: spec,
    fused,
    sharesKeys: (config.optionalInteger('num_kv_shared_layers', 0) ?? 0) > 0,
    notes: [],
  };
}

function falconLayout(config: Fields, heads: number | undefined): { fused: FusedLayout; kvHeads: number | undefined } {
  if (config.optionalFlag('new_decoder_architecture'))
    return { fused: 'by-group', kvHeads: config.optionalInteger('num_kv_heads') ?? heads };
  // The default of multi_query is true in transformers.
  return config.optionalFlag('multi_query') === false
    ? { fused: 'by-head', kvHeads: heads }
    : { fused: 'concatenated', kvHeads: 1 };
}

function ggufFacts(header: GgufFile, where: string, given: GivenGeometry): OwnFacts {
  const keys = new Fields(header.metadata, where);
  const a = keys.text('general.architecture');
  let model: ModelRope | undefined;
  try {
    model = gguf.ropeFromGguf(header, { where });
  } catch (error) {
    // An unknown architecture states its heads too; the user must state its pairing.
    if (!(error instanceof RopewalkError) || error.code !== 'UNSUPPORTED' || given.from === undefined) throw error;
  }
  const spec = model && specAt(model);
  const native = pairingOf(model?.layers.find(({ rope }) => rope)?.rope);
  const count = (key: string, layer: number): number | undefined => {
    const value = keys.raw(`${a}.${key}`);
    if (!Array.isArray(value)) return keys.optionalInteger(`${a}.${key}`, 1, 2 ** 16);
    const own = value[layer];
    return typeof own === 'number' && own > 0
      ? own
      : refuse('FORMAT', keys.path(`${a}.${key}`), `a number > 0 for layer ${layer}`, own);
  };
  const geometryOf = (layer: number): Partial<HeadGeometry> => {
    const numHeads = count('attention.head_count', layer) ?? given.heads;
    const numKvHeads = count('attention.head_count_kv', layer) ?? numHeads;
    const width = keys.optionalInteger(`${a}.embedding_length`);
    const keyLength = keys.optionalInteger(`${a}.attention.key_length`, 1, 2 ** 16);
    const own = spec && needSpec(spec(layer), where, layer);
    const headDim =
      own?.headDim ?? keyLength ?? (width !== undefined && numHeads !== undefined ? width / numHeads : given.headDim);
    const rotaryDim = own?.rotaryDim ?? keys.optionalInteger(`${a}.rope.dimension_count`) ?? headDim;
    const rank = keys.optionalInteger(`${a}.attention.kv_lora_rank`, 1, 2 ** 16);
    if (rank !== undefined && rotaryDim !== undefined) {
      // MLA: the end of each q head is rotated, and the last rows of the projection that makes all keys.
      const queryRows = keys.optionalInteger(`${a}.attention.key_length_mla`, 1, 2 ** 16) ?? keyLength ?? rotaryDim;
      const q = { queryRows, queryOffset: queryRows - rotaryDim };
      const k = { keyRows: rank + rotaryDim, keyOffset: rank };
      return { numHeads, numKvHeads: 1, headDim: rotaryDim, rotaryDim, ...q, ...k };
    }
    return { numHeads, numKvHeads, headDim, rotaryDim: headDim === undefined ? undefined : rotaryDim };
  };
  const kind = native === 'half' ? 'halves (NEOX)' : 'neighbours (NORMAL)';
  return {
    where,
    architecture: a,
    runtime: 'llama.cpp',
    native,
    evidence: native
      ? `${where}: general.architecture ${a}: llama.cpp rotates ${kind}, and its converter writes q and k for that. No key says whether it did.`
      : `${where}: general.architecture ${a} is not known here; --from says it.`,
    geometryOf,
    ropeOf: spec,
    // llama.cpp's converter writes q, k and v one after another into a fused tensor, for every architecture.
    fused: 'concatenated',
    notes: [],
  };
}
