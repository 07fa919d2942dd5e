"""
The logits of transformers in f32, for a model's folder.

  python logits.py FOLDER TOKENS.npy OUT.npy [COUNT]    f32 [tokens, vocabulary]; prints COUNT greedy ids that follow
  python logits.py FOLDER TOKENS.npy OUT.npy POSITIONS.npy    the same with these position ids
"""

import sys

import numpy as np
import torch
from transformers import AutoModelForCausalLM

folder, tokens, out, *count = sys.argv[1:]
positions = count.pop() if count and count[0].endswith(".npy") else None
model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
ids = torch.tensor(np.load(tokens).astype(np.int64).reshape(1, -1))
with torch.no_grad():
    places = None if positions is None else torch.tensor(np.load(positions).astype(np.int64).reshape(1, -1))
    np.save(out, model(ids, position_ids=places).logits[0].numpy())
    if count:
        found = model.generate(ids, max_new_tokens=int(count[0]), do_sample=False, num_beams=1, eos_token_id=-1)
        print(*found[0, ids.shape[1] :].tolist())
