/**
 * safetensors: a JSON header that names tensors, then their bytes.
 *
 * @module
 * @see https://github.com/huggingface/safetensors#format
 */

import { DTYPES, type Dtype, sizeBytes, type Tensor, tensorFrom } from 'ropewalk';
import { fail, refuse } from 'ropewalk/backend';
import {
  checkBytes,
  checkNamedTensors,
  countElements,
  nameForMessage,
  reading,
  readName,
  readOptions,
  show,
} from 'ropewalk/internal';
import { countClaimed, elementsAt, readNewTensors } from './bytes.js';
import { parseJson } from './json.js';

/** The place of a tensor in the file. */
export interface SafetensorsTensor {
  /** The type as the file names it, such as F32 or BF16. */
  readonly type: string;
  readonly shape: readonly number[];
  /** Bytes from the start of the file. */
  readonly byteOffset: number;
  readonly sizeBytes: number;
}

/** A header. */
export interface SafetensorsFile {
  readonly metadata: ReadonlyMap<string, string>;
  readonly tensors: ReadonlyMap<string, SafetensorsTensor>;
  /** The start of the data section, in bytes. */
  readonly dataOffset: number;
}

/** The most bytes of a header, as in the reference implementation. */
const MAX_HEADER_BYTES = 100_000_000;

const typeOf = (dtype: Dtype): string => dtype.toUpperCase();
/** This is a map, because a record would find a type that a file calls `constructor`. */
const DTYPE_OF: ReadonlyMap<string, Dtype> = /* @__PURE__ */ new Map<string, Dtype>([
  .../* @__PURE__ */ DTYPES.map((dtype) => [typeOf(dtype), dtype] as const),
  ['BOOL', 'u8'],
]);

/**
 * Reads the length of a header from the first eight bytes of the file.
 *
 * @param bytes - at least the first eight bytes
 * @param where - names the file in messages
 * @returns bytes from the start of the file to the data section
 * @throws {RopewalkError} FORMAT when there are fewer than eight bytes, or the length is absurd
 */
export function safetensorsHeaderBytes(bytes: Uint8Array, where = 'safetensors'): number {
  checkBytes(bytes, where);
  if (bytes.length < 8) refuse('FORMAT', where, 'at least 8 bytes', bytes.length);
  const length = new DataView(bytes.buffer, bytes.byteOffset).getBigUint64(0, true);
  if (length > BigInt(MAX_HEADER_BYTES))
    refuse('FORMAT', `${where}: header length`, `at most ${MAX_HEADER_BYTES} bytes`, length);
  return 8 + Number(length);
}

/**
 * Reads a header.
 *
 * @param bytes - the file, or its beginning with the whole header
 * @param where - names it in messages
 * @param fileSize - the whole file's size. Default: that of `bytes`
 * @throws {RopewalkError} FORMAT when the header is malformed or names a tensor twice, or tensors overlap, leave gaps
 *   or end past the file
 */
export function parseSafetensors(bytes: Uint8Array, where = 'safetensors', fileSize?: number): SafetensorsFile {
  checkBytes(bytes, where);
  const fileSizeBytes = fileSize ?? bytes.length;
  const dataOffset = safetensorsHeaderBytes(bytes, where);
  const sizes = `expected a header of ${dataOffset} bytes, got ${bytes.length} bytes`;
  if (dataOffset > bytes.length) fail('FORMAT', where, `${sizes}. The file is truncated or forged.`);
  if (bytes[8] !== 0x7b) refuse('FORMAT', where, 'a header that is a JSON object, which starts with {', bytes[8]);
  const header = parseJson(bytes.subarray(8, dataOffset), where, { uniqueKeys: true }) as Record<string, unknown>;
  const metadata = new Map<string, string>();
  const tensors = new Map<string, SafetensorsTensor>();
  for (const [name, entry] of Object.entries(header)) {
    if (name === '__metadata__') {
      if (!isObject(entry ?? {})) refuse('FORMAT', `${where}: __metadata__`, 'an object', entry);
      for (const [key, value] of Object.entries(entry ?? {})) {
        if (typeof value !== 'string')
          refuse('FORMAT', `${where}: __metadata__.${nameForMessage(key)}`, 'a string', value);
        metadata.set(key, value);
      }
    } else tensors.set(name, readEntry(entry, `${where}: ${nameForMessage(name)}`, dataOffset));
  }
  checkCoverage(tensors, where, dataOffset, fileSizeBytes);
  return { metadata, tensors, dataOffset };
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function readEntry(entry: unknown, where: string, dataOffset: number): SafetensorsTensor {
  if (!isObject(entry)) refuse('FORMAT', where, 'an object with dtype, shape and data_offsets', entry);
  const { dtype: type, shape, data_offsets: offsets } = entry;
  const integers = (list: unknown): list is number[] =>
    Array.isArray(list) && list.every((n) => Number.isSafeInteger(n) && n >= 0);
  if (typeof type !== 'string') refuse('FORMAT', `${where}.dtype`, 'a string', type);
  if (!integers(shape)) refuse('FORMAT', `${where}.shape`, 'integers >= 0', shape);
  const count = countClaimed(shape) ?? refuse('FORMAT', `${where}.shape`, 'fewer than 2^50 elements', shape);
  if (!integers(offsets) || offsets.length !== 2 || offsets[1]! < offsets[0]!)
    refuse('FORMAT', `${where}.data_offsets`, '[begin, end] with begin <= end', offsets);
  const size = offsets[1]! - offsets[0]!;
  const dtype = DTYPE_OF.get(type);
  const expected = dtype && count * sizeBytes(dtype);
  if (expected !== undefined && size !== expected)
    refuse('FORMAT', `${where}.data_offsets`, `${expected} bytes for shape ${show(shape)} of ${type}`, size);
  return { type, shape, byteOffset: dataOffset + offsets[0]!, sizeBytes: size };
}

/** The format allows no gaps in the data section. */
function checkCoverage(tensors: SafetensorsFile['tensors'], where: string, dataOffset: number, fileSize: number): void {
  let end = dataOffset;
  const order = [...tensors].sort(([, a], [, b]) => a.byteOffset - b.byteOffset || a.sizeBytes - b.sizeBytes);
  for (const [name, { byteOffset, sizeBytes: size }] of order) {
    const at = `${where}: ${nameForMessage(name)}.data_offsets`;
    const [begin, before] = [byteOffset - dataOffset, end - dataOffset];
    if (begin !== before) fail('FORMAT', at, `it begins at ${begin}, but the tensor before ends at ${before}`);
    end += size;
  }
  const expected = `${end} bytes, where the last tensor ends`;
  if (end !== fileSize) refuse('FORMAT', where, expected, fileSize, 'The file is truncated or forged.');
}

/**
 * Takes a tensor out of a file.
 *
 * @param bytes - the whole file
 * @param file - its header
 * @param name - the tensor
 * @returns a dense tensor; a view of the file where alignment allows, else a copy
 * @throws {RopewalkError} FORMAT for an unknown name, or bytes that end before the tensor does; UNSUPPORTED for a type
 *   that is not a dtype here (fp8, …)
 */
export function tensorFromSafetensors(bytes: Uint8Array, file: SafetensorsFile, name: string): Tensor {
  checkBytes(bytes, 'safetensors');
  const { tensors } = readOptions(file, 'safetensors: file');
  if (!reading('safetensors: file', () => tensors instanceof Map))
    refuse('FORMAT', 'safetensors: file', 'a result of parseSafetensors', file);
  const found = tensors.get(name) ?? refuse('FORMAT', 'safetensors', `one of ${tensors.size} tensors`, name);
  const { type, shape, byteOffset, sizeBytes: size } = readOptions(found, 'safetensors: tensor');
  const where = `safetensors: ${nameForMessage(name)}`;
  const dtype =
    DTYPE_OF.get(type) ?? refuse('UNSUPPORTED', where, `a type among ${[...DTYPE_OF.keys()].join(', ')}`, type);
  // The header may come from another file; a view would then reach past `bytes`.
  const whole = `the whole file, at least ${byteOffset + size} bytes`;
  if (byteOffset + size > bytes.length)
    refuse('FORMAT', where, whole, bytes.length, 'Pass the file, not only its header.');
  return tensorFrom(elementsAt(bytes, byteOffset, dtype, countElements(shape)), { dtype, shape });
}

/**
 * Writes a file with the tensors in the order given; the data starts at a multiple of 8. The same tensors give the same
 * bytes.
 *
 * Elements stay aligned if tensors of wider dtypes come first, as in the reference implementation.
 *
 * @param tensors - by name, in host memory
 * @param metadata - texts by name
 * @returns the file
 * @throws {RopewalkError} FORMAT for a tensor named `__metadata__`; DEVICE when a tensor is not in host memory
 */
export function writeSafetensors(
  tensors: ReadonlyMap<string, Tensor>,
  metadata: Readonly<Record<string, string>> = {},
): Uint8Array {
  checkNamedTensors(tensors, 'safetensors');
  const parts: Uint8Array[] = [];
  const entries: NewSafetensor[] = [];
  for (const [name, tensor] of tensors) {
    const data = tensor.read();
    if (data instanceof Promise)
      refuse('DEVICE', `safetensors: ${name}`, 'a tensor in host memory', tensor.storage.owner, 'Read it first.');
    parts.push(new Uint8Array(data.buffer, data.byteOffset, data.byteLength));
    entries.push({ name, dtype: tensor.dtype, shape: tensor.shape });
  }
  const { bytes, places, fileSizeBytes } = writeSafetensorsHeader(entries, metadata);
  const file = new Uint8Array(fileSizeBytes);
  file.set(bytes);
  for (const [n, part] of parts.entries()) file.set(part, places[n]!.byteOffset);
  return file;
}

/** A tensor that will be written. */
export interface NewSafetensor {
  readonly name: string;
  readonly dtype: Dtype;
  readonly shape: readonly number[];
}

/**
 * Writes the header of a file; the tensors follow it without gaps, and the first one starts at a multiple of 8.
 *
 * @param tensors - in the order of the file
 * @param metadata - texts by name
 * @returns the file up to the first tensor, and where the tensors go
 * @throws {RopewalkError} FORMAT for a tensor named `__metadata__`
 */
export function writeSafetensorsHeader(
  tensors: readonly NewSafetensor[],
  metadata: Readonly<Record<string, string>> = {},
): {
  readonly bytes: Uint8Array;
  readonly places: readonly { readonly byteOffset: number; readonly sizeBytes: number }[];
  readonly fileSizeBytes: number;
} {
  const texts = readOptions(metadata, 'safetensors: metadata');
  for (const [key, text] of Object.entries(texts))
    if (typeof text !== 'string') refuse('FORMAT', `safetensors: metadata.${nameForMessage(key)}`, 'a string', text);
  const entries: [string, unknown][] = Object.keys(texts).length > 0 ? [['__metadata__', texts]] : [];
  let at = 0;
  const names = { name: true, dtype: true, shape: true } as const;
  const placed = readNewTensors(tensors, names, 'safetensors').map(({ name, dtype, shape, count }) => {
    readName(dtype, DTYPES, `safetensors: ${nameForMessage(name)}: dtype`);
    if (name === '__metadata__')
      fail('FORMAT', 'safetensors: name', '__metadata__ is reserved. Give the tensor another name.');
    const place = { at, sizeBytes: count * sizeBytes(dtype) };
    at += place.sizeBytes;
    entries.push([name, { dtype: typeOf(dtype), shape, data_offsets: [place.at, at] }]);
    return place;
  });
  // JSON.stringify of one object would put integer-like names first, and leave out __proto__.
  const text = `{${entries.map(([name, value]) => `${JSON.stringify(name)}:${JSON.stringify(value)}`).join(',')}}`;
  const utf8 = new TextEncoder().encode(text);
  const start = 8 + Math.ceil(utf8.length / 8) * 8;
  const bytes = new Uint8Array(start).fill(0x20, 8);
  new DataView(bytes.buffer).setBigUint64(0, BigInt(start - 8), true);
  bytes.set(utf8, 8);
  const places = placed.map((place) => ({ byteOffset: start + place.at, sizeBytes: place.sizeBytes }));
  return { bytes, places, fileSizeBytes: start + at };
}
