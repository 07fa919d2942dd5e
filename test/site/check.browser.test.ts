/** Tests the page Check: every suite on cpu and webgpu in Chromium, with a filter, stopped, and saved. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { describe, test } from 'node:test';
import { noBrowser, noWebnnBrowser, openChromium, openWebnnChromium, SOFTWARE_GPU } from '../support/browser.js';
import { ISOLATED, openedSite, violations, visit } from '../support/site.js';
import { until } from '../support/until.js';

describe('Check in Chromium', { skip: noBrowser }, () => {
  const opened = openedSite({ headers: ISOLATED, flags: SOFTWARE_GPU });

  test('every suite is right on cpu, with its table, downloads and report', async () => {
    const { page, wrong } = await opened.visit('check/?backends=cpu+webnn');
    await page.getByRole('button', { name: 'Run', exact: true }).click();
    await page.getByText(/^\d+ cases ran, 0 are wrong\.$/).waitFor();
    const cards = await page.locator('.check-runs').innerText();
    assert.match(cards, /(\d+) of \1: \1 right, 0 wrong, 0 not supported/);
    assert.match(cards, /webnn\s+not there\s+this browser has no navigator\.ml/);
    await page.getByRole('button', { name: /^rope bf16 on cpu: \d+ right$/ }).click();
    assert.match(page.url(), /cell=cpu%2Frope\+bf16|backends/);
    assert.ok((await page.locator('.check-cases li').count()) > 10);
    const [json] = await Promise.all([
      page.waitForEvent('download'),
      page.getByRole('button', { name: 'Save as JSON lines' }).click(),
    ]);
    const lines = readFileSync(await json.path(), 'utf8')
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line));
    assert.ok(lines.length > 700 && lines.every(({ backend, status }) => backend === 'cpu' && status === 'ok'));
    const [junit] = await Promise.all([
      page.waitForEvent('download'),
      page.getByRole('button', { name: 'Save cpu as JUnit' }).click(),
    ]);
    assert.match(readFileSync(await junit.path(), 'utf8'), new RegExp(`tests="${lines.length}" failures="0"`));
    assert.deepEqual(await violations(page), []);
    assert.deepEqual(wrong, []);
    await page.context().close();
  });

  test('a suite on webgpu leaves the page responsive, pauses and stops', async () => {
    const { page, wrong } = await opened.visit('check/?backends=webgpu&filter=published');
    await page.evaluate(() => {
      const long: number[] = [];
      Object.assign(globalThis, { long });
      new PerformanceObserver((list) => long.push(...list.getEntries().map(({ duration }) => duration))).observe({
        entryTypes: ['longtask'],
      });
    });
    const start = performance.now();
    await page.getByRole('button', { name: 'Run', exact: true }).click();
    await page.getByText(/^96 cases ran, 0 are wrong\.$/).waitFor();
    assert.match(await page.locator('.check-runs').innerText(), /WebGPU on google swiftshader/);
    const long = await page.evaluate(() => (globalThis as unknown as { long: number[] }).long);
    // The bound is a share of the time, which does not depend on the speed of the machine.
    const blocked = long.reduce((sum, duration) => sum + duration, 0) / (performance.now() - start);
    assert.ok(blocked < 0.5, `blocked for ${blocked} of the time: ${long.join(', ')} ms`);
    // No GPU computes in f64.
    await page.getByRole('searchbox').fill('type=f64');
    await page.getByRole('button', { name: 'Run', exact: true }).click();
    await page.getByText(/^(\d+) of \1: 0 right, 0 wrong, \1 not supported/).waitFor();
    await page.getByRole('searchbox').fill('');
    await page.getByRole('button', { name: 'Run', exact: true }).click();
    await page.getByText(/^[1-9]\d* cases so far/).waitFor();
    await page.getByRole('button', { name: 'Pause' }).click();
    const status = page.getByRole('status').first();
    await until(async () => {
      const before = await status.textContent();
      await page.waitForTimeout(500);
      return (await status.textContent()) === before;
    }, 'it does not go on');
    await page.getByRole('button', { name: 'Go on' }).click();
    await page.getByRole('button', { name: 'Stop' }).click();
    await page.locator('.check-runs').getByText('Stopped.').waitFor();
    assert.deepEqual(wrong, []);
    await page.context().close();
  });

  test('a GPU that is lost: no case is called wrong for it, and the page says what to do', async (t) => {
    const own = await openChromium(SOFTWARE_GPU); // the test kills its GPU process
    t.after(() => own.close());
    const { page } = await visit(own, opened.site, 'check/?backends=webgpu');
    await page.getByRole('button', { name: 'Run', exact: true }).click();
    await page.getByText(/^[1-9]\d* cases so far/).waitFor();
    const session = await own.newBrowserCDPSession();
    await session.send('Browser.crashGpuProcess').catch(() => {}); // this call gets no answer
    await page.getByText(/did not run: the device .* \(.*\)\. Load the page again to go on\.$/).waitFor();
    await page.getByText(/^\d+ cases ran, 0 are wrong\.$/).waitFor();
  });

  test('WebNN, in a browser that has it', { skip: noWebnnBrowser() }, async (t) => {
    const own = await openWebnnChromium();
    t.after(() => own.close());
    const { page, wrong } = await visit(own, opened.site, 'check/?backends=webnn&filter=add');
    await page.getByRole('button', { name: 'Run', exact: true }).click();
    await page.getByText(/^[1-9]\d* cases ran, 0 are wrong\.$/).waitFor();
    assert.match(await page.locator('.check-runs').innerText(), /WebNN on cpu/);
    assert.deepEqual(wrong, []);
  });
});
