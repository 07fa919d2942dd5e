"""Writes tokenizers.jsonl: what the peers make of the same texts and vocabularies. Run in an empty folder:

    python3 make.py base            # base.json and one GGUF a pre-tokenizer; needs tokenizers 0.23.2, gguf 0.19.0, numpy
    node llama.mjs STORIES.gguf     # llama.json; needs node-llama-cpp 3.22.1 (llama.cpp as its package has it)
    python3 make.py join STORIES/tokenizer.json

The vocabulary is learned here without a pre-tokenizer, so that its merges cross every border that one may draw.
"""

import json
import random
import sys

import numpy as np
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

LINES = [
    "It's 2026 and they'll pay $1,234.56 for 12345 apples; we'd say 'DON'T'!\n",
    "def main():\n    return x[10] + 3.14159  # ok\n\n\n",
    "Straße, naïve café, Größe, ÀÉÎ; Привет, мир 123; 你好世界 2024年; नमस्ते दुनिया; مرحبا 42\n",
    "HTTPServer camelCase XMLParser I'M YOU'RE can't   three   spaces\t\ttabs\r\n\r\n",
    "a.b,c;d:e!?  ...  ---  ###  <html> ^~| `code` == != >= <= ++ --\n",
    "👍🏽 👨\u200d👩\u200d👧 emoji ½ ² Ⅷ x²+y³\n",
    "iPad eBay aB aB aBaB\n",
]
CORNERS = [
    "\u00a0x\u2003y\u3000z\ufeffw", "  ", "\n \n", "x  \n  y", "1", "12", "1234567", "a1b22c333",
    "'S 'Ll 'x", "é\u0301e\u0301", "ˈa ʰb ǅž",
]  # fmt: skip
SPECIAL = ["<s>", "</s>", "<|im_end|>", "<tool>"]
TYPES = [3, 3, 3, 4]
GGUF = ["llama-bpe", "qwen2", "gpt-2", "smollm", "default", "deepseek-coder", "falcon", "qwen35", "stablelm2", "chatglm-bpe"]

C = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
REST = r"| ?[^\s\p{L}\p{N}]+[\r\n%s]*|\s*[\r\n]+|\s+(?!\S)|\s+"
UP, LOW = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
MIXED = r"[^\r\n\p{L}\p{N}]?" + UP + "*" + LOW + "+%s|" + r"[^\r\n\p{L}\p{N}]?" + UP + "+" + LOW + r"*%s|\p{N}%s"
# As the models' own tokenizer.json have them, quoted in llama.cpp's src/llama-vocab.cpp beside its versions.
PATTERNS = {
    "llama-bpe": C + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}" + REST % "",
    "qwen2": C + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}" + REST % "",
    "tekken": MIXED % ("", "", "") + REST % "/",
    "gpt-4o": MIXED % (C + "?", C + "?", "{1,3}") + REST % "/",
}


def base() -> None:
    import gguf

    tok = Tokenizer(models.BPE())
    tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tok.train_from_iterator(LINES * 20, trainers.BpeTrainer(
        vocab_size=676, initial_alphabet=alphabet, show_progress=False, max_token_length=12))  # fmt: skip
    model = json.loads(tok.to_str())["model"]
    vocab = sorted(model["vocab"], key=model["vocab"].get)
    merges = [" ".join(m) if isinstance(m, list) else m for m in model["merges"]]
    random.seed(7)
    chunks = sorted({word for line in LINES for word in line.replace(" ", "\0 ").split("\0")})
    texts = LINES + ["".join(random.choice(chunks) for _ in range(12)) for _ in range(6)] + CORNERS
    json.dump({"vocab": vocab, "merges": merges, "texts": texts}, open("base.json", "w"), ensure_ascii=False)
    rng = np.random.default_rng(0)
    for pre in GGUF:
        w = gguf.GGUFWriter(f"{pre}.gguf", "llama")
        w.add_context_length(128); w.add_embedding_length(32); w.add_block_count(1); w.add_feed_forward_length(32)  # fmt: skip
        w.add_head_count(2); w.add_head_count_kv(2); w.add_layer_norm_rms_eps(1e-5); w.add_rope_dimension_count(16)  # fmt: skip
        w.add_tokenizer_model("gpt2"); w.add_tokenizer_pre(pre)  # fmt: skip
        w.add_token_list(vocab + SPECIAL); w.add_token_types([1] * len(vocab) + TYPES); w.add_token_merges(merges)  # fmt: skip
        w.add_bos_token_id(len(vocab)); w.add_eos_token_id(len(vocab) + 1); w.add_add_bos_token(False)  # fmt: skip
        shapes = {"token_embd": (len(vocab) + 4, 32), "output_norm": (32,), "output": (len(vocab) + 4, 32)}
        for name in ["attn_norm", "ffn_norm"]:
            shapes[f"blk.0.{name}"] = (32,)
        for name in ["attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"]:
            shapes[f"blk.0.{name}"] = (32, 32)
        for name, shape in shapes.items():
            w.add_tensor(f"{name}.weight", rng.standard_normal(shape).astype(np.float32))
        w.write_header_to_file(); w.write_kv_data_to_file(); w.write_tensors_to_file(); w.close()  # fmt: skip


def join(stories: str) -> None:
    data = json.load(open("base.json"))
    llama = json.load(open("llama.json"))
    data["special"], data["types"] = SPECIAL, TYPES
    data["llama"] = llama["gguf"]
    data["patterns"] = PATTERNS
    data["huggingface"] = {}
    ids = {token: n for n, token in enumerate(data["vocab"])}
    merges = [tuple(m.split(" ")) for m in data["merges"]]
    for pre, pattern in PATTERNS.items():
        ignore = pre in ("llama-bpe", "tekken")
        tok = Tokenizer(models.BPE(vocab=ids, merges=merges, ignore_merges=ignore))
        tok.pre_tokenizer = pre_tokenizers.Sequence([
            pre_tokenizers.Split(Regex(pattern), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])  # fmt: skip
        tok.decoder = decoders.ByteLevel()
        data["huggingface"][pre] = [tok.encode(text, add_special_tokens=False).ids for text in data["texts"]]
    tok = Tokenizer.from_file(stories)
    texts = data["texts"] + ["Once upon a time", " leading", "trailing ", "a</s>b <s> c", ""]
    encoded = [tok.encode(text).ids for text in texts]
    cuts = [ids[at:] for ids in encoded for at in (0, 1, 2, 3)] + [ids[:5] for ids in encoded]
    decoded = [[ids, tok.decode(ids, skip_special_tokens=True), tok.decode(ids, skip_special_tokens=False)] for ids in cuts if ids]
    # Bytes that are no UTF-8 become one U+FFFD each there, and one a broken character in WHATWG's decoder.
    data["stories"] = {
        "texts": texts, "encode": encoded, "decode": [d for d in decoded if "\ufffd" not in d[1]],
        "llama": llama["stories"],
    }  # fmt: skip
    data["made"] = {"by": "test/model/golden/make.py", "tokenizers": "0.23.2", "node-llama-cpp": "3.22.1", "llama.cpp": llama["release"]}
    with open("tokenizers.jsonl", "w", encoding="utf-8") as out:
        json.dump(data, out, ensure_ascii=True, separators=(",", ":"))
        out.write("\n")


base() if sys.argv[1] == "base" else join(sys.argv[2])
