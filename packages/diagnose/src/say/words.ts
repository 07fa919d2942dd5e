/** A diagnosis in words: as sections, and as lines of text. @module */
import type { FloatDtype } from 'ropewalk';
import { refuse } from 'ropewalk/backend';
import { type OptionNames, ranges, reading, readOptions } from 'ropewalk/internal';
import { factorWords } from '../fit/frequency-families.js';
import { type FoundBase, type FrequencyLaw, isSharp } from '../fit/frequency-law.js';
import { type FoundPair, type Identification, isClear } from '../fit/identification.js';
import { yarnContexts } from '../fit/rebuild.js';
import { CAUSES } from '../kernel/mutant.js';
import { ARITHMETIC } from '../kernel/trial.js';
import { arithmeticWords, type WorstElement } from '../match/bug-search.js';
import { movedRows, type RowEntry } from '../match/wrong-rows.js';
import type { DimKind, PairLayout } from '../measure/geometry.js';
import { sentence, short } from '../measure/residuals.js';
import { BASES } from '../read/expected.js';
import { AXIS_NAMES } from '../read/observation.js';
import type { Diagnosis } from './diagnosis.js';
import { isProven, MIRRORED, pairsTurning, scalingFactor, upwards, withoutPairs } from './differences.js';

/** Options of {@link describeDiagnosis}. */
export interface ReportOptions {
  /** Every line, as long as it is. Default: at most 25 lines of at most 120 characters, without what the verdict explains. */
  readonly all?: boolean;
}

/** A line of a report. */
export interface ReportLine {
  /** The quantity that was measured, such as `base`; a sentence has none. */
  readonly key?: string;
  readonly text: string;
  /** Belongs to the line before it. */
  readonly deeper?: true;
}

/** A report: the verdict, remarks about it, and sections with a title. */
export interface DiagnosisReport {
  readonly head: string;
  readonly remarks: readonly string[];
  readonly sections: readonly { readonly title: string; readonly lines: readonly ReportLine[] }[];
}

/** The bugs that only write the dimensions in another order, with which scores are the same. */
const ORDERS: ReadonlySet<string> = new Set(['pairs-left-in-place', 'written-as-halves-for-interleaved']);

const REPORT_OPTIONS: OptionNames<ReportOptions> = { all: true };
const [MOST_LINES, WIDTH] = [25, 120];
const COUNTS = ['KNOWN BUG', 'TWO KNOWN BUGS', 'THREE KNOWN BUGS', 'FOUR KNOWN BUGS'];

/**
 * Describes a diagnosis: first the verdict, then what is different, what y shows, and what is left open.
 *
 * @param diagnosis - from diagnose
 * @param from - what was expected, in words; undefined without an expectation
 */
export function describeDiagnosis(diagnosis: Diagnosis, from?: string, options: ReportOptions = {}): string[] {
  const { all = false } = readOptions(options, 'describeDiagnosis: options', REPORT_OPTIONS);
  if (from !== undefined && typeof from !== 'string') refuse('RANGE', 'describeDiagnosis: from', 'a text', from);
  return reading('diagnosis', () => {
    const lines = linesOf(reportOf(diagnosis, from, all));
    return all ? lines : shortened(lines.flatMap(folded));
  });
}

/** Writes a report as text: the verdict and its remarks, then each section after an empty line. */
export function linesOf({ head, remarks, sections }: DiagnosisReport): string[] {
  const textOf = ({ key, text, deeper }: ReportLine): string =>
    `  ${deeper ? '  ' : ''}${key === undefined ? '' : `${key.padEnd(11)} `}${text}`;
  return [head, ...remarks, ...sections.flatMap(({ title, lines }) => ['', title, ...lines.map(textOf)])];
}

/** Breaks a line between words. The rest is indented by two more, or as far as the value of a row. */
function folded(line: string): string[] {
  if (line.length <= WIDTH) return [line];
  const indent = ' '.repeat(/^ {2}[a-z]+ {2,}/.exec(line)?.[0].length ?? /^ */.exec(line)![0].length + 2);
  const lines = [''];
  for (const word of line.split(/(?<=\S) /)) {
    const last = lines.at(-1)!;
    const longer = last === '' ? word : `${last} ${word}`;
    if (longer.length <= WIDTH || last.trim() === '') lines[lines.length - 1] = longer;
    else lines.push(`${indent}${word}`);
  }
  return lines;
}

function shortened(lines: readonly string[]): string[] {
  if (lines.length <= MOST_LINES) return [...lines];
  const shown = lines.slice(0, MOST_LINES - 1);
  return [...shown, `… ${lines.length - shown.length} more lines: --all prints them.`];
}

/**
 * Writes a report as data.
 *
 * @param from - what was expected, in words; undefined without an expectation
 * @param all - also what the verdict explains
 */
export function reportOf(diagnosis: Diagnosis, from: string | undefined, all: boolean): DiagnosisReport {
  const { named, verdict, otherRules } = diagnosis;
  const several = named.length > 1 || otherRules || (named[0]?.mutants.length ?? 0) > 1;
  const { right, shown } = diagnosis.rowSummary ?? {};
  const partly = verdict === 'partly right';
  const inRows = shown ? ` in ${shown}` : '';
  const shows =
    partly && shown === undefined ? `What the ${from === undefined ? 'rotated' : 'right'} rows show` : 'What y shows';
  const only = !all && ((verdict === 'known bug' && !shown) || onlyWrong(diagnosis));
  // A verdict is not told again by its parts.
  const isExplained = ['as expected', 'less precise', 'known bug', 'partly right'].includes(verdict);
  const plain = (texts: readonly string[]): ReportLine[] => texts.map((text) => ({ text }));
  // Beside a rotation of most rows, which the first line tells.
  const beside = right === '' && Boolean(shown);
  const wrongTitle = beside ? 'Beside that' : right === undefined || from === undefined ? 'Not rotated' : 'Wrong';
  const wrongLines: [string, ReportLine[]] = [wrongTitle, plain(only ? [] : wrongPart(diagnosis))];
  const sections: [string, ReportLine[]][] = [
    [from === undefined ? 'Rotated' : 'Right', plain(right && !only ? [`${sentence(right)}.`] : [])],
    ...(beside ? [] : [wrongLines]),
    [`Different${inRows}`, plain(differences(diagnosis))],
    ...(beside ? [wrongLines] : []),
    [several ? 'Known bugs' : 'Known bug', verdict === 'known bug' || partly ? bugs(diagnosis) : []],
    [`${shows}${inRows}`, isExplained && from !== undefined && !all ? [] : findings(diagnosis)],
    ['The measurements leave open', leftOpen(diagnosis)],
  ];
  // A y that holds nothing shows nothing more than the headline says.
  const blank = ['zero', 'nan'].includes(diagnosis.found.outcome) ? reason(diagnosis.found) : undefined;
  const told = sections
    .map(([title, lines]) => ({ title, lines: lines.filter(({ text }) => text !== blank) }))
    .filter(({ lines }) => lines.length > 0);
  return {
    head: headline(diagnosis, from),
    remarks: [...unreadWords(diagnosis), ...layoutWords(diagnosis)],
    sections: told,
  };
}

/** The rows of which nothing is said. */
function unreadWords({ unread }: Diagnosis): string[] {
  return unread ? [`Left out, because x is not finite there: ${unread.where}.`] : [];
}

/** The layout in which x and y were read, if the observation gave none. */
function layoutWords({ layout: { tried, otherwise }, verdict }: Diagnosis): string[] {
  if (!tried) return [];
  const as = 'Read as [batch, head, token, head_dim]';
  if (!['as expected', 'less precise', 'rotation'].includes(verdict)) return [`${as}; otherwise give the layout bsnh.`];
  if (otherwise.length === 0) return [`${as}: this fits; give the layout bnsh.`];
  const bugs = otherwise.map(({ id }) => id).join(' | ');
  return [`${as}. As [batch, token, head, head_dim], ${bugs} gives y too: give the layout, bsnh or bnsh.`];
}

function headline(diagnosis: Diagnosis, from: string | undefined): string {
  const meant = from === undefined ? '' : ` (${from.slice(from.lastIndexOf('/') + 1)})`;
  const { verdict, named, found, rowSummary } = diagnosis;
  const inRows = rowSummary?.shown ? `, in ${rowSummary.shown}` : '';
  switch (verdict) {
    case 'as expected':
      return `AS EXPECTED${meant}: y is the rotation, rounded once to ${found.dtype}.`;
    case 'less precise':
      return `AS EXPECTED${meant}, computed less precisely: ${precision({ ...diagnosis, dtype: found.dtype })}.`;
    case 'known bug': {
      const ids = named.map(({ mutants }) => mutants.map(({ id }) => id).join(' and '));
      if (diagnosis.otherRules) ids.push('another rule of positions or frequencies');
      const [wrong] = named[0]!.mutants;
      if (ids.length === 1 && wrong!.parameters)
        return `WRONG ${wrong!.parameters === 1 ? 'PARAMETER' : 'PARAMETERS'}${inRows}: ${wrong!.does}`;
      if (ids.length > 1)
        return `ONE OF ${ids.length}, which this input cannot tell apart: ${ids.join(' | ')}${inRows}`;
      const unless = ORDERS.has(ids[0]!) ? ', unless q and k are both written so' : '';
      return `${COUNTS[named[0]!.mutants.length - 1]}${unless}: ${ids[0]}${inRows}`;
    }
    case 'different': {
      const moved = movedRows(rowSummary);
      if (moved) return `DIFFERENT from what is expected${meant}: ${sentence(moved.where)}: ${moved.holds}.`;
      if (diagnosis.measured.length > 0)
        return `DIFFERENT from what is expected${meant}${inRows}: ${diagnosis.measured[0]}`;
      if (from === undefined) return 'A ROTATION, but no record explains y within rounding.';
      return `DIFFERENT from what is expected${meant}${inRows}: ${diagnosis.differences[0]!.words}`;
    }
    case 'partly right': {
      const { wrongElements, elements } = diagnosis.rowSummary!;
      const share = `${wrongElements} of ${elements} elements of y`;
      if (from === undefined) return `A ROTATION IN PART: ${inShort(found)}; ${share} are no part of it.`;
      const only = onlyWrong(diagnosis);
      if (only) return `PARTLY RIGHT${meant}: ${only.where}: ${only.holds}; all else is right.`;
      return `PARTLY RIGHT${meant}: ${share} are wrong.`;
    }
    case 'rotation':
      return `A ROTATION: ${inShort(found)}.`;
    case 'not understood':
      if (found.outcome === 'unchanged') return `NOT ROTATED: ${reason(found)}`;
      // No bug needs to be named for a kernel that did not run.
      if (from === undefined || ['zero', 'nan'].includes(found.outcome)) return `NOT UNDERSTOOD: ${reason(found)}`;
      return `NOT UNDERSTOOD: y is not what is expected${meant}, and no rotation that was found gives it.`;
  }
}

/** The bugs that were tried. Pairs of bugs that change the same step are not tried. */
function triedWords({ tried: { bugs, pairs } }: Diagnosis): string {
  return `none of the ${bugs} known bugs that can happen here${pairs > 0 ? `, nor of ${pairs} pairs of them,` : ''}`;
}

function inShort({ layout, bases, law, formulas, pairs }: Identification): string {
  const name = layout!.name as string;
  if (!pairs.some((pair) => pair.turns && pair.known)) return `${name}, frequencies unknown`;
  if (formulas.length > 0) return `${name}, frequencies ${formulas.join(' or ')}`;
  const parts: string[] = [name];
  // A base that no model has is only one reading of the same frequencies.
  const [usual] = usualBases(bases);
  if (usual) parts.push(`base ${short(usual.base)}`);
  else if (bases.length === 0) parts.push('frequencies of no one base');
  if (law && law.scaling.kind !== 'none') parts.push(isSharp(law.scaling) ? law.scaling.kind : 'scaled');
  return parts.join(', ');
}

function reason(found: Identification): string {
  if (found.outcome === 'mirrored') return MIRRORED;
  if (found.outcome === 'no rotation') return 'no rotation of pairs was found in y.';
  return withoutPairs(found) ?? 'pairs rotate, but not by one frequency times one position.';
}

/** The way in which a right rotation was computed less precisely. */
export function precision({
  tier,
  recipes,
  named,
  dtype,
}: Pick<Diagnosis, 'tier' | 'recipes' | 'named'> & { readonly dtype: FloatDtype }): string {
  const own = recipes.flatMap((one) => ARITHMETIC[one] ?? []);
  if (named.length + own.length > 0) return [...own, ...named.map(({ id }) => id)].join(' | ');
  if (recipes.length > 0) return `angles in f32, as ${recipes[0]!.replace('-f32', '')} computes them`;
  return arithmeticWords(tier, dtype);
}

/** The wrong part, if it is one that is known; the first line says it. */
function onlyWrong({ rowSummary, verdict }: Diagnosis): RowEntry | undefined {
  const [only, ...others] = rowSummary?.wrong ?? [];
  return verdict === 'partly right' && rowSummary?.right && others.length === 0 && only?.what !== 'unknown'
    ? only
    : undefined;
}

function wrongPart({ rowSummary }: Diagnosis): string[] {
  return (rowSummary?.wrong ?? []).map(({ where, holds }) => `${sentence(where)}: ${holds}.`);
}

/** The differences that the first line does not say. */
function differences(diagnosis: Diagnosis): string[] {
  const { verdict, differences, measured, worst, tried, rowSummary } = diagnosis;
  const said = verdict === 'different' && !movedRows(rowSummary) ? 1 : 0;
  if (measured.length > 0) return measured.slice(said);
  const lines = differences.slice(said).map(({ words }) => words);
  if (worst && rowSummary?.shown === undefined && verdict !== 'partly right' && verdict !== 'less precise')
    lines.push(worstWords(worst));
  if (tried.bugs > 0 && verdict !== 'partly right') lines.push(`${sentence(triedWords(diagnosis))} gives y.`);
  return lines;
}

function worstWords({ batch, seq, head, dim, positions, y, expected }: WorstElement): string {
  const where = `batch ${batch}, token ${seq} (position ${positions.join(', ')}), head ${head}, dimension ${dim}`;
  return `Largest difference: ${where}: y is ${short(y)}, expected ${short(expected)}.`;
}

function bugs({ named, verdict, otherRules }: Diagnosis): ReportLine[] {
  // The first line says all of one wrong parameter.
  if (verdict === 'known bug' && named.length === 1 && !otherRules && named[0]!.mutants[0]!.parameters) return [];
  return named.flatMap(({ mutants }) =>
    mutants.flatMap(({ id, cause, does, threads }) => [
      { text: `${id}: ${does}` },
      {
        text: `cause ${cause}, ${CAUSES[cause]}${threads.length > 0 ? `; reported in ${threads.join(', ')}` : ''}`,
        deeper: true,
      },
    ]),
  );
}

function findings({ found, verdict, measured }: Diagnosis): ReportLine[] {
  if (measured.length > 0) return []; // finer than what the pairs show

  const { numAxes, outcome } = found;
  if (verdict === 'not understood' && outcome === 'unchanged') return []; // the first line says it
  // Measurements that do not give y are told as differences, as far as they are so in every row.
  if (!isProven(found)) {
    const told = outcome !== 'no rotation' && !found.layout && ['not understood', 'known bug'].includes(verdict);
    return told ? [{ text: reason(found) }] : [];
  }
  const turning = found.pairs.filter((pair) => pair.turns);
  const [rule] = found.positions;
  const one = new Set(found.foundPositions.map(({ given, unit }) => rule?.map(given, unit))).size === 1;
  const told = (words: () => string): string => {
    if (turning.length === 0) return 'unknown: the measurements show no frequency';
    if (!turning.some(({ known }) => known)) return 'unknown: these positions do not show the number of whole turns';
    if (one && !found.positions[0]?.asGiven) return 'unknown: one position shows only its product with the frequencies';
    return words();
  };
  const rows: [string, string][] = [
    ['dimensions', dimensions(found)],
    ['pairing', layoutsWords(found)],
    ['direction', told(() => direction(found))],
    ['base', told(() => base(found))],
    ['scaling', told(() => scaling(found))],
    ['magnitude', magnitude(found)],
    ['positions', told(() => positionsWords(found))],
    ...(numAxes > 1 ? [['axes', axes(found)] as [string, string]] : []),
    ['heads', headsWords(found)],
    ['y', explained(found)],
  ];
  return rows.map(([key, text]) => ({ key, text }));
}

function dimensions(found: Identification): string {
  const { geometry, layout, pairs, gainRange } = found;
  // A dimension whose values are moved by noise may look scaled.
  const isScaled = !gainRange || gainRange[0] > 1 || gainRange[1] < 1;
  // A pair that is only moved is seen, and does not rotate.
  const rotates = ({ moves, seen, read, write }: FoundPair): boolean => moves || (seen && read.join() === write.join());
  const [slow, turning] = [false, true].map(
    (turns) => new Set(layout!.pairs.flatMap(({ write }, j) => (rotates(pairs[j]!) === turns ? write : []))),
  );
  const copied = new Set(geometry!.copied);
  const words = (kind: DimKind, i: number): string => {
    if (kind === 'zero') return 'hold 0';
    if (kind === 'nan') return 'hold no finite number';
    if (turning!.has(i) ? !copied.has(i) : kind === 'turned' && !slow!.has(i)) return 'rotate';
    if (kind === 'scaled' && isScaled && !slow!.has(i))
      return 'are scaled, and rotate too little to measure or not at all';
    return slow!.has(i) || turning!.has(i) || !copied.has(i)
      ? 'rotate too little to measure, or not at all'
      : 'are unchanged';
  };
  const groups = new Map<string, number[]>();
  for (const [i, kind] of geometry!.dims.entries()) {
    const key = words(kind, i);
    groups.set(key, [...(groups.get(key) ?? []), i]);
  }
  return [...groups].map(([key, dims]) => `${ranges(dims)} ${key}`).join('; ');
}

function positionsWords({ positions, onePosition, law }: Identification): string {
  if (onePosition && law?.scaling.kind === 'linear') return 'unknown: see scaling';
  return positions.map(({ words }) => words).join(' | ') || 'no rule found';
}

/** The layouts that the data cannot tell apart: three of them, and how many more. */
function layoutsWords({ layouts }: Identification): string {
  const more = layouts.length > 3 ? ` (and ${layouts.length - 3} more)` : '';
  return `${layouts.slice(0, 3).map(pairing).join(', or ')}${more}`;
}

function pairing({ name, distance, pairs }: PairLayout): string {
  const { read, write } = pairs[0]!;
  const to = read.join() === write.join() ? '' : ` written to (${write.join(', ')})`;
  return `${name}: (${read.join(', ')})${to}, …${name === 'half' ? ` ${distance} apart` : ''}`;
}

function direction({ sign, pairs }: Identification): string {
  if (sign !== undefined) return sign > 0 ? 'forward' : 'backward';
  return `pairs ${ranges(pairsTurning(pairs, 1))} forward, pairs ${ranges(pairsTurning(pairs, -1))} backward`;
}

/** The bases of models, or round ones if no model has one of these. */
function usualBases(bases: readonly FoundBase[]): FoundBase[] {
  const models = bases.filter((one) => BASES.includes(one.base));
  return models.length > 0 ? models : bases.filter((one) => one.round);
}

function base({ bases, law, pairs, formulas, numAxes }: Identification): string {
  if (formulas.length > 0) return `none of the usual form: frequencies are ${formulas.join(' or ')}`;
  if (law && law.step < 0 && numAxes === 1)
    return `none of the usual form: each frequency is ${short(Math.exp(-law.step))} times that of the pair before`;
  if (!law || law.step < 0) {
    const all = pairs.filter(isClear).map(({ frequency }) => Math.abs(frequency));
    if (all.length === 0) return 'unknown: no pair rotates enough';
    return `no one base was found: frequencies from ${short(Math.max(...all))} to ${short(Math.min(...all))} radians a position`;
  }
  const usual = usualBases(bases);
  return (usual.length > 0 ? usual : bases.slice(0, 1))
    .map((one) =>
      one.error < 0.5
        ? `${short(one.base)} if exponents are over ${one.denominator} (± ${upwards(one.error)} relative)`
        : 'unknown: too few pairs rotate enough',
    )
    .join(', ');
}

/** The first pair that a law without scaling does not give; −1 if there is none. */
function firstScaled({ step, stepBound }: FrequencyLaw, pairs: readonly FoundPair[]): number {
  return pairs.findIndex(({ turns, known, low, high }, j) => {
    const fastest = Math.max(Math.abs(low), Math.abs(high));
    return turns && known && fastest < Math.exp(-(step + stepBound) * j);
  });
}

function scaling({ law, bases, pairs, formulas, numAxes, onePosition }: Identification): string {
  if (formulas.length > 0) return 'see base';
  if (!law) return 'unknown: no one base was found';
  if (law.step < 0) return numAxes === 1 ? 'see base' : 'unknown: no one base was found';
  const { scaling: found } = law;
  if (found.kind === 'none' || !isSharp(found)) {
    const clear = pairs.findIndex((pair) => !Number.isNaN(pair.gain) && !isClear(pair));
    if (found.kind === 'none' && clear < 0) return 'none';
    const scaled = found.kind === 'none' ? -1 : firstScaled(law, pairs);
    const end = Math.min(...[clear, scaled].filter((j) => j >= 0));
    if (!(end >= 2) || end === Infinity) return 'unknown: the measurements show too little of it';
    if (scaled !== end) return `none is seen up to pair ${end - 1}; slower pairs turn too little to tell`;
    return `none is seen up to pair ${end - 1}; slower pairs are slowed, and the measurements do not show by which rule`;
  }
  const factor = `factor ${scalingFactor(found)}`;
  switch (found.kind) {
    case 'linear': {
      const unit = factorWords(1 / found.factor, found.factorError);
      if (found.factor < 0.5 && !unit)
        return `none: every frequency${onePosition ? ', or the position,' : ''} is ${short(1 / found.factor)} times that of this base`;
      return `linear, ${factor}${onePosition ? ', or the position is divided by it' : unit ? `: frequencies × ${unit}` : ''}`;
    }
    case 'llama3':
      return `llama3, ${factor}: wavelengths from ${whole(found.divideFrom)} are divided, those up to ${whole(found.keepUpTo)} kept`;
    case 'yarn': {
      const contexts = bases[0] ? yarnContexts(found, bases[0].base, bases[0].denominator) : [];
      const original = contexts.length > 0 ? `; original context ${contexts.join(' or ')} with beta 32 and 1` : '';
      return `YaRN, ${factor}, ramp from pair ${short(found.ramp[0])} to ${short(found.ramp[1])}${original}`;
    }
  }
}

function whole(tokens: number): string {
  return short(Math.abs(tokens / Math.round(tokens) - 1) < 1e-3 ? Math.round(tokens) : tokens);
}

function magnitude({ gain, gainRange, gains }: Identification): string {
  if (gains) return `cos × ${short(gains.cos)}, sin × ${short(gains.sin)} (± ${upwards(gains.error)})`;
  if (gain === undefined || !gainRange) return 'not one for all pairs and tokens';
  return `${short(gain)} (± ${upwards(Math.max(gainRange[1] - gain, gain - gainRange[0], 1e-16))})`;
}

function headsWords({ headsAgree, headsSeen: [measured, all] }: Identification): string {
  if (!headsAgree) return 'rotate differently';
  if (all === 1) return 'there is only one';
  if (measured === 1) return `unknown: one of ${all} was measured`;
  return measured === all ? 'all rotate alike' : `the ${measured} that were measured, of ${all}, rotate alike`;
}

function axes({ axes: rules, pairs }: Identification): string {
  if (pairs.every((pair) => pair.axes.length === 1) && rules.length > 0)
    return rules.map(({ rule, sections }) => `${rule} ${sections.join('+')}`).join(' | ');
  return `by pair ${pairs.map((pair) => (pair.axes.length === 1 ? AXIS_NAMES[pair.axes[0]!] : '·')).join('')}`;
}

function explained({ explains, dtype, expected, gains }: Identification): string {
  if (gains) return 'is explained within noise';
  if (!explains || !expected) return 'is not explained within rounding by these values alone';
  const what = {
    stored: `rounding to ${dtype}`,
    angles: `angles in f32 and rounding to ${dtype}`,
    sines: `angles in f32, cos and sin off by up to 4.8e-7, and rounding to ${dtype}`,
    arithmetic: `arithmetic in ${dtype}`,
  }[explains];
  return `is explained within ${what}`;
}

function leftOpen({ notRuledOut, found, next, named, verdict }: Diagnosis): ReportLine[] {
  // Where y is right in part, only the right rows were measured.
  const isWhole = !['as expected', 'known bug', 'partly right'].includes(verdict) && isProven(found);
  const lines = isWhole ? [...found.open] : [];
  if (notRuledOut.length > 0) lines.push(`It would not have shown: ${notRuledOut.map(({ id }) => id).join(', ')}.`);
  if (named.length > 1 && !next && verdict === 'known bug')
    lines.push('No input that was tried tells these bugs apart: for this model they are the same.');
  // Only of a rotation that keeps lengths and places.
  if (named.length === 1 && named[0]!.id === 'turned-the-other-way' && Math.abs((found.gain ?? 0) - 1) < 1e-3)
    lines.push('Whether x and y were exchanged: a right kernel then looks the same.');
  if (next) lines.push(`Next input to try: ${next.why}, ${next.shape.join(' × ')}.`);
  const told: ReportLine[] = lines.map((text) => ({ text }));
  if (next && verdict === 'known bug')
    told.push({
      text: `it tells apart ${next.groups.map((group) => group.join(' = ')).join(' | ')}`,
      deeper: true,
    });
  return told;
}
