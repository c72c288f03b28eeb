"""Optimizers, their parameter groups and the learning-rate schedule."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal

import torch

from mast.core.fields import check_within

CPU = torch.device("cpu")
OptimizerName = Literal["lars", "lars_official", "adamw", "sgd", "lamb"]


@dataclass
class OptimizerConfig:
    """The optimizer and its learning rates.

    Attributes:
        name: "lars" (timm's), "lars_official" (adds weight decay before taking the gradient norm,
            as in VICReg's and Barlow Twins' code), "adamw", "sgd", or "lamb" (timm's).
        lr: Peak learning rate at a global batch of 256; `lr * batch_size / 256` is used.
        weight_decay: Weight decay of weights with two or more dimensions; biases and norms have
            none.
        treat_alike: Apply weight decay and LARS adaptation to biases and norms too, as the code of
            MoCo, SimSiam and SwAV does.
        momentum: Momentum of LARS and SGD.
        trust: Trust coefficient of LARS, for weights only.
        gate_lr: Peak learning rate of masks and GeM powers, not scaled with the batch. They have
            no weight decay and no LARS adaptation.
        warmup: Linear warm-up in epochs, at most 5 % of the run.
        final: Final learning rate as a share of the peak.
        clip: Clip gradients to this norm; None for no clipping, except LAMB's own to 1.
        encoder_rate: The encoder's learning rate as a share of the projector's and heads'.
    """

    limits: ClassVar = {
        "lr": "(0, inf)", "encoder_rate": "(0, inf)", "clip": "(0, inf]", "momentum": "[0, 1]",
        "final": "[0, 1]",
        **dict.fromkeys(("weight_decay", "trust", "gate_lr", "warmup"), "[0, inf)"),
    }  # fmt: skip

    name: OptimizerName = "lars"
    lr: float = 0.2
    weight_decay: float = 1e-6
    treat_alike: bool = False
    momentum: float = 0.9
    trust: float = 0.001
    gate_lr: float = 0.01
    warmup: float = 10.0
    final: float = 0.001
    clip: float | None = None
    encoder_rate: float = 1.0

    def check(self) -> None:
        """Refuse invalid values."""
        check_within(vars(self), self.limits, "optimizer.")


def learning_rate(progress: float, warmup: float, final: float) -> float:
    """Learning rate as a share of its peak: a linear warm-up, then a half cosine to `final`.

    Progress and warm-up are shares of the run.

    Reference:
        VICReg's `adjust_learning_rate`; Loshchilov and Hutter, SGDR (2017).
    """
    if not 0.0 <= progress <= 1.0:
        raise ValueError(f"progress: expected a share of the run in [0, 1], got {progress}")
    if progress < warmup:
        return progress / warmup
    position = (progress - warmup) / (1.0 - warmup)
    return final + (1.0 - final) * 0.5 * (1.0 + math.cos(math.pi * position))


def to_zero(steps: int, warmup: float = 0.0) -> Callable[[float], float]:
    """Learning rate of a training that decays to zero, by its progress after a step.

    A step has the rate of its middle, so that neither the first nor the last has rate 0.
    """
    return lambda progress: learning_rate(progress - 0.5 / steps, warmup, final=0.0)


def warmup_share(config: OptimizerConfig, epochs: int) -> float:
    """Share of the run for warm-up: `config.warmup` epochs or 5 %, whichever is shorter."""
    return min(config.warmup / epochs, 0.05)


def make_optimizer(
    groups: list[dict[str, Any]],
    config: OptimizerConfig,
    batch_size: int,
    device: torch.device = CPU,
) -> torch.optim.Optimizer:
    """Build the optimizer over parameter groups, and set their "peak_lr".

    Args:
        groups: Dicts with "name" ("weights", "vectors" or "gates") and "params"; optionally
            "share", a factor on the rate; "peak_lr", a rate of its own; "steady", to hold the
            rate at its peak.
        config: Optimizer and rates.
        batch_size: Global batch, over processes and accumulation.
        device: Device of the parameters during steps.
    """
    config.check()
    prepared = []
    for group in groups:
        is_gate = group["name"] == "gates"
        is_weight = group["name"] == "weights" or (config.treat_alike and not is_gate)
        peak = config.gate_lr if is_gate else config.lr * batch_size / 256
        peak = group.get("peak_lr", peak * group.get("share", 1.0))
        options = {"lr": peak, "peak_lr": peak}
        options["weight_decay"] = config.weight_decay if is_weight else 0.0
        if config.name == "lars":
            # timm adapts the rate of groups with weight decay, or if requested.
            options["always_adapt"] = is_weight
        if config.name == "lars_official":  # weight decay is part of the gradient
            options |= {"adapt": is_weight, "decay": options["weight_decay"], "weight_decay": 0.0}
        prepared.append({**group, **options})
    kind, options = _kind(config, device)
    optimizer = kind(prepared, **options)
    if config.name == "lars_official":
        optimizer.register_step_pre_hook(partial(_adapt, config.trust))
    return optimizer


def _kind(
    config: OptimizerConfig, device: torch.device
) -> tuple[type[torch.optim.Optimizer], dict[str, Any]]:
    """The class of an optimizer, and its options."""
    fused = True if device.type == "cuda" else None  # None: as PyTorch chooses
    if config.name == "adamw":
        return torch.optim.AdamW, {"fused": fused}
    if config.name == "sgd":
        return torch.optim.SGD, {"momentum": config.momentum, "fused": fused}
    if config.name == "lars_official":
        return torch.optim.SGD, {"momentum": config.momentum}
    from timm.optim.lamb import Lamb
    from timm.optim.lars import Lars

    if config.name == "lamb":
        return Lamb, {}
    return Lars, {"momentum": config.momentum, "trust_coeff": config.trust}


def load_state(optimizer: torch.optim.Optimizer, state: dict[str, Any]) -> None:
    """Load a state, perhaps of another device; rates and kernels are not loaded."""
    own = [{name: value for name, value in group.items() if name != "params"}
           for group in optimizer.param_groups]  # fmt: skip
    groups = [{**group, **mine} for group, mine in zip(state["param_groups"], own, strict=True)]
    optimizer.load_state_dict({**state, "param_groups": groups})


def set_learning_rate(optimizer: torch.optim.Optimizer, share: float) -> None:
    """Set the rate of each group to a share of its peak, except for steady groups."""
    for group in optimizer.param_groups:
        if not group.get("steady", False):
            group["lr"] = group["peak_lr"] * share


@torch.no_grad()
def _adapt(trust: float, optimizer: torch.optim.Optimizer, *_: Any) -> None:
    """Before a step of SGD, scale each gradient's norm to a share (`trust`) of its parameter's.

    Weight decay is added before taking the norm, `|g + d w|`; timm's LARS takes `|g| + d |w|`.
    Groups with "adapt" false get plain SGD. Uses fused (foreach) kernels over a group where the
    device has them, except for the scaling.

    Reference:
        You, Gitman, Ginsburg (2017); facebookresearch/vicreg and facebookresearch/barlowtwins.
    """
    for group in optimizer.param_groups:
        moved = [parameter for parameter in group["params"] if parameter.grad is not None]
        if not (moved and group["adapt"]):
            continue
        gradients = [parameter.grad for parameter in moved]
        torch._foreach_add_(gradients, moved, alpha=group["decay"])
        own_N, its_N = (torch.stack(torch._foreach_norm(tensors)) for tensors in (moved, gradients))
        # 1 if it or the parameter is 0
        ratio_N = torch.where((own_N > 0) & (its_N > 0), trust * own_N / its_N, 1.0)
        torch._foreach_mul_(gradients, list(ratio_N.unbind()))
