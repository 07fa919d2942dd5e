/** Tests the service worker: after the first visit the site works offline and gets the headers that threads need. */
import assert from 'node:assert/strict';
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import type { Browser, Page } from 'playwright-core';
import { noBrowser, openChromium, serve } from '../support/browser.js';
import { builtSite, DIST, ISOLATED, serveSite, UNDER, visit } from '../support/site.js';

const activated = (page: Page): Promise<void> =>
  page.evaluate(async () => {
    const { active } = await navigator.serviceWorker.ready;
    while (active?.state !== 'activated') await new Promise((resolve) => setTimeout(resolve, 50));
  });
const isolated = (page: Page): Promise<boolean> => page.evaluate(() => crossOriginIsolated);

describe('the service worker in Chromium', { skip: noBrowser }, () => {
  let browser: Browser;
  before(async () => {
    browser = await openChromium();
  });
  after(() => browser.close());

  test('without headers the second page is isolated; with the server gone, pages open and the search finds', async () => {
    const site = await serveSite();
    const { page, wrong } = await visit(browser, site, '');
    assert.equal(await isolated(page), false);
    await activated(page);
    await page.goto(`${site.origin}${UNDER}learn/`);
    assert.equal(await isolated(page), true);
    // Data is kept once a page has used it, such as the index of the search, and not before.
    assert.equal(await page.evaluate(() => caches.match('../data/docs.json').then(Boolean)), false);
    await page.goto(`${site.origin}${UNDER}docs/?q=ramp`);
    await page.locator('.docs-results a').first().waitFor();
    site.close();
    await page.context().setOffline(true);
    for (const path of ['', 'explore/', 'docs/', 'docs/dialects/ggml/']) {
      await page.goto(`${site.origin}${UNDER}${path}`);
      await page.locator('main h1').first().waitFor();
      assert.equal(await isolated(page), true, path);
    }
    await page.goto(`${site.origin}${UNDER}docs/?q=yarn`);
    await page.locator('.docs-results a').first().waitFor();
    assert.deepEqual(wrong, []);
    await page.context().close();
  });

  test('after an update a tab that is open goes on working, and the next page is the new one', async (t) => {
    builtSite();
    const folder = mkdtempSync(join(tmpdir(), 'site-'));
    cpSync(DIST, folder, { recursive: true });
    const site = await serve({ folders: { [UNDER]: folder } });
    t.after(() => {
      site.close();
      rmSync(folder, { recursive: true });
    });
    const { page, wrong } = await visit(browser, site, 'explore/');
    await activated(page);
    await page.reload();
    const old = readFileSync(join(folder, 'sw.js'), 'utf8');
    // The next build has no file of the worker's name.
    const update = old.replace(/ropewalk \$\{"\w+/, '$&2').replace(/"assets\/rope\.worker[^"]*",/, '');
    const [, name] = /"(assets\/rope\.worker[^"]*)"/.exec(old)!;
    assert.ok(update.length < old.length);
    rmSync(join(folder, name!)); // only a cache has the old file
    writeFileSync(join(folder, 'sw.js'), update);
    await page.evaluate(async () => {
      const registration = await navigator.serviceWorker.ready;
      const changed = new Promise((resolve, reject) => {
        navigator.serviceWorker.oncontrollerchange = resolve;
        setTimeout(() => reject(new Error('the page keeps the old service worker')), 30_000);
      });
      await registration.update();
      await changed;
    });
    await page.getByRole('tab', { name: 'Convert' }).click();
    await page.getByRole('region', { name: 'In the words of ggml' }).waitFor();
    assert.deepEqual(wrong, []);
    await page.context().close();
  });

  test('with headers the first page is isolated', async () => {
    const site = await serveSite(ISOLATED);
    const { page, wrong } = await visit(browser, site, '');
    assert.equal(await isolated(page), true);
    assert.deepEqual(wrong, []);
    await page.context().close();
    site.close();
  });
});
