# Writes the folder msprobe, with mindstudio-probe 26.2.0 and torch 2.13.0 on the CPU. Run it in this folder.
import json

import torch
from msprobe.pytorch import PrecisionDebugger

torch.manual_seed(38)


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.q_proj = torch.nn.Linear(4, 4, bias=False)

    def forward(self, x):
        return self.q_proj(x), None


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed_tokens = torch.nn.Embedding(8, 4)
        self.layers = torch.nn.ModuleList([Layer()])

    def forward(self, ids):
        return self.layers[0](self.embed_tokens(ids))[0]


config = {"task": "tensor", "dump_path": "msprobe", "rank": [], "step": [1], "level": "L0"}
config["tensor"] = {"scope": [], "list": [], "data_mode": ["all"]}
json.dump(config, open("config.json", "w"))
debugger = PrecisionDebugger(config_path="config.json")
model = Model()
for step in range(2):
    debugger.start(model)
    with torch.no_grad():
        model(torch.arange(3)[None] + step)
    debugger.stop()
    debugger.step()
