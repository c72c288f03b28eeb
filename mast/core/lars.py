"""LARS as the code of VICReg and Barlow Twins computes it."""

from collections.abc import Callable
from typing import Any

import torch


class OfficialLars(torch.optim.SGD):
    """SGD with momentum on gradients whose norm is a share of their parameter's.

    A gradient and its weight decay are added before their common norm is taken, `|g + d w|`; timm's
    LARS takes `|g| + d |w|`. The two agree where nothing decays.

    Args:
        groups: Of parameters; a group with "adapt" false has plain SGD.
        lr: Rate of groups that have none.
        momentum: Of the steps.
        trust: Norm of an adapted gradient as a share of its parameter's.

    Reference:
        You, Gitman, Ginsburg (2017); facebookresearch/vicreg and facebookresearch/barlowtwins.
    """

    def __init__(
        self, groups: list[dict[str, Any]], lr: float, momentum: float, trust: float
    ) -> None:
        super().__init__(groups, lr=lr, momentum=momentum)
        for group in self.param_groups:
            group["trust"] = trust

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """One step; what gradients hold afterwards is what was stepped by."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        decays = [group["weight_decay"] for group in self.param_groups]
        for group in self.param_groups:
            if group.get("adapt", True):
                _adapt(group)
                group["weight_decay"] = 0.0  # is in the gradient
        try:
            super().step()
        finally:
            for group, decay in zip(self.param_groups, decays, strict=True):
                group["weight_decay"] = decay
        return loss


def _adapt(group: dict[str, Any]) -> None:
    """Give each gradient its parameter's decay, and its share of the parameter's norm.

    One kernel an operation for all parameters of the group, where the device has it, but for the
    product with their shares, of which there is one each.
    """
    moved = [parameter for parameter in group["params"] if parameter.grad is not None]
    if not moved:
        return
    gradients = [parameter.grad for parameter in moved]
    torch._foreach_add_(gradients, moved, alpha=group["weight_decay"])
    own_N, its_N = (torch.stack(torch._foreach_norm(tensors)) for tensors in (moved, gradients))
    # 1 where it or the parameter is 0
    ratio_N = torch.where((own_N > 0) & (its_N > 0), group["trust"] * own_N / its_N, 1.0)
    torch._foreach_mul_(gradients, list(ratio_N.unbind()))
