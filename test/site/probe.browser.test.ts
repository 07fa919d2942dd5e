/** Tests the page Probe: recordings of a real server, a server of the tests, and a server against itself. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { gunzipSync } from 'node:zlib';
import type { Page } from 'playwright-core';
import { noBrowser } from '../support/browser.js';
import { ROOT } from '../support/build.js';
import { marlineWith, runOf, serve } from '../support/probe-server.js';
import { openedSite, violations } from '../support/site.js';

const RECORDINGS = join(ROOT, 'packages/probe/test/recordings/vllm-0.32.0');

describe('Probe in Chromium', { skip: noBrowser }, () => {
  const opened = openedSite();
  async function report(page: Page): Promise<string> {
    await page.getByRole('button', { name: 'Probe', exact: true }).click();
    await page.getByRole('group', { name: 'Report' }).waitFor();
    return page.getByRole('group', { name: 'Report' }).innerText();
  }

  test('recordings of vLLM: a lost base is named, the right model is not accused', async () => {
    const { page, wrong } = await opened.visit('probe/?from=recording');
    const file = page.locator('input[type=file]');
    await file.setInputFiles(join(RECORDINGS, 'base-lost.jsonl.gz'));
    assert.match(await report(page), /DIFFERENT: the server scales with YaRN, factor 4/);
    await page.getByText('differs', { exact: true }).waitFor();
    await page.getByRole('img', { name: /difference by the number of tokens/ }).waitFor();
    assert.deepEqual(await violations(page), []);
    await file.setInputFiles({
      name: 'bf16.jsonl',
      mimeType: 'application/json',
      buffer: gunzipSync(readFileSync(join(RECORDINGS, 'bf16.jsonl.gz'))),
    });
    await report(page);
    await page.getByText('agrees', { exact: true }).waitFor();
    const saved = page.waitForEvent('download');
    await page.getByRole('button', { name: 'Save the recording' }).click();
    assert.equal((await saved).suggestedFilename(), 'probe.jsonl');
    await file.setInputFiles(join(ROOT, 'README.md'));
    await page.getByRole('button', { name: 'Probe', exact: true }).click();
    await page.getByText(/README\.md: line 1: it is no JSON/).waitFor();
    assert.deepEqual(wrong, []);
    await page.context().close();
  });

  test('a server: its base is named, the key goes to it alone; then against itself', async () => {
    const model = await marlineWith({ rope_theta: 20_000 });
    const server = await serve('vllm', runOf(model), model);
    const { page, wrong } = await opened.visit(`probe/?url=${encodeURIComponent(server.url)}`);
    await page.getByLabel('Key, if it needs one').fill('a-secret');
    assert.match(await report(page), /DIFFERENT: the server rotates with base 20,000/);
    assert.equal(server.headers.authorization, 'Bearer a-secret');
    assert.doesNotMatch(page.url(), /secret/);
    await page.getByLabel('Held against').selectOption('none');
    await page.getByLabel('Tokens of the text').fill('100'); // the served model has a context of 256
    await page.getByLabel('Tokens of the text').blur();
    await report(page);
    await page.getByText('agrees', { exact: true }).waitFor();
    assert.deepEqual(
      wrong.filter((one) => !one.startsWith(`request: ${server.url}/`)),
      [],
    );
    await server.close();
    model.dispose();
    await page.getByRole('button', { name: 'Probe', exact: true }).click();
    await page.locator('.notice.error').waitFor();
    await page.context().close();
  });
});
