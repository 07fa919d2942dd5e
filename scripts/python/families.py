"""
Random models of a family, as transformers makes and saves them, with its logits.

  python families.py NAME FOLDER    config.json, model.safetensors (f16), tokens.npy, logits.npy, greedy.npy
  python families.py --list

The weights are random but exact in f16, and logits are those of the same weights in f32. Biases are not 0, gains not 1.
"""

import os
import sys

import numpy as np
import torch
import transformers

SIZES = dict(
    vocab_size=96, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
    max_position_embeddings=256, bos_token_id=1, eos_token_id=2, pad_token_id=0,
)
# Experts of two widths and a first dense layer, as DeepSeek's fields say it.
DEEP_EXPERTS = dict(
    num_hidden_layers=3, first_k_dense_replace=1, n_routed_experts=6, num_experts_per_tok=2, n_shared_experts=2,
    moe_intermediate_size=16, norm_topk_prob=True, routed_scaling_factor=1.7,
)

# NAME: the config's class, and what differs from SIZES. A NAME may be a variant: the model_type is the class's.
FAMILIES = {
    "gemma": ("GemmaConfig", dict(head_dim=16)),
    "olmoe": ("OlmoeConfig", dict(intermediate_size=16, num_experts=6, num_experts_per_tok=2)),
    "cohere": ("CohereConfig", dict(logit_scale=0.7)),
    "seed_oss": ("SeedOssConfig", dict(head_dim=12, attention_out_bias=False)),
    "glm4_moe": ("Glm4MoeConfig", dict(DEEP_EXPERTS, head_dim=16, attention_bias=True, use_qk_norm=True)),
}

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
    "qwen3_next": ("Qwen3NextConfig", dict(DELTA, **SHARED_EXPERT)),
    "qwen3_5": ("Qwen3_5TextConfig", DELTA),
    "qwen3_5_moe": ("Qwen3_5MoeTextConfig", dict(DELTA, **SHARED_EXPERT)),
}

# Logits should differ clearly: rows of matrices have about this length, times that of the input.
SPREAD = 1.5


def draw(name, shape, generator, gemma):
    """Returns random values for a parameter, exact in f16."""
    normal = torch.randn(shape, generator=generator)
    if "norm" in name and name.endswith("weight"):
        value = 0.3 * normal + (0 if gemma else 1)
    elif name.endswith("bias") or len(shape) == 1:
        value = 0.2 * normal
    elif "embed" in name:
        value = normal
    else:
        # Experts in one tensor are [experts, rows, columns].
        value = normal * (SPREAD / shape[-1] ** 0.5)
    return value.half()


def make(name):
    config_class, fields = FAMILIES[name]
    config = getattr(transformers, config_class)(**{**SIZES, **fields})
    # Models for images and text have the text in a part of their config.
    auto = transformers.AutoModelForCausalLM
    if type(config) not in transformers.AutoModelForCausalLM._model_mapping:
        auto = transformers.AutoModelForImageTextToText
    model = auto.from_config(config, dtype=torch.float32, attn_implementation="eager").eval()
    generator = torch.Generator().manual_seed(sum(map(ord, name)))
    with torch.no_grad():
        buffers = [(key, value) for key, value in model.named_buffers() if key.endswith("bias")]
        for key, value in [*model.named_parameters(), *buffers]:
            value.copy_(draw(key, value.shape, generator, "gemma" in name))
    return model


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
    for key, value in dict(tokens=tokens, logits=logits.astype(np.float32), greedy=np.int32(greedy)).items():
        np.save(os.path.join(folder, f"{key}.npy"), value)
    print(name, "largest logit", float(np.abs(logits).max()), "greedy", greedy)


if __name__ == "__main__":
    if sys.argv[1:] == ["--list"]:
        print("\n".join(FAMILIES))
    else:
        main(*sys.argv[1:])
