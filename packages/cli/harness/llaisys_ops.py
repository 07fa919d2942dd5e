import ctypes
import json
import sys
import time
import traceback
from ctypes import POINTER, c_float, c_int, c_size_t, c_void_p

# The library, and optionally a device: cpu (default), or nvidia. The signatures are those of LLAISYS' own Python package.
LIB = ctypes.CDLL(sys.argv[1] if len(sys.argv) > 1 else "libllaisys.so")
DEVICE = {"cpu": 0, "nvidia": 1}[sys.argv[2] if len(sys.argv) > 2 else "cpu"]
DTYPES = {"i64": (6, 8), "f16": (12, 2), "f32": (13, 4), "bf16": (19, 2)}  # number in LLAISYS, bytes of an element
T = c_void_p
SIGNATURES = {
    "tensorCreate": ([POINTER(c_size_t), c_size_t, c_int, c_int, c_int], T),
    "tensorDestroy": ([T], None),
    "tensorLoad": ([T, c_void_p], None),
    "tensorGetData": ([T], c_void_p),
    "llaisysAdd": ([T, T, T], None),
    "llaisysArgmax": ([T, T, T], None),
    "llaisysEmbedding": ([T, T, T], None),
    "llaisysLinear": ([T, T, T, T], None),
    "llaisysRearrange": ([T, T], None),
    "llaisysRmsNorm": ([T, T, T, c_float], None),
    "llaisysROPE": ([T, T, T, c_float], None),
    "llaisysSelfAttention": ([T, T, T, T, c_float], None),
    "llaisysSwiGLU": ([T, T, T], None),
}


class Skip(Exception):
    """Raise it for a case that the library does not do."""


def function(name):
    try:
        found = getattr(LIB, name)
    except AttributeError:
        raise Skip(f"the library has no {name}") from None
    found.argtypes, found.restype = SIGNATURES[name]
    return found


class Tensor:
    """A tensor of LLAISYS, with the bytes that it was made from."""

    def __init__(self, data, dtype, shape):
        if dtype not in DTYPES:
            raise Skip(f"LLAISYS has no {dtype}")
        self.dtype, self.shape, self.size = dtype, list(shape), len(data)
        sizes = (c_size_t * len(shape))(*shape)
        self.handle = function("tensorCreate")(sizes, len(shape), DTYPES[dtype][0], DEVICE, 0)
        if data:
            function("tensorLoad")(self.handle, (ctypes.c_char * len(data)).from_buffer(data))

    def bytes(self):
        if DEVICE != 0:
            raise Skip("outputs are read from host memory: run it on cpu")
        return ctypes.string_at(function("tensorGetData")(self.handle), self.size) if self.size else b""

    def __del__(self):
        if getattr(self, "handle", None):
            function("tensorDestroy")(self.handle)


def load(data, dtype, shape):
    return Tensor(data, dtype, shape)


def store(t, dtype):
    return t.bytes()


def wait():
    """Calls on the CPU are done when they return."""


def new_bytes(size):
    return bytearray(size)


def empty(dtype, shape):
    count = 1
    for n in shape:
        count *= n
    return Tensor(bytearray(count * DTYPES[dtype][1]), dtype, shape)


def call(name, output_names, arguments):
    """Makes an operator of a LLAISYS function: its outputs come first, and `arguments` gives the rest."""

    def run(case, inputs):
        given = arguments(case, inputs)
        made = {t["name"]: empty(t["dtype"], t["shape"]) for t in case["outputs"]}
        handles = [a.handle if isinstance(a, Tensor) else a for a in [made[n] for n in output_names] + given]
        operator = function(name)
        with timed:
            operator(*handles)
        return made

    return run


def only(case, *known):
    for name, value in case["attributes"].items():
        if name not in known or value is False:
            raise Skip(f"LLAISYS has no {name}")


def attention(case, i):
    only(case, "scale", "causal")
    if len(i["q"].shape) != 3:
        raise Skip("LLAISYS has no batches")
    return [i["q"], i["k"], i["v"], case["attributes"]["scale"]]


def rotated(case, i):
    derived, parts = case["rope"], case["attributes"]["parts"]
    spec = case["attributes"]["spec"]
    plain = derived["pairing"] == "half" and derived["scaling"] == "none" and derived["numAxes"] == 1
    x = i[parts[0]["x"]]
    if not plain or derived["beyond"] or len(parts) > 1 or derived["rotaryDim"] != spec["headDim"] or x.shape[0] != 1:
        raise Skip("LLAISYS rotates whole heads of one batch, half pairing, with a base alone")
    if i["positions"].dtype != "i64":
        raise Skip("LLAISYS' pos_ids are i64")
    return {"x": x, "positions": i["positions"], "base": spec["base"], "out": parts[0]["out"]}


def rope_by_llaisys(case, i):
    given = rotated(case, i)
    x = given["x"]
    raw, positions = bytearray(x.bytes()), bytearray(given["positions"].bytes())
    flat = Tensor(raw, x.dtype, x.shape[1:])
    ids = Tensor(positions, "i64", [x.shape[1]])
    out = empty(x.dtype, x.shape[1:])
    operator = function("llaisysROPE")
    with timed:
        operator(out.handle, flat.handle, ids.handle, given["base"])
    out.shape = x.shape
    return {given["out"]: out}


def linear(case, i):
    only(case)
    return [i["x"], i["weight"], i.get("bias")]


def norm(case, i):
    only(case, "eps")
    return [i["x"], i["weight"], case["attributes"]["eps"]]


def gated(case, i):
    only(case)
    return [i["gate"], i["up"]]


def maximum(case, i):
    only(case)
    if len(i["values"].shape) != 1:
        raise Skip("LLAISYS' argmax takes one row")
    return [i["values"]]


def moved(case, i):
    raise Skip("LLAISYS' rearrange takes tensors with strides, which its C interface does not create")


OPERATORS = {
    "add": call("llaisysAdd", ["c"], lambda case, i: [i["a"], i["b"]]),
    "argmax": call("llaisysArgmax", ["max_idx", "max_val"], maximum),
    "embedding": call("llaisysEmbedding", ["out"], lambda case, i: [i["index"], i["weight"]]),
    "linear": call("llaisysLinear", ["y"], linear),
    "rms_norm": call("llaisysRmsNorm", ["y"], norm),
    "self_attention": call("llaisysSelfAttention", ["attn_val"], attention),
    "swiglu": call("llaisysSwiGLU", ["out"], gated),
    "rearrange": moved,
    "rope": rope_by_llaisys,
}


# include protocol.py
