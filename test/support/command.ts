/** Running the command line as a user does: a process, its exit code, what it printed. */
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

/** The repository. */
export const ROOT = fileURLToPath(new URL('../..', import.meta.url));

/** What a command left. */
export interface Ran {
  readonly status: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

/**
 * Runs `ropewalk …` from the sources.
 *
 * @param cwd - where
 * @param args - command and options
 */
export function ropewalkIn(cwd: string, ...args: string[]): Ran {
  const { status, stdout, stderr } = spawnSync(
    process.execPath,
    ['--import', import.meta.resolve('tsx'), join(ROOT, 'src/cli/main.ts'), ...args],
    { cwd, encoding: 'utf8', maxBuffer: 2 ** 26 },
  );
  return { status, stdout, stderr };
}
