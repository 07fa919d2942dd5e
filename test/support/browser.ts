/** Starts a real browser for tests, and a server whose answers have the headers that a test wants. */
import { spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { extname, join } from 'node:path';
import { brotliDecompressSync, gzipSync } from 'node:zlib';
import { type Browser, chromium, type Page } from 'playwright-core';
import { ENTRIES, PACKAGES, ROOT } from './build.js';
import { WAIT_MS } from './until.js';

const executablePath = [
  process.env.CHROMIUM,
  '/usr/bin/chromium',
  '/usr/bin/chromium-browser',
  '/usr/bin/google-chrome',
].find((path) => path && existsSync(path));

/** The reason why browser tests are skipped here, or false. */
export const noBrowser: string | false = executablePath
  ? false
  : 'no Chromium here: install it, or set CHROMIUM to its path';

/**
 * Unpacks the Chromium whose WebNN computes, with the libraries of its GPU process, in which WebNN runs. It takes 3 s
 * and 210 MB in the system's temporary folder, and stays there for later runs. The package's own function is not used,
 * because it takes any file at `/tmp/chromium`, even one that another process has only half written.
 *
 * @returns its path, or the reason why it cannot start here
 */
function unpackWebnnChromium(): { readonly path: string } | { readonly missing: string } {
  if (process.platform !== 'linux' || process.arch !== 'x64')
    return { missing: 'the Chromium with WebNN is built for Linux on x64 only' };
  const home = join(ROOT, 'node_modules/@sparticuz/chromium');
  if (!existsSync(home)) return { missing: 'no @sparticuz/chromium here: npm ci' };
  const { version } = JSON.parse(readFileSync(join(home, 'package.json'), 'utf8'));
  const folder = join(tmpdir(), `ropewalk-chromium-${version}`);
  const path = join(folder, 'chromium');
  if (!existsSync(folder)) {
    const packed = (name: string): Buffer => brotliDecompressSync(readFileSync(join(home, 'bin', name)));
    const own = mkdtempSync(`${folder}-`);
    writeFileSync(join(own, 'chromium'), packed('chromium.br'), { mode: 0o700 });
    const { status } = spawnSync('tar', ['-x', '--no-same-owner', '-C', own], { input: packed('swiftshader.tar.br') });
    if (status !== 0) return { missing: 'the Chromium with WebNN cannot be unpacked without tar' };
    try {
      renameSync(own, folder);
    } catch {
      rmSync(own, { recursive: true }); // another process has finished first
    }
  }
  const { status, stderr } = spawnSync(path, ['--version'], { encoding: 'utf8' });
  return status === 0 ? { path } : { missing: `the Chromium with WebNN does not start: ${stderr.trim()}` };
}

let webnnChromium: ReturnType<typeof unpackWebnnChromium> | undefined;

/** The reason why tests of WebNN are skipped here, or false. Debian's Chromium has the API, but cannot compute. */
export function noWebnnBrowser(): string | false {
  webnnChromium ??= unpackWebnnChromium();
  return 'missing' in webnnChromium ? webnnChromium.missing : false;
}

/** Starts a Chromium whose WebNN computes on its CPU, if `noWebnnBrowser` returns false. The caller closes it. */
export function openWebnnChromium(): Promise<Browser> {
  webnnChromium ??= unpackWebnnChromium();
  if ('missing' in webnnChromium) throw new Error(webnnChromium.missing);
  return launch(webnnChromium.path, ['--enable-features=WebMachineLearningNeuralNetwork']);
}

/** These flags run WebGPU without a GPU, on the software driver that Chromium contains. */
export const SOFTWARE_GPU: readonly string[] = ['--enable-unsafe-webgpu', '--use-webgpu-adapter=swiftshader'];

/**
 * Starts Chromium. The caller closes it.
 *
 * @param flags - are added to the flags that keep it quiet
 */
export function openChromium(flags: readonly string[] = []): Promise<Browser> {
  return launch(executablePath!, flags);
}

async function launch(path: string, flags: readonly string[], attempts = 3): Promise<Browser> {
  const options = {
    executablePath: path,
    timeout: WAIT_MS,
    args: [
      '--no-sandbox',
      '--disable-quic',
      '--disable-background-networking',
      '--disable-component-update',
      '--disable-sync',
      ...flags,
    ],
  };
  try {
    const browser = await chromium.launch(options);
    return browser.on('context', (context) => context.setDefaultTimeout(WAIT_MS));
  } catch (cause) {
    // Chromium was once killed by SIGSEGV before it opened a page. No code of ours runs at that time.
    if (attempts > 1 && /signal=SIG/.test(String(cause))) return launch(path, flags, attempts - 1);
    throw cause;
  }
}

const TYPES: Readonly<Record<string, string>> = {
  '.js': 'text/javascript',
  '.mjs': 'text/javascript',
  '.html': 'text/html',
  '.css': 'text/css',
  '.wasm': 'application/wasm',
  '.svg': 'image/svg+xml',
  '.json': 'application/json',
};

/** The addresses of the packages' entries and their imports for a page without a bundler. `ropewalk` is at /dist/. */
export const IMPORTS: Readonly<Record<string, string>> = Object.fromEntries([
  ...ENTRIES.map((entry): [string, string] => {
    const [folder, { name, exports }] = [...PACKAGES].find(([, { name }]) => `${entry}/`.startsWith(`${name}/`))!;
    const target = exports[`.${entry.slice(name.length)}`] as { readonly default: string };
    const home = name === 'ropewalk' ? '/' : `/packages/${folder}/`;
    return [entry, home + target.default.slice(2)];
  }),
  ['fflate', '/modules/fflate/esm/browser.js'],
  ['@bufbuild/protobuf', '/modules/@bufbuild/protobuf/dist/esm/index.js'],
  ['@bufbuild/protobuf/wkt', '/modules/@bufbuild/protobuf/dist/esm/wkt/index.js'],
  ['@huggingface/tokenizers', '/modules/@huggingface/tokenizers/dist/tokenizers.mjs'],
  ['@huggingface/jinja', '/modules/@huggingface/jinja/dist/index.js'],
]);
const IMPORT_MAP = `<script type="importmap">${JSON.stringify({ imports: IMPORTS })}</script>`;

/** The content of a site. */
export interface SiteOptions {
  /**
   * The folders, by the start of the path; the longest match counts. Vectors, pages, the packages and node_modules are
   * always served.
   */
  readonly folders: Readonly<Record<string, string>>;
  /** The headers of every answer, or a function that returns the headers for a path. */
  readonly headers?: Readonly<Record<string, string>> | ((path: string) => Readonly<Record<string, string>>);
  /** Whether answers are compressed, as hosts of pages do. */
  readonly gzip?: boolean;
}

/** A running server. */
export interface Site {
  readonly origin: string;
  /** Every path that was requested, in order. */
  readonly asked: readonly string[];
  close(): void;
}

/**
 * Serves folders over http. `/?script=URL` is a page that runs that module. The modules in test/browser/pages import
 * packages by name, and an import map gives their addresses. Only `ropewalk` is replaced in the text by `/dist/`,
 * because a strict Content-Security-Policy forbids the map.
 */
export async function serve({ folders, headers = {}, gzip = false }: SiteOptions): Promise<Site> {
  const asked: string[] = [];
  const all = Object.entries({
    '/vectors/': join(ROOT, 'vectors'),
    '/pages/': join(ROOT, 'test/browser/pages'),
    '/packages/': join(ROOT, 'packages'),
    '/modules/': join(ROOT, 'node_modules'),
    ...folders,
  });
  all.sort(([a], [b]) => b.length - a.length);
  const server = createServer((request, response) => {
    const { pathname: path, searchParams } = new URL(request.url!, 'http://localhost');
    if (path !== '/favicon.ico') asked.push(path); // browsers sometimes request this one by themselves
    for (const [name, value] of Object.entries(typeof headers === 'function' ? headers(path) : headers))
      response.setHeader(name, value);
    const script = searchParams.get('script');
    if (path === '/' && script) {
      const page = `<!doctype html><meta charset="utf-8"><title>ropewalk</title>${IMPORT_MAP}<script type="module" src="${script}"></script>`;
      response.setHeader('content-type', 'text/html').end(page);
      return;
    }
    const [start, folder] = all.find(([prefix]) => path.startsWith(prefix)) ?? [];
    const file = folder === undefined ? '' : join(folder, path.slice(start!.length).replace(/(^|\/)$/, '$1index.html'));
    if (!existsSync(file)) {
      response.writeHead(404).end();
      return;
    }
    response.setHeader('content-type', TYPES[extname(file)] ?? 'application/octet-stream');
    const body = readFileSync(file);
    if (gzip) response.setHeader('content-encoding', 'gzip').end(gzipSync(body));
    else response.end(start === '/pages/' ? body.toString().replace("'ropewalk'", "'/dist/index.js'") : body);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    origin: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    asked,
    close: () => void server.close(),
  };
}

/**
 * Opens a page and parses its first log as JSON. The page's Content-Security-Policy does not have to allow this.
 *
 * @throws the error that the page throws
 */
export async function reportOf<T>(browser: Browser, url: string): Promise<{ report: T; page: Page }> {
  const page = await browser.newPage();
  const report = new Promise<T>((resolve, reject) => {
    page.on('console', (message) => {
      if (message.type() === 'log') resolve(JSON.parse(message.text()));
    });
    page.on('pageerror', reject);
  });
  await Promise.all([page.goto(url), report]);
  return { report: await report, page };
}
