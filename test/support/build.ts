/** Builds packages for tests: compiled in the checkout, or installed in a folder as `npm install` does. */
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

/** The root folder of the repository. */
export const ROOT = fileURLToPath(new URL('../..', import.meta.url));

/** The fields of a package.json that tests read. */
export interface Manifest {
  readonly name: string;
  readonly version: string;
  readonly bin?: Readonly<Record<string, string>>;
  readonly exports: Readonly<Record<string, string | { readonly types: string; readonly default: string }>>;
  readonly dependencies?: Readonly<Record<string, string>>;
  readonly sideEffects: boolean;
}

/** The `homepage` of the repository in the tests' packages. */
export const HOMEPAGE = 'https://ropewalk.example/docs/';

/** Each package of the workspace, by its folder in packages/. */
export const PACKAGES: ReadonlyMap<string, Manifest> = new Map(
  readdirSync(join(ROOT, 'packages')).map((folder) => [
    folder,
    JSON.parse(readFileSync(join(ROOT, 'packages', folder, 'package.json'), 'utf8')),
  ]),
);

/** The import name of each entry of each package. */
export const ENTRIES: readonly string[] = [...PACKAGES.values()].flatMap(({ name, exports }) =>
  Object.keys(exports)
    .filter((entry) => entry !== './package.json')
    .map((entry) => name + entry.slice(1)),
);

/**
 * Compiles the packages once per run.
 *
 * @param folder - a folder of packages/
 * @returns the dist/ of that package
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
 * Packs every package with `npm run pack`, once per run. It works in a copy, because packing copies vectors and models
 * into the package of the command, and tests that run at the same time would find only some of them.
 *
 * @returns the folder of the tarballs, whose names are FOLDER.tgz
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

/** Returns npm's name for the tarball of a package. */
export function tarballOf({ name, version }: Manifest): string {
  return join(tarballs(), `${name.replace('@', '').replace('/', '-')}-${version}.tgz`);
}

/**
 * Unpacks the packages' tarballs into the node_modules of a folder, with their dependencies and their command, as
 * `npm install` does. It fetches nothing: the dependencies are links into the checkout.
 *
 * @param folder - an empty folder
 * @param options - `packages`: the folders of the packages (default: all); `peers`: optional peers that are linked too,
 *   if the checkout has them
 * @returns the node_modules of the folder
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

/** Returns the path of a tool of test/consumers, or the reason why tests with it are skipped. */
export function consumerTool(
  name: string,
): { readonly path: string; readonly missing: false } | { readonly missing: string } {
  try {
    return { path: createRequire(join(ROOT, 'test/consumers/package.json')).resolve(name), missing: false };
  } catch {
    return { missing: `${name} is not installed: npm run peers` };
  }
}
