"""How far losses are from lightly's, in value and gradient, in float32 and float64.

    python benchmarks/oracles.py

Each loss is compared on the same embeddings, 256 images of 128 dimensions of unequal length, with
gradients in all of them that have one. A deviation is the largest distance as a share of the
largest number of lightly's. Seconds.
"""

from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812
from lightly.loss import (
    BarlowTwinsLoss,
    DINOLoss,
    NegativeCosineSimilarity,
    NTXentLoss,
    SwaVLoss,
    VICRegLoss,
)
from measure import RESULTS
from torch import Tensor

from mast.core.checkpoint import write_json
from mast.core.run import provenance
from mast.losses import (
    contrast,
    covariance,
    invariance,
    negative_cosine,
    nt_xent,
    redundancy,
    sinkhorn,
    soft_cross_entropy,
    variance,
)

BATCH, DIM, QUEUE = 256, 128, 1024
PRECISIONS = {"float32": torch.float32, "float64": torch.float64}

Loss = Callable[[Tensor, Tensor], Tensor]


class Pair(NamedTuple):
    """Ours, and lightly's of the same embeddings (B, D) of two views."""

    ours: Loss
    lightlys: Loss


def contrasted(first_BD: Tensor, second_BD: Tensor) -> Tensor:
    """MoCo's, of a query, a key without gradient, and a queue."""
    unit_BD, key_BD = F.normalize(first_BD, dim=1), F.normalize(second_BD.detach(), dim=1)
    queue_ND = queue(first_BD)
    return contrast((unit_BD * key_BD).sum(dim=1), unit_BD @ queue_ND.T, 0.2)


def contrasted_by_lightly(first_BD: Tensor, second_BD: Tensor) -> Tensor:
    loss = NTXentLoss(0.2, memory_bank_size=(QUEUE, DIM))
    loss.memory_bank.bank = queue(first_BD)
    loss.memory_bank.bank_ptr = torch.zeros(1, dtype=torch.long)
    value: Tensor = loss(first_BD, second_BD.detach())
    return value


def queue(like: Tensor) -> Tensor:
    generator = torch.Generator().manual_seed(2)
    drawn = torch.randn(QUEUE, DIM, generator=generator, dtype=torch.float64)
    return F.normalize(drawn, dim=1).to(like.dtype)


def assigned(first_BD: Tensor, second_BD: Tensor) -> Tensor:
    """SwAV's, the embeddings as scores of prototypes."""
    pair = [F.normalize(first_BD, dim=1), F.normalize(second_BD, dim=1)]
    return torch.stack(
        [
            soft_cross_entropy(score_BP, sinkhorn(other_BP.detach(), 0.05, 3), 0.1)
            for score_BP, other_BP in (pair, pair[::-1])
        ]
    ).mean()


def assigned_by_lightly(first_BD: Tensor, second_BD: Tensor) -> Tensor:
    value: Tensor = SwaVLoss(0.1)([F.normalize(each, dim=1) for each in (first_BD, second_BD)], [])
    return value


def taught(first_BD: Tensor, second_BD: Tensor) -> Tensor:
    """DINO's of two views, the centre still at 0."""
    pair = (first_BD, second_BD)
    return torch.stack(
        [
            soft_cross_entropy(score_BP, (other_BP.detach() / 0.04).softmax(dim=1), 0.1)
            for score_BP, other_BP in (pair, pair[::-1])
        ]
    ).mean()


def taught_by_lightly(first_BD: Tensor, second_BD: Tensor) -> Tensor:
    pair = [first_BD, second_BD]
    value: Tensor = DINOLoss(DIM).to(first_BD.dtype)(
        [each.detach() for each in pair], pair, teacher_temp=0.04
    )
    return value


def vicreg(first_BD: Tensor, second_BD: Tensor) -> Tensor:
    return (
        25 * invariance(first_BD, second_BD)
        + 25 * (variance(first_BD) + variance(second_BD)) / 2
        + covariance(first_BD)
        + covariance(second_BD)
    )


def barlow_twins(first_BD: Tensor, second_BD: Tensor) -> Tensor:
    diagonal, others = redundancy(first_BD, second_BD)
    return diagonal + 0.0051 * others


PAIRS: dict[str, Pair] = {
    "SimCLR": Pair(lambda x, y: nt_xent(x, y, 0.1), NTXentLoss(0.1)),
    "MoCo v2": Pair(contrasted, contrasted_by_lightly),
    "SimSiam, BYOL": Pair(negative_cosine, NegativeCosineSimilarity()),
    "Barlow Twins": Pair(barlow_twins, BarlowTwinsLoss(lambda_param=0.0051)),
    "SwAV": Pair(assigned, assigned_by_lightly),
    "DINO": Pair(taught, taught_by_lightly),
    "VICReg": Pair(vicreg, VICRegLoss()),
}


def deviation(found: Sequence[Tensor], expected: Sequence[Tensor]) -> float:
    """The largest distance, as a share of the largest number that is expected."""
    largest = max(float(each.abs().max()) for each in expected)
    return max(float((a - b).abs().max()) for a, b in zip(found, expected, strict=True)) / largest


def compared(pair: Pair, dtype: torch.dtype) -> dict[str, float]:
    """Deviations of the value and of the gradient."""
    generator = torch.Generator().manual_seed(0)
    drawn = torch.randn(2, BATCH, DIM, generator=generator, dtype=torch.float64)
    length = 0.1 + 3 * torch.rand(2, BATCH, 1, generator=generator, dtype=torch.float64)
    inputs = [each.to(dtype).requires_grad_() for each in drawn * length]
    values = [loss(*inputs) for loss in pair]
    gradients = [torch.autograd.grad(value, inputs, allow_unused=True) for value in values]
    known = [[each for each in of if each is not None] for of in gradients]
    return {
        "value": deviation([values[0].detach()], [values[1].detach()]),
        "gradient": deviation(*known),
    }


def main() -> None:
    """Compare all, and write the deviations."""
    deviations = {
        name: {precision: compared(pair, dtype) for precision, dtype in PRECISIONS.items()}
        for name, pair in PAIRS.items()
    }
    for name, of in deviations.items():
        print(name, {key: f"{value:.1e}" for key, value in of["float64"].items()})
    result = {
        "batch": BATCH,
        "dim": DIM,
        "lightly": version("lightly"),
        "deviations": deviations,
        "provenance": provenance(),
    }
    write_json(RESULTS / "oracles.json", result)


if __name__ == "__main__":
    main()
