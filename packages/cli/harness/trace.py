import os
import re

import torch
from safetensors.torch import save_file

# The modules whose outputs are written: matched at the end of a module's name.
AT = (
    r"embed_tokens|wte|[qkv]_proj|qkv_proj|o_proj|self_attn|attn|(?:gate|up|gate_up)_proj|mlp"
    r"|\w*norm|ln_\w+|lm_head|(?:layers|h)\.\d+"
)
# Those whose inputs are written: with them a wrong matrix is told from what was computed before it.
INTO = r"self_attn\.o_proj|mlp\.down_proj"


class Trace:
    """Writes the outputs of a model's modules, a file for each forward pass: FOLDER/step0-rank0.safetensors."""

    def __init__(self, model, folder, at=AT, rank=0):
        self.path = os.path.join(folder, "step{}-rank" + str(rank) + ".safetensors")
        if os.path.exists(self.path.format(0)):
            raise FileExistsError(f"{folder} has a dump. Take another folder.")
        os.makedirs(folder, exist_ok=True)
        self.step, self.tensors, self.attention = 0, {}, ""
        for name, module in model.named_modules():
            if re.search(rf"(?:^|\.)(?:{at})$", name):
                module.register_forward_hook(lambda _, args, out, name=name: self.keep(name, out))
            if re.search(rf"(?:^|\.)(?:{INTO})$", name):
                module.register_forward_hook(lambda _, args, out, name=name: self.keep(f"{name}.input", args[0]))
            if re.search(r"(?:^|\.)(?:self_attn|attn|attention)$", name):
                module.register_forward_pre_hook(lambda *_, name=name: setattr(self, "attention", name))
        model.register_forward_pre_hook(self.inputs, with_kwargs=True)
        model.register_forward_hook(lambda _, args, out: self.write(getattr(out, "logits", None)))

    def keep(self, name, value):
        """Keeps a tensor; of a tuple the further ones as NAME.1 and so on."""
        for n, one in enumerate(value if isinstance(value, (tuple, list)) else [value]):
            if isinstance(one, torch.Tensor):
                self.tensors[f"{name}.{n}" if n else name] = one.detach().to("cpu", copy=True).contiguous()

    def rotated(self, q, k):
        self.keep(f"{self.attention}.q_rope", q)
        self.keep(f"{self.attention}.k_rope", k)

    def inputs(self, _, args, kwargs):
        self.keep("tokens", kwargs.get("input_ids", args[0] if args else None))
        self.keep("positions", kwargs.get("positions", kwargs.get("position_ids")))

    def write(self, logits=None):
        if logits is not None:  # scaled and capped, where the model does so
            self.tensors.pop("lm_head", None)
            self.keep("logits", logits)
        save_file(self.tensors, self.path.format(self.step))
        self.step, self.tensors = self.step + 1, {}
