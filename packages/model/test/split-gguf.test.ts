/**
 * Tests models in several files: a split GGUF, and shards without an index. All of them load, or the mistake is named.
 */
import assert from 'node:assert/strict';
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { headsOf } from '@ropewalk/checkpoint/internal/node';
import { readModelRope } from '@ropewalk/checkpoint/node';
import { permute } from '@ropewalk/cli/internal';
import { partNames } from '@ropewalk/formats/internal';
import { type Ropewalk, ropewalk } from 'ropewalk';
import { STORIES } from '../../../test/support/fixtures.js';
import { ggufOf } from '../../../test/support/model-files.js';
import { type SplitKeys, splitGguf } from '../../../test/support/split-gguf.js';
import { numberTokenizer, tinyModel } from '../../../test/support/tiny-model.js';
import { generate, type LoadOptions, loadModel, type ModelFiles } from '../src/index.js';
import { loadModelFolder, loadModelPath } from '../src/node.js';
import type { Model } from '../src/types.js';

const SHAPE = { layers: 2, hidden: 32, heads: 4, kvHeads: 2, headDim: 8, inter: 64, vocab: 40 } as const;
// Factors divide the frequencies. Without their tensor, which is in the last part, the logits differ.
const made = tinyModel('split', { family: 'llama', ...SHAPE, freqFactors: [1, 2, 3, 4] });
const whole = made.gguf()['model.gguf']!;
const COUNTS = [7, 0, 5];
const TOKENS = [1, 5, 9, 30, 2];
const tokenizer = numberTokenizer(40);

let rw: Ropewalk;
let folder: string;
before(async () => {
  rw = await ropewalk({ backend: 'cpu', threads: 1 });
  folder = mkdtempSync(join(tmpdir(), 'ropewalk-split-'));
});
after(() => {
  rw.dispose();
  rmSync(folder, { recursive: true });
});

const countsOf = (file: Uint8Array): number[] => [...COUNTS, tensorsOf(file) - COUNTS.reduce((a, b) => a + b, 0)];
const tensorsOf = (file: Uint8Array): number => new DataView(file.buffer, file.byteOffset).getUint32(8, true);
const split = (keysOf?: (n: number, keys: SplitKeys) => SplitKeys): Record<string, Uint8Array> =>
  splitGguf(whole, countsOf(whole), 'm', keysOf);
/** Returns the name of part n, from 1. */
const part = (n: number): string => `m-0000${n}-of-00004.gguf`;

async function logitsOf(open: (options: LoadOptions) => Promise<Model>): Promise<Float32Array> {
  const model = await open({ backend: rw, tokenizer });
  try {
    return await model.openSession().append(TOKENS);
  } finally {
    model.dispose();
  }
}

function inFolder(name: string, files: Record<string, Uint8Array | string>): string {
  const path = mkdtempSync(join(folder, `${name}-`));
  for (const [file, content] of Object.entries(files)) writeFileSync(join(path, file), content);
  return path;
}

const refused = (work: Promise<unknown>, message: RegExp): Promise<void> =>
  assert.rejects(work, { name: 'RopewalkError', code: 'FORMAT', message });
const load = (files: ModelFiles): Promise<Model> => loadModel(files, { backend: rw, tokenizer });

test('names of parts', () => {
  assert.deepEqual(
    partNames('m-00002-of-00003.gguf'),
    [1, 2, 3].map((n) => `m-0000${n}-of-00003.gguf`),
  );
  assert.deepEqual(partNames('a-00001-of-00001.safetensors'), ['a-00001-of-00001.safetensors']);
  const others = ['m.gguf', 'm-1-of-2.gguf', 'm-00000-of-00002.gguf', 'm-00003-of-00002.gguf', 'm-00001-of-00002'];
  for (const name of others) assert.equal(partNames(name), undefined, name);
});

describe('a split GGUF', () => {
  test('gives the logits of the whole file: from bytes, the first part, any part, the folder', async () => {
    const want = await logitsOf((options) => loadModel({ 'm.gguf': whole }, options));
    const dir = inFolder('split', split());
    const ways: ((options: LoadOptions) => Promise<Model>)[] = [
      (options) => loadModel(split(), options),
      (options) => loadModel(new Map(Object.entries(split()).reverse()), options),
      (options) => loadModelPath(join(dir, part(1)), options),
      (options) => loadModelPath(join(dir, part(3)), options),
      (options) => loadModelFolder(dir, options),
      (options) => loadModel(splitGguf(whole, [tensorsOf(whole)]), options),
    ];
    for (const way of ways) assert.deepEqual(await logitsOf(way), want);
  });

  test('of a trained model: the vocabulary of the first part, the tokens of the whole', async () => {
    const file = new Uint8Array(readFileSync(`${STORIES}/model-f32.gguf`));
    const count = tensorsOf(file);
    const parts = splitGguf(file, [0, 1, count - 1], 'stories');
    const texts: string[] = [];
    for (const files of [{ 'model-f32.gguf': file }, parts]) {
      const model = await loadModel(files, { backend: rw });
      let written = '';
      for await (const { text } of generate(model, 'Once upon a time', { maxTokens: 12 })) written += text;
      texts.push(written);
      model.dispose();
    }
    assert.ok(texts[0]!.length > 10);
    assert.equal(texts[1], texts[0]);
  });

  test('is inspected as a whole: RoPE with its factors, heads', async () => {
    const dir = inFolder('rope', { ...split(), 'm.txt': 'left alone' });
    const one = inFolder('one', { 'm.gguf': whole });
    const want = await readModelRope(one);
    assert.ok(want.layers[0]!.rope!.freqFactors);
    for (const path of [dir, join(dir, part(1)), join(dir, part(2))]) assert.deepEqual(await readModelRope(path), want);
    assert.deepEqual(await headsOf(join(dir, part(2)), 0), { heads: 4, kvHeads: 2 });
  });

  test('is permuted as a folder of parts, which any part stands for', async () => {
    const one = inFolder('permute-one', { 'm.gguf': whole });
    const dir = inFolder('permute', { ...split(), 'notes.txt': 'text' });
    const [outOne, out] = [join(folder, 'out.gguf'), join(folder, 'out')];
    const options = { to: 'half', force: true } as const;
    assert.equal(await permute(one, outOne, options), 0);
    assert.equal(await permute(dir, out, options), 0);
    const want = splitGguf(readFileSync(outOne), countsOf(whole), 'm');
    assert.deepEqual(readdirSync(out).sort(), [...Object.keys(want), 'notes.txt']);
    for (const [name, bytes] of Object.entries(want))
      assert.deepEqual(new Uint8Array(readFileSync(join(out, name))), bytes, name);
    const mixed = inFolder('permute-mixed', { ...split(), 'other.gguf': 'x', 'other.safetensors': 'x' });
    const byPart = join(folder, 'out-by-part');
    assert.equal(await permute(join(mixed, part(2)), byPart, options), 0);
    assert.deepEqual(readdirSync(byPart).sort(), Object.keys(want), 'without the other models');
    for (const [name, bytes] of Object.entries(want))
      assert.deepEqual(new Uint8Array(readFileSync(join(byPart, name))), bytes, name);
    rmSync(join(mixed, part(3)));
    await assert.rejects(permute(join(mixed, part(1)), join(folder, 'x'), options), {
      message: /m-00003-of-00004\.gguf is missing, one of 4 parts/,
    });
  });

  test('a part that is missing, double, foreign or cut is named', async () => {
    const files = split();
    const without = Object.fromEntries(Object.entries(files).filter(([name]) => name !== part(3)));
    const dir = inFolder('missing', without);
    const missing = /m-00003-of-00004\.gguf is missing, one of 4 parts\. Add it\./;
    await refused(load(without), missing);
    await refused(loadModelFolder(dir), missing);
    await refused(readModelRope(dir), missing);
    const absent = /m-00003-of-00004\.gguf: there is no such file/;
    await refused(loadModelPath(join(dir, part(1))), absent);
    await refused(readModelRope(join(dir, part(1))), absent);

    await refused(load({ ...files, 'n.gguf': whole }), /Give one of the \.gguf files itself/);
    await refused(
      load({ ...files, [part(2)]: files[part(3)]! }),
      /00002-of-00004\.gguf: split\.no: expected 1, as the name says, got 2/,
    );
    const five = splitGguf(whole, [1, 1, 1, 1, tensorsOf(whole) - 4]);
    await refused(
      load({ ...files, [part(2)]: five['model-00002-of-00005.gguf']! }),
      /00002-of-00004\.gguf: split\.count: expected 4, as the name says, got 5\. A part of another model/,
    );
    for (const said of [99, undefined])
      await refused(
        load(split((n, keys) => (n === 2 ? { ...keys, 'split.tensors.count': said } : keys))),
        /00003-of-00004\.gguf: split\.tensors\.count: expected \d+, the tensors of all parts, got (99|undefined|none)/,
      );
    await refused(
      load(split((n, keys) => (n === 1 ? { ...keys, 'split.no': undefined } : keys))),
      /00002-of-00004\.gguf: split\.no: expected 1/,
    );
    await refused(
      load({ ...files, [part(4)]: files[part(4)]!.subarray(0, -40) }),
      /00004-of-00004\.gguf: tensor .*truncated or forged/,
    );
    await refused(load({ 'm.gguf': files[part(1)]! }), /m\.gguf: split\.count: it is one of 4 parts, but its name/);
    await refused(
      load({ [part(1)]: whole, [part(2)]: whole, [part(3)]: whole, [part(4)]: whole }),
      /00001-of-00004\.gguf: split\.count: expected 4, as the name says/,
    );
    const [one, two] = ['model-00001-of-00002.gguf', 'model-00002-of-00002.gguf'];
    const twice = splitGguf(whole, [2, tensorsOf(whole) - 2]);
    // There are as many tensors as the model has, but the second is there twice, and the last is missing.
    const shifted = splitGguf(whole, [1, tensorsOf(whole) - 2, 1], 'model', (_n, keys) => ({
      ...keys,
      'split.count': 2,
    }));
    const second = shifted['model-00002-of-00003.gguf']!;
    await refused(load({ [one]: twice[one]!, [two]: second }), /model-00001-of-00002\.gguf has this tensor too/);
    const big = ggufOf([], { 'split.no': 1, 'split.count': 2, 'split.tensors.count': tensorsOf(whole) });
    const all = splitGguf(whole, [tensorsOf(whole), 0])[one]!;
    await refused(load({ [one]: all, [two]: swapped(big) }), /its byte order is not that of model-00001/);
  });
});

/** Returns the same header in big-endian order. It has only keys with u32. */
function swapped(file: Uint8Array): Uint8Array {
  const out = Uint8Array.from(file);
  const turn = (at: number, length: number): number => {
    out.subarray(at, at + length).reverse();
    return at + length;
  };
  let at = turn(turn(turn(4, 4), 8), 8);
  const from = new DataView(file.buffer, file.byteOffset);
  for (let n = from.getUint32(16, true); n > 0; n--) {
    const length = from.getUint32(at, true);
    at = turn(turn(turn(at, 8) + length, 4), 4);
  }
  return out;
}

describe('shards of safetensors without an index', () => {
  const files = made.huggingFace();
  const { 'model.safetensors': weights, ...rest } = files;

  test('load when their names number them, and all are there', async () => {
    const empty = new TextEncoder().encode('\u0002\0\0\0\0\0\0\0{}');
    const shards = { ...rest, 'model-00001-of-00002.safetensors': weights!, 'model-00002-of-00002.safetensors': empty };
    const want = await logitsOf((options) => loadModel(files, options));
    assert.deepEqual(await logitsOf((options) => loadModel(shards, options)), want);
    const dir = inFolder('shards', shards);
    const out = join(folder, 'shards-out');
    assert.equal(await permute(dir, out, { to: 'interleaved' }), 0);
    assert.deepEqual(readdirSync(out), readdirSync(dir));
  });

  test('the first one that is missing is named', async () => {
    const some = { ...rest, 'model-00002-of-00003.safetensors': weights! };
    await refused(load(some), /model-00001-of-00003\.safetensors is missing, one of 3 parts/);
    const double = { ...rest, 'm-00001-of-00002.safetensors': weights!, 'm-00002-of-00002.safetensors': weights! };
    await refused(
      load(double),
      /m-00002-of-00002\.safetensors: model\.embed_tokens\.weight: m-00001-of-00002\.safetensors has this tensor too/,
    );
  });
});
