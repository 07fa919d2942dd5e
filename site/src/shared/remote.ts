/** Reads files of other hosts, after the visitor has asked for it. Workers use it too. @module */
import type { ByteSource } from '@ropewalk/formats';

/** A file at an address. */
export interface Remote {
  readonly name: string;
  readonly url: string;
}

/** A refusal in a whole sentence with the next step. */
class Refusal extends Error {}

/** A host that sends nothing for so long is given up. */
const SILENCE_MS = 30_000;
/** The most bytes that are taken of a file that comes only as a whole. */
export const MOST_WHOLE_BYTES = 2 ** 24;
const BY_HAND = 'download the file and drop it here.';
const NEXT = 'Download the file and drop it here.';

/** Reads the % codes of a name for people. A % that is part of the name stays. */
export function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** A good answer of a host. */
interface Answer {
  readonly status: number;
  readonly headers: Headers;
  readonly bytes: Uint8Array<ArrayBuffer>;
}

/**
 * Asks a host for a file, or for a piece of it, without cookies and without naming this page.
 *
 * @param most - more bytes are refused
 * @param range - such as `0-99`
 * @returns undefined where the host has no such file
 * @throws {Error} in every other case, with the next step
 */
export async function ask(url: string, most: number, range?: string): Promise<Answer | undefined> {
  const { host, pathname } = new URL(url);
  const name = decoded(pathname.split('/').at(-1)!);
  const stop = new AbortController();
  let timer: ReturnType<typeof setTimeout> | undefined;
  const wait = (): void => {
    clearTimeout(timer);
    timer = setTimeout(() => stop.abort(), SILENCE_MS);
  };
  try {
    wait();
    const headers: HeadersInit = range === undefined ? {} : { range: `bytes=${range}` };
    const { signal } = stop;
    const response = await fetch(url, { headers, signal, credentials: 'omit', referrerPolicy: 'no-referrer' });
    if (response.status === 404) return undefined;
    if (!response.ok) throw new Refusal(refusalOf(response, host, name));
    if (/^text\/html/i.test(response.headers.get('content-type') ?? ''))
      throw new Refusal(`${host} sends a web page in place of ${name}. Give the address of the file itself.`);
    const parts: Uint8Array<ArrayBuffer>[] = [];
    let size = 0;
    const reader = response.body!.getReader();
    for (let part = await reader.read(); !part.done; part = await reader.read()) {
      wait();
      size += part.value.length;
      if (size > most)
        throw new Refusal(
          `${host} sends ${name} only as a whole, which is more than ${Math.round(most / 1e6)} MB. ${NEXT}`,
        );
      parts.push(part.value);
    }
    const { status } = response;
    return { status, headers: response.headers, bytes: new Uint8Array(await new Blob(parts).arrayBuffer()) };
  } catch (error) {
    if (error instanceof Refusal) throw error;
    throw new Refusal(
      stop.signal.aborted
        ? `${host} sent nothing for ${SILENCE_MS / 1000} seconds. Ask again, or ${BY_HAND}`
        : `${host} does not answer, or lets no page of another site read ${name}. Check the address, or ${BY_HAND}`,
    );
  } finally {
    clearTimeout(timer);
    stop.abort(); // the host stops sending what is not read
  }
}

function refusalOf({ status, headers }: Response, host: string, name: string): string {
  if (headers.get('x-error-code') === 'GatedRepo')
    return `${host} gives ${name} only to visitors who have accepted its maker’s terms. Accept them there, download the file, and drop it here.`;
  if (status === 401 || status === 403)
    return `${host} does not give ${name} to visitors who are not signed in: the name is wrong, or the model is private or gated. Check the name; if it is right, download the file there and drop it here.`;
  if (status === 429) return `${host} is asked too often at the moment. Wait some minutes, and ask again.`;
  return `${host} answers with status ${status}. ${status >= 500 ? `Ask again later, or ${BY_HAND}` : NEXT}`;
}

/** Says that a host has no such file. */
export const missing = (url: string): Error =>
  new Refusal(`${new URL(url).host} has no ${new URL(url).pathname.slice(1)}. Check the name, its capitals too.`);

/** Opens a file that is then read by range requests. A host without them may send a small one as a whole. */
export async function openRemote({ url }: Remote): Promise<ByteSource> {
  const first = await ask(url, MOST_WHOLE_BYTES, '0-0');
  if (!first) throw missing(url);
  const size = Number(/\/(\d+)$/.exec(first.headers.get('content-range') ?? '')?.[1]);
  const read = async (start: number, length: number): Promise<Uint8Array> => {
    const piece = first.status === 206 ? await ask(url, length, `${start}-${start + length - 1}`) : first;
    if (!piece) throw missing(url);
    return first.status === 206 ? piece.bytes : piece.bytes.subarray(start, start + length);
  };
  if (first.status !== 206) return { size: first.bytes.length, read };
  if (!Number.isSafeInteger(size))
    throw new Refusal(`${new URL(url).host} does not say how large the file is. ${NEXT}`);
  return { size, read };
}
