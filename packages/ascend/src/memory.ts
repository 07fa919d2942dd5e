/** Global memory: the caller's arrays, which parts of them are tensors, and which core touched which bytes. @module */
import { type Dtype, type HostArray, sizeBytes } from 'ropewalk';
import { fail, reading, readList, refuse } from 'ropewalk/backend';

/** Bytes that the shadow memories tell apart: no element that the core computes with is smaller. */
export const GRAIN = 2;

/** One access of a core, in grains from `first` to before `end`. */
export interface Touch {
  readonly block: number;
  readonly queue: 0 | 1 | 2 | 3;
  readonly seq: number;
  readonly first: number;
  readonly end: number;
  readonly write: boolean;
  /** Instructions of each queue that are complete before it. */
  readonly known: Int32Array;
}

/** An earlier access, sequence · 4 + queue, that nothing orders before this one. */
type Conflict = { readonly writer: number; readonly kind: string; readonly block: number };

function checkName(name: unknown, what: string): void {
  if (typeof name !== 'string') refuse('RANGE', `aicore: ${what}: name`, 'a string', name);
}

function checkArray(array: HostArray | undefined): HostArray {
  if (array === undefined || !ArrayBuffer.isView(array))
    refuse('DTYPE', 'aicore: Allocation: arrays', 'typed arrays, one or more', array);
  return array;
}

/**
 * Memory of the caller in the modelled global memory: one array, or several of one buffer.
 *
 * @example const x = new GlobalTensor('x', new Allocation('x', [data], false), 'f32', 0, 0, data.length);
 */
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
   * @param arrays - the caller's, of one buffer; the allocation reaches from the first byte of any to the last
   * @param written - whether a kernel may write it; only then are accesses remembered
   * @throws {RopewalkError} RANGE or DTYPE, naming the argument
   */
  constructor(
    readonly name: string,
    arrays: readonly HostArray[],
    written: boolean,
  ) {
    checkName(name, 'Allocation');
    const where = 'aicore: Allocation: arrays';
    const list = Array.from(readList(arrays, where));
    const { buffer } = checkArray(list[0]);
    if (!list.every((array) => checkArray(array).buffer === buffer))
      fail('RANGE', where, 'the arrays lie in different buffers. Make one Allocation for each buffer.');
    this.start = Math.min(...list.map((a) => a.byteOffset));
    const end = Math.max(...list.map((a) => a.byteOffset + a.byteLength));
    this.bytes = reading(where, () => new Uint8Array(buffer, this.start, end - this.start));
    if (!written) return;
    const grains = Math.ceil(this.bytes.length / GRAIN);
    this.#writer = new Int32Array(grains);
    this.#writerBlock = new Int32Array(grains);
    this.#reader = new Int32Array(grains);
    this.#readerBlock = new Int32Array(grains);
  }

  /** Compares an access with those before it, and remembers it. */
  touch({ block, queue, seq, first, end, write, known }: Touch, onConflict: (conflict: Conflict) => void): void {
    const writer = this.#writer;
    if (!writer) return;
    const last = Math.min(end, writer.length);
    let seen = 0;
    const racing = (access: number, from: number): boolean => from !== block || access >> 2 > known[access & 3]!;
    for (let g = first; g < last; g++) {
      const w = writer[g]!;
      if (w !== 0 && w !== seen) {
        seen = w;
        const from = this.#writerBlock![g]! - 1;
        if (racing(w, from))
          onConflict({ writer: w, kind: write ? 'write after write' : 'read after write', block: from });
      }
      if (write) {
        const r = this.#reader![g]!;
        const from = this.#readerBlock![g]! - 1;
        if (r !== 0 && racing(r, from)) onConflict({ writer: r, kind: 'write after read', block: from });
        writer[g] = seq * 4 + queue;
        this.#writerBlock![g] = block + 1;
      } else if (this.#reader![g] === 0 || this.#readerBlock![g] === block + 1) {
        this.#reader![g] = seq * 4 + queue;
        this.#readerBlock![g] = block + 1;
      }
    }
  }
}

/**
 * A tensor in an allocation: AscendC's GlobalTensor. Element indices count from the tensor's element 0.
 *
 * An access outside `low` to `high` is a finding, not an error.
 */
export class GlobalTensor {
  readonly size: number;
  /**
   * For each element of the allocation: 0 not of this tensor, 1 to be written, 2 written. Undefined where nothing
   * counts the writes.
   */
  coverage: Uint8Array | undefined;

  /**
   * @param name - for messages
   * @param memory - where it is
   * @param dtype - of its elements
   * @param base - index in the allocation of element 0
   * @param low - first element, relative to element 0, that belongs to it (negative with negative strides)
   * @param high - one past the last
   * @throws {RopewalkError} RANGE or DTYPE, naming the argument
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
    const where = 'aicore: GlobalTensor: memory';
    if (!reading(where, () => memory instanceof Allocation && memory.bytes instanceof Uint8Array))
      refuse('RANGE', where, 'an Allocation', memory);
    for (const [field, value] of Object.entries({ base, low, high }))
      if (!Number.isSafeInteger(value)) refuse('RANGE', `aicore: GlobalTensor: ${field}`, 'an integer', value);
    this.size = sizeBytes(dtype);
  }

  /** Byte in the allocation of an element. */
  byteOf(index: number): number {
    return (this.base + index) * this.size;
  }
}
