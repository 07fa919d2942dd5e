/** Makes one JavaScript file of a source and its imports, for processes in which no TypeScript loader may run. */
import { mkdtempSync, realpathSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { buildSync } from 'esbuild';
import { ROOT } from './imports.mjs';

/** Bundles a source for Node. @returns the file, alone in a new temporary folder, which the caller removes */
export function bundleSource(source) {
  const outfile = join(realpathSync(mkdtempSync(join(tmpdir(), 'ropewalk-'))), 'main.mjs');
  const tsconfig = join(ROOT, 'tsconfig.json');
  buildSync({ entryPoints: [source], outfile, bundle: true, platform: 'node', format: 'esm', tsconfig });
  return outfile;
}
