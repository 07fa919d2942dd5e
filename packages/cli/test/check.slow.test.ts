/** `ropewalk check` on every suite, as `npm start` runs it, case by case. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { test } from 'node:test';
import { commandPath, ROOT } from '../../../test/support/command.js';

test('everything: exit 0, a line for each case, a summary, plain lines in a pipe', () => {
  // Without a GPU, as on most machines; the suites on webgpu have their own test, and take minutes in software.
  const env = { ...process.env, VK_ICD_FILENAMES: 'none' };
  const ran = spawnSync(process.execPath, [commandPath(), 'check', '--verbose'], {
    cwd: ROOT,
    env,
    encoding: 'utf8',
    maxBuffer: 2 ** 26,
  });
  const { status, stdout, stderr } = ran;
  assert.equal(status, 0, stderr);
  const summary = stdout.slice(stdout.indexOf('Summary')).trim().split('\n');
  const counts = summary.slice(1, -1).map((line) => /^ {2}(cpu|reference)\/([a-z-]+) +(\d+) OK$/.exec(line)!.slice(1));
  const of = (backend: string) => counts.filter(([name]) => name === backend).map(([, suite, ok]) => `${suite} ${ok}`);
  assert.deepEqual(of('cpu'), of('reference'));
  assert.deepEqual(of('cpu').slice(0, 2), ['published 96', 'extended 68']);
  const total = counts.reduce((sum, [, , ok]) => sum + Number(ok), 0);
  assert.equal(summary.at(-1), `  ${total}/${total} cases passed, 0 failed`);
  assert.match(
    stdout,
    /^ {2}ROPE\(type=f32,ne_a=\[128,32,2,1\],n_dims=128,mode=0,n_ctx=512,fs=1\.000000,ef=0\.000000,af=1\.000000,ff=0,v=0\): OK$/m,
  );
  assert.doesNotMatch(stdout, /FAIL/);
  assert.ok(!stdout.includes('\u001b'), 'no terminal codes in a pipe');
});
