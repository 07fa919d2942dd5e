/**
 * The errors of pairs that rotate, where no rotation that was measured gives y: which pairs are off, by how much, in angle
 * or in length, and what the errors have in common. @module
 */
import { roundTo } from 'ropewalk';
import { groupBy, ranges } from 'ropewalk/internal';
import { LEAST_POSITIONS } from '../fit/majority.js';
import { angleNoise, storedNoise } from '../kernel/noise.js';
import type { RightRows } from '../kernel/right-rows.js';
import { sampleRows } from '../measure/sample.js';
import { monotone, type Point } from './of-right.js';

/** One pair of one row: y / x as a complex number, and its difference from the expected one. */
interface Sample {
  readonly pair: number;
  /** The expected angle, in radians. */
  readonly angle: number;
  readonly position: number;
  /** The cos and sin that were used: y / x over the magnitude. */
  readonly cos: number;
  readonly sin: number;
  readonly offCos: number;
  readonly offSin: number;
  /** How far rounding y may have moved it. */
  readonly noise: number;
}

/** The most samples that are kept. */
const MAX_SAMPLES = 2 ** 15;
/** Pairs with more noise than this, because x is nearly 0, show nothing. */
const LOUD = 0.25;
/** The number of samples that is enough to say what they have in common. */
const ENOUGH = 100;

/** Keys that were stored and turned again are rounded twice, and the second time from values that were off. */
const TWICE = 3;

/** Angles of which nothing more is known. */
export const UNSAID = 'not the expected ones';

/** The beginning of a sentence on noise. */
export const NEARLY = 'y is near the expected values';

/** Describes the errors in sentences; empty if they are too large to say anything. */
export function describePairErrors(right: RightRows): readonly string[] {
  const { heads, steps } = right;
  const { headDim, dtype, y, rows } = heads;
  const magnitude = Math.abs(steps.frequencies().attentionFactor);
  const every = Math.max(1, Math.ceil((rows.length * right.pairs) / MAX_SAMPLES));
  const pairs = Array.from({ length: right.pairs }, (_what, j) => ({ j, ...right.membersOf(j) }));
  const wrong = new Set<number>();
  const samples: Sample[] = [];
  let [largest, turned, count] = [0, 0, 0];
  let [lengthsKept, lengthsNear] = [true, true];
  /** The pairs that hold x in every row. */
  const still = new Set(pairs.map(({ j }) => j));
  for (const r of rows) {
    const x = right.input(r);
    const size = Math.max(1, magnitude) * x.reduce((most, v) => Math.max(most, Math.abs(v)), 0);
    const at = steps.placeOf(r);
    const angles = right.anglesOf(Math.floor(r / heads.heads));
    for (let i = 0; i < headDim; i++)
      if (right.pairOf[i]! < 0 && Math.abs(y[r * headDim + i]! - x[i]!) > storedNoise(dtype, x[i]!, 0)) return [];
    for (const { j, read, write } of pairs) {
      const [x0, x1] = [x[read[0]]!, x[read[1]]!];
      const [y0, y1] = [y[r * headDim + write[0]]!, y[r * headDim + write[1]]!];
      if (roundTo(dtype, x0) !== y0 || roundTo(dtype, x1) !== y1) still.delete(j);
      const length = Math.hypot(x0, x1) * magnitude;
      const noise = Math.hypot(storedNoise(dtype, y0, size), storedNoise(dtype, y1, size)) / length;
      if (!(noise < LOUD)) continue;
      const power = (x0 * x0 + x1 * x1) * magnitude;
      const [cos, sin] = [(x0 * y0 + x1 * y1) / power, (x0 * y1 - x1 * y0) / power];
      const [c, s] = [angles.cos[j]! / magnitude, angles.sin[j]! / magnitude];
      const off = Math.hypot(cos - c, sin - s);
      if (off > noise + angles.noise[j]! / magnitude) wrong.add(j);
      largest = Math.max(largest, off - noise);
      const turn = Math.abs(Math.atan2(sin * c - cos * s, cos * c + sin * s));
      turned = Math.max(turned, turn - noise);
      const longer = Math.abs(Math.hypot(cos, sin) - 1);
      if (longer > noise) lengthsKept = false;
      if (longer > TWICE * noise) lengthsNear = false;
      const position = steps.position(at, steps.axisOfPair(j));
      const angle = steps.sign * steps.angle(position, j);
      if (count++ % every === 0)
        samples.push({ pair: j, angle, position, cos, sin, offCos: cos - c, offSin: sin - s, noise });
    }
  }
  if (wrong.size === 0) return [];
  const factor = lengthsKept ? (commonFactor(samples) ?? wholeTurns(samples)) : undefined;
  if (factor) return [factor];
  const named = (some: readonly number[]): string => `${some.length > 1 ? 'pairs' : 'pair'} ${ranges(some)}`;
  const of = [...wrong].sort((a, b) => a - b);
  const others = pairs.flatMap(({ j }) => (wrong.has(j) ? [] : [j]));
  const rest = others.length > 0 ? `; those of ${named(others)} are right within the noise that is allowed for` : '';
  const fixed = lengthsNear ? fixedTurns(samples, wrong) : undefined;
  if (fixed) return [`${fixed}${rest}.`];
  const sentences: string[] = [];
  if (of.every((j) => still.has(j))) sentences.push(`x is not rotated in ${named(of)}${rest}.`);
  else if (lengthsKept) {
    const by = turned < 2.5 ? `off by up to ${upwards(turned)} radians` : UNSAID;
    sentences.push(`The lengths of pairs are right; the angles of ${named(of)} are ${by}${rest}.`);
  } else if (largest < 0.2) {
    sentences.push(`The results of ${named(of)} are off by up to ${upwards(largest)} of their length${rest}.`);
  }
  const turn = lengthsKept ? turnOf(samples) : undefined;
  if (turn) sentences.push(turn);
  // A pair with much larger errors does not rotate.
  if (!(largest < 0.2)) {
    const table = lengthsKept ? undefined : monotone(samples.flatMap(halvesOf));
    return table ? [`cos and sin are one function of the right ones, ${table.words}.`] : sentences;
  }
  const unit = unitOf(samples);
  if (unit !== undefined) sentences.push(`cos and sin are multiples of 1/${unit}.`);
  else if (alikeAtEqualAngles(samples))
    sentences.push('Equal angles have nearly equal errors, as with a table or a polynomial for cos and sin.');
  else sentences.push(...narrowFactors(right));
  return sentences;
}

/** Numbers that are taken for 2π where an angle is reduced. */
const TURNS = [6.28, 6.283, 6.2832, 6.28318, 6.2831, 44 / 7];

/** The number for 2π whose angles are off by a share of themselves between two bounds; undefined for none or several. */
function turnBetween(low: number, high: number): string | undefined {
  const [turn, other] = TURNS.filter((one) => {
    const share = 1 - one / (2 * Math.PI);
    return share >= low && share <= high;
  });
  return turn === undefined || other !== undefined ? undefined : String(Number(turn.toPrecision(7)));
}

/** Says which number the kernel takes for 2π, if the errors of the angles are one share of them; undefined if not. */
function turnOf(samples: readonly Sample[]): string | undefined {
  const errors = samples.map(({ angle, cos, sin, offCos, offSin }) => {
    const [c, s] = [cos - offCos, sin - offSin];
    return { angle, off: Math.atan2(sin * c - cos * s, cos * c + sin * s) };
  });
  const over = (of: (one: (typeof errors)[number]) => number): number => sum(errors.map(of));
  const share = over(({ angle, off }) => angle * off) / over(({ angle }) => angle ** 2);
  if (!(over(({ angle, off }) => (off - share * angle) ** 2) <= 0.01 * over(({ off }) => off ** 2))) return undefined;
  const turn = turnBetween(share - 0.05 * Math.abs(share), share + 0.05 * Math.abs(share));
  if (!turn) return undefined;
  return `The angles are off by ${Number(Math.abs(share).toPrecision(2))} of themselves, as where ${turn} is taken for 2π.`;
}

/** The cos and sin of a sample, to be held against the right ones. */
function halvesOf({ cos, sin, offCos, offSin, noise }: Sample): Point[] {
  return [
    { y: cos, loose: noise, made: cos - offCos, noise },
    { y: sin, loose: noise, made: sin - offSin, noise },
  ];
}

/** Says by which angle each of these pairs is turned further, if it is one angle in every token; undefined if not. */
function fixedTurns(samples: readonly Sample[], wrong: ReadonlySet<number>): string | undefined {
  const turns = [...groupBy(samples, ({ pair }) => pair)].flatMap(([pair, some]) => {
    const off = some.map(({ angle, position, cos, sin, offCos, offSin, noise }) => {
      const [c, s] = [cos - offCos, sin - offSin];
      return { x: cos * c + sin * s, y: sin * c - cos * s, slack: noise + angleNoise(angle, pair, position) };
    });
    const turn = Math.atan2(sum(off.map(({ y }) => y)), sum(off.map(({ x }) => x)));
    const isOne = off.every(({ x, y, slack }) => {
      const apart = Math.abs(Math.atan2(y, x) - turn);
      return Math.min(apart, 2 * Math.PI - apart) <= TWICE * slack;
    });
    const isSure = isOne && new Set(some.map(({ position }) => position)).size >= LEAST_POSITIONS;
    return wrong.has(pair) ? [{ pair, turn: isSure ? turn : Number.NaN }] : [];
  });
  if (turns.length < wrong.size || turns.some(({ turn }) => Number.isNaN(turn))) return undefined;
  const shown = turns.slice(0, 4).map(({ pair, turn }) => `pair ${pair} by ${Number(turn.toPrecision(3))}`);
  const more = turns.length > 4 ? ', …' : '';
  return `Each wrong pair is turned further by an angle of its own, the same in every token: ${shown.join(', ')}${more} radians`;
}

const sum = (list: readonly number[]): number => list.reduce((all, one) => all + one, 0);

/** The ways to count the whole turns that are taken off an angle. */
const COUNTS = [Math.round, Math.floor, Math.trunc];

/** Says which number the kernel takes for 2π, if each whole turn adds one error to the angle; undefined if not. */
function wholeTurns(samples: readonly Sample[]): string | undefined {
  const turn = 2 * Math.PI;
  for (const count of COUNTS) {
    const all = samples
      .map((one) => ({ ...one, turns: count(one.angle / turn) }))
      .sort((a, b) => Math.abs(a.turns) - Math.abs(b.turns));
    let [low, high, tested] = [-0.1, 0.1, 0];
    const fits = all.every(({ pair, angle, position, turns, cos, sin, offCos, offSin, noise }) => {
      const [c, s] = [cos - offCos, sin - offSin];
      const slack = noise + angleNoise(angle, pair, position);
      const middle = (low + high) / 2;
      // Near a boundary, the count depends on the number that is taken for 2π.
      const part = angle / turn - count(angle / turn);
      const edge = Math.min(
        ...(count === Math.round ? [Math.abs(0.5 - Math.abs(part))] : [Math.abs(part), 1 - Math.abs(part)]),
      );
      if (turn * edge <= Math.abs(middle * turns) + slack) return true;
      const off = Math.atan2(sin * c - cos * s, cos * c + sin * s);
      if (turns === 0) return Math.abs(off) <= slack;
      // So many turns that the error is known up to whole turns only: those that more turns follow say which.
      if (((high - low) / 2) * Math.abs(turns) + slack > 3) return true;
      const whole = off + turn * Math.round((middle * turns - off) / turn);
      const [a, b] = [(whole - slack) / turns, (whole + slack) / turns];
      low = Math.max(low, Math.min(a, b));
      high = Math.min(high, Math.max(a, b));
      tested++;
      return low <= high;
    });
    if (!fits || tested < ENOUGH || (low <= 0 && high >= 0)) continue;
    const [middle, bound] = [(low + high) / 2, (high - low) / 2];
    const digits = [3, 4, 5, 6, 7, 8, 9].find(
      (n) => Math.abs(Number((turn - middle).toPrecision(n)) - turn + middle) <= bound,
    );
    const taken = (turn - middle).toPrecision(digits ?? 10);
    return `Angles are off by ${Number(middle.toPrecision(3))} for each whole turn in them, as where ${Number(taken)} is taken for 2π.`;
  }
  return undefined;
}

/** The largest errors that may be rounding, as a share of the expected values; and what may be left of them on average. */
const [ROUGH, ONE_SIDED] = [0.25, 0.4];

/** Random errors look like a turn of a pair, in some batch or head, once in ten to the power of this. */
const RARE = 12;

/** Describes errors that are large and cancel over the rows, so that they turn and lengthen no pair; empty for others. */
export function describeNoise(right: RightRows): readonly string[] {
  const { heads, pairs } = right;
  // Nearly all y that come here are far from it.
  if (!(noiseIn(right, sampleRows(heads)).share <= ROUGH)) return [];
  const { share, mean, wrong, isCopied, isTurned } = noiseIn(right, heads.rows);
  if (!(share <= ROUGH && mean <= ONE_SIDED * share) || wrong < heads.rows.length * pairs || !isCopied) return [];
  if (isTurned) return [];
  return [
    `${NEARLY}: errors are ${upwards(share)} of them (root mean square). Over the rows of a pair they cancel to ${upwards(mean)}, as those of many roundings do, or of few bits.`,
  ];
}

/** The errors as shares of the expected values: their root mean square, and what is left of them over the rows of a pair. */
function noiseIn(right: RightRows, rows: readonly number[]) {
  const { seq, heads, headDim, y } = right.heads;
  const [made, noise] = [new Float64Array(headDim), new Float64Array(headDim)];
  const pairs = Array.from({ length: right.pairs }, (_, j) => right.membersOf(j));
  let [errors, power, wrong, isCopied] = [0, 0, 0, true];
  /** By pair: the errors along and across the expected values, the squares of these values, those of the errors. */
  const groups = new Map<string, { count: number; sums: Float64Array }>();
  for (const r of rows) {
    const token = Math.floor(r / heads);
    const own = ['all', `batch ${Math.floor(token / seq)}`, `head ${r % heads}`].map((key) => {
      const group = groups.get(key) ?? { count: 0, sums: new Float64Array(4 * pairs.length) };
      groups.set(key, group);
      group.count++;
      return group.sums;
    });
    right.fill(r, made, noise);
    for (let i = 0; i < headDim; i++) {
      if (Math.abs(y[r * headDim + i]! - made[i]!) <= noise[i]!) continue;
      if (right.pairOf[i]! < 0) isCopied = false;
      wrong++;
    }
    for (const [j, { write }] of pairs.entries()) {
      const [a, b] = write;
      const [offA, offB] = [y[r * headDim + a]! - made[a]!, y[r * headDim + b]! - made[b]!];
      const [right2, off2] = [made[a]! ** 2 + made[b]! ** 2, offA ** 2 + offB ** 2];
      const all = [offA * made[a]! + offB * made[b]!, offB * made[a]! - offA * made[b]!, right2, off2];
      for (const sums of own) for (let n = 0; n < 4; n++) sums[4 * j + n]! += all[n]!;
      power += right2;
      errors += off2;
    }
  }
  const sumsOf = ({ sums }: { readonly sums: Float64Array }, j: number) =>
    sums.subarray(4 * j, 4 * j + 4) as unknown as [along: number, across: number, right: number, off: number];
  // Errors that a turn or another length of a pair explains: of n random ones the share s is above it in (1 − s)^(n − 1).
  const isTurned = [...groups.values()].some((group) =>
    pairs.some((_, j) => {
      const [along, across, own, off] = sumsOf(group, j);
      return along ** 2 + across ** 2 > (1 - 10 ** (-RARE / (group.count - 1))) * own * off;
    }),
  );
  const all = groups.get('all');
  const mean = all ? pairs.reduce((sum, _, j) => sum + Math.hypot(...sumsOf(all, j).slice(0, 2)), 0) / power : 0;
  return { share: Math.sqrt(errors / power), mean, wrong, isCopied, isTurned };
}

/** Names the factors of products that have fewer bits, if that gives nearly all of an f32 y to its last bits. */
function narrowFactors(right: RightRows): string[] {
  const { heads, steps } = right;
  if (heads.dtype !== 'f32' || !steps.source) return [];
  const { headDim, y } = heads;
  const { invFreq, attentionFactor } = steps.frequencies();
  const rows = sampleRows(heads);
  const shareOf = (ofX: Round, ofTable: Round): number => {
    let [fit, all] = [0, 0];
    for (const r of rows) {
      const x = right.input(r);
      const at = steps.placeOf(r);
      for (let j = 0; j < right.pairs; j++) {
        const { read, write } = right.membersOf(j);
        // The angle is in f32, because an angle that is rounded otherwise may round cos to the next value.
        const angle = Math.fround(steps.position(at, steps.axisOfPair(j)) * Math.fround(invFreq[j]!));
        const c = ofTable(Math.cos(angle) * attentionFactor);
        const s = ofTable(Math.sin(angle) * attentionFactor) * steps.sign;
        const [x0, x1] = [ofX(x[read[0]]!), ofX(x[read[1]]!)];
        for (const [i, value] of [
          [write[0], x0 * c - x1 * s],
          [write[1], x0 * s + x1 * c],
        ] as const) {
          if (Math.abs(y[r * headDim + i]! - value) <= storedNoise('f32', value, Math.abs(x0) + Math.abs(x1))) fit++;
          all++;
        }
      }
    }
    return fit / all;
  };
  const exact: Round = (value) => value;
  if (shareOf(exact, exact) > 0.5) return [];
  for (const bits of [10, 7]) {
    const narrow: Round = (value) => roundBits(value, bits);
    for (const [what, ofX, ofTable] of [
      ['cos and sin', exact, narrow],
      ['x', narrow, exact],
      ['x, cos and sin', narrow, narrow],
    ] as const) {
      const share = shareOf(ofX, ofTable);
      if (share < 0.9) continue;
      const like = bits === 10 ? 'tf32 and f16' : 'bf16';
      const percent = Math.floor(100 * share);
      return [
        `With ${what} rounded to ${bits} bits after the leading one, as in ${like}, ${percent} % of y is given to its last bits.`,
      ];
    }
  }
  return [];
}

type Round = (value: number) => number;

/** The nearest number with so many bits after the leading one. */
function roundBits(value: number, bits: number): number {
  if (value === 0) return 0;
  const unit = 2 ** (Math.floor(Math.log2(Math.abs(value))) - bits);
  const [whole, part] = [Math.floor(value / unit), value / unit - Math.floor(value / unit)];
  // Ties go to even.
  return (part > 0.5 || (part === 0.5 && whole % 2 !== 0) ? whole + 1 : whole) * unit;
}

/** Finds a factor of all angles that leaves no error. */
function commonFactor(samples: readonly Sample[]): string | undefined {
  const turns = samples.map(({ pair, angle, position, cos, sin, noise }) => {
    const [c, s] = [Math.cos(angle), Math.sin(angle)];
    const turn = Math.atan2(sin * c - cos * s, cos * c + sin * s);
    return { angle, turn, noise: noise + angleNoise(angle, pair, position) };
  });
  let [low, high] = [-Infinity, Infinity];
  for (const { angle, turn, noise } of turns) {
    // The turn is known only as an angle below half a turn.
    if (Math.abs(turn) + noise > 3) return undefined;
    if (angle === 0) {
      if (Math.abs(turn) > noise) return undefined;
      continue;
    }
    const [a, b] = [(turn - noise) / angle, (turn + noise) / angle];
    low = Math.max(low, Math.min(a, b));
    high = Math.min(high, Math.max(a, b));
  }
  if (!(low <= high) || (low <= 0 && high >= 0)) return undefined;
  const [middle, bound] = [(low + high) / 2, (high - low) / 2];
  const digits = Math.min(12, Math.ceil(-Math.log10(bound || 1e-12)));
  const error = (Math.ceil(bound * 10 ** digits + 0.5) / 10 ** digits).toFixed(digits);
  const turn = turnBetween(low, high);
  const times = `${(1 + middle).toFixed(digits)} ± ${error} times the expected`;
  return turn
    ? `Angles of many turns are ${times} ones, as where ${turn} is taken for 2π.`
    : `Every frequency that shows is ${times} one.`;
}

/** Finds n, a power of 2 or one less, such that all cos and sin are multiples of 1/n within noise. */
function unitOf(samples: readonly Sample[]): number | undefined {
  for (let bits = 6; bits <= 16; bits++) {
    for (const n of [2 ** bits - 1, 2 ** bits]) {
      const clear = samples.filter(({ noise }) => noise * n < 0.1);
      const fits = ({ cos, sin, noise }: Sample): boolean =>
        [cos, sin].every((value) => Math.abs(value * n - Math.round(value * n)) <= noise * n);
      if (clear.length >= ENOUGH && clear.every(fits)) return n;
    }
  }
  return undefined;
}

/** Whether pairs that turn by the same angle have the same error. */
function alikeAtEqualAngles(samples: readonly Sample[]): boolean {
  const turn = 2 * Math.PI;
  const sorted = samples
    .filter(({ noise, offCos, offSin }) => noise < 0.2 * Math.hypot(offCos, offSin))
    .map((one) => ({ ...one, angle: one.angle - turn * Math.floor(one.angle / turn) }))
    .sort((a, b) => a.angle - b.angle);
  const apart: number[] = [];
  const sizes: number[] = [];
  for (const [n, one] of sorted.entries()) {
    const next = sorted[n + 1];
    if (!next || next.pair === one.pair || next.angle - one.angle > 1e-3) continue;
    apart.push(Math.hypot(next.offCos - one.offCos, next.offSin - one.offSin));
    sizes.push(Math.hypot(one.offCos, one.offSin));
  }
  const most = apart.sort((a, b) => a - b)[Math.floor(0.9 * apart.length)]!;
  return apart.length >= ENOUGH && most < 0.4 * median(sizes);
}

function median(list: number[]): number {
  return list.sort((a, b) => a - b)[list.length >> 1]!;
}

/** Two digits, rounded up: a bound. */
function upwards(value: number): string {
  const step = 10 ** (Math.floor(Math.log10(value)) - 1);
  return String(Number((Math.ceil(value / step - 1e-9) * step).toPrecision(2)));
}
