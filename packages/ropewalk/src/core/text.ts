/**
 * Text: of messages, and out of bytes from outside.
 *
 * @module
 */
import { refuse, show } from './errors.js';

/**
 * Numbers in few characters: `0-4, 6`.
 *
 * @param numbers - integers that grow
 */
export function ranges(numbers: readonly number[]): string {
  const parts: string[] = [];
  for (let at = 0; at < numbers.length; ) {
    let end = at;
    while (numbers[end + 1] === numbers[end]! + 1) end++;
    parts.push(end > at ? `${numbers[at]}-${numbers[end]}` : `${numbers[at]}`);
    at = end + 1;
  }
  return parts.join(', ');
}

/**
 * Escapes a text for XML and HTML, in content and in attributes. Characters that XML 1.0 cannot hold become U+FFFD.
 *
 * @param text - anything
 * @see https://www.w3.org/TR/xml/#charsets
 */
export function escapeMarkup(text: string): string {
  const names: Record<string, string> = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;', "'": '&#39;' };
  return (
    text
      .replace(/\p{Cs}/gu, '\ufffd') // halves of a surrogate pair, alone
      .replace(/(?![\t\n\r\x7f-\x9f])\p{Cc}|[\ufffe\uffff]/gu, '\ufffd')
      .replace(/[&<>"']/g, (c) => names[c]!)
      // In an attribute a parser would turn these into spaces.
      .replace(/[\t\n\r]/g, (c) => `&#${c.charCodeAt(0)};`)
  );
}

/** A byte order mark is part of the text here: a vocabulary may hold it as a token. */
const UTF8 = /* @__PURE__ */ new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

/**
 * Decodes UTF-8, refusing what is not; a byte order mark is kept.
 *
 * @param bytes - the text
 * @param where - names it in messages
 * @throws {RopewalkError} FORMAT for invalid UTF-8
 */
export function decodeUtf8(bytes: Uint8Array, where: string): string {
  try {
    return UTF8.decode(bytes);
  } catch {
    return refuse('FORMAT', where, 'UTF-8 text', `${bytes.length} bytes that are not`);
  }
}

/**
 * A name out of a file, for a message: as it is when it is short and plain, else quoted, escaped and cut.
 *
 * @param name - anything; it may hold control characters, or a megabyte
 */
export function nameForMessage(name: string): string {
  return name.length <= 80 && /^[\w./-]+$/.test(name) ? name : show(name);
}
