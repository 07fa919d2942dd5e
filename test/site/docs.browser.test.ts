/** Tests Docs: every link has a target, the search finds pages, and examples run in the page. */
import assert from 'node:assert/strict';
import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { DOCS_PAGES } from '../../site/build/docs.js';
import { noBrowser, SOFTWARE_GPU } from '../support/browser.js';
import { DIST, htmlPages, openedSite, UNDER, violations } from '../support/site.js';
import { until } from '../support/until.js';

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

test('the API reference is among the pages where npm run docs has written it', () => {
  const home = htmlPages().get('docs/')!;
  const written = existsSync(join(DIST, '../../docs/api/README.md'));
  assert.equal(home.includes('href="api/ropewalk/reference/"'), written);
  assert.equal(home.includes('It is not in this build'), !written);
});

describe('Docs in Chromium', { skip: noBrowser }, () => {
  const opened = openedSite({ flags: SOFTWARE_GPU });

  test('an API page is at most 20 screens long, and a link to a part of it unfolds that', async (t) => {
    if (!existsSync(join(DIST, '../../docs/api/README.md'))) return t.skip('no API reference is built: npm run docs');
    const { page } = await opened.visit('docs/api/ropewalk/');
    assert.ok(((await page.evaluate('document.documentElement.scrollHeight / innerHeight')) as number) <= 20);
    await page.goto(`${opened.site.origin}${UNDER}docs/api/ropewalk/#allocate`);
    const part = page.locator('#allocate');
    await until(
      () => part.evaluate((one) => one.checkVisibility() && Math.abs(one.getBoundingClientRect().top) < innerHeight),
      'the part is in sight',
    );
    await page.context().close();
  });

  test('a page reads without JavaScript', async () => {
    const context = await opened.browser.newContext({ javaScriptEnabled: false });
    const page = await context.newPage();
    await page.goto(`${opened.site.origin}${UNDER}docs/cpu/`);
    assert.ok((await page.locator('article').innerText()).length > 2000);
    assert.ok((await page.locator('.docs-side a').count()) > 30);
    await context.close();
  });

  test('the search finds sections from the keyboard, and its words lie in the address', async () => {
    const { page, wrong } = await opened.visit('docs/');
    await page.getByLabel('Search the docs').fill('known bugs');
    await page.waitForURL(/\?q=known\+bugs$/);
    await page.locator('.docs-results a').first().waitFor();
    await page.keyboard.press('ArrowDown');
    await page.keyboard.press('Enter');
    await page.waitForURL(/docs\/.+\/#/);
    // A question, and the words that peers use, lead to the glossary.
    for (const [asked, first] of [
      ['half vs interleaved', /\/docs\/glossary\/#(half|interleaved|pairing)/],
      ['What is rope_theta', /\/docs\/glossary\/#base/],
      ['GQA', /\/docs\/glossary\/#kv-heads/],
      ['webgpu fallback', /\/docs\/webgpu\/#when-it-fails/],
      ['longrope', /\/docs\/glossary\/#longrope/],
    ] as const) {
      await page.goto(`${opened.site.origin}${UNDER}docs/?q=${encodeURIComponent(asked)}`);
      assert.match((await page.locator('.docs-results a').first().getAttribute('href'))!, first, asked);
    }
    await page.goto(`${opened.site.origin}${UNDER}docs/?q=zzqqxx`);
    await page.getByText('Nothing found').waitFor();
    assert.deepEqual(wrong, []);
    await page.context().close();
  });

  test('every example with a Run button runs in the page and prints what the page says', async () => {
    const { page, wrong } = await opened.visit('docs/cpu/');
    const pages = DOCS_PAGES.filter(({ content }) => content?.includes('data-example'));
    const differ: string[] = [];
    let ran = 0;
    for (const { path } of pages) {
      await page.goto(`${opened.site.origin}${UNDER}${path}/`);
      const examples = page.locator('[data-example]');
      for (let i = 0; i < (await examples.count()); i++) {
        await examples.nth(i).getByRole('button', { name: 'Run' }).click();
        const said = examples.nth(i).locator('xpath=following-sibling::p[1]');
        await said.filter({ hasText: 'Ran in this page' }).waitFor();
        const output = await examples.nth(i).locator('xpath=following-sibling::pre[1]').innerText();
        // These examples print the browser or its threads, but their pages show the output in Node.
        if (!['docs/webnn', 'docs/cpu'].includes(path) && /not the same/.test(await said.innerText()))
          differ.push(`${path} ${i}: ${output}`);
        ran++;
      }
    }
    assert.deepEqual(differ, []);
    assert.ok(ran >= 10, `${ran} examples`);
    assert.deepEqual(wrong, []);
    await page.context().close();
  });

  for (const dark of [false, true])
    test(`long pages in ${dark ? 'dark' : 'light'} on a phone and a desktop`, async () => {
      for (const path of ['docs/', 'docs/cli/', 'docs/dialects/cann/']) {
        const { page, wrong } = await opened.visit(path, { dark });
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
});
