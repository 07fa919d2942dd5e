/**
 * Tests the documentation with installed packages. Each ```ts block of README.md, docs/ and the packages' READMEs runs
 * as a program, and its output must equal the ```text block after it. The commands of README and of every ```console
 * block run too.
 *
 * `FILL=1 npm test -- test/docs.peers.test.ts` writes the output of the examples into the pages.
 */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { writeNpy } from '@ropewalk/formats';
import { transform } from 'esbuild';
import { ropewalk } from 'ropewalk';
import { noBrowser, openChromium, serve } from './support/browser.js';
import { installInto, ROOT } from './support/build.js';
import { blocksOf, examplesOf, PAGES } from './support/examples.js';
import { noGpu } from './support/gpu.js';
import { noOnnxruntime } from './support/onnxruntime.js';
import { noTransformers, TRANSFORMERS } from './support/transformers.js';
import { WAIT_MS } from './support/until.js';

const folder = mkdtempSync(join(tmpdir(), 'docs-'));
before(() => {
  const modules = installInto(folder, { peers: ['webgpu', 'onnxruntime-node'] });
  if (!noTransformers) symlinkSync(TRANSFORMERS, join(modules, '@huggingface/transformers'));
});
after(() => rmSync(folder, { recursive: true, force: true }));

function fill(page: string, code: string, output: string): void {
  const file = join(ROOT, page);
  const text = readFileSync(file, 'utf8');
  const start = text.indexOf('```text\n', text.indexOf(code) + code.length) + '```text\n'.length;
  writeFileSync(file, text.slice(0, start) + output + text.slice(text.indexOf('```', start)));
}

describe('examples in the documentation', () => {
  const examples = PAGES.flatMap((page) => examplesOf(page, 'ts'));
  test('there are examples, and each prints something that the page shows', () => {
    assert.ok(examples.length >= 8, `${examples.length} examples`);
    assert.deepEqual(
      examples.filter((example) => example.output === undefined).map((example) => example.title),
      [],
    );
  });
  for (const [n, { page, title, code, output }] of examples.entries()) {
    const missing =
      (code.includes("backend: 'webgpu'") && noGpu) ||
      (code.includes('openOnnx') && noOnnxruntime) ||
      (code.includes('@huggingface/transformers') && noTransformers);
    test(title, { skip: missing }, async () => {
      const file = join(folder, `example-${n}.mjs`);
      writeFileSync(file, (await transform(code, { loader: 'ts', target: 'node20' })).code);
      const ran = spawnSync(process.execPath, [file], { cwd: folder, encoding: 'utf8' });
      assert.equal(ran.status, 0, ran.stderr);
      if (process.env.FILL) fill(page, code, ran.stdout);
      else assert.equal(ran.stdout, output);
    });
  }
});

describe("README's commands", () => {
  // These are the files that README's lines for torch write, from a kernel that takes interleaved pairs for half.
  before(async () => {
    const rw = await ropewalk({ backend: 'reference' });
    const { head_dim: headDim, rope_theta: base } = JSON.parse(
      readFileSync(join(ROOT, 'models/marline/config.json'), 'utf8'),
    );
    const positions = [0, 1, 40, 200];
    const shape = [1, 6, positions.length, headDim];
    const x = Float32Array.from({ length: shape.reduce((a, b) => a * b) }, (_, i) => Math.sin(i * i + 1));
    const y = await rw
      .rope(rw.tensor(x, { shape }), positions, { pairing: 'interleaved', base, layout: 'bnsh' })
      .read();
    writeFileSync(join(folder, 'x.npy'), writeNpy(x, { dtype: 'f32', shape }));
    writeFileSync(join(folder, 'y.npy'), writeNpy(y, { dtype: 'f32', shape }));
    writeFileSync(
      join(folder, 'positions.npy'),
      writeNpy(BigInt64Array.from(positions, BigInt), { dtype: 'i64', shape: [positions.length] }),
    );
    cpSync(join(ROOT, 'models/marline/config.json'), join(folder, 'config.json'));
  });

  const commands = ['README.md', 'packages/cli/README.md', 'docs/devices.md'].flatMap((page) => examplesOf(page, 'sh'));
  assert.ok(commands.length > 0);
  for (const { page, title, code, output } of commands) {
    test(`${title}: ${code.trim()}`, () => {
      assert.ok(output, 'the page shows what it prints');
      const { stdout } = spawnSync(code, { cwd: folder, encoding: 'utf8', shell: true });
      // A page may leave out the end of an output and mark it with "…".
      if (process.env.FILL && !output.endsWith('…\n')) fill(page, code, stdout);
      else if (output.endsWith('…\n')) assert.equal(`${stdout.slice(0, output.length - 2)}…\n`, output);
      else assert.equal(stdout, output);
    });
  }
});

/** Commands that need something of the reader: a kernel's dumps and outputs, graphs of another program, or a GPU. */
const OWN =
  /^(cc .*(dump|use|rope)\.c|ropewalk (diagnose|verify|inspect (llama|gptj|wrong)\.onnx)( |$)|ropewalk check .*--provider cuda)/;
/** These pages have every file that their commands need. */
const WHOLE = /^docs[\\/](port-a-kernel\.md$|workflows[\\/])/;
const noNumpy = spawnSync('python3', ['-c', 'import numpy']).status !== 0 && 'Python with numpy is not installed';
const noCompiler = spawnSync('c++', ['--version']).status !== 0 && 'there is no C++ compiler';
/** Returns the reason why a command cannot run here, or false. */
function lacks(command: string): string | false {
  if (command.includes('onnxruntime')) return noOnnxruntime;
  if (command.includes('python3')) return noNumpy;
  return /^cc |--program \.\//.test(command) && noCompiler;
}

describe('commands in the documentation, in the order of their page', () => {
  for (const page of PAGES) {
    const own = join(folder, 'pages', page.replace(/\W/g, '-'));
    let files: (readonly [name: string, code: string])[] = [];
    for (const { language, title, code } of blocksOf(page)) {
      // If the first line of a block names a file, the block is written to that file.
      const name = /^(?:\/\/|#) ([\w-]+\.\w+)/.exec(code)?.[1];
      if (name && language !== 'console') files = [...files, [name, code]];
      if (language !== 'console') continue;
      const written = files;
      files = [];
      for (const [, command, output] of code.matchAll(/^\$ (.*)\n((?:(?!\$ ).*\n)*)/gm)) {
        if (!WHOLE.test(page) && OWN.test(command!)) continue;
        test(`${title}: ${command}`, { skip: lacks(command!) }, () => {
          if (mkdirSync(own, { recursive: true })) symlinkSync(join(folder, 'node_modules'), join(own, 'node_modules'));
          for (const [name, text] of written) writeFileSync(join(own, name), text);
          const env = { ...process.env, PATH: `${join(own, 'node_modules/.bin')}:${process.env.PATH}` };
          const { stdout } = spawnSync(`(${command}) 2>&1`, { cwd: own, encoding: 'utf8', shell: true, env });
          // A page may leave out lines, or the end of a line, and mark it with "…".
          const parts = output!.split(/^ *…\n|…(?=\n)/m);
          if (process.env.FILL && parts.length === 1) refill(page, `$ ${command}\n`, output!, stdout);
          else if (parts.length === 1) assert.equal(stdout, output);
          else {
            let at = 0;
            for (const part of parts) {
              const found = stdout.indexOf(part, at);
              assert.ok(found >= 0, `${stdout.slice(at)}\nhas not\n${part}`);
              at = found + part.length;
            }
          }
        });
      }
    }
  }
});

function refill(page: string, command: string, before: string, after: string): void {
  const file = join(ROOT, page);
  writeFileSync(
    file,
    readFileSync(file, 'utf8').replace(command + before, () => command + after),
  );
}

describe('pages in the documentation, with a server of files and nothing else', {
  skip: noBrowser,
}, () => {
  for (const { page, title, code, output } of PAGES.flatMap((name) => examplesOf(name, 'html'))) {
    if (code.startsWith('<!--')) continue; // test/browser/in-a-page.browser.test.ts tests these
    test(title, async () => {
      writeFileSync(join(folder, 'index.html'), code);
      const site = await serve({ folders: { '/': folder } });
      const browser = await openChromium();
      try {
        const opened = await browser.newPage();
        const failed = new Promise<never>((_, reject) => opened.on('pageerror', reject));
        await opened.goto(`${site.origin}/`);
        const text = (): Promise<string> => opened.evaluate('document.body.textContent.trim()');
        const shown = opened.waitForFunction((want) => document.body.textContent?.trim() === want, output?.trim(), {
          timeout: process.env.FILL ? 20_000 : WAIT_MS,
        });
        await Promise.race([shown, failed]).catch(async (error) => {
          if (process.env.FILL) fill(page, code, `${await text()}\n`);
          else assert.equal(await text(), output?.trim(), String(error));
        });
      } finally {
        await browser.close();
        site.close();
      }
    });
  }
});
