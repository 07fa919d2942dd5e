/** The result of identifying a rotation. @module */
import type { FloatDtype, RopeAxes } from 'ropewalk';
import type { Tier } from '../kernel/noise.js';
import type { Geometry, PairAt, PairLayout } from '../measure/geometry.js';
import type { FoundPosition, PositionRule } from '../measure/position-fit.js';
import type { Expected } from '../read/expected.js';
import type { FoundBase, FrequencyLaw } from './frequency-law.js';

/** The fate of x. */
export type Outcome =
  /** Pairs of dimensions were rotated. */
  | 'rotation'
  /** Pairs of dimensions were rotated, but not by one frequency times one position. */
  | 'odd rotation'
  /** Pairs of dimensions were rotated and mirrored: one product has the wrong sign. */
  | 'mirrored'
  /** y is x, up to a factor. */
  | 'unchanged'
  /** y is 0 or NaN everywhere: nothing wrote it, or 0 or NaN was computed. */
  | 'zero'
  | 'nan'
  | 'not finite'
  /** No pairs of dimensions keep their lengths. */
  | 'no rotation';

/** One measured pair. */
export interface FoundPair extends PairAt {
  /** Radians a position, negative for backward; the slowest reading if it is not known. */
  readonly frequency: number;
  readonly low: number;
  readonly high: number;
  /** Whether the number of whole turns between positions is known. */
  readonly known: boolean;
  /** Other intervals that may contain a frequency that is not known, each up to multiples of `period`. */
  readonly others: readonly (readonly [number, number])[];
  /** Positions show the frequency only up to multiples of this number of radians a position. */
  readonly period: number;
  readonly gain: number;
  /** The axes that explain it. */
  readonly axes: readonly number[];
  /** Whether it rotates by a frequency that is not 0. */
  readonly turns: boolean;
  /** Whether its rotation is larger than the noise at some token. */
  readonly seen: boolean;
  /** Whether some row shows that it rotates, which a sample need not show. */
  readonly moves: boolean;
}

/** Whether a pair rotates by a frequency that is known to 2 %. */
export function isClear({ turns, known, low, high, frequency }: FoundPair): boolean {
  return turns && known && high - low < 0.02 * Math.abs(frequency);
}

/** The result of {@link identify}. Fields that need a rotation are undefined without one. */
export interface Identification {
  readonly outcome: Outcome;
  readonly headDim: number;
  readonly dtype: FloatDtype;
  readonly numAxes: number;
  readonly geometry: Geometry | undefined;
  readonly layout: PairLayout | undefined;
  /** The layouts that the data cannot tell apart, `layout` among them. */
  readonly layouts: readonly PairLayout[];
  readonly pairs: readonly FoundPair[];
  /** −1 when every known pair turns backwards; undefined when they differ, or none is known. */
  readonly sign: 1 | -1 | undefined;
  /** Formulas of frequencies that have no base and scaling; several when the data cannot tell. */
  readonly formulas: readonly string[];
  /** The magnitude, if all pairs share one. */
  readonly gain: number | undefined;
  /** The bounds of the magnitude. */
  readonly gainRange: readonly [low: number, high: number] | undefined;
  /** The factors of cos and sin, if they differ; `error` is the largest absolute error. */
  readonly gains: { readonly cos: number; readonly sin: number; readonly error: number } | undefined;
  readonly law: FrequencyLaw | undefined;
  /** Readings of the base, the likeliest first. */
  readonly bases: readonly FoundBase[];
  /** The rules that distribute pairs among several axes as measured. */
  readonly axes: readonly RopeAxes[];
  /** The rules from the given to the real position; several when the data cannot tell, empty when there is none. */
  readonly positions: readonly PositionRule[];
  /** The evidence for the rules. */
  readonly foundPositions: readonly FoundPosition[];
  /** Whether the tokens that were measured have one position, which shows only its product with the frequencies. */
  readonly onePosition: boolean;
  readonly headsAgree: boolean;
  /** How many heads of each token were measured, and how many there are. */
  readonly headsSeen: readonly [measured: number, all: number];
  /** The rotation as a record, where it can be written as one. */
  readonly expected: Expected | undefined;
  /** The noise within which that record explains y; undefined when it does not. */
  readonly explains: Tier | undefined;
  /** The questions that the data leaves open, in sentences. */
  readonly open: readonly string[];
}
