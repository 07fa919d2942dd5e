/**
 * The RoPE that a file describes: a model's config.json, a .gguf, a record, or a peer's arguments (Node only).
 *
 * @module
 */
import { readdirSync, statSync } from 'node:fs';
import { basename, dirname, join, relative } from 'node:path';
import type { ModelRope } from '@ropewalk/dialects/models';
import { fail, refuse } from 'ropewalk/backend';
import { modelSourceFromJson, type RopeSource, ropeSourceFromGguf } from './model-source.js';
import { checkPath, readFileBytes, readJsonFile, refuseSystem } from './read-file.node.js';
import { readGgufModel } from './read-header.node.js';
import { partsOf } from './shards.js';

/** Tables of a million positions and 128 pairs take half of this. */
const MAX_NPY_BYTES = 2 ** 30;

/** Whether a path leads to a folder. */
export function isFolder(path: string): boolean {
  checkPath(path);
  return statSync(path, { throwIfNoEntry: false })?.isDirectory() ?? false;
}

/**
 * Finds the file that describes a model. In a folder this is config.json, or the only .gguf if there is no config.json
 * or if no safetensors are beside it: the same model that `loadModelPath` loads.
 *
 * @param path - a folder; any other path is returned as it is
 * @throws {RopewalkError} FORMAT for a folder without a model, or with several
 */
export function modelFileOf(path: string): string {
  if (!isFolder(path)) return path;
  const names = namesIn(path);
  const ggufs = names.filter((name) => /\.gguf$/i.test(name));
  const weights = names.some((name) => /\.safetensors$/i.test(name));
  const parts = names.includes('config.json') && weights ? undefined : partsOf(ggufs, path);
  if (names.includes('config.json') && !parts) return join(path, 'config.json');
  if (parts) return join(path, parts[0]!);
  const [got, next] =
    ggufs.length > 1
      ? [ggufs, 'Give one of the .gguf files itself.']
      : [names, 'Give a folder with a model, or a file.'];
  return refuse('FORMAT', path, 'a folder with a config.json or one .gguf', got, next);
}

/** Whether a folder's model is a graph: it has .onnx files, in itself or in its folder onnx, and no other weights. */
export function isGraphFolder(path: string): boolean {
  return isFolder(path) && onnxFilesOf(path).length > 0 && !namesIn(path).some((name) => WEIGHTS.test(name));
}

/**
 * The .onnx files of a model's folder, in it or in its folder onnx, as HuggingFace's libraries and ONNX Runtime's look
 * for them.
 *
 * @param folder - a folder
 * @returns paths, sorted
 * @throws {RopewalkError} FORMAT when it cannot be read
 */
export function onnxFilesOf(folder: string): string[] {
  checkPath(folder);
  const inside = join(folder, 'onnx');
  return [folder, ...(isFolder(inside) ? [inside] : [])].flatMap((one) =>
    namesIn(one)
      .filter((name) => /\.onnx$/i.test(name))
      .sort()
      .map((name) => join(one, name)),
  );
}

/**
 * Finds the graph of a model: model.onnx, or the only .onnx.
 *
 * @param path - a folder; any other path is returned as it is
 * @throws {RopewalkError} FORMAT for a folder without a graph, or with several
 */
export function onnxFileOf(path: string): string {
  if (!isFolder(path)) return path;
  const files = onnxFilesOf(path);
  const named = files.filter((file) => basename(file) === 'model.onnx');
  const [found, ...more] = named.length > 0 ? named : files;
  if (found !== undefined && more.length === 0) return found;
  const next = found === undefined ? 'ropewalk export --whole writes one.' : 'Give one of the .onnx files itself.';
  const got = files.map((file) => relative(path, file));
  return refuse('FORMAT', path, 'a folder with a model.onnx, or one .onnx', got, next);
}

/** Files that hold the weights of a model without a graph. */
const WEIGHTS = /\.(?:safetensors|gguf)$/i;

function namesIn(folder: string): string[] {
  try {
    return readdirSync(folder);
  } catch (cause) {
    return refuseSystem('FORMAT', folder, 'a readable folder', cause);
  }
}

/**
 * Reads a model's RoPE, layer by layer.
 *
 * @param path - a config.json, a .gguf, or a folder with one
 * @param context - tokens in use, for scaling that depends on it
 * @throws {RopewalkError} FORMAT when the file cannot be read or does not describe a model
 */
export async function readModelRope(path: string, context?: number): Promise<ModelRope> {
  const source = await readRopeSource(path, context, true);
  return source.kind === 'model'
    ? source.model
    : fail('FORMAT', source.file, 'it is a record, not a model. Give a config.json, a .gguf, or a folder with one.');
}

/**
 * Reads the RoPE that a file describes.
 *
 * @param path - a config.json, a .gguf, a folder with one, or a .json with a record (`{ "headDim": 128, "pairing":
 *   "half", "base": 10000 }`) or with a peer's arguments, whose tables are .npy files in the same folder
 * @param context - tokens in use, for scaling that depends on it
 * @param isModel - a .json is a model's config.json, whatever its fields are
 * @throws {RopewalkError} FORMAT when the file cannot be read or describes no RoPE; otherwise what its reader throws
 */
export async function readRopeSource(path: string, context?: number, isModel = false): Promise<RopeSource> {
  const file = modelFileOf(path);
  if (/\.gguf$/i.test(file)) {
    return ropeSourceFromGguf(await readGgufModel(file), file, context);
  }
  if (!/\.json$/i.test(file)) {
    if (!statSync(file, { throwIfNoEntry: false })) fail('FORMAT', file, 'there is no such file or folder');
    const expected = isModel ? '' : ', a record or arguments as .json, or a ROPE(…) line';
    refuse('FORMAT', file, `a config.json, a .gguf, a folder with one${expected}`, basename(file));
  }
  const json = readJsonFile(file);
  if (isModel) return modelSourceFromJson(json, file, context);
  const { ropeSourceFromJson } = await import('./rope-source.js'); // with every peer's calls
  return ropeSourceFromJson(json, file, {
    context,
    readFile: (name) => readFileBytes(join(dirname(file), name), MAX_NPY_BYTES),
  });
}
