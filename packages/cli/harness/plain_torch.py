import json
import sys
import time
import traceback

import torch

DEVICE = sys.argv[1] if len(sys.argv) > 1 else "cpu"  # cuda:0, mps, xpu, npu:0, …
if DEVICE.startswith("npu"):
    import torch_npu  # noqa: F401, it adds the device to torch


class Skip(Exception):
    """Raise it for a case that your kernel does not do: a skip, with the reason, and no failure."""


def kernel(q, positions, base):
    """PASTE YOUR KERNEL HERE. q [batch, seq, heads, head_dim] and positions [batch or 1, seq], on DEVICE.

    Returns q rotated. This one pairs halves; its angles are float32.
    """
    half = q.shape[-1] // 2
    inv_freq = base ** (-torch.arange(half, dtype=torch.float32, device=DEVICE) / half)
    angle = positions[:, :, None, None].float() * inv_freq
    cos, sin, (q0, q1) = angle.cos(), angle.sin(), q.float().split(half, -1)
    return torch.cat((q0 * cos - q1 * sin, q0 * sin + q1 * cos), -1).to(q.dtype)


def rope(x, positions, *, base, beyond, pairing, rotary_dim, **_):
    if beyond:  # scaling, M-RoPE, a window, a norm, a cache, backward, heads first
        raise Skip(beyond)
    if pairing != "half":
        raise Skip("needs interleaved pairing")
    if rotary_dim != x.shape[-1]:
        raise Skip("needs a rotary_dim below head_dim")
    if x.dtype == torch.float64:
        raise Skip("needs float64")
    return kernel(x, positions[0], base)


# include protocol_torch.py
