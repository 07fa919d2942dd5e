/**
 * Writes and reads GGUF's keys and factor tensors, as llama.cpp reads them.
 *
 * general.architecture decides the pairing, and which keys and factor tensors llama.cpp reads. Where the record has
 * half pairing and the architecture interleaved, q and k weights must be permuted, as llama.cpp's converter does.
 *
 * @module
 * @see ggml-org/llama.cpp@de3ff815 src/llama-model.cpp; convert_hf_to_gguf.py generate_extra_tensors; ggml docs/gguf.md
 */

import type { RopeSpec } from 'ropewalk';
import { refuse } from 'ropewalk/backend';
import { checkName, type Fields, sharePairs } from 'ropewalk/internal';
import { ropeFromGguf, rowOf } from '../gguf.js';
import { ARCHITECTURE_OF, FREQS, type GgufArchitecture, LONG, SHORT } from '../gguf-architectures.js';
import { familyOf, SLIDING } from '../huggingface-models.js';
import { type EffectiveRope, effectiveRope, factorsFor } from './effective.js';
import type { ConvertOptions, Draft, Peer, Relayout } from './form.js';
import { cannot, checkLimits, F32_TOLERANCE, rawOf } from './form.js';
import { type GgmlScaling, ggmlScalings } from './ggml.js';

const f32 = Math.fround;

/**
 * Finds the model_type that a GGUF architecture usually comes from.
 *
 * @param architecture - general.architecture
 */
export function modelTypeOf(architecture: string): string {
  checkName(architecture, 'architecture', 'a model');
  if (architecture === 'llama') return 'llama';
  return Object.entries(ARCHITECTURE_OF).findLast(([, name]) => name === architecture)?.[0] ?? architecture;
}

/** The reason why an architecture has no keys for a record, and the next step. */
type Reason = readonly [because: string, next: string];

/** A record for one architecture. */
interface Target {
  readonly a: string;
  readonly row: GgufArchitecture;
  readonly spec: RopeSpec;
  readonly rope: EffectiveRope;
  readonly common: Readonly<Record<string, unknown>>;
  /** This key holds the base. */
  readonly base: string;
}

function draftsOf(spec: RopeSpec, options: ConvertOptions): Draft[] {
  const rope = checkLimits('gguf', spec, {
    offset: [
      'no key says where the window starts',
      "llama.cpp sets it in the model's graph: use --to ggml for n_offs.",
    ],
    vision: ["a vision tower's RoPE is in clip.cpp, not in keys", 'Use --to ggml, mode 24.'],
  });
  refuseLeftovers(spec, rope);
  const { candidates, mapped } = architecturesFor(spec, options);
  const reasons: Reason[] = [];
  const sliding = options.layerType === SLIDING;
  const drafts = candidates.flatMap((architecture) => draftsFor(architecture, spec, rope, mapped, sliding, reasons));
  // The last candidate has the most keys: what it lacks, all lack.
  const reason = reasons.at(-1);
  return drafts.length > 0 || !reason ? drafts : cannot('gguf', ...reason);
}

function draftsFor(
  a: string,
  spec: RopeSpec,
  rope: EffectiveRope,
  mapped: boolean,
  slides: boolean,
  reasons: Reason[],
): Draft[] {
  const row = rowOf(a)!;
  const { headDim, rotaryDim } = rope;
  const pairing = pairingOf(row, spec);
  const relayout = relayoutOf(spec, pairing, a);
  if (row.whole && rotaryDim !== headDim) {
    const because = `llama.cpp's ${a} rotates whole heads, and this record ${rotaryDim} of ${headDim} dimensions`;
    const other = pairing === 'half' ? 'phi3' : 'glm4';
    reasons.push([because, `Name an architecture that rotates a part with --arch, such as ${other}.`]);
    return [];
  }
  const common = {
    'general.architecture': a,
    // MLA's key_length includes the part without position, which the record does not have.
    [`${a}.attention.key_length`]: row.window === 'mla' ? undefined : headDim,
    [`${a}.rope.dimension_count`]: rotaryDim,
    [`${a}.rope.dimension_sections`]: spec.axes && [...spec.axes.sections, 0].slice(0, 4),
  };
  const own = row.sliding !== undefined && row.sliding.base !== 'same';
  const base = `${a}.rope.freq_base${own && slides ? '_swa' : ''}`;
  const swaps = `permute q and k weights (ropewalk permute), as llama.cpp's converter does.`;
  const notes = [
    own && slides && `These keys are those of sliding layers; the base of full layers is ${a}.rope.freq_base.`,
    own && !slides && `These keys are those of full layers; the base of sliding layers is ${a}.rope.freq_base_swa.`,
    !mapped && `general.architecture decides the pairing: ${a} has ${pairing} pairing. Name yours with --arch.`,
    relayout?.weights === 'permute' && `${a} has ${pairing} pairing, this record ${spec.pairing}: ${swaps}`,
    relayout?.weights === 'none' &&
      `${a} has interleaved pairing: q and k come out permuted in the same way, and q·k is the same.`,
  ].filter((note) => note !== false);
  const target = { a, row, spec, rope, common, base };
  const scaled = ggmlScalings(spec, 'gguf').flatMap((scaling) => scaledDrafts(target, scaling, reasons));
  const drafts = [...longRope(target), ...scaled];
  return drafts.map((draft) => ({ ...draft, notes: [...notes, ...(draft.notes ?? [])], relayout }));
}

/** Writes the keys of linear scaling and YaRN, or factor tensors, if llama.cpp reads them for this architecture. */
function scaledDrafts({ a, row, spec, common, base }: Target, s: GgmlScaling, reasons: Reason[]): Draft[] {
  const lacks = (what: string, next: string): Draft[] => {
    reasons.push([`llama.cpp reads no ${what} for ${a}`, next]);
    return [];
  };
  const yarn = s.ext_factor !== 0;
  const betaFast = row.betaFast ?? 32;
  if (s.freq_factors && (row.factors === undefined || row.factorsFor === 'none')) {
    const half = pairingOf(row, spec) === 'half';
    const other = half ? 'exaone, or phi3 for a part of a head' : 'llama, or nanbeige for a part of a head';
    return lacks('factors of frequencies', `Name an architecture that has them with --arch: ${other}.`);
  }
  if (yarn && s.ext_factor !== 1 && row.yarn !== 'all') return lacks('yarn_ext_factor', 'grok has it: --arch grok.');
  if (yarn && row.yarn === undefined && (s.beta_fast !== betaFast || s.beta_slow !== 1))
    return lacks('yarn_beta_fast and yarn_beta_slow', 'grok and mistral3 have them: --arch mistral3.');
  const key = (name: string): string => `${a}.rope.scaling.${name}`;
  const unless = (usual: number, value: number) => (value === usual ? undefined : value);
  const scaling: Record<string, unknown> = {};
  if (yarn || s.freq_scale !== 1) {
    scaling[key('type')] = yarn ? 'yarn' : 'linear';
    scaling[key('factor')] = f32(1 / s.freq_scale);
  }
  scaling[key('attn_factor')] = unless(1, s.attn_factor);
  if (yarn) {
    scaling[key('original_context_length')] = s.n_ctx_orig;
    scaling[key('yarn_ext_factor')] = unless(1, s.ext_factor);
    scaling[key('yarn_beta_fast')] = unless(betaFast, s.beta_fast);
    scaling[key('yarn_beta_slow')] = unless(1, s.beta_slow);
  }
  const notes = [...s.notes];
  if (s.freq_factors) {
    // Both lists are the same, for long and for short contexts.
    const both = row.factors === 'long-short';
    for (const name of both ? [LONG, SHORT] : [FREQS]) scaling[name] = s.freq_factors;
    if (both) scaling[key('original_context_length')] = s.n_ctx_orig || 4096;
    notes.push(both ? NOTE_BOTH : `${FREQS} is an f32 tensor.`);
  }
  const draft = (keys: Readonly<Record<string, unknown>>): Draft => {
    return { call: 'GGUF metadata', arguments: { ...common, [base]: s.freq_base, ...keys }, notes };
  };
  // llama.cpp computes the magnitude from DeepSeek's mscale_all_dim, if mscale is what it expects.
  const { logMultiplier } = row;
  if (!yarn || logMultiplier === undefined || spec.scaling?.kind !== 'yarn' || !spec.scaling.mscaleAllDim)
    return [draft(scaling)];
  const multiplier = f32(spec.scaling.mscaleAllDim * (logMultiplier === 'cancels' ? 0.1 : logMultiplier));
  const computed = { [key('attn_factor')]: undefined, [key('yarn_log_multiplier')]: multiplier };
  return [draft({ ...scaling, ...computed }), draft(scaling)];
}

/** Writes both lists of LongRoPE. llama.cpp chooses by the size of its context. */
function longRope({ a, row, spec, rope, common, base: baseKey }: Target): Draft[] {
  const { scaling } = spec;
  const reads = (row.factors === 'long-short' || row.factors === 'by-type') && row.factorsFor !== 'none';
  if (scaling?.kind !== 'longrope' || !reads) return [];
  const base = f32(spec.base);
  const { originalContext } = scaling;
  const list = (context: number): number[] =>
    factorsFor(effectiveRope({ ...spec, scaling: { ...scaling, context } }).invFreq, base, rope.rotaryDim).map(f32);
  const keys = {
    ...common,
    [baseKey]: base,
    [`${a}.rope.scaling.type`]: 'longrope',
    [`${a}.rope.scaling.original_context_length`]: originalContext,
    [`${a}.rope.scaling.attn_factor`]: f32(rope.attentionFactor),
    [LONG]: list(originalContext + 1),
    [SHORT]: list(originalContext),
  };
  const note = `llama.cpp takes the long ones when its context is larger than ${originalContext} tokens, for every sequence.`;
  return [{ call: 'GGUF metadata', arguments: keys, notes: [NOTE_BOTH, note] }];
}

/** Refuses leftover pairs: HuggingFace gives them to t, IMROPE to e, where llama.cpp's position is 0 for text. */
function refuseLeftovers({ axes }: RopeSpec, { invFreq, axisOfPair, rotaryDim }: EffectiveRope): void {
  if (axes?.rule !== 'interleaved') return;
  const theirs = sharePairs({ rule: 'interleaved-ggml', sections: axes.sections }, rotaryDim / 2).axisOfPair;
  const lost = Array.from(axisOfPair.keys()).filter((j) => axisOfPair[j] !== theirs[j]);
  if (lost.length === 0) return;
  const angle = Math.max(...lost.map((j) => Math.abs(invFreq[j]!))) * 262143;
  cannot(
    'gguf',
    `llama.cpp's IMROPE gives pairs ${lost.join(', ')} to the fourth axis, and this record to t`,
    `With dimension_sections [${axes.sections}], a text token would lose up to ${angle.toPrecision(3)} rad at ` +
      'position 262,143. If this is intended, use axes rule "interleaved-ggml" in a record.',
  );
}

/** Finds the architecture that the options name, or else the plainest ones with this pairing. */
function architecturesFor(spec: RopeSpec, options: ConvertOptions): { candidates: readonly string[]; mapped: boolean } {
  const { architecture: asked, modelType } = options;
  const family = modelType === undefined ? undefined : familyOf(modelType);
  const named = asked ?? (family === undefined ? undefined : (ARCHITECTURE_OF[family] ?? family));
  const rope = named === undefined ? undefined : rowOf(named)?.rope;
  if (named !== undefined && rope !== undefined && rope !== 'none') return { candidates: [named], mapped: true };
  if (asked !== undefined) refuse('UNSUPPORTED', 'convert: --arch', 'an architecture of llama.cpp with RoPE', asked);
  const rule = spec.axes?.rule;
  if (rule) return { candidates: rule === 'sections' ? ['qwen2vl', 'glm4moe'] : ['qwen3vl', 'qwen35'], mapped: false };
  if (spec.pairing !== 'half') return { candidates: ['llama', 'glm4', 'nanbeige'], mapped: false };
  // qwen2 rotates whole heads; exaone has factors too; phi3 rotates parts, with factors for long and short contexts.
  return { candidates: spec.scaling?.kind === 'longrope' ? ['phi3'] : ['qwen2', 'exaone', 'phi3'], mapped: false };
}

/** Finds the pairing of an architecture, which may differ with sections. */
function pairingOf(row: GgufArchitecture, spec: RopeSpec): 'half' | 'interleaved' {
  return row.rope === 'norm' && !(row.sections && spec.axes) ? 'interleaved' : 'half';
}

function relayoutOf({ pairing: from }: RopeSpec, to: 'half' | 'interleaved', a: string): Relayout | undefined {
  if (from === to) return undefined;
  if (from === 'half') return { from, to, weights: 'permute' };
  if (from === 'interleaved-to-half' && to === 'interleaved') return { from, to, weights: 'none' };
  const next = 'Name an architecture of this pairing with --arch, or permute q and k weights first: ropewalk permute.';
  return cannot('gguf', `${a} has ${to} pairing, this record ${from}`, next);
}

const NOTE_BOTH = `${LONG} and ${SHORT} are f32 tensors.`;
/** The arguments have the factor tensors as lists, beside the keys. */
const TENSORS = [FREQS, LONG, SHORT];
/** Enough for one layer of each kind; Baichuan rotates only with 32 layers. */
const LAYERS = 32;

function readKeys(fields: Fields, options: ConvertOptions): RopeSpec {
  const { where } = fields;
  const metadata = new Map<string, unknown>(Object.entries(rawOf(fields)).filter(([key]) => !TENSORS.includes(key)));
  const architecture = metadata.get('general.architecture');
  const assume = (key: string, value: unknown): void => {
    if (!metadata.has(`${architecture}.${key}`)) metadata.set(`${architecture}.${key}`, value);
  };
  const row = typeof architecture === 'string' ? rowOf(architecture) : undefined;
  // With only the base of sliding layers these are the keys of a sliding layer.
  const slides = metadata.has(`${architecture}.rope.freq_base_swa`) && !metadata.has(`${architecture}.rope.freq_base`);
  assume('block_count', LAYERS);
  if (slides) assume('attention.sliding_window', 1);
  const alternate = Array.from({ length: LAYERS }, (_item, layer) => layer % 2 === 0);
  if (row?.sliding?.full === 'list') assume('attention.sliding_window_pattern', alternate);
  if (row?.compressed) assume('attention.compress_ratios', new Array(LAYERS).fill(0));
  const tensors = TENSORS.filter((name) => fields.has(name)).map((name) => ({ name }));
  const model = ropeFromGguf(
    { metadata, tensors, readTensor: (name) => Float32Array.from(fields.optionalNumbers(name)!) },
    { context: options.context, where },
  );
  // Keys without _swa are those of full layers; in some architectures only sliding layers rotate.
  const layer =
    model.layers.find(({ rope, layerType }) => rope && (layerType === SLIDING) === slides) ??
    model.layers.find(({ rope }) => rope);
  return layer?.rope ?? refuse('UNSUPPORTED', where, 'a layer with RoPE', architecture);
}

export const ggufPeer: Peer = {
  name: 'gguf',
  about: 'metadata keys {arch}.rope.*, and rope_freqs or rope_factors tensors',
  tolerance: F32_TOLERANCE,
  drafts: draftsOf,
  read: (form, _tables, options) => readKeys(form, options),
  recognizes: (form) => form.has('general.architecture'),
};
