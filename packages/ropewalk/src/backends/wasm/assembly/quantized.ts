/**
 * Products with weights in ggml's blocks (see blocks.ts). Weights are widened exactly. For many rows, x stays f32; for few
 * rows it is split into two 16-bit integers that keep 31 bits of it (see {@link splitRow}), where ggml rounds it to 8 bits.
 * On request, {@link roundRow} rounds it too.
 */
import { NR, ROUNDED_BLOCK, ROUNDED_ROWS, SPLIT_BLOCK, SPLIT_HEAD, Type } from '../abi';
import { place } from './args';
import {
  blockBytes, blockScale, hasOffset, isSuper, offsetScale, scale256, sixBits, unitScale, weights,
} from './blocks';
import { madd } from './lanes';
import { addTo, storeTransposed } from './tile';

/** Converts lanes 0–3 (part 0) to 12–15 (part 3) of 16 signed bytes to f32. */
@inline function quarter(bytes: v128, part: i32): v128 {
  const half = part < 2 ? i16x8.extend_low_i8x16_s(bytes) : i16x8.extend_high_i8x16_s(bytes);
  return f32x4.convert_i32x4_s(part & 1 ? i32x4.extend_high_i16x8_s(half) : i32x4.extend_low_i16x8_s(half));
}

/** Stores four f32, `step` bytes from one to the next. */
@inline function scatter4(to: usize, step: usize, x: v128): void {
  v128.store_lane<u32>(to, x, 0);
  v128.store_lane<u32>(to + step, x, 1);
  v128.store_lane<u32>(to + 2 * step, x, 2);
  v128.store_lane<u32>(to + 3 * step, x, 3);
}

/** Stores 16 weights, scale · q − offset, each rounded once, as ggml does. */
@inline function put16(to: usize, step: usize, q: v128, scale: f32, offset: f32): void {
  const scales = f32x4.splat(scale), offsets = f32x4.splat(offset);
  const a = f32x4.sub(f32x4.mul(quarter(q, 0), scales), offsets);
  const b = f32x4.sub(f32x4.mul(quarter(q, 1), scales), offsets);
  const c = f32x4.sub(f32x4.mul(quarter(q, 2), scales), offsets);
  const d = f32x4.sub(f32x4.mul(quarter(q, 3), scales), offsets);
  if (step == 4) {
    v128.store(to, a);
    v128.store(to, b, 16);
    v128.store(to, c, 32);
    v128.store(to, d, 48);
  } else {
    scatter4(to, step, a);
    scatter4(to + 4 * step, step, b);
    scatter4(to + 8 * step, step, c);
    scatter4(to + 12 * step, step, d);
  }
}

/** {@link widenBlocks}, made for a type where that is a constant. */
@inline function widenOf(type: i32, to: usize, step: usize, block: usize, units: i32): void {
  const count = isSuper(type) ? 8 : 1;
  for (; units > 0; units -= count) {
    const scale = blockScale(type, block);
    const six = hasOffset(type) ? sixBits(block, false) : 0, offsets = hasOffset(type) ? sixBits(block, true) : 0;
    const least = hasOffset(type) ? offsetScale(block) : 0;
    for (let unit = 0; unit < count; unit++) {
      const offset = least * <f32>(<i32>(offsets >> <u64>(unit << 3)) & 63);
      for (let part = 0; part < 2; part++) {
        const own = isSuper(type) ? scale * <f32>unitScale(type, block, unit, part, six) : scale;
        put16(to, step, weights(type, block, unit, part), own, offset);
        to += 16 * step;
      }
    }
    block += blockBytes(type);
  }
}

/** Widens `units` units, from a block's first on, to f32, `step` bytes from weight to weight. */
export function widenBlocks(type: i32, to: usize, step: usize, block: usize, units: i32): void {
  if (type == Type.q8_0) widenOf(Type.q8_0, to, step, block, units);
  else if (type == Type.q4_0) widenOf(Type.q4_0, to, step, block, units);
  else widenOf(type, to, step, block, units);
}

/** Adds four products (scale · q − offset) · x in f64 to two sums. */
@inline function dotFour(q: v128, x: v128, scale: v128, offset: v128): v128 {
  const last = v128.shuffle<f32>(q, q, 2, 3, 2, 3), lastX = v128.shuffle<f32>(x, x, 2, 3, 2, 3);
  const w0 = f64x2.sub(f64x2.mul(f64x2.promote_low_f32x4(q), scale), offset);
  const w1 = f64x2.sub(f64x2.mul(f64x2.promote_low_f32x4(last), scale), offset);
  return f64x2.add(f64x2.mul(w0, f64x2.promote_low_f32x4(x)), f64x2.mul(w1, f64x2.promote_low_f32x4(lastX)));
}

/** {@link dotBlocks}, made for a type where that is a constant. */
@inline function dotBlocksOf(type: i32, block: usize, x: usize, k: i32, scratch: usize, step: i32): f64 {
  const count = isSuper(type) ? 8 : 1;
  let sum = f64x2.splat(0);
  for (let units = k >> 5; units > 0; units -= count) {
    const scale = <f64>blockScale(type, block);
    const six = hasOffset(type) ? sixBits(block, false) : 0, offsets = hasOffset(type) ? sixBits(block, true) : 0;
    const least = hasOffset(type) ? <f64>offsetScale(block) : 0;
    for (let unit = 0; unit < count; unit++) {
      const offset = f64x2.splat(least * <f64>(<i32>(offsets >> <u64>(unit << 3)) & 63));
      for (let part = 0; part < 2; part++) {
        const own = f64x2.splat(isSuper(type) ? scale * <f64>unitScale(type, block, unit, part, six) : scale);
        const q = weights(type, block, unit, part);
        let at = x;
        if (step != 1) {
          at = scratch;
          for (let i = 0; i < 16; i++) store<f32>(place(at, i), load<f32>(place(x, i * step)));
        }
        sum = f64x2.add(sum, dotFour(quarter(q, 0), v128.load(at), own, offset));
        sum = f64x2.add(sum, dotFour(quarter(q, 1), v128.load(at, 16), own, offset));
        sum = f64x2.add(sum, dotFour(quarter(q, 2), v128.load(at, 32), own, offset));
        sum = f64x2.add(sum, dotFour(quarter(q, 3), v128.load(at, 48), own, offset));
        x = place(x, 16 * step);
      }
    }
    block += blockBytes(type);
  }
  return f64x2.extract_lane(sum, 0) + f64x2.extract_lane(sum, 1);
}

/**
 * Multiplies a row of blocks by one of x in f64, where no weight, product or sum of them overflows.
 *
 * @param x - f32, `step` elements apart
 * @param scratch - f32 `[16]`, where step is not 1
 */
export function dotBlocks(type: i32, block: usize, x: usize, k: i32, scratch: usize, step: i32 = 1): f64 {
  // Rows of mxfp4 with a block of zeros, whose scale is the least, come here.
  if (type == Type.mxfp4 && step == 1) return dotBlocksOf(Type.mxfp4, block, x, k, scratch, 1);
  return dotBlocksOf(type, block, x, k, scratch, step);
}

/** Gives the bytes of a row of `blocks` split blocks. */
@inline export function splitRowBytes(blocks: i32): usize {
  return <usize>(SPLIT_HEAD + blocks * SPLIT_BLOCK);
}

/** The range of a group's largest exponent, biased, in which scales and sums stay far from overflow and underflow. */
const SMALLEST: i32 = 67, LARGEST: i32 = 187;

/** Adds up four lanes. */
@inline function sumOf(v: v128): i32 {
  return i32x4.extract_lane(v, 0) + i32x4.extract_lane(v, 1) + (i32x4.extract_lane(v, 2) + i32x4.extract_lane(v, 3));
}

/**
 * Splits a row of f32 for integer products: x[i] = (high[i] · 2^15 + low[i]) · scale, with a power of two as scale of
 * each group, which is as long as the weights' blocks.
 *
 * That is exact for elements within seven octaves of their group's largest, and within 2^-31 of that largest for all. A
 * row with another group (infinities, NaN, extreme sizes) is marked, and computed in f32.
 *
 * @param to - {@link splitRowBytes} bytes
 * @param x - f32, dense
 * @param units - of 32 elements
 * @param group - units of a group
 */
export function splitRow(to: usize, x: usize, units: i32, group: i32): void {
  store<i32>(to, 0);
  let at = to + SPLIT_HEAD, exponent = 0;
  for (let i = 0; i < units; i++, x += 128, at += SPLIT_BLOCK) {
    if ((i & (group - 1)) == 0) {
      const magnitude = i32x4.splat(0x7fffffff), bytes = <usize>(group << 7);
      let most = i32x4.splat(0);
      for (let p: usize = 0; p < bytes; p += 16) most = i32x4.max_s(most, v128.and(v128.load(x + p), magnitude));
      const largest = max(
        max(i32x4.extract_lane(most, 0), i32x4.extract_lane(most, 1)),
        max(i32x4.extract_lane(most, 2), i32x4.extract_lane(most, 3)),
      );
      exponent = largest == 0 ? SMALLEST : largest >> 23;
      if (exponent < SMALLEST || exponent > LARGEST) {
        store<i32>(to, 1);
        return;
      }
    }
    // The largest number is below 2^(exponent - 126); times 2^(156 - exponent) it is below 2^30.
    const scale = f32x4.splat(reinterpret<f32>((283 - exponent) << 23)), mask = i32x4.splat(0x7fff);
    let highs = i32x4.splat(0), lows = i32x4.splat(0);
    for (let p: usize = 0; p < 64; p += 16) {
      const a = i32x4.trunc_sat_f32x4_s(f32x4.nearest(f32x4.mul(v128.load(x + 2 * p), scale)));
      const b = i32x4.trunc_sat_f32x4_s(f32x4.nearest(f32x4.mul(v128.load(x + 2 * p, 16), scale)));
      const highA = i32x4.shr_s(a, 15), highB = i32x4.shr_s(b, 15), lowA = v128.and(a, mask), lowB = v128.and(b, mask);
      v128.store(at + p, i16x8.narrow_i32x4_s(highA, highB));
      v128.store(at + p, i16x8.narrow_i32x4_s(lowA, lowB), 64);
      highs = i32x4.add(highs, i32x4.add(highA, highB));
      lows = i32x4.add(lows, i32x4.add(lowA, lowB));
    }
    store<i32>(at, sumOf(highs), 128);
    store<i32>(at, sumOf(lows), 132);
    store<f32>(at, reinterpret<f32>((exponent - 29) << 23), 136);
  }
}

/** Adds 32 products of a unit's weights with one of the two parts of x, in four sums. */
@inline function dot32(w0: v128, w1: v128, w2: v128, w3: v128, x: usize): v128 {
  const a = i32x4.add(i32x4.dot_i16x8_s(w0, v128.load(x)), i32x4.dot_i16x8_s(w1, v128.load(x, 16)));
  const b = i32x4.add(i32x4.dot_i16x8_s(w2, v128.load(x, 32)), i32x4.dot_i16x8_s(w3, v128.load(x, 48)));
  return i32x4.add(a, b);
}

/** The least byte of E8M0 whose products with a split x are no subnormal numbers, which would lose bits. */
const LEAST_E8M0: u32 = 68;

/** Multiplies the scales of a block and of x. A NaN, where the product may lose bits, makes the row be computed in f32. */
@inline function splitScale(type: i32, block: usize, x: usize): v128 {
  const scale = blockScale(type, block) * load<f32>(x, 136);
  return f32x4.splat(type == Type.mxfp4 && <u32>load<u8>(block) < LEAST_E8M0 ? NaN : scale);
}

/**
 * Computes the scalar products of two rows of blocks of 32 with a split row, in lanes 0 and 1. Neither depends on the other row.
 *
 * Integer products and sums of a block are exact: 32 · 128 · 2^15 at most. Between blocks sums are f32.
 */
@inline export function dotSplit(type: i32, row0: usize, row1: usize, x: usize, blocks: i32): v128 {
  let high0 = f32x4.splat(0), low0 = f32x4.splat(0), high1 = f32x4.splat(0), low1 = f32x4.splat(0);
  x += SPLIT_HEAD;
  for (let i = 0; i < blocks; i++) {
    let first = weights(type, row0, 0, 0), second = weights(type, row0, 0, 1);
    let w0 = i16x8.extend_low_i8x16_s(first), w1 = i16x8.extend_high_i8x16_s(first);
    let w2 = i16x8.extend_low_i8x16_s(second), w3 = i16x8.extend_high_i8x16_s(second);
    let both = splitScale(type, row0, x);
    high0 = madd(f32x4.convert_i32x4_s(dot32(w0, w1, w2, w3, x)), both, high0);
    low0 = madd(f32x4.convert_i32x4_s(dot32(w0, w1, w2, w3, x + 64)), both, low0);
    first = weights(type, row1, 0, 0);
    second = weights(type, row1, 0, 1);
    w0 = i16x8.extend_low_i8x16_s(first);
    w1 = i16x8.extend_high_i8x16_s(first);
    w2 = i16x8.extend_low_i8x16_s(second);
    w3 = i16x8.extend_high_i8x16_s(second);
    both = splitScale(type, row1, x);
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

/** Adds up four integers in pairs, as f64. */
@inline function toDouble(sums: v128): v128 {
  const last = v128.shuffle<i32>(sums, sums, 2, 3, 2, 3);
  return f64x2.add(f64x2.convert_low_i32x4_s(sums), f64x2.convert_low_i32x4_s(last));
}

/** The units whose products are added up as integers. Four lanes hold the sums: see {@link dotSuper}. */
@inline function unitsOfSum(type: i32): i32 {
  return type == Type.q4_K ? 8 : type == Type.q5_K ? 4 : 2;
}

/** Computes the scalar product of a row of super-blocks with a split row: see {@link dotSuper}. */
@inline function superRow(type: i32, row: usize, x: usize, blocks: i32): f64 {
  let sum = f64x2.splat(0), less: f64 = 0;
  x += SPLIT_HEAD;
  for (let i = 0; i < blocks; i++) {
    const scale = blockScale(type, row) * load<f32>(x, 136);
    const six = hasOffset(type) ? sixBits(row, false) : 0, offsets = hasOffset(type) ? sixBits(row, true) : 0;
    let highs = f64x2.splat(0), lows = f64x2.splat(0), counted = i32x4.splat(0);
    const least = hasOffset(type) ? offsetScale(row) * load<f32>(x, 136) : 0;
    let high = i32x4.splat(0), low = i32x4.splat(0);
    for (let unit = 0; unit < 8; unit++, x += SPLIT_BLOCK) {
      const first = weights(type, row, unit, 0), second = weights(type, row, unit, 1);
      const scale0 = i16x8.splat(<i16>unitScale(type, row, unit, 0, six));
      const scale1 = type == Type.q6_K ? i16x8.splat(<i16>unitScale(type, row, unit, 1, six)) : scale0;
      const w0 = i16x8.mul(i16x8.extend_low_i8x16_s(first), scale0);
      const w1 = i16x8.mul(i16x8.extend_high_i8x16_s(first), scale0);
      const w2 = i16x8.mul(i16x8.extend_low_i8x16_s(second), scale1);
      const w3 = i16x8.mul(i16x8.extend_high_i8x16_s(second), scale1);
      high = i32x4.add(dot32(w0, w1, w2, w3, x), high);
      low = i32x4.add(dot32(w0, w1, w2, w3, x + 64), low);
      if (hasOffset(type)) {
        const offset = i32x4.splat(<i32>(offsets >> <u64>(unit << 3)) & 63);
        counted = i32x4.add(counted, i32x4.mul(v128.load(x, 128), offset));
      }
      if ((unit & (unitsOfSum(type) - 1)) == unitsOfSum(type) - 1) {
        highs = f64x2.add(highs, toDouble(high));
        lows = f64x2.add(lows, toDouble(low));
        high = i32x4.splat(0);
        low = i32x4.splat(0);
      }
    }
    sum = f64x2.add(sum, f64x2.mul(f64x2.add(f64x2.mul(highs, f64x2.splat(32768)), lows), f64x2.splat(<f64>scale)));
    if (hasOffset(type)) {
      const count = <f64>i32x4.extract_lane(counted, 0) * 32768 + <f64>i32x4.extract_lane(counted, 1);
      less += count * <f64>least;
    }
    row += blockBytes(type);
  }
  return f64x2.extract_lane(sum, 0) + f64x2.extract_lane(sum, 1) - less;
}

/**
 * Computes the scalar products of two rows of super-blocks with a split row, in lanes 0 and 1.
 *
 * All sums of a super-block are exact: q times its unit's scale takes 13 bits at most, x's parts 16, and as many products are
 * added up as an i32 holds: 64 · 945 · 2^15 in a lane of q4_K, 32 · 1953 · 2^15 of q5_K, 16 · 4096 · 2^15 of q6_K and
 * iq4_xs. Sums of those, and between super-blocks, are f64: the offsets may take nearly all of them away again.
 */
@inline export function dotSuper(type: i32, row0: usize, row1: usize, x: usize, blocks: i32): v128 {
  const sum = f64x2.replace_lane(f64x2.splat(superRow(type, row0, x, blocks)), 1, superRow(type, row1, x, blocks));
  return f32x4.demote_f64x2_zero(sum);
}

// Activations rounded to 8 bits: weights of q8_0 and q4_0 are not widened but masked, so that each is 256 times too
// large, or its x is stored that many times larger, and 32 of them cost four instructions.

/** Gives the bytes of a row of `blocks` rounded blocks. */
@inline export function roundedRowBytes(blocks: i32): usize {
  return <usize>(SPLIT_HEAD + blocks * ROUNDED_BLOCK);
}

/** Says whether products with rounded rows are summed in integers. */
@inline export function hasRounded(type: i32): bool {
  return type == Type.q8_0 || type == Type.q4_0;
}

/** The least scale, but 0, whose products with a weight's are no subnormal numbers, which would lose bits. */
const LEAST_SCALE: f32 = reinterpret<f32>((127 - 90) << 23);

/**
 * Rounds a row of f32 in place: each 32 neighbours become d·q with d = largest / 127 and q the integer nearest to x / d,
 * ties to even. A row with an infinity or a NaN stays as it is.
 *
 * @param to - {@link roundedRowBytes} bytes for the integers, as products with `type` read them, or 0. The row is
 *   marked where integers cannot represent it
 * @param x - f32, dense
 * @param units - of 32 elements
 */
export function roundRow(type: i32, to: usize, x: usize, units: i32): void {
  const magnitude = i32x4.splat(0x7fffffff), end = x + <usize>(units << 7);
  let most = i32x4.splat(0);
  for (let p = x; p < end; p += 16) most = i32x4.max_s(most, v128.and(v128.load(p), magnitude));
  const special = v128.any_true(i32x4.gt_s(most, i32x4.splat(0x7f7fffff)));
  if (to) store<i32>(to, special);
  if (special) return;
  let at = to + SPLIT_HEAD;
  for (; x < end; x += 128, at += ROUNDED_BLOCK) {
    most = i32x4.splat(0);
    for (let p: usize = 0; p < 128; p += 16) most = i32x4.max_s(most, v128.and(v128.load(x + p), magnitude));
    const d = reinterpret<f32>(max(
      max(i32x4.extract_lane(most, 0), i32x4.extract_lane(most, 1)),
      max(i32x4.extract_lane(most, 2), i32x4.extract_lane(most, 3)),
    )) / 127;
    if (d == 0) {
      memory.fill(x, 0, 128);
      if (to) memory.fill(at, 0, ROUNDED_BLOCK);
      continue;
    }
    const scale = f32x4.splat(d), highest = f32x4.splat(127), lowest = f32x4.splat(-127);
    let sums = i32x4.splat(0);
    for (let half: usize = 0; half < 2; half++) {
      const p = x + (half << 6);
      // It is beyond 127 only where d is subnormal and therefore inexact.
      const a = f32x4.pmax(f32x4.pmin(f32x4.nearest(f32x4.div(v128.load(p), scale)), highest), lowest);
      const b = f32x4.pmax(f32x4.pmin(f32x4.nearest(f32x4.div(v128.load(p, 16), scale)), highest), lowest);
      const c = f32x4.pmax(f32x4.pmin(f32x4.nearest(f32x4.div(v128.load(p, 32), scale)), highest), lowest);
      const e = f32x4.pmax(f32x4.pmin(f32x4.nearest(f32x4.div(v128.load(p, 48), scale)), highest), lowest);
      v128.store(p, f32x4.mul(a, scale));
      v128.store(p, f32x4.mul(b, scale), 16);
      v128.store(p, f32x4.mul(c, scale), 32);
      v128.store(p, f32x4.mul(e, scale), 48);
      if (!to) continue;
      const low = i16x8.narrow_i32x4_s(i32x4.trunc_sat_f32x4_s(a), i32x4.trunc_sat_f32x4_s(b));
      const high = i16x8.narrow_i32x4_s(i32x4.trunc_sat_f32x4_s(c), i32x4.trunc_sat_f32x4_s(e));
      const even = v128.shuffle<i16>(low, high, 0, 2, 4, 6, 8, 10, 12, 14);
      const odd = v128.shuffle<i16>(low, high, 1, 3, 5, 7, 9, 11, 13, 15);
      sums = i32x4.add(sums, i32x4.extadd_pairwise_i16x8_s(i16x8.add(even, odd)));
      // See weightPairs.
      const own = at + (half << 5);
      v128.store(own, type == Type.q4_0 ? i16x8.shl(even, half ? 4 : 8) : even);
      v128.store(own, type == Type.q4_0 && half ? i16x8.shl(odd, 8) : odd, 16);
    }
    if (!to) continue;
    store<i32>(at, type == Type.q4_0 ? sumOf(sums) * -2048 : 0, 64);
    store<f32>(at, d, 68);
    if (d < LEAST_SCALE) store<i32>(to, 1);
  }
}

/**
 * Eight weights of a block: the even ones of the first 16 (part 0), the odd ones (part 1), and those of the last 16.
 * Each times x as {@link roundRow} stores it is 256 times the product. q4_0's codes are not lessened by 8.
 */
@inline function weightPairs(type: i32, block: usize, part: i32): v128 {
  if (type == Type.q8_0) {
    const bytes = v128.load(block + <usize>((part >> 1) << 4), 2, 1);
    return part & 1 ? v128.and(bytes, i16x8.splat(-256)) : i16x8.shl(bytes, 8);
  }
  const bytes = v128.load(block, 2, 1);
  switch (part) {
    case 0: return v128.and(bytes, i16x8.splat(0x000f));
    case 1: return v128.and(bytes, i16x8.splat(0x0f00));
    case 2: return v128.and(bytes, i16x8.splat(0x00f0));
    default: return i16x8.shr_u(bytes, 12);
  }
}

/** Adds a block's products with a rounded one, 256-fold, in four sums. */
@inline function dotBlock(type: i32, block: usize, x0: v128, x1: v128, x2: v128, x3: v128): v128 {
  return i32x4.add(
    i32x4.add(i32x4.dot_i16x8_s(weightPairs(type, block, 0), x0), i32x4.dot_i16x8_s(weightPairs(type, block, 1), x1)),
    i32x4.add(i32x4.dot_i16x8_s(weightPairs(type, block, 2), x2), i32x4.dot_i16x8_s(weightPairs(type, block, 3), x3)),
  );
}

/**
 * Computes the scalar products of two rows of blocks of 32 with a rounded row, in lanes 0 and 1. Neither depends on the other
 * row. Integer sums of a block are exact, and so is their f32: 32 · 128 · 127 at most, times 256.
 */
@inline export function dotRounded(type: i32, row0: usize, row1: usize, x: usize, blocks: i32): v128 {
  let sum0 = f32x4.splat(0), sum1 = f32x4.splat(0);
  x += SPLIT_HEAD;
  for (let i = 0; i < blocks; i++) {
    const x0 = v128.load(x), x1 = v128.load(x, 16), x2 = v128.load(x, 32), x3 = v128.load(x, 48);
    const d = load<f32>(x, 68);
    let products0 = dotBlock(type, row0, x0, x1, x2, x3), products1 = dotBlock(type, row1, x0, x1, x2, x3);
    if (type == Type.q4_0) {
      const less = v128.load_zero<u32>(x + 64);
      products0 = i32x4.add(products0, less);
      products1 = i32x4.add(products1, less);
    }
    sum0 = f32x4.add(f32x4.mul(f32x4.convert_i32x4_s(products0), f32x4.splat(scale256(row0) * d)), sum0);
    sum1 = f32x4.add(f32x4.mul(f32x4.convert_i32x4_s(products1), f32x4.splat(scale256(row1) * d)), sum1);
    row0 += blockBytes(type);
    row1 += blockBytes(type);
    x += ROUNDED_BLOCK;
  }
  const pairs = f32x4.add(v128.shuffle<f32>(sum0, sum1, 0, 4, 2, 6), v128.shuffle<f32>(sum0, sum1, 1, 5, 3, 7));
  return f32x4.add(pairs, v128.shuffle<f32>(pairs, pairs, 2, 3, 2, 3));
}

/** The bytes of a packed block of NR rows: 16 pairs of weights of each, then the scales. */
export const PACKED_BLOCK: usize = NR * 68;

/** Packs a block of NR rows of weights for {@link multiplyRounded}: pair by pair, each of all rows. */
@inline function packBlock(type: i32, to: usize, row: usize, rowBytes: usize, rows: i32): void {
  for (let group = 0; group < NR; group += 4) {
    // A missing row repeats another one.
    const r0 = row + <usize>min(group, rows - 1) * rowBytes, r1 = row + <usize>min(group + 1, rows - 1) * rowBytes;
    const r2 = row + <usize>min(group + 2, rows - 1) * rowBytes, r3 = row + <usize>min(group + 3, rows - 1) * rowBytes;
    const at = place(to, group);
    storeTransposed(at, NR * 4, weightPairs(type, r0, 0), weightPairs(type, r1, 0), weightPairs(type, r2, 0), weightPairs(type, r3, 0));
    storeTransposed(at + 4 * NR * 4, NR * 4, weightPairs(type, r0, 1), weightPairs(type, r1, 1), weightPairs(type, r2, 1), weightPairs(type, r3, 1));
    storeTransposed(at + 8 * NR * 4, NR * 4, weightPairs(type, r0, 2), weightPairs(type, r1, 2), weightPairs(type, r2, 2), weightPairs(type, r3, 2));
    storeTransposed(at + 12 * NR * 4, NR * 4, weightPairs(type, r0, 3), weightPairs(type, r1, 3), weightPairs(type, r2, 3), weightPairs(type, r3, 3));
    store<f32>(at + 16 * NR * 4, scale256(r0));
    store<f32>(at + 16 * NR * 4, scale256(r1), 4);
    store<f32>(at + 16 * NR * 4, scale256(r2), 8);
    store<f32>(at + 16 * NR * 4, scale256(r3), 12);
  }
}

/** Packs blocks of up to NR rows of weights, in q8_0 or q4_0. */
export function packBlocks(type: i32, to: usize, row: usize, rowBytes: usize, rows: i32, blocks: i32): void {
  for (; blocks > 0; blocks--) {
    if (type == Type.q8_0) packBlock(Type.q8_0, to, row, rowBytes, rows);
    else packBlock(Type.q4_0, to, row, rowBytes, rows);
    to += PACKED_BLOCK;
    row += blockBytes(type);
  }
}

/** Adds a block's sums, times both scales, to a row of C. */
@inline function addScaled(c: usize, x: usize, w: usize, low: v128, high: v128): void {
  const d = v128.load32_splat(x, 68);
  addTo(
    c,
    f32x4.mul(f32x4.convert_i32x4_s(low), f32x4.mul(v128.load(w), d)),
    f32x4.mul(f32x4.convert_i32x4_s(high), f32x4.mul(v128.load(w, 16), d)),
  );
}

/**
 * Adds the products of ROUNDED_ROWS rows of rounded blocks with packed ones to a tile of C.
 *
 * @param c - f32, `step` bytes from row to row, NR columns dense
 * @param x0 - a block of the first row; x1, x2, x3 of the others
 * @param w - {@link PACKED_BLOCK} bytes each
 */
export function multiplyRounded(
  c: usize, step: usize, x0: usize, x1: usize, x2: usize, x3: usize, w: usize, blocks: i32,
): void {
  for (; blocks > 0; blocks--) {
    let c00 = v128.load32_splat(x0, 64), c10 = v128.load32_splat(x1, 64);
    let c20 = v128.load32_splat(x2, 64), c30 = v128.load32_splat(x3, 64);
    let c01 = c00, c11 = c10, c21 = c20, c31 = c30;
    for (let p: usize = 0; p < 64; p += 4) {
      const w0 = v128.load(w), w1 = v128.load(w, 16);
      let x = v128.load32_splat(x0 + p);
      c00 = i32x4.add(i32x4.dot_i16x8_s(x, w0), c00);
      c01 = i32x4.add(i32x4.dot_i16x8_s(x, w1), c01);
      x = v128.load32_splat(x1 + p);
      c10 = i32x4.add(i32x4.dot_i16x8_s(x, w0), c10);
      c11 = i32x4.add(i32x4.dot_i16x8_s(x, w1), c11);
      x = v128.load32_splat(x2 + p);
      c20 = i32x4.add(i32x4.dot_i16x8_s(x, w0), c20);
      c21 = i32x4.add(i32x4.dot_i16x8_s(x, w1), c21);
      x = v128.load32_splat(x3 + p);
      c30 = i32x4.add(i32x4.dot_i16x8_s(x, w0), c30);
      c31 = i32x4.add(i32x4.dot_i16x8_s(x, w1), c31);
      w += NR * 4;
    }
    addScaled(c, x0, w, c00, c01);
    addScaled(c + step, x1, w, c10, c11);
    addScaled(c + 2 * step, x2, w, c20, c21);
    addScaled(c + 3 * step, x3, w, c30, c31);
    w += NR * 4;
    x0 += ROUNDED_BLOCK;
    x1 += ROUNDED_BLOCK;
    x2 += ROUNDED_BLOCK;
    x3 += ROUNDED_BLOCK;
  }
}
