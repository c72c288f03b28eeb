"""`mast demo`."""

import io
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.console import Console

import mast

Configure = Callable[..., mast.PretrainConfig]


def test_demo_measures_every_task_of_every_encoder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mast.commands.together.cores", lambda: 1)  # two have a test of their own
    result = mast.demo(tmp_path / "demo", epochs=1, images=256)
    tasks = ["shape", "color", "orientation", "position", "texture", "sharpness"]
    encoders = ["chance", "untrained", "VICReg", "VICReg + prediction", "MAST"]
    spaces = [*encoders, "MAST, its heads", "MAST, ignoring colour", "MAST, matching colour"]
    spaces.insert(4, "VICReg + prediction, its heads")
    for scores, columns in ((result.accuracy, encoders), (result.precision, spaces)):
        assert list(scores) == tasks
        for row in scores.values():
            assert list(row) == columns
            assert all(0.0 < value <= 100.0 for value in row.values())
    assert result.accuracy["color"]["chance"] == pytest.approx(100 / 8)
    assert [table.row_count for table in result.tables()] == [len(encoders), len(spaces)]
    narrow = Console(width=80, file=io.StringIO())
    narrow.print(*result.tables())
    shown = narrow.file.getvalue()
    assert all(shown.count(task) == 2 for task in tasks)  # none is cut short
    assert result.run.encoder.is_file()
    assert list((result.run.path / "evaluations").glob("linear-*.json"))
    page = result.page.read_text()
    for name in ("mast", "vicreg", "augself", "untrained"):
        assert name in page
