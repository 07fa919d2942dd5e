/**
 * A thread of the CPU backend: it waits in WebAssembly for chunks of jobs (assembly/index.ts, `serve`) until the host
 * stops it.
 *
 * Plain JavaScript, so that Node and browsers load the same file from src/ and from dist/, with no loader. Node passes
 * the start as workerData, a page posts it.
 */

// getBuiltinModule, not an import: a bundler for browsers would stumble over node:worker_threads.
const node = globalThis.process?.getBuiltinModule?.('node:worker_threads');

/**
 * Runs the worker's loop.
 *
 * @param {object} start
 * @param {WebAssembly.Module} start.module
 * @param {WebAssembly.Memory} start.memory
 * @param {number} start.board - address of the job board
 * @param {number} start.failed - its word that counts workers that failed: the host reads it while it waits
 * @param {number} start.slot - this worker's number
 * @param {number} start.looks - how often it looks for work before it sleeps
 */
function serve({ module, memory, board, failed, slot, looks }) {
  // Outside: a worker that cannot begin has claimed nothing, and no job waits for it.
  const { exports } = new WebAssembly.Instance(module, { env: { memory } });
  if (!node) globalThis.postMessage('began'); // pages ask; in Node a message would keep the process from ending
  try {
    /** @type {(board: number, slot: number, looks: number) => void} */ (exports.serve)(board, slot, looks);
  } catch (error) {
    Atomics.add(new Int32Array(memory.buffer, board, failed + 1), failed, 1);
    // In Node the host sees the worker's end. An error would abort the process (Node 20) if the host, which reads the
    // count, terminates the worker at that moment.
    if (!node) throw error;
  }
}

if (node?.parentPort) serve(node.workerData);
else globalThis.onmessage = (event) => serve(event.data);
