/**
 * What a program that runs the model elsewhere needs of it: its config, and its weights as they lie in the files.
 *
 * @module @ropewalk/model/description
 */
import type { ByteSource } from '@ropewalk/formats';
import { BLOCK_FORMAT_NAMES } from 'ropewalk';
import { refuse } from 'ropewalk/backend';
import { type OptionNames, reading, readList, readName, readOptions } from 'ropewalk/internal';
import { checkTypes } from './arguments.js';
import { type Found, folderOf, type ModelFiles, readHeaders } from './model-files.js';
import { QUANTISED_FORMATS } from './quantise.js';
import { type StreamWeightOptions, streamWeight, type WritePiece } from './stream-weight.js';
import { type HoldOptions, planWeights, type WeightPlan } from './weights.js';

export type { ByteSource } from '@ropewalk/formats';
export type { FileData } from './byte-source.js';
export type { Activation, Family } from './families.js';
export type { FolderFiles, GraphFiles, NamedFile } from './folder-files.js';
export { shiftRows } from './kv-cache.js';
export { memoryOf } from './memory.js';
export type { ModelFiles } from './model-files.js';
export { QUANTISED_FORMATS, type QuantisedFormat } from './quantise.js';
export type { LoadProgress, StreamWeightOptions, WritePiece } from './stream-weight.js';
export type { DecoderConfig, ExpertConfig, LatentConfig, LayerConfig, Tokenizer } from './types.js';
export { isBlockFormat, type WeightPlan } from './weights.js';

/** How {@link describeModel} plans the weights. */
export interface DescribeOptions extends HoldOptions {
  /** The model's name in messages: its path or address. */
  readonly where?: string | undefined;
}

const NAMES: OptionNames<DescribeOptions> = {
  widenTo: true,
  formats: true,
  quantise: true,
  widenHalves: true,
  as: true,
  where: true,
};

/** A model as its files describe it. No weight is in memory. */
export interface ModelDescription extends Omit<Found, 'stored'> {
  /** The model's name in messages. */
  readonly where: string;
  /** The model's files by name: for config.json and other small ones. */
  readonly files: ReadonlyMap<string, ByteSource>;
  /** The name of a file in messages. */
  path(name: string): string;
  /** Every weight, in the order of the forward pass. */
  readonly weights: readonly WeightPlan[];
  /**
   * Reads a weight and hands on the `heldBytes` that are held of it, each exactly once, in pieces of at most 8 MiB. They
   * come in order unless the plan has `turns`.
   *
   * @param plan - one of `weights`
   * @param write - takes a piece and its place among the held bytes; the next piece waits for its promise
   * @throws {RopewalkError} FORMAT for a file that ends early, and for a weight that its dtype cannot hold; the signal's
   *   reason when it aborts; whatever `write` throws
   */
  streamWeight(plan: WeightPlan, write: WritePiece, options?: StreamWeightOptions): Promise<void>;
}

/**
 * Reads the headers of a model's files, and checks that they are a whole model.
 *
 * @param files - by name: config.json and *.safetensors (with the index, if there are several), or one GGUF
 * @param given - how weights are held
 * @returns the description; it reads from the files later
 * @throws {RopewalkError} FORMAT for files that are missing, cut or forged; UNSUPPORTED for an architecture, tensor or
 *   type that is not computed here
 * @example const { config, weights } = await describeModel({ 'model.gguf': blob }, { formats: ['q8_0', 'q4_0'] });
 */
export async function describeModel(files: ModelFiles, given: DescribeOptions = {}): Promise<ModelDescription> {
  const { where, ...hold } = readOptions(given, 'describeModel: options', NAMES);
  checkTypes({ where }, 'string', 'describeModel');
  checkTypes({ widenHalves: hold.widenHalves }, 'boolean', 'describeModel');
  const formats = Array.from(
    readList(hold.formats ?? BLOCK_FORMAT_NAMES, 'describeModel: formats', 'a list of block formats'),
  );
  for (const name of formats) readName(name, BLOCK_FORMAT_NAMES, 'describeModel: formats');
  checkTypes({ as: hold.as }, 'function', 'describeModel');
  if (hold.quantise !== undefined) readName(hold.quantise, QUANTISED_FORMATS, 'describeModel: quantise');
  const plan = await readDescription(files, where, 'describeModel');
  return plan({ ...hold, formats, as: hold.as && checkedAs(hold.as) });
}

const MADE = ['f32', 'f16', 'bf16', ...QUANTISED_FORMATS] as const;

/** Holds a caller's function to types that weights can become. */
function checkedAs(as: NonNullable<HoldOptions['as']>): NonNullable<HoldOptions['as']> {
  return (weight) => {
    const where = 'describeModel: as';
    const held = reading(where, () => as(weight));
    if (held === undefined) return undefined;
    readName(held, MADE, where);
    const { shape, place } = weight;
    if (QUANTISED_FORMATS.some((one) => one === held) && (shape.length < 2 || shape.at(-1)! % 32 !== 0))
      refuse('UNSUPPORTED', where, `a type of floats for ${place}, whose rows are not whole blocks`, held);
    return held;
  };
}

/** Plans the weights. @throws {RopewalkError} UNSUPPORTED for a tensor or type that is not computed here */
export type Describe = (hold: HoldOptions) => ModelDescription;

/**
 * Reads the headers; the weights are planned when the backend is known.
 *
 * @param caller - the function that is named in messages about arguments
 */
export async function readDescription(files: ModelFiles, where: string | undefined, caller: string): Promise<Describe> {
  const folder = folderOf(files, where, caller);
  const { stored, ...found } = await readHeaders(folder);
  return (hold) => {
    const { widenTo = 'f32' } = hold;
    if (widenTo !== 'f32' && widenTo !== 'f16') refuse('DTYPE', `${caller}: widenTo`, 'f32 or f16', widenTo);
    return {
      ...folder,
      ...found,
      weights: planWeights(found.config, stored, folder.where, hold),
      streamWeight: (plan, write, options) => streamWeight(folder, plan, write, options),
    };
  };
}
