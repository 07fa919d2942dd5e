/** Running the command line as a user does: a process, its exit code, what it printed. */
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { builtPackage } from './build.js';

export { ROOT } from './build.js';
/** What a command left. */
export interface Ran {
  readonly status: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

/** The path of the compiled command, to start it with `node` directly: five times as fast as from the sources. */
export function commandPath(): string {
  return join(builtPackage('cli'), 'main.js');
}

/**
 * Runs `ropewalk …`.
 *
 * @param cwd - where
 * @param args - command and options
 */
export function ropewalkIn(cwd: string, ...args: string[]): Ran {
  const { status, stdout, stderr } = spawnSync(process.execPath, [commandPath(), ...args], {
    cwd,
    encoding: 'utf8',
    maxBuffer: 2 ** 26,
  });
  return { status, stdout, stderr };
}
