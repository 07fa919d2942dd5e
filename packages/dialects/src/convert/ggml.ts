/**
 * Writes and reads ggml's op_params, and the arguments of its CANN backend's operator, which differ in names only.
 *
 * @module
 * @see ggml-org/ggml@d99724f include/ggml.h, src/ggml.c ggml_rope_impl
 */

import type { RopeAxes, RopeSpec } from 'ropewalk';
import { refuse } from 'ropewalk/backend';
import { dynamicNtkBase, type Fields, sharePairs } from 'ropewalk/internal';
import {
  GGML_ROPE_TYPE_IMROPE,
  GGML_ROPE_TYPE_MROPE,
  GGML_ROPE_TYPE_NEOX,
  GGML_ROPE_TYPE_NORMAL,
  GGML_ROPE_TYPE_VISION,
  ropePlanFromGgml,
} from '../ggml.js';
import { effectiveRope, factorsFor } from './effective.js';
import { cannot, checkLimits, type Draft, dynamicNote, F32_TOLERANCE, type Peer } from './form.js';

const f32 = Math.fround;
type Numbers = 'n_ctx_orig' | 'freq_base' | 'freq_scale' | 'ext_factor' | 'attn_factor' | 'beta_fast' | 'beta_slow';

/** A scaling in ggml's numbers. */
export interface GgmlScaling extends Readonly<Record<Numbers, number>> {
  readonly freq_factors: readonly number[] | null;
  readonly notes: readonly string[];
}

/**
 * Expresses frequencies and magnitude in ggml's numbers: with a scaling of ggml's if there is one, and with factors for
 * each pair.
 *
 * @returns ways to express it, the most natural first
 * @throws {RopewalkError} UNSUPPORTED when a factor does not fit an f32
 */
export function ggmlScalings(spec: RopeSpec, peer: string): GgmlScaling[] {
  const { invFreq, attentionFactor, rotaryDim } = effectiveRope(spec);
  const dim = spec.pairing === 'vision' ? rotaryDim / 2 : rotaryDim;
  const { exponents } = sharePairs(spec.axes, rotaryDim / 2);
  const { scaling = { kind: 'none' as const } } = spec;
  const factors = spec.freqFactors && Array.from(spec.freqFactors, f32).slice(0, rotaryDim / 2);
  const plain: GgmlScaling = {
    n_ctx_orig: 0,
    freq_scale: 1,
    ext_factor: 0,
    attn_factor: f32(attentionFactor),
    beta_fast: 32,
    beta_slow: 1,
    freq_base: f32(spec.base),
    freq_factors: factors ?? null,
    notes: [],
  };
  const all: GgmlScaling[] = [];
  if ((spec.frequencyDim ?? dim) === dim) {
    if (scaling.kind === 'none') all.push(plain);
    if (scaling.kind === 'linear') all.push({ ...plain, freq_scale: f32(1 / scaling.factor) });
    if (scaling.kind === 'dynamicNtk') {
      const freq_base = f32(dynamicNtkBase(spec.base, dim, scaling));
      all.push({ ...plain, freq_base, notes: [dynamicNote(scaling.context)] });
    }
    if (scaling.kind === 'yarn' && Number.isInteger(scaling.originalContext)) {
      const { factor, originalContext: n_ctx_orig, extFactor = 1, betaFast = 32, betaSlow = 1, truncate } = scaling;
      const freq_scale = f32(1 / factor);
      // ggml multiplies attn_factor by 1 + 0.1 ln(1 / freq_scale) if ext_factor is not 0.
      const attn_factor = f32(attentionFactor / (extFactor === 0 ? 1 : 1 + 0.1 * Math.log(1 / freq_scale)));
      const notes =
        truncate === false ? ["ggml always rounds the edges of YaRN's ramp to whole pairs (truncate)."] : [];
      const yarn = { n_ctx_orig, freq_scale, ext_factor: f32(extFactor), beta_fast: betaFast, beta_slow: betaSlow };
      if (Number.isFinite(attn_factor)) all.push({ ...plain, ...yarn, attn_factor, notes });
    }
  }
  const freq_factors = factorsFor(invFreq, plain.freq_base, dim, exponents).map(f32);
  const bad = freq_factors.findIndex((factor) => !Number.isFinite(factor) || factor === 0);
  if (bad < 0 && plain.freq_base > 0 && Number.isFinite(plain.freq_base)) {
    const magnitude = attentionFactor === 1 ? '' : ', and its magnitude in attn_factor';
    const note = `${reasonForFactors(spec, dim)}: its effect is in freq_factors, one a pair${magnitude}.`;
    all.push({ ...plain, freq_factors, notes: [note] });
  } else if (all.length === 0) {
    const next = 'Use cos and sin tables: --to onnx or --to infiniop.';
    cannot(peer, `the factor of pair ${bad} does not fit an f32`, next);
  }
  return all;
}

function reasonForFactors({ scaling, frequencyDim = 0 }: RopeSpec, dim: number): string {
  if (scaling?.kind === 'yarn' && scaling.truncate === false)
    return "ggml rounds the edges of YaRN's ramp, and this record does not (truncate: false)";
  if ((frequencyDim || dim) !== dim)
    return `ggml's exponents have the denominator n_dims = ${dim}, not ${frequencyDim}`;
  if (scaling && !['none', 'linear', 'dynamicNtk', 'yarn'].includes(scaling.kind))
    return `ggml has no ${scaling.kind} scaling`;
  return "ggml's own scaling, in f32, does not give these frequencies";
}

/** Finds the mode, the sections and the axes of the positions. */
function modeOf(
  { pairing, axes, headDim, rotaryDim = headDim }: RopeSpec,
  peer: string,
): { mode: number; sections?: number[]; position_axes?: string[]; note?: string } {
  if (!axes) return { mode: pairing === 'interleaved' ? GGML_ROPE_TYPE_NORMAL : GGML_ROPE_TYPE_NEOX };
  if (pairing === 'interleaved')
    cannot(peer, 'its modes with several axes have half pairing', 'Permute q and k first: ropewalk permute.');
  const sections = [...axes.sections, 0].slice(0, 4);
  const { rule } = axes;
  if (rule === 'vision') return { mode: GGML_ROPE_TYPE_VISION, sections };
  if (rule === 'sections') return { mode: GGML_ROPE_TYPE_MROPE, sections };
  const mode = GGML_ROPE_TYPE_IMROPE;
  const ours = sharePairs(axes, rotaryDim / 2).axisOfPair;
  const theirs = sharePairs({ rule: 'interleaved-ggml', sections }, rotaryDim / 2).axisOfPair;
  const elsewhere = Array.from(ours.keys()).filter((j) => ours[j] !== theirs[j]);
  if (elsewhere.length === 0) return { mode, sections };
  if (elsewhere.some((j) => ours[j] !== 0 || theirs[j] !== 3)) {
    const next = 'Use tables by token: planRope takes positions on each axis.';
    cannot(peer, `IMROPE gives pair ${elsewhere[0]} to another axis`, next);
  }
  const note =
    `IMROPE gives pairs ${elsewhere.join(', ')} to axis e, and this record to t: repeat t's positions as the fourth ` +
    'row of b. (llama.cpp has 0 there for text tokens.)';
  return { mode, sections, position_axes: ['t', 'h', 'w', 't'], note };
}

function draftsOf(spec: RopeSpec, peer: 'ggml' | 'cann'): Draft[] {
  const cann = peer === 'cann';
  const { headDim, rotaryDim, rotaryOffset } = checkLimits(peer, spec, {
    toHalf: 'mode',
    even: true,
    offset: cann
      ? ['the aclnn design rotates the first n_dims', 'Give src0 and dst as views that start there.']
      : undefined,
  });
  const { mode, sections, position_axes, note } = modeOf(spec, peer);
  if (mode === GGML_ROPE_TYPE_VISION && (rotaryOffset !== 0 || rotaryDim !== headDim)) {
    const because = `VISION rotates the whole head, and this record ${rotaryDim} of ${headDim} dimensions`;
    cannot(peer, because, 'Call it on a view of those dimensions.');
  }
  return ggmlScalings(spec, peer).map(({ freq_factors, notes: more, ...numbers }) => {
    const notes = note === undefined ? [...more] : [note, ...more];
    if (rotaryOffset) notes.push('n_offs is set on the result of the call: ggml_rope_set_offset.');
    if (!cann && freq_factors) notes.push('freq_factors are the tensor c, f32.');
    return {
      call: cann ? 'rope (aclnn design)' : sections ? 'ggml_rope_multi' : 'ggml_rope_ext',
      arguments: {
        [cann ? 'D' : 'ne0']: headDim,
        n_dims: mode === GGML_ROPE_TYPE_VISION ? rotaryDim / 2 : rotaryDim,
        sections,
        mode,
        ...numbers,
        freq_factors,
        n_offs: rotaryOffset || undefined,
        position_axes,
        forward: cann || undefined,
      },
      notes,
    };
  });
}

const NUMBERS = 'freq_base freq_scale ext_factor attn_factor beta_fast beta_slow'.split(' ');

/** Reads the arguments with the dialect itself, so that ggml's checks and roundings apply. */
function readArguments(f: Fields, dims: 'ne0' | 'D'): RopeSpec {
  const mode = f.integer('mode', 0, 64);
  const ne = [f.integer(dims, 1, 2 ** 20), 1, 1, 1] as const;
  const n_dims = f.integer('n_dims', 1, 2 ** 20);
  const sections = f.has('sections') ? f.integers('sections', 0, 2 ** 20) : undefined;
  const n_ctx_orig = f.optionalInteger('n_ctx_orig', 0);
  const numbers = Object.fromEntries(NUMBERS.map((name) => [name, f.optionalNumber(name)]));
  const n_offs = f.optionalInteger('n_offs', 0);
  const factors = f.optionalNumbers('freq_factors');
  const freq_factors = factors && Float32Array.from(factors);
  const positions = new Int32Array(mode >= GGML_ROPE_TYPE_MROPE ? 4 : 1);
  const given = { ne, n_dims, mode, sections, n_ctx_orig, ...numbers, n_offs, freq_factors, positions };
  const { source } = ropePlanFromGgml({ ...given, tableDtype: 'f64' });
  const { headDim, rotaryDim, rotaryOffset, pairing, axes, base, scaling, freqFactors, attentionFactor } = source!.spec;
  return {
    headDim,
    rotaryDim,
    rotaryOffset: rotaryOffset || undefined,
    pairing,
    axes: axes && f.has('position_axes') ? aliased(f, axes, rotaryDim ?? headDim) : axes,
    base,
    scaling: scaling?.kind === 'none' ? undefined : scaling,
    freqFactors: freqFactors && Array.from(freqFactors),
    attentionFactor: attentionFactor === 1 ? undefined : attentionFactor,
  };
}

/** Reads IMROPE with t's positions on the fourth axis too, which makes HuggingFace's axes. */
function aliased(f: Fields, axes: RopeAxes, rotaryDim: number): RopeAxes {
  const names = (f.optionalList('position_axes') ?? []).join(' ');
  if (names === 't h w e') return axes;
  const result = { rule: 'interleaved' as const, sections: axes.sections.slice(0, 3) };
  const wanted = sharePairs(axes, rotaryDim / 2).axisOfPair.map((axis) => (axis === 3 ? 0 : axis));
  const got = sharePairs(result, rotaryDim / 2).axisOfPair;
  if (names !== 't h w t' || axes.rule !== 'interleaved-ggml' || wanted.some((axis, j) => axis !== got[j]))
    refuse('UNSUPPORTED', f.path('position_axes'), '["t", "h", "w", "t"] in mode 40, or none', f.raw('position_axes'));
  return result;
}

const peerOf = (name: 'ggml' | 'cann', dims: 'ne0' | 'D', about: string): Peer => ({
  name,
  about,
  names: [dims, ...'n_dims sections mode n_ctx_orig freq_factors n_offs position_axes forward'.split(' '), ...NUMBERS],
  tolerance: F32_TOLERANCE,
  drafts: (spec) => draftsOf(spec, name),
  read: (form) => readArguments(form, dims),
  recognizes: (form) => form.has('n_dims') && form.has('mode') && form.has(dims),
});
export const ggmlPeer = /* @__PURE__ */ peerOf('ggml', 'ne0', 'op_params of ggml_rope_ext and ggml_rope_multi');
export const cannPeer = /* @__PURE__ */ peerOf('cann', 'D', "the aclnn design's rope, dimensions [B, S, N, D]");
