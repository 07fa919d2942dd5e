/** Tests the page Home: its picture turns with the slider, its figures are right, and its links work. */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import { builtInCases } from '@ropewalk/cli/internal';
import { MUTANTS } from '@ropewalk/diagnose';
import type { Browser } from 'playwright-core';
import { noBrowser, openChromium, type Site } from '../support/browser.js';
import { serveSite, visit } from '../support/site.js';

describe('Home in Chromium', { skip: noBrowser }, () => {
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

  test('the picture is there within a second, follows the slider, and the address keeps it', async () => {
    const { page, wrong } = await visit(browser, site, '');
    const painted = await page.evaluate(() => performance.getEntriesByName('first-contentful-paint')[0]!.startTime);
    assert.ok(painted < 5000, `${painted} ms`); // it takes a second on a quiet machine, see docs/site.md
    const picture = page.getByRole('img', { name: /pairs \(j, j \+ 8\) at position/ });
    assert.match((await picture.getAttribute('aria-label'))!, /at position 7;/);
    const slider = page.getByRole('slider');
    await slider.focus();
    await page.keyboard.press('ArrowRight');
    assert.match((await picture.getAttribute('aria-label'))!, /at position 8;/);
    await slider.fill('100');
    await page.waitForURL(/position=100/);
    await page.reload();
    await page.getByRole('img', { name: /interleaved|pairs \(2j, 2j \+ 1\) at position 100/ }).waitFor();
    assert.deepEqual(wrong, []);
    await page.context().close();
  });

  test('its figures are those of the packages', async () => {
    const { page } = await visit(browser, site, '');
    const figure = (of: string): Promise<string> =>
      page.locator('.home-facts div', { hasText: of }).locator('dd').innerText();
    assert.equal(await figure('test cases'), String(builtInCases().length));
    const suites = builtInCases().map(({ suite, label }) => `${suite} ${label}`);
    const byPeers = suites.filter((one) => /^(ggml|huggingface|onnx(-contrib)?) (?!.*gemma)/i.test(one)).length;
    await page.getByText(`results of ${byPeers} are from the peers' own programs`).waitFor();
    assert.equal(await figure('known wrong kernels'), String(MUTANTS.length));
    await page.context().close();
  });

  test('"See it babble" shows where the model babbles', async () => {
    const { page } = await visit(browser, site, '');
    await page.getByRole('link', { name: 'See it babble' }).click();
    await page.waitForFunction(() => {
      const box = document.getElementById('babble')?.getBoundingClientRect();
      return box && box.top >= 0 && box.top < innerHeight;
    });
    await page.context().close();
  });

  test('every link of the page leads somewhere', async () => {
    const { page } = await visit(browser, site, '');
    const links = await page.locator('a[href]').evaluateAll((all) => all.map((a) => (a as HTMLAnchorElement).href));
    for (const link of new Set(links.map((link) => link.replace(/#.*/, ''))))
      assert.equal((await page.request.get(link)).status(), 200, link);
    await page.context().close();
  });
});
