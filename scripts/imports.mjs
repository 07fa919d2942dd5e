/** Builds the import graph of packages, site, tests, scripts and bench, for checks and for the test runner. */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join, relative, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

/** The root folder of the repository. */
export const ROOT = join(dirname(fileURLToPath(import.meta.url)), '..');

const IMPORT =
  /(?:^|\n)\s*(?:import|export)\s(?:([^'";]*?)\sfrom\s)?['"]([^'"]+)['"]|\bimport\(\s*['"]([^'"]+)['"]\s*\)/g;

/**
 * Finds the imports and re-exports in a module's text.
 *
 * @returns for each one the target as written, the words between `import` or `export` and `from`, and whether it is a
 *   dynamic `import(…)`
 */
export function importsOf(text) {
  return [...text.matchAll(IMPORT)].map(([whole, words, from, called]) => ({
    target: from ?? called,
    words: words?.trim() ?? '',
    exported: /^\s*export\s/.test(whole),
    lazy: called !== undefined,
  }));
}

/** Lists the source files below a folder, without assembly/, whose AssemblyScript imports asc resolves. */
export function sourcesIn(folder) {
  return readdirSync(folder, { recursive: true, encoding: 'utf8' })
    .filter((name) => /\.(tsx?|mjs)$/.test(name) && !/(^|[\\/])(node_modules|dist|assembly)[\\/]/.test(name))
    .map((name) => join(folder, name));
}

/** Returns the source file of a relative import: `./x.js` is x.ts or x.tsx in the sources, `./x.js?raw` the text of x.js. */
export function fileOf(from, target) {
  const path = resolve(dirname(from), target.replace(/\?raw$/, ''));
  const source = path.replace(/\.js$/, '.ts');
  return [source, `${source}x`, path].find((one) => existsSync(one));
}

/**
 * Lists the names in the braces of an import or export, without types, which do not exist when the code runs.
 *
 * @returns each name in the imported module and in this module; undefined if all exports are taken
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
 * Finds the files that each file needs, by its imports. A name that comes from a package's entry leads to the file that
 * defines it, not to all files of the entry. Otherwise every change in a package would affect all its users.
 */
export class ImportGraph {
  #imports = new Map();
  /** Maps the name of an entry, such as `@ropewalk/formats/node`, to its source. */
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

  /** Lists the files that a file imports directly, without its dynamic imports. */
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

  /** Lists the files that a file imports dynamically. */
  lazyOf(path) {
    return this.#read(path).flatMap(({ target, lazy }) => (lazy ? (this.#fileOf(path, target) ?? []) : []));
  }

  /** Lists these files and all files that they need. */
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

  /**
   * Finds the file that defines a re-exported name. It is undefined if the re-exporting file defines the name itself.
   */
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
      // After `export * from`, the target either defines the name or re-exports it.
      const defines = names ? undefined : new RegExp(`^export .*\\b${name}\\b`, 'm').test(readFileSync(file, 'utf8'));
      const deeper =
        defines === undefined ? undefined : (this.#definerOf(file, name, seen) ?? (defines ? file : undefined));
      if (deeper) return deeper;
    }
    return undefined;
  }
}

/** Returns a path relative to the repository's root, with forward slashes. */
export const fromRoot = (path) => relative(ROOT, path).replaceAll('\\', '/');
