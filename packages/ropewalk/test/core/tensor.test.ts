import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { inspect } from 'node:util';
import { parseJson } from '@ropewalk/formats';
import fc from 'fast-check';
import { drawn } from '../../../../test/support/size.js';
import { DTYPES, isFloat, isFloat8, loadNumber, newArray, roundTo, storeNumber } from '../../src/core/dtypes.js';
import { checkShape, countElements, walk } from '../../src/core/shape.js';
import {
  copyElements,
  hostOf,
  overlapOf,
  readIntegers,
  selfOverlaps,
  Tensor,
  tensorFrom,
  writtenLater,
  zeros,
} from '../../src/core/tensor.js';
import { ropewalk } from '../../src/ropewalk.js';

const iota = (n: number): Float32Array => Float32Array.from({ length: n }, (_, i) => i);
/** Reads by index arithmetic alone, which defines the results of the fast paths. */
const elements = (t: Tensor): number[] => {
  const list: number[] = [];
  walk(t, (at) => list.push(loadNumber(t.storage.host!, t.dtype, at)));
  return list;
};

describe('layout', () => {
  test('views share memory, copies do not', () => {
    const data = iota(24);
    const t = tensorFrom(data, { shape: [2, 3, 4] });
    for (const view of [t.view([6, 4]), t.permute([2, 0, 1]), t.slice(1, 1, 3), t.reshape([-1])]) {
      assert.equal(view.storage.host, data);
    }
    assert.notEqual(t.permute([1, 0, 2]).contiguous().storage.host, data);
    assert.equal(t.contiguous(), t);
  });

  test('permute, slice and view give the elements that index arithmetic gives', () => {
    const t = tensorFrom(iota(24), { shape: [2, 3, 4] });
    assert.deepEqual(elements(t.permute([2, 0, 1]).slice(0, 1, 3)), [1, 5, 9, 13, 17, 21, 2, 6, 10, 14, 18, 22]);
    assert.deepEqual(elements(t.slice(1, 1, 2).view([2, 4])), [4, 5, 6, 7, 16, 17, 18, 19]);
    assert.deepEqual(elements(t.view([2, 1, 12]).slice(2, 10, 12)), [10, 11, 22, 23]);
  });

  test('isContiguous ignores dimensions of size 1 and holds for empty tensors', () => {
    const data = iota(24);
    assert.ok(tensorFrom(data, { shape: [4, 1, 6], strides: [6, 999, 1] }).isContiguous());
    assert.ok(tensorFrom(data, { shape: [0, 5], strides: [77, 3] }).isContiguous());
    assert.ok(!tensorFrom(data, { shape: [4, 5], strides: [6, 1] }).isContiguous());
    assert.ok(tensorFrom(data, { shape: [2, 6], offset: 12 }).isContiguous());
  });

  test('property: reshape keeps the elements in order; view either does the same or refuses', () => {
    const shapes = fc.array(fc.integer({ min: 0, max: 4 }), { minLength: 0, maxLength: 4 });
    fc.assert(
      fc.property(shapes, fc.infiniteStream(fc.nat()), (shape, picks) => {
        const t = tensorFrom(iota(countElements(shape)), { shape });
        const order = shape.map((_, d) => d).sort(() => (picks.next().value! % 2 ? 1 : -1));
        const moved = t.permute(order);
        const want = elements(moved);
        const flat = moved.reshape([-1].slice(0, t.size > 0 ? 1 : 0).concat(t.size > 0 ? [] : [0]));
        assert.deepEqual(elements(flat), want);
        try {
          assert.deepEqual(elements(moved.view([moved.size])), want);
        } catch (error) {
          assert.equal((error as { code?: string }).code, 'SHAPE');
          assert.ok(!moved.isContiguous());
        }
        assert.deepEqual([...(moved.readNumbers() as Float64Array)], want);
      }),
      drawn(300),
    );
  });
});

describe('dtypes', () => {
  test('store rounds once and load gives it back, for every floating dtype', () => {
    fc.assert(
      fc.property(fc.double({ noNaN: true }), fc.constantFrom(...DTYPES.filter(isFloat)), (value, dtype) => {
        const data = newArray(dtype, 1);
        storeNumber(data, dtype, 0, value);
        assert.ok(Object.is(loadNumber(data, dtype, 0), roundTo(dtype, value)));
      }),
      drawn(300),
    );
  });

  test('copies move bits: NaN payloads, negative zero, subnormals', () => {
    const bits = Uint32Array.of(0x7fa00001, 0xffc12345, 0x80000000, 1);
    const from = tensorFrom(new Float32Array(bits.buffer), { shape: [2, 2] }).permute([1, 0]);
    const to = zeros('f32', [2, 2]);
    copyElements(from, to);
    assert.deepEqual(
      [...new Uint32Array((to.storage.host as Float32Array).buffer)],
      [0x7fa00001, 0x80000000, 0xffc12345, 1],
    );
    const dense = from.read() as Float32Array;
    assert.deepEqual([...new Uint32Array(dense.buffer)], [0x7fa00001, 0x80000000, 0xffc12345, 1]);
  });

  test('readIntegers takes every integer dtype and refuses what a number cannot hold', () => {
    for (const dtype of DTYPES.filter((d) => !isFloat(d) && !isFloat8(d))) {
      const data = newArray(dtype, 2);
      data[1] = (dtype.endsWith('64') ? 7n : 7) as never;
      assert.deepEqual([...readIntegers(tensorFrom(data, { dtype }), 't')], [0, 7]);
    }
    assert.throws(() => readIntegers(tensorFrom(BigInt64Array.of(2n ** 60n)), 'op: ids'), {
      code: 'RANGE',
      message: 'op: ids: expected integers within ±(2^53 - 1), got 1152921504606846976n',
    });
    assert.throws(() => readIntegers(tensorFrom(iota(2)), 'op: ids'), {
      code: 'DTYPE',
      message: 'op: ids: expected an integer dtype, got "f32"',
    });
  });
});

test('a tensor that there is no memory for is refused with a clear message', () => {
  assert.throws(() => zeros('f32', [2 ** 40]), {
    code: 'DEVICE',
    message: 'tensor: size: there is no memory for 4398046511104 bytes. Use a smaller tensor, or several.',
  });
});

test('a refusal whose name for messages is not a string is a RopewalkError too', () => {
  for (const name of [Symbol('x'), Object.create(null), { toString: () => assert.fail() }]) {
    const where = name as string;
    assert.throws(() => checkShape([-1], where), { name: 'RopewalkError', code: 'SHAPE' });
    assert.throws(() => checkShape(new Proxy([], { get: () => assert.fail() }), where), {
      name: 'RopewalkError',
      code: 'RANGE',
    });
    assert.throws(() => hostOf(null as never, where), { name: 'RopewalkError', code: 'DTYPE' });
    assert.throws(() => readIntegers(tensorFrom(iota(2)), where), { name: 'RopewalkError', code: 'DTYPE' });
    assert.throws(() => parseJson('{', where), { name: 'RopewalkError', code: 'FORMAT' });
  }
});

describe('sharing memory', () => {
  test('overlapOf: none, same, partial; interleaved rows do not overlap', () => {
    const data = iota(60);
    const q = tensorFrom(data, { shape: [3, 10], strides: [20, 1] });
    const k = tensorFrom(data, { shape: [3, 10], strides: [20, 1], offset: 10 });
    assert.equal(overlapOf(q, k), 'none');
    assert.equal(overlapOf(q, tensorFrom(data, { shape: [3, 1, 10], strides: [20, 5, 1] }).view([3, 10])), 'same');
    assert.equal(overlapOf(q, tensorFrom(data, { shape: [3, 10], strides: [20, 1], offset: 5 })), 'partial');
    assert.equal(overlapOf(q, tensorFrom(iota(60))), 'none');
    // Two typed arrays over one buffer, one of them offset in bytes.
    const buffer = new ArrayBuffer(64);
    assert.equal(
      overlapOf(tensorFrom(new Float32Array(buffer, 0, 8)), tensorFrom(new Float32Array(buffer, 32, 8))),
      'none',
    );
    assert.equal(
      overlapOf(tensorFrom(new Float32Array(buffer, 0, 9)), tensorFrom(new Uint8Array(buffer, 32, 8))),
      'partial',
    );
  });

  test('selfOverlaps: broadcast and sliding layouts, but not permuted ones', () => {
    const data = iota(24);
    assert.ok(selfOverlaps(tensorFrom(data, { shape: [4, 2], strides: [0, 1] })));
    assert.ok(selfOverlaps(tensorFrom(data, { shape: [4, 3], strides: [1, 1] })));
    assert.ok(!selfOverlaps(tensorFrom(data, { shape: [2, 3, 4] }).permute([2, 0, 1])));
    assert.ok(
      !selfOverlaps(tensorFrom(data, { shape: [2, 3], strides: [3, 2] })),
      'the strides 3 and 2 interleave without meeting',
    );
    assert.ok(!selfOverlaps(tensorFrom(data, { shape: [1, 1], strides: [0, 0] })));
  });

  test('property: overlapOf and selfOverlaps agree with sets of indices', () => {
    const layout = fc.record({
      shape: fc.tuple(fc.integer({ min: 1, max: 4 }), fc.integer({ min: 1, max: 4 })),
      strides: fc.tuple(fc.integer({ min: -6, max: 9 }), fc.integer({ min: 0, max: 4 })),
      offset: fc.integer({ min: 18, max: 30 }),
    });
    const data = iota(80);
    fc.assert(
      fc.property(layout, layout, (la, lb) => {
        const a = tensorFrom(data, la);
        const b = tensorFrom(data, lb);
        const at = (t: Tensor): number[] => elements(t); // element i of iota holds i
        const shared = at(a).some((i) => at(b).includes(i));
        assert.equal(overlapOf(a, b) !== 'none', shared);
        assert.equal(selfOverlaps(a), new Set(at(a)).size !== a.size);
      }),
      drawn(300),
    );
  });
});

describe('refusals', () => {
  const t = tensorFrom(iota(24), { shape: [2, 3, 4] });
  const cases: [string, () => unknown, string, RegExp][] = [
    [
      'view across strides',
      () => t.permute([1, 0, 2]).view([6, 4]),
      'SHAPE',
      /tensor\.view: shape: strides \[4,12,1\] over \[3,2,4\] cannot express \[6,4\]\. Use reshape\(\)/,
    ],
    ['view of another size', () => t.view([5, 5]), 'SHAPE', /tensor\.view: shape: expected 24 elements, got \[5, 5\]/],
    ['view with an indivisible -1', () => t.view([-1, 5]), 'SHAPE', /expected dimensions that divide 24 elements/],
    ['permute twice the same', () => t.permute([0, 0, 1]), 'SHAPE', /expected each of 0 to 2 once, got \[0, 0, 1\]/],
    [
      'slice past the end',
      () => t.slice(2, 0, 5),
      'RANGE',
      /tensor\.slice: end: expected an integer in \[0, 4\], got 5/,
    ],
    [
      'slice of a missing dimension',
      () => t.slice(3, 0, 1),
      'RANGE',
      /tensor\.slice: dim: expected an integer in \[0, 2\], got 3/,
    ],
    [
      'storage too short',
      () => tensorFrom(iota(5), { shape: [2, 3] }),
      'RANGE',
      /tensor: storage: shape \[2,3\].* reach indices 0 to 5, but the storage has 5 elements/,
    ],
    [
      'reaching below the storage',
      () => tensorFrom(iota(5), { shape: [3], strides: [-1], offset: 1 }),
      'RANGE',
      /reach indices -1 to 1,/,
    ],
    [
      'negative dimension',
      () => tensorFrom(iota(5), { shape: [-5] }),
      'SHAPE',
      /tensor: shape: expected integers >= 0, got \[-5\]/,
    ],
    [
      'too few strides',
      () => tensorFrom(iota(6), { shape: [2, 3], strides: [3] }),
      'SHAPE',
      /expected 2 integers, one for each dimension of \[2,3\]/,
    ],
    [
      'a Uint16Array without dtype',
      () => tensorFrom(new Uint16Array(4)),
      'DTYPE',
      /A Uint16Array needs dtype u16, f16 or bf16\./,
    ],
    [
      'the wrong array for a dtype',
      () => tensorFrom(iota(4), { dtype: 'f64' }),
      'DTYPE',
      /tensor: data: expected a Float64Array for dtype f64, got Float32Array\(4\)/,
    ],
    ['a text', () => tensorFrom('12' as never), 'DTYPE', /tensor: dtype: expected one of f64, f32/],
  ];
  for (const [name, call, code, message] of cases)
    test(name, () => void assert.throws(call, { name: 'RopewalkError', code, message }));
});

test('memory that a device has yet to write: reading waits, operators refuse it', async () => {
  const data = new Float32Array(4);
  const tensor = tensorFrom(data, { shape: [2, 2] });
  let write = (): void => {};
  const done = new Promise<void>((resolve) => {
    write = () => {
      data.fill(7);
      resolve();
    };
  });
  writtenLater(data.buffer, done);
  const read = tensor.read();
  assert.ok(read instanceof Promise);
  assert.throws(() => hostOf(tensor, 'add: a'), { code: 'DEVICE', message: /add: a: .*finish/ });
  write();
  assert.deepEqual(await read, new Float32Array(4).fill(7));
  assert.deepEqual(tensor.read(), new Float32Array(4).fill(7), 'and at once from then on');

  const other = tensorFrom(new Float32Array(1));
  writtenLater(other.storage.host!.buffer, Promise.reject(new Error('lost')));
  await assert.rejects(async () => other.read(), /lost/);
});

describe('nested arrays of numbers', () => {
  test('give shape and elements; f32 unless a dtype is given, rounded once', () => {
    const t = tensorFrom([
      [1, 2, 3],
      [4, 0.1, -0],
    ]);
    assert.deepEqual([t.dtype, t.shape, t.read()], ['f32', [2, 3], Float32Array.of(1, 2, 3, 4, 0.1, -0)]);
    assert.deepEqual(tensorFrom([]).shape, [0]);
    assert.deepEqual(tensorFrom([[], []]).shape, [2, 0]);
    assert.deepEqual(tensorFrom([[[1]], [[2]]], { shape: [2] }).read(), Float32Array.of(1, 2));
    assert.deepEqual(tensorFrom([1 + 2 ** -11, Number.NaN], { dtype: 'f16' }).read(), Uint16Array.of(0x3c00, 0x7e00));
    assert.deepEqual(tensorFrom([-1, 2 ** 40], { dtype: 'i64' }).read(), BigInt64Array.of(-1n, 2n ** 40n));
    const list = [1, 2];
    const copy = tensorFrom(list);
    list[0] = 9;
    assert.deepEqual(copy.read(), Float32Array.of(1, 2));
  });

  test('what is ragged, no number or no value of the dtype is refused by its place', () => {
    const refused = (data: unknown, code: string, message: RegExp, dtype?: 'u8' | 'i64') =>
      assert.throws(() => tensorFrom(data as number[], dtype && { dtype }), { code, message });
    refused(
      [[1, 2], [3]],
      'SHAPE',
      /^tensor: data\[1\]: expected an array of 2, as the first one of its level is, got \[3\]/,
    );
    refused([[1], 2], 'SHAPE', /^tensor: data\[1\]: expected an array of 1/);
    refused([1, [2]], 'RANGE', /^tensor: data\[1\]: expected a number, got \[2\]/);
    refused([1, '2'], 'RANGE', /^tensor: data\[1\]: expected a number, got "2"/);
    refused([1, 5n], 'RANGE', /expected a number, got 5n/);
    refused([0, 256], 'RANGE', /^tensor: data, element 1: expected an integer of u8, got 256/, 'u8');
    refused([0.5], 'RANGE', /expected an integer of i64, got 0.5/, 'i64');
    refused([Number.NaN], 'RANGE', /expected an integer of u8, got NaN/, 'u8');
    const cyclic: unknown[] = [];
    cyclic.push(cyclic);
    refused(cyclic, 'SHAPE', /more than 32 arrays/);
    // 2^30 numbers in 60 elements: the work is bounded by what is written.
    let wide: unknown = 1;
    for (let n = 0; n < 30; n++) wide = [wide, wide];
    refused(wide, 'RANGE', /more than 1048576 numbers in arrays. Give a typed array/);
  });
});

describe('a printed tensor', () => {
  test('says dtype, shape and the first elements, whatever its layout', () => {
    const t = tensorFrom([
      [1, 0.1, 3],
      [4, 5, -1e-20],
    ]);
    assert.equal(String(t), 'Tensor f32 [2, 3]: 1, 0.1, 3, 4, 5, -1e-20');
    assert.equal(inspect(t.permute([1, 0])), 'Tensor f32 [3, 2]: 1, 4, 0.1, 5, 3, -1e-20');
    assert.equal(inspect({ t: t.slice(1, 1, 2) }), '{ t: Tensor f32 [2, 1]: 0.1, 5 }');
    assert.equal(String(tensorFrom(iota(9))), 'Tensor f32 [9]: 0, 1, 2, 3, 4, 5, 6, 7, …');
    assert.equal(String(tensorFrom([1.5], { dtype: 'bf16' })), 'Tensor bf16 [1]: 1.5');
    assert.equal(String(tensorFrom(BigInt64Array.of(2n ** 60n))), `Tensor i64 [1]: ${2n ** 60n}`);
    assert.equal(String(zeros('u8', [0, 2])), 'Tensor u8 [0, 2]: ');
  });

  test('without disturbing one that is disposed, on a device or still being written', async () => {
    const rw = await ropewalk({ backend: 'cpu', threads: 1 });
    const own = rw.upload([1, 2]);
    assert.equal(String(own), 'Tensor f32 [2]: 1, 2');
    own.dispose();
    assert.equal(String(own), 'Tensor f32 [2], disposed');
    rw.dispose();
    const read = () => assert.fail('it was read');
    const there = new Tensor({ dtype: 'f32', length: 2, owner: 'webgpu', host: undefined, read });
    assert.equal(inspect(there), 'Tensor f32 [2] on webgpu');
    const data = iota(2);
    const written = writtenLater(data.buffer, new Promise((done) => setTimeout(done, 10)));
    assert.equal(String(tensorFrom(data)), 'Tensor f32 [2], not written yet');
    await written;
    assert.equal(String(tensorFrom(data)), 'Tensor f32 [2]: 0, 1');
  });
});
