/** Runs the programs in contributing/debugging.md in a clone after `npm ci`. The one that needs a GPU is not tested. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { ROOT } from './support/build.js';

const page = readFileSync(join(ROOT, 'contributing/debugging.md'), 'utf8');
for (const section of page.split('\n## ')) {
  const program = /```ts\n([\s\S]*?)```/.exec(section)?.[1];
  if (!program || program.includes("'webgpu'")) continue;
  test(section.split('\n')[0]!, () => {
    mkdirSync(join(ROOT, '.scratch'), { recursive: true });
    const folder = mkdtempSync(join(ROOT, '.scratch/look-'));
    try {
      const file = join(folder, 'look.ts');
      writeFileSync(file, program);
      const { status, stdout, stderr } = spawnSync(process.execPath, ['--import', 'tsx', file], {
        cwd: ROOT,
        encoding: 'utf8',
      });
      assert.equal(status, 0, stderr);
      assert.notEqual(stdout, '');
    } finally {
      rmSync(folder, { recursive: true });
    }
  });
}
