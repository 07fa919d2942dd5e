/** One thread of the roofs: waits for a turn in `control`, does its share, counts itself done. See roofs.ts. */
import { workerData } from 'node:worker_threads';

const { module, memory, control, index } = workerData;
/** @type {any} */
const { copy, multiplyAdd } = new WebAssembly.Instance(module, { env: { memory } }).exports;
for (let turn = 0; ; turn++) {
  Atomics.wait(control, 0, turn);
  const [, , what, to, from, share, times] = control;
  if (what === 0) copy(to + index * share, from + index * share, share, times);
  else multiplyAdd(times, 0.999, 0.001);
  Atomics.add(control, 1, 1);
}
