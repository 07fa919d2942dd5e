/**
 * Cause B, partial rotary, and cause C, proportional frequencies: the dimensions that rotate, and the number by which the
 * exponent is divided. @module
 */
import type { Mutant } from '../kernel/mutant.js';
import type { Change, RopeSteps } from '../kernel/steps.js';
import { type Entry, geometryOf, mutantsOf, need, scalingOf, withGeometry, withScaling, withSpec } from './entry.js';

const ONE_PAIRING = need('pairs that are read and written alike', ({ plan }) => plan.read.step === plan.write.step);
/** The two other rules contain a number of pairs, or divide by one pair less. */
const RULE_OF_ANY_SIZE = need(
  'no scaling that counts pairs',
  (steps) => !['proportional', 'dynamicNtk'].includes(steps.spec.scaling?.kind ?? 'none'),
);
const SOME_TURN = need('some pairs that rotate and some that do not', (steps) => {
  const { rotatedPairs } = scalingOf(steps, 'proportional');
  return rotatedPairs > 0 && rotatedPairs < steps.pairs;
});

const WHOLE_HEAD: Entry['needs'] = [
  'computed',
  'partial',
  ONE_PAIRING,
  // A kernel with factors by pair would read past their end; what is there may be 1.
  need('no LongRoPE', (steps) => steps.spec.scaling?.kind !== 'longrope'),
  need('an even head_dim', ({ headDim }) => headDim % 2 === 0),
];

/** Rotates every dimension of the head. */
function wholeHead(steps: RopeSteps, frequencyDim: number | undefined): Change {
  const { headDim } = steps;
  const pairs = headDim / 2;
  const { freqFactors } = steps.spec;
  const geometry = geometryOf(steps, pairs);
  return {
    ...withGeometry(steps, geometry, geometry, 0),
    ...withSpec(steps, {
      rotaryDim: headDim,
      rotaryOffset: 0,
      frequencyDim,
      freqFactors: freqFactors && Array.from({ length: pairs }, (_, j) => freqFactors[j] ?? 1),
    }),
    pairs,
    rotaryDim: headDim,
    rotaryOffset: 0,
  };
}

/** The pairs that remain when partial_rotary_factor is applied twice. */
function twicePartial({ pairs, rotaryDim, headDim }: RopeSteps): number {
  return Math.floor((pairs * rotaryDim) / headDim);
}

export const PARTIAL_ROTARY: readonly Mutant[] = mutantsOf('B', WHOLE_HEAD, {
  'frequencies-over-head-dim': {
    does: 'Divides the exponent by head_dim instead of rotary_dim.',
    threads: ['pie-project/pie#603'],
    needs: ['computed', 'partial'],
    change: (steps) => withSpec(steps, { frequencyDim: steps.headDim }),
  },
  'pair-distance-half-a-head': {
    does: 'Rotates pairs (j, j + head_dim/2) instead of (j, j + rotary_dim/2).',
    threads: ['pie-project/pie#603'],
    needs: [
      'partial',
      'half',
      need(
        'room for it in the head',
        ({ rotaryOffset, pairs, headDim }) => rotaryOffset + pairs + (headDim >> 1) <= headDim,
      ),
    ],
    change(steps) {
      const halves = { step: 1, gap: steps.headDim >> 1 };
      return withGeometry(steps, halves, halves);
    },
  },
  'whole-head-rotated': {
    does: 'Rotates all of head_dim instead of rotary_dim.',
    threads: [
      'vllm-project/vllm#43676',
      'ROCm/aiter#2199',
      'microsoft/onnxruntime#29261',
      'AI-Hypercomputer/maxtext#4615',
    ],
    change: (steps) => wholeHead(steps, steps.spec.frequencyDim),
  },
  'whole-head-over-rotary-dim': {
    does: 'Rotates all of head_dim, by exponents that are divided by rotary_dim: the series goes on past its end.',
    threads: ['ggml-org/llama.cpp#10540', 'ggml-org/llama.cpp#17543'],
    change: (steps) => wholeHead(steps, steps.exponentDim),
  },
  'rotary-factor-twice': {
    does: 'Multiplies by partial_rotary_factor twice: rotates only that share of rotary_dim.',
    threads: ['huggingface/transformers#48652', 'ml-explore/mlx-lm#1698'],
    needs: [
      'computed',
      'partial',
      ONE_PAIRING,
      RULE_OF_ANY_SIZE,
      need('a pair left to rotate', (steps) => twicePartial(steps) >= 1),
    ],
    change(steps) {
      const pairs = twicePartial(steps);
      const geometry = geometryOf(steps, pairs);
      return {
        ...withGeometry(steps, geometry, geometry),
        ...withSpec(steps, { rotaryDim: 2 * pairs }),
        pairs,
        rotaryDim: 2 * pairs,
      };
    },
  },
  'window-at-start': {
    does: 'Ignores the offset of the window: rotates the first rotary_dim dimensions of the head.',
    threads: ['raullenchai/Rapid-MLX#1225'],
    needs: ['offset'],
    change: (steps) => ({
      readIndex: (j, k) => steps.readIndex(j, k) - steps.rotaryOffset,
      writeIndex: (j, k) => steps.writeIndex(j, k) - steps.rotaryOffset,
    }),
  },
  'window-at-end': {
    does: 'Rotates the last rotary_dim dimensions of the head instead of the first.',
    threads: ['raullenchai/Rapid-MLX#1225'],
    needs: ['partial', need('a rotated window that starts at dimension 0', ({ rotaryOffset }) => rotaryOffset === 0)],
    change(steps) {
      const by = steps.headDim - steps.rotaryDim;
      return { readIndex: (j, k) => steps.readIndex(j, k) + by, writeIndex: (j, k) => steps.writeIndex(j, k) + by };
    },
  },
  'rest-not-copied': {
    does: 'Does not copy the dimensions that do not rotate: the output has zeros there.',
    threads: ['ggml-org/llama.cpp#4156', 'ggml-org/llama.cpp#14580'],
    needs: ['partial'],
    change: () => ({ beside: () => 0 }),
  },
});

export const PROPORTIONAL_FREQUENCIES: readonly Mutant[] = mutantsOf('C', ['proportional', SOME_TURN], {
  'proportional-over-rotated': {
    does: 'Divides the exponent by the number of rotated dimensions, where proportional frequencies divide by head_dim.',
    threads: ['pegainfer-project/pegainfer#820'],
    change: (steps) => withSpec(steps, { frequencyDim: 2 * scalingOf(steps, 'proportional').rotatedPairs }),
  },
  'proportional-identity-pairs-turned': {
    does: 'Rotates every pair, even the last ones, which proportional frequencies leave as they are.',
    threads: ['jagmarques/nexusquant#12'],
    change: (steps) => withScaling(steps, { kind: 'linear', factor: scalingOf(steps, 'proportional').factor ?? 1 }),
  },
  'proportional-block-in-front': {
    does: 'Rotates pairs within the leading block of rotated dimensions, (j, j + block/2), instead of (j, j + head_dim/2).',
    threads: ['NVIDIA-NeMo/Megatron-Bridge#4195', 'NVIDIA-NeMo/Megatron-Bridge#4196', 'apple/coreai-models#66'],
    needs: ['proportional', SOME_TURN, 'half'],
    change(steps) {
      const { rotatedPairs: pairs } = scalingOf(steps, 'proportional');
      const block = { step: 1, gap: pairs };
      return { ...withGeometry(steps, block, block), pairs };
    },
  },
  'proportional-as-partial': {
    does: 'Treats proportional frequencies as plain partial rotary: a leading block, and the exponent divided by its size.',
    threads: ['zml/zml#660'],
    needs: ['proportional', SOME_TURN, 'half'],
    change(steps) {
      const { rotatedPairs: pairs } = scalingOf(steps, 'proportional');
      const block = { step: 1, gap: pairs };
      return { ...withGeometry(steps, block, block), ...withSpec(steps, { frequencyDim: 2 * pairs }), pairs };
    },
  },
  'proportional-factor-ignored': {
    does: 'Leaves out the factor that divides proportional frequencies.',
    threads: ['jagmarques/nexusquant#12'],
    needs: [
      'proportional',
      need('a factor other than 1 for them', (steps) => (scalingOf(steps, 'proportional').factor ?? 1) !== 1),
    ],
    change: (steps) => withScaling(steps, { ...scalingOf(steps, 'proportional'), factor: 1 }),
  },
});
