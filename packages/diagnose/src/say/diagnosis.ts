/** The result of a diagnosis. @module */
import type { RopeLayout } from 'ropewalk';
import type { Identification } from '../fit/identification.js';
import type { Mutant } from '../kernel/mutant.js';
import type { Findings, Named, WorstElement } from '../match/bug-search.js';
import type { NextInput } from '../match/next-input.js';
import type { Places, RowSummary } from '../match/wrong-rows.js';
import type { Difference } from './differences.js';

/** The answer in a word. */
export type Verdict =
  /** y is as expected, to the last bits of its dtype. */
  | 'as expected'
  /** The rotation is the expected one, but cos, sin or products were computed in fewer bits. */
  | 'less precise'
  /** y comes from a known bug, or one of several that this input cannot tell apart. */
  | 'known bug'
  /** y is right except for some tokens, heads, dimensions or elements, which `rowSummary` lists. */
  | 'partly right'
  /** y is another rotation, or terms of one, which `differences` and `measured` describe. */
  | 'different'
  /** No rotation of pairs explains y. */
  | 'not understood'
  /** y is a clean rotation; there is no expectation. */
  | 'rotation';

/** The layout in which x and y were read. */
export interface FoundLayout {
  readonly layout: RopeLayout;
  /** Whether the observation gave no layout, and y fits better than in the default one. */
  readonly tried: boolean;
  /** The bugs that give y in the default layout, if this one was tried: the data cannot tell which is true. */
  readonly otherwise: readonly Named[];
}

/** The result of {@link diagnose}. */
export interface Diagnosis extends Findings {
  readonly verdict: Verdict;
  /** The layout in which x and y were read. */
  readonly layout: FoundLayout;
  /** The rows of which nothing is said, because x is not finite in them; undefined if it is finite everywhere. */
  readonly unread: { readonly where: string; readonly at: Places } | undefined;
  /** The differences in sentences; empty when all is as expected. */
  readonly differences: readonly Difference[];
  /**
   * The part that is as expected, and the contents of the rest; undefined if all is as expected or a wrong rotation
   * explains y. Without an expectation it covers only the rows that hold no rotation.
   */
  readonly rowSummary: RowSummary | undefined;
  /** The measurements, which use no expectation. */
  readonly found: Identification;
  /** The expected frequency of each pair, in radians a position; undefined without an expectation. */
  readonly expectedFrequencies: Float64Array | undefined;
  /** The element that is farthest from the expected one; undefined if none is wrong, and without an expectation. */
  readonly worst: WorstElement | undefined;
  /**
   * Whether rules that are no known bug give y too: all tokens have one position, and all angles are the expected ones times
   * one factor.
   */
  readonly otherRules: boolean;
  /** An input that tells apart what this one cannot. */
  readonly next: NextInput | undefined;
}

/** Options of {@link diagnose}. */
export interface DiagnoseOptions {
  /** The known bugs to try. Default: the whole catalogue, {@link MUTANTS}. */
  readonly mutants?: readonly Mutant[];
  /** Called after each step with the share that is done, 0 to 1. */
  readonly progress?: (done: number) => void;
}
