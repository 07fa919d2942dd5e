/**
 * Conformance cases: what they are, running them on a backend, and the results as text and JSON.
 *
 * @module
 */

import { type OpPlan, RopewalkError, type Runner } from 'ropewalk';
import { refuse } from 'ropewalk/backend';
import { checkRunner, reading, readList } from 'ropewalk/internal';

/** What came out of one case on one backend. */
export type CaseVerdict =
  /** `measure` is what was compared, for people: `NMSE 3.1e-15`. */
  | { readonly status: 'ok'; readonly measure: string }
  /** `detail` says what was measured against which threshold. */
  | { readonly status: 'fail'; readonly detail: string }
  | { readonly status: 'not_supported'; readonly reason: string };

/** One case: it makes its inputs, runs a backend, and judges the output. */
export interface ConformanceCase {
  /** The suite it belongs to, `published`, `ggml`, … */
  readonly suite: string;
  /** Names the case and all its parameters; unique. */
  readonly label: string;
  /** Runs the case. A thrown error is a failure of the backend, not of the run. */
  run(runner: Runner): CaseVerdict | Promise<CaseVerdict>;
}

/** One case on one backend. */
export interface CaseResult {
  readonly backend: string;
  readonly suite: string;
  readonly label: string;
  readonly verdict: CaseVerdict;
}

/**
 * Runs a plan, unless the runner declines it.
 *
 * @returns undefined when it ran; otherwise the verdict, with the runner's reason
 */
export function declined(runner: Runner, plan: OpPlan): CaseVerdict | undefined {
  const reason = runner.whyNot(plan);
  if (reason !== undefined) return { status: 'not_supported', reason };
  runner.run(plan);
  return undefined;
}

/** How many cases of a suite ended how. */
export interface Counts {
  ok: number;
  fail: number;
  notSupported: number;
}

/** One of the caller's cases. @throws {RopewalkError} RANGE for anything else */
export function readCase(one: ConformanceCase, where: string): ConformanceCase {
  if (!reading(where, () => typeof one?.run === 'function'))
    refuse('RANGE', where, 'a case: { suite, label, run }', one);
  return one;
}

/**
 * Runs cases one after the other.
 *
 * @param cases - what to run
 * @param runner - on whom
 * @returns a result as each case ends; an error thrown by a case is that case's failure
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
      // A malformed vector file is not the backend's failure: it stops the run as unreadable input.
      if (error instanceof RopewalkError && error.code === 'FORMAT') throw error;
      verdict = { status: 'fail', detail: error instanceof Error ? `${error.name}: ${error.message}` : String(error) };
    }
    yield { backend: runner.name, suite: one.suite, label: one.label, verdict };
  }
}

/**
 * Counts results by suite.
 *
 * @param results - of any number of backends
 * @returns `backend/suite` → counts, in order of appearance
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
 * One line for a result, in the form of seed 000.
 *
 * @param result - one case on one backend
 * @returns `LABEL: OK`, `LABEL: [ROPE] NMSE = 0.1 > 0.0000001 FAIL` or `LABEL: not supported [reason]`
 */
export function formatResult(result: CaseResult): string {
  return reading('result', () => lineOf(result));
}

function lineOf({ label, verdict }: CaseResult): string {
  switch (verdict.status) {
    case 'ok':
      return `  ${label}: OK`;
    case 'fail':
      return `  ${label}: ${verdict.detail} FAIL`;
    case 'not_supported':
      return `  ${label}: not supported [${verdict.reason}]`;
  }
}

/**
 * One JSON object for a result.
 *
 * @param result - one case on one backend
 */
export function resultToJson(result: CaseResult): string {
  return reading('result', () => {
    const { backend, suite, label, verdict } = result;
    return JSON.stringify({ backend, suite, case: label, ...verdict });
  });
}

/**
 * The closing table, a row a suite, and the last line.
 *
 * @param counts - from countResults
 * @returns lines; the last one says how many passed and how many failed
 */
export function formatSummary(counts: ReadonlyMap<string, Counts>): string[] {
  return reading('counts', () => {
    if (!(counts instanceof Map)) refuse('RANGE', 'counts', 'a map', counts);
    return summaryOf(counts);
  });
}

function summaryOf(counts: ReadonlyMap<string, Counts>): string[] {
  const width = Math.max(...[...counts.keys()].map((key) => key.length), 8);
  const total: Counts = { ok: 0, fail: 0, notSupported: 0 };
  const lines = [...counts].map(([key, { ok, fail, notSupported }]) => {
    total.ok += ok;
    total.fail += fail;
    total.notSupported += notSupported;
    const rest = notSupported > 0 ? `, ${notSupported} not supported` : '';
    return `  ${key.padEnd(width)}  ${String(ok).padStart(5)} OK${fail > 0 ? `, ${fail} FAIL` : ''}${rest}`;
  });
  const rest = total.notSupported > 0 ? `, ${total.notSupported} not supported` : '';
  return [...lines, `  ${total.ok}/${total.ok + total.fail} cases passed, ${total.fail} failed${rest}`];
}
