"""`mast.evaluate`, `mast.embed` and `mast.compare` as functions: what they take and refuse."""

from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import mast
from mast.cli import main
from mast.core.errors import UserError
from mast.core.run import RunFolder
from mast.data import open_canvas
from mast.data.registry import default_cache
from mast.measure.compute import Compute
from mast.measure.frozen import FrozenEncoder
from mast.measure.result import Result
from mast.measure.sets import EvaluationData, ObjectData
from mast.runs.load import load


def test_paths_are_text_or_paths_and_one_protocol_a_name(ours: RunFolder, photos: Path) -> None:
    (by_text,) = mast.evaluate(str(ours.path), str(photos), "knn")
    (by_path,) = mast.evaluate(ours.path, photos, ["knn"])
    assert by_text == by_path
    results = mast.evaluate(ours.path, photos, "knn")
    top1 = f"{by_path.targets['class'].values['top1']:.1f} ["
    assert top1 in repr(results)  # a table
    assert top1 in results._repr_html_()
    assert repr(by_path).startswith(f"Result(knn on {photos / 'test'}: class top1 {top1}")
    for shown in (repr(results), repr([*results]), repr(by_path.targets)):
        assert "tensor" not in shown
    parts = {part: photos / part for part in ("train", "val", "test")}
    (apart,) = mast.evaluate(ours.path, mast.NamedSets(**parts), "knn")
    assert apart == by_path
    (file,) = ours.evaluations.glob("*.json")
    assert Result.read(file).targets == by_path.targets
    (row, *_) = mast.compare(str(ours.path)).rows
    assert row.heading[0] == "knn"


def test_the_folder_of_named_sets_is_text_or_a_path(tmp_path: Path) -> None:
    for root in (tmp_path, str(tmp_path)):
        sets = mast.NamedSets("torchvision:OxfordIIITPet", root=root)
        with pytest.raises(UserError, match=str(tmp_path)):
            sets.open(EvaluationData, 32)


def test_embed_takes_text(
    ours: RunFolder, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = mast.embed(str(ours.path), photos / "test", out="features.npz")
    assert file == Path("features.npz")
    again = mast.embed(ours.path, str(photos / "test"), out=tmp_path / "again.npz")
    with np.load(file) as by_text, np.load(again) as by_path:
        assert by_text["features"].shape == (24, 16)
        assert np.array_equal(by_text["features"], by_path["features"])
    with pytest.raises(UserError, match=r"out must end in \.npz or \.parquet, got features.csv"):
        mast.embed(ours.path, photos / "test", out="features.csv")


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_precision_is_that_of_the_encoder(
    precision: Literal["float32", "bfloat16"],
    ours: RunFolder,
    photos: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    sets = mast.NamedSets(train=photos / "train", test=photos / "test")
    (result,) = mast.evaluate(ours.path, sets, "knn", precision=precision)
    assert result.settings["extraction"]["precision"] == precision
    canvases = open_canvas(str(photos / "test"), 32)
    dtype = torch.float32 if precision == "float32" else torch.bfloat16
    expected = FrozenEncoder(mast.load_encoder(ours.path), Compute(dtype=dtype)).features(
        canvases, 32
    )
    stored = [
        load_file(file)["features"] for file in (default_cache() / "features").glob("*.safetensors")
    ]
    assert any(torch.equal(expected, features_ND) for features_ND in stored)
    assert len(stored) == 2


def test_the_command_has_an_option_for_every_part(ours: RunFolder, photos: Path) -> None:
    words = [word for part in ("train", "test") for word in (f"--{part}", str(photos / part))]
    assert main(["evaluate", str(ours.path), *words, "--protocols", "knn"]) == 0
    (file,) = ours.evaluations.glob("*.json")
    assert Result.read(file).sizes == {"train": 48, "test": 24}


@pytest.mark.parametrize(
    ("sets", "kind", "message"),
    [
        (
            mast.NamedSets(train="a"),
            EvaluationData,
            "what is named has no test folder; give test too",
        ),
        (mast.NamedSets(val="a"), EvaluationData, "has no test and no train folder; give test and"),
        (
            mast.NamedSets("factors"),
            ObjectData,
            "factors@train has no annotated objects, which detection, segmentation",
        ),
    ],
)
def test_errors_name_arguments(
    sets: mast.NamedSets, kind: type[EvaluationData] | type[ObjectData], message: str
) -> None:
    with pytest.raises(UserError, match=message) as raised:
        sets.open(kind, 32)
    assert "--" not in str(raised.value)


def test_no_protocol_is_an_error(ours: RunFolder, photos: Path) -> None:
    with pytest.raises(UserError, match="give protocols, such as knn and linear") as raised:
        mast.evaluate(ours.path, photos, [])
    assert "--" not in str(raised.value)
    with pytest.raises(UserError, match=r"unknown protocol 'kn'\. Did you mean 'knn'"):
        mast.evaluate(ours.path, photos, "kn")


def test_an_unknown_representation_is_named(ours: RunFolder) -> None:
    with pytest.raises(UserError, match=r"unknown representation 'ensembl'\. Did you mean 'ensem"):
        load(ours.path, "ensembl")  # type: ignore[arg-type]


def test_an_untrained_run_has_no_other_representation(ours: RunFolder, photos: Path) -> None:
    with pytest.raises(UserError, match="the ensemble needs a run folder"):
        mast.evaluate(ours.path, photos, "ensemble", untrained=True)
