/**
 * Measures the limits of this machine: a copy of as many bytes as a case moves, and multiplications with additions.
 *
 * The copy is WebAssembly's own memory.copy in a shared memory, the kind that holds tensors. `Uint8Array.set` on a
 * shared buffer is no limit: V8 copies it word by word, at 53 GB/s where memory.copy reaches 107 (measured with 8 MiB
 * on an AMD EPYC, Node 20).
 *
 * @module
 */
import { Worker } from 'node:worker_threads';
import { inflateRawSync } from 'node:zlib';
import type { Contender } from './measure.js';
import { LENGTHS, PACKED } from './roof.generated.js';

const PAGE_BYTES = 65_536;
/** WebAssembly's limit with 32-bit addresses. */
const MAX_PAGES = 65_536;
const OPERATIONS_A_ROUND = 80;
const ROUNDS_A_CALL = 10_000;

interface RoofExports {
  copy(to: number, from: number, bytes: number, times: number): void;
  multiplyAdd(rounds: number, factor: number, step: number): number;
}

/** Kernels that reach the limits, on several threads. */
export class Roofs {
  private constructor(
    readonly threads: number,
    private readonly memory: WebAssembly.Memory,
    private readonly kernels: RoofExports,
    /** Shared with threads: turn, threads that are done, work (0 copy, 1 multiply), to, from, bytes a thread, times. */
    private readonly control: Int32Array,
    private readonly workers: readonly Worker[],
  ) {}

  /**
   * Compiles the kernels and starts the threads.
   *
   * @param threads - their number, this thread included
   */
  static async open(threads: number): Promise<Roofs> {
    const memory = new WebAssembly.Memory({ initial: 1, maximum: MAX_PAGES, shared: true });
    const both = inflateRawSync(Buffer.from(PACKED, 'base64'));
    // Both modules are packed into one string.
    const [simd128, relaxed] = [both.subarray(0, LENGTHS[0]), both.subarray(LENGTHS[0])];
    const module = await WebAssembly.compile(WebAssembly.validate(relaxed!) ? relaxed! : simd128!);
    const instance = await WebAssembly.instantiate(module, { env: { memory } });
    const control = new Int32Array(new SharedArrayBuffer(7 * 4));
    const workers = Array.from(
      { length: threads - 1 },
      (_, n) =>
        new Worker(new URL('./roof-worker.node.mjs', import.meta.url), {
          workerData: { module, memory, control, index: n + 1 },
          execArgv: [],
        }),
    );
    const exports = instance.exports as unknown as RoofExports;
    const roofs = new Roofs(threads, memory, exports, control, workers);
    await Promise.all(workers.map((worker) => new Promise((resume) => worker.once('online', resume))));
    return roofs;
  }

  /**
   * Makes a copy that moves as many bytes as a case: it reads half of them and writes the other half.
   *
   * @param bytes - the bytes that the case reads and writes together
   */
  copy(bytes: number): Contender {
    const share = Math.ceil(bytes / 2 / this.threads / 64) * 64;
    const half = share * this.threads;
    const from = 1024;
    const to = from + half;
    const missing = Math.ceil((to + half) / PAGE_BYTES) - this.memory.buffer.byteLength / PAGE_BYTES;
    if (missing > 0) this.memory.grow(missing);
    new Uint8Array(this.memory.buffer, from, 2 * half).fill(1); // the system provides a page when it is first written
    return {
      name: 'copy',
      call: () => this.turn(0, to, from, share, 1),
      repeat: (times) => this.turn(0, to, from, share, times),
      sink: () => new Uint8Array(this.memory.buffer)[to + half - 1]!,
    };
  }

  /** Makes multiplications and additions of f32 on all threads; one call does `operations`. */
  multiplyAdd(): Contender & { readonly operations: number } {
    return {
      name: 'multiply-add',
      operations: OPERATIONS_A_ROUND * ROUNDS_A_CALL * this.threads,
      call: () => this.turn(1, 0, 0, 0, ROUNDS_A_CALL),
      repeat: (times) => this.turn(1, 0, 0, 0, ROUNDS_A_CALL * times),
    };
  }

  /** Stops the threads. */
  async dispose(): Promise<void> {
    await Promise.all(this.workers.map((worker) => worker.terminate()));
  }

  private turn(what: number, to: number, from: number, share: number, times: number): void {
    const { control } = this;
    if (this.workers.length > 0) {
      control.set([0, what, to, from, share, times], 1);
      Atomics.add(control, 0, 1);
      Atomics.notify(control, 0);
    }
    if (what === 0) this.kernels.copy(to, from, share, times);
    else this.kernels.multiplyAdd(times, 0.999, 0.001);
    // This spins, because the threads finish within microseconds of each other, and sleeping takes longer.
    while (Atomics.load(control, 1) < this.workers.length) {}
    Atomics.store(control, 1, 0);
  }
}
