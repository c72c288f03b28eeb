"""The smallest encoder, and methods over it, that tests train."""

from typing import Any

import torch

from mast.methods import METHODS, Method
from mast.models import Encoder, EncoderConfig, ProjectorConfig

ENCODER = EncoderConfig(
    "timm:resnet18", {"layers": [1, 1, 1, 1], "channels": [8, 8, 16, 16]}, stem_stride=2
)
SIZE, DIM = 32, 24
OPERATORS = ("crop", "flip", "jitter")


def build_method(
    name: str, projector: dict[str, Any], options: dict[str, Any], seed: int = 0
) -> Method:
    """A method over three operators with an embedding of `DIM`, in training mode."""
    torch.manual_seed(seed)
    encoder = Encoder(ENCODER, SIZE)
    sizes = ProjectorConfig(**{"hidden": 32, "dim": DIM, "pool": "before", **projector})
    entry = METHODS[name]
    config = entry.config(**{**options, "projector": sizes})
    return entry.method(config, encoder, OPERATORS, seed).train()
