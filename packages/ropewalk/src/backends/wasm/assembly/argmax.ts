/** argmax over rows: the first largest element; the first NaN wins over everything. */
import { Argmax, Type } from '../abi';
import { address, offsetOf, place, word } from './args';
import { bytes, bytesOf, laneOf, load1, load4 } from './lanes';

/**
 * Finds the index of a dense row's first largest element.
 *
 * Each lane keeps its first largest element and its index; only a strictly greater one replaces it. A NaN ends the
 * search.
 */
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
      // A NaN is rare, so a second look finds it.
      for (i = 0; ; i++) if (isNaN(load1<T>(x + <usize>i * bytes<T>()))) return i;
    }
    best = i32x4.extract_lane(where, 0);
    max = f32x4.extract_lane(values, 0);
    for (let lane = 1; lane < 4; lane++) {
      const value = laneOf(values, lane), at = reinterpret<i32>(laneOf(where, lane));
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

/** Searches rows `from … to - 1`. */
export function argmax(args: usize, from: i32, to: i32): void {
  const type = word(args, Argmax.type), n = word(args, Argmax.n), stride = word(args, Argmax.stride);
  const indexSize = word(args, Argmax.indexSize), unit = bytesOf(type), walk = place(args, Argmax.walk);
  for (let r = from; r < to; r++) {
    const x = address(args, Argmax.values) + <usize>offsetOf(walk, 0, r) * unit;
    const index = address(args, Argmax.index) + <usize>(offsetOf(walk, 1, r) * indexSize);
    const value = address(args, Argmax.value) + <usize>offsetOf(walk, 2, r) * unit;
    const best = type == Type.f32 ? largest<f32>(x, n, stride)
      : type == Type.f16 ? largest<u16>(x, n, stride) : largest<i16>(x, n, stride);
    if (indexSize == 8) store<i64>(index, best);
    else store<i32>(index, best);
    memory.copy(value, x + <usize>(best * stride) * unit, unit); // The bits are copied, so a NaN keeps its payload.
  }
}
