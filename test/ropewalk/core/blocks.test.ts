import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type BlockFormat, blocksFrom, readBlocks } from '../../../packages/ropewalk/src/core/blocks.js';
import { GENERAL_BACKENDS, noBackend, openShared } from '../../support/gpu.js';
import { f64Tensor } from '../../support/tensors.js';

/** 0.5 as f16, low byte first. */
const HALF = [0x00, 0x38];

test('q8_0: scale, then 32 signed bytes', () => {
  const bytes = Uint8Array.of(...HALF, ...Array.from({ length: 32 }, (_, j) => (j - 16) & 0xff));
  const want = Float64Array.from({ length: 32 }, (_, j) => (j - 16) / 2);
  assert.deepEqual(readBlocks(blocksFrom('q8_0', bytes, [1, 32]), 'w'), want);
});

test('q4_0: scale, then weight j in the low half of byte j and weight j + 16 in its high half, each less 8', () => {
  const bytes = Uint8Array.of(...HALF, ...Array.from({ length: 16 }, (_, j) => j | ((15 - j) << 4)));
  const want = Float64Array.from({ length: 32 }, (_, j) => (j < 16 ? j - 8 : 15 - (j - 16) - 8) / 2);
  assert.deepEqual(readBlocks(blocksFrom('q4_0', bytes, [1, 32]), 'w'), want);
});

for (const entry of GENERAL_BACKENDS) {
  test(`linear takes blocks on ${entry.name}: one row of x, and many`, { skip: noBackend(entry.name) }, async () => {
    const rw = await openShared(entry.name);
    for (const format of ['q8_0', 'q4_0'] as const) {
      const [n, k, unit] = [10, 64, format === 'q8_0' ? 34 : 18];
      const bytes = Uint8Array.from({ length: ((n * k) / 32) * unit }, (_, i) =>
        i % unit < 2 ? HALF[i % unit]! : (i * 37) & 0xff,
      );
      const weight = rw.uploadBlocks(format, bytes, [n, k]);
      const values = readBlocks(blocksFrom(format, bytes, [n, k]), 'w');
      for (const m of [1, 9]) {
        const x = f64Tensor(
          Float64Array.from({ length: m * k }, (_, i) => ((i * 13) % 7) - 3),
          [m, k],
          'f32',
        );
        // Small integers and halves: every sum is exact in f32.
        const want = Float32Array.from({ length: m * n }, (_, at) => {
          let sum = 0;
          for (let i = 0; i < k; i++)
            sum +=
              (((Math.floor(at / n) * k + i) * 13) % 7) * values[(at % n) * k + i]! - 3 * values[(at % n) * k + i]!;
          return sum;
        });
        assert.deepEqual(await rw.linear(x, weight).read(), want, `${entry.name} ${format} m=${m}`);
      }
      weight.dispose();
    }
    rw.dispose();
  });
}

test('refusals', () => {
  const message = (format: BlockFormat, length: number, shape: number[]): string => {
    try {
      blocksFrom(format, new Uint8Array(length), shape);
    } catch (error) {
      return (error as Error).message;
    }
    return 'accepted';
  };
  assert.equal(message('q8_0', 33, [1, 32]), 'blocks: bytes: expected 34 dense bytes for q8_0 [1, 32], got 33');
  assert.equal(
    message('q4_0', 18, [1, 33]),
    'blocks: shape: expected two dimensions [n, k] with k a multiple of 32, got [1, 33]',
  );
  assert.equal(
    message('q4_0', 18, [32]),
    'blocks: shape: expected two dimensions [n, k] with k a multiple of 32, got [32]',
  );
  assert.equal(message('q5_1' as never, 18, [1, 32]), 'blocks: format: expected q8_0 or q4_0, got "q5_1"');
});
