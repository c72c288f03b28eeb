"""The kNN protocol."""

from collections.abc import Callable
from dataclasses import replace

import pytest
from torch import nn

from mast.data import CanvasSet
from mast.measure.sets import EvaluationData
from mast.protocols.run import EvaluationSettings, evaluate_encoder


def test_neighbours_are_clipped_to_the_training_set(
    encoder: nn.Module, data: EvaluationData
) -> None:
    labels = data.train.targets["class"]
    few = data.train.subset([int((labels == label).argmax()) for label in range(3)])
    few = replace(few, targets={"class": few.targets["class"]})
    settings = EvaluationSettings(protocols={"knn": {"neighbours": (200,)}})
    (result,) = evaluate_encoder(encoder, replace(data, train=few), ["knn"], settings)
    assert result.targets["class"].chosen["k"] == 3  # clipped to the images there were


@pytest.mark.parametrize(("neighbours", "expected"), [(1, False), (4, False), (5, True)])
def test_fewer_than_five_neighbours_have_no_top5(
    encoder: nn.Module, make_set: Callable[..., CanvasSet], neighbours: int, expected: bool
) -> None:
    sets = [make_set(images, classes=10, seed=images) for images in (6, 2, 3)]
    settings = EvaluationSettings(protocols={"knn": {"neighbours": (neighbours,)}})
    (result,) = evaluate_encoder(encoder, EvaluationData(*sets, 16), "knn", settings)
    assert ("top5" in result.targets["class"].values) is expected
