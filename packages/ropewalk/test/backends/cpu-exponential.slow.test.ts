/** The exponential of cpu's kernels, compiled by itself: most of the time is the compiler's. */
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test } from 'node:test';
import { compileKernels } from '../../../../scripts/build-wasm.mjs';
import { ROOT } from '../../../../test/support/build.js';

test('e^x is within 2 ulp from 0 down to where it vanishes', async () => {
  const bytes = await compileKernels(join(ROOT, 'test/support/assembly/exponential.ts'));
  for (const { name, bytes: module } of bytes) {
    if (!WebAssembly.validate(module)) continue; // relaxed SIMD, before Node 22
    const memory = new WebAssembly.Memory({ initial: 16, maximum: 65536, shared: true });
    const { exports } = await WebAssembly.instantiate(await WebAssembly.compile(module), { env: { memory } });
    const exponential = exports.exponential as (x: number, y: number, n: number) => void;
    const n = 1 << 16;
    const [x, y] = [1 << 16, (1 << 16) + n * 4];
    const [xs, ys] = [new Float32Array(memory.buffer, x, n), new Float32Array(memory.buffer, y, n)];
    let worst = 0;
    for (const round of Array(16).keys()) {
      for (let i = 0; i < n; i++)
        xs[i] = round < 12 ? (-108 * (i * 12 + round)) / (n * 12) : -(2 ** (-i / 3000 - round / 4));
      exponential(x, y, n);
      for (let i = 0; i < n; i++) {
        const exact = Math.exp(xs[i]!);
        const ulp = Math.max(2 ** (Math.floor(Math.log2(exact)) - 23), 2 ** -149);
        worst = Math.max(worst, Math.abs(ys[i]! - exact) / ulp);
      }
    }
    assert.ok(worst <= 2, `${name}: ${worst} ulp`);
  }
});
