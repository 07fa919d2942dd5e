/** `ropewalk diagnose`: finds from the dumps of a kernel what it computed, and which known bug it has. @module */
import {
  type Diagnosis,
  demoObservation,
  describeDiagnosis,
  diagnose as diagnoseKernel,
  diagnosisToJson,
  type Expected,
} from '@ropewalk/diagnose';
import { reportOf } from '@ropewalk/diagnose/internal';
import type { DiagnoseOptions, Task } from './diagnose-input.js';
import { Flags } from './options.js';
import { EXIT, openPercentBar, printResult } from './output.js';
import { magnitudesOf, plotFrequencies } from './plot.js';

/** @returns 0 when y is what was expected, or without an expectation a clean rotation; 1 when it is not */
export async function diagnose(options: DiagnoseOptions): Promise<number> {
  const { all = false } = options;
  if (options.demo)
    new Flags(options).refuseAny(['x', 'y', 'positions', 'expect'], '--demo has its own input. Leave one of them out.');
  const task: Task = options.demo ? demoObservation() : await (await import('./diagnose-input.js')).readTask(options);
  const { observation, expected, from, faults, later: laterIn, ranks, otherwise } = task;
  const bar = openPercentBar('of the hypotheses', options.json);
  let result: Diagnosis;
  try {
    result = diagnoseKernel(observation, expected, { progress: bar.to });
  } finally {
    bar.stop();
  }
  const later = laterIn?.(result.layout.layout);
  // When another layout gives a known bug, it is open whether the kernel is right.
  const isFine = isRight(result);
  const meant = isFine ? undefined : layoutThatIsRight(otherwise, expected);
  const other =
    isFine || options.demo
      ? undefined
      : await (await import('./diagnose-hints.js')).optionsThatAreRight(options, task, result.layout.layout);
  const wrong = isFine || meant ? [] : wrongRanks(ranks, expected);
  const shared = result.verdict === 'known bug' ? [] : bugsOfAll(wrong);
  const files =
    options.svg !== undefined || options.nextInput !== undefined
      ? (await import('./diagnose-files.js')).writeFiles(result, options)
      : [];
  printResult(options.json, {
    json: () => ({
      ...(diagnosisToJson(result, from) as object),
      ...(faults && { positionFaults: faults }),
      ...(later && { later: { right: later.isRight, ...later.layers[0] } }),
      ...(other && { rightWith: other }),
      ...(ranks && {
        wrongRanks: wrong.map(({ rank, says }) => ({ rank, says })),
        ...(meant && { rightLayout: meant }),
        ...(shared.length > 0 && { bugsOfRanks: shared }),
      }),
    }),
    lines: () => [
      ...positionLines(faults, isFine),
      ...(meant ? layoutLines(options.rankLayout!, meant) : []),
      ...(shared.length > 0 ? rankLines(shared, wrong) : []),
      ...(other ? [`OTHER OPTIONS: y is right with ${other}. The report below is on the options as given.`, ''] : []),
      ...describeDiagnosis(result, from, { all }),
      ...(all ? plot(result) : []),
      ...(later ? ['', 'Later in the cache (--then; A is --y)', ...later.lines.map((line) => `  ${line}`)] : []),
      ...(wrong.length > 0 ? ['', 'Ranks', ...wrong.map(({ rank, says }) => `  rank ${rank} is wrong: ${says}`)] : []),
      ...files,
    ],
  });
  return isFine && !faults?.length && later?.isRight !== false ? EXIT.ok : EXIT.failed;
}

function isRight({ verdict, layout }: Diagnosis): boolean {
  return layout.otherwise.length === 0 && ['as expected', 'less precise', 'rotation'].includes(verdict);
}

interface WrongRank {
  readonly rank: number;
  /** The first line of its report. */
  readonly says: string;
  readonly bugs: readonly string[];
}

/** The ranks whose own run is not right. */
function wrongRanks(ranks: readonly Task[] = [], expected?: Expected): WrongRank[] {
  return ranks.flatMap(({ observation }, rank) => {
    const found = diagnoseKernel(observation, expected);
    const bugs = found.verdict === 'known bug' ? found.named.map(({ id }) => id) : [];
    return isRight(found) ? [] : [{ rank, says: reportOf(found, undefined, false).head, bugs }];
  });
}

/** The known bugs that give every one of at least two wrong ranks. */
const bugsOfAll = (wrong: readonly WrongRank[]): string[] =>
  wrong.length < 2 ? [] : wrong[0]!.bugs.filter((id) => wrong.every(({ bugs }) => bugs.includes(id)));

const rankLines = (bugs: readonly string[], wrong: readonly WrongRank[]): string[] => [
  `KNOWN BUG in each of ranks ${wrong.map(({ rank }) => rank).join(', ')}: ${bugs.join(' | ')}, at the rank's own positions.`,
  '  The report below is on all ranks together.',
  '',
];

/** The layout of ranks at whose positions every rank is right. The first rank may have the same tokens in all of them. */
function layoutThatIsRight(otherwise: Task['otherwise'] = new Map(), expected?: Expected): string | undefined {
  for (const [layout, ranks] of otherwise)
    if (ranks.toReversed().every((observation) => isRight(diagnoseKernel(observation, expected)))) return layout;
  return undefined;
}

const layoutLines = (given: string, meant: string): string[] => [
  `RANK LAYOUT WRONG: every rank is right at the positions of --rank-layout ${meant}, and not of ${given}.`,
  `  Either the tokens are shared as ${meant}, or the ranks take the shares of ${given} and the positions of ${meant}.`,
  `  The report below is on the positions of ${given}.`,
  '',
];

/** Lines that say what the layout of the tokens tells of the runtime's positions, before the report. */
function positionLines(faults: readonly string[] | undefined, isFine: boolean): string[] {
  if (!faults) return [];
  if (faults.length === 0) return ['The positions are those of the tokens.', ''];
  const shown = faults.slice(0, 8);
  const more = faults.length - shown.length;
  return [
    isFine
      ? 'POSITIONS WRONG: the kernel is right at the positions that it was given; they are not those of the tokens.'
      : 'POSITIONS WRONG: they are not those of the tokens. The report below is on the positions as given.',
    ...shown.map((fault) => `  ${fault}.`),
    ...(more > 0 ? [`  … and ${more} more sequences`] : []),
    '',
  ];
}

function plot({ found, expectedFrequencies }: Diagnosis): string[] {
  if (found.pairs.length === 0) return [];
  const [measured, wanted] = magnitudesOf(found.pairs, expectedFrequencies);
  const [, ...lines] = plotFrequencies(measured, wanted ?? measured);
  return [
    '',
    `Frequency by pair, log10 of radians a position: * found${wanted ? ', · expected where it differs' : ''}`,
    ...lines.map((line) => `  ${line}`),
  ];
}
