/** The built library in a real browser: every suite runs there as it does in Node, with no bundler and no Node module. */
import assert from 'node:assert/strict';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { extname, join } from 'node:path';
import { after, test } from 'node:test';
import { chromium } from 'playwright-core';
import { openFolder } from '../../src/conformance/folder.node.js';
import { extendedCases, publishedCases } from '../../src/conformance/published.js';
import { formatSummary } from '../../src/conformance/report.js';
import { countResults, runCases } from '../../src/conformance/runner.js';
import { vectorCases } from '../../src/conformance/vectors.js';
import { referenceRunner } from '../../src/reference/index.js';
import { buildInto, ROOT } from '../support/build.js';
import { VECTORS } from '../support/suites.js';

const executablePath = [process.env.CHROMIUM, '/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'].find(
  (path) => path && existsSync(path),
);
const skip = executablePath ? false : 'no Chromium here: install it, or set CHROMIUM to its path';
const folder = mkdtempSync(join(tmpdir(), 'browser-'));
after(() => rmSync(folder, { recursive: true }));

/** Runs in the page: fetches every file that a manifest names, then all suites, and puts the summary in the document. */
const PAGE = `<!doctype html><meta charset="utf-8"><title>ropewalk check</title><pre id="summary"></pre>
<script type="module">
import { ropewalk } from '/dist/index.js';
import { countResults, extendedCases, formatResult, formatSummary, publishedCases, runCases, vectorCases } from '/dist/conformance/index.js';
async function open(name) {
  const files = new Map();
  const fetchFile = async (path) => {
    const response = await fetch('/vectors/' + name + '/' + path);
    if (response.ok) files.set(path, new Uint8Array(await response.arrayBuffer()));
  };
  await Promise.all(['manifest.json', 'errors.json', 'invalid_descriptors.json'].map(fetchFile));
  const named = new TextDecoder().decode(files.get('manifest.json')).matchAll(/"([^"]+\\.(?:npy|bin))"/g);
  await Promise.all([...new Set([...named].map((match) => match[1]))].map(fetchFile));
  return { name, has: (path) => files.has(path), read: (path) => files.get(path), folders: () => [] };
}
try {
  const cases = [...publishedCases(), ...extendedCases()];
  for (const name of ['ggml', 'huggingface', 'infiniop', 'llaisys', 'onnx']) cases.push(...vectorCases(await open(name)));
  const results = [];
  for await (const result of runCases(cases, await ropewalk())) results.push(result);
  const failed = results.filter((result) => result.verdict.status !== 'ok').map(formatResult);
  document.getElementById('summary').textContent = [...failed, ...formatSummary(countResults(results))].join('\\n');
} catch (error) {
  document.getElementById('summary').textContent = String(error.stack);
}
</script>`;

test('every suite in Chromium gives the summary that it gives in Node', { skip }, async () => {
  buildInto(join(folder, 'dist'));
  const server = createServer((request, response) => {
    const path = new URL(request.url!, 'http://localhost').pathname;
    const file = path.startsWith('/vectors/') ? join(ROOT, path) : join(folder, path);
    if (path === '/') response.setHeader('content-type', 'text/html').end(PAGE);
    else if (existsSync(file))
      response.setHeader('content-type', extname(file) === '.js' ? 'text/javascript' : 'application/octet-stream').end(readFileSync(file));
    else response.writeHead(404).end();
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const browser = await chromium.launch({
    executablePath: executablePath!,
    args: ['--no-sandbox', '--disable-quic', '--disable-background-networking', '--disable-component-update', '--disable-sync'],
  });
  try {
    const page = await browser.newPage();
    const problems: string[] = [];
    page.on('pageerror', (error) => problems.push(String(error)));
    await page.goto(`http://127.0.0.1:${(server.address() as AddressInfo).port}/`);
    await page.waitForFunction('document.getElementById("summary").textContent !== ""', undefined, { timeout: 120_000 });
    const results = [];
    for await (const result of runCases([...publishedCases(), ...extendedCases(), ...vectorCases(openFolder(VECTORS))], referenceRunner()))
      results.push(result);
    assert.equal(await page.textContent('#summary'), formatSummary(countResults(results)).join('\n'));
    assert.deepEqual(problems, []);
  } finally {
    await browser.close();
    server.close();
  }
});
