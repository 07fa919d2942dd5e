/**
 * Starting kernels: where their arguments are written, the scratch memory of each thread, and which jobs go to all
 * threads.
 *
 * @module
 */
import { Uploads } from '../uploads.js';
import { Board, type Kernel } from './abi.js';
import type { Block, WasmMemory } from './memory.js';
import type { Kernels } from './module.js';
import type { Pool } from './pool.js';

/**
 * The bottom of memory: below 2048 the kernels' own constants, then the job board, then the arguments, then tensors.
 */
export const BOARD = 2048;
const ARGUMENTS = 4096;
/** The most words of arguments that a kernel may have. */
export const ARGUMENT_WORDS = 15360;
export const HEAP = ARGUMENTS + ARGUMENT_WORDS * 4;

/** Less work than this, in bytes moved, is done before a sleeping thread has woken. */
const WORTH_THREADS = 1 << 18;
/** Work of one claim, in bytes moved: enough to make claiming cheap, little enough to share out evenly. */
export const CHUNK_BYTES = 1 << 16;
/** The board counts chunks in 20 bits. */
const MAX_CHUNKS = 1 << 19;
/** A multiply-add takes about as long as moving half a byte: 25 against 13 thousand million a second, measured. */
export const BYTES_PER_MADD = 0.5;

/** What all calls of a backend share: memory, kernels and threads, scratch memory, and the tables of plans. */
export class Launcher {
  /** Rows of a tile, in which the two modules differ. */
  readonly tileRows: number;
  readonly #tables: Uploads<Block>;
  #scratch: Block | undefined;
  /** Of each thread. */
  #scratchBytes = 0;
  #arguments: Int32Array<ArrayBufferLike> | undefined;
  /** Where they are: asking a typed array for its buffer costs a short call a thirtieth. */
  #argumentsBuffer: ArrayBufferLike | undefined;

  constructor(
    readonly memory: WasmMemory,
    readonly kernels: Kernels,
    readonly pool: Pool,
  ) {
    // No function here names `this`: tensors keep the memory, and through it would keep a backend that was dropped, and
    // its threads.
    const tables = new Uploads<Block>((block) => memory.free(block));
    memory.reclaim = () => tables.drop(0);
    this.#tables = tables;
    this.tileRows = kernels.tileRows();
    new Int32Array(memory.buffer, BOARD, Board.words).fill(0);
  }

  /**
   * Makes ready for a kernel. No memory may be taken between this and {@link run}: the arguments would move.
   *
   * @param scratchBytes - what each thread needs
   * @returns where the arguments are written
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
   * Runs a kernel, whose arguments are written, over units: on all threads where that is worth it.
   *
   * @param units - independent pieces of work
   * @param unitBytes - bytes that one moves, or what its arithmetic is worth
   * @param chunkBytes - work of one claim, where another size is faster
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

  /** The address of a plan's table, as f32 or i32: uploaded at its first use and kept while it is used. */
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

  /** Scratch memory grows to what the largest job needs, and stays. */
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
