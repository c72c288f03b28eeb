"""Accuracy under changes whose effect on the encoder is known."""

import pytest
from torch import Tensor, nn

from mast.measure.sets import EvaluationData
from mast.protocols.run import EvaluationSettings, evaluate_encoder

QUICK = {"max_iterations": 50, "magnitudes": [0.5, 1.0], "resamples": 50}


class Mean(nn.Module):
    """The image's mean colour, or only how its red compares with its mean."""

    def __init__(self, relative: bool) -> None:
        super().__init__()
        self.relative = relative

    def forward(self, images_BCHW: Tensor) -> Tensor:
        mean_BC = images_BCHW.mean(dim=(2, 3))
        return mean_BC / mean_BC.sum(dim=1, keepdim=True) if self.relative else mean_BC


def measure(encoder: nn.Module, data: EvaluationData, *operators: str) -> dict[str, float]:
    settings = EvaluationSettings(protocols={"robust": {**QUICK, "operators": operators}})
    (result,) = evaluate_encoder(encoder, data, ["robust"], settings)
    return result.targets["class"].values


def test_what_an_encoder_ignores_costs_nothing(data: EvaluationData) -> None:
    values = measure(Mean(relative=False), data, "horizontal_flip", "invert", "gaussian_blur")
    assert values["horizontal_flip"] == pytest.approx(values["top1"], abs=1e-3)
    assert values["gaussian_blur"] == pytest.approx(values["top1"], abs=5)
    assert values["invert"] < values["top1"] - 30  # colours become those of other classes
    assert "invert@1" not in values  # it has no magnitude
    mean = (values["gaussian_blur@0.5"] + values["gaussian_blur@1"]) / 2
    assert values["gaussian_blur"] == pytest.approx(mean)
    operators = [values[name] for name in ("horizontal_flip", "invert", "gaussian_blur")]
    assert values["changed"] == pytest.approx(sum(operators) / 3)
    assert values["changed_low"] <= values["changed"] <= values["changed_high"]
