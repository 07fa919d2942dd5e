/** How far the output of a right kernel may be from the exact one: four tiers of noise, and whether y is within one. @module */
import { type FloatDtype, roundTo } from 'ropewalk';
import { UNIT_ROUNDOFF } from 'ropewalk/internal';

/**
 * The noise that a right kernel may have.
 *
 * - `stored`: exact angles, the rotation in f32 (f64 for f64 data), one rounding to y's dtype
 * - `angles`: in addition, angles computed in f32, whose error grows with the angle, and from pair to pair with repeated
 *   products
 * - `sines`: in addition, cos and sin with an absolute error up to 2^-21, as fast-math sines have
 * - `arithmetic`: as `angles`, and cos, sin, products and sums rounded to y's own 16-bit dtype
 */
export type Tier = 'stored' | 'angles' | 'sines' | 'arithmetic';

/** The tiers, the strictest first. */
export const TIERS: readonly Tier[] = ['stored', 'angles', 'sines', 'arithmetic'];

/** An error that a tier allows beyond the rounding of y. The angles of float64 data, and the results before a rounding of the
 * kernel's own, are not exact either. */
export type Move =
  | 'exact angles'
  | 'exact products'
  | 'rounded angles'
  | 'angles'
  | 'angles apart'
  | 'sines'
  | 'products';

const MOVES: Readonly<Record<Tier, readonly Move[]>> = {
  stored: [],
  angles: ['angles'],
  sines: ['angles', 'sines'],
  arithmetic: ['angles', 'products'],
};

/**
 * The errors of a tier for y's dtype.
 *
 * @param rounds - whether the hypothesis rounds its results by itself
 * @param narrow - whether it rounds cos and sin to few bits: each may cross a boundary without the other
 */
export function movesOf(tier: Tier, dtype: FloatDtype, rounds = false, narrow = false): readonly Move[] {
  if (narrow) return MOVES[tier].map((move) => (move === 'angles' ? 'angles apart' : move));
  const moves = tier === 'stored' && dtype === 'f64' ? (['exact angles'] as const) : MOVES[tier];
  if (!rounds) return moves;
  // A result near a boundary crosses it by both errors together.
  return tier === 'stored' ? ['exact products'] : ['rounded angles', ...moves.filter((move) => move !== 'angles')];
}

const SMALLEST: Readonly<Record<FloatDtype, number>> = { f64: 0, f32: 2 ** -150, f16: 2 ** -25, bf16: 2 ** -134 };

/**
 * The noise of one element whose angle is exact.
 *
 * Two products, a sum, and cos and sin in f32 are 5 roundings of at most the length of the pair, which is at most √2 times
 * its larger member. One rounding to the dtype follows.
 *
 * @param size - the largest |x| of the head, times the magnitude
 */
export function storedNoise(dtype: FloatDtype, value: number, size: number): number {
  const arithmetic = dtype === 'f64' ? UNIT_ROUNDOFF.f64 : UNIT_ROUNDOFF.f32;
  return 1.01 * UNIT_ROUNDOFF[dtype] * Math.abs(value) + 6 * arithmetic * size + SMALLEST[dtype];
}

/**
 * The error of an f32 angle, in radians. A frequency from pow, log or a table, times the position, is 8 roundings of the
 * angle. Repeated products from pair to pair (ggml's θ_scale^j) add two more for each pair.
 *
 * @param angle - position × frequency. A frequency of 1 is exact, and so is its product with an integer of 24 bits: there
 *   two roundings are left, of a kernel that counts in turns
 */
export function angleNoise(angle: number, j: number, position: number): number {
  const roundings = Math.abs(angle) === Math.abs(position) && Math.abs(position) <= 2 ** 24 ? 2 : 8 + 2 * j;
  return Math.min(2, roundings * UNIT_ROUNDOFF.f32 * Math.abs(angle));
}

/**
 * The absolute error of fast cos and sin. CUDA's __sincosf has 2^-21.19 and 2^-21.41 between -π and π (CUDA C++ Programming
 * Guide, intrinsic functions).
 */
export const SINE_NOISE = 2 ** -21;

/**
 * The error of arithmetic in a 16-bit dtype, for a pair of length 1: cos and sin rounded, two products and a sum. It is 0
 * for wider dtypes.
 */
export function arithmeticNoise(dtype: FloatDtype): number {
  return dtype === 'f16' || dtype === 'bf16' ? 3.5 * UNIT_ROUNDOFF[dtype] : 0;
}

/** The error of products in f32, for a pair of length 1. */
const F32 = 4 * UNIT_ROUNDOFF.f32;

/** The errors of angles, cos, sin and products. Fields that are left out mean exact arithmetic. */
export interface Rounding {
  /** Returns the angle with its error. */
  angle?(exact: number, j: number, position: number): number;
  /** Returns cos and sin of an angle with their errors. It is not called for the table of a caller. */
  sines?(cos: number, sin: number): readonly [cos: number, sin: number];
  /** A factor of cos and sin. */
  readonly gain?: number;
  /** The dtype to which cos and sin, times the magnitude, are rounded. */
  readonly table?: FloatDtype;
  /** The dtype to which products and sums are rounded. */
  readonly products?: FloatDtype;
  /** Moves a rotated pair of the given length. */
  moved?(y0: number, y1: number, length: number): readonly [y0: number, y1: number];
}

/**
 * A move at its largest, each way: the output of a right kernel lies between the two.
 *
 * @param loosest - the largest error of any angle, in radians
 */
export function roundingsOf(move: Move, dtype: FloatDtype, loosest: number): readonly Rounding[] {
  const part = arithmeticNoise(dtype);
  if (move === 'rounded angles')
    return roundingsOf('angles', dtype, loosest).flatMap((angles) =>
      roundingsOf('exact products', dtype, loosest).map((products) => ({ ...angles, ...products })),
    );
  const error = (angle: number, j: number, position: number): number =>
    Math.min(loosest, angleNoise(angle, j, position));
  if (move === 'angles apart')
    return [1, 0, -1].flatMap((cos) =>
      [1, 0, -1].map((sin): Rounding => {
        let calls = 0; // first for cos, then for sin
        return { angle: (angle, j, position) => angle + (calls++ % 2 ? sin : cos) * error(angle, j, position) };
      }),
    );
  return [1, -1].map((way): Rounding => {
    if (move === 'angles') return { angle: (angle, j, position) => angle + way * error(angle, j, position) };
    if (move === 'exact angles') return { angle: (angle, j) => angle * (1 + way * (8 + 2 * j) * UNIT_ROUNDOFF.f64) };
    if (move === 'exact products')
      return { moved: (y0, y1, length) => [y0 + way * F32 * length, y1 + way * F32 * length] };
    if (move === 'sines') return { sines: (cos, sin) => [cos + SINE_NOISE, sin + way * SINE_NOISE] };
    return { moved: (y0, y1, length) => [y0 + part * length, y1 + way * part * length] };
  });
}

/** No bug makes an error of the right kernel so many times as large. The tests of slack find a few times at most. */
const MOST_GROWTH = 64;

/** The most that the moves of any tier change an element of a hypothesis, a rounding of its own included. */
export const mostMoved = (dtype: FloatDtype, loosest: number, largest: number): number =>
  MOST_GROWTH * largest * (loosest + SINE_NOISE + arithmeticNoise(dtype) + UNIT_ROUNDOFF[dtype]);

/** Rows of y, for {@link misfit}. */
export interface Seen {
  /** `[rows, head_dim]` */
  readonly y: Float64Array;
  readonly dtype: FloatDtype;
  /** The largest |x| of each row, before or after a norm, times the magnitude: the noise grows with it. */
  readonly sizes: Float64Array;
  /** The dimensions that are not compared. */
  readonly lost?: ReadonlySet<number>;
}

/**
 * The largest error of a hypothesis in units of its noise: at most 1 where it explains y, Infinity where y is not finite.
 *
 * @param made - the output of the hypothesis, `[rows, head_dim]`
 * @param slack - the noise beyond `stored` of each element of `made`
 * @param enough - a larger error ends the search
 */
export function misfit(seen: Seen, made: Float64Array, slack?: Float64Array, enough = Infinity): number {
  return farthest(seen, made, slack, enough).ratio;
}

/** The result of {@link misfit}, and the element of `made` with that error; −1 when all are equal. */
export function farthest(seen: Seen, made: Float64Array, slack?: Float64Array, enough = Infinity) {
  const headDim = made.length / seen.sizes.length;
  let worst = { ratio: 0, at: -1 };
  for (let n = 0; n < made.length; n++) {
    const y = seen.y[n]!;
    const value = made[n]!;
    // A bug may give NaN, infinities, or values that the dtype of y cannot hold.
    if (Object.is(y, value) || (Math.abs(y) === Infinity && roundTo(seen.dtype, value) === y)) continue;
    if (seen.lost?.has(n % headDim)) continue;
    const noise = storedNoise(seen.dtype, value, seen.sizes[Math.floor(n / headDim)]!) + (slack ? slack[n]! : 0);
    const error = Math.abs(y - value);
    const ratio = error === 0 ? 0 : error / noise;
    if (ratio <= worst.ratio) continue;
    worst = { ratio: Number.isFinite(ratio) ? ratio : Infinity, at: n };
    if (worst.ratio > enough) return worst;
  }
  return worst;
}

/**
 * The slack of a hypothesis: how far each of its elements moves when angles, cos and sin, or products are off by as much as
 * those of a right kernel may be. The errors are the same for every hypothesis, so that none fits more loosely than another.
 *
 * @param made - the output of the hypothesis
 * @param make - computes it again
 */
export function slackOf(
  control: { readonly loosest: number; as<T>(rounding: Rounding, run: () => T): T },
  made: Float64Array,
  dtype: FloatDtype,
  move: Move,
  make: () => Float64Array,
): Float64Array {
  const slack = new Float64Array(made.length);
  for (const rounding of roundingsOf(move, dtype, control.loosest)) {
    const moved = control.as(rounding, make);
    for (let n = 0; n < made.length; n++) {
      const far = Math.abs(moved[n]! - made[n]!);
      if (far > slack[n]!) slack[n] = far; // not where the hypothesis gives NaN
    }
  }
  return slack;
}
