/** Tests the service worker: after the first visit the site works offline and gets the headers that threads need. */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import type { Browser, Page } from 'playwright-core';
import { noBrowser, openChromium } from '../support/browser.js';
import { ISOLATED, serveSite, UNDER, visit } from '../support/site.js';

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
    // The search index is part of the data, which is cached after the first page.
    await page.evaluate(async () => {
      const { active } = await navigator.serviceWorker.ready;
      while (active?.state !== 'activated') await new Promise((resolve) => setTimeout(resolve, 50));
      while (!(await caches.match(new URL('data/docs.json', document.baseURI))))
        await new Promise((resolve) => setTimeout(resolve, 50));
    });
    await page.goto(`${site.origin}${UNDER}learn/`);
    assert.equal(await isolated(page), true);
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

  test('with headers the first page is isolated', async () => {
    const site = await serveSite(ISOLATED);
    const { page, wrong } = await visit(browser, site, '');
    assert.equal(await isolated(page), true);
    assert.deepEqual(wrong, []);
    await page.context().close();
    site.close();
  });
});
