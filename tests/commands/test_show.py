"""What `mast show views` draws."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import mast
from mast.analyses import figure
from mast.augment import PRESETS, Preset, View
from mast.commands.show import show_views


@pytest.mark.parametrize("count", [1, 2, 4])
def test_all_views_of_a_preset_are_drawn(
    count: int, photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    views = (View(), View({"invert": {"probability": 1.0}}), View(size=16), View(size=24))[:count]
    monkeypatch.setitem(PRESETS, "several", Preset(("invert", "rotate"), views))
    grid, drawn = figure.views_grid, []
    monkeypatch.setattr(figure, "views_grid", lambda *given: (drawn.append(given), grid(*given)))
    config = mast.configure("mast5_small", data=str(photos / "train"), size=32, views="several")
    path = show_views(config, tmp_path / "views.png", images=3)
    ((originals, images, captions, _),) = drawn
    assert originals.shape == (3, 3, 32, 32)
    assert [view.shape[-1] for view in images] == [32, 32, 16, 24][:count]
    assert [len(texts) for texts in captions] == [count] * 3
    if count > 1:
        assert all("invert" in texts[1] for texts in captions)
    pixels = np.asarray(Image.open(path))
    assert abs(pixels.shape[1] - 308 * (1 + count)) <= 1  # every view has its column
