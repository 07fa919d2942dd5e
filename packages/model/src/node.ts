/**
 * Models on disk: a folder of HuggingFace's files, or a GGUF in one file or several. For Node only.
 *
 * @module @ropewalk/model/node
 */
import { readdir, stat } from 'node:fs/promises';
import { freemem } from 'node:os';
import { basename, join } from 'node:path';
import type { ByteSource } from '@ropewalk/formats';
import { checkRegular, type FileHandle, ggufPaths, openFile, readAt, refuseSystem } from '@ropewalk/formats/node';
import { readOptions, refuse } from 'ropewalk/backend';
import { type LoadOptions, loadModel } from './load.js';
import type { Model } from './types.js';

/** The files of a model. Others in the folder are not opened. */
const WANTED =
  /^((config|generation_config|tokenizer|tokenizer_config|model\.safetensors\.index)\.json|chat_template\.jinja|.*\.safetensors|.*\.gguf)$/i;

/**
 * Loads a model from a folder.
 *
 * @param path - a folder with config.json, tokenizer.json and *.safetensors, or one with exactly one GGUF model
 * @param options - of loadModel; the machine's free memory counts unless `availableBytes` says otherwise
 * @returns a model; the caller disposes it
 * @throws {RopewalkError} as loadModel; FORMAT when the folder cannot be read
 * @example const model = await loadModelFolder('models/marline', { backend: 'cpu' });
 */
export async function loadModelFolder(path: string, options: LoadOptions = {}): Promise<Model> {
  checkPath(path);
  const names = await readdir(path).catch((cause) => refuseSystem('FORMAT', path, 'a readable folder', cause));
  const paths = names.filter((name) => WANTED.test(name)).map((name) => [name, join(path, name)] as const);
  return loadFiles(new Map(paths), path, options);
}

/**
 * Loads a model from a GGUF file.
 *
 * @param path - the file; of a split model any part, with the others beside it
 * @param options - as for {@link loadModelFolder}
 * @returns a model; the caller disposes it
 * @throws {RopewalkError} as loadModel; FORMAT for another kind of file, and for one that cannot be read
 * @example const model = await loadModelFile('model-q8_0.gguf');
 */
export async function loadModelFile(path: string, options: LoadOptions = {}): Promise<Model> {
  checkPath(path);
  if (!/\.gguf$/i.test(path))
    refuse('FORMAT', path, 'a .gguf file', basename(path), 'For a model in safetensors, give the folder.');
  return loadFiles(new Map(ggufPaths(path).map((part) => [basename(part), part])), path, options);
}

/**
 * Loads a model from a folder or a .gguf file.
 *
 * @param path - as for {@link loadModelFolder} or {@link loadModelFile}
 * @param options - as for {@link loadModelFolder}
 * @returns a model; the caller disposes it
 * @throws {RopewalkError} as these two
 * @example const model = await loadModelPath(process.argv[2]!);
 */
export async function loadModelPath(path: string, options: LoadOptions = {}): Promise<Model> {
  checkPath(path);
  const info = await stat(path).catch((cause) => refuseSystem('FORMAT', path, 'a folder or a .gguf file', cause));
  return info.isDirectory() ? loadModelFolder(path, options) : loadModelFile(path, options);
}

/** Node's own functions also take buffers and file descriptors, and throw their own errors for anything else. */
function checkPath(path: string): void {
  if (typeof path !== 'string' || path === '' || path.includes('\0'))
    refuse('RANGE', 'loadModel: path', 'a path', path);
}

async function loadFiles(paths: ReadonlyMap<string, string>, where: string, options: LoadOptions): Promise<Model> {
  const opened: FileHandle[] = [];
  try {
    const files = new Map<string, ByteSource>();
    for (const [name, path] of paths) {
      // Checked before opening: opening a pipe waits for its writer, perhaps forever.
      const info = await stat(path).catch((cause) => refuseSystem('FORMAT', path, 'a readable file', cause));
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

/** A file that is opened when it is first read. The owner of `opened` closes it. */
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

/** The memory that the machine, or the container, can still give. */
function availableMemory(): number {
  const { availableMemory: available } = process as { availableMemory?: () => number };
  return available?.call(process) ?? freemem();
}
