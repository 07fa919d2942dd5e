/** Tests the page Generate: the bundled model writes the same as in Node, from the site and from dropped files. */
import assert from 'node:assert/strict';
import { basename, join } from 'node:path';
import { describe, test } from 'node:test';
import { generate } from '@ropewalk/model';
import { loadModelFolder, loadModelPath } from '@ropewalk/model/node';
import type { Page } from 'playwright-core';
import { noBrowser, SOFTWARE_GPU } from '../support/browser.js';
import { ROOT } from '../support/build.js';
import { GEMMA3, noPython, SMOLLM2 } from '../support/python.js';
import { ISOLATED, openedSite, violations } from '../support/site.js';

const BOX = join(ROOT, 'models/marline');
const PROMPT = 'Call me';

/** Generates the text after the prompt in Node, or the answer to it `asChat`. */
async function written(load: typeof loadModelPath, path: string, asChat = false): Promise<string> {
  const model = await load(path, { backend: 'cpu', threads: 1 });
  const prompt = asChat ? [{ role: 'user', content: PROMPT }] : PROMPT;
  for await (const { end } of generate(model, prompt, { maxTokens: 24, temperature: 0 })) {
    if (!end) continue;
    model.dispose();
    return end.text;
  }
  throw new Error('no end');
}

describe('Generate in Chromium', { skip: noBrowser }, () => {
  const opened = openedSite({ headers: ISOLATED, flags: SOFTWARE_GPU });
  /** Loads the model whose headers were read, and generates. @returns the prompt and the text */
  async function text(page: Page): Promise<string> {
    await page.getByRole('button', { name: 'Load', exact: true }).click();
    await page.getByText(/^loaded on/).waitFor();
    await page.getByRole('button', { name: 'Generate' }).click();
    await page.getByText(/^24 tokens at [\d.]+ tokens\/s; .*the limit of tokens was reached\.$/).waitFor();
    return (await page.getByRole('region', { name: 'Generated text' }).textContent())!;
  }
  const SET = `prompt=${encodeURIComponent(PROMPT)}&max=24&temperature=0`;

  for (const backend of ['cpu', 'webgpu'])
    test(`the model in the box on ${backend}`, async () => {
      const { page, wrong } = await opened.visit(`generate/?backend=${backend}&${SET}`);
      await page.getByRole('button', { name: 'Look at it' }).click();
      await page.getByText('llama, 4 layers, 1024 tokens in the vocabulary').waitFor();
      const expected = await written(loadModelPath, join(BOX, 'model-q8_0.gguf'));
      assert.equal(await text(page), PROMPT + expected);
      assert.deepEqual(await violations(page), []);
      assert.deepEqual(wrong, []);
      await page.context().close();
    });

  test('a dropped HuggingFace folder; a file that is no model before it', async () => {
    const { page, wrong } = await opened.visit(`generate/?from=other&${SET}`);
    await page.locator('input[type=file]').setInputFiles(join(ROOT, 'README.md'));
    await page.locator('.notice.error').waitFor();
    assert.match(await page.locator('.notice.error').innerText(), /README\.md.*Choose another model/s);
    const names = ['config.json', 'tokenizer.json', 'tokenizer_config.json', 'model.safetensors'];
    await page.locator('input[type=file]').setInputFiles(names.map((name) => join(BOX, name)));
    await page.getByText('llama, 4 layers').waitFor();
    assert.equal(await text(page), PROMPT + (await written(loadModelFolder, BOX)));
    assert.deepEqual(wrong, []);
    await page.context().close();
  });

  for (const { path, words, chat } of [
    { path: SMOLLM2, words: 'llama, 30 layers', chat: true },
    { path: GEMMA3, words: 'gemma3, 18 layers', chat: false }, // its file has no chat template
  ])
    test(`a published model: ${basename(path)}`, { skip: noPython }, async () => {
      const { page, wrong } = await opened.visit(`generate/?from=other&${SET}`);
      await page.locator('input[type=file]').setInputFiles(path);
      await page.getByText(words).waitFor();
      const expected = await written(loadModelPath, path, chat);
      assert.equal(await text(page), chat ? `user${PROMPT}assistant${expected}` : PROMPT + expected);
      assert.deepEqual(wrong, []);
      await page.context().close();
    });

  test('a long text stops when told to', async () => {
    const { page, wrong } = await opened.visit('generate/?max=200&context=256&seed=3');
    await page.getByRole('button', { name: 'Look at it' }).click();
    await page.getByRole('button', { name: 'Load', exact: true }).click();
    await page.getByText(/^loaded on/).waitFor();
    // The click comes from the page itself: on a busy machine the whole text may be there before one from outside arrives.
    await page.getByRole('button', { name: 'Stop' }).evaluate((stop: HTMLButtonElement) => {
      const observer = new MutationObserver(() => {
        if (stop.disabled || !/[1-9]\d* tokens/.test(document.body.textContent)) return;
        observer.disconnect();
        stop.click();
      });
      observer.observe(document.body, { subtree: true, childList: true, characterData: true, attributes: true });
    });
    await page.getByRole('button', { name: 'Generate' }).click();
    await page.getByText(/seed 3; stopped\.$/).waitFor();
    assert.deepEqual(wrong, []);
    await page.context().close();
  });
});
