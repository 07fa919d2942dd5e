/** The frequency of every pair, and the axis whose position rotates it: the slope of angle over position. @module */
import { type AngleAt, refineSlope, solveSlope, wrap } from './slope.js';
import type { Turns, TurnUnit } from './turns.js';

/** How one pair's angle depends on the position. */
export interface PairFit {
  /**
   * Axes that explain the angles equally well; several where their positions are the same, or the pair does not rotate.
   */
  readonly axes: readonly number[];
  /** Radians a position; negative for backward. */
  readonly slope: number;
  /** The interval that contains the slope. */
  readonly low: number;
  readonly high: number;
  /** Other intervals that fit: there is too much noise to know the number of whole turns. */
  readonly others: readonly (readonly [number, number])[];
  /** Integer positions show a slope only up to multiples of this: 2π over their greatest common divisor. */
  readonly period: number;
  /** Units whose angle the slope does not explain. */
  readonly against: readonly number[];
}

/** The position of a unit on an axis. */
export type PositionOf = (unit: TurnUnit, axis: number) => number;

const TURN = 2 * Math.PI;
/** Where positions show nothing. */
const NOTHING = { slope: 0, low: -Math.PI, high: Math.PI, others: [], period: TURN };

/**
 * Fits a line through the angles of every pair: the slowest of those that integer positions cannot tell apart.
 *
 * @param positionOf - the assumed position of a unit
 * @param slack - relative error of an angle that was computed in f32; 0 for exact angles
 * @param fromZero - whether angle 0 is at position 0; otherwise all positions may be shifted
 */
export function fitPairs(
  turns: Turns,
  numAxes: number,
  positionOf: PositionOf,
  slack: number,
  fromZero = false,
): PairFit[] {
  return Array.from({ length: turns.pairs }, (_what, j) => fitPair(turns, j, numAxes, { positionOf, slack, fromZero }));
}

interface LineOptions {
  readonly positionOf: PositionOf;
  readonly slack: number;
  readonly fromZero: boolean;
}

function fitPair(turns: Turns, j: number, numAxes: number, options: LineOptions): PairFit {
  const fits = Array.from({ length: numAxes }, (_what, axis) => fitOnAxis(turns, j, axis, options));
  const fewest = Math.min(...fits.map(({ against }) => against.length));
  const axes = fits.flatMap(({ against }, axis) => (against.length === fewest ? [axis] : []));
  const [first, ...others] = axes.map((axis) => fits[axis]!) as [(typeof fits)[number], ...typeof fits];
  // Which axis it is, is not known: the slope is one of theirs.
  const low = others.reduce((least, fit) => Math.min(least, fit.low), first.low);
  const high = others.reduce((most, fit) => Math.max(most, fit.high), first.high);
  return { ...first, low, high, axes };
}

function fitOnAxis(
  turns: Turns,
  j: number,
  axis: number,
  { positionOf, slack, fromZero }: LineOptions,
): Omit<PairFit, 'axes'> {
  const { units, pairs } = turns;
  const position = (u: number): number => positionOf(units[u]!, axis);
  // NaN: a unit whose position is unknown.
  const known = units.flatMap((_what, u) =>
    turns.tolerance[u * pairs + j]! < 1 && Number.isFinite(position(u)) ? [u] : [],
  );
  const sampleAt = (u: number): AngleAt => ({
    at: position(u),
    angle: turns.angle[u * pairs + j]!,
    tolerance: turns.tolerance[u * pairs + j]!,
  });
  // Relative to one unit, an offset of all positions cancels.
  const origin = known.reduce<number | undefined>(
    (best, u) => (best === undefined || Math.abs(position(u)) < Math.abs(position(best)) ? u : best),
    undefined,
  );
  if (origin === undefined) return { ...NOTHING, against: [] };
  const start = fromZero ? { at: 0, angle: 0, tolerance: 0 } : sampleAt(origin);
  const samples = known
    .filter((u) => fromZero || u !== origin)
    .map((u): AngleAt & { u: number } => {
      const { at, angle, tolerance } = sampleAt(u);
      return { u, at: at - start.at, angle: angle - start.angle, tolerance: tolerance + start.tolerance };
    });
  if (!samples.some(({ at }) => at !== 0)) {
    const against = samples.filter((s) => Math.abs(wrap(s.angle)) > s.tolerance).map(({ u }) => u);
    return { ...NOTHING, against };
  }
  const period = TURN / samples.reduce((divisor, { at }) => gcd(divisor, Math.abs(at)), 0);
  const { intervals, against } = solveSlope(samples, -period / 2, period / 2, slack);
  const rated = intervals.map((interval) => rate(samples, interval, slack)).sort((p, q) => p.chi - q.chi);
  const best = rated[0]!;
  return {
    slope: best.slope,
    low: best.interval[0],
    high: best.interval[1],
    others: rated.slice(1).map(({ interval }) => interval),
    period,
    against: against.map((n) => samples[n]!.u),
  };
}

/** The best slope of an interval, and how well it fits. */
function rate(samples: readonly AngleAt[], interval: readonly [number, number], slack: number) {
  const steepest = Math.max(Math.abs(interval[0]), Math.abs(interval[1]));
  const loose = samples.map((s) => ({ ...s, tolerance: s.tolerance + slack * Math.abs(s.at) * steepest + 1e-15 }));
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
