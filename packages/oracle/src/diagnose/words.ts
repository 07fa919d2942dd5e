/** A diagnosis as lines of text. @module */
import { ranges, reading } from 'ropewalk/backend';
import type { WorstElement } from './bench.js';
import type { Diagnosis } from './diagnose.js';
import { MIRRORED, short, withoutPairs } from './differences.js';
import type { Identification } from './identification.js';
import { CAUSES } from './mutant.js';
import { yarnContexts } from './spec-fit.js';

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
  const sections: [string, string[]][] = [
    ['Different', differences(diagnosis)],
    [several ? 'Known bugs' : 'Known bug', verdict === 'known bug' ? bugs(diagnosis) : []],
    ['What y shows', findings(diagnosis)],
    ['This input leaves open', leftOpen(diagnosis)],
  ];
  const shown = sections.filter(([, lines]) => lines.length > 0);
  return [headline(diagnosis, from), ...shown.flatMap(([title, lines]) => ['', title, ...lines.map((l) => `  ${l}`)])];
}

function headline(diagnosis: Diagnosis, from: string | undefined): string {
  const meant = from === undefined ? '' : ` (${from})`;
  const { verdict, named, found } = diagnosis;
  switch (verdict) {
    case 'as expected':
      return `AS EXPECTED${meant}: y is the rotation, rounded once to ${found.dtype}.`;
    case 'less precise':
      return `AS EXPECTED${meant}, computed less precisely: ${precision(diagnosis)}.`;
    case 'known bug': {
      const ids = named.map(({ mutants }) => mutants.map(({ id }) => id).join(' and '));
      if (ids.length > 1) return `ONE OF ${ids.length}, which this input cannot tell apart: ${ids.join(' | ')}`;
      return `${named[0]!.mutants.length > 1 ? 'TWO KNOWN BUGS' : 'KNOWN BUG'}: ${ids[0]}`;
    }
    case 'different':
      if (from === undefined) return 'A ROTATION, but no record explains y within rounding.';
      return `DIFFERENT from what is expected${meant}: ${triedWords(diagnosis)} gives y.`;
    case 'rotation':
      return `A ROTATION: ${inShort(found)}.`;
    case 'not understood':
      if (from === undefined) return `NOT UNDERSTOOD: ${reason(found)}`;
      return `NOT UNDERSTOOD: y is not what is expected, ${triedWords(diagnosis)} gives it, and the measurements do not explain all of it.`;
  }
}

/** What was tried, and no more: pairs that change the same step are not. */
function triedWords({ tried: { bugs, pairs } }: Diagnosis): string {
  return `none of the ${bugs} known bugs that can happen here${pairs > 0 ? `, nor of ${pairs} pairs of them,` : ''}`;
}

function inShort({ layout, bases, law }: Identification): string {
  const parts = [layout!.name as string, bases[0] ? `base ${short(bases[0].base)}` : 'frequencies that follow no rule'];
  if (law && law.scaling.kind !== 'none') parts.push(law.scaling.kind);
  return parts.join(', ');
}

function reason(found: Identification): string {
  if (found.outcome === 'mirrored') return MIRRORED;
  return withoutPairs(found) ?? 'pairs rotate, but not by one frequency times one position.';
}

function precision({ tier, recipes, named, found }: Diagnosis): string {
  if (named.length > 0) return named.map(({ id }) => id).join(' | ');
  if (recipes.length > 0) return `angles in f32, as ${recipes[0]!.replace('-f32', '')} computes them`;
  if (tier === 'sines') return 'cos and sin are off by up to 4.8e-7, as fast sines are';
  return tier === 'arithmetic' ? `cos, sin or products in ${found.dtype}` : 'angles in f32';
}

function differences({ verdict, differences, worst }: Diagnosis): string[] {
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

function findings({ found, verdict }: Diagnosis): string[] {
  if (!found.layout) return verdict === 'not understood' || verdict === 'known bug' ? [reason(found)] : [];
  const { sign, gain, positions, numAxes, headsAgree } = found;
  const measured = found.pairs.some((pair) => pair.turns);
  const told = (words: string): string => (measured ? words : 'unknown: these positions show no frequency');
  const rows: [string, string][] = [
    ['dimensions', dimensions(found)],
    ['pairing', pairing(found)],
    ['direction', told(sign === undefined ? 'some pairs forward, some backward' : sign > 0 ? 'forward' : 'backward')],
    ['base', told(base(found))],
    ['scaling', told(scaling(found))],
    ['magnitude', gain === undefined ? 'not one for all pairs' : short(gain)],
    ['positions', told(positions.map(({ words }) => words).join(' | ') || 'no rule found')],
    ...(numAxes > 1 ? [['axes', axes(found)] as [string, string]] : []),
    ['heads', headsAgree ? 'all rotate alike' : 'rotate differently'],
    ['y', explained(found)],
  ];
  return rows.map(([key, value]) => `${key.padEnd(11)} ${value}`);
}

function dimensions({ geometry }: Identification): string {
  const parts = [
    ['turned', 'rotate'],
    ['scaled', 'are scaled'],
    ['still', 'are unchanged'],
  ].flatMap(([kind, words]) => {
    const dims = geometry!.dims.flatMap((one, i) => (one === kind ? [i] : []));
    return dims.length > 0 || kind === 'turned' ? [`${ranges(dims)} ${words}`] : [];
  });
  return parts.join('; ');
}

function pairing({ layout }: Identification): string {
  const { read, write } = layout!.pairs[0]!;
  const to = read.join() === write.join() ? '' : ` written to (${write.join(', ')})`;
  return `${layout!.name}: (${read.join(', ')})${to}, …${layout!.name === 'half' ? ` ${layout!.distance} apart` : ''}`;
}

function base({ bases, law, pairs }: Identification): string {
  if (!law) {
    const all = pairs.filter((pair) => pair.turns).map(({ frequency }) => Math.abs(frequency));
    return `no one base: frequencies from ${short(Math.max(...all))} to ${short(Math.min(...all))} radians a position`;
  }
  const round = bases.filter((one) => one.round);
  return (round.length > 0 ? round : bases.slice(0, 1))
    .map(
      (one) => `${short(one.base)} if exponents are over ${one.denominator} (± ${one.error.toExponential(0)} relative)`,
    )
    .join(', ');
}

function scaling({ law, bases }: Identification): string {
  if (!law) return 'none that is known';
  const { scaling: found } = law;
  if (found.kind === 'none') return 'none';
  const factor = `factor ${short(found.factor)}`;
  switch (found.kind) {
    case 'linear':
      return `linear, ${factor}`;
    case 'llama3':
      return `llama3, ${factor}: wavelengths from ${short(found.divideFrom)} are divided, those up to ${short(found.keepUpTo)} kept`;
    case 'yarn': {
      const contexts = bases[0] ? yarnContexts(found, bases[0].base, bases[0].denominator) : [];
      const original = contexts.length > 0 ? `; original context ${contexts.join(' or ')} with beta 32 and 1` : '';
      return `YaRN, ${factor}, ramp from pair ${short(found.ramp[0])} to ${short(found.ramp[1])}${original}`;
    }
  }
}

function axes({ axes: rules, pairs }: Identification): string {
  if (rules.length > 0) return rules.map(({ rule, sections }) => `${rule} ${sections.join('+')}`).join(' | ');
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
