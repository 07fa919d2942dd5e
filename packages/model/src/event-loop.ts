/** Long work that lets others have their turn. @module */

/** After so long without a pause, timers, input and signals have waited long enough. */
const PAUSE_AFTER_MS = 16;
/** When the event loop last had a turn, as far as this file knows: a loop of short calls must pause too. */
let lastPause = 0;

/** Lets timers, input and other tasks run, if they have not for a while; awaiting a promise that is ready does not. */
export async function pauseIfDue(): Promise<void> {
  if (performance.now() - lastPause < PAUSE_AFTER_MS) return;
  await new Promise<void>((resolve) => {
    // Microseconds, where a timer costs a millisecond in Node and, from the fifth on, four in browsers. Those have only messages.
    if (typeof setImmediate === 'function') setImmediate(resolve);
    else {
      const { port1, port2 } = new MessageChannel();
      port1.onmessage = () => {
        port1.close();
        resolve();
      };
      port2.postMessage(undefined);
    }
  });
  lastPause = performance.now();
}
