/**
 * The model families that this decoder computes, and the steps of other families that it does not.
 *
 * A new family is a new row of {@link FAMILIES}. RoPE is not in these tables: src/dialects has it for every family.
 *
 * @module
 * @see huggingface/transformers@v5.18.0 src/transformers/models/NAME/configuration_NAME.py and modeling_NAME.py
 */

/** What a family computes, and what its class in transformers assumes where config.json leaves a field out. */
export interface Family {
  /** `general.architecture` of its GGUF files. */
  readonly gguf: string;
  readonly numKvHeads?: number;
  readonly maxContext: number;
  /** Biases of q, k and v: always there. Otherwise `attention_bias` says so, for the output projection too. */
  readonly qkvBias?: true;
  /** The class does not read `attention_bias` and `mlp_bias`. */
  readonly noBias?: true;
  /** The class reads `mlp_bias`. */
  readonly mlpBias?: true;
  /** RMS norm over each head of q and k. */
  readonly qkNorm?: true;
  /** `all`: `sliding_window` holds for every layer. `late`: from `max_window_layers` on, if `use_sliding_window`. */
  readonly window?: 'all' | 'late';
}

/** By `model_type` of config.json. */
export const FAMILIES: Readonly<Record<string, Family>> = {
  llama: { gguf: 'llama', maxContext: 2048, mlpBias: true },
  mistral: { gguf: 'llama', maxContext: 131072, numKvHeads: 8, noBias: true, window: 'all' },
  qwen2: { gguf: 'qwen2', maxContext: 32768, numKvHeads: 32, qkvBias: true, noBias: true, window: 'late' },
  qwen3: { gguf: 'qwen3', maxContext: 32768, numKvHeads: 32, qkNorm: true, window: 'late' },
};

/** Fields of config.json that ask for a step that is not computed here, and the values that switch the step off. */
export const OTHER_STEPS: Readonly<Record<string, readonly unknown[]>> = {
  quantization_config: [],
  attn_logit_softcapping: [0],
  final_logit_softcapping: [0],
  query_pre_attn_scalar: [],
  attention_multiplier: [],
  residual_multiplier: [1],
  embedding_multiplier: [1],
  logits_scaling: [1],
  logit_scale: [1],
  scale_emb: [1],
  scale_depth: [],
  clip_qkv: [],
  num_experts: [0],
  num_local_experts: [0, 1],
  n_routed_experts: [0],
  attention_chunk_size: [],
  cross_attention_layers: [],
  is_encoder_decoder: [false],
};

/** The same for GGUF keys, without the architecture in front. */
export const GGUF_OTHER_STEPS: Readonly<Record<string, readonly unknown[]>> = {
  expert_count: [0],
  nextn_predict_layers: [0],
  'attention.causal': [true],
};

/**
 * GGUF keys of other families, which llama.cpp does not read for those above.
 *
 * @see ggml-org/llama.cpp@de3ff815 src/models/llama.cpp, qwen2.cpp and qwen3.cpp load_arch_hparams
 */
export const GGUF_IGNORED: readonly string[] = [
  'attention.scale',
  'attention.clamp_kqv',
  'attention.max_alibi_bias',
  'attention.sliding_window',
  'attn_logit_softcapping',
  'final_logit_softcapping',
  'logit_scale',
  'embedding_scale',
  'residual_scale',
];
