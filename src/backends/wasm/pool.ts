/**
 * The threads of the CPU backend: started at the first job that is worth it, asleep when idle, never in the way of the process's end.
 *
 * The host always works too, and takes whatever chunks nobody else takes: a pool whose workers have not started yet, or never will,
 * only makes a job slower.
 *
 * @module
 */
import { RopewalkError } from '../../core/errors.js';
import type { Kernels } from './module.js';

/** The job board's words that the host reads or writes itself; assembly/index.ts lists all. */
const WORD = { done: 2, wake: 3, scratch: 9, scratchBytes: 10, stop: 11, workers: 12, failed: 13 } as const;
/** Words of the board. */
export const BOARD_WORDS = 64;

/** How often a thread looks for work, or for the end of it, before it gives the core away: about 50 µs. */
const LOOKS = 20000;
/** A worker that leaves its chunk undone this long is taken for dead; no chunk takes a hundredth of it. */
const PATIENCE_MS = 20000;
/** After so many failures in a row the pool stays off. */
const MAX_FAILURES = 3;
/** More threads than this have never paid for kernels of this kind. */
const MAX_THREADS = 16;

/** What a page can do about it; browsers do not tell which it was. */
const NOT_LOADED =
  'worker.js did not load: serve it beside the script that starts it, with the same COEP header, and allow it by worker-src of the CSP';

interface WorkerLike {
  terminate(): unknown;
  unref?(): void;
}

/** What a worker is started with. */
interface Start {
  readonly module: WebAssembly.Module;
  readonly memory: WebAssembly.Memory;
  readonly board: number;
  readonly slot: number;
  readonly looks: number;
}

/** What the pool needs of its host. */
export interface PoolOptions {
  readonly kernels: Kernels;
  readonly module: WebAssembly.Module;
  readonly memory: WebAssembly.Memory;
  /** Byte address of the job board. */
  readonly board: number;
  /** Threads in all, the host's own among them. */
  readonly threads: number;
}

/**
 * Threads that this machine and runtime would let the pool have, and why not more.
 *
 * @param wanted - what the user asked for, or undefined for as many as there are cores
 */
export function threadsHere(wanted: number | undefined): { threads: number; whyNot: string | undefined } {
  if (wanted === 1) return { threads: 1, whyNot: 'threads: not wanted (threads: 1)' };
  const isolated = nodeThreads() !== undefined || (globalThis as { crossOriginIsolated?: boolean }).crossOriginIsolated === true;
  if (!isolated) {
    return {
      threads: 1,
      whyNot:
        'threads: the page is not cross-origin isolated, so workers cannot share memory (send COOP: same-origin and COEP: require-corp)',
    };
  }
  const os = builtin<{ availableParallelism(): number }>('node:os');
  const cores = os?.availableParallelism() ?? globalThis.navigator?.hardwareConcurrency ?? 1;
  const threads = Math.min(wanted ?? cores, MAX_THREADS);
  return { threads, whyNot: threads > 1 ? undefined : 'threads: this machine gives one core' };
}

/** A module of Node's own, without an import that bundlers for browsers would follow. */
function builtin<T>(name: string): T | undefined {
  return (globalThis.process as { getBuiltinModule?(name: string): unknown } | undefined)?.getBuiltinModule?.(name) as T | undefined;
}

function nodeThreads(): { Worker: new (url: URL, options: object) => WorkerLike & NodeEvents } | undefined {
  return builtin('node:worker_threads');
}

interface NodeEvents {
  on(event: 'error' | 'exit', listener: (value: unknown) => void): void;
}

/** The threads of one backend. */
export class Pool {
  /** Why there are fewer threads than could be. */
  whyNot: string | undefined;
  private workers: { slot: number; worker: WorkerLike }[] = [];
  private job = 0;
  private failures = 0;
  private readonly mayBlock: boolean;

  constructor(private readonly options: PoolOptions) {
    this.mayBlock = mayBlock(options.memory.buffer);
  }

  /** Threads that compute: the host and its workers, once they are started. */
  get threads(): number {
    return this.failures >= MAX_FAILURES ? 1 : this.options.threads;
  }

  /** The board, laid anew each time because memory grows. */
  private get words(): Int32Array {
    return new Int32Array(this.options.memory.buffer, this.options.board, BOARD_WORDS);
  }

  /**
   * Sets the scratch memory of all threads; only between jobs.
   *
   * @param address - of the host's; the others' follow
   */
  setScratch(address: number, bytesPerThread: number): void {
    const words = this.words;
    words[WORD.scratch] = address;
    words[WORD.scratchBytes] = bytesPerThread;
  }

  /**
   * Runs a job on all threads and returns when it is done.
   *
   * @param kernel - its number
   * @param args - address of its words
   * @param units - how many
   * @param chunk - units that one claim takes
   * @throws {RopewalkError} DEVICE when a worker dies on it: the output is incomplete, the next job starts new workers
   */
  run(kernel: number, args: number, units: number, chunk: number): void {
    if (this.workers.length === 0) this.start();
    this.job = (this.job + 1) & 0xffffff;
    let left = this.options.kernels.work(this.options.board, this.job, kernel, args, units, chunk, LOOKS);
    if (left === 0) return;
    let since = performance.now();
    let done = Atomics.load(this.words, WORD.done);
    while (left !== 0) {
      const words = this.words;
      const now = Atomics.load(words, WORD.done);
      if (now !== done) {
        done = now;
        since = performance.now();
      }
      if (Atomics.load(words, WORD.failed) > 0) this.fail('a worker thread that crashed');
      if (performance.now() - since > PATIENCE_MS) this.fail(`a worker thread that has not answered for ${PATIENCE_MS} ms`);
      // Sleeping gives the core to the worker that the host waits for. A page's main thread must not sleep, so it looks on.
      if (this.mayBlock) Atomics.wait(words, BOARD_WORDS - 1, 0, 0.2);
      left = this.options.kernels.finish(this.options.board, LOOKS);
    }
  }

  /** Stops all workers. */
  dispose(): void {
    const words = this.words;
    Atomics.store(words, WORD.stop, 1);
    Atomics.add(words, WORD.wake, 1);
    Atomics.notify(words, WORD.wake);
    for (const { worker } of this.workers) void worker.terminate();
    this.workers = [];
  }

  private start(): void {
    if (this.threads === 1) return;
    this.whyNot = undefined;
    this.clear();
    for (let slot = 1; slot < this.options.threads; slot++) {
      try {
        this.workers.push({ slot, worker: this.spawn(slot) });
      } catch (error) {
        this.dispose();
        this.whyNot = `threads: a worker did not start (${error}); one thread computes`;
        this.failures = MAX_FAILURES;
        return;
      }
    }
  }

  /** A fresh board for fresh workers: what dead ones claimed can never be done, and where they slept nobody sleeps. Scratch stays. */
  private clear(): void {
    this.words.fill(0, 0, WORD.scratch);
    this.words.fill(0, WORD.stop);
  }

  private spawn(slot: number): WorkerLike {
    const { module, memory, board } = this.options;
    const start: Start = { module, memory, board, slot, looks: LOOKS };
    const lost = (why: unknown, started = true): void => {
      // The pool itself ended it, or it is known already: an error comes before an exit.
      if (!this.workers.some((one) => one.worker === worker)) return;
      this.workers = this.workers.filter((one) => one.worker !== worker);
      const left = this.workers.length;
      // A script that does not load now will not load later.
      if (left === 0) this.failures = started ? this.failures + 1 : MAX_FAILURES;
      const next = left > 0 ? `${left} are left` : this.threads > 1 ? 'new ones start with the next large job' : 'one thread computes';
      this.whyNot = `threads: a worker ${started ? 'has ended' : 'did not start'} (${why instanceof Error ? why.message : why}); ${next}`;
    };
    let worker: WorkerLike;
    const node = nodeThreads();
    if (node) {
      const thread = new node.Worker(new URL('./worker.js', import.meta.url), { workerData: start, execArgv: [] });
      thread.unref?.();
      thread.on('error', lost);
      thread.on('exit', (code) => lost(`exit code ${code}`));
      worker = thread;
    } else {
      const thread = new Worker(new URL('./worker.js', import.meta.url), { type: 'module' });
      // Only a script that ran has a message to leave.
      thread.onerror = (event) => (event.message ? lost(event.message) : lost(NOT_LOADED, false));
      thread.postMessage(start);
      worker = thread;
    }
    return worker;
  }

  private fail(what: string): never {
    this.failures++;
    for (const { worker } of this.workers) void worker.terminate();
    this.workers = [];
    this.clear();
    const next = this.failures >= MAX_FAILURES ? 'From now on one thread computes.' : 'The next call starts new threads.';
    this.whyNot = `threads: ${what}`;
    throw new RopewalkError(
      'DEVICE',
      `cpu: threads: expected all chunks to be done, got ${what}. The output is incomplete: call again. ${next}`,
    );
  }
}

/** Whether this thread may sleep: a page's main thread may not. */
function mayBlock(buffer: ArrayBufferLike): boolean {
  if (typeof SharedArrayBuffer === 'undefined' || !(buffer instanceof SharedArrayBuffer)) return false;
  try {
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 0);
    return true;
  } catch {
    return false;
  }
}
