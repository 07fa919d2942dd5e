/** The packages for tests that need them built: compiled, or as `npm install` leaves them in a user's folder. */
import { spawnSync } from 'node:child_process';
import {
  chmodSync,
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { once } from './once.js';

/** The repository. */
export const ROOT = fileURLToPath(new URL('../..', import.meta.url));

/** What tests read of a package.json. */
export interface Manifest {
  readonly name: string;
  readonly version: string;
  readonly bin?: Readonly<Record<string, string>>;
  readonly exports: Readonly<Record<string, string | { readonly types: string; readonly default: string }>>;
  readonly dependencies?: Readonly<Record<string, string>>;
  readonly sideEffects: boolean;
}

/** The `homepage` of the repository that tests pack. */
export const HOMEPAGE = 'https://ropewalk.example/docs/';

/** Each package of the workspace, by its folder in packages/. */
export const PACKAGES: ReadonlyMap<string, Manifest> = new Map(
  readdirSync(join(ROOT, 'packages')).map((folder) => [
    folder,
    JSON.parse(readFileSync(join(ROOT, 'packages', folder, 'package.json'), 'utf8')),
  ]),
);

/** Each entry of each package, as a user imports it. */
export const ENTRIES: readonly string[] = [...PACKAGES.values()].flatMap(({ name, exports }) =>
  Object.keys(exports)
    .filter((entry) => entry !== './package.json')
    .map((entry) => name + entry.slice(1)),
);

/**
 * Compiles the packages, once a run.
 *
 * @param folder - of packages/
 * @returns its dist/
 */
export function builtPackage(folder: string): string {
  once('dist', () => {
    const tsc = join(ROOT, 'node_modules/typescript/bin/tsc');
    const { status, stdout } = spawnSync(process.execPath, [tsc, '-b', 'packages/cli'], {
      cwd: ROOT,
      encoding: 'utf8',
    });
    if (status !== 0) throw new Error(`tsc -b: ${stdout}`);
  });
  return join(ROOT, 'packages', folder, 'dist');
}

/**
 * Packs every package with `npm run pack`, once a run, in a copy: packing puts vectors and models into the command's package, where
 * tests that run at the same time would find half of them.
 *
 * @returns the folder of the tarballs, named FOLDER.tgz
 */
export function tarballs(): string {
  builtPackage('cli');
  return once('tarballs', (folder) => {
    const copy = join(folder, 'copy');
    for (const name of ['packages', 'docs', 'models', 'vectors', 'LICENSE', 'package.json', 'scripts/pack.mjs'])
      cpSync(join(ROOT, name), join(copy, name), { recursive: true, preserveTimestamps: true });
    const manifest = JSON.parse(readFileSync(join(copy, 'package.json'), 'utf8'));
    writeFileSync(join(copy, 'package.json'), JSON.stringify({ ...manifest, homepage: HOMEPAGE }));
    for (const name of ['tsconfig.base.json', 'tsconfig.json']) cpSync(join(ROOT, name), join(copy, name));
    symlinkSync(join(ROOT, 'node_modules'), join(copy, 'node_modules'));
    const options = { cwd: copy, encoding: 'utf8', shell: process.platform === 'win32' } as const;
    const { status, stderr } = spawnSync('npm', ['run', 'pack'], options);
    if (status === 0) cpSync(join(copy, 'ropewalk'), folder, { recursive: true });
    rmSync(copy, { recursive: true });
    if (status !== 0) throw new Error(`npm run pack: ${stderr}`);
  });
}

/** The tarball of a package, as npm names it. */
export function tarballOf({ name, version }: Manifest): string {
  return join(tarballs(), `${name.replace('@', '').replace('/', '-')}-${version}.tgz`);
}

/**
 * Unpacks the packages' tarballs into the node_modules of a folder, with their dependencies and their command, as
 * `npm install` does. Nothing is fetched: the dependencies are links to the checkout's own.
 *
 * @param folder - an empty folder
 * @param options - `packages`: which, by their folders, all unless given; `peers`: optional peers to have there too, if
 *   the checkout has them
 * @returns its node_modules
 */
export function installInto(
  folder: string,
  { packages = [...PACKAGES.keys()], peers = [] }: { packages?: readonly string[]; peers?: readonly string[] } = {},
): string {
  const modules = join(folder, 'node_modules');
  const others = new Set(peers.filter((name) => existsSync(join(ROOT, 'node_modules', name))));
  for (const manifest of packages.map((name) => PACKAGES.get(name)!)) {
    const home = join(modules, manifest.name);
    mkdirSync(home, { recursive: true });
    spawnSync('tar', ['-xzf', tarballOf(manifest), '-C', home, '--strip-components', '1']);
    for (const name of Object.keys(manifest.dependencies ?? {}))
      if (!/^(@ropewalk\/|ropewalk$)/.test(name)) others.add(name);
    for (const [name, file] of Object.entries(manifest.bin ?? {})) {
      mkdirSync(join(modules, '.bin'), { recursive: true });
      chmodSync(join(home, file), 0o755);
      symlinkSync(join(home, file), join(modules, '.bin', name));
    }
  }
  for (const name of others) {
    const link = join(modules, name);
    mkdirSync(dirname(link), { recursive: true });
    symlinkSync(join(ROOT, 'node_modules', name), link);
  }
  return modules;
}

/** Where a tool of test/consumers is, or why tests with it are skipped. */
export function consumerTool(
  name: string,
): { readonly path: string; readonly missing: false } | { readonly missing: string } {
  try {
    return { path: createRequire(join(ROOT, 'test/consumers/package.json')).resolve(name), missing: false };
  } catch {
    return { missing: `${name} is not installed: npm run peers` };
  }
}
