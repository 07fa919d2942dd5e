/**
 * Finds the peers' packages in bench/node_modules.
 *
 * @module
 */
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';

/** An installed package. */
export interface Installed {
  /** The file that `require` would load. */
  readonly entry: string;
  /** Name and version. */
  readonly version: string;
}

const require = createRequire(import.meta.url);

/**
 * Finds a peer's package in bench/node_modules.
 *
 * @param name - the name of the package
 * @param companions - other packages that it needs
 * @returns the package, or the reason why it is left out
 */
export function findInstalled(name: string, ...companions: readonly string[]): Installed | string {
  try {
    const entry = require.resolve(name);
    for (const companion of companions) require.resolve(companion);
    // `name/package.json` cannot be resolved directly, because not every package exports it.
    const folder = join(entry.slice(0, entry.lastIndexOf(join('node_modules', name))), 'node_modules', name);
    return { entry, version: `${name} ${JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8')).version}` };
  } catch {
    return `${name} is not installed. Install it with: npm ci --prefix bench`;
  }
}
