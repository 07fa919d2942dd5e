/** Folders of vectors on disk (Node only). @module */
import { existsSync, readdirSync, statSync } from 'node:fs';
import { basename, join, resolve, sep } from 'node:path';
import { readFileBytes } from '@ropewalk/formats/internal/node';
import { fail, refuse } from 'ropewalk/backend';
import { nameForMessage, show } from 'ropewalk/internal';
import type { VectorFolder } from './folder.js';
import type { GoldenCase } from './golden/case.js';
import { type GoldenFolder, goldenOf, type OnnxLoader } from './golden/read.js';

/** The largest file that is read. The largest tensor that a manifest may name has a gigabyte. */
const MAX_FILE_BYTES = 2 ** 31;

/** Opens a folder on disk. @throws {RopewalkError} FORMAT when it does not exist or is not a folder */
export function vectorFolder(path: string): VectorFolder {
  // existsSync is false for a path with a NUL, and resolve() takes text only.
  const root = typeof path === 'string' && existsSync(path) ? resolve(path) : undefined;
  if (root === undefined)
    return fail('FORMAT', typeof path === 'string' ? path : show(path), 'there is no such folder');
  if (!statSync(root).isDirectory()) fail('FORMAT', path, 'it is a file. Give its folder.');
  const inside = (file: string): string => {
    const full = resolve(root, file);
    // A manifest is not trusted, and may name files in its folder only.
    if (!full.startsWith(root + sep)) refuse('FORMAT', path, 'a file path inside the folder', file);
    return full;
  };
  return {
    name: basename(root),
    where: path,
    has: (file) => existsSync(inside(file)),
    read: (file) => readFileBytes(inside(file), MAX_FILE_BYTES, `${path}/${nameForMessage(file)}`),
    folders: () =>
      readdirSync(root, { withFileTypes: true })
        .filter((entry) => entry.isDirectory())
        .map((entry) => entry.name)
        .sort()
        .map((name) => vectorFolder(join(root, name))),
  };
}

/**
 * Opens a folder that `ropewalk vectors` wrote. Its `load` reads the tensors of a case.
 *
 * @param onnx - reads tensors that are in ONNX files only
 * @throws {RopewalkError} FORMAT when there is none, or its manifest is missing or malformed
 */
export function goldenFolder(dir: string, onnx?: OnnxLoader): GoldenFolder {
  return goldenOf(vectorFolder(dir), onnx);
}

/**
 * Reads all cases of a folder that `ropewalk vectors` wrote, in any form.
 *
 * @param onnx - reads tensors that are in ONNX files only
 * @throws {RopewalkError} FORMAT when a file is missing or malformed, or has another hash
 */
export async function readGoldenFolder(dir: string, onnx?: OnnxLoader) {
  const folder = goldenFolder(dir, onnx);
  const cases: GoldenCase[] = [];
  for (const entry of folder.cases) cases.push(await folder.load(entry));
  return { folder, cases };
}
