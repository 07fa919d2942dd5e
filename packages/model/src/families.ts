/**
 * The model families that this decoder computes, as data: how each differs from Llama.
 *
 * Llama has an RMS norm before attention and before the feed-forward block, q, k, v and output matrices, and a
 * feed-forward block of gate, up and down with SiLU. A new family is a new row. RoPE is not in these rows:
 * @ropewalk/dialects has it for every family.
 *
 * @module
 * @see huggingface/transformers@v5.18.0 src/transformers/models/NAME/configuration_NAME.py and modeling_NAME.py
 * @see ggml-org/llama.cpp@de3ff815 src/models/NAME.cpp
 */
import type { RouteOptions, SwigluOptions } from 'ropewalk';

/** A group of tensors whose biases come together. */
export type BiasGroup = 'qkv' | 'output' | 'mlp' | 'conv' | 'ssmIn' | 'ssmOut' | 'head';

/** `always`, or the field of config.json that decides, and its default. GGUF files show their biases themselves. */
type BiasRule = 'always' | readonly [field: string, missing: boolean];

/** The differences of a family from Llama. */
export interface Family {
  /** `general.architecture` of its GGUF files. */
  readonly gguf: string;
  /** Why its GGUF files are neither read nor written. */
  readonly ggufApart?: string;
  /** Layer norms instead of RMS norms. */
  readonly norm?: 'layer' | 'layer-without-bias';
  /** Norms after the blocks instead of before, or both, or of the residual stream after each block (BERT). */
  readonly blockNorms?: 'after' | 'both' | 'sum';
  /**
   * RMS norm of q and k over each `head`, over `all` heads together, or a layer norm of `each-head` with its own gain.
   * `rotated` heads have an RMS norm without gains, which gives the same before RoPE and after it.
   */
  readonly qkNorm?: 'head' | 'all' | 'each-head' | 'rotated';
  /** The field of config.json that decides whether there are norms of q and k. GGUF files show it. Default: always. */
  readonly qkNormFlag?: string;
  /** They come after RoPE. */
  readonly qkNormLast?: true;
  /** Attention and feed-forward both read the residual stream, `always` or by a `flag`, through one norm or two. */
  readonly parallel?: { readonly when: 'always' | 'flag'; readonly norms: 1 | 2 };
  /** Tensors that llama.cpp loads and does not use. */
  readonly ggufUnused?: RegExp;
  /** The groups with biases. */
  readonly biases?: Readonly<Partial<Record<BiasGroup, BiasRule>>>;
  /** The activation of GGUF files, and of a config.json without the field. Default: `silu`. */
  readonly activation?: Activation;
  /** The feed-forward block has no gate: it is up, activation, down. */
  readonly ungated?: true;
  /** The limits of SwiGLU. */
  readonly swiglu?: SwigluOptions;
  /** One more score for each head takes part in the softmax. */
  readonly sinks?: true;
  /** Keys and values come from one latent vector for each token (MLA). */
  readonly latent?: true;
  /** An indexer chooses `index_topk` tokens for attention. Here attention sees all tokens, and the indexer is left out. */
  readonly sparse?: true;
  readonly experts?: ExpertRules;
  /** Attention sees later tokens too, and there is no head. */
  readonly encoder?: true;
  /** The family of a config.json with `use_bidirectional_attention`. */
  readonly whenBidirectional?: Family;
  /** Sliding layers of an encoder see half of so many tokens on each side, unless the file has another number. */
  readonly bothSides?: number;
  /** Embeddings of tokens are normed, after those of token types were added. */
  readonly embeddingNorm?: true;
  readonly tokenTypes?: true;
  /** The first layer has no norm before attention. */
  readonly firstWithoutNorm?: true;
  /** Other names of fields of config.json → transformers' names. */
  readonly aliases?: Readonly<Record<string, string>>;
  /** Some layers have a state instead of attention. */
  readonly recurrent?: 'conv' | 'delta' | 'ssm';
  /** Each layer has attention and a state, whose outputs are added up. */
  readonly stateBeside?: true;
  /** Each layer is one block: attention, which does not rotate, a state, or a feed-forward block. */
  readonly singleBlocks?: true;
  /** The family of a config.json whose layers all attend. */
  readonly withoutStates?: Family;
  /** In GGUF files the heads of v of a key head take turns with those of others. */
  readonly ggufTiled?: true;
  /** The matrix of q has a gate of the same size behind each head, whose sigmoid multiplies what the head attends to. */
  readonly outputGate?: true;
  /** The family of a config.json whose number of experts is 0. */
  readonly withoutExperts?: Family;
  /** Layers that rotate see their chunk only. */
  readonly chunked?: true;
  /** Layers differ in their sizes, and the last ones may share keys and values. */
  readonly sizesByLayer?: true;
  /** RMS norm of each head of v, without gains. */
  readonly valueNorm?: true;
  /** Layers end with a factor, and before it with embeddings of their own if the model has a width for them. */
  readonly layerEnd?: true;
  /** The residual stream is several streams, of which a layer reads one (AltUp), and LAuReL is beside attention. */
  readonly altup?: true;
  /** The field of config.json for the width of dense blocks. Default: intermediate_size. */
  readonly width?: string;
  /** The name of scales and caps in `MULTIPLIERS` of config.ts. */
  readonly multipliers?:
    | 'gemma'
    | 'gemma2'
    | 'gemma3'
    | 'gemma3n'
    | 'gemma4'
    | 'llama4'
    | 'granite'
    | 'minicpm'
    | 'cohere'
    | 'falcon'
    | 'temperature';

  /** The fewest layers of a GGUF in which llama.cpp loads norms of q and k. Default: any. */
  readonly ggufQkNormLayers?: number;
  /** llama.cpp adds a bias of the head that a GGUF file has. */
  readonly ggufHeadBias?: true;
  /** GGUF files always have a head of their `own`, or always a `tied` one. Default: as the file has it. */
  readonly ggufHead?: 'own' | 'tied';
  /** Sizes that a config.json may leave out. */
  readonly vocabSize?: number;
  readonly numHeads?: number;
  readonly numKvHeads?: number;
  /** The default of `max_position_embeddings`. */
  readonly maxContext: number;
  /** The default of `tie_word_embeddings`. */
  readonly tied?: true;
  /** transformers stores norm weights less 1. */
  readonly gainsLessOne?: true;
  /** The fields of {@link OTHER_STEPS} that the family computes. */
  readonly reads?: readonly string[];
  /** transformers' names of tensors that are not Llama's. */
  readonly names?: Readonly<Partial<Record<string, string>>>;
  /** GGUF's names that are not Llama's. */
  readonly ggufNames?: Readonly<Partial<Record<string, string>>>;
  /** The one `quant_method` of config.json that is read: experts in `NAME_blocks` and `NAME_scales`. */
  readonly quantMethod?: 'mxfp4';
  /** transformers' fused qkv has the q, k, v of each head. Default: all q, all k, all v. */
  readonly qkvRows?: 'by-head';
  /** transformers' transposed matrices of gate and up have all gates first. Default: gate and up take turns. */
  readonly gateUpHalves?: true;
}

/** `relu2` is the square of ReLU. `xielu` has factors that each layer learned. */
export type Activation = 'silu' | 'gelu' | 'gelu-tanh' | 'relu2' | 'xielu';

/** The experts of a family, for what the file leaves open. */
interface ExpertRules {
  readonly gate: RouteOptions['gate'];
  /** Whether weights are divided by their sum. The field norm_topk_prob of config.json decides first. */
  readonly normalize: boolean;
  /** The expert that all tokens share has a gate of its own, or none. */
  readonly shared?: 'gated' | 'plain';
  readonly bias?: true;
  /** A bias takes part in the choice of experts. */
  readonly choiceBias?: 'always' | 'if-stored';
  /** transformers stores it as a matrix of one row. */
  readonly choiceBiasRow?: true;
  /** DeepSeek's settings decide: dense layers come first, weights have a scale, experts have groups. */
  readonly deepseek?: true;
  /** The fields of config.json where they are not DeepSeek's. */
  readonly fields?: ExpertFields;
  /** The weight of an expert multiplies its input, not its output. One expert runs. */
  readonly scalesInput?: true;
  /** A dense block runs beside the experts, each with norms of its own. The router has a norm and scales as well. */
  readonly beside?: true;
  /** GGUF files have the width of an expert in feed_forward_length. Others divide that among the chosen experts. */
  readonly ggufWidth?: 'whole';
  /** Layers of a GGUF file without a router are dense. Others have a number of dense layers that come first. */
  readonly ggufDense?: 'without-router';
  /**
   * GGUF files have the width of the shared expert, or it is `one` as wide as an expert. Others have a number of experts.
   * Gated ones always have it.
   */
  readonly ggufShared?: 'width' | 'one';
}

/** Names of fields of config.json. */
export interface ExpertFields {
  readonly used?: string;
  /** Default: moe_intermediate_size, or else intermediate_size. */
  readonly width?: string;
  /** A number of shared experts, each as wide as one that is chosen, or their width. */
  readonly shared?: string;
  readonly sharedWidth?: string;
  /** Default: routed_scaling_factor. */
  readonly scale?: string;
  /** The first layer with experts, and the last, where −1 is the model's last. */
  readonly first?: string;
  readonly last?: string;
  /** Every n-th layer has experts. */
  readonly step?: string;
}

const BOTH_NORMS = {
  attentionPostNorm: 'post_attention_layernorm.weight',
  mlpNorm: 'pre_feedforward_layernorm.weight',
  mlpPostNorm: 'post_feedforward_layernorm.weight',
} as const;
const SPLIT_BIASES = { qkv: ['attention_bias', false], output: ['attention_bias', false] } as const;
const LLAMA_BIASES = { ...SPLIT_BIASES, mlp: ['mlp_bias', false] } as const;
const USE_BIAS = { qkv: ['use_bias', false], output: ['use_bias', false], mlp: ['use_bias', false] } as const;
const QWEN_EXPERTS = {
  router: 'mlp.gate.weight',
  expertGate: 'mlp.experts.*.gate_proj.weight',
  expertUp: 'mlp.experts.*.up_proj.weight',
  expertDown: 'mlp.experts.*.down_proj.weight',
} as const;

const MIXTRAL_EXPERTS = {
  router: 'block_sparse_moe.gate.weight',
  expertGate: 'block_sparse_moe.experts.*.w1.weight',
  expertUp: 'block_sparse_moe.experts.*.w3.weight',
  expertDown: 'block_sparse_moe.experts.*.w2.weight',
} as const;
const STACKED_EXPERTS = {
  router: 'mlp.gate.weight',
  expertGateUpRows: 'mlp.experts.gate_up_proj',
  expertDown: 'mlp.experts.down_proj',
} as const;
const SHARED_EXPERTS = {
  sharedGate: 'mlp.shared_experts.gate_proj.weight',
  sharedUp: 'mlp.shared_experts.up_proj.weight',
  sharedDown: 'mlp.shared_experts.down_proj.weight',
} as const;

const QWEN2: Family = {
  gguf: 'qwen2',
  maxContext: 32768,
  numKvHeads: 32,
  biases: { qkv: 'always' },
  ggufHeadBias: true,
};
const QWEN2_VL: Family = { ...QWEN2, gguf: 'qwen2vl', numKvHeads: 8, ggufUnused: /^output\.bias$/ };
const GEMMA2: Family = {
  gguf: 'gemma2',
  blockNorms: 'both',
  activation: 'gelu-tanh',
  multipliers: 'gemma2',
  biases: SPLIT_BIASES,
  ggufHead: 'tied',
  maxContext: 8192,
  tied: true,
  gainsLessOne: true,
  reads: ['attn_logit_softcapping', 'final_logit_softcapping', 'query_pre_attn_scalar'],
  names: BOTH_NORMS,
};
const GEMMA4: Family = {
  ...GEMMA2,
  gguf: 'gemma4',
  ggufHead: undefined,
  qkNorm: 'head',
  valueNorm: true,
  sizesByLayer: true,
  layerEnd: true,
  gainsLessOne: undefined,
  multipliers: 'gemma4',
  maxContext: 131072,
  reads: ['final_logit_softcapping'],
};
const GEMMA3N: Family = {
  ...GEMMA4,
  vocabSize: 262400,
  numHeads: 8,
  numKvHeads: 2,
  gguf: 'gemma3n',
  layerEnd: undefined,
  altup: true,
  multipliers: 'gemma3n',
  maxContext: 32768,
};
const GEMMA3: Family = {
  ...GEMMA2,
  vocabSize: 262208,
  numHeads: 8,
  numKvHeads: 4,
  gguf: 'gemma3',
  ggufHead: undefined,
  qkNorm: 'head',
  multipliers: 'gemma3',
  maxContext: 131072,
};
const COHERE: Family = {
  gguf: 'cohere2',
  norm: 'layer-without-bias',
  parallel: { when: 'always', norms: 1 },
  biases: SPLIT_BIASES,
  multipliers: 'cohere',
  ggufHead: 'tied',
  maxContext: 8192,
  tied: true,
  reads: ['logit_scale'],
};
const OLMO2: Family = {
  gguf: 'olmo2',
  blockNorms: 'after',
  qkNorm: 'all',
  ggufHead: 'own',
  biases: SPLIT_BIASES,
  maxContext: 2048,
  names: {
    attentionPostNorm: 'post_attention_layernorm.weight',
    mlpPostNorm: 'post_feedforward_layernorm.weight',
  },
};
const DEEPSEEK: Family = {
  gguf: 'deepseek2',
  latent: true,
  multipliers: 'temperature',
  maxContext: 2048,
  experts: { gate: 'softmax', normalize: false, shared: 'plain', choiceBias: 'if-stored', deepseek: true },
  reads: ['n_routed_experts'],
  names: { ...QWEN_EXPERTS, ...SHARED_EXPERTS },
};
const DEEPSEEK_V3_EXPERTS = {
  gate: 'sigmoid',
  normalize: true,
  shared: 'plain',
  choiceBias: 'always',
  deepseek: true,
} as const;
const DEEPSEEK_V3: Family = { ...DEEPSEEK, maxContext: 4096, experts: DEEPSEEK_V3_EXPERTS };
const GLM4_MOE: Family = {
  ...DEEPSEEK_V3,
  gguf: 'glm4moe',
  latent: undefined,
  multipliers: undefined,
  maxContext: 131072,
  numKvHeads: 8,
  qkNorm: 'head',
  qkNormFlag: 'use_qk_norm',
  biases: { qkv: ['attention_bias', false] },
  ggufNames: { mlpNorm: 'post_attention_norm.weight' },
};
const DEEPSEEK_V32: Family = { ...DEEPSEEK_V3, gguf: 'deepseek32', maxContext: 163840, sparse: true };
const GRANITE: Family = {
  gguf: 'granite',
  maxContext: 2048,
  biases: LLAMA_BIASES,
  multipliers: 'granite',
  reads: ['attention_multiplier', 'residual_multiplier', 'embedding_multiplier', 'logits_scaling', 'num_local_experts'],
};
const HUNYUAN: Family = {
  gguf: 'hunyuan-dense',
  maxContext: 2048,
  biases: SPLIT_BIASES,
  qkNorm: 'head',
  qkNormLast: true,
  names: { qNorm: 'self_attn.query_layernorm.weight', kNorm: 'self_attn.key_layernorm.weight' },
};
const SHARED_MLP = { gateUp: 'shared_mlp.input_linear.weight', down: 'shared_mlp.output_linear.weight' } as const;
const GRANITE_MOE: Family = {
  ...GRANITE,
  gguf: 'granitemoe',
  biases: SPLIT_BIASES,
  experts: {
    gate: 'softmax',
    normalize: true,
    shared: 'plain',
    fields: { sharedWidth: 'shared_intermediate_size' },
    ggufWidth: 'whole',
    ggufShared: 'width',
  },
  names: {
    router: 'block_sparse_moe.router.layer.weight',
    expertGateUpRows: 'block_sparse_moe.input_linear.weight',
    expertDown: 'block_sparse_moe.output_linear.weight',
    sharedGateUp: SHARED_MLP.gateUp,
    sharedDown: SHARED_MLP.down,
  },
};

/** Granite 4 whose layers all attend. llama.cpp knows it by the names of older ones. */
const GRANITE_4: Family = {
  ...GRANITE_MOE,
  withoutExperts: { ...GRANITE, biases: SPLIT_BIASES, width: 'shared_intermediate_size', names: SHARED_MLP },
};
const GRANITE_HYBRID: Family = {
  ...GRANITE_MOE,
  gguf: 'granitehybrid',
  recurrent: 'ssm',
  biases: {
    ...SPLIT_BIASES,
    conv: ['mamba_conv_bias', true],
    ssmIn: ['mamba_proj_bias', false],
    ssmOut: ['mamba_proj_bias', false],
  },
  withoutStates: GRANITE_4,
};

const SHARED_EXPERT = {
  sharedRouter: 'mlp.shared_expert_gate.weight',
  sharedGate: 'mlp.shared_expert.gate_proj.weight',
  sharedUp: 'mlp.shared_expert.up_proj.weight',
  sharedDown: 'mlp.shared_expert.down_proj.weight',
} as const;
const QWEN3_NEXT: Family = {
  gguf: 'qwen3next',
  recurrent: 'delta',
  qkNorm: 'head',
  outputGate: true,
  gainsLessOne: true,
  maxContext: 32768,
  numKvHeads: 2,
  biases: SPLIT_BIASES,
  experts: { gate: 'softmax', normalize: true, shared: 'gated' },
  reads: ['num_experts'],
  names: {
    ...QWEN_EXPERTS,
    ...SHARED_EXPERT,
    deltaAll: 'linear_attn.in_proj_qkvz.weight',
    deltaGates: 'linear_attn.in_proj_ba.weight',
  },
  ggufNames: { mlpNorm: 'post_attention_norm.weight', deltaAll: 'ssm_in.weight', deltaGates: 'ssm_ba.weight' },
};
const QWEN3_5: Family = {
  ...QWEN3_NEXT,
  gguf: 'qwen35',
  ggufTiled: true,
  numKvHeads: 4,
  experts: undefined,
  reads: [],
  names: {},
};

const NEMOTRON_H: Family = {
  gguf: 'nemotron_h',
  recurrent: 'ssm',
  singleBlocks: true,
  ungated: true,
  activation: 'relu2',
  numKvHeads: 8,
  maxContext: 4096,
  biases: {
    mlp: ['mlp_bias', false],
    conv: ['use_conv_bias', true],
    ssmIn: ['use_bias', false],
    ssmOut: ['use_bias', false],
  },
  reads: ['n_routed_experts'],
  aliases: {
    layers_block_type: 'layer_types',
    layer_norm_epsilon: 'rms_norm_eps',
    mlp_hidden_act: 'hidden_act',
    mamba_num_heads: 'mamba_n_heads',
    mamba_head_dim: 'mamba_d_head',
    ssm_state_size: 'mamba_d_state',
    n_groups: 'mamba_n_groups',
    conv_kernel: 'mamba_d_conv',
  },
  names: {
    model: 'backbone.',
    embedding: 'embeddings.weight',
    norm: 'norm_f.weight',
    attentionNorm: 'norm.weight',
    mlpNorm: 'norm.weight',
    q: 'mixer.q_proj.weight',
    k: 'mixer.k_proj.weight',
    v: 'mixer.v_proj.weight',
    output: 'mixer.o_proj.weight',
    ssmIn: 'mixer.in_proj.weight',
    ssmConv: 'mixer.conv1d.weight',
    ssmBias: 'mixer.dt_bias',
    ssmRate: 'mixer.A_log',
    ssmSkip: 'mixer.D',
    ssmGain: 'mixer.norm.weight',
    ssmOut: 'mixer.out_proj.weight',
    up: 'mixer.up_proj.weight',
    down: 'mixer.down_proj.weight',
    router: 'mixer.gate.weight',
    choiceBias: 'mixer.gate.e_score_correction_bias',
    expertIn: 'mixer.fc1_latent_proj.weight',
    expertUp: 'mixer.experts.*.up_proj.weight',
    expertDown: 'mixer.experts.*.down_proj.weight',
    expertOut: 'mixer.fc2_latent_proj.weight',
    sharedUp: 'mixer.shared_experts.up_proj.weight',
    sharedDown: 'mixer.shared_experts.down_proj.weight',
  },
  ggufNames: { mlpNorm: 'attn_norm.weight' },
};

const LFM2: Family = {
  gguf: 'lfm2',
  recurrent: 'conv',
  qkNorm: 'head',
  vocabSize: 65536,
  numKvHeads: 8,
  maxContext: 128000,
  tied: true,
  biases: { conv: ['conv_bias', false] },
  names: {
    norm: 'embedding_norm.weight',
    attentionNorm: 'operator_norm.weight',
    mlpNorm: 'ffn_norm.weight',
    qNorm: 'self_attn.q_layernorm.weight',
    kNorm: 'self_attn.k_layernorm.weight',
    output: 'self_attn.out_proj.weight',
    gate: 'feed_forward.w1.weight',
    up: 'feed_forward.w3.weight',
    down: 'feed_forward.w2.weight',
    router: 'feed_forward.gate.weight',
    choiceBias: 'feed_forward.expert_bias',
    expertGate: 'feed_forward.experts.*.w1.weight',
    expertUp: 'feed_forward.experts.*.w3.weight',
    expertDown: 'feed_forward.experts.*.w2.weight',
  },
  ggufNames: { norm: 'token_embd_norm.weight' },
};

/** The families by `model_type` of config.json, without `_text` at its end. */
export const FAMILIES: Readonly<Record<string, Family>> = {
  llama: { gguf: 'llama', maxContext: 2048, biases: LLAMA_BIASES },
  llama4: {
    gguf: 'llama4',
    maxContext: 131072,
    qkNorm: 'rotated',
    qkNormFlag: 'use_qk_norm',
    chunked: true,
    multipliers: 'llama4',
    biases: SPLIT_BIASES,
    width: 'intermediate_size_mlp',
    experts: {
      gate: 'sigmoid',
      normalize: false,
      shared: 'plain',
      scalesInput: true,
      fields: { width: 'intermediate_size', sharedWidth: 'intermediate_size', step: 'interleave_moe_layer_step' },
      ggufShared: 'one',
    },
    reads: ['num_local_experts', 'attention_chunk_size'],
    gateUpHalves: true,
    names: {
      gate: 'feed_forward.gate_proj.weight',
      up: 'feed_forward.up_proj.weight',
      down: 'feed_forward.down_proj.weight',
      router: 'feed_forward.router.weight',
      expertGateUp: 'feed_forward.experts.gate_up_proj',
      expertDownTransposed: 'feed_forward.experts.down_proj',
      sharedGate: 'feed_forward.shared_expert.gate_proj.weight',
      sharedUp: 'feed_forward.shared_expert.up_proj.weight',
      sharedDown: 'feed_forward.shared_expert.down_proj.weight',
    },
  },
  mistral: { gguf: 'llama', maxContext: 131072, numKvHeads: 8 },
  mixtral: {
    gguf: 'llama',
    maxContext: 131072,
    numKvHeads: 8,
    experts: { gate: 'softmax', normalize: true, ggufWidth: 'whole' },
    reads: ['num_local_experts'],
    names: MIXTRAL_EXPERTS,
  },
  qwen2: QWEN2,
  qwen2_moe: {
    ...QWEN2,
    gguf: 'qwen2moe',
    ggufHead: 'own',
    ggufHeadBias: undefined,
    numKvHeads: 16,
    experts: { gate: 'softmax', normalize: false, shared: 'gated' },
    reads: ['num_experts'],
    names: { ...QWEN_EXPERTS, ...SHARED_EXPERT },
  },
  qwen2_vl: QWEN2_VL,
  qwen2_5_vl: QWEN2_VL,
  qwen3: { gguf: 'qwen3', maxContext: 32768, numKvHeads: 32, qkNorm: 'head', biases: SPLIT_BIASES },
  qwen3_moe: {
    gguf: 'qwen3moe',
    maxContext: 32768,
    numKvHeads: 4,
    qkNorm: 'head',
    biases: SPLIT_BIASES,
    experts: { gate: 'softmax', normalize: true },
    // transformers 5 saves it by the second name.
    reads: ['num_experts', 'num_local_experts'],
    names: QWEN_EXPERTS,
  },
  qwen3_vl_moe: {
    gguf: 'qwen3vlmoe',
    maxContext: 128000,
    numKvHeads: 16,
    qkNorm: 'head',
    tied: true,
    biases: SPLIT_BIASES,
    experts: { gate: 'softmax', normalize: true },
    reads: ['num_experts'],
    gateUpHalves: true,
    // Published files have transposed matrices, files that transformers 5 saved have not.
    names: {
      ...STACKED_EXPERTS,
      expertGateUp: STACKED_EXPERTS.expertGateUpRows,
      expertDownTransposed: STACKED_EXPERTS.expertDown,
    },
  },
  qwen3_vl: { gguf: 'qwen3vl', maxContext: 128000, numKvHeads: 32, qkNorm: 'head', biases: SPLIT_BIASES },
  gemma: { ...GEMMA2, gguf: 'gemma', blockNorms: undefined, multipliers: 'gemma', reads: [], names: {} },
  gemma2: GEMMA2,
  gemma3: {
    ...GEMMA3,
    whenBidirectional: {
      ...GEMMA3,
      gguf: 'gemma-embedding',
      encoder: true,
      bothSides: 4096,
      reads: [...GEMMA3.reads!, 'use_bidirectional_attention'],
    },
  },
  eurobert: { gguf: 'eurobert', encoder: true, maxContext: 8192, biases: LLAMA_BIASES },
  modernbert: {
    gguf: 'modern-bert',
    encoder: true,
    norm: 'layer-without-bias',
    embeddingNorm: true,
    firstWithoutNorm: true,
    activation: 'gelu',
    bothSides: 128,
    biases: LLAMA_BIASES,
    vocabSize: 50368,
    maxContext: 8192,
    names: {
      embedding: 'embeddings.tok_embeddings.weight',
      embeddingNorm: 'embeddings.norm.weight',
      attentionNorm: 'attn_norm.weight',
      qkv: 'attn.Wqkv.weight',
      output: 'attn.Wo.weight',
      mlpNorm: 'mlp_norm.weight',
      gateUp: 'mlp.Wi.weight',
      down: 'mlp.Wo.weight',
      norm: 'final_norm.weight',
    },
    ggufNames: { gateUp: 'ffn_up.weight' },
  },
  nomic_bert: {
    gguf: 'nomic-bert',
    encoder: true,
    norm: 'layer',
    blockNorms: 'sum',
    embeddingNorm: true,
    tokenTypes: true,
    vocabSize: 30528,
    maxContext: 2048,
    aliases: {
      n_embd: 'hidden_size',
      n_head: 'num_attention_heads',
      n_layer: 'num_hidden_layers',
      n_inner: 'intermediate_size',
      n_positions: 'max_position_embeddings',
      layer_norm_epsilon: 'layer_norm_eps',
      rotary_emb_base: 'rope_theta',
    },
    names: {
      layers: 'encoder.layers.',
      embedding: 'embeddings.word_embeddings.weight',
      tokenTypes: 'embeddings.token_type_embeddings.weight',
      embeddingNorm: 'emb_ln.weight',
      qkv: 'attn.Wqkv.weight',
      output: 'attn.out_proj.weight',
      attentionPostNorm: 'norm1.weight',
      up: 'mlp.fc11.weight',
      gate: 'mlp.fc12.weight',
      down: 'mlp.fc2.weight',
      mlpPostNorm: 'norm2.weight',
    },
    ggufNames: { attentionPostNorm: 'attn_output_norm.weight', mlpPostNorm: 'layer_output_norm.weight' },
  },
  gemma3n: GEMMA3N,
  gemma4: {
    ...GEMMA4,
    withoutExperts: GEMMA4,
    experts: { gate: 'softmax', normalize: true, beside: true, fields: { used: 'top_k_experts' } },
    reads: ['final_logit_softcapping', 'num_experts'],
    names: {
      ...BOTH_NORMS,
      router: 'router.proj.weight',
      expertGateUpRows: 'experts.gate_up_proj',
      expertDown: 'experts.down_proj',
    },
  },
  // It has no per-layer embeddings, and no field for them.
  gemma4_unified: { ...GEMMA4 },
  phi3: {
    gguf: 'phi3',
    maxContext: 4096,
    names: { qkv: 'self_attn.qkv_proj.weight', gateUp: 'mlp.gate_up_proj.weight' },
    ggufNames: { gateUp: 'ffn_up.weight' },
  },
  smollm3: { gguf: 'smollm3', maxContext: 32768, numKvHeads: 4, biases: LLAMA_BIASES, tied: true },
  cohere: {
    ...COHERE,
    gguf: 'command-r',
    qkNorm: 'each-head',
    qkNormFlag: 'use_qk_norm',
    ggufQkNormLayers: 64,
  },
  cohere2: COHERE,
  olmo2: OLMO2,
  olmo3: OLMO2,
  olmoe: {
    gguf: 'olmoe',
    ggufHead: 'own',
    qkNorm: 'all',
    maxContext: 4096,
    biases: SPLIT_BIASES,
    experts: { gate: 'softmax', normalize: false, ggufWidth: 'whole' },
    reads: ['num_experts'],
    names: QWEN_EXPERTS,
  },
  granite: GRANITE,
  granitemoe: GRANITE_MOE,
  granitemoeshared: GRANITE_MOE,
  granitemoehybrid: {
    ...GRANITE_HYBRID,
    withoutExperts: {
      ...GRANITE_HYBRID,
      experts: undefined,
      width: 'shared_intermediate_size',
      names: SHARED_MLP,
      withoutStates: GRANITE_4.withoutExperts,
    },
  },
  falcon_h1: {
    gguf: 'falcon-h1',
    recurrent: 'ssm',
    stateBeside: true,
    multipliers: 'falcon',
    numKvHeads: 8,
    maxContext: 8192,
    biases: {
      ...LLAMA_BIASES,
      conv: ['mamba_conv_bias', true],
      ssmIn: ['mamba_proj_bias', false],
      ssmOut: ['projectors_bias', false],
    },
    ggufUnused: /attn_output\.bias$/,
    reads: ['embedding_multiplier'],
    names: {
      norm: 'final_layernorm.weight',
      mlpNorm: 'pre_ff_layernorm.weight',
      gate: 'feed_forward.gate_proj.weight',
      up: 'feed_forward.up_proj.weight',
      down: 'feed_forward.down_proj.weight',
    },
    ggufNames: { mlpNorm: 'ffn_norm' },
  },
  stablelm: {
    gguf: 'stablelm',
    ggufHead: 'own',
    norm: 'layer',
    qkNorm: 'each-head',
    qkNormFlag: 'qk_layernorm',
    parallel: { when: 'flag', norms: 1 },
    biases: { qkv: ['use_qkv_bias', false] },
    maxContext: 4096,
    names: { qNorm: 'self_attn.q_layernorm.norms.*.weight', kNorm: 'self_attn.k_layernorm.norms.*.weight' },
  },
  gpt_neox: {
    gguf: 'gptneox',
    ggufHead: 'own',
    norm: 'layer',
    parallel: { when: 'flag', norms: 2 },
    biases: { qkv: ['attention_bias', true], output: ['attention_bias', true], mlp: 'always' },
    activation: 'gelu-tanh',
    ungated: true,
    maxContext: 2048,
    qkvRows: 'by-head',
    names: {
      model: 'gpt_neox.',
      embedding: 'embed_in.weight',
      norm: 'final_layer_norm.weight',
      head: 'embed_out.weight',
      qkv: 'attention.query_key_value.weight',
      output: 'attention.dense.weight',
      up: 'mlp.dense_h_to_4h.weight',
      down: 'mlp.dense_4h_to_h.weight',
    },
  },
  glm: {
    gguf: 'chatglm',
    biases: { qkv: ['attention_bias', true] },
    numKvHeads: 2,
    maxContext: 131072,
    names: { gateUp: 'mlp.gate_up_proj.weight' },
    ggufNames: { gateUp: 'ffn_up.weight' },
  },
  glm4: {
    gguf: 'glm4',
    blockNorms: 'both',
    biases: { qkv: ['attention_bias', false] },
    numKvHeads: 2,
    maxContext: 131072,
    names: {
      attentionPostNorm: 'post_self_attn_layernorm.weight',
      mlpPostNorm: 'post_mlp_layernorm.weight',
      gateUp: 'mlp.gate_up_proj.weight',
    },
    ggufNames: { gateUp: 'ffn_up.weight' },
  },
  ministral3: { gguf: 'mistral3', maxContext: 262144, numKvHeads: 8, multipliers: 'temperature' },
  deepseek_v2: DEEPSEEK,
  deepseek_v3: DEEPSEEK_V3,
  kimi_k2: DEEPSEEK_V3,
  glm4_moe_lite: { ...DEEPSEEK_V3, maxContext: 202752 },
  youtu: { ...DEEPSEEK_V3, maxContext: 131072, experts: undefined, reads: [], tied: true },
  mistral4: {
    ...DEEPSEEK,
    gguf: 'mistral4',
    maxContext: 1048576,
    experts: { gate: 'softmax', normalize: true, shared: 'plain', deepseek: true },
    names: { ...STACKED_EXPERTS, ...SHARED_EXPERTS },
  },
  deepseek_v32: DEEPSEEK_V32,
  glm_moe_dsa: { ...DEEPSEEK_V32, gguf: 'glm-dsa', maxContext: 202752 },
  gpt_oss: {
    gguf: 'gpt-oss',
    ggufHead: 'own',
    biases: { qkv: 'always', output: 'always' },
    sinks: true,
    swiglu: { limit: 7, alpha: 1.702, offset: 1 },
    numKvHeads: 8,
    maxContext: 131072,
    experts: { gate: 'softmax-of-chosen', normalize: false, bias: true },
    reads: ['num_local_experts'],
    quantMethod: 'mxfp4',
    ggufNames: { mlpNorm: 'post_attention_norm.weight' },
    names: {
      router: 'mlp.router.weight',
      expertGateUp: 'mlp.experts.gate_up_proj',
      expertGateUpBlocks: 'mlp.experts.gate_up_proj_blocks',
      expertDown: 'mlp.experts.down_proj_blocks',
      expertDownTransposed: 'mlp.experts.down_proj',
    },
  },
  ernie4_5: {
    gguf: 'ernie4_5',
    maxContext: 131072,
    numKvHeads: 2,
    biases: USE_BIAS,
    ggufUnused: /attn_output\.bias$/,
    tied: true,
  },
  ernie4_5_moe: {
    gguf: 'ernie4_5-moe',
    maxContext: 131072,
    biases: USE_BIAS,
    ggufUnused: /attn_output\.bias$/,
    tied: true,
    experts: {
      gate: 'softmax',
      normalize: true,
      shared: 'plain',
      choiceBias: 'if-stored',
      choiceBiasRow: true,
      deepseek: true,
      ggufShared: 'width',
      fields: {
        used: 'moe_k',
        shared: 'moe_num_shared_experts',
        first: 'moe_layer_start_index',
        last: 'moe_layer_end_index',
        step: 'moe_layer_interval',
      },
    },
    reads: ['moe_num_experts'],
    names: { ...QWEN_EXPERTS, ...SHARED_EXPERTS, choiceBias: 'mlp.moe_statics.e_score_correction_bias' },
  },
  seed_oss: {
    gguf: 'seed_oss',
    maxContext: 524288,
    numKvHeads: 8,
    biases: { qkv: ['attention_bias', true], output: ['attention_out_bias', false], mlp: ['mlp_bias', false] },
    ggufNames: { mlpNorm: 'post_attention_norm.weight' },
  },
  glm4_moe: GLM4_MOE,
  solar_open: { ...GLM4_MOE, qkNorm: undefined, qkNormFlag: undefined, biases: {} },
  hy_v3: {
    gguf: 'hy_v3',
    maxContext: 131072,
    numKvHeads: 8,
    qkNorm: 'head',
    biases: LLAMA_BIASES,
    experts: {
      ...DEEPSEEK_V3_EXPERTS,
      fields: { shared: 'num_shared_experts', scale: 'router_scaling_factor' },
      ggufDense: 'without-router',
      ggufShared: 'width',
    },
    reads: ['num_experts'],
    ggufNames: { choiceBias: 'exp_probs_b' },
    names: {
      ...QWEN_EXPERTS,
      router: 'mlp.router.gate.weight',
      choiceBias: 'mlp.expert_bias',
      sharedGate: 'mlp.shared_mlp.gate_proj.weight',
      sharedUp: 'mlp.shared_mlp.up_proj.weight',
      sharedDown: 'mlp.shared_mlp.down_proj.weight',
    },
  },
  exaone_moe: {
    gguf: 'exaone-moe',
    maxContext: 2048,
    numKvHeads: 32,
    qkNorm: 'head',
    experts: { ...DEEPSEEK_V3.experts!, fields: { shared: 'num_shared_experts' } },
    reads: ['num_experts'],
    names: { ...QWEN_EXPERTS, ...SHARED_EXPERTS, choiceBias: 'mlp.e_score_correction_bias' },
  },
  dots1: {
    ...DEEPSEEK_V3,
    gguf: 'dots1',
    ggufHead: 'own',
    latent: undefined,
    multipliers: undefined,
    qkNorm: 'head',
    biases: SPLIT_BIASES,
  },
  bailing_moe_v2: {
    gguf: 'bailingmoe2',
    ggufHead: 'own',
    maxContext: 16384,
    qkNorm: 'head',
    biases: { qkv: ['use_qkv_bias', false], output: ['use_bias', false] },
    experts: {
      gate: 'sigmoid',
      normalize: true,
      shared: 'plain',
      choiceBias: 'if-stored',
      deepseek: true,
      fields: { shared: 'num_shared_experts' },
    },
    reads: ['num_experts'],
    names: {
      ...QWEN_EXPERTS,
      ...SHARED_EXPERTS,
      embedding: 'word_embeddings.weight',
      qkv: 'attention.query_key_value.weight',
      qNorm: 'attention.query_layernorm.weight',
      kNorm: 'attention.key_layernorm.weight',
      output: 'attention.dense.weight',
      choiceBias: 'mlp.gate.expert_bias',
    },
  },
  hunyuan_v1_dense: HUNYUAN,
  hunyuan_v1_moe: {
    ...HUNYUAN,
    gguf: 'hunyuan-moe',
    experts: {
      gate: 'softmax',
      normalize: true,
      shared: 'plain',
      fields: { used: 'moe_topk', width: 'intermediate_size', sharedWidth: 'intermediate_size' },
      ggufShared: 'width',
    },
    reads: ['num_experts'],
    names: {
      ...HUNYUAN.names,
      ...QWEN_EXPERTS,
      router: 'mlp.gate.wg.weight',
      sharedGate: 'mlp.shared_mlp.gate_proj.weight',
      sharedUp: 'mlp.shared_mlp.up_proj.weight',
      sharedDown: 'mlp.shared_mlp.down_proj.weight',
    },
  },
  minimax_m2: {
    gguf: 'minimax-m2',
    ggufHead: 'own',
    maxContext: 196608,
    numKvHeads: 8,
    qkNorm: 'all',
    experts: { gate: 'sigmoid', normalize: true, choiceBias: 'always', deepseek: true },
    reads: ['num_local_experts'],
    names: { ...MIXTRAL_EXPERTS, choiceBias: 'block_sparse_moe.e_score_correction_bias' },
  },
  exaone4: { ...OLMO2, gguf: 'exaone4', ggufHead: undefined, qkNorm: 'head', biases: {} },
  minicpm: {
    gguf: 'minicpm',
    maxContext: 2048,
    biases: LLAMA_BIASES,
    multipliers: 'minicpm',
    tied: true,
    reads: ['scale_emb', 'scale_depth'],
  },
  starcoder2: {
    gguf: 'starcoder2',
    norm: 'layer',
    biases: { qkv: ['use_bias', true], output: ['use_bias', true], mlp: ['use_bias', true] },
    activation: 'gelu-tanh',
    ungated: true,
    numKvHeads: 2,
    maxContext: 4096,
    tied: true,
    names: { up: 'mlp.c_fc.weight', down: 'mlp.c_proj.weight' },
  },
  apertus: {
    gguf: 'apertus',
    qkNorm: 'head',
    biases: SPLIT_BIASES,
    activation: 'xielu',
    ungated: true,
    maxContext: 65536,
    names: { attentionNorm: 'attention_layernorm.weight', mlpNorm: 'feedforward_layernorm.weight' },
  },
  arcee: { gguf: 'arcee', biases: LLAMA_BIASES, activation: 'relu2', ungated: true, maxContext: 4096 },
  jais2: {
    gguf: 'jais2',
    ggufHead: 'own',
    norm: 'layer',
    biases: { qkv: ['attention_bias', true], output: ['attention_bias', true], mlp: ['mlp_bias', true] },
    activation: 'relu2',
    ungated: true,
    maxContext: 8192,
  },
  nemotron: {
    gguf: 'nemotron',
    ggufHead: 'own',
    norm: 'layer',
    gainsLessOne: true,
    biases: LLAMA_BIASES,
    activation: 'relu2',
    ungated: true,
    maxContext: 4096,
  },
  phimoe: {
    gguf: 'phimoe',
    ggufApart:
      'llama.cpp runs RMS norms and a plain softmax with its GGUF files, where the model has layer norms and sparsemixer. ' +
      'Run the HuggingFace folder as it is.',
    norm: 'layer',
    biases: { ...SPLIT_BIASES, head: ['lm_head_bias', false] },
    numKvHeads: 8,
    maxContext: 131072,
    experts: { gate: 'sparsemixer', normalize: false },
    reads: ['num_local_experts'],
    names: MIXTRAL_EXPERTS,
  },
  nemotron_h: {
    ...NEMOTRON_H,
    gguf: 'nemotron_h_moe',
    biases: { ...NEMOTRON_H.biases, mlp: undefined },
    experts: {
      ...DEEPSEEK_V3_EXPERTS,
      fields: { sharedWidth: 'moe_shared_expert_intermediate_size' },
      ggufDense: 'without-router',
      ggufShared: 'width',
    },
    withoutExperts: NEMOTRON_H,
  },
  qwen3_next: QWEN3_NEXT,
  qwen3_5: QWEN3_5,
  qwen3_5_moe: {
    ...QWEN3_5,
    gguf: 'qwen35moe',
    numKvHeads: 2,
    experts: QWEN3_NEXT.experts,
    reads: QWEN3_NEXT.reads,
    // Published files have all experts in two tensors, files that transformers 5 saved have not.
    names: {
      ...QWEN_EXPERTS,
      ...SHARED_EXPERT,
      expertGateUpRows: STACKED_EXPERTS.expertGateUpRows,
      expertDownRows: STACKED_EXPERTS.expertDown,
    },
  },
  lfm2: LFM2,
  lfm2_moe: {
    ...LFM2,
    gguf: 'lfm2moe',
    experts: { gate: 'sigmoid', normalize: true, choiceBias: 'if-stored', fields: { first: 'num_dense_layers' } },
    reads: ['num_experts'],
  },
};

/**
 * The steps of other architectures that are not computed here. Names are `general.architecture` or `model_type` without
 * `-`, `_` and `_text`. Any further architecture needs a row of {@link FAMILIES}, and perhaps more.
 *
 * @see ggml-org/llama.cpp@de3ff815 src/models/NAME.cpp
 * @see huggingface/transformers@v5.18.0 src/transformers/models/NAME/modeling_NAME.py
 */
export const MISSING: readonly (readonly [what: string, names: string])[] = [
  ['its layers of linear attention (delta networks)', 'qwen4exp kimilinear kimik3 bailingmoe3'],
  ['its state space layers (Mamba)', 'mamba mamba2 jamba plamo2'],
  ['its recurrence in place of attention', 'rwkv6 rwkv6qwen2 rwkv7 arwkv7'],
  ['its layers of lightning attention', 'minimax01 minimax'],
  ['its sparse attention, for which an indexer chooses tokens', 'deepseek4 deepseekv4 dots3note hyv4 minimaxm3'],
  ['its positions, which are learned or ALiBi, not RoPE', 'bloom gpt2 gptbigcode gptneo jais mpt opt refact starcoder'],
  [
    'its positions or its steps: it is another encoder',
    'bert roberta distilbert nomicbertmoe neobert jinabertv2 jinabertv3 llamaembed openaiprivacyfilter neomme',
  ],
  ['attention to later tokens: it is a diffusion model', 'dream llada lladamoe rnd1'],
  ['its encoder, or attention as in one', 't5 t5encoder bart xlnet moonshine'],
  ['another model: it drafts tokens from the hidden states of one', 'eagle3 dflash gemma4assistant'],
  ['what it computes: it is a model of images or sound', 'clip wavtokenizerdec pockettts qwen3tts'],
  ['its weights for image tokens, or layers that look at images', 'cogvlm ernie45vlmoe mllama'],
  ['its norms inside the blocks', 'bitnet'],
  ['its norms of q and k after RoPE', 'hunyuanvl maincoder talkie'],
  ['its gate on the attention output', 'afmoe laguna museglimmer step35'],
  ['its layers with different numbers of heads', 'deci openelm mimo2'],
  ['its layers that run several times', 'hrm nanbeige'],
  ['its norms without weights, or limits of q, k and v', 'olmo dbrx'],
  [
    'its experts: a dense block beside them, or another router or kind',
    'arctic grok grovemoe smallthinker longcatflash',
  ],
  ['its adapters, which a router chooses', 'graniteswitch'],
  ['its differential attention', 'diffllama'],
];

/** Fields of config.json that ask for a step that is not computed here, and the values that switch the step off. */
export const OTHER_STEPS: Readonly<Record<string, readonly unknown[]>> = {
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
  swiglu_limit: [7],
  num_experts: [0],
  num_local_experts: [0, 1],
  moe_num_experts: [0],
  n_routed_experts: [0],
  attention_chunk_size: [],
  cross_attention_layers: [],
  is_encoder_decoder: [false],
  is_causal: [true, false],
  // Tokens of images see each other, and there are none here.
  use_bidirectional_attention: [false, 'vision'],
  prenorm: [false],
  rotary_emb_interleaved: [false],
  rotary_emb_fraction: [1],
};

/**
 * The architectures whose biases llama.cpp loads where a config.json decides about them. It refuses a file with others, as
 * with tensors that it does not know. Those of q, k and v it takes, but in gemma4.
 *
 * @see ggml-org/llama.cpp@v0.4.0, which loaded random models of each family with such biases, or did not
 */
export const GGUF_BIASES: Readonly<Record<'output' | 'mlp', readonly string[]>> = {
  output: 'llama apertus bailingmoe2 granite granitemoe minicpm nemotron'.split(' '),
  mlp: 'llama granite minicpm nemotron'.split(' '),
};

/** The same for GGUF keys, without the architecture in front. */
export const GGUF_OTHER_STEPS: Readonly<Record<string, readonly unknown[]>> = {
  'attention.causal': [true, false],
};

/**
 * GGUF keys that llama.cpp reads for some families only, by their multipliers. For the others a note says so.
 *
 * @see ggml-org/llama.cpp@de3ff815 src/models/NAME.cpp load_arch_hparams
 */
export const GGUF_IGNORED: readonly (readonly [key: string, readBy: readonly Family['multipliers'][]])[] = [
  ['attention.scale', ['granite']],
  ['attention.clamp_kqv', []],
  ['attention.max_alibi_bias', []],
  ['attention.temperature_scale', ['temperature']],
  ['attn_logit_softcapping', ['gemma2']],
  ['final_logit_softcapping', ['gemma2', 'gemma3', 'gemma4']],
  ['logit_scale', ['granite', 'minicpm', 'cohere']],
  ['embedding_scale', ['granite', 'minicpm']],
  ['residual_scale', ['granite', 'minicpm']],
];
