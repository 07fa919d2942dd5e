/**
 * The differences of HuggingFace's models from Llama's RoPE, for each model_type.
 *
 * @module
 * @see huggingface/transformers@v5.18.0 src/transformers/models/NAME/{configuration,modeling}_NAME.py
 */
import type { Pairing, RopeAxes } from 'ropewalk';

export const FULL = 'full_attention';
export const SLIDING = 'sliding_attention';
export const LINEAR = 'linear_attention';

/**
 * The differences of a model from Llama. Llama has θ = 10000 and head_dim = hidden_size / num_attention_heads, and
 * rotates the whole head with half pairing. Numbers are defaults for missing fields.
 */
export interface Rules {
  /** rope_theta has this default. Without it the default is 10000. */
  readonly theta?: number;
  /** The default of max_position_embeddings, of models whose published files leave it out. */
  readonly context?: number;
  /** The old name of rope_theta. */
  readonly thetaKey?: string;
  readonly pairing?: Pairing;
  /** rope_theta is not read: θ is the default times this field. */
  readonly ratioKey?: string;
  /** Where this field is false, pairing is half. */
  readonly interleaveKey?: string;
  readonly headDim?: number;
  /** Full layers have this head_dim: global_head_dim. */
  readonly globalHeadDim?: number;
  /** qk_rope_head_dim (MLA) is a separate part of the head, which rotates as a whole. */
  readonly mla?: number;
  /** The default of partial_rotary_factor. Models without it do not read the field. */
  readonly partial?: number;
  /** The old name of partial_rotary_factor. */
  readonly partialKey?: string;
  /** The default of rotary_dim. Models without it do not read the field. */
  readonly rotaryDim?: number;
  /** The rule of the axes, and the default of mrope_section. */
  readonly axes?: RopeAxes;
  /** Every `period`-th layer has full attention (the field `key` may set it), and the rest has `other`. */
  readonly layers?: { readonly other: string; readonly period: number; readonly key?: string; readonly first?: true };
  /** This old field lists the full layers; the others are convolutions. Without the list all layers are full. */
  readonly attentionAt?: string;
  /** The default of sliding_window, and the layers that have a window where no type says so. */
  readonly window?: { readonly size?: number; readonly layers?: WindowedLayers };
  /** Each layer type has a RoPE: the old field of its θ, and the default. rope_scaling applies to full layers. */
  readonly byType?: {
    readonly full: [string, number];
    readonly sliding: [string, number];
    readonly scalesSliding?: true;
  };
  /** rope_scaling of a model with {@link byType} is read as in others: with truncate. */
  readonly flatScaling?: true;
  /** Full layers do not rotate. */
  readonly onlySliding?: true;
  /** Every n-th layer does not rotate, unless no_rope_layers lists them. */
  readonly nopeEvery?: number;
  /** transformers takes missing parameters from one checkpoint; here the file must have them. */
  readonly needsParameters?: true;
}

/**
 * With `all` every layer has a window. The others need use_sliding_window: `used` is every layer, `late` those from
 * max_window_layers on, `early` every second one before it, and `nope` those that do not rotate.
 */
type WindowedLayers = 'all' | 'used' | 'late' | 'early' | 'nope';

function each(models: string, rules: Rules): Record<string, Rules> {
  return Object.fromEntries(models.split(' ').map((name) => [name, rules]));
}

const LATE = { size: 4096, layers: 'late' } as const;

const EVERY_FOURTH = { other: SLIDING, period: 4, key: 'sliding_window_pattern' };
const LINEAR_FOURTH = { other: LINEAR, period: 4, key: 'full_attention_interval' };
const EXAONE: Rules = { onlySliding: true, layers: EVERY_FOURTH, window: { size: 4096 } };
const GEMMA: Rules['byType'] = { full: ['rope_theta', 1e6], sliding: ['rope_local_base_freq', 1e4] };
const GPT_OSS: Rules = { theta: 150000, headDim: 64, needsParameters: true };

/** The rules by model_type, without `_text` at its end. */
export const MODELS: Readonly<Record<string, Rules>> = {
  ...each(
    'llama olmo olmo2 olmoe granite granitemoe granitemoeshared minicpm falcon falcon_h1 diffllama arcee jais2 ' +
      'hunyuan_v1_dense hunyuan_v1_moe',
    {},
  ),
  ...each('mistral ministral', { window: { layers: 'all', size: 4096 } }),
  ...each('mixtral phimoe', { theta: 1e6, window: { layers: 'all' } }),
  qwen2: { window: LATE },
  qwen2_moe: { window: { ...LATE, layers: 'early' } },
  qwen3_moe: { window: { ...LATE, layers: 'used' } },
  starcoder2: { window: { layers: 'all' } },
  lfm2_moe: { theta: 1e6 },
  nomic_bert: { theta: 1000 },
  ...each('bitnet flex_olmo mllama', { theta: 5e5 }),
  gemma: { headDim: 256 },
  ...each('gemma2 vaultgemma', { headDim: 256, layers: { other: SLIDING, period: 2 }, window: { size: 4096 } }),
  qwen3: { headDim: 128, window: LATE },
  seed_oss: { headDim: 128 },
  smollm3: { theta: 2e6, nopeEvery: 4, window: { layers: 'nope' } },
  minimax: { theta: 1e6, layers: { other: LINEAR, period: 2, first: true } },
  hy_v3: { theta: 11158840, headDim: 128 },
  apertus: { theta: 12e6, needsParameters: true },
  cwm: { theta: 1e6, headDim: 128, needsParameters: true, window: { size: 8192 } },
  dots1: { window: {} },
  ministral3: { headDim: 128, needsParameters: true, window: { layers: 'all' } },
  gpt_oss: { ...GPT_OSS, layers: { other: SLIDING, period: 2 }, window: { size: 128 } },
  openai_privacy_filter: { ...GPT_OSS, pairing: 'interleaved' },

  // A part of each head rotates.
  ...each('phi persimmon nemotron glm4_moe bailing_moe_v2', { partial: 0.5 }),
  ...each('phi3 phi4_multimodal', { partial: 1, window: { layers: 'all' } }),
  stablelm: { partial: 0.25 },
  gpt_neox: { partial: 0.25, partialKey: 'rotary_pct', thetaKey: 'rotary_emb_base' },
  gpt_neox_japanese: { partial: 1, partialKey: 'rotary_pct', thetaKey: 'rotary_emb_base' },
  solar_open: { theta: 1e6, headDim: 128, partial: 1 },
  minimax_m2: { theta: 5e6, headDim: 128, partial: 1 },
  qwen3_next: { headDim: 256, partial: 0.25, layers: LINEAR_FOURTH },

  // These models rotate interleaved pairs.
  ...each('gptj codegen', { pairing: 'interleaved', rotaryDim: 64 }),
  ...each('cohere ernie4_5_moe', { pairing: 'interleaved', theta: 5e5 }),
  ...each('glm glm4', { pairing: 'interleaved', headDim: 128, partial: 0.5 }),
  // ChatGLM and GLM-4 with code of their own, as vLLM reads them (vllm-project/vllm@028aedf models/chatglm.py).
  chatglm: { pairing: 'interleaved', partial: 0.5, ratioKey: 'rope_ratio', interleaveKey: 'original_rope' },
  ernie4_5: { pairing: 'interleaved', theta: 5e5, headDim: 128 },
  helium: { pairing: 'interleaved', theta: 1e5, headDim: 128 },
  moonshine: { pairing: 'interleaved', partial: 0.9 },
  llama4: { pairing: 'interleaved', theta: 5e5, headDim: 128, nopeEvery: 4 },

  // These models have multi-head latent attention.
  deepseek_v2: { mla: 64, pairing: 'interleaved' },
  ...each('deepseek_v3 kimi_k2 youtu', { mla: 64, pairing: 'interleaved-to-half', interleaveKey: 'rope_interleave' }),
  glm4_moe_lite: { mla: 64, pairing: 'interleaved-to-half', interleaveKey: 'rope_interleave', partial: 1 },
  mistral4: { mla: 64, pairing: 'interleaved-to-half', interleaveKey: 'rope_interleave', needsParameters: true },
  ...each('deepseek_v32 glm_moe_dsa', { mla: 64, pairing: 'interleaved-to-half' }),
  longcat_flash: { mla: 64, pairing: 'interleaved-to-half', theta: 1e7 },
  minicpm3: { mla: 32 },

  // These models have several position axes.
  ...each('qwen2_vl qwen2_5_vl', { theta: 1e6, axes: { rule: 'sections', sections: [16, 24, 24] }, window: LATE }),
  paddleocr_vl: { theta: 5e5, headDim: 128, axes: { rule: 'sections', sections: [16, 24, 24] } },
  ...each('glm4v glm_ocr', { pairing: 'interleaved', partial: 1, axes: { rule: 'sections', sections: [8, 12, 12] } }),
  glm4v_moe: { partial: 0.5, axes: { rule: 'sections', sections: [8, 12, 12] } },
  qwen3_vl: { theta: 5e5, headDim: 128, axes: { rule: 'interleaved', sections: [24, 20, 20] } },
  qwen3_vl_moe: { theta: 5e5, axes: { rule: 'interleaved', sections: [24, 20, 20] } },
  ...each('qwen3_5 qwen3_5_moe', {
    headDim: 256,
    partial: 0.25,
    layers: LINEAR_FOURTH,
    axes: { rule: 'interleaved', sections: [11, 11, 10] },
  }),

  // The layers of these models differ.
  granitemoehybrid: { layers: { other: LINEAR, period: Number.POSITIVE_INFINITY } },
  lfm2: { theta: 1e6, attentionAt: 'full_attn_idxs' },
  cohere2: { ...EXAONE, pairing: 'interleaved' },
  ...each('exaone4 exaone_moe', EXAONE),
  afmoe: { headDim: 128, onlySliding: true, layers: { other: SLIDING, period: 4, key: 'global_attn_every_n_layers' } },
  gemma3: {
    context: 131072,
    headDim: 256,
    layers: { ...EVERY_FOURTH, period: 6 },
    byType: GEMMA,
    window: { size: 4096 },
  },
  gemma3n: { context: 32768, headDim: 256, layers: { other: SLIDING, period: 5 }, byType: GEMMA },
  ...each('gemma4 gemma4_unified', {
    headDim: 256,
    globalHeadDim: 512,
    layers: { other: SLIDING, period: 6 },
    byType: { full: ['rope_theta', 1e6], sliding: ['rope_theta', 1e4] },
    needsParameters: true,
  }),
  ...each('modernbert modernbert-decoder', {
    layers: { other: SLIDING, period: 3, key: 'global_attn_every_n_layers', first: true },
    byType: { full: ['global_rope_theta', 160000], sliding: ['local_rope_theta', 1e4], scalesSliding: true },
  }),
  olmo3: {
    layers: { other: SLIDING, period: 4 },
    window: { size: 4096 },
    // Sliding layers do not read rope_theta of old files.
    byType: { full: ['rope_theta', 5e5], sliding: ['rope_parameters.sliding_attention.rope_theta', 5e5] },
  },
};

/** Removes the mark of the text part of a multimodal model from a model_type. */
export function familyOf(modelType: string): string {
  return modelType.replace(/_text(_model)?$/, '');
}

/** Looks up the rules of a model_type without `_text`; undefined for an unknown model. */
export function rulesOf(family: string): Rules | undefined {
  return Object.hasOwn(MODELS, family) ? MODELS[family] : undefined;
}

/** These models have no rotary embedding. */
export const WITHOUT_ROPE = (
  'gpt2 bert roberta opt bloom mpt t5 gpt_bigcode gpt_neo mamba mamba2 distilbert bart xlnet jamba nemotron_h ' +
  'kimi_linear'
).split(' ');
const OWN_ORDER = 'it assigns pairs to axes in an order of its own';

/** No plan can express the rotation of these models, for a reason. */
export const REFUSED: Readonly<Record<string, string>> = {
  nanochat: 'it rotates by the negative angle',
  deepseek_v4: 'it also rotates the attention output back, and its compressed keys have positions of their own',
  cohere2_moe: 'which full layers rotate depends on which layers are dense',
  ernie4_5_vl_moe: OWN_ORDER,
  cohere_compass: OWN_ORDER,
  hunyuan_vl: 'it gives the two dimensions of a pair to different axes',
  neomme: 'its pairs alternate between rows and columns',
};
