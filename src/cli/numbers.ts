/**
 * Options that are numbers.
 *
 * @module
 */
import { refuse } from '../core/errors.js';

/**
 * Reads a whole number.
 *
 * @param text - as given, or undefined where the option is not there
 * @param where - command and option, for messages: `export: --heads`
 * @param low - the least
 * @param high - the most
 * @throws {RopewalkError} RANGE
 */
export function readInteger(text: string | undefined, where: string, low: number, high: number): number | undefined {
  if (text === undefined) return undefined;
  const value = Number(text);
  if (!/^\d+$/.test(text) || value < low || value > high) refuse('RANGE', where, `an integer in [${low}, ${high}]`, text);
  return value;
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
