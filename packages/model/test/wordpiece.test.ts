/** WordPiece of a tokenizer.json and of a GGUF, beside ids of huggingface/tokenizers 0.23.3. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { GgufValue } from '@ropewalk/formats';
import { tokenizerFromGguf, tokenizerFromJson } from '../src/index.js';

const WORDS =
  "[PAD] [UNK] [CLS] [SEP] [MASK] the a whale ship ##s ##ing rope un ##aff ##able e ##t ##e cafe 中 国 ! ? . , ' - $ 1 2 ##2 ##3 na ##ive naive i ##i ss ##ß ß b c d f g h j k l m n o p q r s t u v w x y z ##a ##b ##c ##d ##f ##g ##h ##j ##k ##l ##m ##n ##o ##p ##q ##r ##u ##v ##w ##x ##y ##z ##0 ##4 ##5 ##6 ##7 ##8 ##9 0 4 5 6 7 8 9".split(
    ' ',
  );
/** The texts, and the ids that tokenizers 0.23.3 gives them with special tokens. */
const CASES: readonly (readonly [text: string, ids: readonly number[]])[] = [
  ["The whale's ships", [2, 5, 7, 25, 55, 8, 9, 3]],
  ['Caf\u00e9 na\u00efve, \u00c9T\u00c9!', [2, 18, 34, 24, 15, 16, 17, 21, 3]],
  ['\u4e2d\u56fdwhale\u4e2d\u56fd \ud840\udc00x', [2, 19, 20, 7, 19, 20, 1, 60, 3]],
  ['unaffable ropes $12,3 - ?', [2, 12, 13, 14, 11, 9, 27, 28, 30, 24, 1, 26, 22, 3]],
  ['a\u00a0b\tc\u200bd\u0000e\ufffdf\n', [2, 6, 40, 41, 66, 17, 67, 3]],
  [
    'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx whale',
    [2, 1, 7, 3],
  ],
  [
    '\ufb01 Stra\u00dfe \u1e9e \u0130stanbul \u01c4',
    [2, 1, 55, 16, 78, 63, 38, 17, 39, 35, 9, 16, 63, 74, 64, 79, 72, 1, 3],
  ],
  ['', [2, 3]],
  ['  ', [2, 3]],
  ['emoji \ud83d\ude00 whale', [2, 15, 73, 75, 70, 36, 1, 7, 3]],
  ['a\u2010b\u2014c\u201cd\u201d\u2026', [2, 6, 1, 40, 1, 41, 1, 42, 1, 1, 3]],
  ['e\u0301te', [2, 15, 16, 17, 3]],
  ['[MASK] whale [SEP]', [2, 4, 7, 3, 3]],
  ['\ud55c\uad6d\uc5b4 \uac00', [2, 1, 1, 3]],
  ['\ud7a3 \u2460\u00b2\u00bd', [2, 1, 1, 3]],
  ["don't ^_^ `x` ~ + = < >", [2, 42, 75, 74, 25, 56, 1, 1, 1, 1, 60, 1, 1, 1, 1, 1, 1, 3]],
];

const special = ['[CLS]', '[SEP]'].map((id) => [id, { id, ids: [WORDS.indexOf(id)], tokens: [id] }] as const);
const around = [{ SpecialToken: { id: '[CLS]' } }, { Sequence: { id: 'A' } }, { SpecialToken: { id: '[SEP]' } }];
const model = {
  type: 'WordPiece',
  unk_token: '[UNK]',
  continuing_subword_prefix: '##',
  max_input_chars_per_word: 100,
  vocab: Object.fromEntries(WORDS.map((word, id) => [word, id])),
};
const tokenizerJson = {
  added_tokens: WORDS.slice(0, 5).map((content, id) => ({ id, content, special: true, normalized: false })),
  normalizer: {
    type: 'BertNormalizer',
    clean_text: true,
    handle_chinese_chars: true,
    strip_accents: null,
    lowercase: true,
  },
  pre_tokenizer: { type: 'BertPreTokenizer' },
  post_processor: { type: 'TemplateProcessing', single: around, special_tokens: Object.fromEntries(special) },
  decoder: { type: 'WordPiece', prefix: '##', cleanup: true },
  model,
};
const metadata = new Map<string, GgufValue>(
  Object.entries({
    model: 'bert',
    // The converter marks the start of a word in place of its other parts.
    tokens: WORDS.map((word) =>
      /^\[.*\]$/.test(word) ? word : word.startsWith('##') ? word.slice(2) : `\u2581${word}`,
    ),
    token_type: WORDS.map((_word, id) => (id < 5 ? 3 : 1)),
    cls_token_id: 2,
    seperator_token_id: 3,
    unknown_token_id: 1,
  }).map(([key, value]) => [`tokenizer.ggml.${key}`, value as GgufValue]),
);

describe('WordPiece', () => {
  const readers = {
    'tokenizer.json': () => tokenizerFromJson({ tokenizerJson }),
    GGUF: () => tokenizerFromGguf(metadata),
  };
  for (const [name, read] of Object.entries(readers))
    test(name, () => {
      const tokenizer = read();
      for (const [text, ids] of CASES) assert.deepEqual(tokenizer.encode(text, { parseSpecial: true }), ids, text);
      assert.equal(tokenizer.decode(tokenizer.encode('The ships unaffable')), 'the ships unaffable');
      assert.deepEqual(tokenizer.encode('the', { addBos: false }).at(-1), 3);
    });

  const refused = (more: object, code: string, message: RegExp): void =>
    assert.throws(() => tokenizerFromJson({ tokenizerJson: { ...tokenizerJson, model: { ...model, ...more } } }), {
      ...{ code, message },
    });
  test('refusals', () => {
    refused({ unk_token: '[NONE]' }, 'FORMAT', /unk_token: expected a token of the vocabulary/);
    refused({ continuing_subword_prefix: undefined }, 'FORMAT', /continuing_subword_prefix: expected a string/);
    refused(
      { max_input_chars_per_word: 1e6 },
      'FORMAT',
      /max_input_chars_per_word: expected an integer in \[1, 1000\]/,
    );
    const without = new Map(metadata).set('tokenizer.ggml.unknown_token_id', 2 ** 32 - 1);
    assert.throws(() => tokenizerFromGguf(without), {
      code: 'FORMAT',
      message: /unknown_token_id: there is no such token/,
    });
  });
});
