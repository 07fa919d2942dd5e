/** Kernels with a wrong formula of frequencies. @module */
import { plainFrequencies, wrongKernel } from './code.js';
import type { InputName, ModelName, Stranger } from './kernel.js';

const by = (pairs: number, of: (j: number) => number): number[] => Array.from({ length: pairs }, (_what, j) => of(j));

function formula(
  id: string,
  on: readonly [model: ModelName, dtype: Stranger['dtype'], input: InputName],
  about: string,
  frequency: readonly number[],
  more: { readonly cause?: Stranger['cause']; readonly thread?: string; readonly expect?: boolean } = {},
): Stranger {
  const { cause = 6, ...rest } = more;
  return wrongKernel(id, cause, on, about, { wrong: ['frequencies'], does: { frequency }, ...rest });
}

export const WRONG_FREQUENCIES: readonly Stranger[] = [
  formula(
    'j-plus-one',
    ['Llama 2', 'f32', 'prompt 256'],
    'Pairs are counted from 1.',
    by(64, (j) => 10000 ** (-(j + 1) / 64)),
  ),
  formula(
    'j-plus-one-bf16',
    ['Phi-2', 'bf16', 'prompt 16'],
    'Pairs are counted from 1.',
    by(16, (j) => 10000 ** (-(j + 1) / 16)),
  ),
  formula(
    'j-over-d',
    ['Llama 2', 'f32', 'far'],
    'Exponents are j/d for 2j/d.',
    by(64, (j) => 10000 ** (-j / 128)),
  ),
  formula(
    'j-over-d-bf16',
    ['GPT-J', 'bf16', 'prompt 256'],
    'Exponents are j/d for 2j/d.',
    by(32, (j) => 10000 ** (-j / 64)),
  ),
  formula(
    '4j-over-d',
    ['TinyLlama', 'f32', 'prompt 256'],
    'The 2 of the exponent is there twice.',
    by(32, (j) => 10000 ** ((-4 * j) / 64)),
  ),
  formula(
    'linspace',
    ['Llama 2', 'f32', 'prompt 256'],
    'Exponents are linspace(0, 1, half), end included.',
    by(64, (j) => 10000 ** (-j / 63)),
  ),
  formula(
    'linspace-f16',
    ['TinyLlama', 'f16', 'far'],
    'Exponents are linspace(0, 1, half), end included.',
    by(32, (j) => 10000 ** (-j / 31)),
  ),
  formula(
    'degrees',
    ['Llama 2', 'f32', 'prompt 256'],
    'The angle is taken for degrees.',
    plainFrequencies(10000, 128).map((f) => (f * Math.PI) / 180),
  ),
  formula(
    'to-degrees',
    ['TinyLlama', 'f32', 'prompt 16'],
    'Converted to degrees for a function in radians.',
    plainFrequencies(10000, 64).map((f) => (f * 180) / Math.PI),
    { cause: 4 },
  ),
  formula(
    'cospi',
    ['Llama 2', 'f32', 'prompt 256'],
    'cospif and sinpif for cosf and sinf.',
    plainFrequencies(10000, 128).map((f) => f * Math.PI),
    { cause: 4 },
  ),
  formula(
    'cospi-16',
    ['Phi-2', 'f32', 'prompt 16'],
    'cospif and sinpif at the first positions.',
    plainFrequencies(10000, 32).map((f) => f * Math.PI),
    { cause: 4 },
  ),
  formula(
    'cospi-bf16',
    ['Gemma', 'bf16', 'prompt 16'],
    'cospi in bf16.',
    plainFrequencies(10000, 256).map((f) => f * Math.PI),
    { cause: 4 },
  ),
  formula(
    'two-pi',
    ['TinyLlama', 'f32', 'prompt 256'],
    'The frequency is multiplied by 2π.',
    plainFrequencies(10000, 64).map((f) => f * 2 * Math.PI),
    { cause: 4 },
  ),
  formula(
    'positive-exponent',
    ['Llama 2', 'f32', 'prompt 256'],
    'base^(+2j/d).',
    by(64, (j) => 10000 ** (j / 64)),
    { cause: 4 },
  ),
  formula(
    'positive-exponent-16',
    ['TinyLlama', 'f32', 'prompt 16'],
    'base^(+2j/d), 16 tokens.',
    by(32, (j) => 10000 ** (j / 32)),
    { cause: 4 },
  ),
  formula(
    'positive-exponent-alone',
    ['TinyLlama', 'f32', 'prompt 16'],
    'base^(+2j/d), without an expectation.',
    by(32, (j) => 10000 ** (j / 32)),
    { cause: 4, expect: false },
  ),
  formula(
    'over-head-dim',
    ['Phi-2', 'f32', 'far'],
    'Exponents over head_dim, 80, for rotary_dim, 32.',
    plainFrequencies(10000, 32, 80),
    { thread: 'ggml-org/llama.cpp#4889' },
  ),
  formula(
    'over-head-dim-gptj',
    ['GPT-J', 'bf16', 'prompt 256'],
    'Exponents over head_dim, 256, for rotary_dim, 64.',
    plainFrequencies(10000, 64, 256),
  ),
  formula(
    'over-rotary-pairs',
    ['Phi-2', 'f32', 'prompt 256'],
    'Exponents over rotary_dim / 2.',
    plainFrequencies(10000, 32, 16),
  ),
  formula(
    'order-reversed',
    ['Llama 2', 'f32', 'prompt 256'],
    'The slowest pair comes first.',
    plainFrequencies(10000, 128).reverse(),
  ),
  formula(
    'one-frequency',
    ['TinyLlama', 'f32', 'prompt 256'],
    'Every pair has frequency 1: the exponent is an integer division.',
    by(32, () => 1),
  ),
  formula(
    'every-second',
    ['Llama 2', 'f32', 'prompt 256'],
    '2 * (j / 2) in integers: frequencies come in twos.',
    by(64, (j) => 10000 ** ((-2 * (j - (j % 2))) / 128)),
  ),
  formula(
    'log2-for-ln',
    ['TinyLlama', 'f32', 'prompt 256'],
    'exp for exp2 of an exponent in log2.',
    by(32, (j) => Math.exp((-2 * j * Math.log2(10000)) / 64)),
  ),
  formula(
    'ln-for-log2',
    ['Llama 2', 'f32', 'far'],
    'exp2 of an exponent in natural logarithms.',
    by(64, (j) => 2 ** ((-2 * j * Math.log(10000)) / 128)),
  ),
  formula(
    'rounded-log',
    ['Llama 2', 'f32', 'prompt 256'],
    'ln(base) is written as 9.21.',
    by(64, (j) => Math.exp((-2 * j * 9.21) / 128)),
  ),
  formula(
    'half-shifted',
    ['TinyLlama', 'f32', 'prompt 256'],
    'Exponents (2j + 1)/d.',
    by(32, (j) => 10000 ** (-(2 * j + 1) / 64)),
  ),
  formula('minus-two', ['Llama 2', 'f32', 'prompt 256'], 'Exponents over d - 2.', plainFrequencies(10000, 128, 126)),
  formula(
    'divided-by-128',
    ['TinyLlama', 'bf16', 'far'],
    'head_dim is written as 128 in a model with 64.',
    plainFrequencies(10000, 64, 128),
  ),
  formula(
    'last-pair-still',
    ['Llama 2', 'f32', 'prompt 256'],
    'The loop ends one pair early, and copies it.',
    by(64, (j) => (j === 63 ? 0 : 10000 ** (-j / 64))),
  ),
  formula(
    'half-of-pairs-still',
    ['Gemma', 'f32', 'prompt 16'],
    'Only the first half of the pairs rotates.',
    by(128, (j) => (j >= 64 ? 0 : 10000 ** (-j / 128))),
  ),
];
