/** How far the output of a right kernel may be from the exact one: four tiers of noise. @module */
import type { FloatDtype } from 'ropewalk';
import { UNIT_ROUNDOFF } from 'ropewalk/internal';

/**
 * - `stored`: exact angles, the rotation in f32 (f64 for f64 data), one rounding to y's dtype
 * - `angles`: in addition, angles computed in f32: their error grows with the angle, and from pair to pair with
 *   repeated products
 * - `sines`: in addition, cos and sin with an absolute error up to 2^-21, as fast-math sines have
 * - `arithmetic`: as `angles`, and cos, sin, products and sums rounded to y's own 16-bit dtype
 */
export type Tier = 'stored' | 'angles' | 'sines' | 'arithmetic';

/** The strictest first. */
export const TIERS: readonly Tier[] = ['stored', 'angles', 'sines', 'arithmetic'];

/** Half the smallest subnormal number of a dtype. */
const SMALLEST: Readonly<Record<FloatDtype, number>> = { f64: 0, f32: 2 ** -150, f16: 2 ** -25, bf16: 2 ** -134 };

/**
 * The noise of one element whose angle is exact.
 *
 * Two products, a sum, and cos and sin rounded to f32: 5 roundings of at most the pair's length, which is bounded by √2
 * times the larger member; then one rounding to the dtype.
 *
 * @param size - the largest |x| of the head, times the magnitude
 */
export function storedNoise(dtype: FloatDtype, value: number, size: number): number {
  const arithmetic = dtype === 'f64' ? UNIT_ROUNDOFF.f64 : UNIT_ROUNDOFF.f32;
  return 1.01 * UNIT_ROUNDOFF[dtype] * Math.abs(value) + 6 * arithmetic * size + SMALLEST[dtype];
}

/**
 * Error of an f32 angle, in radians.
 *
 * A frequency from pow, log or a table, times the position: 8 roundings of the angle. Repeated products from pair to
 * pair (ggml's θ_scale^j) add two more for each pair.
 *
 * @param angle - position × frequency
 */
export function angleNoise(angle: number, j: number): number {
  return Math.min(2, (8 + 2 * j) * UNIT_ROUNDOFF.f32 * Math.abs(angle));
}

/**
 * Absolute error of fast cos and sin, such as CUDA's __sincosf: 2^-21.19 and 2^-21.41 between -π and π (CUDA C++
 * Programming Guide, intrinsic functions).
 */
export const SINE_NOISE = 2 ** -21;

/**
 * Arithmetic in a 16-bit dtype, for a pair of length 1: cos and sin rounded, two products and a sum. 0 for the wider
 * ones.
 */
export function arithmeticNoise(dtype: FloatDtype): number {
  return dtype === 'f16' || dtype === 'bf16' ? 3.5 * UNIT_ROUNDOFF[dtype] : 0;
}
