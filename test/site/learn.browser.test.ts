/** Tests the page Learn: its figures move, the product depends on the distance, and wrong pairs spoil the text. */
import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import type { Browser } from 'playwright-core';
import { noBrowser, openChromium, type Site } from '../support/browser.js';
import { serveSite, violations, visit } from '../support/site.js';

describe('Learn in Chromium', { skip: noBrowser }, () => {
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

  test('the product keeps when both move, and changes when one does', async () => {
    const { page, wrong } = await visit(browser, site, 'learn/');
    const product = page.locator('.learn-dot strong');
    const before = await product.innerText();
    // At distance 3 the product is q·k cos 3 + (q0 k1 − q1 k0) sin 3, as if k turned by 3 and q did not turn.
    const expected = (0.9 * 0.55 + 0.25 * -0.7) * Math.cos(3) + (0.9 * -0.7 - 0.25 * 0.55) * Math.sin(3);
    assert.equal(before, expected.toFixed(4));
    await page.getByRole('button', { name: 'Both one on' }).click();
    assert.equal(await page.getByRole('slider', { name: 'Position of q' }).inputValue(), '10');
    assert.equal(await product.innerText(), before);
    await page.getByRole('slider', { name: /^Position of k/ }).fill('20');
    assert.notEqual(await product.innerText(), before);
    await page.getByRole('slider', { name: /^Factor/ }).fill('32');
    await page.waitForURL(/factor=32/);
    assert.deepEqual(await violations(page), []);
    assert.deepEqual(wrong, []);
    await page.context().close();
  });

  test('the model speaks with its own pairs and babbles with the others', async () => {
    const { page, wrong } = await visit(browser, site, 'learn/');
    await page.getByRole('button', { name: 'Let both write' }).click();
    await page.getByText('Both have written.').waitFor({ state: 'attached' });
    const [right, other] = await page.locator('.two-texts-text').allInnerTexts();
    assert.ok(right!.length > 80 && other!.length > 80);
    assert.notEqual(right, other);
    assert.deepEqual(wrong, []);
    await page.context().close();
  });
});
