/**
 * Compares tokenizers with llama.cpp's and HuggingFace's own tokens (golden/tokenizers.jsonl names the releases), and
 * tests decoding, streaming and refusals.
 */
import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { Tokenizer as HuggingFaceTokenizer } from '@huggingface/tokenizers';
import { type GgufValue, parseGguf, parseJson } from '@ropewalk/formats';
import fc from 'fast-check';
import { Fields } from 'ropewalk/internal';
import { ROOT } from '../../../test/support/build.js';
import { STORIES } from '../../../test/support/fixtures.js';
import { mustRefuseOrReturn } from '../../../test/support/fuzz.js';
import { drawn } from '../../../test/support/size.js';
import { golden, metadata, pieces, unigram } from '../../../test/support/vocabularies.js';
import { readCharsmap } from '../src/charsmap.js';
import { PRE_TOKENIZERS, preTokenizerStep, tokenizerFromGguf } from '../src/gguf-vocabulary.js';
import { cutterOf } from '../src/safe-cuts.js';
import { AddedFinder } from '../src/tokenizer.js';
import { tokenizerFromJson } from '../src/tokenizer-json.js';
import { readSteps } from '../src/tokenizer-steps.js';
import type { Tokenizer } from '../src/types.js';
import { unigramOf } from '../src/unigram.js';

const read = (...path: string[]): unknown => parseJson(new Uint8Array(readFileSync(join(...path))), path.at(-1)!);

/** Returns the same vocabulary as tokenizer.json. */
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

test('Unicode spaces before the letters of DeepSeek, as llama.cpp b11434 cuts them (unicode_regex_split)', () => {
  const cut = (pre: string, text: string): string[] => {
    const row = PRE_TOKENIZERS.find(([names]) => names === pre)![1];
    const { pretokenizers } = preTokenizerStep(row);
    const pre_tokenizer = { type: 'Sequence', pretokenizers: pretokenizers.slice(0, -1) };
    return readSteps(new Fields({ pre_tokenizer }, 'pre')).split(text, 0);
  };
  // Pieces are divided by a bar.
  const rows: [text: string, llm: string, coder: string][] = [
    ['3\u3000Ж', '3|\u3000Ж', '3|\u3000Ж'],
    ['½\u2003=？漢«', '½|\u2003=？|漢|«', '½|\u2003=|？|漢|«'],
    ['—\u2028ア⁂', '—|\u2028|ア⁂', '—|\u2028|ア|⁂'],
    ['\u3000。”._', '\u3000|。”|._', '\u3000|。”|._'],
    ['~\u2003\u2028»ア', '~|\u2003\u2028»|ア', '~\u2003|\u2028»|ア'],
    ['가\u2003a', '가|\u2003a', '가|\u2003a'],
  ];
  for (const [text, llm, coder] of rows)
    assert.deepEqual([cut('deepseek-llm', text), cut('deepseek-coder', text)], [llm.split('|'), coder.split('|')]);
});

describe("steps of tokenizer.json: HuggingFace's own program", () => {
  for (const [name, { out, ...step }] of Object.entries(golden.steps.of)) {
    test(name, () => {
      const { normalize, split } = readSteps(new Fields(step, 'tokenizer.json'));
      // An empty text has no words and never gets here.
      for (const [n, text] of golden.steps.texts.slice(0, out.length).entries())
        if (text !== '') assert.deepEqual(normalize ? normalize(text) : split(text, 0), out[n], JSON.stringify(text));
    });
  }
  test('a section that is not the first gets no space in front, if the file says so', () => {
    const { split } = readSteps(
      new Fields({ pre_tokenizer: { type: 'Metaspace', replacement: '_', prepend_scheme: 'first', split: true } }, 't'),
    );
    assert.deepEqual(
      [split('a b', 0), split('a b', 1)],
      [
        ['_a', '_b'],
        ['a', '_b'],
      ],
    );
  });
});

describe('Unigram, and BPE as Gemma has it: golden', () => {
  const prefix = { 'tokenizer.ggml.add_space_prefix': true };
  const kinds = { plain: {}, prefix, merged: { ...prefix, 'tokenizer.ggml.remove_extra_whitespaces': true } };
  for (const [name, keys] of Object.entries(kinds)) {
    test(`GGUF, ${name}, as llama.cpp`, () => {
      const tokenizer = tokenizerFromGguf(unigram(keys));
      const encode = (text: string): number[] => tokenizer.encode(text, { addEos: false });
      assertTokens(golden.unigramTexts, golden.unigram.llama[name]!, encode);
      assert.deepEqual(tokenizer.encode('').slice(-1), [2], 'EOS comes after a text');
    });
  }
  for (const [n, { json, ids }] of golden.vocabularies.entries()) {
    test(`tokenizer.json ${n} as HuggingFace's tokenizers`, () => {
      const tokenizer = tokenizerFromJson({ tokenizerJson: json });
      assertTokens(golden.unigramTexts, ids, (text) => tokenizer.encode(text));
    });
  }
  test('decoding gives the text back, cut anywhere', () => {
    const gguf = tokenizerFromGguf(unigram({ ...prefix, 'tokenizer.ggml.precompiled_charsmap': undefined }));
    const [, json, gemma] = golden.vocabularies.map((one) => tokenizerFromJson({ tokenizerJson: one.json }));
    for (const tokenizer of [gguf, json!, gemma!]) {
      const text = 'the cat sat on a mat';
      const ids = tokenizer.encode(text, { addEos: false });
      assert.equal(tokenizer.decode(ids), text);
      for (let cut = 0; cut < ids.length; cut++)
        assert.equal(
          streamed(tokenizer, ids.slice(0, cut)) + streamed(tokenizer, ids.slice(cut), { after: ids.slice(0, cut) }),
          text,
        );
    }
  });
});

describe('Unigram', () => {
  const pieces = ['a', 'b', 'ab', 'aba', 'b🐳'].map((text, n) => ({
    text,
    id: n + 1,
    score: [-1, -1, -1.5, -9, -1][n]!,
  }));
  const of = (text: string, unknown: number | undefined = 0): (number | undefined)[] =>
    unigramOf(pieces, -19, unknown, 'here')(text).map(({ id }) => id);
  test('the best sum, of equal sums the one found first, unknown neighbours as one', () => {
    assert.deepEqual(of('ab'), [3]);
    assert.deepEqual(of('aba'), [3, 1]);
    assert.deepEqual(of('ab🐳'), [1, 5]);
    assert.deepEqual(of('🐳🐳b'), [undefined, 2]);
    assert.deepEqual(of(''), []);
    const equal = unigramOf([...pieces, { text: 'ba', id: 9, score: -1.5 }], -19, 0, 'here');
    assert.deepEqual(
      equal('aba').map(({ id }) => id),
      [1, 9],
    );
  });
  test('is the best of all ways, tried one by one', () => {
    const word = fc.string({ unit: fc.constantFrom('a', 'b', 'c', 'é', '🐳'), maxLength: 9 });
    const list = fc.uniqueArray(
      word.filter((text) => text !== ''),
      { maxLength: 12 },
    );
    fc.assert(
      fc.property(
        list,
        fc.array(fc.integer({ min: -20, max: -1 }), { minLength: 12, maxLength: 12 }),
        word,
        (own, scores, text) => {
          const table = own.map((piece, id) => ({ text: piece, id, score: scores[id]! }));
          const got = unigramOf(table, -30, 99, 'here')(text);
          assert.equal(got.map((one) => one.text).join(''), text);
          const costOf = (stretch: { text: string; id: number | undefined }): number =>
            stretch.id === undefined ? -30 * [...stretch.text].length : scores[stretch.id]!;
          const best = (rest: string): number => {
            if (rest === '') return 0;
            const [first] = rest;
            const fits = table.filter((piece) => rest.startsWith(piece.text));
            const ways = fits.map((piece) => piece.score + best(rest.slice(piece.text.length)));
            if (!fits.some((piece) => piece.text === first)) ways.push(-30 + best(rest.slice(first!.length)));
            return Math.max(...ways);
          };
          assert.equal(
            got.reduce((sum, one) => sum + costOf(one), 0),
            best(text),
          );
        },
      ),
      drawn(300, 4),
    );
  });
  test('refusals: an unknown character without an unknown token, a piece without end', () => {
    assert.throws(() => unigramOf(pieces, -19, undefined, 'here')('ac'), {
      code: 'FORMAT',
      message: 'here: there is no token for "c", and no unknown token',
    });
    assert.throws(() => unigramOf([{ text: 'x'.repeat(1025), id: 0, score: 0 }], 0, 0, 'here'), {
      code: 'FORMAT',
      message: /here: expected pieces of at most 1024 characters, got 1025/,
    });
  });
  test('a book in a moment', () => {
    const long = 'abba🐳c'.repeat(40_000);
    assert.equal(
      unigramOf(
        pieces,
        -19,
        0,
        'here',
      )(long)
        .map(({ text }) => text)
        .join(''),
      long,
    );
  });
});

describe('tables of replacements', () => {
  const bytes = new Uint8Array(Buffer.from(golden.unigram.charsmap, 'base64'));
  test('the longest text of the table, or a grapheme at a time', () => {
    const { replaceLongest, replaceGraphemes, growth } = readCharsmap(bytes, 'here');
    assert.equal(replaceLongest('AB ﬁ ABA é x\u200by'), 'xyz fi xyza é xy');
    assert.equal(replaceGraphemes('AB ﬁ'), 'ab fi'.replace('b', 'B'));
    assert.equal(growth, 3);
  });
  test('graphemes of any length, in windows: as of the whole text', () => {
    const { replaceGraphemes } = readCharsmap(bytes, 'here');
    const marks = `e${'\u0301'.repeat(600)}`;
    for (const text of [
      'A👍🏽'.repeat(200),
      `${'x'.repeat(255)}👨‍👩‍👧A`,
      `${'x'.repeat(254)}👍🏽A`,
      `${marks}A`,
      '🇩🇪'.repeat(300),
    ]) {
      const whole = [...new Intl.Segmenter('en', { granularity: 'grapheme' }).segment(text)];
      const parts = whole.map(({ segment }) => replaceGraphemes(segment));
      assert.equal(replaceGraphemes(text), parts.join(''));
    }
    const long = 'e\u0301 A. '.repeat(50_000);
    assert.equal(replaceGraphemes(long), 'é a. '.repeat(50_000), 'in a moment');
  });
  test('refuses what is cut or forged, and never reads outside of itself', () => {
    const refuse = (wrong: Uint8Array, message: RegExp): void =>
      assert.throws(() => readCharsmap(wrong, 'here').replaceLongest('AB A ﬁ e\u0301 ①　\t\u200b'), {
        code: 'FORMAT',
        message,
      });
    refuse(new Uint8Array(7), /here: it has 7 bytes: a size and a trie take 8 at least/);
    refuse(Uint8Array.of(255, 0, 0, 0, 1, 2, 3, 4), /here: expected a size in \[4, 4\], a multiple of 4, got 255/);
    refuse(Uint8Array.of(4, 0, 0, 0, 0, 255, 255, 255), /here: its trie leads outside of itself/);
    refuse(bytes.slice(0, bytes.length - 1), /here: a replacement has no end/);
    fc.assert(
      fc.property(
        fc.array(fc.tuple(fc.nat(bytes.length - 1), fc.nat(255)), { minLength: 1, maxLength: 4 }),
        (changes) => {
          const forged = Uint8Array.from(bytes);
          for (const [at, byte] of changes) forged[at] = byte;
          mustRefuseOrReturn(() => readCharsmap(forged, 'here').replaceLongest('AB ﬁ é ①　x'), ['FORMAT']);
        },
      ),
      drawn(300, 3),
    );
  });
});

describe('SentencePiece: golden', () => {
  const open = (): [string, Tokenizer][] => [
    [
      'tokenizer.json',
      tokenizerFromJson({
        tokenizerJson: read(STORIES, 'tokenizer.json'),
        tokenizerConfig: read(STORIES, 'tokenizer_config.json'),
      }),
    ],
    ['GGUF', tokenizerFromGguf(parseGguf(new Uint8Array(readFileSync(join(STORIES, 'model-f32.gguf')))).metadata)],
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

const box = join(ROOT, 'models', 'marline');
const noBox = existsSync(join(box, 'model-q8_0.gguf')) ? false : 'no models/marline';
test('the bundled model: tokenizer.json and GGUF give the same tokens for text it has never seen', {
  skip: noBox,
}, () => {
  const json = tokenizerFromJson({
    tokenizerJson: read(box, 'tokenizer.json'),
    tokenizerConfig: read(box, 'tokenizer_config.json'),
  });
  const gguf = tokenizerFromGguf(parseGguf(new Uint8Array(readFileSync(join(box, 'model-q8_0.gguf')))).metadata);
  const text = readFileSync(join(ROOT, 'training', 'held-back.txt'), 'utf8').slice(0, 12_000);
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
    // The merges are ab (-2) before ▁a (-3), then ▁ab (-1).
    assert.deepEqual(of('ab'), ['▁ab']);
    // All ab are merged first, from the left, then ▁ab. aba is never offered to the first ab, whose right neighbour is
    // ab by then.
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
    const few = new Map(pieces({ 'tokenizer.ggml.unknown_token_id': 2 ** 32 - 1 }));
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
      drawn(200, 7),
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
    const book = readFileSync(join(ROOT, 'training', 'held-back.txt'), 'utf8').replaceAll(' ', '▁');
    const pieces = cutterOf(model.merges)(book);
    assert.equal(pieces.join(''), book);
    // Uncut, the text is one word of 90,000 characters.
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
    const taking = new AddedFinder([
      { id: 0, content: '<a>', special: false, rstrip: true },
      { id: 1, content: '\n\n', special: false },
    ]);
    assert.deepEqual(taking.split('\n\n<a> \n\n x<a>'), [1, 0, 'x', 0], 'white space that is taken is no token');
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
  test('ids that a GGUF leaves out are those of its kind, if the vocabulary has them', () => {
    const ids = ['bos', 'eos', 'unknown'].map((name) => [`tokenizer.ggml.${name}_token_id`, undefined]);
    const of = (keys: Map<string, GgufValue>): unknown[] => {
      const { bosToken, eosTokens, addBos, addEos } = tokenizerFromGguf(keys);
      return [bosToken, eosTokens, addBos, addEos];
    };
    assert.deepEqual(of(pieces(Object.fromEntries(ids))), [1, [2], true, false]);
    assert.deepEqual(of(unigram(Object.fromEntries(ids))), [undefined, [1, 2], false, true]);
    assert.deepEqual(of(metadata('olmo', Object.fromEntries(ids))), [undefined, [588, 586 + 1].sort(), false, false]);
    const one = { ...Object.fromEntries(ids), 'tokenizer.ggml.tokens': ['a'], 'tokenizer.ggml.token_type': [1] };
    assert.deepEqual(of(pieces({ ...one, 'tokenizer.ggml.scores': [0] })), [undefined, [], false, false]);
  });
  test("tokens of Phi-3's GGUF take the white space after them, but for three", () => {
    const own = ['<unk>', '<s>', '</s>', '<|endoftext|>', '<|user|>', '<|end|>', '▁a', '▁', 'a', '<0x0A>'];
    const of = (name: string): (string | undefined)[] => {
      const tokenizer = tokenizerFromGguf(
        pieces({
          'general.name': name,
          'tokenizer.ggml.tokens': own,
          'tokenizer.ggml.token_type': [2, 3, 3, 3, 3, 3, 1, 1, 1, 6],
          'tokenizer.ggml.scores': own.map(() => 0),
          'tokenizer.ggml.add_space_prefix': false,
        }),
      );
      return texts(tokenizer, tokenizer.encode('<|user|>\na<|end|> a<s> a', { addBos: false, parseSpecial: true }));
    };
    assert.deepEqual(of('Phi-3-mini'), ['<|user|>', 'a', '<|end|>', 'a', '<s>', '▁a']);
    assert.deepEqual(of('phi3'), of('Phi-3-mini'));
    assert.deepEqual(of('Llama'), ['<|user|>', '<0x0A>', 'a', '<|end|>', '▁a', '<s>', '▁a']);
  });
  test('harmony: the marks between thoughts and answer are text, and <|end|> does not end the turn', () => {
    const own = ['<|start|>', '<|channel|>', '<|message|>', '<|end|>', '<|return|>', '<|call|>'];
    const tokens = [...golden.vocab, ...own];
    const types = [...golden.vocab.map(() => 1), ...own.map(() => 3)];
    const changes = { 'tokenizer.ggml.tokens': tokens, 'tokenizer.ggml.token_type': types };
    const tokenizer = tokenizerFromGguf(metadata('gpt-4o', { ...changes, 'tokenizer.ggml.eos_token_id': undefined }));
    const n = golden.vocab.length;
    const ids = tokenizer.encode('<|start|>a<|end|><|return|>', { parseSpecial: true });
    assert.deepEqual(ids, [n, golden.vocab.indexOf('a'), n + 3, n + 4]);
    assert.equal(tokenizer.decode(ids), '<|start|>a<|end|>');
    assert.deepEqual(tokenizer.encode('<|channel|>'), [n + 1], 'found without being asked for, as in llama.cpp');
    assert.deepEqual(tokenizer.eosTokens, [n + 4, n + 5]);
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
        drawn(400, 5),
      );
    });
    test(`${name}: decode after encode gives the text back, cut anywhere`, () => {
      fc.assert(
        fc.property(fc.string({ unit: 'grapheme', maxLength: 30 }), fc.nat(40), (drawnText, cut) => {
          // SentencePiece writes a space as ▁ (U+2581), so it gives a space for that character too.
          const text = drawnText.replaceAll('\u2581', ' ');
          const ids = tokenizer.encode(text);
          const [before, after] = [ids.slice(0, cut), ids.slice(cut)];
          assert.equal(tokenizer.decode(ids), text);
          // A character cut in two is missing after the first part, and comes whole with the second.
          const start = tokenizer.stream();
          const head = before.map(start.push).join('');
          assert.equal(head + streamed(tokenizer, after, { after: before }), text);
        }),
        drawn(400, 6),
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
      /model: expected llama, gpt2, t5, gemma4 or bert, got "rwkv"\. Load the model from its HuggingFace files/,
      metadata('qwen2', { 'tokenizer.ggml.model': 'rwkv' }),
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
    refusesJson('UNSUPPORTED', /model\.type: expected BPE, WordPiece or Unigram, got "WordLevel"/, {
      model: { type: 'WordLevel', vocab: { a: 0 } },
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
    refusesJson('UNSUPPORTED', /decoder\.type: expected ByteLevel.*got "CTC"/, {
      decoder: { type: 'CTC' },
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
    for (const behavior of ['Nonesuch', undefined])
      refusesJson('FORMAT', /behavior: expected (Removed, Isolated, MergedWithPrevious|a string)/, {
        pre_tokenizer: split({ behavior }),
      });
    const table = (precompiled_charsmap: unknown): Record<string, unknown> => ({
      normalizer: { type: 'Precompiled', precompiled_charsmap },
    });
    refusesJson('FORMAT', /normalizer\.precompiled_charsmap: expected base64, got "§"/, table('§'));
    refusesJson('FORMAT', /precompiled_charsmap: it has 3 bytes: a size and a trie take 8/, table('AAAA'));
    refusesJson('FORMAT', /charsmap: expected a size in \[4, 5\], a multiple of 4, got 0/, table('AAAAAAAAAAAA'));
    refusesJson('FORMAT', /precompiled_charsmap: expected a string/, table(undefined));
    const long = Buffer.concat([Buffer.from([4, 0, 0, 0, 0, 0, 0, 0]), Buffer.alloc(1025, 'x'), Buffer.from([0])]);
    refusesJson('FORMAT', /may make a text more than 1024 times longer/, table(long.toString('base64')));
    const unigramModel = (changes: object): Record<string, unknown> => ({
      model: { type: 'Unigram', vocab: [['a', -1]], ...changes },
    });
    refusesJson('FORMAT', /model\.vocab: expected 1 to 1048576 tokens, got 0/, unigramModel({ vocab: [] }));
    refusesJson('FORMAT', /vocab\[1\]: expected a piece and its score/, unigramModel({ vocab: [['a', 1], ['b']] }));
    refusesJson('FORMAT', /unk_id: expected an integer in \[0, 0\], got 1/, unigramModel({ unk_id: 1 }));
    refusesJson('FORMAT', /vocab: expected a list of pieces and scores/, unigramModel({ vocab: undefined }));
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
      drawn(1500, 8),
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
      drawn(600, 9),
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
