/**
 * The 96 published ROPE cases of seed 000, at their full shapes, and the cases that list lacks.
 *
 * @module
 */

import { type RopeCaseParams, ropeCase } from './rope-case.js';
import type { ConformanceCase } from './runner.js';

type Shape = Pick<RopeCaseParams, 'ne_a' | 'n_dims' | 'mode'>;

/** Shapes of real models, as upstream names them. */
const SHAPES: readonly Shape[] = [
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

const PLAIN = { n_ctx: 512, fs: 1, ef: 0, af: 1, ff: 0, v: 0 } as const;

/**
 * The published cases, in the seed's order.
 *
 * @see seed document 000, section 4, whose NPU run lists 36 of them as FAIL
 */
export function publishedCases(): ConformanceCase[] {
  const cases: RopeCaseParams[] = [];
  const types = ['f32', 'f16'] as const;
  const factors = [0, 1] as const;
  for (const type of types)
    for (const ff of factors) for (const shape of SHAPES) cases.push({ type, ...shape, ...PLAIN, ff });
  for (const fs of [1, 1.4245]) {
    for (const ef of [0, 0.7465]) {
      for (const af of [1, 1.4245]) {
        if (fs === 1 && ef === 0 && af === 1) continue; // listed above with all shapes
        for (const type of types)
          for (const ff of factors)
            for (const shape of [SHAPES[0]!, SHAPES[9]!]) cases.push({ type, ...shape, ...PLAIN, fs, ef, af, ff });
      }
    }
  }
  return cases.map((params) => ropeCase('published', params));
}

/** Positions that tell errors in the angle apart: none, one step, a prompt's, a long context's, and the longest in use. */
const FAR = [0, 1, 40, 8191, 131071, 1048575] as const;

/**
 * What the published list lacks: a real YaRN ramp, far positions, other bases, Llama 3.1's factors, all four M-RoPE axes,
 * windows, views, in place, backward, batches, one token and none.
 */
export function extendedCases(): ConformanceCase[] {
  const heads = 4;
  const tokens = FAR.length;
  const far = { n_ctx: 1048576, pos: FAR };
  const at = (headDim: number, nDims = headDim): Pick<RopeCaseParams, 'ne_a' | 'n_dims'> => ({
    ne_a: [headDim, heads, tokens, 1],
    n_dims: nDims,
  });
  const axes = {
    n_ctx: 262144,
    pos: [
      0, 5, 40, 8191, 131071, 262143, 0, 3, 17, 900, 65535, 262142, 1, 2, 31, 77, 4095, 100000, 2, 9, 6, 12, 999,
      200000,
    ],
  };
  const both = [0, 2] as const;
  const list: RopeCaseParams[] = [];
  for (const type of ['f32', 'f16', 'bf16', 'f64'] as const) {
    for (const mode of both) list.push({ type, ...at(128), mode, ...PLAIN, ...far });
  }
  for (const mode of both) {
    for (const fb of [500000, 1000000, 5000000]) list.push({ type: 'f32', ...at(128), mode, ...PLAIN, ...far, fb });
    // YaRN as models use it: Llama 2 × 4 and × 16, Qwen2.5 × 4, gpt-oss × 32 (its ramp is not truncated; ggml's is).
    list.push({ type: 'f32', ...at(128), mode, ...PLAIN, ...far, fs: 1 / 4, ef: 1, n_ctx_orig: 4096, bf: 32 });
    list.push({ type: 'f32', ...at(128), mode, ...PLAIN, ...far, fs: 1 / 16, ef: 1, n_ctx_orig: 4096, bf: 32 });
    list.push({
      type: 'f16',
      ...at(128),
      mode,
      ...PLAIN,
      ...far,
      fs: 1 / 4,
      ef: 1,
      n_ctx_orig: 32768,
      bf: 32,
      fb: 1000000,
    });
    list.push({
      type: 'f32',
      ...at(64),
      mode,
      ...PLAIN,
      ...far,
      fs: 1 / 32,
      ef: 1,
      n_ctx_orig: 4096,
      bf: 32,
      fb: 150000,
    });
    list.push({
      type: 'f32',
      ...at(128),
      mode,
      ...PLAIN,
      ...far,
      fs: 1 / 4,
      ef: 0.5,
      af: 0.9,
      n_ctx_orig: 4096,
      bf: 32,
      ff: 1,
    });
    list.push({ type: 'f32', ...at(128), mode, ...PLAIN, ...far, fs: 1 / 8 });
    list.push({ type: 'f32', ...at(128), mode, ...PLAIN, ...far, ff: 2, fb: 500000 });
    list.push({ type: 'f16', ...at(128), mode, ...PLAIN, ...far, ff: 2, fb: 500000 });
    list.push({ type: 'f32', ...at(128), mode, ...PLAIN, ...far, fwd: 0 });
    list.push({ type: 'f32', ...at(96, 48), mode, ...PLAIN, ...far });
    list.push({ type: 'f32', ...at(80, 6), mode, ...PLAIN, ...far, n_offs: 20 });
    list.push({ type: 'f32', ne_a: [64, 3, 5, 3], n_dims: 64, mode, ...PLAIN, v: 1 });
    list.push({ type: 'f16', ne_a: [64, 3, 5, 3], n_dims: 32, mode, ...PLAIN, v: 1, inplace: 1 });
    list.push({ type: 'f32', ne_a: [128, 32, 1, 1], n_dims: 128, mode, ...PLAIN, n_ctx: 131072, pos: [131071] });
    list.push({ type: 'f32', ne_a: [128, 32, 0, 1], n_dims: 128, mode, ...PLAIN });
    list.push({
      type: 'f32',
      ne_a: [128, 2, 3, 1],
      n_dims: 128,
      mode,
      ...PLAIN,
      n_ctx: 2147483647,
      pos: [-1, -131071, 2147483647],
    });
    list.push({ type: 'f32', ne_a: [128, 2, 2048, 1], n_dims: 128, mode, ...PLAIN, n_ctx: 131072 });
  }
  for (const type of ['f32', 'f16'] as const) {
    for (const [mode, sections] of [
      [8, [16, 24, 24, 0]], // Qwen2-VL
      [8, [8, 16, 24, 16]], // all four axes
      [40, [24, 20, 20, 0]], // Qwen3-VL
      [40, [16, 16, 16, 16]], // all four axes
    ] as const) {
      list.push({ type, ...at(128), mode, ...PLAIN, ...axes, sections });
      list.push({
        type,
        ...at(128, 96),
        mode,
        ...PLAIN,
        ...axes,
        sections,
        fs: 1 / 4,
        ef: 1,
        n_ctx_orig: 32768,
        bf: 32,
        fb: 1000000,
      });
    }
    list.push({ type, ...at(80, 40), mode: 24, ...PLAIN, ...axes, sections: [20, 20, 0, 0] }); // Qwen2-VL's vision tower
    list.push({ type, ...at(128, 64), mode: 24, ...PLAIN, ...axes, sections: [16, 16, 16, 16], ff: 1, fwd: 0 });
  }
  return list.map((params) => ropeCase('extended', params));
}
