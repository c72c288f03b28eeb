"""The learning-rate schedule and what each parameter group is spared."""

import pytest
import torch
from torch import Tensor, nn

from mast.core.optim import (
    OptimizerConfig,
    learning_rate,
    make_optimizer,
    set_learning_rate,
    warmup_share,
)


def test_rates_by_hand() -> None:
    assert learning_rate(0.05, 0.1, 0.001) == pytest.approx(0.5)
    assert learning_rate(0.55, 0.1, 0.2) == pytest.approx(0.6)  # half way down the cosine
    for epochs, share in ((1000, 0.01), (100, 0.05), (1, 0.05)):
        assert warmup_share(OptimizerConfig(warmup=10.0), epochs) == pytest.approx(share)
    with pytest.raises(ValueError, match=r"in \[0, 1\]"):
        learning_rate(1.01, 0.1, 0.0)


def moved_by(
    config: OptimizerConfig, batch_size: int = 128, steps: int = 1
) -> dict[str, tuple[Tensor, Tensor]]:
    """Parameters before and after steps with the gradient 1, 2, 3, … in every group, in float64."""
    shapes = {"weights": (2, 3), "vectors": (3,), "gates": (2, 2)}
    torch.manual_seed(0)
    parameters = {
        name: nn.Parameter(torch.randn(shape, dtype=torch.float64))
        for name, shape in shapes.items()
    }
    before = {name: parameter.detach().clone() for name, parameter in parameters.items()}
    groups = [{"name": name, "params": [value]} for name, value in parameters.items()]
    optimizer = make_optimizer(groups, config, batch_size)
    for _ in range(steps):
        for parameter in parameters.values():
            parameter.grad = gradient(parameter)
        optimizer.step()
    return {name: (before[name], parameters[name].detach()) for name in shapes}


def gradient(like: Tensor) -> Tensor:
    return torch.arange(1.0, like.numel() + 1, dtype=like.dtype).view(like.shape)


def test_lars_step_by_hand() -> None:
    config = OptimizerConfig(
        "lars", lr=0.4, weight_decay=0.1, trust=0.02, gate_lr=0.05, momentum=0.9
    )
    moved = moved_by(config, batch_size=128)
    rate = 0.4 * 128 / 256
    before, after = moved["weights"]
    grad = gradient(before)
    trust = 0.02 * before.norm() / (grad.norm() + 0.1 * before.norm())
    torch.testing.assert_close(after, before - rate * trust * (grad + 0.1 * before))
    before, after = moved["vectors"]
    torch.testing.assert_close(after, before - rate * gradient(before))
    before, after = moved["gates"]
    torch.testing.assert_close(after, before - 0.05 * gradient(before))


@pytest.mark.parametrize("treat_alike", [False, True])
def test_official_lars_steps_by_hand(treat_alike: bool) -> None:
    """Two steps, as VICReg's code computes them, in float64."""
    lr, decay, momentum, trust = 0.1, 0.3, 0.9, 0.02
    config = OptimizerConfig(
        "lars_official", lr, decay, treat_alike, momentum=momentum, trust=trust, gate_lr=0.05
    )
    for name, (value, after) in moved_by(config, 256, steps=2).items():
        now, moving = value, torch.zeros_like(value)
        for _ in range(2):
            update = gradient(value)
            if name == "weights" or (treat_alike and name == "vectors"):
                update = update + decay * now
                update = update * (trust * now.norm() / update.norm())
            moving = momentum * moving + update
            now = now - (0.05 if name == "gates" else lr) * moving
        torch.testing.assert_close(after, now, rtol=1e-12, atol=0)


def test_adamw_decays_weights_only() -> None:
    config = OptimizerConfig("adamw", lr=0.4, weight_decay=0.5, gate_lr=0.05)
    moved, plain = moved_by(config), moved_by(OptimizerConfig("adamw", 0.4, 0.0, gate_lr=0.05))
    for name in ("vectors", "gates"):
        assert torch.equal(moved[name][1], plain[name][1])
    before, after = moved["weights"]
    torch.testing.assert_close(after, plain["weights"][1] - 0.2 * 0.5 * before)


def test_rates_follow_the_share_of_their_own_peak() -> None:
    groups = [
        {"name": "weights", "params": [nn.Parameter(torch.ones(2, 2))]},
        {"name": "gates", "params": [nn.Parameter(torch.ones(2))]},
        {"name": "vectors", "params": [nn.Parameter(torch.ones(2))], "steady": True},
    ]
    optimizer = make_optimizer(groups, OptimizerConfig("adamw", lr=0.2, gate_lr=0.01), 512)
    set_learning_rate(optimizer, 0.5)
    assert [group["lr"] for group in optimizer.param_groups] == pytest.approx([0.2, 0.005, 0.4])
