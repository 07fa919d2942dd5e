/**
 * Exports the exponential of the AssemblyScript kernels for the test of its accuracy
 * (packages/ropewalk/test/backends/cpu-exponential.slow.test.ts).
 */
import { expNonPositive4 } from '../../../packages/ropewalk/src/backends/wasm/assembly/lanes';

/** Computes y = e^x for n dense f32 values x <= 0. n must be a multiple of four. */
export function exponential(x: usize, y: usize, n: i32): void {
  for (let at: usize = 0; at < (<usize>n) << 2; at += 16) v128.store(y + at, expNonPositive4(v128.load(x + at)));
}
