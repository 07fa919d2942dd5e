/**
 * Tests of whole decoders in ONNX's own operators: the list of these operators, angles in every mode, blocks, experts,
 * padding, and refusals. families.slow.test.ts has the logits of every family in these forms.
 */
import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';
import { describeModelPath } from '@ropewalk/model/node';
import type { OnnxModel } from '@ropewalk/onnx';
import { ANGLE_MODES, parseOnnxModel } from '@ropewalk/onnx';
import type { OnnxExternalTensor } from '@ropewalk/onnx/internal';
import { valueTypes } from '@ropewalk/onnx/internal';
import { openDecoder, writeDecoder } from '../../../test/support/decoder-folder.js';
import { familyVectors, type Vector } from '../../../test/support/family-vectors.js';
import { noOnnxruntime } from '../../../test/support/onnxruntime.js';
import { some } from '../../../test/support/size.js';
import { type TinyShape, tinyModel } from '../../../test/support/tiny-model.js';
import { type DecoderGraphOptions, decoderGraph } from '../src/graph.js';
import { DECODER_FORMS } from '../src/scope.js';

const FORMS = ['standard', 'primitives'] as const;
const made = mkdtempSync(join(tmpdir(), 'portable-'));
after(() => rmSync(made, { recursive: true }));

const families = familyVectors();
const family = (name: string): Vector => families.find((one) => one.name === name)!;

const TINY: TinyShape = {
  ...{ family: 'llama', layers: 2, hidden: 64, heads: 4, kvHeads: 2, headDim: 16, inter: 96, vocab: 97 },
};

/** The path of a small model's GGUF. */
function tiny(name: string, shape: Partial<TinyShape> = {}): string {
  const path = join(made, `${name}.gguf`);
  writeFileSync(path, Object.values(tinyModel(name, { ...TINY, ...shape }).gguf())[0]!);
  return path;
}

/** A model's graph before it is written. Its weights are not read. */
async function graphOf(gguf: string, options: DecoderGraphOptions, change: Change = (x) => x): Promise<OnnxModel> {
  let model: OnnxModel | undefined;
  await describeModelPath(gguf, { formats: ['q8_0', 'q4_0'] }, async ({ config, weights }) => {
    const { graph, constants } = decoderGraph(config, weights.map(change), options);
    for (const { name, dtype, shape } of constants)
      graph.external.set(name, { dtype, shape, location: 'x', byteOffset: 0, sizeBytes: 0 } as OnnxExternalTensor);
    model = graph.model('decoder', 'test');
  });
  return model!;
}
type Change = <T extends { readonly place: string; readonly shape: readonly number[] }>(plan: T) => T;

/** Runs `work` with a loaded graph. */
async function withDecoder(
  gguf: string,
  options: DecoderGraphOptions,
  work: (decoder: Awaited<ReturnType<typeof openDecoder>>, folder: string) => Promise<void>,
  session: (folder: string) => object = () => ({}),
): Promise<void> {
  const folder = join(mkdtempSync(join(made, 'model-')), 'onnx');
  await writeDecoder(gguf, options, folder);
  const decoder = await openDecoder(folder, undefined, session(folder));
  try {
    await work(decoder, folder);
  } finally {
    await decoder.release();
  }
}

function near(got: Float32Array, want: ArrayLike<number>, from: number, limit: number, what: string): void {
  let worst = 0;
  for (const [n, x] of got.entries()) {
    const off = Math.abs(x - want[from + n]!);
    if (!(off <= worst)) worst = off;
  }
  assert.ok(worst <= limit, `${what}: off by ${worst}, more than ${limit}`);
}

/** The opset in which each operator of primitives got its present signature. @see https://onnx.ai/onnx/operators/ */
const SINCE: Readonly<Record<string, number>> = {
  ...{ Abs: 13, Add: 14, And: 7, Cast: 13, Concat: 13, Cos: 7, Div: 14, Equal: 13, Erf: 13, Exp: 13, Expand: 13 },
  ...{ Floor: 13, Gather: 13, GatherElements: 13, Gemm: 13, Greater: 13, Identity: 16, Less: 13, LessOrEqual: 16 },
  ...{ Log: 13, MatMul: 13, Max: 13, Min: 13, Mod: 13, Mul: 14, Neg: 13, Range: 11, ReduceMax: 18, ReduceMean: 18 },
  ...{ ReduceSum: 13, Reshape: 14, Round: 11, Shape: 15, Sin: 7, Slice: 13, Softmax: 13, Split: 18, Sqrt: 13 },
  ...{ Squeeze: 13, Sub: 14, Tanh: 13, TopK: 11, Transpose: 13, Unsqueeze: 13, Where: 16 },
};

describe('operators', () => {
  test('primitives have operators of ONNX up to opset 18 only, in every family and mode of angles', async () => {
    const used = new Set<string>();
    for (const { gguf, n_ctx } of some(families))
      for (const angles of ['f64', 'f32-reduced', 'f32-table'] as const) {
        const model = await graphOf(gguf, { form: 'primitives', context: n_ctx, angles });
        assert.equal(model.opset, 18);
        assert.deepEqual(model.domains, {});
        for (const { opType } of model.nodes) used.add(opType);
      }
    assert.deepEqual(
      [...used].filter((name) => !((SINCE[name] ?? 99) <= 18)),
      [],
    );
  });
  test('standard has no other domain, and declares the opset of Attention', async () => {
    for (const { gguf, n_ctx } of some(families)) {
      const model = await graphOf(gguf, { form: 'standard', context: n_ctx });
      assert.equal(model.opset, 23);
      assert.deepEqual(model.domains, {});
    }
  });
});

/** Two RoPEs in one model; LongRoPE; partial; partial and interleaved; several axes of positions; interleaved. */
const ROPES = ['gemma3', 'phi3-short', 'gptneox', 'glm4', 'qwen2vl', 'ernie4_5'];

describe('angles', { skip: noOnnxruntime }, () => {
  for (const form of FORMS)
    for (const name of ROPES)
      test(`${name} in form ${form}: every mode gives the oracle's logits`, async () => {
        const { gguf, n_ctx, ...vector } = family(name);
        const prompt = Array.from(vector.array('tokens')!);
        const want = vector.array('logits-f64')!;
        for (const angles of ANGLE_MODES.filter((mode) => mode !== 'f16-table'))
          await withDecoder(gguf, { form, context: n_ctx, angles }, async (decoder) => {
            // For some dozens of positions, f32 angles have an error of 2^-19 at most. The other bounds are those of
            // the families.
            near(await decoder.run({ ids: [prompt], keep: 0 }), want, 0, 2e-4, angles);
          });
      });
  test('layers that rotate alike share their tables', async () => {
    for (const form of FORMS) {
      const model = await graphOf(family('gemma3').gguf, { form, context: 64 });
      const tables = [...model.initializers.keys()].filter((name) => name.startsWith('cos_cache'));
      assert.equal(tables.length, 2);
      assert.deepEqual(model.initializers.get(tables[0]!)!.shape[0], 65);
    }
  });
  test('a table serves positions up to the context, counted from 0 or from 1', async () => {
    const { vocab, ...vector } = family('smollm3');
    const prompt = Array.from(vector.array('tokens')!).slice(0, 8);
    for (const form of FORMS)
      await withDecoder(vector.gguf, { form, context: 32 }, async (decoder) => {
        const positions = [prompt.map((_, n) => 25 + n)]; // the last is 32
        // RoPE is relative, so other positions give the same logits.
        const logits = await decoder.run({ ids: [prompt], positions, keep: 1 });
        near(logits, vector.array('logits-f64')!, 7 * vocab, 2e-4, form);
        decoder.clear();
        await assert.rejects(decoder.run({ ids: [prompt], positions: [positions[0]!.map((p) => p + 1)], keep: 1 }));
      });
  });
});

describe('blocks', { skip: noOnnxruntime }, () => {
  for (const blocks of ['q8_0', 'q4_0'] as const)
    test(`ONNX Runtime makes a MatMulNBits of each product with ${blocks} in form standard`, async () => {
      const at = (folder: string): string => join(folder, '..', 'optimized.onnx');
      const session = (folder: string): object => ({ optimizedModelFilePath: at(folder), logSeverityLevel: 4 });
      await withDecoder(
        tiny(blocks, { blocks, tied: true }),
        { form: 'standard' },
        async (_, folder) => {
          const { nodes } = parseOnnxModel(readFileSync(at(folder)), 'optimized').graph;
          const count = (name: string): number => nodes.filter(({ opType }) => opType === name).length;
          assert.deepEqual([count('MatMulNBits'), count('DequantizeLinear')], [2 * 7 + 1, 0]);
        },
        session,
      );
    });
  test('the embedding and a tied head are the same bytes of a file', async () => {
    for (const [n, form] of FORMS.entries()) {
      const folder = join(made, `tied-${n}`);
      await writeDecoder(tiny('tied', { blocks: 'q4_0', tied: true }), { form }, folder);
      const file = parseOnnxModel(readFileSync(join(folder, 'model.onnx')), 'model').graph;
      const places = [...file.initializers]
        .filter(([name]) => name.startsWith('embedding') && name.includes('signed'))
        .map(([, { external }]) => JSON.stringify(external));
      assert.ok(places.length > 0);
      assert.equal(new Set(places).size, 1);
    }
  });
});

describe('experts', () => {
  test('one token gathers its own experts, and a prompt each expert once', async () => {
    const { gguf, n_ctx } = family('mixtral');
    for (const form of FORMS) {
      const model = await graphOf(gguf, { form, context: n_ctx });
      const gathered = (tokens: number): number => {
        const sizes = { batch_size: 1, sequence_length: tokens, past_sequence_length: 0 };
        const all = { ...sizes, total_sequence_length: tokens, num_logits: tokens };
        const types = valueTypes(model, all, { num_logits_to_keep: [0] });
        const ids = model.nodes.filter(({ opType }) => opType === 'TopK').map(({ outputs }) => outputs[1]!);
        const counts = ids.flatMap((name) => {
          const { shape } = types.get(name)!;
          return shape.length === 1 ? shape : []; // the others are the router's own, of each token
        });
        assert.equal(new Set(counts).size, 1);
        return counts[0]!;
      };
      assert.deepEqual([1, 2, 100].map(gathered), [2, 4, 4]);
    }
  });
});

describe('padding', { skip: noOnnxruntime }, () => {
  // A window, sinks, and plain attention: rows of padding see no key.
  for (const name of ['gemma2', 'gpt-oss', 'smollm3'])
    test(`${name}: no logit of a padded batch is NaN`, async () => {
      const { gguf, n_ctx } = family(name);
      for (const form of FORMS)
        await withDecoder(gguf, { form, context: n_ctx }, async (decoder) => {
          const mask = [
            [0, 0, 0, 1, 1],
            [1, 1, 0, 0, 0],
          ];
          const ids = mask.map((row) => row.map((_, n) => n));
          const logits = await decoder.run({ ids, mask, positions: mask.map(() => [1, 1, 1, 0, 1]), keep: 0 });
          assert.ok(logits.every(Number.isFinite));
        });
    });
});

describe('refusals', () => {
  const gguf = tiny('plain');
  const refused = (options: DecoderGraphOptions, error: object, change?: Change): Promise<void> =>
    assert.rejects(graphOf(gguf, { form: 'primitives', ...options }, change), error);
  test('angles in f16', () =>
    refused({ angles: 'f16-table' }, { code: 'UNSUPPORTED', message: /^export: angles: f16-table is for f16 data, / }));
  test('a context of no size, and one longer than the model', async () => {
    for (const context of [0, 1.5, 2 ** 20])
      await refused({ context }, { code: 'RANGE', message: /^export: context: expected an integer in \[1, / });
  });
  test('tables of more than 2^26 entries', async () => {
    const long = tiny('long', { context: 2 ** 23 + 1 });
    for (const form of FORMS)
      await assert.rejects(graphOf(long, { form }), {
        code: 'RANGE',
        message:
          /^export: context: 8388609 positions of 8 pairs are more than the 67108864 entries of a table; the context of this llama model is 8388609\. Give --context 8388608, or --angles f32-reduced/,
      });
    assert.ok(await graphOf(long, { form: 'primitives', angles: 'f32-reduced' }));
  });
  test('weights that do not fit together, before anything is written', async () => {
    const narrow: Change = (plan) => (plan.place === '1.down.weight' ? { ...plan, shape: [64, 32] } : plan);
    const error = { code: 'FORMAT', message: /^graph: node \d+, / };
    for (const form of DECODER_FORMS)
      for (const path of [gguf, tiny('plain in blocks', { blocks: 'q8_0' })]) {
        await assert.rejects(graphOf(path, { form }, narrow), error);
        assert.ok(await graphOf(path, { form, newRows: true, hidden: true }));
      }
  });
});
