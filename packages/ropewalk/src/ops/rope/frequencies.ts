/**
 * Step 1 of RoPE: the frequency of each pair and one magnitude, from a base and a scaling rule, in float64.
 *
 * The angle of pair j at position p is `p · invFreq[j]`; the rotated pair is multiplied by `attentionFactor`.
 *
 * @module
 */
import {
  checkFields,
  checkInteger,
  checkName,
  checkPositive,
  fitsFloat32,
  type OptionNames,
  readList,
  readName,
  readOptions,
} from '../../core/arguments.js';
import { fail, refuse } from '../../core/errors.js';

/** The largest head_dim: it is far above any model's, yet one row of a table of that width is cheap. */
export const HEAD_DIM_LIMIT = 2 ** 20;

/** The end of a message about angles that overflow. */
export const NOT_FINITE = 'not finite at every position. Check base, scaling and freq_factors.';

/** Positions are in [−2³¹, 2³¹ − 1]. */
export const MAX_POSITION = 2 ** 31;

/** YaRN's parameters. */
export interface YarnScaling {
  readonly kind: 'yarn';
  /** The context extension: new context / original context. ggml's freq_scale is 1 / factor. */
  readonly factor: number;
  /** The context length of the training, in tokens. */
  readonly originalContext: number;
  /** A pair with more rotations than this within the original context keeps its frequency. Default: 32. */
  readonly betaFast?: number;
  /** A pair with fewer rotations than this is fully interpolated. Default: 1. */
  readonly betaSlow?: number;
  /** The share of extrapolation; 0 leaves plain interpolation with no magnitude. Default: 1. */
  readonly extFactor?: number;
  /** Rounds the ramp's edges outwards to whole pairs. Default: true. gpt-oss has false. */
  readonly truncate?: boolean;
  /** Multiplies the magnitude that follows from `factor`, as ggml's attn_factor. Default: 1. */
  readonly attnFactor?: number;
  /** DeepSeek's numerator: the magnitude is m(factor, mscale) / m(factor, mscaleAllDim), with m(f, k) = 0.1·k·ln f + 1. */
  readonly mscale?: number;
  /** DeepSeek's denominator; both are used only if neither is missing or 0. */
  readonly mscaleAllDim?: number;
}

/** LongRoPE's parameters. */
export interface LongRopeScaling {
  readonly kind: 'longrope';
  /** Divides each pair's frequency while the context is at most `originalContext`; at least rotaryDim / 2 values. */
  readonly shortFactor: ArrayLike<number>;
  /** Divides each pair's frequency beyond `originalContext`; at least rotaryDim / 2 values. */
  readonly longFactor: ArrayLike<number>;
  readonly originalContext: number;
  /** The context in use, in tokens, which selects the short or the long factors. */
  readonly context: number;
  /**
   * The context extension, for the magnitude √(1 + ln factor / ln originalContext). Default: 1, with magnitude 1.
   */
  readonly factor?: number;
}

/** The rules by which models extend their rotation to contexts longer than those of the training. */
export type RopeScaling =
  | { readonly kind: 'none' }
  /** Every frequency is divided by `factor` (position interpolation). */
  | { readonly kind: 'linear'; readonly factor: number }
  /** The base grows with the context (NTK-aware); up to `originalContext` nothing changes. */
  | { readonly kind: 'dynamicNtk'; readonly factor: number; readonly originalContext: number; readonly context: number }
  | YarnScaling
  | LongRopeScaling
  /**
   * Llama 3.1: frequencies of slow pairs are divided by `factor`, those of fast pairs kept, with a smooth step between.
   */
  | {
      readonly kind: 'llama3';
      readonly factor: number;
      readonly lowFreqFactor: number;
      readonly highFreqFactor: number;
      readonly originalContext: number;
    }
  /**
   * Gemma 4: only the first `rotatedPairs` pairs rotate, the others have frequency 0; every frequency is divided by
   * `factor`.
   */
  | { readonly kind: 'proportional'; readonly rotatedPairs: number; readonly factor?: number };

/** Options of {@link ropeFrequencies}: what determines frequencies and magnitude. */
export interface FrequencyOptions {
  /** The number of dimensions that rotate, even; pairs = rotaryDim / 2. */
  readonly rotaryDim: number;
  /** θ of the model, such as 10000 or 500000: `invFreq[j] = base^(−2j / frequencyDim)`. */
  readonly base: number;
  /** The denominator of the exponent. Default: rotaryDim. */
  readonly frequencyDim?: number;
  /** The rule for long contexts. Default: none. */
  readonly scaling?: RopeScaling;
  /** Divides each pair's frequency before the scaling rule (ggml's freq_factors); at least rotaryDim / 2 values. */
  readonly freqFactors?: ArrayLike<number>;
  /** Multiplies cos and sin. Default: the magnitude of the scaling rule. */
  readonly attentionFactor?: number;
  /** The exponent of each pair, rotaryDim / 2 integers, for vision. Default: the pair's number. */
  readonly exponents?: ArrayLike<number>;
}

const CONTEXT = { kind: true, factor: true, originalContext: true } as const;
/** YaRN's optional parameters that are numbers. */
const YARN_NUMBERS = {
  betaFast: true,
  betaSlow: true,
  extFactor: true,
  attnFactor: true,
  mscale: true,
  mscaleAllDim: true,
} as const;

/** The scaling rules and the names of their parameters. */
const SCALINGS: { readonly [K in RopeScaling['kind']]: OptionNames<Extract<RopeScaling, { kind: K }>> } = {
  none: { kind: true },
  linear: { kind: true, factor: true },
  dynamicNtk: { ...CONTEXT, context: true },
  yarn: { ...CONTEXT, ...YARN_NUMBERS, truncate: true },
  longrope: { ...CONTEXT, context: true, shortFactor: true, longFactor: true },
  llama3: { ...CONTEXT, lowFreqFactor: true, highFreqFactor: true },
  proportional: { kind: true, rotatedPairs: true, factor: true },
};

/** The names of the options that a model's RoPE shares with {@link FrequencyOptions}. */
export const FREQUENCY_NAMES = {
  base: true,
  frequencyDim: true,
  scaling: true,
  freqFactors: true,
  attentionFactor: true,
} as const;
const NAMES: OptionNames<FrequencyOptions> = { ...FREQUENCY_NAMES, rotaryDim: true, exponents: true };
/** A model's RoPE can be passed unchanged, with its rotaryDim, so its other names are allowed too. */
const SPEC_NAMES = { ...NAMES, headDim: true, rotaryOffset: true, pairing: true, axes: true } as const;

/** Frequencies and magnitude, from {@link ropeFrequencies}. */
export interface RopeFrequencies {
  /** Radians per position, one for each pair. */
  readonly invFreq: Float64Array;
  /** Multiplies cos and sin. */
  readonly attentionFactor: number;
}

/**
 * Computes the frequency of each pair and the magnitude.
 *
 * @param options - base, sizes and the scaling rule
 * @param op - the operator's name in messages
 * @returns `invFreq [rotaryDim / 2]`, radians per position, and the factor for cos and sin
 * @throws {RopewalkError} RANGE, SHAPE or UNSUPPORTED, naming the option
 * @example ropeFrequencies({ rotaryDim: 128, base: 10000 }).invFreq[1] // 0.866, radians per position
 * @see RoFormer arXiv:2104.09864 eq. 15; YaRN arXiv:2309.00071 §3; LongRoPE arXiv:2402.13753; transformers
 *   modeling_rope_utils _compute_llama3_parameters
 */
export function ropeFrequencies(options: FrequencyOptions, op = 'rope'): RopeFrequencies {
  checkName(op, 'op', 'the operator');
  const given = readFrequencyOptions(options, op);
  const { rotaryDim, exponents, frequencyDim, freqFactors, scaling } = given;
  const pairs = rotaryDim / 2;
  const dim = frequencyDim ?? rotaryDim;
  const base = scaling.kind === 'dynamicNtk' ? dynamicNtkBase(given.base, dim, scaling) : given.base;

  const invFreq = new Float64Array(pairs);
  for (let j = 0; j < pairs; j++) {
    const exponent = exponents ? exponents[j]! : j;
    invFreq[j] = base ** ((-2 * exponent) / dim) / (freqFactors ? freqFactors[j]! : 1);
  }
  const magnitude = applyScaling(invFreq, scaling, base, dim);
  for (let j = 0; j < pairs; j++) {
    // Angles must be finite at every position: cos and sin of an infinity are NaN.
    if (!Number.isFinite(invFreq[j]! * MAX_POSITION))
      fail('RANGE', `${op}: frequency of pair ${j}`, `its angle is ${NOT_FINITE}`);
  }
  const attentionFactor = given.attentionFactor ?? magnitude;
  if (!fitsFloat32(attentionFactor)) refuse('RANGE', `${op}: attention_factor`, 'a finite number', attentionFactor);
  return { invFreq, attentionFactor };
}

/**
 * Checks everything on which frequencies depend.
 *
 * @returns a copy, in which scaling and lists are copies too
 * @throws {RopewalkError} RANGE, SHAPE or UNSUPPORTED, naming the option
 */
export function readFrequencyOptions(
  options: FrequencyOptions,
  op: string,
): FrequencyOptions & { readonly scaling: RopeScaling } {
  const given = readOptions(options, `${op}: options`, SPEC_NAMES);
  const { rotaryDim, base, frequencyDim, scaling, freqFactors, attentionFactor, exponents } = given;
  if (!Number.isInteger(rotaryDim) || rotaryDim < 2 || rotaryDim > HEAD_DIM_LIMIT || rotaryDim % 2 !== 0)
    refuse('RANGE', `${op}: rotary_dim`, `an even integer in [2, ${HEAD_DIM_LIMIT}]`, rotaryDim);
  const pairs = rotaryDim / 2;
  if (frequencyDim !== undefined) checkPositive(frequencyDim, `${op}: frequency_dim`);
  checkPositive(base, `${op}: base`);
  if (attentionFactor !== undefined && !fitsFloat32(attentionFactor))
    refuse('RANGE', `${op}: attention_factor`, 'a finite number', attentionFactor);
  return {
    rotaryDim,
    base,
    frequencyDim,
    scaling:
      scaling === undefined
        ? { kind: 'none' }
        : checkScaling(readScaling(scaling, op), pairs, frequencyDim ?? rotaryDim, op),
    freqFactors: freqFactors === undefined ? undefined : checkFactors(freqFactors, pairs, `${op}: freq_factors`),
    attentionFactor,
    exponents: exponents === undefined ? undefined : checkExponents(exponents, pairs, `${op}: exponents`),
  };
}

/** Applies the rule to `invFreq` in place; returns the rule's magnitude. */
function applyScaling(invFreq: Float64Array, scaling: RopeScaling, base: number, frequencyDim: number): number {
  switch (scaling.kind) {
    case 'none':
    case 'dynamicNtk':
      return 1;
    case 'linear':
      for (let j = 0; j < invFreq.length; j++) invFreq[j]! /= scaling.factor;
      return 1;
    case 'proportional':
      for (let j = 0; j < invFreq.length; j++)
        invFreq[j] = j < scaling.rotatedPairs ? invFreq[j]! / (scaling.factor ?? 1) : 0;
      return 1;
    case 'llama3':
      for (let j = 0; j < invFreq.length; j++) invFreq[j] = llama3Frequency(invFreq[j]!, scaling);
      return 1;
    case 'longrope': {
      const factors = scaling.context > scaling.originalContext ? scaling.longFactor : scaling.shortFactor;
      for (let j = 0; j < invFreq.length; j++) invFreq[j]! /= factors[j]!;
      const factor = scaling.factor ?? 1;
      return factor <= 1 ? 1 : Math.sqrt(1 + Math.log(factor) / Math.log(scaling.originalContext));
    }
    case 'yarn': {
      const extFactor = scaling.extFactor ?? 1;
      const [low, high] = yarnRampEdges(scaling, base, frequencyDim);
      for (let j = 0; j < invFreq.length; j++) {
        const mix = extFactor === 0 ? 0 : (1 - clamp01((j - low) / Math.max(0.001, high - low))) * extFactor;
        invFreq[j] = (invFreq[j]! / scaling.factor) * (1 - mix) + invFreq[j]! * mix;
      }
      return yarnMagnitude(scaling);
    }
  }
}

/**
 * Computes the edges of YaRN's ramp: below `low` frequencies are kept, above `high` they are interpolated.
 *
 * @param dim - the exponent's denominator
 * @returns `[low, high]` in pairs; `high` is −∞ when the original context is 0, as in ggml's own tests
 * @see ggml-org/ggml@d99724f ggml_rope_yarn_corr_dims; transformers modeling_rope_utils find_correction_range
 */
export function yarnRampEdges(scaling: YarnScaling, base: number, dim: number): [low: number, high: number] {
  const edge = (rotations: number): number =>
    (dim * Math.log(scaling.originalContext / (rotations * 2 * Math.PI))) / (2 * Math.log(base));
  const low = edge(scaling.betaFast ?? 32);
  const high = edge(scaling.betaSlow ?? 1);
  return scaling.truncate === false
    ? [Math.max(0, low), Math.min(dim - 1, high)]
    : [Math.max(0, Math.floor(low)), Math.min(dim - 1, Math.ceil(high))];
}

/**
 * Computes YaRN's magnitude, the factor of rotated vectors that keeps the temperature of attention.
 *
 * @returns attnFactor times m(mscale) / m(mscaleAllDim) when neither is missing or 0, else times 0.1·ln factor + 1;
 *   attnFactor alone where extFactor is 0
 */
export function yarnMagnitude(scaling: YarnScaling): number {
  const { factor, mscale, mscaleAllDim, attnFactor = 1 } = scaling;
  if ((scaling.extFactor ?? 1) === 0) return attnFactor;
  const m = (k: number): number => 0.1 * k * Math.log(factor) + 1;
  // For factor <= 1 HuggingFace has m = 1; ggml does not, and only there such factors occur without mscale.
  return (mscale && mscaleAllDim ? (factor <= 1 ? 1 : m(mscale) / m(mscaleAllDim)) : m(1)) * attnFactor;
}

/** Computes Llama 3.1's frequency: kept (short wavelength), divided by factor (long), or a mix of both (between). */
function llama3Frequency(frequency: number, s: Extract<RopeScaling, { kind: 'llama3' }>): number {
  const wavelength = (2 * Math.PI) / frequency;
  if (wavelength < s.originalContext / s.highFreqFactor) return frequency;
  if (wavelength > s.originalContext / s.lowFreqFactor) return frequency / s.factor;
  if (s.highFreqFactor === s.lowFreqFactor) return frequency; // as in Llama 4 Scout: nothing lies between
  const smooth = (s.originalContext / wavelength - s.lowFreqFactor) / (s.highFreqFactor - s.lowFreqFactor);
  return ((1 - smooth) * frequency) / s.factor + smooth * frequency;
}

/** Computes the base that dynamic NTK scaling uses at a context; `dim` is the exponent's denominator. */
export function dynamicNtkBase(base: number, dim: number, s: Extract<RopeScaling, { kind: 'dynamicNtk' }>): number {
  const context = Math.max(s.context, s.originalContext);
  return base * ((s.factor * context) / s.originalContext - (s.factor - 1)) ** (dim / (dim - 2));
}

function readScaling(given: RopeScaling, op: string): RopeScaling {
  const scaling = readOptions(given, `${op}: scaling`);
  readName(scaling.kind, Object.keys(SCALINGS), `${op}: scaling.kind`);
  checkFields(scaling, SCALINGS[scaling.kind] as OptionNames<RopeScaling>, `${op}: scaling`);
  return scaling;
}

function checkScaling(scaling: RopeScaling, pairs: number, dim: number, op: string): RopeScaling {
  const at = `${op}: scaling`;
  switch (scaling.kind) {
    case 'none':
      return scaling;
    case 'linear':
      checkPositive(scaling.factor, `${at}.factor`);
      return scaling;
    case 'dynamicNtk':
      checkPositive(scaling.factor, `${at}.factor`);
      checkPositive(scaling.originalContext, `${at}.original_context`);
      checkPositive(scaling.context, `${at}.context`);
      if (pairs < 2)
        refuse('RANGE', `${op}: rotary_dim`, 'at least 4, as dynamic NTK divides by rotary_dim - 2', 2 * pairs);
      if (dim <= 2)
        refuse('RANGE', `${op}: frequency_dim`, 'more than 2, as dynamic NTK divides by frequency_dim - 2', dim);
      return scaling;
    case 'yarn':
      checkPositive(scaling.factor, `${at}.factor`);
      if (typeof scaling.originalContext !== 'number' || !(scaling.originalContext >= 0))
        refuse('RANGE', `${at}.original_context`, 'a number >= 0', scaling.originalContext);
      for (const name of Object.keys(YARN_NUMBERS) as (keyof typeof YARN_NUMBERS)[]) {
        const value = scaling[name];
        if (value !== undefined && !Number.isFinite(value)) refuse('RANGE', `${at}.${name}`, 'a finite number', value);
      }
      for (const name of ['betaFast', 'betaSlow'] as const) {
        // log(originalContext / beta) would be NaN.
        if (scaling[name]! < 0 || (scaling[name] === 0 && scaling.originalContext === 0))
          refuse('RANGE', `${at}.${name}`, 'a number > 0', scaling[name]);
      }
      if (scaling.truncate !== undefined && typeof scaling.truncate !== 'boolean')
        refuse('RANGE', `${at}.truncate`, 'true or false', scaling.truncate);
      return scaling;
    case 'longrope':
      checkPositive(scaling.originalContext, `${at}.original_context`);
      checkPositive(scaling.context, `${at}.context`);
      if (scaling.factor !== undefined) checkPositive(scaling.factor, `${at}.factor`);
      return {
        ...scaling,
        shortFactor: checkFactors(scaling.shortFactor, pairs, `${at}.short_factor`),
        longFactor: checkFactors(scaling.longFactor, pairs, `${at}.long_factor`),
      };
    case 'llama3':
      checkPositive(scaling.factor, `${at}.factor`);
      checkPositive(scaling.originalContext, `${at}.original_context`);
      checkPositive(scaling.lowFreqFactor, `${at}.low_freq_factor`);
      if (!(checkPositive(scaling.highFreqFactor, `${at}.high_freq_factor`) >= scaling.lowFreqFactor)) {
        const expected = `a number of at least low_freq_factor=${scaling.lowFreqFactor}`;
        refuse('RANGE', `${at}.high_freq_factor`, expected, scaling.highFreqFactor);
      }
      return scaling;
    case 'proportional':
      checkInteger(scaling.rotatedPairs, `${at}.rotated_pairs`, 0, pairs, 'rotary_dim / 2');
      if (scaling.factor !== undefined) checkPositive(scaling.factor, `${at}.factor`);
      return scaling;
  }
}

function checkFactors(given: ArrayLike<number>, pairs: number, where: string): ArrayLike<number> {
  const expected = `at least rotary_dim / 2 = ${pairs} values`;
  const factors = readList(given, where, expected);
  if (factors.length < pairs) refuse('SHAPE', where, expected, given);
  for (let j = 0; j < pairs; j++) {
    if (!Number.isFinite(factors[j]) || factors[j] === 0)
      refuse('RANGE', `${where}[${j}]`, 'a finite number other than 0', factors[j]);
  }
  return factors;
}

function checkExponents(given: ArrayLike<number>, pairs: number, where: string): ArrayLike<number> {
  const expected = `rotary_dim / 2 = ${pairs} integers`;
  const exponents = readList(given, where, expected);
  if (exponents.length < pairs) refuse('SHAPE', where, expected, given);
  for (let j = 0; j < pairs; j++) {
    if (!Number.isInteger(exponents[j]) || exponents[j]! < 0)
      refuse('RANGE', `${where}[${j}]`, 'an integer >= 0', exponents[j]);
  }
  return exponents;
}

function clamp01(x: number): number {
  return Math.min(1, Math.max(0, x));
}
