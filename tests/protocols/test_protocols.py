"""Every protocol on a tiny set: it runs, it learns, it never tunes on the test set."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from mast.core.errors import UserError
from mast.data import CanvasSet
from mast.measure.frozen import FrozenEncoder
from mast.measure.result import Result, tables
from mast.measure.sets import EvaluationData, ObjectData
from mast.models import Encoder
from mast.protocols import EVALUATORS, Evaluator
from mast.protocols.run import EvaluationSettings, evaluate_encoder, make_evaluator

DETECTOR: dict[str, Any] = {
    "iterations": 4, "batch_size": 2, "lr": 0.01, "warmup": 0, "min_sizes": [32, 40],
    "test_min_size": 40, "max_size": 64, "regions": 8, "pyramid": 8, "anchors": [8, 12, 16, 24, 32],
}  # fmt: skip

QUICK = EvaluationSettings(
    protocols={
        "linear": {"max_iterations": 50},
        "retained": {"operators": ["horizontal_flip", "invert"], "max_iterations": 50},
        "robust": {"operators": ["color_jitter", "invert", "rotate"], "max_iterations": 50},
        "fewshot": {"repeats": 2, "episodes": 5, "shots": [5], "max_iterations": 50},
        "linear_sgd": {"epochs": 10, "batch_size": 16, "learning_rates": [0.0001, 3.0]},
        "svm": {"costs": [0.1, 10]},
        "semi": {"shares": [0.2], "encoder_lrs": [0.01], "head_lrs": [3.0], "batch_size": 8},
        "finetune": {"changes": {"epochs": 10, "batch_size": 16}, "encoder_lrs": [0.0001, 0.3]},
        "detection": DETECTOR,
        "segmentation": DETECTOR,
    }
)

TARGETS = {  # of the protocols that bring their own
    "rotation": ["rotation"],
    "svm": ["shows"],
    "semi": ["class 20%", "bright 20%"],
    "detection": ["objects"],
    "segmentation": ["objects", "masks"],
}
OF_OBJECTS = [name for name, row in EVALUATORS.items() if row.protocol.needs is ObjectData]
OF_IMAGES = [name for name in EVALUATORS if name not in OF_OBJECTS]


@pytest.mark.parametrize("name", OF_IMAGES)
@pytest.mark.parametrize("with_validation", [True, False])
def test_conformance(
    name: str,
    with_validation: bool,
    encoder: nn.Module,
    data: EvaluationData,
    frozen: Callable[..., FrozenEncoder],
) -> None:
    data = data if with_validation else replace(data, val=None)
    conform(name, encoder, lambda: frozen(encoder), data)


@pytest.mark.parametrize("name", OF_OBJECTS)
def test_conformance_on_objects(name: str, resnet: Encoder, object_data: ObjectData) -> None:
    conform(name, resnet, lambda: FrozenEncoder(resnet), object_data)


def conform(
    name: str,
    encoder: nn.Module,
    fresh: Callable[[], FrozenEncoder],
    data: EvaluationData | ObjectData,
) -> None:
    """What every protocol keeps to, by two encoders over the same module."""
    weights = {key: value.clone() for key, value in encoder.state_dict().items()}
    encoder.train()
    (result,) = evaluate_encoder(fresh(), data, [name], QUICK)
    (again,) = evaluate_encoder(fresh(), data, [name], QUICK)
    assert result == again
    assert issubclass(EVALUATORS[name].protocol, Evaluator)
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
    if name in OF_IMAGES and name != "rotation":  # which these images do not show
        first = next(iter(result.targets.values()))
        assert next(iter(first.values.values())) > 75
    # The encoder is as it was.
    assert all(module.training for module in encoder.modules())
    assert all(torch.equal(weights[key], value) for key, value in encoder.state_dict().items())
    assert all(parameter.grad is None for parameter in encoder.parameters())


@pytest.mark.parametrize("name", OF_IMAGES)
def test_tuning_never_sees_the_test_set(
    name: str,
    encoder: nn.Module,
    data: EvaluationData,
    make_set: Callable[..., CanvasSet],
    frozen: Callable[..., FrozenEncoder],
) -> None:
    other = replace(data, test=make_set(9, seed=5, noise=110.0))
    (first,) = evaluate_encoder(frozen(encoder), data, [name], QUICK)
    (second,) = evaluate_encoder(frozen(encoder), other, [name], QUICK)
    for target in first.targets:
        assert first.targets[target].chosen == second.targets[target].chosen
        assert first.targets[target].values != second.targets[target].values


def test_neighbours_are_clipped_to_the_training_set(
    encoder: nn.Module, data: EvaluationData
) -> None:
    labels = data.train.targets["class"]
    few = data.train.subset([int((labels == label).argmax()) for label in range(3)])
    few = replace(few, targets={"class": few.targets["class"]})
    settings = EvaluationSettings(protocols={"knn": {"neighbours": (200,)}})
    (result,) = evaluate_encoder(encoder, replace(data, train=few), ["knn"], settings)
    assert result.targets["class"].chosen["k"] == 3  # clipped to the images there were


@pytest.mark.parametrize("name", ["knn", "detection"])
def test_data_of_the_other_kind_is_refused(
    name: str, encoder: nn.Module, data: EvaluationData, object_data: ObjectData
) -> None:
    other = object_data if name == "knn" else data
    with pytest.raises(UserError, match=f"{name} needs .*Data, got .*Data: annotated objects are"):
        evaluate_encoder(encoder, other, [name])


def test_features_are_shared(encoder: nn.Module, data: EvaluationData) -> None:
    results = evaluate_encoder(encoder, data, ["knn", "linear"], QUICK)
    assert [result.protocol for result in results] == ["knn", "linear"]
    assert encoder.calls == 3  # one batch a set


def test_one_learning_rate_is_not_tuned(encoder: nn.Module, data: EvaluationData) -> None:
    settings = EvaluationSettings(protocols={"linear_sgd": {"epochs": 1}})
    (result,) = evaluate_encoder(encoder, data, ["linear_sgd"], settings)
    assert result.targets["class"].chosen == {}
    assert result.settings["protocol"]["learning_rates"] == (0.02,)


def test_sgd_stops_on_a_loss_that_is_not_finite(encoder: nn.Module, data: EvaluationData) -> None:
    settings = EvaluationSettings(protocols={"linear_sgd": {"learning_rates": (1e30,)}})
    with pytest.raises(UserError, match="stopped at step 3: loss is not finite"):
        evaluate_encoder(encoder, data, ["linear_sgd"], settings)


def test_sets_may_differ_in_canvas(
    encoder: nn.Module, data: EvaluationData, make_set: Callable[..., CanvasSet]
) -> None:
    val = make_set(6, seed=1)
    val = replace(val, images=val.images.repeat(2, axis=1).repeat(2, axis=2))
    (result,) = evaluate_encoder(encoder, replace(data, val=val), ["linear_sgd"], QUICK)
    assert result.targets["class"].values["top1"] > 75


def test_files(encoder: nn.Module, data: EvaluationData, tmp_path: Path) -> None:
    data = replace(data, test=replace(data.test, name="my set/test"))
    (result,) = evaluate_encoder(encoder, data, ["knn"])
    path = result.write(tmp_path)
    assert path == tmp_path / "evaluations" / "knn-my-set-test.json"
    back = Result.read(path)
    assert back.targets == result.targets
    assert back.write(tmp_path / "copy").read_bytes() == path.read_bytes()
    assert sorted(entry.name for entry in path.parent.iterdir()) == ["each", path.name]
    assert 100 * float(back.targets["class"].each["top1"].mean()) == pytest.approx(
        back.targets["class"].values["top1"]
    )
    assert back.settings["protocol"]["seed"] == 0
    assert back.settings["extraction"]["size"] == 16
    assert back.sizes == {"train": 60, "val": 18, "test": 24}
    assert back.fingerprints["test"] == data.test.fingerprint


def test_a_failed_write_leaves_the_old_file(
    encoder: nn.Module, data: EvaluationData, tmp_path: Path
) -> None:
    (result,) = evaluate_encoder(encoder, data, ["knn"])
    path = result.write(tmp_path)
    before = path.read_bytes()
    result.targets["class"].values["top1"] = float("nan")
    with pytest.raises(ValueError, match="not JSON compliant"):
        result.write(tmp_path)
    assert path.read_bytes() == before
    assert sorted(entry.name for entry in path.parent.iterdir()) == ["each", path.name]


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"targets": {"class": {"top": 1}}}'])
def test_other_files_are_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "knn-x.json"
    path.write_text(text)
    with pytest.raises(UserError, match="not the result of an evaluation"):
        Result.read(path)


def test_table(encoder: nn.Module, data: EvaluationData) -> None:
    results = evaluate_encoder(encoder, data, ["knn"])
    (shown,) = tables(results)
    assert shown.row_count == 2
    assert len(shown.columns) == 7
    cells = list(shown.columns[3].cells)
    assert f"[b]{results[0].targets['class'].values['top1']:.1f}[/b] [" in cells[0]
    assert list(shown.columns[4].cells) == ["–", "–"]  # fewer than ten classes


def test_table_of_objects(resnet: Encoder, object_data: ObjectData) -> None:
    (shown,) = tables(evaluate_encoder(resnet, object_data, ["detection"], QUICK))
    assert list(shown.columns[3].cells)[:3] == ["ap", "ap50", "ap75"]


def test_unknown_names() -> None:
    with pytest.raises(UserError, match=r"unknown protocol 'linaer'\. Did you mean 'linear'"):
        make_evaluator("linaer", EvaluationSettings())
    wrong = EvaluationSettings(protocols={"knn": {"temprature": 1}})
    with pytest.raises(UserError, match="unknown setting of knn 'temprature'"):
        make_evaluator("knn", wrong)


def test_unknown_protocol_in_settings(encoder: nn.Module, data: EvaluationData) -> None:
    wrong = EvaluationSettings(protocols={"kn": {}})
    with pytest.raises(UserError, match=r"unknown protocol 'kn'\. Did you mean 'knn'"):
        evaluate_encoder(encoder, data, ["knn"], wrong)


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("semi", {"shares": ["a"]}, "settings of semi: .*shares.*Expected a float"),
        ("semi", {"shares": 0.1}, "settings of semi: .*shares.*Expected a tuple"),
        ("semi", {"seed": -1}, "settings of semi: seed must be 0 or more, got -1"),
        ("knn", {"temperatures": []}, "temperatures must have one value or more"),
        ("linear", {"penalties": [-1.0]}, "penalties must be above 0"),
        ("linear", {"resamples": 0}, "resamples must be 1 or more"),
        ("linear_sgd", {"epochs": 0}, "epochs must be 1 or more"),
        ("fewshot", {"shots": [0]}, "shots must be 1 or more"),
        ("svm", {"folds": 0}, "folds must be 2 or more"),
        ("finetune", {"changes": [1]}, "settings of finetune"),
        ("finetune", {"changes": {"loss": "hinge"}}, "settings of recipe sgd: .*loss"),
        ("detection", {"iterations": 1.5}, "settings of detection: .*iterations"),
        ("detection", {"optimizer": "adam"}, "settings of detection: .*optimizer"),
    ],
)
def test_settings_of_the_wrong_kind(name: str, changes: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        make_evaluator(name, EvaluationSettings(protocols={name: changes}))


def test_training_images_that_are_tested_are_named(
    encoder: nn.Module, data: EvaluationData, caplog: pytest.LogCaptureFixture
) -> None:
    evaluate_encoder(encoder, replace(data, val=data.test), ["knn"], QUICK)
    assert "the val set and the test set are the same images" in caplog.text
