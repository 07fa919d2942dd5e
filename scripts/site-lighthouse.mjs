/**
 * Measures the pages of the built site on this machine's Chromium, three runs each, and writes the medians to
 * site/lighthouse.json: Lighthouse's scores on the phone profile, its paint times on slow 3G with the CPU at a sixth, and,
 * with that CPU alone, the step of a slider, a visit of the museum and its height. CI does not run it: on a shared machine
 * only accessibility and sizes are stable, and tests already check those.
 *
 * Usage: npm run site:build && npx tsx scripts/site-lighthouse.mjs [PAGE…]
 *
 * Named pages are measured alone, and the others keep the figures of their own day.
 */
import { execFile, spawnSync } from 'node:child_process';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { PAGES } from '../site/build/page-list.ts';
import { openChromium, serve } from '../test/support/browser.ts';

const ROOT = fileURLToPath(new URL('..', import.meta.url));
const HOME = join(ROOT, '.scratch/lighthouse');
const VERSION = '12.8.2'; // the last one for Node 20
const UNDER = '/some/where/';
const RUNS = 3;
/** Pages that the list does not have: of Docs, of the API reference, and of one bug. */
const OTHERS = ['docs', 'docs/diagnose', 'docs/api/ropewalk', 'museum/angle-recurrence-in-f32'];
/** The pages with sliders. */
const SLIDERS = ['', 'learn', 'explore', 'aicore'];
const STEPS = 9;
const PHONE = { width: 375, height: 667 };
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

const middle = (values) => values.sort((a, b) => a - b)[values.length >> 1];

/** Takes the median of each number over the runs. */
async function medians(measure) {
  const runs = [];
  for (let n = 0; n < RUNS; n++) runs.push(await measure());
  return Object.fromEntries(Object.keys(runs[0]).map((name) => [name, middle(runs.map((run) => run[name]))]));
}

/** Opens a page on a phone whose CPU is slowed down, without a cache, and closes it after the measurement. */
async function onSlowPhone(url, measure) {
  const context = await browser.newContext({ viewport: PHONE, deviceScaleFactor: 2, isMobile: true, hasTouch: true });
  const page = await context.newPage();
  const devtools = await context.newCDPSession(page);
  await devtools.send('Emulation.setCPUThrottlingRate', { rate: SLOW_3G.cpuSlowdownMultiplier });
  await page.goto(url);
  const found = await measure(page);
  await context.close();
  return found;
}

/**
 * Presses the arrow key on each slider. A step takes from the key to the paint of the last change that it made; a figure is
 * drawn one frame after its slider. Each slider has the median of its steps, and the slowest one counts.
 */
const sliderStep = (url) =>
  onSlowPhone(url, async (page) => {
    const sliders = page.locator('#app:not(:disabled) input[type=range]');
    await sliders.first().waitFor();
    await page.waitForTimeout(3000); // the page's first work is over
    await page.evaluate(() => {
      const painted = () =>
        requestAnimationFrame(() => setTimeout(() => (globalThis.stepMs = performance.now() - globalThis.began)));
      addEventListener('input', ({ timeStamp }) => {
        globalThis.began = timeStamp;
        requestAnimationFrame(painted);
      });
      new MutationObserver(painted).observe(document.querySelector('main'), {
        subtree: true,
        childList: true,
        attributes: true,
        characterData: true,
      });
    });
    const slowest = [];
    for (const slider of await sliders.all()) {
      const times = [];
      for (let n = 0; n < STEPS; n++) {
        await slider.press(n === 0 ? 'Home' : 'ArrowRight');
        await page.waitForTimeout(400);
        if (n > 0) times.push(await page.evaluate(() => globalThis.stepMs));
      }
      slowest.push(middle(times));
    }
    return { sliderStepMs: Math.round(Math.max(...slowest)) };
  });

/** A visit lasts until the page and the pictures that it asked for are loaded, and the last task over 50 ms has ended. */
const museumVisit = (url) =>
  onSlowPhone(url, async (page) => {
    await page.waitForTimeout(3000);
    return page.evaluate(async () => {
      const ends = [];
      for (const type of ['navigation', 'resource', 'largest-contentful-paint', 'longtask'])
        new PerformanceObserver((list) => {
          for (const { initiatorType, startTime, duration } of list.getEntries())
            if (type !== 'resource' || initiatorType === 'img') ends.push(startTime + duration);
        }).observe({ type, buffered: true });
      await new Promise((resolve) => setTimeout(resolve, 500));
      return { visitMs: Math.round(Math.max(...ends)), heightPx: document.documentElement.scrollHeight };
    });
  });

const browser = await openChromium();
const site = await serve({ folders: { [UNDER]: join(ROOT, 'site/dist') }, gzip: true });
const named = process.argv.slice(2);
const slow = [
  '--throttling-method=devtools',
  ...Object.entries(SLOW_3G).map(([name, value]) => `--throttling.${name}=${value}`),
];
const FILE = join(ROOT, 'site/lighthouse.json');
const date = new Date().toISOString().slice(0, 10);
const pages = named.length > 0 ? JSON.parse(readFileSync(FILE, 'utf8')).pages : {};
for (const path of named.length > 0 ? named : [...PAGES.map((page) => page.path), ...OTHERS]) {
  const url = `${site.origin}${UNDER}${path ? `${path}/` : ''}`;
  const phone = await medians(() => measured(url, []));
  const { largestContentfulPaintMs, cumulativeLayoutShift } = await medians(() =>
    measured(url, ['--only-categories=performance', ...slow]),
  );
  pages[path || 'home'] = {
    date,
    ...phone,
    slow3G: { largestContentfulPaintMs, cumulativeLayoutShift },
    ...(SLIDERS.includes(path) && { slowCpu: await medians(() => sliderStep(url)) }),
    ...(path === 'museum' && { slowCpu: await medians(() => museumVisit(url)) }),
  };
  console.log(path || 'home', JSON.stringify(pages[path || 'home']));
}
await browser.close();
site.close();
const chromium = spawnSync(CHROMIUM, ['--version'], { encoding: 'utf8' }).stdout.trim();
const report = { lighthouse: VERSION, chromium, profile: 'phone', runs: RUNS, slow3G: SLOW_3G, pages };
writeFileSync(FILE, `${JSON.stringify(report, null, 2)}\n`);
