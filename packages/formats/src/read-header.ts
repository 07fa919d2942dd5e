/**
 * Reads headers piece by piece: only as much of a file as the header takes.
 *
 * @module
 */
import { RopewalkError } from 'ropewalk';
import { fail, refuse } from 'ropewalk/backend';
import {
  checkBytes,
  checkInteger,
  checkName,
  nameForMessage,
  readField,
  readList,
  readOptions,
  show,
} from 'ropewalk/internal';
import { type GgufFile, type GgufTensor, HeaderCut, parseGguf } from './gguf.js';
import { MAX_NPY_HEADER_BYTES, type NpyHeader, parseNpyHeader } from './npy.js';
import { parseSafetensors, type SafetensorsFile, safetensorsHeaderBytes } from './safetensors.js';
import { type GgufModel, type GgufPart, joinGguf } from './shards.js';

/** A file, or other bytes, that are read piece by piece. */
export interface ByteSource {
  /** The number of bytes. */
  readonly size: number;
  /**
   * Reads a piece.
   *
   * @param start - first byte
   * @param length - how many
   * @returns exactly that many
   */
  read(start: number, length: number): Promise<Uint8Array>;
  /** A text that changes whenever the bytes may have changed. Undefined when nothing tells of changes. */
  readonly version?: string | undefined;
}

/** Vocabularies make GGUF headers some megabytes long; one read covers most of them. */
const FIRST_READ_BYTES = 4 * 2 ** 20;
/** Bounds a forged length before memory is taken. */
export const MAX_READ_BYTES = 2 ** 28;
/** Frequency factors are a few hundred numbers. */
const MAX_SMALL_TENSOR_BYTES = 2 ** 20;

/**
 * Reads a piece and checks its length.
 *
 * @param source - the bytes
 * @param start - first byte
 * @param length - how many
 * @param file - names the source in messages
 * @throws {RopewalkError} FORMAT when the source returns fewer; RANGE or DTYPE when it is no source
 */
export async function readExactly(
  source: ByteSource,
  start: number,
  length: number,
  file: string,
): Promise<Uint8Array> {
  checkName(file, 'file', 'the source');
  const read = readField(source, 'read', `${file}: source`);
  if (typeof read !== 'function') refuse('RANGE', `${file}: source: read`, 'a function', read);
  if (checkInteger(length, 'length', 0) === 0) return new Uint8Array(0);
  const bytes = await Reflect.apply(read, source, [checkInteger(start, 'start', 0), length]);
  checkBytes(bytes, file);
  if (bytes.length !== length)
    refuse('FORMAT', file, `${length} bytes from ${start}`, bytes.length, 'The file was cut while it was read.');
  return bytes;
}

/**
 * Reads the header of a GGUF file.
 *
 * @param source - the file
 * @param file - names it in messages
 * @throws {RopewalkError} FORMAT when it is malformed, or its tensors end past the file
 */
export async function ggufHeaderOf(source: ByteSource, file: string): Promise<GgufFile> {
  const size = sizeOf(source, file);
  for (let want = FIRST_READ_BYTES; ; ) {
    const bytes = await readExactly(source, 0, Math.min(want, size), file);
    try {
      return parseGguf(bytes, file, size);
    } catch (error) {
      const cut = error instanceof RopewalkError && error.cause instanceof HeaderCut ? error.cause : undefined;
      if (!cut || cut.bytesNeeded > size) throw error;
      if (cut.bytesNeeded > MAX_READ_BYTES)
        refuse('FORMAT', file, `a header of at most ${MAX_READ_BYTES} bytes`, cut.bytesNeeded);
      want = Math.min(Math.max(2 * want, cut.bytesNeeded), MAX_READ_BYTES);
    }
  }
}

/**
 * Reads a small F32 tensor of a GGUF file.
 *
 * @param tensor - which tensor; at most 1 MiB
 * @throws {RopewalkError} FORMAT when it is larger, or is not F32
 */
export async function ggufFloatsOf(
  source: ByteSource,
  header: GgufFile,
  tensor: GgufTensor,
  file: string,
): Promise<Float32Array> {
  const { name, type, sizeBytes, offset } = readOptions(tensor, `${file}: tensor`);
  const { dataOffset, bigEndian } = readOptions(header, `${file}: header`);
  if (typeof name !== 'string') refuse('RANGE', `${file}: tensor`, 'a tensor of the header', tensor);
  const where = `${file}: tensor ${nameForMessage(name)}`;
  const expected = `F32 of at most ${MAX_SMALL_TENSOR_BYTES} bytes`;
  if (type !== 'F32' || !isCount(sizeBytes) || sizeBytes > MAX_SMALL_TENSOR_BYTES || sizeBytes % 4 !== 0)
    fail('FORMAT', where, `expected ${expected}, got ${show(type)}, ${show(sizeBytes)} bytes`);
  if (!isCount(dataOffset) || !isCount(offset) || !isCount(dataOffset + offset))
    refuse('RANGE', where, 'a place in the file', [dataOffset, offset]);
  const bytes = await readExactly(source, dataOffset + offset, sizeBytes, file);
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  return Float32Array.from({ length: sizeBytes / 4 }, (_item, i) => view.getFloat32(4 * i, !bigEndian));
}

/**
 * Reads the tensors of a GGUF file that divide RoPE's frequencies.
 *
 * @param source - the file
 * @param header - its header
 * @param file - names it in messages
 * @returns by name; empty when it has none
 * @throws {RopewalkError} FORMAT as `ggufFloatsOf`
 */
export async function ggufFactorsOf(
  source: ByteSource,
  header: GgufFile,
  file: string,
): Promise<ReadonlyMap<string, Float32Array>> {
  checkName(file, 'file', 'the source');
  const factors = new Map<string, Float32Array>();
  for (const given of Array.from(readList(readOptions(header, `${file}: header`).tensors, `${file}: tensors`))) {
    const tensor = readOptions(given, `${file}: tensors`);
    if (typeof tensor.name === 'string' && /^rope_(freqs|factors_long|factors_short)\.weight$/.test(tensor.name))
      factors.set(tensor.name, await ggufFloatsOf(source, header, tensor, file));
  }
  return factors;
}

/** Reads the header of one file of a GGUF model. @throws {RopewalkError} FORMAT as ggufHeaderOf and ggufFloatsOf */
export async function ggufPartOf(source: ByteSource, file: string): Promise<GgufPart> {
  const header = await ggufHeaderOf(source, file);
  return { file, header, factors: await ggufFactorsOf(source, header, file) };
}

/**
 * Reads the headers of a GGUF model.
 *
 * @param files - the only file, or all parts of a split model in the order of their names; `file` names each in messages
 * @throws {RopewalkError} FORMAT when a file is malformed or cut, and when the parts do not belong together
 */
export async function ggufModelOf(
  files: readonly { readonly file: string; readonly source: ByteSource }[],
): Promise<GgufModel> {
  const list = Array.from(readList(files, 'gguf: files'), (one) => readOptions(one, 'gguf: files'));
  if (list.length === 0) refuse('RANGE', 'gguf: files', 'at least one file', files);
  const parts: GgufPart[] = [];
  for (const { source, file } of list) parts.push(await ggufPartOf(source, file));
  return joinGguf(parts);
}

/**
 * Reads the header of a safetensors file.
 *
 * @param source - the file
 * @param file - names it in messages
 * @throws {RopewalkError} FORMAT when it is malformed
 */
export async function safetensorsHeaderOf(source: ByteSource, file: string): Promise<SafetensorsFile> {
  const size = sizeOf(source, file);
  const start = await readExactly(source, 0, Math.min(8, size), file);
  const bytes = await readExactly(source, 0, Math.min(safetensorsHeaderBytes(start, file), size), file);
  return parseSafetensors(bytes, file, size);
}

/**
 * Reads the header of a .npy file.
 *
 * @param source - the file
 * @param file - names it in messages
 * @throws {RopewalkError} FORMAT when it is malformed, or the file has another size than its header says
 */
export async function npyHeaderOf(source: ByteSource, file: string): Promise<NpyHeader> {
  const size = sizeOf(source, file);
  return parseNpyHeader(await readExactly(source, 0, Math.min(MAX_NPY_HEADER_BYTES, size), file), file, size);
}

function sizeOf(source: ByteSource, file: string): number {
  checkName(file, 'file', 'the source');
  return checkInteger(readField(source, 'size', `${file}: source`), `${file}: source: size`, 0);
}

function isCount(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0;
}
