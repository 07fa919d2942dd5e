/** A diagnosis as lines of text. @module */
import type { FloatDtype } from 'ropewalk';
import { ranges, reading } from 'ropewalk/internal';
import { factorWords } from '../fit/frequency-families.js';
import { BASES, type FoundBase, type FrequencyLaw, isSharp } from '../fit/frequency-law.js';
import type { FoundPair, Identification } from '../fit/identification.js';
import { yarnContexts } from '../fit/rebuild.js';
import { CAUSES } from '../kernel/mutant.js';
import { arithmeticWords, type WorstElement } from '../match/bug-search.js';
import type { DimKind, PairLayout } from '../measure/geometry.js';
import { short } from '../measure/residuals.js';
import type { Diagnosis } from './diagnosis.js';
import { isProven, MIRRORED, pairsTurning, scalingFactor, sentence, upwards, withoutPairs } from './differences.js';

/**
 * Describes a diagnosis: first the verdict, then what is different, what y shows, and what is left open.
 *
 * @param diagnosis - from diagnose
 * @param from - what was expected, in words; undefined without an expectation
 */
export function describeDiagnosis(diagnosis: Diagnosis, from?: string): string[] {
  return reading('diagnosis', () => described(diagnosis, from));
}

function described(diagnosis: Diagnosis, from?: string): string[] {
  const { named, verdict } = diagnosis;
  const several = named.length > 1 || (named[0]?.mutants.length ?? 0) > 1;
  const partly = verdict === 'partly right';
  const wrong = named.length > 0 || diagnosis.differences.length > 0;
  const others = from === undefined ? 'rotated' : 'right';
  const shows = partly ? `What the ${wrong ? 'wrong' : others} rows show` : 'What y shows';
  const right = diagnosis.rowSummary?.right;
  const sections: [string, string[]][] = [
    [from === undefined ? 'Rotated' : 'Right', right ? [`${sentence(right)}.`] : []],
    [right === undefined || from === undefined ? 'Not rotated' : 'Wrong', wrongPart(diagnosis)],
    ['Different', partly ? [] : differences(diagnosis)],
    [several ? 'Known bugs' : 'Known bug', verdict === 'known bug' || partly ? bugs(diagnosis) : []],
    [shows, findings(diagnosis)],
    ['This input leaves open', leftOpen(diagnosis)],
  ];
  // A y that holds nothing shows nothing more than the headline says.
  const blank = ['zero', 'nan'].includes(diagnosis.found.outcome) ? reason(diagnosis.found) : undefined;
  const shown = sections
    .map(([title, lines]) => [title, lines.filter((line) => line !== blank)] as const)
    .filter(([, lines]) => lines.length > 0);
  return [
    headline(diagnosis, from),
    ...layoutWords(diagnosis),
    ...shown.flatMap(([title, lines]) => ['', title, ...lines.map((l) => `  ${l}`)]),
  ];
}

/** The layout in which x and y were read, if the observation gave none. */
function layoutWords({ layout: { tried, otherwise }, verdict }: Diagnosis): string[] {
  if (!tried) return [];
  const as = 'Read as [batch, head, token, head_dim]';
  if (!['as expected', 'less precise', 'rotation'].includes(verdict)) return [`${as}; otherwise give --layout bsnh.`];
  if (otherwise.length === 0) return [`${as}: this fits; give --layout bnsh.`];
  const bugs = otherwise.map(({ id }) => id).join(' | ');
  return [`${as}. As [batch, token, head, head_dim], ${bugs} gives y too: give --layout bsnh or bnsh.`];
}

function headline(diagnosis: Diagnosis, from: string | undefined): string {
  const meant = from === undefined ? '' : ` (${from})`;
  const { verdict, named, found } = diagnosis;
  switch (verdict) {
    case 'as expected':
      return `AS EXPECTED${meant}: y is the rotation, rounded once to ${found.dtype}.`;
    case 'less precise':
      return `AS EXPECTED${meant}, computed less precisely: ${precision({ ...diagnosis, dtype: found.dtype })}.`;
    case 'known bug': {
      const ids = named.map(({ mutants }) => mutants.map(({ id }) => id).join(' and '));
      if (ids.length > 1) return `ONE OF ${ids.length}, which this input cannot tell apart: ${ids.join(' | ')}`;
      return `${named[0]!.mutants.length > 1 ? 'TWO KNOWN BUGS' : 'KNOWN BUG'}: ${ids[0]}`;
    }
    case 'different':
      if (diagnosis.measured.length > 0) return `DIFFERENT from what is expected${meant}: ${diagnosis.measured[0]}`;
      if (from === undefined) return 'A ROTATION, but no record explains y within rounding.';
      return `DIFFERENT from what is expected${meant}: ${triedWords(diagnosis)} gives y.`;
    case 'partly right': {
      const { wrongElements, elements } = diagnosis.rowSummary!;
      const share = `${wrongElements} of ${elements} elements of y`;
      if (from === undefined) return `A ROTATION IN PART: ${inShort(found)}; ${share} are no part of it.`;
      return `PARTLY RIGHT${meant}: ${share} are wrong.`;
    }
    case 'rotation':
      return `A ROTATION: ${inShort(found)}.`;
    case 'not understood':
      // No bug was tried on a y that is x, and none needs to be named for a kernel that did not run.
      if (
        from === undefined ||
        ['zero', 'nan'].includes(found.outcome) ||
        (found.outcome === 'unchanged' && diagnosis.tried.bugs === 0)
      )
        return `NOT UNDERSTOOD: ${reason(found)}`;
      return `NOT UNDERSTOOD: y is not what is expected, ${triedWords(diagnosis)} gives it, and the measurements do not explain all of it.`;
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
  return withoutPairs(found) ?? 'pairs rotate, but not by one frequency times one position.';
}

/** The way in which a right rotation was computed less precisely. */
export function precision({
  tier,
  recipes,
  named,
  dtype,
}: Pick<Diagnosis, 'tier' | 'recipes' | 'named'> & { readonly dtype: FloatDtype }): string {
  if (named.length > 0) return named.map(({ id }) => id).join(' | ');
  if (recipes.length > 0) return `angles in f32, as ${recipes[0]!.replace('-f32', '')} computes them`;
  return arithmeticWords(tier, dtype);
}

/** The contents of the wrong elements, and the differences of the rows whose contents are not known. */
function wrongPart({ rowSummary, verdict, differences }: Diagnosis): string[] {
  if (!rowSummary) return [];
  const lines = rowSummary.wrong.map(({ where, holds }) => `${sentence(where)}: ${holds}.`);
  return verdict === 'partly right' ? [...lines, ...differences.map(({ words }) => `  ${words}`)] : lines;
}

function differences({ verdict, differences, measured, worst }: Diagnosis): string[] {
  if (measured.length > 0) return [...measured];
  const lines = differences.map(({ words }) => words);
  return worst && verdict !== 'less precise' ? [...lines, worstWords(worst)] : lines;
}

function worstWords({ batch, seq, head, dim, positions, y, expected }: WorstElement): string {
  const where = `batch ${batch}, token ${seq} (position ${positions.join(', ')}), head ${head}, dimension ${dim}`;
  return `Largest difference: ${where}: y is ${short(y)}, expected ${short(expected)}.`;
}

function bugs({ named }: Diagnosis): string[] {
  return named.flatMap(({ mutants }) =>
    mutants.flatMap(({ id, cause, does, threads }) => [
      `${id}: ${does}`,
      `  cause ${cause}, ${CAUSES[cause]}; reported in ${threads.join(', ')}`,
    ]),
  );
}

/** The findings that hold whatever the law of the angles is. */
const BY_THEMSELVES = ['dimensions', 'pairing', 'heads', 'y'];

function findings({ found, verdict }: Diagnosis): string[] {
  const { numAxes, outcome } = found;
  const proven = isProven(found);
  // The name of the bug is proven, but measurements that do not give y are not.
  if (verdict === 'partly right' && !proven) return [];
  if (verdict === 'known bug' && !proven && (found.layout || outcome === 'no rotation')) return [];
  if (!found.layout) return verdict === 'not understood' || verdict === 'known bug' ? [reason(found)] : [];
  const turning = found.pairs.filter((pair) => pair.turns);
  const told = (words: () => string): string => {
    if (turning.length === 0) return 'unknown: these positions show no frequency';
    if (!turning.some(({ known }) => known)) return 'unknown: these positions do not show the number of whole turns';
    return words();
  };
  const rows: [string, string][] = [
    ['dimensions', dimensions(found)],
    ['pairing', found.layouts.map(pairing).join(', or ')],
    ['direction', told(() => direction(found))],
    ['base', told(() => base(found))],
    ['scaling', told(() => scaling(found))],
    ['magnitude', magnitude(found)],
    ['positions', told(() => found.positions.map(({ words }) => words).join(' | ') || 'no rule found')],
    ...(numAxes > 1 ? [['axes', axes(found)] as [string, string]] : []),
    ['heads', headsWords(found)],
    ['y', explained(found)],
  ];
  const shown = proven ? rows : rows.filter(([key]) => BY_THEMSELVES.includes(key));
  return shown.map(([key, value]) => `${key.padEnd(11)} ${value}`);
}

function dimensions(found: Identification): string {
  const { geometry, layout, pairs } = found;
  const [slow, turning] = [false, true].map(
    (turns) =>
      new Set(layout!.pairs.flatMap(({ write }, j) => ((pairs[j]!.turns || pairs[j]!.seen) === turns ? write : []))),
  );
  const copied = new Set(geometry!.copied);
  const proven = isProven(found);
  const words = (kind: DimKind, i: number): string => {
    if (kind === 'zero') return 'hold 0';
    if (kind === 'nan') return 'hold no finite number';
    if (kind === 'turned' || turning!.has(i)) return 'rotate';
    if (kind === 'scaled' && !slow!.has(i)) return 'are only scaled';
    return slow!.has(i) || !copied.has(i) ? 'rotate by less than the noise, or not at all' : 'are unchanged';
  };
  const groups = new Map<string, number[]>();
  for (const [i, kind] of geometry!.dims.entries()) {
    const key = words(kind, i);
    // The size of the noise is not known.
    if (!proven && key.startsWith('rotate by')) continue;
    groups.set(key, [...(groups.get(key) ?? []), i]);
  }
  return [...groups].map(([key, dims]) => `${ranges(dims)} ${key}`).join('; ');
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

function base({ bases, law, pairs, formulas }: Identification): string {
  if (formulas.length > 0) return `none of the usual form: frequencies are ${formulas.join(' or ')}`;
  if (!law) {
    const all = pairs.filter((pair) => pair.turns && pair.known).map(({ frequency }) => Math.abs(frequency));
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

function scaling({ law, bases, pairs, formulas }: Identification): string {
  if (formulas.length > 0) return 'see base';
  if (!law) return 'unknown: no one base was found';
  const { scaling: found } = law;
  if (found.kind === 'none' || !isSharp(found)) {
    const clear = pairs.findIndex(
      ({ turns, known, frequency, low, high, gain }) =>
        !Number.isNaN(gain) && (!turns || !known || high - low > 0.02 * Math.abs(frequency)),
    );
    if (found.kind === 'none' && clear < 0) return 'none';
    const scaled = found.kind === 'none' ? -1 : firstScaled(law, pairs);
    const end = Math.min(...[clear, scaled].filter((j) => j >= 0));
    if (!(end >= 2) || end === Infinity) return 'unknown: these positions show too little of it';
    if (scaled !== end) return `none is seen up to pair ${end - 1}; slower pairs turn too little to tell`;
    return `none is seen up to pair ${end - 1}; slower pairs are slowed, and these positions do not show by which rule`;
  }
  const factor = `factor ${scalingFactor(found)}`;
  switch (found.kind) {
    case 'linear': {
      const unit = factorWords(1 / found.factor, found.factorError);
      return `linear, ${factor}${unit ? `: frequencies × ${unit}` : ''}`;
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
  return measured === all ? 'all rotate alike' : `the ${measured} that were measured, of ${all}, rotate alike`;
}

function axes({ axes: rules, pairs }: Identification): string {
  if (pairs.every((pair) => pair.axes.length === 1) && rules.length > 0)
    return rules.map(({ rule, sections }) => `${rule} ${sections.join('+')}`).join(' | ');
  return `by pair ${pairs.map((pair) => (pair.axes.length === 1 ? 'thwe'[pair.axes[0]!] : '·')).join('')}`;
}

function explained({ explains, dtype, expected }: Identification): string {
  if (!explains || !expected) return 'is not explained within rounding by these values alone';
  const what = {
    stored: `rounding to ${dtype}`,
    angles: `angles in f32 and rounding to ${dtype}`,
    sines: `angles in f32, cos and sin off by up to 4.8e-7, and rounding to ${dtype}`,
    arithmetic: `arithmetic in ${dtype}`,
  }[explains];
  return `is explained within ${what}`;
}

function leftOpen({ notRuledOut, found, next, named, verdict }: Diagnosis): string[] {
  const lines = verdict === 'as expected' || verdict === 'known bug' ? [] : [...found.open];
  if (notRuledOut.length > 0) lines.push(`It would not have shown: ${notRuledOut.map(({ id }) => id).join(', ')}.`);
  if (named.length > 1 && !next && verdict === 'known bug')
    lines.push('No input that was tried tells these bugs apart: for this model they are the same.');
  if (!next) return lines;
  lines.push(`Next input to try: ${next.why}, ${next.shape.join(' × ')}.`);
  if (verdict === 'known bug')
    lines.push(`  it tells apart ${next.groups.map((group) => group.join(' = ')).join(' | ')}`);
  return lines;
}
