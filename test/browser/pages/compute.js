/**
 * Runs in a page or in a page's worker. It computes a large RoPE and large linears on two threads, each repeatedly
 * until a worker has certainly taken part or the pool has given up. It compares every bit with the result of one
 * thread. It logs `{ before, after, one, operators: [{ name, rounds, withWorker, different }], sleeps }`.
 */
import { ropewalk } from 'ropewalk';

/** The number of jobs that another thread still held when this one had nothing left to claim. */
let held = 0;
const instantiate = WebAssembly.instantiate;
const watched = /** @type {any} */ (WebAssembly);
/** @type {(module: WebAssembly.Module, imports: WebAssembly.Imports) => Promise<unknown>} */
watched.instantiate = async (module, imports) => {
  const exports = /** @type {any} */ ((await instantiate(module, imports)).exports);
  // The last argument is the number of checks for the end of the job. With no check, the result 1 means that a worker
  // holds a chunk.
  const work = (/** @type {number[]} */ ...words) => {
    const left = exports.work(...words.slice(0, -1), 0);
    held += left;
    return left;
  };
  return { exports: { ...exports, work } };
};

let state = 1;
/** @param {number[]} shape  @returns {[Float32Array, { shape: number[] }]} arguments of tensor() */
const random = (...shape) => {
  const data = new Float32Array(shape.reduce((a, b) => a * b));
  for (let i = 0; i < data.length; i++) {
    state = (Math.imul(state, 1664525) + 1013904223) | 0;
    data[i] = state / 2 ** 31;
  }
  return [data, { shape }];
};

const LIMIT_MS = 60_000;
const asked = new URLSearchParams(location.search);
const many = await ropewalk({ backend: 'cpu', threads: Number(asked.get('threads') ?? 2) });
const before = many.capabilities();
const single = await ropewalk({ backend: 'cpu', threads: 1 });

let sleeps = 0;
const wait = Atomics.wait;
/** @type {any} */ (Atomics).wait = (/** @type {Parameters<typeof wait>} */ ...words) => {
  sleeps++;
  return wait(...words);
};

const heads = random(512, 32, 128);
const positions = Array.from({ length: 512 }, (_, s) => s);
const [rows, row, weight] = [random(96, 512), random(1, 512), random(8192, 512)];
/** @type {Record<string, (rw: typeof many) => import('ropewalk').Tensor>} */
const operators = {
  rope: (rw) => rw.rope(rw.tensor(...heads), positions, { pairing: 'half', base: 10000 }),
  'linear, many rows': (rw) => rw.linear(rw.tensor(...rows), rw.tensor(...weight)),
  'linear, one row': (rw) => rw.linear(rw.tensor(...row), rw.tensor(...weight)),
};
const found = [];
for (const [name, run] of Object.entries(operators)) {
  const bits = async (/** @type {typeof many} */ rw) => {
    const y = run(rw);
    const copy = /** @type {Float32Array} */ (await y.read());
    y.dispose();
    return new Uint32Array(copy.buffer);
  };
  const want = await bits(single);
  const seen = { name, rounds: 0, withWorker: false, different: 0 };
  const end = performance.now() + LIMIT_MS;
  while (!seen.withWorker && many.capabilities().threads > 1 && performance.now() < end) {
    held = 0;
    const got = await bits(many);
    seen.rounds++;
    seen.withWorker = held > 0;
    if (got.length !== want.length || got.some((word, i) => word !== want[i])) seen.different++;
    await new Promise((resolve) => setTimeout(resolve)); // workers start or fail to start between tasks
  }
  // The next result must be right too, whatever happened to the pool.
  if ((await bits(many)).some((word, i) => word !== want[i])) seen.different++;
  found.push(seen);
}
/** @type {any} */ (globalThis).disposeAll = () => many.dispose();
console.log(
  JSON.stringify({ before, after: many.capabilities(), one: single.capabilities(), operators: found, sleeps }),
);
