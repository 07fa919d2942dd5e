/** Docs: every link leads somewhere, pages work without scripts, the search finds, and every example runs. */
import assert from 'node:assert/strict';
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import type { Browser } from 'playwright-core';
import { noBrowser, openChromium, type Site, SOFTWARE_GPU } from '../support/browser.js';
import { builtSite, DIST, ISOLATED, serveSite, UNDER, violations, visit } from '../support/site.js';

/** Every page's HTML by its path. */
function htmlPages(): Map<string, string> {
  builtSite();
  return new Map(
    readdirSync(DIST, { recursive: true, encoding: 'utf8' })
      .map((name) => name.replaceAll('\\', '/'))
      .filter((name) => name.endsWith('index.html'))
      .map((name) => [name.slice(0, -'index.html'.length), readFileSync(join(DIST, name), 'utf8')]),
  );
}

test('every link of every page leads to a page or a file, and every anchor to a heading', () => {
  const pages = htmlPages();
  const wrong: string[] = [];
  let links = 0;
  for (const [path, html] of pages)
    for (const [, href] of html.matchAll(/<a [^>]*href="([^"]+)"/g)) {
      if (/^https?:/.test(href!)) continue;
      links++;
      const url = new URL(href!, `http://site/${path}`);
      const to = pages.get(url.pathname.slice(1));
      const id = url.hash.slice(1).replaceAll('&amp;', '&');
      if (
        to === undefined
          ? !existsSync(join(DIST, url.pathname))
          : id !== '' && !to.includes(`id="${decodeURIComponent(id)}"`)
      )
        wrong.push(`${path}: ${href}`);
    }
  assert.ok(links > 1000, `${links} links`);
  assert.deepEqual(wrong, []);
});

test('every page of docs/ is in the navigation, in a group of its own kind', () => {
  const home = htmlPages().get('docs/')!;
  assert.doesNotMatch(home, /<h2>More<\/h2>/);
  for (const name of readdirSync(join(DIST, '../../docs')).filter((name) => name.endsWith('.md')))
    assert.ok(home.includes(`href="${name.slice(0, -3)}/"`), name);
});

describe('Docs in Chromium', { skip: noBrowser, timeout: 300_000 }, () => {
  let browser: Browser;
  let site: Site;
  before(async () => {
    site = await serveSite(ISOLATED);
    browser = await openChromium(SOFTWARE_GPU);
  });
  after(async () => {
    await browser.close();
    site.close();
  });

  test('the search finds a section, with the keyboard alone', async () => {
    const { page, wrong } = await visit(browser, site, 'docs/');
    await page.getByRole('searchbox', { name: 'Search the docs' }).focus();
    await page.keyboard.type('paste a kernel');
    const first = page.locator('.docs-results a').first();
    await first.waitFor();
    await page.waitForURL(/q=paste\+a\+kernel/);
    await page.keyboard.press('ArrowDown');
    await page.keyboard.press('Enter');
    await page.waitForURL(/docs\/verify\/#paste-a-kernel$/);
    assert.deepEqual(wrong, []);
    await page.context().close();
  });

  for (const dark of [false, true])
    test(`pages with tables and code are accessible and fit a phone, ${dark ? 'dark' : 'light'}`, async () => {
      for (const path of ['docs/', 'docs/readme/', 'docs/verify/', 'docs/features/', 'docs/dialects/cann/']) {
        const { page, wrong } = await visit(browser, site, path, { dark });
        for (const width of [1440, 375]) {
          await page.setViewportSize({ width, height: 800 });
          assert.deepEqual(await violations(page), [], `${path} at ${width} px`);
          const wide = await page.evaluate(() => document.documentElement.scrollWidth);
          assert.ok(wide <= width, `${path} at ${width} px is ${wide} px wide`);
        }
        assert.deepEqual(wrong, []);
        await page.context().close();
      }
    });

  test('without scripts a page is whole', async () => {
    const context = await browser.newContext({ javaScriptEnabled: false });
    const page = await context.newPage();
    await page.goto(`${site.origin}${UNDER}docs/diagnose/`);
    assert.match(await page.locator('article').innerText(), /Dump in three lines/);
    await context.close();
  });

  test('every example that has a button runs', async () => {
    const failed: string[] = [];
    let ran = 0;
    for (const [path, html] of htmlPages()) {
      if (!html.includes('data-example=')) continue;
      const { page, wrong } = await visit(browser, site, path);
      for (const block of await page.locator('[data-example]').all()) {
        const run = block.getByRole('button', { name: 'Run' });
        await run.click();
        const output = block.locator('+ pre.docs-output');
        await page.waitForFunction((button) => !button!.hasAttribute('disabled'), await run.elementHandle(), {
          timeout: 60_000,
        });
        const text = await output.innerText();
        if (text === '' || /\bfailed\b/.test((await output.getAttribute('class'))!)) failed.push(`${path}: ${text.slice(0, 300)}`);
        ran++;
      }
      failed.push(...wrong);
      await page.context().close();
    }
    assert.deepEqual(failed, []);
    assert.ok(ran > 10, `${ran} examples`);
  });
});
