"""Protocols by name, and their settings."""

from collections.abc import Callable

import pytest
from torch import nn

from mast.core.errors import UserError
from mast.data import CanvasSet
from mast.evaluation.labelled_sets import EvaluationData
from mast.evaluation.protocols.run import EvaluationSettings, evaluate_encoder, make_evaluator
from paper.protocols.detection.data import ObjectData


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("linaer", {}, r"unknown protocol 'linaer'\. Did you mean 'linear'"),
        ("knn", {"temprature": 1}, "knn: unknown setting 'temprature'"),
        ("semi", {"shares": 0.1}, "expected shares to be a list, each a number, got 0.1"),
        ("semi", {"shares": (0.1,)}, "1 shares and 2 encoder_lrs"),
        ("semi", {"shares": (0.1, 0.1)}, "two shares of semi are equal"),
        ("knn", {"temperatures": []}, "temperatures must have one value or more"),
        ("linear", {"penalties": [0.0]}, "penalties must be above 0"),
        ("robust", {"magnitudes": [1.5]}, "magnitudes must be 1 or less"),
        ("retained", {"operators": ("inverts",)}, "unknown operator 'inverts'. Did you mean 'inv"),
        ("finetune", {"recipe": "a4"}, "finetune: .*recipe"),
        ("finetune", {"changes": {"loss": "hinge"}}, "finetune: unknown value of loss"),
        ("finetune", {"changes": {"epoch": 1}}, "setting of recipe sgd .* mean 'epochs'"),
        ("finetune", {"changes": {"views": "mast6"}}, "unknown views of a recipe 'mast6'"),
        ("detection", {"architecture": "c5"}, "detection: .*architecture"),
    ],
)
def test_settings_that_do_not_fit(name: str, changes: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        make_evaluator(name, EvaluationSettings(protocols={name: changes}))


@pytest.mark.parametrize("name", ["knn", "detection"])
def test_data_of_the_other_kind_is_refused(
    name: str, encoder: nn.Module, data: EvaluationData, object_data: ObjectData
) -> None:
    other = object_data if name == "knn" else data
    with pytest.raises(UserError, match=f"{name} needs .*Data, got .*Data: annotated objects are"):
        evaluate_encoder(encoder, other, [name])


@pytest.mark.parametrize(("neighbours", "expected"), [(4, False), (200, True)])
def test_fewer_than_five_neighbours_have_no_top5(
    encoder: nn.Module, make_set: Callable[..., CanvasSet], neighbours: int, expected: bool
) -> None:
    sets = [make_set(images, classes=10, seed=images) for images in (6, 2, 3)]
    settings = EvaluationSettings(protocols={"knn": {"neighbours": (neighbours,)}})
    (result,) = evaluate_encoder(encoder, EvaluationData(*sets, 16), "knn", settings)
    assert ("top5" in result.targets["class"].values) is expected
    assert result.targets["class"].chosen["k"] == min(neighbours, 60)  # clipped to what there is
