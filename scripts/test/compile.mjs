/**
 * Compiles the repository's TypeScript for the test processes, one file for one, into .scratch/tests. A process that
 * compiles what it imports, as tsx does, takes 0.5 to 0.9 CPU seconds more, and a run has hundreds of them.
 */
import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { transformSync } from 'esbuild';
import { fromRoot, ROOT, sourcesIn } from '../imports.mjs';

const OUT = join(ROOT, '.scratch/tests');
const FOLDERS = ['packages', 'test', 'scripts', 'site', 'bench'];
/** The JSON that modules import. */
const DATA = ['site/src/explore/models.json'];

/** The compiled file of a source file, both from the root. */
const compiled = (file) => join(OUT, file.replace(/\.tsx?$/, '.js'));

/** The time of a file's last change. Unlike mtime, an older file that takes a name has a new one. */
const changed = (path) => (existsSync(path) ? statSync(path).ctimeMs : 0);

/**
 * Compiles what has changed since the last run.
 *
 * @returns the path of a test file that a process can run
 */
export function compile() {
  // Files compiled in another folder, from which this one was copied or moved, name the files there.
  const place = join(OUT, 'place');
  if (!existsSync(place) || readFileSync(place, 'utf8') !== ROOT) {
    rmSync(OUT, { recursive: true, force: true });
    write(place, ROOT);
  }
  const own = changed(fileURLToPath(import.meta.url));
  const sources = FOLDERS.flatMap((folder) => sourcesIn(join(ROOT, folder))).map(fromRoot);
  const wanted = new Set();
  for (const file of [...sources, ...DATA]) {
    const from = join(ROOT, file);
    const to = compiled(file);
    wanted.add(to);
    if (changed(to) <= Math.max(own, changed(from)))
      write(to, DATA.includes(file) ? readFileSync(from) : compileFile(from));
  }
  for (const folder of readdirSync(join(ROOT, 'packages'))) wanted.add(linkPackage(folder));
  for (const folder of FOLDERS)
    for (const name of readdirSync(join(OUT, folder), { recursive: true, encoding: 'utf8' })) {
      const path = join(OUT, folder, name);
      if (/\.(m?js|json)$/.test(name) && !wanted.has(path)) rmSync(path); // its source is gone
    }
  return compiled;
}

/** Writes a file at once: another run may read it now. */
function write(path, content) {
  mkdirSync(dirname(path), { recursive: true });
  const part = `${path}.${process.pid}`;
  writeFileSync(part, content);
  renameSync(part, path);
}

function compileFile(path) {
  const { code } = transformSync(readFileSync(path, 'utf8'), {
    loader: path.endsWith('.mjs') ? 'js' : path.endsWith('x') ? 'tsx' : 'ts',
    target: 'node20.19',
    jsx: 'automatic',
    jsxImportSource: 'preact',
    sourcefile: path,
    sourcemap: 'inline',
    sourcesContent: false,
    // A module finds its files from its place in the repository.
    define: {
      'import.meta.url': JSON.stringify(pathToFileURL(path).href),
      'import.meta.dirname': JSON.stringify(dirname(path)),
    },
  });
  return code;
}

/**
 * Makes the name of a package lead to its compiled sources. For its users it leads to dist/.
 *
 * @returns the path of the package.json that does so
 */
function linkPackage(folder) {
  const text = readFileSync(join(ROOT, 'packages', folder, 'package.json'), 'utf8');
  const path = join(OUT, 'packages', folder, 'package.json');
  write(path, text.replaceAll('./dist/', './src/'));
  const link = join(OUT, 'node_modules', JSON.parse(text).name);
  mkdirSync(dirname(link), { recursive: true });
  if (!existsSync(link)) symlinkSync(dirname(path), link, 'junction');
  return path;
}
