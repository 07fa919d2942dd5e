/**
 * Runs in a page: all suites on the backend that the address asks for; logs `{ capabilities, failed, summary }`.
 */
import { countResults, formatResult, formatSummary, runCases } from '@ropewalk/oracle';
import { ropewalk } from 'ropewalk';
import { allCases } from './cases.js';

const asked = new URLSearchParams(location.search);
const backend = /** @type {'cpu' | 'webgpu' | 'reference'} */ (asked.get('backend') ?? 'reference');
const rw = await ropewalk({ backend, threads: Number(asked.get('threads') ?? 1) });
const results = [];
for await (const result of runCases(await allCases(), rw)) results.push(result);
const failed = results.filter((result) => result.verdict.status !== 'ok').map(formatResult);
console.log(JSON.stringify({ capabilities: rw.capabilities(), failed, summary: formatSummary(countResults(results)) }));
