"""
llama.cpp in process, by its C interface: the library is the one that node-llama-cpp brings (`npm run peers`; llama.cpp v0.4.0).

  python llama.py logits MODEL.gguf TOKENS.npy OUT.npy [EVERY SCORES.npy]
      f32 [tokens, vocabulary], with f32 caches; only of each EVERYth token, and the log-probability of each next token
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

    def __init__(self, path, context):
        self.lib = load_library()
        self.model = open_model(self.lib, path)
        params = self.lib.llama_context_default_params()
        params.n_ctx, params.n_batch, params.n_ubatch = context, 512, 512
        params.n_threads = params.n_threads_batch = os.cpu_count()
        params.type_k = params.type_v = 0  # f32
        params.flash_attention = 0
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


def long_text(session, ids, every, rows_out, scores_out):
    """Keeps the logits of each `every`th token, and the log-probability of each next token."""
    kept, scores, start = [], [], 0
    for rows in session.blocks(ids):
        kept.append(rows[[i for i in range(len(rows)) if (start + i + 1) % every == 0]])
        for row, token in zip(rows, ids[start + 1 :]):
            scores.append(row[token] - row.max() - np.log(np.exp(row - row.max(), dtype=np.float64).sum()))
        start += len(rows)
    np.save(rows_out, np.concatenate(kept))
    np.save(scores_out, np.array(scores, np.float32))


def main(task, path, given, last, every=None, scores=None):
    if task == "tokenize":
        return tokenize(path, given, last)
    ids = np.load(given).reshape(-1)
    if task == "logits" and every:
        return long_text(Session(path, len(ids)), ids, int(every), last, scores)
    if task == "logits":
        return np.save(last, Session(path, max(256, len(ids))).logits(ids))
    session = Session(path, len(ids) + int(last))
    row = session.logits(ids)[-1]
    for _ in range(int(last)):
        token = int(row.argmax())
        print(token)
        row = session.logits([token])[-1]


if __name__ == "__main__":
    main(*sys.argv[1:])
