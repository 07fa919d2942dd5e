/** Tests of GPTQ, AWQ, compressed-tensors and FP8 beside dense weights by the formats' formulas: scripts/python/packed.py. */
import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { parseSafetensors, type SafetensorsTensor } from '@ropewalk/formats';
import { loadModel } from '@ropewalk/model';
import { numberFromF16 } from 'ropewalk';
import { randomFrom, WIDEN_BLOCK } from 'ropewalk/internal';
import { mixTypes } from '../../../test/support/mixed-types.js';
import { safetensorsOf } from '../../../test/support/model-files.js';
import { numberTokenizer, tinyModel } from '../../../test/support/tiny-model.js';
import { describeModel } from '../src/description.js';
import { planModel } from '../src/plan-model.js';
import type { Held } from '../src/weights.js';

const folder = fileURLToPath(new URL('golden/packed', import.meta.url));
const read = (name: string, file: string): Uint8Array => readFileSync(join(folder, name, file));
const files = (name: string) => ({
  'config.json': read(name, 'config.json'),
  'model.safetensors': read(name, 'model.safetensors'),
});
const denseFiles = (name: string) => {
  const { quantization_config: _, ...config } = JSON.parse(new TextDecoder().decode(read(name, 'config.json')));
  return {
    'config.json': new TextEncoder().encode(JSON.stringify(config)),
    'model.safetensors': read(name, 'dense.safetensors'),
  };
};

/** The weights of a model, as numbers, and the types in which they are held. */
async function weightsOf(from: Record<string, Uint8Array>, formats: readonly 'q8_0'[] = []) {
  const description = planModel(await describeModel(from), { formats });
  const weights = new Map<string, { held: Held; numbers: Float32Array }>();
  for (const plan of description.weights) {
    const bytes = new Uint8Array(plan.heldBytes);
    let read = 0;
    let written = 0;
    const onRead = (count: number): void => void (read += count);
    await description.streamWeight(
      plan,
      (piece, at) => {
        bytes.set(piece, at);
        written += piece.length;
      },
      {
        onRead,
      },
    );
    assert.deepEqual([read, written], [plan.sizeBytes, plan.heldBytes], plan.name);
    const numbers =
      plan.held === 'f32'
        ? new Float32Array(bytes.buffer)
        : plan.held === 'f16'
          ? Float32Array.from(new Uint16Array(bytes.buffer), numberFromF16)
          : new Float32Array((bytes.length / 34) * 32);
    if (plan.held === 'q8_0') {
      const y = new Float64Array(32);
      for (let n = 0; n < numbers.length; n += 32) {
        WIDEN_BLOCK.q8_0(bytes, (n / 32) * 34, y);
        numbers.set(y, n);
      }
    }
    weights.set(plan.place, { held: plan.held, numbers });
  }
  return weights;
}

/** The kinds whose groups are whole blocks, with scales of 16 bits: blocks of q8_0 hold them. */
const IN_BLOCKS = ['gptq', 'awq', 'packed', 'packed-zeros', 'int8'];

describe('packed weights are the dense ones, bit for bit', () => {
  for (const name of readdirSync(folder))
    test(name, async () => {
      const want = await weightsOf(denseFiles(name));
      for (const formats of [[], ['q8_0']] as const) {
        const got = await weightsOf(files(name), formats);
        for (const [place, { numbers, held }] of got) {
          assert.deepEqual(numbers, want.get(place)!.numbers, place);
          const matrix = /^\d.*(q|k|v|output|gate|up|down)\.weight$/.test(place);
          const blocks = matrix && formats.length > 0 && IN_BLOCKS.includes(name);
          assert.equal(held, blocks ? 'q8_0' : matrix ? 'f32' : 'f16', place);
        }
      }
    });

  test('a whole model gives the logits of its dense twin', async () => {
    for (const name of ['gptq-act-order', 'awq', 'fp8-blocks']) {
      const [got, want] = await Promise.all(
        [files(name), denseFiles(name)].map(async (from) => {
          const model = await loadModel(from, { backend: 'cpu', threads: 1, tokenizer: numberTokenizer(24) });
          const logits = await model.openSession().append([1, 5, 9, 3], { logits: 'all' });
          model.dispose();
          return logits;
        }),
      );
      // Both compute in f32, in kernels of their own.
      for (const [n, value] of want!.entries()) assert.ok(Math.abs(got![n]! - value) <= 1e-4, `${name}: logit ${n}`);
    }
  });
});

for (const type of ['Q5_0', 'IQ4_NL'] as const)
  test(`${type} is held in q8_0 where it is not read itself, with the same weights`, async () => {
    const shape = { family: 'llama', layers: 1, hidden: 64, heads: 2, kvHeads: 1, headDim: 32, inter: 96 } as const;
    const gguf = tinyModel(type, { ...shape, vocab: 40 }).gguf()['model.gguf']!;
    const { bytes } = mixTypes(gguf, randomFrom(type), () => type);
    const [got, want] = [await weightsOf({ 'm.gguf': bytes }, ['q8_0']), await weightsOf({ 'm.gguf': bytes })];
    for (const [place, { held, numbers }] of got) {
      assert.equal(held, /norm/i.test(place) ? 'f32' : 'q8_0');
      assert.deepEqual(numbers, want.get(place)!.numbers, place);
    }
  });

describe('what is not read is refused by name', () => {
  const changed = (name: string, change: (config: Record<string, unknown>) => void): Record<string, Uint8Array> => {
    const config = JSON.parse(new TextDecoder().decode(read(name, 'config.json')));
    change(config.quantization_config);
    return { ...files(name), 'config.json': new TextEncoder().encode(JSON.stringify(config)) };
  };
  const cases: [string, Record<string, unknown>, RegExp][] = [
    ['gptq', { bits: 3 }, /quantization_config\.bits: expected 2 or 4 or 8, got 3\. Take weights in F32, F16 or BF16/],
    ['gptq', { checkpoint_format: 'marlin' }, /checkpoint_format: expected gptq or gptq_v2, got "marlin"/],
    ['awq', { version: 'gemv' }, /version: expected gemm, got "gemv"/],
    ['fp8-blocks', { fmt: 'e5m2' }, /fmt: expected e4m3 or float8_e4m3fn, got "e5m2"/],
    ['fp8-blocks', { weight_block_size: [128] }, /weight_block_size: expected two integers >= 1/],
    ['packed', { format: 'marlin-24' }, /format: expected pack-quantized or .*, got "marlin-24"/],
    ['packed', { config_groups: {} }, /config_groups: expected one kind of weights in all groups/],
    ['awq', { quant_method: 'hqq' }, /quant_method: expected none, gptq, awq, fp8, compressed-tensors, got "hqq"/],
  ];
  for (const [name, change, message] of cases)
    test(`${name}: ${JSON.stringify(change)}`, () =>
      assert.rejects(describeModel(changed(name, (config) => Object.assign(config, change))), { message }));

  test('tensors that do not belong together, and damaged ones', async () => {
    const edited = (
      name: string,
      edit: (tensors: Map<string, SafetensorsTensor>) => void,
    ): Record<string, Uint8Array> => {
      const bytes = read(name, 'model.safetensors');
      const all = new Map(parseSafetensors(bytes).tensors);
      edit(all);
      const made = Array.from(all, ([key, { type, shape, byteOffset, sizeBytes }]) => {
        return { name: key, shape, type, bytes: bytes.subarray(byteOffset, byteOffset + sizeBytes) };
      });
      return { ...files(name), 'model.safetensors': safetensorsOf(made) };
    };
    const at = 'model.layers.0.self_attn.q_proj';
    const without = edited('gptq', (tensors) => tensors.delete(`${at}.scales`));
    await assert.rejects(describeModel(without), {
      message: /q_proj\.qweight.*: its scales are missing\. Take weights/,
    });
    const instead = (part: string, other: string) =>
      edited('gptq-act-order', (tensors) => tensors.set(`${at}.${part}`, tensors.get(other)!));
    await assert.rejects(describeModel(instead('scales', 'model.layers.0.mlp.gate_proj.scales')), {
      message: /q_proj\.scales.*: expected 64 elements, got \[2, ?64\]\. The config does not belong to these weights/,
    });
    await assert.rejects(describeModel(instead('g_idx', 'model.norm.weight')), {
      message: /q_proj\.g_idx.*: expected type I32, got "F16"/,
    });
    await assert.rejects(
      weightsOf(
        edited('gptq-act-order', (tensors) => {
          const codes = tensors.get(`${at}.qweight`)!;
          tensors.set(`${at}.g_idx`, { ...codes, shape: [32], sizeBytes: 128 });
        }),
      ),
      { message: /q_proj\.weight: g_idx names a group outside of \[0, 2\)\./ },
    );
    const damaged = read('fp8-blocks', 'model.safetensors').slice();
    const { byteOffset } = parseSafetensors(damaged).tensors.get(`${at}.weight`)!;
    damaged[byteOffset + 7] = 0x7f;
    await assert.rejects(weightsOf({ ...files('fp8-blocks'), 'model.safetensors': damaged }), {
      message: /q_proj\.weight: a weight is no number\. The file is damaged or forged\./,
    });
  });
});
