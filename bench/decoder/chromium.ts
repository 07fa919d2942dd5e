/**
 * Runs a model in Chromium: serves a page, and waits for what it gives.
 *
 * @module
 */
import { createReadStream, existsSync, readFileSync, statSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { extname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';
import { launchChromium } from '../chromium.js';
import type { DecoderSession } from './measure.js';
import type { PageTask } from './page.js';

/** Threads need an isolated page. */
const HEADERS = { 'cross-origin-opener-policy': 'same-origin', 'cross-origin-embedder-policy': 'require-corp' };
const TYPES: Readonly<Record<string, string>> = { '.js': 'text/javascript', '.mjs': 'text/javascript', '.wasm': 'application/wasm' };
const ROOT = fileURLToPath(new URL('../..', import.meta.url));
const WLLAMA = join(ROOT, 'bench/node_modules/@wllama/wllama');
/** What the published decoder imports by name; a bundler would find it by itself. */
const IMPORTS = {
  '@huggingface/tokenizers': '/modules/@huggingface/tokenizers/dist/tokenizers.mjs',
  '@huggingface/jinja': '/modules/@huggingface/jinja/dist/index.js',
};

/**
 * Times a model in a page of its own.
 *
 * @param model - path of a GGUF
 * @param task - threads, workloads; whether wllama is asked
 * @param progress - told what runs
 * @throws Error when there is no Chromium
 */
export async function runInChromium(
  model: string,
  { askWllama, ...task }: Omit<PageTask, 'where' | 'wllama'> & { readonly askWllama: boolean },
  progress: (label: string) => void,
): Promise<DecoderSession> {
  const server = await serve(model);
  const browser = await launchChromium(['--disable-features=WebGPU']);
  try {
    const page = await browser.newPage();
    page.setDefaultTimeout(0);
    page.on('console', (message) => (message.type() === 'log' ? progress(message.text()) : undefined));
    await page.goto(`http://127.0.0.1:${(server.address() as AddressInfo).port}`);
    const whole: PageTask = { ...task, where: `Chromium ${browser.version()}`, ...(askWllama && { wllama: findWllama() }) };
    return await page.evaluate(`import('/bench/decoder/page.js').then(({ runInPage }) => runInPage(${JSON.stringify(whole)}))`);
  } finally {
    await browser.close();
    server.close();
  }
}

function findWllama(): PageTask['wllama'] & object {
  if (!existsSync(join(WLLAMA, 'package.json'))) return { leftOut: 'not installed. Install it with: npm ci --prefix bench' };
  return { version: JSON.parse(readFileSync(join(WLLAMA, 'package.json'), 'utf8')).version };
}

/** Serves an empty page, the model, the library as it was built with what it imports, this benchmark as one file, and wllama. */
async function serve(model: string): Promise<Server> {
  const entry = fileURLToPath(new URL('page.ts', import.meta.url));
  const { outputFiles } = await build({
    entryPoints: [entry],
    bundle: true,
    format: 'esm',
    target: 'es2022',
    write: false,
    logLevel: 'error',
  });
  const folders = { '/dist/': join(ROOT, 'dist'), '/modules/': join(ROOT, 'node_modules'), '/wllama/': join(WLLAMA, 'esm') };
  const html = `<!doctype html><title>ropewalk</title><script type="importmap">${JSON.stringify({ imports: IMPORTS })}</script>`;
  const server = createServer((request, response) => {
    const { pathname: path } = new URL(request.url!, 'http://localhost');
    for (const [name, value] of Object.entries(HEADERS)) response.setHeader(name, value);
    if (path === '/') return response.setHeader('content-type', 'text/html').end(html);
    if (path === '/bench/decoder/page.js') return response.setHeader('content-type', TYPES['.js']!).end(outputFiles[0]!.contents);
    const [start, folder] = Object.entries(folders).find(([prefix]) => path.startsWith(prefix)) ?? [];
    const file = path === '/model.gguf' ? model : folder === undefined ? '' : join(folder, path.slice(start!.length));
    if (!existsSync(file)) return response.writeHead(404).end();
    response.setHeader('content-type', TYPES[extname(file)] ?? 'application/octet-stream');
    response.setHeader('content-length', statSync(file).size);
    return createReadStream(file).pipe(response);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return server;
}
