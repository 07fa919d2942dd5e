/**
 * Takes pictures of every page of the built site at 320, 375, 768 and 1440 px, dark and light, and the picture of README,
 * docs/site.png.
 *
 * Usage: npm run site:build && npx tsx scripts/site-screenshots.mjs [FOLDER]. Default: .scratch/site
 */
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { PAGES } from '../site/build/page-list.ts';
import { openChromium, SOFTWARE_GPU, serve } from '../test/support/browser.ts';
import { DIST, UNDER, visit } from '../test/support/site.ts';

const folder = process.argv[2] ?? '.scratch/site';
mkdirSync(folder, { recursive: true });
const site = await serve({ folders: { [UNDER]: DIST } });
const browser = await openChromium(SOFTWARE_GPU);
const take = async (path, file, options, whole) => {
  const { page } = await visit(browser, site, path, options);
  await page.waitForTimeout(1500); // wait for the figures that workers compute
  await page.screenshot({ path: file, fullPage: whole });
  await page.context().close();
};
for (const path of [...PAGES.map((page) => page.path), 'docs', 'docs/readme'])
  for (const width of [320, 375, 768, 1440])
    for (const dark of [false, true]) {
      const name = `${path.replaceAll('/', '-') || 'home'}-${width}-${dark ? 'dark' : 'light'}.png`;
      await take(`${path}${path && '/'}`, join(folder, name), { width, dark }, true);
    }
await take('explore/', 'docs/site.png', { width: 1100 }, false);
await browser.close();
site.close();
