"""The canvas cache: hit, rebuilt, damaged, killed, too large, with broken files."""

import hashlib
import json
import math
import re
import shutil
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from torchvision.transforms import v2

from mast.cli import main
from mast.core.errors import UserError
from mast.core.tensors import write_tensors
from mast.data import DataConfig, open_canvas, open_source
from mast.data import cache as cache_module
from mast.data.decode import canvas_shape
from mast.encoders.extract import test_views as shown_views


@pytest.fixture
def photos(tmp_path):
    """Twelve images of different sizes in two classes."""
    random = np.random.default_rng(0)
    for number in range(12):
        path = tmp_path / "photos" / "ab"[number % 2] / f"{number:02d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = random.integers(0, 256, (20 + number, 40, 3), np.uint8)
        Image.fromarray(pixels).save(path)
    return tmp_path / "photos"


@pytest.fixture
def config(photos, tmp_path):
    return DataConfig(str(photos), cache=tmp_path / "cache", workers=2)


@pytest.fixture
def builds(monkeypatch):
    """Counts how often a cache is built."""
    made = []
    original = cache_module._build
    monkeypatch.setattr(cache_module, "_build", lambda *of: made.append(of) or original(*of))
    return made


def files(config, ending):
    return sorted(config.cache.glob(f"*.{ending}"))


def everything(canvases):
    """The pixels of a set, flat."""
    return canvases.pixels.read(np.arange(len(canvases)))


def test_canvases_keep_the_shape_of_their_images(config, photos):
    config.canvas = 20
    canvases = open_canvas(config, 32)
    assert len(canvases) == 12
    assert canvases.pixels.size_N2[[0, 7]].tolist() == [[14, 28], [15, 26]]
    assert canvases.identifiers[:2] == ["a/00.png", "a/02.png"]
    assert canvases.classes == {"class": ("a", "b")}
    assert canvases.targets["class"].tolist() == [0] * 6 + [1] * 6
    with Image.open(photos / "b/03.png") as image:
        expected = image.resize((26, 15), Image.Resampling.LANCZOS, reducing_gap=3.0)
    batch = canvases.batch([7, 0])
    np.testing.assert_array_equal(batch.image(0), np.asarray(expected))
    torch.testing.assert_close(batch.aspect_B, torch.tensor([40 / 23, 40 / 20]))
    for index in (-1, 12):
        with pytest.raises(IndexError):
            canvases.batch([0, index])


@settings(max_examples=50)
@given(st.integers(1, 9000), st.integers(1, 9000), st.integers(8, 700))
def test_a_canvas_has_the_shape_of_its_image_and_no_more_pixels_than_it_may(width, height, side):
    wide, high = canvas_shape(width, height, side)
    assert (wide, high) == (width, height) or width * height > side**2
    assert wide <= width
    assert high <= height
    assert wide * high <= side**2
    if max(width, height) <= 8 * min(width, height):
        assert wide / high == pytest.approx(width / height, rel=2.5 / min(wide, high))
    short = max(1, round(min(width, height) * min(1, side / math.sqrt(width * height))))
    assert min(wide, high) == short


def test_second_time_is_a_hit(config, photos, builds):
    first, second = open_canvas(config, 32), open_canvas(config, 32)
    with Image.open(photos / "b/03.png") as image:  # a small image is its canvas
        np.testing.assert_array_equal(second.batch([7]).image(0), np.asarray(image))
    content = hashlib.blake2b(everything(second).tobytes(), digest_size=16)
    content.update(second.pixels.size_N2.tobytes())
    content.update(second.aspect_N.tobytes())
    content.update(second.targets["class"].tobytes())
    assert second.fingerprint == content.hexdigest()
    assert len(builds) == 1
    assert not second.pixels.on_demand
    assert first.fingerprint == second.fingerprint
    assert len(files(config, "u8")) == len(files(config, "safetensors")) == 1
    open_canvas(config, 64)  # another canvas is another file, and the first one stays
    open_canvas(config, 32)
    assert len(builds) == 2


def test_rebuilt_when_a_file_is_added_or_changed(config, photos, builds):
    before = open_canvas(config, 32)
    shutil.copy(photos / "a/00.png", photos / "a/zz.png")
    added = open_canvas(config, 32)
    assert len(added) == 13
    Image.new("RGB", (40, 20)).save(photos / "a/00.png")
    changed = open_canvas(config, 32)
    assert changed.batch([0]).values_T.max() == 0
    assert len({before.fingerprint, added.fingerprint, changed.fingerprint}) == 3
    assert len(builds) == 3
    assert len(files(config, "u8")) == 1, "what no state of the folder fits is removed"
    assert before.batch([0]).values_T.max() > 0, "a set that is open keeps its own file"


DAMAGE = {
    "no data": lambda data, manifest: data.unlink(),
    "half a manifest": lambda data, manifest: manifest.write_bytes(manifest.read_bytes()[:100]),
    "a bit of the manifest": lambda data, manifest: flip(manifest, -3),
    "another version": lambda data, manifest: write_tensors(
        manifest, {"kept": torch.zeros(1), "checksum": torch.zeros(12)}, {"version": 3}
    ),
}


def flip(file, *places):
    content = bytearray(file.read_bytes())
    for at in places:
        content[at] ^= 1
    file.write_bytes(content)


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_cache_is_built_anew(config, builds, damage):
    """The canvases, and the test views beside them."""
    config.canvas = 16
    canvases = open_canvas(config, 24)
    expected = everything(canvases), views(canvases, 24)
    damage(*(next(config.cache.glob(f"*.v24.{end}")) for end in ("u8", "safetensors")))
    damage(*(next(config.cache.glob(f"*px.{'?' * 16}.{end}")) for end in ("u8", "safetensors")))
    again = open_canvas(config, 24)
    np.testing.assert_array_equal(everything(again), expected[0])
    assert torch.equal(views(again, 24), expected[1])
    assert [request.view for (request,) in builds] == [None, 24] * 2


def test_damaged_canvases_are_refused_and_rebuilt(config, builds):
    expected = everything(open_canvas(config, 32))
    [file] = files(config, "u8")
    whole = file.read_bytes()
    flip(file, 100, *range(len(whole) // 2, len(whole)))
    canvases = open_canvas(config, 32)
    assert canvases.batch([1, 2]).values_T.numel()
    with pytest.raises(UserError, match="run the command again"):
        canvases.batch([1, 0])
    np.testing.assert_array_equal(everything(open_canvas(config, 32)), expected)
    assert len(builds) == 2
    assert file.read_bytes() == whole


def test_a_cache_is_verified_whole(config, capsys, monkeypatch):
    monkeypatch.setattr("mast.commands.show.default_cache", lambda: config.cache)

    def shown(*options):
        assert main(["show", "cache", *options]) == 0
        return " ".join(re.sub(r"[│┃]", " ", capsys.readouterr().out).split())

    open_canvas(config, 32)
    assert "not verified" in shown()
    assert "whole" in shown("--verify")
    flip(*files(config, "u8"), 10, -10)
    assert "2 damaged" in shown("--verify")
    flip(*files(config, "safetensors"), -3)
    assert "manifest damaged" in shown()


@pytest.mark.parametrize(
    ("error", "raised", "message"),
    [
        (KeyboardInterrupt(), KeyboardInterrupt, None),
        (
            OSError(28, "No space left on device"),
            UserError,
            r"No space left on device.*data\.cache",
        ),
    ],
)
def test_a_build_that_ends_early_leaves_nothing(config, monkeypatch, error, raised, message):
    def fail(_):
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(cache_module, "crc32", fail)  # when the first canvas was written
        with pytest.raises(raised, match=message):
            open_canvas(config, 32)
    assert not [path for path in config.cache.iterdir() if path.suffix != ".lock"]
    with monkeypatch.context() as patch:
        usage = shutil.disk_usage("/")._replace(free=10)
        patch.setattr(shutil, "disk_usage", lambda path: usage)
        with pytest.raises(UserError, match="0 kB are free"):
            open_canvas(config, 32)
    assert len(open_canvas(config, 32)) == 12
    config.cache = config.cache / "file" / "cache"
    config.cache.parent.write_text("")
    with pytest.raises(UserError, match=r"cannot write .* to the cache .*to another folder"):
        open_canvas(config, 32)


def _race(rank, config, folder):
    """Waits for the other process, then opens the set at the same time."""
    (folder / f"ready{rank}").touch()
    while not (folder / f"ready{1 - rank}").exists():
        time.sleep(0.001)
    canvases = open_canvas(config, 32)
    found = len(canvases), canvases.fingerprint, int(everything(canvases).sum())
    (folder / f"{rank}.json").write_text(json.dumps(found))


@pytest.mark.slow
def test_processes_that_race_agree(config, tmp_path, in_two_processes):
    in_two_processes(_race, config, tmp_path)
    first, second = (json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2))
    assert first == second
    assert first[0] == 12


def test_on_the_fly_equals_cached(config, tmp_path, builds):
    cached = open_canvas(config, 32)
    fly = DataConfig(config.spec, cache=tmp_path / "other", cache_limit_gb=0, workers=2)
    for _ in range(2):
        decoded = open_canvas(fly, 32)
        assert decoded.fingerprint == cached.fingerprint
        assert decoded.identifiers == cached.identifiers
        one, other = decoded.batch([5, 0, 5]), cached.batch([5, 0, 5])
        assert torch.equal(one.values_T, other.values_T)
        assert torch.equal(one.size_B2, other.size_B2)
        assert torch.equal(one.aspect_B, other.aspect_B)
    assert len(builds) == 2, "the check of all files is remembered too"
    assert not files(fly, "u8")


def test_on_the_fly_a_photo_that_was_replaced_is_refused(config, photos):
    config.cache_limit_gb = 0
    path = photos / "a/02.png"
    canvases = open_canvas(config, 32)
    canvases.batch([0, 1])
    Image.new("RGB", (40, 22)).save(path)
    canvases.batch([0, 2])
    with pytest.raises(UserError, match=r"a/02\.png.* changed since the set was opened"):
        canvases.batch([0, 1])
    assert open_canvas(config, 32).fingerprint != canvases.fingerprint


def test_broken_files_up_to_the_limit_are_named_and_skipped(config, photos, caplog):
    (photos / "a/04.png").write_bytes(b"broken")
    config.max_broken = 0.1
    for limit_gb in (32.0, 32.0, 0.0):  # built, found, and decoded on the fly
        caplog.clear()
        config.cache_limit_gb = limit_gb
        canvases = open_canvas(config, 32)
        assert len(canvases) == len(canvases.targets["class"]) == len(canvases.aspect_N) == 11
        assert "a/04.png" not in canvases.identifiers
        assert list(canvases.skipped) == ["a/04.png"]
        assert "1 of 12 images" in caplog.text
        # What follows the gap keeps its own pixels.
        assert canvases.batch([10]).aspect_B.item() == pytest.approx(40 / 31)
    config.max_broken = 0.01  # a stricter limit holds for what was built under a laxer one
    with pytest.raises(UserError, match=r"max_broken: .* got 1 in the first 12.*\n  a/04\.png: "):
        open_canvas(config, 32)


def test_too_many_broken_files_name_ten(config, photos):
    for path in photos.glob("*/*.png"):
        path.write_bytes(b"broken")
    config.max_broken = 0.5
    with pytest.raises(UserError, match="got 10 in the first 10") as caught:
        open_canvas(config, 32)
    assert str(caught.value).count(".png: ") == 10
    assert not files(config, "safetensors")


def expected_views(config, canvases, size):
    """Of whole images by torchvision."""
    prepare = v2.Compose([v2.Resize(size), v2.CenterCrop(size), v2.PILToTensor()])
    images = [Image.open(Path(config.spec) / name) for name in canvases.identifiers]
    return torch.stack([prepare(image) for image in images])


def views(canvases, size):
    pixels = canvases.test_views(size)
    flat = torch.from_numpy(pixels.read(np.arange(len(canvases))))
    return flat.view(len(canvases), 3, size, size)


@pytest.mark.parametrize("limit_gb", [32.0, 0.0])
def test_test_views_are_those_of_whole_images(config, limit_gb):
    config.canvas, config.cache_limit_gb = 16, limit_gb  # fewer pixels than any image has
    canvases = open_canvas(config, 24)
    expected = expected_views(config, canvases, 24)
    assert torch.equal(views(canvases, 24), expected)
    some = canvases.part([7, 3, 2], "some").subset([2, 0])
    assert torch.equal(views(some, 24), expected[[2, 7]])
    assert torch.equal(views(canvases, 18), expected_views(config, canvases, 18))
    again = open_canvas(config, 24)
    assert again.fingerprint == canvases.fingerprint
    assert len(files(config, "u8")) == (3 if limit_gb else 0)


def test_images_that_are_their_own_canvases_need_no_views_beside_them(config):
    canvases = open_canvas(config, 24)
    assert canvases.test_views(24) is None
    shown = shown_views(canvases, range(12), 24)
    assert torch.equal((shown * 255).round().to(torch.uint8), expected_views(config, canvases, 24))


def test_files_of_several_pages_are_counted(config, photos, caplog):
    frames = [Image.new("RGB", (24, 20), (value, 0, 0)) for value in (10, 20, 30)]
    for name in ("stack.tif", "moving.webp", "moving.png"):
        frames[0].save(photos / "a" / name, save_all=True, append_images=frames[1:])
    frames[0].save(photos / "a" / "photo.jpg", "MPO", save_all=True, append_images=frames[1:])
    for _ in range(2):  # built, then found
        caplog.clear()
        assert len(open_canvas(config, 32)) == 16
        assert "3 of 16 images" in caplog.text
        assert "a/moving.png, a/moving.webp, a/stack.tif" in caplog.text


def test_what_a_set_takes_is_known_from_some_of_its_images(config, photos):
    source = open_source(config.spec)
    taken = 3 * sum((20 + number) * 40 for number in range(12))
    assert cache_module.expected_bytes(source, 88) == pytest.approx(taken)
    assert cache_module.expected_bytes(source, 10) == 12 * 3 * 100
    (photos / "a/00.png").write_bytes(b"broken")
    assert cache_module.expected_bytes(open_source(config.spec), 88) == taken - 3 * 20 * 40


def test_a_set_over_the_limit_is_not_stored(photos, tmp_path, monkeypatch):
    config = DataConfig(str(photos), cache=tmp_path / "cache", cache_limit_gb=30e-6)
    canvases = open_canvas(config, 64)
    assert canvases.pixels.on_demand
    assert canvases.pixels.nbytes == 36_720
    assert not files(config, "u8")
    config.cache_limit_gb = 37e-6
    assert not open_canvas(config, 64).pixels.on_demand
    (file,) = files(config, "u8")
    assert file.stat().st_size == 36_720
    file.unlink()
    monkeypatch.setattr(cache_module, "expected_bytes", lambda *_: 1e9)  # far too much
    assert not open_canvas(config, 64).pixels.on_demand


def test_wrong_values_are_refused():
    for wrong in ({"canvas": 0}, {"max_broken": 5.0}, {"workers": 0}):
        with pytest.raises(UserError, match=f"data.{next(iter(wrong))}"):
            DataConfig(**wrong)
