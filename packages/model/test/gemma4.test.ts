/**
 * Gemma 4: layers of two sizes, which share keys and values, and its vocabulary in a GGUF. transformers.test.ts has its
 * logits, and the files of llama.cpp's converter.
 */
import assert from 'node:assert/strict';
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { parseGguf, parseSafetensors, writeSafetensors } from '@ropewalk/formats';
import { type Ropewalk, ropewalk, tensorFrom } from 'ropewalk';
import { savedFamily } from '../../../test/support/family-vectors.js';
import { kernelSequence } from '../../../test/support/kernel-sequence.js';
import { golden } from '../../../test/support/vocabularies.js';
import { configFromGguf, configFromJson } from '../src/config.js';
import { tokenizerJsonFromGguf } from '../src/gguf-tokenizer-json.js';
import { tokenizerFromGguf } from '../src/gguf-vocabulary.js';
import { loadModelFolder } from '../src/node.js';
import { writeGguf, writeSafetensorsFolder } from '../src/repack.node.js';
import { tokenizerFromJson } from '../src/tokenizer-json.js';
import type { Session } from '../src/types.js';
import { vocabularyToGguf } from '../src/vocabulary-gguf.js';

const scratch = mkdtempSync(join(tmpdir(), 'ropewalk-gemma4-'));
const folderOf = (name: string): string => join(scratch, name);
const jsonOf = (name: string) => JSON.parse(readFileSync(join(folderOf(name), 'config.json'), 'utf8'));
const NAMES = ['gemma4', 'gemma4-keys', 'gemma4-experts'];
let rw: Ropewalk;
before(async () => {
  rw = await ropewalk({ backend: 'cpu', threads: 1 });
  for (const name of NAMES) savedFamily(name).writeTo(folderOf(name));
});
after(() => {
  rw.dispose();
  rmSync(scratch, { recursive: true });
});

describe('Gemma 4: sessions', () => {
  for (const name of NAMES)
    test(name, async () => {
      const model = await loadModelFolder(folderOf(name), { backend: rw, context: 64, tokenizer: false });
      const { tokens, logits } = savedFamily(name);
      const [session, fresh] = [model.openSession(), model.openSession()];
      const keysOf = (one: Session, layer: number): Float32Array =>
        kernelSequence(one).cache.k[layer]!.slice(0, 0, one.length).contiguous().read() as Float32Array;
      await session.append(tokens, { logits: 'none' });
      const { k, v } = kernelSequence(session).cache;
      const held = [...k, ...v].reduce((sum, tensor) => sum + (tensor ? 4 * tensor.size : 0), 0);
      assert.equal(model.memory.cacheBytes, held);
      assert.equal(k.filter((one) => one).length, name === 'gemma4' ? 4 : 6);

      await session.shift(3, 5);
      await fresh.append(tokens.toSpliced(3, 5), { logits: 'none' });
      // Keys of the first layer have seen their own token only. Keys are below 4, and one more rotation is in f32.
      for (const [n, want] of keysOf(fresh, 0).entries()) assert.ok(Math.abs(keysOf(session, 0)[n]! - want) < 1e-5);

      session.truncate(0);
      const start = await session.append(tokens.slice(0, 9), { logits: 'all' });
      const rest = await session.append(tokens.slice(9), { logits: 'all' });
      for (const [n, got] of [...start, ...rest].entries()) assert.ok(Math.abs(got - logits[n]!) < 2e-4);
      model.dispose();
    });

  test('published files have keys in layers that do not use them, and factors in bf16', async () => {
    const folder = folderOf('published');
    cpSync(folderOf('gemma4'), folder, { recursive: true });
    const path = join(folder, 'model.safetensors');
    const { tensors } = parseSafetensors(readFileSync(path), path);
    const bytes = readFileSync(path);
    const all = Array.from(tensors, ([name, { type, shape, byteOffset, sizeBytes }]) => {
      const data = new Uint16Array(
        bytes.buffer.slice(bytes.byteOffset + byteOffset, bytes.byteOffset + byteOffset + sizeBytes),
      );
      return { name, dtype: type === 'BF16' ? ('bf16' as const) : ('f16' as const), shape, data };
    });
    const more = ['k_proj.weight', 'v_proj.weight', 'k_norm.weight'].map((part) => {
      const from = all.find(({ name }) => name.endsWith(`layers.3.self_attn.${part}`))!;
      return { ...from, name: from.name.replace('layers.3', 'layers.5') };
    });
    // 1.5 is 0x3fc0 in bf16.
    const factors = all.map((one) =>
      one.name.endsWith('layer_scalar') ? { ...one, dtype: 'bf16' as const, data: Uint16Array.of(0x3fc0) } : one,
    );
    writeFileSync(
      path,
      writeSafetensors(
        new Map(
          [...factors, ...more].map(({ name, data, dtype, shape }) => [name, tensorFrom(data, { dtype, shape })]),
        ),
      ),
    );
    const model = await loadModelFolder(folder, { backend: rw, context: 64, tokenizer: false });
    const got = await model.openSession().append([5, 6, 7]);
    assert.ok(
      got.every((value) => Number.isFinite(value) && Math.abs(value) <= 9),
      'the cap',
    );
    model.dispose();
  });
});

describe('Gemma 4: configs', () => {
  test('what config.json refuses', () => {
    const json = jsonOf('gemma4');
    const refuses = (changes: object, message: RegExp): void =>
      assert.throws(() => configFromJson({ ...json, ...changes }), { code: 'FORMAT', message });
    refuses({ num_kv_shared_layers: 5 }, /num_kv_shared_layers: expected a layer of full_attention before the layers/);
    refuses({ num_kv_shared_layers: 6 }, /num_kv_shared_layers: expected an integer in \[0, 5\], got 6/);
    refuses({ num_key_value_heads: 3 }, /heads: expected a multiple of the 3 key\/value heads, got 4/);
    const own = { 3: { head_dim: 16, num_key_value_heads: 4 }, 1: { head_dim: 16 }, 5: { head_dim: 16 } };
    refuses(
      { per_layer_config: own },
      /layer 5: it has 2 key\/value heads of 16, and layer 3, whose keys it reads, 4 key\/value heads of 16/,
    );
  });

  test('the fields of published files give the same sizes as those that transformers 5 saves', () => {
    const json = jsonOf('gemma4-keys');
    const { per_layer_config: _, ...rest } = json;
    const old = configFromJson({ ...rest, global_head_dim: 16, num_global_key_value_heads: 1 });
    assert.deepEqual(old.layerSizes, configFromJson(json).layerSizes);
    assert.deepEqual(old.layerSizes!.map(({ numKvHeads, headDim }) => `${numKvHeads} ${headDim}`).slice(0, 2), [
      '2 8',
      '1 16',
    ]);
    assert.deepEqual([old.numKvHeads, old.headDim], [2, 16], 'the largest');
  });

  test('per-layer embeddings are 256 wide unless the file says otherwise, and gemma4_unified has none', () => {
    const { hidden_size_per_layer_input: _, ...rest } = jsonOf('gemma4');
    const widthOf = (model_type: string): number => configFromJson({ ...rest, model_type }).perLayerWidth;
    assert.deepEqual([widthOf('gemma4_text'), widthOf('gemma4_unified_text')], [256, 0]);
  });

  test('what a GGUF refuses', async () => {
    const path = join(scratch, 'gemma4.gguf');
    await writeGguf(folderOf('gemma4'), path, { vocabulary: false });
    const file = parseGguf(readFileSync(path), 'm.gguf');
    const refuses = (key: string, value: number | number[], message: RegExp): void => {
      const metadata = new Map([...file.metadata, [`gemma4.${key}`, value] as const]);
      const factors = (): Float32Array => new Float32Array(8).fill(1);
      assert.throws(() => configFromGguf({ ...file, metadata }, factors, 'm.gguf'), { code: 'FORMAT', message });
    };
    refuses('attention.value_length', 8, /attention\.value_length: expected 16, as key_length, got 8/);
    refuses('attention.shared_kv_layers', 5, /shared_kv_layers: expected an integer in \[0, 4\], got 5/);
    refuses('attention.shared_kv_layers', 3, /layer 3: it has 2 .* of 16, and layer 2, whose keys it reads, 2 .* of 8/);
    refuses('feed_forward_length', [48, 48], /feed_forward_length: expected 6 integers, one for each layer, got 2/);
  });
});

test('to-safetensors writes whole floats with a point: transformers 5 takes no integers there', async () => {
  const [path, out] = [join(scratch, 'floats.gguf'), join(scratch, 'floats')];
  await writeGguf(folderOf('gemma4-keys'), path, { vocabulary: false });
  await writeSafetensorsFolder(path, out, { vocabulary: false });
  const text = readFileSync(join(out, 'config.json'), 'utf8');
  assert.match(text, /"final_logit_softcapping": 9\.0,\n/);
  assert.match(text, /"rms_norm_eps": 0\.000001,\n/);
  assert.deepEqual(JSON.parse(text).rope_parameters.full_attention, {
    partial_rotary_factor: 0.25,
    rope_theta: 1e6,
    rope_type: 'proportional',
  });
});

test("Gemma 4's vocabulary: tokenizer.json, its GGUF and the way back cut alike", () => {
  // llama.cpp b11434 gave the same tokens for all texts of the golden vocabularies.
  const json = golden.vocabularies[2]!.json;
  const config = configFromJson({ ...jsonOf('gemma4'), vocab_size: 424 });
  const tokenizerConfig = { bos_token: '<bos>', eos_token: '<eos>', unk_token: '<unk>', add_bos_token: false };
  const own = tokenizerFromJson({ tokenizerJson: json, tokenizerConfig });
  const { keys } = vocabularyToGguf({ tokenizerJson: json, tokenizerConfig }, config, 'm', 'tokenizer.json');
  const metadata = new Map(Array.from(keys, ([key, { value }]) => [key, value]));
  assert.equal(metadata.get('tokenizer.ggml.model'), 'gemma4');
  const gguf = tokenizerFromGguf(metadata);
  const { tokenizer, config: backConfig } = tokenizerJsonFromGguf(metadata, 64, 'm.gguf');
  const back = tokenizerFromJson({ tokenizerJson: tokenizer, tokenizerConfig: backConfig });
  for (const text of [
    ...golden.texts,
    ...golden.unigramTexts,
    'a\n\nb\n c',
    ' two  spaces\n\n\n',
    'na\u00efve \u4f60 \u{1f600}',
  ]) {
    const want = own.encode(text, { addBos: false });
    assert.deepEqual(gguf.encode(text, { addBos: false }), want, text);
    assert.deepEqual(back.encode(text, { addBos: false }), want, text);
    assert.equal(gguf.decode(want), own.decode(want), text);
  }
  assert.equal(gguf.addBos, true, 'llama.cpp puts BOS first, whatever the file says');

  const tokens = ['<bos>', '<eos>', '</s>', '<turn|>', '<|tool_response>', '\u2581', 'a', '\u2581a', '\n\n', 'b'];
  const small = tokenizerFromGguf(
    new Map<string, string | number | readonly (string | number)[]>([
      ['tokenizer.ggml.model', 'gemma4'],
      ['tokenizer.ggml.tokens', tokens],
      ['tokenizer.ggml.token_type', [3, 3, 3, 3, 4, 1, 1, 1, 1, 1]],
      ['tokenizer.ggml.merges', ['\u2581 a']],
      ['tokenizer.ggml.bos_token_id', 0],
      ['tokenizer.ggml.eos_token_id', 1],
    ]) as never,
  );
  assert.deepEqual(small.encode(' a\n\nb'), [0, 7, 8, 9], 'line breaks that are a token need no merges');
  assert.deepEqual([...small.eosTokens].sort(), [1, 3, 4], 'a call of a tool ends the turn, and </s> does not');
});
