/** Wrong kernels whose author had not seen the catalogue's entries, after ports to new hardware. @module */
import { f16, f32, plainFrequencies, wrongKernel, yarnFrequencies, yarnMagnitude } from './code.js';
import { MODELS, pairsOf, rotationOf, type Stranger } from './kernel.js';
import { copyRow, each, rotateRow, stranger, turn } from './loops.js';

const of = (model: keyof typeof MODELS): number[] => [...rotationOf(MODELS[model]).frequency];

export const UNSEEN_WRONG: readonly Stranger[] = [
  wrongKernel('unseen-base-local', 2, ['Gemma', 'bf16', 'prompt 16'], 'The global layers’ base in a local layer.', {
    wrong: ['frequencies'],
    does: { frequency: plainFrequencies(1e6, 256) },
  }),
  wrongKernel('unseen-theta-integer', 2, ['Qwen3', 'f16', 'later chunk'], 'Base 1000000 read as 10^5.', {
    wrong: ['frequencies'],
    does: { frequency: plainFrequencies(1e5, 128) },
  }),
  wrongKernel(
    'unseen-oss-magnitude-twice',
    2,
    ['gpt-oss', 'bf16', 'far'],
    'Magnitude in the table and in the kernel.',
    {
      wrong: ['magnitude'],
      does: { gain: yarnMagnitude(32) ** 2 },
    },
  ),
  wrongKernel('unseen-yarn-beta', 6, ['Qwen2.5 YaRN', 'f32', 'far'], 'beta_fast 64 for 32.', {
    wrong: ['frequencies'],
    does: { frequency: yarnFrequencies(plainFrequencies(1e6, 128), 1e6, { fast: 64 }) },
  }),
  wrongKernel('unseen-yarn-ln-base', 6, ['gpt-oss', 'f32', 'far'], 'Ramp from base 10000.', {
    wrong: ['frequencies'],
    does: {
      frequency: yarnFrequencies(plainFrequencies(150000, 64), 150000, {
        factor: 32,
        context: 4096,
        truncate: false,
        rampBase: 10000,
      }),
    },
  }),
  wrongKernel('unseen-linear-multiplied', 6, ['Linear 4', 'f32', 'prompt 256'], 'Position times the factor.', {
    wrong: ['frequencies', 'positions'],
    does: { frequency: of('Linear 4').map((w) => 16 * w) },
  }),
  wrongKernel('unseen-last-pair-missed', 3, ['TinyLlama', 'f32', 'odd'], 'Loop ends one pair early.', {
    wrong: ['dimensions', 'elements'],
    describes: [/^Pair 31 does not rotate/],
    does: { frequency: of('TinyLlama').map((w, j) => (j === 31 ? 0 : w)) },
  }),
  wrongKernel('unseen-first-pair-missed', 3, ['Llama 2', 'bf16', 'prompt 16'], 'Loop starts at pair 1.', {
    wrong: ['dimensions', 'elements'],
    describes: [/^Pair 0 does not rotate/],
    does: { frequency: of('Llama 2').map((w, j) => (j === 0 ? 0 : w)) },
  }),
  wrongKernel('unseen-simd-frequency', 6, ['Llama 2', 'f32', 'prompt 256'], 'One frequency for four lanes.', {
    wrong: ['frequencies'],
    does: { frequency: of('Llama 2').map((_w, j, all) => all[j - (j % 4)]!) },
  }),
  wrongKernel(
    'unseen-frequencies-reversed',
    6,
    ['TinyLlama', 'f32', 'prompt 16'],
    'Table of frequencies from its end.',
    {
      wrong: ['frequencies'],
      does: { frequency: of('TinyLlama').reverse() },
    },
  ),
  wrongKernel('unseen-phi-2-partners', 5, ['Phi-2', 'f16', 'odd'], 'Adjacent pairs in the rotated window.', {
    wrong: ['pairing'],
    does: { pairs: pairsOf('interleaved', 32) },
  }),
  wrongKernel('unseen-neox-fraction', 5, ['Pythia', 'f32', 'prompt 16'], 'rotary_pct 0.5 for 0.25.', {
    wrong: ['dimensions', 'frequencies', 'pairing'],
    does: { pairs: pairsOf('half', 32), frequency: plainFrequencies(10000, 32) },
  }),
  wrongKernel('unseen-gptj-backward', 4, ['GPT-J', 'bf16', 'far'], 'The gradient’s rotation.', {
    wrong: ['direction'],
    does: { frequency: of('GPT-J').map((w) => -w) },
  }),
  wrongKernel(
    'unseen-position-doubled',
    4,
    ['Qwen3', 'f32', 'decode batch'],
    'Position advanced for q and again for k.',
    {
      wrong: ['positions', 'frequencies'],
      // The same numbers as twice the frequency, so either is a true account.
      does: { frequency: of('Qwen3').map((w) => 2 * w) },
    },
  ),
  wrongKernel('unseen-position-plus-batch', 6, ['Llama 2', 'f32', 'decode batch'], 'Adds the slot to the position.', {
    wrong: ['positions'],
    does: { position: (p, { batch }) => p + batch },
  }),
  wrongKernel('unseen-position-12-bits', 6, ['Llama 2', 'f32', 'far'], 'Position masked to 4096.', {
    wrong: ['positions'],
    does: { position: (p) => p & 4095 },
  }),
  wrongKernel('unseen-head-offset', 6, ['TinyLlama', 'f32', 'odd'], 'Adds the head to the position.', {
    wrong: ['positions', 'heads'],
    does: { position: (p, { head }) => p + head },
  }),
  wrongKernel('unseen-store-truncates', 2, ['GLM-4', 'bf16', 'odd'], 'Drops the low 16 bits of f32.', {
    wrong: ['precision', 'magnitude'],
    ways: { store: dropLowBits },
  }),
  wrongKernel('unseen-f16-angle', 6, ['Llama 2', 'f16', 'prompt 256'], 'Angle in f16.', {
    wrong: ['precision'],
    ways: { angle: (p, w) => f16(f32(p * w)) },
  }),
  wrongKernel('unseen-q15-sines', 6, ['TinyLlama', 'f32', 'prompt 16'], 'Sines of a DSP in 15 bits.', {
    wrong: ['precision'],
    ways: {
      cosSin: (a) => [Math.round(Math.cos(a) * 32767) / 32768, Math.round(Math.sin(a) * 32767) / 32768],
    },
  }),
  stranger(
    base('unseen-ragged-tail', 3, 'TinyLlama', 'odd', 'The last tokens beyond a tile of 8 are not written.'),
    (to) => each(to, (row, b, s) => s < 16 && rotateRow(to, row, row, b, s)),
    ['rows'],
    () => ({}),
    { except: ({ seq }) => seq >= 16 },
  ),
  stranger(
    base('unseen-gqa-kv-heads', 3, 'Llama 2', 'odd', 'Only the heads that k has are rotated.'),
    (to) => each(to, (row, b, s, h) => (h < 2 ? rotateRow(to, row, row, b, s) : copyRow(to, row))),
    ['heads', 'rows'],
    () => ({}),
    { except: ({ head }) => head >= 2 },
  ),
  stranger(
    base('unseen-second-half-zero', 3, 'Llama 2', 'prompt 16', 'The second store is masked out.'),
    (to) =>
      each(to, (row, b, s) => {
        rotateRow(to, row, row, b, s);
        to.y.fill(0, row + 64, row + 128);
      }),
    ['elements', 'dimensions'],
    undefined,
  ),
  stranger(
    base('unseen-next-head-read', 3, 'TinyLlama', 'odd', 'The stride of a head is one element too long.'),
    (to) =>
      each(to, (row, b, s) => {
        for (let j = 0; j < 32; j++) {
          const i1 = Math.min(row + j + 33, to.x.length - 1);
          turn(to, row + j, i1, to.angle(b, s, j), row + j, row + j + 32);
        }
      }),
    ['elements', 'input', 'pairing', 'dimensions'],
    undefined,
  ),
  stranger(
    base('unseen-sine-of-first-half', 6, 'TinyLlama', 'prompt 16', 'Adds both products in the first member only.'),
    (to) =>
      each(to, (row, b, s) => {
        rotateRow(to, row, row, b, s);
        for (let j = 0; j < 32; j++) {
          const angle = to.angle(b, s, j);
          to.y[row + j + 32] = to.x[row + j + 32]! * Math.cos(angle);
        }
      }),
    ['elements', 'dimensions', 'direction'],
    undefined,
  ),
  stranger(
    {
      ...base('unseen-tile-restarts', 6, 'TinyLlama', 'prompt 256', 'Positions restart in tiles of 64.'),
      dtype: 'f16',
    },
    (to) => each(to, (row, b, s) => rotateRow(to, row, row, b, s % 64)),
    ['positions', 'rows'],
    () => ({ position: (p) => p % 64 }),
  ),
  stranger(
    { ...base('unseen-position-even', 6, 'Llama 2', 'prompt 16', 'Two tokens share a position.'), dtype: 'bf16' },
    (to) => each(to, (row, b, s) => rotateRow(to, row, row, b, s - (s % 2))),
    ['positions', 'rows'],
    () => ({}),
    { except: ({ seq }) => seq % 2 === 1 },
  ),
];

/** A store that copies the upper half of the f32. */
function dropLowBits(value: number): number {
  const bits = new Uint32Array(Float32Array.of(value).buffer);
  bits[0]! &= 0xffff0000;
  return new Float32Array(bits.buffer)[0]!;
}

function base(
  id: string,
  cause: Stranger['cause'],
  model: Stranger['model'],
  input: Stranger['input'],
  about: string,
): Omit<Stranger, 'run' | 'truth'> {
  return { id, cause, about, model, dtype: 'f32', input };
}
