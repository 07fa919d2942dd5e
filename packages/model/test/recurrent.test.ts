/**
 * Families whose layers have states beside the KV cache (golden/recurrent): transformers' logits and tokens, whole and in
 * pieces, from its own files and from llama.cpp's; and what a state cannot do, go back.
 */
import assert from 'node:assert/strict';
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { parseGguf, parseNpz, parseSafetensors, writeSafetensors } from '@ropewalk/formats';
import { type Ropewalk, ropewalk, tensorFrom } from 'ropewalk';
import { check } from '../../../test/support/family-vectors.js';
import { kernelSequence } from '../../../test/support/kernel-sequence.js';
import { numberTokenizer } from '../../../test/support/tiny-model.js';
import { generate } from '../src/index.js';
import { loadModelFile, loadModelFolder } from '../src/node.js';
import { writeGguf, writeSafetensorsFolder } from '../src/repack.node.js';
import type { Model } from '../src/types.js';

const GOLDEN = fileURLToPath(new URL('golden/recurrent', import.meta.url));
const NAMES = readdirSync(GOLDEN).flatMap((file) => /^(.*)\.npz$/.exec(file)?.[1] ?? []);
/** Two passes in f32 over logits of up to 26; the largest distance measured is 7e-5. */
const NEAR = 1e-4;

const scratch = mkdtempSync(join(tmpdir(), 'ropewalk-recurrent-'));
const backends = new Map<string, Ropewalk>();
after(() => {
  rmSync(scratch, { recursive: true });
  for (const backend of backends.values()) backend.dispose();
});

function vectorOf(name: string) {
  const arrays = parseNpz(readFileSync(join(GOLDEN, `${name}.npz`)));
  const of = (array: string) => arrays.get(array)!.data as Float32Array;
  return { tokens: Array.from(of('tokens')), logits: of('logits'), greedy: Array.from(of('greedy')) };
}

/** Writes the folder that transformers has saved. */
function folderOf(name: string): string {
  const folder = join(scratch, name);
  mkdirSync(folder, { recursive: true });
  copyFileSync(join(GOLDEN, `${name}.json`), join(folder, 'config.json'));
  copyFileSync(join(GOLDEN, `${name}.safetensors`), join(folder, 'model.safetensors'));
  return folder;
}

async function optionsOf(name: 'cpu' | 'reference') {
  const backend = backends.get(name) ?? (await ropewalk({ backend: name, ...(name === 'cpu' && { threads: 1 }) }));
  backends.set(name, backend);
  return { backend, tokenizer: numberTokenizer(1000), context: 64 };
}

/** Compares a model with transformers: whole, in pieces after a reset, and the tokens that follow. */
async function agrees(model: Model, name: string, what: string): Promise<void> {
  const { tokens, logits, greedy } = vectorOf(name);
  const vocab = model.config.vocabSize;
  const session = model.openSession();
  try {
    check(await session.append(tokens, { logits: 'all' }), logits, NEAR, `${what}, whole`);
    session.truncate(0);
    let at = 0;
    let row = new Float32Array();
    for (const count of [3, 1, 1, 7, 2, 10]) {
      const part = await session.append(tokens.slice(at, at + count), { logits: 'all' });
      check(part, logits.subarray(at * vocab, (at + count) * vocab), NEAR, `${what}, from ${at} on`);
      at += count;
      row = part.slice(-vocab);
    }
    // Keys and values in i8, beside states in f32. A logit moves as much more than with f16 as roundings are larger.
    const narrow = model.openSession({ cacheDtype: 'i8' });
    check(await narrow.append(tokens, { logits: 'all' }), logits, (0.05 * 2 ** 11) / 127, `${what}, i8`);
    narrow.dispose();
    for (const want of greedy) {
      assert.equal(row.indexOf(row.reduce((a, b) => Math.max(a, b))), want, what);
      row = (await session.append([want])).slice();
    }
  } finally {
    session.dispose();
    model.dispose();
  }
}

describe("transformers' logits and tokens", () => {
  for (const name of NAMES) {
    for (const backend of ['cpu', 'reference'] as const)
      test(`${name} on ${backend}`, async () => {
        const options = await optionsOf(backend);
        await agrees(await loadModelFolder(folderOf(name), options), name, 'folder');
      });

    const gguf = join(GOLDEN, `${name}.gguf`);
    if (!existsSync(gguf)) continue;
    test(`${name} from llama.cpp's file, and written as one and back`, async () => {
      const options = await optionsOf('cpu');
      await agrees(await loadModelFile(gguf, options), name, 'GGUF');
      const [made, back] = [join(scratch, `${name}.gguf`), join(scratch, `${name}-back`)];
      const none = { vocabulary: false } as const;
      if (!name.startsWith('lfm2')) {
        const kind = name.startsWith('qwen') ? 'delta nets' : 'state spaces';
        const message = new RegExp(`models with ${kind} are not written in another form yet`);
        const refused = { code: 'UNSUPPORTED', message };
        await assert.rejects(writeGguf(folderOf(name), made, none), refused);
        await assert.rejects(writeSafetensorsFolder(gguf, back, none), refused);
        return;
      }
      await writeGguf(folderOf(name), made, none);
      const [own, given] = [made, gguf].map((path) => parseGguf(readFileSync(path), path));
      const shapes = ({ tensors }: typeof own & object): string[] =>
        tensors.map(({ name, type, shape }) => `${name} ${type} ${shape.filter((n) => n > 1)}`).sort();
      assert.deepEqual(shapes(own!), shapes(given!));
      const sizes = /\.(head_count|key_length|value_length|dimension_count|feed_forward_length)$/; // that follow from others
      for (const [key, value] of given!.metadata)
        if (!/^(general|tokenizer)\./.test(key) && !sizes.test(key))
          assert.deepEqual([key, own!.metadata.get(key)], [key, value]);
      await agrees(await loadModelFile(made, options), name, 'our GGUF');
      await writeSafetensorsFolder(made, back, none);
      await agrees(await loadModelFolder(back, options), name, 'our folder');
    });
  }
});

test('qwen3_5_moe with all experts of a layer in two tensors, as published files have them', async () => {
  const folder = folderOf('qwen3_5_moe');
  const path = join(folder, 'model.safetensors');
  const bytes = new Uint8Array(readFileSync(path));
  const { tensors } = parseSafetensors(bytes, path);
  const of = (name: string): Uint8Array => {
    const { byteOffset, sizeBytes } = tensors.get(name)!;
    return bytes.subarray(byteOffset, byteOffset + sizeBytes);
  };
  const made = [...tensors]
    .filter(([name]) => !name.includes('.experts.'))
    .map(([name, { shape }]) => ({ name, dtype: 'f16', shape, data: new Uint16Array(of(name).slice().buffer) }));
  const joined = (names: readonly string[]): Uint16Array<ArrayBuffer> => {
    const parts = names.map(of);
    return new Uint16Array(Uint8Array.from(parts.flatMap((part) => [...part])).buffer);
  };
  for (let layer = 0; layer < 3; layer++) {
    const before = `model.layers.${layer}.mlp.experts.`;
    const all = (parts: readonly string[]): string[] =>
      Array.from({ length: 6 }, (_, e) => parts.map((part) => `${before}${e}.${part}.weight`)).flat();
    made.push({
      name: `${before}gate_up_proj`,
      dtype: 'f16',
      shape: [6, 32, 32],
      data: joined(all(['gate_proj', 'up_proj'])),
    });
    made.push({ name: `${before}down_proj`, dtype: 'f16', shape: [6, 32, 16], data: joined(all(['down_proj'])) });
  }
  const written = new Map(made.map(({ name, shape, data }) => [name, tensorFrom(data, { dtype: 'f16', shape })]));
  writeFileSync(path, writeSafetensors(written));
  await agrees(await loadModelFolder(folder, await optionsOf('cpu')), 'qwen3_5_moe', 'published');
});

describe('a state cannot go back', () => {
  test('truncate and shift say so, and truncating to 0 starts again', async () => {
    const model = await loadModelFolder(folderOf('lfm2'), await optionsOf('cpu'));
    const session = model.openSession();
    await session.append([5, 6, 7, 8]);
    const refused = { code: 'UNSUPPORTED', message: /has seen all 4 tokens and cannot forget one/ };
    assert.throws(() => session.truncate(3), refused);
    await assert.rejects(session.shift(1, 1), refused);
    session.truncate(4);
    await session.shift(2, 0);
    assert.equal(session.length, 4);
    session.truncate(0);
    const again = await session.append([5, 6]);
    const fresh = await model.openSession().append([5, 6]);
    assert.deepEqual(again, fresh);
    model.dispose();
  });

  test('after an append that failed the session is empty', async () => {
    const model = await loadModelFolder(folderOf('lfm2'), await optionsOf('cpu'));
    const session = model.openSession();
    await session.append([5, 6, 7]);
    const { decoder } = kernelSequence(session);
    const { run } = decoder.runner;
    let steps = 0;
    decoder.runner.run = (plan) => {
      if (++steps > 20) throw new Error('no more');
      run.call(decoder.runner, plan);
    };
    await assert.rejects(session.append([8]), /no more/);
    decoder.runner.run = run;
    assert.equal(session.length, 0);
    assert.deepEqual(await session.append([5, 6]), await model.openSession().append([5, 6]));
    model.dispose();
  });

  test('generate goes on where it stopped, and runs a prompt again that is another', async () => {
    const model = await loadModelFolder(folderOf('lfm2'), await optionsOf('cpu'));
    const kept = { session: model.openSession(), tokens: [] as number[], dispose() {} };
    const run = async (tokens: readonly number[], with_ = kept as typeof kept | undefined) => {
      for await (const { end } of generate(
        model,
        { tokens },
        { maxTokens: 4, temperature: 0, ignoreEos: true, session: with_ },
      ))
        if (end) return end;
      throw new Error('no end');
    };
    const first = await run([5, 6, 7]);
    const more = [5, 6, 7, ...first.tokens, 9];
    const second = await run(more);
    const shifting = generate(model, { tokens: [5] }, { onFull: 'shift' });
    await assert.rejects(shifting.next(), {
      code: 'UNSUPPORTED',
      message: /onFull: layers of this model have a state/,
    });
    assert.equal(second.reusedTokens, 6); // the last token was chosen, not run
    const other = await run([5, 6, 8, 9]);
    assert.equal(other.reusedTokens, 0);
    for (const [end, tokens] of [
      [second, more],
      [other, [5, 6, 8, 9]],
    ] as const)
      assert.deepEqual(end.tokens, (await run(tokens, undefined)).tokens);
    model.dispose();
  });

  test('memory counts states once and caches for layers with attention', async () => {
    const model = await loadModelFolder(folderOf('lfm2'), await optionsOf('cpu'));
    const { cacheBytesPerToken, cacheBytes, context } = model.memory;
    assert.equal(cacheBytesPerToken, (16 + 16) * 4); // one of four layers
    assert.equal(cacheBytes, context * cacheBytesPerToken + 3 * 2 * 32 * 4);
    model.dispose();
  });
});
