"""Every protocol on a tiny set: it runs, it learns, it never tunes on the test set; settings."""

from abc import ABC
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny import stacked
from tiny_evaluation import QUICK, complete, tiny_set
from torch import nn

from mast.core.errors import UserError
from mast.data import CanvasSet
from mast.data.pixels import Pixels
from mast.encoders.frozen import FrozenEncoder
from mast.evaluation.intervals import BOOTSTRAP, OF_FILES
from mast.evaluation.labelled_sets import EvaluationData
from mast.evaluation.protocols import EVALUATORS, Evaluator
from mast.evaluation.protocols.run import EvaluationSettings, evaluate_encoder, make_evaluator
from mast.evaluation.result import Result
from mast.models import Encoder
from paper.protocols.detection.data import ObjectData

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
OVER_DRAWS = ("fewshot",)  # the intervals are over draws of images to learn from
OF_OBJECTS = [name for name, row in EVALUATORS.items() if row.kind.needs is ObjectData]
OF_IMAGES = [name for name in EVALUATORS if name not in OF_OBJECTS]


def with_tiles(test: CanvasSet, others: CanvasSet) -> CanvasSet:
    """A test set followed by other images, every two of which are tiles of one file."""
    labels = {
        kind: {name: np.concatenate([of, getattr(others, kind)[name]])
               for name, of in getattr(test, kind).items()}
        for kind in ("targets", "multilabels")
    }  # fmt: skip
    count = len(test) + len(others)
    return replace(
        test,
        pixels=Pixels.of(np.concatenate([stacked(test), stacked(others)])),
        aspect_N=np.concatenate([test.aspect_N, others.aspect_N]),
        identifiers=tuple(f"{at // 2}.png@x{at % 2}y0" for at in range(count)),
        **labels,
    )


@pytest.mark.parametrize("name", OF_IMAGES)
def test_conformance(name: str, encoder: nn.Module, data: EvaluationData, tmp_path: Path) -> None:
    result = conform(name, complete(encoder), data)
    # Nothing that is learned or chosen depends on the test images.
    more = replace(data, test=with_tiles(data.test, tiny_set(9, seed=5, noise=110.0)))
    (second,) = evaluate_encoder(complete(encoder), more, name, QUICK)
    for target, measured in result.targets.items():
        assert measured.chosen == second.targets[target].chosen
        assert measured.values != second.targets[target].values
        assert bool(measured.chosen) == (name not in UNTUNED)
        if "top1" in measured.each:
            count = len(measured.each["top1"])
            again = second.targets[target].each["top1"]
            assert torch.equal(measured.each["top1"], again[:count])
    # Of tiles, intervals are those of their files.
    for measured in Result.read(second.write(tmp_path)).targets.values():
        assert measured.intervals
        for of, method in measured.intervals.items() if name not in OVER_DRAWS else ():
            assert method == BOOTSTRAP if name == "svm" else method.endswith(OF_FILES), of
            assert measured.files.keys() == measured.each.keys()


@pytest.mark.parametrize("name", ["linear", "fewshot", "rotation", "finetune"])
def test_conformance_without_validation_images(
    name: str, encoder: nn.Module, data: EvaluationData
) -> None:
    conform(name, complete(encoder), replace(data, val=None))


@pytest.mark.parametrize("name", OF_OBJECTS)
def test_conformance_on_objects(name: str, resnet: Encoder, object_data: ObjectData) -> None:
    for measured in conform(name, FrozenEncoder(resnet), object_data).targets.values():
        assert list(measured.values)[:3] == ["ap", "ap50", "ap75"]


def conform(name: str, frozen: FrozenEncoder, data: EvaluationData | ObjectData) -> Result:
    """What every protocol keeps to."""
    encoder = frozen.module
    weights = {key: value.clone() for key, value in encoder.state_dict().items()}
    encoder.train()
    (result,) = evaluate_encoder(frozen, data, name, QUICK)
    assert list(result.targets) == TARGETS.get(name, ["class", "bright"])
    if isinstance(data, EvaluationData):
        assert next(iter(next(iter(result.targets.values())).values.values())) > LEAST[name]
    for measured in result.targets.values():
        for measure, value in measured.values.items():
            if (interval := measured.interval(measure)) is not None:
                assert interval[0] <= value <= interval[1]
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


def test_rows_of_the_registry() -> None:
    for name, row in EVALUATORS.items():
        assert row.title.strip(". ") == row.title, name
        # Abstract or final: nothing that can be made is inherited from.
        bases = [base for base in row.kind.__mro__[1:] if issubclass(base, Evaluator)]
        assert row.kind.__final__, name
        assert all(ABC in base.__bases__ for base in bases), name


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("linaer", {}, r"unknown protocol 'linaer'\. Did you mean 'linear'"),
        ("semi", {"shares": 0.1}, "shares: expected a list, each a number, got 0.1"),
        ("semi", {"shares": (0.1,)}, "1 shares and 2 encoder_lrs"),
        ("knn", {"temperatures": []}, "temperatures: expected one value or more"),
        ("linear", {"penalties": [0.0]}, "penalties: expected a number in"),
        ("robust", {"magnitudes": [1.5]}, "magnitudes: expected a number in"),
        ("retained", {"operators": ("inverts",)}, "unknown operator 'inverts'. Did you mean 'inv"),
        ("finetune", {"recipe": "a4"}, "finetune: .*recipe"),
        ("finetune", {"changes": {"epoch": 1}}, "setting of recipe sgd .* mean 'epochs'"),
        ("finetune", {"changes": {"views": "mast6"}}, "unknown views of a recipe 'mast6'"),
    ],
)
def test_settings_that_do_not_fit(name: str, changes: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        make_evaluator(name, EvaluationSettings(protocols={name: changes}))


@pytest.mark.parametrize(("neighbours", "expected"), [(4, False), (200, True)])
def test_fewer_than_five_neighbours_have_no_top5(
    encoder: nn.Module, neighbours: int, expected: bool
) -> None:
    sets = [tiny_set(images, classes=10, seed=images) for images in (6, 2, 3)]
    settings = EvaluationSettings(protocols={"knn": {"neighbours": (neighbours,)}})
    (result,) = evaluate_encoder(encoder, EvaluationData(*sets, 16), "knn", settings)
    assert ("top5" in result.targets["class"].values) is expected
    assert result.targets["class"].chosen["k"] == min(neighbours, 60)  # clipped to what there is
