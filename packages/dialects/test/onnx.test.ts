import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { readManifest, readNpy } from '@ropewalk/oracle/internal';
import { vectorFolder } from '@ropewalk/oracle/node';
import fc from 'fast-check';
import { roundTo, tensorFrom, zeros } from 'ropewalk';
import { referenceRunner } from 'ropewalk/reference';
import { drawn } from '../../../test/support/size.js';
import { suitePasses, VECTORS } from '../../../test/support/suites.js';
import { f64Tensor, floats } from '../../../test/support/tensors.js';
import { planRotaryEmbedding, rotaryEmbedding } from '../src/onnx.js';

const rw = referenceRunner();
describe('golden', () => {
  suitePasses('onnx');

  test('the reference is the float64 result rounded once, to the bit', () => {
    const folder = vectorFolder(`${VECTORS}/onnx`);
    const dtypes = { float32: 'f32', float16: 'f16', bfloat16: 'bf16' } as const;
    for (const c of readManifest(folder, 'manifest.json').objects('cases')) {
      const dtype = dtypes[c.oneOf('dtype', ['float32', 'float16', 'bfloat16'])];
      const inputs = c.object('inputs');
      const load = (key: string) => readNpy(folder, inputs.object(key).text('file'), dtype);
      const position_ids = inputs.has('position_ids')
        ? readNpy(folder, inputs.object('position_ids').text('file'), 'i64')
        : undefined;
      const y = rotaryEmbedding(
        rw,
        {
          X: load('X'),
          cos_cache: load('cos_cache'),
          sin_cache: load('sin_cache'),
          ...(position_ids && { position_ids }),
        },
        c.raw('attrs') as object,
      );
      const exact = floats(readNpy(folder, c.object('output_f64').text('file'), 'f64'));
      const wanted = exact.map((value) => roundTo(dtype, value));
      assert.deepEqual(floats(y), wanted, c.text('name'));
    }
  });
});

describe('properties', () => {
  const sizes = fc.record({
    batch: fc.nat(2),
    seq: fc.nat(4),
    numHeads: fc.integer({ min: 1, max: 3 }),
    pairs: fc.integer({ min: 1, max: 5 }),
    tail: fc.nat(3),
    rows: fc.integer({ min: 1, max: 9 }),
    interleaved: fc.constantFrom(0 as const, 1 as const),
    random: fc.infiniteStream(fc.double({ min: -2, max: 2, noNaN: true })),
    row: fc.infiniteStream(fc.nat(8)),
  });
  const take = (stream: Iterator<number>, count: number) =>
    Float64Array.from({ length: count }, () => stream.next().value as number);

  test('caches read through position_ids = caches gathered beforehand; 3-D X = 4-D X; strided Y = dense Y, holes untouched', () => {
    fc.assert(
      fc.property(sizes, ({ batch, seq, numHeads, pairs, tail, rows, interleaved, random, row }) => {
        const headSize = 2 * pairs + 2 * tail;
        const attrs = { interleaved, rotary_embedding_dim: 2 * pairs };
        const tensor = (shape: number[]) =>
          f64Tensor(
            take(
              random,
              shape.reduce((n, dim) => n * dim, 1),
            ),
            shape,
            'f32',
          ) as never;
        const [cos_cache, sin_cache] = [tensor([rows, pairs]), tensor([rows, pairs])];
        const ids = take(row, batch * seq).map((r) => r % rows);
        const position_ids = tensorFrom<'i64'>(BigInt64Array.from(ids, BigInt), { shape: [batch, seq] });
        const X = tensor([batch, numHeads, seq, headSize]) as ReturnType<typeof zeros<'f32'>>;
        const Y = rotaryEmbedding(rw, { X, cos_cache, sin_cache, position_ids }, attrs);

        const gather = (cache: never) =>
          f64Tensor(
            [...ids].flatMap((r) => [...floats(cache).slice(r * pairs, (r + 1) * pairs)]),
            [batch, seq, pairs],
            'f32',
          ) as never;
        const gathered = { X, cos_cache: gather(cos_cache), sin_cache: gather(sin_cache) };
        assert.deepEqual(rotaryEmbedding(rw, gathered, attrs).read(), Y.read());

        const X3 = X.permute([0, 2, 1, 3]).reshape([batch, seq, numHeads * headSize]);
        const Y3 = rotaryEmbedding(
          rw,
          { X: X3, cos_cache, sin_cache, position_ids },
          { ...attrs, num_heads: numHeads },
        );
        assert.deepEqual(Y3.read(), Y.permute([0, 2, 1, 3]).read());

        const room = new Float32Array(1 + batch * numHeads * seq * (headSize + 2)).fill(7);
        const strides = [numHeads * seq * (headSize + 2), seq * (headSize + 2), headSize + 2, 1];
        const apart = tensorFrom<'f32'>(room, { shape: X.shape, strides, offset: 1 });
        rw.run(planRotaryEmbedding({ X, cos_cache, sin_cache, position_ids }, attrs, apart));
        assert.deepEqual(apart.read(), Y.read());
        assert.ok(room[0] === 7 && room.every((value, n) => (n - 1) % (headSize + 2) < headSize || value === 7));
      }),
      drawn(60),
    );
  });
});

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
    const y = rotaryEmbedding(rw, {
      X,
      cos_cache: f32([0.5, 9, 0, 9], [1, 2, 2]),
      sin_cache: f32([0.25, 9, 2, 9], [1, 2, 2]),
    });
    assert.deepEqual([...(y.read() as Float32Array)], [0, 1.25, -8, 6]);
  });
  test('Y may be X', () => {
    const own = f32([1, 2, 3, 4], [1, 1, 2, 2]);
    rw.run(planRotaryEmbedding({ X: own, cos_cache: cos, sin_cache: sin, position_ids: ids }, {}, own));
    assert.deepEqual([...(own.read() as Float32Array)], [0, 1.25, -8, 6]);
  });

  const run = (inputs: object, attrs: object = {}) =>
    rotaryEmbedding(rw, { X, cos_cache: cos, sin_cache: sin, position_ids: ids, ...inputs } as never, attrs);
  const plan = (Y: unknown, attrs: object = {}, own = X) =>
    planRotaryEmbedding({ X: own, cos_cache: cos, sin_cache: sin, position_ids: ids }, attrs, Y as never);
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
    [
      'two dimensions',
      () => run({ X: zeros('f32', [2, 2]) }),
      'SHAPE',
      /X: expected \[batch, num_heads, seq, head_size\] or/,
    ],
    ['odd head_size', () => run({ X: zeros('f32', [1, 1, 2, 3]) }), 'SHAPE', /X: expected an even head_size, got 3/],
    [
      'odd head_size, of which an even part rotates',
      () => run({ X: zeros('f32', [1, 1, 2, 3]) }, { rotary_embedding_dim: 2 }),
      'SHAPE',
      /X: expected an even head_size, got 3/,
    ],
    [
      'a misspelt attribute',
      () => run({}, { rotary_embeding_dim: 2 } as object),
      'RANGE',
      /attributes: there is no "rotary_embeding_dim"\. Did you mean rotary_embedding_dim\?/,
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
    [
      'i32 ids',
      () => run({ position_ids: zeros('i32', [1, 2]) }),
      'DTYPE',
      /position_ids: expected dtype i64, got "i32"/,
    ],
    [
      'ids of another shape',
      () => run({ position_ids: zeros('i64', [2]) }),
      'SHAPE',
      /position_ids: expected shape \[1,2\]/,
    ],
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
      /cos_cache: expected 3 dimensions without position_ids/,
    ],
    [
      'narrow caches',
      () => run({ X: zeros('f32', [1, 1, 2, 4]) }),
      'SHAPE',
      /cos_cache: expected last dim 2, got \[2, 1\]/,
    ],
    [
      'caches that differ',
      () => run({ sin_cache: zeros('f32', [3, 1]) }),
      'SHAPE',
      /sin_cache: expected shape \[2,1\]/,
    ],
    [
      'caches of another dtype',
      () => run({ cos_cache: zeros('f16', [2, 1]) }),
      'DTYPE',
      /cos_cache: expected dtype f32, got "f16"/,
    ],
    ['no cache at all', () => run({ cos_cache: undefined }), 'DTYPE', /cos_cache: expected a tensor, got none/],
    [
      'ids with caches of no rows',
      () => run({ cos_cache: zeros('f32', [0, 1]), sin_cache: zeros('f32', [0, 1]) }),
      'RANGE',
      /position_ids\[0, 0\]: expected no position, as the caches are empty, got 1/,
    ],
    ['integers', () => run({ X: zeros('i32', [1, 1, 2, 2]) }), 'DTYPE', /X: expected f32, f16 or bf16, got "i32"/],
    [
      '3-D Y for a 4-D X, which would be written with heads and tokens swapped',
      () => plan(zeros('f32', [1, 2, 2]), { num_heads: 1 }),
      'SHAPE',
      /RotaryEmbedding: Y: expected shape \[1,1,2,2\], got \[1, 2, 2\]/,
    ],
    ['Y of another dtype', () => plan(zeros('f16', [1, 1, 2, 2])), 'DTYPE', /Y: expected dtype f32, got "f16"/],
    [
      'Y over a part of X',
      () => {
        const room = new Float32Array(5);
        const part = (offset: number) => tensorFrom<'f32'>(room, { shape: [1, 1, 2, 2], offset });
        return plan(part(1), {}, part(0));
      },
      'ALIAS',
      /Y: it shares some of its memory with X/,
    ],
    ['f64', () => run({ X: zeros('f64', [1, 1, 2, 2]) }), 'DTYPE', /X: expected f32, f16 or bf16, got "f64"/],
    ['interleaved 2', () => run({}, { interleaved: 2 }), 'RANGE', /interleaved: expected 0 or 1, got 2/],
  ];
  for (const [name, call, code, message] of cases)
    test(`refusal: ${name}`, () => void assert.throws(call, { code, message }));
});
