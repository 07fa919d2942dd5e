/**
 * Opens models on disk: a folder of HuggingFace's files, or a GGUF in one file or several. For Node only.
 *
 * @module @ropewalk/model/node
 */
import type { Stats } from 'node:fs';
import { readdir, stat } from 'node:fs/promises';
import { freemem } from 'node:os';
import { basename, join } from 'node:path';
import type { ByteSource } from '@ropewalk/formats';
import {
  checkRegular,
  type FileHandle,
  ggufPaths,
  openFile,
  readAt,
  refuseSystem,
} from '@ropewalk/formats/internal/node';
import { fail, refuse } from 'ropewalk/backend';
import { readOptions } from 'ropewalk/internal';
import { describeModel, type ModelFiles } from './description.js';
import { type LoadOptions, loadModel } from './load.js';
import { type PlannedModel, planModel } from './plan-model.js';
import type { Model } from './types.js';
import type { HoldOptions } from './weights.js';

/** The names of a model's files. Others in the folder are not opened. */
const WANTED =
  /^((config|generation_config|tokenizer|tokenizer_config|model\.safetensors\.index|modules|config_sentence_transformers)\.json|chat_template\.jinja|.*\.safetensors|.*\.gguf)$/i;

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
  return loadFrom(pathsInFolder, path, options);
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
  return loadFrom(pathsOfGguf, path, options);
}

/**
 * Loads a model from a folder, as {@link loadModelFolder}, or from a .gguf file, as {@link loadModelFile}.
 *
 * @example const model = await loadModelPath(process.argv[2]!);
 */
export async function loadModelPath(path: string, options: LoadOptions = {}): Promise<Model> {
  return loadFrom(pathsAt, path, options);
}

/**
 * Describes a model in a folder or a .gguf file, and plans its weights, without loading it.
 *
 * @param path - as for {@link loadModelFolder} or {@link loadModelFile}
 * @param options - how weights are held
 * @param work - takes the model; its files are closed when the promise of `work` settles
 * @returns the result of `work`
 * @throws {RopewalkError} FORMAT for files that cannot be read or are no whole model; UNSUPPORTED for a model that is not
 *   computed here; whatever `work` throws
 * @example await describeModelPath('model.gguf', {}, async ({ config, weights }) => …);
 */
export async function describeModelPath<T>(
  path: string,
  options: HoldOptions,
  work: (model: PlannedModel) => Promise<T>,
): Promise<T> {
  checkPath(path, 'describeModelPath');
  if (typeof work !== 'function') refuse('RANGE', 'describeModelPath: work', 'a function', work);
  const given = readOptions(options, 'describeModelPath: options');
  return withFiles(await pathsAt(path), async (files) => work(planModel(await describeModel(files, path), given)));
}

/** Node's functions would also take buffers and file descriptors, and throw errors of their own for other values. */
function checkPath(path: string, caller: string): void {
  if (typeof path !== 'string' || path === '' || path.includes('\0'))
    refuse('RANGE', `${caller}: path`, 'a path', path);
}

/** The paths of a model's files by their names. */
type Paths = ReadonlyMap<string, string>;

async function pathsAt(path: string): Promise<Paths> {
  const info = await stat(path).catch((cause) => refuseSystem('FORMAT', path, 'a folder or a .gguf file', cause));
  return info.isDirectory() ? pathsInFolder(path) : pathsOfGguf(path);
}

async function pathsInFolder(path: string): Promise<Paths> {
  const names = await readdir(path).catch((cause) => refuseSystem('FORMAT', path, 'a readable folder', cause));
  const wanted = names.filter((name) => WANTED.test(name));
  // The modules of sentence-transformers lie in folders such as 1_Pooling.
  for (const folder of wanted.includes('modules.json') ? names.filter((name) => /^\d+_\w+$/.test(name)) : []) {
    const inside = await readdir(join(path, folder)).catch(() => []);
    wanted.push(
      ...inside.filter((name) => /^(config\.json|model\.safetensors)$/.test(name)).map((name) => `${folder}/${name}`),
    );
  }
  const isGraph = names.some((name) => name === 'onnx' || /\.onnx$/i.test(name));
  const next = 'Give the model that it came from: a HuggingFace folder or a GGUF.';
  if (isGraph && !wanted.some((name) => /\.(safetensors|gguf)$/i.test(name)))
    fail('FORMAT', path, `it is an exported ONNX model. ${next}`);
  return new Map(wanted.map((name) => [name, join(path, name)] as const));
}

function pathsOfGguf(path: string): Paths {
  if (!/\.gguf$/i.test(path))
    refuse('FORMAT', path, 'a .gguf file', basename(path), 'For a model in safetensors, give the folder.');
  return new Map(ggufPaths(path).map((part) => [basename(part), part]));
}

async function loadFrom(
  pathsOf: (path: string) => Paths | Promise<Paths>,
  path: string,
  options: LoadOptions,
): Promise<Model> {
  checkPath(path, 'loadModel');
  return withFiles(await pathsOf(path), (files) => {
    const given = readOptions(options, 'loadModel: options');
    return loadModel(files, { where: path, availableBytes: availableMemory, ...given });
  });
}

/** Opens files, and closes them when the promise of `work` settles. */
async function withFiles<T>(paths: Paths, work: (files: ModelFiles) => Promise<T>): Promise<T> {
  const opened: FileHandle[] = [];
  try {
    const files = new Map<string, ByteSource>();
    for (const [name, path] of paths) {
      // This is checked first: opening a pipe waits for its writer, perhaps forever.
      const info = await stat(path).catch((cause) => refuseSystem('FORMAT', path, 'a readable file', cause));
      checkRegular(info, path);
      files.set(name, fileSource(path, info, opened));
    }
    return await work(files);
  } finally {
    await Promise.all(opened.map((file) => file.close()));
  }
}

/** Returns a source that opens its file at the first read. The owner of `opened` closes it. */
function fileSource(path: string, info: Stats, opened: FileHandle[]): ByteSource {
  const { dev, ino, size, mtimeMs, ctimeMs } = info;
  let handle: Promise<FileHandle> | undefined;
  const openOnce = async (): Promise<FileHandle> => {
    const { file } = await openFile(path);
    opened.push(file);
    return file;
  };
  return {
    size,
    // No program can set ctime: a file that was replaced or written to has another one, even with its old mtime. The
    // clock of ctime ticks slowly, so it does not tell two changes apart that follow at once.
    version: Date.now() - ctimeMs > 2000 ? [dev, ino, size, mtimeMs, ctimeMs].join(' ') : undefined,
    async read(start, length) {
      const file = await (handle ??= openOnce());
      return readAt(file, start, length, path);
    },
  };
}

/** Returns the memory that the machine, or the container, has left. */
function availableMemory(): number {
  const { availableMemory: available } = process as { availableMemory?: () => number };
  return available?.call(process) ?? freemem();
}
