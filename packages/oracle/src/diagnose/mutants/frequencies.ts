/**
 * Causes F, G and H: llama3 scaling and freq_factors, LongRoPE and dynamic NTK, base and parameters of each layer.
 *
 * @module
 */
import { dynamicNtkBase } from 'ropewalk/backend';
import type { Mutant } from '../mutant.js';
import type { Change, RopeSteps } from '../steps.js';
import {
  COMPUTED,
  DYNAMIC_NTK,
  FREQ_FACTORS,
  LINEAR,
  LLAMA3,
  LONGROPE,
  mutantsOf,
  type Need,
  need,
  plainFrequencies,
  scalingOf,
  specOf,
  withInvFreq,
  withMagnitude,
  withScaling,
  withSpec,
} from './entry.js';

/** Other factors in the place of the model's. */
function withFactors(steps: RopeSteps, of: (j: number, factors: ArrayLike<number>) => number): Change {
  const { freqFactors } = specOf(steps);
  return withSpec(steps, { freqFactors: Float64Array.from({ length: steps.pairs }, (_, j) => of(j, freqFactors!)) });
}

/** The entries of cause F. */
export const LLAMA3_FACTORS: readonly Mutant[] = mutantsOf('F', [
  {
    id: 'llama3-ignored',
    does: 'Leaves out llama3 scaling: rotates by plain frequencies.',
    threads: ['felafax/felafax#59', 'lablup/mlxcel#1355', 'jmaczan/tiny-vllm#1', 'InfiniTensor/InfiniCore#1200'],
    needs: [LLAMA3],
    change: (steps) => withScaling(steps, { kind: 'none' }),
  },
  {
    id: 'llama3-limits-swapped',
    does: 'Swaps low_freq_factor and high_freq_factor: no pair falls between, and the step is where the fast limit is.',
    threads: ['InfiniTensor/InfiniLM#392'],
    needs: [LLAMA3],
    change(steps) {
      const { factor, lowFreqFactor, originalContext } = scalingOf(steps, 'llama3');
      const plain = plainFrequencies(steps);
      return withInvFreq(steps, (j) =>
        (2 * Math.PI) / plain[j]! < originalContext / lowFreqFactor ? plain[j]! : plain[j]! / factor,
      );
    },
  },
  {
    id: 'llama3-no-smooth-step',
    does: 'Keeps or divides each frequency, with nothing between: pairs of medium wavelength are divided.',
    threads: ['huggingface/transformers#32330'],
    needs: [LLAMA3],
    change(steps) {
      const { factor, highFreqFactor, originalContext } = scalingOf(steps, 'llama3');
      const plain = plainFrequencies(steps);
      return withInvFreq(steps, (j) =>
        (2 * Math.PI) / plain[j]! < originalContext / highFreqFactor ? plain[j]! : plain[j]! / factor,
      );
    },
  },
  {
    id: 'llama3-as-linear',
    does: 'Divides every frequency by llama3’s factor, the fast ones too.',
    threads: ['lablup/mlxcel#1355'],
    needs: [LLAMA3],
    change: (steps) => withScaling(steps, { kind: 'linear', factor: scalingOf(steps, 'llama3').factor }),
  },
  {
    id: 'freq-factors-ignored',
    does: 'Leaves out freq_factors.',
    threads: ['ggml-org/llama.cpp#7495', 'ggml-org/llama.cpp#10540', 'ggml-org/llama.cpp#8676'],
    needs: [FREQ_FACTORS],
    change: (steps) => withFactors(steps, () => 1),
  },
  {
    id: 'freq-factors-multiplied',
    does: 'Multiplies frequencies by freq_factors instead of dividing.',
    threads: ['ggml-org/llama.cpp#8676'],
    needs: [FREQ_FACTORS],
    change: (steps) => withFactors(steps, (j, factors) => 1 / factors[j]!),
  },
  {
    id: 'freq-factors-one-pair-on',
    does: 'Takes the factor of pair j + 1 for pair j.',
    threads: ['ggml-org/llama.cpp#10540'],
    needs: [FREQ_FACTORS],
    change: (steps) => withFactors(steps, (j, factors) => factors[Math.min(j + 1, steps.pairs - 1)]!),
  },
  {
    id: 'freq-factors-by-dim',
    does: 'Reads freq_factors at dimension 2j instead of pair j; past their end it reads the last.',
    threads: ['ggml-org/llama.cpp#7495'],
    needs: [FREQ_FACTORS],
    change: (steps) => withFactors(steps, (j, factors) => factors[Math.min(2 * j, steps.pairs - 1)]!),
  },
]);

const SHORT: Need = {
  words: 'LongRoPE in a context that is not beyond the original one',
  holds: (steps) =>
    LONGROPE.holds(steps) && scalingOf(steps, 'longrope').context <= scalingOf(steps, 'longrope').originalContext,
};
const LONG: Need = {
  words: 'LongRoPE in a context beyond the original one',
  holds: (steps) => LONGROPE.holds(steps) && !SHORT.holds(steps),
};
const RAISED: Need = {
  words: 'dynamic NTK in a context beyond the original one',
  holds: (steps) =>
    DYNAMIC_NTK.holds(steps) && scalingOf(steps, 'dynamicNtk').context > scalingOf(steps, 'dynamicNtk').originalContext,
};

/** The entries of cause G. */
export const LONG_CONTEXT: readonly Mutant[] = mutantsOf('G', [
  {
    id: 'longrope-long-for-short',
    does: 'Takes LongRoPE’s long factors for every context, because more is allocated than is in use.',
    threads: ['ggml-org/llama.cpp#24823', 'ggml-org/llama.cpp#24875', 'trymirai/lalamo#326'],
    needs: [SHORT],
    change(steps) {
      const rule = scalingOf(steps, 'longrope');
      return withScaling(steps, { ...rule, shortFactor: rule.longFactor });
    },
  },
  {
    id: 'longrope-short-for-long',
    does: 'Takes LongRoPE’s short factors beyond the original context, because it looks at the tokens of one call.',
    threads: ['mlc-ai/mlc-llm#3375'],
    needs: [LONG],
    change(steps) {
      const rule = scalingOf(steps, 'longrope');
      return withScaling(steps, { ...rule, longFactor: rule.shortFactor });
    },
  },
  {
    id: 'longrope-factors-ignored',
    does: 'Leaves out LongRoPE’s factors: rotates by plain frequencies.',
    threads: ['ggml-org/llama.cpp#7225'],
    needs: [LONGROPE],
    change: (steps) => withScaling(steps, { kind: 'none' }),
  },
  {
    id: 'longrope-magnitude-missing',
    does: 'Leaves out LongRoPE’s magnitude.',
    threads: ['ggml-org/llama.cpp#8262'],
    needs: [LONGROPE, need('a magnitude other than 1', (steps) => steps.frequencies().attentionFactor !== 1)],
    change: (steps) => withMagnitude(steps, () => 1),
  },
  {
    id: 'ntk-ignored',
    does: 'Keeps the base beyond the original context.',
    threads: ['huggingface/transformers#27227'],
    needs: [RAISED],
    change: (steps) => withScaling(steps, { kind: 'none' }),
  },
  {
    id: 'ntk-always',
    does: 'Raises the base for the longest context there is, whatever context is in use.',
    threads: ['vllm-project/vllm#5093', 'vllm-project/vllm#3488'],
    needs: [
      DYNAMIC_NTK,
      need('a context other than the longest', (steps) => {
        const { context, originalContext, factor } = scalingOf(steps, 'dynamicNtk');
        return factor !== 1 && Math.max(context, originalContext) !== originalContext * factor;
      }),
    ],
    change(steps) {
      const rule = scalingOf(steps, 'dynamicNtk');
      return withScaling(steps, { ...rule, context: rule.originalContext * rule.factor });
    },
  },
  {
    id: 'ntk-exponent-one',
    does: 'Raises the base by the factor itself instead of its power dim/(dim − 2).',
    threads: ['QwenLM/Qwen#401'],
    needs: [RAISED],
    change(steps) {
      const { base } = specOf(steps);
      const { factor, context, originalContext } = scalingOf(steps, 'dynamicNtk');
      return withSpec(steps, {
        base: base * ((factor * context) / originalContext - (factor - 1)),
        scaling: { kind: 'none' },
      });
    },
  },
  {
    id: 'ntk-base-of-each-position',
    does: 'Rotates each token by the base of the context that ended with it, as cached keys of a growing context are.',
    threads: ['huggingface/transformers#25104', 'huggingface/transformers#25306', 'huggingface/transformers#27227'],
    needs: [RAISED],
    change(steps) {
      const spec = specOf(steps);
      const rule = scalingOf(steps, 'dynamicNtk');
      const dim = spec.frequencyDim ?? steps.rotaryDim;
      const { invFreq } = steps.frequencies();
      const right = dynamicNtkBase(spec.base, dim, rule);
      return {
        angle(position, j) {
          const base = dynamicNtkBase(spec.base, dim, { ...rule, context: Math.abs(position) + 1 });
          return position * invFreq[j]! * (right / base) ** ((2 * j) / dim);
        },
      };
    },
  },
]);

/** hidden_size / heads over head_dim in Mistral Nemo: 5120 / 32 = 160 over 128. */
const NEMO = 160 / 128;
/** Gemma 3's bases and factor: of its sliding-window layers, and of the others. */
const GEMMA = { local: 10000, global: 1000000, factor: 8 } as const;

/** The entries of cause H. */
export const LAYER_PARAMETERS: readonly Mutant[] = mutantsOf('H', [
  {
    id: 'base-default',
    does: 'Takes base 10000 whatever the model says.',
    threads: [
      'sgl-project/SpecForge#265',
      'deepspeedai/DeepSpeed#8341',
      'NVIDIA/TransformerEngine#849',
      'vllm-project/vllm#28542',
    ],
    needs: [COMPUTED, { words: 'a base other than 10000', holds: (steps) => specOf(steps).base !== GEMMA.local }],
    change: (steps) => withSpec(steps, { base: GEMMA.local }),
  },
  {
    id: 'base-of-other-layers',
    does: 'Rotates sliding-window layers, base 10000, by the other layers’ base, 1,000,000.',
    threads: ['google/gemma.cpp#986', 'ggml-org/llama.cpp#14367', 'huggingface/transformers#41922'],
    needs: [COMPUTED, { words: 'base 10000', holds: (steps) => specOf(steps).base === GEMMA.local }],
    change: (steps) => withSpec(steps, { base: GEMMA.global }),
  },
  {
    id: 'head-dim-from-hidden',
    does: 'Computes head_dim as hidden_size / heads for the exponent: 160 where Mistral Nemo says 128.',
    threads: ['huggingface/candle#2358', 'huggingface/transformers#32495', 'InternLM/lmdeploy#2761'],
    needs: [COMPUTED],
    change(steps) {
      const spec = specOf(steps);
      const right = spec.frequencyDim ?? (spec.pairing === 'vision' ? steps.rotaryDim / 2 : steps.rotaryDim);
      return withSpec(steps, { frequencyDim: right * NEMO });
    },
  },
  {
    id: 'exponent-of-odd-dimension',
    does: 'Takes 2j + 1 for 2j in the exponent: base^(−(2j + 1)/rotary_dim).',
    threads: ['stanford-cs336/assignment1-basics#22'],
    needs: [COMPUTED],
    change(steps) {
      const spec = specOf(steps);
      const dim = spec.frequencyDim ?? (spec.pairing === 'vision' ? steps.rotaryDim / 2 : steps.rotaryDim);
      return withInvFreq(steps, (j, right) => right[j]! * spec.base ** (-1 / dim));
    },
  },
  {
    id: 'linear-ignored',
    does: 'Leaves out linear scaling.',
    threads: ['lablup/mlxcel#1340', 'lablup/mlxcel#1386', 'Blaizzy/mlx-vlm#1709'],
    needs: [LINEAR],
    change: (steps) => withScaling(steps, { kind: 'none' }),
  },
  {
    id: 'linear-multiplied',
    does: 'Multiplies frequencies by the linear factor instead of dividing.',
    threads: ['lablup/mlxcel#1386'],
    needs: [LINEAR],
    change: (steps) => withScaling(steps, { kind: 'linear', factor: 1 / scalingOf(steps, 'linear').factor }),
  },
  {
    id: 'linear-of-other-layers',
    does: 'Divides the frequencies of layers without scaling by the other layers’ factor, 8 in Gemma 3.',
    threads: ['antonellof/ferrox#39'],
    needs: [
      COMPUTED,
      { words: 'a layer without scaling', holds: (steps) => (specOf(steps).scaling?.kind ?? 'none') === 'none' },
    ],
    change: (steps) => withScaling(steps, { kind: 'linear', factor: GEMMA.factor }),
  },
]);
