/**
 * Writes and reads the arguments of MLX's fast.rope: dims, traditional, base or freqs, scale. The angle is (offset + t) · scale / freqs[j].
 *
 * @module
 * @see ml-explore/mlx@0017d3c mlx/fast.cpp rope; ml-explore/mlx-lm rope_utils.py
 */

import type { RopeSpec } from 'ropewalk';
import { fail, refuse } from 'ropewalk/backend';
import { dynamicNtkBase, type Fields } from 'ropewalk/internal';
import { NO_ROTATION, STANDSTILL, specFromFrequencies } from './effective.js';
import type { Draft, Peer } from './form.js';
import { cannot, checkLimits, dynamicNote, F32_TOLERANCE, hasPlainExponents, pairingOf } from './form.js';

const f32 = Math.fround;

function draftsOf(spec: RopeSpec): Draft[] {
  const own = 'Multiply by your own cos and sin arrays, one row a token.';
  const { headDim, rotaryDim, invFreq, attentionFactor } = checkLimits('mlx', spec, {
    toHalf: 'traditional',
    axes: ['fast.rope counts one position a token on from offset', own],
    offset: ['dims counts from dimension 0', 'Split the array, and rotate the part.'],
  });
  const { scaling = { kind: 'none' as const } } = spec;
  const common = { head_dim: headDim, dims: rotaryDim, traditional: spec.pairing === 'interleaved' };
  const mscale = attentionFactor === 1 ? undefined : attentionFactor;
  const notes = ['offset is the position of the first token; the others count on by one.'];
  if (mscale !== undefined)
    notes.push('fast.rope has no magnitude: multiply x[..., :dims] by mscale before the call, as mlx-lm does.');
  const drafts: Draft[] = [];
  const write = (rest: Record<string, unknown>, ...more: string[]): void => {
    const arguments_ = { ...common, ...rest, offset: 0, mscale };
    drafts.push({ call: 'mx.fast.rope', arguments: arguments_, notes: [...notes, ...more] });
  };
  if (hasPlainExponents(spec, rotaryDim)) {
    if (scaling.kind === 'none') write({ base: f32(spec.base), scale: 1, freqs: null });
    if (scaling.kind === 'linear') write({ base: f32(spec.base), scale: f32(1 / scaling.factor), freqs: null });
    if (scaling.kind === 'dynamicNtk') {
      const base = f32(dynamicNtkBase(spec.base, rotaryDim, scaling));
      write({ base, scale: 1, freqs: null }, dynamicNote(scaling.context));
    }
  }
  const freqs = Array.from(invFreq, (value) => f32(Math.abs(value) <= STANDSTILL ? NO_ROTATION : 1 / value));
  const bad = freqs.findIndex((value) => !Number.isFinite(value) || value === 0);
  if (bad < 0)
    write({ base: null, scale: 1, freqs }, 'freqs are the reciprocals of the frequencies, float32 [dims / 2].');
  else if (drafts.length === 0) cannot('mlx', `the reciprocal frequency of pair ${bad} does not fit a float32`, own);
  return drafts;
}

function read(form: Fields): RopeSpec {
  const dims = form.integer('dims', 2, 2 ** 20);
  const headDim = form.optionalInteger('head_dim', 2) ?? dims;
  const pairing = pairingOf(form.optionalFlag('traditional'));
  const scale = f32(form.optionalPositive('scale') ?? 1);
  const mscale = form.optionalNumber('mscale') ?? 1;
  const base = form.optionalPositive('base');
  const freqs = form.optionalNumbers('freqs');
  const frame = { headDim, rotaryDim: dims, pairing };
  if (!freqs)
    return {
      ...frame,
      base: f32(form.need(base, 'base', 'a number, or freqs')),
      scaling: scale === 1 ? undefined : { kind: 'linear', factor: 1 / scale },
      attentionFactor: mscale === 1 ? undefined : mscale,
    };
  if (base !== undefined)
    fail('FORMAT', form.path('base'), 'fast.rope takes base or freqs, not both. Set base to null.');
  if (freqs.length !== dims / 2) refuse('SHAPE', form.path('freqs'), `dims / 2 = ${dims / 2} numbers`, freqs.length);
  const zero = freqs.indexOf(0);
  if (zero >= 0) refuse('RANGE', form.path(`freqs[${zero}]`), 'a reciprocal frequency other than 0', 0);
  const invFreq = freqs.map((value) => scale / f32(value));
  return specFromFrequencies(frame, invFreq, mscale, 2 ** -23);
}

export const mlxPeer: Peer = {
  name: 'mlx',
  about: 'mx.fast.rope: dims, traditional, base or reciprocal freqs, scale',
  names: 'head_dim dims traditional base scale freqs offset mscale'.split(' '),
  tolerance: F32_TOLERANCE,
  drafts: draftsOf,
  read,
  recognizes: (form) => form.has('dims') && (form.has('traditional') || form.has('freqs')),
};
