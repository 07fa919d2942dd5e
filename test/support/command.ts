/** Runs the command line in this process, or as a separate process like a user. */
import { AsyncLocalStorage } from 'node:async_hooks';
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { Readable, Writable } from 'node:stream';
import { commandLine } from '@ropewalk/cli/internal';
import { builtPackage } from './build.js';

export { ROOT } from './build.js';
/** The result of a command. */
export interface Ran {
  readonly status: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

/** The streams of a command, which replace those of the process. */
class Streams {
  readonly #texts = { stdout: [] as Uint8Array[], stderr: [] as Uint8Array[] };
  readonly stdout = new Writable({ write: (bytes, _, done) => done(void this.#texts.stdout.push(bytes)) });
  readonly stderr = new Writable({ write: (bytes, _, done) => done(void this.#texts.stderr.push(bytes)) });
  readonly stdin = Object.assign(Readable.from([]), { unref() {} });

  written(name: 'stdout' | 'stderr'): string {
    return Buffer.concat(this.#texts[name]).toString();
  }
}

/** Only the command sees these streams. A reporter that prints at the same time still uses the process's own. */
const streamsOf = new AsyncLocalStorage<Streams>();
const NAMES = ['stdin', 'stdout', 'stderr'] as const;
let busy = false;

/**
 * Runs `ropewalk …` from the sources in this process, to test arguments, output, messages, files and exit codes. Use
 * {@link ropewalkProcess} when streams, signals, the environment or the end of the process matter.
 *
 * @param cwd - the working folder; the whole process changes to it, so only one command can run at a time
 * @param args - the command and its options
 */
export async function ropewalkIn(cwd: string, ...args: string[]): Promise<Ran> {
  if (busy) throw new Error('another command runs in this process: await it first');
  busy = true;
  const before = process.cwd();
  const own = NAMES.map((name) => [name, Object.getOwnPropertyDescriptor(process, name)!] as const);
  const streams = new Streams();
  try {
    process.chdir(cwd);
    for (const [name, { get }] of own)
      Object.defineProperty(process, name, {
        configurable: true,
        enumerable: true,
        get: () => streamsOf.getStore()?.[name] ?? get!.call(process),
      });
    const status = await streamsOf.run(streams, () => commandLine(args).run());
    return { status, stdout: streams.written('stdout'), stderr: streams.written('stderr') };
  } finally {
    for (const [name, descriptor] of own) Object.defineProperty(process, name, descriptor);
    process.chdir(before);
    busy = false;
  }
}

/** Writes options of the library as a user types them: `kvHeads: '2'` becomes `--kv-heads=2`. */
export function flagsOf(options: object): string[] {
  return Object.entries(options).map(([name, value]) => {
    const flag = `--${name.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)}`;
    return value === true ? flag : `${flag}=${value}`;
  });
}

/** Returns the path of the compiled command, which `node` can run. */
export function commandPath(): string {
  return join(builtPackage('cli'), 'main.js');
}

/**
 * Runs `ropewalk …` as a separate process, to test its start, its streams and its exit code.
 *
 * @param cwd - the working folder
 * @param args - the command and its options
 */
export function ropewalkProcess(cwd: string, ...args: string[]): Ran {
  const { status, stdout, stderr } = spawnSync(process.execPath, [commandPath(), ...args], {
    cwd,
    encoding: 'utf8',
    maxBuffer: 2 ** 26,
  });
  return { status, stdout, stderr };
}
