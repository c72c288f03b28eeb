"""What a task loses where an operator acts, on images whose answer is known."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from mast.measure.frozen import FrozenEncoder
from mast.measure.result import TargetResult
from mast.measure.sets import EvaluationData
from mast.protocols.retained import Retained
from mast.protocols.run import EvaluationSettings, evaluate_encoder


class Mean(nn.Module):
    """The image's mean colour."""

    def forward(self, images_BCHW: Tensor) -> Tensor:
        return images_BCHW.mean(dim=(2, 3))


def measure(data: EvaluationData, *operators: str, **settings: object) -> TargetResult:
    common = EvaluationSettings(protocols={"retained": {"operators": operators, **settings}})
    (result,) = evaluate_encoder(Mean(), data, ["retained"], common)
    return result.targets["class"]


def test_a_task_of_colours_needs_them(data: EvaluationData) -> None:
    found = measure(data, "horizontal_flip", "grayscale", max_iterations=100)
    values = found.values
    assert values["top1"] > 90
    assert values["change_horizontal_flip"] == pytest.approx(0, abs=1e-3)
    assert values["change_grayscale"] < -15
    assert values["change_grayscale_high"] < 0
    methods = [found.intervals[f"{measure}_grayscale"] for measure in ("with", "change")]
    assert methods == ["Wilson", "Tango"]
    for name in ("horizontal_flip", "grayscale"):
        changed = values["top1"] + values[f"change_{name}"]
        assert values[f"with_{name}"] == pytest.approx(changed)
    labels_M = torch.as_tensor(data.test.targets["class"])
    assert values["chance"] == pytest.approx(100 * float(labels_M.bincount().max()) / len(labels_M))


def test_half_of_the_images_are_changed_the_same_ones_each_time(data: EvaluationData) -> None:
    encoder = FrozenEncoder(Mean())
    retained = Retained(operators=("invert",))
    plain_MD = encoder.features(data.test, data.size)
    changed_MD = retained._changed("invert", encoder, data)[1]
    acts_M = ~torch.isclose(plain_MD, changed_MD, atol=1e-4).all(dim=1)
    assert 0.2 < float(acts_M.float().mean()) < 0.8
    assert changed_MD[acts_M] == pytest.approx(1 - plain_MD[acts_M], abs=1e-2)
    assert torch.equal(changed_MD, retained._changed("invert", encoder, data)[1])
    everywhere = replace(retained, share=1.0)._changed("invert", encoder, data)[1]
    assert everywhere == pytest.approx(1 - plain_MD, abs=1e-2)
