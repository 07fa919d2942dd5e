/** Tests the page AI Core: the figures of the docs, the findings beside statements, the zooming timeline, and the kernel's lines. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { measureRopeKernel } from '@ropewalk/ascend';
import { noBrowser } from '../support/browser.js';
import { openedSite, violations } from '../support/site.js';
import { until } from '../support/until.js';

describe('AI Core in Chromium', { skip: noBrowser }, () => {
  const opened = openedSite();

  test('the cycles of the library, runs beside each other, findings and the timeline', async () => {
    const { page, wrong } = await opened.visit('aicore/?shape=1,16,4,64&dtype=f32');
    const call = {
      shape: [1, 16, 4, 64],
      dtype: 'f32',
      pairing: 'interleaved',
      rotaryDim: 64,
      base: 10000,
      batchPositions: false,
      tableLen: 16,
    } as const;
    const cycles = (kernel: 'fast' | 'baseline', tileRows?: number): string =>
      Math.round(measureRopeKernel(kernel, call, { chip: '910B3', tiling: { tileRows } }).run.cycles).toLocaleString(
        'en',
      );
    const runs = page.getByRole('region', { name: 'Runs' });
    await runs.getByText(cycles('fast'), { exact: true }).waitFor();
    await page.getByLabel('Rows a tile').fill('1');
    await page.getByLabel('Rows a tile').blur();
    await page.getByRole('button', { name: 'Run on the model' }).click();
    await runs.getByText('1 rows a tile').waitFor();
    assert.equal(await runs.getByRole('row').nth(2).getByRole('cell').first().innerText(), cycles('fast', 1));
    await page.getByLabel('Rows a tile').fill('');
    await page.getByLabel('Rows a tile').blur();
    await page.getByLabel('Kernel').selectOption('baseline');
    await page.getByRole('button', { name: 'Run on the model' }).click();
    await page.getByRole('heading', { name: 'baseline kernel' }).waitFor();
    const findings = await page.getByRole('region', { name: 'Findings' }).innerText();
    assert.match(findings, /copyIn: DataCopy\(sin_ub.*gm-over-read/s);
    const bars = page.locator('.aicore-timeline rect');
    await bars.first().waitFor();
    const shown = () => page.getByText(/^cycles [\d,]+ to/).innerText();
    const before = await shown();
    await page.getByRole('button', { name: 'Zoom in' }).click();
    await until(async () => (await shown()) !== before, 'other cycles are shown');
    // The C++ of block 0, with the cycles that the library counts: a line shows its bars, and a bar its line.
    const { instructions } = measureRopeKernel('baseline', call, { chip: '910B3', record: true }).run.blocks[0]!;
    const text = page.getByRole('region', { name: 'Line by line' });
    const own = instructions!.filter((one) => one.line === 'copyOut: DataCopyPad(_y_gm[idy], output_ub, params)');
    const row = text.getByRole('row', { name: 'DataCopyPad(y_gm[' });
    const spent = own.reduce((sum, { start, end }) => sum + end - start, 0);
    assert.equal(await row.getByRole('cell').first().innerText(), Math.round(spent).toLocaleString('en'));
    await row.getByRole('button').click();
    const chosen = page.locator('.aicore-timeline .chosen title');
    await chosen.first().waitFor({ state: 'attached' });
    assert.ok((await chosen.allTextContents()).every((title) => title.startsWith(own[0]!.line)));
    const sub = instructions!.find(({ name }) => name === 'Sub')!;
    await page.getByRole('button', { name: 'Whole block' }).click();
    await page.locator(`[data-index="${sub.index}"]`).dispatchEvent('pointermove', { bubbles: true });
    await text.locator('tr.chosen').getByRole('button', { name: 'Sub(' }).waitFor();
    assert.deepEqual(await violations(page), []);
    await page.getByLabel('Shape').fill('1,2,3');
    await page.getByRole('button', { name: 'Run on the model' }).click();
    await page
      .getByRole('alert')
      .getByText(/four whole numbers/)
      .waitFor();
    assert.deepEqual(wrong, []);
    await page.context().close();
  });
});
