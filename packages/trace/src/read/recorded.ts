/** The index of a folder that `trace record` writes: what the tensors do not say of the run. @module */
import { ropeSourceFromJson } from '@ropewalk/checkpoint';
import { refuse } from 'ropewalk/backend';
import { Fields } from 'ropewalk/internal';
import type { LayerFacts, RunFacts } from '../dump.js';

export const INDEX_FILE = 'index.json';
export const TENSORS_FILE = 'tensors.safetensors';
export const INDEX_FORM = 'ropewalk-trace/1';

const MAX_LAYERS = 4096;

/** Reads an index. @throws {RopewalkError} FORMAT when a field is wrong; undefined for a JSON of another form */
export function factsOf(json: unknown, where: string): RunFacts | undefined {
  if (typeof json !== 'object' || json === null || !('form' in json) || json.form !== INDEX_FORM) return undefined;
  const index = new Fields(json, where);
  const layers = index.raw('layers');
  if (!Array.isArray(layers) || layers.length > MAX_LAYERS)
    refuse('FORMAT', `${where}: layers`, `a list of at most ${MAX_LAYERS} layers`, layers);
  return { layers: layers.map((one, layer) => layerOf(new Fields(one, `${where}: layers[${layer}]`))) };
}

function layerOf(fields: Fields): LayerFacts {
  const [numHeads, numKvHeads, headDim] = (['numHeads', 'numKvHeads', 'headDim'] as const).map(
    (key) => fields.optionalInteger(key) ?? fields.refuse('FORMAT', key, 'an integer >= 1'),
  ) as [number, number, number];
  const source = fields.has('rope') ? ropeSourceFromJson(fields.raw('rope'), fields.path('rope')) : undefined;
  if (source && source.kind !== 'record') fields.refuse('FORMAT', 'rope', 'a record of a RoPE');
  return { numHeads, numKvHeads, headDim, rope: source?.spec };
}
