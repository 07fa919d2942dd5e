/** Pauses in long work, so that the event loop can run other tasks. @module */

/** The longest time that timers, input and signals wait. */
const PAUSE_AFTER_MS = 16;
/** The last pause. It is kept between calls, because a loop of short calls must pause too. */
let lastPause = 0;

/** Lets timers, input and other tasks run, unless they just have. Awaiting a promise that is ready would not. */
export async function pauseIfDue(): Promise<void> {
  if (performance.now() - lastPause < PAUSE_AFTER_MS) return;
  await new Promise<void>((resolve) => {
    // These take microseconds. A timer takes a millisecond in Node, and four in browsers from the fifth on.
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
