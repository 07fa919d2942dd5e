/** The RoPE of a model, layer by layer, and one layer of it. @module */
import { type GgufHeader, gguf, huggingface, type ModelRope, specToJson } from '@ropewalk/dialects/internal/models';
import type { RopeSpec } from 'ropewalk';
import { fail, refuse } from 'ropewalk/backend';
import { ranges, reading, readOptions } from 'ropewalk/internal';

/** The RoPE of a file: a model with its layers, or one record. */
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
  /** Notes about the file, as full sentences. */
  readonly notes: readonly string[];
  /** The layers of the model that have another RoPE. */
  readonly others: readonly number[];
  /** The model's name for this kind of layer. */
  readonly layerType: string | undefined;
}

/** Reads the RoPE of a model's config.json. @throws {RopewalkError} as `huggingface.ropeFromConfig` */
export function modelSourceFromJson(json: unknown, file: string, context?: number): ModelSource {
  return reading(`${file}: JSON`, () => ({
    kind: 'model',
    file,
    model: huggingface.ropeFromConfig(json, { context, where: file }),
  }));
}

/**
 * Reads the RoPE of a GGUF.
 *
 * @param model - the result of `ggufModelOf`, or its metadata, names of tensors and factors
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
 * @param source - from `ropeSourceFromJson` or `readRopeSource`
 * @param layer - the index of a model's layer. Default: the first one with RoPE
 * @param still - gives a layer without RoPE the record of another layer, in which no pair rotates
 * @throws {RopewalkError} RANGE for a layer that does not exist, or has no RoPE
 */
export function layerOf(source: RopeSource, layer?: number, still = false): LayerSource {
  return reading('source', () => sourceOfLayer(readOptions(source, 'source'), layer, still));
}

function sourceOfLayer(source: RopeSource, asked: number | undefined, still: boolean): LayerSource {
  const { file } = source;
  if (source.kind === 'record') {
    const { peer } = source;
    const spec = readOptions(source.spec, 'source: spec');
    return { spec, from: peer === 'spec' ? file : `${file} (${peer})`, notes: [], others: [], layerType: undefined };
  }
  const { layers, notes } = source.model;
  const rotated = layers.filter(({ rope }) => rope).map((one) => one.layer);
  const layer = asked ?? rotated[0] ?? 0;
  const found = layers[layer] ?? refuse('RANGE', 'layer', `an integer in [0, ${layers.length - 1}]`, layer);
  const next = rotated.length > 0 ? ` Layers with RoPE: ${ranges(rotated)}.` : '';
  const [first] = rotated;
  if (!found.rope && still && first !== undefined) {
    const { freqFactors: _factors, ...rope } = layers[first]!.rope!;
    const spec = { ...rope, scaling: { kind: 'proportional', rotatedPairs: 0 }, attentionFactor: 1 } as const;
    const from = `${file}, layer ${layer}, which does not rotate`;
    return { spec, from, notes, others: [], layerType: found.layerType };
  }
  const spec = found.rope ?? fail('RANGE', 'layer', `layer ${layer} of ${file} has no position encoding.${next}`);
  const key = JSON.stringify(specToJson(spec));
  const others = layers.filter(({ rope }) => rope && JSON.stringify(specToJson(rope)) !== key).map((one) => one.layer);
  return { spec, from: `${file}, layer ${layer}`, notes, others, layerType: found.layerType };
}
