"""
Makes vectors of packages/model/test/golden/transformers: a random model as transformers saves it, transformers' logits and
greedy ids, and what llama.cpp's converter makes of it.

  python family_vectors.py LLAMA_CPP OUT NAME…    LLAMA_CPP: llama.cpp's sources (ggml-org/llama.cpp b11434), or - for none

NAME.safetensors; NAME.npz with tokens, logits, greedy; NAME.json with config, and in gguf the keys and the tensors (type,
shape, first digits of the sha256) of the converted file in f16. Prints how far llama.cpp's own logits are (f32 file, llama.py).
"""

import hashlib
import json
import logging
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import families
import numpy as np
import torch
from safetensors.torch import load_file, save_file

HERE = os.path.dirname(os.path.abspath(__file__))
# The names of published files, where transformers saves others and the converter does not know them.
ARCHITECTURES = {
    "PhimoeForCausalLM": "PhiMoEForCausalLM",
    "Mistral4ForCausalLM": "Mistral3ForConditionalGeneration",
}


def published(folder):
    """Changes a folder to the form of published files, where the converter reads only that."""
    path = os.path.join(folder, "config.json")
    config = json.load(open(path))
    config["architectures"] = [ARCHITECTURES.get(name, name) for name in config["architectures"]]
    json.dump(config, open(path, "w"))
    if config["model_type"] == "gemma4_text":  # the converter counts the tokens
        vocab = {str(n): n for n in range(config["vocab_size"])}
        json.dump(dict(model=dict(vocab=vocab), added_tokens=[]), open(os.path.join(folder, "tokenizer.json"), "w"))
    if config["model_type"] != "qwen3_vl_moe":
        return
    path = os.path.join(folder, "model.safetensors")
    tensors = load_file(path)
    for name in tensors:
        if name.endswith(("experts.gate_up_proj", "experts.down_proj")):
            tensors[name] = tensors[name].transpose(1, 2).contiguous()
    save_file(tensors, path, {"format": "pt"})


def convert(source, folder, out, kind):
    """Runs llama.cpp's converter without a vocabulary."""
    sys.path[:0] = [path for path in (f"{source}/gguf-py", source) if path not in sys.path]
    import gguf
    from conversion import get_model_class
    from conversion.base import ModelBase, ModelType
    from conversion.deepseek import DeepseekV2Model
    from convert_hf_to_gguf import get_model_architecture

    def no_vocabulary(model):
        model.gguf_writer.add_tokenizer_model("no_vocab")
        model.gguf_writer.add_vocab_size(model.hparams["vocab_size"])

    logging.disable(logging.WARNING)
    types = {"f32": gguf.LlamaFileType.ALL_F32, "f16": gguf.LlamaFileType.MOSTLY_F16}
    with torch.inference_mode():
        made = get_model_class(get_model_architecture(ModelBase.load_hparams(folder, False), ModelType.TEXT))
        for one in [*made.__mro__, DeepseekV2Model]:
            if hasattr(one, "set_vocab"):
                one.set_vocab = no_vocabulary
        if hasattr(made, "get_attn_layers"):  # transformers 5 writes other names of layer types than the converter reads
            made.get_attn_layers = lambda model: list(range(model.block_count))
        made(folder, types[kind], Path(out)).write()


def header(path):
    from gguf import GGUFReader

    reader = GGUFReader(path)
    keys = {name: field.contents() for name, field in reader.fields.items() if not name.startswith("GGUF.")}
    tensors = {
        one.name: [one.tensor_type.name, [int(n) for n in one.shape], hashlib.sha256(one.data.tobytes()).hexdigest()[:12]]
        for one in reader.tensors
    }
    return dict(keys=keys, tensors=tensors)


def main(source, out, name):
    with tempfile.TemporaryDirectory() as folder:
        families.main(name, folder)
        arrays = {key: np.load(f"{folder}/{key}.npy") for key in ("tokens", "logits", "greedy")}
        config = json.load(open(f"{folder}/config.json"))
        os.replace(f"{folder}/model.safetensors", f"{out}/{name}.safetensors")
        save_file(load_file(f"{out}/{name}.safetensors"), f"{folder}/model.safetensors", {"format": "pt"})
        if source == "-":
            json.dump(dict(config=config), open(f"{out}/{name}.json", "w"), separators=(",", ":"))
            return np.savez_compressed(f"{out}/{name}.npz", **arrays)
        published(folder)
        for kind in ("f16", "f32"):
            convert(source, Path(folder), f"{folder}/{kind}.gguf", kind)
        given = dict(config=config, gguf=header(f"{folder}/f16.gguf"))
        json.dump(given, open(f"{out}/{name}.json", "w"), separators=(",", ":"))
        np.savez_compressed(f"{out}/{name}.npz", **arrays)
        command = [sys.executable, f"{HERE}/llama.py", "logits", f"{folder}/f32.gguf", f"{folder}/tokens.npy", f"{folder}/own.npy"]
        subprocess.run(command, check=True, capture_output=True)
        off = np.abs(np.load(f"{folder}/own.npy").reshape(arrays["logits"].shape) - arrays["logits"]).max()
        print(f"{name}: llama.cpp's logits are {off:.1e} off")


if __name__ == "__main__":
    for each in sys.argv[3:]:
        main(sys.argv[1], sys.argv[2], each)
