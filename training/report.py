#!/usr/bin/python3
"""Writes the tables of results.json into training/README.md and the model card, between their marks.

    /usr/bin/python3 training/report.py

Numbers in the two pages come from here and are never typed by hand.
"""

import csv
import json
from pathlib import Path

import files

HERE = Path(__file__).resolve().parent
CARD = HERE.parent / "models" / "marline" / "README.md"


def losses(r: dict) -> str:
    """What each model costs on the held-back text."""
    bar, best = r["ngram"]["bar_order_5"], r["ngram"]["best_of_any_order"]
    rows = ["| model | bits per byte, stride 128 | bits per byte, no overlap | perplexity a token, no overlap |",
            "| --- | --- | --- | --- |"]  # fmt: skip
    for name, row in r["model"].items():
        a, b = row["stride_128"], row["no_overlap"]
        rows.append(f"| Marline, {name} | **{a['bits_per_byte']:.4f}** | {b['bits_per_byte']:.4f} | {b['perplexity_per_token']:.3f} |")
    for row in (bar, best):
        rows.append(f"| byte {row['order']}-gram, {row['smoothing']} | {row['held_back_bits_per_byte']:.4f} | the same | |")
    return "\n".join(rows)


def ngrams(r: dict) -> str:
    orders = sorted({row["order"] for row in r["ngram"]["all"]})
    kinds = list(dict.fromkeys(row["smoothing"] for row in r["ngram"]["all"]))
    cost = {(row["order"], row["smoothing"]): row["held_back_bits_per_byte"] for row in r["ngram"]["all"]}
    rows = ["| order | " + " | ".join(kinds) + " |", "| --- |" + " --- |" * len(kinds)]
    rows += [f"| {n} | " + " | ".join(f"{cost[n, k]:.4f}" for k in kinds) + " |" for n in orders]
    return "\n".join(rows)


def run(r: dict) -> str:
    with (HERE / "loss.csv").open() as f:
        last = list(csv.DictReader(f))[-1]
    seconds, steps, tokens = float(last["seconds"]), int(last["step"]), int(last["tokens"])
    return (f"The run behind the files: {steps} steps, {tokens / 1e6:.1f} million tokens, {seconds / 60:.0f} minutes, "
            f"{seconds / steps:.3f} s a step ({tokens / seconds:.0f} tokens a second); the kept checkpoint is step "
            f"{r['checkpoint']['step']}, {r['checkpoint']['dev_nats_per_token']:.4f} nats a token on the dev text.")  # fmt: skip


def samples(_: dict) -> str:
    cases = json.loads((HERE / "expected.json").read_text("utf-8"))["cases"]
    lines = []
    for case in cases[:4]:
        lines.append(f"{case['prompt'] or '(nothing: the bare BOS)'} | {case['f16']['text'].strip()}")
    return "```text\n" + "\n\n".join(lines) + "\n```"


def fill(page: Path, parts: dict[str, str]) -> None:
    text = page.read_text("utf-8")
    for name, content in parts.items():
        begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
        assert text.count(begin) == 1 and text.count(end) == 1, f"{page.name}: mark {name!r} is missing"
        head, rest = text.split(begin)
        text = f"{head}{begin}{content}\n{end}{rest.split(end)[1]}"
    files.replace_file(page, text.encode("utf-8"))


def main() -> None:
    r = json.loads((HERE / "results.json").read_text())
    fill(HERE / "README.md", {"losses": losses(r), "n-grams": ngrams(r), "run": run(r)})
    fill(CARD, {"losses": losses(r), "samples": samples(r)})
    print(losses(r))


if __name__ == "__main__":
    main()
