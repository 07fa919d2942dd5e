/** Starts workers, in which all heavy work runs, and reports when a worker dies. @module */
import { type Remote, wrap } from 'comlink';
import type { Task } from './task.worker.js';

/** A worker and the functions that it exposes. */
export interface Helper<T> {
  /** Calls a function of the worker. The call rejects when the worker dies. */
  call<R>(task: (remote: Remote<T>) => Promise<R>): Promise<R>;
  /** Stops the worker. Its running calls are lost. */
  end(): void;
}

/**
 * Starts a worker.
 *
 * @param task - the module that it loads; task.worker.ts lists them
 */
export function helper<T>(task: Task): Helper<T> {
  const worker = new Worker(new URL('./task.worker.ts', import.meta.url), { type: 'module', name: task });
  const remote = wrap<T>(worker);
  let end = (_reason: Error): void => {};
  const died = new Promise<never>((_, reject) => {
    end = reject;
  });
  died.catch(() => undefined); // the waiting calls report it
  worker.addEventListener('error', (event) => {
    event.preventDefault();
    end(
      new Error(
        `A worker of this page stopped: ${event.message || 'the browser gives no reason; memory may be full'}.`,
      ),
    );
  });
  return {
    call: (task) => Promise.race([task(remote), died]),
    end: () => {
      worker.terminate();
      end(new Error('Stopped.'));
    },
  };
}
