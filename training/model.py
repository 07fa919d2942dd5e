"""The Llama-family model in PyTorch: RMSNorm, rotary attention with grouped heads, SwiGLU, tied head.

Written for one CPU thread and PyTorch 1.13 (no fused attention): q/k/v and gate/up are one matrix
each while training; {to_huggingface} cuts them into the tensors of `LlamaForCausalLM`.
"""

import math
from dataclasses import asdict, dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# Queries attended to at a time. Blocks of 64 skip most of what the causal mask would throw away:
# 0.30 s instead of 0.35 s for a step of 8 x 256 tokens on one x86-64 core.
QUERY_BLOCK = 64


@dataclass
class Shape:
    vocab_size: int = 1024
    hidden_size: int = 192
    num_hidden_layers: int = 4
    num_attention_heads: int = 6
    num_key_value_heads: int = 2
    head_dim: int = 32
    intermediate_size: int = 512
    max_position_embeddings: int = 256
    rope_theta: float = 10000.0
    rms_norm_eps: float = 1e-5


def rope_table(shape: Shape, length: int) -> tuple[Tensor, Tensor]:
    """cos and sin, (length, head_dim): angle of pair j at position p is p * theta^(-2j/head_dim)."""
    inv_freq = shape.rope_theta ** (-torch.arange(0, shape.head_dim, 2, dtype=torch.float64) / shape.head_dim)
    angles = torch.arange(length, dtype=torch.float64)[:, None] * inv_freq
    angles = torch.cat([angles, angles], dim=-1)
    return angles.cos().float(), angles.sin().float()


def rotate_half(x: Tensor) -> Tensor:
    """(x0, x1) -> (-x1, x0) for the pairs (j, j + head_dim/2): HuggingFace's layout."""
    a, b = x.chunk(2, dim=-1)
    return torch.cat([-b, a], dim=-1)


class Norm(nn.Module):
    def __init__(self, size: int, eps: float):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps) * self.weight


class Block(nn.Module):
    def __init__(self, s: Shape):
        super().__init__()
        self.s = s
        self.dropout = 0.0  # of what a half-block adds to the residual stream; only while training
        self.q_size = s.num_attention_heads * s.head_dim
        self.kv_size = s.num_key_value_heads * s.head_dim
        self.attn_norm = Norm(s.hidden_size, s.rms_norm_eps)
        self.qkv = nn.Linear(s.hidden_size, self.q_size + 2 * self.kv_size, bias=False)
        self.o = nn.Linear(self.q_size, s.hidden_size, bias=False)
        self.mlp_norm = Norm(s.hidden_size, s.rms_norm_eps)
        self.gate_up = nn.Linear(s.hidden_size, 2 * s.intermediate_size, bias=False)
        self.down = nn.Linear(s.intermediate_size, s.hidden_size, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, mask: Tensor) -> Tensor:
        s = self.s
        batch, length, _ = x.shape
        kv_heads, group = s.num_key_value_heads, s.num_attention_heads // s.num_key_value_heads
        q, k, v = self.qkv(self.attn_norm(x)).split([self.q_size, self.kv_size, self.kv_size], dim=-1)
        q = q.view(batch, length, -1, s.head_dim).transpose(1, 2)  # (batch, heads, length, head_dim)
        k = k.view(batch, length, -1, s.head_dim).transpose(1, 2)
        v = v.view(batch, length, -1, s.head_dim).transpose(1, 2)
        q = (q * cos + rotate_half(q) * sin) * (1 / math.sqrt(s.head_dim))
        k = k * cos + rotate_half(k) * sin
        # Query head h reads key/value head h // group: the heads of a group stand together.
        q = q.reshape(batch * kv_heads, group, length, s.head_dim)
        k = k.reshape(batch * kv_heads, length, s.head_dim)
        v = v.reshape(batch * kv_heads, length, s.head_dim)
        parts = []
        for begin in range(0, length, QUERY_BLOCK):
            end = min(begin + QUERY_BLOCK, length)  # queries [begin, end) see keys [0, end) only
            rows = q[:, :, begin:end].reshape(batch * kv_heads, group * (end - begin), s.head_dim)
            scores = torch.bmm(rows, k[:, :end].transpose(1, 2)).view(-1, group, end - begin, end)
            scores = (scores + mask[begin:end, :end]).softmax(-1).view(-1, group * (end - begin), end)
            parts.append(torch.bmm(scores, v[:, :end]).view(batch, -1, end - begin, s.head_dim))
        out = torch.cat(parts, dim=2).transpose(1, 2)
        x = x + F.dropout(self.o(out.reshape(batch, length, self.q_size)), self.dropout, self.training)
        gate, up = self.gate_up(self.mlp_norm(x)).chunk(2, dim=-1)
        return x + F.dropout(self.down(F.silu(gate) * up), self.dropout, self.training)


class Llama(nn.Module):
    def __init__(self, s: Shape):
        super().__init__()
        self.s = s
        self.embed = nn.Embedding(s.vocab_size, s.hidden_size)
        self.blocks = nn.ModuleList(Block(s) for _ in range(s.num_hidden_layers))
        self.norm = Norm(s.hidden_size, s.rms_norm_eps)
        cos, sin = rope_table(s, s.max_position_embeddings)
        length = s.max_position_embeddings
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)
        self.register_buffer("mask", torch.full((length, length), -math.inf).triu(1), persistent=False)
        for name, p in self.named_parameters():
            if p.dim() == 2:
                # Matrices that write into the residual stream start smaller, as there are 2 a layer.
                writes = name.endswith(("o.weight", "down.weight"))
                nn.init.normal_(p, std=0.05 / (math.sqrt(2 * s.num_hidden_layers) if writes else 1))

    def forward(self, ids: Tensor) -> Tensor:
        """Logits (batch, length, vocab) of the token after each of `ids` (batch, length)."""
        length = ids.shape[1]
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x, self.cos[:length], self.sin[:length], self.mask[:length, :length])
        return F.linear(self.norm(x), self.embed.weight)

    def count(self) -> int:
        return sum(p.numel() for p in self.parameters())


def to_huggingface(state: dict[str, Tensor], s: Shape) -> dict[str, Tensor]:
    """The tensors of `LlamaForCausalLM` by name; the tied head has none of its own."""
    q, kv = s.num_attention_heads * s.head_dim, s.num_key_value_heads * s.head_dim
    out = {"model.embed_tokens.weight": state["embed.weight"]}
    for n in range(s.num_hidden_layers):
        here, there = f"blocks.{n}.", f"model.layers.{n}."
        out[there + "input_layernorm.weight"] = state[here + "attn_norm.weight"]
        wq, wk, wv = state[here + "qkv.weight"].split([q, kv, kv])
        out[there + "self_attn.q_proj.weight"] = wq
        out[there + "self_attn.k_proj.weight"] = wk
        out[there + "self_attn.v_proj.weight"] = wv
        out[there + "self_attn.o_proj.weight"] = state[here + "o.weight"]
        out[there + "post_attention_layernorm.weight"] = state[here + "mlp_norm.weight"]
        gate, up = state[here + "gate_up.weight"].chunk(2)
        out[there + "mlp.gate_proj.weight"] = gate
        out[there + "mlp.up_proj.weight"] = up
        out[there + "mlp.down_proj.weight"] = state[here + "down.weight"]
    out["model.norm.weight"] = state["norm.weight"]
    return {name: t.detach().clone().contiguous() for name, t in out.items()}


def from_huggingface(tensors: dict[str, Tensor], s: Shape) -> Llama:
    """The model with the weights that {to_huggingface} names, in float32."""
    t = {name: x.float() for name, x in tensors.items()}
    state = {"embed.weight": t["model.embed_tokens.weight"], "norm.weight": t["model.norm.weight"]}
    for n in range(s.num_hidden_layers):
        here, there = f"blocks.{n}.", f"model.layers.{n}."
        state[here + "attn_norm.weight"] = t[there + "input_layernorm.weight"]
        state[here + "qkv.weight"] = torch.cat([t[f"{there}self_attn.{p}_proj.weight"] for p in "qkv"])
        state[here + "o.weight"] = t[there + "self_attn.o_proj.weight"]
        state[here + "mlp_norm.weight"] = t[there + "post_attention_layernorm.weight"]
        state[here + "gate_up.weight"] = torch.cat([t[f"{there}mlp.{p}_proj.weight"] for p in ("gate", "up")])
        state[here + "down.weight"] = t[there + "mlp.down_proj.weight"]
    model = Llama(s)
    model.load_state_dict(state)
    return model.eval()


def as_config(s: Shape) -> dict:
    """`config.json` of the model, as `LlamaForCausalLM` reads it."""
    return {"architectures": ["LlamaForCausalLM"], "model_type": "llama", **asdict(s), "hidden_act": "silu",
            "attention_bias": False, "mlp_bias": False, "rope_scaling": None, "tie_word_embeddings": True,
            "initializer_range": 0.05, "bos_token_id": 1, "eos_token_id": 2, "use_cache": True,
            "torch_dtype": "float16"}  # fmt: skip
