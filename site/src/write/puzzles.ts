/** The ten puzzles, and the texts that the editor starts with. @module */

/** The puzzles: the id of a golden case, and the task in a sentence or a formula. */
export const PUZZLES: readonly { readonly id: string; readonly title: string; readonly task: string }[] = [
  {
    id: 'llama-2-half',
    title: 'Half pairs',
    task: 'Dimension j turns with j + headDim / 2. The kernel has one bug: run it, read what it did, and mend it.',
  },
  { id: 'llama-2-interleaved', title: 'Neighbours', task: 'Pair j is the dimensions 2j and 2j + 1.' },
  {
    id: 'phi-2',
    title: 'Part of a head',
    task: 'Only the first rotaryDim dimensions turn, in halves of their own, and exponents are over rotaryDim. The others are copied.',
  },
  {
    id: 'window-trailing',
    title: 'A window',
    task: 'rotaryDim dimensions from rotaryOffset on turn, and pairs are neighbours.',
  },
  { id: 'linear', title: 'Linear scaling', task: 'Every frequency is divided by scaling.factor.' },
  {
    id: 'dynamic-ntk',
    title: 'Dynamic NTK',
    task: 'The base is multiplied by (factor · context / originalContext − factor + 1) ^ (headDim / (headDim − 2)).',
  },
  {
    id: 'llama-3.1-f32',
    title: 'Llama 3.1',
    task: 'A pair whose turns in the original context, originalContext · frequency / 2π, are at most lowFreqFactor has its frequency divided by factor; one with at least highFreqFactor keeps it. Between them s = (turns − low) / (high − low), and the frequency is multiplied by s + (1 − s) / factor.',
  },
  {
    id: 'qwen2.5-yarn',
    title: 'YaRN',
    task: 'The pair that makes n turns in the original context is d(n) = headDim · ln(originalContext / 2πn) / (2 ln base). The ramp of pair j, (j − ⌊d(32)⌋) / (⌈d(1)⌉ − ⌊d(32)⌋), is held in 0 … 1: the frequency is divided by factor where it is 1, kept where it is 0, and mixed between. cos and sin are multiplied by 0.1 ln factor + 1.',
  },
  {
    id: 'qwen2-vl-mrope',
    title: 'M-RoPE',
    task: 'positions has three rows, time, height and width. The first 16 pairs take their position from time, the next 24 from height, the last 24 from width, as axes.sections says.',
  },
  {
    id: 'qwen3-vl-mrope',
    title: 'Interleaved M-RoPE',
    task: 'The axes take turns: pairs 1, 4, 7, … below 60 have height, pairs 2, 5, 8, … below 60 have width, and all others time.',
  },
];

const JS = (position: string): string => `// x: Float32Array of [tokens, heads, headDim], one row after the other.
// positions: a number for each token; M-RoPE has a row for each axis.
function rope(x, positions, { tokens, heads, headDim, base }) {
  const y = x.slice();
  const half = headDim / 2;
  for (let t = 0; t < tokens; t++) {
    for (let h = 0; h < heads; h++) {
      const row = (t * heads + h) * headDim;
      for (let j = 0; j < half; j++) {
        const angle = ${position} * base ** (-2 * j / headDim);
        const cos = Math.cos(angle), sin = Math.sin(angle);
        const i0 = row + j, i1 = row + j + half;
        y[i0] = x[i0] * cos - x[i1] * sin;
        y[i1] = x[i0] * sin + x[i1] * cos;
      }
    }
  }
  return y;
}
`;

const WGSL = `struct Options { tokens: u32, heads: u32, headDim: u32, rotaryDim: u32, rotaryOffset: u32, base: f32 }
@group(0) @binding(0) var<storage, read> x: array<f32>;         // [tokens, heads, headDim]
@group(0) @binding(1) var<storage, read> positions: array<i32>; // [tokens], or [axes, tokens]
@group(0) @binding(2) var<storage, read> cosTable: array<f32>;  // [tokens, rotaryDim / 2]
@group(0) @binding(3) var<storage, read> sinTable: array<f32>;  // as cosTable
@group(0) @binding(4) var<uniform> options: Options;
@group(0) @binding(5) var<storage, read_write> y: array<f32>;   // holds x at first

@compute @workgroup_size(64)
fn rope(@builtin(global_invocation_id) id: vec3u) {
  let half = options.rotaryDim / 2;
  let row = id.x / half; // token * heads + head
  let j = id.x % half;
  if (row >= options.tokens * options.heads) { return; }
  let t = row / options.heads;
  let c = cosTable[t * half + j];
  let s = sinTable[t * half + j];
  let i0 = row * options.headDim + options.rotaryOffset + j;
  let i1 = i0 + half;
  y[i0] = y[i0] * c - y[i1] * s;
  y[i1] = y[i0] * s + y[i1] * c;
}
`;

/** The languages of kernels. */
export const LANGUAGES = { js: 'JavaScript', wgsl: 'WGSL, on your GPU' } as const;
export type Language = keyof typeof LANGUAGES;

/**
 * Returns the text that the editor starts with. The first puzzle and the shader have a bug to be found; the other puzzles
 * start from a right kernel of plain RoPE.
 */
export function startingText(id: string, language: Language = 'js'): string {
  if (language === 'wgsl') return WGSL;
  return JS(id === PUZZLES[0]!.id ? '(positions[t] + 1)' : 'positions[t]');
}
