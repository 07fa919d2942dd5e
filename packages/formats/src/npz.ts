/**
 * NumPy's .npz: a zip of .npy files, one for each named array.
 *
 * It is written without compression and with a fixed time, so the same arrays always give the same bytes.
 *
 * @module
 * @see https://numpy.org/doc/stable/reference/generated/numpy.savez.html
 */

import { inflateSync, type Zippable, zipSync } from 'fflate';
import type { Tensor } from 'ropewalk';
import { checkBytes, checkNamedTensors, decodeUtf8, fail, nameForMessage, refuse, show } from 'ropewalk/backend';
import { type NpyArray, parseNpy, writeNpy } from './npy.js';

/** The most bytes of all arrays of a file: a small zip can claim any size. */
const MAX_BYTES = 2 ** 31;
/** A case has a dozen arrays; a model's checkpoint a few thousand. */
const MAX_ENTRIES = 65535;

/**
 * Reads a .npz file. Each array must have the size and the checksum (CRC-32) that the zip's directory says.
 *
 * @param bytes - the whole file
 * @param where - names it in messages
 * @param maxBytes - the most that the arrays may take together, with their headers; 2 GiB unless given
 * @returns the arrays by name, without `.npy`, in the file's order
 * @throws {RopewalkError} FORMAT when the zip or an array is malformed or damaged, a name comes twice, entries overlap,
 *   or the arrays are too large
 */
export function parseNpz(bytes: Uint8Array, where = 'npz', maxBytes = MAX_BYTES): Map<string, NpyArray> {
  checkBytes(bytes, where);
  if (typeof maxBytes !== 'number' || !(maxBytes >= 0))
    refuse('RANGE', `${where}: maxBytes`, 'a number >= 0', maxBytes);
  const entries = readDirectory(bytes, where);
  const names = new Set<string>();
  let total = 0;
  for (const { name, size, originalSize, method } of entries) {
    if (names.has(name)) fail('FORMAT', where, `two arrays are named ${show(name)}`);
    names.add(name);
    if (!name.endsWith('.npy')) refuse('FORMAT', where, 'files that end in .npy', name);
    total += originalSize;
    if (!(total <= maxBytes)) {
      const next = 'Write fewer or smaller arrays into it.';
      refuse('FORMAT', where, `arrays of at most ${maxBytes} bytes together`, total, next);
    }
    // Deflate expands by a factor of 1032 at most.
    const at = `${where}: ${nameForMessage(name)}`;
    if (originalSize > (method === STORED ? size : 1032 * size + 1032))
      refuse('FORMAT', at, `a size that ${size} bytes can hold`, originalSize, 'The file is forged.');
  }
  // Entries that share bytes could expand 99 kB to 2 GB.
  let end = 0;
  for (const entry of [...entries].sort((a, b) => a.headerStart - b.headerStart)) {
    const sentence = `it starts at byte ${entry.headerStart}, but the entry before ends at ${end}`;
    if (entry.headerStart < end) fail('FORMAT', `${where}: ${nameForMessage(entry.name)}`, sentence);
    end = entry.dataStart + entry.size;
  }
  return new Map(
    entries.map((entry) => {
      const at = `${where}: ${nameForMessage(entry.name)}`;
      return [entry.name.slice(0, -4), parseNpy(expand(bytes, entry, at), at)];
    }),
  );
}

function expand(bytes: Uint8Array, { method, dataStart, size, originalSize, crc }: ZipEntry, at: string): Uint8Array {
  const packed = bytes.subarray(dataStart, dataStart + size);
  // A copy, as the arrays outlive the file.
  const file = method === STORED ? packed.slice() : inflate(packed, originalSize, at);
  const got = file.length > originalSize ? 'more' : file.length;
  if (got !== originalSize) fail('FORMAT', at, `expected ${originalSize} bytes, got ${got}. ${DAMAGED}`);
  const sum = crc32(file);
  if (sum !== crc) refuse('FORMAT', at, `bytes with the checksum ${crc}`, sum, DAMAGED);
  return file;
}

/** Expands to at most one byte more than declared, which shows that there is more. */
function inflate(packed: Uint8Array, originalSize: number, at: string): Uint8Array {
  try {
    return inflateSync(packed, { out: new Uint8Array(originalSize + 1) });
  } catch {
    return fail('FORMAT', at, `its bytes are not deflated data. ${DAMAGED}`);
  }
}

const DAMAGED = 'The file is damaged. Write or copy it again.';

/** @see https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT 4.4.7 */
function crc32(bytes: Uint8Array): number {
  let crc = -1;
  for (let n = 0; n < bytes.length; n++) crc = CRC_OF_BYTE[(crc ^ bytes[n]!) & 255]! ^ (crc >>> 8);
  return ~crc >>> 0;
}

const CRC_OF_BYTE = /* @__PURE__ */ Int32Array.from({ length: 256 }, (_item, byte) => {
  let crc = byte;
  for (let bit = 0; bit < 8; bit++) crc = (crc >>> 1) ^ (crc & 1 ? 0xedb88320 : 0);
  return crc;
});

/** Methods of compression. */
const STORED = 0;
const DEFLATED = 8;

/** A file in a zip, from the zip's directory. */
interface ZipEntry {
  readonly name: string;
  readonly method: number;
  /** Bytes in the zip. */
  readonly size: number;
  readonly originalSize: number;
  /** CRC-32 of its bytes before compression. */
  readonly crc: number;
  /** Byte of the header before the file. */
  readonly headerStart: number;
  readonly dataStart: number;
}

/** @see https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT 4.3.7, 4.3.12, 4.3.14 to 4.3.16, 4.5.3 */
function readDirectory(bytes: Uint8Array, where: string): ZipEntry[] {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const broken = (got: string): never => refuse('FORMAT', where, 'a zip file of .npy files', got);
  /** 0 past the end, which no signature is. */
  const u16 = (at: number): number => (at >= 0 && at + 2 <= bytes.length ? view.getUint16(at, true) : 0);
  const u32 = (at: number): number => (at >= 0 && at + 4 <= bytes.length ? view.getUint32(at, true) : 0);
  const u64 = (at: number): number => u32(at) + u32(at + 4) * 2 ** 32;
  let end = bytes.length - 22;
  // A comment of up to 65535 bytes may follow.
  while (u32(end) !== 0x06054b50) if (--end < 0 || bytes.length - end > 22 + 65535) broken('no end of a zip file');
  let count = u16(end + 10);
  let at = u32(end + 16);
  const zip64 = u32(end - 20) === 0x07064b50 ? u64(end - 12) : 0;
  if (zip64 > 0 && u32(zip64) === 0x06064b50) [count, at] = [u64(zip64 + 32), u64(zip64 + 48)];
  if (count > MAX_ENTRIES) refuse('FORMAT', where, `at most ${MAX_ENTRIES} arrays`, count);
  const entries: ZipEntry[] = [];
  while (entries.length < count) {
    if (u32(at) !== 0x02014b50) broken(`no directory entry at byte ${at}`);
    const [nameLength, extraLength, commentLength] = [u16(at + 28), u16(at + 30), u16(at + 32)];
    const extra = at + 46 + nameLength;
    if (extra + extraLength > bytes.length) broken(`a directory entry past the end at byte ${at}`);
    const name = decodeName(bytes.subarray(at + 46, extra), (u16(at + 8) & 0x800) !== 0, where);
    const entry = `${where}: ${nameForMessage(name)}`;
    if ((u16(at + 8) & 1) !== 0)
      fail('FORMAT', entry, 'it is encrypted, which is not supported. Save the archive without a password.');
    const method = u16(at + 10);
    if (method !== STORED && method !== DEFLATED)
      refuse('FORMAT', entry, 'compression 0 (stored) or 8 (deflated)', method);
    // Sizes and offset that 32 bits cannot hold are in the zip64 field, in this order, and only those.
    let large = extra;
    while (large < extra + extraLength && u16(large) !== 1) large += 4 + u16(large + 2);
    large += 4;
    const [originalSize, size, headerStart] = [24, 20, 42].map((field) => {
      const value = u32(at + field);
      if (value !== 0xffffffff || large + 8 > extra + extraLength) return value;
      large += 8;
      return u64(large - 8);
    }) as [number, number, number];
    if (u32(headerStart) !== 0x04034b50) broken(`no file header at byte ${headerStart}`);
    const dataStart = headerStart + 30 + u16(headerStart + 26) + u16(headerStart + 28);
    if (!(dataStart + size <= bytes.length)) broken(`a file past the end, at byte ${headerStart}`);
    entries.push({ name, method, size, originalSize, crc: u32(at + 16), headerStart, dataStart });
    at = extra + extraLength + commentLength;
  }
  return entries;
}

/** Names are UTF-8 when flagged, else bytes, as numpy writes them. */
function decodeName(bytes: Uint8Array, utf8: boolean, where: string): string {
  return utf8 ? decodeUtf8(bytes, `${where}: a name`) : String.fromCharCode(...bytes);
}

/**
 * Writes a .npz file: the same tensors give the same bytes.
 *
 * @param tensors - by name, in host memory; names are what numpy will call the arrays
 * @returns the file
 * @throws {RopewalkError} FORMAT for an empty name or one with a slash; DEVICE when a tensor is not in host memory
 */
export function writeNpz(tensors: ReadonlyMap<string, Tensor>): Uint8Array {
  checkNamedTensors(tensors, 'npz');
  const files: Zippable = {};
  for (const [name, tensor] of tensors) {
    if (!/^[A-Za-z_][\w.-]*$/.test(name))
      refuse('FORMAT', 'npz: name', 'a letter, then letters, digits, _, - or .', name);
    const data = tensor.read();
    if (data instanceof Promise)
      refuse('DEVICE', `npz: ${name}`, 'a tensor in host memory', tensor.storage.owner, 'Read it first.');
    files[`${name}.npy`] = writeNpy(data, tensor);
  }
  // fflate writes the local date. A local date is the same everywhere; 1980 is the zip format's first year.
  return zipSync(files, { level: 0, mtime: new Date(1980, 0, 1) });
}
