/** Step 3 of loading: {@link ModelDescription} → {@link PlannedModel}, with a plan for each weight. @module */

import { refuse } from 'ropewalk/backend';
import { BLOCK_FORMAT_NAMES, type OptionNames, reading, readList, readName, readOptions } from 'ropewalk/internal';
import { checkTypes } from './arguments.js';
import type { ModelDescription } from './description.js';
import { QUANTIZED_FORMATS } from './quantize.js';
import { SPLIT_FORMATS } from './split-blocks.js';
import { type StreamWeightOptions, streamWeight, type WritePiece } from './stream-weight.js';
import { type HoldOptions, planWeights, type WeightPlan } from './weights.js';

const NAMES: OptionNames<HoldOptions> = { widenTo: true, formats: true, quantize: true, widenHalves: true, as: true };

/** A model with a plan for each of its weights. No weight is in memory. */
export interface PlannedModel extends ModelDescription {
  /** The weights in the order of the forward pass. */
  readonly weights: readonly WeightPlan[];
  /**
   * Reads a weight and passes on the `heldBytes` that are held of it, each exactly once, in pieces of at most 8 MiB.
   * They come in order unless the plan has `turns`.
   *
   * @param write - takes a piece and its place among the held bytes; the next piece waits for its promise
   * @throws {RopewalkError} FORMAT for a file that ends early, and for a weight that its dtype cannot hold; the
   *   signal's reason when it aborts; whatever `write` throws
   */
  streamWeight(plan: WeightPlan, write: WritePiece, options?: StreamWeightOptions): Promise<void>;
}

/**
 * Plans how each weight is held in memory.
 *
 * @throws {RopewalkError} FORMAT for a tensor that is missing or has another shape; UNSUPPORTED for a tensor or type
 *   that is not computed here; RANGE, DTYPE or SHAPE for options of another kind
 * @example const { weights } = planModel(await describeModel(files), { formats: ['q8_0', 'q4_0'] });
 */
export function planModel(description: ModelDescription, options: HoldOptions = {}): PlannedModel {
  const given = readOptions(options, 'planModel: options', NAMES);
  const { widenTo = 'f32', widenHalves, as, quantize } = given;
  if (widenTo !== 'f32' && widenTo !== 'f16') refuse('DTYPE', 'planModel: widenTo', 'f32 or f16', widenTo);
  checkTypes({ widenHalves }, 'boolean', 'planModel');
  checkTypes({ as }, 'function', 'planModel');
  const formats = Array.from(
    readList(given.formats ?? BLOCK_FORMAT_NAMES, 'planModel: formats', 'a list of block formats'),
  );
  for (const name of formats) readName(name, HELD_FORMATS, 'planModel: formats');
  if (quantize !== undefined) readName(quantize, QUANTIZED_FORMATS, 'planModel: quantize');
  const hold = { ...given, formats, as: as && checkedAs(as) };
  return {
    ...description,
    weights: planWeights(description.config, description.stored, description.where, hold),
    streamWeight: (plan, write, streaming) => streamWeight(description, plan, write, streaming),
  };
}

/** Every format that is held as it is stored. */
const HELD_FORMATS = [...new Set([...BLOCK_FORMAT_NAMES, ...SPLIT_FORMATS])];

const WRITABLE = ['f32', 'f16', 'bf16', ...QUANTIZED_FORMATS] as const;

/** Refuses the answers of a caller's function that are no types a weight can become. */
function checkedAs(as: NonNullable<HoldOptions['as']>): NonNullable<HoldOptions['as']> {
  return (weight) => {
    const where = 'planModel: as';
    const held = reading(where, () => as(weight));
    if (held === undefined) return undefined;
    readName(held, WRITABLE, where);
    const { shape, place } = weight;
    if (QUANTIZED_FORMATS.some((one) => one === held) && (shape.length < 2 || shape.at(-1)! % 32 !== 0))
      refuse('UNSUPPORTED', where, `a type of floats for ${place}, whose rows are not whole blocks`, held);
    return held;
  };
}
