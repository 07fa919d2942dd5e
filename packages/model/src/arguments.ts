/**
 * Arguments of the decoder's public functions: what is none of theirs is refused by name before anything is done.
 *
 * @module
 */
import { reading, refuse } from 'ropewalk/backend';
import type { Model, Session, Tokenizer } from './types.js';

/** @throws {RopewalkError} RANGE for what is no model */
export function checkModel(model: Model, where: string): void {
  const { tokenizer, config, openSession } = fieldsOf<Model>(model, where, ['tokenizer', 'config', 'openSession']);
  if (typeof openSession !== 'function' || !isObject(config) || !isObject(tokenizer))
    refuse('RANGE', `${where}: model`, 'a model of loadModel', model);
}

/** @throws {RopewalkError} RANGE for what is no tokenizer */
export function checkTokenizer(tokenizer: Tokenizer, where: string): void {
  const { encode, stream, chatTemplates } = fieldsOf<Tokenizer>(tokenizer, where, [
    'encode',
    'stream',
    'chatTemplates',
  ]);
  if (
    typeof encode !== 'function' ||
    typeof stream !== 'function' ||
    !reading(where, () => chatTemplates instanceof Map)
  )
    refuse('RANGE', `${where}: tokenizer`, 'a tokenizer of tokenizerFromJson or tokenizerFromGguf', tokenizer);
}

/** @throws {RopewalkError} RANGE for what is no session that was kept */
export function checkKept(
  kept: { readonly session: Session; readonly tokens: readonly number[] } | undefined,
  where: string,
): void {
  if (kept === undefined) return;
  const { session, tokens } = fieldsOf<typeof kept>(kept, where, ['session', 'tokens']);
  if (typeof fieldsOf<Session>(session, where, ['append']).append !== 'function' || !Array.isArray(tokens))
    refuse('RANGE', `${where}: session`, 'a session of keepSession', kept);
}

/** @throws {RopewalkError} RANGE for what is no AbortSignal */
export function checkSignal(signal: AbortSignal | undefined, where: string): void {
  if (
    signal !== undefined &&
    typeof fieldsOf<AbortSignal>(signal, where, ['throwIfAborted']).throwIfAborted !== 'function'
  )
    refuse('RANGE', `${where}: signal`, 'an AbortSignal', signal);
}

/** @throws {RopewalkError} RANGE for an option of these names that is neither left out nor of the type */
export function checkTypes(
  options: object,
  names: readonly string[],
  type: 'boolean' | 'function' | 'string',
  where: string,
): void {
  const expected = { boolean: 'true or false', function: 'a function', string: 'a text' }[type];
  for (const name of names) {
    const value = (options as Readonly<Record<string, unknown>>)[name];
    if (value !== undefined && typeof value !== type) refuse('RANGE', `${where}: ${name}`, expected, value);
  }
}

function isObject(value: unknown): value is object {
  return typeof value === 'object' && value !== null;
}

/** Fields of an object with methods that are not its own; each is read once, and a proxy may throw. */
function fieldsOf<T>(value: unknown, where: string, names: readonly (keyof T)[]): { [K in keyof T]?: unknown } {
  if (!isObject(value)) return {};
  return reading(where, () => Object.fromEntries(names.map((name) => [name, (value as T)[name]]))) as {
    [K in keyof T]?: unknown;
  };
}
