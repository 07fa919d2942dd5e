/**
 * Text ↔ tokens: what every vocabulary shares, and the reader of HuggingFace's tokenizer.json.
 *
 * Segmentation of a tokenizer.json is @huggingface/tokenizers'; special tokens, BOS and EOS, and decoding are done here, by
 * bytes, so that streamed text is the decoded text cut in pieces. GGUF vocabularies are read by gguf-vocabulary.ts.
 *
 * @module
 */
import { Tokenizer as HuggingFaceTokenizer } from '@huggingface/tokenizers';
import { RopewalkError } from 'ropewalk';
import { Fields, reading, readList, readOptions, refuse, show } from 'ropewalk/backend';
import { checkTypes } from './arguments.js';
import { BoundedRegExp } from './bounded-regexp.js';
import { cutterOf } from './safe-cuts.js';
import type { DecodeOptions, EncodeOptions, StreamOptions, TextStream, Tokenizer } from './types.js';

/** The largest vocabularies have 262,144 tokens; four times that is room enough, and refused before it costs memory. */
export const MAX_VOCABULARY = 2 ** 20;
/** Real merge lists stay below half a million, except a few with one list entry per way to split. */
export const MAX_MERGES = 2 ** 22;
/** Gemma has 6,415 added tokens; nothing known comes near this. */
const MAX_ADDED = 2 ** 17;
/** Real normalizers replace a character by one to three others. */
const MAX_GROWTH = 1024;
/** Characters of all patterns of a file: the library takes quadratic time to read them. Published files have up to a few thousand. */
const MAX_PATTERNS = 2 ** 14;
/** A chat template is some kilobytes; the longest known, with tools, is below 30. */
export const MAX_TEMPLATE_CHARS = 2 ** 18;

/** A token that is found in the text itself, before segmentation. */
export interface AddedToken {
  readonly id: number;
  readonly content: string;
  /** Control tokens: found only with `parseSpecial`, and not part of the text. */
  readonly special: boolean;
  /** Takes the white space to its left, to its right. */
  readonly lstrip?: boolean;
  readonly rstrip?: boolean;
  /** Found only where no letter or digit touches it. */
  readonly singleWord?: boolean;
}

/** Where a stretch of text stands between the added tokens. */
export interface Place {
  /** Number of the stretch or token; 0 is the start of the text. */
  readonly section: number;
  readonly parseSpecial: boolean;
}

/** What a file must tell of its vocabulary; {@link tokenizerOf} does the rest. */
export interface Vocabulary {
  readonly where: string;
  /** One more than the highest id. */
  readonly size: number;
  /** The token as the file writes it; undefined for an id that has none. */
  textOf(id: number): string | undefined;
  /** The bytes of text that an id stands for. */
  bytesOf(id: number): Uint8Array;
  /** Ids that are no text: control and unknown tokens. */
  readonly special: ReadonlySet<number>;
  readonly added: readonly AddedToken[];
  /** Turns text without added tokens into ids. */
  segment(text: string, place: Place): number[];
  /** Changes the whole text before anything is looked for in it. */
  readonly prepare?: (text: string) => string;
  readonly bosToken?: number | undefined;
  readonly eosTokens: readonly number[];
  /** Put before and after a text. */
  readonly prefix: readonly number[];
  readonly suffix: readonly number[];
  /** Encoding puts a space before the text, so decoding takes one off its start. */
  readonly stripSpace: boolean;
  readonly chatTemplates: ReadonlyMap<string, string>;
}

/**
 * Makes a tokenizer of a vocabulary.
 *
 * @param vocabulary - checked by its reader
 */
export function tokenizerOf(vocabulary: Vocabulary): Tokenizer {
  const { bosToken, eosTokens, special, chatTemplates, where } = vocabulary;
  const all = new AddedFinder(vocabulary.added);
  const textOnly = new AddedFinder(vocabulary.added.filter((token) => !token.special));
  const addBos = bosToken !== undefined && vocabulary.prefix.includes(bosToken);
  const addEos = vocabulary.suffix.some((id) => eosTokens.includes(id));
  // A caller may ask for a BOS that the file would not add, and the other way round.
  const prefixWith = (bos: boolean): readonly number[] => {
    if (bos === addBos) return vocabulary.prefix;
    if (!bos) return vocabulary.prefix.filter((id) => id !== bosToken);
    if (bosToken === undefined)
      refuse('UNSUPPORTED', `${where}: addBos`, 'a vocabulary with a BOS token', 'one without');
    return [bosToken, ...vocabulary.prefix];
  };
  const suffixWith = (eos: boolean): readonly number[] => {
    if (eos === addEos) return vocabulary.suffix;
    if (!eos) return vocabulary.suffix.filter((id) => !eosTokens.includes(id));
    return [
      ...vocabulary.suffix,
      eosTokens[0] ?? refuse('UNSUPPORTED', `${where}: addEos`, 'a vocabulary with an EOS token', 'one without'),
    ];
  };

  const encode = (text: string, given: EncodeOptions = {}): number[] => {
    if (typeof text !== 'string') refuse('RANGE', 'encode: text', 'a string', text);
    const { addBos: bos = addBos, addEos: eos = addEos, parseSpecial = false } = readOptions(given, 'encode: options');
    checkTypes({ addBos: bos, addEos: eos, parseSpecial }, 'boolean', 'encode');
    const ids: number[] = [];
    const whole = vocabulary.prepare ? vocabulary.prepare(text) : text;
    const sections = (parseSpecial ? all : textOnly).split(whole);
    for (const [section, part] of sections.entries()) {
      if (typeof part === 'number') ids.push(part);
      // Not a spread into push: a book has more tokens than a call may have arguments.
      else if (part !== '') for (const id of vocabulary.segment(part, { section, parseSpecial })) ids.push(id);
    }
    return [...prefixWith(bos), ...ids, ...suffixWith(eos)];
  };

  // Made when first asked for: a generation sees a small part of a vocabulary.
  const known = new Map<number, Uint8Array>();
  const bytesOf = (id: number): Uint8Array => {
    const bytes = known.get(id) ?? vocabulary.bytesOf(id);
    if (id < vocabulary.size) known.set(id, bytes);
    return bytes;
  };

  const stream = (options: StreamOptions = {}): TextStream => {
    const { skipSpecial = true, after = [] } = readOptions(options, 'decode: options');
    checkTypes({ skipSpecial }, 'boolean', 'decode');
    // The byte order mark is text like any other: a decoder must not swallow it.
    const decoder = new TextDecoder('utf-8', { ignoreBOM: true });
    let atStart = true;
    const push = (token: number): string => {
      if (!Number.isInteger(token) || token < 0) refuse('RANGE', 'decode: token', 'an integer >= 0', token);
      if (skipSpecial && special.has(token)) return '';
      let bytes = bytesOf(token);
      if (bytes.length === 0) return '';
      if (atStart && vocabulary.stripSpace && bytes[0] === 0x20) bytes = bytes.subarray(1);
      atStart = false;
      return decoder.decode(bytes, { stream: true });
    };
    // What came before decides whether a leading space is dropped, and may end inside a character.
    for (const token of tokensOf(after, 'decode: after')) push(token);
    return { push, end: () => decoder.decode() };
  };

  return {
    vocabSize: vocabulary.size,
    ...(bosToken === undefined ? {} : { bosToken }),
    eosTokens,
    addBos,
    addEos,
    ...(chatTemplates.has('default') ? { chatTemplate: chatTemplates.get('default')! } : {}),
    chatTemplates,
    encode,
    decode(tokens, options: DecodeOptions = {}) {
      const { push, end } = stream(options);
      const pieces: string[] = [];
      for (const token of tokensOf(tokens, 'decode: tokens')) pieces.push(push(token));
      pieces.push(end());
      return pieces.join('');
    },
    stream,
    tokenText: (id) => vocabulary.textOf(id),
    isSpecial: (id) => special.has(id),
  };
}

function tokensOf(tokens: readonly number[] | Int32Array, where: string): readonly number[] | Int32Array {
  return reading(where, () => tokens instanceof Int32Array)
    ? tokens
    : Array.from(readList(tokens, where, 'a list of tokens'));
}

/** Finds added tokens in a text: at each place the longest one. */
export class AddedFinder {
  private readonly byContent = new Map<string, AddedToken>();
  /** First UTF-16 unit → lengths of the tokens that start with it, longest first. */
  private readonly lengths = new Map<number, number[]>();

  constructor(tokens: readonly AddedToken[]) {
    for (const token of tokens) {
      this.byContent.set(token.content, token);
      const first = token.content.charCodeAt(0);
      const lengths = this.lengths.get(first) ?? [];
      if (!lengths.includes(token.content.length)) lengths.push(token.content.length);
      this.lengths.set(first, lengths);
    }
    for (const lengths of this.lengths.values()) lengths.sort((a, b) => b - a);
  }

  /** Cuts a text into stretches and ids; a stretch may be empty. */
  split(text: string): (string | number)[] {
    if (this.byContent.size === 0) return [text];
    const parts: (string | number)[] = [];
    let start = 0;
    let trimNext = false;
    const pushText = (end: number, trimEnd: boolean): void => {
      let part = text.slice(start, end);
      if (trimNext) part = part.trimStart();
      if (trimEnd) part = part.trimEnd();
      if (part !== '') parts.push(part);
    };
    for (let at = 0; at < text.length; ) {
      const token = this.at(text, at);
      if (!token) {
        at++;
        continue;
      }
      pushText(at, token.lstrip ?? false);
      parts.push(token.id);
      at += token.content.length;
      start = at;
      trimNext = token.rstrip ?? false;
    }
    pushText(text.length, false);
    return parts;
  }

  private at(text: string, at: number): AddedToken | undefined {
    for (const length of this.lengths.get(text.charCodeAt(at)) ?? []) {
      const token = this.byContent.get(text.slice(at, at + length));
      if (!token) continue;
      if (token.singleWord && (WORD.test(text[at - 1] ?? '') || WORD.test(text[at + length] ?? ''))) continue;
      return token;
    }
    return undefined;
  }
}

const WORD = /[\p{L}\p{N}_]/u;

/** HuggingFace's files, parsed as JSON. */
export interface TokenizerFiles {
  /** tokenizer.json */
  readonly tokenizerJson: unknown;
  /** tokenizer_config.json: BOS and EOS, chat template; without it nothing is added to a text. */
  readonly tokenizerConfig?: unknown;
  /** chat_template.jinja, a text; goes before the template in tokenizer_config.json, as in transformers. */
  readonly chatTemplate?: string | undefined;
}

/**
 * Reads HuggingFace's tokenizer.json.
 *
 * Whether BOS and EOS are put around a text: `add_bos_token` and `add_eos_token` of tokenizer_config.json where they are
 * there, else the template of the post-processor.
 *
 * @param given - files, parsed by formats/json
 * @param where - names the file in messages
 * @throws {RopewalkError} FORMAT for a field of the wrong type or size; UNSUPPORTED for a model other than BPE, or a decoder
 *   that is neither byte-level nor SentencePiece's
 */
export function tokenizerFromJson(given: TokenizerFiles, where = 'tokenizer.json'): Tokenizer {
  checkTypes({ where }, 'string', 'tokenizerFromJson');
  const files = readOptions(given, 'tokenizerFromJson: files');
  checkTypes({ chatTemplate: files.chatTemplate }, 'string', 'tokenizerFromJson');
  const root = new Fields(files.tokenizerJson, where);
  const config = new Fields(files.tokenizerConfig ?? {}, where.replace(/tokenizer\.json$/, 'tokenizer_config.json'));
  const model = root.object('model');
  const type = model.optionalText('type') ?? (model.has('merges') ? 'BPE' : undefined);
  if (type !== 'BPE')
    refuse(
      'UNSUPPORTED',
      model.path('type'),
      'BPE, which the Llama and Qwen families use',
      type,
      'Other models are not read.',
    );
  const ids = readVocab(model);
  const merges = readMerges(model);
  const added = readAdded(root);
  const texts = new Map<number, string>();
  for (const [text, id] of ids) texts.set(id, text);
  for (const token of added) texts.set(token.id, token.content);
  let size = 0;
  for (const id of texts.keys()) size = Math.max(size, id + 1);

  const decoder = readDecoder(root);
  checkSteps(root);
  const special = new Set(added.filter((token) => token.special).map((token) => token.id));
  const unknown = model.optionalText('unk_token');
  const library = quietly(where, () => {
    const record = files.tokenizerJson as Record<string, unknown>;
    return new HuggingFaceTokenizer(
      {
        ...record,
        // Added tokens are found here and not by the library, which has no way to leave the special ones in the text.
        added_tokens: [],
        normalizer: record.normalizer ?? null,
        pre_tokenizer: record.pre_tokenizer ?? null,
        post_processor: null,
        decoder: null,
        model: { ...(record.model as object), type: 'BPE', vocab: Object.fromEntries(ids), merges },
      },
      {},
    );
  });
  quietly(where, () => {
    for (const step of [library.normalizer, library.pre_tokenizer]) bound(step, where);
  });
  // These change a word at its ends or as a whole, so a part of one is not segmented as a part.
  const whole =
    model.flag('ignore_merges') ||
    ['end_of_word_suffix', 'continuing_subword_suffix'].some((key) => model.optionalText(key));
  const cut = whole ? (word: string) => [word] : cutterOf(merges);
  const unknownId =
    unknown === undefined ? undefined : (ids.get(unknown) ?? added.find((token) => token.content === unknown)?.id);

  // A token that is `normalized` is looked for in the normalized text, in its own normalized form.
  const normalize = (text: string): string => (library.normalizer ? library.normalizer(text) : text);
  const normalized = added.filter((token) => token.normalized && library.normalizer);
  const normalizedForms = quietly(where, () =>
    normalized.map((token) => ({ ...token, content: normalize(token.content) })),
  );
  const inNormalized = {
    all: new AddedFinder(normalizedForms.filter((token) => token.content !== '')),
    text: new AddedFinder(normalizedForms.filter((token) => token.content !== '' && !token.special)),
  };

  // A file may hold what the library notices only when it runs.
  const segment = (text: string, place: Place): number[] => quietly(where, () => segmented(text, place));
  const segmented = (text: string, place: Place): number[] => {
    const found: number[] = [];
    for (const part of (place.parseSpecial ? inNormalized.all : inNormalized.text).split(normalize(text))) {
      if (typeof part === 'number') {
        found.push(part);
        continue;
      }
      if (part === '') continue;
      const words = library.pre_tokenizer ? library.pre_tokenizer(part, { section_index: place.section }) : [part];
      for (const token of library.model!(words.flatMap(cut))) {
        const id = ids.get(token) ?? unknownId;
        if (id !== undefined) found.push(id);
      }
    }
    return found;
  };

  const addedIds = new Set(added.map((token) => token.id));
  const bos = namedToken(config, 'bos_token', ids, added);
  const eos = namedToken(config, 'eos_token', ids, added);
  const template = readPostProcessor(root, size);
  return tokenizerOf({
    where,
    size,
    textOf: (id) => texts.get(id),
    bytesOf(id) {
      const text = texts.get(id);
      return text === undefined ? NOTHING : decoder.bytes(text, addedIds.has(id));
    },
    special,
    added: added.filter((token) => !normalized.includes(token)),
    segment,
    bosToken: bos,
    eosTokens: eos === undefined ? [] : [eos],
    prefix: withRule(template.prefix, bos, config.optionalFlag('add_bos_token'), 'start'),
    suffix: withRule(template.suffix, eos, config.optionalFlag('add_eos_token'), 'end'),
    stripSpace: decoder.stripSpace,
    chatTemplates: readTemplates(config, files.chatTemplate),
  });
}

const NOTHING = new Uint8Array(0);
const utf8 = /* @__PURE__ */ new TextEncoder();

/** The part of the library's steps that is used here; its types leave it out. */
interface Step {
  config?: { readonly pattern?: { readonly Regex?: unknown }; readonly content?: unknown };
  pattern?: unknown;
  readonly normalizers?: readonly unknown[];
  readonly tokenizers?: readonly unknown[];
}

/** Has the file's patterns matched in bounded time, and its replacements taken as they stand: JavaScript reads `$&` in them. */
function bound(library: unknown, where: string): void {
  if (!library) return;
  const step = library as Step;
  for (const inner of step.normalizers ?? step.tokenizers ?? []) bound(inner, where);
  const { config, pattern } = step;
  if (config?.pattern?.Regex !== undefined && pattern instanceof RegExp) {
    step.pattern = new BoundedRegExp(pattern, pattern.flags, `${where}: pattern ${show(config.pattern.Regex)}`);
  }
  if (typeof config?.content === 'string') step.config = { ...config, content: config.content.replaceAll('$', '$$$$') };
}

/** The library throws plain errors of every kind, for regular expressions too. */
function quietly<T>(where: string, build: () => T): T {
  try {
    return build();
  } catch (error) {
    if (error instanceof RopewalkError) throw error;
    const said = error instanceof Error ? error.message : String(error);
    throw new RopewalkError(
      'UNSUPPORTED',
      `${where}: expected a tokenizer that @huggingface/tokenizers reads, got ${show(said)}`,
      {
        cause: error,
      },
    );
  }
}

function readVocab(model: Fields): Map<string, number> {
  const fields = model.object('vocab');
  const names = fields.keys();
  if (names.length === 0 || names.length > MAX_VOCABULARY)
    refuse('FORMAT', model.path('vocab'), `1 to ${MAX_VOCABULARY} tokens`, names.length);
  const ids = new Map<string, number>();
  const seen = new Set<number>();
  for (const name of names) {
    const id = fields.raw(name);
    if (typeof id !== 'number' || !Number.isInteger(id) || id < 0 || id >= MAX_VOCABULARY)
      refuse('FORMAT', fields.path(JSON.stringify(name).slice(0, 60)), `an id in [0, ${MAX_VOCABULARY})`, id);
    if (seen.has(id)) refuse('FORMAT', model.path('vocab'), 'each id once', id);
    seen.add(id);
    ids.set(name, id);
  }
  return ids;
}

function readMerges(model: Fields): [string, string][] {
  const list = model.need(model.optionalList('merges'), 'merges', 'a list');
  if (list.length > MAX_MERGES) refuse('FORMAT', model.path('merges'), `at most ${MAX_MERGES} merges`, list.length);
  return list.map((merge, n): [string, string] => {
    // The old form is one text; a token may hold a space only in the new form, a pair.
    const pair = typeof merge === 'string' ? splitMerge(merge) : merge;
    if (Array.isArray(pair) && pair.length === 2 && typeof pair[0] === 'string' && typeof pair[1] === 'string')
      return pair as [string, string];
    return refuse('FORMAT', `${model.path('merges')}[${n}]`, 'two texts, or one with a space between them', merge);
  });
}

/** Cuts a merge at its first space after the first character. @see ggml-org/llama.cpp@00ad355 src/llama-vocab.cpp */
export function splitMerge(merge: string): [string, string] | undefined {
  const at = merge.indexOf(' ', 1);
  return at === -1 ? undefined : [merge.slice(0, at), merge.slice(at + 1)];
}

interface JsonAddedToken extends AddedToken {
  readonly normalized: boolean;
}

function readAdded(root: Fields): JsonAddedToken[] {
  const list = root.optionalList('added_tokens') ?? [];
  if (list.length > MAX_ADDED) refuse('FORMAT', root.path('added_tokens'), `at most ${MAX_ADDED} tokens`, list.length);
  return (list.length === 0 ? [] : root.objects('added_tokens')).map((token) => {
    const content = token.text('content');
    if (content === '') refuse('FORMAT', token.path('content'), 'a text that is not empty', content);
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

/**
 * Refuses the ways of splitting that the library takes for others, since wrong tokens without a word would be worse,
 * patterns that are none, which it would only print, and steps that would not end.
 */
function checkSteps(root: Fields): void {
  let growth = 1;
  let patterns = 0;
  const check = (step: Fields): void => {
    const type = step.text('type');
    if (type === 'FixedLength') step.integer('length', 1, 2 ** 31 - 1);
    if (type === 'Replace') {
      // A pattern may match nothing, so content comes between any two characters.
      const text = step.object('pattern').optionalText('String');
      const content = (step.optionalText('content') ?? '').length;
      growth *= text ? Math.max(1, content / text.length) : 1 + content;
      if (growth > MAX_GROWTH)
        refuse(
          'FORMAT',
          step.path('content'),
          `replacements that make a text at most ${MAX_GROWTH} times longer`,
          growth,
        );
    }
    if (type === 'Sequence') {
      for (const inner of step.objects(step.has('normalizers') ? 'normalizers' : 'pretokenizers')) check(inner);
    }
    if (type === 'Split' || type === 'Replace') {
      const pattern = step.object('pattern');
      const regex = pattern.optionalText('Regex');
      if (regex === undefined && pattern.optionalText('String') === undefined)
        refuse('FORMAT', step.path('pattern'), 'a Regex or a String', step.raw('pattern'));
      patterns += regex?.length ?? 0;
      if (patterns > MAX_PATTERNS)
        refuse(
          'UNSUPPORTED',
          pattern.path('Regex'),
          `patterns of at most ${MAX_PATTERNS} characters in a file`,
          patterns,
          'Shorten them.',
        );
    }
    if (type === 'Split') {
      const behavior = step.optionalText('behavior')?.toLowerCase();
      const inverted = step.flag('invert');
      if (inverted ? behavior !== 'removed' : behavior !== 'removed' && behavior !== 'isolated') {
        const way = `${step.raw('behavior')}${inverted ? ' with invert' : ''}`;
        refuse(
          'UNSUPPORTED',
          step.path('behavior'),
          'Isolated, or Removed',
          way,
          '@huggingface/tokenizers does not do it.',
        );
      }
    }
  };
  for (const key of ['normalizer', 'pre_tokenizer']) {
    const first = root.optionalObject(key);
    if (first) check(first);
  }
}

/** What a decoder makes of one token, and of the start of the text. */
interface TokenDecoder {
  readonly stripSpace: boolean;
  bytes(text: string, added: boolean): Uint8Array;
}

/**
 * Reads the decoder: byte-level, or a sequence of what SentencePiece models use. Others work on several tokens at once, so
 * they have no bytes for one token.
 */
function readDecoder(root: Fields): TokenDecoder {
  const steps: Fields[] = [];
  const flatten = (step: Fields): void => {
    if (step.raw('type') === 'Sequence') for (const inner of step.objects('decoders')) flatten(inner);
    else steps.push(step);
  };
  if (!root.has('decoder'))
    refuse('UNSUPPORTED', root.path('decoder'), 'a decoder', undefined, 'Without one, spaces cannot be told.');
  flatten(root.object('decoder'));
  const replacements: [from: string, to: string][] = [];
  let byteLevel = false;
  let byteFallback = false;
  let fused = false;
  let stripSpace = false;
  for (const step of steps) {
    const type = step.text('type');
    switch (type) {
      case 'ByteLevel':
        byteLevel = true;
        break;
      case 'ByteFallback':
        byteFallback = true;
        break;
      case 'Fuse':
        fused = true;
        break;
      case 'Replace': {
        const from = step.object('pattern').optionalText('String');
        if (from === undefined || from === '')
          refuse(
            'UNSUPPORTED',
            step.path('pattern'),
            'a text to replace',
            step.raw('pattern'),
            'Patterns are not read in a decoder.',
          );
        replacements.push([from, step.optionalText('content') ?? '']);
        break;
      }
      case 'Metaspace':
        replacements.push([step.optionalText('replacement') ?? '▁', ' ']);
        // @see huggingface/tokenizers: Metaspace drops the space it put in front, unless it never puts one.
        stripSpace = step.optionalText('prepend_scheme') !== 'never' && (step.optionalFlag('add_prefix_space') ?? true);
        break;
      case 'Strip':
        if (step.raw('content') !== ' ' || step.raw('start') !== 1 || (step.raw('stop') ?? 0) !== 0 || !fused)
          refuse('UNSUPPORTED', step.path('content'), 'one space at the start, after Fuse', step.raw('content'));
        stripSpace = true;
        break;
      default:
        refuse('UNSUPPORTED', step.path('type'), 'ByteLevel, Replace, ByteFallback, Fuse, Strip or Metaspace', type);
    }
  }
  return {
    stripSpace,
    bytes(text, added) {
      if (byteFallback) {
        const byte = byteOfToken(text);
        if (byte !== undefined) return Uint8Array.of(byte);
      }
      if (byteLevel && !added) return bytesOfByteLevel(text);
      return utf8.encode(replacements.reduce((so, [from, to]) => so.replaceAll(from, to), text));
    },
  };
}

/** The byte that a token such as `<0x0A>` stands for. */
export function byteOfToken(text: string): number | undefined {
  return /^<0x[0-9A-Fa-f]{2}>$/.test(text) ? Number.parseInt(text.slice(3, 5), 16) : undefined;
}

/** GPT-2's alphabet: each byte as a printable character, the others moved to U+0100 and up, in order. */
const BYTE_OF_CHARACTER: ReadonlyMap<string, number> = /* @__PURE__ */ (() => {
  const map = new Map<string, number>();
  let moved = 0;
  for (let byte = 0; byte < 256; byte++) {
    const printable = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
    map.set(String.fromCharCode(printable ? byte : 0x100 + moved++), byte);
  }
  return map;
})();

/**
 * The bytes of a byte-level token. A character outside the alphabet stands for itself.
 *
 * @see openai/gpt-2@9b63575 src/encoder.py, bytes_to_unicode
 */
export function bytesOfByteLevel(text: string): Uint8Array {
  const bytes: number[] = [];
  for (const character of text) {
    const byte = BYTE_OF_CHARACTER.get(character);
    if (byte !== undefined) bytes.push(byte);
    else bytes.push(...utf8.encode(character));
  }
  return Uint8Array.from(bytes);
}

/** bos_token and eos_token are a text, or an added token written out. */
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

/** The special tokens that the post-processor puts around one text. */
function readPostProcessor(root: Fields, size: number): { prefix: number[]; suffix: number[] } {
  const prefix: number[] = [];
  const suffix: number[] = [];
  const read = (step: Fields): void => {
    const type = step.text('type');
    if (type === 'Sequence') for (const inner of step.objects('processors')) read(inner);
    else if (type === 'TemplateProcessing') {
      const tokens = step.optionalObject('special_tokens');
      let side = prefix;
      for (const item of step.objects('single')) {
        if (item.has('Sequence')) side = suffix;
        else {
          const name = item.object('SpecialToken').text('id');
          side.push(
            ...step
              .need(tokens, 'special_tokens', 'an object')
              .object(name)
              .integers('ids', 0, size - 1),
          );
        }
      }
    } else if (type === 'BertProcessing' || type === 'RobertaProcessing') {
      for (const [key, side] of [
        ['cls', prefix],
        ['sep', suffix],
      ] as const) {
        const id = step.need(step.optionalList(key), key, 'a list')[1];
        if (typeof id !== 'number' || !Number.isInteger(id) || id < 0 || id >= size)
          refuse('FORMAT', step.path(key), `a token and its id in [0, ${size})`, step.raw(key));
        side.push(id);
      }
    } else if (type !== 'ByteLevel') {
      refuse(
        'UNSUPPORTED',
        step.path('type'),
        'TemplateProcessing, ByteLevel, BertProcessing, RobertaProcessing or Sequence',
        type,
      );
    }
  };
  const first = root.optionalObject('post_processor');
  if (first) read(first);
  return { prefix, suffix };
}

/** A flag in tokenizer_config.json goes before the post-processor, as in transformers' LlamaTokenizerFast. */
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

/** A text, a list of named texts, or a record of them; `default` is the one used unless another is asked for. */
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
  for (const [name, template] of templates) {
    if (template.length > MAX_TEMPLATE_CHARS)
      refuse(
        'FORMAT',
        config.path(`chat_template ${name}`),
        `at most ${MAX_TEMPLATE_CHARS} characters`,
        template.length,
      );
  }
  return templates;
}
