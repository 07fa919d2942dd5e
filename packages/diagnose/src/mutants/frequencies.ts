/**
 * Causes F, G and H: llama3 scaling and freq_factors, LongRoPE and dynamic NTK, base and parameters of each layer.
 * @module
 */
import type { RopeScaling } from 'ropewalk';
import { dynamicNtkBase } from 'ropewalk/internal';
import type { Mutant, Need } from '../kernel/mutant.js';
import type { Change, RopeSteps } from '../kernel/steps.js';
import {
  mutantsOf,
  NEEDS,
  need,
  plainFrequencies,
  scalingOf,
  withInvFreq,
  withMagnitude,
  withPlain,
  withPosition,
  withScaling,
  withSpec,
} from './entry.js';

/** The factor of the base, before its power, that dynamic NTK has without the limit at the original context. */
function ntkAlpha({ factor, context, originalContext }: Extract<RopeScaling, { kind: 'dynamicNtk' }>): number {
  return (factor * context) / originalContext - (factor - 1);
}

/** Takes other freq_factors than the model's. */
function withFactors(steps: RopeSteps, of: (j: number, factors: ArrayLike<number>) => number): Change {
  const { freqFactors } = steps.spec;
  return withSpec(steps, {
    freqFactors: Float64Array.from({ length: steps.pairs }, (_, j) => of(j, freqFactors!)),
  });
}

/** Keeps frequencies whose wavelength is shorter than originalContext / limit, and divides the others. */
function llama3Step(steps: RopeSteps, limit: number): Change {
  const { factor, originalContext } = scalingOf(steps, 'llama3');
  const plain = plainFrequencies(steps);
  return withInvFreq(steps, (j) => {
    return (2 * Math.PI) / plain[j]! < originalContext / limit ? plain[j]! : plain[j]! / factor;
  });
}

/** The share of its own frequency that each pair keeps, before it is limited to 0 to 1. */
function llama3Shares(steps: RopeSteps): Float64Array {
  const { originalContext, lowFreqFactor, highFreqFactor } = scalingOf(steps, 'llama3');
  return plainFrequencies(steps).map(
    (f) => ((originalContext * f) / (2 * Math.PI) - lowFreqFactor) / (highFreqFactor - lowFreqFactor),
  );
}

export const LLAMA3_FACTORS: readonly Mutant[] = mutantsOf('F', ['llama3'], {
  'llama3-ignored': {
    does: 'Leaves out llama3 scaling: rotates by plain frequencies.',
    threads: ['felafax/felafax#59', 'lablup/mlxcel#1355', 'jmaczan/tiny-vllm#1', 'InfiniTensor/InfiniCore#1200'],
    change: (steps) => withScaling(steps, { kind: 'none' }),
  },
  'llama3-limits-swapped': {
    does: 'Swaps low_freq_factor and high_freq_factor, or has no band between them: all wavelengths up to the longer limit are kept.',
    threads: ['InfiniTensor/InfiniLM#392'],
    change: (steps) => llama3Step(steps, scalingOf(steps, 'llama3').lowFreqFactor),
  },
  'llama3-no-smooth-step': {
    does: 'Keeps or divides each frequency without a smooth step: pairs of medium wavelength are divided, as by HuggingFace’s code with the two limits swapped.',
    threads: ['huggingface/transformers#32330'],
    change: (steps) => llama3Step(steps, scalingOf(steps, 'llama3').highFreqFactor),
  },
  'llama3-step-in-the-middle': {
    does: 'Keeps or divides each frequency without a smooth step, whichever is nearer.',
    threads: ['huggingface/transformers#32330'],
    change(steps) {
      const { lowFreqFactor, highFreqFactor } = scalingOf(steps, 'llama3');
      return llama3Step(steps, (lowFreqFactor + highFreqFactor) / 2);
    },
  },
  'llama3-smooth-reversed': {
    does: 'Swaps the two shares of the mix: between the limits, the longer wavelengths are the less divided.',
    threads: ['huggingface/transformers#32330'],
    needs: ['llama3', need('a pair between the limits', (steps) => llama3Shares(steps).some((s) => s > 0 && s < 1))],
    change(steps) {
      const { factor } = scalingOf(steps, 'llama3');
      const plain = plainFrequencies(steps);
      const shares = llama3Shares(steps);
      return withInvFreq(steps, (j, right) =>
        shares[j]! > 0 && shares[j]! < 1 ? shares[j]! * (plain[j]! / factor) + (1 - shares[j]!) * plain[j]! : right[j]!,
      );
    },
  },
  'llama3-wavelength-without-two-pi': {
    does: 'Takes 1/frequency for the wavelength, without 2π: both limits lie where wavelengths are 2π times as long.',
    threads: ['huggingface/transformers#32330'],
    change(steps) {
      const rule = scalingOf(steps, 'llama3');
      return withScaling(steps, { ...rule, originalContext: rule.originalContext * 2 * Math.PI });
    },
  },
  'llama3-as-linear': {
    does: 'Divides every frequency by llama3’s factor, even the fast ones.',
    threads: ['lablup/mlxcel#1355'],
    change: (steps) => withScaling(steps, { kind: 'linear', factor: scalingOf(steps, 'llama3').factor }),
  },
  'freq-factors-ignored': {
    does: 'Leaves out freq_factors.',
    threads: ['ggml-org/llama.cpp#7495', 'ggml-org/llama.cpp#10540', 'ggml-org/llama.cpp#8676'],
    needs: ['freqFactors'],
    change: (steps) => withFactors(steps, () => 1),
  },
  'freq-factors-multiplied': {
    does: 'Multiplies frequencies by freq_factors instead of dividing.',
    threads: ['ggml-org/llama.cpp#8676'],
    needs: ['freqFactors'],
    change: (steps) => withFactors(steps, (j, factors) => 1 / factors[j]!),
  },
  'freq-factors-one-pair-on': {
    does: 'Uses the factor of pair j + 1 for pair j.',
    threads: ['ggml-org/llama.cpp#10540'],
    needs: ['freqFactors'],
    change: (steps) => withFactors(steps, (j, factors) => factors[Math.min(j + 1, steps.pairs - 1)]!),
  },
  'freq-factors-by-dim': {
    does: 'Reads freq_factors at dimension 2j instead of pair j; past the end it reads the last one.',
    threads: ['ggml-org/llama.cpp#7495'],
    needs: ['freqFactors'],
    change: (steps) => withFactors(steps, (j, factors) => factors[Math.min(2 * j, steps.pairs - 1)]!),
  },
});

/** The need of a context beyond the original one, or of none. */
function contextOf(kind: 'longrope' | 'dynamicNtk', words: string, isBeyond: boolean): Need {
  const holds = (steps: RopeSteps): boolean => {
    const { context, originalContext } = scalingOf(steps, kind);
    return context > originalContext === isBeyond;
  };
  return need(words, (steps) => NEEDS[kind].holds(steps) && holds(steps), NEEDS[kind]);
}

const SHORT = contextOf('longrope', 'LongRoPE in a context that is not beyond the original one', false);
const LONG = contextOf('longrope', 'LongRoPE in a context beyond the original one', true);
const RAISED = contextOf('dynamicNtk', 'dynamic NTK in a context beyond the original one', true);

export const LONG_CONTEXT: readonly Mutant[] = mutantsOf('G', [RAISED], {
  'longrope-long-for-short': {
    does: 'Uses LongRoPE’s long factors for every context, because it looks at the allocated length, not at the used one.',
    threads: ['ggml-org/llama.cpp#24823', 'ggml-org/llama.cpp#24875', 'trymirai/lalamo#326'],
    needs: [SHORT],
    change(steps) {
      const rule = scalingOf(steps, 'longrope');
      return withScaling(steps, { ...rule, shortFactor: rule.longFactor });
    },
  },
  'longrope-short-for-long': {
    does: 'Uses LongRoPE’s short factors beyond the original context, because it counts only the tokens of one call.',
    threads: ['mlc-ai/mlc-llm#3375'],
    needs: [LONG],
    change(steps) {
      const rule = scalingOf(steps, 'longrope');
      return withScaling(steps, { ...rule, longFactor: rule.shortFactor });
    },
  },
  'longrope-factors-ignored': {
    does: 'Leaves out LongRoPE’s factors: rotates by plain frequencies.',
    threads: ['ggml-org/llama.cpp#7225'],
    needs: ['longrope'],
    change: (steps) => withScaling(steps, { kind: 'none' }),
  },
  'longrope-factors-multiplied': {
    does: 'Multiplies frequencies by LongRoPE’s factors instead of dividing.',
    threads: ['ggml-org/llama.cpp#7225', 'lablup/mlxcel#1358'],
    needs: ['longrope'],
    change(steps) {
      const rule = scalingOf(steps, 'longrope');
      const inverse = (factors: ArrayLike<number>): Float64Array => Float64Array.from(factors, (f) => 1 / f);
      return withScaling(steps, {
        ...rule,
        shortFactor: inverse(rule.shortFactor),
        longFactor: inverse(rule.longFactor),
      });
    },
  },
  'longrope-factors-one-pair-on': {
    does: 'Uses LongRoPE’s factor of pair j + 1 for pair j.',
    threads: ['ggml-org/llama.cpp#10540'],
    needs: ['longrope', need('more than one pair of factors', ({ pairs }) => pairs > 1)],
    change(steps) {
      const rule = scalingOf(steps, 'longrope');
      const next = (factors: ArrayLike<number>): Float64Array =>
        Float64Array.from(factors, (_, j) => factors[Math.min(j + 1, factors.length - 1)]!);
      return withScaling(steps, { ...rule, shortFactor: next(rule.shortFactor), longFactor: next(rule.longFactor) });
    },
  },
  'longrope-magnitude-missing': {
    does: 'Leaves out LongRoPE’s magnitude.',
    threads: ['ggml-org/llama.cpp#8262'],
    needs: ['longrope', need('a magnitude other than 1', (steps) => steps.frequencies().attentionFactor !== 1)],
    change: (steps) => withMagnitude(steps, () => 1),
  },
  'ntk-ignored': {
    does: 'Keeps the base beyond the original context.',
    threads: ['huggingface/transformers#27227'],
    change: (steps) => withScaling(steps, { kind: 'none' }),
  },
  'ntk-always': {
    does: 'Raises the base for the longest context, whatever context is in use.',
    threads: ['vllm-project/vllm#5093', 'vllm-project/vllm#3488'],
    needs: [
      'dynamicNtk',
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
  'ntk-below-original': {
    does: 'Lowers the base when the context in use is shorter than the original one: the rule is used without its limit.',
    threads: ['vllm-project/vllm#52665'],
    needs: [
      'dynamicNtk',
      need('a context below the original one, above the original · (factor − 1) / factor', (steps) => {
        const rule = scalingOf(steps, 'dynamicNtk');
        return rule.context < rule.originalContext && ntkAlpha(rule) > 0;
      }),
    ],
    change(steps) {
      const rule = scalingOf(steps, 'dynamicNtk');
      const dim = steps.exponentDim;
      return withSpec(steps, {
        base: steps.spec.base * ntkAlpha(rule) ** (dim / (dim - 2)),
        scaling: { kind: 'none' },
      });
    },
  },
  'ntk-by-factor-alone': {
    does: 'Raises the base by the factor itself, base·factor^(dim/(dim − 2)), whatever context is in use.',
    threads: ['huggingface/transformers#48960'],
    needs: [
      'dynamicNtk',
      need('a context that raises the base by another factor', (steps) => {
        const { factor, context, originalContext } = scalingOf(steps, 'dynamicNtk');
        return (factor * Math.max(context, originalContext)) / originalContext - (factor - 1) !== factor;
      }),
    ],
    change(steps) {
      const { factor } = scalingOf(steps, 'dynamicNtk');
      const dim = steps.exponentDim;
      return withSpec(steps, { base: steps.spec.base * factor ** (dim / (dim - 2)), scaling: { kind: 'none' } });
    },
  },
  'ntk-exponent-one': {
    does: 'Multiplies the base by the factor itself instead of the factor to the power dim/(dim − 2).',
    threads: ['QwenLM/Qwen#401'],
    change(steps) {
      const { base } = steps.spec;
      const { factor, context, originalContext } = scalingOf(steps, 'dynamicNtk');
      return withSpec(steps, {
        base: base * ((factor * context) / originalContext - (factor - 1)),
        scaling: { kind: 'none' },
      });
    },
  },
  'ntk-base-of-each-position': {
    does: 'Rotates each token by the base of the context that ended with it, as when keys are cached while the context grows.',
    threads: ['huggingface/transformers#25104', 'huggingface/transformers#25306', 'huggingface/transformers#27227'],
    change(steps) {
      const spec = steps.spec;
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
});

/** hidden_size / heads over head_dim in Mistral Nemo: 5120 / 32 = 160 over 128. */
const NEMO = 160 / 128;
/** The base of the sliding-window layers of Gemma 3, and the base and factor of its other layers. */
const GEMMA = { local: 10000, global: 1000000, factor: 8 } as const;

/** A base of 1 gives every pair the same frequency, whatever its exponent. */
const BASE = need(
  'a base other than 1',
  (steps) => NEEDS.computed.holds(steps) && steps.spec.base !== 1,
  NEEDS.computed,
);
/** With a larger base, angles overflow when the sign of the exponent is changed. */
const SMALL_BASE = need('a base below 10¹²', (steps) => steps.spec.base < 1e12);
/** With one pair, some mutants would divide by 0. */
const PAIRS = need('more than one pair', (steps) => steps.exponentDim > 2 && steps.pairs > 1);

export const LAYER_PARAMETERS: readonly Mutant[] = mutantsOf('H', ['computed'], {
  'base-default': {
    does: 'Uses base 10000 whatever the model says.',
    threads: [
      'sgl-project/SpecForge#265',
      'deepspeedai/DeepSpeed#8341',
      'NVIDIA/TransformerEngine#849',
      'vllm-project/vllm#28542',
    ],
    needs: ['computed', need('a base other than 10000', (steps) => steps.spec.base !== GEMMA.local)],
    change: (steps) => withSpec(steps, { base: GEMMA.local }),
  },
  'base-of-other-layers': {
    does: 'Rotates sliding-window layers (base 10000) by the base of the other layers (1,000,000).',
    threads: ['google/gemma.cpp#986', 'ggml-org/llama.cpp#14367', 'huggingface/transformers#41922'],
    needs: ['computed', need('base 10000', (steps) => steps.spec.base === GEMMA.local)],
    change: (steps) => withSpec(steps, { base: GEMMA.global }),
  },
  'head-dim-from-hidden': {
    does: 'Computes the head_dim of the exponent as hidden_size / heads: 160 for Mistral Nemo, which says 128.',
    threads: ['huggingface/candle#2358', 'huggingface/transformers#32495', 'InternLM/lmdeploy#2761'],
    change(steps) {
      return withSpec(steps, { frequencyDim: steps.exponentDim * NEMO });
    },
  },
  'exponent-of-odd-dimension': {
    does: 'Has 2j + 1 instead of 2j in the exponent: base^(−(2j + 1)/rotary_dim).',
    threads: ['stanford-cs336/assignment1-basics#22'],
    change: (steps) => withPlain(steps, (f, base, dim) => f * base ** (-1 / dim)),
  },
  'exponent-of-next-pair': {
    does: 'Has the frequency of pair j + 1 for pair j: it counts pairs from 1.',
    threads: ['bkitano/llama-from-scratch#8'],
    needs: [BASE],
    change: (steps) => withPlain(steps, (f, base, dim) => f * base ** (-2 / dim)),
  },
  'exponent-of-previous-pair': {
    does: 'Has the frequency of pair j − 1 for pair j: base^(−2(j − 1)/rotary_dim) with j from 0.',
    threads: ['bkitano/llama-from-scratch#8'],
    needs: [BASE],
    change: (steps) => withPlain(steps, (f, base, dim) => f * base ** (2 / dim)),
  },
  'exponent-without-two': {
    does: 'Forgets the 2 in the exponent: base^(−j/rotary_dim).',
    threads: ['rasbt/LLMs-from-scratch#410', 'hkproj/pytorch-llama#3'],
    needs: [BASE],
    change: (steps) => withPlain(steps, (f) => Math.sqrt(f)),
  },
  'exponent-without-minus': {
    does: 'Forgets the minus of the exponent: base^(2j/rotary_dim), so that later pairs rotate faster.',
    threads: ['labmlai/annotated_deep_learning_paper_implementations#313'],
    needs: [BASE, SMALL_BASE],
    change: (steps) => withPlain(steps, (f) => 1 / f),
  },
  'exponent-up-to-one': {
    does: 'Spaces the exponents evenly from 0 to 1 inclusive (linspace): j/(pairs − 1) instead of j/pairs.',
    threads: ['NVIDIA/physicsnemo#1522'],
    needs: [BASE, PAIRS],
    change: (steps) => withPlain(steps, (f, _base, dim) => f ** (dim / (dim - 2))),
  },
  'frequencies-linear': {
    does: 'Spaces the frequencies evenly between the first and the last (linspace), where they should be a geometric series.',
    threads: ['NVIDIA/physicsnemo#1522'],
    needs: [BASE, PAIRS],
    change: (steps) =>
      withPlain(steps, (f, base, dim) => {
        const share = -Math.log(f) / Math.log(base) / (1 - 2 / dim); // 0 for the first, 1 for the last
        return 1 + share * (base ** (2 / dim - 1) - 1);
      }),
  },
  'angle-taken-for-degrees': {
    does: 'Gives angles in radians to sin and cos of degrees.',
    threads: ['oppiliappan/eva#38'],
    change: (steps) => ({ angle: (position, j) => (steps.angle(position, j) * Math.PI) / 180 }),
  },
  'angle-turned-into-degrees': {
    does: 'Converts angles to degrees before sin and cos of radians.',
    threads: ['RobLoach/raylib-cpp#271'],
    change: (steps) => ({ angle: (position, j) => (steps.angle(position, j) * 180) / Math.PI }),
  },
  'angle-times-pi': {
    does: 'Multiplies angles by π, as cospi and sinpi do.',
    threads: ['lucidrains/vit-pytorch#129'],
    change: (steps) => ({ angle: (position, j) => steps.angle(position, j) * Math.PI }),
  },
  'linear-ignored': {
    does: 'Leaves out linear scaling.',
    threads: ['lablup/mlxcel#1340', 'lablup/mlxcel#1386', 'Blaizzy/mlx-vlm#1709'],
    needs: ['linear'],
    change: (steps) => withScaling(steps, { kind: 'none' }),
  },
  'linear-multiplied': {
    does: 'Multiplies frequencies by the linear factor instead of dividing.',
    threads: ['lablup/mlxcel#1386'],
    needs: ['linear'],
    change: (steps) => withScaling(steps, { kind: 'linear', factor: 1 / scalingOf(steps, 'linear').factor }),
  },
  'position-divided-in-integers': {
    does: 'Divides positions by the linear factor in integers: the fraction is lost.',
    threads: ['lablup/mlxcel#1386'],
    needs: ['linear', need('a factor other than 1 for it', (steps) => scalingOf(steps, 'linear').factor !== 1)],
    change(steps) {
      const { factor } = scalingOf(steps, 'linear');
      return { ...withScaling(steps, { kind: 'none' }), ...withPosition(steps, (p) => Math.trunc(p / factor)) };
    },
  },
  'linear-of-other-layers': {
    does: 'Divides the frequencies of layers without scaling by the factor of the other layers (8 in Gemma 3).',
    threads: ['antonellof/ferrox#39'],
    needs: ['computed', need('a layer without scaling', (steps) => (steps.spec.scaling?.kind ?? 'none') === 'none')],
    change: (steps) => withScaling(steps, { kind: 'linear', factor: GEMMA.factor }),
  },
});
