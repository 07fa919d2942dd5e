/**
 * Cause B, partial rotary, and cause C, proportional frequencies: which dimensions turn, and what the exponent is divided by.
 *
 * @module
 */
import type { Mutant } from '../mutant.js';
import type { RopeSteps } from '../steps.js';
import {
  COMPUTED,
  HALF,
  mutantsOf,
  need,
  OFFSET,
  PARTIAL,
  PROPORTIONAL,
  scalingOf,
  specOf,
  withGeometry,
  withScaling,
  withSpec,
} from './entry.js';

const ONE_PAIRING = need('pairs that are read and written alike', ({ plan }) => plan.read.step === plan.write.step);
/** These two have numbers of pairs in them, or divide by one less. */
const RULE_OF_ANY_SIZE = need(
  'no scaling that counts pairs',
  (steps) => !['proportional', 'dynamicNtk'].includes(specOf(steps).scaling?.kind ?? 'none'),
);
const SOME_TURN = need('pairs that turn beside others that do not', (steps) => {
  const { rotatedPairs } = scalingOf(steps, 'proportional');
  return rotatedPairs > 0 && rotatedPairs < steps.pairs;
});

/** Pairs that are left when partial_rotary_factor is multiplied in once more. */
function twicePartial({ pairs, rotaryDim, headDim }: RopeSteps): number {
  return Math.floor((pairs * rotaryDim) / headDim);
}

/** The entries of cause B. */
export const PARTIAL_ROTARY: readonly Mutant[] = mutantsOf('B', [
  {
    id: 'frequencies-over-head-dim',
    does: 'Divides the exponent by head_dim where rotary_dim is meant.',
    threads: ['pie-project/pie#603'],
    needs: [COMPUTED, PARTIAL],
    change: (steps) => withSpec(steps, { frequencyDim: steps.headDim }),
  },
  {
    id: 'pair-distance-half-a-head',
    does: 'Pairs (j, j + head_dim/2) where (j, j + rotary_dim/2) is meant.',
    threads: ['pie-project/pie#603'],
    needs: [
      PARTIAL,
      HALF,
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
  {
    id: 'whole-head-rotated',
    does: 'Rotates all of head_dim where only rotary_dim is meant.',
    threads: [
      'vllm-project/vllm#43676',
      'ROCm/aiter#2199',
      'microsoft/onnxruntime#29261',
      'AI-Hypercomputer/maxtext#4615',
    ],
    needs: [
      COMPUTED,
      PARTIAL,
      ONE_PAIRING,
      // Factors by pair do not reach that far: such a kernel would read past their end.
      need(
        'no factors by pair',
        (steps) => specOf(steps).scaling?.kind !== 'longrope' && specOf(steps).freqFactors === undefined,
      ),
      need('an even head_dim', ({ headDim }) => headDim % 2 === 0),
    ],
    change(steps) {
      const { headDim } = steps;
      const pairs = headDim / 2;
      const geometry = steps.plan.read.step === 2 ? { step: 2, gap: 1 } : { step: 1, gap: pairs };
      return {
        ...withGeometry(steps, geometry, geometry, 0),
        ...withSpec(steps, { rotaryDim: headDim, rotaryOffset: 0 }),
        pairs,
        rotaryDim: headDim,
        rotaryOffset: 0,
      };
    },
  },
  {
    id: 'rotary-factor-twice',
    does: 'Multiplies by partial_rotary_factor once more: rotates only that share of rotary_dim.',
    threads: ['huggingface/transformers#48652', 'ml-explore/mlx-lm#1698'],
    needs: [
      COMPUTED,
      PARTIAL,
      ONE_PAIRING,
      RULE_OF_ANY_SIZE,
      need('a pair left to rotate', (steps) => twicePartial(steps) >= 1),
    ],
    change(steps) {
      const pairs = twicePartial(steps);
      const geometry = steps.plan.read.step === 2 ? { step: 2, gap: 1 } : { step: 1, gap: pairs };
      return {
        ...withGeometry(steps, geometry, geometry),
        ...withSpec(steps, { rotaryDim: 2 * pairs }),
        pairs,
        rotaryDim: 2 * pairs,
      };
    },
  },
  {
    id: 'window-at-start',
    does: 'Rotates the first rotary_dim dimensions of the head, whatever offset the window has.',
    threads: ['raullenchai/Rapid-MLX#1225'],
    needs: [OFFSET],
    change: (steps) => ({
      readIndex: (j, k) => steps.readIndex(j, k) - steps.rotaryOffset,
      writeIndex: (j, k) => steps.writeIndex(j, k) - steps.rotaryOffset,
    }),
  },
  {
    id: 'window-at-end',
    does: 'Rotates the last rotary_dim dimensions of the head where the first are meant.',
    threads: ['raullenchai/Rapid-MLX#1225'],
    needs: [PARTIAL, need('a rotated window that starts at dimension 0', ({ rotaryOffset }) => rotaryOffset === 0)],
    change(steps) {
      const by = steps.headDim - steps.rotaryDim;
      return { readIndex: (j, k) => steps.readIndex(j, k) + by, writeIndex: (j, k) => steps.writeIndex(j, k) + by };
    },
  },
  {
    id: 'rest-not-copied',
    does: 'Leaves the dimensions that do not turn as they were in the output, zeros, instead of copying them.',
    threads: ['ggml-org/llama.cpp#4156', 'ggml-org/llama.cpp#14580'],
    needs: [PARTIAL],
    change: () => ({ beside: () => 0 }),
  },
]);

/** The entries of cause C. */
export const PROPORTIONAL_FREQUENCIES: readonly Mutant[] = mutantsOf('C', [
  {
    id: 'proportional-over-rotated',
    does: 'Divides the exponent by the dimensions that turn where proportional frequencies divide by head_dim.',
    threads: ['pegainfer-project/pegainfer#820'],
    needs: [PROPORTIONAL, SOME_TURN],
    change: (steps) => withSpec(steps, { frequencyDim: 2 * scalingOf(steps, 'proportional').rotatedPairs }),
  },
  {
    id: 'proportional-identity-pairs-turned',
    does: 'Turns every pair: the last ones, which proportional frequencies leave as they are, too.',
    threads: ['jagmarques/nexusquant#12'],
    needs: [PROPORTIONAL, SOME_TURN],
    change: (steps) => withScaling(steps, { kind: 'linear', factor: scalingOf(steps, 'proportional').factor ?? 1 }),
  },
  {
    id: 'proportional-block-in-front',
    does: 'Pairs within the leading block of dimensions that turn, (j, j + block/2), where pairs are (j, j + head_dim/2).',
    threads: ['NVIDIA-NeMo/Megatron-Bridge#4195', 'NVIDIA-NeMo/Megatron-Bridge#4196', 'apple/coreai-models#66'],
    needs: [PROPORTIONAL, SOME_TURN, HALF],
    change(steps) {
      const { rotatedPairs: pairs } = scalingOf(steps, 'proportional');
      const block = { step: 1, gap: pairs };
      return { ...withGeometry(steps, block, block), pairs };
    },
  },
  {
    id: 'proportional-as-partial',
    does: 'Takes proportional frequencies for plain partial rotary: a block in front, and the exponent divided by its size.',
    threads: ['zml/zml#660'],
    needs: [PROPORTIONAL, SOME_TURN, HALF],
    change(steps) {
      const { rotatedPairs: pairs } = scalingOf(steps, 'proportional');
      const block = { step: 1, gap: pairs };
      return { ...withGeometry(steps, block, block), ...withSpec(steps, { frequencyDim: 2 * pairs }), pairs };
    },
  },
  {
    id: 'proportional-factor-ignored',
    does: 'Leaves out the factor that divides proportional frequencies.',
    threads: ['jagmarques/nexusquant#12'],
    needs: [
      PROPORTIONAL,
      need('a factor other than 1 for them', (steps) => (scalingOf(steps, 'proportional').factor ?? 1) !== 1),
    ],
    change: (steps) => withScaling(steps, { ...scalingOf(steps, 'proportional'), factor: 1 }),
  },
]);
