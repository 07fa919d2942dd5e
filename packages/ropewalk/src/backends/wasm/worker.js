/**
 * A thread of the CPU backend: it waits in WebAssembly for chunks of jobs (assembly/index.ts, `serve`) until the host stops it.
 *
 * Plain JavaScript, so that Node and browsers load the same file from src/ and from dist/, with no loader. One file for both:
 * Node hands the start over as workerData, a page posts it.
 */

// getBuiltinModule, not an import: a bundler for browsers would stumble over node:worker_threads.
const node = globalThis.process?.getBuiltinModule?.('node:worker_threads');

/**
 * @param {{ module: WebAssembly.Module, memory: WebAssembly.Memory, board: number, failed: number, slot: number, looks: number }} start -
 *   `failed` is the word of the board that counts workers that failed: the host looks there while it waits
 */
function serve({ module, memory, board, failed, slot, looks }) {
  // Outside: a worker that cannot begin has claimed nothing, and no job waits for it.
  const { exports } = new WebAssembly.Instance(module, { env: { memory } });
  if (!node) globalThis.postMessage('began'); // pages ask; in Node a message would keep the process from ending
  try {
    /** @type {(board: number, slot: number, looks: number) => void} */ (exports.serve)(board, slot, looks);
  } catch (error) {
    Atomics.add(new Int32Array(memory.buffer, board, failed + 1), failed, 1);
    throw error;
  }
}

if (node?.parentPort) serve(node.workerData);
else globalThis.onmessage = (event) => serve(event.data);
