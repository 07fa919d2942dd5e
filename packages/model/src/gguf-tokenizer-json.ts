/**
 * Writes the vocabulary of a GGUF file as tokenizer.json and tokenizer_config.json. Four things cannot be expressed there:
 * - SentencePiece joins pieces of equal score from the left, BPE in the order of merges. Trained vocabularies have no
 *   equal scores; others get a note.
 * - SentencePiece's BPE joins characters that are no pieces. A trained vocabulary has every character of its pieces.
 * - remove_extra_whitespaces trims a text; here it trims the text between added tokens.
 * - HuggingFace's program applies precompiled_charsmap to graphemes, llama.cpp to the longest match (charsmap.ts).
 *
 * @module
 * @see huggingface/transformers@v5.18.0 src/transformers/convert_slow_tokenizer.py, generate_merges and SpmConverter
 * @see huggingface/tokenizers@284a1db tokenizers/src/models/bpe/model.rs, from_json of added_vocabulary.rs
 */
import type { GgufValue } from '@ropewalk/formats';
import { refuse } from 'ropewalk/backend';
import { show } from 'ropewalk/internal';
import { tokenId } from './config.js';
import {
  byteLevelSteps,
  type GgufVocabulary,
  pieceModel,
  readScores,
  readTable,
  readVocabulary,
  TYPE,
} from './gguf-vocabulary.js';
import { SPACE } from './sentencepiece.js';
import { MAX_PIECE } from './unigram.js';

type Json = Record<string, unknown>;

/**
 * The most ways to join two pieces to a third one, for each piece. Llama's and Gemma's vocabularies have two to three.
 */
const MAX_WAYS = 32;

/** The class that takes tokenizer.json as it is. */
export const TOKENIZER_CLASS = 'PreTrainedTokenizerFast';

/** A vocabulary in HuggingFace's form. */
export interface TokenizerJson {
  /** tokenizer.json */
  readonly tokenizer: Json;
  /** tokenizer_config.json, without the chat template. */
  readonly config: Json;
  readonly bosToken: number | undefined;
  /** The tokens that end a turn; the file's own one comes first. */
  readonly eosTokens: readonly number[];
  readonly padToken: number | undefined;
  readonly chatTemplates: ReadonlyMap<string, string>;
  /** Sentences on where the tokens may differ. */
  readonly notes: readonly string[];
}

/**
 * @throws {RopewalkError} as tokenizerFromGguf; FORMAT also for SentencePiece's pieces of more than 1024 characters, or
 *   more than 32 ways a piece to join two others
 */
export function tokenizerJsonFromGguf(
  metadata: ReadonlyMap<string, GgufValue>,
  maxContext: number,
  where: string,
): TokenizerJson {
  const read = readVocabulary(metadata, where);
  const notes: string[] = [];
  const { keys, kind, tokens, common } = read;
  const { texts } = tokens;
  const textOf = (id: number | undefined): string | undefined => (id === undefined ? undefined : texts[id]);
  const padToken = tokenId(keys, 'tokenizer.ggml.padding_token_id');
  const [eos] = common.eosTokens;
  const { prefix, suffix } = common;
  return {
    tokenizer: {
      version: '1.0',
      truncation: null,
      padding: null,
      added_tokens: common.added.map(({ id, content, special, rstrip = false }) => {
        return { id, content, single_word: false, lstrip: false, rstrip, normalized: false, special };
      }),
      ...WRITE[kind.model](read, notes),
      post_processor: templateOf(prefix, suffix, texts),
    },
    config: {
      tokenizer_class: TOKENIZER_CLASS,
      bos_token: textOf(common.bosToken),
      eos_token: textOf(eos),
      unk_token: textOf(common.unknownToken),
      pad_token: textOf(padToken),
      add_bos_token: prefix.length > 0,
      add_eos_token: suffix.length > 0,
      clean_up_tokenization_spaces: false,
      model_max_length: maxContext,
    },
    bosToken: common.bosToken,
    eosTokens: common.eosTokens,
    padToken: textOf(padToken) === undefined ? undefined : padToken,
    chatTemplates: common.chatTemplates,
    notes,
  };
}

/** Writes the post-processor that puts BOS and EOS around a text. */
function templateOf(prefix: readonly number[], suffix: readonly number[], texts: readonly string[]): Json | null {
  const around = [...prefix, ...suffix];
  if (around.length === 0) return null;
  const one = (type_id: number) => {
    const special = (id: number) => ({ SpecialToken: { id: texts[id]!, type_id } });
    const sequence = { Sequence: { id: type_id === 0 ? 'A' : 'B', type_id } };
    return [...prefix.map(special), sequence, ...suffix.map(special)];
  };
  const tokens = around.map((id) => [texts[id]!, { id: texts[id]!, ids: [id], tokens: [texts[id]!] }]);
  return {
    type: 'TemplateProcessing',
    single: one(0),
    pair: [...one(0), ...one(1)],
    special_tokens: Object.fromEntries(tokens),
  };
}

type Steps = Readonly<Record<'normalizer' | 'pre_tokenizer' | 'decoder' | 'model', Json | null>>;

const sequence = (key: string, steps: readonly Json[]): Json => ({ type: 'Sequence', [key]: steps });
const replace = (pattern: Json, content: string): Json => ({ type: 'Replace', pattern, content });
const marksSpaces = replace({ String: ' ' }, SPACE);

/** Any character. HuggingFace's patterns are Ruby's, where ^ and $ match at every line. */
const ANY = '[\\s\\S]';
/** Removes spaces at the end of a text, and writes one for several elsewhere. */
const TRIMMING = [replace({ Regex: ` +(?!${ANY})` }, ''), replace({ Regex: ' {2,}' }, ' ')];

/** Decodes bytes and pieces, and removes the space that was put in front. */
function pieceDecoder(stripSpace: boolean): Json {
  const steps = [replace({ String: SPACE }, ' '), { type: 'ByteFallback' }, { type: 'Fuse' }];
  return sequence('decoders', stripSpace ? [...steps, { type: 'Strip', content: ' ', start: 1, stop: 0 }] : steps);
}

function byteLevel(read: GgufVocabulary): Steps {
  const { pre_tokenizer, model } = byteLevelSteps(read);
  return {
    normalizer: null,
    pre_tokenizer,
    decoder: { type: 'ByteLevel', add_prefix_space: false, trim_offsets: false, use_regex: false },
    model: { ...model, vocab: vocabOf(read, model.merges) },
  };
}

function sentencePiece(read: GgufVocabulary, notes: string[]): Steps {
  const { keys, tokens, common } = read;
  const spaceFirst = keys.optionalFlag('tokenizer.ggml.add_space_prefix') ?? true;
  const trims = keys.flag('tokenizer.ggml.remove_extra_whitespaces');
  const steps: Json[] = spaceFirst ? [{ type: 'Prepend', prepend: trims ? ' ' : SPACE }] : [];
  if (trims) steps.push(...TRIMMING);
  if (trims && !spaceFirst) steps.push(replace({ Regex: `(?<!${ANY}) ` }, ''));
  const merges = mergesOf(read, notes);
  return {
    normalizer: sequence('normalizers', [...steps, marksSpaces]),
    pre_tokenizer: null,
    decoder: pieceDecoder(spaceFirst),
    model: {
      type: 'BPE',
      dropout: null,
      unk_token: common.unknownToken === undefined ? null : tokens.texts[common.unknownToken]!,
      continuing_subword_prefix: null,
      end_of_word_suffix: null,
      fuse_unk: true,
      byte_fallback: true,
      ignore_merges: false,
      vocab: vocabOf(read, merges),
      merges,
    },
  };
}

function pieceBpe(read: GgufVocabulary): Steps {
  const model = pieceModel(read);
  return {
    normalizer: marksSpaces,
    pre_tokenizer: null,
    decoder: pieceDecoder(false),
    model: { ...model, vocab: vocabOf(read, model.merges) },
  };
}

function unigram(read: GgufVocabulary): Steps {
  const { keys, tokens, common } = read;
  const scores = readScores(keys, tokens);
  const spaceFirst = keys.flag('tokenizer.ggml.add_space_prefix');
  const merge = keys.flag('tokenizer.ggml.remove_extra_whitespaces');
  const charsmap = readTable(keys);
  const steps: Json[] = [];
  if (charsmap) steps.push({ type: 'Precompiled', precompiled_charsmap: base64(charsmap) });
  if (merge || spaceFirst) steps.push({ type: 'Prepend', prepend: ' ' });
  if (merge) steps.push(...TRIMMING);
  // The space goes before the first word: a text without words gets none.
  else if (spaceFirst) steps.push(replace({ Regex: `(?<!${ANY}) (?= *(?!${ANY}))` }, ''));
  return {
    normalizer: sequence('normalizers', [...steps, marksSpaces]),
    pre_tokenizer: null,
    decoder: pieceDecoder(spaceFirst),
    model: {
      type: 'Unigram',
      unk_id: common.unknownToken ?? null,
      vocab: tokens.texts.map((text, id) => [text, scores[id]!]),
      byte_fallback: false,
    },
  };
}

function base64(bytes: Uint8Array): string {
  return btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(''));
}

const WRITE: Readonly<Record<GgufVocabulary['kind']['model'], (read: GgufVocabulary, notes: string[]) => Steps>> = {
  llama: sentencePiece,
  t5: unigram,
  gpt2: byteLevel,
  gemma4: pieceBpe,
  bert: ({ keys }) => keys.fail('UNSUPPORTED', 'tokenizer.ggml.model', 'WordPiece is not written in another form yet'),
};

/** Lists tokens and ids, which added tokens share. Unused ones that only fill up a vocabulary are left out. */
function vocabOf({ tokens }: GgufVocabulary, merges: readonly (readonly [string, string])[]): Record<string, number> {
  const { ids, types } = tokens;
  if (!types.includes(TYPE.unused)) return Object.fromEntries(ids);
  const used = new Set(merges.flatMap(([left, right]) => [left, right, left + right]));
  const isWritten = ([text, id]: readonly [string, number]): boolean =>
    types[id] !== TYPE.unused || used.has(text) || Array.from(text).length === 1;
  return Object.fromEntries([...ids].filter(isWritten));
}

/** Lists every way to join two pieces to a third one: the highest score first, then the longer left piece. */
function mergesOf({ keys, tokens }: GgufVocabulary, notes: string[]): [string, string][] {
  const { texts, ids, types } = tokens;
  const scores = readScores(keys, tokens);
  const where = keys.path('tokenizer.ggml.tokens');
  const found: { readonly merge: [string, string]; readonly id: number }[] = [];
  for (const [id, text] of texts.entries()) {
    if (text.length > MAX_PIECE)
      refuse('FORMAT', `${where}[${id}]`, `a piece of at most ${MAX_PIECE} characters`, text.length);
    for (let at = text.length - 1; at > 0; at--) {
      // A cut between the two halves of a character makes no piece.
      if ((text.charCodeAt(at) & 0xfc00) === 0xdc00) continue;
      const left = text.slice(0, at);
      if (!ids.has(left)) continue;
      const right = text.slice(at);
      if (ids.has(right)) found.push({ merge: [left, right], id });
    }
    const most = `at most ${MAX_WAYS} ways a piece to join two others`;
    if (found.length > MAX_WAYS * texts.length) refuse('FORMAT', where, most, found.length, 'The file is forged.');
  }
  // Sorting is stable: of one piece's ways, the longer left one stays first.
  found.sort((a, b) => scores[b.id]! - scores[a.id]!);
  // Other tokens are cut out of a text before it is joined.
  const joined = found.filter(({ id }) => types[id] === TYPE.normal);
  const tie = joined.find(({ id }, n) => {
    const next = joined[n + 1]?.id;
    return next !== undefined && next !== id && scores[next] === scores[id];
  });
  if (tie) {
    const piece = show(texts[tie.id]);
    notes.push(`tokenizer.json joins pieces of the same score, such as ${piece}, in another order than the GGUF file.`);
  }
  return found.map(({ merge }) => merge);
}
