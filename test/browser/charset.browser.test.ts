/**
 * Tests a page without `<meta charset>`. A browser reads the page and its classic scripts as windows-1252. A bundle
 * with unescaped characters must still make the same tokens and text.
 */
import assert from 'node:assert/strict';
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import type { GgufValue } from '@ropewalk/formats';
import { generate, tokenizerFromGguf } from '@ropewalk/model';
import { loadModelPath } from '@ropewalk/model/node';
import { build } from 'esbuild';
import type { Browser } from 'playwright-core';
import { noBrowser, openChromium, reportOf, type Site, serve } from '../support/browser.js';
import { builtPackage, ROOT } from '../support/build.js';
import { metadata, pieces, unigram } from '../support/vocabularies.js';

const GGUF = join(ROOT, 'models/marline/model-q8_0.gguf');
const TEXT = 'ab aba\u00e9 a\u2014b \u4e2d\u6587\u304b\u30ab\uac00! \uff01\u3002\u2018x\u2019 12345 \u2581a';
const PROMPT = 'It was a dark night, and the ship';
const VOCABULARIES: Record<string, ReadonlyMap<string, GgufValue>> = {
  llama: pieces(),
  t5: unigram(),
  ...Object.fromEntries(['deepseek-llm', 'deepseek-coder', 'deepseek-v3'].map((pre) => [pre, metadata(pre)])),
};

// The page fetches its texts as JSON, which is always UTF-8.
const PAGE = `
import { generate, loadModel, tokenizerFromGguf } from '@ropewalk/model';
import { openCpu, Ropewalk } from 'ropewalk';
(async () => {
  const { vocabularies, text, prompt } = await (await fetch('/own/given.json')).json();
  const tokens = {};
  for (const [name, entries] of Object.entries(vocabularies))
    tokens[name] = [...tokenizerFromGguf(new Map(entries)).encode(text)];
  const file = await (await fetch('/marline/model-q8_0.gguf')).blob();
  const rw = new Ropewalk(await openCpu({ threads: 1 }));
  const model = await loadModel(new Map([['model.gguf', file]]), { backend: rw, context: 128 });
  let made = '';
  for await (const item of generate(model, prompt, { maxTokens: 12, temperature: 0 })) if (item.end) made = item.end.text;
  console.log(JSON.stringify({ charset: document.characterSet, tokens, made }));
})();`;

const skip = noBrowser || (existsSync(GGUF) ? false : 'no models/marline here');

describe('a page without a charset', { skip }, () => {
  const folder = mkdtempSync(join(tmpdir(), 'charset-'));
  let browser: Browser;
  let site: Site;
  before(async () => {
    builtPackage('model');
    browser = await openChromium();
    await build({
      stdin: { contents: PAGE, resolveDir: join(ROOT, 'test/browser'), loader: 'js' },
      ...{ bundle: true, minify: true, format: 'iife', charset: 'utf8', external: ['webgpu', 'node:*'] },
      tsconfigRaw: {}, // the packages as they are published
      logOverride: { 'empty-import-meta': 'silent' }, // the page starts no worker
      outfile: join(folder, 'page.js'),
    });
    writeFileSync(join(folder, 'index.html'), '<!doctype html><title>page</title><script src="page.js"></script>');
    const vocabularies = Object.fromEntries(Object.entries(VOCABULARIES).map(([name, keys]) => [name, [...keys]]));
    writeFileSync(join(folder, 'given.json'), JSON.stringify({ vocabularies, text: TEXT, prompt: PROMPT }));
    site = await serve({ folders: { '/own/': folder, '/marline/': join(ROOT, 'models/marline') } });
  });
  after(async () => {
    await browser?.close();
    site?.close();
    rmSync(folder, { recursive: true });
  });

  test('the same tokens of every kind of vocabulary, and the same text', async () => {
    const { report } = await reportOf<{ charset: string; tokens: Record<string, number[]>; made: string }>(
      browser,
      `${site.origin}/own/`,
    );
    assert.equal(report.charset, 'windows-1252');
    for (const [name, keys] of Object.entries(VOCABULARIES))
      assert.deepEqual(report.tokens[name], [...tokenizerFromGguf(keys).encode(TEXT)], name);
    const model = await loadModelPath(GGUF, { context: 128 });
    let made = '';
    for await (const item of generate(model, PROMPT, { maxTokens: 12, temperature: 0 }))
      if (item.end) made = item.end.text;
    model.dispose();
    assert.equal(report.made, made);
  });
});
