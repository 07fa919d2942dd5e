import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { FIXTURES } from '../../../../test/support/fixtures.js';
import { noBackend, openShared } from '../../../../test/support/gpu.js';
import { blocksOf } from '../../../../test/support/operators.js';
import { f64Tensor } from '../../../../test/support/tensors.js';
import { GENERAL_HERE, testOnce } from '../../../../test/support/tier.js';
import { BLOCK_FORMAT_NAMES, BLOCK_FORMATS, type BlockFormat } from '../../src/core/block-formats.js';
import { blocksFrom, readBlocks } from '../../src/core/blocks.js';

/** 0.5 as f16, low byte first. */
const HALF = [0x00, 0x38];

testOnce('q8_0: scale, then 32 signed bytes', () => {
  const bytes = Uint8Array.of(...HALF, ...Array.from({ length: 32 }, (_, j) => (j - 16) & 0xff));
  const want = Float64Array.from({ length: 32 }, (_, j) => (j - 16) / 2);
  assert.deepEqual(readBlocks(blocksFrom('q8_0', bytes, [1, 32]), 'w'), want);
});

testOnce('q4_0: scale, then weight j in the low half of byte j and weight j + 16 in its high half, each less 8', () => {
  const bytes = Uint8Array.of(...HALF, ...Array.from({ length: 16 }, (_, j) => j | ((15 - j) << 4)));
  const want = Float64Array.from({ length: 32 }, (_, j) => (j < 16 ? j - 8 : 15 - (j - 16) - 8) / 2);
  assert.deepEqual(readBlocks(blocksFrom('q4_0', bytes, [1, 32]), 'w'), want);
});

testOnce('every format: the values that ggml makes of the same bytes, to the bit', () => {
  for (const format of BLOCK_FORMAT_NAMES) {
    for (const kind of ['quantised', 'bytes-half']) {
      const read = (end: string) => readFileSync(`${FIXTURES}/llamacpp/quants/${format}.${kind}.${end}`);
      const want = new Int32Array(new Uint8Array(read('f32')).buffer);
      const got = readBlocks(blocksFrom(format, read('blocks'), [want.length / 256, 256]), 'w');
      assert.deepEqual(new Int32Array(Float32Array.from(got).buffer), want, `${format} ${kind}`);
    }
  }
});

for (const name of GENERAL_HERE) {
  test(`linear takes blocks on ${name}: one row of x, and many`, { skip: noBackend(name) }, async () => {
    const rw = await openShared(name);
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
        assert.deepEqual(await rw.linear(x, weight).read(), want, `${name} ${format} m=${m}`);
      }
      weight.dispose();
    }
    rw.dispose();
  });
}

for (const name of GENERAL_HERE) {
  test(`linear and embedding on ${name}: formats that it reads, and those it does not`, {
    skip: noBackend(name),
  }, async () => {
    const rw = await openShared(name);
    const taken = rw.capabilities().blockFormats!;
    for (const format of BLOCK_FORMAT_NAMES) {
      const [n, k] = [5, 2 * BLOCK_FORMATS[format].weights];
      const host = blocksOf(format, n, k, 3);
      const bytes = host.bytes.storage.read() as Uint8Array;
      const last = Float32Array.from(readBlocks(host, 'w').slice(4 * k));
      const weight = rw.uploadBlocks(format, bytes, [n, k]);
      const x = rw.tensor(
        Float32Array.from({ length: k }, (_, i) => ((i * 13) % 7) - 3),
        { shape: [1, k] },
      );
      const index = rw.tensor(Int32Array.of(4, 0));
      if (!taken.includes(format)) {
        const refused = { code: 'UNSUPPORTED', message: new RegExp(`weights in ${format} have no kernel yet`) };
        assert.throws(() => rw.linear(x, weight), refused);
        assert.throws(() => rw.embedding(index, weight), refused);
        if (name === 'onnxruntime') {
          const wide = rw.tensor(new Float64Array(k), { shape: [1, k] });
          assert.throws(() => rw.linear(wide, weight), {
            code: 'UNSUPPORTED',
            message: new RegExp(`not yet in ${format}`),
          });
        } else {
          // In host memory, where the reference can read them, they are taken.
          const out = rw.tensor(new Float32Array(2 * k), { shape: [2, k] });
          rw.embedding(index, host, { out });
          await rw.finish();
          assert.deepEqual((await out.read()).slice(0, k), last);
        }
      } else {
        const rows = (await rw.embedding(index, weight).read()) as Float32Array;
        assert.deepEqual(rows.slice(0, k), last, format);
      }
      weight.dispose();
    }
    rw.dispose();
  });
}

testOnce('refusals', () => {
  const shapes = 'two dimensions [n, k], or three [experts, n, k],';
  const listed = 'q8_0, q4_0, iq4_nl, mxfp4, q4_K, q5_K, q6_K or iq4_xs';
  const message = (format: BlockFormat, length: number, shape: number[]): string => {
    try {
      blocksFrom(format, new Uint8Array(length), shape);
    } catch (error) {
      return (error as Error).message;
    }
    return 'accepted';
  };
  assert.equal(message('q8_0', 33, [1, 32]), 'blocks: bytes: expected 34 dense bytes for q8_0 [1, 32], got 33');
  assert.equal(message('q4_0', 18, [1, 33]), `blocks: shape: expected ${shapes} with k a multiple of 32, got [1, 33]`);
  assert.equal(message('q4_0', 18, [32]), `blocks: shape: expected ${shapes} with k a multiple of 32, got [32]`);
  assert.match(message('q4_K', 18, [1, 32]), /with k a multiple of 256, got \[1, 32\]$/);
  assert.equal(message('q5_1' as never, 18, [1, 32]), `blocks: format: expected ${listed}, got "q5_1"`);
});
