/**
 * The kernels' exponential by itself, AssemblyScript, for the test of its accuracy
 * (packages/ropewalk/test/backends/cpu-exponential.slow.test.ts).
 */
import { expNonPositive4 } from '../../../packages/ropewalk/src/backends/wasm/assembly/lanes';

/** y = e^x, x <= 0: n dense f32, a multiple of four. */
export function exponential(x: usize, y: usize, n: i32): void {
  for (let at: usize = 0; at < (<usize>n) << 2; at += 16) v128.store(y + at, expNonPositive4(v128.load(x + at)));
}
