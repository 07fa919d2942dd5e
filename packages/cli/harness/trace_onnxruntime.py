import os
import re

import numpy as np
import onnx
import onnxruntime


class Trace:
    """PASTE this file beside yours, and run the graph through it: tracer = Trace("model.onnx", "theirs"), then
    tracer.run({"input_ids": ids, ...}) in place of session.run(None, ...). It returns the outputs by name.

    Each tensor of floats becomes an output of a copy in memory; external weights stay where they are. FOLDER/step0-rank0.npz
    has those of the first pass. Further arguments are those of InferenceSession."""

    def __init__(self, path, folder, **session):
        self.path = os.path.join(folder, "step{}-rank0.npz")
        if os.path.exists(self.path.format(0)):
            raise FileExistsError(f"{folder} has a dump. Take another folder.")
        os.makedirs(folder, exist_ok=True)
        model = onnx.load(path, load_external_data=False)
        outputs = [output.name for output in model.graph.output]
        made = [name for node in model.graph.node for name in node.output if name]
        model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in made if name not in outputs)
        start = os.getcwd()
        os.chdir(os.path.dirname(os.path.abspath(path)))  # from there external weights are found
        try:
            self.session = onnxruntime.InferenceSession(model.SerializeToString(), **session)
        finally:
            os.chdir(start)
        self.step, self.outputs, self.names = 0, outputs, names(made)

    def run(self, feeds):
        got = dict(zip([output.name for output in self.session.get_outputs()], self.session.run(None, feeds)))
        kept = {"tokens": feeds.get("input_ids"), "positions": feeds.get("position_ids")}
        for output, name in self.names.items():
            if isinstance(got.get(output), np.ndarray) and got[output].dtype.kind == "f":
                past = feeds.get(re.sub("^present(_key_values)?", "past_key_values", output))
                kept[name] = got[output] if past is None else got[output][:, :, past.shape[2]:]  # the new keys alone
        np.savez(self.path.format(self.step), **{name: value for name, value in kept.items() if value is not None})
        self.step += 1
        return {name: got[name] for name in self.outputs}


def names(made):
    """Names tensors by their modules, where exporters kept these: /model/layers.0/self_attn/q_proj/Add_output_0. The last
    tensor of a module is its output."""
    found = {}
    for output in made:
        cache = re.fullmatch(r"present(?:_key_values)?\.(\d+)\.(key|value)", output)
        module = re.fullmatch(r"/?(.*(?:proj|norm|embed_tokens|lm_head|[qk]_rotary))/\w+[/_]output_0", output)
        if cache:
            found[f"layers.{cache[1]}.{'k_rope' if cache[2] == 'key' else 'v'}"] = output
        elif module:
            found[module[1].replace("/", ".").replace("_rotary", "_rope")] = output
        else:
            found[output.strip("/").replace("/", ".")] = output
    return {output: name for name, output in found.items()}
