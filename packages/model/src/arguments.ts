/** Checks arguments of the public functions. A value of another kind is refused by name before any work. @module */
import { refuse } from 'ropewalk/backend';
import { reading } from 'ropewalk/internal';
import type { KeptSession, Model, Session, Tokenizer } from './types.js';

/** @param needs - the fields that are used. @throws {RopewalkError} RANGE for a value that is no model */
export function checkModel(
  model: Model,
  where: string,
  needs: readonly (keyof Model)[] = ['tokenizer', 'config', 'openSession'],
): void {
  const fields = fieldsOf<Model>(model, where, ...needs);
  for (const name of needs)
    if (name === 'openSession' ? typeof fields[name] !== 'function' : !isObject(fields[name]))
      refuse('RANGE', `${where}: model`, 'a model from loadModel', model);
}

/** @throws {RopewalkError} RANGE for a value that is no tokenizer */
export function checkTokenizer(tokenizer: Tokenizer, where: string): void {
  const fields = fieldsOf<Tokenizer>(tokenizer, where, 'encode', 'stream', 'chatTemplates');
  const hasTemplates = reading(where, () => fields.chatTemplates instanceof Map);
  if (typeof fields.encode !== 'function' || typeof fields.stream !== 'function' || !hasTemplates)
    refuse('RANGE', `${where}: tokenizer`, 'a tokenizer from tokenizerFromJson or tokenizerFromGguf', tokenizer);
}

/** @throws {RopewalkError} RANGE for a value that is no session of keepSession */
export function checkKept(kept: KeptSession, where: string): void {
  const { session, tokens } = fieldsOf<KeptSession>(kept, where, 'session', 'tokens');
  const isList = reading(where, () => Array.isArray(tokens));
  if (typeof fieldsOf<Session>(session, where, 'append').append !== 'function' || !isList)
    refuse('RANGE', `${where}: session`, 'a session from keepSession', kept);
}

/** @throws {RopewalkError} RANGE for a value that is no AbortSignal */
export function checkSignal(signal: AbortSignal | undefined, where: string): void {
  if (signal === undefined) return;
  if (typeof fieldsOf<AbortSignal>(signal, where, 'throwIfAborted').throwIfAborted !== 'function')
    refuse('RANGE', `${where}: signal`, 'an AbortSignal', signal);
}

/** @throws {RopewalkError} RANGE for an option of another type; undefined is left out */
export function checkTypes(options: object, type: 'boolean' | 'function' | 'string', where: string): void {
  const expected = { boolean: 'true or false', function: 'a function', string: 'a string' }[type];
  for (const [name, value] of Object.entries(options))
    if (value !== undefined && typeof value !== type) refuse('RANGE', `${where}: ${name}`, expected, value);
}

function isObject(value: unknown): value is object {
  return typeof value === 'object' && value !== null;
}

/** Reads fields of an object with inherited methods. Each field is read once, because a proxy may throw. */
export function fieldsOf<T>(value: unknown, where: string, ...names: (keyof T)[]): { [K in keyof T]?: unknown } {
  if (!isObject(value)) return {};
  const read = () => Object.fromEntries(names.map((name) => [name, (value as T)[name]]));
  return reading(where, read) as { [K in keyof T]?: unknown };
}
