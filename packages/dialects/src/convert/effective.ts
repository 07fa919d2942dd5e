/**
 * The effect of a RoPE: the frequency of each pair, the magnitude, and the dimensions and the axis of each pair.
 *
 * Two records are the same RoPE if these are the same. Conversions are checked by it, and `ropewalk diff` compares it.
 * A record is also made from a list of frequencies.
 *
 * @module
 */
import { frequenciesOf, type Pairing, planRope, type RopeScaling, type RopeSpec } from 'ropewalk';
import { refuse } from 'ropewalk/backend';
import { reading, readOptions, sharePairs } from 'ropewalk/internal';

/** The effect of a RoPE. */
export interface EffectiveRope {
  readonly headDim: number;
  readonly rotaryDim: number;
  readonly rotaryOffset: number;
  /** Pairing vision is half pairing here, as invFreq includes its exponents. */
  readonly pairing: Exclude<Pairing, 'vision'>;
  /** The frequency of each pair, in radians a position. */
  readonly invFreq: Float64Array;
  /** The factor of cos and sin. */
  readonly attentionFactor: number;
  readonly numAxes: number;
  /** The position axis of each pair: 0 t, 1 h, 2 w, 3 e. */
  readonly axisOfPair: Uint8Array;
}

/**
 * Computes the effect of a RoPE.
 *
 * @param spec - a model's RoPE
 * @throws {RopewalkError} RANGE, SHAPE or UNSUPPORTED, naming the option
 */
export function effectiveRope(spec: RopeSpec): EffectiveRope {
  // A plan of one token checks the record.
  const plan = planRope({ ...readOptions(spec, 'rope: options'), positions: 0, seqLen: 1 });
  const { numAxes, axisOfPair } = sharePairs(spec.axes, plan.rotaryDim / 2);
  return {
    headDim: plan.headDim,
    rotaryDim: plan.rotaryDim,
    rotaryOffset: plan.rotaryOffset,
    pairing: plan.pairing === 'vision' ? 'half' : plan.pairing,
    ...frequenciesOf(spec),
    numAxes,
    axisOfPair,
  };
}

/** The distance of two RoPEs. */
export interface RopeDistance {
  /** Sizes, pairing or axes that differ. There are none where the same pairs rotate by the same axes. */
  readonly differences: readonly string[];
  /** The largest relative difference of a frequency. */
  readonly invFreq: number;
  /** The relative difference of the magnitude. */
  readonly attentionFactor: number;
}

/** A pair with a lower frequency does not rotate: at 2³¹ positions it is 2e-11 rad. llama.cpp divides by 1e30. */
export const STANDSTILL = 1e-20;

/**
 * Compares two RoPEs.
 *
 * @param a - one result of {@link effectiveRope}
 * @param b - the other one
 * @throws {RopewalkError} RANGE for anything else
 */
export function distanceOf(a: EffectiveRope, b: EffectiveRope): RopeDistance {
  return distance(readEffective(a, 'distanceOf: a'), readEffective(b, 'distanceOf: b'));
}

function readEffective(given: EffectiveRope, where: string): EffectiveRope {
  const rope = readOptions(given, where);
  const numbers = [rope.headDim, rope.rotaryDim, rope.rotaryOffset, rope.attentionFactor];
  const lists = reading(where, () => rope.invFreq instanceof Float64Array && rope.axisOfPair instanceof Uint8Array);
  const finite = lists && numbers.every(Number.isFinite) && rope.invFreq.every(Number.isFinite);
  if (!finite || typeof rope.pairing !== 'string') refuse('RANGE', where, 'a result of effectiveRope', given);
  return rope;
}

function distance(a: EffectiveRope, b: EffectiveRope): RopeDistance {
  const keys = ['headDim', 'rotaryDim', 'rotaryOffset', 'pairing'] as const;
  const differences = keys.filter((key) => a[key] !== b[key]).map((key) => `${key} ${a[key]} and ${b[key]}`);
  const pairs = Array.from(a.invFreq.subarray(0, b.invFreq.length).keys());
  const apart = (j: number): number => relative(a.invFreq[j]!, b.invFreq[j]!, STANDSTILL);
  const invFreq = pairs.reduce((most, j) => Math.max(most, apart(j)), 0);
  // A pair that does not rotate has no axis.
  const otherAxis = pairs.filter((j) => a.axisOfPair[j] !== b.axisOfPair[j] && Math.abs(a.invFreq[j]!) > STANDSTILL);
  if (otherAxis.length > 0)
    differences.push(`the axes of ${otherAxis.length} pairs, the first one pair ${otherAxis[0]}`);
  return { differences, invFreq, attentionFactor: relative(a.attentionFactor, b.attentionFactor) };
}

/** Computes the relative difference of two numbers; 0 when both are within `floor`. */
export function relative(a: number, b: number, floor = 0): number {
  const size = Math.max(Math.abs(a), Math.abs(b));
  return size <= floor ? 0 : Math.abs(a - b) / size;
}

/** A pair that does not rotate has this factor, as in llama.cpp's conversion/gemma.py. It fits an f32. */
export const NO_ROTATION = 1e30;

/** A record without its frequencies. */
export type Frame = Pick<RopeSpec, 'headDim' | 'rotaryDim' | 'rotaryOffset' | 'pairing' | 'axes'>;

/**
 * Computes the factors that turn a base's frequencies into others, one for each pair: plain[j] / invFreq[j].
 *
 * @param dim - the denominator of the exponents
 * @param exponents - of the pairs. Default: their numbers
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

/** Makes a record with a base that fits the frequencies within the relative `tolerance`, or else with factors. */
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

/** Finds the base of the fast pairs, which scaling rules do not change. */
function baseOfFastPairs(invFreq: ArrayLike<number>, dim: number, tolerance: number): number | undefined {
  for (let pairs = invFreq.length >> 1; pairs >= 4; pairs >>= 1) {
    const fitted = fitBase(invFreq, pairs, dim, tolerance);
    if (fitted?.factor === 1) return fitted.base;
  }
  return undefined;
}

/** Finds a base and a common divisor that give the first `pairs` frequencies. */
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
