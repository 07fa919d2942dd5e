/** KV caches in 8 bits, in blocks, and parts that are copied: every backend against the reference. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import {
  type CacheDtype,
  type FloatDtype,
  isFloat,
  loadNumber,
  newArray,
  storeNumber,
} from '../../../packages/ropewalk/src/core/dtypes.js';
import { type Tensor, tensorFrom, zeros } from '../../../packages/ropewalk/src/core/tensor.js';
import { bindRopeParts, type RopePartOptions } from '../../../packages/ropewalk/src/ops/rope/call.js';
import { planRope, type RopePlan } from '../../../packages/ropewalk/src/ops/rope/plan.js';
import { ropeReference } from '../../../packages/ropewalk/src/reference/rope.js';
import { noGpu, openShared } from '../../support/gpu.js';
import { f64Tensor, seeded } from '../../support/tensors.js';

const EIGHT_BITS = ['i8', 'f8_e4m3', 'f8_e5m2'] as const;
const BACKENDS = [
  { name: 'reference', runs: 60 },
  { name: 'cpu', runs: 300 },
  { name: 'webgpu', runs: 25 },
];

/** Every value and midpoint of a dtype, their f32 neighbours, and what lies outside. */
function hardValues(dtype: (typeof EIGHT_BITS)[number]): Float32Array {
  const grid = Array.from({ length: 256 }, (_, n) =>
    loadNumber(dtype === 'i8' ? Int8Array.of(n) : Uint8Array.of(n), dtype, 0),
  )
    .filter(Number.isFinite)
    .sort((a, b) => a - b);
  const list = [NaN, Infinity, -Infinity, 0, -0, 1e-30, -1e-42, 3e38, grid[0]! * 1.01, grid.at(-1)! * 1.04];
  for (const [n, value] of grid.entries()) {
    const middle = (value + (grid[n + 1] ?? value)) / 2;
    for (const v of [value, middle]) list.push(v, Math.fround(v * (1 + 2 ** -23)), Math.fround(v * (1 - 2 ** -23)));
  }
  return Float32Array.from({ length: Math.ceil(list.length / 12) * 12 }, (_, n) => list[n] ?? 1);
}

/** What a random call is made of. */
interface Recipe {
  readonly batch: number;
  readonly seq: number;
  readonly heads: number;
  readonly pairs: number;
  readonly rest: number;
  readonly offset: boolean;
  readonly pairing: 'half' | 'interleaved' | 'interleaved-to-half';
  readonly xDtype: FloatDtype;
  readonly outDtype: CacheDtype;
  readonly layout: 'bsnh' | 'bnsh';
  readonly place: 'tokens' | 'rows' | 'slots';
  readonly skip: number;
  readonly rotate: boolean;
  readonly norm: boolean;
  readonly scale: 'one' | 'heads' | 'dims';
}

const recipe: fc.Arbitrary<Recipe> = fc.record({
  batch: fc.integer({ min: 1, max: 2 }),
  seq: fc.integer({ min: 1, max: 4 }),
  heads: fc.integer({ min: 1, max: 3 }),
  pairs: fc.constantFrom(1, 2, 3, 4, 8, 11, 16),
  rest: fc.constantFrom(0, 3, 8),
  offset: fc.boolean(),
  pairing: fc.constantFrom<Recipe['pairing']>('half', 'interleaved', 'interleaved-to-half'),
  xDtype: fc.constantFrom<FloatDtype>('f32', 'f16', 'bf16'),
  outDtype: fc.constantFrom<CacheDtype>(...EIGHT_BITS, ...EIGHT_BITS, 'f32', 'f16'),
  layout: fc.constantFrom<Recipe['layout']>('bsnh', 'bnsh'),
  place: fc.constantFrom<Recipe['place']>('tokens', 'rows', 'slots'),
  skip: fc.integer({ min: 0, max: 7 }),
  rotate: fc.boolean(),
  norm: fc.boolean(),
  scale: fc.constantFrom<Recipe['scale']>('one', 'heads', 'dims'),
});

const BLOCK = 3;
const SENTINEL = 77;

/** The tensors of a call; the same for each backend. */
function made(r: Recipe): { plan: RopePlan; part: RopePartOptions; layout: Recipe['layout'] } {
  const headDim = 2 * r.pairs + r.rest;
  const copied = r.rotate ? headDim : headDim + 5; // v may be wider than k
  const tokens = r.batch * r.seq;
  const plan = planRope({
    headDim,
    rotaryDim: 2 * r.pairs,
    rotaryOffset: r.offset ? r.rest : 0,
    pairing: r.pairing,
    base: 10000,
    positions: Array.from({ length: r.seq }, (_, s) => 7 + 90 * s),
  });
  const wave = (n: number, by: number): number[] => Array.from({ length: n }, (_, i) => Math.sin(i * by + 1) * 3);
  const dims = (rows: number, batch: number): number[] =>
    r.layout === 'bsnh' ? [batch, rows, r.heads, copied] : [batch, r.heads, rows, copied];
  const x = f64Tensor(wave(tokens * r.heads * copied, 0.7), dims(r.seq, r.batch), r.xDtype);
  const blocks = Math.ceil((tokens + 2) / BLOCK);
  const shape = r.place === 'slots' ? dims(BLOCK, blocks) : dims(r.place === 'rows' ? r.seq + 2 : r.seq, r.batch);
  // Rows lie 1 element further apart than they must: an odd stride, and memory that nothing may touch.
  const size = shape.reduce((a, b) => a * b);
  const data = newArray(r.outDtype, size + size / copied);
  (data as Uint8Array).fill(SENTINEL);
  const last = [shape[2]! * (copied + 1), copied + 1, 1];
  const strided = tensorFrom(data, { dtype: r.outDtype, shape, strides: [shape[1]! * last[0]!, ...last] });
  const places = Array.from({ length: tokens }, (_, n) => {
    if (n === r.skip) return -1;
    return r.place === 'slots' ? tokens - n : (n % r.seq) + (n < r.seq ? 1 : 2);
  });
  const count = { one: 1, heads: r.heads, dims: r.heads * copied }[r.scale];
  const scales = Array.from({ length: count }, (_, n) => 0.02 + 0.003 * (n % 5));
  const scale = r.scale === 'one' ? 0.025 : scales;
  return {
    plan,
    layout: r.layout,
    part: {
      x: x as Tensor<FloatDtype>,
      out: strided as Tensor<CacheDtype>,
      ...(r.place === 'rows' ? { rows: places } : r.place === 'slots' ? { slots: places } : {}),
      ...(r.norm
        ? { norm: { weight: f64Tensor(wave(copied, 1.3), [copied], 'f32') as Tensor<FloatDtype>, eps: 1e-5 } }
        : {}),
      ...(isFloat(r.outDtype) ? {} : { scale }),
      rotate: r.rotate,
    },
  };
}

for (const { name, runs } of BACKENDS) {
  describe(`KV caches on ${name}`, { skip: name === 'webgpu' && noGpu }, () => {
    test('what is stored without arithmetic has the reference’s bits: every value, tie, overflow, NaN', async () => {
      const rw = await openShared(name);
      const plan = planRope({ headDim: 12, pairing: 'half', base: 10000, positions: [0] });
      for (const dtype of EIGHT_BITS) {
        const data = hardValues(dtype);
        for (const width of [12, 1]) {
          const shape = [1, data.length / width, width];
          const x = tensorFrom<FloatDtype>(data, { shape });
          const [got, want] = [zeros<CacheDtype>(dtype, shape), zeros<CacheDtype>(dtype, shape)];
          rw.ropeParts(plan, [{ x, out: got, rotate: false, scale: 1 }]);
          await rw.finish();
          ropeReference(bindRopeParts(plan, [{ x, out: want, rotate: false, scale: 1 }]));
          const [a, b] = [await got.read(), await want.read()];
          for (const [n, bits] of a.entries()) {
            // A NaN's sign may be lost on the way to the reference, which computes in numbers.
            const same = Number.isNaN(data[n]!) ? Number(bits) & 0x7f : bits;
            const expected = Number.isNaN(data[n]!) ? Number(b[n]) & 0x7f : b[n];
            assert.equal(same, expected, `${dtype} of ${data[n]}`);
          }
        }
      }
      rw.dispose();
    });

    test('random calls: each stored value is the rounding of one within a few roundings of the exact one', async () => {
      const rw = await openShared(name);
      await fc.assert(
        fc.asyncProperty(recipe, async (r) => {
          const { plan, part, layout } = made(r);
          rw.ropeParts(plan, [part], layout);
          await rw.finish();
          // The same call in float64: scaled, not rounded.
          const exact = made({ ...r, outDtype: 'f64' });
          const units = made({ ...r, outDtype: r.outDtype });
          ropeReference(bindRopeParts(exact.plan, [exact.part], layout));
          const got = part.out.storage.host!;
          const want = exact.part.out.storage.host as Float64Array;
          const scales = isFloat(r.outDtype)
            ? undefined
            : bindRopeParts(units.plan, [units.part], layout).parts[0]!.scale!;
          const width = part.x.shape[3]!;
          const low = newArray(r.outDtype, 1);
          const high = newArray(r.outDtype, 1);
          const [, second, third] = part.out.shape as number[];
          for (let n = 0; n < got.length; n++) {
            const [row, i] = [Math.floor(n / (width + 1)), n % (width + 1)];
            if (i === width || want[n] === SENTINEL) {
              assert.equal(
                loadNumber(got, r.outDtype, n),
                loadNumber(newArrayOf(r.outDtype), r.outDtype, 0),
                `${n} was touched`,
              );
              continue;
            }
            const head = layout === 'bsnh' ? row % third! : Math.floor(row / third!) % second!;
            const scale = scales ? scales[head * width + i]! : 1;
            const slack = 40 * 2 ** -24;
            storeNumber(low, r.outDtype, 0, (want[n]! - slack) / scale);
            storeNumber(high, r.outDtype, 0, (want[n]! + slack) / scale);
            const value = loadNumber(got, r.outDtype, n);
            assert.ok(
              value >= loadNumber(low, r.outDtype, 0) && value <= loadNumber(high, r.outDtype, 0),
              `element ${n}: ${value} of ${want[n]! / scale}`,
            );
          }
        }),
        { ...seeded, numRuns: runs },
      );
      rw.dispose();
    });

    test('k, v and q in one call: v is copied bit for bit, also in place, and q beside them is rotated', async () => {
      const rw = await openShared(name);
      const plan = planRope({ headDim: 8, pairing: 'half', base: 10000, positions: [3, 4] });
      const bits = Uint16Array.from({ length: 2 * 2 * 12 }, (_, n) => 0x7e01 + n * 37); // NaN payloads too
      const v = tensorFrom(bits.slice(), { dtype: 'f16', shape: [2, 2, 12] });
      const cache = zeros('f16', [4, 2, 12]);
      const q = f64Tensor(
        Array.from({ length: 32 }, (_, n) => n),
        [2, 2, 8],
        'f32',
      ) as Tensor<'f32'>;
      const alone = rw.rope(q, plan);
      rw.ropeParts(plan, [
        { x: v, out: v, rotate: false },
        { x: q, out: q },
      ]);
      await rw.finish();
      rw.ropeParts(plan, [{ x: v, out: cache, rows: [3, 1], rotate: false }]);
      await rw.finish();
      assert.deepEqual(await v.read(), bits);
      assert.deepEqual(await q.read(), await alone.read());
      const got = (await cache.read()) as Uint16Array;
      assert.deepEqual(got.slice(3 * 24), bits.slice(0, 24));
      assert.deepEqual(got.slice(24, 48), bits.slice(24));
      rw.dispose();
    });
  });
}

/** One element as {@link made} fills memory. */
function newArrayOf(dtype: CacheDtype): ReturnType<typeof newArray> {
  const one = newArray(dtype, 1);
  (one as Uint8Array).fill(SENTINEL);
  return one;
}

describe('refusals', () => {
  const plan = planRope({ headDim: 4, pairing: 'half', base: 10000, positions: [0, 1] });
  const x = zeros('f32', [2, 2, 4]);
  const i8 = zeros('i8', [2, 2, 4]);
  const paged = zeros('f16', [3, 2, 2, 4]);
  const refusals: [string, object, string, string][] = [
    [
      'an i8 cache without a scale',
      { out: i8 },
      'RANGE',
      'scale: expected the scale of an i8 cache (value = stored · scale), got none',
    ],
    [
      'a scale of a float cache',
      { out: x, scale: 2 },
      'UNSUPPORTED',
      'scale: only i8, f8_e4m3 and f8_e5m2 caches have a scale, and this one is f32. Leave it out.',
    ],
    ['a scale of 0', { out: i8, scale: 0 }, 'RANGE', 'scale: expected a number in [2^-64, 2^64], got 0'],
    [
      'a NaN scale in a list',
      { out: i8, scale: [1, NaN] },
      'RANGE',
      'scale[1]: expected a number in [2^-64, 2^64], got NaN',
    ],
    [
      'three scales',
      { out: i8, scale: [1, 2, 3] },
      'SHAPE',
      'scale: expected a number, 2 numbers (one for each head), or 2 × 4, got 3',
    ],
    [
      'a cache of i32',
      { out: zeros('i32', [2, 2, 4]) },
      'DTYPE',
      'out: expected f64, f32, f16, bf16, i8, f8_e4m3 or f8_e5m2, got "i32"',
    ],
    [
      'rows and slots',
      { out: paged, rows: 0, slots: [0, 1] },
      'UNSUPPORTED',
      'slots: rows are given too. Give rows, or slots of a paged cache.',
    ],
    [
      'a slot that the blocks do not have',
      { out: paged, slots: [0, 6] },
      'RANGE',
      'slots[1]: expected a slot of out, in [0, 5], or -1 to skip the token, got 6. Slot n is row n % block_size of block n / block_size.',
    ],
    ['a slot twice', { out: paged, slots: [2, 2] }, 'RANGE', 'slots[1]: slot 2 is given twice'],
    ['one slot for two tokens', { out: paged, slots: [2] }, 'SHAPE', 'slots: expected 1 × 2 slots, got 1'],
    [
      'slots of a cache without blocks',
      { out: x, slots: [0, 1] },
      'SHAPE',
      'out: expected four dimensions: block, row of the block, head and head_dim, got [2, 2, 4]',
    ],
    [
      'rows from -1 on',
      { out: zeros('f32', [4, 2, 4]), rows: -1 },
      'RANGE',
      'rows[0]: expected a row of out, in [0, 3], got -1. Make the cache longer, or start again at row 0.',
    ],
    ['rotate of 1', { out: x, rotate: 1 }, 'RANGE', 'rotate: expected true or false, got 1'],
    [
      'another head_dim, rotated',
      { x: zeros('f32', [2, 2, 6]), out: zeros('f32', [2, 2, 6]) },
      'SHAPE',
      'x: expected head_dim 4 in the last dimension, got [2, 2, 6]',
    ],
  ];
  for (const [name, given, code, message] of refusals)
    test(name, () =>
      assert.throws(() => bindRopeParts(plan, [{ x, ...given } as never]), {
        code,
        message: `rope: parts[0].${message}`,
      }),
    );

  test('an operator that computes refuses 8-bit floats by name', async () => {
    const { planAdd } = await import('../../../packages/ropewalk/src/ops/add.js');
    const f8 = zeros('f8_e4m3', [2]) as never;
    assert.throws(() => planAdd(f8, f8, f8), {
      code: 'DTYPE',
      message: 'add: a: expected f64, f32, f16 or bf16, got "f8_e4m3"',
    });
  });
});
