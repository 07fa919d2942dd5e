/**
 * Families of frequencies, such as base^(−2j/dim): integer positions show a frequency only up to whole turns. A family is
 * believed when it gives every angle of every token, which chance cannot do for many pairs. @module
 */
import { UNIT_ROUNDOFF } from 'ropewalk/internal';
import { type PairFit, wrap } from '../measure/slope.js';
import type { Turns, TurnUnit } from '../measure/turns.js';
import { BASES } from '../read/expected.js';
import { leastSquares } from './frequency-law.js';

/** The frequencies of all pairs by one rule. */
export interface Family {
  /** The formula over the pair j; undefined for the expected or usual frequencies, and for a line. */
  readonly words: string | undefined;
  /** The signed frequency of each pair, in radians a position. */
  readonly frequency: Float64Array;
}

/** The factors of angles in other units, and of half and whole turns. */
const FACTORS: readonly (readonly [factor: number, words: string])[] = [
  [1, ''],
  [Math.PI, 'π × '],
  [1 / Math.PI, '1/π × '],
  [2 * Math.PI, '2π × '],
  [1 / (2 * Math.PI), '1/2π × '],
  [180 / Math.PI, '180/π × '],
  [Math.PI / 180, 'π/180 × '],
];
/** The evidence beyond which chance gives all angles less often than e^−45, for all families together. */
const ENOUGH = 45;

/** The name of a factor such as π/180; undefined for another number. */
export function factorWords(factor: number, error: number): string | undefined {
  const known = FACTORS.slice(1).find(([one]) => Math.abs(factor / one - 1) <= Math.max(1e-6, 2 * error));
  return known?.[1].replace(' × ', '');
}

/**
 * Finds every family that gives all angles, or a line through the measurements where no family does.
 *
 * @param positionOf - the position by which a unit is rotated
 * @param fits - the slowest reading of each pair
 * @param hint - the expected frequencies, signed
 */
export function provenFamilies(
  turns: Turns,
  positionOf: (unit: TurnUnit) => number,
  fits: readonly PairFit[],
  hint: ArrayLike<number> | undefined,
  headDim: number,
): Family[] {
  const positions = turns.units.map(positionOf);
  const proven: Family[] = [];
  for (const { words, at } of families(turns.pairs, headDim, hint)) {
    for (const sign of [1, -1]) {
      const signedAt = (j: number): number => sign * at(j);
      if (evidenceOf(turns, positions, signedAt) < ENOUGH) continue;
      const frequency = Float64Array.from({ length: turns.pairs }, (_what, j) => signedAt(j));
      if (proven.some((one) => same(one.frequency, frequency))) continue;
      proven.push({ words: sign === 1 || words === undefined ? words : `−(${words})`, frequency });
    }
  }
  if (proven.length > 0) return proven;
  for (const order of [-1, 1] as const) {
    const frequency = lineThrough(fits, order);
    if (frequency && evidenceOf(turns, positions, (j) => frequency[j]!) >= ENOUGH)
      return [{ words: undefined, frequency }];
  }
  return [];
}

function same(a: Float64Array, b: Float64Array): boolean {
  return a.every((f, j) => Math.abs(f - b[j]!) <= 1e-7 * Math.abs(f));
}

/** A family with the frequency of pair j as a function: most families fail in the first pairs. */
type FamilyRule = Pick<Family, 'words'> & { at(j: number): number };

function* families(pairs: number, headDim: number, hint: ArrayLike<number> | undefined): Generator<FamilyRule> {
  const window = 2 * pairs;
  const expected = hint && baseOf(hint, window);
  const bases = expected === undefined || BASES.includes(expected) ? BASES : [expected, ...BASES];
  // The expected ones come first: where the data cannot tell frequencies apart, there is no difference.
  if (hint && hint.length >= pairs) yield { words: undefined, at: (j) => hint[j]! };
  for (const [factor, words] of FACTORS) {
    for (const dim of new Set([window, headDim, 2 * window, 2 * headDim, window - 2, headDim - 2, window / 2])) {
      if (dim < 1) continue;
      for (const base of bases) {
        for (const sign of [-1, 1])
          yield {
            words: factor === 1 && sign < 0 ? undefined : `${words}${base}^(${sign < 0 ? '−' : '+'}2j/${dim})`,
            at: (j) => factor * base ** ((2 * sign * j) / dim),
          };
      }
    }
  }
  yield { words: 'j + 1', at: (j) => j + 1 };
  yield { words: `(j + 1)/${pairs}`, at: (j) => (j + 1) / pairs };
  yield { words: `1 − j/${pairs}`, at: (j) => 1 - j / pairs };
  if (pairs > 1) {
    for (const end of [0, ...BASES.map((base) => 1 / base)]) {
      yield {
        words: `linspace(1, ${end === 0 ? 0 : `1/${Math.round(1 / end)}`}, ${pairs})`,
        at: (j) => 1 + ((end - 1) * j) / (pairs - 1),
      };
    }
  }
  if (hint && hint.length >= pairs) {
    for (const [factor, words] of FACTORS.slice(1))
      yield { words: `${words}the expected frequency`, at: (j) => factor * hint[j]! };
    if (Array.from(hint).every((f) => f !== 0)) yield { words: '1 / the expected frequency', at: (j) => 1 / hint[j]! };
    yield { words: 'the expected frequency of pair ⌊j/2⌋', at: (j) => hint[j >> 1]! };
  }
}

/** The base of plain frequencies over a denominator; undefined for scaled frequencies. */
function baseOf(frequency: ArrayLike<number>, denominator: number): number | undefined {
  const base = Math.abs(frequency[1] ?? Number.NaN) ** (-denominator / 2);
  const near = Number(base.toPrecision(7));
  const plain = Array.from(frequency).every(
    (f, j) => Math.abs(Math.abs(f) * near ** ((2 * j) / denominator) - 1) < 1e-6,
  );
  return plain ? near : undefined;
}

/** How surprising it is that frequencies give the angles, in nats; −1 if they do not give them. */
function evidenceOf(turns: Turns, positions: readonly number[], frequencyOf: (j: number) => number): number {
  let sum = 0;
  for (let j = 0; j < turns.pairs; j++) {
    let best = 0;
    const frequency = frequencyOf(j);
    const slack = (8 + 2 * j) * UNIT_ROUNDOFF.f32; // angles in f32
    for (let u = 0; u < positions.length; u++) {
      if (!Number.isFinite(positions[u]!)) continue;
      const at = u * turns.pairs + j;
      const angle = positions[u]! * frequency;
      const tolerance = turns.tolerance[at]! + slack * Math.abs(angle);
      if (!(tolerance < 1)) continue;
      if (Math.abs(wrap(turns.angle[at]! - angle)) > tolerance) return -1;
      if (Math.abs(wrap(angle)) > 2 * tolerance) best = Math.max(best, Math.log(Math.PI / Math.max(tolerance, 1e-12)));
    }
    sum += best;
  }
  return sum;
}

/** The number of slow pairs with which a line begins. */
const START = 6;

/**
 * Fits a line ln f = start + step · j. It begins at the slow end, where no whole turn is missed, and goes on to faster
 * pairs: the line tells how many turns each has made.
 *
 * @param order - −1 if the last pairs are the slow ones
 */
function lineThrough(fits: readonly PairFit[], order: 1 | -1): Float64Array | undefined {
  const slowFirst = fits.map((_what, j) => (order < 0 ? fits.length - 1 - j : j));
  const usable = slowFirst.filter((j) => {
    const { slope, low, high } = fits[j]!;
    return high - low < 0.02 * Math.abs(slope);
  });
  if (usable.length < 2 * START) return undefined;
  const sign = Math.sign(fits[usable[0]!]!.slope);
  const points: { x: number; y: number; weight: number }[] = [];
  const add = (j: number, f: number): void => {
    const { low, high } = fits[j]!;
    points.push({ x: j, y: Math.log(f), weight: (f / Math.max(high - low, 1e-9 * f)) ** 2 });
  };
  for (const j of usable.slice(0, START)) {
    if (Math.sign(fits[j]!.slope) !== sign) return undefined;
    add(j, Math.abs(fits[j]!.slope));
  }
  for (const j of usable.slice(START)) {
    const { at, errorAt } = leastSquares(points)!;
    const f = Math.exp(at(j));
    const { slope, low, high, period } = fits[j]!;
    const width = f * (4 * errorAt(j) + 1e-6) + (high - low);
    if (!(width < period / 4)) return undefined;
    const value = sign * slope + period * Math.round((f - sign * slope) / period);
    if (!(value > 0) || Math.abs(value - f) > width) return undefined;
    add(j, value);
  }
  const { at } = leastSquares(points)!;
  return Float64Array.from(fits, (_what, j) => sign * Math.exp(at(j)));
}
