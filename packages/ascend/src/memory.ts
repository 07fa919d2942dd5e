/** Global memory: the caller's arrays, the tensors in them, and which core touched which bytes. @module */
import { type Dtype, type HostArray, sizeBytes } from 'ropewalk';
import { fail, refuse } from 'ropewalk/backend';
import { reading, readList } from 'ropewalk/internal';

/** The bytes of a grain, the least that shadow memories tell apart: no element of the core's lanes is smaller. */
export const GRAIN = 2;

/** Grains of a datablock. */
const BLOCK_GRAINS = 16;
/** Marks a datablock whose grains have different numbers. */
const MIXED = -1;

/** Holds a number for every grain of a memory. A datablock whose grains all have the same number keeps it once. */
export class Shadow {
  readonly #blocks: Int32Array;
  /** The number of each grain; right only in datablocks that are {@link open}. */
  readonly grains: Int32Array;
  /** How many grains it has. */
  readonly length: number;

  constructor(bytes: number) {
    this.length = Math.ceil(bytes / GRAIN);
    this.grains = new Int32Array(this.length);
    this.#blocks = new Int32Array(Math.ceil(this.length / BLOCK_GRAINS));
  }

  /** Returns the number of a grain. */
  at(grain: number): number {
    const all = this.#blocks[grain >> 4]!;
    return all === MIXED ? this.grains[grain]! : all;
  }

  /** Returns the next grain that may have another number. */
  next(grain: number): number {
    return this.#blocks[grain >> 4] === MIXED ? grain + 1 : (grain | (BLOCK_GRAINS - 1)) + 1;
  }

  set(first: number, end: number, value: number): void {
    const from = (first + BLOCK_GRAINS - 1) >> 4;
    const to = end >> 4;
    for (let block = from; block < to; block++) this.#blocks[block] = value;
    if (from > to) this.#setGrains(first, end, value);
    else {
      if (first < from << 4) this.#setGrains(first, from << 4, value);
      if (to << 4 < end) this.#setGrains(to << 4, end, value);
    }
  }

  #setGrains(first: number, end: number, value: number): void {
    this.open(first, end);
    this.grains.fill(value, first, end);
  }

  /** Moves the numbers of a range to {@link grains}, where they may be changed one by one. */
  open(first: number, end: number): void {
    for (let block = first >> 4; block << 4 < end; block++) {
      const all = this.#blocks[block]!;
      if (all === MIXED) continue;
      this.grains.fill(all, block << 4, (block + 1) << 4);
      this.#blocks[block] = MIXED;
    }
  }

  /** Sets the datablocks of the first grains to 0. */
  clear(grains: number): void {
    this.#blocks.fill(0, 0, Math.ceil(grains / BLOCK_GRAINS));
  }
}

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

/** An earlier access, `other` = sequence · 4 + queue, that nothing orders before this one. */
type Conflict = { readonly other: number; readonly kind: string; readonly block: number };

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
  readonly #writer: Shadow | undefined;
  readonly #writerBlock: Shadow | undefined;
  /** The last read of each grain; a read by another block stays, because a later one of its own cannot race more. */
  readonly #reader: Shadow | undefined;
  readonly #readerBlock: Shadow | undefined;

  /**
   * @param name - the tensor's name, for messages
   * @param arrays - the caller's arrays in one buffer; the allocation reaches from the first byte of any to the last
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
    this.#writer = new Shadow(this.bytes.length);
    this.#writerBlock = new Shadow(this.bytes.length);
    this.#reader = new Shadow(this.bytes.length);
    this.#readerBlock = new Shadow(this.bytes.length);
  }

  /** Tells whether accesses are remembered. */
  get written(): boolean {
    return this.#writer !== undefined;
  }

  /** Compares an access with those before it, and remembers it. */
  touch({ block, queue, seq, first, end, write, known }: Touch, onConflict: (conflict: Conflict) => void): void {
    const writer = this.#writer;
    if (!writer) return;
    const [writerBlock, reader, readerBlock] = [this.#writerBlock!, this.#reader!, this.#readerBlock!];
    const last = Math.min(end, writer.length);
    const [access, owner] = [seq * 4 + queue, block + 1];
    let seen = 0;
    let next = first;
    for (let g = first; g < last; g = next) {
      // Grains up to here have the same numbers.
      next = Math.min(last, writer.next(g), writerBlock.next(g), reader.next(g), readerBlock.next(g));
      const w = writer.at(g);
      if (w !== 0 && w !== seen) {
        seen = w;
        const from = writerBlock.at(g) - 1;
        if (from !== block || w >> 2 > known[w & 3]!)
          onConflict({ other: w, kind: write ? 'write after write' : 'read after write', block: from });
      }
      const r = reader.at(g);
      if (write) {
        const from = readerBlock.at(g) - 1;
        if (r === 0 || (from === block && r >> 2 <= known[r & 3]!)) continue;
        for (let n = g; n < next; n++) onConflict({ other: r, kind: 'write after read', block: from });
      } else if (r === 0 || readerBlock.at(g) === owner) {
        reader.set(g, next, access);
        readerBlock.set(g, next, owner);
      }
    }
    if (!write || last <= first) return;
    writer.set(first, last, access);
    writerBlock.set(first, last, owner);
  }
}

/**
 * A tensor in an allocation: AscendC's GlobalTensor. Element indices count from the tensor's element 0.
 *
 * An access outside `low` to `high` is a finding, not an error.
 */
export class GlobalTensor {
  readonly size: number;
  /** Holds for each element of the allocation: 0 not of this tensor, 1 to be written, 2 written; for outputs only. */
  coverage: Uint8Array | undefined;
  /** Marks with 1 each element that was read; only for inputs that a kernel must read whole and not write. */
  reads: Uint8Array | undefined;

  /**
   * @param name - its name in messages
   * @param memory - the allocation that holds it
   * @param dtype - the dtype of its elements
   * @param base - index of element 0 in the allocation
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

  /** Returns the byte of an element in the allocation. */
  byteOf(index: number): number {
    return (this.base + index) * this.size;
  }
}
