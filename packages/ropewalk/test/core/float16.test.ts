import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { bf16FromNumber, f16FromNumber, numberFromBf16, numberFromF16 } from '../../src/core/float16.js';

interface Format {
  readonly name: string;
  readonly toBits: (value: number) => number;
  readonly toNumber: (bits: number) => number;
  readonly exponentBits: number;
  readonly quietNan: number;
}

const FORMATS: readonly Format[] = [
  { name: 'f16', toBits: f16FromNumber, toNumber: numberFromF16, exponentBits: 5, quietNan: 0x7e00 },
  { name: 'bf16', toBits: bf16FromNumber, toNumber: numberFromBf16, exponentBits: 8, quietNan: 0x7fc0 },
];

for (const { name, toBits, toNumber, exponentBits, quietNan } of FORMATS) {
  const fractionBits = 15 - exponentBits;
  const infinity = ((1 << exponentBits) - 1) << fractionBits;

  describe(name, () => {
    test('all 65,536 patterns: value by definition, and back to the same bits', () => {
      const bias = (1 << (exponentBits - 1)) - 1;
      for (let bits = 0; bits < 65536; bits++) {
        const exponent = (bits & 0x7fff) >> fractionBits;
        const fraction = (bits & ((1 << fractionBits) - 1)) / (1 << fractionBits);
        const got = toNumber(bits);
        if ((bits & 0x7fff) > infinity) {
          assert.ok(Number.isNaN(got), `${bits.toString(16)} is NaN`);
          continue;
        }
        const sign = bits & 0x8000 ? -1 : 1;
        const magnitude = exponent === 0 ? fraction * 2 ** (1 - bias) : (1 + fraction) * 2 ** (exponent - bias);
        const want = sign * ((bits & 0x7fff) === infinity ? Infinity : magnitude);
        assert.ok(Object.is(got, want), `${bits.toString(16)}: got ${got}, want ${want}`);
        assert.equal(toBits(got), bits);
      }
    });

    test('every gap between neighbours rounds to nearest, ties to even, on both sides of zero', () => {
      // The float64 neighbours of each midpoint catch a conversion that rounds twice, by way of float32.
      const nudge = (x: number, by: bigint): number => {
        const view = new DataView(new ArrayBuffer(8));
        view.setFloat64(0, x);
        view.setBigInt64(0, view.getBigInt64(0) + by);
        return view.getFloat64(0);
      };
      for (let low = 0; low < infinity; low++) {
        const high = low + 1;
        const a = toNumber(low);
        // Past the largest finite value the next step of the grid counts as infinity.
        const b = high === infinity ? a + (a - toNumber(low - 1)) : toNumber(high);
        const middle = (a + b) / 2;
        const even = low % 2 === 0 ? low : high;
        assert.equal(toBits(middle), even, `tie above ${low.toString(16)}`);
        assert.equal(toBits(nudge(middle, -1n)), low, `below the tie above ${low.toString(16)}`);
        assert.equal(toBits(nudge(middle, 1n)), high, `above the tie above ${low.toString(16)}`);
        assert.equal(toBits(-middle), even | 0x8000);
      }
    });

    test('zeros, infinities, NaN, float64 extremes', () => {
      assert.equal(toBits(0), 0);
      assert.equal(toBits(-0), 0x8000);
      assert.equal(toBits(Infinity), infinity);
      assert.equal(toBits(-Infinity), infinity | 0x8000);
      assert.equal(toBits(NaN) & 0x7fff, quietNan);
      assert.equal(toBits(Number.MAX_VALUE), infinity);
      assert.equal(toBits(Number.MIN_VALUE), 0);
      assert.equal(toBits(-Number.MIN_VALUE), 0x8000);
    });
  });
}

// Node 24 has Float16Array, Node 20 has not; CI runs on both.
const Half = (globalThis as { Float16Array?: new (n: number) => { [i: number]: number; buffer: ArrayBuffer } })
  .Float16Array;
if (Half) {
  test('f16 agrees with the runtime’s own conversion', () => {
    const native = new Half(1);
    const bits = new Uint16Array(native.buffer);
    for (let n = 0; n < 100000; n++) {
      const value = (n % 2 ? 1 : -1) * 2 ** ((n % 60) - 30) * (1 + n / 100000);
      native[0] = value;
      assert.equal(f16FromNumber(value), bits[0]);
    }
  });
}
