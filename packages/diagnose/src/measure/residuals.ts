/**
 * Systematic errors of a 16-bit y under its rounding noise, and their causes. Each rounding is random, but a wrong base, a
 * wrong magnitude or a store that truncates moves the mean of many. @module
 */
import { type FloatDtype, frequenciesOf, type RopeCall, roundTo } from 'ropewalk';
import { ranges, UNIT_ROUNDOFF } from 'ropewalk/internal';
import { angleNoise, type Rounding, SINE_NOISE, TIERS, type Tier } from '../kernel/noise.js';
import { type Hypothesis, rightOf, runRows, seenRows, Trial } from '../kernel/trial.js';
import type { Expected } from '../read/expected.js';
import type { Heads } from '../read/observation.js';
import { sampleRows } from './sample.js';

/** The way in which a result becomes a value of y's dtype. */
export type Store = 'nearest' | 'toward zero' | 'down' | 'up';

const STORES: Readonly<Record<Store, (value: number) => number>> = {
  nearest: (value) => value,
  'toward zero': Math.trunc,
  down: Math.floor,
  up: Math.ceil,
};

export interface Systematic {
  /**
   * The quantity and its unit: `store` in last places, away from 0; `magnitude`, `frequency` and `base` (its logarithm)
   * relative; `position` in positions; `angle` in radians.
   */
  readonly kind: 'store' | 'magnitude' | 'frequency' | 'base' | 'position' | 'angle';
  readonly value: number;
  /** The standard error, from the scatter of the data. */
  readonly error: number;
  /** The mean over its error, in units of the largest that chance gives. */
  readonly weight: number;
  /** Whether neither chance explains it nor the part of rounding that is not quite random. */
  readonly clear: boolean;
  readonly pairs: readonly [first: number, last: number];
  /** The token, `batch · seq + token`; undefined for all tokens. */
  readonly token: number | undefined;
}

/** The difference between y and the output of one hypothesis. */
export interface Residuals {
  /** The arithmetic nearest to y, of those that a right kernel may use. */
  readonly rounding: Rounding;
  /** The root mean square, in last places, of y less the stored result in that arithmetic. */
  readonly distance: number;
  /** The means that chance does not explain, the clearest first. */
  readonly systematic: readonly Systematic[];
  readonly means: readonly Systematic[];
}

/** A pair at one position, summed over all heads, because the error of a 16-bit table is the same in all of them. */
interface Cell {
  readonly j: number;
  readonly token: number;
  /** Signed, in radians; NaN for the table of a caller. */
  readonly angle: number;
  readonly position: number;
  /** Σ |result|² and Σ |result|⁴. */
  size: number;
  fourth: number;
  /** Σ of the residual times the result, along the rotated pair and across it. */
  along: number;
  across: number;
  /** Σ of the residual in last places, away from 0 and upwards, and the number of elements. */
  outward: number;
  upward: number;
  count: number;
}

/** Chance exceeds this normal deviate less than once in 10⁹; some 300 means are tested. */
const DEVIATE = 6.1;
/** Fewer cells say too little about their scatter. */
const MIN_CELLS = 10;
/** Smaller effects, in units of roundoff, may come from the part of rounding that is not quite random. */
const FLOOR = 1 / 24;
/** Frequencies are also tested in groups of neighbouring pairs. */
const GROUPS = 8;

/**
 * The residuals of a hypothesis, in the arithmetic that is nearest to y. They are undefined for f32 and f64, whose tiers
 * are strict enough.
 *
 * @param rows - chosen without looking at y, or the means are not those of all rows
 * @param bent - further errors of the arithmetic
 * @param narrows - the arithmetic to choose from. Default: what right kernels round to a 16-bit dtype besides y, which is
 *   nothing, cos and sin, or products and sums too
 */
export function residualsOf(
  hypothesis: Hypothesis,
  heads: Heads,
  rows: readonly number[],
  bent: Rounding = {},
  store: Store = 'nearest',
  narrows: readonly Rounding[] = [{}, { table: heads.dtype }, { table: heads.dtype, products: heads.dtype }],
): Residuals | undefined {
  const { dtype } = heads;
  if (dtype !== 'f16' && dtype !== 'bf16') return undefined;
  let best: { rounding: Rounding; made: Float64Array; distance: number } | undefined;
  for (const narrow of narrows) {
    const rounding = { ...bent, ...narrow };
    const made = hypothesis.control.as(rounding, () => runRows(hypothesis.steps, heads, rows));
    const distance = distanceOf(heads, rows, made, store);
    if (!best || distance < best.distance) best = { rounding, made, distance };
    if (distance === 0) break;
  }
  const { rounding, made, distance } = best!;
  if (distance === 0) return { rounding, distance, systematic: [], means: [] };
  const cells = cellsOf(hypothesis, heads, rows, made, store);
  const means = meansOf(cells, hypothesis, heads);
  const systematic = means.filter(({ clear }) => clear).sort((a, b) => b.weight - a.weight);
  return { rounding, distance, systematic, means };
}

/** Whether the residuals have a mean that no right arithmetic gives, whatever the noise of the tier. */
export function isBiased(hypothesis: Hypothesis, heads: Heads, rows: readonly number[]): boolean {
  return (residualsOf(hypothesis, heads, rows)?.systematic.length ?? 0) > 0;
}

/** The strictest tier in which a call gives y without such a mean; the dimensions in `lost` do not count. */
export function tierOf(call: RopeCall, expected: Expected, heads: Heads, lost: ReadonlySet<number>): Tier | undefined {
  const rows = sampleRows(heads);
  const right = rightOf(call);
  const trial = new Trial(heads, rows, { ...seenRows(heads, rows, expected), lost });
  const tier = TIERS.find((one) => trial.fits(right, one));
  return tier && !isBiased(right, heads, rows) ? tier : undefined;
}

/** The unit in the last place of a value. */
function lastPlace(dtype: FloatDtype, value: number): number {
  const [bits, smallest] = dtype === 'f16' ? [10, -14] : [7, -126];
  return 2 ** (Math.max(Math.floor(Math.log2(Math.abs(value))), smallest) - bits);
}

function stored(store: Store, dtype: FloatDtype, value: number): number {
  if (store === 'nearest' || value === 0 || !Number.isFinite(value)) return roundTo(dtype, value);
  const unit = lastPlace(dtype, value);
  return STORES[store](value / unit) * unit;
}

/** The most last places that one element counts. */
const FARTHEST = 8;

function distanceOf(heads: Heads, rows: readonly number[], made: Float64Array, store: Store): number {
  const { dtype, headDim, y } = heads;
  let sum = 0;
  for (const [n, r] of rows.entries()) {
    for (let i = 0; i < headDim; i++) {
      const value = made[n * headDim + i]!;
      const off = y[r * headDim + i]! - stored(store, dtype, value);
      // A result near 0 that an angle in f32 moves would outweigh all others.
      if (off !== 0) sum += Math.min(FARTHEST, Math.abs(off / lastPlace(dtype, value || off))) ** 2;
    }
  }
  return Math.sqrt(sum / made.length);
}

function cellsOf(
  { steps }: Hypothesis,
  heads: Heads,
  rows: readonly number[],
  made: Float64Array,
  store: Store,
): Cell[] {
  const { headDim, dtype, y } = heads;
  const cells = new Map<string, Cell>();
  for (const [n, r] of rows.entries()) {
    const at = steps.placeOf(r);
    for (let j = 0; j < steps.pairs; j++) {
      const [i0, i1] = [steps.writeIndex(j, 0), steps.writeIndex(j, 1)];
      if (Math.max(i0, i1) >= headDim) continue;
      const [u, v] = [made[n * headDim + i0]!, made[n * headDim + i1]!];
      const size = u * u + v * v;
      const [p, q] = [y[r * headDim + i0]! - stored(store, dtype, u), y[r * headDim + i1]! - stored(store, dtype, v)];
      if (!(size > 0) || !Number.isFinite(p + q)) continue;
      const position = steps.position(at, steps.axisOfPair(j));
      const key = `${j} ${position}`;
      let cell = cells.get(key);
      if (!cell) {
        const angle = steps.source ? steps.sign * steps.angle(position, j) : Number.NaN;
        const token = at.batch * heads.seq + at.seq;
        cell = { j, token, angle, position, size: 0, fourth: 0, along: 0, across: 0, outward: 0, upward: 0, count: 0 };
        cells.set(key, cell);
      }
      cell.size += size;
      cell.fourth += size * size;
      cell.along += p * u + q * v;
      cell.across += q * u - p * v;
      for (const [off, value] of [
        [p, u],
        [q, v],
      ] as const) {
        if (value === 0) continue;
        const places = off / lastPlace(dtype, value);
        cell.upward += places;
        cell.outward += Math.sign(value) * places;
        cell.count++;
      }
    }
  }
  return distinct([...cells.values()]);
}

/** Drops the copies of a cell that repeated rows give, because they are one measurement. */
function distinct(cells: readonly Cell[]): Cell[] {
  const known = new Set<string>();
  return cells.filter(({ j, size, along, across }) => {
    if (along === 0 && across === 0) return true;
    const key = `${j} ${size} ${along} ${across}`;
    return !known.has(key) && known.add(key);
  });
}

type Mean = Pick<Systematic, 'value' | 'error' | 'weight' | 'clear'>;

/**
 * Fits `of` = factor × `by`, with the error from the scatter of the cells, as if each cell had been left out once
 * (MacKinnon and White's HC3): one cell that decides alone has no weight.
 *
 * @param smallest - a smaller effect, in units of `of`, is not clear
 * @param cluster - gives one number to cells that depend on each other
 */
function meanOf(
  cells: readonly Cell[],
  of: (cell: Cell) => number,
  by: (cell: Cell) => number,
  weightOf: (cell: Cell) => number,
  smallest: number,
  cluster?: (cell: Cell) => number,
): Mean | undefined {
  let [above, below] = [0, 0];
  for (const cell of cells) {
    const g = by(cell);
    const w = weightOf(cell);
    above += w * g * of(cell);
    below += w * g * g;
  }
  if (!(below > 0)) return undefined;
  const value = above / below;
  const scores = new Map<number, number>();
  const shares = new Map<number, number>();
  let typical = 0;
  for (const [n, cell] of cells.entries()) {
    const g = by(cell);
    const w = weightOf(cell);
    const share = (w * g * g) / below;
    if (share === 0) continue;
    if (share >= 1) return undefined;
    const key = cluster ? cluster(cell) : n;
    scores.set(key, (scores.get(key) ?? 0) + (w * g * (of(cell) - value * g)) / (1 - share));
    shares.set(key, (shares.get(key) ?? 0) + share);
    typical += share * g * g;
  }
  let [squares, concentration] = [0, 0];
  for (const score of scores.values()) squares += score * score;
  for (const share of shares.values()) concentration += share * share;
  const effective = 1 / concentration;
  if (!(effective >= MIN_CELLS)) return undefined;
  const error = Math.sqrt(squares) / below;
  // Student's t for few cells, from the normal deviate (Wallace).
  const freedom = effective - 1.5;
  const limit = Math.sqrt((freedom + 0.5) * Math.expm1(DEVIATE ** 2 / freedom));
  const weight = value === 0 ? 0 : Math.abs(value) / (limit * error);
  return { value, error, weight, clear: weight >= 1 && Math.abs(value) * Math.sqrt(typical) >= smallest };
}

function meansOf(cells: readonly Cell[], { steps, control }: Hypothesis, heads: Heads): Systematic[] {
  const unit = UNIT_ROUNDOFF[heads.dtype];
  const { pairs } = steps;
  const noise = ({ angle, j, position }: Cell): number =>
    angle ? Math.min(control.loosest, angleNoise(angle, j, position)) : 0;
  // All heads share the error of a table, but not the rounding of y.
  const weight = (cell: Cell): number =>
    1 / (unit ** 2 * (0.15 + (0.15 * cell.fourth) / cell.size ** 2) + noise(cell) ** 2);
  /** Subtracts what an angle in f32 and fast sines may do. */
  const beyond = (value: number, least: number): number => Math.sign(value) * Math.max(0, Math.abs(value) - least);
  const along = (cell: Cell): number => beyond(cell.along / cell.size, 2 * SINE_NOISE);
  const across = (cell: Cell): number => beyond(cell.across / cell.size, 2 * SINE_NOISE + noise(cell));
  const frequencies = steps.source ? steps.frequencies().invFreq : undefined;
  // A whole row shares the rounding of a norm.
  const cluster = heads.norm ? ({ token }: Cell): number => token : undefined;
  const turn = ({ angle }: Cell): number => angle || 0;
  const fits: Record<Exclude<Systematic['kind'], 'store'>, [of: (cell: Cell) => number, by: (cell: Cell) => number]> = {
    magnitude: [along, () => 1],
    angle: [across, () => 1],
    frequency: [across, turn],
    base: [across, (cell) => (-2 * cell.j * turn(cell)) / (2 * pairs)],
    position: [across, ({ j }) => (frequencies ? steps.sign * (frequencies[j] ?? 0) : 0)],
  };
  const found: Systematic[] = [];
  type Where = Pick<Systematic, 'pairs' | 'token'>;
  const test = (some: readonly Cell[], where: Where, ...kinds: (keyof typeof fits)[]): void => {
    for (const kind of kinds) {
      if (!frequencies && kind !== 'magnitude' && kind !== 'angle') continue;
      const mean = meanOf(some, ...fits[kind], weight, FLOOR * unit, cluster);
      if (mean) found.push({ kind, ...mean, ...where });
    }
  };
  const all: Where = { pairs: [0, pairs - 1], token: undefined };
  for (const side of ['outward', 'upward'] as const) {
    const places = (cell: Cell): number => (cell.count > 0 ? cell[side] / cell.count : 0);
    const mean = meanOf(
      cells,
      places,
      () => 1,
      ({ count }) => count,
      FLOOR,
      cluster,
    );
    if (mean) found.push({ kind: 'store', ...mean, ...all });
  }
  test(cells, all, 'magnitude', 'angle', 'frequency', 'base', 'position');
  const split = (count: number, of: (cell: Cell) => number): Cell[][] => {
    const parts = Array.from({ length: count }, (): Cell[] => []);
    for (const cell of cells) parts[of(cell)]?.push(cell);
    return parts;
  };
  for (const count of [Math.min(GROUPS, pairs), pairs]) {
    const first = (n: number): number => Math.ceil((n * pairs) / count);
    for (const [n, some] of split(count, ({ j }) => Math.floor((j * count) / pairs)).entries())
      test(some, { pairs: [first(n), first(n + 1) - 1], token: undefined }, 'magnitude', 'angle', 'frequency');
  }
  for (const [token, some] of split(heads.batch * heads.seq, (cell) => cell.token).entries()) {
    if (some.length === 0) continue;
    if (!heads.norm) test(some, { ...all, token }, 'magnitude');
    test(some, { ...all, token }, 'position');
  }
  return found;
}

/** Recognises a y that holds only values of a narrower dtype than the right results, and than x where both are f32. */
export function lostPrecision({ dtype, storage, x }: Heads, made: Float64Array): string | undefined {
  if (storage === 'f32' && dtype !== 'f32' && x.some((value) => roundTo(dtype, value) !== value))
    return `y holds only values of ${dtype}, and x is finer: the results went through ${dtype}.`;
  if (storage !== 'f16' || dtype !== 'bf16') return undefined;
  const isFiner = made.some((value) => roundTo('bf16', roundTo('f16', value)) !== roundTo('f16', value));
  return isFiner ? 'y holds only values of bf16, although its dtype is f16: the results went through bf16.' : undefined;
}

/** The width of a printed bound, in standard errors. */
const BOUND = 4;
const ROUNDS = 8;

/**
 * Explains the systematic errors of the right kernel in sentences.
 *
 * First it looks for one cause that leaves no error: how y is stored, another magnitude, base, factor of all frequencies
 * or shift of all positions. Otherwise it lists the clearest means.
 *
 * @param rows - chosen without looking at y
 * @param onlyOne - leaves out the list of means
 * @returns empty where y has no such errors
 */
export function explainResiduals(
  expected: Expected,
  right: Hypothesis,
  heads: Heads,
  rows: readonly number[],
  onlyOne: boolean,
): readonly string[] {
  const first = residualsOf(right, heads, rows);
  if (!first || first.systematic.length === 0) return [];
  const has = (kind: Systematic['kind']): boolean => first.systematic.some((mean) => mean.kind === kind);
  for (const store of has('store') ? (['toward zero', 'down', 'up'] as const) : []) {
    const other = residualsOf(right, heads, rows, {}, store)!;
    if (other.distance < first.distance && other.systematic.length === 0) return [storeWords(store, first)];
  }
  for (const one of causesOf(expected, heads)) {
    const fit = has(one.kind) ? solve(one, right, heads, rows, first) : undefined;
    // Nothing is left but roundings, each of a last place or two.
    if (fit && fit.left.systematic.length === 0 && fit.left.distance < 2)
      return [one.words(fit.value, BOUND * fit.error)];
  }
  return onlyOne ? [] : meansWords(first, heads);
}

interface Cause {
  readonly kind: Systematic['kind'];
  rounding(value: number): Rounding;
  words(value: number, error: number): string;
}

function causesOf({ spec }: Expected, heads: Heads): Cause[] {
  const { invFreq, attentionFactor } = frequenciesOf(spec);
  const offBase = (value: number): ArrayLike<number> =>
    frequenciesOf({ ...spec, base: spec.base * Math.exp(value), attentionFactor }).invFreq;
  const causes: Cause[] = [
    {
      kind: 'magnitude',
      rounding: (value) => ({ gain: 1 + value }),
      words: (value, error) =>
        `The magnitude is ${measured(attentionFactor * (1 + value), attentionFactor * error)}; expected is ${short(attentionFactor)}.`,
    },
    {
      kind: 'base',
      rounding: (value) => {
        const other = offBase(value);
        return { angle: (angle, j) => (invFreq[j]! > 0 ? (angle * other[j]!) / invFreq[j]! : angle) };
      },
      words: (value, error) =>
        `The base is ${measured(spec.base * Math.exp(value), spec.base * error)}; expected is ${short(spec.base)}.`,
    },
    {
      kind: 'frequency',
      rounding: (value) => ({ angle: (angle) => angle * (1 + value) }),
      words: (value, error) => `Every frequency that shows is ${measured(1 + value, error)} times the expected one.`,
    },
    {
      kind: 'position',
      rounding: (value) => ({ angle: (angle, j) => angle + value * (invFreq[j] ?? 0) }),
      words: (value, error) => `Every position is off by ${measured(value, error)}.`,
    },
  ];
  // Several axes have no one shift.
  return heads.numAxes > 1 ? causes.slice(0, 3) : causes;
}

/** Finds the value that leaves no mean of its kind. Rounding hides part of an error, so it is approached in steps. */
function solve(
  { kind, rounding }: Cause,
  right: Hypothesis,
  heads: Heads,
  rows: readonly number[],
  first: Residuals,
): { value: number; error: number; left: Residuals } | undefined {
  const meanIn = ({ means: all }: Residuals): Systematic | undefined =>
    all.find(
      (mean) =>
        mean.kind === kind && mean.token === undefined && mean.pairs[1] - mean.pairs[0] + 1 === right.steps.pairs,
    );
  let left = first;
  let value = 0;
  let error = meanIn(first)?.error;
  let step = Number.POSITIVE_INFINITY;
  if (error === undefined) return undefined;
  for (let n = 0; n < ROUNDS; n++) {
    const mean = meanIn(left);
    if (!mean || Math.abs(mean.value) < 0.3 * mean.error) break;
    if (n > 2 && Math.abs(mean.value) > 0.9 * step) break; // it comes no nearer
    step = Math.abs(mean.value);
    value += mean.value;
    if (!(Math.abs(value) < 0.5)) return undefined;
    const { table, products } = left.rounding;
    // Once the value is nearly right, the arithmetic nearest to y does not change any more.
    left = residualsOf(right, heads, rows, rounding(value), 'nearest', n < 2 ? undefined : [{ table, products }])!;
    error = Math.max(error, meanIn(left)?.error ?? 0); // without a residual there is no scatter to take it from
  }
  if (left.systematic.length > 0) left = residualsOf(right, heads, rows, rounding(value))!;
  return { value, error, left };
}

function storeWords(store: Store, { means: all }: Residuals): string {
  const places = (side: number): string => {
    const mean = all.filter(({ kind }) => kind === 'store')[side];
    return mean ? ` (mean ${mean.value.toFixed(2)} of a last place)` : '';
  };
  if (store === 'toward zero')
    return `Every result is a little closer to 0 than the rotation: the store truncates${places(0)}.`;
  return `Every result is rounded ${store} instead of to nearest${places(1)}.`;
}

/** Lists the clearest means, at most four that say different things. */
function meansWords({ systematic }: Residuals, { batch, seq }: Heads): string[] {
  const sentences: string[] = [];
  const said = new Set<string>();
  // Last places are left out where something larger is known: another magnitude moves them too.
  const larger = systematic.filter(({ kind }) => kind !== 'store');
  for (const { kind, value, error, pairs, token } of larger.length > 0 ? larger : systematic) {
    const what = `${kind} ${token ?? 'all'}`;
    if (said.has(what) && kind !== 'frequency') continue;
    said.add(what);
    const where =
      token !== undefined
        ? `token ${token % seq}${batch > 1 ? ` of batch ${Math.floor(token / seq)}` : ''}`
        : pairs[0] === pairs[1]
          ? `pair ${pairs[0]}`
          : `pairs ${ranges(Array.from({ length: pairs[1] - pairs[0] + 1 }, (_what, n) => pairs[0] + n))}`;
    const bound = BOUND * error;
    const words: Record<Systematic['kind'], string> = {
      store: `The results are off by ${measured(value, bound)} of a last place, in the mean.`,
      magnitude: `The results of ${where} are ${measured(1 + value, bound)} times as large as expected, in the mean.`,
      frequency: `The angles of ${where} are ${measured(1 + value, bound)} times the expected ones, in the mean.`,
      base: `The angles differ as if the base were ${measured(1 + value, bound)} times the expected one.`,
      position: `The angles of ${where} differ as if positions were off by ${measured(value, bound)}.`,
      angle: `The angles of ${where} are off by ${measured(value, bound)} radians, in the mean.`,
    };
    sentences.push(words[kind]);
    if (sentences.length === 4) break;
  }
  return sentences;
}

/** A value to the digits that its bound leaves: `1.0040 ± 0.0002`. */
function measured(value: number, bound: number): string {
  const digits = Math.max(0, Math.min(12, Math.ceil(-Math.log10(bound || 1e-12))));
  const up = Math.ceil(bound * 10 ** digits) / 10 ** digits;
  return `${value.toFixed(digits)} ± ${up.toFixed(digits)}`;
}

/** Begins words as a sentence. */
export function sentence(words: string): string {
  return `${words[0]!.toUpperCase()}${words.slice(1)}`;
}

export function short(value: number): string {
  return String(Number(value.toPrecision(7)));
}
