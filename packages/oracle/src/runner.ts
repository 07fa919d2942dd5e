/** Conformance cases: their run on a backend, and the results as text and JSON. @module */
import { type Backend, type FloatDtype, type OpPlan, RopewalkError, type Runner } from 'ropewalk';
import { refuse } from 'ropewalk/backend';
import { checkRunner, reading, readList } from 'ropewalk/internal';

/** The verdict on one case on one backend. */
export type CaseVerdict =
  /** `measure` says for people what was measured: `NMSE 3.1e-15`. */
  | { readonly status: 'ok'; readonly measure: string }
  /** `detail` says what was measured, and the threshold. */
  | { readonly status: 'fail'; readonly detail: string }
  | { readonly status: 'not_supported'; readonly reason: string };

/** A case, which makes its inputs, runs a backend, and judges the output. */
export interface ConformanceCase {
  /** The name of its suite: `published`, `ggml`, … */
  readonly suite: string;
  /** A unique text that has all parameters of the case. */
  readonly label: string;
  /** Runs the case. An error that it throws is a failure of the backend. */
  run(runner: Runner): CaseVerdict | Promise<CaseVerdict>;
}

/** The result of one case on one backend. */
export interface CaseResult {
  readonly backend: string;
  readonly suite: string;
  readonly label: string;
  readonly verdict: CaseVerdict;
}

/** Runs a plan. Returns the verdict with the runner's reason where the runner declines it, otherwise undefined. */
export function declined(runner: Runner, plan: OpPlan): CaseVerdict | undefined {
  const reason = runner.whyNot(plan);
  if (reason !== undefined) return { status: 'not_supported', reason };
  runner.run(plan);
  return undefined;
}

/** Whether a backend computes a dtype's rotations in that dtype, so that each product is rounded to it. */
export function roundsEachStep(runner: Runner, dtype: FloatDtype): boolean {
  const { capabilities } = runner as Partial<Backend>;
  return capabilities?.call(runner).roundsEachStep?.includes(dtype) ?? false;
}

/** Makes a runner that hands each plan to `run` instead of running it. */
export function intercept(runner: Runner, run: (plan: OpPlan) => void): Runner {
  return {
    name: runner.name,
    allocate: (dtype, shape) => runner.allocate(dtype, shape),
    whyNot: (plan) => runner.whyNot(plan),
    run,
    finish: () => runner.finish(),
  };
}

/** The number of cases of a suite by their verdict. */
export interface Counts {
  ok: number;
  fail: number;
  notSupported: number;
}

/** Checks a caller's case. @throws {RopewalkError} RANGE for anything else */
export function readCase(one: ConformanceCase, where: string): ConformanceCase {
  if (!reading(where, () => typeof one?.run === 'function'))
    refuse('RANGE', where, 'a case: { suite, label, run }', one);
  return one;
}

/**
 * Runs cases one after the other.
 *
 * @returns the result of each case as it ends; an error that a case throws is its failure
 * @throws {RopewalkError} FORMAT when a file of vectors is unreadable
 */
export async function* runCases(cases: Iterable<ConformanceCase>, runner: Runner): AsyncGenerator<CaseResult> {
  checkRunner(runner, 'check: runner');
  if (!reading('check: cases', () => typeof cases?.[Symbol.iterator] === 'function'))
    refuse('SHAPE', 'check: cases', 'a list of cases', cases);
  for (const given of cases) {
    const one = readCase(given, 'check: case');
    let verdict: CaseVerdict;
    try {
      verdict = await one.run(runner);
    } catch (error) {
      // A malformed file of vectors is no failure of the backend, and stops the run.
      if (error instanceof RopewalkError && error.code === 'FORMAT') throw error;
      verdict = { status: 'fail', detail: error instanceof Error ? `${error.name}: ${error.message}` : String(error) };
    }
    yield { backend: runner.name, suite: one.suite, label: one.label, verdict };
  }
}

/**
 * Counts results by suite.
 *
 * @returns the counts by `backend/suite`, in order of appearance
 */
export function countResults(results: readonly CaseResult[]): Map<string, Counts> {
  const counts = new Map<string, Counts>();
  const read = (one: CaseResult) => ({ key: `${one.backend}/${one.suite}`, status: one.verdict.status });
  for (const one of Array.from(readList(results, 'results'))) {
    const { key, status } = reading('results', () => read(one));
    const entry = counts.get(key) ?? { ok: 0, fail: 0, notSupported: 0 };
    counts.set(key, entry);
    if (status === 'ok') entry.ok++;
    else if (status === 'fail') entry.fail++;
    else entry.notSupported++;
  }
  return counts;
}

/**
 * Formats a result as a line, as test-backend-ops prints it.
 *
 * @returns `LABEL: OK`, `LABEL: [ROPE] NMSE = 0.1 > 0.0000001 FAIL` or `LABEL: not supported [reason]`
 */
export function formatResult(result: CaseResult): string {
  return reading('result', () => {
    const { label, verdict } = result;
    if (verdict.status === 'ok') return `  ${label}: OK`;
    if (verdict.status === 'fail') return `  ${label}: ${verdict.detail} FAIL`;
    return `  ${label}: not supported [${verdict.reason}]`;
  });
}

/** Formats a result as a JSON object. */
export function resultToJson(result: CaseResult): string {
  return reading('result', () => {
    const { backend, suite, label, verdict } = result;
    return JSON.stringify({ backend, suite, case: label, ...verdict });
  });
}

/**
 * Formats the closing table, with a row for each suite.
 *
 * @returns lines, of which the last one says how many cases passed and how many failed
 */
export function formatSummary(counts: ReadonlyMap<string, Counts>): string[] {
  return reading('counts', () => {
    if (!(counts instanceof Map)) refuse('RANGE', 'counts', 'a map', counts);
    const width = Math.max(...[...counts.keys()].map((key) => key.length), 8);
    const total: Counts = { ok: 0, fail: 0, notSupported: 0 };
    const rest = ({ notSupported }: Counts): string => (notSupported > 0 ? `, ${notSupported} not supported` : '');
    const lines = [...counts].map(([key, suite]: [string, Counts]) => {
      for (const status of ['ok', 'fail', 'notSupported'] as const) total[status] += suite[status];
      const failed = suite.fail > 0 ? `, ${suite.fail} FAIL` : '';
      return `  ${key.padEnd(width)}  ${String(suite.ok).padStart(5)} OK${failed}${rest(suite)}`;
    });
    return [...lines, `  ${total.ok}/${total.ok + total.fail} cases passed, ${total.fail} failed${rest(total)}`];
  });
}
