/**
 * Arguments as callers give them, in copies of ours: what is read once cannot change, or throw, when it is read again.
 *
 * @module
 */
import { RopewalkError, refuse, show } from './errors.js';

/**
 * Copies an object of options.
 *
 * @param options - any object of named fields but a list; only its own fields count
 * @param where - operator and argument, for the message
 * @returns the fields, each read once
 * @throws {RopewalkError} RANGE when it is no such object, or when reading a field throws
 */
export function readOptions<T extends object>(options: T, where: string): T {
  try {
    if (hasFields(options)) return { ...options };
  } catch (cause) {
    throw unreadable(where, cause);
  }
  return refuseOptions(options, where);
}

/**
 * Reads one option where a call is short: {@link readOptions} copies all of them, which takes a tenth of a microsecond.
 *
 * @param options - any object of named fields but a list
 * @param name - the field
 * @param where - operator and argument, for the message
 * @throws {RopewalkError} as {@link readOptions}
 */
export function readField<T extends object, K extends keyof T>(options: T, name: K, where: string): T[K] {
  try {
    if (hasFields(options)) return options[name];
  } catch (cause) {
    throw unreadable(where, cause);
  }
  return refuseOptions(options, where);
}

function hasFields(options: unknown): options is object {
  return typeof options === 'object' && options !== null && !Array.isArray(options) && !ArrayBuffer.isView(options);
}

function refuseOptions(options: unknown, where: string): never {
  refuse('RANGE', where, 'an object of options', options, 'Leave it out, or give an object such as {}.');
}

/**
 * Copies an object that may be left out.
 *
 * @returns the fields, or undefined for undefined
 * @throws {RopewalkError} as {@link readOptions}
 */
export function readOptional<T extends object>(options: T | undefined, where: string): T | undefined {
  return options === undefined ? undefined : readOptions(options, where);
}

/**
 * Copies a list. A hole or undefined in it is refused at once, so that a sparse list takes no more memory than its elements do.
 *
 * @param list - an array, or anything with a length and elements by number; a typed array is given back as it is
 * @param where - operator and argument, for the message
 * @param expected - what the list is, for the message: `a list of integers`
 * @throws {RopewalkError} SHAPE when it is no list, or when reading it throws
 */
export function readList<T>(list: ArrayLike<T>, where: string, expected = 'a list'): ArrayLike<T> {
  // A typed array over a transferred buffer has no elements, and throws when it is walked.
  if (ArrayBuffer.isView(list) && !(list instanceof DataView)) return list.length === 0 ? [] : list;
  try {
    const length = typeof list === 'object' && list !== null ? list.length : undefined;
    if (!Number.isSafeInteger(length)) refuse('SHAPE', where, expected, list);
    const copy: T[] = [];
    for (let n = 0; n < length!; n++) {
      const value = list[n];
      if (value === undefined) refuse('SHAPE', `${where}[${n}]`, 'a value', undefined);
      copy.push(value);
    }
    return copy;
  } catch (cause) {
    throw unreadable(where, cause);
  }
}

/**
 * One of a few names.
 *
 * @param value - what the caller gave
 * @param names - what is known
 * @param where - operator and argument, for the message
 * @throws {RopewalkError} UNSUPPORTED for any other value
 */
export function readName<const T extends string>(value: unknown, names: readonly T[], where: string): T {
  if ((names as readonly unknown[]).includes(value)) return value as T;
  return refuse('UNSUPPORTED', where, `${names.slice(0, -1).join(', ')} or ${names.at(-1)}`, value);
}

/**
 * Checks that an argument is bytes.
 *
 * @param bytes - what the caller gave
 * @param where - what messages call them; a text itself
 * @throws {RopewalkError} DTYPE for anything but a Uint8Array; RANGE when `where` is no text
 */
export function checkBytes(bytes: unknown, where: unknown): asserts bytes is Uint8Array {
  checkName(where, 'where', 'the file');
  if (!ArrayBuffer.isView(bytes) || !(bytes instanceof Uint8Array))
    refuse('DTYPE', where, 'bytes in a Uint8Array', bytes);
}

/**
 * Checks a name that stands in messages only.
 *
 * @param name - what the caller gave
 * @param where - the argument
 * @param what - what it names
 * @throws {RopewalkError} RANGE when it is no text
 */
export function checkName(name: unknown, where: string, what: string): asserts name is string {
  if (typeof name !== 'string') refuse('RANGE', where, `a text that names ${what} in messages`, name);
}

/**
 * Says whether a value is a number that float32, in which kernels compute, does not turn into an infinity.
 *
 * @param value - anything
 */
export function fitsFloat32(value: unknown): value is number {
  return typeof value === 'number' && Number.isFinite(Math.fround(value));
}

/**
 * Reads what a caller gave: a getter or a proxy of the caller's may throw anything.
 *
 * @param where - operator and argument, for the message
 * @param read - reads it into values of ours
 * @throws {RopewalkError} RANGE when reading throws
 */
export function reading<T>(where: string, read: () => T): T {
  try {
    return read();
  } catch (cause) {
    throw unreadable(where, cause);
  }
}

function unreadable(where: string, cause: unknown): RopewalkError {
  if (cause instanceof RopewalkError) return cause;
  return new RopewalkError(
    'RANGE',
    `${typeof where === 'string' ? where : show(where)}: expected a value that can be read, got an error while reading it`,
    { cause },
  );
}
