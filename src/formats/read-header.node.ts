/**
 * Reading headers from disk: as much of the file as the header needs, however large the weights behind it (Node only).
 *
 * @module
 */
import { type FileHandle, open, stat } from 'node:fs/promises';
import { refuse } from '../core/errors.js';
import type { GgufFile, GgufTensor } from './gguf.js';
import { type ByteSource, ggufFactorsOf, ggufFloatsOf, ggufHeaderOf, safetensorsHeaderOf } from './read-header.js';
import type { SafetensorsFile } from './safetensors.js';

/**
 * Reads the header of a GGUF file.
 *
 * @param path - the file
 * @throws {RopewalkError} FORMAT when it cannot be read or is malformed, or its tensors end past the file
 */
export async function readGgufHeader(path: string): Promise<GgufFile> {
  return withFile(path, (source) => ggufHeaderOf(source, path));
}

/**
 * Reads a small F32 tensor of a GGUF file.
 *
 * @param path - the file
 * @param header - its header
 * @param tensor - which tensor; at most 1 MiB
 * @throws {RopewalkError} FORMAT when it is larger, no F32, or cannot be read
 */
export async function readGgufFloats(path: string, header: GgufFile, tensor: GgufTensor): Promise<Float32Array> {
  return withFile(path, (source) => ggufFloatsOf(source, header, tensor, path));
}

/**
 * Reads the tensors of a GGUF file that divide RoPE's frequencies.
 *
 * @param path - the file
 * @param header - its header
 * @returns by name; empty when it has none
 * @throws {RopewalkError} FORMAT as {@link readGgufFloats}
 */
export async function readGgufFactors(path: string, header: GgufFile): Promise<ReadonlyMap<string, Float32Array>> {
  return withFile(path, (source) => ggufFactorsOf(source, header, path));
}

/**
 * Reads the header of a safetensors file.
 *
 * @param path - the file
 * @throws {RopewalkError} FORMAT when it cannot be read or is malformed
 */
export async function readSafetensorsHeader(path: string): Promise<SafetensorsFile> {
  return withFile(path, (source) => safetensorsHeaderOf(source, path));
}

async function withFile<T>(path: string, work: (source: ByteSource) => Promise<T>): Promise<T> {
  // Asked before it is opened: opening a pipe waits for its writer, perhaps forever.
  const info = await stat(path).catch((cause) => unreadable(path, cause));
  if (!info.isFile()) refuse('FORMAT', path, 'a file', info.isDirectory() ? 'a folder' : 'something else');
  const file = await open(path).catch((cause) => unreadable(path, cause));
  try {
    return await work({ size: info.size, read: (start, length) => readAt(file, start, length, path) });
  } finally {
    await file.close();
  }
}

function unreadable(path: string, cause: unknown): never {
  return refuse('FORMAT', path, 'a readable file', (cause as NodeJS.ErrnoException).code ?? String(cause));
}

/**
 * Reads a piece of an open file.
 *
 * @param file - open
 * @param start - first byte
 * @param length - how many
 * @param path - names it in messages
 * @throws {RopewalkError} FORMAT when it cannot be read, or ends before
 */
export async function readAt(file: FileHandle, start: number, length: number, path: string): Promise<Uint8Array<ArrayBuffer>> {
  const bytes = new Uint8Array(length);
  let at = 0;
  while (at < length) {
    const { bytesRead } = await file.read(bytes, at, length - at, start + at).catch((cause) => unreadable(path, cause));
    if (bytesRead === 0) refuse('FORMAT', path, `${length} bytes from ${start}`, at, 'The file was cut while it was read.');
    at += bytesRead;
  }
  return bytes;
}
