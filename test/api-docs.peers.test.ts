/**
 * Runs TypeDoc on every entry: each public name has a docstring and each link has a target. Also, the report of public
 * names matches the code.
 */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { builtPackage, ROOT } from './support/build.js';

const typedoc = join(ROOT, 'scripts/docs/node_modules/typedoc/bin/typedoc');
const skip = existsSync(typedoc) ? false : 'typedoc is not installed: npm run peers';

test('every public name has a docstring, and its links lead somewhere', { skip }, () => {
  const argv = [typedoc, '--options', 'scripts/docs/typedoc.json', '--emit', 'none'];
  const { status, stdout, stderr } = spawnSync(process.execPath, argv, { cwd: ROOT, encoding: 'utf8' });
  assert.equal(status, 0, stdout + stderr);
});

test('contributing/api-report.txt has every public name as it is declared', { skip }, () => {
  builtPackage('cli');
  const argv = ['scripts/docs/api-report.mjs', '--check'];
  const { status, stdout, stderr } = spawnSync(process.execPath, argv, { cwd: ROOT, encoding: 'utf8' });
  assert.equal(status, 0, stdout + stderr);
});
