/**
 * Models on disk: a folder of HuggingFace's files, or one GGUF (Node only).
 *
 * @module @ropewalk/model/node
 */
import { type FileHandle, readdir, stat } from 'node:fs/promises';
import { freemem } from 'node:os';
import { basename, join } from 'node:path';
import type { ByteSource } from '@ropewalk/formats';
import { checkRegular, openFile, readAt, refuseSystem } from '@ropewalk/formats/node';
import { readOptions, refuse } from 'ropewalk/backend';
import { type LoadOptions, loadModel } from './load.js';
import type { Model } from './types.js';

export { type LoadOptions, loadModel } from './load.js';
export type { LoadProgress } from './upload.js';

/** The files of a model; others in the folder are left alone. */
const WANTED =
  /^((config|generation_config|tokenizer|tokenizer_config|model\.safetensors\.index)\.json|chat_template\.jinja|.*\.safetensors|.*\.gguf)$/i;

/**
 * Loads a model from a folder.
 *
 * @param path - a folder with config.json, tokenizer.json and *.safetensors, or one that holds exactly one .gguf
 * @param options - as of loadModel; the machine's free memory is looked at unless `availableBytes` says otherwise
 * @throws {RopewalkError} as loadModel; FORMAT when the folder cannot be read
 */
export async function loadModelFolder(path: string, options: LoadOptions = {}): Promise<Model> {
  checkPath(path);
  const names = await readdir(path).catch((cause) => unreadable(path, 'a readable folder', cause));
  return loadFiles(
    new Map(names.filter((name) => WANTED.test(name)).map((name) => [name, join(path, name)])),
    path,
    options,
  );
}

/**
 * Loads a model from one GGUF.
 *
 * @param path - the file
 * @param options - as of {@link loadModelFolder}
 * @throws {RopewalkError} as loadModel; FORMAT for a file that is none, or cannot be read
 */
export async function loadModelFile(path: string, options: LoadOptions = {}): Promise<Model> {
  checkPath(path);
  if (!/\.gguf$/i.test(path))
    refuse('FORMAT', path, 'a .gguf file', basename(path), 'Of a model in safetensors, give the folder.');
  return loadFiles(new Map([[basename(path), path]]), path, options);
}

/**
 * Loads a model from a folder or a .gguf, whichever the path is.
 *
 * @param path - as of {@link loadModelFolder} or {@link loadModelFile}
 * @param options - as of {@link loadModelFolder}
 */
export async function loadModelPath(path: string, options: LoadOptions = {}): Promise<Model> {
  checkPath(path);
  const info = await stat(path).catch((cause) => unreadable(path, 'a folder or a .gguf file', cause));
  return info.isDirectory() ? loadModelFolder(path, options) : loadModelFile(path, options);
}

/** Node's own functions take buffers and file descriptors too, and throw errors of their own for the rest. */
function checkPath(path: string): void {
  if (typeof path !== 'string' || path === '' || path.includes('\0'))
    refuse('RANGE', 'loadModel: path', 'a path', path);
}

async function loadFiles(paths: ReadonlyMap<string, string>, where: string, options: LoadOptions): Promise<Model> {
  const opened: FileHandle[] = [];
  try {
    const files = new Map<string, ByteSource>();
    for (const [name, path] of paths) {
      // Asked before it is opened: opening a pipe waits for its writer, perhaps forever.
      const info = await stat(path).catch((cause) => unreadable(path, 'a readable file', cause));
      checkRegular(info, path);
      files.set(name, fileSource(path, info.size, opened));
    }
    return await loadModel(files, {
      where,
      availableBytes: availableMemory,
      ...readOptions(options, 'loadModel: options'),
    });
  } finally {
    await Promise.all(opened.map((file) => file.close()));
  }
}

/** A file that is opened when it is first read, and closed by whoever owns `opened`. */
function fileSource(path: string, size: number, opened: FileHandle[]): ByteSource {
  let handle: Promise<FileHandle> | undefined;
  const openOnce = async (): Promise<FileHandle> => {
    const { file } = await openFile(path);
    opened.push(file);
    return file;
  };
  return {
    size,
    async read(start, length) {
      const file = await (handle ??= openOnce());
      return readAt(file, start, length, path);
    },
  };
}

/** What the machine, or the container, can still give. */
function availableMemory(): number {
  const { availableMemory: available } = process as { availableMemory?: () => number };
  return available?.call(process) ?? freemem();
}

function unreadable(path: string, expected: string, cause: unknown): never {
  return refuseSystem('FORMAT', path, expected, cause);
}
