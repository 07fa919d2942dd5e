/**
 * `ropewalk mutants`: says how many of the known wrong kernels a set of test vectors notices.
 *
 * @module
 */

import {
  CAUSES,
  type Cause,
  type ConformanceCase,
  MUTANTS,
  type Mutant,
  type MutantScore,
  scoreVectors,
  type VectorScore,
  vectorCases,
} from '@ropewalk/oracle';
import { openFolder } from '@ropewalk/oracle/node';
import { refuse } from 'ropewalk/backend';
import { builtInCases, filterCases } from './check.js';
import { EXIT, openPrinter } from './output.js';

/** Options of the command, as the command line gives them. */
export interface MutantsOptions {
  readonly vectors?: string;
  readonly filter?: string;
  readonly list?: boolean;
  readonly json?: boolean;
}

/**
 * Scores vectors, or lists the catalogue.
 *
 * @param options - which vectors, and how to print
 * @returns the exit code: 0 when every known bug is killed, 1 when some are missed
 * @throws {RopewalkError} for options and files that make no sense: the caller exits with 2
 */
export async function mutants(options: MutantsOptions): Promise<number> {
  const print = (lines: readonly string[]): void =>
    void process.stdout.write(lines.map((line) => `${line}\n`).join(''));
  if (options.list) {
    for (const name of ['vectors', 'filter'] as const) {
      if (options[name] === undefined) continue;
      refuse(
        'FORMAT',
        `mutants: --${name}`,
        'nothing beside --list',
        options[name],
        'The catalogue is the same for all vectors.',
      );
    }
    print(options.json ? MUTANTS.map((mutant) => JSON.stringify(toJson(mutant))) : listLines());
    return EXIT.ok;
  }
  const cases = chooseCases(options);
  const printer = openPrinter(cases.length + MUTANTS.length, 'cases and mutants', options.json);
  let score: VectorScore;
  try {
    score = await scoreVectors(cases, MUTANTS, () => printer.step());
  } finally {
    printer.stop();
  }
  if (score.rotating === score.leftOut.length) {
    refuse(
      'FORMAT',
      options.vectors === undefined ? 'mutants: --filter' : 'mutants: --vectors',
      'a case that rotates, and that the right kernel passes',
      `${cases.length} cases, ${score.rotating} of them rotations`,
      options.vectors !== undefined && score.rotating > 0
        ? `See why: ropewalk check --vectors ${options.vectors}`
        : undefined,
    );
  }
  print(options.json ? jsonLines(score) : reportLines(score));
  return score.mutants.every(({ outcome }) => outcome === 'killed') ? EXIT.ok : EXIT.failed;
}

function chooseCases({ vectors, filter }: MutantsOptions): ConformanceCase[] {
  const all = vectors !== undefined ? vectorCases(openFolder(vectors)) : builtInCases();
  return filter === undefined ? all : filterCases(all, filter, 'mutants');
}

function toJson({ id, cause, does, threads, needs }: Mutant): Record<string, unknown> {
  return { id, cause, does, threads, ...(needs === undefined ? {} : { needs }) };
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
        left_out: score.leftOut,
      },
    }),
  ];
}

/** The causes in order, each with the entries of a list that belong to it. */
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

/** Reasons of cases that do not count, each once. */
function leftOutLines(leftOut: VectorScore['leftOut']): string[] {
  const counts = new Map<string, { count: number; label: string }>();
  for (const { why, label } of leftOut) {
    const entry = counts.get(why) ?? { count: 0, label };
    counts.set(why, { ...entry, count: entry.count + 1 });
  }
  return [...counts].map(
    ([why, { count, label }]) => `left out: ${count} ${count === 1 ? 'case' : 'cases'}, ${why}; the first is ${label}`,
  );
}
