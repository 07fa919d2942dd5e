#!/usr/bin/python3
"""Reads the model's two files with numpy alone and checks that both hold the same model.

    /usr/bin/python3 training/check_files.py

A second forward pass, sharing no code with model.py (PyTorch): float64, one token at a time, a
key/value cache, the safetensors rotated in pairs (j, j + 16) and the GGUF in pairs (2j, 2j + 1),
each in its own row order. Checks that
  - the GGUF's vocabulary is tokenizer.json's, and both segmentations agree on a text;
  - logits of the two files differ by no more than q8_0's rounding explains: the GGUF's dequantised
    weights are within half a step of the f16 ones, and the logits within `TOLERANCE` of each other;
  - float64 logits of the f16 weights agree with PyTorch's float32 (expected.json, if it exists);
and prints the greedy text of both.
"""

import argparse
import json
import sys
from pathlib import Path

import numpy as np

import files
from tokenizer import BOS, Tokenizer

HERE = Path(__file__).resolve().parent
MODEL = HERE.parent / "models" / "marline"
TOLERANCE = 0.35  # largest difference of a logit between f16 and q8_0 weights


class Forward:
    """One model's weights, its rotary pairing, and a cache that grows by one token a call."""

    def __init__(self, weights: dict[str, np.ndarray], names: dict[str, str], config: dict, interleaved: bool):
        self.w = {k: v.astype(np.float64) for k, v in weights.items()}
        self.names, self.interleaved = names, interleaved
        self.layers = config["num_hidden_layers"]
        self.heads, self.kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
        self.head_dim, self.eps = config["head_dim"], config["rms_norm_eps"]
        j = np.arange(self.head_dim // 2)
        self.inv_freq = config["rope_theta"] ** (-2.0 * j / self.head_dim)
        self.reset()

    def reset(self) -> None:
        self.k: list[list[np.ndarray]] = [[] for _ in range(self.layers)]
        self.v: list[list[np.ndarray]] = [[] for _ in range(self.layers)]

    def get(self, what: str, layer: int | None = None) -> np.ndarray:
        return self.w[self.names[what].format(layer)]

    def norm(self, x: np.ndarray, w: np.ndarray) -> np.ndarray:
        return x / np.sqrt(np.mean(x * x) + self.eps) * w

    def rotate(self, x: np.ndarray, position: int) -> np.ndarray:
        """`x` (heads, head_dim), rotated by position * inv_freq in each pair."""
        c, s = np.cos(position * self.inv_freq), np.sin(position * self.inv_freq)
        half = self.head_dim // 2
        first, second = (slice(0, None, 2), slice(1, None, 2)) if self.interleaved else (slice(0, half), slice(half, None))
        y = np.empty_like(x)
        y[:, first] = x[:, first] * c - x[:, second] * s
        y[:, second] = x[:, first] * s + x[:, second] * c
        return y

    def step(self, token: int) -> np.ndarray:
        """Logits (vocab) after one more token."""
        position = len(self.k[0])
        x = self.get("embed")[token]
        for n in range(self.layers):
            h = self.norm(x, self.get("attn_norm", n))
            q = self.rotate((self.get("q", n) @ h).reshape(self.heads, -1), position)
            self.k[n].append(self.rotate((self.get("k", n) @ h).reshape(self.kv_heads, -1), position))
            self.v[n].append((self.get("v", n) @ h).reshape(self.kv_heads, -1))
            keys, values = np.stack(self.k[n]), np.stack(self.v[n])  # (tokens, kv_heads, head_dim)
            out = np.empty_like(q)
            for head in range(self.heads):
                kv = head // (self.heads // self.kv_heads)
                score = keys[:, kv] @ q[head] / np.sqrt(self.head_dim)
                p = np.exp(score - score.max())
                out[head] = p @ values[:, kv] / p.sum()
            x = x + self.get("o", n) @ out.ravel()
            h = self.norm(x, self.get("mlp_norm", n))
            gate = self.get("gate", n) @ h
            x = x + self.get("down", n) @ (gate / (1 + np.exp(-gate)) * (self.get("up", n) @ h))
        return self.get("embed") @ self.norm(x, self.get("norm"))

    def logits(self, ids: list[int]) -> np.ndarray:
        self.reset()
        return np.stack([self.step(i) for i in ids])

    def greedy(self, ids: list[int], count: int) -> list[int]:
        self.reset()
        for i in ids:
            logits = self.step(i)
        out = []
        for _ in range(count):
            out.append(int(logits.argmax()))
            logits = self.step(out[-1])
        return out


HF_NAMES = {"embed": "model.embed_tokens.weight", "norm": "model.norm.weight",
            "attn_norm": "model.layers.{}.input_layernorm.weight", "q": "model.layers.{}.self_attn.q_proj.weight",
            "k": "model.layers.{}.self_attn.k_proj.weight", "v": "model.layers.{}.self_attn.v_proj.weight",
            "o": "model.layers.{}.self_attn.o_proj.weight", "mlp_norm": "model.layers.{}.post_attention_layernorm.weight",
            "gate": "model.layers.{}.mlp.gate_proj.weight", "up": "model.layers.{}.mlp.up_proj.weight",
            "down": "model.layers.{}.mlp.down_proj.weight"}  # fmt: skip
GGUF_NAMES = {"embed": "token_embd.weight", "norm": "output_norm.weight", "attn_norm": "blk.{}.attn_norm.weight",
              "q": "blk.{}.attn_q.weight", "k": "blk.{}.attn_k.weight", "v": "blk.{}.attn_v.weight",
              "o": "blk.{}.attn_output.weight", "mlp_norm": "blk.{}.ffn_norm.weight", "gate": "blk.{}.ffn_gate.weight",
              "up": "blk.{}.ffn_up.weight", "down": "blk.{}.ffn_down.weight"}  # fmt: skip


def from_safetensors(folder: Path) -> Forward:
    config = json.loads((folder / "config.json").read_text())
    return Forward(files.read_safetensors(folder / "model.safetensors"), HF_NAMES, config, interleaved=False)


def from_gguf(folder: Path) -> Forward:
    """Everything from the GGUF alone: shapes and constants from its metadata."""
    meta, tensors, _ = files.read_gguf(folder / "model-q8_0.gguf")
    config = {"num_hidden_layers": meta["llama.block_count"], "num_attention_heads": meta["llama.attention.head_count"],
              "num_key_value_heads": meta["llama.attention.head_count_kv"], "head_dim": meta["llama.rope.dimension_count"],
              "rms_norm_eps": meta["llama.attention.layer_norm_rms_epsilon"], "rope_theta": meta["llama.rope.freq_base"]}  # fmt: skip
    return Forward(tensors, GGUF_NAMES, config, interleaved=True)


def main() -> None:
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--folder", type=Path, default=MODEL)
    ap.add_argument("--prompt", default="Call me Ishmael.")
    a = ap.parse_args()
    failures = []

    def check(ok: bool, what: str) -> None:
        print(f"{'ok  ' if ok else 'FAIL'}  {what}")
        if not ok:
            failures.append(what)

    tok = Tokenizer.load(a.folder / "tokenizer.json")
    meta, _, _ = files.read_gguf(a.folder / "model-q8_0.gguf")
    check(meta["tokenizer.ggml.tokens"] == tok.tokens and len(tok) == meta["llama.vocab_size"], "one vocabulary in both")
    by_score = Tokenizer(meta["tokenizer.ggml.tokens"], meta["tokenizer.ggml.scores"], [])
    text = (HERE / "held-back.txt").read_text("utf-8")
    check(by_score.encode_by_score(text) == tok.encode_by_rank(text), "held-back text: the same ids by rank and by score")

    half, inter = from_safetensors(a.folder), from_gguf(a.folder)
    for hf, gguf in zip(HF_NAMES.values(), GGUF_NAMES.values()):
        for n in range(half.layers) if "{}" in hf else [None]:
            w, q = half.w[hf.format(n)], inter.w[gguf.format(n)]
            if ".q_proj" in hf or ".k_proj" in hf:
                heads = half.heads if ".q_proj" in hf else half.kv_heads
                w = np.stack([w[h * half.head_dim + j + part * half.head_dim // 2]
                              for h in range(heads) for j in range(half.head_dim // 2) for part in (0, 1)])  # fmt: skip
            # Half a step of rounding, and f16's own error of the scale (2^-11 of up to 127 steps).
            blocks = np.abs(w).reshape(-1, 32).max(axis=1) if w.ndim == 2 else np.zeros(1)
            limit = blocks / 127 * (0.5 + 127 * 2.0**-11) + 1e-6 * (w.ndim == 2)
            worst = np.abs(w - q).reshape(len(blocks), -1).max(axis=1)
            if not np.all(worst <= limit):
                check(False, f"{gguf.format(n)}: {np.max(worst - limit)} past half a step of q8_0")
    check(not failures, "every weight of the GGUF within half a step of its f16")

    ids = [BOS, *tok.encode(text)[:127]]
    f16, q8 = half.logits(ids), inter.logits(ids)
    worst = np.abs(f16 - q8).max()
    agree = np.mean(f16.argmax(1) == q8.argmax(1))
    check(worst <= TOLERANCE, f"logits of {len(ids)} tokens: f16 and q8_0 differ by at most {worst:.4f} "
          f"(of a spread of {f16.std():.2f}); the same best token at {agree:.1%}")  # fmt: skip

    expected = HERE / "expected.json"
    if expected.exists() and a.folder == MODEL:
        for case in json.loads(expected.read_text("utf-8"))["cases"]:
            for kind, model in (("f16", half), ("q8_0", inter)):
                want = case[kind]
                got = model.greedy(case["ids"], len(want["ids"]))
                same = next((i for i, (x, y) in enumerate(zip(got, want["ids"])) if x != y), len(got))
                ok = same == len(got) or want["margins"][same] < 1e-3
                check(ok, f"{kind} {case['prompt']!r}: {same} of {len(got)} tokens as PyTorch in float32")

    prompt = [BOS, *tok.encode(a.prompt)]
    for name, model in (("f16", half), ("q8_0", inter)):
        print(f"{name}: {a.prompt}{b''.join(tok.bytes_of(i) for i in model.greedy(prompt, 60)).decode(errors='replace')}\n")
    if failures:
        sys.exit(f"check_files: {len(failures)} checks failed")


if __name__ == "__main__":
    main()
