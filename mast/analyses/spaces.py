"""The spaces of a run's embedding: all of it, and what its masks let a user choose.

D dimensions of the embedding.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from mast.analyses import figure
from mast.analyses.analysis import Subject
from mast.models import exempt_blocks


class Space(NamedTuple):
    """Dimensions of the embedding.

    Attributes:
        name: For people.
        weight_D: How much each dimension counts, in [0, 1], on the CPU.
        exempt_from: The operators to which it need not be invariant; none but for a block.
    """

    name: str
    weight_D: Tensor
    exempt_from: tuple[str, ...] = ()


def spaces_of(subject: Subject, dim: int) -> list[Space]:
    """The whole embedding, and for each distinct mask its complement, and then its block.

    Args:
        subject: The run.
        dim: Dimensions of its embedding.
    """
    spaces = [Space("whole embedding", torch.ones(dim))]
    if subject.mask_DK is None:
        return spaces
    blocks = exempt_blocks(subject.mask_DK.detach().cpu().float(), subject.operators)
    for names, exempt_D in blocks.items():
        operators = tuple(names.split("+"))
        of_them = " and ".join(map(figure.words, operators))
        spaces.append(Space(f"ignoring {of_them}", 1 - exempt_D))
        spaces.append(Space(f"matching {of_them}", exempt_D, operators))
    return spaces
