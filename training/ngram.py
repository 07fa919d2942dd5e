#!/usr/bin/python3
"""Smoothed byte n-gram models of the training text: what the model in the box has to beat.

    /usr/bin/python3 training/ngram.py              # adds the n-gram part to results.json

Order 5 means four bytes of context and the fifth predicted. Three smoothings, each interpolated
down to the uniform distribution over 256 bytes, so every text has a finite cost:
  - modified Kneser-Ney (Chen & Goodman 1998): three discounts an order from its counts of counts;
    lower orders count the distinct bytes to the left;
  - the same discounts on plain counts in every order ("absolute");
  - Witten-Bell (method C): the weight of the lower order is the number of distinct successors.
The smoothing is chosen on the dev text; held-back bits per byte are reported for all. Orders up to 8
are reported too: 5 is the agreed bar, not the best that an n-gram model can do.
"""

import json
import sys
from pathlib import Path

import numpy as np

import files

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results.json"
SMOOTHINGS = ("kneser-ney", "absolute", "witten-bell")


def grams(data: np.ndarray, order: int) -> np.ndarray:
    """All n-grams of `data` (bytes) as integers, big-endian, so that >> 8 is the context."""
    keys = np.zeros(len(data) - order + 1, np.uint64)
    for i in range(order):
        keys = keys << np.uint64(8) | data[i : len(data) - order + 1 + i].astype(np.uint64)
    return keys


def lookup(sorted_keys: np.ndarray, values: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """values[i] where sorted_keys[i] == wanted, else 0; vectorised over `wanted`."""
    at = np.minimum(np.searchsorted(sorted_keys, wanted), len(sorted_keys) - 1)
    return np.where(sorted_keys[at] == wanted, values[at], 0)


def discounts(counts: np.ndarray) -> np.ndarray:
    """D(0), D(1), D(2), D(3+) of modified Kneser-Ney, from the counts of counts 1 to 4."""
    n1, n2, n3, n4 = (max(1, np.count_nonzero(counts == c)) for c in (1, 2, 3, 4))
    y = n1 / (n1 + 2 * n2)
    d = np.array([0.0, 1 - 2 * y * n2 / n1, 2 - 3 * y * n3 / n2, 3 - 4 * y * n4 / n3])
    return np.clip(d, 0, [0, 1, 2, 3])


class Table:
    """One order's counts: of each n-gram, and of each context its total and the mass kept back."""

    def __init__(self, keys: np.ndarray, counts: np.ndarray, smoothing: str):
        self.keys = keys
        contexts, first, inverse = np.unique(keys >> np.uint64(8), return_index=True, return_inverse=True)
        del first
        self.contexts = contexts
        if smoothing == "witten-bell":
            self.kept = counts.astype(np.float64)
            back = np.bincount(inverse).astype(np.float64)  # distinct successors of each context
            self.total = np.bincount(inverse, counts) + back
        else:
            d = discounts(counts)[np.minimum(counts, 3)]
            self.kept = counts - d
            back = np.bincount(inverse, d)
            self.total = np.bincount(inverse, counts)
        self.back = back / self.total  # weight of the lower order

    def mix(self, wanted: np.ndarray, lower: np.ndarray) -> np.ndarray:
        context = wanted >> np.uint64(8)
        total = lookup(self.contexts, self.total, context)
        p = lookup(self.keys, self.kept, wanted) / np.where(total > 0, total, 1)
        return np.where(total > 0, p + lookup(self.contexts, self.back, context) * lower, lower)


class NGram:
    def __init__(self, data: bytes, order: int, smoothing: str):
        assert 1 <= order <= 8 and smoothing in SMOOTHINGS
        array = np.frombuffer(data, np.uint8)
        self.order = order
        self.tables = []
        for n in range(1, order + 1):
            if smoothing == "kneser-ney" and n < order:
                # Distinct (n+1)-grams, less their first byte: how many bytes were seen to the left.
                longer = np.unique(grams(array, n + 1))
                mask = np.uint64((1 << 8 * n) - 1)
                keys, counts = np.unique(longer & mask, return_counts=True)
            else:
                keys, counts = np.unique(grams(array, n), return_counts=True)
            self.tables.append(Table(keys, counts, smoothing))

    def probabilities(self, data: bytes) -> np.ndarray:
        """p of each byte given the (at most order - 1) bytes before it."""
        array = np.frombuffer(data, np.uint8)
        p = np.full(len(array), 1 / 256)
        for n, table in enumerate(self.tables, 1):
            if len(array) >= n:
                p[n - 1 :] = table.mix(grams(array, n), p[n - 1 :])
        return p

    def bits_per_byte(self, data: bytes) -> float:
        return float(-np.log2(self.probabilities(data)).mean())


def main() -> None:
    # Run ends become paragraph ends, as in the held-back text.
    train = (HERE / "data" / "train.txt").read_bytes().replace(b"\n\f\n", b"\n\n")
    dev = (HERE / "data" / "dev.txt").read_bytes()
    held = (HERE / "held-back.txt").read_bytes()
    rows = []
    for order in (3, 4, 5, 6, 7, 8):
        for smoothing in SMOOTHINGS:
            model = NGram(train, order, smoothing)
            row = {"order": order, "smoothing": smoothing, "dev_bits_per_byte": round(model.bits_per_byte(dev), 5),
                   "held_back_bits_per_byte": round(model.bits_per_byte(held), 5)}  # fmt: skip
            rows.append(row)
            print(row, flush=True)
    best5 = min((r for r in rows if r["order"] == 5), key=lambda r: r["dev_bits_per_byte"])
    best = min(rows, key=lambda r: r["dev_bits_per_byte"])
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    results["ngram"] = {"trained_on": "data/train.txt", "bar_order_5": best5, "best_of_any_order": best, "all": rows}
    files.replace_file(RESULTS, (json.dumps(results, indent=2) + "\n").encode())
    print(f"order 5, {best5['smoothing']}: {best5['held_back_bits_per_byte']:.4f} bits per byte", file=sys.stderr)


if __name__ == "__main__":
    main()
