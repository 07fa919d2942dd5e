/**
 * Measures the pages of the built site with Lighthouse on this machine's Chromium, three runs each, and writes the medians
 * to site/lighthouse.json: scores on the phone profile, and paint times on slow 3G with the CPU at a sixth. CI does not run
 * it: on a shared machine only accessibility and sizes are stable, and tests already check those.
 *
 * Usage: npm run site:build && npx tsx scripts/site-lighthouse.mjs [PAGE…]
 *
 * Named pages are measured alone, and printed only.
 */
import { execFile, spawnSync } from 'node:child_process';
import { existsSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { PAGES } from '../site/build/page-list.ts';
import { serve } from '../test/support/browser.ts';

const ROOT = fileURLToPath(new URL('..', import.meta.url));
const HOME = join(ROOT, '.scratch/lighthouse');
const VERSION = '12.8.2'; // the last one for Node 20
const UNDER = '/some/where/';
const RUNS = 3;
/** A page of each kind that the list does not have: of Docs, and of one bug. */
const OTHERS = ['docs/diagnose', 'museum/angle-recurrence-in-f32'];
const CHROMIUM = process.env.CHROMIUM ?? '/usr/bin/chromium';
/** Chromium itself waits and computes slowly here; the scores above are simulated by Lighthouse. */
const SLOW_3G = {
  requestLatencyMs: 400,
  downloadThroughputKbps: 400,
  uploadThroughputKbps: 400,
  cpuSlowdownMultiplier: 6,
};

const cli = join(HOME, 'node_modules/lighthouse/cli/index.js');
if (!existsSync(cli))
  spawnSync('npm', ['install', '--prefix', HOME, '--no-save', '--no-audit', '--no-fund', `lighthouse@${VERSION}`]);

/** Runs Lighthouse in a separate process, so that this one can serve. */
async function measured(url, options) {
  const argv = [
    cli,
    url,
    '--output=json',
    '--quiet',
    '--chrome-flags=--headless=new --no-sandbox --disable-quic',
    ...options,
  ];
  const text = await new Promise((resolve, reject) =>
    execFile(
      process.execPath,
      argv,
      { env: { ...process.env, CHROME_PATH: CHROMIUM }, maxBuffer: 2 ** 28 },
      (error, stdout) => (stdout ? resolve(stdout) : reject(error)),
    ),
  );
  const { categories, audits } = JSON.parse(text);
  const value = (name) => audits[name]?.numericValue ?? 0;
  return {
    ...Object.fromEntries(Object.entries(categories).map(([name, { score }]) => [name, Math.round(100 * score)])),
    largestContentfulPaintMs: Math.round(value('largest-contentful-paint')),
    cumulativeLayoutShift: Number(value('cumulative-layout-shift').toFixed(3)),
    totalBlockingTimeMs: Math.round(value('total-blocking-time')),
  };
}

/** Takes the median of each number over the runs. */
async function medians(url, options) {
  const runs = [];
  for (let n = 0; n < RUNS; n++) runs.push(await measured(url, options));
  const middle = (name) => runs.map((run) => run[name]).sort((a, b) => a - b)[RUNS >> 1];
  return Object.fromEntries(Object.keys(runs[0]).map((name) => [name, middle(name)]));
}

const site = await serve({ folders: { [UNDER]: join(ROOT, 'site/dist') }, gzip: true });
const named = process.argv.slice(2);
const slow = [
  '--throttling-method=devtools',
  ...Object.entries(SLOW_3G).map(([name, value]) => `--throttling.${name}=${value}`),
];
const pages = {};
for (const path of named.length > 0 ? named : [...PAGES.map((page) => page.path), ...OTHERS]) {
  const url = `${site.origin}${UNDER}${path ? `${path}/` : ''}`;
  const phone = await medians(url, []);
  const { largestContentfulPaintMs, cumulativeLayoutShift } = await medians(url, [
    '--only-categories=performance',
    ...slow,
  ]);
  pages[path || 'home'] = { ...phone, slow3G: { largestContentfulPaintMs, cumulativeLayoutShift } };
  console.log(path || 'home', JSON.stringify(pages[path || 'home']));
}
site.close();
const chromium = spawnSync(CHROMIUM, ['--version'], { encoding: 'utf8' }).stdout.trim();
const date = new Date().toISOString().slice(0, 10);
const report = { lighthouse: VERSION, chromium, profile: 'phone', runs: RUNS, slow3G: SLOW_3G, date, pages };
if (named.length === 0) writeFileSync(join(ROOT, 'site/lighthouse.json'), `${JSON.stringify(report, null, 2)}\n`);
