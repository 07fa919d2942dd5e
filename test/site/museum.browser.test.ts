/** Tests the museum: every entry of the catalogue has its picture, its threads, and a link to its diagnosis. */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { MUTANTS } from '@ropewalk/diagnose';
import type { Browser } from 'playwright-core';
import { noBrowser, openChromium, type Site } from '../support/browser.js';
import { serveSite, violations, visit } from '../support/site.js';

describe('The museum in Chromium', { skip: noBrowser }, () => {
  let browser: Browser;
  let site: Site;
  before(async () => {
    site = await serveSite();
    browser = await openChromium();
  });
  after(async () => {
    await browser.close();
    site.close();
  });

  test('an address with # shows its entry', async () => {
    const { id } = MUTANTS.at(-1)!;
    const { page, wrong } = await visit(browser, site, `museum/#${id}`);
    await page.waitForFunction((id) => {
      const box = document.getElementById(id)?.getBoundingClientRect();
      return box && box.top >= 0 && box.top < innerHeight;
    }, id);
    assert.deepEqual(wrong, []);
    await page.context().close();
  });

  test('shows every entry, is searched and filtered, and opens a diagnosis', async () => {
    const { page, wrong } = await visit(browser, site, 'museum/');
    await page.getByText(`${MUTANTS.length} of ${MUTANTS.length} are shown.`).waitFor();
    const cards = page.locator('.museum-card');
    assert.equal(await cards.count(), MUTANTS.length);
    await cards
      .first()
      .getByText(/^llama-2-half: \d+ % of y is off/)
      .waitFor();
    assert.ok((await page.locator('canvas.waiting').count()) > 100, 'pictures are drawn when they come near');
    assert.deepEqual(await violations(page), []);

    await page.getByLabel('Search').fill('NO-SUCH-BUG');
    await page.getByText('None is like that.').waitFor();
    await page.getByLabel('Search').fill('bf16');
    await page.getByLabel('Kind').selectOption('I');
    const about = ({ id, does, needs, threads }: (typeof MUTANTS)[number]) =>
      `${id} ${does} ${needs ?? ''} ${threads.join(' ')}`.toLowerCase();
    const wanted = MUTANTS.filter((one) => one.cause === 'I' && about(one).includes('bf16')).map(({ id }) => id);
    assert.deepEqual(await page.locator('.museum-card h3').allInnerTexts(), wanted);
    await page.waitForURL(/q=bf16&cause=I/);

    await page.getByLabel('Search').fill('');
    await page.getByLabel('Kind').selectOption('');
    await page.getByLabel('Project that reported it').selectOption('ggml-org/llama.cpp');
    const reported = MUTANTS.filter(({ threads }) => threads.some((one) => one.startsWith('ggml-org/llama.cpp#')));
    assert.equal(await cards.count(), reported.length);
    await page.getByLabel('Step that it gets wrong').selectOption('positions');
    assert.ok((await cards.count()) > 0 && (await cards.count()) < reported.length);

    const id = await cards.first().getAttribute('id');
    await cards.first().getByRole('link', { name: 'Diagnose' }).click();
    await page.locator('#diagnose-head').waitFor();
    assert.match(page.url(), new RegExp(`diagnose/\\?bug=${id}`));
    assert.match(await page.locator('.diagnose-verdict').innerText(), new RegExp(id!));
    assert.deepEqual(wrong, []);
    await page.context().close();
  });

  test('draws what a bug does: nothing where it is right', async () => {
    const { page, wrong } = await visit(browser, site, 'museum/?q=pairs-interleaved-for-half');
    await page.getByText('llama-2-half: ').first().waitFor();
    // The first token is at position 0, where nothing turns.
    const rows = await page.locator('#pairs-interleaved-for-half canvas').evaluate((canvas: HTMLCanvasElement) => {
      const { width, height } = canvas;
      const { data } = canvas.getContext('2d')!.getImageData(0, 0, width, height);
      return Array.from({ length: height }, (_, row) =>
        Math.max(...Array.from({ length: width }, (_column, i) => data[4 * (row * width + i) + 1]!)),
      );
    });
    assert.equal(rows.length, 16);
    assert.ok(Math.min(...rows) < 30 && Math.max(...rows) > 150, rows.join());
    assert.deepEqual(wrong, []);
    await page.context().close();
  });
});
