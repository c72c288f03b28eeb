"""Every protocol on a tiny set: it runs, it learns, it never tunes on the test set."""

import functools
from abc import ABC
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tiny_evaluation import QUICK, SIDE, Colors, complete, tiny_set
from torch import nn

from mast.data import CanvasSet
from mast.evaluation.frozen import FrozenEncoder
from mast.evaluation.intervals import BOOTSTRAP, OF_FILES
from mast.evaluation.labelled_sets import EvaluationData, ObjectData
from mast.evaluation.protocols import EVALUATORS, Evaluator
from mast.evaluation.protocols.run import evaluate_encoder
from mast.evaluation.result import Result
from mast.models import Encoder

TARGETS = {  # of the protocols that bring their own
    "rotation": ["rotation"],
    "svm": ["shows"],
    "semi": ["class 20%", "bright 20%"],
    "detection": ["objects"],
    "segmentation": ["objects", "masks"],
}
# The first value of the first target; these images do not show which way up they are.
LEAST = dict.fromkeys(EVALUATORS, 75) | {"rotation": 0}
UNTUNED = ("semi", "retrieval")
OF_OBJECTS = [name for name, row in EVALUATORS.items() if row.kind.needs is ObjectData]
OF_IMAGES = [name for name in EVALUATORS if name not in OF_OBJECTS]


@pytest.mark.parametrize("name", OF_IMAGES)
@pytest.mark.parametrize("with_validation", [True, False])
def test_conformance(
    name: str,
    with_validation: bool,
    encoder: nn.Module,
    data: EvaluationData,
) -> None:
    data = data if with_validation else replace(data, val=None)
    result = conform(name, complete(encoder), data)
    if with_validation:
        again = with_validation_set(name)
    else:
        (again,) = evaluate_encoder(complete(encoder), data, name, QUICK)
    assert again.targets == result.targets
    assert next(iter(result.targets[TARGETS.get(name, ["class"])[0]].values.values())) > LEAST[name]


@pytest.mark.parametrize(
    "name", ["embedding", "knn", "retained", "retrieval", "robust", "rotation", "svm"]
)
def test_intervals_over_tiles_are_of_their_files(
    name: str, encoder: nn.Module, data: EvaluationData, tmp_path: Path
) -> None:
    tiles = tuple(f"{at // 2}.png@x{at % 2}y0" for at in range(len(data.test)))
    data = replace(data, test=replace(data.test, identifiers=tiles))
    (result,) = evaluate_encoder(complete(encoder), data, name, QUICK)
    for measured in Result.read(result.write(tmp_path)).targets.values():
        assert measured.intervals
        for of, method in measured.intervals.items():
            assert method == BOOTSTRAP if name == "svm" else method.endswith(OF_FILES), of
        assert measured.files.keys() == measured.each.keys()


@pytest.mark.parametrize("name", OF_OBJECTS)
def test_conformance_on_objects(name: str, resnet: Encoder, object_data: ObjectData) -> None:
    results = [conform(name, FrozenEncoder(resnet), object_data) for _ in range(2)]
    assert results[0] == results[1]
    for measured in results[0].targets.values():
        assert list(measured.values)[:3] == ["ap", "ap50", "ap75"]


@functools.cache
def with_validation_set(name: str) -> Result:
    """What a protocol measures of the same encoder and sets, for all tests."""
    torch.manual_seed(0)
    data = EvaluationData(tiny_set(20, seed=0), tiny_set(6, seed=1), tiny_set(8, seed=2), SIDE)
    (result,) = evaluate_encoder(complete(Colors()), data, name, QUICK)
    return result


def conform(name: str, frozen: FrozenEncoder, data: EvaluationData | ObjectData) -> Result:
    """What every protocol keeps to."""
    encoder = frozen.module
    weights = {key: value.clone() for key, value in encoder.state_dict().items()}
    encoder.train()
    (result,) = evaluate_encoder(frozen, data, name, QUICK)
    assert list(result.targets) == TARGETS.get(name, ["class", "bright"])
    for measured in result.targets.values():
        assert measured.values
        for measure, value in measured.values.items():
            if f"{measure}_low" in measured.values:
                low, high = (measured.values[f"{measure}_{end}"] for end in ("low", "high"))
                assert low <= value <= high
        if "top1" in measured.values:
            assert measured.values["mean_per_class"] == pytest.approx(measured.values["top1"])
        assert all(value <= 100 for name, value in measured.chosen.items() if "validation" in name)
        for measure, each in measured.each.items():
            percent = 100 * float(each.double().mean())
            assert percent == pytest.approx(measured.values[measure], abs=1e-3)
    # The encoder is as it was.
    assert all(module.training for module in encoder.modules())
    assert all(torch.equal(weights[key], value) for key, value in encoder.state_dict().items())
    assert all(parameter.grad is None for parameter in encoder.parameters())
    return result


@pytest.mark.parametrize("name", OF_IMAGES)
def test_tuning_never_sees_the_test_set(
    name: str, encoder: nn.Module, data: EvaluationData, make_set: Callable[..., CanvasSet]
) -> None:
    other = replace(data, test=make_set(9, seed=5, noise=110.0))
    first = with_validation_set(name)
    (second,) = evaluate_encoder(complete(encoder), other, name, QUICK)
    for target, measured in first.targets.items():
        assert measured.chosen == second.targets[target].chosen
        assert measured.values != second.targets[target].values
        assert bool(measured.chosen) == (name not in UNTUNED)


def test_rows_of_the_registry() -> None:
    for name, row in EVALUATORS.items():
        assert issubclass(row.kind, Evaluator)
        assert row.title.strip(". ") == row.title, name
        # Abstract or final: nothing that can be made is inherited from.
        bases = [base for base in row.kind.__mro__[1:] if issubclass(base, Evaluator)]
        assert row.kind.__final__, name
        assert all(ABC in base.__bases__ for base in bases), name
