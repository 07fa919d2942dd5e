/** Tolerances, each with its reason. @module */
import type { FloatDtype } from 'ropewalk';
import { UNIT_ROUNDOFF } from 'ropewalk/internal';

/**
 * Returns the NMSE that a RoPE result may have against the exact one.
 *
 * For f64, f32 and f16 it is ggml's limit, 1e-7. One rounding to bf16 is off by at most half of 2^-7 of the leading
 * power of two; spread evenly over significands that is an NMSE of 2^-14 / 12 / (7/3) = 2.2e-6, so the limit is 2^-18 =
 * 3.8e-6.
 */
export function ropeNmseLimit(dtype: FloatDtype): number {
  return dtype === 'bf16' ? 2 ** -18 : 1e-7;
}

/**
 * The NMSE of ggml's f32 recipe against ggml itself. They differ by fused multiply-add and libm's last bit: at most
 * 9e-10 was measured over the 107 cases in vectors/ggml.
 */
export const RECIPE_NMSE_LIMIT = 1e-8;

/**
 * The NMSE of transformers' f32 recipe against transformers. torch's pow is within one unit of the last place of the
 * correctly rounded one, so that 4 of 710 frequencies in vectors/huggingface differ by one unit. At position 131,071
 * that costs an NMSE of up to 8e-13 (measured).
 */
export const HF_RECIPE_NMSE_LIMIT = 1e-10;

/**
 * Computes the bound of one element of a rotation whose cos and sin come from tables, against float64.
 *
 * Two products and a sum in f32 are each off by at most u32 of their size, together 3·u32·(|x0·cos| + |x1·sin|), or by
 * half the smallest subnormal. One rounding to the output's dtype follows. f64 data is computed in f64. `magnitude` is
 * |x0·cos| + |x1·sin|, or a bound of it. A table's gradient is a sum of n such products in any order: n + 1
 * `roundings`. A kernel that computes in the output's dtype (`stepwise`) rounds the products to it as well: all
 * roundings but the last, which is the output's own.
 */
export function rotationErrorBound(
  dtype: FloatDtype,
  expected: number,
  magnitude: number,
  roundings = 3,
  stepwise = false,
): number {
  const arithmetic = dtype === 'f64' ? UNIT_ROUNDOFF.f64 : UNIT_ROUNDOFF.f32;
  const smallest = { f64: 0, f32: 2 ** -150, f16: 2 ** -25, bf16: 2 ** -134 }; // Half of the smallest subnormals.
  const tiny = dtype === 'f64' ? 0 : smallest.f32;
  // Each of n products is off by u of itself, so n of them together by u of their magnitude; each sum after the first by u.
  const steps = stepwise
    ? (roundings - 2) * (UNIT_ROUNDOFF[dtype] * magnitude * (1 + 2 ** -9) + 2 * smallest[dtype])
    : 0;
  return (
    steps +
    roundings * (arithmetic * magnitude + tiny) +
    UNIT_ROUNDOFF[dtype] * Math.abs(expected) * (1 + 2 ** -10) +
    smallest[dtype]
  );
}
