/**
 * Tests of all decoder families as whole graphs in ONNX Runtime, in every form: the logits of the float64 oracle, and
 * the next tokens.
 */
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';
import { describeModel, planModel } from '@ropewalk/model/internal';
import { loadModelFile } from '@ropewalk/model/node';
import { type Ropewalk, ropewalk } from 'ropewalk';
import { openDecoder, writeDecoder } from '../../../test/support/decoder-folder.js';
import {
  familyVectors,
  goldenFamilies,
  savedFamilies,
  savedFamily,
  type Vector,
} from '../../../test/support/family-vectors.js';
import { writeHuggingFace } from '../../../test/support/huggingface-folder.js';
import { noOnnxruntime } from '../../../test/support/onnxruntime.js';
import { numberTokenizer, type TinyShape, tinyModel } from '../../../test/support/tiny-model.js';
import { type DecoderGraphOptions, decoderGraph } from '../src/graph.js';
import { DECODER_FORMS, type DecoderForm } from '../src/scope.js';

const made = mkdtempSync(join(tmpdir(), 'families-'));
after(() => rmSync(made, { recursive: true }));

/** Runs `work` with a graph. */
async function withDecoder(
  gguf: string,
  options: DecoderGraphOptions,
  session: object,
  work: (decoder: Decoder) => Promise<void>,
  capacity?: number,
): Promise<void> {
  const folder = mkdtempSync(join(made, 'model-'));
  rmSync(folder, { recursive: true });
  await writeDecoder(gguf, options, folder);
  const decoder = await openDecoder(folder, capacity, session);
  try {
    await work(decoder);
  } finally {
    await decoder.release();
    rmSync(folder, { recursive: true });
  }
}

let reference: Ropewalk | undefined;
after(() => reference?.dispose());

/** The logits of a prompt in float64. */
async function oracle(
  { gguf, n_ctx, vocab }: Pick<Vector, 'gguf' | 'n_ctx' | 'vocab'>,
  prompt: readonly number[],
  positions?: readonly number[],
): Promise<ArrayLike<number>> {
  reference ??= await ropewalk({ backend: 'reference' });
  const options = { backend: reference, context: n_ctx, tokenizer: numberTokenizer(vocab) };
  const model = await loadModelFile(gguf, options);
  try {
    return await model.openSession().append(prompt, { logits: 'all', ...(positions && { positions }) });
  } finally {
    model.dispose();
  }
}

const rms = (values: ArrayLike<number>): number =>
  Math.sqrt(Array.from(values).reduce((sum, x) => sum + x * x, 0) / values.length);

/** Fails if logits, from row `row` on, have a larger error than {@link within}. */
type Check = (got: Float32Array, row: number, what: string) => void;

/**
 * Sums of f32 are in another order than the oracle's, once per layer, and the errors of layers add up like a random
 * walk. The largest error of a model's logits is 2^-17 of their size for each root of a layer (measured, all families
 * in all forms). A wrong rule moves some logit by 1e-2 and more (the vectors' own mutations).
 */
function within(want: ArrayLike<number>, layers: number): number {
  return 2 ** -16 * Math.max(1, rms(want)) * Math.sqrt(layers);
}

function checkOf({ vocab }: Pick<Vector, 'vocab'>, want: ArrayLike<number>, layers: number, passes = 1): Check {
  const limit = passes * within(want, layers);
  return (got, row, what) => {
    const count = Math.min(got.length, want.length - row * vocab);
    assert.equal(got.length % vocab, 0, what);
    let worst = 0;
    for (let n = 0; n < count; n++) {
      const off = Math.abs(got[n]! - want[row * vocab + n]!);
      if (!(off <= worst)) worst = off;
    }
    assert.ok(worst <= limit, `${what}: off by ${worst}, more than ${limit}`);
  };
}

type Decoder = Awaited<ReturnType<typeof openDecoder>>;

/** The prompt and llama.cpp's text after it, in one call. The graph would have written the same. */
async function checkGreedy(decoder: Decoder, vector: Vector, prompt: readonly number[]): Promise<Float32Array> {
  const { vocab } = vector;
  const greedy = Array.from((vector.array('greedy-f32') ?? vector.array('greedy'))!);
  const logits = await decoder.run({ ids: [[...prompt, ...greedy.slice(0, -1)]], keep: 0 });
  const best = greedy.map((_, n) => {
    const at = (prompt.length - 1 + n) * vocab;
    const row = logits.subarray(at, at + vocab);
    return row.indexOf(row.reduce((a, b) => Math.max(a, b)));
  });
  assert.deepEqual(best, greedy);
  return logits;
}

/** A prompt in two calls, then token by token, with the logits of the last ones only. */
async function checkPieces(decoder: Decoder, prompt: readonly number[], check: Check): Promise<void> {
  const half = Math.floor(prompt.length / 2);
  const steps = 3;
  check(await decoder.run({ ids: [prompt.slice(0, half)], keep: 0 }), 0, 'first half');
  const second = await decoder.run({ ids: [prompt.slice(half, -steps)], keep: 2 });
  check(second, prompt.length - steps - 2, 'second half, two rows');
  for (let at = prompt.length - steps; at < prompt.length; at++)
    check(await decoder.run({ ids: [[prompt[at]!]], keep: 1 }), at, `token ${at}`);
}

/** Products with blocks in f32: the graph sets it in contrib, the session in standard. */
const EXACT = { extra: { session: { qdq_matmulnbits_accuracy_level: '0' } } };

function agrees(vectors: readonly Vector[], form: DecoderForm): void {
  for (const vector of vectors)
    test(`${vector.name} in form ${form}`, async () => {
      const prompt = Array.from(vector.array('tokens')!);
      const want = vector.array('logits-f64') ?? (await oracle(vector, prompt));
      const options = { form, context: vector.n_ctx, activations: 'f32' } as const;
      await withDecoder(vector.gguf, options, EXACT, async (decoder) => {
        const check = checkOf(vector, want, decoder.layers);
        check(await checkGreedy(decoder, vector, prompt), 0, 'in one call');
        decoder.clear();
        await checkPieces(decoder, prompt, check);
        const wantOfAxes = vector.array('mrope-logits');
        if (!wantOfAxes) return;
        // The positions are like those of an image: rows of four axes, of which the model may have three.
        decoder.clear();
        const tokens = prompt.slice(0, wantOfAxes.length / vector.vocab);
        const all = Array.from(vector.array('mrope-positions')!);
        const positions = Array.from({ length: decoder.axes }, (_, axis) =>
          all.slice(axis * tokens.length, (axis + 1) * tokens.length),
        );
        const logits = await decoder.run({ ids: [tokens], positions, keep: 0 });
        checkOf(vector, wantOfAxes, decoder.layers)(logits, 0, 'positions of several axes');
      });
    });
}

/** Sizes, types and windows that no family's model has here. */
const SHAPES: Readonly<Record<string, Partial<TinyShape>>> = {
  'heads of 12, which no fused attention takes': { headDim: 12 },
  'heads of 24, which none rotates': { headDim: 24, heads: 2, kvHeads: 2 },
  'heads of 80, with a window': { family: 'mistral', headDim: 80, window: 5, extra: { sliding_window: 5 } },
  'three queries a key head, biases': { heads: 3, kvHeads: 1, qkvBias: true, outputBias: true, mlpBias: true },
  'bf16, tied': { dtype: 'bf16', tied: true },
  'f16, a large vocabulary': { dtype: 'f16', vocab: 3000, family: 'qwen3' },
  'q8_0, tied': { blocks: 'q8_0', tied: true, hidden: 64, inter: 96 },
  'q4_0, an odd vocabulary': { blocks: 'q4_0', hidden: 64, inter: 96, headDim: 32, vocab: 97 },
};

const USUAL = {
  family: 'llama',
  layers: 2,
  hidden: 48,
  heads: 4,
  kvHeads: 2,
  headDim: 16,
  inter: 80,
  vocab: 64,
} as const satisfies TinyShape;

function shapesIn(form: DecoderForm): void {
  for (const [name, shape] of Object.entries(SHAPES))
    test(name, async () => {
      const model = tinyModel(name, { ...USUAL, ...shape });
      const folder = mkdtempSync(join(made, 'tiny-'));
      const files = shape.window ? model.huggingFace() : model.gguf();
      for (const [file, bytes] of Object.entries(files)) writeFileSync(join(folder, file), bytes);
      const path = shape.window ? folder : join(folder, 'model.gguf');
      const prompt = Array.from({ length: 14 }, (_, n) => (5 + 11 * n) % 64);
      const { vocab, layers, blocks } = model.shape;
      const want = blocks ? await oracle({ gguf: path, n_ctx: 64, vocab }, prompt) : model.logits(prompt);
      const check = checkOf({ vocab }, want, layers);
      await withDecoder(path, { form, activations: 'f32' }, EXACT, (decoder) => checkPieces(decoder, prompt, check));
    });
}

/** Families that have GroupQueryAttention everywhere, partly, and never; with several axes, and with latent heads. */
const CACHES = ['smollm3', 'gemma3', 'gptneox', 'qwen2vl', 'deepseek2-lite'];

function newRowsIn(form: DecoderForm): void {
  for (const vector of vectors.filter(({ name }) => CACHES.includes(name)))
    test(`${vector.name}: caches with more rows than tokens, to which each call adds its own`, async () => {
      const prompt = Array.from(vector.array('tokens')!).slice(0, 30);
      const options = { form, context: vector.n_ctx, newRows: true };
      const run = (decoder: Decoder): Promise<void> =>
        checkPieces(decoder, prompt, checkOf(vector, vector.array('logits-f64')!, decoder.layers));
      await withDecoder(vector.gguf, options, {}, run, 40);
    });
}

function int8In(form: DecoderForm): void {
  for (const vector of vectors.filter(({ name }) => name.endsWith('q8_0')))
    test(`${vector.name}: rounding to int8 costs as much as llama.cpp's does, and no token`, async () => {
      const prompt = Array.from(vector.array('tokens')!);
      const want = vector.array('logits-f64')!;
      const errorOf = (got: ArrayLike<number>): number => rms(Array.from(want, (x, n) => got[n]! - x));
      await withDecoder(vector.gguf, { form, context: vector.n_ctx }, {}, async (decoder) => {
        const own = errorOf(await checkGreedy(decoder, vector, prompt));
        const theirs = errorOf(vector.array('logits')!);
        // Both round in the same blocks of 32, but their values differ in the last bits: 0.9 and 1.06 were measured.
        assert.ok(own < 1.25 * theirs, `rms ${own} beside ${theirs}`);
        assert.ok(own > 0.5 * theirs, `rms ${own}: the graph does not round`);
      });
    });
}

/** Experts as gpt-oss saves them, transposed and in MXFP4; latent heads in one matrix. */
const HUGGINGFACE = [['gpt-oss'], ['gpt-oss', { mxfp4: true }], ['deepseek2']] as const;

function huggingFaceIn(form: DecoderForm): void {
  for (const [name, files] of HUGGINGFACE)
    test(`${name}${files ? ' in MXFP4' : ''} from HuggingFace's files`, async () => {
      const vector = vectors.find((one) => one.name === name)!;
      const folder = join(made, `${name}-${form}-${files !== undefined}`);
      await writeHuggingFace(vector.gguf, folder, files);
      const prompt = Array.from(vector.array('tokens')!);
      await withDecoder(folder, { form, context: vector.n_ctx }, {}, async (decoder) =>
        checkPieces(decoder, prompt, checkOf(vector, vector.array('logits-f64')!, decoder.layers)),
      );
    });
}

function savedIn(form: DecoderForm): void {
  for (const name of savedFamilies())
    test(`${name} in form ${form}`, async () => {
      const { writeTo, tokens, logits } = savedFamily(name);
      const folder = join(made, `${name}-${form}-saved`);
      writeTo(folder);
      const check = (layers: number) => checkOf({ vocab: logits.length / tokens.length }, logits, layers, 2); // both are f32
      await withDecoder(folder, { form, context: 64, activations: 'f32' }, EXACT, async (decoder) =>
        checkPieces(decoder, tokens, check(decoder.layers)),
      );
    });
}

/** With GroupQueryAttention, without it, and with several axes. */
const POSITIONS = ['smollm3', 'gptneox', 'qwen3vl'];

function anglesIn(form: DecoderForm): void {
  for (const vector of vectors.filter(({ name }) => POSITIONS.includes(name))) {
    const prompt = Array.from(vector.array('tokens')!).slice(0, 20);
    for (const angles of ['f64', 'f32-reduced'] as const)
      test(`${vector.name} with angles ${angles}`, () =>
        withDecoder(vector.gguf, { form, angles, context: vector.n_ctx }, {}, async (decoder) =>
          checkPieces(decoder, prompt, checkOf(vector, vector.array('logits-f64')!, decoder.layers)),
        ));
    test(`${vector.name} at positions that do not count on`, async () => {
      const positions = prompt.map((_, n) => 3 * n + (n % 2));
      const want = await oracle(vector, prompt, positions);
      await withDecoder(vector.gguf, { form, context: vector.n_ctx }, {}, async (decoder) => {
        const counts = form === 'contrib' && vector.name === 'smollm3';
        assert.equal(decoder.axes, counts ? 0 : vector.name === 'qwen3vl' ? 4 : 1);
        if (counts) return; // GroupQueryAttention in every layer reads all inputs
        const logits = await decoder.run({ ids: [prompt], positions: [positions], keep: 0 });
        checkOf(vector, want, decoder.layers)(logits, 0, 'positions');
      });
    });
  }
  // transformers.js counts them in this way.
  for (const vector of vectors.filter(({ name }) => name === 'gemma3'))
    test('gemma3 at positions from 1 on, up to the end of the context', async () => {
      const prompt = Array.from(vector.array('tokens')!).slice(0, 20);
      const want = vector.array('logits-f64')!;
      await withDecoder(vector.gguf, { form, context: 20 }, {}, async (decoder) => {
        const check = checkOf(vector, want, decoder.layers);
        const from1 = (from: number, to: number) => [Array.from({ length: to - from }, (_, n) => from + n + 1)];
        check(await decoder.run({ ids: [prompt.slice(0, 18)], positions: from1(0, 18), keep: 0 }), 0, 'prompt');
        for (const at of [18, 19])
          check(await decoder.run({ ids: [[prompt[at]!]], positions: from1(at, at + 1), keep: 0 }), at, `token ${at}`);
      });
    });
}

test('options that are none are refused', async () => {
  const files = tinyModel('options', { ...USUAL, layers: 1 }).gguf();
  const { config, weights } = planModel(await describeModel(files));
  const cases = [
    [{ form: 'onnx' }, 'UNSUPPORTED', /^export: form: expected contrib, standard or primitives, got "onnx"/],
    [{ context: 65 }, 'RANGE', /^export: context: expected an integer in \[1, 64\], the model's own context, got 65/],
    [{ newRows: 1 }, 'RANGE', /^export: newRows: expected true or false, got 1/],
    [{ activations: 'int4' }, 'UNSUPPORTED', /^export: activations: expected q8 or f32, got "int4"/],
  ] as const;
  for (const [options, code, message] of cases)
    assert.throws(() => decoderGraph(config, weights, options as object), { name: 'RopewalkError', code, message });
});

/** Dozens of layers: loading so many primitives takes ten seconds, and each layer is as in the other forms. */
const DEEP = ['exaone4-hybrid', 'gemma2-46-layers'];
const vectors = familyVectors();
for (const form of DECODER_FORMS) {
  const here = (vectors: readonly Vector[]): Vector[] =>
    vectors.filter(({ name }) => form !== 'primitives' || !DEEP.includes(name));
  describe(`families in form ${form}`, { skip: noOnnxruntime }, () => agrees(here(vectors), form));
  describe(`caches in form ${form}`, { skip: noOnnxruntime }, () => newRowsIn(form));
  if (form !== 'primitives') describe(`int8 in form ${form}`, { skip: noOnnxruntime }, () => int8In(form));
  describe(`angles in form ${form}`, { skip: noOnnxruntime }, () => anglesIn(form));
  describe(`HuggingFace's files in form ${form}`, { skip: noOnnxruntime }, () => huggingFaceIn(form));
  describe(`transformers' files in form ${form}`, { skip: noOnnxruntime }, () => savedIn(form));
  describe(`shapes in form ${form}`, { skip: noOnnxruntime }, () => shapesIn(form));
  describe(`variants of families in form ${form}`, { skip: noOnnxruntime }, () => agrees(here(goldenFamilies()), form));
}
