/** Keeps a text in the part of an address after #, compressed. A stranger may have made the address. @module */

/** The longest text, and the longest address: mail and chat programs cut longer ones. */
const [MOST_TEXT, MOST_LINK] = [32_768, 8_192];

const piped = (bytes: BlobPart, through: ReadableWritablePair<Uint8Array, BufferSource>): ReadableStream<Uint8Array> =>
  new Blob([bytes]).stream().pipeThrough(through as never);

/**
 * Returns the part after #, with it, or undefined if the text is too long for a link.
 *
 * @param name - the word before the text: `code`
 */
export async function textToHash(name: string, text: string): Promise<string | undefined> {
  if (new TextEncoder().encode(text).length > MOST_TEXT) return undefined;
  const packed = await new Response(piped(text, new CompressionStream('deflate-raw') as never)).arrayBuffer();
  const base64 = btoa(String.fromCharCode(...new Uint8Array(packed)));
  const hash = `#${name}=${base64.replaceAll('+', '-').replaceAll('/', '_').replaceAll('=', '')}`;
  return hash.length > MOST_LINK ? undefined : hash;
}

/**
 * Reads the text of the page's address. At most {@link MOST_TEXT} bytes are unpacked, whatever the address says.
 *
 * @param what - the text in words, for errors: `kernel`
 * @returns undefined if the address has none
 * @throws {Error} whose words say that the link is too long or broken
 */
export async function textFromHash(name: string, what: string): Promise<string | undefined> {
  const hash = globalThis.location?.hash ?? '';
  const prefix = `#${name}=`;
  if (!hash.startsWith(prefix)) return undefined;
  if (hash.length > MOST_LINK)
    throw new Error(`The link is longer than ${MOST_LINK} characters, so its ${what} is not read.`);
  const text: Uint8Array[] = [];
  let size = 0;
  try {
    const packed = atob(hash.slice(prefix.length).replaceAll('-', '+').replaceAll('_', '/'));
    const bytes = Uint8Array.from(packed, (one) => one.charCodeAt(0));
    const reader = piped(bytes, new DecompressionStream('deflate-raw') as never).getReader();
    for (let part = await reader.read(); !part.done && size <= MOST_TEXT; part = await reader.read()) {
      text.push(part.value);
      size += part.value.length;
    }
    if (size <= MOST_TEXT)
      return new TextDecoder('utf-8', { fatal: true }).decode(await new Blob(text as never).arrayBuffer());
    await reader.cancel();
  } catch {
    throw new Error(`The ${what} in the link cannot be read: the link is cut or broken. Ask for it again.`);
  }
  throw new Error(`The ${what} in the link is longer than ${MOST_TEXT} bytes, so it is not read.`);
}
