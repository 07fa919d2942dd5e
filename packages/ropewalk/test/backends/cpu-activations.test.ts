/**
 * The activations of cpu at every f16, every bf16 and 2^24 f32, against float64. The allowed error is relative to the
 * result, however small it is, down to the subnormals. Half of the time up has any size.
 */
import { after, test } from 'node:test';
import { activations, activationTrial } from '../../../../test/support/bounds.js';
import { compare, exactOf, type Float, hostCopy, randomness, tensorAt } from '../../../../test/support/operators.js';
import { SEED, some } from '../../../../test/support/size.js';
import { f64Tensor } from '../../../../test/support/tensors.js';
import { openCpu } from '../../src/backends/wasm/host.js';
import type { FloatDtype } from '../../src/core/dtypes.js';
import { newArray } from '../../src/core/dtypes.js';
import { tensorFrom } from '../../src/core/tensor.js';
import { runReference } from '../../src/reference/index.js';

const modules = [await openCpu({ threads: 1 }), await openCpu({ threads: 1, simd: 'simd128' })];
after(() => {
  for (const backend of modules) backend.dispose();
});

const BLOCK = 1 << 14;
/** The smallest and the largest power of two of an up. */
const POWERS = { f64: [0, 0], f32: [-149, 127], f16: [-24, 15], bf16: [-133, 127] } as const;

function upsOf(dtype: FloatDtype, seed: number): Float {
  const random = randomness(seed);
  const [least, most] = POWERS[dtype];
  const ups = Float64Array.from({ length: BLOCK }, (_, i) => {
    const up = random() * 4 - 2;
    return i % 2 ? up : Math.sign(up) * (1 + random() * 0.99) * 2 ** Math.round(least + random() * (most - least));
  });
  return f64Tensor(ups, [BLOCK], dtype);
}

/** The number of blocks: of all 16-bit patterns, and of 2^24 f32. */
const BLOCKS = { f16: 2 ** 16 / BLOCK, bf16: 2 ** 16 / BLOCK, f32: 2 ** 24 / BLOCK };

/** Makes a block: every fourth of all 16-bit patterns, or f32 of all sizes with any last bits. */
function inputsOf(dtype: 'f16' | 'bf16' | 'f32', block: number): Float {
  const bits = Uint32Array.from({ length: BLOCK }, (_, i) => i * BLOCKS[dtype] + block);
  const data =
    dtype === 'f32' ? new Float32Array(bits.map((n, i) => n * 256 + (i % 251)).buffer) : Uint16Array.from(bits);
  return tensorFrom(data as never, { dtype }) as Float;
}

// Results below 2^-126 are subnormals, whole to 2^-149, and so is a product before the last.
const ACTIVATIONS = activations(1, () => 2 ** -149);

for (const dtype of ['f16', 'bf16', 'f32'] as const) {
  test(`${dtype}: all activations, relative to the result`, () => {
    const blocks = Array.from({ length: BLOCKS[dtype] }, (_, block) => block);
    // Those without up are the kernels of those with it, and f32 is 256 times as much: of it a hundredth in `default`.
    const of =
      dtype === 'f32' ? ACTIVATIONS.filter(({ name }) => /swiglu$|clamped|geglu|softcap/.test(name)) : ACTIVATIONS;
    const all = some(of.flatMap((activation) => blocks.map((block) => ({ activation, block }))));
    for (const { activation, block } of dtype === 'f32' ? some(all) : all) {
      const given = [
        inputsOf(dtype, block),
        upsOf(dtype, (SEED ?? 1) + block),
        tensorFrom(newArray(dtype, BLOCK), { dtype }) as Float,
      ] as const;
      const trial = { ...activationTrial(activation, given, 2 ** -148), owned: 0 };
      const want = exactOf(given);
      runReference(trial.plan(want));
      for (const backend of modules) {
        const got = hostCopy(given);
        backend.run(trial.plan(got));
        try {
          compare(trial, 2, tensorAt(got, 2), tensorAt(want, 2));
        } catch (error) {
          throw new Error(`${activation.name}, block ${block}: ${(error as Error).message}`);
        }
      }
    }
  });
}
