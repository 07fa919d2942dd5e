/** The layers of a model that are alike. @module */
import type { RopeSpec } from 'ropewalk';
import { checkInteger, checkName, reading, readList, readOptional, readOptions } from 'ropewalk/internal';
import type { LayerRope } from '../model-rope.js';
import { specToJson } from './record.js';

/** Layers of a model that have the same RoPE, type and window. */
export interface LayerGroup {
  /** Ascending. */
  readonly layers: readonly number[];
  /** The model's own name for these layers, such as `sliding_attention`. */
  readonly layerType: string | undefined;
  /** Tokens that these layers see; undefined for all. */
  readonly window: number | undefined;
  /** undefined for layers without position encoding. */
  readonly rope: RopeSpec | undefined;
}

/**
 * Groups the layers of a model that have the same RoPE, type and window.
 *
 * @param layers - of a ModelRope
 * @returns in the order of each group's first layer
 * @throws {RopewalkError} SHAPE or RANGE for what is no list of layers
 */
export function groupLayers(layers: readonly LayerRope[]): LayerGroup[] {
  const own = Array.from(readList(layers, 'layers'), (layer, n) => readLayer(layer, `layers[${n}]`));
  const keyOfLayer = ({ rope, layerType, window }: LayerRope) => `${keyOf(rope)} ${layerType} ${window}`;
  const groups = reading('layers', () => groupBy(own, keyOfLayer));
  return groups.map((group) => ({
    layers: group.map(({ layer }) => layer),
    layerType: group[0]!.layerType,
    window: group[0]!.window,
    rope: group[0]!.rope,
  }));
}

export function readLayer(given: LayerRope, where: string): LayerRope {
  const { layer, layerType, window, rope } = readOptions(given, where);
  checkInteger(layer, `${where}: layer`, 0);
  if (layerType !== undefined) checkName(layerType, `${where}: layerType`, 'the layer');
  if (window !== undefined) checkInteger(window, `${where}: window`, 1);
  return { layer, layerType, window, rope: readOptional(rope, `${where}: rope`) };
}

/** What two specs have in common exactly if they are alike. */
export const keyOf = (spec: RopeSpec | undefined): string => (spec ? JSON.stringify(specToJson(spec)) : 'none');

/** Items with the same key, in the order of each key's first. */
export function groupBy<T>(list: readonly T[], keyOfItem: (item: T) => string): T[][] {
  const groups = new Map<string, T[]>();
  for (const item of list) {
    const key = keyOfItem(item);
    const group = groups.get(key);
    if (group) group.push(item);
    else groups.set(key, [item]);
  }
  return [...groups.values()];
}
