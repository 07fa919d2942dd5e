/**
 * Activations rounded to 8 bits: the rounding, written a second time, then products of rounded rows. cpu sums q8_0 and q4_0
 * in integers and computes other formats in f32, as well as rows that integers cannot represent.
 */
import assert from 'node:assert/strict';
import { after, describe, test } from 'node:test';
import { blocksOf, randomness } from '../../../../test/support/operators.js';
import { whyFloat64 } from '../../src/backends/float64.js';
import { BLOCK_FORMAT_NAMES, BLOCK_FORMATS, type BlockFormat } from '../../src/core/block-formats.js';
import { type BlockTensor, blocksFrom, readBlocks } from '../../src/core/blocks.js';
import { UNIT_ROUNDOFF } from '../../src/core/dtypes.js';
import { f16FromNumber } from '../../src/core/float16.js';
import { type Tensor, tensorFrom } from '../../src/core/tensor.js';
import type { ExpertLinearOptions } from '../../src/ops/expert-linear.js';
import { planLinear } from '../../src/ops/linear.js';
import { type Ropewalk, ropewalk } from '../../src/ropewalk.js';

const f32 = (values: Float32Array, shape: readonly number[]): Tensor<'f32'> =>
  tensorFrom(values, { dtype: 'f32', shape });

const Q8 = { activations: 'q8' } as const;
/** The numbers of rows of x: around the limits of few rows, of a tile, and of the rows that are prepared at a time. */
const ROWS = [1, 3, 8, 9, 12, 33, 770];

/** Rounds a row of x by the definition: every step in f32, with ties found by their remainder. */
function rounded(row: readonly number[]): number[] {
  if (!row.every(Number.isFinite)) return [...row];
  return row.flatMap((_, at) => {
    if (at % 32 !== 0) return [];
    const group = row.slice(at, at + 32);
    const d = Math.fround(Math.max(...group.map(Math.abs)) / 127);
    return group.map((x) => {
      if (d === 0) return 0;
      const exact = Math.fround(x / d);
      const floor = Math.floor(exact);
      const rest = exact - floor;
      const q = rest > 0.5 || (rest === 0.5 && floor % 2 !== 0) ? floor + 1 : floor;
      return d * Math.max(-127, Math.min(127, q));
    });
  });
}

describe("linear with activations: 'q8'", async () => {
  const runners = await Promise.all([1, 2].map((threads) => ropewalk({ backend: 'cpu', threads })));
  const reference = await ropewalk({ backend: 'reference' });
  after(() => {
    for (const rw of [...runners, reference]) rw.dispose();
  });

  /** On one thread and on two, which give the same bits. */
  async function onBoth(run: (rw: Ropewalk) => Tensor<'f32'>): Promise<Float32Array> {
    const [one, two] = await Promise.all(
      runners.map(async (rw) => {
        using y = run(rw);
        return (await y.read()) as Float32Array;
      }),
    );
    assert.deepEqual(new Uint32Array(one!.buffer), new Uint32Array(two!.buffer), 'the same bits on two threads');
    return one!;
  }

  const linear = (x: Tensor<'f32'>, weight: BlockTensor): Promise<Float32Array> =>
    onBoth((rw) => rw.linear(x, weight, Q8));

  /** Compares with sums in float64 of rounded rows, and the reference with them. */
  async function near(x: Tensor<'f32'>, weight: BlockTensor): Promise<void> {
    const [n, k] = weight.shape as [number, number];
    const w = readBlocks(weight, 'w');
    const got = await linear(x, weight);
    const ours = (await reference.linear(x, weight, Q8).read()) as Float32Array;
    const xs = x.read() as Float32Array;
    for (let r = 0; r < xs.length / k; r++) {
      const row = rounded([...xs.subarray(r * k, (r + 1) * k)]);
      for (let column = 0; column < n; column++) {
        let [sum, sizes] = [0, 0];
        for (const [i, value] of row.entries()) {
          sum += value * w[column * k + i]!;
          sizes += Math.abs(value * w[column * k + i]!);
        }
        const at = r * n + column;
        const bound = (k + 1) * (sizes * UNIT_ROUNDOFF.f32 + 2 ** -149);
        assert.ok(Math.abs(got[at]! - sum) <= bound, `y[${at}]: expected ${sum} ± ${bound}, got ${got[at]}`);
        assert.equal(ours[at], Math.fround(sum), 'the reference');
      }
    }
  }

  for (const format of BLOCK_FORMAT_NAMES) {
    for (const m of format === 'q8_0' || format === 'q4_0' ? ROWS : [2, 9]) {
      test(`${format}, ${m} rows`, async () => {
        const random = randomness(m);
        const k = BLOCK_FORMATS[format].weights === 32 ? (m > 100 ? 32 : 320) : 512;
        const x = Float32Array.from({ length: m * k }, (_, i) => (random() - 0.5) * 2 ** (i % 7));
        await near(f32(x, [m, k]), blocksOf(format, 67, k, 5));
      });
    }
  }

  const INTEGERS = ['q8_0', 'q4_0'] as const;
  for (const format of INTEGERS) {
    for (const m of [1, 9]) {
      for (const size of [2 ** -149, 2 ** -140, 2 ** -120, 2 ** -84, 2 ** 60, 2 ** 100, 2 ** 124]) {
        test(`${format}, ${m} rows around 2^${Math.log2(size)}, and rows of zeros`, async () => {
          const random = randomness(3);
          const k = 64;
          const x = Float32Array.from({ length: m * k }, (_, i) =>
            i < 16 || Math.floor(i / k) === 4 ? 0 : (random() * 2 - 1) * size * (i % 64 < 32 ? 1 : 0.001),
          );
          await near(f32(x, [m, k]), blocksOf(format, 5, k, 5));
        });
      }

      test(`${format}, ${m} rows: the largest sums, and ties to even, come out exact`, async () => {
        const k = 256;
        const size = BLOCK_FORMATS[format].bytes;
        for (const fill of format === 'q8_0' ? [0x80, 0x7f] : [0x00, 0xff]) {
          const bytes = new Uint8Array((13 * k * size) / 32).fill(fill);
          for (let at = 0; at < bytes.length; at += size)
            new DataView(bytes.buffer).setUint16(at, f16FromNumber(0.5), true);
          const weight = blocksFrom(format, bytes, [13, k]);
          const [w] = readBlocks(weight, 'w');
          for (const x of [127, -127]) {
            const got = await linear(f32(new Float32Array(m * k).fill(x), [m, k]), weight);
            assert.deepEqual(new Set(got), new Set([k * x * w!]));
          }
          // d is 1: 0.5 → 0, 1.5 → 2, 2.5 → 2, −0.5 → −0, −3.5 → −4, 126.5 → 126.
          const ties = new Float32Array(m * k).map((_, i) => [127, 0.5, 1.5, 2.5, -0.5, -3.5, 126.5, 0][i % 8]!);
          const got = await linear(f32(ties, [m, k]), weight);
          assert.deepEqual(new Set(got), new Set([(k / 8) * (127 + 2 + 2 - 4 + 126) * w!]));
        }
      });

      test(`${format}, ${m} rows: those with infinities or NaN are not rounded; an infinite scale is seen`, async () => {
        const k = 64;
        const x = Float32Array.from({ length: m * k }, (_, i) => 1 + (i % 13) / 7);
        x[(m - 1) * k + 5] = Number.NaN;
        const weight = blocksOf(format, 3, k, 5);
        const tensor = f32(x, [m, k]);
        const [got, want] = [await linear(tensor, weight), await onBoth((rw) => rw.linear(tensor, weight))];
        assert.deepEqual([...got.subarray(-3)], [NaN, NaN, NaN]);
        if (m > 1) assert.notDeepEqual([...got.subarray(0, 3)], [...want.subarray(0, 3)]);
        x[(m - 1) * k + 5] = Number.POSITIVE_INFINITY;
        const infinite = f32(x, [m, k]);
        const plain = await onBoth((rw) => rw.linear(infinite, weight));
        assert.deepEqual([...(await linear(infinite, weight)).subarray(-3)], [...plain.subarray(-3)]);

        const bytes = weight.bytes.read() as Uint8Array;
        new DataView(bytes.buffer, bytes.byteOffset).setUint16(0, 0x7c00, true);
        const one = f32(new Float32Array(m * k).fill(1), [m, k]);
        const seen = await linear(one, blocksFrom(format, bytes, [3, k]));
        assert.ok(!Number.isFinite(seen[0]!) && Number.isFinite(seen[1]!));
      });

      test(`${format}, ${m} rows: a view of f16 backwards, a bias, an output with gaps`, async () => {
        const [k, n] = [96, 7];
        const random = randomness(9);
        const x = Float32Array.from({ length: m * k }, () => Math.round((random() - 0.5) * 512) / 512);
        const weight = blocksOf(format, n, k, 7);
        const bias = f32(
          Float32Array.from({ length: n }, (_, i) => i - 3),
          [n],
        );
        const plain = await onBoth((rw) => rw.linear(f32(x, [m, k]), weight, { ...Q8, bias }));
        const wide = new Uint16Array(m * k * 2).fill(f16FromNumber(9));
        for (const [i, value] of x.entries()) wide[2 * (x.length - 1 - i)] = f16FromNumber(value);
        const half = tensorFrom(wide, {
          dtype: 'f16',
          shape: [m, k],
          strides: [-2 * k, -2],
          offset: 2 * (x.length - 1),
        });
        for (const rw of runners) {
          const out = tensorFrom(new Uint16Array(m * n * 3), { dtype: 'f16', shape: [m, n], strides: [3 * n, 3] });
          const own = tensorFrom(
            Uint16Array.from({ length: n }, (_, i) => f16FromNumber(i - 3)),
            { dtype: 'f16' },
          );
          rw.linear(half, weight, { ...Q8, bias: own, out });
          assert.deepEqual(
            [...(out.read() as Uint16Array)],
            [...plain].map((value) => f16FromNumber(value)),
          );
        }
      });
    }
  }

  for (const format of [...INTEGERS, 'q4_K'] as const) {
    for (const tokens of [1, 5, 40]) {
      for (const own of [false, true]) {
        test(`expertLinear, ${format}, ${tokens} tokens, ${own ? 'rows of their own' : 'one row a token'}`, async () => {
          const [experts, n, k, chosen] = [3, 5, 256, 2];
          const random = randomness(tokens);
          const shape = own ? [tokens, chosen, k] : [tokens, k];
          const length = shape.reduce((a, b) => a * b);
          const x = tensorFrom(
            Float32Array.from({ length }, () => random() - 0.5),
            { dtype: 'f32', shape },
          );
          const weight = blocksOf(format, experts * n, k, 5, 0, [experts, n, k]);
          // Expert 0 has most of the tokens, expert 2 a few.
          const indices = tensorFrom(
            Int32Array.from({ length: tokens * chosen }, (_, i) => (i % 11 === 3 ? 2 : i % 2)),
            { dtype: 'i32', shape: [tokens, chosen] },
          );
          const weights = tensorFrom(
            Float32Array.from({ length: tokens * chosen }, () => random()),
            { dtype: 'f32', shape: [tokens, chosen] },
          );
          for (const options of [Q8, { ...Q8, weights }] satisfies ExpertLinearOptions[]) {
            const got = await onBoth((rw) => rw.expertLinear(x, weight, indices, options));
            const want = (await reference.expertLinear(x, weight, indices, options).read()) as Float32Array;
            const largest = want.reduce((most, v) => Math.max(most, Math.abs(v)), 0);
            for (const [i, value] of got.entries())
              assert.ok(Math.abs(value - want[i]!) <= 1e-5 * largest, `y[${i}]: expected ${want[i]}, got ${value}`);
            const exact = await onBoth((rw) => rw.expertLinear(x, weight, indices, { ...options, activations: 'f32' }));
            assert.ok(
              got.some((value, i) => Math.abs(value - exact[i]!) > 1e-4 * largest),
              'it rounds',
            );
          }
        });
      }
    }
  }

  test('other weights are multiplied as without the option; f32 is the default', async () => {
    const random = randomness(1);
    const some = (...shape: [number, number]): Tensor<'f32'> =>
      tensorFrom(
        Float32Array.from({ length: shape[0] * shape[1] }, () => random()),
        { dtype: 'f32', shape },
      );
    const [x, weight] = [some(9, 64), some(5, 64)];
    assert.deepEqual(await onBoth((rw) => rw.linear(x, weight, Q8)), await onBoth((rw) => rw.linear(x, weight)));
    const blocks = blocksOf('q8_0', 5, 64, 5);
    assert.deepEqual(
      await onBoth((rw) => rw.linear(x, blocks, { activations: 'f32' })),
      await onBoth((rw) => rw.linear(x, blocks)),
    );
  });

  test('f64 is rounded on the reference, as the f32 that it is nearest to', async () => {
    const x = Float64Array.from({ length: 64 }, (_, i) => Math.sin(i));
    x[40] = 1e300; // no f32: the second row stays
    const weight = blocksOf('q8_0', 3, 32, 5);
    const f64 = tensorFrom(x, { dtype: 'f64', shape: [2, 32] });
    const y = (await reference.linear(f64, weight, Q8).read()) as Float64Array;
    const plain = (await reference.linear(f64, weight).read()) as Float64Array;
    assert.deepEqual([...y.subarray(3)], [...plain.subarray(3)]);
    const single = f32(Float32Array.from(x.subarray(0, 32)), [1, 32]);
    const want = (await reference.linear(single, weight, Q8).read()) as Float32Array;
    assert.deepEqual([...y.subarray(0, 3)].map(Math.fround), [...want]);
  });

  test('refusals: activations that are none; backends without kernels say what can', () => {
    const [x, weight] = [f32(new Float32Array(32), [1, 32]), blocksOf('q8_0', 2, 32, 5)];
    const bad = { activations: 'q4' as 'q8' };
    const indices = tensorFrom(Int32Array.of(0), { dtype: 'i32', shape: [1, 1] });
    const refused = (op: string) => ({
      code: 'UNSUPPORTED',
      message: new RegExp(`^${op}: activations: expected f32 or q8, got "q4"`),
    });
    assert.throws(() => runners[0]!.linear(x, weight, bad), refused('linear'));
    const experts = blocksOf('q8_0' satisfies BlockFormat, 2, 32, 5, 0, [1, 2, 32]);
    assert.throws(() => runners[0]!.expertLinear(x, experts, indices, bad), refused('expert_linear'));
    const plan = planLinear(x, weight, f32(new Float32Array(2), [1, 2]), Q8);
    assert.match(whyFloat64(plan)!, /^activations: 'q8' has kernels on cpu alone/);
    assert.equal(whyFloat64(plan, BLOCK_FORMAT_NAMES, true), undefined);
    assert.equal(runners[0]!.whyNot(plan), undefined);
  });
});
