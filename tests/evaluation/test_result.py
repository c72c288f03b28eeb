"""Result files and tables."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny import ENCODER
from torch import nn

from mast.core.errors import UserError
from mast.core.tensors import DIGEST, digest, write_tensors
from mast.encoders.fingerprint import fingerprint
from mast.evaluation.compare import compare
from mast.evaluation.labelled_sets import EvaluationData
from mast.evaluation.protocols.run import evaluate_encoder
from mast.evaluation.result import Result, TargetResult, results_in, table
from mast.models import Encoder
from mast.models.encoders import save_encoder


def test_files(encoder: nn.Module, data: EvaluationData, tmp_path: Path) -> None:
    data = replace(data, test=replace(data.test, name="my set/test"))
    (result,) = evaluate_encoder(encoder, data, ["knn"])
    path = result.write(tmp_path)
    assert path == tmp_path / "evaluations" / "knn-my-set-test.json"
    back = Result.read(path)
    assert back.targets == result.targets
    assert back.settings["extraction"] == result.settings["extraction"]
    assert back.write(tmp_path / "copy").read_bytes() == path.read_bytes()
    assert sorted(entry.name for entry in path.parent.iterdir()) == ["each", path.name]
    drawn = [replace(result, split={"share": 0.2, "seed": at}, images=str(at)) for at in (1, 2)]
    assert drawn[0].write(tmp_path / "drawn") != drawn[1].write(tmp_path / "drawn")
    path.write_text('{"split": []}')  # of others
    assert result.write(tmp_path) == path
    assert back.sizes == {"train": 60, "val": 18, "test": 24}
    assert back.fingerprints["test"] == data.test.fingerprint


def test_a_class_may_be_called_like_the_end_of_an_interval() -> None:
    values = {"recall/a": 5.0, "recall/a_low": 9.0, "recall/a_high": 1.0}
    target = TargetResult(values | {"recall_low/a": 4.0, "recall_high/a": 6.0})
    assert target.interval("recall/a") == (4, 6)
    assert target.interval("recall/a_low") is None


def test_table(encoder: nn.Module, data: EvaluationData) -> None:
    results = evaluate_encoder(encoder, data, ["knn"])
    objects = TargetResult({"ap50": 50.0, "ap50_low": 45.0, "ap50_high": 55.0, "rotate@0.2": 7.0})
    results.append(Result("detection", "a set", {"objects": objects}, {}, {}, {}))
    rows = [*zip(*(column.cells for column in table(results).columns), strict=True)]
    lines = {name: rest for name, *rest in rows if isinstance(name, str)}
    assert lines["AP50"] == ["50.0", "[45.0, 55.0]", "", ""]
    heads = [name.plain for name, *_ in rows if not isinstance(name, str)]
    assert heads == ["knn, tiny@2, class", "knn, tiny@2, bright", "detection, a set, objects"]
    for (name, *rest), (target, chance) in zip(
        [row for row in rows if row[0] == "top-1"], (("class", "33.3"), ("bright", "50.0")),
        strict=True,
    ):  # fmt: skip
        measured = results[0].targets[target]
        assert rest == [f"{measured.values['top1']:.1f}", measured.ends("top1"), chance, ""], name
    assert not {"top-5", "rotate@0.2"} & lines.keys()  # fewer than ten classes; in the file alone


def small(**fields: Any) -> Result:
    """A result with what each of two images contributed."""
    target = TargetResult({"top1": 50.0}, each={"top1": torch.tensor([1.0, 0.0])})
    return Result("knn", "a/test", {"class": target}, {}, {"test": "f"}, {"test": 2}, **fields)


def test_what_is_no_result_is_refused(tmp_path: Path) -> None:
    file = small().write(tmp_path)
    fields = json.loads(file.read_text())
    del fields[DIGEST]
    for changed in ({}, {"protocol": "knn"}, {**fields, "unknown": 1}, {**fields, "targets": 3}):
        file.write_text(json.dumps({**changed, DIGEST: digest({}, changed)}))
        with pytest.raises(UserError, match=r"knn-a-test\.json is not the result"):
            Result.read(file)
    small().write(tmp_path)
    others = {"class/each/top1": torch.tensor([0.0, 1.0])}
    write_tensors(file.parent / "each" / "knn-a-test.safetensors", others)
    with pytest.raises(UserError, match=r"knn-a-test\.safetensors does not belong to"):
        Result.read(file)


def test_a_result_is_of_the_encoder_beside_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ours = Encoder(ENCODER, 32)
    described = ours.describe()
    known = {"source": "r", "fingerprint": fingerprint(ours, described), **described}
    file = small(encoder=known).write(tmp_path)
    assert len(results_in(tmp_path)) == 1  # nothing says whose it is
    save_encoder(ours, tmp_path / "encoder.safetensors")
    assert len(results_in(tmp_path)) == 1
    assert caplog.text == ""
    with torch.no_grad():
        next(ours.parameters()).add_(1)
    save_encoder(ours, tmp_path / "encoder.safetensors")
    assert results_in(tmp_path) == []
    assert f"{file} is of another encoder" in caplog.text
    with pytest.raises(UserError, match="has no evaluations"):
        compare(tmp_path)
