/** Tests the field for a model's name or address, beside a server that behaves like a model hub. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import type { Page } from 'playwright-core';
import { MODELS } from '../../site/src/explore/models.js';
import { noBrowser } from '../support/browser.js';
import { ROOT } from '../support/build.js';
import { ISOLATED, openedSite, UNDER, violations } from '../support/site.js';

const HUB = 'https://huggingface.co';
const CONFIG = JSON.stringify(MODELS.find(({ id }) => id === 'Qwen/Qwen3-8B')!.config);
const GGUF = readFileSync(join(ROOT, 'models/marline/model-q8_0.gguf'));
const SMOLLM2 = 'HuggingFaceTB/SmolLM2-135M-Instruct';
/** The hub of these tests has the bundled model in its place. */
const WRITER = new Map(
  ['config.json', 'tokenizer.json', 'tokenizer_config.json', 'model.safetensors'].map((name) => [
    name,
    readFileSync(join(ROOT, 'models/marline', name)),
  ]),
);
const REFUSED: Readonly<Record<string, readonly [number, string]>> = {
  'Some/Gated': [401, 'GatedRepo'],
  'Some/Private': [401, 'RepoNotFound'],
  'Some/Busy': [429, ''],
  'Some/Broken': [503, ''],
};

/** Serves what a hub serves. Its name is 127.0.0.1, and that of the host for large files, to which it redirects, localhost. */
function hub(asked: string[]): Server {
  return createServer((request, response) => {
    const { pathname } = new URL(request.url!, 'http://hub');
    const { host, range, referer, cookie } = request.headers;
    asked.push([`${host!.split(':')[0]}${pathname}`, range, referer, cookie].filter(Boolean).join(' '));
    const port = request.headers.host!.split(':')[1];
    const [, owner, model, ...rest] = pathname.split('/');
    const name = `${owner}/${model}`;
    const file = rest.at(-1) ?? '';
    if (name === 'Some/Silent') return;
    if (name !== 'Some/Closed') response.setHeader('access-control-allow-origin', '*');
    response.setHeader('access-control-expose-headers', 'content-range, x-error-code');
    const [status, code] = REFUSED[name] ?? [];
    if (status) response.writeHead(status, { 'x-error-code': code! }).end();
    else if (pathname === '/api/models/Some/Ggufs/tree/main') {
      const files = ['README.md', 'small.gguf', 'q8/big-00001-of-00002.gguf', 'q8/big-00002-of-00002.gguf'];
      response.end(JSON.stringify(files.map((path) => ({ type: 'file', path, size: 2e9 }))));
    } else if (owner === 'api') response.end('[]');
    else if (name === 'Some/Page') response.setHeader('content-type', 'text/html').end('<!doctype html>');
    else if (name === 'Some/Cut') response.end('{"model_type": ');
    else if (name === 'Some/Whole') response.end(GGUF);
    else if (name === 'Some/Huge') {
      const more = (): void => {
        while (!response.destroyed && response.write(Buffer.alloc(2 ** 20)));
      };
      response.on('drain', more);
      more();
    } else if (name === 'cdn/file') {
      const range = /^bytes=(\d+)-(\d+)$/.exec(request.headers.range ?? '');
      if (file === 'config.json') response.end(CONFIG);
      else if (!range) response.end(GGUF);
      else {
        const [from, to] = [Number(range[1]), Math.min(Number(range[2]), GGUF.length - 1)];
        const headers = { 'content-range': `bytes ${from}-${to}/${GGUF.length}` };
        response.writeHead(206, headers).end(GGUF.subarray(from, to + 1));
      }
    } else if (name === SMOLLM2) {
      const bytes = WRITER.get(rest.join('/').replace('resolve/main/', ''));
      if (!bytes) return void response.writeHead(404, { 'x-error-code': 'EntryNotFound' }).end();
      const [, from = 0, to = bytes.length - 1] = /^bytes=(\d+)-(\d+)$/.exec(range ?? '')?.map(Number) ?? [];
      if (range !== undefined) response.setHeader('content-range', `bytes ${from}-${to}/${bytes.length}`);
      response.writeHead(range === undefined ? 200 : 206).end(bytes.subarray(from, to + 1));
    } else if ((name === 'Some/Model') === (file === 'config.json') && file !== '' && name !== 'Some/Nothing')
      response.writeHead(302, { location: `http://localhost:${port}/cdn/file/${file}` }).end();
    else response.writeHead(404, { 'x-error-code': 'EntryNotFound' }).end();
  });
}

describe('a model by its name in Chromium', { skip: noBrowser }, () => {
  // A page whose HTML a test has changed counts as public, and may not ask this machine without the flag.
  const opened = openedSite({ headers: ISOLATED, flags: ['--disable-features=LocalNetworkAccessChecks'] });
  let server: Server;
  let asked: string[];
  let origin: string;
  before(async () => {
    asked = [];
    server = hub(asked);
    await new Promise<void>((resolve) => server.listen(0, resolve));
    origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  });
  after(() => {
    server.closeAllConnections();
    server.close();
  });

  /** Opens a page of the site as it is built, with the local server in the place of the hub and of the hosts of its files. */
  async function visit(path: string): Promise<Page> {
    asked.length = 0;
    const page = await opened.browser.newPage({ serviceWorkers: 'block' });
    await page.route(
      (url) => url.origin === opened.site.origin && url.pathname.endsWith('/'),
      async (route) => {
        const response = await route.fetch();
        const html = (await response.text())
          .replace(`connect-src 'self' blob: ${HUB} https:`, `connect-src 'self' blob: ${origin} http://localhost:*`)
          .replace(`data-hub="${HUB}"`, `data-hub="${origin}"`);
        assert.ok(!html.includes(HUB), 'the hub’s address is only in these two places');
        return route.fulfill({ response, body: html });
      },
    );
    await page.goto(`${opened.site.origin}${UNDER}${path}`);
    await page.locator('main h1').first().waitFor();
    return page;
  }
  const field = (page: Page) => page.getByLabel(/^or a name on /);
  async function ask(page: Page, text: string): Promise<void> {
    await field(page).fill(text);
    await page.getByRole('button', { name: 'Ask' }).click();
  }

  test('Explore: a link asks nothing by itself; the button reads config.json, through a redirect', async () => {
    const page = await visit('explore/?model=Some/Model');
    const host = new URL(origin).host;
    const said = 'config.json or the header of a GGUF, and only when you press Ask.';
    await page.getByText(`The link names Some/Model. Asks ${host} for ${said}`).waitFor();
    assert.deepEqual(asked, []);
    assert.equal(await page.getByRole('heading', { level: 2 }).count(), 0);
    assert.deepEqual(await violations(page), []);
    await page.getByRole('button', { name: 'Ask' }).click();
    await page.getByRole('heading', { name: 'Some/Model' }).waitFor();
    await page.getByText('qwen3, 36 layers').waitFor();
    assert.deepEqual(asked, ['127.0.0.1/Some/Model/resolve/main/config.json', 'localhost/cdn/file/config.json']);
    assert.match(page.url(), /model=Some(\/|%2F)Model/);
    await field(page).fill('https://example.org/a/');
    await page.getByText('Asks example.org for').waitFor();
    await page.context().close();
  });

  test('Explore: a repository of GGUFs gives a choice, whose header is read by ranges; the link opens it', async () => {
    const page = await visit('explore/');
    await ask(page, `${origin}/Some/Ggufs/tree/main`);
    const choice = page.getByLabel('has no config.json, but GGUF files');
    await choice.waitFor();
    assert.deepEqual(await choice.locator('option').allInnerTexts(), [
      'choose one',
      'small.gguf, 2.0 GB',
      'q8/big-00001-of-00002.gguf, 4.0 GB',
    ]);
    assert.deepEqual(await violations(page), []);
    await choice.selectOption('Some/Ggufs/small.gguf');
    await page.getByLabel('Some/Ggufs has no config.json').waitFor();
    await page.getByRole('button', { name: 'Ask', exact: true }).click();
    await page.getByRole('heading', { name: 'Some/Ggufs/small.gguf' }).waitFor();
    await page.getByText('llama, 4 layers').waitFor();
    assert.ok(asked.includes('localhost/cdn/file/small.gguf bytes=0-0'), asked.join('\n'));
    await page.waitForURL(/small\.gguf/);
    const { search } = new URL(page.url());
    await page.context().close();
    const second = await visit(`explore/${search}`);
    assert.deepEqual(asked, []);
    await second.getByRole('button', { name: 'Ask' }).click();
    await second.getByRole('heading', { name: 'Some/Ggufs/small.gguf' }).waitFor();
    await second.context().close();
  });

  test('each refusal is a sentence with a next step', async () => {
    const page = await visit('explore/');
    await page.clock.install();
    const alert = page.locator('.drop').getByRole('alert');
    for (const [text, words] of [
      ['Some/Gated', /accepted its maker’s terms\. Accept them there, download the file, and drop it here/],
      ['Some/Private', /not signed in: the name is wrong, .* Check the name/],
      ['Some/Busy', /too often .* Wait some minutes/],
      ['Some/Broken', /status 503\. Ask again later/],
      ['Some/Broken/100%.json', /status 503\. Ask again later/],
      ['Some/Nothing', /has no Some\/Nothing\/resolve\/main\/config\.json\. Check the name/],
      ['Some/Page', /sends a web page in place of config\.json\. Give the address of the file itself/],
      ['Some/Cut', /Some\/Cut.*JSON/],
      ['Some/Closed/config.json', /lets no page of another site read config\.json\. Check the address/],
      ['Some/Huge/a.gguf', /sends a\.gguf only as a whole, which is more than 17 MB\. Download the file/],
      ['a name', /neither a name such as .* Write one of these/],
    ] as const) {
      await ask(page, text);
      await alert.getByText(words).waitFor();
      assert.equal(await page.getByRole('heading', { name: 'meta-llama/Meta-Llama-3.1-8B' }).count(), 1, text);
    }
    await ask(page, 'Some/Silent');
    await page.getByRole('button', { name: 'Asking …' }).waitFor();
    await page.clock.fastForward(31_000);
    await alert.getByText(/sent nothing for 30 seconds\. Ask again/).waitFor();
    await ask(page, 'Some/Whole/small.gguf'); // without ranges, but small
    await page.getByText('llama, 4 layers').waitFor();
    await page.context().close();
  });

  test('Home: SmolLM2 is fetched once, when its visitor asks, and writes with the bug and without', async () => {
    const page = await visit('?model=SmolLM2&bug=exponent-without-two');
    const host = new URL(origin).host;
    await page.getByText(`269 MB from ${host}, and runs in this page.`).waitFor();
    await page.getByLabel('Break the model with a known bug').selectOption('exponent-without-minus');
    assert.deepEqual([...asked], [], 'a link and a choice ask nothing');
    assert.deepEqual(await violations(page), []);
    await page.getByRole('button', { name: 'Let both write' }).click();
    await page.getByText('Both have written.').waitFor({ state: 'attached', timeout: 60_000 });
    const [right, wrong] = await page.locator('.two-texts-text').allInnerTexts();
    assert.ok(right!.length > 80 && wrong!.length > 80 && right !== wrong);
    assert.ok(asked.every((one) => one.startsWith(`127.0.0.1/${SMOLLM2}/resolve/main/`)));
    assert.equal(asked.filter((one) => one.endsWith('/main/config.json bytes=0-0')).length, 1, 'one worker fetches it');
    await page.getByLabel('Model', { exact: true }).selectOption('marline');
    await page.getByText('3.5 MB from this site').last().waitFor();
    await page.context().close();
  });

  test('Compare, Diagnose and Generate take a name too', async () => {
    const compare = await visit('explore/?model=Qwen/Qwen3-8B&tab=compare&with=Some/Model');
    const panel = compare.getByRole('tabpanel');
    await panel.getByText('The link names Some/Model').waitFor();
    assert.deepEqual(asked, []);
    await panel.getByRole('button', { name: 'Ask' }).click();
    await compare.getByText('same to the last bit').first().waitFor();
    assert.deepEqual(await violations(compare), []);
    await compare.context().close();

    const diagnose = await visit('diagnose/?meant=text&config=Some/Model');
    await diagnose.getByText('The link names Some/Model').waitFor();
    assert.deepEqual(asked, []);
    await diagnose.getByRole('button', { name: 'Ask' }).click();
    await diagnose.waitForFunction((config) => document.querySelector('textarea')?.value === config, CONFIG);
    assert.deepEqual(await violations(diagnose), []);
    await ask(diagnose, 'Some/Huge/a.gguf');
    await diagnose.getByText('sends a.gguf only as a whole').waitFor();
    asked.length = 0;
    await ask(diagnose, 'Some/Ggufs/small.gguf');
    await diagnose.waitForFunction(() => document.querySelector('textarea')?.value === 'Some/Ggufs/small.gguf');
    assert.match(asked.join('\n'), /^localhost\/cdn\/file\/small\.gguf bytes=0-0$/m);
    await diagnose.context().close();

    const generate = await visit('generate/?model=Some/Ggufs/small.gguf');
    await generate.getByText('The link names Some/Ggufs/small.gguf').waitFor();
    assert.deepEqual(asked, []);
    assert.deepEqual(await violations(generate), []);
    await generate.getByRole('button', { name: 'Ask' }).click();
    await generate.getByText('llama, 4 layers, 1024 tokens in the vocabulary').waitFor();
    asked.length = 0;
    await ask(generate, 'Some/Model');
    await generate.getByText('there is no model.safetensors').waitFor();
    assert.deepEqual(asked.slice(0, 4), [
      '127.0.0.1/Some/Model/resolve/main/config.json',
      'localhost/cdn/file/config.json',
      '127.0.0.1/Some/Model/resolve/main/config.json bytes=0-0',
      'localhost/cdn/file/config.json bytes=0-0',
    ]); // and no cookie and no address of the page
    await generate.context().close();
  });
});
