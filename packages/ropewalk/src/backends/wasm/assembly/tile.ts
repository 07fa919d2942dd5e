/**
 * The innermost loop of linear and of attention: a tile of MR × 8 sums of products, and the packing that feeds it.
 *
 * A is packed `[k][MR]`, B `[k][8]`. With relaxed SIMD MR is 6: 12 accumulators, 2 vectors of B and one of A fill the
 * 15 registers that V8 leaves on x86. Without it each product needs another register before it is added, so MR is 4.
 */
import { place } from './args';
import { NR, Type } from '../abi';
import { bytes, load1, load4, madd } from './lanes';

/** The rows of a tile. */
export const MR: i32 = ASC_FEATURE_RELAXED_SIMD ? 6 : 4;

/**
 * Adds A·B to a tile of C.
 *
 * @param c - f32, `step` bytes from row to row, 8 columns dense
 * @param a - f32 `[k][MR]`
 * @param b - f32 `[k][8]`
 */
export function multiplyTile(c: usize, step: usize, a: usize, b: usize, k: i32): void {
  let c00 = f32x4.splat(0), c01 = f32x4.splat(0), c10 = f32x4.splat(0), c11 = f32x4.splat(0);
  let c20 = f32x4.splat(0), c21 = f32x4.splat(0), c30 = f32x4.splat(0), c31 = f32x4.splat(0);
  let c40 = f32x4.splat(0), c41 = f32x4.splat(0), c50 = f32x4.splat(0), c51 = f32x4.splat(0);
  for (; k > 0; k--) {
    const b0 = v128.load(b), b1 = v128.load(b, 16);
    let x = v128.load_splat<f32>(a);
    c00 = madd(x, b0, c00);
    c01 = madd(x, b1, c01);
    x = v128.load_splat<f32>(a, 4);
    c10 = madd(x, b0, c10);
    c11 = madd(x, b1, c11);
    x = v128.load_splat<f32>(a, 8);
    c20 = madd(x, b0, c20);
    c21 = madd(x, b1, c21);
    x = v128.load_splat<f32>(a, 12);
    c30 = madd(x, b0, c30);
    c31 = madd(x, b1, c31);
    if (MR == 6) {
      x = v128.load_splat<f32>(a, 16);
      c40 = madd(x, b0, c40);
      c41 = madd(x, b1, c41);
      x = v128.load_splat<f32>(a, 20);
      c50 = madd(x, b0, c50);
      c51 = madd(x, b1, c51);
    }
    a += MR * 4;
    b += 32;
  }
  addTo(c, c00, c01);
  addTo(c + step, c10, c11);
  addTo(c + 2 * step, c20, c21);
  addTo(c + 3 * step, c30, c31);
  if (MR == 6) {
    addTo(c + 4 * step, c40, c41);
    addTo(c + 5 * step, c50, c51);
  }
}

@inline export function addTo(c: usize, low: v128, high: v128): void {
  v128.store(c, f32x4.add(v128.load(c), low));
  v128.store(c, f32x4.add(v128.load(c, 16), high), 16);
}

/** Transposes four f32 rows into four columns, which it stores `step` bytes apart. */
@inline export function storeTransposed(to: usize, step: usize, r0: v128, r1: v128, r2: v128, r3: v128): void {
  const a = v128.shuffle<f32>(r0, r1, 0, 4, 1, 5), b = v128.shuffle<f32>(r2, r3, 0, 4, 1, 5);
  const c = v128.shuffle<f32>(r0, r1, 2, 6, 3, 7), d = v128.shuffle<f32>(r2, r3, 2, 6, 3, 7);
  v128.store(to, v128.shuffle<f64>(a, b, 0, 2));
  v128.store(to + step, v128.shuffle<f64>(a, b, 1, 3));
  v128.store(to + 2 * step, v128.shuffle<f64>(c, d, 0, 2));
  v128.store(to + 3 * step, v128.shuffle<f64>(c, d, 1, 3));
}

/**
 * Packs `count` rows of `x` into one panel `[k][width]`; rows that are missing become zeros.
 *
 * @param x - first element; rows `rowStride` elements apart, elements `stride` apart
 * @param count - the number of rows, at most `width`
 */
function packPanel<T>(to: usize, x: usize, count: i32, width: i32, k: i32, rowStride: i32, stride: i32): void {
  const step = (<usize>width) << 2, row = <usize>(rowStride * <i32>bytes<T>());
  let r = 0;
  if (stride == 1) {
    for (; r + 4 <= count; r += 4) {
      const from = x + <usize>r * row, at = place(to, r);
      let i = 0;
      for (; i + 4 <= k; i += 4) {
        const p = from + <usize>i * bytes<T>();
        storeTransposed(
          at + <usize>i * step, step, load4<T>(p), load4<T>(p + row), load4<T>(p + 2 * row), load4<T>(p + 3 * row),
        );
      }
      for (; i < k; i++) {
        for (let q = 0; q < 4; q++) {
          store<f32>(place(at, i * width + q), load1<T>(from + <usize>q * row + <usize>i * bytes<T>()));
        }
      }
    }
  }
  for (; r < count; r++) {
    const from = x + <usize>r * row, unit = <usize>(stride * <i32>bytes<T>());
    for (let i = 0; i < k; i++) store<f32>(place(to, i * width + r), load1<T>(from + <usize>i * unit));
  }
  for (; r < width; r++) for (let i = 0; i < k; i++) store<f32>(place(to, i * width + r), 0);
}

/** Does {@link packPanel} for a type that is known only at run time. */
export function packPanelOf(
  type: i32, to: usize, x: usize, count: i32, width: i32, k: i32, rowStride: i32, stride: i32,
): void {
  if (type == Type.f32) packPanel<f32>(to, x, count, width, k, rowStride, stride);
  else if (type == Type.f16) packPanel<u16>(to, x, count, width, k, rowStride, stride);
  else packPanel<i16>(to, x, count, width, k, rowStride, stride);
}

/** Packs k rows of `count` neighbours into `[k][MR]`, zeros after them: for V, whose columns are a tile's rows. */
function packRows<T>(to: usize, x: usize, count: i32, k: i32, rowStride: i32, stride: i32): void {
  for (let i = 0; i < k; i++) {
    const from = x + <usize>(i * rowStride) * bytes<T>(), at = place(to, i * MR);
    let c = 0;
    if (stride == 1 && count == MR) {
      v128.store(at, load4<T>(from));
      c = 4;
    }
    for (; c < count; c++) store<f32>(place(at, c), load1<T>(from + <usize>(c * stride) * bytes<T>()));
    for (; c < MR; c++) store<f32>(place(at, c), 0);
  }
}

/** Does {@link packRows} for a type that is known only at run time. */
export function packRowsOf(type: i32, to: usize, x: usize, count: i32, k: i32, rowStride: i32, stride: i32): void {
  if (type == Type.f32) packRows<f32>(to, x, count, k, rowStride, stride);
  else if (type == Type.f16) packRows<u16>(to, x, count, k, rowStride, stride);
  else packRows<i16>(to, x, count, k, rowStride, stride);
}
