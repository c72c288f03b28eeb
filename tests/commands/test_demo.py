"""`mast demo`."""

import io
from pathlib import Path

import pytest
from rich.console import Console

import mast

pytestmark = pytest.mark.slow


def test_demo_says_what_neighbours_share_by_each_way(tmp_path: Path) -> None:
    result = mast.demo(out=tmp_path / "demo", epochs=1, images=256, device="cpu")
    ways = ["ignore color", "match color", "match orientation", "match position"]
    assert [*result.shares] == ["chance", "output", *ways]
    for row in result.shares.values():
        assert [*row] == ["color", "orientation", "position"]
        assert all(0.0 < value <= 100.0 for value in row.values())
    color = {way: row["color"] for way, row in result.shares.items()}
    assert color["chance"] == 100 / 8
    assert color["match color"] > max(color["ignore color"], 1.4 * color["chance"])
    narrow = Console(width=80, file=io.StringIO())
    narrow.print(*result.shown())
    shown = narrow.file.getvalue()  # type: ignore[attr-defined]
    assert "color orientation position" in shown  # none is cut short
    assert "mast demo FOLDER" in str(result.shown()[-1])
    page = result.page.read_text()
    assert "Lime ring that looks to the upper right" in page
    assert page.count("Match color: same color") == 4
    assert "Match position" not in page  # it is not matched well


def test_demo_searches_photos_by_copies_of_them(photos: Path, tmp_path: Path) -> None:
    result = mast.demo(photos / "train", out=tmp_path / "demo", size=32, device="cpu")
    assert [*result.shares] == ["output", "ignore all"]
    assert all(0.0 <= row["photo found first"] <= 100.0 for row in result.shares.values())
    assert len(list((tmp_path / "demo" / "copies").glob("*.png"))) > 9
    page = result.page.read_text()
    for heading in ("Nothing chosen", "Ignore color", "Match color", "rotated and recolored"):
        assert page.count(f"{heading}") >= 4
    assert "--match color" in str(result.shown()[-1])


def test_an_encoder_without_photos_is_refused(tmp_path: Path) -> None:
    with pytest.raises(mast.UserError, match="encoder is for photos"):
        mast.demo(encoder="resnet18", out=tmp_path)
