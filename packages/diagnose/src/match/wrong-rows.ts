/** Which tokens, heads, batches and dimensions of y are as expected, and what the others hold. @module */
import { roundTo } from 'ropewalk';
import { ranges } from 'ropewalk/internal';
import { RightRows } from '../kernel/right-rows.js';
import type { Hypothesis } from '../kernel/trial.js';
import type { Expected } from '../read/expected.js';
import { describeRow, everyRow, type Heads } from '../read/observation.js';
import { productOf, rowsWords, someRanges } from '../read/row-words.js';
import { hypothesesOf } from './hypotheses.js';
import { type Group, RowContents, type What } from './row-contents.js';

/** Elements that hold the same. */
export interface RowEntry {
  readonly what: What;
  /** Where they are, in words. */
  readonly where: string;
  /** What they hold, in words. */
  readonly holds: string;
  /** Heads of tokens that have such elements. */
  readonly rows: number;
  readonly elements: number;
}

/** Every element of y against the right kernel. */
export interface RowSummary {
  /** Elements of y, and those that are not as expected. */
  readonly elements: number;
  readonly wrongElements: number;
  /**
   * What is as expected, in words; without an expectation, what was rotated. Undefined where the rest is another
   * rotation.
   */
  readonly right: string | undefined;
  /** What the other elements hold. */
  readonly wrong: readonly RowEntry[];
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
  /** By row: 1 where every element is as expected. */
  readonly isRight: Uint8Array;
  /** By row: 1 where most elements are wrong and it is not known what they hold; undefined where no row is. */
  readonly unknown: Uint8Array | undefined;
}

/** The rows that remain, and what the others hold. */
export interface RowsAside {
  readonly live: Uint8Array;
  readonly rowSummary: RowSummary;
}

/** An error this many times the noise is not from rounding. */
const CLEAR = 4;
/** Wrong elements that are listed one by one. */
const MAX_LISTED = 8;

/** Sums up the rows of y; undefined where every element is as expected. */
export function summarizeRows(expected: Expected, heads: Heads): JudgedRows | undefined {
  const [{ steps }] = hypothesesOf(expected, heads, []) as [Hypothesis];
  const right = new RightRows(steps, heads);
  const seen = compare(right, heads);
  if (seen.wrong.length === 0) return undefined;
  const contents = new RowContents(heads, right);
  const most = (r: number): boolean => 8 * seen.off[r]! > heads.headDim;
  const groups = contents
    .groupsOf(seen.wrong)
    .flatMap((group) => (group.what === 'unknown' ? bySize(group, most) : [group]));
  const known = groups.every(({ what }) => what !== 'unknown');
  const simple = groups.every(({ what, dims }) => ELSEWHERE.has(what) || (dims && what !== 'x'));
  const few = 8 * seen.wrong.length <= 7 * seen.isRight.length;
  const here = isTelling(seen, right) && (known || few);
  return {
    rowSummary: censusOf(
      groups.map((group) => entryOf(group, seen, contents, heads)),
      rightWords(seen, groups, heads),
      heads,
    ),
    local: here ? 'here and there' : known && simple ? 'all explained' : 'no',
    isRight: seen.isRight,
    unknown: marked(
      groups.flatMap(({ what, rows }) => (what === 'unknown' ? rows.filter(most) : [])),
      heads,
    ),
  };
}

/**
 * Sets aside the rows that hold no rotation, whatever is expected.
 *
 * @param withX - also those that hold x although their position is not 0
 * @returns undefined where there are none, or too few others
 */
export function rowsAside(heads: Heads, withX: boolean): RowsAside | undefined {
  const rows = everyRow(heads);
  const oddOf = oddIn(heads, withX);
  const groups = new Map<string, { what: What; rows: number[]; at: number[]; whole: boolean }>();
  const live = new Uint8Array(rows.length).fill(1);
  for (const r of rows) {
    const odd = oddOf(r);
    if (!odd) continue;
    live[r] = 0;
    const known = groups.get(odd.words);
    const places = odd.dims.map((i) => r * heads.headDim + i);
    const whole = odd.dims.length === heads.headDim;
    if (!known) groups.set(odd.words, { what: odd.what, rows: [r], at: places, whole });
    else {
      known.rows.push(r);
      known.at.push(...places);
      known.whole &&= whole;
    }
  }
  const left = everyRow({ ...heads, live });
  const turned = left.filter((r) => describeRow(heads, r).positions.some((p) => p !== 0));
  if (groups.size === 0 || 8 * turned.length < rows.length) return undefined;
  const entries = [...groups].map(([words, { what, rows, at, whole }]): RowEntry => {
    const where = rowsWords(rows, heads);
    const places = whole
      ? where
      : at.length <= MAX_LISTED
        ? placesWords(at, heads)
        : `${at.length} elements in ${where}`;
    return { what, where: places, holds: words, rows: rows.length, elements: at.length };
  });
  return { live, rowSummary: censusOf(entries, rowsWords(left, heads), heads) };
}

/** Looks at one row: which of its dimensions hold what no rotation writes. */
function oddIn(heads: Heads, withX: boolean) {
  const { headDim, x, y, dtype } = heads;
  const rows = everyRow(heads);
  const dims = Array.from({ length: headDim }, (_what, i) => i);
  // A dimension that is 0 in every row says nothing about a row.
  const used = dims.map((i) => rows.some((r) => y[r * headDim + i] !== 0));
  return (r: number): { what: What; words: string; dims: number[] } | undefined => {
    const from = r * headDim;
    const where = (test: (at: number, i: number) => boolean): number[] => dims.filter((i) => test(from + i, i));
    const odd = where((at) => !Number.isFinite(y[at]!));
    if (odd.length > 0) {
      const nan = odd.filter((i) => Number.isNaN(y[from + i]!)).length;
      return {
        what: 'not finite',
        words: nan === odd.length ? 'NaN' : nan > 0 ? 'NaN and infinities' : 'infinities',
        dims: odd,
      };
    }
    const lit = where((at, i) => used[i]! && x[at] !== 0);
    const zeros = lit.filter((i) => y[from + i] === 0);
    if (4 * zeros.length > lit.length)
      return { what: 'zeros', words: 'zeros', dims: zeros.length === lit.length ? dims : zeros };
    if (headDim > 2 && y[from] !== x[from] && dims.every((i) => y[from + i] === y[from]))
      return { what: 'one value', words: `one value, ${Number(y[from]!.toPrecision(7))}`, dims };
    if (!withX || dims.some((i) => y[from + i] !== roundTo(dtype, x[from + i]!))) return undefined;
    if (describeRow(heads, r).positions.every((p) => p === 0)) return undefined;
    return { what: 'x', words: 'x, not rotated', dims };
  };
}

function marked(rows: readonly number[], { batch, seq, heads }: Heads): Uint8Array | undefined {
  if (rows.length === 0) return undefined;
  const marks = new Uint8Array(batch * seq * heads);
  for (const r of rows) marks[r] = 1;
  return marks;
}

function censusOf(wrong: readonly RowEntry[], right: string, { y }: Heads): RowSummary {
  return { elements: y.length, wrongElements: wrong.reduce((sum, { elements }) => sum + elements, 0), right, wrong };
}

/** Rows that may be another rotation, and rows with single wrong elements. */
function bySize(group: Group, most: (r: number) => boolean): Group[] {
  const parts = [group.rows.filter(most), group.rows.filter((r) => !most(r))];
  return parts.filter((rows) => rows.length > 0).map((rows) => ({ ...group, rows }));
}

/** Right results in wrong places: a kernel that rotates otherwise does not write them. */
const ELSEWHERE: ReadonlySet<What> = new Set(['another row', 'another row of x', 'a copy', 'in place']);

interface Compared {
  /** Rows with wrong elements. */
  readonly wrong: readonly number[];
  /** By row: 1 where all elements are as expected, and the number of those that are not. */
  readonly isRight: Uint8Array;
  readonly off: Uint32Array;
  /** By row: the largest error in units of its noise. */
  readonly error: Float32Array;
  /** By dimension: in how many rows it is wrong. */
  readonly offByDim: Float64Array;
}

function compare(right: RightRows, heads: Heads): Compared {
  const { headDim, y } = heads;
  const rows = y.length / headDim;
  const [made, noise] = [new Float64Array(headDim), new Float64Array(headDim)];
  const wrong: number[] = [];
  const isRight = new Uint8Array(rows);
  const off = new Uint32Array(rows);
  const error = new Float32Array(rows);
  const offByDim = new Float64Array(headDim);
  for (let r = 0; r < rows; r++) {
    right.fill(r, made, noise);
    const from = r * headDim;
    let worst = 0;
    for (let i = 0; i < headDim; i++) {
      const difference = Math.abs(y[from + i]! - made[i]!);
      if (difference <= noise[i]!) continue;
      off[r]!++;
      offByDim[i]!++;
      const ratio = difference / noise[i]!;
      worst = Math.max(worst, Number.isNaN(ratio) ? Infinity : ratio);
    }
    error[r] = worst;
    if (off[r] === 0) isRight[r] = 1;
    else wrong.push(r);
  }
  return { wrong, isRight, off, error, offByDim };
}

/**
 * Whether right rows show that the rotation is right: a wrong frequency is wrong by the position, so a row that is right
 * at a large position makes clear errors at smaller and slightly larger ones something else.
 */
function isTelling({ wrong, isRight, error }: Compared, right: RightRows): boolean {
  let farthest = 0;
  for (let r = 0; r < isRight.length; r++) if (isRight[r]) farthest = Math.max(farthest, right.reach(r));
  const clear = wrong.filter(
    (r) => error[r]! * Math.min(1, farthest / Math.max(right.reach(r), Number.MIN_VALUE)) > CLEAR,
  );
  return farthest > 0 && 4 * clear.length >= 3 * wrong.length;
}

function entryOf(group: Group, { off }: Compared, contents: RowContents, heads: Heads): RowEntry {
  const { what, words, rows } = group;
  const elements = rows.reduce((sum, r) => sum + off[r]!, 0);
  const entry = (where: string, holds = words): RowEntry => ({ what, where, holds, rows: rows.length, elements });
  const unknown = what === 'unknown';
  if (unknown && elements <= MAX_LISTED)
    return entry(
      placesWords(
        rows.flatMap((r) => contents.wrongDims(r).map((i) => r * heads.headDim + i)),
        heads,
      ),
    );
  const dims = dimsOf(group, heads);
  // At position 0, x is right: such rows belong to the others all the same.
  const around = group.also && !dims ? productOf(rows, heads) : rows;
  const own = new Set(rows);
  const where = rowsWords(around.every((r) => own.has(r) || (off[r] === 0 && group.also?.(r))) ? around : rows, heads);
  const inDims = dims ? `, ${dims.length === 1 ? 'dimension' : 'dimensions'} ${someRanges(dims)}` : '';
  const few = unknown && 8 * elements <= rows.length * heads.headDim;
  // A race between the two stores of a pair.
  const member = few ? contents.memberOf(rows) : undefined;
  const holds = member ? `${words}; only ${member} members of pairs` : words;
  return entry(`${few ? `${elements} elements in ` : ''}${where}${inDims}`, holds);
}

/** Of a row that may be another rotation, some dimensions are right by chance. */
function dimsOf({ what, dims }: Group, { headDim }: Heads): readonly number[] | undefined {
  return what === 'unknown' && 2 * dims!.length > headDim ? undefined : dims;
}

/** Single elements of y. */
function placesWords(elements: readonly number[], heads: Heads): string {
  const { headDim } = heads;
  return elements.map((at) => `${rowsWords([Math.floor(at / headDim)], heads)}, dimension ${at % headDim}`).join('; ');
}

function rightWords({ wrong, isRight, offByDim }: Compared, groups: readonly Group[], heads: Heads): string {
  const rows = everyRow({ ...heads, live: isRight });
  const rest = groups.some((group) => dimsOf(group, heads) !== undefined)
    ? ', and all other dimensions of the rows below'
    : '';
  if (rows.length > 0) return `${rowsWords(rows, heads)}${rest}`;
  const dims = [...offByDim.keys()].filter((i) => offByDim[i] === 0);
  if (dims.length > 0) return `dimensions ${ranges(dims)} of every token`;
  const count = offByDim.reduce((a, b) => a + b, 0);
  return `${wrong.length * heads.headDim - count} of ${wrong.length * heads.headDim} elements`;
}
