/** xIELU: the reference by its definition, cpu against the reference, refusals. */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { boundAboutStored, planErrors } from '@ropewalk/oracle/internal';
import { dtypes, type Float, holds, laid, placements, seeds, size } from '../../../../test/support/operators.js';
import { f64Tensor, floats } from '../../../../test/support/tensors.js';
import { openCpu } from '../../src/backends/wasm/host.js';
import { zeros } from '../../src/core/tensor.js';
import { planXielu } from '../../src/ops/xielu.js';
import { runReference } from '../../src/reference/index.js';
import { Ropewalk } from '../../src/ropewalk.js';

const cpus = [
  new Ropewalk(await openCpu({ threads: 1 })),
  new Ropewalk(await openCpu({ threads: 2 })),
  new Ropewalk(await openCpu({ threads: 1, simd: 'simd128' })),
];
after(() => {
  for (const rw of cpus) rw.dispose();
});

const FACTORS = { positive: 0.7, negative: 1.3, beta: 0.4 };

test('by its definition', () => {
  const x = f64Tensor([0, 2, -3, -1e-9], [4]);
  const out = zeros('f64', [4]);
  runReference(planXielu(x, out, FACTORS));
  const wanted = [0, 0.7 * 4 + 0.8, 1.3 * (Math.exp(-3) - 1 + 3) - 1.2, -4e-10];
  for (const [i, value] of floats(out).entries()) assert.ok(Math.abs(value - wanted[i]!) < 1e-15, `${i}: ${value}`);
  runReference(planXielu(x, x as never));
  assert.ok(Math.abs(floats(x)[1]! - 4.2) < 1e-15);
});

holds(
  'cpu: any sizes and layouts',
  60,
  [dtypes, size(1, 70), size(1, 4), size(-3, 3), placements, seeds],
  (dtype, n, rows, power, how, seed) => {
    const drawn = laid(dtype, [rows, n], how[0]!, seed) as Float;
    const x = f64Tensor(
      Array.from(floats(drawn), (value) => value * 10 ** power),
      [rows, n],
      dtype,
    );
    const exact = zeros('f64', [rows, n]);
    const wide = planXielu(f64Tensor([...floats(x)], [rows, n]), exact, FACTORS);
    runReference(wide);
    const errors = planErrors(wide, 'f32').get('out')!;
    for (const rw of cpus)
      for (const [i, value] of floats(rw.xielu(x, FACTORS)).entries()) {
        const bound = boundAboutStored(errors[i]!, floats(exact)[i]!, dtype);
        assert.ok(
          Math.abs(value - floats(exact)[i]!) <= bound || Math.abs(value) === Infinity,
          `${floats(x)[i]}: ${value}, not ${floats(exact)[i]} ± ${bound}`,
        );
      }
  },
);

test('far from 0, and what is no number', () => {
  for (const rw of cpus) {
    const x = f64Tensor([1e19, -1e30, Infinity, -Infinity, NaN, -0, -150], [7], 'f32');
    const [square, line, infinite, torchs, none, zero, below] = floats(rw.xielu(x, { ...FACTORS, positive: 1e-3 }));
    assert.ok(Math.abs(square! / 1e35 - 1) < 1e-6);
    assert.ok(Math.abs(line! / 9e29 - 1) < 1e-6);
    assert.deepEqual([infinite, torchs, none, Math.abs(zero!)], [Infinity, NaN, NaN, 0]);
    assert.ok(Math.abs(below! - (1.3 * 149 - 60)) < 1e-4);
  }
});

test('factors that are no numbers are refused', () => {
  const x = zeros('f32', [2]);
  for (const [name, value] of [
    ['positive', NaN],
    ['negative', Infinity],
    ['beta', '1'],
  ] as const)
    assert.throws(() => planXielu(x, x, { [name]: value }), {
      code: 'RANGE',
      message: new RegExp(`^xielu: ${name}: expected a finite number`),
    });
});
