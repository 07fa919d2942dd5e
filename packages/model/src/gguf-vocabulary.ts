/**
 * Reads the vocabulary in a GGUF header: `tokenizer.ggml.*`.
 *
 * "llama" is SentencePiece by scores (sentencepiece.ts), "t5" SentencePiece's Unigram (unigram.ts), "gpt2" byte-level
 * BPE with merges (@huggingface/tokenizers), "gemma4" BPE with merges of pieces, "bert" WordPiece. The meaning of a
 * key, and of its absence, follows llama.cpp: the page of
 * the format leaves most of it open.
 *
 * @module
 * @see ggml-org/llama.cpp@00ad355 src/llama-vocab.cpp
 */
import { Tokenizer as HuggingFaceTokenizer } from '@huggingface/tokenizers';
import type { GgufValue } from '@ropewalk/formats';
import { fail, refuse } from 'ropewalk/backend';
import { Fields, reading, show } from 'ropewalk/internal';
import { checkTypes } from './arguments.js';
import { readCharsmap } from './charsmap.js';
import { tokenId } from './config.js';
import { SPACE, segmentByScores } from './sentencepiece.js';
import {
  type AddedToken,
  byteOfToken,
  bytesOfByteLevel,
  checkTemplateLength,
  MAX_VOCABULARY,
  readMerges,
  tokenizerOf,
  tokenOfByte,
  type Vocabulary,
} from './tokenizer.js';
import { tokenizerFromJson } from './tokenizer-json.js';
import type { Tokenizer } from './types.js';
import { UNKNOWN_PENALTY, unigramOf } from './unigram.js';

/** The token types of GGUF, which are SentencePiece's numbers. */
export const TYPE = { normal: 1, unknown: 2, control: 3, userDefined: 4, unused: 5, byte: 6 } as const;

/** The patterns that cut text before merges. Each one cuts what those before it have left. */
interface PreTokenizer {
  readonly patterns: readonly string[];
  /** Whether a word that is a token skips the merges. */
  readonly ignoreMerges?: boolean;
  /** Whether BOS comes before a text, if the file does not say. */
  readonly addBos?: boolean;
}

const CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)";
const GPT2 = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)";
const SPACES = '\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+';
/** The pattern of GPT-4 and its children. They differ in how many digits, and which marks, stay together. */
const gpt4 = (digits: string, letter = '\\p{L}', notOther = '\\p{L}'): string =>
  `${CONTRACTIONS}|[^\\r\\n\\p{L}\\p{N}]?${letter}+|\\p{N}${digits}| ?[^\\s${notOther}\\p{N}]+[\\r\\n]*|${SPACES}`;
/** Splits where case changes, as in the models' tokenizer.json. llama.cpp writes the same with look-aheads. */
const mixedCase = (after: string, digits: string): string => {
  const upper = '[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]';
  const lower = '[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]';
  const start = '[^\\r\\n\\p{L}\\p{N}]?';
  const words = `${start}${upper}*${lower}+${after}|${start}${upper}+${lower}*${after}`;
  return `${words}|\\p{N}${digits}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|${SPACES}`;
};

/** The letters of DeepSeek's first vocabularies, in ranges of numbers: normalisation would change some characters. */
const CASED =
  '41-5a 61-7a b5 c0-d6 d8-f6 f8-1ba 1bc-1bf 1c4-293 295-2af 370-373 376 377 37b-37d 37f 386 388-38a 38c 38e-3a1 ' +
  '3a3-3f5 3f7-481 48a-52f 531-556 10a0-10c5 13a0-13f5 13f8-13fd 1c90-1cba 1cbd-1cbf 1d00-1d2b 1d6b-1d77 1d79-1d9a ' +
  '1e00-1f15 1f18-1f1d 1f20-1f45 1f48-1f4d 1f50-1f57 1f59 1f5b 1f5d 1f5f-1f7d 1f80-1fb4 1fb6-1fbc 1fbe 1fc2-1fc4 ' +
  '1fc6-1fcc 1fd0-1fd3 1fd6-1fdb 1fe0-1fec 1ff2-1ff4 1ff6-1ffc 2102 2107 210a-2113 2115 2119-211d 2124 2126 2128 ' +
  '212a-212d 212f-2134 2139 213c-213f 2145-2149 214e 2183 2184 2c00-2c7b 2c7e-2ce4 2ceb-2cee 2cf2 2cf3 a640-a66d ' +
  'a680-a69b a722-a76f a771-a787 a78b-a78e ab70-abbf fb00-fb06 fb13-fb17 ff21-ff3a ff41-ff5a 10400-1044f ' +
  '104b0-104d3 104d8-104fb 10c80-10cb2 10cc0-10cf2 118a0-118df 1e900-1e943';
const cased = (): string => `[${CASED.replace(/[0-9a-f]+/g, '\\x{$&}').replaceAll(' ', '')}]`;
const HAN_KANA = '[\\x{4e00}-\\x{9fa5}\\x{3040}-\\x{309f}\\x{30a0}-\\x{30ff}]+';
/** llama.cpp takes spaces out of these ranges: its patterns see each Unicode space as one that no range has. */
const HAN_HANGUL =
  '[\\x{800}-\\x{167f}\\x{1681}-\\x{1fff}\\x{200b}-\\x{2027}\\x{202a}-\\x{202e}\\x{2030}-\\x{205e}\\x{2060}-\\x{2fff}' +
  '\\x{3001}-\\x{9fa5}\\x{ac00}-\\x{d7ff}]+';
/** DeepSeek-V3's pattern: a mark belongs to the ASCII letters after it, and combining marks to their letters. */
const DEEPSEEK_V3 =
  '[!"#$%&\'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+|' +
  ` ?[\\p{P}\\p{S}]+[\\r\\n]*|${SPACES}`;

const DEFAULT: PreTokenizer = { patterns: ['[\\p{P}\\$\\+<=>\\^~\\|]+', GPT2, '\\p{N}+', '[0-9][0-9][0-9]'] };

/** llama.cpp's table: the names of each row, and the row. */
export const PRE_TOKENIZERS: readonly (readonly [names: string, row: PreTokenizer])[] = [
  ['default', DEFAULT],
  [
    'llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2',
    { patterns: [gpt4('{1,3}')], ignoreMerges: true, addBos: true },
  ],
  ['dbrx smaug-bpe chatglm-bpe glm4', { patterns: [gpt4('{1,3}')] }],
  ['qwen2 deepseek-r1-qwen kormo f2llmv2 megrez stablelm2 hunyuan grok-2 solar-open', { patterns: [gpt4('')] }],
  ['qwen35', { patterns: [gpt4('', '[\\p{L}\\p{M}]', '\\p{L}\\p{M}')] }],
  [
    'gpt-2 modern-bert phi-2 gigachat a.x-4.0 mellum mpt olmo jais exaone4 trillion granite-docling',
    { patterns: [GPT2] },
  ],
  ['smollm starcoder refact command-r codeshell exaone minerva-7b mellum2', { patterns: ['\\p{N}', GPT2] }],
  ['deepseek-coder', { patterns: ['[\\r\\n]', '\\s?\\p{L}+', '\\s?\\p{P}+', HAN_HANGUL, '\\p{N}'] }],
  [
    'deepseek-llm',
    {
      patterns: [
        '[\\r\\n]',
        `\\s?${cased()}+`,
        '\\s?[!-/:-~\\x{ff01}-\\x{ff0f}\\x{ff1a}-\\x{ff5e}\\x{2018}-\\x{201f}\\x{3001}\\x{3002}]+',
        '\\s+$',
        HAN_HANGUL,
        '\\p{N}+',
      ],
    },
  ],
  ['deepseek-v3 hunyuan-dense joyai-llm hy_v4', { patterns: ['\\p{N}{1,3}', HAN_KANA, DEEPSEEK_V3] }],
  ['falcon', { patterns: ['[\\p{P}\\$\\+<=>\\^~\\|`]+', GPT2, '[0-9][0-9][0-9]'] }],
  ['tekken', { patterns: [mixedCase('', '')], ignoreMerges: true, addBos: true }],
  ['gpt-4o llama4 kanana2 talkie', { patterns: [mixedCase(`${CONTRACTIONS}?`, '{1,3}')] }],
  ['tiny_aya', { patterns: ['\\d{1,3}(?=(?:\\d{3})*\\b)', mixedCase(`${CONTRACTIONS}?`, '{1,3}')] }],
  ['minicpm5', { patterns: ['\\p{N}{1,3}', gpt4('+')], ignoreMerges: true }],
  ['seed-coder', { patterns: [gpt4('').replace('\\p{N}]+[\\r\\n]*', '\\p{N}\\r\\n]+')] }],
];

const BAR = /* @__PURE__ */ String.fromCodePoint(0xff5c); // full width
/** The texts of tokens that end a turn. Files rarely name more than one of them by id. */
const END_TEXTS: readonly string[] = [
  ...['</s>', '<eos>', '[EOS]', '<EOT>', '_<EOT>', '[EOT]', '<|endoftext|>', '<|end_of_text|>', '<end_of_utterance>'],
  ...['<|im_end|>', '<|eot_id|>', '<|eom_id|>', '<|end|>', '<|return|>', '<|call|>', '<end_of_turn>', '<turn|>'],
  ...[`<${BAR}end${SPACE}of${SPACE}sentence${BAR}>`, '<|fim_pad|>', '<|repo_name|>', '<|file_sep|>'],
];
const TOOL_RESPONSE = '<|tool_response>';
/** In the harmony format these tokens divide the model's reasoning from its answer, so they are text. */
const HARMONY: readonly string[] = ['<|channel|>', '<|message|>', '<|start|>', '<|constrain|>'];

/**
 * Reads the vocabulary of a GGUF file.
 *
 * @param metadata - of parseGguf
 * @param where - the file's name in messages
 * @returns a tokenizer
 * @throws {RopewalkError} FORMAT for a key that is missing, of the wrong type or size; UNSUPPORTED for a vocabulary
 *   other than llama, gpt2, t5, gemma4 and bert, or an unknown pre-tokenizer
 * @example const tokenizer = tokenizerFromGguf(parseGguf(bytes).metadata);
 */
export function tokenizerFromGguf(metadata: ReadonlyMap<string, GgufValue>, where = 'gguf'): Tokenizer {
  checkTypes({ where }, 'string', 'tokenizerFromGguf');
  if (!reading('tokenizerFromGguf: metadata', () => metadata instanceof Map))
    refuse('RANGE', 'tokenizerFromGguf: metadata', 'a Map, such as the metadata of parseGguf', metadata);
  const read = readVocabulary(metadata, where);
  return tokenizerOf(BUILD[read.kind.model](read));
}

export interface GgufVocabulary {
  readonly keys: Fields;
  readonly kind: Kind;
  readonly tokens: Tokens;
  readonly common: Common;
}

/** Reads the keys that all kinds of vocabulary have. @throws {RopewalkError} as tokenizerFromGguf */
export function readVocabulary(metadata: ReadonlyMap<string, GgufValue>, where: string): GgufVocabulary {
  const keys: Fields = new Fields(metadata, where);
  const kind = kindOf(keys);
  const tokens = readTokens(keys);
  return { keys, kind, tokens, common: readCommon(keys, tokens, kind) };
}

/** llama.cpp's rules for a value of `tokenizer.ggml.model`, unless the file has its own. */
export interface Kind {
  readonly model: 'llama' | 't5' | 'gpt2' | 'gemma4' | 'bert';
  /** Only for gpt2. */
  readonly pre?: PreTokenizer;
  readonly addBos: boolean;
  readonly addEos: boolean;
  readonly bos?: number;
  readonly eos?: number;
  /** The separator, which comes after a text. */
  readonly sep?: number;
  readonly unknown?: number;
}

const KINDS: Readonly<Record<Kind['model'], Kind>> = {
  llama: { model: 'llama', addBos: true, addEos: false, bos: 1, eos: 2, unknown: 0 },
  t5: { model: 't5', addBos: false, addEos: true, eos: 1, unknown: 2 },
  gpt2: { model: 'gpt2', addBos: false, addEos: false },
  gemma4: { model: 'gemma4', addBos: true, addEos: false },
  bert: { model: 'bert', addBos: true, addEos: false, bos: 101, sep: 102, unknown: 100 },
};

function kindOf(keys: Fields): Kind {
  const key = 'tokenizer.ggml.model';
  const model = keys.text(key);
  const next = 'Load the model from its HuggingFace files, if it has a tokenizer.json.';
  if (!Object.hasOwn(KINDS, model)) return keys.refuse('UNSUPPORTED', key, 'llama, gpt2, t5, gemma4 or bert', next);
  if (model !== 'gpt2') return KINDS[model as Kind['model']];
  const pre = preTokenizerOf(keys);
  return { ...KINDS.gpt2, pre, addBos: pre.addBos ?? false };
}

function preTokenizerOf(keys: Fields): PreTokenizer {
  const name = keys.optionalText('tokenizer.ggml.pre') || 'default';
  const row = PRE_TOKENIZERS.find(([names]) => names.split(' ').includes(name));
  if (row) return row[1];
  const next = 'Load the model from its HuggingFace files, whose tokenizer.json says how text is cut.';
  return keys.fail('UNSUPPORTED', 'tokenizer.ggml.pre', `${show(name)} is not known. ${next}`);
}

export interface Tokens {
  readonly texts: readonly string[];
  readonly ids: ReadonlyMap<string, number>;
  readonly types: readonly number[];
}

function readTokens(keys: Fields): Tokens {
  const key = 'tokenizer.ggml.tokens';
  const list = keys.need(keys.optionalList(key), key, 'a list of strings');
  if (list.length === 0 || list.length > MAX_VOCABULARY)
    refuse('FORMAT', keys.path(key), `1 to ${MAX_VOCABULARY} tokens`, list.length);
  const ids = new Map<string, number>();
  const texts = list.map((token, id) => {
    if (typeof token !== 'string') refuse('FORMAT', `${keys.path(key)}[${id}]`, 'a string', token);
    // An empty text would match everywhere; llama.cpp gives it this name too.
    const text = token === '' ? `[EMPTY_${id}]` : token;
    const other = ids.get(text);
    if (other !== undefined)
      fail('FORMAT', `${keys.path(key)}[${id}]`, `tokens ${other} and ${id} have the same text ${show(text)}`);
    ids.set(text, id);
    return text;
  });
  const types = keys.has('tokenizer.ggml.token_type')
    ? keys.integers('tokenizer.ggml.token_type', 0, 255)
    : texts.map(() => TYPE.normal);
  checkCount(keys, 'tokenizer.ggml.token_type', types, texts.length, 'types');
  return { texts, ids, types };
}

function checkCount(keys: Fields, key: string, list: readonly unknown[], count: number, what: string): void {
  if (list.length < count) refuse('FORMAT', keys.path(key), `${count} ${what}, one for each token`, list.length);
}

/** The part of a vocabulary that is read in the same way for all kinds. */
export type Common = Omit<Vocabulary, 'segment' | 'bytesOf' | 'prepare' | 'stripSpace'> & {
  readonly unknownToken: number | undefined;
};

function readCommon(keys: Fields, { texts, ids, types }: Tokens, kind: Kind): Common {
  const idOf = (name: string, usual?: number): number | undefined => {
    // llama.cpp ignores an id past the end of the vocabulary, which hides a broken file.
    const key = `tokenizer.ggml.${name}_token_id`;
    if (!keys.has(key)) return usual !== undefined && usual < texts.length ? usual : undefined;
    const id = tokenId(keys, key);
    if (id !== undefined && id >= texts.length) keys.refuse('FORMAT', key, `an id in [0, ${texts.length})`);
    return id;
  };
  const sideOf = (name: string, id: number | undefined, usual: boolean): number[] => {
    const add = keys.optionalFlag(`tokenizer.ggml.add_${name}_token`);
    if (add && id === undefined)
      keys.fail('FORMAT', `tokenizer.ggml.${name}_token_id`, `it is missing, but add_${name}_token is true`);
    // The first files of Gemma 4 say false, which llama.cpp does not believe.
    const always = kind.model === 'gemma4' && name === 'bos';
    return (always || (add ?? usual)) && id !== undefined ? [id] : [];
  };
  const bosToken = idOf('bos', idOf('cls', kind.bos));
  const sepToken = idOf('seperator', kind.sep);
  const eosToken = idOf('eos', kind.eos);
  // In Gemma 4's format a call of a tool ends the turn, and </s> is a word like any other.
  const isGemma4 = kind.model === 'gemma4' && ids.has(TOOL_RESPONSE);
  const endTexts = isGemma4 ? [...END_TEXTS.filter((text) => text !== '</s>'), TOOL_RESPONSE] : END_TEXTS;
  const ends = [eosToken, idOf('eot'), idOf('eom'), ...endTexts.map((text) => ids.get(text))];
  // In the harmony format <|end|> ends a message, but not the turn.
  const harmonyEnd = ids.has('<|return|>') && ids.has('<|call|>') ? ids.get('<|end|>') : undefined;
  // These tokens swallow the white space after them, as in their tokenizer.json. A GGUF has no key for it.
  const stripsRight = /phi-?3/i.test(keys.optionalText('general.name') ?? '');
  const special = new Set<number>();
  const added: AddedToken[] = [];
  for (const [id, text] of texts.entries()) {
    const type = types[id];
    const shown = id === harmonyEnd || HARMONY.includes(text);
    // Some converters write the ends of turns as user-defined or normal tokens; here they are control tokens.
    const isSpecial = !shown && (type === TYPE.control || type === TYPE.unknown || endTexts.includes(text));
    if (isSpecial) special.add(id);
    const rstrip = stripsRight && !['<unk>', '<s>', '<|endoftext|>'].includes(text);
    if (isSpecial || shown || type === TYPE.userDefined) added.push({ id, content: text, special: isSpecial, rstrip });
  }
  const chatTemplates = new Map<string, string>();
  for (const key of keys.keys()) {
    const name = key === 'tokenizer.chat_template' ? 'default' : /^tokenizer\.chat_template\.(.+)$/.exec(key)?.[1];
    if (name === undefined) continue;
    checkTemplateLength(keys.text(key), keys.path(key));
    chatTemplates.set(name, keys.text(key));
  }
  return {
    where: keys.where,
    size: texts.length,
    textOf: (id) => texts[id],
    special,
    added,
    bosToken,
    eosTokens: [...new Set(ends)].filter((id) => id !== undefined && id !== harmonyEnd) as number[],
    chatTemplates,
    unknownToken: idOf('unknown', kind.unknown),
    prefix: sideOf('bos', bosToken, kind.addBos),
    suffix: [...sideOf('sep', sepToken, kind.sep !== undefined), ...sideOf('eos', eosToken, kind.addEos)],
  };
}

const NOTHING = new Uint8Array(0);
const utf8 = /* @__PURE__ */ new TextEncoder();

export function readScores(keys: Fields, { texts }: Tokens): Float32Array {
  const list = keys.optionalNumbers('tokenizer.ggml.scores') ?? texts.map(() => 0);
  checkCount(keys, 'tokenizer.ggml.scores', list, texts.length, 'scores');
  return Float32Array.from(list);
}

const CHARSMAP = 'tokenizer.ggml.precompiled_charsmap';

/** Returns the bytes of a table of replacements, which are signed or unsigned in the file. */
export function readTable(keys: Fields): Uint8Array | undefined {
  const list = keys.optionalList(CHARSMAP);
  return list && Uint8Array.from(list as number[]);
}

/** Returns the bytes of a token of SentencePiece. */
function bytesOfPiece({ texts, types }: Tokens, id: number): Uint8Array {
  const text = texts[id];
  const type = types[id];
  if (text === undefined || type === TYPE.unused) return NOTHING;
  const byte = type === TYPE.byte ? byteOfToken(text) : undefined;
  if (byte !== undefined) return Uint8Array.of(byte);
  return utf8.encode(type === TYPE.normal ? text.replaceAll(SPACE, ' ') : text);
}

function sentencePiece({ keys, tokens, common }: GgufVocabulary): Vocabulary {
  const { ids } = tokens;
  const scores = readScores(keys, tokens);
  const byteToken = (byte: number): number =>
    ids.get(tokenOfByte(byte)) ??
    ids.get(String.fromCharCode(byte)) ??
    common.unknownToken ??
    keys.fail('FORMAT', 'tokenizer.ggml.tokens', `there is no token for byte ${byte}, and no unknown token`);
  const spaceFirst = keys.optionalFlag('tokenizer.ggml.add_space_prefix') ?? true;
  const trim = keys.flag('tokenizer.ggml.remove_extra_whitespaces');
  return {
    ...common,
    stripSpace: spaceFirst,
    // This is SentencePiece's rule. llama.cpp reads the key, but does not apply it to this kind of vocabulary.
    prepare: trim ? (text) => text.replace(/ {2,}/g, ' ').replace(/^ | $/g, '') : undefined,
    // The space comes at the start of the text and after every added token: each begins a stretch.
    segment: (text) =>
      segmentByScores((spaceFirst ? ` ${text}` : text).replaceAll(' ', SPACE), { ids, scores, byteToken }),
    bytesOf: (id) => bytesOfPiece(tokens, id),
  };
}

function unigram({ keys, tokens, common }: GgufVocabulary): Vocabulary {
  const { texts, types } = tokens;
  const scores = readScores(keys, tokens);
  const table = readTable(keys);
  const charsmap = table && readCharsmap(table, keys.path(CHARSMAP));
  let lowest = Infinity;
  for (const [id, type] of types.entries()) if (type === TYPE.normal) lowest = Math.min(lowest, scores[id]!);
  const pieces = texts
    .map((text, id) => ({ text, id, score: types[id] === TYPE.userDefined ? 0 : scores[id]! }))
    .filter(({ id }) => ([TYPE.normal, TYPE.userDefined, TYPE.unused] as readonly unknown[]).includes(types[id]));
  const unknown = common.unknownToken;
  const segment = unigramOf(pieces, Math.fround(lowest - UNKNOWN_PENALTY), unknown, keys.path('tokenizer.ggml.tokens'));
  const spaceFirst = keys.flag('tokenizer.ggml.add_space_prefix');
  const merge = keys.flag('tokenizer.ggml.remove_extra_whitespaces');
  return {
    ...common,
    stripSpace: spaceFirst,
    segment(text) {
      const normal = charsmap?.replaceLongest(text) ?? text;
      // A space goes before the first word, or before every word in place of all others.
      const spaced = merge
        ? normal.replace(/ *([^ ]+) */g, ' $1').replace(/^ +$/, '')
        : spaceFirst
          ? normal.replace(/[^ ]/, ' $&')
          : normal;
      return segment(spaced.replaceAll(' ', SPACE)).map(({ id }) => id ?? unknown!);
    },
    bytesOf: (id) => bytesOfPiece(tokens, id),
  };
}

/** Returns the step of tokenizer.json that cuts text before byte-level BPE. */
export function preTokenizerStep({ patterns }: PreTokenizer) {
  return {
    type: 'Sequence',
    pretokenizers: [
      ...patterns.map((Regex) => ({ type: 'Split', pattern: { Regex }, behavior: 'Isolated', invert: false })),
      { type: 'ByteLevel', add_prefix_space: false, trim_offsets: false, use_regex: false },
    ],
  };
}

/** Returns `pre_tokenizer` and `model` of tokenizer.json for byte-level BPE. */
export function byteLevelSteps({ keys, kind, tokens, common }: GgufVocabulary) {
  return {
    pre_tokenizer: preTokenizerStep(kind.pre!),
    model: {
      type: 'BPE',
      vocab: Object.fromEntries(tokens.ids),
      merges: readMerges(keys, 'tokenizer.ggml.merges'),
      ignore_merges: kind.pre!.ignoreMerges ?? false,
      // A byte that the vocabulary lacks becomes the unknown token, or is left out without one.
      unk_token: common.unknownToken === undefined ? null : tokens.texts[common.unknownToken]!,
    },
  };
}

function byteLevel(read: GgufVocabulary): Vocabulary {
  const { tokens, common } = read;
  const { texts, ids, types } = tokens;
  const rest = { normalizer: null, post_processor: null, decoder: null, added_tokens: [] };
  const library = new HuggingFaceTokenizer({ ...rest, ...byteLevelSteps(read) } as never, {});
  return {
    ...common,
    stripSpace: false,
    segment: (text) => library.model!(library.pre_tokenizer!(text)).map((token: string) => ids.get(token)!),
    bytesOf(id) {
      const text = texts[id];
      const type = types[id];
      if (text === undefined || type === TYPE.unused) return NOTHING;
      return type === TYPE.normal ? bytesOfByteLevel(text) : utf8.encode(text);
    },
  };
}

/** Returns `model` of tokenizer.json for Gemma 4's BPE, whose pieces are text with marked spaces. */
export function pieceModel({ keys, tokens, common }: GgufVocabulary) {
  return {
    type: 'BPE',
    vocab: Object.fromEntries(tokens.ids),
    merges: readMerges(keys, 'tokenizer.ggml.merges'),
    byte_fallback: true,
    fuse_unk: true,
    ignore_merges: false,
    unk_token: common.unknownToken === undefined ? null : tokens.texts[common.unknownToken]!,
  };
}

function pieceBpe(read: GgufVocabulary): Vocabulary {
  const { tokens, common } = read;
  const { ids } = tokens;
  const rest = { normalizer: null, pre_tokenizer: null, post_processor: null, decoder: null, added_tokens: [] };
  const library = new HuggingFaceTokenizer({ ...rest, model: pieceModel(read) } as never, {});
  return {
    ...common,
    stripSpace: false,
    segment: (text) =>
      (text.replaceAll(' ', SPACE).match(/\n+|[^\n]+/g) ?? []).flatMap((word) => {
        // Lines are apart, and line breaks that are a token together need no merges.
        const whole = word.startsWith('\n') ? ids.get(word) : undefined;
        return whole === undefined ? library.model!([word]).map((token: string) => ids.get(token)!) : [whole];
      }),
    bytesOf: (id) => bytesOfPiece(tokens, id),
  };
}

/** Reads the vocabulary as its tokenizer.json: a word's first part has the mark of a space here, the others `##` there. */
function wordPiece({ keys, tokens, common }: GgufVocabulary): Vocabulary {
  const { texts, types } = tokens;
  const { unknownToken, where } = common;
  if (unknownToken === undefined)
    return keys.fail('FORMAT', 'tokenizer.ggml.unknown_token_id', 'there is no such token');
  const isWord = (id: number): boolean => types[id] === TYPE.normal && !/^\[.*\]$/.test(texts[id]!);
  const own = (text: string, id: number): string =>
    !isWord(id) ? text : text.startsWith(SPACE) ? text.slice(SPACE.length) : `##${text}`;
  const tokenizerJson = {
    normalizer: { type: 'BertNormalizer', clean_text: true, handle_chinese_chars: true, lowercase: true },
    pre_tokenizer: { type: 'BertPreTokenizer' },
    decoder: { type: 'WordPiece', prefix: '##' },
    model: {
      type: 'WordPiece',
      vocab: Object.fromEntries(texts.map((text, id) => [own(text, id), id])),
      unk_token: texts[unknownToken],
      continuing_subword_prefix: '##',
    },
  };
  const inner = tokenizerFromJson({ tokenizerJson }, where);
  return {
    ...common,
    stripSpace: true,
    segment: (text) => inner.encode(text),
    bytesOf: (id) => bytesOfPiece(tokens, id),
  };
}

const BUILD: Readonly<Record<Kind['model'], (read: GgufVocabulary) => Vocabulary>> = {
  llama: sentencePiece,
  t5: unigram,
  gpt2: byteLevel,
  gemma4: pieceBpe,
  bert: wordPiece,
};
