"""Writes the dumps of ranks that torch.distributed itself shares, with gloo, rotated by transformers' code.

ranks.py FOLDER TOKENS: FOLDER/LAYOUT-N/rankR has x.npy and y.npy [tokens, heads, head_dim], and p.npy, the positions that
the rank rotates by. zigzag is torch's context_parallel; contiguous and tp are DTensors; in local-N each rank counts its own
tokens of zigzag from 0.
"""

import os
import sys

import numpy
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor
from torch.distributed.tensor.experimental import context_parallel
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

HEADS, DIM = 8, 32
rope = LlamaRotaryEmbedding(LlamaConfig(hidden_size=HEADS * DIM, num_attention_heads=HEADS))


def write(folder, layout, rank, ranks, x, positions):
    cos, sin = rope(x, positions)
    y, _ = apply_rotary_pos_emb(x, x, cos, sin, unsqueeze_dim=2)
    path = f"{folder}/{layout}-{ranks}/rank{rank}"
    os.makedirs(path)
    for name, tensor in ("x", x), ("y", y), ("p", positions):
        numpy.save(f"{path}/{name}.npy", tensor[0].numpy())


def work(rank, ranks, folder, tokens):
    store = dist.FileStore(f"{folder}/store-{ranks}", ranks)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=ranks)
    torch.set_num_threads(1)
    mesh = init_device_mesh("cpu", (ranks,))
    torch.manual_seed(1)
    x, positions = torch.randn(1, tokens, HEADS, DIM), torch.arange(tokens)[None]

    def part(tensor, dim):
        return distribute_tensor(tensor, mesh, [Shard(dim)]).to_local()

    write(folder, "contiguous", rank, ranks, part(x, 1), part(positions, 1))
    write(folder, "tp", rank, ranks, part(x, 2), positions)
    with context_parallel(mesh, buffers=[x, positions], buffer_seq_dims=[1, 1]):
        write(folder, "zigzag", rank, ranks, x, positions)
        write(folder, "local", rank, ranks, x, torch.arange(x.shape[1])[None])
    dist.destroy_process_group()


if __name__ == "__main__":
    for count in (2, 4, 8):
        mp.start_processes(work, (count, sys.argv[1], int(sys.argv[2])), count, start_method="fork")
