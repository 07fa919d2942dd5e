/**
 * Tests of a folder against the rules of onnxruntime-genai, which is neither in npm nor in Debian. Its source gives the
 * rules: the keys of genai_config.json, and the graph's inputs and outputs by names, types and shapes. Its loop, on
 * ONNX Runtime, writes the same text as we do.
 *
 * @see microsoft/onnxruntime-genai@a0c04eb src/config.cpp (an unknown key throws), src/models/model_type.h,
 *   src/models/{position_inputs,kv_cache,extra_inputs,logits}.cpp
 */
import assert from 'node:assert/strict';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { after, describe } from 'node:test';
import { generate } from '@ropewalk/model';
import { loadModelPath } from '@ropewalk/model/node';
import { parseOnnxModel } from '@ropewalk/onnx';
import { ROOT } from '../../../test/support/build.js';
import { openDecoder } from '../../../test/support/decoder-folder.js';
import { FAMILIES } from '../../../test/support/fixtures.js';
import { HF_FAMILIES } from '../../../test/support/huggingface-folder.js';
import { noOnnxruntime } from '../../../test/support/onnxruntime.js';
import { testOnce as test, testPeers } from '../../../test/support/tier.js';
import { exportDecoder } from '../src/folder.node.js';

const folder = mkdtempSync(join(tmpdir(), 'genai-'));
after(() => rmSync(folder, { recursive: true }));

/** The keys that it reads for a decoder, by their objects. */
const KEYS: ReadonlyMap<string, string> = new Map([
  ['', 'model search'],
  ['model', 'type vocab_size context_length bos_token_id eos_token_id pad_token_id decoder'],
  [
    'model.decoder',
    'filename head_size hidden_size num_attention_heads num_hidden_layers num_key_value_heads session_options inputs outputs',
  ],
  ['model.decoder.session_options', 'log_id provider_options'],
  ['model.decoder.inputs', 'input_ids attention_mask position_ids past_key_names past_value_names'],
  ['model.decoder.outputs', 'logits present_key_names present_value_names'],
  [
    'search',
    'do_sample max_length min_length num_beams num_return_sequences past_present_share_buffer repetition_penalty temperature top_k top_p',
  ],
]);
/** Types of models with text alone: IsLLM. */
const TYPES = new Set(
  (
    'chatglm decoder ernie4_5 gemma gemma2 gemma3_text gemma4_text gpt2 gptoss granite granitemoehybrid hunyuandensev1 ' +
    'internlm2 lfm2 llama mistral nemotron olmo phi phimoe phi3 phi3small qwen2 qwen3 qwen3_5_moe_text qwen3_5_text smollm3'
  ).split(' '),
);

interface GenaiConfig {
  readonly model: {
    readonly type: string;
    readonly vocab_size: number;
    readonly context_length: number;
    readonly eos_token_id: number | number[];
    readonly decoder: {
      readonly filename: string;
      readonly head_size: number;
      readonly num_key_value_heads: number;
      readonly num_hidden_layers: number;
      readonly inputs: Readonly<Record<string, string>>;
      readonly outputs: Readonly<Record<string, string>>;
    };
  };
  readonly search: { readonly max_length: number; readonly past_present_share_buffer: boolean };
}

function checkKeys(value: object, where = ''): void {
  const known = KEYS.get(where)!.split(' ');
  for (const [key, inner] of Object.entries(value)) {
    assert.ok(known.includes(key), `genai_config.json: ${where}.${key} is unknown to the program`);
    const name = where ? `${where}.${key}` : key;
    if (KEYS.has(name)) checkKeys(inner, name);
    else if (/_token_id$|_size$|_length$|^num_|^top_k$/.test(key))
      for (const number of [inner].flat()) assert.ok(Number.isInteger(number), `${name}: ${inner}`);
  }
}

/** Checks a folder by the rules of the program. */
function checkFolder(path: string): GenaiConfig {
  const config: GenaiConfig = JSON.parse(readFileSync(join(path, 'genai_config.json'), 'utf8'));
  checkKeys(config);
  const { model, search } = config;
  const { decoder } = model;
  assert.ok(TYPES.has(model.type), model.type);
  assert.ok(model.context_length > 0 && search.max_length <= model.context_length);
  const { graph } = parseOnnxModel(readFileSync(join(path, decoder.filename)));

  const I64 = 7;
  const F32 = 1;
  const left = new Map(graph.inputs.map((input) => [input.name, input]));
  const take = (name: string) => {
    const input = left.get(name);
    assert.ok(input, `${name} is no input of the graph`);
    left.delete(name);
    return input;
  };
  for (const key of ['input_ids', 'attention_mask', 'position_ids']) {
    // The program feeds positions if the graph has such an input.
    if (key === 'position_ids' && !left.has(decoder.inputs[key]!)) continue;
    const { dataType, shape } = take(decoder.inputs[key]!);
    assert.deepEqual([dataType, shape!.length], [I64, 2], `${key}: [batch, tokens]`);
  }
  const outputs = new Map(graph.outputs.map((output) => [output.name, output]));
  for (let layer = 0; layer < decoder.num_hidden_layers; layer++)
    for (const part of ['key', 'value']) {
      const named = (pattern: string) => pattern.replace('%d', String(layer));
      const past = take(named(decoder.inputs[`past_${part}_names`]!));
      const present = outputs.get(named(decoder.outputs[`present_${part}_names`]!))!;
      for (const { dataType, shape } of [past, present]) {
        assert.equal(dataType, F32);
        const [batch, heads, rows, size] = shape!;
        assert.deepEqual([heads, size], [decoder.num_key_value_heads, decoder.head_size]);
        // To the program, a number of rows would mean a cache of a fixed size.
        assert.deepEqual([typeof batch, typeof rows], ['string', 'string']);
      }
    }
  // The program feeds this input if the graph has it, and no other one.
  assert.equal(take('num_logits_to_keep').dataType, I64);
  assert.deepEqual([...left.keys()], []);
  const logits = outputs.get(decoder.outputs.logits!)!;
  assert.deepEqual([logits.dataType, logits.shape!.at(-1)], [F32, model.vocab_size]);
  // To the program, one row of logits would mean a graph of the last token alone.
  assert.notEqual(logits.shape![1], 1);
  return config;
}

describe('the folders by the rules of onnxruntime-genai', () => {
  for (const name of ['', 'model-q8_0.gguf'])
    testPeers(`marline ${name || 'as a folder'}: its loop writes our text`, { skip: noOnnxruntime }, async () => {
      const path = join(ROOT, 'models/marline', name);
      const out = join(folder, `marline-${name}`);
      await exportDecoder(path, out, { form: 'primitives' });
      const { model } = checkFolder(out);
      for (const file of ['tokenizer.json', 'tokenizer_config.json']) assert.ok(existsSync(join(out, file)), file);
      const ours = await loadModelPath(path);
      const prompt = 'The ropewalk stood by the harbour, and';
      const tokens: number[] = [];
      for await (const item of generate(ours, prompt, { maxTokens: 16, temperature: 0 }))
        if (!item.end) tokens.push(item.token);
      // It reads all logits of the prompt, then those of each token. The mask is ones up to the token.
      const decoder = await openDecoder(dirname(join(out, model.decoder.filename)));
      const written: number[] = [];
      let ids = Array.from(ours.tokenizer.encode(prompt));
      while (written.length < tokens.length) {
        const logits = await decoder.run({ ids: [ids], keep: 0 });
        assert.equal(logits.length, ids.length * model.vocab_size);
        const last = logits.subarray(-model.vocab_size);
        ids = [last.indexOf(Math.max(...last))];
        written.push(...ids);
      }
      assert.deepEqual(written, tokens);
      await decoder.release();
      ours.dispose();
    });

  /** Positions of several axes, or keys and values of two sizes, get a note instead of a file. */
  const WITHOUT = new Set(['qwen2vl', 'qwen3vl', 'deepseek2', 'deepseek2-lite']);
  describe('families', () => {
    for (const name of HF_FAMILIES)
      test(name, async () => {
        const out = join(folder, name);
        const { notes } = await exportDecoder(join(FAMILIES, `${name}.gguf`), out, { form: 'contrib', context: 64 });
        if (!WITHOUT.has(name)) return void checkFolder(out);
        assert.ok(!existsSync(join(out, 'genai_config.json')));
        assert.ok(notes.some((note) => /no genai_config\.json/.test(note)));
      });
  });
});
