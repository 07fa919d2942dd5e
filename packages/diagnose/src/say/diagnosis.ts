/** The result of a diagnosis. @module */
import type { RopeLayout } from 'ropewalk';
import type { Identification } from '../fit/identification.js';
import type { Mutant } from '../kernel/mutant.js';
import type { Tier } from '../kernel/noise.js';
import type { Named, WorstElement } from '../match/bug-search.js';
import type { NextInput } from '../match/next-input.js';
import type { RowSummary } from '../match/wrong-rows.js';
import type { Difference } from './differences.js';

/** The answer in a word. */
export type Verdict =
  /** y is what was expected, to the last bits of its dtype. */
  | 'as expected'
  /** The rotation is the expected one, but cos, sin or products were computed in fewer bits. */
  | 'less precise'
  /** A known bug, or one of several that this input cannot tell apart. */
  | 'known bug'
  /** Right, but for some tokens, heads, dimensions or elements: see `rowSummary`. */
  | 'partly right'
  /** A rotation, but another one, or terms of one: see the differences and what was measured. */
  | 'different'
  /** Nothing that a rotation of pairs explains. */
  | 'not understood'
  /** Without an expectation: a clean rotation. */
  | 'rotation';

/** The layout in which x and y were read. */
export interface FoundLayout {
  readonly layout: RopeLayout;
  /** The observation gave no layout, and y fits better than in the default one. */
  readonly tried: boolean;
  /** Bugs that give y in the default layout, where this one was tried: the data cannot say which is so. */
  readonly otherwise: readonly Named[];
}

/** The result of {@link diagnose}. */
export interface Diagnosis {
  readonly verdict: Verdict;
  /** How x and y were read. */
  readonly layout: FoundLayout;
  /** The noise within which the verdict explains y; undefined when nothing explains it. */
  readonly tier: Tier | undefined;
  /**
   * Bugs that give y, or the precision bugs of a less precise kernel. If there are several, this input cannot tell them
   * apart.
   */
  readonly named: readonly Named[];
  /** The peer whose arithmetic of angles gives y, `hf-f32` or `ggml-f32`, where no other arithmetic does. */
  readonly recipes: readonly string[];
  /** Sentences: systematic errors of a kernel that is right within the noise of each element. */
  readonly measured: readonly string[];
  /** Where nothing gives y: how many known bugs, and pairs of them, were tried. */
  readonly tried: { readonly bugs: number; readonly pairs: number };
  /** Bugs that this input would not have shown; only where y is as expected. */
  readonly notRuledOut: readonly Named[];
  /** Differences in sentences; empty when all is as expected. */
  readonly differences: readonly Difference[];
  readonly worst: WorstElement | undefined;
  /**
   * What is as expected, and what the rest holds; undefined where all is as expected or a wrong rotation explains y.
   * Without an expectation: only the rows that hold no rotation.
   */
  readonly rowSummary: RowSummary | undefined;
  /** What was measured, without any expectation. */
  readonly found: Identification;
  /** The expected frequency of each pair, in radians a position; undefined without an expectation. */
  readonly expectedFrequencies: Float64Array | undefined;
  /** An input that tells apart what this one cannot. */
  readonly next: NextInput | undefined;
}

/** Options of {@link diagnose}. */
export interface DiagnoseOptions {
  /** The known bugs to try; the whole catalogue, {@link MUTANTS}, unless given. */
  readonly mutants?: readonly Mutant[];
  /** Called after each step with the share that is done, 0 to 1. */
  readonly progress?: (done: number) => void;
}
