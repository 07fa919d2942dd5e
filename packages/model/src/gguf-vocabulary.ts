/**
 * The vocabulary in a GGUF header: `tokenizer.ggml.*`.
 *
 * "llama" is SentencePiece by scores, done by sentencepiece.ts. "gpt2" is byte-level BPE with merges; it becomes the object
 * that a tokenizer.json would hold, for @huggingface/tokenizers. What a key means, and what holds where it is missing, is
 * llama.cpp's: the format's own page leaves most of it open.
 *
 * @module
 * @see ggml-org/llama.cpp@00ad355 src/llama-vocab.cpp
 */
import { Tokenizer as HuggingFaceTokenizer } from '@huggingface/tokenizers';
import type { GgufValue } from '@ropewalk/formats';
import { Fields, reading, refuse } from 'ropewalk/backend';
import { checkTypes } from './arguments.js';
import { segmentByScores } from './sentencepiece.js';
import {
  type AddedToken,
  byteOfToken,
  bytesOfByteLevel,
  MAX_MERGES,
  MAX_TEMPLATE_CHARS,
  MAX_VOCABULARY,
  splitMerge,
  tokenizerOf,
  type Vocabulary,
} from './tokenizer.js';
import type { Tokenizer } from './types.js';

/** Token types of GGUF, SentencePiece's own numbers. */
const TYPE = { normal: 1, unknown: 2, control: 3, userDefined: 4, unused: 5, byte: 6 } as const;

const CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)";
const GPT2 = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)";
/** GPT-4's pattern and its children: they differ in how many digits, and which marks, stay together. */
const gpt4 = (digits: string, letters = '\\p{L}', notOther = '\\p{L}'): string =>
  `${CONTRACTIONS}|[^\\r\\n\\p{L}\\p{N}]?${letters === '\\p{L}' ? '\\p{L}' : `[${letters}]`}+|\\p{N}${digits}| ?[^\\s${notOther}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+`;

/** How text is cut before merges, by `tokenizer.ggml.pre`: each pattern cuts what the one before left. */
interface PreTokenizer {
  readonly patterns: readonly string[];
  /** A word that is a token as it stands is not merged anew. */
  readonly ignoreMerges?: boolean;
  /** BOS goes before a text unless the file says otherwise. */
  readonly addBos?: boolean;
}

const LLAMA3: PreTokenizer = { patterns: [gpt4('{1,3}')], ignoreMerges: true, addBos: true };
const QWEN2: PreTokenizer = { patterns: [gpt4('')] };
const DIGITS_THEN_GPT2: PreTokenizer = { patterns: ['\\p{N}', GPT2] };
const GPT2_ALONE: PreTokenizer = { patterns: [GPT2] };
const DEFAULT: PreTokenizer = { patterns: ['[\\p{P}\\$\\+<=>\\^~\\|]+', GPT2, '\\p{N}+', '[0-9][0-9][0-9]'] };
/** Words of one case after another, as tokenizer.json of these models has it; llama.cpp writes it with look-aheads. */
const MIXED_CASE = (after: string, digits: string): string => {
  const upper = '[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]';
  const lower = '[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]';
  const start = '[^\\r\\n\\p{L}\\p{N}]?';
  return `${start}${upper}*${lower}+${after}|${start}${upper}+${lower}*${after}|\\p{N}${digits}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+`;
};

/** Facts from llama.cpp's table; names that share a row there share one here. */
const PRE_TOKENIZERS: Readonly<Record<string, PreTokenizer>> = {
  default: DEFAULT,
  'llama-bpe': LLAMA3,
  llama3: LLAMA3,
  'llama-v3': LLAMA3,
  falcon3: LLAMA3,
  'falcon-h1': LLAMA3,
  pixtral: LLAMA3,
  'midm-2.0': LLAMA3,
  lfm2: LLAMA3,
  dbrx: { patterns: [gpt4('{1,3}')] },
  'smaug-bpe': { patterns: [gpt4('{1,3}')] },
  'chatglm-bpe': { patterns: [gpt4('{1,3}')] },
  glm4: { patterns: [gpt4('{1,3}')] },
  qwen2: QWEN2,
  'deepseek-r1-qwen': QWEN2,
  kormo: QWEN2,
  f2llmv2: QWEN2,
  megrez: QWEN2,
  stablelm2: QWEN2,
  hunyuan: QWEN2,
  'grok-2': QWEN2,
  qwen35: { patterns: [gpt4('', '\\p{L}\\p{M}', '\\p{L}\\p{M}')] },
  'gpt-2': GPT2_ALONE,
  'phi-2': GPT2_ALONE,
  gigachat: GPT2_ALONE,
  'a.x-4.0': GPT2_ALONE,
  mellum: GPT2_ALONE,
  mpt: GPT2_ALONE,
  olmo: GPT2_ALONE,
  jais: GPT2_ALONE,
  exaone4: GPT2_ALONE,
  trillion: GPT2_ALONE,
  smollm: DIGITS_THEN_GPT2,
  starcoder: DIGITS_THEN_GPT2,
  refact: DIGITS_THEN_GPT2,
  'command-r': DIGITS_THEN_GPT2,
  codeshell: DIGITS_THEN_GPT2,
  exaone: DIGITS_THEN_GPT2,
  'minerva-7b': DIGITS_THEN_GPT2,
  mellum2: DIGITS_THEN_GPT2,
  'deepseek-coder': { patterns: ['[\\r\\n]', '\\s?\\p{L}+', '\\s?\\p{P}+', '[一-龥ࠀ-一가-\u{d7ff}]+', '\\p{N}'] },
  falcon: { patterns: ['[\\p{P}\\$\\+<=>\\^~\\|`]+', GPT2, '[0-9][0-9][0-9]'] },
  tekken: { patterns: [MIXED_CASE('', '')], ignoreMerges: true, addBos: true },
  'gpt-4o': { patterns: [MIXED_CASE(`${CONTRACTIONS}?`, '{1,3}')] },
  llama4: { patterns: [MIXED_CASE(`${CONTRACTIONS}?`, '{1,3}')] },
};

/** Tokens that end a turn, by their text: files seldom name more than one of them by id. */
const END_TEXTS: readonly string[] = [
  ...['</s>', '<eos>', '[EOS]', '<EOT>', '_<EOT>', '[EOT]', '<|endoftext|>', '<|end_of_text|>', '<end_of_utterance>'],
  ...[
    '<|im_end|>',
    '<|eot_id|>',
    '<|eom_id|>',
    '<|end|>',
    '<|return|>',
    '<|call|>',
    '<end_of_turn>',
    '<｜end▁of▁sentence｜>',
  ],
];

/**
 * Reads the vocabulary of a GGUF file.
 *
 * @param metadata - of parseGguf
 * @param where - names the file in messages
 * @throws {RopewalkError} FORMAT for a key that is missing, of the wrong type or size; UNSUPPORTED for a vocabulary other than
 *   llama and gpt2, or a pre-tokenizer that is not known
 */
export function tokenizerFromGguf(metadata: ReadonlyMap<string, GgufValue>, where = 'gguf'): Tokenizer {
  checkTypes({ where }, 'string', 'tokenizerFromGguf');
  if (!reading('tokenizerFromGguf: metadata', () => metadata instanceof Map))
    refuse('RANGE', 'tokenizerFromGguf: metadata', 'a Map, as of parseGguf', metadata);
  const keys = new Fields(metadata, where);
  const model = keys.text('tokenizer.ggml.model');
  if (model !== 'llama' && model !== 'gpt2') {
    refuse(
      'UNSUPPORTED',
      keys.path('tokenizer.ggml.model'),
      'llama or gpt2',
      model,
      'The Llama and Qwen families use these two.',
    );
  }
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
  const list = keys.need(keys.optionalList(key), key, 'a list of texts');
  if (list.length === 0 || list.length > MAX_VOCABULARY)
    refuse('FORMAT', keys.path(key), `1 to ${MAX_VOCABULARY} tokens`, list.length);
  const ids = new Map<string, number>();
  const texts = list.map((token, id) => {
    if (typeof token !== 'string') refuse('FORMAT', `${keys.path(key)}[${id}]`, 'a string', token);
    // An empty text would be found everywhere; llama.cpp gives it this name too.
    const text = token === '' ? `[EMPTY_${id}]` : token;
    const other = ids.get(text);
    if (other !== undefined) refuse('FORMAT', `${keys.path(key)}[${id}]`, `a text other than token ${other}'s`, text);
    ids.set(text, id);
    return text;
  });
  const types = keys.has('tokenizer.ggml.token_type')
    ? keys.integers('tokenizer.ggml.token_type', 0, 255)
    : texts.map(() => TYPE.normal);
  if (types.length < texts.length) {
    refuse('FORMAT', keys.path('tokenizer.ggml.token_type'), `${texts.length} types, one a token`, types.length);
  }
  return { texts, ids, types };
}

/** What both kinds of vocabulary say alike. */
type Common = Pick<
  Vocabulary,
  'where' | 'size' | 'textOf' | 'special' | 'added' | 'bosToken' | 'eosTokens' | 'chatTemplates'
> & {
  readonly unknownToken: number | undefined;
};

function readCommon(keys: Fields, { texts, ids, types }: Tokens): Common {
  const idOf = (name: string): number | undefined => {
    // A file made by hand may point past its vocabulary; llama.cpp ignores such an id, which hides a broken file.
    const value = keys.optionalInteger(`tokenizer.ggml.${name}_token_id`, 0, 2 ** 32 - 1);
    if (value === 2 ** 32 - 1) return undefined; // "none", as C writes it
    if (value !== undefined && value >= texts.length) {
      refuse('FORMAT', keys.path(`tokenizer.ggml.${name}_token_id`), `an id in [0, ${texts.length})`, value);
    }
    return value;
  };
  const ends = [idOf('eos'), idOf('eot'), idOf('eom')].filter((id) => id !== undefined);
  for (const text of END_TEXTS) {
    const id = ids.get(text);
    if (id !== undefined) ends.push(id);
  }
  // In the harmony format <|end|> ends a message, and the turn goes on.
  const harmony = ids.has('<|return|>') && ids.has('<|call|>') ? ids.get('<|end|>') : undefined;
  const special = new Set<number>();
  const added: AddedToken[] = [];
  for (const [id, text] of texts.entries()) {
    const type = types[id];
    // Converters have written the ends of turns as user-defined or normal; they are control tokens whatever the file says.
    const isSpecial = type === TYPE.control || type === TYPE.unknown || END_TEXTS.includes(text);
    if (isSpecial) special.add(id);
    if (isSpecial || type === TYPE.userDefined) added.push({ id, content: text, special: isSpecial });
  }
  const chatTemplates = new Map<string, string>();
  for (const key of keys.keys()) {
    const name = key === 'tokenizer.chat_template' ? 'default' : /^tokenizer\.chat_template\.(.+)$/.exec(key)?.[1];
    if (name === undefined) continue;
    const template = keys.text(key);
    if (template.length > MAX_TEMPLATE_CHARS)
      refuse('FORMAT', keys.path(key), `at most ${MAX_TEMPLATE_CHARS} characters`, template.length);
    chatTemplates.set(name, template);
  }
  return {
    where: keys.where,
    size: texts.length,
    textOf: (id) => texts[id],
    special,
    added,
    bosToken: idOf('bos'),
    eosTokens: [...new Set(ends)].filter((id) => id !== harmony),
    chatTemplates,
    unknownToken: idOf('unknown'),
  };
}

/** BOS and EOS around a text: what the file says, else what its kind does. */
function around(keys: Fields, common: Common, bosByDefault: boolean): { prefix: number[]; suffix: number[] } {
  const eos = keys.optionalInteger('tokenizer.ggml.eos_token_id', 0, 2 ** 32 - 1);
  const withBos = keys.optionalFlag('tokenizer.ggml.add_bos_token');
  const withEos = keys.optionalFlag('tokenizer.ggml.add_eos_token') ?? false;
  if (withBos && common.bosToken === undefined) {
    refuse('FORMAT', keys.path('tokenizer.ggml.bos_token_id'), 'an id, since add_bos_token is true', undefined);
  }
  if (withEos && eos === undefined)
    refuse('FORMAT', keys.path('tokenizer.ggml.eos_token_id'), 'an id, since add_eos_token is true', undefined);
  return {
    prefix: (withBos ?? bosByDefault) && common.bosToken !== undefined ? [common.bosToken] : [],
    suffix: withEos && eos !== undefined ? [eos] : [],
  };
}

const SPACE = '▁'; // U+2581
const NOTHING = new Uint8Array(0);
const utf8 = /* @__PURE__ */ new TextEncoder();

function sentencePiece(keys: Fields, tokens: Tokens, common: Common): Vocabulary {
  const { texts, ids, types } = tokens;
  const list = keys.optionalNumbers('tokenizer.ggml.scores');
  if (list && list.length < texts.length) {
    refuse('FORMAT', keys.path('tokenizer.ggml.scores'), `${texts.length} scores, one a token`, list.length);
  }
  const scores = Float32Array.from(list ?? texts.map(() => 0));
  const bytes: (number | undefined)[] = Array.from({ length: 256 }, (_, byte) => {
    const name = `<0x${byte.toString(16).toUpperCase().padStart(2, '0')}>`;
    return ids.get(name) ?? ids.get(String.fromCharCode(byte)) ?? common.unknownToken;
  });
  const scored = {
    idOf: (text: string) => ids.get(text),
    scoreOf: (id: number) => scores[id]!,
    byteToken: (byte: number) =>
      bytes[byte] ??
      refuse(
        'FORMAT',
        keys.path('tokenizer.ggml.tokens'),
        'a token for each byte, or an unknown token',
        `none for byte ${byte}`,
      ),
  };
  const spaceFirst = keys.optionalFlag('tokenizer.ggml.add_space_prefix') ?? true;
  const trim = keys.flag('tokenizer.ggml.remove_extra_whitespaces');
  // Every stretch of text starts the text or follows a token found in it, and both get the space.
  return {
    ...common,
    ...around(keys, common, true),
    stripSpace: spaceFirst,
    // SentencePiece's rule; llama.cpp reads the key and leaves it to its other tokenizers.
    ...(trim ? { prepare: (text: string) => text.replace(/ {2,}/g, ' ').replace(/^ | $/g, '') } : {}),
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
  const name = keys.optionalText('tokenizer.ggml.pre');
  const pre =
    name === undefined || name === ''
      ? DEFAULT
      : Object.hasOwn(PRE_TOKENIZERS, name)
        ? PRE_TOKENIZERS[name]
        : undefined;
  if (!pre) {
    const next = 'Load the model from its HuggingFace files, whose tokenizer.json says how text is cut.';
    refuse(
      'UNSUPPORTED',
      keys.path('tokenizer.ggml.pre'),
      `one of ${Object.keys(PRE_TOKENIZERS).slice(0, 6).join(', ')}, …`,
      name,
      next,
    );
  }
  const key = 'tokenizer.ggml.merges';
  const list = keys.need(keys.optionalList(key), key, 'a list of texts');
  if (list.length > MAX_MERGES) refuse('FORMAT', keys.path(key), `at most ${MAX_MERGES} merges`, list.length);
  const merges = list.map(
    (merge, n) =>
      (typeof merge === 'string' ? splitMerge(merge) : undefined) ??
      refuse('FORMAT', `${keys.path(key)}[${n}]`, 'two texts with a space between them', merge),
  );
  // What no token covers, a byte that the vocabulary lacks, becomes the unknown token where there is one, and is left out else.
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
    segment(text) {
      const found: number[] = [];
      for (const token of library.model!(library.pre_tokenizer!(text))) found.push(ids.get(token)!);
      return found;
    },
    bytesOf(id) {
      const text = texts[id];
      const type = types[id];
      if (text === undefined || type === TYPE.unused) return NOTHING;
      return type === TYPE.normal ? bytesOfByteLevel(text) : utf8.encode(text);
    },
  };
}
