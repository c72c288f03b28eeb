"""The loop: it trains, it continues exactly, it refuses what cannot work."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from tiny import write_images

import mast
from mast.config import read, record
from mast.core.errors import UserError
from mast.core.run import RunFolder
from mast.methods import MastC, Method
from mast.methods.byol import BYOL
from mast.recipes import RECIPES

Configure = Callable[..., mast.PretrainConfig]


@pytest.mark.slow
@pytest.mark.parametrize("recipe", [name for name in RECIPES if name.endswith("_small")])
def test_every_small_recipe_trains(tiny: Configure, recipe: str) -> None:
    labels = {"objective": {"classes": 3}} if recipe == "supervised_small" else {}
    run = mast.pretrain(tiny(recipe, epochs=1, **labels))
    lines = run.read_metrics()
    assert any("loss" in line for line in lines)
    assert lines[-1]["online/effective_rank"] > 1.0
    assert 0.0 <= lines[-1]["online/knn"] <= 100.0
    assert run.encoder.is_file()
    assert run.best.is_file()


def test_a_teacher_starts_as_the_student_that_starts_from_weights(
    tiny: Configure, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = mast.pretrain(tiny("vicreg5_small", epochs=1))
    first: list[bool] = []

    def forward(method: BYOL, *arguments: Any) -> dict[str, torch.Tensor]:
        pairs = zip(method.encoder.parameters(), method.teacher.encoder.parameters(), strict=True)
        first.append(all(torch.equal(mine, theirs) for mine, theirs in pairs))
        return Method.forward(method, *arguments)

    monkeypatch.setattr(BYOL, "forward", forward)
    encoder = {"weights": str(source.path)}
    mast.pretrain(tiny("byol_small", epochs=1, encoder=encoder, out=f"{source.path}-byol"))
    assert first[0]
    assert not any(first[1:])


def test_labels_are_those_of_the_images(tiny: Configure, photos: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"objective\.classes: expected 3, .*, got 1000"):
        mast.pretrain(tiny("supervised_small"))
    flat = {"data": str(photos / "train" / "class0"), "objective": {"classes": 3}}
    with pytest.raises(UserError, match=r"expected one kind of labels for .*, got none"):
        mast.pretrain(tiny("supervised_small", **flat))
    changes = {"operators": ["horizontal_flip"], "optimizer": {"lr": 0.05}}
    changes |= {"epochs": 8, "score_every": 8}
    learned = mast.pretrain(tiny("supervised_small", objective={"classes": 3}, **changes))
    told = [line["stat/training_accuracy"] for line in learned.read_metrics() if "loss" in line]
    assert told[-1] > 0.9  # a third by chance: the color tells the class


def test_a_name_that_names_weights_is_no_start(tiny: Configure) -> None:
    config = tiny(encoder={"name": "timm:resnet18.a1_in1k"})
    with pytest.raises(UserError, match=r"got the weights 'resnet18\.a1_in1k'; pass them as enc"):
        mast.pretrain(config)
    assert not config.out.exists()


def test_the_run_folder_says_what_happened(tiny: Configure) -> None:
    config = tiny(seed=3, epochs=1)
    run = mast.pretrain(config)
    facts = json.loads(run.provenance.read_text())
    assert facts["seed"] == 3
    assert facts["data"]["images"] == 48
    assert len(facts["data"]["fingerprint"]) >= 32
    assert facts["versions"]["torch"] == version("torch")
    assert yaml.safe_load(run.config.read_text())["encoder"]["name"] == "timm:resnet18"
    line = next(line for line in run.read_metrics() if "loss" in line)
    terms = sum(value for name, value in line.items() if name.startswith("term/"))
    assert terms == pytest.approx(line["loss"], rel=1e-5)
    assert {"term/contrast", "stat/spread"} < line.keys()
    assert run.tensorboard.is_dir()


@pytest.mark.slow
def test_a_run_that_is_stopped_in_the_middle_ends_as_one_that_is_not(
    tiny: Configure, tmp_path: Path
) -> None:
    whole = mast.pretrain(tiny(epochs=5, out=str(tmp_path / "whole"), log_every=1))
    config = tiny(epochs=5, out=str(tmp_path / "killed"), log_every=1, checkpoint_minutes=0.0)
    file = tmp_path / "config.yaml"
    file.write_text(yaml.safe_dump(record(config)))
    command = [sys.executable, str(Path(__file__).parent.parent / "killed.py"), str(file)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr[-2000:]
    assert [json.loads(line) for line in ended.stdout.splitlines()] == [
        ["in_an_update", -signal.SIGKILL, 4],
        ["1 x SIGINT", 130, 5],
        ["1 x SIGTERM", 143, 7],
        ["in_a_checkpoint", -signal.SIGKILL, 8],
        ["1 x SIGHUP", 129, 9],
        ["2 x SIGTERM", 143, 9],
        ["between_two_names", -signal.SIGKILL, 11],
        ["in_a_line_of_the_log", -signal.SIGKILL, 12],
    ]
    assert "SIGTERM: stopped after step 7 of 15, which was saved" in ended.stderr
    assert "SIGTERM: stopped at once" in ended.stderr
    assert "Traceback" not in ended.stderr
    killed = RunFolder(tmp_path / "killed")
    assert not killed.encoder.exists()
    mast.pretrain(config)
    assert killed.encoder.read_bytes() == whole.encoder.read_bytes()
    assert killed.embedding.read_bytes() == whole.embedding.read_bytes()
    times = ("seconds", "images_per_second")
    logs = [
        [{name: line[name] for name in line.keys() - times} for line in run.read_metrics()]
        for run in (killed, whole)
    ]
    assert logs[0] == logs[1]


@pytest.mark.parametrize("minutes", [0.0, 60.0])
def test_a_warning_is_logged_once_however_often_a_run_is_continued(
    minutes: float,
    tiny: Configure,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def warnings(self: MastC, metrics: dict[str, float]) -> Iterator[str]:
        yield f"loss: it is {metrics['loss']}"  # other words each time
        if metrics["progress"] > 0.6:
            yield "late: after the first epoch's checkpoint"
        if metrics["progress"] > 0.9:
            yield "soon over: at the end"

    def after_step(self: MastC, progress: float) -> None:
        if progress in stops:
            stops.remove(progress)
            raise RuntimeError

    stops = [3 / 6, 5 / 6]
    monkeypatch.setattr(MastC, "warnings", warnings)
    monkeypatch.setattr(MastC, "after_step", after_step)
    config = tiny(log_every=1, checkpoint_minutes=minutes)
    for _ in range(2):
        with pytest.raises(RuntimeError):
            mast.pretrain(config)
    run = mast.pretrain(config)
    logged = [line["warning"].split(":")[0] for line in run.read_metrics() if "warning" in line]
    said = re.findall("warning: (.*?):", capsys.readouterr().err)
    assert logged == ["loss", "late", "soon over"]
    assert minutes or said == logged  # not again where every step is saved


def test_a_complete_run_is_left_alone_and_another_configuration_refused(tiny: Configure) -> None:
    run = mast.pretrain(
        tiny(
            "mast_c5_distance_small", accumulate=2, epochs=1,
            operators=["gaussian_blur", "horizontal_flip"],
        )
    )  # fmt: skip
    assert mast.load_method(run.path).operators == ("horizontal_flip", "gaussian_blur")
    steps = [line["step"] for line in run.read_metrics() if "loss" in line]
    assert steps[-1] == 3  # 48 images, 16 per step, in parts of 8
    before, written = run.encoder.stat().st_mtime_ns, run.config.read_bytes()
    config = read(run.config)
    mast.pretrain(replace(config, threads=1, log_every=3))  # which do not change the result
    assert run.encoder.stat().st_mtime_ns == before
    with pytest.raises(UserError, match=r"batch_size: .* has 8, but .* trained with 16"):
        mast.pretrain(replace(config, batch_size=8))
    assert run.config.read_bytes() == written


def test_changed_images_are_refused(tiny: Configure, tmp_path: Path) -> None:
    folder = write_images(tmp_path / "images", 32)
    config = tiny(data=str(folder), out=str(tmp_path / "run"), checkpoint_minutes=0.0)
    run = mast.pretrain(config)
    run.encoder.unlink()
    write_images(folder, 40)
    with pytest.raises(UserError, match="changed since"):
        mast.pretrain(config)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"batch_size": 7, "accumulate": 2}, "batch_size: expected a multiple of"),
        ({"batch_size": 64}, "fewer than one batch"),
        ({"schedule": {"stage1": 1.5}}, "schedule.stage1"),
        ({"views": "mast5", "operators": ["rotate"]}, "unknown operator of these views 'rotate'"),
        ({"data": "nowhere"}, "no folder 'nowhere'"),
        ({"cuda_graphs": True, "accumulate": 2}, "accumulate 1, got cpu, 1 and 2"),
    ],
)
def test_what_cannot_run_is_refused(
    tiny: Configure, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        mast.pretrain(tiny("mast_c5_distance_small", **changes))
    assert not (tmp_path / "run").exists()
