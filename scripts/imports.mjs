/** Who imports whom: the import graph of packages, site, tests, scripts and bench, for checks and for the test runner. */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join, relative, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

/** The repository. */
export const ROOT = join(dirname(fileURLToPath(import.meta.url)), '..');

const IMPORT =
  /(?:^|\n)\s*(?:import|export)\s(?:([^'";]*?)\sfrom\s)?['"]([^'"]+)['"]|\bimport\(\s*['"]([^'"]+)['"]\s*\)/g;

/**
 * The imports and re-exports of a module's text.
 *
 * @returns for each the target as written, the words between `import` or `export` and `from`, and whether it is loaded
 *   only when the code comes there: `import(…)`
 */
export function importsOf(text) {
  return [...text.matchAll(IMPORT)].map(([whole, words, from, called]) => ({
    target: from ?? called,
    words: words?.trim() ?? '',
    exported: /^\s*export\s/.test(whole),
    lazy: called !== undefined,
  }));
}

/** The source files below a folder; assembly/ is AssemblyScript: asc resolves its imports. */
export function sourcesIn(folder) {
  return readdirSync(folder, { recursive: true, encoding: 'utf8' })
    .filter((name) => /\.(tsx?|mjs)$/.test(name) && !/(^|[\\/])(node_modules|dist|assembly)[\\/]/.test(name))
    .map((name) => join(folder, name));
}

/** The file that a relative import names: `./x.js` is x.ts or x.tsx in the sources. */
export function fileOf(from, target) {
  const path = resolve(dirname(from), target);
  const source = path.replace(/\.js$/, '.ts');
  return [source, `${source}x`, path].find((one) => existsSync(one));
}

/**
 * The names in braces of an import or export that are there when it runs: types are not.
 *
 * @returns each as the imported module calls it, and as this one does; undefined: all that the module exports
 */
function namesOf(words) {
  const braces = /\{([^}]*)\}/.exec(words)?.[1];
  if (words.startsWith('type ')) return [];
  if (braces === undefined || words.includes('*')) return undefined;
  return braces
    .split(',')
    .map((item) => item.trim())
    .filter((item) => item !== '' && !item.startsWith('type '))
    .map((item) => item.split(/\s+as\s+/))
    .map(([name, own = name]) => ({ name, own }));
}

/**
 * The files that each file needs, by what it imports. A name that is imported by a package's entry leads to the file
 * that defines it, not to all that the entry exports: else every change in a package would concern all who use it.
 */
export class ImportGraph {
  #imports = new Map();
  /** name of an entry, `@ropewalk/formats/node` → its source */
  #entries = new Map();

  constructor(root = ROOT) {
    for (const folder of readdirSync(join(root, 'packages'))) {
      const home = join(root, 'packages', folder);
      const { name, exports = {} } = JSON.parse(readFileSync(join(home, 'package.json'), 'utf8'));
      for (const [entry, at] of Object.entries(exports))
        if (at.default?.startsWith('./dist/'))
          this.#entries.set(
            name + entry.slice(1),
            join(home, at.default.replace('./dist/', 'src/').replace(/\.js$/, '.ts')),
          );
    }
  }

  /** The files that a file imports itself, but those that it loads only when it comes there. */
  directOf(path) {
    let found = this.#imports.get(path);
    if (!found) {
      found = new Set();
      this.#imports.set(path, found);
      for (const { target, words, lazy } of this.#read(path)) {
        if (lazy) continue;
        const entry = this.#entries.get(target);
        const file = this.#fileOf(path, target);
        if (file === undefined) continue;
        const names = namesOf(words);
        if (entry && names) for (const { name } of names) found.add(this.#definerOf(entry, name) ?? entry);
        else if (names?.length !== 0) found.add(file);
      }
    }
    return found;
  }

  /** The files that a file loads only when it comes there. */
  lazyOf(path) {
    return this.#read(path).flatMap(({ target, lazy }) => (lazy ? (this.#fileOf(path, target) ?? []) : []));
  }

  /** All files that these files need, with themselves. */
  needsOf(...paths) {
    const seen = new Set(paths);
    for (const file of seen) for (const next of this.directOf(file)) seen.add(next);
    return seen;
  }

  #fileOf(path, target) {
    return this.#entries.get(target) ?? (target.startsWith('.') ? fileOf(path, target) : undefined);
  }

  #read(path) {
    return /\.(tsx?|mjs)$/.test(path) && existsSync(path) ? importsOf(readFileSync(path, 'utf8')) : [];
  }

  /** The file that defines a name which a file that re-exports gives; undefined where the file itself defines it. */
  #definerOf(path, name, seen = new Set()) {
    if (seen.has(path)) return undefined;
    seen.add(path);
    const exports = this.#read(path).filter(({ exported }) => exported);
    for (const { target, words } of exports) {
      const file = this.#fileOf(path, target);
      if (file === undefined) continue;
      const space = /^\* as (\w+)$/.exec(words)?.[1];
      if (space === name) return file;
      const names = space ? [] : namesOf(words);
      const found = names?.find(({ own }) => own === name);
      if (found) return this.#definerOf(file, found.name, seen) ?? file;
      // `export * from`: the file defines the name, or exports it on.
      const defines = names ? undefined : new RegExp(`^export .*\\b${name}\\b`, 'm').test(readFileSync(file, 'utf8'));
      const deeper =
        defines === undefined ? undefined : (this.#definerOf(file, name, seen) ?? (defines ? file : undefined));
      if (deeper) return deeper;
    }
    return undefined;
  }
}

/** A path from the repository's root, with forward slashes. */
export const fromRoot = (path) => relative(ROOT, path).replaceAll('\\', '/');
