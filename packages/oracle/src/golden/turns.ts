/**
 * A RoPE case's frequencies, axes and pairing as plain numbers, for programs under test and for readers of a manifest.
 *
 * @module
 */
import { frequenciesOf } from 'ropewalk';
import { sharePairs } from 'ropewalk/internal';
import type { GoldenRope, Json } from './case.js';

/** Computes what follows from a spec, for programs that know no scaling and no rule of axes. Vision pairs are halves. */
export function turnsOf(rope: GoldenRope): Record<string, Json> {
  const { headDim, rotaryDim = headDim, rotaryOffset = 0, pairing, axes, base, scaling } = rope.spec;
  const { invFreq, attentionFactor: magnitude } = frequenciesOf(rope.spec);
  const { numAxes, axisOfPair } = sharePairs(axes, rotaryDim / 2);
  const form = pairing === 'vision' ? 'half' : pairing;
  const ofPairs = { invFreq: [...invFreq], axisOfPair: [...axisOfPair] };
  const given = { base, scaling: scaling?.kind ?? 'none', beyond: beyondBase(rope) };
  return { pairing: form, rotaryDim, rotaryOffset, magnitude, numAxes, ...given, ...ofPairs };
}

/** Names what a case needs beyond rope(q, positions, base): the reason of such a kernel to skip it. '' is nothing. */
function beyondBase({ spec, direction, layout, parts }: GoldenRope): string {
  const { scaling = { kind: 'none' }, attentionFactor = 1, pairing } = spec;
  const needs = [
    scaling.kind !== 'none' && `${scaling.kind} scaling`,
    spec.freqFactors && 'freq_factors',
    attentionFactor !== 1 && 'attention_factor',
    spec.axes && 'M-RoPE',
    spec.frequencyDim !== undefined && 'frequency_dim',
    spec.rotaryOffset && 'rotary_offset',
    pairing === 'interleaved-to-half' && `${pairing} pairing`,
    direction === 'backward' && 'backward',
    layout === 'bnsh' && 'heads before tokens',
    parts.some(({ weight }) => weight !== undefined) && 'a norm',
    parts.some(({ cache }) => cache !== undefined) && 'a cache',
  ].filter(Boolean);
  return needs.length > 0 ? `needs ${needs.join(', ')}` : '';
}
