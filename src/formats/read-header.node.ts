/**
 * Reading headers from disk: as much of the file as the header needs, however large the weights behind it (Node only).
 *
 * @module
 */
import { type FileHandle, open, stat } from 'node:fs/promises';
import { RopewalkError, refuse } from '../core/errors.js';
import { nameForMessage } from './bytes.js';
import { type GgufFile, type GgufTensor, HeaderCut, parseGguf } from './gguf.js';
import { parseSafetensors, type SafetensorsFile, safetensorsHeaderBytes } from './safetensors.js';

/** Vocabularies make GGUF headers some megabytes long; one read fetches most of them whole. */
const FIRST_READ_BYTES = 4 * 2 ** 20;
/** No real header comes near; a forged length stops here, before the memory for it is asked for. */
const MAX_READ_BYTES = 2 ** 28;

/**
 * Reads the header of a GGUF file.
 *
 * @param path - the file
 * @throws {RopewalkError} FORMAT when it cannot be read or is malformed, or its tensors end past the file
 */
export async function readGgufHeader(path: string): Promise<GgufFile> {
  return withFile(path, async (file, size) => {
    for (let want = FIRST_READ_BYTES; ; ) {
      const bytes = await readAt(file, 0, Math.min(want, size), path);
      try {
        return parseGguf(bytes, path, size);
      } catch (error) {
        const cut = error instanceof RopewalkError && error.cause instanceof HeaderCut ? error.cause : undefined;
        if (!cut || cut.bytesNeeded > size) throw error;
        if (cut.bytesNeeded > MAX_READ_BYTES) refuse('FORMAT', path, `a header of at most ${MAX_READ_BYTES} bytes`, cut.bytesNeeded);
        want = Math.min(Math.max(2 * want, cut.bytesNeeded), MAX_READ_BYTES);
      }
    }
  });
}

/** Frequency factors are a few hundred numbers. */
const MAX_SMALL_TENSOR_BYTES = 2 ** 20;

/**
 * Reads a small F32 tensor of a GGUF file.
 *
 * @param path - the file
 * @param header - its header
 * @param tensor - which tensor; at most 1 MiB
 * @throws {RopewalkError} FORMAT when it is larger, no F32, or cannot be read
 */
export async function readGgufFloats(path: string, header: GgufFile, tensor: GgufTensor): Promise<Float32Array> {
  const { name, type, sizeBytes, offset } = tensor;
  if (type !== 'F32' || sizeBytes === undefined || sizeBytes > MAX_SMALL_TENSOR_BYTES) {
    refuse(
      'FORMAT',
      `${path}: tensor ${nameForMessage(name)}`,
      `F32 of at most ${MAX_SMALL_TENSOR_BYTES} bytes`,
      `${type}, ${sizeBytes} bytes`,
    );
  }
  return withFile(path, async (file) => {
    const bytes = await readAt(file, header.dataOffset + offset, sizeBytes, path);
    const view = new DataView(bytes.buffer);
    return Float32Array.from({ length: sizeBytes / 4 }, (_, i) => view.getFloat32(4 * i, !header.bigEndian));
  });
}

/**
 * Reads the header of a safetensors file.
 *
 * @param path - the file
 * @throws {RopewalkError} FORMAT when it cannot be read or is malformed
 */
export async function readSafetensorsHeader(path: string): Promise<SafetensorsFile> {
  return withFile(path, async (file, size) => {
    const start = await readAt(file, 0, Math.min(8, size), path);
    const bytes = await readAt(file, 0, Math.min(safetensorsHeaderBytes(start, path), size), path);
    return parseSafetensors(bytes, path, size);
  });
}

async function withFile<T>(path: string, work: (file: FileHandle, size: number) => Promise<T>): Promise<T> {
  // Asked before it is opened: opening a pipe waits for its writer, perhaps forever.
  const info = await stat(path).catch((cause) => unreadable(path, cause));
  if (!info.isFile()) refuse('FORMAT', path, 'a file', info.isDirectory() ? 'a folder' : 'something else');
  const file = await open(path).catch((cause) => unreadable(path, cause));
  try {
    return await work(file, info.size);
  } finally {
    await file.close();
  }
}

function unreadable(path: string, cause: unknown): never {
  return refuse('FORMAT', path, 'a readable file', (cause as NodeJS.ErrnoException).code ?? String(cause));
}

async function readAt(file: FileHandle, start: number, length: number, path: string): Promise<Uint8Array<ArrayBuffer>> {
  const bytes = new Uint8Array(length);
  let at = 0;
  while (at < length) {
    const { bytesRead } = await file.read(bytes, at, length - at, start + at).catch((cause) => unreadable(path, cause));
    if (bytesRead === 0) refuse('FORMAT', path, `${length} bytes from ${start}`, at, 'The file was cut while it was read.');
    at += bytesRead;
  }
  return bytes;
}
