#!/usr/bin/python3
"""Bits per byte on `held-back.txt`: the f32 training weights, the stored f16, and the q8_0 file.

    /usr/bin/python3 training/evaluate.py                    # writes results.json (n-gram part: ngram.py)

Two ways to cut the text, both with BOS in front of each window and every token scored once:
  - stride 128: windows of 256 predicted tokens every 128; all of the first is scored, then the last
    128 of each, so a token has 128 to 255 tokens before it (the first window's have 0 to 255);
  - no overlap: windows of 256 one after the other, all scored. This is what plain chunking gives.
Bits per byte = the sum of -log2 p over the text's tokens / the bytes of the file.
"""

import argparse
import json
import math
import sys
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

import files
from model import Llama, Shape, from_huggingface, to_huggingface
from tokenizer import BOS, Tokenizer

HERE = Path(__file__).resolve().parent
MODEL = HERE.parent / "models" / "marline"
RESULTS = HERE / "results.json"


def half_split(w: np.ndarray, heads: int) -> np.ndarray:
    """Rows of q or k from ggml's pairs (2j, 2j + 1) back to HuggingFace's (j, j + head_dim/2)."""
    rows, columns = w.shape
    return w.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)


def tensors_of_gguf(path: Path, s: Shape) -> dict[str, np.ndarray]:
    """A GGUF's dequantised weights under HuggingFace's names and in its row order."""
    _, t, _ = files.read_gguf(path)
    out = {"model.embed_tokens.weight": t["token_embd.weight"], "model.norm.weight": t["output_norm.weight"]}
    names = {"input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
             "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "post_attention_layernorm": "ffn_norm",
             "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}  # fmt: skip
    heads = {"attn_q": s.num_attention_heads, "attn_k": s.num_key_value_heads}
    for n in range(s.num_hidden_layers):
        for theirs, ggml in names.items():
            w = t[f"blk.{n}.{ggml}.weight"]
            out[f"model.layers.{n}.{theirs}.weight"] = half_split(w, heads[ggml]) if ggml in heads else w
    return out


def as_model(tensors: dict[str, np.ndarray], s: Shape) -> Llama:
    return from_huggingface({k: torch.from_numpy(np.array(v, np.float32)) for k, v in tensors.items()}, s)


@torch.no_grad()
def total_nats(model: Llama, ids: np.ndarray, stride: int, length: int = 256) -> tuple[float, int]:
    """(sum of -ln p over all of `ids`, tokens scored), in windows every `stride` tokens."""
    model.eval()
    total, scored = 0.0, 0
    for begin in range(0, len(ids), stride):
        y = ids[begin : begin + length]
        keep = 0 if begin == 0 else length - stride  # what the window before has not scored
        if len(y) <= keep:
            break
        x = np.concatenate([[BOS], y[:-1]])
        nats = F.cross_entropy(model(torch.from_numpy(x[None]))[0], torch.from_numpy(y), reduction="none")
        total += nats[keep:].double().sum().item()
        scored += len(y) - keep
    return total, scored


def main() -> None:
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--checkpoint", type=Path, default=HERE / "checkpoints" / "best.pt")
    ap.add_argument("--folder", type=Path, default=MODEL)
    ap.add_argument("--results", type=Path, default=RESULTS)
    a = ap.parse_args()
    torch.set_num_threads(1)
    at = torch.load(a.checkpoint, map_location="cpu")
    s = Shape(**at["shape"])
    tok = Tokenizer.load(a.folder / "tokenizer.json")
    text = (HERE / "held-back.txt").read_bytes()
    ids = np.array(tok.encode(text.decode("utf-8")), np.int64)
    weights = {
        "f32 training weights": {k: v.numpy() for k, v in to_huggingface(at["model"], s).items()},
        "model.safetensors (f16)": files.read_safetensors(a.folder / "model.safetensors"),
        "model-q8_0.gguf (dequantised to f32)": tensors_of_gguf(a.folder / "model-q8_0.gguf", s),
    }
    for name, w in weights["f32 training weights"].items():
        if not np.array_equal(w.astype(np.float16), weights["model.safetensors (f16)"][name]):
            sys.exit(f"evaluate: {name}: the files are not of this checkpoint; run export.py first")
    results = json.loads(a.results.read_text()) if a.results.exists() else {}
    results["held_back"] = {"file": "held-back.txt", "bytes": len(text), "tokens": len(ids)}
    results["checkpoint"] = {"step": at["step"], "seconds": round(at["seconds"]), "dev_nats_per_token": round(at["dev"], 4)}
    results["model"] = {}
    for name, tensors in weights.items():
        model = as_model(tensors, s)
        row = {}
        for label, stride in (("stride_128", 128), ("no_overlap", 256)):
            nats, scored = total_nats(model, ids, stride)
            assert scored == len(ids), f"{scored} of {len(ids)} tokens scored"
            row[label] = {"bits_per_byte": round(nats / math.log(2) / len(text), 5),
                          "nats_per_token": round(nats / len(ids), 5),
                          "perplexity_per_token": round(math.exp(nats / len(ids)), 4)}  # fmt: skip
            print(f"{name:38s} {label:11s} {row[label]}", flush=True)
        results["model"][name] = row
    files.replace_file(a.results, (json.dumps(results, indent=2) + "\n").encode())


if __name__ == "__main__":
    main()
