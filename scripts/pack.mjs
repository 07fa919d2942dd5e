/**
 * Prepares a package for `npm pack` and `npm publish`, from the package's folder. It builds the package from nothing
 * and copies files from the repository's root beside dist/: the licence, and each folder of `files` that exists there
 * (the command line contains models and vectors). If the repository's package.json has a `homepage`, the package.json
 * of the package gets it too, and its README ends with a link to it.
 *
 * Usage: node ../../scripts/pack.mjs [--clean]. With --clean it removes the copies again.
 */
import { spawnSync } from 'node:child_process';
import { cpSync, existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = join(dirname(fileURLToPath(import.meta.url)), '..');
const home = process.cwd();
const { files } = JSON.parse(readFileSync(join(home, 'package.json'), 'utf8'));
const borrowed = ['LICENSE', ...files].filter((name) => name !== 'dist' && existsSync(join(root, name)));
const { homepage } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'));
const cleaning = process.argv.includes('--clean');
/** Inserts a line before a text of a file, or at its end. With --clean it removes the line again. */
function withLine(file, line, before) {
  const text = readFileSync(join(home, file), 'utf8').replace(line, '');
  const at = before === undefined ? text.length : text.indexOf(before);
  writeFileSync(join(home, file), cleaning ? text : text.slice(0, at) + line + text.slice(at));
}
if (homepage !== undefined) {
  withLine('package.json', `  "homepage": ${JSON.stringify(homepage)},\n`, '  "license"');
  withLine('README.md', `\nAll pages: <${homepage}>\n`);
}
for (const name of borrowed) rmSync(join(home, name), { recursive: true, force: true });
if (!cleaning) {
  // docs/api is left out, because TypeDoc generates it.
  const filter = (path) => path !== join(root, 'docs/api');
  for (const name of borrowed) cpSync(join(root, name), join(home, name), { recursive: true, filter });
  const tsc = join(root, 'node_modules/typescript/bin/tsc');
  const { status } = spawnSync(process.execPath, [tsc, '-b', home], { stdio: 'inherit' });
  process.exitCode = status ?? 1;
}
