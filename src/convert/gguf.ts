/**
 * GGUF's keys and factor tensors: record ↔ metadata, as llama.cpp reads them.
 *
 * Which pairs turn is not among the keys: general.architecture decides it. Where the record turns halves and the architecture neighbours,
 * llama.cpp's converter permutes q and k, and so must whoever writes these keys.
 *
 * @module
 * @see ggml-org/llama.cpp@a5410f0 src/llama-model.cpp; convert_hf_to_gguf.py generate_extra_tensors; ggml docs/gguf.md
 */
import { RopewalkError, refuse } from '../core/errors.js';
import { Fields } from '../core/fields.js';
import { ropeFromGguf } from '../dialects/gguf.js';
import { sharePairs } from '../ops/rope/axes.js';
import type { RopeSpec } from '../ops/rope/plan.js';
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
  if (spec.pairing === 'vision') cannot('gguf', "a vision tower's RoPE is written into clip.cpp, not into keys", 'Use --to ggml, mode 24.');
  refuseLeftovers(spec);
  const { architecture, pairing, mapped } = architectureFor(spec, options);
  const relayout = relayoutOf(spec, pairing, architecture);
  const common: Record<string, unknown> = {
    'general.architecture': architecture,
    // DeepSeek's key_length counts the part without position too, which is no part of the record.
    ...(architecture === 'deepseek2' ? {} : { [`${architecture}.attention.key_length`]: effective.headDim }),
    [`${architecture}.rope.dimension_count`]: effective.rotaryDim,
    ...(spec.axes ? { [`${architecture}.rope.dimension_sections`]: [...spec.axes.sections, 0].slice(0, 4) } : {}),
  };
  // GGUF's sections are read by the architecture's own rule; ggml's scalings know nothing of axes.
  const drafts = [...longRope(spec, architecture, common), ...scaled(spec, architecture, common)];
  const notes = [
    ...(architecture.startsWith('gemma3')
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
    notes: [
      ...notes,
      ...(draft.notes ?? []),
      ...(draft.arguments['rope_freqs.weight']
        ? ["rope_freqs.weight is an f32 tensor; not every architecture's graph reads it, so look for it in src/models of llama.cpp."]
        : []),
    ],
    ...(relayout ? { relayout } : {}),
  }));
}

const WORDS: Readonly<Record<string, string>> = {
  half: 'halves',
  interleaved: 'neighbours',
  'interleaved-to-half': 'neighbours into halves',
};

function scaled(spec: RopeSpec, a: string, common: Record<string, unknown>): Draft[] {
  // An architecture's axes are read back from its own sections.
  return ggmlScalings(spec, 'gguf').map((s): Draft => {
    const yarn = s.ext_factor !== 0;
    const key = (name: string): string => `${a}.rope.scaling.${name}`;
    const changed = (name: string, value: number, usual: number): Record<string, number> => (value === usual ? {} : { [key(name)]: value });
    const attn = changed('attn_factor', s.attn_factor, 1);
    const scaling = yarn
      ? {
          [key('type')]: 'yarn',
          [key('factor')]: f32(1 / s.freq_scale),
          [key('original_context_length')]: s.n_ctx_orig,
          ...changed('yarn_ext_factor', s.ext_factor, 1),
          ...attn,
          ...changed('yarn_beta_fast', s.beta_fast, 32),
          ...changed('yarn_beta_slow', s.beta_slow, 1),
        }
      : s.freq_scale !== 1
        ? { [key('type')]: 'linear', [key('factor')]: f32(1 / s.freq_scale), ...attn }
        : attn;
    return {
      call: 'GGUF metadata',
      arguments: {
        ...common,
        [`${a}.rope.freq_base`]: s.freq_base,
        ...scaling,
        ...(s.freq_factors ? { 'rope_freqs.weight': [...s.freq_factors] } : {}),
      },
      notes: s.notes,
    };
  });
}

/** LongRoPE keeps both lists, and llama.cpp chooses by the size of the context it is opened with. */
function longRope(spec: RopeSpec, a: string, common: Record<string, unknown>): Draft[] {
  const { scaling } = spec;
  if (scaling?.kind !== 'longrope') return [];
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
        'rope_factors_long.weight': list(scaling.originalContext + 1),
        'rope_factors_short.weight': list(scaling.originalContext),
      },
      notes: [
        'rope_factors_long.weight and rope_factors_short.weight are f32 tensors.',
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

/** The architecture that the keys are for, and how it pairs. */
function architectureFor(
  spec: RopeSpec,
  options: ConvertOptions,
): { architecture: string; pairing: 'half' | 'interleaved'; mapped: boolean } {
  const asked = options.architecture;
  const named = asked ?? (options.modelType === undefined ? undefined : (ARCHITECTURE_OF[options.modelType] ?? options.modelType));
  const pairing = named === undefined ? undefined : pairingOf(named);
  if (named !== undefined && pairing) return { architecture: named, pairing, mapped: true };
  if (asked !== undefined) refuse('UNSUPPORTED', 'convert: --arch', 'an architecture of llama.cpp with RoPE', asked);
  const rule = spec.axes?.rule;
  if (rule) return { architecture: rule === 'sections' ? 'qwen2vl' : 'qwen3vl', pairing: 'half', mapped: false };
  return spec.pairing === 'half'
    ? { architecture: 'qwen2', pairing: 'half', mapped: false }
    : { architecture: 'llama', pairing: 'interleaved', mapped: false };
}

/** How an architecture pairs, as the dialect says; undefined for one that it does not know, or that has no RoPE. */
function pairingOf(architecture: string): 'half' | 'interleaved' | undefined {
  const sections = { [`${architecture}.rope.dimension_sections`]: [1, 1, 0, 0] };
  try {
    const model = readKeys({ 'general.architecture': architecture, [`${architecture}.attention.key_length`]: 4, ...sections }, {}, 'gguf');
    return model.pairing as 'half' | 'interleaved';
  } catch (error) {
    if (error instanceof RopewalkError) return undefined;
    throw error;
  }
}

function relayoutOf(spec: RopeSpec, pairing: 'half' | 'interleaved', architecture: string): Relayout | undefined {
  if (spec.pairing === pairing) return undefined;
  if (spec.pairing === 'half' && pairing === 'interleaved') return { from: 'half', to: 'interleaved', weights: 'permute' };
  if (spec.pairing === 'interleaved-to-half' && pairing === 'interleaved') return { from: spec.pairing, to: pairing, weights: 'none' };
  return cannot(
    'gguf',
    `${architecture} turns ${WORDS[pairing]}, this record ${WORDS[spec.pairing]}`,
    'Name an architecture that pairs so with --arch, or permute q and k weights first: ropewalk permute.',
  );
}

/** Factor tensors travel among the keys, as lists. */
const TENSORS = ['rope_freqs.weight', 'rope_factors_long.weight', 'rope_factors_short.weight'];

function readKeys(keys: Readonly<Record<string, unknown>>, options: ConvertOptions, where: string): RopeSpec {
  const metadata = new Map<string, unknown>(Object.entries(keys).filter(([key]) => !TENSORS.includes(key)));
  const architecture = metadata.get('general.architecture');
  if (!metadata.has(`${architecture}.block_count`)) metadata.set(`${architecture}.block_count`, 12); // enough to hold a full layer of Gemma 3
  const fields = new Fields(keys, where);
  const tensors = TENSORS.filter((name) => fields.has(name)).map((name) => ({ name }));
  const model = ropeFromGguf(
    { metadata, tensors, readTensor: (name) => Float32Array.from(fields.optionalNumbers(name)!) },
    { ...(options.context === undefined ? {} : { context: options.context }), where },
  );
  // The keys without _swa are those of the full layers.
  const layer = model.layers.find(({ rope, layerType }) => rope && layerType !== 'sliding_attention');
  return layer?.rope ?? refuse('UNSUPPORTED', where, 'a layer with RoPE', architecture);
}

/** Metadata keys, and rope_freqs or rope_factors tensors. */
export const ggufPeer: Peer = {
  name: 'gguf',
  about: 'metadata keys {arch}.rope.*, and rope_freqs or rope_factors tensors',
  tolerance: F32_TOLERANCE,
  drafts: draftsOf,
  read: (form, _tables, options) => readKeys(Object.fromEntries(form.keys().map((key) => [key, form.raw(key)])), options, form.where),
  recognises: (form) => form.has('general.architecture'),
};
