/**
 * Tests of models whose matrices have types of their own, tensor by tensor: every form of the graph loads, and gives
 * the logits of the float64 oracle.
 */
import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';
import { loadModelFile } from '@ropewalk/model/node';
import { ropewalk } from 'ropewalk';
import { randomFrom } from 'ropewalk/internal';
import { openDecoder, writeDecoder } from '../../../test/support/decoder-folder.js';
import { FAMILIES } from '../../../test/support/fixtures.js';
import { type MixedType, mixTypes } from '../../../test/support/mixed-types.js';
import { noOnnxruntime as skip } from '../../../test/support/onnxruntime.js';
import { numberTokenizer, type TinyShape, tinyModel } from '../../../test/support/tiny-model.js';
import { DECODER_FORMS } from '../src/scope.js';

const folder = mkdtempSync(join(tmpdir(), 'mixed-'));
after(() => rmSync(folder, { recursive: true }));

/** Rows of 256, which all blocks fit; and rows of 48 beside rows of 64, so that some fit none. */
const SHAPES = {
  whole: { layers: 2, hidden: 256, heads: 4, kvHeads: 2, headDim: 64, inter: 256, vocab: 64 },
  part: { layers: 2, hidden: 48, heads: 4, kvHeads: 2, headDim: 16, inter: 96, vocab: 64 },
} as const;
const TINY: readonly [name: string, shape: TinyShape][] = [
  ['llama', { family: 'llama', ...SHAPES.whole }],
  ['llama, tied', { family: 'llama', ...SHAPES.whole, tied: true }],
  ['qwen2, with biases', { family: 'qwen2', ...SHAPES.whole, qkvBias: true }],
  ['qwen3, with norms of q and k', { family: 'qwen3', ...SHAPES.whole }],
  ['llama, rows of 48', { family: 'llama', ...SHAPES.part }],
  ['qwen2, rows of 48', { family: 'qwen2', ...SHAPES.part, qkvBias: true, tied: true }],
];
/** Experts, latent heads, norms after branches, fused q, k and v. */
const OTHERS = ['mixtral', 'qwen2moe', 'deepseek2', 'deepseek2-lite', 'gemma2', 'phi3', 'cohere2'];

/**
 * The bound of families.slow.test.ts, doubled: random blocks have larger outliers than the families' own weights. With
 * one matrix read wrongly, logits differ by their whole size.
 */
const within = (size: number, layers: number): number => 2 ** -15 * Math.max(1, size) * Math.sqrt(layers);
const EXACT = { logSeverityLevel: 4, extra: { session: { qdq_matmulnbits_accuracy_level: '0' } } };

describe('types that are mixed tensor by tensor', { skip }, () => {
  const models = [
    ...TINY.map(([name, shape]) => [name, () => tinyModel(name, shape).gguf()['model.gguf']!] as const),
    ...OTHERS.map((name) => [name, () => readFileSync(join(FAMILIES, `${name}.gguf`))] as const),
  ];
  for (const [name, bytesOf] of models)
    for (const draw of ['each alone', 'each alone again', 'q, k and v alike'])
      test(`${name}: ${draw}`, async () => {
        const random = randomFrom(`${name} ${draw}`);
        const chosen = new Map<string, MixedType>();
        const { bytes, types } = mixTypes(bytesOf(), random, (types, tensor) => {
          const key = draw.endsWith('alike') ? tensor.replace(/attn_[qkv]\./, 'attn.') : tensor;
          const type = chosen.get(key) ?? types[random.integer(types.length)]!;
          chosen.set(key, type);
          return type;
        });
        const gguf = join(folder, 'model.gguf');
        writeFileSync(gguf, bytes);
        const reference = await ropewalk({ backend: 'reference' });
        const options = { backend: reference, context: 64, tokenizer: numberTokenizer(100_000) };
        const model = await loadModelFile(gguf, options);
        const { numLayers, vocabSize } = model.config;
        const prompt = Array.from({ length: 9 }, (_, n) => (5 + 11 * n) % vocabSize);
        const want = await model.openSession().append(prompt, { logits: 'all' });
        model.dispose();
        const size = Math.sqrt(want.reduce((sum, x) => sum + x * x, 0) / want.length);
        for (const form of DECODER_FORMS) {
          const to = join(mkdtempSync(join(folder, 'model-')), 'onnx');
          await writeDecoder(gguf, { form, activations: 'f32', context: 64 }, to);
          const decoder = await openDecoder(to, undefined, EXACT);
          const got = await decoder.run({ ids: [prompt], keep: 0 });
          await decoder.release();
          const off = want.reduce((most, x, n) => Math.max(most, Math.abs(got[n]! - x)), 0);
          const what = Array.from(types, (entry) => entry.join(' ')).join(', ');
          assert.ok(off <= within(size, numLayers), `${form}: off by ${off} of ${size}: ${what}`);
        }
      });
});
