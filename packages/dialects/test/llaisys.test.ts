import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { tensorFrom, zeros } from 'ropewalk';
import { referenceRunner } from 'ropewalk/reference';
import { suitePasses } from '../../../test/support/suites.js';
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
