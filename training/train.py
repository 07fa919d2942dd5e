#!/usr/bin/python3
"""Trains the model on `data/train.txt`: AdamW, warm-up and cosine, gradient clipping, one thread.

    nice -n 5 /usr/bin/python3 training/train.py --stop 6700
    nice -n 5 /usr/bin/python3 training/train.py --steps 8500 --dropout 0.1   # goes on from the last checkpoint

Every step's batch depends on (seed, step) alone, so that a resumed run sees what an unbroken one
would have seen. Writes `checkpoints/{last,best}.pt` and appends to `loss.csv`; `best` is the lowest
loss on the dev text (which is neither trained on nor reported: see DATA.md).
"""

import argparse
import csv
import math
import os
import sys
import time
from dataclasses import asdict
from pathlib import Path

# Freed tensors stay with the process: otherwise every step's large tensors are mapped and zeroed
# anew by the kernel (0.49 s instead of 0.35 s a step). glibc reads these only at its start.
ALLOCATOR = {"MALLOC_MMAP_THRESHOLD_": "4000000000", "MALLOC_TRIM_THRESHOLD_": "8000000000",
             "MALLOC_TOP_PAD_": "268435456", "OPENBLAS_NUM_THREADS": "1"}  # fmt: skip
if __name__ == "__main__" and any(os.environ.get(k) != v for k, v in ALLOCATOR.items()):
    os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, **ALLOCATOR})

import numpy as np  # noqa: E402
import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402

from model import Llama, Shape  # noqa: E402
from tokenizer import BOS, SPACE, Tokenizer  # noqa: E402

HERE = Path(__file__).resolve().parent
MODEL = HERE.parent / "models" / "marline"
RUN_END = "\f"  # fetch-data.py parts runs of text by it; no window crosses one


class Text:
    """The training tokens and where windows may begin.

    Three windows of four begin at a sentence, one at any word: so a bare BOS, or a prompt, starts
    a sentence, as it does in use. A window too near the end of its run is moved back to fit.
    """

    def __init__(self, tok: Tokenizer, text: str, length: int):
        runs = [np.array(tok.encode(r), np.int64) for r in text.split("\n\f\n")]
        runs = [r for r in runs if len(r) >= length]
        self.length = length
        self.ids = np.concatenate(runs)
        ends = np.cumsum([len(r) for r in runs])
        self.latest = np.repeat(ends, [len(r) for r in runs]) - length  # last start in the same run
        word = np.array([t.startswith(SPACE) for t in tok.tokens])[self.ids]
        stop = np.array([t.endswith((".", "!", "?", '."', '!"', '?"')) for t in tok.tokens])[self.ids]
        self.words = np.flatnonzero(word)
        self.sentences = np.flatnonzero(word[1:] & stop[:-1]) + 1

    def batch(self, rng: np.random.Generator, size: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Inputs (size, length), BOS first, and the token that follows each."""
        starts = np.where(rng.random(size) < 0.75, rng.choice(self.sentences, size), rng.choice(self.words, size))
        starts = np.minimum(starts, self.latest[starts])
        y = self.ids[starts[:, None] + np.arange(self.length)]
        x = np.concatenate([np.full((size, 1), BOS), y[:, :-1]], axis=1)
        return torch.from_numpy(x), torch.from_numpy(y)


def learning_rate(step: int, steps: int, peak: float, warmup: int, floor: float) -> float:
    """Linear warm-up, then a cosine from `peak` to `floor * peak`."""
    if step < warmup:
        return peak * (step + 1) / warmup
    done = (step - warmup) / max(1, steps - warmup)
    return peak * (floor + (1 - floor) * 0.5 * (1 + math.cos(math.pi * min(1.0, done))))


@torch.no_grad()
def dev_loss(model: Llama, ids: np.ndarray, length: int, windows: int) -> float:
    """Mean loss in nats a token over `windows` windows spread evenly over the dev text."""
    model.eval()
    starts = np.linspace(0, len(ids) - length, windows).astype(np.int64)
    y = ids[starts[:, None] + np.arange(length)]
    x = np.concatenate([np.full((windows, 1), BOS), y[:, :-1]], axis=1)
    total = 0.0
    for i in range(0, windows, 8):
        logits = model(torch.from_numpy(x[i : i + 8]))
        total += F.cross_entropy(logits.flatten(0, 1), torch.from_numpy(y[i : i + 8]).flatten(), reduction="sum").item()
    model.train()
    return total / (windows * length)


def save(path: Path, content: dict) -> None:
    part = path.with_suffix(".part")
    torch.save(content, part)
    part.replace(path)


def main() -> None:
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("--steps", type=int, default=10000)
    ap.add_argument("--batch", type=int, default=8, help="windows a step")
    ap.add_argument("--length", type=int, default=256, help="tokens a window")
    ap.add_argument("--peak", type=float, default=4e-3, help="highest learning rate")
    ap.add_argument("--floor", type=float, default=0.02, help="last learning rate, as a part of the highest")
    ap.add_argument("--warmup", type=int, default=200)
    ap.add_argument("--decay", type=float, default=0.1, help="weight decay of matrices")
    ap.add_argument("--dropout", type=float, default=0.0)
    ap.add_argument("--clip", type=float, default=1.0, help="largest norm of the gradient")
    ap.add_argument("--seed", type=int, default=1851)
    ap.add_argument("--every", type=int, default=100, help="steps between dev losses and checkpoints")
    ap.add_argument("--stop", type=int, default=0, help="stop at this step of the schedule (checkpoint kept)")
    ap.add_argument("--deadline", type=float, default=0, help="stop after so many seconds (checkpoint kept)")
    ap.add_argument("--folder", type=Path, default=HERE / "checkpoints")
    ap.add_argument("--csv", type=Path, default=HERE / "loss.csv")
    a = ap.parse_args()

    torch.set_num_threads(1)
    torch.manual_seed(a.seed)
    a.folder.mkdir(parents=True, exist_ok=True)
    tok = Tokenizer.load(MODEL / "tokenizer.json")
    text = Text(tok, (HERE / "data" / "train.txt").read_text("utf-8"), a.length)
    dev = np.array(tok.encode((HERE / "data" / "dev.txt").read_text("utf-8")), np.int64)

    shape = Shape()
    model = Llama(shape)
    for block in model.blocks:
        block.dropout = a.dropout
    matrices = [p for p in model.parameters() if p.dim() == 2]
    norms = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": a.decay}, {"params": norms, "weight_decay": 0.0}],
        lr=a.peak, betas=(0.9, 0.95), eps=1e-8)  # fmt: skip

    step, seconds, best = 0, 0.0, math.inf
    if (a.folder / "last.pt").exists():
        at = torch.load(a.folder / "last.pt")
        model.load_state_dict(at["model"])
        optimizer.load_state_dict(at["optimizer"])
        step, seconds, best = at["step"], at["seconds"], at["best"]
    else:
        with a.csv.open("w", newline="") as f:
            csv.writer(f, lineterminator="\n").writerow(
                ["step", "tokens", "seconds", "learning_rate", "train_nats_per_token", "dev_nats_per_token"])  # fmt: skip
    per_step = a.batch * a.length
    print(f"{model.count()} parameters, {len(text.ids)} training tokens, step {step} of {a.steps}, "
          f"{a.steps * per_step / len(text.ids):.2f} epochs", flush=True)  # fmt: skip

    begun, since, losses = time.monotonic(), time.monotonic(), []
    while step < a.steps:
        lr = learning_rate(step, a.steps, a.peak, a.warmup, a.floor)
        for group in optimizer.param_groups:
            group["lr"] = lr
        if a.dropout:
            torch.manual_seed(a.seed * 1_000_000 + step)  # as the batch: from the seed and the step alone
        x, y = text.batch(np.random.default_rng((a.seed, step)), a.batch)
        loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), a.clip)
        optimizer.step()
        losses.append(loss.item())
        step += 1
        late = step == a.stop or (a.deadline and time.monotonic() - begun > a.deadline)
        if step % a.every and step < a.steps and not late:
            continue
        seconds += time.monotonic() - since
        nats = dev_loss(model, dev, a.length, 96)
        since = time.monotonic()
        content = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step,
                   "seconds": seconds, "best": min(best, nats), "dev": nats, "shape": asdict(shape),
                   "arguments": {k: str(v) for k, v in vars(a).items() if k not in ("folder", "csv")}}  # fmt: skip
        if nats < best:
            best = nats
            save(a.folder / "best.pt", content)
        save(a.folder / "last.pt", content)
        with a.csv.open("a", newline="") as f:
            csv.writer(f, lineterminator="\n").writerow(
                [step, step * per_step, round(seconds, 1), f"{lr:.6f}", f"{np.mean(losses):.4f}", f"{nats:.4f}"])  # fmt: skip
        print(f"step {step:6d}  {seconds:7.0f} s  lr {lr:.5f}  train {np.mean(losses):.4f}  dev {nats:.4f}", flush=True)
        losses = []
        if late:
            break


if __name__ == "__main__":
    main()
