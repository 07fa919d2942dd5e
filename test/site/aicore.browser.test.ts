/** Tests the page AI Core: the figures of the docs, the findings beside statements, the zooming timeline, and the kernel's lines. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { measureRopeKernel } from '@ropewalk/ascend';
import { noBrowser } from '../support/browser.js';
import { ROOT } from '../support/build.js';
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
    const [picture, beside] = await Promise.all([page.locator('.aicore-timeline').boundingBox(), text.boundingBox()]);
    assert.ok(beside!.x >= picture!.x + picture!.width, 'the text is beside the timeline');
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
    await page.getByRole('button', { name: 'Write your own' }).click();
    await page.getByRole('textbox', { name: 'The kernel, in AscendC’s calls' }).waitFor();
    assert.deepEqual(wrong, []);
    await page.context().close();
  });

  test('a kernel of the visitor’s: right, wrong, with a finding, with an error in its line, without an end', async () => {
    const { page, wrong } = await opened.visit('aicore/?kernel=your+own&shape=8,16,4,64&dtype=f32');
    const editor = page.getByRole('textbox', { name: 'The kernel, in AscendC’s calls' });
    await editor.waitFor();
    const [, text] = /```js\n(.*?)```/s.exec(
      readFileSync(join(ROOT, 'docs/aicore-kernels.md'), 'utf8'),
    )! as unknown as [string, string];
    const run = async (code?: string): Promise<void> => {
      if (code !== undefined) {
        await editor.click();
        await page.keyboard.press('Control+A');
        await page.keyboard.insertText(code);
      }
      await page.getByRole('button', { name: 'Run on the model' }).click();
    };
    await run();
    await page.getByRole('heading', { name: 'vector-add kernel' }).waitFor();
    const fact = (name: string) => page.locator('.aicore-facts div', { hasText: name }).locator('dd').innerText();
    assert.equal(await fact('rows right'), '512 of 512');
    await page.locator('.aicore-timeline [data-index]').first().waitFor();
    await page.getByRole('region', { name: 'Line by line' }).getByText('compute: Add(z, x, y)').waitFor();
    assert.deepEqual(await violations(page), []);
    const edited = (from: string, to: string): string => {
      assert.ok(text.includes(from), `${from} is in the kernel of the docs`);
      return text.replace(from, to);
    };
    await run(edited('c.Add(', 'c.Sub('));
    await page.getByText(/The first wrong element: row 0, element 0/).waitFor();
    await run(edited('blockLen: count * size', 'blockLen: count * size + 64'));
    await page
      .getByRole('region', { name: 'Findings' })
      .getByText(/gm-over-read|overflow|over/)
      .first()
      .waitFor();
    await run(edited('c.Add(', 'c.Ad('));
    await page
      .getByRole('alert')
      .getByText(/^Line \d+: .*c\.Ad is not a function/)
      .waitFor();
    await run(edited('const total', 'for (;;);\n    const total'));
    await page.getByRole('alert').getByText('ended after 20 seconds').waitFor({ timeout: 60_000 });
    assert.deepEqual(
      wrong.filter((words) => !/Content Security Policy|Applying inline style/.test(words)),
      [],
    );
    await page.context().close();
  });
});
