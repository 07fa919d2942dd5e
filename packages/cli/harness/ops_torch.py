import json
import sys
import time
import traceback

import torch

DEVICE = sys.argv[1] if len(sys.argv) > 1 else "cpu"  # cuda:0, mps, xpu, npu:0, …
if DEVICE.startswith("npu"):
    import torch_npu  # noqa: F401, it adds the device to torch


class Skip(Exception):
    """Raise it for a case that your kernel does not do: Skip("no window")."""


def rope(*_, **__):
    raise Skip("rope: use ropewalk harness torch")


# PASTE YOUR KERNELS HERE: each takes tensors on DEVICE and returns the output, in the dtype of the input.
def wide(t):
    return t.to(torch.float64 if t.dtype == torch.float64 else torch.float32)


def add(a, b):
    return (wide(a) + wide(b)).to(a.dtype)


def argmax(values):
    index = values.argmax(-1, keepdim=True)
    return index, values.gather(-1, index)


def embedding(index, weight):
    return weight[index.long()]


def linear(x, weight, bias):
    y = wide(x) @ wide(weight).T
    return (y if bias is None else y + wide(bias)).to(x.dtype)


def rms_norm(x, weight, eps):
    return (wide(x) * torch.rsqrt(wide(x).pow(2).mean(-1, keepdim=True) + eps) * wide(weight)).to(x.dtype)


def self_attention(q, k, v, scale):
    group = q.shape[-2] // k.shape[-2]
    k, v = (t.repeat_interleave(group, dim=-2) for t in (k, v))
    scores = torch.einsum("...shd,...thd->...hst", wide(q), wide(k)) * scale
    seq, total = scores.shape[-2:]
    seen = torch.ones(seq, total, dtype=torch.bool, device=q.device).tril(total - seq)
    weights = scores.masked_fill(~seen, float("-inf")).softmax(-1)
    return torch.einsum("...hst,...thd->...shd", weights, wide(v)).to(q.dtype)


def swiglu(gate, up):
    return (torch.nn.functional.silu(wide(gate)) * wide(up)).to(gate.dtype)


def rearrange(x, y):
    y.copy_(x)


def timed_call(kernel, *arguments):
    with timed:
        return kernel(*arguments)


def viewed(t, view):
    return t.view(-1).as_strided(view["shape"], view["strides"], view["offset"])


def moved(case, i):
    y = i["y_initial"].clone()
    if min(case["attributes"]["x"]["strides"] + case["attributes"]["y"]["strides"]) < 0:
        raise Skip("torch has no negative strides")
    timed_call(rearrange, viewed(i["x"], case["attributes"]["x"]), viewed(y, case["attributes"]["y"]))
    return {"y": y}


def plain(call):
    """Skips what the kernels above do not have."""

    def checked(case, inputs):
        beyond = [n for n in case["attributes"] if n not in ("eps", "scale", "causal", "index_dtype", "x", "y")]
        if beyond or "sinks" in inputs or case["attributes"].get("causal") is False:
            raise Skip(f"no {(beyond or ['sinks' if 'sinks' in inputs else 'attention without a mask'])[0]} in this harness")
        return call(case, inputs)

    return checked


OPERATORS = {
    "add": plain(lambda case, i: {"c": timed_call(add, i["a"], i["b"])}),
    "argmax": plain(lambda case, i: dict(zip(("max_idx", "max_val"), timed_call(argmax, i["values"])))),
    "embedding": plain(lambda case, i: {"out": timed_call(embedding, i["index"], i["weight"])}),
    "linear": plain(lambda case, i: {"y": timed_call(linear, i["x"], i["weight"], i.get("bias"))}),
    "rms_norm": plain(lambda case, i: {"y": timed_call(rms_norm, i["x"], i["weight"], case["attributes"]["eps"])}),
    "self_attention": plain(
        lambda case, i: {"attn_val": timed_call(self_attention, i["q"], i["k"], i["v"], case["attributes"]["scale"])}
    ),
    "swiglu": plain(lambda case, i: {"out": timed_call(swiglu, i["gate"], i["up"])}),
    "rearrange": plain(moved),
}


# include protocol_torch.py
