"""Few labels: draws, intervals, and accuracies whose answer is known."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from mast.core.errors import UserError
from mast.data import CanvasSet
from mast.evaluation.labelled_sets import EvaluationData
from mast.evaluation.protocols.run import EvaluationSettings, evaluate_encoder

QUICK = {
    "repeats": 3, "episodes": 20, "queries": 4, "shots": [5],
    "penalties": [1, 0.1, 0.01, 1e-3],
}  # fmt: skip


def measure(encoder: nn.Module, data: EvaluationData, **changes: object) -> dict[str, float]:
    settings = EvaluationSettings(protocols={"fewshot": {**QUICK, **changes}})
    (result,) = evaluate_encoder(encoder, data, ["fewshot"], settings)
    return result.targets["class"].values


class Blind(nn.Module):
    """Features that have nothing to do with the image."""

    def forward(self, images_BCHW: Tensor) -> Tensor:
        generator = torch.Generator().manual_seed(len(images_BCHW))
        return torch.randn(len(images_BCHW), 6, generator=generator)


def only_colors(canvases: CanvasSet) -> CanvasSet:
    """A set without its other targets."""
    return replace(canvases, targets={"class": canvases.targets["class"]})


def test_colors_are_learned_from_few_and_noise_is_not(
    encoder: nn.Module, data: EvaluationData
) -> None:
    data = replace(data, train=only_colors(data.train))
    sighted, blind = measure(encoder, data), measure(Blind(), data)
    for name, least in (("5_a_class", 60), ("3_way_5_shot", 60), ("3_way_1_shot", 40)):
        assert sighted[f"{name}_low"] <= sighted[name] <= sighted[f"{name}_high"]
        assert sighted[name] > least
        assert blind[name] == pytest.approx(100 / 3, abs=15)
    assert sighted["3_way_5_shot"] >= sighted["3_way_1_shot"] - 5


class Blue(nn.Module):
    """By how much blue is above red, in which these images differ by class alone."""

    def forward(self, images_BCHW: Tensor) -> Tensor:
        mean_BC = images_BCHW.mean(dim=(2, 3))
        return mean_BC[:, 2:] - mean_BC[:, :1]


def test_episodes_that_are_all_alike_have_no_interval(make_set: Callable[..., CanvasSet]) -> None:
    train, test = (only_colors(make_set(count, classes=2, noise=0)) for count in (6, 2))
    data = EvaluationData(train, None, replace(test, fingerprint="test"), 16)
    values = measure(Blue(), data, support=[1], queries=1, shots=[2], episodes=5)
    assert values["2_way_1_shot"] == 100
    assert "2_way_1_shot_low" not in values
    assert values["2_a_class"] == 100


def test_episodes_are_scored_on_other_files(encoder: nn.Module, data: EvaluationData) -> None:
    """A class with two files has one to learn from and one to be scored on."""
    data = replace(data, train=only_colors(data.train))
    labels_M = data.test.targets["class"]
    tiles = tuple(f"{label}-{at % 2}.png@x{at}y0" for at, label in enumerate(labels_M))
    data = replace(data, test=replace(data.test, identifiers=tiles))
    assert measure(encoder, data, support=[1])["3_way_1_shot"] > 40
    with pytest.raises(
        UserError, match=r"more than 2 files of test images\. Set a smaller `support`"
    ):
        measure(encoder, data, support=[2])
