/**
 * Tests of whole models' folders in other programs: `@huggingface/transformers` writes the same text as we do, and the
 * published rules of onnxruntime-genai hold.
 */
import assert from 'node:assert/strict';
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { parseNpy } from '@ropewalk/formats';
import { generate, renderChat } from '@ropewalk/model';
import { loadModelPath } from '@ropewalk/model/node';
import { ropewalk } from 'ropewalk';
import { ROOT } from '../../../test/support/build.js';
import { FAMILIES } from '../../../test/support/fixtures.js';
import { HF_FAMILIES } from '../../../test/support/huggingface-folder.js';
import { noOnnxruntime } from '../../../test/support/onnxruntime.js';
import { noTransformers, type Transformers, transformers } from '../../../test/support/transformers.js';
import { exportDecoder } from '../src/folder.node.js';
import { DECODER_FORMS } from '../src/scope.js';

const MARLINE = join(ROOT, 'models/marline');
const PROMPTS = ['The ropewalk stood by the harbour, and', 'Once'] as const;
const TOKENS = 24;

/**
 * The models that transformers.js 4.3.1 does not load: types that it does not know, and models of images by their text
 * alone.
 */
const TYPE = /Unsupported model type/;
const REFUSED: Readonly<Record<string, RegExp>> = {
  'deepseek2-lite': TYPE,
  exaone4: TYPE,
  'exaone4-hybrid': TYPE,
  glm4: TYPE,
  minicpm: TYPE,
  mixtral: TYPE,
  qwen2vl: /embed_tokens\.onnx/,
  qwen3vl: /model_type/,
};

const folder = mkdtempSync(join(tmpdir(), 'clients-'));
after(() => rmSync(folder, { recursive: true }));

/** The text of our own forward pass after a prompt, greedily, with the prompt. */
async function ours(path: string, prompt: string): Promise<string> {
  const backend = await ropewalk({ backend: 'cpu', threads: 1 });
  const model = await loadModelPath(path, { backend });
  let text = prompt;
  for await (const item of generate(model, prompt, { maxTokens: TOKENS, temperature: 0 }))
    if (item.end) text += item.end.text;
  model.dispose();
  backend.dispose();
  return text;
}

describe('transformers.js in Node', { skip: noTransformers || noOnnxruntime }, () => {
  let hf: Transformers;
  before(async () => {
    hf = await transformers();
  });

  for (const file of ['', 'model-q8_0.gguf'])
    for (const form of DECODER_FORMS)
      test(`marline ${file || 'as a folder'} in form ${form}: the text that we write, alone and in a batch`, async () => {
        const path = join(MARLINE, file);
        const out = join(folder, `marline-${file}-${form}`);
        await exportDecoder(path, out, { form });
        const generator = await hf.pipeline('text-generation', out);
        const options = { max_new_tokens: TOKENS, do_sample: false };
        const together = await generator(PROMPTS, options);
        for (const [n, prompt] of PROMPTS.entries()) {
          const [alone] = await generator(prompt, options);
          assert.equal(together[n]![0]!.generated_text, alone!.generated_text, 'in a batch');
          // With activations in int8, one of two nearly equal tokens may win instead of the other. This prompt has no
          // such pair.
          if (file === '' || prompt === 'Once') assert.equal(alone!.generated_text, await ours(path, prompt));
        }
        await generator.dispose();
      });

  test('a chat: the template of the model', async () => {
    const from = join(folder, 'chat-model');
    cpSync(MARLINE, from, { recursive: true });
    const config = JSON.parse(readFileSync(join(from, 'tokenizer_config.json'), 'utf8'));
    config.chat_template =
      "{{ bos_token }}{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}" +
      '{% if add_generation_prompt %}mate:{% endif %}';
    writeFileSync(join(from, 'tokenizer_config.json'), JSON.stringify(config));
    const out = join(folder, 'chat');
    await exportDecoder(from, out);
    const generator = await hf.pipeline('text-generation', out);
    const messages = [{ role: 'captain', content: 'Is the rope laid?' }];
    const model = await loadModelPath(from);
    const prompt = generator.tokenizer.apply_chat_template(messages, { tokenize: false, add_generation_prompt: true });
    assert.equal(prompt, '<s>captain: Is the rope laid?\nmate:');
    assert.equal(prompt, renderChat(model.tokenizer, messages));
    const [answer] = await generator(messages, { max_new_tokens: 4, do_sample: false });
    assert.deepEqual(answer!.generated_text.at(-1)!.role, 'assistant');
    model.dispose();
    await generator.dispose();
  });

  describe('families', () => {
    for (const name of HF_FAMILIES)
      test(name, async () => {
        const out = join(folder, name);
        await exportDecoder(join(FAMILIES, `${name}.gguf`), out, { context: 128 });
        const loading = hf.AutoModelForCausalLM.from_pretrained(out);
        const refusal = REFUSED[name];
        if (refusal) {
          await assert.rejects(loading, refusal);
          return;
        }
        const model = await loading;
        const array = (what: string) => parseNpy(readFileSync(join(FAMILIES, `${name}.${what}.npy`))).data;
        const tokens = BigInt64Array.from(array('tokens') as Int32Array, BigInt);
        const dims = [1, tokens.length];
        const { logits } = await model({
          input_ids: new hf.Tensor('int64', tokens, dims),
          attention_mask: new hf.Tensor('int64', new BigInt64Array(tokens.length).fill(1n), dims),
        });
        const want = array('logits-f64') as Float64Array;
        assert.equal(logits.data.length, want.length);
        let worst = 0;
        for (let n = 0; n < want.length; n++) worst = Math.max(worst, Math.abs(logits.data[n]! - want[n]!));
        // The bounds are those of the families' test. Blocks have activations in int8 (docs/export.md).
        assert.ok(worst <= (name.includes('q8_0') ? 1 : 1e-3), `${name}: ${worst}`);
        await model.dispose();
      });
  });
});
