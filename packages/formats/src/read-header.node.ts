/**
 * Reads headers from disk (Node only): only as much of a file as the header takes.
 *
 * @module
 */
import { basename, dirname, join } from 'node:path';
import type { GgufFile } from './gguf.js';
import { checkPath, openFile, readAt } from './read-file.node.js';
import { type ByteSource, ggufHeaderOf, ggufPartOf, safetensorsHeaderOf } from './read-header.js';
import type { SafetensorsFile } from './safetensors.js';
import { type GgufModel, type GgufPart, joinGguf, partNames } from './shards.js';

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
 * Finds the files of a GGUF model.
 *
 * @param path - the only file, or any part of a split model
 * @returns paths in order, all in the same folder; whether they exist is not checked
 * @throws {RopewalkError} RANGE when it is no path
 */
export function ggufPaths(path: string): readonly string[] {
  checkPath(path);
  const [folder, name] = [dirname(path), basename(path)];
  return partNames(name)?.map((part) => (part === name ? path : join(folder, part))) ?? [path];
}

/**
 * Reads the headers of a GGUF model.
 *
 * @param path - the only file, or any part of a split model
 * @returns a header with the tensors of all files, and the factors of RoPE's frequencies
 * @throws {RopewalkError} FORMAT when a file is missing, malformed or cut, and when the parts do not belong together
 */
export async function readGgufModel(path: string): Promise<GgufModel> {
  const parts: GgufPart[] = [];
  for (const file of ggufPaths(path)) parts.push(await readGgufPart(file));
  return joinGguf(parts);
}

/** Reads the header of one file of a GGUF model. @throws {RopewalkError} FORMAT when it is missing, malformed or cut */
export function readGgufPart(path: string): Promise<GgufPart> {
  return withFile(path, (source) => ggufPartOf(source, path));
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
  const { file, size } = await openFile(path);
  try {
    return await work({ size, read: (start, length) => readAt(file, start, length, path) });
  } finally {
    await file.close();
  }
}
