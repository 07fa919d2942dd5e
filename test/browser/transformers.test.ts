/**
 * A folder of a whole model in Chromium, loaded by `@huggingface/transformers`: on the CPU under a
 * Content-Security-Policy that forbids code from strings, and on WebGPU. The text is the one that we write in Node.
 */
import assert from 'node:assert/strict';
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { build } from 'esbuild';
import type { Browser } from 'playwright-core';
import { generate } from '../../packages/model/src/generate.js';
import { loadModelPath } from '../../packages/model/src/node.js';
import { exportDecoder } from '../../packages/onnx/src/decoder/folder.node.js';
import { noBrowser, openChromium, reportOf, type Site, SOFTWARE_GPU, serve } from '../support/browser.js';
import { ROOT } from '../support/build.js';
import { noTransformers } from '../support/transformers.js';

const STRICT = "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; connect-src 'self'";
const MARLINE = join(ROOT, 'models/marline');
const PROMPT = 'Once'; // no two tokens are nearly as likely, so activations in int8 change none
const MODULES = join(ROOT, 'bench/node_modules');

describe('transformers.js in Chromium', { skip: noBrowser || noTransformers, timeout: 120_000 }, () => {
  const folder = mkdtempSync(join(tmpdir(), 'transformers-'));
  let browser: Browser;
  let site: Site;
  before(async () => {
    await build({
      absWorkingDir: ROOT,
      tsconfigRaw: {},
      entryPoints: ['test/browser/pages/transformers.js'],
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

  // Half floats on a GPU need shader-f16, which the software adapter does not have. It takes seconds for its shaders,
  // and half a second a token.
  for (const { device, path, tokens } of [
    { device: 'wasm', path: MARLINE, tokens: 24 },
    { device: 'wasm', path: join(MARLINE, 'model-q8_0.gguf'), tokens: 24 },
    { device: 'webgpu', path: join(MARLINE, 'model-q8_0.gguf'), tokens: 4 },
  ])
    test(`${path.slice(MARLINE.length + 1) || 'f16'} on ${device}: the text that we write`, async () => {
      const exported = join(folder, basename(path));
      if (!existsSync(exported)) await exportDecoder(path, exported);
      const asked = new URLSearchParams({ model: basename(path), device, tokens: String(tokens), prompt: PROMPT });
      const { report, page } = await reportOf<{ text: string; device: string; error?: string }>(
        browser,
        `${site.origin}/?script=/bundle/transformers.js&${asked}`,
      );
      await page.close();
      assert.equal(report.error, undefined);
      assert.equal(report.device, device);
      const model = await loadModelPath(path);
      let text = PROMPT;
      for await (const item of generate(model, PROMPT, { maxTokens: tokens, temperature: 0 }))
        if (item.end) text += item.end.text;
      model.dispose();
      assert.equal(report.text, text);
    });
});
