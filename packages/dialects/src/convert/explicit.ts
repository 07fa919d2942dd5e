/**
 * Frequencies given one by one, as a record: a base that fits them where there is one, otherwise factors that divide a base's.
 *
 * @module
 */
import type { RopeScaling, RopeSpec } from 'ropewalk';
import { STANDSTILL } from './effective.js';

/** Divides the frequency of a pair that does not turn; llama.cpp's own value for Gemma 4 (conversion/gemma.py). An f32 holds it. */
export const NO_TURN = 1e30;

/** What stands fixed beside the frequencies. */
export type Frame = Pick<RopeSpec, 'headDim' | 'rotaryDim' | 'rotaryOffset' | 'pairing' | 'axes'>;

/**
 * The factors that divide a base's frequencies to give others: plain[j] / invFreq[j].
 *
 * @param invFreq - radians a position, one a pair
 * @param base - θ
 * @param dim - the exponent's denominator
 * @param exponents - of each pair, where it is not the pair's number
 * @returns one factor a pair; {@link NO_TURN} for a pair that does not turn
 */
export function factorsFor(
  invFreq: ArrayLike<number>,
  base: number,
  dim: number,
  exponents?: ArrayLike<number>,
): number[] {
  return Array.from(invFreq, (frequency, j) => {
    if (Math.abs(frequency) <= STANDSTILL) return NO_TURN;
    return base ** ((-2 * (exponents ? exponents[j]! : j)) / dim) / frequency;
  });
}

/**
 * Makes a record from frequencies.
 *
 * @param frame - sizes, pairing and axes
 * @param invFreq - radians a position, one a pair
 * @param attentionFactor - multiplies cos and sin
 * @param tolerance - how well the frequencies are known, relative: a base that fits within it is taken
 * @returns the record, with the base in words when one fits and with factors when none does
 */
export function specFromFrequencies(
  frame: Frame,
  invFreq: ArrayLike<number>,
  attentionFactor: number,
  tolerance: number,
): RopeSpec {
  const { headDim, rotaryDim = headDim } = frame;
  const magnitude = Math.abs(attentionFactor - 1) <= tolerance ? {} : { attentionFactor };
  const turning = Array.from(invFreq).findLastIndex((frequency) => Math.abs(frequency) > STANDSTILL) + 1;
  const fitted = fitBase(invFreq, turning, rotaryDim, tolerance);
  if (fitted) {
    const { base, factor } = fitted;
    const scaling: RopeScaling | undefined =
      turning < invFreq.length
        ? { kind: 'proportional', rotatedPairs: turning, ...(factor === 1 ? {} : { factor }) }
        : factor === 1
          ? undefined
          : { kind: 'linear', factor };
    return { ...frame, base, ...(scaling ? { scaling } : {}), ...magnitude };
  }
  const base = baseOfFastPairs(invFreq, rotaryDim, tolerance) ?? 10000;
  return { ...frame, base, freqFactors: factorsFor(invFreq, base, rotaryDim), ...magnitude };
}

/** Scaling rules leave the fast pairs as they are: where those have a base, it is the model's. */
function baseOfFastPairs(invFreq: ArrayLike<number>, dim: number, tolerance: number): number | undefined {
  for (let pairs = invFreq.length >> 1; pairs >= 4; pairs >>= 1) {
    const fitted = fitBase(invFreq, pairs, dim, tolerance);
    if (fitted?.factor === 1) return fitted.base;
  }
  return undefined;
}

/** A base and a common divisor that give all of the first frequencies, or undefined. */
function fitBase(
  invFreq: ArrayLike<number>,
  pairs: number,
  dim: number,
  tolerance: number,
): { base: number; factor: number } | undefined {
  if (pairs < 2 || !(invFreq[0]! > 0) || !(invFreq[pairs - 1]! > 0)) return undefined;
  const exact = (invFreq[0]! / invFreq[pairs - 1]!) ** (dim / (2 * (pairs - 1)));
  const first = 1 / invFreq[0]!;
  const fits = (base: number, factor: number): boolean => {
    if (!(base > 0) || !Number.isFinite(base)) return false;
    for (let j = 0; j < pairs; j++) {
      const wanted = base ** ((-2 * j) / dim) / factor;
      if (!(Math.abs(invFreq[j]! - wanted) <= tolerance * wanted)) return false;
    }
    return true;
  };
  // The roundest base and divisor that the data allow are what somebody wrote down.
  for (let digits = 1; digits <= 17; digits++) {
    const base = Number(exact.toPrecision(digits));
    for (let coarse = 1; coarse <= digits; coarse++) {
      const factor = Number(first.toPrecision(coarse));
      if (fits(base, factor)) return { base, factor };
    }
  }
  return undefined;
}
