/**
 * Runs in a page. It runs all suites on the backend that the address names, and logs
 * `{ capabilities, failed, summary }`. For webnn it also logs `ran`, the number of cases in each suite that made WebNN
 * compute, and it multiplies the results by `scale`.
 */
import { countResults, formatResult, formatSummary, runCases } from '@ropewalk/oracle';
import { ropewalk } from 'ropewalk';
import { backendNamed, watched } from './backends.js';
import { allCases } from './cases.js';

const asked = new URLSearchParams(location.search);
const backend = await backendNamed(asked.get('backend') ?? 'reference');
watched.scale = Number(asked.get('scale') ?? 1); // must come after backendNamed(), which tests whether WebNN computes
const rw = await ropewalk({ backend, threads: Number(asked.get('threads') ?? 1) });
const results = [];
/** @type {Record<string, number>} */
const ran = {};
let before = watched.dispatched; // opening the backend may have run a graph
for await (const result of runCases(await allCases(), rw)) {
  results.push(result);
  ran[result.suite] = (ran[result.suite] ?? 0) + Number(watched.dispatched > before);
  before = watched.dispatched;
}
const failed = results.filter((result) => result.verdict.status !== 'ok').map(formatResult);
const counts = countResults(results);
const summary = formatSummary(counts);
console.log(
  JSON.stringify({ capabilities: rw.capabilities(), failed, summary, counts: Object.fromEntries(counts), ran }),
);
