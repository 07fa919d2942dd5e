/**
 * A diagnosis as lines of text.
 *
 * @module
 */

import { ranges } from 'ropewalk/backend';
import type { Diagnosis, Named, WorstElement } from './diagnose.js';
import { short } from './differences.js';
import type { Identification } from './identification.js';
import { CAUSES } from './mutant.js';
import { yarnContexts } from './spec-fit.js';

/**
 * Describes a diagnosis: the verdict first, then what is different, what y shows, and what is left open.
 *
 * @param diagnosis - from diagnose
 * @param from - what was expected, in words; undefined without an expectation
 */
export function describeDiagnosis(diagnosis: Diagnosis, from?: string): string[] {
  const sections = [
    headline(diagnosis, from),
    section('Different', differences(diagnosis)),
    section(
      diagnosis.named.length > 1 || (diagnosis.named[0]?.mutants.length ?? 0) > 1 ? 'Known bugs' : 'Known bug',
      diagnosis.verdict === 'known bug' ? bugs(diagnosis) : [],
    ),
    section('What y shows', findings(diagnosis)),
    section('This input leaves open', leftOpen(diagnosis)),
  ];
  return sections.filter((lines) => lines.length > 0).flatMap((lines, n) => (n === 0 ? lines : ['', ...lines]));
}

function section(title: string, lines: readonly string[]): string[] {
  return lines.length === 0 ? [] : [title, ...lines.map((line) => `  ${line}`)];
}

function headline(diagnosis: Diagnosis, from: string | undefined): string[] {
  const meant = from === undefined ? '' : ` (${from})`;
  const { verdict, named, found } = diagnosis;
  switch (verdict) {
    case 'as expected':
      return [`AS EXPECTED${meant}: y is the rotation, rounded once to ${found.dtype}.`];
    case 'less precise':
      return [`AS EXPECTED${meant}, computed less precisely: ${precision(diagnosis)}.`];
    case 'known bug': {
      const ids = named.map(({ mutants }) => mutants.map(({ id }) => id).join(' and '));
      if (ids.length > 1) return [`ONE OF ${ids.length}, which this input cannot tell apart: ${ids.join(' | ')}`];
      return [`${named[0]!.mutants.length > 1 ? 'TWO KNOWN BUGS' : 'KNOWN BUG'}: ${ids[0]}`];
    }
    case 'different':
      return [
        from === undefined
          ? 'A ROTATION, but no record explains y within rounding.'
          : `DIFFERENT from what is expected${meant}, and no known bug, nor two of them, makes y.`,
      ];
    case 'rotation':
      return [`A ROTATION: ${inShort(found)}.`];
    case 'not understood':
      return [
        `NOT UNDERSTOOD: ${from === undefined ? reason(found) : 'y is not what is expected, no known bug makes it, and what was measured does not explain all of it.'}`,
      ];
  }
}

function inShort(found: Identification): string {
  const base = found.bases[0];
  const parts = [
    found.layout!.name,
    base ? `base ${short(base.base)}` : 'frequencies by no rule',
    found.law && found.law.scaling.kind !== 'none' ? found.law.scaling.kind : '',
  ];
  return parts.filter((part) => part !== '').join(', ');
}

function reason({ outcome, gain }: Identification): string {
  switch (outcome) {
    case 'not finite':
      return 'y holds values that are not finite.';
    case 'zero':
      return 'y is 0 everywhere.';
    case 'unchanged':
      return gain === undefined || Math.abs(gain - 1) < 1e-6
        ? 'y is x: nothing turned.'
        : `y is x times ${short(gain)}: nothing turned.`;
    case 'mirrored':
      return 'pairs are mirrored, not only turned: one of the four products has the wrong sign.';
    case 'no rotation':
      return 'no two dimensions of a head keep their length together.';
    case 'rotation':
    case 'odd rotation':
      return 'pairs turn, but not by one frequency times one position.';
  }
}

function precision({ tier, recipes, named, found }: Diagnosis): string {
  const whose = [
    ...recipes.map((recipe) => `the arithmetic of ${recipe.replace('-f32', '')} in f32`),
    ...named.map(({ id }) => id),
  ];
  if (whose.length > 0) return whose.join(' | ');
  return tier === 'angles' ? 'angles in f32' : `cos, sin or products in ${found.dtype}`;
}

function differences({ verdict, differences, worst }: Diagnosis): string[] {
  return [
    ...differences.map(({ words }) => words),
    ...(worst && verdict !== 'less precise' ? [worstWords(worst)] : []),
  ];
}

function worstWords({ batch, seq, head, dim, positions, y, expected }: WorstElement): string {
  return `Farthest off: batch ${batch}, token ${seq} (position ${positions.join(', ')}), head ${head}, dimension ${dim}: y is ${short(y)}, expected ${short(expected)}.`;
}

function bugs({ named }: Diagnosis): string[] {
  return named.flatMap(({ mutants }) =>
    mutants.flatMap(({ id, cause, does, threads }) => [
      `${id}: ${does}`,
      `  cause ${cause}, ${CAUSES[cause]}; reported in ${threads.join(', ')}`,
    ]),
  );
}

function findings(diagnosis: Diagnosis): string[] {
  const { found } = diagnosis;
  if (!found.layout)
    return diagnosis.verdict === 'not understood' || diagnosis.verdict === 'known bug' ? [reason(found)] : [];
  const told = found.pairs.some((pair) => pair.turns);
  const untold = 'cannot be told: no frequency can be, from these positions';
  const rows: [string, string][] = [
    ['dimensions', dimensions(found)],
    ['pairing', pairing(found)],
    ['direction', told ? direction(found) : untold],
    ['base', told ? base(found) : untold],
    ['scaling', told ? scaling(found) : untold],
    ['magnitude', found.gain === undefined ? 'not one for all pairs' : short(found.gain)],
    [
      'positions',
      !told
        ? untold
        : found.positions.length > 0
          ? found.positions.map(({ words }) => words).join(' | ')
          : 'no rule found',
    ],
    ...(found.numAxes > 1 ? [['axes', axes(found)] as [string, string]] : []),
    ['heads', found.headsAgree ? 'all turn alike' : 'turn differently'],
    ['y', explained(found)],
  ];
  return rows.map(([key, value]) => `${key.padEnd(11)} ${value}`);
}

function direction({ sign }: Identification): string {
  return sign === undefined ? 'some pairs forward, some backward' : sign > 0 ? 'forward' : 'backward';
}

function dimensions({ geometry }: Identification): string {
  const of = (kind: string): number[] => geometry!.dims.flatMap((one, i) => (one === kind ? [i] : []));
  const parts = [`${ranges(of('turned'))} turn`];
  if (of('scaled').length > 0) parts.push(`${ranges(of('scaled'))} are scaled`);
  if (of('still').length > 0) parts.push(`${ranges(of('still'))} are as they were`);
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
  switch (found.kind) {
    case 'none':
      return 'none';
    case 'linear':
      return `linear, factor ${short(found.factor)}`;
    case 'llama3':
      return `llama3, factor ${short(found.factor)}: wavelengths from ${short(found.divideFrom)} are divided, those up to ${short(found.keepUpTo)} kept`;
    case 'yarn': {
      const contexts = bases[0] ? yarnContexts(found, bases[0].base, bases[0].denominator) : [];
      const original = contexts.length > 0 ? `; original context ${contexts.join(' or ')} with beta 32 and 1` : '';
      return `YaRN, factor ${short(found.factor)}, ramp from pair ${short(found.ramp[0])} to ${short(found.ramp[1])}${original}`;
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
    arithmetic: `arithmetic in ${dtype}`,
  }[explains];
  return `is explained within ${what}`;
}

function leftOpen({ notRuledOut, found, next, named, verdict }: Diagnosis): string[] {
  const lines = verdict === 'as expected' || verdict === 'known bug' ? [] : [...found.open];
  if (notRuledOut.length > 0) lines.push(`It would not have shown: ${list(notRuledOut)}.`);
  if (named.length > 1 && !next && verdict === 'known bug')
    lines.push('No input that was tried tells these bugs apart: for this model they are one.');
  if (next) {
    lines.push(`Next input to try: ${next.why}, ${next.shape.join(' × ')}.`);
    if (verdict === 'known bug')
      lines.push(`  it tells apart ${next.groups.map((group) => group.join(' = ')).join(' | ')}`);
  }
  return lines;
}

function list(named: readonly Named[]): string {
  return named.map(({ id }) => id).join(', ');
}
