import json
import sys
import time
import traceback

import numpy as np
import onnxruntime

PROVIDER = sys.argv[1] if len(sys.argv) > 1 else "CPUExecutionProvider"
# True: f16 goes to the operator as it is, with tables of cos and sin in f16; then verify with --arithmetic native.
HALVES = False


class Skip(Exception):
    """Raise it for a case that your kernel does not do: Skip("half pairing only")."""


def rope(x, positions, *, pairing, rotary_dim, rotary_offset, inv_freq, axis, magnitude, backward, weight, eps, cache,
         rows, base, scaling, beyond, spec):
    """PASTE YOUR CALL HERE: ONNX's RotaryEmbedding of opset 23 on one provider. Returns y, shaped as x.

    x          [batch, seq, heads, head_dim], a view with strides where heads come first; bf16 comes widened to float32
    positions  [axes, batch or 1, seq], integers; one axis unless it is M-RoPE
    inv_freq   [rotary_dim/2], radians for a position; base and scaling are in it (spec has the model's own parameters)
    axis       [rotary_dim/2], the axis of positions that pair j takes; magnitude multiplies cos and sin
    """
    if x.dtype == np.float64:
        raise Skip("RotaryEmbedding takes no f64")
    if pairing == "interleaved-to-half" or rotary_offset:
        raise Skip("RotaryEmbedding writes pairs where it reads them, and rotates the leading dimensions")
    if weight is not None or cache is not None:
        raise Skip("no norm and no cache in this harness")
    dtype = np.float16 if HALVES and x.dtype == np.float16 else np.float32
    angle = np.moveaxis(positions[np.array(axis)], 0, -1) * np.array(inv_freq)
    angle = np.broadcast_to(angle, (x.shape[0], *angle.shape[1:]))  # [batch, seq, rotary_dim/2]
    feeds = {
        "x": np.ascontiguousarray(x.swapaxes(1, 2), dtype),  # heads first
        "cos": (np.cos(angle) * magnitude).astype(dtype),
        "sin": (np.sin(angle) * magnitude * (-1 if backward else 1)).astype(dtype),
    }
    attributes = {"interleaved": int(pairing == "interleaved"), "rotary_embedding_dim": rotary_dim % x.shape[3]}
    session = onnxruntime.InferenceSession(model(feeds, attributes), providers=[PROVIDER])
    if session.get_providers()[0] != PROVIDER:
        raise Skip(f"{PROVIDER} is not in this onnxruntime")
    return session.run(None, feeds)[0].swapaxes(1, 2)


def model(feeds, attributes):
    """A model of one node, as bytes of protobuf: the package onnx is not needed."""
    def integer(n):
        return bytes([n]) if n < 128 else bytes([n & 127 | 128]) + integer(n >> 7)

    def field(number, value):
        if isinstance(value, int):
            return integer(number << 3) + integer(value)
        data = value.encode() if isinstance(value, str) else b"".join(value) if isinstance(value, list) else value
        return integer(number << 3 | 2) + integer(len(data)) + data

    def tensor(name, like):
        shape = [field(1, field(1, size)) for size in like.shape]
        kind = {np.float32: 1, np.float16: 10}[like.dtype.type]
        return [field(1, name), field(2, field(1, [field(1, kind), field(2, shape)]))]

    node = [field(1, name) for name in feeds] + [field(2, "y"), field(4, "RotaryEmbedding")]
    node += [field(5, [field(1, name), field(3, n), field(20, 2)]) for name, n in attributes.items()]
    graph = [field(1, node), field(2, "rope"), *(field(11, tensor(name, feeds[name])) for name in feeds)]
    graph.append(field(12, tensor("y", feeds["x"])))
    return b"".join([field(1, 10), field(7, graph), field(8, [field(1, ""), field(2, 23)])])


# include protocol_numpy.py
