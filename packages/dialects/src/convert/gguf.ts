/**
 * GGUF's keys and factor tensors: record ↔ metadata, as llama.cpp reads them.
 *
 * Which pairs rotate is not among the keys: general.architecture decides it, and which keys and factor tensors llama.cpp reads. Where the
 * record rotates halves and the architecture neighbours, llama.cpp's converter permutes q and k, and so must whoever writes these keys.
 *
 * @module
 * @see ggml-org/llama.cpp@de3ff815 src/llama-model.cpp; convert_hf_to_gguf.py generate_extra_tensors; ggml docs/gguf.md
 */

import type { RopeSpec } from 'ropewalk';
import { Fields, refuse, sharePairs } from 'ropewalk/backend';
import { ropeFromGguf, rowOf } from '../gguf.js';
import type { GgufArchitecture } from '../gguf-architectures.js';
import { effectiveRope } from './effective.js';
import { factorsFor } from './explicit.js';
import { type ConvertOptions, cannot, type Draft, F32_TOLERANCE, type Peer, type Relayout } from './form.js';
import { ggmlScalings } from './ggml.js';

/** GGUF's name of an architecture, where it is not model_type itself. */
const ARCHITECTURE_OF: Readonly<Record<string, string>> = {
  mistral: 'llama',
  mixtral: 'llama',
  qwen2_moe: 'qwen2moe',
  qwen3_moe: 'qwen3moe',
  qwen2_vl: 'qwen2vl',
  qwen2_5_vl: 'qwen2vl',
  qwen3_vl: 'qwen3vl',
  qwen3_vl_moe: 'qwen3vlmoe',
  phi: 'phi2',
  gemma3_text: 'gemma3',
  gpt_neox: 'gptneox',
  gpt_oss: 'gpt-oss',
  glm4_moe: 'glm4moe',
  cohere: 'command-r',
  deepseek_v2: 'deepseek2',
  deepseek_v3: 'deepseek2',
  llama4_text: 'llama4',
  ernie4_5_moe: 'ernie4_5-moe',
};

const f32 = Math.fround;

/**
 * The model_type that a GGUF architecture usually comes from.
 *
 * @param architecture - general.architecture
 */
export function modelTypeOf(architecture: string): string {
  if (architecture === 'llama') return 'llama';
  return Object.entries(ARCHITECTURE_OF).findLast(([, name]) => name === architecture)?.[0] ?? architecture;
}

/** A record in the keys of one architecture. */
function draftsOf(spec: RopeSpec, options: ConvertOptions): Draft[] {
  const effective = effectiveRope(spec);
  if (effective.rotaryOffset !== 0)
    cannot(
      'gguf',
      `no key says where the window starts, and this one starts at ${effective.rotaryOffset}`,
      "llama.cpp sets it in the model's graph: use --to ggml for n_offs.",
    );
  if (spec.pairing === 'vision')
    cannot('gguf', "a vision tower's RoPE is written into clip.cpp, not into keys", 'Use --to ggml, mode 24.');
  refuseLeftovers(spec);
  const { candidates, mapped } = architecturesFor(spec, options);
  const reasons: Reason[] = [];
  const drafts = candidates.flatMap((architecture) => draftsFor(architecture, spec, mapped, reasons));
  // Of several architectures, what the last one lacks is what none has.
  const reason = reasons.at(-1);
  return drafts.length > 0 || !reason ? drafts : cannot('gguf', reason.because, reason.next);
}

/** Why an architecture has no keys for a record, and what to do. */
interface Reason {
  readonly because: string;
  readonly next: string;
}

function draftsFor(architecture: string, spec: RopeSpec, mapped: boolean, reasons: Reason[]): Draft[] {
  const row = rowOf(architecture)!;
  const effective = effectiveRope(spec);
  const pairing = pairingOf(row, spec);
  const relayout = relayoutOf(spec, pairing, architecture);
  if (row.whole && effective.rotaryDim !== effective.headDim) {
    reasons.push({
      because: `llama.cpp's ${architecture} rotates whole heads, and this record ${effective.rotaryDim} of ${effective.headDim} dimensions`,
      next: `Name an architecture that rotates a part with --arch, such as ${pairing === 'half' ? 'phi3' : 'glm4'}.`,
    });
    return [];
  }
  const common: Record<string, unknown> = {
    'general.architecture': architecture,
    // The key_length of MLA counts the part without position too, which is no part of the record.
    ...(row.window === 'mla' ? {} : { [`${architecture}.attention.key_length`]: effective.headDim }),
    [`${architecture}.rope.dimension_count`]: effective.rotaryDim,
    ...(spec.axes ? { [`${architecture}.rope.dimension_sections`]: [...spec.axes.sections, 0].slice(0, 4) } : {}),
  };
  // GGUF's sections are read by the architecture's own rule; ggml's scalings know nothing of axes.
  const drafts = [...longRope(spec, architecture, row, common), ...scaled(spec, architecture, row, common, reasons)];
  const notes = [
    ...(row.sliding && row.sliding.base !== 'same'
      ? [`These keys are the full layers'; the sliding layers' base is ${architecture}.rope.freq_base_swa.`]
      : []),
    ...(architecture === 'deepseek2' && spec.scaling?.kind === 'yarn'
      ? [
          "llama.cpp's deepseek2 graph works out a magnitude of its own from yarn_log_multiplier: compare attn_factor with a file of its converter.",
        ]
      : []),
    ...(mapped
      ? []
      : [
          `Which pairs turn is decided by general.architecture: ${architecture} turns ${pairing === 'half' ? 'halves' : 'neighbours'}. Name yours with --arch.`,
        ]),
    ...(relayout?.weights === 'permute'
      ? [
          `${architecture} turns ${WORDS[relayout.to]}, this record ${WORDS[relayout.from]}: permute q and k weights (ropewalk permute), as llama.cpp's converter does.`,
        ]
      : []),
    ...(relayout?.weights === 'none'
      ? [`${architecture} writes neighbours, this record halves: q and k come out permuted alike, and q·k is the same.`]
      : []),
  ];
  return drafts.map((draft) => ({
    ...draft,
    notes: [...notes, ...(draft.notes ?? [])],
    ...(relayout ? { relayout } : {}),
  }));
}

const WORDS: Readonly<Record<string, string>> = {
  half: 'halves',
  interleaved: 'neighbours',
  'interleaved-to-half': 'neighbours into halves',
};

/** In the keys of linear scaling and YaRN, or in factor tensors, as far as llama.cpp reads them for this architecture. */
function scaled(
  spec: RopeSpec,
  a: string,
  row: GgufArchitecture,
  common: Record<string, unknown>,
  reasons: Reason[],
): Draft[] {
  const betaFast = row.betaFast ?? 32;
  // An architecture's axes are read back from its own sections.
  return ggmlScalings(spec, 'gguf').flatMap((s): Draft[] => {
    const yarn = s.ext_factor !== 0;
    const key = (name: string): string => `${a}.rope.scaling.${name}`;
    const changed = (name: string, value: number, usual: number): Record<string, number> =>
      value === usual ? {} : { [key(name)]: value };
    const lacks = (what: string, next: string): Draft[] => {
      reasons.push({ because: `llama.cpp reads no ${what} for ${a}`, next });
      return [];
    };
    if (s.freq_factors && (row.factors === undefined || row.factorsFor === 'none')) {
      const other =
        pairingOf(row, spec) === 'half'
          ? 'exaone, or phi3 for a part of a head'
          : 'llama, or nanbeige for a part of a head';
      return lacks('factors of frequencies', `Name an architecture that has them with --arch: ${other}.`);
    }
    if (yarn && s.ext_factor !== 1 && row.yarn !== 'all') return lacks('yarn_ext_factor', 'grok has it: --arch grok.');
    if (yarn && row.yarn === undefined && (s.beta_fast !== betaFast || s.beta_slow !== 1))
      return lacks('yarn_beta_fast and yarn_beta_slow', 'grok and mistral3 have them: --arch mistral3.');
    const attn = changed('attn_factor', s.attn_factor, 1);
    const scaling = yarn
      ? {
          [key('type')]: 'yarn',
          [key('factor')]: f32(1 / s.freq_scale),
          [key('original_context_length')]: s.n_ctx_orig,
          ...changed('yarn_ext_factor', s.ext_factor, 1),
          ...attn,
          ...changed('yarn_beta_fast', s.beta_fast, betaFast),
          ...changed('yarn_beta_slow', s.beta_slow, 1),
        }
      : s.freq_scale !== 1
        ? { [key('type')]: 'linear', [key('factor')]: f32(1 / s.freq_scale), ...attn }
        : attn;
    const factors = s.freq_factors && [...s.freq_factors];
    // Where there are lists for long and for short contexts, both say the same.
    const both = row.factors === 'long-short' && {
      [LONG]: factors,
      [SHORT]: factors,
      [key('original_context_length')]: s.n_ctx_orig || 4096,
    };
    return [
      {
        call: 'GGUF metadata',
        arguments: {
          ...common,
          [`${a}.rope.freq_base`]: s.freq_base,
          ...scaling,
          ...(factors ? both || { [FREQS]: factors } : {}),
        },
        notes: [...s.notes, ...(factors ? [both ? NOTE_BOTH : `${FREQS} is an f32 tensor.`] : [])],
      },
    ];
  });
}

/** LongRoPE keeps both lists, and llama.cpp chooses by the size of the context it is opened with. */
function longRope(spec: RopeSpec, a: string, row: GgufArchitecture, common: Record<string, unknown>): Draft[] {
  const { scaling } = spec;
  if (
    scaling?.kind !== 'longrope' ||
    (row.factors !== 'long-short' && row.factors !== 'by-type') ||
    row.factorsFor === 'none'
  )
    return [];
  const { rotaryDim, attentionFactor } = effectiveRope(spec);
  const base = f32(spec.base);
  const list = (context: number): number[] =>
    factorsFor(effectiveRope({ ...spec, scaling: { ...scaling, context } }).invFreq, base, rotaryDim).map(f32);
  return [
    {
      call: 'GGUF metadata',
      arguments: {
        ...common,
        [`${a}.rope.freq_base`]: base,
        [`${a}.rope.scaling.type`]: 'longrope',
        [`${a}.rope.scaling.original_context_length`]: scaling.originalContext,
        [`${a}.rope.scaling.attn_factor`]: f32(attentionFactor),
        [LONG]: list(scaling.originalContext + 1),
        [SHORT]: list(scaling.originalContext),
      },
      notes: [
        NOTE_BOTH,
        `llama.cpp takes the long ones when it is opened with more than ${scaling.originalContext} tokens, whatever the sequence's length.`,
      ],
    },
  ];
}

/** Where HuggingFace gives what t, h and w leave to t, IMROPE gives it to e, and llama.cpp's position there is 0 for text. */
function refuseLeftovers(spec: RopeSpec): void {
  if (spec.axes?.rule !== 'interleaved') return;
  const { invFreq, axisOfPair, rotaryDim } = effectiveRope(spec);
  const theirs = sharePairs({ rule: 'interleaved-ggml', sections: spec.axes.sections }, rotaryDim / 2).axisOfPair;
  const lost = Array.from(axisOfPair.keys()).filter((j) => axisOfPair[j] !== theirs[j]);
  if (lost.length === 0) return;
  const angle = Math.max(...lost.map((j) => Math.abs(invFreq[j]!))) * 262143;
  cannot(
    'gguf',
    `llama.cpp's IMROPE gives pairs ${lost.join(', ')} to the fourth axis, where this record turns them by t`,
    `With dimension_sections [${spec.axes.sections}] as they are, a text token loses up to ${angle.toPrecision(3)} rad at position 262,143: as record, say axes rule "interleaved-ggml".`,
  );
}

/** The architectures that the keys may be for: the one that is named, or else the plainest ones that pair so. */
function architecturesFor(spec: RopeSpec, options: ConvertOptions): { candidates: readonly string[]; mapped: boolean } {
  const asked = options.architecture;
  const named =
    asked ?? (options.modelType === undefined ? undefined : (ARCHITECTURE_OF[options.modelType] ?? options.modelType));
  const rope = named === undefined ? undefined : rowOf(named)?.rope;
  if (named !== undefined && rope !== undefined && rope !== 'none') return { candidates: [named], mapped: true };
  if (asked !== undefined) refuse('UNSUPPORTED', 'convert: --arch', 'an architecture of llama.cpp with RoPE', asked);
  const rule = spec.axes?.rule;
  if (rule) return { candidates: rule === 'sections' ? ['qwen2vl', 'glm4moe'] : ['qwen3vl', 'qwen35'], mapped: false };
  if (spec.pairing !== 'half') return { candidates: ['llama', 'glm4', 'nanbeige'], mapped: false };
  // Whole heads; whole heads with factors; parts of heads, and factors for long and short contexts.
  return { candidates: spec.scaling?.kind === 'longrope' ? ['phi3'] : ['qwen2', 'exaone', 'phi3'], mapped: false };
}

/** How an architecture pairs: with sections it may be otherwise than without. */
function pairingOf(row: GgufArchitecture, spec: RopeSpec): 'half' | 'interleaved' {
  return row.rope === 'norm' && !(row.sections && spec.axes) ? 'interleaved' : 'half';
}

function relayoutOf(spec: RopeSpec, pairing: 'half' | 'interleaved', architecture: string): Relayout | undefined {
  if (spec.pairing === pairing) return undefined;
  if (spec.pairing === 'half' && pairing === 'interleaved')
    return { from: 'half', to: 'interleaved', weights: 'permute' };
  if (spec.pairing === 'interleaved-to-half' && pairing === 'interleaved')
    return { from: spec.pairing, to: pairing, weights: 'none' };
  return cannot(
    'gguf',
    `${architecture} turns ${WORDS[pairing]}, this record ${WORDS[spec.pairing]}`,
    'Name an architecture that pairs so with --arch, or permute q and k weights first: ropewalk permute.',
  );
}

const FREQS = 'rope_freqs.weight';
const LONG = 'rope_factors_long.weight';
const SHORT = 'rope_factors_short.weight';
const NOTE_BOTH = `${LONG} and ${SHORT} are f32 tensors.`;
/** Factor tensors travel among the keys, as lists. */
const TENSORS = [FREQS, LONG, SHORT];
/** Layers enough for one of each kind; Baichuan rotates only with so many. */
const LAYERS = 32;

function readKeys(keys: Readonly<Record<string, unknown>>, options: ConvertOptions, where: string): RopeSpec {
  const metadata = new Map<string, unknown>(Object.entries(keys).filter(([key]) => !TENSORS.includes(key)));
  const architecture = metadata.get('general.architecture');
  const assume = (key: string, value: unknown): void => {
    if (!metadata.has(`${architecture}.${key}`)) metadata.set(`${architecture}.${key}`, value);
  };
  assume('block_count', LAYERS);
  const row = typeof architecture === 'string' ? rowOf(architecture) : undefined;
  // A list that architectures without a rule of their own need.
  if (row?.sliding?.full === 'list')
    assume(
      'attention.sliding_window_pattern',
      Array.from({ length: LAYERS }, (_, layer) => layer % 2 === 0),
    );
  if (row?.compressed) assume('attention.compress_ratios', new Array(LAYERS).fill(0));
  const fields = new Fields(keys, where);
  const tensors = TENSORS.filter((name) => fields.has(name)).map((name) => ({ name }));
  const model = ropeFromGguf(
    { metadata, tensors, readTensor: (name) => Float32Array.from(fields.optionalNumbers(name)!) },
    { ...(options.context === undefined ? {} : { context: options.context }), where },
  );
  // The keys without _swa are those of the full layers; in some architectures only sliding layers rotate.
  const layer =
    model.layers.find(({ rope, layerType }) => rope && layerType !== 'sliding_attention') ??
    model.layers.find(({ rope }) => rope);
  return layer?.rope ?? refuse('UNSUPPORTED', where, 'a layer with RoPE', architecture);
}

/** Metadata keys, and rope_freqs or rope_factors tensors. */
export const ggufPeer: Peer = {
  name: 'gguf',
  about: 'metadata keys {arch}.rope.*, and rope_freqs or rope_factors tensors',
  tolerance: F32_TOLERANCE,
  drafts: draftsOf,
  read: (form, _tables, options) =>
    readKeys(Object.fromEntries(form.keys().map((key) => [key, form.raw(key)])), options, form.where),
  recognises: (form) => form.has('general.architecture'),
};
