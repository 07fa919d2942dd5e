/** Selects the test files of a run. */
import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { fromRoot, ImportGraph, ROOT, sourcesIn } from '../imports.mjs';
import { TIERS, tierOf } from './tiers.mjs';

/** A test that calls one of these packs, installs or serves the built packages, so it needs every package. */
const BUILDS = /\b(?:installInto|tarballOf|consumerTool|builtSite|serveSite|builtPackage)\(/;
/** A test that imports this file runs the command line, and needs the commands that it names. */
const RUNS = 'test/support/command.ts';
/** The folders of tests: test/ at the root and in each package. */
const IN_TESTS = /^(packages\/[^/]+\/)?test\//;
const PROGRAM = join(ROOT, 'packages/cli/src/program.ts');

/** The test files of the repository, and the files that each needs. */
export class TestFiles {
  #graph = new ImportGraph();
  all = [...sourcesIn(join(ROOT, 'test')), ...sourcesIn(join(ROOT, 'packages'))]
    .map(fromRoot)
    .filter((file) => file.endsWith('.test.ts') && IN_TESTS.test(file))
    .sort();

  /** Lists a file's direct and indirect imports and the commands that it names, as paths from the root. */
  needsOf(file) {
    const needs = this.#graph.needsOf(join(ROOT, file));
    const commands = needs.has(join(ROOT, RUNS))
      ? this.#graph
          .lazyOf(PROGRAM)
          .filter((path) => names(file, [`'${basename(path, '.ts')}'`, ` ${basename(path, '.ts')} `]))
      : [];
    return new Set([...needs, ...this.#graph.needsOf(...commands)].map(fromRoot));
  }

  /** Lists the files of a tier. `slow` also contains the files of `default` whose tests have a size, to run in full. */
  ofTier(tier) {
    return this.all.filter((file) => tierOf(file) === tier || (tier === 'slow' && this.#isSized(file)));
  }

  /** Says whether a file's tests have a size: it imports test/support/size.ts directly or through other test files. */
  #isSized(file) {
    if (tierOf(file) !== 'default') return false;
    const seen = new Set([join(ROOT, file)]);
    for (const one of seen)
      for (const next of this.#graph.directOf(one)) if (fromRoot(next).startsWith('test/support/')) seen.add(next);
    return seen.has(join(ROOT, 'test/support/size.ts'));
  }

  /**
   * Returns the files for a name that the user gives: a test file, a folder of tests, a package (its tests), or a
   * source file (the tests that need it).
   *
   * @throws when a name fits no test
   */
  named(name) {
    const path = fromRoot(join(process.cwd(), name));
    const own = path.replace(/^packages\/([^/]+)\/?$/, 'packages/$1/test');
    const below = this.all.filter((file) => file === own || file.startsWith(`${own}/`));
    const found = below.length > 0 ? below : existsSync(join(ROOT, path)) ? this.affectedBy([path]) : [];
    if (found.length === 0)
      throw new Error(
        `${name}: no test has this path, and none needs this file. Give a package such as packages/formats, a file or folder of tests, or a source file.`,
      );
    return found;
  }

  /** Lists the files that need one of the changed files. */
  affectedBy(changed) {
    // Tests read other files by path, so a change affects the tests whose modules name the file's folder. That is the
    // top folder, or in a package or a folder of tests the one below it.
    const modules = changed.filter((path) =>
      /^(packages\/[^/]+\/(src|test)|site|test|bench|scripts)\/.*\.(tsx?|mjs)$/.test(path),
    );
    const others = changed.filter((path) => !modules.includes(path));
    if (others.some((path) => /^(package(-lock)?\.json|tsconfig.*\.json|scripts\/test\/.*)$/.test(path)))
      return this.all;
    const folderOf = (path) =>
      path.split('/')[path.startsWith('packages/') ? (IN_TESTS.test(path) ? 3 : 2) : path.startsWith('test/') ? 1 : 0];
    const words = [...new Set(others.map(folderOf).filter(Boolean))];
    return this.all.filter((file) => {
      const needs = this.needsOf(file);
      const own = [...needs].filter((one) => IN_TESTS.test(one) && one !== 'test/support/build.ts');
      if (
        changed.some((path) => path.startsWith('packages/') && !IN_TESTS.test(path)) &&
        own.some((one) => one !== RUNS && BUILDS.test(textOf(one)))
      )
        return true;
      if (modules.some((path) => needs.has(path))) return true;
      return words.length > 0 && own.some((one) => names(one, words));
    });
  }
}

const texts = new Map();
function textOf(file) {
  if (!texts.has(file)) texts.set(file, readFileSync(join(ROOT, file), 'utf8'));
  return texts.get(file);
}
const names = (file, words) => words.some((word) => textOf(file).includes(word));

/** Lists the paths that differ from a commit, with the files that git does not track yet. */
export function changedSince(commit) {
  const git = (...args) => execFileSync('git', args, { cwd: ROOT, encoding: 'utf8' }).split('\n').filter(Boolean);
  return [...git('diff', '--name-only', commit), ...git('ls-files', '--others', '--exclude-standard')];
}

/** Returns the tiers that an option names. @throws for an unknown name */
export function tiersNamed(text) {
  if (text === 'all') return Object.keys(TIERS);
  const names = text.split(',');
  const wrong = names.find((name) => !(name in TIERS));
  if (wrong !== undefined) throw new Error(`--tier: expected ${Object.keys(TIERS).join(', ')} or all, got "${wrong}"`);
  return names;
}
