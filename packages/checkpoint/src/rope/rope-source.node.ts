/**
 * The RoPE that a file describes: a model's config.json, a .gguf, a record, or a peer's arguments (Node only).
 *
 * @module
 */
import { statSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import type { ModelRope } from '@ropewalk/dialects/internal/models';
import { readFileBytes, readJsonFile } from '@ropewalk/formats/internal/node';
import { modelFileOf, readGgufModel } from '@ropewalk/formats/node';
import { fail, refuse } from 'ropewalk/backend';
import { modelSourceFromJson, type RopeSource, ropeSourceFromGguf } from './model-source.js';

/** The most bytes of a table. Tables of a million positions and 128 pairs take half of this. */
const MAX_NPY_BYTES = 2 ** 30;

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
 * @param isModel - whether to read a .json as a model's config.json, whatever its fields are
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
  const { ropeSourceFromJson } = await import('./rope-source.js'); // this loads the readers of every peer's arguments
  return ropeSourceFromJson(json, file, {
    context,
    readFile: (name) => readFileBytes(join(dirname(file), name), MAX_NPY_BYTES),
  });
}
