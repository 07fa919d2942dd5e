/** The position by which each token was really rotated, and the rule from given to real positions. @module */
import { roundTo } from 'ropewalk';
import { groupBy } from 'ropewalk/internal';
import type { Heads } from '../read/observation.js';
import { type AngleAt, solveSlope } from './slope.js';
import type { Turns, TurnUnit } from './turns.js';

/** A token, or one head of it, and the positions that explain its angles. */
export interface FoundPosition {
  readonly unit: TurnUnit;
  /** The position that it was given on this axis. */
  readonly given: number;
  /** The intervals of positions that explain its angles; empty where none does. */
  readonly intervals: readonly (readonly [number, number])[];
}

/** Beyond 2^21 a measured frequency is not exact enough to count whole turns. */
const FARTHEST = 2 ** 21;

/** The frequencies by which positions are found. */
export interface Frequencies {
  /** The signed frequency of each pair, in radians a position. */
  readonly frequency: ArrayLike<number>;
  /** The error of each frequency. */
  readonly error: ArrayLike<number>;
  /** The relative error of an angle that was computed in f32; 0 for exact angles. */
  readonly slack: number;
}

/**
 * Finds the positions by which the units were rotated on one axis, and the rules that give them.
 *
 * @param pairs - the pairs that this axis rotates. Default: all.
 */
export function findRules(
  turns: Turns,
  grid: Grid,
  frequencies: Frequencies,
  pairs: readonly number[] = Array.from({ length: turns.pairs }, (_, j) => j),
  axis = 0,
): { rules: PositionRule[]; found: FoundPosition[] } {
  const found = findPositions(turns, frequencies, pairs, axis);
  return { rules: explainPositions(found, grid, axis), found };
}

/** Finds, for each unit, the positions that explain its angles on one axis. */
export function findPositions(
  turns: Pick<Turns, 'units' | 'pairs' | 'angle' | 'tolerance'>,
  { frequency, error, slack }: Frequencies,
  pairs: readonly number[],
  axis: number,
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
    // The slowest pair is tried first. Beyond this it leaves too many positions.
    const slowest = samples.reduce((least, { at }) => Math.min(least, Math.abs(at)), Infinity);
    const reach = Math.min(farthest, (4000 * Math.PI) / slowest);
    const within = (low: number, high: number): FoundPosition['intervals'] => {
      const { intervals, against } = solveSlope(samples, [[low, high]]);
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

/** A rule from the given position to the position that the kernel uses. */
export interface PositionRule {
  /** The position that the kernel uses, in words. */
  readonly words: string;
  readonly asGiven: boolean;
  /** Returns undefined for tokens of which the rule says nothing. */
  readonly map: (given: number, unit: TurnUnit) => number | undefined;
}

/** The sizes of an observation, and its positions `[axes, batch, seq]`. */
export type Grid = Pick<Heads, 'batch' | 'seq' | 'heads' | 'positions' | 'ownPositions'>;

const MAX_RULES = 6;

/**
 * The rules that fit every found position. The position as given is tried first, then rules without a parameter and the
 * nearest shifts, and then rules with a parameter that the data gives, such as the end of a table.
 */
function explainPositions(found: readonly FoundPosition[], grid: Grid, axis: number): PositionRule[] {
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

/** Whether a rule moves more than one position. */
export function moves(found: readonly FoundPosition[], map: PositionRule['map']): boolean {
  return new Set(found.flatMap(({ given, unit }) => (map(given, unit) === given ? [] : [given]))).size > 1;
}

function ruleGroups(found: readonly FoundPosition[], grid: Grid, axis: number): PositionRule[][] {
  const sharp = sharpest(found);
  const constants = wholeIn(sharp?.intervals ?? []);
  return [
    [AS_GIVEN],
    [...shifts(found).slice(0, 2).map(shiftedBy), ...ROUNDED, ...indices(grid), ...otherTokens(found, grid, axis)],
    // One token alone, or positions that a number divides, show no such rule.
    [
      ...ends(found)
        .map((end) => rule(`the position, but at most ${end}`, (p) => Math.min(p, end)))
        .filter(({ map }) => moves(found, map)),
      ...wraps(found)
        .map((n) => rule(`the position modulo ${n}`, (p) => ((p % n) + n) % n))
        .filter(({ map }) => moves(found, map)),
      ...[rule('the square of the position', (p) => p * p)].filter(({ map }) => moves(found, map)),
      ...divisors(found)
        .filter((n) => found.some(({ given }) => given % n !== 0))
        .map((n) => rule(`the position ÷ ${n}, rounded down`, (p) => Math.floor(p / n))),
      ...lines(found).map(([a, b]) => rule(`${a} times the position${signed(b)}`, (p) => a * p + b)),
      ...batchShifts(found),
      ...constants.map((c) => rule(`${c} for every token`, () => c)),
      ...constants
        .map((c) => c - sharp!.unit.seq)
        .filter((from) => from > 1)
        .map((from) => rule(`the index of the token on the sequence axis + ${from}`, (_, u) => u.seq + from)),
    ],
  ];
}

const rule = (words: string, map: PositionRule['map']): PositionRule => ({ words, map, asGiven: false });

/** The rule of positions that are all moved by a number. */
export const shiftedBy = (d: number): PositionRule => rule(`the position${signed(d)}`, (p) => p + d);

/** A position in an integer type that may be too small for it. */
const IN_TYPE: Readonly<Record<string, (p: number) => number>> = {
  int16: (p) => (p << 16) >> 16,
  uint16: (p) => p & 0xffff,
  int8: (p) => (p << 24) >> 24,
  uint8: (p) => p & 0xff,
};
export const WRAPPED = Object.values(IN_TYPE);

export const ROUNDED: readonly PositionRule[] = [
  rule('the position rounded to bf16', (p) => roundTo('bf16', p)),
  rule('the position rounded to f16', (p) => roundTo('f16', p)),
  ...Object.entries(IN_TYPE).map(([type, map]) => rule(`the position wrapped to ${type}`, map)),
  rule('0 for every token', () => 0),
];

function indices({ seq, heads }: Grid): PositionRule[] {
  const head = (u: TurnUnit): number => u.head ?? Number.NaN;
  return [
    rule('the index of the token on the sequence axis', (_, u) => u.seq),
    rule('the index of the token on the sequence axis + 1', (_, u) => u.seq + 1),
    rule('the index of the token counted on through the batch', (_, u) => u.batch * seq + u.seq),
    rule('the index of the batch', (_, u) => u.batch),
    rule('the index of the head', (_, u) => head(u)),
    rule('the position + the index of the head', (p, u) => p + head(u)),
    rule('the position + the index of the batch', (p, u) => p + u.batch),
    rule('the position + the index of the batch × the length of the sequence', (p, u) => p + u.batch * seq),
    rule('the index of the row, heads counted as tokens', (_, u) => (u.batch * seq + u.seq) * heads + head(u)),
  ];
}

/** Positions that were given to other tokens, or read from other places of the array. */
function otherTokens(
  found: readonly FoundPosition[],
  { batch, seq, positions, ownPositions }: Grid,
  axis: number,
): PositionRule[] {
  const of = (b: number, s: number): number | undefined =>
    s >= 0 && s < seq && b >= 0 && b < batch ? positions[(axis * batch + b) * seq + s] : undefined;
  const largest = Array.from({ length: batch }, (_, b) =>
    positions.subarray((axis * batch + b) * seq, (axis * batch + b + 1) * seq).reduce((p, q) => Math.max(p, q)),
  );
  const batches = Array.from({ length: batch }, (_, b) => b);
  // Where all batches have the same positions, the sum is a multiple of them, which another rule says.
  const alike = batches.every((b) => found.every(({ unit }) => of(b, unit.seq) === of(0, unit.seq)));
  const sumAt = (s: number): number => batches.reduce((sum, b) => sum + of(b, s)!, 0);
  const place = ({ batch: b, seq: s }: TurnUnit): number => (ownPositions ? b : 0) * seq + s;
  const at = (n: number): number | undefined => of(Math.floor(n / seq), n % seq);
  return [
    rule('the position of the first token of the sequence', (_, u) => of(u.batch, 0)),
    rule('the position of the last token of the sequence', (_, u) => of(u.batch, seq - 1)),
    rule('the largest position of the sequence', (_, u) => largest[u.batch]),
    rule('the position of the next token', (_, u) => of(u.batch, u.seq + 1)),
    rule('the position of the token before', (_, u) => of(u.batch, u.seq - 1)),
    rule('the positions of the sequence in reverse order', (_, u) => of(u.batch, seq - 1 - u.seq)),
    rule('the position of the same token in batch 0', (_, u) => of(0, u.seq)),
    ...(alike ? [] : [rule('the sum of the positions of the same token in all batches', (_, u) => sumAt(u.seq))]),
    rule('the position of the same token in the next batch', (_, u) => of((u.batch + 1) % batch, u.seq)),
    rule('[batch, seq] positions read as [seq, batch]', (_, u) => at(u.seq * batch + u.batch)),
    // The array is read as low word, high word, low word, …
    rule('int64 positions read as int32: every second one is the high half of the one before', (_, u) => {
      const p = at(Math.floor(place(u) / 2));
      return p === undefined || place(u) % 2 === 0 ? p : Math.floor(p / 2 ** 32);
    }),
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

/** With more batches the sentence is too long. */
const MOST_BATCHES = 8;

/** A shift for each batch, where the tokens of each, three or more, allow one alone. */
function batchShifts(found: readonly FoundPosition[]): PositionRule[] {
  const batches = groupBy(found, ({ unit }) => unit.batch);
  if (batches.size < 2 || batches.size > MOST_BATCHES) return [];
  const shiftOf = new Map<number, number>();
  for (const [batch, of] of batches) {
    const sharp = sharpest(of);
    const whole = wholeIn(sharp?.intervals ?? []);
    if (!sharp || whole.length !== 1 || new Set(of.map(({ unit }) => unit.seq)).size < 3) return [];
    shiftOf.set(batch, whole[0]! - sharp.given);
  }
  const words = Array.from(shiftOf, ([batch, d]) => `${d === 0 ? 'as given' : signed(d).trim()} in batch ${batch}`);
  return [
    rule(`the position ${words.join(', ')}`, (p, u) => {
      const by = shiftOf.get(u.batch);
      return by === undefined ? undefined : p + by;
    }),
  ];
}

/** The last rows of a table that is too short: every larger position uses the last row. */
function ends(found: readonly FoundPosition[]): number[] {
  const { given, intervals } = farthest(found);
  return wholeIn(intervals).filter((p) => p < given);
}

/** The sizes of a table that starts again after its end. */
function wraps(found: readonly FoundPosition[]): number[] {
  const { given, intervals } = farthest(found);
  const sizes = new Set<number>();
  for (const p of wholeIn(intervals)) {
    const whole = given - p; // a multiple of the size
    if (p < 0 || whole <= 0) continue;
    for (let times = 1; times <= 1024 && whole / times > p; times++) if (whole % times === 0) sizes.add(whole / times);
  }
  return [...sizes];
}

/** Divisors of the position that the token with the largest one allows. */
function divisors(found: readonly FoundPosition[]): number[] {
  const { given, intervals } = farthest(found);
  const list: number[] = [];
  for (const q of wholeIn(intervals)) {
    if (q <= 0) continue;
    for (let n = Math.max(2, Math.floor(given / (q + 1))); n <= given / q && list.length < 512; n++) list.push(n);
  }
  return list;
}

/** Factors and shifts of the position, of whole numbers, that the tokens with the least and the largest one allow. */
function lines(found: readonly FoundPosition[]): [factor: number, shift: number][] {
  const [last, first] = [farthest(found), found.reduce((a, b) => (b.given < a.given ? b : a))];
  // Two positions are on a line, whatever they are.
  if (!found.some(({ given }) => given > first.given && given < last.given)) return [];
  const list: [number, number][] = [];
  for (const p of wholeIn(first.intervals)) {
    for (const q of wholeIn(last.intervals)) {
      const factor = (q - p) / (last.given - first.given);
      const shift = p - factor * first.given;
      if (Number.isInteger(factor) && factor > 1 && shift !== 0 && list.length < 512) list.push([factor, shift]);
    }
  }
  return list;
}

/** A shift behind what is shifted. */
export const signed = (shift: number): string => ` ${shift > 0 ? '+' : '−'} ${Math.abs(shift)}`;

function farthest(found: readonly FoundPosition[]): FoundPosition {
  return found.reduce((a, b) => (b.given > a.given ? b : a));
}

function sharpest(found: readonly FoundPosition[]): FoundPosition | undefined {
  const width = ({ intervals }: FoundPosition): number => intervals.reduce((sum, [low, high]) => sum + high - low, 0);
  const known = found.filter(({ intervals }) => intervals.length > 0);
  return known.length === 0 ? undefined : known.reduce((a, b) => (width(b) < width(a) ? b : a));
}

/** The whole numbers in intervals, at most 512. */
export function wholeIn(intervals: FoundPosition['intervals']): number[] {
  const list: number[] = [];
  for (const [low, high] of intervals) {
    for (let p = Math.ceil(low - 1e-6); p <= high + 1e-6 && list.length < 512; p++) list.push(p);
  }
  return list;
}
