/** add, the activations and scale: one or two tensors in, one out, element by element. */
import { Activation, Elementwise, Type } from '../abi';
import { address, offsetOf, place, word } from './args';
import {
  abs4, bytesOf, cap4, expNonPositive4, madd, minusAbs4, one4, readRowOf, store8, timesExp4, widenHigh, widenLow,
  writeRowOf,
} from './lanes';

/** The elements that go through scratch memory at a time if they are not dense f32; it has room for three times as many. */
const TILE: i32 = 512;

/** Constants of the inner loops, read from memory as those of lanes.ts are. */
const TABLE: usize = memory.data<f32>([
  0.3465, -0.5, // see gelu4
  -0.028637106, 0.14500968, -0.26669785, 0.17877163, -0.033110518, 0.1098271, 0.118048355, 0.13856849, 0.13822022,
  0.07135481, 1.5957691, // 2·√(2/π)·0.044715 and 2·√(2/π)
  -1.442695, 12582912, 0.693359375, -0.00021219444, // see timesSigmoid4: −1 / ln 2, 1.5·2^23, ln 2 in two parts
  0.00138146, -0.00836872, 0.04166839, -0.16666521, 0.49999994, 1,
  -6.776263578034403e-21, // -2^-67: its bits are those of LEAST and 2^31
]);
const POLYNOMIAL: i32 = 2;
const DEGREE: i32 = 8;
const CUBIC: i32 = 11;
const SIGMOID: i32 = 13;
const COMMON: i32 = 23;

/** The bits of 2^-67, the least size of an argument that is common. */
const LEAST: i32 = (127 - 67) << 23;

/**
 * Gives the largest common size of an argument, as {@link common4} needs it. For common arguments the sigmoid, or Φ, and
 * its product with them are normal f32 numbers, which lose nothing in the product with b. For all others, and for 0,
 * which is rare, products are f64.
 */
function mostCommon(activation: i32, args: usize): v128 {
  let most: f32 = 87; // of swiglu
  if (activation == Activation.gelu) most = 12;
  else if (activation == Activation.geluTanh) most = 9.5;
  else if (activation == Activation.clamped) {
    // Up to 40 times alpha, as the gate may be small itself; none where it is cut to less than LEAST.
    const limit = load<i32>(place(args, Elementwise.first)), alpha = load<f32>(place(args, Elementwise.second));
    most = limit < LEAST ? 0 : min<f32>(<f32>40 / abs<f32>(alpha), 1e30);
  }
  return i32x4.splat(max(reinterpret<i32>(most), LEAST) - LEAST + i32.MIN_VALUE);
}

/** Gives the size of arguments as an integer from -2^31 on; sizes below LEAST become large. */
@inline function common4(a: v128): v128 {
  return i32x4.sub(abs4(a), splat(TABLE, COMMON));
}

/** Reads a word into all lanes. */
@inline function splat(words: usize, i: i32): v128 {
  return v128.load_splat<u32>(place(words, i));
}

/**
 * Computes a / (1 + e^−w) for |w| <= 87, where e^−w and its inverse are normal numbers.
 *
 * −w = n·ln 2 − s as in expNonPositive4; (e^−s − 1 + s) / s² is a minimax fit of degree 4, off by 2^-28.
 */
@inline function timesSigmoid4(a: v128, w: v128): v128 {
  const shifted = madd(w, splat(TABLE, SIGMOID), splat(TABLE, SIGMOID + 1));
  const n = f32x4.sub(shifted, splat(TABLE, SIGMOID + 1));
  const s = madd(n, splat(TABLE, SIGMOID + 3), madd(n, splat(TABLE, SIGMOID + 2), w));
  // Two short chains instead of a long one; no loop, which would stay one in the machine's code.
  const square = f32x4.mul(s, s), one = splat(TABLE, SIGMOID + 9);
  const high = madd(splat(TABLE, SIGMOID + 4), square, madd(splat(TABLE, SIGMOID + 5), s, splat(TABLE, SIGMOID + 6)));
  const p = madd(high, square, madd(splat(TABLE, SIGMOID + 7), s, splat(TABLE, SIGMOID + 8)));
  const y = madd(square, p, f32x4.sub(one, s));
  const z = i32x4.add(y, i32x4.shl(shifted, 23)); // 2^n: the shift drops all but the low bits, which hold n
  return f32x4.div(a, f32x4.add(one, z));
}

/** Computes sixteen elements of SwiGLU if all gates are common. @returns whether it has stored them */
@inline function swigluCommon(y: usize, a: usize, b: usize, most: v128): bool {
  const a0 = v128.load(a), a1 = v128.load(a, 16), a2 = v128.load(a, 32), a3 = v128.load(a, 48);
  const first = i32x4.max_s(common4(a0), common4(a1)), last = i32x4.max_s(common4(a2), common4(a3));
  if (v128.any_true(i32x4.gt_s(i32x4.max_s(first, last), most))) return false;
  v128.store(y, f32x4.mul(v128.load(b), timesSigmoid4(a0, a0)));
  v128.store(y, f32x4.mul(v128.load(b, 16), timesSigmoid4(a1, a1)), 16);
  v128.store(y, f32x4.mul(v128.load(b, 32), timesSigmoid4(a2, a2)), 32);
  v128.store(y, f32x4.mul(v128.load(b, 48), timesSigmoid4(a3, a3)), 48);
  return true;
}

/**
 * Computes t · P(t) of |x|, with t = 1 / (1 + 0.3465·|x|): Φ(−|x|) = e^(−x²/2) · t · P(t).
 *
 * P, of degree 8, is a minimax fit, off by 0.4·2^-24 up to 16, and 15·2^-24 at 20, where no f32 makes up for the
 * exponential any more.
 */
@inline function geluFit4(size: v128): v128 {
  const one = one4();
  const t = f32x4.div(one, f32x4.add(f32x4.mul(size, splat(TABLE, 0)), one));
  // Even and odd powers apart: two short chains instead of a long one.
  const square = f32x4.mul(t, t);
  let even = splat(TABLE, POLYNOMIAL), odd = splat(TABLE, POLYNOMIAL + 1);
  even = madd(even, square, splat(TABLE, POLYNOMIAL + 2));
  odd = madd(odd, square, splat(TABLE, POLYNOMIAL + 3));
  even = madd(even, square, splat(TABLE, POLYNOMIAL + 4));
  odd = madd(odd, square, splat(TABLE, POLYNOMIAL + 5));
  even = madd(even, square, splat(TABLE, POLYNOMIAL + 6));
  odd = madd(odd, square, splat(TABLE, POLYNOMIAL + 7));
  const p = madd(odd, t, madd(even, square, splat(TABLE, POLYNOMIAL + DEGREE)));
  return f32x4.mul(t, p);
}

/** Computes −x²/2. */
@inline function bell4(x: v128): v128 {
  return f32x4.mul(f32x4.mul(x, x), splat(TABLE, 1));
}

/**
 * Computes x · Φ(x), the GELU of the error function. Above 0, 1 − Φ(−x) loses nothing, as Φ(−x) <= 1/2
 * (packages/ropewalk/test/backends/cpu-operators.test.ts has the bound of all).
 */
@inline function gelu4(x: v128): v128 {
  const below = f32x4.mul(expNonPositive4(bell4(x)), geluFit4(f32x4.abs(x)));
  return f32x4.mul(x, v128.bitselect(below, f32x4.sub(one4(), below), i32x4.shr_s(x, 31)));
}

/** Computes {@link gelu4} times b, for any x. */
function geluWide4(x: v128, b: v128): v128 {
  const fit = geluFit4(f32x4.abs(x)), w = bell4(x), negative = i32x4.shr_s(x, 31);
  const above = f32x4.sub(one4(), f32x4.mul(expNonPositive4(w), fit));
  return timesExp4(x, b, v128.bitselect(fit, above, negative), v128.and(w, negative));
}

/** Computes 2z in x · (1 + tanh(z)) / 2 = x / (1 + e^−2z), with z = √(2/π) · (x + 0.044715·x³). */
@inline function tanhGate4(x: v128): v128 {
  return f32x4.mul(x, madd(f32x4.mul(x, x), splat(TABLE, CUBIC), splat(TABLE, CUBIC + 1)));
}

/** Computes min(gate, limit) of clamped. */
@inline function clampedGate4(args: usize, gate: v128): v128 {
  return f32x4.pmin(gate, splat(args, Elementwise.first));
}

/** Computes clip(u, ±limit) + offset of clamped. */
@inline function clampedUp4(args: usize, up: v128): v128 {
  const limit = splat(args, Elementwise.first);
  return f32x4.add(f32x4.pmax(f32x4.pmin(up, limit), f32x4.neg(limit)), splat(args, Elementwise.third));
}

/** Computes xIELU; (positive · x) · x overflows only where the result does. */
@inline function xielu4(args: usize, x: v128): v128 {
  const zero = f32x4.splat(0), above = f32x4.max(x, zero), below = f32x4.min(x, zero);
  const square = f32x4.mul(f32x4.mul(above, splat(args, Elementwise.first)), above);
  const power = f32x4.sub(f32x4.sub(expNonPositive4(below), one4()), below);
  const line = f32x4.mul(x, splat(args, Elementwise.third));
  return f32x4.add(f32x4.add(square, f32x4.mul(power, splat(args, Elementwise.second))), line);
}

/** Computes four elements of common arguments; `b` is the address of the second operand's, if there is one. */
@inline function apply(activation: Activation, args: usize, a: v128, b: usize, second: bool): v128 {
  if (activation == Activation.add) return f32x4.add(a, v128.load(b));
  if (activation == Activation.clamped) {
    const g = clampedGate4(args, a), w = f32x4.mul(g, splat(args, Elementwise.second));
    return f32x4.mul(clampedUp4(args, v128.load(b)), timesSigmoid4(g, w));
  }
  if (activation == Activation.xielu) return xielu4(args, a);
  if (activation == Activation.relu) return f32x4.mul(v128.load(b), f32x4.max(a, f32x4.splat(0)));
  if (activation == Activation.sigmoid) {
    const most = f32x4.splat(87); // beyond, the sigmoid is 0 or 1; pmin and pmax keep a NaN in its first place
    return timesSigmoid4(v128.load(b), f32x4.pmax(f32x4.pmin(a, most), f32x4.neg(most)));
  }
  let y = a;
  if (activation == Activation.swiglu) y = timesSigmoid4(a, a);
  else if (activation == Activation.gelu) y = gelu4(a);
  else if (activation == Activation.geluTanh) y = timesSigmoid4(a, tanhGate4(a));
  else y = f32x4.mul(a, splat(args, Elementwise.first));
  if (activation == Activation.swiglu || second) y = f32x4.mul(v128.load(b), y);
  return activation == Activation.softcap ? cap4(y, splat(args, Elementwise.second)) : y;
}

/** Computes four elements of any arguments. */
function applyWide(activation: i32, args: usize, a: v128, b: v128): v128 {
  if (activation == Activation.gelu) return geluWide4(a, b);
  let w = a;
  if (activation == Activation.geluTanh) w = tanhGate4(a);
  else if (activation == Activation.clamped) {
    a = clampedGate4(args, a);
    w = f32x4.mul(a, splat(args, Elementwise.second));
    b = clampedUp4(args, b);
  }
  const one = one4(), share = f32x4.div(one, f32x4.add(one, expNonPositive4(minusAbs4(w))));
  return timesExp4(a, b, share, v128.and(w, i32x4.shr_s(w, 31)));
}

/** Computes two vectors a round, so that the quotient of one is under way during the exponential of the other. */
@inline function loop(activation: Activation, args: usize, y: usize, a: usize, b: usize, n: i32): void {
  const second = b != 0;
  let i = 0;
  if (activation == Activation.add) {
    // A round has four vectors: an addition is so cheap that computing addresses would be half of the loop.
    for (; i + 16 <= n; i += 16) {
      const at = (<usize>i) << 2;
      const p = a + at, q = b + at, to = y + at;
      v128.store(to, f32x4.add(v128.load(p), v128.load(q)));
      v128.store(to, f32x4.add(v128.load(p, 16), v128.load(q, 16)), 16);
      v128.store(to, f32x4.add(v128.load(p, 32), v128.load(q, 32)), 32);
      v128.store(to, f32x4.add(v128.load(p, 48), v128.load(q, 48)), 48);
    }
  }
  const checked = activation != Activation.add && activation != Activation.scale && activation != Activation.softcap &&
    activation != Activation.sigmoid && activation != Activation.relu && activation != Activation.xielu;
  const most = checked ? mostCommon(activation, args) : i32x4.splat(0);
  for (; i < n; i += 8) {
    if (activation == Activation.swiglu) {
      while (i + 16 <= n && swigluCommon(place(y, i), place(a, i), place(b, i), most)) i += 16;
      if (i == n) break;
    }
    const p = place(a, i), q = place(b, i), to = place(y, i);
    const first = v128.load(p), last = v128.load(p, 16);
    let low = apply(activation, args, first, q, second), high = apply(activation, args, last, q + 16, second);
    if (checked && v128.any_true(i32x4.gt_s(i32x4.max_s(common4(first), common4(last)), most))) {
      // An element's bits do not depend on its neighbours.
      const low64 = applyWide(activation, args, first, second ? v128.load(q) : one4());
      const high64 = applyWide(activation, args, last, second ? v128.load(q, 16) : one4());
      low = v128.bitselect(low64, low, i32x4.gt_s(common4(first), most));
      high = v128.bitselect(high64, high, i32x4.gt_s(common4(last), most));
    }
    v128.store(to, low);
    v128.store(to, high, 16);
  }
}

/** Computes sums of a 16-bit T without scratch memory, as converting them is all their work. */
@inline function addHalves<T>(y: usize, a: usize, b: usize, n: i32): void {
  for (let i = 0; i < n; i += 8) {
    const at = (<usize>i) << 1, p = v128.load(a + at), q = v128.load(b + at);
    const low = f32x4.add(widenLow<T>(p), widenLow<T>(q));
    store8<T>(y + at, low, f32x4.add(widenHigh<T>(p), widenHigh<T>(q)));
  }
}

/** Computes n dense elements, rounded up to a multiple of eight: f32, or sums of any type. */
function compute(type: i32, args: usize, y: usize, a: usize, b: usize, n: i32): void {
  switch (word(args, Elementwise.activation)) {
    case Activation.add:
      if (type == Type.f32) loop(Activation.add, args, y, a, b, n);
      else if (type == Type.f16) addHalves<u16>(y, a, b, n);
      else addHalves<i16>(y, a, b, n);
      break;
    case Activation.swiglu: loop(Activation.swiglu, args, y, a, b, n); break;
    case Activation.sigmoid: loop(Activation.sigmoid, args, y, a, b, n); break;
    case Activation.relu: loop(Activation.relu, args, y, a, b, n); break;
    case Activation.clamped: loop(Activation.clamped, args, y, a, b, n); break;
    case Activation.gelu: loop(Activation.gelu, args, y, a, b, n); break;
    case Activation.geluTanh: loop(Activation.geluTanh, args, y, a, b, n); break;
    case Activation.xielu: loop(Activation.xielu, args, y, a, b, n); break;
    case Activation.scale: loop(Activation.scale, args, y, a, b, n); break;
    case Activation.softcap: loop(Activation.softcap, args, y, a, b, n); break;
  }
}

/**
 * Computes blocks `from … to - 1`.
 *
 * @param scratch - memory of this thread: f32 `[3, TILE]`, used where elements are not dense or not f32, and for the last few
 */
export function elementwise(args: usize, from: i32, to: i32, scratch: usize): void {
  const type = word(args, Elementwise.type), n = word(args, Elementwise.n), size = word(args, Elementwise.block);
  const walk = place(args, Elementwise.walk), blocks = (n + size - 1) / size, unit = bytesOf(type);
  const aStride = word(args, Elementwise.aStride), bStride = word(args, Elementwise.bStride);
  const yStride = word(args, Elementwise.yStride), second = address(args, Elementwise.b) != 0;
  const direct = type == Type.f32 || word(args, Elementwise.activation) == Activation.add;
  const dense = direct && aStride == 1 && yStride == 1 && (!second || bStride == 1);
  const aTile = place(scratch, TILE), bTile = second ? place(scratch, 2 * TILE) : 0;
  for (let u = from; u < to; u++) {
    const row = u / blocks, start = (u - row * blocks) * size, count = min(size, n - start);
    const y = address(args, Elementwise.y) + <usize>(offsetOf(walk, 0, row) + start * yStride) * unit;
    const a = address(args, Elementwise.a) + <usize>(offsetOf(walk, 1, row) + start * aStride) * unit;
    const b = second ? address(args, Elementwise.b) + <usize>(offsetOf(walk, 2, row) + start * bStride) * unit : 0;
    const whole = dense ? count & ~7 : 0;
    compute(type, args, y, a, b, whole);
    for (let i = whole; i < count; i += TILE) {
      const few = min(TILE, count - i);
      readRowOf(type, aTile, a + <usize>(i * aStride) * unit, few, aStride);
      if (second) readRowOf(type, bTile, b + <usize>(i * bStride) * unit, few, bStride);
      compute(Type.f32, args, scratch, aTile, bTile, few);
      writeRowOf(type, y + <usize>(i * yStride) * unit, scratch, few, yStride);
    }
  }
}
