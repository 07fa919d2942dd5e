/**
 * safetensors: a JSON header that names tensors, then their bytes.
 *
 * @module
 * @see https://github.com/huggingface/safetensors#format
 */
import { type Dtype, newArray, sizeBytes } from '../core/dtypes.js';
import { refuse } from '../core/errors.js';
import { countElements } from '../core/shape.js';
import { type Tensor, tensorFrom } from '../core/tensor.js';
import { parseJson } from './json.js';

/** Where a tensor lies. */
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
  /** Where the data section starts. */
  readonly dataOffset: number;
}

/** The reference implementation's own limit, against headers made to exhaust memory. */
const MAX_HEADER_BYTES = 100_000_000;

const DTYPE_OF: Readonly<Record<string, Dtype>> = {
  F64: 'f64',
  F32: 'f32',
  F16: 'f16',
  BF16: 'bf16',
  I64: 'i64',
  I32: 'i32',
  I16: 'i16',
  I8: 'i8',
  U64: 'u64',
  U32: 'u32',
  U16: 'u16',
  U8: 'u8',
  BOOL: 'u8',
};

/**
 * The number of bytes that a header takes, from the first eight bytes of the file.
 *
 * @param bytes - at least the first eight bytes
 * @param where - names the file in messages
 * @returns bytes from the start of the file to the data section
 * @throws {RopewalkError} FORMAT when there are fewer than eight bytes, or the length is absurd
 */
export function safetensorsHeaderBytes(bytes: Uint8Array, where = 'safetensors'): number {
  if (bytes.length < 8) refuse('FORMAT', where, 'at least 8 bytes', bytes.length);
  const length = new DataView(bytes.buffer, bytes.byteOffset).getBigUint64(0, true);
  if (length > BigInt(MAX_HEADER_BYTES)) refuse('FORMAT', `${where}: header length`, `at most ${MAX_HEADER_BYTES} bytes`, length);
  return 8 + Number(length);
}

/**
 * Reads a header.
 *
 * @param bytes - the file, or its beginning with the whole header
 * @param where - names it in messages
 * @param fileSizeBytes - the whole file's size; that of `bytes` unless given
 * @throws {RopewalkError} FORMAT when the header is malformed, or tensors overlap, leave gaps or end past the file
 */
export function parseSafetensors(bytes: Uint8Array, where = 'safetensors', fileSizeBytes = bytes.length): SafetensorsFile {
  const dataOffset = safetensorsHeaderBytes(bytes, where);
  if (dataOffset > bytes.length)
    refuse('FORMAT', where, `a header of ${dataOffset} bytes`, `${bytes.length} bytes`, 'The file is truncated or forged.');
  const header = parseJson(bytes.subarray(8, dataOffset), where);
  if (typeof header !== 'object' || header === null || Array.isArray(header))
    refuse('FORMAT', where, 'a header that is a JSON object', header);
  const metadata = new Map<string, string>();
  const tensors = new Map<string, SafetensorsTensor>();
  for (const [name, entry] of Object.entries(header)) {
    if (name === '__metadata__') {
      for (const [key, value] of Object.entries((entry ?? {}) as object)) {
        if (typeof value !== 'string') refuse('FORMAT', `${where}: __metadata__.${key}`, 'a text', value);
        metadata.set(key, value);
      }
    } else tensors.set(name, readEntry(entry, `${where}: ${name}`, dataOffset));
  }
  checkCoverage(tensors, where, dataOffset, fileSizeBytes);
  return { metadata, tensors, dataOffset };
}

function readEntry(entry: unknown, where: string, dataOffset: number): SafetensorsTensor {
  if (typeof entry !== 'object' || entry === null) refuse('FORMAT', where, 'an object with dtype, shape and data_offsets', entry);
  const { dtype: type, shape, data_offsets: offsets } = entry as Record<string, unknown>;
  const integers = (list: unknown): list is number[] => Array.isArray(list) && list.every((n) => Number.isSafeInteger(n) && n >= 0);
  if (typeof type !== 'string') refuse('FORMAT', `${where}.dtype`, 'a text', type);
  if (!integers(shape) || !Number.isSafeInteger(countElements(shape))) refuse('FORMAT', `${where}.shape`, 'integers >= 0', shape);
  if (!integers(offsets) || offsets.length !== 2 || offsets[1]! < offsets[0]!)
    refuse('FORMAT', `${where}.data_offsets`, '[begin, end] with begin <= end', offsets);
  const size = offsets[1]! - offsets[0]!;
  const dtype = DTYPE_OF[type];
  if (dtype && size !== countElements(shape) * sizeBytes(dtype)) {
    refuse('FORMAT', `${where}.data_offsets`, `${countElements(shape) * sizeBytes(dtype)} bytes for shape [${shape}] of ${type}`, size);
  }
  return { type, shape, byteOffset: dataOffset + offsets[0]!, sizeBytes: size };
}

/** The format wants the data section filled without gaps: nothing can hide in it. */
function checkCoverage(tensors: ReadonlyMap<string, SafetensorsTensor>, where: string, dataOffset: number, fileSizeBytes: number): void {
  let end = dataOffset;
  for (const [name, tensor] of [...tensors].sort(([, a], [, b]) => a.byteOffset - b.byteOffset || a.sizeBytes - b.sizeBytes)) {
    if (tensor.byteOffset !== end)
      refuse(
        'FORMAT',
        `${where}: ${name}.data_offsets`,
        `to begin at ${end - dataOffset}, where the tensor before ends`,
        tensor.byteOffset - dataOffset,
      );
    end += tensor.sizeBytes;
  }
  if (end !== fileSizeBytes)
    refuse('FORMAT', where, `${end} bytes, where the last tensor ends`, fileSizeBytes, 'The file is truncated or forged.');
}

/**
 * Takes a tensor out of a file.
 *
 * @param bytes - the whole file
 * @param file - its header
 * @param name - the tensor
 * @returns a dense tensor; a view of the file where alignment allows, else a copy
 * @throws {RopewalkError} FORMAT for a name that is not there; UNSUPPORTED for a type that is no dtype of ours (fp8, …)
 */
export function tensorFromSafetensors(bytes: Uint8Array, file: SafetensorsFile, name: string): Tensor {
  const entry = file.tensors.get(name) ?? refuse('FORMAT', 'safetensors', `one of ${file.tensors.size} tensors`, name);
  const dtype =
    DTYPE_OF[entry.type] ?? refuse('UNSUPPORTED', `safetensors: ${name}`, `a type among ${Object.keys(DTYPE_OF).join(', ')}`, entry.type);
  const at = bytes.byteOffset + entry.byteOffset;
  const count = countElements(entry.shape);
  const empty = newArray(dtype, 0);
  if (at % sizeBytes(dtype) === 0) {
    const view = empty.constructor as new (buffer: ArrayBufferLike, byteOffset: number, length: number) => typeof empty;
    return tensorFrom(new view(bytes.buffer, at, count), { dtype, shape: entry.shape });
  }
  const copy = newArray(dtype, count);
  new Uint8Array(copy.buffer).set(bytes.subarray(entry.byteOffset, entry.byteOffset + entry.sizeBytes));
  return tensorFrom(copy, { dtype, shape: entry.shape });
}
