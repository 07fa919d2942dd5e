/**
 * Diagnosis: what a kernel did that was meant to do something else.
 *
 * Every known bug is run on the same x and positions; what makes y within rounding is the answer. Where several do, all are named, with an
 * input that tells them apart; where none does, what was measured is described. No answer is given because it is merely the nearest.
 *
 * @module
 */

import { frequenciesOf, planRope } from 'ropewalk';
import { reading, readList, readOptions, refuse, sharePairs } from 'ropewalk/backend';
import { MUTANTS } from './catalogue.js';
import { type Difference, differencesOf } from './differences.js';
import {
  describeRow,
  type Expected,
  farthest,
  type Hypothesis,
  hypothesesOf,
  misfit,
  pairsOf,
  runRows,
  type Seen,
  slackOf,
} from './hypotheses.js';
import type { Identification } from './identification.js';
import { identifyHeads } from './identify.js';
import type { Mutant } from './mutant.js';
import { type NextInput, nextInput } from './next-input.js';
import { TIERS, type Tier } from './noise.js';
import { type Heads, type Observation, type RowAt, readObservation } from './observation.js';
import { sampleRows, seenRows } from './rebuild.js';

/** The answer in a word. */
export type Verdict =
  /** y is what was expected, to the last bits of its dtype. */
  | 'as expected'
  /** The rotation is the expected one; cos, sin or products were computed in fewer bits. */
  | 'less precise'
  /** A known bug, or one of several that this input cannot tell apart. */
  | 'known bug'
  /** A rotation, but another one: see the differences. */
  | 'different'
  /** Nothing that a rotation of pairs explains. */
  | 'not understood'
  /** Without an expectation: a clean rotation. */
  | 'rotation';

/** A known bug, or two at once, that make y. */
export interface Named {
  readonly id: string;
  readonly mutants: readonly Mutant[];
}

/** Where y is farthest from what was expected, in units of its noise. */
export interface WorstElement extends RowAt {
  readonly dim: number;
  readonly positions: readonly number[];
  readonly y: number;
  readonly expected: number;
}

/** A diagnosis. */
export interface Diagnosis {
  readonly verdict: Verdict;
  /** How far noise was stretched for it. */
  readonly tier: Tier | undefined;
  /** Bugs that make y, or, of a less precise kernel, whose precision it is. More than one: this input cannot tell them apart. */
  readonly named: readonly Named[];
  /** The peers whose arithmetic of angles makes y: `hf-f32`, `ggml-f32`. */
  readonly recipes: readonly string[];
  /** Bugs that this input would not have shown; only where y is as expected. */
  readonly notRuledOut: readonly Named[];
  /** In words; empty when all is as expected. */
  readonly differences: readonly Difference[];
  readonly worst: WorstElement | undefined;
  /** What was measured without any expectation. */
  readonly found: Identification;
  /** Frequencies that were expected, by pair; undefined without an expectation. */
  readonly expectedFrequencies: Float64Array | undefined;
  /** An input that tells apart what this one leaves together. */
  readonly next: NextInput | undefined;
}

/** How much is looked at. */
export interface DiagnoseOptions {
  /** The known bugs; all of the catalogue unless given. */
  readonly mutants?: readonly Mutant[];
  /** Called after each step with the share that is done, 0 to 1. */
  readonly progress?: (done: number) => void;
}

/** Heads that are compared with every hypothesis; the right kernel is compared with all. */
const MAX_ROWS = 512;

/**
 * Diagnoses a kernel.
 *
 * @param observation - x, y and positions; tensors in host memory, only read
 * @param expected - what it was meant to do; without it the rotation is only identified
 * @param options - the known bugs
 * @throws {RopewalkError} for an observation whose parts do not belong together, an expectation that means nothing or does not fit x,
 *   options that are none, or a `progress` that throws
 */
export function diagnose(observation: Observation, expected?: Expected, options: DiagnoseOptions = {}): Diagnosis {
  const checked = readDiagnoseOptions(options);
  if (expected === undefined) return withoutExpectation(readObservation(observation), checked);
  const meant = readExpected(expected);
  const heads = readObservation(observation, axesOf(meant));
  return against(meant, heads, checked);
}

function readDiagnoseOptions(options: DiagnoseOptions): DiagnoseOptions {
  const { mutants, progress } = readOptions(options, 'diagnose: options');
  if (progress !== undefined && typeof progress !== 'function')
    refuse('RANGE', 'diagnose: progress', 'a function', progress);
  return {
    ...(mutants === undefined ? {} : { mutants: readMutants(mutants) }),
    ...(progress === undefined ? {} : { progress: (done) => reading('diagnose: progress', () => progress(done)) }),
  };
}

function readMutants(mutants: readonly Mutant[]): Mutant[] {
  return Array.from(readList(mutants, 'diagnose: mutants', 'a list of known bugs'), (mutant, n) => {
    const isMutant = reading(
      `diagnose: mutants[${n}]`,
      () => typeof mutant?.id === 'string' && typeof mutant.change === 'function',
    );
    return isMutant
      ? mutant
      : refuse('RANGE', `diagnose: mutants[${n}]`, 'a known bug, such as those in MUTANTS', mutant);
  });
}

function readExpected(expected: Expected): Expected {
  const { spec: given, direction = 'forward' } = readOptions(expected, 'diagnose: expected');
  const spec = readOptions(given, 'diagnose: expected.spec');
  planRope({ ...spec, direction, positions: 0, seqLen: 1 }); // the checks
  return { spec, direction };
}

function axesOf({ spec }: Expected): number {
  return spec.axes ? sharePairs(spec.axes, (spec.rotaryDim ?? spec.headDim) / 2).numAxes : 1;
}

function withoutExpectation(heads: Heads, { mutants = MUTANTS }: DiagnoseOptions): Diagnosis {
  const found = identifyHeads(heads);
  const blank = {
    tier: found.explains,
    named: [],
    recipes: [],
    notRuledOut: [],
    differences: [],
    worst: undefined,
    expectedFrequencies: undefined,
    next: undefined,
  };
  if (found.outcome === 'unchanged') return { ...blank, verdict: 'not understood', found };
  if (!found.expected || !found.explains)
    return { ...blank, verdict: found.outcome === 'rotation' ? 'different' : 'not understood', found };
  const verdict = 'rotation';
  if (found.explains === 'stored' || !found.positions[0]!.asGiven) return { ...blank, verdict, found };
  const precision = judge(
    found.expected,
    heads,
    mutants.filter(({ cause }) => cause === 'I'),
  );
  return { ...blank, verdict, found, recipes: precision.recipes, named: precision.named };
}

function against(
  expected: Expected,
  heads: Heads,
  { mutants = MUTANTS, progress = () => {} }: DiagnoseOptions,
): Diagnosis {
  const judged = judge(expected, heads, mutants, progress);
  const expectedFrequencies = signedFrequencies(expected);
  const found = identifyHeads(judged.normalised, expectedFrequencies);
  progress(0.9);
  const { verdict, tier, named, recipes, notRuledOut } = judged;
  const differences = verdict === 'as expected' || verdict === 'less precise' ? [] : differencesOf(expected, found);
  const settled = verdict ?? (found.outcome === 'rotation' && differences.length > 0 ? 'different' : 'not understood');
  const next = judged.together.length > 1 ? nextInput(expected, judged.together, heads, mutants) : undefined;
  // What no input separates from right is right, for this model.
  const shown = new Set(next?.groups.flat());
  progress(1);
  return {
    verdict: settled,
    tier,
    named,
    recipes,
    notRuledOut: notRuledOut.filter(({ id }) => shown.has(id)),
    differences,
    worst: judged.worst,
    found,
    expectedFrequencies,
    next,
  };
}

interface Judged extends Pick<Diagnosis, 'tier' | 'named' | 'recipes' | 'notRuledOut' | 'worst'> {
  /** Undefined when no hypothesis makes y. */
  readonly verdict: 'as expected' | 'less precise' | 'known bug' | undefined;
  /** Hypotheses that this input leaves together. */
  readonly together: readonly Hypothesis[];
  /** The observation with the norm taken out of x, where there is one. */
  readonly normalised: Heads;
}

/** Compares y with everything that is known. */
export function judge(
  expected: Expected,
  heads: Heads,
  mutants: readonly Mutant[],
  progress: (done: number) => void = () => {},
): Judged {
  return prepare(expected, mutants).judge(heads, progress);
}

/** Hypotheses with what they make, ready for any y that the same x and positions led to. */
export interface Bench {
  judge(seen: Heads, progress?: (done: number) => void): Judged;
}

/**
 * Prepares a diagnosis for many outputs of one input.
 *
 * @param expected - what is meant
 * @param mutants - the known bugs
 * @returns for observations that share x, positions and norm
 */
export function prepare(expected: Expected, mutants: readonly Mutant[]): Bench {
  const kept = new Map<string, unknown>();
  const once = <T>(key: string, make: () => T): T => {
    if (!kept.has(key)) kept.set(key, make());
    return kept.get(key) as T;
  };
  return {
    judge(heads, progress = () => {}) {
      const { dtype } = heads;
      const hypotheses = once(dtype, () => hypothesesOf(expected, heads, mutants)); // some bugs depend on y's dtype
      const right = hypotheses[0]!;
      const rows = chooseRows(right, heads, expected);
      const of = `${dtype} ${rows.join()}`;
      const make = (h: Hypothesis): Float64Array => once(`${of} ${h.id}`, () => runRows(h.steps, heads, rows));
      const slack = (h: Hypothesis, tier: Tier): Float64Array | undefined =>
        tier === 'stored'
          ? undefined
          : once(`${of} ${h.id} ${tier}`, () => slackOf(h.steps, right.steps, heads, rows, tier));
      return judgeRows({ expected, heads, rows, hypotheses, mutants, make, slack, progress });
    },
  };
}

interface Judging {
  readonly expected: Expected;
  readonly heads: Heads;
  readonly rows: readonly number[];
  /** The right one first. */
  readonly hypotheses: readonly Hypothesis[];
  readonly mutants: readonly Mutant[];
  readonly make: (h: Hypothesis) => Float64Array;
  readonly slack: (h: Hypothesis, tier: Tier) => Float64Array | undefined;
  readonly progress: (done: number) => void;
}

function judgeRows(of: Judging): Judged {
  const { expected, heads, rows, hypotheses, make, slack, progress } = of;
  const seen = seenRows(heads, rows, expected);
  const right = hypotheses[0]!;
  const fitsAt = (h: Hypothesis, tier: Tier): boolean => misfit(seen, make(h), slack(h, tier), 1) <= 1;
  const common = { worst: worstOf(seen, make(right), heads, rows), normalised: normalisedHeads(right, heads) };
  for (const [t, tier] of TIERS.entries()) {
    const fitting = hypotheses.filter((h, n) => {
      progress((0.6 * (t + n / hypotheses.length)) / TIERS.length);
      return fitsAt(h, tier);
    });
    if (fitting.length === 0) continue;
    if (fitting.includes(right)) fitting.push(...idleBugs(of));
    return { ...settle(fitting, tier, () => TIERS.find((one) => fitsAt(right, one))), ...common };
  }
  const two = findPair(of, seen);
  if (two) return { ...settle(two.pairs, two.tier, () => undefined), ...common };
  return { verdict: undefined, tier: undefined, named: [], recipes: [], notRuledOut: [], together: [], ...common };
}

function settle(
  fitting: readonly Hypothesis[],
  tier: Tier,
  rightTier: () => Tier | undefined,
): Omit<Judged, 'worst' | 'normalised'> {
  const bugs = fitting.filter(({ kind }) => kind === 'known-bug').map(({ id, mutants }): Named => ({ id, mutants }));
  const recipes = fitting.filter(({ kind }) => kind === 'recipe').map(({ id }) => id.replace('recipe:', ''));
  const together = fitting.filter(({ kind }) => kind !== 'recipe');
  if (fitting.some(({ kind }) => kind === 'right')) {
    return {
      verdict: tier === 'stored' ? 'as expected' : 'less precise',
      tier,
      named: [],
      recipes,
      notRuledOut: bugs,
      together,
    };
  }
  // A kernel that is right but for its precision is right, as far as its dtype lets it be.
  const precision = bugs.every(({ mutants }) => mutants.every(({ cause }) => cause === 'I'));
  const right = recipes.length > 0 || (precision && rightTier() !== undefined);
  if (right) return { verdict: 'less precise', tier, named: bugs, recipes, notRuledOut: [], together: [] };
  return { verdict: 'known bug', tier, named: bugs, recipes, notRuledOut: [], together };
}

/** A bug that cannot happen with these positions would not have been seen either. */
function idleBugs({ hypotheses, mutants }: Judging): Hypothesis[] {
  const { steps } = hypotheses[0]!;
  const able = new Set(hypotheses.map(({ id }) => id));
  return mutants
    .filter(({ id }) => !able.has(id))
    .map((mutant) => ({ id: mutant.id, kind: 'known-bug', mutants: [mutant], steps }));
}

/** Two bugs at once, to the last bit or with angles in f32: tried on a few rows first, as there are many pairs. */
function findPair(of: Judging, seen: Seen): { tier: Tier; pairs: Hypothesis[] } | undefined {
  const { heads, rows, hypotheses, mutants, expected, progress } = of;
  const right = hypotheses[0]!.steps;
  const able = new Set(hypotheses.map(({ id }) => id));
  const list = mutants.filter(({ id }) => able.has(id));
  const few = rows.filter((_, n) => n % Math.ceil(rows.length / 8) === 0);
  const seenFew = seenRows(heads, few, expected);
  const makes = (pair: Hypothesis, some: readonly number[], y: Seen, tier: Tier): boolean => {
    const slack = tier === 'stored' ? undefined : slackOf(pair.steps, right, heads, some, tier);
    return misfit(y, runRows(pair.steps, heads, some), slack, 1) <= 1;
  };
  for (const [n, tier] of (['stored', 'angles'] as const).entries()) {
    const pairs: Hypothesis[] = [];
    let tried = 0;
    for (const pair of pairsOf(right, list)) {
      if (tried++ % 64 === 0) progress(0.6 + 0.15 * (n + Math.min(1, tried / (list.length * list.length * 0.5))));
      if (!Object.is(pair.steps.all, right.all)) continue; // whole tensors, hundreds of times
      if (makes(pair, few, seenFew, tier) && makes(pair, rows, seen, tier)) pairs.push(pair);
    }
    if (pairs.length > 0) return { tier, pairs };
  }
  return undefined;
}

function everyRow({ batch, seq, heads }: Heads): number[] {
  return Array.from({ length: batch * seq * heads }, (_, r) => r);
}

/** All rows of a small observation; of a large one a sample, and the rows that are farthest from right. */
function chooseRows(right: Hypothesis, heads: Heads, expected: Expected): number[] {
  const all = everyRow(heads);
  if (all.length <= MAX_ROWS) return all;
  const { headDim } = heads;
  const worst = all
    .map((r) => {
      const row = [r];
      return { r, off: misfit(seenRows(heads, row, expected), runRows(right.steps, heads, row).subarray(0, headDim)) };
    })
    .filter(({ off }) => off > 1)
    .sort((a, b) => b.off - a.off || a.r - b.r);
  return [...new Set([...sampleRows(heads), ...worst.slice(0, MAX_ROWS / 4).map(({ r }) => r)])].sort((a, b) => a - b);
}

function worstOf(seen: Seen, made: Float64Array, heads: Heads, rows: readonly number[]): WorstElement | undefined {
  const { headDim } = heads;
  const { ratio, at } = farthest(seen, made);
  if (ratio <= 1) return undefined;
  const r = rows[Math.floor(at / headDim)]!;
  const dim = at % headDim;
  return { ...describeRow(heads, r), dim, y: heads.y[r * headDim + dim]!, expected: made[at]! };
}

/** The norm is taken out before pairs are looked for. */
function normalisedHeads(right: Hypothesis, heads: Heads): Heads {
  if (!heads.norm) return heads;
  const { headDim } = heads;
  const weight = heads.norm.weight.readNumbers() as Float64Array;
  const x = new Float64Array(heads.x.length);
  for (let at = 0; at < x.length; at += headDim)
    x.set(right.steps.normalise(heads.x.subarray(at, at + headDim), weight, heads.norm.eps), at);
  return { ...heads, x, norm: undefined };
}

/** Frequencies of an expectation, negative backwards. */
function signedFrequencies({ spec, direction = 'forward' }: Expected): Float64Array {
  return frequenciesOf(spec).invFreq.map((f) => (direction === 'backward' ? -f : f));
}
