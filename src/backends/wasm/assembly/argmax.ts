/** argmax over rows: the first largest element; the first NaN wins over everything. */
import { address, offsetOf, word } from './args';
import { bytes, bytesOf, load1, load4 } from './lanes';

/**
 * The index of a dense row's first largest element.
 *
 * Each lane keeps its own first largest and where it was; strictly greater replaces, so earlier ones stay. A vector with a NaN ends the search.
 */
// @ts-ignore: decorator
@inline function largest<T>(x: usize, n: i32, stride: i32): i32 {
  let best = 0, i = 0;
  let max: f32 = load1<T>(x);
  if (isNaN(max)) return 0;
  if (stride == 1 && n >= 8) {
    let values = load4<T>(x), where = i32x4(0, 1, 2, 3), index = where;
    let nan = v128.not(f32x4.eq(values, values));
    for (i = 4; i + 4 <= n; i += 4) {
      index = i32x4.add(index, i32x4.splat(4));
      const next = load4<T>(x + <usize>i * bytes<T>());
      const greater = f32x4.gt(next, values);
      values = v128.bitselect(next, values, greater);
      where = v128.bitselect(index, where, greater);
      nan = v128.or(nan, f32x4.ne(next, next));
    }
    if (v128.any_true(nan)) {
      // Which one is found by looking again; it is rare.
      for (i = 0; ; i++) if (isNaN(load1<T>(x + <usize>i * bytes<T>()))) return i;
    }
    best = i32x4.extract_lane(where, 0);
    max = f32x4.extract_lane(values, 0);
    for (let lane = 1; lane < 4; lane++) {
      const value = lane == 1 ? f32x4.extract_lane(values, 1) : lane == 2 ? f32x4.extract_lane(values, 2) : f32x4.extract_lane(values, 3);
      const at = lane == 1 ? i32x4.extract_lane(where, 1) : lane == 2 ? i32x4.extract_lane(where, 2) : i32x4.extract_lane(where, 3);
      if (value > max || (value == max && at < best)) {
        max = value;
        best = at;
      }
    }
  }
  for (; i < n; i++) {
    const value = load1<T>(x + <usize>(i * stride) * bytes<T>());
    if (isNaN(value)) return i;
    if (value > max) {
      max = value;
      best = i;
    }
  }
  return best;
}

/**
 * Searches rows `from … to - 1`.
 *
 * Words: 0 x, 1 index out, 2 value out, 3 type, 4 n, 5 x's stride, 6 index size in bytes (4 or 8), 7 unused, 8 unused,
 * 9 rank of the rows, then sizes, x's strides, index's strides, value's strides (rank words each).
 */
export function argmax(args: usize, from: i32, to: i32): void {
  const type = word(args, 3), n = word(args, 4), stride = word(args, 5), indexSize = word(args, 6), rank = word(args, 9);
  const step = (<usize>rank) << 2, dims = args + 40, unit = bytesOf(type);
  for (let r = from; r < to; r++) {
    const x = address(args, 0) + <usize>offsetOf(r, rank, dims, dims + step) * unit;
    const index = address(args, 1) + <usize>(offsetOf(r, rank, dims, dims + 2 * step) * indexSize);
    const value = address(args, 2) + <usize>offsetOf(r, rank, dims, dims + 3 * step) * unit;
    const best = type == 0 ? largest<f32>(x, n, stride) : type == 1 ? largest<u16>(x, n, stride) : largest<i16>(x, n, stride);
    if (indexSize == 8) store<i64>(index, best);
    else store<i32>(index, best);
    memory.copy(value, x + <usize>(best * stride) * unit, unit); // bits, so that a NaN keeps its payload
  }
}
