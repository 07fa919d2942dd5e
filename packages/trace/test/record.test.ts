import assert from 'node:assert/strict';
import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { logits } from '@ropewalk/model';
import { openDump, Recorder } from '@ropewalk/trace/internal/node';
import { bindRope, planRope, type Tensor, zeros } from 'ropewalk';
import { runReference } from 'ropewalk/reference';
import { marlineWith } from '../../../test/support/probe-server.js';

const folder = mkdtempSync(join(tmpdir(), 'trace-'));
const recorder = new Recorder('**', { backend: 'cpu' });
const model = await marlineWith({}, { engine: recorder.engine });
after(() => model.dispose());
const ids = Array.from({ length: 70 }, (_, n) => (37 * n + 5) % 1024); // more than one piece

async function read(out: string): Promise<Map<string, Tensor>> {
  const { tensors } = await openDump(out);
  const read = await Promise.all(tensors.map(async (one) => [one.name, await one.read()] as const));
  return new Map(read);
}

test('records the pass: its logits are those of the model, and q_rope is q rotated', async () => {
  const out = join(folder, 'whole');
  await recorder.record(model, out, { ids });
  const tensors = await read(out);
  const given: number[] = [];
  for await (const rows of logits(model, ids)) given.push(...rows);
  const difference = (tensors.get('logits')!.readNumbers() as Float64Array).map((x, n) => Math.abs(x - given[n]!));
  assert.ok(difference.reduce((a, b) => Math.max(a, b)) < 1e-4);
  const q = tensors.get('layers.2.q')!;
  assert.deepEqual(q.shape, [70, 6, 32]);
  const { rope } = (await openDump(out)).facts!.layers[2]!;
  const rotated = zeros('f32', q.shape);
  runReference(bindRope(planRope({ ...rope!, positions: ids.map((_, n) => n) }), q as Tensor<'f32'>, rotated));
  const ours = tensors.get('layers.2.q_rope')!.readNumbers() as Float64Array;
  for (const [n, x] of (rotated.readNumbers() as Float64Array).entries()) assert.ok(Math.abs(x - ours[n]!) < 1e-5);
});

test('records only the names that match, at given positions', async () => {
  const out = join(folder, 'some');
  const some = new Recorder('layers.{1,3}.{q,out}', { backend: 'cpu' });
  const own = await marlineWith({}, { engine: some.engine });
  const positions = ids.map((_, n) => 3 * n);
  await some.record(own, out, { ids, positions });
  own.dispose();
  const tensors = await read(out);
  assert.deepEqual(
    [...tensors.keys()],
    ['tokens', 'positions', 'layers.1.q', 'layers.1.out', 'layers.3.q', 'layers.3.out'],
  );
  assert.deepEqual([...(tensors.get('positions')!.read() as Int32Array)], positions);
});

test('refuses a pattern without a match and a folder that is there, and leaves nothing', async () => {
  assert.throws(() => new Recorder('layers.(a+)+'), { code: 'FORMAT' });
  const none = new Recorder('layers.9.q', { backend: 'cpu' });
  const own = await marlineWith({}, { engine: none.engine });
  await assert.rejects(none.record(own, join(folder, 'none'), { ids }), { message: /no tensor has such a name/ });
  own.dispose();
  await assert.rejects(openDump(join(folder, 'none')), { code: 'FORMAT' });
  await assert.rejects(recorder.record(model, folder, { ids }), { code: 'FORMAT', message: /already exists/ });
});
