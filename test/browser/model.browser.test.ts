/**
 * Tests a model in a real browser with the built package: fetched or as a Blob, on one thread and on two, it generates
 * the same tokens as in Node.
 */
import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { generate } from '@ropewalk/model';
import { loadModelFolder, loadModelPath } from '@ropewalk/model/node';
import type { Browser } from 'playwright-core';
import { ropewalk } from 'ropewalk';
import {
  noBrowser,
  openChromium,
  reportOf,
  type Site,
  type SiteOptions,
  SOFTWARE_GPU,
  serve,
} from '../support/browser.js';
import { builtPackage, ROOT } from '../support/build.js';

const ISOLATED = { 'cross-origin-opener-policy': 'same-origin', 'cross-origin-embedder-policy': 'require-corp' };
const BOX = join(ROOT, 'models/marline');
const GGUF = 'model-q8_0.gguf';
const SAFETENSORS = ['config.json', 'tokenizer.json', 'tokenizer_config.json', 'model.safetensors'];
const PROMPT = 'It was a dark night, and the ship';
const TOKENS = 32;

/** The log of pages/generate.js. */
interface Report {
  readonly backend: string;
  readonly threads: number;
  readonly description: string;
  readonly tokens: readonly number[];
  readonly text: string;
  readonly logits: readonly number[];
}

/** The parameters in the address of a page. */
interface Asked {
  readonly files: readonly string[];
  readonly by: 'fetch' | 'blob';
  readonly backend?: 'cpu' | 'webgpu';
  readonly threads?: number;
  readonly simd?: 'simd128';
  readonly tokens?: number;
}

const skip = noBrowser || (existsSync(join(BOX, GGUF)) ? false : 'no models/marline here');

describe('the decoder in Chromium', { skip }, () => {
  const sites: Site[] = [];
  let browser: Browser;
  before(async () => {
    builtPackage('model');
    browser = await openChromium(SOFTWARE_GPU);
  });
  after(async () => {
    await browser?.close();
    for (const site of sites) site.close();
  });

  async function run(headers: SiteOptions['headers'], asked: Asked): Promise<Report> {
    const folders = {
      '/dist/': builtPackage('ropewalk'),
      '/model/': BOX,
    };
    const site = await serve({ headers: headers ?? {}, folders });
    sites.push(site);
    const words = {
      script: '/pages/generate.js',
      backend: 'cpu',
      threads: 1,
      tokens: TOKENS,
      ...asked,
      prompt: PROMPT,
    };
    const address = new URLSearchParams(Object.entries(words).map(([key, value]) => [key, String(value)]));
    const { report, page } = await reportOf<Report>(browser, `${site.origin}/?${address}`);
    await page.close();
    return report;
  }

  /** Generates the same in Node from the sources. */
  async function inNode(
    files: readonly string[],
    tokens = TOKENS,
  ): Promise<{ tokens: number[]; text: string; logits: number[] }> {
    const rw = await ropewalk({ backend: 'cpu', threads: 1, simd: 'simd128' });
    const options = { backend: rw, context: 128 };
    const model =
      files.length === 1 ? await loadModelPath(join(BOX, files[0]!), options) : await loadSafetensors(options);
    const made: number[] = [];
    let text = '';
    for await (const item of generate(model, PROMPT, { maxTokens: tokens, temperature: 0 })) {
      if (item.end) text = item.end.text;
      else made.push(item.token);
    }
    const session = model.openSession();
    const logits = [...(await session.append(model.tokenizer.encode(PROMPT)))];
    model.dispose();
    rw.dispose();
    return { tokens: made, text, logits };
  }
  // The folder holds a GGUF too, but config.json and *.safetensors have priority.
  const loadSafetensors = (options: Parameters<typeof loadModelFolder>[1]) => loadModelFolder(BOX, options);

  /** Asserts the same tokens and text. Kernels may differ, and with them the last bits of logits. */
  function assertSame(got: Report, want: Awaited<ReturnType<typeof inNode>>): void {
    assert.equal(got.text, want.text);
    assert.deepEqual(got.tokens, want.tokens);
    assert.ok(want.tokens.length > 0 && want.text.length > 0);
  }

  test('a GGUF, fetched: one thread on a plain page', async () => {
    const got = await run({}, { files: [GGUF], by: 'fetch', threads: 2 });
    assertSame(got, await inNode([GGUF]));
    assert.deepEqual([got.backend, got.threads], ['cpu', 1]);
  });

  test('a GGUF as a Blob: two threads on an isolated page', async () => {
    const got = await run(ISOLATED, { files: [GGUF], by: 'blob', threads: 2 });
    assertSame(got, await inNode([GGUF]));
    assert.deepEqual([got.backend, got.threads], ['cpu', 2]);
    assert.match(got.description, /^WebAssembly relaxed SIMD, 2 threads/);
  });

  test('without relaxed SIMD, as Node 20 computes: the same logits to the bit, on one thread and on two', async () => {
    const want = await inNode([GGUF]);
    for (const threads of [1, 2]) {
      const got = await run(ISOLATED, { files: [GGUF], by: 'blob', threads, simd: 'simd128' });
      assertSame(got, want);
      assert.equal(got.threads, threads);
      assert.deepEqual(got.logits, want.logits);
    }
  });

  test("HuggingFace's files, fetched", async () => {
    assertSame(await run(ISOLATED, { files: SAFETENSORS, by: 'fetch' }), await inNode(SAFETENSORS));
  });

  test('webgpu, in software: a few tokens', async () => {
    const got = await run(ISOLATED, { files: [GGUF], by: 'fetch', backend: 'webgpu', tokens: 4 });
    assertSame(got, await inNode([GGUF], 4));
    assert.equal(got.backend, 'webgpu');
  });
});
