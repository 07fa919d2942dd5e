/**
 * Results as text and as JSON lines.
 *
 * @module
 */
import type { CaseResult, Counts } from './runner.js';

/**
 * One line for a result, in the form of seed 000.
 *
 * @param result - one case on one backend
 * @returns `LABEL: OK`, `LABEL: [ROPE] NMSE = 0.1 > 0.0000001 FAIL` or `LABEL: not supported [reason]`
 */
export function formatResult({ label, verdict }: CaseResult): string {
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
export function resultToJson({ backend, suite, label, verdict }: CaseResult): string {
  return JSON.stringify({ backend, suite, case: label, ...verdict });
}

/**
 * The closing table, a row a suite, and the last line.
 *
 * @param counts - from countResults
 * @returns lines; the last one says how many passed and how many failed
 */
export function formatSummary(counts: ReadonlyMap<string, Counts>): string[] {
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
