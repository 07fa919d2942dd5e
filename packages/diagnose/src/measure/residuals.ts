/**
 * Systematic errors of a 16-bit y under its rounding noise: each rounding is random, but a wrong base, a wrong magnitude
 * or a store that truncates moves the mean of many. @module
 */
import { type FloatDtype, roundTo } from 'ropewalk';
import { UNIT_ROUNDOFF } from 'ropewalk/internal';
import { angleNoise, SINE_NOISE } from '../kernel/noise.js';
import type { Rounding } from '../kernel/rounding.js';
import { type Hypothesis, runAs } from '../kernel/trial.js';
import { type Heads, rowAt } from '../read/observation.js';

/** How a result becomes a value of y's dtype. */
export type Store = 'nearest' | 'toward zero' | 'down' | 'up';

const STORES: Readonly<Record<Store, (value: number) => number>> = {
  nearest: (value) => value,
  'toward zero': Math.trunc,
  down: Math.floor,
  up: Math.ceil,
};

/** A mean of residuals. */
export interface Systematic {
  /**
   * `store`: in last places, away from 0. `magnitude`, `frequency` and `base` (its logarithm): relative. `position`: in
   * positions. `angle`: in radians.
   */
  readonly kind: 'store' | 'magnitude' | 'frequency' | 'base' | 'position' | 'angle';
  readonly value: number;
  /** Standard error, from the scatter of the data. */
  readonly error: number;
  /** The mean over its error, in units of what chance gives at most. */
  readonly weight: number;
  /** Whether neither chance nor what is not quite random in rounding explains it. */
  readonly clear: boolean;
  /** First and last pair. */
  readonly pairs: readonly [first: number, last: number];
  /** The token that it is about, `batch · seq + token`; undefined for all. */
  readonly token: number | undefined;
}

/** y against one hypothesis. */
export interface Residuals {
  /** The arithmetic, of those that a right kernel may use, that is nearest to y. */
  readonly rounding: Rounding;
  /** Root mean square of y less the result in that arithmetic, rounded as `store` says, in last places. */
  readonly distance: number;
  /** Means that chance does not explain, the clearest first. */
  readonly systematic: readonly Systematic[];
  /** All means, significant or not. */
  readonly means: readonly Systematic[];
}

/** A pair at one position, in all heads: a 16-bit table's error is the same in all of them. */
interface Cell {
  readonly j: number;
  readonly token: number;
  /** Radians, signed; NaN for a given table. */
  readonly angle: number;
  /** Σ over heads of |made|² and of |made|⁴. */
  size: number;
  fourth: number;
  /** Σ over heads of the residual's share of |made|², along the rotated pair and across it. */
  along: number;
  across: number;
  /** Σ of the residual away from 0 and upwards, in last places, and their number. */
  outward: number;
  upward: number;
  count: number;
}

/** Chance exceeds this normal deviate less than once in 10⁹; some 300 means are tested. */
const DEVIATE = 6.1;
/** Fewer cells say too little about their own scatter. */
const MIN_CELLS = 10;
/** Smaller effects are left alone, in units of roundoff: what is not quite random in rounding to nearest. */
const FLOOR = 1 / 24;
/** Frequencies are also tested in groups of neighbouring pairs. */
const GROUPS = 8;

/**
 * The residuals of a hypothesis, in the arithmetic that is nearest to y; undefined for f32 and f64, whose tiers are
 * strict enough.
 *
 * @param rows - chosen without looking at y, or the means are not those of all rows
 * @param bent - further changes of the arithmetic
 * @param narrows - the arithmetic to choose from
 */
export function residualsOf(
  hypothesis: Hypothesis,
  heads: Heads,
  rows: readonly number[],
  bent: Rounding = {},
  store: Store = 'nearest',
  narrows: readonly Rounding[] = narrowManners(heads.dtype),
): Residuals | undefined {
  const { dtype } = heads;
  if (dtype !== 'f16' && dtype !== 'bf16') return undefined;
  let best: { rounding: Rounding; made: Float64Array; distance: number } | undefined;
  for (const narrow of narrows) {
    const rounding = { ...bent, ...narrow };
    const made = runAs(hypothesis, rounding, heads, rows);
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

/** What right kernels round to a 16-bit dtype besides y: nothing, cos and sin, products and sums too. */
function narrowManners(dtype: FloatDtype): readonly Rounding[] {
  return [{}, { table: dtype }, { table: dtype, products: dtype }];
}

/** The unit of the last place of a value. */
function lastPlace(dtype: FloatDtype, value: number): number {
  const [bits, smallest] = dtype === 'f16' ? [10, -14] : [7, -126];
  return 2 ** (Math.max(Math.floor(Math.log2(Math.abs(value))), smallest) - bits);
}

function stored(store: Store, dtype: FloatDtype, value: number): number {
  if (store === 'nearest' || value === 0 || !Number.isFinite(value)) return roundTo(dtype, value);
  const unit = lastPlace(dtype, value);
  return STORES[store](value / unit) * unit;
}

function distanceOf(heads: Heads, rows: readonly number[], made: Float64Array, store: Store): number {
  const { dtype, headDim, y } = heads;
  let sum = 0;
  for (const [n, r] of rows.entries()) {
    for (let i = 0; i < headDim; i++) {
      const value = made[n * headDim + i]!;
      const off = y[r * headDim + i]! - stored(store, dtype, value);
      if (off !== 0) sum += (off / lastPlace(dtype, value || off)) ** 2;
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
    const at = rowAt(heads, r);
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
        cell = { j, token, angle, size: 0, fourth: 0, along: 0, across: 0, outward: 0, upward: 0, count: 0 };
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

/** Copies of one cell, as repeated rows give them, are one measurement. */
function distinct(cells: readonly Cell[]): Cell[] {
  const known = new Set<string>();
  return cells.filter(({ j, size, along, across }) => {
    if (along === 0 && across === 0) return true;
    const key = `${j} ${size} ${along} ${across}`;
    return !known.has(key) && known.add(key);
  });
}

/** A weighted mean of cells in units of a regressor. */
type Mean = Pick<Systematic, 'value' | 'error' | 'weight' | 'clear'>;

/**
 * The factor of `by` in `of`, with its error from the scatter of the cells, as if each cell had been left out once
 * (MacKinnon and White's HC3): one cell that decides alone has no weight.
 *
 * @param smallest - an effect, in units of `of`, that is left alone
 * @param cluster - cells that are not independent of each other
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
  const noise = ({ angle, j }: Cell): number => (angle ? Math.min(control.loosest, angleNoise(angle, j)) : 0);
  // A table's error is shared by all heads, each rounding of y is its own.
  const weight = (cell: Cell): number =>
    1 / (unit ** 2 * (0.15 + (0.15 * cell.fourth) / cell.size ** 2) + noise(cell) ** 2);
  /** Less what an angle in f32 and fast sines may do. */
  const beyond = (value: number, least: number): number => Math.sign(value) * Math.max(0, Math.abs(value) - least);
  const along = (cell: Cell): number => beyond(cell.along / cell.size, 2 * SINE_NOISE);
  const across = (cell: Cell): number => beyond(cell.across / cell.size, 2 * SINE_NOISE + noise(cell));
  const frequencies = steps.source ? steps.frequencies().invFreq : undefined;
  const frequency = ({ j }: Cell): number => (frequencies ? steps.sign * (frequencies[j] ?? 0) : 0);
  const turned = ({ angle }: Cell): number => angle || 0;
  // A norm's rounding is shared by a whole row.
  const cluster = heads.norm ? ({ token }: Cell): number => token : undefined;
  const found: Systematic[] = [];
  const test = (
    kind: Systematic['kind'],
    some: readonly Cell[],
    of: (cell: Cell) => number,
    by: (cell: Cell) => number,
    where: Pick<Systematic, 'pairs' | 'token'>,
    weights = weight,
    smallest = FLOOR * unit,
  ): void => {
    const mean = meanOf(some, of, by, weights, smallest, cluster);
    if (mean) found.push({ kind, ...mean, ...where });
  };
  const whole = { pairs: [0, pairs - 1] as const, token: undefined };
  const one = (): number => 1;
  const places = ({ outward, count }: Cell): number => (count > 0 ? outward / count : 0);
  const up = ({ upward, count }: Cell): number => (count > 0 ? upward / count : 0);
  for (const side of [places, up]) test('store', cells, side, one, whole, ({ count }) => count, FLOOR);
  test('magnitude', cells, along, one, whole);
  test('angle', cells, across, one, whole);
  if (frequencies) {
    test('frequency', cells, across, turned, whole);
    test('base', cells, across, ({ j, angle }) => (-2 * j * (angle || 0)) / (2 * pairs), whole);
    test('position', cells, across, frequency, whole);
  }
  const split = (count: number, of: (cell: Cell) => number): Cell[][] => {
    const parts = Array.from({ length: count }, (): Cell[] => []);
    for (const cell of cells) parts[of(cell)]?.push(cell);
    return parts;
  };
  const groups = Math.min(GROUPS, pairs);
  const first = (n: number): number => Math.ceil((n * pairs) / groups);
  for (const [count, of] of [
    [groups, ({ j }: Cell) => Math.floor((j * groups) / pairs)],
    [pairs, ({ j }: Cell) => j],
  ] as const) {
    for (const [n, some] of split(count, of).entries()) {
      const where = {
        pairs: count === pairs ? ([n, n] as const) : ([first(n), first(n + 1) - 1] as const),
        token: undefined,
      };
      test('magnitude', some, along, one, where);
      test('angle', some, across, one, where);
      if (frequencies) test('frequency', some, across, turned, where);
    }
  }
  for (const [token, some] of split(heads.batch * heads.seq, (cell) => cell.token).entries()) {
    if (some.length === 0) continue;
    if (!heads.norm) test('magnitude', some, along, one, { ...whole, token });
    if (frequencies) test('position', some, across, frequency, { ...whole, token });
  }
  return found;
}
