"""
Random encoders, and decoders without a head, in f32, as transformers 5 saves them, with their hidden states.

  python encoders.py FOLDER    FOLDER/NAME with config.json, model.safetensors, tokens.npy, and hidden-N.npy of the first
                               N tokens, [N, hidden]

Biases are not 0 and gains not 1. A token sees 6 others on each side in sliding layers.
"""

import os
import sys

import numpy as np
import torch
import transformers

SIZES = dict(vocab_size=64, hidden_size=32, intermediate_size=48, num_attention_heads=4, max_position_embeddings=256, pad_token_id=0)
ENCODERS = {
    "eurobert": ("EuroBertConfig", dict(num_hidden_layers=2, num_key_value_heads=2, rope_theta=250000.0)),
    "modernbert": ("ModernBertConfig", dict(num_hidden_layers=5, local_attention=12)),
    "nomic_bert": ("NomicBertConfig", dict(num_hidden_layers=3)),
    "qwen3": ("Qwen3Config", dict(num_hidden_layers=2, num_key_value_heads=2, head_dim=12, tie_word_embeddings=False)),
    "gpt_neox": ("GPTNeoXConfig", dict(num_hidden_layers=2, tie_word_embeddings=False)),
    "gemma3": ("Gemma3TextConfig", dict(
        num_hidden_layers=7, num_key_value_heads=1, head_dim=16, query_pre_attn_scalar=12, sliding_window=12, use_bidirectional_attention=True,
    )),
}
LENGTHS = [1, 2, 6, 7, 8, 12, 13, 14, 40]

for name, (config, own) in ENCODERS.items():
    torch.manual_seed(sorted(ENCODERS).index(name))
    model = transformers.AutoModel.from_config(getattr(transformers, config)(**SIZES, **own)).float().eval()
    for key, value in model.named_parameters():
        gain = value.ndim == 1 and key.endswith("weight") and name != "gemma3"  # Gemma's files have gains less 1
        value.data = torch.randn_like(value) * (0.1 if value.ndim == 1 else 0.3) + gain
    tokens = np.random.default_rng(3).integers(3, 64, LENGTHS[-1]).astype(np.int32)
    tokens[0] = 1  # as a tokenizer begins it
    folder = os.path.join(sys.argv[1], name)
    model.save_pretrained(folder)
    np.save(os.path.join(folder, "tokens.npy"), tokens)
    for count in LENGTHS:
        with torch.no_grad():
            hidden = model(input_ids=torch.tensor(tokens[None, :count].astype(np.int64))).last_hidden_state[0]
        np.save(os.path.join(folder, f"hidden-{count}.npy"), hidden.numpy())
