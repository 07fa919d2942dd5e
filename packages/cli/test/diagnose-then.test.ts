import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { writeNpy } from '@ropewalk/formats';
import { ropewalkIn } from '../../../test/support/command.js';
import { DIM, drawn, HEADS, turned, writeRope, writeRows } from '../../../test/support/rotated-rows.js';

const root = fileURLToPath(new URL('../../..', import.meta.url));
const folder = mkdtempSync(join(tmpdir(), 'then-'));
after(() => rmSync(folder, { recursive: true }));

const RECORD = writeRope(folder);

describe('diagnose --then', () => {
  const integers = (name: string, list: readonly number[]): string => {
    writeFileSync(join(folder, name), writeNpy(Int32Array.from(list), { dtype: 'i32', shape: [list.length] }));
    return join(folder, name);
  };
  const x = drawn(12, 'then');
  writeRows(join(folder, 'x.npy'), x);
  writeRows(
    join(folder, 'k.npy'),
    turned(x, (token) => token),
  );
  const calls = ['--x', join(folder, 'x.npy'), '--y', join(folder, 'k.npy'), '--tokens', '12', '--expect', RECORD];
  const run = async (later: Float32Array, ...args: string[]) => {
    writeRows(join(folder, 'later.npy'), later);
    const { status, stdout } = await ropewalkIn(
      root,
      'diagnose',
      ...calls,
      '--then',
      join(folder, 'later.npy'),
      ...args,
    );
    return { status, stdout };
  };
  const left = x.slice(4 * HEADS * DIM);
  test('evicted and shifted, as positions say, and not', async () => {
    const positions = ['--then-positions', integers('q.npy', [0, 1, 2, 3, 4, 5, 6, 7])];
    const right = await run(
      turned(left, (token) => token),
      ...positions,
    );
    assert.equal(right.status, 0, right.stdout);
    assert.match(
      right.stdout,
      /^AS EXPECTED.*\n {2}tokens 0-7: A's tokens 4-11, turned by −4 positions\n {2}keys of A that B does not have: 0-3\n$/s,
    );
    const wrong = await run(
      turned(left, (token) => token + 8),
      ...positions,
    );
    assert.equal(wrong.status, 1);
    assert.match(wrong.stdout, /turned by \+4 positions, which is the other way: expected is −4 positions/);
  });
  test('heads before tokens, which the diagnosis finds: the keys later are read so too', async () => {
    const before = (file: string, rows: Float32Array): string => {
      const [tokens, name] = [rows.length / HEADS / DIM, join(folder, file)];
      const data = rows.map((_, n) => {
        const [head, token, i] = [Math.floor(n / DIM / tokens), Math.floor(n / DIM) % tokens, n % DIM];
        return rows[(token * HEADS + head) * DIM + i]!;
      });
      writeFileSync(name, writeNpy(data, { dtype: 'f32', shape: [HEADS, tokens, DIM] }));
      return name;
    };
    const keys = before(
      'bnsh-k.npy',
      turned(x, (token) => token),
    );
    const { status, stdout } = await ropewalkIn(
      root,
      'diagnose',
      ...['--x', before('bnsh-x.npy', x), '--y', keys, '--tokens', '12', '--expect', RECORD, '--then', keys],
    );
    assert.match(stdout, /^AS EXPECTED.*\n {2}tokens 0-11: as in A\n$/s);
    assert.equal(status, 0);
  });
  test('as it was, turned twice, in JSON', async () => {
    assert.equal((await run(turned(x, (token) => token))).status, 0);
    const { status, stdout } = await run(
      turned(x, (token) => 2 * token),
      '--json',
    );
    assert.equal(status, 1);
    const { verdict, later } = JSON.parse(stdout);
    assert.equal(verdict, 'as expected');
    assert.equal(later.right, false);
    assert.deepEqual([later.runs[0].count, later.runs[0].turned, later.runs[0].step], [12, 0, 1]);
  });
});
