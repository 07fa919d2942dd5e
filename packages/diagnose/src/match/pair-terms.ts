/**
 * The terms that each dimension of y is made of, where its pairs keep no length. Each dimension is compared by itself with
 * terms of the expected rotation, and a sentence is made only if the terms give y within noise. @module
 */
import { type FloatDtype, roundTo } from 'ropewalk';
import { groupBy, ranges, UNIT_ROUNDOFF } from 'ropewalk/internal';
import { storedNoise } from '../kernel/noise.js';
import type { Angles, RightRows } from '../kernel/right-rows.js';
import { sampleRows } from '../measure/sample.js';
import { AXIS_NAMES, type Heads, positionsOf, widened } from '../read/observation.js';
import { rowsWords } from './wrong-rows.js';

interface Row {
  readonly x: Float64Array;
  readonly y: Float64Array;
  readonly angles: Angles;
  /** The largest |x|, times the magnitude. */
  readonly size: number;
}

/** A dimension that the expected rotation writes, and its terms. */
interface Dim {
  readonly dim: number;
  readonly pair: number;
  /** The member of the pair that it is. */
  readonly which: 0 | 1;
  /** The dimensions of x that cos and sin are multiplied with. */
  readonly by: readonly [cos: number, sin: number];
  /** The pair whose angle it has. */
  readonly angle: number;
  /** The factors of the cos term, of the sin term, and of x without either. */
  readonly cos: number;
  readonly sin: number;
  readonly x: number;
}

type Terms = Pick<Dim, 'cos' | 'sin' | 'x'> & { readonly words: string };

const TERMS: readonly Terms[] = [
  { cos: 1, sin: 1, x: 0, words: 'as expected' },
  { cos: 0, sin: 0, x: 1, words: 'x, not rotated' },
  { cos: 1, sin: 0, x: 0, words: 'x × cos without the sin term' },
  { cos: 0, sin: 1, x: 0, words: 'the sin term without x × cos' },
  { cos: 1, sin: -1, x: 0, words: 'rotated with the opposite sign of the sin term' },
  { cos: -1, sin: 1, x: 0, words: 'rotated with the opposite sign of x × cos' },
  { cos: -1, sin: -1, x: 0, words: 'the expected values × −1' },
  { cos: 0, sin: 0, x: 0, words: '0' },
];

/** Terms of all dimensions, and the sentences that describe them. */
interface Reading {
  readonly dims: readonly Dim[];
  readonly words: readonly string[];
}

/** The dimensions of a head, and a sample of rows to compare them with. */
interface Search {
  readonly heads: Heads;
  readonly rows: readonly Row[];
  readonly dims: readonly Dim[];
  /** Whether some terms give a dimension in the sample. */
  readonly fits: (one: Dim) => boolean;
}

/** Describes the contents of the dimensions in sentences; empty if no such terms give y in every row. */
export function describePairTerms(right: RightRows): readonly string[] {
  const { heads, steps } = right;
  const { dtype, headDim } = heads;
  const magnitude = Math.max(1, Math.abs(steps.frequencies().attentionFactor));
  const rowOf = (r: number): Row => {
    const x = right.input(r).slice();
    const size = magnitude * x.reduce((most, v) => Math.max(most, Math.abs(v)), 0);
    const y = widened(heads.y.subarray(r * headDim, (r + 1) * headDim));
    return { x, y, angles: right.anglesOf(Math.floor(r / heads.heads)), size };
  };
  const dims: Dim[] = [];
  const beside: number[] = [];
  for (const [dim, pair] of right.pairOf.entries()) {
    if (pair < 0) {
      beside.push(dim);
      continue;
    }
    const which = right.memberOf[dim] as 0 | 1;
    const { read } = right.membersOf(pair);
    dims.push({ ...TERMS[0]!, dim, pair, which, by: [read[which]!, read[1 - which]!], angle: pair });
  }
  // A norm rounds its results once or twice.
  const isCopy = ({ x, y, size }: Row, i: number): boolean =>
    heads.norm ? Math.abs(x[i]! - y[i]!) <= 4 * storedNoise(dtype, x[i]!, size) : roundTo(dtype, x[i]!) === y[i];
  const rows = sampleRows(heads).map(rowOf);
  const everywhere = (some: readonly Dim[], copies: readonly number[]): boolean =>
    heads.rows.every((r) => {
      const row = rowOf(r);
      return some.every((one) => gives(one, row, dtype)) && copies.every((i) => isCopy(row, i));
    });
  const other = beside.filter((i) => rows.some((row) => !isCopy(row, i)));
  const search: Search = { heads, rows, dims, fits: (one) => rows.every((row) => gives(one, row, dtype)) };
  const found =
    other.length > 0
      ? { dims, words: [besideWords(search, other, rowOf, isCopy)] }
      : (byTerms(search) ??
        byAngles(search, right.pairs) ??
        byPartners(search) ??
        bySources(search) ??
        byFactors(search));
  const copies = beside.filter((i) => !other.includes(i));
  return found && everywhere(found.dims, copies) ? found.words : (bySlide(right) ?? byOrder(right) ?? []);
}

function besideWords(
  { heads, dims }: Search,
  other: readonly number[],
  rowOf: (r: number) => Row,
  isCopy: (row: Row, i: number) => boolean,
): string {
  const turned = ranges(dims.map(({ dim }) => dim).sort((a, b) => a - b));
  const isRight = (r: number): boolean => other.every((i) => isCopy(rowOf(r), i));
  const right = heads.rows.filter(isRight);
  const except = right.length > 0 ? `, except in ${rowsWords(right, heads)}` : '';
  return `Dimensions ${ranges(other)} should be copies of x${heads.norm ? ' after the norm' : ''} and are not${except}; dimensions ${turned} are as expected.`;
}

/** Says by which axes a pair is rotated. */
export function byAxis(axes: readonly number[], wanted: number): string {
  return `by ${axes.map((axis) => AXIS_NAMES[axis]).join('/')} instead of ${AXIS_NAMES[wanted]}`;
}

/** Says which pairs are rotated by another axis. */
export function otherAxes(pairs: readonly (readonly [pair: number, by: string])[]): string {
  const shown = [...groupBy(pairs, ([, by]) => by)].map(([by, some]) => {
    return `${some.length > 1 ? 'pairs' : 'pair'} ${ranges(some.map(([pair]) => pair))} ${by}`;
  });
  const all = pairs.length === 1 ? '1 pair is' : `${pairs.length} pairs are`;
  return `${all} seen to rotate by another axis: ${shown.slice(0, 4).join('; ')}${shown.length > 4 ? '; …' : ''}.`;
}

/** Describes dimensions that rotate by the positions of other axes than expected; empty if that does not give y. */
export function describeAxes(right: RightRows): readonly string[] {
  const { heads, steps } = right;
  const { numAxes, headDim, dtype } = heads;
  if (numAxes < 2) return [];
  const axes = Array.from({ length: numAxes }, (_, axis) => axis);
  const dims = [...right.pairOf.entries()].flatMap(([dim, pair]) =>
    pair < 0 ? [] : [{ dim, pair, which: right.memberOf[dim] as 0 | 1, wanted: steps.axisOfPair(pair), left: axes }],
  );
  for (const r of [...sampleRows(heads), ...heads.rows]) {
    const angles = positionsOf(heads, Math.floor(r / heads.heads)).map((p) => right.anglesAt(axes.map(() => p)));
    const x = right.input(r);
    const size = x.reduce((most, v) => Math.max(most, Math.abs(v)), 0);
    const row = { x, y: widened(heads.y.subarray(r * headDim, (r + 1) * headDim)), size };
    for (const one of dims) {
      const { read } = right.membersOf(one.pair);
      const by = [read[one.which]!, read[1 - one.which]!] as const;
      const at = { ...TERMS[0]!, ...one, by, angle: one.pair };
      one.left = one.left.filter((axis) => gives(at, { ...row, angles: angles[axis]! }, dtype));
      if (one.left.length === 0) return [];
    }
  }
  const off = dims.filter(({ left, wanted }) => !left.includes(wanted));
  // On an axis whose positions are all 0 a pair does not rotate, which is simpler.
  const isStill = (axis: number): boolean =>
    heads.rows.every((r) => positionsOf(heads, Math.floor(r / heads.heads))[axis] === 0);
  if (off.some(({ left }) => isStill(left[0]!))) return [];
  // An axis that all pairs of an axis may have is likelier than one for each.
  const shared = new Map(
    [...groupBy(off, ({ wanted }) => wanted)].map(([wanted, some]) => {
      return [wanted, axes.find((axis) => some.every(({ left }) => left.includes(axis)))] as const;
    }),
  );
  for (const one of off) {
    const axis = shared.get(one.wanted);
    if (axis !== undefined) one.left = [axis];
  }
  const name = ({ left, wanted }: (typeof off)[number]): string => byAxis([left[0]!], wanted);
  const isWhole = (one: (typeof off)[number]): boolean =>
    off.filter(({ pair, left }) => pair === one.pair && left[0] === one.left[0]).length === 2;
  if (off.length > 0 && off.every(isWhole))
    return [otherAxes(off.filter(({ which }) => which === 0).map((one) => [one.pair, name(one)]))];
  const told = [...new Set(off.map(name))].map((by) => {
    const some = off.filter((one) => name(one) === by).map(({ dim }) => dim);
    return `${ranges(some)} ${by}`;
  });
  return told.length === 0 ? [] : [`Dimensions rotate by the positions of other axes: ${told.join('; ')}.`];
}

/** The farthest that results may be from their place. */
const FARTHEST = 8;

/** All results of a head, some elements away from their place. */
function bySlide(right: RightRows): string[] | undefined {
  const { heads } = right;
  const { headDim, y } = heads;
  const [made, noise] = [new Float64Array(headDim), new Float64Array(headDim)];
  let left = Array.from({ length: 2 * FARTHEST + 1 }, (_, n) => n - FARTHEST).filter((n) => n !== 0);
  for (const r of [...sampleRows(heads), ...heads.rows]) {
    right.fill(r, made, noise);
    left = left.filter((by) => {
      for (let i = Math.max(0, by); i < Math.min(headDim, headDim + by); i++)
        if (Math.abs(y[r * headDim + i]! - made[i - by]!) > noise[i - by]!) return false;
      return true;
    });
    if (left.length === 0) return undefined;
  }
  if (left.length > 1) return undefined;
  const [by] = left as [number];
  const from = by > 0 ? `i − ${by}` : `i + ${-by}`;
  return [`Dimension i of every head holds the expected value of dimension ${from}, where there is one.`];
}

/** The orders of dimensions that have words. */
function* orders(headDim: number): Generator<[words: string, from: (i: number) => number]> {
  yield [`${headDim - 1} − i`, (i) => headDim - 1 - i];
  for (let mask = 1; mask < headDim; mask++) yield [`i XOR ${mask}`, (i) => i ^ mask];
  for (let by = 1; by < headDim; by++) yield [`(i + ${by}) mod ${headDim}`, (i) => (i + by) % headDim];
}

/** All results of a head, in another order. */
function byOrder(right: RightRows): string[] | undefined {
  const { heads } = right;
  const { headDim, y } = heads;
  const [made, noise] = [new Float64Array(headDim), new Float64Array(headDim)];
  const all = Array.from({ length: headDim }, (_, i) => i);
  let from = all.map(() => all);
  for (const r of [...sampleRows(heads), ...heads.rows]) {
    right.fill(r, made, noise);
    from = from.map((some, i) => some.filter((k) => Math.abs(y[r * headDim + i]! - made[k]!) <= noise[k]!));
    if (from.some((some) => some.length === 0)) return undefined;
  }
  const found = from.map(([k]) => k!);
  // Dimensions that hold the same in every row would have several origins.
  if (from.some((some) => some.length > 1) || new Set(found).size < headDim) return undefined;
  const off = all.filter((i) => found[i] !== i);
  const rule = [...orders(headDim)].find(([, of]) => off.every((i) => of(i) === found[i]));
  const others = off.length === headDim ? '' : `, for i of ${ranges(off)}; all others are as expected`;
  if (rule) return [`In every head, dimension i holds the expected value of dimension ${rule[0]}${others}.`];
  const shown = off.slice(0, 6).map((i) => `${i} that of ${found[i]}`);
  const rest = off.length > 6 ? ', …' : '';
  return [`The expected values of every head are in another order: dimension ${shown.join(', ')}${rest}.`];
}

function gives({ dim, which, by, angle, cos, sin, x: plain }: Dim, row: Row, dtype: FloatDtype): boolean {
  const { x, y, angles, size } = row;
  const [a, b] = [cos * x[by[0]]!, sin * x[by[1]]!];
  const s = which === 0 ? -angles.sin[angle]! : angles.sin[angle]!;
  const value = a * angles.cos[angle]! + b * s + plain * x[dim]!;
  const largest = Math.max(1, Math.abs(cos), Math.abs(sin));
  return (
    Math.abs(y[dim]! - value) <= storedNoise(dtype, value, largest * size) + Math.hypot(a, b) * angles.noise[angle]!
  );
}

/** Each member of the pairs has the same terms in all pairs. */
function byTerms({ dims, fits }: Search): Reading | undefined {
  const found: Dim[] = [];
  const words: string[] = [];
  for (const which of [0, 1] as const) {
    const some = dims.filter((one) => one.which === which);
    const fit = TERMS.filter((terms) => some.every((one) => fits({ ...one, ...terms })));
    const [first] = fit;
    if (!first) return undefined;
    found.push(...some.map((one) => ({ ...one, ...first })));
    const said = (first === TERMS[0] ? [first] : fit).map((terms) => terms.words).join(', or ');
    const all = ranges(some.map(({ dim }) => dim));
    words.push(`Dimensions ${all}, the ${which === 0 ? 'first' : 'second'} members of the pairs, are ${said}.`);
  }
  const isRight = (line: string): boolean => line.endsWith('are as expected.');
  if (words.every(isRight)) return undefined;
  return { dims: found, words: words.sort((a, b) => Number(isRight(a)) - Number(isRight(b))) };
}

/** Each dimension rotates by the angle of some pair. */
function byAngles({ dims, fits }: Search, pairs: number): Reading | undefined {
  const all = Array.from({ length: pairs }, (_, j) => j);
  const angles = dims.map((one) => all.filter((angle) => fits({ ...one, angle })));
  if (angles.some((some) => some.length === 0)) return undefined;
  const first = dims[0]!.dim;
  const modulo = dims.every(({ dim }, n) => angles[n]!.includes((dim - first) % pairs));
  const found = dims.map((one, n): Dim => {
    const angle = modulo ? (one.dim - first) % pairs : angles[n]!.includes(one.pair) ? one.pair : angles[n]![0]!;
    return { ...one, angle };
  });
  // Slow pairs may rotate by angles that look alike.
  const sharp = found.filter(({ pair }, n) => angles[n]!.length === 1 && angles[n]![0] !== pair);
  if (sharp.length === 0) return undefined;
  const shown = sharp
    .slice(0, 3)
    .map(({ dim, pair, angle }) => `dimension ${dim} by that of pair ${angle} instead of ${pair}`);
  const index = first > 0 ? `(i − ${first})` : 'i';
  const rule = modulo ? `, …; dimension i by that of pair ${index} mod ${pairs}` : sharp.length > 3 ? ', …' : '';
  return { dims: found, words: [`The members of a pair rotate by different angles: ${shown.join(', ')}${rule}.`] };
}

/** The sin term of each dimension has another dimension of x, by one rule. */
function byPartners({ heads, dims, fits }: Search): Reading | undefined {
  const written = new Set(dims.map(({ dim }) => dim));
  for (const [rule, of] of orders(heads.headDim)) {
    const found = dims.map((one): Dim => ({ ...one, by: [one.by[0], of(one.dim)] }));
    if (!found.every((one) => written.has(one.by[1]) && fits(one))) continue;
    const [{ dim, by }, was] = [found[0]!, dims[0]!.by];
    const words = `The sin term of dimension i has x[${rule}]: dimension ${dim} that of x[${by[1]}] instead of x[${was[1]}].`;
    return { dims: found, words: [words] };
  }
  return undefined;
}

/** More rules are no longer read. */
const MOST_RULES = 4;

/** Each dimension is the sum of a cos and a sin term, of other dimensions of x than expected. */
function bySources(search: Search): Reading | undefined {
  const { dims, fits } = search;
  const off: { one: Dim; was: Dim['by'] }[] = [];
  const found: Dim[] = [];
  for (const was of dims) {
    const one = fits(was) ? was : readingsOf(search, was).find(fits);
    if (!one) return undefined;
    if (one !== was) off.push({ one, was: was.by });
    found.push(one);
  }
  if (off.length === 0) return undefined;
  const words = `Dimensions of y come from other dimensions of x, ${off.length} in all: ${sourcesWords(off)}.`;
  return { dims: found, words: [words] };
}

/** The rules by which dimensions come from others, or the first dimensions if the rules are many. */
function sourcesWords(off: readonly { one: Dim; was: Dim['by'] }[]): string {
  const place = (i: number, dim: number): string => (i === dim ? 'i' : `i ${i > dim ? '+' : '−'} ${Math.abs(i - dim)}`);
  const words = ({ one: { by, sin }, was }: (typeof off)[number], at: (i: number) => string | number): string => {
    const terms = sin === 0 ? `x[${at(by[0])}] × cos alone` : `x[${at(by[0])}] × cos and x[${at(by[1])}] × sin`;
    return `from ${terms} instead of x[${at(was[0])}] and x[${at(was[1])}]`;
  };
  const rules = groupBy(off, (each) => words(each, (i) => place(i, each.one.dim)));
  if (rules.size <= MOST_RULES)
    return [...rules]
      .map(([rule, some]) => `dimension i ${rule}, for i of ${ranges(some.map(({ one }) => one.dim))}`)
      .join('; ');
  const shown = off.slice(0, 3).map((each) => `dimension ${each.one.dim} ${words(each, (i) => i)}`);
  return `${shown.join(', ')}${off.length > 3 ? ', …' : ''}`;
}

/** The dimensions of x whose cos and sin terms may give a dimension of y: the one of either, then the other. */
function readingsOf(search: Search, was: Dim): Dim[] {
  const { by } = was;
  const cos = sourceOf(search, was, 'cos');
  const sin = sourceOf(search, was, 'sin');
  const both = [
    [cos, sin],
    [by[0], sourceOf(search, was, 'sin', by[0])],
    [sourceOf(search, was, 'cos', by[1]), by[1]],
    [cos, sourceOf(search, was, 'sin', cos)],
    [sourceOf(search, was, 'cos', sin), sin],
  ].map(([a, b]) => ({ ...was, by: [a!, b!] as const }));
  return [...both, { ...was, sin: 0 }];
}

/** The dimension of x that goes best with y along cos or sin, without the other term if its dimension is known. */
function sourceOf({ heads, rows }: Search, { dim, which, pair }: Dim, term: 'cos' | 'sin', other?: number): number {
  const sign = (of: 'cos' | 'sin'): number => (of === 'sin' && which === 0 ? -1 : 1);
  const rest = term === 'cos' ? 'sin' : 'cos';
  let best = { i: 0, share: -1 };
  for (let i = 0; i < heads.headDim; i++) {
    let [both, squares] = [0, 0];
    for (const { x, y, angles } of rows) {
      const t = x[i]! * angles[term][pair]! * sign(term);
      both += t * (y[dim]! - (other === undefined ? 0 : x[other]! * angles[rest][pair]! * sign(rest)));
      squares += t * t;
    }
    const share = squares > 0 ? both / Math.sqrt(squares) : 0;
    if (share > best.share) best = { i, share };
  }
  return best.i;
}

/** Each dimension of x was multiplied by a factor before it was rotated. */
function byFactors(search: Search): Reading | undefined {
  const { heads, dims, fits } = search;
  const factors = factorsOf(search);
  const by = (factor: (i: number) => number): Dim[] =>
    dims.map((one) => ({ ...one, cos: factor(one.by[0]), sin: factor(one.by[1]) }));
  const measured = by((i) => factors[i]!);
  if (!measured.every(fits)) return undefined;
  const read = [...new Set(dims.flatMap((one) => one.by))];
  for (const digits of [2, 3, 4, 5]) {
    const one = Number(factors[read[0]!]!.toPrecision(digits));
    const same = by(() => one);
    if (same.every(fits)) return { dims: same, words: [`The expected values are multiplied by ${one}.`] };
  }
  const size = (pick: (...all: number[]) => number): number =>
    Number(pick(...read.map((i) => factors[i]!)).toPrecision(2));
  const start = 'Each dimension of x is multiplied by a factor of its own before it is rotated';
  const sentence = `${start}, from about ${size(Math.min)} to ${size(Math.max)}`;
  const weight = heads.norm?.weight.readNumbers() as Float64Array | undefined;
  if (weight && read.length === heads.headDim) {
    const added = Array.from(factors, (g, i) => (g - 1) * weight[i]!).sort((a, b) => a - b);
    const whole = Math.round(added[heads.headDim >> 1]!);
    const found = by((i) => 1 + whole / weight[i]!);
    if (whole !== 0 && found.every(fits)) {
      const what = whole > 0 ? `${whole} is added to` : `${-whole} is taken from`;
      return { dims: found, words: [`${sentence}: ${what} the norm's weight.`] };
    }
  }
  return { dims: measured, words: [`${sentence}.`] };
}

/** The factor of each dimension of x, from y rotated back. */
function factorsOf({ heads: { headDim }, rows, dims }: Search): Float64Array {
  const [both, squares] = [new Float64Array(headDim), new Float64Array(headDim)];
  for (const { x, y, angles } of rows) {
    for (const { dim, pair, which, by } of dims) {
      const [c, s] = [angles.cos[pair]!, which === 0 ? -angles.sin[pair]! : angles.sin[pair]!];
      // Angles in f32 are off at far positions.
      const weight = (angles.noise[pair]! + UNIT_ROUNDOFF.f32) ** -2;
      both[by[0]]! += weight * x[by[0]]! * c * y[dim]!;
      both[by[1]]! += weight * x[by[1]]! * s * y[dim]!;
      squares[by[0]]! += weight * (x[by[0]]! * c) ** 2;
      squares[by[1]]! += weight * (x[by[1]]! * s) ** 2;
    }
  }
  return both.map((sum, i) => (squares[i]! > 0 ? sum / squares[i]! : 1));
}
