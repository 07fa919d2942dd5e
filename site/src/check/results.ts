/** Counts the results of the suites for the table, and writes them as texts to save or send. @module */
import { resultToJson, type VerifyResult, verifyToJunit } from '@ropewalk/oracle';
import type { BackendName, Ended } from './suites.worker.js';

/** The state of a backend. */
export interface Run {
  readonly state: 'waiting' | 'running' | 'done' | 'stopped' | 'absent';
  /** The backend's description of itself. */
  readonly description?: string;
  readonly notTaken?: readonly string[];
  readonly total: number;
  readonly results: readonly Ended[];
  /** The reason why it is absent, or the error that stopped it. */
  readonly why?: unknown;
  readonly seconds?: number;
}

/** A cell of the table: the cases of an operator and a dtype on a backend. */
export interface Cell {
  readonly ok: number;
  readonly fail: number;
  readonly notSupported: number;
}

/** The row of calls that must be refused before an operator runs. */
export const REFUSALS = 'refused calls';

/** Returns the row that a case belongs to. */
export const rowOf = ({ op = REFUSALS, dtype = '' }: Ended): string => `${op} ${dtype}`.trim();

/** Counts results by row. */
export function cellsOf(results: readonly Ended[]): ReadonlyMap<string, Cell> {
  const cells = new Map<string, { ok: number; fail: number; notSupported: number }>();
  for (const result of results) {
    const row = rowOf(result);
    const cell = cells.get(row) ?? { ok: 0, fail: 0, notSupported: 0 };
    cells.set(row, cell);
    const { status } = result.verdict;
    if (status === 'not_supported') cell.notSupported++;
    else cell[status]++;
  }
  return cells;
}

/** Describes the result of a case in words. */
export function detailOf({ verdict }: Ended): string {
  if (verdict.status === 'ok') return verdict.measure;
  return verdict.status === 'fail' ? verdict.detail : verdict.reason;
}

/** Writes one line of JSON for each case, as `ropewalk check --json` does. */
export function toJson(runs: ReadonlyMap<BackendName, Run>): string {
  return [...runs]
    .flatMap(([backend, { results }]) => results.map((one) => resultToJson({ backend, ...one })))
    .map((line) => `${line}\n`)
    .join('');
}

/** Writes the results of one backend as JUnit XML. */
export function toJunit(backend: BackendName, { results, description = '' }: Run): string {
  const status = { ok: 'ok', fail: 'fail', not_supported: 'skipped' } as const;
  const cases = results.map(
    (one): VerifyResult => ({
      id: one.label,
      op: (one.op ?? 'rope') as VerifyResult['op'],
      about: one.suite,
      status: status[one.verdict.status],
      detail: detailOf(one),
      notes: [],
      tensors: [],
    }),
  );
  const title = {
    vectors: `ropewalk check --backend ${backend}`,
    from: description,
    by: navigator.userAgent,
    allowed: [],
  };
  return verifyToJunit(title, cases);
}

/** Returns the command that runs one case again in Node. */
export const commandOf = (backend: BackendName, label: string): string =>
  `npx ropewalk check --backend ${backend} --case "${label}"`;

/** Writes a report in Markdown for the makers of the browser or the driver. */
export function toReport(runs: ReadonlyMap<BackendName, Run>): string {
  const lines = [`Browser: ${navigator.userAgent}`, `Address: ${location.href}`, ''];
  for (const [backend, { state, description, results, why }] of runs) {
    if (state === 'absent') {
      lines.push(`### ${backend}: not there`, '', String(why), '');
      continue;
    }
    const failed = results.filter(({ verdict }) => verdict.status === 'fail');
    lines.push(`### ${backend}: ${failed.length} of ${results.length} cases fail`, '');
    if (description) lines.push(`Computes on: ${description}`, '');
    if (failed.length > 0)
      lines.push('```', ...failed.slice(0, 50).map((one) => `${one.label}: ${detailOf(one)}`), '```', '');
    if (failed.length > 50) lines.push(`and ${failed.length - 50} more.`, '');
  }
  return lines.join('\n');
}
