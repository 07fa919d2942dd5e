/** Which test files a run takes. */
import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { fromRoot, ImportGraph, ROOT, sourcesIn } from '../imports.mjs';
import { TIERS, tierOf } from './tiers.mjs';

/** A test that packs, installs or serves what is built needs every package. */
const BUILDS = /\b(?:installInto|tarballOf|consumerTool|builtSite|serveSite|builtPackage)\(/;
/** A test that runs the command needs those of its commands that it names. */
const RUNS = 'test/support/command.ts';
/** The folders of tests: test/, and a package's own. */
const IN_TESTS = /^(packages\/[^/]+\/)?test\//;
const PROGRAM = join(ROOT, 'packages/cli/src/program.ts');

/** The test files of the repository, and what each needs. */
export class TestFiles {
  #graph = new ImportGraph();
  all = [...sourcesIn(join(ROOT, 'test')), ...sourcesIn(join(ROOT, 'packages'))]
    .map(fromRoot)
    .filter((file) => file.endsWith('.test.ts') && IN_TESTS.test(file))
    .sort();

  /** What a file imports, what that imports, and the commands that it names; as paths from the root. */
  needsOf(file) {
    const needs = this.#graph.needsOf(join(ROOT, file));
    const commands = needs.has(join(ROOT, RUNS))
      ? this.#graph
          .lazyOf(PROGRAM)
          .filter((path) => names(file, [`'${basename(path, '.ts')}'`, ` ${basename(path, '.ts')} `]))
      : [];
    return new Set([...needs, ...this.#graph.needsOf(...commands)].map(fromRoot));
  }

  /** The files of a tier; `slow` also runs those of `default` whose tests have a size, in full. */
  ofTier(tier) {
    return this.all.filter((file) => tierOf(file) === tier || (tier === 'slow' && this.#isSized(file)));
  }

  /** Whether its tests have a size: it imports test/support/size.ts, itself or by what it shares with other tests. */
  #isSized(file) {
    if (tierOf(file) !== 'default') return false;
    const seen = new Set([join(ROOT, file)]);
    for (const one of seen)
      for (const next of this.#graph.directOf(one)) if (fromRoot(next).startsWith('test/support/')) seen.add(next);
    return seen.has(join(ROOT, 'test/support/size.ts'));
  }

  /**
   * The files that a person names: a test file, a folder of tests, a package (its tests), or a source file (the tests
   * that need it).
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

  /** The files that need one of these, which have changed. */
  affectedBy(changed) {
    // What is no module is read by its path: the tests concerned are those whose modules name its folder, which is the
    // top one, or one below a package and below a folder of tests.
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

/** Paths that differ from a commit, with those that git does not track yet. */
export function changedSince(commit) {
  const git = (...args) => execFileSync('git', args, { cwd: ROOT, encoding: 'utf8' }).split('\n').filter(Boolean);
  return [...git('diff', '--name-only', commit), ...git('ls-files', '--others', '--exclude-standard')];
}

/** The tiers that an option names. @throws for a name that is none */
export function tiersNamed(text) {
  if (text === 'all') return Object.keys(TIERS);
  const names = text.split(',');
  const wrong = names.find((name) => !(name in TIERS));
  if (wrong !== undefined) throw new Error(`--tier: expected ${Object.keys(TIERS).join(', ')} or all, got "${wrong}"`);
  return names;
}
