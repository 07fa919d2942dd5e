"""
Random models of families.py in f32, as this version of transformers saves them, with its logits.

  python saved_models.py FOLDER NAME[+FORM]…  FOLDER/NAME+FORM with config.json, model.safetensors, tokens.npy, and logits of all
                                         tokens: plain.npy, cached.npy (5 tokens, then one by one), padded.npy (two
                                         tokens of padding on the left, masked)

FORM is bf16, f16, shards, or fresh: the names of transformers 5's own modules, with all experts in one tensor.
It prints {"version", "errors": {NAME: why this version cannot make or run it}}.
"""

import json
import os
import sys

import families
import numpy as np
import torch
import transformers

PADDING = 2
PREFILL = 5


def save(name, folder):
    family, _, form = name.partition("+")
    model = families.make(family).float()
    if form == "bf16":
        # Parameters only: the frequencies of RoPE stay in f32.
        for value in model.parameters():
            value.data = value.data.bfloat16().float()
    config = model.config.get_text_config()
    tokens = np.random.default_rng(3).integers(3, config.vocab_size, 14).astype(np.int32)
    ids = torch.tensor(tokens[None].astype(np.int64))
    # Without a cache, layers of transformers 4's Gemma 3n that share keys and values have their own.
    shares = name.startswith("gemma3n")
    with torch.no_grad():
        plain = model(input_ids=ids, use_cache=shares).logits[0]
        cache, cached = None, []
        for start, end in [(0, PREFILL), *((at, at + 1) for at in range(PREFILL, ids.shape[1]))]:
            # transformers 4 takes the places of tokens from its caller in some models, and 5 from the cache.
            places = {"cache_position": torch.arange(start, end)} if transformers.__version__[0] == "4" else {}
            out = model(input_ids=ids[:, start:end], past_key_values=cache, use_cache=True, **places)
            cache = out.past_key_values
            if cache is None:
                # transformers 4 makes no cache for hybrid models, even without a Mamba layer.
                cached = [plain]
                break
            cached.append(out.logits[0])
        padding = torch.zeros(1, PADDING, dtype=torch.int64)
        padded = model(
            input_ids=torch.cat([padding, ids], 1),
            attention_mask=torch.cat([padding, torch.ones_like(ids)], 1),
            use_cache=shares,
        ).logits[0, PADDING:]
    # The weights are those of f16 or bf16, so a file of that type has the same model.
    saved = model.to({"bf16": torch.bfloat16, "f16": torch.float16}.get(form, torch.float32))
    saved.save_pretrained(folder, max_shard_size="40KB" if form == "shards" else "5GB", **({"save_original_format": False} if form == "fresh" else {}))
    for key, value in dict(plain=plain, cached=torch.cat(cached), padded=padded).items():
        np.save(os.path.join(folder, f"{key}.npy"), value.numpy())
    np.save(os.path.join(folder, "tokens.npy"), tokens)


if __name__ == "__main__":
    errors = {}
    for one in sys.argv[2:]:
        try:
            save(one, os.path.join(sys.argv[1], one))
        except Exception as error:
            errors[one] = f"{type(error).__name__}: {error}"[:300]
    print(json.dumps({"version": transformers.__version__, "errors": errors}))
