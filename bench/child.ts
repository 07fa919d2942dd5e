/**
 * Helpers of both benchmark commands: they run a task in a child process for each number of threads, and read the
 * commit.
 *
 * @module
 */
import { execFileSync, fork } from 'node:child_process';
import { InvalidArgumentError } from 'commander';
import { showProgress } from './progress.js';

/** Environment variable that makes a command a child. */
const CHILD = 'ROPEWALK_BENCH_CHILD';

/** Says whether {@link runInChild} started this process. If so, it must call {@link serveAsChild}. */
export const isChild = process.env[CHILD] !== undefined;

/** Reads the value of --threads. */
export function parseThreads(text: string): number[] {
  const threads = text.split(',').map(Number);
  if (!threads.every((count) => Number.isInteger(count) && count >= 1 && count <= 64)) {
    throw new InvalidArgumentError(`expected integers in [1, 64] with commas, got ${text}`);
  }
  return threads;
}

/** The short commit, with "+ changes" when the tree differs from it. */
export function commit(): string {
  const git = (...words: string[]): string =>
    execFileSync('git', words, {
      cwd: new URL('..', import.meta.url),
      encoding: 'utf8',
      stdio: ['ignore', 'pipe', 'ignore'],
    }).trim();
  try {
    return `${git('rev-parse', '--short', 'HEAD')}${git('status', '--porcelain', '--', 'packages', 'bench') ? ' + changes' : ''}`;
  } catch {
    return 'not a git checkout';
  }
}

/**
 * Runs a task in a separate process, because some peers fix their number of threads once, and because no heap should be
 * warm from the previous run.
 *
 * @param script - the path of the command that serves the task
 * @param task - is sent to that process
 * @param what - the task in words, for messages
 * @throws Error when the process ends without a result; the process has then printed the reason
 */
export function runInChild<Task, Result>(script: string, task: Task, what: string): Promise<Result> {
  return new Promise((resolve, reject) => {
    const child = fork(script, { env: { ...process.env, [CHILD]: '1' }, serialization: 'advanced' });
    let result: Result | undefined;
    child.on('message', (message: Result) => {
      result = message;
      child.send('thanks');
    });
    child.on('error', reject);
    child.on('exit', (code) =>
      result ? resolve(result) : reject(new Error(`bench: the process for ${what} ended with ${code}`)),
    );
    child.send(task as object);
  });
}

/**
 * Serves one task in the child process.
 *
 * @param run - computes the result
 */
export function serveAsChild<Task, Result>(run: (task: Task) => Promise<Result>): void {
  process.once('message', async (task: Task) => {
    try {
      const result = await run(task);
      showProgress();
      // The threads of the peers stay alive, so this process has to end itself once its result has arrived.
      process.once('message', () => process.exit(0));
      process.send!(result);
    } catch (reason) {
      console.error(reason instanceof Error ? reason.message : reason);
      process.exit(1);
    }
  });
}
