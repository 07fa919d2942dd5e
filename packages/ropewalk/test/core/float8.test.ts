/** The two 8-bit floats: bits against ml_dtypes', and by definition. */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { describe, test } from 'node:test';
import { loadNumber, roundTo, storeNumber } from '../../src/core/dtypes.js';
import { f8e4m3FromNumber, f8e5m2FromNumber, numberFromF8e4m3, numberFromF8e5m2 } from '../../src/core/float8.js';
import { numberFromF16 } from '../../src/core/float16.js';
import { tensorFrom } from '../../src/core/tensor.js';

/**
 * `halves`: sha256 of the bits of all 65,536 f16, each clamped to ±largest, as jax-ml/ml_dtypes 0.6.0 (float8_e4m3fn,
 * float8_e5m2) rounds them; the sign of a NaN is left out.
 */
const FORMATS = [
  {
    name: 'f8_e4m3' as const,
    toBits: f8e4m3FromNumber,
    toNumber: numberFromF8e4m3,
    exponentBits: 4,
    largest: 448,
    top: 0x7e,
    nan: 0x7f,
    halves: '0212e2599adcd3301d3bad890a053b8b41e514049b9988db67e77c2e21e464ce',
  },
  {
    name: 'f8_e5m2' as const,
    toBits: f8e5m2FromNumber,
    toNumber: numberFromF8e5m2,
    exponentBits: 5,
    largest: 57344,
    top: 0x7b,
    nan: 0x7e,
    halves: '2f041a78e41c9b96bab56c7c4abfc7067c1fcf2ac46374551562ccc51ba9ee4e',
  },
];

for (const { name, toBits, toNumber, exponentBits, largest, top, nan, halves } of FORMATS) {
  describe(name, () => {
    test('all f16 have the bits that ml_dtypes gives', () => {
      const bits = Uint8Array.from({ length: 65536 }, (_, half) => {
        const value = numberFromF16(half);
        return Number.isNaN(value) ? toBits(value) & 0x7f : toBits(value);
      });
      assert.equal(createHash('sha256').update(bits).digest('hex'), halves);
    });

    test('all 256 patterns: value by definition, and back to the same bits', () => {
      const fractionBits = 7 - exponentBits;
      const bias = 2 ** (exponentBits - 1) - 1;
      for (let bits = 0; bits < 256; bits++) {
        const exponent = (bits & 0x7f) >> fractionBits;
        const fraction = (bits & (2 ** fractionBits - 1)) / 2 ** fractionBits;
        const got = toNumber(bits);
        if ((bits & 0x7f) > top) {
          const infinite = name === 'f8_e5m2' && (bits & 0x7f) === 0x7c;
          assert.ok(infinite ? Math.abs(got) === Infinity : Number.isNaN(got), `${bits}`);
          continue;
        }
        const magnitude = exponent === 0 ? fraction * 2 ** (1 - bias) : (1 + fraction) * 2 ** (exponent - bias);
        assert.ok(Object.is(got, bits & 0x80 ? -magnitude : magnitude), `${bits}: got ${got}`);
        assert.equal(toBits(got), bits);
      }
    });

    test('ties go to even, and a float64 just beside one does not', () => {
      for (let low = 0; low < top; low++) {
        const [a, b] = [toNumber(low), toNumber(low + 1)];
        const middle = (a + b) / 2;
        const step = middle * 2 ** -52;
        assert.equal(toBits(middle), low % 2 === 0 ? low : low + 1, `tie above ${low}`);
        assert.equal(toBits(middle - step), low);
        assert.equal(toBits(-middle - step), (low + 1) | 0x80);
      }
    });

    test('saturates; NaN, -0 and float64 extremes', () => {
      for (const large of [largest + 1, largest * 2, Number.MAX_VALUE, Infinity]) {
        assert.equal(toBits(large), top);
        assert.equal(toBits(-large), top | 0x80);
      }
      assert.equal(toBits(NaN) & 0x7f, nan);
      assert.equal(toBits(-0), 0x80);
      assert.equal(toBits(Number.MIN_VALUE), 0);
    });

    test('a tensor of it: named, one byte each, read as numbers', () => {
      const data = new Uint8Array(4);
      storeNumber(data, name, 1, 1.5);
      storeNumber(data, name, 2, -1e9);
      const tensor = tensorFrom(data, { dtype: name });
      assert.deepEqual(tensor.readNumbers(), Float64Array.of(0, 1.5, -largest, 0));
      assert.equal(roundTo(name, 1.5 + 2 ** -20), 1.5);
      assert.equal(tensorFrom(data).dtype, 'u8'); // unless it is named
    });

    test('refusals', () => {
      const code = 'RANGE';
      assert.throws(() => toBits('1' as never), { code, message: `${name}: expected a number, got "1"` });
      assert.throws(() => toNumber(256), { code, message: `${name}: bits: expected an integer in [0, 255], got 256` });
    });
  });
}

test('an i8 rounds to even and saturates; NaN is 0', () => {
  const data = new Int8Array(8);
  for (const [n, value] of [0.5, 1.5, -0.5, -2.5, 127.5, -1e9, Infinity, NaN].entries())
    storeNumber(data, 'i8', n, value);
  assert.deepEqual(data, Int8Array.of(0, 2, 0, -2, 127, -128, 127, 0));
  assert.equal(loadNumber(data, 'i8', 5), -128);
});
