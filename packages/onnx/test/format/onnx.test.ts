import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { DTYPES, type Dtype, tensorFrom } from 'ropewalk';
import { newArray } from 'ropewalk/backend';
import { bitsOf, countElements } from 'ropewalk/internal';
import { damage, damaged, mustRefuseOrReturn } from '../../../../test/support/fuzz.js';
import { drawn } from '../../../../test/support/size.js';
import { onnxDataType, parseOnnxTensor, writeOnnxModel, writeOnnxTensor } from '../../src/format/onnx.js';

/** A varint. */
const varint = (n: number): number[] => (n < 128 ? [n] : [(n & 127) | 128, ...varint(Math.floor(n / 128))]);
/** A field of length-delimited bytes. */
const bytes = (id: number, body: ArrayLike<number>): number[] => [
  ...varint((id << 3) | 2),
  ...varint(body.length),
  ...Array.from(body),
];
const ascii = (text: string): number[] => [...text].map((c) => c.charCodeAt(0));

describe('golden', () => {
  test('a tensor, byte for byte as protobuf spells it', () => {
    // A writer may pack dims [1, 2] or not. onnx.proto is proto2, so there is one tag for each here.
    const written = writeOnnxTensor(tensorFrom(Float32Array.of(1, -2), { shape: [1, 2] }), 'x');
    const raw = [0, 0, 0x80, 0x3f, 0, 0, 0, 0xc0];
    assert.deepEqual([...written], [0x08, 1, 0x08, 2, 0x10, 1, ...bytes(8, ascii('x')), ...bytes(9, raw)]);
  });

  test('what other writers write: packed dims, typed fields, fields in any order, unknown fields', () => {
    const read = (file: number[]) => parseOnnxTensor(Uint8Array.from(file)).tensor;
    const packed = read([
      ...bytes(1, [2, 1]),
      0x10,
      1,
      ...bytes(4, new Uint8Array(Float32Array.of(0.5, 3).buffer)),
      ...bytes(99, [1, 2]),
    ]);
    assert.deepEqual([packed.dtype, packed.shape, packed.read()], ['f32', [2, 1], Float32Array.of(0.5, 3)]);
    // f16 bits in int32_data, i64 in int64_data (negative: ten bytes), type after the data.
    assert.deepEqual(read([...bytes(5, [...varint(0x3c00)]), 0x10, 10, 0x08, 1]).readNumbers(), Float64Array.of(1));
    const minusOne = [255, 255, 255, 255, 255, 255, 255, 255, 255, 1];
    assert.deepEqual(read([0x08, 1, 0x10, 7, ...bytes(7, minusOne)]).read(), BigInt64Array.of(-1n));
    assert.deepEqual(read([0x10, 1, ...bytes(9, [0, 0, 0x80, 0x3f])]).shape, []);
    assert.deepEqual(read([0x08, 0, 0x10, 1]).shape, [0]);
  });

  test('numbers of the types: f16 10, bf16 16', () => {
    assert.deepEqual(
      (['f32', 'u8', 'i32', 'i64', 'f16', 'f64', 'bf16'] as Dtype[]).map(onnxDataType),
      [1, 2, 6, 7, 10, 11, 16],
    );
  });

  test("a model's fields", () => {
    const model = writeOnnxModel({
      name: 'g',
      doc: 'd',
      opset: 23,
      irVersion: 11,
      producer: 'ropewalk',
      inputs: [{ name: 'a', dtype: 'f32', shape: [2] }],
      outputs: [{ name: 'c', dtype: 'f32', shape: [2] }],
      initializers: new Map([['b', tensorFrom(Float32Array.of(1, 2))]]),
      nodes: [
        {
          opType: 'Add',
          inputs: ['a', 'b'],
          outputs: ['c'],
          attributes: { axis: { i: -1 }, e: { f: 0.5 }, s: { s: 'x' }, p: { ints: [1, 0] } },
        },
      ],
    });
    const value = (name: string): number[] => [
      ...bytes(1, ascii(name)),
      ...bytes(2, bytes(1, [0x08, 1, ...bytes(2, bytes(1, [0x08, 2]))])),
    ];
    const attribute = (name: string, ...rest: number[]): number[] => bytes(5, [...bytes(1, ascii(name)), ...rest]);
    const minusOne = [255, 255, 255, 255, 255, 255, 255, 255, 255, 1];
    const node = [
      ...bytes(1, ascii('a')),
      ...bytes(1, ascii('b')),
      ...bytes(2, ascii('c')),
      ...bytes(3, ascii('Add_0')),
      ...bytes(4, ascii('Add')),
      ...attribute('axis', 0x18, ...minusOne, 0xa0, 1, 2),
      ...attribute('e', 0x15, 0, 0, 0, 0x3f, 0xa0, 1, 1),
      ...attribute('s', ...bytes(4, ascii('x')), 0xa0, 1, 3),
      ...attribute('p', 0x40, 1, 0x40, 0, 0xa0, 1, 7),
    ];
    const initializer = [
      0x08,
      2,
      0x10,
      1,
      ...bytes(8, ascii('b')),
      ...bytes(9, new Uint8Array(Float32Array.of(1, 2).buffer)),
    ];
    const graph = [
      ...bytes(1, node),
      ...bytes(2, ascii('g')),
      ...bytes(5, initializer),
      ...bytes(10, ascii('d')),
      ...bytes(11, value('a')),
      ...bytes(12, value('c')),
    ];
    assert.deepEqual(
      [...model],
      [0x08, 11, ...bytes(2, ascii('ropewalk')), ...bytes(7, graph), ...bytes(8, [...bytes(1, []), 0x10, 23])],
    );
  });
});

describe('properties', () => {
  test('what is written is read, for every dtype and shape', () => {
    fc.assert(
      fc.property(
        fc.constantFrom(...DTYPES),
        fc.array(fc.integer({ min: 0, max: 4 }), { maxLength: 4 }),
        fc.string({ unit: 'grapheme', maxLength: 10 }),
        fc.infiniteStream(fc.nat(255)),
        (dtype, shape, name, noise) => {
          const data = newArray(dtype, countElements(shape));
          const raw = new Uint8Array(data.buffer);
          for (let i = 0; i < raw.length; i++) raw[i] = noise.next().value!;
          const written = writeOnnxTensor(tensorFrom(data, { dtype, shape }), name);
          const back = parseOnnxTensor(written);
          assert.deepEqual([back.name, back.tensor.dtype, back.tensor.shape], [name, dtype, shape]);
          assert.deepEqual(bitsOf(back.tensor.read() as never), bitsOf(data));
        },
      ),
      drawn(),
    );
  });

  test('fuzz: damaged files are read or refused', () => {
    const good = writeOnnxTensor(tensorFrom(Float32Array.of(1, 2, 3, 4, 5, 6), { shape: [2, 3] }), 'x');
    const typed = Uint8Array.from([...bytes(1, [2, 2]), 0x10, 7, ...bytes(7, [1, 2, 3, 4]), ...bytes(8, ascii('ids'))]);
    const codes = ['FORMAT', 'UNSUPPORTED'];
    for (const file of [good, typed]) {
      fc.assert(
        fc.property(damage, (steps) => mustRefuseOrReturn(() => parseOnnxTensor(damaged(file, steps)), codes)),
        drawn(3000),
      );
    }
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 100 }), (file) => mustRefuseOrReturn(() => parseOnnxTensor(file), codes)),
      drawn(3000),
    );
  });
});

describe('refusals', () => {
  const cases: [string, number[], string, RegExp][] = [
    [
      'bytes too few',
      [0x08, 2, 0x10, 1, ...bytes(9, [0, 0, 0, 0])],
      'FORMAT',
      /x\.pb: raw_data: expected 8 bytes for 2 elements of f32, got 4/,
    ],
    [
      'elements too few',
      [0x08, 2, 0x10, 7, ...bytes(7, [1])],
      'FORMAT',
      /x\.pb: int64Data: expected 2 elements of i64, got 1/,
    ],
    ['no type', [0x08, 1], 'UNSUPPORTED', /x\.pb: data_type: expected one of 1, 2, .*, got 0/],
    ['strings', [0x08, 1, 0x10, 8], 'UNSUPPORTED', /data_type: expected one of .* got 8/],
    [
      'a negative dimension',
      [0x08, 255, 255, 255, 255, 255, 255, 255, 255, 255, 1, 0x10, 1],
      'FORMAT',
      /dims: expected integers >= 0, got \[-1\]/,
    ],
    [
      'absurd dimensions',
      [0x08, ...varint(2 ** 40), 0x08, ...varint(2 ** 40), 0x10, 1],
      'FORMAT',
      /dims: expected fewer than 2\^50 elements/,
    ],
    ['elements in another file', [0x08, 1, 0x10, 1, 0x70, 1], 'FORMAT', /x\.pb: its elements lie in another file/],
    ['a file that is cut', [0x08, 1, 0x10, 1, 0x4a, 4, 0], 'FORMAT', /x\.pb: these bytes are not a TensorProto/],
    [
      '65 dimensions',
      [...bytes(1, new Array(65).fill(1)), 0x10, 1],
      'FORMAT',
      /dims: expected at most 64 dimensions, got 65/,
    ],
  ];
  for (const [name, file, code, message] of cases) {
    test(
      name,
      () =>
        void assert.throws(() => parseOnnxTensor(Uint8Array.from(file), 'x.pb'), {
          name: 'RopewalkError',
          code,
          message,
        }),
    );
  }
  test('groups in groups, which no ONNX file has: bounded', () => {
    const groups = new Uint8Array(1e6).fill(0x1b); // field 3, start of a group
    assert.throws(() => parseOnnxTensor(groups, 'x.pb'), {
      code: 'FORMAT',
      message: /x\.pb: these bytes are not a TensorProto/,
    });
  });
});
