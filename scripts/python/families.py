"""
Random models of a family, as transformers makes and saves them, with its logits.

  python families.py NAME FOLDER    config.json, model.safetensors (f16), tokens.npy, logits.npy, greedy.npy
  python families.py --list

The weights are random but exact in f16, and logits are those of the same weights in f32. Biases are not 0, gains not 1.
"""

import json
import os
import re
import sys

import numpy as np
import torch
import transformers
from safetensors.torch import load_file, save_file

SIZES = dict(
    vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
    max_position_embeddings=256, bos_token_id=1, eos_token_id=2, pad_token_id=0,
)
EXPERTS = dict(num_experts=6, num_experts_per_tok=2)
LOCAL_EXPERTS = dict(num_local_experts=6, num_experts_per_tok=2, intermediate_size=16)
# A first dense layer, then experts in three groups and two that all tokens share, as DeepSeek's fields say it.
DEEP_EXPERTS = dict(
    num_hidden_layers=3, first_k_dense_replace=1, n_routed_experts=6, num_experts_per_tok=2, n_shared_experts=2,
    moe_intermediate_size=16, norm_topk_prob=True, routed_scaling_factor=1.7,
)
SMALL_LATENT = dict(q_lora_rank=16, kv_lora_rank=24, qk_nope_head_dim=8, qk_rope_head_dim=8, v_head_dim=8)
INDEXER = dict(index_topk=64, index_head_dim=64, index_n_heads=2)
SMALL_VISION = dict(
    depth=1, hidden_size=8, intermediate_size=8, num_heads=2, patch_size=2, temporal_patch_size=1, out_hidden_size=32,
    num_position_embeddings=4, deepstack_visual_indexes=[0],
)
GRANITE = dict(attention_multiplier=0.2, embedding_multiplier=3.0, residual_multiplier=0.6, logits_scaling=2.0)

# NAME: the config's class, and what differs from SIZES. After "-" comes the name of a variant.
FAMILIES = {
    "gemma": ("GemmaConfig", dict(head_dim=16)),
    "olmoe": ("OlmoeConfig", dict(EXPERTS, intermediate_size=16, num_key_value_heads=4)),
    "cohere": ("CohereConfig", dict(logit_scale=0.7)),
    "cohere-norm": ("CohereConfig", dict(logit_scale=0.7, use_qk_norm=True)),
    "cohere-norm64": ("CohereConfig", dict(logit_scale=0.7, use_qk_norm=True, num_hidden_layers=64)),
    "seed_oss": ("SeedOssConfig", dict(head_dim=12)),
    "apertus": ("ApertusConfig", dict(head_dim=8, rope_parameters=None)),
    "arcee": ("ArceeConfig", dict(head_dim=8)),
    "jais2": ("Jais2Config", dict(head_dim=8, num_key_value_heads=4)),
    "nemotron": ("NemotronConfig", dict(head_dim=8)),
    "glm4_moe": ("Glm4MoeConfig", dict(
        DEEP_EXPERTS, head_dim=16, attention_bias=True, use_qk_norm=True, n_group=3, topk_group=2,
    )),
    "glm4_moe-air": ("Glm4MoeConfig", dict(DEEP_EXPERTS, head_dim=16, n_shared_experts=1, tie_word_embeddings=True)),
    "ernie4_5_moe": ("Ernie4_5_MoeConfig", dict(num_hidden_layers=3, moe_num_experts=6, moe_k=2, moe_intermediate_size=12)),
    "minimax_m2": ("MiniMaxM2Config", dict(LOCAL_EXPERTS, head_dim=16, rotary_dim=8, scoring_func="sigmoid")),
    "phimoe": ("PhimoeConfig", dict(LOCAL_EXPERTS, attention_bias=True, lm_head_bias=True)),
    # Experts that are near each other, short factors of RoPE, and a tied head with a bias of its own.
    "phimoe-near": ("PhimoeConfig", dict(
        LOCAL_EXPERTS, router_jitter_noise=0.3, attention_bias=True, lm_head_bias=True, tie_word_embeddings=True, sliding_window=5,
        rope_scaling=dict(
            type="longrope", short_factor=[1.0, 1.5, 2.0, 3.0], long_factor=[2.0, 4.0, 6.0, 8.0], short_mscale=1.2,
            long_mscale=1.4, original_max_position_embeddings=64,
        ),
    )),
    "granitemoe": ("GraniteMoeConfig", dict(LOCAL_EXPERTS, **GRANITE)),
    "granitemoeshared": ("GraniteMoeSharedConfig", dict(LOCAL_EXPERTS, **GRANITE, shared_intermediate_size=24)),
    "granitemoehybrid": ("GraniteMoeHybridConfig", dict(
        GRANITE, num_local_experts=0, num_experts_per_tok=0, shared_intermediate_size=48, layer_types=["attention"] * 2, position_embedding_type="rope",
        mamba_n_heads=4,
    )),
    "hunyuan_v1_dense": ("HunYuanDenseV1Config", dict(head_dim=8)),
    "hunyuan_v1_moe": ("HunYuanMoEV1Config", dict(
        head_dim=8, num_experts=6, moe_topk=[2, 2], intermediate_size=32, moe_intermediate_size=[32, 32], num_shared_expert=[1, 1],
    )),
    "qwen3_vl_moe": ("Qwen3VLMoeConfig", dict(tie_word_embeddings=True, text_config=dict(
        SIZES, **EXPERTS, head_dim=8, moe_intermediate_size=16,
        rope_parameters=dict(rope_type="default", rope_theta=5000.0, mrope_section=[2, 1, 1], mrope_interleaved=True),
    ), vision_config=SMALL_VISION)),
    "mistral4": ("Mistral4Config", dict(DEEP_EXPERTS, **SMALL_LATENT, num_key_value_heads=4, rope_parameters=dict(
        rope_type="yarn", rope_theta=1000.0, factor=8.0, original_max_position_embeddings=16, mscale=1.0, mscale_all_dim=1.0,
        beta_fast=32.0, beta_slow=1.0, llama_4_scaling_beta=0.1,
    ))),
    "deepseek_v32": ("DeepseekV32Config", dict(DEEP_EXPERTS, **SMALL_LATENT, **INDEXER, num_key_value_heads=4, n_group=1, topk_group=1, scoring_func="sigmoid")),
    "glm_moe_dsa": ("GlmMoeDsaConfig", {**DEEP_EXPERTS, **SMALL_LATENT, **INDEXER, "num_key_value_heads": 4, "v_head_dim": 12}),
    "glm4_moe_lite": ("Glm4MoeLiteConfig", dict(DEEP_EXPERTS, **SMALL_LATENT, num_key_value_heads=4, scoring_func="sigmoid")),
    "solar_open": ("SolarOpenConfig", {
        **DEEP_EXPERTS, "head_dim": 8, "first_k_dense_replace": 0,
        "rope_parameters": dict(rope_type="default", rope_theta=1e4, partial_rotary_factor=1.0),
    }),
    "youtu": ("YoutuConfig", dict(SMALL_LATENT, num_key_value_heads=4)),
    "glm": ("GlmConfig", dict(head_dim=8, attention_bias=True, rms_norm_eps=1e-5, seq_length=256)),
    "hy_v3": ("HYV3Config", dict(EXPERTS, num_hidden_layers=3, head_dim=8, moe_intermediate_size=16)),
    "exaone_moe": ("ExaoneMoeConfig", dict(
        EXPERTS, num_hidden_layers=4, head_dim=8, moe_intermediate_size=16, sliding_window=8, first_k_dense_replace=1,
        num_shared_experts=1, scoring_func="sigmoid", routed_scaling_factor=1.7,
    )),
    # transformers has no class of it: BAILING has what differs from GLM's names.
    "bailing_moe_v2": ("Glm4MoeConfig", {
        **DEEP_EXPERTS, "head_dim": 8, "use_qk_norm": True, "n_group": 3, "topk_group": 2, "n_shared_experts": 1,
    }),
    "dots1": ("Dots1Config", dict(DEEP_EXPERTS, head_dim=8, num_key_value_heads=4, scoring_func="sigmoid")),
}

YARN = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=64)
SPLIT_LATENT = dict(
    q_lora_rank=12, kv_lora_rank=16, qk_nope_head_dim=8, qk_rope_head_dim=4, v_head_dim=12, num_key_value_heads=4,
    rope_scaling=dict(YARN, mscale=0.7, mscale_all_dim=0.7),
)
IMAGES = dict(depth=1, hidden_size=32, embed_dim=32, num_heads=2, mlp_ratio=2, intermediate_size=32, out_hidden_size=32)
MROPE = dict(text_config=dict(SIZES, rope_scaling=dict(type="mrope", mrope_section=[1, 1, 2])), vision_config=IMAGES)

# The same for those that are proved by llama.cpp's vectors as well: here beside transformers in f32.
FAMILIES.update({
    "llama": ("LlamaConfig", dict(
        attention_bias=True, mlp_bias=True, rope_theta=500000.0,
        rope_scaling=dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=64),
    )),
    "mistral": ("MistralConfig", dict(head_dim=12, sliding_window=5)),
    "mixtral": ("MixtralConfig", dict(LOCAL_EXPERTS)),
    "qwen2": ("Qwen2Config", dict(use_sliding_window=True, sliding_window=5, max_window_layers=1, rope_scaling=YARN)),
    "qwen2_moe": ("Qwen2MoeConfig", dict(
        EXPERTS, num_hidden_layers=3, mlp_only_layers=[0], moe_intermediate_size=16, shared_expert_intermediate_size=24,
    )),
    "qwen2_vl": ("Qwen2VLConfig", MROPE),
    "qwen2_5_vl": ("Qwen2_5_VLConfig", MROPE),
    "qwen3": ("Qwen3Config", dict(head_dim=12, attention_bias=True)),
    "qwen3_moe": ("Qwen3MoeConfig", dict(EXPERTS, head_dim=12, moe_intermediate_size=16, norm_topk_prob=True)),
    "qwen3_vl": ("Qwen3VLConfig", dict(
        text_config=dict(SIZES, head_dim=16, rope_scaling=dict(rope_type="default", mrope_section=[4, 2, 2])),
        vision_config=dict(IMAGES, deepstack_visual_indexes=[0]),
    )),
    "gemma2": ("Gemma2Config", dict(head_dim=16, query_pre_attn_scalar=12, sliding_window=5, final_logit_softcapping=9.0)),
    "gemma3": ("Gemma3TextConfig", dict(
        num_hidden_layers=7, head_dim=16, query_pre_attn_scalar=12, sliding_window=5, rope_scaling=dict(rope_type="linear", factor=8.0),
    )),
    "phi3": ("Phi3Config", dict(hidden_size=64, partial_rotary_factor=0.75)),
    "phi3-longrope": ("Phi3Config", dict(
        max_position_embeddings=512, original_max_position_embeddings=256,
        rope_scaling=dict(type="longrope", short_factor=[1.0, 1.5, 2.0, 3.0], long_factor=[2.0, 4.0, 6.0, 8.0]),
    )),
    "smollm3": ("SmolLM3Config", dict(num_hidden_layers=4)),
    "cohere2": ("Cohere2Config", dict(num_hidden_layers=4, sliding_window=5, logit_scale=0.7)),
    "olmo2": ("Olmo2Config", dict()),
    "olmo3": ("Olmo3Config", dict(num_hidden_layers=4, sliding_window=5, rope_theta=500000.0, rope_scaling=YARN)),
    "granite": ("GraniteConfig", GRANITE),
    "stablelm": ("StableLmConfig", dict(use_qkv_bias=True, qk_layernorm=True, hidden_size=64)),
    "stablelm-parallel": ("StableLmConfig", dict(use_parallel_residual=True, hidden_size=64)),
    "gpt_neox": ("GPTNeoXConfig", dict(hidden_size=64)),
    "glm4": ("Glm4Config", dict(head_dim=16, attention_bias=True)),
    "ministral3": ("Ministral3Config", dict(
        head_dim=12, rope_parameters=dict(
            YARN, rope_theta=10000.0, original_max_position_embeddings=8, beta_fast=4.0, mscale=1.0, mscale_all_dim=1.0, llama_4_scaling_beta=0.1,
        ),
    )),
    "deepseek_v2": ("DeepseekV2Config", dict({**DEEP_EXPERTS, **SPLIT_LATENT}, norm_topk_prob=False, topk_method="group_limited_greedy", n_group=3, topk_group=2)),
    "deepseek_v2-lite": ("DeepseekV2Config", dict({**DEEP_EXPERTS, **SPLIT_LATENT}, q_lora_rank=None, rope_scaling=None, norm_topk_prob=False)),
    "deepseek_v3": ("DeepseekV3Config", dict({**DEEP_EXPERTS, **SPLIT_LATENT}, n_group=3, topk_group=2)),
    "gpt_oss": ("GptOssConfig", dict(LOCAL_EXPERTS, head_dim=8, sliding_window=5, rope_scaling=dict(YARN, truncate=False))),
    "ernie4_5": ("Ernie4_5Config", dict(head_dim=8, use_bias=True)),
    "exaone4": ("Exaone4Config", dict(num_hidden_layers=4, sliding_window=5)),
    "starcoder2": ("Starcoder2Config", dict(sliding_window=5)),
    "gemma3-images": ("Gemma3Config", dict(
        text_config=dict(SIZES, num_hidden_layers=7, head_dim=16, sliding_window=5, rope_scaling=dict(rope_type="linear", factor=8.0)),
        vision_config=dict(hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2, image_size=28, patch_size=14),
        mm_tokens_per_image=4, image_token_index=60,
    )),
    "mistral3-images": ("Mistral3Config", dict(
        text_config=dict(SIZES, model_type="mistral", head_dim=12, sliding_window=None),
        vision_config=dict(model_type="pixtral", hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2, image_size=28, patch_size=14),
        image_token_index=60,
    )),
    "ministral3-images": ("Mistral3Config", dict(
        text_config=dict(SIZES, model_type="ministral3", head_dim=12, rope_parameters=dict(YARN, rope_theta=10000.0, llama_4_scaling_beta=0.1)),
        vision_config=dict(model_type="pixtral", hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2, image_size=28, patch_size=14),
        image_token_index=60,
    )),
})
# Layers without attention: short convolutions, and the gated delta rule. Sizes differ, so that none stands for another.
MIXED = dict(num_hidden_layers=4, layer_types=["conv", "full_attention", "conv", "conv"])
DELTA = dict(
    num_hidden_layers=3, head_dim=16, linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=16,
    linear_value_head_dim=16, linear_conv_kernel_dim=4, full_attention_interval=2,
    rope_parameters=dict(rope_type="default", rope_theta=1e4, partial_rotary_factor=0.5, mrope_section=[2, 1, 1]),
)
FEW = dict(num_experts=6, num_experts_per_tok=2)
SHARED_EXPERT = dict(FEW, moe_intermediate_size=16, shared_expert_intermediate_size=24)
FAMILIES |= {
    "lfm2": ("Lfm2Config", dict(MIXED, intermediate_size=60, block_multiple_of=8)),
    "lfm2-bias": ("Lfm2Config", dict(MIXED, conv_bias=True, conv_L_cache=4, block_auto_adjust_ff_dim=False)),
    "lfm2_moe": ("Lfm2MoeConfig", dict(MIXED, **FEW, moe_intermediate_size=16, num_dense_layers=1)),
    # transformers 4 reads the two fields, and 5 rope_parameters.
    "qwen3_next": ("Qwen3NextConfig", dict(DELTA, **SHARED_EXPERT, partial_rotary_factor=0.5, rope_theta=1e4)),
    "qwen3_5": ("Qwen3_5TextConfig", DELTA),
    "qwen3_5_moe": ("Qwen3_5MoeTextConfig", dict(DELTA, **SHARED_EXPERT)),
}

# State spaces: layers of them and of attention, both in one layer, or one block a layer.
HYBRID = dict(
    GRANITE, num_hidden_layers=3, layer_types=["mamba", "attention", "mamba"], mamba_n_heads=4, mamba_d_state=8, mamba_d_conv=4,
)
FALCON = dict(
    mamba_d_ssm=48, mamba_n_heads=4, mamba_d_state=8, mamba_d_conv=4, head_dim=8, mamba_rms_norm=False,
    embedding_multiplier=3.0, lm_head_multiplier=0.7, mlp_multipliers=[0.8, 0.6], key_multiplier=0.9, attention_in_multiplier=1.2,
    attention_out_multiplier=0.8, ssm_multipliers=[0.7, 1.1, 0.9, 1.3, 0.6], ssm_in_multiplier=1.25, ssm_out_multiplier=0.5,
)
BLOCKS = dict(mamba_num_heads=4, mamba_head_dim=16, ssm_state_size=8, n_groups=2, head_dim=12, chunk_size=8)
BLOCK_EXPERTS = dict(
    BLOCKS, n_routed_experts=6, num_experts_per_tok=2, moe_intermediate_size=16, moe_shared_expert_intermediate_size=24,
    routed_scaling_factor=1.7,
)
FAMILIES |= {
    "granitemoehybrid-mamba": ("GraniteMoeHybridConfig", dict(HYBRID, **LOCAL_EXPERTS, shared_intermediate_size=24, mamba_n_groups=2)),
    "granitemoehybrid-bias": ("GraniteMoeHybridConfig", dict(
        HYBRID, num_local_experts=0, num_experts_per_tok=0, shared_intermediate_size=48, position_embedding_type="rope",
        mamba_proj_bias=True, mamba_conv_bias=False, attention_bias=True,
    )),
    "falcon_h1": ("FalconH1Config", FALCON),
    "falcon_h1-norm": ("FalconH1Config", dict(FALCON, mamba_rms_norm=True, mamba_norm_before_gate=False, mamba_n_groups=2)),
    "falcon_h1-bias": ("FalconH1Config", dict(
        FALCON, mamba_rms_norm=True, mamba_norm_before_gate=True, mamba_n_groups=2, tie_word_embeddings=True,
        mamba_proj_bias=True, projectors_bias=True, attention_bias=True, mlp_bias=True,
    )),
    "nemotron_h": ("NemotronHConfig", dict(
        BLOCKS, layers_block_type=["linear_attention", "mlp", "full_attention", "mlp", "linear_attention"],
    )),
    "nemotron_h-moe": ("NemotronHConfig", dict(
        BLOCK_EXPERTS, layers_block_type=["linear_attention", "moe", "full_attention", "moe"],
    )),
    # All kinds of blocks, experts of a latent vector, and steps that have a lower limit.
    "nemotron_h-latent": ("NemotronHConfig", dict(
        BLOCK_EXPERTS, layers_block_type=["linear_attention", "mlp", "full_attention", "moe"], moe_latent_size=20,
        n_group=3, topk_group=2, time_step_min=0.5, use_bias=True,
    )),
}

# Gemma 4: layers of two sizes, and those at the end that share keys and values (E2B), values that are keys, experts.
GEMMA4 = dict(
    num_hidden_layers=6, layer_types=["sliding_attention", "full_attention"] * 3,
    head_dim=8, global_head_dim=16, sliding_window=5, final_logit_softcapping=9.0, hidden_size_per_layer_input=0,
)
GEMMA4_KEYS = dict(GEMMA4, attention_k_eq_v=True, num_global_key_value_heads=1)
FAMILIES |= {
    "gemma4": ("Gemma4TextConfig", dict(
        GEMMA4, num_kv_shared_layers=2, use_double_wide_mlp=True, hidden_size_per_layer_input=12, vocab_size_per_layer_input=64,
    )),
    "gemma4-keys": ("Gemma4TextConfig", GEMMA4_KEYS),
    "gemma4-experts": ("Gemma4TextConfig", dict(
        GEMMA4_KEYS, enable_moe_block=True, num_experts=6, top_k_experts=2, moe_intermediate_size=16,
    )),
}
FAMILIES |= {
    "gemma4_unified": ("Gemma4UnifiedTextConfig", {key: value for key, value in GEMMA4_KEYS.items() if "per_layer" not in key}),
    "gemma4-images": ("Gemma4Config", dict(
        text_config=dict(SIZES, **GEMMA4_KEYS), vision_config=dict(
            hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2, head_dim=8,
            position_embedding_size=4, pooling_kernel_size=1, patch_size=2,
        ), audio_config=None, image_token_id=60, video_token_id=61, audio_token_id=62,
    )),
}

# Gemma 3n: streams, of which the second is active, a table of fewer tokens, gates that are cut; and llama.cpp's settings.
GEMMA3N = dict(head_dim=8, sliding_window=5, final_logit_softcapping=9.0, vocab_size_per_layer_input=60)
FAMILIES |= {
    "gemma3n": ("Gemma3nTextConfig", dict(
        GEMMA3N, num_hidden_layers=6, layer_types=["sliding_attention", "full_attention"] * 3, num_kv_shared_layers=2,
        hidden_size_per_layer_input=12, altup_num_inputs=3, altup_active_idx=1, laurel_rank=8,
        activation_sparsity_pattern=[0.9, 0.95, 0.3, 0.0, 0.0, 0.5], intermediate_size=[48, 48, 40, 48, 56, 48],
    )),
    "gemma3n-gguf": ("Gemma3nTextConfig", dict(
        GEMMA3N, num_hidden_layers=21, num_kv_shared_layers=1, intermediate_size=1024, final_logit_softcapping=30.0,
    )),
}

# A GGUF says no chunk, nor when the temperature begins, so short texts need files of their own.
LLAMA4 = dict(num_hidden_layers=4, head_dim=8, intermediate_size=16, intermediate_size_mlp=40, num_local_experts=6)
CHUNKS = dict(LLAMA4, attention_chunk_size=4, no_rope_layer_interval=3)
FAMILIES |= {
    "llama4": ("Llama4TextConfig", dict(LLAMA4, interleave_moe_layer_step=2)),
    "llama4-chunks": ("Llama4TextConfig", dict(CHUNKS, floor_scale=3, attn_scale=0.4)),
    "llama4-images": ("Llama4Config", dict(
        text_config=dict(SIZES, **CHUNKS), vision_config=dict(
            hidden_size=16, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2, image_size=28, patch_size=14,
            vision_output_dim=16, projector_input_dim=16, projector_output_dim=16,
        ), image_token_index=60, boi_token_index=61, eoi_token_index=62,
    )),
    "llama4-maverick": ("Llama4TextConfig", dict(CHUNKS, use_qk_norm=False, interleave_moe_layer_step=2, attn_temperature_tuning=False)),
}

BAILING = {
    "embed_tokens": "word_embeddings",
    "self_attn.o_proj": "attention.dense",
    "self_attn.q_norm": "attention.query_layernorm",
    "self_attn.k_norm": "attention.key_layernorm",
    "e_score_correction_bias": "expert_bias",
}

# Logits should differ clearly: rows of matrices have about this length, times that of the input.
SPREAD = 1.5


def draw(name, shape, generator, gemma):
    """Returns random values for a parameter, exact in f16."""
    normal = torch.randn(shape, generator=generator)
    if "norm" in name and name.endswith("weight") or name.endswith(("scale", "scalar")):
        # With few bits, Gemma's gains are exact in f16 when a converter has added 1.
        value = (0.3 * normal * 256).round() / 256 + (0 if gemma else 1)
    elif name.endswith("bias") or len(shape) == 1:
        value = 0.2 * normal
    elif "embed" in name:
        value = normal
    elif "modality_router" in name:  # its input is divided by the hidden size
        value = normal * shape[-1] ** 0.5
    elif "_coefs" in name:  # streams that depend on each other much would enlarge rounding, layer by layer
        value = normal * 0.03
    else:
        # Experts in one tensor are [experts, rows, columns].
        value = normal * (SPREAD / shape[-1] ** 0.5)
    return value.half()


def make(name):
    config_class, fields = FAMILIES[name]
    config = getattr(transformers, config_class)(**({} if "text_config" in fields else SIZES) | fields)
    # Models for images and text have the text in a part of their config.
    auto = transformers.AutoModelForCausalLM
    if type(config) not in transformers.AutoModelForCausalLM._model_mapping:
        auto = transformers.AutoModelForImageTextToText
    model = auto.from_config(config, dtype=torch.float32, attn_implementation="eager").eval()
    generator = torch.Generator().manual_seed(sum(map(ord, name)))
    with torch.no_grad():
        buffers = [(key, value) for key, value in model.named_buffers() if key.endswith(("bias", "layer_scalar"))]
        for key, value in [*model.named_parameters(), *buffers]:
            value.copy_(draw(key, value.shape, generator, re.match(r"gemma[23]?\b", name)))
    return model


def as_bailing(folder):
    """Gives a saved GLM the names of Bailing's own code: inclusionAI/Ling-V2, modeling_bailing_moe_v2.py."""
    path = os.path.join(folder, "model.safetensors")
    tensors = load_file(path)
    for name in list(tensors):
        value = tensors.pop(name)
        if ".q_proj." in name:
            others = [tensors.get(name.replace("q_proj", one)) for one in ("k_proj", "v_proj")]
            name, value = name.replace("self_attn.q_proj", "attention.query_key_value"), torch.cat([value, *others])
        for old, new in BAILING.items():
            name = name.replace(old, new)
        tensors[name] = value
    save_file({name: value for name, value in tensors.items() if "_proj" not in name or "self_attn" not in name}, path, {"format": "pt"})
    path = os.path.join(folder, "config.json")
    config = json.load(open(path))
    rope = config.pop("rope_parameters")
    config.update(
        architectures=["BailingMoeV2ForCausalLM"], model_type="bailing_moe_v2", score_function="sigmoid", use_qkv_bias=False,
        num_experts=config.pop("n_routed_experts"), num_shared_experts=config.pop("n_shared_experts"), use_bias=False,
        rope_theta=rope["rope_theta"], partial_rotary_factor=rope["partial_rotary_factor"], num_nextn_predict_layers=0,
    )
    json.dump(config, open(path, "w"))


def run(model, tokens, count=8):
    """Returns the logits of all tokens in f32, and `count` ids that follow."""
    with torch.no_grad():
        logits = model(input_ids=torch.tensor([tokens]), use_cache=False).logits[0].numpy()
        following = []
        for _ in range(count):
            ids = torch.tensor([tokens + following])
            following.append(int(model(input_ids=ids, use_cache=False).logits[0, -1].argmax()))
    return logits, following


def main(name, folder):
    model = make(name)
    vocab = model.config.get_text_config().vocab_size
    tokens = np.random.default_rng(7).integers(3, vocab, 24).astype(np.int32)
    logits, greedy = run(model, tokens.tolist())
    model.half().save_pretrained(folder)
    if name == "bailing_moe_v2":
        as_bailing(folder)
    for key, value in dict(tokens=tokens, logits=logits.astype(np.float32), greedy=np.int32(greedy)).items():
        np.save(os.path.join(folder, f"{key}.npy"), value)
    print(name, "largest logit", float(np.abs(logits).max()), "greedy", greedy)


if __name__ == "__main__":
    if sys.argv[1:] == ["--list"]:
        print("\n".join(FAMILIES))
    else:
        main(*sys.argv[1:])
