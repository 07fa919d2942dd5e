/**
 * The backend `webgpu` against the float64 reference: the operators without matrix products, in f32, f16 and bf16, over
 * layouts, sizes and special values. Tensors are on the device, in separate host memory, or side by side in one buffer
 * that may be shared.
 *
 * WGSL lets a device take numbers below 2^-126 for zero, and software drivers do: where ours does, results may be off
 * by a few of those.
 */
import assert from 'node:assert/strict';
import { before, describe, test } from 'node:test';
import fc from 'fast-check';
import {
  activations,
  activationTrial,
  layerNormTrial,
  roundings,
  softcapError,
} from '../../../../test/support/bounds.js';
import { noGpu, sharedWebgpu } from '../../../../test/support/gpu.js';
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
  dtypes,
  emulate,
  exactOf,
  expertLinearTrial,
  FLOATS,
  type Float,
  fills,
  type Given,
  holds,
  hostCopy,
  indexOf,
  laid,
  laidBits,
  lookUpTrial,
  maybe,
  measure,
  mixes,
  type Placement,
  pair,
  placement,
  randomness,
  roomFor,
  routeTrial,
  type Shared,
  seeds,
  size,
  tensorAt,
  tiesOf,
  U,
} from '../../../../test/support/operators.js';
import { f64Tensor, floats } from '../../../../test/support/tensors.js';
import type { WebgpuBackend } from '../../src/backends/webgpu/host.js';
import { KERNEL_FORMATS, type KernelFormat } from '../../src/backends/webgpu/shaders/linear.js';
import { BLOCK_FORMATS } from '../../src/core/block-formats.js';
import { isBlocks } from '../../src/core/blocks.js';
import {
  arrayOver,
  bitsOf,
  DTYPES,
  type Dtype,
  type FloatDtype,
  newArray,
  roundTo,
  sizeBytes,
  storeNumber,
} from '../../src/core/dtypes.js';
import { numberFromBf16, numberFromF16 } from '../../src/core/float16.js';
import { walk } from '../../src/core/shape.js';
import { Tensor, type TensorStorage, tensorFrom, zeros } from '../../src/core/tensor.js';
import { planAdd } from '../../src/ops/add.js';
import { planGeglu, planGelu } from '../../src/ops/gelu.js';
import { planLayerNorm } from '../../src/ops/layer-norm.js';
import { planRearrange } from '../../src/ops/rearrange.js';
import { planRmsNorm } from '../../src/ops/rms-norm.js';
import { bindRope, bindRopeParts, type RopePartOptions } from '../../src/ops/rope/call.js';
import { type PlanRopeOptions, planRope, type RopePlan } from '../../src/ops/rope/plan.js';
import { planScale } from '../../src/ops/scale.js';
import { planSwiglu } from '../../src/ops/swiglu.js';
import { runReference } from '../../src/reference/index.js';
import { Ropewalk } from '../../src/ropewalk.js';

/**
 * The places of tensors. Bit n of `owned` puts tensor n on the device; the others are separate, or in one buffer without a
 * gap.
 */
interface Homes {
  readonly owned: number;
  readonly host: 'apart' | 'one buffer' | 'one shared buffer';
}
const homes: fc.Arbitrary<Homes> = fc.record({
  owned: size(0, 31),
  host: fc.constantFrom<Homes['host']>('apart', 'apart', 'one buffer', 'one shared buffer'),
});
const HOST: Homes = { owned: 0, host: 'apart' };
const DEVICE: Homes = { owned: -1, host: 'apart' };
const PACKED: Homes = { owned: 0, host: 'one buffer' };

/** Layouts in which words hold whole elements and loads may be of four, and all others. */
const placements = fc.array(
  fc.oneof(
    placement,
    placement.map((how): Placement => ({ ...how, turn: 0, step: 1, pad: how.pad * 4, lead: how.lead * 4 })),
  ),
  { minLength: 6, maxLength: 6 },
);

/** Layouts by hand: dense; with single loads; backwards; transposed, with loads of four. */
const HOW: readonly Placement[] = [
  DENSE,
  { ...DENSE, dense: false, step: 2, lead: 1 },
  { ...DENSE, dense: false, backwards: 7, pad: 3 },
  { ...DENSE, dense: false, turn: 1, pad: 4, lead: 4 },
];

/** Shapes of up to six dimensions; the last is around the widths of loads and workgroups. */
const shapes = fc
  .tuple(fc.array(size(1, 4), { maxLength: 5 }), fc.constantFrom(0, 1, 2, 3, 5, 7, 8, 64, 65, 100))
  .map(([lead, last]) => [...lead.map((n, d) => (lead.slice(0, d).reduce((a, b) => a * b, 1) > 16 ? 1 : n)), last]);
const SIZES = [0, 1, 2, 3, 5, 7, 8, 64, 65, 100, 1000, 1001];

let backend: WebgpuBackend;
let rw: Ropewalk;
/**
 * How far results may be off where the device takes numbers below 2^-126 for zero: a few of those, times what
 * multiplies them.
 */
let tiny = 0;
before(async () => {
  if (noGpu) return;
  backend = (await sharedWebgpu()) as WebgpuBackend;
  rw = new Ropewalk(backend);
  const [sum] = await rw
    .add(tensorFrom<'f32'>(Float32Array.of(2 ** -130)), tensorFrom<'f32'>(Float32Array.of(0)))
    .read();
  if (sum === 0) tiny = 2 ** -123;
});

/** Puts the same tensors in the chosen places, and gives the bytes of the buffer that those of the host share. */
function settle(given: Given, { owned, host }: Homes): { got: Given; bytes: Uint8Array | undefined } {
  const starts = new Map<TensorStorage, number>();
  let end = 1; // so that the first does not start where the buffer does
  for (const [n, one] of given.entries()) {
    const { storage, dtype } = isBlocks(one) ? one.bytes : one;
    if (owned & (1 << n) || starts.has(storage)) continue;
    const unit = sizeBytes(dtype);
    starts.set(storage, Math.ceil(end / unit) * unit);
    end = starts.get(storage)! + storage.length * unit;
  }
  const memory =
    host === 'apart' ? undefined : host === 'one buffer' ? new ArrayBuffer(end) : new SharedArrayBuffer(end);
  const bytes = memory && new Uint8Array(memory).fill(0xa5);
  const got = copyWith(given, (storage, n) => {
    const { dtype, length } = storage;
    if (owned & (1 << n)) return rw.upload(tensorFrom(storage.host!, { dtype })).storage;
    const array = memory ? arrayOver(dtype, memory, starts.get(storage)!, length) : newArray(dtype, length);
    (bitsOf(array) as Uint8Array).set(bitsOf(storage.host!) as Uint8Array);
    return tensorFrom(array, { dtype }).storage;
  });
  return { got, bytes };
}

/** Lays a tensor over a copy of its whole storage in host memory. */
async function inHost(tensor: Tensor): Promise<Tensor> {
  const { dtype, shape, strides, offset } = tensor;
  return tensorFrom(await tensor.storage.read(), { dtype, shape, strides, offset });
}

/** Runs a trial and compares every output with the reference, and everything else with its previous content. */
async function agree(trial: Shared, where: Homes = HOST): Promise<void> {
  const { given, outs, plan } = trial;
  const want = trial.error ? exactOf(given) : hostCopy(given);
  runReference(plan(want));
  const { got, bytes } = settle(given, where);
  const was = bytes && Uint8Array.from(bytes);
  rw.run(plan(got));
  await rw.finish();
  const written = new Set(outs.map((n) => tensorAt(given, n).storage));
  for (const [n, one] of got.entries()) {
    const tensor = isBlocks(one) ? one.bytes : one;
    const back = await inHost(tensor);
    const from = given[n]!;
    const { storage } = isBlocks(from) ? from.bytes : from;
    if (outs.includes(n)) compare({ tiny, ...trial, owned: 0 }, n, back, tensorAt(want, n));
    else if (!written.has(storage))
      assert.deepEqual(bitsOf(back.storage.host!), bitsOf(storage.host!), `given[${n}], which is only read`);
    const { host } = tensor.storage;
    if (was && host?.buffer === bytes!.buffer)
      was.set(bytes!.subarray(host.byteOffset, host.byteOffset + host.byteLength), host.byteOffset);
  }
  assert.deepEqual(bytes, was, 'bytes of the buffer that are no tensor’s');
  for (const tensor of got) tensor.dispose();
}

describe('add', { skip: noGpu }, () => {
  holds(
    'any layout, any values, in place: the reference to the bit',
    200,
    [dtypes, shapes, fills, placements, seeds, homes, size(0, 2)],
    (dtype, shape, fill, how, seed, where, place) => agree(addTrial(pair(dtype, shape, how, seed, fill, place)), where),
  );

  for (const dtype of FLOATS) {
    test(`${dtype}: every size from every first element; what shares a word with the output keeps its bits`, async () => {
      for (const n of SIZES) {
        for (const lead of [0, 1, 2, 3, 4]) {
          const how = { ...DENSE, dense: false, lead };
          const given = [
            laid(dtype, [n], how, n),
            laid(dtype, [n], n % 2 ? DENSE : how, lead),
            roomFor(dtype, [n], how),
          ] as const;
          await agree(addTrial(given), { owned: lead, host: n % 3 ? 'apart' : 'one buffer' });
        }
      }
    });
  }

  for (const [dtype, widen] of [
    ['f16', numberFromF16],
    ['bf16', numberFromBf16],
  ] as const) {
    test(`${dtype}: all 65536 patterns are read and written, four at a time and one by one`, async () => {
      const all = Uint16Array.from({ length: 65536 }, (_, bits) => bits);
      const minusZero = tensorFrom(new Uint16Array(65536).fill(0x8000), { dtype });
      const apart = zeros(dtype, [131072]);
      for (const out of [undefined, tensorFrom(apart.storage.host!, { dtype, shape: [65536], strides: [2] })]) {
        const got = await rw.add(tensorFrom(all, { dtype }), minusZero, out && { out }).read();
        for (const [bits, sum] of got.entries()) {
          const [value, want] = [widen(sum), widen(bits)];
          const near = want !== 0 && Math.abs(value - want) <= tiny;
          if (!Object.is(value, want) && !near) assert.fail(`${bits.toString(16)}: ${value}, want ${want}`);
        }
      }
    });
  }

  test('f16 sums overflow to infinity from 65520 on, and bf16 next to the largest f32', async () => {
    for (const [dtype, x, y] of [
      ['f16', 65504, 15],
      ['f16', 65504, 16],
      ['f16', -65504, -16],
      ['f16', 65504, 65504],
      ['bf16', 2 ** 127 * 1.9921875, 2 ** 119],
      ['bf16', 2 ** 127 * 1.9921875, 2 ** 118],
    ] as const) {
      for (const n of [1, 8]) {
        const [a, b] = [x, y].map((v) => f64Tensor(new Array(n).fill(v), [n], dtype)) as [Float, Float];
        assert.deepEqual(
          [...(await rw.add(a, b).readNumbers())],
          new Array(n).fill(roundTo(dtype, x + y)),
          `${dtype} ${x} + ${y}`,
        );
      }
    }
  });
  test('5,000,000 elements: more workgroups than a dimension of the grid has', async () => {
    const n = 5_000_000;
    const x = Float32Array.from({ length: n }, (_, i) => i);
    for (const stride of [1, 2]) {
      const a = rw.upload(x);
      const out = rw.upload(new Float32Array(n * stride));
      rw.add(a, a, { out: new Tensor(out.storage, { shape: [n], strides: [stride] }) });
      const got = (await out.read()) as Float32Array;
      for (let i = 0; i < n; i++) if (got[i * stride] !== 2 * i) assert.fail(`[${i}] ${got[i * stride]}`);
      for (const t of [a, out]) t.dispose();
    }
  });
});

/**
 * WGSL promises 2.5 units (5 u) of a quotient. Numbers below 2^-126 on the way may become zero: e^−|w|, its product with x,
 * up, and the product of both.
 */
const ACTIVATIONS = activations(5, (x, up) => (Math.abs(up) + 1) * (Math.abs(x) + 1) * 2 ** -126);

for (const activation of ACTIVATIONS) {
  const { name, activated } = activation;
  describe(name, { skip: noGpu }, () => {
    const trial = (given: readonly [Float, Float, Float]): Shared => {
      const [xs, ups] = [floats(given[0]), floats(given[1])];
      const shared = activationTrial(activation, given, 2 ** -125);
      // Infinity times what the device takes for zero is NaN.
      const free = (n: number) => activated !== undefined && !Number.isFinite(xs[n]!) && Math.abs(ups[n]!) < 2 ** -125;
      return { ...shared, free: (n) => shared.free!(n) || free(n) };
    };
    holds(
      `${name}: any layout, any values, in place`,
      name === 'swiglu' ? 150 : 30,
      [dtypes, shapes, fills, placements, seeds, homes, size(0, 2)],
      (dtype, shape, fill, how, seed, where, place) => agree(trial(pair(dtype, shape, how, seed, fill, place)), where),
    );

    for (const dtype of FLOATS) {
      test(`${dtype}: from −120 to 120 and at infinity`, async () => {
        measure(`${name} ±120`);
        const n = 50003;
        const xs = Float64Array.from({ length: n }, (_, i) => (i / (n - 1)) * 240 - 120);
        xs.set([-Infinity, Infinity, NaN, -0, 0, 100, -100, -88, -87.5, -103.5, -104, -3e38, 3e38]);
        const strided = roomFor(dtype, [n], { ...DENSE, dense: false, step: 2 });
        for (const out of [roomFor(dtype, [n], DENSE), strided])
          await agree(trial([f64Tensor(xs, [n], dtype), laid(dtype, [n], DENSE, 3), out]));
      });
    }

    test('f32: near 0, and where the result vanishes', async () => {
      measure(`${name} ±15`);
      const n = 60000;
      const xs = Float64Array.from({ length: n }, (_, i) =>
        i % 2 ? (i / (n - 1)) * 30 - 15 : (i % 4 ? 1 : -1) * 2 ** (-i / 500),
      );
      await agree(trial([f64Tensor(xs, [n], 'f32'), laid('f32', [n], DENSE, 3), roomFor('f32', [n], DENSE)]));
    });
  });
}

test('scale, a factor for each row: any layout, with and without a soft cap', { skip: noGpu }, async () => {
  measure('scale rows');
  for (const [dtype, shape] of [
    ['f32', [3, 5, 8]],
    ['f16', [2, 7]],
    ['bf16', [1, 4, 65]],
    ['f32', [4, 1]],
  ] as const) {
    for (const softcap of [undefined, 2.7]) {
      for (const turn of [0, 1]) {
        const how: Placement = { ...DENSE, dense: turn === 0, turn, lead: 3 };
        const given = [laid(dtype, shape, how, 1), laid(dtype, shape.slice(0, -1), how, 2), roomFor(dtype, shape, how)];
        await agree(
          {
            given,
            outs: [2],
            plan: (t) => planScale(tensorAt(t, 0), tensorAt(t, 1), tensorAt(t, 2), { softcap }),
            error: (exact) =>
              (softcap ? softcapError(1, 5, dtype) : roundings(1, dtype)) * Math.abs(exact) + 5 * 2 ** -126,
          },
          turn ? PACKED : DEVICE,
        );
      }
    }
  }
});

/**
 * RMS norm: the mean of squares is a sum whose roundings nearly cancel, within 6 u, of which the root takes half. WGSL
 * promises 3.5 units (7 u) of a root and 2.5 (5 u) of a quotient; then a product, and one by a power of two. Seen: 4 u
 * before the last.
 */
const NORM = 16 * U;

describe('rms_norm', { skip: noGpu }, () => {
  const trial = (x: Float, w: Float, out: Float, eps: number): Shared => {
    const ws = floats(w);
    return {
      given: x === out ? [w, x] : [w, out, x],
      outs: [1],
      plan: (t) => planRmsNorm(tensorAt(t, x === out ? 1 : 2), tensorAt(t, 0), tensorAt(t, 1), { eps }),
      // An element far smaller than its row's norm may count as zero.
      error: (exact, n) => NORM * Math.abs(exact) + Math.abs(ws[n % ws.length]!) * 2 ** -100 + 2 ** -126,
    };
  };
  const epsilons = fc.constantFrom(0, 1e-12, 1e-6, 1e-5, 1);
  holds(
    'rows: any layout, any values, in place',
    200,
    // A row of numbers that the device takes for zero is one of zeros.
    [mixes, shapes, fills, placements, seeds, epsilons, homes, fc.boolean()],
    ([dtype, stored], shape, fill, how, seed, eps, where, inPlace) => {
      const x = laid(dtype, shape, inPlace ? { ...how[0]!, repeat: 0 } : how[0]!, seed, fill);
      if (tiny > 0)
        walk(x, (at) => {
          const value = Math.abs(floats(tensorFrom(x.storage.host!, { dtype, shape: [1], offset: at }))[0]!);
          if (value > 0 && value < 2 ** -126) storeNumber(x.storage.host!, dtype, at, 1);
        });
      const w = laid(stored, shape.slice(-1), how[1]!, seed + 1, fill === 'special' ? 'wide' : fill);
      return agree(trial(x, w, inPlace ? x : roomFor(dtype, shape, how[2]!), eps), where);
    },
  );

  test('squares past the largest f32, rows of tiny numbers, rows of zeros, any eps', async () => {
    measure('rms_norm extremes');
    for (const [dtype, scale, eps] of [
      ['f32', 2 ** 127, 1e-5],
      ['f32', 2 ** 127, 1e37],
      ['f32', 1e18, 1e-6],
      ['f32', 1e15, 1e37],
      ['f32', 1e-18, 1e-6],
      ['f32', 1e-18, 0],
      ['f32', 1e-20, 1e-40],
      ['f32', 1e-30, 0],
      ['f32', 1e-30, 1e-50],
      ['f32', 0, 1e-300],
      ['f32', 0, 0],
      ['f16', 30000, 1e-5],
      ['f16', 2 ** -23, 0],
      ['bf16', 2 ** 127, 1e-5],
      ['bf16', 2 ** -110, 0],
    ] as const) {
      for (const n of [1, 3, 8, 64, 300]) {
        const random = randomness(n);
        const values = Float64Array.from(
          { length: 2 * n },
          () => (random() < 0.5 ? 0.1 + random() : -0.1 - random()) * scale * 0.9,
        );
        await agree(
          trial(f64Tensor(values, [2, n], dtype), laid(dtype, [n], DENSE, n), roomFor(dtype, [2, n], DENSE), eps),
        );
      }
    }
  });

  for (const dtype of FLOATS) {
    test(`${dtype}: rows of 8192 and 8193, at 1e18 and 1e-18 too`, async () => {
      for (const d of [8192, 8193]) {
        for (const scale of dtype === 'f16' ? [1] : [1, 1e18, 1e-18]) {
          measure(`rms_norm ${d}`);
          const values = floats(laid('f32', [3, d], DENSE, d)).map((v) => v * scale);
          await agree(
            trial(
              f64Tensor(values, [3, d], dtype),
              laid(dtype, [d], DENSE, 2),
              roomFor(dtype, [3, d], DENSE),
              1e-6 * scale ** 2,
            ),
          );
        }
      }
    });
  }

  test('70,000 rows: more workgroups than a dimension of the grid has', async () => {
    for (const [dtype, d] of [
      ['f32', 1],
      ['f16', 3],
    ] as const) {
      measure(`rms_norm 70000 × ${d}`);
      await agree(
        trial(laid(dtype, [70_000, d], DENSE, 1), laid(dtype, [d], DENSE, 2), roomFor(dtype, [70_000, d], DENSE), 1e-6),
      );
    }
  });
});

describe('layer_norm', { skip: noGpu }, () => {
  /**
   * As RMS norm, and x − mean, 2 u. The mean is two numbers, of which the second has the error of a sum, within 6 u of
   * the row's deviation; what both leave is below 2^-44 of the mean.
   */
  const trial = (x: Float, w: Float, bias: Float | undefined, out: Float, eps: number): Shared =>
    layerNormTrial(x, w, bias, out, eps, ({ exact, normed, weight, mean, factor }) => {
      const ofMean = 6 * U + Math.abs(mean) * factor * 2 ** -44 + 2 ** -100;
      return (NORM + 2 * U) * Math.abs(normed) + U * Math.abs(exact) + weight * ofMean + 2 ** -126;
    });
  holds(
    'rows: any layout, any values, in place, with and without a bias',
    80,
    [
      mixes,
      shapes,
      fc.constantFrom('even' as const, 'wide' as const),
      placements,
      seeds,
      homes,
      fc.boolean(),
      fc.boolean(),
    ],
    ([dtype, stored], shape, fill, how, seed, where, inPlace, shifted) => {
      const x = laid(dtype, shape, inPlace ? { ...how[0]!, repeat: 0 } : how[0]!, seed, fill);
      const [w, bias] = [1, 2].map((n) => laid(stored, shape.slice(-1), how[n]!, seed + n, fill)) as [Float, Float];
      return agree(trial(x, w, shifted ? bias : undefined, inPlace ? x : roomFor(dtype, shape, how[3]!), 1e-5), where);
    },
  );

  test('rows far from 0, of tiny numbers, of huge ones, all alike, with a NaN', async () => {
    measure('layer_norm extremes');
    for (const [dtype, center, spread, eps] of [
      ['f32', 1e6, 1, 1e-12],
      ['f32', -3e4, 1e-2, 1e-9],
      ['f32', 0, 2 ** 127, 1e-5],
      ['f32', 0, 1.9 * 2 ** 127, 1e-5],
      ['f32', 0, 1e18, 1e-5],
      ['f32', 0, 1e-18, 0],
      ['f32', 0, 1e-20, 1e-40],
      ['f32', 0, 1e-30, 0],
      ['f32', 7.3, 0, 1e-5],
      ['f32', Number.NaN, 1, 1e-5],
      ['f16', 30000, 1000, 1e-5],
      ['f16', 0, 2 ** -20, 0],
      ['bf16', 2 ** 120, 2 ** 119, 1e-5],
    ] as const) {
      for (const n of [3, 8, 64, 300]) {
        const random = randomness(n);
        const values = Float64Array.from({ length: 2 * n }, () => center + (random() - 0.5) * spread * 2);
        const [w, bias] = [laid(dtype, [n], DENSE, n), laid(dtype, [n], DENSE, n + 1)];
        await agree(trial(f64Tensor(values, [2, n], dtype), w, bias, roomFor(dtype, [2, n], DENSE), eps));
      }
    }
  });

  for (const dtype of FLOATS) {
    test(`${dtype}: rows of 8192 and 8193`, async () => {
      for (const d of [8192, 8193]) {
        measure(`layer_norm ${d}`);
        const [x, w, bias] = [laid(dtype, [3, d], DENSE, d), laid(dtype, [d], DENSE, 2), laid(dtype, [d], DENSE, 3)];
        await agree(trial(x, w, bias, roomFor(dtype, [3, d], DENSE), 1e-6));
      }
    });
  }
});

describe('argmax', { skip: noGpu }, () => {
  const check = (values: Float, index: 'i64' | 'i32', how: readonly Placement[], where: Homes): Promise<void> =>
    agree(argmaxTrial(values, index, how), where);
  const indices = fc.constantFrom('i64' as const, 'i32' as const);
  holds(
    'any layout; ties, NaN and infinities everywhere',
    120,
    [dtypes, shapes.map((shape) => shape.slice(-4)), placements, seeds, homes, indices, size(1, 11)],
    (dtype, shape, how, seed, where, index, kinds) => {
      const values = roomFor(dtype, shape.at(-1) === 0 ? shape.with(-1, 1) : shape, how[0]!, false);
      const random = randomness(seed);
      const choices = [-1, 0, -0, 2, 2, -Infinity, Infinity, NaN, 1, 2 ** -149, -(2 ** -24)].slice(0, kinds);
      walk(values, (at) =>
        storeNumber(values.storage.host!, dtype, at, choices[Math.floor(random() ** 2 * choices.length)]!),
      );
      return check(values, index, how, where);
    },
  );

  test('any bits: subnormals have their order, NaN keeps its payload', async () => {
    for (const dtype of FLOATS) {
      await check(laidBits(dtype, [20, 3], DENSE, 5) as Float, 'i64', [DENSE, DENSE, DENSE], HOST);
      const small = Float64Array.from(
        { length: 600 },
        (_, i) => ((i * 7) % 11) * (i % 2 ? -1 : 1) * (dtype === 'f16' ? 2 ** -24 : 2 ** -133),
      );
      await check(f64Tensor(small, [60, 3], dtype), 'i32', [DENSE, DENSE, DENSE], DEVICE);
    }
  });

  test('the largest at every place of a row; 0 rows', async () => {
    await check(zeros('f32', [0, 5]), 'i64', [DENSE, DENSE, DENSE], HOST);
    for (const dtype of FLOATS) {
      for (const n of [1, 2, 3, 8, 33, 257]) {
        for (const top of n === 257 ? [1] : [1, NaN, Infinity]) {
          const rows = Float64Array.from({ length: n * n }, (_, i) =>
            Math.floor(i / n) === i % n ? top : -1 - (i % 3),
          );
          await check(f64Tensor(rows, [n, n], dtype), n % 2 ? 'i32' : 'i64', [DENSE, DENSE, DENSE], HOST);
        }
      }
    }
  });

  test('long rows', async () => {
    for (const dtype of FLOATS) await check(laid(dtype, [7, 10_003], DENSE, 4), 'i64', [DENSE, DENSE, DENSE], DEVICE);
  });

  test('70,000 rows: more workgroups than a dimension of the grid has', async () => {
    await check(laid('f32', [70_000, 2], DENSE, 4), 'i64', [DENSE, DENSE, DENSE], DEVICE);
    await check(laid('f16', [70_000, 3], DENSE, 4), 'i32', [DENSE, DENSE, DENSE], HOST);
  });
});

/**
 * A weight is a score over the sum of the chosen ones'. A score is e^z within 4 u and |z| u, over a sum of such, and
 * WGSL promises a quotient within 2.5 units (5 u): logits are in [-8, 8], so that both are within 40 u. The sum of the
 * chosen and its quotient add as much again, and a unit for each term.
 */
const routeError = (chosen: number, exact: number): number => (80 + chosen) * U * Math.abs(exact) + 2 ** -120;

describe('route', { skip: noGpu }, () => {
  // Few variants, as a software driver compiles each; several layouts of each.
  for (const [dtype, [experts, chosen], options, withBias] of [
    ['f32', [8, 2], { gate: 'softmax', normalize: true }, false],
    ['f16', [40, 6], { gate: 'softmax', scale: 2.5 }, false],
    ['f32', [300, 8], { gate: 'softmax', groups: { count: 6, used: 2, best: 1 } }, false],
    ['f32', [64, 8], { gate: 'sigmoid', normalize: true, groups: { count: 8, used: 3, best: 2 } }, true],
    ['bf16', [33, 4], { gate: 'sigmoid', scale: -0.5 }, true],
    ['f32', [5, 5], { gate: 'sigmoid', groups: { count: 5, used: 5, best: 2 } }, false],
    ['f32', [128, 4], { gate: 'softmax-of-chosen' }, true],
    ['f16', [3, 1], { gate: 'softmax-of-chosen', normalize: true }, false],
    // A reach that ends between two logits, which are 12 / 40 apart: no rounding changes who is near.
    ['f32', [40, 2], { gate: 'sparsemixer', jitter: 0.07 }, false],
  ] as const) {
    test(`${dtype} ${experts} ${JSON.stringify(options)}${withBias ? ', a bias' : ''}`, async () => {
      measure(`route ${options.gate}`);
      for (const seed of [1, 2, 3]) {
        const tokens = seed === 3 ? 7 : seed;
        const random = randomness(seed);
        // Logits are spread evenly, so that no rounding changes their order, which differs from token to token.
        const logits = roomFor(dtype, [tokens, experts], HOW[seed]!, false);
        const rows = Array.from({ length: tokens }, () =>
          Array.from({ length: experts }, (_, e) => ({ z: (e * 12) / experts - 6, at: random() }))
            .sort((a, b) => a.at - b.at)
            .map(({ z }) => z),
        ).flat();
        walk(logits, (at, n) => storeNumber(logits.storage.host!, dtype, at, rows[n]!));
        const bias = withBias ? laid(dtype, [experts], HOW[seed]!, seed) : undefined;
        const how = [DENSE, HOW[seed]!, HOW[seed]!];
        const trial = routeTrial(logits, chosen, options, how, bias);
        await agree({ ...trial, error: (exact) => routeError(chosen, exact) }, seed === 2 ? DEVICE : HOST);
      }
    });
  }
  test('ties go to the lower expert; a sum below 2^-14 counts as that; no tokens', async () => {
    const { indices, weights } = rw.route(f64Tensor([1, 3, -0, 3, 0, 3], [1, 6], 'f32') as Tensor<'f32'>, {
      gate: 'softmax-of-chosen',
      chosen: 6,
    });
    assert.deepEqual([...(await indices.read())], [1, 3, 5, 0, 2, 4]);
    const [first, , third] = await weights.read();
    assert.equal(first, third);
    const low = rw.route(f64Tensor([-20, -30], [1, 2], 'f32') as Tensor<'f32'>, {
      gate: 'sigmoid',
      chosen: 1,
      normalize: true,
    });
    const [small] = await low.weights.read();
    const exact = 2 ** 14 / (1 + Math.exp(20));
    assert.ok(Math.abs(small! - exact) <= routeError(1, exact), `${small} ${exact}`);
    await agree(routeTrial(zeros('f32', [0, 8]), 2, { gate: 'softmax-of-chosen' }, [DENSE, DENSE, DENSE]));
  });
});

/**
 * A sum of k products in f32: off by at most (k + 2)·u·Σ|products|, and by (√k + 4)·u·Σ in fact (see
 * webgpu-linear.gpu.test.ts).
 */
const sumError = (k: number, products: number): number =>
  Math.min(Math.sqrt(k) + 4, k + 2) * U * products + (k + 2) * 2 ** -126;

describe('expert_linear', { skip: noGpu }, () => {
  for (const [dtype, stored, [tokens, chosen, experts, n, k], { own, bias, weighted }, n4] of [
    ['f32', 'f32', [1, 4, 8, 16, 64], { own: false, bias: false, weighted: false }, 0],
    ['f32', 'f16', [5, 2, 8, 12, 40], { own: false, bias: true, weighted: true }, 0],
    ['f32', 'bf16', [3, 3, 4, 7, 33], { own: true, bias: true, weighted: false }, 2],
    ['f16', 'f16', [3, 2, 4, 9, 70], { own: true, bias: false, weighted: true }, 3],
    ['bf16', 'bf16', [4, 1, 2, 8, 16], { own: false, bias: true, weighted: true }, 1],
    ['f32', 'q8_0', [2, 3, 6, 10, 96], { own: true, bias: false, weighted: true }, 0],
    ['f32', 'q4_0', [70, 2, 3, 8, 64], { own: false, bias: true, weighted: false }, 0],
    ['f32', 'q4_K', [2, 2, 3, 6, 512], { own: true, bias: true, weighted: true }, 0],
    ['f32', 'q6_K', [3, 2, 3, 5, 256], { own: false, bias: false, weighted: false }, 0],
    ['f32', 'f32', [2, 0, 3, 8, 4], { own: false, bias: false, weighted: true }, 0],
    ['f32', 'f32', [2, 2, 3, 5, 0], { own: false, bias: true, weighted: true }, 0],
    ['f32', 'f32', [0, 2, 3, 5, 4], { own: false, bias: false, weighted: false }, 0],
  ] as const) {
    test(`${dtype}, ${stored}: ${[tokens, chosen, experts, n, k]} ${JSON.stringify({ own, bias, weighted })}`, async () => {
      measure(`expert_linear ${stored}`);
      const how = HOW[n4]!;
      const blocks = stored in BLOCK_FORMATS;
      const weight = blocks
        ? blocksOf(stored as KernelFormat, experts * n, k, 3, 1, [experts, n, k])
        : laid(stored as FloatDtype, [experts, n, k], how, 3);
      const x = laid(dtype, own ? [tokens, chosen, k] : [tokens, k], how, 4);
      const indices = indexOf(tokens * chosen, experts, 5).view([tokens, chosen]);
      const options = {
        bias: bias ? laid(blocks ? 'f32' : (stored as FloatDtype), [experts, n], how, 6) : undefined,
        weights: weighted ? laid(dtype, [tokens, chosen], how, 7) : undefined,
      };
      const out = roomFor(dtype, weighted ? [tokens, n] : [tokens, chosen, n], how);
      for (const where of [HOST, DEVICE])
        await agree(expertLinearTrial(x, weight, indices, out, options, sumError), where);
    });
  }
  test('matrices that are turned, as of MLA; an index outside takes the nearest expert', async () => {
    const turned = laid('f32', [3, 16, 20], DENSE, 1).permute([0, 2, 1]) as Float;
    const x = laid('f32', [2, 3, 16], DENSE, 2);
    const heads = tensorFrom(Int32Array.of(0, 1, 2, 0, 1, 2), { shape: [2, 3] });
    await agree(expertLinearTrial(x, turned, heads, roomFor('f32', [2, 3, 20], DENSE), {}, sumError));
    const weight = tensorFrom<'f32'>(Float32Array.of(1, 2, 3), { shape: [3, 1, 1] });
    const outside = tensorFrom<'i32'>(Int32Array.of(-5, 1, 7), { shape: [1, 3] });
    const got = await rw
      .expertLinear(tensorFrom<'f32'>(Float32Array.of(10), { shape: [1, 1] }), weight, outside)
      .read();
    assert.deepEqual([...got], [10, 20, 30]);
  });
});

describe('embedding and rearrange', { skip: noGpu }, () => {
  const all = fc.constantFrom<Dtype>(...DTYPES);
  holds(
    'embedding: every dtype and layout, bit for bit',
    200,
    [all, size(0, 9), fc.oneof(size(0, 20), fc.constantFrom(64, 65)), size(1, 7), placements, seeds, homes],
    (dtype, count, width, rows, how, seed, where) => {
      const given = [
        indexOf(count, rows, seed),
        laidBits(dtype, [rows, width], how[0]!, seed),
        roomFor(dtype, [count, width], how[1]!),
      ];
      return agree(lookUpTrial(given), { ...where, owned: where.owned & ~1 });
    },
  );
  holds(
    'rearrange: every dtype, up to six dimensions turned any way, bit for bit',
    250,
    [all, shapes, placements, seeds, homes],
    (dtype, shape, how, seed, where) =>
      agree(copyTrial([laidBits(dtype, shape, how[0]!, seed), roomFor(dtype, shape, how[1]!)]), where),
  );

  holds(
    'rearrange: from each float dtype to each other, up to six dimensions turned any way, rounded once',
    150,
    [dtypes, dtypes, shapes, fills, placements, seeds, homes],
    (from, to, shape, fill, how, seed, where) => {
      const given = [laid(from, shape, how[0]!, seed, fill), roomFor(to, shape, how[1]!)];
      return agree({ ...copyTrial(given), anyNan: true, tiny }, where);
    },
  );
  holds(
    'embedding: halves and blocks widened to f32',
    150,
    [
      fc.constantFrom<'f16' | 'bf16' | KernelFormat>('f16', 'bf16', ...KERNEL_FORMATS),
      size(0, 9),
      fc.oneof(size(0, 20), fc.constantFrom(64, 65)),
      size(1, 7),
      placements,
      seeds,
      homes,
    ],
    (kind, count, width, rows, how, seed, where) => {
      const blocks = kind !== 'f16' && kind !== 'bf16';
      const across = blocks ? (width % 4) * BLOCK_FORMATS[kind].weights : width;
      const index = indexOf(count, rows, seed);
      const table = blocks ? blocksOf(kind, rows, across, seed) : laid(kind, [rows, width], how[0]!, seed, 'wide');
      const given = [index, table, roomFor('f32', [count, across], how[1]!)];
      return agree(lookUpTrial(given), { ...where, owned: where.owned & ~1 });
    },
  );
  test('many rows of each table, four at a time and one by one; blocks that start at an odd byte', async () => {
    for (const kind of ['f16', 'bf16', ...KERNEL_FORMATS] as const) {
      const halves = kind === 'f16' || kind === 'bf16';
      const width = halves ? 96 : 3 * BLOCK_FORMATS[kind].weights;
      const table = halves ? laid(kind, [257, width], DENSE, 3) : blocksOf(kind, 257, width, 3, 1);
      for (const out of [DENSE, { ...DENSE, dense: false, step: 2 }])
        await agree(lookUpTrial([indexOf(499, 257, 1), table, roomFor('f32', [499, width], out)]), {
          owned: 2,
          host: 'apart',
        });
    }
  });
  test('f16 becomes bf16 in its own memory', async () => {
    for (const lead of [0, 1]) {
      const x = laid('f16', [3, 8], { ...DENSE, dense: false, lead }, 1);
      const want = floats(x).map((v) => roundTo('bf16', v));
      const over = new Tensor(tensorFrom(x.storage.host!, { dtype: 'bf16' }).storage, x) as Float;
      rw.rearrange(x, { out: over });
      await rw.finish();
      assert.deepEqual(floats(over), want);
    }
  });

  test('rearrange onto itself, and of one element', async () => {
    for (const dtype of ['u8', 'f16', 'f32', 'i64'] as const) {
      const x = laidBits(dtype, [5, 7], { ...DENSE, dense: false, turn: 1, lead: 3 }, 4);
      await agree({ ...copyTrial([x, x]), plan: (t) => planRearrange(tensorAt(t, 1), tensorAt(t, 1)) }, HOST);
      await agree(copyTrial([laidBits(dtype, [], DENSE, 1), roomFor(dtype, [], DENSE)]), PACKED);
    }
  });

  test('transposes of many elements, and a large table', async () => {
    for (const dtype of ['u8', 'i16', 'bf16', 'f32', 'i64', 'f64'] as const) {
      for (const [shape, order] of [
        [
          [301, 109],
          [1, 0],
        ],
        [
          [13, 27, 8, 17],
          [0, 2, 1, 3],
        ],
        [
          [3, 5, 7, 2, 11, 13],
          [5, 3, 1, 4, 2, 0],
        ],
      ] as const) {
        const x = laidBits(dtype, shape, DENSE, 9).permute([...order]);
        await agree(copyTrial([x, roomFor(dtype, x.shape, DENSE)]), DEVICE);
      }
      const given = [indexOf(499, 257, 1), laidBits(dtype, [257, 101], DENSE, 3), roomFor(dtype, [499, 101], DENSE)];
      await agree(lookUpTrial(given), { owned: 2, host: 'apart' });
    }
  });
});

describe('rope', { skip: noGpu }, () => {
  /** Rotates, and compares with float64: two products and a sum, each within u of its own size. */
  const turn = (
    plan: RopePlan,
    x: Float,
    out: Float,
    where: Homes,
    layout: 'bsnh' | 'bnsh' = 'bsnh',
  ): Promise<void> => {
    // emulate() counts tokens before heads, whatever the layout.
    const swap = (tensor: Tensor): Tensor => (layout === 'bsnh' ? tensor : tensor.permute([0, 2, 1, 3]));
    const tokens = swap(x);
    const { magnitude } = emulate(plan, floats(tokens), tokens.shape, 'f64');
    const sizes = floats(swap(f64Tensor(magnitude, tokens.shape)));
    return agree(
      {
        given: x === out ? [x] : [x, out],
        outs: [x === out ? 0 : 1],
        plan: (t) => bindRope(plan, tensorAt(t, 0), tensorAt(t, x === out ? 0 : 1), layout),
        error: (_, n) => 3 * U * sizes[n]!,
      },
      where,
    );
  };

  holds(
    'any geometry, table, layout and values; in place',
    250,
    [dtypes, calls, fills, placements, homes, fc.boolean(), size(1, 4)],
    (dtype, call, fill, how, where, inPlace, factor) => {
      // Windows of whole loads, and all others.
      const { rotaryDim, rotaryOffset, headDim } = call.window;
      const window =
        factor === 4
          ? { rotaryDim: rotaryDim * 4, rotaryOffset: rotaryOffset * 4, headDim: headDim * 4 }
          : { rotaryDim, rotaryOffset, headDim };
      const plan = anyPlan({ ...call, window });
      const shape = [call.batch, call.seq, call.heads, plan.headDim];
      const same = inPlace && plan.read.step === plan.write.step;
      const x = laid(dtype, shape, same ? { ...how[0]!, repeat: 0 } : how[0]!, call.seed, fill);
      return turn(plan, x, same ? x : roomFor(dtype, shape, how[1]!), where);
    },
  );

  holds(
    'dimensions that do not rotate keep their bits, NaN payloads too',
    80,
    [dtypes, calls, placements, homes],
    async (dtype, call, how, where) => {
      const plan = anyPlan(call);
      const shape = [call.batch, call.seq, call.heads, plan.headDim];
      const x = laidBits(dtype, shape, how[0]!, call.seed) as Float;
      const { got } = settle([x, roomFor(dtype, shape, how[1]!)], where);
      rw.run(bindRope(plan, tensorAt(got, 0), tensorAt(got, 1)));
      for (const [start, end] of [
        [0, plan.rotaryOffset],
        [plan.rotaryOffset + plan.rotaryDim, plan.headDim],
      ] as const) {
        assert.deepEqual(await tensorAt(got, 1).slice(3, start, end).read(), x.slice(3, start, end).read());
      }
      for (const t of got) t.dispose();
    },
  );

  const base = { headDim: 64, base: 10000 } as const;
  const ofBatches = tensorFrom(Int32Array.of(9, 10, 11, 12, 100, 3, 2, 1), { shape: [2, 4] });
  const image = [1, 2, 3, 1, 7, 9, 0, 5, 2]; // t, h and w of three tokens
  const models: [string, PlanRopeOptions][] = [
    ['one token, decoding', { ...base, pairing: 'half', positions: 4095, seqLen: 1 }],
    ['one token, interleaved', { ...base, pairing: 'interleaved', positions: [131071] }],
    ['DeepSeek-V3', { ...base, pairing: 'interleaved-to-half', positions: 7, seqLen: 5 }],
    ['its gradient', { ...base, pairing: 'interleaved-to-half', positions: 7, seqLen: 5, direction: 'backward' }],
    ['a long run', { ...base, pairing: 'half', positions: 1_000_000, seqLen: 150 }],
    ['the largest positions', { ...base, pairing: 'half', positions: [2 ** 31 - 1, -(2 ** 31), 0] }],
    ['phi-2', { headDim: 80, rotaryDim: 32, pairing: 'half', base: 10000, positions: [3, 1, 4, 1, 5] }],
    [
      'a window in the middle',
      { headDim: 24, rotaryDim: 10, rotaryOffset: 7, pairing: 'interleaved', base: 500, positions: 9, seqLen: 3 },
    ],
    ['Qwen2-VL', { ...base, pairing: 'half', axes: { rule: 'sections', sections: [8, 12, 12] }, positions: image }],
    ['Qwen3-VL', { ...base, pairing: 'half', axes: { rule: 'interleaved', sections: [12, 10, 10] }, positions: image }],
    ['vision', { ...base, pairing: 'vision', axes: { rule: 'vision', sections: [8, 12, 12] }, positions: image }],
    ['positions of each batch', { ...base, pairing: 'half', positions: ofBatches }],
    [
      'a gradient, from a table in f64',
      { ...base, pairing: 'half', positions: 77, seqLen: 4, direction: 'backward', tableDtype: 'f64' },
    ],
  ];
  for (const [name, options] of models) {
    test(name, async () => {
      measure(`rope ${name}`);
      const plan = planRope(options);
      for (const dtype of FLOATS) {
        for (const batch of [plan.batch ?? 1, plan.batch ?? 3]) {
          const shape = [batch, plan.seqLen, 3, plan.headDim];
          await turn(plan, laid(dtype, shape, DENSE, 1), roomFor(dtype, shape, DENSE), DEVICE);
          const turned = [batch, 3, plan.seqLen, plan.headDim];
          await turn(
            plan,
            laid(dtype, turned, DENSE, 2),
            roomFor(dtype, turned, { ...DENSE, dense: false, lead: 3 }),
            PACKED,
            'bnsh',
          );
        }
      }
    });
  }

  for (const dtype of ['f16', 'bf16'] as const) {
    test(`f32 → ${dtype} and back: all numbers, all ties and their neighbours, in the window of a RoPE and outside it`, async () => {
      const values = tiesOf(dtype);
      while (values.length % 8 > 0) values.push(1); // so that loads of four are possible
      const n = values.length;
      // cos 1 and sin 0: what is finite is multiplied by 1, and 0 added. With position 0 and a window of two: copied.
      const finite = values.map((v) => (Number.isFinite(roundTo(dtype, v)) ? v : 2));
      for (const [kept, rotaryDim] of [
        [finite, n],
        [[1, 0, 0, 0, 0, 0, 0, 0, ...values], 8],
        [[1, 0, ...values], 2],
      ] as const) {
        const plan = planRope({ headDim: kept.length, rotaryDim, pairing: 'half', base: 1e4, positions: [0] });
        const x = tensorFrom<'f32'>(Float32Array.from(kept), { shape: [1, 1, kept.length] });
        const out = zeros(dtype, x.shape);
        const back = zeros('f32', x.shape);
        rw.ropeParts(plan, [{ x, out }]);
        await rw.finish();
        rw.ropeParts(plan, [{ x: out, out: back }]);
        await rw.finish();
        const [narrow, wide] = [floats(out), floats(back)];
        for (const [i, v] of kept.entries()) {
          const want = roundTo(dtype, v);
          const same = (got: number): boolean =>
            Object.is(got, want) || got === want || (want !== 0 && Math.abs(got - want) <= tiny);
          if (!same(narrow[i]!)) assert.fail(`[${i}] ${v}: ${narrow[i]}, want ${want}`);
          if (Number.isFinite(want) || rotaryDim < n)
            if (!same(wide[i]!)) assert.fail(`[${i}] ${v} and back: ${wide[i]}, want ${want}`);
        }
      }
    });
  }
});

describe('ropeParts', { skip: noGpu }, () => {
  const mixes = fc.record({
    x: dtypes,
    k: dtypes,
    cache: dtypes,
    rows: fc.constantFrom('first', 'listed', 'of each batch'),
    norm: maybe(fc.constantFrom(0, 1e-6, 1e-5)),
    weight: dtypes,
  });
  holds(
    'q and k: a KV cache of another dtype, its rows counted or in any order, with and without norms',
    100,
    [mixes, calls, placements, homes],
    (mix, call, how, where) => {
      const plan = anyPlan(call);
      const { batch, seq, heads, window } = call;
      const d = window.headDim;
      const random = randomness(call.seed + 9);
      const length = seq + 3;
      const order = (): number[] =>
        Array.from({ length }, (_, n) => n)
          .sort(() => random() - 0.5)
          .slice(0, seq);
      const rows = {
        first: () => 2,
        listed: order,
        'of each batch': () => Array.from({ length: batch }, order).flat(),
      }[mix.rows]();
      const shape = [batch, seq, heads, d];
      const kShape = [batch, seq, 2, d];
      const q = laid(mix.x, shape, { ...how[0]!, repeat: 0 }, call.seed);
      const inPlace = plan.read.step === plan.write.step;
      const given: Float[] = [
        q,
        inPlace ? q : roomFor(mix.x, shape, how[1]!),
        laid(mix.k, kShape, how[2]!, call.seed + 1),
        laid(mix.cache, [batch, length, 2, d], { ...how[3]!, repeat: 0 }, call.seed + 3),
        laid(mix.weight, [d], how[4]!, call.seed + 2),
      ];
      const norm = (weight: Float): Pick<RopePartOptions, 'norm'> =>
        mix.norm === undefined ? {} : { norm: { weight, eps: mix.norm } };
      const weights = floats(given[4]!);
      const sizes = [given[0]!, given[2]!].map((x) => {
        const values = floats(x);
        const rms = (head: Float64Array): number => Math.sqrt(head.reduce((sum, v) => sum + v * v, 0) / d + mix.norm!);
        const normed = values.map((v, i) => (v * weights[i % d]!) / rms(values.subarray(i - (i % d), i - (i % d) + d)));
        return emulate(plan, mix.norm === undefined ? values : normed, x.shape, 'f64').magnitude;
      });
      const rowOf = (token: number): number =>
        typeof rows === 'number' ? rows + (token % seq) : rows[rows.length === seq ? token % seq : token]!;
      const cached = new Map<number, number>();
      for (let token = 0; token < batch * seq; token++)
        for (let i = 0; i < 2 * d; i++)
          cached.set((Math.floor(token / seq) * length + rowOf(token)) * 2 * d + i, token * 2 * d + i);
      const relative = mix.norm === undefined ? 0 : NORM;
      return agree(
        {
          given,
          outs: [inPlace ? 0 : 1, 3],
          plan: (t) => {
            const [x, out, k, cache, weight] = t as Float[] as [Float, Float, Float, Float, Float];
            return bindRopeParts(plan, [
              { x, out: inPlace ? x : out, ...norm(weight) },
              { x: k, out: cache, rows, ...norm(weight) },
            ]);
          },
          error: (exact, n, out) => {
            const from = out === 3 ? cached.get(n) : n;
            if (from === undefined) return 0; // a row that no token goes to
            return (3 * U + relative) * sizes[out === 3 ? 1 : 0]![from]! + relative * Math.abs(exact);
          },
        },
        where,
      );
    },
  );

  test('more parts than one kernel takes, each with its own memory, rows and norm', async () => {
    const plan = planRope({ headDim: 8, pairing: 'half', base: 100, positions: [5, 6, 2] });
    for (const count of [1, 4, 11]) {
      const given = Array.from({ length: count }, (_, p) => {
        const dtype = FLOATS[p % 3]!;
        const [x, weight] = [laid(dtype, [3, 2, 8], DENSE, p), laid(FLOATS[(p + 1) % 3]!, [8], DENSE, p + 50)];
        return [x, roomFor(FLOATS[(p + 2) % 3]!, [9, 2, 8], DENSE), weight];
      }).flat();
      for (const where of [DEVICE, PACKED]) {
        for (const normed of [false, true]) {
          await agree(
            {
              given,
              outs: Array.from({ length: count }, (_, p) => 3 * p + 1),
              plan: (t) =>
                bindRopeParts(
                  plan,
                  Array.from({ length: count }, (_, p) => ({
                    x: tensorAt(t, 3 * p) as Float,
                    out: tensorAt(t, 3 * p + 1) as Float,
                    rows: p % 4 === 0 ? 2 : [(p * 5) % 9, (p * 5 + 4) % 9, (p * 5 + 2) % 9],
                    norm: normed && p % 2 === 0 ? { weight: tensorAt(t, 3 * p + 2) as Float, eps: 1e-5 } : undefined,
                  })),
                ),
              // Numbers are at most 2, those that are normed √8 · 2; a rotation makes them √2 larger.
              error: (exact) => (Number.isNaN(exact) ? 0 : (normed ? 8 * NORM : 0) + 3 * U * 8),
            },
            where,
          );
        }
      }
    }
  });

  test('the norm of a row of zeros with a tiny eps is zeros; squares past f32', async () => {
    const plan = planRope({ headDim: 8, pairing: 'half', base: 1e4, positions: [0] });
    for (const [value, eps, want] of [
      [0, 1e-50, 0],
      [1e25, 1e-6, 1],
      [1e-25, 0, 1],
      [1e-25, 1e-70, 1],
      [1e-25, 1e-50, 1 / Math.SQRT2],
    ] as const) {
      const out = zeros('f32', [1, 1, 8]);
      const weight = f64Tensor(new Array(8).fill(1), [8], 'f32');
      rw.ropeParts(plan, [{ x: f64Tensor(new Array(8).fill(value), [1, 1, 8], 'f32'), out, norm: { weight, eps } }]);
      await rw.finish();
      for (const got of floats(out)) assert.ok(Math.abs(got - want) <= NORM, `${value} ${eps}: ${got}, want ${want}`);
    }
  });

  test('f16 becomes bf16 in its own memory', async () => {
    const plan = planRope({ headDim: 12, rotaryDim: 6, pairing: 'half', base: 100, positions: [5, 6, 2] });
    const x = laid('f16', [3, 2, 12], DENSE, 1);
    const over = tensorFrom<'bf16'>(x.storage.host!, { dtype: 'bf16', shape: x.shape });
    const want = zeros('bf16', x.shape);
    runReference(bindRopeParts(plan, [{ x, out: want }]));
    rw.ropeParts(plan, [{ x, out: over }]);
    await rw.finish();
    // Within 12 u of a tie either neighbour is accepted; here none is so near.
    assert.deepEqual(over.read(), want.read());
  });
});

describe('calls after one another', { skip: noGpu }, () => {
  const rope = { pairing: 'half', base: 10000 } as const;
  const near = (got: ArrayLike<number>, want: ArrayLike<number>, bound: number, what: string): void => {
    assert.equal(got.length, want.length);
    for (let i = 0; i < want.length; i++)
      if (!(Math.abs(got[i]! - want[i]!) <= bound)) assert.fail(`${what} [${i}] ${got[i]}, want ${want[i]}`);
  };

  test('a chain on the device, on the host and across both, awaited once', async () => {
    const x = laid('f32', [5, 3, 64], DENSE, 1);
    const weight = laid('f32', [64], DENSE, 2);
    const want = floats(x).slice();
    for (let row = 0; row < want.length; row += 64) {
      const head = want.subarray(row, row + 64);
      const rms = Math.sqrt(head.reduce((sum, v) => sum + v * v, 0) / 64 + 1e-5);
      for (const [i, v] of head.entries()) head[i] = v + (v * floats(weight)[i]!) / rms;
    }
    for (const own of [0, 1]) {
      const [a, w] = own ? [rw.upload(x), rw.upload(weight)] : (hostCopy([x, weight]) as [Float, Float]);
      const y = rw.add(rw.rmsNorm(a, w, { eps: 1e-5 }), a);
      near(await y.readNumbers(), want, 4 * NORM + 8 * U, `own ${own}`);
      assert.deepEqual(
        await rw.add(a, a, { out: own ? rw.allocate('f32', a.shape) : (zeros('f32', a.shape) as Float) }).readNumbers(),
        floats(x).map((v) => 2 * v),
      );
    }
  });

  test('rope in place twice is rope by both angles, and back again nothing', async () => {
    for (const dtype of FLOATS) {
      const x = laid(dtype, [4, 3, 40], DENSE, 1);
      const twice = zeros('f64', x.shape);
      const both = planRope({ ...rope, headDim: 40, positions: [7, 9, 11, 13] });
      runReference(bindRope(both, f64Tensor(floats(x), x.shape), twice));
      const y = rw.upload(x);
      const plans = [
        planRope({ ...rope, headDim: 40, positions: [3, 4, 5, 6] }),
        planRope({ ...rope, headDim: 40, positions: [4, 5, 6, 7] }),
      ];
      for (const plan of plans) rw.rope(y, plan, { out: y });
      const [host] = hostCopy([x]) as [Float];
      for (const plan of plans) rw.rope(host, plan, { out: host });
      const unit = { f64: 0, f32: U, f16: 2 ** -11, bf16: 2 ** -8 }[dtype];
      // Two roundings of numbers up to 2·√2, and 6 u of the rotations.
      near(await y.readNumbers(), floats(twice), 4 * Math.SQRT2 * unit + 24 * U, `${dtype} on the device`);
      assert.deepEqual(await host.read(), await y.read());
      rw.ropeBackward(y, [7, 9, 11, 13], { ...rope, out: y });
      near(await y.readNumbers(), floats(x), 6 * Math.SQRT2 * unit + 36 * U, `${dtype} back`);
      y.dispose();
    }
  });

  test('q, k and v in one packed row: q and k turn in place, v and all else keep their bits', async () => {
    for (const dtype of FLOATS) {
      for (const d of [6, 8]) {
        const packed = laid(dtype, [5, 7, d], { ...DENSE, dense: false, lead: 1, pad: 1 }, 3);
        const plan = planRope({ ...rope, headDim: d, rotaryDim: 4, positions: 100, seqLen: 5 });
        const parts = (t: Given): RopePartOptions[] =>
          [tensorAt(t, 0).slice(1, 0, 4), tensorAt(t, 0).slice(1, 4, 6)].map((x) => ({
            x: x as Float,
            out: x as Float,
          }));
        for (const where of [HOST, DEVICE, PACKED]) {
          await agree(
            { given: [packed], outs: [0], plan: (t) => bindRopeParts(plan, parts(t)), error: () => 3 * U * 4 },
            where,
          );
          // q alone, then k: memory of which a part is on its way back is refused, so the host waits in between.
          const { got } = settle([packed], where);
          for (const part of parts(got)) {
            rw.ropeParts(plan, [part]);
            if (where !== DEVICE) await rw.finish();
          }
          const want = hostCopy([packed]);
          runReference(bindRopeParts(plan, parts(want)));
          const v = tensorAt(want, 0).slice(1, 6, 7);
          assert.deepEqual(await tensorAt(got, 0).slice(1, 6, 7).read(), v.read());
          await rw.finish();
          near(
            await tensorAt(got, 0).readNumbers(),
            floats(tensorAt(want, 0)),
            { f64: 0, f32: 0, f16: 2 ** -9, bf16: 2 ** -6 }[dtype] + 12 * U,
            'q, then k',
          );
        }
      }
    }
  });

  test('inputs are taken as they are at the call', async () => {
    const x = tensorFrom<'f32'>(Float32Array.from({ length: 1000 }, (_, i) => i));
    const sum = rw.add(x, x);
    x.storage.host!.fill(-1);
    const again = rw.add(x, x);
    assert.deepEqual(
      await sum.read(),
      Float32Array.from({ length: 1000 }, (_, i) => 2 * i),
    );
    assert.deepEqual(await again.read(), new Float32Array(1000).fill(-2));
  });

  test('a read gives what was queued before it, and nothing that came after', async () => {
    const x = rw.upload(Float32Array.of(1, 2, 3));
    const reads = [x.read()];
    for (let n = 0; n < 3; n++) {
      rw.add(x, x, { out: x });
      reads.push(x.read());
    }
    assert.deepEqual(
      (await Promise.all(reads)).map((values) => values[2]),
      [3, 6, 12, 24],
    );
    x.dispose();
  });

  test('more plans than the device keeps tables of, without waiting', async () => {
    const x = laid('f32', [1, 1, 8], DENSE, 1);
    const [host, device] = [hostCopy([x])[0] as Float, rw.upload(x)];
    const want = f64Tensor(floats(x), x.shape);
    for (let n = 0; n < 700; n++) {
      const plan = planRope({ ...rope, headDim: 8, positions: [n % 50] });
      for (const out of [host, device]) rw.rope(out, plan, { out });
      runReference(bindRope(plan, want, want));
    }
    await rw.finish();
    // 700 rotations, each within 3 u; roundings nearly cancel.
    for (const got of [host, device]) near(await got.readNumbers(), floats(want), 100 * U, 'after 700 rotations');
    device.dispose();
  });

  test('two halves of one host buffer, written by two calls and read by a third', async () => {
    const data = Float32Array.from({ length: 64 }, (_, i) => i);
    const half = (n: number): Tensor<'f32'> => tensorFrom<'f32'>(data, { shape: [32], offset: 32 * n });
    rw.add(half(0), half(0), { out: half(0) });
    rw.add(half(1), half(1), { out: half(1) });
    const sum = rw.add(half(0), half(1));
    await rw.finish();
    assert.deepEqual(
      data,
      Float32Array.from({ length: 64 }, (_, i) => 2 * i),
    );
    assert.deepEqual(
      await sum.read(),
      Float32Array.from({ length: 32 }, (_, i) => 4 * i + 64),
    );
  });

  test('several operators on one 16-bit buffer whose tensors share words', async () => {
    for (const dtype of ['f16', 'bf16'] as const) {
      const data = new Uint16Array(41);
      const x = tensorFrom<FloatDtype>(data, { dtype, shape: [2, 10], strides: [20, 2], offset: 1 });
      const y = tensorFrom<FloatDtype>(data, { dtype, shape: [2, 10], strides: [20, 2], offset: 0 });
      walk(x, (at, n) => storeNumber(data, dtype, at, n - 8));
      walk(y, (at, n) => storeNumber(data, dtype, at, n / 2));
      data[40] = 0xabcd;
      const [a, b] = [floats(x).slice(), floats(y).slice()];
      rw.add(x, y, { out: x });
      rw.add(x, y, { out: y });
      await rw.finish();
      assert.deepEqual(
        floats(x),
        a.map((v, n) => v + b[n]!),
      );
      assert.deepEqual(
        floats(y),
        a.map((v, n) => v + 2 * b[n]!),
      );
      assert.equal(data[40], 0xabcd);
    }
  });
});

describe('f64', { skip: noGpu }, () => {
  test('goes to the reference, from every operator', async () => {
    const [x, w] = [f64Tensor([0.1, 0.2, 0.3, 0.4], [1, 1, 4]), f64Tensor([1, 2, 3, 4], [4])];
    const plan = planRope({ headDim: 4, pairing: 'half', base: 1e4, positions: [3], tableDtype: 'f64' });
    const out = (): Float => zeros('f64', x.shape);
    for (const make of [
      (y: Float) => planAdd(x, x, y),
      (y: Float) => planSwiglu(x, x, y),
      (y: Float) => planRmsNorm(x, w, y, { eps: 1e-6 }),
      (y: Float) => planLayerNorm(x, w, y, { bias: w, eps: 1e-6 }),
      (y: Float) => planGelu(x, y),
      (y: Float) => planGeglu(x, x, y),
      (y: Float) => planScale(x, 2, y),
      (y: Float) => bindRope(plan, x, y),
    ]) {
      const [got, want] = [out(), out()];
      rw.run(make(got));
      runReference(make(want));
      assert.deepEqual(await got.read(), want.read());
    }
  });

  test('route of f64, whose indices are on the device', async () => {
    const { indices, weights } = rw.route(f64Tensor([1, 1 + 2 ** -50, 0, 0], [1, 4]), { gate: 'sigmoid', chosen: 2 });
    assert.deepEqual([...(await indices.read())], [1, 0]);
    assert.equal((await weights.readNumbers())[1], 1 / (1 + Math.exp(-1)));
  });
  test('argmax of f64 whose index is on the device', async () => {
    const values = f64Tensor([1, 1 + 2 ** -50, 1, NaN, 5, 2], [2, 3]);
    for (const dtype of ['i64', 'i32'] as const) {
      const { index, value } = rw.argmax(values, { index: rw.allocate(dtype, [2, 1]) });
      assert.deepEqual([...(await index.readNumbers())], [1, 0]);
      assert.deepEqual([...(await value.readNumbers())], [1 + 2 ** -50, NaN]);
      index.dispose();
    }
  });
});
