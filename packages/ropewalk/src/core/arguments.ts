/**
 * Reads arguments. Every value of the caller is copied once, so that a later change, or a getter that throws, does no
 * harm. The parameter `where` of all functions names the operator and the argument for messages.
 *
 * @module
 */
import { fail, isRecord, RopewalkError, refuse, show } from './errors.js';

/**
 * Calls `read` on a value of the caller, where a getter or a proxy may throw anything.
 *
 * @throws {RopewalkError} the error with which `read` refuses; RANGE when it throws anything else
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
  const at = typeof where === 'string' ? where : show(where);
  return new RopewalkError('RANGE', `${at}: reading this value threw an error`, { cause });
}

/** The names of the options T. The compiler keeps such a table complete. */
export type OptionNames<T> = { readonly [K in keyof T]-?: true };

/** The words of a text, as a union of types. */
export type Words<S extends string> = S extends `${infer First} ${infer Rest}` ? First | Words<Rest> : S;
/** Is `never` where the words of S are not exactly the names of T, so that no list fits. */
type Exactly<S extends string, T> = [Words<S>, keyof T] extends [keyof T, Words<S>] ? unknown : never;

/**
 * Makes the table of all options of T. The compiler refuses lists that miss a name of T or have another one.
 *
 * @param lists - the names, with a space between two of them
 */
export function optionNames<const S extends string, T>(...lists: (S & Exactly<S, T>)[]): OptionNames<T> {
  const names = lists.flatMap((list) => list.split(' '));
  return Object.fromEntries(names.map((name) => [name, true])) as OptionNames<T>;
}

/**
 * Copies an object of options.
 *
 * @param options - an object with named fields, not a list; only its own fields are read
 * @param names - all options: any other field of a literal is refused unless it is undefined. A tensor, which has other
 *   fields, may stand for its dtype and layout. Without names, no field is refused
 * @throws {RopewalkError} RANGE for anything else, or when reading a field throws
 */
export function readOptions<T extends object>(options: T, where: string, names?: OptionNames<NoInfer<T>>): T {
  return reading(where, () => {
    checkOptions(options, where);
    if (names !== undefined) checkNames(options, names, where);
    return { ...options };
  });
}

/** Refuses options with an unknown name, as {@link readOptions} does, without a copy. */
export function checkFields<T extends object>(options: T, names: OptionNames<NoInfer<T>>, where: string): void {
  try {
    checkOptions(options, where);
    checkNames(options, names, where);
  } catch (cause) {
    throw unreadable(where, cause);
  }
}

function checkNames(options: object, names: object, where: string): void {
  // The list of Object.keys would cost a short call more than everything else here.
  for (const name in options) {
    if ((names as Record<string, unknown>)[name] === true || !Object.hasOwn(options, name)) continue;
    if ((options as Record<string, unknown>)[name] !== undefined && isRecord(options))
      refuseName(name, Object.keys(names), where);
  }
}

function refuseName(name: string, names: readonly string[], where: string): never {
  const next = didYouMean(name, names) ?? `It takes ${names.join(', ')}.`;
  return fail('RANGE', where, `there is no ${show(name)}. ${next}`);
}

/**
 * Suggests a known name for an unknown one, where they differ in case, in `_` and `-`, or in a third of the letters:
 * `Did you mean vllm?`
 */
export function didYouMean(given: unknown, names: readonly string[]): string | undefined {
  const plain = (name: string) => name.slice(0, 80).toLowerCase().replace(/[_-]/g, '');
  let next: string | undefined;
  let least = Infinity;
  for (const name of typeof given === 'string' ? names : []) {
    const distance = editsBetween(plain(given as string), plain(name));
    if (distance < least && distance <= plain(name).length / 3) [next, least] = [`Did you mean ${name}?`, distance];
  }
  return next;
}

/** Counts letters to insert or remove. A replaced letter counts twice, because who writes `i64` does not mean `f64`. */
function editsBetween(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, j) => j);
  for (let i = 1; i <= a.length; i++) {
    const next = [i];
    for (let j = 1; j <= b.length; j++)
      next.push(a[i - 1] === b[j - 1] ? row[j - 1]! : 1 + Math.min(row[j]!, next[j - 1]!));
    row = next;
  }
  return row[b.length]!;
}

/** Reads one field of an object that may have methods, such as a file, with the errors of {@link readOptions}. */
export function readField<T extends object, K extends keyof T>(options: T, name: K, where: string): T[K] {
  try {
    checkOptions(options, where);
    return options[name];
  } catch (cause) {
    throw unreadable(where, cause);
  }
}

function checkOptions(options: unknown, where: string): void {
  if (typeof options !== 'object' || options === null || Array.isArray(options) || ArrayBuffer.isView(options))
    refuse('RANGE', where, 'an object', options, 'Give an object of options.');
}

/** Calls {@link readOptions} on an object that may be undefined. */
export function readOptional<T extends object>(
  options: T | undefined,
  where: string,
  names?: OptionNames<NoInfer<T>>,
): T | undefined {
  return options === undefined ? undefined : readOptions(options, where, names);
}

/**
 * Copies a list. A missing element is refused at once, so a sparse list takes no more memory than its elements.
 *
 * @param list - an array, or anything with a length and numbered elements; a typed array is returned as it is
 * @param expected - a description of the list for the message: `a list of integers`
 * @throws {RopewalkError} SHAPE for anything else; RANGE when reading it throws
 */
export function readList<T>(list: ArrayLike<T>, where: string, expected = 'a list'): ArrayLike<T> {
  // A typed array over a transferred buffer has no elements, and throws when it is iterated.
  if (ArrayBuffer.isView(list) && !(list instanceof DataView)) return list.length === 0 ? [] : list;
  return reading(where, () => {
    const length = typeof list === 'object' && list !== null ? list.length : undefined;
    if (!Number.isSafeInteger(length)) refuse('SHAPE', where, expected, list);
    const copy: T[] = [];
    for (let n = 0; n < length!; n++) {
      const value = list[n];
      if (value === undefined) refuse('SHAPE', `${where}[${n}]`, 'a value', undefined);
      copy.push(value);
    }
    return copy;
  });
}

/** The deepest nesting that is read; no options have as much. */
const MAX_DEPTH = 16;

/**
 * Copies a value with everything in it: literals, lists and typed arrays, which become lists. A hole in a list is refused,
 * so the work is bounded by the elements that exist.
 *
 * @param value - numbers, texts, booleans, lists and objects; other objects, such as tensors and maps, are kept
 * @throws {RopewalkError} SHAPE for a list with holes; RANGE for a function, a symbol or a bigint, for more than 16
 *   levels, or when reading it throws
 */
export function readPlain<T>(value: T, where: string, depth = 0): T {
  if (typeof value === 'function' || typeof value === 'symbol' || typeof value === 'bigint')
    refuse('RANGE', where, 'a number, a text, a list or an object', value);
  if (typeof value !== 'object' || value === null) return value;
  if (depth > MAX_DEPTH) refuse('RANGE', where, `at most ${MAX_DEPTH} objects in one another`, value);
  const kind = reading(where, () =>
    Array.isArray(value) || ArrayBuffer.isView(value) ? 'list' : Object.getPrototypeOf(value)?.constructor?.name,
  );
  if (kind === 'list')
    return Array.from(readList(value as unknown as ArrayLike<unknown>, where), (one, n) =>
      readPlain(one, `${where}[${n}]`, depth + 1),
    ) as T;
  if (kind !== 'Object' && kind !== undefined) return value;
  const fields = Object.entries(readOptions(value, where)).filter(([, field]) => field !== undefined);
  return Object.fromEntries(fields.map(([key, field]) => [key, readPlain(field, `${where}: ${key}`, depth + 1)])) as T;
}

/** Checks that a value is one of a few names. @throws {RopewalkError} UNSUPPORTED for any other value */
export function readName<const T extends string>(value: unknown, names: readonly T[], where: string): T {
  if ((names as readonly unknown[]).includes(value)) return value as T;
  const list = names.join(', ').replace(/, ([^,]*)$/, ' or $1');
  return refuse('UNSUPPORTED', where, list, value, didYouMean(value, names));
}

/**
 * Checks that a value is an integer in [low, high].
 *
 * @param limit - the name of the value that sets the upper limit, for the message: `head_dim`
 * @throws {RopewalkError} RANGE for any other value
 */
export function checkInteger(value: unknown, where: string, low: number, high = Infinity, limit?: string): number {
  if (!Number.isSafeInteger(value) || (value as number) < low || (value as number) > high) {
    const range = high === Infinity ? `>= ${low}` : `in [${low}, ${limit === undefined ? high : `${limit} = ${high}`}]`;
    refuse('RANGE', where, `an integer ${range}`, value);
  }
  return value as number;
}

/** Checks that a value is a finite number above 0. @throws {RopewalkError} RANGE for any other value */
export function checkPositive(value: unknown, where: string): number {
  if (typeof value !== 'number' || !(value > 0 && value < Infinity))
    refuse('RANGE', where, 'a finite number > 0', value);
  return value;
}

/**
 * Checks that an argument is bytes, and that the caller's name for them is a string.
 *
 * @throws {RopewalkError} DTYPE for anything but a Uint8Array; RANGE when `where` is not a string
 */
export function checkBytes(bytes: unknown, where: unknown): asserts bytes is Uint8Array {
  checkName(where, 'where', 'the file');
  if (!ArrayBuffer.isView(bytes) || !(bytes instanceof Uint8Array))
    refuse('DTYPE', where, 'bytes in a Uint8Array', bytes);
}

/** Checks a name that is used only in messages, for `what`. @throws {RopewalkError} RANGE when it is not a string */
export function checkName(name: unknown, where: string, what: string): asserts name is string {
  if (typeof name !== 'string') refuse('RANGE', where, `a string that names ${what} in messages`, name);
}

/** Says whether a value is a number that stays finite in float32, in which kernels compute. */
export function fitsFloat32(value: unknown): value is number {
  return typeof value === 'number' && Number.isFinite(Math.fround(value));
}
