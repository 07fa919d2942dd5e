/** The buffers of the device, and the bookkeeping of held and free ones. @module */
import { type ArrayOf, arrayOver, type Dtype, sizeBytes } from '../../core/dtypes.js';
import { fail } from '../../core/errors.js';
import type { TensorStorage } from '../../core/tensor.js';
import { Dropped } from '../dropped.js';

/** GPUBufferUsage, which does not exist in Node. */
export const USAGE = { MAP_READ: 1, COPY_SRC: 4, COPY_DST: 8, UNIFORM: 64, STORAGE: 128 } as const;

/**
 * Sizes are multiples of this, so that a shader may read whole vectors, and repeated calls find buffers of their sizes.
 */
const UNIT = 256;
/** The most free bytes that are kept. */
const KEEP_BYTES = 1 << 28;

/** A buffer of the pool. */
export interface Block {
  readonly buffer: GPUBuffer;
  readonly sizeBytes: number;
  /** It names the buffer in keys of bind groups. */
  readonly id: number;
  /** Says whether its bytes are still the zeros of a new buffer. */
  fresh: boolean;
  /** Says whether the device had no room when it was made: it may be invalid, and is never taken again. */
  doubtful: boolean;
}

/** A pool of buffers of one usage, which are taken and given back by size. */
export class BlockPool {
  /** The bytes that are held now. */
  heldBytes = 0;
  /** The bytes that are free and kept. */
  freeBytes = 0;
  readonly #device: GPUDevice;
  readonly #usage: number;
  readonly #bins = new Map<number, Block[]>();
  /** Buffers that queued commands may still use: the host must not write to them before those are submitted. */
  #cooling: Block[] = [];
  #nextId = 1;
  /** The buffers that were made since the device last confirmed that it had room. */
  #made: Block[] = [];
  /** Is called before a buffer is made, so that its error is caught. */
  making: () => void = () => {};
  readonly dropped: Dropped<Block> = new Dropped(this);

  /** @param limitBytes - the largest buffer */
  constructor(
    device: GPUDevice,
    usage: number,
    readonly limitBytes: number,
  ) {
    this.#device = device;
    this.#usage = usage;
  }

  /** Takes a buffer, which is not cleared unless it is `fresh`. @throws {RopewalkError} DEVICE when it is too large */
  take(bytes: number): Block {
    const size = Math.max(UNIT, Math.ceil(bytes / UNIT) * UNIT);
    if (size > this.limitBytes) {
      const limit = `${this.limitBytes} bytes in one tensor (maxStorageBufferBindingSize)`;
      fail('DEVICE', 'webgpu: memory', `this device takes at most ${limit}, and this one has ${bytes}. Split it.`);
    }
    const kept = this.#bins.get(size)?.pop();
    if (kept) this.freeBytes -= size;
    const block = kept ?? this.#make(size);
    this.heldBytes += size;
    return block;
  }

  #make(size: number): Block {
    this.making();
    const buffer = this.#device.createBuffer({ size, usage: this.#usage });
    const block = { buffer, sizeBytes: size, id: this.#nextId++, fresh: true, doubtful: false };
    this.#made.push(block);
    return block;
  }

  /** Returns the buffers that were made since the last call. */
  takeMade(): Block[] {
    return this.#made.splice(0);
  }

  /** Gives a buffer back. Queued commands may still use it. */
  free(block: Block): void {
    block.fresh = false;
    this.heldBytes -= block.sizeBytes;
    this.freeBytes += block.sizeBytes;
    this.#cooling.push(block);
  }

  /** Gives back a buffer that must not be taken again. No queued command may use it. */
  drop(block: Block): void {
    this.heldBytes -= block.sizeBytes;
    block.buffer.destroy();
  }

  /** Is called when all commands are submitted: makes given-back buffers free, and destroys those beyond the limit. */
  submitted(): void {
    for (const block of this.#cooling) {
      if (block.doubtful || this.freeBytes > KEEP_BYTES) {
        this.freeBytes -= block.sizeBytes;
        block.buffer.destroy();
        continue;
      }
      const bin = this.#bins.get(block.sizeBytes);
      if (bin) bin.push(block);
      else this.#bins.set(block.sizeBytes, [block]);
    }
    this.#cooling = [];
  }

  /** Destroys all free buffers, because the device has no more memory. */
  trim(): void {
    this.submitted();
    for (const bin of this.#bins.values()) for (const block of bin) block.buffer.destroy();
    this.#bins.clear();
    this.freeBytes = 0;
  }
}

/** A tensor's elements on the device. */
export class GpuStorage<D extends Dtype = Dtype> implements TensorStorage<D> {
  readonly owner = 'webgpu';
  readonly host = undefined;
  #block: Block | undefined;
  readonly #readBack: (block: Block, start: number, end: number) => Promise<ArrayBuffer>;

  /** @param block - a block of `pool`, which this storage gives back */
  constructor(
    readonly pool: BlockPool,
    readonly dtype: D,
    readonly length: number,
    block: Block,
    readBack: (block: Block, start: number, end: number) => Promise<ArrayBuffer>,
  ) {
    this.#block = block;
    this.#readBack = readBack;
    pool.dropped.watch(this, block);
  }

  /** The buffer of the elements. */
  get block(): Block {
    return this.#block ?? fail('DEVICE', 'tensor', 'this tensor was disposed, so its elements are gone.');
  }

  async read(start = 0, end = this.length): Promise<ArrayOf[D]> {
    const unit = sizeBytes(this.dtype);
    const first = Math.floor((start * unit) / 4) * 4;
    const bytes = await this.#readBack(this.block, first, end * unit);
    return arrayOver(this.dtype, bytes, start * unit - first, end - start);
  }

  dispose(): void {
    if (!this.#block) return;
    this.pool.dropped.unwatch(this);
    this.pool.free(this.#block);
    this.#block = undefined;
  }
}
