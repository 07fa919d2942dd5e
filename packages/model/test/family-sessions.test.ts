/** Tests sessions of every family: K-shift in each kind of layer, memory as announced, and files of another family. */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { parseGguf, parseNpy } from '@ropewalk/formats';
import { frequenciesOf, type RopeSpec, type Ropewalk, RopewalkError, ropewalk } from 'ropewalk';
import { goldenFamilies } from '../../../test/support/family-vectors.js';
import { FAMILIES } from '../../../test/support/fixtures.js';
import { HF_FAMILIES as NAMES } from '../../../test/support/huggingface-folder.js';
import { kernelSequence } from '../../../test/support/kernel-sequence.js';
import { numberTokenizer } from '../../../test/support/tiny-model.js';
import { configFromGguf } from '../src/config.js';
import { FAMILIES as ROWS } from '../src/families.js';
import { type Generation, generate, loadModel } from '../src/index.js';
import { loadModelFile } from '../src/node.js';
import type { ModelMemory, Session } from '../src/types.js';
import { planWeights } from '../src/weights.js';

const pathOf = (name: string): string => join(FAMILIES, `${name}.gguf`);
const bytesOf = (name: string): Uint8Array<ArrayBuffer> => new Uint8Array(readFileSync(pathOf(name)));
const tokensOf = (name: string): number[] =>
  Array.from(parseNpy(readFileSync(join(FAMILIES, `${name}.tokens.npy`))).data as Int32Array);
const tokenizer = numberTokenizer(1000);

let rw: Ropewalk;
before(async () => {
  rw = await ropewalk({ backend: 'cpu', threads: 1 });
});
after(() => rw.dispose());

/** Rotates a key `[width]` back by `count` positions in float64. The last dimensions rotate behind `rank`. */
function rotatedBack(key: Float32Array, { rope, count, rank }: { rope: RopeSpec; count: number; rank: number }) {
  const out = Float64Array.from(key);
  const { invFreq } = frequenciesOf(rope);
  const half = (rope.rotaryDim ?? rope.headDim) / 2;
  for (let j = 0; j < half; j++) {
    const [a, b] = rope.pairing === 'interleaved' ? [2 * j, 2 * j + 1] : [j, j + half];
    const [x, y] = [key[rank + a]!, key[rank + b]!];
    const [cos, sin] = [Math.cos(count * invFreq[j]!), Math.sin(-count * invFreq[j]!)];
    out[rank + a] = x * cos - y * sin;
    out[rank + b] = x * sin + y * cos;
  }
  return out;
}

test('a latent cache in f16 moves logits as little as another cache, but where it changes the choice of experts', async () => {
  const [vector] = goldenFamilies().filter(({ name }) => name === 'deepseek2-lite-scale');
  const model = await loadModelFile(vector!.gguf, { backend: rw, tokenizer });
  const tokens = Array.from(vector!.array('tokens')!);
  const run = async (cacheDtype: 'f32' | 'f16'): Promise<Float32Array> => {
    const session = model.openSession({ cacheDtype });
    const all = await session.append(tokens, { logits: 'all' });
    session.dispose();
    return all;
  };
  const [f32, f16] = [await run('f32'), await run('f16')];
  const off = tokens.map((_token, n) => {
    const rows = [f32, f16].map((all) => all.subarray(n * vector!.vocab, (n + 1) * vector!.vocab));
    return rows[0]!.reduce((most, value, at) => Math.max(most, Math.abs(value - rows[1]![at]!)), 0);
  });
  // f16 has 2^-11, and what it moves grows a few times on the way. The seventh token takes another expert.
  assert.deepEqual(
    off.flatMap((worst, n) => (worst > 16 * 2 ** -11 * 3 ? [n] : [])),
    [6],
  );
  model.dispose();
});

describe('K-shift in every kind of layer', () => {
  for (const name of NAMES) {
    test(name, async () => {
      const model = await loadModelFile(pathOf(name), { backend: rw, tokenizer });
      const prompt = tokensOf(name).slice(0, 40);
      const [from, count] = [4, 7];
      const [shifted, fresh] = [model.openSession(), model.openSession()];
      const keysOf = (session: Session, layer: number): Float32Array =>
        kernelSequence(session).cache.k[layer]!.slice(0, 0, session.length).contiguous().read() as Float32Array;
      await shifted!.append(prompt, { logits: 'none' });
      const old = kernelSequence(shifted!).cache.layers.map((_, layer) => keysOf(shifted!, layer));
      await shifted!.shift(from, count);
      await fresh!.append(prompt.toSpliced(from, count), { logits: 'none' });
      const near = (got: ArrayLike<number>, want: ArrayLike<number>, what: string): void => {
        // This bounds one more rotation in f32, of keys below 8.
        const at = Array.from(want).findIndex((value, n) => !(Math.abs(got[n]! - value) <= 1e-5));
        assert.equal(at, -1, `${what}: element ${at} is ${got[at]}, not ${want[at]}`);
      };
      // Keys of the first layer have seen their own token only.
      near(keysOf(shifted!, 0), keysOf(fresh!, 0), 'layer 0');
      for (const [layer, { rope }] of kernelSequence(shifted!).cache.layers.entries()) {
        if (rope?.axes) continue; // all layers rotate as the first
        const [, heads, width] = kernelSequence(shifted!).cache.k[layer]!.shape as [number, number, number];
        const keys = keysOf(shifted!, layer);
        for (let row = from * heads; row < (prompt.length - count) * heads; row++) {
          const was = old[layer]!.subarray((row + count * heads) * width, (row + count * heads + 1) * width);
          const want = rope ? rotatedBack(was, { rope, count, rank: model.config.latent?.rank ?? 0 }) : was;
          near(keys.subarray(row * width, (row + 1) * width), want, `layer ${layer}, row ${row}`);
        }
      }
      let end: Generation | undefined;
      const options = { context: 24, maxTokens: 60, onFull: 'shift', ignoreEos: true } as const;
      for await (const item of generate(model, { tokens: prompt.slice(0, 10) }, options)) end = item.end ?? end;
      assert.equal(end!.tokens.length, 60);
      assert.equal(end!.shiftedTokens, 55);
      model.dispose();
    });
  }
});

describe('memory is what was said', () => {
  const batch = Array.from({ length: 256 }, (_, n) => n % 90);
  before(async () => {
    // Kernels take their own memory once, with the first large batch.
    const model = await loadModelFile(pathOf(NAMES[0]!), { backend: rw, tokenizer, context: 256 });
    await model.openSession().append(batch);
    model.dispose();
  });
  for (const name of NAMES) {
    test(name, async () => {
      const free = (): number => rw.capabilities().memory!.availableBytes!;
      const start = free();
      let said: ModelMemory | undefined;
      const onMemory = (sums: ModelMemory): void => {
        said = sums;
      };
      const model = await loadModelFile(pathOf(name), { backend: rw, tokenizer, context: 256, onMemory });
      const { weightsBytes, totalBytes, cacheBytes, tableBytes } = said!;
      /** The ids of 256 tokens, and each tensor rounded up to 64 bytes. Most tensors are multiples already. */
      const rounding = 4 * 256 + 64 * 20;
      const near = (got: number, want: number, spare: number, what: string): void =>
        assert.ok(got >= want - spare && got <= want + rounding, `${what}: ${got} bytes, said ${want}`);
      near(start - free(), weightsBytes, 0, 'weights');
      const session = model.openSession();
      await session.append(batch, { logits: 'all' });
      near(start - free(), totalBytes, 0, 'in all');
      assert.equal(
        cacheBytes,
        [...kernelSequence(session).cache.k, ...kernelSequence(session).cache.v].reduce(
          (sum, { size }) => sum + 4 * size,
          0,
        ),
      );
      model.dispose();
      near(start - free(), tableBytes, tableBytes, 'after dispose, before tables are collected');
    });
  }
});

describe('files of another family', () => {
  const architectures = [...new Set(Object.values(ROWS).map(({ gguf }) => gguf))];
  for (const name of NAMES) {
    test(name, () => {
      const file = parseGguf(bytesOf(name), 'm.gguf');
      const own = String(file.metadata.get('general.architecture'));
      const stored = file.tensors.map(({ name, type, shape, sizeBytes }) => {
        return { name, type, shape: [...shape].reverse(), file: 'm.gguf', byteOffset: 0, sizeBytes };
      });
      const read = (a: string, keys: 'renamed' | 'as they are'): void => {
        const metadata = [...file.metadata].map(([key, value]) => {
          const renamed = keys === 'renamed' && key.startsWith(`${own}.`) ? a + key.slice(own.length) : key;
          return [renamed, value] as const;
        });
        const header = { ...file, metadata: new Map([...metadata, ['general.architecture', a]]) };
        const factors = (): Float32Array => new Float32Array(8).fill(1);
        const plans = planWeights(configFromGguf(header as typeof file, factors, 'm.gguf'), stored, 'm.gguf');
        // If tensors without a type are counted, each of them has a place.
        const sum = (list: readonly { readonly sizeBytes?: number | undefined }[]): number =>
          list.reduce((total, { sizeBytes }) => total + sizeBytes!, 0);
        assert.equal(sum(plans), sum(stored.filter((tensor) => !tensor.name.startsWith('rope_'))));
      };
      for (const a of architectures.filter((a) => a !== own)) {
        assert.throws(() => read(a, 'as they are'), {
          name: 'RopewalkError',
          message: new RegExp(`^m\\.gguf: ${a}\\.`),
        });
        try {
          read(a, 'renamed');
        } catch (error) {
          assert.ok(error instanceof RopewalkError, String(error));
        }
      }
    });
  }

  test('an expert more or less than the weights have', () => {
    for (const [name, a] of [
      ['mixtral', 'llama'],
      ['qwen3moe', 'qwen3moe'],
      ['gpt-oss', 'gpt-oss'],
      ['deepseek2', 'deepseek2'],
    ] as const) {
      const file = parseGguf(bytesOf(name), 'm.gguf');
      const count = file.metadata.get(`${a}.expert_count`) as number;
      const stored = file.tensors.map((tensor) => {
        return { ...tensor, shape: [...tensor.shape].reverse(), file: 'm.gguf', byteOffset: 0 };
      });
      for (const other of [count - 1, count + 1]) {
        const metadata = new Map([...file.metadata, [`${a}.expert_count`, other] as const]);
        const message = /experts: expected a multiple|tensor blk\.\d+\.ffn_gate_inp\.weight: expected shape/;
        assert.throws(() => planWeights(configFromGguf({ ...file, metadata }), stored, 'm.gguf'), {
          code: 'FORMAT',
          message,
        });
      }
    }
  });

  for (const [name, damaged] of [
    ['gemma3', 'blk.1.attn_norm.weight'],
    ['mixtral', 'blk.0.ffn_gate_inp.weight'],
    ['gpt-oss', 'blk.0.attn_sinks.weight'],
    ['deepseek2', 'blk.0.attn_kv_a_norm.weight'],
  ] as const)
    test(`NaN in ${damaged} of ${name} is no token`, async () => {
      const bytes = bytesOf(name);
      const { dataOffset, tensors } = parseGguf(bytes, name);
      const { offset } = tensors.find((tensor) => tensor.name === damaged)!;
      new DataView(bytes.buffer).setFloat32(dataOffset + offset, Number.NaN, true);
      for (const backend of [rw, 'reference'] as const) {
        const model = await loadModel({ 'm.gguf': bytes }, { backend, tokenizer });
        await assert.rejects(
          async () => {
            for await (const item of generate(model, { tokens: [1, 2, 3] }, { maxTokens: 1 })) assert.ok(item);
          },
          { code: 'RANGE', message: /logits: expected numbers, got NaN .*weights are damaged/ },
        );
        model.dispose();
      }
    });
});
