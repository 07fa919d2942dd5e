/** Tests ONNX Runtime's rotary operators against its vectors on every backend, and their refusals. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { type Tensor, tensorFrom, zeros } from 'ropewalk';
import { referenceRunner } from 'ropewalk/reference';
import { callsPass } from '../../../test/support/calls.js';
import {
  type ContribRotaryAttributes,
  contribRotaryEmbedding,
  gemmaRotaryEmbedding,
  mRotaryEmbedding,
} from '../src/onnx.js';

const rw = referenceRunner();

const ids = (values: readonly number[], shape: readonly number[]): Tensor<'i64'> =>
  tensorFrom(BigInt64Array.from(values, BigInt), { shape });

type Attributes = ContribRotaryAttributes & { mrope_section?: readonly number[]; mrope_layout?: 0 | 1 };

const caches = (dtype: 'f32' | 'f16', rows: number, width: number) => ({
  cos_cache: zeros(dtype, [rows, width]),
  sin_cache: zeros(dtype, [rows, width]),
});

describe('golden', () => callsPass('onnx-contrib'));

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
