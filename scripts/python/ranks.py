"""Writes the dumps of ranks that torch.distributed itself shares, with gloo, rotated by transformers' and Megatron's code.

ranks.py FOLDER TOKENS: FOLDER/LAYOUT-N/rankR has x.npy and y.npy [tokens, heads, head_dim], and p.npy, the positions that
the rank rotates by. zigzag is torch's context_parallel; contiguous and tp are DTensors; in local-N each rank counts its own
tokens of zigzag from 0. megatron is Megatron-core's own share of its frequencies, thd its packed sequences, of which each
is shared in zigzag; in whole-N every rank rotates by the frequencies of the first tokens, as a rank without a share does.
"""

import os
import sys

import numpy
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from megatron.core.models.common.embeddings import rope_utils as megatron
from megatron.core.models.common.embeddings.rotary_pos_embedding import RotaryEmbedding
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor
from torch.distributed.tensor.experimental import context_parallel
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

# Megatron takes its tables to the GPU, which the CPU stands for.
torch.cuda.current_device = lambda: "cpu"
torch.Tensor.cuda = lambda self, **_: self
tensor = torch.tensor
torch.tensor = lambda *args, pin_memory=False, **more: tensor(*args, **more)

HEADS, DIM = 8, 32
rope = LlamaRotaryEmbedding(LlamaConfig(hidden_size=HEADS * DIM, num_attention_heads=HEADS))


def write(folder, layout, rank, ranks, x, positions):
    cos, sin = rope(x, positions)
    y, _ = apply_rotary_pos_emb(x, x, cos, sin, unsqueeze_dim=2)
    save(f"{folder}/{layout}-{ranks}/rank{rank}", x=x[0], y=y[0], p=positions[0])


def save(path, **tensors):
    os.makedirs(path)
    for name, tensor in tensors.items():
        numpy.save(f"{path}/{name}.npy", tensor.numpy())


def zigzag(x, rank, ranks):
    """Megatron's share of a sequence `[tokens, …]`: a chunk from the start, and one from the end."""
    chunks = x.chunk(2 * ranks)
    return torch.cat((chunks[rank], chunks[2 * ranks - 1 - rank]))


def megatron_ranks(folder, rank, ranks, x):
    """x: `[tokens, heads, head_dim]`."""
    group = dist.group.WORLD
    table = RotaryEmbedding(DIM, 1.0, use_cpu_initialization=True, cp_group=group)
    own = zigzag(x, rank, ranks)
    rotated = lambda freqs: megatron._apply_rotary_pos_emb_bshd(own[:, None], freqs)[:, 0]
    save(f"{folder}/megatron-{ranks}/rank{rank}", x=own, y=rotated(table(len(x))))
    save(f"{folder}/whole-{ranks}/rank{rank}", x=own, y=rotated(table(len(x), packed_seq=True)[: len(own)]))
    # Two sequences: a quarter of the tokens, and the rest.
    ends = torch.tensor([0, len(x) // 4, len(x)], dtype=torch.int32)
    packed = torch.cat([zigzag(x[a:b], rank, ranks) for a, b in zip(ends, ends[1:])])
    # A table of the tokens of all sequences would be read at the places of the pack.
    longest = table(len(x) - len(x) // 4, packed_seq=True)
    y = megatron._apply_rotary_pos_emb_thd(packed, ends, longest, cp_group=group)
    save(f"{folder}/thd-{ranks}/rank{rank}", x=packed, y=y)


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
    megatron_ranks(folder, rank, ranks, torch.randn(tokens, HEADS, DIM, generator=torch.Generator().manual_seed(2)))
    dist.destroy_process_group()


if __name__ == "__main__":
    for count in (2, 4, 8):
        mp.start_processes(work, (count, sys.argv[1], int(sys.argv[2])), count, start_method="fork")
