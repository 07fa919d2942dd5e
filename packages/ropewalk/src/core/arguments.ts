/**
 * Reading arguments: every value of the caller's is read once, into a copy of ours, so that a later change or a getter
 * that throws does no harm.
 *
 * @module
 */
import { fail, isRecord, RopewalkError, refuse, show } from './errors.js';

/**
 * Reads something of the caller's, where a getter or a proxy may throw anything.
 *
 * @param where - operator and argument, for the message
 * @param read - reads it into values of ours
 * @throws {RopewalkError} what `read` refuses; RANGE when it throws anything else
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

/** The names of the options T; the compiler holds the table to the type. */
export type OptionNames<T> = { readonly [K in keyof T]-?: true };

/**
 * Copies an object of options.
 *
 * @param options - an object with named fields, not a list; only its own fields are read
 * @param where - operator and argument, for the message
 * @param names - every option there is: any other field of a literal that is not undefined is refused. A tensor, which
 *   has other fields, may stand for its dtype and layout. Without names, for records of others, none is refused
 * @throws {RopewalkError} RANGE for anything else, or when reading a field throws
 */
export function readOptions<T extends object>(options: T, where: string, names?: OptionNames<NoInfer<T>>): T {
  return reading(where, () => {
    checkOptions(options, where);
    if (names !== undefined) checkNames(options, names, where);
    return { ...options };
  });
}

/**
 * Refuses options with a name that is misspelt, where {@link readField} reads them one by one.
 *
 * @param options - as for {@link readOptions}
 * @param names - every option there is
 * @param where - operator and argument, for the message
 * @throws {RopewalkError} as {@link readOptions}
 */
export function checkFields<T extends object>(options: T, names: OptionNames<NoInfer<T>>, where: string): void {
  try {
    checkOptions(options, where);
    checkNames(options, names, where);
  } catch (cause) {
    throw unreadable(where, cause);
  }
}

function checkNames(options: object, names: object, where: string): void {
  // Not Object.keys, whose list costs a short call more than all else here.
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
 * The next step for a name that is not known, where one differs from it in case, in `_` and `-`, or in a third of its
 * letters: `Did you mean vllm?`
 *
 * @param given - what was written
 * @param names - those that there are
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

/** Letters to insert or remove. One that is replaced counts twice: `i64` for `f64` is meant, and no mistake. */
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

/**
 * Reads one field of an object of options. {@link readOptions} copies all of them, which costs a short call a tenth of
 * a microsecond.
 *
 * @param options - as for {@link readOptions}
 * @param name - the field
 * @param where - operator and argument, for the message
 * @throws {RopewalkError} as {@link readOptions}
 */
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

/**
 * {@link readOptions} of an object that may be left out.
 *
 * @returns the copy, or undefined for undefined
 * @throws {RopewalkError} as {@link readOptions}
 */
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
 * @param where - operator and argument, for the message
 * @param expected - what the list is, for the message: `a list of integers`
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

/** Objects in objects: more than any options have. */
const MAX_DEPTH = 16;

/**
 * Copies a value with all that is in it: literals, lists and typed arrays, which become lists. A hole in a list is
 * refused, so the work is bounded by what is there.
 *
 * @param value - of numbers, texts, booleans, lists and objects; other objects, such as tensors and maps, are kept
 * @param where - operator and argument, for the message
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

/**
 * Checks that a value is one of a few names.
 *
 * @param names - the names that are known
 * @param where - operator and argument, for the message
 * @throws {RopewalkError} UNSUPPORTED for any other value
 */
export function readName<const T extends string>(value: unknown, names: readonly T[], where: string): T {
  if ((names as readonly unknown[]).includes(value)) return value as T;
  const list = names.join(', ').replace(/, ([^,]*)$/, ' or $1');
  return refuse('UNSUPPORTED', where, list, value, didYouMean(value, names));
}

/**
 * Checks that a value is an integer in a range.
 *
 * @param where - operator and argument, for the message
 * @param low - the smallest allowed
 * @param high - the largest allowed; any unless given
 * @param limit - what sets the largest, for the message: `head_dim`
 * @throws {RopewalkError} RANGE for any other value
 */
export function checkInteger(value: unknown, where: string, low: number, high = Infinity, limit?: string): number {
  if (!Number.isSafeInteger(value) || (value as number) < low || (value as number) > high) {
    const range = high === Infinity ? `>= ${low}` : `in [${low}, ${limit === undefined ? high : `${limit} = ${high}`}]`;
    refuse('RANGE', where, `an integer ${range}`, value);
  }
  return value as number;
}

/**
 * Checks that a value is a finite number above 0.
 *
 * @throws {RopewalkError} RANGE for any other value
 */
export function checkPositive(value: unknown, where: string): number {
  if (typeof value !== 'number' || !(value > 0 && value < Infinity))
    refuse('RANGE', where, 'a finite number > 0', value);
  return value;
}

/**
 * Checks that an argument is bytes.
 *
 * @param bytes - what the caller gave
 * @param where - what messages call it; checked too
 * @throws {RopewalkError} DTYPE for anything but a Uint8Array; RANGE when `where` is not a string
 */
export function checkBytes(bytes: unknown, where: unknown): asserts bytes is Uint8Array {
  checkName(where, 'where', 'the file');
  if (!ArrayBuffer.isView(bytes) || !(bytes instanceof Uint8Array))
    refuse('DTYPE', where, 'bytes in a Uint8Array', bytes);
}

/**
 * Checks a name that is used in messages only.
 *
 * @param name - what the caller gave
 * @param where - the argument
 * @param what - what it names
 * @throws {RopewalkError} RANGE when it is not a string
 */
export function checkName(name: unknown, where: string, what: string): asserts name is string {
  if (typeof name !== 'string') refuse('RANGE', where, `a string that names ${what} in messages`, name);
}

/**
 * Says whether a value is a number that stays finite in float32, in which kernels compute.
 *
 * @param value - anything
 */
export function fitsFloat32(value: unknown): value is number {
  return typeof value === 'number' && Number.isFinite(Math.fround(value));
}
