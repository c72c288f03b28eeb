"""What `mast show views` draws."""

from pathlib import Path

import numpy as np
import pytest
import yaml
from PIL import Image

import mast
from mast.analyses import figure
from mast.augment import PRESETS, Preset, View
from mast.cli import main
from mast.commands.show import BY_PHOTOS, show_views
from mast.config import read
from mast.recipes import RECIPES, configure


def test_all_views_of_a_preset_are_drawn(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    views = (View(), View({"invert": {"probability": 1.0}}), View(size=16), View(size=24))
    monkeypatch.setitem(PRESETS, "several", Preset(("invert", "rotate"), views))
    grid, drawn = figure.views_grid, []
    monkeypatch.setattr(figure, "views_grid", lambda *given: (drawn.append(given), grid(*given)))
    config = mast.configure("mast_c5_small", data=str(photos / "train"), size=32, views="several")
    path = show_views(config, tmp_path / "views.png", images=3)
    ((originals, images, captions, _),) = drawn
    assert originals.shape == (3, 3, 32, 32)
    assert [view.shape[-1] for view in images] == [32, 32, 16, 24]
    assert all("invert" in texts[1] for texts in captions)
    pixels = np.asarray(Image.open(path))
    assert abs(pixels.shape[1] - 308 * 5) <= 1  # every view has its column


def test_show(photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "operators"]) == 0
    assert "motion_blur" in capsys.readouterr().out
    assert main(["show", "recipes"]) == 0
    first, _, others = capsys.readouterr().out.partition(" recipes ")
    assert "published weights" in first
    assert "vicreg5_staged" in others
    assert {name for _, name, _ in BY_PHOTOS} < {"none", *RECIPES}
    assert main(["show", "config", "--recipe", "mast_c15_small", "--seed", "7"]) == 0
    text = capsys.readouterr().out
    assert yaml.safe_load(text)["objective"]["temperature"] > 0
    shown = tmp_path / "shown.yaml"
    shown.write_text(text)
    assert read(shown) == configure("mast_c15_small", seed=7)
    out = tmp_path / "views.png"
    words = ["show", "views", str(photos / "train"), "--recipe", "mast_c15_small"]
    assert main([*words, "--out", str(out), "--images", "2"]) == 0
    with Image.open(out) as picture:
        assert min(picture.size) > 300
