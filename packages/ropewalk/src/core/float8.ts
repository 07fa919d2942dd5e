/**
 * Conversion between numbers and the two 8-bit floating formats of KV caches, as the Open Compute Project defines them:
 * f8_e4m3 (E4M3: largest 448, no infinity, NaN 0x7f and 0xff) and f8_e5m2 (E5M2: largest 57344, the upper half of an
 * f16).
 *
 * Each rounds once, to nearest even, and saturates: a number that is too large, or an infinity, becomes the largest finite
 * value of its sign, as with ONNX's Cast and CUDA's satfinite. Bits are integers in [0, 255].
 *
 * @see OCP 8-bit Floating Point Specification (OFP8) 1.0; Cast, onnx/onnx@v1.18.0 docs/Operators.md
 * @module
 */
import { refuse } from './errors.js';
import { numberFromF16, roundMagnitude, signBit } from './float16.js';

/**
 * Rounds a float64 to the nearest f8_e4m3, ties to even.
 *
 * @param value - any number; |value| > 448 becomes ±448, NaN becomes 0x7f with the sign kept
 * @returns the bits, an integer in [0, 255]
 * @throws {RopewalkError} RANGE when it is no number
 * @example f8e4m3FromNumber(448) // 0x7e
 */
export function f8e4m3FromNumber(value: number): number {
  return roundSaturated(value, 'f8_e4m3', 4, 3, 0x7e, 0x7f);
}

/**
 * Rounds a float64 to the nearest f8_e5m2, ties to even.
 *
 * @param value - any number; |value| > 57344 becomes ±57344, NaN becomes the quiet NaN 0x7e with the sign kept
 * @returns the bits, an integer in [0, 255]
 * @throws {RopewalkError} RANGE when it is no number
 */
export function f8e5m2FromNumber(value: number): number {
  return roundSaturated(value, 'f8_e5m2', 5, 2, 0x7b, 0x7e);
}

/**
 * Reads an f8_e4m3 exactly.
 *
 * @param bits - an integer in [0, 255]
 * @returns the same value as a float64
 * @throws {RopewalkError} RANGE for other bits
 */
export function numberFromF8e4m3(bits: number): number {
  checkBits(bits, 'f8_e4m3');
  const magnitude = bits & 0x7f;
  if (magnitude === 0x7f) return NaN;
  // Read as f16 bits, every value is 2^8 times too small, including subnormals.
  return numberFromF16(((bits & 0x80) << 8) | (magnitude << 7)) * 256;
}

/**
 * Reads an f8_e5m2 exactly.
 *
 * @param bits - an integer in [0, 255]; 0x7c and 0xfc are infinities
 * @returns the same value as a float64; a NaN payload is not kept
 * @throws {RopewalkError} RANGE for other bits
 */
export function numberFromF8e5m2(bits: number): number {
  checkBits(bits, 'f8_e5m2');
  return numberFromF16(bits << 8);
}

function checkBits(bits: number, dtype: string): void {
  if (!Number.isInteger(bits) || bits < 0 || bits > 0xff)
    refuse('RANGE', `${dtype}: bits`, 'an integer in [0, 255]', bits);
}

function roundSaturated(
  value: number,
  dtype: string,
  exponentBits: number,
  fractionBits: number,
  largest: number,
  nan: number,
): number {
  if (typeof value !== 'number') refuse('RANGE', dtype, 'a number', value);
  const sign = signBit(value) << 7;
  if (value !== value) return sign | nan;
  return sign | Math.min(roundMagnitude(Math.abs(value), exponentBits, fractionBits), largest);
}
