"""Implements the part of Triton that the harness uses on the CPU, one program after another: Debian has no Triton."""
from types import SimpleNamespace

import torch

from . import language


class Pointer:
    """Points to elements of a tensor's memory, counted from the start of the tensor."""

    def __init__(self, memory, at=0):
        self.memory, self.at, self.dtype = memory, at, SimpleNamespace(element_ty=memory.dtype)

    def __add__(self, offset):
        return Pointer(self.memory, self.at + offset)


def pointer(tensor):
    size = tensor.storage().size() - tensor.storage_offset()
    return Pointer(torch.as_strided(tensor, (size,), (1,), tensor.storage_offset()))


class jit:
    def __init__(self, kernel):
        self.kernel = kernel

    def __getitem__(self, grid):
        def run(*given, **named):
            given = [pointer(one) if isinstance(one, torch.Tensor) else one for one in given]
            for first in range(grid[0]):
                for second in range(grid[1]):
                    language.program = (first, second)
                    self.kernel(*given, **named)

        return run


def next_power_of_2(n):
    return 1 << (n - 1).bit_length()
