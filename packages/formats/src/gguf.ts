/**
 * GGUF's header: metadata and the list of tensors. It gives the place of the weights but does not read them.
 *
 * Every count and length in the file is checked against its size before memory is taken.
 *
 * @module
 * @see https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
 */
import { RopewalkError } from 'ropewalk';
import { fail, refuse } from 'ropewalk/backend';
import { checkBytes, decodeUtf8, nameForMessage, show } from 'ropewalk/internal';
import { countClaimed } from './bytes.js';

/** A metadata value. 64-bit integers are bigint, all other numbers are numbers; arrays hold one type. */
export type GgufValue = number | bigint | boolean | string | readonly GgufValue[];

/** The place of a tensor in the file. */
export interface GgufTensor {
  readonly name: string;
  /** In ggml's order, fastest dimension first. */
  readonly shape: readonly number[];
  /** Name of the type, such as F32 or Q8_0; `TYPE_n` for a number this build does not know. */
  readonly type: string;
  /** Bytes from the start of the data section. */
  readonly offset: number;
  /** Size of the data, or undefined for a type this build does not know. */
  readonly sizeBytes: number | undefined;
}

/** A header. */
export interface GgufFile {
  readonly version: number;
  readonly bigEndian: boolean;
  readonly metadata: ReadonlyMap<string, GgufValue>;
  readonly tensors: readonly GgufTensor[];
  readonly alignment: number;
  /** The start of the data section, in bytes from the start of the file. */
  readonly dataOffset: number;
}

/** The cause of a FORMAT error when the header is longer than the bytes given: give more and try again. */
export class HeaderCut extends Error {
  /** @param bytesNeeded - at least this many bytes of the file are needed */
  constructor(readonly bytesNeeded: number) {
    super(`at least ${bytesNeeded} bytes are needed`);
  }
}

/**
 * ggml's types by number: elements and bytes of a block. Missing numbers are types that were withdrawn. Q8_1 is never
 * stored; its size is that of ggml's struct, two f16 and 32 bytes, although gguf-py says 40.
 *
 * @see ggml-org/llama.cpp@0024aa7 gguf-py/gguf/constants.py
 */
export const GGUF_TYPES: ReadonlyMap<number, readonly [name: string, elements: number, bytes: number]> =
  /* @__PURE__ */ new Map([
    [0, ['F32', 1, 4]],
    [1, ['F16', 1, 2]],
    [2, ['Q4_0', 32, 18]],
    [3, ['Q4_1', 32, 20]],
    [6, ['Q5_0', 32, 22]],
    [7, ['Q5_1', 32, 24]],
    [8, ['Q8_0', 32, 34]],
    [9, ['Q8_1', 32, 36]],
    [10, ['Q2_K', 256, 84]],
    [11, ['Q3_K', 256, 110]],
    [12, ['Q4_K', 256, 144]],
    [13, ['Q5_K', 256, 176]],
    [14, ['Q6_K', 256, 210]],
    [15, ['Q8_K', 256, 292]],
    [16, ['IQ2_XXS', 256, 66]],
    [17, ['IQ2_XS', 256, 74]],
    [18, ['IQ3_XXS', 256, 98]],
    [19, ['IQ1_S', 256, 50]],
    [20, ['IQ4_NL', 32, 18]],
    [21, ['IQ3_S', 256, 110]],
    [22, ['IQ2_S', 256, 82]],
    [23, ['IQ4_XS', 256, 136]],
    [24, ['I8', 1, 1]],
    [25, ['I16', 1, 2]],
    [26, ['I32', 1, 4]],
    [27, ['I64', 1, 8]],
    [28, ['F64', 1, 8]],
    [29, ['IQ1_M', 256, 56]],
    [30, ['BF16', 1, 2]],
    [34, ['TQ1_0', 256, 54]],
    [35, ['TQ2_0', 256, 66]],
    [39, ['MXFP4', 32, 17]],
    [40, ['NVFP4', 64, 36]],
    [41, ['Q1_0', 128, 18]],
    [42, ['Q2_0', 64, 18]],
  ] as const);

/** The types of metadata values, by their numbers. */
export const VALUE_TYPES = [
  'u8',
  'i8',
  'u16',
  'i16',
  'u32',
  'i32',
  'f32',
  'bool',
  'string',
  'array',
  'u64',
  'i64',
  'f64',
] as const;

/** The name of a type of metadata values. */
export type ValueType = (typeof VALUE_TYPES)[number];

const MAX_DIMS = 4; // as in ggml
const MAX_ARRAY_DEPTH = 4; // real metadata nests arrays one deep
const MAX_KEY_BYTES = 65535; // the limit of the format; keys are short ASCII paths
/** The most bytes of a text. The largest real text is a tokenizer in JSON, tens of megabytes. */
const MAX_TEXT_BYTES = 2 ** 28;
/** The most tensors or keys. Models have some thousands of tensors; a JavaScript map holds at most 2^24 entries. */
const MAX_ENTRIES = 2 ** 20;
/** The most elements of all arrays together. The largest vocabularies and merge lists have less than two million. */
const MAX_ARRAY_ELEMENTS = 2 ** 24;
/** Larger byte offsets are not exact as numbers. */
const MAX_OFFSET = Number.MAX_SAFE_INTEGER;

/**
 * Reads a header.
 *
 * @param bytes - the file, or its beginning with the whole header
 * @param where - names it in messages
 * @param fileSizeBytes - the whole file's size, where it is known: tensors must then be inside it
 * @throws {RopewalkError} FORMAT when the header is malformed; with cause `HeaderCut` when `bytes` ends inside it
 */
export function parseGguf(bytes: Uint8Array, where = 'gguf', fileSizeBytes?: number): GgufFile {
  checkBytes(bytes, where);
  const reader = new Reader(bytes, where);
  const magic = reader.take(4);
  if (String.fromCharCode(...magic) !== 'GGUF')
    fail('FORMAT', where, 'it is not a GGUF file: it does not start with GGUF');
  let version = reader.u32();
  // Read as little-endian, a big-endian version has an empty low half.
  if ((version & 0xffff) === 0) {
    reader.littleEndian = false;
    reader.at = 4;
    version = reader.u32();
  }
  if (version < 1 || version > 3) refuse('FORMAT', `${where}: version`, '1, 2 or 3', version);
  if (!reader.littleEndian && version < 3) refuse('FORMAT', `${where}: version`, '3 in a big-endian file', version);
  reader.wide = version > 1;
  const tensorCount = reader.length();
  const valueCount = reader.length();
  if (tensorCount > MAX_ENTRIES) refuse('FORMAT', `${where}: tensor count`, `at most ${MAX_ENTRIES}`, tensorCount);
  if (valueCount > MAX_ENTRIES) refuse('FORMAT', `${where}: metadata count`, `at most ${MAX_ENTRIES}`, valueCount);

  const metadata = new Map<string, GgufValue>();
  for (let n = 0; n < valueCount; n++) {
    const key = reader.text(MAX_KEY_BYTES);
    if (metadata.has(key)) fail('FORMAT', where, `two values have the key ${show(key)}`);
    metadata.set(key, reader.value(reader.u32(), 0));
  }
  const alignment = metadata.get('general.alignment') ?? 32;
  const power = typeof alignment === 'number' ? Math.log2(alignment) : Number.NaN;
  if (typeof alignment !== 'number' || !Number.isInteger(power) || power < 0 || power > 20)
    refuse('FORMAT', `${where}: general.alignment`, 'a power of two up to 2^20', alignment);

  const tensors: GgufTensor[] = [];
  const names = new Set<string>();
  for (let n = 0; n < tensorCount; n++) tensors.push(readTensor(reader, names, alignment));
  const dataOffset = Math.ceil(reader.at / alignment) * alignment;
  for (const { name, offset, sizeBytes } of tensors) {
    if (dataOffset + offset + (sizeBytes ?? 0) <= (fileSizeBytes ?? MAX_OFFSET)) continue;
    const expected = fileSizeBytes === undefined ? 'its end < 2^53' : `its end <= file size ${fileSizeBytes}`;
    const got = `offset ${dataOffset + offset} + ${sizeBytes ?? '?'} bytes`;
    refuse('FORMAT', `${where}: tensor ${nameForMessage(name)}`, expected, got, 'The file is truncated or forged.');
  }
  return { version, bigEndian: !reader.littleEndian, metadata, tensors, alignment, dataOffset };
}

function readTensor(reader: Reader, names: Set<string>, alignment: number): GgufTensor {
  const name = reader.text(MAX_KEY_BYTES);
  if (names.has(name)) fail('FORMAT', reader.where, `two tensors are named ${show(name)}`);
  names.add(name);
  const where = `${reader.where}: tensor ${nameForMessage(name)}`;
  const rank = reader.u32();
  if (rank > MAX_DIMS) refuse('FORMAT', where, `at most ${MAX_DIMS} dimensions`, rank);
  const shape = Array.from({ length: rank }, () => reader.length());
  const count = countClaimed(shape) ?? refuse('FORMAT', where, 'fewer than 2^50 elements', shape);
  const code = reader.u32();
  const offset = Number(reader.u64());
  if (offset > MAX_OFFSET || offset % alignment !== 0)
    refuse('FORMAT', where, `an offset that is a multiple of ${alignment}`, offset);
  const known = GGUF_TYPES.get(code);
  if (known && (shape[0] ?? 1) % known[1] !== 0)
    refuse('FORMAT', where, `rows of a multiple of ${known[1]} elements for ${known[0]}`, shape);
  const size = known ? (count / known[1]) * known[2] : undefined;
  return { name, shape, type: known?.[0] ?? `TYPE_${code}`, offset, sizeBytes: size };
}

/** Reads values one after another, and refuses to go past the end. */
class Reader {
  at = 0;
  littleEndian = true;
  /** Versions 2 and 3 count in 64 bits, version 1 in 32. */
  wide = true;
  #elements = 0;
  readonly #bytes: Uint8Array;
  readonly #view: DataView;

  constructor(
    bytes: Uint8Array,
    readonly where: string,
  ) {
    this.#bytes = bytes;
    this.#view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  }

  take(count: number): Uint8Array {
    this.#need(count);
    this.at += count;
    return this.#bytes.subarray(this.at - count, this.at);
  }

  #need(count: number): void {
    if (this.at + count <= this.#bytes.length) return;
    const end = this.at + count;
    const sentence = `the header takes at least ${end} bytes, but there are only ${this.#bytes.length}`;
    const message = `${this.where}: ${sentence}. The file is truncated or forged.`;
    throw new RopewalkError('FORMAT', message, { cause: new HeaderCut(end) });
  }

  u32(): number {
    this.#need(4);
    this.at += 4;
    return this.#view.getUint32(this.at - 4, this.littleEndian);
  }

  u64(): bigint {
    this.#need(8);
    this.at += 8;
    return this.#view.getBigUint64(this.at - 8, this.littleEndian);
  }

  /** Reads a count or a length. */
  length(): number {
    const count = this.wide ? this.u64() : BigInt(this.u32());
    if (count > BigInt(MAX_OFFSET)) refuse('FORMAT', this.where, 'a count below 2^53', count);
    return Number(count);
  }

  text(limit = MAX_TEXT_BYTES): string {
    const length = this.length();
    if (length > limit) refuse('FORMAT', this.where, `a string of at most ${limit} bytes`, length);
    return decodeUtf8(this.take(length), `${this.where}: text at byte ${this.at - length}`);
  }

  /** The least number of bytes of a value: a text starts with its length, an array with its type and length. */
  #smallest(type: number): number {
    const count = this.wide ? 8 : 4;
    const size = [1, 1, 2, 2, 4, 4, 4, 1, count, 4 + count, 8, 8, 8][type];
    return size ?? refuse('FORMAT', `${this.where}: value type`, '0 … 12', type);
  }

  value(type: number, depth: number): GgufValue {
    const size = this.#smallest(type);
    const name = VALUE_TYPES[type];
    if (name === 'string') return this.text();
    if (name === 'array') return this.#array(depth);
    this.#need(size);
    const at = this.at;
    this.at += size;
    const { littleEndian: le } = this;
    const view = this.#view;
    if (name === 'u8') return view.getUint8(at);
    if (name === 'i8') return view.getInt8(at);
    if (name === 'u16') return view.getUint16(at, le);
    if (name === 'i16') return view.getInt16(at, le);
    if (name === 'u32') return view.getUint32(at, le);
    if (name === 'i32') return view.getInt32(at, le);
    if (name === 'f32') return view.getFloat32(at, le);
    if (name === 'u64') return view.getBigUint64(at, le);
    if (name === 'i64') return view.getBigInt64(at, le);
    if (name === 'f64') return view.getFloat64(at, le);
    const flag = view.getUint8(at);
    if (flag > 1) refuse('FORMAT', `${this.where}: bool at byte ${at}`, '0 or 1', flag);
    return flag === 1;
  }

  #array(depth: number): GgufValue[] {
    if (depth >= MAX_ARRAY_DEPTH) fail('FORMAT', this.where, `its arrays are nested more than ${MAX_ARRAY_DEPTH} deep`);
    const type = this.u32();
    const count = this.length();
    if ((this.#elements += count) > MAX_ARRAY_ELEMENTS)
      refuse('FORMAT', this.where, `at most ${MAX_ARRAY_ELEMENTS} elements in all arrays`, this.#elements);
    // Bounds a forged count before memory is taken.
    this.#need(count * this.#smallest(type));
    const list: GgufValue[] = [];
    for (let n = 0; n < count; n++) list.push(this.value(type, depth + 1));
    return list;
  }
}
