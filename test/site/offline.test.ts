/** The service worker: pages without a network after the first visit, and threads on a host that sends no headers. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { noBrowser, openChromium } from '../support/browser.js';
import { serveSite, UNDER, visit } from '../support/site.js';

test('after one visit the site works offline, and is isolated', { skip: noBrowser, timeout: 120_000 }, async () => {
  const site = await serveSite(); // no headers
  const browser = await openChromium();
  try {
    const { page, wrong } = await visit(browser, site, '');
    assert.equal(await page.evaluate(() => crossOriginIsolated), false);
    await page.evaluate(() => navigator.serviceWorker.ready);
    // The data comes after the pages, in the background.
    await page.waitForFunction(async () => {
      const [name] = await caches.keys();
      const cache = name && (await caches.open(name));
      return cache && (await cache.match(new URL('data/docs.json', document.baseURI)));
    });
    site.close();
    await page.context().setOffline(true);
    const open = (path: string): Promise<unknown> => page.goto(`${site.origin}${UNDER}${path}`);
    await open('docs/diagnose/');
    assert.equal(await page.evaluate(() => crossOriginIsolated), true);
    await page.getByRole('searchbox').fill('magnitude');
    await page.locator('.docs-results a').first().waitFor();
    for (const path of ['', 'explore/', 'learn/', 'check/']) {
      await open(path);
      await page.locator('main h1').first().waitFor();
    }
    assert.deepEqual(wrong, []);
  } finally {
    await browser.close();
    site.close();
  }
});
