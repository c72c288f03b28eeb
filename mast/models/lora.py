"""LoRA: a weight's change is a product of two thin matrices, which is merged after training.

Shapes: O rows of a weight, I columns, R rank.

Reference:
    Hu et al., "LoRA: Low-Rank Adaptation of Large Language Models", ICLR 2022, with alpha = R;
    for continued pretraining of ViTs: Khanna et al., "ExPLoRA", arXiv 2406.10973.
"""

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import register_parametrization

from mast.core.seeds import forked

LAYERS = (nn.Linear, nn.Conv2d, nn.MultiheadAttention)


class LowRank(nn.Module):
    """A weight plus a product that is zero at the start; kernels of convolutions are flattened."""

    def __init__(self, weight: Tensor, rank: int) -> None:
        super().__init__()
        down_RI = torch.empty(rank, weight[0].numel())
        self.down_RI = nn.Parameter(nn.init.kaiming_uniform_(down_RI, a=math.sqrt(5)))
        self.up_OR = nn.Parameter(torch.zeros(len(weight), rank))

    def forward(self, weight: Tensor) -> Tensor:
        """The weight in its shape."""
        return weight + (self.up_OR @ self.down_RI).view_as(weight)


def add_lora(module: nn.Module, rank: int, seed: int) -> None:
    """Freeze a module but for low-rank changes of its linear layers and convolutions."""
    with forked():
        torch.manual_seed(seed)
        for layer in [part for part in module.modules() if isinstance(part, LAYERS)]:
            for name, weight in [*layer.named_parameters(recurse=False)]:
                if weight.ndim > 1:
                    change = LowRank(weight, rank).requires_grad_(weight.requires_grad)
                    register_parametrization(layer, name, change)
    for name, parameter in module.named_parameters():
        if not name.endswith((".up_OR", ".down_RI")):
            parameter.requires_grad_(False)


def merged(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A state dict of the same module without LoRA, the changes added to the weights."""
    plain = dict[str, Tensor]()
    for key, tensor in state.items():
        layer, of, name = key.partition("parametrizations.")
        weight, _, part = name.partition(".")
        if (up_OR := state.get(f"{layer}{of}{weight}.0.up_OR")) is None:
            plain[key] = tensor
        elif part == "original":
            change_OI = up_OR @ state[f"{layer}{of}{weight}.0.down_RI"]
            plain[f"{layer}{weight}"] = tensor + change_OI.view_as(tensor)
    return plain
