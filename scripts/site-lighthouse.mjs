/**
 * Measures the pages Home, Explore and Check of the built site with Lighthouse on this machine's Chromium, and writes
 * the scores to site/lighthouse.json. CI does not run it, because on a shared machine only accessibility and sizes are
 * stable, and tests already check those.
 *
 * Usage: npm run site:build && npx tsx scripts/site-lighthouse.mjs
 */
import { execFile, spawnSync } from 'node:child_process';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { serve } from '../test/support/browser.ts';

const ROOT = fileURLToPath(new URL('..', import.meta.url));
const HOME = join(ROOT, '.scratch/lighthouse');
const VERSION = '13.5.0';
const UNDER = '/some/where/';

const run = (command, argv, options = {}) =>
  spawnSync(command, argv, { cwd: ROOT, encoding: 'utf8', maxBuffer: 2 ** 28, ...options });

const cli = join(HOME, 'node_modules/lighthouse/cli/index.js');
if (!existsSync(cli))
  run('npm', ['install', '--prefix', HOME, '--no-save', '--no-audit', '--no-fund', `lighthouse@${VERSION}`]);

const site = await serve({ folders: { [UNDER]: join(ROOT, 'site/dist') } });
const pages = {};
for (const page of ['', 'explore/', 'check/']) {
  // Lighthouse runs in a separate process, so that this one can serve.
  const argv = [cli, `${site.origin}${UNDER}${page}`, '--output=json', '--quiet', '--preset=desktop'];
  argv.push('--chrome-flags=--headless=new --no-sandbox --disable-quic');
  const text = await new Promise((resolve, reject) => {
    const env = { ...process.env, CHROME_PATH: process.env.CHROMIUM ?? '/usr/bin/chromium' };
    execFile(process.execPath, argv, { env, maxBuffer: 2 ** 28 }, (error, stdout) =>
      stdout ? resolve(stdout) : reject(error),
    );
  });
  const { categories, audits } = JSON.parse(text);
  pages[page || 'home'] = {
    ...Object.fromEntries(Object.entries(categories).map(([name, { score }]) => [name, Math.round(100 * score)])),
    firstContentfulPaintMs: Math.round(audits['first-contentful-paint'].numericValue),
    interactiveMs: Math.round(audits.interactive.numericValue),
    totalBlockingTimeMs: Math.round(audits['total-blocking-time'].numericValue),
  };
}
site.close();
const chromium = run(process.env.CHROMIUM ?? '/usr/bin/chromium', ['--version']).stdout.trim();
const report = { lighthouse: VERSION, chromium, preset: 'desktop', date: new Date().toISOString().slice(0, 10), pages };
writeFileSync(join(ROOT, 'site/lighthouse.json'), `${JSON.stringify(report, null, 2)}\n`);
console.log(readFileSync(join(ROOT, 'site/lighthouse.json'), 'utf8'));
