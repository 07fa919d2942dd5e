/**
 * The two roofs as WebAssembly sees them, in AssemblyScript: bytes copied, and 128-bit multiplications and additions.
 *
 * Compiled by scripts/build-wasm.mjs to ../roof.generated.ts.
 *
 * @module
 */

/** Copies `bytes` from one address to another, `times` times. */
export function copy(to: usize, from: usize, bytes: usize, times: i32): void {
  for (let n = 0; n < times; n++) memory.copy(to, from, bytes);
}

// @ts-ignore: decorator
@inline function madd(a: v128, b: v128, c: v128): v128 {
  if (ASC_FEATURE_RELAXED_SIMD) return f32x4.relaxed_madd(a, b, c);
  return f32x4.add(f32x4.mul(a, b), c);
}

/**
 * Multiplies and adds in ten independent chains of four lanes: 80 operations a round.
 *
 * Ten hide the latency on the machines measured. The two are one instruction where the runtime has relaxed SIMD.
 *
 * @param factor - with `step` from outside: V8 would build a constant vector anew at each use
 * @returns a number that depends on all of them
 */
export function multiplyAdd(rounds: i32, factor: f32, step: f32): f32 {
  const m = f32x4.splat(factor);
  const c = f32x4.splat(step);
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
    a0 = madd(m, c, a0);
    a1 = madd(m, c, a1);
    a2 = madd(m, c, a2);
    a3 = madd(m, c, a3);
    a4 = madd(m, c, a4);
    a5 = madd(m, c, a5);
    a6 = madd(m, c, a6);
    a7 = madd(m, c, a7);
    a8 = madd(m, c, a8);
    a9 = madd(m, c, a9);
  }
  const even = f32x4.add(f32x4.add(f32x4.add(a0, a2), f32x4.add(a4, a6)), a8);
  const odd = f32x4.add(f32x4.add(f32x4.add(a1, a3), f32x4.add(a5, a7)), a9);
  return f32x4.extract_lane(f32x4.add(even, odd), 0);
}
