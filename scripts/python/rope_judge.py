"""
Says what transformers' own rotary classes make of config.json files, for tests beside our reader.

  python rope_judge.py CASES.json

CASES.json is a list of {"config": {...}, "context": tokens or null}. It prints {"version", "answers"}, one answer each:
{"layerTypes": [...] or null, "ropes": {layer type or "": {"invFreq", "invFreq32", "attentionScaling"}}, "saved"}, or
{"error"}. invFreq comes from the same code with float64 in place of float32, so it is free of torch's rounding;
invFreq32 is as torch computes it. A context beyond the original one makes a class change its frequencies, as in its
forward pass. "saved" is the config.json that save_pretrained writes.
"""

import contextlib
import copy
import importlib
import json
import sys
import warnings

warnings.filterwarnings("ignore")
import torch
import transformers
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.utils import logging

logging.set_verbosity(logging.CRITICAL)


def rotary_class(model_type, config):
    """Finds the class beside the model's own attention. Vision and audio parts have others."""
    module = importlib.import_module(config.__class__.__module__.replace("configuration_", "modeling_"))
    names = [
        name
        for name, value in vars(module).items()
        if name.endswith("RotaryEmbedding")
        and getattr(value, "__module__", "") == module.__name__
        and not any(other in name for other in ("Vision", "Audio", "Unpadded", "Scaling", "DiT", "Talker"))
    ]
    return getattr(module, names[0]) if names else None


def four_by_type(config, rotary):
    """transformers 4 has two rotary objects in some models; these are the configs that its model classes give them."""
    local = copy.deepcopy(config)
    kind = config.model_type.removesuffix("_text")
    if kind in ("gemma3", "gemma3n"):
        local.rope_theta = config.rope_local_base_freq
        local.rope_scaling = {"rope_type": "default"}
    elif kind == "modernbert":
        wide = copy.deepcopy(config)
        wide.rope_theta = config.global_rope_theta
        local.rope_theta = config.global_rope_theta if config.local_rope_theta is None else config.local_rope_theta
        return {"full_attention": rotary(config=wide), "sliding_attention": rotary(config=local)}
    elif kind == "olmo3":
        return {"full_attention": rotary(config=config), "sliding_attention": rotary(config=config, rope_type="default")}
    else:
        return {"": rotary(config=config)}
    return {"full_attention": rotary(config=config), "sliding_attention": rotary(config=local)}


def ropes_of(config, rotary, context):
    """Returns inv_freq and the attention scaling of each layer type, after the context was seen."""
    if transformers.__version__.startswith("4."):
        objects = four_by_type(config, rotary)
    else:
        whole = rotary(config=config)
        types = getattr(whole, "rope_type", None)
        objects = {name: whole for name in types} if isinstance(types, dict) else {"": whole}
    found = {}
    for name, one in objects.items():
        prefix = f"{name}_" if hasattr(one, f"{name}_inv_freq") else ""
        more = {"layer_type": name} if prefix else {}
        scaling = getattr(one, f"{prefix}attention_scaling", getattr(one, "attention_scaling", 1.0))
        # Classes of several position axes change their frequencies, and then fail on positions of one axis.
        with contextlib.suppress(RuntimeError, IndexError):
            turned = one(torch.zeros(1, 1, 1), torch.tensor([[0, (context or 1) - 1]]), **more)
            # cos of position 0 is the factor; DeepSeek V2 has complex numbers.
            scaling = abs((turned[0] if isinstance(turned, tuple) else turned).flatten()[0].item())
        # PhiMoE's forward pass computes them anew, without the length.
        values = one.rope_init_fn(config)[0] if config.model_type == "phimoe" else getattr(one, f"{prefix}inv_freq")
        found[name] = (values.flatten().tolist(), float(scaling))
    return found


def in_double(run):
    """Runs with float64 wherever transformers' code says float32."""
    kept = torch.float, torch.float32, torch.Tensor.float
    torch.float = torch.float32 = torch.float64
    torch.Tensor.float = torch.Tensor.double
    torch.set_default_dtype(torch.float64)
    try:
        return run()
    finally:
        torch.float, torch.float32, torch.Tensor.float = kept
        torch.set_default_dtype(kept[0])


def answer(case):
    fields = copy.deepcopy(case["config"])
    context = case.get("context")

    def read():
        return CONFIG_MAPPING[fields["model_type"]].from_dict(copy.deepcopy(fields)).get_text_config(decoder=True)

    try:
        saved = json.loads(CONFIG_MAPPING[fields["model_type"]].from_dict(copy.deepcopy(fields)).to_json_string())
        config = read()
        rotary = rotary_class(config.model_type, config)
        if rotary is None:
            return {"error": "no rotary class"}
        single = ropes_of(read(), rotary, context)
        double = in_double(lambda: ropes_of(read(), rotary, context))
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"[:300]}
    ropes = {
        name: {"invFreq": values, "invFreq32": single[name][0], "attentionScaling": scaling}
        for name, (values, scaling) in double.items()
    }
    return {"layerTypes": getattr(config, "layer_types", None), "ropes": ropes, "saved": saved}


if __name__ == "__main__":
    with open(sys.argv[1]) as file:
        cases = json.load(file)
    json.dump({"version": transformers.__version__, "answers": [answer(case) for case in cases]}, sys.stdout)
