/**
 * JSON from files of unknown origin: bounded in size and depth, with the place of the mistake in the message.
 *
 * @module
 */
import { refuse } from '../core/errors.js';

/** A config.json is a few kilobytes, a tokenizer.json tens of megabytes; nothing real is larger. */
const MAX_JSON_BYTES = 256 * 2 ** 20;
/** Real files nest less than 20 deep; JSON.parse itself overflows the stack at some thousands. */
const MAX_JSON_DEPTH = 200;

/**
 * Parses JSON. Python's `NaN`, `Infinity` and `-Infinity` are accepted as numbers: HuggingFace's own writer emits them.
 *
 * @param input - UTF-8 bytes or a text
 * @param where - names the file in messages
 * @returns the value
 * @throws {RopewalkError} FORMAT for anything that is not JSON, is nested deeper than 200, or is larger than 256 MiB
 */
export function parseJson(input: Uint8Array | string, where: string): unknown {
  if (input.length > MAX_JSON_BYTES) refuse('FORMAT', where, `at most ${MAX_JSON_BYTES} bytes of JSON`, input.length);
  const text = typeof input === 'string' ? input : decodeUtf8(input, where);
  const prepared = prepare(text, where);
  try {
    return prepared === text ? JSON.parse(text) : JSON.parse(prepared, revive);
  } catch (cause) {
    return refuse('FORMAT', where, 'JSON', (cause as Error).message);
  }
}

/**
 * Decodes UTF-8, refusing what is not.
 *
 * @param bytes - the text
 * @param where - names it in messages
 * @throws {RopewalkError} FORMAT for invalid UTF-8
 */
export function decodeUtf8(bytes: Uint8Array, where: string): string {
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  } catch {
    return refuse('FORMAT', where, 'UTF-8 text', `${bytes.length} bytes that are not`);
  }
}

/** Stands for a number that JSON cannot write; no real file holds this text. */
const MARK = '\u0000number:';

function revive(_: string, value: unknown): unknown {
  return typeof value === 'string' && value.startsWith(MARK) ? Number(value.slice(MARK.length)) : value;
}

/** One pass over the text: bounds the depth before JSON.parse recurses, and marks Python's number words. */
function prepare(text: string, where: string): string {
  let depth = 0;
  let done = 0;
  let result = '';
  for (let at = 0; at < text.length; at++) {
    switch (text[at]) {
      case '"':
        for (at++; at < text.length && text[at] !== '"'; at++) if (text[at] === '\\') at++;
        break;
      case '[':
      case '{':
        if (++depth > MAX_JSON_DEPTH)
          refuse('FORMAT', where, `JSON nested at most ${MAX_JSON_DEPTH} deep`, `a deeper one at character ${at}`);
        break;
      case ']':
      case '}':
        depth--;
        break;
      case 'N':
      case 'I':
      case '-': {
        const word = ['NaN', '-Infinity', 'Infinity'].find((w) => text.startsWith(w, at));
        if (!word) break;
        result += `${text.slice(done, at)}${JSON.stringify(MARK + word)}`;
        at += word.length - 1;
        done = at + 1;
        break;
      }
    }
  }
  return result + text.slice(done);
}
