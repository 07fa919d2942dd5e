#!/usr/bin/python3
"""Learns the 1024-piece tokenizer from `training/data/train.txt` and writes it to the model's folder.

    /usr/bin/python3 training/train-tokenizer.py
"""

import sys
from pathlib import Path

from tokenizer import Tokenizer, train

HERE = Path(__file__).resolve().parent
MODEL = HERE.parent / "models" / "marline"
VOCAB_SIZE = 1024


def main() -> None:
    text = (HERE / "data" / "train.txt").read_text("utf-8")
    tok = Tokenizer.from_pieces(train(text, VOCAB_SIZE))
    if len(tok) != VOCAB_SIZE:
        sys.exit(f"train-tokenizer: expected {VOCAB_SIZE} tokens, got {len(tok)}")
    MODEL.mkdir(parents=True, exist_ok=True)
    tok.save(MODEL)
    ids = tok.encode(text)
    print(f"{len(tok)} tokens, {len(tok.merges)} merges; the training text is {len(ids)} tokens, "
          f"{len(text.encode()) / len(ids):.3f} bytes a token")  # fmt: skip


if __name__ == "__main__":
    main()
