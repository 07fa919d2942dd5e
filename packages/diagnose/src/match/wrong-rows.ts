/** Which tokens, heads, batches and dimensions of y are as expected, and what the others hold, in words. @module */
import { roundTo } from 'ropewalk';
import { ranges } from 'ropewalk/internal';
import type { Compared, RightRows } from '../kernel/right-rows.js';
import { type Heads, positionsOf } from '../read/observation.js';
import type { Group, What } from './row-contents.js';

/** Where elements are. Not every combination of them needs to be meant: see {@link RowEntry.rows}. */
export interface Places {
  readonly batches: readonly number[];
  readonly tokens: readonly number[];
  readonly heads: readonly number[];
  /** Undefined for whole heads. */
  readonly dims: readonly number[] | undefined;
}

/** Elements that hold the same. */
export interface RowEntry {
  readonly what: What;
  /** The place of the elements, in words. */
  readonly where: string;
  readonly holds: string;
  /** The same place as numbers. */
  readonly at: Places;
  /** How many heads of tokens have such elements. */
  readonly rows: number;
  readonly elements: number;
}

/** Every element of y against the right kernel. */
export interface RowSummary {
  /** How many elements y has, and how many of them are not as expected. */
  readonly elements: number;
  readonly wrongElements: number;
  /**
   * The part that is as expected, in words, empty for a few elements here and there; without an expectation, the part that
   * was rotated. Undefined if the rest is another rotation.
   */
  readonly right: string | undefined;
  readonly wrong: readonly RowEntry[];
  /** The rows of which measurements and differences are told, in words: empty for all, undefined for the right ones. */
  readonly shown?: string;
}

/** A summary of rows, and what the diagnosis needs of it. */
export interface JudgedRows {
  readonly rowSummary: RowSummary;
  /**
   * - `here and there`: the kernel is right, also at positions where another rotation would show, but for some elements
   * - `all explained`: it may be wrong everywhere, but all wrong elements are known to hold something simple
   * - `no`: another rotation may be simpler
   */
  readonly local: 'here and there' | 'all explained' | 'no';
  /** The rows in which every element is as expected. */
  readonly right: readonly number[];
  /** The rows in which most elements are wrong and it is not known what they hold. */
  readonly unknown: readonly number[];
  /** The rows that are rotated by the position of another token. */
  readonly moved: readonly number[];
}

/** The rows that remain, and the contents of the others. */
export interface RowsAside {
  readonly heads: Heads;
  readonly rowSummary: RowSummary;
}

/** An error this many times the noise does not come from rounding. */
const CLEAR = 4;
/** So many elements of another rotation may be as expected by chance: slow pairs hardly turn. */
const CHANCE = 1 / 8;
/** The most wrong elements that are listed one by one. */
const MAX_LISTED = 8;
/** Right results in wrong places: a kernel that rotates otherwise does not write them. */
const ELSEWHERE: ReadonlySet<What> = new Set(['another row', 'another row of x', 'a copy', 'in place']);

const MOVED: ReadonlySet<What> = new Set(['another row', 'another position', 'another row of x']);

/** The rows that hold the result of another row or position, where they are most of y and no row is right. */
export function movedRows(summary: RowSummary | undefined): RowEntry | undefined {
  if (summary?.right !== '' || summary.shown || summary.wrong.length === 0) return undefined;
  const most = summary.wrong.reduce((a, b) => (b.rows > a.rows ? b : a));
  return MOVED.has(most.what) && 2 * most.elements >= summary.wrongElements ? most : undefined;
}

/** Sums up the rows of y; undefined if every element is as expected. */
export function summarizeRows(right: RightRows, seen: Compared, contents: readonly Group[]): JudgedRows | undefined {
  if (seen.wrong.length === 0) return undefined;
  const { heads } = right;
  const isMost = (r: number): boolean => 8 * seen.off[r]! > heads.headDim;
  // Rows that may be another rotation are told apart from rows with single wrong elements.
  const groups = contents.flatMap((group) => {
    const parts = [group.rows.filter(isMost), group.rows.filter((r) => !isMost(r))];
    if (group.what !== 'unknown') return [group];
    return parts.filter((rows) => rows.length > 0).map((rows) => ({ ...group, rows }));
  });
  const known = groups.every(({ what }) => what !== 'unknown');
  const simple = groups.every(({ what, dims }) => ELSEWHERE.has(what) || (dims && what !== 'x'));
  const few = 8 * seen.wrong.length <= 7 * heads.rows.length;
  const here = isTelling(seen, right) && (known || few);
  const entries = groups.map((group) => entryOf(group, seen, right));
  return {
    rowSummary: summaryOf(entries, rightWords(seen, groups, heads), heads),
    local: here ? 'here and there' : known && simple ? 'all explained' : 'no',
    right: seen.right,
    unknown: groups.flatMap(({ what, rows }) => (what === 'unknown' ? rows.filter(isMost) : [])).sort((a, b) => a - b),
    moved: groups.flatMap(({ what, rows }) => (what === 'another position' ? rows : [])),
  };
}

/**
 * Sets aside the rows that hold no rotation, whatever is expected.
 *
 * @param withX - also those that hold x although their position is not 0
 * @returns undefined if there are no such rows, or too few others
 */
export function rowsAside(heads: Heads, withX: boolean): RowsAside | undefined {
  const { rows, headDim } = heads;
  const oddOf = oddIn(heads, withX);
  const groups = new Map<string, { what: What; rows: number[]; at: number[]; whole: boolean }>();
  const left: number[] = [];
  for (const r of rows) {
    const odd = oddOf(r);
    if (!odd) {
      left.push(r);
      continue;
    }
    const group = groups.get(odd.words) ?? { what: odd.what, rows: [], at: [], whole: true };
    groups.set(odd.words, group);
    group.rows.push(r);
    group.at.push(...odd.dims.map((i) => r * headDim + i));
    group.whole &&= odd.dims.length === headDim;
  }
  const turned = left.filter((r) => isTurned(heads, r));
  if (groups.size === 0 || 8 * turned.length < rows.length) return undefined;
  const entries = [...groups].map(([holds, { what, rows, at, whole }]): RowEntry => {
    const where = rowsWords(rows, heads);
    const places = at.length <= MAX_LISTED ? placesWords(at, heads) : `${at.length} elements in ${where}`;
    const dims = whole ? undefined : [...new Set(at.map((n) => n % heads.headDim))].sort((a, b) => a - b);
    const place = placesOf(rows, heads, dims);
    return { what, where: whole ? where : places, at: place, holds, rows: rows.length, elements: at.length };
  });
  const shown = rowsWords(left, heads);
  return { heads: { ...heads, rows: left }, rowSummary: { ...summaryOf(entries, shown, heads), shown } };
}

/** Whether a position of row r is not 0. */
function isTurned(heads: Heads, r: number): boolean {
  return positionsOf(heads, Math.floor(r / heads.heads)).some((p) => p !== 0);
}

/** Returns a function that finds the dimensions of a row with contents that no rotation writes. */
function oddIn(heads: Heads, withX: boolean) {
  const { headDim, x, y, dtype, rows } = heads;
  const dims = Array.from({ length: headDim }, (_, i) => i);
  // A dimension that is 0 in every row says nothing about a row.
  const used = dims.map((i) => rows.some((r) => y[r * headDim + i] !== 0));
  return (r: number): { what: What; words: string; dims: number[] } | undefined => {
    const from = r * headDim;
    const odd = dims.filter((i) => !Number.isFinite(y[from + i]!));
    if (odd.length > 0) {
      const nan = odd.filter((i) => Number.isNaN(y[from + i]!)).length;
      const words = nan === odd.length ? 'NaN' : nan > 0 ? 'NaN and infinities' : 'infinities';
      return { what: 'not finite', words, dims: odd };
    }
    const lit = dims.filter((i) => used[i]! && x[from + i] !== 0);
    const zeros = lit.filter((i) => y[from + i] === 0);
    if (4 * zeros.length > lit.length)
      return { what: 'zeros', words: 'zeros', dims: zeros.length === lit.length ? dims : zeros };
    if (headDim > 2 && y[from] !== x[from] && dims.every((i) => y[from + i] === y[from]))
      return { what: 'one value', words: `one value, ${Number(y[from]!.toPrecision(7))}`, dims };
    if (!withX || dims.some((i) => y[from + i] !== roundTo(dtype, x[from + i]!)) || !isTurned(heads, r))
      return undefined;
    return { what: 'x', words: 'x, not rotated', dims };
  };
}

function summaryOf(wrong: readonly RowEntry[], right: string, { rows, headDim }: Heads): RowSummary {
  return {
    elements: rows.length * headDim,
    wrongElements: wrong.reduce((sum, { elements }) => sum + elements, 0),
    right,
    wrong,
  };
}

/**
 * Whether right rows show that the rotation is right. A wrong frequency is wrong by the position, so a row that is right at
 * a large position makes clear errors at smaller and slightly larger ones something else.
 */
function isTelling({ wrong, right: ok, error }: Compared, right: RightRows): boolean {
  const farthest = ok.reduce((most, r) => Math.max(most, right.reach(r)), 0);
  const clear = wrong.filter(
    (r) => error[r]! * Math.min(1, farthest / Math.max(right.reach(r), Number.MIN_VALUE)) > CLEAR,
  );
  return farthest > 0 && 4 * clear.length >= 3 * wrong.length;
}

function entryOf(group: Group, { off }: Compared, right: RightRows): RowEntry {
  const { heads } = right;
  const { what, words, rows } = group;
  const elements = rows.reduce((sum, r) => sum + off[r]!, 0);
  const at = placesOf(rows, heads, group.dims);
  const entry = (where: string, holds = words): RowEntry => ({ what, where, at, holds, rows: rows.length, elements });
  const unknown = what === 'unknown';
  const few = unknown && 8 * elements <= rows.length * heads.headDim;
  const wrong = few || elements <= MAX_LISTED ? rows.flatMap((r) => right.wrongDims(r).map((i) => ({ r, i }))) : [];
  if (unknown && elements <= MAX_LISTED)
    return entry(
      placesWords(
        wrong.map(({ r, i }) => r * heads.headDim + i),
        heads,
      ),
    );
  const dims = dimsOf(group, heads);
  // Some elements are right by chance where a row holds another rotation, but they are not many.
  const some = unknown
    ? elements < (dims ? rows.length * dims.length : 0.75 * rows.length * heads.headDim)
    : group.some;
  const where = rowsWords(rows, heads);
  const inDims = dims ? `, ${dims.length === 1 ? 'dimension' : 'dimensions'} ${someRanges(dims)}` : '';
  // A race between the two stores of a pair makes only one member wrong.
  const members = new Set(wrong.map(({ i }) => (right.pairOf[i]! < 0 ? undefined : right.memberOf[i])));
  const [member] = few && members.size === 1 ? members : [];
  const holds = member === undefined ? words : `${words}; only ${member === 0 ? 'first' : 'second'} members of pairs`;
  return entry(`${some ? `${elements} elements in ` : ''}${where}${inDims}`, holds);
}

/** The dimensions of a group, if they are not most of a row that may be another rotation. */
function dimsOf({ what, dims }: Group, { headDim }: Heads): readonly number[] | undefined {
  return what === 'unknown' && 2 * dims!.length > headDim ? undefined : dims;
}

function placesWords(elements: readonly number[], heads: Heads): string {
  const { headDim } = heads;
  const rows = new Map<number, number[]>();
  for (const at of elements) {
    const r = Math.floor(at / headDim);
    rows.set(r, [...(rows.get(r) ?? []), at % headDim]);
  }
  const words = (r: number, dims: number[]): string =>
    `${rowsWords([r], heads)}, ${dims.length === 1 ? 'dimension' : 'dimensions'} ${ranges(dims)}`;
  return [...rows].map(([r, dims]) => words(r, dims)).join('; ');
}

/** The rows whose contents are known: others have been explained, or nothing can be said of them. */
export function explained({ rowSummary, right }: JudgedRows, heads: Heads): RowSummary {
  const wrong = rowSummary.wrong.filter(({ what }) => what !== 'unknown');
  const isAlone = wrong.length === 0 && right.length > 0; // no rows are listed whose other dimensions are right
  return { ...rowSummary, wrong, right: isAlone ? rowsWords(right, heads) : rowSummary.right };
}

function rightWords({ wrong, right, offByDim }: Compared, groups: readonly Group[], heads: Heads): string {
  const hasDims = groups.some((group) => dimsOf(group, heads) !== undefined);
  if (right.length > 0)
    return `${rowsWords(right, heads)}${hasDims ? ', and all other dimensions of the rows below' : ''}`;
  const dims = [...offByDim.keys()].filter((i) => offByDim[i] === 0);
  if (dims.length > 0) return `dimensions ${ranges(dims)} of every token`;
  const all = wrong.length * heads.headDim;
  const ok = all - offByDim.reduce((a, b) => a + b, 0);
  return ok > CHANCE * all ? `${ok} of ${all} elements` : '';
}

/**
 * Names rows: `heads 3-5 of every token`, `token 7`, `batch 1`.
 *
 * @param rows - in rising order, at least one
 */
export function rowsWords(rows: readonly number[], shape: Heads): string {
  const whole = productWords(rows, shape);
  if (whole) return whole;
  // Rows that are no product of batches, tokens and heads: tokens with the same heads are named together.
  const byToken = new Map<number, number[]>();
  for (const r of rows) {
    const token = Math.floor(r / shape.heads);
    byToken.set(token, [...(byToken.get(token) ?? []), r]);
  }
  const groups = new Map<string, number[]>();
  for (const [token, list] of byToken) {
    const key = `${Math.floor(token / shape.seq)}:${list.map((r) => r % shape.heads).join()}`;
    const known = groups.get(key);
    if (known) known.push(...list);
    else groups.set(key, list);
    if (groups.size > 4) return `${rows.length} rows, the first in ${productWords([rows[0]!], shape)}`;
  }
  return [...groups.values()].map((list) => productWords(list, shape)).join('; ');
}

/** The places of rows, as numbers. */
export function placesOf(rows: readonly number[], shape: Heads, dims?: readonly number[]): Places {
  const { heads, seq } = shape;
  const sorted = (of: (r: number) => number): number[] => [...new Set(rows.map(of))].sort((a, b) => a - b);
  return {
    batches: sorted((r) => Math.floor(r / (heads * seq))),
    tokens: sorted((r) => Math.floor(r / heads) % seq),
    heads: sorted((r) => r % heads),
    dims,
  };
}

function productWords(rows: readonly number[], shape: Heads): string | undefined {
  const { batches, tokens, heads } = placesOf(rows, shape);
  if (batches.length * tokens.length * heads.length !== rows.length) return undefined;
  const places = { head: heads, token: tokens, batch: batches };
  const counts = { head: shape.heads, token: shape.seq, batch: shape.batch };
  const parts = (['head', 'token', 'batch'] as const).flatMap((name) => {
    const list = places[name];
    if (list.length === counts[name])
      return name === 'token' && places.head.length < shape.heads ? ['every token'] : [];
    const plural = list.length === 1 ? '' : name === 'batch' ? 'es' : 's';
    return [`${name}${plural} ${someRanges(list)}`];
  });
  return parts.length > 0 ? parts.join(' of ') : 'every token';
}

/** Numbers as ranges, shortened if they are many. */
function someRanges(numbers: readonly number[]): string {
  const step = (numbers[1] ?? 0) - numbers[0]!;
  if (numbers.length > 3 && step > 1 && numbers.every((n, at) => n === numbers[0]! + at * step))
    return `${numbers[0]}, ${numbers[1]}, … ${numbers.at(-1)} (each ${step} apart)`;
  const parts = ranges(numbers).split(', ');
  return parts.length > 8 ? `${parts.slice(0, 6).join(', ')}, … ${parts.at(-1)}` : parts.join(', ');
}
