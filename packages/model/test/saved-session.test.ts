/** Tests sessions that are saved and taken up again: families with every kind of cache, and files that do not fit. */
import assert from 'node:assert/strict';
import { readdirSync } from 'node:fs';
import { basename, join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { parseSafetensors, tensorFromSafetensors, writeSafetensors } from '@ropewalk/formats';
import { type Ropewalk, RopewalkError, ropewalk, type Tensor } from 'ropewalk';
import { FAMILIES } from '../../../test/support/fixtures.js';
import { numberTokenizer } from '../../../test/support/tiny-model.js';
import { generate, keepSession, restoreSession, saveSession } from '../src/index.js';
import { loadModelFile } from '../src/node.js';
import type { KeptSession, Model } from '../src/types.js';

const tokenizer = numberTokenizer(1000);
/** GGUF files of every kind of cache: keys and values, latents, and states. */
const FILES = [FAMILIES, fileURLToPath(new URL('golden/recurrent', import.meta.url))].flatMap((folder) =>
  readdirSync(folder).flatMap((file) => (file.endsWith('.gguf') ? [join(folder, file)] : [])),
);
const START = [5, 17, 3, 22, 9, 14, 30, 8];
const NEXT = [11, 2, 19];

let rw: Ropewalk;
before(async () => {
  rw = await ropewalk({ backend: 'cpu', threads: 1 });
});
after(() => rw.dispose());

const open = (path: string): Promise<Model> => loadModelFile(path, { backend: rw, tokenizer });
const family = (name: string): Promise<Model> => open(join(FAMILIES, `${name}.gguf`));

/** Generates greedily. @returns the tokens, and how many of the prompt were not computed again */
async function tokensOf(model: Model, session: KeptSession, prompt: readonly number[]) {
  for await (const { end } of generate(model, { tokens: [...prompt] }, { session, maxTokens: 6, ignoreEos: true }))
    if (end) return { tokens: end.tokens, reused: end.reusedTokens };
  throw new Error('no end');
}

describe('a session saved and restored', () => {
  for (const path of FILES)
    test(`${basename(path)}: goes on as the one that was saved`, async () => {
      const model = await open(path);
      const kept = keepSession(model, { context: 64 });
      const { tokens } = await tokensOf(model, kept, START);
      const saved = await saveSession(model, kept);
      const restored = await restoreSession(model, saved, { context: 48 });
      assert.deepEqual(restored.tokens, kept.tokens);
      const prompt = [...START, ...tokens, ...NEXT];
      const [before, now] = [await tokensOf(model, kept, prompt), await tokensOf(model, restored, prompt)];
      assert.deepEqual(now, before);
      assert.ok(now.reused >= START.length + tokens.length - 1, `${now.reused} tokens`);
      model.dispose();
    });

  for (const dtype of ['f16', 'f8_e4m3', 'i8'] as const)
    test(`${dtype} caches, as they are and in a session of f32, and back`, async () => {
      const model = await family('ernie4_5');
      const kept = keepSession(model, { cacheDtype: dtype });
      await tokensOf(model, kept, START);
      const saved = await saveSession(model, kept);
      let latest = saved;
      for (const cacheDtype of [dtype, 'f32', dtype] as const) {
        latest = await saveSession(model, await restoreSession(model, latest, { cacheDtype }));
        const read = (bytes: Uint8Array, name = '1.k'): Tensor =>
          tensorFromSafetensors(bytes, parseSafetensors(bytes), name);
        /** Keys, multiplied by their scales. Those of rows in i8 are rounded to f32, also when they come back. */
        const keys = (bytes: Uint8Array): number[] => {
          const { dtype: held, shape } = read(bytes);
          const scales = held === 'i8' ? read(bytes, '1.k.scales').readNumbers() : undefined;
          const values = Array.from(read(bytes).readNumbers() as Float64Array);
          return values.map((x, n) => x * ((scales as Float64Array)?.[Math.floor(n / shape[2]!)] ?? 1));
        };
        assert.equal(read(latest).dtype, cacheDtype);
        const want = keys(saved);
        const near = dtype === 'i8' ? 2 ** -22 : 0;
        for (const [n, x] of keys(latest).entries()) assert.ok(Math.abs(x - want[n]!) <= near * Math.abs(want[n]!));
      }
      model.dispose();
    });
});

test('a session that does not fit is refused, and nothing stays open', async () => {
  const [model, other] = [await family('ernie4_5'), await family('qwen2vl')];
  const kept = keepSession(model);
  await tokensOf(model, kept, START);
  const saved = await saveSession(model, kept);
  const refused = (on: Model, bytes: Uint8Array, message: RegExp, options = {}): Promise<void> =>
    assert.rejects(
      restoreSession(on, bytes, options),
      (error) => error instanceof RopewalkError && message.test(error.message),
    );
  await refused(other, saved, /Load the model that it was saved with/);
  await refused(model, saved, /context: expected at least \d+, the tokens of the file, got 4/, { context: 4 });
  await refused(model, saved.subarray(0, -1), /truncated/);
  await refused(model, writeSafetensors(new Map()), /a file of saveSession/);
  const file = parseSafetensors(saved);
  const tensors = new Map([...file.tensors.keys()].map((name) => [name, tensorFromSafetensors(saved, file, name)]));
  const changed = (name: string, change: (values: Float32Array) => void): Uint8Array => {
    const [tensor, bytes] = [tensors.get(name)!, new Map(tensors)];
    const values = (tensor.read() as Float32Array).slice();
    change(values);
    bytes.set(name, rw.tensor(values, { shape: tensor.shape }));
    return writeSafetensors(bytes, { format: file.metadata.get('format')! });
  };
  await refused(
    model,
    changed('hidden', (values) => values.fill(1)),
    /saved with other weights/,
  );
  await refused(
    model,
    changed('hidden', (values) => values.fill(Number.NaN)),
    /saved with other weights/,
  );
  tensors.delete('1.v');
  await refused(
    model,
    changed('hidden', () => undefined),
    /1\.v does not fit this model/,
  );
  kept.session.truncate(2);
  await assert.rejects(saveSession(model, kept), /Only what generate\(\) adds is saved/);
  for (const one of [model, other]) one.dispose();
});
