/** Reads the values of options from their texts. Every message names the flag. @module */
import { statSync } from 'node:fs';
import { extname } from 'node:path';
import type { Dtype, ErrorCode } from 'ropewalk';
import { fail, refuse } from 'ropewalk/backend';
import { isDtype, readName } from 'ropewalk/internal';

/** Options with a value, as the command line gives them. */
export type Texts<Name extends string> = { readonly [K in Name]?: string };
/** Options without a value. */
export type Switches<Name extends string> = { readonly [K in Name]?: boolean };

/** The largest number that a count, a layer or a position may have. */
export const MAX_INTEGER = 2 ** 31 - 1;

/** The float dtypes that options name. */
export const FLOATS = ['f32', 'f16', 'bf16', 'f64'] as const;

/** The options of one command. A method returns undefined for an absent option. */
export class Flags<T extends object> {
  readonly #given: T;

  constructor(given: T) {
    this.#given = given;
  }

  /** Returns the text of an option. */
  text(name: keyof T & string): string | undefined {
    return this.#given[name] as string | undefined;
  }

  /** Reads a whole number in [low, high]. `next` is a hint for the message. @throws {RopewalkError} RANGE */
  integer(name: keyof T & string, low = 0, high = MAX_INTEGER, next?: string): number | undefined {
    const text = this.text(name);
    return text === undefined ? undefined : integerOf(text, flagOf(name), low, high, next);
  }

  /** Reads at most `most` whole numbers in [low, high], separated by commas. @throws {RopewalkError} RANGE */
  integers(name: keyof T & string, low: number, high: number, most: number): number[] | undefined {
    const words = this.text(name)?.split(',');
    if (words && words.length > most)
      refuse('RANGE', flagOf(name), `at most ${most} integers, separated by commas`, words.length);
    return words?.map((word) => integerOf(word.trim(), flagOf(name), low, high));
  }

  /** Reads a finite number, whose range the caller checks. @throws {RopewalkError} RANGE */
  number(name: keyof T & string): number | undefined {
    const text = this.text(name);
    if (text === undefined) return undefined;
    const value = text.trim() === '' ? Number.NaN : Number(text);
    if (!Number.isFinite(value)) refuse('RANGE', flagOf(name), 'a number', text);
    return value;
  }

  /** Reads a number in (0, most]. @throws {RopewalkError} RANGE */
  positive(name: keyof T & string, most = Number.MAX_VALUE): number | undefined {
    const value = this.number(name);
    if (value !== undefined && !(value > 0 && value <= most))
      refuse('RANGE', flagOf(name), most < Number.MAX_VALUE ? `a number in (0, ${most}]` : 'a number > 0', value);
    return value;
  }

  /** Reads one of several words. @throws {RopewalkError} UNSUPPORTED */
  word<const W extends string>(name: keyof T & string, choices: readonly W[]): W | undefined {
    const text = this.text(name);
    return text === undefined ? undefined : readName(text, choices, flagOf(name));
  }

  /** Reads several words, from repeated options or with commas. @throws {RopewalkError} UNSUPPORTED */
  words<const W extends string>(name: keyof T & string, choices: readonly W[]): W[] | undefined {
    const given = this.#given[name] as readonly string[] | undefined;
    const words = given?.flatMap((text) => text.split(','));
    return words && [...new Set(words.map((word) => readName(word.trim(), choices, flagOf(name))))];
  }

  /** Reads a regular expression. @throws {RopewalkError} FORMAT */
  pattern(name: keyof T & string): RegExp | undefined {
    const text = this.text(name);
    try {
      return text === undefined ? undefined : new RegExp(text);
    } catch (cause) {
      return refuse('FORMAT', flagOf(name), 'a regular expression', text, (cause as Error).message);
    }
  }

  /** Refuses the first of these options that is present: `--layer: it needs --model FILE`. @throws {RopewalkError} */
  refuseAny(names: readonly (keyof T & string)[], sentence: string, code: ErrorCode = 'FORMAT'): void {
    const name = names.find((one) => this.#given[one] !== undefined);
    if (name !== undefined) fail(code, flagOf(name), sentence);
  }

  /** Refuses options that do not apply to `what`, so that none is ignored. @throws {RopewalkError} UNSUPPORTED */
  refuseAllBut(known: readonly (keyof T & string)[], what: string): void {
    const others = Object.keys(this.#given).filter((name) => !known.includes(name as keyof T & string));
    this.refuseAny(others as (keyof T & string)[], `it does not apply to ${what}. Leave it out.`, 'UNSUPPORTED');
  }
}

function integerOf(text: string, where: string, low: number, high: number, next?: string): number {
  const value = Number(text);
  if (!/^-?\d+$/.test(text) || value < low || value > high)
    refuse('RANGE', where, `an integer in [${low}, ${high}]`, text, next);
  return value;
}

/** The names of our dtypes in numpy, PyTorch and C, in lower case. */
const DTYPE_NAMES: Readonly<Partial<Record<Dtype, readonly string[]>>> = {
  f64: ['float64', 'double', 'fp64'],
  f32: ['float32', 'float', 'single', 'fp32'],
  f16: ['float16', 'half', 'fp16'],
  bf16: ['bfloat16'],
  f8_e4m3: ['float8_e4m3fn'],
  f8_e5m2: ['float8_e5m2'],
  i64: ['int64', 'long'],
  i32: ['int32', 'int'],
  i16: ['int16', 'short'],
  i8: ['int8'],
  u64: ['uint64'],
  u32: ['uint32'],
  u16: ['uint16'],
  u8: ['uint8'],
};

/** Translates names of dtypes, separated by commas, into ours: `torch.half` is f16. Unknown names stay. */
export function ourDtypes(text: string): string {
  const ours = (word: string): string => {
    const name = word
      .trim()
      .toLowerCase()
      .replace(/^(?:np|numpy|jnp|torch)\./, '');
    const known = Object.entries(DTYPE_NAMES).find(([, names]) => names.includes(name))?.[0];
    return known ?? (isDtype(name) ? name : word);
  };
  return text.split(',').map(ours).join(',');
}

/**
 * Refuses the name of a file where a command writes a folder. An existing folder may have any name, and neither
 * `llama-3.1` nor `SmolLM2.Q4_1` has an extension.
 *
 * @param next - a hint for the message: the output of the command, and the command that writes such a file
 * @throws {RopewalkError} FORMAT
 */
export function checkFolderName(path: string, flag: string, next: string): void {
  if (!/^\.(?!i?q\d)[a-z]\w*$/i.test(extname(path)) || statSync(path, { throwIfNoEntry: false })?.isDirectory()) return;
  refuse('FORMAT', flag, 'the name of a folder', path, next);
}

/** Collects an option that may be given several times. A variadic option would also take the argument behind it. */
export function collect(value: string, before: readonly string[] = []): string[] {
  return [...before, value];
}

/** Returns the flag of an option as users type it: `--max-tokens`. */
export function flagOf(name: string): string {
  return `--${name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)}`;
}
