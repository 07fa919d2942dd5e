/**
 * What every peer's form has in common: arguments as JSON, tables beside them, what a reader should know.
 *
 * @module
 */
import { type Pairing, type RopeSpec, RopewalkError } from 'ropewalk';
import type { Fields } from 'ropewalk/backend';

/** A table that goes beside the arguments. */
export interface FormTable {
  /** The peer's own name, such as `cos_cache`. */
  readonly name: string;
  readonly shape: readonly number[];
  /** `shape`, dense. */
  readonly data: Float32Array;
}

/** A table that came beside the arguments. */
export interface GivenTable {
  readonly shape: readonly number[];
  /** `shape`, dense. */
  readonly data: ArrayLike<number>;
  /** What rounding its elements carry: 2⁻²⁴ for f32. */
  readonly roundoff: number;
}

/** What a conversion may be told beside the record. */
export interface ConvertOptions {
  /** Tokens in use, for forms whose own reading depends on it. */
  readonly context?: number;
  /** Rows of tables, positions 0 … N − 1. Without it, no tables are made. */
  readonly positions?: number;
  /** Heads, where a call wants to know. */
  readonly heads?: number;
  /** huggingface: the model whose code should read the fields. */
  readonly modelType?: string;
  /** gguf: general.architecture, which decides the pairing there. */
  readonly architecture?: string;
}

/** One way to say a record in a peer's words. */
export interface Draft {
  /** The function, operator or file that takes the arguments. */
  readonly call: string;
  readonly arguments: Readonly<Record<string, unknown>>;
  readonly tables?: readonly FormTable[];
  /** Full sentences. */
  readonly notes?: readonly string[];
  /** The peer's pairing, where it is not the record's but a change of layout makes up for it. */
  readonly relayout?: Relayout;
}

/** A difference of layout that leaves q·k as it is. */
export interface Relayout {
  readonly from: Pairing;
  readonly to: Pairing;
  /** `permute`: q and k weights must be permuted; `none`: q and k come out permuted alike, and nothing needs doing. */
  readonly weights: 'permute' | 'none';
}

/** A peer: how it says a record, and how its words are read. */
export interface Peer {
  readonly name: string;
  /** What it is, for help texts. */
  readonly about: string;
  /** Largest relative error of a frequency or of the magnitude that its number format costs. */
  readonly tolerance: number;
  /**
   * Ways to say a record, the most natural first; the first one that reads back as the same RoPE is taken.
   *
   * @throws {RopewalkError} UNSUPPORTED: cannot be expressed, because …
   */
  drafts(spec: RopeSpec, options: ConvertOptions): Draft[];
  /**
   * Reads the peer's words.
   *
   * @throws {RopewalkError} FORMAT, RANGE, SHAPE or UNSUPPORTED, naming the field
   */
  read(form: Fields, tables: ReadonlyMap<string, GivenTable>, options: ConvertOptions): RopeSpec;
  /** Says whether bare arguments look like this peer's. */
  recognises(form: Fields): boolean;
}

/**
 * Says that a peer has no words for a record.
 *
 * @param peer - its name
 * @param because - the reason
 * @param next - the nearest way, a full sentence
 * @throws {RopewalkError} UNSUPPORTED, always
 */
export function cannot(peer: string, because: string, next: string): never {
  throw new RopewalkError('UNSUPPORTED', `convert: ${peer}: cannot be expressed, because ${because}. ${next}`);
}

/** What f32 arguments cost: a rounding of base, of scale and of a factor. */
export const F32_TOLERANCE = 2 ** -21;
/** What numbers in JSON cost. */
export const F64_TOLERANCE = 1e-12;

/** The sentence for a rotation that every peer but HuggingFace's DeepSeek lacks. */
export const READS_NEIGHBOURS_WRITES_HALVES =
  'Take pairing interleaved: q and k both come out permuted, and q·k is the same, as long as both are turned so and nothing else reads them.';
