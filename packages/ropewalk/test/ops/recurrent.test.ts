/**
 * The causal convolution, the gated delta rule and the selective scan: the reference by their definitions, cpu against
 * the reference, and a sequence in pieces against the whole.
 */
import assert from 'node:assert/strict';
import { after, describe, test } from 'node:test';
import fc from 'fast-check';
import { DENSE, dtypes, type Float, holds, laid, placements, seeds, size } from '../../../../test/support/operators.js';
import {
  type ConvDraw,
  compareWithReference,
  convTrial,
  type DeltaDraw,
  deltaTrial,
  type ScanDraw,
  type StateTrial,
  scanTrial,
} from '../../../../test/support/recurrent.js';
import { f64Tensor, floats } from '../../../../test/support/tensors.js';
import { openCpu } from '../../src/backends/wasm/host.js';
import { roundTo, UNIT_ROUNDOFF } from '../../src/core/dtypes.js';
import { type Tensor, tensorFrom, zeros } from '../../src/core/tensor.js';
import { planCausalConv } from '../../src/ops/causal-conv.js';
import { planGatedDelta } from '../../src/ops/gated-delta.js';
import { planSsmScan } from '../../src/ops/ssm-scan.js';
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

/** Runs six tokens at once and in pieces, with a state [4, 16, 10] that a fresh sequence does not read. */
function sameInPieces(run: (from: number, to: number, state: Tensor<'f32'>, fresh: boolean) => Tensor): void {
  const whole = run(0, 6, zeros('f32', [4, 16, 10]), true);
  const state = tensorFrom(new Float32Array(640).fill(9), { shape: [4, 16, 10] }) as Tensor<'f32'>;
  for (const [from, to] of [
    [0, 1],
    [1, 1],
    [1, 4],
    [4, 6],
  ] as const)
    assert.deepEqual(floats(run(from, to, state, from === 0)), floats(whole.slice(0, from, to)));
}

const DENSE_ALL = Array.from({ length: 6 }, () => DENSE);
const convs: fc.Arbitrary<ConvDraw> = fc.record({
  tokens: size(0, 7),
  channels: size(1, 150),
  width: size(1, 5),
  options: size(0, 31),
});
const deltas: fc.Arbitrary<DeltaDraw> = fc.record({
  tokens: size(0, 5),
  keyHeads: size(1, 3),
  group: size(1, 3),
  d: size(1, 20),
  dv: size(1, 20),
  tiled: fc.boolean(),
  fresh: fc.boolean(),
});
const scans: fc.Arbitrary<ScanDraw> = fc.record({
  tokens: size(0, 6),
  groups: size(1, 3),
  share: size(1, 3),
  d: size(1, 20),
  dv: size(1, 20),
  options: size(0, 7),
});

/** Runs a trial on every module and thread count. */
function agree(trial: StateTrial): void {
  for (const rw of cpus) {
    const copies = trial.given.map((one): Float => {
      const data = (one.storage.host as Float32Array).slice();
      return tensorFrom(data, one as Float & { dtype: 'f32' }) as Float;
    });
    rw.run(trial.plan(copies));
    compareWithReference(trial, copies);
  }
}

describe('causal_conv', () => {
  test('by its definition', () => {
    const [x, weight, state] = [
      f64Tensor([1, 2, 3], [3, 1]),
      f64Tensor([10, 100, 1000], [1, 3]),
      f64Tensor([5, 7], [2, 1]),
    ];
    const [out, gate] = [zeros('f64', [3, 1]), f64Tensor([1, 2, 1], [3, 1])];
    const bias = f64Tensor([0.5], [1]);
    const before = gate;
    runReference(planCausalConv(x, weight, state as never, out, { bias, before, after: gate }));
    // u is 5, 7 | 1, 4, 3
    assert.deepEqual([...floats(out)], [50 + 700 + 1000.5, 2 * (70 + 100 + 4000.5), 10 + 400 + 3000.5]);
    assert.deepEqual([...floats(state)], [4, 3]);
    runReference(planCausalConv(x, weight, state as never, out, { activation: 'silu', fresh: true }));
    const silu = (z: number): number => z / (1 + Math.exp(-z));
    assert.deepEqual([...floats(out)], [1000, 2100, 3210].map(silu));
    assert.deepEqual([...floats(state)], [2, 3]);
  });

  holds('cpu: any sizes, layouts and options', 80, [dtypes, convs, placements, seeds], (dtype, draw, how, seed) =>
    agree(convTrial(dtype, draw, how, seed)),
  );

  test('in pieces as whole, to the bit', () => {
    for (const rw of cpus) {
      const [x, weight] = convTrial('f32', { tokens: 9, channels: 70, width: 4, options: 0 }, DENSE_ALL, 3).given;
      const options = { activation: 'silu' } as const;
      const whole = rw.causalConv(x!, weight!, zeros('f32', [3, 70]), { ...options, fresh: true });
      const state = tensorFrom(new Float32Array(210).fill(9), { shape: [3, 70] });
      let at = 0;
      for (const count of [1, 2, 0, 5, 1]) {
        const part = x!.slice(0, at, at + count);
        const out = rw.causalConv(part, weight!, state as Tensor<'f32'>, { ...options, fresh: at === 0 });
        assert.deepEqual(floats(out), floats(whole.slice(0, at, at + count)));
        at += count;
      }
    }
  });
});

describe('gated_delta', () => {
  test('by its definition, one number a head', () => {
    const one = (value: number): Float => f64Tensor([value], [1, 1, 1]);
    const [q, k, v] = [one(3), one(-2), one(5)];
    const gates = {
      decay: f64Tensor([0.25], [1, 1]),
      rate: f64Tensor([-0.5], [1]),
      bias: f64Tensor([0.5], [1]),
      beta: f64Tensor([1], [1, 1]),
    };
    const [state, out] = [f64Tensor([7], [1, 1, 1]), zeros('f64', [1, 1, 1])];
    runReference(planGatedDelta(q, k, v, gates, state as never, out, { eps: 1e-9, scale: 10 }));
    // k is −1 and q is 1, but for eps.
    const kept = 7 * (1 + Math.exp(0.75)) ** -0.5;
    const wanted = kept - (5 + kept) / (1 + Math.exp(-1));
    assert.ok(Math.abs(floats(state)[0]! - wanted) < 1e-8);
    assert.ok(Math.abs(floats(out)[0]! - 10 * wanted) < 1e-7);
  });

  test('a key that was written is read back, and corrected to its new value', () => {
    const open = 40; // σ(40) = 1, and softplus(−40) = 0: nothing is forgotten
    const [q, k] = [f64Tensor([0, 2, 0, 2], [2, 1, 2]), f64Tensor([0, 1, 0, 3], [2, 1, 2])];
    const gates = {
      decay: f64Tensor([-open, -open], [2, 1]),
      rate: f64Tensor([-1], [1]),
      bias: f64Tensor([0], [1]),
      beta: f64Tensor([open, open], [2, 1]),
    };
    const v = f64Tensor([5, 6, 7, 8], [2, 1, 2]);
    const [state, out] = [zeros('f64', [1, 2, 2]), zeros('f64', [2, 1, 2])];
    runReference(planGatedDelta(q, k, v, gates, state, out, { eps: 1e-12, scale: 1, fresh: true }));
    for (const [i, value] of floats(out).entries()) assert.ok(Math.abs(value - (5 + i)) < 1e-9);
  });

  holds('cpu: any sizes, layouts and options', 80, [dtypes, deltas, placements, seeds], (dtype, draw, how, seed) =>
    agree(deltaTrial(dtype, draw, how, seed)),
  );

  test('in pieces as whole, to the bit', () => {
    const draw = { tokens: 6, keyHeads: 2, group: 2, d: 16, dv: 10, tiled: false, fresh: true };
    for (const rw of cpus) {
      const [q, k, v, decay, beta, rate, bias] = deltaTrial('f32', draw, DENSE_ALL, 5).given as Tensor<'f32'>[];
      const run = (from: number, to: number, state: Tensor<'f32'>, fresh: boolean) => {
        const [qs, ks, vs, decays, betas] = [q!, k!, v!, decay!, beta!].map((one) => one.slice(0, from, to));
        const gates = { decay: decays!, beta: betas!, rate: rate!, bias: bias! };
        return rw.gatedDelta(qs!, ks!, vs!, gates, state, { eps: 1e-6, fresh });
      };
      sameInPieces(run);
    }
  });
});

holds(
  'swiglu with the activation sigmoid, on cpu: any gates',
  60,
  [dtypes, size(1, 70), size(-2, 4), seeds],
  (dtype, n, power, seed) => {
    const wide = { ...DENSE, dense: false, step: 2 };
    const [gate, up] = [laid(dtype, [n], DENSE, seed), laid(dtype, [n], wide, seed + 1)];
    const scaled = f64Tensor(
      floats(gate).map((g) => g * 10 ** power),
      [n],
      dtype,
    );
    for (const rw of cpus) {
      const got = floats(rw.swiglu(scaled, up as never, { activation: 'sigmoid' }));
      for (const [i, value] of got.entries()) {
        const exact = floats(up)[i]! / (1 + Math.exp(-floats(scaled)[i]!));
        const relative = 2 * UNIT_ROUNDOFF[dtype] + 16 * UNIT_ROUNDOFF.f32;
        const bound = relative * Math.abs(exact) + (dtype === 'f32' ? 2 ** -118 : 2 ** -24);
        assert.ok(Math.abs(value - exact) <= bound, `${value} ${exact}`);
      }
    }
  },
);

holds(
  'swiglu with the activation relu, on cpu: to the bit, and in place',
  40,
  [dtypes, size(1, 70), seeds],
  (dtype, n, seed) => {
    const [gate, up] = [laid(dtype, [n], DENSE, seed), laid(dtype, [n], { ...DENSE, dense: false, step: 2 }, seed + 1)];
    // A product of two 16-bit numbers is exact in f32, so it is rounded once.
    const product = (a: number, b: number): number => roundTo(dtype, a * Math.max(b, 0));
    const wanted = Array.from(floats(up), (u, i) => product(u, floats(gate)[i]!));
    const squares = Array.from(floats(gate), (g) => product(g, g));
    for (const rw of cpus) {
      assert.deepEqual([...floats(rw.swiglu(gate, up as never, { activation: 'relu' }))], wanted);
      const x = f64Tensor([...floats(gate)], [n], dtype);
      rw.swiglu(x, x as never, { activation: 'relu', out: x as never });
      assert.deepEqual([...floats(x)], squares);
    }
  },
);

describe('ssm_scan', () => {
  test('by its definition: decayed, added to, then read', () => {
    const [x, b, c] = [
      f64Tensor([3, 5], [2, 1, 1]),
      f64Tensor([10, 20, 30, 40], [2, 1, 2]),
      f64Tensor([1, 0, 1, 100], [2, 1, 2]),
    ];
    const steps = { dt: f64Tensor([0.25, -9], [2, 1]), rate: f64Tensor([-0.5], [1]), bias: f64Tensor([0.5], [1]) };
    const [state, out, skip] = [f64Tensor([7, 8], [1, 2, 1]), zeros('f64', [2, 1, 1]), f64Tensor([1000], [1])];
    runReference(planSsmScan(x, b, c, steps, state as never, out, { skip, limits: [0.5, 1] }));
    // softplus(0.75) = 1.137 is above the limits, softplus(-8.5) below them.
    const [first, second] = [Math.exp(-0.5), Math.exp(-0.25)];
    const held = [7 * first + 30, 8 * first + 60];
    const last = [held[0]! * second + 30 * 2.5, held[1]! * second + 40 * 2.5];
    for (const [got, want] of [
      [floats(state), last],
      [floats(out), [held[0]! + 3000, last[0]! + 100 * last[1]! + 5000]],
    ] as const)
      for (const [i, value] of want.entries()) assert.ok(Math.abs(got[i]! - value) < 1e-9);
  });

  test('a head reads b and c of its group, and steps are a softplus', () => {
    const x = f64Tensor([1, 1, 1, 1], [1, 4, 1]);
    const [b, c] = [f64Tensor([2, 3], [1, 2, 1]), f64Tensor([1, 1], [1, 2, 1])];
    const steps = { dt: f64Tensor([0, 1, 2, 3], [1, 4]), rate: zeros('f64', [4]), bias: zeros('f64', [4]) };
    const [state, out] = [f64Tensor([9, 9, 9, 9], [4, 1, 1]), zeros('f64', [1, 4, 1])];
    runReference(planSsmScan(x, b, c, steps, state as never, out, { fresh: true }));
    const wanted = [2, 2, 3, 3].map((one, h) => one * Math.log(1 + Math.exp(h)));
    for (const [h, value] of floats(out).entries()) assert.ok(Math.abs(value - wanted[h]!) < 1e-12);
  });

  holds('cpu: any sizes, layouts and options', 80, [dtypes, scans, placements, seeds], (dtype, draw, how, seed) =>
    agree(scanTrial(dtype, draw, how, seed)),
  );

  test('in pieces as whole, to the bit', () => {
    const draw = { tokens: 6, groups: 2, share: 2, d: 16, dv: 10, options: 7 };
    for (const rw of cpus) {
      const [x, b, c, dt, rate, bias, , , skip] = scanTrial('f32', draw, DENSE_ALL, 5).given as Tensor<'f32'>[];
      const run = (from: number, to: number, state: Tensor<'f32'>, fresh: boolean) => {
        const [xs, bs, cs, dts] = [x!, b!, c!, dt!].map((one) => one.slice(0, from, to));
        return rw.ssmScan(xs!, bs!, cs!, { dt: dts!, rate: rate!, bias: bias! }, state, { skip: skip!, fresh });
      };
      sameInPieces(run);
    }
  });
});

test('what is not a state, and memory that is shared, are refused', () => {
  const [rw] = cpus;
  const [x, weight] = [zeros('f32', [2, 4]), zeros('f32', [4, 3])];
  const state = zeros('f32', [2, 4]);
  const refused = (call: () => unknown, message: RegExp) => assert.throws(call, message);
  refused(
    () => rw!.causalConv(x, weight, zeros('f32', [3, 4])),
    /^RopewalkError: causal_conv: state: expected shape \[2,4\]/,
  );
  refused(() => rw!.causalConv(x, weight, zeros('f16', [2, 4]) as never), /state: expected dtype f32/);
  refused(
    () => rw!.causalConv(x, weight, zeros('f32', [4, 2]).permute([1, 0])),
    /state: its strides are \[1,2\], and a state is dense/,
  );
  refused(() => rw!.causalConv(x, weight, state, { out: x }), /out: it shares all of its memory with x/);
  refused(() => rw!.causalConv(x, weight, x), /state: it shares all of its memory with x/);
  refused(() => rw!.causalConv(x, weight, state, { activation: 'gelu' as never }), /activation: expected silu/);
  const gates = {
    decay: zeros('f32', [2, 3]),
    rate: zeros('f32', [3]),
    bias: zeros('f32', [3]),
    beta: zeros('f32', [2, 3]),
  };
  const [q, v, memory] = [zeros('f32', [2, 2, 4]), zeros('f32', [2, 3, 4]), zeros('f32', [3, 4, 4])];
  refused(
    () => rw!.gatedDelta(q, q, v, gates, memory, { eps: 1e-6 }),
    /v: expected a multiple of the 2 heads of q, got 3/,
  );
  refused(() => rw!.gatedDelta(v, v, v, gates, memory, { eps: 0 }), /eps: expected a finite number > 0/);
  const steps = { dt: zeros('f32', [2, 3]), rate: zeros('f32', [3]), bias: zeros('f32', [3]) };
  refused(
    () => rw!.ssmScan(v, q, q, steps, memory),
    /ssm_scan: x: expected a multiple of the 2 groups of b as heads, got 3/,
  );
  const b = zeros('f32', [2, 3, 4]);
  refused(() => rw!.ssmScan(v, b, b, steps, zeros('f32', [3, 4, 3])), /state: expected shape \[3,4,4\]/);
  for (const limits of [[1, 0.5], [-1, 2], [1], [Number.NaN, 1], ['0', 1]] as never[])
    refused(() => rw!.ssmScan(v, b, b, steps, memory, { limits }), /limits: expected \[min, max\] with 0 <= min/);
});
