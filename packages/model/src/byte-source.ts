/** Bytes that are read piece by piece: memory, blobs, files on a server. Files on disk: node.ts. @module */
import type { ByteSource } from '@ropewalk/formats';
import { fail, refuse } from 'ropewalk/backend';
import { nameForMessage, reading, readOptions } from 'ropewalk/internal';

/** Bytes in memory, a browser's Blob or File, or a source. */
export type FileData = ByteSource | Blob | ArrayBuffer | Uint8Array;

/**
 * Makes a source of bytes of any kind.
 *
 * @param data - bytes in memory, a browser's Blob or File, or a source already
 * @param name - the source's name in messages
 * @returns a source that shares the memory of `data`
 * @throws {RopewalkError} FORMAT for anything else
 * @example const source = byteSource(new Uint8Array(16), 'model.gguf');
 */
export function byteSource(data: FileData, name = 'file'): ByteSource {
  if (typeof name !== 'string') refuse('RANGE', 'byteSource: name', 'a string', name);
  const where = `loadModel: ${nameForMessage(name)}`;
  return reading(where, () => sourceOf(data) ?? refuse('FORMAT', where, 'bytes, a Blob, or { size, read }', data));
}

function sourceOf(data: FileData): ByteSource | undefined {
  if (data instanceof ArrayBuffer) return sourceOf(new Uint8Array(data));
  if (data instanceof Uint8Array)
    return { size: data.length, read: async (start, length) => data.subarray(start, start + length) };
  if (typeof Blob !== 'undefined' && data instanceof Blob) {
    const read = async (start: number, length: number): Promise<Uint8Array> =>
      new Uint8Array(await data.slice(start, start + length).arrayBuffer());
    return { size: data.size, read };
  }
  const source = data as ByteSource | null;
  return typeof source?.read === 'function' && Number.isSafeInteger(source.size) ? source : undefined;
}

/**
 * Opens a file on a server. It is read piece by piece if the server answers range requests; otherwise it is fetched
 * once.
 *
 * @param url - its address
 * @param given - options of fetch, such as headers and credentials
 * @returns a source for loadModel
 * @throws {RopewalkError} FORMAT when it cannot be fetched
 * @example const model = await loadModel({ 'model.gguf': await fetchSource('./model.gguf') });
 */
export async function fetchSource(url: string | URL, given: RequestInit = {}): Promise<ByteSource> {
  const opened = await openUrl(url, given, 'fetchSource');
  return typeof opened === 'number' ? refuse('FORMAT', String(url), 'HTTP status 200 or 206', opened) : opened;
}

/** {@link fetchSource} for the function `caller`, or the HTTP status where it is not one of success. */
export async function openUrl(url: string | URL, given: RequestInit, caller: string): Promise<ByteSource | number> {
  if (typeof url !== 'string' && !reading(`${caller}: url`, () => url instanceof URL))
    refuse('RANGE', `${caller}: url`, 'a URL', url);
  const where = String(url);
  const init = readOptions(given, `${caller}: options`);
  const first = reading(`${caller}: headers`, () => new Headers(init.headers));
  const get = async (range?: string): Promise<Response> => {
    const headers = new Headers(first);
    if (range !== undefined) headers.set('range', range);
    return fetch(url, { ...init, headers }).catch((cause) =>
      fail('FORMAT', where, `the server does not answer: ${String(cause)}`),
    );
  };
  const probe = await get('bytes=0-0');
  if (!probe.ok) return probe.status;
  const size = Number(/\/(\d+)$/.exec(probe.headers.get('content-range') ?? '')?.[1]);
  // Without a size the answer is the whole file, or a compressed one, whose bytes are not those that ranges count.
  if (probe.status !== 206 || !Number.isSafeInteger(size)) {
    const whole = probe.status === 206 ? await get() : probe;
    if (!whole.ok) refuse('FORMAT', where, 'HTTP status 200', whole.status);
    return byteSource(await whole.blob(), where);
  }
  await probe.body?.cancel();
  return {
    size,
    async read(start, length) {
      const response = await get(`bytes=${start}-${start + length - 1}`);
      if (response.status !== 206)
        refuse('FORMAT', where, 'HTTP status 206', response.status, 'The server answered range requests before.');
      return new Uint8Array(await response.arrayBuffer());
    },
  };
}
