"""`mast evaluate` by command: of runs, names and other projects' checkpoints."""

import hashlib
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torchvision
from layouts import write_pets
from torch import nn

import mast
from mast.cli import main
from mast.core.errors import UserError
from mast.data.registry import default_cache
from mast.measure.result import Result
from mast.measure.sets import EvaluationData
from mast.protocols.run import evaluate_encoder
from mast.runs.load import load


def test_evaluate_by_command(run: Path, photos: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["evaluate", str(run), "--data", str(photos), "--protocols", "knn", "linear"]
    assert main(words) == 0
    assert "class" in capsys.readouterr().out
    files = sorted((run / "evaluations").glob("*.json"))
    assert [file.name.split("-")[0] for file in files] == ["knn", "linear"]
    stored = json.loads(files[0].read_text())
    assert stored["sizes"] == {"train": 48, "val": 24, "test": 24}
    # Classes differ by their colour channel, which even this encoder sees.
    assert stored["targets"]["class"]["values"]["top1"] > 60.0


def test_evaluate_a_set_by_its_usual_name(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[EvaluationData] = []

    def keep(module: nn.Module, data: EvaluationData, *rest: Any) -> list[Result]:
        given.append(data)
        return evaluate_encoder(module, data, *rest)

    monkeypatch.setattr("mast.commands.evaluate.evaluate_encoder", keep)
    write_pets(default_cache() / "downloads")
    (result,) = mast.evaluate(run, "torchvision:OxfordIIITPet", ("knn",))
    assert (given[0].metric, given[0].val) == ("mean_per_class", None)
    assert result.sizes == {"train": 12, "test": 6}
    assert result.targets["class"].values["top1"] == 100.0


def test_evaluate_the_ensemble_of_masked_embeddings(run: Path, photos: Path) -> None:
    module, size, *_ = load(run, "ensemble")
    images_BCHW = torch.rand(2, 3, size, size)
    assert module(images_BCHW).shape == (2, 5 * 24)
    embedding, *_ = load(run, "embedding")
    assert embedding(images_BCHW).shape == (2, 24)


def test_evaluate_names_missing_parts(run: Path, photos: Path, tmp_path: Path) -> None:
    shutil.copytree(photos / "train", tmp_path / "half" / "train")
    with pytest.raises(UserError, match="no test folder"):
        mast.evaluate(run, str(tmp_path / "half"))


def test_evaluate_an_encoder_by_name(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for seed in (0, 1):
        (result,) = mast.evaluate("timm:resnet18", str(photos), ("knn",), size=32, seed=seed)
        assert result.settings["extraction"]["size"] == 32
    first, again, other = (
        load("timm:resnet18", size=32, seed=seed).module.model.conv1.weight for seed in (0, 0, 1)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    for seed in (0, 1):
        folder = tmp_path / "runs" / f"timm-resnet18-random-{seed}" / "evaluations"
        assert len(list(folder.glob("knn-*.json"))) == 1
    with pytest.raises(UserError, match="no run folder 'resnet81' here, and unknown encoder"):
        mast.evaluate("resnet81", str(photos))
    with pytest.raises(UserError, match="has no ensemble: it was not trained"):
        load("resnet18", "ensemble")
    with pytest.raises(UserError, match="no encoder at"):
        mast.evaluate(tmp_path / "runs" / "nothing", str(photos))


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
        command = ["evaluate", *words, "--data", str(photos), "--protocols", "knn", "--size", "32"]
        assert main(command) == 0
    assert [path.name for path in file.parent.iterdir()] == [file.name]
    folders = sorted((tmp_path / "runs").iterdir())
    assert [path.name[:-8] for path in folders] == ["resnet18-swav-", "swav-"]
    for folder in folders:
        assert [path.name[:4] for path in (folder / "evaluations").glob("*.json")] == ["knn-"]
    loaded = load(file)
    assert (loaded.size, loaded.folder) == (224, Path("runs") / f"swav-{digest[:8]}")
    assert loaded.description["encoder"]["name"] == "resnet18"
    assert loaded.description["weights"] == {
        "file": "swav.pth.tar",
        "sha256": digest,
        "layout": "timm or torchvision",
        "left_out": 2,
    }
    npz = mast.embed("resnet18", str(photos / "test"), size=32, weights=str(file))
    with np.load(npz) as arrays:
        assert arrays["features"].shape == (24, 512)
    with pytest.raises(UserError, match="has no ensemble: it is an encoder alone"):
        load(file, "ensemble")
    with pytest.raises(UserError, match="not those of 'resnet34'"):
        mast.evaluate("resnet34", str(photos), weights=file)
