/// <reference lib="esnext.disposable" preserve="true" />
/** The tensor: storage and a layout over it. @module */
import { checkInteger, type OptionNames, reading, readList, readOptions } from './arguments.js';
import {
  type ArrayOf,
  asHostArray,
  bitsOf,
  type Dtype,
  dtypeOfArray,
  type HostArray,
  isDtype,
  isFloat,
  isFloat8,
  loadNumber,
  newArray,
  refuseDtype,
  sizeBytes,
} from './dtypes.js';
import { fail, refuse } from './errors.js';
import { type NestedNumbers, readNested } from './nested.js';
import {
  checkShape,
  countElements,
  extentOf,
  isRowMajor,
  type Layout,
  rowMajorStrides,
  stridesForView,
  walk,
  walkPair,
} from './shape.js';

/**
 * Elements of one dtype, in host memory or on a device. Host memory has `host`; a device's memory can only be `read`.
 */
export interface TensorStorage<D extends Dtype = Dtype> {
  readonly dtype: D;
  /** The number of elements. */
  readonly length: number;
  /** The owner of the memory, `host` or a backend's name: a backend refuses storage of another. */
  readonly owner: string;
  /**
   * The elements in host memory, or undefined on a device. Read it again before each use: memory may move when it grows.
   */
  readonly host: ArrayOf[D] | undefined;
  /**
   * Copies elements to a fresh host array.
   *
   * @param start - the first element. Default: 0
   * @param end - one past the last element. Default: the end of the storage
   */
  read(start?: number, end?: number): ArrayOf[D] | Promise<ArrayOf[D]>;
  /** Returns the memory to its owner, where the owner manages it; every later use is refused. */
  dispose?(): void;
}

// The symbol that `using` needs, on runtimes that do not define it yet.
const DISPOSE: typeof Symbol.dispose = (Symbol.dispose ??
  /* @__PURE__ */ Symbol.for('Symbol.dispose')) as typeof Symbol.dispose;

// The method that Node's util.inspect calls.
const INSPECT: unique symbol = /* @__PURE__ */ Symbol.for('nodejs.util.inspect.custom') as never;
/** The most elements that a printed tensor shows. */
const SHOWN = 8;

function textOf(elements: HostArray, dtype: Dtype, at: number): string {
  const float = isFloat(dtype) || isFloat8(dtype);
  return String(float ? Number(loadNumber(elements, dtype, at).toPrecision(6)) : elements[at]);
}

class HostStorage<D extends Dtype> implements TensorStorage<D> {
  readonly owner = 'host';
  readonly length: number;
  readonly #array: ArrayOf[D];
  constructor(
    readonly dtype: D,
    array: ArrayOf[D],
  ) {
    this.#array = array;
    this.length = array.length;
  }
  /** Checks the length again, because the buffer may have been transferred or resized since the constructor checked it. */
  get host(): ArrayOf[D] {
    if (this.#array.length < this.length)
      fail('DEVICE', 'tensor: data', 'the buffer was transferred or made smaller since the tensor was made');
    return this.#array;
  }
  read(start?: number, end?: number): ArrayOf[D] {
    return this.host.slice(start, end) as ArrayOf[D];
  }
}

/** Maps host memory that a device has yet to write to a promise that settles when it is written. */
const PENDING = /* @__PURE__ */ new WeakMap<ArrayBufferLike, Promise<unknown>>();
/** The number of pending writes. While it is 0, the map is not read. */
let pending = 0;

/**
 * Announces that a device will write to host memory. Until then, reading a tensor over it waits, and operators refuse
 * it.
 *
 * @param memory - the buffer of the tensors
 * @param done - settles when the memory is written; a rejection reaches every reader of a tensor over it
 * @returns a promise that settles with `done`, once such tensors can be read at once again
 */
export function writtenLater(memory: ArrayBufferLike, done: Promise<void>): Promise<unknown> {
  const all = Promise.all([PENDING.get(memory), done]);
  pending++;
  PENDING.set(memory, all);
  const settled = all.finally(() => {
    pending--;
    if (PENDING.get(memory) === all) PENDING.delete(memory);
  });
  settled.catch(() => {}); // Readers get the error; without readers it must not count as unhandled.
  return settled;
}

function pendingWrite(tensor: Tensor): Promise<unknown> | undefined {
  return pending > 0 && tensor.storage.host ? PENDING.get(tensor.storage.host.buffer) : undefined;
}

/** Marks a layout that needs no checks, because it is derived from a checked one or its memory was allocated for it. */
const DERIVED: unique symbol = /* @__PURE__ */ Symbol('derived');

/** Options for laying a tensor over storage; strides and offset are in elements. */
export interface TensorOptions {
  /** The dimensions. Default: one dimension with all elements. */
  readonly shape?: readonly number[];
  /** Elements between neighbours of each dimension, any sign. Default: dense and row-major. */
  readonly strides?: readonly number[];
  /** The index of element 0 in the storage. Default: 0. */
  readonly offset?: number;
}

const NAMES: OptionNames<TensorOptions> = { shape: true, strides: true, offset: true };

/**
 * An n-dimensional view of typed storage.
 *
 * Views (`view`, `permute`, `slice`) share storage with their source; nothing here changes an element.
 */
export class Tensor<D extends Dtype = Dtype> implements Layout {
  readonly dtype: D;
  readonly shape: readonly number[];
  /** Elements between neighbours of each dimension. */
  readonly strides: readonly number[];
  /** Index in the storage of element `[0, 0, …]`. */
  readonly offset: number;
  readonly storage: TensorStorage<D>;
  /** Only the constructor sets this: an object without it is not a tensor, whatever its prototype. */
  readonly #made = true;
  /** It is kept because each decoding step asks for it, and making it took a quarter of a short call. */
  #unsqueezed: Tensor<D> | undefined;

  /** Says whether a value is a tensor that this class made. */
  static isTensor(value: unknown): value is Tensor {
    return typeof value === 'object' && value !== null && #made in value;
  }

  /**
   * Lays a tensor over storage.
   *
   * @param storage - the elements; shared, not copied
   * @param options - shape, strides and offset in elements
   * @param derived - used by this module only
   * @throws {RopewalkError} SHAPE when shape and strides do not match; RANGE when an element would be outside the
   *   storage
   */
  constructor(storage: TensorStorage<D>, options: TensorOptions = {}, derived?: typeof DERIVED) {
    if (derived === DERIVED) {
      this.storage = storage;
      this.dtype = storage.dtype;
      this.offset = options.offset ?? 0;
      this.shape = options.shape!;
      this.strides = options.strides!;
      return;
    }
    const { offset = 0, shape, strides } = readOptions(options, 'tensor: options', NAMES);
    if (!reading('tensor: storage', () => isDtype(storage?.dtype) && Number.isSafeInteger(storage.length)))
      refuse('DTYPE', 'tensor: storage', 'a TensorStorage', storage, 'For a typed array use tensorFrom().');
    this.storage = storage;
    this.dtype = storage.dtype;
    this.offset = offset;
    checkInteger(this.offset, 'tensor: offset', 0);
    this.shape = checkShape(shape ?? [Math.max(0, storage.length - this.offset)], 'tensor: shape');
    const list = strides ? readList(strides, 'tensor: strides') : rowMajorStrides(this.shape);
    this.strides = Object.freeze(Array.from(list));
    const expected = `${this.shape.length} integers, one for each dimension of [${this.shape}]`;
    if (this.strides.length !== this.shape.length || !this.strides.every(Number.isSafeInteger))
      refuse('SHAPE', 'tensor: strides', expected, strides);
    const extent = extentOf(this);
    if (extent && (extent[0] < 0 || extent[1] >= storage.length || !Number.isSafeInteger(extent[1]))) {
      const layout = `shape [${this.shape}], strides [${this.strides}] and offset ${this.offset}`;
      const reach = `indices ${extent[0]} to ${extent[1]}`;
      fail('RANGE', 'tensor: storage', `${layout} reach ${reach}, but the storage has ${storage.length} elements`);
    }
  }

  /** Makes a view of elements of this tensor without checks, which would take half the time of a decoding step. */
  #derive(shape: readonly number[], strides: readonly number[], offset = this.offset): Tensor<D> {
    return new Tensor(this.storage, { shape: Object.freeze(shape), strides: Object.freeze(strides), offset }, DERIVED);
  }

  /** Number of elements. */
  get size(): number {
    return countElements(this.shape);
  }

  /** Number of dimensions. */
  get rank(): number {
    return this.shape.length;
  }

  /**
   * Returns the memory to the backend that owns it, for this tensor and every view of it. For host memory, which the
   * garbage collector frees, it does nothing. A second call is harmless; any other use afterwards throws a
   * RopewalkError DEVICE.
   *
   * @example using y = rw.rope(x, positions, { pairing: 'half', base: 10000 }); // disposed at the end of the block
   */
  dispose(): void {
    this.storage.dispose?.();
  }

  /** Disposes of the tensor at the end of a `using` block. */
  [DISPOSE](): void {
    this.dispose();
  }

  /** Says whether the elements are dense and row-major, at any offset. */
  isContiguous(): boolean {
    return isRowMajor(this);
  }

  /**
   * Gives the same elements another shape, sharing storage.
   *
   * @param shape - as many elements; one dimension may be -1, which is computed
   * @throws {RopewalkError} SHAPE when the count differs, or when no strides can express it (then use {@link reshape})
   */
  view(shape: readonly number[]): Tensor<D> {
    const wanted = resolveShape(shape, this.size, 'tensor.view: shape');
    const strides = stridesForView(this, wanted);
    if (!strides) {
      const what = `strides [${this.strides}] over [${this.shape}] cannot express [${wanted}]`;
      fail('SHAPE', 'tensor.view: shape', `${what}. Use reshape() or contiguous() to copy.`);
    }
    return this.#derive(wanted, strides);
  }

  /**
   * Gives the same elements another shape: a view where strides allow, otherwise a dense copy on the host.
   *
   * @param shape - as many elements; one dimension may be -1
   * @throws {RopewalkError} SHAPE when the count differs; DEVICE when a device's memory would have to be copied
   */
  reshape(shape: readonly number[]): Tensor<D> {
    const wanted = resolveShape(shape, this.size, 'tensor.reshape: shape');
    return stridesForView(this, wanted) ? this.view(wanted) : this.contiguous().view(wanted);
  }

  /** Adds a dimension of size 1 in front, sharing storage. */
  unsqueeze(): Tensor<D> {
    this.#unsqueezed ??= this.#derive(withFirst(1, this.shape), withFirst(this.size, this.strides));
    return this.#unsqueezed;
  }

  /**
   * Reorders dimensions, sharing storage: dimension d of the result is dimension `order[d]` of this.
   *
   * @param order - each dimension once
   * @throws {RopewalkError} SHAPE when `order` is not a permutation
   */
  permute(order: readonly number[]): Tensor<D> {
    const dims = Array.from(readList(order, 'tensor.permute: order'));
    if (dims.length !== this.rank || !this.shape.every((_dim, d) => dims.includes(d))) {
      refuse('SHAPE', 'tensor.permute: order', `each of 0 to ${this.rank - 1} once`, order);
    }
    const shape: number[] = [];
    const strides: number[] = [];
    for (const d of dims) {
      shape.push(this.shape[d]!);
      strides.push(this.strides[d]!);
    }
    return this.#derive(shape, strides);
  }

  /**
   * Takes indices `start … end - 1` of one dimension, sharing storage.
   *
   * @param dim - which dimension
   * @param start - first index
   * @param end - one past the last index
   * @throws {RopewalkError} RANGE when the dimension or the indices do not exist
   */
  slice(dim: number, start: number, end: number): Tensor<D> {
    checkInteger(dim, 'tensor.slice: dim', 0, this.rank - 1);
    const length = this.shape[dim]!;
    checkInteger(start, 'tensor.slice: start', 0, length);
    checkInteger(end, 'tensor.slice: end', start, length);
    const shape = this.shape.with(dim, end - start);
    // An empty slice keeps its source's offset, because start * stride may be past the end of the storage.
    const offset = end > start ? this.offset + start * this.strides[dim]! : this.offset;
    return this.#derive(shape, this.strides, offset);
  }

  /**
   * Returns a dense row-major tensor of the same elements: this one when it is dense, otherwise a copy in host memory.
   *
   * @throws {RopewalkError} DEVICE when a device's memory would have to be copied (use the backend's rearrange)
   */
  contiguous(): Tensor<D> {
    if (this.isContiguous()) return this;
    const copy = zeros(this.dtype, this.shape);
    copyElements(this, copy);
    return copy;
  }

  /**
   * Reads the elements in row-major order: at once from host memory, as a promise from a device or while a device is
   * writing.
   *
   * @returns a fresh typed array of `size` elements ({@link ArrayOf}; f16, bf16 and the 8-bit floats as raw bits)
   */
  read(): ArrayOf[D] | Promise<ArrayOf[D]> {
    const host = this.storage.host;
    if (host) {
      const done = pendingWrite(this);
      return done ? done.then(() => this.#gather(host, 0)) : this.#gather(host, 0);
    }
    const extent = extentOf(this);
    if (!extent) return newArray(this.dtype, 0);
    const pending = this.storage.read(extent[0], extent[1] + 1);
    return pending instanceof Promise
      ? pending.then((part) => this.#gather(part, extent[0]))
      : this.#gather(pending, extent[0]);
  }

  /**
   * Reads the elements as numbers in row-major order; 64-bit integers beyond 2^53 lose precision.
   *
   * @returns a fresh array of `size` numbers
   */
  readNumbers(): Float64Array | Promise<Float64Array> {
    const elements = this.read();
    const convert = (array: ArrayOf[D]): Float64Array => {
      if (array instanceof Float32Array) return new Float64Array(array); // It is 30 times as fast as the loop.
      const numbers = new Float64Array(array.length);
      for (let i = 0; i < numbers.length; i++) numbers[i] = loadNumber(array, this.dtype, i);
      return numbers;
    };
    return elements instanceof Promise ? elements.then(convert) : convert(elements);
  }

  /**
   * Prints dtype, shape and the first elements, or the place of memory that cannot be read at once.
   *
   * @example `Tensor f32 [2, 2]: 1, 2, 3, 4`
   */
  toString(): string {
    const what = `Tensor ${this.dtype} [${this.shape.join(', ')}]`;
    try {
      const { host, owner } = this.storage;
      if (!host) return `${what} on ${owner}`;
      if (pendingWrite(this)) return `${what}, not written yet`;
      const shown = Array.from({ length: Math.min(this.size, SHOWN) }, (_item, n) =>
        textOf(host, this.dtype, this.#at(n)),
      );
      return `${what}: ${shown.join(', ')}${this.size > SHOWN ? ', …' : ''}`;
    } catch {
      return `${what}, disposed`;
    }
  }

  /** Prints the tensor for `console.log` of Node. */
  [INSPECT](): string {
    return this.toString();
  }

  /** The index in the storage of element n in row-major order. */
  #at(n: number): number {
    let at = this.offset;
    for (let d = this.rank - 1, rest = n; d >= 0; d--) {
      at += (rest % this.shape[d]!) * this.strides[d]!;
      rest = Math.floor(rest / this.shape[d]!);
    }
    return at;
  }

  /** Copies the elements from `part`, the storage's elements from index `first` on. */
  #gather(part: ArrayOf[D], first: number): ArrayOf[D] {
    const start = this.offset - first;
    if (this.isContiguous()) return part.slice(start, start + this.size) as ArrayOf[D];
    const dense = newArray(this.dtype, this.size);
    const from = bitsOf(part);
    const to = bitsOf(dense);
    walk(this, (at, n) => {
      to[n] = from[at - first]!;
    });
    return dense;
  }
}

/** Options of {@link tensorFrom}. */
export interface TensorFromOptions<D extends Dtype = Dtype> extends TensorOptions {
  /**
   * It is required for a `Uint16Array`, which may hold u16, f16 or bf16, and for 8-bit floats in a `Uint8Array`. Default:
   * the dtype of the array's class.
   */
  readonly dtype?: D;
}

/**
 * Lays a tensor over a typed array, sharing its memory; or copies nested arrays of numbers, which give its shape.
 *
 * @param data - the elements; a typed array is kept, not copied. A `Float16Array` is read as f16.
 * @param options - dtype, shape, strides and offset in elements; nested arrays become f32 by default
 * @throws {RopewalkError} DTYPE when the array cannot hold the dtype, or a Uint16Array comes without one; SHAPE or
 *   RANGE as {@link Tensor}, for arrays of several lengths, and for values that are no numbers or do not fit the dtype
 * @example tensorFrom([[1, 2], [3, 4]]) // f32, [2, 2]
 */
export function tensorFrom<D extends Dtype>(
  data: HostArray | ArrayBufferView | NestedNumbers,
  options: TensorFromOptions<D> = {},
): Tensor<D> {
  const { dtype: said, shape, strides, offset } = readOptions(options, 'tensor: options', { ...NAMES, dtype: true });
  const nested = reading('tensor: data', () => Array.isArray(data));
  const dtype = said ?? (nested ? 'f32' : dtypeOfArray(data));
  if (!isDtype(dtype)) {
    const ambiguous = ArrayBuffer.isView(data) && data instanceof Uint16Array;
    refuseDtype(said ?? data, 'tensor: dtype', ambiguous ? 'A Uint16Array needs dtype u16, f16 or bf16.' : undefined);
  }
  const read = nested ? readNested(data as NestedNumbers, dtype as D) : undefined;
  const array = read?.data ?? asHostArray(data, dtype as D, 'tensor: data');
  return new Tensor(new HostStorage(dtype as D, array), { shape: shape ?? read?.shape, strides, offset });
}

/**
 * Makes a dense tensor over fresh memory. Dtype and shape are checked before the memory is taken, and nothing can fail
 * afterwards.
 *
 * @param dtype - element type
 * @param shape - dimensions
 * @param take - allocates storage for `length` elements, or throws
 * @throws {RopewalkError} DTYPE or SHAPE; whatever `take` throws
 */
export function denseTensor<D extends Dtype>(
  dtype: D,
  shape: readonly number[],
  take: (length: number) => TensorStorage<D>,
): Tensor<D> {
  if (!isDtype(dtype)) refuseDtype(dtype, 'tensor: dtype');
  const checked = checkShape(shape, 'tensor: shape');
  const strides = Object.freeze(rowMajorStrides(checked));
  return new Tensor(take(countElements(checked)), { shape: checked, strides }, DERIVED);
}

/**
 * Makes a dense tensor of zeros in host memory.
 *
 * @param dtype - element type
 * @param shape - dimensions
 * @throws {RopewalkError} DTYPE or SHAPE; DEVICE when the runtime has no such memory
 */
export function zeros<D extends Dtype>(dtype: D, shape: readonly number[]): Tensor<D> {
  return denseTensor(dtype, shape, (length) => new HostStorage(dtype, newArray(dtype, length)));
}

/**
 * Copies elements bit for bit between two host tensors of the same shape and dtype; storage of `to` outside its layout
 * is not changed.
 *
 * @param from - source
 * @param to - destination; must not overlap `from` unless it is the same view
 * @throws {RopewalkError} DEVICE when either is not in host memory
 */
export function copyElements<D extends Dtype>(from: Tensor<D>, to: Tensor<D>): void {
  copyBits(hostOf(from, 'copy: from'), from, hostOf(to, 'copy: to'), to);
}

/** Copies elements, as {@link copyElements}, from the array that `from` lays out to the one that `to` lays out. */
export function copyBits(source: HostArray, from: Layout, target: HostArray, to: Layout): void {
  const read = bitsOf(source);
  const write = bitsOf(target);
  if (isRowMajor(from) && isRowMajor(to)) {
    const dense = (read as Uint8Array).subarray(from.offset, from.offset + countElements(from.shape));
    (write as Uint8Array).set(dense, to.offset);
    return;
  }
  walkPair(from.shape, from, to, (a, b) => {
    write[b] = read[a]!;
  });
}

/** Checks that an argument is a tensor. @throws {RopewalkError} DTYPE for anything else */
export function checkTensor(value: unknown, where: string): asserts value is Tensor {
  if (!Tensor.isTensor(value)) refuse('DTYPE', where, 'a tensor', value, 'Make one with rw.tensor() or tensorFrom().');
}

/** Checks that an argument is a map from names to tensors. @throws {RopewalkError} DTYPE for anything else */
export function checkNamedTensors(value: unknown, where: string): asserts value is ReadonlyMap<string, Tensor> {
  if (!reading(where, () => value instanceof Map))
    refuse('DTYPE', `${where}: tensors`, 'a Map of tensors by name', value);
  for (const [name, tensor] of value as Map<unknown, unknown>) {
    if (typeof name !== 'string') refuse('DTYPE', `${where}: name`, 'a string', name);
    checkTensor(tensor, `${where}: ${name.slice(0, 80)}`);
  }
}

/**
 * Gives the host memory of a tensor.
 *
 * @param where - operator and argument, for the message
 * @throws {RopewalkError} DEVICE when the tensor is on a device, or a device has yet to write it
 */
export function hostOf<D extends Dtype>(tensor: Tensor<D>, where: string): ArrayOf[D] {
  checkTensor(tensor, where);
  if (pendingWrite(tensor))
    fail('DEVICE', where, 'a device has yet to write this tensor. First await backend.finish().');
  const { host, owner } = tensor.storage;
  return host ?? fail('DEVICE', where, `the tensor is in the memory of ${owner}. Read it first: await tensor.read().`);
}

/**
 * Reads a tensor of integers in host memory as numbers, in row-major order.
 *
 * @throws {RopewalkError} DTYPE for a floating tensor; RANGE for a value past ±(2^53 − 1), which a number cannot hold
 */
export function readIntegers(tensor: Tensor, where: string): Float64Array {
  const host = hostOf(tensor, where);
  if (isFloat(tensor.dtype) || isFloat8(tensor.dtype)) refuse('DTYPE', where, 'an integer dtype', tensor.dtype);
  const values = new Float64Array(tensor.size);
  if (tensor.isContiguous())
    for (let n = 0; n < values.length; n++) values[n] = integerAt(host, tensor.offset + n, where);
  else walk(tensor, (at, n) => (values[n] = integerAt(host, at, where)));
  return values;
}

function integerAt(host: HostArray, at: number, where: string): number {
  const value = Number(host[at]!);
  if (!Number.isSafeInteger(value)) refuse('RANGE', where, 'integers within ±(2^53 - 1)', host[at]);
  return value;
}

/** The ways in which two tensors share memory: not at all, as exactly the same view, or in part. */
export type Overlap = 'none' | 'same' | 'partial';

/**
 * Says how two tensors share memory. Where the ranges meet and the layouts differ, the elements themselves are compared,
 * so the q part and the k part of one packed row do not overlap.
 */
export function overlapOf(a: Tensor, b: Tensor): Overlap {
  if (a === b) return a.size > 0 ? 'same' : 'none';
  // Storages of a backend never share memory; only host arrays can overlap.
  if (a.storage !== b.storage && a.storage.owner !== 'host' && b.storage.owner !== 'host') return 'none';
  const rangeA = byteRange(a);
  const rangeB = byteRange(b);
  if (!rangeA || !rangeB || rangeA.memory !== rangeB.memory) return 'none';
  if (rangeA.end <= rangeB.start || rangeB.end <= rangeA.start) return 'none';
  if (sizeBytes(a.dtype) === sizeBytes(b.dtype) && rangeA.origin === rangeB.origin && sameDims(a, b)) return 'same';
  if (a.isContiguous() && b.isContiguous()) return 'partial';
  const from = Math.max(rangeA.start, rangeB.start);
  const touched = new Uint8Array(Math.min(rangeA.end, rangeB.end) - from);
  const walkBytes = (tensor: Tensor, { base }: ByteRange, visit: (byte: number) => void): void => {
    const unit = sizeBytes(tensor.dtype);
    walk(tensor, (at) => {
      const byte = base + at * unit - from;
      for (let k = Math.max(0, byte); k < Math.min(touched.length, byte + unit); k++) visit(k);
    });
  };
  let hit = false;
  walkBytes(a, rangeA, (byte) => (touched[byte] = 1));
  walkBytes(b, rangeB, (byte) => (hit ||= touched[byte] === 1));
  return hit ? 'partial' : 'none';
}

/** Says whether two indices of a tensor name the same element, as in a broadcast view, which cannot be an output. */
export function selfOverlaps(tensor: Tensor): boolean {
  if (tensor.isContiguous()) return false;
  const dims = tensor.shape
    .map((size, d) => ({ size, stride: Math.abs(tensor.strides[d]!) }))
    .filter((dim) => dim.size > 1);
  if (tensor.size <= 1) return false;
  if (dims.some((dim) => dim.stride === 0)) return true;
  dims.sort((p, q) => p.stride - q.stride);
  let reach = 0;
  let nested = true;
  for (const { size, stride } of dims) {
    if (stride <= reach) nested = false;
    reach += (size - 1) * stride;
  }
  if (nested) return false;
  const [low] = extentOf(tensor)!;
  const seen = new Uint8Array(reach + 1);
  let twice = false;
  walk(tensor, (at) => {
    if (seen[at - low]) twice = true;
    seen[at - low] = 1;
  });
  return twice;
}

interface ByteRange {
  readonly memory: unknown;
  /** The byte of storage element 0 in `memory`. */
  readonly base: number;
  /** The byte of element [0, 0, …]. */
  readonly origin: number;
  readonly start: number;
  readonly end: number;
}

function byteRange(tensor: Tensor): ByteRange | undefined {
  const extent = extentOf(tensor);
  if (!extent) return undefined;
  const host = tensor.storage.host;
  const unit = sizeBytes(tensor.dtype);
  const base = host ? host.byteOffset : 0;
  return {
    memory: host ? host.buffer : tensor.storage,
    base,
    origin: base + tensor.offset * unit,
    start: base + extent[0] * unit,
    end: base + (extent[1] + 1) * unit,
  };
}

/** Makes `[first, ...rest]`. Spreading a frozen list is several times slower, and RoPE of one token needs this four times. */
function withFirst(first: number, rest: readonly number[]): number[] {
  const list = [first];
  for (let i = 0; i < rest.length; i++) list.push(rest[i]!);
  return list;
}

function sameDims(a: Tensor, b: Tensor): boolean {
  const dims = (t: Tensor): string =>
    t.shape
      .map((size, d) => (size === 1 ? '' : `${size}:${t.strides[d]}`))
      .filter(Boolean)
      .join();
  return dims(a) === dims(b);
}

function resolveShape(shape: readonly number[], size: number, where: string): readonly number[] {
  let wanted = Array.from(readList(shape, where, 'a list of dimensions such as [2, -1]'));
  const unknown = wanted.indexOf(-1);
  if (unknown >= 0) {
    const rest = countElements(checkShape(wanted.toSpliced(unknown, 1), where));
    if (rest === 0 || size % rest !== 0) refuse('SHAPE', where, `dimensions that divide ${size} elements`, shape);
    wanted = wanted.with(unknown, size / rest);
  }
  const checked = checkShape(wanted, where);
  if (countElements(checked) !== size) refuse('SHAPE', where, `${size} elements`, shape);
  return checked;
}
