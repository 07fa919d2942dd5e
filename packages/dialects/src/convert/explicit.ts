/**
 * A record from a list of frequencies: with a base that fits them where there is one, else with factors for each pair.
 *
 * @module
 */
import type { RopeScaling, RopeSpec } from 'ropewalk';
import { STANDSTILL } from './effective.js';

/** The factor of a pair that does not rotate, as in llama.cpp's conversion/gemma.py. It fits an f32. */
export const NO_ROTATION = 1e30;

/** A record without its frequencies. */
export type Frame = Pick<RopeSpec, 'headDim' | 'rotaryDim' | 'rotaryOffset' | 'pairing' | 'axes'>;

/**
 * The factors that turn a base's frequencies into the given ones, one a pair: plain[j] / invFreq[j]. `dim` is the
 * exponent's denominator; `exponents` are the pairs' numbers unless given.
 */
export function factorsFor(
  invFreq: ArrayLike<number>,
  base: number,
  dim: number,
  exponents?: ArrayLike<number>,
): number[] {
  return Array.from(invFreq, (frequency, j) => {
    if (Math.abs(frequency) <= STANDSTILL) return NO_ROTATION;
    return base ** ((-2 * (exponents ? exponents[j]! : j)) / dim) / frequency;
  });
}

/** A record with the base that fits the frequencies within the relative `tolerance`; with factors when none does. */
export function specFromFrequencies(
  frame: Frame,
  invFreq: ArrayLike<number>,
  attentionFactor: number,
  tolerance: number,
): RopeSpec {
  const { headDim, rotaryDim = headDim } = frame;
  const magnitude = Math.abs(attentionFactor - 1) <= tolerance ? undefined : attentionFactor;
  const rotatedPairs = Array.from(invFreq).findLastIndex((frequency) => Math.abs(frequency) > STANDSTILL) + 1;
  const fitted = fitBase(invFreq, rotatedPairs, rotaryDim, tolerance);
  if (!fitted) {
    const base = baseOfFastPairs(invFreq, rotaryDim, tolerance) ?? 10000;
    return { ...frame, base, freqFactors: factorsFor(invFreq, base, rotaryDim), attentionFactor: magnitude };
  }
  const { base } = fitted;
  const factor = fitted.factor === 1 ? undefined : fitted.factor;
  let scaling: RopeScaling | undefined;
  if (rotatedPairs < invFreq.length) scaling = { kind: 'proportional', rotatedPairs, factor };
  else if (factor !== undefined) scaling = { kind: 'linear', factor };
  return { ...frame, base, scaling, attentionFactor: magnitude };
}

/** The base of the fast pairs: scaling rules do not change those. */
function baseOfFastPairs(invFreq: ArrayLike<number>, dim: number, tolerance: number): number | undefined {
  for (let pairs = invFreq.length >> 1; pairs >= 4; pairs >>= 1) {
    const fitted = fitBase(invFreq, pairs, dim, tolerance);
    if (fitted?.factor === 1) return fitted.base;
  }
  return undefined;
}

/** A base and a common divisor that give the first `pairs` frequencies, or undefined. */
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
  // The base and divisor with the fewest digits that fit are most likely the ones written down.
  for (let digits = 1; digits <= 17; digits++) {
    const base = Number(exact.toPrecision(digits));
    for (let coarse = 1; coarse <= digits; coarse++) {
      const factor = Number(first.toPrecision(coarse));
      if (fits(base, factor)) return { base, factor };
    }
  }
  return undefined;
}
