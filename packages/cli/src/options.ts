/**
 * Options of commands, from text to values. Each function takes the command and the option for its messages: `export: --heads`.
 *
 * @module
 */
import { refuse } from 'ropewalk/backend';

/**
 * Reads a whole number.
 *
 * @param text - as given, or undefined where the option is not there
 * @param where - command and option, for messages
 * @param low - the least
 * @param high - the most
 * @param next - the next step, a full sentence
 * @throws {RopewalkError} RANGE
 */
export function readInteger(
  text: string | undefined,
  where: string,
  low: number,
  high: number,
  next?: string,
): number | undefined {
  if (text === undefined) return undefined;
  const value = Number(text);
  if (!/^-?\d+$/.test(text) || value < low || value > high)
    refuse('RANGE', where, `an integer in [${low}, ${high}]`, text, next);
  return value;
}

/**
 * Reads whole numbers with commas between.
 *
 * @param text - `8,128,32,128`
 * @param where - command and option, for messages
 * @param low - the least that each may be
 * @param high - the most that each may be
 * @param most - how many there may be
 * @throws {RopewalkError} RANGE
 */
export function readIntegers(text: string, where: string, low: number, high: number, most: number): number[] {
  const words = text.split(',');
  if (words.length > most) refuse('RANGE', where, `at most ${most} integers, with commas between`, words.length);
  return words.map((word) => readInteger(word.trim(), where, low, high)!);
}

/**
 * Reads a number; its range is checked by whom it concerns.
 *
 * @param text - as given, or undefined where the option is not there
 * @param where - command and option, for messages
 * @throws {RopewalkError} RANGE for what is no finite number
 */
export function readNumber(text: string | undefined, where: string): number | undefined {
  if (text === undefined) return undefined;
  const value = text.trim() === '' ? Number.NaN : Number(text);
  if (!Number.isFinite(value)) refuse('RANGE', where, 'a number', text);
  return value;
}

/**
 * Reads `--context`: tokens.
 *
 * @param text - as given, or undefined where the option is not there
 * @param command - names the command in messages
 * @returns an object with `context`, or an empty one: to be spread
 * @throws {RopewalkError} RANGE
 */
export function readContext(text: string | undefined, command: string): { context?: number } {
  const context = readInteger(text, `${command}: --context`, 1, 2 ** 31 - 1);
  return context === undefined ? {} : { context };
}

/**
 * Reads one of several words.
 *
 * @param text - as given
 * @param choices - the words
 * @param where - command and option, for messages
 * @throws {RopewalkError} UNSUPPORTED
 */
export function oneOf<const T extends string>(text: string, choices: readonly T[], where: string): T {
  return (
    choices.find((choice) => choice === text) ??
    refuse('UNSUPPORTED', where, `${choices.slice(0, -1).join(', ')} or ${choices.at(-1)}`, text)
  );
}

/**
 * Reads a list of words: the option given several times, or once with commas.
 *
 * @param given - as {@link collect} gathers them, or undefined where the option is not there
 * @param choices - the words
 * @param where - command and option, for messages
 * @returns each word once
 * @throws {RopewalkError} UNSUPPORTED
 */
export function someOf<const T extends string>(
  given: readonly string[] | undefined,
  choices: readonly T[],
  where: string,
): T[] | undefined {
  return (
    given && [...new Set(given.flatMap((text) => text.split(',')).map((word) => oneOf(word.trim(), choices, where)))]
  );
}

/**
 * Reads a regular expression.
 *
 * @param text - as given
 * @param where - command and option, for messages
 * @throws {RopewalkError} FORMAT
 */
export function readPattern(text: string, where: string): RegExp {
  try {
    return new RegExp(text);
  } catch (cause) {
    return refuse('FORMAT', where, 'a regular expression', text, (cause as Error).message);
  }
}

/**
 * Gathers an option that may be given several times. Not a variadic one: that would take an argument behind it for another value.
 *
 * @param value - this time's
 * @param before - the others
 */
export function collect(value: string, before: readonly string[] = []): string[] {
  return [...before, value];
}

/**
 * Names the flag of an option.
 *
 * @param name - as a property: `maxTokens`
 * @returns as typed: `--max-tokens`
 */
export function flagOf(name: string): string {
  return `--${name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)}`;
}
