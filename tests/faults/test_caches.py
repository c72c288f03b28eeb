"""Caches that changed on the disk are noticed, and what they held is made again."""

import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from mast.cli import main
from mast.core.errors import UserError
from mast.core.tensors import read_metadata, read_tensors, write_tensors
from mast.data import DataConfig, open_canvas
from mast.evaluation.accuracy import correct_within


@pytest.fixture
def cached(photos: Path, tmp_path: Path) -> DataConfig:
    """A set whose canvases are in a file, of its own images."""
    images = shutil.copytree(photos / "test", tmp_path / "images")
    config = DataConfig(str(images), cache=tmp_path / "cache")
    open_canvas(config, 32)
    return config


def test_damaged_canvases_are_decoded_again(cached: DataConfig, caplog: Any) -> None:
    expected = open_canvas(cached, 32).batch(range(24)).values_T
    (file,) = Path(str(cached.cache)).glob("*.u8")
    whole = file.read_bytes()
    damaged = bytearray(whole)
    damaged[len(damaged) // 2 :] = bytes(len(damaged) - len(damaged) // 2)
    damaged[100] ^= 1
    file.write_bytes(damaged)
    canvases = open_canvas(cached, 32)
    assert torch.equal(canvases.batch(range(24)).values_T, expected)
    (said,) = (record.message for record in caplog.records)
    assert "first at canvas 0; what is damaged is decoded again" in said
    assert file.read_bytes() == whole


def test_canvases_that_are_cut_short_while_they_are_open_are_decoded_again(
    cached: DataConfig, caplog: Any
) -> None:
    canvases = open_canvas(cached, 32)
    expected = canvases.batch(range(24)).values_T
    (file,) = Path(str(cached.cache)).glob("*.u8")
    whole = file.read_bytes()
    picked = canvases.batch([23, 0, 12]).values_T
    os.truncate(file, 32 * 32 * 3 * 10 + 5)
    assert torch.equal(canvases.batch([23, 0, 12]).values_T, picked)
    assert torch.equal(canvases.batch(range(24)).values_T, expected)
    assert len(caplog.records) == 1
    assert file.read_bytes() == whole


@pytest.mark.parametrize("kind", ["safetensors", "u8"])
def test_a_pipe_in_place_of_a_cache_is_replaced(cached: DataConfig, kind: str) -> None:
    before = open_canvas(cached, 32).batch(range(4)).values_T
    (file,) = Path(str(cached.cache)).glob(f"*.{kind}")
    file.unlink()
    os.mkfifo(file)
    assert torch.equal(open_canvas(cached, 32).batch(range(4)).values_T, before)
    assert file.is_file()


@pytest.mark.parametrize(
    ("later", "message"),
    [
        (1, "{name}: not the file that was there when the set was opened"),
        (0, "canvas 5 is no longer what it was: delete the file"),  # nothing of the file shows it
    ],
)
def test_a_damaged_canvas_whose_image_changed_is_refused(
    cached: DataConfig, later: int, message: str
) -> None:
    (file,) = Path(str(cached.cache)).glob("*.u8")
    canvases = open_canvas(cached, 32)
    file.write_bytes(bytes(file.stat().st_size))
    image = Path(cached.spec) / canvases.identifiers[5]
    before = image.stat()
    with Image.open(image) as opened:
        Image.new("RGB", opened.size, "white").save(image)
    image.write_bytes(image.read_bytes().ljust(before.st_size, b"\0"))
    os.utime(image, ns=(before.st_atime_ns, before.st_mtime_ns + later))
    with pytest.raises(UserError, match=message.format(name=re.escape(canvases.identifiers[5]))):
        canvases.batch([4, 5])


def test_a_canvas_that_cannot_be_mended_is_right_all_the_same(
    cached: DataConfig, caplog: Any
) -> None:
    canvases = open_canvas(cached, 32)
    expected = canvases.batch([3]).values_T
    (file,) = Path(str(cached.cache)).glob("*.u8")
    file.write_bytes(bytes(file.stat().st_size))
    file.rename(file.with_suffix(".moved"))
    file.mkdir()
    assert torch.equal(canvases.batch([3]).values_T, expected)
    assert "cannot be mended" in caplog.text


@pytest.mark.parametrize("written", [b"[" * 99_999, None])
def test_what_is_no_manifest_is_built_anew(cached: DataConfig, written: bytes | None) -> None:
    expected = open_canvas(cached, 32).fingerprint
    (manifest,) = Path(str(cached.cache)).glob("*px.*.safetensors")
    if written is None:
        write_tensors(manifest, {"other": torch.ones(2)}, {"version": 4})
    else:
        manifest.write_bytes(written)
    assert open_canvas(cached, 32).fingerprint == expected


@pytest.mark.parametrize(
    "changes",
    [
        {"aspect": torch.full((24,), float("nan"))},
        {"kept": torch.arange(24) - 1},
        {"kept": torch.arange(24).flip(0)},
        {"checksum": torch.zeros(48, dtype=torch.int16)},
        {"ends": torch.arange(24) * 10**15},
        {"names": torch.zeros(0, dtype=torch.uint8)},
        {"side": float("inf")},
        {"height": torch.zeros(24, dtype=torch.int32)},
        {"skipped": {"a": None}},
    ],
)
def test_a_manifest_that_cannot_be_is_built_anew(
    cached: DataConfig, changes: dict[str, Any], caplog: Any
) -> None:
    """It is as it was written, with the right digest, and yet of no canvases."""
    expected = open_canvas(cached, 32).batch(range(24))
    (path,) = Path(str(cached.cache)).glob("*px.*.safetensors")
    tensors, header = read_tensors(path)
    said = read_metadata(header)
    for name, value in changes.items():
        (tensors if name in tensors else said)[name] = value
    write_tensors(path, tensors, said)
    canvases = open_canvas(cached, 32)
    found = canvases.batch(range(24))
    assert torch.equal(found.values_T, expected.values_T)
    assert torch.equal(found.aspect_B, expected.aspect_B)
    assert "built anew" in caplog.text


def test_a_cache_is_verified_whole(cached: DataConfig, capsys: pytest.CaptureFixture[str]) -> None:
    folder = Path(str(cached.cache))

    def shown(*options: str, cache: Path = folder) -> str:
        assert main(["show", "cache", "--cache", str(cache), *options]) == 0
        return " ".join(re.sub(r"[│┃]", " ", capsys.readouterr().out).split())

    assert "not verified" in shown()
    assert "whole" in shown("--verify")
    (file,) = folder.glob("*.u8")
    damaged = bytearray(file.read_bytes())
    damaged[10] ^= 1
    damaged[-10] ^= 1
    file.write_bytes(damaged)
    assert "2 damaged" in shown("--verify")
    (manifest,) = folder.glob("*.safetensors")
    manifest.write_bytes(manifest.read_bytes().replace(b'\\"side\\": 88', b'\\"side\\": 89'))
    assert "manifest damaged" in shown()
    assert "set" in shown(cache=folder / "none")


def test_a_score_that_is_not_finite_is_no_hit() -> None:
    scores_NC = torch.tensor([[0.1, 0.9], [float("nan"), 0.5]])
    with pytest.raises(UserError, match="class scores of 1 of 2 images are not finite"):
        correct_within(scores_NC, torch.tensor([1, 0]), k=1)
