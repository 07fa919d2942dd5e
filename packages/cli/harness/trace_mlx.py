import os
import re

import mlx.core as mx

# The modules whose outputs are written: matched at the end of a module's name.
AT = r"embed_tokens|[qkv]_proj|o_proj|self_attn|mlp|\w*norm|layers\.\d+"


def trace(model, folder, at=AT):
    """PASTE this file beside yours. Before the run: trace(model, "theirs"). A forward pass is a file:
    FOLDER/step0.safetensors."""
    os.makedirs(folder)
    names = {id(module): name for name, module in model.named_modules()}
    tensors, step = {}, 0

    def keep(name, value):
        for n, one in enumerate(value if isinstance(value, (tuple, list)) else [value]):
            if isinstance(one, mx.array):
                tensors[f"{name}.{n}" if n else name] = one

    def rotated(name, x, out, offset):
        place = name.replace("rope", "k_rope" if name.replace("rope", "q_rope") in tensors else "q_rope")
        keep(place, out)
        if "positions" not in tensors:
            keep("positions", mx.array(offset) + mx.arange(x.shape[-2]))

    def wrap(kind):
        call = kind.__call__

        def traced(self, *args, **kwargs):
            nonlocal step
            name = names.get(id(self))
            if self is model:
                keep("tokens", args[0])
            out = call(self, *args, **kwargs)
            if name and re.search(rf"(?:^|\.)(?:{at})$", name):
                keep(name, out)
            elif name and name.endswith(".rope"):  # it rotates q, then k
                rotated(name, args[0], out, kwargs.get("offset", args[1] if len(args) > 1 else 0))
            if self is model:
                keep("logits", out)
                mx.save_safetensors(os.path.join(folder, f"step{step}.safetensors"), tensors)
                tensors.clear()
                step += 1
            return out

        kind.__call__ = traced

    for kind in {type(module) for _, module in model.named_modules()}:
        if "__call__" in kind.__dict__:
            wrap(kind)
