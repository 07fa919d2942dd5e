/**
 * The frequency of every pair, and the axis whose position rotates it: the slope of angle over position.
 *
 * Finds one slope from angles that are known only up to whole turns. Samples are used from the smallest position to the
 * largest, and every number of whole turns that still fits is kept. @module
 */
import type { Turns, TurnUnit } from './turns.js';

/** An angle at one place of a line. */
export interface AngleAt {
  /** The place: a position, or a frequency. */
  readonly at: number;
  /** Radians, up to whole turns. */
  readonly angle: number;
  /** The error of the angle in radians, >= 0. */
  readonly tolerance: number;
  /** The place from which the angle was computed, where it is the difference of two. Default: `at`. */
  readonly reach?: number;
}

/** The result of {@link solveSlope}. */
export interface Slopes {
  /** Every slope that fits, as intervals `[low, high]`, ascending. */
  readonly intervals: readonly (readonly [number, number])[];
  /** The indices of the samples that no slope of the intervals fits. */
  readonly against: readonly number[];
}

const TURN = 2 * Math.PI;
/** A sample that would give more intervals than this is skipped. */
const MAX_INTERVALS = 4096;
/** The same for frequencies: far from 0 they are found from differences of positions. */
const MAX_FREQUENCIES = 1024;
/** More intervals than this say nothing of a slope. */
const MAX_RATED = 256;
/** An angle with a larger tolerance tells nothing. */
const MAX_TOLERANCE = 1.5;

/**
 * Finds the slopes k for which `angle ≡ k · at` holds within the tolerances, as far as possible for all samples.
 *
 * @param within - the intervals in which they are looked for
 * @param relative - a further error, relative to the angle itself, for angles that were computed in f32
 * @param most - the most intervals that a sample may give
 */
export function solveSlope(
  samples: readonly AngleAt[],
  within: readonly (readonly [low: number, high: number])[],
  relative = 0,
  most = MAX_INTERVALS,
): Slopes {
  const order = samples.map((_what, n) => n).sort((p, q) => Math.abs(samples[p]!.at) - Math.abs(samples[q]!.at));
  let intervals = within.map(([low, high]): [number, number] => [low, high]);
  const against: number[] = [];
  for (const n of order) {
    const { at, angle, reach = Math.abs(at) } = samples[n]!;
    const steepest =
      relative === 0 ? 0 : intervals.reduce((most, [a, b]) => Math.max(most, Math.abs(a), Math.abs(b)), 0);
    const tolerance = samples[n]!.tolerance + relative * reach * steepest;
    if (!(tolerance < MAX_TOLERANCE)) continue;
    if (at === 0) {
      if (Math.abs(wrap(angle)) > tolerance) against.push(n);
      continue;
    }
    const next = narrow(intervals, { at, angle, tolerance }, most);
    if (next === undefined) continue;
    if (next.length === 0) against.push(n);
    else intervals = next;
  }
  return { intervals: intervals.sort((p, q) => p[0] - q[0]), against };
}

/** The parts of the intervals that a sample allows; undefined when there would be too many. */
function narrow(
  intervals: readonly [number, number][],
  { at, angle, tolerance }: AngleAt,
  most: number,
): [number, number][] | undefined {
  const next: [number, number][] = [];
  for (const [a, b] of intervals) {
    const from = Math.min(a * at, b * at);
    const to = Math.max(a * at, b * at);
    const first = Math.ceil((from - tolerance - angle) / TURN);
    const last = Math.floor((to + tolerance - angle) / TURN);
    if (next.length + last - first > most) return undefined;
    for (let turns = first; turns <= last; turns++) {
      const middle = (angle + turns * TURN) / at;
      const width = tolerance / Math.abs(at);
      const low = Math.max(a, middle - width);
      const high = Math.min(b, middle + width);
      if (low <= high) next.push([low, high]);
    }
  }
  return next;
}

/** The slope within an interval that fits the samples best, by least squares. */
export function refineSlope(samples: readonly AngleAt[], interval: readonly [number, number]): number {
  const middle = (interval[0] + interval[1]) / 2;
  let above = 0;
  let below = 0;
  for (const { at, angle, tolerance } of samples) {
    // Where the interval spans whole turns, their number is unknown.
    if (at === 0 || !(tolerance < MAX_TOLERANCE) || (interval[1] - interval[0]) * Math.abs(at) > 1) continue;
    const weight = 1 / Math.max(tolerance, 1e-12) ** 2;
    const rest = wrap(angle - middle * at);
    if (Math.abs(rest) > tolerance + ((interval[1] - interval[0]) / 2) * Math.abs(at) + 1e-9) continue;
    above += weight * rest * at;
    below += weight * at * at;
  }
  const slope = below > 0 ? middle + above / below : middle;
  return Math.min(interval[1], Math.max(interval[0], slope));
}

/** Wraps an angle into (−π, π]. */
export function wrap(angle: number): number {
  const rest = angle - TURN * Math.round(angle / TURN);
  return rest === -Math.PI ? Math.PI : rest;
}

/** The line of one pair's angle over the position. */
export interface PairFit {
  /** The axes that explain the angles equally well: several if their positions are the same, or the pair does not rotate. */
  readonly axes: readonly number[];
  /** Radians a position; negative for backward. */
  readonly slope: number;
  readonly low: number;
  readonly high: number;
  /** Other intervals that fit, because there is too much noise to know the number of whole turns. */
  readonly others: readonly (readonly [number, number])[];
  /** Integer positions show a slope only up to multiples of this: 2π over their greatest common divisor. */
  readonly period: number;
  /** The units whose angle the slope does not explain. */
  readonly against: readonly number[];
}

export type PositionOf = (unit: TurnUnit, axis: number) => number;

/** The fit where positions show nothing. */
const NOTHING = { slope: 0, low: -Math.PI, high: Math.PI, others: [], period: TURN };

/**
 * Fits a line through the angles of every pair, the slowest of those that integer positions cannot tell apart.
 *
 * @param positionOf - the assumed position of a unit
 * @param slack - the relative error of an angle that was computed in f32; 0 for exact angles
 * @param fromZero - whether angle 0 is at position 0; otherwise all positions may be shifted
 */
export function fitPairs(
  turns: Turns,
  numAxes: number,
  positionOf: PositionOf,
  slack: number,
  fromZero = false,
): PairFit[] {
  const axes = Array.from({ length: numAxes }, (_, axis) => axis);
  return Array.from({ length: turns.pairs }, (_, j): PairFit => {
    const fits = axes.map((axis) => fitOnAxis(turns, j, (u) => positionOf(turns.units[u]!, axis), slack, fromZero));
    const fewest = Math.min(...fits.map(({ against }) => against.length));
    const best = axes.filter((axis) => fits[axis]!.against.length === fewest);
    // The slope is known only as one of these axes.
    const low = Math.min(...best.map((axis) => fits[axis]!.low));
    const high = Math.max(...best.map((axis) => fits[axis]!.high));
    return { ...fits[best[0]!]!, low, high, axes: best };
  });
}

function fitOnAxis(
  { units, pairs, angle, tolerance }: Turns,
  j: number,
  position: (u: number) => number,
  slack: number,
  fromZero: boolean,
): Omit<PairFit, 'axes'> {
  // The position of a unit is NaN where it is unknown.
  const known = [...units.keys()].filter((u) => tolerance[u * pairs + j]! < 1 && Number.isFinite(position(u)));
  const sampleAt = (u: number): AngleAt => ({
    at: position(u),
    angle: angle[u * pairs + j]!,
    tolerance: tolerance[u * pairs + j]!,
  });
  // An offset of all positions cancels relative to one unit.
  const origin = known.reduce<number | undefined>(
    (best, u) => (best === undefined || Math.abs(position(u)) < Math.abs(position(best)) ? u : best),
    undefined,
  );
  if (origin === undefined) return { ...NOTHING, against: [] };
  const from = (start: AngleAt): (AngleAt & { u: number })[] =>
    known.map((u) => {
      const one = sampleAt(u);
      const [at, turned] = [one.at - start.at, one.angle - start.angle];
      const reach = Math.abs(one.at) + Math.abs(start.at);
      return { u, at, angle: turned, tolerance: one.tolerance + start.tolerance, reach };
    });
  const between = from(sampleAt(origin)).filter(({ u }) => u !== origin);
  const samples = fromZero ? from({ at: 0, angle: 0, tolerance: 0 }) : between;
  if (!samples.some(({ at }) => at !== 0)) {
    const against = samples.filter((s) => Math.abs(wrap(s.angle)) > s.tolerance).map(({ u }) => u);
    return { ...NOTHING, against };
  }
  const period = TURN / samples.reduce((divisor, { at }) => gcd(divisor, Math.abs(at)), 0);
  const whole = [[-period / 2, period / 2]] as const;
  // Far from 0 the angles between positions leave fewer slopes than those from 0.
  const near = fromZero && Math.abs(position(origin)) * period > MAX_FREQUENCIES * TURN ? between : [];
  const rough = solveSlope(near, whole, slack, MAX_FREQUENCIES);
  const within = rough.against.length > 0 ? whole : rough.intervals;
  const { intervals, against } = solveSlope(samples, within, slack, MAX_FREQUENCIES);
  const told = against.map((n) => samples[n]!.u);
  if (intervals.length > MAX_RATED) return { ...NOTHING, low: -period / 2, high: period / 2, period, against: told };
  const rated = intervals.map((interval) => rate(samples, interval, slack)).sort((p, q) => p.chi - q.chi);
  const best = rated[0]!;
  return {
    slope: best.slope,
    low: best.interval[0],
    high: best.interval[1],
    others: rated.slice(1).map(({ interval }) => interval),
    period,
    against: told,
  };
}

/** The best slope of an interval, and how well it fits. */
function rate(samples: readonly AngleAt[], interval: readonly [number, number], slack: number) {
  const steepest = Math.max(Math.abs(interval[0]), Math.abs(interval[1]));
  const loose = samples.map((s) => ({
    ...s,
    tolerance: s.tolerance + slack * (s.reach ?? Math.abs(s.at)) * steepest + 1e-15,
  }));
  const slope = refineSlope(loose, interval);
  const chi = loose.reduce(
    (sum, s) => (s.tolerance < 1.5 ? sum + (wrap(s.angle - slope * s.at) / s.tolerance) ** 2 : sum),
    0,
  );
  return { interval, slope, chi };
}

function gcd(a: number, b: number): number {
  while (b > 0) [a, b] = [b, a % b];
  return a;
}
