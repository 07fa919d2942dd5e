"""safetensors and GGUF, written and read with numpy alone; q8_0 blocks as ggml makes them."""

import json
import struct
from pathlib import Path

import numpy as np

GGUF_ALIGNMENT = 32
F32, F16, Q8_0 = 0, 1, 8  # ggml tensor types
U32, I32, FLOAT32, BOOL, STRING, ARRAY, U64 = 4, 5, 6, 7, 8, 9, 10  # GGUF value types
SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", U32: "<I", I32: "<i", FLOAT32: "<f", BOOL: "<?", U64: "<Q", 11: "<q", 12: "<d"}  # fmt: skip
BLOCK = 32  # values a q8_0 block: one f16 scale, 32 int8


def replace_file(path: Path, data: bytes) -> None:
    """Writes beside `path`, then renames: an interrupted run leaves no half-written file."""
    part = path.with_name(path.name + ".part")
    part.write_bytes(data)
    part.replace(path)


# ---- safetensors ---------------------------------------------------------------------------------


def write_safetensors(path: Path, tensors: dict[str, np.ndarray]) -> None:
    """All tensors as f16, in the order given; the header is padded so that the data starts at a multiple of 8."""
    header: dict = {"__metadata__": {"format": "pt"}}
    body, at = [], 0
    for name, t in tensors.items():
        data = np.ascontiguousarray(t, dtype="<f2").tobytes()
        header[name] = {"dtype": "F16", "shape": list(t.shape), "data_offsets": [at, at + len(data)]}
        body.append(data)
        at += len(data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    replace_file(path, struct.pack("<Q", len(text)) + text + b"".join(body))


def read_safetensors(path: Path) -> dict[str, np.ndarray]:
    data = path.read_bytes()
    (length,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8 : 8 + length])
    types = {"F16": "<f2", "F32": "<f4"}
    out = {}
    for name, entry in header.items():
        if name != "__metadata__":
            begin, end = (8 + length + x for x in entry["data_offsets"])
            out[name] = np.frombuffer(data[begin:end], types[entry["dtype"]]).reshape(entry["shape"])
    return out


# ---- q8_0 ----------------------------------------------------------------------------------------


def quantise_q8_0(x: np.ndarray) -> bytes:
    """Blocks of 32 along the last axis: scale max|x| / 127, values rounded half away from zero.

    Like ggml (quantize_row_q8_0_ref), the values are divided by the f32 scale before that is
    rounded to f16. The rounding itself is done in f64, where x + 0.5 is exact.
    """
    assert x.shape[-1] % BLOCK == 0, f"last axis of {x.shape} is no multiple of {BLOCK}"
    blocks = np.ascontiguousarray(x, np.float32).reshape(-1, BLOCK)
    scale = np.abs(blocks).max(axis=1) / np.float32(127)
    inverse = np.where(scale > 0, np.float32(1) / np.where(scale > 0, scale, np.float32(1)), np.float32(0))
    scaled = (blocks * inverse[:, None]).astype(np.float64)
    out = np.empty(len(blocks), dtype=[("d", "<f2"), ("q", "i1", BLOCK)])
    out["d"] = scale.astype(np.float16)
    out["q"] = np.trunc(scaled + np.copysign(0.5, scaled)).astype(np.int8)
    return out.tobytes()


def dequantise_q8_0(data: bytes, shape: tuple[int, ...]) -> np.ndarray:
    blocks = np.frombuffer(data, dtype=[("d", "<f2"), ("q", "i1", BLOCK)])
    return (blocks["d"].astype(np.float32)[:, None] * blocks["q"].astype(np.float32)).reshape(shape)


# ---- GGUF ----------------------------------------------------------------------------------------


def _string(s: str) -> bytes:
    data = s.encode("utf-8")
    return struct.pack("<Q", len(data)) + data


def _value(kind: int, value) -> bytes:
    return _string(value) if kind == STRING else struct.pack(SCALARS[kind], value)


def write_gguf(path: Path, metadata: list[tuple], tensors: dict[str, tuple[int, np.ndarray]]) -> None:
    """GGUF version 3. `metadata`: (key, type, value), or (key, ARRAY, element type, values).
    `tensors`: name -> (ggml type, array); the file's dimensions run the other way round than numpy's."""
    head = [b"GGUF", struct.pack("<IQQ", 3, len(tensors), len(metadata))]
    for key, kind, *rest in metadata:
        head += [_string(key), struct.pack("<I", kind)]
        if kind == ARRAY:
            element, values = rest
            head += [struct.pack("<IQ", element, len(values))] + [_value(element, v) for v in values]
        else:
            head.append(_value(kind, rest[0]))
    body, at = [], 0
    for name, (kind, t) in tensors.items():
        data = quantise_q8_0(t) if kind == Q8_0 else np.ascontiguousarray(t, {F32: "<f4", F16: "<f2"}[kind]).tobytes()
        head += [_string(name), struct.pack("<I", t.ndim), struct.pack(f"<{t.ndim}Q", *reversed(t.shape)),
                 struct.pack("<IQ", kind, at)]  # fmt: skip
        data += bytes(-len(data) % GGUF_ALIGNMENT)
        body.append(data)
        at += len(data)
    start = b"".join(head)
    start += bytes(-len(start) % GGUF_ALIGNMENT)
    replace_file(path, start + b"".join(body))


def read_gguf(path: Path) -> tuple[dict, dict[str, np.ndarray], dict[str, int]]:
    """(metadata, tensors as f32 in numpy's order of dimensions, ggml type of each)."""
    data = path.read_bytes()
    at = 0

    def take(form: str):
        nonlocal at
        values = struct.unpack_from(form, data, at)
        at += struct.calcsize(form)
        return values if len(values) > 1 else values[0]

    def string() -> str:
        nonlocal at
        length = take("<Q")
        at += length
        return data[at - length : at].decode("utf-8")

    def value(kind: int):
        if kind == STRING:
            return string()
        if kind == ARRAY:
            element, count = take("<IQ")
            return [value(element) for _ in range(count)]
        return take(SCALARS[kind])

    assert data[:4] == b"GGUF", f"{path}: not a GGUF"
    at = 4
    version, count, keys = take("<IQQ")
    assert version == 3, f"{path}: GGUF version {version}"
    metadata = {}
    for _ in range(keys):
        key = string()
        metadata[key] = value(take("<I"))
    infos = []
    for _ in range(count):
        name, dims = string(), take("<I")
        shape = tuple(take("<Q") for _ in range(dims))[::-1]
        infos.append((name, shape, *take("<IQ")))
    alignment = metadata.get("general.alignment", GGUF_ALIGNMENT)
    at += -at % alignment
    tensors, types = {}, {}
    for name, shape, kind, offset in infos:
        n = int(np.prod(shape))
        size = {F32: 4 * n, F16: 2 * n, Q8_0: n // BLOCK * (BLOCK + 2)}[kind]
        raw = data[at + offset : at + offset + size]
        assert len(raw) == size, f"{path}: {name} runs past the end"
        if kind == Q8_0:
            tensors[name] = dequantise_q8_0(raw, shape)
        else:
            tensors[name] = np.frombuffer(raw, {F32: "<f4", F16: "<f2"}[kind]).astype(np.float32).reshape(shape)
        types[name] = kind
    return metadata, tensors, types
