#!/usr/bin/python3
"""Writes the files of `models/marline/` from a checkpoint: safetensors (f16) and GGUF (q8_0).

    /usr/bin/python3 training/export.py                               # from checkpoints/best.pt
    /usr/bin/python3 training/export.py --checkpoint X --folder Y

The GGUF is made from the f16 weights, as a converter that reads the safetensors would make it.
"""

import argparse
import json
from pathlib import Path

import numpy as np
import torch

import files
from model import Shape, as_config, to_huggingface
from tokenizer import BOS, EOS, UNK, Tokenizer

HERE = Path(__file__).resolve().parent
MODEL = HERE.parent / "models" / "marline"


def interleave(w: np.ndarray, heads: int) -> np.ndarray:
    """Rows of q or k from HuggingFace's pairs (j, j + head_dim/2) to ggml's pairs (2j, 2j + 1)."""
    rows, columns = w.shape
    return w.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)


def gguf_tensors(t: dict[str, np.ndarray], s: Shape) -> dict[str, tuple[int, np.ndarray]]:
    """ggml's names and types for {to_huggingface}'s tensors: matrices q8_0, norms f32."""
    out = {"token_embd.weight": (files.Q8_0, t["model.embed_tokens.weight"]),
           "output_norm.weight": (files.F32, t["model.norm.weight"])}  # fmt: skip
    for n in range(s.num_hidden_layers):
        here, there = f"blk.{n}.", f"model.layers.{n}."
        q = interleave(t[there + "self_attn.q_proj.weight"], s.num_attention_heads)
        k = interleave(t[there + "self_attn.k_proj.weight"], s.num_key_value_heads)
        out[here + "attn_norm.weight"] = (files.F32, t[there + "input_layernorm.weight"])
        out[here + "attn_q.weight"] = (files.Q8_0, q)
        out[here + "attn_k.weight"] = (files.Q8_0, k)
        out[here + "attn_v.weight"] = (files.Q8_0, t[there + "self_attn.v_proj.weight"])
        out[here + "attn_output.weight"] = (files.Q8_0, t[there + "self_attn.o_proj.weight"])
        out[here + "ffn_norm.weight"] = (files.F32, t[there + "post_attention_layernorm.weight"])
        out[here + "ffn_gate.weight"] = (files.Q8_0, t[there + "mlp.gate_proj.weight"])
        out[here + "ffn_up.weight"] = (files.Q8_0, t[there + "mlp.up_proj.weight"])
        out[here + "ffn_down.weight"] = (files.Q8_0, t[there + "mlp.down_proj.weight"])
    return out


def gguf_metadata(tok: Tokenizer, s: Shape, parameters: int) -> list[tuple]:
    u32, f32, string, flag = files.U32, files.FLOAT32, files.STRING, files.BOOL
    return [
        ("general.architecture", string, "llama"),
        ("general.type", string, "model"),
        ("general.name", string, "Marline"),
        ("general.description", string, "A small Llama-family model of seven public-domain novels"),
        ("general.size_label", string, f"{parameters / 1e6:.1f}M"),
        ("general.license", string, "mit"),
        ("general.languages", files.ARRAY, string, ["en"]),
        ("general.file_type", u32, 7),  # mostly q8_0
        ("general.quantization_version", u32, 2),
        ("general.alignment", u32, files.GGUF_ALIGNMENT),
        ("llama.vocab_size", u32, s.vocab_size),
        ("llama.context_length", u32, s.max_position_embeddings),
        ("llama.embedding_length", u32, s.hidden_size),
        ("llama.feed_forward_length", u32, s.intermediate_size),
        ("llama.block_count", u32, s.num_hidden_layers),
        ("llama.attention.head_count", u32, s.num_attention_heads),
        ("llama.attention.head_count_kv", u32, s.num_key_value_heads),
        ("llama.attention.key_length", u32, s.head_dim),
        ("llama.attention.value_length", u32, s.head_dim),
        ("llama.attention.layer_norm_rms_epsilon", f32, s.rms_norm_eps),
        ("llama.rope.dimension_count", u32, s.head_dim),
        ("llama.rope.freq_base", f32, s.rope_theta),
        ("tokenizer.ggml.model", string, "llama"),
        ("tokenizer.ggml.pre", string, "default"),
        ("tokenizer.ggml.tokens", files.ARRAY, string, tok.tokens),
        ("tokenizer.ggml.scores", files.ARRAY, f32, tok.scores),
        ("tokenizer.ggml.token_type", files.ARRAY, files.I32, tok.types()),
        ("tokenizer.ggml.bos_token_id", u32, BOS),
        ("tokenizer.ggml.eos_token_id", u32, EOS),
        ("tokenizer.ggml.unknown_token_id", u32, UNK),
        ("tokenizer.ggml.add_bos_token", flag, True),
        ("tokenizer.ggml.add_eos_token", flag, False),
        ("tokenizer.ggml.add_space_prefix", flag, True),
    ]


def main() -> None:
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--checkpoint", type=Path, default=HERE / "checkpoints" / "best.pt")
    ap.add_argument("--folder", type=Path, default=MODEL)
    a = ap.parse_args()
    at = torch.load(a.checkpoint, map_location="cpu")
    shape = Shape(**at["shape"])
    tok = Tokenizer.load(MODEL / "tokenizer.json")
    tensors = {name: t.numpy().astype(np.float16) for name, t in to_huggingface(at["model"], shape).items()}
    parameters = sum(t.size for t in tensors.values())
    a.folder.mkdir(parents=True, exist_ok=True)
    if a.folder != MODEL:
        tok.save(a.folder)
    files.write_safetensors(a.folder / "model.safetensors", tensors)
    files.write_gguf(a.folder / "model-q8_0.gguf", gguf_metadata(tok, shape, parameters), gguf_tensors(tensors, shape))
    generation = {"bos_token_id": BOS, "eos_token_id": EOS, "do_sample": True, "temperature": 0.8, "top_p": 0.95}
    for name, content in (("config.json", as_config(shape)), ("generation_config.json", generation)):
        files.replace_file(a.folder / name, (json.dumps(content, indent=2) + "\n").encode())
    for path in sorted(a.folder.iterdir()):
        print(f"{path.stat().st_size:9d}  {path.name}")
    print(f"step {at['step']}, dev {at['dev']:.4f} nats a token, {parameters} parameters")


if __name__ == "__main__":
    main()
