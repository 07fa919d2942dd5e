/** The position by which each token was really rotated, and the rule from given to real positions. @module */
import { roundTo } from 'ropewalk';
import type { Heads } from '../read/observation.js';
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
    const samples = pairs.flatMap((j): AngleAt[] => {
      const at = u * turns.pairs + j;
      const tolerance = turns.tolerance[at]! + error[j]! * Math.abs(given) + slack * Math.abs(frequency[j]! * given);
      return frequency[j] === 0 || !(tolerance < 1) ? [] : [{ at: frequency[j]!, angle: turns.angle[at]!, tolerance }];
    });
    const farthest = Math.max(FARTHEST, 4 * Math.abs(given));
    if (samples.length === 0) return { unit, given, intervals: [[-farthest, farthest]] };
    // The slowest pair comes first: beyond this it leaves too many positions to try.
    const slowest = samples.reduce((least, { at }) => Math.min(least, Math.abs(at)), Infinity);
    const reach = Math.min(farthest, (4000 * Math.PI) / slowest);
    const within = (low: number, high: number): FoundPosition['intervals'] => {
      const { intervals, against } = solveSlope(samples, low, high);
      // A few odd pairs do not make the position of a token unknown.
      return against.length > samples.length / 8 ? [] : intervals;
    };
    // The given position is tried, however far it is.
    const there = Math.abs(given) > reach ? within(given - reach / 2, given + reach / 2) : [];
    return { unit, given, intervals: [...within(-reach, reach), ...there] };
  });
}

/** The rule of a right kernel. */
export const AS_GIVEN: PositionRule = { words: 'the position as given', asGiven: true, map: (p) => p };

/** A rule from the given position to the one that the kernel uses. */
export interface PositionRule {
  /** The position that the kernel uses, in words. */
  readonly words: string;
  /** Whether that is the given position. */
  readonly asGiven: boolean;
  /** Undefined for tokens of which the rule says nothing. */
  readonly map: (given: number, unit: TurnUnit) => number | undefined;
}

/** Sizes of an observation, and its positions `[axes, batch, seq]`. */
export type Grid = Pick<Heads, 'batch' | 'seq' | 'heads' | 'positions' | 'ownPositions'>;

const MAX_RULES = 6;

/**
 * The rules that fit every found position: as given; else all without a number of their own, and the nearest shifts;
 * else those with a number that the data gives, such as a table's end.
 */
export function explainPositions(found: readonly FoundPosition[], grid: Grid, axis = 0): PositionRule[] {
  if (found.length === 0) return [];
  const fits = ({ map, asGiven }: PositionRule): boolean => {
    let said = 0;
    return (
      found.every(({ unit, given, intervals }) => {
        const p = map(given, unit);
        if (p === undefined) return true;
        if (!Number.isFinite(p)) return false;
        if (intervals.reduce((width, [low, high]) => width + high - low, 0) < 2) said++;
        return intervals.some(
          ([low, high]) => p >= low - 1e-6 * Math.abs(p) - 1e-9 && p <= high + 1e-6 * Math.abs(p) + 1e-9,
        );
      }) &&
      (asGiven || 2 * said > found.length)
    );
  };
  for (const group of ruleGroups(found, grid, axis)) {
    const fitting = group.filter(fits);
    if (fitting.length > 0) return fitting.slice(0, MAX_RULES);
  }
  return [];
}

function ruleGroups(found: readonly FoundPosition[], grid: Grid, axis: number): PositionRule[][] {
  const rule = (words: string, map: PositionRule['map']): PositionRule => ({ words, map, asGiven: false });
  return [
    [AS_GIVEN],
    [
      ...shifts(found)
        .slice(0, 2)
        .map((d) => rule(`the position ${d > 0 ? '+' : '−'} ${Math.abs(d)}`, (p) => p + d)),
      ...rounded().map(([words, map]) => rule(words, map)),
      ...indices(grid).map(([words, map]) => rule(words, map)),
      ...otherTokens(grid, axis).map(([words, map]) => rule(words, map)),
    ],
    [
      ...ends(found).map((end) => rule(`the position, but at most ${end}`, (p) => Math.min(p, end))),
      ...wraps(found).map((n) => rule(`the position modulo ${n}`, (p) => ((p % n) + n) % n)),
      ...divisors(found).map((n) => rule(`the position ÷ ${n}, rounded down`, (p) => Math.floor(p / n))),
      ...wholeIn(sharpest(found)?.intervals ?? []).map((c) => rule(`${c} for every token`, () => c)),
    ],
  ];
}

type Named = [words: string, map: PositionRule['map']];

function rounded(): Named[] {
  return [
    ['the position rounded to bf16', (p) => roundTo('bf16', p)],
    ['the position rounded to f16', (p) => roundTo('f16', p)],
    ['the position wrapped to int16', (p) => (p << 16) >> 16],
    ['the position wrapped to uint16', (p) => p & 0xffff],
    ['the position wrapped to int8', (p) => (p << 24) >> 24],
    ['the position wrapped to uint8', (p) => p & 0xff],
    ['0 for every token', () => 0],
  ];
}

function indices({ seq, heads }: Grid): Named[] {
  return [
    ['the index of the token in its sequence', (_what, u) => u.seq],
    ['the index of the token in its sequence + 1', (_what, u) => u.seq + 1],
    ['the index of the token counted on through the batch', (_what, u) => u.batch * seq + u.seq],
    ['the index of the batch', (_what, u) => u.batch],
    ['the index of the head', (_what, u) => u.head ?? Number.NaN],
    ['the position + the index of the head', (p, u) => p + (u.head ?? Number.NaN)],
    ['the position + the index of the batch', (p, u) => p + u.batch],
    ['the position + the index of the batch × the length of the sequence', (p, u) => p + u.batch * seq],
    [
      'the index of the row, heads counted as tokens',
      (_what, u) => (u.batch * seq + u.seq) * heads + (u.head ?? Number.NaN),
    ],
  ];
}

/** Positions that were given to other tokens, or read from other places of the array. */
function otherTokens({ batch, seq, positions, ownPositions }: Grid, axis: number): Named[] {
  const of = (b: number, s: number): number | undefined =>
    s >= 0 && s < seq && b >= 0 && b < batch ? positions[(axis * batch + b) * seq + s] : undefined;
  const row = (b: number): number[] => Array.from({ length: seq }, (_what, s) => of(b, s)!);
  const once = <T>(make: (b: number) => T): ((b: number) => T) => {
    const kept = new Map<number, T>();
    return (b) => {
      if (!kept.has(b)) kept.set(b, make(b));
      return kept.get(b)!;
    };
  };
  const largest = once((b) => row(b).reduce((p, q) => Math.max(p, q)));
  const place = ({ batch: b, seq: s }: TurnUnit): number => (ownPositions ? b : 0) * seq + s;
  const at = (n: number): number | undefined => of(Math.floor(n / seq), n % seq);
  return [
    ['the position of the first token of the sequence', (_what, u) => of(u.batch, 0)],
    ['the position of the last token of the sequence', (_what, u) => of(u.batch, seq - 1)],
    ['the largest position of the sequence', (_what, u) => largest(u.batch)],
    ['the position of the next token', (_what, u) => of(u.batch, u.seq + 1)],
    ['the position of the token before', (_what, u) => of(u.batch, u.seq - 1)],
    ['the positions of the sequence in reverse order', (_what, u) => of(u.batch, seq - 1 - u.seq)],
    ['the position of the same token in batch 0', (_what, u) => of(0, u.seq)],
    ['the position of the same token in the next batch', (_what, u) => of((u.batch + 1) % batch, u.seq)],
    ['[batch, seq] positions read as [seq, batch]', (_what, u) => at(u.seq * batch + u.batch)],
    // Low word, high word, low word, …
    [
      'int64 positions read as int32: every second one is the high half of the one before',
      (_what, u) => {
        const p = at(Math.floor(place(u) / 2));
        return p === undefined || place(u) % 2 === 0 ? p : Math.floor(p / 2 ** 32);
      },
    ],
  ];
}

/** Integer shifts that the token with the narrowest intervals allows. */
function shifts(found: readonly FoundPosition[]): number[] {
  const sharp = sharpest(found);
  if (!sharp) return [];
  return (
    wholeIn(sharp.intervals)
      .map((p) => p - sharp.given)
      // At negative positions forward looks like backward; but a kernel may count from −1.
      .filter((d) => d !== 0 && found.every(({ given }) => given < 0 || given + d >= -1))
      .sort((a, b) => Math.abs(a) - Math.abs(b))
  );
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

/** Divisors of the position that the token with the largest one allows. */
function divisors(found: readonly FoundPosition[]): number[] {
  const largest = found.reduce((a, b) => (b.given > a.given ? b : a));
  const list: number[] = [];
  for (const q of wholeIn(largest.intervals)) {
    if (q <= 0) continue;
    for (let n = Math.max(2, Math.floor(largest.given / (q + 1))); n <= largest.given / q && list.length < 512; n++)
      list.push(n);
  }
  return list;
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
