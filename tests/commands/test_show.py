"""What `mast show views` draws."""

from pathlib import Path

import numpy as np
import pytest
import yaml
from PIL import Image

import mast
from mast.augment import PRESETS, Preset, View
from mast.cli import main
from mast.commands.show import show_views
from mast.config import read
from mast.recipes import configure


def test_all_views_of_a_preset_are_drawn(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, inverted = (View({"invert": {"probability": share}}) for share in (0.0, 1.0))
    views = (plain, inverted, View(size=16), View(size=24))
    monkeypatch.setitem(PRESETS, "several", Preset(("invert",), views))
    config = mast.configure("mast_c5_small", data=str(photos / "train"), size=32, views="several")
    with Image.open(show_views(config, tmp_path / "views.png", images=3)) as picture:
        assert picture.size == (2 + 5 * 226, 2 + 3 * 226)
        pixels_HW3 = np.asarray(picture).astype(int)
    first, second = (pixels_HW3[2:226, left : left + 224] for left in (2 + 226, 2 + 2 * 226))
    assert abs(first + second - 255).max() <= 1


def test_show(photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "operators"]) == 0
    assert "motion_blur" in capsys.readouterr().out
    assert main(["show", "recipes"]) == 0
    first, _, others = capsys.readouterr().out.partition(" recipes ")
    assert "published weights" in first
    assert "vicreg5_staged" in others
    assert main(["show", "config", "--recipe", "mast_c15_small", "--seed", "7"]) == 0
    text = capsys.readouterr().out
    assert yaml.safe_load(text)["objective"]["temperature"] > 0
    shown = tmp_path / "shown.yaml"
    shown.write_text(text)
    assert read(shown) == configure("mast_c15_small", seed=7)
    out = tmp_path / "views.png"
    words = ["show", "views", str(photos / "train"), "--recipe", "mast_c15_small"]
    assert main([*words, "--out", str(out), "--images", "2"]) == 0
    assert out.is_file()
