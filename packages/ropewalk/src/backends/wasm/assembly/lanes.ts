/**
 * Converts four f32 lanes from and to the storage types, and computes the exponential.
 *
 * Kernels are generic over the storage type T: f32 is f32, u16 holds f16, i16 holds bf16, i8 is i8. All arithmetic is
 * f32; a value is rounded to nearest even once, when it is stored. Pointers are byte addresses; no alignment is assumed.
 */
import { Type } from '../abi';
import { place } from './args';

/** The bytes of one element of T. */
@inline export function bytes<T>(): usize {
  return sizeof<T>();
}

/**
 * The constants of the inner loops, which are read from memory. V8 builds a vector constant at every use, with three instructions,
 * and never keeps it in a register; a broadcast from memory is one instruction. Measured: f16 → f32 → f16 takes 0.7 ns
 * an element with splats.
 */
const TABLE: usize = memory.data<u32>([
  0x7fff7fff, 0x7bff7bff, 0x7f807f80, 0x77800000, 0x7fffffff, 0x47800000,
  0x7f800000, 0x38800000, 0x06800000, 0x0001c400, 0x00000001, 0x00007fff,
  0xc2d20000, 0x3fb8aa3b, 0x4b400000, 0xbf318000, 0x395e8083, 0x39506967,
  0x3ab743ce, 0x3c088908, 0x3d2aa9c1, 0x3e2aaaaa, 0x3f000000, 0x3f800000,
  0x0000009f, 0x2f800000, 0x80000000, 0x8fff8fff, 0xbd5d0dd1, 0x3e088889,
  0xbeaaaaab, 0x3e000000, 0xb0001fff, 0x84008400, 0x77ff77ff, 0xf7fef7fe,
]);
// These are their places in the table, in bytes.
const ABS16: usize = 0; // f16: all but the sign, twice
const MAX16: usize = 4; // f16: the largest finite, twice
const EXPONENT16: usize = 8; // the upper half of f32's infinity, twice
const SCALE: usize = 12; // 2^112
const ABS: usize = 16; // f32: all but the sign
const TOP: usize = 20; // 2^16
const EXPONENT: usize = 24; // f32's exponent bits
const LEAST: usize = 28; // 2^-14, the least normal f16
const RAISE: usize = 32; // 13 more in the exponent
const REBASE: usize = 36; // 127 - 14 in the place of f16's exponent
const ONE_BIT: usize = 40;
const HALF_BF16: usize = 44; // just under half of the last place of a bf16
const FLOOR: usize = 48; // -105: e^x rounds to 0 there
const LOG2E: usize = 52;
const ROUNDER: usize = 56; // 1.5 · 2^23
const MINUS_LN2_HIGH: usize = 60;
const MINUS_LN2_LOW: usize = 64;
const P0: usize = 68;
const P1: usize = 72;
const P2: usize = 76;
const P3: usize = 80;
const P4: usize = 84;
const P5: usize = 88;
const ONE: usize = 92;
const BIAS: usize = 96; // 127 + 32
const UNBIAS: usize = 100; // 2^-32
const SIGN: usize = 104;
const PLACES16: usize = 108; // f16, shifted right by 3: the sign, and all but its copies, twice
const T2: usize = 112; // tanh's series: -17/315, 2/15, -1/3
const T1: usize = 116;
const T0: usize = 120;
const EIGHTH: usize = 124;
// Twice each, for 16-bit lanes.
const REBASE16: usize = 128;
const LEAST16: usize = 132; // the least normal f16, with its sign bit set
const SPAN16: usize = 136; // from there to the largest
const TWICE_MAX16: usize = 140;

/** Reads a constant into all lanes. */
@inline function constant(offset: usize): v128 {
  return v128.load_splat<u32>(TABLE + offset);
}

/** Computes a·b + c, fused with relaxed SIMD, else with two roundings. The rotation, whose bits are promised, never uses it. */
@inline export function madd(a: v128, b: v128, c: v128): v128 {
  if (ASC_FEATURE_RELAXED_SIMD) return f32x4.relaxed_madd(a, b, c);
  return f32x4.add(f32x4.mul(a, b), c);
}

// f16 → f32, exactly. Magnitude bits that are shifted into place and read as an f32 are 2^112 times too small, also for
// subnormals; the product is exact. The sign, and the exponent of infinities and NaN, come from highF16, for eight lanes.

/** Gives the sign, and f32's largest exponent where f16's is largest, as the upper halves of eight f32. */
@inline function highF16(raw: v128, magnitude: v128): v128 {
  return v128.or(v128.xor(raw, magnitude), v128.and(i16x8.gt_s(magnitude, constant(MAX16)), constant(EXPONENT16)));
}

/** Widens lanes 0–3 of eight 16-bit lanes to 32-bit lanes, with zeros above. */
@inline function lowToUpper(x: v128): v128 {
  return v128.shuffle<u16>(i16x8.splat(0), x, 0, 8, 1, 9, 2, 10, 3, 11);
}

/** Widens lanes 4–7 likewise. */
@inline function highToUpper(x: v128): v128 {
  return v128.shuffle<u16>(i16x8.splat(0), x, 4, 12, 5, 13, 6, 14, 7, 15);
}

/** Loads eight elements of 8 or 16 bits for {@link widenLow} and {@link widenHigh}; f32 has no such form. */
@inline export function loadEight<T>(p: usize): v128 {
  return sizeof<T>() == 1 ? v128.load8x8_s(p) : v128.load(p);
}

/** Widens the first four of eight elements from {@link loadEight} to f32. */
@inline export function widenLow<T>(raw: v128): v128 {
  if (sizeof<T>() == 1) return f32x4.convert_i32x4_s(i32x4.extend_low_i16x8_s(raw));
  if (isSigned<T>()) return lowToUpper(raw);
  const magnitude = v128.and(raw, constant(ABS16));
  const value = f32x4.mul(i32x4.shr_u(lowToUpper(magnitude), 3), constant(SCALE));
  return v128.or(value, lowToUpper(highF16(raw, magnitude)));
}

/** Widens the last four of eight elements from {@link loadEight} to f32. */
@inline export function widenHigh<T>(raw: v128): v128 {
  if (sizeof<T>() == 1) return f32x4.convert_i32x4_s(i32x4.extend_high_i16x8_s(raw));
  if (isSigned<T>()) return highToUpper(raw);
  const magnitude = v128.and(raw, constant(ABS16));
  const value = f32x4.mul(i32x4.shr_u(highToUpper(magnitude), 3), constant(SCALE));
  return v128.or(value, highToUpper(highF16(raw, magnitude)));
}

// f16 → f32 for eight finite numbers: the upper and lower halves of their f32 come from 16-bit lanes, with two
// shifts and a mask for all eight. A loop loads the three constants first, so that they stay in registers.

/** The mask of all bits but the sign. */
@inline export function absF16(): v128 {
  return constant(ABS16);
}

/** The mask of the valid bits after a shift by 3: the sign and the rest, without copies of the sign. */
@inline export function placesF16(): v128 {
  return constant(PLACES16);
}

/** The factor 2^112, by which the shifted bits are too small. */
@inline export function scaleF16(): v128 {
  return constant(SCALE);
}

/** Says whether f16 are all finite, given their largest magnitudes, as integers, in eight lanes. */
@inline export function allNumbersF16(largest: v128): bool {
  return !v128.any_true(i16x8.gt_s(largest, constant(MAX16)));
}

/** Gives the upper halves of eight f32, before {@link scaleF16}. */
@inline export function upperF16(raw: v128, places: v128): v128 {
  return v128.and(i16x8.shr_s(raw, 3), places);
}

/** Gives the lower halves. */
@inline export function lowerF16(raw: v128): v128 {
  return i16x8.shl(raw, 13);
}

/** Joins the first four f32 of eight halves each. */
@inline export function firstFour(lower: v128, upper: v128): v128 {
  return v128.shuffle<u16>(lower, upper, 0, 8, 1, 9, 2, 10, 3, 11);
}

/** Joins the last four. */
@inline export function lastFour(lower: v128, upper: v128): v128 {
  return v128.shuffle<u16>(lower, upper, 4, 12, 5, 13, 6, 14, 7, 15);
}

/**
 * f32 without NaN → f16 bits in the low half of each lane, to nearest even.
 *
 * Adding 2^13 times the value's power of two makes the f32 adder round at f16's last place. Below 2^-14 the addend
 * stays the same, which gives subnormals. From 2^16 on the result is infinity, whose bits come out of 2^16 itself.
 */
@inline function narrowF16(x: v128): v128 {
  const magnitude = v128.and(x, constant(ABS));
  const finite = i32x4.min_s(magnitude, constant(TOP));
  const power = i32x4.max_s(v128.and(finite, constant(EXPONENT)), constant(LEAST));
  const addend = i32x4.add(power, constant(RAISE));
  // With its leading bit, which adds one to the exponent.
  const significand = i32x4.sub(f32x4.add(finite, addend), addend);
  const bits = i32x4.sub(i32x4.add(significand, i32x4.shr_u(power, 13)), constant(REBASE));
  return v128.or(bits, i32x4.shr_u(v128.xor(x, magnitude), 16));
}

/** f32 without NaN → bf16 bits in the low half of each lane, to nearest even. */
@inline function narrowBf16(x: v128): v128 {
  const odd = v128.and(i32x4.shr_u(x, 16), constant(ONE_BIT));
  return i32x4.shr_u(i32x4.add(i32x4.add(x, constant(HALF_BF16)), odd), 16);
}

/** f32, with NaN → bits of T in the low half of each lane: a NaN becomes the quiet one and keeps its sign. */
@inline function narrow<T>(x: v128): v128 {
  const nan = v128.or(v128.and(i32x4.shr_u(x, 16), i32x4.splat(0x8000)), i32x4.splat(isSigned<T>() ? 0x7fc0 : 0x7e00));
  return v128.bitselect(isSigned<T>() ? narrowBf16(x) : narrowF16(x), nan, f32x4.eq(x, x));
}

/** Loads four neighbours as f32. */
@inline export function load4<T>(p: usize): v128 {
  if (isFloat<T>()) return v128.load(p);
  if (sizeof<T>() == 1) return widenLow<T>(i16x8.extend_low_i8x16_s(v128.load_zero<u32>(p)));
  return widenLow<T>(v128.load_zero<u64>(p));
}

/** Stores four f32 lanes, each rounded once. */
@inline export function store4<T>(p: usize, x: v128): void {
  if (isFloat<T>()) {
    v128.store(p, x);
    return;
  }
  const bits = narrow<T>(x);
  v128.store_lane<u64>(p, i16x8.narrow_i32x4_u(bits, bits), 0);
}

/** Eight f32 lanes without NaN as eight elements of a 16-bit T. */
@inline function pack<T>(low: v128, high: v128): v128 {
  if (isSigned<T>()) return i16x8.narrow_i32x4_u(narrowBf16(low), narrowBf16(high));
  return i16x8.narrow_i32x4_u(narrowF16(low), narrowF16(high));
}

/** Stores eight f32 lanes, each rounded once. Only a NaN costs more: if the sum is no NaN, no lane is. */
@inline export function store8<T>(p: usize, low: v128, high: v128): void {
  if (isFloat<T>()) {
    v128.store(p, low);
    v128.store(p, high, 16);
    return;
  }
  const sum = f32x4.add(low, high);
  if (v128.any_true(f32x4.ne(sum, sum))) v128.store(p, i16x8.narrow_i32x4_u(narrow<T>(low), narrow<T>(high)));
  else v128.store(p, pack<T>(low, high));
}

/** {@link store8} at two places, for a 16-bit T, with one look for NaN. */
@inline export function storeTwo8<T>(p: usize, low: v128, high: v128, q: usize, low2: v128, high2: v128): void {
  const sum = f32x4.add(f32x4.add(low, high), f32x4.add(low2, high2));
  if (v128.any_true(f32x4.ne(sum, sum))) {
    v128.store(p, i16x8.narrow_i32x4_u(narrow<T>(low), narrow<T>(high)));
    v128.store(q, i16x8.narrow_i32x4_u(narrow<T>(low2), narrow<T>(high2)));
  } else {
    v128.store(p, pack<T>(low, high));
    v128.store(q, pack<T>(low2, high2));
  }
}

/**
 * The number that {@link roundF16} adds to twice an f32: −112 in the exponent, just under half of f16's last place, and
 * the bit of f16's sign.
 */
@inline export function rebaseF16(): v128 {
  return constant(REBASE16);
}

/** Rounds four lanes of {@link roundF16}, as 32-bit lanes. */
@inline function roundFourF16(x: v128, rebase: v128): v128 {
  // −1 where the last place is odd: with it, a tie goes up. A carry runs into the exponent, as it must.
  const odd = i32x4.shr_s(i32x4.shl(x, 18), 31);
  return i32x4.shr_u(i32x4.sub(i32x4.add(i32x4.add(x, x), rebase), odd), 14);
}

/**
 * Rounds eight f32 to f16 bits, to nearest even, with the sign bit always set; {@link signF16} corrects it. Only normal f16
 * are right: {@link uncommonF16} says whether there are others.
 */
@inline export function roundF16(low: v128, high: v128, rebase: v128): v128 {
  return i16x8.narrow_i32x4_u(roundFourF16(low, rebase), roundFourF16(high, rebase));
}

/** Says whether any of two results of {@link roundF16} is no normal f16, or any f16 of `a` and `b` is not finite. */
@inline export function uncommonF16(rounded: v128, rounded2: v128, a: v128, b: v128): bool {
  const least = constant(LEAST16);
  const result = i16x8.max_u(i16x8.sub(rounded, least), i16x8.sub(rounded2, least));
  const input = i16x8.max_u(i16x8.add(a, a), i16x8.add(b, b));
  return v128.any_true(v128.or(i16x8.sub_sat_u(result, constant(SPAN16)), i16x8.sub_sat_u(input, constant(TWICE_MAX16))));
}

/** Gives the results of {@link roundF16} the signs of the rounded numbers. */
@inline export function signF16(rounded: v128, low: v128, high: v128): v128 {
  // Saturated to 16 bits, a positive number has a last bit, a negative one has none.
  return v128.xor(rounded, i16x8.shl(i16x8.narrow_i32x4_s(low, high), 15));
}

/** Loads one element as f32, by the same arithmetic as four. */
@inline export function load1<T>(p: usize): f32 {
  if (isFloat<T>()) return load<f32>(p);
  if (sizeof<T>() == 1) return <f32>load<i8>(p);
  if (isSigned<T>()) return reinterpret<f32>(<i32>load<u16>(p) << 16);
  return f32x4.extract_lane(widenLow<T>(i16x8.splat(load<u16>(p))), 0);
}

/** Stores one f32, rounded once, by the same arithmetic as four. */
@inline export function store1<T>(p: usize, x: f32): void {
  if (isFloat<T>()) {
    store<f32>(p, x);
    return;
  }
  store<u16>(p, <u16>i32x4.extract_lane(narrow<T>(f32x4.splat(x)), 0));
}

/**
 * Reads n elements, `stride` elements apart, as dense f32.
 *
 * @param to - f32 `[n]`; no overlap with `from`
 */
export function readRow<T>(to: usize, from: usize, n: i32, stride: i32): void {
  let i = 0;
  if (stride == 1) {
    for (; i + 8 <= n; i += 8) {
      const at = from + <usize>i * bytes<T>(), raw = isFloat<T>() ? v128.load(at) : loadEight<T>(at);
      v128.store(place(to, i), isFloat<T>() ? raw : widenLow<T>(raw));
      v128.store(place(to, i), isFloat<T>() ? v128.load(at, 16) : widenHigh<T>(raw), 16);
    }
  }
  for (; i < n; i++) store<f32>(place(to, i), load1<T>(from + <usize>(i * stride) * bytes<T>()));
}

/** Writes n dense f32 values as T, `stride` elements apart. */
export function writeRow<T>(to: usize, from: usize, n: i32, stride: i32): void {
  let i = 0;
  if (stride == 1) {
    for (; i + 8 <= n; i += 8) {
      store8<T>(to + <usize>i * bytes<T>(), v128.load(place(from, i)), v128.load(place(from, i), 16));
    }
  }
  for (; i < n; i++) store1<T>(to + <usize>(i * stride) * bytes<T>(), load<f32>(place(from, i)));
}

/**
 * f32, with NaN → the bits of an 8-bit float in the low byte of each lane, saturated. It rounds as {@link narrowF16}
 * does.
 *
 * @param fraction - the bits of the fraction
 * @param least - the exponent of the least normal number, biased as f32's
 */
function narrowFloat8(x: v128, fraction: i32, least: i32, largest: f32, nan: i32): v128 {
  const magnitude = v128.and(x, constant(ABS));
  const finite = i32x4.min_s(magnitude, f32x4.splat(largest));
  const power = i32x4.max_s(v128.and(finite, constant(EXPONENT)), i32x4.splat(least << 23));
  const addend = i32x4.add(power, i32x4.splat((23 - fraction) << 23));
  const significand = i32x4.sub(f32x4.add(finite, addend), addend);
  const bits = i32x4.sub(i32x4.add(significand, i32x4.shr_u(power, 23 - fraction)), i32x4.splat(least << fraction));
  return v128.or(v128.bitselect(bits, i32x4.splat(nan), f32x4.eq(x, x)), i32x4.shr_u(v128.xor(x, magnitude), 24));
}

/** f32, with NaN → an i8 in the low byte of each lane, saturated; a NaN is 0. */
function narrowI8(x: v128): v128 {
  const bounded = f32x4.pmin(f32x4.pmax(x, f32x4.splat(-128)), f32x4.splat(127));
  return v128.and(v128.and(f32x4.add(bounded, constant(ROUNDER)), f32x4.eq(x, x)), i32x4.splat(0xff));
}

/** Calls {@link narrowI8} or {@link narrowFloat8}, by the type. */
function narrow8(type: i32, x: v128): v128 {
  if (type == Type.i8) return narrowI8(x);
  return type == Type.f8_e4m3 ? narrowFloat8(x, 3, 127 - 6, 448, 0x7f) : narrowFloat8(x, 2, 127 - 14, 57344, 0x7e);
}

/** Does {@link writeRow} for an 8-bit type. */
function writeRow8(type: i32, to: usize, from: usize, n: i32, stride: i32): void {
  let i = 0;
  for (; stride == 1 && i + 4 <= n; i += 4) {
    const bits = narrow8(type, v128.load(place(from, i))), pairs = i16x8.narrow_i32x4_u(bits, bits);
    v128.store_lane<u32>(to + i, i8x16.narrow_i16x8_u(pairs, pairs), 0);
  }
  for (; i < n; i++) {
    store<u8>(to + <usize>(i * stride), <u8>i32x4.extract_lane(narrow8(type, v128.load_splat<f32>(place(from, i))), 0));
  }
}

/** Converts 8-bit floats, the low bytes of eight lanes, to f16; see {@link readHalves}. */
@inline function halvesOf(type: i32, raw: v128): v128 {
  const bits = i16x8.shl(raw, 8);
  if (type == Type.f8_e5m2) return bits;
  const magnitude = v128.and(raw, i16x8.splat(0x7f));
  const nan = v128.and(i16x8.eq(magnitude, i16x8.splat(0x7f)), i16x8.splat(0x7c00));
  return v128.or(v128.or(v128.and(bits, i16x8.splat(-0x8000)), i16x8.shl(magnitude, 7)), nan);
}

/**
 * Reads n 8-bit floats, `stride` elements apart, as dense f16. Those in f8_e4m3 are 2^8 times too small: with one bit of
 * the exponent less, their bits fit where they are.
 *
 * @param to - f16 `[n]`
 */
export function readHalves(type: i32, to: usize, from: usize, n: i32, stride: i32): void {
  let i = 0;
  for (; stride == 1 && i + 8 <= n; i += 8) {
    v128.store(to + ((<usize>i) << 1), halvesOf(type, v128.load8x8_u(from + i)));
  }
  for (; i < n; i++) {
    const raw = i16x8.splat(load<u8>(from + <usize>(i * stride)));
    store<u16>(to + ((<usize>i) << 1), i16x8.extract_lane_u(halvesOf(type, raw), 0));
  }
}

/** Does {@link readRow} for a type that is known only at run time; the only 8-bit type is i8. */
export function readRowOf(type: i32, to: usize, from: usize, n: i32, stride: i32): void {
  if (type == Type.f32) readRow<f32>(to, from, n, stride);
  else if (type == Type.f16) readRow<u16>(to, from, n, stride);
  else if (type == Type.bf16) readRow<i16>(to, from, n, stride);
  else readRow<i8>(to, from, n, stride);
}

/** Does {@link writeRow} for a type that is known only at run time. */
export function writeRowOf(type: i32, to: usize, from: usize, n: i32, stride: i32): void {
  if (type == Type.f32) writeRow<f32>(to, from, n, stride);
  else if (type == Type.f16) writeRow<u16>(to, from, n, stride);
  else if (type == Type.bf16) writeRow<i16>(to, from, n, stride);
  else writeRow8(type, to, from, n, stride);
}

/** Does {@link load1} for a type of 16 or 32 bits that is known only at run time. */
@inline export function load1Of(type: i32, p: usize): f32 {
  return type == Type.f32 ? load1<f32>(p) : type == Type.f16 ? load1<u16>(p) : load1<i16>(p);
}

/** Does {@link store1} for a type of 16 or 32 bits that is known only at run time. */
@inline export function store1Of(type: i32, p: usize, value: f32): void {
  if (type == Type.f32) store1<f32>(p, value);
  else if (type == Type.f16) store1<u16>(p, value);
  else store1<i16>(p, value);
}

/** Gives the bytes of one element of a type that is known only at run time. */
@inline export function bytesOf(type: i32): usize {
  return type == Type.f32 ? 4 : type <= Type.bf16 ? 2 : 1;
}

/** n of x = n·ln 2 + r with |r| <= ln 2 / 2, as an integer in the low bits of 1.5·2^23 + n. */
@inline function powerOf(x: v128): v128 {
  return madd(x, constant(LOG2E), constant(ROUNDER));
}

/** e^r: ln 2 has two parts, so that n·high is exact; the polynomial is a minimax fit of (e^r - 1 - r) / r² (Cephes expf). */
@inline function expRest4(x: v128, shifted: v128): v128 {
  const n = f32x4.sub(shifted, constant(ROUNDER));
  const r = madd(n, constant(MINUS_LN2_LOW), madd(n, constant(MINUS_LN2_HIGH), x));
  let p = madd(constant(P0), r, constant(P1));
  p = madd(p, r, constant(P2));
  p = madd(p, r, constant(P3));
  p = madd(p, r, constant(P4));
  p = madd(p, r, constant(P5));
  return f32x4.add(madd(f32x4.mul(r, r), p, r), constant(ONE));
}

/**
 * Computes e^x for x <= 0 in four lanes, within 2 ulp down to the subnormals (packages/ropewalk/test/backends/cpu-exponential.slow.test.ts).
 *
 * Adding 1.5·2^23 rounds to an integer and leaves it in the low bits: WebAssembly's own nearest and trunc_sat cost a
 * dozen instructions on x86. 2^n is computed as 2^(n + 32)·2^-32, so that subnormal results round once.
 */
@inline export function expNonPositive4(value: v128): v128 {
  const x = f32x4.pmax(value, constant(FLOOR)); // pmax keeps a NaN in its first place
  const shifted = powerOf(x);
  const y = expRest4(x, shifted);
  // The shift drops all but the low bits, which hold n.
  const power = i32x4.shl(i32x4.add(shifted, constant(BIAS)), 23);
  return f32x4.mul(f32x4.mul(y, power), constant(UNBIAS));
}

/** Computes the first two lanes of a·b·c·y·2^n in f64. */
@inline function productTwo(a: v128, b: v128, c: v128, y: v128, n: v128): v128 {
  const power = i64x2.shl(i64x2.add(i64x2.extend_low_i32x4_s(n), i64x2.splat(1023)), 52);
  const ab = f64x2.mul(f64x2.promote_low_f32x4(a), f64x2.promote_low_f32x4(b));
  const cy = f64x2.mul(f64x2.promote_low_f32x4(c), f64x2.promote_low_f32x4(y));
  return f32x4.demote_f64x2_zero(f64x2.mul(ab, f64x2.mul(cy, power)));
}

/**
 * Computes a·b·c·e^x for x <= 0 in four lanes, where e^x, or its product with only some of the others, may be too small or too
 * large for f32: products are f64. Below -700, where no f32 makes up for it, e^x is 0.
 */
export function timesExp4(a: v128, b: v128, c: v128, value: v128): v128 {
  const least = f32x4.splat(-700), x = f32x4.pmax(value, least), shifted = powerOf(x);
  const y = v128.andnot(expRest4(x, shifted), f32x4.lt(value, least)), n = i32x4.sub(shifted, constant(ROUNDER));
  const low = productTwo(a, b, c, y, n);
  const high = productTwo(lastTwo(a), lastTwo(b), lastTwo(c), lastTwo(y), lastTwo(n));
  return v128.shuffle<f64>(low, high, 0, 2);
}

/** Computes lanes 2 and 3. */
@inline function lastTwo(x: v128): v128 {
  return v128.shuffle<f64>(x, x, 1, 1);
}

/**
 * Computes softcap · tanh(score / softcap) in four lanes. Near 0 it is the series times the score: the quotient of exponentials would
 * lose digits there, and score / softcap may be a subnormal number.
 */
@inline export function cap4(score: v128, softcap: v128): v128 {
  const y = f32x4.div(score, softcap), one = constant(ONE);
  const size = f32x4.abs(y);
  const z = expNonPositive4(minusAbs4(f32x4.add(y, y)));
  const far = f32x4.mul(f32x4.div(f32x4.sub(one, z), f32x4.add(one, z)), softcap);
  const square = f32x4.mul(y, y);
  let p = f32x4.add(f32x4.mul(constant(T2), square), constant(T1));
  p = f32x4.add(f32x4.mul(p, square), constant(T0));
  const near = f32x4.add(score, f32x4.mul(f32x4.mul(score, square), p));
  return v128.bitselect(near, v128.or(far, v128.xor(y, size)), f32x4.lt(size, constant(EIGHTH)));
}

/** Extracts lane i of four, for an i that is known only at run time. */
@inline export function laneOf(v: v128, i: i32): f32 {
  return i == 0 ? f32x4.extract_lane(v, 0) : i == 1 ? f32x4.extract_lane(v, 1)
    : i == 2 ? f32x4.extract_lane(v, 2) : f32x4.extract_lane(v, 3);
}

/** Computes −|x| in four lanes. */
@inline export function minusAbs4(x: v128): v128 {
  return v128.or(x, constant(SIGN));
}

/** Computes |x| in four lanes. f32x4.abs takes three instructions in V8, which makes the mask each time. */
@inline export function abs4(x: v128): v128 {
  return v128.and(x, constant(ABS));
}

/** Gives 1.0 in all lanes. */
@inline export function one4(): v128 {
  return constant(ONE);
}
