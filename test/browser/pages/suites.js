/**
 * Runs in a page: fetches every file that a manifest names, then all suites on the backend that the address asks for,
 * and logs `{ capabilities, failed, summary }`.
 */

import {
  countResults,
  extendedCases,
  formatResult,
  formatSummary,
  goldenOperatorSuite,
  goldenRopeSuite,
  publishedCases,
  runCases,
  vectorCases,
} from '@ropewalk/oracle';
import { ropewalk } from 'ropewalk';

/** @param {string} name */
async function open(name) {
  const files = new Map();
  /** @param {string} path */
  const fetchFile = async (path) => {
    const response = await fetch(`/vectors/${name}/${path}`);
    if (response.ok) files.set(path, new Uint8Array(await response.arrayBuffer()));
  };
  await Promise.all(['manifest.json', 'errors.json', 'invalid_descriptors.json'].map(fetchFile));
  const named = new TextDecoder().decode(files.get('manifest.json')).matchAll(/"([^"]+\.(?:npy|bin))"/g);
  await Promise.all([...new Set([...named].map((match) => match[1] ?? ''))].map(fetchFile));
  return {
    name,
    /** @param {string} path */
    has: (path) => files.has(path),
    /** @param {string} path */
    read: (path) => files.get(path),
    folders: () => [],
  };
}

const asked = new URLSearchParams(location.search);
const cases = [...publishedCases(), ...extendedCases(), ...goldenRopeSuite(), ...goldenOperatorSuite()];
for (const name of ['ggml', 'huggingface', 'infiniop', 'llaisys', 'onnx']) cases.push(...vectorCases(await open(name)));
const backend = /** @type {'cpu' | 'webgpu' | 'reference'} */ (asked.get('backend') ?? 'reference');
const rw = await ropewalk({ backend, threads: Number(asked.get('threads') ?? 1) });
const results = [];
for await (const result of runCases(cases, rw)) results.push(result);
const failed = results.filter((result) => result.verdict.status !== 'ok').map(formatResult);
console.log(JSON.stringify({ capabilities: rw.capabilities(), failed, summary: formatSummary(countResults(results)) }));
