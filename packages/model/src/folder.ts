/** Step 1 of loading: files by name → {@link Folder}, and its small files. @module */
import { type ByteSource, MAX_READ_BYTES, parseJson, readExactly } from '@ropewalk/formats/internal/models';
import { refuse } from 'ropewalk/backend';
import { reading } from 'ropewalk/internal';
import { byteSource, type FileData } from './byte-source.js';

/**
 * A model's files by name: config.json, tokenizer.json and *.safetensors; or one *.gguf, or all parts of a split one.
 */
export type ModelFiles = ReadonlyMap<string, FileData> | Readonly<Record<string, FileData>>;

/** A model's files. */
export interface Folder {
  /** The model's name in messages: its path or address. */
  readonly where: string;
  readonly files: ReadonlyMap<string, ByteSource>;
  /** Returns the name of a file for messages. */
  path(name: string): string;
}

/** @param where - the model's name in messages: its path or address. @throws {RopewalkError} FORMAT for other values */
export function folderOf(files: ModelFiles, where: string | undefined, caller = 'loadModel'): Folder {
  if (typeof files !== 'object' || files === null)
    refuse('FORMAT', `${caller}: files`, 'a map from names to bytes', files);
  const list = (): [string, FileData][] => (files instanceof Map ? [...files] : Object.entries(files));
  const sources = new Map(reading(`${caller}: files`, list).map(([name, data]) => [name, byteSource(data, name)]));
  // If `where` is the path of a file, the other parts of a split model are in the same folder.
  const own = where === undefined ? undefined : [...sources.keys()].find((name) => where.endsWith(name));
  const before = where === undefined ? '' : own === undefined ? `${where}/` : where.slice(0, -own.length);
  return { where: where ?? 'model', files: sources, path: (name) => before + name };
}

export async function jsonOf(folder: Folder, name: string): Promise<unknown> {
  return parseJson(await smallFile(folder, name), folder.path(name));
}

export async function optionalJson(folder: Folder, name: string): Promise<unknown> {
  return folder.files.has(name) ? jsonOf(folder, name) : undefined;
}

export async function optionalFile(folder: Folder, name: string): Promise<Uint8Array | undefined> {
  return folder.files.has(name) ? smallFile(folder, name) : undefined;
}

async function smallFile(folder: Folder, name: string): Promise<Uint8Array> {
  const source = folder.files.get(name)!;
  if (source.size > MAX_READ_BYTES) refuse('FORMAT', folder.path(name), `at most ${MAX_READ_BYTES} bytes`, source.size);
  return readExactly(source, 0, source.size, folder.path(name));
}
