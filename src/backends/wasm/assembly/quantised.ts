/**
 * ggml's q8_0 and q4_0 weight blocks, as they lie in a GGUF file: 32 weights with one f16 scale.
 *
 * q8_0: 34 bytes, the scale, then 32 signed bytes; q4_0: 18 bytes, the scale, then 16 bytes: weight j in the low half of byte j,
 * weight j + 16 in its high half, each minus 8. Weights are widened to f32, exactly; x stays f32 (ggml rounds it to 8 bits).
 * @see ggml-org/ggml@d99724f src/ggml-quants.c, dequantize_row_q8_0, dequantize_row_q4_0
 */
import { load1, madd } from './lanes';

/** The block types, numbered on from the dense ones in lanes.ts. */
export const Q8_0 = 3;
export const Q4_0 = 4;

/** Bytes of a block of 32 weights. */
// @ts-ignore: decorator
@inline export function blockBytes(type: i32): usize {
  return type == Q8_0 ? 34 : 18;
}

/** Lanes 0–3 (part 0) to 12–15 (part 3) of 16 signed bytes, as f32. */
// @ts-ignore: decorator
@inline function quarter(bytes: v128, part: i32): v128 {
  const half = part < 2 ? i16x8.extend_low_i8x16_s(bytes) : i16x8.extend_high_i8x16_s(bytes);
  return f32x4.convert_i32x4_s(part & 1 ? i32x4.extend_high_i16x8_s(half) : i32x4.extend_low_i16x8_s(half));
}

/** Weights 0–15 (first) or 16–31 of a block as signed bytes. */
// @ts-ignore: decorator
@inline function weights(type: i32, block: usize, first: bool): v128 {
  if (type == Q8_0) return first ? v128.load(block, 2, 1) : v128.load(block, 18, 1);
  const both = v128.load(block, 2, 1);
  return i8x16.sub(first ? v128.and(both, i8x16.splat(15)) : i8x16.shr_u(both, 4), i8x16.splat(8));
}

/** Adds 16 products to a sum. */
// @ts-ignore: decorator
@inline function dot16(bytes: v128, x: usize, sum: v128): v128 {
  sum = madd(quarter(bytes, 0), v128.load(x), sum);
  sum = madd(quarter(bytes, 1), v128.load(x, 16), sum);
  sum = madd(quarter(bytes, 2), v128.load(x, 32), sum);
  return madd(quarter(bytes, 3), v128.load(x, 48), sum);
}

/** The scalar product of one row of `blocks` blocks with f32 `x`. */
// @ts-ignore: decorator
@inline export function dotBlocks(type: i32, row: usize, x: usize, blocks: i32): f32 {
  let sum0 = f32x4.splat(0), sum1 = f32x4.splat(0);
  for (let i = 0; i < blocks; i++) {
    const scale = f32x4.splat(load1<u16>(row));
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

/** 16 signed bytes times a scale, as dense f32. */
// @ts-ignore: decorator
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
      const scale = f32x4.splat(load1<u16>(row));
      store16(to, weights(type, row, true), scale);
      store16(to + 64, weights(type, row, false), scale);
      to += 128;
      row += blockBytes(type);
    }
    return;
  }
  for (let i = 0; i < blocks; i++) {
    const scale = load1<u16>(row);
    for (let j = 0; j < 32; j++) {
      let q: i32;
      if (type == Q8_0) q = load<i8>(row + 2 + <usize>j);
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
