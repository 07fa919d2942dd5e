/** The claims of a report, as data. A sentence is printed only if its claim holds for every element that it names. @module */
import type { Heads } from '../read/observation.js';

/** A pair and its frequency, in radians a position, negative for backward. */
export interface ClaimedPair {
  /** Its place among the pairs: errors of angles in f32 grow with it. */
  readonly number: number;
  readonly read: readonly [number, number];
  readonly write: readonly [number, number];
  readonly frequency: number;
  /** How far the frequency may be off; 0 for one that is said exactly. */
  readonly error: number;
}

/** The position of a row for a pair; NaN where nothing is said of the row. */
export type ClaimedPosition = (row: number, pair: number) => number;

/** A claim about every row that is diagnosed. */
export type Claim =
  /** Each pair turns by frequency × position, within noise. A pair that does not rotate has the frequency 0. */
  | { readonly kind: 'turns'; readonly pairs: readonly ClaimedPair[]; readonly position: ClaimedPosition }
  /** Each pair turns by other angles than frequency × position, in some row and by more than noise. */
  | { readonly kind: 'turns otherwise'; readonly pairs: readonly ClaimedPair[]; readonly position: ClaimedPosition }
  /** The length of each pair becomes larger by one factor in every row; with `gain`, by that factor. */
  | { readonly kind: 'lengths'; readonly pairs: readonly ClaimedPair[]; readonly gain?: number | undefined }
  /**
   * Each pair is x0·cos − x1·sin and x0·sin + x1·cos. `terms` gives cos, sin, and the largest angle behind them, whose
   * error in f32 counts; NaN where nothing is said of the row.
   */
  | {
      readonly kind: 'terms';
      readonly pairs: readonly ClaimedPair[];
      readonly terms: (row: number, pair: number) => readonly [cos: number, sin: number, angle: number];
    }
  /** Each dimension holds such values in every row. */
  | { readonly kind: 'holds'; readonly dims: readonly number[]; readonly value: 'zero' | 'not finite' | 'x' };

/** The rows of an observation to which claims are held, with the norm applied to x. */
export interface Evidence extends Pick<Heads, 'x' | 'y' | 'headDim' | 'rows' | 'dtype'> {
  /** The largest |x| of each row. */
  readonly sizes: Float64Array;
}
