import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { DTYPES, type FloatDtype, isFloat, newArray, roundTo } from '../../src/core/dtypes.js';
import { countElements, extentOf, rowMajorStrides } from '../../src/core/shape.js';
import { type Tensor, tensorFrom, zeros } from '../../src/core/tensor.js';
import { planAdd } from '../../src/ops/add.js';
import { planArgmax } from '../../src/ops/argmax.js';
import { planEmbedding } from '../../src/ops/embedding.js';
import { planLinear } from '../../src/ops/linear.js';
import { planRearrange } from '../../src/ops/rearrange.js';
import { planRmsNorm } from '../../src/ops/rms-norm.js';
import type { OpPlan } from '../../src/ops/runner.js';
import { planSelfAttention } from '../../src/ops/self-attention.js';
import { planSwiglu } from '../../src/ops/swiglu.js';
import { runReference } from '../../src/reference/index.js';
import { f64Tensor, floats, seeded } from '../support/tensors.js';

const FLOATS = DTYPES.filter(isFloat);
const dtypes = fc.constantFrom<FloatDtype>(...FLOATS);
let counter = 0;
/** Numbers without a pattern, the same in every run of a file. */
const noise = (n: number): Float64Array => Float64Array.from({ length: n }, () => Math.sin(++counter * 12.9898) * 2);
const random = (shape: readonly number[], dtype: FloatDtype = 'f64') => f64Tensor(noise(countElements(shape)), shape, dtype);

/** The same elements under other strides, with gaps: dimensions laid out in reverse order, each step doubled, from offset 3. */
function strided(t: Tensor<FloatDtype>): Tensor<FloatDtype> {
  const strides = rowMajorStrides([...t.shape].reverse())
    .reverse()
    .map((s) => 2 * s);
  const extent = extentOf({ shape: t.shape, strides, offset: 3 });
  const data = newArray(t.dtype, (extent?.[1] ?? 3) + 2).fill(0x3c as never);
  const view = tensorFrom(data, { dtype: t.dtype, shape: t.shape, strides, offset: 3 }) as Tensor<FloatDtype>;
  runReference(planRearrange(t, view));
  return view;
}

interface Case {
  readonly name: OpPlan['op'];
  readonly inputs: (dtype: FloatDtype) => Tensor<FloatDtype>[];
  readonly outShape: number[];
  readonly plan: (inputs: Tensor<FloatDtype>[], out: Tensor<FloatDtype>) => OpPlan;
  /** Inputs that out may be. */
  readonly inPlace: number[];
  /** The textbook formula over dense numbers, written independently of the reference. */
  readonly formula: (inputs: Float64Array[]) => number[];
}

const CASES: readonly Case[] = [
  {
    name: 'add',
    inputs: (d) => [random([3, 5], d), random([3, 5], d)],
    outShape: [3, 5],
    plan: ([a, b], out) => planAdd(a!, b!, out),
    inPlace: [0, 1],
    formula: ([a, b]) => Array.from(a!, (v, i) => v + b![i]!),
  },
  {
    name: 'swiglu',
    inputs: (d) => [random([3, 5], d), random([3, 5], d)],
    outShape: [3, 5],
    plan: ([g, u], out) => planSwiglu(g!, u!, out),
    inPlace: [0, 1],
    formula: ([g, u]) => Array.from(g!, (v, i) => (u![i]! * v) / (1 + Math.exp(-v))),
  },
  {
    name: 'rms_norm',
    inputs: (d) => [random([4, 6], d), random([6], d)],
    outShape: [4, 6],
    plan: ([x, w], out) => planRmsNorm(x!, w!, 1e-5, out),
    inPlace: [0],
    formula: ([x, w]) =>
      Array.from(x!, (v, i) => {
        const row = x!.subarray(i - (i % 6), i - (i % 6) + 6);
        return (v / Math.sqrt(row.reduce((s, e) => s + e * e, 0) / 6 + 1e-5)) * w![i % 6]!;
      }),
  },
  {
    name: 'linear',
    inputs: (d) => [random([2, 3, 7], d), random([5, 7], d), random([5], d)],
    outShape: [2, 3, 5],
    plan: ([x, w, b], out) => planLinear(x!, w!, b!, out),
    inPlace: [],
    formula: ([x, w, b]) =>
      Array.from(
        { length: 30 },
        (_, i) =>
          Array.from({ length: 7 }, (_, k) => x![Math.floor(i / 5) * 7 + k]! * w![(i % 5) * 7 + k]!).reduce((s, p) => s + p, 0) +
          b![i % 5]!,
      ),
  },
  {
    // 3 queries at the end of 5 keys, 4 query heads on 2 KV heads, d = 6, dv = 3.
    name: 'self_attention',
    inputs: (d) => [random([3, 4, 6], d), random([5, 2, 6], d), random([5, 2, 3], d)],
    outShape: [3, 4, 3],
    plan: ([q, k, v], out) => planSelfAttention(q!, k!, v!, out),
    inPlace: [],
    formula: ([q, k, v]) =>
      attend(
        q!,
        k!,
        v!,
        () => true,
        (s) => s,
      ),
  },
];

/** One row of scores at a time, masked ones left out altogether. */
function attend(
  q: Float64Array,
  k: Float64Array,
  v: Float64Array,
  sees: (query: number, key: number) => boolean,
  cap: (score: number) => number,
): number[] {
  return Array.from({ length: 3 * 4 * 3 }, (_, at) => {
    const [i, s, h] = [at % 3, Math.floor(at / 12), Math.floor(at / 3) % 4];
    const kv = h < 2 ? 0 : 1;
    const keys = [0, 1, 2, 3, 4].filter((t) => t <= s + 2 && sees(s + 2, t));
    const scores = keys.map((t) =>
      Math.exp(
        cap(Array.from({ length: 6 }, (_, e) => q[(s * 4 + h) * 6 + e]! * k[(t * 2 + kv) * 6 + e]!).reduce((a, b) => a + b) / Math.sqrt(6)),
      ),
    );
    const total = scores.reduce((a, b) => a + b);
    return keys.reduce((sum, t, n) => sum + (scores[n]! / total) * v[(t * 2 + kv) * 3 + i]!, 0);
  });
}

for (const { name, inputs, outShape, plan, inPlace, formula } of CASES) {
  describe(name, () => {
    for (const dtype of FLOATS) {
      test(`${dtype}: the formula, rounded once`, () => {
        const given = inputs(dtype);
        const out = zeros(dtype, outShape);
        runReference(plan(given, out));
        const want = formula(given.map(floats));
        // Two float64 sums in different order may fall on either side of a rounding: one unit of the dtype.
        const unit = { f64: 2 ** -46, f32: 2 ** -23, f16: 2 ** -10, bf16: 2 ** -7 }[dtype];
        for (const [i, got] of floats(out).entries()) {
          const exact = got === roundTo(dtype, want[i]!);
          assert.ok(exact || Math.abs(got - want[i]!) <= unit * Math.abs(want[i]!), `[${i}] got ${got}, want ${want[i]}`);
        }
      });
    }

    test('strided in and out = contiguous, bit for bit; gaps in out untouched', () => {
      fc.assert(
        fc.property(dtypes, (dtype) => {
          const given = inputs(dtype);
          const dense = zeros(dtype, outShape);
          runReference(plan(given, dense));
          const out = strided(dense);
          const before = out.storage.host!.slice();
          runReference(plan(given.map(strided), out));
          assert.deepEqual(out.read(), dense.read());
          assert.deepEqual(out.storage.host, before, 'the elements were there already, and nothing else changed');
        }),
        { ...seeded, numRuns: 12 },
      );
    });

    test('in place where it is safe, refused where it is not', () => {
      const given = inputs('f32');
      const fresh = zeros('f32', outShape);
      runReference(plan(given, fresh));
      for (const [n, input] of given.entries()) {
        if (input.size !== fresh.size) continue;
        const copies = given.map((t) => t.reshape(t.shape));
        const own = f64Tensor(floats(input), input.shape, 'f32');
        copies[n] = own;
        if (inPlace.includes(n)) {
          runReference(plan(copies, own));
          assert.deepEqual(own.read(), fresh.read());
        } else if (String(input.shape) === String(outShape)) assert.throws(() => plan(copies, own), { code: 'ALIAS' });
      }
      for (const [n, input] of given.entries()) {
        // A view that starts one element later overlaps in part: never safe.
        const room = newArray('f32', input.size + countElements(outShape) + 1);
        const moved = tensorFrom(room, { dtype: 'f32', shape: input.shape });
        const copies: Tensor<FloatDtype>[] = [...given];
        copies[n] = moved;
        assert.throws(() => plan(copies, tensorFrom(room, { dtype: 'f32', shape: outShape, offset: 1 })), { code: 'ALIAS' });
      }
    });

    test('refuses another dtype, another shape, integers, a broadcast output', () => {
      const given = inputs('f32');
      assert.throws(() => plan(given, zeros('f64', outShape)), {
        code: 'DTYPE',
        message: new RegExp(`^${name}: \\w+: expected dtype f32, got "f64"`),
      });
      assert.throws(() => plan(given, zeros('f32', [...outShape, 1])), {
        code: 'SHAPE',
        message: new RegExp(`^${name}: \\w+: expected shape \\[${outShape}\\]`),
      });
      const integers = inputs('f32').map((t) => zeros('i32', t.shape) as unknown as Tensor<FloatDtype>);
      assert.throws(() => plan(integers, zeros('i32', outShape) as never), {
        code: 'DTYPE',
        message: /expected f64, f32, f16 or bf16, got "i32"/,
      });
      const flat = tensorFrom(new Float32Array(1), { shape: outShape, strides: outShape.map(() => 0) });
      assert.throws(() => plan(given, flat as Tensor<'f32'>), { code: 'ALIAS', message: /expected a tensor whose elements are distinct/ });
    });
  });
}

describe('zero elements', () => {
  const none = (...shape: number[]) => zeros('f32', shape);
  test('nothing is computed and nothing breaks', () => {
    for (const plan of [
      planAdd(none(0, 3), none(0, 3), none(0, 3)),
      planSwiglu(none(0, 3), none(0, 3), none(0, 3)),
      planRmsNorm(none(0, 3), none(3), 1e-5, none(0, 3)),
      planLinear(none(0, 3), none(5, 3), undefined, none(0, 5)),
      planSelfAttention(none(0, 4, 6), none(7, 2, 6), none(7, 2, 3), none(0, 4, 3)),
      planRearrange(none(0, 3), none(0, 3)),
      planEmbedding(tensorFrom(new BigInt64Array(0)), none(5, 3), none(0, 3)),
    ]) {
      runReference(plan);
    }
    // A sum over nothing is the bias.
    const out = none(2, 3);
    runReference(planLinear(none(2, 0), none(3, 0), tensorFrom(Float32Array.of(1, 2, 3)), out));
    assert.deepEqual([...floats(out)], [1, 2, 3, 1, 2, 3]);
  });
});

describe('self_attention, its options', () => {
  const given = [random([3, 4, 6]), random([5, 2, 6]), random([5, 2, 3])] as const;
  const run = (options: Parameters<typeof planSelfAttention>[4]) => {
    const out = zeros('f64', [3, 4, 3]);
    runReference(planSelfAttention(...given, out, options));
    return floats(out);
  };
  const near = (got: Float64Array, want: ArrayLike<number>) => {
    for (const [i, v] of got.entries()) assert.ok(Math.abs(v - want[i]!) < 1e-13, `[${i}] ${v} ${want[i]}`);
  };
  const numbers = given.map(floats) as [Float64Array, Float64Array, Float64Array];

  test('a window counts the query itself', () => {
    near(
      run({ window: 2 }),
      attend(
        ...numbers,
        (p, t) => t > p - 2,
        (s) => s,
      ),
    );
    near(
      run({ window: 1 }),
      attend(
        ...numbers,
        (p, t) => t === p,
        (s) => s,
      ),
    );
    near(run({ window: 99 }), run({}));
  });
  test('softcap bends scores before the mask', () => {
    near(
      run({ softcap: 0.5 }),
      attend(
        ...numbers,
        () => true,
        (s) => 0.5 * Math.tanh(s / 0.5),
      ),
    );
  });
  test('a scale of one’s own, and no causal mask', () => {
    near(run({ scale: 1 / Math.sqrt(6) }), run({}));
    assert.notDeepEqual(run({ scale: 1 }), run({}));
    const last = run({}).slice(-12);
    near(run({ causal: false }).slice(-12), last); // the last query sees every key either way
    assert.notDeepEqual(run({ causal: false }), run({}));
  });
  test('a batch is attended item by item', () => {
    const twice = (t: Tensor<FloatDtype>) => f64Tensor([...floats(t), ...floats(t)], [2, ...t.shape]);
    const out = zeros('f64', [2, 3, 4, 3]);
    runReference(planSelfAttention(twice(given[0]), twice(given[1]), twice(given[2]), out));
    assert.deepEqual([...floats(out)], [...run({}), ...run({})]);
  });
  test('refusals', () => {
    const t = (...shape: number[]) => zeros('f32', shape);
    const cases: [() => unknown, string, RegExp][] = [
      [
        () => planSelfAttention(t(3, 4, 6), t(2, 2, 6), t(2, 2, 6), t(3, 4, 6)),
        'SHAPE',
        /k: expected total_len >= seqlen=3: each query sees at least its own key, got 2/,
      ],
      [
        () => planSelfAttention(t(3, 4, 6), t(5, 3, 6), t(5, 3, 6), t(3, 4, 6)),
        'SHAPE',
        /q: expected num_heads to be a multiple of num_kv_heads=3, got 4/,
      ],
      [() => planSelfAttention(t(3, 4, 6), t(5, 2, 8), t(5, 2, 6), t(3, 4, 6)), 'SHAPE', /k: expected shape \[5,2,6\]/],
      [() => planSelfAttention(t(3, 4, 6), t(5, 2, 6), t(4, 2, 6), t(3, 4, 6)), 'SHAPE', /v: expected shape \[5,2,6\]/],
      [() => planSelfAttention(t(3, 4), t(5, 2, 6), t(5, 2, 6), t(3, 4, 6)), 'SHAPE', /q: expected three dimensions/],
      [
        () => planSelfAttention(t(3, 4, 6), t(5, 2, 6), t(5, 2, 6), t(3, 4, 6), { scale: Number.NaN }),
        'RANGE',
        /scale: expected a finite number, got NaN/,
      ],
      [
        () => planSelfAttention(t(3, 4, 6), t(5, 2, 6), t(5, 2, 6), t(3, 4, 6), { window: 0 }),
        'RANGE',
        /window: expected an integer >= 1, got 0/,
      ],
      [
        () => planSelfAttention(t(3, 4, 6), t(5, 2, 6), t(5, 2, 6), t(3, 4, 6), { softcap: -1 }),
        'RANGE',
        /softcap: expected a finite number > 0, got -1/,
      ],
    ];
    for (const [call, code, message] of cases) assert.throws(call, { code, message });
  });
});

describe('argmax', () => {
  const run = (values: Tensor, dtype: 'i64' | 'i32' = 'i64') => {
    const index = zeros(dtype, values.shape.with(-1, 1));
    const value = zeros(values.dtype, values.shape.with(-1, 1));
    runReference(planArgmax(values, index, value));
    return { index: [...floats(index)], value: [...floats(value)], raw: value.storage.host! };
  };
  test('first of a tie, first NaN over +∞, −0 ties with +0, all −∞', () => {
    assert.deepEqual(run(f64Tensor([1, 3, 3, 2], [4])).index, [1]);
    assert.deepEqual(run(f64Tensor([1, Infinity, NaN, NaN], [4])).index, [2]);
    assert.deepEqual(run(f64Tensor([-0, 0], [2])).index, [0]);
    assert.deepEqual(run(f64Tensor([-Infinity, -Infinity], [2])).index, [0]);
  });
  test('rows of a strided tensor, i32 index, the value’s own bits', () => {
    const t = f64Tensor([1, 9, 5, 7, 3, 8], [2, 3]).permute([1, 0]); // rows [1,7] [9,3] [5,8]
    assert.deepEqual(run(t, 'i32'), { index: [1, 0, 1], value: [7, 9, 8], raw: Float64Array.of(7, 9, 8) });
    assert.deepEqual([...(run(tensorFrom(Uint16Array.of(0, 0x7e55), { dtype: 'f16' })).raw as Uint16Array)], [0x7e55]);
  });
  test('refusals', () => {
    const idx = zeros('i64', [1]);
    assert.throws(() => planArgmax(zeros('f32', [0]), idx, zeros('f32', [1])), {
      code: 'SHAPE',
      message: 'argmax: vals: expected at least one element in the last dimension, got [0]',
    });
    assert.throws(() => planArgmax(zeros('f32', [4]), zeros('f32', [1]), zeros('f32', [1])), {
      code: 'DTYPE',
      message: 'argmax: max_idx: expected dtype i64 or i32, got "f32"',
    });
    assert.throws(() => planArgmax(zeros('f32', [4]), zeros('i64', [2]), zeros('f32', [1])), {
      code: 'SHAPE',
      message: 'argmax: max_idx: expected shape [1], got [2]',
    });
  });
});

describe('embedding', () => {
  test('rows bit for bit, any dtype, any index dtype', () => {
    const weight = tensorFrom(Uint16Array.of(1, 0x7f81, 3, 0x8000, 5, 6), { dtype: 'bf16', shape: [3, 2] });
    const out = zeros('bf16', [3, 2]);
    runReference(planEmbedding(tensorFrom(Uint8Array.of(1, 0, 1)), weight, out));
    assert.deepEqual([...(out.read() as Uint16Array)], [3, 0x8000, 1, 0x7f81, 3, 0x8000]);
  });
  test('refusals name the index and the table', () => {
    const weight = zeros('f32', [3, 2]);
    for (const [bad, text] of [
      [3n, '3'],
      [-1n, '-1'],
    ] as const) {
      assert.throws(() => planEmbedding(tensorFrom(BigInt64Array.of(0n, bad)), weight, zeros('f32', [2, 2])), {
        code: 'RANGE',
        message: `embedding: index[1]: expected a row of the table, in [0, 2] (3 rows), got ${text}`,
      });
    }
    assert.throws(() => planEmbedding(tensorFrom(Float32Array.of(0)), weight, zeros('f32', [1, 2])), {
      code: 'DTYPE',
      message: 'embedding: index: expected an integer dtype, got "f32"',
    });
  });
});

describe('rearrange', () => {
  test('bits move, holes stay, broadcast sources are read', () => {
    const bits = Uint32Array.of(0x7fa00001, 1, 2, 3);
    const x = tensorFrom(new Float32Array(bits.buffer), { shape: [2, 2] }).permute([1, 0]);
    const room = new Float32Array(6).fill(9);
    runReference(planRearrange(x, tensorFrom(room, { shape: [2, 2], strides: [3, 1], offset: 1 })));
    assert.deepEqual([...new Uint32Array(room.buffer)], [0x41100000, 0x7fa00001, 2, 0x41100000, 1, 3]);
    const out = zeros('u8', [2, 3]);
    runReference(planRearrange(tensorFrom(Uint8Array.of(7), { shape: [2, 3], strides: [0, 0] }), out));
    assert.deepEqual([...(out.read() as Uint8Array)], [7, 7, 7, 7, 7, 7]);
  });
});

test('rms_norm refuses a negative eps and the wrong weight; f16 rows do not overflow', () => {
  assert.throws(() => planRmsNorm(zeros('f32', [2, 3]), zeros('f32', [3]), -1, zeros('f32', [2, 3])), {
    code: 'RANGE',
    message: 'rms_norm: eps: expected a finite number >= 0, got -1',
  });
  assert.throws(() => planRmsNorm(zeros('f32', [2, 3]), zeros('f32', [2]), 0, zeros('f32', [2, 3])), {
    code: 'SHAPE',
    message: 'rms_norm: weight: expected shape [3], got [2]',
  });
  const out = zeros('f16', [1, 2]);
  runReference(planRmsNorm(f64Tensor([60000, 60000], [1, 2], 'f16'), f64Tensor([1, 1], [2], 'f16'), 1e-5, out));
  assert.deepEqual([...floats(out)], [1, 1]);
});
