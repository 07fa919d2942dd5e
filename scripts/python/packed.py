"""Makes tiny Llama models as GPTQ, AWQ, compressed-tensors and FP8 checkpoints, each with its dense twin.

Usage: python packed.py OUT. Writes OUT/NAME/{config.json,model.safetensors,dense.safetensors}. The formulas are those
of the formats' own packages, from the integers that are drawn here: AutoGPTQ 0.7.1 qlinear_cuda_old.py pack();
AutoAWQ 0.2.9 awq/modules/linear/gemm.py; compressed-tensors 0.9.4 compressors/quantized_compressors/pack_quantized.py;
DeepSeek-V3 inference/kernel.py weight_dequant().
"""
import json
import pathlib
import sys

import numpy as np
import torch
from safetensors.torch import save_file

H, F, V = 32, 64, 24
MATRICES = {"self_attn.q_proj": (H, H), "self_attn.k_proj": (H, H), "self_attn.v_proj": (H, H), "self_attn.o_proj": (H, H),
            "mlp.gate_proj": (F, H), "mlp.up_proj": (F, H), "mlp.down_proj": (H, F)}


def words(values, bits, axis):
    """Packs unsigned integers along an axis into int32, the first in the lowest bits."""
    per = 32 // bits
    v = np.moveaxis(values.astype(np.uint32), axis, -1)
    v = np.pad(v, [(0, 0)] * (v.ndim - 1) + [(0, -v.shape[-1] % per)]).reshape(*v.shape[:-1], -1, per)
    packed = np.bitwise_or.reduce(v << (np.arange(per, dtype=np.uint32) * bits), axis=-1)
    return torch.from_numpy(np.ascontiguousarray(np.moveaxis(packed, -1, axis)).view(np.int32).copy())


def scales_of(rng, shape, dtype):
    return torch.from_numpy(rng.uniform(0.01, 0.05, shape).astype(np.float32)).to(dtype)


def gptq(rng, n, k, bits=4, group=32, act=False, v2=False):
    groups = 1 if group == -1 else k // group
    order = np.arange(k) // (k if group == -1 else group)
    if act:
        order = rng.permutation(order)
    q, z = rng.integers(0, 2**bits, (k, n)), rng.integers(1, 2**bits, (groups, n))
    s = scales_of(rng, (groups, n), torch.float16)
    dense = (q - z[order]) * s.double().numpy()[order]
    tensors = {"qweight": words(q, bits, 0), "qzeros": words(z - (0 if v2 else 1), bits, 1), "scales": s,
               "g_idx": torch.from_numpy(order.astype(np.int32))}
    return tensors, dense.T


def awq(rng, n, k, group=32):
    q, z, s = rng.integers(0, 16, (k, n)), rng.integers(0, 16, (k // group, n)), scales_of(rng, (k // group, n), torch.float16)
    order = np.array([0, 2, 4, 6, 1, 3, 5, 7])

    def turned(v):
        return words(v.reshape(v.shape[0], -1, 8)[:, :, order].reshape(v.shape), 4, 1)

    dense = (q - np.repeat(z, group, 0)) * np.repeat(s.double().numpy(), group, 0)
    return {"qweight": turned(q), "qzeros": turned(z), "scales": s}, dense.T


def packed(rng, n, k, bits=4, group=32, zeros=False):
    half = 2 ** (bits - 1)
    q, s = rng.integers(-half, half, (n, k)), scales_of(rng, (n, k // group), torch.bfloat16)
    z = rng.integers(-half, half, (n, k // group)) if zeros else np.zeros((n, k // group), int)
    tensors = {"weight_packed": words(q + half, bits, 1), "weight_scale": s, "weight_shape": torch.tensor([n, k])}
    if zeros:
        tensors["weight_zero_point"] = words(z + half, bits, 0)
    return tensors, (q - np.repeat(z, group, 1)) * np.repeat(s.double().numpy(), group, 1)


def int8(rng, n, k):
    q, s = rng.integers(-128, 128, (n, k)), scales_of(rng, (n, 1), torch.bfloat16)
    return {"weight": torch.from_numpy(q.astype(np.int8)), "weight_scale": s}, q * s.double().numpy()


def fp8(rng, n, k, block=None, name="weight_scale"):
    w = torch.from_numpy(rng.normal(0, 30, (n, k)).astype(np.float32)).to(torch.float8_e4m3fn)
    shape = (n, 1) if block is None else (-(-n // block[0]), -(-k // block[1]))
    s = scales_of(rng, shape, torch.float32 if block else torch.bfloat16) / 30
    if block:
        wide = np.repeat(np.repeat(s.double().numpy(), block[0], 0), block[1], 1)[:n, :k]
    else:
        wide = s.double().numpy()
    return {"weight": w, name: s}, w.double().numpy() * wide


def ct(form, bits, kind="int", symmetric=True, **rest):
    weights = {"num_bits": bits, "type": kind, "symmetric": symmetric, **rest}
    return {"quant_method": "compressed-tensors", "format": form, "ignore": ["lm_head"],
            "config_groups": {"group_0": {"targets": ["Linear"], "weights": weights}}}


GROUP = {"strategy": "group", "group_size": 32}
KINDS = {
    "gptq": (gptq, {}, {"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": False, "sym": False}),
    "gptq-act-order": (gptq, {"group": 16, "act": True, "v2": True},
                       {"quant_method": "gptq", "bits": 4, "group_size": 16, "desc_act": True, "checkpoint_format": "gptq_v2"}),
    "gptq-8-whole": (gptq, {"bits": 8, "group": -1}, {"quant_method": "gptq", "bits": 8, "group_size": -1, "desc_act": False}),
    "awq": (awq, {}, {"quant_method": "awq", "bits": 4, "group_size": 32, "zero_point": True, "version": "gemm"}),
    "packed": (packed, {}, ct("pack-quantized", 4, **GROUP)),
    "packed-zeros": (packed, {"zeros": True}, ct("pack-quantized", 4, symmetric=False, **GROUP)),
    "int8": (int8, {}, ct("int-quantized", 8, strategy="channel")),
    "fp8-channel": (fp8, {}, ct("float-quantized", 8, kind="float", strategy="channel")),
    "fp8-blocks": (fp8, {"block": (24, 20), "name": "weight_scale_inv"},
                   {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [24, 20], "activation_scheme": "dynamic"}),
}

for number, (name, (make, options, quantization)) in enumerate(KINDS.items()):
    rng = np.random.default_rng(number)
    folder = pathlib.Path(sys.argv[1], name)
    folder.mkdir(parents=True, exist_ok=True)
    common, files, dense = {}, {}, {}
    for matrix in ("model.embed_tokens", "lm_head"):
        common[f"{matrix}.weight"] = torch.from_numpy(rng.normal(0, 0.2, (V, H)).astype(np.float16))
    for norm in ("model.norm", "model.layers.0.input_layernorm", "model.layers.0.post_attention_layernorm"):
        common[f"{norm}.weight"] = torch.from_numpy(rng.uniform(0.5, 1.5, H).astype(np.float16))
    for matrix, (n, k) in MATRICES.items():
        tensors, exact = make(rng, n, k, **options)
        at = f"model.layers.0.{matrix}"
        files.update({f"{at}.{key}": value.contiguous() for key, value in tensors.items()})
        dense[f"{at}.weight"] = torch.from_numpy(np.ascontiguousarray(exact).astype(np.float32))
    config = {"model_type": "llama", "hidden_act": "silu", "vocab_size": V, "hidden_size": H, "num_hidden_layers": 1,
              "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": F,
              "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "rope_theta": 10000, "tie_word_embeddings": False,
              "bos_token_id": 1, "eos_token_id": 2, "quantization_config": quantization}
    (folder / "config.json").write_text(json.dumps(config) + "\n")
    save_file({**common, **files}, folder / "model.safetensors", {"format": "pt"})
    save_file({**common, **dense}, folder / "dense.safetensors", {"format": "pt"})
