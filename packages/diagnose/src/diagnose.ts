/**
 * Diagnoses a wrong kernel.
 *
 * Every known bug runs on the same x and positions. The answer is the bug that gives y within rounding. If several do,
 * all are named, with an input that tells them apart. If none does, the measurements are described. A bug is never
 * named because it is merely the nearest. @module
 */
import { type RopeLayout, roundTo } from 'ropewalk';
import { refuse } from 'ropewalk/backend';
import { type OptionNames, reading, readOptions } from 'ropewalk/internal';
import type { Identification } from './fit/identification.js';
import { identifyHeads } from './fit/identify.js';
import { type Mutant, readMutants } from './kernel/mutant.js';
import type { RightRows } from './kernel/right-rows.js';
import type { RopeSteps } from './kernel/steps.js';
import type { Hypothesis } from './kernel/trial.js';
import { BugSearch, type Judged, type Named, NOTHING, worstOf } from './match/bug-search.js';
import { composed } from './match/composed.js';
import { describeHalves, describeTables } from './match/halves.js';
import { nextInput } from './match/next-input.js';
import { describeChanged, describeDrift, describePartners } from './match/of-right.js';
import { describeNoise, describePairErrors, NEARLY, UNSAID } from './match/pair-errors.js';
import { describeAxes, describePairTerms } from './match/pair-terms.js';
import { describeParts, type Told } from './match/parts.js';
import { readingsOf } from './match/readings.js';
import { groupRows } from './match/row-contents.js';
import { describeStrides, describeTiles } from './match/strides.js';
import {
  explained,
  type JudgedRows,
  movedRows,
  placesOf,
  type RowEntry,
  type RowSummary,
  rowsAside,
  rowsWords,
  summarizeRows,
} from './match/wrong-rows.js';
import { sentence } from './measure/residuals.js';
import { spread } from './measure/sample.js';
import { MUTANTS } from './mutants/catalogue.js';
import { wrongParameters } from './mutants/parameters.js';
import { axesOf, type Expected, readExpected } from './read/expected.js';
import { type Heads, type Observation, readLayouts, refuseZeros } from './read/observation.js';
import type { DiagnoseOptions, Diagnosis } from './say/diagnosis.js';
import { differencesOf, isProven } from './say/differences.js';

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
  const meant = expected === undefined ? undefined : readExpected(expected);
  const { mutants, progress } = readDiagnoseOptions(options, meant);
  let best: Diagnosis | undefined;
  for (const { layout, heads } of readLayouts(observation, meant && axesOf(meant))) {
    refuseZeros(heads);
    // A second reading is rare, so its progress is not shown.
    const shown = best ? () => {} : progress;
    const one = meant ? against(meant, heads, mutants, shown, !best) : withoutExpectation(heads, mutants);
    const tried = layout !== observation.layout && layout !== DEFAULT_LAYOUT;
    const found: Diagnosis = {
      ...one,
      unread: unreadOf(heads),
      layout: { layout, tried, otherwise: best?.named ?? [] },
    };
    if (!best || rank(found) > rank(best, true)) best = found;
    if (rank(best) === RIGHT) break;
  }
  return best!;
}

/** The rows that were left out when x was read. */
function unreadOf(heads: Heads): Diagnosis['unread'] {
  const kept = new Set(heads.rows);
  const rows = Array.from({ length: heads.batch * heads.seq * heads.heads }, (_, r) => r).filter((r) => !kept.has(r));
  return rows.length > 0 ? { where: rowsWords(rows, heads), at: placesOf(rows, heads) } : undefined;
}

const DEFAULT_LAYOUT: RopeLayout = 'bsnh';

const RIGHT = 3;

/**
 * How well a reading explains y: {@link RIGHT}, right in half of y, by a bug, by two, by a rotation, not at all.
 *
 * @param first - whether it is the first reading; half of y may be right in another one by chance
 */
function rank({ verdict, named, found, rowSummary }: Diagnosis, first = false): number {
  switch (verdict) {
    case 'as expected':
    case 'less precise':
      return RIGHT;
    case 'rotation':
      return found.positions[0]?.asGiven ? RIGHT : 2;
    case 'partly right': {
      const share = rowSummary!.wrongElements / rowSummary!.elements;
      return share < 1 / 8 ? RIGHT : first && share <= 1 / 2 ? 2.75 : 0;
    }
    case 'known bug':
      return named.some(({ mutants }) => mutants.length === 1) ? 2.5 : 2;
    case 'not understood':
      return 0;
    default:
      return 1;
  }
}

function readDiagnoseOptions(options: DiagnoseOptions, meant: Expected | undefined): Required<DiagnoseOptions> {
  const { mutants = withParameters(meant), progress = () => {} } = readOptions(options, 'diagnose: options', NAMES);
  if (typeof progress !== 'function') refuse('RANGE', 'diagnose: progress', 'a function', progress);
  return {
    mutants: readMutants(mutants, 'diagnose: mutants'),
    progress: (done) => reading('diagnose: progress', () => progress(done)),
  };
}

function withParameters(meant: Expected | undefined): readonly Mutant[] {
  return meant ? [...MUTANTS, ...wrongParameters(meant)] : MUTANTS;
}

type Read = Omit<Diagnosis, 'layout' | 'unread'>;

const UNTOLD = {
  ...NOTHING,
  differences: [],
  rowSummary: undefined,
  expectedFrequencies: undefined,
  worst: undefined,
  otherRules: false,
  next: undefined,
};

function withoutExpectation(all: Heads, mutants: readonly Mutant[]): Read {
  // Rows that hold no rotation are set aside. Rows that hold x count as rotated if that explains y.
  let best: { heads: Heads; found: Identification; rowSummary: RowSummary | undefined } | undefined;
  for (const withX of [false, true]) {
    if (best?.found.explains) break;
    const aside = rowsAside(all, withX);
    if (best && !aside) break;
    const { heads = all, rowSummary } = aside ?? {};
    const found = identifyHeads(heads);
    if (!best || found.explains) best = { heads, found, rowSummary };
  }
  const { heads, found, rowSummary } = best!;
  const { outcome, expected, explains, positions } = found;
  const common = { ...UNTOLD, found, tier: explains, rowSummary };
  if (outcome === 'unchanged' || !expected || !explains)
    return { ...common, verdict: outcome === 'rotation' ? 'different' : 'not understood' };
  const verdict = rowSummary ? 'partly right' : 'rotation';
  if (explains === 'stored' || !positions[0]?.asGiven) return { ...common, verdict };
  // A record that explains y only with noise is compared with the arithmetic of peers and with precision bugs.
  const precision = mutants.filter(({ cause }) => cause === 'I');
  const { named, recipes } = new BugSearch(expected, precision).judge(heads);
  return { ...common, verdict, named, recipes };
}

/** @param first - whether this is the first reading: in another one, parts that are explained are chance */
function against(
  expected: Expected,
  heads: Heads,
  mutants: readonly Mutant[],
  progress: (done: number) => void,
  first: boolean,
): Read {
  const search = new BugSearch(expected, mutants);
  const right = search.rightRows(heads);
  const frequencies = right.steps.frequencies().invFreq.map((f) => right.steps.sign * f);
  const compared = right.compare();
  const worst = worstOf(heads, compared);
  const rows = summarizeRows(right, compared, groupRows(right, compared));
  if (rows && isInput(heads)) {
    const found = identifyHeads({ ...heads, norm: undefined });
    return { ...UNTOLD, verdict: 'not understood', found, worst, expectedFrequencies: frequencies };
  }
  const local = rows?.local === 'here and there';
  const whole = search.judge(heads, progress, { pairs: !local });
  const identified = (judged: Judged): Identification => identifyHeads(judged.normalized, frequencies);
  const finish = (judged: Judged, rowSummary?: RowSummary, found = identified(judged)): Read => {
    const shown = conclude(expected, right, mutants, judged, found);
    progress(1);
    return { ...shown, rowSummary, worst, expectedFrequencies: frequencies };
  };
  if (!rows || isRight(whole)) return finish(whole);
  /** A fault that is undone by itself, and what is left. */
  const byReadings = (found: Identification): Read | undefined => {
    const isPlain = ['zero', 'nan', 'unchanged'].includes(found.outcome);
    for (const reading of first && !isPlain ? readingsOf(expected, right, found) : []) {
      const { words, heads: own, expected: meant, needs } = reading;
      const inner = against(meant, own, mutants, () => {}, false);
      const isWhole =
        inner.verdict === 'known bug' ||
        (inner.rowSummary?.wrong.every(({ at }) => at.dims === undefined) ?? !isUnsaid(inner));
      // Positions of a part may be those of many bugs.
      const isVague = inner.rowSummary?.shown !== undefined && !inner.named.every(isOfAnyRows);
      const isEnough = needs === 'right' ? isRight(inner) : inner.verdict !== 'not understood';
      if (isEnough && (needs !== 'whole' || isWhole) && !isVague)
        return finish({ ...unnamed(whole), verdict: 'different', measured: [...words, ...sentencesOf(inner)] });
    }
    return undefined;
  };
  let found: Identification | undefined;
  if (whole.verdict === 'known bug' && whole.named.every(({ mutants }) => mutants.length > 1)) {
    // One formula of the frequencies, if it is all that differs, is simpler than two bugs, and so is one wrong sign.
    found = identified(whole);
    if (found.outcome === 'mirrored') return byReadings(found) ?? finish(unnamed(whole), undefined, found);
    if (found.formulas.length > 0 && isProven(found) && differencesOf(expected, found, whole.normalized).length === 1)
      return finish(unnamed(whole), undefined, found);
  }
  const scaled = whole.verdict ? [] : scaledWords(rows);
  if (scaled.length > 0) return finish({ ...whole, verdict: 'different', measured: scaled });
  if (whole.verdict) return finish(whole, local ? explained(rows, heads) : undefined, found);
  for (const describe of [describeHalves, describeTables, describeAxes, describeStrides, describeTiles]) {
    const measured = describe(right);
    if (measured.length > 0) return finish({ ...whole, verdict: 'different', measured });
  }
  const told = (part: Heads): Told => {
    const judged = search.judge(part, undefined, { pairs: false });
    if (isRight(judged)) return { as: 'right', words: 'as expected.' };
    if (isInput(part)) return { as: 'read', words: 'x, not rotated.' };
    // Positions of a part may be those of many bugs.
    const named = judged.named.filter(isOfAnyRows);
    const does = named.map(({ id, mutants: [bug] }) =>
      bug!.parameters ? bug!.does : `what the known bug ${id} gives.`,
    );
    if (does.length === 1) return { as: 'named', words: does[0]! };
    const one = identified(judged);
    const differences = isProven(one) ? differencesOf(expected, one, judged.normalized) : [];
    if (differences.length === 0) return { as: 'unread', words: UNREAD };
    return { as: 'read', words: differences.map(({ words }) => words).join(' ') };
  };
  const parts = (): Read | undefined => {
    const measured = first ? describeParts(heads, (some) => told({ ...heads, rows: some })).map(sentence) : [];
    return measured.length > 0 ? finish({ ...whole, verdict: 'different', measured }) : undefined;
  };
  const besides = (): Read | undefined => {
    let read: Read | undefined;
    const isWrong = (rows: readonly number[]): boolean => {
      const judged = search.judge({ ...heads, rows }, undefined, { pairs: false });
      const named = judged.named.filter(({ mutants }) => !mutants.some(({ cause }) => OF_ROWS.includes(cause)));
      if (isRight(judged) || named.length < Math.min(1, judged.named.length)) return false;
      const one = finish({ ...judged, named });
      const isTold = one.named.length > 0 || one.differences.length > 0;
      if (isTold) read = one;
      return isTold;
    };
    const some = first ? composed(right, frequencies, isWrong) : undefined;
    if (!some) return undefined;
    const { measured, summary } = some;
    if (measured.length > 0) return finish({ ...whole, verdict: 'different', measured }, summary);
    return { ...read!, rowSummary: summary };
  };
  /** Parts that are all explained, or a rotation of most rows with what the others hold, or parts of which some are. */
  const inPartsOrBeside = (): Read | undefined => {
    const inParts = parts();
    const isAll = inParts?.measured.every((one) => !one.endsWith(UNREAD));
    return isAll ? inParts : (besides() ?? inParts);
  };
  if (rows.local !== 'no') {
    const part = partly(expected, heads, rows, search, frequencies);
    // Rows with single wrong elements are no part of their own.
    const isTold = 4 * rows.unknown.length < heads.rows.length || part.rowSummary!.shown !== undefined;
    return (isTold ? undefined : inPartsOrBeside()) ?? { ...part, worst, tried: whole.tried };
  }
  found = identified(whole);
  if (isRotation(found)) return finish(whole, undefined, found);
  for (const aside of [rowsAside(heads, false), rowsAside(heads, true)]) {
    if (!aside) continue;
    const judged = search.judge(aside.heads, progress);
    const rest = identified(judged);
    if (!judged.verdict && !isRotation(rest)) continue;
    if (isRight(judged)) return { ...finish(judged, aside.rowSummary, rest), verdict: 'partly right' };
    // A bug that gives the smaller part of y is one guess of many.
    const few = 2 * aside.heads.rows.length < heads.rows.length;
    const shown = few ? { ...unnamed(judged), tried: whole.tried } : judged;
    return finish(shown, { ...aside.rowSummary, right: undefined }, rest);
  }
  const read = byReadings(found);
  if (read) return read;
  // The part that is right is told wherever nothing explains the rest.
  const last = finish(whole, undefined, found);
  const isSaid = last.verdict !== 'not understood' && !isUnsaid(last);
  const inParts = isSaid ? undefined : inPartsOrBeside();
  if (inParts) return inParts;
  // Noise is told only where rows hold nothing else.
  const beside = last.measured[0]?.startsWith(NEARLY) ? besides() : undefined;
  const isMore = ({ what, rows: count }: RowEntry): boolean => what !== 'unknown' && 8 * count >= heads.rows.length;
  if (beside?.rowSummary?.wrong.some(isMore)) return beside;
  if (last.verdict !== 'not understood') return last;
  const known = explained(rows, heads);
  if (movedRows(known)) return { ...last, verdict: 'different', rowSummary: known };
  // Where something is said of some rows, those that nothing explains are listed too.
  return { ...last, rowSummary: known.wrong.length > 0 ? rows.rowSummary : known };
}

/** Sentences on rows that are all right results times factors, one or more for each row; empty if they are not. */
function scaledWords({ rowSummary: { wrong, right } }: JudgedRows): string[] {
  const isScaled =
    wrong.some(({ what }) => what === 'scaled by row') && wrong.every(({ what }) => what.startsWith('scaled'));
  return isScaled && right === '' ? wrong.map(({ where, holds }) => `${sentence(where)}: ${holds}.`) : [];
}

/** Whether bugs are seen in any rows: those of positions and of rows are not. */
function isOfAnyRows({ mutants }: Named): boolean {
  return mutants.every(({ cause }) => cause < 'I');
}

/** Whether sentences say only that something is wrong. */
function isUnsaid({ measured: [first] }: Read): boolean {
  return first?.includes(UNSAID) ?? false;
}

/** The sentences of a reading without a fault. */
function sentencesOf({ verdict, named, measured, differences, rowSummary }: Read): string[] {
  // Rows that a bug of all rows explains are not listed too.
  const apart = verdict === 'known bug' && !rowSummary?.shown ? [] : (rowSummary?.wrong ?? []);
  const rows = apart.map(({ where, holds }) => `${sentence(where)}: ${holds}.`);
  const where = rowSummary?.shown ? `${sentence(rowSummary.shown)}: ` : '';
  const ids = named.map(({ id }) => id).join(' or ');
  const [parameter] = named.flatMap(({ mutants: [bug] }) => (bug!.parameters ? [bug!.does] : []));
  const told =
    verdict === 'known bug'
      ? [parameter ?? `${where ? 'what' : 'Beside that, y is what'} the known bug ${ids} gives.`]
      : measured.length > 0
        ? measured
        : differences.map(({ words }) => words);
  return [...told.map((words) => `${where}${words}`), ...rows];
}

/** Whether the rows of y are x to the bit. Some bugs give it too; that the kernel did not run, or in place, is likelier. */
function isInput({ x, y, dtype, rows, headDim }: Heads): boolean {
  const isCopy = (r: number): boolean => {
    for (let n = r * headDim; n < (r + 1) * headDim; n++) if (y[n] !== roundTo(dtype, x[n]!)) return false;
    return true;
  };
  return rows.every(isCopy);
}

function isRight({ verdict }: { readonly verdict: Judged['verdict'] | Read['verdict'] }): boolean {
  return verdict === 'as expected' || verdict === 'less precise';
}

function isRotation({ outcome, explains }: Identification): boolean {
  return outcome === 'rotation' && explains !== undefined;
}

function unnamed(judged: Judged): Judged {
  return { ...judged, verdict: undefined, named: [], together: [] };
}

function conclude(
  expected: Expected,
  right: RightRows,
  mutants: readonly Mutant[],
  { together, normalized, ...judged }: Judged,
  found: Identification,
): Omit<Read, 'rowSummary' | 'worst' | 'expectedFrequencies'> {
  const { verdict } = judged;
  // The name of the bug is proven, but measurements that do not give y are not.
  const unproven = verdict === 'known bug' && (found.layout || found.outcome === 'no rotation') && !isProven(found);
  const isFine = verdict === 'as expected' || verdict === 'less precise' || unproven;
  const differences = isFine ? [] : differencesOf(expected, found, normalized);
  let { measured } = judged;
  if (!verdict && measured.length === 0) {
    const clear = found.outcome !== 'no rotation' && (!found.layout || differences.length > 0);
    const ways = [
      ...[describeChanged, describePairTerms, describePartners],
      ...(found.layout ? [describePairErrors] : []),
      ...[describeNoise, describeDrift],
    ];
    for (const describe of clear ? [] : ways) if (measured.length === 0) measured = describe(right);
  }
  const isClear = found.outcome === 'rotation' || found.outcome === 'mirrored';
  const differs = (isClear && differences.length > 0) || measured.length > 0;
  const next = together.length > 1 ? nextInput(expected, together, right.heads, mutants) : undefined;
  // A bug that no input separates from the right kernel is not a bug for this model.
  const shown = new Set(next?.groups.flat());
  const notRuledOut = judged.notRuledOut.filter(({ id }) => shown.has(id));
  return {
    ...judged,
    verdict: verdict ?? (differs ? 'different' : 'not understood'),
    measured,
    notRuledOut,
    differences,
    otherRules: verdict === 'known bug' && isOneFactor(right, together),
    found,
    next,
  };
}

/** Whether all tokens have one position, and bugs give the right angles there times one factor that is not 1. */
function isOneFactor({ steps, heads }: RightRows, bugs: readonly Hypothesis[]): boolean {
  if (heads.positions.some((p) => p !== heads.positions[0])) return false;
  const at = steps.placeOf(heads.rows[0]!);
  const angle = (of: RopeSteps, j: number): number => of.angle(of.position(at, of.axisOfPair(j)), j);
  return bugs.some(({ steps: wrong }) => {
    const factor = angle(wrong, 0) / angle(steps, 0);
    const isSame = (_: unknown, j: number): boolean => Math.abs(angle(wrong, j) / angle(steps, j) - factor) < 1e-6;
    return Math.abs(factor - 1) > 1e-6 && Array.from({ length: steps.pairs }, isSame).every(Boolean);
  });
}

/** Entries as one. */
function joined(entries: readonly RowEntry[], { where, at }: Pick<RowEntry, 'where' | 'at'>, holds: string): RowEntry {
  const sum = (of: (one: RowEntry) => number): number => entries.reduce((all, one) => all + of(one), 0);
  const rows = sum(({ rows }) => rows);
  return { what: 'unknown', where, at, holds, rows, elements: sum(({ elements }) => elements) };
}

/** The causes that some rows may show by chance: positions, rows, caches. */
const OF_ROWS = 'JKN';

/** The words for a part that nothing explains. */
const UNREAD = 'no explanation was found.';

/** One rule for many rows is tried on so many of them before it is tried on all. */
const SAMPLE_ROWS = 512;

/** Describes the rows whose values are not known yet as another rotation; if they are none, describes the right rows. */
function partly(
  expected: Expected,
  heads: Heads,
  { rowSummary, unknown, moved, right }: JudgedRows,
  search: BugSearch,
  frequencies: Float64Array,
): Read {
  const verdict = movedRows(rowSummary) ? 'different' : 'partly right';
  const common = { ...UNTOLD, verdict, rowSummary, expectedFrequencies: frequencies } as const;
  const moves = rowSummary.wrong.filter(({ what }) => what === 'another position');
  if (unknown.length > 0 || moves.length > 1) {
    const judge = (rows: readonly number[]) => search.judge({ ...heads, rows }, undefined, { pairs: false });
    // A bug that moves positions may move some of them to those of other tokens, and one rule is simpler than many moves.
    const all = moved.length > 0 ? [...unknown, ...moved].sort((a, b) => a - b) : unknown;
    const read = (judged: Judged) => {
      const found = identifyHeads(judged.normalized, frequencies);
      const differences = differencesOf(expected, found, judged.normalized);
      const isRead = judged.verdict === 'known bug' || (isRotation(found) && differences.length > 0);
      return isRead ? { ...judged, found, differences } : undefined;
    };
    const isOne =
      moved.length > 0 && (all.length <= SAMPLE_ROWS || read(judge(spread(all, SAMPLE_ROWS))) !== undefined);
    const whole = isOne ? read(judge(all)) : undefined;
    const isWhole = whole !== undefined;
    const one = whole ?? (unknown.length > 0 ? read(judge(unknown)) : undefined);
    if (one) {
      const { tier, named, found, differences } = one;
      const ids = named.map(({ id }) => id).join(' or ');
      const holds = ids ? `what the known bug ${ids} gives` : 'another rotation';
      const isPart = ({ what, elements, rows }: RowEntry): boolean =>
        what === 'unknown' ? 8 * elements > rows * heads.headDim : isWhole && what === 'another position';
      const shown = rowsWords(isWhole ? all : unknown, heads);
      const wrong = isWhole
        ? [
            joined(rowSummary.wrong.filter(isPart), { where: shown, at: placesOf(all, heads) }, holds),
            ...rowSummary.wrong.filter((one) => !isPart(one)),
          ]
        : rowSummary.wrong.map((one) => (isPart(one) ? { ...one, holds } : one));
      return { ...common, rowSummary: { ...rowSummary, wrong, shown }, tier, named, differences, found };
    }
  }
  // If no row is right as a whole, some dimensions of each are.
  const rows = right.length > 0 ? right : heads.rows;
  const { tier, recipes, normalized } = search.judge({ ...heads, rows }, undefined, { pairs: false });
  const told = right.length > 0 ? rowSummary : { ...rowSummary, shown: '' };
  return { ...common, rowSummary: told, tier, recipes, found: identifyHeads(normalized, frequencies) };
}
