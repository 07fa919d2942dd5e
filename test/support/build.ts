/** The package for tests that need it built: compiled, or as `npm install` leaves it in a user's folder. */
import { execFileSync, spawnSync } from 'node:child_process';
import { chmodSync, cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

/** The repository. */
export const ROOT = fileURLToPath(new URL('../..', import.meta.url));

let home: string | undefined;

/**
 * The package, compiled once a process, with what it reads beside it: package.json, models, vectors, and the checkout's node_modules.
 *
 * @returns its folder; `dist/` in it is what is published
 */
export function builtPackage(): string {
  if (home) return home;
  const folder = mkdtempSync(join(tmpdir(), 'ropewalk-built-'));
  process.on('exit', () => rmSync(folder, { recursive: true, force: true }));
  for (const name of ['package.json', 'models', 'vectors', 'node_modules'])
    symlinkSync(join(ROOT, name), join(folder, name));
  const tsc = join(ROOT, 'node_modules/typescript/bin/tsc');
  execFileSync(process.execPath, [tsc, '-p', join(ROOT, 'tsconfig.build.json'), '--outDir', join(folder, 'dist')], {
    cwd: ROOT,
  });
  home = folder;
  return folder;
}

/** Puts the compiled package into a folder, as `dist/` is published. */
export function buildInto(outDir: string): void {
  cpSync(join(builtPackage(), 'dist'), outDir, { recursive: true });
}

let tarball: string | undefined;

/** Packs the package with npm, once a process: built beside copies of what package.json lists, so that the checkout's own dist/ stays. */
function pack(): string {
  if (tarball) return tarball;
  const folder = mkdtempSync(join(tmpdir(), 'ropewalk-pack-'));
  process.on('exit', () => rmSync(folder, { recursive: true, force: true }));
  const stage = join(folder, 'stage');
  const { files } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8'));
  for (const name of ['package.json', ...files].filter((name: string) => name !== 'dist'))
    cpSync(join(ROOT, name), join(stage, name), { recursive: true });
  buildInto(join(stage, 'dist'));
  const options = { cwd: stage, encoding: 'utf8', shell: process.platform === 'win32' } as const;
  const { status, stdout, stderr } = spawnSync(
    'npm',
    ['pack', '--ignore-scripts', '--json', '--pack-destination', folder],
    options,
  );
  if (status !== 0) throw new Error(`npm pack: ${stderr}`);
  tarball = join(folder, JSON.parse(stdout)[0].filename);
  return tarball;
}

/**
 * Unpacks the package's tarball into the node_modules of a folder, with its dependencies and its command, as `npm install` does. Nothing is
 * fetched: the dependencies are links to the checkout's own.
 *
 * @param folder - an empty folder
 * @param peers - optional peers to have there too, if the checkout has them
 * @returns the folder of the package
 */
export function installInto(folder: string, peers: readonly string[] = []): string {
  const home = join(folder, 'node_modules/ropewalk');
  mkdirSync(home, { recursive: true });
  execFileSync('tar', ['-xzf', pack(), '-C', home, '--strip-components', '1']);
  const { bin, dependencies } = JSON.parse(readFileSync(join(home, 'package.json'), 'utf8'));
  for (const name of [
    ...Object.keys(dependencies),
    ...peers.filter((name) => existsSync(join(ROOT, 'node_modules', name))),
  ]) {
    const link = join(folder, 'node_modules', name);
    mkdirSync(dirname(link), { recursive: true });
    symlinkSync(join(ROOT, 'node_modules', name), link);
  }
  mkdirSync(join(folder, 'node_modules/.bin'));
  chmodSync(join(home, bin.ropewalk), 0o755);
  symlinkSync(join(home, bin.ropewalk), join(folder, 'node_modules/.bin/ropewalk'));
  return home;
}

/** Where a tool of test/consumers lies, or why tests with it are skipped. */
export function consumerTool(
  name: string,
): { readonly path: string; readonly missing: false } | { readonly missing: string } {
  try {
    return { path: createRequire(join(ROOT, 'test/consumers/package.json')).resolve(name), missing: false };
  } catch {
    return { missing: `${name} is not installed: npm run peers` };
  }
}
