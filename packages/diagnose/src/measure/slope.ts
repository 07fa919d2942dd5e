/**
 * One slope from angles that are known only up to whole turns: samples are used from the smallest position to the
 * largest, and every number of whole turns that still fits is kept. @module
 */

/** An angle somewhere along a line. */
export interface AngleAt {
  /** Where: a position, or a frequency. */
  readonly at: number;
  /** Radians, up to whole turns. */
  readonly angle: number;
  /** Error of the angle in radians, >= 0. */
  readonly tolerance: number;
}

/** What {@link solveSlope} found. */
export interface Slopes {
  /** Every slope that fits, as intervals `[low, high]`, ascending. */
  readonly intervals: readonly (readonly [number, number])[];
  /** Samples that no slope of the intervals fits; indices of those given. */
  readonly against: readonly number[];
}

const TURN = 2 * Math.PI;
/** A sample that would give more intervals than this is skipped. */
const MAX_INTERVALS = 4096;
/** An angle with a larger tolerance tells nothing. */
const MAX_TOLERANCE = 1.5;

/**
 * Finds the slopes k for which `angle ≡ k · at` holds within the tolerances, as far as possible for all samples.
 *
 * @param relative - additional error, relative to the angle itself: angles computed in f32
 */
export function solveSlope(samples: readonly AngleAt[], low: number, high: number, relative = 0): Slopes {
  const order = samples.map((_what, n) => n).sort((p, q) => Math.abs(samples[p]!.at) - Math.abs(samples[q]!.at));
  let intervals: [number, number][] = [[low, high]];
  const against: number[] = [];
  for (const n of order) {
    const { at, angle } = samples[n]!;
    const steepest =
      relative === 0 ? 0 : intervals.reduce((most, [a, b]) => Math.max(most, Math.abs(a), Math.abs(b)), 0);
    const tolerance = samples[n]!.tolerance + relative * Math.abs(at) * steepest;
    if (!(tolerance < MAX_TOLERANCE)) continue;
    if (at === 0) {
      if (Math.abs(wrap(angle)) > tolerance) against.push(n);
      continue;
    }
    const next = narrow(intervals, { at, angle, tolerance });
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
): [number, number][] | undefined {
  const next: [number, number][] = [];
  for (const [a, b] of intervals) {
    const from = Math.min(a * at, b * at);
    const to = Math.max(a * at, b * at);
    const first = Math.ceil((from - tolerance - angle) / TURN);
    const last = Math.floor((to + tolerance - angle) / TURN);
    if (next.length + last - first > MAX_INTERVALS) return undefined;
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
