/**
 * A model's RoPE, layer by layer, as read from a HuggingFace config or a GGUF header.
 *
 * @module
 */
import type { RopeSpec } from 'ropewalk';
import { refuse } from 'ropewalk/backend';
import { type OptionNames, readOptions } from 'ropewalk/internal';

/** The effective RoPE of one layer. */
export interface LayerRope {
  /** Counted from 0. */
  readonly layer: number;
  /** The model's name for this kind of layer, such as `sliding_attention`. */
  readonly layerType?: string;
  /** Tokens that a token of this layer sees, itself included; undefined for all before it, and where it is unknown. */
  readonly window?: number;
  /** Ready for planRope once positions are added; undefined for a layer without position encoding (NoPE). */
  readonly rope: RopeSpec | undefined;
}

/** The effective RoPE of a model. */
export interface ModelRope {
  readonly source: 'huggingface' | 'gguf';
  /** model_type or general.architecture. */
  readonly architecture: string;
  /** Whether this library knows the architecture. An unknown one is read by the common rules, and a note says so. */
  readonly known: boolean;
  readonly numLayers: number;
  readonly layers: readonly LayerRope[];
  /** Tokens the model says it can take. */
  readonly maxContext: number | undefined;
  /** Assumptions and hints, in full sentences. */
  readonly notes: readonly string[];
}

/** What the caller may know beside the file. */
export interface ModelRopeOptions {
  /** Tokens in use: chooses LongRoPE's factors and dynamic NTK's base. The original context unless given. */
  readonly context?: number;
  /** Names the file in messages. */
  readonly where?: string;
}

const NAMES: OptionNames<ModelRopeOptions> = { context: true, where: true };

/** Checks the options of a dialect; `where` is what messages call the file, unless the options say. */
export function readModelRopeOptions(options: ModelRopeOptions, where: string) {
  const given = readOptions(options, `${where}: options`, NAMES);
  const { context } = given;
  if (given.where !== undefined && typeof given.where !== 'string')
    refuse('RANGE', `${where}: where`, 'a string', given.where);
  if (context !== undefined && !(Number.isSafeInteger(context) && context > 0))
    refuse('RANGE', `${where}: context`, 'an integer >= 1, in tokens', context);
  return { ...given, where: given.where ?? where };
}

/** A record, or an equal one of the same model: who makes tables makes them once for each record. */
export function shareRecord(rope: RopeSpec, known: Map<string, RopeSpec>): RopeSpec {
  const key = JSON.stringify(rope);
  const shared = known.get(key) ?? rope;
  known.set(key, shared);
  return shared;
}

/** The object without its undefined fields, as users print it. */
export function compact<T extends object>(fields: T): T {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined)) as T;
}
