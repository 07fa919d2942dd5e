/** Kernels that lose too many bits on the way to cos and sin. @module */
import { bf16, f16, f32, type Ways, type Wrong, wrongKernel } from './code.js';
import { type InputName, MODELS, type ModelName, type Rotation, rotationOf, type Stranger } from './kernel.js';

/** A kernel whose angles, sines or frequencies have an error of about `loose`. */
function imprecise(
  id: string,
  on: readonly [model: ModelName, dtype: Stranger['dtype'], input: InputName],
  about: string,
  ways: Ways,
  does: Partial<Rotation> & { readonly loose?: number },
  more: Partial<Wrong> = {},
): Stranger {
  return wrongKernel(id, 6, on, about, { wrong: ['precision', 'frequencies', 'positions'], does, ways, ...more });
}

const frequencies = (model: ModelName, round: (value: number) => number): { frequency: number[] } => ({
  frequency: rotationOf(MODELS[model]).frequency.map(round),
});

/** A table of 256 sines over a circle, without interpolation. */
const table256: Ways['cosSin'] = (angle) => {
  const step = (2 * Math.PI) / 256;
  const n = Math.round(angle / step);
  return [Math.cos(n * step), Math.sin(n * step)];
};

/** Taylor's polynomials of x to the 7th power after a reduction to [-π, π]. */
const taylor7: Ways['cosSin'] = (angle) => {
  const r = angle - 2 * Math.PI * Math.round(angle / (2 * Math.PI));
  const z = r * r;
  return [1 - z / 2 + (z * z) / 24 - (z * z * z) / 720, r * (1 - z / 6 + (z * z) / 120 - (z * z * z) / 5040)];
};

/** Bhaskara's rational sine, good to 0.0016. */
const bhaskara: Ways['cosSin'] = (angle) => {
  const sine = (a: number): number => {
    const r = a - 2 * Math.PI * Math.floor(a / (2 * Math.PI));
    const [half, sign] = r > Math.PI ? [r - Math.PI, -1] : [r, 1];
    const z = half * (Math.PI - half);
    return (sign * 16 * z) / (5 * Math.PI ** 2 - 4 * z);
  };
  return [sine(angle + Math.PI / 2), sine(angle)];
};

/** An angle from the one before by adding the frequency in float. */
const summed: Ways = {
  angle: (p, f) => {
    let angle = 0;
    for (let n = 0; n < p; n++) angle = f32(angle + f32(f));
    return angle;
  },
};

/** cos and sin of a position from those before, in float. */
const turnedOn: Ways = {
  angle: (p, f) => {
    let [c, s] = [1, 0];
    const [c1, s1] = [bf16(Math.cos(f)), bf16(Math.sin(f))];
    for (let n = 0; n < p; n++) [c, s] = [f32(c * c1 - s * s1), f32(s * c1 + c * s1)];
    return Math.atan2(s, c);
  },
};

/** The rest of an angle after a reduction with a short 2π. */
const shortPi =
  (twoPi: number): NonNullable<Ways['angle']> =>
  (p, f) =>
    p * f - twoPi * Math.floor((p * f) / twoPi);

/** Angles that lose bits before cos and sin. */
const anglesIn = (round: (value: number) => number): Ways => ({ angle: (p, f) => round(f32(p * f32(f))) });

function recurrenceIn(round: (value: number) => number, base: number, dim: number): number[] {
  const scale = round(base ** (-2 / dim));
  const list = [1];
  for (let j = 1; j < dim / 2; j++) list.push(round(list[j - 1]! * scale));
  return list;
}

const positions = (round: (value: number) => number): Partial<Rotation> => ({ position: (p) => round(p) });

export const WRONG_PRECISION: readonly Stranger[] = [
  imprecise(
    'angles-bf16',
    ['Llama 2', 'f32', 'prompt 256'],
    'position * inv_freq in bf16.',
    anglesIn(bf16),
    { loose: 2 ** -8 },
    { thread: 'huggingface/transformers#29285' },
  ),
  imprecise('angles-bf16-in-bf16', ['Llama 2', 'bf16', 'later chunk'], 'The same in a model in bf16.', anglesIn(bf16), {
    loose: 2 ** -8,
  }),
  imprecise('angles-f16', ['Phi-2', 'f16', 'prompt 256'], 'position * inv_freq in f16.', anglesIn(f16), {
    loose: 2 ** -11,
  }),
  imprecise(
    'inv-freq-bf16',
    ['Llama 2', 'f32', 'prompt 256'],
    'inv_freq was cast to bf16 with the model.',
    {},
    frequencies('Llama 2', bf16),
    { wrong: ['frequencies', 'precision'] },
  ),
  imprecise(
    'inv-freq-bf16-in-bf16',
    ['Llama 3.1', 'bf16', 'later chunk'],
    'The same in a model in bf16.',
    {},
    frequencies('Llama 3.1', bf16),
    { wrong: ['frequencies', 'precision'] },
  ),
  imprecise('inv-freq-f16', ['GPT-J', 'f32', 'prompt 256'], 'inv_freq in f16.', {}, frequencies('GPT-J', f16), {
    wrong: ['frequencies', 'precision'],
  }),
  imprecise(
    'inv-freq-f16-in-f16',
    ['Llama 2', 'f16', 'far'],
    'The same in a model in f16.',
    {},
    frequencies('Llama 2', f16),
    { wrong: ['frequencies', 'precision'] },
  ),
  imprecise(
    'positions-bf16',
    ['Llama 2', 'f32', 'later chunk'],
    'Positions in bf16: 4000 to 4015 become 4000 or 4016.',
    {},
    positions(bf16),
  ),
  imprecise(
    'positions-bf16-in-bf16',
    ['Gemma', 'bf16', 'long chunk'],
    'The same in a model in bf16.',
    {},
    positions(bf16),
  ),
  imprecise(
    'positions-f16',
    ['Llama 3.1', 'f32', 'long chunk'],
    'Positions in f16: steps of 16 from 16384.',
    {},
    positions(f16),
  ),
  imprecise(
    'positions-f16-in-f16',
    ['TinyLlama', 'f16', 'later chunk'],
    'The same in a model in f16.',
    {},
    positions(f16),
  ),
  imprecise(
    'sines-table',
    ['Llama 2', 'f32', 'prompt 256'],
    'A table of 256 sines, the nearest is taken.',
    { cosSin: table256 },
    { loose: 2 },
  ),
  imprecise(
    'sines-table-bf16',
    ['TinyLlama', 'bf16', 'prompt 16'],
    'The same in bf16.',
    { cosSin: table256 },
    { loose: 2 },
  ),
  imprecise(
    'sines-taylor',
    ['Llama 2', 'f32', 'prompt 256'],
    'Taylor’s polynomials to x^7.',
    { cosSin: taylor7 },
    { loose: 2, gain: [0.2, 2] },
  ),
  imprecise(
    'sines-taylor-16',
    ['Phi-2', 'f32', 'prompt 16'],
    'The same at the first positions.',
    { cosSin: taylor7 },
    { loose: 2, gain: [0.2, 2] },
  ),
  imprecise(
    'sines-bhaskara',
    ['TinyLlama', 'f32', 'prompt 256'],
    'Bhaskara’s formula of the sine.',
    { cosSin: bhaskara },
    { loose: 2, gain: [0.99, 1.01] },
  ),
  imprecise(
    'sines-unreduced',
    ['Llama 2', 'f32', 'far'],
    '__sinf without a reduction: the error grows with the angle.',
    {},
    frequencies('Llama 2', (f) => f * (1 + 2 ** -18)),
  ),
  imprecise(
    'pi-3.14',
    ['TinyLlama', 'f32', 'prompt 256'],
    'Angles are reduced by 2 · 3.14.',
    { angle: shortPi(6.28) },
    { loose: 0.1 },
  ),
  imprecise(
    'pi-3.14159',
    ['Llama 2', 'f32', 'far'],
    'Angles are reduced by 2 · 3.14159.',
    { angle: shortPi(6.28318) },
    { loose: 0.1 },
  ),
  imprecise(
    'angles-summed',
    ['TinyLlama', 'f32', 'long chunk'],
    'The angle is a sum over positions in float.',
    summed,
    { loose: 1e-3 },
  ),
  imprecise(
    'sines-turned-on',
    ['TinyLlama', 'f32', 'prompt 256'],
    'cos and sin of each position from those before, by steps in bf16.',
    turnedOn,
    { loose: 0.1 },
  ),
  imprecise(
    'recurrence-bf16',
    ['Llama 2', 'f32', 'prompt 256'],
    'theta *= theta_scale in bf16.',
    {},
    { frequency: recurrenceIn(bf16, 10000, 128) },
    { wrong: ['frequencies', 'precision'] },
  ),
  imprecise(
    'recurrence-f16',
    ['TinyLlama', 'f16', 'prompt 256'],
    'theta *= theta_scale in f16.',
    {},
    { frequency: recurrenceIn(f16, 10000, 64) },
    { wrong: ['frequencies', 'precision'] },
  ),
  imprecise(
    'frequencies-q15',
    ['Llama 2', 'f32', 'prompt 256'],
    'Frequencies in 16-bit fixed point.',
    {},
    frequencies('Llama 2', (f) => Math.round(f * 32768) / 32768),
    { wrong: ['frequencies', 'precision'] },
  ),
  imprecise(
    'tables-int8',
    ['Llama 2', 'bf16', 'prompt 256'],
    'cos and sin in eight bits, n/127.',
    { cosSin: (a) => [Math.round(127 * Math.cos(a)) / 127, Math.round(127 * Math.sin(a)) / 127] },
    { loose: 2, gain: [0.98, 1.02] },
  ),
];
