/** The published table of 96 ROPE cases, with full shapes, and cases that the table lacks. @module */
import { type RopeCaseParams, ropeCase } from './rope-case.js';
import type { ConformanceCase } from './runner.js';

/** Shapes of real models, with the names that llama.cpp's test-backend-ops has. */
const SHAPES: readonly Pick<RopeCaseParams, 'ne_a' | 'n_dims' | 'mode'>[] = [
  { ne_a: [128, 32, 2, 1], n_dims: 128, mode: 0 }, // llama 7B
  { ne_a: [128, 40, 2, 1], n_dims: 128, mode: 0 }, // llama 13B
  { ne_a: [128, 52, 2, 1], n_dims: 128, mode: 0 }, // llama 30B
  { ne_a: [128, 64, 2, 1], n_dims: 128, mode: 0 }, // llama 65B
  { ne_a: [64, 1, 2, 1], n_dims: 64, mode: 2 }, // falcon 7B
  { ne_a: [64, 71, 2, 1], n_dims: 64, mode: 2 }, // falcon 7B, q
  { ne_a: [64, 8, 2, 1], n_dims: 64, mode: 2 }, // falcon 40B
  { ne_a: [80, 32, 2, 1], n_dims: 20, mode: 2 }, // stablelm
  { ne_a: [80, 32, 2, 1], n_dims: 32, mode: 2 }, // phi-2
  { ne_a: [64, 128, 2, 1], n_dims: 64, mode: 2 }, // falcon 40B, q
];

/**
 * Makes the cases of the published table of 96 ROPE cases, in its order. A run of ggml's CANN backend on an NPU,
 * published with the table, fails 36 of them.
 */
export function publishedCases(): ConformanceCase[] {
  const cases: RopeCaseParams[] = [];
  const types = ['f32', 'f16'] as const;
  const factors = [0, 1] as const;
  for (const type of types) for (const ff of factors) for (const shape of SHAPES) cases.push({ type, ...shape, ff });
  for (const fs of [1, 1.4245]) {
    for (const ef of [0, 0.7465]) {
      for (const af of [1, 1.4245]) {
        if (fs === 1 && ef === 0 && af === 1) continue; // These are above, with all shapes.
        for (const type of types)
          for (const ff of factors)
            for (const shape of [SHAPES[0]!, SHAPES[9]!]) cases.push({ type, ...shape, fs, ef, af, ff });
      }
    }
  }
  return cases.map((params) => ropeCase('published', params));
}

/** Positions that show errors in the angle: 0, 1, one in a prompt, in long contexts, and in the longest in use. */
const FAR = { n_ctx: 1048576, pos: [0, 1, 40, 8191, 131071, 1048575] };
const TOKENS = FAR.pos.length;
/** Positions of as many tokens on each of four axes. */
const AXES = {
  n_ctx: 262144,
  pos: [
    [0, 5, 40, 8191, 131071, 262143],
    [0, 3, 17, 900, 65535, 262142],
    [1, 2, 31, 77, 4095, 100000],
    [2, 9, 6, 12, 999, 200000],
  ].flat(),
};
const YARN = { ef: 1, bf: 32, n_ctx_orig: 4096 };

/**
 * Makes the cases that the published table lacks: a real YaRN ramp, far positions, other bases, Llama 3.1's factors,
 * all four M-RoPE axes, windows, views, in place, backward, batches, one token and none.
 */
export function extendedCases(): ConformanceCase[] {
  const list: RopeCaseParams[] = [];
  const at = (headDim: number, nDims = headDim): Pick<RopeCaseParams, 'ne_a' | 'n_dims'> => ({
    ne_a: [headDim, 4, TOKENS, 1],
    n_dims: nDims,
  });
  for (const type of ['f32', 'f16', 'bf16', 'f64'] as const)
    for (const mode of [0, 2]) list.push({ type, mode, ...at(128), ...FAR });
  for (const mode of [0, 2]) {
    const add = (params: Partial<RopeCaseParams>): void => {
      list.push({ type: 'f32', mode, ...at(128), ...FAR, ...params });
    };
    for (const fb of [500000, 1000000, 5000000]) add({ fb });
    // YaRN as models use it: Llama 2 × 4 and × 16, Qwen2.5 × 4, gpt-oss × 32 (its ramp is not truncated; ggml's is).
    add({ ...YARN, fs: 1 / 4 });
    add({ ...YARN, fs: 1 / 16 });
    add({ ...YARN, type: 'f16', fs: 1 / 4, n_ctx_orig: 32768, fb: 1000000 });
    add({ ...YARN, ...at(64), fs: 1 / 32, fb: 150000 });
    add({ ...YARN, fs: 1 / 4, ef: 0.5, af: 0.9, ff: 1 });
    add({ fs: 1 / 8 });
    add({ ff: 2, fb: 500000 });
    add({ type: 'f16', ff: 2, fb: 500000 });
    add({ fwd: 0 });
    add({ ...at(96, 48) });
    add({ ...at(80, 6), n_offs: 20 });
    const drawn = (ne_a: RopeCaseParams['ne_a'], params: Partial<RopeCaseParams> = {}): void => {
      list.push({ type: 'f32', mode, ne_a, n_dims: ne_a[0], ...params });
    };
    drawn([64, 3, 5, 3], { v: 1 });
    drawn([64, 3, 5, 3], { type: 'f16', n_dims: 32, v: 1, inplace: 1 });
    drawn([128, 32, 1, 1], { n_ctx: 131072, pos: [131071] });
    drawn([128, 32, 0, 1]);
    drawn([128, 2, 3, 1], { n_ctx: 2147483647, pos: [-1, -131071, 2147483647] });
    drawn([128, 2, 2048, 1], { n_ctx: 131072 });
  }
  for (const type of ['f32', 'f16'] as const) {
    const add = (params: Pick<RopeCaseParams, 'mode' | 'sections'> & Partial<RopeCaseParams>): void => {
      list.push({ type, ...at(128), ...AXES, ...params });
    };
    for (const axes of [
      { mode: 8, sections: [16, 24, 24, 0] }, // Qwen2-VL
      { mode: 8, sections: [8, 16, 24, 16] }, // all four axes
      { mode: 40, sections: [24, 20, 20, 0] }, // Qwen3-VL
      { mode: 40, sections: [16, 16, 16, 16] }, // all four axes
    ]) {
      add(axes);
      add({ ...axes, ...YARN, ...at(128, 96), fs: 1 / 4, n_ctx_orig: 32768, fb: 1000000 });
    }
    add({ ...at(80, 40), mode: 24, sections: [20, 20, 0, 0] }); // Qwen2-VL's vision tower
    add({ ...at(128, 64), mode: 24, sections: [16, 16, 16, 16], ff: 1, fwd: 0 });
  }
  return list.map((params) => ropeCase('extended', params));
}
