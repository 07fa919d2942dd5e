/**
 * Writes and reads FlashInfer's calls: apply_rope, apply_llama31_rope, and else apply_rope_with_cos_sin_cache.
 *
 * @module
 * @see flashinfer-ai/flashinfer@ca14df1 flashinfer/rope.py; 020b0de include/flashinfer/pos_enc.cuh
 */

import type { RopeSpec } from 'ropewalk';
import type { Fields } from 'ropewalk/internal';
import type { ConvertOptions, Draft, GivenTable, Peer } from './form.js';
import { checkLimits, hasPlainExponents, pairingOf } from './form.js';
import { joinTables, specFromTables, splitTable, TABLE_TOLERANCE, tableOf } from './tables.js';

function draftsOf(spec: RopeSpec, options: ConvertOptions): Draft[] {
  const { headDim, rotaryDim, attentionFactor } = checkLimits('flashinfer', spec, {
    offset: [
      'rotary_dim counts from dimension 0',
      'Give views of q and k that start there: the last dimension must be dense, the head stride is free.',
    ],
    toHalf: 'interleave',
    axes: [
      'a token has one position',
      'Make a cos_sin_cache with one row a token, each pair by its own axis, and positions that count from 0.',
    ],
  });
  const { scaling = { kind: 'none' as const } } = spec;
  const interleave = spec.pairing === 'interleaved';
  const common = { head_dim: headDim, rotary_dim: rotaryDim, interleave };
  const notes = [
    'Its kernels compute angles in f32 with __powf and __sincosf: 1e-2 off at position 131,071 (flashinfer#5066). ' +
      'A cos_sin_cache avoids this.',
  ];
  const drafts: Draft[] = [];
  const plain = hasPlainExponents(spec, rotaryDim) && attentionFactor === 1;
  if (plain && (scaling.kind === 'none' || scaling.kind === 'linear')) {
    const rope_scale = scaling.kind === 'linear' ? scaling.factor : 1;
    const own = { ...common, rope_scale, rope_theta: spec.base };
    drafts.push({ call: 'flashinfer.apply_rope_pos_ids', arguments: own, notes });
  }
  if (plain && scaling.kind === 'llama3') {
    const own = {
      ...common,
      rope_scale: scaling.factor,
      rope_theta: spec.base,
      low_freq_factor: scaling.lowFreqFactor,
      high_freq_factor: scaling.highFreqFactor,
      old_context_len: scaling.originalContext,
    };
    drafts.push({ call: 'flashinfer.apply_llama31_rope_pos_ids', arguments: own, notes });
  }
  const table = tableOf(spec, options);
  drafts.push({
    call: 'flashinfer.apply_rope_with_cos_sin_cache',
    arguments: { head_size: headDim, rotary_dim: rotaryDim, is_neox: !interleave },
    tables: [{ name: 'cos_sin_cache', shape: [table.rows, rotaryDim], data: joinTables(table) }],
    notes: [
      'FlashInfer has plain and Llama 3.1 scaling only. Anything else goes into a cache: f32 [max_position, ' +
        'rotary_dim], cosines first.',
    ],
  });
  return drafts;
}

function read(form: Fields, tables: ReadonlyMap<string, GivenTable>): RopeSpec {
  const headDim = form.integer(form.has('head_size') ? 'head_size' : 'head_dim', 2, 2 ** 20);
  const rotaryDim = form.optionalInteger('rotary_dim', 2) ?? headDim;
  const cache = tables.get('cos_sin_cache');
  if (cache) {
    const where = form.path('cos_sin_cache');
    const pairing = pairingOf(form.optionalFlag('is_neox') === false);
    return specFromTables({ headDim, rotaryDim, pairing }, splitTable(cache, where), where);
  }
  const f32 = (key: string, usual: number): number => Math.fround(form.optionalPositive(key) ?? usual);
  const pairing = pairingOf(form.optionalFlag('interleave'));
  const llama31 = ['low_freq_factor', 'high_freq_factor', 'old_context_len'].some((key) => form.has(key));
  // The two functions have different defaults.
  const frame = { headDim, rotaryDim, pairing, base: f32('rope_theta', llama31 ? 5e5 : 1e4) };
  const factor = f32('rope_scale', llama31 ? 8 : 1);
  if (!llama31) return { ...frame, scaling: factor === 1 ? undefined : { kind: 'linear', factor } };
  return {
    ...frame,
    scaling: {
      kind: 'llama3',
      factor,
      lowFreqFactor: f32('low_freq_factor', 1),
      highFreqFactor: f32('high_freq_factor', 4),
      originalContext: f32('old_context_len', 8192),
    },
  };
}

export const flashinferPeer: Peer = {
  name: 'flashinfer',
  about: 'apply_rope, apply_llama31_rope, or a cos_sin_cache',
  names: (
    'head_dim head_size rotary_dim interleave rope_scale rope_theta low_freq_factor high_freq_factor old_context_len ' +
    'is_neox cos_sin_cache'
  ).split(' '),
  tolerance: TABLE_TOLERANCE, // This is a cos_sin_cache's, which is more than that of arguments.
  drafts: draftsOf,
  read,
  recognizes: (form) =>
    (form.has('rope_theta') && form.has('head_dim') && !form.has('model_type')) ||
    form.has('is_neox') ||
    form.has('cos_sin_cache'),
};
