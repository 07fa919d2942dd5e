/**
 * The element types, their sizes, the typed arrays that hold them, and functions that load and store one element.
 *
 * f16 and bf16 are kept as raw bits in a `Uint16Array`, whether or not the runtime has `Float16Array`; f8_e4m3 and
 * f8_e5m2 as raw bits in a `Uint8Array`.
 *
 * @module
 */
import { checkInteger } from './arguments.js';
import { fail, refuse } from './errors.js';
import { f8e4m3FromNumber, f8e5m2FromNumber, numberFromF8e4m3, numberFromF8e5m2 } from './float8.js';
import { bf16FromNumber, f16FromNumber, numberFromBf16, numberFromF16, roundHalfEven } from './float16.js';

/** The typed array that holds each dtype; f16, bf16, f8_e4m3 and f8_e5m2 as raw bits. */
export interface ArrayOf {
  f64: Float64Array;
  f32: Float32Array;
  f16: Uint16Array;
  bf16: Uint16Array;
  i8: Int8Array;
  i16: Int16Array;
  i32: Int32Array;
  i64: BigInt64Array;
  u8: Uint8Array;
  u16: Uint16Array;
  u32: Uint32Array;
  u64: BigUint64Array;
  f8_e4m3: Uint8Array;
  f8_e5m2: Uint8Array;
}

/** An element type. */
export type Dtype = keyof ArrayOf;
/** A floating element type, as the arithmetic operators take it. */
export type FloatDtype = 'f64' | 'f32' | 'f16' | 'bf16';
/** An 8-bit float: KV caches are stored in it, and no operator computes in it. The names are those of safetensors. */
export type Float8Dtype = 'f8_e4m3' | 'f8_e5m2';
/** An integer element type: positions and indices. */
export type IntDtype = Exclude<Dtype, FloatDtype | Float8Dtype>;
/** A dtype of KV caches; the 8-bit ones have scales. */
export type CacheDtype = FloatDtype | Float8Dtype | 'i8';
/** Any typed array that can back a tensor. */
export type HostArray = ArrayOf[Dtype];

interface ArrayClass {
  new (length: number): HostArray;
  new (buffer: ArrayBufferLike, byteOffset: number, length: number): HostArray;
}

const ARRAYS: ReadonlyMap<unknown, ArrayClass> = /* @__PURE__ */ new Map<Dtype, ArrayClass>([
  ['f64', Float64Array],
  ['f32', Float32Array],
  ['f16', Uint16Array],
  ['bf16', Uint16Array],
  ['i8', Int8Array],
  ['i16', Int16Array],
  ['i32', Int32Array],
  ['i64', BigInt64Array],
  ['u8', Uint8Array],
  ['u16', Uint16Array],
  ['u32', Uint32Array],
  ['u64', BigUint64Array],
  // These come after u8, which is the dtype of a Uint8Array without a name.
  ['f8_e4m3', Uint8Array],
  ['f8_e5m2', Uint8Array],
]);

/** Every dtype, floats first. */
export const DTYPES: readonly Dtype[] = /* @__PURE__ */ Object.freeze(
  /* @__PURE__ */ Array.from(ARRAYS.keys()) as Dtype[],
);

/** Says whether a value names a dtype. */
export function isDtype(name: unknown): name is Dtype {
  return ARRAYS.has(name);
}

/** Says whether a dtype is one of f64, f32, f16, bf16. */
export function isFloat(dtype: Dtype): dtype is FloatDtype {
  return dtype === 'f32' || dtype === 'f16' || dtype === 'bf16' || dtype === 'f64';
}

/** Says whether a dtype is one of f8_e4m3, f8_e5m2. */
export function isFloat8(dtype: Dtype): dtype is Float8Dtype {
  return dtype === 'f8_e4m3' || dtype === 'f8_e5m2';
}

/** The unit roundoff of a dtype: the largest relative error of one rounding to nearest. */
export const UNIT_ROUNDOFF: Readonly<Record<FloatDtype, number>> = /* @__PURE__ */ Object.freeze({
  f64: 2 ** -53,
  f32: 2 ** -24,
  f16: 2 ** -11,
  bf16: 2 ** -8,
});

/** Gives the size of one element in bytes: 1, 2, 4 or 8. */
export function sizeBytes(dtype: Dtype): number {
  // Every operator call needs it several times, and a table would take four times as long.
  switch (dtype) {
    case 'f32':
    case 'i32':
    case 'u32':
      return 4;
    case 'f16':
    case 'bf16':
    case 'i16':
    case 'u16':
      return 2;
    case 'f64':
    case 'i64':
    case 'u64':
      return 8;
    case 'i8':
    case 'u8':
    case 'f8_e4m3':
    case 'f8_e5m2':
      return 1;
    default:
      return refuseDtype(dtype satisfies never, 'dtype');
  }
}

/** Refuses a value that names no dtype. @throws {RopewalkError} DTYPE always */
export function refuseDtype(got: unknown, where: string, next?: string): never {
  refuse('DTYPE', where, `one of ${DTYPES.join(', ')}`, got, next);
}

function arrayClassOf(dtype: Dtype, where: string): ArrayClass {
  return ARRAYS.get(dtype) ?? refuseDtype(dtype, where);
}

/**
 * Makes a typed array of `length` zeros for a dtype.
 *
 * @throws {RopewalkError} DTYPE for an unknown dtype; DEVICE when the runtime cannot allocate that much
 */
export function newArray<D extends Dtype>(dtype: D, length: number): ArrayOf[D] {
  const array = arrayClassOf(dtype, 'tensor: dtype');
  checkInteger(length, 'tensor: length', 0);
  try {
    return new array(length) as ArrayOf[D];
  } catch {
    const bytes = length * sizeBytes(dtype);
    return fail('DEVICE', 'tensor: size', `there is no memory for ${bytes} bytes. Use a smaller tensor, or several.`);
  }
}

/** Makes a typed array of `length` elements over memory; `byteOffset` is a multiple of their size. */
export function arrayOver<D extends Dtype>(
  dtype: D,
  buffer: ArrayBufferLike,
  byteOffset: number,
  length: number,
): ArrayOf[D] {
  return new (arrayClassOf(dtype, 'dtype'))(buffer, byteOffset, length) as ArrayOf[D];
}

/**
 * Takes a typed array of the caller as storage for a dtype, without a copy.
 *
 * @param data - the array of {@link ArrayOf} for `dtype`; a `Float16Array` is accepted for f16 and read as its bits
 * @throws {RopewalkError} DTYPE when the array cannot hold the dtype
 */
export function asHostArray<D extends Dtype>(data: unknown, dtype: D, where: string): ArrayOf[D] {
  const array = arrayClassOf(dtype, `${where}: dtype`);
  if (ArrayBuffer.isView(data) && data instanceof array) return data as ArrayOf[D];
  if (dtype === 'f16' && isFloat16Array(data))
    return new Uint16Array(data.buffer, data.byteOffset, data.byteLength / 2) as ArrayOf[D];
  const also = dtype === 'f16' ? ' or Float16Array' : '';
  return refuse('DTYPE', where, `a ${array.name}${also} for dtype ${dtype}`, data);
}

/** Names the dtype of a typed array; undefined for a `Uint16Array` (u16, f16 or bf16) and for anything else. */
export function dtypeOfArray(data: unknown): Dtype | undefined {
  if (isFloat16Array(data)) return 'f16';
  if (!ArrayBuffer.isView(data) || data instanceof Uint16Array) return undefined;
  return DTYPES.find((dtype) => data instanceof ARRAYS.get(dtype)!);
}

// Node 20 has no Float16Array, which came with ES2025 (Node 24), so it is recognised by its name.
function isFloat16Array(data: unknown): data is ArrayBufferView {
  return ArrayBuffer.isView(data) && Object.prototype.toString.call(data) === '[object Float16Array]';
}

/**
 * Reads one element as a float64, which is exact for every dtype but 64-bit integers past 2^53.
 *
 * @param data - storage of that dtype
 * @param at - index in elements, which is not checked
 */
export function loadNumber(data: HostArray, dtype: Dtype, at: number): number {
  const raw = data[at]!;
  if (dtype === 'f16') return numberFromF16(raw as number);
  if (dtype === 'bf16') return numberFromBf16(raw as number);
  if (dtype === 'f8_e4m3') return numberFromF8e4m3(raw as number);
  if (dtype === 'f8_e5m2') return numberFromF8e5m2(raw as number);
  return Number(raw);
}

/**
 * Writes one element, rounded once to nearest even. 8-bit dtypes saturate: an i8 to [-128, 127], where a NaN becomes 0.
 *
 * @param data - storage of that dtype
 * @param at - index in elements, which is not checked
 */
export function storeNumber(data: HostArray, dtype: CacheDtype, at: number, value: number): void {
  if (dtype === 'f16') data[at] = f16FromNumber(value);
  else if (dtype === 'bf16') data[at] = bf16FromNumber(value);
  else if (dtype === 'f8_e4m3') data[at] = f8e4m3FromNumber(value);
  else if (dtype === 'f8_e5m2') data[at] = f8e5m2FromNumber(value);
  else if (dtype === 'i8')
    data[at] = Math.min(127, Math.max(-128, roundHalfEven(value))); // A NaN is stored as 0.
  else data[at] = value; // Float32Array and Float64Array round to nearest even themselves.
}

/**
 * Rounds a number to a floating dtype; one of 8 bits saturates.
 *
 * @returns the rounded value as a number
 * @throws {RopewalkError} DTYPE for another dtype; RANGE when the value is not a number
 * @example roundTo('f16', 0.1) // 0.0999755859375
 */
export function roundTo(dtype: FloatDtype | Float8Dtype, value: number): number {
  if (!isFloat(dtype) && !isFloat8(dtype))
    refuse('DTYPE', 'roundTo: dtype', 'f64, f32, f16, bf16, f8_e4m3 or f8_e5m2', dtype);
  if (typeof value !== 'number') refuse('RANGE', 'roundTo: value', 'a number', value);
  if (dtype === 'f64') return value;
  if (dtype === 'f32') return Math.fround(value);
  if (dtype === 'f16') return numberFromF16(f16FromNumber(value));
  if (dtype === 'bf16') return numberFromBf16(bf16FromNumber(value));
  return dtype === 'f8_e4m3' ? numberFromF8e4m3(f8e4m3FromNumber(value)) : numberFromF8e5m2(f8e5m2FromNumber(value));
}

/**
 * Views the memory of a typed array as unsigned integers of the same width, so that copying keeps every bit, including
 * NaN payloads.
 */
export function bitsOf(data: HostArray): Uint8Array | Uint16Array | Uint32Array | BigUint64Array {
  const { buffer, byteOffset, length } = data;
  switch (data.BYTES_PER_ELEMENT) {
    case 1:
      return new Uint8Array(buffer, byteOffset, length);
    case 2:
      return new Uint16Array(buffer, byteOffset, length);
    case 4:
      return new Uint32Array(buffer, byteOffset, length);
    default:
      return new BigUint64Array(buffer, byteOffset, length);
  }
}
