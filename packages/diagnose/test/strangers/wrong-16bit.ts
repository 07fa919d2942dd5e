/** Small systematic errors that hide under the rounding of 16 bits: causes 1 and 2 of issue 18. @module */
import { bf16, f16, f32, llama3Frequencies, plainFrequencies, wrongKernel, yarnFrequencies } from './code.js';
import type { Stranger } from './kernel.js';

/** Drops the last bits of a value, as a store that takes the upper half of a float does. */
function truncated(value: number, bits: number): number {
  const size = 2 ** (Math.floor(Math.log2(Math.abs(value) || 1)) - bits);
  return Math.trunc(value / size) * size;
}

const toZero = (bits: number) => (value: number) => truncated(value, bits);
const down = (bits: number) => (value: number) => {
  const size = 2 ** (Math.floor(Math.log2(Math.abs(value) || 1)) - bits);
  return Math.floor(value / size) * size;
};
/** A store toward zero shortens a pair by a half of the last bit, 2^-9 of 1 to 2 in bf16. */
const shortened = (bits: number): { gain: [number, number] } => ({ gain: [1 - 2 ** -bits, 1] });

const llama = (base: number, dim = 128): { frequency: number[] } => ({ frequency: plainFrequencies(base, dim) });
const plain31 = plainFrequencies(500000, 128);
const plainQwen = plainFrequencies(1000000, 128);
const FREQUENCIES = { wrong: ['frequencies'] } as const;
const MAGNITUDE = { wrong: ['magnitude'] } as const;
const ROUNDING = { wrong: ['precision', 'magnitude'] } as const;

export const WRONG_16_BIT: readonly Stranger[] = [
  // The base
  wrongKernel('bf16-base-10020', 2, ['Llama 2', 'bf16', 'prompt 256'], 'A base that is 0.2 % too large.', {
    ...FREQUENCIES,
    does: llama(10020),
  }),
  wrongKernel('bf16-base-10020-far', 2, ['Llama 2', 'bf16', 'later chunk'], 'The same at positions from 4000.', {
    ...FREQUENCIES,
    does: llama(10020),
  }),
  wrongKernel('bf16-base-9900', 2, ['TinyLlama', 'bf16', 'prompt 256'], 'A base that is 1 % too small.', {
    ...FREQUENCIES,
    does: llama(9900, 64),
  }),
  wrongKernel('f16-base-10010', 2, ['Llama 2', 'f16', 'prompt 256'], 'A base that is 0.1 % too large.', {
    ...FREQUENCIES,
    does: llama(10010),
  }),
  wrongKernel('bf16-base-default', 1, ['Llama 3.1', 'bf16', 'prompt 256'], 'The default base, 10000, for 500000.', {
    ...FREQUENCIES,
    does: { frequency: llama3Frequencies(plainFrequencies(10000, 128)) },
  }),
  wrongKernel('f16-base-1e6', 1, ['Llama 2', 'f16', 'prompt 16'], 'The base of another model, 1000000.', {
    ...FREQUENCIES,
    does: llama(1000000),
  }),
  wrongKernel('bf16-base-1e5', 1, ['Gemma', 'bf16', 'prompt 16'], 'A zero too many in the base.', {
    ...FREQUENCIES,
    does: llama(100000, 256),
  }),
  wrongKernel('bf16-base-phi2', 1, ['Phi-2', 'bf16', 'far'], 'Base 1000 for 10000.', {
    ...FREQUENCIES,
    does: llama(1000, 32),
  }),
  wrongKernel('f16-base-gptj', 1, ['GPT-J', 'f16', 'later chunk'], 'Base 10240 for 10000.', {
    ...FREQUENCIES,
    does: llama(10240, 64),
  }),
  // The magnitude
  ...(
    [
      ['bf16', 1.002, 'prompt 256', 2],
      ['bf16', 1.005, 'far', 2],
      ['bf16', 1.01, 'prompt 16', 2],
      ['bf16', 0.99, 'later chunk', 2],
      ['f16', 1.001, 'prompt 256', 2],
      ['f16', 0.995, 'decode batch', 2],
      ['bf16', 1.1, 'prompt 16', 1],
      ['f16', 1.25, 'far', 1],
    ] as const
  ).map(([dtype, gain, input, cause]) =>
    wrongKernel(`${dtype}-magnitude-${gain}`, cause, ['Llama 2', dtype, input], `cos and sin times ${gain}.`, {
      ...MAGNITUDE,
      does: { gain },
    }),
  ),
  wrongKernel('bf16-magnitude-mscale', 1, ['DeepSeek-V3', 'bf16', 'far'], 'YaRN’s magnitude without its denominator.', {
    ...MAGNITUDE,
    does: { gain: 0.1 * Math.log(40) + 1 },
    thread: 'ggml-org/llama.cpp#7416',
  }),
  wrongKernel('bf16-magnitude-left-out', 1, ['Qwen2.5 YaRN', 'bf16', 'prompt 256'], 'No magnitude.', {
    ...MAGNITUDE,
    does: { gain: 1 },
  }),
  wrongKernel('f16-magnitude-squared', 1, ['gpt-oss', 'f16', 'prompt 16'], 'The magnitude is applied twice.', {
    ...MAGNITUDE,
    does: { gain: (0.1 * Math.log(32) + 1) ** 2 },
  }),
  // The scaling
  ...([32, 16, 4] as const).flatMap((factor) =>
    (['bf16', 'f16'] as const).map((dtype) =>
      wrongKernel(
        `${dtype}-llama3-factor-${factor}`,
        2,
        ['Llama 3.1', dtype, dtype === 'bf16' ? 'prompt 256' : 'later chunk'],
        `llama3 scaling with factor ${factor} for 8.`,
        { ...FREQUENCIES, does: { frequency: llama3Frequencies(plain31, { factor }) } },
      ),
    ),
  ),
  wrongKernel('bf16-llama3-ignored', 1, ['Llama 3.1', 'bf16', 'later chunk'], 'Plain frequencies for llama3.', {
    ...FREQUENCIES,
    does: { frequency: plain31 },
  }),
  wrongKernel('bf16-yarn-ignored', 1, ['Qwen2.5 YaRN', 'bf16', 'later chunk'], 'Plain RoPE for YaRN.', {
    wrong: ['frequencies', 'magnitude'],
    does: { frequency: plainQwen, gain: 1 },
  }),
  wrongKernel('bf16-yarn-ramp-ignored', 2, ['Qwen2.5 YaRN', 'bf16', 'prompt 16'], 'Every frequency divided by 4.', {
    ...FREQUENCIES,
    does: { frequency: plainQwen.map((f) => f / 4) },
  }),
  wrongKernel('bf16-yarn-frequencies-plain', 2, ['gpt-oss', 'bf16', 'prompt 256'], 'Only YaRN’s magnitude.', {
    ...FREQUENCIES,
    does: { frequency: plainFrequencies(150000, 64) },
  }),
  wrongKernel('f16-yarn-factor-8', 2, ['Qwen2.5 YaRN', 'f16', 'later chunk'], 'Frequencies for factor 8.', {
    ...FREQUENCIES,
    does: { frequency: yarnFrequencies(plainQwen, 1000000, { factor: 8 }) },
  }),
  // The store
  wrongKernel('bf16-truncates', 2, ['Llama 2', 'bf16', 'prompt 256'], 'The store keeps the upper 16 bits of a float.', {
    ...ROUNDING,
    does: shortened(7),
    ways: { store: toZero(7) },
  }),
  wrongKernel('bf16-truncates-far', 2, ['Llama 3.1', 'bf16', 'far'], 'The same with far positions.', {
    ...ROUNDING,
    does: shortened(7),
    ways: { store: toZero(7) },
  }),
  wrongKernel('f16-truncates', 2, ['Phi-2', 'f16', 'prompt 256'], 'A store in f16 that rounds toward zero.', {
    ...ROUNDING,
    does: shortened(10),
    ways: { store: toZero(10) },
  }),
  wrongKernel(
    'bf16-rounds-down',
    2,
    ['TinyLlama', 'bf16', 'prompt 256'],
    'A store that rounds toward minus infinity.',
    {
      ...ROUNDING,
      ways: { store: down(7) },
    },
  ),
  wrongKernel('bf16-table-truncated', 2, ['Llama 2', 'bf16', 'two prompts 16'], 'cos and sin keep the upper 16 bits.', {
    ...ROUNDING,
    does: shortened(7),
    ways: { cosSin: (angle) => [truncated(Math.cos(angle), 7), truncated(Math.sin(angle), 7)] },
  }),
  wrongKernel(
    'f16-through-bf16',
    2,
    ['Llama 2', 'f16', 'prompt 256'],
    'The result goes through bf16 on its way to f16.',
    {
      ...ROUNDING,
      ways: { store: (value) => f16(bf16(value)) },
    },
  ),
  wrongKernel('f16-tables-bf16', 2, ['TinyLlama', 'f16', 'prompt 256'], 'cos and sin come from a cache in bf16.', {
    ...ROUNDING,
    ways: { table: 'bf16' },
  }),
  wrongKernel('f32-tables-bf16', 2, ['Llama 2', 'f32', 'prompt 256'], 'cos and sin in bf16 for heads in float.', {
    ...ROUNDING,
    ways: { table: 'bf16' },
    thread: 'huggingface/transformers#25306',
  }),
  wrongKernel('f32-tables-f16', 2, ['GPT-J', 'f32', 'prompt 256'], 'cos and sin in f16 for heads in float.', {
    ...ROUNDING,
    ways: { table: 'f16' },
  }),
  wrongKernel('f32-products-tf32', 2, ['Phi-2', 'f32', 'prompt 256'], 'A matrix unit multiplies with 10 bits.', {
    ...ROUNDING,
    run: ({ x, y, batch, seq, heads, headDim, inv, position, at }) => {
      const tf32 = (value: number): number => roundBits(value, 10);
      for (let b = 0; b < batch; b++)
        for (let s = 0; s < seq; s++)
          for (let h = 0; h < heads; h++) {
            const from = at(b, s, h);
            for (let i = 32; i < headDim; i++) y[from + i] = x[from + i]!;
            for (let j = 0; j < 16; j++) {
              const angle = f32(position(b, s) * inv[j]!);
              const [c, n] = [tf32(Math.cos(angle)), tf32(Math.sin(angle))];
              const [x0, x1] = [tf32(x[from + j]!), tf32(x[from + j + 16]!)];
              y[from + j] = f32(x0 * c - x1 * n);
              y[from + j + 16] = f32(x0 * n + x1 * c);
            }
          }
    },
  }),
];

/** A value with `bits` bits after the leading one. */
function roundBits(value: number, bits: number): number {
  const size = 2 ** (Math.floor(Math.log2(Math.abs(value) || 1)) - bits);
  return Math.round(value / size) * size;
}
