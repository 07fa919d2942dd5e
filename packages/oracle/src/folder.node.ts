/**
 * Vector folders on disk (Node only).
 *
 * @module
 */
import { existsSync, readdirSync, statSync } from 'node:fs';
import { basename, join, resolve, sep } from 'node:path';
import { readFileBytes } from '@ropewalk/formats/node';
import { fail, refuse } from 'ropewalk/backend';
import { nameForMessage, show } from 'ropewalk/internal';
import type { VectorFolder } from './folder.js';
import type { GoldenCase } from './golden/case.js';
import { type GoldenFolder, type OnnxLoader, openGolden } from './golden/read.js';

/** The largest tensor that a manifest may name has a gigabyte. */
const MAX_FILE_BYTES = 2 ** 31;

/**
 * Opens a folder on disk.
 *
 * @param path - the folder
 * @throws {RopewalkError} FORMAT when it does not exist or is not a folder
 */
export function openFolder(path: string): VectorFolder {
  // A path with a NUL exists nowhere, and resolve() takes nothing but text.
  const root = typeof path === 'string' && existsSync(path) ? resolve(path) : undefined;
  if (root === undefined)
    return fail('FORMAT', typeof path === 'string' ? path : show(path), 'there is no such folder');
  if (!statSync(root).isDirectory()) fail('FORMAT', path, 'it is a file. Give its folder.');
  const inside = (file: string): string => {
    const full = resolve(root, file);
    // A manifest is not trusted: it may name files in its own folder only.
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
        .map((name) => openFolder(join(root, name))),
  };
}

/** A folder that was read whole. */
export interface GoldenOnDisk {
  readonly folder: GoldenFolder;
  /** In the manifest's order, inputs and expected outputs read and checked. */
  readonly cases: readonly GoldenCase[];
}

/**
 * Opens a folder that `ropewalk vectors` wrote; tensors are read case by case, by its `load`.
 *
 * @param dir - the folder
 * @param onnx - reads tensors that are in ONNX files only
 * @throws {RopewalkError} FORMAT when there is none, or its manifest is missing or malformed
 */
export function openGoldenFolder(dir: string, onnx?: OnnxLoader): GoldenFolder {
  return openGolden(openFolder(dir), onnx);
}

/**
 * Reads a whole folder that `ropewalk vectors` wrote, whatever the form of its files.
 *
 * @param dir - the folder
 * @param onnx - reads tensors that are in ONNX files only
 * @throws {RopewalkError} FORMAT when anything in it is missing, malformed, or other than its hash says
 */
export async function readGoldenFolder(dir: string, onnx?: OnnxLoader): Promise<GoldenOnDisk> {
  const folder = openGoldenFolder(dir, onnx);
  const cases: GoldenCase[] = [];
  for (const entry of folder.cases) cases.push(await folder.load(entry));
  return { folder, cases };
}
