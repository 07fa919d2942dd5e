/**
 * Tests the WebNN provider of onnxruntime-web: it computes, refuses, or computes wrongly the exported graphs that
 * docs/export.md lists. It also runs a model.
 */
import assert from 'node:assert/strict';
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { generate } from '@ropewalk/model';
import { loadModelPath } from '@ropewalk/model/node';
import { build } from 'esbuild';
import type { Browser } from 'playwright-core';
import { noWebnnBrowser, openWebnnChromium, reportOf, type Site, serve } from '../support/browser.js';
import { builtPackage, ROOT } from '../support/build.js';

const MODULES = join(ROOT, 'bench/node_modules');
const noOrt = !existsSync(join(MODULES, 'onnxruntime-web')) && 'onnxruntime-web is not installed: npm run peers';

/** The log of pages/ort-webnn.js. */
interface Report extends Record<'standard' | 'primitives', Record<'right' | 'wrong' | 'refused', string[]>> {
  readonly version: string;
  readonly ropes: readonly { readonly name: string; readonly said: number | string }[];
}

describe("onnxruntime-web's WebNN", { skip: noWebnnBrowser() || noOrt }, () => {
  const folder = mkdtempSync(join(tmpdir(), 'ort-webnn-'));
  let browser: Browser;
  let site: Site;
  before(async () => {
    await build({
      absWorkingDir: ROOT,
      tsconfigRaw: {}, // take the packages as they are published
      entryPoints: ['test/browser/pages/engine.js'],
      bundle: true,
      format: 'esm',
      platform: 'browser',
      nodePaths: [MODULES],
      conditions: ['onnxruntime-web-use-extern-wasm'],
      outdir: folder,
      logLevel: 'error',
    });
    browser = await openWebnnChromium();
    site = await serve({
      folders: {
        '/dist/': builtPackage('ropewalk'),
        '/bundle/': folder,
        '/model/': join(ROOT, 'models/marline'),
        '/ort/': join(MODULES, 'onnxruntime-web/dist'),
      },
    });
  });
  after(async () => {
    await browser?.close();
    site?.close();
    rmSync(folder, { recursive: true });
  });

  test('exported graphs', async () => {
    const { report, page } = await reportOf<Report>(browser, `${site.origin}/?script=/pages/ort-webnn.js`);
    await page.close();
    assert.equal(report.version, '1.30.0', 'docs/export.md names the version');

    assert.equal(report.ropes.length, 28);
    for (const { name, said } of report.ropes) {
      if (/ f32-reduced | f64 /.test(name)) assert.match(String(said), /^Error: Can't create a session/, name);
      // The table is rounded once and each result once. f32 angles at position 63 are off by 63 ulps of a half.
      else if (/ f32-table /.test(name)) assert.ok(Number(said) <= 1.2e-7, `${name}: ${said}`);
      else if (/ f16-table /.test(name)) assert.ok(Number(said) <= 1e-3, `${name}: ${said}`);
      else assert.ok(Number(said) <= 4e-6, `${name}: ${said}`);
    }

    const { standard, primitives } = report;
    const caseOf = (label: string): string => /case=([^,]+)/.exec(label)![1]!;
    assert.deepEqual(primitives.wrong.map(caseOf), ['swiglu-large-gates']);
    assert.deepEqual(standard.wrong.map(caseOf).sort(), [
      'geglu',
      'gelu-f16',
      'gelu-large',
      'gelu-tanh',
      'swiglu-large-gates',
    ]);
    const REFUSED = /bf16|^(argmax|embedding|expert-linear|rearrange|route)-?/;
    const refused = (found: Report['standard']): string[] =>
      found.refused.map(caseOf).filter((name) => !REFUSED.test(name));
    assert.deepEqual(refused(primitives), []);
    assert.deepEqual(
      refused(standard).filter((name) => !/^(rms-norm|attention)/.test(name)),
      [],
    );
    assert.ok(primitives.right.length >= 34, `${primitives.right.length} of form primitives`);
    assert.ok(standard.right.length >= 22, `${standard.right.length} of form standard`);
  });

  test('a model writes the same text, in part on WebNN', async () => {
    const words = new URLSearchParams({ device: 'webnn', files: 'model-q8_0.gguf', tokens: '12', prompt: 'Once' });
    const { report, page } = await reportOf<{ text: string; dispatched: number; error?: string }>(
      browser,
      `${site.origin}/?script=/bundle/engine.js&${words}`,
    );
    await page.close();
    assert.equal(report.error, undefined);
    const model = await loadModelPath(join(ROOT, 'models/marline/model-q8_0.gguf'));
    let text = '';
    for await (const item of generate(model, 'Once', { maxTokens: 12, temperature: 0 }))
      if (item.end) text = item.end.text;
    model.dispose();
    assert.equal(report.text, text);
    assert.equal(report.dispatched, 12, 'one piece of the graph, once a token');
  });
});
