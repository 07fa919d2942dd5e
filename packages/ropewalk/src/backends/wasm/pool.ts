/**
 * The threads of the CPU backend. They start at the first large job, sleep when idle, do not keep the process alive, and
 * end when the backend is disposed or dropped. In a page the first one starts when the backend opens: see {@link
 * Pool.tryOne}.
 *
 * The host computes too, and takes every chunk that no worker takes: if workers start late, or never, a job is only
 * slower.
 *
 * @module
 */
import { fail } from '../../core/errors.js';
import { MAX_THREADS } from '../backend.js';
import { Board, type Kernel } from './abi.js';
import type { Kernels } from './module.js';

/** The number of times that a thread looks for work, or for its end, before it gives the core away: about 50 µs. */
const LOOKS = 20000;
/** A worker that has not finished a chunk after this time counts as dead; no chunk takes a hundredth of it. */
const PATIENCE_MS = 20000;
/** After this many failures in a row the pool stays off. */
const MAX_FAILURES = 3;
/** A page waits this long for its first worker to begin. */
const LOADING_MS = 10000;

/** This lists every cause that a page can remove, because browsers do not say which it was. */
const NOT_LOADED =
  'worker.js did not load: serve it beside the script that starts it, with the same COEP header, ' +
  'and allow it by worker-src of the CSP';

const NOT_ISOLATED =
  'threads: the page is not cross-origin isolated, so workers cannot share memory ' +
  '(send COOP: same-origin and COEP: require-corp)';

interface WorkerLike {
  terminate(): unknown;
  unref?(): void;
}

/** A worker and the number of its thread. */
interface PoolWorker {
  readonly slot: number;
  readonly worker: WorkerLike;
}

/**
 * The handle that ends the workers. It must not refer to the pool, or running workers would keep the pool alive, and
 * nothing would end them.
 */
interface StopHandle {
  readonly memory: WebAssembly.Memory;
  readonly board: number;
  readonly workers: PoolWorker[];
}

/** Ends the workers of pools that were dropped without dispose(), when the garbage collector finds them. */
const DROPPED = /* @__PURE__ */ new FinalizationRegistry<StopHandle>(stop);

function stop({ memory, board, workers }: StopHandle): void {
  const words = new Int32Array(memory.buffer, board, Board.words);
  Atomics.store(words, Board.stop, 1);
  Atomics.add(words, Board.wake, 1);
  Atomics.notify(words, Board.wake);
  for (const { worker } of workers.splice(0)) void worker.terminate();
}

/** The ways to lose a worker: its script did not load, it threw, or it was ended. */
type Loss = 'not loaded' | 'error' | 'exit';

/** The address of the worker's script, for Node. */
const workerUrl = (): URL => new URL('./worker.js', import.meta.url);

/** Starts a worker. It reaches the pool by a weak reference only, so that it does not keep the pool alive. */
function spawn(start: Start, pool: WeakRef<Pool>): WorkerLike {
  const node = nodeThreads();
  const lost = (worker: WorkerLike, loss: Loss, why: unknown): void => pool.deref()?.lost(worker, loss, why);
  if (node) {
    const thread = new node.Worker(workerUrl(), { workerData: start, execArgv: [] });
    thread.unref?.();
    thread.on('error', (error) => lost(thread, 'error', error));
    thread.on('exit', (code) => lost(thread, 'exit', `exit code ${code}`));
    return thread;
  }
  const thread = new Worker(new URL('./worker.js', import.meta.url), { type: 'module' });
  // An error with a message comes from a script that runs; without one, the script did not load.
  thread.onerror = (event) =>
    event.message ? lost(thread, 'error', event.message) : lost(thread, 'not loaded', NOT_LOADED);
  thread.onmessage = () => pool.deref()?.began();
  thread.postMessage(start);
  return thread;
}

/** The data that a worker starts with; `failed` is the index of the board's word that counts failed workers. */
interface Start extends Pick<PoolOptions, 'module' | 'memory' | 'board'> {
  readonly failed: number;
  readonly slot: number;
  readonly looks: number;
}

/** The data that the host gives to the pool. */
interface PoolOptions {
  readonly kernels: Kernels;
  readonly module: WebAssembly.Module;
  readonly memory: WebAssembly.Memory;
  /** The byte address of the job board. */
  readonly board: number;
  /** The number of threads, including the host's own. */
  readonly threads: number;
}

/**
 * Decides how many threads the pool can have on this machine and runtime, and says why not more.
 *
 * @param wanted - the user's number, or undefined for one for each core
 */
export function threadsHere(wanted: number | undefined): { threads: number; whyNot: string | undefined } {
  if (wanted === 1) return { threads: 1, whyNot: 'threads: only one was asked for (threads: 1)' };
  const isolated =
    nodeThreads() !== undefined || (globalThis as { crossOriginIsolated?: boolean }).crossOriginIsolated === true;
  if (!isolated) return { threads: 1, whyNot: NOT_ISOLATED };
  const os = builtin<{ availableParallelism(): number }>('node:os');
  const cores = os?.availableParallelism() ?? globalThis.navigator?.hardwareConcurrency ?? 1;
  const threads = Math.min(wanted ?? cores, MAX_THREADS);
  if (threads === 1) return { threads, whyNot: 'threads: this machine has one core' };
  const whyNot = nodeThreads() && whyNoWorkers();
  return { threads: whyNot === undefined ? threads : 1, whyNot };
}

/** Says why Node cannot start a worker, as far as this can be known without trying. */
function whyNoWorkers(): string | undefined {
  const { permission } = globalThis.process as { permission?: { has(scope: string): boolean } };
  if (permission && !permission.has('worker'))
    return 'threads: this process must not start workers: run node with --allow-worker';
  try {
    const url = workerUrl();
    if (builtin<{ existsSync(url: URL): boolean }>('node:fs')?.existsSync(url) !== false) return undefined;
    const next = "copy worker.js from the package's dist/backends/wasm beside the script that starts it";
    return `threads: ${url.href} does not exist: ${next}`;
  } catch {
    return 'threads: this script has no import.meta.url, so worker.js cannot be found: bundle it as an ES module';
  }
}

/** Loads a built-in module of Node without an import that bundlers for browsers would follow. */
function builtin<T>(name: string): T | undefined {
  return (globalThis.process as { getBuiltinModule?(name: string): unknown } | undefined)?.getBuiltinModule?.(name) as
    | T
    | undefined;
}

function nodeThreads(): { Worker: new (url: URL, options: object) => WorkerLike & NodeEvents } | undefined {
  return builtin('node:worker_threads');
}

interface NodeEvents {
  on(event: 'error' | 'exit', listener: (value: unknown) => void): void;
}

/** The threads of one backend. */
export class Pool {
  /** The reason why there are fewer threads than there could be. */
  whyNot: string | undefined;
  readonly #options: PoolOptions;
  readonly #workers: PoolWorker[] = [];
  readonly #stopHandle: StopHandle;
  /** Says whether all workers were started and at least one is left. */
  #started = false;
  #job = 0;
  /** The failures in a row. A finished job resets it, unless no worker began, as the host may have done the job alone. */
  #failures = 0;
  #neverBegan = false;
  /** Ends the wait of {@link tryOne}. */
  #tried: (() => void) | undefined;
  readonly #mayBlock: boolean;

  constructor(options: PoolOptions) {
    const { memory, board } = options;
    this.#options = options;
    this.#mayBlock = mayBlock(memory.buffer);
    this.#stopHandle = { memory, board, workers: this.#workers };
    DROPPED.register(this, this.#stopHandle, this);
  }

  /**
   * In a page, starts the first worker and waits until it has begun or failed: only trying shows whether workers start
   * there. In Node {@link threadsHere} knows it already.
   */
  async tryOne(): Promise<void> {
    if (this.threads === 1 || nodeThreads()) return;
    this.#clear();
    const tried = new Promise<void>((resolve) => {
      this.#tried = resolve;
    });
    this.#spawn(1);
    const timer = setTimeout(() => this.#giveUp(`worker.js has not loaded within ${LOADING_MS} ms`), LOADING_MS);
    await tried;
    this.#tried = undefined;
    clearTimeout(timer);
  }

  /** The number of threads that compute: the host and its workers, once they are started. */
  get threads(): number {
    return this.#failures >= MAX_FAILURES ? 1 : this.#options.threads;
  }

  /** Views the board; each time anew, because memory grows. */
  get #words(): Int32Array {
    return new Int32Array(this.#options.memory.buffer, this.#options.board, Board.words);
  }

  /**
   * Sets the scratch memory of all threads; call it only between jobs.
   *
   * @param address - the address of the host's scratch memory, which the workers' follow
   */
  setScratch(address: number, bytesPerThread: number): void {
    const words = this.#words;
    words[Board.scratch] = address;
    words[Board.scratchBytes] = bytesPerThread;
  }

  /**
   * Runs a job on all threads and returns when it is done.
   *
   * @param args - the address of the kernel's arguments
   * @param chunk - the number of units of one claim
   * @throws {RopewalkError} DEVICE when a worker dies: the output is incomplete, and the next job starts new workers
   */
  run(kernel: Kernel, args: number, units: number, chunk: number): void {
    if (!this.#started) this.#start();
    this.#job = (this.#job + 1) & 0xffffff;
    let left = this.#options.kernels.work(this.#options.board, this.#job, kernel, args, units, chunk, LOOKS);
    if (left === 0) {
      this.#succeed();
      return;
    }
    let since = performance.now();
    let done = Atomics.load(this.#words, Board.done);
    while (left !== 0) {
      const words = this.#words;
      const now = Atomics.load(words, Board.done);
      if (now !== done) {
        done = now;
        since = performance.now();
      }
      if (Atomics.load(words, Board.failed) > 0) this.#fail('a worker thread crashed');
      if (performance.now() - since > PATIENCE_MS) this.#fail(`a worker thread has not answered for ${PATIENCE_MS} ms`);
      // Sleeping gives the core to the worker that the host waits for. A page's main thread must not sleep, so it polls.
      if (this.#mayBlock) Atomics.wait(words, Board.never, 0, 0.2);
      left = this.#options.kernels.finish(this.#options.board, LOOKS);
    }
    this.#succeed();
  }

  /** Stops all workers. */
  dispose(): void {
    DROPPED.unregister(this);
    stop(this.#stopHandle);
  }

  /** Is called when a worker waits for work; only pages report this. */
  began(): void {
    this.#tried?.();
  }

  /** Is called when a worker is lost. */
  lost(worker: WorkerLike, loss: Loss, why: unknown): void {
    const at = this.#workers.findIndex((one) => one.worker === worker);
    if (at < 0) return; // The pool ended it, or has handled its error, which comes before its exit.
    this.#workers.splice(at, 1);
    const reason = why instanceof Error ? why.message : why;
    const left = this.#workers.length;
    // A script that does not load now will not load later.
    if (left === 0 && (loss === 'not loaded' || this.#tried)) {
      this.#giveUp(reason);
      return;
    }
    if (left === 0) {
      this.#started = false;
      this.#failures++;
      this.#neverBegan = loss === 'error' && Atomics.load(this.#words, Board.workers) === 0;
    }
    const next =
      left > 0
        ? `${left} are left`
        : this.threads > 1
          ? 'new ones start with the next large job'
          : 'one thread computes';
    this.whyNot = `threads: a worker ${loss === 'not loaded' ? 'did not start' : 'has ended'} (${reason}); ${next}`;
  }

  /** Stops using workers for good. */
  #giveUp(why: unknown): void {
    stop(this.#stopHandle);
    this.whyNot = `threads: a worker did not start (${why}); one thread computes`;
    this.#failures = MAX_FAILURES;
    this.#tried?.();
  }

  #succeed(): void {
    if (
      this.#failures === 0 ||
      this.threads === 1 ||
      (this.#neverBegan && Atomics.load(this.#words, Board.workers) === 0)
    )
      return;
    this.#failures = 0;
    this.#neverBegan = false;
  }

  #start(): void {
    if (this.threads === 1) return;
    this.whyNot = undefined;
    if (this.#workers.length === 0) this.#clear();
    this.#started = true;
    for (let slot = 1; slot < this.#options.threads && this.threads > 1; slot++)
      if (!this.#workers.some((one) => one.slot === slot)) this.#spawn(slot);
  }

  /**
   * Clears the board for new workers: chunks of dead workers would stay undone, and their sleep would stay counted. The
   * scratch memory stays.
   */
  #clear(): void {
    this.#words.fill(0, 0, Board.scratch);
    this.#words.fill(0, Board.stop);
  }

  #spawn(slot: number): void {
    const { module, memory, board } = this.#options;
    try {
      const start = { module, memory, board, failed: Board.failed, slot, looks: LOOKS };
      this.#workers.push({ slot, worker: spawn(start, new WeakRef(this)) });
    } catch (error) {
      this.#giveUp(error);
    }
  }

  #fail(what: string): never {
    this.#failures++;
    this.#started = false;
    for (const { worker } of this.#workers.splice(0)) void worker.terminate();
    this.#clear();
    const next =
      this.#failures >= MAX_FAILURES ? 'From now on one thread computes.' : 'The next call starts new threads.';
    this.whyNot = `threads: ${what}`;
    fail('DEVICE', 'cpu: threads', `${what}. The output is incomplete: call again. ${next}`);
  }
}

/** Says whether this thread may sleep: a page's main thread may not. */
function mayBlock(buffer: ArrayBufferLike): boolean {
  if (typeof SharedArrayBuffer === 'undefined' || !(buffer instanceof SharedArrayBuffer)) return false;
  try {
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 0);
    return true;
  } catch {
    return false;
  }
}
