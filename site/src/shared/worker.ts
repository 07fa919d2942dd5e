/** Workers: everything heavy runs in one, and a worker that dies is said. @module */
import { type Remote, wrap } from 'comlink';

/** A worker and the functions that it exposes. */
export interface Helper<T> {
  /** Calls what the worker exposes; a call rejects when the worker dies. */
  call<R>(task: (remote: Remote<T>) => Promise<R>): Promise<R>;
  /** Ends it: what runs in it is lost. */
  end(): void;
}

/**
 * Starts a worker.
 *
 * @param worker - made where a bundler sees its file:
 *   `new Worker(new URL('./suites.worker.ts', import.meta.url), { type: 'module' })`
 */
export function helper<T>(worker: Worker): Helper<T> {
  const remote = wrap<T>(worker);
  let end = (_reason: Error): void => {};
  const died = new Promise<never>((_, reject) => {
    end = reject;
  });
  died.catch(() => undefined); // said by the calls that wait
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
