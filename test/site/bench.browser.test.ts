/** Tests the page Bench: it times every case beside its copy, saves results, and compares saved results. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { noBrowser, SOFTWARE_GPU } from '../support/browser.js';
import { ROOT } from '../support/build.js';
import { ISOLATED, openedSite, violations } from '../support/site.js';

describe('Bench in Chromium', { skip: noBrowser }, () => {
  const opened = openedSite({ headers: ISOLATED, flags: SOFTWARE_GPU });

  test('cpu: figures, saved and compared; a file that is something else', async () => {
    const { page, wrong } = await opened.visit('bench/');
    await page.getByRole('button', { name: 'Run', exact: true }).click();
    const save = page.getByRole('button', { name: 'Save the results' });
    await save.waitFor();
    const [file] = await Promise.all([page.waitForEvent('download'), save.click()]);
    const saved = JSON.parse(readFileSync(await file.path(), 'utf8'));
    assert.equal(saved.results.length, 12);
    assert.deepEqual(saved.leftOut, []);
    assert.equal(saved.isolated, true);
    for (const { ours, copy, bytes, flops } of saved.results)
      for (const n of [ours.medianNs, ours.q1Ns, ours.q3Ns, copy.medianNs, bytes, flops]) assert.ok(n > 0);
    await page.locator('input[type=file]').setInputFiles(join(ROOT, 'package.json'));
    await page
      .getByRole('alert')
      .getByText(/no results of this page/)
      .waitFor();
    await page.locator('input[type=file]').setInputFiles(await file.path());
    await page.getByText('Of the copy, kept').waitFor();
    const cells = await page
      .getByRole('region', { name: 'Figures' })
      .getByRole('row')
      .nth(1)
      .getByRole('cell')
      .allInnerTexts();
    assert.equal(cells.at(-1), cells.at(-2)); // beside itself: the share of its own copy
    assert.deepEqual(await violations(page), []);
    assert.deepEqual(wrong, []);
    await page.context().close();
  });

  test('webnn, which is not there, is said; webgpu runs and stops', async () => {
    const { page, wrong } = await opened.visit('bench/?backend=webnn');
    await page.getByRole('button', { name: 'Run', exact: true }).click();
    await page.getByText('webnn is not there: this browser has no navigator.ml').waitFor();
    await page.getByLabel('Backend').selectOption('webgpu');
    await page.getByRole('button', { name: 'Run', exact: true }).click();
    await page.getByText('WebGPU on google swiftshader').waitFor();
    await page.getByRole('button', { name: 'Stop' }).click();
    await page.getByText('Stopped.').waitFor();
    assert.deepEqual(wrong, []);
    await page.context().close();
  });
});
