/**
 * One call of an operator: the addresses of its tensors, and the memory that it takes until its end.
 *
 * Tensors of this backend are used in place. Host tensors are copied in before the call and, if written, copied out
 * after it.
 *
 * @module
 */
import { type BlockTensor, blockBytes, isBlocks } from '../../core/blocks.js';
import { bitsOf, type CacheDtype, type HostArray, sizeBytes } from '../../core/dtypes.js';
import { fail } from '../../core/errors.js';
import { extentOf, isRowMajor } from '../../core/shape.js';
import { hostOf, type Tensor } from '../../core/tensor.js';
import type { Walk } from '../walks.js';
import { Kernel, Rows, Type } from './abi.js';
import type { Launcher } from './launcher.js';
import { type Block, type WasmMemory, WasmStorage } from './memory.js';

/** A part of a host buffer that is copied into the backend's memory. */
interface Staged {
  readonly source: HostArray;
  /** The first byte and one past the last, counted in the source's buffer. */
  start: number;
  end: number;
  written: boolean;
  block: Block | undefined;
}

/** Views the staged bytes in the host's buffer. */
function hostBytes({ source, start, end }: Staged): Uint8Array {
  if (source.length === 0) {
    const what = "this typed array is a view of the backend's own memory, which grew and moved";
    const next = 'Give the tensor whose storage.host it was, or read storage.host again.';
    fail('DEVICE', 'cpu: tensor', `${what}. ${next}`);
  }
  return new Uint8Array(source.buffer, start, end - start);
}

/** A weight matrix, dense or in blocks. */
interface Matrix {
  readonly address: number;
  readonly type: Type;
  /** The step from row to row: in elements, or in bytes where it is blocks. */
  readonly row: number;
  /** The step from element to element of a row; 0 where it is blocks. */
  readonly stride: number;
  readonly rowBytes: number;
}

export class Call {
  /** The parts of host buffers that are copied in; most calls have none. */
  #staged: Map<ArrayBufferLike, Staged> | undefined;
  #blocks: Block[] | undefined;
  readonly #memory: WasmMemory;

  constructor(readonly launcher: Launcher) {
    this.#memory = launcher.memory;
  }

  /**
   * Announces the call's tensors, and copies those in host memory in: each buffer once, so that views that share memory
   * go on sharing it.
   *
   * @throws {RopewalkError} DEVICE when one belongs to another backend, or memory is full; nothing is written then
   */
  stage(inputs: readonly Tensor[], outputs: readonly Tensor[]): void {
    for (const tensor of inputs) this.announce(tensor, false);
    for (const tensor of outputs) this.announce(tensor, true);
    this.copyAnnounced();
  }

  /** Ends {@link stage} for tensors that were announced one by one, which makes no lists. */
  copyAnnounced(): void {
    if (!this.#staged) return;
    for (const staged of this.#staged.values()) {
      staged.block = this.#take(staged.end - staged.start);
      new Uint8Array(this.#memory.buffer, staged.block.address).set(hostBytes(staged));
    }
  }

  /** Gives the byte address of element `[0, 0, …]` of a tensor that was announced. */
  address(tensor: Tensor): number {
    const { storage } = tensor;
    const offset = tensor.offset * sizeBytes(tensor.dtype);
    if (storage instanceof WasmStorage && storage.memory === this.#memory) return storage.address + offset;
    const host = storage.host!;
    const staged = this.#staged?.get(host.buffer);
    // A tensor without elements is not staged.
    return staged ? staged.block!.address + host.byteOffset + offset - staged.start : 0;
  }

  /** Locates a weight matrix that was announced, or the first of several. */
  matrix(weight: Tensor | BlockTensor): Matrix {
    if (!isBlocks(weight)) {
      const { strides } = weight;
      const [row, stride] = [strides[strides.length - 2]!, strides[strides.length - 1]!];
      const rowBytes = Math.abs(row) * sizeBytes(weight.dtype);
      return { address: this.address(weight), type: typeOf(weight), row, stride, rowBytes };
    }
    const rowBytes = blockBytes(weight.format, weight.shape.at(-1)!);
    return { address: this.address(weight.bytes), type: Type[weight.format], row: rowBytes, stride: 0, rowBytes };
  }

  /** Gives the address of a vector as dense f32: in place, or widened for this call. */
  denseF32(vector: Tensor): number {
    const address = this.address(vector);
    if (vector.dtype === 'f32' && isRowMajor(vector)) return address;
    const n = vector.size;
    const to = this.temporary(n * 4);
    const args = this.launcher.prepare();
    args[Rows.x] = address;
    args[Rows.to] = to;
    args[Rows.type] = typeOf(vector);
    args[Rows.k] = n;
    args[Rows.stride] = vector.strides[0]!;
    args[Rows.list] = 0;
    args[Rows.first] = 0;
    writeWalk(args, Rows.walk, { dims: [1], strides: [[0]] });
    this.launcher.run(Kernel.widenRows, n === 0 ? 0 : 1, n * 4);
    return to;
  }

  /** Copies indices in as i32 until the end of the call, and gives their address. */
  copyIn(indices: ArrayLike<number>): number {
    const address = this.temporary(indices.length * 4);
    new Int32Array(this.#memory.buffer, address, indices.length).set(indices);
    return address;
  }

  /** Copies scales in as f32 until the end of the call, and gives their address; 0 for none. */
  copyInF32(scales: Float32Array | undefined): number {
    if (!scales) return 0;
    const address = this.temporary(scales.byteLength);
    new Float32Array(this.#memory.buffer, address, scales.length).set(scales);
    return address;
  }

  /** Takes memory until the end of the call, and gives its address. */
  temporary(bytes: number): number {
    return this.#take(bytes).address;
  }

  /** Copies what was written in host tensors back to them. */
  copyBack(): void {
    if (!this.#staged) return;
    for (const staged of this.#staged.values()) {
      if (!staged.written) continue;
      const bytes = hostBytes(staged);
      bytes.set(new Uint8Array(this.#memory.buffer, staged.block!.address, bytes.length));
    }
  }

  /** Gives all memory of the call back. */
  release(): void {
    if (this.#blocks) for (const block of this.#blocks) this.#memory.free(block);
  }

  #take(bytes: number): Block {
    const block = this.#memory.take(bytes);
    this.#blocks ??= [];
    this.#blocks.push(block);
    return block;
  }

  /** Announces one tensor; {@link copyAnnounced} follows. */
  announce(tensor: Tensor, written: boolean): void {
    const { storage } = tensor;
    if (storage instanceof WasmStorage && storage.memory === this.#memory) {
      storage.address; // A disposed tensor is refused here, before any memory is taken.
      return;
    }
    const source = hostOf(tensor, 'cpu: tensor');
    const extent = extentOf(tensor);
    if (!extent) return;
    const unit = sizeBytes(tensor.dtype);
    const start = source.byteOffset + extent[0] * unit;
    const end = source.byteOffset + (extent[1] + 1) * unit;
    this.#staged ??= new Map();
    const staged = this.#staged.get(source.buffer);
    if (!staged) this.#staged.set(source.buffer, { source: bitsOf(source), start, end, written, block: undefined });
    else {
      staged.start = Math.min(staged.start, start);
      staged.end = Math.max(staged.end, end);
      staged.written ||= written;
    }
  }
}

/** Gives the number that kernels have for a tensor's dtype; f64 has none. */
export function typeOf({ dtype }: Tensor): Type {
  return Type[dtype as Exclude<CacheDtype, 'f64'>];
}

// The functions below write a kernel's arguments: 32-bit words, each at the place that an enum of abi.ts names.

const float64 = new Float64Array(1);
const float64Words = new Int32Array(float64.buffer);
const float32 = new Float32Array(1);
const float32Words = new Int32Array(float32.buffer);

/** Writes a number as an f32. */
export function writeF32(args: Int32Array, at: number, value: number): void {
  float32[0] = value;
  args[at] = float32Words[0]!;
}

/** Writes a number as an f64, which takes two words. */
export function writeF64(args: Int32Array, at: number, value: number): void {
  float64[0] = value;
  args[at] = float64Words[0]!;
  args[at + 1] = float64Words[1]!;
}

/** Writes integers one after another, and returns the place behind them. set() costs ten times as much. */
export function writeList(args: Int32Array, at: number, list: readonly number[]): number {
  for (let i = 0; i < list.length; i++) args[at + i] = list[i]!;
  return at + list.length;
}

/** Writes a walk: its rank, the sizes, and the strides of each tensor. */
export function writeWalk(args: Int32Array, at: number, { dims, strides }: Walk): void {
  args[at] = dims.length;
  let end = writeList(args, at + 1, dims);
  for (const list of strides) end = writeList(args, end, list);
}
