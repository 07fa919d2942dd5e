/**
 * A few rows times quantised weights on cpu: x is split into integers that keep 31 bits of it, so what matters is where
 * that is exact, how far off it is elsewhere, and which rows are left to f32.
 */
import assert from 'node:assert/strict';
import { after, describe, test } from 'node:test';
import { UNIT_ROUNDOFF } from '../../../packages/oracle/src/tolerance.js';
import { f16FromNumber, numberFromF16 } from '../../../packages/ropewalk/src/core/float16.js';
import { ropewalk } from '../../../packages/ropewalk/src/ropewalk.js';
import { randomness } from '../../support/operators.js';

/** Columns: one, two, odd and even; the kernel takes column u together with column u + n/2. */
const COLUMNS = [1, 2, 3, 8, 13];

interface Case {
  /** q8_0 by default. */
  readonly format?: 'q8_0' | 'q4_0';
  /** `[m, k]` */
  readonly x: Float32Array;
  readonly k: number;
  readonly n: number;
  readonly weight: (row: number, i: number) => number;
  readonly scale: (row: number, block: number) => number;
}

/** The blocks as GGUF has them. */
function blocksOf({ k, n, weight, scale, format = 'q8_0' }: Case): Uint8Array {
  const size = format === 'q8_0' ? 34 : 18;
  const bytes = new Uint8Array((n * k * size) / 32);
  const view = new DataView(bytes.buffer);
  for (let row = 0, at = 0; row < n; row++) {
    for (let block = 0; block < k / 32; block++, at += size) {
      view.setUint16(at, f16FromNumber(scale(row, block)), true);
      for (let i = 0; i < 32; i++) {
        const w = weight(row, 32 * block + i);
        if (format === 'q8_0') view.setInt8(at + 2 + i, w);
        else bytes[at + 2 + (i & 15)]! |= (w + 8) << (i < 16 ? 0 : 4);
      }
    }
  }
  return bytes;
}

/** Each result in float64, and how far from it f32 sums of 31-bit products may be. */
function expected({ x, k, n, weight, scale }: Case): { value: number; bound: number }[] {
  return Array.from({ length: (x.length / k) * n }, (_, at) => {
    const [r, row] = [Math.floor(at / n), at % n];
    let value = 0;
    let bound = 0;
    for (let block = 0; block < k / 32; block++) {
      const d = numberFromF16(f16FromNumber(scale(row, block)));
      let [sum, largest, weights, products] = [0, 0, 0, 0];
      for (let i = 32 * block; i < 32 * block + 32; i++) {
        sum += weight(row, i) * x[r * k + i]!;
        largest = Math.max(largest, Math.abs(x[r * k + i]!));
        weights += Math.abs(weight(row, i));
        products += Math.abs(weight(row, i) * x[r * k + i]!);
      }
      value += d * sum;
      // x is within 2⁻³¹ of the block's largest; the two halves, the scales' product and one sum a block are rounded to
      // f32.
      bound += Math.abs(d) * (weights * largest * 2 ** -31 + products * UNIT_ROUNDOFF.f32 * (8 + k / 32));
    }
    return { value, bound };
  });
}

describe('linear of blocks on cpu, few rows', async () => {
  const runners = await Promise.all([1, 2].map((threads) => ropewalk({ backend: 'cpu', threads })));
  after(() => {
    for (const rw of runners) rw.dispose();
  });

  async function run(c: Case): Promise<Float32Array> {
    const [one, two] = await Promise.all(
      runners.map(async (rw) => {
        const weight = rw.uploadBlocks(c.format ?? 'q8_0', blocksOf(c), [c.n, c.k]);
        using y = rw.linear(rw.tensor(c.x, { shape: [c.x.length / c.k, c.k] }), weight);
        weight.dispose();
        return (await y.read()) as Float32Array;
      }),
    );
    assert.deepEqual(new Uint32Array(one!.buffer), new Uint32Array(two!.buffer), 'the same bits on two threads');
    return one!;
  }

  for (const n of COLUMNS) {
    test(`n=${n}: whole numbers come out exact`, async () => {
      const random = randomness(n);
      const k = 96;
      const x = Float32Array.from({ length: 3 * k }, () => Math.floor(random() * 401) - 200);
      const whole = Array.from({ length: n * k }, () => Math.floor(random() * 255) - 127);
      const c: Case = {
        x,
        k,
        n,
        weight: (row, i) => whole[row * k + i]!,
        scale: (row, block) => 2 ** ((row + block) % 3),
      };
      assert.deepEqual(
        [...(await run(c))],
        expected(c).map(({ value }) => value),
      );
    });
  }

  for (const format of ['q8_0', 'q4_0'] as const) {
    for (let m = 1; m <= 8; m++) {
      test(`${format} m=${m} k=32: the largest sums come out exact`, async () => {
        const [k, n] = [32, 5];
        const [least, most] = format === 'q8_0' ? [-128, 127] : [-8, 7];
        // All bits of x are ones, and all of a block have one size: nothing that is split or summed can be larger.
        const x = Float32Array.from({ length: m * k }, (_, i) => (i & 32 ? -1 : 1) * (2 - 2 ** -23) * 2 ** (i >> 5));
        const c: Case = {
          format,
          x,
          k,
          n,
          weight: (row, i) => (row === 0 || (row + i) % 2 === 0 ? least : most),
          scale: () => 2,
        };
        assert.deepEqual(
          [...(await run(c))],
          expected(c).map(({ value }) => value),
        );
      });
    }

    test(`${format}: work enough for two threads, rows of x split on both`, async () => {
      const random = randomness(13);
      const [m, k, n] = [8, 4096, 33];
      const x = Float32Array.from({ length: m * k }, () => random() - 0.5);
      const range = format === 'q8_0' ? 256 : 16;
      const any = Int8Array.from({ length: n * k }, () => Math.floor(random() * range) - range / 2);
      const c: Case = { format, x, k, n, weight: (row, i) => any[row * k + i]!, scale: () => 0.01 };
      const got = await run(c);
      for (const [at, { value, bound }] of expected(c).entries())
        assert.ok(Math.abs(got[at]! - value) <= bound, `y[${at}]: expected ${value} ± ${bound}, got ${got[at]}`);
    });
  }

  test('numbers of all sizes in one block, the largest times a weight of 0: within 2⁻³¹ of the largest', async () => {
    const random = randomness(7);
    const [k, n] = [64, 5];
    const x = Float32Array.from({ length: 2 * k }, (_, i) =>
      i % 32 === 5 ? 4096 : (random() - 0.5) * 2 ** -Math.floor(random() * 20),
    );
    const any = Array.from({ length: n * k }, (_, i) => (i % 32 === 5 ? 0 : Math.floor(random() * 256) - 128));
    const c: Case = { x, k, n, weight: (row, i) => any[row * k + i]!, scale: () => 0.01 };
    const got = await run(c);
    for (const [at, { value, bound }] of expected(c).entries())
      assert.ok(Math.abs(got[at]! - value) <= bound, `y[${at}]: expected ${value} ± ${bound}, got ${got[at]}`);
  });

  for (const size of [2 ** -120, 2 ** -61, 2 ** -59, 2 ** 60, 2 ** 62, 2 ** 110]) {
    test(`x around 2^${Math.log2(size)}, with rows of zeros: split or not, equally exact`, async () => {
      const random = randomness(11);
      const [k, n] = [64, 3];
      const x = Float32Array.from({ length: 3 * k }, (_, i) =>
        i < k ? 0 : (random() - 0.5) * size * (i < 2 * k ? 1 : 2),
      );
      const any = Array.from({ length: n * k }, () => Math.floor(random() * 256) - 128);
      const c: Case = { x, k, n, weight: (row, i) => any[row * k + i]!, scale: () => 0.5 };
      const got = await run(c);
      for (const [at, { value, bound }] of expected(c).entries())
        assert.ok(Math.abs(got[at]! - value) <= bound, `y[${at}]: expected ${value} ± ${bound}, got ${got[at]}`);
    });
  }

  test('infinities and NaN stay in their rows; an infinite scale is seen', async () => {
    const k = 32;
    const x = new Float32Array(4 * k).fill(1);
    x[3] = Number.POSITIVE_INFINITY;
    x[k + 4] = Number.NaN;
    const got = await run({ x, k, n: 2, weight: () => 2, scale: (row) => (row === 0 ? 1 : Number.NEGATIVE_INFINITY) });
    const huge = Number.POSITIVE_INFINITY;
    assert.deepEqual([...got], [huge, -huge, Number.NaN, Number.NaN, 64, -huge, 64, -huge]);
  });
});
