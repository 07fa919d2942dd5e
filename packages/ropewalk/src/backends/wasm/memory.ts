/** The WebAssembly memory of the backend, and the bookkeeping of its held and free bytes. @module */
import { type ArrayOf, arrayOver, bitsOf, type Dtype, newArray, sizeBytes } from '../../core/dtypes.js';
import { fail, RopewalkError, refuse } from '../../core/errors.js';
import type { TensorStorage } from '../../core/tensor.js';
import { Dropped } from '../dropped.js';

const PAGE = 65536;
/** The number of pages at which 32-bit addresses end. */
const MAX_PAGES = 65536;
/** The size of a cache line: tensors that different threads write do not share one. */
const ALIGNMENT = 64;

/** A piece of the memory that a tensor or a call holds. */
export interface Block {
  readonly address: number;
  readonly sizeBytes: number;
}

/** A growing memory and the blocks of it that are free. */
export class WasmMemory {
  readonly memory: WebAssembly.Memory;
  /** The current buffer. It is kept here because asking the memory for it costs a fiftieth of a short call. */
  buffer: ArrayBufferLike;
  /** The most bytes that tensors may take. */
  readonly limitBytes: number;
  /** The bytes that are held now. */
  heldBytes = 0;
  /** Is called when nothing is left: frees what can be made again, and says whether it freed anything. */
  reclaim: () => boolean = () => false;
  /**
   * Free blocks, by size: a block of the same size is taken first, so that a program that repeats its calls never
   * searches.
   */
  readonly #bins = new Map<number, number[]>();
  #freeBytes = 0;
  readonly #start: number;
  #top: number;
  readonly dropped: Dropped<Block> = new Dropped(this);

  /**
   * @param shared - whether workers share it
   * @param start - the bytes at the bottom that are not for tensors
   * @param limitBytes - the size up to which it may grow, at most 4 GiB
   */
  constructor(shared: boolean, start: number, limitBytes = MAX_PAGES * PAGE) {
    this.#start = start;
    this.#top = start;
    if (typeof limitBytes !== 'number') refuse('RANGE', 'cpu: memoryLimit', 'a number of bytes', limitBytes);
    let maximum = Math.min(MAX_PAGES, Math.ceil(limitBytes / PAGE));
    const initial = Math.ceil(start / PAGE) + 1;
    if (!(maximum >= initial)) refuse('RANGE', 'cpu: memoryLimit', `at least ${initial * PAGE} bytes`, limitBytes);
    // A shared memory reserves its maximum at once; a phone may not have 4 GiB of contiguous addresses.
    for (;;) {
      try {
        this.memory = new WebAssembly.Memory({ initial, maximum, shared });
        break;
      } catch (cause) {
        if (maximum / 2 < initial) {
          const message = `cpu: memory: this runtime does not give ${initial * PAGE} bytes: ${cause}`;
          throw new RopewalkError('DEVICE', message, { cause });
        }
        maximum = Math.floor(maximum / 2);
      }
    }
    this.buffer = this.memory.buffer;
    this.limitBytes = maximum * PAGE;
  }

  /**
   * Takes bytes, which are not cleared.
   *
   * @throws {RopewalkError} DEVICE when they do not fit, with needed and available bytes
   */
  take(bytes: number): Block {
    const size = Math.max(ALIGNMENT, Math.ceil(bytes / ALIGNMENT) * ALIGNMENT);
    const address =
      this.#fromBin(size) ?? this.#fromFree(size, false) ?? this.#fromTop(size) ?? this.#fromFree(size, true);
    if (address === undefined) {
      if (this.reclaim()) return this.take(bytes);
      const room = this.limitBytes - this.#start;
      const available = room - this.heldBytes;
      const pieces = available >= size ? ', but in smaller pieces, or the machine has no more memory' : '';
      const state = `${bytes} bytes do not fit: ${Math.max(0, available)} of ${room} are available${pieces}`;
      fail('DEVICE', 'cpu: memory', `${state}. Dispose tensors that are no longer needed.`);
    }
    this.heldBytes += size;
    return { address, sizeBytes: size };
  }

  /** Gives a block back. */
  free(block: Block): void {
    this.heldBytes -= block.sizeBytes;
    this.#keep(block.sizeBytes, block.address);
  }

  #keep(size: number, address: number): void {
    this.#freeBytes += size;
    const bin = this.#bins.get(size);
    if (bin) bin.push(address);
    else this.#bins.set(size, [address]);
  }

  #fromBin(size: number): number | undefined {
    const address = this.#bins.get(size)?.pop();
    if (address !== undefined) this.#freeBytes -= size;
    return address;
  }

  #fromTop(size: number): number | undefined {
    const end = this.#top + size;
    const have = this.buffer.byteLength;
    if (end > have) {
      if (end > this.limitBytes) return undefined;
      // Growing by an eighth saves growing again for each tensor.
      const wanted = Math.min(this.limitBytes, Math.max(end, have + Math.floor(have / 8)));
      if (!this.#grow(wanted - have) && !this.#grow(end - have)) return undefined;
    }
    const address = this.#top;
    this.#top = end;
    return address;
  }

  #grow(bytes: number): boolean {
    try {
      this.memory.grow(Math.ceil(bytes / PAGE));
      this.buffer = this.memory.buffer;
      return true;
    } catch {
      return false; // The machine has no more memory, though the limit is not reached.
    }
  }

  /** Joins neighbours among the free blocks and takes the smallest that is large enough. */
  #fromFree(size: number, always: boolean): number | undefined {
    // Joining costs a sort, which pays when much is free, or when nothing else is left.
    if (this.#freeBytes === 0 || (!always && (this.#freeBytes < size || this.#freeBytes < this.#top / 4)))
      return undefined;
    const blocks: { address: number; size: number }[] = [];
    for (const [binSize, addresses] of this.#bins)
      for (const address of addresses) blocks.push({ address, size: binSize });
    blocks.sort((a, b) => a.address - b.address);
    const joined: { address: number; size: number }[] = [];
    for (const block of blocks) {
      const last = joined.at(-1);
      if (last && last.address + last.size === block.address) last.size += block.size;
      else joined.push(block);
    }
    this.#bins.clear();
    this.#freeBytes = 0;
    const last = joined.at(-1);
    if (last && last.address + last.size === this.#top) this.#top = joined.pop()!.address;
    let best: { address: number; size: number } | undefined;
    for (const block of joined) if (block.size >= size && block.size < (best?.size ?? Infinity)) best = block;
    for (const block of joined) {
      const rest = block === best ? { address: block.address + size, size: block.size - size } : block;
      if (rest.size === 0) continue;
      this.#keep(rest.size, rest.address);
    }
    return best?.address ?? this.#fromTop(size); // Joining may have lowered the top far enough.
  }
}

/** Maps each view to its storage, so that a view keeps its storage alive and the memory is not given away. */
const OWNER = /* @__PURE__ */ new WeakMap<object, unknown>();

/** A tensor's elements in the backend's memory. */
export class WasmStorage<D extends Dtype = Dtype> implements TensorStorage<D> {
  readonly owner = 'cpu';
  #block: Block | undefined;
  #view: ArrayOf[D] | undefined;

  /** @param block - a block of `memory`, which this storage gives back */
  constructor(
    readonly memory: WasmMemory,
    readonly dtype: D,
    readonly length: number,
    block: Block,
  ) {
    this.#block = block;
    memory.dropped.watch(this, block);
  }

  /** The byte address of element 0. */
  get address(): number {
    return this.#block?.address ?? fail('DEVICE', 'tensor', 'this tensor was disposed, so its elements are gone.');
  }

  /** The elements; a new view when the memory has grown. */
  get host(): ArrayOf[D] {
    const { buffer } = this.memory;
    if (!this.#block || this.#view?.buffer !== buffer) {
      this.#view = arrayOver(this.dtype, buffer, this.address, this.length);
      OWNER.set(this.#view, this);
    }
    return this.#view!;
  }

  read(start = 0, end = this.length): ArrayOf[D] {
    const copy = newArray(this.dtype, end - start);
    (bitsOf(copy) as Uint8Array).set(bitsOf(this.host).subarray(start, end) as Uint8Array);
    return copy;
  }

  dispose(): void {
    if (!this.#block) return;
    this.memory.dropped.unwatch(this);
    this.memory.free(this.#block);
    this.#block = undefined;
    this.#view = undefined;
  }
}

/** Takes memory for `length` elements, which are not cleared. */
export function takeStorage<D extends Dtype>(memory: WasmMemory, dtype: D, length: number): WasmStorage<D> {
  return new WasmStorage(memory, dtype, length, memory.take(length * sizeBytes(dtype)));
}
