/**
 * What each dimension of y is made of where its pairs keep no length: each member of a pair is compared by itself with
 * terms of the expected rotation. A sentence is made only where the terms give y within noise. @module
 */
import { type FloatDtype, roundTo } from 'ropewalk';
import { ranges } from 'ropewalk/internal';
import { sampleRows } from '../fit/rebuild.js';
import { storedNoise } from '../kernel/noise.js';
import { type Angles, RightRows } from '../kernel/right-rows.js';
import type { Hypothesis } from '../kernel/trial.js';
import type { Expected } from '../read/expected.js';
import { everyRow, type Heads } from '../read/observation.js';
import { hypothesesOf } from './hypotheses.js';

/** One row of the sample. */
interface Row {
  readonly x: Float64Array;
  readonly y: Float64Array;
  readonly angles: Angles;
  /** The largest |x|, times the magnitude. */
  readonly size: number;
}

/** A dimension that the expected rotation writes, and what it is made of. */
interface Member {
  readonly dim: number;
  readonly pair: number;
  readonly which: 0 | 1;
  /** The dimensions of x that cos and sin are multiplied with. */
  readonly by: readonly [cos: number, sin: number];
  /** The pair whose angle it is. */
  readonly angle: number;
  /** Factors of the cos term, of the sin term, and of x without either. */
  readonly cos: number;
  readonly sin: number;
  readonly x: number;
}

type Terms = Pick<Member, 'cos' | 'sin' | 'x'> & { readonly words: string };

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

/** What all dimensions are made of, and the sentences that say so. */
interface Reading {
  readonly members: readonly Member[];
  readonly words: readonly string[];
}

/** Sentences on what the dimensions hold; empty where no such terms give y in every row. */
export function describePairTerms(expected: Expected, heads: Heads): readonly string[] {
  const [{ steps }] = hypothesesOf(expected, heads, []) as [Hypothesis];
  const right = new RightRows(steps, heads);
  const { headDim } = heads;
  const magnitude = Math.max(1, Math.abs(steps.frequencies().attentionFactor));
  const rowOf = (r: number): Row => {
    const x = right.input(r).slice();
    const size = magnitude * x.reduce((most, v) => Math.max(most, Math.abs(v)), 0);
    const y = heads.y.subarray(r * headDim, (r + 1) * headDim);
    return { x, y, angles: right.anglesOf(Math.floor(r / heads.heads)), size };
  };
  const members: Member[] = [];
  const beside: number[] = [];
  for (let dim = 0; dim < headDim; dim++) {
    const pair = right.pairOf[dim]!;
    if (pair < 0) {
      beside.push(dim);
      continue;
    }
    const which = right.memberOf[dim] as 0 | 1;
    const { read } = right.membersOf(pair);
    members.push({ ...TERMS[0]!, dim, pair, which, by: [read[which]!, read[1 - which]!], angle: pair });
  }
  const { dtype } = heads;
  // A norm rounds its results, once or twice.
  const isCopy = ({ x, y, size }: Row, i: number): boolean =>
    heads.norm ? Math.abs(x[i]! - y[i]!) <= 4 * storedNoise(dtype, x[i]!, size) : roundTo(dtype, x[i]!) === y[i];
  const sample = new Members(heads, sampleRows(heads).map(rowOf), members);
  const everywhere = (of: readonly Member[], copies: readonly number[]): boolean =>
    everyRow(heads).every((r) => {
      const row = rowOf(r);
      return of.every((one) => gives(one, row, dtype)) && copies.every((i) => isCopy(row, i));
    });
  const other = new Set(beside.filter((i) => sample.rows.some((row) => !isCopy(row, i))));
  if (other.size > 0) {
    if (
      !everywhere(
        members,
        beside.filter((i) => !other.has(i)),
      )
    )
      return bySlide(right, heads);
    const turned = ranges(members.map(({ dim }) => dim).sort((a, b) => a - b));
    return [
      `Dimensions ${ranges([...other])} should be copies of x${heads.norm ? ' after the norm' : ''} and are not; dimensions ${turned} are as expected.`,
    ];
  }
  const found = sample.byTerms() ?? sample.byAngles(right.pairs) ?? sample.bySources() ?? sample.byFactors();
  return found && everywhere(found.members, beside) ? found.words : bySlide(right, heads);
}

/** The farthest that results may be from their place. */
const FARTHEST = 8;

/** All results of a head, some elements away from where they belong. */
function bySlide(right: RightRows, heads: Heads): string[] {
  const { headDim, y } = heads;
  const [made, noise] = [new Float64Array(headDim), new Float64Array(headDim)];
  let left = Array.from({ length: 2 * FARTHEST + 1 }, (_what, n) => n - FARTHEST).filter((n) => n !== 0);
  for (const r of [...sampleRows(heads), ...everyRow(heads)]) {
    right.fill(r, made, noise);
    left = left.filter((by) => {
      for (let i = Math.max(0, by); i < Math.min(headDim, headDim + by); i++)
        if (Math.abs(y[r * headDim + i]! - made[i - by]!) > noise[i - by]!) return false;
      return true;
    });
    if (left.length === 0) return [];
  }
  if (left.length > 1) return [];
  const [by] = left as [number];
  const from = by > 0 ? `i − ${by}` : `i + ${-by}`;
  return [`Dimension i of every head holds the expected value of dimension ${from}, where there is one.`];
}

/** Whether these terms give a dimension of a row. */
function gives({ dim, which, by, angle, cos, sin, x: plain }: Member, row: Row, dtype: FloatDtype): boolean {
  const { x, y, angles, size } = row;
  const [a, b] = [cos * x[by[0]]!, sin * x[by[1]]!];
  const s = which === 0 ? -angles.sin[angle]! : angles.sin[angle]!;
  const value = a * angles.cos[angle]! + b * s + plain * x[dim]!;
  const largest = Math.max(1, Math.abs(cos), Math.abs(sin));
  return (
    Math.abs(y[dim]! - value) <= storedNoise(dtype, value, largest * size) + Math.hypot(a, b) * angles.noise[angle]!
  );
}

class Members {
  readonly #heads: Heads;
  readonly rows: readonly Row[];
  readonly #members: readonly Member[];

  constructor(heads: Heads, rows: readonly Row[], members: readonly Member[]) {
    this.#heads = heads;
    this.rows = rows;
    this.#members = members;
  }

  #fits(one: Member): boolean {
    return this.rows.every((row) => gives(one, row, this.#heads.dtype));
  }

  /** Each member of the pairs has the same terms in all pairs. */
  byTerms(): Reading | undefined {
    const members: Member[] = [];
    const words: string[] = [];
    for (const which of [0, 1] as const) {
      const some = this.#members.filter((one) => one.which === which);
      const fit = TERMS.filter((terms) => some.every((one) => this.#fits({ ...one, ...terms })));
      const [first] = fit;
      if (!first) return undefined;
      members.push(...some.map((one) => ({ ...one, ...first })));
      const said = (first === TERMS[0] ? [first] : fit).map((terms) => terms.words).join(', or ');
      const dims = ranges(some.map(({ dim }) => dim));
      words.push(`Dimensions ${dims}, the ${which === 0 ? 'first' : 'second'} members of the pairs, are ${said}.`);
    }
    const right = (line: string): boolean => line.endsWith('are as expected.');
    if (words.every(right)) return undefined;
    return { members, words: words.sort((a, b) => Number(right(a)) - Number(right(b))) };
  }

  /** Each dimension rotates, by the angle of some pair. */
  byAngles(pairs: number): Reading | undefined {
    const all = Array.from({ length: pairs }, (_what, j) => j);
    const angles = this.#members.map((one) => all.filter((angle) => this.#fits({ ...one, angle })));
    if (angles.some((some) => some.length === 0)) return undefined;
    const first = this.#members[0]!.dim;
    const modulo = this.#members.every(({ dim }, n) => angles[n]!.includes((dim - first) % pairs));
    const members = this.#members.map((one, n): Member => {
      const angle = modulo ? (one.dim - first) % pairs : angles[n]!.includes(one.pair) ? one.pair : angles[n]![0]!;
      return { ...one, angle };
    });
    // Slow pairs may rotate by angles that look alike.
    const sharp = members.filter(({ pair }, n) => angles[n]!.length === 1 && angles[n]![0] !== pair);
    if (sharp.length === 0) return undefined;
    const shown = sharp
      .slice(0, 3)
      .map(({ dim, pair, angle }) => `dimension ${dim} by that of pair ${angle} instead of ${pair}`);
    const index = first > 0 ? `(i − ${first})` : 'i';
    const rule = modulo ? `, …; dimension i by that of pair ${index} mod ${pairs}` : sharp.length > 3 ? ', …' : '';
    return { members, words: [`The members of a pair rotate by different angles: ${shown.join(', ')}${rule}.`] };
  }

  /** Each dimension is the sum of a cos and a sin term, of other dimensions of x than expected. */
  bySources(): Reading | undefined {
    const members = this.#members.map((one): Member | undefined => {
      if (this.#fits(one)) return one;
      const other: Member = { ...one, by: [this.#source(one, 'cos'), this.#source(one, 'sin')] };
      return this.#fits(other) ? other : undefined;
    });
    if (members.includes(undefined)) return undefined;
    const all = members as Member[];
    const off = all.flatMap((one, n) => (one === this.#members[n] ? [] : [{ one, was: this.#members[n]!.by }]));
    if (off.length === 0) return undefined;
    const shown = off
      .slice(0, 3)
      .map(
        ({ one: { dim, by }, was }) =>
          `dimension ${dim} from x[${by[0]}] × cos and x[${by[1]}] × sin instead of x[${was[0]}] and x[${was[1]}]`,
      );
    const rest = off.length > 3 ? ', …' : '';
    const words = [
      `Dimensions of y come from other dimensions of x, ${off.length} in all: ${shown.join(', ')}${rest}.`,
    ];
    return { members: all, words };
  }

  /** The dimension of x that goes best with y along cos or sin. */
  #source({ dim, which, pair }: Member, term: 'cos' | 'sin'): number {
    let best = { i: 0, share: -1 };
    for (let i = 0; i < this.#heads.headDim; i++) {
      let [both, own] = [0, 0];
      for (const { x, y, angles } of this.rows) {
        const t = x[i]! * angles[term][pair]! * (term === 'sin' && which === 0 ? -1 : 1);
        both += t * y[dim]!;
        own += t * t;
      }
      const share = own > 0 ? both / Math.sqrt(own) : 0;
      if (share > best.share) best = { i, share };
    }
    return best.i;
  }

  /** x was multiplied by a factor of each dimension before it was rotated. */
  byFactors(): Reading | undefined {
    const { headDim, norm } = this.#heads;
    const factors = this.#factors();
    const by = (factor: (i: number) => number): Member[] =>
      this.#members.map((one) => ({ ...one, cos: factor(one.by[0]), sin: factor(one.by[1]) }));
    const measured = by((i) => factors[i]!);
    if (!measured.every((one) => this.#fits(one))) return undefined;
    const read = [...new Set(this.#members.flatMap((one) => one.by))];
    const size = (pick: (...all: number[]) => number): number =>
      Number(pick(...read.map((i) => factors[i]!)).toPrecision(2));
    const start = 'Each dimension of x is multiplied by a factor of its own before it is rotated';
    const sentence = `${start}, from about ${size(Math.min)} to ${size(Math.max)}`;
    const weight = norm?.weight.readNumbers() as Float64Array | undefined;
    if (weight && read.length === headDim) {
      const added = Array.from(factors, (g, i) => (g - 1) * weight[i]!).sort((a, b) => a - b);
      const whole = Math.round(added[headDim >> 1]!);
      const members = by((i) => 1 + whole / weight[i]!);
      if (whole !== 0 && members.every((one) => this.#fits(one))) {
        const what = whole > 0 ? `${whole} is added to` : `${-whole} is taken from`;
        return { members, words: [`${sentence}: ${what} the norm's weight.`] };
      }
    }
    return { members: measured, words: [`${sentence}.`] };
  }

  /** Of each dimension of x, from y rotated back. */
  #factors(): Float64Array {
    const { headDim } = this.#heads;
    const [both, own] = [new Float64Array(headDim), new Float64Array(headDim)];
    for (const { x, y, angles } of this.rows) {
      for (const { dim, pair, which, by } of this.#members) {
        const [c, s] = [angles.cos[pair]!, which === 0 ? -angles.sin[pair]! : angles.sin[pair]!];
        both[by[0]]! += x[by[0]]! * c * y[dim]!;
        both[by[1]]! += x[by[1]]! * s * y[dim]!;
        own[by[0]]! += (x[by[0]]! * c) ** 2;
        own[by[1]]! += (x[by[1]]! * s) ** 2;
      }
    }
    return both.map((sum, i) => (own[i]! > 0 ? sum / own[i]! : 1));
  }
}
