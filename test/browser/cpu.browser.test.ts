/**
 * Tests the built cpu backend in a real browser: on a plain page, on an isolated page with workers, under a strict
 * Content-Security-Policy, bundled, and without workers or WebAssembly.
 */
import assert from 'node:assert/strict';
import { cpSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import type { Browser } from 'playwright-core';
import type { Capabilities } from 'ropewalk';
import { noBrowser, openChromium, reportOf, type Site, type SiteOptions, serve } from '../support/browser.js';
import { consumerTool, installInto, ROOT } from '../support/build.js';

const ISOLATED = { 'cross-origin-opener-policy': 'same-origin', 'cross-origin-embedder-policy': 'require-corp' };
const STRICT = "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; worker-src 'self'";
const OPERATORS = ['rope', 'linear, many rows', 'linear, one row'];

/** The log of pages/suites.js. */
interface Suites {
  readonly capabilities: Capabilities;
  readonly failed: readonly string[];
  readonly summary: readonly string[];
}

/** The log of pages/compute.js. */
interface Computed {
  /** The capabilities of the backend with two threads, after opening; `after` has those after all jobs. */
  readonly before: Capabilities;
  readonly after: Capabilities;
  readonly one: Capabilities;
  readonly operators: readonly { name: string; rounds: number; withWorker: boolean; different: number }[];
  /** The number of calls of Atomics.wait on the page's main thread after the backends were open. */
  readonly sleeps: number;
}

describe('the cpu backend in Chromium', { skip: noBrowser }, () => {
  const folder = mkdtempSync(join(tmpdir(), 'cpu-'));
  const dist = join(folder, 'node_modules/ropewalk/dist');
  const sites: Site[] = [];
  let browser: Browser;
  before(async () => {
    installInto(folder, { packages: ['ropewalk'] });
    cpSync(join(ROOT, 'test/browser/pages/compute.js'), join(folder, 'compute.js'));
    browser = await openChromium();
  });
  after(async () => {
    await browser?.close();
    for (const site of sites) site.close();
    rmSync(folder, { recursive: true });
  });

  async function siteWith(headers: SiteOptions['headers'], folders: SiteOptions['folders'] = {}): Promise<Site> {
    const site = await serve({ headers: headers ?? {}, folders: { '/dist/': dist, ...folders } });
    sites.push(site);
    return site;
  }

  /** Computes on two threads in a page, and asserts that every bit is right. */
  async function compute(site: Site, path = '/?script=/pages/compute.js'): Promise<Computed & { workers: number }> {
    const { report, page } = await reportOf<Computed>(browser, site.origin + path);
    const workers = page.workers().length;
    await page.close();
    assert.deepEqual(
      report.operators.map(({ name, different }) => ({ name, different })),
      OPERATORS.map((name) => ({ name, different: 0 })),
    );
    return { ...report, workers };
  }

  /** Asserts that workers took part in each operator, and that no message denies it. */
  function assertThreads({ before, after, one, operators }: Computed): void {
    assert.deepEqual(
      operators.map(({ name, withWorker }) => ({ name, withWorker })),
      OPERATORS.map((name) => ({ name, withWorker: true })),
    );
    assert.deepEqual([before.threads, after.threads, one.threads], [2, 2, 1]);
    assert.match(after.description, /^WebAssembly relaxed SIMD, 2 threads over shared memory/);
    assert.deepEqual(after.notTaken, []);
    assert.deepEqual(one.notTaken, ['threads: only one was asked for (threads: 1)']);
  }

  /** Asserts that one thread did all the work, and that the capabilities give the reason from the start. */
  function assertAlone({ before, after, operators, workers }: Computed & { workers: number }, why: RegExp): void {
    assert.ok(operators.every(({ withWorker }) => !withWorker));
    for (const { threads, notTaken } of [before, after]) {
      assert.equal(threads, 1);
      assert.match(notTaken.join('; '), why);
    }
    assert.equal(workers, 0);
  }

  async function suitesPass(site: Site, threads: number): Promise<Capabilities> {
    const { report, page } = await reportOf<Suites>(
      browser,
      `${site.origin}/?script=/pages/suites.js&backend=cpu&threads=${threads}`,
    );
    await page.close();
    assert.deepEqual(report.failed, []);
    const suites = report.summary.slice(0, -1).map((line) => line.trim().split(/\s/)[0]);
    assert.deepEqual(
      suites,
      [
        'published',
        'extended',
        'golden',
        'cann',
        'flash-attn',
        'ggml',
        'huggingface',
        'infiniop',
        'llaisys',
        'onnx',
        'onnx-contrib',
      ].map((name) => `cpu/${name}`),
    );
    assert.match(report.summary.at(-1)!, /^ {2}(\d+)\/\1 cases passed, 0 failed$/);
    return report.capabilities;
  }

  test('a page that is not isolated: one thread, and why; every suite passes', async () => {
    const found = await suitesPass(await siteWith({}), 2);
    assert.equal(found.backend, 'cpu');
    assert.equal(found.threads, 1);
    assert.match(found.description, /^WebAssembly relaxed SIMD, one thread/);
    assert.equal(found.notTaken.length, 1);
    assert.match(
      found.notTaken[0]!,
      /^threads: the page is not cross-origin isolated, .*COOP: same-origin and COEP: require-corp/,
    );
  });

  test('an isolated page: every suite passes on two threads', async () => {
    const found = await suitesPass(await siteWith(ISOLATED), 2);
    assert.equal(found.threads, 2);
    assert.deepEqual(found.notTaken, []);
  });

  test('an isolated page: workers compute too, to the same bits; the page never sleeps; dispose() ends them', async () => {
    const site = await siteWith(ISOLATED);
    const { report, page } = await reportOf<Computed>(browser, `${site.origin}/?script=/pages/compute.js&threads=2`);
    assertThreads(report);
    assert.equal(report.sleeps, 0);
    assert.deepEqual(
      page.workers().map((worker) => worker.url()),
      [`${site.origin}/dist/backends/wasm/worker.js`],
    );
    const gone = page.workers()[0]!.waitForEvent('close');
    await page.evaluate('disposeAll()');
    await gone;
    await page.close();
  });

  test('an isolated page whose own work is in a worker: that worker has workers', async () => {
    assertThreads(await compute(await siteWith(ISOLATED), '/?script=/pages/in-worker.js'));
  });

  test('a strict Content-Security-Policy: workers compute, and nothing but scripts is asked for', async () => {
    const site = await siteWith({ ...ISOLATED, 'content-security-policy': STRICT });
    assertThreads(await compute(site));
    assert.deepEqual(
      site.asked.filter((path) => !path.startsWith('/dist/')),
      ['/', '/pages/compute.js'],
    );
    assert.ok(site.asked.includes('/dist/backends/wasm/worker.js'));
    assert.deepEqual(
      site.asked.filter((path) => path.startsWith('/dist/') && !path.endsWith('.js')),
      [],
    );
  });

  test("without 'wasm-unsafe-eval' the reference opens, and cpu says what it needs", async () => {
    const site = await siteWith({ 'content-security-policy': "default-src 'none'; script-src 'self'" });
    const { report, page } = await reportOf<{ auto: Capabilities; cpu: string }>(
      browser,
      `${site.origin}/?script=/pages/open.js`,
    );
    await page.close();
    assert.equal(report.auto.backend, 'reference');
    assert.match(
      report.cpu,
      /^DEVICE ropewalk: backend: cannot open cpu: WebAssembly is forbidden: script-src of the CSP lacks 'wasm-unsafe-eval'$/,
    );
  });

  const withoutWorkers = [
    {
      name: 'worker.js is not there',
      headers: ISOLATED,
      folders: { '/dist/backends/wasm/worker.js': join(ROOT, 'no-such-folder') },
    },
    { name: 'worker.js lacks the header', headers: (path: string) => (path.endsWith('/worker.js') ? {} : ISOLATED) },
    {
      name: 'workers are forbidden',
      headers: { ...ISOLATED, 'content-security-policy': STRICT.replace("worker-src 'self'", "worker-src 'none'") },
    },
  ];
  for (const { name, headers, folders } of withoutWorkers) {
    test(`an isolated page where ${name}: one thread computes, and capabilities() says so`, async () => {
      const found = await compute(await siteWith(headers, folders));
      assertAlone(found, /^threads: a worker did not start \(/);
    });
  }

  // esbuild and Rollup do not change `new URL('./worker.js', import.meta.url)`, so the bundle looks for worker.js
  // beside itself.
  for (const bundle of [bundleWithEsbuild, bundleWithRollup]) {
    const name = bundle === bundleWithEsbuild ? 'esbuild' : 'Rollup';
    test(`bundled by ${name}: workers compute with worker.js beside the bundle; without it one thread does, and says so`, async () => {
      const out = join(folder, name);
      await bundle(out);
      assert.ok(!readdirSync(out).includes('worker.js'));
      const site = await siteWith(ISOLATED, { '/bundle/': out });
      assertAlone(
        await compute(site, '/?script=/bundle/compute.js'),
        /^threads: a worker did not start \(worker\.js did not load: /,
      );
      assert.ok(site.asked.includes('/bundle/worker.js'));
      assert.ok(!site.asked.some((path) => path.startsWith('/dist/')));
      // This is the fix that the message names.
      cpSync(join(dist, 'backends/wasm/worker.js'), join(out, 'worker.js'));
      assertThreads(await compute(site, '/?script=/bundle/compute.js'));
    });
  }

  async function bundleWithEsbuild(outdir: string): Promise<void> {
    const { build } = await import('esbuild');
    const options = { bundle: true, format: 'esm', platform: 'browser', logLevel: 'error' } as const;
    await build({ absWorkingDir: folder, entryPoints: ['compute.js'], outdir, ...options });
  }

  async function bundleWithRollup(dir: string): Promise<void> {
    const { rollup } = await import('rollup');
    const warnings: string[] = [];
    const bundle = await rollup({
      input: join(folder, 'compute.js'),
      // This plugin does the same as @rollup/plugin-node-resolve.
      plugins: [{ name: 'resolve', resolveId: (id) => (id === 'ropewalk' ? join(dist, 'index.js') : null) }],
      onLog: (_level, { message }) => warnings.push(message),
    });
    await bundle.write({ dir });
    await bundle.close();
    assert.deepEqual(warnings, []);
  }

  const webpack = consumerTool('webpack');
  test('bundled by webpack: no warning, and workers compute', { skip: webpack.missing }, async () => {
    const out = join(folder, 'webpack');
    assert.equal(webpack.missing, false);
    const run = createRequire(import.meta.url)(webpack.path) as (
      options: object,
      done: (
        error: Error | null,
        stats: { toJson(options: object): { errors: unknown[]; warnings: unknown[] } },
      ) => void,
    ) => void;
    const options = {
      context: folder,
      entry: './compute.js',
      mode: 'development',
      devtool: false,
      output: { path: out },
    };
    const { errors, warnings } = await new Promise<{ errors: unknown[]; warnings: unknown[] }>((resolve, reject) =>
      run(options, (error, stats) =>
        error ? reject(error) : resolve(stats.toJson({ all: false, errors: true, warnings: true })),
      ),
    );
    assert.deepEqual([errors, warnings], [[], []]);
    const site = await siteWith(ISOLATED, { '/bundle/': out });
    assertThreads(await compute(site, '/?script=/bundle/main.js'));
    assert.ok(!site.asked.some((path) => path.startsWith('/dist/')));
  });

  test('bundled by Vite: workers compute', async () => {
    const { build } = await import('vite');
    writeFileSync(
      join(folder, 'index.html'),
      '<!doctype html><meta charset="utf-8"><title>ropewalk</title><script type="module" src="/compute.js"></script>',
    );
    await build({ root: folder, configFile: false, logLevel: 'error' });
    const site = await siteWith(ISOLATED, { '/': join(folder, 'dist') });
    const found = await compute(site, '/');
    assertThreads(found);
    assert.equal(found.workers, 1);
    assert.ok(site.asked.some((path) => /^\/assets\/worker-[^/]*\.js$/.test(path)));
    assert.ok(!site.asked.some((path) => path.startsWith('/dist/')));
    const plain = await siteWith({}, { '/': join(folder, 'dist') });
    const { report, page } = await reportOf<Computed>(browser, `${plain.origin}/`);
    await page.close();
    assert.equal(report.after.threads, 1, 'the same bundle where the page is not isolated');
    assert.ok(report.operators.every(({ different }) => different === 0));
  });
});
