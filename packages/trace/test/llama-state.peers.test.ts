/** The state files that llama.cpp itself writes of the bundled model, after tokens were taken out of its cache. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { openDump, openStateFile, Recorder } from '@ropewalk/trace/internal/node';
import { ROOT, ropewalkIn } from '../../../test/support/command.js';
import { MARLINE, marlineWith } from '../../../test/support/probe-server.js';

const LLAMA = join(ROOT, 'bench/llama/node_modules/node-llama-cpp/dist/index.js');
const skip = existsSync(LLAMA) ? false : 'node-llama-cpp is not installed: npm run peers';
const folder = mkdtempSync(join(tmpdir(), 'state-'));
after(() => rmSync(folder, { recursive: true }));

/** llama.cpp multiplies activations of 8 bits, so its keys, which are up to 5, differ from ours by about 0.1. */
const LIMITS = [
  ['plain', 'F16', 0.15],
  ['flash', 'F16', 0.15],
  ['q8', 'Q8_0', 0.3],
] as const;

/** Caches without flash attention (values transposed), with it, and quantized; `cut` lost tokens 4 to 7, `next` has a new one. */
const PROGRAM = `
const [library, path, folder] = process.argv.slice(2);
const { getLlama } = await import(library);
const llama = await getLlama({ gpu: false, build: 'never', logLevel: 'error' });
const model = await llama.loadModel({ modelPath: path });
for (const [name, flashAttention, type] of [['plain', false, 'F16'], ['flash', true, 'F16'], ['q8', true, 'Q8_0']]) {
  const types = { experimentalKvCacheKeyType: type, experimentalKvCacheValueType: type };
  const context = await model.createContext({ contextSize: 256, flashAttention, threads: 1, ...types });
  const sequence = context.getSequence();
  await sequence.evaluateWithoutGeneratingNewTokens(Array.from({ length: 20 }, (_, n) => 5 + n));
  await sequence.saveStateToFile(folder + '/' + name);
  await sequence.eraseContextTokenRanges([{ start: 4, end: 8 }]);
  await sequence.saveStateToFile(folder + '/' + name + '-cut');
  if (type === 'F16') { // of blocks it ends with a segmentation fault
    await sequence.evaluateWithoutGeneratingNewTokens([300]);
    await sequence.saveStateToFile(folder + '/' + name + '-next');
  }
  await context.dispose();
}
process.exit(0);
`;

describe('the state files of llama.cpp', { skip }, () => {
  before(() => {
    writeFileSync(join(folder, 'run.mjs'), PROGRAM);
    const gguf = join(MARLINE, 'model-q8_0.gguf');
    execFileSync(process.execPath, [join(folder, 'run.mjs'), pathToFileURL(LLAMA).href, gguf, folder]);
  });

  for (const [name, type, limit] of LIMITS)
    test(`${name}: tokens, positions, and the keys and values of our own run`, async () => {
      const out = join(folder, `${name}-ours`);
      const recorder = new Recorder('layers.*.{k_rope,v}', { backend: 'cpu' });
      const model = await marlineWith({}, { engine: recorder.engine });
      const ids = Array.from({ length: 20 }, (_, n) => 5 + n);
      await recorder.record(model, out, { ids });
      model.dispose();
      const [theirs, ours] = [await openDump(join(folder, name)), await openDump(out)];
      const read = async (dump: typeof ours, wanted: string) =>
        (await dump.tensors.find((tensor) => tensor.name === wanted)!.read()).readNumbers() as Float64Array;
      assert.deepEqual([...(await read(theirs, 'tokens'))], ids);
      assert.deepEqual([...(await read(theirs, 'positions'))], [...ids.keys()]);
      assert.equal(theirs.tensors.length, 2 + 2 * 4);
      for (const tensor of theirs.tensors.slice(2)) {
        assert.deepEqual([tensor.shape, tensor.dtype], [[20, 64], type === 'F16' ? 'f16' : 'f32']);
        const [got, expected] = [await read(theirs, tensor.name), await read(ours, tensor.name)];
        // A GGUF of this family has the pairs of keys side by side, ours half a head apart.
        const place = (n: number) => (tensor.name.endsWith('v') ? n : n - (n % 32) + ((n % 32) >> 1) + 16 * (n % 2));
        const worst = got.reduce((most, x, n) => Math.max(most, Math.abs(x - expected[place(n)]!)), 0);
        assert.ok(worst < limit && got.some((x) => Math.abs(x) > 0.1), `${tensor.name}: ${worst}`);
      }
      await theirs.close();
    });

  test('cells after an eviction: tokens are those that stayed, and positions are moved together', async () => {
    const state = await openStateFile(join(folder, 'flash-cut'));
    assert.deepEqual(state.tokens, [5, 6, 7, 8, ...Array.from({ length: 12 }, (_, n) => 13 + n)]);
    const [{ positions, sequences, layers }] = state.caches as [(typeof state.caches)[number]];
    assert.deepEqual([positions, sequences[3], layers.length], [[...Array(16).keys()], [0], 4]);
    await state.close();
  });

  test('cache-diff: llama.cpp turns keys when the next token comes; a state of before has new positions and old keys', async () => {
    const diff = async (name: string, after: string) => {
      const model = join(MARLINE, 'model-q8_0.gguf');
      const { status, stdout } = await ropewalkIn(folder, 'cache-diff', name, after, '--expect', model);
      return {
        status,
        lines: stdout
          .trimEnd()
          .split('\n')
          .map((line) => line.replace(/, error .*/, '')),
      };
    };
    const gone = ['  keys of A that B does not have: 4-7', '  values are equal'];
    for (const [name] of LIMITS)
      assert.deepEqual(await diff(name, `${name}-cut`), {
        status: 1,
        lines: [
          'layers 0-3:',
          '  tokens 0-3: as in A',
          "  tokens 4-15: A's tokens 8-19, not turned, expected is −4 positions",
          ...gone,
        ],
      });
    for (const name of ['plain', 'flash'])
      assert.deepEqual(await diff(name, `${name}-next`), {
        status: 0,
        lines: [
          'layers 0-3:',
          '  tokens 0-3: as in A',
          "  tokens 4-15: A's tokens 8-19, turned by −4 positions",
          '  token 16: keys that A does not have',
          gone[0],
          '  values are equal: only positions differ',
        ],
      });
  });

  test('the file of a context, with and without the outputs of before, is read as that of a sequence', async () => {
    const own = readFileSync(join(folder, 'flash'));
    const start = 12 + 20 * 4;
    const text = Buffer.from([5, 0, 0, 0, ...Buffer.from('llama')]);
    const outputs = Buffer.alloc(4 + 4 + 8 + 12 + 8);
    outputs.writeUInt32LE(1, 0);
    outputs.writeUInt32LE(3, 8); // three logits
    const head = Buffer.from(own.subarray(0, start));
    head.writeUInt32LE(0x6767736e, 0);
    head.writeUInt32LE(9, 4);
    for (const middle of [Buffer.alloc(0), outputs]) {
      writeFileSync(join(folder, 'context'), Buffer.concat([head, text, middle, own.subarray(start)]));
      const state = await openStateFile(join(folder, 'context'));
      assert.deepEqual([state.architecture, state.caches[0]!.layers.length], ['llama', 4]);
      await state.close();
    }
  });

  test('refuses files that are cut anywhere, and counts that the file does not have', async () => {
    const whole = readFileSync(join(folder, 'plain'));
    const path = join(folder, 'broken');
    for (const size of [5, 11, 60, 200, 400, whole.length - 1]) {
      writeFileSync(path, whole);
      truncateSync(path, size);
      await assert.rejects(openStateFile(path), { code: 'FORMAT', message: /is cut, or its model has other memory/ });
    }
    for (const at of [8, 12 + 80, 12 + 84, 12 + 88, 12 + 92]) {
      const forged = Buffer.from(whole);
      forged.writeUInt32LE(0xffffffff, at);
      writeFileSync(path, forged);
      await assert.rejects(openStateFile(path), { code: 'FORMAT' });
    }
    const old = Buffer.from(whole);
    old.writeUInt32LE(1, 4);
    writeFileSync(path, old);
    await assert.rejects(openStateFile(path), { code: 'FORMAT', message: /version: expected 2 or later, got 1/ });
  });
});
