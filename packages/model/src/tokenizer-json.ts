/** Reads HuggingFace's tokenizer.json. @huggingface/tokenizers merges words (BPE, WordPiece); the other steps are ours. @module */
import { Tokenizer as HuggingFaceTokenizer } from '@huggingface/tokenizers';
import { fail, refuse } from 'ropewalk/backend';
import { Fields, type OptionNames, readOptions } from 'ropewalk/internal';
import { checkTypes } from './arguments.js';
import { cutterOf } from './safe-cuts.js';
import { SPACE } from './sentencepiece.js';
import {
  AddedFinder,
  type AddedToken,
  byteOfToken,
  bytesOfByteLevel,
  checkTemplateLength,
  MAX_VOCABULARY,
  type Place,
  readMerges,
  tokenizerOf,
  tokenOfByte,
} from './tokenizer.js';
import { quietly, readSteps } from './tokenizer-steps.js';
import type { Tokenizer } from './types.js';
import { UNKNOWN_PENALTY, unigramOf } from './unigram.js';

/** Gemma has 6,415 added tokens. */
const MAX_ADDED = 2 ** 17;
/** HuggingFace's files, parsed as JSON. */
export interface TokenizerFiles {
  /** tokenizer.json */
  readonly tokenizerJson: unknown;
  /** tokenizer_config.json, which has BOS, EOS and the chat template. Without it nothing is added to a text. */
  readonly tokenizerConfig?: unknown;
  /** The text of chat_template.jinja. It replaces the template in tokenizer_config.json, as in transformers. */
  readonly chatTemplate?: string;
}

const NAMES: OptionNames<TokenizerFiles> = { tokenizerJson: true, tokenizerConfig: true, chatTemplate: true };

/**
 * Reads HuggingFace's tokenizer.json.
 *
 * `add_bos_token` and `add_eos_token` of tokenizer_config.json say whether BOS and EOS are put around a text; where
 * they are missing, the template of the post-processor does.
 *
 * @param given - the files, parsed by parseJson
 * @param where - the file's name in messages
 * @returns a tokenizer
 * @throws {RopewalkError} FORMAT for a field of the wrong type or size; UNSUPPORTED for a model other than BPE,
 *   WordPiece and Unigram, or a decoder that is neither theirs nor SentencePiece's
 * @example const tokenizer = tokenizerFromJson({ tokenizerJson: parseJson(bytes, 'tokenizer.json') });
 */
export function tokenizerFromJson(given: TokenizerFiles, where = 'tokenizer.json'): Tokenizer {
  const { tokenizerJson, tokenizerConfig, chatTemplate } = readOptions(given, 'tokenizerFromJson: files', NAMES);
  checkTypes({ where, chatTemplate }, 'string', 'tokenizerFromJson');
  const root = new Fields(tokenizerJson, where);
  const config = new Fields(tokenizerConfig ?? {}, where.replace(/tokenizer\.json$/, 'tokenizer_config.json'));
  const model: Fields = root.object('model');
  const added = readAdded(root);
  const { ids, tokensOf } = readModel(model, added);
  const texts = new Map<number, string>();
  for (const [text, id] of ids) texts.set(id, text);
  for (const { id, content } of added) texts.set(id, content);
  let size = 0;
  for (const id of texts.keys()) size = Math.max(size, id + 1);

  const decoder = readDecoder(root);
  const steps = readSteps(root);

  // A token that is `normalized` is looked for in the normalized text, in its own normalized form.
  const normalize = (text: string): string => steps.normalize?.(text) ?? text;
  const normalized = added.filter((token) => token.normalized && steps.normalize);
  const forms = quietly(where, () => normalized.map((token) => ({ ...token, content: normalize(token.content) })));
  const found = forms.filter(({ content }) => content !== '');
  const all = new AddedFinder(found);
  const textOnly = new AddedFinder(found.filter(({ special }) => !special));

  const segment = (text: string, { section, parseSpecial }: Place): number[] => {
    const tokens: number[] = [];
    for (const part of (parseSpecial ? all : textOnly).split(normalize(text))) {
      if (typeof part === 'number') tokens.push(part);
      // A spread would fail: a book has more tokens than a call may have arguments.
      else if (part !== '') for (const id of tokensOf(steps.split(part, section))) tokens.push(id);
    }
    return tokens;
  };

  const addedIds = new Set(added.map(({ id }) => id));
  const bos = namedToken(config, 'bos_token', ids, added);
  const eos = namedToken(config, 'eos_token', ids, added);
  const around = readPostProcessor(root, size);
  return tokenizerOf({
    where,
    size,
    textOf: (id) => texts.get(id),
    bytesOf(id) {
      const text = texts.get(id);
      return text === undefined ? new Uint8Array(0) : decoder.bytes(text, addedIds.has(id));
    },
    special: new Set(added.filter(({ special }) => special).map(({ id }) => id)),
    added: added.filter((token) => !normalized.includes(token)),
    // The library notices some mistakes of a file only when it runs.
    segment: (text, place) => quietly(where, () => segment(text, place)),
    bosToken: bos,
    eosTokens: eos === undefined ? [] : [eos],
    prefix: withRule(around.prefix, bos, config.optionalFlag('add_bos_token'), 'start'),
    suffix: withRule(around.suffix, eos, config.optionalFlag('add_eos_token'), 'end'),
    stripSpace: decoder.stripSpace,
    chatTemplates: readTemplates(config, chatTemplate),
  });
}

/** A vocabulary, and the way from words to its tokens. */
interface Model {
  readonly ids: ReadonlyMap<string, number>;
  tokensOf(words: readonly string[]): number[];
}

function readModel(model: Fields, added: readonly AddedToken[]): Model {
  const type = model.optionalText('type') ?? (model.has('merges') ? 'BPE' : undefined);
  if (type === 'Unigram') return readUnigram(model, added);
  if (type !== 'BPE' && type !== 'WordPiece')
    model.refuse('UNSUPPORTED', 'type', 'BPE, WordPiece or Unigram', 'Other models are not read.');
  const ids = readVocab(model);
  const words = type === 'WordPiece';
  if (words && !ids.has(model.text('unk_token'))) model.refuse('FORMAT', 'unk_token', 'a token of the vocabulary');
  if (words) model.text('continuing_subword_prefix');
  // The time of a word grows with the square of its length.
  model.optionalInteger('max_input_chars_per_word', 1, 1000);
  const merges = words ? [] : readMerges(model, 'merges');
  const library = quietly(model.where, () => {
    const fields = Object.fromEntries(model.keys().map((key) => [key, model.raw(key)]));
    const own = { ...fields, type, vocab: Object.fromEntries(ids), merges };
    const rest = { added_tokens: [], normalizer: null, pre_tokenizer: null, post_processor: null, decoder: null };
    return new HuggingFaceTokenizer({ ...rest, model: own } as never, {});
  });
  // These settings change the ends of a word, or a word as a whole, so a part of a word cannot be segmented alone.
  const whole =
    words ||
    model.flag('ignore_merges') ||
    ['end_of_word_suffix', 'continuing_subword_suffix'].some((key) => model.optionalText(key));
  const cut = whole ? (word: string) => [word] : cutterOf(merges);
  const unknown = model.optionalText('unk_token');
  const unknownId = unknown && (ids.get(unknown) ?? added.find(({ content }) => content === unknown)?.id);
  return {
    ids,
    tokensOf: (words) =>
      library.model!(words.flatMap(cut))
        .map((token: string) => ids.get(token) ?? unknownId)
        .filter((id: number | undefined) => id !== undefined),
  };
}

function readUnigram(model: Fields, added: readonly AddedToken[]): Model {
  const list = model.need(model.optionalList('vocab'), 'vocab', 'a list of pieces and scores');
  checkSize(model, list.length);
  const ids = new Map<string, number>();
  let lowest = Infinity;
  const pieces = list.map((entry, id) => {
    const [text, score] = Array.isArray(entry) ? (entry as unknown[]) : [];
    if (typeof text !== 'string' || typeof score !== 'number' || !Number.isFinite(score))
      return refuse('FORMAT', `${model.path('vocab')}[${id}]`, 'a piece and its score', entry);
    // If two pieces have the same text, the second one counts.
    ids.set(text, id);
    lowest = Math.min(lowest, score);
    return { text, id, score };
  });
  const unknown = model.optionalInteger('unk_id', 0, list.length - 1);
  // A special token is never text: HuggingFace's program looks for it first, and the caller here may switch that off.
  const special = new Set(added.filter((token) => token.special).map(({ content }) => content));
  const known = pieces.filter(({ text, id }) => ids.get(text) === id && !special.has(text));
  const segment = unigramOf(known, lowest - UNKNOWN_PENALTY, unknown, model.path('vocab'));
  const byteFallback = model.flag('byte_fallback');
  const bytesOf = (text: string): number[] | undefined => {
    const bytes = Array.from(utf8.encode(text), (byte) => ids.get(tokenOfByte(byte)));
    return bytes.every((id) => id !== undefined) ? bytes : undefined;
  };
  return {
    ids,
    tokensOf: (words) =>
      words.flatMap(segment).flatMap(({ text, id }) => {
        return id ?? ids.get(text) ?? (byteFallback ? bytesOf(text) : undefined) ?? unknown!;
      }),
  };
}

function checkSize(model: Fields, count: number): void {
  if (count === 0 || count > MAX_VOCABULARY)
    refuse('FORMAT', model.path('vocab'), `1 to ${MAX_VOCABULARY} tokens`, count);
}

function readVocab(model: Fields): Map<string, number> {
  const fields = model.object('vocab');
  const names = fields.keys();
  checkSize(model, names.length);
  const ids = new Map<string, number>();
  const seen = new Set<number>();
  for (const name of names) {
    const id = fields.raw(name);
    if (typeof id !== 'number' || !Number.isInteger(id) || id < 0 || id >= MAX_VOCABULARY)
      refuse('FORMAT', fields.path(JSON.stringify(name).slice(0, 60)), `an id in [0, ${MAX_VOCABULARY})`, id);
    if (seen.has(id)) fail('FORMAT', model.path('vocab'), `two tokens have the id ${id}`);
    seen.add(id);
    ids.set(name, id);
  }
  return ids;
}

function readAdded(root: Fields): (AddedToken & { readonly normalized: boolean })[] {
  const list = root.optionalList('added_tokens') ?? [];
  if (list.length > MAX_ADDED) refuse('FORMAT', root.path('added_tokens'), `at most ${MAX_ADDED} tokens`, list.length);
  return (list.length === 0 ? [] : root.objects('added_tokens')).map((token: Fields) => {
    const content = token.text('content');
    if (content === '') token.refuse('FORMAT', 'content', 'a text that is not empty');
    const special = token.flag('special');
    return {
      id: token.integer('id', 0, MAX_VOCABULARY - 1),
      content,
      special,
      lstrip: token.flag('lstrip'),
      rstrip: token.flag('rstrip'),
      singleWord: token.flag('single_word'),
      normalized: token.optionalFlag('normalized') ?? !special,
    };
  });
}

/** The text of one token, and the rule for the start of the text. */
interface TokenDecoder {
  readonly stripSpace: boolean;
  bytes(text: string, added: boolean): Uint8Array;
}

const utf8 = /* @__PURE__ */ new TextEncoder();

/** Reads the decoder: byte-level, or SentencePiece's steps. Others need several tokens at once, and are refused. */
function readDecoder(root: Fields): TokenDecoder {
  if (!root.has('decoder'))
    fail('UNSUPPORTED', root.path('decoder'), 'there is none, so it is not known which tokens begin with a space');
  const stepsOf = (step: Fields): Fields[] =>
    step.raw('type') === 'Sequence' ? step.objects('decoders').flatMap(stepsOf) : [step];
  const replacements: [from: string, to: string][] = [];
  let joint: string | undefined;
  const seen = new Set<string>();
  let stripSpace = false;
  for (const step of stepsOf(root.object('decoder'))) {
    const type = step.text('type');
    if (type === 'Replace') {
      const from = step.object('pattern').optionalText('String');
      if (!from)
        return step.refuse('UNSUPPORTED', 'pattern', 'a text to replace', 'Patterns are not read in a decoder.');
      replacements.push([from, step.optionalText('content') ?? '']);
    } else if (type === 'WordPiece') {
      joint = step.text('prefix');
      stripSpace = true;
    } else if (type === 'Metaspace') {
      replacements.push([step.optionalText('replacement') ?? SPACE, ' ']);
      // Metaspace removes the space that it puts in front, unless it never puts one. @see huggingface/tokenizers
      stripSpace = step.optionalText('prepend_scheme') !== 'never' && (step.optionalFlag('add_prefix_space') ?? true);
    } else if (type === 'Strip') {
      const oneSpace = step.raw('content') === ' ' && step.raw('start') === 1 && (step.raw('stop') ?? 0) === 0;
      if (!oneSpace || !seen.has('Fuse')) step.refuse('UNSUPPORTED', 'content', 'one space at the start, after Fuse');
      stripSpace = true;
    } else if (type !== 'ByteLevel' && type !== 'ByteFallback' && type !== 'Fuse') {
      step.refuse('UNSUPPORTED', 'type', 'ByteLevel, WordPiece, Replace, ByteFallback, Fuse, Strip or Metaspace');
    }
    seen.add(type);
  }
  const [byteLevel, byteFallback] = [seen.has('ByteLevel'), seen.has('ByteFallback')];
  return {
    stripSpace,
    bytes(text, added) {
      const byte = byteFallback ? byteOfToken(text) : undefined;
      if (byte !== undefined) return Uint8Array.of(byte);
      if (byteLevel && !added) return bytesOfByteLevel(text);
      // Parts inside a word have the mark, and other tokens begin a word.
      if (joint !== undefined) return utf8.encode(text.startsWith(joint) ? text.slice(joint.length) : ` ${text}`);
      return utf8.encode(replacements.reduce((so, [from, to]) => so.replaceAll(from, to), text));
    },
  };
}

/** Reads the id of bos_token or eos_token, which is a text or an added token written out. */
function namedToken(
  config: Fields,
  key: string,
  ids: ReadonlyMap<string, number>,
  added: readonly AddedToken[],
): number | undefined {
  const raw = config.raw(key);
  const text = typeof raw === 'object' ? config.object(key).optionalText('content') : config.optionalText(key);
  if (text === undefined) return undefined;
  return (
    added.find((token) => token.content === text)?.id ??
    ids.get(text) ??
    refuse('FORMAT', config.path(key), 'a token of the vocabulary', text)
  );
}

/** Reads the special tokens that the post-processor puts around a text. */
function readPostProcessor(root: Fields, size: number): { prefix: number[]; suffix: number[] } {
  const prefix: number[] = [];
  const suffix: number[] = [];
  const read = (step: Fields): void => {
    const type = step.text('type');
    if (type === 'Sequence') for (const inner of step.objects('processors')) read(inner);
    else if (type === 'TemplateProcessing') {
      let side = prefix;
      for (const item of step.objects('single')) {
        if (item.has('Sequence')) side = suffix;
        else {
          const tokens = step.object('special_tokens').object(item.object('SpecialToken').text('id'));
          side.push(...tokens.integers('ids', 0, size - 1));
        }
      }
    } else if (type === 'BertProcessing' || type === 'RobertaProcessing') {
      for (const [key, side] of Object.entries({ cls: prefix, sep: suffix })) {
        const id = step.need(step.optionalList(key), key, 'a list')[1];
        if (typeof id !== 'number' || !Number.isInteger(id) || id < 0 || id >= size)
          step.refuse('FORMAT', key, `a token and its id in [0, ${size})`);
        else side.push(id);
      }
    } else if (type !== 'ByteLevel') {
      const known = 'TemplateProcessing, ByteLevel, BertProcessing, RobertaProcessing or Sequence';
      step.refuse('UNSUPPORTED', 'type', known);
    }
  };
  const first = root.optionalObject('post_processor');
  if (first) read(first);
  return { prefix, suffix };
}

/**
 * Applies a flag of tokenizer_config.json, which overrules the post-processor, as in transformers' LlamaTokenizerFast.
 */
function withRule(
  ids: readonly number[],
  token: number | undefined,
  rule: boolean | undefined,
  side: 'start' | 'end',
): number[] {
  if (rule === undefined || token === undefined || rule === ids.includes(token)) return [...ids];
  if (!rule) return ids.filter((id) => id !== token);
  return side === 'start' ? [token, ...ids] : [...ids, token];
}

/** Reads the templates: a text, a list of named texts, or a record of them. The default one is `default`. */
function readTemplates(config: Fields, file: string | undefined): Map<string, string> {
  const templates = new Map<string, string>();
  const raw = config.raw('chat_template');
  if (typeof raw === 'string') templates.set('default', raw);
  else if (Array.isArray(raw)) {
    for (const item of config.objects('chat_template')) templates.set(item.text('name'), item.text('template'));
  } else if (raw !== undefined) {
    const named = config.object('chat_template');
    for (const name of named.keys()) templates.set(name, named.text(name));
  }
  if (file !== undefined) templates.set('default', file);
  for (const [name, template] of templates) checkTemplateLength(template, config.path(`chat_template ${name}`));
  return templates;
}
