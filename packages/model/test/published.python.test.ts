/**
 * Runs published models beside llama.cpp and transformers: SmolLM2-135M-Instruct (Q4_1 and Q8_0) and Gemma 3 270M
 * (Q4_K_M). `npm run peers:python` brings them.
 */
import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { writeNpy } from '@ropewalk/formats';
import { ROOT } from '../../../test/support/build.js';
import { noGpu } from '../../../test/support/gpu.js';
import { MESSAGES } from '../../../test/support/messages.js';
import { floats, logProbabilities, rms } from '../../../test/support/published.js';
import { GEMMA3, noPython, runPython, SMOLLM2 } from '../../../test/support/python.js';
import { compareLogits, generate, logits, renderChat } from '../src/index.js';
import { loadModelFile } from '../src/node.js';
import { writeGguf, writeSafetensorsFolder } from '../src/repack.node.js';
import type { Model } from '../src/types.js';

const TEXT = readFileSync(join(ROOT, 'docs/permute.md'), 'utf8');

interface Published {
  readonly name: string;
  readonly path: string;
  readonly tokens: number;
  /** The allowed root mean square of differences, as a share of the logits' spread, beside transformers and llama.cpp. */
  readonly rms: number;
  readonly llamaRms: number;
}

// Sums in f32 in another order give 4e-6 of the spread (30 layers) and 5e-6 (18 layers); one value rounded to f16 on the
// way gives 5e-4 and more, as llama.cpp's table of GELU does.
const PUBLISHED: readonly Published[] = [
  { name: 'SmolLM2-135M-Instruct', path: SMOLLM2, tokens: 192, rms: 2e-5, llamaRms: 2e-5 },
  { name: 'Gemma 3 270M', path: GEMMA3, tokens: 64, rms: 2e-5, llamaRms: 2e-3 },
];

for (const { name, path, tokens, rms: most, llamaRms } of PUBLISHED)
  describe(name, { skip: noPython }, () => {
    const scratch = mkdtempSync(join(tmpdir(), 'ropewalk-published-'));
    const at = (file: string): string => join(scratch, file);
    after(() => rmSync(scratch, { recursive: true }));
    let model: Model;
    let ids: number[];
    let ours: Float32Array;
    before(async () => {
      model = await loadModelFile(path);
      ids = model.tokenizer.encode(TEXT).slice(0, tokens);
      writeFileSync(at('tokens.npy'), writeNpy(Int32Array.from(ids), { dtype: 'i32', shape: [ids.length] }));
      ours = new Float32Array(ids.length * model.config.vocabSize);
      let row = 0;
      for await (const one of logits(model, ids)) ours.set(one, model.config.vocabSize * row++);
      await writeSafetensorsFolder(path, at('folder'), { type: 'f32' });
      await writeGguf(at('folder'), at('f32.gguf'));
    });
    after(() => model.dispose());

    test('f32 logits and greedy ids of transformers, from weights that our converter widened', async () => {
      const printed = runPython('logits.py', [at('folder'), at('tokens.npy'), at('hf.npy'), '24']);
      const off = rms(ours, floats(at('hf.npy')));
      assert.ok(off <= most, `${off} of the spread`);
      const found: number[] = [];
      for await (const { token } of generate(
        model,
        { tokens: ids },
        { maxTokens: 24, temperature: 0, ignoreEos: true },
      ))
        if (token !== undefined) found.push(token);
      assert.deepEqual(found, printed.trim().split(' ').map(Number));
    });

    test('f32 logits of llama.cpp, from the GGUF that our converter widened', () => {
      runPython('llama.py', ['logits', at('f32.gguf'), at('tokens.npy'), at('llama.npy')]);
      const off = rms(ours, floats(at('llama.npy')));
      assert.ok(off <= llamaRms, `${off} of the spread`);
    });

    test('llama.cpp on the file itself: near in KL divergence and perplexity', async () => {
      runPython('llama.py', ['logits', path, at('tokens.npy'), at('llama.npy')]);
      const theirs = floats(at('llama.npy'));
      const { vocabSize } = model.config;
      // llama.cpp rounds activations to 8 bits beside weights in blocks.
      const { klMean, top1 } = await compareLogits([ours], [theirs], { vocabSize });
      assert.ok(klMean! < 0.01 && top1! > 0.9, `KL ${klMean}, top-1 ${top1}`);
      // Its rounding moves a token's score either way, so that perplexity differs by the noise of a mean alone.
      const theirScores = logProbabilities(theirs, ids, vocabSize);
      const off = logProbabilities(ours, ids, vocabSize).map((score, i) => score - theirScores[i]!);
      const mean = off.reduce((sum, value) => sum + value, 0) / off.length;
      const deviation = Math.sqrt(off.reduce((sum, value) => sum + (value - mean) ** 2, 0) / (off.length - 1));
      assert.ok(Math.abs(mean) < (4 * deviation) / Math.sqrt(off.length), `perplexity ${Math.exp(mean)} of theirs`);
    });

    test('webgpu: the logits of cpu', { skip: noGpu }, async () => {
      const onGpu = await loadModelFile(path, { backend: 'webgpu' });
      const { vocabSize } = onGpu.config;
      let row = 0;
      for await (const one of logits(onGpu, ids.slice(0, 3))) {
        const off = rms(Float32Array.from(one), ours.subarray(row * vocabSize, ++row * vocabSize));
        assert.ok(off <= most, `${off} of the spread`);
      }
      onGpu.dispose();
    });

    test('200 messages in ten languages: prompts of transformers, ids of transformers and llama.cpp', () => {
      const { tokenizer } = model;
      writeFileSync(at('messages.json'), JSON.stringify(MESSAGES));
      runPython('chat.py', [at('folder'), at('messages.json'), at('chat.json')]);
      const { prompts, ids: theirs } = JSON.parse(readFileSync(at('chat.json'), 'utf8'));
      assert.equal(prompts.length, 200);
      if (tokenizer.chatTemplate !== undefined) {
        const rendered = MESSAGES.map((content) => renderChat(tokenizer, [{ role: 'user', content }]));
        assert.deepEqual(rendered, prompts);
      }
      const encoded = (prompts as string[]).map((text) =>
        tokenizer.encode(text, { addBos: false, parseSpecial: true }),
      );
      assert.deepEqual(encoded, theirs);
      writeFileSync(at('prompts.json'), JSON.stringify(prompts));
      runPython('llama.py', ['tokenize', path, at('prompts.json'), at('ids.json')]);
      assert.deepEqual(encoded, JSON.parse(readFileSync(at('ids.json'), 'utf8')));
    });
  });
