/**
 * Zip files, as numpy (.npz) and PyTorch (.pt) write them.
 *
 * @module
 * @see https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT
 */

import { inflateSync } from 'fflate';
import { fail, refuse } from 'ropewalk/backend';
import { checkBytes, decodeUtf8, nameForMessage, show } from 'ropewalk/internal';

/** The most bytes of all files in a zip, because a small zip can claim any size. */
export const MAX_ZIP_BYTES: number = 2 ** 31;
/** The most files in a zip. A checkpoint of a model has a few thousand. */
const MAX_ENTRIES = 65535;

/** A zip file to read. */
export interface ZipOptions {
  /** The expected kind of file in messages: `a zip file of .npy files`. */
  readonly kind: string;
  /** The most bytes that the files in it may have together. */
  readonly maxBytes?: number;
}

/**
 * Reads a zip's directory.
 *
 * @param bytes - the whole file
 * @param where - names it in messages
 * @returns by name, in the file's order, a function that gives the bytes: a view of the zip where they are stored, else
 *   a fresh array. It throws FORMAT where they lack the size or the checksum (CRC-32) that the directory says
 * @throws {RopewalkError} FORMAT when the zip is malformed, a name comes twice, files overlap or are too large
 */
export function readZip(
  bytes: Uint8Array,
  where: string,
  { kind, maxBytes = MAX_ZIP_BYTES }: ZipOptions,
): Map<string, () => Uint8Array> {
  checkBytes(bytes, where);
  const entries = readDirectory(bytes, where, kind);
  const names = new Set<string>();
  let total = 0;
  for (const { name, size, originalSize, method } of entries) {
    if (names.has(name)) fail('FORMAT', where, `two files in it are named ${show(name)}`);
    names.add(name);
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
    entries.map((entry) => [entry.name, () => expand(bytes, entry, `${where}: ${nameForMessage(entry.name)}`)]),
  );
}

function expand(bytes: Uint8Array, { method, dataStart, size, originalSize, crc }: ZipEntry, at: string): Uint8Array {
  const packed = bytes.subarray(dataStart, dataStart + size);
  const file = method === STORED ? packed : inflate(packed, originalSize, at);
  const got = file.length > originalSize ? 'more' : file.length;
  if (got !== originalSize) fail('FORMAT', at, `expected ${originalSize} bytes, got ${got}. ${DAMAGED}`);
  const sum = crc32(file);
  if (sum !== crc) refuse('FORMAT', at, `bytes with the checksum ${crc}`, sum, DAMAGED);
  return file;
}

/** Expands a file. It stops one byte after the declared size, which shows that the file is longer. */
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
  /** The number of bytes in the zip. */
  readonly size: number;
  readonly originalSize: number;
  /** The CRC-32 of its bytes before compression. */
  readonly crc: number;
  /** The offset of the header before the file. */
  readonly headerStart: number;
  readonly dataStart: number;
}

/** @see https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT 4.3.7, 4.3.12, 4.3.14 to 4.3.16, 4.5.3 */
function readDirectory(bytes: Uint8Array, where: string, kind: string): ZipEntry[] {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const broken = (got: string): never => refuse('FORMAT', where, kind, got);
  /** Reads a signature; past the end it is 0, which is none. */
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
  if (count > MAX_ENTRIES) refuse('FORMAT', where, `at most ${MAX_ENTRIES} files in it`, count);
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

/** Decodes a name, which is UTF-8 if a flag says so. Otherwise its bytes are characters, as numpy writes them. */
function decodeName(bytes: Uint8Array, utf8: boolean, where: string): string {
  return utf8 ? decodeUtf8(bytes, `${where}: a name`) : String.fromCharCode(...bytes);
}
