/** The site's worker. A page names the module that it loads: workers of their own would each have a copy of what they share. @module */
import { expose } from 'comlink';

const TASKS = {
  aicore: () => import('../aicore/kernel.worker.js'),
  bench: () => import('../bench/bench.worker.js'),
  'broken-model': () => import('./broken-model.worker.js'),
  check: () => import('../check/suites.worker.js'),
  diagnose: () => import('../diagnose/diagnose.worker.js'),
  docs: () => import('../docs/run.worker.js'),
  explore: () => import('../explore/rope.worker.js'),
  generate: () => import('../generate/model.worker.js'),
  probe: () => import('../probe/probe.worker.js'),
  write: () => import('../write/kernel.worker.js'),
};
export type Task = keyof typeof TASKS;

const early: MessageEvent[] = [];
const keep = (event: MessageEvent): void => void early.push(event);
addEventListener('message', keep);
try {
  const { default: exposed } = await TASKS[self.name as Task]();
  removeEventListener('message', keep);
  expose(exposed);
  for (const { data, ports } of early) dispatchEvent(new MessageEvent('message', { data, ports: [...ports] }));
} catch (error) {
  // A page hears of what is thrown outside of a promise only, and waits for ever otherwise.
  setTimeout(() => {
    throw error;
  });
}
