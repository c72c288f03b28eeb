"""Result files and tables."""

import json
import math
from dataclasses import asdict, replace
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
from mast.evaluation.result import ARRAYS, Result, TargetResult, results_in, tables
from mast.models import Encoder
from mast.models.encoders import save_encoder


def test_files(encoder: nn.Module, data: EvaluationData, tmp_path: Path) -> None:
    data = replace(data, test=replace(data.test, name="my set/test"))
    (result,) = evaluate_encoder(encoder, data, ["knn"])
    path = result.write(tmp_path)
    assert path == tmp_path / "evaluations" / "knn-my-set-test.json"
    back = Result.read(path)
    assert back.targets == result.targets
    assert back.write(tmp_path / "copy").read_bytes() == path.read_bytes()
    assert sorted(entry.name for entry in path.parent.iterdir()) == ["each", path.name]
    assert back.settings["protocol"]["seed"] == 0
    drawn = [replace(result, split={"share": 0.2, "seed": at}, images=str(at)) for at in (1, 2)]
    assert drawn[0].write(tmp_path / "drawn") != drawn[1].write(tmp_path / "drawn")
    path.write_text('{"split": []}')  # of others
    assert result.write(tmp_path) == path
    assert back.settings["extraction"]["size"] == 16
    assert back.sizes == {"train": 60, "val": 18, "test": 24}
    assert back.fingerprints["test"] == data.test.fingerprint


def test_a_class_may_be_called_like_the_end_of_an_interval() -> None:
    values = {"recall/a": 5.0, "recall/a_low": 9.0, "recall/a_high": 1.0}
    target = TargetResult(values | {"recall_low/a": 4.0, "recall_high/a": 6.0})
    target.check()
    assert target.interval("recall/a") == (4, 6)
    assert target.interval("recall/a_low") is None


@pytest.mark.parametrize("value", ["NaN", "-500", "1e300", "true"])
def test_what_cannot_have_been_measured_is_refused(tmp_path: Path, value: str) -> None:
    path = tmp_path / "knn-x.json"
    fields = '"protocol": "knn", "set_name": "x", "settings": {}, "fingerprints": {}, "sizes": {}'
    whole = f'{{{fields}, "targets": {{"class": {{"values": {{"top1": VALUE}}}}}}}}'
    path.write_text(whole.replace("VALUE", "90.0"))
    assert Result.read(path).targets["class"].values == {"top1": 90.0}
    path.write_text(whole.replace("VALUE", value))
    with pytest.raises(UserError, match=r"\.json is .*(top1 is|not finite)"):
        Result.read(path)


def test_table(encoder: nn.Module, data: EvaluationData) -> None:
    results = evaluate_encoder(encoder, data, ["knn"])
    (shown,) = tables(results)
    assert shown.row_count == 2
    assert len(shown.columns) == 8
    assert list(shown.columns[6].cells) == ["33.3", "50.0"]  # of three classes, and of two
    cells = list(shown.columns[3].cells)
    value = f"{results[0].targets['class'].values['top1']:.1f}"
    assert cells[0].plain.startswith(f"{value} [")
    assert [cells[0].plain[span.start : span.end] for span in cells[0].spans] == [value]  # bold
    assert list(shown.columns[4].cells) == ["–", "–"]  # fewer than ten classes


def test_measures_that_are_no_accuracies_have_a_table_of_their_own() -> None:
    objects = TargetResult({"ap": 30.0, "ap50": 50.0, "ap50_low": 45.0, "ap50_high": 55.0})
    robust = TargetResult({"top1": 80.0, "invert": 40.0, "solarize": 60.0, "solarize@0.2": 70.0})
    results = [
        Result(name, "a set", {"target": target}, {}, {}, {})
        for name, target in (("detection", objects), ("robust", robust))
    ]
    (shown,) = tables(results[:1])
    assert list(shown.columns[3].cells) == ["AP", "AP50"]
    assert list(shown.columns[4].cells) == ["30.0", "50.0 [45.0, 55.0]"]
    whole, others = ({c.header: list(c.cells) for c in t.columns} for t in tables(results))
    assert whole["protocol"] == ["robust"]
    assert others["measure"] == ["AP", "AP50", "invert", "solarize"]
    assert others["at 0.2"] == ["–", "–", "–", "70.0"]


SPLIT = {"by": "class", "share": 0.2, "seed": 0}
WHOLE = {**SPLIT, "of": "all"}


@pytest.mark.parametrize(
    ("first", "second", "may"),
    [
        (("a/test", "x", {}), ("b/test", "y", {}), False),
        (("a/test", "x", {}), ("a/test", "y", {}), True),  # where images were added
        (("a@test", "x", WHOLE), ("b@test", "y", WHOLE), True),  # moved
        (("b/a@test", "x", WHOLE), ("c/a@test", "y", {**WHOLE, "of": "others"}), False),
        (("a/test@test", "x", WHOLE), ("b/test", "all", {}), True),  # a part, and the whole
        (("a/test@test", "x", SPLIT), ("a/test", "all", {}), True),
        (("b/a@test", "x", SPLIT), ("a2@test", "y", WHOLE), False),
        (("a/test", "", {}), ("b/test", "x", {}), False),
    ],
)
def test_which_results_may_share_images(
    first: tuple[str, str, dict[str, object]], second: tuple[str, str, dict[str, object]], may: bool
) -> None:
    one, other = (
        Result("knn", name, {}, {}, {}, {"train": 8, "test": 2}, images, split=split)
        for name, images, split in (first, second)
    )
    assert one.may_share_images(other) is may
    assert other.may_share_images(one) is may


def whole() -> dict[str, Any]:
    """The fields of a file, each of its type."""
    result = Result(
        "knn", "a/test", {"class": TargetResult({"top1": 50.0}, intervals={"top1": "Wilson"})},
        {"extraction": {"size": 32}, "protocol": {"seed": 0, "operators": None}},
        {"test": "f"}, {"test": 4}, "i", "top1", SPLIT, {"source": "r", "fingerprint": "0"},
        {"train": 1}, {"images": 1, "above": 0.9, "pairs": []},
    )  # fmt: skip
    return asdict(result)


def signed_file(folder: Path, fields: dict[str, Any]) -> Path:
    """A file with a right digest, whatever is in it."""
    for target in fields["targets"].values() if isinstance(fields["targets"], dict) else ():
        for kind in ARRAYS if isinstance(target, dict) else ():
            if not target.get(kind):
                target.pop(kind, None)
    file = folder / "evaluations" / "knn-a-test.json"
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps({**fields, DIGEST: digest({}, fields)}))
    return file


DEEP: dict[str, Any] = {}
for _ in range(600):
    DEEP = {"a": DEEP}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *((name, None) for name in whole()),
        *((name, {"a": {"b": 1}}) for name in ("sizes", "split", "targets")),
        ("settings", DEEP),
        ("settings", {"protocol": 3}),
        ("settings", {"extraction": {"size": "32"}}),
        ("settings", {"protocol": {"operators": [["rotate"]]}}),
        ("split", {"seed": 0}),
        ("split", {"seed": 0, "share": 10**400}),
        ("near_duplicates", {"images": 1}),
        ("targets", {"class": {"values": {"top1": 10**400}}}),
        ("targets", {"class": {"values": {"top1": 50.0, "top1_low": 60.0, "top1_high": 40.0}}}),
        ("targets", {"class": {"values": {"top1": 50.0}, "by_chance": {"top1": 101.0}}}),
        ("targets", {"class": {"values": {"x" * 100_000: 50.0}}}),
        ("targets", {"class": {"values": {"top1": 50.0}, "each": {"top1": [1, 0]}}}),
        ("targets", {"class": {"values": {"top1": 50.0}, "intervals": {"top1": 3}}}),
        ("targets", {str(at): {"values": {"top1": 50.0}} for at in range(10_000)}),
    ],
)
def test_a_right_digest_makes_no_field_right(field: str, value: object, tmp_path: Path) -> None:
    fields = whole()
    assert Result.read(signed_file(tmp_path, fields)).sizes == {"test": 4}
    fields[field] = value
    with pytest.raises(UserError, match=r"knn-a-test\.json is (not the result|damaged)"):
        Result.read(signed_file(tmp_path, fields))


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("class/each/top1", torch.tensor([1.0, math.nan])),
        ("class/each/top1", torch.full((2, 2), 0.5)),
        ("class/each/top1", torch.tensor([1.0, 1.0])),
        ("class/counts/top1", torch.tensor([0.5])),
        ("pet/each/top1", torch.tensor([0.5])),
        ("class/files/top1", torch.tensor([0, 0])),
        ("x", torch.tensor([0.5])),
    ],
)
def test_what_images_contributed_has_its_own_form(
    name: str, values: torch.Tensor, tmp_path: Path
) -> None:
    file = signed_file(tmp_path, whole())
    write_tensors(file.parent / "each" / "knn-a-test.safetensors",
                  {"class/each/top1": torch.tensor([1.0, 0.0])})  # fmt: skip
    assert len(Result.read(file).targets["class"].each["top1"]) == 2
    write_tensors(file.parent / "each" / "knn-a-test.safetensors", {name: values})
    with pytest.raises(UserError, match=r"knn-a-test\.safetensors does not belong to"):
        Result.read(file)


def test_a_result_is_of_the_encoder_beside_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ours = Encoder(ENCODER, 32)
    described = ours.describe()
    known = {"source": "r", "fingerprint": fingerprint(ours, described), **described}
    file = signed_file(tmp_path, {**whole(), "encoder": known})
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
    signed_file(tmp_path, {**whole(), "encoder": {}})  # of an earlier version
    assert len(results_in(tmp_path)) == 1
