/** Text for messages, and text from bytes of files. @module */
import { fail, show } from './errors.js';

/** Writes integers in rising order with ranges: `0-4, 6`. */
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

/** Names layers in a sentence or a title, by their numbers in rising order: `layer 5`, `layers 0-4, 6`. */
export function nameLayers(numbers: readonly number[]): string {
  return `${numbers.length === 1 ? 'layer' : 'layers'} ${ranges(numbers)}`;
}

/** Counts layers in words: `1 layer`, `32 layers`. */
export function countLayers(count: number): string {
  return `${count} ${count === 1 ? 'layer' : 'layers'}`;
}

/**
 * Escapes a string for XML and HTML, in content and in attributes. Characters that XML 1.0 cannot hold become U+FFFD.
 *
 * @see https://www.w3.org/TR/xml/#charsets
 */
export function escapeMarkup(text: string): string {
  const names: Record<string, string> = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;', "'": '&#39;' };
  return (
    text
      .replace(/\p{Cs}/gu, '\ufffd') // lone surrogates
      .replace(/(?![\t\n\r\x7f-\x9f])\p{Cc}|[\ufffe\uffff]/gu, '\ufffd')
      .replace(/[&<>"']/g, (c) => names[c]!)
      // In an attribute a parser would turn these into spaces.
      .replace(/[\t\n\r]/g, (c) => `&#${c.charCodeAt(0)};`)
  );
}

/** The decoder keeps a byte order mark, because a vocabulary may have it as a token. */
const UTF8 = /* @__PURE__ */ new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

/** Decodes UTF-8; a byte order mark is kept. @throws {RopewalkError} FORMAT for invalid UTF-8 */
export function decodeUtf8(bytes: Uint8Array, where: string): string {
  try {
    return UTF8.decode(bytes);
  } catch {
    return fail('FORMAT', where, 'it is not valid UTF-8');
  }
}

/**
 * Prints a name from a file for a message: unchanged when it is short and plain, else quoted, escaped and cut, because it
 * may hold control characters, or a megabyte.
 */
export function nameForMessage(name: string): string {
  return name.length <= 80 && /^[\w./-]+$/.test(name) ? name : show(name);
}

/** Common errors of the file system, worded to follow "got". */
const REASONS: Readonly<Record<string, string>> = {
  ENOENT: 'a folder that is not there, or that takes no files',
  ENOTDIR: 'a path through something that is not a folder',
  EACCES: 'no permission',
  EPERM: 'no permission',
  EISDIR: 'a folder',
  EEXIST: 'a name that is taken',
  ELOOP: 'a symbolic link that leads back to itself',
  ENAMETOOLONG: 'a name that is too long',
  EMFILE: 'too many open files',
  ENFILE: 'too many open files',
  ENXIO: 'something that is not a regular file',
  EBUSY: 'something in use, such as a mount point',
  ENOSPC: 'a full disk',
  EDQUOT: 'a full quota',
  EFBIG: 'a file that is larger than the system allows',
  EROFS: 'a read-only file system',
};

/**
 * Describes why the file system refused: `expected a readable file, got no permission`, or that there is no such file.
 *
 * @param cause - the error that it threw
 * @param isWritten - whether the file was to be written: its absence is then no explanation
 */
export function systemSentence(expected: string, cause: unknown, isWritten = false): string {
  const { code, message } = (cause ?? {}) as { readonly code?: string; readonly message?: string };
  if (code === 'ENOENT' && !isWritten) return 'there is no such file or folder';
  const reason = (code && REASONS[code]) ?? `the system's error ${code ?? message ?? String(cause)}`;
  return `expected ${expected}, got ${reason}`;
}
