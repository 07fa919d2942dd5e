import assert from 'node:assert/strict';
import { mkdtempSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { writeNpz, writeSafetensors } from '@ropewalk/formats';
import { openDump } from '@ropewalk/trace/internal/node';
import { tensorFrom } from 'ropewalk';

test('opens a folder of safetensors and npz, and nothing that a link leads to', async () => {
  const [folder, outside] = [mkdtempSync(join(tmpdir(), 'dump-')), mkdtempSync(join(tmpdir(), 'outside-'))];
  const values = new Map([['layers.0.q', tensorFrom(new Float32Array([1, 2, 3, 4]), { shape: [2, 2] })]]);
  writeFileSync(join(folder, 'a.safetensors'), writeSafetensors(values));
  writeFileSync(join(folder, 'b.npz'), writeNpz(new Map([['k', values.get('layers.0.q')!]])));
  writeFileSync(join(outside, 'c.safetensors'), writeSafetensors(values));
  symlinkSync(join(outside, 'c.safetensors'), join(folder, 'c.safetensors'));
  const dump = await openDump(folder);
  assert.deepEqual(
    dump.tensors.map(({ name, shape, dtype }) => [name, shape, dtype]),
    [
      ['layers.0.q', [2, 2], 'f32'],
      ['k', [2, 2], 'f32'],
    ],
  );
  for (const tensor of dump.tensors)
    assert.deepEqual([...((await tensor.read()).read() as Float32Array)], [1, 2, 3, 4]);
});

test('refuses a folder without tensors, and a file that is cut', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'dump-'));
  await assert.rejects(openDump(folder), { code: 'FORMAT', message: /it has no tensors/ });
  writeFileSync(join(folder, 'a.safetensors'), new Uint8Array([255, 0, 0, 0, 0, 0, 0, 0, 0x7b]));
  await assert.rejects(openDump(folder), { code: 'FORMAT' });
});
