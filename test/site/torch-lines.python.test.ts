/** The lines in torch on the pages of bugs: the right ones give the reference's y, and the wrong ones the bug's. */
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { TORCH_LINES } from '../../site/build/torch-lines.js';
import { bugCases, bugFaults } from '../support/bug-lines.js';
import { noPython, runPython } from '../support/python.js';

test('the lines in torch of each bug do what they say', { skip: noPython }, () => {
  const { models, cases } = bugCases(TORCH_LINES);
  const folder = mkdtempSync(join(tmpdir(), 'torch-lines-'));
  try {
    const path = join(folder, 'cases.json');
    const runs = cases.flatMap(({ from, programs }) => [
      { model: from, program: programs.right },
      { model: from, program: programs.wrong },
    ]);
    writeFileSync(path, JSON.stringify({ models, runs }));
    const printed = JSON.parse(runPython('torch_lines.py', [path])) as { y: string; reach: number }[];
    const got = printed.map(({ y, reach }) => {
      return { y: new Float64Array(Uint8Array.from(Buffer.from(y, 'base64')).buffer), reach };
    });
    const faults = cases.flatMap((one, n) => bugFaults(one, { right: got[2 * n]!, wrong: got[2 * n + 1]! }));
    assert.deepEqual(faults, []);
  } finally {
    rmSync(folder, { recursive: true });
  }
});
