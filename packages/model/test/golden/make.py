"""Writes tokenizers.jsonl: what the peers make of the same texts and vocabularies. Run in an empty folder:

    python3 make.py base            # base.json and one GGUF a pre-tokenizer; needs tokenizers 0.23.2, gguf 0.19.0,
                                    # numpy, sentencepiece 0.2.2, protobuf
    node llama.mjs STORIES.gguf     # llama.json; needs node-llama-cpp 3.22.1 (llama.cpp as its package has it)
    python3 make.py join STORIES/tokenizer.json

The vocabulary is learned here without a pre-tokenizer, so that its merges cross every border that one may draw.
"""

import base64
import io
import json
import random
import sys

import numpy as np
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

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
GGUF = ["llama-bpe", "qwen2", "gpt-2", "smollm", "default", "deepseek-coder", "falcon", "qwen35", "stablelm2", "chatglm-bpe",
        "deepseek-llm", "deepseek-v3", "minicpm5", "seed-coder"]  # fmt: skip

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

# Corners of splits and normalizers.
STEP_TEXTS = [
    "It's 2024年, x[10]+3.14 1\u00b2\u00bd\u2167\u0663\u096a5!? ", "a\u0085b\u200bc  x''y--z__\n\n<|a|>`~ aB\ttab\r\n",
    "\u65e5\u672c\u8a9e\u30c6\u30ad\u30b9\u30c8\u3067\u3059\u3002\ud55c\uad6d\uc5b4 \u0928\u092e\u0938\u094d\u0924\u0947 \u041f\u0440\u0438 \u1fbe\u212b\u0561",
    " lead", "trail  ", "\u2581a \u2581\u2581b", "\U0001f468\u200d\U0001f469 12345678", "",
]  # fmt: skip
# The table of replacements: a user's own rules, in SentencePiece's form (code points in hexadecimal).
RULES = "FB01\t66 69\n2460\t31\n3000\t20\n9\t20\n65 301\tE9\n41\t61\n41 42\t78 79 7A\n200B\t\n"


def piece_lines() -> list[str]:
    words = [line.strip() for line in LINES] * 8 + ["the cat sat on the mat", "a cat and a mat", "fine finery"] * 8
    return words


def train_unigram() -> dict:
    import sentencepiece
    from sentencepiece import sentencepiece_model_pb2

    with open("rules.tsv", "w") as out:
        out.write(RULES)
    made = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(piece_lines()), model_writer=made, vocab_size=180, model_type="unigram",
        character_coverage=0.98, hard_vocab_limit=False, user_defined_symbols=["<user>"],
        normalization_rule_tsv="rules.tsv", num_threads=1, minloglevel=2)  # fmt: skip
    model = sentencepiece_model_pb2.ModelProto()
    model.ParseFromString(made.getvalue())
    return {
        "pieces": [[piece.piece, piece.score, piece.type] for piece in model.pieces],
        "charsmap": base64.b64encode(model.normalizer_spec.precompiled_charsmap).decode(),
    }


# What a GGUF of this kind may say: a space before the first word, and one space for many.
UNIGRAM = {"plain": {}, "prefix": {"prefix": True}, "merged": {"prefix": True, "merge": True}}


def write_model(w, vocab: int) -> None:
    """The rest of a GGUF, which the peer needs to load it."""
    rng = np.random.default_rng(0)
    w.add_context_length(128); w.add_embedding_length(32); w.add_block_count(1); w.add_feed_forward_length(32)  # fmt: skip
    w.add_head_count(2); w.add_head_count_kv(2); w.add_layer_norm_rms_eps(1e-5); w.add_rope_dimension_count(16)  # fmt: skip
    shapes = {"token_embd": (vocab, 32), "output_norm": (32,), "output": (vocab, 32)}
    for name in ["attn_norm", "ffn_norm"]:
        shapes[f"blk.0.{name}"] = (32,)
    for name in ["attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"]:
        shapes[f"blk.0.{name}"] = (32, 32)
    for name, shape in shapes.items():
        w.add_tensor(f"{name}.weight", rng.standard_normal(shape).astype(np.float32))
    w.write_header_to_file(); w.write_kv_data_to_file(); w.write_tensors_to_file(); w.close()  # fmt: skip


def steps() -> dict:
    """Splits and normalizers of tokenizer.json, by HuggingFace's own program: what they make of STEP_TEXTS."""
    split = lambda pattern, behavior="isolated", invert=False: pre_tokenizers.Split(Regex(pattern), behavior, invert)  # noqa: E731
    P, N = pre_tokenizers, normalizers
    deepseek = r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"""
    pre = {
        "gemma": P.Split(" ", "merged_with_previous"),
        "deepseek-v3": P.Sequence([split(r"\p{N}{1,3}"), split("[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"), split(deepseek)]),
        "cohere2": P.Sequence([P.Digits(True), P.ByteLevel(add_prefix_space=False)]),
        "phi4": split(PATTERNS["gpt-4o"], "removed", True),
        "bailing": split(r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"),
        "tiny-aya": split(r"\d{1,3}(?=(?:\d{3})*\b)"),
        "falcon": P.Sequence([P.Punctuation("contiguous"), P.ByteLevel(add_prefix_space=False), P.Digits(False), split("[0-9][0-9][0-9]")]),
        "metaspace first": P.Metaspace(prepend_scheme="first"), "metaspace always": P.Metaspace(), "metaspace never": P.Metaspace(prepend_scheme="never"),
        "metaspace whole": P.Metaspace(split=False), "whitespace": P.Whitespace(), "whitespace split": P.WhitespaceSplit(),
        "delimiter": P.CharDelimiterSplit("a"), "digits": P.Digits(False), "punctuation": P.Punctuation(),
    }  # fmt: skip
    for behavior in ["removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous"]:
        for invert in [False, True]:
            pre[f"{behavior} {invert}"] = split(r"\s|[a-e]|\d", behavior, invert)
    charsmap = base64.b64decode(json.load(open("base.json"))["unigram"]["charsmap"])
    norm = {
        "table": N.Precompiled(charsmap), "phi3": N.Sequence([N.Prepend("\u2581"), N.Replace(" ", "\u2581")]), "nfc": N.NFC(),
        "dollar": N.Replace("a", "$&x"), "spaces": N.Replace(Regex(" {2,}"), "\u2581"),
    }  # fmt: skip
    more = ["AB \ufb01 ABA e\u0301 \u2460\u3000x", "e\u0301\u0301A\u0301 \U0001f468\u200d\U0001f469"]
    out = {}
    for name, step in pre.items():
        tok = Tokenizer(models.BPE())
        tok.pre_tokenizer = step
        words = [[word for word, _ in step.pre_tokenize_str(text)] for text in STEP_TEXTS]
        out[name] = {"pre_tokenizer": json.loads(tok.to_str())["pre_tokenizer"], "out": words}
    for name, step in norm.items():
        tok = Tokenizer(models.BPE())
        tok.normalizer = step
        texts = [step.normalize_str(text) for text in STEP_TEXTS + more]
        out[name] = {"normalizer": json.loads(tok.to_str())["normalizer"], "out": texts}
    return {"texts": STEP_TEXTS + more, "of": out}


def vocabularies(data: dict) -> list:
    """tokenizer.json of Unigram, and of BPE as Gemma has it, with their tokens for all texts."""
    pieces = [(text, score) for text, score, _ in data["unigram"]["pieces"]]
    bytes_ = [f"<0x{byte:02X}>" for byte in range(256)]
    made = []
    for fallback in [False, True]:
        tok = Tokenizer(models.Unigram(pieces + [(name, 0.0) for name in bytes_ if fallback], 0, byte_fallback=fallback))
        tok.normalizer = normalizers.Precompiled(base64.b64decode(data["unigram"]["charsmap"]))
        tok.pre_tokenizer = pre_tokenizers.Metaspace(split=fallback)
        tok.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace()] if fallback else [decoders.Metaspace()])
        made.append(tok)
    gemma = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    gemma.normalizer = normalizers.Replace(" ", "\u2581")
    # Learned over spaces, so that merges cross the words which the pre-tokenizer of the file does not divide either.
    gemma.train_from_iterator(piece_lines(), trainers.BpeTrainer(
        vocab_size=420, special_tokens=["<pad>", "<eos>", "<bos>", "<unk>"] + bytes_, limit_alphabet=50, show_progress=False))  # fmt: skip
    file = json.loads(gemma.to_str())
    file["added_tokens"] = file["added_tokens"][:4]
    file["pre_tokenizer"] = {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False}
    file["decoder"] = {"type": "Sequence", "decoders": [
        {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}]}  # fmt: skip
    made.append(Tokenizer.from_str(json.dumps(file)))
    texts = data["texts"] + STEP_TEXTS
    return [{"json": json.loads(tok.to_str()), "ids": [tok.encode(text, add_special_tokens=False).ids for text in texts]} for tok in made]


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
    unigram = train_unigram()
    texts_of_steps = [*texts, *STEP_TEXTS]
    json.dump({"vocab": vocab, "merges": merges, "texts": texts, "unigramTexts": texts_of_steps, "unigram": unigram}, open("base.json", "w"), ensure_ascii=False)  # fmt: skip
    for pre in GGUF:
        w = gguf.GGUFWriter(f"{pre}.gguf", "llama")
        w.add_tokenizer_model("gpt2"); w.add_tokenizer_pre(pre)  # fmt: skip
        w.add_token_list(vocab + SPECIAL); w.add_token_types([1] * len(vocab) + TYPES); w.add_token_merges(merges)  # fmt: skip
        w.add_bos_token_id(len(vocab)); w.add_eos_token_id(len(vocab) + 1); w.add_add_bos_token(False)  # fmt: skip
        write_model(w, len(vocab) + 4)
    for name, keys in UNIGRAM.items():
        w = gguf.GGUFWriter(f"unigram-{name}.gguf", "llama")
        tokens, scores, types = zip(*unigram["pieces"])
        w.add_tokenizer_model("t5"); w.add_token_list(tokens); w.add_token_scores(scores); w.add_token_types(types)  # fmt: skip
        w.add_unk_token_id(0); w.add_bos_token_id(1); w.add_eos_token_id(2)  # fmt: skip
        w.add_precompiled_charsmap(base64.b64decode(unigram["charsmap"]))
        w.add_add_space_prefix(keys.get("prefix", False)); w.add_remove_extra_whitespaces(keys.get("merge", False))  # fmt: skip
        write_model(w, len(tokens))


def join(stories: str) -> None:
    data = json.load(open("base.json"))
    llama = json.load(open("llama.json"))
    data["special"], data["types"] = SPECIAL, TYPES
    data["llama"] = {name: ids for name, ids in llama["gguf"].items() if not name.startswith("unigram-")}
    data["unigram"]["llama"] = {name: llama["gguf"][f"unigram-{name}"] for name in UNIGRAM}
    data["steps"] = steps()
    data["vocabularies"] = vocabularies(data)
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
    data["made"] = {"by": "packages/model/test/golden/make.py", "tokenizers": "0.23.2", "node-llama-cpp": "3.22.1", "llama.cpp": llama["release"]}
    with open("tokenizers.jsonl", "w", encoding="utf-8") as out:
        json.dump(data, out, ensure_ascii=True, separators=(",", ":"))
        out.write("\n")


base() if sys.argv[1] == "base" else join(sys.argv[2])
