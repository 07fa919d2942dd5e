/**
 * What all peers share: arguments as JSON, tables beside them, and the refusals of what a peer cannot express.
 *
 * @module
 */
import type { Pairing, RopeSpec } from 'ropewalk';
import { fail } from 'ropewalk/backend';
import type { Fields } from 'ropewalk/internal';
import { type EffectiveRope, effectiveRope } from './effective.js';

/** A table to write beside the arguments. */
export interface FormTable {
  /** The peer's name for it, such as `cos_cache`. */
  readonly name: string;
  readonly shape: readonly number[];
  /** `shape`, dense. */
  readonly data: Float32Array;
}

/** A table read beside the arguments. */
export interface GivenTable {
  readonly shape: readonly number[];
  /** `shape`, dense. */
  readonly data: ArrayLike<number>;
  /** The relative rounding error of its elements: 2⁻²⁴ for f32. */
  readonly roundoff: number;
}

/** Options of a conversion. */
export interface ConvertOptions {
  /** Tokens in use, for peers whose frequencies depend on them. */
  readonly context?: number;
  /** Rows of tables, for positions 0 … N − 1. Without it no tables are made. */
  readonly positions?: number;
  /** Heads, for calls that take them. */
  readonly heads?: number;
  /** huggingface: the model whose code reads the fields. */
  readonly modelType?: string;
  /** gguf: general.architecture, which decides the pairing. */
  readonly architecture?: string;
  /** The model's name for the layer, `sliding_attention`, where sliding layers have fields of their own. */
  readonly layerType?: string;
}

/** One way to express a record with a peer's arguments. */
export interface Draft {
  /** The function, operator or file that takes the arguments. */
  readonly call: string;
  /** JSON; undefined fields are left out. */
  readonly arguments: Readonly<Record<string, unknown>>;
  readonly tables?: readonly FormTable[];
  /** Full sentences. */
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
  /** One line for help texts. */
  readonly about: string;
  /** The largest relative error of a frequency or the magnitude that its number format causes. */
  readonly tolerance: number;
  /**
   * Ways to express a record, the most natural first. The first that reads back as the same RoPE is used.
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
  /** Whether arguments without a target look like this peer's. */
  recognises(form: Fields): boolean;
}

/** Refuses a record; `next` is the nearest alternative, a full sentence. */
export function cannot(peer: string, because: string, next: string): never {
  return fail('UNSUPPORTED', `convert: ${peer}`, `cannot be expressed, because ${because}. ${next}`);
}

/** For f32 arguments: a rounding of base, of scale and of a factor. */
export const F32_TOLERANCE = 2 ** -21;
/** For numbers in JSON. */
export const F64_TOLERANCE = 1e-12;

/**
 * What a peer lacks: a window that does not start at dimension 0, pairing vision, several position axes; and the
 * argument that has no value for pairing interleaved-to-half.
 */
interface Limits extends Partial<Record<'offset' | 'vision' | 'axes', readonly [why: string, next: string]>> {
  readonly toHalf?: string;
}

/** Refuses a record that needs what a peer lacks, and one that is not a RoPE. */
export function checkLimits(peer: string, spec: RopeSpec, { offset, vision, axes, toHalf }: Limits): EffectiveRope {
  const rope = effectiveRope(spec);
  if (offset && rope.rotaryOffset !== 0)
    cannot(peer, `${offset[0]}, and this window starts at ${rope.rotaryOffset}`, offset[1]);
  if (toHalf !== undefined && spec.pairing === 'interleaved-to-half')
    cannot(
      peer,
      `${toHalf} has no value for reading interleaved pairs and writing halves`,
      'Use pairing interleaved: q and k come out permuted alike, and q·k is the same if nothing else reads them.',
    );
  if (vision && spec.pairing === 'vision') cannot(peer, ...vision);
  if (axes && rope.numAxes > 1) cannot(peer, ...axes);
  return rope;
}

export function pairingOf(interleaved: unknown): 'interleaved' | 'half' {
  return interleaved ? 'interleaved' : 'half';
}

/** Whether a peer computes the frequencies from base, scaling and rotary_dim alone. */
export function hasPlainExponents(spec: RopeSpec, rotaryDim: number): boolean {
  return !spec.freqFactors && (spec.frequencyDim ?? rotaryDim) === rotaryDim;
}

/** The note for dynamic NTK, written as a larger base. */
export function dynamicNote(context: number): string {
  return `Dynamic NTK is a larger base: this one is for a context of ${context} tokens.`;
}

/** A share whose product with head_dim, truncated to an integer as transformers and vLLM do it, is rotary_dim. */
export function shareOf(headDim: number, rotaryDim: number): number {
  const share = rotaryDim / headDim;
  return Math.trunc(headDim * share) === rotaryDim ? share : (rotaryDim + 0.25) / headDim;
}

/** A JSON value without undefined fields; typed arrays become lists. */
export function plainJson(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(plainJson);
  if (ArrayBuffer.isView(value)) return Array.from(value as unknown as ArrayLike<number>);
  if (typeof value !== 'object' || value === null) return value;
  const fields = Object.entries(value).filter(([, field]) => field !== undefined);
  return Object.fromEntries(fields.map(([key, field]) => [key, plainJson(field)]));
}
