/** An example of a wrong kernel: phi-2's RoPE (32 of 80 dimensions) with exponents over head_dim. @module */
import { type FloatDtype, type Tensor, tensorFrom } from 'ropewalk';
import { randomFrom } from 'ropewalk/internal';
import type { Expected } from './read/expected.js';
import type { Observation } from './read/observation.js';

const HEAD_DIM = 80;
const ROTARY_DIM = 32;
const HEADS = 4;
const POSITIONS = [0, 1, 40, 511, 8191, 131071];

/** Runs the wrong kernel of the example, which computes in f32. */
export function demoObservation(): { observation: Observation; expected: Expected; from: string } {
  const random = randomFrom('diagnose --demo');
  const shape = [POSITIONS.length, HEADS, HEAD_DIM];
  const x = tensorFrom<'f32'>(
    Float32Array.from({ length: POSITIONS.length * HEADS * HEAD_DIM }, () => random.uniform(-1, 1)),
    { shape },
  );
  const observation: Observation = { x, y: wrongKernel(x), positions: tensorFrom(Int32Array.from(POSITIONS)) };
  const spec = { headDim: HEAD_DIM, rotaryDim: ROTARY_DIM, pairing: 'half', base: 10000 } as const;
  return { observation, expected: { spec }, from: 'phi-2: 32 of 80 dimensions, half, base 10000' };
}

function wrongKernel(x: Tensor<FloatDtype>): Tensor<FloatDtype> {
  const source = x.readNumbers() as Float64Array;
  const y = Float32Array.from(source);
  for (let row = 0; row < POSITIONS.length * HEADS; row++) {
    const position = POSITIONS[Math.floor(row / HEADS)]!;
    for (let j = 0; j < ROTARY_DIM / 2; j++) {
      const angle = position * 10000 ** ((-2 * j) / HEAD_DIM); // the bug: it should divide by rotary_dim
      const [i0, i1] = [row * HEAD_DIM + j, row * HEAD_DIM + j + ROTARY_DIM / 2];
      y[i0] = source[i0]! * Math.cos(angle) - source[i1]! * Math.sin(angle);
      y[i1] = source[i0]! * Math.sin(angle) + source[i1]! * Math.cos(angle);
    }
  }
  return tensorFrom<'f32'>(y, { shape: x.shape });
}
