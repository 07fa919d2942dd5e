/**
 * What a RoPE does: the frequency of each pair, the magnitude, and the dimensions and the axis of each pair.
 *
 * Two records are the same RoPE if these are the same. Conversions are checked by it, and `ropewalk diff` compares it.
 *
 * @module
 */
import { frequenciesOf, type Pairing, planRope, type RopeSpec } from 'ropewalk';
import { refuse } from 'ropewalk/backend';
import { reading, readOptions, sharePairs } from 'ropewalk/internal';

/** What a RoPE does. */
export interface EffectiveRope {
  readonly headDim: number;
  readonly rotaryDim: number;
  readonly rotaryOffset: number;
  /** Pairing vision is half pairing here; invFreq includes its exponents. */
  readonly pairing: Exclude<Pairing, 'vision'>;
  /** Radians a position, one for each pair. */
  readonly invFreq: Float64Array;
  /** Multiplies cos and sin. */
  readonly attentionFactor: number;
  readonly numAxes: number;
  /** The position axis of each pair: 0 t, 1 h, 2 w, 3 e. */
  readonly axisOfPair: Uint8Array;
}

/**
 * Computes what a RoPE does.
 *
 * @param spec - a model's RoPE
 * @throws {RopewalkError} RANGE, SHAPE or UNSUPPORTED, naming the option
 */
export function effectiveRope(spec: RopeSpec): EffectiveRope {
  const plan = planRope({ ...readOptions(spec, 'rope: options'), positions: 0, seqLen: 1 }); // the checks
  const { numAxes, axisOfPair } = sharePairs(spec.axes, plan.rotaryDim / 2);
  return {
    headDim: plan.headDim,
    rotaryDim: plan.rotaryDim,
    rotaryOffset: plan.rotaryOffset,
    pairing: plan.pairing === 'vision' ? 'half' : plan.pairing,
    ...frequenciesOf(spec),
    numAxes,
    axisOfPair,
  };
}

/** How far two RoPEs are apart. */
export interface RopeDistance {
  /** What else differs: sizes, pairing, axes. Empty when the same pairs rotate by the same axes. */
  readonly differences: readonly string[];
  /** Largest relative difference of a frequency. */
  readonly invFreq: number;
  /** Relative difference of the magnitude. */
  readonly attentionFactor: number;
}

/** A pair with a lower frequency does not rotate: at 2³¹ positions it is 2e-11 rad. llama.cpp divides by 1e30. */
export const STANDSTILL = 1e-20;

/**
 * Compares two RoPEs.
 *
 * @param a - one, as {@link effectiveRope} gives it
 * @param b - the other
 * @throws {RopewalkError} RANGE for anything else
 */
export function distanceOf(a: EffectiveRope, b: EffectiveRope): RopeDistance {
  return distance(readEffective(a, 'distanceOf: a'), readEffective(b, 'distanceOf: b'));
}

function readEffective(given: EffectiveRope, where: string): EffectiveRope {
  const rope = readOptions(given, where);
  const numbers = [rope.headDim, rope.rotaryDim, rope.rotaryOffset, rope.attentionFactor];
  const lists = reading(where, () => rope.invFreq instanceof Float64Array && rope.axisOfPair instanceof Uint8Array);
  const finite = lists && numbers.every(Number.isFinite) && rope.invFreq.every(Number.isFinite);
  if (!finite || typeof rope.pairing !== 'string') refuse('RANGE', where, 'a result of effectiveRope', given);
  return rope;
}

function distance(a: EffectiveRope, b: EffectiveRope): RopeDistance {
  const differences: string[] = [];
  for (const key of ['headDim', 'rotaryDim', 'rotaryOffset', 'pairing'] as const) {
    if (a[key] !== b[key]) differences.push(`${key} ${a[key]} and ${b[key]}`);
  }
  const pairs = Math.min(a.invFreq.length, b.invFreq.length);
  let invFreq = 0;
  const otherAxis: number[] = [];
  for (let j = 0; j < pairs; j++) {
    invFreq = Math.max(invFreq, relative(a.invFreq[j]!, b.invFreq[j]!, STANDSTILL));
    // A pair that does not rotate has no axis.
    if (a.axisOfPair[j] !== b.axisOfPair[j] && Math.abs(a.invFreq[j]!) > STANDSTILL) otherAxis.push(j);
  }
  if (otherAxis.length > 0)
    differences.push(`the axes of ${otherAxis.length} pairs, the first one pair ${otherAxis[0]}`);
  return { differences, invFreq, attentionFactor: relative(a.attentionFactor, b.attentionFactor) };
}

/** The relative difference of two numbers; 0 when both are within `floor`. */
export function relative(a: number, b: number, floor = 0): number {
  const size = Math.max(Math.abs(a), Math.abs(b));
  return size <= floor ? 0 : Math.abs(a - b) / size;
}
