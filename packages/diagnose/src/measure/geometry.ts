/** Which dimensions were rotated, and with which partner: only a rotated pair keeps its joint length. @module */
import type { Sample } from './sample.js';

/** One pair: the dimensions it is read from, and the dimensions it is written to. */
export interface PairAt {
  readonly read: readonly [number, number];
  readonly write: readonly [number, number];
}

/** How pairs are laid out in a head. */
export interface PairLayout {
  /** `half` is (j, j + distance); `quarter` is half inside each half of the window; `free` is an unknown layout. */
  readonly name: 'interleaved' | 'half' | 'interleaved-to-half' | 'half-to-interleaved' | 'quarter' | 'free';
  /** First dimension of the first pair. */
  readonly first: number;
  /** Between the members of a pair as read. */
  readonly distance: number;
  readonly pairs: readonly PairAt[];
}

/** What happened to a dimension; `turned` means rotated; `zero` and `nan` are what y holds in every row. */
export type DimKind = 'still' | 'scaled' | 'turned' | 'zero' | 'nan';

/** What happened to the dimensions of a head. */
export interface Geometry {
  readonly dims: readonly DimKind[];
  /**
   * Layouts whose pairs all keep their lengths; the first is the likeliest, more than one when the data cannot tell.
   */
  readonly layouts: readonly PairLayout[];
  /** Dimensions whose x is 0 in every row: their rotation is unknown. */
  readonly dark: readonly number[];
  /** Dimensions that are x in every row, to the last bit. */
  readonly copied: readonly number[];
  /** Without a layout: the rotated dimensions that keep their joint length with another one, in the same two places. */
  readonly matched?: readonly number[];
}

/** Finds the pairs; there is no layout when nothing was rotated, or when no pairs keep their lengths. */
export function findGeometry(sample: Sample): Geometry {
  const { headDim } = sample;
  const dims = Array.from({ length: headDim }, (_what, i) => kindOfDim(sample, i));
  const dark = dims.flatMap((_what, i) => (isDark(sample, i) ? [i] : []));
  const copied = dims.flatMap((_what, i) => (isCopied(sample, i) ? [i] : []));
  const common = { dims, dark, copied };
  const turned = dims.flatMap((kind, i) => (kind === 'turned' ? [i] : []));
  if (turned.length === 0) return { ...common, layouts: [] };
  const lost = new Set(dims.flatMap((kind, i) => (kind === 'zero' || kind === 'nan' ? [i] : [])));
  const whole = (pair: PairAt): boolean => !pair.write.some((i) => lost.has(i));
  const all = candidates(headDim, turned);
  // Where cos and sin are lengthened by different factors, the length is kept only among the heads of one token.
  for (const rows of [undefined, sample.heads.length].filter((n) => n !== 1)) {
    const layouts = all.filter(
      (layout) =>
        layout.pairs.some(whole) && layout.pairs.every((pair) => !whole(pair) || keepsLength(sample, pair, rows)),
    );
    if (layouts.length > 0) return { ...common, layouts: simplest(layouts, turned, headDim) };
  }
  const partners = new Map(
    turned.map((i) => [i, turned.filter((p) => p !== i && keepsLength(sample, same(Math.min(i, p), Math.max(i, p))))]),
  );
  const free = freePairs(partners);
  const matched = turned.filter((i) => partners.get(i)!.length > 0);
  return free ? { ...common, layouts: [free] } : { ...common, layouts: [], matched };
}

function isDark({ x, headDim }: Sample, i: number): boolean {
  for (let at = i; at < x.length; at += headDim) if (x[at] !== 0) return false;
  return true;
}

function isCopied({ x, y, headDim }: Sample, i: number): boolean {
  for (let at = i; at < x.length; at += headDim) if (y[at] !== x[at]) return false;
  return true;
}

/** Whether nothing but zeros, or no finite number, was written to a dimension. */
function lostDim(x: Float64Array, y: Float64Array, headDim: number, i: number): 'zero' | 'nan' | undefined {
  const all = (is: (at: number) => boolean): boolean => {
    for (let at = i; at < y.length; at += headDim) if (!is(at)) return false;
    return true;
  };
  if (all((at) => !Number.isFinite(y[at]!))) return 'nan';
  return all((at) => y[at] === 0) && !all((at) => x[at] === 0) ? 'zero' : undefined;
}

function kindOfDim(sample: Sample, i: number): DimKind {
  const { x, y, noise, headDim } = sample;
  const lost = lostDim(x, y, headDim, i);
  if (lost) return lost;
  let still = true;
  let [low, high] = [-Infinity, Infinity];
  for (let at = i; at < x.length; at += headDim) {
    if (Math.abs(y[at]! - x[at]!) > 2 * noise[at]!) still = false;
    if (x[at] === 0) {
      if (Math.abs(y[at]!) > 2 * noise[at]!) low = Infinity; // another dimension contributes
      continue;
    }
    const width = (2 * noise[at]!) / Math.abs(x[at]!);
    low = Math.max(low, y[at]! / x[at]! - width);
    high = Math.min(high, y[at]! / x[at]! + width);
  }
  if (still) return 'still';
  // Half a turn changes only signs.
  return low <= high && high >= 0 ? 'scaled' : 'turned';
}

/** Whether |y|² / |x|² of a pair is the same for all tokens and heads, or for every `rows` rows that follow each other. */
function keepsLength({ x, y, noise, headDim }: Sample, { read, write }: PairAt, rows?: number): boolean {
  let [low, high] = [-Infinity, Infinity];
  for (let at = 0; at < x.length; at += headDim) {
    if (rows && (at / headDim) % rows === 0) [low, high] = [-Infinity, Infinity];
    const input = x[at + read[0]]! ** 2 + x[at + read[1]]! ** 2;
    const [y0, y1] = [y[at + write[0]]!, y[at + write[1]]!];
    const [e0, e1] = [noise[at + write[0]]!, noise[at + write[1]]!];
    const output = y0 * y0 + y1 * y1;
    const width = 2 * (Math.abs(y0) * e0 + Math.abs(y1) * e1) + e0 * e0 + e1 * e1;
    if (input === 0) {
      if (output > width) return false;
      continue;
    }
    low = Math.max(low, (output - width) / input);
    high = Math.min(high, (output + width) / input);
    if (!(low <= high)) return false;
  }
  return true;
}

/** Every layout that could have rotated these dimensions. */
function candidates(headDim: number, turned: readonly number[]): PairLayout[] {
  const low = turned[0]!;
  const high = turned.at(-1)! + 1;
  const list: PairLayout[] = [];
  const add = (layout: PairLayout): void => {
    const covered = new Set(layout.pairs.flatMap((pair) => [...pair.read, ...pair.write]));
    if (layout.pairs.length > 0 && turned.every((i) => covered.has(i))) list.push(layout);
  };
  for (const first of low > 0 ? [low, low - 1] : [low]) add(interleaved(first, headDim, high));
  for (let distance = Math.ceil((high - low) / 2); distance < headDim; distance++) {
    // Slow pairs may rotate by less than the noise, so the window may start earlier; the nearest start is the
    // likeliest.
    for (let first = low; first >= 0 && first > low - distance; first--) add(half(first, distance, headDim));
  }
  for (let pairs = Math.ceil((high - low) / 2); 2 * pairs <= headDim; pairs++) {
    for (const first of new Set([low, 0])) {
      if (first + 2 * pairs > headDim) continue;
      add(crossed(first, pairs));
      add(mirrored(crossed(first, pairs)));
      if (pairs % 2 === 0) add(quarter(first, pairs));
    }
  }
  return list;
}

function interleaved(first: number, headDim: number, end: number): PairLayout {
  const pairs: PairAt[] = [];
  for (let i = first; i < end && i + 1 < headDim; i += 2) pairs.push(same(i, i + 1));
  return { name: 'interleaved', first, distance: 1, pairs };
}

function half(first: number, distance: number, headDim: number): PairLayout {
  const pairs: PairAt[] = [];
  for (let i = first; i < first + distance && i + distance < headDim; i++) pairs.push(same(i, i + distance));
  return { name: 'half', first, distance, pairs };
}

function quarter(first: number, count: number): PairLayout {
  const q = count / 2;
  const pairs = [first, first + count].flatMap((from) =>
    Array.from({ length: q }, (_what, j) => same(from + j, from + j + q)),
  );
  return { name: 'quarter', first, distance: q, pairs };
}

function crossed(first: number, count: number): PairLayout {
  const pairs = Array.from(
    { length: count },
    (_what, j): PairAt => ({ read: [first + 2 * j, first + 2 * j + 1], write: [first + j, first + j + count] }),
  );
  return { name: 'interleaved-to-half', first, distance: 1, pairs };
}

function mirrored({ first, pairs }: PairLayout): PairLayout {
  return {
    name: 'half-to-interleaved',
    first,
    distance: pairs.length,
    pairs: pairs.map(({ read, write }) => ({ read: write, write: read })),
  };
}

function same(a: number, b: number): PairAt {
  return { read: [a, b], write: [a, b] };
}

/**
 * Of layouts that pair the rotated dimensions alike, the one with the fewest other pairs; but a whole window before a
 * part of one, because a pair that makes whole turns from position to position looks still.
 */
function simplest(layouts: readonly PairLayout[], turned: readonly number[], headDim: number): PairLayout[] {
  const whole = ({ name, first, distance }: PairLayout): boolean => name !== 'half' || first + 2 * distance <= headDim;
  const groups = new Map<string, PairLayout>();
  for (const layout of layouts) {
    const key = turned
      .map((i) => layout.pairs.filter((pair) => pair.write.includes(i)).map(({ read, write }) => `${read}>${write}`))
      .join(';');
    const known = groups.get(key);
    const better = known && whole(layout) === whole(known) ? layout.first > known.first : whole(layout);
    if (!known || better) groups.set(key, layout);
  }
  // First the layout that starts at the first rotated dimension, then the smaller distance.
  return [...groups.values()].sort((a, b) => b.first - a.first || a.distance - b.distance);
}

/** Pairs of no known layout: each rotated dimension has exactly one partner with which it keeps its length. */
function freePairs(partners: ReadonlyMap<number, readonly number[]>): PairLayout | undefined {
  const pairs: PairAt[] = [];
  for (const [i, of] of partners) {
    if (of.length !== 1 || partners.get(of[0]!)![0] !== i) return undefined;
    if (i < of[0]!) pairs.push(same(i, of[0]!));
  }
  const [a, b] = pairs[0]!.read;
  return { name: 'free', first: a, distance: b - a, pairs };
}
