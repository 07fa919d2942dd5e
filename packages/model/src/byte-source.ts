/** Bytes that are read piece by piece, from memory and Blobs. fetch-files.ts has servers, node.ts has disks. @module */
import type { ByteSource } from '@ropewalk/formats';
import { refuse } from 'ropewalk/backend';
import { nameForMessage, reading } from 'ropewalk/internal';

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
