/** `ropewalk verify`: compares a kernel's outputs, or those of a program, with a folder of golden cases. @module */
import { join } from 'node:path';
import { MUTANTS } from '@ropewalk/diagnose';
import { writeOutput } from '@ropewalk/formats/internal/node';
import { isFolder } from '@ropewalk/formats/node';
import {
  countVerified,
  type GoldenCase,
  type GoldenFolder,
  type JudgeOptions,
  judgeCase,
  type VerifyResult,
  verifyAnnotations,
  verifyLines,
  verifySummary,
  verifyToJson,
  verifyToJunit,
} from '@ropewalk/oracle';
import {
  asFormatError,
  type GoldenEntry,
  type KernelPerf,
  type ModelOptions,
  type ReportTitle,
  TABLE_PRECISIONS,
  verifiedCauses,
} from '@ropewalk/oracle/internal';
import { strangersIn } from '@ropewalk/oracle/internal/node';
import { goldenFolder, type ProgramUnderTest, programOf, readCaseOutputs } from '@ropewalk/oracle/node';
import { fail, refuse } from 'ropewalk/backend';
import { didYouMean } from 'ropewalk/internal';
import { splitWords } from './command-words.js';
import { Flags, type Switches, type Texts } from './options.js';
import { counted, EXIT, openPrinter } from './output.js';
import { keepCase, nextStep } from './verify-next.js';
import { VERSION } from './version.js';

export type VerifyOptions = Texts<'outputs' | 'program' | 'protocol' | 'timeout' | 'keep' | 'table' | 'arithmetic'> &
  Texts<'toleranceScale' | 'report' | 'out' | 'maxFailures'> &
  Switches<'json' | 'perf'> & { readonly case?: readonly string[]; readonly op?: readonly string[] };

const REPORTS = ['console', 'jsonl', 'junit'] as const;

/** The default of --timeout in seconds, which suits slow simulators. */
const DEFAULT_TIMEOUT_S = 60;
const MAX_TIMEOUT_S = 86400;
/** After this many wrong rotations without a known bug the search for bugs stops: each takes up to a second. */
const MAX_UNNAMED = 5;

/** @returns 0 when every case passed; 1 when one failed or none was compared */
export async function verify(vectors: string, options: VerifyOptions): Promise<number> {
  const flags = new Flags(options);
  const report = flags.word('report', REPORTS) ?? (options.json ? 'jsonl' : 'console');
  if (options.json && report !== 'jsonl')
    fail('FORMAT', '--report', '--json means --report jsonl. Leave one of them out.');
  const model: ModelOptions = {
    arithmetic: flags.word('arithmetic', ['f32', 'native']),
    table: flags.word('table', TABLE_PRECISIONS),
    toleranceScale: flags.positive('toleranceScale', 1e6),
  };
  const maxFailures = flags.integer('maxFailures', 1);
  const source = openSource(flags, options);
  const folder = goldenFolder(vectors, () => import('@ropewalk/onnx'));
  const entries = chooseCases(folder, options.case, flags);
  const title: ReportTitle = {
    vectors,
    from: options.outputs ?? options.program!,
    by: `ropewalk ${VERSION}`,
    allowed: describeAllowed(model),
  };
  // stdout gets a line for each case if the report goes to a file or is for people, otherwise the report itself.
  const lines = report === 'console' || options.out !== undefined;
  const printer = openPrinter(entries.length, 'cases', false, lines ? process.stdout : process.stderr);
  const stop = endWithSignals(source);
  const width = Math.min(60, Math.max(0, ...entries.map(({ id }) => id.length)) + 1);
  const results: VerifyResult[] = [];
  const text: string[] = [];
  let failures = 0;
  let unnamed = 0;
  const say = (line: string): void => {
    text.push(line);
    if (lines) printer.line(line);
  };
  try {
    say(
      `${title.vectors}: ${entries.length} of ${folder.cases.length} cases, outputs of ${title.from}${title.allowed.map((item) => `, ${item}`).join('')}`,
    );
    for (const entry of entries) {
      const result = await verifyCase(await folder.load(entry), entry, {
        vectors,
        options,
        model: { ...model, bugs: unnamed < MAX_UNNAMED },
        source,
      });
      results.push(result);
      if (result.next !== undefined && !result.bugs) unnamed++;
      for (const line of verifyLines(result, width, options.case ? 'full' : 'brief')) say(line);
      if (report === 'jsonl' && !lines) process.stdout.write(`${verifyToJson(result)}\n`);
      printer.step();
      if (isFailure(result) && ++failures === maxFailures) break;
    }
    const odd = await source.close();
    if (odd !== undefined) say(`  note: ${odd}`);
  } finally {
    source.kill();
    stop();
    printer.stop();
  }
  const ids = folder.cases.map(({ id }) => id);
  const strangers = options.outputs === undefined ? [] : strangersIn(options.outputs, ids);
  for (const name of strangers.slice(0, 5)) say(`  note: ${join(options.outputs!, name)} belongs to no case`);
  if (strangers.length > 5) say(`  note: and ${strangers.length - 5} more`);
  const notRun = entries.slice(results.length);
  const after = `not run, after ${counted(failures, 'failure')} (--max-failures)`;
  if (notRun.length > 0) say(`  note: ${after}: ${counted(notRun.length, 'case')}`);
  for (const { bug, others, cases } of verifiedCauses(results)) {
    const where = `in ${cases.length} of ${counted(failures, 'failure')}`;
    say(
      others.length === 0
        ? `  known bug ${where}: ${bug}. ${does(bug)}`
        : `  one of the known bugs ${where}: ${[bug, ...others].join(' | ')}. More cases may tell them apart.`,
    );
  }
  // The case's own lines have it otherwise.
  const next = options.case ? undefined : results.find(({ next, bugs }) => next !== undefined && !bugs);
  if (next) say(`  to see what ${next.id} does instead: ${next.next!.replaceAll('\n', '\n    ')}`);
  if (process.env.GITHUB_ACTIONS === 'true') for (const line of verifyAnnotations(results)) console.error(line);
  const counts = countVerified(results);
  const compared = counts.ok + counts.fail + counts.error > 0;
  say(`  ${compared ? verifySummary(counts) : `nothing was compared: ${counts.skipped} skipped`}`);
  const left = notRun.map(({ id, op, about }) => ({ ...SKIPPED, id, op, about, detail: after }));
  writeReport(report, options.out, title, report === 'junit' ? [...results, ...left] : results, text);
  return compared && counts.fail + counts.error === 0 ? EXIT.ok : EXIT.failed;
}

const SKIPPED = { status: 'skipped', notes: [], tensors: [] } as const;

function isFailure({ status }: VerifyResult): boolean {
  return status === 'fail' || status === 'error';
}

/** Describes known bugs: `a and b`. */
function does(bug: string): string {
  const ids = bug.split(' and ');
  return ids.flatMap((id) => MUTANTS.find((mutant) => mutant.id === id)?.does ?? []).join(' ');
}

/** The source of outputs. Only a program has times. */
type Source = Omit<ProgramUnderTest, 'time'> & Partial<Pick<ProgramUnderTest, 'time'>>;

function openSource(flags: Flags<VerifyOptions>, options: VerifyOptions): Source {
  const { outputs, program } = options;
  if (outputs !== undefined) flags.refuseAny(['program'], 'it does not go with --outputs. Leave one of them out.');
  const protocol = flags.word('protocol', ['stdio', 'files']) ?? 'stdio';
  const timeout = flags.positive('timeout', MAX_TIMEOUT_S) ?? DEFAULT_TIMEOUT_S;
  if (options.perf && (program === undefined || protocol === 'files'))
    fail('FORMAT', '--perf', 'it needs --program "CMD …", and no --protocol files: the program times its own kernel.');
  if (program !== undefined)
    return programOf({ words: splitWords(program, '--program'), protocol, timeoutMs: timeout * 1000 });
  if (outputs === undefined)
    fail(
      'FORMAT',
      '--outputs',
      'give --outputs DIR or --program "CMD …": there is nothing to verify. See docs/verify.md.',
    );
  flags.refuseAny(['protocol', 'timeout'], 'it needs --program.');
  if (!isFolder(outputs)) fail('FORMAT', '--outputs', `${outputs} is not a folder.`);
  return {
    async run(golden) {
      const { tensors, problems, notes } = readCaseOutputs(outputs, golden);
      return problems.length > 0
        ? { kind: 'problem', problem: [...problems, ...notes].join('\n') }
        : { kind: 'outputs', tensors, notes };
    },
    async close() {
      return undefined;
    },
    kill() {},
  };
}

async function verifyCase(
  golden: GoldenCase,
  entry: GoldenEntry,
  { vectors, options, model, source }: { vectors: string; options: VerifyOptions; model: JudgeOptions; source: Source },
): Promise<VerifyResult> {
  const { id, op, about } = golden;
  const started = performance.now();
  const answer = await source.run(golden);
  const seconds = options.program === undefined ? undefined : (performance.now() - started) / 1000;
  if (answer.kind !== 'outputs') {
    const [status, detail] =
      answer.kind === 'skip' ? (['skipped', answer.reason] as const) : (['error', answer.problem] as const);
    return { id, op, about, status, detail, notes: [], tensors: [], seconds };
  }
  const { outputs, program, keep } = options;
  if (keep !== undefined) keepCase(keep, golden, entry, answer.tensors);
  let result: VerifyResult;
  try {
    result = judgeCase(golden, answer.tensors, model);
  } catch (error) {
    throw asFormatError(error, `vectors: ${id}`);
  }
  const places = { vectors, outputs, program, keep };
  const next = result.status === 'fail' ? nextStep(result, golden, entry, places) : undefined;
  // Only a right kernel is timed.
  const timed = options.perf && result.status === 'ok' ? await timesOf(golden, source) : undefined;
  const notes = [...answer.notes, ...(typeof timed === 'string' ? [timed] : [])];
  return { ...result, notes, next, seconds, perf: typeof timed === 'string' ? undefined : timed };
}

/** @returns the kernel's time, or the reason why there is none */
async function timesOf(golden: GoldenCase, source: Source): Promise<KernelPerf | string> {
  const answer = await source.time!(golden);
  if (answer.kind === 'times') return answer.perf;
  const why = answer.kind === 'skip' ? answer.reason : answer.problem;
  return `no time: ${why}. docs/verify.md, "How fast is it", says how a program times its kernel`;
}

function chooseCases(
  folder: GoldenFolder,
  ids: readonly string[] | undefined,
  flags: Flags<VerifyOptions>,
): GoldenEntry[] {
  const all = folder.cases.map((entry) => entry.id);
  const chosen = ids?.map(
    (id) =>
      folder.cases.find((entry) => entry.id === id) ??
      refuse('FORMAT', '--case', `one of the ${counted(all.length, 'case')} in manifest.json`, id, didYouMean(id, all)),
  );
  const ops = flags.words('op', [...new Set(folder.cases.map(({ op }) => op))]);
  return (chosen ?? folder.cases).filter(({ op }) => !ops || ops.includes(op));
}

function describeAllowed({ table, arithmetic, toleranceScale }: ModelOptions): string[] {
  return [
    ...(table ? [`angles in ${table}`] : []),
    ...(arithmetic === 'native' ? ["arithmetic in the data's dtype"] : []),
    ...(toleranceScale === undefined ? [] : [`bounds times ${toleranceScale}`]),
  ];
}

function writeReport(
  form: (typeof REPORTS)[number],
  out: string | undefined,
  title: ReportTitle,
  results: readonly VerifyResult[],
  text: readonly string[],
): void {
  if (form === 'console' && out === undefined) return;
  const summary = JSON.stringify({
    summary: { ...countVerified(results), vectors: title.vectors, outputs: title.from, by: title.by },
  });
  const body = {
    console: () => `${text.join('\n')}\n`,
    jsonl: () => [...(out === undefined ? [] : results.map(verifyToJson)), summary].map((line) => `${line}\n`).join(''),
    junit: () => verifyToJunit(title, results),
  }[form]();
  if (out === undefined) process.stdout.write(body);
  else writeOutput(out, body, '--out');
}

/** On Ctrl-C and similar signals, ends the program, whose process group gets no signal, and then this process. */
function endWithSignals(source: Source): () => void {
  const handlers = (['SIGINT', 'SIGTERM', 'SIGHUP'] as const).map((signal, n) => {
    const handler = (): void => {
      source.kill();
      process.exit(128 + [2, 15, 1][n]!);
    };
    process.once(signal, handler);
    return [signal, handler] as const;
  });
  const onExit = (): void => source.kill();
  process.once('exit', onExit);
  return () => {
    for (const [signal, handler] of handlers) process.off(signal, handler);
    process.off('exit', onExit);
  };
}
