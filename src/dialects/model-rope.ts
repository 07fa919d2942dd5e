/**
 * What a model file says about RoPE, layer by layer: the record that HuggingFace configs and GGUF headers both become.
 *
 * @module
 */
import { readOptions } from '../core/arguments.js';
import { refuse } from '../core/errors.js';
import type { RopeSpec } from '../ops/rope/plan.js';

/** The effective RoPE of one layer. */
export interface LayerRope {
  /** Counted from 0. */
  readonly layer: number;
  /** The model's own name for this kind of layer, such as `sliding_attention`. */
  readonly layerType?: string;
  /** Ready for planRope once positions are added; undefined for a layer without position encoding (NoPE). */
  readonly rope: RopeSpec | undefined;
}

/** The effective RoPE of a model. */
export interface ModelRope {
  readonly source: 'huggingface' | 'gguf';
  /** The model's own name of its architecture: model_type or general.architecture. */
  readonly architecture: string;
  /** Whether the architecture is known here; RoPE of one that is not is read as most models have it, and a note says so. */
  readonly known: boolean;
  readonly numLayers: number;
  readonly layers: readonly LayerRope[];
  /** Tokens the model says it can take. */
  readonly maxContext: number | undefined;
  /** What was assumed, and what a reader should know; full sentences. */
  readonly notes: readonly string[];
}

/** What the reader may know beside the file. */
export interface ModelRopeOptions {
  /** Tokens in use: chooses LongRoPE's factors and dynamic NTK's base. Within the original context unless given. */
  readonly context?: number;
  /** Names the file in messages. */
  readonly where?: string;
}

/**
 * Checks the options of a dialect that reads a model's RoPE.
 *
 * @param options - as the caller gave them
 * @param where - what messages call the file, unless the options say
 * @returns a copy
 * @throws {RopewalkError} RANGE, naming the option
 */
export function readModelRopeOptions(
  options: ModelRopeOptions,
  where: string,
): ModelRopeOptions & { readonly where: string } {
  const given = readOptions(options, `${where}: options`);
  const { context } = given;
  if (given.where !== undefined && typeof given.where !== 'string')
    refuse('RANGE', `${where}: where`, 'a text', given.where);
  if (context !== undefined && !(Number.isSafeInteger(context) && context > 0))
    refuse('RANGE', `${where}: context`, 'an integer >= 1, in tokens', context);
  return { ...given, where: given.where ?? where };
}
