/**
 * ggml's op_params and the aclnn design's arguments, which are the same but for names: record ↔ arguments.
 *
 * @module
 * @see ggml-org/ggml@d99724f include/ggml.h, src/ggml.c ggml_rope_impl; seed document 003
 */

import type { RopeSpec } from 'ropewalk';
import { dynamicNtkBase, type Fields, refuse, sharePairs } from 'ropewalk/backend';
import { ropePlanFromGgml } from '../ggml.js';
import { effectiveRope } from './effective.js';
import { factorsFor } from './explicit.js';
import { cannot, type Draft, F32_TOLERANCE, type Peer, READS_NEIGHBOURS_WRITES_HALVES } from './form.js';

const f32 = Math.fround;
const MODES = { NORMAL: 0, NEOX: 2, MROPE: 8, VISION: 24, IMROPE: 40 } as const;

/** How the three numbers of a scaling and the two of a ramp are said, besides base and factors. */
interface Scaling {
  readonly n_ctx_orig: number;
  readonly freq_scale: number;
  readonly ext_factor: number;
  readonly attn_factor: number;
  readonly beta_fast: number;
  readonly beta_slow: number;
}

const PLAIN: Scaling = { n_ctx_orig: 0, freq_scale: 1, ext_factor: 0, attn_factor: 1, beta_fast: 32, beta_slow: 1 };

/** A scaling in ggml's own numbers, and what goes with it. */
export interface GgmlScaling extends Scaling {
  readonly freq_base: number;
  readonly freq_factors: readonly number[] | null;
  readonly notes: readonly string[];
}

/**
 * Says frequencies and magnitude in ggml's numbers: its own scaling where it has one, otherwise factors for each pair.
 *
 * @param spec - the record
 * @param peer - names the peer in refusals
 * @returns ways to say it, the most natural first
 * @throws {RopewalkError} UNSUPPORTED when a factor is beyond f32
 */
export function ggmlScalings(spec: RopeSpec, peer: string): GgmlScaling[] {
  const { invFreq, attentionFactor, rotaryDim } = effectiveRope(spec);
  const vision = spec.pairing === 'vision';
  const dim = vision ? rotaryDim / 2 : rotaryDim;
  const exponents = sharePairs(spec.axes, rotaryDim / 2).exponents;
  const { scaling = { kind: 'none' as const } } = spec;
  const own: GgmlScaling[] = [];
  const given = spec.freqFactors
    ? Array.from(spec.freqFactors)
        .slice(0, rotaryDim / 2)
        .map(f32)
    : null;
  const say = (numbers: Partial<GgmlScaling>): void => {
    own.push({
      ...PLAIN,
      attn_factor: f32(attentionFactor),
      freq_base: f32(spec.base),
      freq_factors: given,
      notes: [],
      ...numbers,
    });
  };
  if ((spec.frequencyDim ?? dim) === dim) {
    if (scaling.kind === 'none') say({});
    if (scaling.kind === 'linear') say({ freq_scale: f32(1 / scaling.factor) });
    if (scaling.kind === 'dynamicNtk')
      say({
        freq_base: f32(dynamicNtkBase(spec.base, dim, scaling)),
        notes: [`Dynamic NTK is a larger base: this one is for a context of ${scaling.context} tokens.`],
      });
    if (scaling.kind === 'yarn' && Number.isInteger(scaling.originalContext)) {
      const {
        factor,
        originalContext: n_ctx_orig,
        extFactor: ext_factor = 1,
        betaFast: beta_fast = 32,
        betaSlow: beta_slow = 1,
      } = scaling;
      const freq_scale = f32(1 / factor);
      // ggml multiplies attn_factor by 1 + 0.1 ln(1 / freq_scale) wherever ext_factor is not 0.
      const attn_factor = f32(attentionFactor / (ext_factor === 0 ? 1 : 1 + 0.1 * Math.log(1 / freq_scale)));
      const truncate =
        scaling.truncate === false ? ["ggml rounds the edges of YaRN's ramp to whole pairs, always (truncate)."] : [];
      if (Number.isFinite(attn_factor))
        say({
          n_ctx_orig,
          freq_scale,
          ext_factor: f32(ext_factor),
          attn_factor,
          beta_fast,
          beta_slow,
          notes: truncate,
        });
    }
  }
  const freq_base = f32(spec.base);
  const freq_factors = factorsFor(invFreq, freq_base, dim, exponents).map(f32);
  const last = freq_factors.findIndex((factor) => !Number.isFinite(factor) || factor === 0);
  if (last < 0 && freq_base > 0 && Number.isFinite(freq_base)) {
    const why = reasonForFactors(spec, dim);
    own.push({
      ...PLAIN,
      freq_base,
      attn_factor: f32(attentionFactor),
      freq_factors,
      notes: [
        `${why}: what it does to the frequencies is in freq_factors, one a pair${attentionFactor === 1 ? '' : ', and its magnitude in attn_factor'}.`,
      ],
    });
  } else if (own.length === 0) {
    cannot(
      peer,
      `pair ${last}'s factor does not fit an f32`,
      'Build cos and sin tables instead: --to onnx or --to infiniop.',
    );
  }
  return own;
}

function reasonForFactors(spec: RopeSpec, dim: number): string {
  const { scaling } = spec;
  if (scaling?.kind === 'yarn' && scaling.truncate === false)
    return "ggml rounds the edges of YaRN's ramp, and this record does not (truncate: false)";
  if ((spec.frequencyDim ?? dim) !== dim)
    return `ggml's exponents count over n_dims = ${dim}, this record's over ${spec.frequencyDim}`;
  if (scaling && !['none', 'linear', 'dynamicNtk', 'yarn'].includes(scaling.kind))
    return `ggml has no ${scaling.kind} scaling`;
  return "ggml's own scaling, in f32, does not give these frequencies";
}

/** mode, sections and the axes of the positions. */
function modeOf(
  spec: RopeSpec,
  peer: string,
): { mode: number; sections?: number[]; position_axes?: string[]; notes: string[] } {
  if (spec.pairing === 'interleaved-to-half')
    cannot(
      peer,
      'it reads neighbours and writes halves, and ggml writes where it reads',
      READS_NEIGHBOURS_WRITES_HALVES,
    );
  if (!spec.axes) return { mode: spec.pairing === 'interleaved' ? MODES.NORMAL : MODES.NEOX, notes: [] };
  if (spec.pairing === 'interleaved')
    cannot(
      peer,
      'its modes with several axes turn halves, and this turns neighbours',
      'Permute q and k to halves first: ropewalk permute.',
    );
  const sections = [...spec.axes.sections, 0].slice(0, 4);
  const { rule } = spec.axes;
  if (rule === 'vision') return { mode: MODES.VISION, sections, notes: [] };
  if (rule === 'sections') return { mode: MODES.MROPE, sections, notes: [] };
  if (rule === 'interleaved-ggml') return { mode: MODES.IMROPE, sections, notes: [] };
  const pairs = (spec.rotaryDim ?? spec.headDim) / 2;
  const ours = sharePairs(spec.axes, pairs).axisOfPair;
  const theirs = sharePairs({ rule: 'interleaved-ggml', sections }, pairs).axisOfPair;
  const elsewhere = Array.from(ours.keys()).filter((j) => ours[j] !== theirs[j]);
  if (elsewhere.length === 0) return { mode: MODES.IMROPE, sections, notes: [] };
  if (elsewhere.some((j) => ours[j] !== 0 || theirs[j] !== 3))
    cannot(
      peer,
      `IMROPE gives pair ${elsewhere[0]} to another axis`,
      'Use tables by token: planRope with positions on each axis.',
    );
  const note =
    `IMROPE gives pairs ${elsewhere.join(', ')} to the fourth axis, where this record turns them by t: ` +
    "give t's positions again as the fourth row of b. (llama.cpp gives 0 there for text tokens.)";
  return { mode: MODES.IMROPE, sections, position_axes: ['t', 'h', 'w', 't'], notes: [note] };
}

/** The fields of op_params, by ggml's names. */
const FLOATS = ['freq_base', 'freq_scale', 'ext_factor', 'attn_factor', 'beta_fast', 'beta_slow'] as const;

function draftsOf(spec: RopeSpec, peer: 'ggml' | 'cann'): Draft[] {
  const { headDim, rotaryDim, rotaryOffset } = effectiveRope(spec);
  const { mode, sections, position_axes, notes } = modeOf(spec, peer);
  if (mode === MODES.VISION && (rotaryOffset !== 0 || rotaryDim !== headDim))
    cannot(
      peer,
      `VISION turns the whole head, and this turns ${rotaryDim} of ${headDim}`,
      'Make a view of the turned dimensions, and call it on that.',
    );
  if (peer === 'cann' && rotaryOffset !== 0)
    cannot(
      peer,
      `the aclnn design turns the first n_dims, and this window starts at ${rotaryOffset}`,
      'Give src0 and dst as views that start there.',
    );
  return ggmlScalings(spec, peer).map((scaling) => {
    const { freq_factors, notes: more, ...numbers } = scaling;
    const dims = peer === 'ggml' ? { ne0: headDim } : { D: headDim };
    return {
      call: peer === 'cann' ? 'rope (aclnn design)' : sections ? 'ggml_rope_multi' : 'ggml_rope_ext',
      arguments: {
        ...dims,
        n_dims: mode === MODES.VISION ? rotaryDim / 2 : rotaryDim,
        ...(sections ? { sections } : {}),
        mode,
        ...numbers,
        freq_factors,
        ...(rotaryOffset ? { n_offs: rotaryOffset } : {}),
        ...(position_axes ? { position_axes } : {}),
        ...(peer === 'cann' ? { forward: true } : {}),
      },
      notes: [
        ...notes,
        ...more,
        ...(rotaryOffset ? ['n_offs is set on the result of the call: ggml_rope_set_offset.'] : []),
        ...(peer === 'ggml' && freq_factors ? ['freq_factors are the tensor c, f32.'] : []),
      ],
    };
  });
}

/** Reads the arguments by way of the dialect itself, so that ggml's own checks and roundings apply. */
function readArguments(f: Fields, dims: 'ne0' | 'D'): RopeSpec {
  const ne0 = f.integer(dims, 1, 2 ** 20);
  const mode = f.integer('mode', 0, 64);
  const multi = mode >= MODES.MROPE;
  const factors = f.optionalNumbers('freq_factors');
  const floats = Object.fromEntries(FLOATS.filter((key) => f.has(key)).map((key) => [key, f.number(key)]));
  const { source } = ropePlanFromGgml({
    ne: [ne0, 1, 1, 1],
    n_dims: f.integer('n_dims', 1, 2 ** 20),
    mode,
    ...(f.has('sections') ? { sections: f.integers('sections', 0, 2 ** 20) } : {}),
    n_ctx_orig: f.optionalInteger('n_ctx_orig', 0) ?? 0,
    ...floats,
    n_offs: f.optionalInteger('n_offs', 0) ?? 0,
    freq_factors: factors && Float32Array.from(factors),
    positions: new Int32Array(multi ? 4 : 1),
    tableDtype: 'f64',
  });
  const { headDim, rotaryDim, rotaryOffset, pairing, axes, base, scaling, freqFactors, attentionFactor } = source!.spec;
  return {
    headDim,
    ...(rotaryDim === undefined ? {} : { rotaryDim }),
    ...(rotaryOffset ? { rotaryOffset } : {}),
    pairing,
    ...(axes ? { axes: f.has('position_axes') ? aliased(f, axes, rotaryDim ?? headDim) : axes } : {}),
    base,
    ...(scaling && scaling.kind !== 'none' ? { scaling } : {}),
    ...(freqFactors ? { freqFactors: Array.from(freqFactors) } : {}),
    ...(attentionFactor === undefined || attentionFactor === 1 ? {} : { attentionFactor }),
  };
}

/** With t's positions on the fourth axis too, IMROPE shares the pairs out as HuggingFace does. */
function aliased(f: Fields, axes: NonNullable<RopeSpec['axes']>, rotaryDim: number): NonNullable<RopeSpec['axes']> {
  const names = f.optionalList('position_axes') ?? [];
  const same = names.join(' ');
  if (same === 't h w e') return axes;
  const result = { rule: 'interleaved' as const, sections: axes.sections.slice(0, 3) };
  const wanted = sharePairs(axes, rotaryDim / 2).axisOfPair.map((axis) => (axis === 3 ? 0 : axis));
  const got = sharePairs(result, rotaryDim / 2).axisOfPair;
  if (same !== 't h w t' || axes.rule !== 'interleaved-ggml' || wanted.some((axis, j) => axis !== got[j]))
    refuse('UNSUPPORTED', f.path('position_axes'), '["t", "h", "w", "t"] in mode 40, or none', names);
  return result;
}

/** ggml_rope_ext and ggml_rope_multi. */
export const ggmlPeer: Peer = {
  name: 'ggml',
  about: 'op_params of ggml_rope_ext and ggml_rope_multi',
  tolerance: F32_TOLERANCE,
  drafts: (spec) => draftsOf(spec, 'ggml'),
  read: (form) => readArguments(form, 'ne0'),
  recognises: (form) => form.has('n_dims') && form.has('mode') && form.has('ne0'),
};

/** The rope of the aclnn design (seeds 000 and 003), `@ropewalk/dialects`. */
export const cannPeer: Peer = {
  name: 'cann',
  about: "the aclnn design's rope, dimensions [B, S, N, D]",
  tolerance: F32_TOLERANCE,
  drafts: (spec) => draftsOf(spec, 'cann'),
  read: (form) => readArguments(form, 'D'),
  recognises: (form) => form.has('n_dims') && form.has('mode') && form.has('D'),
};
