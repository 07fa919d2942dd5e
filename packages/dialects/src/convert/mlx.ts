/**
 * MLX's fast.rope: dims, traditional, base or freqs, scale. freqs are reciprocal: the angle is (offset + t) · scale / freqs[j].
 *
 * @module
 * @see ml-explore/mlx@0017d3c mlx/fast.cpp rope; ml-explore/mlx-lm rope_utils.py
 */

import type { RopeSpec } from 'ropewalk';
import { dynamicNtkBase, type Fields, refuse } from 'ropewalk/backend';
import { effectiveRope, STANDSTILL } from './effective.js';
import { NO_TURN, specFromFrequencies } from './explicit.js';
import { cannot, type Draft, F32_TOLERANCE, type Peer, READS_NEIGHBOURS_WRITES_HALVES } from './form.js';

const f32 = Math.fround;

function draftsOf(spec: RopeSpec): Draft[] {
  const { headDim, rotaryDim, rotaryOffset, invFreq, attentionFactor } = effectiveRope(spec);
  if (spec.pairing === 'interleaved-to-half')
    cannot(
      'mlx',
      'traditional has no third value that reads neighbours and writes halves',
      READS_NEIGHBOURS_WRITES_HALVES,
    );
  if (spec.axes)
    cannot(
      'mlx',
      'fast.rope counts one position a token on from offset',
      'Multiply by cos and sin arrays of your own, a row a token.',
    );
  if (rotaryOffset !== 0)
    cannot(
      'mlx',
      `dims counts from dimension 0, and this window starts at ${rotaryOffset}`,
      'Split the array, and rotate the part.',
    );
  const { scaling = { kind: 'none' as const } } = spec;
  const common = { head_dim: headDim, dims: rotaryDim, traditional: spec.pairing === 'interleaved' };
  const mscale = attentionFactor === 1 ? {} : { mscale: attentionFactor };
  const notes = [
    'offset is the position of the first token; the others count on by one.',
    ...(attentionFactor === 1
      ? []
      : ['fast.rope has no magnitude: multiply x[..., :dims] by mscale before the call, as mlx-lm does.']),
  ];
  const drafts: Draft[] = [];
  const say = (rest: Record<string, unknown>, more: string[] = []): void => {
    drafts.push({
      call: 'mx.fast.rope',
      arguments: { ...common, ...rest, offset: 0, ...mscale },
      notes: [...notes, ...more],
    });
  };
  if (!spec.freqFactors && (spec.frequencyDim ?? rotaryDim) === rotaryDim) {
    if (scaling.kind === 'none') say({ base: f32(spec.base), scale: 1, freqs: null });
    if (scaling.kind === 'linear') say({ base: f32(spec.base), scale: f32(1 / scaling.factor), freqs: null });
    if (scaling.kind === 'dynamicNtk')
      say({ base: f32(dynamicNtkBase(spec.base, rotaryDim, scaling)), scale: 1, freqs: null }, [
        `Dynamic NTK is a larger base: this one is for a context of ${scaling.context} tokens.`,
      ]);
  }
  const freqs = Array.from(invFreq, (frequency) => f32(Math.abs(frequency) <= STANDSTILL ? NO_TURN : 1 / frequency));
  const bad = freqs.findIndex((value) => !Number.isFinite(value) || value === 0);
  if (bad < 0)
    say({ base: null, scale: 1, freqs }, ['freqs are the reciprocals of the frequencies, float32 [dims / 2].']);
  else if (drafts.length === 0)
    cannot(
      'mlx',
      `the reciprocal frequency of pair ${bad} does not fit a float32`,
      'Multiply by cos and sin arrays of your own.',
    );
  return drafts;
}

function read(form: Fields): RopeSpec {
  const dims = form.integer('dims', 2, 2 ** 20);
  const headDim = form.optionalInteger('head_dim', 2) ?? dims;
  const pairing = (form.optionalFlag('traditional') ?? false) ? ('interleaved' as const) : ('half' as const);
  const scale = f32(form.optionalPositive('scale') ?? 1);
  const mscale = form.optionalNumber('mscale') ?? 1;
  const base = form.optionalPositive('base');
  const freqs = form.optionalNumbers('freqs');
  if (freqs && base !== undefined)
    refuse('FORMAT', form.path('base'), 'null beside freqs: fast.rope takes one of the two', base);
  const frame = { headDim, rotaryDim: dims, pairing };
  if (freqs) {
    if (freqs.length !== dims / 2) refuse('SHAPE', form.path('freqs'), `dims / 2 = ${dims / 2} numbers`, freqs.length);
    const zero = freqs.indexOf(0);
    if (zero >= 0) refuse('RANGE', form.path(`freqs[${zero}]`), 'a reciprocal frequency other than 0', 0);
    return specFromFrequencies(
      frame,
      freqs.map((value) => scale / f32(value)),
      mscale,
      2 ** -23,
    );
  }
  const magnitude = mscale === 1 ? {} : { attentionFactor: mscale };
  const theta = f32(base ?? refuse('FORMAT', form.path('base'), 'a number, or freqs', undefined));
  return {
    ...frame,
    base: theta,
    ...(scale === 1 ? {} : { scaling: { kind: 'linear' as const, factor: 1 / scale } }),
    ...magnitude,
  };
}

/** mx.fast.rope. */
export const mlxPeer: Peer = {
  name: 'mlx',
  about: 'mx.fast.rope: dims, traditional, base or reciprocal freqs, scale',
  tolerance: F32_TOLERANCE,
  drafts: draftsOf,
  read,
  recognises: (form) => form.has('dims') && (form.has('traditional') || form.has('freqs')),
};
