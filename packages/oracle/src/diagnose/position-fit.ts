/** The position by which each token was really rotated, and the rule from given to real positions. @module */
import { roundTo } from 'ropewalk';
import { type AngleAt, solveSlope } from './slope.js';
import type { Turns, TurnUnit } from './turns.js';

/** A token, or one head of it, and the positions that explain its angles. */
export interface FoundPosition {
  readonly unit: TurnUnit;
  /** The position it was given on this axis. */
  readonly given: number;
  /** Intervals of such positions; empty where there are none. */
  readonly intervals: readonly (readonly [number, number])[];
}

/** Beyond 2^21 a measured frequency is not exact enough to count whole turns. */
const FARTHEST = 2 ** 21;

/**
 * Finds, for each unit, the positions that explain its angles on one axis.
 *
 * @param frequency - of each pair, signed, in radians a position
 * @param error - of each frequency
 * @param pairs - those that this axis rotates
 * @param slack - relative error of an angle that was computed in f32; 0 for exact angles
 */
export function findPositions(
  turns: Turns,
  frequency: ArrayLike<number>,
  error: ArrayLike<number>,
  pairs: readonly number[],
  axis: number,
  slack: number,
): FoundPosition[] {
  return turns.units.map((unit, u) => {
    const given = unit.positions[axis] ?? 0;
    const reach = Math.max(FARTHEST, 4 * Math.abs(given));
    const samples = pairs.flatMap((j): AngleAt[] => {
      const at = u * turns.pairs + j;
      const tolerance = turns.tolerance[at]! + error[j]! * Math.abs(given) + slack * Math.abs(frequency[j]! * given);
      return frequency[j] === 0 || !(tolerance < 1) ? [] : [{ at: frequency[j]!, angle: turns.angle[at]!, tolerance }];
    });
    if (samples.length === 0) return { unit, given, intervals: [[-reach, reach]] };
    const { intervals, against } = solveSlope(samples, -reach, reach);
    // A few odd pairs do not make the position of a token unknown.
    return { unit, given, intervals: against.length > samples.length / 8 ? [] : intervals };
  });
}

/** A rule from the given position to the one that the kernel uses. */
export interface PositionRule {
  /** The position that the kernel uses, in words. */
  readonly words: string;
  /** Whether that is the given position. */
  readonly asGiven: boolean;
  readonly map: (given: number, unit: TurnUnit) => number;
}

/** The rules that fit every found position, of the first group in which any does: as given, shifted, rounded, …. */
export function explainPositions(
  found: readonly FoundPosition[],
  sizes: { seq: number; heads: number },
): PositionRule[] {
  if (found.length === 0) return [];
  const fits = ({ map }: PositionRule): boolean =>
    found.every(({ unit, given, intervals }) => {
      const p = map(given, unit);
      return intervals.some(
        ([low, high]) => p >= low - 1e-6 * Math.abs(p) - 1e-9 && p <= high + 1e-6 * Math.abs(p) + 1e-9,
      );
    });
  for (const group of ruleGroups(found, sizes)) {
    const fitting = group.filter(fits);
    if (fitting.length > 0) return fitting;
  }
  return [];
}

function ruleGroups(found: readonly FoundPosition[], { seq, heads }: { seq: number; heads: number }): PositionRule[][] {
  const rule = (words: string, map: PositionRule['map'], asGiven = false): PositionRule => ({ words, map, asGiven });
  const groups = [[rule('the position as given', (p) => p, true)]];
  groups.push(shifts(found).map((d) => rule(`the position ${d > 0 ? '+' : '−'} ${Math.abs(d)}`, (p) => p + d)));
  groups.push([
    rule('the position rounded to bf16', (p) => roundTo('bf16', p)),
    rule('the position rounded to f16', (p) => roundTo('f16', p)),
    rule('the position wrapped to int16', (p) => (p << 16) >> 16),
    rule('the position wrapped to uint16', (p) => p & 0xffff),
    rule('the position wrapped to int8', (p) => (p << 24) >> 24),
    rule('the position wrapped to uint8', (p) => p & 0xff),
  ]);
  groups.push([
    rule('the index of the token in its sequence', (_what, u) => u.seq),
    rule('the index of the token in its sequence + 1', (_what, u) => u.seq + 1),
    rule('the index of the token counted on through the batch', (_what, u) => u.batch * seq + u.seq),
    rule('the index of the batch', (_what, u) => u.batch),
  ]);
  groups.push([
    rule('the index of the head', (_what, u) => u.head ?? Number.NaN),
    rule('the position + the index of the head', (p, u) => p + (u.head ?? Number.NaN)),
    rule('the position + the index of the batch', (p, u) => p + u.batch),
    rule(
      'the index of the row, heads counted as tokens',
      (_what, u) => (u.batch * seq + u.seq) * heads + (u.head ?? Number.NaN),
    ),
  ]);
  groups.push(ends(found).map((end) => rule(`the position, but at most ${end}`, (p) => Math.min(p, end))));
  groups.push(wraps(found).map((n) => rule(`the position modulo ${n}`, (p) => ((p % n) + n) % n)));
  groups.push(wholeIn(sharpest(found)?.intervals ?? []).map((c) => rule(`${c} for every token`, () => c)));
  return groups;
}

/** Integer shifts that the token with the narrowest intervals allows. */
function shifts(found: readonly FoundPosition[]): number[] {
  const sharp = sharpest(found);
  if (!sharp) return [];
  return wholeIn(sharp.intervals)
    .map((p) => p - sharp.given)
    .filter((d) => d !== 0)
    .sort((a, b) => Math.abs(a) - Math.abs(b));
}

/** Last rows of a table that is too short: every larger position uses the last row. */
function ends(found: readonly FoundPosition[]): number[] {
  const largest = found.reduce((a, b) => (b.given > a.given ? b : a));
  return wholeIn(largest.intervals).filter((p) => p < largest.given);
}

function wraps(found: readonly FoundPosition[]): number[] {
  const largest = found.reduce((a, b) => (b.given > a.given ? b : a));
  const sizes = new Set<number>();
  for (const p of wholeIn(largest.intervals)) {
    const whole = largest.given - p; // a multiple of the size
    if (p < 0 || whole <= 0) continue;
    for (let times = 1; times <= 1024 && whole / times > p; times++) if (whole % times === 0) sizes.add(whole / times);
  }
  return [...sizes];
}

function sharpest(found: readonly FoundPosition[]): FoundPosition | undefined {
  const width = ({ intervals }: FoundPosition): number => intervals.reduce((sum, [low, high]) => sum + high - low, 0);
  const known = found.filter(({ intervals }) => intervals.length > 0);
  return known.length === 0 ? undefined : known.reduce((a, b) => (width(b) < width(a) ? b : a));
}

function wholeIn(intervals: FoundPosition['intervals']): number[] {
  const list: number[] = [];
  for (const [low, high] of intervals) {
    for (let p = Math.ceil(low - 1e-6); p <= high + 1e-6 && list.length < 512; p++) list.push(p);
  }
  return list;
}
