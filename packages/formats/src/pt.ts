/**
 * The files of `torch.save`, since PyTorch 1.6: a zip with a pickle, which describes tensors, and their storages.
 *
 * A pickle is a program. This reader knows only the opcodes and classes of plain tensors, and refuses every other class
 * or function by its name: no code of a file ever runs.
 *
 * @module
 * @see https://github.com/pytorch/pytorch/blob/v2.4.0/torch/serialization.py _save, persistent_id
 * @see https://github.com/python/cpython/blob/3.12/Lib/pickletools.py the opcodes
 */

import { type Dtype, type HostArray, sizeBytes, Tensor, tensorFrom } from 'ropewalk';
import { fail, refuse } from 'ropewalk/backend';
import { checkBytes, decodeUtf8, nameForMessage, show } from 'ropewalk/internal';
import { countClaimed, elementsAt } from './bytes.js';
import { MAX_ZIP_BYTES, readZip } from './zip.js';

/** A class or function that the pickle names. */
class Global {
  constructor(readonly name: string) {}
}

/** A file in the zip whose elements tensors share. Without a dtype, each tensor says how to read its bytes. */
class Storage {
  constructor(
    readonly key: string,
    readonly dtype: Dtype | undefined,
    readonly sizeBytes: number,
  ) {}
}

/** Gives the elements of a storage; the same array each time. */
type ReadStorage = (storage: Storage, dtype: Dtype) => HostArray;

const STORAGES: ReadonlyMap<string, Dtype | undefined> = /* @__PURE__ */ new Map<string, Dtype | undefined>([
  ['torch.DoubleStorage', 'f64'],
  ['torch.FloatStorage', 'f32'],
  ['torch.HalfStorage', 'f16'],
  ['torch.BFloat16Storage', 'bf16'],
  ['torch.LongStorage', 'i64'],
  ['torch.IntStorage', 'i32'],
  ['torch.ShortStorage', 'i16'],
  ['torch.CharStorage', 'i8'],
  ['torch.ByteStorage', 'u8'],
  ['torch.BoolStorage', 'u8'],
  ['torch.storage.UntypedStorage', undefined],
]);

/** The dtypes that have no storage class of their own. */
const NEW_DTYPES: ReadonlyMap<string, Dtype> = /* @__PURE__ */ new Map<string, Dtype>([
  ['torch.uint16', 'u16'],
  ['torch.uint32', 'u32'],
  ['torch.uint64', 'u64'],
]);

/** The other names that a file of plain tensors has. */
const KNOWN: ReadonlySet<string> = /* @__PURE__ */ new Set([
  'torch._utils._rebuild_tensor_v2',
  'torch._utils._rebuild_tensor_v3',
  'torch._utils._rebuild_parameter',
  'collections.OrderedDict',
  'torch.Size',
]);

/** The number whose pickle files of PyTorch before 1.6 begin with. */
const LEGACY = [0x80, 0x02, 0x8a, 0x0a, 0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19];

const MAX_RANK = 64;
/** The deepest nesting, and the most tensors: a few bytes can name one list again and again. */
const MAX_DEPTH = 64;
const MAX_ITEMS = 65536;
/** The most elements of a tensor that repeats those of a smaller storage (stride 0, from expand). */
const MAX_REPEATED = 2 ** 20;

const SAVE = 'Save plain tensors: torch.save(x.detach().cpu(), file), or a dict of them.';

/**
 * Reads a file of `torch.save`: a tensor, or tensors in dicts, lists and tuples. Other plain values are left out.
 *
 * @param bytes - the whole file
 * @param where - names it in messages
 * @param maxBytes - the most bytes of all files in the zip together. Default: 2 GiB
 * @returns the tensors by name, in the file's order: keys and indices joined by dots, such as `layers.0.q`; '' for a
 *   tensor alone. They are views of the file with its strides where alignment allows, else copies
 * @throws {RopewalkError} FORMAT when the file is malformed, damaged, or written by PyTorch before 1.6; UNSUPPORTED
 *   when it names a class or function that is not of plain tensors (modules, sparse, complex or quantized tensors, …)
 */
export function parsePt(bytes: Uint8Array, where = 'pt', maxBytes = MAX_ZIP_BYTES): Map<string, Tensor> {
  checkBytes(bytes, where);
  if (typeof maxBytes !== 'number' || !(maxBytes >= 0))
    refuse('RANGE', `${where}: maxBytes`, 'a number >= 0', maxBytes);
  if (LEGACY.every((byte, at) => bytes[at] === byte)) {
    const next = 'Load it in a newer PyTorch and save it again: torch.save(torch.load(file), file).';
    fail('FORMAT', where, `it has the form of PyTorch before 1.6, which is not read. ${next}`);
  }
  const files = readZip(bytes, where, {
    kind: 'a file of torch.save, which is a zip since PyTorch 1.6 (save an older one again)',
    maxBytes,
  });
  const pickle = [...files.keys()].find((name) => /^[^/]*\/data\.pkl$/.test(name));
  if (pickle === undefined) fail('FORMAT', where, `the zip has no data.pkl. ${SAVE}`);
  const folder = pickle.slice(0, -'data.pkl'.length);
  const order = files.get(`${folder}byteorder`)?.();
  const bigEndian = order !== undefined && decodeUtf8(order, where) === 'big';
  const read = new Map<string, HostArray>();
  const elementsOf: ReadStorage = ({ key, sizeBytes: size }, dtype) => {
    const kept = read.get(`${dtype} ${key}`);
    if (kept) return kept;
    const at = `${where}: storage ${nameForMessage(key)}`;
    const file = files.get(`${folder}data/${key}`) ?? fail('FORMAT', at, 'the zip does not have it. It was forged.');
    const data = file();
    if (data.length !== size) refuse('FORMAT', at, `${size} bytes`, data.length, 'The file is truncated or forged.');
    const unit = sizeBytes(dtype);
    const elements = elementsAt(data, 0, dtype, Math.floor(size / unit), bigEndian && unit > 1);
    read.set(`${dtype} ${key}`, elements);
    return elements;
  };
  const value = new Pickle(files.get(pickle)!(), `${where}: data.pkl`, elementsOf).run();
  return namedTensors(value, where);
}

function namedTensors(root: unknown, where: string): Map<string, Tensor> {
  const found = new Map<string, Tensor>();
  let items = 0;
  const visit = (value: unknown, path: readonly string[]): void => {
    if (++items > MAX_ITEMS) fail('FORMAT', where, `it has more than ${MAX_ITEMS} values. ${SAVE}`);
    if (path.length > MAX_DEPTH)
      fail('FORMAT', where, `it has containers in containers, more than ${MAX_DEPTH} deep. ${SAVE}`);
    if (Tensor.isTensor(value)) {
      const name = path.join('.');
      if (found.has(name)) fail('FORMAT', where, `two tensors are named ${show(name)}`);
      found.set(name, value);
    } else if (Array.isArray(value)) value.forEach((item, n) => void visit(item, [...path, String(n)]));
    else if (value instanceof Map)
      for (const [key, item] of value) {
        if (typeof key !== 'string' && typeof key !== 'number')
          refuse('UNSUPPORTED', where, 'keys that are texts or integers', key, SAVE);
        visit(item, [...path, String(key)]);
      }
  };
  visit(root, []);
  return found;
}

/** Runs the opcodes that torch.save writes. Every step takes bytes of the file, so the work is bounded by them. */
class Pickle {
  readonly #bytes: Uint8Array;
  readonly #view: DataView;
  readonly #where: string;
  readonly #elementsOf: ReadStorage;
  #at = 0;
  #stack: unknown[] = [];
  /** The stacks below the open marks. */
  readonly #marks: unknown[][] = [];
  readonly #memo = new Map<number, unknown>();

  constructor(bytes: Uint8Array, where: string, elementsOf: ReadStorage) {
    this.#bytes = bytes;
    this.#view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    this.#where = where;
    this.#elementsOf = elementsOf;
  }

  run(): unknown {
    for (;;) {
      const opcode = this.#byte();
      if (opcode === 0x2e) return this.#pop();
      const value = this.#step(opcode);
      if (value !== undefined) this.#stack.push(value);
    }
  }

  /** @returns the value that it puts on the stack; undefined for none */
  #step(opcode: number): unknown {
    switch (String.fromCharCode(opcode)) {
      case '\x80': // PROTO
        if (this.#byte() !== 2) this.#broken('it is a pickle of another protocol than 2, which torch.save writes');
        return undefined;
      case '(': // MARK
        this.#marks.push(this.#stack);
        this.#stack = [];
        return undefined;
      case 'N': // NONE
        return null;
      case '\x88': // NEWTRUE
        return true;
      case '\x89': // NEWFALSE
        return false;
      case 'K': // BININT1
        return this.#byte();
      case 'M': // BININT2
        return this.#view.getUint16(this.#take(2), true);
      case 'J': // BININT
        return this.#view.getInt32(this.#take(4), true);
      case '\x8a': // LONG1
        return this.#long(this.#byte());
      case 'G': // BINFLOAT
        return this.#view.getFloat64(this.#take(8), false);
      case 'X': // BINUNICODE
        return this.#text(this.#view.getUint32(this.#take(4), true));
      case ')': // EMPTY_TUPLE
      case ']': // EMPTY_LIST
        return [];
      case '}': // EMPTY_DICT
        return new Map();
      case '\x85': // TUPLE1
      case '\x86': // TUPLE2
      case '\x87': // TUPLE3
        return Array.from({ length: opcode - 0x84 }, () => this.#pop()).reverse();
      case 't': // TUPLE
        return this.#toMark();
      case 'a': // APPEND
        return this.#extend([this.#pop()]);
      case 'e': // APPENDS
        return this.#extend(this.#toMark());
      case 's': // SETITEM
        return this.#setItems([this.#pop(), this.#pop()].reverse());
      case 'u': // SETITEMS
        return this.#setItems(this.#toMark());
      case 'q': // BINPUT
        return this.#put(this.#byte());
      case 'r': // LONG_BINPUT
        return this.#put(this.#view.getUint32(this.#take(4), true));
      case 'h': // BINGET
        return this.#get(this.#byte());
      case 'j': // LONG_BINGET
        return this.#get(this.#view.getUint32(this.#take(4), true));
      case 'c': // GLOBAL
        return this.#global(`${this.#line()}.${this.#line()}`);
      case 'Q': // BINPERSID
        return this.#storage(this.#pop());
      case 'R': {
        const args = this.#pop(); // REDUCE
        return this.#call(this.#pop(), args);
      }
      case 'b': // BUILD: the attributes of an OrderedDict, such as a state_dict's _metadata
        this.#pop();
        if (!(this.#stack.at(-1) instanceof Map)) this.#broken('it sets attributes of something other than a dict');
        return undefined;
      default:
        return this.#broken(`it has the opcode 0x${opcode.toString(16)} at byte ${this.#at - 1}`);
    }
  }

  #broken(sentence: string): never {
    return fail('FORMAT', this.#where, `${sentence}. ${SAVE}`);
  }

  /** Moves on by `count` bytes. @returns where they start */
  #take(count: number): number {
    const start = this.#at;
    if (start + count > this.#bytes.length)
      fail('FORMAT', this.#where, `it ends inside a value, after ${this.#bytes.length} bytes. The file is truncated.`);
    this.#at += count;
    return start;
  }

  #byte(): number {
    return this.#bytes[this.#take(1)]!;
  }

  #text(length: number): string {
    const start = this.#take(length);
    return decodeUtf8(this.#bytes.subarray(start, start + length), this.#where);
  }

  #line(): string {
    const end = this.#bytes.indexOf(10, this.#at);
    const text = this.#text((end < 0 ? this.#bytes.length : end) - this.#at);
    this.#take(1);
    return text;
  }

  /** Reads an integer of any size, little-endian, in two's complement. */
  #long(length: number): number {
    const start = this.#take(length);
    let value = 0n;
    for (let n = length - 1; n >= 0; n--) value = (value << 8n) | BigInt(this.#bytes[start + n]!);
    return Number(BigInt.asIntN(8 * length, value));
  }

  #pop(): unknown {
    if (this.#stack.length === 0) this.#broken(`its stack is empty at byte ${this.#at - 1}`);
    return this.#stack.pop();
  }

  #toMark(): unknown[] {
    const items = this.#stack;
    this.#stack = this.#marks.pop() ?? this.#broken(`it has no mark at byte ${this.#at - 1}`);
    return items;
  }

  #extend(items: readonly unknown[]): void {
    const list = this.#stack.at(-1);
    if (!Array.isArray(list)) this.#broken('it appends to something other than a list');
    for (const item of items) list.push(item);
  }

  #setItems(items: readonly unknown[]): void {
    const dict = this.#stack.at(-1);
    if (!(dict instanceof Map) || items.length % 2 !== 0) this.#broken('it sets items of something other than a dict');
    for (let n = 0; n < items.length; n += 2) dict.set(items[n], items[n + 1]);
  }

  #put(index: number): void {
    if (this.#stack.length === 0) this.#broken('it keeps a value that is not there');
    this.#memo.set(index, this.#stack.at(-1));
  }

  #get(index: number): unknown {
    if (!this.#memo.has(index)) this.#broken(`it takes the value ${index}, which it never kept`);
    return this.#memo.get(index);
  }

  #global(name: string): Global {
    if (!KNOWN.has(name) && !STORAGES.has(name) && !NEW_DTYPES.has(name))
      refuse('UNSUPPORTED', this.#where, 'plain tensors only', name, SAVE);
    return new Global(name);
  }

  /** Reads a persistent id: ('storage', its class, key, device, number of elements). */
  #storage(id: unknown): Storage {
    const [kind, type, key, , count] = Array.isArray(id) ? id : [];
    if (kind !== 'storage' || !(type instanceof Global) || !STORAGES.has(type.name) || typeof key !== 'string')
      return this.#broken('it names something that is not a storage');
    const dtype = STORAGES.get(type.name);
    const unit = dtype ? sizeBytes(dtype) : 1;
    return new Storage(key, dtype, this.#size(count, 'a number of elements') * unit);
  }

  #call(target: unknown, args: unknown): unknown {
    const given = Array.isArray(args) ? args : [];
    switch (target instanceof Global ? target.name : undefined) {
      case 'collections.OrderedDict':
        if (given.length > 0) this.#broken('it fills an OrderedDict in another way than torch.save');
        return new Map();
      case 'torch.Size':
        return given[0];
      case 'torch._utils._rebuild_parameter':
        return given[0];
      case 'torch._utils._rebuild_tensor_v2':
        return this.#tensor(given, given[6]);
      case 'torch._utils._rebuild_tensor_v3':
        return this.#tensor(given, given[7], given[6]);
      default:
        return this.#broken('it calls something that is not a function');
    }
  }

  /** @param args - storage, offset, size, strides, requires_grad, hooks */
  #tensor([storage, offset, size, strides]: readonly unknown[], metadata: unknown, type?: unknown): Tensor {
    if (!(storage instanceof Storage)) return this.#broken('it has a tensor without a storage');
    // Negated or conjugated by a flag, which the elements do not show.
    if (metadata instanceof Map && metadata.size > 0)
      refuse('UNSUPPORTED', this.#where, 'plain tensors only', [...metadata.keys()], 'Save x.resolve_neg().clone().');
    const dtype = storage.dtype ?? NEW_DTYPES.get(type instanceof Global ? type.name : '');
    if (dtype === undefined) return this.#broken('it has a tensor without a dtype');
    const shape = this.#sizes(size);
    const steps = this.#sizes(strides);
    const start = this.#size(offset, 'an offset');
    const count = countClaimed(shape);
    const data = this.#elementsOf(storage, dtype);
    const stored = data.length;
    const last = shape.reduce((at, dim, d) => at + Math.max(0, dim - 1) * (steps[d] ?? Number.NaN), start);
    const sentence = `shape ${show(shape)}, strides ${show(steps)} and offset ${start} do not fit a storage of ${stored}`;
    if (count === undefined || steps.length !== shape.length || !(count === 0 || last < stored))
      fail('FORMAT', this.#where, `${sentence} elements. The file is truncated or forged.`);
    if (count > Math.max(stored, MAX_REPEATED))
      fail('FORMAT', this.#where, `${sentence} elements without many repeats. Save x.contiguous().`);
    return tensorFrom(data, count === 0 ? { dtype, shape } : { dtype, shape, strides: steps, offset: start });
  }

  #sizes(list: unknown): number[] {
    if (!Array.isArray(list) || list.length > MAX_RANK)
      return this.#broken(`it has a shape of more than ${MAX_RANK} sizes`);
    return list.map((n) => this.#size(n, 'a size'));
  }

  #size(value: unknown, what: string): number {
    if (typeof value !== 'number' || !Number.isSafeInteger(value) || value < 0)
      refuse('FORMAT', this.#where, `${what} >= 0`, value, 'The file is forged.');
    return value;
  }
}
