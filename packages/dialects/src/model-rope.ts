/**
 * A model's RoPE, layer by layer, as a HuggingFace config or a GGUF header gives it.
 *
 * @module
 */
import type { RopeSpec } from 'ropewalk';
import { refuse } from 'ropewalk/backend';
import {
  checkInteger,
  checkName,
  groupBy,
  type OptionNames,
  optionNames,
  reading,
  readList,
  readOptional,
  readOptions,
} from 'ropewalk/internal';
import { specToJson } from './convert/record.js';

/** The effective RoPE of one layer. */
export interface LayerRope {
  /** The first layer is 0. */
  readonly layer: number;
  /** The model's name for this kind of layer, such as `sliding_attention`. */
  readonly layerType?: string;
  /** A token of this layer sees so many tokens, itself included; undefined for all before it, or for unknown. */
  readonly window?: number;
  /** With positions it is what planRope takes; undefined for a layer without position encoding (NoPE). */
  readonly rope: RopeSpec | undefined;
}

/** The effective RoPE of a model. */
export interface ModelRope {
  readonly source: 'huggingface' | 'gguf';
  /** It is model_type or general.architecture. */
  readonly architecture: string;
  /** This library knows the architecture. An unknown one is read by the common rules, and a note says so. */
  readonly known: boolean;
  readonly numLayers: number;
  readonly layers: readonly LayerRope[];
  /** The model says that it can take so many tokens. */
  readonly maxContext: number | undefined;
  /** Assumptions and hints, in full sentences. */
  readonly notes: readonly string[];
}

/** The tokens up to which frequencies are those of short texts; undefined where they do not depend on the tokens in use. */
export function shortContextOf({ scaling }: RopeSpec): number | undefined {
  return scaling?.kind === 'longrope' || scaling?.kind === 'dynamicNtk' ? scaling.originalContext : undefined;
}

/**
 * The tokens up to which a model's RoPE is that of short texts, and the longest text that its scaling is for; undefined
 * where it does not depend on the tokens in use.
 */
export function longestOf({ maxContext, layers }: ModelRope) {
  for (const { rope } of layers) {
    const short = rope && shortContextOf(rope);
    if (maxContext === undefined || short === undefined) continue;
    const factor = rope!.scaling!.kind === 'dynamicNtk' ? rope!.scaling!.factor : 1;
    return { short, context: Math.round(maxContext * factor) };
  }
  return undefined;
}

/** The facts that a caller may know beside the file. */
export interface ModelRopeOptions {
  /** The tokens in use choose LongRoPE's factors and dynamic NTK's base. Default: the original context. */
  readonly context?: number;
  /** The name of the file in messages. */
  readonly where?: string;
}

const NAMES: OptionNames<ModelRopeOptions> = /* @__PURE__ */ optionNames('context where');

/** Checks the options of a dialect. `where` is the default name of the file in messages. */
export function readModelRopeOptions(options: ModelRopeOptions, where: string) {
  const given = readOptions(options, `${where}: options`, NAMES);
  const { context } = given;
  if (given.where !== undefined && typeof given.where !== 'string')
    refuse('RANGE', `${where}: where`, 'a string', given.where);
  if (context !== undefined && !(Number.isSafeInteger(context) && context > 0))
    refuse('RANGE', `${where}: context`, 'an integer >= 1, in tokens', context);
  return { ...given, where: given.where ?? where };
}

/** Returns an equal record of the same model, where there is one: callers make tables once for each record. */
export function shareRecord(rope: RopeSpec, known: Map<string, RopeSpec>): RopeSpec {
  const key = JSON.stringify(rope);
  const shared = known.get(key) ?? rope;
  known.set(key, shared);
  return shared;
}

/** Removes undefined fields, as users print the object. */
export function compact<T extends object>(fields: T): T {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined)) as T;
}

/** Layers of a model that have the same RoPE, type and window. */
export interface LayerGroup {
  /** The layers ascend. */
  readonly layers: readonly number[];
  /** The model's name for these layers, such as `sliding_attention`. */
  readonly layerType: string | undefined;
  /** These layers see so many tokens; undefined for all. */
  readonly window: number | undefined;
  /** Layers without position encoding have none. */
  readonly rope: RopeSpec | undefined;
}

/**
 * Groups the layers of a model that have the same RoPE, type and window.
 *
 * @param layers - of a ModelRope
 * @returns the groups, in the order of their first layers
 * @throws {RopewalkError} SHAPE or RANGE for anything but a list of layers
 */
export function groupLayers(layers: readonly LayerRope[]): LayerGroup[] {
  const own = Array.from(readList(layers, 'layers'), (layer, n) => readLayer(layer, `layers[${n}]`));
  const keyOfLayer = ({ rope, layerType, window }: LayerRope) => `${keyOf(rope)} ${layerType} ${window}`;
  return [...reading('layers', () => groupBy(own, keyOfLayer)).values()].map((group) => {
    const { layerType, window, rope } = group[0]!;
    return { layers: group.map(({ layer }) => layer), layerType, window, rope };
  });
}

export function readLayer(given: LayerRope, where: string): LayerRope {
  const { layer, layerType, window, rope } = readOptions(given, where);
  checkInteger(layer, `${where}: layer`, 0);
  if (layerType !== undefined) checkName(layerType, `${where}: layerType`, 'the layer');
  if (window !== undefined) checkInteger(window, `${where}: window`, 1);
  return { layer, layerType, window, rope: readOptional(rope, `${where}: rope`) };
}

/** Checks the layers of a model that a caller gives. */
export function readModelRope(given: ModelRope, where: string): ModelRope {
  const own = readOptions(given, where);
  return {
    ...own,
    layers: Array.from(readList(own.layers, `${where}: layers`), (one) => readLayer(one, `${where}: layers`)),
  };
}

/** Makes a text that two records share if they are alike, and only then. */
export const keyOf = (spec: RopeSpec | undefined): string => (spec ? JSON.stringify(specToJson(spec)) : 'none');
