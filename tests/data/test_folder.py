"""Layouts of folders, their labels, order and fingerprint; and what is no image among them."""

import os
import re
import sys
import unicodedata
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image, features

from mast.core.errors import UserError
from mast.data import BrokenImageError, DataConfig, open_canvas, open_source
from mast.data.folder import read_folder
from mast.data.formats import extensions
from mast.data.registry import describe


def fill(root, *paths):
    for number, path in enumerate(paths):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (4, 4), (number, 0, 0)).save(root / path)
    return root


def names(source):
    return [source.identifier(index) for index in range(len(source))]


def test_first_folder_is_the_class_at_any_depth(tmp_path, caplog):
    flat = read_folder(fill(tmp_path / "flat", "b.png", "a.JPEG", "c.Tiff"))
    assert names(flat) == ["a.JPEG", "b.png", "c.Tiff"]
    assert flat.targets == {} == flat.classes
    assert read_folder(fill(tmp_path / "half", "cat/2.png", "1.png")).targets == {}
    assert "1 of 2 images" in caplog.text
    cats = [f"cat/{number}.png" for number in range(20)]
    stray = read_folder(fill(tmp_path / "stray", "dog/1.png", "logo.png", *cats))
    assert stray.targets["class"].tolist() == [0] * 20 + [1, -1]
    source = read_folder(fill(tmp_path / "set", "dog/x/y/1.png", "cat/2.png", "dog/0.png"))
    assert names(source) == ["cat/2.png", "dog/0.png", "dog/x/y/1.png"]
    assert source.classes == {"class": ("cat", "dog")}
    assert source.targets["class"].tolist() == [0, 1, 1]


def test_folders_of_one_name_have_caches_of_their_own(tmp_path, monkeypatch):
    places = set()
    for parent in (tmp_path / "one", tmp_path / "two"):
        fill(parent / "photos", "1.png")
        monkeypatch.chdir(parent)
        places.add(read_folder(Path("photos")).whereabouts)
    assert len(places) == 2


def test_hidden_and_other_files_are_left_out(tmp_path, caplog):
    fill(tmp_path, "a.png", ".hidden.png", ".git/b.png", "@eaDir/a.png/c.png", "__MACOSX/a.png")
    bins = ("#recycle", "@Recycle", "$RECYCLE.BIN/S-1-5", ".Trash-1000/files", "lost+found")
    fill(tmp_path, *(f"{name}/a.png" for name in (*bins, "System Volume Information")))
    for name in ("README", "labels.csv", ".DS_Store", "film.mp4"):
        (tmp_path / name).write_text("")
    assert names(read_folder(tmp_path)) == ["a.png"]
    assert not caplog.messages


def test_a_class_has_one_name_in_all_unicode_forms(tmp_path, monkeypatch):
    one = fill(tmp_path / "one", "café/1.png", "cafe\u0301/2.png", "tea/3.png")
    assert read_folder(one).targets["class"].tolist() == [0, 0, 1]
    parts = fill(tmp_path / "parts", "train/é/1.png", "test/e\u0301/1.png", "test/e\u0301/é.png")
    train, test = (read_folder(parts / part) for part in ("train", "test"))
    assert train.classes == test.classes == {"class": ("é",)}
    assert names(test) == ["e\u0301/1.png", "e\u0301/é.png"]  # as the files are called
    monkeypatch.chdir(parts)
    for form in ("NFC", "NFD"):
        assert len(open_source(unicodedata.normalize(form, "test/é"))) == 2


@pytest.mark.parametrize(
    ("paths", "seen", "classes"),
    [
        (("Training/a/1.png", "Testing/a/1.png"), "Testing, Training", False),
        (("train_a/1.png", "test_a/1.png", "train_b/1.png", "test_b/1.png"), "test_a, ", False),
        (("2019/a/1.png", "2019/b/1.png", "2020/a/1.png", "2020/b/1.png"), "2019", True),
        (("xray/train/1.png", "xray/test/1.png"), "xray", True),
        (("a/train/1.png", "a/test/1.png", "b/train/1.png", "b/test/1.png"), "a", True),
    ],
)
def test_subfolders_that_may_be_no_classes_are_named(tmp_path, caplog, paths, seen, classes):
    assert bool(read_folder(fill(tmp_path, *paths)).targets) == classes
    assert seen in caplog.text


@pytest.mark.parametrize(
    "paths",
    [
        ("cat/images/1.png", "dog/images/1.png"),  # as in Tiny ImageNet
        ("cat/a/1.png", "cat/b/1.png", "dog/a/1.png"),
        ("train/1.png", "cat/1.png", "dog/1.png"),  # CIFAR-100 and COCO have trains
        ("train_station/1.png", "test_track/1.png", "bridge/1.png"),
    ],
)
def test_subfolders_that_are_classes(tmp_path, paths):
    assert len(read_folder(fill(tmp_path, *paths)).classes["class"]) > 1


@pytest.mark.parametrize(
    ("folders", "parts"),
    [
        ("train val test", "train val test"),
        ("TRAIN Validation Test", "TRAIN Validation Test"),
        ("seg_train seg_test seg_pred", "seg_train - seg_test"),
        ("TrainSet TestSet", "TrainSet - TestSet"),
        ("train test1", "train - test1"),
        ("train_images test_images train_masks test_masks", "train_images - test_images"),
        ("train train_old test", "train - test"),
        ("train extra", "train - -"),
        ("train_station test_track bridge", ""),
        ("train_a train_b test_a test_b", ""),
        ("trainval test_train a", ""),
    ],
)
def test_parts_are_found_by_their_names(tmp_path, folders, parts):
    fill(tmp_path, *(f"{name}/{kind}/1.png" for name in folders.split() for kind in "ab"))
    expected = {
        part: str(tmp_path / name)
        for part, name in zip(("train", "val", "test"), parts.split(), strict=False)
        if name != "-"
    }
    assert describe(tmp_path).parts == (expected or {"all": str(tmp_path)})


def test_val_is_tested_where_there_is_no_test_and_a_class_is_no_part(tmp_path, monkeypatch):
    tested = describe(fill(tmp_path / "set", "train/a/1.png", "val/a/1.png")).with_test().parts
    assert (tested["test"], "val" in tested) == (str(tmp_path / "set" / "val"), False)
    flat = fill(tmp_path / "flat", "train/1.png", "ship/1.png")
    assert describe(flat).parts == {"all": str(flat)}
    monkeypatch.chdir(tmp_path)
    fill(tmp_path / "factors", "a/1.png")
    assert describe("./factors").parts == {"all": "./factors"}  # not the generated images


def test_fingerprint_sees_added_renamed_and_touched_files(tmp_path):
    fill(tmp_path, "a.png", "b.png")
    seen = {read_folder(tmp_path).fingerprint()}
    assert read_folder(tmp_path).fingerprint() in seen
    fill(tmp_path, "c/d.png")
    seen.add(read_folder(tmp_path).fingerprint())
    (tmp_path / "a.png").rename(tmp_path / "z.png")
    seen.add(read_folder(tmp_path).fingerprint())
    os.utime(tmp_path / "z.png", ns=(1, 1))
    seen.add(read_folder(tmp_path).fingerprint())
    assert len(seen) == 4


def test_file_names_that_are_not_unicode(tmp_path):
    if sys.platform != "linux":
        pytest.skip("the file system takes Unicode alone")
    for name in (b"\xff/\xfe.png", b"\xfd/a.png"):
        path = os.fsencode(tmp_path) + b"/set/" + name
        os.makedirs(os.path.dirname(path))
        Image.new("RGB", (4, 4)).save(path)
    canvases = open_canvas(DataConfig(tmp_path / "set", cache=tmp_path / "cache"), 8)
    assert [os.fsencode(name) for name in canvases.identifiers] == [b"\xfd/a.png", b"\xff/\xfe.png"]
    assert canvases.classes == {"class": ("\\xfd", "\\xff")}  # what can be printed and drawn
    assert not canvases.skipped


@pytest.mark.parametrize("name", ["~nobody-of-this-name/x", "b/" * 3000, "c\0d"])
def test_a_name_that_no_folder_can_have_is_not_there(tmp_path, name):
    with pytest.raises(UserError, match=f"no folder .*nope.*{tmp_path} exists"):
        open_source(tmp_path / "nope/deeper")
    with pytest.raises(UserError, match="no folder"):
        open_source(name)
    with pytest.raises(UserError, match="no folder"):
        describe(name)


# ------------------------------------------------------------------------- what is no file


def test_what_is_no_file_is_a_broken_image_and_never_opened(tmp_path, in_time):
    root = fill(tmp_path / "set", "a.png")
    os.mkfifo(root / "pipe.jpg")
    (root / "zero.jpg").symlink_to("/dev/zero")
    source = read_folder(root)
    assert names(source) == ["a.png", "pipe.jpg", "zero.jpg"]
    assert source.fingerprint() == read_folder(root).fingerprint()
    for index in (1, 2):
        with pytest.raises(UserError, match=r"\.jpg: a device or a pipe, not a file"):
            source.load(index)
    config = DataConfig(root, cache=tmp_path / "cache", max_broken=0.8)
    assert list(open_canvas(config, 8).skipped) == ["pipe.jpg", "zero.jpg"]
    (root / "a").touch()
    for name, kind in (("pipe.jpg", "a device or a pipe"), ("a", "no image")):
        with pytest.raises(UserError, match=rf"{name} is {kind}"):
            open_source(root / name)


def test_one_image_file_is_a_set_of_one(tmp_path):
    root = fill(tmp_path / "set", "a.png", "b.png")
    alone, among = (
        open_canvas(DataConfig(path, cache=tmp_path / "cache"), 8)
        for path in (root / "a.png", root)
    )
    assert ([*alone.identifiers], alone.targets) == (["a.png"], {})
    assert alone.batch([0]).values_T.equal(among.batch([0]).values_T)


# ----------------------------------------------------------------------------------- links


def test_two_links_a_level_lead_to_as_many_folders_as_there_are(tmp_path, in_time):
    for level in range(22):
        fill(tmp_path / f"set/{level:02d}", "1.png")
        for link in "ab":
            (tmp_path / f"set/{level:02d}/{link}").symlink_to(tmp_path / f"set/{level + 1:02d}")
    fill(tmp_path / "set/22", "1.png")
    source = read_folder(tmp_path / "set")
    assert names(source) == [f"{level:02d}/1.png" for level in range(23)]  # none by its links
    (tmp_path / "other").symlink_to(tmp_path / "set/00")
    assert len(read_folder(tmp_path / "other")) == 23  # through links alone


def test_links_that_lead_nowhere_are_left_out_and_those_of_images_are_broken(tmp_path):
    fill(tmp_path, "a.png")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "class").symlink_to(tmp_path / "gone")
    (tmp_path / "gone.png").symlink_to(tmp_path / "nowhere.png")
    assert names(read_folder(tmp_path)) == ["a.png", "gone.png"]  # to be counted as broken
    with pytest.raises(UserError, match=r"gone\.png"):
        read_folder(tmp_path).load(1)


# --------------------------------------------------------------------- kinds that are not read


@pytest.fixture
def without_heif(monkeypatch):
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    extensions.cache_clear()
    yield
    extensions.cache_clear()


def with_name(path):
    """As much of a HEIC as is looked at, called so or as another kind that is not read."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"\0\0\0\x18ftypheic" + bytes(200))


@pytest.mark.usefixtures("without_heif")
def test_photos_that_are_not_read_are_counted_and_named(tmp_path, caplog):
    fill(tmp_path, "a.png")
    for name in ("b.HEIC", "c.heic", "d/e.heif", "f.CR2", ".g.heic"):
        with_name(tmp_path / name)
    assert names(read_folder(tmp_path)) == ["a.png"]
    [warning] = caplog.messages
    assert "unsupported formats (2 .heic, 1 .cr2, 1 .heif): b.HEIC, c.heic, f.CR2, …" in warning
    assert (
        "`pip install 'mast-ssl[heif]'` to read .heic, .heif, .hif, .heics, or convert them"
        in warning
    )


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "BMP", "TIFF", "GIF", "PPM"])
def test_an_image_is_known_by_its_content_under_any_usual_ending_and_none(tmp_path, kind, caplog):
    endings = (".jfif", ".jpe", ".JIF", ".dib", ".gif", ".apng", ".pbm", "", ".0001", ".jp2")
    (tmp_path / "set").mkdir()
    for ending in endings:
        Image.new("RGB", (4, 4), (200, 40, 40)).save(tmp_path / "set" / f"a{ending}", kind)
    source = read_folder(tmp_path / "set")
    left_out = [".jp2"] if kind == "TIFF" else []  # raw photos begin as this does
    assert len(source) == len(endings) - len(left_out)
    assert [name for name in left_out if name not in caplog.text] == []
    for index in range(len(source)):
        assert np.abs(source.load(index).astype(int) - (200, 40, 40)).max() < 5
    alone = tmp_path / "set" / "a.part"
    (tmp_path / "set" / "a").rename(alone)
    assert open_source(alone).load(0).shape == (4, 4, 3)


@pytest.mark.parametrize(
    "content", [b"version https://git-lfs", b"\n<!DOCTYPE HTML><html>", b"", b"BMW is a brand"]
)
def test_what_is_no_image_is_named_by_how_it_begins(tmp_path, content):
    (fill(tmp_path, "b.png") / "a.jpg").write_bytes(content)
    with pytest.raises(BrokenImageError, match=re.escape(f"begins with {content[:16]!r}")):
        read_folder(tmp_path).load(0)
    (tmp_path / "a.jpg").rename(tmp_path / "a")
    assert names(read_folder(tmp_path)) == ["b.png"]


@pytest.mark.usefixtures("without_heif")
def test_a_folder_without_an_image_says_what_it_looked_for(tmp_path):
    with pytest.raises(UserError, match=r"no image in .*\.jpg, \.jpeg, \.png"):
        read_folder(tmp_path)
    with_name(tmp_path / "a.heic")
    with pytest.raises(UserError, match=r"no image in .*\(1 \.heic\).*mast-ssl\[heif\]"):
        read_folder(tmp_path)
    (tmp_path / "a.heic").rename(tmp_path / "a.nef")
    with pytest.raises(UserError, match=r"1 \.nef\): a\.nef; convert them to JPEG"):
        read_folder(tmp_path)


def test_heic_is_read_where_its_extra_is_installed(tmp_path, monkeypatch):
    asked = []
    stand_in = SimpleNamespace(register_heif_opener=lambda: asked.append("registered"))
    monkeypatch.setitem(sys.modules, "pillow_heif", stand_in)
    extensions.cache_clear()
    Image.new("RGB", (4, 4)).save(tmp_path / "a.HEIC", "PNG")
    try:
        assert read_folder(tmp_path).load(0).shape == (4, 4, 3)
    finally:
        extensions.cache_clear()
    assert asked == ["registered"]


@pytest.mark.skipif(not features.check("avif"), reason="Pillow was built without AVIF")
def test_avif_is_read(tmp_path):
    Image.new("RGB", (16, 8), (200, 40, 40)).save(tmp_path / "a.avif")
    assert read_folder(tmp_path).load(0).shape == (8, 16, 3)
