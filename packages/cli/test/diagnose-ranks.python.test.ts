/** The dumps of ranks that torch.distributed and Megatron share among two to eight processes, together and diagnosed. */
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { ropewalkIn } from '../../../test/support/command.js';
import { noPython, runPython } from '../../../test/support/python.js';

const folder = mkdtempSync(join(tmpdir(), 'torch-ranks-'));
after(() => rmSync(folder, { recursive: true }));

const TOKENS = ['--tokens', '64'];

async function diagnosed(of: string, layout: string, args: readonly string[] = [], tokens = TOKENS) {
  const [x, y] = ['x', 'y'].map((name) => `${of}/rank*/${name}.npy`) as [string, string];
  const call = ['--x', x, '--y', y, '--expect', 'rope.json', ...tokens, '--rank-layout', layout];
  const { status, stdout, stderr } = await ropewalkIn(folder, 'diagnose', ...call, ...args);
  return { status, text: `${stdout}${stderr}`.replace(/\s+/g, ' ') };
}

describe('ranks of torch.distributed', { skip: noPython }, () => {
  before(() => {
    writeFileSync(join(folder, 'rope.json'), JSON.stringify({ headDim: 32, pairing: 'half', base: 10000 }));
    runPython('ranks.py', [folder, '64']);
  });

  for (const ranks of [2, 4, 8]) {
    test(`${ranks}: what they share is right`, async () => {
      for (const layout of ['contiguous', 'tp', 'zigzag']) {
        const positions = layout === 'tp' ? [] : ['--positions', `${layout}-${ranks}/rank*/p.npy`];
        const { status, text } = await diagnosed(`${layout}-${ranks}`, layout, positions);
        assert.equal(status, 0, text);
      }
    });

    test(`${ranks}: another layout, and positions that each rank counts from 0`, async () => {
      const other = await diagnosed(`zigzag-${ranks}`, 'contiguous');
      assert.equal(other.status, 1);
      assert.match(other.text, /^RANK LAYOUT WRONG: every rank is right at the positions of --rank-layout zigzag/);
      const local = await diagnosed(`local-${ranks}`, 'zigzag', ['--positions', `local-${ranks}/rank*/p.npy`]);
      assert.equal(local.status, 1);
      assert.match(local.text, /^POSITIONS WRONG: the kernel is right/);
    });

    test(`${ranks}: Megatron's share of a sequence, and of packed ones`, async () => {
      const own = await diagnosed(`megatron-${ranks}`, 'zigzag');
      assert.equal(own.status, 0, own.text);
      const packed = await diagnosed(`thd-${ranks}`, 'zigzag', [], ['--cu-seqlens', '0,16,64']);
      assert.equal(packed.status, 0, packed.text);
    });

    test(`${ranks}: Megatron's table without a share`, async () => {
      const whole = await diagnosed(`whole-${ranks}`, 'zigzag');
      assert.equal(whole.status, 1);
      const all = Array.from({ length: ranks }, (_, rank) => rank).join(', ');
      assert.match(whole.text, new RegExp(`^KNOWN BUG in each of ranks ${all}: positions-ignored, at the rank's own`));
    });
  }
});
