"""Shared by all tests: one thread, a cache of their own, tiny images and a tiny configuration."""

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from tiny import configure

import mast
from mast.core.run import RunFolder

pytest_plugins = ("evaluation_fixtures",)


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
    return partial(configure, photos, tmp_path / "run")


@pytest.fixture(scope="session")
def _trained(photos: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("trained")
    configs = {
        "ours": configure(photos, root / "ours", epochs=1, objective={"uncertainty": True}),
        "theirs": configure(photos, root / "theirs", "vicreg5_small", epochs=1),
    }
    return {name: mast.pretrain(config).path for name, config in configs.items()}


@pytest.fixture
def ours(_trained: dict[str, Path], tmp_path: Path) -> RunFolder:
    """A finished run of MAST with uncertainty, to write into."""
    return RunFolder(shutil.copytree(_trained["ours"], tmp_path / "ours"))


@pytest.fixture
def theirs(_trained: dict[str, Path], tmp_path: Path) -> RunFolder:
    """A finished run of VICReg on the same images, to write into."""
    return RunFolder(shutil.copytree(_trained["theirs"], tmp_path / "theirs"))
