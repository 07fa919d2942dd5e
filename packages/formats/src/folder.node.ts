/** The files of a model's folder: its config, its GGUF, its graph (Node only). @module */
import { readdirSync, statSync } from 'node:fs';
import { basename, join, relative } from 'node:path';
import { refuse } from 'ropewalk/backend';
import { checkPath, refuseSystem } from './read-file.node.js';
import { partsOf } from './shards.js';

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
