"""`mast demo`."""

import io
from pathlib import Path

import pytest
from pages import shown_on
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
    assert "mast neighbours FOLDER" in str(result.shown()[-1])
    page = shown_on(result.page)
    assert len(page["names"]) == 64
    assert any("lime ring that looks to the upper right" in name for name in page["names"])
    assert page["space"]["properties"].keys() == {"color", "orientation", "position"}
    assert page["start"].startswith("photo=")
