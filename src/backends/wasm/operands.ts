/**
 * Tensors as kernels see them: addresses and strides, whoever owns the memory.
 *
 * Tensors of this backend are used where they lie. Host tensors are copied in before a call and, if written, copied out after it.
 *
 * @module
 */
import { bitsOf, type Dtype, type HostArray, sizeBytes } from '../../core/dtypes.js';
import { refuse } from '../../core/errors.js';
import { extentOf } from '../../core/shape.js';
import { hostOf, type Tensor } from '../../core/tensor.js';
import { type Block, type WasmMemory, WasmStorage } from './memory.js';

interface Staged {
  readonly source: HostArray;
  /** First and one past the last byte staged, counted in the source's buffer. */
  start: number;
  end: number;
  written: boolean;
  block: Block | undefined;
}

/** The bytes that are staged, where the host has them. */
function hostBytes({ source, start, end }: Staged): Uint8Array {
  if (source.length === 0) {
    const got = "a view of this backend's own memory, which has grown and moved";
    refuse(
      'DEVICE',
      'cpu: tensor',
      'host memory that stays where it is',
      got,
      'Give the tensor whose storage.host it was, or take that anew.',
    );
  }
  return new Uint8Array(source.buffer, start, end - start);
}

/** The memory of one call: staged host tensors and temporary blocks, all given back at its end. */
export class Operands {
  /** By the buffer that a host tensor lies in; none in most calls. */
  private staged: Map<ArrayBufferLike, Staged> | undefined;
  private blocks: Block[] | undefined;

  constructor(private readonly home: WasmMemory) {}

  /**
   * Announces the call's tensors: those in host memory are copied in, each buffer once, so that views that share memory go on sharing it.
   *
   * @throws {RopewalkError} DEVICE when one belongs to another backend, or memory is full; nothing is written then
   */
  bring(inputs: readonly Tensor[], outputs: readonly Tensor[]): void {
    for (const tensor of inputs) this.announce(tensor, false);
    for (const tensor of outputs) this.announce(tensor, true);
    if (!this.staged) return;
    for (const staged of this.staged.values()) {
      staged.block = this.take(staged.end - staged.start);
      new Uint8Array(this.home.buffer, staged.block.address).set(hostBytes(staged));
    }
  }

  /**
   * The byte address of a tensor's element `[0, 0, …]`.
   *
   * @param tensor - announced before
   */
  address(tensor: Tensor): number {
    const { storage } = tensor;
    const offset = tensor.offset * sizeBytes(tensor.dtype);
    if (storage instanceof WasmStorage && storage.home === this.home) return storage.address + offset;
    const host = storage.host!;
    const staged = this.staged?.get(host.buffer);
    return staged ? staged.block!.address + host.byteOffset + offset - staged.start : 0; // a tensor without elements is not staged
  }

  /** Memory until the end of the call. */
  temporary(bytes: number): number {
    return this.take(bytes).address;
  }

  /** Copies what was written in host tensors back to them. */
  takeHome(): void {
    if (!this.staged) return;
    for (const staged of this.staged.values()) {
      if (!staged.written) continue;
      const bytes = hostBytes(staged);
      bytes.set(new Uint8Array(this.home.buffer, staged.block!.address, bytes.length));
    }
  }

  /** Gives all memory of the call back. */
  release(): void {
    if (this.blocks) for (const block of this.blocks) this.home.free(block);
  }

  private take(bytes: number): Block {
    const block = this.home.take(bytes);
    this.blocks ??= [];
    this.blocks.push(block);
    return block;
  }

  private announce(tensor: Tensor, written: boolean): void {
    const { storage } = tensor;
    if (storage instanceof WasmStorage && storage.home === this.home) {
      storage.address; // a disposed one is refused before anything is taken
      return;
    }
    const source = hostOf(tensor, 'cpu: tensor');
    const extent = extentOf(tensor);
    if (!extent) return;
    const unit = sizeBytes(tensor.dtype);
    const start = source.byteOffset + extent[0] * unit;
    const end = source.byteOffset + (extent[1] + 1) * unit;
    this.staged ??= new Map();
    const staged = this.staged.get(source.buffer);
    if (!staged) this.staged.set(source.buffer, { source: bitsOf(source), start, end, written, block: undefined });
    else {
      staged.start = Math.min(staged.start, start);
      staged.end = Math.max(staged.end, end);
      staged.written ||= written;
    }
  }
}

/** The storage types as kernels number them; f64 is not among them. */
export const TYPE: Readonly<Partial<Record<Dtype | 'q8_0' | 'q4_0', number>>> = {
  f32: 0,
  f16: 1,
  bf16: 2,
  q8_0: 3,
  q4_0: 4,
};
