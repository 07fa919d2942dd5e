/**
 * Tests the code of docs/in-a-page.md: the plain page and the React page, bundled as the text says, load the bundled
 * model, write the same text as Node, stop, keep the weights, and load a model from a hub. Preact takes React's place
 * here.
 */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { generate } from '@ropewalk/model';
import { loadModelPath } from '@ropewalk/model/node';
import type { Browser, Page } from 'playwright-core';
import { build } from 'vite';
import { noBrowser, openChromium, type Site, serve } from '../support/browser.js';
import { installInto, ROOT } from '../support/build.js';
import { blocksOf } from '../support/examples.js';

const PAGE = 'docs/in-a-page.md';
const BOX = join(ROOT, 'models/marline');
const PROMPT = 'It was a dark night, and';
const skip = noBrowser || (existsSync(join(BOX, 'model-q8_0.gguf')) ? false : 'no models/marline here');

describe('a model in a page, as docs/in-a-page.md has it', { skip }, () => {
  const folder = mkdtempSync(join(tmpdir(), 'in-a-page-'));
  const sites: Site[] = [];
  let browser: Browser;
  let written: string;

  before(async () => {
    const modules = installInto(folder, { packages: ['model', 'ropewalk', 'dialects', 'formats'] });
    for (const name of ['preact', 'esbuild']) symlinkSync(join(ROOT, 'node_modules', name), join(modules, name));
    const blocks = blocksOf(PAGE);
    for (const { code } of blocks) {
      const name = /^(?:\/\/|<!--) ([\w.-]+)/.exec(code)?.[1];
      if (name) writeFileSync(join(folder, name), code);
    }
    mkdirSync(join(folder, 'hub/org/name/resolve'), { recursive: true });
    cpSync(BOX, join(folder, 'models/marline'), { recursive: true });
    cpSync(BOX, join(folder, 'hub/org/name/resolve/main'), { recursive: true });
    const command = blocks.find(({ code }) => code.startsWith('npx esbuild'))!.code.replace('npx ', '');
    const env = { ...process.env, PATH: `${join(ROOT, 'node_modules/.bin')}:${process.env.PATH}` };
    const { status, stderr } = spawnSync(command, { cwd: folder, shell: true, encoding: 'utf8', env });
    assert.equal(status, 0, stderr);
    writeFileSync(join(folder, 'react.html'), '<div id="root"></div><script type="module" src="main.jsx"></script>');
    await build({
      root: folder,
      configFile: false,
      logLevel: 'error',
      worker: { format: 'es' },
      esbuild: { jsx: 'automatic', jsxImportSource: 'preact' },
      resolve: { alias: { 'react-dom/client': 'preact/compat/client', react: 'preact/compat' } },
      build: { outDir: 'react', rollupOptions: { input: join(folder, 'react.html') } },
    });
    cpSync(BOX, join(folder, 'react/models/marline'), { recursive: true });
    const model = await loadModelPath(join(BOX, 'model-q8_0.gguf'), { context: 256 });
    for await (const { end } of generate(model, PROMPT, { maxTokens: 60 })) if (end) written = end.text;
    model.dispose();
    browser = await openChromium();
  });
  after(async () => {
    await browser?.close();
    for (const site of sites) site.close();
    rmSync(folder, { recursive: true });
  });

  /** Opens a page with a new browser profile on a new host. */
  async function visit(path: string, root = folder): Promise<{ page: Page; site: Site }> {
    const site = await serve({ folders: { '/': root } });
    sites.push(site);
    const page = await (await browser.newContext()).newPage();
    page.on('pageerror', (error) => assert.fail(error));
    await page.goto(site.origin + path);
    return { page, site };
  }
  const output = (page: Page, text: RegExp): Promise<void> => page.locator('output', { hasText: text }).waitFor();
  const asksForModel = ({ asked }: Site): number => asked.filter((path) => /marline/.test(path)).length;

  for (const [name, path, root] of [
    ['plain', '/', folder],
    ['React', '/react.html', join(folder, 'react')],
  ] as const)
    test(`${name}: loads with progress, writes what Node writes, stops, and fetches the weights once`, async () => {
      const { page, site } = await visit(path, root);
      await output(page, /ready, on cpu/);
      assert.equal(await page.locator('progress').evaluate((bar: HTMLProgressElement) => bar.value), 1);
      assert.equal(asksForModel(site), 1);
      await page.getByText('Write').click();
      await output(page, /ended: length/);
      assert.equal(await page.locator('form p, form + p').textContent(), written);
      await page.reload();
      await output(page, /ready, on cpu/);
      assert.equal(asksForModel(site), 1, 'the weights were kept');
      await page.evaluate(async () => {
        const [write, stop] = document.querySelectorAll('button');
        write!.click();
        while (stop!.disabled) await new Promise(requestAnimationFrame);
        stop!.click();
      });
      await output(page, /ended: abort/);
      await page.locator('input').fill(PROMPT.repeat(90));
      await page.getByText('Write').click();
      await output(page, /RopewalkError: generate: prompt: .*context/);
      await page.locator('input').fill(PROMPT);
      await page.getByText('Write').click();
      await output(page, /ended: length/);
    });

  /** Asks the page's worker to load, and returns its last message. */
  const loaded = (page: Page, address: string): Promise<Record<string, unknown>> =>
    page.evaluate(
      (at) =>
        new Promise((resolve) => {
          const worker = new Worker('dist/model.worker.js', { type: 'module' });
          worker.onmessage = ({ data }) => (data.ready || data.failed) && resolve(data);
          worker.postMessage({ task: 'load', address: at });
        }),
      address,
    );

  test('a hub: an id is an address on the host that the page names, and on no other', async () => {
    const { page, site } = await visit('/');
    const [none, address] = await page.evaluate(async () => {
      const { onHub } = await import(`${location.origin}/hub.js`);
      const none = ((): string => {
        try {
          return onHub('org/name');
        } catch (error) {
          return String(error);
        }
      })();
      return [none, onHub('org/name', { hub: `${location.origin}/hub/`.replace('/hub/', '') })];
    });
    assert.match(none!, /org\/name: no hub is set/);
    assert.equal(address, `${site.origin}/org/name/resolve/main/`);
    const at = `${site.origin}/hub/org/name/resolve/main/`;
    assert.deepEqual(await loaded(page, at), { ready: 'cpu' });
    assert.ok(site.asked.includes('/hub/org/name/resolve/main/model.safetensors'));
    assert.match(String((await loaded(page, `${site.origin}/hub/org/other/`)).failed), /there is no config\.json/);
  });
});
