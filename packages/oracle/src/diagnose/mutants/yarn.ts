/**
 * Cause D, YaRN's magnitude, and cause E, YaRN's frequencies.
 *
 * @module
 */
import type { YarnScaling } from 'ropewalk';
import { yarnMagnitude, yarnRampEdges } from 'ropewalk/backend';
import type { Mutant } from '../mutant.js';
import { type Change, changed, type RopeSteps } from '../steps.js';
import {
  BACKWARD,
  type Entry,
  HALF,
  MAGNITUDE,
  memberwise,
  mutantsOf,
  need,
  PARTIAL,
  plainFrequencies,
  scalingOf,
  specOf,
  withInvFreq,
  withMagnitude,
  withScaling,
  withSpec,
  YARN,
} from './entry.js';

const MSCALES = need('mscale and mscale_all_dim', (steps) => {
  const { mscale, mscaleAllDim } = scalingOf(steps, 'yarn');
  return Boolean(mscale && mscaleAllDim) && specOf(steps).attentionFactor === undefined;
});
const GIVEN = need('an attention_factor that the formula does not give', (steps) => {
  const { attentionFactor } = specOf(steps);
  return attentionFactor !== undefined && attentionFactor !== yarnMagnitude(scalingOf(steps, 'yarn'));
});
const FACTOR = need('a factor other than 1', (steps) => scalingOf(steps, 'yarn').factor !== 1);
const TRUNCATED = need('truncate', (steps) => scalingOf(steps, 'yarn').truncate !== false);
const ORIGINAL = need('an original context', (steps) => scalingOf(steps, 'yarn').originalContext > 0);

/** 0.1·k·ln(factor) + 1, times what ggml's attn_factor says. */
function mscaleOf({ factor, attnFactor = 1 }: YarnScaling, k: number): number {
  return factor <= 1 ? attnFactor : (0.1 * k * Math.log(factor) + 1) * attnFactor;
}

/** The entries of cause D. */
export const YARN_MAGNITUDE: readonly Mutant[] = mutantsOf('D', [
  {
    id: 'magnitude-missing',
    does: 'Leaves out the magnitude: rotated vectors keep their length.',
    threads: ['ikawrakow/ik_llama.cpp#1298', 'vllm-project/vllm#48351'],
    needs: [MAGNITUDE],
    change: (steps) => withMagnitude(steps, () => 1),
  },
  {
    id: 'magnitude-squared',
    does: 'Multiplies by the magnitude twice: into the table, and again when it rotates.',
    threads: ['ggml-org/llama.cpp#17945', 'sgl-project/sglang#22711'],
    needs: [MAGNITUDE],
    change: (steps) => withMagnitude(steps, (m) => m * m),
  },
  {
    id: 'magnitude-square-root',
    does: 'Multiplies q and k by the square root of the magnitude each.',
    threads: ['turboderp-org/exllamav3#259'],
    needs: [MAGNITUDE],
    change: (steps) => withMagnitude(steps, (m) => Math.sqrt(m)),
  },
  {
    id: 'magnitude-on-cos-only',
    does: 'Multiplies cos by the magnitude, but not sin.',
    threads: ['ikawrakow/ik_llama.cpp#1298'],
    needs: [MAGNITUDE],
    change(steps) {
      const { attentionFactor } = steps.frequencies();
      return {
        cosSin(position, j) {
          const [cos, sin] = steps.cosSin(position, j);
          return [cos, sin / attentionFactor]; // what comes after multiplies both
        },
      };
    },
  },
  {
    id: 'magnitude-on-whole-head',
    does: 'Multiplies the dimensions that do not turn by the magnitude, too.',
    threads: ['raullenchai/Rapid-MLX#1225'],
    needs: [MAGNITUDE, PARTIAL],
    change(steps) {
      const { attentionFactor } = steps.frequencies();
      return { beside: (value) => value * attentionFactor };
    },
  },
  {
    id: 'attention-factor-ignored',
    does: 'Computes the magnitude by its formula although the model gives its attention_factor.',
    threads: ['vllm-project/vllm#46280', 'ml-explore/mlx-lm#1507'],
    needs: [YARN, GIVEN],
    change: (steps) => withMagnitude(steps, () => yarnMagnitude(scalingOf(steps, 'yarn'))),
  },
  {
    id: 'mscale-ignored',
    does: 'Takes 0.1·ln(factor) + 1 although the model gives mscale and mscale_all_dim.',
    threads: ['Avarok-Cybersecurity/atlas#342', 'ggml-org/llama.cpp#17945'],
    needs: [YARN, MSCALES],
    change: (steps) => withMagnitude(steps, () => mscaleOf(scalingOf(steps, 'yarn'), 1)),
  },
  {
    id: 'mscale-all-dim-ignored',
    does: 'Takes the magnitude from mscale alone, without dividing by that of mscale_all_dim.',
    threads: ['huggingface/transformers#47435'],
    needs: [YARN, MSCALES],
    change(steps) {
      const scaling = scalingOf(steps, 'yarn');
      return withMagnitude(steps, () => mscaleOf(scaling, scaling.mscale!));
    },
  },
]);

/** The edges of the ramp in pairs, as the model has them. */
function edgesOf(steps: RopeSteps, scaling: YarnScaling): [low: number, high: number] {
  const spec = specOf(steps);
  return yarnRampEdges(
    scaling,
    spec.base,
    spec.frequencyDim ?? (spec.pairing === 'vision' ? steps.rotaryDim / 2 : steps.rotaryDim),
  );
}

/**
 * YaRN's mix with a ramp of the mutant's own: 0 keeps the frequency, 1 divides it by factor.
 *
 * @param ramp - of pair j, within [0, 1]
 */
function withRamp(steps: RopeSteps, ramp: (j: number) => number): Change {
  const { factor, extFactor = 1 } = scalingOf(steps, 'yarn');
  const unscaled = unscaledOf(steps);
  return withInvFreq(steps, (j) => {
    const mix = (1 - Math.min(1, Math.max(0, ramp(j)))) * extFactor;
    return (unscaled[j]! / factor) * (1 - mix) + unscaled[j]! * mix;
  });
}

/** Frequencies before YaRN, freq_factors in them. */
function unscaledOf(steps: RopeSteps): Float64Array {
  const { freqFactors } = specOf(steps);
  return plainFrequencies(steps).map((f, j) => f / (freqFactors ? freqFactors[j]! : 1));
}

/** A mutant that gets one of YaRN's parameters wrong. */
function parameter(entry: Omit<Entry, 'change'>, of: (yarn: YarnScaling) => Partial<YarnScaling>): Entry {
  return {
    ...entry,
    needs: [YARN, ...(entry.needs ?? [])],
    change(steps) {
      const yarn = scalingOf(steps, 'yarn');
      return withScaling(steps, { ...yarn, ...of(yarn) });
    },
  };
}

/** The entries of cause E. */
export const YARN_FREQUENCIES: readonly Mutant[] = mutantsOf('E', [
  parameter(
    {
      id: 'yarn-betas-swapped',
      does: 'Swaps beta_fast and beta_slow.',
      threads: ['pytorch/torchtitan#3787'],
      needs: [
        need(
          'two different betas',
          (steps) => (scalingOf(steps, 'yarn').betaFast ?? 32) !== (scalingOf(steps, 'yarn').betaSlow ?? 1),
        ),
        ORIGINAL,
      ],
    },
    ({ betaFast = 32, betaSlow = 1 }) => ({ betaFast: betaSlow, betaSlow: betaFast }),
  ),
  parameter(
    {
      id: 'yarn-always-truncated',
      does: 'Rounds the ramp’s edges to whole pairs although the model says truncate=false.',
      threads: ['vllm-project/vllm#27722', 'vllm-project/vllm#28244', 'sgl-project/sglang#14270'],
      needs: [need('truncate=false', (steps) => scalingOf(steps, 'yarn').truncate === false), ORIGINAL],
    },
    () => ({ truncate: true }),
  ),
  parameter(
    {
      id: 'yarn-never-truncated',
      does: 'Does not round the ramp’s edges to whole pairs, which is the default.',
      threads: ['keras-team/keras-hub#2981', 'apache/tvm#18576'],
      needs: [TRUNCATED, ORIGINAL],
    },
    () => ({ truncate: false }),
  ),
  parameter(
    {
      id: 'yarn-context-extended',
      does: 'Puts the ramp where the extended context would have it, not the original one.',
      threads: ['jingyaogong/minimind#602'],
      needs: [FACTOR, ORIGINAL],
    },
    ({ originalContext, factor }) => ({ originalContext: originalContext * factor }),
  ),
  parameter(
    {
      id: 'yarn-ext-factor-ignored',
      does: 'Takes ext_factor for 1: mixes in all of the extrapolation instead of a share.',
      threads: ['ggml-org/llama.cpp#3974'],
      needs: [need('an ext_factor other than 1', (steps) => (scalingOf(steps, 'yarn').extFactor ?? 1) !== 1), FACTOR],
    },
    () => ({ extFactor: 1 }),
  ),
  {
    id: 'yarn-ramp-reversed',
    does: 'Turns the ramp round: divides the fast pairs’ frequencies by factor and keeps the slow ones’.',
    threads: ['pytorch/torchtitan#3787'],
    needs: [YARN, FACTOR],
    change(steps) {
      const [low, high] = edgesOf(steps, scalingOf(steps, 'yarn'));
      return withRamp(steps, (j) => 1 - Math.min(1, Math.max(0, (j - low) / Math.max(0.001, high - low))));
    },
  },
  {
    id: 'yarn-clamped-at-pairs',
    does: 'Limits the ramp’s upper edge to rotary_dim/2 − 1 where rotary_dim − 1 is meant.',
    threads: ['keras-team/keras-hub#2981', 'jingyaogong/minimind#602'],
    needs: [
      YARN,
      FACTOR,
      need(
        'a ramp that reaches past the last pair',
        (steps) => edgesOf(steps, scalingOf(steps, 'yarn'))[1] > steps.pairs - 1,
      ),
    ],
    change(steps) {
      const [low] = edgesOf(steps, scalingOf(steps, 'yarn'));
      return withRamp(steps, (j) => (j - low) / Math.max(0.001, steps.pairs - 1 - low));
    },
  },
  {
    id: 'yarn-ramp-over-dims',
    does: 'Walks the ramp by dimension 2j instead of pair j: it ends at half of the pairs.',
    threads: ['apache/tvm#18661'],
    needs: [YARN, FACTOR, ORIGINAL],
    change(steps) {
      const [low, high] = edgesOf(steps, scalingOf(steps, 'yarn'));
      return withRamp(steps, (j) => (2 * j - low) / Math.max(0.001, high - low));
    },
  },
  {
    id: 'yarn-ramp-by-element',
    does: 'Walks the ramp by the element’s own index: the two members of a half pair get different frequencies.',
    threads: ['apache/tvm#18576'],
    needs: [YARN, FACTOR, HALF],
    change(steps) {
      const [low, high] = edgesOf(steps, scalingOf(steps, 'yarn'));
      const rampOf = (i: number): number => (i - low) / Math.max(0.001, high - low);
      const first = changed(
        steps,
        withRamp(steps, (j) => rampOf(j)),
      );
      const second = changed(
        steps,
        withRamp(steps, (j) => rampOf(j + steps.pairs)),
      );
      return memberwise(steps, first, second);
    },
  },
  {
    id: 'yarn-factor-in-power',
    does: 'Multiplies the base by factor, inside the power, instead of dividing the frequency by it.',
    threads: ['apache/tvm#18576'],
    needs: [YARN, FACTOR],
    change(steps) {
      const { factor } = scalingOf(steps, 'yarn');
      const unscaled = unscaledOf(steps);
      const plain = plainFrequencies(steps);
      const { base } = specOf(steps);
      return withInvFreq(steps, (j, right) => {
        // How much of the interpolated frequency is in the right mix, and that share of the wrong one: base^e → (factor·base)^e.
        const share = (unscaled[j]! - right[j]!) / (unscaled[j]! - unscaled[j]! / factor);
        const wrong = unscaled[j]! * factor ** (Math.log(plain[j]!) / Math.log(base));
        return unscaled[j]! * (1 - share) + wrong * share;
      });
    },
  },
  {
    id: 'yarn-as-linear',
    does: 'Divides every frequency by factor: no ramp.',
    threads: ['jingyaogong/minimind#602'],
    needs: [YARN, FACTOR],
    change: (steps) => withScaling(steps, { kind: 'linear', factor: scalingOf(steps, 'yarn').factor }),
  },
  {
    id: 'yarn-as-llama3',
    does: 'Takes every kind of scaling it does not know for llama3’s, with low_freq_factor 1 and high_freq_factor 4.',
    threads: ['NVIDIA-NeMo/Automodel#2825'],
    needs: [YARN, FACTOR, ORIGINAL],
    change(steps) {
      const { factor, originalContext } = scalingOf(steps, 'yarn');
      return withSpec(steps, {
        scaling: { kind: 'llama3', factor, originalContext, lowFreqFactor: 1, highFreqFactor: 4 },
        attentionFactor: 1,
      });
    },
  },
  {
    id: 'yarn-not-in-backward',
    does: 'Knows YaRN in the forward direction only: gradients are turned back by plain frequencies, with no magnitude.',
    threads: ['ggml-org/llama.cpp#3974'],
    needs: [YARN, BACKWARD],
    change: (steps) => withSpec(steps, { scaling: { kind: 'none' }, attentionFactor: 1 }),
  },
]);
