/** Drawn bookkeeping of positions, right and wrong: each fault is found, most are named, no right layout is accused. */
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { randomFrom } from 'ropewalk/internal';
import { ropewalkIn } from '../../../test/support/command.js';
import { drawn } from '../../../test/support/size.js';
import { DRAWS } from './strangers.js';

const folder = mkdtempSync(join(tmpdir(), 'strangers-'));
after(() => rmSync(folder, { recursive: true }));

test('positions, logs, ranks and caches of strangers', async () => {
  const { seed, numRuns } = drawn(210);
  const [passed, unnamed, accused]: [string[], string[], string[]] = [[], [], []];
  for (let n = 0; n < 2 * numRuns; n++) {
    const [wrong, place] = [n % 2 === 0, mkdtempSync(join(folder, `${n}-`))];
    const draw = DRAWS[(n >> 1) % DRAWS.length]!(randomFrom(`${seed} ${n}`), place, wrong);
    const { status, stdout, stderr } = await ropewalkIn(place, ...draw.args);
    const told = `${draw.name}: ${draw.truth}\n${stderr}${stdout}`;
    assert.ok(status === 0 || status === 1, told);
    if (!wrong && status === 1) accused.push(told);
    if (wrong && status === 0) passed.push(told);
    else if (wrong && !stdout.split('\n').some((line) => draw.says.test(line))) unnamed.push(told);
  }
  assert.deepEqual([passed, accused], [[], []]);
  assert.ok(unnamed.length <= numRuns / 10, unnamed.join('\n'));
});
