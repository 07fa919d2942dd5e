/**
 * The error type of Ropewalk, and the two functions that throw it.
 *
 * Every message names the operator and the argument, says what is wrong, and gives the next step where there is one.
 *
 * @module
 */

/**
 * The kind of mistake that a {@link RopewalkError} reports.
 *
 * - `SHAPE`: a dimension, rank or stride does not fit
 * - `DTYPE`: an element type does not fit
 * - `RANGE`: a value is outside what is allowed
 * - `ALIAS`: two tensors share memory in a way the operator cannot honour
 * - `UNSUPPORTED`: a valid request that this build or backend cannot fulfil
 * - `FORMAT`: bytes from outside (a file, a manifest, a command line) are malformed
 * - `DEVICE`: a device, its memory or its process is missing, lost or full
 */
export type ErrorCode = 'SHAPE' | 'DTYPE' | 'RANGE' | 'ALIAS' | 'UNSUPPORTED' | 'FORMAT' | 'DEVICE';

/**
 * An error that a caller can act on.
 *
 * @example
 * try { planRope(options) } catch (e) { if (e instanceof RopewalkError && e.code === 'RANGE') … }
 */
export class RopewalkError extends Error {
  /** The kind of mistake; the codes are stable across releases. */
  readonly code: ErrorCode;

  /**
   * @param code - the kind of mistake
   * @param message - `<op>: <argument>: <what is wrong>[. <next step>]`
   * @param options - `cause`, when another error led here
   */
  constructor(code: ErrorCode, message: string, options?: ErrorOptions) {
    super(message, options);
    this.name = 'RopewalkError';
    this.code = code;
  }
}

/**
 * Throws a {@link RopewalkError} about one value: `WHERE: expected EXPECTED, got GOT`. Call it only once the check has
 * failed, so that the text is built only then.
 *
 * @param code - the kind of mistake
 * @param where - the operator and argument in the caller's words, `"rope: rotary_dim"`
 * @param expected - a description of accepted values, with the numbers that set the limit
 * @param got - the value, printed on one line
 * @param next - the next step, a full sentence
 * @throws {RopewalkError} always
 */
export function refuse(code: ErrorCode, where: string, expected: string, got: unknown, next?: string): never {
  // The caller may have given anything as the name for messages, and turning it into a string may throw.
  const at = typeof where === 'string' ? where : show(where);
  throw new RopewalkError(
    code,
    `${at}: expected ${expected}, got ${show(got)}${next === undefined ? '' : `. ${next}`}`,
  );
}

/**
 * Throws a {@link RopewalkError} about a state or a rule: a file that is missing, two options that exclude each other.
 *
 * @param code - the kind of mistake
 * @param where - as for {@link refuse}
 * @param sentence - the mistake, and the next step; with a full stop at the end if it is more than one sentence
 * @throws {RopewalkError} always
 */
export function fail(code: ErrorCode, where: string, sentence: string): never {
  throw new RopewalkError(code, `${where}: ${sentence}`);
}

/** Prints any value for an error message: on one line, in at most 80 characters. It never throws. */
export function show(value: unknown): string {
  try {
    return clip(textOf(value, 3));
  } catch {
    return 'a value that cannot be printed'; // A proxy, or a function of the object, threw.
  }
}

/** The most characters of a value that a message shows. The rest of a long value is not even read. */
const LONG = 80;

function textOf(value: unknown, depth: number): string {
  if (value === undefined || value === null) return 'none';
  if (typeof value === 'string') return JSON.stringify(value.slice(0, LONG));
  if (typeof value === 'bigint') return `${value}n`;
  if (Array.isArray(value)) {
    if (depth === 0) return '[...]';
    if (value.slice(0, LONG).some((item) => typeof item === 'object' && isRecord(item as object | null)))
      return 'an array of objects';
    return `[${Array.from(value.slice(0, LONG), (v) => clip(textOf(v, depth - 1))).join(', ')}]`;
  }
  if (ArrayBuffer.isView(value))
    return `${value.constructor.name}(${(value as Uint8Array).length ?? value.byteLength})`;
  if (typeof value === 'function') return `function ${String(value.name)}`;
  if (typeof value === 'object') return isRecord(value) ? jsonOf(value) : String(value.constructor?.name);
  return Object.is(value, -0) ? '-0' : String(value);
}

/** Says whether an object has no class: it is a literal, or a parser made it. */
export function isRecord(value: object | null): boolean {
  if (value === null) return false;
  const type = Object.getPrototypeOf(value) as object | null;
  return type === null || type.constructor?.name === 'Object'; // The name matches objects of any realm.
}

function jsonOf(value: object): string {
  let fields = 0;
  try {
    return JSON.stringify(value, (_key, inner: unknown) => {
      if (++fields > LONG) throw new RopewalkError('RANGE', 'too long to print');
      return ArrayBuffer.isView(inner) ? textOf(inner, 0) : inner;
    });
  } catch {
    return 'an object';
  }
}

function clip(text: string): string {
  return text.length > LONG ? `${text.slice(0, LONG - 3)}...` : text;
}
