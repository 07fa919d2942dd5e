/**
 * Diagnosis: what a wrong kernel did.
 *
 * Every known bug runs on the same x and positions. The answer is the bug that gives y within rounding. If several do,
 * all are named, with an input that tells them apart. If none does, the measurements are described. A bug is never
 * named because it is merely the nearest. @module
 */
import { frequenciesOf, planRope, type RopeLayout, roundTo } from 'ropewalk';
import { type OptionNames, reading, readOptions, refuse, sharePairs } from 'ropewalk/backend';
import { Bench, type Judged, type Named, type WorstElement } from './bench.js';
import { MUTANTS } from './catalogue.js';
import { type Census, type CensusOfRows, type RowsAside, rowsAside, takeCensus } from './census.js';
import { type Difference, differencesOf, isProven } from './differences.js';
import type { Expected } from './hypotheses.js';
import type { Identification } from './identification.js';
import { identifyHeads } from './identify.js';
import { describeMembers } from './members.js';
import { type Mutant, readMutants } from './mutant.js';
import { type NextInput, nextInput } from './next-input.js';
import type { Tier } from './noise.js';
import { type Heads, type Observation, readLayouts } from './observation.js';
import { describePairErrors } from './pair-errors.js';

/** The answer in a word. */
export type Verdict =
  /** y is what was expected, to the last bits of its dtype. */
  | 'as expected'
  /** The rotation is the expected one, but cos, sin or products were computed in fewer bits. */
  | 'less precise'
  /** A known bug, or one of several that this input cannot tell apart. */
  | 'known bug'
  /** Right, but for some tokens, heads, dimensions or elements: see the census. */
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
  readonly census: Census | undefined;
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

const NAMES: OptionNames<DiagnoseOptions> = { mutants: true, progress: true };

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
  const meant = expected === undefined ? undefined : readExpected(expected);
  let best: Diagnosis | undefined;
  for (const { layout, heads } of readLayouts(observation, meant && axesOf(meant))) {
    // A second reading is rare; its progress is not shown.
    const told = best ? () => {} : progress;
    const one = meant ? against(meant, heads, mutants, told) : withoutExpectation(heads, mutants);
    const tried = layout !== observation.layout && layout !== DEFAULT_LAYOUT;
    const found: Diagnosis = { ...one, layout: { layout, tried, otherwise: best?.named ?? [] } };
    if (!best || rank(found) > rank(best)) best = found;
    if (rank(best) === RIGHT) break;
  }
  return best!;
}

/** What a dump is read as where it gives no layout. */
const DEFAULT_LAYOUT: RopeLayout = 'bsnh';

const RIGHT = 3;

/** How well a reading explains y: {@link RIGHT}, by a bug, by two, by a rotation or a part of it, not at all. */
function rank({ verdict, named, found, census }: Diagnosis): number {
  switch (verdict) {
    case 'as expected':
    case 'less precise':
      return RIGHT;
    case 'rotation':
      return found.positions[0]?.asGiven ? RIGHT : 2;
    case 'partly right':
      return 2 * census!.wrongElements < census!.elements ? RIGHT : 1;
    case 'known bug':
      return named.some(({ mutants }) => mutants.length === 1) ? 2.5 : 2;
    case 'not understood':
      return 0;
    default:
      return 1;
  }
}

function readDiagnoseOptions(options: DiagnoseOptions): Required<DiagnoseOptions> {
  const { mutants = MUTANTS, progress = () => {} } = readOptions(options, 'diagnose: options', NAMES);
  if (typeof progress !== 'function') refuse('RANGE', 'diagnose: progress', 'a function', progress);
  return {
    mutants: readMutants(mutants, 'diagnose: mutants'),
    progress: (done) => reading('diagnose: progress', () => progress(done)),
  };
}

/** Checks an expectation, and copies it. */
export function readExpected(expected: Expected): Expected {
  const { spec: given, direction = 'forward' } = readOptions(expected, 'diagnose: expected', {
    spec: true,
    direction: true,
  });
  const spec = readOptions(given, 'diagnose: expected.spec');
  planRope({ ...spec, direction, positions: 0, seqLen: 1 }); // the checks
  return { spec, direction };
}

/** Position axes of an expectation. */
export function axesOf({ spec }: Expected): number {
  return spec.axes ? sharePairs(spec.axes, (spec.rotaryDim ?? spec.headDim) / 2).numAxes : 1;
}

/** A diagnosis of one reading. */
type Read = Omit<Diagnosis, 'layout'>;

function withoutExpectation(all: Heads, mutants: readonly Mutant[]): Read {
  const { heads, found, census } = identifyLive(all);
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
  const rotation = census ? 'partly right' : 'rotation';
  return {
    verdict: understood ? rotation : outcome === 'rotation' ? 'different' : 'not understood',
    tier: explains,
    named: judged?.named ?? [],
    recipes: judged?.recipes ?? [],
    tried: { bugs: 0, pairs: 0 },
    measured: [],
    notRuledOut: [],
    differences: [],
    worst: undefined,
    census,
    found,
    expectedFrequencies: undefined,
    next: undefined,
  };
}

/** Identifies y without the rows that hold no rotation; rows that hold x count as rotated where that explains y. */
function identifyLive(all: Heads): { heads: Heads; found: Identification; census: Census | undefined } {
  const identified = (aside: RowsAside | undefined) => {
    const heads = aside ? { ...all, live: aside.live } : all;
    return { heads, found: identifyHeads(heads), census: aside?.census };
  };
  const first = identified(rowsAside(all, false));
  if (first.found.explains) return first;
  const withX = rowsAside(all, true);
  const second = withX && identified(withX);
  return second?.found.explains ? second : first;
}

function against(expected: Expected, heads: Heads, mutants: readonly Mutant[], progress: (done: number) => void): Read {
  const bench = new Bench(expected, mutants);
  const taken = takeCensus(expected, heads);
  if (taken && isInput(heads)) return untouched({ ...heads, norm: undefined }, signedFrequencies(expected));
  const local = taken?.local === 'here and there';
  const whole = bench.judge(heads, progress, { pairs: !local });
  const frequencies = signedFrequencies(expected);
  const finish = (judged: Judged, census: Census | undefined, found?: Identification): Read => {
    const shown = conclude(expected, heads, mutants, judged, found ?? identifyHeads(judged.normalised, frequencies));
    progress(1);
    return { ...shown, census };
  };
  if (!taken || isRight(whole)) return finish(whole, undefined);
  if (whole.named.every(({ mutants }) => mutants.length > 1) && whole.verdict === 'known bug') {
    const found = identifyHeads(whole.normalised, frequencies);
    if (isOneFormula(expected, found))
      return finish({ ...whole, verdict: undefined, named: [], together: [] }, undefined, found);
  }
  if (whole.verdict) return finish(whole, local ? taken.census : undefined);
  if (taken.local === 'no') {
    const found = identifyHeads(whole.normalised, frequencies);
    if (found.outcome === 'rotation' && found.explains) return finish(whole, undefined, found);
    for (const withX of [false, true]) {
      const aside = rowsAside(heads, withX);
      if (!aside) continue;
      const { live, census } = aside;
      const judged = bench.judge({ ...heads, live }, progress);
      const rest = identifyHeads(judged.normalised, frequencies);
      if (!judged.verdict && !(rest.outcome === 'rotation' && rest.explains)) continue;
      if (isRight(judged)) return { ...finish(judged, census, rest), verdict: 'partly right' };
      // A bug that gives the smaller part of y is one guess of many.
      const few = 2 * live.reduce((sum, one) => sum + one, 0) < live.length;
      const told: Judged = few
        ? { ...judged, verdict: undefined, named: [], together: [], tried: whole.tried }
        : judged;
      return finish(told, { ...census, right: undefined }, rest);
    }
    return finish(whole, undefined, found);
  }
  return { ...partly(expected, heads, taken, bench, frequencies), worst: whole.worst, tried: whole.tried };
}

/** Whether y is x to the bit. Some bugs give it too; that the kernel did not run, or ran in place, is likelier. */
function isInput({ x, y, dtype }: Heads): boolean {
  return y.every((value, n) => value === roundTo(dtype, x[n]!));
}

function untouched(heads: Heads, expectedFrequencies: Float64Array): Read {
  return {
    verdict: 'not understood',
    tier: undefined,
    named: [],
    recipes: [],
    tried: { bugs: 0, pairs: 0 },
    measured: [],
    notRuledOut: [],
    differences: [],
    worst: undefined,
    census: undefined,
    found: identifyHeads(heads),
    expectedFrequencies,
    next: undefined,
  };
}

/** Whether one formula of the frequencies is all that differs: that is simpler than two bugs. */
function isOneFormula(expected: Expected, found: Identification): boolean {
  return found.formulas.length > 0 && isProven(found) && differencesOf(expected, found).length === 1;
}

function isRight({ verdict }: Judged): boolean {
  return verdict === 'as expected' || verdict === 'less precise';
}

function conclude(
  expected: Expected,
  heads: Heads,
  mutants: readonly Mutant[],
  judged: Judged,
  found: Identification,
): Read {
  const { tier, named, recipes, tried, notRuledOut, worst, together } = judged;
  // The bug's name is proven; measurements that do not give y are not.
  const unproven =
    judged.verdict === 'known bug' && (found.layout || found.outcome === 'no rotation') && !isProven(found);
  const differences = isRight(judged) || unproven ? [] : differencesOf(expected, found);
  const measured =
    judged.verdict || judged.measured.length > 0 ? judged.measured : partsOf(expected, heads, found, differences);
  const rotates = found.outcome === 'rotation' && differences.length > 0;
  const next = together.length > 1 ? nextInput(expected, together, heads, mutants) : undefined;
  // A bug that no input separates from the right kernel is not a bug for this model.
  const shown = new Set(next?.groups.flat());
  return {
    verdict: judged.verdict ?? (rotates || measured.length > 0 ? 'different' : 'not understood'),
    tier,
    named,
    recipes,
    tried,
    measured,
    notRuledOut: notRuledOut.filter(({ id }) => shown.has(id)),
    differences,
    worst,
    census: undefined,
    found,
    expectedFrequencies: signedFrequencies(expected),
    next,
  };
}

/** What members or pairs of y hold, where no rotation gives it. */
function partsOf(expected: Expected, heads: Heads, found: Identification, differences: readonly Difference[]) {
  if (found.outcome === 'no rotation') return describeMembers(expected, heads);
  return found.layout && differences.length === 0 ? describePairErrors(expected, heads) : [];
}

/** Of a kernel that is partly right: what the rows do whose values are not known yet; else what the right rows do. */
function partly(
  expected: Expected,
  heads: Heads,
  { census, unknown, isRight: right }: CensusOfRows,
  bench: Bench,
  frequencies: Float64Array,
): Read {
  const common: Omit<Read, 'found' | 'tier' | 'named' | 'recipes' | 'differences'> = {
    tried: { bugs: 0, pairs: 0 },
    measured: [],
    verdict: 'partly right',
    notRuledOut: [],
    worst: undefined,
    census,
    expectedFrequencies: frequencies,
    next: undefined,
  };
  if (unknown) {
    const { verdict, tier, named, normalised } = bench.judge({ ...heads, live: unknown }, undefined, { pairs: false });
    const found = identifyHeads(normalised, frequencies);
    const differences = differencesOf(expected, found);
    if (verdict === 'known bug' || (found.outcome === 'rotation' && found.explains && differences.length > 0)) {
      const ids = named.map(({ id }) => id).join(' or ');
      const holds = ids ? `what the known bug ${ids} gives` : 'another rotation';
      const wrong = census.wrong.map((one) =>
        one.what === 'unknown' && 8 * one.elements > one.rows * heads.headDim ? { ...one, holds } : one,
      );
      return { ...common, census: { ...census, wrong }, tier, named, recipes: [], differences, found };
    }
  }
  // Where no row is right as a whole, some dimensions of each are.
  const live = right.includes(1) ? right : undefined;
  const { tier, recipes, normalised } = bench.judge({ ...heads, live }, undefined, { pairs: false });
  return { ...common, tier, named: [], recipes, differences: [], found: identifyHeads(normalised, frequencies) };
}

/** Expected frequencies; negative for the backward direction. */
function signedFrequencies({ spec, direction = 'forward' }: Expected): Float64Array {
  return frequenciesOf(spec).invFreq.map((f) => (direction === 'backward' ? -f : f));
}
