/**
 * Reads ggml's weight blocks, as they lie in a GGUF file. All formats are read as units of 32 weights: a block of 32 is one
 * unit, a super-block of 256 is eight. A weight of a unit is scale · q − offset, with q a signed byte; only q4_K and
 * q5_K have an offset. The layouts are in ../../../core/block-formats.ts.
 *
 * Where `type` and `part` are constants, the compiler drops all other formats.
 */
import { Type } from '../abi';
import { load1 } from './lanes';

/** Gives the bytes of a block. */
@inline export function blockBytes(type: i32): usize {
  switch (type) {
    case Type.q8_0: return 34;
    case Type.q4_K: return 144;
    case Type.q5_K: return 176;
    case Type.q6_K: return 210;
    case Type.iq4_xs: return 136;
    case Type.mxfp4: return 17;
    default: return 18; // q4_0, iq4_nl
  }
}

/** Gives the shift from weights to blocks. */
@inline export function blockShift(type: i32): i32 {
  return isSuper(type) ? 8 : 5;
}

/** Says whether blocks have 256 weights. */
@inline export function isSuper(type: i32): bool {
  return type == Type.q4_K || type == Type.q5_K || type == Type.q6_K || type == Type.iq4_xs;
}

/** Says whether weights have an offset. */
@inline export function hasOffset(type: i32): bool {
  return type == Type.q4_K || type == Type.q5_K;
}

/** The values of the 16 codes of IQ4, then twice the values of E2M1, whose code 8 is plain zero in ggml. */
const CODES: usize = memory.data<i8>([
  -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113,
  0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12,
]);

/** Looks up the values of 16 codes below 16. */
@inline function valuesOf(type: i32, codes: v128): v128 {
  const values = v128.load(CODES + (type == Type.mxfp4 ? 16 : 0));
  return ASC_FEATURE_RELAXED_SIMD ? i8x16.relaxed_swizzle(values, codes) : i8x16.swizzle(values, codes);
}

/** Takes the low halves (even part) or the high halves of 16 bytes. */
@inline function halves(bytes: v128, part: i32): v128 {
  return v128.and(part ? i16x8.shr_u(bytes, 4) : bytes, i8x16.splat(15));
}

/** Reads q of weights 0–15 (part 0) or 16–31 (part 1) of a unit, as signed bytes. */
@inline export function weights(type: i32, block: usize, unit: i32, part: i32): v128 {
  const half = <usize>(part << 4);
  switch (type) {
    case Type.q8_0: return v128.load(block + half, 2, 1);
    case Type.iq4_nl: return valuesOf(type, halves(v128.load(block, 2, 1), part));
    case Type.mxfp4: return valuesOf(type, halves(v128.load(block, 1, 1), part));
    case Type.iq4_xs: return valuesOf(type, halves(v128.load(block + <usize>(unit << 4), 8, 1), part));
    case Type.q4_K: return halves(v128.load(block + half + <usize>((unit >> 1) << 5), 16, 1), unit & 1);
    case Type.q5_K: {
      const low = halves(v128.load(block + half + <usize>((unit >> 1) << 5), 48, 1), unit & 1);
      const fifth = v128.and(i64x2.shr_u(v128.load(block + half, 16, 1), unit), i8x16.splat(1));
      return v128.or(low, i16x8.shl(fifth, 4));
    }
    case Type.q6_K: {
      const low = halves(v128.load(block + half + <usize>(((unit & 4) << 4) + ((unit & 1) << 5)), 0, 1), unit & 2);
      const pairs = v128.load(block + half + <usize>((unit & 4) << 3), 128, 1);
      const high = v128.and(i64x2.shr_u(pairs, (unit & 3) << 1), i8x16.splat(3));
      return i8x16.sub(v128.or(low, i16x8.shl(high, 4)), i8x16.splat(32));
    }
    default: return i8x16.sub(halves(v128.load(block, 2, 1), part), i8x16.splat(8));
  }
}

/** The factor 2^112, by which the bits of an f16 in the places of an f32 are too small: its exponents are 112 less. */
const PLACED: f32 = reinterpret<f32>((127 + 112) << 23);

/** Loads an f16 times `factor` / 2^112 exactly, with five instructions where it is finite; load1 takes twenty. */
@inline function half(p: usize, factor: f32 = PLACED): f32 {
  const bits = <i32>load<i16>(p);
  if ((bits & 0x7c00) == 0x7c00) return load1<u16>(p);
  return reinterpret<f32>((bits << 13) & 0x8fffe000) * factor;
}

/** Reads the scale of a block of q8_0 or q4_0, divided by 256. */
@inline export function scale256(block: usize): f32 {
  return half(block, PLACED / 256);
}

/** Reads the scale of a block, before those of its units. */
@inline export function blockScale(type: i32, block: usize): f32 {
  if (type == Type.q6_K) return half(block + 208);
  if (type != Type.mxfp4) return half(block);
  // This is 2^(e - 128), the power of E8M0 for half the values; below e = 2 it is a subnormal number.
  const e = <u32>load<u8>(block);
  return reinterpret<f32>(e < 2 ? 0x00200000 << e : (e - 1) << 23);
}

/** Reads dmin, the factor of a unit's offset. */
@inline export function offsetScale(block: usize): f32 {
  return half(block + 2);
}

/** Reads the eight scales of q4_K and q5_K, of six bits, in eight bytes; or their eight minimums. */
@inline export function sixBits(block: usize, offsets: bool): u64 {
  const own = load<u32>(block + (offsets ? 8 : 4)), last = load<u32>(block, 12);
  const low = (offsets ? last >> 4 : last) & 0x0f0f0f0f;
  return <u64>(own & 0x3f3f3f3f) | ((<u64>(low | ((own >> 2) & 0x30303030))) << 32);
}

/**
 * Reads the scale of part 0 or 1 of a unit of a super-block, an integer.
 *
 * @param six - {@link sixBits} for q4_K and q5_K
 */
@inline export function unitScale(type: i32, block: usize, unit: i32, part: i32, six: u64): i32 {
  if (hasOffset(type)) return <i32>(six >> <u64>(unit << 3)) & 63;
  if (type == Type.q6_K) return load<i8>(block + <usize>((unit << 1) + part), 192);
  const low = (<i32>load<u8>(block + <usize>(unit >> 1), 4) >> ((unit & 1) << 2)) & 15;
  const high = (<i32>load<u16>(block, 2) >> (unit << 1)) & 3;
  return (low | (high << 4)) - 32;
}
