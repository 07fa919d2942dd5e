/**
 * vLLM's get_rope: record ↔ head_size, max_position, is_neox_style and rope_parameters.
 *
 * vLLM fixes at start-up what transformers decides by sequence length: dynamic NTK's base, and LongRoPE's factors.
 *
 * @module
 * @see vllm-project/vllm@41c5903 vllm/model_executor/layers/rotary_embedding/__init__.py get_rope; ffdc985 yarn_scaling_rope.py;
 * 17d618b phi3_long_rope_scaled_rope.py; 055e47c mrope.py
 */

import type { RopeScaling, RopeSpec } from 'ropewalk';
import { dynamicNtkBase, type Fields, refuse, sharePairs } from 'ropewalk/backend';
import { effectiveRope } from './effective.js';
import { factorsFor } from './explicit.js';
import {
  type ConvertOptions,
  cannot,
  type Draft,
  F64_TOLERANCE,
  type Peer,
  READS_NEIGHBOURS_WRITES_HALVES,
} from './form.js';

const SUBCLASS = 'Subclass RotaryEmbedding with _compute_inv_freq of your own.';

function draftsOf(spec: RopeSpec, options: ConvertOptions): Draft[] {
  const { headDim, rotaryDim, rotaryOffset, invFreq, attentionFactor } = effectiveRope(spec);
  const { scaling = { kind: 'none' as const }, pairing } = spec;
  if (rotaryOffset !== 0)
    cannot(
      'vllm',
      `get_rope turns the first rotary_dim dimensions, and this window starts at ${rotaryOffset}`,
      'Split q and k, and rotate the part.',
    );
  if (pairing === 'interleaved-to-half')
    cannot(
      'vllm',
      'is_neox_style has no third value that reads neighbours and writes halves',
      READS_NEIGHBOURS_WRITES_HALVES,
    );
  if (pairing === 'vision')
    cannot('vllm', "a vision tower's RoPE has a class of its own there", 'Use --to ggml, mode 24.');
  const axes = axesOf(spec, rotaryDim / 2);
  const neox = pairing === 'half';
  const share = rotaryDim === headDim ? {} : { partial_rotary_factor: shareOf(headDim, rotaryDim) };
  const original = 'originalContext' in scaling ? scaling.originalContext : 4096;
  const factor = 'factor' in scaling && scaling.factor !== undefined ? scaling.factor : 1;
  const max_position = options.positions ?? Math.max(1, Math.round(Math.max(original * factor, original)));
  const drafts: Draft[] = [];
  const say = (rope: Record<string, unknown>, notes: string[] = []): void => {
    drafts.push({
      call: 'get_rope',
      arguments: {
        head_size: headDim,
        max_position,
        is_neox_style: neox,
        rope_parameters: { rope_theta: spec.base, ...share, ...rope, ...axes },
      },
      notes: ["vLLM keeps cos and sin in the model's dtype: in bf16 they have 8 bits.", ...notes],
    });
  };
  if (!spec.freqFactors && (spec.frequencyDim ?? rotaryDim) === rotaryDim) {
    if (scaling.kind === 'none') say({ rope_type: 'default' });
    if (scaling.kind === 'dynamicNtk')
      say({ rope_type: 'default', rope_theta: dynamicNtkBase(spec.base, rotaryDim, scaling) }, [
        `vLLM's own dynamic is fixed at the full length; this is the base for ${scaling.context} tokens.`,
      ]);
    if (scaling.kind === 'linear' && !spec.axes) say({ rope_type: 'linear', factor });
    if (scaling.kind === 'llama3' && !spec.axes)
      say({
        rope_type: 'llama3',
        factor,
        low_freq_factor: scaling.lowFreqFactor,
        high_freq_factor: scaling.highFreqFactor,
        original_max_position_embeddings: original,
      });
    if (scaling.kind === 'proportional' && factor === 1 && !spec.axes && rotaryDim === headDim)
      say({ rope_type: 'proportional', partial_rotary_factor: (2 * scaling.rotatedPairs) / headDim });
    if (scaling.kind === 'yarn')
      say(
        {
          rope_type: 'yarn',
          factor,
          original_max_position_embeddings: original,
          ...unless('beta_fast', scaling.betaFast, 32),
          ...unless('beta_slow', scaling.betaSlow, 1),
          ...unless('extrapolation_factor', scaling.extFactor, 1),
          ...unless('attn_factor', attentionFactor / yarnMscale(factor), 1),
          ...(scaling.truncate === undefined ? {} : { truncate: scaling.truncate }),
        },
        scaling.truncate === false ? ["vLLM reads truncate since vllm#28244; older ones round the ramp's edges."] : [],
      );
    if (scaling.kind === 'longrope' && neox && !spec.axes)
      say(
        {
          rope_type: 'longrope',
          short_factor: Array.from(scaling.shortFactor).slice(0, rotaryDim / 2),
          long_factor: Array.from(scaling.longFactor).slice(0, rotaryDim / 2),
          original_max_position_embeddings: original,
          short_mscale: attentionFactor,
          long_mscale: attentionFactor,
        },
        [`vLLM takes long_factor when max_model_len is above ${original}, for every length.`],
      );
  }
  if (neox && !spec.axes) {
    const factors = factorsFor(invFreq, spec.base, rotaryDim);
    say(
      {
        rope_type: 'longrope',
        short_factor: factors,
        long_factor: factors,
        original_max_position_embeddings: max_position,
        short_mscale: attentionFactor,
        long_mscale: attentionFactor,
      },
      [
        'No rope_type of vLLM computes these frequencies: longrope, with both lists alike, holds a factor for each pair.',
      ],
    );
  }
  if (drafts.length === 0) {
    cannot(
      'vllm',
      spec.axes
        ? `MRotaryEmbedding knows default and yarn, not ${scaling.kind}`
        : `no rope_type gives these frequencies to neighbours: longrope, which takes factors, turns halves only`,
      SUBCLASS,
    );
  }
  return drafts;
}

/** A share whose product with head_size, cut to an integer as vLLM does it, is rotary_dim. */
function shareOf(headDim: number, rotaryDim: number): number {
  const share = rotaryDim / headDim;
  return Math.trunc(headDim * share) === rotaryDim ? share : (rotaryDim + 0.25) / headDim;
}

function unless(key: string, value: number | undefined, usual: number): Record<string, number> {
  return value === undefined || value === usual ? {} : { [key]: value };
}

function yarnMscale(factor: number): number {
  return factor <= 1 ? 1 : 0.1 * Math.log(factor) + 1;
}

/** mrope_section and mrope_interleaved; vLLM's rules are HuggingFace's, and its sections fill all pairs. */
function axesOf(spec: RopeSpec, pairs: number): Record<string, unknown> {
  if (!spec.axes) return {};
  const { rule, sections } = spec.axes;
  const [t, h, w, e = 0] = sections as [number, number, number, number?];
  if (e !== 0 || t + h + w !== pairs)
    cannot(
      'vllm',
      `mrope_section holds t, h and w, which sum to rotary_dim / 2 = ${pairs}, and here they are ${sections.join(' + ')}`,
      SUBCLASS,
    );
  const interleaved = rule !== 'sections';
  if (rule === 'interleaved-ggml') {
    const theirs = sharePairs({ rule: 'interleaved', sections }, pairs).axisOfPair;
    const elsewhere = sharePairs(spec.axes, pairs).axisOfPair.findIndex((axis, j) => axis !== theirs[j]);
    if (elsewhere >= 0) cannot('vllm', `it turns pair ${elsewhere} by t where ggml's rule gives it to e`, SUBCLASS);
  }
  return { mrope_section: [t, h, w], mrope_interleaved: interleaved };
}

function read(form: Fields, _tables: unknown, options: ConvertOptions): RopeSpec {
  const headDim = form.integer('head_size', 2, 2 ** 20);
  const neox = form.optionalFlag('is_neox_style') ?? true;
  const maxPosition = form.integer('max_position', 1, 2 ** 31);
  const p = form.has('rope_parameters') ? form.object('rope_parameters') : undefined;
  const base = p?.optionalPositive('rope_theta') ?? 10000;
  const type = p?.optionalText('rope_type') ?? 'default';
  const share = p?.optionalPositive('partial_rotary_factor') ?? 1;
  if (p && share > 1) refuse('FORMAT', p.path('partial_rotary_factor'), 'a number in (0, 1]', share);
  const turned = p?.optionalInteger('rope_dim', 2) ?? Math.trunc(headDim * share);
  const rotaryDim = type === 'proportional' ? headDim : turned;
  const section = p?.optionalNumbers('mrope_section');
  const spec = {
    headDim,
    rotaryDim,
    pairing: neox ? ('half' as const) : ('interleaved' as const),
    base,
    ...(section
      ? {
          axes: {
            rule: p!.optionalFlag('mrope_interleaved') ? ('interleaved' as const) : ('sections' as const),
            sections: section,
          },
        }
      : {}),
  };
  if (!p || type === 'default') return spec;
  const positive = (key: string): number => p.need(p.optionalPositive(key), key, 'a number > 0');
  const attn = p.optionalNumber('attn_factor') ?? 1;
  const ramp = {
    ...(p.has('beta_fast') ? { betaFast: positive('beta_fast') } : {}),
    ...(p.has('beta_slow') ? { betaSlow: positive('beta_slow') } : {}),
    ...(p.has('extrapolation_factor') ? { extFactor: p.number('extrapolation_factor') } : {}),
  };
  const originalContext = (): number => positive('original_max_position_embeddings');
  switch (type) {
    case 'linear':
      return { ...spec, scaling: { kind: 'linear', factor: positive('factor') } };
    case 'llama3':
      return {
        ...spec,
        scaling: {
          kind: 'llama3',
          factor: positive('factor'),
          lowFreqFactor: positive('low_freq_factor'),
          highFreqFactor: positive('high_freq_factor'),
          originalContext: originalContext(),
        },
      };
    case 'proportional':
      return { ...spec, scaling: { kind: 'proportional', rotatedPairs: Math.floor(turned / 2) } };
    case 'dynamic': {
      // The table is as long as factor times the trained length, and has the base of that length throughout.
      const factor = positive('factor');
      for (const key of ['alpha', 'max_trained_positions'])
        if (p.has(key))
          refuse('UNSUPPORTED', p.path(key), 'nothing: only factor and max_position are read here', p.raw(key));
      return {
        ...spec,
        scaling: { kind: 'dynamicNtk', factor, originalContext: maxPosition, context: maxPosition * factor },
      };
    }
    case 'yarn': {
      const factor = positive('factor');
      const truncate = p.optionalFlag('truncate');
      const scaling: RopeScaling = {
        kind: 'yarn',
        factor,
        originalContext: originalContext(),
        ...ramp,
        ...(truncate === undefined ? {} : { truncate }),
      };
      const mscale = p.optionalFlag('apply_yarn_scaling') === false && !section ? 1 : yarnMscale(factor);
      return { ...spec, scaling, attentionFactor: mscale * attn };
    }
    case 'deepseek_yarn': {
      const factor = positive('factor');
      const m = (k: number): number => (factor <= 1 ? 1 : 0.1 * k * Math.log(factor) + 1);
      const attentionFactor = (m(p.optionalNumber('mscale') ?? 1) / m(p.optionalNumber('mscale_all_dim') ?? 0)) * attn;
      return {
        ...spec,
        scaling: { kind: 'yarn', factor, originalContext: originalContext(), ...ramp },
        attentionFactor,
      };
    }
    case 'longrope': {
      if (!neox) refuse('UNSUPPORTED', form.path('is_neox_style'), 'true beside longrope, as in vLLM', neox);
      const list = (key: string): number[] => p.need(p.optionalNumbers(key), key, 'a list of numbers');
      const original = originalContext();
      const scale = maxPosition / original;
      const own = scale <= 1 ? 1 : Math.sqrt(1 + Math.log(scale) / Math.log(original));
      const context = options.context ?? maxPosition;
      const mscale = p.optionalNumber(context > original ? 'long_mscale' : 'short_mscale') ?? own;
      const scaling: RopeScaling = {
        kind: 'longrope',
        shortFactor: list('short_factor'),
        longFactor: list('long_factor'),
        originalContext: original,
        context,
      };
      return { ...spec, scaling, attentionFactor: mscale };
    }
    default:
      return refuse(
        'UNSUPPORTED',
        p.path('rope_type'),
        'default, linear, dynamic, yarn, deepseek_yarn, longrope, llama3 or proportional',
        type,
      );
  }
}

/** get_rope's arguments. */
export const vllmPeer: Peer = {
  name: 'vllm',
  about: 'get_rope: head_size, max_position, is_neox_style, rope_parameters',
  tolerance: F64_TOLERANCE,
  drafts: draftsOf,
  read,
  recognises: (form) => form.has('head_size') && (form.has('is_neox_style') || form.has('rope_parameters')),
};
