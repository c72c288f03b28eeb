"""Sets to be searched: as those of canvases, and nothing is decoded that was seen before."""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tiny import write_images

from mast.core.errors import UserError
from mast.data import DataConfig, Source, open_canvas, open_photos


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Photos of two classes, larger and smaller than canvases, and one that is broken."""
    draw = np.random.default_rng(0)
    for name, shape in {"x/a": (40, 60), "x/b": (70, 30), "y/c": (500, 900), "y/d": (9, 9)}.items():
        file = tmp_path / f"set/{name}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(draw.integers(0, 256, (*shape, 3), np.uint8)).save(file)
    (tmp_path / "set/y/e.png").write_bytes(b"\x89PNG\r\n\x1a\n broken")
    return tmp_path / "set"


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """Names of the images that are looked at, where nothing is kept yet."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    names, look = list[str](), Source.look

    def noted(self: Source, index: int, *others: object) -> object:
        names.append(self.identifier(index))
        return look(self, index, *others)  # type: ignore[arg-type]

    monkeypatch.setattr(Source, "look", noted)
    return names


def test_a_set_is_what_its_canvases_are(folder: Path) -> None:
    config = DataConfig(str(folder), max_broken=0.5)
    photos, canvases = open_photos(config, 224), open_canvas(config, 224)
    assert photos.identifiers == canvases.identifiers
    assert photos.skipped.keys() == canvases.skipped.keys() == {"y/e.png"}
    assert photos.targets["class"].tolist() == canvases.targets["class"].tolist()
    assert np.array_equal(photos.aspect_N, canvases.aspect_N)
    assert photos.batch(range(4)).values_T.equal(canvases.batch(range(4)).values_T)
    assert photos.pixel_digests == canvases.pixel_digests
    assert np.array_equal(photos.hashes_N8B, canvases.hashes_N8B)
    views = [each.test_views and each.test_views(224) for each in (photos, canvases)]
    ours, theirs = (each.read(np.arange(4)) for each in views if each)
    assert np.array_equal(ours, theirs)
    some = photos.part([2, 0]).with_views(32)
    assert some.keys == (photos.keys[2], photos.keys[0])
    assert some.test_views is not None
    assert some.test_views(32).read(np.arange(2)).tolist() == (  # type: ignore[union-attr]
        photos.test_views(32).read(np.array([2, 0])).tolist()  # type: ignore[misc, union-attr]
    )


def test_only_what_is_new_is_decoded(folder: Path, decoded: list[str]) -> None:
    config = DataConfig(str(folder), max_broken=0.5)
    before = open_photos(config, 32)
    assert sorted(decoded) == ["x/a.png", "x/b.png", "y/c.png", "y/d.png", "y/e.png"]
    decoded.clear()
    (folder / "x/a.png").rename(folder / "x/z.png")
    shutil.copy(folder / "y/c.png", folder / "y/again.png")
    write_images(folder / "new", 1)
    after = open_photos(config, 32)
    assert sorted(decoded) == [next(iter(after.identifiers)), "y/e.png"]  # broken ones are tried
    known = dict(zip(after.identifiers, after.keys, strict=True))
    assert known["x/z.png"] == before.keys[0]
    assert known["y/again.png"] == known["y/c.png"]
    decoded.clear()
    open_photos(DataConfig(str(folder), max_broken=0.5, tile=20), 32)
    assert len(decoded) > 5  # tiles are images of their own


def test_a_photo_that_changes_while_it_is_read_is_left_out(
    folder: Path, decoded: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was decoded is not kept under the name of what was there before."""
    file, look = folder / "x/a.png", Source.look
    before, state = file.read_bytes(), file.stat()

    def changing(self: Source, index: int, *others: object) -> object:
        file.write_bytes(before[:-1] + b"\0")  # of the same size and time
        os.utime(file, ns=(state.st_atime_ns, state.st_mtime_ns))
        return look(self, index, *others)  # type: ignore[arg-type]

    monkeypatch.setattr(Source, "look", changing)
    opened = open_photos(DataConfig(str(folder), max_broken=0.5), 32)
    assert opened.skipped.keys() == {"x/a.png", "y/e.png"}


def test_too_many_broken_images_are_refused(folder: Path) -> None:
    with pytest.raises(UserError, match="got 1 in the first 5"):
        open_photos(DataConfig(str(folder), max_broken=0.1), 32)


def test_files_are_decoded_as_they_are_read_together(tmp_path: Path) -> None:
    """An image of 16 bits is another one where the range of its set is."""
    draw = np.random.default_rng(0)
    for at in range(3):
        values = draw.integers(0, 2**12 if at else 2**16, (8, 8)).astype(np.uint16)
        Image.fromarray(values).save(tmp_path / f"{at}.png")
    limits = ((0, 4095), ("dtype",))
    whole, part = (open_photos(DataConfig(str(tmp_path), range=each), 8) for each in limits)
    assert not {*whole.keys} & {*part.keys}
    assert whole.reading != part.reading
