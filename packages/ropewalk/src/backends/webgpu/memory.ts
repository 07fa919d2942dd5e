/**
 * The device's buffers: who holds which, and which are free to be taken again.
 *
 * @module
 */
import { type ArrayOf, arrayOver, type Dtype, sizeBytes } from '../../core/dtypes.js';
import { RopewalkError, refuse } from '../../core/errors.js';
import type { TensorStorage } from '../../core/tensor.js';

/** GPUBufferUsage, which Node does not name. */
export const USAGE = { MAP_READ: 1, COPY_SRC: 4, COPY_DST: 8, UNIFORM: 64, STORAGE: 128 } as const;

/** Sizes are multiples of this, so that a shader may read whole vectors and a steady program finds the same sizes again. */
const UNIT = 256;
/** Free bytes that are kept for the next taker. */
const KEEP_BYTES = 1 << 28;

/** A buffer that somebody holds. */
export interface Block {
  readonly buffer: GPUBuffer;
  readonly sizeBytes: number;
  /** Names it in keys of bind groups. */
  readonly id: number;
  /** Whether its bytes are still the zeros it was made with. */
  fresh: boolean;
  /** Whether the device had no room when it was made: then it may be none, and is never taken again. */
  doubtful: boolean;
}

/** Buffers of one use, taken and given back by size. */
export class BlockPool {
  /** Bytes that are held now. */
  heldBytes = 0;
  /** Bytes that are free, kept for the next taker. */
  freeBytes = 0;
  private readonly bins = new Map<number, Block[]>();
  /** Given back while commands that use them wait: not to be written from the host before those are submitted. */
  private cooling: Block[] = [];
  private nextId = 1;
  /** Made since the device was last asked whether it had room. */
  private made: Block[] = [];
  /** Called before a buffer is made, so that its error is heard. */
  making: () => void = () => {};
  private readonly forgotten: FinalizationRegistry<Block>;

  constructor(
    private readonly device: GPUDevice,
    private readonly usage: number,
    /** The largest buffer. */
    readonly limitBytes: number,
  ) {
    this.forgotten = new FinalizationRegistry((block) => this.free(block));
  }

  /**
   * Takes a buffer; its contents are zeros if it is `fresh`, else whatever was there.
   *
   * @throws {RopewalkError} DEVICE when no buffer may be so large
   */
  take(bytes: number): Block {
    const size = Math.max(UNIT, Math.ceil(bytes / UNIT) * UNIT);
    if (size > this.limitBytes) {
      throw new RopewalkError(
        'DEVICE',
        `webgpu: memory: expected at most ${this.limitBytes} bytes in one tensor (maxStorageBufferBindingSize of this device), got ${bytes}. Split it.`,
      );
    }
    const kept = this.bins.get(size)?.pop();
    if (kept) this.freeBytes -= size;
    const block = kept ?? this.make(size);
    this.heldBytes += size;
    return block;
  }

  private make(size: number): Block {
    this.making();
    const buffer = this.device.createBuffer({ size, usage: this.usage });
    const block = { buffer, sizeBytes: size, id: this.nextId++, fresh: true, doubtful: false };
    this.made.push(block);
    return block;
  }

  /** What was made since this was last called. */
  takeMade(): Block[] {
    return this.made.splice(0);
  }

  /** Gives a buffer back. Commands that use it may still wait. */
  free(block: Block): void {
    block.fresh = false;
    this.heldBytes -= block.sizeBytes;
    this.freeBytes += block.sizeBytes;
    this.cooling.push(block);
  }

  /** Gives back a buffer that is not to be taken again. No command that uses it waits. */
  drop(block: Block): void {
    this.heldBytes -= block.sizeBytes;
    block.buffer.destroy();
  }

  /** Called when all commands are submitted: what was given back may be taken again, and what is too much is destroyed. */
  submitted(): void {
    for (const block of this.cooling) {
      if (block.doubtful || this.freeBytes > KEEP_BYTES) {
        this.freeBytes -= block.sizeBytes;
        block.buffer.destroy();
        continue;
      }
      const bin = this.bins.get(block.sizeBytes);
      if (bin) bin.push(block);
      else this.bins.set(block.sizeBytes, [block]);
    }
    this.cooling = [];
  }

  /** Destroys what is free: the device has no more memory, or somebody else needs it. */
  trim(): void {
    this.submitted();
    for (const bin of this.bins.values()) for (const block of bin) block.buffer.destroy();
    this.bins.clear();
    this.freeBytes = 0;
  }

  /** Watches over storage that the collector may find. */
  watch(storage: object, block: Block): void {
    this.forgotten.register(storage, block, storage);
  }

  /** Ends the watch of {@link watch}. */
  unwatch(storage: object): void {
    this.forgotten.unregister(storage);
  }
}

/** Reads bytes of a buffer back. */
export type ReadBack = (block: Block, start: number, end: number) => Promise<ArrayBuffer>;

/** A tensor's elements on the device. */
export class GpuStorage<D extends Dtype = Dtype> implements TensorStorage<D> {
  readonly owner = 'webgpu';
  readonly host = undefined;

  /**
   * @param home - whose block it is
   * @param taken - this storage gives it back
   */
  constructor(
    readonly home: BlockPool,
    readonly dtype: D,
    readonly length: number,
    private taken: Block | undefined,
    private readonly readBack: ReadBack,
  ) {
    if (taken) home.watch(this, taken);
  }

  /** Where it lies. */
  get block(): Block {
    return this.taken ?? refuse('DEVICE', 'tensor', 'one that is still in memory', 'a disposed tensor');
  }

  async read(start = 0, end = this.length): Promise<ArrayOf[D]> {
    const unit = sizeBytes(this.dtype);
    const first = Math.floor((start * unit) / 4) * 4;
    const bytes = await this.readBack(this.block, first, end * unit);
    return arrayOver(this.dtype, bytes, start * unit - first, end - start);
  }

  dispose(): void {
    if (!this.taken) return;
    this.home.unwatch(this);
    this.home.free(this.taken);
    this.taken = undefined;
  }
}
