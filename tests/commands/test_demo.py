"""`mast demo`."""

from pathlib import Path

import pytest
from pages import shown_on

import mast
from mast.data import open_canvas

pytestmark = pytest.mark.slow


def test_the_demo_finds_images_of_one_color(tmp_path: Path) -> None:
    page = mast.demo(out=tmp_path / "demo", epochs=1, images=256, device="cpu")
    shown = shown_on(page)
    assert len(shown["names"]) == 64
    assert any("lime ring that looks to the upper right" in name for name in shown["names"])
    assert shown["space"]["properties"].keys() == {"color", "orientation", "position"}
    assert shown["start"].startswith("photo=")
    data = "toys@test:64"
    canvases = open_canvas(data, 32)
    color = dict(zip(canvases.identifiers, canvases.targets["color"].tolist(), strict=True))
    shares = {}
    for way in ("ignore", "match"):
        found = mast.neighbours(data, range(64), page.parent / "adapted", **{way: "color"})
        pairs = zip(found.columns["query"], found.columns["path"], strict=True)
        same = [color[query] == color[path] for query, path in pairs]
        shares[way] = sum(same) / len(same)
    assert shares["match"] > max(shares["ignore"], 1.4 / 8)
