/** RMS norm: rows scaled to a root mean square of one, times a weight. */
import { RmsNorm, Type } from '../abi';
import { address, offsetOf, place, word } from './args';
import { bytes, bytesOf, load1, load4, readRowOf, store1, store4, writeRowOf } from './lanes';

/** Elements i and i + 1 as f64. */
@inline function promoteTwo<T>(p: usize, i: i32): v128 {
  if (isFloat<T>()) return f64x2.promote_low_f32x4(v128.load_zero<u64>(place(p, i)));
  const four = load4<T>(p + ((<usize>(i & 4)) << 1));
  return f64x2.promote_low_f32x4(i & 2 ? v128.shuffle<f32>(four, four, 2, 3, 2, 3) : four);
}

/**
 * The sum of squares of a dense row, in f64: no square of an f32 overflows there, and the sum's error is far below an
 * f32's.
 */
@inline function sumOfSquares<T>(x: usize, n: i32): f64 {
  let a = f64x2.splat(0), b = f64x2.splat(0), c = f64x2.splat(0), d = f64x2.splat(0);
  let i = 0;
  for (; i + 8 <= n; i += 8) {
    const p = x + <usize>i * bytes<T>();
    const x0 = promoteTwo<T>(p, 0), x1 = promoteTwo<T>(p, 2), x2 = promoteTwo<T>(p, 4), x3 = promoteTwo<T>(p, 6);
    a = f64x2.add(a, f64x2.mul(x0, x0));
    b = f64x2.add(b, f64x2.mul(x1, x1));
    c = f64x2.add(c, f64x2.mul(x2, x2));
    d = f64x2.add(d, f64x2.mul(x3, x3));
  }
  const all = f64x2.add(f64x2.add(a, b), f64x2.add(c, d));
  let sum = f64x2.extract_lane(all, 0) + f64x2.extract_lane(all, 1);
  for (; i < n; i++) {
    const value = <f64>load1<T>(x + <usize>i * bytes<T>());
    sum += value * value;
  }
  return sum;
}

/**
 * Normalises one dense row: `y = w · (x · 1/√(mean(x²) + eps))`. The factor is computed in f64, the two products in
 * f32.
 *
 * @param y - `[n]`; may be `x`
 */
@inline export function normaliseRow<T, W>(y: usize, x: usize, weight: usize, n: i32, eps: f64): void {
  const wide = 1.0 / sqrt(sumOfSquares<T>(x, n) / <f64>n + eps);
  // A row of tiny values has a factor past f32's range; there the product is taken in f64.
  if (wide > 1e38) {
    for (let i = 0; i < n; i++) {
      const at = <usize>i * bytes<T>();
      store1<T>(y + at, <f32>(<f64>load1<T>(x + at) * wide * <f64>load1<W>(weight + <usize>i * bytes<W>())));
    }
    return;
  }
  const scale = f32x4.splat(<f32>wide);
  let i = 0;
  if (isFloat<T>() && isFloat<W>()) {
    for (; i + 16 <= n; i += 16) {
      const at = (<usize>i) << 2;
      const p = x + at, q = weight + at, to = y + at;
      v128.store(to, f32x4.mul(f32x4.mul(v128.load(p), scale), v128.load(q)));
      v128.store(to, f32x4.mul(f32x4.mul(v128.load(p, 16), scale), v128.load(q, 16)), 16);
      v128.store(to, f32x4.mul(f32x4.mul(v128.load(p, 32), scale), v128.load(q, 32)), 32);
      v128.store(to, f32x4.mul(f32x4.mul(v128.load(p, 48), scale), v128.load(q, 48)), 48);
    }
  }
  for (; i + 4 <= n; i += 4) {
    const at = <usize>i * bytes<T>();
    store4<T>(y + at, f32x4.mul(f32x4.mul(load4<T>(x + at), scale), load4<W>(weight + <usize>i * bytes<W>())));
  }
  for (; i < n; i++) {
    const at = <usize>i * bytes<T>();
    store1<T>(y + at, load1<T>(x + at) * <f32>wide * load1<W>(weight + <usize>i * bytes<W>()));
  }
}

/**
 * Normalises rows `from … to - 1`.
 *
 * @param scratch - this thread's: f32 `[n]`, used where a row is not dense
 */
export function rmsNorm(args: usize, from: i32, to: i32, scratch: usize): void {
  const type = word(args, RmsNorm.type), n = word(args, RmsNorm.n), weight = address(args, RmsNorm.weight);
  const xStride = word(args, RmsNorm.xStride), yStride = word(args, RmsNorm.yStride);
  const eps = load<f64>(place(args, RmsNorm.eps)), walk = place(args, RmsNorm.walk), unit = bytesOf(type);
  for (let r = from; r < to; r++) {
    const x = address(args, RmsNorm.x) + <usize>offsetOf(walk, 0, r) * unit;
    const y = address(args, RmsNorm.y) + <usize>offsetOf(walk, 1, r) * unit;
    if (xStride == 1 && yStride == 1) {
      if (type == Type.f32) normaliseRow<f32, f32>(y, x, weight, n, eps);
      else if (type == Type.f16) normaliseRow<u16, f32>(y, x, weight, n, eps);
      else normaliseRow<i16, f32>(y, x, weight, n, eps);
    } else {
      readRowOf(type, scratch, x, n, xStride);
      normaliseRow<f32, f32>(scratch, scratch, weight, n, eps);
      writeRowOf(type, y, scratch, n, yStride);
    }
  }
}
