import assert from 'node:assert/strict';
import { existsSync, mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { writeNpy } from '@ropewalk/formats';
import { tensorFrom } from 'ropewalk';
import { type Ran, ropewalkIn, ropewalkProcess } from '../../../test/support/command.js';

const folder = mkdtempSync(join(tmpdir(), 'trace-'));
const run = (...args: string[]): Promise<Ran> => ropewalkIn(folder, 'trace', ...args);
const npy = (name: string, values: readonly number[]): void =>
  writeFileSync(join(folder, name), writeNpy(Int32Array.from(values), tensorFrom(Int32Array.from(values))));
npy('ids.npy', [1, 42, 7, 300, 12, 9, 77, 500]);
npy('positions.npy', [0, 1, 2, 3, 5, 6, 7, 8]);

test('starts as a process, records and compares', () => {
  const { status, stdout } = ropewalkProcess(
    folder,
    'trace',
    'record',
    '-p',
    'Call me Ishmael.',
    '-o',
    'text',
    '--json',
  );
  assert.equal(status, 0);
  assert.deepEqual(JSON.parse(stdout), {
    out: 'text',
    tensors: 65,
    bytes: JSON.parse(stdout).bytes,
    tokens: 10,
    backend: 'cpu',
  });
});

describe('two runs', () => {
  test('are the same, or part', async () => {
    assert.equal((await run('record', '--tokens', 'ids.npy', '-o', 'ours')).status, 0);
    assert.equal(
      (await run('record', '--tokens', 'ids.npy', '--positions', 'positions.npy', '-o', 'theirs')).status,
      0,
    );
    const same = await run('ours', join('ours', 'tensors.safetensors'));
    assert.equal(same.status, 0);
    assert.match(same.stdout, /^SAME {2}no tensor that was matched leaves the noise/m);
    const other = await run('ours', 'theirs', '--junit', 'report.xml');
    assert.equal(other.status, 1);
    assert.match(other.stdout, /^FIRST DIVERGENCE {2}layers\.0\.q_rope$/m);
    assert.match(other.stdout, /tokens 4-7 hold this row of x rotated by its position \+ 1/);
    const junit = readFileSync(join(folder, 'report.xml'), 'utf8');
    assert.match(junit, /failures="1" skipped="\d+"/);
    assert.match(junit, /name="layers\.0\.q_rope"><failure message="RoPE: tokens 4-7/);
    const json = await run('ours', 'theirs', '--json');
    assert.equal(json.status, 1);
    assert.equal(JSON.parse(json.stdout).divergence.step, 'layers.0.q_rope');
  });
});

describe('refuses', () => {
  const cases: readonly (readonly [string, readonly string[], RegExp])[] = [
    ['one dump', ['ours'], /trace: b: it is missing\. Name two dumps/],
    ['a dump that is not there', ['nowhere', 'ours'], /nowhere/],
    ['a file that is no dump', ['ids.npy', 'nothing.txt'], /nothing\.txt/],
    [
      'options of record beside two dumps',
      ['a', 'b', '--at', 'x'],
      /--at: it does not apply to two dumps, only to trace record/,
    ],
    ['a recording without a folder', ['record', '--tokens', 'ids.npy'], /--out: it is missing/],
    [
      'a recording of no tensor',
      ['record', '--tokens', 'ids.npy', '--at', 'layers.9.q', '-o', 'none'],
      /no tensor has such a name/,
    ],
    [
      'a pattern that is none',
      ['record', '--tokens', 'ids.npy', '--at', '(a+)+', '-o', 'none'],
      /--at: expected a pattern/,
    ],
    ['a second name behind record', ['record', 'x', '-o', 'none'], /record: it takes no second name/],
  ];
  for (const [name, args, message] of cases)
    test(name, async () => {
      const { status, stderr } = await run(...args);
      assert.equal(status, 2);
      assert.match(stderr, message);
      assert.equal(existsSync(join(folder, 'none')), false);
    });
});
