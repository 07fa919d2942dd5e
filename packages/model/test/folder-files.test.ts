/**
 * Tests the small files beside a model's graph. Files written from a GGUF are read back, and compared with the GGUF
 * itself, with the files of test/support/huggingface-folder.ts, and with the tokens of @huggingface/tokenizers.
 */
import assert from 'node:assert/strict';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { Tokenizer as HuggingFaceTokenizer } from '@huggingface/tokenizers';
import { readModelRope } from '@ropewalk/checkpoint/node';
import { compareModels, huggingface } from '@ropewalk/dialects';
import { type GgufValue, parseGguf } from '@ropewalk/formats';
import fc from 'fast-check';
import { FAMILIES, STORIES } from '../../../test/support/fixtures.js';
import { HF_FAMILIES, writeHuggingFace } from '../../../test/support/huggingface-folder.js';
import { drawn } from '../../../test/support/size.js';
import { golden, metadata, pieces, unigram } from '../../../test/support/vocabularies.js';
import { configFromJson } from '../src/config.js';
import { configToJson } from '../src/config-json.js';
import { describeModel, type ModelFiles } from '../src/description.js';
import type { FolderFiles, GraphFiles } from '../src/folder-files.js';
import { filesFromGguf } from '../src/folder-files.js';
import { tokenizerJsonFromGguf } from '../src/gguf-tokenizer-json.js';
import { PRE_TOKENIZERS, tokenizerFromGguf } from '../src/gguf-vocabulary.js';
import { tokenizerFromJson } from '../src/tokenizer-json.js';
import type { DecoderConfig } from '../src/types.js';

type Json = Record<string, unknown>;

const root = fileURLToPath(new URL('../../..', import.meta.url));
const marline = join(root, 'models', 'marline');
const noMarline = existsSync(marline) ? false : 'no models/marline';
const scratch = mkdtempSync(join(tmpdir(), 'ropewalk-files-'));
after(() => rmSync(scratch, { recursive: true }));

const bytesOf = (path: string): Uint8Array => new Uint8Array(readFileSync(path));
const utf8 = new TextEncoder();
const json = (value: unknown): Uint8Array => utf8.encode(JSON.stringify(value));
const GRAPH = { graph: 'onnx/model.onnx' };

async function filesOf(model: ModelFiles, graph: GraphFiles = GRAPH): Promise<FolderFiles> {
  return (await describeModel(model, 'model')).readFiles(graph);
}
function textOf({ files }: FolderFiles, name: string): string {
  const file = files.find((one) => one.name === name);
  assert.ok(file, `${name} is among ${files.map((one) => one.name)}`);
  return new TextDecoder().decode(file.bytes);
}
const jsonOf = (files: FolderFiles, name: string): Json => JSON.parse(textOf(files, name));
const namesOf = ({ files }: FolderFiles): string[] => files.map(({ name }) => name).sort();

describe('config.json of each family', () => {
  /** Lists the fields that must be the same, with numbers rounded to the precision of f32. */
  const said = (config: DecoderConfig, context: number): unknown => {
    const { source: _source, architecture: _name, notes: _notes, layers, biases: _biases, family, ...rest } = config;
    const kinds = layers(context).map(({ window, rope }) => [window, rope !== undefined]);
    const text = JSON.stringify({ ...rest, family: family.gguf, kinds }, (_key, value) =>
      typeof value === 'number' ? Math.fround(value) : (value ?? null),
    );
    return JSON.parse(text);
  };
  // llama.cpp has no windows there, transformers has. The graph computes what the GGUF says.
  const OTHER_WINDOWS = ['phi3', 'phi3-short', 'starcoder2'];
  for (const name of HF_FAMILIES) {
    test(name, async () => {
      const path = join(FAMILIES, `${name}.gguf`);
      const description = await describeModel({ 'm.gguf': bytesOf(path) });
      const files = await description.readFiles(GRAPH);
      const written = jsonOf(files, 'config.json');
      const { config } = description;
      const context = config.maxContext;
      const back = configFromJson(written);
      assert.deepEqual(said(back, context), said(config, context));
      // The tensors of a GGUF show its biases; config.json has a field.
      const { tensors } = parseGguf(bytesOf(path));
      const has = (part: RegExp): boolean => tensors.some((tensor) => part.test(tensor.name));
      assert.equal(back.biases.qkv, has(/attn_(q|qkv)\.bias$/));
      assert.equal(back.biases.output, has(/attn_output\.bias$/));

      const folder = join(scratch, name);
      await writeHuggingFace(path, folder);
      const saved: Json = JSON.parse(readFileSync(join(folder, 'config.json'), 'utf8'));
      const theirs = configFromJson(saved);
      // If transformers has a model for images around it, this is the text model alone.
      if (!saved.text_config)
        assert.deepEqual([written.architectures, written.model_type], [saved.architectures, saved.model_type]);
      if (!OTHER_WINDOWS.includes(name)) assert.deepEqual(said(back, context), said(theirs, context));
      assert.deepEqual([back.family, back.biases], [theirs.family, theirs.biases]);

      const ropes = [await readModelRope(path, context), huggingface.ropeFromConfig(written, { context })] as const;
      const [a, b] = ropes.map((rope) => ({ rope, recipe: 'float64' as const }));
      const { same, groups, notes } = compareModels(a!, b!, [1, 4095]);
      assert.ok(same, groups.flatMap(({ verdict }) => verdict).join('\n'));
      assert.deepEqual(notes, []);

      const axes = /vl$/.test(name);
      const latent = /^deepseek/.test(name);
      assert.equal(namesOf(files).includes('genai_config.json'), !axes && !latent);
      assert.match(files.notes.join(), axes ? /several axes/ : latent ? /one size for keys and values/ : /^$/);
    });
  }

  test('what transformers.js and genai ask for', async () => {
    const files = await filesOf(
      { 'm.gguf': bytesOf(join(FAMILIES, 'gemma3.gguf')) },
      { graph: 'onnx/model_q4.onnx', config: { 'transformers.js_config': { dtype: 'q4' } } },
    );
    const { architectures, model_type, ...config } = jsonOf(files, 'config.json');
    assert.deepEqual([architectures, model_type], [['Gemma3ForCausalLM'], 'gemma3_text']);
    assert.deepEqual(config['transformers.js_config'], { dtype: 'q4' });
    const { model } = jsonOf(files, 'genai_config.json') as { model: Json & { decoder: Json } };
    assert.deepEqual([model.type, model.decoder.filename], ['gemma3_text', 'onnx/model_q4.onnx']);
    for (const [name, type] of Object.entries({ 'gpt-oss': 'gptoss', qwen2moe: 'decoder', phi3: 'phi3' })) {
      const other = await filesOf({ 'm.gguf': bytesOf(join(FAMILIES, `${name}.gguf`)) });
      assert.equal((jsonOf(other, 'genai_config.json').model as Json).type, type, name);
    }
  });

  test('a RoPE that no fields of the class say: readers refuse the file, and a note says why', async () => {
    const names = { hasBias: () => false, padToken: undefined };
    const of = async (name: string, change: (config: DecoderConfig) => Partial<DecoderConfig>): Promise<Json> => {
      const { config } = await describeModel({ 'm.gguf': bytesOf(join(FAMILIES, `${name}.gguf`)) });
      const notes: string[] = [];
      const written = configToJson({ ...config, ...change(config) }, names, notes);
      const without = JSON.stringify(written.rope_parameters) === '{"rope_type":"as-in-graph"}';
      if (!without) assert.deepEqual(notes, []);
      else {
        assert.match(
          notes.join(),
          /^config\.json does not tell the RoPE of this \w+, or how it scales attention: no fie/,
        );
        assert.throws(() => configFromJson(written), { name: 'RopewalkError', message: /rope_parameters/ });
      }
      return { ...written, without };
    };
    const bases = await of('gemma2', ({ layers }) => ({
      layers: (context) => layers(context).map(({ rope, window }, n) => ({ window, rope: { ...rope!, base: 9 + n } })),
    }));
    assert.ok(bases.without, 'a base for each layer');
    const part = await of('gemma2', ({ layers }) => ({
      layers: (context) => layers(context).map(({ rope, window }) => ({ window, rope: { ...rope!, rotaryDim: 8 } })),
    }));
    assert.ok(part.without, 'a part of the head');
    const none = await of('granite', ({ layers }) => ({
      layers: (context) => layers(context).map((layer, n) => ({ ...layer, rope: n === 0 ? undefined : layer.rope })),
    }));
    assert.ok(none.without, 'a layer that does not rotate');
    const scaled = await of('deepseek2-lite', () => ({ attentionScale: 0.2 }));
    assert.ok(Math.abs(configFromJson(scaled).attentionScale - 0.2) < 1e-6);
    const flat = await of('deepseek2-lite', ({ layers }) => ({
      attentionScale: 0.2,
      layers: (context) =>
        layers(context).map(({ rope, window }) => ({ window, rope: { ...rope!, scaling: undefined } })),
    }));
    assert.ok(flat.without, 'a scale of attention without YaRN');
    const lengths = await of('mistral3', () => ({ temperature: { scale: 0.1, context: 77 } }));
    assert.ok(lengths.without, 'two lengths for one field');
    // Both types of layers have one RoPE, and fields for each.
    const equal = await of('gemma3', ({ layers }) => ({
      layers: (context) => {
        const list = layers(context);
        return list.map(({ window }) => ({ window, rope: list[0]!.rope }));
      },
    }));
    assert.deepEqual(Object.keys(equal.rope_parameters as Json).sort(), ['full_attention', 'sliding_attention']);
    const plain = await of('mistral3', ({ layers }) => ({
      temperature: undefined,
      layers: (context) =>
        layers(context).map(({ rope, window }) => ({ window, rope: { ...rope!, scaling: undefined } })),
    }));
    assert.deepEqual(plain.rope_parameters, { rope_theta: 1e6, rope_type: 'default' });
  });
});

describe('tokenizer.json: the ids and texts of the GGUF', () => {
  const book = readFileSync(join(root, 'training', 'held-back.txt'), 'utf8').slice(0, 6_000);
  const source = readFileSync(fileURLToPath(import.meta.url), 'utf8').slice(0, 4_000);
  const corpus = [
    book,
    source,
    '  a  b \n\n\t c  ',
    '🐳é ü 中文 한국어 日本語',
    '▁a ▁',
    "don't I'LL 12345 1,000.5",
    '<0x41>',
  ];

  /** Checks that our readers of both files and HuggingFace's library give the same tokens and the same text. */
  function checkSame(keys: ReadonlyMap<string, GgufValue>, texts: readonly string[], random = true): Json {
    const made = tokenizerJsonFromGguf(keys, 512, 'm.gguf');
    const [file, config] = [made.tokenizer, made.config].map((one) => JSON.parse(JSON.stringify(one))) as [Json, Json];
    const gguf = tokenizerFromGguf(keys);
    const own = tokenizerFromJson({ tokenizerJson: file, tokenizerConfig: config });
    const library = new HuggingFaceTokenizer(file, config);
    assert.deepEqual(
      [own.bosToken, own.eosTokens[0], own.addBos, own.addEos],
      [gguf.bosToken, gguf.eosTokens[0], gguf.addBos, gguf.addEos],
    );
    const check = (text: string): void => {
      const ids = gguf.encode(text, { parseSpecial: true });
      assert.deepEqual(own.encode(text, { parseSpecial: true }), ids, JSON.stringify(text));
      assert.deepEqual(Array.from(library.encode(text).ids), ids, `@huggingface/tokenizers: ${JSON.stringify(text)}`);
      assert.deepEqual(own.encode(text), gguf.encode(text), `special tokens are text: ${JSON.stringify(text)}`);
      assert.equal(own.decode(ids), gguf.decode(ids));
    };
    for (const text of texts) check(text);
    if (random) fc.assert(fc.property(fc.string({ unit: 'binary', minLength: 1, maxLength: 40 }), check), drawn(40, 3));
    const all = Array.from({ length: gguf.vocabSize }, (_item, id) => id);
    for (const id of all) assert.equal(own.decode([id]), gguf.decode([id]), `token ${id}`);
    return file;
  }

  for (const [names] of PRE_TOKENIZERS) {
    const pre = names.split(' ')[0]!;
    test(`byte-level BPE, ${pre}`, () => {
      checkSame(metadata(pre), [...golden.texts, ...corpus, 'a<s>b<tool> c</s>', '<|im_end|>']);
    });
  }
  test('byte-level BPE: BOS and EOS, tokens that fill up, and a vocabulary without an unknown token', () => {
    const tokens = [...golden.vocab, ...golden.special, '[PAD590]', '[PAD591]'];
    const types = [...golden.vocab.map(() => 1), ...golden.types, 5, 5];
    const file = checkSame(
      metadata('qwen2', {
        'tokenizer.ggml.tokens': tokens,
        'tokenizer.ggml.token_type': types,
        'tokenizer.ggml.add_bos_token': true,
        'tokenizer.ggml.add_eos_token': true,
      }),
      corpus,
    );
    const { vocab } = file.model as { vocab: Record<string, number> };
    assert.ok(!('[PAD590]' in vocab) && '<tool>' in vocab);
  });

  test('SentencePiece: a trained vocabulary', () => {
    checkSame(parseGguf(bytesOf(`${STORIES}/model-f16.gguf`)).metadata, corpus);
  });
  test('SentencePiece: the bundled model', { skip: noMarline }, () => {
    checkSame(parseGguf(bytesOf(join(marline, 'model-q8_0.gguf'))).metadata, corpus);
  });
  test('SentencePiece: a small vocabulary', () => {
    const texts = ['abab aaab', 'a<user>a', 'a <s> b</s>', 'éü', '  a   a '];
    // No two pieces have the same score.
    const scores = (pieces().get('tokenizer.ggml.scores') as number[]).map((score, id) => score - id / 1024);
    const of = (changes: Record<string, GgufValue>, list = texts): unknown =>
      checkSame(pieces({ 'tokenizer.ggml.scores': scores, ...changes }), list);
    of({});
    of({ 'tokenizer.ggml.add_space_prefix': false });
    of({ 'tokenizer.ggml.remove_extra_whitespaces': true }, ['  a   a ', 'ab  ab', ' ']);
    const notes = (changes: Record<string, GgufValue>): readonly string[] =>
      tokenizerJsonFromGguf(pieces(changes), 1, 'm.gguf').notes;
    assert.deepEqual(notes({ 'tokenizer.ggml.scores': scores }), []);
    assert.deepEqual(notes({}), [
      'tokenizer.json joins pieces of the same score, such as "ab", in another order than the GGUF file.',
    ]);
  });
  test('SentencePiece: any pieces with scores of their own', () => {
    const letters = ['a', 'b', '▁'];
    const piece = fc.string({ unit: fc.constantFrom(...letters), minLength: 2, maxLength: 4 });
    const list = fc.uniqueArray(piece, { maxLength: 12 });
    const word = fc.string({ unit: fc.constantFrom('a', 'b', ' '), minLength: 1, maxLength: 20 });
    fc.assert(
      fc.property(list, fc.array(word, { minLength: 5, maxLength: 5 }), (made, texts) => {
        const tokens = ['<unk>', '<s>', '</s>', ...letters, ...made];
        const keys = pieces({
          'tokenizer.ggml.tokens': tokens,
          'tokenizer.ggml.token_type': [2, 3, 3, ...tokens.slice(3).map(() => 1)],
          'tokenizer.ggml.scores': tokens.map((_token, n) => -n),
        });
        checkSame(keys, texts, false);
      }),
      drawn(100, 5),
    );
  });
  test('SentencePiece: forged vocabularies are refused in a moment', () => {
    const of = (own: readonly string[]): (() => unknown) => {
      const keys = pieces({
        'tokenizer.ggml.tokens': own as string[],
        'tokenizer.ggml.scores': own.map(() => 0),
        'tokenizer.ggml.token_type': own.map(() => 1),
        'tokenizer.ggml.bos_token_id': undefined,
        'tokenizer.ggml.eos_token_id': undefined,
      });
      return () => tokenizerJsonFromGguf(keys, 1, 'm.gguf');
    };
    assert.throws(of(['a', 'x'.repeat(1025)]), {
      code: 'FORMAT',
      message: 'm.gguf: tokenizer.ggml.tokens[1]: expected a piece of at most 1024 characters, got 1025',
    });
    assert.throws(of(Array.from({ length: 1024 }, (_item, n) => 'a'.repeat(n + 1))), {
      code: 'FORMAT',
      message: /^m\.gguf: tokenizer\.ggml\.tokens: expected at most 32 ways a piece to join two others, got \d+\. The/,
    });
  });

  test('Unigram', () => {
    const none = { 'tokenizer.ggml.precompiled_charsmap': undefined };
    const prefix = { ...none, 'tokenizer.ggml.add_space_prefix': true };
    const texts = [...golden.unigramTexts, 'the cat </s> sat', '<unk>', ' ', '  '];
    checkSame(unigram(none), texts);
    checkSame(unigram(prefix), texts);
    checkSame(unigram({ ...prefix, 'tokenizer.ggml.remove_extra_whitespaces': true }), [...texts, '  ', ' a\n b  ']);
  });
  test('Unigram: the table of replacements is the same bytes', () => {
    const { tokenizer, config } = tokenizerJsonFromGguf(unigram(), 512, 'm.gguf');
    const [step] = (tokenizer.normalizer as { normalizers: Json[] }).normalizers;
    assert.deepEqual(step, { type: 'Precompiled', precompiled_charsmap: golden.unigram.charsmap });
    const own = tokenizerFromJson({ tokenizerJson: tokenizer, tokenizerConfig: config });
    assert.deepEqual(own.encode('ﬁ the cat'), tokenizerFromGguf(unigram()).encode('ﬁ the cat'));
  });
});

describe('files of a GGUF', { skip: noMarline }, () => {
  const model = { 'marline.gguf': bytesOf(join(marline, 'model-q8_0.gguf')) };
  test('all of them, and nothing else', async () => {
    const files = await filesOf(model);
    assert.deepEqual(namesOf(files), [
      'config.json',
      'genai_config.json',
      'generation_config.json',
      'tokenizer.json',
      'tokenizer_config.json',
    ]);
    assert.deepEqual(files.notes, []);
    assert.deepEqual(jsonOf(files, 'generation_config.json'), { bos_token_id: 1, eos_token_id: 2, pad_token_id: 2 });
    assert.deepEqual(jsonOf(files, 'genai_config.json').model, {
      bos_token_id: 1,
      context_length: 256,
      decoder: {
        session_options: { log_id: 'onnxruntime-genai', provider_options: [] },
        filename: 'onnx/model.onnx',
        head_size: 32,
        hidden_size: 192,
        inputs: {
          input_ids: 'input_ids',
          attention_mask: 'attention_mask',
          position_ids: 'position_ids',
          past_key_names: 'past_key_values.%d.key',
          past_value_names: 'past_key_values.%d.value',
        },
        outputs: { logits: 'logits', present_key_names: 'present.%d.key', present_value_names: 'present.%d.value' },
        num_attention_heads: 6,
        num_hidden_layers: 4,
        num_key_value_heads: 2,
      },
      eos_token_id: 2,
      pad_token_id: 2,
      type: 'llama',
      vocab_size: 1024,
    });
  });

  test('templates: one is a file too, several are a list', async () => {
    const path = join(marline, 'model-q8_0.gguf');
    const { config, metadata } = await describeModel(model);
    const of = (more: Record<string, GgufValue>): FolderFiles =>
      filesFromGguf(
        { ...parseGguf(bytesOf(path)), metadata: new Map([...metadata!, ...Object.entries(more)]) },
        config,
        GRAPH,
        'm.gguf',
      );
    const one = of({ 'tokenizer.chat_template': '{{ messages }}' });
    assert.equal(textOf(one, 'chat_template.jinja'), '{{ messages }}');
    assert.equal(jsonOf(one, 'tokenizer_config.json').chat_template, '{{ messages }}');
    const two = of({ 'tokenizer.chat_template': 'a', 'tokenizer.chat_template.tool_use': 'b' });
    assert.deepEqual(jsonOf(two, 'tokenizer_config.json').chat_template, [
      { name: 'default', template: 'a' },
      { name: 'tool_use', template: 'b' },
    ]);
    assert.ok(!namesOf(two).includes('chat_template.jinja'));
    const read = tokenizerFromJson({
      tokenizerJson: jsonOf(two, 'tokenizer.json'),
      tokenizerConfig: jsonOf(two, 'tokenizer_config.json'),
    });
    assert.deepEqual(
      [...read.chatTemplates],
      [
        ['default', 'a'],
        ['tool_use', 'b'],
      ],
    );
    const named = of({ 'tokenizer.chat_template.rag': 'c' });
    assert.deepEqual(jsonOf(named, 'tokenizer_config.json').chat_template, [{ name: 'rag', template: 'c' }]);
    assert.equal(jsonOf(of({}), 'tokenizer_config.json').chat_template, undefined);
  });

  test('several ends of a turn, and a pad token', async () => {
    const { config, metadata } = await describeModel(model);
    const file = parseGguf(model['marline.gguf']);
    const more = new Map(metadata!).set('tokenizer.ggml.eot_token_id', 7).set('tokenizer.ggml.padding_token_id', 0);
    const files = filesFromGguf({ ...file, metadata: more }, config, GRAPH, 'm.gguf');
    const ids = { bos_token_id: 1, eos_token_id: [2, 7], pad_token_id: 0 };
    assert.deepEqual(jsonOf(files, 'generation_config.json'), ids);
    const genai = jsonOf(files, 'genai_config.json').model as Json;
    assert.deepEqual([genai.eos_token_id, genai.pad_token_id], [[2, 7], 0]);
    assert.deepEqual(configFromJson(jsonOf(files, 'config.json'), ids).eosTokens, [2, 7]);
    assert.equal(jsonOf(files, 'tokenizer_config.json').pad_token, '<unk>');
    assert.equal(jsonOf(files, 'config.json').pad_token_id, 0);
  });

  test('no vocabulary, and one that is not read: a note; a broken one: refused', async () => {
    const { config, metadata } = await describeModel(model);
    const file = parseGguf(model['marline.gguf']);
    const of = (key: string, value: GgufValue): FolderFiles =>
      filesFromGguf({ ...file, metadata: new Map(metadata!).set(key, value) }, config, GRAPH, 'm.gguf');
    const none = of('tokenizer.ggml.model', 'none');
    assert.deepEqual(none.notes, ['There are no tokenizer files: m.gguf has no vocabulary.']);
    assert.deepEqual(namesOf(none), ['config.json', 'genai_config.json', 'generation_config.json']);
    assert.match(
      of('tokenizer.ggml.model', 'rwkv').notes.join(),
      /^There are no tokenizer files: m\.gguf: tokenizer\.gg/,
    );
    assert.throws(() => of('tokenizer.ggml.tokens', []), { code: 'FORMAT' });
  });
});

describe('files of a HuggingFace folder', { skip: noMarline }, () => {
  const names = [
    'config.json',
    'generation_config.json',
    'model.safetensors',
    'tokenizer.json',
    'tokenizer_config.json',
  ];
  const folder = (changes: Record<string, Uint8Array | undefined> = {}): ModelFiles =>
    new Map(
      Object.entries({
        ...Object.fromEntries(names.map((name) => [name, bytesOf(join(marline, name))])),
        ...changes,
      }).filter((entry): entry is [string, Uint8Array] => entry[1] !== undefined),
    );
  const own = JSON.parse(readFileSync(join(marline, 'config.json'), 'utf8')) as Json;

  test('are the same bytes, and genai_config.json is written', async () => {
    const files = await filesOf(folder());
    assert.deepEqual(
      namesOf(files),
      [...names.filter((name) => name !== 'model.safetensors'), 'genai_config.json'].sort(),
    );
    for (const { name, bytes } of files.files)
      if (name !== 'genai_config.json') assert.deepEqual(Buffer.from(bytes), readFileSync(join(marline, name)), name);
    assert.equal((jsonOf(files, 'genai_config.json').model as Json).type, 'llama');
  });
  test('keys that clients of the graph need join config.json', async () => {
    const config = { 'transformers.js_config': { dtype: 'q8' } };
    assert.deepEqual(jsonOf(await filesOf(folder(), { ...GRAPH, config }), 'config.json'), { ...own, ...config });
  });
  test('of a model for images and text, config.json is that of the text', async () => {
    const { bos_token_id, eos_token_id, tie_word_embeddings, ...text_config } = own;
    const outer = { model_type: 'mistral3', architectures: ['M'], bos_token_id, eos_token_id, tie_word_embeddings };
    const twice = { ...own, tie_word_embeddings: !tie_word_embeddings, eos_token_id: 5 };
    const files = await filesOf(folder({ 'config.json': json({ ...outer, vision_config: {}, text_config }) }));
    assert.deepEqual(jsonOf(files, 'config.json'), own);
    const other = await filesOf(folder({ 'config.json': json({ ...outer, text_config: twice }) }));
    assert.deepEqual(jsonOf(other, 'config.json'), { ...own, eos_token_id: 5 });
  });
  test('padding: from generation_config.json, else config.json; 0 is a token, -1 is none', async () => {
    const of = async (generation: Json, config: Json): Promise<unknown> => {
      const changes = { 'generation_config.json': json(generation), 'config.json': json({ ...own, ...config }) };
      return (jsonOf(await filesOf(folder(changes)), 'genai_config.json').model as Json).pad_token_id;
    };
    assert.equal(await of({ pad_token_id: 0 }, { pad_token_id: 7 }), 0);
    assert.equal(await of({}, { pad_token_id: 7 }), 7);
    assert.equal(await of({}, { pad_token_id: -1 }), 2, 'EOS');
  });
  test('refusals', async () => {
    const { readFiles } = await describeModel(folder());
    for (const graph of [undefined, 7, ''])
      await assert.rejects(readFiles({ graph } as never), {
        code: 'RANGE',
        message: /^readFiles: graph: expected a path such as onnx\/model\.onnx, got/,
      });
    await assert.rejects(readFiles({ ...GRAPH, config: 5 } as never), { code: 'RANGE' });
    const broken = folder({ 'tokenizer_config.json': json([]), 'chat_template.jinja': utf8.encode('x') });
    await assert.rejects(filesOf(broken), { code: 'FORMAT', message: /^tokenizer_config\.json: expected an object/ });
  });
  test('what is missing is written', async () => {
    const files = await filesOf(
      folder({
        'generation_config.json': undefined,
        'tokenizer_config.json': undefined,
        'chat_template.jinja': utf8.encode('{{ messages }}'),
      }),
    );
    assert.deepEqual(jsonOf(files, 'generation_config.json'), { bos_token_id: 1, eos_token_id: 2, pad_token_id: 2 });
    const config = { tokenizer_class: 'PreTrainedTokenizerFast', chat_template: '{{ messages }}' };
    assert.deepEqual(jsonOf(files, 'tokenizer_config.json'), config);
    assert.equal(textOf(files, 'chat_template.jinja'), '{{ messages }}');
    const given = json({ chat_template: 'own' });
    const both = folder({ 'tokenizer_config.json': given, 'chat_template.jinja': utf8.encode('file') });
    assert.equal(textOf(await filesOf(both), 'tokenizer_config.json'), '{"chat_template":"own"}');
    const without = await filesOf(folder({ 'tokenizer.json': undefined }));
    assert.deepEqual(without.notes, ['There are no tokenizer files: the folder has no tokenizer.json.']);
    assert.ok(!namesOf(without).includes('tokenizer_config.json'));
  });
});
