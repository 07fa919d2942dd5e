/**
 * Keys of one cache beside those of another: which key each was, by how many positions it was turned, at which magnitude,
 * and what is left. A key is recognised by its values alone: what leaves more than a seventh of its length is another key. @module
 */
import { type FloatDtype, frequenciesOf, type RopeSpec } from 'ropewalk';
import { UNIT_ROUNDOFF } from 'ropewalk/internal';
import { gridOf } from '../measure/quantised.js';
import { wrap } from '../measure/slope.js';

/** Keys, or values, of one layer: `[tokens, heads, head_dim]`. */
export interface CacheSide {
  readonly data: Float64Array;
  readonly tokens: number;
  readonly heads: number;
  readonly headDim: number;
  readonly dtype: FloatDtype;
}

/** Neighbouring tokens of the second cache that came from neighbours of the first in one way. */
export interface KeyRun {
  /** The first of them, and how many there are. */
  readonly at: number;
  readonly count: number;
  /** The token of the first cache that the first of them was; undefined for keys that it does not have. */
  readonly from: number | undefined;
  /** The positions by which the first of them was turned, and how many more each next one. */
  readonly turned: number;
  readonly step: number;
  /** The factor of the length. */
  readonly gain: number;
  /** The largest relative error of a key. */
  readonly error: number;
  /** The grid that explains the error, such as that of int8. */
  readonly grid: string | undefined;
}

/** A larger part of a key that is not explained means another key. */
const MOST_ERROR = 0.15;
/** Without a RoPE, a key that was turned by a few positions is near to itself. */
const MOST_UNTURNED = 0.1;
/** A key that is so near is taken without a look at others. */
const CLOSE = 0.02;
/** The most keys of about the same length that are tried for one. */
const MOST_TRIED = 16;

/** One key's way into another. */
type Turn = { readonly from: number } & Pick<KeyRun, 'turned' | 'gain' | 'error'>;

/** @param rope - the RoPE of the keys; without it only keys that were not turned are recognised */
export function keyRuns(a: CacheSide, b: CacheSide, rope?: RopeSpec): KeyRun[] {
  const pairs = rope ? pairsOf(rope) : [];
  const size = a.heads * a.headDim;
  const rowOf = ({ data }: CacheSide, token: number): Float64Array => data.subarray(token * size, (token + 1) * size);
  const alike = alikeIn(
    Array.from({ length: a.tokens }, (_, token) => lengthOf(rowOf(a, token))),
    rope,
  );
  const turns: (Turn | undefined)[] = [];
  for (let token = 0; token < b.tokens; token++) {
    const key = rowOf(b, token);
    const last = turns.at(-1);
    const tried = new Set<number>();
    let best: Turn | undefined;
    const attempt = (from: number, most = rope ? MOST_ERROR : MOST_UNTURNED): void => {
      if (from >= a.tokens || tried.has(from) || (best && best.error <= CLOSE)) return;
      tried.add(from);
      if (isEqual(rowOf(a, from), key)) {
        best = { from, turned: 0, gain: 1, error: 0 }; // also where both have NaN
        return;
      }
      const turn = { from, ...turnOf(rowOf(a, from), key, a.headDim, pairs, last?.turned) };
      if (turn.error <= most && (!best || turn.error < 0.7 * best.error)) best = turn;
    };
    attempt(last ? last.from + 1 : token);
    attempt(token);
    // Keys of other tokens are alike by chance: two neighbours are not, nor is a key that is close.
    const nextToo = (from: number): boolean =>
      from + 1 < a.tokens &&
      token + 1 < b.tokens &&
      turnOf(rowOf(a, from + 1), rowOf(b, token + 1), a.headDim, pairs).error <= MOST_ERROR;
    if (!best || best.error > CLOSE)
      for (const from of alike(lengthOf(key), last?.gain)) attempt(from, nextToo(from) ? undefined : CLOSE);
    turns.push(best);
  }
  return joined(turns, b.dtype).map((run) => ({ ...run, grid: gridOfRun(run, a, b, pairs) }));
}

const isEqual = (a: Float64Array, b: Float64Array): boolean => a.every((value, n) => Object.is(value, b[n]));

/** Finds the tokens whose keys have about a length, nearest first; a magnitude that was applied again, and the gain of the key before, are allowed for. */
function alikeIn(lengths: readonly number[], rope?: RopeSpec): (long: number, before?: number) => number[] {
  const magnitude = rope ? frequenciesOf(rope).attentionFactor : 1;
  const byLength = [...lengths.keys()].sort((p, q) => lengths[p]! - lengths[q]!);
  return (long, before = 1) => {
    const off = new Map<number, number>();
    for (const gain of new Set([1, magnitude, 1 / magnitude, before])) {
      let [low, high] = [0, byLength.length];
      while (low < high) {
        const middle = (low + high) >> 1;
        if (lengths[byLength[middle]!]! * gain < long) low = middle + 1;
        else high = middle;
      }
      for (const token of byLength.slice(Math.max(0, low - MOST_TRIED), low + MOST_TRIED)) {
        const own = Math.abs(lengths[token]! * gain - long);
        if (own <= 0.05 * long) off.set(token, Math.min(own, off.get(token) ?? own));
      }
    }
    return [...off.keys()].sort((p, q) => off.get(p)! - off.get(q)!).slice(0, MOST_TRIED);
  };
}

/** A rotated pair of a head. */
type Pair = readonly [i: number, k: number, frequency: number];

/** The pairs in the order of their frequencies, the slowest first. */
function pairsOf(spec: RopeSpec): Pair[] {
  const { headDim, rotaryDim = headDim, rotaryOffset = 0, pairing } = spec;
  const [step, apart] = pairing === 'interleaved' ? [2, 1] : [1, rotaryDim / 2];
  return Array.from(frequenciesOf(spec).invFreq, (frequency, j): Pair => {
    const first = rotaryOffset + step * j;
    return [first, first + apart, frequency];
  }).sort((p, q) => Math.abs(p[2]) - Math.abs(q[2]));
}

/** The turn, and what of the key it does not explain. */
function turnOf(a: Float64Array, b: Float64Array, headDim: number, pairs: readonly Pair[], like?: number) {
  // Sums over the heads: conj(a)·b, |a|² and |b|² of each pair.
  const sums = pairs.map(([i, k, frequency]) => {
    let [re, im, from, to] = [0, 0, 0, 0];
    for (let at = 0; at < a.length; at += headDim) {
      const [a0, a1, b0, b1] = [a[at + i]!, a[at + k]!, b[at + i]!, b[at + k]!];
      re += a0 * b0 + a1 * b1;
      im += a0 * b1 - a1 * b0;
      from += a0 * a0 + a1 * a1;
      to += b0 * b0 + b1 * b1;
    }
    return { frequency, re, im, from, to };
  });
  const inPairs = new Set([...pairs.map(([i]) => i), ...pairs.map(([, k]) => k)]);
  let [beside, all] = [0, 0];
  for (const [n, value] of b.entries()) {
    all += value * value;
    if (!inPairs.has(n % headDim)) beside += (value - a[n]!) ** 2;
  }
  const power = sums.reduce((sum, { from }) => sum + from, 0);
  const judge = (turned: number): Omit<Turn, 'from'> => {
    const along = sums.map(
      ({ frequency, re, im }) => re * Math.cos(turned * frequency) + im * Math.sin(turned * frequency),
    );
    const gain = power > 0 ? along.reduce((sum, one) => sum + one, 0) / power : 1;
    const left = sums.reduce((sum, { from, to }, n) => sum + to - 2 * gain * along[n]! + gain * gain * from, beside);
    return { turned, gain, error: gain > 0 ? Math.sqrt(Math.max(0, left) / all) : Infinity };
  };
  // An empty place in a cache is like no other key.
  if (all === 0) return { turned: 0, gain: 1, error: a.every((value) => value === 0) ? 0 : Infinity };
  if (pairs.length === 0) return { turned: 0, gain: 1, error: Math.sqrt(beside / all) };
  const whole = Math.round(estimate(sums));
  const tries = new Set([0, like ?? 0, whole, whole - 1, whole + 1]);
  return [...tries].map(judge).reduce((p, q) => (q.error < 0.7 * p.error ? q : p));
}

/** The turn in positions: the slow pairs say about how far, the fast ones exactly. */
function estimate(sums: readonly { frequency: number; re: number; im: number; from: number }[]): number {
  let [turned, variance] = [0, Infinity];
  for (const { frequency, re, im, from } of sums) {
    if (!(from > 0) || frequency === 0) continue;
    const off = Math.atan2(im, re) - turned * frequency;
    const error = wrap(off) / frequency;
    const own = 1 / (from * frequency * frequency);
    const share = variance === Infinity ? 1 : variance / (variance + own);
    turned += share * error;
    variance = variance === Infinity ? own : variance * (1 - share);
  }
  return turned;
}

/** Joins neighbours that came in one way. */
function joined(turns: readonly (Turn | undefined)[], dtype: FloatDtype): Omit<KeyRun, 'grid'>[] {
  const runs: Omit<KeyRun, 'grid'>[] = [];
  // A gain within the error is 1.
  const gainOf = ({ gain, error }: Turn): number =>
    Math.abs(gain - 1) > Math.max(error, 4 * UNIT_ROUNDOFF[dtype]) ? gain : 1;
  const follows = (at: number, step: number): boolean => {
    const [one, next] = [turns[at], turns[at + 1]];
    if (!one || !next) return at + 1 < turns.length && one === next;
    const isNext = next.from === one.from + 1 && Math.abs(next.turned - one.turned - step) < 0.01;
    return isNext && Math.abs(gainOf(next) - gainOf(one)) < 2e-3;
  };
  for (let at = 0; at < turns.length; ) {
    const one = turns[at];
    // Three tokens show that each is turned further than the one before.
    const further = Math.round(((turns[at + 1]?.turned ?? 0) - (one?.turned ?? 0)) * 100) / 100;
    const step = one && follows(at, further) && follows(at + 1, further) ? further : 0;
    let end = at;
    while (follows(end, step)) end++;
    const error = turns.slice(at, end + 1).reduce((most, turn) => Math.max(most, turn?.error ?? 0), 0);
    const [from, turned, gain] = one ? [one.from, one.turned, gainOf(one)] : [undefined, 0, 1];
    runs.push({ at, count: end + 1 - at, from, turned, step, gain, error });
    at = end + 1;
  }
  return runs;
}

/** The grid to which the keys of a run were rounded. */
function gridOfRun(run: Omit<KeyRun, 'grid'>, a: CacheSide, b: CacheSide, pairs: readonly Pair[]): string | undefined {
  const { at, count, from, turned, step, gain, error } = run;
  if (from === undefined || error <= 4 * UNIT_ROUNDOFF[b.dtype]) return undefined;
  const { headDim, heads, dtype } = b;
  const y = b.data.subarray(at * heads * headDim, (at + count) * heads * headDim);
  return gridOf({
    y,
    headDim,
    dtype,
    fill(row, made, noise) {
      made.set(a.data.subarray((from * heads + row) * headDim, (from * heads + row + 1) * headDim));
      const size = made.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
      noise.fill(4 * (UNIT_ROUNDOFF[a.dtype] + UNIT_ROUNDOFF[b.dtype]) * gain * size);
      for (const [i, k, frequency] of pairs) {
        const [x0, x1] = [made[i]! * gain, made[k]! * gain];
        const angle = (turned + step * Math.floor(row / heads)) * frequency;
        const [cos, sin] = [Math.cos(angle), Math.sin(angle)];
        made[i] = x0 * cos - x1 * sin;
        made[k] = x0 * sin + x1 * cos;
      }
    },
  });
}

const lengthOf = (row: Float64Array): number => Math.sqrt(row.reduce((sum, value) => sum + value * value, 0));
