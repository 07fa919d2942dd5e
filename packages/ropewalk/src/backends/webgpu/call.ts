/**
 * One call of an operator: where its tensors are on the device, and the kernels it queues.
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

/** What all calls of a backend share. */
export interface Home {
  readonly device: GPUDevice;
  readonly pool: BlockPool;
  readonly commands: Commands;
  readonly uploads: Uploads<Block>;
  /** Whether halves are widened by the hardware. */
  readonly f16: boolean;
  /** The most buffers of a kernel. Kept: a device makes its limits anew each time. */
  readonly maxBuffers: number;
  /** Copies to host memory that are under way, and what each writes. */
  readonly pending: Map<Promise<unknown>, { readonly range: HostRange; readonly written: readonly Tensor[] }>;
}

/** Bytes of host memory, on the device until they are back. */
interface HostRange {
  readonly memory: ArrayBufferLike;
  /** A multiple of 16, so that what is aligned on the host is also aligned on the device. */
  readonly start: number;
  end: number;
  block: Block | undefined;
  /** Copies to the host that are under way. */
  underWay: number;
  /** Settles when the last of them has arrived: they are written in the order in which they were queued. */
  last: Promise<unknown>;
}

/** Elements of 32 bits. */
type Words = Uint32Array | Int32Array | Float32Array;

/** Where an operand is. */
export interface Place {
  readonly block: Block;
  /** Element `[0, 0, …]`, counted in its own elements from the start of the block. */
  readonly offset: number;
}

/** An operand of a kernel: what {@link Operand} says, without the buffer. */
export interface Use extends Omit<Operand, 'buffer'> {
  readonly block: Block;
}

/** An operand that is only read. */
export function reads(name: string, element: Element, lanes: 1 | 4, block: Block): Use {
  return { name, element, lanes, written: false, block };
}

/** An operand that is written. */
export function writes(name: string, element: Element, lanes: 1 | 4, block: Block): Use {
  return { name, element, lanes, written: true, block };
}

/** One run of a kernel. */
type Launch<P extends string, V> = {
  readonly kernel: Kernel<P, V>;
  readonly variant: V;
  readonly uses: readonly Use[];
  /** Dimensions, fastest first: size and up to three operands' strides. */
  readonly walk?: readonly (readonly number[])[];
  /** Workgroups. */
  readonly groups: number;
} & (
  | { readonly params: Readonly<Record<P, number>>; readonly runs?: undefined }
  // With runs, which one by one would be the most of the host's work; what is in neither is 0.
  | { readonly params: Readonly<Partial<Record<P, number>>>; readonly runs: readonly ParamRun<NoInfer<P>>[] }
);

/** One call. */
export class Call {
  /** Ranges that this call copied in. */
  readonly #ranges: HostRange[] = [];
  /** Where each host tensor is. */
  readonly #rangeOf = new Map<Tensor, HostRange>();
  readonly #blocks: Block[] = [];
  #outputs: readonly Tensor[] = [];

  constructor(readonly home: Home) {}

  /**
   * Announces the call's tensors: those in host memory are copied in; views that share memory go on sharing it. Another
   * backend's, or one too large for the device, is refused before anything is written.
   */
  bring(inputs: readonly Tensor[], outputs: readonly Tensor[]): void {
    const spans: (Omit<HostRange, 'block' | 'underWay' | 'last'> & { readonly tensor: Tensor })[] = [];
    for (const tensor of [...inputs, ...outputs]) {
      const { storage } = tensor;
      if (storage instanceof GpuStorage && storage.home === this.home.pool) {
        storage.block; // a disposed one is refused before anything is taken
        continue;
      }
      const extent = extentOf(tensor);
      if (!extent) continue;
      const range = this.#onItsWay(tensor);
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
      range.block = this.home.pool.take(range.end - range.start);
      this.home.commands.write(range.block, wholeWords(range));
    }
    this.#outputs = outputs;
  }

  /** Where a tensor is; announced before. A tensor without elements may be anywhere. */
  place(tensor: Tensor): Place {
    const { storage, offset } = tensor;
    if (tensor.size === 0) return { block: this.scratch(0), offset: 0 };
    if (storage instanceof GpuStorage && storage.home === this.home.pool) return { block: storage.block, offset };
    const { block, start } = this.#rangeOf.get(tensor)!;
    return { block: block!, offset: (storage.host!.byteOffset - start) / sizeBytes(tensor.dtype) + offset };
  }

  /** Memory until the end of the call, with these elements in it. */
  temporary(data: Words): Block {
    const block = this.scratch(data.byteLength);
    this.#write(block, data);
    return block;
  }

  /** Memory for what a plan keeps: its elements are made and written at its first use, and stay while it is used. */
  upload(key: object, bytes: number, make: () => Words): Block {
    return this.home.uploads.get(key, bytes, () => {
      const block = this.home.pool.take(bytes);
      this.#write(block, make());
      return block;
    });
  }

  #write(block: Block, { buffer, byteOffset, byteLength }: Words): void {
    this.home.commands.write(block, new Uint8Array(buffer as ArrayBuffer, byteOffset, byteLength));
  }

  /** Memory until the end of the call; its contents are whatever was there. */
  scratch(bytes: number): Block {
    const block = this.home.pool.take(bytes);
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
    // The key is all that a variant seen before costs.
    const blocks: Block[] = [];
    let key = `${kernel.name} ${JSON.stringify(variant)}`;
    const buffers = uses.map(({ name, element, lanes, written, block }) => {
      let buffer = blocks.indexOf(block);
      if (buffer < 0) buffer = blocks.push(block) - 1;
      key += ` ${name}:${element}x${lanes}${written ? 'w' : 'r'}${buffer}`;
      return buffer;
    });
    const limit = this.home.maxBuffers;
    if (blocks.length > limit) {
      const most = `this device takes at most ${limit} buffers at a time, and these tensors lie in ${blocks.length}`;
      fail('UNSUPPORTED', `webgpu: ${kernel.name}`, `${most}.`);
    }
    this.home.commands.dispatch({
      key,
      write: () => {
        const operands = uses.map(({ block, ...rest }, i): Operand => ({ ...rest, buffer: buffers[i]! }));
        const bindings = bindingsOf(operands, blocks.length);
        return { bindings, text: writeShader(kernel, variant, operands, bindings, this.home.f16) };
      },
      blocks,
      params: packParams(kernel, params, runs, walk),
      groups,
    });
  }

  /** Queues the copies of what was written in host memory. */
  takeHome(): void {
    const written = new Map<HostRange, Tensor[]>();
    for (const tensor of this.#outputs) {
      const range = this.#rangeOf.get(tensor);
      if (range) written.set(range, [...(written.get(range) ?? []), tensor]);
    }
    for (const [range, tensors] of written) {
      const { pending, commands } = this.home;
      const bytes = commands.readBack(range.block!, 0, range.end - range.start);
      range.underWay++;
      const back = writtenLater(range.memory, this.#bringBack(range, tensors, bytes));
      range.last = back;
      pending.set(back, { range, written: tensors });
      back.finally(() => pending.delete(back)).catch(() => {});
    }
  }

  async #bringBack(range: HostRange, written: readonly Tensor[], bytes: Promise<ArrayBuffer>): Promise<void> {
    const before = range.last;
    try {
      const all = await bytes;
      await before;
      for (const tensor of written) copyBack(tensor, all, range.start);
    } finally {
      range.underWay--;
      if (range.underWay === 0) this.home.pool.free(range.block!);
    }
  }

  /** Gives the memory of the call back, except where a copy to the host is under way. */
  release(): void {
    const { pool } = this.home;
    for (const block of this.#blocks) pool.free(block);
    for (const { block, underWay } of this.#ranges) if (block && underWay === 0) pool.free(block);
  }

  /**
   * The range of an earlier call that still holds all of a host tensor's elements; undefined when it holds none. One
   * that holds some is refused, and so is a tensor that is not in host memory.
   */
  #onItsWay(tensor: Tensor): HostRange | undefined {
    const memory = tensor.storage.host?.buffer;
    const here = [...this.home.pending.values()].filter(({ range }) => range.memory === memory);
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

/** Says whether `outer` has every byte of `inner`; both are in one buffer. */
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

/** A tensor's first element and its strides of batch, token, head and dimension, as parameters from `from` on. */
export function layoutRun<P extends string>(from: P, { offset }: Place, { strides }: Tensor): ParamRun<P> {
  return { from, values: [offset, strides[0]!, strides[1]!, strides[2]!, strides[3]!] };
}

/** The bytes of a range: whole words, in memory that is not shared, as WebGPU wants them. */
function wholeWords({ memory, start, end }: HostRange): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(memory, start, end - start);
  if (memory instanceof ArrayBuffer && bytes.length % 4 === 0) return bytes as Uint8Array<ArrayBuffer>;
  const copy = new Uint8Array(Math.ceil(bytes.length / 4) * 4);
  copy.set(bytes);
  return copy;
}

/** Copies a tensor's elements, and nothing between them, from the bytes that came back. */
function copyBack(tensor: Tensor, bytes: ArrayBuffer, start: number): void {
  const host = tensor.storage.host!;
  const unit = sizeBytes(tensor.dtype);
  const elements = arrayOver(tensor.dtype, bytes, 0, Math.floor(bytes.byteLength / unit));
  const offset = (host.byteOffset - start) / unit + tensor.offset;
  copyBits(elements, { ...tensor, offset }, host, tensor);
}

/** The storage types that kernels compute with; f64 is not among them. */
export function elementOf(dtype: Dtype): 'f32' | 'f16' | 'bf16' {
  if (dtype === 'f32' || dtype === 'f16' || dtype === 'bf16') return dtype;
  return refuse('DTYPE', 'webgpu: dtype', 'f32, f16 or bf16', dtype);
}

/** The storage types of KV caches. */
export function cacheElementOf(dtype: CacheDtype): FloatElement {
  return isEightBits(dtype) ? dtype : elementOf(dtype);
}

/** A tensor's elements as bits to be moved, and its layout in those: 64-bit elements are two words each. */
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

/** A walk as kernels take it, fastest dimension first: its size, and the stride of each tensor. */
export function walkEntries({ dims, strides }: Walk): number[][] {
  return dims.map((size, d) => [size, ...strides.map((list) => list[d]!)]).reverse();
}

/**
 * Says whether loads of four may be used: the last stride is 1, and all others, all offsets and all sizes (of the last
 * dimension, and whatever else must be) are multiples of four.
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

/** A tensor's strides, 0 where the size is 1: such a stride is never used, and must not spoil the alignment. */
export function usefulStrides({ shape, strides }: Pick<Layout, 'shape' | 'strides'>): number[] {
  return strides.map((stride, d) => (shape[d] === 1 ? 0 : stride));
}
