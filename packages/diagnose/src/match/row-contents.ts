/** The contents of the rows of y that are not as expected: zeros, x, another row, the rotation of another token. @module */
import { roundTo } from 'ropewalk';
import { storedNoise } from '../kernel/noise.js';
import type { Angles, Compared, RightRows } from '../kernel/right-rows.js';
import { findPositions, signed, WRAPPED, wholeIn } from '../measure/position-fit.js';
import { short } from '../measure/residuals.js';
import { spread } from '../measure/sample.js';
import { wrap } from '../measure/slope.js';
import { AXIS_NAMES, type Heads, positionsOf } from '../read/observation.js';

/** The kind of values that wrong elements hold. */
export type What =
  | 'zeros'
  | 'not finite'
  | 'one value'
  | 'x'
  | 'minus x'
  /** The right result times a factor, the same for all rows or one for each. */
  | 'scaled'
  | 'scaled by row'
  /** The right result of another row. */
  | 'another row'
  /** The row of x by the position of another token. */
  | 'another position'
  /** Another row of x by the right position. */
  | 'another row of x'
  /** The values of another row of y, which are right in neither. */
  | 'a copy'
  /** One member of a pair was read after the other had been written over it. */
  | 'in place'
  /** One of the two terms of each element. */
  | 'in part'
  /** None of these. */
  | 'unknown';

/** Rows whose wrong elements hold the same. */
export interface Group {
  readonly what: What;
  readonly words: string;
  readonly rows: number[];
  /** The dimensions that hold it in every row and are wrong in some, or that may be wrong; undefined for whole rows. */
  readonly dims: readonly number[] | undefined;
  /** Whether only some elements of these rows and dimensions hold it. */
  readonly some?: boolean;
}

interface Held extends Omit<Group, 'rows' | 'some'> {
  /** Whether dimension i of row r holds it. */
  readonly holds: (r: number, i: number) => boolean;
  /** Its wrong dimensions, where y does not show whether it is the whole row that holds it. */
  readonly either?: readonly number[];
}

/** Writes a guess at a row of y: `[head_dim]` values and their noise. */
type Guess = (r: number, y: Float64Array, noise: Float64Array) => void;

interface Source {
  readonly what: What;
  readonly words: string;
  readonly guess: Guess;
  /** Whether row r has such an origin. Default: every row has. */
  readonly applies?: (r: number) => boolean;
  /** Whether it is a rule only where it explains most rows. */
  readonly ofMost?: boolean;
}

/** A rule from a row to another row. */
interface Rule {
  readonly words: string;
  /** Returns −1 if there is no such row. */
  readonly map: (r: number) => number;
}

/** With fewer bits of agreement a row could be found by chance. */
const ENOUGH_BITS = 40;
/** The most elements that searches look at. */
const SEARCH_BUDGET = 3e7;
/** The number of rows from which a rule is guessed. */
const TRIED_ROWS = 8;
const MAX_RULES = 12;
/** Marks many rows: a rule must explain one in {@link SHARE} of more rows than this: looking at all of them takes long. */
const MANY_ROWS = 4096;
const SHARE = 16;

const UNKNOWN = { what: 'unknown', words: 'values whose origin is not known' } as const;

/** The words for the rotation with which rows are compared. */
export interface Nouns {
  readonly result: string;
  readonly rotated: string;
  /** The rotation of another row of x by the position of this one. */
  readonly rotationOf: (row: string) => string;
}

const RIGHT: Nouns = {
  result: 'the right result',
  rotated: 'this row of x rotated',
  rotationOf: (row) => `the row of x of ${row}, rotated by the right position`,
};

/** Sorts wrong rows by their contents, the simplest explanation first. */
export function groupRows(right: RightRows, { wrong }: Compared, nouns = RIGHT, budget = SEARCH_BUDGET): Group[] {
  return new RowContents(right, nouns, budget).groupsOf(wrong);
}

class RowContents {
  readonly #heads: Heads;
  readonly #right: RightRows;
  readonly #nouns: Nouns;
  readonly #made: Float64Array;
  readonly #noise: Float64Array;
  #budget: number;

  constructor(right: RightRows, nouns: Nouns, budget: number) {
    this.#budget = budget;
    this.#nouns = nouns;
    this.#heads = right.heads;
    this.#right = right;
    this.#made = new Float64Array(right.heads.headDim);
    this.#noise = new Float64Array(right.heads.headDim);
  }

  /** The dimensions of row r that are not as expected. Afterwards the buffers hold the right row and its noise. */
  #wrongDims(r: number): number[] {
    this.#right.fill(r, this.#made, this.#noise);
    this.#last = undefined;
    return this.#off(r);
  }

  groupsOf(rows: readonly number[]): Group[] {
    const groups = new Map<string, { held: Held; rows: number[]; dims: Set<number>; whole: boolean; open: boolean }>();
    const add = (r: number, held: Held): void => {
      // Whole rows are not mixed with parts of rows.
      const key = `${held.words}:${held.dims === undefined}`;
      const whole = held.dims === undefined;
      const group = groups.get(key) ?? { held, rows: [], dims: new Set(), whole, open: whole };
      groups.set(key, group);
      group.rows.push(r);
      group.open &&= held.either !== undefined;
      for (const i of held.dims ?? held.either ?? []) group.dims.add(i);
    };
    let left: number[] = [];
    for (const r of rows) {
      const held = this.#ownValues(r);
      if (held) add(r, held);
      else left.push(r);
    }
    for (let n = 0; n < MAX_RULES && left.length > 0; n++) {
      const source = this.#likeliest(left);
      if (!source) break;
      const others: number[] = [];
      for (const r of left) {
        const held = this.#heldFrom(source, r);
        if (held) add(r, held);
        else others.push(r);
      }
      if (others.length === left.length) break;
      left = others;
    }
    for (const [key, { held, rows, dims, open }] of groups) {
      const part = open ? groups.get(`${held.words}:false`) : undefined;
      if (!part) continue;
      groups.delete(key);
      part.rows = [...part.rows, ...rows].sort((a, b) => a - b);
      for (const i of dims) part.dims.add(i);
    }
    const list = [...groups.values()].map(({ held: { holds, either: _, ...held }, rows, dims: seen, whole }): Group => {
      if (whole) return { ...held, rows };
      const dims = [...seen].sort((a, b) => a - b);
      return { ...held, rows, dims, some: !rows.every((r) => dims.every((i) => holds(r, i))) };
    });
    if (left.length > 0) {
      const dims = new Set<number>();
      for (const r of left) {
        if (dims.size === this.#heads.headDim) break;
        for (const i of this.#wrongDims(r)) dims.add(i);
      }
      list.push({ ...UNKNOWN, rows: left, dims: [...dims].sort((a, b) => a - b) });
    }
    return list;
  }

  /** The dimensions of row r that differ from the last guess by more than its noise. */
  #off(r: number): number[] {
    const { headDim, y } = this.#heads;
    const off: number[] = [];
    for (let i = 0, at = r * headDim; i < headDim; i++) {
      if (!(Math.abs(y[at + i]! - this.#made[i]!) <= this.#noise[i]!)) off.push(i);
    }
    return off;
  }

  /** The contents that the row alone shows. */
  #ownValues(r: number): Held | undefined {
    const { headDim, dtype, norm, x, y } = this.#heads;
    const wrong = this.#wrongDims(r);
    // With noise some elements are 0, or another value, by chance.
    if (this.#right.slack > 0 && 4 * wrong.length < headDim) return undefined;
    const first = y[r * headDim + wrong[0]!]!;
    const at = (row: number, i: number): number => y[row * headDim + i]!;
    const isInput = (row: number, i: number, sign: 1 | -1): boolean => {
      if (!norm) return at(row, i) === sign * roundTo(dtype, x[row * headDim + i]!);
      const input = this.#right.input(row);
      const size = input.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
      return Math.abs(at(row, i) - sign * input[i]!) <= storedNoise(dtype, at(row, i), size);
    };
    const seen: [What, string, Held['holds']][] = [
      ['zeros', 'zeros', (row, i) => at(row, i) === 0],
      ['not finite', 'NaN', (row, i) => Number.isNaN(at(row, i))],
      ['not finite', 'infinities', (row, i) => Math.abs(at(row, i)) === Infinity],
      ['not finite', 'NaN and infinities', (row, i) => !Number.isFinite(at(row, i))],
      ['x', norm ? 'x after the norm, not rotated' : 'x, not rotated', (row, i) => isInput(row, i, 1)],
      ['minus x', '−x', (row, i) => isInput(row, i, -1)],
      [
        'x',
        'x, neither normalised nor rotated',
        (row, i) => norm !== undefined && at(row, i) === roundTo(dtype, x[row * headDim + i]!),
      ],
      ['one value', `one value, ${Number(first.toPrecision(7))}`, (row, i) => wrong.length > 2 && at(row, i) === first],
      ['a copy', 'the same values in every token of a head', (row, i) => this.#constantIn(row).has(i)],
    ];
    for (const [what, words, holds] of seen) {
      if (!wrong.every((i) => holds(r, i))) continue;
      const whole = Array.from({ length: headDim }, (_, i) => i).every((i) => holds(r, i));
      return { what, words, holds, dims: whole ? undefined : wrong };
    }
    return this.#inPlace(r, wrong);
  }

  readonly #constant = new Map<number, ReadonlySet<number>>();

  /** The dimensions that hold one value in all tokens of the head of row r. */
  #constantIn(r: number): ReadonlySet<number> {
    const { headDim, heads, seq, y } = this.#heads;
    const first = Math.floor(r / (seq * heads)) * seq * heads + (r % heads);
    const known = this.#constant.get(first);
    if (known) return known;
    const dims = new Set(seq > 2 ? Array.from({ length: headDim }, (_, i) => i) : []);
    for (let s = 1; s < seq && dims.size > 0; s++)
      for (const i of dims) if (y[(first + s * heads) * headDim + i] !== y[first * headDim + i]) dims.delete(i);
    this.#constant.set(first, dims);
    return dims;
  }

  /** Recognises members of pairs that were computed from the stored result of the other. */
  #inPlace(r: number, wrong: readonly number[]): Held | undefined {
    const { pairOf, memberOf } = this.#right;
    const { headDim, heads, y } = this.#heads;
    const late = memberOf[wrong[0]!]! as 0 | 1;
    if (wrong.length < 2 || wrong.some((i) => pairOf[i]! < 0 || memberOf[i] !== late)) return undefined;
    const holds = (row: number, i: number): boolean => {
      const j = pairOf[i]!;
      if (j < 0 || memberOf[i] !== late) return false;
      this.#wrongDims(row); // fills the noise
      const input = this.#right.input(row);
      const { cos, sin } = this.#right.anglesOf(Math.floor(row / heads));
      const { read, write } = this.#right.membersOf(j);
      const other = y[row * headDim + write[1 - late]!]!;
      const value =
        late === 0 ? input[read[0]]! * cos[j]! - other * sin[j]! : other * sin[j]! + input[read[1]]! * cos[j]!;
      return Math.abs(y[row * headDim + i]! - value) <= this.#noise[i]! + this.#noise[write[1 - late]!]!;
    };
    if (!wrong.every((i) => holds(r, i))) return undefined;
    const [early, after] = late === 1 ? ['first', 'second'] : ['second', 'first'];
    const words = `the ${after} member of a pair computed from the ${early} one’s result, which was stored before its input was read`;
    return { what: 'in place', words, holds, dims: wrong };
  }

  /** The source that explains most of a few of these rows; a copy only if nothing else explains any. */
  #likeliest(rows: readonly number[]): Source | undefined {
    const some = spread(rows, 8 * TRIED_ROWS);
    let best: { source: Source; count: number } | undefined;
    for (const r of spread(rows, TRIED_ROWS)) {
      const wrong = this.#wrongDims(r);
      if (!this.#isTelling(wrong)) continue;
      for (const source of this.#sourcesOf(r, wrong)) {
        if (source.what === 'a copy' && best && best.source.what !== 'a copy') break;
        if (!this.#heldFrom(source, r)) continue;
        const count = some.filter((one) => this.#heldFrom(source, one)).length;
        if (source.ofMost && 2 * count <= some.length) continue;
        if (!best || count > best.count || best.source.what === 'a copy') best = { source, count };
        if (count === some.length) return source;
      }
    }
    return best && (rows.length <= MANY_ROWS || SHARE * best.count >= some.length) ? best.source : undefined;
  }

  /** Whether agreement in these dimensions of the last row cannot be chance. */
  #isTelling(wrong: readonly number[]): boolean {
    const size = this.#made.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
    const bits = wrong.reduce((sum, i) => sum + Math.max(0, Math.log2(size / (2 * this.#noise[i]!))), 0);
    return bits >= ENOUGH_BITS;
  }

  #heldFrom({ what, words, guess, applies }: Source, r: number): Held | undefined {
    const wrong = this.#wrongDims(r);
    if (!this.#isTelling(wrong) || applies?.(r) === false) return undefined;
    const { headDim, y } = this.#heads;
    const holds = (row: number, i: number): boolean =>
      Math.abs(y[row * headDim + i]! - this.#guessed(guess, row)[i]!) <= this.#noise[i]!;
    if (!wrong.every((i) => holds(r, i))) return undefined;
    const [guessed, better] = this.#off(r).length === 0 ? this.#othersOf(r, wrong) : [0, headDim];
    if (better > 2 * guessed + 2) return { what, words, holds, dims: wrong };
    return { what, words, holds, dims: undefined, ...(guessed <= better && { either: wrong }) };
  }

  /**
   * Counts the elements of row r that only the last guess gives, and those that only the right result gives, in pairs
   * without wrong elements.
   */
  #othersOf(r: number, wrong: readonly number[]): [guessed: number, better: number] {
    const { headDim, dtype, y } = this.#heads;
    const right = new Float64Array(headDim);
    this.#right.fill(r, right, new Float64Array(headDim));
    const size = right.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
    const isStored = (made: Float64Array, i: number): boolean =>
      Math.abs(y[r * headDim + i]! - made[i]!) <= storedNoise(dtype, y[r * headDim + i]!, size);
    const pairs = new Set(wrong.map((i) => this.#right.pairOf[i]!));
    let [guessed, better] = [0, 0];
    for (let i = 0; i < headDim; i++) {
      if (pairs.has(this.#right.pairOf[i]!) || isStored(this.#made, i) === isStored(right, i)) continue;
      if (isStored(right, i)) better++;
      else guessed++;
    }
    return [guessed, better];
  }

  #last: { guess: Guess; row: number } | undefined;

  /** The guess at a row, which stays in the buffers with its noise. */
  #guessed(guess: Guess, row: number): Float64Array {
    if (this.#last?.guess !== guess || this.#last.row !== row) guess(row, this.#made, this.#noise);
    this.#last = { guess, row };
    return this.#made;
  }

  /** The right result of a row that was multiplied by a factor, or has the opposite sign in one member of some pairs. */
  #scaledSources(r: number, wrong: readonly number[]): Source[] {
    const factorOf = (row: number): number => {
      this.#right.fill(row, this.#made, this.#noise);
      const y = this.#heads.y.subarray(row * this.#heads.headDim);
      const [along, all] = this.#made.reduce(([a, b], m, i) => [a + m * y[i]!, b + m * m], [0, 0] as [number, number]);
      return along / all;
    };
    const scaled =
      (factor: (row: number) => number): Guess =>
      (row, y, noise) => {
        const c = factor(row);
        this.#right.fill(row, y, noise);
        for (let i = 0; i < y.length; i++) {
          y[i]! *= c;
          noise[i]! *= Math.max(1, Math.abs(c));
        }
      };
    const one = factorOf(r);
    this.#last = undefined;
    const pairs = wrong.map((i) => this.#right.pairOf[i]!);
    const words = `${this.#nouns.result} with the opposite sign`;
    const isMirrored = !pairs.includes(-1) && new Set(pairs).size === pairs.length;
    const mirrored: Source[] = isMirrored ? [{ what: 'scaled', words, guess: scaled(() => -1) }] : [];
    if (!(Math.abs(one) > 1e-3)) return mirrored;
    return [
      ...mirrored,
      { what: 'scaled', words: `${this.#nouns.result} × ${short(one)}`, guess: scaled(() => one) },
      ...this.#laws(r, one).map(([rule, factor]): Source => {
        return { what: 'scaled by row', words: `${this.#nouns.result} ${rule}`, guess: scaled(factor) };
      }),
      {
        what: 'scaled by row',
        words: `${this.#nouns.result} times a factor of each head, such as ${short(one)}`,
        guess: scaled((row) => factorOf(row % this.#heads.heads)),
      },
      {
        what: 'scaled by row',
        words: `${this.#nouns.result} times a factor of each row, such as ${short(one)}`,
        guess: scaled(factorOf),
      },
    ];
  }

  /** Rules that give row r its factor. */
  #laws(r: number, factor: number): [words: string, of: (row: number) => number][] {
    const { heads, numAxes } = this.#heads;
    const squares = (row: number): number => this.#right.input(row).reduce((sum, value) => sum + value * value, 0);
    const position = (row: number): number => positionsOf(this.#heads, Math.floor(row / heads))[0]!;
    const laws: [words: string, of: (row: number) => number][] = [0, 1e-6, 1e-5].map((eps) => [
      `after an RMS norm of x with weight 1${eps > 0 ? ` and epsilon ${eps.toExponential()}` : ''}`,
      (row) => 1 / Math.sqrt(squares(row) / this.#made.length + eps),
    ]);
    laws.push(['divided by the length of its row of x', (row) => 1 / Math.sqrt(squares(row))]);
    // Scores of long prompts, as Qwen's first models and Llama 4 have them; rounding hides the exact number.
    const length = Math.exp(Math.log(position(r) + 1) / factor);
    if (numAxes === 1 && factor > 1 && length > 256)
      for (const one of new Set([2 ** Math.round(Math.log2(length)), Math.round(length)]))
        laws.push([
          `times max(1, ln(position + 1) / ln(${one}))`,
          (row) => Math.max(1, Math.log(position(row) + 1) / Math.log(one)),
        ]);
    return laws;
  }

  /** The right results of a token whose heads and dimensions have changed places in memory. */
  #transposedSources(): Source[] {
    const { heads, headDim } = this.#heads;
    if (heads === 1) return [];
    const right = this.#right;
    const [values, noises] = [new Float64Array(heads * headDim), new Float64Array(heads * headDim)];
    let filled = -1;
    const fillToken = (token: number): void => {
      if (filled === token) return;
      filled = token;
      for (let h = 0; h < heads; h++) {
        const [from, end] = [h * headDim, (h + 1) * headDim];
        right.fill(token * heads + h, values.subarray(from, end), noises.subarray(from, end));
      }
    };
    const placed = (how: string, placeOf: (n: number) => number): Source => ({
      what: 'another row',
      words: `${this.#nouns.result} of the token, ${how} as [head_dim, head]`,
      guess: (r, y, noise) => {
        fillToken(Math.floor(r / heads));
        for (let i = 0; i < headDim; i++) {
          const n = placeOf((r % heads) * headDim + i);
          [y[i], noise[i]] = [values[n]!, noises[n]!];
        }
      },
    });
    return [
      placed('stored', (n) => (n % heads) * headDim + Math.floor(n / heads)),
      placed('read', (n) => (n % headDim) * heads + Math.floor(n / headDim)),
    ];
  }

  /** Right results, or angles, that are in place i XOR m of their row, as where a swizzle is not undone; m by head or token. */
  #maskSources(r: number): Source[] {
    const { heads, seq, headDim, y } = this.#heads;
    const right = this.#right;
    const scratch = new Float64Array(headDim);
    const byMask = (kind: 'dimension' | 'pair', maskOf: (row: number) => number): Guess => {
      return (row, made, noise) => {
        const mask = maskOf(row);
        const angles = right.anglesOf(Math.floor(row / heads));
        const at = (list: Float64Array): Float64Array => list.map((_, j) => list[j ^ mask] ?? Number.NaN);
        if (kind === 'pair') {
          const [cos, sin, own] = [at(angles.cos), at(angles.sin), at(angles.noise)];
          right.rotate(
            right.input(row),
            { cos, sin, noise: own.map((one, j) => Math.max(one, angles.noise[j]!)) },
            made,
            noise,
          );
          return;
        }
        right.fill(row, scratch, noise);
        const [own, loose] = [at(scratch), at(noise)];
        made.set(own);
        noise.set(loose);
      };
    };
    const place = { head: (row: number) => row % heads, token: (row: number) => Math.floor(row / heads) % seq };
    const sources: Source[] = [];
    for (const kind of ['dimension', 'pair'] as const)
      for (let mask = 1; mask < (kind === 'pair' ? right.pairs : headDim); mask++) {
        byMask(kind, () => mask)(r, this.#made, this.#noise);
        this.#last = undefined;
        if (!this.#made.every((value, i) => Math.abs(y[r * headDim + i]! - value) <= this.#noise[i]!)) continue;
        const add = (words: string, maskOf: (row: number) => number): void => {
          const what = kind === 'pair' ? 'each pair by the angle of pair j' : `${this.#nouns.result} of dimension i`;
          sources.push({
            what: 'another row',
            words: `${what} XOR ${words}`,
            guess: byMask(kind, maskOf),
            ofMost: true,
          });
        };
        for (const [name, of] of Object.entries(place))
          for (const count of name === 'head' ? [heads] : [seq, 2, 4, 8, 16, 32]) {
            const index = of(r) % count;
            const by = mask / index;
            if (index === 0 || !Number.isInteger(by)) continue;
            const rule = count === heads || count === seq ? name : `${name} mod ${count}`;
            add(by === 1 ? `its ${rule}` : `${by} × (its ${rule})`, (row) => by * (of(row) % count));
          }
      }
    return sources;
  }

  /** The possible origins of row r, the simplest first. */
  *#sourcesOf(r: number, wrong: readonly number[]): Generator<Source> {
    const { heads, seq, batch, headDim, y } = this.#heads;
    const right = this.#right;
    const anglesOf = (row: number): Angles => right.anglesOf(Math.floor(row / heads));
    yield* this.#scaledSources(r, wrong);
    yield* this.#positionSources();
    yield* this.#transposedSources();
    const from = (what: What, words: (rule: string) => string, guess: (from: number) => Guess) => (other: number) =>
      rulesBetween(this.#heads, r, other).map(
        (rule): Source => ({
          what,
          words: words(rule.words),
          guess: (at, y, noise) => guess(rule.map(at))(at, y, noise),
          applies: (at) => rule.map(at) >= 0 && rule.map(at) !== at,
        }),
      );
    const resultOf = from(
      'another row',
      (rule) => `${this.#nouns.result} of ${rule}`,
      (other) => (_, y, noise) => right.fill(other, y, noise),
    );
    const byPosition = from(
      'another position',
      (rule) => `${this.#nouns.rotated} by the position of ${rule}`,
      (other) => (at, y, noise) => right.rotate(right.input(at), anglesOf(other), y, noise),
    );
    const inputOf = from(
      'another row of x',
      (rule) => this.#nouns.rotationOf(rule),
      (other) => (at, y, noise) => right.rotate(right.input(other), anglesOf(at), y, noise),
    );
    const partnerOf = from(
      'another row of x',
      (rule) => `x × cos as expected, and a sin term with the x of ${rule}`,
      (other) => (at, y, noise) => this.#mixed(at, other, y, noise),
    );
    const copyOf = from(
      'a copy',
      (rule) => `the same values as ${rule}`,
      (other) => (_, y, noise) => {
        noise.fill(0);
        y.set(this.#heads.y.subarray(other * headDim, (other + 1) * headDim));
      },
    );
    const rows = batch * seq * heads;
    const angles = anglesOf(r);
    const resultAt = (at: number, i: number): number => right.element(at, anglesOf(at), i);
    for (const other of this.#search(r, wrong, rows, resultAt, anglesOf)) yield* resultOf(other);
    const turnedAt = (at: number, i: number): number => right.element(r, right.anglesOf(at), i);
    for (const other of this.#search(r, wrong, batch * seq, turnedAt, (at) => right.anglesOf(at)))
      yield* byPosition(other * heads + (r % heads));
    yield* this.#shiftSources(r);
    for (const other of this.#search(r, wrong, rows, (at, i) => right.element(at, angles, i))) yield* inputOf(other);
    const [cosines, sines] = [this.#half(angles, 'cos'), this.#half(angles, 'sin')];
    const mixed = (at: number, i: number) => right.element(r, cosines, i) + right.element(at, sines, i);
    if (wrong.every((i) => right.pairOf[i]! >= 0))
      for (const other of this.#search(r, wrong, rows, mixed)) yield* partnerOf(other);
    yield* this.#maskSources(r);
    for (const other of this.#search(r, wrong, rows, (at, i) => y[at * headDim + i]!, 'exact')) yield* copyOf(other);
  }

  /** Angles without their sines, or without their cosines. */
  #half({ cos, sin, noise }: Angles, kept: 'cos' | 'sin'): Angles {
    const none = new Float64Array(cos.length);
    return kept === 'cos' ? { cos, sin: none, noise } : { cos: none, sin, noise };
  }

  /** Writes the cos terms of row r and the sin terms of another row. */
  #mixed(r: number, other: number, y: Float64Array, noise: Float64Array): void {
    const angles = this.#right.anglesOf(Math.floor(r / this.#heads.heads));
    this.#right.rotate(this.#right.input(other), this.#half(angles, 'sin'), y, noise);
    const [sines, more] = [y.slice(), noise.slice()];
    this.#right.rotate(this.#right.input(r), this.#half(angles, 'cos'), y, noise);
    for (let i = 0; i < y.length; i++) {
      if (this.#right.pairOf[i]! < 0) continue;
      y[i]! += sines[i]!;
      noise[i]! += more[i]!;
    }
  }

  /** At most three rows, or tokens, whose values agree with y in the wrong dimensions of row r. */
  *#search(
    r: number,
    wrong: readonly number[],
    count: number,
    value: (at: number, i: number) => number,
    how?: 'exact' | ((at: number) => Angles),
  ): Generator<number> {
    if (this.#budget < count) return;
    this.#budget -= count;
    const { headDim, y } = this.#heads;
    this.#wrongDims(r); // fills the noise
    const size = this.#made.reduce((most, one) => Math.max(most, Math.abs(one)), 0);
    const noise = this.#noise.map((one) => (how === 'exact' ? 0 : 2 * one + 1e-6 * size));
    const { pairOf } = this.#right;
    // Angles of far positions are less exact than those of row r.
    const isNear = (at: number): boolean => {
      const loose = typeof how === 'function' ? how(at).noise : undefined;
      return wrong.every((i) => {
        const more = loose && pairOf[i]! >= 0 ? 2 * size * loose[pairOf[i]!]! : 0;
        return Math.abs(value(at, i) - y[r * headDim + i]!) <= noise[i]! + more;
      });
    };
    let found = 0;
    for (let at = 0; at < count && found < 3; at++) {
      if (isNear(at)) {
        if (how === 'exact' && at === r) continue;
        found++;
        yield at;
      }
    }
  }

  /** The rotation of x by the positions that a rule gives. */
  #rotatedBy(words: string, of: (positions: number[], token: number, head: number) => number[]): Source {
    return {
      what: 'another position',
      words: `${this.#nouns.rotated} by ${words}`,
      guess: (r, y, noise) => {
        const token = Math.floor(r / this.#heads.heads);
        const positions = of(positionsOf(this.#heads, token), token, r % this.#heads.heads);
        this.#right.rotate(this.#right.input(r), this.#right.anglesAt(positions), y, noise);
      },
    };
  }

  /** The shifts of the position, on each axis, that alone explain the angles of row r. */
  #shiftSources(r: number): Source[] {
    const { heads, numAxes, headDim, y } = this.#heads;
    const { steps, pairs } = this.#right;
    this.#wrongDims(r); // fills the noise
    const input = this.#right.input(r);
    const [angle, tolerance] = [new Float64Array(pairs), new Float64Array(pairs)];
    for (let j = 0; j < pairs; j++) {
      const { read, write } = this.#right.membersOf(j);
      const [[x0, x1], [y0, y1]] = [read.map((i) => input[i]!), write.map((i) => y[r * headDim + i]!)] as [
        [number, number],
        [number, number],
      ];
      angle[j] = Math.atan2(x0 * y1 - x1 * y0, x0 * y0 + x1 * y1);
      tolerance[j] = (this.#noise[write[0]]! + this.#noise[write[1]]!) / Math.hypot(y0, y1);
    }
    const given = positionsOf(this.#heads, Math.floor(r / heads));
    const unit = { batch: 0, seq: 0, head: undefined, positions: given };
    const frequency = steps.frequencies().invFreq.map((one) => one * steps.sign);
    const error = new Float64Array(pairs);
    const turns = { units: [unit], pairs, angle, tolerance };
    const all = Array.from({ length: pairs }, (_, j) => j);
    const wholeAt = (of: typeof turns, own: readonly number[], axis: number): number[] =>
      wholeIn(findPositions(of, { frequency, error, slack: 2 ** -24 }, own, axis)[0]!.intervals);
    // One shift of all axes turns every pair by its frequency times that.
    const further = angle.map((one, j) => wrap(one - frequency[j]! * given[steps.axisOfPair(j)]!));
    const [same, ...others] = wholeAt({ ...turns, units: [{ ...unit, positions: [0] }], angle: further }, all, 0);
    const shifts = given.map(() => (others.length === 0 ? same : undefined) ?? 0);
    if (shifts[0] === 0 && numAxes > 1) {
      for (const [axis, from] of given.entries()) {
        const own = all.filter((j) => steps.axisOfPair(j) === axis);
        const whole = wholeAt(turns, own, axis);
        if (whole.length !== 1 && !whole.includes(from)) return [];
        shifts[axis] = whole.length === 1 ? whole[0]! - from : 0;
      }
    }
    const [first] = shifts as [number];
    // A type, which a known bug has, says more than a shift of right results.
    const isType = (): boolean => numAxes === 1 && WRAPPED.some((of) => of(given[0]!) - given[0]! === first);
    if (shifts.every((shift) => shift === 0) || (this.#nouns === RIGHT && this.#right.slack === 0 && isType()))
      return [];
    const isOne = shifts.every((shift) => shift === first);
    const words = isOne
      ? `its position${signed(first)}${numAxes > 1 ? ' on every axis' : ''}`
      : `its position${shifts.flatMap((shift, axis) => (shift === 0 ? [] : [`${signed(shift)} on axis ${AXIS_NAMES[axis]}`])).join(' and')}`;
    return [this.#rotatedBy(words, (positions) => positions.map((p, axis) => p + shifts[axis]!))];
  }

  /** Rotations by positions that no other token has. */
  #positionSources(): Source[] {
    const right = this.#right;
    const { heads, seq, numAxes } = this.#heads;
    const by = this.#rotatedBy.bind(this);
    const twice: Source = {
      what: 'another position',
      words: `${this.#nouns.rotated} twice`,
      guess: (r, y, noise) => {
        right.fill(r, y, noise);
        const once = y.slice();
        right.rotate(once, right.anglesOf(Math.floor(r / heads)), y, noise);
        for (let i = 0; i < noise.length; i++) noise[i]! *= 2;
      },
    };
    const member = (kept: 'cos' | 'sin'): Source => ({
      what: 'in part',
      words: kept === 'cos' ? 'x × cos alone, without the sin terms' : 'the sin terms alone, without x × cos',
      guess: (r, y, noise) =>
        right.rotate(right.input(r), this.#half(right.anglesOf(Math.floor(r / heads)), kept), y, noise),
    });
    const exchanged: Source = {
      what: 'another position',
      words: `${this.#nouns.rotated} with cos and sin exchanged`,
      guess: (r, y, noise) => {
        const { cos, sin, ...more } = right.anglesOf(Math.floor(r / heads));
        right.rotate(right.input(r), { cos: sin, sin: cos, ...more }, y, noise);
      },
    };
    return [
      member('cos'),
      member('sin'),
      exchanged,
      by('its position + 1', (positions) => positions.map((p) => p + 1)),
      by('its position − 1', (positions) => positions.map((p) => p - 1)),
      by('its position with the opposite sign', (positions) => positions.map((p) => -p)),
      twice,
      {
        ...by('its position × (its head + 1)', (positions, _token, head) => positions.map((p) => p * (head + 1))),
        ofMost: true, // where tokens are rotated two, three, … times, some head agrees
      },
      ...(numAxes === 1
        ? [
            by('its index on the sequence axis', (_what, token) => [token % seq]),
            by('its index in the batch of sequences', (_what, token) => [token]),
            by('its position, and again by that of the token before it', ([p], token) => [
              p! + (token % seq > 0 ? positionsOf(this.#heads, token - 1)[0]! : 0),
            ]),
          ]
        : []),
    ];
  }
}

/** The rules that map row r to `other`, the likeliest first. */
function rulesBetween(of: Heads, r: number, other: number): Rule[] {
  const { batch, seq, heads } = of;
  const placeOf = (n: number) => ({
    batch: Math.floor(n / (seq * heads)),
    seq: Math.floor(n / heads) % seq,
    head: n % heads,
  });
  const [at, to] = [placeOf(r), placeOf(other)];
  const row = (b: number, s: number, h: number): number =>
    b >= 0 && b < batch && s >= 0 && s < seq && h >= 0 && h < heads ? (b * seq + s) * heads + h : -1;
  const mapped = (words: string, map: (b: number, s: number, h: number) => number): Rule => ({
    words,
    map: (one) => {
      const { batch: b, seq: s, head: h } = placeOf(one);
      return map(b, s, h);
    },
  });
  const rules: Rule[] = [];
  for (const head of coordinate('head', at.head, to.head, heads))
    for (const token of coordinate('token', at.seq, to.seq, seq))
      for (const one of coordinate('batch', at.batch, to.batch, batch)) {
        const words = [head, token, one].flatMap((c) => (c.words ? [c.words] : [])).join(' of ');
        rules.push(mapped(words, (b, s, h) => row(one.map(b), token.map(s), head.map(h))));
      }
  /** The row at place n of memory that has `inner` places in each row. */
  const place = (n: number, inner: number): [outer: number, inner: number] => [Math.floor(n / inner), n % inner];
  if (at.head === to.head && batch > 1 && seq > 1)
    rules.push(
      mapped('the token that is there if [batch, seq] read as [seq, batch]', (b, s, h) => {
        const [token, one] = place(b * seq + s, batch);
        return row(one, token, h);
      }),
      mapped('the token that is there if [seq, batch] read as [batch, seq]', (b, s, h) =>
        row(...place(s * batch + b, seq), h),
      ),
    );
  if (at.batch === to.batch && heads > 1 && seq > 1)
    rules.push(
      mapped('the row that is there if [seq, head] is read as [head, seq]', (b, s, h) => {
        const [head, token] = place(s * heads + h, seq);
        return row(b, token, head);
      }),
      mapped('the row that is there if [head, seq] is read as [seq, head]', (b, s, h) =>
        row(b, ...place(h * seq + s, heads)),
      ),
    );
  const step = other - r;
  const apart = `the row ${Math.abs(step)} ${step > 0 ? 'after' : 'before'} it, counting over batches, tokens and heads`;
  rules.push(
    { words: apart, map: (one) => (one + step >= 0 && one + step < batch * seq * heads ? one + step : -1) },
    { words: `batch ${to.batch}, token ${to.seq}, head ${to.head}`, map: () => other },
  );
  return rules.filter(({ map }) => map(r) === other && other !== r);
}

/** The ways in which one coordinate may follow from another, the likeliest first. The words are empty if it stays. */
function coordinate(
  name: string,
  at: number,
  to: number,
  count: number,
): { words: string; map: (one: number) => number }[] {
  const step = to - at;
  if (step === 0) return [{ words: '', map: (one) => one }];
  const apart = Math.abs(step) === 1 ? '' : `${Math.abs(step)} places `;
  const shifted = {
    words: `the ${name} ${apart}${step > 0 ? 'after' : 'before'} it`,
    map: (one: number) => one + step,
  };
  const fixed = { words: `${name} ${to}${name === 'token' && to === count - 1 ? ', the last' : ''}`, map: () => to };
  const mirrored = { words: `the ${name} as far from the end`, map: (one: number) => count - 1 - one };
  const reversed = {
    words: `the ${name} whose index is ${at + to} minus its own`,
    map: (one: number) => at + to - one,
  };
  // Heads that share keys are in groups.
  const grouped =
    name === 'head' ? Array.from({ length: count - 2 }, (_, n) => n + 2).filter((size) => count % size === 0) : [];
  // If one coordinate is wrong, all ways say the same.
  return [
    ...(name === 'token' && apart === '' ? [shifted, fixed] : [fixed, shifted]),
    at + to === count - 1 ? mirrored : reversed,
    ...grouped.flatMap((size) => [
      ...(Math.floor(at / size) === to
        ? [
            {
              words: `the head whose index is its own divided by ${size}`,
              map: (one: number) => Math.floor(one / size),
            },
          ]
        : []),
      ...(at % size === to
        ? [{ words: `the head whose index is its own mod ${size}`, map: (one: number) => one % size }]
        : []),
    ]),
  ];
}
