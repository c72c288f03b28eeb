"""`mast demo`."""

import io
from pathlib import Path

import pytest
from rich.console import Console

import mast

pytestmark = pytest.mark.slow


def test_demo_measures_every_task_in_every_space(tmp_path: Path) -> None:
    result = mast.demo(tmp_path / "demo", epochs=1, images=256, device="cpu")
    tasks = ["shape", "color", "orientation", "position", "texture", "sharpness"]
    spaces = ["chance", "the output", "ignore color"]
    spaces += [f"match {name}" for name in ("color", "orientation", "position", "focus")]
    assert list(result.precision) == tasks
    for row in result.precision.values():
        assert list(row) == spaces
        assert all(0.0 < value <= 100.0 for value in row.values())
    color = result.precision["color"]
    assert color["chance"] == pytest.approx(100 / 8, abs=2)
    assert color["match color"] > 1.4 * color["chance"]
    narrow = Console(width=80, file=io.StringIO())
    narrow.print(*result.tables())
    shown = narrow.file.getvalue()  # type: ignore[attr-defined]
    assert all(shown.count(f" {task}") >= 1 for task in tasks)  # none is cut short
    assert "mast demo FOLDER --encoder" in str(result.shown()[-1])
    assert "matching color" in result.page.read_text()


def test_demo_searches_photos_by_copies_of_them(photos: Path, tmp_path: Path) -> None:
    result = mast.demo(
        tmp_path / "demo", photos / "train", "timm:efficientnet_lite0", size=32, device="cpu"
    )
    assert result.precision == {}
    assert list(result.copies) == ["by the output", "ignoring all"]
    assert all(0.0 <= share <= 100.0 for share in result.copies.values())
    assert len(list((tmp_path / "demo" / "copies").glob("*.png"))) > 9
    page = result.page.read_text()
    for way in ("by the output", "ignoring color", "matching color", "rotated and recolored"):
        assert way in page
    assert "--match color" in str(result.shown()[-1])
