/**
 * The parts that all peers share: arguments as JSON, tables beside them, and the refusals of what a peer cannot express.
 *
 * @module
 */
import type { Pairing, RopeScaling, RopeSpec } from 'ropewalk';
import { fail, refuse } from 'ropewalk/backend';
import { didYouMean, type Fields } from 'ropewalk/internal';
import { type EffectiveRope, effectiveRope } from './effective.js';

/** A table to write beside the arguments. */
export interface FormTable {
  /** The peer's name for it, such as `cos_cache`. */
  readonly name: string;
  readonly shape: readonly number[];
  /** The elements are dense, in the order of `shape`. */
  readonly data: Float32Array;
}

/** A table read beside the arguments. */
export interface GivenTable {
  readonly shape: readonly number[];
  /** The elements are dense, in the order of `shape`. */
  readonly data: ArrayLike<number>;
  /** The relative rounding error of its elements: 2⁻²⁴ for f32. */
  readonly roundoff: number;
}

/** The options of a conversion. */
export interface ConvertOptions {
  /** The frequencies of some peers depend on the tokens in use. */
  readonly context?: number;
  /** The tables have so many rows, for positions 0 … N − 1. Default: no tables. */
  readonly positions?: number;
  /** The model takes so many tokens, as its file says (vllm). */
  readonly maxContext?: number;
  /** Some calls take the number of heads. */
  readonly heads?: number;
  /** The code of this model reads the fields (huggingface). */
  readonly modelType?: string;
  /** general.architecture decides the pairing (gguf). */
  readonly architecture?: string;
  /** The model's name for the layer, `sliding_attention`, where sliding layers have other fields. */
  readonly layerType?: string;
}

/** One way to express a record with a peer's arguments. */
export interface Draft {
  /** The function, operator or file that takes the arguments. */
  readonly call: string;
  /** The arguments are JSON; undefined fields are left out. */
  readonly arguments: Readonly<Record<string, unknown>>;
  readonly tables?: readonly FormTable[];
  /** The notes are full sentences. */
  readonly notes?: readonly string[];
  /** The change of layout that makes up for a pairing other than the record's. */
  readonly relayout?: Relayout;
}

/** A difference of layout that does not change q·k. */
export interface Relayout {
  readonly from: Pairing;
  readonly to: Pairing;
  /** `permute`: permute the q and k weights; `none`: q and k are permuted alike, so nothing needs to be done. */
  readonly weights: 'permute' | 'none';
}

/** A peer: writes a record as the peer's arguments, and reads them. */
export interface Peer {
  readonly name: string;
  /** Help texts show this line. */
  readonly about: string;
  /** The names of its arguments and tables; undefined for files that hold more than RoPE. Others are refused. */
  readonly names?: readonly string[];
  /** The largest relative error of a frequency or the magnitude that its number format causes. */
  readonly tolerance: number;
  /**
   * Lists ways to express a record, the most natural first. The first that reads back as the same RoPE is used.
   *
   * @throws {RopewalkError} UNSUPPORTED when there is none
   */
  drafts(spec: RopeSpec, options: ConvertOptions): Draft[];
  /**
   * Reads the peer's arguments.
   *
   * @throws {RopewalkError} FORMAT, RANGE, SHAPE or UNSUPPORTED, naming the field
   */
  read(form: Fields, tables: ReadonlyMap<string, GivenTable>, options: ConvertOptions): RopeSpec;
  /** Says whether arguments without a target look like this peer's. */
  recognizes(form: Fields): boolean;
}

/** Refuses a record; `next` is the nearest alternative, a full sentence. */
export function cannot(peer: string, because: string, next: string): never {
  return fail('UNSUPPORTED', `convert: ${peer}`, `cannot be expressed, because ${because}. ${next}`);
}

/** The tolerance of f32 arguments: a rounding of base, of scale and of a factor. */
export const F32_TOLERANCE = 2 ** -21;
/** The tolerance of numbers in JSON. */
export const F64_TOLERANCE = 1e-12;

/**
 * The limits of a peer: it may lack a window that does not start at dimension 0, pairing vision, or several position
 * axes; `toHalf` is the argument that has no value for pairing interleaved-to-half.
 */
interface Limits extends Partial<Record<'offset' | 'vision' | 'axes', readonly [why: string, next: string]>> {
  readonly toHalf?: string;
  /** The peer's heads have an even number of dimensions. */
  readonly even?: true;
}

/** Refuses a record that needs what a peer lacks, and one that is not a RoPE. */
export function checkLimits(
  peer: string,
  spec: RopeSpec,
  { offset, vision, axes, toHalf, even }: Limits,
): EffectiveRope {
  const rope = effectiveRope(spec);
  if (offset && rope.rotaryOffset !== 0)
    cannot(peer, `${offset[0]}, and this window starts at ${rope.rotaryOffset}`, offset[1]);
  if (toHalf !== undefined && spec.pairing === 'interleaved-to-half') {
    const next =
      'Use pairing interleaved: q and k come out permuted alike, and q·k is the same if nothing else reads them.';
    cannot(peer, `${toHalf} has no value for reading interleaved pairs and writing halves`, next);
  }
  if (even && rope.headDim % 2 !== 0)
    cannot(peer, `its heads have an even number of dimensions, and this record ${rope.headDim}`, 'Pad x by one.');
  if (vision && spec.pairing === 'vision') cannot(peer, ...vision);
  if (axes && rope.numAxes > 1) cannot(peer, ...axes);
  return rope;
}

export function pairingOf(interleaved: unknown): 'interleaved' | 'half' {
  return interleaved ? 'interleaved' : 'half';
}

/** Says whether a peer computes the frequencies from base, scaling and rotary_dim alone. */
export function hasPlainExponents(spec: RopeSpec, rotaryDim: number): boolean {
  return !spec.freqFactors && (spec.frequencyDim ?? rotaryDim) === rotaryDim;
}

/** Makes the note for dynamic NTK that is written as a larger base. */
export function dynamicNote(context: number): string {
  return `Dynamic NTK is a larger base: this one is for a context of ${context} tokens.`;
}

/** Finds a share whose product with head_dim, truncated as transformers and vLLM do it, is rotary_dim. */
export function shareOf(headDim: number, rotaryDim: number): number {
  const share = rotaryDim / headDim;
  return Math.trunc(headDim * share) === rotaryDim ? share : (rotaryDim + 0.25) / headDim;
}

type Llama3 = Extract<RopeScaling, { kind: 'llama3' }>;

/** Writes Llama 3's scaling with the names of transformers and vLLM. */
export function llama3Fields(scaling: Llama3): Record<string, unknown> {
  return {
    rope_type: 'llama3',
    factor: scaling.factor,
    low_freq_factor: scaling.lowFreqFactor,
    high_freq_factor: scaling.highFreqFactor,
    original_max_position_embeddings: scaling.originalContext,
  };
}

/** Reads all fields unchecked, into an object. */
export function rawOf(form: Fields): Record<string, unknown> {
  return Object.fromEntries(form.keys().map((key) => [key, form.raw(key)]));
}

/** Refuses names that are not allowed: a misspelt one would be ignored in silence. */
export function onlyKeys(form: Fields, allowed: readonly string[]): void {
  for (const key of form.keys())
    if (!allowed.includes(key))
      refuse('FORMAT', form.path(key), `one of ${allowed.join(', ')}`, key, didYouMean(key, allowed));
}

/** Makes a JSON value without undefined fields. Typed arrays become lists. */
export function plainJson(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(plainJson);
  if (ArrayBuffer.isView(value)) return Array.from(value as unknown as ArrayLike<number>);
  if (typeof value !== 'object' || value === null) return value;
  const fields = Object.entries(value).filter(([, field]) => field !== undefined);
  return Object.fromEntries(fields.map(([key, field]) => [key, plainJson(field)]));
}
