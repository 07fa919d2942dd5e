/** The calls that loadModel and its sessions make to an engine. The engine here keeps a list of them. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { numberTokenizer, tinyModel } from '../../../test/support/tiny-model.js';
import type { Engine, EngineModel, Sequence, Wanted } from '../src/engine.js';
import { type LoadOptions, loadModel } from '../src/load.js';
import type { ModelMemory } from '../src/types.js';

const { huggingFace } = tinyModel('engine', {
  family: 'llama',
  layers: 1,
  hidden: 16,
  heads: 2,
  headDim: 8,
  kvHeads: 1,
  inter: 16,
  vocab: 8,
  tied: true,
});

const MEMORY: ModelMemory = {
  weightsBytes: 100,
  cacheBytesPerToken: 1,
  context: 16,
  cacheBytes: 16,
  scratchBytes: 0,
  tableBytes: 0,
  widenedBytes: 0,
  totalBytes: 116,
  largestBytes: 100,
  largestName: 'all',
};

/** Makes an engine whose logits and hidden states count up, and which notes its calls. */
function listing(calls: string[], failAt?: string): Engine {
  const note = (call: string): void => {
    calls.push(call);
    if (call === failAt) throw new Error('no');
  };
  const sequence = (): Sequence => ({
    length: 0,
    chunkTokens: 2,
    async run(tokens, positions, wanted: Wanted, result) {
      note(`${wanted} ${[...tokens]}${positions ? ` at ${[...positions]}` : ''}`);
      this.length += tokens.length;
      const rows = { none: 0, last: 8, all: 8 * tokens.length, hidden: 16 * tokens.length }[wanted];
      for (let n = 0; n < rows; n++) result[n] = 100 * tokens[0]! + n;
    },
    async shift(from, count) {
      note(`shift ${from} ${count}`);
      this.length -= count;
    },
    dispose: () => note('dispose sequence'),
  });
  const model: EngineModel = {
    name: 'list',
    memoryOf: () => MEMORY,
    limits: (machine) => ({ availableBytes: machine?.() }),
    scratchBytes: 0,
    load: async () => note('load'),
    openSequence: () => sequence(),
    dispose: () => note('dispose'),
  };
  return {
    name: 'list',
    async open({ config }) {
      note(`open ${config.architecture}`);
      return model;
    },
  };
}

async function open(calls: string[], failAt?: string, more: LoadOptions = {}) {
  return loadModel(huggingFace(), {
    engine: listing(calls, failAt),
    tokenizer: numberTokenizer(8),
    context: 16,
    ...more,
  });
}

describe('an engine', () => {
  test('runs chunks of its own size, and of what is wanted', async () => {
    const calls: string[] = [];
    const model = await open(calls);
    assert.equal(model.backend, 'list');
    assert.equal(model.memory.totalBytes, 116);
    const session = model.openSession();
    const last = await session.append([1, 2, 3]);
    assert.deepEqual([...last.slice(0, 2)], [300, 301]);
    assert.deepEqual([...(await session.append([4, 5, 6], { logits: 'all' })).slice(15, 17)], [415, 600]);
    await session.append([7], { logits: 'none' });
    await session.shift(1, 2);
    assert.equal(session.length, 5);
    session.truncate(0);
    await session.append([1, 2, 3], { logits: 'none', positions: [9, 8, 7] });
    assert.equal((await model.hidden([1, 2, 3]))[32], 300);
    model.dispose();
    assert.deepEqual(calls, [
      ...['open llama', 'load', 'none 1,2', 'last 3', 'all 4,5', 'all 6', 'none 7', 'shift 1 2'],
      ...['none 1,2 at 9,8', 'none 3 at 7', 'hidden 1,2', 'hidden 3', 'dispose sequence'],
      ...['dispose sequence', 'dispose'],
    ]);
  });

  test('a chunk that fails is taken back, and earlier ones stay; a signal is heard between chunks', async () => {
    const session = (await open([], 'last 3,4')).openSession();
    await assert.rejects(session.append([1, 2, 3, 4]), /^Error: no$/);
    assert.equal(session.length, 2);
    const abort = new AbortController();
    const calls: string[] = [];
    const other = (await open(calls)).openSession();
    const pending = other.append([1, 2, 3], { signal: abort.signal });
    abort.abort(new Error('enough'));
    await assert.rejects(pending, /enough/);
    assert.equal(other.length, 2);
    assert.deepEqual(calls.slice(2), ['none 1,2']);
  });

  test('is disposed when loading fails', async () => {
    const calls: string[] = [];
    await assert.rejects(open(calls, 'load'), /^Error: no$/);
    assert.deepEqual(calls, ['open llama', 'load', 'dispose']);
    await assert.rejects(open([], undefined, { availableBytes: () => 50 }), {
      code: 'DEVICE',
      message: /^model on list: memory: .* are needed/,
    });
  });

  test('refusals: what is no engine, and options of the kernels', async () => {
    const engine = listing([]);
    const refused = (options: object, message: RegExp) =>
      assert.rejects(loadModel(huggingFace(), options as LoadOptions), { code: 'RANGE', message });
    await refused({ engine: 'onnxruntime' }, /^loadModel: engine: expected an engine, such as openOnnxEngine\(\).*got/);
    await refused({ engine: { name: 'x' } }, /^loadModel: engine: expected an engine/);
    await refused(
      { engine, backend: 'cpu' },
      /^loadModel: backend: it is an option of our kernels, and the engine list/,
    );
    await refused({ engine, threads: 2 }, /^loadModel: threads: it is an option of our kernels/);
    await refused({ engine, widenTo: 'f16' }, /^loadModel: widenTo: it is an option of our kernels/);
  });
});
