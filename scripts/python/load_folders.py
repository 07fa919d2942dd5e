"""
Loads folders by the class that their config.json names, and writes the logits of a text.

  python load_folders.py FOLDER…    reads tokens.npy in each, writes back.npy there, and prints JSON: what failed, by folder
"""

import json
import os
import sys

import numpy as np
import torch
import transformers

transformers.logging.set_verbosity_error()
errors = {}
for folder in sys.argv[1:]:
    try:
        config = transformers.AutoConfig.from_pretrained(folder)
        # The vocabularies here are smaller than the padding token that some classes have where a config says none.
        if (config.pad_token_id or 0) >= config.vocab_size:
            config.pad_token_id = None
        model, info = getattr(transformers, config.architectures[0]).from_pretrained(
            folder, config=config, dtype=torch.float32, attn_implementation="eager", output_loading_info=True
        )
        lost = {key: sorted(map(str, names))[:3] for key, names in info.items() if names}
        if lost:
            raise ValueError(f"weights that do not fit: {lost}")
        tokens = torch.tensor(np.load(os.path.join(folder, "tokens.npy")).astype(np.int64))[None]
        with torch.no_grad():
            np.save(os.path.join(folder, "back.npy"), model.eval()(tokens).logits[0].numpy())
    except Exception as error:  # any failure of transformers is a result
        errors[folder] = f"{type(error).__name__}: {error}"
print(json.dumps(errors))
