/**
 * Tests the packages as their users have them: installed from tarballs, linted by publint and are-the-types-wrong, run
 * by Bun and Deno, and bundled into one file. package.peers.test.ts tests them in Node, browser/ in browsers, and
 * docs.peers.test.ts runs the examples of the pages.
 */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { gzipSync } from 'node:zlib';
import { type BuildOptions, build as esbuild } from 'esbuild';
import type { Plugin } from 'rollup';
import { consumerTool, installInto, PACKAGES, ROOT, tarballOf } from './support/build.js';
import { examplesOf } from './support/examples.js';

const folder = mkdtempSync(join(tmpdir(), 'consumers-'));
before(() => void installInto(folder));
after(() => rmSync(folder, { recursive: true, force: true }));

/** Returns the path of a command of test/consumers, or the reason why tests with it are skipped. */
function command(name: string, bin: string): ReturnType<typeof consumerTool> {
  const path = join(ROOT, 'test/consumers/node_modules', name, bin);
  return existsSync(path) ? { path, missing: false } : { missing: `${name} is not installed: npm run peers` };
}

describe('each tarball', () => {
  const publint = command('publint', 'src/cli.js');
  const attw = command('@arethetypeswrong/cli', 'dist/index.js');
  for (const manifest of PACKAGES.values()) {
    // Two ways to resolve types are left out: Node 10's, and CommonJS's, which loads an ES module by require().
    test(`${manifest.name}: publint and are-the-types-wrong find nothing`, {
      skip: publint.missing || attw.missing,
    }, () => {
      assert.ok(publint.missing === false && attw.missing === false);
      const tarball = tarballOf(manifest);
      for (const argv of [
        [publint.path, 'run', tarball, '--strict'],
        [attw.path, tarball, '--profile', 'esm-only'],
      ]) {
        const { status, stdout, stderr } = spawnSync(process.execPath, argv, { encoding: 'utf8' });
        assert.equal(status, 0, stdout + stderr);
      }
    });
  }
});

const THREADS = `
import { ropewalk } from 'ropewalk';
const rw = await ropewalk({ backend: 'cpu', threads: 2 });
const x = rw.tensor(new Float32Array(512 * 32 * 128).fill(1), { shape: [512, 32, 128] });
await rw.rope(x, 0, { pairing: 'half', base: 10000 }).read();
console.log(rw.capabilities().threads);
rw.dispose();
`;

for (const [name, where, bin, ...options] of [
  ['bun', 'bun', 'bin/bun.exe', 'run'],
  ['deno', '@deno/linux-x64-glibc', 'deno', 'run', '--allow-all', '--node-modules-dir=manual', '--no-lock'],
] as const) {
  const tool = command(where, bin);
  const run = (file: string): { status: number | null; stdout: string; stderr: string } => {
    assert.ok(tool.missing === false);
    return spawnSync(tool.path, [...options, file], {
      cwd: folder,
      encoding: 'utf8',
      env: { ...process.env, NO_COLOR: '1' },
    });
  };
  describe(name, { skip: tool.missing }, () => {
    for (const [n, { title, code, output }] of examplesOf('README.md', 'ts').entries()) {
      test(title, () => {
        writeFileSync(join(folder, `${name}-${n}.ts`), code);
        const { stdout, stderr } = run(`${name}-${n}.ts`);
        // Each runtime prints typed arrays differently.
        const words = (text: string): string[] => text.match(/[\w.-]+/g) ?? [];
        assert.deepEqual(words(stdout), words(output!), stderr);
      });
    }
    test('computes on two threads', () => {
      writeFileSync(join(folder, `${name}-threads.ts`), THREADS);
      const { stdout, stderr } = run(`${name}-threads.ts`);
      assert.equal(stdout, '2\n', stderr);
    });
  });
}

describe('a page bundled into one file, with cpu alone by openCpu', () => {
  const PAGE = `
    import { openCpu, Ropewalk } from 'ropewalk';
    const rw = new Ropewalk(await openCpu());
    const x = rw.tensor(new Float32Array(64).fill(1), { shape: [1, 1, 64] });
    console.log(rw.rope(x, [3], { pairing: 'half', base: 10000 }));`;
  before(() => writeFileSync(join(folder, 'page.js'), PAGE));
  const esbuilt = async (of: BuildOptions): Promise<string> => {
    const options = { bundle: true, minify: true, format: 'esm', tsconfigRaw: {} } as const;
    const { outputFiles } = await esbuild({ absWorkingDir: folder, ...options, ...of, write: false });
    return outputFiles[0]!.text;
  };
  /** Compares the gzipped size of a bundle with the number in README. Rollup's bundle is smaller. */
  function checkSize(code: string, said: RegExp): void {
    const stated = Number(said.exec(readFileSync(join(ROOT, 'README.md'), 'utf8'))?.[1]);
    const size = gzipSync(code, { level: 9 }).length / 1000;
    assert.ok(size <= stated + 2 && size >= stated - 4, `${size} kB gzipped; README says ${stated} kB`);
  }
  const resolver = consumerTool('@rollup/plugin-node-resolve');
  const bundlers: Readonly<Record<string, { readonly skip: string | false; readonly bundle: () => Promise<string> }>> =
    {
      esbuild: {
        skip: false,
        async bundle() {
          return esbuilt({ entryPoints: ['page.js'] });
        },
      },
      Vite: {
        skip: false,
        async bundle() {
          const { build } = await import('vite');
          const rollupOptions = { input: join(folder, 'page.js'), output: { inlineDynamicImports: true } };
          const target = { root: folder, configFile: false, logLevel: 'error' } as const;
          const built = await build({ ...target, build: { write: false, target: 'es2022', rollupOptions } });
          assert.ok('output' in built);
          const scripts = built.output.filter((part) => part.type === 'chunk');
          assert.equal(scripts.length, 1);
          return scripts[0]!.code;
        },
      },
      Rollup: {
        skip: resolver.missing,
        async bundle() {
          assert.equal(resolver.missing, false);
          const { rollup } = await import('rollup');
          const { nodeResolve } = createRequire(import.meta.url)(resolver.path) as { nodeResolve: () => Plugin };
          const bundle = await rollup({ input: join(folder, 'page.js'), plugins: [nodeResolve()] });
          const { output } = await bundle.generate({ inlineDynamicImports: true });
          assert.equal(output.length, 1);
          // Rollup does not minify.
          const { transform } = await import('esbuild');
          return (await transform(output[0].code, { minify: true, format: 'esm' })).code;
        },
      },
    };
  for (const [name, { skip, bundle }] of Object.entries(bundlers)) {
    test(`${name}: as small as README says, no WebGPU, no reference`, { skip }, async () => {
      const code = await bundle();
      assert.doesNotMatch(code, /navigator\.gpu|createShaderModule|float64 on one thread/);
      checkSize(code, /makes\s+it (\d+) kB/);
    });
  }
  test('esbuild: as small as README says with every backend', async () => {
    const contents = PAGE.replace('openCpu, Ropewalk', 'ropewalk').replace(
      'new Ropewalk(await openCpu())',
      'await ropewalk()',
    );
    checkSize(await esbuilt({ stdin: { contents, resolveDir: folder } }), /such a page is (\d+) kB/);
  });
});
