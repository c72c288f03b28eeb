"""Shared by all tests: one thread, a cache of their own, tiny images and a tiny configuration."""

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from tiny import ENCODER

import mast


@pytest.fixture(autouse=True, scope="session")
def _fresh_kernels() -> None:
    """Numba looks at a kernel's own file only: after a change of `rows.py` all are stale."""
    folder = Path(mast.__file__).parent / "augment" / "compiled"
    changed = (folder / "rows.py").stat().st_mtime
    for kept in (folder / "__pycache__").glob("*.nb?"):
        if kept.stat().st_mtime < changed:
            kept.unlink()


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "cache"))


def _write_images(folder: Path, count: int, classes: int = 3, side: int = 40) -> Path:
    """Write JPEGs of noise around a colour of their class."""
    generator = np.random.default_rng(0)
    for index in range(count):
        label = index % classes
        target = folder / f"class{label}"
        target.mkdir(parents=True, exist_ok=True)
        pixels = generator.integers(0, 120, (side, side + 8, 3))
        pixels[..., label % 3] += 120
        Image.fromarray(pixels.astype(np.uint8)).save(target / f"{index:03d}.jpg")
    return folder


@pytest.fixture
def write_images() -> Callable[..., Path]:
    """A function that writes small photographs into a folder, a class a subfolder."""
    return _write_images


@pytest.fixture(scope="session")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data set of 48 training, 24 validation and 24 test images of three classes."""
    root = tmp_path_factory.mktemp("photos")
    for part, count in (("train", 48), ("val", 24), ("test", 24)):
        _write_images(root / part, count)
    return root


@pytest.fixture
def tiny(photos: Path, tmp_path: Path) -> Callable[..., mast.PretrainConfig]:
    """A configuration that trains in about a second."""

    def configure(recipe: str = "mast5_small", **changes: Any) -> mast.PretrainConfig:
        objective = {"projector": {"hidden": 32, "dim": 24, "pool": "before"}}
        values: dict[str, Any] = {
            "data": str(photos / "train"),
            "out": str(tmp_path / "run"),
            "size": 32,
            "encoder": asdict(ENCODER),
            "objective": {**objective, **changes.pop("objective", {})},
            "epochs": 2,
            "batch_size": 16,
            "device": "cpu",
            **changes,
        }
        return mast.configure(recipe, **values)

    return configure
