/**
 * Conversion between numbers and the two 16-bit floating formats, f16 (IEEE binary16) and bf16 (the top half of
 * binary32), and the rounding that narrower formats share.
 *
 * Each rounds once, to nearest even, directly from float64. Rounding to float32 first would be wrong by one unit where
 * that gives a tie. Bits are integers in [0, 65535].
 *
 * @module
 */
import { refuse } from './errors.js';

const scratch = new DataView(new ArrayBuffer(8));
const single = new Float32Array(1);
const singleBits = new Uint32Array(single.buffer);

/**
 * Rounds a float64 to the nearest f16, ties to even.
 *
 * @param value - any number; |value| >= 65520 becomes an infinity, NaN becomes the quiet NaN 0x7e00 with the sign kept
 * @returns the bits of the f16, an integer in [0, 65535]
 * @see IEEE 754-2019 §4.3.1 roundTiesToEven, §3.6 binary16
 */
export function f16FromNumber(value: number): number {
  return roundToBits(value, 5, 10);
}

/**
 * Rounds a float64 to the nearest bf16, ties to even.
 *
 * @param value - any number; NaN becomes the quiet NaN 0x7fc0 with the sign kept
 * @returns the bits of the bf16, an integer in [0, 65535]
 */
export function bf16FromNumber(value: number): number {
  return roundToBits(value, 8, 7);
}

/**
 * Reads an f16 exactly.
 *
 * @param bits - the f16 as an integer in [0, 65535]
 * @returns the same value as a float64; a NaN payload is not kept
 */
export function numberFromF16(bits: number): number {
  checkBits(bits, 'f16');
  const exponent = (bits >>> 10) & 0x1f;
  const fraction = bits & 0x3ff;
  if (exponent === 0) return fraction * (bits & 0x8000 ? -(2 ** -24) : 2 ** -24);
  // The bits of the same f32: its exponent has 8 bits and another bias, its fraction 13 more.
  singleBits[0] = ((bits & 0x8000) << 16) | ((exponent === 31 ? 255 : exponent + 112) << 23) | (fraction << 13);
  return single[0]!;
}

/**
 * Reads a bf16 exactly.
 *
 * @param bits - the bf16 as an integer in [0, 65535]
 * @returns the same value as a float64; a NaN payload is not kept
 */
export function numberFromBf16(bits: number): number {
  checkBits(bits, 'bf16');
  scratch.setUint32(0, bits << 16);
  return scratch.getFloat32(0);
}

function checkBits(bits: number, dtype: string): void {
  if (!Number.isInteger(bits) || bits < 0 || bits > 0xffff)
    refuse('RANGE', `${dtype}: bits`, 'an integer in [0, 65535]', bits);
}

/** Rounds to a sign bit, `exponentBits` and `fractionBits` (16 in all), ties to even. */
function roundToBits(value: number, exponentBits: number, fractionBits: number): number {
  if (typeof value !== 'number') refuse('RANGE', exponentBits === 5 ? 'f16' : 'bf16', 'a number', value);
  const bias = (1 << (exponentBits - 1)) - 1;
  // This is the quick way, by float32, for values whose result is normal. Two roundings differ from one only where the
  // first gives a tie.
  single[0] = value;
  const near = singleBits[0]! & 0x7fffffff;
  const dropped = 23 - fractionBits;
  const half = 1 << (dropped - 1);
  if (near >= (128 - bias) << 23 && near < (128 + bias) << 23 && (near & (2 * half - 1)) !== half)
    return ((singleBits[0]! >>> 16) & 0x8000) | ((near - ((127 - bias) << 23) + half) >>> dropped);
  const sign = signBit(value) << 15;
  const maxExponent = (1 << exponentBits) - 1;
  const infinity = maxExponent << fractionBits;
  if (value !== value) return sign | infinity | (1 << (fractionBits - 1));
  return sign | Math.min(roundMagnitude(Math.abs(value), exponentBits, fractionBits), infinity);
}

/**
 * Rounds a magnitude (>= 0, no NaN) to the bits of a format, ties to even. A value that is too large for the format gives
 * an integer beyond the format's largest, as if exponents had no end.
 */
export function roundMagnitude(magnitude: number, exponentBits: number, fractionBits: number): number {
  if (magnitude === 0 || magnitude === Infinity) return magnitude;
  scratch.setFloat64(0, magnitude);
  const bias = (1 << (exponentBits - 1)) - 1;
  // Subnormals of float64 are far below half of the smallest result.
  const exponent = (scratch.getUint32(0) >>> 20) - 1023;
  // This is the exponent of a unit in the last place; subnormal results have the unit of the smallest normal number.
  const unitExponent = Math.max(exponent, 1 - bias) - fractionBits;
  // Scaling by a power of two is exact here, so this is the only rounding.
  const units = roundHalfEven(magnitude * 2 ** -unitExponent);
  // The addition lets a carry out of the fraction raise the exponent, up to infinity.
  const normal = unitExponent + fractionBits + bias - 1;
  return units + normal * 2 ** fractionBits;
}

/** Gives the sign of a number as a bit: 1 for a negative number and for -0. */
export function signBit(value: number): number {
  scratch.setFloat64(0, value);
  return scratch.getUint32(0) >>> 31;
}

/** Rounds to the nearest integer, and a tie to the even one. */
export function roundHalfEven(x: number): number {
  const floor = Math.floor(x);
  const rest = x - floor;
  if (rest > 0.5 || (rest === 0.5 && floor % 2 !== 0)) return floor + 1;
  return floor;
}
