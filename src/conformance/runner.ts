/**
 * Running cases on backends, and counting what came out.
 *
 * @module
 */
import { RopewalkError } from '../core/errors.js';
import type { Runner } from '../ops/runner.js';
import type { ConformanceCase, Verdict } from './case.js';

/** One case on one backend. */
export interface CaseResult {
  readonly backend: string;
  readonly suite: string;
  readonly label: string;
  readonly verdict: Verdict;
}

/** How many cases of a suite ended how. */
export interface Counts {
  ok: number;
  fail: number;
  notSupported: number;
}

/**
 * Runs cases one after the other.
 *
 * @param cases - what to run
 * @param runner - on whom
 * @returns a result as each case ends; an error thrown by a case is that case's failure
 */
export async function* runCases(cases: Iterable<ConformanceCase>, runner: Runner): AsyncGenerator<CaseResult> {
  for (const one of cases) {
    let verdict: Verdict;
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
  for (const { backend, suite, verdict } of results) {
    const key = `${backend}/${suite}`;
    const entry = counts.get(key) ?? { ok: 0, fail: 0, notSupported: 0 };
    counts.set(key, entry);
    if (verdict.status === 'ok') entry.ok++;
    else if (verdict.status === 'fail') entry.fail++;
    else entry.notSupported++;
  }
  return counts;
}
