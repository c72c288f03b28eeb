"""`mast shard`: it writes what the canvas cache would hold, and goes on; runs learn from it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from tiny import stop_after, write_images

import mast
from mast.commands import shard as command
from mast.core.errors import UserError
from mast.data import open_source
from mast.data.pieces import Tiles

SIDE = 24
Configure = Callable[..., mast.PretrainConfig]


def sharded(photos: Path, out: Path, **changed: Any) -> Path:
    return command.shard(photos / "train", out, **({"size": SIDE, "images": 20} | changed)).path


def test_the_same_command_goes_on(
    photos: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = sharded(photos, tmp_path / "whole")
    write, written = command._Writer._write, []

    def stopped(writer: Any, file: Path, index_N: np.ndarray) -> None:
        if len(written) == 2:
            raise KeyboardInterrupt
        written.append(file.name)
        write(writer, file, index_N)

    with monkeypatch.context() as patch:
        patch.setattr(command._Writer, "_write", stopped)
        with pytest.raises(KeyboardInterrupt):
            sharded(photos, tmp_path / "cut", workers=1)
    assert not (tmp_path / "cut" / "index.json").exists()
    written.clear()
    with monkeypatch.context() as patch:
        patch.setattr(command._Writer, "_write", stopped)
        cut = sharded(photos, tmp_path / "cut")
    assert len(written) == 1
    assert {file.name: file.read_bytes() for file in cut.glob("*.tar")} == {
        file.name: file.read_bytes() for file in whole.glob("*.tar")
    }
    with pytest.raises(UserError, match="has shards with another size and quality"):
        sharded(photos, tmp_path / "cut", size=16, quality=50)


def test_a_shard_that_is_cut_short_is_written_again(photos: Path, tmp_path: Path) -> None:
    root = sharded(photos, tmp_path / "set")
    before = (root / "000001.tar").read_bytes()
    for length in (0, 9000, len(before.rstrip(b"\0")) + 512):  # the last without its end
        (root / "000001.tar").write_bytes(before[:length])
        sharded(photos, root)
        assert (root / "000001.tar").read_bytes() == before


def test_broken_images_are_left_out_up_to_a_share(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = write_images(tmp_path / "images", 12)
    for file in sorted(folder.rglob("*.png"))[:2] or sorted(folder.rglob("*.jpg"))[:2]:
        file.write_bytes(b"nonsense")
    result = command.shard(folder, tmp_path / "set", size=8, max_broken=0.2)
    assert (result.images, result.shards, result.broken) == (10, 1, 2)
    assert result.text.startswith("10 images in 1 shards; 2 broken ones left out: shards:")
    assert caplog.text.count("left out") == 2
    with pytest.raises(UserError, match=r"max_broken: 0\.1 allows 1 broken images .*, got 2"):
        command.shard(folder, tmp_path / "other", size=8, max_broken=0.1)


def test_a_run_on_shards_continues_bit_for_bit(
    tiny: Configure, photos: Path, tmp_path: Path
) -> None:
    root = sharded(photos, tmp_path / "set")
    data = {"spec": f"shards:{root}", "canvas": SIDE, "shuffle": 30}
    whole, cut = (tiny(epochs=1, data=data, out=tmp_path / name) for name in ("whole", "cut"))
    stop_after(2, cut)
    runs = [mast.pretrain(config) for config in (whole, cut)]
    losses = [[line["loss"] for line in run.read_metrics() if "loss" in line] for run in runs]
    assert losses[0] == losses[1] != []
    assert runs[0].encoder.read_bytes() == runs[1].encoder.read_bytes()
    assert any("online/knn" in line for line in runs[0].read_metrics())


@pytest.fixture
def scenes(tmp_path: Path) -> Path:
    """Three scenes in two classes, each of six tiles of 16 pixels, and a small photo."""
    random = np.random.default_rng(0)
    for name, shape in {"a/0": (32, 40), "a/1": (32, 40), "b/2": (32, 40), "b/3": (9, 8)}.items():
        (tmp_path / "scenes" / name).parent.mkdir(parents=True, exist_ok=True)
        pixels = random.integers(0, 256, (*shape, 3), np.uint8)
        Image.fromarray(pixels).save(tmp_path / "scenes" / f"{name}.png")
    return tmp_path / "scenes"


def test_scenes_are_decoded_once_and_their_tiles_mixed(
    scenes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded, decode = [], Tiles._decode

    def counted(source: Tiles, scene: int) -> Image.Image:
        decoded.append(scene)
        return decode(source, scene)

    monkeypatch.setattr(Tiles, "_decode", counted)
    given: dict[str, Any] = {"size": 100, "format": "bmp", "images": 5}
    made = command.shard(f"{scenes}#tile=16", tmp_path / "out", workers=3, **given)
    assert (made.images, made.shards, made.broken) == (19, 4, 0)
    assert sorted(decoded) == [0, 1, 2]
    shards = open_source(f"shards:{made.path}", tmp_path / "root")
    pieces = open_source(f"{scenes}#tile=16", tmp_path / "root")
    place = {pieces.identifier(index): index for index in range(len(pieces))}
    order = [place[shards.identifier(index)] for index in range(len(shards))]
    assert sorted(order) == list(range(19))
    assert order != sorted(order)
    assert "a/1.png@x24y16" in place
    for index, of in enumerate(order):
        expected_HWC, aspect = pieces.canvas(of, 100)
        canvas_HWC, found = shards.canvas(index, 100)
        assert np.array_equal(canvas_HWC, expected_HWC)
        assert found == pytest.approx(aspect)
        assert shards.targets["class"][index] == pieces.targets["class"][of]
    assert not [path for path in made.path.iterdir() if path.is_dir()], "what was cut is kept"


def test_cutting_goes_on_where_it_was_stopped(
    scenes: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded, fails, decode = [], [2], Tiles._decode

    def counted(source: Tiles, scene: int) -> Image.Image:
        decoded.append(scene)
        if scene in fails:
            fails.clear()
            raise KeyboardInterrupt
        return decode(source, scene)

    monkeypatch.setattr(Tiles, "_decode", counted)
    given: dict[str, Any] = {"size": 100, "images": 6, "workers": 1}
    with pytest.raises(KeyboardInterrupt):
        command.shard(f"{scenes}#tile=16", tmp_path / "out", **given)
    decoded.clear()
    made = command.shard(f"{scenes}#tile=16", tmp_path / "out", **given)
    assert (made.images, decoded) == (19, [2])
    whole = command.shard(f"{scenes}#tile=16", tmp_path / "whole", **given)
    for file in whole.path.glob("*.tar"):
        assert file.read_bytes() == (made.path / file.name).read_bytes()
