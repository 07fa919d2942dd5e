/**
 * Writes GGUF's header; the tensors' bytes follow it.
 *
 * @module
 * @see https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
 */
import { refuse } from 'ropewalk/backend';
import { nameForMessage, reading, readList, readName, readOptions } from 'ropewalk/internal';
import { readNewTensors } from './bytes.js';
import { GGUF_TYPES, type GgufValue, VALUE_TYPES, type ValueType } from './gguf.js';

/** A value with its type: readers of GGUF refuse a number of another type. */
export interface TypedValue {
  readonly type: ValueType;
  /** Makes the value an array of `type`. */
  readonly value: GgufValue;
  readonly array?: true;
}

/** A tensor that will be written. */
export interface NewGgufTensor {
  readonly name: string;
  /** In ggml's order, fastest dimension first. */
  readonly shape: readonly number[];
  /** F32, Q8_0, … */
  readonly type: string;
}

/** A header, and the places of the tensors. */
export interface GgufHeader {
  /** The file up to the first tensor. */
  readonly bytes: Uint8Array;
  /** Bytes from the start of the file, in the order given. Between two tensors are zeros. */
  readonly places: readonly { readonly byteOffset: number; readonly sizeBytes: number }[];
  readonly fileSizeBytes: number;
}

const ALIGNMENT = 32;

/**
 * Writes a header of version 3, little-endian, aligned to 32 bytes.
 *
 * @param metadata - by key, in the order of the file
 * @param tensors - in the order of the file
 * @throws {RopewalkError} UNSUPPORTED for a type that ggml does not have; SHAPE for rows that are not whole blocks
 */
export function writeGgufHeader(
  metadata: ReadonlyMap<string, TypedValue>,
  tensors: readonly NewGgufTensor[],
): GgufHeader {
  const writer = new Writer();
  const entries = reading('gguf: metadata', () =>
    metadata instanceof Map ? [...metadata] : refuse('RANGE', 'gguf: metadata', 'a Map of values', metadata),
  );
  const list = readNewTensors(tensors, { name: true, shape: true, type: true }, 'gguf');
  writer.put(new TextEncoder().encode('GGUF'));
  writer.number('u32', 3);
  writer.number('u64', list.length);
  writer.number('u64', entries.length);
  for (const [key, given] of entries) {
    if (typeof key !== 'string') refuse('RANGE', 'gguf: metadata: key', 'a string', key);
    const where = `gguf: ${nameForMessage(key)}`;
    const { type, value, array } = readOptions(given, where, { type: true, value: true, array: true });
    writer.text(key);
    if (array) writer.number('u32', VALUE_TYPES.indexOf('array'));
    writer.number('u32', VALUE_TYPES.indexOf(readName(type, VALUE_TYPES, where)));
    const items = array ? Array.from(readList(value as readonly GgufValue[], where)) : [value];
    if (array) writer.number('u64', items.length);
    for (const item of items) writer.value(type, item, where);
  }
  let at = 0;
  const placed = list.map(({ name, shape, type, count }) => {
    const known = [...GGUF_TYPES].find(([, [one]]) => one === type);
    if (!known) return refuse('UNSUPPORTED', `gguf: ${nameForMessage(name)}`, 'a type of ggml', type);
    const [code, [, elements, bytes]] = known;
    if ((shape[0] ?? 1) % elements !== 0)
      refuse('SHAPE', `gguf: ${nameForMessage(name)}`, `rows of a multiple of ${elements} elements`, shape);
    const place = { at, sizeBytes: (count / elements) * bytes };
    writer.text(name);
    writer.number('u32', shape.length);
    for (const size of shape) writer.number('u64', size);
    writer.number('u32', code);
    writer.number('u64', at);
    at = aligned(at + place.sizeBytes);
    return place;
  });
  const start = aligned(writer.length);
  writer.put(new Uint8Array(start - writer.length));
  const last = placed.at(-1);
  return {
    bytes: writer.bytes(),
    places: placed.map((place) => ({ byteOffset: start + place.at, sizeBytes: place.sizeBytes })),
    fileSizeBytes: start + (last ? last.at + last.sizeBytes : 0),
  };
}

const aligned = (at: number): number => Math.ceil(at / ALIGNMENT) * ALIGNMENT;

/** A buffer that grows. */
class Writer {
  length = 0;
  #bytes = new Uint8Array(2 ** 16);
  #view = new DataView(this.#bytes.buffer);
  readonly #utf8 = new TextEncoder();

  bytes(): Uint8Array {
    return this.#bytes.slice(0, this.length);
  }

  /** Reserves `count` more bytes. @returns the first */
  #more(count: number): number {
    const at = this.length;
    this.length += count;
    if (this.length > this.#bytes.length) {
      const larger = new Uint8Array(Math.max(this.length, 2 * this.#bytes.length));
      larger.set(this.#bytes);
      this.#bytes = larger;
      this.#view = new DataView(larger.buffer);
    }
    return at;
  }

  put(bytes: Uint8Array): void {
    const at = this.#more(bytes.length);
    this.#bytes.set(bytes, at);
  }

  text(text: string): void {
    const bytes = this.#utf8.encode(text);
    this.number('u64', bytes.length);
    this.put(bytes);
  }

  number(type: 'u8' | 'i8' | 'u32' | 'i32' | 'u64' | 'f32', value: number): void {
    const at = this.#more(type === 'u64' ? 8 : type.endsWith('8') ? 1 : 4);
    if (type === 'u64') this.#view.setBigUint64(at, BigInt(value), true);
    else if (type === 'f32') this.#view.setFloat32(at, value, true);
    else if (type === 'u32') this.#view.setUint32(at, value, true);
    else if (type === 'i32') this.#view.setInt32(at, value, true);
    else this.#view.setUint8(at, value & 255);
  }

  value(type: ValueType, value: GgufValue, where: string): void {
    if (type === 'string' && typeof value === 'string') this.text(value);
    else if (type === 'bool' && typeof value === 'boolean') this.number('u8', Number(value));
    else if (type === 'f32' && typeof value === 'number') this.number('f32', value);
    else if ((type === 'u32' || type === 'i32' || type === 'u8' || type === 'i8') && isWithin(type, value))
      this.number(type, value);
    else refuse('RANGE', where, `a value of type ${type}`, value);
  }
}

function isWithin(type: 'u32' | 'i32' | 'u8' | 'i8', value: GgufValue): value is number {
  const bits = Number(type.slice(1));
  const [low, high] = type.startsWith('u') ? [0, 2 ** bits - 1] : [-(2 ** (bits - 1)), 2 ** (bits - 1) - 1];
  return Number.isInteger(value) && (value as number) >= low && (value as number) <= high;
}
