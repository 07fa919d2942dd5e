/**
 * Reading manifests.
 *
 * @module
 */
import { Fields } from '../core/fields.js';
import { parseJson } from '../formats/json.js';
import type { VectorFolder } from './folder.js';

/**
 * Reads a JSON file of a vector folder.
 *
 * @param folder - where it lies
 * @param file - its path in the folder
 * @throws {RopewalkError} FORMAT when it is missing, no JSON, or no object
 */
export function readManifest(folder: VectorFolder, file: string): Fields {
  const where = `vectors/${folder.name}/${file}`;
  return new Fields(parseJson(folder.read(file), where), where);
}
