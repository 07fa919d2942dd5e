/**
 * `ropewalk verify`: a kernel's outputs, or a program that computes them, against a folder of golden cases.
 *
 * @module
 */
import { readdirSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { writeOutput } from '@ropewalk/formats/node';
import {
  asFormatError,
  countVerified,
  type GoldenCase,
  type GoldenEntry,
  type GoldenFolder,
  judgeCase,
  type ModelOptions,
  type ReportTitle,
  TABLE_PRECISIONS,
  type TablePrecision,
  type VerifyResult,
  verifyLines,
  verifySummary,
  verifyToCsv,
  verifyToHtml,
  verifyToJson,
  verifyToJunit,
} from '@ropewalk/oracle';
import { openGoldenFolder, openProgram, type ProgramUnderTest, readCaseOutputs } from '@ropewalk/oracle/node';
import { refuse } from 'ropewalk/backend';
import { splitWords } from './command-words.js';
import { EXIT, openPrinter } from './output.js';
import { keepCase, nextStep } from './verify-next.js';
import { VERSION } from './version.js';

/** Options of the command, as the command line gives them. */
export interface VerifyOptions {
  readonly outputs?: string;
  readonly program?: string;
  readonly protocol?: string;
  readonly timeout?: string;
  readonly keep?: string;
  readonly case?: readonly string[];
  readonly table?: string;
  readonly arithmetic?: string;
  readonly toleranceScale?: string;
  readonly report?: string;
  readonly json?: boolean;
  readonly out?: string;
}

const REPORTS = ['console', 'jsonl', 'csv', 'junit', 'html'] as const;
type ReportForm = (typeof REPORTS)[number];

/** Seconds for a case, unless given: a slow simulator's minute. */
const DEFAULT_TIMEOUT_S = 60;
const MAX_TIMEOUT_S = 86400;

/**
 * Verifies outputs.
 *
 * @param vectors - a folder that `ropewalk vectors` wrote
 * @param options - as the command line gives them
 * @returns the exit code: ok when every case passed, failed when one did not or none was compared
 * @throws {RopewalkError} for options and folders that make no sense, and a program that cannot be started: the caller exits with 2
 */
export async function verify(vectors: string, options: VerifyOptions): Promise<number> {
  const report = oneOf(options.report ?? (options.json ? 'jsonl' : 'console'), REPORTS, '--report');
  if (options.json && report !== 'jsonl') refuse('FORMAT', 'verify: --report', 'jsonl beside --json', report);
  const model = modelOptions(options);
  const source = openSource(options);
  const folder = openGoldenFolder(vectors);
  const entries = chooseCases(folder, options.case);
  const title: ReportTitle = {
    vectors,
    from: options.outputs ?? options.program!,
    by: `ropewalk ${VERSION}`,
    allowed: describeAllowed(model),
  };
  // Where the report goes to a file, or is for people anyway, stdout has the lines; otherwise the report itself.
  const lines = report === 'console' || options.out !== undefined;
  const printer = openPrinter(entries.length, 'cases', false, lines ? process.stdout : process.stderr);
  const stop = endWithSignals(source);
  const width = Math.min(60, Math.max(0, ...entries.map(({ id }) => id.length)) + 1);
  const results: VerifyResult[] = [];
  const text: string[] = [];
  const say = (line: string): void => {
    text.push(line);
    if (lines) printer.line(line);
  };
  try {
    say(
      `${title.vectors}: ${entries.length} of ${folder.cases.length} cases, outputs of ${title.from}${title.allowed.map((item) => `, ${item}`).join('')}`,
    );
    for (const entry of entries) {
      const result = await verifyCase(await folder.load(entry), entry, { vectors, options, model, source });
      results.push(result);
      for (const line of verifyLines(result, width)) say(line);
      if (report === 'jsonl' && !lines) process.stdout.write(`${verifyToJson(result)}\n`);
      printer.step();
    }
    const odd = await source.close();
    if (odd !== undefined) say(`  note: ${odd}`);
  } finally {
    source.kill();
    stop();
    printer.stop();
  }
  for (const stranger of options.outputs === undefined ? [] : strangersIn(options.outputs, folder))
    say(`  note: ${stranger}`);
  const counts = countVerified(results);
  const compared = counts.ok + counts.fail + counts.error > 0;
  say(`  ${compared ? verifySummary(counts) : `nothing was compared: ${counts.skipped} skipped`}`);
  writeReport(report, options.out, title, results, text);
  return compared && counts.fail + counts.error === 0 ? EXIT.ok : EXIT.failed;
}

/** Where outputs come from. */
interface Source extends Omit<ProgramUnderTest, 'run'> {
  run(golden: GoldenCase): ReturnType<ProgramUnderTest['run']>;
}

function openSource(options: VerifyOptions): Source {
  if ((options.outputs === undefined) === (options.program === undefined)) {
    const got = options.outputs === undefined ? 'neither' : 'both';
    refuse('FORMAT', 'verify', 'one of --outputs DIR and --program "CMD …"', got, 'See docs/verify.md.');
  }
  const protocol = oneOf(options.protocol ?? 'stdio', ['stdio', 'files'], '--protocol');
  const timeout = numberIn(options.timeout ?? String(DEFAULT_TIMEOUT_S), '--timeout', 'seconds', MAX_TIMEOUT_S);
  if (options.program !== undefined)
    return openProgram({
      words: splitWords(options.program, 'verify: --program'),
      protocol,
      timeoutMs: timeout * 1000,
    });
  for (const only of ['protocol', 'timeout'] as const) {
    if (options[only] !== undefined) refuse('FORMAT', `verify: --${only}`, '--program beside it', '--outputs');
  }
  const dir = options.outputs!;
  if (!statSync(dir, { throwIfNoEntry: false })?.isDirectory())
    refuse(
      'FORMAT',
      'verify: --outputs',
      'a folder with <case>/<output>.npy or .bin, <case>.npz or <case>.safetensors',
      dir,
    );
  return {
    async run(golden) {
      const { tensors, problems, notes } = readCaseOutputs(dir, golden);
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

interface CaseContext {
  readonly vectors: string;
  readonly options: VerifyOptions;
  readonly model: ModelOptions;
  readonly source: Source;
}

async function verifyCase(
  golden: GoldenCase,
  entry: GoldenEntry,
  { vectors, options, model, source }: CaseContext,
): Promise<VerifyResult> {
  const { id, op, about } = golden;
  const started = performance.now();
  const answer = await source.run(golden);
  const seconds = options.program === undefined ? {} : { seconds: (performance.now() - started) / 1000 };
  if (answer.kind === 'skip')
    return { id, op, about, status: 'skipped', detail: answer.reason, notes: [], tensors: [], ...seconds };
  if (answer.kind === 'problem')
    return { id, op, about, status: 'error', detail: answer.problem, notes: [], tensors: [], ...seconds };
  if (options.keep !== undefined) keepCase(options.keep, golden, entry, answer.tensors);
  let result: VerifyResult;
  try {
    result = judgeCase(golden, answer.tensors, model);
  } catch (error) {
    throw asFormatError(error, `vectors: ${id}`);
  }
  const { outputs, program, keep } = options;
  const next =
    result.status === 'fail' ? nextStep(result, golden, entry, { vectors, outputs, program, keep }) : undefined;
  return { ...result, notes: answer.notes, ...(next === undefined ? {} : { next }), ...seconds };
}

function chooseCases(folder: GoldenFolder, ids: readonly string[] | undefined): GoldenEntry[] {
  if (ids === undefined) return [...folder.cases];
  return ids.map(
    (id) =>
      folder.cases.find((entry) => entry.id === id) ??
      refuse('FORMAT', 'verify: --case', `one of ${folder.cases.length} cases, such as ${near(id, folder)}`, id),
  );
}

/** Up to three ids that share most with what was given. */
function near(id: string, folder: GoldenFolder): string {
  const parts = id.toLowerCase().split(/[^a-z0-9]+/);
  const score = (other: string): number =>
    parts.filter((part) => part !== '' && other.toLowerCase().includes(part)).length;
  const ids = folder.cases.map((entry) => entry.id);
  return ids
    .toSorted((a, b) => score(b) - score(a))
    .slice(0, 3)
    .join(', ');
}

/** What lies among the outputs and belongs to no case: a misspelt name is the usual reason for a missing output. */
function strangersIn(dir: string, folder: GoldenFolder): string[] {
  const ids = new Set(folder.cases.map(({ id }) => id));
  const strangers = readdirSync(dir).filter(
    (name) => !name.startsWith('.') && !ids.has(name) && !ids.has(name.replace(/\.(npz|safetensors)$/, '')),
  );
  const told = strangers.slice(0, 5).map((name) => `${join(dir, name)} belongs to no case`);
  return strangers.length > 5 ? [...told, `and ${strangers.length - 5} more`] : told;
}

function modelOptions(options: VerifyOptions): ModelOptions {
  const table: TablePrecision | undefined =
    options.table === undefined ? undefined : oneOf(options.table, TABLE_PRECISIONS, '--table');
  const scale =
    options.toleranceScale === undefined
      ? undefined
      : numberIn(options.toleranceScale, '--tolerance-scale', 'a factor', 1e6);
  return {
    arithmetic: oneOf(options.arithmetic ?? 'f32', ['f32', 'native'], '--arithmetic'),
    ...(table ? { table } : {}),
    ...(scale === undefined ? {} : { toleranceScale: scale }),
  };
}

function describeAllowed({ table, arithmetic, toleranceScale }: ModelOptions): string[] {
  return [
    ...(table ? [`angles in ${table}`] : []),
    ...(arithmetic === 'native' ? ["arithmetic in the data's dtype"] : []),
    ...(toleranceScale === undefined ? [] : [`bounds times ${toleranceScale}`]),
  ];
}

function oneOf<const T extends string>(value: string, allowed: readonly T[], flag: string): T {
  return allowed.find((item) => item === value) ?? refuse('FORMAT', `verify: ${flag}`, allowed.join(', '), value);
}

function numberIn(text: string, flag: string, what: string, most: number): number {
  const value = /^\s*$/.test(text) ? Number.NaN : Number(text);
  if (!(value > 0) || value > most) refuse('FORMAT', `verify: ${flag}`, `${what}, a number in (0, ${most}]`, text);
  return value;
}

function writeReport(
  form: ReportForm,
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
    csv: () => verifyToCsv(results),
    junit: () => verifyToJunit(title, results),
    html: () => verifyToHtml(title, results),
  }[form]();
  if (out === undefined) process.stdout.write(body);
  else writeOutput(out, body, 'verify: --out');
}

/** Ctrl-C and its like end the program first, then us; the program is in a group of its own and would not hear of it. */
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
