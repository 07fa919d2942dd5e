/**
 * Bytes that are read piece by piece: memory, blobs, files on a server. Files on disk: node.ts.
 *
 * @module
 */

import type { ByteSource } from '@ropewalk/formats';
import { nameForMessage, reading, readOptions, refuse } from 'ropewalk/backend';

/**
 * Takes bytes of any kind as a source.
 *
 * @param data - bytes in memory, a blob or file of a browser, or a source already
 * @param name - for messages
 * @throws {RopewalkError} FORMAT for anything else
 */
export function byteSource(data: ByteSource | Blob | ArrayBuffer | Uint8Array, name = 'file'): ByteSource {
  if (typeof name !== 'string') refuse('RANGE', 'byteSource: name', 'a string', name);
  return reading(`loadModel: ${nameForMessage(name)}`, () => sourceOf(data, name));
}

function sourceOf(data: ByteSource | Blob | ArrayBuffer | Uint8Array, name: string): ByteSource {
  if (data instanceof Uint8Array)
    return { size: data.length, read: async (start, length) => data.subarray(start, start + length) };
  if (data instanceof ArrayBuffer) return byteSource(new Uint8Array(data), name);
  if (typeof Blob !== 'undefined' && data instanceof Blob) {
    const read = async (start: number, length: number): Promise<Uint8Array> =>
      new Uint8Array(await data.slice(start, start + length).arrayBuffer());
    return { size: data.size, read };
  }
  const source = data as Partial<ByteSource> | null;
  if (
    typeof source === 'object' &&
    source !== null &&
    typeof source.read === 'function' &&
    Number.isSafeInteger(source.size)
  )
    return source as ByteSource;
  return refuse('FORMAT', `loadModel: ${nameForMessage(name)}`, 'bytes, a Blob, or { size, read }', data);
}

/**
 * A file on a server: piece by piece where it answers ranges, else fetched whole, once.
 *
 * @param url - its address
 * @param given - of fetch: headers, credentials
 * @throws {RopewalkError} FORMAT when it cannot be fetched
 */
export async function fetchSource(url: string | URL, given: RequestInit = {}): Promise<ByteSource> {
  if (typeof url !== 'string' && !reading('fetchSource: url', () => url instanceof URL))
    refuse('RANGE', 'fetchSource: url', 'an address', url);
  const where = String(url);
  const init = readOptions(given, 'fetchSource: options');
  const first = reading('fetchSource: headers', () => new Headers(init.headers));
  const get = async (range?: string): Promise<Response> => {
    const headers = new Headers(first);
    if (range !== undefined) headers.set('range', range);
    const response = await fetch(url, { ...init, headers }).catch((cause) =>
      refuse('FORMAT', where, 'an answer', String(cause)),
    );
    return response.ok ? response : refuse('FORMAT', where, 'an answer of 200 or 206', response.status);
  };
  const probe = await get('bytes=0-0');
  const size = Number(/\/(\d+)$/.exec(probe.headers.get('content-range') ?? '')?.[1]);
  // A compressed answer is of other bytes than those that ranges count.
  if (probe.status !== 206 || !Number.isSafeInteger(size)) {
    const whole = probe.status === 206 ? await get() : probe;
    return byteSource(await whole.blob(), where);
  }
  await probe.body?.cancel();
  return {
    size,
    async read(start, length) {
      const response = await get(`bytes=${start}-${start + length - 1}`);
      if (response.status !== 206)
        refuse('FORMAT', where, 'a range (206)', response.status, 'The server answered ranges before.');
      return new Uint8Array(await response.arrayBuffer());
    },
  };
}
