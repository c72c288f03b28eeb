"""Protocols that train: linear layers by SGD, whole encoders on all labels or few."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny_evaluation import working_in
from torch import nn

from mast.core.errors import UserError
from mast.data import CanvasSet
from mast.encoders.frozen import FrozenEncoder
from mast.evaluation.labelled_sets import EvaluationData
from mast.evaluation.protocols import FineTune
from paper.protocols.semi import Semi, draw_share, positions_listed


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


def test_shares_are_of_each_class_and_one_holds_the_other() -> None:
    labels = torch.arange(400) % 4
    few, more = draw_share(labels, 0.02, 0), draw_share(labels, 0.1, 0)
    assert labels[few].bincount().tolist() == [2, 2, 2, 2]
    assert labels[more].bincount().tolist() == [10, 10, 10, 10]
    assert set(few.tolist()) < set(more.tolist())
    assert not torch.equal(few, draw_share(labels, 0.02, 1))
    assert len(draw_share(labels, 1e-6, 0)) == 4


def test_lists_of_simclr(tmp_path: Path) -> None:
    names = ["n01/n01_1.JPEG", "n01/n01_2.JPEG", "n02/n02_1.JPEG", "a/x.png", "b/x.png"]
    file = tmp_path / "1percent.txt"
    file.write_text("n02_1.JPEG\nn01_1.JPEG\n")
    assert positions_listed(file, names).tolist() == [0, 2]
    for text, refused in (
        ("n01/n01_2.JPEG\nn03_1.JPEG\n", "1 of the 2 images listed"),
        ("x.png\n", "may be any of 2"),
    ):
        file.write_text(text)
        with pytest.raises(UserError, match=refused):
            positions_listed(file, names)
    with pytest.raises(UserError, match="no list"):
        positions_listed(tmp_path / "none.txt", names)


def test_the_drawn_subset_is_written_and_can_be_read_again(
    encoder: nn.Module, data: EvaluationData, tmp_path: Path
) -> None:
    settings = {"shares": (0.2,), "encoder_lrs": (0.1,), "head_lrs": (1.0,), "epochs": 2}
    one = replace(data, train=replace(data.train, name="sets/tiny"), val=None)
    one = replace(one, train=replace(one.train, targets={"class": one.train.targets["class"]}))
    drawn = dict(Semi(**settings).run(working_in(tmp_path, encoder), one))  # type: ignore[arg-type]
    (file,) = (tmp_path / "subsets").iterdir()
    assert file.name == "sets-tiny-class-20%-seed0-000000.txt"
    assert len(file.read_text().split()) == drawn["class 20%/counts/labelled"] == 12
    listed = dict(Semi(**settings, lists=(str(file),)).run(FrozenEncoder(encoder), one))  # type: ignore[arg-type]
    assert listed["class 20%/top1"] == drawn["class 20%/top1"]
