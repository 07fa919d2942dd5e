/**
 * Golden RoPE cases: parameters of real models, with positions and values that show each wrong choice of a kernel.
 *
 * Every case but that of one token has the positions 0, 1, about 40, 8192 or more, 131,072 or more, and 1,048,575. It
 * has two batches, two heads, and heads without zeros and without two elements of equal magnitude.
 *
 * @module
 */
import { type FloatDtype, type RopeLayout, type RopeSpec, roundTo, type Tensor } from 'ropewalk';
import { type RandomStream, randomFrom, readPlain } from 'ropewalk/internal';
import { hostTensor, integerTensor } from '../host.js';
import type { GoldenQuestion, GoldenRopePart, Json } from './case.js';

/** The default seed of the built-in suites and of a folder. */
export const GOLDEN_SEED = 1;

/** The positions of two batches: 0, 1, one in a prompt, and three that need exact angles. */
export const GOLDEN_POSITIONS: readonly (readonly number[])[] = [
  [0, 1, 40, 8192, 131072, 1048575],
  [1, 0, 37, 9001, 200003, 1048574],
];

/** The definition of a golden RoPE case, from which its inputs are drawn. */
export interface GoldenRopeDefinition {
  readonly id: string;
  readonly about: string;
  readonly separates: readonly string[];
  readonly dtype: FloatDtype;
  readonly spec: RopeSpec;
  /** `[seq]` for all batches, or `[batch][seq]`; with axes, those of axis t. Default: {@link GOLDEN_POSITIONS}. */
  readonly positions?: readonly number[] | readonly (readonly number[])[];
  readonly positionDtype?: 'i32' | 'i64';
  readonly direction?: 'forward' | 'backward';
  readonly layout?: RopeLayout;
  readonly batch?: number;
  /** The tensors to rotate. Default: x with two heads, whose output is y. */
  readonly parts?: readonly {
    readonly name: string;
    readonly heads: number;
    /** The output is written to scattered rows of a KV cache with this many rows and this dtype. */
    readonly cache?: { readonly rows: number; readonly dtype: FloatDtype };
    /** Eps of an RMS norm before the rotation. */
    readonly normEps?: number;
  }[];
}

/** Makes a spec with its fields in the order in which manifests list them. */
const specOf =
  (pairing: RopeSpec['pairing']) =>
  (headDim: number, base: number, { rotaryDim, rotaryOffset, ...rest }: Partial<RopeSpec> = {}): RopeSpec => ({
    headDim,
    rotaryDim,
    rotaryOffset,
    pairing,
    base,
    ...rest,
  });
const half = /* @__PURE__ */ specOf('half');
const interleaved = /* @__PURE__ */ specOf('interleaved');
const interleavedToHalf = /* @__PURE__ */ specOf('interleaved-to-half');
const LLAMA3 = { kind: 'llama3', factor: 8, lowFreqFactor: 1, highFreqFactor: 4, originalContext: 8192 } as const;
const DEEPSEEK_YARN = { kind: 'yarn', factor: 40, originalContext: 4096, betaFast: 32, betaSlow: 1 } as const;
const QWEN_YARN = { kind: 'yarn', factor: 4, originalContext: 32768 } as const;
/** The factors grow smoothly with the pair, the long ones much more, like those that models learn. */
const LONGROPE = {
  kind: 'longrope',
  shortFactor: Array.from({ length: 48 }, (_, j) => 1 + j / 24),
  longFactor: Array.from({ length: 48 }, (_, j) => 1 + (63 * j * j) / (47 * 47)),
  originalContext: 4096,
  factor: 32,
} as const;
/** ggml's positions: one row for all batches. */
const ONE_ROW_I32 = { positions: GOLDEN_POSITIONS[0]!, positionDtype: 'i32' } as const;
/** Llama 3.1's scaling as the divisors that llama.cpp's converter writes: 1 for fast pairs, 8 for slow ones. */
const LLAMA31_FACTORS = Array.from({ length: 64 }, (_, j) => {
  const turns = 8192 / (2 * Math.PI * 500000 ** ((2 * j) / 128)); // turns of pair j in the original context
  if (turns > 4) return 1;
  return turns < 1 ? 8 : Math.fround(1 / ((1 - (turns - 1) / 3) / 8 + (turns - 1) / 3));
});

/** The definitions by id, in the order of the causes in docs/vectors.md. The default dtype is f32. */
const DEFINITIONS: Readonly<
  Record<string, Omit<GoldenRopeDefinition, 'id' | 'dtype'> & { readonly dtype?: FloatDtype }>
> = {
  'llama-2-half': {
    about: 'Llama 2 in HuggingFace: half pairing, base 10000.',
    separates: [
      'half | interleaved | interleaved-to-half',
      'positions of each batch | of the first',
      'sign of sin',
      'angles in float64 | f32 | bf16',
    ],
    spec: half(128, 10000),
  },
  'llama-2-interleaved': {
    about: 'Llama 2 in ggml and in the original: interleaved pairing, one row of positions for all batches.',
    separates: ['interleaved | half', 'token index | position', 'head or batch index added to the position'],
    spec: interleaved(128, 10000),
    ...ONE_ROW_I32,
  },
  'llama-2-f64': {
    about: 'Llama 2 in float64 throughout.',
    separates: ['float64 data | f32 arithmetic on it'],
    dtype: 'f64',
    spec: half(128, 10000),
  },
  'llama-3-f16': {
    about: 'Llama 3: base 500000.',
    separates: ['base 500000 | 10000'],
    dtype: 'f16',
    spec: half(128, 500000),
  },
  'llama-3.1-bf16': {
    about: 'Llama 3.1: llama3 scaling, bf16 data; tables stay in f32 or better.',
    separates: ['llama3 scaling | none | linear', 'f32 tables | bf16 tables'],
    dtype: 'bf16',
    spec: half(128, 500000, { scaling: LLAMA3 }),
  },
  'llama-3.1-f32': {
    about: 'Llama 3.1 in f32.',
    separates: ['llama3 scaling | none | yarn', 'llama3 edges (low and high frequency factors exchanged, factor lost)'],
    spec: half(128, 500000, { scaling: LLAMA3 }),
  },
  'llama-3.1-ggml': {
    about: 'Llama 3.1 in ggml: interleaved, freq_factors divide the frequencies.',
    separates: ['freq_factors divide | multiply | are ignored'],
    spec: interleaved(128, 500000, { freqFactors: LLAMA31_FACTORS }),
    ...ONE_ROW_I32,
  },
  'gpt-j': {
    about: 'GPT-J: the first 64 of 256 dimensions, interleaved.',
    separates: ['rotary_dim | head_dim', 'leading | trailing dimensions'],
    spec: interleaved(256, 10000, { rotaryDim: 64 }),
  },
  'gpt-neox': {
    about: 'GPT-NeoX: the first 24 of 96 dimensions, halves 12 apart.',
    separates: ['halves rotary_dim / 2 apart | head_dim / 2 apart', 'exponent over rotary_dim | over head_dim'],
    dtype: 'f16',
    spec: half(96, 10000, { rotaryDim: 24 }),
  },
  'phi-2': {
    about: 'Phi-2: the first 32 of 80 dimensions.',
    separates: ['exponent over rotary_dim | over head_dim', 'other dimensions copied | scaled | zeroed'],
    spec: half(80, 10000, { rotaryDim: 32 }),
  },
  'stablelm-3b': {
    about: 'StableLM 3B: the first 20 of 80 dimensions; ten pairs, no multiple of a vector.',
    separates: ['the last pairs of a row | a tail forgotten'],
    spec: half(80, 10000, { rotaryDim: 20 }),
  },
  'glm-4': {
    about: 'GLM-4: the first 64 of 128 dimensions, interleaved, bf16.',
    separates: ['interleaved | half, in half a head'],
    dtype: 'bf16',
    spec: interleaved(128, 10000, { rotaryDim: 64 }),
  },
  'one-pair': {
    about: 'A head of two dimensions: one pair, whose frequency is 1.',
    separates: ['the smallest head'],
    spec: half(2, 10000),
  },
  'window-trailing': {
    about: 'The last 64 of 192 dimensions, interleaved: the query of multi-head latent attention, content first.',
    separates: ['window at its offset | leading dimensions'],
    spec: interleaved(192, 10000, { rotaryDim: 64, rotaryOffset: 128 }),
  },
  'window-middle-half': {
    about: 'Dimensions 20 … 51 of 80, half pairing.',
    separates: ['window at its offset | leading | trailing dimensions'],
    dtype: 'f16',
    spec: half(80, 10000, { rotaryDim: 32, rotaryOffset: 20 }),
  },
  'deepseek-v3': {
    about:
      'DeepSeek-V3 in HuggingFace: reads interleaved, writes halves; YaRN × 40 whose mscale and mscale_all_dim cancel.',
    separates: ['interleaved-to-half | interleaved | half', 'mscale / mscale_all_dim = 1 | 0.1 ln f + 1'],
    dtype: 'bf16',
    spec: interleavedToHalf(64, 10000, { scaling: { ...DEEPSEEK_YARN, mscale: 1, mscaleAllDim: 1 } }),
  },
  'yarn-mscale': {
    about:
      'YaRN × 40 with mscale 0.9 over mscale_all_dim 0.7; with 1 for either, a kernel that ignores the other is not told apart.',
    separates: ['mscale / mscale_all_dim | mscale | its square | none'],
    spec: interleaved(64, 10000, { scaling: { ...DEEPSEEK_YARN, mscale: 0.9, mscaleAllDim: 0.7 } }),
  },
  'qwen2.5-yarn': {
    about: 'Qwen2.5 with YaRN × 4 over 32768 tokens.',
    separates: [
      'yarn ramp | linear | none',
      'magnitude 0.1 ln 4 + 1 | 1 | its square',
      'beta_fast 32, beta_slow 1 | exchanged',
    ],
    spec: half(128, 1000000, { scaling: QWEN_YARN }),
  },
  'qwen2.5-yarn-bf16': {
    about: 'The same in bf16.',
    separates: ['magnitude in f32 | lost in bf16'],
    dtype: 'bf16',
    spec: half(128, 1000000, { scaling: QWEN_YARN }),
  },
  'gpt-oss': {
    about: "gpt-oss: YaRN × 32 whose ramp's edges are not rounded to whole pairs.",
    separates: ['truncate = false | true'],
    spec: half(64, 150000, { scaling: { kind: 'yarn', factor: 32, originalContext: 4096, truncate: false } }),
  },
  'yarn-half-extrapolated': {
    about: "ggml's YaRN with ext_factor 0.5, attn_factor 0.9 and freq_factors.",
    separates: ['ext_factor 0.5 | 1 | 0', 'attn_factor multiplies the magnitude | replaces it'],
    spec: interleaved(128, 10000, {
      scaling: { kind: 'yarn', factor: 4, originalContext: 4096, extFactor: 0.5, attnFactor: 0.9 },
      freqFactors: Array.from({ length: 64 }, (_, j) => 0.9 + j / 320),
    }),
    ...ONE_ROW_I32,
  },
  'yarn-partial': {
    about: 'YaRN × 4 on the first 64 of 128 dimensions.',
    separates: ['magnitude on rotated dimensions only | on all', 'ramp over rotary_dim | over head_dim'],
    spec: half(128, 10000, { rotaryDim: 64, scaling: { kind: 'yarn', factor: 4, originalContext: 4096 } }),
  },
  'yarn-long-original': {
    about: 'YaRN × 4 over an original context of 131,072 tokens: the ramp reaches past the last pair.',
    separates: ['upper edge up to rotary_dim − 1 | up to rotary_dim / 2 − 1'],
    spec: half(64, 10000, { scaling: { kind: 'yarn', factor: 4, originalContext: 131072 } }),
  },
  'attention-factor': {
    about: 'YaRN whose attention_factor is given, 1.5: it replaces what follows from the factor.',
    separates: ['attention_factor given | computed | both'],
    spec: half(64, 10000, { scaling: { kind: 'yarn', factor: 16, originalContext: 4096 }, attentionFactor: 1.5 }),
  },
  linear: {
    about: 'Linear scaling by 8, as LongChat and Gemma 3 have it.',
    separates: ['position / 8 | position · 8 | none | yarn'],
    spec: half(128, 10000, { scaling: { kind: 'linear', factor: 8 } }),
  },
  'dynamic-ntk': {
    about: 'Dynamic NTK × 2 over 4096 tokens at a context of 16384: another base.',
    separates: ['base of the context in use | the original base', 'exponent d / (d − 2)'],
    spec: half(128, 10000, { scaling: { kind: 'dynamicNtk', factor: 2, originalContext: 4096, context: 16384 } }),
  },
  'dynamic-ntk-short': {
    about: 'The same at a context of 3072, which is shorter than the original one: the base stays.',
    separates: ['the original base | a lower base'],
    spec: half(128, 10000, { scaling: { kind: 'dynamicNtk', factor: 2, originalContext: 4096, context: 3072 } }),
  },
  'longrope-short': {
    about: "LongRoPE within the original context: the short factors, with the long context's magnitude.",
    separates: ['short | long factors', 'magnitude √(1 + ln f / ln c) | 1'],
    spec: half(96, 10000, { scaling: { ...LONGROPE, context: 4096 } }),
  },
  'longrope-long': {
    about: 'LongRoPE beyond the original context: the long factors.',
    separates: ['long | short factors', 'factors divide | multiply'],
    dtype: 'f16',
    spec: half(96, 10000, { scaling: { ...LONGROPE, context: 131072 } }),
  },
  'gemma-4-proportional': {
    about: "Gemma 4's global layers: a quarter of the head's pairs rotate, exponents over head_dim.",
    separates: ['pairs head_dim / 2 apart | leading rotary_dim', 'exponent over head_dim | over rotary_dim'],
    spec: half(512, 1000000, { scaling: { kind: 'proportional', rotatedPairs: 64 } }),
  },
  'proportional-factor': {
    about: 'Proportional frequencies that a factor of 8 divides.',
    separates: ['factor | none'],
    spec: half(256, 1000000, { scaling: { kind: 'proportional', rotatedPairs: 32, factor: 8 } }),
  },
  'gemma-3-global': {
    about: "Gemma 3's global layers: head_dim 256, base 1000000, linear × 8; its sliding layers have base 10000.",
    separates: ["a layer's own base | the model's"],
    dtype: 'bf16',
    spec: half(256, 1000000, { scaling: { kind: 'linear', factor: 8 } }),
  },
  'qwen2-vl-mrope': {
    about: 'Qwen2-VL: M-RoPE, sections 16, 24, 24 one after the other.',
    separates: ['sections | interleaved axes', 'order of t, h, w', 'one axis for all'],
    spec: half(128, 1000000, { axes: { rule: 'sections', sections: [16, 24, 24] } }),
  },
  'mrope-four-axes': {
    about: "ggml's mode 8 with all four axes, on the first 96 of 128 dimensions.",
    separates: ['the fourth axis | three axes', 'sections repeated | once'],
    spec: half(128, 10000, { rotaryDim: 96, axes: { rule: 'sections', sections: [8, 10, 6, 12] } }),
    positionDtype: 'i32',
  },
  'qwen3-vl-mrope': {
    about: 'Qwen3-VL in HuggingFace: axes t, h, w interleaved; the remaining pairs are t.',
    separates: ['interleaved | sections', 'the last pairs: t | e'],
    spec: half(128, 5000000, { axes: { rule: 'interleaved', sections: [24, 20, 20] } }),
  },
  'qwen3-vl-ggml': {
    about: "Qwen3-VL in ggml's mode 40: axes interleaved; the remaining pairs are e.",
    separates: ['the last pairs: e | t'],
    spec: half(128, 5000000, { axes: { rule: 'interleaved-ggml', sections: [24, 20, 20, 0] } }),
    positionDtype: 'i32',
  },
  'vision-tower': {
    about: "Qwen2-VL's vision tower in ggml's mode 24: two axes, exponents start again in each.",
    separates: ['exponents restart | go on', 'h, w | w, h'],
    spec: specOf('vision')(80, 10000, { axes: { rule: 'vision', sections: [20, 20, 0, 0] } }),
    positionDtype: 'i32',
  },
  backward: {
    about: 'The gradient: the transpose, sin with the other sign.',
    separates: ['backward | forward'],
    spec: half(128, 10000),
    direction: 'backward',
  },
  'backward-yarn': {
    about: 'The gradient under YaRN: the magnitude multiplies again, it does not divide.',
    separates: ['transpose | inverse'],
    spec: interleaved(64, 10000, { scaling: { kind: 'yarn', factor: 16, originalContext: 4096 } }),
    direction: 'backward',
  },
  'backward-interleaved-to-half': {
    about: 'The gradient of interleaved-to-half reads halves and writes interleaved.',
    separates: ['reads halves | reads interleaved'],
    spec: interleavedToHalf(64, 10000),
    direction: 'backward',
  },
  'heads-first': {
    about: 'Llama 3 with heads before tokens, as ONNX and PyTorch lay them out.',
    separates: ['bnsh | bsnh'],
    spec: half(128, 500000),
    layout: 'bnsh',
    parts: [{ name: 'x', heads: 3 }],
  },
  'decode-one-token': {
    about: 'One token of three sequences, each as long as it is: decoding.',
    separates: ['position of the sequence | 0', 'positions of each batch | of the first'],
    dtype: 'f16',
    spec: half(128, 10000),
    batch: 3,
    positions: [[40], [1048575], [131072]],
    parts: [{ name: 'x', heads: 4 }],
  },
  'k-shift': {
    about: 'Negative positions: a KV cache whose keys move back.',
    separates: ['signed positions | unsigned', 'rotated by the difference | by the position again'],
    spec: half(128, 10000),
    positions: [0, -1, -40, -8192, -131072, -1048575],
    positionDtype: 'i32',
  },
  'q-and-k': {
    about: 'q with four heads and k with two in one call: grouped KV heads.',
    separates: ['k has heads of its own | as many as q'],
    spec: half(128, 10000),
    parts: [
      { name: 'q', heads: 4 },
      { name: 'k', heads: 2 },
    ],
  },
  'qwen3-norm-and-cache': {
    about:
      'Qwen3: q and k are normed first; k goes to scattered rows of an f16 cache, whose other rows stay as they are.',
    separates: [
      'norm, then rotation | rotation, then norm',
      'row of the cache | position',
      'one rounding to the cache | two',
    ],
    spec: half(128, 1000000),
    parts: [
      { name: 'q', heads: 4, normEps: 1e-6 },
      { name: 'k', heads: 2, normEps: 1e-6, cache: { rows: 9, dtype: 'f16' } },
    ],
  },
  'qwen3-next-norm-partial': {
    about: 'Qwen3-Next: the whole head of 256 is normed, the first 64 dimensions are rotated.',
    separates: ['norm over head_dim | over rotary_dim', 'other dimensions normed | as they were'],
    spec: half(256, 10000000, { rotaryDim: 64 }),
    parts: [{ name: 'x', heads: 2, normEps: 1e-6 }],
  },
};

/** The golden RoPE cases. */
export const GOLDEN_ROPE: readonly GoldenRopeDefinition[] = /* @__PURE__ */ Object.freeze(
  /* @__PURE__ */ Object.entries(DEFINITIONS).map(([id, d]) => ({ id, dtype: 'f32' as const, ...d })),
);

/** Makes the inputs of a case. */
export function goldenRopeQuestion(d: GoldenRopeDefinition, seed = GOLDEN_SEED): GoldenQuestion {
  const { direction = 'forward', layout = 'bsnh', batch = 2, parts: given = [{ name: 'x', heads: 2 }] } = d;
  const positions = positionsOf(d);
  const seq = positions.shape.at(-1)!;
  const { headDim } = d.spec;
  const inputs = new Map<string, Tensor>();
  const parts = given.map(({ name, heads, cache, normEps }) => {
    const shapeOf = (tokens: number): number[] =>
      layout === 'bsnh' ? [batch, tokens, heads, headDim] : [batch, heads, tokens, headDim];
    inputs.set(name, distinctRows(d.dtype, shapeOf(seq), numbersFor(seed, d.id, name)));
    type Open = { -readonly [K in keyof GoldenRopePart]: GoldenRopePart[K] };
    const part: Open = { x: name, out: name === 'x' ? 'y' : `${name}_out` };
    if (normEps !== undefined) {
      part.weight = `${name}_weight`;
      part.eps = normEps;
      inputs.set(part.weight, distinctRows(d.dtype, [headDim], numbersFor(seed, d.id, part.weight)));
    }
    if (cache) {
      part.cache = `${name}_cache`;
      part.rows = `${name}_rows`;
      inputs.set(part.cache, distinctRows(cache.dtype, shapeOf(cache.rows), numbersFor(seed, d.id, part.cache)));
      inputs.set(part.rows, integerTensor('i32', [batch, seq], scatteredRows(batch, seq, cache.rows)));
    }
    return part;
  });
  inputs.set('positions', positions);
  const rope = readPlain({ spec: d.spec, direction, layout, parts }, `vectors: ${d.id}`);
  const { id, about, separates } = d;
  return { id, op: 'rope', about, separates, attributes: rope as unknown as Record<string, Json>, inputs, rope };
}

function positionsOf(d: GoldenRopeDefinition): Tensor {
  const dtype = d.positionDtype ?? 'i64';
  const given = d.positions ?? GOLDEN_POSITIONS;
  const lead = typeof given[0] === 'object' ? [given.length] : [];
  const rows = (lead.length > 0 ? given : [given]) as readonly (readonly number[])[];
  const shape = [...lead, rows[0]!.length];
  if (!d.spec.axes) return integerTensor(dtype, shape, rows.flat());
  // A token's positions differ between axes and are equally large, so that a wrong axis gives another angle.
  const numAxes = d.spec.axes.sections.length;
  const values = Array.from({ length: numAxes }, (_, a) =>
    rows.map((row) => row.map((p, s) => Math.abs(p - a * (5 + 2 * s)))),
  );
  return integerTensor(dtype, [numAxes, ...shape], values.flat(2));
}

/** Each token is 5 rows further, modulo the rows of the cache, and each batch starts at another row. */
function scatteredRows(batch: number, seq: number, rows: number): number[] {
  return Array.from({ length: batch * seq }, (_, n) => (2 + 3 * Math.floor(n / seq) + 5 * (n % seq)) % rows);
}

/** Starts the random numbers of one tensor of one case. They depend on the seed and the names only. */
export function numbersFor(seed: number, id: string, name: string): RandomStream {
  return randomFrom(`${seed}/${id}/${name}`);
}

/** Magnitudes lie in [LOWEST, LOWEST · 2^OCTAVES), so that no large element hides the error of a small one. */
const LOWEST = 0.25;
const OCTAVES = 3;

/** Draws rows without zeros or equal magnitudes, so that a wrong partner, order or sign shows; 384 fit bf16. */
export function distinctRows<D extends FloatDtype>(
  dtype: D,
  shape: readonly number[],
  random: RandomStream,
): Tensor<D> {
  const width = shape.at(-1) ?? 1;
  const seen = new Set<number>();
  return hostTensor(dtype, shape, (n) => {
    if (n % width === 0) seen.clear();
    let magnitude: number;
    do magnitude = roundTo(dtype, LOWEST * 2 ** random.uniform(0, OCTAVES));
    while (seen.has(magnitude));
    seen.add(magnitude);
    return random.integer(2) === 0 ? magnitude : -magnitude;
  });
}
