/** Checks the options of a probe that say how a server is reached. @module */
import { fail, refuse } from 'ropewalk/backend';
import { checkInteger, Fields, type OptionNames, optionNames, reading, readList, readOptions } from 'ropewalk/internal';
import type { Access, Exchange } from './http.js';

const NAMES: OptionNames<Access> = /* @__PURE__ */ optionNames(
  'key timeoutMs recorded offline onExchange budget signal',
);
/** The longest timer of JavaScript, in milliseconds, and a budget that no probe reaches. */
const MAX_INTEGER = 2 ** 31 - 1;

/**
 * Copies options.
 *
 * @param caller - the function, for messages
 * @param more - the names of its own options
 * @throws {RopewalkError} RANGE, naming the option
 */
export function checkAccess<T extends Access & { readonly onProgress?: unknown }>(
  caller: string,
  options: T,
  more: object,
): T {
  const given = readOptions(options, `${caller}: options`, { ...NAMES, ...more } as unknown as OptionNames<T>);
  const { key, signal, recorded, offline } = given;
  if (key !== undefined && (typeof key !== 'string' || !/^[\x21-\x7e]+$/.test(key)))
    fail('RANGE', `${caller}: key`, 'it is no text of visible ASCII characters, as keys are.');
  if (signal !== undefined && !reading(`${caller}: signal`, () => signal instanceof AbortSignal))
    refuse('RANGE', `${caller}: signal`, 'an AbortSignal', signal);
  for (const name of ['onExchange', 'onProgress'] as const)
    if (given[name] !== undefined && typeof given[name] !== 'function')
      refuse('RANGE', `${caller}: ${name}`, 'a function', given[name]);
  for (const name of ['timeoutMs', 'budget'] as const)
    if (given[name] !== undefined) checkInteger(given[name], `${caller}: ${name}`, 1, MAX_INTEGER);
  if (offline !== undefined && typeof offline !== 'boolean')
    refuse('RANGE', `${caller}: offline`, 'true or false', offline);
  if (recorded === undefined) return given;
  const list = readList<Exchange>(recorded, `${caller}: recorded`, 'a list of exchanges');
  const exchanges = Array.from(list, (one, n): Exchange => {
    const fields = new Fields(one, `${caller}: recorded[${n}]`);
    return {
      path: fields.text('path'),
      body: fields.optionalText('body'),
      status: fields.integer('status', 100, 599),
      answer: fields.text('answer'),
    };
  });
  return { ...given, recorded: exchanges };
}
