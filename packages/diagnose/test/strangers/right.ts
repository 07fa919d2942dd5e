/** Kernels that are right, each in the arithmetic of a real one. @module */
import { f32, llama3Frequencies, plainFrequencies, rotate, type Ways, yarnFrequencies, yarnMagnitude } from './code.js';
import {
  type Call,
  type InputName,
  type ModelName,
  PHI3_LONG,
  type Rotation,
  rotationOf,
  type Stranger,
} from './kernel.js';

interface Given {
  readonly cause?: 0 | 7;
  readonly thread?: string;
  readonly expect?: boolean;
  readonly dumped?: Stranger['dumped'];
  /** The words that may be said about its precision. */
  readonly precision?: RegExp;
  /** Its own frequencies and magnitude, from its own formulas. */
  readonly own?: Partial<Rotation>;
  readonly ways?: Ways;
  readonly run?: (call: Call) => void;
}

function right(
  id: string,
  on: readonly [model: ModelName, dtype: Stranger['dtype'], input?: InputName],
  about: string,
  { cause = 0, ways, run, own, precision, ...rest }: Given = {},
): Stranger {
  const [model, dtype, input = 'far'] = on;
  return {
    id: `right-${id}`,
    about,
    model,
    dtype,
    input,
    cause,
    ...rest,
    run: run ?? ((call) => rotate(call, rotationOf(call.spec, own), ways)),
    truth: ({ spec }) => ({ wrong: [], rotation: rotationOf(spec), precision }),
  };
}

/** The words that may be said about a kernel whose angles are products in f32. */
export const ANGLES = /^angles in f32(, as (hf|ggml) computes them)?$/;
/** The words that may be said about a kernel that computes in its 16-bit dtype. */
export const SIXTEEN = /^(intermediate results in (bf16|f16), such as cos, sin or products|table-in-(bf16|f16))$/;
/** The words that may be said about sines with an absolute error. */
const SINES = /^cos and sin are off by up to 4.8e-7, as fast sines are$/;

const F64: Ways = { angle: (p, f) => p * f };
/** transformers: cos and sin cast to the dtype of q, and `q * cos + rotate_half(q) * sin` in it. */
const hf = (dtype: 'bf16' | 'f16'): Ways => ({ table: dtype, arithmetic: dtype });

/** theta_scale^j as ggml makes it: a product in float, pair after pair. */
function recurrence(base: number, dim: number): number[] {
  const scale = f32(base ** (-2 / dim));
  const list = [1];
  for (let j = 1; j < dim / 2; j++) list.push(f32(list[j - 1]! * scale));
  return list;
}

/** cos and sin with the error of __sincosf on a reduced angle: 2^-21.4, without a pattern. */
function fastSines(angle: number): [number, number] {
  const noise = (k: number): number => 2 ** -21.4 * Math.sin(7919 * angle + k);
  return [f32(Math.cos(angle) + noise(1)), f32(Math.sin(angle) + noise(2))];
}

/** The loop of a kernel in float that has fused multiply-adds, for pairs (j, j + half). */
function fused(order: 'first' | 'last') {
  return (call: Call): void => {
    const { x, y, batch, seq, heads, headDim, inv } = call;
    const half = headDim / 2;
    for (let b = 0; b < batch; b++)
      for (let s = 0; s < seq; s++)
        for (let h = 0; h < heads; h++)
          for (let j = 0; j < half; j++) {
            const angle = f32(call.position(b, s) * inv[j]!);
            const [c, n] = [f32(Math.cos(angle)), f32(Math.sin(angle))];
            const at = call.at(b, s, h) + j;
            const [x0, x1] = [x[at]!, x[at + half]!];
            // A product of two floats is exact in double, so one rounding is left.
            y[at] = call.round(f32(order === 'first' ? x0 * c - f32(x1 * n) : f32(x0 * c) - x1 * n));
            y[at + half] = call.round(f32(order === 'first' ? x1 * c + f32(x0 * n) : f32(x1 * c) + x0 * n));
          }
  };
}

/** Meta's code: heads as complex numbers times freqs_cis, which a table holds for every position. */
function complexTable(call: Call): void {
  const { x, y, batch, seq, heads, rotaryDim, headDim, inv } = call;
  const last = Math.max(...call.positions);
  const table = Array.from({ length: last + 1 }, (_what, p) => {
    const row = new Float32Array(rotaryDim);
    for (let j = 0; j < rotaryDim / 2; j++) {
      const angle = f32(p * inv[j]!);
      row[2 * j] = Math.cos(angle);
      row[2 * j + 1] = Math.sin(angle);
    }
    return row;
  });
  for (let b = 0; b < batch; b++)
    for (let s = 0; s < seq; s++)
      for (let h = 0; h < heads; h++) {
        const [from, row] = [call.at(b, s, h), table[call.position(b, s)]!];
        for (let i = 0; i < headDim; i += 2) {
          const [re, im] = [x[from + i]!, x[from + i + 1]!];
          const [c, n] = i < rotaryDim ? [row[i]!, row[i + 1]!] : [1, 0];
          y[from + i] = call.round(f32(f32(re * c) - f32(im * n)));
          y[from + i + 1] = call.round(f32(f32(re * n) + f32(im * c)));
        }
      }
}

/** A turn is a whole number of rotations and a rest: only the rest goes into sine and cosine. */
const reduced: Ways = {
  angle: (p, f) => {
    const turns = p * f32(f / (2 * Math.PI));
    return f32((turns - Math.round(turns)) * 2 * Math.PI);
  },
};

/** Sine and cosine by range reduction in three floats and two polynomials, as a math library does it. */
function librarySines(angle: number): [number, number] {
  const quadrant = Math.round(angle / (Math.PI / 2));
  const r = angle - quadrant * (Math.PI / 2);
  const z = r * r;
  const sin = r * (1 + z * (-1 / 6 + z * (1 / 120 + z * (-1 / 5040 + z * (1 / 362880 - z / 39916800)))));
  const cos = 1 + z * (-1 / 2 + z * (1 / 24 + z * (-1 / 720 + z * (1 / 40320 - z / 3628800))));
  const turned = [
    [cos, sin],
    [-sin, cos],
    [-cos, -sin],
    [sin, -cos],
  ][((quadrant % 4) + 4) % 4]!;
  return [f32(turned[0]!), f32(turned[1]!)];
}

/** Each position's cos and sin from those before, by the sum of angles, in double. */
const bySums: Ways = {
  angle: (p, f) => {
    let [c, s] = [1, 0];
    const [c1, s1] = [Math.cos(f), Math.sin(f)];
    for (let n = 0; n < p; n++) [c, s] = [c * c1 - s * s1, s * c1 + c * s1];
    return Math.atan2(s, c);
  },
};

const llama31 = llama3Frequencies(plainFrequencies(500000, 128).map(f32)).map(f32);
const qwen = { frequency: yarnFrequencies(plainFrequencies(1000000, 128).map(f32), 1000000).map(f32) };
const gptoss = {
  frequency: yarnFrequencies(plainFrequencies(150000, 64), 150000, { factor: 32, context: 4096, truncate: false }),
  gain: yarnMagnitude(32),
};
const phi3 = plainFrequencies(10000, 96).map((f, j) => f32(f32(f) / f32(PHI3_LONG[j]!)));

export const RIGHT: readonly Stranger[] = [
  // Angles
  right('f64', ['Llama 2', 'f64'], 'Everything in double.', {
    ways: { ...F64, table: 'f64', arithmetic: 'f64' },
  }),
  right('f64-angles', ['Llama 3.1', 'f32'], 'Angles, cos and sin in double, the products in float.', { ways: F64 }),
  right('f64-angles-bf16', ['Llama 3.1', 'bf16'], 'Angles in double, products in float, one store in bf16.', {
    ways: F64,
  }),
  right('f32-angles', ['Llama 3.1', 'f32'], 'position * inv_freq in float, as in most CUDA kernels.', {
    precision: ANGLES,
  }),
  right('f32-angles-gemma', ['Gemma', 'f32'], 'position * inv_freq in float.', { precision: ANGLES }),
  right('f32-angles-to-bf16', ['Qwen2.5 YaRN', 'bf16'], 'Float inside, one store in bf16.', { precision: ANGLES }),
  right('f32-angles-to-f16', ['Llama 2', 'f16'], 'Float inside, one store in f16.', { precision: ANGLES }),
  right('powf', ['Llama 2', 'f32'], 'powf(base, -2j/d) in float.', {
    precision: ANGLES,
    own: { frequency: Array.from({ length: 64 }, (_what, j) => f32(10000 ** f32((-2 * j) / 128))) },
  }),
  right('one-over-powf', ['Phi-2', 'f32'], '1 / powf(base, 2j/d) in float.', {
    precision: ANGLES,
    own: { frequency: Array.from({ length: 16 }, (_what, j) => f32(1 / f32(10000 ** f32((2 * j) / 32)))) },
  }),
  right('expf-logf', ['Llama 2', 'f32', 'prompt 256'], 'expf(-2j/d * logf(base)) in float.', {
    precision: ANGLES,
    own: {
      frequency: Array.from({ length: 64 }, (_what, j) =>
        f32(Math.exp(f32(f32((-2 * j) / 128) * f32(Math.log(10000))))),
      ),
    },
  }),
  right('exp2f', ['TinyLlama', 'f32', 'later chunk'], 'exp2f(-2j/d * log2f(base)) in float.', {
    precision: ANGLES,
    own: {
      frequency: Array.from({ length: 32 }, (_what, j) => f32(2 ** f32(f32((-2 * j) / 64) * f32(Math.log2(10000))))),
    },
  }),
  right('recurrence', ['Llama 2', 'f32'], 'theta *= theta_scale in float, pair after pair, as ggml does.', {
    precision: ANGLES,
    own: { frequency: recurrence(10000, 128) },
  }),
  right('recurrence-gptj', ['GPT-J', 'f32', 'prompt 256'], 'The same for interleaved pairs.', {
    precision: ANGLES,
    own: { frequency: recurrence(10000, 64) },
  }),
  right('inv-freq-f32-angle-f64', ['Llama 2', 'f32'], 'inv_freq in float, the angle in double.', {
    precision: ANGLES,
    ways: { angle: (p, f) => p * f32(f) },
  }),
  right(
    'sum-of-angles',
    ['TinyLlama', 'f32', 'prompt 256'],
    'cos and sin from those of the position before, in double.',
    {
      ways: bySums,
    },
  ),
  right('reduced-turns', ['Llama 2', 'f32'], 'The angle in turns; only what is left of a turn goes to sincosf.', {
    precision: ANGLES,
    ways: reduced,
  }),
  right('library-sines', ['Phi-2', 'f32'], 'Range reduction and two polynomials of the accuracy of float.', {
    precision: ANGLES,
    ways: { cosSin: librarySines },
  }),
  // Scaling by the formulas of transformers
  right('llama3-hf', ['Llama 3.1', 'f32', 'prompt 256'], 'llama3 scaling in float.', {
    precision: ANGLES,
    own: { frequency: llama31 },
  }),
  right('llama3-hf-bf16', ['Llama 3.1', 'bf16', 'later chunk'], 'llama3 scaling, bf16 throughout.', {
    precision: SIXTEEN,
    own: { frequency: llama31 },
    ways: hf('bf16'),
  }),
  right('yarn-hf', ['Qwen2.5 YaRN', 'f32'], 'YaRN in float.', { precision: ANGLES, own: qwen }),
  right('yarn-hf-16', ['Qwen2.5 YaRN', 'f32', 'prompt 16'], 'YaRN in float, at the first positions.', {
    precision: ANGLES,
    own: qwen,
  }),
  right('yarn-gpt-oss', ['gpt-oss', 'f32'], 'YaRN without truncation.', { precision: ANGLES, own: gptoss }),
  right('yarn-gpt-oss-bf16', ['gpt-oss', 'bf16'], 'YaRN without truncation, bf16 throughout.', {
    precision: SIXTEEN,
    own: gptoss,
    ways: hf('bf16'),
  }),
  right('longrope-hf', ['Phi-3', 'f32'], 'LongRoPE in float.', { precision: ANGLES, own: { frequency: phi3 } }),
  right('longrope-hf-f16', ['Phi-3', 'f16'], 'LongRoPE, f16 throughout.', {
    precision: SIXTEEN,
    own: { frequency: phi3 },
    ways: hf('f16'),
  }),
  right('longrope-long', ['Phi-3', 'bf16', 'long chunk'], 'LongRoPE in a long prompt, one store in bf16.', {
    precision: ANGLES,
    own: { frequency: phi3 },
  }),
  // 16 bits
  right('hf-bf16', ['Llama 2', 'bf16', 'prompt 256'], 'transformers in bf16.', {
    precision: SIXTEEN,
    ways: hf('bf16'),
  }),
  right('hf-bf16-16', ['Llama 2', 'bf16', 'prompt 16'], 'transformers in bf16, 16 tokens.', {
    precision: SIXTEEN,
    ways: hf('bf16'),
  }),
  right('hf-bf16-gemma', ['Gemma', 'bf16', 'later chunk'], 'transformers in bf16.', {
    precision: SIXTEEN,
    ways: hf('bf16'),
  }),
  right('hf-f16', ['TinyLlama', 'f16'], 'transformers in f16.', { precision: SIXTEEN, ways: hf('f16') }),
  right('hf-f16-phi2', ['Phi-2', 'f16', 'two prompts 16'], 'transformers in f16, a part of each head.', {
    precision: SIXTEEN,
    ways: hf('f16'),
  }),
  right('tables-bf16', ['Llama 2', 'bf16'], 'cos and sin cast to bf16 by autocast, products in float.', {
    precision: SIXTEEN,
    ways: { table: 'bf16' },
  }),
  right('tables-f16', ['GPT-J', 'f16', 'prompt 256'], 'A cache of cos and sin in f16, products in float.', {
    precision: SIXTEEN,
    ways: { table: 'f16' },
  }),
  right('tables-f16-y-bf16', ['TinyLlama', 'bf16', 'prompt 256'], 'A cache in f16 for bf16 activations.', {
    precision: SIXTEEN,
    ways: { table: 'f16' },
  }),
  right('products-bf16', ['Phi-2', 'bf16'], 'cos and sin in float, products and sums in bf16.', {
    precision: SIXTEEN,
    ways: { arithmetic: 'bf16' },
  }),
  right('npu-f16', ['Llama 2', 'f16', 'decode batch'], 'A vector unit in f16: tables, products and sums.', {
    precision: SIXTEEN,
    ways: hf('f16'),
  }),
  right('interleaved-bf16', ['GPT-J', 'bf16', 'prompt 16'], 'Interleaved pairs in bf16, without an expectation.', {
    cause: 7,
    expect: false,
    precision: SIXTEEN,
    ways: hf('bf16'),
  }),
  right('interleaved-bf16-two', ['GPT-J', 'bf16', 'two prompts 16'], 'The same with two prompts and one rounding.', {
    cause: 7,
    expect: false,
    precision: ANGLES,
  }),
  right('widened-bf16', ['Llama 3.1', 'bf16'], 'bf16 throughout, dumped as float.', {
    dumped: 'f32',
    precision: SIXTEEN,
    ways: hf('bf16'),
  }),
  right('widened-f16', ['Llama 2', 'f16', 'prompt 256'], 'One store in f16, dumped as float.', {
    dumped: 'f32',
    precision: ANGLES,
  }),
  // Sines
  right('fast-sines', ['Llama 2', 'f32', 'prompt 256'], '__sincosf on reduced angles: an absolute error of 2^-21.4.', {
    cause: 7,
    precision: SINES,
    ways: { cosSin: fastSines },
  }),
  right('fast-sines-far', ['Llama 3.1', 'f32'], 'The same at far positions.', {
    cause: 7,
    precision: SINES,
    ways: { ...F64, cosSin: fastSines },
  }),
  right('fast-sines-phi2', ['Phi-2', 'f32', 'prompt 16'], 'The same at the first positions.', {
    cause: 7,
    precision: SINES,
    ways: { ...F64, cosSin: fastSines },
  }),
  right('fast-sines-bf16', ['Llama 2', 'bf16', 'later chunk'], 'The same below one store in bf16.', {
    cause: 7,
    precision: SINES,
    ways: { ...F64, cosSin: fastSines },
  }),
  right('fast-sines-alone', ['GPT-J', 'f32', 'prompt 256'], 'The same without an expectation.', {
    cause: 7,
    expect: false,
    precision: SINES,
    ways: { ...F64, cosSin: fastSines },
  }),
  // Loops
  right('fused-first', ['Llama 2', 'f32', 'prompt 256'], 'fma(x0, cos, -(x1 * sin)).', {
    precision: ANGLES,
    run: fused('first'),
  }),
  right('fused-last', ['TinyLlama', 'f32'], 'fma(-x1, sin, x0 * cos).', { precision: ANGLES, run: fused('last') }),
  right('fused-bf16', ['Gemma', 'bf16', 'prompt 16'], 'Fused, one store in bf16.', {
    precision: ANGLES,
    run: fused('first'),
  }),
  right('complex', ['GPT-J', 'f32', 'two prompts 16'], 'Heads as complex numbers times a table, as in Meta’s code.', {
    precision: ANGLES,
    run: complexTable,
  }),
  right('complex-bf16', ['GPT-J', 'bf16', 'later chunk'], 'The same, cast back to bf16 at the end.', {
    precision: ANGLES,
    run: complexTable,
  }),
  // Inputs
  right('negative', ['Llama 2', 'f32', 'shift'], 'Negative positions, as for a shift of cached keys.', {
    precision: ANGLES,
  }),
  right('decode', ['Llama 3.1', 'bf16', 'decode step'], 'One decode step.', { precision: ANGLES }),
  right('decode-f32', ['Phi-2', 'f32', 'decode step'], 'One decode step in float.', { precision: ANGLES }),
  right('decode-batch', ['Qwen2.5 YaRN', 'f16', 'decode batch'], 'Four sequences, one token each.', {
    precision: ANGLES,
  }),
  right('left-padding', ['Llama 2', 'bf16', 'left padding'], 'Two sequences, one padded on the left.', {
    precision: SIXTEEN,
    ways: hf('bf16'),
  }),
  right('many', ['TinyLlama', 'f32', 'many sequences'], 'Twelve sequences.', { precision: ANGLES }),
  right('long', ['Llama 3.1', 'f32', 'long chunk'], 'A chunk of a long prompt.', { precision: ANGLES }),
  right('mrope', ['Qwen2-VL', 'f32', 'two prompts 16'], 'M-RoPE: text, an image, text.', { precision: ANGLES }),
  right('mrope-bf16', ['Qwen2-VL', 'bf16', 'later chunk'], 'M-RoPE in bf16.', {
    precision: SIXTEEN,
    ways: hf('bf16'),
  }),
  right('mla', ['DeepSeek-V3', 'f32', 'prompt 256'], 'The rope part of MLA: read interleaved, written as halves.', {
    precision: ANGLES,
  }),
  right('mla-bf16', ['DeepSeek-V3', 'bf16'], 'The same in bf16.', { precision: SIXTEEN, ways: hf('bf16') }),
  // Without an expectation
  right('alone-half', ['Llama 2', 'f32', 'prompt 256'], 'Plain RoPE.', { expect: false, precision: ANGLES }),
  right('alone-partial', ['Phi-2', 'f32'], 'A part of each head.', { expect: false, precision: ANGLES }),
  right('alone-llama3', ['Llama 3.1', 'f32'], 'llama3 scaling.', { expect: false, precision: ANGLES, ways: F64 }),
  right('alone-yarn', ['Qwen2.5 YaRN', 'f32'], 'YaRN.', { expect: false, precision: ANGLES }),
  right('alone-bf16', ['Llama 2', 'bf16', 'prompt 256'], 'bf16 throughout.', {
    expect: false,
    precision: SIXTEEN,
    ways: hf('bf16'),
  }),
  right('alone-gptj', ['GPT-J', 'f16', 'prompt 256'], 'Interleaved, one store in f16.', {
    expect: false,
    precision: ANGLES,
  }),
];

/** The models whose frequencies are computed here by other code than ours; a test compares them. */
export const OWN_FREQUENCIES: readonly (readonly [ModelName, readonly number[]])[] = [
  ['Llama 3.1', llama31],
  ['Qwen2.5 YaRN', qwen.frequency],
  ['gpt-oss', gptoss.frequency],
  ['Phi-3', phi3],
];
