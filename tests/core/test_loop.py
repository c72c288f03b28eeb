"""The loop: parts of a batch are averaged, and a checkpoint holds only finite numbers."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from mast.core.checkpoint import load_checkpoint
from mast.core.errors import UserError
from mast.core.launch import make_fabric
from mast.core.loop import Training
from mast.core.stopping import Interrupted, StopRequest
from mast.core.threads import prefetched, wait

Loss = Callable[[nn.Module, Tensor], dict[str, Tensor]]
NAN = float("nan")
STEPS = 6


class OnAGPU:
    """A fabric that says that it computes on a GPU, where reading a number would make it wait."""

    def __init__(self) -> None:
        self.fabric = make_fabric("cpu")
        self.device = SimpleNamespace(type="cuda")

    def __getattr__(self, name: str) -> Any:
        return getattr(self.fabric, name)


def layer() -> nn.Linear:
    torch.manual_seed(0)
    return nn.Linear(3, 2, bias=False)


def squares(module: nn.Module, batch: Tensor) -> dict[str, Tensor]:
    """A mean over samples."""
    return {"loss": module(batch).square().mean()}


def training_of(
    module: nn.Module, lr: float = 0.1, momentum: float = 0.0, **options: Any
) -> Training:
    groups = [{"params": module.parameters(), "peak_lr": lr}]
    optimizer = torch.optim.SGD(groups, lr, momentum)
    return Training(module, optimizer, 1, STEPS, lambda progress: 1.0, **options)


def run(training: Training, batches: list[Tensor], fabric: Any = None) -> Iterator[Any]:
    """The steps of one epoch of these batches, as mean squares."""
    return training.run(
        fabric or make_fabric("cpu"),
        lambda epoch, start: iter(batches[start:]),
        lambda module, batch, step, part: squares(module, batch),
    )


def steps(
    module: nn.Module,
    loss: Loss = squares,
    lr: float = 0.1,
    fabric: Any = None,
    batches: Callable[[int], list[Tensor]] = lambda step: [torch.ones(4, 3)],
    **options: Any,
) -> Iterator[Any]:
    """Train for `STEPS` steps in one epoch; `batches` gives the parts of each."""
    training = training_of(module, lr, **options)
    parts = [part for step in range(1, STEPS + 1) for part in batches(step)]
    yield from training.run(
        fabric or make_fabric("cpu"),
        lambda epoch, start: iter(parts[start:]),
        lambda module, batch, step, part: loss(module, batch),
    )


def test_parts_of_a_batch_are_averaged() -> None:
    """Two parts are the batch in one: weights, and the loss that is logged."""
    generator = torch.Generator().manual_seed(0)
    whole = [torch.randn(8, 3, generator=generator) for _ in range(STEPS)]
    together, apart = layer(), layer()
    expected = [
        done.metrics["loss"] for done in steps(together, batches=lambda step: [whole[step - 1]])
    ]
    found = [
        done.metrics["loss"]
        for done in steps(
            apart, batches=lambda step: list(whole[step - 1].split(4)), accumulate=2, log_every=2
        )
    ]
    assert found == pytest.approx(expected, rel=1e-5)
    torch.testing.assert_close(apart.weight, together.weight)
    assert (apart.weight - layer().weight).abs().max() > 0.05


def test_every_part_is_checked() -> None:
    def loss(module: nn.Module, batch: Tensor) -> dict[str, Tensor]:
        return squares(module, batch.abs()) | {"term/pull": batch.min().log()}

    def batches(step: int) -> list[Tensor]:
        return [torch.full((4, 3), -1.0 if step == 3 and part == 0 else 1.0) for part in (0, 1)]

    with pytest.raises(UserError, match="stopped at step 3: term/pull is not finite"):
        list(steps(layer(), loss, batches=batches, accumulate=2))


@pytest.mark.parametrize("make_fabric_of", [OnAGPU, lambda: make_fabric("cpu")])
def test_a_checkpoint_by_the_clock_waits_for_the_losses(
    make_fabric_of: Callable[[], Any], tmp_path: Path
) -> None:
    file = tmp_path / "last.pt"
    running = steps(
        layer(),
        lr=0.0,  # the weights stay finite: the losses alone can tell
        fabric=make_fabric_of(),
        batches=lambda step: [torch.full((4, 3), NAN if step == 4 else 1.0)],
        log_every=100,
        checkpoint=file,
        checkpoint_minutes=0.0,
        advice="Lower it.",
    )
    last_good = f"Lower it. The last good checkpoint is {file}"
    with pytest.raises(UserError, match=f"stopped at step 4: loss is not finite. {last_good}"):
        list(running)
    assert load_checkpoint(file)["step"] == 3


def test_weights_that_overflow_in_the_update_are_not_saved(tmp_path: Path) -> None:
    file = tmp_path / "last.pt"

    def batches(step: int) -> list[Tensor]:
        return [torch.full((4, 3), 1e18 if step == 3 else 1e-3)]

    def linear(module: nn.Module, batch: Tensor) -> dict[str, Tensor]:
        return {"loss": module(batch).mean()}

    running = steps(
        layer(), linear, lr=1e21, batches=batches, checkpoint=file, checkpoint_minutes=0.0
    )
    with pytest.raises(UserError, match="step 3: its update left weight not finite"):
        list(running)
    state = load_checkpoint(file)
    assert state["step"] == 2
    assert state["module"]["weight"].isfinite().all()


def test_an_optimizer_that_overflowed_is_not_saved(tmp_path: Path) -> None:
    module = layer()
    training = training_of(module, 0.0, 0.9, checkpoint=tmp_path / "last.pt")
    module.weight.grad = torch.full_like(module.weight, float("inf"))
    training.optimizer.step()
    with torch.no_grad():
        module.weight.zero_()
    with pytest.raises(UserError, match="the optimizer's momentum_buffer of parameter 0 not"):
        training.save()
    assert not (tmp_path / "last.pt").exists()


def test_the_optimizers_state_follows_the_weights(tmp_path: Path) -> None:
    """To another type in place of a device: loading moves the state to both."""

    class Moving(OnAGPU):
        def setup(self, module: nn.Module, optimizer: torch.optim.Optimizer) -> Any:
            return self.fabric.setup(module.double(), optimizer)

    module = layer()
    training = training_of(module, 0.1, 0.9, checkpoint=tmp_path / "last.pt")

    next(run(training, [torch.ones(4, 3)] * STEPS))
    training.save()
    training.resume(0)
    next(run(training, [torch.ones(4, 3, dtype=torch.float64)] * STEPS, Moving()))
    assert training.step == 2
    assert training.optimizer.state[module.weight]["momentum_buffer"].dtype == torch.float64


def test_what_is_dropped_goes_on_where_it_was(tmp_path: Path) -> None:
    """The generator of dropout and stochastic depth is part of a checkpoint."""

    def training(name: str) -> Training:
        return training_of(nn.Sequential(layer(), nn.Dropout(0.5)), checkpoint=tmp_path / name)

    def train(training: Training, until: int) -> None:
        running = run(training, [torch.arange(12.0).view(4, 3) / 12] * STEPS)
        for _ in range(training.step, until):
            next(running)

    whole, cut, again = training("whole.pt"), training("cut.pt"), training("cut.pt")
    whole.resume(seed=3)
    train(whole, STEPS)
    cut.resume(seed=3)
    train(cut, 2)
    cut.save()
    train(training("other.pt"), 3)  # draws
    again.resume(seed=3)
    assert again.step == 2
    train(again, STEPS)
    pairs = zip(again.module.parameters(), whole.module.parameters(), strict=True)
    assert all(torch.equal(ours, theirs) for ours, theirs in pairs)


@pytest.mark.parametrize("accumulate", [1, 2])
def test_a_signal_while_a_batch_is_waited_for_saves_what_was_done(
    tmp_path: Path, accumulate: int
) -> None:
    """As where a store is silent: the steps before are kept, and the wait ends at once."""
    stop = StopRequest()

    def batches(epoch: int, start: int) -> Iterator[Tensor]:
        def parts() -> Iterator[Tensor]:
            yield from [torch.ones(4, 3)] * 2 * accumulate
            wait(threading.Event(), 60)

        return prefetched(parts())

    training = training_of(
        layer(), accumulate=accumulate, stop=stop, checkpoint=tmp_path / "last.pt"
    )
    run = training.run(
        make_fabric("cpu"), batches, lambda module, batch, step, part: squares(module, batch)
    )
    with stop.listening():
        started = time.monotonic()
        timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGTERM))
        assert [next(run).step, next(run).step] == [1, 2]
        timer.start()
        with pytest.raises(Interrupted, match="after step 2 of 6, which was saved") as caught:
            next(run)
        timer.join()
    assert caught.value.code == 143
    assert time.monotonic() - started < 30
    assert load_checkpoint(tmp_path / "last.pt")["step"] == 2
    before = training_of(layer(), checkpoint=tmp_path / "no.pt")._interrupted(signal.SIGTERM)
    assert "after step 0 of 6, nothing was saved" in str(before)
