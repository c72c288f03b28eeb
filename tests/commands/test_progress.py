"""What the commands show of their work: everything that is counted is counted to its end."""

from collections.abc import Callable
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

import mast
from mast.core import display
from mast.core.display import Work
from mast.core.run import RunFolder


@pytest.fixture
def works(monkeypatch: pytest.MonkeyPatch) -> list[Work]:
    """All work that is shown."""
    works: list[Work] = []

    def noted(*arguments: object) -> Work:
        works.append(Work(*arguments))  # type: ignore[arg-type]
        return works[-1]

    monkeypatch.setattr(display, "Work", noted)
    return works


def counted(works: list[Work]) -> dict[tuple[str, str], int]:
    """How many of what were counted, each to its end."""
    told = [work for work in works if work.total is not None]
    assert all(work.done == work.total for work in told if work.unit != "penalties")
    return {(work.what, work.unit): work.done for work in told}


def test_pretraining(
    tiny: Callable[..., mast.PretrainConfig], works: list[Work], photos: Path, tmp_path: Path
) -> None:
    config = tiny(epochs=1, data={"spec": str(photos / "train"), "cache": str(tmp_path / "cache")})
    mast.pretrain(config)
    shown = counted(works)
    assert shown["training", "steps"] == 48 // config.batch_size
    assert shown[f"reading {photos / 'train'}", "images"] == 48
    (training,) = [work for work in works if work.what == "training"]
    assert training.images == config.batch_size
    assert training.note.startswith("loss ")
    whats = [work.what for work in works]
    assert whats.index("setting up devices") < whats.index("training") < whats.index("saving")


def test_evaluation_and_analysis(ours: RunFolder, works: list[Work], photos: Path) -> None:
    settings = {"robust": {"operators": ["invert"]}}
    mast.evaluate(ours.path, photos, ["robust", "knn"], settings, cache=False)
    shown = counted(works)
    assert shown["", "protocols"] == 2
    assert shown["", "operators"] == 1
    assert shown[f"features of {photos / 'train'}", "images"] == 48
    works.clear()
    mast.analyze(ours.path, photos / "test", "masks")
    assert counted(works)["", "analyses"] == 1


def test_without_tensorboard_a_run_says_where_its_metrics_are(
    tiny: Callable[..., mast.PretrainConfig],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def found(name: str) -> ModuleSpec:
        """A folder of that name, as there is one in every run folder."""
        return ModuleSpec(name, None, is_package=True)

    monkeypatch.setattr("mast.core.loggers.find_spec", found)
    run = mast.pretrain(tiny(epochs=1))
    assert not run.tensorboard.exists()
    assert f"metrics go to {run.metrics}; to TensorBoard with" in capsys.readouterr().err
    assert run.read_metrics()
