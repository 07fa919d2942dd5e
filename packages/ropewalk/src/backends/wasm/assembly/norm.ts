/** RMS norm and layer norm: they scale rows to a root mean square of one, or to a mean of 0 and a variance of one. */
import { Norm, Type } from '../abi';
import { address, offsetOf, place, word } from './args';
import { bytes, bytesOf, load1, load4, readRowOf, store1, store4, writeRowOf } from './lanes';

/** Loads elements i and i + 1 as f64. */
@inline function promoteTwo<T>(p: usize, i: i32): v128 {
  if (isFloat<T>()) return f64x2.promote_low_f32x4(v128.load_zero<u64>(place(p, i)));
  const four = load4<T>(p + ((<usize>(i & 4)) << 1));
  return f64x2.promote_low_f32x4(i & 2 ? v128.shuffle<f32>(four, four, 2, 3, 2, 3) : four);
}

/**
 * Adds up the squares of a dense row in f64, where no square of an f32 overflows, and the error is far below that of f32.
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
@inline export function normalizeRow<T, W>(y: usize, x: usize, weight: usize, n: i32, eps: f64): void {
  const wide = 1.0 / sqrt(sumOfSquares<T>(x, n) / <f64>n + eps);
  // The factor of a row of tiny values is outside the range of f32, so the product is computed in f64.
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

/** Adds up a dense f32 row, or its squared differences from `mean`, in f64. */
@inline function sum(squares: bool, x: usize, n: i32, mean: f64): f64 {
  const center = f64x2.splat(mean);
  let a = f64x2.splat(0), b = f64x2.splat(0);
  let i = 0;
  for (; i + 4 <= n; i += 4) {
    const four = v128.load(place(x, i));
    let low = f64x2.promote_low_f32x4(four);
    let high = f64x2.promote_low_f32x4(v128.shuffle<f32>(four, four, 2, 3, 2, 3));
    if (squares) {
      low = f64x2.sub(low, center);
      high = f64x2.sub(high, center);
      low = f64x2.mul(low, low);
      high = f64x2.mul(high, high);
    }
    a = f64x2.add(a, low);
    b = f64x2.add(b, high);
  }
  const both = f64x2.add(a, b);
  let all = f64x2.extract_lane(both, 0) + f64x2.extract_lane(both, 1);
  for (; i < n; i++) {
    const value = <f64>load<f32>(place(x, i)) - (squares ? mean : 0);
    all += squares ? value * value : value;
  }
  return all;
}

/**
 * Layer norm of one dense row: `y = w · ((x − mean) · 1/√(var + eps)) + bias`. Mean and factor are computed in f64; the
 * mean is subtracted as two f32, so that a row of almost equal numbers loses nothing.
 *
 * @param y - f32 `[n]`; may be `x`
 * @param bias - an address, or 0
 */
function centerRow(y: usize, x: usize, weight: usize, bias: usize, n: i32, eps: f64): void {
  const mean = sum(false, x, n, 0) / <f64>n;
  const wide = 1.0 / sqrt(sum(true, x, n, mean) / <f64>n + eps);
  const high = <f32>mean, low = <f32>(mean - <f64>high), factor = <f32>wide;
  let i = 0;
  // The factor of a row of tiny values, or the differences in a row of huge ones, may be outside the range of f32: both
  // are computed in f64.
  if (wide > 1e-36 && wide < 1e38) {
    const highs = f32x4.splat(high), lows = f32x4.splat(low), scale = f32x4.splat(factor);
    for (; i + 4 <= n; i += 4) {
      const centered = f32x4.sub(f32x4.sub(v128.load(place(x, i)), highs), lows);
      let value = f32x4.mul(f32x4.mul(centered, scale), v128.load(place(weight, i)));
      if (bias) value = f32x4.add(value, v128.load(place(bias, i)));
      v128.store(place(y, i), value);
    }
  }
  for (; i < n; i++) {
    const value = (<f64>load<f32>(place(x, i)) - mean) * wide * <f64>load<f32>(place(weight, i));
    store<f32>(place(y, i), <f32>(value + (bias ? <f64>load<f32>(place(bias, i)) : 0)));
  }
}

/**
 * Normalises rows `from … to - 1`.
 *
 * @param scratch - memory of this thread: f32 `[n]`, used where a row is not dense, or not f32 beside a mean
 */
export function norm(args: usize, from: i32, to: i32, scratch: usize): void {
  const type = word(args, Norm.type), n = word(args, Norm.n), weight = address(args, Norm.weight);
  const xStride = word(args, Norm.xStride), yStride = word(args, Norm.yStride);
  const centered = word(args, Norm.centered) != 0, bias = address(args, Norm.bias);
  const eps = load<f64>(place(args, Norm.eps)), walk = place(args, Norm.walk), unit = bytesOf(type);
  for (let r = from; r < to; r++) {
    const x = address(args, Norm.x) + <usize>offsetOf(walk, 0, r) * unit;
    const y = address(args, Norm.y) + <usize>offsetOf(walk, 1, r) * unit;
    if (xStride == 1 && yStride == 1 && (type == Type.f32 || !centered)) {
      if (centered) centerRow(y, x, weight, bias, n, eps);
      else if (type == Type.f32) normalizeRow<f32, f32>(y, x, weight, n, eps);
      else if (type == Type.f16) normalizeRow<u16, f32>(y, x, weight, n, eps);
      else normalizeRow<i16, f32>(y, x, weight, n, eps);
    } else {
      readRowOf(type, scratch, x, n, xStride);
      if (centered) centerRow(scratch, scratch, weight, bias, n, eps);
      else normalizeRow<f32, f32>(scratch, scratch, weight, n, eps);
      writeRowOf(type, y, scratch, n, yStride);
    }
  }
}
