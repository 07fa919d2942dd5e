/** The version of the packages that are timed. @module */
import { readFileSync } from 'node:fs';

/** The version in the package.json of `ropewalk`. */
export const { version: VERSION } = JSON.parse(
  readFileSync(new URL('../packages/ropewalk/package.json', import.meta.url), 'utf8'),
) as { version: string };
