"""Writes small models of several families with random weights, and the tensors of their modules: f32 and bf16.

Usage: trace_dumps.py FOLDER. The Llama is also written with three faults: norm, branch, gqa.
"""
import os
import sys

import torch
import transformers as tf
from safetensors.torch import save_file

BASE = dict(
    vocab_size=300, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, head_dim=16, max_position_embeddings=128, pad_token_id=0, bos_token_id=1, eos_token_id=2,
    tie_word_embeddings=False,
)
GEMMA = dict(sliding_window=20, query_pre_attn_scalar=16)
GRANITE = dict(residual_multiplier=0.22, embedding_multiplier=12.0, logits_scaling=8.0, attention_multiplier=0.1)
FAMILIES = {
    "llama": (tf.LlamaConfig, {}),
    "qwen2": (tf.Qwen2Config, {}),
    "qwen3": (tf.Qwen3Config, {}),
    "mistral": (tf.MistralConfig, dict(sliding_window=20)),
    "gemma2": (tf.Gemma2Config, GEMMA),
    "gemma3": (tf.Gemma3TextConfig, GEMMA),
    "phi3": (tf.Phi3Config, {}),
    "olmo2": (tf.Olmo2Config, {}),
    "granite": (tf.GraniteConfig, GRANITE),
    "cohere": (tf.CohereConfig, {}),
    "gpt_neox": (tf.GPTNeoXConfig, {}),
}
IDS = torch.tensor([[3 + (37 * n + 5) % 290 for n in range(40)]])


def dump(model, path):
    got = {}

    def hook(name):
        def keep(_module, given, made):
            made = made[0] if isinstance(made, tuple) else made
            if torch.is_tensor(made) and made.is_floating_point():
                got[name] = made.detach().clone().contiguous()
            if name.endswith(("self_attn.o_proj", "attention.dense")):
                got[f"{name}.input"] = given[0].detach().clone().contiguous()

        return keep

    for name, module in model.named_modules():
        if name:
            module.register_forward_hook(hook(name))
    with torch.no_grad():
        model(IDS)
    save_file(got, path)


def repeat_tiled(x, times):
    batch, heads, tokens, dim = x.shape
    return x[:, None].expand(batch, times, heads, tokens, dim).reshape(batch, heads * times, tokens, dim)


out = sys.argv[1]
for family, (config, more) in FAMILIES.items():
    torch.manual_seed(1)
    model = tf.AutoModelForCausalLM.from_config(config(**{**BASE, **more})).eval()
    for weight in model.parameters():
        weight.data = weight.data + 0.2 * torch.randn_like(weight) if weight.dim() == 1 else 4 * weight.data
    folder = os.path.join(out, family)
    model.save_pretrained(folder)
    dump(model, f"{folder}-f32.safetensors")
    dump(tf.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).eval(), f"{folder}-bf16.safetensors")

llama = lambda: tf.AutoModelForCausalLM.from_pretrained(os.path.join(out, "llama"), attn_implementation="eager").eval()
model = llama()
model.model.layers[1].post_attention_layernorm.forward = lambda x: x
dump(model, os.path.join(out, "norm.safetensors"))
model = llama()
whole = model.model.layers[1].mlp.forward
model.model.layers[1].mlp.forward = lambda x: 2 * whole(x)
dump(model, os.path.join(out, "branch.safetensors"))
tf.models.llama.modeling_llama.repeat_kv = repeat_tiled
dump(llama(), os.path.join(out, "gqa.safetensors"))
