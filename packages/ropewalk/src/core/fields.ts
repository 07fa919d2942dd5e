/**
 * Reads records from outside (JSON objects, GGUF metadata) field by field. Each value is checked before use, and each
 * message names the path of the field.
 *
 * @module
 */
import { checkName, didYouMean, reading } from './arguments.js';
import { type ErrorCode, fail, refuse } from './errors.js';

/**
 * A record whose fields are read with checks. A missing field and null are the same.
 *
 * @example new Fields(JSON.parse(text), 'config.json').integer('head_dim', 1)
 */
export class Fields {
  readonly #get: (key: string) => unknown;
  readonly #keys: () => string[];

  /**
   * @param record - a parsed JSON value that should be an object, or a map
   * @param where - the record's name for messages: a file, or a path such as `config.json: rope_scaling`
   * @throws {RopewalkError} FORMAT when it is neither
   */
  constructor(
    record: unknown,
    readonly where: string,
  ) {
    checkName(where, 'where', 'the file');
    if (reading(where, () => record instanceof Map)) {
      const map = record as Map<string, unknown>;
      this.#get = (key) => map.get(key);
      this.#keys = () => [...map.keys()];
    } else {
      if (typeof record !== 'object' || record === null || reading(where, () => Array.isArray(record)))
        refuse('FORMAT', where, 'an object', record);
      // Only own fields are read, because a file may have a field "constructor".
      this.#get = (key) =>
        reading(where, () => (Object.hasOwn(record, key) ? (record as Record<string, unknown>)[key] : undefined));
      this.#keys = () => reading(where, () => Object.keys(record));
    }
  }

  /** The path of a field: `config.json: rope_scaling.factor`. */
  path(key: string): string {
    return this.where.includes(': ') ? `${this.where}.${key}` : `${this.where}: ${key}`;
  }

  /** Refuses a field for its value; see {@link refuse} of core/errors.ts. @throws {RopewalkError} always */
  refuse(code: ErrorCode, key: string, expected: string, next?: string): never {
    return refuse(code, this.path(key), expected, this.raw(key), next);
  }

  /** Refuses a field for what other fields say; see {@link fail} of core/errors.ts. @throws {RopewalkError} always */
  fail(code: ErrorCode, key: string, sentence: string): never {
    return fail(code, this.path(key), sentence);
  }

  /** The names of all fields. */
  keys(): string[] {
    return this.#keys();
  }

  /** Says whether a field is there and not null. */
  has(key: string): boolean {
    return this.raw(key) !== undefined;
  }

  /** Gives a field unchecked; undefined for null. */
  raw(key: string): unknown {
    return this.#get(key) ?? undefined;
  }

  /** A finite number; a 64-bit integer becomes the nearest number. @throws {RopewalkError} FORMAT */
  optionalNumber(key: string): number | undefined {
    const value = this.raw(key);
    if (value === undefined) return undefined;
    const number = typeof value === 'bigint' ? Number(value) : value;
    return typeof number === 'number' && Number.isFinite(number)
      ? number
      : refuse('FORMAT', this.path(key), 'a finite number', value);
  }

  /** A number > 0. @throws {RopewalkError} FORMAT */
  optionalPositive(key: string): number | undefined {
    const value = this.optionalNumber(key);
    if (value !== undefined && !(value > 0)) refuse('FORMAT', this.path(key), 'a number > 0', value);
    return value;
  }

  /** An integer in a range. @throws {RopewalkError} FORMAT */
  optionalInteger(key: string, low = 1, high = 2 ** 31): number | undefined {
    const value = this.optionalNumber(key);
    if (value !== undefined && (!Number.isSafeInteger(value) || value < low || value > high)) {
      refuse('FORMAT', this.path(key), `an integer in [${low}, ${high}]`, value);
    }
    return value;
  }

  /** A string. @throws {RopewalkError} FORMAT */
  optionalText(key: string): string | undefined {
    return this.#optional(key, 'a string', (value) => typeof value === 'string');
  }

  /** true or false. @throws {RopewalkError} FORMAT */
  optionalFlag(key: string): boolean | undefined {
    return this.#optional(key, 'true or false', (value) => typeof value === 'boolean');
  }

  #optional<T>(key: string, expected: string, is: (value: unknown) => value is T): T | undefined {
    const value = this.raw(key);
    return value === undefined || is(value) ? value : refuse('FORMAT', this.path(key), expected, value);
  }

  /** A list, copied. @throws {RopewalkError} FORMAT */
  optionalList(key: string): readonly unknown[] | undefined {
    const value = this.raw(key);
    if (value === undefined) return undefined;
    return reading(this.path(key), () => {
      if (!Array.isArray(value)) refuse('FORMAT', this.path(key), 'a list', value);
      const copy: unknown[] = [];
      for (let n = 0; n < value.length; n++) {
        // A sparse list may claim 2^32 elements.
        if (!(n in value)) refuse('FORMAT', `${this.path(key)}[${n}]`, 'a value', undefined);
        copy.push(value[n]);
      }
      return copy;
    });
  }

  /** A list of finite numbers. @throws {RopewalkError} FORMAT */
  optionalNumbers(key: string): number[] | undefined {
    const list = this.optionalList(key);
    if (list && !list.every((value) => typeof value === 'number' && Number.isFinite(value)))
      refuse('FORMAT', this.path(key), 'a list of numbers', list);
    return list as number[] | undefined;
  }

  /** An object. @throws {RopewalkError} FORMAT */
  optionalObject(key: string): Fields | undefined {
    return this.has(key) ? this.object(key) : undefined;
  }

  /** Refuses a field that is missing. @throws {RopewalkError} FORMAT */
  need<T>(value: T | undefined, key: string, expected = 'a value'): T {
    return value ?? refuse('FORMAT', this.path(key), expected, undefined);
  }

  /** A finite number that must be there. @throws {RopewalkError} FORMAT */
  number(key: string): number {
    return this.need(this.optionalNumber(key), key, 'a finite number');
  }

  /** An integer in a range that must be there. @throws {RopewalkError} FORMAT */
  integer(key: string, low = 0, high = Number.MAX_SAFE_INTEGER): number {
    return this.need(this.optionalInteger(key, low, high), key, `an integer in [${low}, ${high}]`);
  }

  /** A string that must be there. @throws {RopewalkError} FORMAT */
  text(key: string): string {
    return this.need(this.optionalText(key), key, 'a string');
  }

  /** true or false; missing is false. @throws {RopewalkError} FORMAT */
  flag(key: string): boolean {
    return this.optionalFlag(key) ?? false;
  }

  /** A list of integers that must be there. @throws {RopewalkError} FORMAT */
  integers(key: string, low = 0, high = Number.MAX_SAFE_INTEGER): number[] {
    const value = this.raw(key);
    if (!Array.isArray(value) || !value.every((n) => Number.isSafeInteger(n) && n >= low && n <= high)) {
      refuse('FORMAT', this.path(key), `a list of integers in [${low}, ${high}]`, value);
    }
    return value;
  }

  /** An object that must be there. @throws {RopewalkError} FORMAT */
  object(key: string): Fields {
    return new Fields(this.raw(key), this.path(key));
  }

  /** A list of objects that must be there. @throws {RopewalkError} FORMAT */
  objects(key: string): Fields[] {
    const list = this.need(this.optionalList(key), key, 'a list');
    return list.map((item, n) => new Fields(item, `${this.path(key)}[${n}]`));
  }

  /** One of a few strings, which must be there. @throws {RopewalkError} FORMAT */
  oneOf<const T extends string>(key: string, allowed: readonly T[]): T {
    const value = this.raw(key);
    return (
      allowed.find((item) => item === value) ??
      refuse('FORMAT', this.path(key), allowed.join(', '), value, didYouMean(value, allowed))
    );
  }
}
