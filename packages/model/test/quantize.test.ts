/** Tests the rounding of floats to blocks as ggml does it, and weights that are rounded or widened. */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { BLOCK_FORMATS } from 'ropewalk';
import { FIXTURES } from '../../../test/support/fixtures.js';
import { tinyModel } from '../../../test/support/tiny-model.js';
import { WIDENED, widenBlocks } from '../src/dequantize.js';
import { describeModel } from '../src/description.js';
import { type PlannedModel, planModel } from '../src/plan-model.js';
import { QUANTIZED_FORMATS, quantize } from '../src/quantize.js';

function blocksOf(x: Float32Array, format: 'q8_0' | 'q4_0'): Uint8Array {
  const out = new Uint8Array((x.length / 32) * BLOCK_FORMATS[format].bytes);
  quantize(x, format, out, 'm');
  return out;
}

/** Makes 128 blocks: random ones of 48 sizes, and corner cases. */
function numbers(format: 'q8_0' | 'q4_0'): Float32Array {
  let state = 7;
  const x = Float32Array.from({ length: 128 * 32 }, (_, n) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return ((state >>> 8) / 2 ** 24 - 0.5) * 2 ** (((n >> 5) % 48) - 30);
  });
  const corners: ((j: number) => number)[] = [
    (j) => j - 16, // the first of the largest is negative
    (j) => 16 - j,
    (j) => (j === 0 ? 127 : (-1) ** j * (j + 0.5)), // ties of q8_0
    (j) => (j === 5 ? -8 : (j - 16) / 2), // ties of q4_0
    () => 0,
    (j) => (j % 2 === 1 ? 0.75 : -0.75),
    (j) => Math.fround((8e6 * j) / 31) / (format === 'q4_0' ? 16 : 1), // scales near the largest f16
    (j) => 2 ** -120 * j, // scales below the smallest f16
    (j) => -5e5 + j,
  ];
  for (const [n, corner] of corners.entries()) for (let j = 0; j < 32; j++) x[(60 + n) * 32 + j] = corner(j);
  return x;
}

test("the same bytes as ggml's own Python package, gguf 0.19.0: quants.Q8_0 and Q4_0, quantize_blocks", () => {
  const hash = (format: 'q8_0' | 'q4_0'): string =>
    createHash('sha256')
      .update(blocksOf(numbers(format), format))
      .digest('hex');
  assert.equal(hash('q8_0'), 'cf57a43716f79909884214e36fe6b61f61f38d33fedc313410d0af28c579d787');
  assert.equal(hash('q4_0'), '3334f0f7066d899dca2317046b85d92c030b6f4e398739f214cfd577cc9c43d2');
});

const folder = `${FIXTURES}/llamacpp/quants`;
test('numbers that ggml made of its own blocks become these blocks again, to the bit', () => {
  for (const format of QUANTIZED_FORMATS) {
    const read = (end: string): Uint8Array<ArrayBuffer> =>
      new Uint8Array(readFileSync(`${folder}/${format}.quantised.${end}`));
    assert.deepEqual(blocksOf(new Float32Array(read('f32').buffer), format), read('blocks'));
  }
});

test('a number that is not finite, or too large for a scale, is refused by name', () => {
  for (const format of QUANTIZED_FORMATS)
    for (const bad of [NaN, Infinity, -Infinity, 3e38])
      for (const at of [0, 40, 63]) {
        const x = new Float32Array(64).fill(1);
        x[at] = bad;
        assert.throws(() => blocksOf(x, format), {
          name: 'RopewalkError',
          code: 'FORMAT',
          message: new RegExp(`^m: expected numbers that ${format} holds, got `),
        });
      }
});

const SHAPE = {
  family: 'llama',
  layers: 1,
  hidden: 64,
  heads: 2,
  kvHeads: 1,
  headDim: 32,
  inter: 48,
  vocab: 40,
} as const;

async function held(description: PlannedModel, place: string): Promise<Uint8Array> {
  const plan = description.weights.find((one) => one.place === place)!;
  const bytes = new Uint8Array(plan.heldBytes);
  await description.streamWeight(plan, (piece, at) => bytes.set(piece, at));
  return bytes;
}

test("a model's matrices are rounded whose rows are whole blocks; all other weights stay", async () => {
  for (const dtype of ['f32', 'f16', 'bf16'] as const) {
    const made = tinyModel('quantize', { ...SHAPE, dtype });
    for (const format of QUANTIZED_FORMATS) {
      const description = planModel(await describeModel(made.huggingFace()), { quantize: format });
      for (const plan of description.weights) {
        const rounds = plan.shape.length === 2 && plan.shape[1] !== 48;
        assert.equal(plan.held, rounds ? format : dtype, plan.place);
      }
      const values = Float32Array.from(made.weights.get('model.layers.0.self_attn.o_proj.weight')!.values);
      assert.deepEqual(await held(description, '0.output.weight'), blocksOf(values, format));
    }
  }
});

test('halves are widened exactly', async () => {
  for (const dtype of ['f16', 'bf16'] as const) {
    const made = tinyModel('widen', { ...SHAPE, dtype });
    const description = planModel(await describeModel(made.huggingFace()), { widenHalves: true });
    assert.ok(description.weights.every((plan) => plan.held === 'f32'));
    const want = Float32Array.from(made.weights.get('model.embed_tokens.weight')!.values);
    assert.deepEqual(new Float32Array((await held(description, 'embedding.weight')).buffer), want);
  }
});

test('blocks that are read stay as they are; others are widened, then rounded', async () => {
  const made = tinyModel('blocks', { ...SHAPE, blocks: 'q8_0' });
  const stored = blocksOf(Float32Array.from(made.weights.get('lm_head.weight')!.values), 'q8_0');
  const kept = planModel(await describeModel(made.gguf()), { quantize: 'q4_0' });
  assert.deepEqual(await held(kept, 'head.weight'), stored);
  const widened = new Float32Array(made.weights.get('lm_head.weight')!.values.length);
  widenBlocks(WIDENED.get('Q8_0')!, stored, 'm', 'f32', widened);
  const rounded = planModel(await describeModel(made.gguf()), { quantize: 'q4_0', formats: [] });
  assert.deepEqual(await held(rounded, 'head.weight'), blocksOf(widened, 'q4_0'));
});
