import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { openBackend } from '@ropewalk/cli/internal';
import { type FloatDtype, RopewalkError, tensorFrom, zeros } from 'ropewalk';
import { storeNumber } from 'ropewalk/backend';
import { referenceRunner } from 'ropewalk/reference';
import { suitePasses } from '../../../test/support/suites.js';
import { f64Tensor } from '../../../test/support/tensors.js';
import * as llaisys from '../src/llaisys.js';

const rw = referenceRunner();
describe('golden', () => suitePasses('llaisys'));

describe('refusals beyond errors.json', () => {
  const f32 = (...shape: number[]) => zeros('f32', shape);
  const f16 = (...shape: number[]) => zeros('f16', shape);
  const i64 = (...shape: number[]) => zeros('i64', shape);
  const apart = tensorFrom(new Float32Array(12), { shape: [2, 3], strides: [6, 1] });
  const cases: [string, () => void, string, RegExp][] = [
    [
      'add of views',
      () => llaisys.add(rw, f32(2, 3), apart, f32(2, 3)),
      'SHAPE',
      /add: a: expected contiguous memory, got strides \[6,1\]\. Use rearrange first\./,
    ],
    [
      'argmax of a matrix',
      () => llaisys.argmax(rw, i64(1), f32(1), f32(2, 3)),
      'SHAPE',
      /argmax: vals: expected 1 dimensions, got \[2, 3\]/,
    ],
    [
      'embedding by i32',
      () => llaisys.embedding(rw, f32(1, 3), zeros('i32', [1]), f32(2, 3)),
      'DTYPE',
      /embedding: index: expected dtype i64, got "i32"/,
    ],
    [
      'embedding out of range',
      () => llaisys.embedding(rw, f32(1, 3), tensorFrom(BigInt64Array.of(-1n)), f32(2, 3)),
      'RANGE',
      /embedding: index\[0\]: expected a row of the table, in \[0, 1\] \(2 rows\), got -1/,
    ],
    [
      'linear in 3-D',
      () => llaisys.linear(rw, f32(1, 2, 3), f32(1, 2, 4), f32(3, 4)),
      'SHAPE',
      /linear: out: expected 2 dimensions/,
    ],
    [
      'rms_norm in f64',
      () => llaisys.rmsNorm(rw, zeros('f64', [1, 2]), zeros('f64', [1, 2]), zeros('f64', [2]), 0),
      'DTYPE',
      /rms_norm: out: expected f32, f16 or bf16, got "f64"/,
    ],
    [
      'rope without a position for each token',
      () => llaisys.rope(rw, f32(2, 1, 4), f32(2, 1, 4), i64(1), 10000),
      'SHAPE',
      /rope: pos_ids: expected shape \[2\]/,
    ],
    [
      'rope with theta 0',
      () => llaisys.rope(rw, f32(2, 1, 4), f32(2, 1, 4), i64(2), 0),
      'RANGE',
      /rope: theta: expected a finite number > 0, got 0/,
    ],
    [
      'rope of an odd d',
      () => llaisys.rope(rw, f32(2, 1, 3), f32(2, 1, 3), i64(2), 1e4),
      'RANGE',
      /rope: d: expected an even integer in \[2, d=3\], got 3/,
    ],
    [
      'rope past 2^31 - 1',
      () => llaisys.rope(rw, f32(1, 1, 4), f32(1, 1, 4), tensorFrom(BigInt64Array.of(2n ** 31n)), 1e4),
      'RANGE',
      /rope: pos_ids\[0\]: expected an integer in .*, got 2147483648/,
    ],
    [
      'add into another dtype',
      () => llaisys.add(rw, zeros('f16', [2, 3]), f32(2, 3), f32(2, 3)),
      'DTYPE',
      /add: c: expected dtype f32, got "f16"/,
    ],
    [
      'add into another shape',
      () => llaisys.add(rw, f32(3, 2), f32(2, 3), f32(2, 3)),
      'SHAPE',
      /add: c: expected shape \[2,3\], got \[3, 2\]/,
    ],
    [
      'linear in place',
      () => {
        const x = f32(2, 2);
        llaisys.linear(rw, x, x, f32(2, 2));
      },
      'ALIAS',
      /linear: out: it shares all of its memory with in/,
    ],
    [
      'rearrange over a part of itself',
      () => {
        const room = new Float32Array(5);
        llaisys.rearrange(rw, tensorFrom(room, { shape: [4], offset: 1 }), tensorFrom(room, { shape: [4] }));
      },
      'ALIAS',
      /rearrange: out: it shares some of its memory with in/,
    ],
    ...(
      [
        ['linear', 'weight', () => llaisys.linear(rw, f32(1, 3), f32(1, 4), f16(3, 4))],
        ['linear', 'bias', () => llaisys.linear(rw, f32(1, 3), f32(1, 4), f32(3, 4), f16(3))],
        ['rms_norm', 'weight', () => llaisys.rmsNorm(rw, f32(1, 4), f32(1, 4), f16(4), 0)],
        [
          'self_attention',
          'k',
          () => llaisys.selfAttention(rw, f32(1, 1, 4), f32(1, 1, 4), f16(1, 1, 4), f16(1, 1, 4), 1),
        ],
      ] as const
    ).map(([op, name, call]): [string, () => void, string, RegExp] => [
      `${op} with ${name} in halves beside float32, which ours takes and LLAISYS does not`,
      call,
      'DTYPE',
      new RegExp(`^${op}: ${name}: expected dtype f32, got "f16"`),
    ]),
    [
      'embedding into another dtype',
      () => llaisys.embedding(rw, f32(1, 3), i64(1), f16(2, 3)),
      'DTYPE',
      /^embedding: out: expected dtype f16, got "f32"/,
    ],
    [
      'rearrange into another dtype',
      () => llaisys.rearrange(rw, f16(2, 3), f32(2, 3)),
      'DTYPE',
      /^rearrange: out: expected dtype f32, got "f16"/,
    ],
    [
      'attention without a scale',
      () => llaisys.selfAttention(rw, f32(1, 1, 4), f32(1, 1, 4), f32(1, 1, 4), f32(1, 1, 4), undefined as never),
      'RANGE',
      /self_attention: scale: expected a finite number, got none/,
    ],
    [
      'attention in 4-D',
      () => llaisys.selfAttention(rw, f32(1, 1, 1, 4), f32(1, 1, 1, 4), f32(1, 1, 1, 4), f32(1, 1, 1, 4), 1),
      'SHAPE',
      /attn_val: expected 3 dimensions/,
    ],
    [
      'rearrange of integers',
      () => llaisys.rearrange(rw, i64(2), i64(2)),
      'DTYPE',
      /rearrange: out: expected f32, f16 or bf16, got "i64"/,
    ],
  ];
  for (const [name, call, code, message] of cases) test(name, () => void assert.throws(call, { code, message }));
});

test('rope in place, and theta by its own name', () => {
  const x = tensorFrom(Float32Array.of(1, 2, 3, 4), { shape: [1, 1, 4] });
  const out = zeros('f32', [1, 1, 4]);
  llaisys.rope(rw, out, x, tensorFrom(BigInt64Array.of(5n)), 10000);
  llaisys.rope(rw, x, x, tensorFrom(BigInt64Array.of(5n)), 10000);
  assert.deepEqual(x.read(), out.read());
});

describe('a tensor', () => {
  test('debug: shape, strides, dtype, and the elements as torch 2.13 prints them', async () => {
    const of = async (values: readonly number[], shape: readonly number[], dtype: FloatDtype = 'f32') => {
      const tensor = f64Tensor(Float64Array.from(values), shape);
      const out = zeros(dtype, shape);
      for (const [n, value] of (tensor.readNumbers() as Float64Array).entries())
        storeNumber(out.storage.host!, dtype, n, value);
      return llaisys.debug(out);
    };
    const range = (count: number) => Array.from({ length: count }, (_, n) => n);
    const head = 'Tensor: shape[ 2 2 ] strides[ 2 1 ] dtype=f32\n';
    assert.equal(
      await of([1, 2.5, -3.25, 4], [2, 2]),
      `${head}tensor([[ 1.0000,  2.5000],\n        [-3.2500,  4.0000]])`,
    );
    assert.equal(await of([0, 0, 0, 0], [2, 2]), `${head}tensor([[0., 0.],\n        [0., 0.]])`);
    // Each text is what torch printed.
    const texts: [readonly number[], readonly number[], FloatDtype, string][] = [
      [[1e-5, 1], [2], 'f32', 'tensor([1.0000e-05, 1.0000e+00])'],
      [[1, 2000], [2], 'f32', 'tensor([1.0000e+00, 2.0000e+03])'],
      [[Number.NaN, 1.5, -Infinity], [3], 'f32', 'tensor([   nan, 1.5000,   -inf])'],
      [[Infinity, 1], [2], 'f32', 'tensor([inf, 1.])'],
      [[1.5, -2], [2], 'bf16', 'tensor([ 1.5000, -2.0000], dtype=torch.bfloat16)'],
      [[3.5], [], 'f32', 'tensor(3.5000)'],
      [[], [0], 'f32', 'tensor([])'],
      [
        range(8),
        [2, 2, 2],
        'f32',
        'tensor([[[0., 1.],\n         [2., 3.]],\n\n        [[4., 5.],\n         [6., 7.]]])',
      ],
    ];
    for (const [values, shape, dtype, text] of texts)
      assert.equal((await of(values, shape, dtype)).split('\n').slice(1).join('\n'), text);
    const long = (
      await of(
        range(1200).map((n) => n / 7),
        [3, 400],
      )
    ).split('\n');
    assert.equal(long[1], 'tensor([[0.0000e+00, 1.4286e-01, 2.8571e-01,  ..., 5.6714e+01, 5.6857e+01,');
    const view = zeros('i64', [4, 2]).permute([1, 0]);
    assert.equal(
      await llaisys.debug(view),
      'Tensor: shape[ 2 4 ] strides[ 1 2 ] dtype=i64\ntensor([[0, 0, 0, 0],\n        [0, 0, 0, 0]])',
    );
  });

  test('load and to: bits in, a copy on a device out; what does not fit is refused', async () => {
    const tensor = zeros('f16', [2, 2]);
    llaisys.load(tensor, Uint16Array.of(0x3c00, 0x4000, 0x4200, 0x4400));
    assert.deepEqual([...(tensor.readNumbers() as Float64Array)], [1, 2, 3, 4]);
    const device = await openBackend('cpu');
    const there = llaisys.to(device, tensor);
    assert.deepEqual([...(await there.readNumbers())], [1, 2, 3, 4]);
    there.dispose();
    device.dispose();
    assert.throws(() => llaisys.load(tensor, Uint16Array.of(1)), {
      code: 'SHAPE',
      message: /data: expected 4 elements, got 1/,
    });
    assert.throws(() => llaisys.load(tensor, new Float32Array(4) as never), {
      code: 'DTYPE',
      message: /Uint16Array of f16/,
    });
    assert.throws(() => llaisys.load(tensor.permute([1, 0]), new Uint16Array(4)), { code: 'SHAPE' });
    assert.throws(() => llaisys.to({} as never, tensor), RopewalkError);
  });
});

test("errors name LLAISYS' dtypes, not those of Ropewalk", () => {
  const [wide, whole] = [zeros('f64', [2, 2]), zeros('i64', [2, 2])];
  for (const x of [wide, whole]) {
    const got = new RegExp(`expected f32, f16 or bf16, got "${x.dtype}"`);
    assert.throws(() => llaisys.add(rw, x, x, x), { code: 'DTYPE', message: got });
    assert.throws(() => llaisys.swiglu(rw, x, x, x), { code: 'DTYPE', message: got });
    const three = x.view([2, 1, 2]);
    assert.throws(() => llaisys.selfAttention(rw, three, three, three, three, 1), { code: 'DTYPE', message: got });
  }
});
