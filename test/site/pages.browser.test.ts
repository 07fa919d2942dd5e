/** Tests every page of the site: it opens under a sub-path, is accessible, fits a phone, and loads little. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { gzipSync } from 'node:zlib';
import { PAGES } from '../../site/build/page-list.js';
import { pageHtml } from '../../site/build/pages.js';
import { noBrowser, SOFTWARE_GPU } from '../support/browser.js';
import { builtSite, DIST, htmlPages, openedSite, UNDER, violations } from '../support/site.js';

/** Returns the gzipped bytes of the scripts that a page loads first: its entry and the entry's static imports. */
function firstLoad(path: string): number {
  const html = readFileSync(join(DIST, path, 'index.html'), 'utf8');
  const files = new Set([...html.matchAll(/(?:src|href)="(?:\.\.?\/)*(assets\/[^"]+\.js)"/g)].map(([, file]) => file!));
  for (const file of files)
    for (const [, name] of readFileSync(join(DIST, file), 'utf8').matchAll(/(?:from|import)\s*"\.\/([^"]+\.js)"/g))
      files.add(`assets/${name}`);
  return [...files].reduce((sum, file) => sum + gzipSync(readFileSync(join(DIST, file))).length, 0);
}

test('Home loads at most 60 kB of script, gzipped', () => {
  builtSite();
  const bytes = firstLoad('');
  assert.ok(bytes > 1000 && bytes <= 60_000, `${bytes} bytes`);
});

test('what pages say of the project is so', () => {
  const pages = htmlPages();
  const home = pages.get('')!;
  assert.match(home, /Nothing is published yet: the commands and imports below need an <a [^>]*>install from a clone/);
  assert.match(home, /GPUs have no f64, and leave those cases out/);
  assert.match(home, /After the first visit this browser fetches the other pages too, \d+\.\d MB/);
  assert.doesNotMatch(home, /npm install ropewalk/);
  for (const [path, html] of pages) assert.doesNotMatch(html, /your own CPU, GPU and NPU/, path);
  const learn = /raises the base: the first pair keeps its speed, and each next one loses more/;
  assert.match(pages.get('learn/')!, learn);
});

test('every page has a link to the repository and its issues once the address is known', () => {
  const [home] = PAGES;
  assert.doesNotMatch(pageHtml(home!, '', true, ''), /issues/);
  const html = pageHtml(home!, '', true, 'https://example.org/a"b');
  assert.match(html, /<a href="https:\/\/example\.org\/a&quot;b">Source<\/a>/);
  assert.match(html, /<a href="https:\/\/example\.org\/a&quot;b\/issues">issues<\/a>/);
});

describe('every page without scripts in Chromium', { skip: noBrowser }, () => {
  const opened = openedSite();
  for (const { path } of PAGES.filter(({ lead }) => lead))
    test(`${path || 'home'} says nothing that it does not say with them, and its controls are disabled`, async () => {
      /** The texts of a page, but for those that only a page without scripts shows. */
      const texts = async (javaScriptEnabled: boolean): Promise<readonly string[]> => {
        const page = await opened.browser.newPage({ javaScriptEnabled });
        await page.goto(`${opened.site.origin}${UNDER}${path}${path && '/'}`);
        if (javaScriptEnabled) await page.locator('#app:enabled').waitFor({ state: 'attached' });
        else assert.equal(await page.locator('#app :enabled').count(), 0);
        const found = await page.locator('#app').evaluate((app) => {
          const walker = document.createTreeWalker(app, NodeFilter.SHOW_TEXT);
          const all: string[] = [];
          while (walker.nextNode())
            if (!walker.currentNode.parentElement!.closest('noscript')) all.push(walker.currentNode.nodeValue!);
          return all;
        });
        await page.close();
        return found;
      };
      const [without, live] = [await texts(false), (await texts(true)).join('')];
      assert.deepEqual(
        without.filter((text) => !live.includes(text)),
        [],
      );
      assert.ok(without.join('').length > 150, without.join(''));
    });
});

describe('every page of the site in Chromium', { skip: noBrowser }, () => {
  const opened = openedSite({ flags: SOFTWARE_GPU });
  for (const { path } of PAGES)
    for (const dark of [false, true])
      test(`${path || 'home'} in ${dark ? 'dark' : 'light'} on a phone and a desktop`, async () => {
        const { page, wrong } = await opened.visit(`${path}${path && '/'}`, { dark });
        for (const width of [1440, 375]) {
          await page.setViewportSize({ width, height: 800 });
          assert.deepEqual(await violations(page), [], `axe-core at ${width} px`);
          const wide = await page.evaluate(() => document.documentElement.scrollWidth);
          assert.ok(wide <= width, `at ${width} px the page is ${wide} px wide`);
        }
        assert.deepEqual(wrong, []);
        await page.context().close();
      });
});
