"""The objectives beside VICReg's loss elsewhere: time, and memory as a function of K.

    python benchmarks/loss.py [--batch 256] [--dim 1024] [--rounds 20] [--threads 2] [--device cpu]

Forward and backward from embeddings that are there already, down to the gradients of means,
covariances and masks. Peers: `VICRegLoss` and `NTXentLoss` of lightly, and VICReg's published
formula written out in PyTorch. Memory is the most that one forward and backward holds at a time
beyond its inputs.
"""

import argparse
from collections.abc import Callable
from dataclasses import replace

import torch
from counted import Counted
from lightly.loss import NTXentLoss, VICRegLoss
from measure import alternate, report
from torch import Tensor
from torch.nn import functional

from mast.augment import PRESETS
from mast.methods import Mast, MastC, MastCConfig, MastConfig, VICReg, VICRegConfig
from mast.models import Encoder, EncoderConfig, MLPConfig
from mast.models.heads import Gaussian

Loss = Callable[[], Tensor]
OBJECTIVES = {
    "mast_c": MastCConfig(),
    "mast_c, distance": MastCConfig(compare="distance", exempt_share=0.03),
    "mast, no uncertainty": MastConfig(uncertainty=False),
    "mast, with KL": MastConfig(kl_weight=25.0),
    "mast, as printed": MastConfig(printed=True),
}


def published_vicreg(first_BD: Tensor, second_BD: Tensor) -> Tensor:
    """VICReg's loss as its code has it, with the D x D covariance."""
    count, dim = first_BD.shape
    loss = 25 * functional.mse_loss(first_BD, second_BD)
    for embedding_BD in (first_BD, second_BD):
        centred_BD = embedding_BD - embedding_BD.mean(dim=0)
        deviation_D = (centred_BD.var(dim=0) + 1e-4).sqrt()
        covariance_DD = centred_BD.T @ centred_BD / (count - 1)
        off_diagonal = covariance_DD.flatten()[:-1].view(dim - 1, dim + 1)[:, 1:]
        loss = loss + 25 * functional.relu(1 - deviation_D).mean() / 2
        loss = loss + off_diagonal.square().sum() / dim
    return loss


def objective(
    config: MastConfig | MastCConfig, inputs: list[Tensor], operators: tuple[str, ...]
) -> Loss:
    """Our objective of given embeddings, for the operators' masks."""
    first_BD, second_BD, first_covariance_BD, second_covariance_BD = inputs
    count, dim = first_BD.shape
    config = replace(config, projector=replace(config.projector, hidden=8, dim=dim))
    encoder = Encoder(EncoderConfig("resnet18"), 64)
    active_BK = torch.rand(count, len(operators), device=first_BD.device) < 0.5
    if isinstance(config, MastCConfig):
        ours = MastC(config, encoder, operators).to(first_BD.device)
        return lambda: ours.objective(first_BD, second_BD, active_BK, ours.masks())["loss"]
    method = Mast(config, encoder, operators).to(first_BD.device)
    first = Gaussian(first_BD, first_covariance_BD if config.uncertainty else None)
    second = Gaussian(second_BD, second_covariance_BD if config.uncertainty else None)
    return lambda: method.objective(first, second, active_BK, method.masks())["loss"]


def vicreg(inputs: list[Tensor]) -> Loss:
    """Our VICReg of given embeddings."""
    config = VICRegConfig(projector=MLPConfig(hidden=8, dim=inputs[0].shape[1]))
    method = VICReg(config, Encoder(EncoderConfig("resnet18"), 64), ())
    return lambda: method.objective(inputs[0], inputs[1])["loss"]


def embeddings(batch: int, dim: int, device: torch.device) -> list[Tensor]:
    """Two means and two covariances, leaves of a graph."""
    means = [torch.randn(batch, dim, device=device) for _ in range(2)]
    covariances = [torch.rand(batch, dim, device=device) + 0.5 for _ in range(2)]
    return [tensor.requires_grad_() for tensor in means + covariances]


def peak_bytes(loss: Loss) -> int:
    """The most that a forward and backward hold beyond what was there."""
    with Counted() as counted:
        loss().backward()
    return counted.peak


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--dim", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    device = torch.device(options.device)
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    inputs = embeddings(options.batch, options.dim, device)
    lightly, contrast = VICRegLoss(), NTXentLoss(temperature=0.1)
    operators = PRESETS["mast15"].operators
    losses: dict[str, Loss] = {
        "lightly VICRegLoss": lambda: lightly(inputs[0], inputs[1]),
        "lightly NTXentLoss": lambda: contrast(inputs[0], inputs[1]),
        "VICReg as published": lambda: published_vicreg(inputs[0], inputs[1]),
        "vicreg": vicreg(inputs),
        **{name: objective(config, inputs, operators) for name, config in OBJECTIVES.items()},
    }

    def backward(loss: Loss) -> Callable[[], None]:
        def run() -> None:
            for tensor in inputs:
                tensor.grad = None
            loss().backward()

        return run

    work = {name: backward(loss) for name, loss in losses.items()}
    timed = alternate(work, options.rounds, device)
    memory = {
        name: {
            f"K={len(PRESETS[preset].operators)}": peak_bytes(
                objective(config, inputs, PRESETS[preset].operators)
            )
            for preset in ("mast5", "mast15", "mast19")
        }
        for name, config in OBJECTIVES.items()
    }
    memory["lightly VICRegLoss"] = {"any K": peak_bytes(losses["lightly VICRegLoss"])}
    case = f"n={options.batch}, d={options.dim}, K=15"
    setting = vars(options)
    report("loss", device, setting, {case: timed}, "ms", "lightly VICRegLoss", peak_bytes=memory)


if __name__ == "__main__":
    main()
