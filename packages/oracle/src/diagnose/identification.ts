/** The result of identifying a rotation. @module */
import type { FloatDtype, RopeAxes } from 'ropewalk';
import type { FrequencyLaw } from './frequency-law.js';
import type { Geometry, PairLayout } from './geometry.js';
import type { Expected } from './hypotheses.js';
import type { Tier } from './noise.js';
import type { FoundPosition, PositionRule } from './position-fit.js';
import type { FoundBase } from './spec-fit.js';

/** What happened to x. */
export type Outcome =
  /** Pairs of dimensions were rotated. */
  | 'rotation'
  /** Pairs of dimensions were rotated, but not by one frequency times one position. */
  | 'odd rotation'
  /** Pairs of dimensions were rotated and mirrored: one product has the wrong sign. */
  | 'mirrored'
  /** y is x, up to a factor. */
  | 'unchanged'
  | 'zero'
  | 'not finite'
  /** No pairs of dimensions keep their lengths. */
  | 'no rotation';

/** One pair as measured. */
export interface FoundPair {
  readonly read: readonly [number, number];
  readonly write: readonly [number, number];
  /** Radians a position, negative backwards. */
  readonly frequency: number;
  readonly low: number;
  readonly high: number;
  readonly gain: number;
  /** Axes that explain it. */
  readonly axes: readonly number[];
  /** Whether its rotation is larger than the noise. */
  readonly turns: boolean;
}

/** What was found. Fields that need a rotation are undefined without one. */
export interface Identification {
  readonly outcome: Outcome;
  readonly headDim: number;
  readonly dtype: FloatDtype;
  readonly numAxes: number;
  readonly geometry: Geometry | undefined;
  readonly layout: PairLayout | undefined;
  readonly pairs: readonly FoundPair[];
  /** −1 when every pair turns backwards. */
  readonly sign: 1 | -1 | undefined;
  /** The magnitude, where all pairs share one. */
  readonly gain: number | undefined;
  /** Its bounds. */
  readonly gainRange: readonly [low: number, high: number] | undefined;
  readonly law: FrequencyLaw | undefined;
  /** Readings of the base, the likeliest first. */
  readonly bases: readonly FoundBase[];
  /** Sharing rules that fit, for several axes. */
  readonly axes: readonly RopeAxes[];
  /** What the kernel takes for the position; several where the data cannot tell. Empty when no rule was found. */
  readonly positions: readonly PositionRule[];
  /** The evidence for it. */
  readonly foundPositions: readonly FoundPosition[];
  readonly headsAgree: boolean;
  /** The rotation as a record, where it can be written as one. */
  readonly expected: Expected | undefined;
  /** Up to which noise that record explains y; undefined when it does not. */
  readonly explains: Tier | undefined;
  /** What the data leaves open, in sentences. */
  readonly open: readonly string[];
}
