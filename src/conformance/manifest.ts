/**
 * Reading manifests: JSON from anybody, every field checked before use, every message with its path.
 *
 * @module
 */
import { refuse } from '../core/errors.js';
import { parseJson } from '../formats/json.js';
import type { VectorFolder } from './folder.js';

/** A JSON object whose fields are read with checks. */
export class Fields {
  /**
   * @param value - a parsed JSON value
   * @param where - its path in messages
   * @throws {RopewalkError} FORMAT when it is not an object
   */
  constructor(
    private readonly value: unknown,
    readonly where: string,
  ) {
    if (typeof value !== 'object' || value === null || Array.isArray(value)) refuse('FORMAT', where, 'an object', value);
  }

  private get record(): Record<string, unknown> {
    return this.value as Record<string, unknown>;
  }

  private path(key: string): string {
    return `${this.where}.${key}`;
  }

  /** The names of all fields. */
  keys(): string[] {
    return Object.keys(this.record);
  }

  /** Says whether a field is there and not null. */
  has(key: string): boolean {
    return Object.hasOwn(this.record, key) && this.record[key] !== null && this.record[key] !== undefined;
  }

  /** A field as it is. */
  raw(key: string): unknown {
    return Object.hasOwn(this.record, key) ? this.record[key] : undefined;
  }

  /** A text. @throws {RopewalkError} FORMAT */
  text(key: string): string {
    const value = this.raw(key);
    return typeof value === 'string' ? value : refuse('FORMAT', this.path(key), 'a text', value);
  }

  /** A text, or undefined where the field is missing or null. */
  optionalText(key: string): string | undefined {
    return this.has(key) ? this.text(key) : undefined;
  }

  /** A finite number. @throws {RopewalkError} FORMAT */
  number(key: string): number {
    const value = this.raw(key);
    return typeof value === 'number' && Number.isFinite(value) ? value : refuse('FORMAT', this.path(key), 'a finite number', value);
  }

  /** An integer in a range. @throws {RopewalkError} FORMAT */
  integer(key: string, low = 0, high = Number.MAX_SAFE_INTEGER): number {
    const value = this.number(key);
    if (!Number.isSafeInteger(value) || value < low || value > high)
      refuse('FORMAT', this.path(key), `an integer in [${low}, ${high}]`, value);
    return value;
  }

  /** true or false; a missing field is false. @throws {RopewalkError} FORMAT */
  flag(key: string): boolean {
    const value = this.has(key) ? this.raw(key) : false;
    return typeof value === 'boolean' ? value : refuse('FORMAT', this.path(key), 'true or false', value);
  }

  /** A list of integers. @throws {RopewalkError} FORMAT */
  integers(key: string, low = 0, high = Number.MAX_SAFE_INTEGER): number[] {
    const value = this.raw(key);
    if (!Array.isArray(value) || !value.every((n) => Number.isSafeInteger(n) && n >= low && n <= high)) {
      refuse('FORMAT', this.path(key), `a list of integers in [${low}, ${high}]`, value);
    }
    return value;
  }

  /** An object. @throws {RopewalkError} FORMAT */
  object(key: string): Fields {
    return new Fields(this.raw(key), this.path(key));
  }

  /** An object, or undefined where the field is missing or null. */
  optionalObject(key: string): Fields | undefined {
    return this.has(key) ? this.object(key) : undefined;
  }

  /** A list of objects. @throws {RopewalkError} FORMAT */
  objects(key: string): Fields[] {
    const value = this.raw(key);
    if (!Array.isArray(value)) refuse('FORMAT', this.path(key), 'a list', value);
    return value.map((item, n) => new Fields(item, `${this.path(key)}[${n}]`));
  }

  /** One of a few texts. @throws {RopewalkError} FORMAT */
  oneOf<const T extends string>(key: string, allowed: readonly T[]): T {
    const value = this.text(key);
    return allowed.find((item) => item === value) ?? refuse('FORMAT', this.path(key), allowed.join(', '), value);
  }
}

/**
 * Reads a JSON file of a vector folder.
 *
 * @param folder - where it lies
 * @param file - its path in the folder
 * @throws {RopewalkError} FORMAT when it is missing, no JSON, or no object
 */
export function readManifest(folder: VectorFolder, file: string): Fields {
  const where = `vectors/${folder.name}/${file}`;
  return new Fields(parseJson(folder.read(file), where), where);
}
