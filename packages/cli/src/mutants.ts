/** `ropewalk mutants`: counts the known wrong kernels that a set of test vectors detects. @module */
import { CAUSES, type Cause, MUTANTS, type Mutant } from '@ropewalk/diagnose';
import { scoreVectors, type VectorScore } from '@ropewalk/oracle';
import type { MutantScore } from '@ropewalk/oracle/internal';
import { fail } from 'ropewalk/backend';
import { casesOf, filterCases } from './check.js';
import { Flags, type Switches, type Texts } from './options.js';
import { counted, EXIT, openPrinter, printLines } from './output.js';

export type MutantsOptions = Texts<'vectors' | 'filter'> & Switches<'list' | 'json'>;

/** @returns 0 when every known bug is detected, 1 when some are missed */
export async function mutants(options: MutantsOptions): Promise<number> {
  if (options.list) {
    new Flags(options).refuseAny(
      ['vectors', 'filter'],
      '--list prints the same catalogue for all vectors. Leave it out.',
    );
    printLines(options.json ? MUTANTS.map((mutant) => JSON.stringify(toJson(mutant))) : listLines());
    return EXIT.ok;
  }
  const cases = filterCases(casesOf(options.vectors), options);
  const printer = openPrinter(cases.length + MUTANTS.length, 'cases and mutants', options.json);
  const score = await scoreVectors(cases, MUTANTS, () => printer.step()).finally(() => printer.stop());
  if (score.rotating === score.leftOut.length) {
    const next =
      options.vectors !== undefined && score.rotating > 0
        ? ` See why: ropewalk check --vectors ${options.vectors}`
        : '';
    fail(
      'FORMAT',
      options.vectors === undefined ? '--filter' : '--vectors',
      `the right kernel passes no case that rotates (${cases.length} cases, ${score.rotating} rotate).${next}`,
    );
  }
  printLines(options.json ? jsonLines(score) : reportLines(score));
  return score.mutants.every(({ outcome }) => outcome === 'killed') ? EXIT.ok : EXIT.failed;
}

function toJson({ id, cause, does, threads, needs }: Mutant): Record<string, unknown> {
  return { id, cause, does, threads, needs };
}

function jsonLines(score: VectorScore): string[] {
  const missed = score.mutants.filter(({ outcome }) => outcome !== 'killed').length;
  return [
    ...score.mutants.map(({ mutant, ...rest }) => JSON.stringify({ ...toJson(mutant), ...rest })),
    JSON.stringify({
      summary: {
        killed: score.mutants.length - missed,
        missed,
        cases: score.cases,
        rotating: score.rotating,
        leftOut: score.leftOut,
      },
    }),
  ];
}

/** Groups a list by cause, in the order of the causes. */
function byCause<T>(list: readonly T[], causeOf: (entry: T) => Cause): [Cause, T[]][] {
  return (Object.keys(CAUSES) as Cause[]).map((cause) => [cause, list.filter((entry) => causeOf(entry) === cause)]);
}

function listLines(): string[] {
  const lines = byCause(MUTANTS, ({ cause }) => cause).flatMap(([cause, list]) => [
    `${cause}  ${CAUSES[cause]}`,
    ...list.flatMap(({ id, does, threads }) => [`   ${id}`, `      ${does}`, `      ${threads.join(', ')}`]),
  ]);
  return [...lines, `${MUTANTS.length} known bugs`];
}

function reportLines(score: VectorScore): string[] {
  const { cases, rotating, leftOut, mutants: scores } = score;
  const rows = byCause(scores, ({ mutant }) => mutant.cause);
  const killed = (list: readonly MutantScore[]): number => list.filter(({ outcome }) => outcome === 'killed').length;
  const width = Math.max(...Object.values(CAUSES).map((words) => words.length));
  const column = (n: number): string => String(n).padStart(6);
  const missed = scores.filter((one) => one.outcome !== 'killed');
  return [
    `   ${'cause'.padEnd(width)} killed missed`,
    ...rows.map(
      ([cause, list]) =>
        `${cause}  ${CAUSES[cause].padEnd(width)} ${column(killed(list))} ${column(list.length - killed(list))}`,
    ),
    ...(missed.length > 0 ? ['', 'Missed'] : []),
    ...missed.flatMap(({ mutant, why }) => [
      `  ${mutant.id} (${mutant.cause})`,
      `    ${mutant.does}`,
      `    ${mutant.threads.join(', ')}`,
      `    missed: ${why}`,
    ]),
    '',
    ...leftOutLines(leftOut),
    `${rotating - leftOut.length} of ${cases} cases count: they rotate, and the right kernel passes them`,
    `these vectors kill ${killed(scores)} of ${scores.length} known bugs; ${missed.length} missed`,
  ];
}

/** Lists the reasons of cases that do not count, each once. */
function leftOutLines(leftOut: VectorScore['leftOut']): string[] {
  const counts = new Map<string, { count: number; label: string }>();
  for (const { why, label } of leftOut) {
    const entry = counts.get(why) ?? { count: 0, label };
    counts.set(why, { ...entry, count: entry.count + 1 });
  }
  return [...counts].map(
    ([why, { count, label }]) => `left out: ${counted(count, 'case')}, ${why}; the first is ${label}`,
  );
}
