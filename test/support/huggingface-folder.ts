/**
 * Writes the random models of test/fixtures/families as transformers would save them, which reverses llama.cpp's
 * converter. Each family has one row. A quantised GGUF becomes F32.
 *
 * Where HuggingFace and llama.cpp compute different things, the row chooses fields for which both agree, and says so.
 *
 * @see ggml-org/llama.cpp@de3ff815 conversion/*.py: names, permuted rows, and the changes of each tensor
 * @see huggingface/transformers@v5.18.0 src/transformers/models/NAME/{configuration,modeling}_NAME.py
 */
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { permutedRows } from '@ropewalk/dialects/internal/models';
import { type GgufFile, parseGguf, writeSafetensors } from '@ropewalk/formats';
import { WIDENED, widenBlocks } from '@ropewalk/model/internal';
import { tensorFrom } from 'ropewalk';
import { FAMILIES } from './fixtures.js';

/** The names of the vectors that {@link writeHuggingFace} can write. */
export const HF_FAMILIES: readonly string[] = JSON.parse(
  readFileSync(join(FAMILIES, 'manifest.json'), 'utf8'),
).models.map(({ name }: { name: string }) => name);

/** A tensor. Its slowest dimension comes first. */
interface Values<A = Float32Array> {
  readonly shape: readonly number[];
  readonly data: A;
}

/** The tensors of one layer, or the tensors outside of layers, by GGUF's names without `blk.L.`. */
type Part = Map<string, Values>;

/** The content of a GGUF file for the rows. */
interface Given {
  /** Returns the number of a key, named without the architecture. An f32 becomes its shortest decimal. */
  readonly key: (name: string) => number | undefined;
  /** Returns the value of a key that is not a number. */
  readonly raw: (name: string) => unknown;
  readonly layers: number;
  readonly heads: number;
  readonly kvHeads: number;
  readonly headDim: number;
  readonly hidden: number;
  readonly has: (tensor: string) => boolean;
  /** Returns the values of a tensor outside of layers. */
  readonly list: (tensor: string) => number[];
}

interface Row {
  /** The value of `general.architecture`. The next field tells families with the same value apart. */
  readonly gguf: string;
  readonly when?: (given: Given) => boolean;
  /** `architectures` and `model_type` of config.json. */
  readonly class: string;
  readonly modelType: string;
  /** For published files with the text model in `text_config`: the outer `model_type`, and the place of the tensors. */
  readonly inside?: { readonly modelType: string; readonly tensors: string; readonly head: string };
  /** More fields than those of {@link commonFields}. `undefined` removes a field. */
  readonly fields?: (given: Given) => Record<string, unknown>;
  /** Published files have head_dim. Without this it is written only if it is not hidden_size / num_attention_heads. */
  readonly headDim?: true;
  /** The class ties the head by default, and published files do not state it. */
  readonly tied?: true;
  /** Names that differ from {@link NAMES}. */
  readonly names?: Readonly<Record<string, string>>;
  /** The converter interleaves the rows of q and k. */
  readonly permuted?: true;
  /** HuggingFace stores the weights of norms minus one. */
  readonly minusOne?: true;
  /** Changes the tensors of a layer that the converter splits, fuses or reorders. */
  readonly change?: (layer: Part, given: Given) => void;
}

/**
 * Maps GGUF's names to HuggingFace's. `{n}` counts the first axis, which has one tensor for each index. A name that
 * ends in `.weight` or `.bias` stands for that tensor only, and its new name is complete.
 */
const NAMES: Readonly<Record<string, string>> = {
  token_embd: 'embed_tokens',
  output_norm: 'norm',
  output: 'lm_head',
  attn_norm: 'input_layernorm',
  attn_q: 'self_attn.q_proj',
  attn_k: 'self_attn.k_proj',
  attn_v: 'self_attn.v_proj',
  attn_qkv: 'self_attn.qkv_proj',
  attn_q_norm: 'self_attn.q_norm',
  attn_k_norm: 'self_attn.k_norm',
  attn_output: 'self_attn.o_proj',
  ffn_norm: 'post_attention_layernorm',
  ffn_gate: 'mlp.gate_proj',
  ffn_up: 'mlp.up_proj',
  ffn_down: 'mlp.down_proj',
  ffn_gate_inp: 'mlp.gate',
  ffn_gate_exps: 'mlp.experts.{n}.gate_proj',
  ffn_up_exps: 'mlp.experts.{n}.up_proj',
  ffn_down_exps: 'mlp.experts.{n}.down_proj',
};
const FUSED = { ffn_up: 'mlp.gate_up_proj' };
const NORMS_AFTER = { post_attention_norm: 'post_attention_layernorm', post_ffw_norm: 'post_feedforward_layernorm' };
const GEMMA_NORMS = { ...NORMS_AFTER, ffn_norm: 'pre_feedforward_layernorm' };
const DEEPSEEK = {
  attn_q_a: 'self_attn.q_a_proj',
  attn_q_a_norm: 'self_attn.q_a_layernorm',
  attn_q_b: 'self_attn.q_b_proj',
  attn_kv_a_mqa: 'self_attn.kv_a_proj_with_mqa',
  attn_kv_a_norm: 'self_attn.kv_a_layernorm',
  attn_kv_b: 'self_attn.kv_b_proj',
  'exp_probs_b.bias': 'mlp.gate.e_score_correction_bias',
  ffn_gate_shexp: 'mlp.shared_experts.gate_proj',
  ffn_up_shexp: 'mlp.shared_experts.up_proj',
  ffn_down_shexp: 'mlp.shared_experts.down_proj',
};

const experts = ({ key }: Given) => ({
  num_experts: key('expert_count'),
  num_experts_per_tok: key('expert_used_count'),
  moe_intermediate_size: key('expert_feed_forward_length'),
  decoder_sparse_step: 1,
  mlp_only_layers: [],
  output_router_logits: false,
});

/** Returns the fields of multi-head latent attention and its experts, for DeepSeek V2 and V3. */
const deepseek = (given: Given) => {
  const { key, raw, heads, has } = given;
  const rope = key('rope.dimension_count')!;
  const mscale = digits((key('rope.scaling.yarn_log_multiplier') ?? 0) / 0.1); // the converter multiplies by 0.1
  return {
    num_key_value_heads: heads,
    q_lora_rank: has('blk.0.attn_q_a.weight') ? key('attention.q_lora_rank') : null,
    kv_lora_rank: key('attention.kv_lora_rank'),
    qk_rope_head_dim: rope,
    qk_nope_head_dim: (key('attention.key_length_mla') ?? key('attention.key_length')!) - rope,
    v_head_dim: key('attention.value_length_mla') ?? key('attention.value_length'),
    first_k_dense_replace: key('leading_dense_block_count'),
    moe_layer_freq: 1,
    moe_intermediate_size: key('expert_feed_forward_length'),
    n_routed_experts: key('expert_count'),
    n_shared_experts: key('expert_shared_count'),
    num_experts_per_tok: key('expert_used_count'),
    norm_topk_prob: raw('expert_weights_norm') ?? false,
    routed_scaling_factor: key('expert_weights_scale') ?? 1,
    n_group: key('expert_group_count') ?? 1,
    topk_group: key('expert_group_used_count') ?? 1,
    rope_scaling:
      raw('rope.scaling.type') === 'yarn'
        ? {
            beta_fast: 32,
            beta_slow: 1,
            factor: key('rope.scaling.factor'),
            mscale,
            mscale_all_dim: mscale,
            original_max_position_embeddings: key('rope.scaling.original_context_length'),
            type: 'yarn',
          }
        : scalingOf(given),
  };
};

const ROWS: readonly Row[] = [
  {
    // GGUF has no query_pre_attn_scalar. llama.cpp scales by head_dim, so the field is head_dim.
    gguf: 'gemma2',
    class: 'Gemma2ForCausalLM',
    modelType: 'gemma2',
    headDim: true,
    tied: true,
    minusOne: true,
    names: GEMMA_NORMS,
    fields: (given) => ({
      ...gelu,
      query_pre_attn_scalar: given.headDim,
      attn_logit_softcapping: given.key('attn_logit_softcapping') ?? 50,
      final_logit_softcapping: given.key('final_logit_softcapping') ?? 30,
      sliding_window: given.key('attention.sliding_window'),
      layer_types: listedTypes(given, 2),
    }),
  },
  {
    gguf: 'gemma3',
    class: 'Gemma3ForCausalLM',
    modelType: 'gemma3_text',
    headDim: true,
    tied: true,
    minusOne: true,
    names: GEMMA_NORMS,
    fields: (given) => ({
      ...gelu,
      query_pre_attn_scalar: given.headDim,
      attn_logit_softcapping: null,
      final_logit_softcapping: given.key('final_logit_softcapping') ?? null,
      sliding_window: given.key('attention.sliding_window'),
      sliding_window_pattern: 6,
      layer_types: listedTypes(given, 6),
      rope_local_base_freq: given.key('rope.freq_base_swa') ?? 10000,
    }),
  },
  {
    // HuggingFace has a sliding window, llama.cpp does not, so the vectors' window is longer than their texts.
    // HuggingFace uses the long factors when the text is longer than original_max_position_embeddings, llama.cpp when
    // its context is. The vectors do not have the formula's magnitude, so the row states it.
    gguf: 'phi3',
    class: 'Phi3ForCausalLM',
    modelType: 'phi3',
    names: FUSED,
    fields: ({ key, headDim, has, list }) => ({
      sliding_window: key('attention.sliding_window') || null,
      original_max_position_embeddings: key('rope.scaling.original_context_length'),
      partial_rotary_factor: (key('rope.dimension_count') ?? headDim) / headDim,
      rope_scaling: has('rope_factors_long.weight')
        ? {
            long_factor: list('rope_factors_long.weight'),
            short_factor: list('rope_factors_short.weight'),
            attention_factor: key('rope.scaling.attn_factor') ?? 1,
            type: 'longrope',
          }
        : null,
    }),
  },
  {
    gguf: 'smollm3',
    class: 'SmolLM3ForCausalLM',
    modelType: 'smollm3',
    permuted: true,
    fields: ({ layers }) => ({
      no_rope_layers: Array.from({ length: layers }, (_item, layer) => Number((layer + 1) % 4 !== 0)),
      no_rope_layer_interval: 4,
      layer_types: typesOf(layers, () => false),
      use_sliding_window: false,
      sliding_window: null,
    }),
  },
  {
    gguf: 'cohere2',
    class: 'Cohere2ForCausalLM',
    modelType: 'cohere2',
    headDim: true,
    tied: true,
    fields: (given) => ({
      layer_norm_eps: given.key('attention.layer_norm_epsilon'),
      logit_scale: given.key('logit_scale'),
      order_of_interleaved_layers: 'local_attn_first',
      position_embedding_type: 'rope_gptj',
      rotary_pct: 1,
      sliding_window: given.key('attention.sliding_window'),
      sliding_window_pattern: 4,
      layer_types: listedTypes(given, 4),
      use_embedding_sharing: true,
      use_gated_activation: true,
      use_parallel_block: true,
      use_qk_norm: false,
    }),
  },
  {
    gguf: 'olmo2',
    when: ({ key }) => !key('attention.sliding_window'),
    class: 'Olmo2ForCausalLM',
    modelType: 'olmo2',
    names: NORMS_AFTER,
  },
  {
    // transformers@0233e509 has one YaRN for all layers. Published models and llama.cpp have none in sliding layers.
    gguf: 'olmo2',
    class: 'Olmo3ForCausalLM',
    modelType: 'olmo3',
    names: NORMS_AFTER,
    fields: (given) => ({
      ...olmo3Rope(given),
      sliding_window: given.key('attention.sliding_window'),
      layer_types: slidingTypes(given, 4),
    }),
  },
  {
    gguf: 'granite',
    class: 'GraniteForCausalLM',
    modelType: 'granite',
    permuted: true,
    fields: ({ key }) => ({
      attention_multiplier: key('attention.scale'),
      embedding_multiplier: key('embedding_scale'),
      residual_multiplier: key('residual_scale'),
      logits_scaling: key('logit_scale'),
    }),
  },
  {
    // llama.cpp looks for the tensor of the second norm, HuggingFace at use_parallel_residual. The vectors have both.
    gguf: 'stablelm',
    class: 'StableLmForCausalLM',
    modelType: 'stablelm',
    names: {
      'attn_q_norm.weight': 'self_attn.q_layernorm.norms.{n}.weight',
      'attn_k_norm.weight': 'self_attn.k_layernorm.norms.{n}.weight',
    },
    fields: ({ key, raw, headDim, has }) => ({
      attention_bias: undefined,
      layer_norm_eps: key('attention.layer_norm_epsilon'),
      partial_rotary_factor: (key('rope.dimension_count') ?? headDim) / headDim,
      use_parallel_residual: raw('use_parallel_residual'),
      use_qkv_bias: has('blk.0.attn_q.bias'),
      qk_layernorm: has('blk.0.attn_q_norm.weight'),
    }),
  },
  {
    // llama.cpp always computes GELU with tanh. Pythia's files name `gelu`, which uses erf in HuggingFace. Converted
    // files have no base, whatever rotary_emb_base was.
    gguf: 'gptneox',
    class: 'GPTNeoXForCausalLM',
    modelType: 'gpt_neox',
    names: {
      token_embd: 'embed_in',
      output_norm: 'final_layer_norm',
      output: 'embed_out',
      attn_qkv: 'attention.query_key_value',
      attn_output: 'attention.dense',
      ffn_up: 'mlp.dense_h_to_4h',
      ffn_down: 'mlp.dense_4h_to_h',
    },
    fields: ({ key, raw, headDim }) => ({
      num_key_value_heads: undefined,
      rope_theta: undefined,
      hidden_act: 'gelu_fast',
      layer_norm_eps: key('attention.layer_norm_epsilon'),
      rotary_emb_base: key('rope.freq_base') ?? 10000,
      rotary_pct: (key('rope.dimension_count') ?? headDim) / headDim,
      use_parallel_residual: raw('use_parallel_residual'),
    }),
    // The rows q, k, v of all heads become q, k, v of each head.
    change: (layer, { heads, headDim }) => {
      for (const name of ['attn_qkv.weight', 'attn_qkv.bias'])
        takeRows(layer, name, (row) => {
          const [head, part, i] = [Math.floor(row / (3 * headDim)), Math.floor(row / headDim) % 3, row % headDim];
          return (part * heads + head) * headDim + i;
        });
    },
  },
  {
    gguf: 'glm4',
    class: 'Glm4ForCausalLM',
    modelType: 'glm4',
    headDim: true,
    names: {
      ...FUSED,
      post_attention_norm: 'post_self_attn_layernorm',
      post_ffw_norm: 'post_mlp_layernorm',
    },
    fields: ({ key, headDim }) => ({ partial_rotary_factor: (key('rope.dimension_count') ?? headDim) / headDim }),
  },
  {
    // llama.cpp assumes that mscale is 1. Without YaRN the text model is a plain Mistral.
    gguf: 'mistral3',
    when: ({ raw }) => raw('rope.scaling.type') === 'yarn',
    class: 'Mistral3ForConditionalGeneration',
    modelType: 'ministral3',
    headDim: true,
    inside: { modelType: 'mistral3', tensors: 'language_model.model.', head: 'language_model.lm_head' },
    permuted: true,
    fields: ({ key }) => ({
      rope_theta: undefined,
      rope_scaling: undefined,
      sliding_window: null,
      rope_parameters: {
        beta_fast: key('rope.scaling.yarn_beta_fast') ?? 32,
        beta_slow: key('rope.scaling.yarn_beta_slow') ?? 1,
        factor: key('rope.scaling.factor'),
        llama_4_scaling_beta: key('attention.temperature_scale'),
        mscale: 1,
        mscale_all_dim: key('rope.scaling.yarn_log_multiplier'),
        original_max_position_embeddings: key('rope.scaling.original_context_length'),
        rope_theta: key('rope.freq_base'),
        rope_type: 'yarn',
      },
    }),
  },
  {
    gguf: 'mistral3',
    class: 'Mistral3ForConditionalGeneration',
    modelType: 'mistral',
    headDim: true,
    inside: { modelType: 'mistral3', tensors: 'language_model.model.', head: 'language_model.lm_head' },
    permuted: true,
    fields: () => ({ sliding_window: null }),
  },
  {
    gguf: 'qwen2moe',
    class: 'Qwen2MoeForCausalLM',
    modelType: 'qwen2_moe',
    names: {
      ffn_gate_inp_shexp: 'mlp.shared_expert_gate',
      ffn_gate_shexp: 'mlp.shared_expert.gate_proj',
      ffn_up_shexp: 'mlp.shared_expert.up_proj',
      ffn_down_shexp: 'mlp.shared_expert.down_proj',
    },
    fields: (given) => ({
      ...experts(given),
      attention_bias: undefined,
      norm_topk_prob: false,
      shared_expert_intermediate_size: given.key('expert_shared_feed_forward_length'),
      use_sliding_window: false,
      sliding_window: 32768,
      max_window_layers: given.layers,
    }),
    change: (layer) => {
      const gate = layer.get('ffn_gate_inp_shexp.weight');
      if (gate) layer.set('ffn_gate_inp_shexp.weight', { shape: [1, gate.data.length], data: gate.data });
    },
  },
  {
    gguf: 'qwen3moe',
    class: 'Qwen3MoeForCausalLM',
    modelType: 'qwen3_moe',
    headDim: true,
    fields: (given) => ({
      ...experts(given),
      norm_topk_prob: true,
      use_sliding_window: false,
      sliding_window: null,
      max_window_layers: given.layers,
    }),
  },
  {
    gguf: 'llama',
    when: ({ key }) => !key('expert_count'),
    class: 'LlamaForCausalLM',
    modelType: 'llama',
    permuted: true,
  },
  {
    gguf: 'llama',
    class: 'MixtralForCausalLM',
    modelType: 'mixtral',
    permuted: true,
    names: {
      ffn_gate_inp: 'block_sparse_moe.gate',
      ffn_gate_exps: 'block_sparse_moe.experts.{n}.w1',
      ffn_up_exps: 'block_sparse_moe.experts.{n}.w3',
      ffn_down_exps: 'block_sparse_moe.experts.{n}.w2',
    },
    fields: ({ key }) => ({
      num_local_experts: key('expert_count'),
      num_experts_per_tok: key('expert_used_count'),
      output_router_logits: false,
      sliding_window: null,
    }),
  },
  {
    gguf: 'deepseek2',
    when: ({ key }) => key('expert_gating_func') === 2,
    class: 'DeepseekV3ForCausalLM',
    modelType: 'deepseek_v3',
    names: DEEPSEEK,
    fields: (given) => ({ ...deepseek(given), scoring_func: 'sigmoid', topk_method: 'noaux_tc' }),
    change: joinLatents,
  },
  {
    // The scale of the scores has mscale² in DeepSeek's code and in llama.cpp, but not in transformers@0233e509.
    // HuggingFace ranks groups by their best expert, llama.cpp by the sum of two, and no vector depends on that.
    gguf: 'deepseek2',
    class: 'DeepseekV2ForCausalLM',
    modelType: 'deepseek_v2',
    names: DEEPSEEK,
    fields: (given) => ({ ...deepseek(given), scoring_func: 'softmax', topk_method: 'greedy' }),
    change: joinLatents,
  },
  {
    // Published files have `truncate: false`. llama.cpp rounds the range, as HuggingFace does with true.
    gguf: 'gpt-oss',
    class: 'GptOssForCausalLM',
    modelType: 'gpt_oss',
    headDim: true,
    names: {
      post_attention_norm: 'post_attention_layernorm',
      'attn_sinks.weight': 'self_attn.sinks',
      ffn_gate_inp: 'mlp.router',
      'ffn_gate_up_exps.weight': 'mlp.experts.gate_up_proj',
      'ffn_gate_up_exps.bias': 'mlp.experts.gate_up_proj_bias',
      'ffn_down_exps.weight': 'mlp.experts.down_proj',
      'ffn_down_exps.bias': 'mlp.experts.down_proj_bias',
    },
    fields: (given) => ({
      intermediate_size: given.key('expert_feed_forward_length'),
      experts_per_token: given.key('expert_used_count'),
      num_experts_per_tok: given.key('expert_used_count'),
      num_local_experts: given.key('expert_count'),
      initial_context_length: given.key('rope.scaling.original_context_length'),
      layer_types: slidingTypes(given, 2),
      sliding_window: given.key('attention.sliding_window'),
      swiglu_limit: 7,
      rope_scaling: scalingOf(given) && { ...scalingOf(given), beta_fast: 32, beta_slow: 1, truncate: true },
    }),
    // The rows of gate and up alternate, and weights are [experts, inputs, outputs].
    change: (layer) => {
      for (const kind of ['weight', 'bias']) {
        const [gate, up] = [take(layer, `ffn_gate_exps.${kind}`), take(layer, `ffn_up_exps.${kind}`)];
        const [count, rows, width = 1] = gate.shape as [number, number, number?];
        const both = new Float32Array(2 * gate.data.length);
        for (let at = 0; at < count * rows; at++)
          for (const [n, { data }] of [gate, up].entries())
            both.set(data.subarray(at * width, (at + 1) * width), (2 * at + n) * width);
        layer.set(`ffn_gate_up_exps.${kind}`, { shape: [count, 2 * rows, ...gate.shape.slice(2)], data: both });
      }
      for (const name of ['ffn_gate_up_exps.weight', 'ffn_down_exps.weight'])
        layer.set(name, swapLastTwo(layer.get(name)!));
    },
  },
  {
    gguf: 'qwen2vl',
    class: 'Qwen2VLForConditionalGeneration',
    modelType: 'qwen2_vl',
    fields: (given) => ({
      attention_bias: undefined,
      use_sliding_window: false,
      sliding_window: 32768,
      max_window_layers: given.layers,
      rope_scaling: { ...(scalingOf(given) ?? { type: 'mrope' }), mrope_section: sectionsOf(given) },
    }),
  },
  {
    // The sections add up to half of head_dim, because HuggingFace gives left-over pairs to t and llama.cpp does not
    // turn them.
    gguf: 'qwen3vl',
    class: 'Qwen3VLForConditionalGeneration',
    modelType: 'qwen3_vl_text',
    headDim: true,
    inside: { modelType: 'qwen3_vl', tensors: 'model.language_model.', head: 'lm_head' },
    fields: (given) => ({
      rope_scaling: {
        mrope_interleaved: true,
        mrope_section: sectionsOf(given),
        ...(scalingOf(given) ?? { rope_type: 'default' }),
      },
    }),
  },
  {
    gguf: 'ernie4_5',
    class: 'Ernie4_5ForCausalLM',
    modelType: 'ernie4_5',
    headDim: true,
    fields: ({ has }) => ({ attention_bias: undefined, use_bias: has('blk.0.attn_q.bias') }),
  },
  {
    // llama.cpp uses windows only in files of 64 layers, HuggingFace whenever sliding_window is a number.
    gguf: 'exaone4',
    class: 'Exaone4ForCausalLM',
    modelType: 'exaone4',
    headDim: true,
    names: NORMS_AFTER,
    fields: (given) => {
      const slides = given.layers === 64;
      return {
        sliding_window: slides ? (given.key('attention.sliding_window') ?? 4096) : null,
        sliding_window_pattern: slides ? 'LLLG' : null,
        layer_types: slides ? slidingTypes(given, 4) : typesOf(given.layers, () => false),
      };
    },
  },
  {
    gguf: 'minicpm',
    class: 'MiniCPMForCausalLM',
    modelType: 'minicpm',
    tied: true,
    permuted: true,
    // Without the keys llama.cpp uses the numbers of the first MiniCPM.
    fields: ({ key, hidden, layers }) => ({
      scale_emb: key('embedding_scale') ?? 12,
      scale_depth: digits((key('residual_scale') ?? 1.4 / Math.sqrt(layers)) * Math.sqrt(layers)),
      dim_model_base: digits(hidden / (key('logit_scale') ?? 256 / hidden)),
    }),
  },
  {
    // HuggingFace has a sliding window, llama.cpp does not, so the window is longer than the vectors' texts.
    gguf: 'starcoder2',
    class: 'Starcoder2ForCausalLM',
    modelType: 'starcoder2',
    tied: true,
    names: { ffn_up: 'mlp.c_fc', ffn_down: 'mlp.c_proj' },
    fields: ({ key }) => ({
      hidden_act: 'gelu_pytorch_tanh',
      attention_bias: undefined,
      mlp_type: 'default',
      norm_type: 'layer_norm',
      norm_epsilon: key('attention.layer_norm_epsilon'),
      use_bias: true,
      sliding_window: 4096,
    }),
  },
];

const gelu = { hidden_act: 'gelu_pytorch_tanh', hidden_activation: 'gelu_pytorch_tanh' };

/** Returns the fields that most classes have. */
function commonFields({ key, layers, heads, kvHeads, headDim, hidden, has }: Given, row: Row): Record<string, unknown> {
  const own = has('output.weight');
  return {
    vocab_size: key('vocab_size'),
    hidden_size: hidden,
    intermediate_size: key('feed_forward_length'),
    num_hidden_layers: layers,
    num_attention_heads: heads,
    num_key_value_heads: kvHeads,
    // MLA has other sizes.
    head_dim: !has('blk.0.attn_kv_a_mqa.weight') && (row.headDim || headDim !== hidden / heads) ? headDim : undefined,
    max_position_embeddings: key('context_length'),
    hidden_act: 'silu',
    attention_bias: has('blk.0.attn_q.bias') || has('blk.0.attn_qkv.bias') || undefined,
    mlp_bias: has('blk.0.ffn_gate.bias') || undefined,
    rms_norm_eps: key('attention.layer_norm_rms_epsilon'),
    rope_theta: key('rope.freq_base') ?? 10000,
    tie_word_embeddings: own ? false : row.tied ? undefined : true,
    bos_token_id: key('tokenizer.ggml.bos_token_id'),
    eos_token_id: key('tokenizer.ggml.eos_token_id'),
    torch_dtype: 'float32',
  };
}

/** Returns `rope_scaling` for classes without a special form. One list of factors becomes two equal lists. */
function scalingOf({ key, raw, has, list }: Given): Record<string, unknown> | null {
  const factor = key('rope.scaling.factor');
  const original_max_position_embeddings = key('rope.scaling.original_context_length') ?? key('context_length');
  const lists = (long: string, short: string) => ({
    rope_type: 'longrope',
    long_factor: list(long),
    short_factor: list(short),
    attention_factor: key('rope.scaling.attn_factor') ?? 1,
    original_max_position_embeddings,
  });
  if (has('rope_freqs.weight')) return lists('rope_freqs.weight', 'rope_freqs.weight');
  if (has('rope_factors_long.weight')) return lists('rope_factors_long.weight', 'rope_factors_short.weight');
  const type = raw('rope.scaling.type') ?? 'linear';
  if (!factor || type === 'none') return null;
  if (type !== 'yarn') return { rope_type: 'linear', factor };
  const magnitude = key('rope.scaling.attn_factor');
  const attention_factor = magnitude && magnitude * (1 + 0.1 * Math.log(factor));
  return { rope_type: 'yarn', factor, original_max_position_embeddings, attention_factor };
}

/**
 * Returns the RoPE of OLMo 3. transformers 5 does not find rope_theta of old files for sliding layers, so a base other
 * than 500000 is written for each layer type.
 */
function olmo3Rope(given: Given): Record<string, unknown> {
  const rope_theta = given.key('rope.freq_base') ?? 10000;
  if (rope_theta === 500000) return {};
  const plain = { rope_type: 'default', rope_theta };
  const rope_parameters = { sliding_attention: plain, full_attention: { ...plain, ...scalingOf(given) } };
  return { rope_theta: undefined, rope_scaling: undefined, rope_parameters };
}

const sectionsOf = ({ raw }: Given): number[] => (raw('rope.dimension_sections') as number[]).slice(0, 3);

const typesOf = (layers: number, slides: (layer: number) => boolean): string[] =>
  Array.from({ length: layers }, (_item, layer) => (slides(layer) ? 'sliding_attention' : 'full_attention'));

/** Returns the type of each layer. By default the last of every `period` layers is full. */
function slidingTypes({ key, raw, layers }: Given, period: number): string[] {
  const name = 'attention.sliding_window_pattern';
  const flags = raw(name);
  if (Array.isArray(flags)) return typesOf(layers, (layer) => Boolean(flags[layer]));
  const n = key(name) ?? period;
  return typesOf(layers, (layer) => layer % n < n - 1);
}

/** Returns the layer types if the class would choose others, else undefined. */
const listedTypes = (given: Given, period: number): string[] | undefined =>
  given.raw('attention.sliding_window_pattern') === undefined ? undefined : slidingTypes(given, period);

/** Returns the shortest decimal of an f32, such as 1e-5 for 9.999999747378752e-6. */
function decimal(value: unknown): number | undefined {
  if (typeof value !== 'number') return undefined;
  const enough = [6, 7, 8, 9].find((count) => Math.fround(Number(value.toPrecision(count))) === value);
  return enough === undefined ? value : Number(value.toPrecision(enough));
}

/** Rounds a number that was divided in f32 to six digits. */
const digits = (value: number): number => Number(value.toPrecision(6));

function take(part: Part, name: string): Values {
  const values = part.get(name);
  if (!values) throw new Error(`the layer has no ${name}`);
  part.delete(name);
  return values;
}

/** Reorders rows: row n of the result is row `from(n)`. */
function takeRows(part: Part, name: string, from: (row: number) => number): void {
  const values = part.get(name);
  if (!values) return;
  const rows = values.shape[0]!;
  const width = values.data.length / rows;
  const data = new Float32Array(values.data.length);
  for (let row = 0; row < rows; row++)
    data.set(values.data.subarray(from(row) * width, (from(row) + 1) * width), row * width);
  part.set(name, { shape: values.shape, data });
}

function swapLastTwo({ shape, data }: Values): Values {
  const [count, rows, columns] = shape as [number, number, number];
  const out = new Float32Array(data.length);
  for (let n = 0; n < count; n++)
    for (let row = 0; row < rows; row++)
      for (let column = 0; column < columns; column++)
        out[(n * columns + column) * rows + row] = data[(n * rows + row) * columns + column]!;
  return { shape: [count, columns, rows], data: out };
}

/** Joins k_b `[heads, latent, nope]`, transposed, and v_b `[heads, v, latent]` to one matrix, head by head. */
function joinLatents(layer: Part, { heads }: Given): void {
  if (!layer.has('attn_k_b.weight')) return;
  const k = swapLastTwo(take(layer, 'attn_k_b.weight'));
  const v = take(layer, 'attn_v_b.weight');
  const [ofK, ofV] = [k.data.length / heads, v.data.length / heads];
  const data = new Float32Array(k.data.length + v.data.length);
  for (let head = 0; head < heads; head++) {
    data.set(k.data.subarray(head * ofK, (head + 1) * ofK), head * (ofK + ofV));
    data.set(v.data.subarray(head * ofV, (head + 1) * ofV), head * (ofK + ofV) + ofK);
  }
  const latent = v.shape[2]!;
  layer.set('attn_kv_b.weight', { shape: [data.length / latent, latent], data });
}

/** Reads the values of a tensor in F32. Blocks are dequantised. */
function readValues(
  bytes: Uint8Array,
  file: GgufFile,
  { name, type, shape, offset, sizeBytes }: GgufFile['tensors'][number],
): Values {
  const own = bytes.slice(file.dataOffset + offset, file.dataOffset + offset + sizeBytes!);
  const data = new Float32Array(shape.reduce((a, b) => a * b, 1));
  if (type === 'F32') data.set(new Float32Array(own.buffer));
  else widenBlocks(WIDENED.get(type)!, own, name, 'f32', data);
  return { shape: [...shape].reverse(), data };
}

/** The tensors whose values are in config.json. */
const IN_CONFIG = /^rope_(freqs|factors_(long|short))\.weight$/;

/** Renames the tensors of a part to HuggingFace's names. */
function rename(part: Part, { names }: Row, architecture: string, before: string, into: Map<string, Values>): void {
  for (const [name, values] of part) {
    const [stem, kind] = [name.slice(0, name.lastIndexOf('.')), name.slice(name.lastIndexOf('.'))];
    const all = { ...NAMES, ...names };
    const to = all[name] ?? (all[stem] && all[stem] + kind);
    if (to === undefined) throw new Error(`${architecture}: no HuggingFace name for ${name}`);
    if (!to.includes('{n}')) into.set(before + to, values);
    else {
      const [count, ...shape] = values.shape as [number, ...number[]];
      const size = values.data.length / count;
      for (let n = 0; n < count; n++)
        into.set(before + to.replace('{n}', String(n)), {
          shape,
          data: values.data.subarray(n * size, (n + 1) * size),
        });
    }
  }
}

/**
 * Writes a GGUF model as transformers would save it: config.json, and model.safetensors in F32.
 *
 * @param ggufPath - a file of test/fixtures/families, or another file of these families
 * @param folder - the output folder, which is created
 * @param options - `shards`: the number of weight files, with an index if there are several; `mxfp4`: writes gpt-oss's
 *   experts in MXFP4 like published files, which is exact if the GGUF has them in MXFP4
 */
export async function writeHuggingFace(
  ggufPath: string,
  folder: string,
  { shards = 1, mxfp4 = false }: { shards?: number; mxfp4?: boolean } = {},
): Promise<void> {
  const bytes = new Uint8Array(readFileSync(ggufPath)); // copies the Buffer, whose slices share memory
  const file = parseGguf(bytes, ggufPath);
  const architecture = String(file.metadata.get('general.architecture'));
  const parts = new Map<string, Part>(); // the keys are `blk.L.`
  for (const tensor of file.tensors) {
    const before = /^blk\.\d+\./.exec(tensor.name)?.[0] ?? '';
    const part = parts.get(before) ?? new Map<string, Values>();
    parts.set(before, part.set(tensor.name.slice(before.length), readValues(bytes, file, tensor)));
  }
  const top = parts.get('')!;
  const raw = (name: string): unknown =>
    file.metadata.get(name.startsWith('tokenizer.') ? name : `${architecture}.${name}`);
  const key = (name: string): number | undefined => decimal(raw(name));
  const [heads, hidden, layers] = [key('attention.head_count')!, key('embedding_length')!, key('block_count')!];
  const given: Given = {
    key,
    raw,
    layers,
    heads,
    kvHeads: key('attention.head_count_kv') ?? heads,
    headDim: key('attention.key_length') ?? hidden / heads,
    hidden,
    has: (name) => file.tensors.some((tensor) => tensor.name === name),
    list: (name) => Array.from(top.get(name)!.data),
  };
  const row = ROWS.find(({ gguf, when }) => gguf === architecture && (when?.(given) ?? true));
  if (!row) throw new Error(`${ggufPath}: no row for ${architecture}`);

  const tensors = new Map<string, Values>();
  const prefix = row.inside?.tensors ?? (row.modelType === 'gpt_neox' ? 'gpt_neox.' : 'model.');
  const [head, rest] = [new Map<string, Values>(), new Map<string, Values>()];
  for (const [name, values] of top) {
    if (IN_CONFIG.test(name)) continue;
    (name === 'output.weight' ? head : rest).set(name, values);
  }
  parts.set('', rest);
  const turned = permutedRows(given.headDim, 'half');
  for (const [before, part] of parts) {
    if (row.permuted)
      for (const name of ['attn_q.weight', 'attn_q.bias', 'attn_k.weight', 'attn_k.bias'])
        takeRows(part, name, (n) => n - (n % given.headDim) + turned[n % given.headDim]!);
    if (row.minusOne)
      for (const [name, { shape, data }] of part)
        if (name.endsWith('norm.weight')) part.set(name, { shape, data: data.map((value) => value - 1) });
    if (before !== '') row.change?.(part, given);
    rename(part, row, architecture, before.replace(/^blk/, `${prefix}layers`) || prefix, tensors);
  }
  rename(head, row.inside ? { ...row, names: { output: row.inside.head } } : row, architecture, '', tensors);

  const fields: Record<string, unknown> = {
    ...commonFields(given, row),
    rope_scaling: scalingOf(given),
    ...row.fields?.(given),
  };
  const saved = new Map<string, Values<Float32Array | Uint8Array>>(tensors);
  if (mxfp4) {
    for (const [name, values] of tensors) if (/experts\.\w+_proj$/.test(name)) toMxfp4(name, values, saved);
    fields.quantization_config = {
      modules_to_not_convert: [
        'model.layers.*.self_attn',
        'model.layers.*.mlp.router',
        'model.embed_tokens',
        'lm_head',
      ],
      quant_method: 'mxfp4',
    };
  }
  const text = { architectures: [row.class], model_type: row.modelType, ...fields };
  const config = row.inside
    ? {
        architectures: text.architectures,
        model_type: row.inside.modelType,
        text_config: { ...text, architectures: undefined },
        tie_word_embeddings: fields.tie_word_embeddings,
      }
    : text;
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, 'config.json'), JSON.stringify(config, null, 2));
  writeWeights(folder, saved, shards);
}

/**
 * Replaces `[e, inputs, outputs]` by blocks of 32 inputs, `[e, outputs, inputs / 32, 16]`, and the exponents of the
 * blocks plus 127. Two neighbours share a byte, the first in the low bits. Each value must be a power of two times one
 * of {@link E2M1}.
 */
function toMxfp4(name: string, values: Values, into: Map<string, Values<Float32Array | Uint8Array>>): void {
  const { shape, data } = swapLastTwo(values);
  const [e, outputs, inputs] = shape as [number, number, number];
  const blocks = new Uint8Array(data.length / 2);
  const scales = new Uint8Array(data.length / 32);
  for (let block = 0; block < scales.length; block++) {
    const part = [...data.subarray(32 * block, 32 * block + 32)];
    const code = (value: number, scale: number): number => E2M1.indexOf(Math.abs(value) / 2 ** (scale - 127));
    const scale = Array.from(Array(255).keys()).find((n) => part.every((value) => code(value, n) >= 0));
    if (scale === undefined) throw new Error(`${name}: block ${block} is not MXFP4`);
    scales[block] = scale;
    for (const [i, value] of part.entries())
      blocks[16 * block + (i >> 1)]! |= (code(value, scale) + (value < 0 ? 8 : 0)) << (4 * (i & 1));
  }
  into.delete(name);
  into.set(`${name}_blocks`, { shape: [e, outputs, inputs / 32, 16], data: blocks });
  into.set(`${name}_scales`, { shape: [e, outputs, inputs / 32], data: scales });
}

/** The magnitudes of the four-bit numbers, which have two bits of exponent and one of mantissa. */
const E2M1 = [0, 0.5, 1, 1.5, 2, 3, 4, 6];

function writeWeights(
  folder: string,
  tensors: ReadonlyMap<string, Values<Float32Array | Uint8Array>>,
  shards: number,
): void {
  const names = [...tensors.keys()];
  const size = Math.ceil(names.length / shards);
  const weight_map: Record<string, string> = {};
  for (let n = 0; n < shards; n++) {
    const of = `${String(n + 1).padStart(5, '0')}-of-${String(shards).padStart(5, '0')}`;
    const name = shards === 1 ? 'model.safetensors' : `model-${of}.safetensors`;
    const own = names.slice(n * size, (n + 1) * size);
    for (const tensor of own) weight_map[tensor] = name;
    const values = own.map((tensor) => {
      const { data, shape } = tensors.get(tensor)!;
      return [tensor, tensorFrom(data, { dtype: data instanceof Uint8Array ? 'u8' : 'f32', shape })] as const;
    });
    writeFileSync(join(folder, name), writeSafetensors(new Map(values), { format: 'pt' }));
  }
  if (shards === 1) return;
  const total_size = [...tensors.values()].reduce((sum, { data }) => sum + data.byteLength, 0);
  const index = { metadata: { total_size }, weight_map };
  writeFileSync(join(folder, 'model.safetensors.index.json'), JSON.stringify(index, null, 2));
}
