/** add and swiglu: two tensors in, one out, element by element. */
import { Elementwise, Kernel, Type } from '../abi';
import { address, offsetOf, place, word } from './args';
import { bytes, bytesOf, expNonPositive4, load1, load4, minusAbs4, one4, store1, store8 } from './lanes';

/**
 * One addition or gating. SwiGLU is b · a / (1 + e^−a). With z = e^−|a|, which cannot overflow, 1 / (1 + e^−a) is 1 /
 * (1 + z) for a >= 0 and z / (1 + z) for a < 0.
 */
@inline function apply(op: Kernel, a: v128, b: v128): v128 {
  if (op == Kernel.add) return f32x4.add(a, b);
  const one = one4();
  const z = expNonPositive4(minusAbs4(a));
  const above = v128.bitselect(z, one, i32x4.shr_s(a, 31));
  return f32x4.mul(b, f32x4.mul(a, f32x4.div(above, f32x4.add(one, z))));
}

@inline function dense<T>(op: Kernel, y: usize, a: usize, b: usize, n: i32): void {
  let i = 0;
  if (isFloat<T>() && op == Kernel.add) {
    // Four vectors a round: an addition is so cheap that computing addresses would be half of the loop.
    for (; i + 16 <= n; i += 16) {
      const at = (<usize>i) << 2;
      const p = a + at, q = b + at, to = y + at;
      v128.store(to, f32x4.add(v128.load(p), v128.load(q)));
      v128.store(to, f32x4.add(v128.load(p, 16), v128.load(q, 16)), 16);
      v128.store(to, f32x4.add(v128.load(p, 32), v128.load(q, 32)), 32);
      v128.store(to, f32x4.add(v128.load(p, 48), v128.load(q, 48)), 48);
    }
  }
  for (; i + 8 <= n; i += 8) {
    const at = <usize>i * bytes<T>(), next = at + 4 * bytes<T>();
    store8<T>(y + at, apply(op, load4<T>(a + at), load4<T>(b + at)), apply(op, load4<T>(a + next), load4<T>(b + next)));
  }
  for (; i < n; i++) {
    const at = <usize>i * bytes<T>();
    store1<T>(y + at, f32x4.extract_lane(apply(op, f32x4.splat(load1<T>(a + at)), f32x4.splat(load1<T>(b + at))), 0));
  }
}

@inline function strided<T>(
  op: Kernel, y: usize, a: usize, b: usize, n: i32, yStride: i32, aStride: i32, bStride: i32,
): void {
  for (let i = 0; i < n; i++) {
    const left = f32x4.splat(load1<T>(a + <usize>(i * aStride) * bytes<T>()));
    const right = f32x4.splat(load1<T>(b + <usize>(i * bStride) * bytes<T>()));
    store1<T>(y + <usize>(i * yStride) * bytes<T>(), f32x4.extract_lane(apply(op, left, right), 0));
  }
}

@inline function block<T>(op: Kernel, args: usize, y: usize, a: usize, b: usize, n: i32): void {
  const aStride = word(args, Elementwise.aStride), bStride = word(args, Elementwise.bStride);
  const yStride = word(args, Elementwise.yStride);
  if (aStride == 1 && bStride == 1 && yStride == 1) dense<T>(op, y, a, b, n);
  else strided<T>(op, y, a, b, n, yStride, aStride, bStride);
}

/** Computes blocks `from … to - 1`. */
@inline function elementwise(op: Kernel, args: usize, from: i32, to: i32): void {
  const type = word(args, Elementwise.type), n = word(args, Elementwise.n), size = word(args, Elementwise.block);
  const walk = place(args, Elementwise.walk), blocks = (n + size - 1) / size, unit = bytesOf(type);
  const aStride = word(args, Elementwise.aStride), bStride = word(args, Elementwise.bStride);
  const yStride = word(args, Elementwise.yStride);
  for (let u = from; u < to; u++) {
    const row = u / blocks, start = (u - row * blocks) * size, count = min(size, n - start);
    const y = address(args, Elementwise.y) + <usize>(offsetOf(walk, 0, row) + start * yStride) * unit;
    const a = address(args, Elementwise.a) + <usize>(offsetOf(walk, 1, row) + start * aStride) * unit;
    const b = address(args, Elementwise.b) + <usize>(offsetOf(walk, 2, row) + start * bStride) * unit;
    if (type == Type.f32) block<f32>(op, args, y, a, b, count);
    else if (type == Type.f16) block<u16>(op, args, y, a, b, count);
    else block<i16>(op, args, y, a, b, count);
  }
}

export function add(args: usize, from: i32, to: i32): void {
  elementwise(Kernel.add, args, from, to);
}

export function swiglu(args: usize, from: i32, to: i32): void {
  elementwise(Kernel.swiglu, args, from, to);
}
