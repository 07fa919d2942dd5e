import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { describe, test } from 'node:test';
import fc from 'fast-check';
import { DTYPES, sizeBytes } from 'ropewalk';
import { newArray } from 'ropewalk/backend';
import { bitsOf, countElements, isFloat8 } from 'ropewalk/internal';
import { damage, damaged, mustRefuseOrReturn } from '../../../test/support/fuzz.js';
import { drawn } from '../../../test/support/size.js';
import { parseNpy, tensorFromNpy, writeNpy, writeNpyHeader } from '../src/npy.js';
import { npyHeaderOf } from '../src/read-header.js';

/** A file as numpy would write it, from its parts. */
function file(header: string, data: ArrayLike<number> = [], version = 1): Uint8Array {
  const text = [...header].map((c) => c.charCodeAt(0));
  const length =
    version === 1
      ? [text.length & 255, text.length >> 8]
      : [text.length & 255, (text.length >> 8) & 255, text.length >> 16, 0];
  return Uint8Array.from([
    0x93,
    ...[...'NUMPY'].map((c) => c.charCodeAt(0)),
    version,
    0,
    ...length,
    ...text,
    ...Array.from(data),
  ]);
}
const header = (descr: string, shape: string, fortran = 'False'): string =>
  `{'descr': '${descr}', 'fortran_order': ${fortran}, 'shape': ${shape}, }\n`;

const NUMPY_DTYPES = DTYPES.filter((dtype) => !isFloat8(dtype));

describe('golden', () => {
  test('files that numpy wrote', () => {
    const read = (name: string) =>
      parseNpy(new Uint8Array(readFileSync(new URL(`../../../vectors/${name}`, import.meta.url))));
    const x = read('onnx/test_rotary_embedding/x.npy');
    assert.deepEqual([x.dtype, x.shape, x.fortranOrder, x.data.length], ['f32', [2, 4, 3, 8], false, 192]);
    assert.equal(read('onnx/test_rotary_embedding/pos.npy').dtype, 'i64');
    assert.equal(read('onnx/own_bf16_3d_pos_inter_partial/x.npy').dtype, 'u16');
    assert.equal(read('infiniop/rope/u3_f16_n.x.npy').dtype, 'f16');
    assert.equal(read('onnx/test_rotary_embedding/y64.npy').dtype, 'f64');
  });

  test('versions, byte orders, key orders, quotes, tuples, bf16 as ml_dtypes writes it', () => {
    for (const version of [1, 2, 3])
      assert.deepEqual(
        [...(parseNpy(file(header('<i2', '(2,)'), [1, 0, 255, 255], version)).data as Int16Array)],
        [1, -1],
      );
    assert.deepEqual([...(parseNpy(file(header('>i4', '(1,)'), [0, 0, 1, 2])).data as Int32Array)], [258]);
    assert.deepEqual(parseNpy(file(`{"shape": (), "fortran_order": False, "descr": "|u1"}`, [7])).shape, []);
    assert.deepEqual(parseNpy(file(header('<V2', '(1, 2)'), [0, 0, 128, 63])).dtype, 'bf16');
    assert.equal(parseNpy(file(header('bfloat16', '(1,)'), [0, 0])).dtype, 'bf16');
    assert.equal(parseNpy(file(header('|b1', '(3,)'), [1, 0, 1])).dtype, 'u8');
    assert.deepEqual(parseNpy(file(header('<f4', '(0, 5)'))).shape, [0, 5]);
    assert.deepEqual(parseNpy(file(header('<f8', '(2L,)'), new Uint8Array(16))).shape, [2]);
  });

  test('Fortran order gives the strides that read the same elements', () => {
    const npy = parseNpy(file(header('|u1', '(2, 3)', 'True'), [1, 4, 2, 5, 3, 6]));
    assert.deepEqual([...(tensorFromNpy(npy).read() as Uint8Array)], [1, 2, 3, 4, 5, 6]);
  });
});

describe('properties', () => {
  test('what is written is read, for every dtype and shape', () => {
    fc.assert(
      fc.property(
        fc.constantFrom(...NUMPY_DTYPES),
        fc.array(fc.integer({ min: 0, max: 5 }), { maxLength: 4 }),
        fc.infiniteStream(fc.nat(255)),
        (dtype, shape, noise) => {
          const data = newArray(dtype, countElements(shape));
          const bytes = new Uint8Array(data.buffer);
          for (let i = 0; i < bytes.length; i++) bytes[i] = noise.next().value!;
          const written = writeNpy(data, { dtype, shape });
          assert.equal((written.length - data.byteLength) % 64, 0, 'data is aligned to 64 bytes, as numpy does');
          const back = parseNpy(written);
          assert.deepEqual([back.dtype, back.shape], [dtype === 'bf16' ? 'u16' : dtype, shape]);
          assert.deepEqual(bitsOf(back.data), bitsOf(data));
          // Read from an odd address the elements are copied, and are the same.
          const shifted = new Uint8Array(written.length + 1);
          shifted.set(written, 1);
          assert.deepEqual(bitsOf(parseNpy(shifted.subarray(1)).data), bitsOf(data));
        },
      ),
      drawn(),
    );
  });

  test('piece by piece: the header alone says the same, and headers and elements make the file', async () => {
    const data = Float32Array.of(1, 2, 3, 4, 5, 6);
    const whole = writeNpy(data, { dtype: 'f32', shape: [2, 3] });
    const start = writeNpyHeader({ dtype: 'f32', shape: [2, 3] });
    assert.deepEqual(Buffer.concat([start, new Uint8Array(data.buffer)]), Buffer.from(whole));
    const read: number[] = [];
    const source = (bytes: Uint8Array) => ({
      size: bytes.length,
      async read(start: number, length: number) {
        read.push(length);
        return bytes.subarray(start, start + length);
      },
    });
    const { dataOffset, bigEndian, ...rest } = await npyHeaderOf(source(whole), 'a.npy');
    const { data: _data, ...parsed } = parseNpy(whole);
    assert.deepEqual([dataOffset, bigEndian, rest], [start.length, false, parsed]);
    const large = writeNpy(new Uint8Array(2 ** 20), { dtype: 'u8', shape: [2 ** 20] });
    assert.deepEqual((await npyHeaderOf(source(large), 'a.npy')).shape, [2 ** 20]);
    assert.ok(read.at(-1)! < 2 ** 17, `${read.at(-1)} bytes were read for a header`);
    assert.equal((await npyHeaderOf(source(file(header('>f4', '(2,)'), new Uint8Array(8))), 'a.npy')).bigEndian, true);
    await assert.rejects(npyHeaderOf(source(whole.subarray(0, -1)), 'a.npy'), {
      code: 'FORMAT',
      message:
        /^a\.npy: expected 24 bytes of data for shape \[2,3\] of <f4, got 23\. The file is truncated or forged\.$/,
    });
  });

  test('a big-endian file holds the same elements', () => {
    fc.assert(
      fc.property(fc.constantFrom(...NUMPY_DTYPES), fc.uint8Array({ minLength: 8, maxLength: 8 }), (dtype, raw) => {
        const unit = sizeBytes(dtype);
        const [code] = /[a-z]\d/.exec(
          String.fromCharCode(...writeNpy(newArray(dtype, 0), { dtype, shape: [0] }).subarray(10, 40)).slice(11),
        )!;
        const swapped = Uint8Array.from(raw, (_, i) => raw[i - (i % unit) + unit - 1 - (i % unit)]!);
        const little = parseNpy(file(header(`<${code}`, `(${8 / unit},)`), raw));
        const big = parseNpy(file(header(`>${code}`, `(${8 / unit},)`), swapped));
        assert.equal(big.dtype, little.dtype);
        assert.deepEqual(bitsOf(big.data), bitsOf(little.data));
      }),
      drawn(),
    );
  });

  test('Fortran order is the row-major file of the reversed shape, its dimensions reversed', () => {
    fc.assert(
      fc.property(fc.array(fc.integer({ min: 0, max: 4 }), { maxLength: 4 }), (shape) => {
        const data = Uint16Array.from({ length: countElements(shape) }, (_, i) => i);
        const dims = (list: readonly number[]): string => `(${list.map((d) => `${d},`).join('')})`;
        const read = (list: readonly number[], fortran: string) =>
          tensorFromNpy(parseNpy(file(header('<u2', dims(list), fortran), new Uint8Array(data.buffer))));
        const reversed = read(shape.toReversed(), 'False');
        const expected = reversed.permute(shape.map((_, d) => shape.length - 1 - d));
        const got = read(shape, 'True');
        assert.deepEqual([got.shape, got.read()], [expected.shape, expected.read()]);
      }),
      drawn(),
    );
  });

  test('fuzz: damaged files are read or refused', () => {
    const good = writeNpy(Float32Array.of(1, 2, 3, 4, 5, 6), { dtype: 'f32', shape: [2, 3] });
    fc.assert(
      fc.property(damage, (steps) => mustRefuseOrReturn(() => parseNpy(damaged(good, steps)))),
      drawn(3000),
    );
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 200 }), (bytes) => mustRefuseOrReturn(() => parseNpy(bytes))),
      drawn(1000),
    );
    fc.assert(
      fc.property(fc.string({ maxLength: 120 }), (text) => mustRefuseOrReturn(() => parseNpy(file(text)))),
      drawn(2000),
    );
    // Headers that parse, of types and shapes that mean nothing.
    const names = fc.constantFrom(
      'f4',
      'V2',
      'O',
      'constructor',
      'toString',
      '__proto__',
      'hasOwnProperty',
      'f16',
      '',
      'U5',
      'M8[ns]',
    );
    const dim = fc.constantFrom(
      '0',
      '1',
      '2',
      '-1',
      '4294967296',
      '9007199254740991',
      '9007199254740993',
      '1e3',
      '0x10',
      '1L',
      'True',
    );
    fc.assert(
      fc.property(
        fc.constantFrom('<', '>', '|', '=', '', '!'),
        names,
        fc.array(dim, { maxLength: 5 }),
        (order, name, dims) =>
          mustRefuseOrReturn(() =>
            tensorFromNpy(parseNpy(file(header(order + name, `(${dims.join(', ')})`), new Uint8Array(8)))),
          ),
      ),
      drawn(3000),
    );
    const word = fc.constantFrom(
      '{',
      '}',
      '(',
      ')',
      ',',
      ':',
      "'descr'",
      '"shape"',
      "'fortran_order'",
      'True',
      '<f4',
      "'|u1'",
      '1',
      "'",
      '"',
      ' ',
    );
    fc.assert(
      fc.property(fc.array(word, { maxLength: 30 }), (words) =>
        mustRefuseOrReturn(() => parseNpy(file(words.join('')))),
      ),
      drawn(3000),
    );
    for (const text of [
      "'".repeat(60000),
      '"\''.repeat(30000),
      '('.repeat(60000),
      "'\n".repeat(30000),
      `{'shape': (${'1,'.repeat(30000)})}`,
    ])
      mustRefuseOrReturn(() => parseNpy(file(text)));
  });
});

describe('refusals', () => {
  const cases: [string, Uint8Array, RegExp][] = [
    ['not npy', Uint8Array.from([1, 2, 3]), /x\.npy: it is not a \.npy file: it does not start with \\x93NUMPY/],
    ['version 9', file(header('<f4', '(1,)'), [0, 0, 0, 0], 9), /expected npy version 1, 2 or 3, got 9/],
    [
      'too few bytes',
      file(header('<f4', '(2,)'), [0, 0, 0, 0]),
      /expected 8 bytes of data for shape \[2\] of <f4, got 4\. The file is truncated or forged\./,
    ],
    ['too many bytes', file(header('<f4', '(1,)'), [0, 0, 0, 0, 0]), /expected 4 bytes of data/],
    [
      'objects',
      file(header('|O', '(1,)'), [0]),
      /x\.npy: descr: .* got "\|O"\. Arrays of Python objects are pickles, which are never read\./,
    ],
    ['complex', file(header('<c8', '(1,)'), [0]), /descr: expected one of f8, f4/],
    [
      'a structured type',
      file("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}"),
      /A list here is a structured type/,
    ],
    ['a negative dimension', file(header('<f4', '(-1,)')), /header\.shape: expected dimensions >= 0, got "-1"/],
    [
      'a type named as an object is',
      file(header('<constructor', '(1,)'), [0]),
      /descr: expected one of f8, .* got "<constructor"/,
    ],
    ['a type without a name', file(header('', '(1,)'), [0]), /descr: expected one of f8, .* got ""/],
    ['the same key twice', file("{'descr': '<f4', 'descr': '|u1'}"), /header: two values have the key "descr"/],
    [
      'absurd dimensions beside a 0',
      file(header('<f4', '(9007199254740991, 9007199254740991, 0)')),
      /fewer than 2\^50 elements/,
    ],
    [
      '65 dimensions',
      file(header('|u1', `(${'1,'.repeat(65)})`), [0]),
      /header\.shape: it has more than 64 dimensions/,
    ],
    ['a product past 2^53', file(header('<f4', '(9007199254740991, 9007199254740991)')), /fewer than 2\^50 elements/],
    [
      'an unknown key',
      file("{'descr': '<f4', 'evil': __import__('os')}"),
      /expected descr, fortran_order and shape, got "evil"/,
    ],
    ['a missing key', file("{'descr': '<f4', 'fortran_order': False}"), /expected descr, fortran_order and shape/],
    [
      'text after the dict',
      file("{'descr': '|u1', 'fortran_order': False, 'shape': (1,)} + 1", [0]),
      /nothing after the dict/,
    ],
    [
      'a header longer than the file',
      Uint8Array.from([0x93, 78, 85, 77, 80, 89, 1, 0, 255, 255]),
      /ends inside its header of 65535 bytes, after 10 bytes/,
    ],
  ];
  for (const [name, bytes, message] of cases)
    test(name, () => void assert.throws(() => parseNpy(bytes, 'x.npy'), { code: 'FORMAT', message }));
  test('writing a dtype that numpy has not', () => {
    assert.throws(() => writeNpy(new Uint8Array(1), { dtype: 'f8_e4m3', shape: [1] }), {
      code: 'DTYPE',
      message: 'npy: dtype: expected a dtype that numpy has, got "f8_e4m3". Write u8, its bits.',
    });
  });
  test('writing another number of elements', () => {
    assert.throws(() => writeNpy(new Float32Array(5), { dtype: 'f32', shape: [2, 3] }), {
      code: 'SHAPE',
      message: 'npy: shape: expected 5 elements, got [2, 3]',
    });
    assert.throws(() => writeNpy(new Float32Array(6), { dtype: 'f32', shape: [-2, -3] }), {
      code: 'SHAPE',
      message: 'npy: shape: expected integers >= 0, got [-2, -3]',
    });
    assert.throws(() => writeNpy(new Float32Array(1), { dtype: 'f32', shape: new Array(65).fill(1) }), {
      code: 'SHAPE',
      message: 'npy: shape: expected at most 64 dimensions, got 65',
    });
    const wrong = new Float32Array(1) as unknown as Float64Array;
    assert.throws(() => writeNpy(wrong, { dtype: 'f64', shape: [1] }), {
      code: 'DTYPE',
      message: 'npy: data: expected a Float64Array for dtype f64, got Float32Array(1)',
    });
  });
});
