/**
 * Golden folders on disk (Node only).
 *
 * @module
 */
import { openFolder } from '../folder.node.js';
import { type GoldenCase, type GoldenFolder, openGolden } from './folder.js';

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
 * @throws {RopewalkError} FORMAT when there is none, or its manifest is missing or malformed
 */
export function openGoldenFolder(dir: string): GoldenFolder {
  return openGolden(openFolder(dir));
}

/**
 * Reads a whole folder that `ropewalk vectors` wrote, whatever the form of its files.
 *
 * @param dir - the folder
 * @throws {RopewalkError} FORMAT when anything in it is missing, malformed, or other than its hash says
 */
export async function readGoldenFolder(dir: string): Promise<GoldenOnDisk> {
  const folder = openGoldenFolder(dir);
  const cases: GoldenCase[] = [];
  for (const entry of folder.cases) cases.push(await folder.load(entry));
  return { folder, cases };
}
