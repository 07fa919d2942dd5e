/**
 * Tests whole models as graphs in Chromium: `@huggingface/transformers` loads exported folders, and our own code uses
 * ONNX Runtime as an engine. Both run on the CPU under a Content-Security-Policy that forbids code from strings, and on
 * WebGPU. They must write the same text as Ropewalk in Node.
 */
import assert from 'node:assert/strict';
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, dirname, join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { generate } from '@ropewalk/model';
import { loadModelPath } from '@ropewalk/model/node';
import { exportDecoder } from '@ropewalk/model-onnx/node';
import { build } from 'esbuild';
import type { Browser } from 'playwright-core';
import { noBrowser, openChromium, reportOf, type Site, SOFTWARE_GPU, serve } from '../support/browser.js';
import { builtPackage, ROOT } from '../support/build.js';
import { GEMMA3, noPython, SMOLLM2 } from '../support/python.js';
import { noTransformers } from '../support/transformers.js';

const STRICT = "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; connect-src 'self'";
const MARLINE = join(ROOT, 'models/marline');
// After these no two tokens are almost equally likely, so int8 activations change nothing.
const PROMPT = 'Once';
const NUMBERS = '1, 2, 3, 4, 5, 6,';
const MODULES = join(ROOT, 'bench/node_modules');

describe('whole models as graphs in Chromium', { skip: noBrowser || noTransformers }, () => {
  const folder = mkdtempSync(join(tmpdir(), 'transformers-'));
  let browser: Browser;
  let site: Site;
  before(async () => {
    builtPackage('onnx');
    await build({
      absWorkingDir: ROOT,
      tsconfigRaw: {}, // take the packages as they are published
      entryPoints: ['test/browser/pages/transformers.js', 'test/browser/pages/engine.js'],
      bundle: true,
      format: 'esm',
      platform: 'browser',
      nodePaths: [MODULES],
      conditions: ['onnxruntime-web-use-extern-wasm'],
      outdir: join(folder, 'bundle'),
      logLevel: 'error',
    });
    browser = await openChromium(SOFTWARE_GPU);
    site = await serve({
      folders: {
        '/bundle/': join(folder, 'bundle'),
        '/models/': folder,
        '/model/': MARLINE,
        '/model/published/': dirname(SMOLLM2),
        '/ort/': join(MODULES, 'onnxruntime-web/dist'),
      },
      headers: { 'content-security-policy': STRICT },
    });
  });
  after(async () => {
    await browser?.close();
    site?.close();
    rmSync(folder, { recursive: true });
  });

  /** Opens a page and checks the text that it wrote. */
  async function check(
    script: string,
    asked: Readonly<Record<string, string>>,
    path: string,
    prompt = PROMPT,
  ): Promise<void> {
    const tokens = asked.device === 'webgpu' ? 2 : 12; // the software adapter needs half a second per token
    const words = new URLSearchParams({ ...asked, tokens: String(tokens), prompt });
    const { report, page } = await reportOf<{ text: string; error?: string }>(
      browser,
      `${site.origin}/?script=/bundle/${script}.js&${words}`,
    );
    await page.close();
    assert.equal(report.error, undefined);
    const model = await loadModelPath(path);
    let text = '';
    for await (const item of generate(model, prompt, { maxTokens: tokens, temperature: 0 }))
      if (item.end) text = item.end.text;
    model.dispose();
    assert.equal(report.text, text);
  }

  const F16 = ['config.json', 'tokenizer.json', 'tokenizer_config.json', 'model.safetensors'];
  for (const { device, file } of [
    { device: 'wasm', file: '' },
    { device: 'wasm', file: 'model-q8_0.gguf' },
    // transformers.js needs shader-f16 for half floats, but the software adapter does not have it.
    { device: 'webgpu', file: 'model-q8_0.gguf' },
  ])
    test(`transformers.js: ${file || 'f16'} on ${device}`, async () => {
      const exported = file ? 'exported-q8_0' : 'exported';
      const path = join(MARLINE, file);
      if (!existsSync(join(folder, exported))) await exportDecoder(path, join(folder, exported));
      await check('transformers', { device, model: exported }, path);
    });

  for (const { device, files } of [
    { device: 'wasm', files: F16 },
    { device: 'wasm', files: ['model-q8_0.gguf'] },
    { device: 'webgpu', files: F16 },
  ])
    test(`our engine: ${files.at(-1)} on ${device}`, () =>
      check('engine', { device, files: files.join() }, files.length > 1 ? MARLINE : join(MARLINE, files[0]!)));

  describe('published models on wasm', { skip: noPython }, () => {
    for (const path of [SMOLLM2, GEMMA3])
      test(`our engine: ${basename(path)}`, () =>
        check('engine', { device: 'wasm', files: `published/${basename(path)}` }, path, NUMBERS));

    test('transformers.js: the graph of SmolLM2-135M-Instruct', async () => {
      await exportDecoder(SMOLLM2, join(folder, 'smollm2'));
      await check('transformers', { device: 'wasm', model: 'smollm2' }, SMOLLM2, NUMBERS);
    });
  });
});
