/**
 * Reads SentencePiece's normalizer, `precompiled_charsmap`: a table of texts and their replacements.
 *
 * The bytes are a length, a double array (a trie in 32-bit words) and the replacements, each ended by a zero byte.
 *
 * @module
 * @see google/sentencepiece@827591a src/normalizer.cc, and s-yata/darts-clone for the words of the trie
 */
import { fail, refuse } from 'ropewalk/backend';
import { decodeUtf8 } from 'ropewalk/internal';

const utf8 = /* @__PURE__ */ new TextEncoder();

export interface Charsmap {
  /** The bytes of the longest replacement, which bound how much longer a text may become. */
  readonly growth: number;
  /** Replaces the longest text of the table at each place, as SentencePiece and llama.cpp do. */
  replaceLongest(text: string): string;
  /**
   * Replaces graphemes, as HuggingFace does. A grapheme of less than six bytes is replaced if it begins with a text of
   * the table, the shortest such text; otherwise its characters are replaced one by one.
   *
   * @see huggingface/tokenizers@12c2952 tokenizers/src/normalizers/precompiled.rs
   */
  replaceGraphemes(text: string): string;
}

/** Reads a table in little-endian bytes. @throws {RopewalkError} FORMAT when it is cut or forged */
export function readCharsmap(bytes: Uint8Array, where: string): Charsmap {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  if (bytes.length < 8) fail('FORMAT', where, `it has ${bytes.length} bytes: a size and a trie take 8 at least`);
  const size = view.getUint32(0, true);
  if (size === 0 || size % 4 !== 0 || 4 + size > bytes.length)
    refuse('FORMAT', where, `a size in [4, ${bytes.length - 4}], a multiple of 4`, size);
  const replacements = bytes.subarray(4 + size);
  let growth = 1;
  let run = 0;
  for (const byte of replacements) {
    run = byte === 0 ? 0 : run + 1;
    growth = Math.max(growth, run);
  }
  const word = (index: number): number =>
    4 * index < size ? view.getUint32(4 + 4 * index, true) : fail('FORMAT', where, `its trie leads outside of itself`);
  const offset = (unit: number): number => (unit >>> 10) << ((unit & 0x200) >>> 6);

  /** Matches a text from `start` on: returns the length of the match, and the place of its replacement. */
  const find = (
    text: Uint8Array,
    start: number,
    longest: boolean,
  ): readonly [length: number, at: number] | undefined => {
    let found: [number, number] | undefined;
    let node = offset(word(0));
    for (let at = start; at < text.length; at++) {
      const byte = text[at]!;
      if (byte === 0) break;
      node ^= byte;
      const unit = word(node);
      if ((unit & 0x800000ff) !== byte) break;
      node ^= offset(unit);
      if ((unit & 0x100) === 0) continue;
      found = [at - start + 1, word(node) & 0x7fffffff];
      if (!longest) break;
    }
    return found;
  };
  const known = new Map<number, string>();
  const replacementAt = (at: number): string => {
    const end = replacements.indexOf(0, at);
    if (end === -1) fail('FORMAT', where, 'a replacement has no end');
    const text = known.get(at) ?? decodeUtf8(replacements.subarray(at, end), where);
    known.set(at, text);
    return text;
  };

  return {
    growth,
    replaceLongest(text) {
      const all = utf8.encode(text);
      const parts: string[] = [];
      const decoder = new TextDecoder('utf-8', { ignoreBOM: true });
      let start = 0;
      for (let at = 0; at < all.length; ) {
        const found = find(all, at, true);
        if (found) {
          parts.push(decoder.decode(all.subarray(start, at)), replacementAt(found[1]));
          at += found[0];
          start = at;
        } else for (at++; at < all.length && (all[at]! & 0xc0) === 0x80; ) at++;
      }
      return parts.join('') + decoder.decode(all.subarray(start));
    },
    replaceGraphemes(text) {
      const replace = (part: string): string | undefined => {
        const found = find(utf8.encode(part), 0, false);
        return found && replacementAt(found[1]);
      };
      const made = new Map<string, string>(); // a text has few different graphemes
      const replaced = (grapheme: string): string =>
        (utf8.encode(grapheme).length < 6 ? replace(grapheme) : undefined) ??
        Array.from(grapheme, (character) => replace(character) ?? character).join('');
      const parts: string[] = [];
      for (const grapheme of graphemesOf(text)) {
        const part = made.get(grapheme) ?? replaced(grapheme);
        made.set(grapheme, part);
        parts.push(part);
      }
      return parts.join('');
    },
  };
}

/** The UTF-16 units that are cut into graphemes at once: V8 takes quadratic time for a long text. */
const WINDOW = 256;

/** Cuts a text into graphemes. */
function* graphemesOf(text: string): Generator<string> {
  const segmenter = new Intl.Segmenter('en', { granularity: 'grapheme' });
  let size = WINDOW;
  for (let at = 0; at < text.length; ) {
    // A window does not end between the two halves of a character.
    const end = at + size + (text.codePointAt(at + size - 1)! > 0xffff ? 1 : 0);
    const parts = Array.from(segmenter.segment(text.slice(at, end)), ({ segment }) => segment);
    // The last grapheme may go on behind the window.
    if (end < text.length) parts.pop();
    size = parts.length === 0 ? 2 * size : WINDOW;
    for (const part of parts) {
      yield part;
      at += part.length;
    }
  }
}
