/** Replaces each argument and each field of a valid call by values that no caller should pass. */
import type { OpenFile } from '@ropewalk/formats/internal/node';
import { Ropewalk, RopewalkError, Tensor } from 'ropewalk';
import { some } from './size.js';

const throwing = (): never => {
  throw new Error('a trap of the test');
};
const TRAPS = Object.fromEntries(
  Object.getOwnPropertyNames(Reflect)
    .filter((name) => typeof Reflect[name as keyof typeof Reflect] === 'function')
    .map((name) => [name, throwing]),
);

function detached(): Float32Array {
  const array = new Float32Array(8);
  structuredClone(array.buffer, { transfer: [array.buffer] });
  return array;
}

function revoked(): object {
  const { proxy, revoke } = Proxy.revocable({}, {});
  revoke();
  return proxy;
}

/** Makes a new hostile value for each name. */
const HOSTILE: Readonly<Record<string, () => unknown>> = {
  undefined: () => undefined,
  null: () => null,
  true: () => true,
  NaN: () => Number.NaN,
  Infinity: () => Infinity,
  '-Infinity': () => -Infinity,
  '0': () => 0,
  '-0': () => -0,
  '-1': () => -1,
  '1.5': () => 1.5,
  '5e-324': () => 5e-324,
  '1e-320': () => 1e-320,
  '1e308': () => 1e308,
  '-1e308': () => -1e308,
  '2^31': () => 2 ** 31,
  '2^45': () => 2 ** 45,
  '2^53': () => 2 ** 53,
  '5n': () => 5n,
  '2n**70n': () => 2n ** 70n,
  "''": () => '',
  "'5'": () => '5',
  "'__proto__'": () => '__proto__',
  "'constructor'": () => 'constructor',
  symbol: () => Symbol('hostile'),
  function: () => () => 1,
  '[]': () => [],
  '[null]': () => [null],
  '[5n]': () => [5n],
  '[NaN]': () => [Number.NaN],
  '[1e-320]': () => [1e-320],
  '[symbol]': () => [Symbol('hostile')],
  'sparse array': () => new Array(2 ** 32 - 1),
  '{}': () => ({}),
  'object without prototype': () => Object.create(null),
  'object with a long length': () => ({ length: 2 ** 53 }),
  'object that throws when printed': () => ({ toString: throwing, valueOf: throwing, toJSON: throwing }),
  proxy: () => new Proxy({}, TRAPS),
  'proxy of a list': () => new Proxy([], TRAPS),
  'proxy of a function': () => new Proxy(() => {}, TRAPS),
  'revoked proxy': revoked,
  Map: () => new Map(),
  Promise: () => Promise.resolve(1),
  'detached array': detached,
  ArrayBuffer: () => new ArrayBuffer(8),
  'shared array': () => new Float32Array(new SharedArrayBuffer(32)),
  'empty array': () => new Float32Array(0),
  'forged tensor': () => Object.create(Tensor.prototype),
};

const GETTER = 'a getter that throws';

type Path = readonly (string | number)[];

/** Says whether the fields of a value are replaced too: it is a literal of the caller, not one of our objects. */
function isLiteral(value: unknown): value is Record<string, unknown> | unknown[] {
  if (typeof value !== 'object' || value === null) return false;
  return Array.isArray(value) || (Object.getPrototypeOf(value) === Object.prototype && !Object.isFrozen(value));
}

function* pathsOf(value: unknown, depth: number, at: Path = []): Generator<Path> {
  if (at.length > 0) yield at;
  if (depth < 0 || !isLiteral(value)) return;
  const keys = Array.isArray(value)
    ? [...(at.length === 0 ? value.keys() : value.slice(0, 2).keys())]
    : Object.keys(value);
  for (const key of keys) yield* pathsOf((value as Record<string, unknown>)[key as string], depth - 1, [...at, key]);
}

function replaced(value: unknown, path: Path, descriptor: PropertyDescriptor): unknown {
  const [key, ...rest] = path;
  const copy: object = Array.isArray(value) ? [...value] : { ...(value as object) };
  const inner =
    rest.length === 0
      ? descriptor
      : plain(replaced((value as Record<string, unknown>)[key as string], rest, descriptor));
  return Object.defineProperty(copy, key!, inner);
}

function plain(value: unknown): PropertyDescriptor {
  return { value, enumerable: true, configurable: true, writable: true };
}

/**
 * Makes calls with one hostile value each: all of them, or the part that the size of the run allows.
 *
 * @param valid - makes the arguments of a valid call; it is called again for each hostile call
 * @param depth - the number of levels of literals whose fields are replaced
 */
export function* hostileCalls(
  valid: () => readonly unknown[],
  depth = 3,
): Generator<{ label: string; args: unknown[] }> {
  const cases = [...pathsOf(valid(), depth)].flatMap((path) =>
    [...Object.keys(HOSTILE), ...(path.length > 1 ? [GETTER] : [])].map((name) => ({ path, name })),
  );
  for (const { path, name } of some(cases)) {
    const descriptor =
      name === GETTER ? { get: throwing, enumerable: true, configurable: true } : plain(HOSTILE[name]!());
    const label = path.length === 1 ? `argument ${path[0]}` : `argument ${path[0]}.${path.slice(1).join('.')}`;
    yield { label: `${label} = ${name}`, args: replaced(valid(), path, descriptor) as unknown[] };
  }
}

/**
 * Makes calls with one unknown option in each object of the arguments.
 *
 * @param valid - makes the arguments of a valid call
 */
export function* misspeltCalls(valid: () => readonly unknown[]): Generator<{ where: string; args: unknown[] }> {
  for (const path of pathsOf(valid(), 3)) {
    const literal = path.reduce((value, key) => (value as Record<string, unknown>)[key as string], valid() as unknown);
    if (!isLiteral(literal) || Array.isArray(literal)) continue;
    const args = replaced(valid(), [...path, 'misspelt'], plain(true)) as unknown[];
    yield { where: path.join('.'), args };
  }
}

/** Finds a NaN in numbers, typed arrays, tensors, literals and maps. Returns its place, or undefined. */
export function nanIn(value: unknown, depth = 4): string | undefined {
  if (typeof value === 'number') return Number.isNaN(value) ? 'the result' : undefined;
  if (value instanceof Float32Array || value instanceof Float64Array)
    return value.some(Number.isNaN) ? 'an array' : undefined;
  if (typeof value !== 'object' || value === null || ArrayBuffer.isView(value) || depth === 0) return undefined;
  if (value instanceof Tensor)
    return value.dtype === 'f32' || value.dtype === 'f64' ? nanIn(value.readNumbers()) : undefined;
  if (value instanceof Map || value instanceof Set) return nanIn([...value.values()], depth);
  for (const [key, inner] of Object.entries(value)) {
    const found = nanIn(inner, depth - 1);
    if (found) return `${key}: ${found}`;
  }
  return undefined;
}

/**
 * Makes one call.
 *
 * @param works - whether it must return a result
 * @returns the problem: an error that is not a RopewalkError, or NaN; undefined if there is none
 */
export async function complaint(call: () => unknown, works = false): Promise<string | undefined> {
  try {
    const returned = call();
    const result: unknown = returned instanceof Promise ? await returned : returned;
    const nan = nanIn(result);
    if (result instanceof Ropewalk) result.dispose();
    await (result as Partial<OpenFile> | null | undefined)?.file?.close?.();
    return nan && `NaN in ${nan}`;
  } catch (error) {
    if (error instanceof RopewalkError) return works ? `${error.code}: ${error.message}` : undefined;
    return error instanceof Error ? `${error.name}: ${error.message}` : 'something thrown that is no Error';
  }
}
