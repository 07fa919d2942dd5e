"""Draws faults of a runtime, patches them into small random models of transformers, and writes both sides by the hook.

Usage: strangers.py FOLDER SEED FAULTS RIGHT HOOK. HOOK is what `ropewalk harness trace-transformers` writes. Each case is a folder
with a (the model as it is), b (the one with the fault) and truth.json. The author had not read the code of trace.
"""
import json
import os
import random
import re
import sys
import types

import torch
import transformers as tf
from safetensors.torch import load_file, save_file
from torch.nn import functional as F

OUT, SEED, FAULTY, RIGHT, HOOK = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), sys.argv[5]
hook = types.ModuleType("hook")
exec(compile(open(HOOK).read(), HOOK, "exec"), hook.__dict__)

BASE = dict(
    vocab_size=300, hidden_size=64, intermediate_size=96, num_attention_heads=4, num_key_value_heads=2, head_dim=16,
    max_position_embeddings=512, pad_token_id=0, bos_token_id=1, eos_token_id=2, tie_word_embeddings=False,
)
LLAMA3 = dict(rope_type="llama3", rope_theta=500000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=64)
YARN = dict(rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=64)
GEMMA = dict(sliding_window=20, query_pre_attn_scalar=24)
GRANITE = dict(residual_multiplier=0.22, embedding_multiplier=12.0, logits_scaling=8.0, attention_multiplier=0.1)
FAMILIES = {
    "llama": (tf.LlamaConfig, dict(rope_parameters=LLAMA3)),
    "llama-yarn": (tf.LlamaConfig, dict(rope_parameters=YARN)),
    "qwen2": (tf.Qwen2Config, dict(rope_parameters=dict(rope_type="default", rope_theta=1e6))),
    "qwen3": (tf.Qwen3Config, {}),
    "mistral": (tf.MistralConfig, dict(sliding_window=20)),
    "gemma2": (tf.Gemma2Config, dict(GEMMA, attn_logit_softcapping=20.0)),
    "gemma3": (tf.Gemma3TextConfig, GEMMA),
    "phi3": (tf.Phi3Config, dict(rope_parameters=dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.5))),
    "olmo2": (tf.Olmo2Config, {}),
    "granite": (tf.GraniteConfig, GRANITE),
    "cohere": (tf.CohereConfig, {}),
}
PLAIN = ["llama", "qwen2", "qwen3", "mistral"]  # x + attn(norm(x)), then x + mlp(norm(x))
HALF = PLAIN + ["gemma2", "olmo2", "granite"]  # one table of halves over the whole head
POST = ["gemma2", "gemma3", "olmo2"]
QK = ["qwen3", "gemma3", "olmo2"]


class Case:
    """One model, and what is changed in it."""

    def __init__(self, rng, family, dtype):
        self.rng, self.family = rng, family
        config, more = FAMILIES[family]
        self.config = config(**{**BASE, **more, "num_hidden_layers": rng.randint(4, 6)})
        torch.manual_seed(rng.randrange(2**31))
        self.model = tf.AutoModelForCausalLM.from_config(self.config, attn_implementation="eager").eval()
        for weight in self.model.parameters():
            weight.data = weight.data + 0.2 * torch.randn_like(weight) if weight.dim() == 1 else 4 * weight.data
        self.cast(dtype)
        self.layers = self.model.model.layers
        self.at = rng.randrange(len(self.layers))  # the layer with the fault; `where` are all layers with it
        self.where = [self.at]
        self.file = sys.modules[type(self.model).__module__]
        self.kept = {name: getattr(self.file, name) for name in ("apply_rotary_pos_emb", "eager_attention_forward", "repeat_kv")}
        self.now = 0
        for n, layer in enumerate(self.layers):
            layer.self_attn.register_forward_pre_hook(lambda *_, n=n: setattr(self, "now", n))
        self.ids = torch.tensor([[rng.randrange(3, 300) for _ in range(rng.randint(40, 72))]])
        self.calls = [dict(input_ids=self.ids)]

    def cast(self, dtype):
        """Frequencies stay in f32, as in a model that is loaded in 16 bits."""
        kept = {name: buffer.clone() for name, buffer in self.model.named_buffers() if "inv_freq" in name}
        self.model.to(dtype)
        for name, buffer in kept.items():
            setattr(self.model.get_submodule(name.rpartition(".")[0]), name.rpartition(".")[2], buffer)

    @property
    def layer(self):
        return self.layers[self.at]

    def everywhere(self):
        """The fault is in all layers: the first one shows it."""
        self.at, self.where = 0, range(len(self.layers))

    def maybe_everywhere(self):
        if self.rng.random() < 0.5:
            self.everywhere()

    def restore(self):
        for name, value in self.kept.items():
            setattr(self.file, name, value)

    def rope(self, change):
        """`change(q, k, cos, sin, rotate)` takes the place of RoPE in the layers of the fault."""
        whole = self.kept["apply_rotary_pos_emb"]

        def rotated(q, k, cos, sin, *more, **kw):
            rotate = lambda q, k, cos=cos, sin=sin: whole(q, k, cos, sin)
            return change(q, k, cos, sin, rotate) if self.now in self.where else rotate(q, k)

        self.file.apply_rotary_pos_emb = rotated

    def attention(self, change):
        """`change(a)` edits q, k, v, mask and the named arguments of attention in the layers of the fault."""
        whole = self.kept["eager_attention_forward"]

        def attend(module, q, k, v, mask, **kw):
            a = types.SimpleNamespace(module=module, q=q, k=k, v=v, mask=mask, kw=kw)
            if module.layer_idx in self.where:
                change(a)
            return whole(module, a.q, a.k, a.v, a.mask, **a.kw)

        self.file.eager_attention_forward = attend

    def run(self, folder):
        tracer = hook.trace(self.model, folder)
        cache, out = tf.DynamicCache(config=self.config), None
        with torch.no_grad():
            for call in self.calls:
                out = self.model(**call, past_key_values=cache, use_cache=True)
        self.restore()
        return out.logits


def tables(positions, inv, cos):
    angle = positions.to(torch.float32)[..., None] * inv
    return tuple(f(torch.cat((angle, angle), -1)).to(cos.dtype) for f in (torch.cos, torch.sin))


def inverse(case, base, dim=16):
    return 1 / base ** (torch.arange(0, dim, 2).float() / dim)


def every_other(x):
    return torch.stack((-x[..., 1::2], x[..., 0::2]), -1).flatten(-2)


def own(case, f):
    """RoPE with a table of the fault's own: f(positions) gives the positions and inverse frequencies."""
    def change(q, k, cos, sin, rotate):
        p = torch.arange(cos.shape[1])[None]
        return rotate(q, k, *tables(*f(p), cos))

    case.rope(change)


BASES = dict(llama=500000, qwen2=1e6, qwen3=10000.0, mistral=10000.0, gemma2=10000.0, olmo2=10000.0, granite=10000.0)
FAULTS, LOUD = {}, set()


def fault(families=None, loud=False):
    """`loud`: it shows beside the roundings of bf16 too."""

    def add(f):
        FAULTS[f.__name__] = (families or list(FAMILIES), f)
        if loud:
            LOUD.add(f.__name__)

    return add


ROPE, ATTN, Q, K = ["q_rope", "k_rope"], ["heads", "attn"], ["q_rope"], ["k_rope"]


# RoPE
@fault(HALF, loud=True)
def rope_interleaved(c):
    c.maybe_everywhere()

    def change(q, k, cos, sin, rotate):
        cos, sin = (torch.repeat_interleave(t[..., : t.shape[-1] // 2], 2, -1)[:, None] for t in (cos, sin))
        return q * cos + every_other(q) * sin, k * cos + every_other(k) * sin

    c.rope(change)
    return ROPE, r"interleaved|pairs \(2j", "pairs (2j, 2j+1) instead of halves"


@fault(["cohere"], loud=True)
def rope_half(c):
    def change(q, k, cos, sin, rotate):
        cos, sin = (torch.cat((t[..., ::2], t[..., ::2]), -1)[:, None] for t in (cos, sin))
        turn = lambda x: x * cos + torch.cat((-x[..., 8:], x[..., :8]), -1) * sin
        return turn(q), turn(k)

    c.everywhere()
    c.rope(change)
    return ROPE, r"instead of \(2j", "halves instead of pairs (2j, 2j+1)"


@fault(["qwen2"], loud=True)
def rope_base(c):
    c.maybe_everywhere()
    base = c.rng.choice([10000.0, 500000.0])
    own(c, lambda p: (p, inverse(c, base)))
    return ROPE, "base", f"base {base} instead of 1e6"


@fault(["llama"], loud=True)
def rope_scaling_lost(c):
    c.maybe_everywhere()
    own(c, lambda p: (p, inverse(c, 500000.0)))
    return ROPE, "llama3|scaling|frequencies of pairs", "no llama3 scaling"


@fault(["llama"], loud=True)
def rope_linear_for_llama3(c):
    c.everywhere()
    own(c, lambda p: (p, inverse(c, 500000.0) / 8))
    return ROPE, "linear|llama3|scaling", "linear scaling by 8 for llama3"


@fault(["llama-yarn"])
def rope_magnitude_lost(c):
    c.everywhere()
    c.rope(lambda q, k, cos, sin, rotate: tuple(t / 1.138629436 for t in rotate(q, k)))
    return ROPE, "magnitude", "YaRN's magnitude is missing"


@fault(["llama-yarn"], loud=True)
def rope_yarn_lost(c):
    c.everywhere()
    own(c, lambda p: (p, inverse(c, 10000.0)))
    return ROPE, "yarn|scaling|frequencies of pairs", "YaRN is missing, frequencies and magnitude"


@fault(["phi3"], loud=True)
def rope_whole_head(c):
    c.maybe_everywhere()
    own(c, lambda p: (p, inverse(c, 10000.0)))
    return ROPE, "whole|partial|rotary", "16 dimensions rotate, not 8"


@fault(HALF, loud=True)
def rope_partial(c):
    c.maybe_everywhere()

    def change(q, k, cos, sin, rotate):
        a, b = rotate(q[..., :8], k[..., :8], *tables(torch.arange(cos.shape[1])[None], inverse(c, BASES[c.family], 8), cos))
        return torch.cat((a, q[..., 8:]), -1), torch.cat((b, k[..., 8:]), -1)

    c.rope(change)
    return ROPE, "partial|rotary_dim|4 apart", "only 8 of 16 dimensions rotate"


@fault(loud=True)
def rope_backward(c):
    c.maybe_everywhere()
    c.rope(lambda q, k, cos, sin, rotate: rotate(q, k, cos, -sin))
    return ROPE, "direction|backward|sign|inverse", "rotated by minus the angle"


@fault(loud=True)
def rope_sin_for_cos(c):
    c.rope(lambda q, k, cos, sin, rotate: rotate(q, k, sin, cos))
    return ROPE, "swapped|cos|sin", "cos and sin exchanged"


@fault(loud=True)
def rope_missing_q(c):
    c.rope(lambda q, k, cos, sin, rotate: (q, rotate(q, k)[1]))
    return Q, "does not rotate", "q is not rotated"


@fault(loud=True)
def rope_twice_k(c):
    c.maybe_everywhere()
    c.rope(lambda q, k, cos, sin, rotate: (rotate(q, k)[0], rotate(q, rotate(q, k)[1])[1]))
    return K, "twice|2 times|position × 2|double", "k is rotated twice"


@fault(HALF, loud=True)
def rope_plus_one_q(c):
    c.maybe_everywhere()
    inv = c.model.model.rotary_emb.inv_freq

    def change(q, k, cos, sin, rotate):
        return rotate(q, k, *tables(torch.arange(cos.shape[1])[None] + 1, inv, cos))[0], rotate(q, k)[1]

    c.rope(change)
    return Q, r"from 1|\+ 1", "q is rotated by its position + 1, k is right"


@fault(HALF, loud=True)
def rope_restart(c):
    at = c.rng.randint(12, 30)
    own(c, lambda p: (torch.where(p < at, p, p - at), c.model.model.rotary_emb.inv_freq))
    return ROPE, r"restart|token %d before it|position − %d" % (at, at), f"positions start at 0 again from token {at} on"


@fault(["gemma3"], loud=True)
def rope_base_of_other_layers(c):
    kinds = c.config.layer_types
    c.at = c.rng.choice([n for n, kind in enumerate(kinds) if kind == "sliding_attention"])
    c.where = [c.at]
    own(c, lambda p: (p, inverse(c, 1e6)))
    return ROPE, "base|other layers", "base 1e6 of full layers in a sliding one"


@fault(HALF)
def rope_table_in_bf16(c):
    c.everywhere()
    c.rope(lambda q, k, cos, sin, rotate: rotate(q, k, *(t.bfloat16().to(t.dtype) for t in (cos, sin))))
    return ROPE, "bf16", "cos and sin in bf16"


@fault(["qwen3", "gemma3"], loud=True)
def rope_before_norm(c):
    """The norm of heads gets what is rotated already, so that the hook sees it in the output of the norm."""
    attn, turned = c.layer.self_attn, {}
    inv = getattr(c.model.model.rotary_emb, "inv_freq", None)
    if inv is None:
        inv = getattr(c.model.model.rotary_emb, f"{c.config.layer_types[c.at]}_inv_freq")
    for norm in (attn.q_norm, attn.k_norm):
        def normed(x, whole=norm.forward):
            heads_first = x.shape[1] <= 4  # gemma3 norms behind the transposition
            y = x if heads_first else x.transpose(1, 2)
            y = c.kept["apply_rotary_pos_emb"](y, y, *tables(torch.arange(y.shape[2])[None], inv, y))[0]
            return whole(y if heads_first else y.transpose(1, 2))
        norm.forward = normed
    c.rope(lambda q, k, cos, sin, rotate: (q, k))
    return ["q_norm"], "before the norm|rotated", "rotated before the norm of heads"


# Positions as the runtime passes them
@fault(loud=True)
def positions_minus_one(c):
    at = c.rng.randint(8, 30)
    c.everywhere()
    p = torch.arange(c.ids.shape[1])[None]
    c.calls[0]["position_ids"] = torch.where(p < at, p, p - 1)
    return ROPE + ["positions"], "position", f"one position too little from token {at} on"


@fault(loud=True)
def decode_at_zero(c):
    c.everywhere()
    n = c.ids.shape[1] - 8
    c.calls = [dict(input_ids=c.ids[:, :n], position_ids=torch.arange(n)[None]),
               dict(input_ids=c.ids[:, n:], position_ids=torch.zeros(1, 8, dtype=torch.long))]
    c.twin = [c.calls[0], dict(input_ids=c.ids[:, n:], position_ids=torch.arange(n, n + 8)[None])]
    return ROPE + ["positions"], "position", "the second call has position 0 for all tokens"


@fault(loud=True)
def chunk_restarts(c):
    c.everywhere()
    n = c.ids.shape[1] // 2
    p = torch.arange(c.ids.shape[1])[None]
    c.calls = [dict(input_ids=c.ids[:, :n], position_ids=p[:, :n]), dict(input_ids=c.ids[:, n:], position_ids=p[:, n:] - n)]
    c.twin = [c.calls[0], dict(input_ids=c.ids[:, n:], position_ids=p[:, n:])]
    return ROPE + ["positions"], "position", "the second chunk starts at position 0 again"


# Norms
def pick_norm(c):
    """A norm of the layer, and the step that it gives."""
    post = c.family in POST
    names = {"post_attention_layernorm": "attn_post" if post else "mlp_norm"}
    if c.family != "olmo2":
        names["input_layernorm"] = "attn_norm"
    if c.family == "cohere":
        names = {"input_layernorm": "attn_norm"}
    if post:
        names["post_feedforward_layernorm"] = "mlp_post"
    if c.family in ("gemma2", "gemma3"):
        names["pre_feedforward_layernorm"] = "mlp_norm"
    name = c.rng.choice(sorted(names))
    return getattr(c.layer, name), [names[name]]


@fault(loud=True)
def norm_missing(c):
    norm, step = pick_norm(c)
    norm.forward = lambda x: x
    return step, "norm did not run", "a norm is missing"


@fault(loud=True)
def norm_doubled(c):
    norm, step = pick_norm(c)
    whole = norm.forward
    norm.forward = lambda x: whole(whole(x))
    return step, "doubled|twice", "a norm is applied twice"


@fault()
def norm_eps(c):
    norm, step = pick_norm(c)
    name = "eps" if hasattr(norm, "eps") else "variance_epsilon"
    eps = c.rng.choice([1e-2, 1e-3, 3e-4])
    setattr(norm, name, eps)
    return step, "eps", f"epsilon {eps}"


@fault(["gemma2", "gemma3"], loud=True)
def norm_without_one(c):
    norm, step = pick_norm(c)
    norm.weight.data -= 1
    return step, "1 \\+|\\+ 1|plus 1|− 1|weight", "weight w instead of 1 + w"


@fault(["llama", "qwen2", "qwen3", "olmo2"], loud=True)
def norm_plus_one(c):
    norm, step = pick_norm(c)
    norm.weight.data += 1
    return step, "1 \\+|\\+ 1|plus 1|weight", "weight 1 + w instead of w"


@fault(["llama", "qwen2", "mistral", "granite"], loud=True)
def norm_of_next_layer(c):
    norm, step = pick_norm(c)
    name = next(n for n, m in c.layer.named_modules() if m is norm)
    other = (c.at + 1) % len(c.layers)
    norm.weight = getattr(c.layers[other], name).weight
    return step, "weight|layer", f"the weight of the norm of layer {other}"


@fault(["llama", "qwen2", "mistral"], loud=True)
def layer_norm_for_rms(c):
    norm, step = pick_norm(c)
    norm.forward = lambda x: F.layer_norm(x, x.shape[-1:], norm.weight, None, 1e-6)
    return step, "mean|layer ?norm|subtract", "LayerNorm instead of RMSNorm: the mean is subtracted"


@fault(QK, loud=True)
def k_norm_missing(c):
    c.layer.self_attn.k_norm.forward = lambda x: x
    return ["k_norm", "k_rope"], "norm", "the norm of k is missing"


@fault(loud=True)
def final_norm_missing(c):
    c.model.model.norm.forward = lambda x: x
    c.at = None
    return ["norm"], "norm did not run", "the final norm is missing"


# Attention
@fault(loud=True)
def scale_wrong(c):
    factor = c.rng.choice([4.0, 0.25, 2.0])
    c.attention(lambda a: a.kw.update(scaling=a.kw["scaling"] * factor))
    return ATTN, "scores are multiplied", f"attention scale times {factor}"


@fault(["gemma2"])
def softcap_lost(c):
    c.everywhere()
    c.attention(lambda a: a.kw.update(softcap=None))
    return ATTN, "cap", "the soft cap of attention is missing"


@fault(["gemma2"], loud=True)
def final_cap_lost(c):
    c.config.final_logit_softcapping = None
    c.model.config.final_logit_softcapping = None
    c.at = None
    return ["logits"], "cap", "the soft cap of the logits is missing"


@fault(loud=True)
def not_causal(c):
    c.attention(lambda a: setattr(a, "mask", None))
    return ATTN, "later tokens", "no mask: queries see what follows"


def window(a, size):
    t = torch.arange(a.q.shape[2])
    seen = (t[None] <= t[:, None]) & (t[None] > t[:, None] - size)
    a.mask = torch.where(seen, 0.0, torch.finfo(a.q.dtype).min).to(a.q.dtype)[None, None]


@fault(["mistral", "gemma2", "gemma3"])
def window_lost(c):
    kinds = getattr(c.config, "layer_types", None)
    if kinds:
        c.at = c.rng.choice([n for n, kind in enumerate(kinds) if kind == "sliding_attention"])
        c.where = [c.at]
    c.attention(lambda a: window(a, 10**6))
    return ATTN, "window", "the window is ignored"


@fault(["mistral", "gemma2", "gemma3"])
def window_off_by_one(c):
    kinds = getattr(c.config, "layer_types", None)
    if kinds:
        c.at = c.rng.choice([n for n, kind in enumerate(kinds) if kind == "sliding_attention"])
        c.where = [c.at]
    size = c.rng.choice([19, 21])
    c.attention(lambda a: window(a, size))
    return ATTN, "window", f"a window of {size} keys instead of 20"


@fault(["llama", "qwen2", "qwen3", "olmo2"])
def window_added(c):
    size = c.rng.choice([8, 16, 20])
    c.attention(lambda a: window(a, size))
    return ATTN, "window", f"a window of {size} keys where there is none"


@fault(loud=True)
def gqa_tiled(c):
    def change(a):
        a.k, a.v = (t.repeat(1, 2, 1, 1) for t in (a.k, a.v))
        a.module.num_key_value_groups = 1

    c.everywhere()
    c.attention(change)
    return ATTN, "head", "key heads 0 1 0 1 instead of 0 0 1 1"


@fault(loud=True)
def heads_swapped(c):
    c.attention(lambda a: setattr(a, "v", a.v.flip(1)))
    return ATTN, "head", "the two heads of v are exchanged"


@fault([family for family in FAMILIES if family not in ("mistral", "gemma2", "gemma3")], loud=True)
def stale_cache(c):
    """The second call reads keys and values of the first one from a row that was not written."""
    n = c.ids.shape[1] - 6
    slot = c.rng.randint(1, n - 2)
    p = torch.arange(c.ids.shape[1])[None]
    c.calls = [dict(input_ids=c.ids[:, :n], position_ids=p[:, :n]), dict(input_ids=c.ids[:, n:], position_ids=p[:, n:])]
    c.twin = c.calls

    def change(a):
        if a.q.shape[2] == 6:
            a.k, a.v = a.k.clone(), a.v.clone()
            a.k[:, :, slot], a.v[:, :, slot] = a.k[:, :, slot - 1], a.v[:, :, slot - 1]

    c.attention(change)
    return ATTN, "cache gives", f"the cache's row {slot} holds that of token {slot - 1}"


# Weights
@fault(["qwen2"], loud=True)
def bias_lost(c):
    name = c.rng.choice("qkv")
    getattr(c.layer.self_attn, f"{name}_proj").bias = None
    return [name], "bias", f"the bias of {name} is missing"


def pick_matrix(c, names=("o_proj", "down_proj", "v_proj")):
    name = c.rng.choice([n for n in names if any(m.endswith(n) for m, _ in c.layer.named_modules())])
    module = next(m for n, m in c.layer.named_modules() if n.endswith(name))
    return name, module, {"o_proj": ["attn"], "down_proj": ["mlp"], "v_proj": ["v", "qkv"]}[name]


@fault(loud=True)
def weights_of_next_layer(c):
    name, module, step = pick_matrix(c)
    other = (c.at + 1) % len(c.layers)
    module.weight = next(m for n, m in c.layers[other].named_modules() if n.endswith(name)).weight
    return step, "layer|other weights", f"{name} of layer {other}"


def quantized(w, bits):
    blocks = w.float().reshape(-1, 32)
    scale = blocks.abs().amax(1, keepdim=True) / (2 ** (bits - 1) - 1)
    return (torch.round(blocks / scale) * scale).reshape(w.shape).to(w.dtype)


@fault()
def matrix_quantized(c):
    c.at = c.rng.randrange(1, len(c.layers))
    name, module, step = pick_matrix(c)
    bits = c.rng.choice([4, 8])
    module.weight.data = quantized(module.weight.data, bits)
    return step, "rounded weights", f"{name} in {bits} bits, only there"


@fault(loud=True)
def square_transposed(c):
    module = c.layer.self_attn.o_proj
    module.weight.data = module.weight.data.T.contiguous()
    return ["attn"], "transposed|other weights", "the output matrix is transposed"


@fault(loud=True)
def rows_not_loaded(c):
    name, module, step = pick_matrix(c)
    rows = c.rng.randint(4, 16)
    module.weight.data[-rows:] = 0
    return step, "are 0", f"the last {rows} rows of {name} are zero"


@fault(["llama", "qwen2", "mistral", "qwen3"], loud=True)
def gate_and_up_swapped(c):
    mlp = c.layer.mlp
    mlp.gate_proj.weight, mlp.up_proj.weight = mlp.up_proj.weight, mlp.gate_proj.weight
    return ["mlp", "gate", "up"], "gate|up", "gate and up are exchanged"


@fault(["llama", "qwen2", "gemma2", "gemma3"])
def another_activation(c):
    c.layer.mlp.act_fn = torch.nn.GELU() if c.family.startswith("gemma") else torch.nn.ReLU()
    return ["act", "mlp"], "activation|gelu|relu|silu", "another activation"


# The residual stream
def layer_of(c, attn=lambda x, y, n: x + y, mlp=lambda x, y, n: x + y):
    layer = c.layer

    def forward(hidden_states, **kw):
        normed = layer.input_layernorm(hidden_states)
        x = attn(hidden_states, layer.self_attn(hidden_states=normed, **kw)[0], normed)
        normed = layer.post_attention_layernorm(x)
        return mlp(x, layer.mlp(normed), normed)

    layer.forward = forward


MID = ["mid", "mlp_norm"]


@fault(PLAIN, loud=True)
def residual_after_norm(c):
    if c.rng.random() < 0.5:
        layer_of(c, attn=lambda x, y, n: n + y)
        return MID, "residual|norm", "attention is added to the normed stream"
    layer_of(c, mlp=lambda x, y, n: n + y)
    return ["out"], "residual|norm", "the feed-forward block is added to the normed stream"


@fault(PLAIN, loud=True)
def residual_missing(c):
    if c.rng.random() < 0.5:
        layer_of(c, attn=lambda x, y, n: y)
        return MID, "residual", "no residual stream beside attention"
    layer_of(c, mlp=lambda x, y, n: y)
    return ["out"], "residual", "no residual stream beside the feed-forward block"


@fault(PLAIN, loud=True)
def residual_twice(c):
    layer_of(c, mlp=lambda x, y, n: 2 * x + y)
    return ["out"], "residual|twice", "the residual stream is added twice"


@fault(PLAIN, loud=True)
def branch_doubled(c):
    layer_of(c, attn=lambda x, y, n: x + 2 * y)
    return MID, "twice|doubled|2", "attention is added twice"


@fault(["granite"], loud=True)
def multiplier_lost(c):
    c.layer.residual_multiplier = 1.0
    return MID, r"4\.[4-6]\d* times as large", "the residual multiplier is missing"


@fault(["granite", "cohere"], loud=True)
def logits_scale_lost(c):
    if c.family == "granite":
        c.model.config.logits_scaling = 1.0
        c.model.logits_scaling = 1.0
    else:
        c.model.logit_scale = 1.0
    c.at = None
    return ["logits"], "factor|scale|times", "the scale of the logits is missing"


@fault(["gemma2", "gemma3"], loud=True)
def embedding_scale_lost(c):
    c.model.model.embed_tokens.forward = lambda ids: F.embedding(ids, c.model.model.embed_tokens.weight)
    c.at = None
    return ["embedding"], "factor|scale|times|8", "embeddings are not scaled by sqrt(hidden)"


# What must not be accused. Each edits the second side, or its files.
CONTROLS = {}


def control(f):
    CONTROLS[f.__name__] = f


def edit(folder, change):
    """Rewrites each file of a dump: change(name, tensor) gives the names and tensors in its place."""
    for name in sorted(os.listdir(folder)):
        path = os.path.join(folder, name)
        tensors = load_file(path)
        made = {}
        for key, value in tensors.items():
            made.update(change(key, value))
        save_file({key: value.contiguous().clone() for key, value in made.items()}, path)


def ranks(folder, share):
    """Two ranks of tensor parallelism: share(key, tensor, rank)."""
    for name in sorted(os.listdir(folder)):
        path = os.path.join(folder, name)
        tensors = load_file(path)
        for rank in range(2):
            save_file({k: share(k, v, rank).contiguous().clone() for k, v in tensors.items()}, path.replace("rank0", f"rank{rank}"))


@control
def right_bf16(c):
    c.cast(torch.bfloat16)


@control
def right_f16(c):
    c.cast(torch.float16)


@control
def right_f64(c):
    c.cast(torch.float64)


def with_sdpa(c):
    try:
        c.model.set_attn_implementation("sdpa")
    except ValueError:
        c.skip = True  # a model with a soft cap has none


@control
def right_sdpa(c):
    with_sdpa(c)


@control
def right_bf16_sdpa(c):
    c.cast(torch.bfloat16)
    with_sdpa(c)


@control
def right_again(c):
    pass


@control
def right_chunks(c):
    n, p = c.ids.shape[1], torch.arange(c.ids.shape[1])[None]
    cuts = sorted(c.rng.sample(range(1, n), 2))
    c.calls = [dict(input_ids=c.ids[:, a:b], position_ids=p[:, a:b]) for a, b in zip([0, *cuts], [*cuts, n])]


@control
def right_decode(c):
    n, p = c.ids.shape[1], torch.arange(c.ids.shape[1])[None]
    m = n - 5
    c.calls = [dict(input_ids=c.ids[:, a:b], position_ids=p[:, a:b]) for a, b in [(0, m), *((t, t + 1) for t in range(m, n))]]


def padded(c, left):
    n, pads = c.ids.shape[1], c.rng.randint(3, 9)
    fill = torch.zeros(1, pads, dtype=torch.long)
    one, p = torch.ones(1, n, dtype=torch.long), torch.arange(n)[None]
    join = lambda a, b: torch.cat((b, a) if left else (a, b), 1)
    c.calls = [dict(input_ids=join(c.ids, fill), attention_mask=join(one, fill), position_ids=join(p, fill))]


@control
def right_left_padding(c):
    padded(c, True)


@control
def right_right_padding(c):
    padded(c, False)


@control
def right_fused(c):
    def after(folder):
        for name in sorted(os.listdir(folder)):
            path = os.path.join(folder, name)
            t = load_file(path)
            for n in range(len(c.layers)):
                at = f"model.layers.{n}.self_attn."
                if at + "q_proj" in t:
                    t[at + "qkv_proj"] = torch.cat([t.pop(at + x + "_proj") for x in "qkv"], -1)
            save_file(t, path)

    return after


@control
def right_transposed(c):
    return lambda folder: edit(folder, lambda k, v: {k: v.transpose(-1, -2) if v.dim() == 3 and v.is_floating_point() else v})


@control
def right_tokens_first(c):
    return lambda folder: edit(folder, lambda k, v: {k: v.transpose(1, 2) if v.dim() == 4 else v})


@control
def right_flat_heads(c):
    return lambda folder: edit(folder, lambda k, v: {k: v.transpose(1, 2).flatten(2)[0] if v.dim() == 4 else v[0] if v.dim() == 3 else v})


@control
def right_tensor_parallel(c):
    def share(k, v, rank):
        if k.endswith("_rope"):
            return v.chunk(2, 1)[rank]
        if re.search(r"[qkv]_proj$", k) and "qkv" not in k:
            return v.chunk(2, -1)[rank]
        return v

    return lambda folder: ranks(folder, share)


@control
def right_tensor_parallel_sums(c):
    torch.manual_seed(3)

    def share(k, v, rank):
        if k.endswith("_rope"):
            return v.chunk(2, 1)[rank]
        if re.search(r"[qkv]_proj$", k) and "qkv" not in k:
            return v.chunk(2, -1)[rank]
        if re.search(r"down_proj$|o_proj$|mlp$", k):
            part = torch.sin(torch.arange(v.numel()).float()).reshape(v.shape).to(v.dtype)
            return part if rank == 0 else v - part
        return v

    return lambda folder: ranks(folder, share)


@control
def right_sequence_shards(c):
    n = c.ids.shape[1] // 4 * 4
    c.ids = c.ids[:, :n]
    c.calls = [dict(input_ids=c.ids, position_ids=torch.arange(n)[None])]

    def share(k, v, rank):
        axis = next(i for i, s in enumerate(v.shape) if s == n and i > 0)
        parts = v.chunk(4, axis)
        return torch.cat([parts[rank], parts[3 - rank]], axis)

    return lambda folder: ranks(folder, share)


@control
def right_keys_repeated(c):
    return lambda folder: edit(folder, lambda k, v: {k: v.repeat_interleave(2, 1) if k.endswith("k_rope") else v})


@control
def right_permuted(c):
    """q and k as in a GGUF of a Llama: rows permuted, pairs (2j, 2j+1)."""
    if c.family not in ("llama", "mistral", "llama-yarn"):
        c.skip = True
    mix = lambda x: x.unflatten(-1, (-1, 2, 8)).transpose(-1, -2).flatten(-3)
    return lambda folder: edit(folder, lambda k, v: {k: mix(v) if re.search(r"[qk]_proj$|_rope$", k) else v})


@control
def right_weights_in_8_bits(c):
    for name, weight in c.model.named_parameters():
        if re.search(r"layers.*_proj", name) and weight.dim() == 2:
            weight.data = quantized(weight.data, 8)


@control
def right_weights_in_4_bits(c):
    for name, weight in c.model.named_parameters():
        if re.search(r"layers.*_proj", name) and weight.dim() == 2:
            weight.data = quantized(weight.data, 4)


@control
def right_norms_folded(c):
    """The weight of a norm in the matrices behind it."""
    if c.family not in PLAIN:
        c.skip = True
        return
    for layer in c.layers:
        for norm, names in ((layer.input_layernorm, "qkv"), (layer.post_attention_layernorm, "gate up".split())):
            for name in names:
                m = getattr(layer.self_attn if norm is layer.input_layernorm else layer.mlp, f"{name}_proj")
                m.weight.data = m.weight.data * norm.weight.data
            norm.weight.data = torch.ones_like(norm.weight)


@control
def right_ggml_names(c):
    names = {"self_attn.q_proj": "Qcur", "self_attn.k_proj": "Kcur", "self_attn.v_proj": "Vcur", "input_layernorm": "attn_norm",
             "mlp": "ffn_out", "self_attn.o_proj": "attn_out"}
    if c.family not in PLAIN:
        c.skip = True

    def rename(k, v):
        m = re.fullmatch(r"model\.layers\.(\d+)(?:\.(.*))?", k)
        if not m:
            return {k: v} if k in ("tokens", "positions") else {}
        name = "l_out" if m[2] is None else names.get(m[2])
        return {f"{name}-{m[1]}": v} if name else {}

    return lambda folder: edit(folder, rename)


@control
def right_batch(c):
    """The second row of a batch is another sequence."""
    other = torch.flip(c.ids, [1])
    c.calls = [dict(input_ids=torch.cat((c.ids, other)))]
    return lambda folder: edit(folder, lambda k, v: {k: v[:1] if v.dim() > 1 else v})


rng, truths = random.Random(SEED), []
names = sorted(FAULTS)
drawn = []
while len(drawn) < FAULTY:
    drawn += rng.sample(names, min(len(names), FAULTY - len(drawn)))
controls = sorted(CONTROLS)
right = []
while len(right) < RIGHT:
    right += rng.sample(controls, min(len(controls), RIGHT - len(right)))
number = 0
for name in drawn + right:
    wrong = name in FAULTS
    while True:
        families, build = FAULTS[name] if wrong else (list(FAMILIES), CONTROLS[name])
        family, state = rng.choice(families), rng.randrange(2**31)
        pair = "f32 f32"
        if name in LOUD:
            pair = rng.choice(["f32 f32", "f32 f32", "f32 f32", "f32 bf16", "bf16 bf16"])
        a_type, b_type = (getattr(torch, {"f32": "float32", "bf16": "bfloat16"}[d]) for d in pair.split())
        b = Case(random.Random(state), family, torch.float32)
        b.cast(b_type)
        got = build(b)
        if wrong and got is None or getattr(b, "skip", False):
            b.restore()
            continue
        break
    folder = os.path.join(OUT, f"{number:03}")
    a = Case(random.Random(state), family, torch.float32)
    a.cast(a_type)
    a.calls = getattr(b, "twin", [dict(input_ids=b.ids)])
    os.makedirs(folder)
    ours = pair == "f32 f32" and not hasattr(b, "twin") and rng.random() < 0.4
    if ours:
        a.model.save_pretrained(os.path.join(folder, "model"))
    # The patches of b are in the module: they are put aside while a runs.
    patches = {key: getattr(b.file, key) for key in b.kept}
    a.restore = lambda: None
    for key, value in b.kept.items():
        setattr(b.file, key, value)
    one = a.run(os.path.join(folder, "a"))
    for key, value in patches.items():
        setattr(b.file, key, value)
    two = b.run(os.path.join(folder, "b"))
    truth = dict(number=number, name=name, family=family, dtypes=pair, wrong=wrong, ours=ours, ids=b.ids[0].tolist())
    if wrong:
        steps, cause, words = got
        truth.update(steps=steps, layer=b.at, cause=cause, words=words, layers=len(b.layers))
        n = two.shape[1]
        truth["logits"] = float((one[:, -n:].float() - two.float()).abs().max() / one.float().abs().max())
    elif got:
        got(os.path.join(folder, "b"))
    json.dump(truth, open(os.path.join(folder, "truth.json"), "w"))
    number += 1
