/**
 * safetensors: a JSON header that names tensors, then their bytes.
 *
 * @module
 * @see https://github.com/huggingface/safetensors#format
 */
import { type Dtype, sizeBytes } from '../core/dtypes.js';
import { refuse, show } from '../core/errors.js';
import { countElements } from '../core/shape.js';
import { type Tensor, tensorFrom } from '../core/tensor.js';
import { countClaimed, elementsAt, nameForMessage } from './bytes.js';
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

/** A map, not a record: a file that names the type `constructor` must not find one. */
const DTYPE_OF: ReadonlyMap<string, Dtype> = /* @__PURE__ */ new Map<string, Dtype>([
  ['F64', 'f64'],
  ['F32', 'f32'],
  ['F16', 'f16'],
  ['BF16', 'bf16'],
  ['I64', 'i64'],
  ['I32', 'i32'],
  ['I16', 'i16'],
  ['I8', 'i8'],
  ['U64', 'u64'],
  ['U32', 'u32'],
  ['U16', 'u16'],
  ['U8', 'u8'],
  ['BOOL', 'u8'],
]);

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
 * @throws {RopewalkError} FORMAT when the header is malformed or names a tensor twice, or tensors overlap, leave gaps or end past the file
 */
export function parseSafetensors(bytes: Uint8Array, where = 'safetensors', fileSizeBytes = bytes.length): SafetensorsFile {
  const dataOffset = safetensorsHeaderBytes(bytes, where);
  if (dataOffset > bytes.length)
    refuse('FORMAT', where, `a header of ${dataOffset} bytes`, `${bytes.length} bytes`, 'The file is truncated or forged.');
  if (bytes[8] !== 0x7b) refuse('FORMAT', where, 'a header that is a JSON object, which starts with {', bytes[8]);
  const header = parseJson(bytes.subarray(8, dataOffset), where, { uniqueKeys: true }) as Record<string, unknown>;
  const metadata = new Map<string, string>();
  const tensors = new Map<string, SafetensorsTensor>();
  for (const [name, entry] of Object.entries(header)) {
    if (name === '__metadata__') {
      if (!isObject(entry ?? {})) refuse('FORMAT', `${where}: __metadata__`, 'an object', entry);
      for (const [key, value] of Object.entries(entry ?? {})) {
        if (typeof value !== 'string') refuse('FORMAT', `${where}: __metadata__.${nameForMessage(key)}`, 'a text', value);
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
  const integers = (list: unknown): list is number[] => Array.isArray(list) && list.every((n) => Number.isSafeInteger(n) && n >= 0);
  if (typeof type !== 'string') refuse('FORMAT', `${where}.dtype`, 'a text', type);
  if (!integers(shape)) refuse('FORMAT', `${where}.shape`, 'integers >= 0', shape);
  const count = countClaimed(shape) ?? refuse('FORMAT', `${where}.shape`, 'fewer than 2^50 elements', shape);
  if (!integers(offsets) || offsets.length !== 2 || offsets[1]! < offsets[0]!)
    refuse('FORMAT', `${where}.data_offsets`, '[begin, end] with begin <= end', offsets);
  const size = offsets[1]! - offsets[0]!;
  const dtype = DTYPE_OF.get(type);
  if (dtype && size !== count * sizeBytes(dtype)) {
    refuse('FORMAT', `${where}.data_offsets`, `${count * sizeBytes(dtype)} bytes for shape ${show(shape)} of ${type}`, size);
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
        `${where}: ${nameForMessage(name)}.data_offsets`,
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
 * @throws {RopewalkError} FORMAT for a name that is not there, or bytes that end before the tensor does;
 *   UNSUPPORTED for a type that is no dtype of ours (fp8, …)
 */
export function tensorFromSafetensors(bytes: Uint8Array, file: SafetensorsFile, name: string): Tensor {
  const {
    type,
    shape,
    byteOffset,
    sizeBytes: size,
  } = file.tensors.get(name) ?? refuse('FORMAT', 'safetensors', `one of ${file.tensors.size} tensors`, name);
  const where = `safetensors: ${nameForMessage(name)}`;
  const dtype = DTYPE_OF.get(type) ?? refuse('UNSUPPORTED', where, `a type among ${[...DTYPE_OF.keys()].join(', ')}`, type);
  // The header may come from a file on disk and `bytes` from elsewhere; a view would then reach past them, into whatever lies behind.
  if (byteOffset + size > bytes.length)
    refuse('FORMAT', where, `the whole file, at least ${byteOffset + size} bytes`, bytes.length, 'Pass the file, not only its header.');
  return tensorFrom(elementsAt(bytes, byteOffset, dtype, countElements(shape)), { dtype, shape });
}
