/**
 * Global memory: the caller's arrays, what of them is a tensor, and who touched what.
 *
 * @module
 */
import { reading, readList } from '../core/arguments.js';
import { type Dtype, type HostArray, sizeBytes } from '../core/dtypes.js';
import { refuse } from '../core/errors.js';
import { CACHE_LINE } from './costs.js';

/** Bytes that the shadows tell apart: no element that the core computes with is smaller. */
export const GRAIN = 2;

/** Told of an access that another queue's, or another block's, may overtake. */
export type OnConflict = (queue: 0 | 1 | 2 | 3, seq: number, block: number, kind: string) => void;

function checkName(name: unknown, what: string): void {
  if (typeof name !== 'string') refuse('RANGE', `aicore: ${what}: name`, 'a text', name);
}

function checkArray(array: HostArray | undefined): HostArray {
  if (array === undefined || !ArrayBuffer.isView(array))
    refuse('DTYPE', 'aicore: Allocation: arrays', 'typed arrays, one or more', array);
  return array;
}

/** One array of the caller in global memory. */
export class Allocation {
  readonly bytes: Uint8Array;
  /** Where `bytes` starts in its buffer. */
  readonly start: number;
  /** The last write of each grain: sequence · 4 + queue, and the block + 1 that did it. */
  readonly #writer: Int32Array | undefined;
  readonly #writerBlock: Int32Array | undefined;
  /** The last read of each grain; a read by another block stays, as no later one of its own can race more. */
  readonly #reader: Int32Array | undefined;
  readonly #readerBlock: Int32Array | undefined;

  /**
   * @param name - of the tensor, for messages
   * @param arrays - the caller's, of one buffer: one allocation from the first byte of any to the last
   * @param written - whether a kernel may write it; only then accesses are remembered
   */
  constructor(
    readonly name: string,
    arrays: readonly HostArray[],
    written: boolean,
  ) {
    checkName(name, 'Allocation');
    const list = Array.from(readList(arrays, 'aicore: Allocation: arrays'));
    const { buffer } = checkArray(list[0]);
    if (!list.every((array) => checkArray(array).buffer === buffer))
      refuse('RANGE', 'aicore: Allocation: arrays', 'arrays of one buffer', 'arrays of several');
    this.start = Math.min(...list.map((a) => a.byteOffset));
    const end = Math.max(...list.map((a) => a.byteOffset + a.byteLength));
    this.bytes = reading('aicore: Allocation: arrays', () => new Uint8Array(buffer, this.start, end - this.start));
    if (!written) return;
    const grains = Math.ceil(this.bytes.length / GRAIN);
    this.#writer = new Int32Array(grains);
    this.#writerBlock = new Int32Array(grains);
    this.#reader = new Int32Array(grains);
    this.#readerBlock = new Int32Array(grains);
  }

  /** The cache line of a byte. */
  lineOf(at: number): number {
    return Math.floor(at / CACHE_LINE);
  }

  /** Compares an access with those before it, and remembers it. */
  touch(
    block: number,
    queue: 0 | 1 | 2 | 3,
    seq: number,
    first: number,
    end: number,
    write: boolean,
    conflict: OnConflict,
    known: Int32Array,
  ): void {
    const writer = this.#writer;
    if (!writer) return;
    const last = Math.min(end, writer.length);
    let seen = 0;
    for (let g = Math.max(0, first); g < last; g++) {
      const w = writer[g]!;
      if (w !== 0 && w !== seen) {
        seen = w;
        const from = this.#writerBlock![g]! - 1;
        const p = (w & 3) as 0 | 1 | 2 | 3;
        if (from !== block || w >> 2 > known[p]!)
          conflict(p, w >> 2, from, write ? 'write after write' : 'read after write');
      }
      if (write) {
        const r = this.#reader![g]!;
        const from = this.#readerBlock![g]! - 1;
        const p = (r & 3) as 0 | 1 | 2 | 3;
        if (r !== 0 && (from !== block || r >> 2 > known[p]!)) conflict(p, r >> 2, from, 'write after read');
        writer[g] = seq * 4 + queue;
        this.#writerBlock![g] = block + 1;
      } else if (this.#reader![g] === 0 || this.#readerBlock![g] === block + 1) {
        this.#reader![g] = seq * 4 + queue;
        this.#readerBlock![g] = block + 1;
      }
    }
  }
}

/** A tensor in an allocation: AscendC's GlobalTensor. Element indices count from the tensor's element 0. */
export class GlobalTensor {
  readonly size: number;
  /** What of the allocation belongs to the tensor, by element: 0 nothing, 1 to be written, 2 written. Absent on what is only read. */
  coverage: Uint8Array | undefined;

  /**
   * @param name - for messages
   * @param memory - where it lies
   * @param dtype - of its elements
   * @param base - index in the allocation of element 0
   * @param low - first element, relative to element 0, that belongs to it (negative with negative strides)
   * @param high - one past the last
   */
  constructor(
    readonly name: string,
    readonly memory: Allocation,
    readonly dtype: Dtype,
    readonly base: number,
    readonly low: number,
    readonly high: number,
  ) {
    checkName(name, 'GlobalTensor');
    if (
      !reading('aicore: GlobalTensor: memory', () => memory instanceof Allocation && memory.bytes instanceof Uint8Array)
    )
      refuse('RANGE', 'aicore: GlobalTensor: memory', 'an Allocation', memory);
    for (const [field, value] of Object.entries({ base, low, high }))
      if (!Number.isSafeInteger(value)) refuse('RANGE', `aicore: GlobalTensor: ${field}`, 'an integer', value);
    this.size = sizeBytes(dtype);
  }

  /** Byte in the allocation of an element. */
  byteOf(index: number): number {
    return (this.base + index) * this.size;
  }
}
