#!/usr/bin/python3
"""Draws `loss.csv` as `loss.svg`: training and dev loss in nats a token over tokens seen.

    /usr/bin/python3 training/plot_loss.py
"""

import csv
import math
from pathlib import Path

import files

HERE = Path(__file__).resolve().parent
WIDTH, HEIGHT = 720, 400
LEFT, RIGHT, TOP, BOTTOM = 60, 20, 40, 50
SERIES = (("train_nats_per_token", "#1f77b4", "train"), ("dev_nats_per_token", "#d62728", "dev"))


def main() -> None:
    with (HERE / "loss.csv").open() as f:
        rows = [{k: float(v) for k, v in row.items()} for row in csv.DictReader(f)]
    x_max = max(r["tokens"] for r in rows)
    values = [r[key] for r in rows for key, _, _ in SERIES]
    # The first points, far above the rest, would flatten the curve: the axis ends at 4.6.
    y_min, y_max = math.floor(min(values) * 5) / 5, min(math.ceil(max(values) * 5) / 5, 4.6)

    def x_at(tokens: float) -> float:
        return LEFT + tokens / x_max * (WIDTH - LEFT - RIGHT)

    def y_at(nats: float) -> float:
        return TOP + (y_max - min(nats, y_max)) / (y_max - y_min) * (HEIGHT - TOP - BOTTOM)

    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">',
           f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
           f'<text x="{LEFT}" y="22" font-size="15">Marline: loss over training, nats a token</text>']  # fmt: skip
    ticks = round((y_max - y_min) / 0.2)
    for i in range(ticks + 1):
        nats = y_min + 0.2 * i
        y = y_at(nats)
        out.append(f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="#ddd"/>')
        out.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{nats:.1f}</text>')
    step = 10 ** math.floor(math.log10(x_max)) / 2
    while x_max / step > 10:
        step *= 2
    for i in range(int(x_max / step) + 1):
        x = x_at(i * step)
        out.append(f'<path d="M{x:.1f} {TOP}V{HEIGHT - BOTTOM}" stroke="#ddd"/>')
        out.append(f'<text x="{x:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{i * step / 1e6:g}</text>')
    out.append(f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 12}" text-anchor="middle">million tokens seen</text>')
    for n, (key, colour, name) in enumerate(SERIES):
        points = " ".join(f"{x_at(r['tokens']):.1f},{y_at(r[key]):.1f}" for r in rows)
        out.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        y = TOP + 16 + 18 * n
        out.append(f'<path d="M{WIDTH - 190} {y - 4}h24" stroke="{colour}" stroke-width="2"/>')
        out.append(f'<text x="{WIDTH - 160}" y="{y}">{name}, last {rows[-1][key]:.4f}</text>')
    files.replace_file(HERE / "loss.svg", ("\n".join([*out, "</svg>"]) + "\n").encode())


if __name__ == "__main__":
    main()
