/** Which dimensions were rotated, and with which partner: only a rotated pair keeps its joint length. @module */
import { type EllipsePoint, ellipseThrough } from './ellipse.js';
import type { Sample } from './sample.js';

/** The dimensions that a pair is read from and written to. */
export interface PairAt {
  readonly read: readonly [number, number];
  readonly write: readonly [number, number];
}

/** How pairs are laid out in a head. */
export interface PairLayout {
  /** `half` pairs (j, j + distance), `quarter` does so inside each half of the window, `free` is no known layout. */
  readonly name: 'interleaved' | 'half' | 'interleaved-to-half' | 'half-to-interleaved' | 'quarter' | 'free';
  readonly first: number;
  /** The distance between the members of a pair as they are read. */
  readonly distance: number;
  readonly pairs: readonly PairAt[];
}

/** The fate of a dimension: `turned` means rotated, `zero` and `nan` are what y holds in every row. */
export type DimKind = 'still' | 'scaled' | 'turned' | 'zero' | 'nan';

export interface Geometry {
  readonly dims: readonly DimKind[];
  /** Layouts whose pairs all keep their lengths, the likeliest first. The data cannot tell them apart. */
  readonly layouts: readonly PairLayout[];
  /** Dimensions whose x is 0 in every row, so that their rotation is unknown. */
  readonly dark: readonly number[];
  /** Dimensions that are x in every row, to the last bit. */
  readonly copied: readonly number[];
  /** Dimensions whose y is 0, or no finite number, in every row. */
  readonly lost: ReadonlySet<number>;
}

/** Finds the pairs. There is no layout when nothing was rotated, or when no pairs keep their lengths. */
export function findGeometry(sample: Sample): Geometry {
  const { headDim, x, y } = sample;
  const all = Array.from({ length: headDim }, (_, i) => i);
  const dims = all.map((i) => kindOfDim(sample, i));
  const dark = all.filter((i) => everywhere(sample, i, (at) => x[at] === 0));
  const copied = all.filter((i) => everywhere(sample, i, (at) => y[at] === x[at]));
  const lost = new Set(all.filter((i) => dims[i] === 'zero' || dims[i] === 'nan'));
  const common = { dims, dark, copied, lost };
  const turned = all.filter((i) => dims[i] === 'turned');
  if (turned.length === 0) return { ...common, layouts: [] };
  const whole = (pair: PairAt): boolean => !pair.write.some((i) => lost.has(i));
  const possible = candidates(headDim, turned);
  // Where cos and sin are lengthened by different factors, the length is kept only among the heads of one token. With one head
  // y over x lies on an ellipse.
  const heads = sample.heads.length;
  const keeps = [keepsLength, heads > 1 ? (_: Sample, pair: PairAt) => keepsLength(sample, pair, heads) : onEllipse];
  for (const keep of keeps) {
    const layouts = possible.filter(
      (layout) => layout.pairs.some(whole) && layout.pairs.every((pair) => !whole(pair) || keep(sample, pair)),
    );
    if (layouts.length > 0) return { ...common, layouts: simplest(layouts, turned, headDim) };
  }
  const partners = new Map(
    turned.map((i) => [i, turned.filter((p) => p !== i && keepsLength(sample, same(Math.min(i, p), Math.max(i, p))))]),
  );
  const free = freePairs(partners);
  return { ...common, layouts: free ? [free] : [] };
}

/** Whether something holds for dimension i of every row. */
function everywhere({ x, headDim }: Sample, i: number, holds: (at: number) => boolean): boolean {
  for (let at = i; at < x.length; at += headDim) if (!holds(at)) return false;
  return true;
}

function kindOfDim(sample: Sample, i: number): DimKind {
  const { x, y, noise, headDim } = sample;
  if (everywhere(sample, i, (at) => !Number.isFinite(y[at]!))) return 'nan';
  if (everywhere(sample, i, (at) => y[at] === 0) && !everywhere(sample, i, (at) => x[at] === 0)) return 'zero';
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
  // A factor so near to 1 is that of a small angle.
  if (still || (low <= high && low > 1 - 1e-4 && high < 1 + 1e-4)) return 'still';
  // Half a turn changes only signs.
  return low <= high && high >= 0 ? 'scaled' : 'turned';
}

/** Whether |y|² / |x|² of a pair is the same for all tokens and heads, or in each group of `rows` rows. */
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

/** Whether y over x of a pair, as complex numbers, lies on an ellipse around 0 in all tokens of more than a few. */
function onEllipse(sample: Sample, pair: PairAt): boolean {
  if (keepsLength(sample, pair)) return true; // it hardly rotates
  const { x, y, noise, headDim } = sample;
  const { read, write } = pair;
  const points: EllipsePoint[] = [];
  for (let at = 0; at < x.length; at += headDim) {
    const [x0, x1, y0, y1] = [x[at + read[0]]!, x[at + read[1]]!, y[at + write[0]]!, y[at + write[1]]!];
    const power = x0 * x0 + x1 * x1;
    const off = Math.hypot(noise[at + write[0]]!, noise[at + write[1]]!) / Math.sqrt(power);
    if (off < 0.1) points.push([(x0 * y0 + x1 * y1) / power, (x0 * y1 - x1 * y0) / power, off]);
  }
  return points.length > 8 && ellipseThrough(points) !== undefined;
}

/** Every layout that could have rotated these dimensions. */
function candidates(headDim: number, turned: readonly number[]): PairLayout[] {
  const low = turned[0]!;
  const high = turned.at(-1)! + 1;
  const list: PairLayout[] = [];
  const add = (name: PairLayout['name'], first: number, distance: number, count: number, at: (j: number) => PairAt) => {
    const pairs: PairAt[] = [];
    for (let j = 0; j < count; j++) pairs.push(at(j));
    const covered = new Set(pairs.flatMap((pair) => [...pair.read, ...pair.write]));
    if (count > 0 && turned.every((i) => covered.has(i))) list.push({ name, first, distance, pairs });
  };
  for (const first of low > 0 ? [low, low - 1] : [low]) {
    const count = Math.ceil((Math.min(high, headDim - 1) - first) / 2);
    add('interleaved', first, 1, count, (j) => same(first + 2 * j, first + 2 * j + 1));
  }
  for (let distance = Math.ceil((high - low) / 2); distance < headDim; distance++) {
    // The slow pairs at the start of a window may rotate by less than the noise. The nearest start is the likeliest.
    for (let first = low; first >= 0 && first > low - distance; first--) {
      const count = Math.min(distance, headDim - distance - first);
      add('half', first, distance, count, (j) => same(first + j, first + j + distance));
    }
  }
  for (let pairs = Math.ceil((high - low) / 2); 2 * pairs <= headDim; pairs++) {
    for (const first of new Set([low, 0])) {
      if (first + 2 * pairs > headDim) continue;
      const adjacent = (j: number): PairAt['read'] => [first + 2 * j, first + 2 * j + 1];
      const halves = (j: number): PairAt['read'] => [first + j, first + j + pairs];
      add('interleaved-to-half', first, 1, pairs, (j) => ({ read: adjacent(j), write: halves(j) }));
      add('half-to-interleaved', first, pairs, pairs, (j) => ({ read: halves(j), write: adjacent(j) }));
      const quarter = pairs / 2;
      const from = (j: number): number => first + j + (j < quarter ? 0 : quarter);
      if (pairs % 2 === 0) add('quarter', first, quarter, pairs, (j) => same(from(j), from(j) + quarter));
    }
  }
  return list;
}

/** The pair that is read from and written to the dimensions a and b. */
function same(a: number, b: number): PairAt {
  return { read: [a, b], write: [a, b] };
}

/**
 * Keeps, of the layouts that pair the rotated dimensions alike, the one with the fewest other pairs. A whole window comes
 * before a part of one, because a pair that makes whole turns from position to position looks still.
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
  // The layout that starts nearest to the first rotated dimension is the likeliest, then the one with the smaller distance.
  return [...groups.values()].sort((a, b) => b.first - a.first || a.distance - b.distance);
}

/** The pairs of an unknown layout, if each rotated dimension keeps its length with exactly one other. */
function freePairs(partners: ReadonlyMap<number, readonly number[]>): PairLayout | undefined {
  const pairs: PairAt[] = [];
  for (const [i, of] of partners) {
    if (of.length !== 1 || partners.get(of[0]!)![0] !== i) return undefined;
    if (i < of[0]!) pairs.push(same(i, of[0]!));
  }
  const [a, b] = pairs[0]!.read;
  return { name: 'free', first: a, distance: b - a, pairs };
}
