/**
 * The named recipes: the angles of two peers, rounded to f32 where they round. They are less accurate than float64, but
 * reproduce a peer's bits, so that its drift can be reported.
 *
 * @module
 */
import { fail } from '../../core/errors.js';
import type { PairAxes } from './axes.js';
import {
  dynamicNtkBase,
  type FrequencyOptions,
  type RopeScaling,
  ropeFrequencies,
  yarnRampEdges,
} from './frequencies.js';

/** The computation of one row of angles. */
export interface AngleRecipe {
  /** Multiplies cos and sin. */
  readonly magnitude: number;
  /** Writes the angle of each pair, in radians, for one token's position on each axis. */
  fillAngles(position: Float64Array, angles: Float64Array): void;
}

const f32 = Math.fround;

/**
 * Computes angles as ggml's CPU backend: θ starts at the position (i32 → f32) and is multiplied by θ_scale from pair to
 * pair, and every step is rounded to f32.
 *
 * @param options - frequencies; scaling none, linear or yarn
 * @throws {RopewalkError} UNSUPPORTED for scaling that ggml does not have
 * @see ggml-org/ggml@d99724f src/ggml-cpu/ops.cpp ggml_rope_cache_init, ggml_mrope_cache_init, rope_yarn
 */
export function ggmlRecipe(axes: PairAxes, options: FrequencyOptions): AngleRecipe {
  const scaling = ggmlScaling(options.scaling ?? { kind: 'none' });
  if (options.attentionFactor !== undefined && scaling.extFactor !== 0) {
    unsupportedBy('ggml-f32', 'attention_factor beside YaRN', 'Give scaling.attnFactor, which multiplies.');
  }
  const dim = options.frequencyDim ?? options.rotaryDim;
  ropeFrequencies(options); // Its checks are needed; ggml's own frequencies follow.
  const base = f32(options.base);
  const thetaScale = f32(base ** f32(-2 / dim));
  const freqScale = f32(scaling.freqScale);
  const extFactor = f32(scaling.extFactor);
  const [low, high] = scaling.extFactor === 0 ? [0, 0] : yarnRampEdges(scaling.yarn, base, dim);
  const ramp = Float64Array.from(axes.axisOfPair, (_axis, j) => {
    const y = f32(f32(j - low) / Math.max(f32(0.001), f32(high - low)));
    return f32(f32(1 - Math.min(1, Math.max(0, y))) * extFactor);
  });
  const attnFactor = f32(options.attentionFactor ?? scaling.attnFactor);
  const magnitude =
    extFactor === 0 ? attnFactor : f32(attnFactor * f32(1 + f32(f32(0.1) * f32(Math.log(f32(1 / freqScale))))));
  const factors = options.freqFactors;
  const thetas = new Float64Array(axes.numAxes);
  return {
    magnitude,
    fillAngles(position, angles) {
      for (let a = 0; a < thetas.length; a++) thetas[a] = f32(position[a]!);
      for (let j = 0; j < angles.length; j++) {
        const axis = axes.axisOfPair[j]!;
        // For vision, the product of an axis restarts with its exponent.
        if (axes.exponents[j] === 0) thetas[axis] = f32(position[axis]!);
        const extrapolated = factors ? f32(thetas[axis]! / f32(factors[j]!)) : thetas[axis]!;
        const interpolated = f32(freqScale * extrapolated);
        angles[j] =
          extFactor === 0 ? interpolated : f32(f32(interpolated * f32(1 - ramp[j]!)) + f32(extrapolated * ramp[j]!));
        for (let a = 0; a < thetas.length; a++) thetas[a] = f32(thetas[a]! * thetaScale);
      }
    },
  };
}

function ggmlScaling(scaling: RopeScaling) {
  const plain = { freqScale: 1, extFactor: 0, attnFactor: 1, yarn: undefined as never };
  switch (scaling.kind) {
    case 'none':
      return plain;
    case 'linear':
      return { ...plain, freqScale: 1 / scaling.factor };
    case 'yarn': {
      if (scaling.truncate === false) unsupportedBy('ggml-f32', 'truncate=false');
      if (scaling.mscale || scaling.mscaleAllDim) unsupportedBy('ggml-f32', 'mscale');
      return {
        freqScale: 1 / scaling.factor,
        extFactor: scaling.extFactor ?? 1,
        attnFactor: scaling.attnFactor ?? 1,
        yarn: scaling,
      };
    }
    default:
      unsupportedBy('ggml-f32', `scaling ${scaling.kind}`, 'llama.cpp expresses it as freq_factors: give those.');
  }
}

/**
 * Computes angles as HuggingFace: inv_freq is computed and scaled in f32, and multiplied by the position in f32.
 *
 * @param options - frequencies; any scaling, no freqFactors
 * @throws {RopewalkError} UNSUPPORTED for freqFactors, which transformers does not have
 * @see transformers@ef46806 src/transformers/modeling_rope_utils.py; LlamaRotaryEmbedding.forward
 */
export function hfRecipe(axes: PairAxes, options: FrequencyOptions): AngleRecipe {
  if (options.freqFactors) unsupportedBy('hf-f32', 'freq_factors');
  const { attentionFactor } = ropeFrequencies(options);
  const invFreq = hfFrequencies(axes.exponents, options);
  return {
    magnitude: f32(attentionFactor),
    fillAngles(position, angles) {
      for (let j = 0; j < angles.length; j++) angles[j] = f32(f32(position[axes.axisOfPair[j]!]!) * invFreq[j]!);
    },
  };
}

/** Computes inv_freq as torch, which rounds every tensor operation to f32, and a Python number in it to f32 first. */
function hfFrequencies(exponents: Uint32Array, options: FrequencyOptions): Float64Array {
  const dim = options.frequencyDim ?? options.rotaryDim;
  const scaling: RopeScaling = options.scaling ?? { kind: 'none' };
  const base = f32(scaling.kind === 'dynamicNtk' ? dynamicNtkBase(options.base, dim, scaling) : options.base);
  const power = Float64Array.from(exponents, (exponent) => f32(base ** f32((2 * exponent) / dim)));
  const plain = power.map((p) => f32(1 / p));
  switch (scaling.kind) {
    case 'none':
    case 'dynamicNtk':
      return plain;
    case 'linear':
      return plain.map((freq) => f32(freq / f32(scaling.factor)));
    case 'proportional':
      return plain.map((freq, j) => (j < scaling.rotatedPairs ? f32(freq / f32(scaling.factor ?? 1)) : 0));
    case 'longrope': {
      const factors = scaling.context > scaling.originalContext ? scaling.longFactor : scaling.shortFactor;
      return power.map((p, j) => f32(1 / f32(f32(factors[j]!) * p)));
    }
    case 'yarn': {
      const [low, high] = yarnRampEdges(scaling, options.base, dim);
      const span = f32(high === low ? 0.001 : high - low);
      return plain.map((extrapolated, j) => {
        const ramp = Math.min(1, Math.max(0, f32(f32(j - f32(low)) / span)));
        const keep = f32(f32(1 - ramp) * f32(scaling.extFactor ?? 1));
        const interpolated = f32(1 / f32(f32(scaling.factor) * power[j]!));
        return f32(f32(interpolated * f32(1 - keep)) + f32(extrapolated * keep));
      });
    }
    case 'llama3': {
      const { factor, lowFreqFactor: low, highFreqFactor: high, originalContext } = scaling;
      return plain.map((freq) => {
        const wavelength = f32(f32(2 * Math.PI) / freq);
        const slowed = wavelength > originalContext / low ? f32(freq / f32(factor)) : freq;
        if (wavelength > originalContext / low || wavelength < originalContext / high || low === high) return slowed;
        const smooth = f32(f32(f32(f32(originalContext) / wavelength) - f32(low)) / f32(high - low));
        return f32(f32(f32(f32(1 - smooth) * slowed) / f32(factor)) + f32(smooth * slowed));
      });
    }
  }
}

function unsupportedBy(recipe: string, what: string, next = 'Use the float64 recipe.'): never {
  fail('UNSUPPORTED', 'rope: recipe', `${recipe} cannot compute ${what}. ${next}`);
}
