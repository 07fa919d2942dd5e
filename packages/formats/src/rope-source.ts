/** The RoPE that a parsed JSON describes, and one layer of a model. @module */
import { type GivenTable, huggingface, type ModelRope, readForm, specToJson } from '@ropewalk/dialects';
import type { RopeSpec } from 'ropewalk';
import { fail, reading, readOptions, refuse } from 'ropewalk/backend';

/** What a file says about RoPE: a model with its layers, or one record. */
export type RopeSource =
  | { readonly kind: 'model'; readonly file: string; readonly model: ModelRope }
  | { readonly kind: 'record'; readonly file: string; readonly peer: string; readonly spec: RopeSpec };

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
  /** Reads the tables of a peer's arguments, by their names; none unless given. */
  readonly tables?: () => ReadonlyMap<string, GivenTable>;
}

/**
 * Reads the RoPE that a JSON describes.
 *
 * @param json - a model's config.json, a record (`{ "headDim": 128, "pairing": "half", "base": 10000 }`) or a peer's
 *   arguments, parsed
 * @param file - its name, for messages
 * @param options - the context, whether it must be a model, and its tables
 * @throws {RopewalkError} FORMAT when it describes no RoPE; otherwise what its reader throws
 */
export function ropeSourceFromJson(json: unknown, file: string, options: JsonRopeOptions = {}): RopeSource {
  if (typeof file !== 'string') refuse('RANGE', 'ropeSourceFromJson: file', "a file's name", file);
  return reading(`${file}: JSON`, () => sourceOfJson(json, file, options));
}

function sourceOfJson(json: unknown, file: string, options: JsonRopeOptions): RopeSource {
  const { context, isModel = false, tables = () => new Map() } = readOptions(options, `${file}: options`);
  const fields = typeof json === 'object' && json !== null ? json : {};
  if (isModel || 'model_type' in fields || 'text_config' in fields)
    return { kind: 'model', file, model: huggingface.ropeFromConfig(json, { context, where: file }) };
  return { kind: 'record', file, ...readForm(json, tables(), { context, where: file }) };
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
