import json
import sys
import time
import traceback

import torch
import triton
import triton.language as tl

DEVICE = sys.argv[1] if len(sys.argv) > 1 else "cuda:0"  # xpu, npu:0, … where Triton has a backend


class Skip(Exception):
    """Raise it for a case that your kernel does not do: Skip("half pairing only")."""


# PASTE YOUR KERNEL HERE, and call it from rope(). This one is plain: a program for each head of each token.
@triton.jit
def rope_kernel(y, x, cos, sin, seq, pairs, x_batch, x_seq, x_head, y_batch, y_seq, y_head, read_step, read_gap,
                write_step, write_gap, BLOCK: tl.constexpr):
    token = tl.program_id(0)
    h = tl.program_id(1)
    b = token // seq
    s = token % seq
    j = tl.arange(0, BLOCK)
    inside = j < pairs
    c = tl.load(cos + token * pairs + j, mask=inside, other=0.0)
    sine = tl.load(sin + token * pairs + j, mask=inside, other=0.0)
    source = x + b * x_batch + s * x_seq + h * x_head + j * read_step
    target = y + b * y_batch + s * y_seq + h * y_head + j * write_step
    x0 = tl.load(source, mask=inside, other=0.0).to(c.dtype)
    x1 = tl.load(source + read_gap, mask=inside, other=0.0).to(c.dtype)
    tl.store(target, (x0 * c - x1 * sine).to(y.dtype.element_ty), mask=inside)
    tl.store(target + write_gap, (x0 * sine + x1 * c).to(y.dtype.element_ty), mask=inside)


def rope(x, positions, *, pairing, rotary_dim, rotary_offset, inv_freq, axis, magnitude, backward, weight, eps, cache,
         rows, base, scaling, beyond, spec):
    """Calls the kernel. Returns y, shaped as x.

    x          [batch, seq, heads, head_dim] on DEVICE; float64, float32, float16 or bfloat16; a view with strides where
               heads come first
    positions  [axes, batch or 1, seq], integers on DEVICE; one axis unless it is M-RoPE
    pairing    pair j is (j, j + rotary_dim/2): half; (2j, 2j+1): interleaved; interleaved-to-half reads the second and
               writes the first. All within the window rotary_offset … rotary_offset + rotary_dim - 1
    inv_freq   [rotary_dim/2], radians for a position; base and scaling are in it (spec has the model's own parameters)
    axis       [rotary_dim/2], the axis of positions that pair j takes; magnitude multiplies cos and sin
    """
    if weight is not None or cache is not None:
        raise Skip("no norm and no cache in this harness")
    wide = torch.float64 if x.dtype == torch.float64 else torch.float32
    angle = positions.cpu()[torch.tensor(axis)].movedim(0, -1) * torch.tensor(inv_freq, dtype=torch.float64)
    angle = angle.expand(x.shape[0], -1, -1)  # [batch, seq, pairs]
    cos, sin = ((magnitude * f(angle)).to(wide).contiguous().to(DEVICE) for f in (torch.cos, torch.sin))
    pairs = rotary_dim // 2
    half, even_odd = (1, pairs), (2, 1)  # step from pair to pair, gap within a pair
    reads, writes = (half if pairing == "half" else even_odd), (even_odd if pairing == "interleaved" else half)
    if backward:
        reads, writes, sin = writes, reads, -sin
    y = x.clone()  # the dimensions that do not rotate
    grid = (x.shape[0] * x.shape[1], x.shape[2])
    rope_kernel[grid](y[..., rotary_offset:], x[..., rotary_offset:], cos, sin, x.shape[1], pairs, *x.stride()[:3],
                      *y.stride()[:3], *reads, *writes, BLOCK=triton.next_power_of_2(pairs))
    return y


# include protocol_torch.py
