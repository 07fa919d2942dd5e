/** Describes a chosen or dropped model and its layers. @module */

import { ropeSourceFromGguf, ropeSourceFromJson } from '@ropewalk/checkpoint';
import { groupLayers, type LayerGroup, type ModelRope, modelTypeOf } from '@ropewalk/dialects';
import type { RopeSpec } from 'ropewalk';
import { COPIES, MODELS } from './models.js';
import type { Opened } from './rope.worker.js';

/** A model of the list, or a dropped one. Its RoPE may depend on the number of tokens in use. */
export interface Source {
  /** The id of the model in the address and in lists. */
  readonly id: string;
  /** The source of its figures, in words. */
  readonly from: string;
  readonly url?: string;
  /** The content of the files, or of those of another host. Undefined for a model of the list. */
  readonly opened?: Opened;
  /** The fields of its config.json. Undefined for a GGUF. */
  readonly config?: unknown;
  /**
   * Reads its RoPE.
   *
   * @param context - the number of tokens in use. Default: what the model's reader assumes
   */
  readonly read: (context: number | undefined) => Read;
}

/** A model's RoPE, as one record for all layers or layer by layer. */
export interface Read {
  readonly rope: ModelRope | RopeSpec;
  readonly architecture: string;
  readonly numLayers: number;
  readonly maxContext: number | undefined;
  readonly notes: readonly string[];
  /** The groups of layers that have the same RoPE, type and window. */
  readonly groups: readonly LayerGroup[];
  /** The names of the model's family for `convert`. */
  readonly names: { readonly modelType?: string; readonly architecture?: string };
  /** The heads of q and k, if the file has one number for all layers. */
  readonly heads: number | undefined;
  readonly kvHeads: number | undefined;
}

/** The context of models that do not state one. */
export const ASSUMED_CONTEXT = 4096;

/**
 * Returns how far the pictures go: positions to the context that the RoPE is for, distances also no further than the
 * window, beyond which no token is seen.
 */
export function reachOf(
  { scaling }: RopeSpec,
  maxContext: number | undefined,
  window: number | undefined,
): { readonly context: number; readonly distance: number } {
  let context = maxContext ?? ASSUMED_CONTEXT;
  if (scaling?.kind === 'dynamicNtk') context = Math.min(context, scaling.context);
  if (scaling?.kind === 'longrope' && (scaling.context ?? 0) <= scaling.originalContext)
    context = Math.min(context, scaling.originalContext);
  return { context, distance: Math.min(context, window ?? context) };
}

const count = (value: unknown): number | undefined =>
  Number.isInteger(value) && (value as number) > 0 ? (value as number) : undefined;

function ofModel(rope: ModelRope, heads: unknown, kvHeads: unknown, names: Read['names']): Read {
  const { architecture, numLayers, maxContext, notes } = rope;
  const groups = groupLayers(rope.layers);
  return {
    rope,
    architecture,
    numLayers,
    maxContext,
    notes,
    groups,
    names,
    heads: count(heads),
    kvHeads: count(kvHeads),
  };
}

function readJson(json: unknown, file: string, context: number | undefined): Read {
  const source = ropeSourceFromJson(json, file, { context });
  if (source.kind === 'record') {
    const groups = [{ layers: [0], layerType: undefined, window: undefined, rope: source.spec }];
    const notes: string[] = [];
    const what = {
      architecture: `a record in the words of ${source.peer}`,
      numLayers: 1,
      maxContext: undefined,
      notes,
    };
    return { rope: source.spec, ...what, groups, names: {}, heads: undefined, kvHeads: undefined };
  }
  const outer = json as Record<string, unknown>;
  const config = (outer.text_config ?? outer) as Record<string, unknown>;
  const heads = config.num_attention_heads ?? config.n_head;
  // Multi-head latent attention rotates one key for all heads.
  const kvHeads = config.qk_rope_head_dim === undefined ? (config.num_key_value_heads ?? heads) : 1;
  return ofModel(source.model, heads, kvHeads, { modelType: source.model.architecture });
}

/** Finds a model of the list. */
export function published(id: string): Source | undefined {
  const found = MODELS.find((model) => model.id === id);
  if (!found) return undefined;
  const { config, copy } = found;
  const { name, url } = COPIES[copy];
  return { id, from: name, url, config, read: (context) => readJson(config, `config.json of ${id}`, context) };
}

/** Makes a source of a dropped file, or of one from another host, whose name there is its id. */
export function dropped(opened: Opened): Source {
  const { file, host } = opened;
  const common = { id: host === undefined ? `file: ${file}` : file, from: file, opened };
  if (opened.kind === 'json')
    return { ...common, config: opened.json, read: (context) => readJson(opened.json, file, context) };
  const { metadata, tensors, factors } = opened;
  return {
    ...common,
    read(context) {
      const source = ropeSourceFromGguf({ header: { metadata, tensors }, factors }, file, context);
      const rope = source.model;
      const { architecture } = rope;
      const key = (name: string): unknown => metadata.get(`${architecture}.attention.${name}`);
      const kvHeads = key('kv_lora_rank') === undefined ? (key('head_count_kv') ?? key('head_count')) : 1;
      return ofModel(rope, key('head_count'), kvHeads, { architecture, modelType: modelTypeOf(architecture) });
    },
  };
}

/** Writes layers, counted from 0, as ranges such as `0–3, 8`. */
export function layerRanges(layers: readonly number[]): string {
  const parts: string[] = [];
  for (let i = 0; i < layers.length; ) {
    let end = i;
    while (layers[end + 1] === layers[end]! + 1) end++;
    parts.push(end === i ? `${layers[i]}` : `${layers[i]}–${layers[end]}`);
    i = end + 1;
  }
  const words = parts.length > 6 ? `${parts.slice(0, 5).join(', ')}, …, ${parts.at(-1)}` : parts.join(', ');
  return `${layers.length === 1 ? 'layer' : 'layers'} ${words}`;
}

export const whole = (n: number): string => Math.round(n).toLocaleString('en');
