/**
 * Writes and reads the arguments of vLLM's get_rope: head_size, max_position, is_neox_style and rope_parameters.
 *
 * vLLM chooses dynamic NTK's base and LongRoPE's factors at start-up; transformers chooses them by sequence length. Its
 * models pass config.max_position_embeddings as max_position (models/llama.py@0035bdf, qwen3.py@002456d,
 * llama4.py@0121c95), and YaRN's table starts from original_max_position_embeddings instead.
 *
 * @module
 * @see vllm-project/vllm@41c5903 vllm/model_executor/layers/rotary_embedding/__init__.py; ffdc985 yarn_scaling_rope.py;
 * 17d618b phi3_long_rope_scaled_rope.py; 055e47c mrope.py
 */

import type { RopeScaling, RopeSpec } from 'ropewalk';
import { fail, refuse } from 'ropewalk/backend';
import { dynamicNtkBase, type Fields, sharePairs } from 'ropewalk/internal';
import { factorsFor } from './effective.js';
import type { ConvertOptions, Draft, Peer } from './form.js';
import { cannot, checkLimits, F64_TOLERANCE, hasPlainExponents, llama3Fields, pairingOf, shareOf } from './form.js';

const SUBCLASS = 'Subclass RotaryEmbedding with your own _compute_inv_freq.';

function draftsOf(spec: RopeSpec, options: ConvertOptions): Draft[] {
  const { headDim, rotaryDim, invFreq, attentionFactor } = checkLimits('vllm', spec, {
    offset: ['get_rope rotates the first rotary_dim dimensions', 'Split q and k, and rotate the part.'],
    toHalf: 'is_neox_style',
    vision: ["vLLM has separate classes for vision towers' RoPE", 'Use --to ggml, mode 24.'],
  });
  const { scaling = { kind: 'none' as const }, pairing } = spec;
  const axes = axesOf(spec, rotaryDim / 2);
  const neox = pairing === 'half';
  const partial_rotary_factor = rotaryDim === headDim ? undefined : shareOf(headDim, rotaryDim);
  const original = 'originalContext' in scaling ? scaling.originalContext : 4096;
  const factor = 'factor' in scaling && scaling.factor !== undefined ? scaling.factor : 1;
  const known = options.positions ?? options.maxContext;
  const max_position = known ?? Math.max(1, Math.round(Math.max(original * factor, original)));
  const guess = `The record does not say max_position: vLLM's models pass max_position_embeddings of config.json, and ${max_position} is a guess.`;
  const drafts: Draft[] = [];
  const write = (rope: Record<string, unknown>, ...notes: string[]): void => {
    const rope_parameters = { rope_theta: spec.base, partial_rotary_factor, ...rope, ...axes };
    drafts.push({
      call: 'get_rope',
      arguments: { head_size: headDim, max_position, is_neox_style: neox, rope_parameters },
      notes: [
        "vLLM keeps cos and sin in the model's dtype: in bf16 they have 8 bits.",
        ...(known === undefined ? [guess] : []),
        ...notes,
      ],
    });
  };
  const writeLongrope = (short: ArrayLike<number>, long: ArrayLike<number>, context: number, note: string): void => {
    const cut = (list: ArrayLike<number>): number[] => Array.from(list).slice(0, rotaryDim / 2);
    const mscale = { short_mscale: attentionFactor, long_mscale: attentionFactor };
    const lists = { short_factor: cut(short), long_factor: cut(long) };
    write({ rope_type: 'longrope', ...lists, original_max_position_embeddings: context, ...mscale }, note);
  };
  const unless = (usual: number, value: number | undefined) => (value === usual ? undefined : value);
  if (hasPlainExponents(spec, rotaryDim)) {
    if (scaling.kind === 'none') write({ rope_type: 'default' });
    if (scaling.kind === 'dynamicNtk') {
      const note = `vLLM's own dynamic type has the base of the full length; this base is for ${scaling.context} tokens.`;
      write({ rope_type: 'default', rope_theta: dynamicNtkBase(spec.base, rotaryDim, scaling) }, note);
    }
    if (scaling.kind === 'linear' && !spec.axes) write({ rope_type: 'linear', factor });
    if (scaling.kind === 'llama3' && !spec.axes) write(llama3Fields(scaling));
    if (scaling.kind === 'proportional' && factor === 1 && !spec.axes && rotaryDim === headDim)
      write({ rope_type: 'proportional', partial_rotary_factor: (2 * scaling.rotatedPairs) / headDim });
    if (scaling.kind === 'yarn') {
      const yarn = {
        rope_type: 'yarn',
        factor,
        original_max_position_embeddings: original,
        beta_fast: unless(32, scaling.betaFast),
        beta_slow: unless(1, scaling.betaSlow),
        extrapolation_factor: unless(1, scaling.extFactor),
        attn_factor: unless(1, attentionFactor / yarnMscale(factor)),
        truncate: scaling.truncate,
      };
      const old = 'vLLM reads truncate since vllm#28244; older versions round the edges of the ramp.';
      write(yarn, ...(scaling.truncate === false ? [old] : []));
    }
    if (scaling.kind === 'longrope' && neox && !spec.axes) {
      const note = `vLLM takes long_factor when max_model_len is above ${original}, for every length.`;
      writeLongrope(scaling.shortFactor, scaling.longFactor, original, note);
    }
  }
  if (neox && !spec.axes) {
    const factors = factorsFor(invFreq, spec.base, rotaryDim);
    const note =
      'No rope_type of vLLM computes these frequencies. longrope with two equal lists holds a factor for each pair.';
    writeLongrope(factors, factors, max_position, note);
  }
  if (drafts.length === 0) {
    const because = spec.axes
      ? `MRotaryEmbedding has default and yarn scaling, not ${scaling.kind}`
      : 'longrope, the only rope_type that takes factors, has half pairing only';
    cannot('vllm', because, SUBCLASS);
  }
  return drafts;
}

function yarnMscale(factor: number, mscale = 1): number {
  return factor <= 1 ? 1 : 0.1 * mscale * Math.log(factor) + 1;
}

/** Writes mrope_section and mrope_interleaved. vLLM's rules are HuggingFace's, and its sections must fill all pairs. */
function axesOf(spec: RopeSpec, pairs: number): Record<string, unknown> {
  if (!spec.axes) return {};
  const { rule, sections } = spec.axes;
  const [t, h, w, e = 0] = sections as [number, number, number, number?];
  const here = sections.join(' + ');
  if (e !== 0 || t + h + w !== pairs)
    cannot('vllm', `mrope_section needs t + h + w = rotary_dim / 2 = ${pairs}, and this record has ${here}`, SUBCLASS);
  if (rule === 'interleaved-ggml') {
    const theirs = sharePairs({ rule: 'interleaved', sections }, pairs).axisOfPair;
    const elsewhere = sharePairs(spec.axes, pairs).axisOfPair.findIndex((axis, j) => axis !== theirs[j]);
    if (elsewhere >= 0) cannot('vllm', `vLLM rotates pair ${elsewhere} by t, and this record by e`, SUBCLASS);
  }
  return { mrope_section: [t, h, w], mrope_interleaved: rule !== 'sections' };
}

function read(form: Fields, _tables: unknown, options: ConvertOptions): RopeSpec {
  const headDim = form.integer('head_size', 2, 2 ** 20);
  const neox = form.optionalFlag('is_neox_style') ?? true;
  const maxPosition = form.integer('max_position', 1, 2 ** 31);
  const p = form.optionalObject('rope_parameters');
  const base = p?.optionalPositive('rope_theta') ?? 10000;
  const type = p?.optionalText('rope_type') ?? 'default';
  const share = p?.optionalPositive('partial_rotary_factor') ?? 1;
  if (p && share > 1) refuse('FORMAT', p.path('partial_rotary_factor'), 'a number in (0, 1]', share);
  const partDim = p?.optionalInteger('rope_dim', 2) ?? Math.trunc(headDim * share);
  const rotaryDim = type === 'proportional' ? headDim : partDim;
  const sections = p?.optionalNumbers('mrope_section');
  const rule = p?.optionalFlag('mrope_interleaved') ? 'interleaved' : 'sections';
  const spec: RopeSpec = { headDim, rotaryDim, pairing: pairingOf(!neox), base, axes: sections && { rule, sections } };
  if (!p || type === 'default') return spec;
  const positive = (key: string): number => p.need(p.optionalPositive(key), key, 'a number > 0');
  const scaled = (scaling: RopeScaling, attentionFactor?: number): RopeSpec => ({ ...spec, scaling, attentionFactor });
  const yarn = (factor: number, truncate?: boolean): RopeScaling => ({
    kind: 'yarn',
    factor,
    originalContext: positive('original_max_position_embeddings'),
    betaFast: p.optionalPositive('beta_fast'),
    betaSlow: p.optionalPositive('beta_slow'),
    extFactor: p.optionalNumber('extrapolation_factor'),
    truncate,
  });
  const attn = p.optionalNumber('attn_factor') ?? 1;
  switch (type) {
    case 'linear':
      return scaled({ kind: 'linear', factor: positive('factor') });
    case 'llama3':
      return scaled({
        kind: 'llama3',
        factor: positive('factor'),
        lowFreqFactor: positive('low_freq_factor'),
        highFreqFactor: positive('high_freq_factor'),
        originalContext: positive('original_max_position_embeddings'),
      });
    case 'proportional':
      return scaled({ kind: 'proportional', rotatedPairs: Math.floor(partDim / 2) });
    case 'dynamic': {
      // The table is `factor` times as long as the trained length, with the base of that length throughout.
      const factor = positive('factor');
      for (const key of ['alpha', 'max_trained_positions'])
        if (p.has(key)) fail('UNSUPPORTED', p.path(key), 'only factor and max_position are read here. Remove it.');
      return scaled({ kind: 'dynamicNtk', factor, originalContext: maxPosition, context: maxPosition * factor });
    }
    case 'yarn': {
      const factor = positive('factor');
      const mscale = p.optionalFlag('apply_yarn_scaling') === false && !sections ? 1 : yarnMscale(factor);
      return scaled(yarn(factor, p.optionalFlag('truncate')), mscale * attn);
    }
    case 'deepseek_yarn': {
      const factor = positive('factor');
      const m = (key: string, usual: number): number => yarnMscale(factor, p.optionalNumber(key) ?? usual);
      return scaled(yarn(factor), (m('mscale', 1) / m('mscale_all_dim', 0)) * attn);
    }
    case 'longrope': {
      if (!neox) refuse('UNSUPPORTED', form.path('is_neox_style'), 'true beside longrope, as in vLLM', neox);
      const list = (key: string): number[] => p.need(p.optionalNumbers(key), key, 'a list of numbers');
      const originalContext = positive('original_max_position_embeddings');
      const scale = maxPosition / originalContext;
      const own = scale <= 1 ? 1 : Math.sqrt(1 + Math.log(scale) / Math.log(originalContext));
      const context = options.context ?? maxPosition;
      const mscale = p.optionalNumber(context > originalContext ? 'long_mscale' : 'short_mscale') ?? own;
      const [shortFactor, longFactor] = [list('short_factor'), list('long_factor')];
      return scaled({ kind: 'longrope', shortFactor, longFactor, originalContext, context }, mscale);
    }
    default: {
      const known = 'default, linear, dynamic, yarn, deepseek_yarn, longrope, llama3 or proportional';
      return refuse('UNSUPPORTED', p.path('rope_type'), known, type);
    }
  }
}

export const vllmPeer: Peer = {
  name: 'vllm',
  about: 'get_rope: head_size, max_position, is_neox_style, rope_parameters',
  names: 'head_size max_position is_neox_style rope_parameters'.split(' '),
  tolerance: F64_TOLERANCE,
  drafts: draftsOf,
  read,
  recognizes: (form) => form.has('head_size') && (form.has('is_neox_style') || form.has('rope_parameters')),
};
