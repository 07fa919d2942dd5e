/**
 * The backend `cpu` against the float64 reference: every operator, f32, f16 and bf16, over layouts, sizes and special
 * values.
 *
 * Each trial runs on one thread and on two, which must agree to the bit, with the module that `auto` takes and with
 * simd128; its tensors are in host memory, in the backend's, or in both. Gaps between elements are NaN: one that is
 * read spoils the result, one that is written shows.
 */
import assert from 'node:assert/strict';
import { after, describe, test } from 'node:test';
import { rotationErrorBound } from '@ropewalk/oracle/internal';
import fc from 'fast-check';
import {
  activations,
  activationTrial,
  layerNormTrial,
  type Normed,
  roundings,
  softcapError,
} from '../../../../test/support/bounds.js';
import {
  addTrial,
  anyPlan,
  argmaxTrial,
  blocksOf,
  calls,
  compare,
  copyTrial,
  copyWith,
  DENSE,
  dotError,
  dtypes,
  emulate,
  exactOf,
  expertLinearTrial,
  type Fill,
  FLOATS,
  type Float,
  fills,
  fromBits,
  type Given,
  holds,
  hostCopy,
  indexOf,
  laid,
  laidBits,
  lookUpTrial,
  MIXES,
  maybe,
  measure,
  mixes,
  type Placement,
  pair,
  placements,
  randomness,
  roomFor,
  routeTrial,
  seeds,
  shapes,
  size,
  type Trial,
  tensorAt,
  tiesOf,
  toBits,
  U,
} from '../../../../test/support/operators.js';
import { some } from '../../../../test/support/size.js';
import { f64Tensor, floats } from '../../../../test/support/tensors.js';
import { until } from '../../../../test/support/until.js';
import { Board } from '../../src/backends/wasm/abi.js';
import { openCpu } from '../../src/backends/wasm/host.js';
import { BOARD } from '../../src/backends/wasm/launcher.js';
import { BLOCK_FORMAT_NAMES, BLOCK_FORMATS, type BlockFormat } from '../../src/core/block-formats.js';
import { type BlockTensor, isBlocks, readBlocks } from '../../src/core/blocks.js';
import {
  bitsOf,
  DTYPES,
  type Dtype,
  type FloatDtype,
  isFloat,
  loadNumber,
  newArray,
  roundTo,
  storeNumber,
  UNIT_ROUNDOFF,
} from '../../src/core/dtypes.js';
import { bf16FromNumber, f16FromNumber, numberFromBf16, numberFromF16 } from '../../src/core/float16.js';
import { walk } from '../../src/core/shape.js';
import { Tensor, tensorFrom, zeros } from '../../src/core/tensor.js';
import { planLayerNorm } from '../../src/ops/layer-norm.js';
import { planLinear } from '../../src/ops/linear.js';
import type { OpPlan } from '../../src/ops/op-plan.js';
import { planRmsNorm } from '../../src/ops/rms-norm.js';
import { bindRope, bindRopeParts, type RopePartOptions } from '../../src/ops/rope/call.js';
import { planRope, planRopeWithTable } from '../../src/ops/rope/plan.js';
import { planScale } from '../../src/ops/scale.js';
import { planSelfAttention, type SelfAttentionOptions } from '../../src/ops/self-attention.js';
import { planSwiglu } from '../../src/ops/swiglu.js';
import { runReference } from '../../src/reference/index.js';
import { Ropewalk, ropewalk } from '../../src/ropewalk.js';

const backends = {
  one: await openCpu({ threads: 1 }),
  two: await openCpu({ threads: 2 }),
  plain: await openCpu({ threads: 1, simd: 'simd128' }),
  plainTwo: await openCpu({ threads: 2, simd: 'simd128' }),
};
const [one, two, plain, plainTwo] = Object.values(backends).map((backend) => new Ropewalk(backend)) as [
  Ropewalk,
  Ropewalk,
  Ropewalk,
  Ropewalk,
];
after(() => {
  for (const rw of [one, two, plain, plainTwo]) rw.dispose();
});

// Workers start with the first large job; until they are in, the host computes alone and there is nothing to compare.
for (const { launcher } of [backends.two, backends.plainTwo]) {
  const large = tensorFrom<'f32'>(new Float32Array(1 << 17));
  for (const rw of [two, plainTwo]) rw.add(large, large);
  await until(
    () => Atomics.load(new Int32Array(launcher.memory.buffer, BOARD), Board.workers) > 0,
    'a worker has started',
  );
}

/** An operator call for several runners. */
interface CpuTrial extends Trial {
  /** The modules to run. Default: both. */
  readonly runners?: readonly Ropewalk[];
}

/** Copies the tensors to new storage, in a backend's memory where `owned` says so. */
function copyOf(given: Given, owned: number, rw: Ropewalk): Given {
  return copyWith(given, ({ dtype, length, host }, n) => {
    const { storage } = owned & (1 << n) ? rw.allocate(dtype, [length]) : zeros(dtype, [length]);
    (bitsOf(storage.host!) as Uint8Array).set(bitsOf(host!) as Uint8Array);
    return storage;
  });
}

/** Lays a tensor over a copy of its storage, because the backend's memory may move. */
const inHost = (tensor: Tensor): Tensor => tensorFrom(tensor.storage.read() as never, tensor);
const storageBits = (tensor: Tensor) => bitsOf(tensor.storage.read() as never);

/**
 * Gives the bits of a storage with every NaN the same, because WebAssembly does not define the sign and payload of a NaN.
 */
function oneNaN(tensor: Tensor) {
  const bits = storageBits(tensor);
  if (isFloat(tensor.dtype)) {
    const values = tensor.storage.read() as never;
    const zero = (bits instanceof BigUint64Array ? 0n : 0) as never;
    for (let i = 0; i < bits.length; i++) if (Number.isNaN(loadNumber(values, tensor.dtype, i))) bits[i] = zero;
  }
  return bits;
}

/** Runs a trial everywhere and compares. */
function agree(trial: CpuTrial): void {
  const { given, outs, plan } = trial;
  const want = trial.error || trial.wanted ? exactOf(given) : hostCopy(given);
  if (!trial.wanted) runReference(plan(want));
  for (const runners of trial.runners
    ? [trial.runners]
    : [
        [one, two],
        [plain, plainTwo],
      ]) {
    let first: Given | undefined;
    for (const rw of runners) {
      const got = copyOf(given, trial.owned, rw);
      rw.run(plan(got));
      for (const n of outs) {
        if (first) {
          assert.deepEqual(
            oneNaN(tensorAt(got, n)),
            oneNaN(tensorAt(first, n)),
            `threads 1 and 2 differ in given[${n}]`,
          );
        } else compare(trial, n, inHost(tensorAt(got, n)), tensorAt(want, n));
      }
      const kept = first;
      if (!kept) first = got.map((t) => (isBlocks(t) ? t : inHost(t)));
      for (const t of got) t.dispose();
    }
  }
}

describe('add', () => {
  holds(
    'any layout, any values, in place: the reference to the bit',
    150,
    [dtypes, shapes, fills, placements, seeds, size(0, 7), size(0, 2)],
    (dtype, shape, fill, how, seed, owned, place) => {
      const given = pair(dtype, shape, how, seed, fill, place);
      agree({ ...addTrial(given), owned });
    },
  );

  for (const dtype of FLOATS) {
    test(`${dtype}: many chunks, dense and strided`, () => {
      for (const [shape, how] of some([
        [[70001], DENSE],
        [[7, 20011], { ...DENSE, dense: false, pad: 3, lead: 1 }],
        [[20011, 7], { ...DENSE, dense: false, turn: 1 }],
      ] as const)) {
        const [a, b] = [laid(dtype, shape, how, 1), laid(dtype, shape, DENSE, 2)];
        agree({ ...addTrial([a, b, roomFor(dtype, shape, how)]), owned: 6 });
      }
    });
  }

  test('f16 sums overflow to infinity from 65520 on, and bf16 next to the largest f32', () => {
    const sums: [FloatDtype, number, number][] = [
      ['f16', 65504, 15],
      ['f16', 65504, 16],
      ['f16', -65504, -16],
      ['f16', 65504, 65504],
      ['bf16', 2 ** 127 * 1.9921875, 2 ** 119],
      ['bf16', 2 ** 127 * 1.9921875, 2 ** 118],
      ['f32', 2 ** 127 * (2 - 2 ** -23), 2 ** 103],
    ];
    for (const [dtype, x, y] of sums) {
      for (const n of [1, 8]) {
        const [a, b] = [x, y].map((v) => f64Tensor(new Array(n).fill(v), [n], dtype)) as [Float, Float];
        assert.deepEqual([...floats(one.add(a, b))], new Array(n).fill(roundTo(dtype, x + y)), `${dtype} ${x} + ${y}`);
      }
    }
  });
});

describe('conversions', () => {
  const table = { f16: [numberFromF16, f16FromNumber], bf16: [numberFromBf16, bf16FromNumber] } as const;

  for (const dtype of ['f16', 'bf16'] as const) {
    const [widen, narrow] = table[dtype];

    test(`${dtype}: all 65536 patterns, there and back, in vectors and one by one`, () => {
      const all = Uint16Array.from({ length: 65536 }, (_, bits) => bits);
      const want = all.map((bits) => narrow(widen(bits)));
      const minusZero = tensorFrom(new Uint16Array(65536).fill(0x8000), { dtype });
      for (const rw of [one, plain]) {
        const same = (got: Tensor, what: string) => assert.deepEqual(got.read(), want, what);
        same(rw.add(tensorFrom(all, { dtype }), minusZero), 'vectors');
        const room = tensorFrom(new Uint16Array(131072), { dtype, shape: [65536], strides: [2] });
        same(rw.add(tensorFrom(all, { dtype }), minusZero, { out: room }), 'one by one');
        // Times 1, and out through eight lanes at a time.
        const table = { rows: 1, pairs: 65536, cos: new Float32Array(65536).fill(1), sin: new Float32Array(65536) };
        const plan = planRopeWithTable({ headDim: 131072, pairing: 'half', table, seqLen: 1, tableRows: [0] });
        const x = new Uint16Array(131072);
        x.set(all);
        assert.deepEqual(
          (rw.rope(tensorFrom(x, { dtype, shape: [1, 1, 131072] }), plan).read() as Uint16Array).subarray(0, 65536),
          want,
        );
      }
    });

    test(`${dtype} → f32: all 65536 patterns; f32 → ${dtype}: all numbers, all ties and both neighbours of each`, () => {
      // The part of a head that does not rotate is only converted.
      const convert = (rw: Ropewalk, x: Float, to: FloatDtype, stride = 1): number[] => {
        const n = x.size;
        const plan = planRopeWithTable({
          headDim: n,
          rotaryDim: 2,
          pairing: 'half',
          table: { rows: 1, pairs: 1, cos: Float32Array.of(1), sin: Float32Array.of(0) },
          seqLen: 1,
          tableRows: [0],
        });
        const out = tensorFrom(newArray(to, n * stride), {
          dtype: to,
          shape: [1, 1, n],
          strides: [n * stride, n * stride, stride],
        }) as Float;
        rw.ropeParts(plan, [{ x: x.view([1, 1, n]), out }]);
        return [...floats(out)];
      };
      const all = tensorFrom(
        Uint16Array.from({ length: 65536 + 2 }, (_, n) => Math.max(0, n - 2)),
        { dtype },
      ) as Float;
      const values = [1, 0, ...tiesOf(dtype)];
      const singles = tensorFrom(Float32Array.from(values)) as Float;
      for (const rw of [one, plain]) {
        for (const stride of [1, 3]) {
          assert.deepEqual(convert(rw, all, 'f32', stride).slice(2), [...floats(all)].slice(2));
          assert.deepEqual(
            convert(rw, singles, dtype, stride),
            values.map((v) => roundTo(dtype, v)),
          );
        }
      }
    });

    test(`f32 → ${dtype}, eight lanes at a time: products that are ties`, () => {
      // 1 · cos − 0 · sin: the table holds the numbers to be rounded, any f32.
      const cos: number[] = [];
      const random = randomness(5);
      for (let bits = 0; bits < (dtype === 'f16' ? 0x7c00 : 0x7f80); bits++) {
        const value = Math.fround(widen(bits));
        let tie = Math.fround(value + (widen(bits + 1) - value) / 2);
        if (Number.isNaN(tie) || tie === Infinity) tie = dtype === 'f16' ? 65520 : fromBits(0x7f7f8000);
        cos.push(random() < 0.5 ? tie : -tie, fromBits(toBits(tie) + (random() < 0.5 ? 1 : -1)));
      }
      const pairs = cos.length;
      const plan = planRopeWithTable({
        headDim: 2 * pairs,
        pairing: 'half',
        table: { rows: 1, pairs, cos: Float32Array.from(cos), sin: new Float32Array(pairs) },
        seqLen: 1,
        tableRows: [0],
      });
      const x = f64Tensor(
        Array.from({ length: 2 * pairs }, (_, i) => (i < pairs ? 1 : 0)),
        [1, 1, 2 * pairs],
        dtype,
      );
      for (const rw of [one, plain]) {
        assert.deepEqual(
          [...floats(rw.rope(x, plan)).subarray(0, pairs)],
          cos.map((c) => roundTo(dtype, c)),
        );
      }
    });
  }
});

/** Results below 2^-126 are subnormals, whole to 2^-149, and so is a product before the last: see {@link activations}. */
const ACTIVATIONS = activations(1, () => 2 ** -149);

for (const activation of ACTIVATIONS) {
  const { name } = activation;
  describe(name, () => {
    const trial = (given: readonly [Float, Float, Float], owned: number): Trial => ({
      ...activationTrial(activation, given, 2 ** -148),
      owned,
    });
    holds(
      `${name}: any layout, any values, in place`,
      100,
      [dtypes, shapes, fills, placements, seeds, size(0, 7), size(0, 2)],
      (dtype, shape, fill, how, seed, owned, place) => agree(trial(pair(dtype, shape, how, seed, fill, place), owned)),
    );

    for (const dtype of FLOATS) {
      test(`${dtype}: from −110 to 110 and at infinity, many chunks`, () => {
        measure(`${name} ±110`);
        const n = 50003;
        const xs = Float64Array.from({ length: n }, (_, i) => (i / (n - 1)) * 220 - 110);
        xs.set([-Infinity, Infinity, NaN, -0, 0, 100, -100, -88, -87.5, -103.5, -104]);
        agree(trial([f64Tensor(xs, [n], dtype), laid(dtype, [n], DENSE, 3), roomFor(dtype, [n], DENSE)], 0));
      });
    }

    test('f32: near 0, and where the result vanishes', () => {
      measure(`${name} ±15`);
      const n = 60000;
      const xs = Float64Array.from({ length: n }, (_, i) =>
        i % 2 ? (i / (n - 1)) * 30 - 15 : (i % 4 ? 1 : -1) * 2 ** (-i / 400),
      );
      agree(trial([f64Tensor(xs, [n], 'f32'), laid('f32', [n], DENSE, 3), roomFor('f32', [n], DENSE)], 0));
    });
  });
}

describe('scale, a factor for each row', () => {
  holds(
    'any layout, any values, in place, with and without a soft cap',
    150,
    [dtypes, shapes, fills, placements, seeds, size(0, 7), fc.boolean(), fc.boolean()],
    (dtype, shape, fill, how, seed, owned, inPlace, capped) => {
      const x = laid(dtype, shape, inPlace ? { ...how[0]!, repeat: 0 } : how[0]!, seed, fill);
      const factor = laid(dtype, shape.slice(0, -1), how[1]!, seed + 1, fill);
      const out = inPlace ? x : roomFor(dtype, shape, how[2]!);
      agree({
        given: inPlace ? [factor, x] : [factor, out, x],
        outs: [1],
        owned: inPlace ? owned & 3 : owned,
        plan: (t) =>
          planScale(tensorAt(t, inPlace ? 1 : 2), tensorAt(t, 0), tensorAt(t, 1), capped ? { softcap: 2.7 } : {}),
        error: (exact) => (capped ? softcapError(1, 1, dtype) : roundings(1, dtype)) * Math.abs(exact) + 5 * 2 ** -149,
      });
    },
  );
});

test('numbers past the range of f32 go to the reference, or are refused with the reason', async () => {
  const x = f64Tensor([1, -2], [1, 2], 'f32');
  const out = zeros('f32', [1, 2]);
  const plans: readonly (readonly [OpPlan, string])[] = [
    [planScale(x, 1e-50, out), 'the factor or the softcap'],
    [planScale(x, 1, out, { softcap: 1e39 }), 'the factor or the softcap'],
    [planSwiglu(x, x, out, { limit: 1e39 }), 'the limit, alpha or offset'],
    [planSwiglu(x, x, out, { alpha: 1e-46 }), 'the limit, alpha or offset'],
    [planSwiglu(x, x, out, { offset: -1e20 }), 'the limit, alpha or offset'],
    [planLayerNorm(x, x.view([2]), out, { eps: 1e31 }), 'eps'],
  ];
  const exact = await openCpu({ threads: 1 }, runReference);
  for (const [plan, what] of plans) {
    const why = `${what} is outside the range of f32, in which the kernels compute`;
    assert.equal(one.whyNot(plan), why);
    assert.throws(() => one.run(plan), {
      code: 'UNSUPPORTED',
      message: new RegExp(`^cpu: ${plan.op}: ${why}\\. Give`),
    });
    assert.equal(exact.whyNot(plan), undefined);
    exact.run(plan);
    const want = floats(out).slice();
    runReference(plan);
    assert.deepEqual(floats(out), want);
  }
  exact.dispose();
  for (const plan of [planScale(x, 0, out), planScale(x, -(2 ** 64), out), planSwiglu(x, x, out, { limit: 2 ** -64 })])
    assert.equal(one.whyNot(plan), undefined);
});

/**
 * RMS norm: the factor is exact to float64 and rounded to f32 once, then two products: 3 u; seen: 1.8 before the last.
 * A factor or a product below 2^-126 is a subnormal, whole to 2^-149: half of that, times what it is multiplied with.
 */
const normError = (dtype: FloatDtype, exact: number, x: number, w: number): number =>
  1.001 * roundings(3, dtype) * Math.abs(exact) + Math.abs(w) * (Math.abs(x) + 1) * 2 ** -150 + 2 ** -150;

describe('rms_norm', () => {
  const trial = (x: Float, w: Float, out: Float, eps: number, owned: number): Trial => {
    const [xs, ws] = [floats(x), floats(w)];
    return {
      given: x === out ? [w, x] : [w, out, x],
      outs: [1],
      owned: x === out ? owned & 3 : owned,
      plan: (t) => planRmsNorm(tensorAt(t, x === out ? 1 : 2), tensorAt(t, 0), tensorAt(t, 1), { eps }),
      error: (exact, n) => normError(x.dtype, exact, xs[n]!, ws[n % ws.length]!),
    };
  };
  const epsilons = fc.constantFrom(0, 1e-12, 1e-6, 1e-5, 1);
  holds(
    'rows: any layout, any values, in place',
    150,
    [mixes, shapes, fills, placements, seeds, epsilons, size(0, 7), fc.boolean()],
    ([dtype, stored], shape, fill, how, seed, eps, owned, inPlace) => {
      const x = laid(dtype, shape, inPlace ? { ...how[0]!, repeat: 0 } : how[0]!, seed, fill);
      const w = laid(stored, shape.slice(-1), how[1]!, seed + 1, fill === 'special' ? 'wide' : fill);
      agree(trial(x, w, inPlace ? x : roomFor(dtype, shape, how[2]!), eps, owned));
    },
  );
  test('squares past the largest f32, rows of tiny numbers, rows of zeros', () => {
    for (const [dtype, scale, eps] of [
      ['f32', 2 ** 127, 1e-5],
      ['f32', 1e-30, 0],
      ['f32', 2 ** -148, 0],
      ['f32', 2 ** -140, 1e-300],
      ['f32', 0, 1e-300],
      ['f32', 0, 0],
      ['f16', 30000, 1e-5],
      ['f16', 2 ** -23, 0],
      ['bf16', 2 ** 127, 1e-5],
      ['bf16', 2 ** -132, 0],
    ] as const) {
      for (const n of [1, 3, 9, 64]) {
        const random = randomness(n);
        const x = f64Tensor(
          Float64Array.from({ length: 2 * n }, () => (random() - 0.5) * 2 * scale),
          [2, n],
          dtype,
        );
        measure('rms_norm extremes');
        agree(trial(x, laid(dtype, [n], DENSE, n), roomFor(dtype, [2, n], DENSE), eps, 0));
      }
    }
  });
  for (const dtype of FLOATS) {
    test(`${dtype}: many chunks`, () => {
      measure('rms_norm many');
      agree(
        trial(
          laid(dtype, [401, 259], DENSE, 1),
          laid(dtype, [259], DENSE, 2),
          roomFor(dtype, [401, 259], DENSE),
          1e-6,
          4,
        ),
      );
    });
  }
});

/**
 * Layer norm: x − mean with the mean as two f32, 2 u; the factor 1, two products 2; then the sum with the bias. The mean
 * is good to 2^-47 of itself, by its two parts and by sums in another order. As in {@link normError} what is below
 * 2^-126 is whole to 2^-149.
 */
const layerNormError =
  (dtype: FloatDtype, shifted: boolean) =>
  ({ exact, normed, x, weight, factor, largest }: Normed): number =>
    1.001 * 5 * U * Math.abs(normed) +
    (shifted ? roundings(1, dtype) : dtype === 'f32' ? -U : 0) * Math.abs(exact) +
    weight * (largest * factor * 2 ** -46 + (Math.abs(x) + 2) * 2 ** -149) +
    2 ** -149;

describe('layer_norm', () => {
  const trial = (x: Float, w: Float, bias: Float | undefined, out: Float, eps: number, owned: number): Trial => {
    const shared = layerNormTrial(x, w, bias, out, eps, layerNormError(x.dtype, bias !== undefined));
    return { ...shared, owned: owned & (2 ** shared.given.length - 1) };
  };
  const epsilons = fc.constantFrom(1e-12, 1e-6, 1e-5, 1);
  holds(
    'rows: any layout, any values, in place, with and without a bias',
    150,
    [mixes, shapes, fills, placements, seeds, epsilons, size(0, 15), fc.boolean(), fc.boolean()],
    ([dtype, stored], shape, fill, how, seed, eps, owned, inPlace, shifted) => {
      const x = laid(dtype, shape, inPlace ? { ...how[0]!, repeat: 0 } : how[0]!, seed, fill);
      const [w, bias] = [1, 2].map((n) =>
        laid(stored, shape.slice(-1), how[n]!, seed + n, fill === 'special' ? 'wide' : fill),
      ) as [Float, Float];
      agree(trial(x, w, shifted ? bias : undefined, inPlace ? x : roomFor(dtype, shape, how[3]!), eps, owned));
    },
  );
  test('rows far from 0, of tiny numbers, of huge ones, all alike', () => {
    for (const [dtype, center, spread, eps] of [
      ['f32', 1e6, 1, 0],
      ['f32', -3e4, 1e-2, 1e-9],
      ['f32', 0, 2 ** 127, 1e-5],
      ['f32', 2 ** 127, 2 ** 127, 1e-5],
      ['f32', 0, 1.99 * 2 ** 127, 1e-5],
      ['f32', 0, 2 ** -148, 0],
      ['f32', 0, 2 ** -140, 1e-300],
      ['f32', 7, 0, 1e-5],
      ['f16', 30000, 1000, 1e-5],
      ['f16', 0, 2 ** -23, 0],
      ['bf16', 2 ** 127, 2 ** 126, 1e-5],
    ] as const) {
      for (const n of [2, 3, 9, 64]) {
        const random = randomness(n);
        const x = f64Tensor(
          Float64Array.from({ length: 2 * n }, () => center + (random() - 0.5) * spread * 2),
          [2, n],
          dtype,
        );
        measure('layer_norm extremes');
        const w = laid(dtype, [n], DENSE, n);
        agree(trial(x, w, laid(dtype, [n], DENSE, n + 1), roomFor(dtype, [2, n], DENSE), eps, 0));
      }
    }
  });
  for (const dtype of FLOATS) {
    test(`${dtype}: many chunks`, () => {
      measure('layer_norm many');
      const [x, w, b] = [laid(dtype, [401, 259], DENSE, 1), laid(dtype, [259], DENSE, 2), laid(dtype, [259], DENSE, 3)];
      agree(trial(x, w, b, roomFor(dtype, [401, 259], DENSE), 1e-6, 4));
    });
  }
});

describe('argmax', () => {
  const indices = fc.constantFrom('i64' as const, 'i32' as const);
  const check = (values: Float, index: 'i64' | 'i32', how: readonly Placement[], owned: number) =>
    agree({ ...argmaxTrial(values, index, how), owned });
  holds(
    'any layout; ties, NaN and infinities everywhere',
    250,
    [dtypes, shapes, placements, seeds, size(0, 7), indices, size(1, 9)],
    (dtype, shape, how, seed, owned, index, kinds) => {
      if (shape.at(-1) === 0) shape = shape.with(-1, 1);
      const values = roomFor(dtype, shape, how[0]!, false);
      const random = randomness(seed);
      const choices = [-1, 0, -0, 2, 2, -Infinity, Infinity, NaN, 1].slice(0, kinds);
      walk(values, (at) =>
        storeNumber(values.storage.host!, dtype, at, choices[Math.floor(random() ** 2 * choices.length)]!),
      );
      check(values, index, how, owned);
    },
  );
  test('the payload of a NaN is kept; 0 rows; the largest at every place of a row', () => {
    check(tensorFrom(Uint16Array.of(0, 0xfe55, 0x7e01), { dtype: 'f16' }) as Float, 'i64', [DENSE, DENSE, DENSE], 0);
    check(zeros('f32', [0, 5]), 'i64', [DENSE, DENSE, DENSE], 0);
    for (const dtype of FLOATS) {
      for (const n of [1, 2, 3, 4, 5, 7, 8, 9, 12, 17, 33]) {
        for (const top of [1, NaN]) {
          const rows = Float64Array.from({ length: n * n }, (_, i) =>
            Math.floor(i / n) === i % n ? top : -1 - (i % 3),
          );
          check(f64Tensor(rows, [n, n], dtype), 'i32', [DENSE, DENSE, DENSE], 0);
        }
      }
    }
  });
  test('many chunks', () => {
    for (const dtype of FLOATS) check(laid(dtype, [301, 1003], DENSE, 4), 'i64', [DENSE, DENSE, DENSE], 1);
  });
});

describe('embedding and rearrange', () => {
  const all = fc.constantFrom<Dtype>(...DTYPES);
  holds(
    'embedding: every dtype and layout, bit for bit',
    200,
    [all, size(0, 9), size(0, 20), size(1, 7), placements, seeds, size(0, 7)],
    (dtype, count, width, rows, how, seed, owned) => {
      const table = laidBits(dtype, [rows, width], how[0]!, seed);
      agree({ ...lookUpTrial([indexOf(count, rows, seed), table, roomFor(dtype, [count, width], how[1]!)]), owned });
    },
  );
  holds(
    'embedding: halves and blocks widened to f32',
    200,
    [
      fc.constantFrom<'f16' | 'bf16' | BlockFormat>('f16', 'bf16', ...BLOCK_FORMAT_NAMES),
      size(0, 9),
      size(0, 20),
      size(1, 7),
      placements,
      seeds,
      size(0, 7),
    ],
    (kind, count, width, rows, how, seed, owned) => {
      const dense = kind === 'f16' || kind === 'bf16';
      const across = dense ? width : (width % 4) * BLOCK_FORMATS[kind].weights;
      const table = dense ? laidBits(kind, [rows, width], how[0]!, seed) : blocksOf(kind, rows, across, seed);
      const given = [indexOf(count, rows, seed), table, roomFor('f32', [count, across], how[1]!)];
      agree({ ...lookUpTrial(given), owned, anyNan: true });
    },
  );
  holds(
    'rearrange: from each float dtype to each other, up to four dimensions turned any way, rounded once',
    300,
    [dtypes, dtypes, shapes, fills, placements, seeds, size(0, 3)],
    (from, to, shape, fill, how, seed, owned) => {
      const x = seed % 2 ? laid(from, shape, how[0]!, seed, fill) : (laidBits(from, shape, how[0]!, seed) as Float);
      agree({ ...copyTrial([x, roomFor(to, shape, how[1]!)]), owned, anyNan: true });
    },
  );
  test('f16 becomes bf16 in its own memory, and back', () => {
    for (const rw of [one, plain]) {
      const x = laid('f16', [3, 41, 7], { ...DENSE, dense: false, turn: 1, pad: 1, step: 2 }, 1);
      const over = new Tensor(tensorFrom(x.storage.host!, { dtype: 'bf16' }).storage, x);
      const wide = floats(x).map((v) => roundTo('bf16', v));
      rw.rearrange(x, { out: over });
      assert.deepEqual(floats(over), wide);
      rw.rearrange(over, { out: x });
      assert.deepEqual(
        floats(x),
        wide.map((v) => roundTo('f16', v)),
      );
    }
  });
  test('f64 goes to the reference: f64 → f16 rounds once', async () => {
    const rw = await ropewalk({ backend: 'cpu', threads: 1 });
    // By way of f32 this would be the tie, and then 1.
    const x = f64Tensor([1 + 2 ** -11 + 2 ** -40, 0.1], [2]);
    assert.deepEqual(
      [...floats(rw.rearrange(x, { out: rw.allocate('f16', [2]) }))],
      [1 + 2 ** -10, roundTo('f16', 0.1)],
    );
    assert.deepEqual(
      [...floats(rw.rearrange(tensorFrom(Float32Array.of(0.1)), { out: zeros('f64', [1]) }))],
      [Math.fround(0.1)],
    );
    rw.dispose();
  });
  holds(
    'rearrange: every dtype, up to four dimensions turned any way, bit for bit',
    300,
    [all, shapes, placements, seeds, size(0, 3)],
    (dtype, shape, how, seed, owned) => {
      agree({ ...copyTrial([laidBits(dtype, shape, how[0]!, seed), roomFor(dtype, shape, how[1]!)]), owned });
    },
  );
  test('many chunks: transposes in 2, 3 and 4 dimensions, and a table', () => {
    for (const dtype of some(['u8', 'bf16', 'f32', 'i64'] as const)) {
      for (const [shape, order] of some([
        [
          [701, 309],
          [1, 0],
        ],
        [
          [5, 301, 103],
          [0, 2, 1],
        ],
        [
          [61, 37, 67],
          [2, 1, 0],
        ],
        [
          [13, 67, 8, 17],
          [0, 2, 1, 3],
        ],
        [
          [11, 23, 31, 19],
          [3, 1, 0, 2],
        ],
      ] as const)) {
        const x = laidBits(dtype, shape, DENSE, 9).permute([...order]);
        agree({ ...copyTrial([x, roomFor(dtype, x.shape, DENSE)]), owned: 1 });
      }
      const index = tensorFrom(Int32Array.from({ length: 999 }, (_, n) => (n * 7919) % 257));
      const given = [index, laidBits(dtype, [257, 301], DENSE, 3), roomFor(dtype, [999, 301], DENSE)];
      agree({ ...lookUpTrial(given), owned: 2 });
    }
  });
  test('many chunks: conversions, dense and turned, and tables that are widened', () => {
    const index = tensorFrom(Int32Array.from({ length: 999 }, (_, n) => (n * 7919) % 257));
    const pairs = FLOATS.flatMap((a) => FLOATS.filter((b) => b !== a).map((b) => [a, b] as const));
    for (const [from, to] of some(pairs)) {
      for (const x of [laid(from, [90001], DENSE, 9, 'wide'), laid(from, [61, 37, 67], DENSE, 9).permute([2, 1, 0])])
        agree({ ...copyTrial([x, roomFor(to, x.shape, DENSE)]), owned: 1 });
    }
    const tables = [
      ...(['f16', 'bf16'] as const).map((dtype) => laid(dtype, [257, 352], DENSE, 3)),
      ...BLOCK_FORMAT_NAMES.map((format) => blocksOf(format, 257, BLOCK_FORMATS[format].weights === 32 ? 352 : 256, 3)),
    ];
    for (const table of some(tables)) {
      const given = [index, table, roomFor('f32', [999, table.shape[1]!], DENSE)];
      agree({ ...lookUpTrial(given), owned: 2 });
    }
  });
});

describe('rope', () => {
  holds(
    'any geometry, table, layout and values: f32 operation by operation, to the bit, and near float64',
    300,
    [dtypes, calls, fills, placements, size(0, 3), fc.boolean()],
    (dtype, call, fill, how, owned, inPlace) => {
      const plan = anyPlan(call);
      const shape = [call.batch, call.seq, call.heads, plan.headDim];
      const same = inPlace && plan.read.step === plan.write.step;
      const x = laid(dtype, shape, same ? { ...how[0]!, repeat: 0 } : how[0]!, call.seed, fill);
      const given = same ? [x] : [x, roomFor(dtype, shape, how[1]!)];
      const out = given.length - 1;
      const { wanted, magnitude } = emulate(plan, floats(x), shape, dtype);
      const trial = { given, outs: [out], owned, plan: (t: Given) => bindRope(plan, tensorAt(t, 0), tensorAt(t, out)) };
      agree({ ...trial, wanted: () => wanted });
      const exact = (() => {
        const copy = exactOf([x, zeros(dtype, shape)]);
        runReference(bindRope(plan, tensorAt(copy, 0), tensorAt(copy, 1)));
        return floats(tensorAt(copy, 1));
      })();
      for (const [n, value] of wanted.entries()) {
        const near = Math.abs(value - exact[n]!) <= rotationErrorBound(dtype, exact[n]!, magnitude[n]!);
        assert.ok(Object.is(value, exact[n]) || near || !Number.isFinite(value), `[${n}] ${value} ${exact[n]}`);
      }
    },
  );

  holds(
    'dimensions that do not rotate keep their bits, NaN payloads too',
    120,
    [dtypes, calls, placements, size(0, 3)],
    (dtype, call, how, owned) => {
      const plan = anyPlan(call);
      const shape = [call.batch, call.seq, call.heads, plan.headDim];
      const x = laidBits(dtype, shape, how[0]!, call.seed) as Float;
      // Numbers where it rotates: of a NaN that comes out of arithmetic only that it is one is promised.
      const window = x.slice(3, plan.rotaryOffset, plan.rotaryOffset + plan.rotaryDim);
      walk(window, (at, n) => storeNumber(x.storage.host!, dtype, at, (n % 7) - 3));
      const one4 = roomFor(dtype, shape, how[1]!);
      for (const rw of [one, plain]) {
        const [from, to] = copyOf([x, one4], owned, rw) as [Float, Float];
        rw.run(bindRope(plan, from, to));
        for (const [start, end] of [
          [0, plan.rotaryOffset],
          [plan.rotaryOffset + plan.rotaryDim, plan.headDim],
        ] as const) {
          assert.deepEqual(to.slice(3, start, end).read(), x.slice(3, start, end).read());
        }
        from.dispose();
        to.dispose();
      }
    },
  );

  for (const dtype of FLOATS) {
    test(`${dtype}: many chunks; positions [batch, seq]; layouts bsnh and bnsh`, () => {
      for (const pairing of ['half', 'interleaved'] as const) {
        const positions = tensorFrom(
          Int32Array.from({ length: 2 * 97 }, (_, n) => (n * 37) % 4001),
          { shape: [2, 97] },
        );
        const plan = planRope({ headDim: 80, rotaryDim: 52, rotaryOffset: 3, pairing, base: 1e4, positions });
        const shape = [2, 97, 6, 80];
        const x = laid(dtype, shape, DENSE, 5);
        const { wanted } = emulate(plan, floats(x), shape, dtype);
        agree({
          given: [x, roomFor(dtype, shape, DENSE)],
          outs: [1],
          owned: 2,
          plan: (t) => bindRope(plan, tensorAt(t, 0), tensorAt(t, 1)),
          wanted: () => wanted,
        });
        const turned = (t: Given, n: number) => tensorAt(t, n).permute([0, 2, 1, 3]);
        agree({
          given: [x, roomFor(dtype, shape, { ...DENSE, dense: false, turn: 1 })],
          outs: [1],
          owned: 1,
          plan: (t) => bindRope(plan, turned(t, 0), turned(t, 1), 'bnsh'),
          wanted: () => wanted,
        });
      }
    });
  }

  holds(
    'backward undoes forward',
    60,
    [dtypes, calls.filter(({ batch, seq, heads }) => batch * seq * heads > 0)],
    (dtype, call) => {
      const shape = [call.batch, call.seq, call.heads, call.window.headDim];
      const pairing = call.pairing === 'vision' ? 'half' : call.pairing;
      const options = { ...call.window, pairing, base: 10000 };
      const { headDim: _, ...rest } = options;
      const x = laid(dtype, shape, DENSE, call.seed);
      const back = one.ropeBackward(one.rope(x, 1000, rest), 1000, rest);
      const gone = floats(x);
      // Two rotations, each rounded to the dtype: of vectors no longer than 2·√2.
      for (const [n, value] of floats(back).entries())
        assert.ok(
          Math.abs(value - gone[n]!) <= 4 * Math.SQRT2 * UNIT_ROUNDOFF[dtype] + 16 * U,
          `[${n}] ${value} ${gone[n]}`,
        );
    },
  );

  const mixes = fc.record({
    x: dtypes,
    k: dtypes,
    cache: dtypes,
    rows: fc.boolean(),
    norm: maybe(fc.constantFrom(0, 1e-6, 1e-5)),
    weight: dtypes,
  });
  holds(
    'q and k together: a KV cache of another dtype, its rows in any order, with and without norms',
    200,
    [mixes, calls, placements, size(0, 31)],
    (mix, call, how, owned) => {
      const plan = anyPlan(call);
      const { batch, seq, heads, window } = call;
      const random = randomness(call.seed + 9);
      const length = seq + 3;
      const free = Array.from({ length }, (_, n) => n).sort(() => random() - 0.5);
      const rows = mix.rows ? Array.from({ length: batch * seq }, (_, n) => free[n % seq]!) : 2;
      const shape = [batch, seq, heads, window.headDim];
      const kShape = [batch, seq, 2, window.headDim];
      const q = laid(mix.x, shape, { ...how[0]!, repeat: 0 }, call.seed);
      const inPlace = plan.read.step === plan.write.step;
      const given: Float[] = [
        q,
        inPlace ? q : roomFor(mix.x, shape, how[1]!),
        laid(mix.k, kShape, how[2]!, call.seed + 1),
        laid(mix.cache, [batch, length, 2, window.headDim], { ...how[3]!, repeat: 0 }, call.seed + 3),
        laid(mix.weight, [window.headDim], how[4]!, call.seed + 2),
      ];
      const bound = (given: Given): OpPlan => {
        const t = given as Float[];
        const norm = mix.norm === undefined ? undefined : { norm: { weight: t[4]!, eps: mix.norm } };
        const parts: RopePartOptions[] = [
          { x: t[0]!, out: inPlace ? t[0]! : t[1]!, ...norm },
          { x: t[2]!, out: t[3]!, rows, ...norm },
        ];
        return bindRopeParts(plan, parts);
      };
      // By hand: what is rotated, in float64, and how large the products of each element are.
      const factor = (head: Float64Array): number =>
        Math.sqrt(head.reduce((sum, v) => sum + v * v, 0) / head.length + mix.norm!);
      const weights = floats(given[4]!);
      const sizes = [given[0]!, given[2]!].map((x) => {
        const values = floats(x);
        const { headDim: d } = window;
        const normed = values.map(
          (v, i) => (v * weights[i % d]!) / factor(values.subarray(i - (i % d), i - (i % d) + d)),
        );
        return emulate(plan, mix.norm === undefined ? values : normed, x.shape, 'f64').magnitude;
      });
      const rowOf = (token: number): number => (typeof rows === 'number' ? rows + (token % seq) : rows[token]!);
      const width = 2 * window.headDim;
      const cached = new Map<number, number>();
      for (let token = 0; token < batch * seq; token++) {
        const to = Math.floor(token / seq) * length + rowOf(token);
        for (let i = 0; i < width; i++) cached.set(to * width + i, token * width + i);
      }
      const error = (exact: number, n: number, out: number): number => {
        const from = out === 3 ? cached.get(n) : n;
        if (from === undefined) return 0; // a row that no token goes to
        const magnitude = sizes[out === 3 ? 1 : 0]![from]!;
        if (mix.norm === undefined) return 3 * U * magnitude;
        return 3.5 * U * Math.abs(exact) + (magnitude && 6.5 * U * magnitude);
      };
      agree({ given, outs: [inPlace ? 0 : 1, 3], owned, plan: bound, error });
    },
  );
});

/** Layouts without stride 0 along a sum, where equal products would round the same way each time, and nothing cancels. */
const unlike = (how: Placement, d: number): Placement => ({ ...how, repeat: how.repeat & ~(1 << d) });

/** Multiplies a tensor's elements in place. */
function times(tensor: Float, factor: number): Float {
  const { host } = tensor.storage;
  walk(tensor, (at) => storeNumber(host!, tensor.dtype, at, loadNumber(host!, tensor.dtype, at) * factor));
  return tensor;
}

/** Mixes whose products can pass the largest f32; products of four have this power of two. */
const largeMixes = fc.constantFrom(...MIXES.filter(([dtype]) => dtype !== 'f16'));
const largePowers = size(121, 127);
/** The part of the power that the second operand can have. */
const powerOf = (power: number, stored: FloatDtype): number => (stored === 'f16' ? 12 : power >> 1);

describe('linear', () => {
  const trial = (
    x: Float,
    weight: Float | BlockTensor,
    bias: Float | undefined,
    out: Float,
    owned: number,
    activations?: 'q8',
  ): Trial => {
    const k = x.shape.at(-1)!;
    const n = weight.shape[0]!;
    const size = (t: Float) => f64Tensor(floats(t).map(Math.abs), t.shape);
    const dense = isBlocks(weight) ? f64Tensor(readBlocks(weight, 'weight').map(Math.abs), weight.shape) : size(weight);
    const sums = zeros('f64', out.shape);
    runReference(planLinear(size(x), dense, sums, { bias: bias && size(bias) }));
    const products = floats(sums);
    void n;
    return {
      given: bias ? [x, weight, out, bias] : [x, weight, out],
      outs: [2],
      owned,
      plan: (t) =>
        planLinear(tensorAt(t, 0), t[1] as Float, tensorAt(t, 2), {
          bias: t[3] as Tensor | undefined,
          ...(activations && { activations }),
        }),
      error: (_, i) => dotError(k, products[i]!),
    };
  };
  const around = fc.constantFrom(0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 63, 64, 65, 255, 256, 257);
  const columns = fc.constantFrom(0, 1, 2, 5, 7, 8, 9, 63, 64, 65, 72, 129);
  const fill = fc.constantFrom<Fill>('even', 'even', 'wide', 'special');
  const stored = fc.constantFrom<FloatDtype>('f16', 'f16', 'bf16', 'bf16', 'f32');
  holds(
    'any sizes, layouts and values',
    250,
    [dtypes, size(0, 14), columns, around, fill, placements, seeds, size(0, 15), fc.boolean()],
    (dtype, m, n, k, fill, how, seed, owned, withBias) => {
      const lead = m % 2 === 0 && m > 0 ? [2, m / 2] : [m];
      const weight = laid(dtype, [n, k], how[1]!, seed + 1, fill === 'special' ? 'even' : fill);
      const bias = withBias ? laid(dtype, [n], how[2]!, seed + 2, fill) : undefined;
      agree(
        trial(
          laid(dtype, [...lead, k], unlike(how[0]!, lead.length), seed, fill),
          weight,
          bias,
          roomFor(dtype, [...lead, n], how[3]!),
          owned,
        ),
      );
    },
  );
  holds(
    'weights and bias in halves beside f32, each in its own dtype',
    250,
    [
      stored,
      stored,
      size(0, 14),
      columns,
      around,
      fc.constantFrom<Fill>('even', 'special'),
      placements,
      seeds,
      size(0, 15),
      fc.boolean(),
    ],
    (ofWeight, ofBias, m, n, k, fill, how, seed, owned, withBias) => {
      const lead = m % 2 === 0 && m > 0 ? [2, m / 2] : [m];
      const weight = laid(ofWeight, [n, k], how[1]!, seed + 1, fill === 'special' ? 'even' : fill);
      const bias = withBias ? laid(ofBias, [n], how[2]!, seed + 2, fill) : undefined;
      agree(
        trial(
          laid('f32', [...lead, k], unlike(how[0]!, lead.length), seed, fill),
          weight,
          bias,
          roomFor('f32', [...lead, n], how[3]!),
          owned,
        ),
      );
    },
  );

  holds(
    'sums that pass the largest f32 on the way, or at the end',
    200,
    [largeMixes, size(0, 14), columns, around, placements, seeds, size(0, 15), largePowers],
    ([dtype, stored], m, n, k, how, seed, owned, power) => {
      const ofWeight = powerOf(power, stored);
      const weight = times(laid(stored, [n, k], unlike(how[1]!, 1), seed + 1), 2 ** ofWeight);
      const bias = seed % 2 ? times(laid(dtype, [n], how[2]!, seed + 2), 2 ** 126) : undefined;
      const x = times(laid(dtype, [m, k], unlike(how[0]!, 1), seed), 2 ** (power - ofWeight));
      agree(trial(x, weight, bias, roomFor(dtype, [m, n], how[3]!), owned));
    },
  );

  test('f16 weights: infinities and NaN at every place of a row, subnormals and both zeros; x that is large', () => {
    const values = [NaN, Infinity, -Infinity, 2 ** -24, -(2 ** -15), 65504, 0, -0];
    for (const [k, size] of [
      [16, 1],
      [32, 1],
      [37, 1],
      [37, 2 ** 14],
      [37, 2 ** 60],
    ] as const) {
      for (const value of values) {
        // Row n has the value at place n; x has no zero, so that its product with infinity does not depend on the order
        // of sums.
        const weight = f64Tensor(
          Array.from({ length: k * k }, (_, i) => (i % (k + 1) === 0 ? value : (i % 13) / 8)),
          [k, k],
          'f16',
        );
        agree(
          trial(
            f64Tensor(
              Array.from({ length: k }, (_, i) => (1 + i / 8) * size),
              [1, k],
              'f32',
            ),
            weight,
            undefined,
            roomFor('f32', [1, k], DENSE),
            0,
          ),
        );
      }
    }
  });

  const formats = fc.constantFrom(...BLOCK_FORMAT_NAMES);
  holds(
    'quantised weights: each side of every path',
    300,
    [
      mixes,
      formats,
      fc.constantFrom(1, 2, 8, 9, 20),
      columns,
      fc.constantFrom(0, 1, 2, 8, 9, 17),
      placements,
      seeds,
      size(0, 15),
    ],
    ([dtype, stored], format, m, n, units, how, seed, owned) => {
      const k = BLOCK_FORMATS[format].weights === 32 ? 32 * units : 256 * (units % 4);
      const weight = blocksOf(format, n, k, seed);
      agree(
        trial(
          laid(dtype, [m, k], unlike(how[0]!, 1), seed),
          weight,
          laid(stored, [n], how[2]!, seed + 2),
          roomFor(dtype, [m, n], how[3]!),
          owned,
        ),
      );
    },
  );

  for (const [dtype, stored] of MIXES) {
    test(`${dtype}, weights in ${stored}: many chunks: 1, 6 and 7 rows, and more than one block of rows`, () => {
      for (const [m, n, k] of some([
        [1, 601, 700],
        [6, 300, 517],
        [7, 700, 401],
        [770, 130, 70],
      ] as const)) {
        measure(`linear ${m}`);
        agree(
          trial(
            laid(dtype, [m, k], DENSE, m),
            laid(stored, [n, k], DENSE, n),
            laid(dtype, [n], DENSE, k),
            roomFor(dtype, [m, n], DENSE),
            2,
          ),
        );
      }
      const turned = laid(stored, [401, 300], DENSE, 8).permute([1, 0]);
      agree(
        trial(
          laid(dtype, [5, 401], DENSE, 9),
          turned as Float,
          undefined,
          roomFor(dtype, [5, 300], { ...DENSE, dense: false, step: 2 }),
          0,
        ),
      );
    });
  }
  holds(
    'quantised weights: sums and weights that pass the largest f32',
    150,
    [formats, fc.constantFrom(1, 2, 8, 9, 20), columns, fc.constantFrom(1, 2, 9), seeds, size(100, 127), fc.boolean()],
    (format, m, n, units, seed, power, rounded) => {
      const k = BLOCK_FORMATS[format].weights === 32 ? 32 * units : 256 * (units % 4);
      const weight = blocksOf(format, n, k, seed);
      const bytes = weight.bytes.storage.host as Uint8Array;
      // Half of mxfp4's: powers of two that are large themselves.
      const large = format === 'mxfp4' && seed % 2 === 1;
      if (large) for (let at = 0; at < bytes.length; at += 17) bytes[at] = 254 - (at % 5);
      const x = times(laid('f32', [m, k], DENSE, seed), large ? 2 ** (power - 127) : 2 ** (power - 1));
      agree(trial(x, weight, undefined, roomFor('f32', [m, n], DENSE), 0, rounded ? 'q8' : undefined));
    },
  );

  test('quantised weights, many chunks', () => {
    for (const format of some(BLOCK_FORMAT_NAMES)) {
      const k = BLOCK_FORMATS[format].weights === 32 ? 544 : 512;
      for (const m of [1, 20]) {
        const weight = blocksOf(format, 515, k, m);
        measure(`linear ${format} ${m}`);
        agree(trial(laid('f32', [m, k], DENSE, m), weight, undefined, roomFor('f32', [m, 515], DENSE), 2));
      }
    }
  });
});

describe('route', () => {
  const gates = fc.constantFrom('softmax', 'sigmoid', 'softmax-of-chosen');
  holds(
    'any sizes, options and layouts, to the bit',
    200,
    [
      dtypes,
      fc.tuple(size(0, 4), size(1, 4), size(1, 40)),
      fc.record({ gate: gates, normalize: fc.boolean(), scale: fc.constantFrom(1, 2.5, -0.5) }),
      maybe(fc.record({ used: size(1, 4), best: fc.constantFrom(1, 2) })),
      fc.constantFrom<Fill>('even', 'wide'),
      placements,
      seeds,
      size(0, 15),
    ],
    (dtype, [tokens, count, each], options, ofGroups, fill, how, seed, owned) => {
      const experts = count * each;
      const groups = ofGroups && { count, used: Math.min(count, ofGroups.used), best: ofGroups.best };
      const chosen = seed % (Math.min(12, groups ? groups.used * each : experts) + 1);
      const logits = laid(dtype, [tokens, experts], how[0]!, seed, fill);
      const bias = seed % 3 === 0 ? laid(dtype, [experts], how[3]!, seed + 1) : undefined;
      agree({ ...routeTrial(logits, chosen, groups ? { ...options, groups } : options, how, bias), owned });
    },
  );
  holds(
    'sparsemixer: any sizes and layouts, to the bit',
    100,
    [dtypes, fc.tuple(size(0, 4), size(2, 40)), fc.constantFrom(0, 0.01, 0.3), fc.boolean(), placements, seeds],
    (dtype, shape, jitter, normalize, how, seed) => {
      const logits = laid(dtype, shape, how[0]!, seed);
      agree({ ...routeTrial(logits, 2, { gate: 'sparsemixer', jitter, normalize }, how), owned: 0 });
    },
  );
  test('no tokens are no work, whatever the number of experts', () => {
    const { indices } = one.route(zeros('f32', [0, 2 ** 40]), { chosen: 2, gate: 'softmax' });
    assert.deepEqual(indices.shape, [0, 2]);
  });
  test('of equal scores the lower expert comes first; a sum below 2^-14 counts as that', () => {
    const logits = f64Tensor([1, 3, 3, 1, 3, 0], [1, 6], 'f32');
    const { indices, weights } = one.route(logits, { chosen: 4, gate: 'softmax-of-chosen' });
    assert.deepEqual([...(indices.read() as Int32Array)], [1, 2, 4, 0]);
    assert.equal(floats(weights)[0], floats(weights)[2]);
    const low = f64Tensor([-20, -30], [1, 2], 'f32');
    const small = floats(one.route(low, { chosen: 1, gate: 'sigmoid', normalize: true }).weights)[0]!;
    assert.equal(small, Math.fround((1 / (1 + Math.exp(20))) * 2 ** 14));
  });
});

describe('expert_linear', () => {
  const around = fc.constantFrom(0, 1, 3, 4, 8, 17, 32, 65, 257);
  const columns = fc.constantFrom(0, 1, 2, 7, 9, 65);
  // Few experts have many rows, many have few: both kinds of kernel, often in one call.
  holds(
    'any sizes, layouts and values',
    250,
    [
      mixes,
      fc.tuple(size(0, 20), size(0, 4), fc.constantFrom(1, 2, 5, 40)),
      columns,
      around,
      fc.constantFrom<Fill>('even', 'special'),
      placements,
      seeds,
      size(0, 63),
      fc.record({ bias: fc.boolean(), weighted: fc.boolean(), own: fc.boolean() }),
    ],
    ([dtype, stored], [tokens, chosen, experts], n, k, fill, how, seed, owned, { bias, weighted, own }) => {
      const x = laid(dtype, own ? [tokens, chosen, k] : [tokens, k], unlike(how[0]!, own ? 2 : 1), seed, fill);
      const weight = laid(stored, [experts, n, k], how[1]!, seed + 1, fill === 'special' ? 'even' : fill);
      const indices = indexOf(tokens * chosen, experts, seed).view([tokens, chosen]);
      const out = roomFor(dtype, weighted ? [tokens, n] : [tokens, chosen, n], how[2]!);
      const options = {
        bias: bias ? laid(stored, [experts, n], how[3]!, seed + 2, fill) : undefined,
        weights: weighted ? laid(dtype, [tokens, chosen], how[4]!, seed + 3) : undefined,
      };
      agree({ ...expertLinearTrial(x, weight, indices, out, options, dotError), owned });
    },
  );
  holds(
    'sums that pass the largest f32 on the way, or at the end',
    60,
    [largeMixes, size(0, 20), columns, around, placements, seeds, largePowers],
    ([dtype, stored], tokens, n, k, how, seed, power) => {
      const ofWeight = powerOf(power, stored);
      const x = times(laid(dtype, [tokens, k], unlike(how[0]!, 1), seed), 2 ** (power - ofWeight));
      const weight = times(laid(stored, [5, n, k], unlike(how[1]!, 2), seed + 1), 2 ** ofWeight);
      const indices = indexOf(tokens * 2, 5, seed).view([tokens, 2]);
      const out = roomFor(dtype, [tokens, 2, n], how[2]!);
      agree({ ...expertLinearTrial(x, weight, indices, out, {}, dotError), owned: 0 });
    },
  );
  holds(
    'quantised weights',
    60,
    [
      mixes,
      fc.constantFrom(...BLOCK_FORMAT_NAMES),
      fc.tuple(size(0, 20), size(0, 4), fc.constantFrom(1, 5, 40)),
      columns,
      fc.constantFrom(0, 1, 9),
      placements,
      seeds,
      size(0, 63),
    ],
    ([dtype], format, [tokens, chosen, experts], n, units, how, seed, owned) => {
      const k = BLOCK_FORMATS[format].weights === 32 ? 32 * units : 256 * (units % 4);
      const x = laid(dtype, [tokens, k], unlike(how[0]!, 1), seed);
      const indices = indexOf(tokens * chosen, experts, seed).view([tokens, chosen]);
      const weight = blocksOf(format, experts * n, k, seed, 0, [experts, n, k]);
      agree({
        ...expertLinearTrial(x, weight, indices, roomFor(dtype, [tokens, chosen, n], how[2]!), {}, dotError),
        owned,
      });
    },
  );
  test('many chunks: decoding, a prompt, and one expert with more than a block of rows', () => {
    for (const [tokens, chosen, experts, n, k] of some([
      [1, 8, 64, 300, 256],
      [64, 4, 16, 130, 160],
      [900, 1, 2, 70, 64],
    ] as const)) {
      const indices = indexOf(tokens * chosen, experts, tokens).view([tokens, chosen]);
      const x = laid('f32', [tokens, k], DENSE, 1);
      for (const weight of [
        laid('f16', [experts, n, k], DENSE, 2),
        blocksOf('q8_0', experts * n, k, 3, 0, [experts, n, k]),
      ]) {
        const weights = laid('f32', [tokens, chosen], DENSE, 4);
        measure(`expert_linear ${tokens}`);
        agree({
          ...expertLinearTrial(x, weight, indices, roomFor('f32', [tokens, n], DENSE), { weights }, dotError),
          owned: 2,
        });
      }
    }
  });
  test('only the chosen experts are read; an index outside is refused when the plan runs', () => {
    const weight = f64Tensor([1, 2, 3, 4, Number.NaN, Number.NaN], [3, 1, 2], 'f32');
    const x = f64Tensor([10, 1], [1, 2], 'f32');
    const chosen = (...ids: number[]) => tensorFrom<'i32'>(Int32Array.from(ids), { shape: [1, ids.length] });
    for (const rw of [one, two, plain]) {
      assert.deepEqual([...floats(rw.expertLinear(x, weight, chosen(1, 0)))], [34, 12]);
      for (const id of [-1, 3])
        assert.throws(() => rw.expertLinear(x, weight, chosen(0, id)), {
          code: 'RANGE',
          message: `expert_linear: indices: expected experts in [0, 2], got ${id}`,
        });
    }
  });
});

/**
 * Attention: a score is a sum of d products whose roundings nearly cancel: within e = u·Σ|q·k·scale| (see {@link
 * dotError}; there the worst of 100,000 sums counts, here an average over keys). A weight is off by e and by 4 u of the
 * exponential, relative to itself; the weighted average of v by twice that at most, and by a few u of its own sums: half a
 * u for each key where all values are alike, as every step may then round the same way. A softcap is a quotient of
 * exponentials: e again. Seen: 0.3 of it.
 */
const attentionError = (scores: number, capped: boolean, largest: number, keys: number): number =>
  ((capped ? 4 : 2) * scores + 8 + keys / 2) * U * largest + 2 ** -149;

describe('self_attention', () => {
  interface Sizes {
    readonly batch: number;
    readonly seq: number;
    readonly past: number;
    readonly kvHeads: number;
    readonly group: number;
    readonly d: number;
    readonly dv: number;
  }
  const trial = (
    [dtype, stored]: readonly [FloatDtype, FloatDtype],
    s: Sizes,
    options: SelfAttentionOptions,
    how: readonly Placement[],
    seed: number,
    owned: number,
    fill: readonly Fill[] = [],
    power?: number,
  ): Trial => {
    const total = s.past + s.seq;
    const heads = s.kvHeads * s.group;
    const q = laid(dtype, [s.batch, s.seq, heads, s.d], unlike(how[0]!, 3), seed, fill[0]);
    const k = laid(stored, [s.batch, total, s.kvHeads, s.d], how[1]!, seed + 1, fill[1]);
    const v = laid(stored, [s.batch, total, s.kvHeads, s.dv], how[2]!, seed + 2, fill[2]);
    if (power !== undefined) {
      const ofKey = powerOf(power, stored);
      times(q, seed % 3 ? 2 ** (power - ofKey) : 1);
      times(k, seed % 3 ? 2 ** ofKey : 1);
      if (seed % 3 < 2) times(v, stored === 'f16' ? 2 ** 14 : 2 ** 126);
    }
    const [qs, ks, vs] = [q, k, v].map(floats) as [Float64Array, Float64Array, Float64Array];
    const finite = (values: Float64Array) =>
      values.reduce((max, x) => (Number.isFinite(x) ? Math.max(max, Math.abs(x)) : max), 0);
    const largest = finite(vs);
    // The largest sum of |q·k| of each query: taken over all keys, seen or not.
    const scale = Math.abs(options.scale ?? 1 / Math.sqrt(s.d || 1));
    const sums = new Map<number, number>();
    const sumOf = (row: number): number => {
      let most = sums.get(row);
      if (most !== undefined) return most;
      most = 0;
      const head = Math.floor((row % heads) / s.group);
      const b = Math.floor(row / heads / s.seq);
      for (let t = 0; t < total; t++) {
        let sum = 0;
        for (let i = 0; i < s.d; i++)
          sum += Math.abs(qs[row * s.d + i]! * ks[((b * total + t) * s.kvHeads + head) * s.d + i]!);
        if (Number.isFinite(sum)) most = Math.max(most, sum * scale);
      }
      sums.set(row, most);
      return most;
    };
    const given = [q, k, v, roomFor(dtype, [s.batch, s.seq, heads, s.dv], how[3]!)];
    if (seed % 2 === 1) given.push(laid(stored, [heads], how[4] ?? DENSE, seed + 3, fill[3])); // sinks
    return {
      given,
      outs: [3],
      owned,
      plan: (t) =>
        planSelfAttention(tensorAt(t, 0), tensorAt(t, 1), tensorAt(t, 2), tensorAt(t, 3), {
          ...options,
          sinks: t[4] as Tensor | undefined,
        }),
      error: (_, n) => attentionError(sumOf(Math.floor(n / s.dv)), options.softcap !== undefined, largest, total),
    };
  };
  const small = fc.record({
    batch: size(0, 2),
    seq: fc.oneof(size(0, 6), size(7, 40)),
    past: fc.oneof(size(0, 6), size(90, 100)),
    kvHeads: size(1, 2),
    group: fc.constantFrom(1, 3, 8),
    d: fc.oneof(size(0, 9), fc.constantFrom(16, 31, 64)),
    dv: fc.oneof(size(0, 9), fc.constantFrom(12, 16, 31)),
  });
  // Wider than a block of 96 keys: then the first block hides nothing from the first query, but something from the
  // last.
  const spans = maybe(fc.oneof(size(1, 50), size(97, 120)));
  const options = fc.oneof(
    fc.record({ causal: fc.constant(true), window: spans, softcap: maybe(size(1, 50)), scale: maybe(size(-2, 2)) }),
    fc.record({ causal: fc.constant(false), softcap: maybe(size(1, 50)), scale: maybe(size(-2, 2)) }),
  );
  const chosen = (all: Record<string, unknown>): SelfAttentionOptions =>
    Object.fromEntries(Object.entries(all).filter(([, v]) => v !== undefined));

  holds(
    'any sizes, options and layouts',
    150,
    [mixes, small, options, placements, seeds, size(0, 15)],
    (mix, sizes, all, how, seed, owned) => {
      agree(trial(mix, sizes, chosen(all), how, seed, owned));
    },
  );
  holds(
    'NaN, infinities and zeros among queries and keys',
    80,
    [mixes, small, options, placements, seeds],
    (mix, sizes, all, how, seed) => {
      agree(
        trial(mix, sizes, chosen({ ...all, softcap: undefined }), how, seed, 0, [
          seed % 3 === 0 ? 'special' : 'even',
          'special',
          'even',
          'special',
        ]),
      );
    },
  );
  holds(
    'scores and sums of values that pass the largest f32 on the way',
    150,
    [largeMixes, small, options, placements, seeds, largePowers],
    ([dtype, stored], sizes, all, how, seed, power) => {
      const large = trial(
        [dtype, stored],
        sizes,
        chosen(all),
        how.map((one) => unlike(one, 3)),
        seed,
        0,
        [],
        power,
      );
      agree(large);
    },
  );
  holds(
    'what the mask hides is not read: NaN and infinity in values that a query does not see',
    60,
    [mixes, small, size(1, 50), placements, seeds],
    (mix, sizes, window, how, seed) => {
      agree(trial(mix, sizes, seed % 2 ? { window } : {}, how, seed, 0, ['even', 'special', 'special']));
    },
  );
  holds(
    'more queries than keys, each seeing all',
    40,
    [mixes, small, size(1, 5), placements, seeds],
    (mix, sizes, total, how, seed) => {
      agree(trial(mix, { ...sizes, past: total - sizes.seq }, { causal: false }, how, seed, 0));
    },
  );

  for (const mix of MIXES) {
    test(`${mix[0]}, a cache of ${mix[1]}: many chunks: prefill, decoding after a long past, a group larger than a unit`, () => {
      for (const [n, [s, o]] of some(
        Object.entries([
          [{ batch: 1, seq: 130, past: 0, kvHeads: 2, group: 3, d: 40, dv: 50 }, {}],
          [{ batch: 2, seq: 130, past: 31, kvHeads: 1, group: 1, d: 64, dv: 64 }, { window: 70 }],
          [{ batch: 1, seq: 1, past: 1000, kvHeads: 8, group: 2, d: 64, dv: 64 }, { softcap: 30 }],
          [{ batch: 3, seq: 2, past: 400, kvHeads: 4, group: 8, d: 67, dv: 33 }, {}],
          [{ batch: 1, seq: 2, past: 130, kvHeads: 2, group: 121, d: 8, dv: 8 }, {}],
          [{ batch: 1, seq: 40, past: 300, kvHeads: 2, group: 1, d: 8, dv: 8 }, { window: 150 }],
          [{ batch: 1, seq: 3, past: 300, kvHeads: 2, group: 2, d: 8, dv: 8 }, { window: 150 }],
        ] as const),
      )) {
        measure(`attention ${JSON.stringify(s)}`);
        agree(trial(mix, s, o, [DENSE, DENSE, DENSE, DENSE], Number(n), 6));
      }
    });
  }

  test('large scores: the largest is subtracted first; softcap bends them', () => {
    const given = (seq: number): [Float, Float, Float] => [
      f64Tensor(new Array(seq).fill(3000), [seq, 1, 1], 'f32'),
      f64Tensor([...new Array(seq - 1).fill(900), 1000], [seq, 1, 1], 'f32'),
      f64Tensor([...new Array(seq - 1).fill(7), 3], [seq, 1, 1], 'f32'),
    ];
    for (const rw of [one, two, plain]) {
      for (const seq of [2, 40]) {
        assert.equal(floats(rw.selfAttention(...given(seq))).at(-1), 3);
        // Both scores are at the cap: all keys weigh alike.
        const alike = (3 + 7 * (seq - 1)) / seq;
        assert.ok(Math.abs(floats(rw.selfAttention(...given(seq), { softcap: 5 })).at(-1)! - alike) <= 16 * U * alike);
      }
    }
  });

  test('a scale or softcap past the range of f32 is still a number', async () => {
    // As a user opens it: what the kernels cannot compute runs on the reference.
    const rw = await ropewalk({ backend: 'cpu', threads: 1 });
    const [q, k, v] = [
      f64Tensor([1, 1], [2, 1, 1], 'f32'),
      f64Tensor([9, 1], [2, 1, 1], 'f32'),
      f64Tensor([3, 4], [2, 1, 1], 'f32'),
    ];
    for (const options of [{ softcap: 1e39 }, { softcap: 1e-46 }, { scale: 1e39 }, { scale: 1e-50 }]) {
      const want = zeros('f32', [2, 1, 1]);
      runReference(planSelfAttention(q, k, v, want, options));
      const got = floats(rw.selfAttention(q, k, v, options));
      for (const [n, value] of floats(want).entries())
        assert.ok(Math.abs(got[n]! - value) <= 64 * U * 4, `${JSON.stringify(options)} [${n}] ${got[n]} ${value}`);
    }
    rw.dispose();
  });
});

test('the norm of a RoPE call takes its eps in float64: a row of zeros with the smallest eps stays zeros', () => {
  const plan = planRope({ headDim: 4, positions: [7], pairing: 'half', base: 1e4 });
  const out = zeros('f32', [1, 1, 4]);
  one.ropeParts(plan, [
    { x: zeros('f32', [1, 1, 4]), out, norm: { weight: f64Tensor([1, 1, 1, 1], [4], 'f32'), eps: 1e-50 } },
  ]);
  assert.deepEqual([...floats(out)], [0, 0, 0, 0]);
});

test('rows under thousands of dimensions of size 1 are found', () => {
  const x = f64Tensor([1, 2, 3, 4, 5, 6, 7, 8], [2, 4], 'f32');
  const weight = f64Tensor([1, 1, 1, 1], [4], 'f32');
  const deep = x.view([...new Array<number>(8000).fill(1), 2, 4]);
  assert.deepEqual(floats(one.rmsNorm(deep, weight, { eps: 1e-6 })), floats(one.rmsNorm(x, weight, { eps: 1e-6 })));
});
