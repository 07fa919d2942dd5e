/** Kernels with a wrong rule for long contexts. @module */
import { llama3Frequencies, plainFrequencies, wrongKernel, yarnFrequencies, yarnMagnitude } from './code.js';
import { type InputName, type ModelName, PHI3_LONG, PHI3_SHORT, type Stranger } from './kernel.js';

const plain31 = plainFrequencies(500000, 128);
const plainQwen = plainFrequencies(1000000, 128);
const plainOss = plainFrequencies(150000, 64);
const plainPhi3 = plainFrequencies(10000, 96);
const plainDeep = plainFrequencies(10000, 64);
const OSS = { factor: 32, context: 4096, truncate: false };

interface More {
  readonly frequency?: readonly number[];
  readonly gain?: number;
  readonly dtype?: Stranger['dtype'];
  readonly input?: InputName;
  readonly thread?: string;
  readonly cause?: Stranger['cause'];
}

function scaled(
  id: string,
  model: ModelName,
  about: string,
  { dtype = 'f32', input = 'far', cause = 6, thread, ...does }: More,
) {
  const wrong = [
    ...(does.frequency ? (['frequencies'] as const) : []),
    ...(does.gain === undefined ? [] : (['magnitude'] as const)),
  ];
  return wrongKernel(id, cause, [model, dtype, input], about, { wrong, does, thread });
}

const llama3 = (options: Parameters<typeof llama3Frequencies>[1]) => llama3Frequencies(plain31, options);
const yarn = (options: Parameters<typeof yarnFrequencies>[2]) => yarnFrequencies(plainQwen, 1000000, options);

export const WRONG_SCALING: readonly Stranger[] = [
  // llama3
  scaled('llama3-ignored', 'Llama 3.1', 'Plain frequencies.', { frequency: plain31, input: 'long chunk' }),
  scaled('llama3-factor-32', 'Llama 3.1', 'The factor of Llama 3.2, 32 for 8.', { frequency: llama3({ factor: 32 }) }),
  scaled('llama3-factor-16', 'Llama 3.1', 'Factor 16 for 8.', {
    frequency: llama3({ factor: 16 }),
    input: 'prompt 256',
  }),
  scaled('llama3-swapped', 'Llama 3.1', 'low_freq_factor and high_freq_factor swapped.', {
    frequency: llama3({ low: 4, high: 1 }),
  }),
  scaled('llama3-hard-low', 'Llama 3.1', 'Without the smooth part: divided above 8192, kept below.', {
    frequency: plain31.map((f) => ((2 * Math.PI) / f > 8192 ? f / 8 : f)),
  }),
  scaled('llama3-hard-high', 'Llama 3.1', 'Without the smooth part: divided above 2048, kept below.', {
    frequency: plain31.map((f) => ((2 * Math.PI) / f > 2048 ? f / 8 : f)),
    input: 'long chunk',
  }),
  scaled('llama3-context-131072', 'Llama 3.1', 'max_position_embeddings for the original context.', {
    frequency: llama3({ context: 131072 }),
  }),
  scaled('llama3-smooth-in-wavelength', 'Llama 3.1', 'The smooth part runs over wavelengths, not over frequencies.', {
    frequency: plain31.map((f) => {
      const wave = (2 * Math.PI) / f;
      const mix = Math.min(1, Math.max(0, (wave - 2048) / (8192 - 2048)));
      return (f / 8) * mix + f * (1 - mix);
    }),
  }),
  scaled('llama3-linear', 'Llama 3.1', 'Every frequency is divided by 8.', { frequency: plain31.map((f) => f / 8) }),
  scaled('llama3-multiplied', 'Llama 3.1', 'Slow pairs are multiplied by the factor.', {
    frequency: llama3({ factor: 1 / 8 }),
    input: 'long chunk',
  }),
  scaled('llama3-twice', 'Llama 3.1', 'Scaled when it is loaded, and again when it is used.', {
    frequency: llama3Frequencies(llama3({})),
  }),
  scaled('llama3-smooth-reversed', 'Llama 3.1', 'The smooth part runs the wrong way.', {
    frequency: plain31.map((f) => {
      const wave = (2 * Math.PI) / f;
      if (wave < 2048) return f;
      if (wave > 8192) return f / 8;
      const smooth = (8192 / wave - 1) / 3;
      return (smooth * f) / 8 + (1 - smooth) * f;
    }),
  }),
  scaled('llama3-base-10000', 'Llama 3.1', 'The default base under llama3 scaling.', {
    frequency: llama3Frequencies(plainFrequencies(10000, 128)),
  }),
  // YaRN
  scaled('yarn-ignored', 'Qwen2.5 YaRN', 'Plain RoPE.', { frequency: plainQwen, gain: 1 }),
  scaled('yarn-ignored-oss', 'gpt-oss', 'Plain RoPE, 16 tokens.', {
    frequency: plainOss,
    gain: 1,
    input: 'two prompts 16',
  }),
  scaled('yarn-magnitude-only', 'Qwen2.5 YaRN', 'The magnitude, but plain frequencies.', { frequency: plainQwen }),
  scaled('yarn-ramp-ignored', 'Qwen2.5 YaRN', 'Every frequency is divided by 4.', {
    frequency: plainQwen.map((f) => f / 4),
    input: 'prompt 256',
  }),
  scaled('yarn-ramp-reversed', 'Qwen2.5 YaRN', 'Fast pairs are divided, slow pairs kept.', {
    frequency: yarn({ reversed: true }),
  }),
  scaled('yarn-betas-swapped', 'Qwen2.5 YaRN', 'beta_fast and beta_slow swapped in transformers’ formula.', {
    frequency: yarn({ fast: 1, slow: 32 }),
    thread: 'huggingface/transformers#33783',
  }),
  scaled('yarn-betas-64-1', 'Qwen2.5 YaRN', 'beta_fast 64 for 32.', { frequency: yarn({ fast: 64 }) }),
  scaled('yarn-betas-32-2', 'gpt-oss', 'beta_slow 2 for 1.', {
    frequency: yarnFrequencies(plainOss, 150000, { ...OSS, slow: 2 }),
  }),
  scaled('yarn-context-131072', 'Qwen2.5 YaRN', 'The extended context for the original one.', {
    frequency: yarn({ context: 131072 }),
  }),
  scaled('yarn-context-4096', 'Qwen2.5 YaRN', 'The original context of another model, 4096.', {
    frequency: yarn({ context: 4096 }),
  }),
  scaled('yarn-truncated', 'gpt-oss', 'The ramp’s edges are rounded to whole pairs.', {
    frequency: yarnFrequencies(plainOss, 150000, { ...OSS, truncate: true }),
    thread: 'huggingface/transformers#40461',
  }),
  scaled('yarn-not-truncated', 'Qwen2.5 YaRN', 'The ramp’s edges are not rounded.', {
    frequency: yarn({ truncate: false }),
  }),
  scaled('yarn-ramp-base-10000', 'Qwen2.5 YaRN', 'The ramp’s edges from base 10000.', {
    frequency: yarn({ rampBase: 10000 }),
  }),
  scaled('yarn-ramp-by-dimension', 'Qwen2.5 YaRN', 'The ramp counts dimensions, not pairs.', {
    frequency: plainQwen.map((f, j) => {
      const mix = Math.min(1, Math.max(0, (2 * j - 23) / (40 - 23)));
      return (f / 4) * mix + f * (1 - mix);
    }),
  }),
  scaled('yarn-factor-32', 'Qwen2.5 YaRN', 'The factor of another model.', {
    frequency: yarn({ factor: 32 }),
    gain: yarnMagnitude(32),
  }),
  scaled('yarn-no-magnitude', 'Qwen2.5 YaRN', 'The frequencies, but no magnitude.', { gain: 1 }),
  scaled('yarn-magnitude-squared', 'gpt-oss', 'The magnitude is applied to cos and sin, and again to q.', {
    gain: yarnMagnitude(32) ** 2,
    input: 'prompt 256',
  }),
  scaled('yarn-magnitude-root', 'Qwen2.5 YaRN', 'The root of the magnitude.', { gain: Math.sqrt(yarnMagnitude(4)) }),
  scaled('yarn-magnitude-log10', 'Qwen2.5 YaRN', 'log10 for ln in the magnitude.', { gain: 0.1 * Math.log10(4) + 1 }),
  scaled('yarn-magnitude-divides', 'gpt-oss', 'Divides by the magnitude.', { gain: 1 / yarnMagnitude(32) }),
  scaled('yarn-mscale-ignored', 'DeepSeek-V3', 'mscale_all_dim is left out.', {
    gain: yarnMagnitude(40),
    thread: 'deepseek-ai/DeepSeek-V3#251',
  }),
  scaled('yarn-mscale-inverse', 'DeepSeek-V3', 'mscale is left out, and mscale_all_dim divides.', {
    gain: 1 / yarnMagnitude(40),
    dtype: 'bf16',
  }),
  scaled('yarn-deepseek-ignored', 'DeepSeek-V3', 'Plain frequencies.', { frequency: plainDeep, input: 'prompt 256' }),
  // LongRoPE
  scaled('longrope-short', 'Phi-3', 'The short list for the long one.', {
    frequency: plainPhi3.map((f, j) => f / PHI3_SHORT[j]!),
  }),
  scaled('longrope-ignored', 'Phi-3', 'Neither list.', { frequency: plainPhi3, input: 'prompt 256' }),
  scaled('longrope-multiplied', 'Phi-3', 'Frequencies are multiplied by the list.', {
    frequency: plainPhi3.map((f, j) => f * PHI3_LONG[j]!),
    input: 'prompt 16',
  }),
  scaled('longrope-multiplied-far', 'Phi-3', 'The same at far positions.', {
    frequency: plainPhi3.map((f, j) => f * PHI3_LONG[j]!),
    cause: 4,
  }),
  scaled('longrope-no-magnitude', 'Phi-3', 'The list, but no magnitude.', { gain: 1, input: 'prompt 256' }),
  scaled('longrope-magnitude-4', 'Phi-3', 'The magnitude of factor 4.', {
    gain: Math.sqrt(1 + Math.log(4) / Math.log(4096)),
  }),
  scaled('longrope-shifted', 'Phi-3', 'The list is read from its second number.', {
    frequency: plainPhi3.map((f, j) => f / (PHI3_LONG[j + 1] ?? PHI3_LONG[47]!)),
  }),
  scaled('longrope-reversed', 'Phi-3', 'The list is read backwards.', {
    frequency: plainPhi3.map((f, j) => f / PHI3_LONG[47 - j]!),
  }),
];
