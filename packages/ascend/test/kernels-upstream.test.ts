/** Runs the shapes of InfiniCore's RoPE test in and out of place, with both algorithms and all dtypes. */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { type FloatDtype, roundTo } from 'ropewalk';
import { loadNumber, newArray, storeNumber } from 'ropewalk/backend';
import { some } from '../../../test/support/size.js';
import { type GlobalView, runRopeKernel } from '../src/index.js';

type Four = readonly [number, number, number, number];

/** Each entry is a shape, the strides of x and the strides of y; tensors without strides are dense. */
const SHAPES: readonly (readonly [Four, Four?, Four?])[] = [
  [[1, 1, 32, 128]],
  [[1, 10, 32, 64]],
  [
    [1, 4, 1, 32],
    [0, 64, 64, 1],
  ],
  [[1, 11, 33, 128], undefined, [0, 8000, 200, 1]],
  [
    [1, 3, 32, 128],
    [0, 8000, 200, 1],
    [0, 7000, 128, 1],
  ],
  [[8, 1, 32, 128]],
  [[8, 10, 32, 64]],
  // Upstream's batch is 8 in both. Three batches take the same paths in less time, and [8, 10, 32, 64] above has eight.
  [
    [3, 20, 32, 64],
    [40960, 64, 1280, 1],
    [40960, 64, 1280, 1],
  ],
  // Upstream's batch stride is 1048576: sixteen of these make the same holes with a sixteenth of the memory.
  [
    [3, 20, 4, 64],
    [65536, 64, 16384, 1],
    [65536, 64, 16384, 1],
  ],
];
const DTYPES: readonly FloatDtype[] = ['f16', 'bf16', 'f32'];

function dense([, s, h, d]: Four): Four {
  return [s * h * d, h * d, d, 1];
}

function reach(shape: Four, strides: Four): number {
  return shape.reduce((sum, n, d) => sum + (n - 1) * strides[d]!, 1);
}

describe('upstream shapes', () => {
  for (const [shape, xs, ys] of SHAPES) {
    // Large shapes run only f16 with GPT-J in place, bf16 with GPT-NeoX, and f32 with GPT-J.
    const large = shape[0] * shape[1] * shape[2] * shape[3] > 100_000;
    test(`[${shape.join(', ')}]${xs ? ` x strides [${xs.join(', ')}]` : ''}${ys ? ` y strides [${ys.join(', ')}]` : ''}`, () => {
      const [batch, seq, heads, dim] = shape;
      const ways = DTYPES.flatMap((dtype) =>
        (['interleaved', 'half'] as const).flatMap((pairing) =>
          [false, true].map((inPlace) => ({ dtype, pairing, inPlace })),
        ),
      ).filter(
        ({ dtype, pairing, inPlace }) =>
          !large || (inPlace === (dtype === 'f16') && (pairing === 'half') === (dtype === 'bf16')),
      );
      for (const { dtype, pairing, inPlace } of some(ways)) {
        const x = { shape, strides: xs ?? dense(shape) };
        const yStrides = inPlace ? x.strides : (ys ?? dense(shape));
        const half = dim / 2;
        const table = (of: (angle: number) => number) => {
          const t = newArray(dtype, seq * half);
          for (let i = 0; i < t.length; i++)
            storeNumber(t, dtype, i, of(Math.floor(i / half) / 1e5 ** ((i % half) / half)));
          return t;
        };
        const [sin, cos] = [table(Math.sin), table(Math.cos)];
        const source = newArray(dtype, reach(shape, x.strides));
        for (let i = 0; i < source.length; i += 1 + (i % 3)) storeNumber(source, dtype, i, Math.sin(i * 0.37) * 3);
        const step = (v: number) => roundTo(dtype === 'bf16' ? 'f32' : dtype, v);
        const want = inPlace ? source.slice() : newArray(dtype, reach(shape, yStrides)).fill(7 as never);
        for (let b = 0; b < batch; b++) {
          for (let s = 0; s < seq; s++) {
            for (let h = 0; h < heads; h++) {
              const from = b * x.strides[0] + s * x.strides[1] + h * x.strides[2];
              const to = b * yStrides[0] + s * yStrides[1] + h * yStrides[2];
              for (let j = 0; j < half; j++) {
                const [i0, i1] = pairing === 'interleaved' ? [2 * j, 2 * j + 1] : [j, j + half];
                const [x0, x1] = [loadNumber(source, dtype, from + i0), loadNumber(source, dtype, from + i1)];
                const [c, n] = [loadNumber(cos, dtype, s * half + j), loadNumber(sin, dtype, s * half + j)];
                storeNumber(want, dtype, to + i0, step(step(x0 * c) - step(x1 * n)));
                storeNumber(want, dtype, to + i1, step(step(x0 * n) + step(x1 * c)));
              }
            }
          }
        }
        for (const kernel of large && pairing === 'interleaved' && dtype !== 'f16'
          ? (['fast'] as const)
          : (['correct', 'fast'] as const)) {
          const data = source.slice();
          const out = inPlace ? data : newArray(dtype, want.length).fill(7 as never);
          const y: GlobalView = { data: out, shape, strides: yStrides };
          const positions = Array.from({ length: seq }, (_, s) => s);
          const run = runRopeKernel({ kernel, dtype, pairing, x: { data, ...x }, y, positions, sin, cos });
          const label = `${kernel} ${dtype} ${pairing}${inPlace ? ' in place' : ''}`;
          assert.deepEqual(run.findings, [], label);
          const bytes = (a: typeof out) => Buffer.from(a.buffer, a.byteOffset, a.byteLength);
          assert.equal(Buffer.compare(bytes(out), bytes(want)), 0, label);
        }
      }
    });
  }
});
