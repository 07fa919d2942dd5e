/**
 * Tokenizers: against llama.cpp's and HuggingFace's own tokens (golden/tokenizers.jsonl says of which release), then
 * properties of decoding and streaming, then what they refuse.
 */
import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { Tokenizer as HuggingFaceTokenizer } from '@huggingface/tokenizers';
import fc from 'fast-check';
import { type GgufValue, parseGguf } from '../../packages/formats/src/gguf.js';
import { parseJson } from '../../packages/formats/src/json.js';
import { tokenizerFromGguf } from '../../packages/model/src/gguf-vocabulary.js';
import { cutterOf } from '../../packages/model/src/safe-cuts.js';
import { AddedFinder } from '../../packages/model/src/tokenizer.js';
import { tokenizerFromJson } from '../../packages/model/src/tokenizer-json.js';
import type { Tokenizer } from '../../packages/model/src/types.js';
import { mustRefuseOrReturn } from '../support/fuzz.js';

const here = fileURLToPath(new URL('.', import.meta.url));
const stories = join(here, '..', '..', '..', 'shared', 'models', 'stories260K');
const noStories = existsSync(stories) ? false : 'no ../shared/models/stories260K';
const read = (...path: string[]): unknown => parseJson(new Uint8Array(readFileSync(join(...path))), path.at(-1)!);

interface Golden {
  readonly vocab: string[];
  readonly merges: string[];
  readonly texts: string[];
  readonly special: string[];
  readonly types: number[];
  readonly patterns: Record<string, string>;
  readonly llama: Record<string, number[][]>;
  readonly huggingface: Record<string, number[][]>;
  readonly stories: {
    texts: string[];
    encode: number[][];
    decode: [number[], string, string][];
    llama: [number[][], number[][]];
  };
}
const golden = read(here, 'golden', 'tokenizers.jsonl') as Golden;

/** The metadata of a GGUF with the golden vocabulary. */
function metadata(
  pre: string | undefined,
  changes: Record<string, GgufValue | undefined> = {},
): Map<string, GgufValue> {
  const n = golden.vocab.length;
  const keys: Record<string, GgufValue | undefined> = {
    'tokenizer.ggml.model': 'gpt2',
    'tokenizer.ggml.pre': pre,
    'tokenizer.ggml.tokens': [...golden.vocab, ...golden.special],
    'tokenizer.ggml.token_type': [...golden.vocab.map(() => 1), ...golden.types],
    'tokenizer.ggml.merges': golden.merges,
    'tokenizer.ggml.bos_token_id': n,
    'tokenizer.ggml.eos_token_id': n + 1,
    ...changes,
  };
  return new Map(Object.entries(keys).filter((entry): entry is [string, GgufValue] => entry[1] !== undefined));
}

/** The same vocabulary as tokenizer.json. */
function byteLevelJson(pre: string, changes: Record<string, unknown> = {}): Record<string, unknown> {
  const n = golden.vocab.length;
  return {
    added_tokens: golden.special.map((content, at) => ({
      id: n + at,
      content,
      special: golden.types[at] === 3,
      normalized: false,
    })),
    normalizer: null,
    pre_tokenizer: {
      type: 'Sequence',
      pretokenizers: [
        { type: 'Split', pattern: { Regex: golden.patterns[pre] }, behavior: 'Isolated', invert: false },
        { type: 'ByteLevel', add_prefix_space: false, trim_offsets: true, use_regex: false },
      ],
    },
    post_processor: null,
    decoder: { type: 'ByteLevel' },
    model: {
      type: 'BPE',
      vocab: Object.fromEntries(golden.vocab.map((token, id) => [token, id])),
      merges: golden.merges,
      ignore_merges: pre === 'llama-bpe' || pre === 'tekken',
    },
    ...changes,
  };
}

/** SentencePiece's kind, small: bytes, a few pieces and the usual specials. */
function pieces(changes: Record<string, GgufValue | undefined> = {}): Map<string, GgufValue> {
  const own = ['▁', 'a', 'b', 'ab', '▁a', '▁ab', 'aba', 'é', '<user>', 'aa'];
  const bytes = Array.from({ length: 256 }, (_, byte) => `<0x${byte.toString(16).toUpperCase().padStart(2, '0')}>`);
  const keys: Record<string, GgufValue | undefined> = {
    'tokenizer.ggml.model': 'llama',
    'tokenizer.ggml.tokens': ['<unk>', '<s>', '</s>', ...bytes, ...own],
    'tokenizer.ggml.scores': [0, 0, 0, ...bytes.map(() => 0), -9, -9, -9, -2, -3, -1, -2, -9, 0, -5],
    'tokenizer.ggml.token_type': [2, 3, 3, ...bytes.map(() => 6), 1, 1, 1, 1, 1, 1, 1, 1, 4, 1],
    'tokenizer.ggml.bos_token_id': 1,
    'tokenizer.ggml.eos_token_id': 2,
    'tokenizer.ggml.unknown_token_id': 0,
    ...changes,
  };
  return new Map(Object.entries(keys).filter((entry): entry is [string, GgufValue] => entry[1] !== undefined));
}
const FIRST = 3 + 256; // the id of ▁
const texts = (tokenizer: Tokenizer, ids: readonly number[]): (string | undefined)[] =>
  ids.map((id) => tokenizer.tokenText(id));
const streamed = (tokenizer: Tokenizer, ids: readonly number[], options = {}): string => {
  const { push, end } = tokenizer.stream(options);
  return ids.map(push).join('') + end();
};

function assertTokens(
  list: readonly string[],
  expected: readonly number[][],
  encode: (text: string) => number[],
  name = '',
): void {
  assert.equal(list.length, expected.length);
  for (const [n, text] of list.entries())
    assert.deepEqual(encode(text), expected[n], `${name} ${JSON.stringify(text)}`);
}

describe('byte-level BPE: golden', () => {
  for (const [pre, expected] of Object.entries(golden.llama)) {
    test(`GGUF pre=${pre} as llama.cpp`, () => {
      const tokenizer = tokenizerFromGguf(metadata(pre));
      assertTokens(golden.texts, expected, (text) => tokenizer.encode(text, { addBos: false }));
    });
  }
  for (const [pre, expected] of Object.entries(golden.huggingface)) {
    test(`tokenizer.json and GGUF pre=${pre} as HuggingFace's tokenizers`, () => {
      // For tekken and gpt-4o, llama.cpp has its own patterns, which split marks from letters; the model was trained
      // with these.
      for (const tokenizer of [
        tokenizerFromJson({ tokenizerJson: byteLevelJson(pre) }),
        tokenizerFromGguf(metadata(pre)),
      ]) {
        assertTokens(golden.texts, expected, (text) => tokenizer.encode(text, { addBos: false }));
      }
    });
  }
  test('these texts distinguish the pre-tokenizers', () => {
    const all = { ...golden.llama, ...golden.huggingface };
    const of = (pre: string): string => JSON.stringify(all[pre]);
    const kinds = [
      'llama-bpe',
      'qwen2',
      'gpt-2',
      'smollm',
      'default',
      'deepseek-coder',
      'falcon',
      'qwen35',
      'tekken',
      'gpt-4o',
    ];
    assert.equal(new Set(kinds.map(of)).size, kinds.length);
  });
});

describe('SentencePiece: golden', { skip: noStories }, () => {
  const open = (): [string, Tokenizer][] => [
    [
      'tokenizer.json',
      tokenizerFromJson({
        tokenizerJson: read(stories, 'tokenizer.json'),
        tokenizerConfig: read(stories, 'tokenizer_config.json'),
      }),
    ],
    ['GGUF', tokenizerFromGguf(parseGguf(new Uint8Array(readFileSync(join(stories, 'model-f32.gguf')))).metadata)],
  ];
  test("encodes as HuggingFace's tokenizers, special tokens too", () => {
    for (const [name, tokenizer] of open()) {
      assertTokens(
        golden.stories.texts,
        golden.stories.encode,
        (text) => tokenizer.encode(text, { parseSpecial: true }),
        name,
      );
    }
  });
  test('encodes as llama.cpp, special tokens as text and as themselves', () => {
    for (const [name, tokenizer] of open()) {
      const [plain, special] = golden.stories.llama;
      assertTokens(golden.stories.texts, plain, (text) => tokenizer.encode(text, { addBos: false }), name);
      assertTokens(
        golden.stories.texts,
        special,
        (text) => tokenizer.encode(text, { addBos: false, parseSpecial: true }),
        name,
      );
    }
  });
  test("decodes as HuggingFace's tokenizers, from the start and from the middle of a text", () => {
    assert.ok(golden.stories.decode.length > 80);
    for (const [name, tokenizer] of open()) {
      for (const [ids, skipped, whole] of golden.stories.decode) {
        assert.equal(tokenizer.decode(ids), skipped, `${name} ${ids}`);
        assert.equal(tokenizer.decode(ids, { skipSpecial: false }), whole, `${name} ${ids}`);
      }
    }
  });
  test('what a file says about BOS and EOS', () => {
    for (const [name, tokenizer] of open()) {
      assert.deepEqual(
        [tokenizer.bosToken, tokenizer.eosTokens, tokenizer.addBos, tokenizer.addEos, tokenizer.vocabSize],
        [1, [2], true, false, 512],
        name,
      );
      assert.deepEqual(tokenizer.encode(''), [1], name);
      assert.deepEqual(tokenizer.encode('', { addBos: false }), [], name);
      assert.deepEqual(tokenizer.encode('a', { addEos: true }), [1, 261, 2], name);
      assert.deepEqual(
        [tokenizer.tokenText(1), tokenizer.tokenText(512), tokenizer.isSpecial(1), tokenizer.isSpecial(403)],
        ['<s>', undefined, true, false],
      );
    }
  });
});

const box = join(here, '..', '..', 'models', 'marline');
const noBox = existsSync(join(box, 'model-q8_0.gguf')) ? false : 'no models/marline';
test('the bundled model: tokenizer.json and GGUF give the same tokens for text it has never seen', {
  skip: noBox,
}, () => {
  const json = tokenizerFromJson({
    tokenizerJson: read(box, 'tokenizer.json'),
    tokenizerConfig: read(box, 'tokenizer_config.json'),
  });
  const gguf = tokenizerFromGguf(parseGguf(new Uint8Array(readFileSync(join(box, 'model-q8_0.gguf')))).metadata);
  const text = readFileSync(join(here, '..', '..', 'training', 'held-back.txt'), 'utf8').slice(0, 12_000);
  const ids = gguf.encode(text);
  assert.deepEqual(json.encode(text), ids);
  assert.ok(ids.length < 6000, `${ids.length} tokens`);
  assert.equal(gguf.decode(ids), text);
  assert.equal(json.decode(ids), text);
  assert.deepEqual([json.bosToken, json.eosTokens, json.addBos], [gguf.bosToken, gguf.eosTokens, gguf.addBos]);
});

describe('SentencePiece by scores', () => {
  const tokenizer = tokenizerFromGguf(pieces());
  const of = (text: string, from = tokenizer): (string | undefined)[] =>
    texts(from, from.encode(text, { addBos: false }));
  test('the highest score goes first, the leftmost of equals', () => {
    // ab (-2) before ▁a (-3), then ▁ab (-1).
    assert.deepEqual(of('ab'), ['▁ab']);
    // All ab first, from the left, then ▁ab; aba is never offered to the first ab, whose right neighbour is ab by then.
    assert.deepEqual(of('abab'), ['▁ab', 'ab']);
    assert.deepEqual(of('xaba'), ['▁', '<0x78>', 'aba']);
    assert.deepEqual(of('aaaa'), ['▁a', 'aa', 'a'], 'aa twice: the left one');
  });
  test('bytes for what is not a piece', () => {
    assert.deepEqual(of('é'), ['▁', 'é']);
    assert.deepEqual(of('ü'), ['▁', '<0xC3>', '<0xBC>']);
    assert.deepEqual(of('\ud800'), ['▁', '<0xEF>', '<0xBF>', '<0xBD>'], 'a lone surrogate is U+FFFD in UTF-8');
  });
  test('no bytes and no unknown token: refused', () => {
    const few = new Map(pieces({ 'tokenizer.ggml.unknown_token_id': undefined }));
    few.set(
      'tokenizer.ggml.tokens',
      (few.get('tokenizer.ggml.tokens') as string[]).map((text) => text.replace('<0x7A>', 'zzz')),
    );
    assert.throws(() => tokenizerFromGguf(few).encode('z'), {
      code: 'FORMAT',
      message: /there is no token for byte 122, and no unknown token/,
    });
    assert.deepEqual(texts(tokenizerFromGguf(new Map(few).set('tokenizer.ggml.unknown_token_id', 0)), [0]), ['<unk>']);
  });
  test('add_space_prefix false', () => {
    const bare = tokenizerFromGguf(pieces({ 'tokenizer.ggml.add_space_prefix': false }));
    assert.deepEqual(of('ab', bare), ['ab']);
    assert.equal(bare.decode([FIRST + 4]), ' a', 'and decoding takes none off');
  });
  test('remove_extra_whitespaces', () => {
    const trimmed = tokenizerFromGguf(pieces({ 'tokenizer.ggml.remove_extra_whitespaces': true }));
    assert.deepEqual(of('  a   a ', trimmed), ['▁a', '▁a']);
    assert.deepEqual(of('  a', tokenizer), ['▁', '▁', '▁a']);
  });
  test('tokens defined by the user are found without being asked for, and are text', () => {
    assert.deepEqual(of('a<user>a'), ['▁a', '<user>', '▁a']);
    assert.equal(tokenizer.decode([FIRST + 8]), '<user>');
  });
  test('a long text in a moment', () => {
    const long = 'ab'.repeat(50_000);
    const ids = tokenizer.encode(long);
    assert.equal(ids.length, 50_001);
    assert.equal(tokenizer.decode(ids), long);
  });
});

describe('long words are cut where no merge joins', () => {
  const spaced = { type: 'Replace', pattern: { String: ' ' }, content: '▁' };
  const decoder = {
    type: 'Sequence',
    decoders: [{ type: 'Replace', pattern: { String: '▁' }, content: ' ' }, { type: 'Fuse' }],
  };
  const jsonOf = (
    vocab: readonly string[],
    merges: readonly (readonly [string, string])[],
    more = {},
  ): Record<string, unknown> => ({
    ...{ normalizer: spaced, decoder, added_tokens: [], pre_tokenizer: null, post_processor: null },
    model: {
      type: 'BPE',
      vocab: Object.fromEntries(vocab.map((text, id) => [text, id])),
      merges,
      unk_token: 'u',
      fuse_unk: true,
      ...more,
    },
  });

  test('the tokens are those of the whole word, whatever the merges', () => {
    const letters = ['a', 'b', '▁', '🐳', 'é'];
    const word = fc.array(fc.constantFrom('a', 'b', ' ', '🐳', 'é', '?', '\ud83d'), { minLength: 256, maxLength: 400 });
    const picks = fc.array(fc.tuple(fc.nat(), fc.nat()), { maxLength: 12 });
    fc.assert(
      fc.property(word, picks, (characters, pairs) => {
        const vocab = ['u', ...letters];
        const merges: [string, string][] = [];
        for (const [left, right] of pairs) {
          const pair: [string, string] = [
            vocab[1 + (left % (vocab.length - 1))]!,
            vocab[1 + (right % (vocab.length - 1))]!,
          ];
          if (vocab.includes(pair.join(''))) continue;
          merges.push(pair);
          vocab.push(pair.join(''));
        }
        const json = jsonOf(vocab, merges);
        const text = characters.join('');
        const { ids } = new HuggingFaceTokenizer(json as never, {}).encode(text, { add_special_tokens: false });
        assert.deepEqual(tokenizerFromJson({ tokenizerJson: json }).encode(text), [...ids]);
      }),
      { seed: 7, numRuns: 200 },
    );
  });

  test('not where a word that is a token stays one', () => {
    const long = 'ab'.repeat(200);
    const vocab = ['u', 'a', 'b', long];
    const encode = (more = {}): number[] => tokenizerFromJson({ tokenizerJson: jsonOf(vocab, [], more) }).encode(long);
    assert.deepEqual(encode({ ignore_merges: true }), [3]);
    assert.equal(encode().length, 400);
    assert.throws(() => encode({ ignore_merges: 'yes' }), { code: 'FORMAT' });
    assert.equal(encode({ end_of_word_suffix: '</w>' }).length, 400);
  });

  test('the bundled model: a book becomes words', { skip: noBox }, () => {
    const { model } = read(box, 'tokenizer.json') as { model: { merges: [string, string][] } };
    const book = readFileSync(join(here, '..', '..', 'training', 'held-back.txt'), 'utf8').replaceAll(' ', '▁');
    const pieces = cutterOf(model.merges)(book);
    assert.equal(pieces.join(''), book);
    // Uncut it is one word of 90,000 characters.
    assert.ok(Math.max(...pieces.map((piece) => piece.length)) < 40);
  });
});

describe('special tokens', () => {
  test('are text unless asked for', () => {
    const tokenizer = tokenizerFromGguf(metadata('qwen2'));
    const n = golden.vocab.length;
    assert.ok(!tokenizer.encode('a<s>b', { addBos: false }).includes(n));
    assert.equal(tokenizer.decode(tokenizer.encode('a<s>b', { addBos: false })), 'a<s>b');
    const parsed = tokenizer.encode('a<s>b<|im_end|>', { addBos: false, parseSpecial: true });
    assert.deepEqual([parsed[1], parsed[3]], [n, n + 2]);
    assert.equal(tokenizer.decode(parsed), 'ab');
    assert.equal(tokenizer.decode(parsed, { skipSpecial: false }), 'a<s>b<|im_end|>');
    assert.ok(tokenizer.encode('<tool>', { addBos: false }).includes(n + 3));
  });
  test('the longest of tokens that start alike, and only in its own place', () => {
    const finder = new AddedFinder(['<x', '<x>', 'x>y'].map((content, id) => ({ id, content, special: false })));
    assert.deepEqual(finder.split('a<x>y<x<'), ['a', 1, 'y', 0, '<']);
    assert.deepEqual(finder.split('x>y<x>'), [2, 1]);
    assert.deepEqual(finder.split(''), []);
  });
  test('ignore_merges: a word that is a token is one, whether merges lead to it or not', () => {
    const tokens = [...golden.vocab, 'qzj', ...golden.special.slice(0, 2)];
    const changes = {
      'tokenizer.ggml.tokens': tokens,
      'tokenizer.ggml.token_type': tokens.map(() => 1),
      'tokenizer.ggml.bos_token_id': undefined,
    };
    const of = (pre: string): number => tokenizerFromGguf(metadata(pre, changes)).encode('qzj').length;
    assert.deepEqual([of('llama-bpe'), of('qwen2')], [1, 3]);
  });
  test('ends of turns are known by their text', () => {
    assert.deepEqual(tokenizerFromGguf(metadata('qwen2')).eosTokens, [
      golden.vocab.length + 1,
      golden.vocab.length + 2,
    ]);
  });
  test('BOS and EOS by the file, else by the kind; the caller decides last', () => {
    const n = golden.vocab.length;
    const [bos, eos] = [n, n + 1];
    const of = (pre: string, changes: Record<string, GgufValue>, options = {}): number[] =>
      tokenizerFromGguf(metadata(pre, changes)).encode('a', options);
    const a = golden.vocab.indexOf('a');
    assert.deepEqual(of('qwen2', {}), [a]);
    assert.deepEqual(of('llama-bpe', {}), [bos, a]);
    assert.deepEqual(of('llama-bpe', { 'tokenizer.ggml.add_bos_token': false }), [a]);
    assert.deepEqual(of('qwen2', { 'tokenizer.ggml.add_bos_token': true, 'tokenizer.ggml.add_eos_token': true }), [
      bos,
      a,
      eos,
    ]);
    assert.deepEqual(of('qwen2', {}, { addBos: true, addEos: true }), [bos, a, eos]);
    assert.deepEqual(of('llama-bpe', {}, { addBos: false }), [a]);
  });
  test('tokenizer.json: the flag of tokenizer_config.json goes before the template', () => {
    const n = golden.vocab.length;
    const template = {
      type: 'TemplateProcessing',
      single: [
        { SpecialToken: { id: '<s>', type_id: 0 } },
        { Sequence: { id: 'A', type_id: 0 } },
        { SpecialToken: { id: '</s>', type_id: 0 } },
      ],
      special_tokens: {
        '<s>': { id: '<s>', ids: [n], tokens: ['<s>'] },
        '</s>': { id: '</s>', ids: [n + 1], tokens: ['</s>'] },
      },
    };
    const of = (config: object): number[] =>
      tokenizerFromJson({
        tokenizerJson: byteLevelJson('qwen2', { post_processor: template }),
        tokenizerConfig: { bos_token: '<s>', eos_token: { content: '</s>' }, ...config },
      }).encode('');
    assert.deepEqual(of({}), [n, n + 1]);
    assert.deepEqual(of({ add_bos_token: false }), [n + 1]);
    assert.deepEqual(of({ add_eos_token: false }), [n]);
    assert.deepEqual(of({ add_bos_token: true, add_eos_token: true }), [n, n + 1]);
  });
  test('lstrip, rstrip, single_word and normalized of added tokens', () => {
    const n = golden.vocab.length;
    const of = (flags: object, text: string): (string | undefined)[] => {
      const added_tokens = [{ id: n, content: '<x>', special: false, normalized: false, ...flags }];
      const tokenizer = tokenizerFromJson({
        tokenizerJson: byteLevelJson('qwen2', { added_tokens, normalizer: { type: 'Lowercase' } }),
      });
      return texts(tokenizer, tokenizer.encode(text));
    };
    assert.deepEqual(of({}, '1 <x> 1'), ['1', 'Ġ', '<x>', 'Ġ', '1']);
    assert.deepEqual(of({ lstrip: true }, '1 <x> 1'), ['1', '<x>', 'Ġ', '1']);
    assert.deepEqual(of({ rstrip: true }, '1 <x> 1'), ['1', 'Ġ', '<x>', '1']);
    assert.deepEqual(of({ single_word: true }, '1<x>'), ['1', '<', 'x', '>']);
    assert.ok(!of({}, '<X>').includes('<x>'));
    assert.deepEqual(of({ normalized: true }, '<X>'), ['<x>'], 'looked for after the text is made lower case');
  });
});

describe('streaming', () => {
  const kinds: [string, Tokenizer][] = [
    ['llama', tokenizerFromGguf(pieces())],
    ['gpt2', tokenizerFromGguf(metadata('llama-bpe'))],
    ['tokenizer.json', tokenizerFromJson({ tokenizerJson: byteLevelJson('qwen2') })],
  ];
  for (const [name, tokenizer] of kinds) {
    test(`${name}: pieces together are decode(), for any ids`, () => {
      const id = fc.nat(tokenizer.vocabSize + 3);
      fc.assert(
        fc.property(fc.array(id, { maxLength: 24 }), fc.boolean(), (ids, skipSpecial) => {
          assert.equal(streamed(tokenizer, ids, { skipSpecial }), tokenizer.decode(ids, { skipSpecial }));
        }),
        { seed: 5, numRuns: 400 },
      );
    });
    test(`${name}: decode after encode gives the text back, cut anywhere`, () => {
      fc.assert(
        fc.property(fc.string({ unit: 'grapheme', maxLength: 30 }), fc.nat(40), (text, cut) => {
          const ids = tokenizer.encode(text);
          const [before, after] = [ids.slice(0, cut), ids.slice(cut)];
          assert.equal(tokenizer.decode(ids), text);
          // What `after` leaves out is a character cut in two: it comes whole with the second part.
          const start = tokenizer.stream();
          const head = before.map(start.push).join('');
          assert.equal(head + streamed(tokenizer, after, { after: before }), text);
        }),
        { seed: 6, numRuns: 400 },
      );
    });
  }
  test('a byte order mark is text', () => {
    for (const [name, tokenizer] of kinds) assert.equal(tokenizer.decode(tokenizer.encode('\ufeffa')), '\ufeffa', name);
  });
  test('text comes as soon as its bytes are whole', () => {
    const tokenizer = kinds[0]![1];
    const { push, end } = tokenizer.stream();
    const ids = tokenizer.encode('a👍', { addBos: false });
    assert.deepEqual(ids.map(push), ['a', '', '', '', '👍']);
    assert.equal(end(), '');
    const cut = tokenizer.stream();
    assert.deepEqual([...ids.slice(0, 3).map(cut.push), cut.end()], ['a', '', '', '\ufffd']);
  });
  test('a leading space is taken off the start of a text, not off what follows one', () => {
    const tokenizer = kinds[0]![1];
    const space = FIRST + 4; // ▁a
    assert.equal(tokenizer.decode([1, space, space]), 'a a');
    assert.equal(streamed(tokenizer, [space], { after: [1] }), 'a');
    assert.equal(streamed(tokenizer, [space], { after: [1, space] }), ' a');
    assert.equal(streamed(tokenizer, [space], { after: [1], skipSpecial: false }), ' a', 'after <s> that is shown');
    assert.equal(tokenizer.decode([FIRST, FIRST, space]), '  a', 'one space, not all');
  });
  test('an id past the vocabulary gives no text; a negative one is refused', () => {
    for (const [, tokenizer] of kinds) {
      assert.equal(tokenizer.decode([tokenizer.vocabSize + 100]), '');
      assert.throws(() => tokenizer.decode([-1]), {
        code: 'RANGE',
        message: /token: expected an integer >= 0, got -1/,
      });
      assert.throws(() => tokenizer.encode(7 as unknown as string), {
        code: 'RANGE',
        message: /encode: text: expected a string, got 7/,
      });
    }
  });
});

describe('tokenizers: refusals', () => {
  const refusesGguf = (code: string, message: RegExp, keys: Map<string, GgufValue>): void =>
    assert.throws(() => tokenizerFromGguf(keys, 'm.gguf'), { code, message });
  test('GGUF', () => {
    refusesGguf('FORMAT', /m\.gguf: tokenizer\.ggml\.model: expected a string, got none/, new Map());
    refusesGguf(
      'UNSUPPORTED',
      /model: expected llama or gpt2, got "bert"/,
      metadata('qwen2', { 'tokenizer.ggml.model': 'bert' }),
    );
    refusesGguf(
      'UNSUPPORTED',
      /pre: "nonesuch" is not known\. Load the model from its HuggingFace files/,
      metadata('nonesuch'),
    );
    refusesGguf('UNSUPPORTED', /pre/, metadata('constructor'));
    refusesGguf(
      'FORMAT',
      /tokens: expected 1 to 1048576 tokens, got 0/,
      metadata('qwen2', { 'tokenizer.ggml.tokens': [] }),
    );
    refusesGguf(
      'FORMAT',
      /tokens\[1\]: expected a string, got 5/,
      metadata('qwen2', { 'tokenizer.ggml.tokens': ['a', 5] }),
    );
    refusesGguf(
      'FORMAT',
      /tokens\[1\]: tokens 0 and 1 have the same text "a"/,
      metadata('qwen2', { 'tokenizer.ggml.tokens': ['a', 'a'] }),
    );
    refusesGguf(
      'FORMAT',
      /token_type: expected \d+ types, one for each token, got 1/,
      metadata('qwen2', { 'tokenizer.ggml.token_type': [1] }),
    );
    refusesGguf(
      'FORMAT',
      /merges: expected a list of merges, got none/,
      metadata('qwen2', { 'tokenizer.ggml.merges': undefined }),
    );
    refusesGguf(
      'FORMAT',
      /merges\[0\]: expected two strings, or one with a space between them, got "ab"/,
      metadata('qwen2', { 'tokenizer.ggml.merges': ['ab'] }),
    );
    refusesGguf(
      'FORMAT',
      /bos_token_id: expected an id in \[0, \d+\), got 9999/,
      metadata('qwen2', { 'tokenizer.ggml.bos_token_id': 9999 }),
    );
    refusesGguf(
      'FORMAT',
      /bos_token_id: it is missing, but add_bos_token is true/,
      metadata('qwen2', { 'tokenizer.ggml.bos_token_id': undefined, 'tokenizer.ggml.add_bos_token': true }),
    );
    refusesGguf(
      'FORMAT',
      /add_bos_token: expected true or false, got 1/,
      metadata('qwen2', { 'tokenizer.ggml.add_bos_token': 1 }),
    );
    refusesGguf(
      'FORMAT',
      /scores: expected \d+ scores, one for each token, got 2/,
      pieces({ 'tokenizer.ggml.scores': [0, 0] }),
    );
    refusesGguf(
      'FORMAT',
      /chat_template: expected a string, got 3/,
      metadata('qwen2', { 'tokenizer.chat_template': 3 }),
    );
    refusesGguf(
      'FORMAT',
      /at most 262144 characters, got 262145/,
      metadata('qwen2', { 'tokenizer.chat_template': 'x'.repeat(262145) }),
    );
  });
  const refusesJson = (
    code: string,
    message: RegExp,
    changes: Record<string, unknown>,
    tokenizerConfig?: unknown,
  ): void =>
    assert.throws(() => tokenizerFromJson({ tokenizerJson: byteLevelJson('qwen2', changes), tokenizerConfig }), {
      code,
      message,
    });
  test('tokenizer.json', () => {
    for (const wrong of [null, 7, [], 'x'])
      assert.throws(() => tokenizerFromJson({ tokenizerJson: wrong }), { code: 'FORMAT', message: /an object/ });
    refusesJson('FORMAT', /model/, { model: undefined });
    refusesJson('UNSUPPORTED', /model\.type: expected BPE, got "WordPiece"/, {
      model: { type: 'WordPiece', vocab: { a: 0 } },
    });
    refusesJson('FORMAT', /vocab: expected 1 to 1048576 tokens, got 0/, {
      model: { type: 'BPE', vocab: {}, merges: [] },
    });
    refusesJson('FORMAT', /"a": expected an id in \[0, 1048576\), got 4294967296/, {
      model: { type: 'BPE', vocab: { a: 2 ** 32 }, merges: [] },
    });
    refusesJson('FORMAT', /vocab: two tokens have the id 0/, {
      model: { type: 'BPE', vocab: { a: 0, b: 0 }, merges: [] },
    });
    refusesJson('FORMAT', /merges\[1\]: expected two strings/, {
      model: { type: 'BPE', vocab: { a: 0 }, merges: ['a b', ['a']] },
    });
    refusesJson('FORMAT', /merges/, { model: { type: 'BPE', vocab: { a: 0 } } });
    refusesJson('FORMAT', /added_tokens/, { added_tokens: [7] });
    refusesJson('FORMAT', /content: expected a text that is not empty/, { added_tokens: [{ id: 1, content: '' }] });
    refusesJson('UNSUPPORTED', /decoder: there is none, so it is not known which tokens begin with a space/, {
      decoder: null,
    });
    refusesJson('UNSUPPORTED', /decoder\.type: expected ByteLevel.*got "WordPiece"/, {
      decoder: { type: 'WordPiece' },
    });
    refusesJson('UNSUPPORTED', /@huggingface\/tokenizers cannot read this file: /, {
      pre_tokenizer: { type: 'Nonesuch' },
    });
    refusesJson('UNSUPPORTED', /tokenizers cannot read this file/, {
      pre_tokenizer: { type: 'Split', pattern: { Regex: '(((' }, behavior: 'Isolated' },
    });
    const split = (step: object): object => ({
      type: 'Sequence',
      pretokenizers: [{ type: 'Split', pattern: { String: ' ' }, ...step }],
    });
    refusesJson('UNSUPPORTED', /got "MergedWithPrevious"\. @huggingface/, {
      pre_tokenizer: split({ behavior: 'MergedWithPrevious' }),
    });
    refusesJson('UNSUPPORTED', /got "Isolated with invert"/, {
      pre_tokenizer: split({ behavior: 'Isolated', invert: true }),
    });
    refusesJson('FORMAT', /pattern: expected a Regex or a String, got /, {
      pre_tokenizer: split({ behavior: 'Removed', pattern: {} }),
    });
    refusesJson('FORMAT', /normalizer\.pattern: expected a Regex or a String/, {
      normalizer: { type: 'Replace', pattern: {}, content: '' },
    });
    refusesJson('UNSUPPORTED', /post_processor\.type/, { post_processor: { type: 'Nonesuch' } });
    refusesJson(
      'FORMAT',
      /tokenizer_config\.json: bos_token: expected a token of the vocabulary, got "<none>"/,
      {},
      { bos_token: '<none>' },
    );
    refusesJson('FORMAT', /tokenizer_config\.json: add_bos_token/, {}, { add_bos_token: 'yes' });
    refusesJson('FORMAT', /chat_template/, {}, { chat_template: [{ name: 'default' }] });
  });
  test('__proto__ and constructor are tokens like any other', () => {
    const model = parseJson(
      '{"type":"BPE","vocab":{"__proto__":0,"constructor":1,"a":2},"merges":[],"unk_token":"a"}',
      'x',
    );
    const tokenizer = tokenizerFromJson({ tokenizerJson: { model, decoder: { type: 'ByteLevel' } } });
    assert.equal(tokenizer.decode([0, 1]), '__proto__constructor');
    assert.deepEqual(tokenizer.encode('a'), [2]);
  });
  test('anything in any place of either file is read or refused', () => {
    const codes = ['FORMAT', 'UNSUPPORTED', 'RANGE'];
    const junk = fc.oneof(
      fc.constant(undefined),
      fc.constant(null),
      fc.integer(),
      fc.double(),
      fc.string(),
      fc.boolean(),
      fc.array(fc.anything({ maxDepth: 1 }), { maxLength: 3 }),
      fc.dictionary(fc.string(), fc.anything({ maxDepth: 1 }), { maxKeys: 3 }),
    );
    const small = {
      ...byteLevelJson('qwen2'),
      model: { type: 'BPE', vocab: { a: 0, b: 1, ab: 2 }, merges: ['a b'] },
      added_tokens: [{ id: 3, content: '<x>', special: true }],
      post_processor: { type: 'TemplateProcessing', single: [{ Sequence: { id: 'A' } }], special_tokens: {} },
    };
    const places = placesOf(small);
    fc.assert(
      fc.property(fc.constantFrom(...places), junk, (path, value) => {
        const file = structuredClone(small) as Record<string, unknown>;
        setAt(file, path, value);
        mustRefuseOrReturn(
          () => tokenizerFromJson({ tokenizerJson: file }).encode('ab <x>', { parseSpecial: true }),
          codes,
        );
      }),
      { seed: 8, numRuns: 1500 },
    );
    const keys = [
      ...pieces().keys(),
      'tokenizer.ggml.add_bos_token',
      'tokenizer.chat_template',
      'tokenizer.ggml.merges',
      'tokenizer.ggml.pre',
    ];
    fc.assert(
      fc.property(fc.constantFrom(...keys), junk, fc.constantFrom('llama', 'gpt2'), (key, value, kind) => {
        const file = pieces({ 'tokenizer.ggml.model': kind, 'tokenizer.ggml.merges': ['a b'] });
        file.set(key, value as GgufValue);
        mustRefuseOrReturn(() => tokenizerFromGguf(file).encode('ab </s>', { parseSpecial: true }), codes);
      }),
      { seed: 9, numRuns: 600 },
    );
  });
});

function placesOf(value: unknown, path: string[] = []): string[][] {
  if (typeof value !== 'object' || value === null) return [path];
  return [
    ...(path.length > 0 ? [path] : []),
    ...Object.entries(value).flatMap(([key, inner]) => placesOf(inner, [...path, key])),
  ];
}

function setAt(target: Record<string, unknown>, path: readonly string[], value: unknown): void {
  const holder = path.slice(0, -1).reduce((at, key) => at[key] as Record<string, unknown>, target);
  holder[path.at(-1)!] = value;
}
