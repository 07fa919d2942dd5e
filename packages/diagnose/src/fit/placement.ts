/**
 * The frequencies of pairs and the positions of tokens. Each is needed to find the other, and integer positions show a
 * frequency only up to whole turns. @module
 */
import { UNIT_ROUNDOFF } from 'ropewalk/internal';
import type { PairLayout } from '../measure/geometry.js';
import {
  AS_GIVEN,
  type FoundPosition,
  findRules,
  moves,
  type PositionRule,
  ROUNDED,
  shiftedBy,
} from '../measure/position-fit.js';
import { fitPairs, type PairFit, type PositionOf } from '../measure/slope.js';
import type { Turns, TurnUnit } from '../measure/turns.js';
import type { Heads } from '../read/observation.js';
import { provenFamilies } from './frequency-families.js';
import { fitLaw, measuredOf, sharpened } from './frequency-law.js';
import type { FoundPair } from './identification.js';

/** Measured angles, and what is needed to read them. */
export interface Measured {
  readonly turns: Turns;
  readonly heads: Heads;
  /** The expected frequency of each pair, signed. */
  readonly hint: ArrayLike<number> | undefined;
}

/** The rules from given to real positions that fit, and the positions of each token. */
interface Positions {
  readonly rules: readonly PositionRule[];
  readonly found: readonly FoundPosition[];
}

/** Frequencies with the whole turns that a proof adds. */
interface Resolved {
  readonly fits: readonly PairFit[];
  /** Whether the number of whole turns of each pair is known. */
  readonly known: readonly boolean[];
  /** Formulas of frequencies that are none of the usual ones; several when the data cannot tell. */
  readonly formulas: readonly string[];
}

export interface Placed extends Resolved, Positions {}

/** The relative error of angles that were computed in f32. */
export const ANGLE_SLACK = 12 * UNIT_ROUNDOFF.f32;
/** Shifts of positions that mistakes make. */
const NEARBY = [1, -1, 2, -2];
/** RoPE's frequencies are at most about 1. */
const USUAL = 1.6;
/** So many pairs on the same side, all slow, are not there by chance. */
const MANY = 6;

const given: PositionOf = (unit, axis) => unit.positions[axis]!;
export const countAgainst = (fits: readonly PairFit[]): number =>
  fits.reduce((sum, fit) => sum + fit.against.length, 0);
/** Whether the angles say anything of some frequency. */
const tells = (fits: readonly PairFit[]): boolean => fits.some(({ low, high, period }) => high - low < 0.99 * period);
const hasTurns = ({ fits, known }: Resolved): boolean =>
  fits.some(({ low, high }, j) => known[j] && (low > 0 || high < 0));

/**
 * Finds frequencies and positions together. It tries the positions as given first, then those that the expected frequencies
 * show, and then the frequencies of small positions, which most mistakes leave as they are.
 */
export function placePairs(measured: Measured): Placed {
  const { turns, heads, hint } = measured;
  const { numAxes } = heads;
  // The simplest line comes first: exact and through 0, then shifted, then with the errors of f32 angles.
  let [slack, zero] = [0, true];
  let fits = fitPairs(turns, numAxes, given, 0, true);
  for (const [relative, fromZero] of [
    [0, false],
    [ANGLE_SLACK, true],
    [ANGLE_SLACK, false],
  ] as const) {
    if (countAgainst(fits) === 0 && tells(fits)) break;
    const other = fitPairs(turns, numAxes, given, relative, fromZero);
    // Far from 0 a line from there says nothing: too many frequencies fit.
    if (countAgainst(other) < countAgainst(fits) || (countAgainst(other) === 0 && !tells(fits) && tells(other)))
      [fits, slack, zero] = [other, relative, fromZero];
  }
  if (numAxes > 1) {
    const known = fits.map(({ others, period }) => others.length === 0 && period > Math.PI);
    return { fits, known, formulas: [], ...positionsOnAxes(turns, heads, fits, slack) };
  }
  const resolved = resolveTurns(measured, fits, (unit) => (zero ? unit.positions[0]! : Number.NaN));
  const clean = countAgainst(fits) === 0 && hasTurns(resolved);
  const measuredPositions = clean ? positionsBy(turns, heads, resolved.fits, slack) : { rules: [], found: [] };
  // A line through 0 needs no other positions.
  const plain = clean && zero ? { ...measuredPositions, rules: [AS_GIVEN] } : measuredPositions;
  const one = new Set(turns.units.map(({ positions }) => positions[0])).size === 1;
  const wanted = hint && hint.length >= turns.pairs ? hint : undefined;
  const isExpected = (way: number): boolean =>
    resolved.fits.every(({ low, high }, j) => way * wanted![j]! >= low - 1e-6 && way * wanted![j]! <= high + 1e-6);
  // At one position the expected frequencies may belong to another position, and with the errors of f32 angles one
  // position more is one frequency that is a little faster. Few pairs could fit by chance.
  const another = (one || slack > 0) && wanted !== undefined && turns.pairs >= 8 && !isExpected(1) && !isExpected(-1);
  if (plain.rules[0]?.asGiven && (!another || resolved.formulas.length > 0)) {
    // A line through 0 shows frequencies better.
    const throughZero = zero ? undefined : atPositions(measured, plain);
    return throughZero ?? { ...resolved, ...plain };
  }
  const expected =
    wanted && (!one || turns.pairs >= 8)
      ? findRules(turns, heads, { frequency: wanted, error: new Float64Array(turns.pairs), slack: ANGLE_SLACK })
      : undefined;
  if (expected?.rules[0]?.asGiven === false) {
    const placed = atPositions(measured, expected);
    if (placed) return placed;
  }
  // Far from 0 a shift is hardly apart from one factor of all frequencies, unless most of them are the expected ones then.
  const agree = ({ fits }: Placed): number => fits.filter((fit, j) => contains(fit, wanted![j]!)).length;
  for (const d of another && !one ? NEARBY : []) {
    const placed = atPositions(measured, byRule(turns, shiftedBy(d)));
    if (placed && 2 * agree(placed) >= turns.pairs && 2 * agree({ ...resolved, ...plain }) < agree(placed))
      return placed;
  }
  if (plain.rules.length > 0) return { ...resolved, ...plain };
  for (const tried of bySmallPositions(measured)) {
    const placed = tried.rules[0]?.asGiven === false && atPositions(measured, tried);
    if (placed) return placed;
  }
  for (const rule of turns.headsAgree ? ROUNDED : []) {
    const positions = byRule(turns, rule);
    const placed = moves(positions.found, rule.map) && atPositions(measured, positions);
    if (placed) return placed;
  }
  // Every token fits the expected frequencies, at positions that follow no rule. Few pairs could fit by chance.
  if (turns.pairs >= 8 && expected?.rules.length === 0 && expected.found.every(hasIndex)) {
    const exact = fits.map((fit, j): PairFit => {
      const slope = wanted![j]!;
      return { ...fit, slope, low: slope, high: slope, others: [], against: [] };
    });
    return { fits: exact, known: fits.map(() => true), formulas: [], ...expected };
  }
  return { ...resolved, ...plain };
}

/** Whether a token may be at an integer position on the side of the given one. */
function hasIndex({ given, intervals }: FoundPosition): boolean {
  return intervals.some(([low, high]) => {
    const p = Math.ceil(low - 1e-6 * Math.abs(low) - 1e-9);
    return p <= high + 1e-6 * Math.abs(high) + 1e-9 && p * given >= 0;
  });
}

/** The positions of all units by a rule. */
function byRule({ units }: Turns, rule: PositionRule): Positions {
  const found = units.map((unit): FoundPosition => {
    const given = unit.positions[0]!;
    const p = rule.map(given, unit)!;
    return { unit, given, intervals: [[p, p]] };
  });
  return { rules: [rule], found };
}

/** The frequencies at the positions of a rule, if all angles are proportional to them. */
function atPositions(measured: Measured, positions: Positions): Placed | undefined {
  const { map } = positions.rules[0]!;
  const positionOf = (unit: TurnUnit): number => map(unit.positions[0]!, unit) ?? Number.NaN;
  for (const relative of [0, ANGLE_SLACK]) {
    const fits = fitPairs(measured.turns, 1, positionOf, relative, true);
    if (countAgainst(fits) > 0) continue;
    const resolved = resolveTurns(measured, fits, positionOf);
    if (hasTurns(resolved)) return { ...resolved, ...positions };
  }
  return undefined;
}

/** Positions by the frequencies of small positions alone: rounded, wrapped or clamped positions are right while small. */
function* bySmallPositions(measured: Measured): Generator<Positions> {
  const { turns, heads } = measured;
  const first = turns.units[0]?.head;
  for (const limit of [65535, 4095, 255, 63, 1]) {
    const small = turns.units.map(
      ({ positions, head }) => head === first && positions.every((p) => Math.abs(p) <= limit),
    );
    const tolerance = turns.tolerance.map((value, at) => (small[Math.floor(at / turns.pairs)] ? value : Infinity));
    const part = { ...turns, tolerance };
    const fits = fitPairs(part, 1, given, 0, true);
    if (countAgainst(fits) > 0) continue;
    const resolved = resolveTurns({ ...measured, turns: part }, fits, (unit) => unit.positions[0]!);
    if (hasTurns(resolved)) yield positionsBy(turns, heads, resolved.fits, 0);
  }
}

function positionsBy(turns: Turns, heads: Heads, fits: readonly PairFit[], slack: number): Positions {
  return findRules(turns, heads, { ...sharpened(fits), slack });
}

function positionsOnAxes(turns: Turns, heads: Heads, fits: readonly PairFit[], slack: number): Positions {
  const sharp = { ...sharpened(fits), slack };
  const found: FoundPosition[] = [];
  const rules: PositionRule[] = [];
  for (let axis = 0; axis < heads.numAxes; axis++) {
    const pairs = [...fits.keys()].filter((j) => fits[j]!.axes.length === 1 && fits[j]!.axes[0] === axis);
    if (pairs.length === 0) continue;
    const here = findRules(turns, heads, sharp, pairs, axis);
    const [rule] = here.rules;
    if (!rule) return here;
    if (!rule.asGiven) rules.push({ ...rule, words: `on axis ${axis}, ${rule.words}` });
    found.push(...here.found);
  }
  return { rules: rules.length > 0 ? rules : [AS_GIVEN], found };
}

/**
 * Decides which frequencies are known. Either every pair has one reading below half a turn a position and all go together,
 * or a family of frequencies gives every angle.
 *
 * @param positionOf - the position by which a unit is rotated
 */
function resolveTurns(
  { turns, heads, hint }: Measured,
  fits: readonly PairFit[],
  positionOf: (unit: TurnUnit) => number,
): Resolved {
  const plain = readPlainly(fits, hint);
  if (plain) return { fits, known: plain, formulas: [] };
  const families = provenFamilies(turns, positionOf, fits, hint, heads.headDim);
  if (families.length === 0) return { fits, known: fits.map(() => false), formulas: [] };
  const readings = families.map(({ frequency }) => fits.map((fit, j) => nearest(fit, frequency[j]!)));
  const all = families.flatMap(({ words }) => words ?? []);
  return {
    fits: readings[0]!,
    known: fits.map((_, j) => readings.every((one) => Math.abs(one[j]!.slope - readings[0]![j]!.slope) < 1e-9)),
    formulas: all.length === families.length ? all : [],
  };
}

/** Undefined where the slowest readings do not prove themselves. */
function readPlainly(fits: readonly PairFit[], hint: ArrayLike<number> | undefined): boolean[] | undefined {
  const turning = fits.filter(({ low, high }) => low > 0 || high < 0);
  if (turning.length === 0) return fits.map(() => false);
  if (fits.some(({ period }) => period < 2 * Math.PI - 1e-9)) return undefined;
  const single = fits.map(({ others, against }) => others.length === 0 && against.length === 0);
  const clear = fits.flatMap((fit, j) => (single[j] && (fit.low > 0 || fit.high < 0) ? [{ fit, j }] : []));
  if (2 * clear.length < turning.length) return undefined;
  const sides = new Set(clear.map(({ fit }) => Math.sign(fit.slope)));
  const slow = clear.every(({ fit }) => Math.abs(fit.slope) < USUAL);
  if (sides.size === 1 && slow && clear.length >= MANY) return single;
  const kind = fitLaw(clear.map(({ fit, j }) => measuredOf(fit, j)))?.scaling.kind;
  const isExpected = hint && clear.every(({ fit, j }) => contains(fit, hint[j] ?? 0) || contains(fit, -(hint[j] ?? 0)));
  return slow && (isExpected || (kind === 'none' && clear.length > 2) || (kind === 'linear' && clear.length > 3))
    ? single
    : undefined;
}

function contains({ low, high }: PairFit, frequency: number): boolean {
  const slack = 1e-5 * Math.abs(frequency);
  return frequency >= low - slack && frequency <= high + slack;
}

/** The reading of a pair that is nearest to a frequency, with its whole turns. */
function nearest(fit: PairFit, frequency: number): PairFit {
  const readings = [[fit.low, fit.high] as const, ...fit.others].map(([low, high], n) => {
    const middle = n === 0 ? fit.slope : (low + high) / 2;
    const added = fit.period * Math.round((frequency - middle) / fit.period);
    return { slope: middle + added, low: low + added, high: high + added };
  });
  const best = readings.reduce((a, b) => (Math.abs(b.slope - frequency) < Math.abs(a.slope - frequency) ? b : a));
  return { ...fit, ...best, others: [] };
}

/** The pairs of a layout with their frequencies and gains. */
export function foundPairs(
  { fits, known }: Placed,
  layout: PairLayout,
  turns: Turns,
  gains: readonly number[],
): FoundPair[] {
  return fits.map(({ slope, low, high, axes, others, period }, j) => {
    const places = turns.units.map((_, u) => u * turns.pairs + j);
    const seen = places.some((at) => Math.abs(turns.angle[at]!) > turns.tolerance[at]!);
    // Whole turns from position to position are not seen.
    const isTurning = (seen || Math.abs(slope) > period / 2) && (low > 0 || high < 0);
    return {
      ...layout.pairs[j]!,
      frequency: slope,
      low,
      high,
      known: known[j]!,
      others,
      period,
      gain: gains[j]!,
      axes,
      turns: isTurning,
      seen,
      moves: isTurning,
    };
  });
}
