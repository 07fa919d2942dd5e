/** Tests the description of a model: weights are read piece by piece, as they are held, while the files are open. */
import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { randomFrom } from 'ropewalk/internal';
import { tinyModel } from '../../../test/support/tiny-model.js';
import { WIDENED, widenBlocks } from '../src/dequantize.js';
import { describeModel, folderOf } from '../src/description.js';
import { describeModelPath } from '../src/node.js';
import { type PlannedModel, planModel } from '../src/plan-model.js';
import { streamWeight, type WritePiece } from '../src/stream-weight.js';
import type { WeightPlan } from '../src/weights.js';

const made = tinyModel('described', {
  family: 'llama',
  layers: 1,
  hidden: 32,
  heads: 4,
  kvHeads: 2,
  headDim: 8,
  inter: 64,
  vocab: 40,
});

const root = mkdtempSync(join(tmpdir(), 'ropewalk-description-'));
after(() => rmSync(root, { recursive: true }));

/** Returns the held bytes of a weight, and checks that each comes exactly once, in order. */
async function held(plan: WeightPlan, stream: (write: WritePiece) => Promise<void>): Promise<Uint8Array> {
  const bytes = new Uint8Array(plan.heldBytes);
  let next = 0;
  await stream(async (piece, at) => {
    assert.equal(at, next);
    await Promise.resolve();
    bytes.set(piece, at);
    next += piece.length;
  });
  assert.equal(next, plan.heldBytes);
  return bytes;
}

function all(description: PlannedModel, plan: WeightPlan): Promise<Uint8Array> {
  return held(plan, (write) => description.streamWeight(plan, write));
}

test('every weight of a folder and of a GGUF comes as it lies in the file', async () => {
  for (const files of [made.huggingFace(), made.gguf()]) {
    const description = planModel(await describeModel(files, 'tiny'));
    const { config, weights, metadata } = description;
    assert.equal(config.numLayers, 1);
    assert.equal(metadata?.get('general.architecture'), config.source === 'gguf' ? 'llama' : undefined);
    for (const plan of weights) {
      const [{ file, byteOffset }] = plan.spans as [WeightPlan['spans'][0]];
      const stored = (files as Record<string, Uint8Array>)[file]!;
      assert.deepEqual(await all(description, plan), stored.slice(byteOffset, byteOffset + plan.sizeBytes), plan.place);
    }
  }
});

test('blocks that the reader does not take are widened, in pieces of at most 8 MiB', async () => {
  const rows = 9_000; // 1.3 MB in the file, 9.2 MB widened
  const random = randomFrom('description');
  const bytes = Uint8Array.from({ length: rows * 144 }, () => random.integer(256));
  for (let at = 0; at < bytes.length; at += 144) bytes.fill(0x20, at, at + 4); // scales that are numbers
  const plan: WeightPlan = {
    place: 'head.weight',
    name: 'output.weight',
    type: 'Q4_K',
    shape: [rows, 256],
    spans: [
      { file: 'm', byteOffset: 0, sizeBytes: 144 * 1000 },
      { file: 'm', byteOffset: 144 * 1000, sizeBytes: 144 * 8000 },
    ],
    sizeBytes: bytes.length,
    held: 'f32',
    widened: true,
    heldBytes: rows * 1024,
    lessOne: false,
    turns: 0,
  };
  const folder = folderOf({ m: bytes }, undefined);
  const sizes: number[] = [];
  let read = 0;
  const got = await held(plan, (write) =>
    streamWeight(
      folder,
      plan,
      (piece, at) => {
        sizes.push(piece.length);
        return write(piece, at);
      },
      { onRead: (count) => (read += count) },
    ),
  );
  const want = new Float32Array(rows * 256);
  widenBlocks(WIDENED.get('Q4_K')!, bytes, 'm', 'f32', want);
  assert.deepEqual(Buffer.from(got).equals(Buffer.from(want.buffer)), true);
  assert.deepEqual(sizes, [1000 * 1024, 8000 * 1024]);
  assert.equal(read, bytes.length);
  const stop = new Error('stop');
  await assert.rejects(
    streamWeight(folder, plan, () => {}, { signal: AbortSignal.abort(stop) }),
    stop,
  );
});

test('files are open while someone works with the description, and then closed', async () => {
  for (const [name, files] of Object.entries({ folder: made.huggingFace(), file: made.gguf() })) {
    const folder = join(root, name);
    mkdirSync(folder);
    for (const [file, bytes] of Object.entries(files)) writeFileSync(join(folder, file), bytes);
    const path = name === 'folder' ? folder : join(folder, 'model.gguf');
    let left: PlannedModel | undefined;
    const sizes = await describeModelPath(path, {}, async (description) => {
      left = description;
      assert.equal(description.where, path);
      return Promise.all(description.weights.map(async (plan) => (await all(description, plan)).length));
    });
    assert.deepEqual(
      sizes,
      left!.weights.map(({ heldBytes }) => heldBytes),
    );
    await assert.rejects(all(left!, left!.weights[0]!), /closed|EBADF/);
  }
});

test('what is no model, and options of another kind, are refused by name', async () => {
  const refused = (work: Promise<unknown>, code: string, message: RegExp): Promise<void> =>
    assert.rejects(work, { name: 'RopewalkError', code, message });
  const files = made.gguf();
  await refused(describeModel(undefined as never), 'FORMAT', /^describeModel: files: expected a map/);
  await refused(describeModel(files, 5 as never), 'RANGE', /^describeModel: where: /);
  const plan = async (options: object): Promise<unknown> => planModel(await describeModel(files), options);
  await refused(plan({ widenTo: 'f64' }), 'DTYPE', /^planModel: widenTo: .* got "f64"/);
  await refused(plan({ formats: ['q3'] }), 'UNSUPPORTED', /^planModel: formats: .* got "q3"/);
  await refused(plan({ formats: 5 }), 'SHAPE', /^planModel: formats: /);
  await refused(
    describeModelPath(5 as never, {}, async () => {}),
    'RANGE',
    /^describeModelPath: path: /,
  );
  await refused(
    describeModelPath(join(root, 'absent'), {}, async () => {}),
    'FORMAT',
    /absent: there is no such file/,
  );
});
