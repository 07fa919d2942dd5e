/** WebNN in a real browser, which computes it on its CPU. */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import type { Browser } from 'playwright-core';
import { noWebnnBrowser, openWebnnChromium, reportOf, type Site, serve } from '../support/browser.js';

describe('WebNN in Chromium', { skip: noWebnnBrowser(), timeout: 600_000 }, () => {
  let browser: Browser;
  let site: Site;
  before(async () => {
    browser = await openWebnnChromium();
    site = await serve({ folders: {} });
  });
  after(async () => {
    await browser?.close();
    site?.close();
  });

  test('this browser computes', async () => {
    const { report, page } = await reportOf<number[]>(browser, `${site.origin}/?script=/pages/webnn-add.js`);
    await page.close();
    assert.deepEqual(report, [11, 22]);
  });
});
