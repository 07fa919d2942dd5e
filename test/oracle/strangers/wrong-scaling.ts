/** Kernels with a wrong base, magnitude or rule for long contexts. @module */
import { llama3Frequencies, plainFrequencies, rotate, rotationBy } from './code.js';
import type { Stranger } from './kernel.js';

export const WRONG_SCALING: readonly Stranger[] = [
  {
    id: 'llama3-factor-32',
    cause: 2,
    about: 'The factor of Llama 3.2 for Llama 3.1: 32 for 8.',
    model: 'Llama 3.1',
    dtype: 'bf16',
    input: 'far',
    run: (call) => rotate(call, rotationBy(llama3Frequencies(plainFrequencies(500000, 128), { factor: 32 }), 'half')),
    truth: () => ({
      names: [],
      wrong: ['frequencies'],
      rotation: rotationBy(llama3Frequencies(plainFrequencies(500000, 128), { factor: 32 }), 'half'),
    }),
  },
];
