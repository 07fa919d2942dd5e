/**
 * Starts kernels: writes their arguments, provides scratch memory for each thread, and decides which jobs all threads
 * share.
 *
 * @module
 */
import { Uploads } from '../uploads.js';
import { Board, type Kernel } from './abi.js';
import type { Block, WasmMemory } from './memory.js';
import type { Kernels } from './module.js';
import type { Pool } from './pool.js';

/** The bottom of memory holds the kernels' own constants below 2048, then the job board, the arguments, and tensors. */
export const BOARD = 2048;
const ARGUMENTS = 4096;
/** The most words of arguments that a kernel may have. */
export const ARGUMENT_WORDS = 15360;
export const HEAP = ARGUMENTS + ARGUMENT_WORDS * 4;

/** A job with less work than this, in bytes moved, is done before a sleeping thread has woken. */
const WORTH_THREADS = 1 << 18;
/** The work that a thread claims at a time, in bytes moved: claiming is cheap then, and the shares are even. */
export const CHUNK_BYTES = 1 << 16;
/** The board counts chunks in 20 bits. */
const MAX_CHUNKS = 1 << 19;
/** A multiply-add takes about as long as moving half a byte: 25 against 13 thousand million a second, measured. */
export const BYTES_PER_MADD = 0.5;

/** Everything that all calls of a backend share: memory, kernels, threads, scratch memory and the tables of plans. */
export class Launcher {
  /** The rows of a tile, in which the two modules differ. */
  readonly tileRows: number;
  readonly #tables: Uploads<Block>;
  #scratch: Block | undefined;
  /** The scratch memory of each thread. */
  #scratchBytes = 0;
  #arguments: Int32Array<ArrayBufferLike> | undefined;
  /** The buffer of the arguments: asking a typed array for it costs a thirtieth of a short call. */
  #argumentsBuffer: ArrayBufferLike | undefined;

  constructor(
    readonly memory: WasmMemory,
    readonly kernels: Kernels,
    readonly pool: Pool,
  ) {
    // No function here names `this`. Tensors keep the memory, and through `this` they would keep a dropped backend and
    // its threads.
    const tables = new Uploads<Block>((block) => memory.free(block));
    memory.reclaim = () => tables.drop(0);
    this.#tables = tables;
    this.tileRows = kernels.tileRows();
    new Int32Array(memory.buffer, BOARD, Board.words).fill(0);
  }

  /**
   * Prepares a kernel that needs this much scratch memory for each thread. No memory may be taken between this and
   * {@link run}, because the arguments would move.
   *
   * @returns the array for the arguments
   */
  prepare(scratchBytes = 0): Int32Array {
    if (scratchBytes > this.#scratchBytes) this.#growScratch(scratchBytes);
    const { buffer } = this.memory;
    if (this.#argumentsBuffer !== buffer) {
      this.#arguments = new Int32Array(buffer, ARGUMENTS, ARGUMENT_WORDS);
      this.#argumentsBuffer = buffer;
    }
    return this.#arguments!;
  }

  /**
   * Runs a kernel, whose arguments are written, over units: on all threads where that saves time.
   *
   * @param units - independent pieces of work
   * @param unitBytes - the cost of a unit: the bytes that it moves, or its arithmetic in such bytes
   * @param chunkBytes - the work of one claim, where another size is faster
   */
  run(kernel: Kernel, units: number, unitBytes: number, chunkBytes = CHUNK_BYTES): void {
    if (units === 0) return;
    if (this.pool.threads === 1 || units === 1 || units * unitBytes < WORTH_THREADS) {
      this.kernels.run(kernel, ARGUMENTS, 0, units, this.#scratch?.address ?? 0);
      return;
    }
    const even = Math.ceil(units / (4 * this.pool.threads));
    const chunk = Math.max(1, Math.min(even, Math.ceil(chunkBytes / unitBytes)), Math.ceil(units / MAX_CHUNKS));
    this.pool.run(kernel, ARGUMENTS, units, chunk);
  }

  /** Gives the address of a plan's table as f32 or i32; it is uploaded at its first use and kept while it is used. */
  table(values: Float32Array | Float64Array | Int32Array): number {
    const bytes = values.length * 4;
    return this.#tables.get(values, bytes, () => {
      const block = this.memory.take(bytes);
      const View = values instanceof Int32Array ? Int32Array : Float32Array;
      new View(this.memory.buffer as ArrayBuffer, block.address, values.length).set(values);
      return block;
    }).address;
  }

  /** Stops the threads and forgets the tables, whose memory is gone. */
  dispose(): void {
    this.pool.dispose();
    this.#tables.clear();
  }

  /** Grows the scratch memory to the needs of the largest job; it never shrinks. */
  #growScratch(bytes: number): void {
    const each = Math.ceil(bytes / 4096) * 4096;
    if (this.#scratch) this.memory.free(this.#scratch);
    this.#scratch = undefined;
    this.#scratchBytes = 0;
    this.#scratch = this.memory.take(each * this.pool.threads);
    this.#scratchBytes = each;
    this.pool.setScratch(this.#scratch.address, each);
  }
}
