/** Lets a worker receive messages of its page during a long task. @module */

/** Waits for the next task. Waiting messages are handled before it. */
export function breath(): Promise<void> {
  const { port1, port2 } = new MessageChannel();
  return new Promise((resolve) => {
    port1.onmessage = () => {
      port1.close();
      resolve();
    };
    port2.postMessage(null);
  });
}
