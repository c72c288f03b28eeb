"""`mast evaluate`: of runs, names and other projects' checkpoints, in Python and by command."""

import hashlib
import shutil
from pathlib import Path

import pytest
import torch
import torchvision

import mast
from mast.cli import main
from mast.core.compute import Compute
from mast.core.errors import UserError
from mast.core.run import RunFolder
from mast.encoders.load import frozen, load
from mast.evaluation.result import Result
from paper.measured import labelled, unmeasured


def test_paths_are_text_or_paths_and_one_protocol_a_name(ours: RunFolder, photos: Path) -> None:
    (by_text,) = mast.evaluate(str(ours.path), str(photos), "knn")
    (by_path,) = mast.evaluate(ours.path, photos, ["knn"])
    assert by_text == by_path
    assert f"{by_path.targets['class'].values['top1']:.1f}" in repr(by_path)
    parts = {part: photos / part for part in ("train", "val", "test")}
    (apart,) = mast.evaluate(ours.path, mast.NamedSets(**parts), "knn")
    assert apart == by_path
    (file,) = ours.evaluations.glob("*.json")
    assert Result.read(file).targets == by_path.targets
    (row, *_) = mast.compare(str(ours.path)).rows
    assert row.heading[0] == "knn"
    words = [word for part in ("train", "test") for word in (f"--{part}", str(photos / part))]
    assert main(["evaluate", str(ours.path), *words, "--protocols", "knn"]) == 0
    assert Result.read(file).sizes == {"train": 48, "test": 24}
    # Classes differ by their color channel, which even this encoder sees.
    assert Result.read(file).targets["class"].values["top1"] > 60.0


def test_what_was_measured_after_other_training_images_does_not_count(
    ours: RunFolder, photos: Path, tmp_path: Path
) -> None:
    data = shutil.copytree(photos, tmp_path / "photos")
    mast.evaluate(ours.path, data, "knn")
    assert unmeasured(ours, labelled(str(data), ours), 0, ["knn"]) == []
    next((data / "train").rglob("*.*")).unlink()
    assert unmeasured(ours, labelled(str(data), ours), 0, ["knn"]) == ["knn"]


def test_evaluate_an_encoder_by_name(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for seed in (0, 1):
        (result,) = mast.evaluate(
            "timm:test_resnet", str(photos), ("knn",), size=32, seed=seed, untrained=True
        )
        assert result.settings["extraction"]["size"] == 32
        folder = tmp_path / "runs" / f"timm-test_resnet-random-{seed}" / "evaluations"
        assert len(list(folder.glob("knn-*.json"))) == 1
    first, again, other = (
        next(load("timm:test_resnet", size=32, seed=seed, untrained=True).module.parameters())
        for seed in (0, 0, 1)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    with pytest.raises(UserError, match="no run folder 'resnet81' here, and unknown encoder"):
        mast.evaluate("resnet81", str(photos))


def test_evaluate_a_checkpoint_of_another_project(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    model = torchvision.models.resnet18()
    file = tmp_path / "theirs" / "swav.pth.tar"
    file.parent.mkdir()
    torch.save({f"module.{key}": value for key, value in model.state_dict().items()}, file)
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    for words in ([str(file)], ["resnet18", "--weights", str(file)]):
        command = ["evaluate", *words, "--data", str(photos), "--protocols", "knn", "--size", "24"]
        assert main(command) == 0
    assert [path.name for path in file.parent.iterdir()] == [file.name]
    folders = sorted((tmp_path / "runs").iterdir())
    assert [path.name[:-6] for path in folders] == ["resnet18-", "swav-"]
    assert folders[1].name.endswith(digest[:6])
    for folder in folders:
        assert [path.name[:4] for path in (folder / "evaluations").glob("*.json")] == ["knn-"]
    with pytest.raises(UserError, match="not those of 'resnet34'"):
        mast.evaluate("resnet34", str(photos), weights=file)
    own = frozen(load("resnet18.tv_in1k", weights=file), "", Compute("cpu"), cache=False)
    described = own.description, {"encoder": own.description["encoder"]}
    results = [Result("knn", "photos", {}, {}, {}, {}, encoder=dict(of)) for of in described]
    assert [result.published for result in results] == [None, "resnet18.tv_in1k"]
    with pytest.raises(UserError, match="settings: linear not among protocols knn"):
        mast.evaluate(file, photos, "knn", settings={"linear": {"patience": 2}})
