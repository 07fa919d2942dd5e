/**
 * ggml's q8_0 and q4_0 weight blocks, as they lie in a GGUF file: 32 weights with one f16 scale.
 *
 * q8_0 is 34 bytes: the scale, then 32 signed bytes. q4_0 is 18 bytes: the scale, then 16 bytes, with weight j in the
 * low half of byte j and weight j + 16 in its high half, each plus 8. Weights are widened exactly. x stays f32 beside
 * many rows; beside few it is split into two 16-bit integers that keep 31 bits of it (see {@link splitRow}), where ggml
 * rounds it to 8 bits.
 * @see ggml-org/ggml@d99724f src/ggml-quants.c, dequantize_row_q8_0, dequantize_row_q4_0
 */
import { SPLIT_BLOCK, SPLIT_HEAD, Type } from '../abi';
import { load1, madd } from './lanes';

/** Bytes of a block of 32 weights. */
@inline export function blockBytes(type: i32): usize {
  return type == Type.q8_0 ? 34 : 18;
}

/** Lanes 0–3 (part 0) to 12–15 (part 3) of 16 signed bytes, as f32. */
@inline function quarter(bytes: v128, part: i32): v128 {
  const half = part < 2 ? i16x8.extend_low_i8x16_s(bytes) : i16x8.extend_high_i8x16_s(bytes);
  return f32x4.convert_i32x4_s(part & 1 ? i32x4.extend_high_i16x8_s(half) : i32x4.extend_low_i16x8_s(half));
}

/** Weights 0–15 (first) or 16–31 of a block as signed bytes. */
@inline function weights(type: i32, block: usize, first: bool): v128 {
  if (type == Type.q8_0) return first ? v128.load(block, 2, 1) : v128.load(block, 18, 1);
  const both = v128.load(block, 2, 1);
  return i8x16.sub(first ? v128.and(both, i8x16.splat(15)) : i8x16.shr_u(both, 4), i8x16.splat(8));
}

/** An f16 scale as f32, exactly: one load and five instructions where it is finite; load1 takes twenty. */
@inline function scaleOf(p: usize): f32 {
  const half = <i32>load<i16>(p);
  if ((half & 0x7c00) == 0x7c00) return load1<u16>(p);
  // 2^112: f16's exponents are 112 less.
  return reinterpret<f32>((half << 13) & 0x8fffe000) * reinterpret<f32>(0x77800000);
}

/** Adds 16 products to a sum. */
@inline function dot16(bytes: v128, x: usize, sum: v128): v128 {
  sum = madd(quarter(bytes, 0), v128.load(x), sum);
  sum = madd(quarter(bytes, 1), v128.load(x, 16), sum);
  sum = madd(quarter(bytes, 2), v128.load(x, 32), sum);
  return madd(quarter(bytes, 3), v128.load(x, 48), sum);
}

/** The scalar product of one row of `blocks` blocks with f32 `x`. */
@inline export function dotBlocks(type: i32, row: usize, x: usize, blocks: i32): f32 {
  let sum0 = f32x4.splat(0), sum1 = f32x4.splat(0);
  for (let i = 0; i < blocks; i++) {
    const scale = f32x4.splat(scaleOf(row));
    const low = dot16(weights(type, row, true), x, f32x4.splat(0));
    const high = dot16(weights(type, row, false), x + 64, f32x4.splat(0));
    sum0 = madd(low, scale, sum0);
    sum1 = madd(high, scale, sum1);
    row += blockBytes(type);
    x += 128;
  }
  const sum = f32x4.add(sum0, sum1);
  return (
    f32x4.extract_lane(sum, 0) + f32x4.extract_lane(sum, 1) + (f32x4.extract_lane(sum, 2) + f32x4.extract_lane(sum, 3))
  );
}

/** Bytes of a row of `blocks` split blocks. */
@inline export function splitRowBytes(blocks: i32): usize {
  return <usize>(SPLIT_HEAD + blocks * SPLIT_BLOCK);
}

/** The range of a block's largest exponent, biased, in which scales and sums stay far from overflow and underflow. */
const SMALLEST: i32 = 67, LARGEST: i32 = 187;

/**
 * Splits a row of f32 for integer products: x[i] = (high[i] · 2^15 + low[i]) · scale, with a power of two as scale of
 * each block.
 *
 * That is exact for elements within seven octaves of their block's largest, and within 2^-31 of that largest for all. A
 * row with another block (infinities, NaN, extreme sizes) is marked, and computed in f32.
 *
 * @param to - {@link splitRowBytes} bytes
 * @param x - f32, dense
 */
export function splitRow(to: usize, x: usize, blocks: i32): void {
  store<i32>(to, 0);
  let at = to + SPLIT_HEAD;
  for (let i = 0; i < blocks; i++, x += 128, at += SPLIT_BLOCK) {
    const magnitude = i32x4.splat(0x7fffffff);
    let most = i32x4.splat(0);
    for (let p: usize = 0; p < 128; p += 16) most = i32x4.max_s(most, v128.and(v128.load(x + p), magnitude));
    const largest = max(
      max(i32x4.extract_lane(most, 0), i32x4.extract_lane(most, 1)),
      max(i32x4.extract_lane(most, 2), i32x4.extract_lane(most, 3)),
    );
    const exponent = largest == 0 ? SMALLEST : largest >> 23;
    if (exponent < SMALLEST || exponent > LARGEST) {
      store<i32>(to, 1);
      return;
    }
    // The largest is below 2^(exponent - 126); times 2^(156 - exponent) it is below 2^30.
    const scale = f32x4.splat(reinterpret<f32>((283 - exponent) << 23)), mask = i32x4.splat(0x7fff);
    for (let p: usize = 0; p < 64; p += 16) {
      const a = i32x4.trunc_sat_f32x4_s(f32x4.nearest(f32x4.mul(v128.load(x + 2 * p), scale)));
      const b = i32x4.trunc_sat_f32x4_s(f32x4.nearest(f32x4.mul(v128.load(x + 2 * p, 16), scale)));
      v128.store(at + p, i16x8.narrow_i32x4_s(i32x4.shr_s(a, 15), i32x4.shr_s(b, 15)));
      v128.store(at + p, i16x8.narrow_i32x4_s(v128.and(a, mask), v128.and(b, mask)), 64);
    }
    store<f32>(at + 128, reinterpret<f32>((exponent - 29) << 23));
  }
}

/** 32 products of a block's weights with one of the two parts of x, in four sums. */
@inline function dot32(w0: v128, w1: v128, w2: v128, w3: v128, x: usize): v128 {
  const a = i32x4.add(i32x4.dot_i16x8_s(w0, v128.load(x)), i32x4.dot_i16x8_s(w1, v128.load(x, 16)));
  const b = i32x4.add(i32x4.dot_i16x8_s(w2, v128.load(x, 32)), i32x4.dot_i16x8_s(w3, v128.load(x, 48)));
  return i32x4.add(a, b);
}

/**
 * The scalar products of two rows of weights with a split row, in lanes 0 and 1. Neither depends on the other row.
 *
 * Integer products and sums of a block are exact: 32 · 128 · 2^15 at most. Between blocks sums are f32.
 */
@inline export function dotSplit(type: i32, row0: usize, row1: usize, x: usize, blocks: i32): v128 {
  let high0 = f32x4.splat(0), low0 = f32x4.splat(0), high1 = f32x4.splat(0), low1 = f32x4.splat(0);
  x += SPLIT_HEAD;
  for (let i = 0; i < blocks; i++) {
    const scale = load<f32>(x, 128);
    let first = weights(type, row0, true), second = weights(type, row0, false);
    let w0 = i16x8.extend_low_i8x16_s(first), w1 = i16x8.extend_high_i8x16_s(first);
    let w2 = i16x8.extend_low_i8x16_s(second), w3 = i16x8.extend_high_i8x16_s(second);
    let both = f32x4.splat(scaleOf(row0) * scale);
    high0 = madd(f32x4.convert_i32x4_s(dot32(w0, w1, w2, w3, x)), both, high0);
    low0 = madd(f32x4.convert_i32x4_s(dot32(w0, w1, w2, w3, x + 64)), both, low0);
    first = weights(type, row1, true);
    second = weights(type, row1, false);
    w0 = i16x8.extend_low_i8x16_s(first);
    w1 = i16x8.extend_high_i8x16_s(first);
    w2 = i16x8.extend_low_i8x16_s(second);
    w3 = i16x8.extend_high_i8x16_s(second);
    both = f32x4.splat(scaleOf(row1) * scale);
    high1 = madd(f32x4.convert_i32x4_s(dot32(w0, w1, w2, w3, x)), both, high1);
    low1 = madd(f32x4.convert_i32x4_s(dot32(w0, w1, w2, w3, x + 64)), both, low1);
    row0 += blockBytes(type);
    row1 += blockBytes(type);
    x += SPLIT_BLOCK;
  }
  const parts = f32x4.splat(32768);
  const sum0 = f32x4.add(f32x4.mul(high0, parts), low0), sum1 = f32x4.add(f32x4.mul(high1, parts), low1);
  const pairs = f32x4.add(v128.shuffle<f32>(sum0, sum1, 0, 4, 2, 6), v128.shuffle<f32>(sum0, sum1, 1, 5, 3, 7));
  return f32x4.add(pairs, v128.shuffle<f32>(pairs, pairs, 2, 3, 2, 3));
}

/** 16 signed bytes times a scale, as dense f32. */
@inline function store16(to: usize, bytes: v128, scale: v128): void {
  v128.store(to, f32x4.mul(quarter(bytes, 0), scale));
  v128.store(to, f32x4.mul(quarter(bytes, 1), scale), 16);
  v128.store(to, f32x4.mul(quarter(bytes, 2), scale), 32);
  v128.store(to, f32x4.mul(quarter(bytes, 3), scale), 48);
}

/** Widens `blocks` blocks to f32, `step` bytes from weight to weight. */
export function widenBlocks(type: i32, to: usize, step: usize, row: usize, blocks: i32): void {
  if (step == 4) {
    for (let i = 0; i < blocks; i++) {
      const scale = f32x4.splat(scaleOf(row));
      store16(to, weights(type, row, true), scale);
      store16(to + 64, weights(type, row, false), scale);
      to += 128;
      row += blockBytes(type);
    }
    return;
  }
  for (let i = 0; i < blocks; i++) {
    const scale = scaleOf(row);
    for (let j = 0; j < 32; j++) {
      let q: i32;
      if (type == Type.q8_0) q = load<i8>(row + 2 + <usize>j);
      else {
        const both = <i32>load<u8>(row + 2 + <usize>(j & 15));
        q = (j < 16 ? both & 15 : both >> 4) - 8;
      }
      store<f32>(to, <f32>q * scale);
      to += step;
    }
    row += blockBytes(type);
  }
}
