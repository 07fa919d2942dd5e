/** Tests the page Learn: its figures move, the product depends on the distance, and wrong pairs spoil the text. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { noBrowser } from '../support/browser.js';
import { openedSite, violations } from '../support/site.js';

describe('Learn in Chromium', { skip: noBrowser }, () => {
  const opened = openedSite();

  test('the product keeps when both move, and changes when one does', async () => {
    const { page, wrong } = await opened.visit('learn/');
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
    // A step of a slider draws on the same canvas again.
    const chart = page.getByRole('img', { name: /^What linear/ }).locator('canvas');
    const drawn = await chart.evaluate((canvas: HTMLCanvasElement) => {
      canvas.id = 'kept';
      return canvas.toDataURL();
    });
    await page.getByRole('slider', { name: /^Factor/ }).fill('32');
    await page.waitForURL(/factor=32/);
    const kept = page.locator('#kept');
    assert.notEqual(await kept.evaluate((canvas: HTMLCanvasElement) => canvas.toDataURL()), drawn);
    assert.deepEqual(await violations(page), []);
    assert.deepEqual(wrong, []);
    await page.context().close();
  });

  test('the model speaks with its own pairs and babbles with the others', async () => {
    const { page, wrong } = await opened.visit('learn/');
    await page.getByRole('button', { name: 'Let both write' }).click();
    await page.getByText('Both have written.').waitFor({ state: 'attached' });
    const [right, other] = await page.locator('.two-texts-text').allInnerTexts();
    assert.ok(right!.length > 80 && other!.length > 80);
    assert.notEqual(right, other);
    assert.deepEqual(wrong, []);
    await page.context().close();
  });
});
