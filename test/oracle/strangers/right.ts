/** Kernels that are right, each in the arithmetic of a real one. @module */
import { f32, rotate, type Ways } from './code.js';
import { type Call, type InputName, type ModelName, rotationOf, type Stranger } from './kernel.js';

interface Given extends Pick<Stranger, 'about' | 'dtype'> {
  readonly input?: InputName;
  readonly thread?: string;
  readonly cause?: 0 | 7;
  readonly expect?: boolean;
  readonly dumped?: Stranger['dumped'];
  readonly precision?: RegExp;
  readonly ways?: Ways;
  readonly run?: (call: Call) => void;
}

function right(id: string, model: ModelName, given: Given): Stranger {
  const { input = 'far', cause = 0, ways, run, precision, ...rest } = given;
  return {
    id: `right-${id}`,
    model,
    input,
    cause,
    ...rest,
    run: run ?? ((call) => rotate(call, rotationOf(call.spec), ways)),
    truth: ({ spec }) => ({ wrong: [], rotation: rotationOf(spec), precision }),
  };
}

/** What may be said of a kernel whose angles are products in f32. */
const F32_ANGLES = /^(angles in f32|the arithmetic of \w+ in f32( \| .*)?)$/;

export const RIGHT: readonly Stranger[] = [
  right('f64-angles', 'Llama 3.1', {
    about: 'Angles, cos and sin in double, the products in float.',
    dtype: 'f32',
    ways: { angle: (p, f) => p * f },
  }),
  right('f32-angles', 'Llama 3.1', {
    about: 'position * inv_freq in float, as in most CUDA kernels.',
    dtype: 'f32',
    precision: F32_ANGLES,
    ways: { angle: (p, f) => f32(f32(p) * f32(f)) },
  }),
];
