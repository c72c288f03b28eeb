"""Differentiable sums and concatenations over processes.

PyTorch's own differentiable collectives are deprecated in some supported releases and missing in
others; losses and BatchNorm need only these two.
"""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


def processes() -> int:
    """Number of processes of this run."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def rank() -> int:
    """Rank of this process, from 0."""
    return dist.get_rank() if processes() > 1 else 0


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, local: Tensor) -> Tensor:
        total = local.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        # Every process's output depends on every process's input.
        total = gradients[0].contiguous().clone()
        dist.all_reduce(total)
        return total


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, local: Tensor) -> Tensor:
        parts = [torch.empty_like(local) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, local.contiguous())
        return torch.cat(parts)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        total = gradients[0].contiguous().clone()
        dist.all_reduce(total)
        return total.chunk(dist.get_world_size())[dist.get_rank()]


def global_sum(local: Tensor) -> Tensor:
    """Sum of a tensor over processes."""
    if processes() == 1:
        return local
    total: Tensor = _Sum.apply(local)
    return total


def global_mean(local: Tensor) -> Tensor:
    """Mean of all entries over processes, each with equally many."""
    return global_sum(local.mean()) / processes()


def gather(local: Tensor) -> Tensor:
    """Concatenation over processes along the first dimension, in the order of their ranks."""
    if processes() == 1:
        return local
    everything: Tensor = _Gather.apply(local)
    return everything
