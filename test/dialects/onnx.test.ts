import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { tensorFrom, zeros } from '../../src/core/tensor.js';
import { planRotaryEmbedding, rotaryEmbedding } from '../../src/dialects/onnx.js';
import { referenceRunner } from '../../src/reference/index.js';
import { suitePasses } from '../support/suites.js';

const rw = referenceRunner();
describe('golden', () => suitePasses('onnx'));

describe('the node', () => {
  const f32 = (values: number[], shape: number[]) => tensorFrom<'f32'>(Float32Array.from(values), { shape });
  const cos = f32([0, 0.5], [2, 1]);
  const sin = f32([2, 0.25], [2, 1]);
  const ids = tensorFrom<'i64'>(BigInt64Array.of(1n, 0n), { shape: [1, 2] });
  const X = f32([1, 2, 3, 4], [1, 1, 2, 2]);

  test('caches are used as given, on no unit circle', () => {
    const y = rotaryEmbedding(rw, { X, cos_cache: cos, sin_cache: sin, position_ids: ids });
    // Row 1: (1·0.5 − 2·0.25, 1·0.25 + 2·0.5); row 0: (3·0 − 4·2, 3·2 + 4·0).
    assert.deepEqual([...(y.read() as Float32Array)], [0, 1.25, -8, 6]);
  });
  test('3-D is 4-D with heads inside the hidden dimension', () => {
    const X3 = f32([1, 2, 5, 6, 3, 4, 7, 8], [1, 2, 4]);
    const y3 = rotaryEmbedding(rw, { X: X3, cos_cache: cos, sin_cache: sin, position_ids: ids }, { num_heads: 2 });
    const X4 = f32([1, 2, 3, 4, 5, 6, 7, 8], [1, 2, 2, 2]);
    const y4 = rotaryEmbedding(rw, { X: X4, cos_cache: cos, sin_cache: sin, position_ids: ids });
    assert.deepEqual(y3.view([1, 2, 2, 2]).permute([0, 2, 1, 3]).read(), y4.read());
    assert.deepEqual(y3.shape, [1, 2, 4]);
  });
  test('without position_ids the caches come gathered; wider caches give their first columns', () => {
    const y = rotaryEmbedding(rw, { X, cos_cache: f32([0.5, 9, 0, 9], [1, 2, 2]), sin_cache: f32([0.25, 9, 2, 9], [1, 2, 2]) });
    assert.deepEqual([...(y.read() as Float32Array)], [0, 1.25, -8, 6]);
  });
  test('Y may be X', () => {
    const own = f32([1, 2, 3, 4], [1, 1, 2, 2]);
    rw.run(planRotaryEmbedding({ X: own, cos_cache: cos, sin_cache: sin, position_ids: ids }, {}, own));
    assert.deepEqual([...(own.read() as Float32Array)], [0, 1.25, -8, 6]);
  });

  const run = (inputs: object, attrs: object = {}) =>
    rotaryEmbedding(rw, { X, cos_cache: cos, sin_cache: sin, position_ids: ids, ...inputs } as never, attrs);
  const cases: [string, () => unknown, string, RegExp][] = [
    [
      '3-D without num_heads',
      () => run({ X: zeros('f32', [1, 2, 4]) }),
      'SHAPE',
      /num_heads: expected an integer >= 1 with a 3-D X, got none/,
    ],
    [
      'num_heads that does not divide',
      () => run({ X: zeros('f32', [1, 2, 4]) }, { num_heads: 3 }),
      'SHAPE',
      /num_heads: expected a divisor of hidden=4, got 3/,
    ],
    ['two dimensions', () => run({ X: zeros('f32', [2, 2]) }), 'SHAPE', /X: expected \[batch, num_heads, seq, head_size\] or/],
    [
      'odd head_size',
      () => run({ X: zeros('f32', [1, 1, 2, 3]) }),
      'RANGE',
      /head_size: expected an even integer in \[2, head_size=3\], got 3/,
    ],
    [
      'rotary_embedding_dim past the head',
      () => run({}, { rotary_embedding_dim: 4 }),
      'RANGE',
      /rotary_embedding_dim: expected an even integer in \[2, head_size=2\], got 4/,
    ],
    [
      'an id outside',
      () => run({ position_ids: tensorFrom(BigInt64Array.of(0n, 2n), { shape: [1, 2] }) }),
      'RANGE',
      /position_ids\[0, 1\]: expected a row of the caches, in \[0, 1\], got 2/,
    ],
    [
      'a negative id',
      () => run({ position_ids: tensorFrom(BigInt64Array.of(0n, -1n), { shape: [1, 2] }) }),
      'RANGE',
      /position_ids\[0, 1\]/,
    ],
    ['i32 ids', () => run({ position_ids: zeros('i32', [1, 2]) }), 'DTYPE', /position_ids: expected dtype i64, got "i32"/],
    ['ids of another shape', () => run({ position_ids: zeros('i64', [2]) }), 'SHAPE', /position_ids: expected shape \[1,2\]/],
    [
      '3-D caches with ids',
      () => run({ cos_cache: zeros('f32', [1, 2, 1]) }),
      'SHAPE',
      /cos_cache: expected 2 dimensions with position_ids/,
    ],
    [
      '2-D caches without ids',
      () => run({ position_ids: undefined }),
      'SHAPE',
      /cos_cache: expected \[|cos_cache: expected 3 dimensions without position_ids/,
    ],
    ['narrow caches', () => run({ X: zeros('f32', [1, 1, 2, 4]) }), 'SHAPE', /cos_cache: expected last dim 2, got \[2, 1\]/],
    ['caches that differ', () => run({ sin_cache: zeros('f32', [3, 1]) }), 'SHAPE', /sin_cache: expected shape \[2,1\]/],
    ['caches of another dtype', () => run({ cos_cache: zeros('f16', [2, 1]) }), 'DTYPE', /cos_cache: expected dtype f32, got "f16"/],
    ['f64', () => run({ X: zeros('f64', [1, 1, 2, 2]) }), 'DTYPE', /X: expected f32, f16 or bf16, got "f64"/],
    ['interleaved 2', () => run({}, { interleaved: 2 }), 'RANGE', /interleaved: expected 0 or 1, got 2/],
  ];
  for (const [name, call, code, message] of cases) test(`refusal: ${name}`, () => void assert.throws(call, { code, message }));
});
