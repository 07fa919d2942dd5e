/**
 * A y whose right results were changed once more, each element by one function, or each row by a Hadamard matrix; sine terms
 * with another x; and errors that grow with the position. @module
 */
import { type FloatDtype, tensorFrom } from 'ropewalk';
import { ranges } from 'ropewalk/internal';
import { storedNoise } from '../kernel/noise.js';
import type { RightRows } from '../kernel/right-rows.js';
import { spread } from '../measure/sample.js';

/** The points that show a function. */
const ENOUGH = 200;
/** The rows whose elements are held against each other; all others are held against these. */
const FEW_ROWS = 32;
/** The parts of a head, with an x of their own each, that a sentence may have. */
const MOST_PARTS = 8;
/** The rows that show whether errors grow. */
const MOST_ROWS = 1024;

/** An element of y, or a cos or sin, and how far rounding may have moved it; the right one, and its noise. */
export interface Point {
  readonly y: number;
  readonly loose: number;
  readonly made: number;
  readonly noise: number;
}

/** Visits elements, row by row, until one is not as it should be. */
type Every = (is: (point: Point) => boolean) => boolean;

/** Says what was done with the right results, of all rows; empty if it is none of these. */
export function describeChanged(right: RightRows): readonly string[] {
  const words = functionWords(right) ?? dropoutWords(right) ?? hadamardWords(right);
  return words === undefined ? [] : [words];
}

function everyOf(right: RightRows, rows: readonly number[]): Every {
  const { headDim, dtype, y } = right.heads;
  const [made, noise] = [new Float64Array(headDim), new Float64Array(headDim)];
  return (is) =>
    rows.every((r) => {
      right.fill(r, made, noise);
      return made.every((value, i) => {
        const own = y[r * headDim + i]!;
        return is({ y: own, loose: rounding(dtype, own), made: value, noise: noise[i]! });
      });
    });
}

/** How far rounding alone may move a value of y. */
const rounding = (dtype: FloatDtype, value: number): number => storedNoise(dtype, value, Math.abs(value));

/** Recognises a y that rises or falls with the right result, and is no multiple of it. */
function functionWords(right: RightRows): string | undefined {
  const { rows } = right.heads;
  const points: Point[] = [];
  everyOf(right, spread(rows, FEW_ROWS))((point) => points.push(point) > 0);
  const every = everyOf(right, rows);
  const found = monotone(points);
  if (!found || isMultiple(every)) return undefined;
  const known = knownWords(right, points, every);
  if (known !== undefined) return known;
  return every(found.isBetween) ? `Each element of y is one function of the right result, ${found.words}.` : undefined;
}

/** Says how points rise, or fall, as one function; undefined if they do neither, or have few values. */
export function monotone(points: Point[]): { readonly words: string; isBetween(point: Point): boolean } | undefined {
  points.sort((a, b) => a.made - b.made);
  for (const sign of [1, -1]) {
    const isBetween = betweenOf(points, sign);
    if (!isBetween || !points.every(isBetween)) continue;
    const shown = [0, 0.1, 0.35, 0.65, 0.9, 1].map((share) => {
      const { y, made } = points[Math.round(share * (points.length - 1))]!;
      return `${short(y)} for ${short(made)}`;
    });
    return { words: `which ${sign > 0 ? 'rises' : 'falls'}: ${shown.join(', ')}`, isBetween };
  }
  return undefined;
}

const short = (value: number): number => Number(value.toPrecision(4));

/** Recognises functions that have a name. */
function knownWords(right: RightRows, points: readonly Point[], every: Every): string | undefined {
  const { dtype } = right.heads;
  for (const [from, to] of [
    ['f16', 'bf16'],
    ['bf16', 'f16'],
  ] as const)
    if (dtype === to && isOtherBits(right, from, to))
      return `y has the right results in ${from}, whose bits are read as ${to}.`;
  const cap = capOf(points, every, dtype);
  return cap === undefined ? undefined : `y is ${cap} · tanh(right result / ${cap}), a soft cap.`;
}

/** Whether y is the right result times one number, which is a magnitude. */
function isMultiple(every: Every): boolean {
  let [low, high] = [-Infinity, Infinity];
  return every(({ y, loose, made, noise }) => {
    if (Math.abs(made) <= 4 * noise) return true;
    const [factor, slack] = [y / made, (noise * Math.abs(y / made) + loose) / Math.abs(made)];
    [low, high] = [Math.max(low, factor - slack), Math.min(high, factor + slack)];
    return low <= high;
  });
}

/**
 * Returns the test that a y is not below (sign 1) those of points whose right result is clearly below, and not above those
 * clearly above; undefined for points with few values.
 */
function betweenOf(points: readonly Point[], sign: number): ((point: Point) => boolean) | undefined {
  if (points.length < ENOUGH || new Set(points.map(({ y }) => y)).size < ENOUGH / 8) return undefined;
  const sorted = (end: 1 | -1) => {
    const order = points.toSorted((a, b) => a.made + end * a.noise - b.made - end * b.noise);
    const values = Float64Array.from(order, ({ y, loose }) => sign * y - end * loose);
    if (end > 0) for (let n = 1; n < values.length; n++) values[n] = Math.max(values[n]!, values[n - 1]!);
    else for (let n = values.length - 2; n >= 0; n--) values[n] = Math.min(values[n]!, values[n + 1]!);
    return { at: Float64Array.from(order, ({ made, noise }) => made + end * noise), values };
  };
  // The most of those that lie clearly below, and the least of those clearly above.
  const [below, above] = [sorted(1), sorted(-1)];
  return ({ y, loose, made, noise }) => {
    const [low, high] = [countBelow(below.at, made - noise), countBelow(above.at, made + noise)];
    return (
      Number.isFinite(y) && !(sign * y + loose < below.values[low - 1]!) && !(sign * y - loose > above.values[high]!)
    );
  };
}

/** Counts the numbers of an ascending list that are below a limit. */
function countBelow(list: Float64Array, limit: number): number {
  let [low, high] = [0, list.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (list[middle]! < limit) low = middle + 1;
    else high = middle;
  }
  return low;
}

/** Whether y has the bits that right results have in another dtype. */
function isOtherBits(right: RightRows, from: 'f16' | 'bf16', to: 'f16' | 'bf16'): boolean {
  const { headDim, rows, y } = right.heads;
  const [made, noise] = [new Float64Array(headDim), new Float64Array(headDim)];
  return rows.every((r) => {
    right.fill(r, made, noise);
    const { host } = tensorFrom([...y.subarray(r * headDim, (r + 1) * headDim)], { dtype: to }).storage;
    const read = tensorFrom(host as Uint16Array, { dtype: from }).readNumbers() as Float64Array;
    return made.every((value, i) => Math.abs(read[i]! - value) <= noise[i]! + rounding(from, value));
  });
}

/** Finds the limit c of c·tanh(right / c). */
function capOf(points: readonly Point[], every: Every, dtype: FloatDtype): number | undefined {
  const { y, made } = points.reduce((a, b) => (Math.abs(b.made) > Math.abs(a.made) ? b : a));
  let [low, high] = [Math.abs(y), 1e6 * Math.abs(y)];
  for (let step = 0; step < 100; step++) {
    const middle = Math.sqrt(low * high);
    if (middle * Math.tanh(Math.abs(made) / middle) < Math.abs(y)) low = middle;
    else high = middle;
  }
  return [1, 2, 3, 4]
    .map((digits) => Number(low.toPrecision(digits)))
    .find((cap) =>
      every((point) => {
        const capped = cap * Math.tanh(point.made / cap);
        return Math.abs(point.y - capped) <= point.noise + 2 * rounding(dtype, capped);
      }),
    );
}

/** Recognises right results times one number, of which some are 0, in no order, as by dropout. */
function dropoutWords(right: RightRows): string | undefined {
  const { y, rows, headDim } = right.heads;
  let [low, high, lost, shown] = [0, Infinity, 0, 0];
  const every = everyOf(right, rows);
  const isOne = every(({ y: own, loose, made, noise }) => {
    if (Math.abs(made) <= 4 * noise) return Math.abs(own) <= 16 * noise + loose;
    if (own === 0) lost++;
    else
      [low, high, shown] = [
        Math.max(low, (own / made) * (1 - noise / Math.abs(made)) - loose / Math.abs(made)),
        Math.min(high, (own / made) * (1 + noise / Math.abs(made)) + loose / Math.abs(made)),
        shown + 1,
      ];
    return low <= high;
  });
  const rowsHit = rows.filter((r) => y.subarray(r * headDim, (r + 1) * headDim).includes(0)).length;
  if (!isOne || lost < 8 || 2 * lost > shown || 2 * rowsHit < Math.min(rows.length, lost)) return undefined;
  const share = Number(((100 * lost) / (lost + shown)).toPrecision(2));
  return `${share} % of the elements are 0, in no order, and the others are the right results × ${short((low + high) / 2)}, as by dropout.`;
}

/** Recognises right rows that were multiplied by a Hadamard matrix, as before a cache is quantised. */
function hadamardWords(right: RightRows): string | undefined {
  const { headDim, dtype, rows, y } = right.heads;
  if (!Number.isInteger(Math.log2(headDim))) return undefined;
  const scale = 1 / Math.sqrt(headDim);
  const [row, noise] = [new Float64Array(headDim), new Float64Array(headDim)];
  const isSo = rows.every((r) => {
    right.fill(r, row, noise);
    // Sylvester's order, by butterflies.
    for (let size = 1; size < headDim; size *= 2)
      for (let i = 0; i < headDim; i++)
        if ((i & size) === 0) [row[i], row[i + size]] = [row[i]! + row[i + size]!, row[i]! - row[i + size]!];
    const slack = noise.reduce((sum, one) => sum + one, 0) * scale;
    return row.every((value, i) => {
      const own = y[r * headDim + i]!;
      return Math.abs(own - value * scale) <= slack + rounding(dtype, own);
    });
  });
  return isSo
    ? `Each row of y is the right row times a Hadamard matrix, whose elements are ±1/√${headDim}.`
    : undefined;
}

/** Recognises sine terms that take another element of x, perhaps of a neighbouring head, than the other one of their pair. */
export function describePartners(right: RightRows): readonly string[] {
  const { heads, headDim, dtype, norm, x, y, rows } = right.heads;
  if (norm) return [];
  const few = spread(rows, 8);
  /** Whether dimension i has its cosine term, and a sine term with the element of x at place k of its row. */
  const fits = (i: number, k: number): boolean => {
    const [j, member] = [right.pairOf[i]!, right.memberOf[i] as 0 | 1];
    const own = right.membersOf(j).read[member];
    const isSo = (r: number): boolean => {
      const at = r * headDim;
      if (at + k < 0 || at + k >= x.length) return true; // memory that is not known
      const { cos, sin, noise } = right.anglesOf(Math.floor(r / heads));
      const value = x[at + own]! * cos[j]! + (member === 0 ? -1 : 1) * x[at + k]! * sin[j]!;
      const size = Math.max(Math.abs(x[at + own]!), Math.abs(x[at + k]!));
      return Math.abs(y[at + i]! - value) <= storedNoise(dtype, y[at + i]!, size) + 2 * size * noise[j]!;
    };
    return few.every(isSo) && rows.every(isSo);
  };
  const parts: { readonly dims: number[]; readonly by: number }[] = [];
  for (const [i, j] of right.pairOf.entries()) {
    if (j < 0 || fits(i, right.membersOf(j).read[1 - right.memberOf[i]!]!)) continue;
    const last = parts.at(-1);
    const places = Array.from({ length: 3 * headDim }, (_, n) => n - headDim - i).sort(
      (a, b) => Math.abs(a) - Math.abs(b),
    );
    const by = [...(last ? [last.by] : []), ...places].find((one) => fits(i, i + one));
    if (by === undefined) return [];
    if (last && last.dims.at(-1) === i - 1 && last.by === by) last.dims.push(i);
    else parts.push({ dims: [i], by });
  }
  if (parts.length === 0 || parts.length > MOST_PARTS) return [];
  const words = parts.map(({ dims, by }) => {
    const [way, head] = by > 0 ? ['on', 'the next head'] : ['back', 'the head before'];
    const beyond = dims.every((i) => i + by >= headDim || i + by < 0) ? `, in ${head}` : '';
    return `dimensions ${ranges(dims)} that ${Math.abs(by)} places ${way}${beyond}`;
  });
  return [`The cosine terms are right; the sine terms take x from other places: ${words.join('; ')}.`];
}

/** Says how errors grow with the position, where nothing else is known of them; empty if they do not. */
export function describeDrift(right: RightRows): readonly string[] {
  const { headDim, y, rows, numAxes } = right.heads;
  if (numAxes > 1) return [];
  const [made, noise] = [new Float64Array(headDim), new Float64Array(headDim)];
  const errors = spread(rows, MOST_ROWS).map((r) => {
    right.fill(r, made, noise);
    let [off, all] = [0, 0];
    for (let i = 0; i < headDim; i++) [off, all] = [off + (y[r * headDim + i]! - made[i]!) ** 2, all + made[i]! ** 2];
    return { position: right.reach(r), error: Math.sqrt(off / all) };
  });
  errors.sort((a, b) => a.position - b.position);
  const part = Math.floor(errors.length / 4);
  const median = (some: typeof errors): number =>
    some.map(({ error }) => error).sort((a, b) => a - b)[some.length >> 1]!;
  const parts = [0, 1, 2, 3].map((n) => errors.slice(n * part, (n + 1) * part));
  if (part < 4 || new Set(errors.map(({ position }) => position)).size < 8) return [];
  const [first, , , last] = parts as [typeof errors, typeof errors, typeof errors, typeof errors];
  const [low, high] = [median(first), median(last)];
  const grows = parts.every((one, n) => n === 0 || median(one) >= median(parts[n - 1]!));
  if (!grows || !(low <= 0.25) || !(high >= 4 * low)) return [];
  return [
    `Errors grow with the position: at positions up to ${first.at(-1)!.position} half of the rows are off by at most ${short(low)} of their length, from ${last[0]!.position} on half of them by ${short(high)} or more.`,
  ];
}
