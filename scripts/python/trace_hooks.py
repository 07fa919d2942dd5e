"""Writes dumps of one model by the hooks of `ropewalk harness trace-…`, by torch.save and by SGLang's dumper.

trace_hooks.py FOLDER MODEL DUMPER: FOLDER has the hooks, DUMPER is the path of SGLang's dumper.py. Reads tokens from FOLDER/tokens.json.
"""

import importlib.util
import json
import os
import sys
import types
from unittest.mock import MagicMock

import numpy
import torch
from transformers import AutoModelForCausalLM
from transformers.models.llama import modeling_llama

folder, path, dumper_path = sys.argv[1:]
os.chdir(folder)
sys.path.insert(0, ".")
tokens = torch.tensor([json.load(open("tokens.json"))])


def load():
    return AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, attn_implementation="eager").eval()


with torch.no_grad():
    from trace_torch import Trace

    model = load()
    Trace(model, "torch")
    model(input_ids=tokens)

    from trace_transformers import trace

    model = load()
    trace(model, "transformers")
    cache = model(input_ids=tokens[:, :-2]).past_key_values
    for n in (-2, -1):
        model(input_ids=tokens[:, n:][:, :1], past_key_values=cache)

# The modules of vLLM that the hook looks for: a rotary_emb that all layers share and that writes in place, layers that
# return a tuple, and a logits_processor that is called after the pass.
vllm = types.ModuleType("vllm.distributed")
vllm.get_tensor_model_parallel_rank = lambda: 1
sys.modules["vllm"], sys.modules["vllm.distributed"] = types.ModuleType("vllm"), vllm
nn = torch.nn


class Rotary(nn.Module):
    def forward(self, positions, q, k):
        q *= 2
        return q, k


class Attention(nn.Module):
    def __init__(self, rotary):
        super().__init__()
        self.qkv_proj, self.rotary_emb = nn.Linear(8, 24), rotary

    def forward(self, positions, x):
        q, k, v = self.qkv_proj(x).split(8, dim=-1)
        q, k = self.rotary_emb(positions, q, k)
        return q + k + v


class Layer(nn.Module):
    def __init__(self, rotary):
        super().__init__()
        self.self_attn = Attention(rotary)

    def forward(self, positions, x, residual):
        return self.self_attn(positions, x), residual


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        rotary = Rotary()
        self.embed_tokens = nn.Embedding(16, 8)
        self.layers = nn.ModuleList([Layer(rotary), Layer(rotary)])
        self.logits_processor = nn.Identity()

    def forward(self, input_ids, positions):
        x = self.embed_tokens(input_ids)
        for layer in self.layers:
            x, _ = layer(positions, x, x)
        return x


from trace_vllm import trace as trace_vllm

with torch.no_grad():
    model = Model()
    trace_vllm(model, "vllm")
    for _ in range(2):
        model.logits_processor(model(input_ids=torch.arange(5), positions=torch.arange(5) + 3))

from trace_onnxruntime import Trace as GraphTrace

for graph in ("graph", "wrong"):
    tracer = GraphTrace(f"{graph}/onnx/model.onnx", f"{graph}-dump", providers=["CPUExecutionProvider"])
    cache = {f"past_key_values.{n}.{one}": numpy.zeros((1, 2, 0, 32), "f") for n in range(4) for one in ("key", "value")}
    for part in (tokens[:, :20], tokens[:, 20:]):
        seen = numpy.ones((1, cache["past_key_values.0.key"].shape[2] + part.shape[1]), "i8")
        feeds = {"input_ids": part.numpy(), "attention_mask": seen, "num_logits_to_keep": numpy.array(part.shape[1])}
        outputs = tracer.run({**feeds, **cache})
        cache = {name: outputs[name.replace("past_key_values", "present")] for name in cache}

from trace_numpy import Trace as NumpyTrace

tracer = NumpyTrace("numpy")
for step in range(2):
    q = numpy.full((5, 2, 4), step, dtype=numpy.float32)
    tracer.keep("positions", numpy.arange(5))
    tracer.keep("layers.0.q", q)
    q += 1
    tracer.keep("layers.0.q_rope", q)
    tracer.write()

x = torch.arange(12, dtype=torch.bfloat16).reshape(3, 4)
torch.save({"tokens": tokens, "layers": [{"q": x, "k": x.t()}]}, "saved.pt")

# SGLang's own dumper. What it imports of the server, which is not installed, has no part in a dump.
for name in ("zmq", "sglang", *(f"sglang.srt{one}" for one in ("", ".managers", ".managers.io_struct", ".runtime_context", ".utils"))):
    sys.modules[name] = MagicMock()
spec = importlib.util.spec_from_file_location("sglang_dumper", dumper_path)
sys.modules["sglang_dumper"] = sglang = importlib.util.module_from_spec(spec)
spec.loader.exec_module(sglang)
sglang.dumper.configure(enable=True, dir=".", exp_name="sglang", enable_output_console=False, non_intrusive_mode="all")
rotate = modeling_llama.apply_rotary_pos_emb


def rotate_and_dump(*args, **more):
    made = rotate(*args, **more)
    for name, value in zip(("q_after_rope", "k_after_rope"), made):
        sglang.dumper.dump(name, value)  # the number of the layer is in its context
    return made


modeling_llama.apply_rotary_pos_emb = rotate_and_dump
with torch.no_grad():
    model = load()
    sglang.dumper.register_non_intrusive_dumper(model)
    cache = model(input_ids=tokens[:, :-2]).past_key_values
    sglang.dumper.step()
    model(input_ids=tokens[:, -2:], past_key_values=cache)
