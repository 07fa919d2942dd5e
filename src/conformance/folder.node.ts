/**
 * Vector folders on disk (Node only).
 *
 * @module
 */
import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs';
import { basename, join, resolve, sep } from 'node:path';
import { refuse } from '../core/errors.js';
import type { VectorFolder } from './folder.js';

/**
 * Opens a folder on disk.
 *
 * @param path - the folder
 * @throws {RopewalkError} FORMAT when it does not exist or is not a folder
 */
export function openFolder(path: string): VectorFolder {
  const root = resolve(path);
  if (!existsSync(root) || !statSync(root).isDirectory()) {
    refuse('FORMAT', 'vectors', 'a folder with a manifest.json, or with such folders in it', path);
  }
  const inside = (file: string): string => {
    const full = resolve(root, file);
    // A manifest may come from anybody: it names files of its own folder, and no others.
    if (!full.startsWith(root + sep)) refuse('FORMAT', `vectors/${basename(root)}`, 'a file path inside the folder', file);
    return full;
  };
  return {
    name: basename(root),
    has: (file) => existsSync(inside(file)),
    read(file) {
      const full = inside(file);
      try {
        return new Uint8Array(readFileSync(full));
      } catch (cause) {
        return refuse(
          'FORMAT',
          `vectors/${basename(root)}`,
          `a readable file ${file}`,
          (cause as NodeJS.ErrnoException).code ?? String(cause),
        );
      }
    },
    folders: () =>
      readdirSync(root, { withFileTypes: true })
        .filter((entry) => entry.isDirectory())
        .map((entry) => entry.name)
        .sort()
        .map((name) => openFolder(join(root, name))),
  };
}
