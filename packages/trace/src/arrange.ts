/**
 * The layout of a tensor in one runtime beside that in another: which dimension counts tokens, how ranks share it, what
 * it is fused with, in which order the pairs of a head lie, where padding is. Layouts are tried on the values.
 *
 * @module
 */
import { tensorFrom } from 'ropewalk';
import { areAlike } from './compare.js';
import { type Kind, OF_HEADS } from './names.js';
import { type Group, OF_VOCABULARY, type Rows, type Side, valuesOf, WIDE } from './side.js';

/** The ways in which the tensors of several ranks are one. */
const MERGES = ['columns', 'first', 'sum', 'contiguous', 'zigzag', 'round robin'] as const;
type Merge = (typeof MERGES)[number];

/** A part of a fused tensor: the widths of all parts, and which one it is. */
export interface Fused {
  readonly widths: readonly number[];
  readonly part: number;
}

/** A layout. */
export interface Arrangement {
  /** The order in which the dimensions are read. */
  readonly order: readonly number[];
  readonly merge: Merge;
  /** The number of groups in which fused parts are interleaved; 1 for one part after the other. */
  readonly groups: number;
  /** Whether pairs are moved: to (0, 1), (2, 3), … or to (0, d/2), (1, d/2 + 1), … */
  readonly pairs: 'as they are' | 'interleaved' | 'half';
  /** How many heads in a row are copies of one. */
  readonly repeat: number;
  /** The rows of padding in front, of this side; negative for those of the other. */
  readonly offset: number;
}

/** Rows in a layout, and the difference from the other side in it. */
export interface Arranged {
  readonly arrangement: Arrangement;
  readonly difference: number;
}

/** The values of each rank, not yet put in order. */
interface Raw {
  readonly shape: readonly number[];
  readonly data: Float32Array;
  readonly tokens: number | undefined;
}

const ORDERS: readonly (readonly (readonly number[])[])[] = [
  [[]],
  [[0]],
  [
    [0, 1],
    [1, 0],
  ],
  [
    [0, 1, 2],
    [1, 0, 2],
    [2, 0, 1],
  ],
  [
    [0, 1, 2, 3],
    [0, 2, 1, 3],
    [1, 0, 2, 3],
    [2, 0, 1, 3],
  ],
];

const PLAIN: Arrangement = { order: [], merge: 'first', groups: 1, pairs: 'as they are', repeat: 1, offset: 0 };

/** Reads the tensors of a group: of each rank those of its passes, one after the other. */
export async function readGroup(side: Side, group: Group): Promise<Raw[][]> {
  const all: Raw[][] = [];
  for (const [rank, steps] of group.ranks.entries()) {
    const ofRank: Raw[] = [];
    for (const tensor of steps) {
      const shape = tensor.shape.filter((dim) => dim !== 1);
      const tokens = side.rowsOf(tensor.rank ?? rank, tensor.step ?? 0);
      ofRank.push({ shape, data: await valuesOf(tensor), tokens });
    }
    all.push(ofRank);
  }
  return all;
}

/** The number of dimensions; a pass of one token has lost one. */
const rankOf = (raw: readonly (readonly Raw[])[]): number => Math.max(...raw.flat().map(({ shape }) => shape.length));

/**
 * Puts the dimensions in an order, and makes rows of tokens. Undefined where the shape does not fit the order.
 *
 * @param exact - whether the number of tokens must be the one that is known
 */
function rowsOf(
  { shape, data, tokens }: Raw,
  order: readonly number[],
  guess: number | undefined,
  exact: boolean,
): Rows | undefined {
  if (shape.length !== order.length || shape.length > 4) {
    // The pass of one token, after a prompt, has lost the dimension of tokens with those of size 1.
    const isOne = tokens === 1 && shape.length < order.length;
    if ((shape.length <= 4 && !isOne) || tokens === undefined || data.length % tokens !== 0) return undefined;
    return { tokens, width: data.length / tokens, headDim: shape.at(-1), data };
  }
  const dims = order.map((n) => shape[n]!);
  const leads = dims.map((_, n) => dims.slice(0, n + 1).reduce((a, b) => a * b, 1));
  const wanted = [tokens, guess].filter((count) => count !== undefined);
  let lead = wanted[0] === undefined ? -1 : leads.lastIndexOf(wanted[0]);
  if (lead < 0) lead = leads.findLastIndex((count) => wanted.includes(count));
  if (wanted.includes(1) && lead < 0) lead = -1;
  else if (lead < 0) {
    if (wanted.length > 0 && (exact || order.some((n, at) => n !== at))) return undefined;
    lead = dims.length === 1 ? -1 : dims.length >= 4 ? 1 : 0;
  }
  const count = lead < 0 ? 1 : leads[lead]!;
  const inner = dims.slice(lead + 1);
  const headDim = inner.length > 1 ? inner.at(-1) : undefined;
  const width = data.length / count;
  if (order.every((n, at) => n === at)) return { tokens: count, width, headDim, data };
  const moved = tensorFrom(data, { shape }).permute(order).read() as Float32Array;
  return { tokens: count, width, headDim, data: moved };
}

function joinRows(parts: readonly Rows[]): Rows {
  const [first] = parts as [Rows];
  if (parts.length === 1) return first;
  const data = new Float32Array(parts.reduce((sum, one) => sum + one.data.length, 0));
  let at = 0;
  for (const one of parts) {
    data.set(one.data, at);
    at += one.data.length;
  }
  return { ...first, tokens: parts.reduce((sum, one) => sum + one.tokens, 0), data };
}

/** Makes one matrix of those of all ranks. */
function merged(ranks: readonly Rows[], merge: Merge): Rows | undefined {
  const [first] = ranks as [Rows];
  const { tokens, width } = first;
  if (ranks.length === 1 || merge === 'first') return merge === 'first' ? first : undefined;
  if (merge !== 'columns' && ranks.some((one) => one.width !== width)) return undefined;
  if (merge === 'contiguous') return joinRows(ranks);
  if (ranks.some((one) => one.tokens !== tokens)) return undefined;
  if (merge === 'sum')
    return { ...first, data: first.data.map((_, n) => ranks.reduce((sum, { data }) => sum + data[n]!, 0)) };
  // The row of each rank is copied to its place, in elements.
  const half = tokens / 2;
  if (merge === 'zigzag' && half % 1 !== 0) return undefined;
  const whole = merge === 'columns' ? ranks.reduce((sum, one) => sum + one.width, 0) : width;
  const data = new Float32Array(ranks.reduce((sum, one) => sum + one.data.length, 0));
  let column = 0;
  for (const [rank, one] of ranks.entries()) {
    for (let t = 0; t < tokens; t++) {
      const chunk = t < half ? rank : 2 * ranks.length - 1 - rank;
      const row = merge === 'columns' ? t : merge === 'zigzag' ? chunk * half + (t % half) : t * ranks.length + rank;
      data.set(one.data.subarray(t * one.width, (t + 1) * one.width), row * whole + column);
    }
    if (merge === 'columns') column += one.width;
  }
  return { ...first, tokens: data.length / whole, width: whole, data };
}

/** Takes columns by their numbers. */
function columnsOf(rows: Rows, columns: readonly number[], headDim = rows.headDim): Rows {
  const [width, data] = [columns.length, new Float32Array(rows.tokens * columns.length)];
  for (let t = 0; t < rows.tokens; t++)
    for (let c = 0; c < width; c++) data[t * width + c] = rows.data[t * rows.width + columns[c]!]!;
  return { tokens: rows.tokens, width, headDim, data };
}

const range = (from: number, to: number): number[] =>
  Array.from({ length: Math.max(0, to - from) }, (_, n) => from + n);

/** Keeps the first columns: a vocabulary may have padding. */
export const columnsTo = (rows: Rows, width = rows.width): Rows =>
  width < rows.width ? columnsOf(rows, range(0, width)) : rows;

/** Returns the columns of a part of a fused row whose parts are interleaved in groups. */
function partColumns({ widths, part }: Fused, groups: number): number[] | undefined {
  if (widths.some((width) => width % groups !== 0)) return undefined;
  const inGroup = widths.map((width) => width / groups);
  const whole = inGroup.reduce((a, b) => a + b, 0);
  const start = inGroup.slice(0, part).reduce((a, b) => a + b, 0);
  return range(0, groups).flatMap((g) => range(g * whole + start, g * whole + start + inGroup[part]!));
}

/** Returns the columns of heads whose pairs are moved, so that they lie as named. */
function pairColumns(width: number, headDim: number, to: 'interleaved' | 'half'): number[] {
  const half = headDim / 2;
  return range(0, width).map((column) => {
    const [head, i] = [column - (column % headDim), column % headDim];
    return head + (to === 'half' ? (i < half ? 2 * i : 2 * (i - half) + 1) : i % 2 === 0 ? i / 2 : half + (i - 1) / 2);
  });
}

/** The facts by which layouts are proposed. */
export interface Wanted {
  readonly kind: Kind;
  /** The other side, in its own order. */
  readonly other: Rows;
  readonly headDim: number | undefined;
  readonly fused?: Fused | undefined;
}

/** Applies a layout to a group's values. */
export function arranged(
  raw: readonly (readonly Raw[])[],
  how: Arrangement,
  wanted?: Wanted,
  exact = false,
): Rows | undefined {
  const guess = wanted?.other.tokens;
  const ofRanks: Rows[] = [];
  for (const steps of raw) {
    const parts = steps.map((one) => rowsOf(one, how.order, guess, exact));
    if (parts.some((one) => one === undefined)) return undefined;
    ofRanks.push(joinRows(parts as Rows[]));
  }
  let rows = wanted?.fused && how.merge === 'columns' ? undefined : merged(ofRanks, how.merge);
  if (wanted?.fused) {
    // Each rank of a fused tensor has its share of every part.
    const { widths, part } = wanted.fused;
    const share = how.merge === 'columns' ? ofRanks.length : 1;
    const each = (how.merge === 'columns' ? ofRanks : rows ? [rows] : []).map((one) => {
      const own = widths.map((width) => width / share);
      if (one.width !== own.reduce((a, b) => a + b, 0)) return undefined;
      const columns = partColumns({ widths: own, part }, how.groups);
      return columns && columnsOf(one, columns, wanted.headDim);
    });
    if (each.length === 0 || each.includes(undefined)) return undefined;
    rows = each.length === 1 ? each[0] : merged(each as Rows[], 'columns');
  }
  if (!rows) return undefined;
  const headDim = wanted?.headDim ?? rows.headDim;
  if (how.repeat > 1) {
    if (!headDim || rows.width % (headDim * how.repeat) !== 0) return undefined;
    rows = columnsOf(
      rows,
      range(0, rows.width).filter((column) => Math.floor(column / headDim) % how.repeat === 0),
    );
  }
  if (how.pairs !== 'as they are') {
    if (!headDim || headDim % 2 !== 0 || rows.width % headDim !== 0) return undefined;
    rows = columnsOf(rows, pairColumns(rows.width, headDim, how.pairs));
  }
  if (wanted && OF_VOCABULARY.has(wanted.kind)) rows = columnsTo(rows, wanted.other.width);
  return { ...rows, headDim };
}

/** Returns the rows that two sides share, where one has padding. */
function overlap(other: Rows, rows: Rows, offset: number): readonly [other: Rows, rows: Rows] {
  const cut = (one: Rows, from: number, count: number): Rows => ({
    ...one,
    tokens: count,
    start: from,
    data: one.data.subarray(from * one.width, (from + count) * one.width),
  });
  const [a, b] = [Math.max(0, -offset), Math.max(0, offset)];
  const count = Math.max(0, Math.min(other.tokens - a, rows.tokens - b));
  return [cut(other, a, count), cut(rows, b, count)];
}

/** Measures the difference of two matrices relative to the first one, on some rows. */
export function differenceOf(a: Rows, b: Rows): number {
  if (a.width !== b.width || a.tokens !== b.tokens || a.tokens === 0) return Number.POSITIVE_INFINITY;
  const step = Math.max(1, Math.floor(a.tokens / 48));
  let [sum, whole] = [0, 0];
  for (let t = 0; t < a.tokens; t += step)
    for (let n = t * a.width; n < (t + 1) * a.width; n++) {
      if (areAlike(a.data[n]!, b.data[n]!)) continue;
      sum += (a.data[n]! - b.data[n]!) ** 2;
      whole += a.data[n]! ** 2;
    }
  return Number.isFinite(sum) ? Math.sqrt(sum / Math.max(whole, 1e-30)) : Number.POSITIVE_INFINITY;
}

interface Aligned {
  readonly offset: number;
  readonly difference: number;
  readonly shared: readonly [other: Rows, rows: Rows];
}

/** Lays rows beside those of the other side: from the first one on, or, where one has more, up to the last one. */
export function aligned(other: Rows, rows: Rows): Aligned {
  const spare = rows.tokens - other.tokens;
  const [front, back = front] = (spare === 0 ? [0] : [0, spare]).map((offset) => {
    const shared = overlap(other, rows, offset);
    return { offset, difference: differenceOf(...shared), shared };
  }) as [Aligned, Aligned?];
  return back.difference < front.difference ? back : front;
}

/** Differences up to this are those of one tensor in two runtimes. */
export const SAME = 0.02;

/**
 * Finds the layout in which a group is nearest to the other side. A plainer layout is kept unless another one is much
 * nearer.
 *
 * @param like - a layout to try first
 * @returns undefined where no layout gives the shape of the other side
 */
export function findArrangement(
  raw: readonly (readonly Raw[])[],
  wanted: Wanted,
  like?: Arrangement,
): Arranged | undefined {
  const { other, kind } = wanted;
  const rank = rankOf(raw);
  const orders = ORDERS[rank] ?? [range(0, rank)];
  const merges = raw.length === 1 ? (['first'] as const) : MERGES;
  const groups = wanted.fused ? groupsOf(wanted) : [1];
  const pairs =
    OF_HEADS.has(kind) && kind !== 'v' && kind !== 'heads'
      ? (['as they are', 'interleaved', 'half'] as const)
      : (['as they are'] as const);
  let best: Arranged | undefined;
  let plain: Arranged | undefined;
  const consider = (how: Arrangement): boolean => {
    const rows = arranged(raw, how, wanted);
    if (!rows || rows.width !== other.width) return false;
    // Ranks that have all tokens each do not share them: one beside the other would hide all but the last one. And where
    // ranks have as many tokens as the other side only together, one of them is not the whole.
    if (how.merge !== 'first' && raw.length > 1 && rows.tokens === raw.length * other.tokens) return false;
    if (raw.length > 1 && rows.tokens < other.tokens && sharesTokens(raw, how, wanted)) return false;
    const { offset, difference } = aligned(other, rows);
    const found = { arrangement: { ...how, offset }, difference };
    plain ??= found;
    if (!best || difference < best.difference) best = found;
    return difference <= SAME;
  };
  if (like && like.order.length === rank && consider({ ...like, repeat: 1 })) return best;
  for (const order of orders)
    for (const merge of merges)
      for (const group of groups)
        for (const repeat of repeatsOf(raw, wanted))
          for (const pair of pairs)
            if (consider({ ...PLAIN, order, merge, groups: group, repeat, pairs: pair })) return best;
  return best && best.difference < 0.3 && best.difference < 0.5 * plain!.difference ? best : plain;
}

/** Whether the ranks, read in this way one after the other, have as many tokens as the other side. */
function sharesTokens(raw: readonly (readonly Raw[])[], how: Arrangement, wanted: Wanted): boolean {
  return arranged(raw, { ...how, merge: 'contiguous' }, wanted)?.tokens === wanted.other.tokens;
}

/** Parts may be fused whole, for each key head, for each head, or element by element. */
function groupsOf({ fused, headDim }: Wanted): number[] {
  const { widths } = fused!;
  if (widths.length === 2) return [1, widths[0]!];
  const least = widths[1]!;
  return headDim ? [1, least / headDim].filter((count) => Number.isInteger(count)) : [1];
}

function repeatsOf(raw: readonly (readonly Raw[])[], { kind, other, headDim }: Wanted): number[] {
  if (!headDim || !['k', 'v', 'k_rope', 'k_norm'].includes(kind)) return [1];
  const perToken = raw[0]![0]!.data.length / (raw[0]![0]!.tokens ?? other.tokens);
  const times = perToken / other.width;
  return Number.isInteger(times) && times > 1 ? [1, times] : [1];
}

/** Reads a group in its own order: tokens first, where an order gives as many as the other tensors of its pass have. */
export function inOwnOrder(raw: readonly (readonly Raw[])[], kind: Kind): Rows | undefined {
  const rank = rankOf(raw);
  const merge = raw.length > 1 && !WIDE.has(kind) ? 'columns' : 'first';
  const orders = ORDERS[rank] ?? [range(0, rank)];
  for (const [n, order] of [...orders, orders[0]!].entries()) {
    const rows = arranged(raw, { ...PLAIN, order, merge }, undefined, n < orders.length);
    if (rows) return rows;
  }
  return undefined;
}

/** Says in words how a layout differs from the plain one; empty where it does not. */
export function describeArrangement(
  { order, merge, groups, pairs, repeat, offset }: Arrangement,
  fused: boolean,
): string {
  const words = [
    order.every((n, at) => n === at) ? '' : order.length < 3 || order[0] === 2 ? 'transposed' : 'heads before tokens',
    merge === 'first'
      ? ''
      : merge === 'columns'
        ? 'ranks side by side'
        : merge === 'sum'
          ? 'the sum of all parts'
          : `ranks of tokens, ${merge}`,
    fused ? (groups > 1 ? 'fused, by groups' : 'fused') : '',
    pairs === 'as they are' ? '' : `pairs moved to ${pairs}`,
    repeat > 1 ? `each head ${repeat} times` : '',
    offset > 0 ? `${offset} rows of padding in front` : offset < 0 ? `the last rows only` : '',
  ];
  return words.filter((word) => word !== '').join(', ');
}
