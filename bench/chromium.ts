/**
 * Runs the session of a GPU, or of WebNN, in Chromium: it serves a page and waits for the page's result.
 *
 * @module
 */
import { createReadStream, existsSync, statSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { dirname, extname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { SessionResult } from '@ropewalk/bench/internal';
import { build } from 'esbuild';
import { type Browser, chromium, type Page } from 'playwright-core';
import { IMPORTS, openWebnnChromium } from '../test/support/browser.js';
import type { PageTask } from './page.js';
import { findInstalled } from './peers/installed.js';
import type { SessionOptions } from './rivals.js';

/** The name of a WebGPU adapter. `swiftshader` is the software driver that Chromium contains. */
export type AdapterName = 'default' | 'swiftshader';

const FLAGS: Readonly<Record<AdapterName, readonly string[]>> = {
  default: ['--enable-unsafe-webgpu', '--enable-features=Vulkan'],
  swiftshader: ['--enable-unsafe-webgpu', '--use-webgpu-adapter=swiftshader'],
};
/** These headers isolate the page: its clock then has steps of 5 µs instead of 100 µs, and it may use threads. */
const HEADERS = { 'cross-origin-opener-policy': 'same-origin', 'cross-origin-embedder-policy': 'require-corp' };
const TYPES: Readonly<Record<string, string>> = {
  '.js': 'text/javascript',
  '.mjs': 'text/javascript',
  '.wasm': 'application/wasm',
};

/**
 * Runs the cases in a page.
 *
 * @param options - which cases and peers
 * @param adapter - the adapter. Default: the default adapter, or swiftshader if there is none
 * @param progress - called with the label of each case before it runs
 * @throws Error when there is no Chromium, or no adapter
 */
export async function runInChromium(
  options: SessionOptions,
  adapter: AdapterName | undefined,
  progress: (label: string) => void,
): Promise<SessionResult> {
  const ort = findInstalled('onnxruntime-web');
  const tried: readonly AdapterName[] = adapter ? [adapter] : ['default', 'swiftshader'];
  const here = dirname(fileURLToPath(import.meta.url));
  const folders = {
    '/packages/': join(here, '../packages'),
    ...(typeof ort !== 'string' && { '/ort/': dirname(ort.entry) }),
  };
  const server = await servePage({ entry: join(here, 'page.ts'), module: '/bench/page.js', folders });
  try {
    for (const name of tried) {
      const browser = await launchChromium(FLAGS[name]);
      try {
        const page = await browser.newPage();
        await page.goto(originOf(server));
        if (!(await page.evaluate('navigator.gpu?.requestAdapter().then((adapter) => adapter !== null)'))) continue;
        page.on('console', (message) => (message.type() === 'log' ? progress(message.text()) : undefined));
        const asked = options.peers.includes('ort-webgpu') && {
          ort: typeof ort === 'string' ? { leftOut: ort } : { version: ort.version },
        };
        return await runTask(page, { options, where: `Chromium ${browser.version()}`, ...asked });
      } finally {
        await browser.close();
      }
    }
  } finally {
    server.close();
  }
  throw new Error(`chromium: expected a WebGPU adapter (${tried.join(' or ')}), got none`);
}

/**
 * Runs the cases of webnn in a page of the Chromium whose WebNN computes.
 *
 * @param options - which cases, and whether cpu takes its turns
 * @param progress - called with the label of each case before it runs
 * @throws Error when that Chromium does not start here
 */
export async function runWebnnInChromium(
  options: SessionOptions,
  progress: (label: string) => void,
): Promise<SessionResult> {
  const here = dirname(fileURLToPath(import.meta.url));
  const server = await servePage({
    entry: join(here, 'page.ts'),
    module: '/bench/page.js',
    folders: { '/packages/': join(here, '../packages'), '/modules/': join(here, '../node_modules') },
  });
  try {
    const browser = await openWebnnChromium();
    try {
      const page = await browser.newPage();
      page.setDefaultTimeout(0);
      page.on('console', (message) => (message.type() === 'log' ? progress(message.text()) : undefined));
      await page.goto(originOf(server));
      return await runTask(page, { options, where: `Chromium ${browser.version()}` });
    } finally {
      await browser.close();
    }
  } finally {
    server.close();
  }
}

function runTask(page: Page, task: PageTask): Promise<SessionResult> {
  return page.evaluate(`import('/bench/page.js').then(({ runInPage }) => runInPage(${JSON.stringify(task)}))`);
}

/**
 * Starts the machine's own Chromium; the caller closes it.
 *
 * @param flags - are added to the flags that keep Chromium quiet
 * @throws Error when there is no Chromium
 */
export function launchChromium(flags: readonly string[]): Promise<Browser> {
  const candidates = [process.env.CHROMIUM, '/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'];
  const executablePath = candidates.find((path) => path && existsSync(path));
  if (!executablePath) throw new Error('chromium: expected one, got none. Install it, or set CHROMIUM to its path.');
  return chromium.launch({ executablePath, args: ['--no-sandbox', '--disable-background-networking', ...flags] });
}

/** The page loads the built packages by this map. A bundled second copy would not accept the tensors of the first. */
const IMPORT_MAP = JSON.stringify({
  imports: Object.fromEntries(
    Object.entries(IMPORTS).map(([name, path]) => [name, path.replace(/^\/dist/, '/packages/ropewalk/dist')]),
  ),
});

/** The files that a page needs. */
export interface Site {
  /** The module that is bundled. */
  readonly entry: string;
  /** The address at which the page loads the bundled module. */
  readonly module: string;
  /** Folders and single files, by the start of their addresses. */
  readonly folders: Readonly<Record<string, string>>;
}

/**
 * Serves an empty, isolated page. The caller closes the server.
 *
 * @param site - the files of the page
 */
export async function servePage({ entry, module, folders }: Site): Promise<Server> {
  const { outputFiles } = await build({
    entryPoints: [entry],
    bundle: true,
    external: ['ropewalk', 'ropewalk/*'],
    tsconfig: fileURLToPath(new URL('./tsconfig.run.json', import.meta.url)),
    format: 'esm',
    target: 'es2022',
    write: false,
    logLevel: 'error',
  });
  const server = createServer((request, response) => {
    const { pathname: path } = new URL(request.url!, 'http://localhost');
    for (const [name, value] of Object.entries(HEADERS)) response.setHeader(name, value);
    if (path === '/')
      return response
        .setHeader('content-type', 'text/html')
        .end(`<!doctype html><title>ropewalk</title><script type="importmap">${IMPORT_MAP}</script>`);
    if (path === module) return response.setHeader('content-type', TYPES['.js']!).end(outputFiles[0]!.contents);
    const [start, place] = Object.entries(folders).find(([prefix]) => path.startsWith(prefix)) ?? [];
    const file = place === undefined ? '' : join(place, path.slice(start!.length));
    const found = statSync(file, { throwIfNoEntry: false });
    if (!found?.isFile()) return response.writeHead(404).end();
    response.setHeader('content-type', TYPES[extname(file)] ?? 'application/octet-stream');
    response.setHeader('content-length', found.size);
    return createReadStream(file).pipe(response);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return server;
}

/** Returns the origin of a server that {@link servePage} started. */
export function originOf(server: Server): string {
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}
