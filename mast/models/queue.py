"""A queue of embeddings of earlier batches.

Shapes: B batch over all processes, N length of the queue, D embedding dimensions.
"""

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn


class Queue(nn.Module):
    """The last embeddings, the oldest replaced first; it starts with random ones of unit length.

    Args:
        length: N.
        dim: D.
        seed: Of what it starts with.

    Reference:
        MoCo (He et al., CVPR 2020), algorithm 1.
    """

    key_ND: Tensor
    next: Tensor

    def __init__(self, length: int, dim: int, seed: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        start_ND = torch.randn(length, dim, generator=generator)
        self.register_buffer("key_ND", F.normalize(start_ND, dim=1))
        self.register_buffer("next", torch.zeros((), dtype=torch.int64))

    @torch.no_grad()
    def push(self, key_BD: Tensor) -> None:
        """Replace the oldest; of more than N the last N stay."""
        length = len(self.key_ND)
        newest = key_BD[-length:]
        places = (self.next + torch.arange(len(newest), device=self.next.device)) % length
        self.key_ND.index_copy_(0, places, newest.to(self.key_ND.dtype))
        self.next.add_(len(newest)).remainder_(length)
