"""The precision in which losses are computed: float32 at least, whatever the network runs in."""

import torch
from torch import Tensor


def full(x: Tensor) -> Tensor:
    """Half and bfloat16 as float32; float32 and float64 as they are."""
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def product(first: Tensor, second: Tensor) -> Tensor:
    """Matrix product that autocast leaves alone; it would round sums of squares to bfloat16."""
    with torch.autocast(first.device.type, enabled=False):
        return first @ second
