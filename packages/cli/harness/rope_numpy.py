import json
import sys
import time
import traceback

import numpy as np


class Skip(Exception):
    """Raise it for a case that your kernel does not do: Skip("half pairing only")."""


def rope(x, positions, *, pairing, rotary_dim, rotary_offset, inv_freq, axis, magnitude, backward, weight, eps, cache,
         rows, base, scaling, beyond, spec):
    """PASTE YOUR KERNEL HERE. Returns y, shaped as x; or the cache, if there is one.

    x          [batch, seq, heads, head_dim], a view with strides where heads come first; bf16 comes widened to float32
    positions  [axes, batch or 1, seq], integers; one axis unless it is M-RoPE
    pairing    pair j is (j, j + rotary_dim/2): half; (2j, 2j+1): interleaved; interleaved-to-half reads the second and
               writes the first. All within the window rotary_offset … rotary_offset + rotary_dim - 1
    inv_freq   [rotary_dim/2], radians for a position; base and scaling are in it (spec has the model's own parameters)
    axis       [rotary_dim/2], the axis of positions that pair j takes
    magnitude  multiplies cos and sin (YaRN, LongRoPE); backward: the transpose, the gradient
    weight     [head_dim] and eps: RMS norm of each head before the rotation; None: no norm
    base       and scaling (none, linear, llama3, …), for a kernel that makes its own frequencies
    beyond     what a kernel of q, positions and base does not have, such as "needs M-RoPE"; "": nothing
    cache      [batch, cached, heads, head_dim] and rows [batch, seq]: where token s goes; None: y is no cache
    """
    head = x.astype(np.float64)
    if weight is not None:
        head = head * weight / np.sqrt(np.mean(head * head, axis=-1, keepdims=True) + eps)
    angle = np.moveaxis(positions[np.array(axis)], 0, -1) * np.array(inv_freq)  # [batch or 1, seq, pairs]
    cos, sin = (magnitude * f(angle)[:, :, None, :] for f in (np.cos, np.sin))
    halves = [slice(rotary_offset, rotary_offset + rotary_dim // 2),
              slice(rotary_offset + rotary_dim // 2, rotary_offset + rotary_dim)]
    even_odd = [slice(rotary_offset + k, rotary_offset + rotary_dim, 2) for k in (0, 1)]
    reads, writes = (even_odd if pairing != "half" else halves), (even_odd if pairing == "interleaved" else halves)
    if backward:
        reads, writes, sin = writes, reads, -sin
    x0, x1 = head[..., reads[0]].copy(), head[..., reads[1]].copy()
    head[..., writes[0]] = x0 * cos - x1 * sin
    head[..., writes[1]] = x0 * sin + x1 * cos
    if cache is None:
        return head
    for b, s in np.argwhere(rows >= 0):
        cache[b, rows[b, s]] = head[b, s]
    return cache


# include protocol_numpy.py
