/** Builds the site once per run, serves it under a sub-path, and watches for errors and forbidden requests. */
import { spawnSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before } from 'node:test';
import type { Browser, Page } from 'playwright-core';
import { openChromium, type Site, serve } from './browser.js';
import { builtPackage, ROOT } from './build.js';
import { once } from './once.js';

/** The folder of the site's files after {@link builtSite}. */
export const DIST: string = join(ROOT, 'site/dist');
/** The path under which the tests serve it. */
export const UNDER = '/some/where/';

/** Builds site/dist once per run. */
export function builtSite(): void {
  builtPackage('cli');
  once('site', () => {
    const vite = join(ROOT, 'node_modules/vite/bin/vite.js');
    const { status, stderr } = spawnSync(process.execPath, [vite, 'build', 'site', '--logLevel', 'warn'], {
      cwd: ROOT,
      encoding: 'utf8',
    });
    if (status !== 0) throw new Error(`vite build site: ${stderr}`);
  });
}

/** Reads the HTML of every page, by its path. */
export function htmlPages(): Map<string, string> {
  builtSite();
  return new Map(
    readdirSync(DIST, { recursive: true, encoding: 'utf8' })
      .map((name) => name.replaceAll('\\', '/'))
      .filter((name) => name.endsWith('index.html'))
      .map((name) => [name.slice(0, -'index.html'.length), readFileSync(join(DIST, name), 'utf8')]),
  );
}

/** The headers of a cross-origin isolated site, which may use threads. */
export const ISOLATED = {
  'cross-origin-opener-policy': 'same-origin',
  'cross-origin-embedder-policy': 'require-corp',
};

/** Builds and serves the site. The caller closes it. */
export function serveSite(headers: Readonly<Record<string, string>> = {}): Promise<Site> {
  builtSite();
  return serve({ folders: { [UNDER]: DIST }, headers });
}

/** A page of the site, with its faults: errors on the console and requests to other hosts. */
export interface Watched {
  readonly page: Page;
  readonly wrong: readonly string[];
}

/**
 * Opens a page of the site.
 *
 * @param path - the path below the site's root, such as `explore/?model=…`
 */
export async function visit(
  browser: Browser,
  site: Site,
  path: string,
  options: { readonly width?: number; readonly dark?: boolean } = {},
): Promise<Watched> {
  const page = await browser.newPage({
    viewport: { width: options.width ?? 1280, height: 900 },
    colorScheme: options.dark ? 'dark' : 'light',
  });
  const wrong: string[] = [];
  page.on('console', (message) => {
    if (message.type() === 'error') wrong.push(`console: ${message.text()}`);
  });
  page.on('pageerror', (error) => wrong.push(`error: ${error.message}`));
  page.on('request', (request) => {
    const url = new URL(request.url());
    if (/^https?:$/.test(url.protocol) && url.origin !== site.origin) wrong.push(`request: ${url}`);
  });
  await page.goto(`${site.origin}${UNDER}${path}`);
  await page.locator('main h1').first().waitFor();
  return { page, wrong };
}

/** A browser and the site, while the tests of a suite run. */
export interface Opened {
  readonly browser: Browser;
  readonly site: Site;
  /** Opens a page of the site, as the function does. */
  readonly visit: (path: string, options?: Parameters<typeof visit>[3]) => Promise<Watched>;
}

/** Serves the site and opens Chromium before the tests of the suite that calls it, and closes both after them. */
export function openedSite(
  options: { readonly headers?: Readonly<Record<string, string>>; readonly flags?: readonly string[] } = {},
): Opened {
  let site: Site | undefined;
  let browser: Browser | undefined;
  before(async () => {
    site = await serveSite(options.headers);
    browser = await openChromium(options.flags);
  });
  after(async () => {
    await browser?.close();
    site?.close();
  });
  return {
    get browser() {
      return browser!;
    },
    get site() {
      return site!;
    },
    visit: (path, given) => visit(browser!, site!, path, given),
  };
}

let axe: string | undefined;

/** Returns the findings of axe-core on a page, as `rule: the first element that breaks it`. */
export async function violations(page: Page): Promise<readonly string[]> {
  axe ??= readFileSync(join(ROOT, 'node_modules/axe-core/axe.min.js'), 'utf8');
  await page.evaluate(axe);
  return page.evaluate(async () => {
    // biome-ignore lint/suspicious/noExplicitAny: axe-core put itself on the window.
    const { violations } = await (globalThis as any).axe.run();
    return violations.map(
      ({ id, help, nodes }: { id: string; help: string; nodes: { html: string }[] }) =>
        `${id}: ${help}: ${nodes[0]!.html.slice(0, 200)}`,
    );
  });
}
