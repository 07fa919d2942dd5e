/** The folders that come with the command line's package. @module */
import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

/** Finds a folder that comes with the package; in a checkout it is at the root. Undefined when it is missing. */
export function dataFolder(name: 'vectors' | 'models'): string | undefined {
  return [`../${name}`, `../../../${name}`]
    .map((path) => fileURLToPath(new URL(path, import.meta.url)))
    .find((path) => existsSync(path));
}
