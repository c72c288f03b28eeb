"""`mast duplicates`: copies that were planted are found, and nothing else."""

import csv
import os
import re
import shutil
import sys
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from pages import shown_on
from PIL import Image, ImageEnhance, ImageFilter, ImageOps
from tiny import Pooled

import mast
from mast.cli import main
from mast.core.errors import UserError
from mast.core.run import RunFolder


@pytest.fixture
def planted(tmp_path: Path) -> Path:
    """Forty images of smooth shapes, some of them again: as they are, compressed, brighter."""
    folder = tmp_path / "set"
    folder.mkdir()
    random = np.random.default_rng(0)
    for at in range(40):
        coarse = random.integers(0, 255, (5, 5, 3)).astype(np.uint8)
        image = Image.fromarray(coarse).resize((48, 48), Image.Resampling.BICUBIC)
        image.save(folder / f"{at:02d}.png")
    shutil.copy(folder / "03.png", folder / "90.png")
    shutil.copy(folder / "03.png", folder / "91.png")
    Image.open(folder / "10.png").save(folder / "92.jpg", quality=75)
    ImageEnhance.Brightness(Image.open(folder / "20.png")).enhance(1.01).save(folder / "93.png")
    return folder


def test_planted_copies_are_found(
    ours: RunFolder, planted: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "copies.csv"
    command = ["duplicates", str(planted), "--encoder", str(ours.path), "--out", str(out)]
    assert main(command) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert re.search(r"groups; copies: 2 exact, \d near, 0 edited\.", shown)
    with out.open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["group"], row["path"], row["level"]) for row in rows][:3] == [
        ("1", "03.png", "first"), ("1", "90.png", "exact"), ("1", "91.png", "exact"),
    ]  # fmt: skip
    found = mast.duplicates(planted, Pooled(), keep="first", size=32).columns
    assert [*zip(found["group"], found["path"], found["level"], strict=True)][3:] == [
        (2, "10.png", "first"), (2, "92.jpg", "near"),
        (3, "20.png", "first"), (3, "93.png", "near"),
    ]  # fmt: skip
    assert found["changes"][3:] == ["", "re-encoded", "", "re-encoded"]
    assert min(found["cosine"]) > 0.9
    page = tmp_path / "copies.html"
    exact = mast.duplicates(planted, ours.path, "exact", page)
    assert list(exact.columns["path"]) == ["03.png", "90.png", "91.png"]
    (view,) = shown_on(page)["views"]
    assert [tile["caption"].partition(";")[0] for row in view["rows"] for tile in row["tiles"]] == [
        "first", "exact", "exact",
    ]  # fmt: skip
    with pytest.raises(UserError, match=r"level .close.\. Choose from: exact, near"):
        mast.duplicates(planted, ours.path, level="close")
    with pytest.raises(UserError, match="expected --level similar"):
        mast.duplicates(planted, ours.path, space="depths")


def test_ignore_and_match_say_in_what_copies_may_differ(planted: Path) -> None:
    """A mirrored copy and a gray one."""
    image = Image.effect_mandelbrot((160, 120), (-2, -1.5, 1, 1.5), 60)
    colors = Image.merge(
        "RGB", (image, ImageOps.mirror(image).rotate(90).resize(image.size), image)
    )
    for name, shown in {
        "a": colors,
        "b": ImageOps.mirror(colors),
        "c": colors.convert("L"),
    }.items():
        shown.save(planted / f"{name}.png")

    def names(**options: str) -> set[str]:
        found = mast.duplicates(planted, Pooled(), size=32, **options).columns
        return {path for path in found["path"] if path[0] in "abc"}

    assert names() == names(ignore="all") == {"a.png", "b.png", "c.png"}
    assert names(ignore="orientation") == names(match="color") == {"a.png", "b.png"}
    assert names(ignore="color") == {"a.png", "c.png"}
    assert names(level="near") == set()
    assert names(ignore="grayscale") == {"a.png", "c.png"}
    with pytest.raises(UserError, match=r"expected properties \(color, focus.*got 'hue'"):
        names(ignore="hue")


@pytest.mark.parametrize("level", ["edited", "similar"])
def test_animations_are_copies_by_all_frames_not_by_the_first(
    tmp_path: Path, level: Literal["edited", "similar"]
) -> None:
    """Ten begin black; one is there again, in another format; a still is the first frame alone."""
    folder, random = tmp_path / "set", np.random.default_rng(0)
    folder.mkdir()
    for at in range(10):
        coarse = map(Image.fromarray, random.integers(0, 255, (4, 5, 5, 3)).astype(np.uint8))
        others = [each.resize((40, 40), Image.Resampling.BICUBIC) for each in coarse]
        black = Image.new("RGB", (40, 40))
        for ending in ("webp", "png")[: 1 + (at == 3)]:
            file = folder / f"{at}.{ending}"
            black.save(file, save_all=True, append_images=others, lossless=True)
        others[0].save(folder / f"still{at}.png")
    black.save(folder / "black.png")
    found = mast.duplicates(folder, Pooled(), size=32, level=level, keep="first").columns
    assert [*zip(found["path"], found["level"], strict=True)] == [
        ("3.png", "first"), ("3.webp", "exact"),
    ]  # fmt: skip


def test_what_is_no_copy_is_remembered_and_the_others_are_left_out(
    planted: Path, tmp_path: Path
) -> None:
    """The pairs of the page are not joined again; the list is excluded where the set is read."""
    page, drop, table = (tmp_path / name for name in ("c.html", "drop.txt", "not.csv"))
    mast.duplicates(planted, Pooled(), keep="first", out=page, list=drop, size=32)
    (view,) = shown_on(page)["views"]
    pairs = [tile["pair"] for row in view["rows"] for tile in row["tiles"] if tile["pair"]]
    assert pairs == [["10.png", "92.jpg"], ["20.png", "93.png"]]
    names = ["90.png", "91.png", "92.jpg", "93.png"]
    assert drop.read_text().splitlines() == [str(planted / name) for name in names]
    table.write_text('"path","other"\n"92.jpg","10.png"\n"92.jpg","gone.png"\n')
    found = mast.duplicates(planted, Pooled(), keep="first", not_copies=table, size=32).columns
    assert set(found["path"]) == {"03.png", "90.png", "91.png", "20.png", "93.png"}
    (said,) = mast.duplicates(f"{planted}#exclude={drop}", Pooled(), size=32).sections
    assert "0 groups" in said
    with pytest.raises(UserError, match=r"drop\.txt would overwrite the list"):
        mast.duplicates(f"{planted}#exclude={drop}", Pooled(), list=drop, size=32)
    if sys.platform == "linux":
        for name in ("90.png", "92.jpg"):
            os.rename(planted / name, os.fsencode(planted) + b"/\xff" + name.encode())
        mast.duplicates(planted, Pooled(), list=drop, size=32)
        (said,) = mast.duplicates(f"{planted}#exclude={drop}", Pooled(), size=32).sections
        assert "0 groups" in said
        for name in ("90.png", "92.jpg"):
            os.rename(os.fsencode(planted) + b"/\xff" + name.encode(), planted / name)
    drop.write_text("000001\n")  # as images of a generated set are called
    mast.duplicates(planted, Pooled(), keep="first", list=drop, size=32)
    assert drop.read_text().splitlines() == [str(planted / name) for name in names]
    table.write_text("a,b\n")
    with pytest.raises(UserError, match="must have the two columns path and other"):
        mast.duplicates(planted, Pooled(), not_copies=table, size=32)


def _paths(folder: Path) -> set[str]:
    return {str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file()}


def test_the_best_of_each_group_stays_and_the_others_move_there_and_back(tmp_path: Path) -> None:
    """Copies of one picture: smaller, blurred, framed, dated, in a folder, and a link."""
    photos, place = tmp_path / "photos", tmp_path / "copies"
    (photos / "mine").mkdir(parents=True)
    coarse = np.random.default_rng(0).integers(0, 256, (120, 160, 3)).astype(np.uint8)
    image = Image.fromarray(coarse).resize((640, 480), Image.Resampling.BICUBIC)
    taken = Image.Exif()
    taken[306] = "2001:02:03 04:05:06"
    image.save(photos / "b.png")
    image.filter(ImageFilter.GaussianBlur(2)).save(photos / "c.bmp")
    image.resize((320, 240)).save(photos / "mine/a.png")
    image.filter(ImageFilter.GaussianBlur(1)).save(photos / "old.jpg", quality=60, exif=taken)
    ImageOps.expand(image, 90, "white").save(photos / "framed.bmp")
    now = 2_000_000_000
    for at, name in enumerate(("b.png", "c.bmp", "framed.bmp", "mine/a.png")):
        os.utime(photos / name, (now + at, now + at))
    (photos / "link.png").symlink_to("b.png")

    def first(keep: str) -> str:
        found = mast.duplicates(photos, Pooled(), keep=keep, size=32)
        assert found.columns["group"] == [1] * 6
        return str(found[0]["path"])

    expected = {"largest": "c.bmp", "sharpest": "b.png", "oldest": "old.jpg", "first": "b.png",
                "newest": "mine/a.png", "folder:./mine/": "mine/a.png"}  # fmt: skip
    assert {keep: first(keep) for keep in expected} == expected
    found = mast.duplicates(photos, Pooled(), size=32, keep="first").columns
    assert "2001-02-03 04:05:06" in found["date"]
    changes = dict(zip(found["path"], found["changes"], strict=True))
    assert changes["mine/a.png"] == "resized to 50 %"
    assert "with a border" in changes["framed.bmp"]
    for keep in ("best", "folder:yours"):
        with pytest.raises(UserError, match=r"^keep: "):
            first(keep)
    before = _paths(photos)
    for wrong in (photos, photos / "below", tmp_path, "", __file__):
        with pytest.raises(UserError, match=r"^move_to: expected a folder"):
            mast.duplicates(photos, Pooled(), size=32, move_to=wrong)
    for wrong in (tmp_path, tmp_path / "gone"):
        with pytest.raises(UserError, match=r"^reference: expected a folder"):
            mast.duplicates(photos, Pooled(), size=32, reference=wrong)
    (said,) = mast.duplicates(photos, Pooled(), keep="newest", size=32, move_to=place).sections
    assert "3 files moved" in said
    assert "Not moved: 2 linked." in said
    assert _paths(place) == {"c.bmp", "framed.bmp", "old.jpg", "moved.jsonl"}
    assert _paths(photos) == before - {"c.bmp", "framed.bmp", "old.jpg"}
    back = mast.duplicates(photos, restore=place)
    assert (sorted(back["path"]), set(back["left"])) == (["c.bmp", "framed.bmp", "old.jpg"], {""})
    assert (_paths(photos), place.exists()) == (before, False)


def test_a_reference_is_kept_and_labels_and_parts_that_differ_are_named(
    planted: Path, tmp_path: Path
) -> None:
    """Photos of a second folder are compared with, and copies within the first are not listed."""
    archive = planted.parent / "archive"
    archive.mkdir()
    shutil.copy(planted / "03.png", archive / "03.png")
    found = mast.duplicates(planted, Pooled(), size=32, reference=archive)
    assert found.columns["path"] == [
        str(archive / "03.png"), *(str(planted / f"{name}.png") for name in ("03", "90", "91")),
    ]  # fmt: skip
    for names, said in (
        (("cat", "dog"), "labels: cat, dog"),
        (("train", "test"), "parts: test, train"),
    ):
        folder = planted.parent / "-".join(names)
        for at, name in enumerate(names):
            (folder / name).mkdir(parents=True)
            shutil.copy(planted / "03.png", folder / name / "a.png")
            shutil.copy(planted / f"0{at}.png", folder / name / "b.png")
        conflicts = mast.duplicates(folder, Pooled(), size=32)
        assert conflicts["conflict"] == [said, said]
        assert "1 group with several labels or splits" in next(iter(conflicts.sections))
        moved = mast.duplicates(folder, Pooled(), size=32, move_to=tmp_path / "moved")
        assert "0 files moved" in next(iter(moved.sections))
        moved = mast.duplicates(
            folder, Pooled(), size=32, move_to=tmp_path / names[0], keep=f"folder:{names[1]}"
        )
        assert "1 file moved" in next(iter(moved.sections))
        assert _paths(tmp_path / names[0]) == {f"{names[0]}/a.png", "moved.jsonl"}


def test_a_copy_that_shows_more_or_has_no_detail_stays(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    coarse = draw.integers(0, 256, (60, 80, 3)).astype(np.uint8)
    image = Image.fromarray(coarse).resize((640, 480), Image.Resampling.BICUBIC)
    (tmp_path / "set").mkdir()
    image.save(tmp_path / "set/whole.png")
    image.crop((0, 0, 480, 480)).resize((1200, 1200)).save(tmp_path / "set/part.png")
    sky = np.broadcast_to(np.linspace(100, 200, 320), (240, 320)).astype(np.uint8)
    for name, values in (("sky.png", sky), ("sky2.png", sky + 1)):
        Image.fromarray(values).save(tmp_path / "set" / name)
    found = mast.duplicates(tmp_path / "set", Pooled(), size=32, move_to=tmp_path / "moved")
    assert found["path"] == ["sky.png", "sky2.png", "part.png", "whole.png"]
    assert np.isnan(found["agreement"][1])
    assert "1 with too little detail to be verified: look at them." in next(iter(found.sections))
    assert "shows 25 % more" in found["changes"][3]
    assert "0 files moved" in next(iter(found.sections))
