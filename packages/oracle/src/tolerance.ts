/**
 * The tolerances, each a formula with its reason.
 *
 * @module
 */
import type { FloatDtype } from 'ropewalk';
import { UNIT_ROUNDOFF } from 'ropewalk/internal';

/**
 * The NMSE that a RoPE result may have against the exact one.
 *
 * ggml's own limit, 1e-7, for f64, f32 and f16. One rounding to bf16 is off by at most half of 2^-7 of the leading
 * power of two; uniformly spread over significands that is an NMSE of 2^-14 / 12 / (7/3) = 2.2e-6. The limit is 2^-18 =
 * 3.8e-6.
 *
 * @param dtype - of the output
 */
export function ropeNmseLimit(dtype: FloatDtype): number {
  return dtype === 'bf16' ? 2 ** -18 : 1e-7;
}

/**
 * ggml with its own f32 recipe: what is left is fused multiply-add and libm's last bit; measured at most 9e-10 over the
 * 107 cases here.
 */
export const RECIPE_NMSE_LIMIT = 1e-8;

/**
 * transformers with its own f32 recipe: torch's pow is within one unit of the last place of the correctly rounded one,
 * so that 4 of 710 frequencies here differ by one unit; at position 131,071 that costs an NMSE of up to 8e-13
 * (measured).
 */
export const HF_RECIPE_NMSE_LIMIT = 1e-10;

/**
 * The error a rotation from given tables may have against float64, per element.
 *
 * Two products and a sum in f32 are each off by at most u32 of their own size, in all by 3·u32·(|x0·cos| + |x1·sin|),
 * or by half the smallest subnormal; then one rounding to the output dtype. f64 data is computed in f64.
 * `magnitude` is |x0·cos| + |x1·sin|, or any bound of it. A table's gradient is a sum of n products of that kind:
 * n + 1 `roundings`, in any order of summing.
 */
export function rotationErrorBound(dtype: FloatDtype, expected: number, magnitude: number, roundings = 3): number {
  const arithmetic = dtype === 'f64' ? UNIT_ROUNDOFF.f64 : UNIT_ROUNDOFF.f32;
  const smallest = { f64: 0, f32: 2 ** -150, f16: 2 ** -25, bf16: 2 ** -134 }[dtype]; // half the smallest subnormal
  const tiny = dtype === 'f64' ? 0 : 2 ** -150; // the same of f32
  return (
    roundings * (arithmetic * magnitude + tiny) + UNIT_ROUNDOFF[dtype] * Math.abs(expected) * (1 + 2 ** -10) + smallest
  );
}
