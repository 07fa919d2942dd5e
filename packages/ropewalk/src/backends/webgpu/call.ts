/**
 * One call of an operator: the places of its tensors on the device, and the kernels that it queues.
 *
 * Tensors of this backend are used in place. Host tensors are copied to the device before the call and, if written,
 * copied back after it.
 *
 * @module
 */
import { arrayOver, type CacheDtype, type Dtype, sizeBytes } from '../../core/dtypes.js';
import { fail, refuse } from '../../core/errors.js';
import { extentOf, type Layout, walk } from '../../core/shape.js';
import { copyBits, hostOf, overlapOf, type Tensor, writtenLater } from '../../core/tensor.js';
import { isEightBits } from '../../ops/checks.js';
import type { Uploads } from '../uploads.js';
import type { Walk } from '../walks.js';
import type { Commands } from './commands.js';
import { type Block, type BlockPool, GpuStorage } from './memory.js';
import {
  bindingsOf,
  type Element,
  type FloatElement,
  type Kernel,
  type Operand,
  type ParamRun,
  packParams,
  walkLength,
  writeShader,
} from './shader.js';

/** Everything that all calls of a backend share. */
export interface Shared {
  readonly device: GPUDevice;
  readonly pool: BlockPool;
  readonly commands: Commands;
  readonly uploads: Uploads<Block>;
  /** Says whether the hardware widens halves. */
  readonly f16: boolean;
  /** The most buffers of a kernel. It is kept here because a device makes its limits anew each time. */
  readonly maxBuffers: number;
  /** The copies to host memory that are under way, and the tensors that each writes. */
  readonly pending: Map<Promise<unknown>, { readonly range: HostRange; readonly written: readonly Tensor[] }>;
}

/** A range of host memory, which lies on the device until it is copied back. */
interface HostRange {
  readonly memory: ArrayBufferLike;
  /** A multiple of 16, so that elements that are aligned on the host are also aligned on the device. */
  readonly start: number;
  end: number;
  block: Block | undefined;
  /** The number of copies to the host that are under way. */
  underWay: number;
  /** Settles when the last of them has arrived; they are written in the order in which they were queued. */
  last: Promise<unknown>;
}

/** Arrays of 32-bit elements. */
type Words = Uint32Array | Int32Array | Float32Array;

/** The place of a tensor on the device. */
export interface Place {
  readonly block: Block;
  /** The index of element `[0, 0, …]`, counted in elements from the start of the block. */
  readonly offset: number;
}

/** An operand of a kernel: an {@link Operand} with its block in place of the number of its buffer. */
export interface Use extends Omit<Operand, 'buffer'> {
  readonly block: Block;
}

/** Makes an operand that is only read. */
export function reads(name: string, element: Element, lanes: 1 | 4, block: Block): Use {
  return { name, element, lanes, written: false, block };
}

/** Makes an operand that is written. */
export function writes(name: string, element: Element, lanes: 1 | 4, block: Block): Use {
  return { name, element, lanes, written: true, block };
}

/** One run of a kernel. */
type Launch<P extends string, V> = {
  readonly kernel: Kernel<P, V>;
  readonly variant: V;
  readonly uses: readonly Use[];
  /** The dimensions, fastest first: the size of each, and the strides of up to three operands. */
  readonly walk?: readonly (readonly number[])[];
  /** The number of workgroups. */
  readonly groups: number;
} & (
  | { readonly params: Readonly<Record<P, number>>; readonly runs?: undefined }
  // Runs set several parameters at once, which saves most of the host's work; a parameter in neither is 0.
  | { readonly params: Readonly<Partial<Record<P, number>>>; readonly runs: readonly ParamRun<NoInfer<P>>[] }
);

export class Call {
  /** The ranges that this call copied in. */
  readonly #ranges: HostRange[] = [];
  /** The range of each host tensor. */
  readonly #rangeOf = new Map<Tensor, HostRange>();
  readonly #blocks: Block[] = [];
  #outputs: readonly Tensor[] = [];

  constructor(readonly shared: Shared) {}

  /**
   * Announces the call's tensors, and copies those in host memory in; views that share memory go on sharing it. A tensor
   * of another backend, or one that is too large for the device, is refused before anything is written.
   */
  stage(inputs: readonly Tensor[], outputs: readonly Tensor[]): void {
    const spans: (Omit<HostRange, 'block' | 'underWay' | 'last'> & { readonly tensor: Tensor })[] = [];
    for (const tensor of [...inputs, ...outputs]) {
      const { storage } = tensor;
      if (storage instanceof GpuStorage && storage.pool === this.shared.pool) {
        storage.block; // A disposed tensor is refused here, before any memory is taken.
        continue;
      }
      const extent = extentOf(tensor);
      if (!extent) continue;
      const range = this.#pendingRange(tensor);
      if (range) {
        this.#rangeOf.set(tensor, range);
        continue;
      }
      const host = storage.host!;
      const unit = sizeBytes(tensor.dtype);
      const start = Math.floor((host.byteOffset + extent[0] * unit) / 16) * 16;
      const end = Math.min(host.buffer.byteLength, Math.ceil((host.byteOffset + (extent[1] + 1) * unit) / 16) * 16);
      spans.push({ tensor, memory: host.buffer, start, end });
    }
    // Spans that touch become one range, so that the elements they share stay shared.
    spans.sort((a, b) => a.start - b.start);
    for (const { tensor, memory, start, end } of spans) {
      let range = this.#ranges.find((one) => one.memory === memory && start < one.end);
      if (!range) {
        range = { memory, start, end, block: undefined, underWay: 0, last: Promise.resolve() };
        this.#ranges.push(range);
      }
      range.end = Math.max(range.end, end);
      this.#rangeOf.set(tensor, range);
    }
    for (const range of this.#ranges) {
      range.block = this.shared.pool.take(range.end - range.start);
      this.shared.commands.write(range.block, wholeWords(range));
    }
    this.#outputs = outputs;
  }

  /** Locates a tensor that was announced. A tensor without elements may be anywhere. */
  place(tensor: Tensor): Place {
    const { storage, offset } = tensor;
    if (tensor.size === 0) return { block: this.scratch(0), offset: 0 };
    if (storage instanceof GpuStorage && storage.pool === this.shared.pool) return { block: storage.block, offset };
    const { block, start } = this.#rangeOf.get(tensor)!;
    return { block: block!, offset: (storage.host!.byteOffset - start) / sizeBytes(tensor.dtype) + offset };
  }

  /** Takes memory until the end of the call, and writes these elements to it. */
  temporary(data: Words): Block {
    const block = this.scratch(data.byteLength);
    this.#write(block, data);
    return block;
  }

  /** Locates a table of a plan: its elements are made and written at its first use, and stay while it is used. */
  upload(key: object, bytes: number, make: () => Words): Block {
    return this.shared.uploads.get(key, bytes, () => {
      const block = this.shared.pool.take(bytes);
      this.#write(block, make());
      return block;
    });
  }

  #write(block: Block, { buffer, byteOffset, byteLength }: Words): void {
    this.shared.commands.write(block, new Uint8Array(buffer as ArrayBuffer, byteOffset, byteLength));
  }

  /** Takes memory until the end of the call, which is not cleared. */
  scratch(bytes: number): Block {
    const block = this.shared.pool.take(bytes);
    this.#blocks.push(block);
    return block;
  }

  /** Queues a kernel. */
  launch<P extends string, V>({ kernel, variant, uses, params, runs, walk = [], groups }: Launch<P, V>): void {
    if (groups === 0) return;
    if (walk.length > walkLength(kernel)) {
      const most = `takes at most ${walkLength(kernel)} dimensions that do not join, and these are ${walk.length}`;
      fail('UNSUPPORTED', `webgpu: ${kernel.name}`, `${most}. Make the tensors contiguous.`);
    }
    // A variant that was seen before costs no more than its key.
    const blocks: Block[] = [];
    let key = `${kernel.name} ${JSON.stringify(variant)}`;
    const buffers = uses.map(({ name, element, lanes, written, block }) => {
      let buffer = blocks.indexOf(block);
      if (buffer < 0) buffer = blocks.push(block) - 1;
      key += ` ${name}:${element}x${lanes}${written ? 'w' : 'r'}${buffer}`;
      return buffer;
    });
    const limit = this.shared.maxBuffers;
    if (blocks.length > limit) {
      const most = `this device takes at most ${limit} buffers at a time, and these tensors lie in ${blocks.length}`;
      fail('UNSUPPORTED', `webgpu: ${kernel.name}`, `${most}.`);
    }
    this.shared.commands.dispatch({
      key,
      write: () => {
        const operands = uses.map(({ block, ...rest }, i): Operand => ({ ...rest, buffer: buffers[i]! }));
        const bindings = bindingsOf(operands, blocks.length);
        return { bindings, text: writeShader(kernel, variant, operands, bindings, this.shared.f16) };
      },
      blocks,
      params: packParams(kernel, params, runs, walk),
      groups,
    });
  }

  /** Queues the copies of host tensors that were written. */
  copyBack(): void {
    const written = new Map<HostRange, Tensor[]>();
    for (const tensor of this.#outputs) {
      const range = this.#rangeOf.get(tensor);
      if (range) written.set(range, [...(written.get(range) ?? []), tensor]);
    }
    for (const [range, tensors] of written) {
      const { pending, commands } = this.shared;
      const bytes = commands.readBack(range.block!, 0, range.end - range.start);
      range.underWay++;
      const back = writtenLater(range.memory, this.#writeHost(range, tensors, bytes));
      range.last = back;
      pending.set(back, { range, written: tensors });
      back.finally(() => pending.delete(back)).catch(() => {});
    }
  }

  async #writeHost(range: HostRange, written: readonly Tensor[], bytes: Promise<ArrayBuffer>): Promise<void> {
    const before = range.last;
    try {
      const all = await bytes;
      await before;
      for (const tensor of written) writeTensor(tensor, all, range.start);
    } finally {
      range.underWay--;
      if (range.underWay === 0) this.shared.pool.free(range.block!);
    }
  }

  /** Gives the memory of the call back, except where a copy to the host is under way. */
  release(): void {
    const { pool } = this.shared;
    for (const block of this.#blocks) pool.free(block);
    for (const { block, underWay } of this.#ranges) if (block && underWay === 0) pool.free(block);
  }

  /**
   * Finds the range of an earlier call that still holds all elements of a host tensor; undefined when no range holds any.
   * A tensor of which a range holds some elements is refused, and so is one that is not in host memory.
   */
  #pendingRange(tensor: Tensor): HostRange | undefined {
    const memory = tensor.storage.host?.buffer;
    const here = [...this.shared.pending.values()].filter(({ range }) => range.memory === memory);
    if (here.length === 0) hostOf(tensor, 'webgpu: tensor');
    for (const { range, written } of here.reverse()) {
      for (const other of written) {
        if (overlapOf(tensor, other) === 'none') continue;
        if (covers(other, tensor)) return range;
        const state = 'the device has not yet written a part of this host memory';
        fail('DEVICE', 'webgpu: tensor', `${state}. Wait first: await backend.finish().`);
      }
    }
    return undefined;
  }
}

/** Says whether `outer` has every byte of `inner`, which is in the same buffer. */
function covers(outer: Tensor, inner: Tensor): boolean {
  const bytesOf = (tensor: Tensor, visit: (byte: number) => void): void => {
    const unit = sizeBytes(tensor.dtype);
    const base = tensor.storage.host!.byteOffset;
    walk(tensor, (at) => {
      for (let k = 0; k < unit; k++) visit(base + at * unit + k);
    });
  };
  const [low, high] = extentOf(outer)!;
  const unit = sizeBytes(outer.dtype);
  const start = outer.storage.host!.byteOffset + low * unit;
  const has = new Uint8Array((high - low + 1) * unit);
  bytesOf(outer, (byte) => {
    has[byte - start] = 1;
  });
  let all = true;
  bytesOf(inner, (byte) => {
    if (!has[byte - start]) all = false;
  });
  return all;
}

/** Sets the parameters from `from` on to a tensor's first element and its strides of batch, token, head and dimension. */
export function layoutRun<P extends string>(from: P, { offset }: Place, { strides }: Tensor): ParamRun<P> {
  return { from, values: [offset, strides[0]!, strides[1]!, strides[2]!, strides[3]!] };
}

/** Views or copies the bytes of a range as whole words in memory that is not shared, because WebGPU demands both. */
function wholeWords({ memory, start, end }: HostRange): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(memory, start, end - start);
  if (memory instanceof ArrayBuffer && bytes.length % 4 === 0) return bytes as Uint8Array<ArrayBuffer>;
  const copy = new Uint8Array(Math.ceil(bytes.length / 4) * 4);
  copy.set(bytes);
  return copy;
}

/** Copies a tensor's elements, and nothing between them, from the bytes of a range. */
function writeTensor(tensor: Tensor, bytes: ArrayBuffer, start: number): void {
  const host = tensor.storage.host!;
  const unit = sizeBytes(tensor.dtype);
  const elements = arrayOver(tensor.dtype, bytes, 0, Math.floor(bytes.byteLength / unit));
  const offset = (host.byteOffset - start) / unit + tensor.offset;
  copyBits(elements, { ...tensor, offset }, host, tensor);
}

/** Converts a dtype to the storage type of operands; f64 has none. */
export function elementOf(dtype: Dtype): 'f32' | 'f16' | 'bf16' {
  if (dtype === 'f32' || dtype === 'f16' || dtype === 'bf16') return dtype;
  return refuse('DTYPE', 'webgpu: dtype', 'f32, f16 or bf16', dtype);
}

/** Converts the dtype of a KV cache to its storage type. */
export function cacheElementOf(dtype: CacheDtype): FloatElement {
  return isEightBits(dtype) ? dtype : elementOf(dtype);
}

/** Describes a tensor as elements of raw bits to be moved: a 64-bit element is two words. */
export function asBits({ dtype, shape, strides }: Tensor, offset: number): { element: Element; layout: Layout } {
  const bytes = sizeBytes(dtype);
  if (bytes < 8)
    return {
      element: ({ 1: 'u8', 2: 'u16', 4: 'u32' } as const)[bytes as 1 | 2 | 4],
      layout: { shape, strides, offset },
    };
  const words = [...strides.map((stride) => stride * 2), 1];
  return { element: 'u32', layout: { shape: [...shape, 2], strides: words, offset: offset * 2 } };
}

/** Converts a walk for kernels, fastest dimension first: the size of each, and the stride of each tensor. */
export function walkEntries({ dims, strides }: Walk): number[][] {
  return dims.map((size, d) => [size, ...strides.map((list) => list[d]!)]).reverse();
}

/**
 * Says whether loads of four may be used: the last stride of each list is 1, and all other strides, all offsets and all
 * sizes are multiples of four.
 */
export function inFours(
  sizes: readonly number[],
  strides: readonly (readonly number[])[],
  offsets: readonly number[],
): boolean {
  const fours = (n: number): boolean => n % 4 === 0;
  return (
    sizes.every(fours) &&
    offsets.every(fours) &&
    strides.every((list) => list.at(-1) === 1 && list.slice(0, -1).every(fours))
  );
}

/** Gives a tensor's strides, with 0 where the size is 1: such a stride is never used and must not spoil the alignment. */
export function usefulStrides({ shape, strides }: Pick<Layout, 'shape' | 'strides'>): number[] {
  return strides.map((stride, d) => (shape[d] === 1 ? 0 : stride));
}
