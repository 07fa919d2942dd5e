/**
 * NumPy's .npy files: one array each, versions 1.0, 2.0 and 3.0.
 *
 * npy has no bf16. It is written as `<u2` (its raw bits), and `<V2` and `bfloat16`, which ml_dtypes writes, are read as
 * bf16. A `<u2` file is read as u16 unless the caller names another dtype.
 *
 * @module
 * @see https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
 */

import { type ArrayOf, type Dtype, type HostArray, sizeBytes, type Tensor, tensorFrom } from 'ropewalk';
import { fail, refuse, rowMajorStrides } from 'ropewalk/backend';
import {
  asHostArray,
  checkBytes,
  checkShape,
  countElements,
  decodeUtf8,
  isFloat8,
  type OptionNames,
  readOptions,
  show,
} from 'ropewalk/internal';
import { countClaimed, elementsAt } from './bytes.js';

/** The header of a file. */
export interface NpyHeader {
  readonly dtype: Dtype;
  readonly shape: readonly number[];
  /** Column-major: the first dimension is dense. */
  readonly fortranOrder: boolean;
  /** The type as the file writes it, such as `<f4`. */
  readonly descr: string;
  /** The offset of the first element. The elements fill the file from there to its end. */
  readonly dataOffset: number;
  readonly bigEndian: boolean;
}

/** An array read from a file. */
export interface NpyArray extends Omit<NpyHeader, 'dataOffset' | 'bigEndian'> {
  /** The elements in file order; a view of the file where alignment and byte order allow. */
  readonly data: HostArray;
}

const MAGIC = [0x93, 0x4e, 0x55, 0x4d, 0x50, 0x59]; // \x93NUMPY
/** numpy itself warns past 10,000 characters. */
const MAX_HEADER_BYTES = 65536;
/** numpy has at most 64 dimensions. */
const MAX_RANK = 64;

/** This is a map, because a record would find a type that a file calls `constructor`. */
const TYPES: ReadonlyMap<string, Dtype> = /* @__PURE__ */ new Map<string, Dtype>([
  ['f8', 'f64'],
  ['f4', 'f32'],
  ['f2', 'f16'],
  ['i1', 'i8'],
  ['i2', 'i16'],
  ['i4', 'i32'],
  ['i8', 'i64'],
  ['u1', 'u8'],
  ['u2', 'u16'],
  ['u4', 'u32'],
  ['u8', 'u64'],
  ['b1', 'u8'],
  ['V2', 'bf16'],
]);

/** The most bytes of a header, with the magic number and length before it. */
export const MAX_NPY_HEADER_BYTES: number = 12 + MAX_HEADER_BYTES;

/**
 * Reads a .npy file.
 *
 * @param bytes - the whole file
 * @param where - names it in messages
 * @throws {RopewalkError} FORMAT when the file is malformed, truncated, longer than its header says, or holds objects
 */
export function parseNpy(bytes: Uint8Array, where = 'npy'): NpyArray {
  const { dataOffset, bigEndian, ...header } = parseNpyHeader(bytes, where);
  const count = countElements(header.shape);
  return { ...header, data: elementsAt(bytes, dataOffset, header.dtype, count, bigEndian) };
}

/**
 * Reads a header.
 *
 * @param bytes - the file, or its first {@link MAX_NPY_HEADER_BYTES}
 * @param where - names it in messages
 * @param fileSize - the whole file's size. Default: that of `bytes`
 * @throws {RopewalkError} FORMAT as {@link parseNpy}
 */
export function parseNpyHeader(bytes: Uint8Array, where: string, fileSize?: number): NpyHeader {
  checkBytes(bytes, where);
  if (bytes.length < 10 || MAGIC.some((byte, at) => bytes[at] !== byte))
    fail('FORMAT', where, 'it is not a .npy file: it does not start with \\x93NUMPY');
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const major = bytes[6]!;
  if (major < 1 || major > 3) refuse('FORMAT', where, 'npy version 1, 2 or 3', major);
  const start = major === 1 ? 10 : 12;
  if (bytes.length < start) fail('FORMAT', where, `the file ends inside its header, after ${bytes.length} bytes`);
  const length = major === 1 ? view.getUint16(8, true) : view.getUint32(8, true);
  if (length > MAX_HEADER_BYTES) refuse('FORMAT', where, `a header of at most ${MAX_HEADER_BYTES} bytes`, length);
  const dataOffset = start + length;
  if (dataOffset > bytes.length)
    fail('FORMAT', where, `the file ends inside its header of ${length} bytes, after ${bytes.length} bytes`);
  const headerBytes = bytes.subarray(start, dataOffset);
  // Versions 1 and 2 are Latin-1, version 3 is UTF-8.
  const header = parseHeader(major === 3 ? decodeUtf8(headerBytes, where) : String.fromCharCode(...headerBytes), where);
  const type = dtypeOf(header.descr, where);
  const size = countElements(header.shape) * sizeBytes(type.dtype);
  const rest = (fileSize ?? bytes.length) - dataOffset;
  const expected = `${size} bytes of data for shape [${header.shape}] of ${header.descr}`;
  if (size !== rest) refuse('FORMAT', where, expected, rest, 'The file is truncated or forged.');
  return { ...header, ...type, dataOffset };
}

/**
 * Lays a tensor over a read array.
 *
 * @param npy - from {@link parseNpy}
 * @param dtype - how to read it, where the file cannot say: bf16 or f16 over u16
 * @throws {RopewalkError} DTYPE when the element sizes differ
 */
export function tensorFromNpy<D extends Dtype = Dtype>(npy: NpyArray, dtype?: D): Tensor<D> {
  const { data, fortranOrder, ...given } = readOptions(npy, 'npy: array');
  const shape = checkShape(given.shape, 'npy: shape');
  const strides = fortranOrder ? rowMajorStrides([...shape].reverse()).reverse() : rowMajorStrides(shape);
  return tensorFrom(data, { dtype: dtype ?? (given.dtype as D), shape, strides });
}

/** The dtype and the shape of an array to write. */
interface NpyLayout<D extends Dtype> {
  readonly dtype: D;
  readonly shape: readonly number[];
}

const NAMES: OptionNames<NpyLayout<Dtype>> = { dtype: true, shape: true };

/**
 * Writes a .npy file: version 1.0, little-endian, row-major; bf16 as `<u2`.
 *
 * @param data - the elements, row-major
 * @param options - dtype and shape
 * @returns the file
 * @throws {RopewalkError} DTYPE when the array is not that of the dtype; SHAPE when the sizes differ or there are over
 *   64 dimensions
 */
export function writeNpy<D extends Dtype>(data: ArrayOf[D], options: NpyLayout<D>): Uint8Array {
  const { dtype, ...given } = readOptions(options, 'npy: options', NAMES);
  data = asHostArray(data, dtype, 'npy: data');
  const shape = checkShape(given.shape, 'npy: shape');
  if (countElements(shape) !== data.length) refuse('SHAPE', 'npy: shape', `${data.length} elements`, shape);
  const header = writeNpyHeader({ dtype, shape });
  const file = new Uint8Array(header.length + data.byteLength);
  file.set(header);
  file.set(new Uint8Array(data.buffer, data.byteOffset, data.byteLength), header.length);
  return file;
}

/**
 * Writes the header of a file, for arrays that are written piece by piece: the elements follow it, row-major and
 * little-endian.
 *
 * @param options - dtype and shape
 * @returns the bytes before the elements, a multiple of 64
 * @throws {RopewalkError} as {@link writeNpy}
 * @example const header = writeNpyHeader({ dtype: 'f32', shape: [tokens, vocabSize] });
 */
export function writeNpyHeader(options: NpyLayout<Dtype>): Uint8Array {
  const { dtype, ...given } = readOptions(options, 'npy: options', NAMES);
  const unit = sizeBytes(dtype);
  const shape = checkShape(given.shape, 'npy: shape');
  if (shape.length > MAX_RANK) refuse('SHAPE', 'npy: shape', `at most ${MAX_RANK} dimensions`, shape.length);
  if (isFloat8(dtype)) refuse('DTYPE', 'npy: dtype', 'a dtype that numpy has', dtype, 'Write u8, its bits.');
  const code = dtype === 'bf16' ? 'u2' : [...TYPES].find(([, name]) => name === dtype)![0];
  const descr = `${unit === 1 ? '|' : '<'}${code}`;
  const dims = shape.length === 1 ? `${shape[0]},` : shape.join(', ');
  const text = `{'descr': '${descr}', 'fortran_order': False, 'shape': (${dims}), }`;
  const padding = (64 - ((10 + text.length + 1) % 64)) % 64; // data starts at a multiple of 64, as numpy writes it
  const header = `${text}${' '.repeat(padding)}\n`;
  const bytes = new Uint8Array(10 + header.length);
  bytes.set(MAGIC);
  bytes.set([1, 0, header.length & 0xff, header.length >> 8], 6);
  for (let at = 0; at < header.length; at++) bytes[10 + at] = header.charCodeAt(at);
  return bytes;
}

function dtypeOf(descr: string, where: string): { dtype: Dtype; bigEndian: boolean } {
  if (descr === 'bfloat16') return { dtype: 'bf16', bigEndian: false };
  const dtype = /^[<>|=]/.test(descr) ? TYPES.get(descr.slice(1)) : undefined;
  const next = descr.includes('O') ? 'Arrays of Python objects are pickles, which are never read.' : undefined;
  if (dtype === undefined)
    refuse('FORMAT', `${where}: descr`, `one of ${[...TYPES.keys()].join(', ')} after <, > or |`, descr, next);
  return { dtype, bigEndian: descr.startsWith('>') && sizeBytes(dtype) > 1 };
}

/** The header is the text of a Python dict; this reads as much Python as numpy writes there. */
function parseHeader(text: string, where: string) {
  const at = `${where}: header`;
  const tokens = text.match(/'[^'\n]*'|"[^"\n]*"|[{}()[\],:]|[A-Za-z]+|-?\d+L?|[^\s]/g) ?? [];
  let next = 0;
  const take = (wanted?: string): string => {
    const token = tokens[next++];
    if (token === undefined || (wanted !== undefined && token !== wanted))
      refuse('FORMAT', at, wanted ?? 'more text', token ?? 'its end');
    return token;
  };
  const quoted = (): string => {
    const token = take();
    if (!/^(['"]).*\1$/.test(token))
      refuse('FORMAT', at, 'a quoted string', token, 'A list here is a structured type, which is not supported.');
    return token.slice(1, -1);
  };
  const found: { descr?: string; fortranOrder?: boolean; shape?: number[] } = {};
  const seen = new Set<string>();
  take('{');
  while (tokens[next] !== '}') {
    const key = quoted();
    if (seen.has(key)) fail('FORMAT', at, `two values have the key ${show(key)}`);
    seen.add(key);
    take(':');
    if (key === 'descr') found.descr = quoted();
    else if (key === 'fortran_order') {
      const word = take();
      if (word !== 'True' && word !== 'False') refuse('FORMAT', `${at}.fortran_order`, 'True or False', word);
      found.fortranOrder = word === 'True';
    } else if (key === 'shape') found.shape = tuple();
    else refuse('FORMAT', at, 'descr, fortran_order and shape', key);
    if (tokens[next] !== '}') take(',');
  }
  take('}');
  if (next !== tokens.length) refuse('FORMAT', at, 'nothing after the dict', tokens[next]);
  const { descr, fortranOrder, shape } = found;
  if (descr === undefined || fortranOrder === undefined || !shape)
    refuse('FORMAT', at, 'descr, fortran_order and shape', [...seen]);
  return { descr, fortranOrder, shape };

  function tuple(): number[] {
    const dims: number[] = [];
    take('(');
    while (tokens[next] !== ')') {
      const token = take();
      const dim = Number(token.replace(/L$/, '')); // Python 2 wrote long integers with an L
      if (!/^\d+L?$/.test(token) || !Number.isSafeInteger(dim))
        refuse('FORMAT', `${at}.shape`, 'dimensions >= 0', token);
      if (dims.push(dim) > MAX_RANK) fail('FORMAT', `${at}.shape`, `it has more than ${MAX_RANK} dimensions`);
      if (tokens[next] !== ')') take(',');
    }
    take(')');
    if (countClaimed(dims) === undefined) refuse('FORMAT', `${at}.shape`, 'fewer than 2^50 elements', dims);
    return dims;
  }
}
