/** ONNX Runtime's own rotary operators: beside ONNX Runtime itself, by their formulas, and what they refuse. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import {
  type ContribRotaryAttributes,
  contribRotaryEmbedding,
  gemmaRotaryEmbedding,
  mRotaryEmbedding,
} from '../../packages/dialects/src/onnx.js';
import type { OnnxAttribute } from '../../packages/onnx/src/format/onnx.js';
import { roundTo } from '../../packages/ropewalk/src/core/dtypes.js';
import { randomFrom } from '../../packages/ropewalk/src/core/random.js';
import { countElements } from '../../packages/ropewalk/src/core/shape.js';
import { type Tensor, tensorFrom, zeros } from '../../packages/ropewalk/src/core/tensor.js';
import { referenceRunner } from '../../packages/ropewalk/src/reference/index.js';
import { ortOrReason, runOnnx } from '../support/ort.js';
import { f64Tensor, floats } from '../support/tensors.js';

const rw = referenceRunner();
const ort = await ortOrReason();
const skip = typeof ort === 'string' ? ort : false;

const drawn = <D extends 'f32' | 'f16'>(name: string, dtype: D, shape: readonly number[]): Tensor<D> => {
  const random = randomFrom(name);
  const values = Float64Array.from({ length: countElements(shape) }, () => roundTo(dtype, random.uniform(-1, 1)));
  return f64Tensor(values, shape, dtype) as unknown as Tensor<D>;
};
const ids = (values: readonly number[], shape: readonly number[]): Tensor<'i64'> =>
  tensorFrom(BigInt64Array.from(values, BigInt), { shape });

type Attributes = ContribRotaryAttributes & { mrope_section?: readonly number[]; mrope_layout?: 0 | 1 };

/** The operator in ONNX Runtime. */
async function inOrt(opType: string, inputs: Readonly<Record<string, Tensor>>, attributes: Attributes) {
  const typed = ([name, { dtype, shape }]: [string, Tensor]) => ({ name, dtype, shape: [...shape] });
  const attribute = (name: string, value: unknown): OnnxAttribute =>
    Array.isArray(value) ? { ints: value } : name === 'scale' ? { f: value as number } : { i: value as number };
  const { dtype, shape } = inputs.input!;
  const run = await runOnnx(
    {
      name: 'contrib',
      opset: 21,
      domains: { 'com.microsoft': 1 },
      irVersion: 10,
      producer: 'test',
      inputs: Object.entries(inputs).map(typed),
      outputs: [{ name: 'output', dtype, shape: [...shape] }],
      initializers: new Map(),
      nodes: [
        {
          opType,
          domain: 'com.microsoft',
          inputs: Object.keys(inputs),
          outputs: ['output'],
          attributes: Object.fromEntries(Object.entries(attributes).map(([k, v]) => [k, attribute(k, v)])),
        },
      ],
    },
    new Map(Object.entries(inputs)),
  );
  return floats(run.get('output')!);
}

/** f32 products and a sum: three roundings of numbers below 2. */
function near(got: Float64Array, want: Float64Array, unit: number): void {
  assert.equal(got.length, want.length);
  for (const [n, value] of got.entries())
    assert.ok(Math.abs(value - want[n]!) <= unit, `${n}: ${value}, in ONNX Runtime ${want[n]}`);
}

const caches = (dtype: 'f32' | 'f16', rows: number, width: number) => ({
  cos_cache: drawn('cos', dtype, [rows, width]),
  sin_cache: drawn('sin', dtype, [rows, width]),
});

describe('com.microsoft.RotaryEmbedding, beside ONNX Runtime', { skip }, () => {
  const cases: readonly [string, readonly number[], Tensor<'i64'>, number, Attributes][] = [
    ['3-D, heads by the caches', [2, 3, 24], ids([4, 0, 8, 1, 1, 7], [2, 3]), 4, {}],
    ['4-D', [2, 3, 4, 8], ids([4, 0, 8, 1, 1, 7, 2, 5], [2, 4]), 4, {}],
    ['interleaved', [2, 3, 24], ids([4, 0, 8, 1, 1, 7], [2, 3]), 4, { interleaved: 1 }],
    ['one offset', [2, 3, 24], ids([5], [1]), 4, {}],
    ['one offset, a scalar', [1, 3, 8], ids([2], []), 4, { interleaved: 1 }],
    ['partial', [2, 3, 24], ids([4, 0, 8, 1, 1, 7], [2, 3]), 3, { rotary_embedding_dim: 6, num_heads: 3 }],
    ['partial, 4-D', [2, 3, 4, 8], ids([4, 0, 8, 1, 1, 7, 2, 5], [2, 4]), 2, { rotary_embedding_dim: 4, num_heads: 3 }],
    ['scale is ignored', [1, 3, 8], ids([2, 3, 4], [1, 3]), 4, { scale: 3 }],
    ['packed: more tokens than rows', [1, 12, 8], ids(Array(12).fill(3), [1, 12]), 4, { is_packed_batching: 1 }],
  ];
  for (const [name, shape, position_ids, width, attributes] of cases) {
    for (const dtype of ['f32', 'f16'] as const)
      test(`${name}, ${dtype}`, async () => {
        const inputs = { input: drawn(name, dtype, shape), position_ids, ...caches(dtype, 9, width) };
        const got = contribRotaryEmbedding(rw, inputs, attributes);
        assert.deepEqual([...got.shape], [...shape]);
        near(floats(got), await inOrt('RotaryEmbedding', inputs, attributes), dtype === 'f32' ? 2 ** -21 : 2 ** -8);
      });
  }
});

describe('com.microsoft.MRotaryEmbedding, beside ONNX Runtime', { skip }, () => {
  const positions = ids([4, 0, 8, 1, 1, 7, 3, 3, 5, 6, 2, 0, 7, 8, 1, 2, 6, 4], [3, 2, 3]);
  const cases: readonly [string, readonly number[], number, Attributes & { mrope_section: readonly number[] }][] = [
    ['sections', [2, 3, 24], 4, { mrope_section: [2, 1, 1], num_heads: 3 }],
    ['interleaved layout', [2, 3, 36], 6, { mrope_section: [2, 2, 2], mrope_layout: 1, num_heads: 3 }],
    ['interleaved layout, uneven', [2, 3, 36], 6, { mrope_section: [4, 1, 1], mrope_layout: 1, num_heads: 3 }],
    ['interleaved pairs', [2, 3, 24], 4, { mrope_section: [1, 1, 2], interleaved: 1, num_heads: 3 }],
    ['4-D, partial', [2, 3, 3, 8], 3, { mrope_section: [1, 1, 1], rotary_embedding_dim: 6, num_heads: 3 }],
  ];
  for (const [name, shape, width, attributes] of cases)
    for (const dtype of ['f32', 'f16'] as const)
      test(`${name}, ${dtype}`, async () => {
        const inputs = { input: drawn(name, dtype, shape), position_ids: positions, ...caches(dtype, 9, width) };
        const got = floats(mRotaryEmbedding(rw, inputs, attributes));
        near(got, await inOrt('MRotaryEmbedding', inputs, attributes), dtype === 'f32' ? 2 ** -21 : 2 ** -8);
      });
});

describe('com.microsoft.GemmaRotaryEmbedding, by its formula', () => {
  test('q · cos(emb) + q_rot · sin(emb), q_rot as given', () => {
    const inputs = {
      emb: drawn('emb', 'f32', [2, 3, 6]),
      q: drawn('q', 'f16', [2, 4, 3, 6]),
      q_rot: drawn('q_rot', 'f16', [2, 4, 3, 6]),
      k: drawn('k', 'f16', [2, 1, 3, 6]),
      k_rot: drawn('k_rot', 'f16', [2, 1, 3, 6]),
    };
    const { output1, output2 } = gemmaRotaryEmbedding(rw, inputs);
    const emb = floats(inputs.emb);
    const half = (value: number): number => roundTo('f16', Math.fround(value));
    for (const [x, turned, got, heads] of [
      [inputs.q, inputs.q_rot, output1, 4],
      [inputs.k, inputs.k_rot, output2, 1],
    ] as const) {
      const [a, b] = [floats(x), floats(turned)];
      const want = a.map((value, n) => {
        const angle = emb[Math.floor(n / (heads * 18)) * 18 + (n % 18)]!;
        return roundTo('f16', value * half(Math.cos(angle)) + b[n]! * half(Math.sin(angle)));
      });
      assert.deepEqual(floats(got), want);
    }
  });
});

test('no token', () => {
  const inputs = { input: zeros('f32', [1, 0, 8]), position_ids: ids([], [1, 0]), ...caches('f32', 4, 4) };
  assert.equal(contribRotaryEmbedding(rw, inputs).size, 0);
});

describe('refusals, in the operators’ words', () => {
  const good = () => ({ input: zeros('f32', [1, 2, 8]), position_ids: ids([0, 1], [1, 2]), ...caches('f32', 4, 4) });
  const refused = (changed: object, attributes: Attributes, code: string, message: RegExp): void => {
    const call = () => contribRotaryEmbedding(rw, { ...good(), ...changed } as never, attributes);
    assert.throws(call, { code, message });
  };

  test('RotaryEmbedding', () => {
    refused({ input: zeros('f32', [2, 8]) }, {}, 'SHAPE', /com.microsoft.RotaryEmbedding: input: expected \[batch/);
    refused({ input: zeros('i32', [1, 2, 8]) }, {}, 'DTYPE', /input: expected f32, f16 or bf16/);
    refused({ sin_cache: zeros('f16', [4, 4]) }, {}, 'DTYPE', /sin_cache/);
    refused({ sin_cache: zeros('f32', [4, 3]) }, {}, 'SHAPE', /sin_cache/);
    refused({ cos_cache: zeros('f32', [4]) }, {}, 'SHAPE', /cos_cache: expected two dimensions/);
    refused(
      { position_ids: ids([0, 4], [1, 2]) },
      {},
      'RANGE',
      /position_ids: expected rows of the caches, in \[0, 3\]/,
    );
    refused({ position_ids: ids([3], [1]) }, {}, 'RANGE', /position_ids: .* got 4/);
    refused({ position_ids: ids([0, 1], [2]) }, {}, 'SHAPE', /position_ids/);
    refused({}, { rotary_embedding_dim: 4 }, 'SHAPE', /num_heads: .* beside rotary_embedding_dim/);
    refused({}, { rotary_embedding_dim: 4, num_heads: 1 }, 'SHAPE', /cos_cache: expected last dim 2/);
    refused({}, { num_heads: 3 }, 'SHAPE', /num_heads: expected a divisor of hidden=8/);
    refused({}, { interleaved: 2 as never }, 'RANGE', /interleaved: expected 0 or 1/);
    refused({}, { scale: Number.NaN }, 'RANGE', /scale/);
    const long = { input: zeros('f32', [1, 5, 8]), position_ids: ids([0, 0, 0, 0, 0], [1, 5]) };
    refused(long, {}, 'SHAPE', /at least seq=5 rows, or is_packed_batching 1/);
  });

  test('MRotaryEmbedding', () => {
    const inputs = { ...good(), position_ids: ids([0, 1, 0, 1, 0, 1], [3, 1, 2]) };
    const call = (attributes: object, changed: object = {}) =>
      mRotaryEmbedding(rw, { ...inputs, ...changed }, { num_heads: 1, ...attributes } as never);
    assert.equal(call({ mrope_section: [2, 1, 1] }).size, 16);
    assert.throws(() => call({}), { message: /mrope_section: expected three integers/ });
    assert.throws(() => call({ mrope_section: [2, 1, 2] }), { code: 'SHAPE', message: /= 4/ });
    assert.throws(() => call({ mrope_section: [2, 1, 1], mrope_layout: 2 }), {
      code: 'RANGE',
      message: /mrope_layout/,
    });
    assert.throws(() => call({ mrope_section: [2, 1, 1], num_heads: 0 }), { code: 'SHAPE', message: /num_heads/ });
    assert.throws(() => call({ mrope_section: [2, 1, 1] }, { position_ids: ids([0, 1], [1, 2]) }), { code: 'SHAPE' });
  });

  test('GemmaRotaryEmbedding', () => {
    const q = zeros('f16', [1, 1, 2, 4]);
    const inputs = { emb: zeros('f32', [1, 2, 4]), q, q_rot: q, k: q, k_rot: q };
    const call = (changed: object) => gemmaRotaryEmbedding(rw, { ...inputs, ...changed });
    assert.equal(call({}).output1.size, 8);
    assert.throws(() => call({ emb: zeros('f16', [1, 2, 4]) as never }), { code: 'DTYPE', message: /emb/ });
    assert.throws(() => call({ q: zeros('f32', [1, 1, 2, 4]) as never }), { code: 'DTYPE', message: /: q/ });
    assert.throws(() => call({ k_rot: zeros('f16', [1, 2, 2, 4]) }), { code: 'SHAPE', message: /k_rot/ });
    assert.throws(() => call({ emb: zeros('f32', [2, 4]) }), { code: 'SHAPE', message: /emb/ });
  });
});
