import json
import sys
import time
import traceback

import numpy as np


class Skip(Exception):
    """Raise it for a case that your kernel does not do: a skip, with the reason, and no failure."""


def kernel(q, positions, base):
    """PASTE YOUR KERNEL HERE. q [batch, seq, heads, head_dim], bf16 widened to float32; positions [batch or 1, seq].

    Returns q rotated. This one pairs halves.
    """
    half = q.shape[-1] // 2
    angle = positions[:, :, None, None] * base ** (-np.arange(half) / half)
    cos, sin, q0, q1 = np.cos(angle), np.sin(angle), q[..., :half], q[..., half:]
    return np.concatenate((q0 * cos - q1 * sin, q0 * sin + q1 * cos), -1)


def rope(x, positions, *, base, beyond, pairing, rotary_dim, **_):
    if beyond:  # scaling, M-RoPE, a window, a norm, a cache, backward, heads first
        raise Skip(beyond)
    if pairing != "half":
        raise Skip("needs interleaved pairing")
    if rotary_dim != x.shape[-1]:
        raise Skip("needs a rotary_dim below head_dim")
    return kernel(x, positions[0], base)


# include protocol_numpy.py
