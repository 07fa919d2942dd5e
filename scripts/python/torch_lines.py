"""Runs small torch kernels, as test/site/torch-lines.python.test.ts writes them to a file.

Prints for each its y, f64 in base64, and its largest finite angle.
"""
import base64
import json
import math
import sys

import torch

torch.set_default_dtype(torch.float64)  # the lines are compared with float64
torch.set_num_threads(1)

given = json.load(open(sys.argv[1]))
out = []
for run in given["runs"]:
    model = given["models"][run["model"]]
    x = torch.tensor(model["x"], dtype=torch.float64).reshape(model["shape"])
    batch, tokens, heads, _ = x.shape
    lists = {name: torch.tensor(value) for name, value in model["lists"].items()}
    positions = torch.tensor(model["positions"]).reshape(model["positionsShape"])
    names = dict(torch=torch, math=math, x=x, positions=positions, batch=batch, tokens=tokens, heads=heads)
    names |= lists | model["numbers"]
    exec(run["program"], names)
    y = names["y"]
    assert y.shape == x.shape, f"{run['program']}\nhas the shape {y.shape}"
    angles = torch.as_tensor(names["angles"])
    reach = angles[angles.isfinite()].abs().max().item()
    out.append(dict(y=base64.b64encode(y.double().contiguous().numpy().tobytes()).decode(), reach=reach))
json.dump(out, sys.stdout)
