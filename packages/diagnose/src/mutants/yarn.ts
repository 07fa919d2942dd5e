/** Cause D, YaRN's magnitude, and cause E, YaRN's frequencies. @module */
import type { YarnScaling } from 'ropewalk/internal';
import { yarnMagnitude, yarnRampEdges } from 'ropewalk/internal';
import type { Mutant } from '../kernel/mutant.js';
import type { Change, RopeSteps } from '../kernel/steps.js';
import {
  type Entry,
  memberwise,
  mutantsOf,
  need,
  plainFrequencies,
  scalingOf,
  withInvFreq,
  withMagnitude,
  withPosition,
  withScaling,
  withSpec,
} from './entry.js';

const FACTOR = need('a factor other than 1', (steps) => scalingOf(steps, 'yarn').factor !== 1);
const TRUNCATED = need('truncate', (steps) => scalingOf(steps, 'yarn').truncate !== false);
const TWO_BETAS = need(
  'two different betas',
  (steps) => (scalingOf(steps, 'yarn').betaFast ?? 32) !== (scalingOf(steps, 'yarn').betaSlow ?? 1),
);
const ORIGINAL = need('an original context', (steps) => scalingOf(steps, 'yarn').originalContext > 0);

/** Computes 0.1·k·ln(factor) + 1, times ggml's attn_factor. */
function mscaleOf({ factor, attnFactor = 1 }: YarnScaling, k: number): number {
  return factor <= 1 ? attnFactor : (0.1 * k * Math.log(factor) + 1) * attnFactor;
}

export const YARN_MAGNITUDE: readonly Mutant[] = mutantsOf('D', ['magnitude'], {
  'magnitude-missing': {
    does: 'Leaves out the magnitude: rotated vectors keep their length.',
    threads: ['ikawrakow/ik_llama.cpp#1298', 'vllm-project/vllm#48351'],
    change: (steps) => withMagnitude(steps, () => 1),
  },
  'magnitude-squared': {
    does: 'Multiplies by the magnitude twice: in the table and in the rotation.',
    threads: ['ggml-org/llama.cpp#17945', 'sgl-project/sglang#22711'],
    change: (steps) => withMagnitude(steps, (m) => m * m),
  },
  'magnitude-square-root': {
    does: 'Multiplies q and k by the square root of the magnitude.',
    threads: ['turboderp-org/exllamav3#259'],
    change: (steps) => withMagnitude(steps, (m) => Math.sqrt(m)),
  },
  'magnitude-by-log10': {
    does: 'Computes YaRN’s magnitude with log10 instead of the natural logarithm: 0.1·log10(factor) + 1.',
    threads: ['ggml-org/llama.cpp#17945'],
    needs: [
      'yarn',
      FACTOR,
      need('a magnitude by YaRN’s own formula', (steps) => {
        const { mscale, mscaleAllDim } = scalingOf(steps, 'yarn');
        return (
          steps.spec.attentionFactor === undefined && !(mscale && mscaleAllDim) && scalingOf(steps, 'yarn').factor > 1
        );
      }),
    ],
    change(steps) {
      const { factor, attnFactor = 1 } = scalingOf(steps, 'yarn');
      return withMagnitude(steps, () => (0.1 * Math.log10(factor) + 1) * attnFactor);
    },
  },
  'magnitude-on-cos-only': {
    does: 'Multiplies cos by the magnitude, but not sin.',
    threads: ['ikawrakow/ik_llama.cpp#1298'],
    change(steps) {
      const { attentionFactor } = steps.frequencies();
      return {
        cosSin(this: RopeSteps, position, j) {
          const [cos, sin] = steps.cosSin.call(this, position, j);
          return [cos, sin / attentionFactor]; // the next step multiplies both
        },
      };
    },
  },
  'magnitude-on-whole-head': {
    does: 'Also multiplies the dimensions that do not rotate by the magnitude.',
    threads: ['raullenchai/Rapid-MLX#1225'],
    needs: ['magnitude', 'partial'],
    change(steps) {
      const { attentionFactor } = steps.frequencies();
      return { beside: (value) => value * attentionFactor };
    },
  },
  'attention-factor-ignored': {
    does: 'Computes the magnitude by its formula although the model gives an attention_factor.',
    threads: ['vllm-project/vllm#46280', 'ml-explore/mlx-lm#1507'],
    needs: ['yarn', 'attentionFactor'],
    change: (steps) => withMagnitude(steps, () => yarnMagnitude(scalingOf(steps, 'yarn'))),
  },
  'mscale-ignored': {
    does: 'Uses 0.1·ln(factor) + 1 although the model gives mscale and mscale_all_dim.',
    threads: ['Avarok-Cybersecurity/atlas#342', 'ggml-org/llama.cpp#17945'],
    needs: ['yarn', 'mscales'],
    change: (steps) => withMagnitude(steps, () => mscaleOf(scalingOf(steps, 'yarn'), 1)),
  },
  'mscale-all-dim-ignored': {
    does: 'Computes the magnitude from mscale alone, without dividing by that of mscale_all_dim.',
    threads: ['huggingface/transformers#47435'],
    needs: ['yarn', 'mscales'],
    change(steps) {
      const scaling = scalingOf(steps, 'yarn');
      return withMagnitude(steps, () => mscaleOf(scaling, scaling.mscale!));
    },
  },
});

/** The edges of the model's ramp, in pairs. */
function edgesOf(steps: RopeSteps): [low: number, high: number] {
  return yarnRampEdges(scalingOf(steps, 'yarn'), steps.spec.base, steps.exponentDim);
}

/** Mixes as YaRN does, with another ramp for pair j: 0 keeps the frequency, 1 divides it by factor. */
function withRamp(steps: RopeSteps, ramp: (j: number) => number): Change {
  const { factor, extFactor = 1 } = scalingOf(steps, 'yarn');
  const unscaled = unscaledOf(steps);
  return withInvFreq(steps, (j) => {
    const mix = (1 - Math.min(1, Math.max(0, ramp(j)))) * extFactor;
    return (unscaled[j]! / factor) * (1 - mix) + unscaled[j]! * mix;
  });
}

/** The ramp from one pair to another. */
const ramp = (j: number, low: number, high: number): number => (j - low) / Math.max(0.001, high - low);

/** The frequencies before YaRN, divided by freq_factors. */
function unscaledOf(steps: RopeSteps): Float64Array {
  const { freqFactors } = steps.spec;
  return plainFrequencies(steps).map((f, j) => f / (freqFactors ? freqFactors[j]! : 1));
}

/** Exchanges the two betas of YaRN. */
const betasSwapped = ({ betaFast = 32, betaSlow = 1 }: YarnScaling): Partial<YarnScaling> => ({
  betaFast: betaSlow,
  betaSlow: betaFast,
});

/** Takes other parameters of YaRN. */
function yarnWith(of: (yarn: YarnScaling) => Partial<YarnScaling>): Entry['change'] {
  return (steps) => {
    const yarn = scalingOf(steps, 'yarn');
    return withScaling(steps, { ...yarn, ...of(yarn) });
  };
}

export const YARN_FREQUENCIES: readonly Mutant[] = mutantsOf('E', ['yarn', FACTOR], {
  'yarn-betas-swapped': {
    does: 'Swaps beta_fast and beta_slow. In HuggingFace’s formula this reverses the ramp.',
    threads: ['pytorch/torchtitan#3787'],
    needs: ['yarn', TWO_BETAS, ORIGINAL, FACTOR],
    change(steps) {
      const yarn = scalingOf(steps, 'yarn');
      const [low, high] = yarnRampEdges({ ...yarn, ...betasSwapped(yarn) }, steps.spec.base, steps.exponentDim);
      // transformers linear_ramp_factor: only equal edges are moved apart, so the slope may be negative.
      return withRamp(steps, (j) => (j - low) / (high === low ? 0.001 : high - low));
    },
  },
  'yarn-betas-swapped-in-ggml': {
    does: 'Swaps beta_fast and beta_slow. In ggml’s formula the ramp becomes a step at its slow end.',
    threads: ['pytorch/torchtitan#3787'],
    needs: ['yarn', TWO_BETAS, ORIGINAL],
    change: yarnWith(betasSwapped),
  },
  'yarn-ignored': {
    does: 'Leaves out YaRN: rotates by plain frequencies, without a magnitude.',
    threads: ['ModelTC/LightLLM#1582', 'huggingface/text-generation-inference#2078'],
    change: (steps) => withSpec(steps, { scaling: { kind: 'none' }, attentionFactor: 1 }),
  },
  'yarn-frequencies-ignored': {
    does: 'Rotates by plain frequencies and multiplies by YaRN’s magnitude.',
    threads: ['ModelTC/LightLLM#1582'],
    change: (steps) => withScaling(steps, { kind: 'none' }),
  },
  'yarn-always-truncated': {
    does: 'Rounds the ramp’s edges to whole pairs although the model says truncate=false.',
    threads: ['vllm-project/vllm#27722', 'vllm-project/vllm#28244', 'sgl-project/sglang#14270'],
    needs: ['yarn', 'untruncated', ORIGINAL],
    change: yarnWith(() => ({ truncate: true })),
  },
  'yarn-never-truncated': {
    does: 'Does not round the ramp’s edges to whole pairs, which is the default.',
    threads: ['keras-team/keras-hub#2981', 'apache/tvm#18576'],
    needs: ['yarn', TRUNCATED, ORIGINAL],
    change: yarnWith(() => ({ truncate: false })),
  },
  'yarn-context-extended': {
    does: 'Places the ramp by the extended context instead of the original one.',
    threads: ['jingyaogong/minimind#602'],
    needs: ['yarn', FACTOR, ORIGINAL],
    change: yarnWith(({ originalContext, factor }) => ({ originalContext: originalContext * factor })),
  },
  'yarn-ext-factor-ignored': {
    does: 'Ignores ext_factor: mixes in all of the extrapolation instead of a share.',
    threads: ['ggml-org/llama.cpp#3974'],
    needs: [
      'yarn',
      need('an ext_factor other than 1', (steps) => (scalingOf(steps, 'yarn').extFactor ?? 1) !== 1),
      FACTOR,
    ],
    change: yarnWith(() => ({ extFactor: 1 })),
  },
  'yarn-mix-by-factor': {
    does: 'Takes the factor for ext_factor, so that the mix goes beyond 1: fast pairs rotate backward or far too fast.',
    threads: ['ikawrakow/ik_llama.cpp#2003'],
    change: yarnWith(({ factor }) => ({ extFactor: factor })),
  },
  'yarn-ramp-of-first-pair': {
    does: 'Uses the ramp of pair 0 for every pair.',
    threads: ['ggml-org/llama.cpp#4093'],
    change: (steps) => withRamp(steps, () => ramp(0, ...edgesOf(steps))),
  },
  'yarn-as-clamped-positions': {
    does: 'Divides positions by factor and limits them to the original context, with plain frequencies and no magnitude.',
    threads: ['rasbt/LLMs-from-scratch#939'],
    needs: ['yarn', FACTOR, ORIGINAL],
    change(steps) {
      const { factor, originalContext } = scalingOf(steps, 'yarn');
      return {
        ...withSpec(steps, { scaling: { kind: 'none' }, attentionFactor: 1 }),
        ...withPosition(steps, (p) => Math.min(p / factor, originalContext - 1)),
      };
    },
  },
  'yarn-ramp-reversed': {
    does: 'Reverses the ramp: divides the frequencies of fast pairs by factor and keeps those of slow pairs.',
    threads: ['pytorch/torchtitan#3787'],
    change: (steps) => withRamp(steps, (j) => 1 - Math.min(1, Math.max(0, ramp(j, ...edgesOf(steps))))),
  },
  'yarn-clamped-at-pairs': {
    does: 'Limits the ramp’s upper edge to rotary_dim/2 − 1 instead of rotary_dim − 1.',
    threads: ['keras-team/keras-hub#2981', 'jingyaogong/minimind#602'],
    needs: [
      'yarn',
      FACTOR,
      need('a ramp that reaches past the last pair', (steps) => edgesOf(steps)[1] > steps.pairs - 1),
    ],
    change: (steps) => withRamp(steps, (j) => ramp(j, edgesOf(steps)[0], steps.pairs - 1)),
  },
  'yarn-ramp-over-dims': {
    does: 'Computes the ramp at dimension 2j instead of pair j: it ends at half of the pairs.',
    threads: ['apache/tvm#18661'],
    needs: ['yarn', FACTOR, ORIGINAL],
    change: (steps) => withRamp(steps, (j) => ramp(2 * j, ...edgesOf(steps))),
  },
  'yarn-ramp-by-element': {
    does: 'Computes the ramp at the element’s own index: the two members of a half pair get different frequencies.',
    threads: ['apache/tvm#18576'],
    needs: ['yarn', FACTOR, 'half'],
    change: (steps) =>
      memberwise(
        steps,
        withRamp(steps, (j) => ramp(j, ...edgesOf(steps))),
        withRamp(steps, (j) => ramp(j + steps.pairs, ...edgesOf(steps))),
      ),
  },
  'yarn-factor-in-power': {
    does: 'Multiplies the base by factor, inside the power, instead of dividing the frequency by factor.',
    threads: ['apache/tvm#18576'],
    change(steps) {
      const { factor } = scalingOf(steps, 'yarn');
      const unscaled = unscaledOf(steps);
      const plain = plainFrequencies(steps);
      const { base } = steps.spec;
      return withInvFreq(steps, (j, right) => {
        // The share of the interpolated frequency in the right mix; the wrong one is base^e → (factor·base)^e.
        const share = (unscaled[j]! - right[j]!) / (unscaled[j]! - unscaled[j]! / factor);
        const wrong = unscaled[j]! * factor ** (Math.log(plain[j]!) / Math.log(base));
        return unscaled[j]! * (1 - share) + wrong * share;
      });
    },
  },
  'yarn-as-linear': {
    does: 'Divides every frequency by factor: no ramp.',
    threads: ['jingyaogong/minimind#602'],
    change: (steps) => withScaling(steps, { kind: 'linear', factor: scalingOf(steps, 'yarn').factor }),
  },
  'ext-factor-as-zero': {
    does: 'Takes ext_factor for 0: divides every frequency by factor, and leaves the magnitude at attn_factor.',
    threads: ['ggml-org/llama.cpp#10540'],
    change(steps) {
      const { factor, attnFactor = 1 } = scalingOf(steps, 'yarn');
      const { attentionFactor = attnFactor } = steps.spec;
      return withSpec(steps, { scaling: { kind: 'linear', factor }, attentionFactor });
    },
  },
  'yarn-as-llama3': {
    does: 'Treats every unknown kind of scaling as llama3’s, with low_freq_factor 1 and high_freq_factor 4.',
    threads: ['NVIDIA-NeMo/Automodel#2825'],
    needs: ['yarn', FACTOR, ORIGINAL],
    change(steps) {
      const { factor, originalContext } = scalingOf(steps, 'yarn');
      return withSpec(steps, {
        scaling: { kind: 'llama3', factor, originalContext, lowFreqFactor: 1, highFreqFactor: 4 },
        attentionFactor: 1,
      });
    },
  },
  'yarn-not-in-backward': {
    does: 'Has YaRN in the forward direction only: gradients are rotated back by plain frequencies without a magnitude.',
    threads: ['ggml-org/llama.cpp#3974'],
    needs: ['yarn', 'backward'],
    change: (steps) => withSpec(steps, { scaling: { kind: 'none' }, attentionFactor: 1 }),
  },
});
