#!/usr/bin/python3
"""Writes `expected.json`: what a right decoder gives from the stored files: a few prompts continued, greedy, and perplexities.

    /usr/bin/python3 training/expected.py

PyTorch in float32, from the weights in model.safetensors (f16) and from those of model-q8_0.gguf,
dequantised. Every token comes with its margin, the best logit less the second best: where it is
smaller than the other implementation's error, the next token may rightly differ.
"""

import argparse
import json
import math
from pathlib import Path

import numpy as np
import torch

import files
from evaluate import MODEL, as_model, tensors_of_gguf, total_nats
from model import Llama, Shape
from tokenizer import BOS, Tokenizer

HERE = Path(__file__).resolve().parent
PROMPTS = ["", "Call me Ishmael.", "It is a truth universally acknowledged", "The captain looked at the sea",
           '"My dear Emma,"', "A rope na\u00efvely laid \u2014 \U0001f433\n"]  # fmt: skip
COUNT = 48


@torch.no_grad()
def greedy(model: Llama, ids: list[int], count: int) -> dict:
    """Greedy continuation, recomputed from the whole prefix at every token (no cache)."""
    ids, out = list(ids), {"ids": [], "margins": []}
    for n in range(count):
        logits = model(torch.tensor([ids]))[0, -1]
        top = logits.topk(2)
        if n == 0:
            out["first_logits"] = {"ids": logits.topk(5).indices.tolist(),
                                   "values": [round(v, 4) for v in logits.topk(5).values.tolist()]}  # fmt: skip
        out["ids"].append(top.indices[0].item())
        out["margins"].append(round((top.values[0] - top.values[1]).item(), 5))
        ids.append(out["ids"][-1])
    return out


def perplexity_of(models: dict[str, Llama], tok: Tokenizer, characters: int | None, stride: int) -> dict:
    """What the decoder's `perplexity` gives with `context` 256 and this stride: BOS and up to 255 tokens in a window, the last
    of which is only predicted."""
    text = (HERE / "held-back.txt").read_text("utf-8")[:characters]
    ids = np.array(tok.encode(text), np.int64)
    out = {"file": "held-back.txt", "characters": len(text), "tokens": len(ids), "context": 256, "stride": stride}
    for kind, model in models.items():
        nats, scored = total_nats(model, ids, stride, 255)
        assert scored == len(ids), f"{scored} of {len(ids)} tokens scored"
        out[kind] = {"perplexity": round(math.exp(nats / scored), 5),
                     "bits_per_byte": round(nats / math.log(2) / len(text.encode()), 6)}  # fmt: skip
        print(f"{kind:5s} {len(text)} characters, stride {stride}: {out[kind]}")
    return out


def main() -> None:
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--folder", type=Path, default=MODEL)
    ap.add_argument("--out", type=Path, default=HERE / "expected.json")
    a = ap.parse_args()
    torch.set_num_threads(1)
    config = json.loads((a.folder / "config.json").read_text())
    s = Shape(**{k: config[k] for k in Shape.__dataclass_fields__})
    tok = Tokenizer.load(a.folder / "tokenizer.json")
    models = {"f16": as_model(files.read_safetensors(a.folder / "model.safetensors"), s),
              "q8_0": as_model(tensors_of_gguf(a.folder / "model-q8_0.gguf", s), s)}  # fmt: skip
    cases = []
    for prompt in PROMPTS:
        case = {"prompt": prompt, "ids": [BOS, *tok.encode(prompt)]}
        for kind, model in models.items():
            case[kind] = greedy(model, case["ids"], COUNT)
            text = b"".join(tok.bytes_of(i) for i in case[kind]["ids"])
            case[kind]["text"] = text.decode("utf-8", "replace")
            print(f"{kind:5s} {prompt!r} -> {case[kind]['text']!r}  smallest margin {min(case[kind]['margins'])}")
        cases.append(case)
    perplexity = [perplexity_of(models, tok, *windows) for windows in ((None, 255), (20000, 127))]
    out = {"about": "Written by training/expected.py; see there.", "count": COUNT, "cases": cases, "perplexity": perplexity}
    files.replace_file(a.out, (json.dumps(out, ensure_ascii=False, indent=1) + "\n").encode("utf-8"))


if __name__ == "__main__":
    main()
