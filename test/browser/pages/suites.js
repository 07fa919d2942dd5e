/**
 * Runs in a page: all suites on the backend that the address asks for. Logs `{ capabilities, failed, summary }`; of
 * webnn also `ran`, how many cases of each suite made it compute, and the results are those read from it times `scale`.
 */
import { countResults, formatResult, formatSummary, runCases } from '@ropewalk/oracle';
import { ropewalk } from 'ropewalk';
import { backendNamed, watched } from './backends.js';
import { allCases } from './cases.js';

const asked = new URLSearchParams(location.search);
const backend = await backendNamed(asked.get('backend') ?? 'reference');
watched.scale = Number(asked.get('scale') ?? 1); // only now: the backend has tried whether WebNN computes
const rw = await ropewalk({ backend, threads: Number(asked.get('threads') ?? 1) });
const results = [];
/** @type {Record<string, number>} */
const ran = {};
let before = watched.dispatched; // the backend may have tried one
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
