/** The RoPE that a parsed JSON describes, and one layer of a model. @module */
import {
  type GgufHeader,
  type GivenTable,
  gguf,
  huggingface,
  type ModelRope,
  readForm,
  specToJson,
} from '@ropewalk/dialects';
import type { RopeSpec } from 'ropewalk';
import { fail, reading, readOptions, refuse } from 'ropewalk/backend';
import { parseNpy, tensorFromNpy } from './npy.js';

/** What a file says about RoPE: a model with its layers, or one record. */
export type RopeSource =
  | ModelSource
  | { readonly kind: 'record'; readonly file: string; readonly peer: string; readonly spec: RopeSpec };

/** A model, layer by layer. */
export interface ModelSource {
  readonly kind: 'model';
  readonly file: string;
  readonly model: ModelRope;
}

/** The RoPE of one layer. */
export interface LayerSource {
  readonly spec: RopeSpec;
  /** For messages: `llama.json, layer 0`. */
  readonly from: string;
  /** Full sentences. */
  readonly notes: readonly string[];
  /** Layers of the model with another RoPE. */
  readonly others: readonly number[];
  /** The model's name for this kind of layer. */
  readonly layerType: string | undefined;
}

/** What a JSON does not say itself. */
export interface JsonRopeOptions {
  /** Tokens in use, for scaling that depends on it. */
  readonly context?: number;
  /** It is a model's config.json, whatever its fields are. */
  readonly isModel?: boolean;
  /** Reads a file beside the JSON: a .npy that a peer's arguments name. Without it, such arguments are refused. */
  readonly readFile?: (name: string) => Uint8Array;
}

/**
 * Reads the RoPE that a JSON describes.
 *
 * @param json - a model's config.json, a record (`{ "headDim": 128, "pairing": "half", "base": 10000 }`) or a peer's
 *   arguments, parsed
 * @param file - its name, for messages
 * @param options - the context, whether it must be a model, and how its tables are read
 * @throws {RopewalkError} FORMAT when it describes no RoPE; otherwise what its reader throws
 */
export function ropeSourceFromJson(json: unknown, file: string, options: JsonRopeOptions = {}): RopeSource {
  if (typeof file !== 'string') refuse('RANGE', 'ropeSourceFromJson: file', "a file's name", file);
  return reading(`${file}: JSON`, () => sourceOfJson(json, file, options));
}

function sourceOfJson(json: unknown, file: string, options: JsonRopeOptions): RopeSource {
  const { context, isModel = false, readFile } = readOptions(options, `${file}: options`);
  const fields = typeof json === 'object' && json !== null ? json : {};
  if (isModel || 'model_type' in fields || 'text_config' in fields)
    return { kind: 'model', file, model: huggingface.ropeFromConfig(json, { context, where: file }) };
  return { kind: 'record', file, ...readForm(json, readTables(json, file, readFile), { context, where: file }) };
}

/** The .npy files that a JSON names in its arguments or its tables. */
function readTables(json: unknown, file: string, readFile: JsonRopeOptions['readFile']): Map<string, GivenTable> {
  const tables = new Map<string, GivenTable>();
  const { arguments: own, tables: listed } = (json ?? {}) as Record<string, unknown>;
  for (const root of [json, own, listed]) {
    if (typeof root !== 'object' || root === null || Array.isArray(root)) continue;
    for (const [name, value] of Object.entries(root)) {
      if (typeof value !== 'string' || !value.endsWith('.npy')) continue;
      const where = `${file}: ${name}`;
      if (/[/\\]/.test(value)) refuse('FORMAT', where, 'the name of a file in the same folder', value);
      if (!readFile) fail('FORMAT', where, `its table ${value} is needed. Give that file too.`);
      const npy = parseNpy(readFile(value), value);
      // npy has no bf16; its bits are stored as u16.
      const dtype = npy.dtype === 'u16' ? 'bf16' : npy.dtype;
      const roundoff = { f64: 2 ** -53, f32: 2 ** -24, f16: 2 ** -11, bf16: 2 ** -8 }[dtype as string];
      if (roundoff === undefined) refuse('DTYPE', value, 'f64, f32, f16, or bf16 as u16', npy.dtype);
      tables.set(name, { shape: npy.shape, data: tensorFromNpy(npy, dtype).readNumbers() as Float64Array, roundoff });
    }
  }
  return tables;
}

/**
 * Reads the RoPE of a GGUF.
 *
 * @param model - from {@link ggufModelOf}, or those of its parts that are needed: metadata, names of tensors, factors
 * @param file - its name, for messages
 * @param context - tokens in use, for scaling that depends on it
 * @throws {RopewalkError} FORMAT when it does not describe a RoPE
 */
export function ropeSourceFromGguf(
  model: { readonly header: GgufHeader; readonly factors: ReadonlyMap<string, Float32Array> },
  file: string,
  context?: number,
): ModelSource {
  if (typeof file !== 'string') refuse('RANGE', 'ropeSourceFromGguf: file', "a file's name", file);
  return reading(`${file}: GGUF`, () => {
    const { header, factors } = readOptions(model, 'ropeSourceFromGguf: model');
    const { metadata, tensors } = readOptions(header, 'ropeSourceFromGguf: model.header');
    const found = gguf.ropeFromGguf(
      { metadata, tensors, readTensor: (name) => factors.get(name) },
      { context, where: file },
    );
    return { kind: 'model', file, model: found };
  });
}

/**
 * Chooses one layer.
 *
 * @param source - from {@link ropeSourceFromJson} or `readRopeSource`
 * @param layer - of a model, from 0
 * @throws {RopewalkError} RANGE for a layer that does not exist, or has no RoPE
 */
export function layerOf(source: RopeSource, layer = 0): LayerSource {
  return reading('source', () => sourceOfLayer(readOptions(source, 'source'), layer));
}

function sourceOfLayer(source: RopeSource, layer: number): LayerSource {
  const { file } = source;
  if (source.kind === 'record') {
    const { peer } = source;
    const spec = readOptions(source.spec, 'source: spec');
    return { spec, from: peer === 'spec' ? file : `${file} (${peer})`, notes: [], others: [], layerType: undefined };
  }
  const { layers, notes } = source.model;
  const found = layers[layer] ?? refuse('RANGE', 'layer', `an integer in [0, ${layers.length - 1}]`, layer);
  const spec = found.rope ?? fail('RANGE', 'layer', `layer ${layer} of ${file} has no position encoding`);
  const key = JSON.stringify(specToJson(spec));
  const others = layers.filter(({ rope }) => rope && JSON.stringify(specToJson(rope)) !== key).map((one) => one.layer);
  return { spec, from: `${file}, layer ${layer}`, notes, others, layerType: found.layerType };
}
