"""What the contract promises beside what every method keeps: resuming, freezing, what it lacks."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny import SIZE, build_method, make_views
from torch import Tensor, nn

from mast.augment import PRESETS, Pipeline, Views, difference
from mast.core.canvases import Canvases
from mast.core.errors import UserError
from mast.core.launch import make_fabric
from mast.core.loop import Training
from mast.core.optim import OptimizerConfig, make_optimizer
from mast.methods import Embedding, Mast, Method
from paper.outputs import MethodOutput, uncertainty

BATCH, STEPS = 4, 6
LARS = OptimizerConfig("lars", lr=0.3)
FROZEN = 3  # steps


def train(
    method: Method, checkpoint: Path, stop: int = STEPS, optimizer: OptimizerConfig = LARS
) -> Training:
    """Train up to a step, from the checkpoint if there is one."""
    training = Training(
        method,
        make_optimizer(method.parameter_groups(), optimizer, 256),
        2,
        STEPS // 2,
        lambda progress: 1.0,
        clip=optimizer.clip,
        frozen=method.frozen,
        checkpoint=checkpoint,
        log_every=1,
    )
    training.resume(seed=0)

    def batches(epoch: int, start: int) -> Iterator[int]:
        yield from range(3 * epoch + start, 3 * epoch + 3)

    def loss(module: Any, batch: int, step: int, part: int) -> dict[str, Tensor]:
        output: dict[str, Tensor] = module(make_views(batch), step / training.steps)
        return output

    for done in training.run(make_fabric("cpu"), batches, loss):
        method.after_step(done.step / training.steps)
        if done.step == stop:
            break
    training.save()
    return training


def plainly(method: Method, config: Any) -> None:
    """Train as the official code of SwAV and DINO does, in a loop of its own."""
    torch.manual_seed(0)
    optimizer = make_optimizer(method.parameter_groups(), config, 256)
    for step in range(STEPS):
        optimizer.zero_grad()
        method(make_views(step), step / STEPS)["loss"].backward()
        if step < FROZEN:
            for name, parameter in method.named_parameters():
                if name.startswith("prototypes."):
                    parameter.grad = None
        trained = [own for group in optimizer.param_groups for own in group["params"]]
        nn.utils.clip_grad_norm_(trained, config.clip)
        optimizer.step()
        method.after_step((step + 1) / STEPS)


@pytest.mark.parametrize(("name", "optimizer"), [("swav", "lars_official"), ("dino", "adamw")])
def test_frozen_prototypes_start_as_new_ones(name: str, optimizer: Any, tmp_path: Path) -> None:
    """Once they thaw, moments begin, and nothing has decayed; also where a run was stopped."""
    config = OptimizerConfig(optimizer, lr=0.01, weight_decay=0.1, trust=1.0, clip=1.0)
    options = {"prototypes": 6, "frozen": FROZEN / STEPS}
    expected, whole, resumed = (build_method(name, {}, options) for _ in range(3))
    before = expected.prototypes.weight_PD.clone()
    plainly(expected, config)
    train(whole, tmp_path / "whole.pt", optimizer=config)
    for steps in (FROZEN - 1, STEPS):
        train(resumed, tmp_path / "cut.pt", steps, config)
        if steps < FROZEN:
            torch.testing.assert_close(resumed.prototypes.weight_PD, before, rtol=0, atol=1e-6)
    assert (expected.prototypes.weight_PD - before).abs().max() > 1e-4
    for key, value in expected.state_dict().items():
        assert torch.equal(value, whole.state_dict()[key]), key
        assert torch.equal(value, resumed.state_dict()[key]), key


class Asked(nn.Module):
    """What the heads of a method are asked to tell, in place of a loss."""

    def forward(self, views: Views) -> dict[str, Tensor]:
        assert torch.is_autocast_enabled("cpu")
        return {name: difference(views, name) for name in views.names}


def test_in_mixed_precision_heads_are_asked_for_what_was_drawn() -> None:
    """Fabric rounds every float that it finds in what a module is called with."""
    pipeline, aspect_B = Pipeline(PRESETS["mast5"], SIZE), torch.linspace(0.6, 1.7, BATCH)
    canvas_BHWC = torch.zeros(BATCH, 40, 40, 3, dtype=torch.uint8)
    drawn = pipeline.draw(BATCH, torch.Generator().manual_seed(0))
    given = pipeline.views(Canvases.of(canvas_BHWC, aspect_B), drawn)
    asked = make_fabric("cpu", precision="bfloat16").setup_module(Asked())(given)
    for name, answer_BT in asked.items():
        expected_BT = difference(given, name)
        assert answer_BT.dtype == torch.float32
        assert torch.equal(answer_BT.nan_to_num(99), expected_BT.nan_to_num(99)), name


def test_what_a_method_does_not_have() -> None:
    method = build_method("moco_v2", {}, {"queue": 16}).eval()
    assert method.subspaces() is None
    assert uncertainty(method, make_views(0).images[0]) is None
    embedding = Embedding(method)
    images_BCHW = make_views(0).images[0]
    assert torch.equal(embedding(images_BCHW), method.embed(images_BCHW))
    assert (embedding.operators, embedding.masks()) == ((), None)
    with pytest.raises(UserError, match="no masks"):
        MethodOutput(method, "ensemble")
    with pytest.raises(UserError, match="predicts no uncertainty"):
        MethodOutput(method, "uncertainty")


def test_an_uncertainty_is_the_trace_of_the_covariance() -> None:
    method = build_method("mast", {}, {}).eval()
    assert isinstance(method, Mast)
    images_BCHW = make_views(0).images[0]
    covariance_BD = method.projector(method.encoder.encode(images_BCHW)).covariance_BD
    assert torch.equal(
        MethodOutput(method, "uncertainty")(images_BCHW).squeeze(1), covariance_BD.sum(1)
    )
    certain = build_method("mast", {}, {"uncertainty": False})
    assert uncertainty(certain, images_BCHW) is None
