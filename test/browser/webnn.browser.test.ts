/**
 * Tests the WebNN backend in a real browser, which computes WebNN on its CPU: every suite, a strict
 * Content-Security-Policy, a worker, a lost context, a dead GPU process, and the decoder.
 */
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { generate } from '@ropewalk/model';
import { loadModelPath } from '@ropewalk/model/node';
import type { Counts } from '@ropewalk/oracle/internal';
import { build } from 'esbuild';
import type { Browser } from 'playwright-core';
import type { Capabilities } from 'ropewalk';
import {
  noBrowser,
  noWebnnBrowser,
  openChromium,
  openWebnnChromium,
  reportOf,
  type Site,
  serve,
} from '../support/browser.js';
import { builtPackage, ROOT } from '../support/build.js';

const STRICT = "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; worker-src 'self'";
const PROMPT = 'It was a dark night, and the ship';
const TOKENS = 16;
/** Matches the line of a case in float64, which WebNN lacks, or with a KV cache, which no graph can write. */
const REFUSED =
  / not supported \[((webnn: rope: )?f64 runs on the reference: |it [^\]]*, for which there are no graphs yet\])/;
/** The smallest number of cases in each suite that WebNN must compute. */
const COMPUTED: Readonly<Record<string, number>> = {
  published: 96,
  extended: 64,
  golden: 107,
  cann: 48,
  'flash-attn': 6,
  ggml: 214,
  huggingface: 26,
  infiniop: 23,
  llaisys: 76,
  onnx: 14,
  'onnx-contrib': 29,
};

/** The log of pages/suites.js. */
interface Suites {
  readonly capabilities: Capabilities;
  readonly failed: readonly string[];
  readonly counts: Readonly<Record<string, Counts>>;
  readonly ran: Readonly<Record<string, number>>;
}

/** The log of pages/webnn.js. */
interface Report {
  readonly why?: string;
  readonly opened: string;
  readonly capabilities: Capabilities;
  readonly different: number;
  readonly tooLarge: string;
  readonly asked: number;
  readonly reading: string;
  readonly running: string;
  readonly same: boolean;
  readonly blocked: readonly string[];
}

describe('the webnn backend in Chromium', { skip: noWebnnBrowser() }, () => {
  const folder = mkdtempSync(join(tmpdir(), 'webnn-'));
  let browser: Browser;
  let site: Site;
  let strict: Site;
  before(async () => {
    const folders = {
      '/dist/': builtPackage('ropewalk'),
      '/model/': join(ROOT, 'models/marline'),
      '/bundle/': folder,
    };
    await build({
      absWorkingDir: ROOT,
      tsconfigRaw: {}, // take the packages as they are published
      entryPoints: ['test/browser/pages/webnn.js'],
      bundle: true,
      format: 'esm',
      platform: 'browser',
      outdir: folder,
      logLevel: 'error',
    });
    browser = await openWebnnChromium();
    site = await serve({ folders });
    strict = await serve({ folders, headers: { 'content-security-policy': STRICT } });
  });
  after(async () => {
    await browser?.close();
    site?.close();
    strict?.close();
    rmSync(folder, { recursive: true });
  });

  /** Runs all suites with scaled results. */
  async function suites(scale: number): Promise<Suites> {
    const { report, page } = await reportOf<Suites>(
      browser,
      `${site.origin}/?script=/pages/suites.js&backend=webnn&scale=${scale}`,
    );
    await page.close();
    return report;
  }

  test('every suite passes, and WebNN computed it', async () => {
    const { capabilities, failed, counts, ran } = await suites(1);
    assert.match(capabilities.description, /^WebNN on cpu/);
    assert.deepEqual(
      failed.filter((line) => !REFUSED.test(line)),
      [],
    );
    assert.deepEqual(
      Object.keys(counts),
      Object.keys(COMPUTED).map((name) => `webnn/${name}`),
    );
    // The other cases are refusals and tensors without elements, which no backend computes.
    for (const [name, least] of Object.entries(COMPUTED))
      assert.ok(ran[name]! >= least, `${name}: WebNN computed ${ran[name]} cases of at least ${least}`);
  });

  test('results that are a little off fail', async () => {
    const slightly = (await suites(1 + 1e-5)).counts;
    // The bound of published and extended is an NMSE of 1e-7, which is 3e-4 of each value, so the scale does not show.
    for (const name of Object.keys(COMPUTED).filter((suite) => suite !== 'published' && suite !== 'extended'))
      assert.ok(slightly[`webnn/${name}`]!.fail > 0, `${name}: ${JSON.stringify(slightly[`webnn/${name}`])}`);
    const { counts } = await suites(1 + 1e-3);
    for (const name of ['published', 'extended', 'ggml', 'huggingface', 'onnx'])
      assert.ok(
        counts[`webnn/${name}`]!.fail >= COMPUTED[name]! - 2,
        `${name}: ${JSON.stringify(counts[`webnn/${name}`])}`,
      );
  });

  /** Asserts that the log of a page or a worker is right. */
  function assertReport({
    why,
    opened,
    capabilities,
    different,
    tooLarge,
    asked,
    reading,
    running,
    same,
    blocked,
  }: Report): void {
    assert.deepEqual([why, opened, different, same, blocked], [undefined, 'accepted', 0, true, []]);
    assert.match(capabilities.description, /^WebNN on cpu/);
    assert.match(tooLarge, /^(RANGE|UNSUPPORTED|DEVICE|SHAPE) webnn: /);
    assert.equal(asked, 0, 'WebNN was not asked for a tensor that is too large');
    assert.match(reading, /^DEVICE webnn: .*Open the backend again\./);
    assert.match(running, /^DEVICE webnn: .*Open the backend again\./);
  }

  test('under a strict Content-Security-Policy, and when the GPU process dies', async () => {
    const { report, page } = await reportOf<Report>(browser, `${strict.origin}/?script=/bundle/webnn.js`);
    assertReport(report);
    assert.ok(
      strict.asked.every((path) => path === '/' || path.startsWith('/bundle/')),
      strict.asked.join(),
    );
    const death = page.evaluate('afterDeath()') as Promise<{ dead: string; same: boolean }>;
    const session = await browser.newBrowserCDPSession();
    await session.send('Browser.crashGpuProcess');
    const { dead, same } = await death;
    await page.close();
    assert.match(dead, /^DEVICE webnn: .*Open the backend again\./);
    assert.equal(same, true);
  });

  test('in a worker', async () => {
    const { report, page } = await reportOf<Report>(
      browser,
      `${strict.origin}/?script=/pages/in-worker.js&module=/bundle/webnn.js`,
    );
    await page.close();
    assertReport(report);
  });

  test('the decoder writes the text that cpu writes', async () => {
    const words = new URLSearchParams({
      backend: 'webnn',
      files: 'model-q8_0.gguf',
      prompt: PROMPT,
      tokens: String(TOKENS),
    });
    const { report, page } = await reportOf<{ text: string; dispatched: number }>(
      browser,
      `${site.origin}/?script=/pages/generate.js&${words}`,
    );
    await page.close();
    const model = await loadModelPath(join(ROOT, 'models/marline/model-q8_0.gguf'));
    let text = '';
    for await (const item of generate(model, PROMPT, { maxTokens: TOKENS, temperature: 0 }))
      if (item.end) text = item.end.text;
    model.dispose();
    assert.equal(report.text, text);
    assert.ok(report.dispatched >= TOKENS, `WebNN computed ${report.dispatched} times`);
  });

  test('where the browser computes nothing with WebNN, the refusal says so', { skip: noBrowser }, async () => {
    const plain = await openChromium(['--enable-features=WebMachineLearningNeuralNetwork']);
    try {
      const { report } = await reportOf<Report>(plain, `${strict.origin}/?script=/bundle/webnn.js`);
      assert.match(report.opened, /^DEVICE webnn: .*not supported.* use webgpu or cpu\./);
      assert.equal(`DEVICE webnn: ${report.why}`, report.opened);
    } finally {
      await plain.close();
    }
  });
});
