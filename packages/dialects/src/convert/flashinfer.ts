/**
 * FlashInfer's calls: apply_rope, apply_llama31_rope, and for everything else apply_rope_with_cos_sin_cache.
 *
 * @module
 * @see flashinfer-ai/flashinfer@ca14df1 flashinfer/rope.py; 020b0de include/flashinfer/pos_enc.cuh (the step of Llama 3.1 is the same)
 */

import type { RopeSpec } from 'ropewalk';
import { type Fields, refuse } from 'ropewalk/backend';
import { effectiveRope } from './effective.js';
import {
  type ConvertOptions,
  cannot,
  type Draft,
  F32_TOLERANCE,
  type GivenTable,
  type Peer,
  READS_NEIGHBOURS_WRITES_HALVES,
} from './form.js';
import { joinTables, specFromTables, splitTable, tableOf } from './tables.js';

function draftsOf(spec: RopeSpec, options: ConvertOptions): Draft[] {
  const { headDim, rotaryDim, rotaryOffset, attentionFactor } = effectiveRope(spec);
  if (rotaryOffset !== 0)
    cannot(
      'flashinfer',
      `rotary_dim counts from dimension 0, and this window starts at ${rotaryOffset}`,
      'Give views of q and k that start there: the last dimension must be dense, the head stride is free.',
    );
  if (spec.pairing === 'interleaved-to-half')
    cannot(
      'flashinfer',
      'interleave has no third value that reads neighbours and writes halves',
      READS_NEIGHBOURS_WRITES_HALVES,
    );
  if (spec.axes)
    cannot(
      'flashinfer',
      'a token has one position',
      'Fill a cos_sin_cache with a row a token, each pair by its own axis, and give positions that count from 0.',
    );
  const { scaling = { kind: 'none' as const } } = spec;
  const interleave = spec.pairing === 'interleaved';
  const common = { head_dim: headDim, rotary_dim: rotaryDim, interleave };
  const fast =
    'Its kernels compute the angle in f32 with __powf and __sincosf: 1e-2 off at position 131,071 (flashinfer#5066). A cos_sin_cache is as good as it was made.';
  const drafts: Draft[] = [];
  const plain = !spec.freqFactors && (spec.frequencyDim ?? rotaryDim) === rotaryDim && attentionFactor === 1;
  if (plain && (scaling.kind === 'none' || scaling.kind === 'linear'))
    drafts.push({
      call: 'flashinfer.apply_rope_pos_ids',
      arguments: { ...common, rope_scale: scaling.kind === 'linear' ? scaling.factor : 1, rope_theta: spec.base },
      notes: [fast],
    });
  if (plain && scaling.kind === 'llama3')
    drafts.push({
      call: 'flashinfer.apply_llama31_rope_pos_ids',
      arguments: {
        ...common,
        rope_scale: scaling.factor,
        rope_theta: spec.base,
        low_freq_factor: scaling.lowFreqFactor,
        high_freq_factor: scaling.highFreqFactor,
        old_context_len: scaling.originalContext,
      },
      notes: [fast],
    });
  const table = tableOf(spec, options);
  drafts.push({
    call: 'flashinfer.apply_rope_with_cos_sin_cache',
    arguments: { head_size: headDim, rotary_dim: rotaryDim, is_neox: !interleave },
    tables: [{ name: 'cos_sin_cache', shape: [table.rows, rotaryDim], data: joinTables(table) }],
    notes: [
      'FlashInfer itself has plain and Llama 3.1 scaling only: the rest goes into a cache, f32 [max_position, rotary_dim], cosines first.',
    ],
  });
  return drafts;
}

function read(form: Fields, tables: ReadonlyMap<string, GivenTable>): RopeSpec {
  const headDim = form.integer(form.has('head_size') ? 'head_size' : 'head_dim', 2, 2 ** 20);
  const rotaryDim = form.optionalInteger('rotary_dim', 2) ?? headDim;
  const cache = tables.get('cos_sin_cache');
  if (cache) {
    const pairing = (form.optionalFlag('is_neox') ?? true) ? ('half' as const) : ('interleaved' as const);
    return specFromTables(
      { headDim, rotaryDim, pairing },
      splitTable(cache, form.path('cos_sin_cache')),
      form.path('cos_sin_cache'),
    );
  }
  const f32 = (key: string, usual?: number): number => {
    const value = form.optionalPositive(key) ?? usual;
    return Math.fround(value ?? refuse('FORMAT', form.path(key), 'a number > 0', undefined));
  };
  const pairing = (form.optionalFlag('interleave') ?? false) ? ('interleaved' as const) : ('half' as const);
  const llama31 = ['low_freq_factor', 'high_freq_factor', 'old_context_len'].some((key) => form.has(key));
  // The defaults of the two functions differ.
  const frame = { headDim, rotaryDim, pairing, base: f32('rope_theta', llama31 ? 5e5 : 1e4) };
  const factor = f32('rope_scale', llama31 ? 8 : 1);
  if (!llama31) return factor === 1 ? frame : { ...frame, scaling: { kind: 'linear', factor } };
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

/** apply_rope, apply_llama31_rope, apply_rope_with_cos_sin_cache. */
export const flashinferPeer: Peer = {
  name: 'flashinfer',
  about: 'apply_rope, apply_llama31_rope, or a cos_sin_cache',
  tolerance: F32_TOLERANCE,
  drafts: draftsOf,
  read,
  recognises: (form) =>
    form.has('rope_theta') && form.has('head_dim') && !form.has('model_type')
      ? true
      : form.has('is_neox') || form.has('cos_sin_cache'),
};
