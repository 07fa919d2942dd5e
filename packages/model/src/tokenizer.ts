/**
 * Makes a {@link Tokenizer} of any vocabulary. tokenizer-json.ts and gguf-vocabulary.ts read the vocabularies.
 *
 * Special tokens, BOS, EOS and decoding are done here. Decoding works on bytes, so that the pieces of a stream together
 * are the decoded text.
 *
 * @module
 */
import { fail, refuse } from 'ropewalk/backend';
import { type Fields, type OptionNames, reading, readList, readOptions } from 'ropewalk/internal';
import { checkTypes } from './arguments.js';
import type { DecodeOptions, EncodeOptions, StreamOptions, TextStream, Tokenizer } from './types.js';

/** The largest vocabularies have 262,144 tokens. */
export const MAX_VOCABULARY = 2 ** 20;
/** Merge lists stay below half a million, except a few that list every way to split a token. */
const MAX_MERGES = 2 ** 22;
/** The longest known chat template, with tools, has less than 30 kilobytes. */
const MAX_TEMPLATE_CHARS = 2 ** 18;

/** A token that is looked for in the text before segmentation. */
export interface AddedToken {
  readonly id: number;
  readonly content: string;
  /** Marks a control token. It is looked for only with `parseSpecial`, and is not part of the text. */
  readonly special: boolean;
  /** Whether it swallows the white space to its left, to its right. */
  readonly lstrip?: boolean;
  readonly rstrip?: boolean;
  /** Whether it counts only if no letter or digit touches it. */
  readonly singleWord?: boolean;
}

/** The place of a stretch of text between the added tokens. */
export interface Place {
  /** The number of the stretch or token, from 0. */
  readonly section: number;
  readonly parseSpecial: boolean;
}

/** A vocabulary, as the reader of a file provides it for {@link tokenizerOf}. */
export interface Vocabulary {
  readonly where: string;
  /** One more than the highest id. */
  readonly size: number;
  /** Returns the token as the file writes it; undefined for an unused id. */
  textOf(id: number): string | undefined;
  /** Returns the bytes of text that an id stands for. */
  bytesOf(id: number): Uint8Array;
  /** Control tokens and unknown tokens, which are not text. */
  readonly special: ReadonlySet<number>;
  readonly added: readonly AddedToken[];
  /** Returns the ids of a text without added tokens. */
  segment(text: string, place: Place): number[];
  /** Changes the whole text before added tokens are looked for. */
  readonly prepare?: (text: string) => string;
  readonly bosToken?: number;
  readonly eosTokens: readonly number[];
  /** The ids before and after a text. */
  readonly prefix: readonly number[];
  readonly suffix: readonly number[];
  /** Whether encoding puts a space before the text, so that decoding removes it. */
  readonly stripSpace: boolean;
  readonly chatTemplates: ReadonlyMap<string, string>;
}

const ENCODE_NAMES: OptionNames<EncodeOptions> = { addBos: true, addEos: true, parseSpecial: true };

/** Makes a tokenizer of a vocabulary that its reader has checked. */
export function tokenizerOf(vocabulary: Vocabulary): Tokenizer {
  const { bosToken, eosTokens, special, chatTemplates, where } = vocabulary;
  const all = new AddedFinder(vocabulary.added);
  const textOnly = new AddedFinder(vocabulary.added.filter((token) => !token.special));
  const addBos = bosToken !== undefined && vocabulary.prefix.includes(bosToken);
  const addEos = vocabulary.suffix.some((id) => eosTokens.includes(id));
  const prefixWith = (bos: boolean): readonly number[] => {
    if (bos === addBos) return vocabulary.prefix;
    if (!bos) return vocabulary.prefix.filter((id) => id !== bosToken);
    if (bosToken === undefined) fail('UNSUPPORTED', `${where}: addBos`, 'this vocabulary has no BOS token');
    return [bosToken, ...vocabulary.prefix];
  };
  const suffixWith = (eos: boolean): readonly number[] => {
    if (eos === addEos) return vocabulary.suffix;
    if (!eos) return vocabulary.suffix.filter((id) => !eosTokens.includes(id));
    const eosToken = eosTokens[0] ?? fail('UNSUPPORTED', `${where}: addEos`, 'this vocabulary has no EOS token');
    return [...vocabulary.suffix, eosToken];
  };

  const encode = (text: string, given: EncodeOptions = {}): number[] => {
    if (typeof text !== 'string') refuse('RANGE', 'encode: text', 'a string', text);
    const options = readOptions(given, 'encode: options', ENCODE_NAMES);
    const { addBos: bos = addBos, addEos: eos = addEos, parseSpecial = false } = options;
    checkTypes({ addBos: bos, addEos: eos, parseSpecial }, 'boolean', 'encode');
    const ids: number[] = [];
    const whole = vocabulary.prepare ? vocabulary.prepare(text) : text;
    const sections = (parseSpecial ? all : textOnly).split(whole);
    for (const [section, part] of sections.entries()) {
      if (typeof part === 'number') ids.push(part);
      // A spread would fail: a book has more tokens than a call may have arguments.
      else if (part !== '') for (const id of vocabulary.segment(part, { section, parseSpecial })) ids.push(id);
    }
    return [...prefixWith(bos), ...ids, ...suffixWith(eos)];
  };

  // A generation uses a small part of a vocabulary, so bytes are made when they are first needed.
  const known = new Map<number, Uint8Array>();
  const bytesOf = (id: number): Uint8Array => {
    const bytes = known.get(id) ?? vocabulary.bytesOf(id);
    if (id < vocabulary.size) known.set(id, bytes);
    return bytes;
  };

  const stream = (options: StreamOptions = {}): TextStream => {
    const given = readOptions(options, 'decode: options', { skipSpecial: true, after: true });
    const { skipSpecial = true, after = [] } = given;
    checkTypes({ skipSpecial }, 'boolean', 'decode');
    // A byte order mark is text like any other.
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
    // These tokens decide whether a leading space is dropped, and may end inside a character.
    for (const token of tokensOf(after, 'decode: after')) push(token);
    return { push, end: () => decoder.decode() };
  };

  return {
    vocabSize: vocabulary.size,
    bosToken,
    eosTokens,
    addBos,
    addEos,
    chatTemplate: chatTemplates.get('default'),
    chatTemplates,
    encode,
    decode(tokens, options: DecodeOptions = {}) {
      const { push, end } = stream(options);
      const list = Array.from(tokensOf(tokens, 'decode: tokens'));
      return list.map(push).join('') + end();
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

/** Finds the added tokens in a text, at each place the longest one. */
export class AddedFinder {
  readonly #byContent = new Map<string, AddedToken>();
  /** The first UTF-16 unit of tokens → the lengths of these tokens, longest first. */
  readonly #lengths = new Map<number, number[]>();

  constructor(tokens: readonly AddedToken[]) {
    for (const token of tokens) {
      this.#byContent.set(token.content, token);
      const first = token.content.charCodeAt(0);
      const lengths = new Set(this.#lengths.get(first)).add(token.content.length);
      this.#lengths.set(
        first,
        [...lengths].sort((a, b) => b - a),
      );
    }
  }

  /** Cuts a text into stretches and ids; a stretch may be empty. */
  split(text: string): (string | number)[] {
    if (this.#byContent.size === 0) return [text];
    const parts: (string | number)[] = [];
    let start = 0;
    const pushText = (end: number, trimEnd: boolean): void => {
      const part = text.slice(start, end);
      const kept = trimEnd ? part.trimEnd() : part;
      if (kept !== '') parts.push(kept);
    };
    for (let at = 0; at < text.length; ) {
      const token = this.#at(text, at);
      if (!token) {
        at++;
        continue;
      }
      pushText(at, token.lstrip ?? false);
      parts.push(token.id);
      at += token.content.length;
      // The white space that it swallows is skipped, even if it contains a token.
      if (token.rstrip) while (at < text.length && /\s/.test(text[at]!)) at++;
      start = at;
    }
    pushText(text.length, false);
    return parts;
  }

  #at(text: string, at: number): AddedToken | undefined {
    for (const length of this.#lengths.get(text.charCodeAt(at)) ?? []) {
      const token = this.#byContent.get(text.slice(at, at + length));
      if (!token) continue;
      if (token.singleWord && (WORD.test(text[at - 1] ?? '') || WORD.test(text[at + length] ?? ''))) continue;
      return token;
    }
    return undefined;
  }
}

const WORD = /[\p{L}\p{N}_]/u;

/** Reads the merges of a BPE vocabulary. @throws {RopewalkError} FORMAT when missing, too long or malformed */
export function readMerges(fields: Fields, key: string): [string, string][] {
  const list = fields.need(fields.optionalList(key), key, 'a list of merges');
  if (list.length > MAX_MERGES) refuse('FORMAT', fields.path(key), `at most ${MAX_MERGES} merges`, list.length);
  return list.map((merge, n): [string, string] => {
    // The old form is one text. A token may contain a space only in the new form, a pair.
    const pair = typeof merge === 'string' ? splitMerge(merge) : merge;
    if (Array.isArray(pair) && pair.length === 2 && typeof pair[0] === 'string' && typeof pair[1] === 'string')
      return pair as [string, string];
    return refuse('FORMAT', `${fields.path(key)}[${n}]`, 'two strings, or one with a space between them', merge);
  });
}

/** Splits a merge at the first space after its first character. @see ggml-org/llama.cpp@00ad355 src/llama-vocab.cpp */
function splitMerge(merge: string): [string, string] | undefined {
  const at = merge.indexOf(' ', 1);
  return at === -1 ? undefined : [merge.slice(0, at), merge.slice(at + 1)];
}

/** @throws {RopewalkError} FORMAT for a chat template that is too long */
export function checkTemplateLength(template: string, where: string): void {
  if (template.length > MAX_TEMPLATE_CHARS)
    refuse('FORMAT', where, `at most ${MAX_TEMPLATE_CHARS} characters`, template.length);
}

/** Returns the byte that a token such as `<0x0A>` stands for. */
export function byteOfToken(text: string): number | undefined {
  return /^<0x[0-9A-Fa-f]{2}>$/.test(text) ? Number.parseInt(text.slice(3, 5), 16) : undefined;
}

/** Returns the token of a byte, such as `<0x0A>`. */
export function tokenOfByte(byte: number): string {
  return `<0x${byte.toString(16).toUpperCase().padStart(2, '0')}>`;
}

/** GPT-2's alphabet. Printable bytes stand for themselves; the others are moved to U+0100 and up, in order. */
const BYTE_OF_CHARACTER: ReadonlyMap<string, number> = /* @__PURE__ */ (() => {
  const map = new Map<string, number>();
  let moved = 0;
  for (let byte = 0; byte < 256; byte++) {
    const printable = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
    map.set(String.fromCharCode(printable ? byte : 0x100 + moved++), byte);
  }
  return map;
})();
const utf8 = /* @__PURE__ */ new TextEncoder();

/** Returns the bytes of a byte-level token. A character outside the alphabet stands for itself. */
export function bytesOfByteLevel(text: string): Uint8Array {
  return Uint8Array.from(Array.from(text).flatMap((char) => BYTE_OF_CHARACTER.get(char) ?? [...utf8.encode(char)]));
}
