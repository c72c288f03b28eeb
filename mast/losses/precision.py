"""The precision in which losses are computed: float32 at least, whatever the network runs in."""

import math

import torch
from torch import Tensor

from mast.core.errors import UserError


def full(x: Tensor) -> Tensor:
    """Half and bfloat16 as float32; float32 and float64 as they are."""
    if not x.is_floating_point():
        raise UserError(f"expected floats, got {x.dtype}")
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def tempered(score: Tensor, temperature: float, name: str = "temperature") -> Tensor:
    """Scores divided by a temperature, as the logits of a softmax."""
    if not 0 < temperature < math.inf:
        raise UserError(f"{name}: expected a number in (0, inf), got {temperature}")
    return full(score) / temperature


def product(first: Tensor, second: Tensor) -> Tensor:
    """Matrix product that autocast leaves alone; it would round sums of squares to bfloat16."""
    with torch.autocast(first.device.type, enabled=False):
        return first @ second
