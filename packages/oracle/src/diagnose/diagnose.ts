/**
 * Diagnosis: what a wrong kernel did.
 *
 * Every known bug runs on the same x and positions. The answer is the bug that gives y within rounding. If several do,
 * all are named, with an input that tells them apart. If none does, the measurements are described. A bug is never
 * named because it is merely the nearest. @module
 */
import { frequenciesOf, planRope } from 'ropewalk';
import { reading, readList, readOptions, refuse, sharePairs } from 'ropewalk/backend';
import { MUTANTS } from './catalogue.js';
import { type Difference, differencesOf } from './differences.js';
import {
  describeRow,
  type Expected,
  everyRow,
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
  /** The rotation is the expected one, but cos, sin or products were computed in fewer bits. */
  | 'less precise'
  /** A known bug, or one of several that this input cannot tell apart. */
  | 'known bug'
  /** A rotation, but another one: see the differences. */
  | 'different'
  /** Nothing that a rotation of pairs explains. */
  | 'not understood'
  /** Without an expectation: a clean rotation. */
  | 'rotation';

/** A known bug, or two at once, that give y. */
export interface Named {
  /** The ids of its mutants, joined by `+`. */
  readonly id: string;
  readonly mutants: readonly Mutant[];
}

/** The element of y that is farthest from what was expected, in units of its noise. */
export interface WorstElement extends RowAt {
  readonly dim: number;
  /** The given position on each axis. */
  readonly positions: readonly number[];
  readonly y: number;
  readonly expected: number;
}

/** The result of {@link diagnose}. */
export interface Diagnosis {
  readonly verdict: Verdict;
  /** The noise within which the verdict explains y; undefined when nothing explains it. */
  readonly tier: Tier | undefined;
  /**
   * Bugs that give y, or the precision bugs of a less precise kernel. If there are several, this input cannot tell them
   * apart.
   */
  readonly named: readonly Named[];
  /** Peers whose arithmetic of angles gives y: `hf-f32`, `ggml-f32`. */
  readonly recipes: readonly string[];
  /** Bugs that this input would not have shown; only where y is as expected. */
  readonly notRuledOut: readonly Named[];
  /** Differences in sentences; empty when all is as expected. */
  readonly differences: readonly Difference[];
  readonly worst: WorstElement | undefined;
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

/** Heads that are compared with every hypothesis; the right kernel is compared with all heads. */
const MAX_ROWS = 512;

/**
 * Diagnoses a kernel.
 *
 * @param observation - x, y and positions; tensors in host memory, only read
 * @param expected - the RoPE that the kernel should compute; without it the rotation is only identified
 * @param options - the known bugs, and a progress callback
 * @throws {RopewalkError} SHAPE, DTYPE or RANGE for an observation whose parts do not fit together, an expectation that
 *   is wrong or does not fit x, wrong options, or a `progress` that throws
 * @example
 * const { verdict, named } = diagnose({ x, y, positions: [0, 1, 2] }, { spec: { headDim: 64, pairing: 'half', base:
 * 10000 } });
 */
export function diagnose(observation: Observation, expected?: Expected, options: DiagnoseOptions = {}): Diagnosis {
  const { mutants, progress } = readDiagnoseOptions(options);
  if (expected === undefined) return withoutExpectation(readObservation(observation), mutants);
  const meant = readExpected(expected);
  return against(meant, readObservation(observation, axesOf(meant)), mutants, progress);
}

function readDiagnoseOptions(options: DiagnoseOptions): Required<DiagnoseOptions> {
  const { mutants = MUTANTS, progress = () => {} } = readOptions(options, 'diagnose: options');
  if (typeof progress !== 'function') refuse('RANGE', 'diagnose: progress', 'a function', progress);
  const list = Array.from(readList(mutants, 'diagnose: mutants', 'a list of known bugs'), (mutant, n) => {
    const where = `diagnose: mutants[${n}]`;
    if (!reading(where, () => typeof mutant?.id === 'string' && typeof mutant.change === 'function'))
      refuse('RANGE', where, 'a known bug, such as those in MUTANTS', mutant);
    return mutant;
  });
  return { mutants: list, progress: (done) => reading('diagnose: progress', () => progress(done)) };
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

function withoutExpectation(heads: Heads, mutants: readonly Mutant[]): Diagnosis {
  const found = identifyHeads(heads);
  const { outcome, expected, explains, positions } = found;
  const understood = outcome !== 'unchanged' && expected && explains;
  // A record that explains y only with noise is compared with the peers' arithmetic and with precision bugs.
  const precise = explains === 'stored' || !positions[0]?.asGiven;
  const judged =
    understood && !precise
      ? new Bench(
          expected,
          mutants.filter(({ cause }) => cause === 'I'),
        ).judge(heads)
      : undefined;
  return {
    verdict: understood ? 'rotation' : outcome === 'rotation' ? 'different' : 'not understood',
    tier: explains,
    named: judged?.named ?? [],
    recipes: judged?.recipes ?? [],
    notRuledOut: [],
    differences: [],
    worst: undefined,
    found,
    expectedFrequencies: undefined,
    next: undefined,
  };
}

function against(
  expected: Expected,
  heads: Heads,
  mutants: readonly Mutant[],
  progress: (done: number) => void,
): Diagnosis {
  const judged = new Bench(expected, mutants).judge(heads, progress);
  const { tier, named, recipes, notRuledOut, worst, together } = judged;
  const expectedFrequencies = signedFrequencies(expected);
  const found = identifyHeads(judged.normalised, expectedFrequencies);
  progress(0.9);
  const right = judged.verdict === 'as expected' || judged.verdict === 'less precise';
  const differences = right ? [] : differencesOf(expected, found);
  const rotates = found.outcome === 'rotation' && differences.length > 0;
  const next = together.length > 1 ? nextInput(expected, together, heads, mutants) : undefined;
  // A bug that no input separates from the right kernel is not a bug for this model.
  const shown = new Set(next?.groups.flat());
  progress(1);
  return {
    verdict: judged.verdict ?? (rotates ? 'different' : 'not understood'),
    tier,
    named,
    recipes,
    notRuledOut: notRuledOut.filter(({ id }) => shown.has(id)),
    differences,
    worst,
    found,
    expectedFrequencies,
    next,
  };
}

interface Judged extends Pick<Diagnosis, 'tier' | 'named' | 'recipes' | 'notRuledOut' | 'worst'> {
  /** Undefined when no hypothesis gives y. */
  readonly verdict: 'as expected' | 'less precise' | 'known bug' | undefined;
  /** Hypotheses that this input cannot tell apart. */
  readonly together: readonly Hypothesis[];
  /** The observation with the norm applied to x, where there is one. */
  readonly normalised: Heads;
}

/** The hypotheses about one input and their outputs, ready for any y that came of the same x, positions and norm. */
export class Bench {
  readonly #expected: Expected;
  readonly #mutants: readonly Mutant[];
  readonly #kept = new Map<string, unknown>();

  constructor(expected: Expected, mutants: readonly Mutant[]) {
    this.#expected = expected;
    this.#mutants = mutants;
  }

  #once<T>(key: string, make: () => T): T {
    if (!this.#kept.has(key)) this.#kept.set(key, make());
    return this.#kept.get(key) as T;
  }

  /** Compares y with every hypothesis, tier by tier, and then with pairs of bugs. */
  judge(heads: Heads, progress: (done: number) => void = () => {}): Judged {
    const { dtype } = heads;
    // Some bugs depend on y's dtype.
    const hypotheses = this.#once(dtype, () => hypothesesOf(this.#expected, heads, this.#mutants));
    const right = hypotheses[0]!;
    const rows = chooseRows(right, heads, this.#expected);
    const seen = seenRows(heads, rows, this.#expected);
    const of = `${dtype} ${rows.join()}`;
    const make = (h: Hypothesis) => this.#once(`${of} ${h.id}`, () => runRows(h.steps, heads, rows));
    const fitsAt = (h: Hypothesis, tier: Tier): boolean => {
      const key = `${of} ${h.id} ${tier}`;
      const slack =
        tier === 'stored' ? undefined : this.#once(key, () => slackOf(h.steps, right.steps, heads, rows, tier));
      return misfit(seen, make(h), slack, 1) <= 1;
    };
    const common = { worst: worstOf(seen, make(right), heads, rows), normalised: normalisedHeads(right, heads) };
    for (const [t, tier] of TIERS.entries()) {
      const fitting = hypotheses.filter((h, n) => {
        progress((0.6 * (t + n / hypotheses.length)) / TIERS.length);
        return fitsAt(h, tier);
      });
      if (fitting.length === 0) continue;
      if (fitting.includes(right)) fitting.push(...idleBugs(hypotheses, this.#mutants));
      return { ...settle(fitting, tier, () => TIERS.some((one) => fitsAt(right, one))), ...common };
    }
    const able = new Set(hypotheses.map(({ id }) => id));
    const two = findPair(
      this.#expected,
      right.steps,
      this.#mutants.filter(({ id }) => able.has(id)),
      heads,
      rows,
      progress,
    );
    if (two) return { ...settle(two.pairs, two.tier, () => false), ...common };
    return { verdict: undefined, tier: undefined, named: [], recipes: [], notRuledOut: [], together: [], ...common };
  }
}

function settle(
  fitting: readonly Hypothesis[],
  tier: Tier,
  rightFits: () => boolean,
): Omit<Judged, 'worst' | 'normalised'> {
  const bugs = fitting.filter(({ kind }) => kind === 'known-bug').map(({ id, mutants }): Named => ({ id, mutants }));
  const recipes = fitting.filter(({ kind }) => kind === 'recipe').map(({ id }) => id.replace('recipe:', ''));
  const together = fitting.filter(({ kind }) => kind !== 'recipe');
  const common = { tier, recipes };
  if (fitting.some(({ kind }) => kind === 'right')) {
    const verdict = tier === 'stored' ? 'as expected' : 'less precise';
    return { ...common, verdict, named: [], notRuledOut: bugs, together };
  }
  // A kernel whose only bug is its precision is right as far as its dtype allows.
  const precision = bugs.every(({ mutants }) => mutants.every(({ cause }) => cause === 'I'));
  if (recipes.length > 0 || (precision && rightFits()))
    return { ...common, verdict: 'less precise', named: bugs, notRuledOut: [], together: [] };
  return { ...common, verdict: 'known bug', named: bugs, notRuledOut: [], together };
}

/** Bugs that cannot happen with these positions: this input would not have shown them. */
function idleBugs(hypotheses: readonly Hypothesis[], mutants: readonly Mutant[]): Hypothesis[] {
  const { steps } = hypotheses[0]!;
  const able = new Set(hypotheses.map(({ id }) => id));
  return mutants
    .filter(({ id }) => !able.has(id))
    .map((mutant) => ({ id: mutant.id, kind: 'known-bug', mutants: [mutant], steps }));
}

/** Two bugs at once, to the last bit or with angles in f32: tried on a few rows first, because there are many pairs. */
function findPair(
  expected: Expected,
  right: Hypothesis['steps'],
  mutants: readonly Mutant[],
  heads: Heads,
  rows: readonly number[],
  progress: (done: number) => void,
): { tier: Tier; pairs: Hypothesis[] } | undefined {
  const few = rows.filter((_what, n) => n % Math.ceil(rows.length / 8) === 0);
  const [seenFew, seen] = [seenRows(heads, few, expected), seenRows(heads, rows, expected)];
  const fits = ({ steps }: Hypothesis, some: readonly number[], y: Seen, tier: Tier): boolean => {
    const slack = tier === 'stored' ? undefined : slackOf(steps, right, heads, some, tier);
    return misfit(y, runRows(steps, heads, some), slack, 1) <= 1;
  };
  for (const [n, tier] of (['stored', 'angles'] as const).entries()) {
    const pairs: Hypothesis[] = [];
    let tried = 0;
    for (const pair of pairsOf(right, mutants)) {
      if (tried++ % 64 === 0) progress(0.6 + 0.15 * (n + Math.min(1, tried / (mutants.length * mutants.length * 0.5))));
      if (!Object.is(pair.steps.all, right.all)) continue; // it would run whole tensors, hundreds of times
      if (fits(pair, few, seenFew, tier) && fits(pair, rows, seen, tier)) pairs.push(pair);
    }
    if (pairs.length > 0) return { tier, pairs };
  }
  return undefined;
}

/** All rows of a small observation. Of a large one, a sample and the rows that are farthest from right. */
function chooseRows(right: Hypothesis, heads: Heads, expected: Expected): number[] {
  const all = everyRow(heads);
  if (all.length <= MAX_ROWS) return all;
  const worst = all
    .map((r) => ({ r, off: misfit(seenRows(heads, [r], expected), runRows(right.steps, heads, [r])) }))
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

/** Applies the norm to x, so that pairs can be looked for. */
function normalisedHeads(right: Hypothesis, heads: Heads): Heads {
  if (!heads.norm) return heads;
  const { headDim } = heads;
  const weight = heads.norm.weight.readNumbers() as Float64Array;
  const x = new Float64Array(heads.x.length);
  for (let at = 0; at < x.length; at += headDim)
    x.set(right.steps.normalise(heads.x.subarray(at, at + headDim), weight, heads.norm.eps), at);
  return { ...heads, x, norm: undefined };
}

/** Expected frequencies; negative for the backward direction. */
function signedFrequencies({ spec, direction = 'forward' }: Expected): Float64Array {
  return frequenciesOf(spec).invFreq.map((f) => (direction === 'backward' ? -f : f));
}
