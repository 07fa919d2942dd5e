import json
import sys
import time
import traceback

import torch

DEVICE = sys.argv[1] if len(sys.argv) > 1 else "cpu"  # cuda:0, mps, xpu, npu:0, …
if DEVICE.startswith("npu"):
    import torch_npu  # noqa: F401, it adds the device to torch


class Skip(Exception):
    """Raise it for a case that your kernel does not do: Skip("half pairing only")."""


def rope(x, positions, *, pairing, rotary_dim, rotary_offset, inv_freq, axis, magnitude, backward, weight, eps, cache,
         rows, base, scaling, beyond, spec):
    """PASTE YOUR KERNEL HERE. Returns y, shaped as x; or the cache, if there is one.

    x          [batch, seq, heads, head_dim] on DEVICE; float64, float32, float16 or bfloat16; a view with strides where
               heads come first
    positions  [axes, batch or 1, seq], integers on DEVICE; one axis unless it is M-RoPE
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
    wide = torch.float64 if x.dtype == torch.float64 else torch.float32
    head = x.to(wide)
    if weight is not None:
        head = head * torch.rsqrt(head.pow(2).mean(-1, keepdim=True) + eps) * weight.to(wide)
    # Angles in float64 on the CPU: not every device has it.
    angle = positions.cpu()[torch.tensor(axis)].movedim(0, -1) * torch.tensor(inv_freq, dtype=torch.float64)
    cos, sin = ((magnitude * f(angle)).to(wide).to(DEVICE)[:, :, None, :] for f in (torch.cos, torch.sin))
    half = rotary_dim // 2
    window = head[..., rotary_offset : rotary_offset + rotary_dim]
    reads_half, writes_half = pairing == "half", pairing != "interleaved"
    if backward:
        reads_half, writes_half, sin = writes_half, reads_half, -sin
    x0, x1 = (window[..., :half], window[..., half:]) if reads_half else (window[..., ::2], window[..., 1::2])
    y0, y1 = x0 * cos - x1 * sin, x0 * sin + x1 * cos
    turned = torch.cat((y0, y1), -1) if writes_half else torch.stack((y0, y1), -1).flatten(-2)
    y = torch.cat((head[..., :rotary_offset], turned, head[..., rotary_offset + rotary_dim :]), -1)
    if cache is None:
        return y.to(x.dtype)
    for b, s in (rows >= 0).nonzero().tolist():
        cache[b, rows[b, s]] = y[b, s].to(cache.dtype)
    return cache


# include protocol_torch.py
