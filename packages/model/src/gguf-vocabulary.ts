/**
 * The vocabulary in a GGUF header: `tokenizer.ggml.*`.
 *
 * "llama" is SentencePiece by scores, segmented by sentencepiece.ts. "gpt2" is byte-level BPE with merges, segmented by
 * the library of tokenizer-json.ts. What a key means, and what holds without it, is llama.cpp's rule: the page of the
 * format leaves most of it open.
 *
 * @module
 * @see ggml-org/llama.cpp@00ad355 src/llama-vocab.cpp
 */
import { Tokenizer as HuggingFaceTokenizer } from '@huggingface/tokenizers';
import type { GgufValue } from '@ropewalk/formats';
import { Fields, fail, reading, refuse, show } from 'ropewalk/backend';
import { checkTypes } from './arguments.js';
import { tokenId } from './config.js';
import { segmentByScores } from './sentencepiece.js';
import {
  type AddedToken,
  byteOfToken,
  bytesOfByteLevel,
  checkTemplateLength,
  MAX_VOCABULARY,
  readMerges,
  tokenizerOf,
  type Vocabulary,
} from './tokenizer.js';
import type { Tokenizer } from './types.js';

/** Token types of GGUF, SentencePiece's own numbers. */
const TYPE = { normal: 1, unknown: 2, control: 3, userDefined: 4, unused: 5, byte: 6 } as const;

/** How text is cut before merges, by `tokenizer.ggml.pre`. Each pattern cuts what the patterns before it have left. */
interface PreTokenizer {
  readonly patterns: readonly string[];
  /** Whether a word that is a token is taken as it is, without merging. */
  readonly ignoreMerges?: boolean;
  /** Whether BOS comes before a text if the file does not say. */
  readonly addBos?: boolean;
}

const CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)";
const GPT2 = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)";
const SPACES = '\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+';
/** The pattern of GPT-4 and its children. They differ in how many digits, and which marks, stay together. */
const gpt4 = (digits: string, letter = '\\p{L}', notOther = '\\p{L}'): string =>
  `${CONTRACTIONS}|[^\\r\\n\\p{L}\\p{N}]?${letter}+|\\p{N}${digits}| ?[^\\s${notOther}\\p{N}]+[\\r\\n]*|${SPACES}`;
/** Splits where case changes. As in the models' tokenizer.json; llama.cpp writes the same with look-aheads. */
const mixedCase = (after: string, digits: string): string => {
  const upper = '[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]';
  const lower = '[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]';
  const start = '[^\\r\\n\\p{L}\\p{N}]?';
  const words = `${start}${upper}*${lower}+${after}|${start}${upper}+${lower}*${after}`;
  return `${words}|\\p{N}${digits}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|${SPACES}`;
};

const DEFAULT: PreTokenizer = { patterns: ['[\\p{P}\\$\\+<=>\\^~\\|]+', GPT2, '\\p{N}+', '[0-9][0-9][0-9]'] };

/** llama.cpp's table: the names of each row, and the row. */
const PRE_TOKENIZERS: readonly (readonly [names: string, row: PreTokenizer])[] = [
  ['default', DEFAULT],
  [
    'llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2',
    { patterns: [gpt4('{1,3}')], ignoreMerges: true, addBos: true },
  ],
  ['dbrx smaug-bpe chatglm-bpe glm4', { patterns: [gpt4('{1,3}')] }],
  ['qwen2 deepseek-r1-qwen kormo f2llmv2 megrez stablelm2 hunyuan grok-2', { patterns: [gpt4('')] }],
  ['qwen35', { patterns: [gpt4('', '[\\p{L}\\p{M}]', '\\p{L}\\p{M}')] }],
  ['gpt-2 phi-2 gigachat a.x-4.0 mellum mpt olmo jais exaone4 trillion', { patterns: [GPT2] }],
  ['smollm starcoder refact command-r codeshell exaone minerva-7b mellum2', { patterns: ['\\p{N}', GPT2] }],
  ['deepseek-coder', { patterns: ['[\\r\\n]', '\\s?\\p{L}+', '\\s?\\p{P}+', '[一-龥ࠀ-一가-\u{d7ff}]+', '\\p{N}'] }],
  ['falcon', { patterns: ['[\\p{P}\\$\\+<=>\\^~\\|`]+', GPT2, '[0-9][0-9][0-9]'] }],
  ['tekken', { patterns: [mixedCase('', '')], ignoreMerges: true, addBos: true }],
  ['gpt-4o llama4', { patterns: [mixedCase(`${CONTRACTIONS}?`, '{1,3}')] }],
];

/** Tokens that end a turn, by their text. Files rarely name more than one of them by id. */
const END_TEXTS: readonly string[] = [
  ...['</s>', '<eos>', '[EOS]', '<EOT>', '_<EOT>', '[EOT]', '<|endoftext|>', '<|end_of_text|>', '<end_of_utterance>'],
  ...['<|im_end|>', '<|eot_id|>', '<|eom_id|>', '<|end|>', '<|return|>', '<|call|>', '<end_of_turn>'],
  '<｜end▁of▁sentence｜>',
];

/**
 * Reads the vocabulary of a GGUF file.
 *
 * @param metadata - of parseGguf
 * @param where - the file's name in messages
 * @returns a tokenizer
 * @throws {RopewalkError} FORMAT for a key that is missing, of the wrong type or size; UNSUPPORTED for a vocabulary
 *   other than llama and gpt2, or an unknown pre-tokenizer
 * @example const tokenizer = tokenizerFromGguf(parseGguf(bytes).metadata);
 */
export function tokenizerFromGguf(metadata: ReadonlyMap<string, GgufValue>, where = 'gguf'): Tokenizer {
  checkTypes({ where }, 'string', 'tokenizerFromGguf');
  if (!reading('tokenizerFromGguf: metadata', () => metadata instanceof Map))
    refuse('RANGE', 'tokenizerFromGguf: metadata', 'a Map, such as the metadata of parseGguf', metadata);
  const keys: Fields = new Fields(metadata, where);
  const model = keys.text('tokenizer.ggml.model');
  if (model !== 'llama' && model !== 'gpt2') keys.refuse('UNSUPPORTED', 'tokenizer.ggml.model', 'llama or gpt2');
  const tokens = readTokens(keys);
  const common = readCommon(keys, tokens);
  return tokenizerOf(model === 'llama' ? sentencePiece(keys, tokens, common) : byteLevel(keys, tokens, common));
}

interface Tokens {
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
    // An empty text would be found everywhere; llama.cpp gives it this name too.
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

/** What is read in the same way for both kinds of vocabulary. */
type Common = Pick<
  Vocabulary,
  'where' | 'size' | 'textOf' | 'special' | 'added' | 'bosToken' | 'eosTokens' | 'chatTemplates'
> & {
  readonly eosToken: number | undefined;
  readonly unknownToken: number | undefined;
};

function readCommon(keys: Fields, { texts, ids, types }: Tokens): Common {
  const idOf = (name: string): number | undefined => {
    // llama.cpp ignores an id past the end of the vocabulary, which hides a broken file.
    const key = `tokenizer.ggml.${name}_token_id`;
    const id = tokenId(keys, key);
    if (id !== undefined && id >= texts.length) keys.refuse('FORMAT', key, `an id in [0, ${texts.length})`);
    return id;
  };
  const eosToken = idOf('eos');
  const ends = [eosToken, idOf('eot'), idOf('eom'), ...END_TEXTS.map((text) => ids.get(text))];
  // In the harmony format <|end|> ends a message, but not the turn.
  const harmony = ids.has('<|return|>') && ids.has('<|call|>') ? ids.get('<|end|>') : undefined;
  const special = new Set<number>();
  const added: AddedToken[] = [];
  for (const [id, text] of texts.entries()) {
    const type = types[id];
    // Some converters write the ends of turns as user-defined or normal tokens; here they are control tokens.
    const isSpecial = type === TYPE.control || type === TYPE.unknown || END_TEXTS.includes(text);
    if (isSpecial) special.add(id);
    if (isSpecial || type === TYPE.userDefined) added.push({ id, content: text, special: isSpecial });
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
    bosToken: idOf('bos'),
    eosTokens: [...new Set(ends)].filter((id) => id !== undefined && id !== harmony) as number[],
    chatTemplates,
    eosToken,
    unknownToken: idOf('unknown'),
  };
}

/** BOS and EOS around a text: what the file says, otherwise what its kind of vocabulary does. */
function around(
  keys: Fields,
  { bosToken, eosToken }: Common,
  bosByDefault: boolean,
): { prefix: number[]; suffix: number[] } {
  const addBos = keys.optionalFlag('tokenizer.ggml.add_bos_token');
  const addEos = keys.flag('tokenizer.ggml.add_eos_token');
  const missing = (name: string): never =>
    keys.fail('FORMAT', `tokenizer.ggml.${name}_token_id`, `it is missing, but add_${name}_token is true`);
  if (addBos && bosToken === undefined) missing('bos');
  if (addEos && eosToken === undefined) missing('eos');
  return {
    prefix: (addBos ?? bosByDefault) && bosToken !== undefined ? [bosToken] : [],
    suffix: addEos && eosToken !== undefined ? [eosToken] : [],
  };
}

const SPACE = '▁'; // U+2581
const NOTHING = new Uint8Array(0);
const utf8 = /* @__PURE__ */ new TextEncoder();

function sentencePiece(keys: Fields, tokens: Tokens, common: Common): Vocabulary {
  const { texts, ids, types } = tokens;
  const list = keys.optionalNumbers('tokenizer.ggml.scores') ?? texts.map(() => 0);
  checkCount(keys, 'tokenizer.ggml.scores', list, texts.length, 'scores');
  const scores = Float32Array.from(list);
  const bytes = Array.from({ length: 256 }, (_byte, byte) => {
    const name = `<0x${byte.toString(16).toUpperCase().padStart(2, '0')}>`;
    return ids.get(name) ?? ids.get(String.fromCharCode(byte)) ?? common.unknownToken;
  });
  const scored = {
    idOf: (text: string) => ids.get(text),
    scoreOf: (id: number) => scores[id]!,
    byteToken: (byte: number) => {
      const sentence = `there is no token for byte ${byte}, and no unknown token`;
      return bytes[byte] ?? keys.fail('FORMAT', 'tokenizer.ggml.tokens', sentence);
    },
  };
  const spaceFirst = keys.optionalFlag('tokenizer.ggml.add_space_prefix') ?? true;
  const trim = keys.flag('tokenizer.ggml.remove_extra_whitespaces');
  return {
    ...common,
    ...around(keys, common, true),
    stripSpace: spaceFirst,
    // SentencePiece's rule. llama.cpp reads the key, but does not apply it to this kind of vocabulary.
    prepare: trim ? (text) => text.replace(/ {2,}/g, ' ').replace(/^ | $/g, '') : undefined,
    // The space comes at the start of the text and after every added token: each begins a stretch.
    segment: (text) => segmentByScores((spaceFirst ? ` ${text}` : text).replaceAll(' ', SPACE), scored),
    bytesOf(id) {
      const text = texts[id];
      const type = types[id];
      if (text === undefined || type === TYPE.unused) return NOTHING;
      if (type === TYPE.byte) {
        const byte = byteOfToken(text);
        if (byte !== undefined) return Uint8Array.of(byte);
      }
      return utf8.encode(type === TYPE.normal ? text.replaceAll(SPACE, ' ') : text);
    },
  };
}

function byteLevel(keys: Fields, tokens: Tokens, common: Common): Vocabulary {
  const { texts, ids, types } = tokens;
  const name = keys.optionalText('tokenizer.ggml.pre') || 'default';
  const pre = PRE_TOKENIZERS.find(([names]) => names.split(' ').includes(name))?.[1];
  if (!pre) {
    const next = 'Load the model from its HuggingFace files, whose tokenizer.json says how text is cut.';
    return keys.fail('UNSUPPORTED', 'tokenizer.ggml.pre', `${show(name)} is not known. ${next}`);
  }
  const merges = readMerges(keys, 'tokenizer.ggml.merges');
  // A byte that the vocabulary lacks becomes the unknown token, or is left out if there is none.
  const unknown = common.unknownToken === undefined ? null : texts[common.unknownToken];
  const library = new HuggingFaceTokenizer(
    {
      normalizer: null,
      pre_tokenizer: {
        type: 'Sequence',
        pretokenizers: [
          ...pre.patterns.map((Regex) => ({ type: 'Split', pattern: { Regex }, behavior: 'Isolated', invert: false })),
          { type: 'ByteLevel', add_prefix_space: false, trim_offsets: false, use_regex: false },
        ],
      },
      post_processor: null,
      decoder: null,
      added_tokens: [],
      model: {
        type: 'BPE',
        vocab: Object.fromEntries(ids),
        merges,
        ignore_merges: pre.ignoreMerges ?? false,
        unk_token: unknown,
      },
    },
    {},
  );
  return {
    ...common,
    ...around(keys, common, pre.addBos ?? false),
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
