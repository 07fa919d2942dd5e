/** Work that a signal stops. @module */

class Interrupted extends Error {
  constructor(readonly signal: NodeJS.Signals) {
    super(`interrupted by ${signal}`);
  }
}

/**
 * Runs work that SIGINT, SIGTERM or SIGHUP stops: its AbortSignal is aborted, it cleans up, and the process ends as if
 * the signal had ended it. @returns the work's result; undefined when it was stopped, just before the process ends
 */
export async function untilInterrupted<T>(
  command: string,
  work: (signal: AbortSignal) => Promise<T>,
): Promise<T | undefined> {
  const abort = new AbortController();
  const stop = (signal: NodeJS.Signals): void => abort.abort(new Interrupted(signal));
  const signals: NodeJS.Signals[] = ['SIGINT', 'SIGTERM', 'SIGHUP'];
  const release = (): void => {
    for (const signal of signals) process.off(signal, stop);
  };
  for (const signal of signals) process.on(signal, stop);
  try {
    return await work(abort.signal);
  } catch (error) {
    if (!(error instanceof Interrupted)) throw error;
    process.stderr.write(`ropewalk: ${command}: interrupted; nothing was written\n`);
    release();
    process.kill(process.pid, error.signal);
    return undefined;
  } finally {
    release();
  }
}
