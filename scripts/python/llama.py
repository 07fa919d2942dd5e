"""
llama.cpp in process, by its C interface: the library is the one that node-llama-cpp brings (`npm run peers`; llama.cpp v0.4.0).

  python llama.py logits MODEL.gguf TOKENS.npy OUT.npy [MODEL.gguf TOKENS.npy OUT.npy ...]
      f32 [tokens, vocabulary], with f32 caches
  python llama.py long MODEL.gguf TOKENS.npy OUT.npy EVERY SCORES.npy
      only of each EVERYth token, and the log-probability of each next token
  python llama.py debug MODEL.gguf TOKENS.npy OUT.txt     what llama-eval-callback prints; the f16 caches are its own
  python llama.py greedy MODEL.gguf TOKENS.npy COUNT      the ids that follow, one a line
  python llama.py tokenize MODEL.gguf TEXTS.json OUT.json  the ids of each text, without BOS; special tokens count
"""

import ctypes as C
import json
import os
import sys

import numpy as np

FOLDER = os.path.join(os.path.dirname(__file__), "../../bench/llama/node_modules/@node-llama-cpp/linux-x64/bins/linux-x64")


class ModelParams(C.Structure):
    """`llama_model_params`: eight-byte fields by their places in llama.h, then the booleans."""

    _fields_ = [("before", C.c_uint64 * 9), ("vocab_only", C.c_bool), ("check_tensors", C.c_bool), ("use_extra_bufts", C.c_bool), ("after", C.c_char * 61)]


class ContextParams(C.Structure):
    """`llama_context_params`, in the order of llama.h; the rest is not set here."""

    _fields_ = [
        *((name, C.c_uint32) for name in ("n_ctx", "n_batch", "n_ubatch", "n_seq_max", "n_rs_seq", "n_outputs_max", "n_outputs_max_per_seq")),
        *((name, C.c_int32) for name in ("n_threads", "n_threads_batch", "ctx_type", "rope_scaling", "pooling", "attention", "flash_attention")),
        ("frequencies", C.c_float * 6),
        ("yarn_orig_ctx", C.c_uint32),
        ("defrag_thold", C.c_float),
        ("cb_eval", C.c_void_p * 2),
        ("type_k", C.c_int32),
        ("type_v", C.c_int32),
        ("abort_callback", C.c_void_p * 2),
        ("embeddings", C.c_bool),
        ("after", C.c_char * 63),
    ]


class Tensor(C.Structure):
    """`ggml_tensor`."""

    _fields_ = [
        ("type", C.c_int32),
        ("buffer", C.c_void_p),
        ("ne", C.c_int64 * 4),
        ("nb", C.c_size_t * 4),
        ("op", C.c_int32),
        ("op_params", C.c_int32 * 16),
        ("flags", C.c_int32),
        ("src", C.c_void_p * 10),
        ("view_src", C.c_void_p),
        ("view_offs", C.c_size_t),
        ("data", C.c_void_p),
        ("name", C.c_char * 64),
    ]


class Batch(C.Structure):
    _fields_ = [
        ("n_tokens", C.c_int32),
        ("token", C.POINTER(C.c_int32)),
        ("embd", C.POINTER(C.c_float)),
        ("pos", C.POINTER(C.c_int32)),
        ("n_seq_id", C.POINTER(C.c_int32)),
        ("seq_id", C.POINTER(C.POINTER(C.c_int32))),
        ("logits", C.POINTER(C.c_int8)),
    ]


def load_library():
    C.CDLL(os.path.join(FOLDER, "libggml-base.so"), mode=C.RTLD_GLOBAL)
    ggml = C.CDLL(os.path.join(FOLDER, "libggml.v0.4.0.so"), mode=C.RTLD_GLOBAL)
    lib = C.CDLL(os.path.join(FOLDER, "libllama.v0.4.0.so"))
    ggml.ggml_backend_load_all_from_path.argtypes = [C.c_char_p]
    ggml.ggml_backend_load_all_from_path(FOLDER.encode())  # the CPU's library for this machine
    pointer = C.c_void_p
    for name, result, arguments in (
        ("llama_model_default_params", ModelParams, []),
        ("llama_context_default_params", ContextParams, []),
        ("llama_model_load_from_file", pointer, [C.c_char_p, ModelParams]),
        ("llama_init_from_model", pointer, [pointer, ContextParams]),
        ("llama_model_get_vocab", pointer, [pointer]),
        ("llama_vocab_n_tokens", C.c_int32, [pointer]),
        ("llama_tokenize", C.c_int32, [pointer, C.c_char_p, C.c_int32, C.POINTER(C.c_int32), C.c_int32, C.c_bool, C.c_bool]),
        ("llama_batch_init", Batch, [C.c_int32, C.c_int32, C.c_int32]),
        ("llama_batch_free", None, [Batch]),
        ("llama_decode", C.c_int32, [pointer, Batch]),
        ("llama_get_logits_ith", C.POINTER(C.c_float), [pointer, C.c_int32]),
    ):
        function = getattr(lib, name)
        function.restype, function.argtypes = result, arguments
    lib.llama_backend_init()
    return lib


def open_model(lib, path, vocabulary_only=False):
    params = lib.llama_model_default_params()
    params.vocab_only = vocabulary_only
    params.use_extra_bufts = False  # weights as they lie in the file, not repacked
    model = lib.llama_model_load_from_file(path.encode(), params)
    if not model:
        raise SystemExit(f"llama.cpp does not load {path}")
    return model


class Session:
    """A model with one sequence; `logits(ids)` continues it."""

    def __init__(self, path, context, on_tensor=None, cache_type=0):
        self.lib = load_library()
        self.model = open_model(self.lib, path)
        params = self.lib.llama_context_default_params()
        params.n_ctx, params.n_batch, params.n_ubatch = context, 512, 512
        params.n_threads = params.n_threads_batch = os.cpu_count()
        params.type_k = params.type_v = cache_type  # 0 is f32, 1 is f16
        params.flash_attention = 0
        if on_tensor:
            self.callback = C.CFUNCTYPE(C.c_bool, C.POINTER(Tensor), C.c_bool, C.c_void_p)(on_tensor)
            params.cb_eval[0] = C.cast(self.callback, C.c_void_p).value
        self.context = self.lib.llama_init_from_model(self.model, params)
        if not self.context:
            raise SystemExit(f"llama.cpp makes no context of {context} tokens for {path}")
        self.vocabulary = self.lib.llama_vocab_n_tokens(self.lib.llama_model_get_vocab(self.model))
        self.past = 0

    def logits(self, ids):
        """Returns f32 [ids, vocabulary]."""
        return np.concatenate(list(self.blocks(ids)))

    def blocks(self, ids):
        """Yields f32 [up to 512 ids, vocabulary]."""
        for start in range(0, len(ids), 512):
            part = ids[start : start + 512]
            rows = np.empty((len(part), self.vocabulary), np.float32)
            batch = self.lib.llama_batch_init(len(part), 0, 1)
            batch.n_tokens = len(part)
            for i, token in enumerate(part):
                batch.token[i], batch.pos[i] = int(token), self.past + i
                batch.n_seq_id[i], batch.logits[i] = 1, 1
                batch.seq_id[i][0] = 0
            if self.lib.llama_decode(self.context, batch) != 0:
                raise SystemExit("llama_decode failed")
            for i in range(len(part)):
                rows[i] = np.ctypeslib.as_array(self.lib.llama_get_logits_ith(self.context, i), (self.vocabulary,))
            self.lib.llama_batch_free(batch)
            self.past += len(part)
            yield rows


def printed(values, depth=0):
    """Returns the lines of an array as llama.cpp prints it (common/debug.cpp): of more than six the first and last three."""
    indent, cut = "    " * (depth + 1), len(values) > 6
    shown = [*range(3), None, *range(len(values) - 3, len(values))] if cut else range(len(values))
    if depth == 3:
        return [indent[4:] + "[" + ", ".join("   ..." if i is None else f"{values[i]:12.4f}" for i in shown) + "  ],"]
    lines = []
    for i in shown:
        if i is None:
            lines.append(indent + "..., ")
        elif depth == 2:
            lines += printed(values[i], 3)
        else:
            lines += [indent + "[", *printed(values[i], depth + 1), indent + ("]," if depth else "]")]
    return lines


def ids_of(path):
    return np.load(path).reshape(-1)


def debug(path, tokens, out):
    """Writes what llama-eval-callback prints of a run."""
    import gguf  # the names of ggml's types

    def shape(tensor):
        return ", ".join(str(size) for size in tensor.ne)

    def on_tensor(given, ask, _):
        tensor = given.contents
        kind = gguf.GGMLQuantizationType(tensor.type).name.lower()
        if ask or kind not in ("f32", "f16", "i32", "i64"):
            return True
        first, second = (C.cast(at, C.POINTER(Tensor)).contents if at else None for at in tensor.src[:2])
        other = f"{second.name.decode()}{{{shape(second)}}}" if second else ""
        op = lib.ggml_op_desc(given).decode()
        dtype = np.dtype({"f": "float", "i": "int"}[kind[0]] + kind[1:])
        size = sum((n - 1) * step for n, step in zip(tensor.ne, tensor.nb)) + dtype.itemsize
        memory = (C.c_uint8 * size).from_address(tensor.data)
        values = np.ndarray(tuple(tensor.ne)[::-1], dtype, memory, 0, tuple(tensor.nb)[::-1]).astype(np.float32)
        head = f"common_debug_cb_eval: {tensor.name.decode():>24} = ({kind}) {op:>10}({first.name.decode()}{{{shape(first)}}}, {other}}}) = {{{shape(tensor)}}}"
        lines.extend([head, *printed(values), f"    sum = {values.sum():f}"])
        return True

    lines = []
    lib = C.CDLL(os.path.join(FOLDER, "libggml-base.so"))
    lib.ggml_op_desc.restype = C.c_char_p
    ids = ids_of(tokens)
    Session(path, max(256, len(ids)), on_tensor, 1).logits(ids)
    open(out, "w").write("\n".join(lines) + "\n")


def tokenize(path, texts, out):
    lib = load_library()
    vocabulary = lib.llama_model_get_vocab(open_model(lib, path, vocabulary_only=True))
    found = []
    for text in json.load(open(texts, encoding="utf8")):
        encoded = text.encode()
        room = (C.c_int32 * (len(encoded) + 8))()
        count = lib.llama_tokenize(vocabulary, encoded, len(encoded), room, len(room), False, True)
        found.append(room[:count])
    json.dump(found, open(out, "w"))


def long_text(path, tokens, rows_out, every, scores_out):
    """Keeps the logits of each `every`th token, and the log-probability of each next token."""
    ids, every = ids_of(tokens), int(every)
    session = Session(path, len(ids))
    kept, scores, start = [], [], 0
    for rows in session.blocks(ids):
        kept.append(rows[[i for i in range(len(rows)) if (start + i + 1) % every == 0]])
        for row, token in zip(rows, ids[start + 1 :]):
            scores.append(row[token] - row.max() - np.log(np.exp(row - row.max(), dtype=np.float64).sum()))
        start += len(rows)
    np.save(rows_out, np.concatenate(kept))
    np.save(scores_out, np.array(scores, np.float32))


def logits(*files):
    for path, tokens, out in zip(files[::3], files[1::3], files[2::3]):
        ids = ids_of(tokens)
        np.save(out, Session(path, max(256, len(ids))).logits(ids))


def greedy(path, tokens, count):
    ids = ids_of(tokens)
    session = Session(path, len(ids) + int(count))
    row = session.logits(ids)[-1]
    for _ in range(int(count)):
        token = int(row.argmax())
        print(token)
        row = session.logits([token])[-1]


TASKS = {"logits": logits, "long": long_text, "debug": debug, "greedy": greedy, "tokenize": tokenize}

if __name__ == "__main__":
    TASKS[sys.argv[1]](*sys.argv[2:])
