import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { readNpy, viewOf } from '@ropewalk/oracle/internal';
import { vectorFolder } from '@ropewalk/oracle/node';
import fc from 'fast-check';
import { drawn, FUZZ } from '../../../../test/support/size.js';
import { VECTORS } from '../../../../test/support/suites.js';
import { f64Tensor, floats } from '../../../../test/support/tensors.js';
import { blockBytes, blocksFrom, readBlocks } from '../../src/core/blocks.js';
import {
  bitsOf,
  DTYPES,
  type Dtype,
  type FloatDtype,
  type HostArray,
  isFloat,
  isFloat8,
  newArray,
  roundTo,
} from '../../src/core/dtypes.js';
import type { ErrorCode } from '../../src/core/errors.js';
import { countElements } from '../../src/core/shape.js';
import { type Tensor, tensorFrom, zeros } from '../../src/core/tensor.js';
import { planAdd } from '../../src/ops/add.js';
import { planArgmax } from '../../src/ops/argmax.js';
import { planEmbedding } from '../../src/ops/embedding.js';
import { planExpertLinear } from '../../src/ops/expert-linear.js';
import { planGeglu, planGelu } from '../../src/ops/gelu.js';
import { planLayerNorm } from '../../src/ops/layer-norm.js';
import { planLinear } from '../../src/ops/linear.js';
import type { OpPlan } from '../../src/ops/op-plan.js';
import { planRearrange } from '../../src/ops/rearrange.js';
import { planRmsNorm } from '../../src/ops/rms-norm.js';
import { planRoute, type RouteOptions } from '../../src/ops/route.js';
import { planScale } from '../../src/ops/scale.js';
import { planSelfAttention } from '../../src/ops/self-attention.js';
import { planSwiglu } from '../../src/ops/swiglu.js';
import { runReference } from '../../src/reference/index.js';

const FLOATS = DTYPES.filter(isFloat);
const dtypes = fc.constantFrom<FloatDtype>(...FLOATS);
let counter = 0;
/** Makes numbers without a pattern, the same in every run of a file. */
const noise = (n: number): Float64Array => Float64Array.from({ length: n }, () => Math.sin(++counter * 12.9898) * 2);
const random = (shape: readonly number[], dtype: FloatDtype = 'f64') =>
  f64Tensor(noise(countElements(shape)), shape, dtype);

/**
 * A layout of elements: the innermost dimension, the dimensions that run backwards, the step, and the elements before it.
 */
interface Placement {
  readonly reversed: boolean;
  /** Bit d: dimension d has a negative stride. */
  readonly backwards: number;
  readonly step: number;
  readonly lead: number;
}
const placements = fc.array(
  fc.record({ reversed: fc.boolean(), backwards: fc.nat(15), step: fc.integer({ min: 1, max: 3 }), lead: fc.nat(4) }),
  { minLength: 4, maxLength: 4 },
);

/**
 * Makes room for a shape in some layout, filled with bits that no result has, so that a written gap or a missed element
 * shows.
 */
function roomFor(
  dtype: FloatDtype,
  shape: readonly number[],
  { reversed, backwards, step, lead }: Placement,
): Tensor<FloatDtype> {
  const strides = shape.map(() => 0);
  let offset = lead;
  let reach = step;
  for (const d of reversed ? shape.keys() : [...shape.keys()].reverse()) {
    strides[d] = backwards & (1 << d) ? -reach : reach;
    if (strides[d]! < 0) offset += (shape[d]! - 1) * reach;
    reach *= shape[d]!;
  }
  const data = newArray(dtype, lead + reach + 2);
  data.fill(-1234 as never);
  return tensorFrom(data, { dtype, shape, strides, offset }) as Tensor<FloatDtype>;
}

/** Lays the same elements out in some way. */
function placed(t: Tensor<FloatDtype>, how: Placement): Tensor<FloatDtype> {
  const view = roomFor(t.dtype, t.shape, how);
  runReference(planRearrange(t, view));
  return view;
}

/** Counts the representable numbers between two of one dtype; −0 and +0 count as one. */
function unitsApart(dtype: Dtype, a: HostArray, b: HostArray, n: number): number {
  const top = dtype === 'f32' ? 2 ** 31 : 2 ** 15;
  const rank = (raw: number): number => (raw >= top ? top - raw : raw);
  return Math.abs(rank(Number(bitsOf(a)[n])) - rank(Number(bitsOf(b)[n])));
}

interface VectorTensor {
  readonly dtype: Dtype;
  readonly shape: number[];
  readonly file?: string;
  readonly strides?: number[];
  readonly offset?: number;
  readonly initial?: string;
  readonly expected?: string;
  readonly value?: number | string;
}
interface VectorCase {
  readonly id: string;
  readonly op: string;
  readonly dtype: Dtype;
  readonly compare: 'allclose' | 'exact' | 'bits' | 'bits_whole_buffer';
  readonly shape?: number[];
  readonly attrs: { eps: number; scale: number };
  readonly inputs: Record<string, VectorTensor>;
  readonly outputs: Record<string, VectorTensor>;
  readonly tolerance: { atol: number; rtol: number };
}
type Named = Record<string, Tensor>;

/** Makes each operator's plan from LLAISYS' names. */
const PLANS: Record<string, (t: Named, attrs: VectorCase['attrs']) => OpPlan> = {
  add: (t) => planAdd(t.a!, t.b!, t.c!),
  argmax: (t) => planArgmax(t.vals!, t.max_idx!, t.max_val!),
  embedding: (t) => planEmbedding(t.index!, t.weight!, t.out!),
  linear: (t) => planLinear(t.in!, t.weight!, t.out!, { bias: t.bias }),
  rms_norm: (t, { eps }) => planRmsNorm(t.in!, t.weight!, t.out!, { eps }),
  self_attention: (t, { scale }) => planSelfAttention(t.q!, t.k!, t.v!, t.attn_val!, { scale }),
  swiglu: (t) => planSwiglu(t.gate!, t.up!, t.out!),
  rearrange: (t) => planRearrange(t.in!, t.out!),
};

// The peers' tolerances (1e-2 for bf16) hide an operator that rounds on the way; ours is the float64 result rounded
// once.
describe('golden: LLAISYS vectors to the last unit', () => {
  const folder = vectorFolder(`${VECTORS}/llaisys`);
  const parse = (file: string) => JSON.parse(new TextDecoder().decode(folder.read(file)));
  const cases = (parse('manifest.json').cases as VectorCase[]).filter((c) => c.op !== 'rope');

  for (const c of cases) {
    test(c.id, () => {
      const lay = (v: VectorTensor, file: string) => {
        const whole = readNpy(folder, file, v.dtype);
        return v.strides ? viewOf(whole, { shape: c.shape!, strides: v.strides, offset: v.offset! }, file) : whole;
      };
      const tensors: Named = {};
      for (const [name, v] of Object.entries(c.inputs)) tensors[name] = lay(v, v.file!);
      for (const [name, v] of Object.entries(c.outputs))
        tensors[name] = v.initial ? lay(v, v.initial) : zeros(v.dtype, v.shape);
      runReference(PLANS[c.op]!(tensors, c.attrs));

      for (const [name, v] of Object.entries(c.outputs)) {
        const got = tensors[name]!.storage.host!;
        if (c.compare === 'exact') {
          assert.deepEqual(
            floats(tensors[name]!),
            Float64Array.of(Number(String(v.value).replace(/inf$/i, 'Infinity'))),
            name,
          );
          continue;
        }
        const expected = readNpy(folder, v.expected!, v.dtype);
        const want = expected.storage.host!;
        if (c.compare !== 'allclose') {
          assert.deepEqual(bitsOf(got), bitsOf(want), `${name}, holes too`);
          continue;
        }
        const { atol, rtol } = c.tolerance;
        const [a, b] = [floats(tensors[name]!), floats(expected)];
        assert.equal(a.length, b.length);
        for (const [n, y] of b.entries()) {
          // Both round a float64 once, and their sums differ in order: one unit. The formula gives NaN for a gate of
          // −∞, as here.
          const close = Math.abs(a[n]! - y) <= atol + rtol * Math.abs(y) && unitsApart(v.dtype, got, want, n) <= 1;
          assert.ok(Object.is(a[n], y) || close, `${name}[${n}]: got ${a[n]}, want ${y}`);
        }
      }
    });
  }

  test('every operator has cases', () => {
    assert.deepEqual([...new Set(cases.map((c) => c.op))].sort(), Object.keys(PLANS).sort());
  });

  test('errors.json: our plans refuse the same calls, with the code of the category', () => {
    let count = 0;
    for (const { id, op, args, category } of parse('errors.json').cases) {
      // LLAISYS has no f64; our operators do, and its dialect refuses it.
      if (op === 'rope' || id === 'add_f64') continue;
      const given = Object.entries(args).filter(([, v]) => typeof v === 'object') as [string, VectorTensor][];
      const tensors = Object.fromEntries(given.map(([name, v]) => [name, zeros(v.dtype, v.shape)]));
      assert.throws(() => PLANS[op]!(tensors, args), { code: (category as string).toUpperCase() as ErrorCode }, id);
      count++;
    }
    assert.equal(count, 10);
  });
});

interface Case {
  readonly name: OpPlan['op'];
  /** The form of the operator. */
  readonly form?: string;
  readonly inputs: (dtype: FloatDtype) => Tensor<FloatDtype>[];
  readonly outShape: number[];
  readonly plan: (inputs: Tensor<FloatDtype>[], out: Tensor<FloatDtype>) => OpPlan;
  /** The inputs that out may be. */
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
    plan: ([x, w], out) => planRmsNorm(x!, w!, out, { eps: 1e-5 }),
    inPlace: [0],
    formula: ([x, w]) =>
      Array.from(x!, (v, i) => {
        const row = x!.subarray(i - (i % 6), i - (i % 6) + 6);
        return (v / Math.sqrt(row.reduce((s, e) => s + e * e, 0) / 6 + 1e-5)) * w![i % 6]!;
      }),
  },
  {
    name: 'swiglu',
    form: 'clamped',
    inputs: (d) => [random([3, 5], d), random([3, 5], d)],
    outShape: [3, 5],
    plan: ([g, u], out) => planSwiglu(g!, u!, out, { limit: 0.5, alpha: 1.702, offset: 1 }),
    inPlace: [0, 1],
    formula: ([g, u]) =>
      Array.from(g!, (v, i) => {
        const [gate, up] = [v > 0.5 ? 0.5 : v, Math.sign(u![i]!) * Math.min(0.5, Math.abs(u![i]!))];
        return ((up + 1) * gate) / (1 + Math.exp(-1.702 * gate));
      }),
  },
  ...(['none', 'tanh'] as const).flatMap((approximate): Case[] => [
    {
      name: 'gelu',
      form: approximate,
      inputs: (d) => [random([3, 5], d)],
      outShape: [3, 5],
      plan: ([x], out) => planGelu(x!, out, { approximate }),
      inPlace: [0],
      formula: ([x]) => Array.from(x!, (v) => v * GELU[approximate](v)),
    },
    {
      name: 'geglu',
      form: approximate,
      inputs: (d) => [random([3, 5], d), random([3, 5], d)],
      outShape: [3, 5],
      plan: ([g, u], out) => planGeglu(g!, u!, out, { approximate }),
      inPlace: [0, 1],
      formula: ([g, u]) => Array.from(g!, (v, i) => u![i]! * v * GELU[approximate](v)),
    },
  ]),
  {
    name: 'scale',
    form: 'one factor for each row',
    inputs: (d) => [random([2, 3, 5], d), random([2, 3], d)],
    outShape: [2, 3, 5],
    plan: ([x, f], out) => planScale(x!, f!, out),
    inPlace: [0],
    formula: ([x, f]) => Array.from(x!, (v, i) => v * f![Math.floor(i / 5)]!),
  },
  {
    name: 'scale',
    form: 'a factor and a soft cap',
    inputs: (d) => [random([3, 5], d)],
    outShape: [3, 5],
    plan: ([x], out) => planScale(x!, -2.5, out, { softcap: 1.5 }),
    inPlace: [0],
    formula: ([x]) => Array.from(x!, (v) => 1.5 - 3 / (1 + Math.exp((2 * -2.5 * v) / 1.5))),
  },
  {
    name: 'layer_norm',
    inputs: (d) => [random([4, 6], d), random([6], d), random([6], d)],
    outShape: [4, 6],
    plan: ([x, w, b], out) => planLayerNorm(x!, w!, out, { bias: b!, eps: 1e-5 }),
    inPlace: [0],
    formula: ([x, w, b]) =>
      Array.from(x!, (v, i) => {
        const row = x!.subarray(i - (i % 6), i - (i % 6) + 6);
        const mean = row.reduce((s, e) => s + e, 0) / 6;
        // E x² − (E x)²: another sum, and float64 has digits to spare.
        const variance = row.reduce((s, e) => s + e * e, 0) / 6 - mean * mean;
        return ((v - mean) / Math.sqrt(variance + 1e-5)) * w![i % 6]! + b![i % 6]!;
      }),
  },
  {
    name: 'linear',
    inputs: (d) => [random([2, 3, 7], d), random([5, 7], d), random([5], d)],
    outShape: [2, 3, 5],
    plan: ([x, w, b], out) => planLinear(x!, w!, out, { bias: b! }),
    inPlace: [],
    formula: ([x, w, b]) =>
      Array.from(
        { length: 30 },
        (_, i) =>
          Array.from({ length: 7 }, (_, k) => x![Math.floor(i / 5) * 7 + k]! * w![(i % 5) * 7 + k]!).reduce(
            (s, p) => s + p,
            0,
          ) + b![i % 5]!,
      ),
  },
  {
    // 3 queries at the end of 5 keys, 4 query heads on 2 KV heads, d = 6, dv = 3.
    name: 'self_attention',
    inputs: (d) => [random([3, 4, 6], d), random([5, 2, 6], d), random([5, 2, 3], d)],
    outShape: [3, 4, 3],
    plan: ([q, k, v], out) => planSelfAttention(q!, k!, v!, out),
    inPlace: [],
    formula: ([q, k, v]) => attend(q!, k!, v!, SMALL),
  },
];

/** Φ(x) and its approximation, written independently of the reference. */
const GELU = {
  /** Computes Φ by the alternating series of erf; far below 0 by Craig's integral, whose trapezoid sum converges fast. */
  none: (x: number): number => {
    if (x < -1) {
      let sum = 0;
      for (let n = 1; n < 200; n++) sum += Math.exp((-x * x) / 2 / Math.sin((n * Math.PI) / 400) ** 2);
      return (sum + Math.exp((-x * x) / 2) / 2) / 400;
    }
    let sum = 0;
    for (let n = 0, term = x / Math.sqrt(2 * Math.PI); n < 60; n++, term *= (-x * x) / (2 * n))
      sum += term / (2 * n + 1);
    return 0.5 + sum;
  },
  tanh: (x: number): number => 0.5 + 0.5 * Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x * x * x)),
};

interface AttentionSizes {
  readonly seq: number;
  readonly past: number;
  readonly numKvHeads: number;
  readonly group: number;
  readonly d: number;
  readonly dv: number;
}
const SMALL: AttentionSizes = { seq: 3, past: 2, numKvHeads: 2, group: 2, d: 6, dv: 3 };

/** Computes attention row by row, leaving masked scores out; written independently of the reference. */
function attend(
  q: Float64Array,
  k: Float64Array,
  v: Float64Array,
  { seq, past, numKvHeads, group, d, dv }: AttentionSizes,
  sees: (query: number, key: number) => boolean = (query, key) => key <= query,
  cap: (score: number) => number = (score) => score,
  scale = 1 / Math.sqrt(d || 1),
  sinks?: Float64Array,
): number[] {
  const numHeads = numKvHeads * group;
  const rowOf = (data: Float64Array, row: number, width: number) => [...data.subarray(row * width, (row + 1) * width)];
  return Array.from({ length: seq * numHeads }, (_, row) => {
    const [s, h] = [Math.floor(row / numHeads), row % numHeads];
    // Query heads in their order, each KV head repeated for its whole group: torch's repeat_interleave.
    const kv = Array.from({ length: numHeads }, (_, n) => (n - (n % group)) / group)[h]!;
    const keys = Array.from({ length: past + seq }, (_, t) => t).filter((t) => sees(past + s, t));
    const query = rowOf(q, row, d);
    const weights = keys.map((t) => {
      const key = rowOf(k, t * numKvHeads + kv, d);
      return Math.exp(cap(query.reduce((sum, e, i) => sum + e * key[i]!, 0) * scale));
    });
    const total = weights.reduce((sum, w) => sum + w, sinks ? Math.exp(sinks[h]!) : 0);
    return Array.from({ length: dv }, (_, i) =>
      keys.reduce((sum, t, n) => sum + (weights[n]! / total) * v[(t * numKvHeads + kv) * dv + i]!, 0),
    );
  }).flat();
}

for (const { name, form, inputs, outShape, plan, inPlace, formula } of CASES) {
  describe(form ? `${name}, ${form}` : name, () => {
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
          assert.ok(
            exact || Math.abs(got - want[i]!) <= unit * Math.abs(want[i]!),
            `[${i}] got ${got}, want ${want[i]}`,
          );
        }
      });
    }

    test('strided in and out = contiguous, bit for bit; gaps in out untouched', () => {
      fc.assert(
        fc.property(dtypes, placements, (dtype, how) => {
          const given = inputs(dtype);
          const dense = zeros(dtype, outShape);
          runReference(plan(given, dense));
          const out = roomFor(dtype, outShape, how[3]!);
          runReference(
            plan(
              given.map((t, n) => placed(t, how[n]!)),
              out,
            ),
          );
          assert.deepEqual(out.storage.host, placed(dense, how[3]!).storage.host);
        }),
        drawn(60),
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
        assert.throws(() => plan(copies, tensorFrom(room, { dtype: 'f32', shape: outShape, offset: 1 })), {
          code: 'ALIAS',
        });
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
      assert.throws(() => plan(given, flat as Tensor<'f32'>), {
        code: 'ALIAS',
        message: /two indices name the same element/,
      });
    });
  });
}

describe('zero elements', () => {
  const none = (...shape: number[]) => zeros('f32', shape);
  test('nothing is computed and nothing breaks', () => {
    for (const plan of [
      planAdd(none(0, 3), none(0, 3), none(0, 3)),
      planSwiglu(none(0, 3), none(0, 3), none(0, 3)),
      planGelu(none(0, 3), none(0, 3)),
      planGeglu(none(0, 3), none(0, 3), none(0, 3)),
      planScale(none(0, 3), none(0), none(0, 3)),
      planScale(none(2, 0), none(2), none(2, 0)),
      planLayerNorm(none(0, 3), none(3), none(0, 3), { bias: none(3), eps: 1e-5 }),
      planLayerNorm(none(2, 0), none(0), none(2, 0), { eps: 1e-5 }),
      planRmsNorm(none(0, 3), none(3), none(0, 3), { eps: 1e-5 }),
      planLinear(none(0, 3), none(5, 3), none(0, 5)),
      planSelfAttention(none(0, 4, 6), none(7, 2, 6), none(7, 2, 3), none(0, 4, 3)),
      planSelfAttention(none(0, 2, 1, 4), none(0, 0, 1, 4), none(0, 0, 1, 2), none(0, 2, 1, 2), { causal: false }),
      planRmsNorm(none(2, 0), none(0), none(2, 0), { eps: 1e-5 }),
      planRoute(none(0, 3), zeros('i32', [0, 2]), none(0, 2), { gate: 'softmax' }),
      planRoute(none(2, 3), zeros('i32', [2, 0]), none(2, 0), { gate: 'sigmoid', normalize: true }),
      planArgmax(none(2, 0, 4), zeros('i64', [2, 0, 1]), none(2, 0, 1)),
      planRearrange(none(0, 3), none(0, 3)),
      planEmbedding(tensorFrom(new BigInt64Array(0)), none(5, 3), none(0, 3)),
    ]) {
      runReference(plan);
    }
    // A sum over nothing is the bias.
    const out = none(2, 3);
    runReference(planLinear(none(2, 0), none(3, 0), out, { bias: tensorFrom(Float32Array.of(1, 2, 3)) }));
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
    assert.equal(got.length, want.length);
    for (const [i, v] of got.entries()) assert.ok(Math.abs(v - want[i]!) < 1e-13, `[${i}] ${v} ${want[i]}`);
  };
  const numbers = given.map(floats) as [Float64Array, Float64Array, Float64Array];

  test('a window counts the query itself', () => {
    near(
      run({ window: 2 }),
      attend(...numbers, SMALL, (p, t) => t <= p && t > p - 2),
    );
    near(
      run({ window: 1 }),
      attend(...numbers, SMALL, (p, t) => t === p),
    );
    near(run({ window: 99 }), run({}));
  });
  test('softcap bends scores before the mask', () => {
    const cap = (s: number) => 0.5 * Math.tanh(s / 0.5);
    near(run({ softcap: 0.5 }), attend(...numbers, SMALL, undefined, cap));
  });
  test('any sizes and options: a softmax by hand, row by row, and to the bit the same in other layouts', () => {
    const size = (min: number, max: number) => fc.integer({ min, max });
    const sizes = fc.record({
      seq: size(0, 4),
      past: size(0, 4),
      numKvHeads: size(1, 3),
      group: size(1, 3),
      d: size(0, 5),
      dv: size(0, 4),
    });
    const maybe = <T>(value: fc.Arbitrary<T>) => fc.option(value, { nil: undefined });
    const options = fc.oneof(
      fc.record({
        causal: fc.constant(true),
        window: maybe(size(1, 9)),
        softcap: maybe(size(1, 50)),
        scale: maybe(size(-2, 2)),
      }),
      fc.record({
        causal: fc.constant(false),
        window: fc.constant(undefined),
        softcap: maybe(size(1, 50)),
        scale: maybe(size(-2, 2)),
      }),
    );
    let attended = 0;
    fc.assert(
      fc.property(sizes, options, fc.boolean(), placements, (dims, { causal, window, softcap, scale }, sink, how) => {
        const { seq, past, numKvHeads, group, d, dv } = dims;
        const [total, numHeads] = [past + seq, numKvHeads * group];
        const tensors = [
          random([seq, numHeads, d]),
          random([total, numKvHeads, d]),
          random([total, numKvHeads, dv]),
        ] as const;
        const shape = [seq, numHeads, dv];
        const sinks = sink ? random([numHeads]) : undefined;
        const chosen = {
          causal,
          ...(sinks && { sinks }),
          ...(window !== undefined && { window }),
          ...(softcap !== undefined && { softcap }),
          ...(scale !== undefined && { scale }),
        };
        const out = zeros('f64', shape);
        runReference(planSelfAttention(...tensors, out, chosen));
        const sees = (p: number, t: number) => !causal || (t <= p && t > p - (window ?? Infinity));
        const cap = (score: number) => (softcap === undefined ? score : softcap * Math.tanh(score / softcap));
        const [q, k, v] = tensors.map(floats);
        near(floats(out), attend(q!, k!, v!, dims, sees, cap, scale, sinks && floats(sinks)));
        attended += out.size;
        if (seq * d * dv === 0) return;
        const other = roomFor('f64', shape, how[3]!);
        const [oq, ok, ov] = tensors.map((t, n) => placed(t, how[n]!));
        runReference(planSelfAttention(oq!, ok!, ov!, other, chosen));
        assert.deepEqual(other.read(), out.read());
      }),
      drawn(),
    );
    if (FUZZ === 10) assert.ok(attended > 1000, `${attended} elements`);
  });
  test('what the mask hides is not read: NaN in the future and before the window', () => {
    const [q, k, v] = given;
    const hidden = (t: Tensor<FloatDtype>) =>
      f64Tensor(
        floats(t)
          .fill(NaN, 0, t.size / 5)
          .fill(NaN, (t.size / 5) * 4),
        t.shape,
      );
    // Query 1 is at position 3: with a window of 3 it sees keys 1, 2 and 3 of 0 … 4.
    const out = zeros('f64', [3, 4, 3]);
    runReference(planSelfAttention(q, hidden(k), hidden(v), out, { window: 3 }));
    near(floats(out).slice(12, 24), run({ window: 3 }).slice(12, 24));
    assert.ok(floats(out).slice(24).every(Number.isNaN), 'the last query does see the last key');
  });
  test("sinks of −∞ are none, one of +thousands takes all weight; each is its own head's", () => {
    const sinks = (...values: number[]) => f64Tensor(values, [4]);
    near(run({ sinks: sinks(...new Array(4).fill(Number.NEGATIVE_INFINITY)) }), run({}));
    const one = run({ sinks: sinks(-Infinity, 9000, -Infinity, -Infinity) });
    near(
      one,
      run({}).map((value, i) => (Math.floor(i / 3) % 4 === 1 ? 0 : value)),
    );
  });
  test('scores of thousands: the largest is subtracted first', () => {
    const out = zeros('f32', [1, 1, 1]);
    const [q, k] = [f64Tensor([100], [1, 1, 1], 'f32'), f64Tensor([100, 90], [2, 1, 1], 'f32')];
    runReference(planSelfAttention(q, k, f64Tensor([3, 7], [2, 1, 1], 'f32'), out));
    assert.deepEqual([...floats(out)], [3]);
  });
  test('heads of width 0 weigh all keys alike', () => {
    const out = zeros('f64', [1, 1, 1]);
    const none = (...shape: number[]) => zeros('f64', shape);
    runReference(planSelfAttention(none(1, 1, 0), none(2, 1, 0), f64Tensor([1, 3], [2, 1, 1]), out));
    assert.deepEqual([...floats(out)], [2]);
    assert.throws(() => planSelfAttention(none(1, 1, 0), none(2, 1, 0), none(2, 1, 1), out, { scale: NaN }), {
      code: 'RANGE',
      message: 'self_attention: scale: expected a finite number, got NaN',
    });
  });
  test('a given scale, and no causal mask', () => {
    near(run({ scale: 1 / Math.sqrt(6) }), run({}));
    assert.notDeepEqual(run({ scale: 1 }), run({}));
    const last = run({}).slice(-12);
    near(run({ causal: false }).slice(-12), last); // the last query sees every key either way
    assert.notDeepEqual(run({ causal: false }), run({}));
  });
  test('a batch is attended item by item', () => {
    const others = [random([3, 4, 6]), random([5, 2, 6]), random([5, 2, 3])] as const;
    const [q, k, v] = given.map((t, n) => f64Tensor([...floats(t), ...floats(others[n]!)], [2, ...t.shape]));
    const out = zeros('f64', [2, 3, 4, 3]);
    runReference(planSelfAttention(q!, k!, v!, out));
    const second = zeros('f64', [3, 4, 3]);
    runReference(planSelfAttention(...others, second));
    assert.deepEqual([...floats(out)], [...run({}), ...floats(second)]);
  });
  test('refusals', () => {
    const t = (...shape: number[]) => zeros('f32', shape);
    const cases: [() => unknown, string, RegExp][] = [
      [
        () => planSelfAttention(t(3, 4, 6), t(2, 2, 6), t(2, 2, 6), t(3, 4, 6)),
        'SHAPE',
        /k: expected total_len >= seqlen=3, as each query has a key, got 2/,
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
      [
        () => planSelfAttention(t(3, 4, 6), t(5, 2, 6), t(5, 2, 6), t(3, 4, 6), { window: 2, causal: false }),
        'UNSUPPORTED',
        /window: a window needs causal attention\. Leave out window, or causal=false\./,
      ],
      [
        () => planSelfAttention(t(3, 4, 6), t(0, 2, 6), t(0, 2, 6), t(3, 4, 6), { causal: false }),
        'SHAPE',
        /k: expected at least one key, got 0/,
      ],
      [
        () => planSelfAttention(t(1, 3, 4, 6), t(2, 5, 2, 6), t(1, 5, 2, 6), t(1, 3, 4, 6)),
        'SHAPE',
        /k: expected shape \[1,5,2,6\], got \[2, 5, 2, 6\]/,
      ],
      [
        () => planSelfAttention(t(3, 4, 6), t(5, 2, 6), t(5, 2, 6), t(3, 4, 6), { sinks: t(2) }),
        'SHAPE',
        /sinks: expected shape \[4\], got \[2\]/,
      ],
      [
        () => planSelfAttention(t(3, 4, 6), t(5, 2, 6), t(5, 2, 6), t(3, 4, 6), { sinks: zeros('f64', [4]) }),
        'DTYPE',
        /sinks: expected dtype f32, f16 or bf16, as the activations are f32, got "f64"/,
      ],
      ...(
        [
          ['f16', 'f32', 'f32', 'k: expected dtype f16, got "f32"'],
          ['f32', 'f64', 'f64', 'k: expected dtype f32, f16 or bf16, as the activations are f32, got "f64"'],
          ['f32', 'f16', 'bf16', 'v: expected dtype f16, got "bf16"'],
          ['f32', 'bf16', 'f32', 'v: expected dtype bf16, got "f32"'],
          ['f32', 'f32', 'f16', 'v: expected dtype f32, got "f16"'],
        ] as const
      ).map(([q, k, v, text]): [() => unknown, string, RegExp] => {
        const [kv, out] = [[5, 2, 6], zeros(q, [3, 4, 6])];
        return [
          () => planSelfAttention(zeros(q, [3, 4, 6]), zeros(k, kv), zeros(v, kv), out),
          'DTYPE',
          new RegExp(text),
        ];
      }),
      // Both have one shape, so out could be the input itself: a later head would then read the output of an earlier one.
      ...[0, 1, 2].map((n): [() => unknown, string, RegExp] => {
        const [q, k, v] = [t(3, 2, 6), t(3, 2, 6), t(3, 2, 6)];
        return [
          () => planSelfAttention(q, k, v, [q, k, v][n]!),
          'ALIAS',
          /attn_val: it shares all of its memory with [qkv]/,
        ];
      }),
    ];
    for (const [call, code, message] of cases) assert.throws(call, { code, message });
  });
});

describe('route', () => {
  const run = (logits: readonly number[], chosen: number, options: RouteOptions, tokens = 1) => {
    const [indices, weights] = [zeros('i32', [tokens, chosen]), zeros('f64', [tokens, chosen])];
    runReference(planRoute(f64Tensor(logits, [tokens, logits.length / tokens]), indices, weights, options));
    return { indices: [...floats(indices)], weights: [...floats(weights)] };
  };
  const near = (got: readonly number[], want: readonly number[]) => {
    assert.equal(got.length, want.length);
    for (const [i, value] of got.entries())
      assert.ok(Math.abs(value - want[i]!) <= 4 * Number.EPSILON * Math.abs(want[i]!), `[${i}] ${value} ${want[i]}`);
  };
  const LOGITS = [1, 4, 2, 3];
  const total = LOGITS.reduce((sum, z) => sum + Math.exp(z), 0);

  test('each gate; the best first, of equal ones the lower expert', () => {
    const soft = run(LOGITS, 2, { gate: 'softmax' });
    assert.deepEqual(soft.indices, [1, 3]);
    near(soft.weights, [Math.exp(4) / total, Math.exp(3) / total]);
    near(run(LOGITS, 2, { gate: 'sigmoid' }).weights, [1 / (1 + Math.exp(-4)), 1 / (1 + Math.exp(-3))]);
    near(run(LOGITS, 2, { gate: 'softmax-of-chosen' }).weights, [Math.E / (Math.E + 1), 1 / (Math.E + 1)]);
    assert.deepEqual(run([5, 7, 5, 7], 3, { gate: 'softmax' }).indices, [1, 3, 0]);
    assert.deepEqual(run([0, 1, 2, 3, 2, 1], 1, { gate: 'softmax' }, 2).indices, [2, 0]);
  });
  test("sparsemixer: transformers' own numbers, in float64", () => {
    const mixed = (logits: readonly number[], jitter?: number) => {
      const { indices, weights } = run(logits, 2, { gate: 'sparsemixer', jitter });
      return [indices, weights] as const;
    };
    const cases = [
      [[2, 2.03, -1, 2.01, 1.99, 1.96], undefined, [1, 3], [0.2556607347847261, 0.3366721665289847]],
      [[-1, -1.01, -1.03, -3, -1.005, -1.015], undefined, [0, 4], [0.25187811324880566, 0.33500138193580153]],
      [[0, 0, 0, -1], 0.01, [0, 1], [1 / 3, 1 / 2]],
      [[2, 2.03, 2.01, 1], 0, [1, 2], [1, 1]],
      [[0.5, 1, 2, 3], 0.3, [3, 2], [0.7310585786300049, 0.7310585786300049]],
    ] as const;
    for (const [logits, jitter, indices, weights] of cases) {
      const [found, got] = mixed(logits, jitter);
      assert.deepEqual(found, indices);
      near(got, weights);
    }
  });
  test('normalised and scaled weights; a small sum counts as 2^-14', () => {
    near(run(LOGITS, 2, { gate: 'softmax', normalize: true, scale: 2.5 }).weights, [
      (2.5 * Math.E) / (Math.E + 1),
      2.5 / (Math.E + 1),
    ]);
    near(run([-20, -30], 1, { gate: 'sigmoid', normalize: true }).weights, [2 ** 14 / (1 + Math.exp(20))]);
  });
  test('a bias chooses, but does not weigh', () => {
    const { indices, weights } = run(LOGITS, 2, { gate: 'sigmoid', bias: f64Tensor([1, 0, 0.5, -1], [4]) });
    assert.deepEqual(indices, [0, 2]);
    near(weights, [1 / (1 + Math.exp(-1)), 1 / (1 + Math.exp(-2))]);
  });
  test('groups: by their best score, or by their two best', () => {
    const logits = [0, 9, 6, 7, 1, 2];
    const groups = (best: 1 | 2): RouteOptions => ({ gate: 'softmax-of-chosen', groups: { count: 3, used: 1, best } });
    assert.deepEqual(run(logits, 2, groups(1)).indices, [1, 0]);
    assert.deepEqual(run(logits, 2, groups(2)).indices, [3, 2]);
    // A group of one has no second score; all groups are no restriction.
    assert.deepEqual(
      run(LOGITS, 2, { gate: 'softmax', groups: { count: 4, used: 2, best: 2 } }),
      run(LOGITS, 2, { gate: 'softmax' }),
    );
  });
  test('refusals', () => {
    const t = (...shape: number[]) => zeros('f32', shape);
    const i = (...shape: number[]) => zeros('i32', shape);
    const at = (options: object) => () =>
      planRoute(t(2, 6), i(2, 2), t(2, 2), { gate: 'softmax', ...options } as never);
    const groups = (count: number, used: number, best = 2) => at({ groups: { count, used, best } });
    const gate = { gate: 'softmax' } as const;
    const cases: [() => unknown, string, RegExp][] = [
      [() => planRoute(t(6), i(2, 2), t(2, 2), gate), 'SHAPE', /logits: expected two dimensions \[tokens, experts\]/],
      [() => planRoute(t(2, 6), i(2, 7), t(2, 7), gate), 'SHAPE', /indices: expected at most 6 chosen experts, got 7/],
      [() => planRoute(t(2, 6), i(3, 2), t(2, 2), gate), 'SHAPE', /indices: expected shape \[2,2\], got \[3, 2\]/],
      [() => planRoute(t(2, 6), i(2, 2), t(2, 1), gate), 'SHAPE', /weights: expected shape \[2,2\], got \[2, 1\]/],
      [() => planRoute(i(2, 6), i(2, 2), t(2, 2), gate), 'DTYPE', /logits: expected .*got "i32"/],
      [() => planRoute(t(2, 6), t(2, 2), t(2, 2), gate), 'DTYPE', /indices: expected dtype i32, got "f32"/],
      [
        () => planRoute(t(2, 6), i(2, 2), zeros('f16', [2, 2]), gate),
        'DTYPE',
        /weights: expected dtype f32, got "f16"/,
      ],
      [
        at({ gate: 'top' }),
        'UNSUPPORTED',
        /gate: expected softmax, sigmoid, softmax-of-chosen or sparsemixer, got "top"/,
      ],
      [at({ bias: t(5) }), 'SHAPE', /bias: expected shape \[6\], got \[5\]/],
      [at({ bias: i(6) }), 'DTYPE', /bias: expected/],
      [at({ normalize: 1 }), 'RANGE', /normalize: expected true or false, got 1/],
      [at({ jitter: -1 }), 'RANGE', /jitter: expected a finite number >= 0, got -1/],
      [at({ gate: 'sparsemixer', bias: t(6) }), 'UNSUPPORTED', /gate: expected another one with a bias or groups/],
      [
        () => planRoute(t(2, 6), i(2, 3), t(2, 3), { gate: 'sparsemixer' }),
        'SHAPE',
        /indices: expected 2 chosen experts, as sparsemixer has, got 3/,
      ],
      [at({ scale: Number.NaN }), 'RANGE', /scale: expected a finite number, got NaN/],
      [groups(4, 1), 'RANGE', /groups.count: expected a divisor of the 6 experts, got 4/],
      [groups(3, 4), 'RANGE', /groups.used: expected an integer in \[1, 3\], got 4/],
      [groups(3, 1, 3), 'RANGE', /groups.best: expected 1 or 2, got 3/],
      [groups(6, 1), 'SHAPE', /indices: expected at most 1 experts, those of 1 groups, got 2/],
    ];
    for (const [call, code, message] of cases) assert.throws(call, { code, message });
    const logits = t(2, 2);
    assert.throws(() => planRoute(logits, i(2, 2), logits, gate), { code: 'ALIAS' });
  });
});

describe('expert_linear', () => {
  test("linear with each expert's matrix; with weights their sum", () => {
    const [tokens, chosen, experts, n, k] = [3, 2, 4, 5, 6];
    const [weight, bias, factors] = [random([experts, n, k]), random([experts, n]), random([tokens, chosen])];
    const indices = tensorFrom<'i32'>(Int32Array.of(3, 0, 1, 1, 0, 2), { shape: [tokens, chosen] });
    for (const x of [random([tokens, k]), random([tokens, chosen, k])]) {
      const [each, sum] = [zeros('f64', [tokens, chosen, n]), zeros('f64', [tokens, n])];
      runReference(planExpertLinear(x, weight, indices, each, { bias }));
      runReference(planExpertLinear(x, weight, indices, sum, { bias, weights: factors }));
      const total = new Float64Array(tokens * n);
      for (const [pair, e] of floats(indices).entries()) {
        const row = x.rank === 3 ? x.view([tokens * chosen, k]).slice(0, pair, pair + 1) : undefined;
        const token = Math.floor(pair / chosen);
        const out = zeros('f64', [1, n]);
        const matrix = weight.slice(0, e, e + 1).view([n, k]);
        runReference(
          planLinear(row ?? x.slice(0, token, token + 1), matrix, out, { bias: bias.slice(0, e, e + 1).view([n]) }),
        );
        const want = floats(out);
        const got = floats(each).subarray(pair * n, (pair + 1) * n);
        for (const [i, value] of want.entries()) {
          assert.ok(Math.abs(got[i]! - value) < 1e-14, `[${pair}, ${i}] ${got[i]} ${value}`);
          total[token * n + i]! += floats(factors)[pair]! * value;
        }
      }
      for (const [i, value] of floats(sum).entries()) assert.ok(Math.abs(value - total[i]!) < 1e-13);
    }
  });
  test('no token, no expert, no column, no k', () => {
    const none = (...shape: number[]) => zeros('f32', shape);
    const i = (...shape: number[]) => zeros('i32', shape);
    runReference(planExpertLinear(none(0, 3), none(0, 4, 3), i(0, 2), none(0, 2, 4)));
    runReference(planExpertLinear(none(2, 3), none(2, 0, 3), i(2, 2), none(2, 2, 0)));
    const out = f64Tensor([7], [1, 1], 'f32');
    const options = { bias: f64Tensor([2], [1, 1], 'f32'), weights: f64Tensor([3], [1, 1], 'f32') };
    runReference(planExpertLinear(none(1, 0), none(1, 1, 0), i(1, 1), out, options));
    assert.deepEqual([...floats(out)], [6]);
    runReference(planExpertLinear(none(1, 0), none(1, 1, 0), i(1, 0), out, { weights: none(1, 0) }));
    assert.deepEqual([...floats(out)], [0], 'a sum of nothing');
  });
  test('refusals', () => {
    const t = (...shape: number[]) => zeros('f32', shape);
    const i = (...shape: number[]) => zeros('i32', shape);
    const [x, w, ids, out] = [t(2, 3), t(4, 5, 3), i(2, 2), t(2, 2, 5)];
    const cases: [() => unknown, string, RegExp][] = [
      [() => planExpertLinear(x, t(5, 3), ids, out), 'SHAPE', /weight: expected three dimensions \[experts, n, k\]/],
      [() => planExpertLinear(x, w, i(2), out), 'SHAPE', /indices: expected two dimensions \[tokens, chosen\]/],
      [() => planExpertLinear(t(2, 4), w, ids, out), 'SHAPE', /x: expected shape \[2,3\], got \[2, 4\]/],
      [() => planExpertLinear(t(2, 1, 3), w, ids, out), 'SHAPE', /x: expected shape \[2,2,3\], got \[2, 1, 3\]/],
      [() => planExpertLinear(x, w, ids, t(2, 5)), 'SHAPE', /out: expected shape \[2,2,5\]/],
      [() => planExpertLinear(x, w, ids, out, { weights: t(2, 2) }), 'SHAPE', /out: expected shape \[2,5\]/],
      [() => planExpertLinear(x, w, ids, out, { bias: t(5) }), 'SHAPE', /bias: expected shape \[4,5\]/],
      [() => planExpertLinear(x, w, ids, out, { weights: t(2) }), 'SHAPE', /weights: expected shape \[2,2\]/],
      [() => planExpertLinear(x, t(0, 5, 3), ids, out), 'SHAPE', /weight: expected at least one expert/],
      [() => planExpertLinear(x, w, t(2, 2), out), 'DTYPE', /indices: expected dtype i32, got "f32"/],
      [
        () => planExpertLinear(x, zeros('f64', [4, 5, 3]), ids, out),
        'DTYPE',
        /weight: expected dtype f32, f16 or bf16/,
      ],
      [() => planExpertLinear(x, w, ids, zeros('f16', [2, 2, 5])), 'DTYPE', /out: expected dtype f32, got "f16"/],
      [() => planExpertLinear(out.view([4, 5]), t(4, 5, 5), i(4, 1), out.view([4, 1, 5])), 'ALIAS', /shares all/],
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
    assert.throws(() => planArgmax(zeros('f32', []), idx, zeros('f32', [1])), {
      code: 'SHAPE',
      message: 'argmax: vals: expected at least one element in the last dimension, got []',
    });
    assert.throws(() => planArgmax(zeros('f32', [4]), idx, zeros('f16', [1])), {
      code: 'DTYPE',
      message: 'argmax: max_val: expected dtype f32, got "f16"',
    });
    const room = new Float32Array(4);
    const vals = tensorFrom(room);
    assert.throws(() => planArgmax(vals, idx, vals.slice(0, 0, 1)), {
      code: 'ALIAS',
      message: /^argmax: max_val: it shares (all|some) of its memory with vals/,
    });
    assert.throws(
      () => planArgmax(zeros('f32', [4]), idx, tensorFrom(new Float32Array(idx.storage.host!.buffer, 0, 1))),
      {
        code: 'ALIAS',
        message: /^argmax: max_val: it shares (all|some) of its memory with max_idx/,
      },
    );
    const inVals = tensorFrom(new BigInt64Array(room.buffer, 8, 1));
    assert.throws(() => planArgmax(vals, inVals, zeros('f32', [1])), {
      code: 'ALIAS',
      message: /^argmax: max_idx: it shares (all|some) of its memory with vals/,
    });
  });
});

describe('embedding', () => {
  test('rows bit for bit, any dtype, any index dtype', () => {
    const weight = tensorFrom(Uint16Array.of(1, 0x7f81, 3, 0x8000, 5, 6), { dtype: 'bf16', shape: [3, 2] });
    for (const dtype of DTYPES.filter((d) => !isFloat(d) && !isFloat8(d))) {
      const index = newArray(dtype, 3);
      index[0] = index[2] = (dtype.endsWith('64') ? 1n : 1) as never;
      const out = zeros('bf16', [3, 2]);
      runReference(planEmbedding(tensorFrom(index, { dtype }), weight, out));
      assert.deepEqual([...(out.read() as Uint16Array)], [3, 0x8000, 1, 0x7f81, 3, 0x8000], dtype);
    }
  });
  test('every layout of index, table and out', () => {
    const index = tensorFrom(Int32Array.of(9, 2, 9, 0, 9), { shape: [2], strides: [-2], offset: 3 }); // 0, 2
    const weight = tensorFrom(Uint8Array.of(1, 2, 3, 4, 5, 6), { shape: [2, 3] }).permute([1, 0]); // [1,4] [2,5] [3,6]
    const room = new Uint8Array(6).fill(77);
    runReference(planEmbedding(index, weight, tensorFrom(room, { shape: [2, 2], strides: [1, 3] })));
    assert.deepEqual([...room], [1, 3, 77, 4, 6, 77]);
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
    assert.throws(() => planEmbedding(tensorFrom(Int32Array.of(0)), zeros('f32', [0, 2]), zeros('f32', [1, 2])), {
      code: 'RANGE',
      message: 'embedding: index[0]: expected no index, as the table has 0 rows, got 0',
    });
    assert.throws(() => planEmbedding(tensorFrom(BigUint64Array.of(2n ** 63n)), weight, zeros('f32', [1, 2])), {
      code: 'RANGE',
      message: 'embedding: index: expected integers within ±(2^53 - 1), got 9223372036854775808n',
    });
    assert.throws(() => planEmbedding(zeros('i32', [1, 1]), weight, zeros('f32', [1, 2])), {
      code: 'SHAPE',
      message: 'embedding: index: expected one dimension, got [1, 1]',
    });
    assert.throws(() => planEmbedding(zeros('i32', [1]), weight, weight.slice(0, 0, 1)), {
      code: 'ALIAS',
      message: /^embedding: out: it shares (all|some) of its memory with weight/,
    });
    const index = new Int32Array(2);
    assert.throws(
      () =>
        planEmbedding(
          tensorFrom(index.subarray(0, 1)),
          weight,
          tensorFrom(new Float32Array(index.buffer), { shape: [1, 2] }),
        ),
      {
        code: 'ALIAS',
        message: /^embedding: out: it shares (all|some) of its memory with index/,
      },
    );
    // f16 and bf16 share their typed array: only the name tells them apart.
    assert.throws(() => planEmbedding(zeros('i32', [1]), zeros('f16', [3, 2]), zeros('bf16', [1, 2])), {
      code: 'DTYPE',
      message: 'embedding: out: expected dtype f16 or f32, got "bf16"',
    });
    for (const [table, out, message] of [
      [zeros('f32', [3, 32]), zeros('f16', [1, 32]), 'embedding: out: expected dtype f32, got "f16"'],
      [zeros('f16', [3, 32]), zeros('f64', [1, 32]), 'embedding: out: expected dtype f16 or f32, got "f64"'],
      [zeros('i32', [3, 32]), zeros('f32', [1, 32]), 'embedding: out: expected dtype i32, got "f32"'],
      [
        blocksFrom('q4_0', new Uint8Array(54), [3, 32]),
        zeros('f16', [1, 32]),
        'embedding: out: expected dtype f32, got "f16"',
      ],
    ] as const)
      assert.throws(() => planEmbedding(zeros('i32', [1]), table, out), { code: 'DTYPE', message });
    const bytes = new Uint8Array(2 * 34 + 128);
    const blocks = blocksFrom('q8_0', bytes.subarray(0, 68), [2, 32]);
    const over = tensorFrom(new Float32Array(bytes.buffer, 64, 32), { shape: [1, 32] });
    assert.throws(() => planEmbedding(zeros('i32', [1]), blocks, over), {
      code: 'ALIAS',
      message: /^embedding: out: it shares (all|some) of its memory with weight/,
    });
    assert.throws(() => planEmbedding(tensorFrom(Int32Array.of(2)), blocks, zeros('f32', [1, 32])), {
      code: 'RANGE',
      message: 'embedding: index[0]: expected a row of the table, in [0, 1] (2 rows), got 2',
    });
    assert.throws(() => planEmbedding(zeros('i32', [1]), blocks, zeros('f32', [1, 64])), {
      code: 'SHAPE',
      message: 'embedding: out: expected shape [1,32], got [1, 64]',
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
  test('onto itself: allowed, and nothing changes', () => {
    const x = tensorFrom(Float32Array.of(1, 2, 3, 4), { shape: [2, 2], strides: [1, 2] });
    runReference(planRearrange(x, x.permute([0, 1])));
    assert.deepEqual([...x.storage.host!], [1, 2, 3, 4]);
  });
  test('refusals', () => {
    const room = tensorFrom(new Float32Array(9), { shape: [3, 3] });
    const cases: [() => unknown, string, RegExp][] = [
      // A transpose within the same memory: a swap would be read after it was written.
      [
        () => planRearrange(room, room.permute([1, 0])),
        'ALIAS',
        /^rearrange: out: it shares some of its memory with x\. Give it memory of its own, or exactly x itself\.$/,
      ],
      [
        () => planRearrange(room.slice(0, 0, 2), room.slice(0, 1, 3)),
        'ALIAS',
        /^rearrange: out: it shares some of its memory with x/,
      ],
      [
        () => planRearrange(zeros('f32', [2]), tensorFrom(new Float32Array(1), { shape: [2], strides: [0] })),
        'ALIAS',
        /^rearrange: out: two indices name the same element \(strides \[0\] over \[2\]\)/,
      ],
      [
        () => planRearrange(zeros('f16', [2]), zeros('u16', [2])),
        'DTYPE',
        /^rearrange: out: expected dtype f16 or another float, got "u16"/,
      ],
      [
        () => planRearrange(zeros('i32', [2]), zeros('f32', [2])),
        'DTYPE',
        /^rearrange: out: expected dtype i32, got "f32"/,
      ],
      [
        () =>
          planRearrange(room, tensorFrom(new Uint16Array(room.storage.host!.buffer), { dtype: 'f16', shape: [3, 3] })),
        'ALIAS',
        /^rearrange: out: it shares some of its memory with x/,
      ],
      [
        () => planRearrange(zeros('f32', [2, 3]), zeros('f32', [3, 2])),
        'SHAPE',
        /^rearrange: out: expected shape \[2,3\], got \[3, 2\]/,
      ],
    ];
    for (const [call, code, message] of cases) assert.throws(call, { code, message });
  });
});

describe('f32 activations with narrower weights and caches', () => {
  const HALVES = ['f16', 'bf16'] as const;
  /** The same numbers in f32, as widening must give them. */
  const widened = (t: Tensor<FloatDtype>) => f64Tensor(floats(t), t.shape, 'f32');
  const bitsAfter = (plan: OpPlan & { out: Tensor }) => {
    runReference(plan);
    return bitsOf(plan.out.storage.host!);
  };
  for (const half of HALVES) {
    test(`${half}: the same bits as of the weights, keys and values widened first`, () => {
      const x = random([2, 7], 'f32');
      const [weight, bias] = [random([5, 7], half), random([5], half)];
      const linear = (w: typeof weight, b: typeof bias) =>
        bitsAfter(planLinear(x, w, zeros('f32', [2, 5]), { bias: b }));
      const want = linear(widened(weight), widened(bias));
      assert.deepEqual(linear(weight, bias), want);
      assert.deepEqual(linear(weight, widened(bias)), want);
      assert.deepEqual(linear(widened(weight), bias), want);

      const gain = random([7], half);
      const norm = (w: typeof gain) => bitsAfter(planRmsNorm(x, w, zeros('f32', [2, 7]), { eps: 1e-6 }));
      assert.deepEqual(norm(gain), norm(widened(gain)));

      const [q, k, v] = [random([3, 4, 6], 'f32'), random([5, 2, 6], half), random([5, 2, 3], half)];
      const attention = (keys: typeof k, values: typeof v) =>
        bitsAfter(planSelfAttention(q, keys, values, zeros('f32', [3, 4, 3])));
      assert.deepEqual(attention(k, v), attention(widened(k), widened(v)));

      const index = tensorFrom(Int32Array.of(4, 0, 4));
      const table = weight.permute([1, 0]);
      const lookUp = (t: typeof table) => bitsAfter(planEmbedding(index, t, zeros('f32', [3, 5])));
      assert.deepEqual(lookUp(table), lookUp(widened(table)));
    });
  }

  test('q8_0 and q4_0 tables: the rows that readBlocks gives, and what linear makes of the same weight', () => {
    for (const format of ['q8_0', 'q4_0'] as const) {
      const [n, k] = [5, 64];
      const bytes = Uint8Array.from({ length: blockBytes(format, n * k) }, (_, i) => (i * 37) % 120);
      const weight = blocksFrom(format, bytes, [n, k]);
      const all = readBlocks(weight, 'test');
      const out = zeros('f32', [3, k]);
      runReference(planEmbedding(tensorFrom(Int32Array.of(4, 0, 2)), weight, out));
      assert.deepEqual(
        floats(out),
        Float64Array.from([4, 0, 2].flatMap((row) => [...all.subarray(row * k, (row + 1) * k)])),
      );
      // One-hot rows of x take the columns of the same matrix: a tied head.
      const head = zeros('f32', [1, n]);
      runReference(planLinear(f64Tensor([1, ...new Array(k - 1).fill(0)], [1, k], 'f32'), weight, head));
      assert.deepEqual(
        [...floats(head)],
        [0, 1, 2, 3, 4].map((row) => all[row * k]!),
      );
    }
  });

  test('rearrange: each float dtype into each other, rounded once, in any layout; f16 into bf16 in its own place', () => {
    fc.assert(
      fc.property(dtypes, dtypes, placements, (from, to, how) => {
        const x = placed(random([3, 4, 5], from), how[0]!);
        const out = roomFor(to, [3, 4, 5], how[1]!);
        const want = roomFor(to, [3, 4, 5], how[1]!);
        runReference(
          planRearrange(
            f64Tensor(
              floats(x).map((v) => roundTo(to, v)),
              x.shape,
              to,
            ),
            want,
          ),
        );
        runReference(planRearrange(x, out));
        assert.deepEqual(out.storage.host, want.storage.host);
      }),
      drawn(),
    );
    const x = random([9], 'f16');
    const values = floats(x);
    const over = tensorFrom(x.storage.host!, { dtype: 'bf16' });
    runReference(planRearrange(x, over));
    assert.deepEqual(
      floats(over as Tensor<'bf16'>),
      values.map((v) => roundTo('bf16', v)),
    );
    // One rounding: f32 halfway between two f16 less a little is not first rounded to bf16 or up.
    const near = tensorFrom(
      Float32Array.of(1 + 2 ** -11, 1 + 2 ** -11 - 2 ** -23, 65520, -65519, NaN, -Infinity, 2 ** -25),
    );
    const halves = zeros('f16', [7]);
    runReference(planRearrange(near, halves));
    assert.deepEqual([...floats(halves)], [1, 1, Infinity, -65504, NaN, -Infinity, 0]);
  });
});

test('linear refuses a weight or bias that does not fit', () => {
  const t = (...shape: number[]) => zeros('f32', shape);
  const half = (...shape: number[]) => zeros('f16', shape);
  const cases: [() => unknown, string, string][] = [
    [() => planLinear(t(2, 4), t(3, 5), t(2, 3)), 'SHAPE', 'linear: weight: expected shape [3,4], got [3, 5]'],
    [() => planLinear(t(2, 4), t(4), t(2, 3)), 'SHAPE', 'linear: weight: expected two dimensions [n, k], got [4]'],
    [() => planLinear(t(2, 4), t(3, 4), t(2, 3), { bias: t(1) }), 'SHAPE', 'linear: bias: expected shape [3], got [1]'],
    [() => planLinear(t(), t(3, 4), t(2, 3)), 'SHAPE', 'linear: x: expected at least one dimension, got []'],
    [
      () => planLinear(t(2, 4), t(3, 4), t(2, 3), { bias: zeros('f64', [3]) }),
      'DTYPE',
      'linear: bias: expected dtype f32, f16 or bf16, as the activations are f32, got "f64"',
    ],
    [
      () => planLinear(t(2, 4), zeros('f64', [3, 4]), t(2, 3)),
      'DTYPE',
      'linear: weight: expected dtype f32, f16 or bf16, as the activations are f32, got "f64"',
    ],
    [() => planLinear(half(2, 4), t(3, 4), half(2, 3)), 'DTYPE', 'linear: weight: expected dtype f16, got "f32"'],
    [
      () => planLinear(half(2, 4), half(3, 4), half(2, 3), { bias: t(3) }),
      'DTYPE',
      'linear: bias: expected dtype f16, got "f32"',
    ],
    [() => planLinear(t(2, 4), half(3, 4), half(2, 3)), 'DTYPE', 'linear: out: expected dtype f32, got "f16"'],
    [
      () => planLinear(t(2, 4), zeros('i8', [3, 4]), t(2, 3)),
      'DTYPE',
      'linear: weight: expected f64, f32, f16 or bf16, got "i8"',
    ],
  ];
  for (const [call, code, message] of cases) assert.throws(call, { code, message });
});

test('gelu in float64, against 150 digits', () => {
  // mpmath 1.3.0: x·ncdf(x), and x/2·(1 + tanh(√(2/π)·(x + 0.044715·x³)))
  const known: readonly (readonly [number, number, number])[] = [
    [-30, -1.472014178144456e-196, 0.0],
    [-12, -2.1317785344932147e-32, -1.635985449353481e-61],
    [-5, -1.4332578593959695e-6, -2.291796196629506e-7],
    [-2.75, -0.008194348896400031, -0.007723144073617969],
    [-1.5, -0.1002108019032871, -0.10042842301976708],
    [-1, -0.15865525393145705, -0.1588080093917233],
    [0.125, 0.06871727810376412, 0.06871719862422339],
    [1, 0.8413447460685429, 0.8411919906082767],
    [2.5, 2.4844758366855597, 2.484915733910001],
    [9, 9.0, 9.0],
  ];
  for (const [n, approximate] of (['none', 'tanh'] as const).entries()) {
    const [x, out] = [
      f64Tensor(
        known.map(([x]) => x),
        [known.length],
      ),
      zeros('f64', [known.length]),
    ];
    runReference(planGelu(x, out, { approximate }));
    for (const [i, y] of floats(out).entries()) {
      const [at, want] = [known[i]![0], known[i]![n + 1]!];
      // e^(−x²/2) is as wrong as x²/2, and x/√2 is rounded before it is squared
      assert.ok(
        Math.abs(y - want) <= (8 + 2 * at * at) * 2 ** -53 * Math.abs(want),
        `${approximate} ${at}: ${y}, ${want}`,
      );
    }
  }
});

test('what the new operators refuse, each in a sentence', () => {
  const x = zeros('f32', [2, 3]);
  const calls: readonly (readonly [() => unknown, string, string])[] = [
    [
      () => planGelu(x, x, { approximate: 'erf' as never }),
      'UNSUPPORTED',
      'gelu: approximate: expected none or tanh, got "erf"',
    ],
    [
      () => planGeglu(x, x, x, { approximate: 1 as never }),
      'UNSUPPORTED',
      'geglu: approximate: expected none or tanh, got 1',
    ],
    [() => planSwiglu(x, x, x, { limit: 0 }), 'RANGE', 'swiglu: limit: expected a finite number > 0, got 0'],
    [() => planSwiglu(x, x, x, { alpha: Number.NaN }), 'RANGE', 'swiglu: alpha: expected a finite number, got NaN'],
    [
      () => planSwiglu(x, x, x, { offset: Infinity }),
      'RANGE',
      'swiglu: offset: expected a finite number, got Infinity',
    ],
    [
      () => planScale(x, Number.NaN, x),
      'RANGE',
      'scale: factor: expected a finite number, or a tensor with one for each row, got NaN',
    ],
    [() => planScale(x, 1, x, { softcap: -1 }), 'RANGE', 'scale: softcap: expected a finite number > 0, got -1'],
    [() => planScale(x, zeros('f32', [3]), x), 'SHAPE', 'scale: factor: expected shape [2], got [3]'],
    [() => planScale(x, zeros('f16', [2]), x), 'DTYPE', 'scale: factor: expected dtype f32, got "f16"'],
    [
      () => planScale(zeros('f32', []), zeros('f32', []), zeros('f32', [])),
      'SHAPE',
      'scale: x: expected at least one dimension beside factors of rows, got []',
    ],
    [
      () => planLayerNorm(x, zeros('f32', [3]), x, { eps: -1 }),
      'RANGE',
      'layer_norm: eps: expected a finite number >= 0, got -1',
    ],
    [
      () => planLayerNorm(x, zeros('f32', [2]), x, { eps: 0 }),
      'SHAPE',
      'layer_norm: weight: expected shape [3], got [2]',
    ],
    [
      () => planLayerNorm(x, zeros('f32', [3]), x, { bias: zeros('f32', [2]), eps: 0 }),
      'SHAPE',
      'layer_norm: bias: expected shape [3], got [2]',
    ],
    [
      () => planLayerNorm(x, zeros('f32', [3]), x, { bias: zeros('f64', [3]), eps: 0 }),
      'DTYPE',
      'layer_norm: bias: expected dtype f32, f16 or bf16, as the activations are f32, got "f64"',
    ],
  ];
  for (const [call, code, message] of calls) assert.throws(call, { code: code as ErrorCode, message });
});

test('rms_norm refuses a negative eps and the wrong weight; f16 rows do not overflow', () => {
  assert.throws(() => planRmsNorm(zeros('f32', [2, 3]), zeros('f32', [3]), zeros('f32', [2, 3]), { eps: -1 }), {
    code: 'RANGE',
    message: 'rms_norm: eps: expected a finite number >= 0, got -1',
  });
  for (const eps of [NaN, Infinity]) {
    assert.throws(() => planRmsNorm(zeros('f32', [2, 3]), zeros('f32', [3]), zeros('f32', [2, 3]), { eps }), {
      code: 'RANGE',
      message: `rms_norm: eps: expected a finite number >= 0, got ${eps}`,
    });
  }
  assert.throws(() => planRmsNorm(zeros('bf16', [2, 3]), zeros('f32', [3]), zeros('bf16', [2, 3]), { eps: 0 }), {
    code: 'DTYPE',
    message: 'rms_norm: weight: expected dtype bf16, got "f32"',
  });
  assert.throws(() => planRmsNorm(zeros('f32', [2, 3]), zeros('f32', [2]), zeros('f32', [2, 3]), { eps: 0 }), {
    code: 'SHAPE',
    message: 'rms_norm: weight: expected shape [3], got [2]',
  });
  const out = zeros('f16', [1, 2]);
  runReference(
    planRmsNorm(f64Tensor([60000, 60000], [1, 2], 'f16'), f64Tensor([1, 1], [2], 'f16'), out, { eps: 1e-5 }),
  );
  assert.deepEqual([...floats(out)], [1, 1]);
});
