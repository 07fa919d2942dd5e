/**
 * Proves that the suites can fail: it breaks a copy of the built library in one place at a time, and requires that a
 * case of the suites fails.
 */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { cpSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { transformSync } from 'esbuild';
import { compileKernels, MODULES, packKernels } from '../../scripts/build-wasm.mjs';
import { builtPackage, PACKAGES, ROOT } from '../support/build.js';
import { ASSEMBLY, CPU, MUTATIONS, type Mutation, WEBGPU } from './list.js';

/** Returns the backend that a mutation affects: that of its kernel, or the reference for shared code. */
const backendOf = ([, file]: Mutation): string =>
  file.startsWith(CPU) ? 'cpu' : file.startsWith(WEBGPU) ? 'webgpu' : 'reference';

/**
 * Runs the suites of the copy on one backend up to the first failing case. Suites whose GPU kernels compile slowly come
 * last.
 */
const RUN = `
  const { builtInCases } = await import('./node_modules/@ropewalk/cli/dist/check.js');
  const { openBackend } = await import('ropewalk');
  const { runCases } = await import('@ropewalk/oracle');
  const backend = await openBackend(process.argv[1]);
  const slow = ({ label }) => Number(/linear|self_attention/i.test(label));
  for await (const { label, verdict } of runCases(builtInCases().sort((a, b) => slow(a) - slow(b)), backend)) {
    if (verdict.status !== 'fail') continue;
    process.stdout.write(label);
    process.exit(1);
  }
`;

/** Returns the folder of a package in the copy. */
const homeOf = (copy: string, folder: string): string => join(copy, 'node_modules', PACKAGES.get(folder)!.name);

/** Copies the built packages to a folder in the checkout, where they find their other imports. */
function copyBuilt(): string {
  builtPackage('cli');
  mkdirSync(join(ROOT, '.scratch'), { recursive: true });
  const copy = mkdtempSync(join(ROOT, '.scratch/mutants-'));
  cpSync(join(ROOT, CPU), join(copy, 'wasm'), { recursive: true }); // the kernels read ../abi.ts
  for (const folder of PACKAGES.keys())
    for (const name of ['package.json', 'dist'])
      cpSync(join(ROOT, 'packages', folder, name), join(homeOf(copy, folder), name), { recursive: true });
  symlinkSync(join(ROOT, 'vectors'), join(homeOf(copy, 'cli'), 'vectors'));
  return copy;
}

/** Declares a test for each mutation that affects a backend: a case of the suites must fail. */
export function mutationsOf(backend: 'reference' | 'cpu' | 'webgpu', skip: string | false = false): void {
  const copy = skip ? '' : copyBuilt();
  after(() => rmSync(copy, { recursive: true, force: true }));
  for (const mutation of MUTATIONS.filter((one) => backendOf(one) === backend)) {
    test(mutation[0], { skip }, async (t) => {
      const restore = await apply(mutation, copy);
      const ran = spawnSync(process.execPath, ['--input-type=module', '-e', RUN, backend], {
        cwd: copy,
        encoding: 'utf8',
      });
      restore();
      assert.notEqual(ran.status, 0, 'the mutation survived: every case passes');
      assert.ok(ran.status === 1 && ran.stdout !== '', `it could not run: ${ran.signal ?? ''}${ran.stderr}`);
      t.diagnostic(ran.stdout);
    });
  }
}

/** Applies a mutation to the copy. @returns a function that reverts it */
async function apply([, file, from, to]: Mutation, copy: string): Promise<() => void> {
  const text = readFileSync(join(ROOT, file), 'utf8');
  // The line breaks of the formatter do not matter.
  const pattern = from.replace(/[.*+?^${}()|[\]\\]/g, '\\$&').replace(/\s+/g, '\\s+');
  const found = text.match(new RegExp(pattern, 'g')) ?? [];
  assert.equal(found.length, 1, `its text occurs ${found.length} times in ${file}, expected once: ${from}`);
  const mutated = text.replace(found[0]!, () => to);
  const kernel = file.startsWith(ASSEMBLY);
  const [, folder, module] = /^packages\/([^/]+)\/src\/(.*)\.ts$/.exec(file)!;
  const target = join(homeOf(copy, folder!), 'dist', `${kernel ? 'backends/wasm/kernels.generated' : module}.js`);
  const before = readFileSync(target);
  if (!kernel) writeFileSync(target, transformSync(mutated, { loader: 'ts', format: 'esm', target: 'es2022' }).code);
  else {
    const source = join(copy, 'wasm', file.slice(CPU.length));
    writeFileSync(source, mutated);
    try {
      // One module without optimisation replaces both. The mutation stays wrong, and compiling takes an eighth of the
      // time.
      const [one] = await compileKernels(join(copy, 'wasm/assembly/index.ts'), [MODULES[0]!], ['-O0']);
      const both = MODULES.map(({ name }) => ({ name, bytes: one!.bytes }));
      writeFileSync(target, packKernels(both).replaceAll(/^(export const \w+): [^=]*=/gm, '$1 ='));
    } finally {
      writeFileSync(source, text);
    }
  }
  return () => writeFileSync(target, before);
}
