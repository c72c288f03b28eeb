"""Fine-tuning on all labels: its recipes, and how little is enough."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from torch import nn

from mast.core.errors import UserError
from mast.data import CanvasSet
from mast.measure.frozen import FrozenEncoder
from mast.measure.sets import EvaluationData
from mast.protocols import FineTune


def test_a3_trains(encoder: nn.Module, make_set: Callable[..., CanvasSet]) -> None:
    data = EvaluationData(make_set(20), None, make_set(8, seed=2), 16)
    changes = {"epochs": 3, "batch_size": 15, "size": 16}
    settings = FineTune(recipe="a3", changes=changes)
    values = dict(settings.run(FrozenEncoder(encoder), data))
    assert np.isfinite(values["class/top1"])
    assert settings.settings()["resolved"]["optimizer"] == "lamb"
    assert settings.settings()["resolved"]["epochs"] == 3


def test_one_image_a_class_is_enough_where_nothing_is_tuned(
    encoder: nn.Module, data: EvaluationData
) -> None:
    labels = data.train.targets["class"]
    one = data.train.subset([int((labels == label).argmax()) for label in range(3)])
    few = replace(data, train=replace(one, targets={"class": one.targets["class"]}), val=None)
    settings = FineTune(changes={"epochs": 2})
    assert "class/top1" in dict(settings.run(FrozenEncoder(encoder), few))
    with pytest.raises(UserError, match="none can be held out"):
        list(FineTune(encoder_lrs=(0.1, 0.2)).run(FrozenEncoder(encoder), few))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: FineTune(changes={"epochs": 0}), "epochs must be 1 or more, got 0"),
        (lambda: FineTune(changes={"optimizer": "adam"}), "setting of recipe sgd: .*adam"),
        (lambda: FineTune(recipe="a4"), "unknown recipe of finetune 'a4'"),
        (
            lambda: FineTune(changes={"epoch": 1}),
            "unknown setting of recipe sgd .* mean 'epochs'",
        ),
        (lambda: FineTune(changes={"views": "mast6"}), "unknown views of a recipe 'mast6'"),
    ],
)
def test_settings_that_do_not_fit(make: Callable[[], object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        make()
