/**
 * A few rows times quantised weights on cpu. x is split into integers that keep 31 bits of it: the tests check where that is
 * exact, how far off it is elsewhere, and which rows are computed in f32.
 */
import assert from 'node:assert/strict';
import { after, describe, test } from 'node:test';
import { blocksOf as anyBlocks, randomness } from '../../../../test/support/operators.js';
import { BLOCK_FORMAT_NAMES, BLOCK_FORMATS, type BlockFormat } from '../../src/core/block-formats.js';
import { blocksFrom, readBlocks } from '../../src/core/blocks.js';
import { UNIT_ROUNDOFF } from '../../src/core/dtypes.js';
import { f16FromNumber, numberFromF16 } from '../../src/core/float16.js';
import { ropewalk } from '../../src/ropewalk.js';

/** The numbers of columns: one, two, odd and even; the kernel computes column u together with column u + n/2. */
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

/** Packs the blocks as in GGUF. */
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

/** Computes each result in float64, and the error that f32 sums of 31-bit products may have. */
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

  /** Computes a row of blocks times x, and the error that is allowed, as {@link expected} does, for any format. */
  function allowed(format: BlockFormat, weights: Float64Array, x: Float32Array, k: number) {
    const group = BLOCK_FORMATS[format].weights;
    return Array.from({ length: weights.length / k }, (_, row) => {
      let value = 0;
      let bound = (k + 1) * 2 ** -149;
      for (let at = 0; at < k; at += group) {
        const w = weights.subarray(row * k + at, row * k + at + group);
        const largest = x.subarray(at, at + group).reduce((most, v) => Math.max(most, Math.abs(v)), 0);
        for (const [i, weight] of w.entries()) {
          value += weight * x[at + i]!;
          bound +=
            Math.abs(weight) * largest * 2 ** -31 + Math.abs(weight * x[at + i]!) * UNIT_ROUNDOFF.f32 * (8 + k / 32);
        }
      }
      return { value, bound };
    });
  }

  async function runBytes(format: BlockFormat, bytes: Uint8Array, x: Float32Array): Promise<Float32Array> {
    const { weights, bytes: size } = BLOCK_FORMATS[format];
    const n = (bytes.length / size) * (weights / x.length);
    const [one, two] = await Promise.all(
      runners.map(async (rw) => {
        const weight = rw.uploadBlocks(format, bytes, [n, x.length]);
        using y = rw.linear(rw.tensor(x, { shape: [1, x.length] }), weight);
        weight.dispose();
        return (await y.read()) as Float32Array;
      }),
    );
    assert.deepEqual(one, two, 'the same on two threads');
    return one!;
  }

  for (const format of BLOCK_FORMAT_NAMES) {
    for (const size of [1, 2 ** -120, 2 ** -61, 2 ** -59, 2 ** 60, 2 ** 62, 2 ** 100]) {
      test(`${format}, x around 2^${Math.log2(size)}: near float64, split or not`, async () => {
        const random = randomness(17);
        const k = 512;
        const blocks = anyBlocks(format, 7, k, 5);
        const bytes = blocks.bytes.storage.read() as Uint8Array;
        const x = Float32Array.from({ length: k }, (_, i) => (random() - 0.5) * size * (i % 64 === 9 ? 128 : 1));
        const got = await runBytes(format, bytes, x);
        for (const [row, { value, bound }] of allowed(format, readBlocks(blocks, 'w'), x, k).entries())
          assert.ok(Math.abs(got[row]! - value) <= bound, `y[${row}]: expected ${value} ± ${bound}, got ${got[row]}`);
      });
    }
  }

  /** Makes a super-block: d and dmin are 1 and `dmin`, every other byte is `fill`, then the changes. */
  function superBlock(
    format: BlockFormat,
    dmin: number,
    fill: number,
    changes: [from: number, to: number, byte: number][],
  ) {
    const bytes = new Uint8Array(BLOCK_FORMATS[format].bytes).fill(fill);
    for (const [from, to, byte] of changes) bytes.fill(byte, from, to);
    const view = new DataView(bytes.buffer);
    const [d, least] = BLOCK_FORMATS[format].scales;
    view.setUint16(d!, f16FromNumber(1), true);
    if (least !== undefined) view.setUint16(least, f16FromNumber(dmin), true);
    return bytes;
  }
  const extremes: [name: string, format: BlockFormat, bytes: Uint8Array, weight: number][] = [
    ['q4_K', 'q4_K', superBlock('q4_K', 0, 255, []), 15 * 63],
    ['q5_K', 'q5_K', superBlock('q5_K', 0, 255, []), 31 * 63],
    ['q6_K, least times least', 'q6_K', superBlock('q6_K', 0, 0, [[192, 208, 0x80]]), 4096],
    ['q6_K, most times least', 'q6_K', superBlock('q6_K', 0, 255, [[192, 208, 0x80]]), -128 * 31],
    ['q6_K, least times most', 'q6_K', superBlock('q6_K', 0, 0, [[192, 208, 127]]), -32 * 127],
    ['iq4_xs, least times least', 'iq4_xs', superBlock('iq4_xs', 0, 0, []), 32 * 127],
    ['iq4_xs, most times least', 'iq4_xs', superBlock('iq4_xs', 0, 0, [[8, 136, 255]]), -32 * 113],
  ];
  for (const [name, format, bytes, weight] of extremes) {
    test(`${name}: the largest sums of a super-block come out exact`, async () => {
      assert.deepEqual(new Set(readBlocks(blocksFrom(format, bytes, [1, 256]), 'w')), new Set([weight]));
      // Bits of x are all ones: high parts of 32767 and low parts near that, or high parts of -32768.
      for (const x of [2 - 2 ** -23, -(2 - 2 ** -23), -2, 2 - 2 ** -16]) {
        const got = await runBytes(format, bytes, new Float32Array(256).fill(x));
        assert.deepEqual([...got], [Math.fround(256 * weight * x)], `x ${x}`);
      }
    });
  }

  for (const format of ['q4_K', 'q5_K'] as const) {
    test(`${format}: an offset that takes the products away again leaves what there is`, async () => {
      // d·scale·q − dmin·m with q 8 (every low half 8, fifth bits 0): 63·8 − 8·63 is 0, in every weight but one.
      const bytes = superBlock(format, 8, 255, [[16, BLOCK_FORMATS[format].bytes, 0x88]]);
      if (format === 'q5_K') bytes.fill(0, 16, 48);
      const random = randomness(3);
      const x = Float32Array.from({ length: 256 }, () => random() - 0.5);
      assert.deepEqual([...(await runBytes(format, bytes, x))], [0]);
      const last = bytes.length - 1;
      bytes[last] = 0x98; // the last weight: 63
      assert.deepEqual([...(await runBytes(format, bytes, x))], [Math.fround(63 * x[255]!)]);
    });
  }

  test('mxfp4: powers of two of all sizes, beside x of all sizes', async () => {
    const k = 32;
    for (const power of [0, 1, 2, 40, 66, 67, 68, 69, 127, 200]) {
      const bytes = Uint8Array.from({ length: 17 }, (_, i) => (i === 0 ? power : 17 * i));
      const weights = readBlocks(blocksFrom('mxfp4', bytes, [1, k]), 'w');
      for (const size of [1, 2 ** -59, 2 ** -30, 2 ** 10]) {
        const x = Float32Array.from({ length: k }, (_, i) => (1 + i / 7) * size);
        const [{ value, bound }] = allowed('mxfp4', weights, x, k) as [{ value: number; bound: number }];
        const [got] = await runBytes('mxfp4', bytes, x);
        assert.ok(
          Math.abs(got! - value) <= bound,
          `2^${power - 128}, x ${size}: expected ${value} ± ${bound}, got ${got}`,
        );
      }
    }
  });

  test('scales that are no numbers are seen in every format', async () => {
    for (const format of BLOCK_FORMAT_NAMES) {
      for (const at of BLOCK_FORMATS[format].scales) {
        const bytes = anyBlocks(format, 1, 512, 5).bytes.storage.read() as Uint8Array;
        [bytes[at], bytes[at + 1]] = [0, 0x7e];
        assert.deepEqual([...(await runBytes(format, bytes, new Float32Array(512).fill(1)))], [NaN], `${format} ${at}`);
      }
    }
  });
});
