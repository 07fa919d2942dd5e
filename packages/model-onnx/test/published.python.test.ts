/** Runs published models in ONNX Runtime: by the engine, and by transformers.js from the folder of `export --whole`. */
import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';
import { compareLogits, generate, logits, type Model } from '@ropewalk/model';
import { loadModelFile } from '@ropewalk/model/node';
import { ROOT } from '../../../test/support/build.js';
import { GEMMA3, noPython, SMOLLM2 } from '../../../test/support/python.js';
import { transformers } from '../../../test/support/transformers.js';
import { openOnnxEngine } from '../src/engine.node.js';
import { exportDecoder } from '../src/folder.node.js';

const PROMPT = 'The capital of France is';

async function rowsOf(model: Model, ids: readonly number[]): Promise<Float32Array[]> {
  const rows: Float32Array[] = [];
  for await (const row of logits(model, ids)) rows.push(Float32Array.from(row));
  return rows;
}

for (const [name, path] of [
  ['SmolLM2-135M-Instruct', SMOLLM2],
  ['Gemma 3 270M', GEMMA3],
] as const)
  describe(name, { skip: noPython }, () => {
    const scratch = mkdtempSync(join(tmpdir(), 'ropewalk-published-onnx-'));
    after(() => rmSync(scratch, { recursive: true }));

    test('ONNX Runtime: the logits of cpu, but for activations in 8 bits; transformers.js: the same text', async () => {
      const kernels = await loadModelFile(path);
      const ids = kernels.tokenizer.encode(readFileSync(join(ROOT, 'docs/permute.md'), 'utf8')).slice(0, 64);
      const want = await rowsOf(kernels, ids);
      kernels.dispose();
      const engine = await openOnnxEngine({ cache: join(scratch, 'cache') });
      const model = await loadModelFile(path, { engine });
      const { klMean, top1 } = await compareLogits(want, await rowsOf(model, ids), {
        vocabSize: model.config.vocabSize,
      });
      assert.ok(klMean! < 0.01 && top1! > 0.9, `KL ${klMean}, top-1 ${top1}`);
      let text = PROMPT;
      for await (const item of generate(model, PROMPT, { maxTokens: 16, temperature: 0 })) text += item.text;
      assert.match(text, /Paris|France/);
      model.dispose();

      await exportDecoder(path, join(scratch, 'whole'));
      const hf = await transformers();
      const generator = await hf.pipeline('text-generation', join(scratch, 'whole'));
      const [alone] = await generator(PROMPT, { max_new_tokens: 16, do_sample: false });
      assert.equal(alone!.generated_text, text);
      await generator.dispose();
    });
  });
