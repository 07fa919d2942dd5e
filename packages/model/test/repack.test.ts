/**
 * HuggingFace folders as GGUF files, and back. Files that llama.cpp runs become folders (test/support/huggingface-folder.ts
 * is its converter backwards), and must become the same files again: tensors, keys and their types.
 * repack.peers.test.ts runs the written files in llama.cpp.
 */
import assert from 'node:assert/strict';
import { cpSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';
import { parseGguf, parseNpy, parseSafetensors, writeSafetensors } from '@ropewalk/formats';
import { type TypedValue, writeGgufHeader } from '@ropewalk/formats/internal';
import { bf16FromNumber, f16FromNumber, numberFromF16, tensorFrom } from 'ropewalk';
import { ROOT } from '../../../test/support/command.js';
import { check, familyVectors, goldenFamilies, NEAR } from '../../../test/support/family-vectors.js';
import { FIXTURES, STORIES } from '../../../test/support/fixtures.js';
import { writeHuggingFace } from '../../../test/support/huggingface-folder.js';
import { golden, metadata, pieces, unigram } from '../../../test/support/vocabularies.js';
import { configFromJson } from '../src/config.js';
import { describeModel } from '../src/description.js';
import { tokenizerJsonFromGguf } from '../src/gguf-tokenizer-json.js';
import { PRE_TOKENIZERS, tokenizerFromGguf } from '../src/gguf-vocabulary.js';
import { loadModelFile, loadModelFolder } from '../src/node.js';
import { planModel } from '../src/plan-model.js';
import { type RepackOptions, writeGguf, writeSafetensorsFolder } from '../src/repack.node.js';
import { tokenizerFromJson } from '../src/tokenizer-json.js';
import type { Model } from '../src/types.js';
import { vocabularyToGguf } from '../src/vocabulary-gguf.js';

const scratch = mkdtempSync(join(tmpdir(), 'ropewalk-repack-'));
after(() => rmSync(scratch, { recursive: true }));
const at = (...names: string[]): string => join(scratch, ...names);
const marline = join(ROOT, 'models/marline');
const read = (path: string): Buffer => readFileSync(path);

/** Returns the tensors of a GGUF by name. */
function ggufOf(path: string) {
  const bytes = read(path);
  const { tensors, metadata, dataOffset } = parseGguf(new Uint8Array(bytes), path);
  const byName = new Map(
    tensors.map(({ name, type, shape, offset, sizeBytes }) => [
      name,
      { type, shape: [...shape], data: bytes.subarray(dataOffset + offset, dataOffset + offset + sizeBytes!) },
    ]),
  );
  return { bytes, metadata, tensors: byName };
}

function safetensorsOf(path: string) {
  const bytes = read(path);
  const { tensors } = parseSafetensors(new Uint8Array(bytes), path);
  return new Map(
    Array.from(tensors, ([name, { type, shape, byteOffset, sizeBytes }]) => [
      name,
      { type, shape: [...shape], data: bytes.subarray(byteOffset, byteOffset + sizeBytes) },
    ]),
  );
}

/** Returns the type of a key's value in the file: a number, or two for an array. */
function typeOf(bytes: Buffer, key: string): number[] {
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(key.length));
  const place = bytes.indexOf(Buffer.concat([length, Buffer.from(key)]));
  assert.ok(place > 0, key);
  const type = bytes.readUInt32LE(place + 8 + key.length);
  return type === 9 ? [type, bytes.readUInt32LE(place + 12 + key.length)] : [type];
}

/** Keys that llama.cpp does not need, or reads in two forms, and the reason of the difference. */
const OTHER: Readonly<Record<string, readonly string[]>> = {
  cohere2: ['cohere2.rope.scaling.type'], // none, as without the key
  olmo3: ['olmo2.attention.sliding_window_pattern'], // llama.cpp's own rule for the architecture
  qwen2moe: ['qwen2moe.feed_forward_length'], // no layer is dense
  qwen3moe: ['qwen3moe.feed_forward_length'],
  'qwen3moe-q8_0': ['qwen3moe.feed_forward_length'],
  // This file has keys and values in one matrix, as llama.cpp's converter wrote them before.
  'deepseek2-lite': ['attention.head_count_kv', 'attention.key_length', 'attention.value_length'].map(
    (key) => `deepseek2.${key}`,
  ),
};

describe("to GGUF and back: llama.cpp's files of every family", () => {
  for (const vector of familyVectors()) {
    const { name } = vector;
    test(name, async () => {
      const [folder, out, back] = ['hf', 'gguf', 'back'].map((part) => at(`${name}.${part}`)) as [
        string,
        string,
        string,
      ];
      const type = name.endsWith('q8_0') ? 'q8_0' : undefined;
      await writeHuggingFace(vector.gguf, folder, { mxfp4: name === 'gpt-oss', shards: name === 'mixtral' ? 2 : 1 });
      const { files } = await (await describeModel({ 'm.gguf': read(vector.gguf) })).readFiles({ graph: 'x.onnx' });
      for (const file of files)
        if (file.name.startsWith('tokenizer')) writeFileSync(join(folder, file.name), file.bytes);
      const made = await writeGguf(folder, `${out}.gguf`, { type });
      const [own, given] = [ggufOf(`${out}.gguf`), ggufOf(vector.gguf)];
      const split = name === 'deepseek2-lite' ? /attn_(kv|k|v)_b/ : /^$/;
      const whole = (names: Iterable<string>): string[] => [...names].filter((one) => !split.test(one)).sort();
      assert.deepEqual(whole(own.tensors.keys()), whole(given.tensors.keys()));
      for (const one of whole(own.tensors.keys())) {
        const [got, want] = [own.tensors.get(one)!, given.tensors.get(one)!];
        // ggml writes no dimension of 1 at the end; the elements of a tensor are the same.
        assert.deepEqual([got.type, got.shape.filter((n) => n > 1)], [want.type, want.shape.filter((n) => n > 1)], one);
        assert.equal(Buffer.compare(got.data, want.data), 0, one);
      }
      const ignored = OTHER[name] ?? [];
      const kept = [...given.metadata].filter(([key]) => !/^(general\.(name|license)|split\.)/.test(key));
      for (const [key, value] of kept.filter(([key]) => !ignored.includes(key))) {
        if (key === 'tokenizer.ggml.scores') continue; // a vocabulary without merges: none is used
        assert.deepEqual([key, own.metadata.get(key)], [key, value]);
        assert.deepEqual([key, typeOf(own.bytes, key)], [key, typeOf(given.bytes, key)]);
      }
      const pairs = /^(smollm3|granite|mistral3|mixtral|minicpm)/;
      assert.equal(made.permuted, pairs.test(name));

      const options = { backend: 'cpu', threads: 1, context: vector.n_ctx, tokenizer: false } as const;
      const tokens = Array.from(vector.array('tokens')!);
      const logits = async (model: Model): Promise<Float32Array> => {
        const session = model.openSession();
        try {
          return await session.append(tokens, { logits: 'all' });
        } finally {
          model.dispose();
        }
      };
      const ours = await logits(await loadModelFile(`${out}.gguf`, options));
      const want = (vector.array('logits-f64') ?? vector.array('logits'))!;
      const rows = tokens.length * vector.vocab;
      check(ours, Float64Array.from(want).subarray(0, rows), NEAR, 'from the GGUF');
      check(await logits(await loadModelFolder(folder, options)), ours, type ? Infinity : 2e-4, 'from the folder');

      if (name === 'gpt-oss') {
        await assert.rejects(writeSafetensorsFolder(`${out}.gguf`, back), { code: 'UNSUPPORTED', message: /gpt-oss/ });
        return;
      }
      await writeSafetensorsFolder(`${out}.gguf`, back, { type: 'f32' });
      const [saved, wanted] = [back, folder].map(
        (path) =>
          new Map(
            readdirSync(path)
              .filter((one) => one.endsWith('.safetensors'))
              .flatMap((one) => [...safetensorsOf(join(path, one))]),
          ),
      );
      // Models of images keep the text model under another name.
      const bare = (one: string): string =>
        one.replace(/^(language_model\.model|model\.language_model|model)\./, '').replace('language_model.', '');
      const names = new Map(Array.from(wanted!, ([one, tensor]) => [bare(one), tensor]));
      assert.deepEqual([...saved!.keys()].map(bare).sort(), [...names.keys()].sort());
      if (type) return; // the blocks' values are other floats
      for (const [one, { shape, data }] of saved!) {
        assert.deepEqual(shape, names.get(bare(one))!.shape, one);
        assert.equal(Buffer.compare(data, names.get(bare(one))!.data), 0, one);
      }
      check(await logits(await loadModelFolder(back, options)), ours, 2e-4, 'from the folder that came back');
    });
  }
});

describe("to GGUF: other programs' files of trained models", () => {
  const TOKENIZER = ['tokens', 'token_type', 'bos_token_id', 'eos_token_id', 'unknown_token_id'];
  const cases: [folder: string, type: RepackOptions['type'], file: string][] = [
    [marline, 'q8_0', join(marline, 'model-q8_0.gguf')],
    [STORIES, 'f32', join(STORIES, 'model-f32.gguf')],
    [STORIES, 'f16', join(STORIES, 'model-f16.gguf')],
    [STORIES, 'q8_0', join(STORIES, 'model-q8_0.gguf')],
  ];
  for (const [folder, type, file] of cases)
    test(`${file.split('/').slice(-2).join('/')}: every byte of every tensor, keys, the vocabulary`, async () => {
      const out = at(`trained-${type}.gguf`);
      const made = await writeGguf(folder, out, { type, force: true });
      assert.equal(made.permuted, true);
      const [own, given] = [ggufOf(out), ggufOf(file)];
      for (const [name, want] of given.tensors) {
        // A head that is the embedding is stored once here.
        if (name === 'output.weight' && !own.tensors.has(name)) {
          assert.equal(Buffer.compare(want.data, given.tensors.get('token_embd.weight')!.data), 0);
          continue;
        }
        const got = own.tensors.get(name)!;
        assert.deepEqual([got.type, got.shape], [want.type, want.shape], name);
        assert.equal(Buffer.compare(got.data, want.data), 0, name);
      }
      for (const [key, value] of given.metadata)
        if (key.startsWith('llama.') || TOKENIZER.some((one) => key === `tokenizer.ggml.${one}`))
          assert.deepEqual([key, own.metadata.get(key)], [key, value]);
      const [ours, theirs] = [own, given].map(({ metadata }) => tokenizerFromGguf(metadata));
      for (const text of ['Call me Ishmael.', ' two  spaces\n\ttab', 'caf\u00e9 \u4f60\u597d \u{1f600}', ''])
        assert.deepEqual(ours!.encode(text), theirs!.encode(text));
    });
});

describe("to safetensors and back to GGUF: llama.cpp's models of llama, qwen2 and qwen3", () => {
  const beside = join(FIXTURES, 'llamacpp/models');
  for (const name of readdirSync(beside).filter((one) => one.endsWith('.gguf')))
    test(name, async () => {
      const [folder, out] = [at(`${name}.hf`), at(`${name}.back.gguf`)];
      await writeSafetensorsFolder(join(beside, name), folder, { vocabulary: false });
      await writeGguf(folder, out, { vocabulary: false });
      const [own, given] = [ggufOf(out), ggufOf(join(beside, name))];
      const isFactor = (one: string): boolean => /^rope_f/.test(one);
      assert.deepEqual(
        [...own.tensors.keys()].filter((one) => !isFactor(one)).sort(),
        [...given.tensors.keys()].filter((one) => !isFactor(one)).sort(),
      );
      for (const [one, { type, shape, data }] of own.tensors) {
        const want = given.tensors.get(one)!;
        assert.deepEqual(shape, want.shape, one);
        if (type === want.type && !isFactor(one)) assert.equal(Buffer.compare(data, want.data), 0, one);
      }
      // If weights are floats, the model is the same, with llama.cpp's logits.
      const logits = join(beside, name.replace('.gguf', '.logits.npy'));
      if ([...given.tensors.values()].some(({ type }) => !['F32', 'F16', 'BF16'].includes(type))) return;
      const read = (path: string) => parseNpy(readFileSync(path)).data as Float32Array;
      const tokens = Array.from(read(join(beside, name.replace('.gguf', '.tokens.npy'))));
      const model = await loadModelFile(out, { backend: 'cpu', threads: 1, context: 256, tokenizer: false });
      try {
        check(await model.openSession().append(tokens, { logits: 'all' }), read(logits), NEAR, name);
      } finally {
        model.dispose();
      }
    });
});

describe('to GGUF: types', () => {
  const written = async (type: RepackOptions['type']) => {
    await writeGguf(marline, at('t.gguf'), { type, force: true });
    return ggufOf(at('t.gguf'));
  };

  test('f16 stays as it is; bf16 and f32 are rounded once; norms are f32', async () => {
    const down = safetensorsOf(join(marline, 'model.safetensors')).get('model.layers.0.mlp.down_proj.weight')!;
    const values = new Uint16Array(new Uint8Array(down.data).buffer);
    const f32 = await written('f32');
    const floats = new Float32Array(new Uint8Array(f32.tensors.get('blk.0.ffn_down.weight')!.data).buffer);
    assert.ok(floats.every((value, n) => f16FromNumber(value) === values[n]));
    const bf16 = await written('bf16');
    const bits = new Uint16Array(new Uint8Array(bf16.tensors.get('blk.0.ffn_down.weight')!.data).buffer);
    assert.ok(bits.every((value, n) => value === bf16FromNumber(floats[n]!)));
    assert.equal(bf16.tensors.get('blk.0.ffn_norm.weight')!.type, 'F32');
    assert.equal(bf16.metadata.get('general.file_type'), 32);
    const same = await written(undefined);
    assert.equal(Buffer.compare(same.tensors.get('blk.0.ffn_down.weight')!.data, down.data), 0);
    assert.equal(same.metadata.get('general.file_type'), 1);
  });

  test('q4_0: the embedding is q8_0; the model predicts nearly the same', async () => {
    await writeGguf(marline, at('q4.gguf'), { type: 'q4_0' });
    const { tensors, metadata } = ggufOf(at('q4.gguf'));
    assert.equal(tensors.get('token_embd.weight')!.type, 'Q8_0');
    assert.equal(tensors.get('blk.3.attn_q.weight')!.type, 'Q4_0');
    assert.equal(metadata.get('general.file_type'), 2);
  });

  test('rows and heads that the pieces of a large matrix cut', async () => {
    const [hidden, heads, headDim] = [1536, 12, 128];
    const config = {
      model_type: 'llama',
      vocab_size: 8,
      hidden_size: hidden,
      num_hidden_layers: 1,
      num_attention_heads: heads,
      num_key_value_heads: 1,
      intermediate_size: 32,
      tie_word_embeddings: true,
    };
    const shapes: Record<string, number[]> = {
      'embed_tokens.weight': [8, hidden],
      'norm.weight': [hidden],
      'layers.0.input_layernorm.weight': [hidden],
      'layers.0.post_attention_layernorm.weight': [hidden],
      'layers.0.self_attn.q_proj.weight': [hidden, hidden],
      'layers.0.self_attn.k_proj.weight': [headDim, hidden],
      'layers.0.self_attn.v_proj.weight': [headDim, hidden],
      'layers.0.self_attn.o_proj.weight': [hidden, hidden],
      'layers.0.mlp.gate_proj.weight': [32, hidden],
      'layers.0.mlp.up_proj.weight': [32, hidden],
      'layers.0.mlp.down_proj.weight': [hidden, 32],
    };
    const tensors = new Map(
      Object.entries(shapes).map(([name, shape]) => {
        const count = shape.reduce((product, size) => product * size, 1);
        // These are integers that f16 holds. Rows differ, because 1536 is no multiple of 1999.
        const data = Float32Array.from({ length: count }, (_, n) => (n % 1999) - 999);
        return [`model.${name}`, tensorFrom(data, { dtype: 'f32', shape })];
      }),
    );
    mkdirSync(at('wide'));
    writeFileSync(at('wide/config.json'), JSON.stringify(config));
    writeFileSync(at('wide/model.safetensors'), writeSafetensors(tensors));
    const q = tensors.get('model.layers.0.self_attn.q_proj.weight')!.read() as Float32Array;
    assert.ok(q.byteLength > 2 ** 23 && 2 ** 23 % (4 * hidden) !== 0, 'a piece of 8 MiB ends inside of a row');
    for (const type of ['f16', 'f32'] as const) {
      await writeGguf(at('wide'), at('wide.gguf'), { type, vocabulary: false, force: true });
      const { data } = ggufOf(at('wide.gguf')).tensors.get('blk.0.attn_q.weight')!;
      const own = new Uint8Array(data).buffer;
      const got = type === 'f32' ? new Float32Array(own) : Float32Array.from(new Uint16Array(own), numberFromF16);
      for (let row = 0; row < hidden; row++) {
        const [head, inHead] = [Math.floor(row / headDim), row % headDim];
        const from = head * headDim + (inHead >> 1) + (inHead % 2) * (headDim / 2);
        const [a, b] = [row, from].map((n, side) => (side ? q : got).subarray(n * hidden, (n + 1) * hidden));
        assert.ok(
          a!.every((value, n) => value === b![n]),
          `row ${row} in ${type}`,
        );
      }
    }
    await writeSafetensorsFolder(at('wide.gguf'), at('wide-back'), { type: 'f32', vocabulary: false });
    const back = safetensorsOf(at('wide-back/model.safetensors')).get('model.layers.0.self_attn.q_proj.weight')!;
    assert.equal(Buffer.compare(back.data, Buffer.from(q.buffer)), 0);
  });

  test('planModel: what a weight cannot become is refused', async () => {
    const description = await describeModel({ 'm.gguf': read(join(marline, 'model-q8_0.gguf')) });
    for (const [as, message] of [
      [() => 'q4_k', /^planModel: as: expected f32, f16, bf16, q8_0 or q4_0, got "q4_k"/],
      [() => 'q8_0', /^planModel: as: expected a type of floats for 0\.attentionNorm\.weight, whose rows/],
    ] as const)
      assert.throws(() => planModel(description, { as: as as () => 'q8_0' }), { code: 'UNSUPPORTED', message });
  });

  test('weights that f16 does not hold are refused, and nothing is left', async () => {
    cpSync(marline, at('large'), { recursive: true });
    const bytes = read(at('large/model.safetensors'));
    const { tensors } = parseSafetensors(new Uint8Array(bytes));
    const { byteOffset } = tensors.get('model.layers.0.mlp.up_proj.weight')!;
    bytes.writeUInt16LE(0x7c00, byteOffset);
    writeFileSync(at('large/model.safetensors'), bytes);
    const before = readdirSync(scratch).sort();
    await assert.rejects(writeGguf(at('large'), at('large.gguf'), { type: 'bf16' }), {
      code: 'FORMAT',
      message: /up_proj\.weight: expected weights that bf16 holds, got Infinity/,
    });
    assert.deepEqual(readdirSync(scratch).sort(), before);
  });
});

describe('to GGUF: vocabularies', () => {
  const config = (vocab_size: number, model_type = 'qwen2') =>
    configFromJson({
      model_type,
      vocab_size,
      hidden_size: 8,
      num_hidden_layers: 1,
      num_attention_heads: 2,
      num_key_value_heads: 2,
      intermediate_size: 8,
      eos_token_id: [1, 3],
    });
  const TEXTS = [...golden.texts, 'camelCase v1.2.3 1234567 \u4f60\u597d', ' a  b\n\n c '];

  for (const [names] of PRE_TOKENIZERS) {
    const [pre] = names.split(' ') as [string];
    test(`pre-tokenizer ${pre}: its tokenizer.json becomes a file with the same tokens`, () => {
      const given = metadata(pre);
      const size = (given.get('tokenizer.ggml.tokens') as string[]).length;
      const { tokenizer, config: tokenizerConfig } = tokenizerJsonFromGguf(given, 64, 'm.gguf');
      const files = { tokenizerJson: tokenizer, tokenizerConfig };
      const { keys } = vocabularyToGguf(files, config(size + 2), 'name', 'tokenizer.json');
      const back = new Map(Array.from(keys, ([key, { value }]) => [key, value]));
      const [own, want] = [tokenizerFromGguf(back), tokenizerFromJson(files)];
      for (const text of TEXTS) assert.deepEqual(own.encode(text), want.encode(text), text);
      const row = PRE_TOKENIZERS.find(([all]) => all.split(' ').includes(String(back.get('tokenizer.ggml.pre'))));
      assert.equal(row?.[0], names);
      assert.deepEqual((back.get('tokenizer.ggml.tokens') as string[]).slice(-2), [`[PAD${size}]`, `[PAD${size + 1}]`]);
      assert.deepEqual((back.get('tokenizer.ggml.token_type') as number[]).slice(-2), [5, 5]);
    });
  }

  test("SentencePiece's pieces, with a token of the user's that merges make too", () => {
    const given = pieces({ 'tokenizer.ggml.add_space_prefix': false });
    const tokens = given.get('tokenizer.ggml.tokens') as string[];
    const types = [...(given.get('tokenizer.ggml.token_type') as number[])];
    types[tokens.indexOf('ab')] = 4;
    const scores = [...(given.get('tokenizer.ggml.scores') as number[])];
    scores[tokens.indexOf('ab')] = 0;
    const changed = new Map([
      ...given,
      ['tokenizer.ggml.token_type', types],
      ['tokenizer.ggml.scores', scores],
    ] as const);
    const { tokenizer, config: tokenizerConfig } = tokenizerJsonFromGguf(changed, 64, 'm.gguf');
    const files = { tokenizerJson: tokenizer, tokenizerConfig };
    const { keys } = vocabularyToGguf(files, config(tokens.length, 'llama'), 'name', 'tokenizer.json');
    const back = new Map(Array.from(keys, ([key, { value }]) => [key, value]));
    assert.deepEqual(back.get('tokenizer.ggml.token_type'), types);
    assert.equal(back.get('tokenizer.ggml.add_space_prefix'), false);
    const [own, want] = [tokenizerFromGguf(back), tokenizerFromGguf(changed)];
    for (const text of ['ab aba aab<user>abab', ' a  b', 'caf\u00e9 aaaa'])
      assert.deepEqual(own.encode(text), want.encode(text));
  });

  const bpe = (changes: object = {}, model: object = {}) => ({
    added_tokens: [{ id: 3, content: '<s>', special: true }],
    normalizer: null,
    pre_tokenizer: { type: 'ByteLevel', add_prefix_space: false, use_regex: true },
    decoder: { type: 'ByteLevel' },
    model: { type: 'BPE', vocab: { a: 0, b: 1, ab: 2 }, merges: ['a b'], ...model },
    ...changes,
  });

  test("GPT-2's own step is named; templates and the ends of a turn go along", () => {
    const tokenizerConfig = { bos_token: '<s>', eos_token: 'b', pad_token: '<s>', chat_template: '{{ messages }}' };
    const { keys } = vocabularyToGguf(
      { tokenizerJson: bpe(), tokenizerConfig },
      config(4),
      'phi3-tiny',
      'tokenizer.json',
    );
    const value = (key: string) => keys.get(key)?.value;
    assert.equal(value('tokenizer.ggml.pre'), 'gpt-2');
    assert.equal(value('tokenizer.chat_template'), '{{ messages }}');
    assert.equal(value('general.name'), 'phi 3-tiny', 'llama.cpp takes models called so for Phi-3');
    assert.deepEqual(
      ['bos', 'eos', 'eot', 'padding'].map((name) => value(`tokenizer.ggml.${name}_token_id`)),
      [3, 1, 3, 3],
    );
  });

  const refusals: [what: string, json: object, message: RegExp][] = [
    [
      'a normaliser',
      bpe({ normalizer: { type: 'Lowercase' } }),
      /normalizer.*type: expected none or NFC, got "Lowercase"/,
    ],
    [
      'another way to cut text',
      bpe({ pre_tokenizer: { type: 'Split', pattern: { Regex: '[aeiou]' }, behavior: 'Isolated' } }),
      /a GGUF does not say how it cuts text.*--no-vocabulary/,
    ],
    [
      'merges that are not in the order of scores',
      bpe(
        { pre_tokenizer: null, decoder: { type: 'Sequence', decoders: [{ type: 'ByteFallback' }, { type: 'Fuse' }] } },
        { byte_fallback: true, vocab: { a: 0, b: 1, ab: 2, aba: 4, ba: 5 }, merges: ['a b', 'ab a', 'b a'] },
      ),
      /merges: they are not those of SentencePiece's scores/,
    ],
  ];
  for (const [what, tokenizerJson, message] of refusals)
    test(`refused by name: ${what}`, () => {
      assert.throws(() => vocabularyToGguf({ tokenizerJson }, config(8), 'name', 'tokenizer.json'), {
        code: 'UNSUPPORTED',
        message,
      });
    });

  test('refused: Unigram, and more tokens than rows', () => {
    const { tokenizer } = tokenizerJsonFromGguf(unigram(), 64, 'm.gguf');
    assert.throws(() => vocabularyToGguf({ tokenizerJson: tokenizer }, config(4096), 'name', 'tokenizer.json'), {
      code: 'UNSUPPORTED',
      message: /model\.type: expected BPE, got "Unigram"/,
    });
    assert.throws(() => vocabularyToGguf({ tokenizerJson: bpe() }, config(3), 'name', 'tokenizer.json'), {
      code: 'FORMAT',
      message: /expected at most 3 tokens, as many rows as the model has, got 4/,
    });
  });
});

describe('to GGUF and back: refusals leave nothing', () => {
  const refuses = async (work: () => Promise<unknown>, code: string, message: RegExp): Promise<void> => {
    const before = readdirSync(scratch).sort();
    await assert.rejects(work, { name: 'RopewalkError', code, message });
    assert.deepEqual(readdirSync(scratch).sort(), before);
  };

  test('files of the other kind, without a vocabulary, and that exist', async () => {
    const gguf = join(marline, 'model-q8_0.gguf');
    await refuses(() => writeGguf(gguf, at('no.gguf')), 'FORMAT', /it is a GGUF already/);
    await refuses(() => writeSafetensorsFolder(STORIES, at('no')), 'FORMAT', /it is no GGUF/);
    mkdirSync(at('bare'), { recursive: true });
    for (const name of ['config.json', 'model.safetensors']) cpSync(join(marline, name), at('bare', name));
    await refuses(
      () => writeGguf(at('bare'), at('no.gguf')),
      'FORMAT',
      /there is no tokenizer\.json.*leave the vocabulary out/,
    );
    await writeGguf(at('bare'), at('bare.gguf'), { vocabulary: false });
    assert.equal(ggufOf(at('bare.gguf')).metadata.get('tokenizer.ggml.model'), 'no_vocab');
    await refuses(() => writeGguf(at('bare'), at('bare.gguf'), { vocabulary: false }), 'FORMAT', /it already exists/);
    await refuses(() => writeSafetensorsFolder(gguf, at('bare')), 'FORMAT', /it already exists/);
    await refuses(
      () => writeSafetensorsFolder(gguf, at('no'), { type: 'q8_0' }),
      'UNSUPPORTED',
      /expected f32, f16 or bf16/,
    );
  });

  test('a bias that the class of transformers does not have', async () => {
    const { gguf } = goldenFamilies().find(({ name }) => name === 'qwen2-head-bias')!;
    await refuses(
      () => writeSafetensorsFolder(gguf, at('no'), { vocabulary: false }),
      'UNSUPPORTED',
      /qwen2-head-bias\.gguf: output\.bias: the new form of the model has no such bias/,
    );
  });

  test('parts of one tensor in two types', async () => {
    const gguf = parseGguf(new Uint8Array(read(at('phi3.gguf.gguf'))));
    const own = ggufOf(at('phi3.gguf.gguf'));
    // The tensors of q, k and v become three, of which one is f16.
    const tensors = [...own.tensors].flatMap(([name, { type, shape, data }]) => {
      if (!name.endsWith('attn_qkv.weight')) return [{ name, type, shape, data }];
      return ['q', 'k', 'v'].map((part, n) => ({
        name: name.replace('qkv', part),
        type: part === 'v' ? 'F16' : 'F32',
        shape: [shape[0]!, 96],
        data: part === 'v' ? Buffer.alloc(2 * 96 * 96) : data.subarray(4 * 96 * 96 * n, 4 * 96 * 96 * (n + 1)),
      }));
    });
    const typed = Array.from(gguf.metadata, ([key, value]): [string, TypedValue] => {
      const [type, item] = typeOf(own.bytes, key) as [number, number?];
      const names = ['u8', 'i8', 'u16', 'i16', 'u32', 'i32', 'f32', 'bool', 'string'] as const;
      return [key, item === undefined ? { type: names[type]!, value } : { type: names[item]!, value, array: true }];
    });
    const header = writeGgufHeader(
      new Map(typed),
      tensors.map(({ data: _data, ...tensor }) => tensor),
    );
    const bytes = Buffer.alloc(header.fileSizeBytes);
    bytes.set(header.bytes);
    for (const [n, { data }] of tensors.entries()) bytes.set(data, header.places[n]!.byteOffset);
    writeFileSync(at('mixed.gguf'), bytes);
    await refuses(
      () => writeSafetensorsFolder(at('mixed.gguf'), at('no')),
      'UNSUPPORTED',
      /its parts are f32 and f16, and model\.layers\.0\.self_attn\.qkv_proj\.weight is one tensor.*--type/,
    );
    await writeSafetensorsFolder(at('mixed.gguf'), at('mixed'), { type: 'bf16' });
  });

  test('a head of its own where llama.cpp has none; a pattern of windows that no key says', async () => {
    cpSync(at('gemma2.hf'), at('untied'), { recursive: true });
    const edit = (change: (config: Record<string, unknown>) => void): void => {
      const config = JSON.parse(String(read(at('gemma2.hf/config.json'))));
      change(config);
      writeFileSync(at('untied/config.json'), JSON.stringify(config));
    };
    edit(
      (config) => (config.layer_types = ['full_attention', 'sliding_attention', 'full_attention', 'full_attention']),
    );
    const listed = await writeGguf(at('untied'), at('listed.gguf'));
    assert.deepEqual(ggufOf(at('listed.gguf')).metadata.get('gemma2.attention.sliding_window_pattern'), [
      false,
      true,
      false,
      false,
    ]);
    assert.deepEqual(listed.notes, []);
    edit((config) => (config.query_pre_attn_scalar = 100));
    await refuses(
      () => writeGguf(at('untied'), at('no.gguf')),
      'UNSUPPORTED',
      /do not say its attentionScale, 0\.1 and read back/,
    );
    cpSync(at('smollm3.hf'), at('positions'), { recursive: true });
    const config = JSON.parse(String(read(at('smollm3.hf/config.json'))));
    config.no_rope_layers = [1, 1, 0, 1];
    writeFileSync(at('positions/config.json'), JSON.stringify(config));
    await refuses(
      () => writeGguf(at('positions'), at('no.gguf')),
      'UNSUPPORTED',
      /do not say which layers rotate: layer 2/,
    );
  });

  test('a signal: nothing is left', async () => {
    for (const share of [0, 0.4, 0.9]) {
      const abort = new AbortController();
      const before = readdirSync(scratch).sort();
      const onProgress = (done: number): void => {
        if (done >= share) abort.abort(new Error('enough'));
      };
      await assert.rejects(writeGguf(marline, at('stopped.gguf'), { signal: abort.signal, onProgress }), /enough/);
      assert.deepEqual(readdirSync(scratch).sort(), before);
    }
  });

  test('headers: values that a type does not hold', () => {
    const header = (type: 'u32' | 'bool', value: number): void =>
      void writeGgufHeader(new Map([['a', { type, value }]]), []);
    assert.throws(() => header('u32', -1), { code: 'RANGE', message: /a: expected a value of type u32, got -1/ });
    assert.throws(() => header('u32', 2 ** 32), { code: 'RANGE' });
    assert.throws(() => header('bool', 1), { code: 'RANGE' });
    assert.throws(() => writeGgufHeader(new Map(), [{ name: 't', shape: [33], type: 'Q8_0' }]), { code: 'SHAPE' });
    assert.throws(() => writeGgufHeader(new Map(), [{ name: 't', shape: [32], type: 'Q9' }]), { code: 'UNSUPPORTED' });
  });
});
