/**
 * Diagnosis: what a wrong kernel did.
 *
 * Every known bug runs on the same x and positions. The answer is the bug that gives y within rounding. If several do,
 * all are named, with an input that tells them apart. If none does, the measurements are described. A bug is never
 * named because it is merely the nearest. @module
 */
import { frequenciesOf, type RopeLayout, roundTo } from 'ropewalk';
import { refuse } from 'ropewalk/backend';
import { type OptionNames, reading, readOptions } from 'ropewalk/internal';
import type { Identification } from './fit/identification.js';
import { identifyHeads } from './fit/identify.js';
import { type Mutant, readMutants } from './kernel/mutant.js';
import { BugSearch, type Judged } from './match/bug-search.js';
import { nextInput } from './match/next-input.js';
import { describePairErrors } from './match/pair-errors.js';
import { describePairTerms } from './match/pair-terms.js';
import { type JudgedRows, type RowSummary, type RowsAside, rowsAside, summarizeRows } from './match/wrong-rows.js';
import { MUTANTS } from './mutants/catalogue.js';
import { axesOf, type Expected, readExpected } from './read/expected.js';
import { type Heads, type Observation, readLayouts, refuseZeros } from './read/observation.js';
import type { DiagnoseOptions, Diagnosis } from './say/diagnosis.js';
import { type Difference, differencesOf, isProven } from './say/differences.js';

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
    refuseZeros(heads);
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
function rank({ verdict, named, found, rowSummary }: Diagnosis): number {
  switch (verdict) {
    case 'as expected':
    case 'less precise':
      return RIGHT;
    case 'rotation':
      return found.positions[0]?.asGiven ? RIGHT : 2;
    case 'partly right':
      return 2 * rowSummary!.wrongElements < rowSummary!.elements ? RIGHT : 1;
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

/** A diagnosis of one reading. */
type Read = Omit<Diagnosis, 'layout'>;

function withoutExpectation(all: Heads, mutants: readonly Mutant[]): Read {
  const { heads, found, rowSummary } = identifyLive(all);
  const { outcome, expected, explains, positions } = found;
  const understood = outcome !== 'unchanged' && expected && explains;
  // A record that explains y only with noise is compared with the peers' arithmetic and with precision bugs.
  const precise = explains === 'stored' || !positions[0]?.asGiven;
  const judged =
    understood && !precise
      ? new BugSearch(
          expected,
          mutants.filter(({ cause }) => cause === 'I'),
        ).judge(heads)
      : undefined;
  const rotation = rowSummary ? 'partly right' : 'rotation';
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
    rowSummary,
    found,
    expectedFrequencies: undefined,
    next: undefined,
  };
}

/** Identifies y without the rows that hold no rotation; rows that hold x count as rotated where that explains y. */
function identifyLive(all: Heads): { heads: Heads; found: Identification; rowSummary: RowSummary | undefined } {
  const identified = (aside: RowsAside | undefined) => {
    const heads = aside ? { ...all, live: aside.live } : all;
    return { heads, found: identifyHeads(heads), rowSummary: aside?.rowSummary };
  };
  const first = identified(rowsAside(all, false));
  if (first.found.explains) return first;
  const withX = rowsAside(all, true);
  const second = withX && identified(withX);
  return second?.found.explains ? second : first;
}

function against(expected: Expected, heads: Heads, mutants: readonly Mutant[], progress: (done: number) => void): Read {
  const search = new BugSearch(expected, mutants);
  const taken = summarizeRows(expected, heads);
  if (taken && isInput(heads)) return untouched({ ...heads, norm: undefined }, signedFrequencies(expected));
  const local = taken?.local === 'here and there';
  const whole = search.judge(heads, progress, { pairs: !local });
  const frequencies = signedFrequencies(expected);
  const finish = (judged: Judged, rowSummary: RowSummary | undefined, found?: Identification): Read => {
    const shown = conclude(expected, heads, mutants, judged, found ?? identifyHeads(judged.normalised, frequencies));
    progress(1);
    return { ...shown, rowSummary };
  };
  if (!taken || isRight(whole)) return finish(whole, undefined);
  if (whole.named.every(({ mutants }) => mutants.length > 1) && whole.verdict === 'known bug') {
    const found = identifyHeads(whole.normalised, frequencies);
    if (isOneFormula(expected, found))
      return finish({ ...whole, verdict: undefined, named: [], together: [] }, undefined, found);
  }
  if (whole.verdict) return finish(whole, local ? taken.rowSummary : undefined);
  if (taken.local === 'no') {
    const found = identifyHeads(whole.normalised, frequencies);
    if (found.outcome === 'rotation' && found.explains) return finish(whole, undefined, found);
    for (const withX of [false, true]) {
      const aside = rowsAside(heads, withX);
      if (!aside) continue;
      const { live, rowSummary } = aside;
      const judged = search.judge({ ...heads, live }, progress);
      const rest = identifyHeads(judged.normalised, frequencies);
      if (!judged.verdict && !(rest.outcome === 'rotation' && rest.explains)) continue;
      if (isRight(judged)) return { ...finish(judged, rowSummary, rest), verdict: 'partly right' };
      // A bug that gives the smaller part of y is one guess of many.
      const few = 2 * live.reduce((sum, one) => sum + one, 0) < live.length;
      const told: Judged = few
        ? { ...judged, verdict: undefined, named: [], together: [], tried: whole.tried }
        : judged;
      return finish(told, { ...rowSummary, right: undefined }, rest);
    }
    return finish(whole, undefined, found);
  }
  return { ...partly(expected, heads, taken, search, frequencies), worst: whole.worst, tried: whole.tried };
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
    rowSummary: undefined,
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
    rowSummary: undefined,
    found,
    expectedFrequencies: signedFrequencies(expected),
    next,
  };
}

/** What members or pairs of y hold, where no rotation gives it. */
function partsOf(expected: Expected, heads: Heads, found: Identification, differences: readonly Difference[]) {
  if (found.outcome === 'no rotation') return describePairTerms(expected, heads);
  return found.layout && differences.length === 0 ? describePairErrors(expected, heads) : [];
}

/** Of a kernel that is partly right: what the rows do whose values are not known yet; else what the right rows do. */
function partly(
  expected: Expected,
  heads: Heads,
  { rowSummary, unknown, isRight: right }: JudgedRows,
  search: BugSearch,
  frequencies: Float64Array,
): Read {
  const common: Omit<Read, 'found' | 'tier' | 'named' | 'recipes' | 'differences'> = {
    tried: { bugs: 0, pairs: 0 },
    measured: [],
    verdict: 'partly right',
    notRuledOut: [],
    worst: undefined,
    rowSummary,
    expectedFrequencies: frequencies,
    next: undefined,
  };
  if (unknown) {
    const { verdict, tier, named, normalised } = search.judge({ ...heads, live: unknown }, undefined, { pairs: false });
    const found = identifyHeads(normalised, frequencies);
    const differences = differencesOf(expected, found);
    if (verdict === 'known bug' || (found.outcome === 'rotation' && found.explains && differences.length > 0)) {
      const ids = named.map(({ id }) => id).join(' or ');
      const holds = ids ? `what the known bug ${ids} gives` : 'another rotation';
      const wrong = rowSummary.wrong.map((one) =>
        one.what === 'unknown' && 8 * one.elements > one.rows * heads.headDim ? { ...one, holds } : one,
      );
      return { ...common, rowSummary: { ...rowSummary, wrong }, tier, named, recipes: [], differences, found };
    }
  }
  // Where no row is right as a whole, some dimensions of each are.
  const live = right.includes(1) ? right : undefined;
  const { tier, recipes, normalised } = search.judge({ ...heads, live }, undefined, { pairs: false });
  return { ...common, tier, named: [], recipes, differences: [], found: identifyHeads(normalised, frequencies) };
}

/** Expected frequencies; negative for the backward direction. */
function signedFrequencies({ spec, direction = 'forward' }: Expected): Float64Array {
  return frequenciesOf(spec).invFreq.map((f) => (direction === 'backward' ? -f : f));
}
