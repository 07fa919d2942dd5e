/**
 * Runs the session of a GPU in Chromium: serves a page, and waits for what it gives.
 *
 * @module
 */
import { existsSync, readFileSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { dirname, extname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';
import { type Browser, chromium, type Page } from 'playwright-core';
import type { PageTask } from './page.js';
import { findInstalled } from './peers/installed.js';
import type { SessionOptions, SessionResult } from './session.js';

/** Which adapter: `swiftshader` is a driver in software, which Chromium brings. */
export type AdapterName = 'default' | 'swiftshader';

const FLAGS: Readonly<Record<AdapterName, readonly string[]>> = {
  default: ['--enable-unsafe-webgpu', '--enable-features=Vulkan'],
  swiftshader: ['--enable-unsafe-webgpu', '--use-webgpu-adapter=swiftshader'],
};
/** An isolated page has a clock of 5 µs, another one of 100 µs. */
const HEADERS = { 'cross-origin-opener-policy': 'same-origin', 'cross-origin-embedder-policy': 'require-corp' };
const TYPES: Readonly<Record<string, string>> = { '.js': 'text/javascript', '.mjs': 'text/javascript', '.wasm': 'application/wasm' };

/**
 * Runs the cases in a page.
 *
 * @param options - which cases and peers
 * @param adapter - which; unless given the default one, and swiftshader where there is none
 * @param progress - told the label of each case before it runs
 * @throws Error when there is no Chromium, or no adapter
 */
export async function runInChromium(
  options: SessionOptions,
  adapter: AdapterName | undefined,
  progress: (label: string) => void,
): Promise<SessionResult> {
  const ort = findInstalled('onnxruntime-web');
  const tried: readonly AdapterName[] = adapter ? [adapter] : ['default', 'swiftshader'];
  const server = await serve(typeof ort === 'string' ? undefined : dirname(ort.entry));
  const origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  try {
    for (const name of tried) {
      const browser = await launchChromium(FLAGS[name]);
      try {
        const page = await browser.newPage();
        await page.goto(origin);
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

function runTask(page: Page, task: PageTask): Promise<SessionResult> {
  return page.evaluate(`import('/bench/page.js').then(({ runInPage }) => runInPage(${JSON.stringify(task)}))`);
}

/**
 * Starts the machine's own Chromium; the caller closes it.
 *
 * @param flags - beside those that keep it quiet
 * @throws Error when there is none
 */
export function launchChromium(flags: readonly string[]): Promise<Browser> {
  const candidates = [process.env.CHROMIUM, '/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome'];
  const executablePath = candidates.find((path) => path && existsSync(path));
  if (!executablePath) throw new Error('chromium: expected one, got none. Install it, or set CHROMIUM to its path.');
  return chromium.launch({ executablePath, args: ['--no-sandbox', '--disable-background-networking', ...flags] });
}

/** Serves an empty page, the library as it was built, this benchmark as one file, and ONNX Runtime. */
async function serve(ort: string | undefined): Promise<Server> {
  const here = dirname(fileURLToPath(import.meta.url));
  const entry = join(here, 'page.ts');
  const { outputFiles } = await build({
    entryPoints: [entry],
    bundle: true,
    format: 'esm',
    target: 'es2022',
    write: false,
    logLevel: 'error',
  });
  const folders = { '/dist/': join(here, '../dist'), ...(ort && { '/ort/': ort }) };
  const server = createServer((request, response) => {
    const { pathname: path } = new URL(request.url!, 'http://localhost');
    for (const [name, value] of Object.entries(HEADERS)) response.setHeader(name, value);
    if (path === '/') return response.setHeader('content-type', 'text/html').end('<!doctype html><title>ropewalk</title>');
    if (path === '/bench/page.js') return response.setHeader('content-type', TYPES['.js']!).end(outputFiles[0]!.contents);
    const [start, folder] = Object.entries(folders).find(([prefix]) => path.startsWith(prefix)) ?? [];
    const file = folder === undefined ? '' : join(folder, path.slice(start!.length));
    if (!existsSync(file)) return response.writeHead(404).end();
    return response.setHeader('content-type', TYPES[extname(file)] ?? 'application/octet-stream').end(readFileSync(file));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return server;
}
