/**
 * The two roofs as WebAssembly sees them, in AssemblyScript: bytes copied, and 128-bit multiplications and additions.
 *
 * Compiled anew at each run by bench/roofs.ts.
 *
 * @module
 */

/** Copies `bytes` from one address to another, `times` times. */
export function copy(to: usize, from: usize, bytes: usize, times: i32): void {
  for (let n = 0; n < times; n++) memory.copy(to, from, bytes);
}

/**
 * Multiplies and adds in ten independent chains of four lanes: 80 operations a round.
 *
 * Ten hide the latency of both on the machines measured; multiplication and addition are two instructions, because a fused one
 * (relaxed SIMD) rounds differently from engine to engine.
 *
 * @returns a number that depends on all of them
 */
export function multiplyAdd(rounds: i32): f32 {
  const m = f32x4.splat(0.999);
  const c = f32x4.splat(0.001);
  let a0 = f32x4.splat(1);
  let a1 = a0;
  let a2 = a0;
  let a3 = a0;
  let a4 = a0;
  let a5 = a0;
  let a6 = a0;
  let a7 = a0;
  let a8 = a0;
  let a9 = a0;
  for (let n = 0; n < rounds; n++) {
    a0 = f32x4.add(f32x4.mul(a0, m), c);
    a1 = f32x4.add(f32x4.mul(a1, m), c);
    a2 = f32x4.add(f32x4.mul(a2, m), c);
    a3 = f32x4.add(f32x4.mul(a3, m), c);
    a4 = f32x4.add(f32x4.mul(a4, m), c);
    a5 = f32x4.add(f32x4.mul(a5, m), c);
    a6 = f32x4.add(f32x4.mul(a6, m), c);
    a7 = f32x4.add(f32x4.mul(a7, m), c);
    a8 = f32x4.add(f32x4.mul(a8, m), c);
    a9 = f32x4.add(f32x4.mul(a9, m), c);
  }
  const even = f32x4.add(f32x4.add(f32x4.add(a0, a2), f32x4.add(a4, a6)), a8);
  const odd = f32x4.add(f32x4.add(f32x4.add(a1, a3), f32x4.add(a5, a7)), a9);
  return f32x4.extract_lane(f32x4.add(even, odd), 0);
}
