"""Edits are told from other images, with their map and what else changed."""

import itertools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageDraw, ImageEnhance, ImageFilter, ImageOps
from tiny_evaluation import tiny_set

from mast.data import open_photos
from mast.search.duplicates import copies_within
from mast.search.edits import AGREED, CHANGES, Edit, EditFinder, Thumbnail, edit_between

Image_ = Image.Image


def scene(seed: int) -> Image_:
    """Colored shapes on smooth noise, as detailed as a photo: 320 × 240."""
    draw = np.random.default_rng(seed)
    image = Image.new("RGB", (320, 240))
    for cells, weight in ((6, 1.0), (24, 0.4), (80, 0.25)):
        noise = draw.integers(0, 256, (cells * 3 // 4, cells, 3), np.uint8)
        layer = Image.fromarray(noise).resize(image.size, Image.Resampling.BICUBIC)
        image = Image.blend(image, layer, weight)
    for _ in range(40):
        left, top, width, height = draw.integers((0, 0, 8, 8), (300, 220, 60, 60))
        color = tuple(draw.integers(0, 256, 3).tolist())
        ImageDraw.Draw(image).ellipse((left, top, left + width, top + height), fill=color)
    return image


def between(first: Image_, second: Image_) -> Edit:
    return edit_between(*(Thumbnail(np.array(each)) for each in (first, second)))


def bordered(image: Image_) -> Image_:
    return ImageOps.expand(image, border=(40, 30), fill="white")


def recolored(image: Image_) -> Image_:
    brightness, blue, red = image.convert("YCbCr").split()
    return Image.merge("YCbCr", (brightness, red, ImageOps.invert(blue))).convert("RGB")


def blocked(image: Image_) -> Image_:
    image = image.copy()
    ImageDraw.Draw(image).rectangle((80, 80, 200, 160), fill="black")
    return image


EDITS: dict[str, tuple[Callable[[Image_], Image_], dict[str, str]]] = {
    "the same": (lambda image: image, {}),
    "resized": (lambda image: image.resize((200, 150)), {}),
    "cropped": (lambda image: image.crop((40, 20, 280, 200)), {"cropped": "cropped to 56 %"}),
    "mirrored": (ImageOps.mirror, {"mirrored": "mirrored"}),
    "flipped": (ImageOps.flip, {"mirrored": "flipped upside down"}),
    "quarter": (lambda image: image.transpose(Image.Transpose.ROTATE_90),
                {"turned": "turned by -90°"}),
    "stretched": (lambda image: image.resize((240, 240)), {"stretched": "stretched by 1.33"}),
    "negative": (ImageOps.invert, {"inverted": "inverted"}),
    "gray": (lambda image: image.convert("L").convert("RGB"), {"gray": "gray"}),
    "recolored": (recolored, {"recolored": "recolored"}),
    "darker": (lambda image: image.point(lambda value: value // 2), {"brightness": "darker"}),
    "saturated": (lambda image: ImageEnhance.Color(image).enhance(0.4),
                  {"saturation": "less saturated"}),
    "blurred": (lambda image: image.filter(ImageFilter.GaussianBlur(2.5)), {"blurred": "blurred"}),
    "out of focus": (lambda image: image.filter(ImageFilter.GaussianBlur(5)),
                     {"blurred": "blurred"}),
    "bordered": (bordered, {"extended": "with a border: 64 % is the photo"}),
    "covered": (blocked, {"covered": "12 % covered"}),
}  # fmt: skip


@pytest.mark.parametrize("name", EDITS)
def test_an_edit_has_its_changes(name: str) -> None:
    change, expected = EDITS[name]
    edit = between(scene(0), change(scene(0)))
    assert edit.agreement > AGREED
    assert edit.changes() == expected
    assert edit.is_near == (not {*expected} - {"brightness", "saturation", "blurred"})
    assert {*expected} <= {*CHANGES}


def test_the_map_is_that_of_the_edit() -> None:
    """Points of the first image land where a turn by 20° about its center puts them."""
    image = scene(1)
    edit = between(image, image.rotate(20, Image.Resampling.BICUBIC))
    turned = np.array([[edit.scale_x, edit.shear_x], [edit.shear_y, edit.scale_y]])
    angle = np.deg2rad(-20)  # of Pillow counterclockwise, with y upwards
    expected = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    assert np.allclose(turned, expected, atol=0.01)
    center = np.array([0.5, 0.375])  # in units of the longer side
    assert np.allclose(turned @ center + [edit.left, edit.top], center, atol=0.01)
    assert edit.changes()["turned"] == "turned by -20°"


def test_other_images_are_no_edits_and_flat_ones_say_nothing() -> None:
    scenes = [scene(seed) for seed in range(2, 6)]
    agreed = [between(one, other).agreement for one in scenes for other in scenes if one != other]
    assert max(agreed) < 0.3
    flat = Image.new("RGB", (64, 48), "red")
    assert np.isnan(between(flat, Image.new("RGB", (48, 48), "blue")).agreement)
    assert between(flat, scenes[0]).agreement < 0.3


def test_pages_of_text_are_no_copies() -> None:
    """Lines of letters at the same places correlate, but their points agree on no map."""
    draw = np.random.default_rng(0)
    pages = []
    for _ in range(3):
        page = Image.new("RGB", (310, 430), "white")
        for top in range(20, 410, 13):
            words = ["".join(chr(letter) for letter in draw.integers(97, 123, 6)) for _ in range(6)]
            ImageDraw.Draw(page).text((20, top), " ".join(words), fill="black")
        pages.append(page)
    assert max(between(*pair).agreement for pair in itertools.combinations(pages, 2)) < 0.3
    assert between(pages[0], pages[0].resize((280, 390))).is_near


def test_copies_of_copies_are_compared_with_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Features propose one pair an image; what was compared is not compared again."""
    monkeypatch.setattr("mast.search.duplicates.ALONE", 1)
    monkeypatch.setattr("mast.search.duplicates.WORDED", 0)
    for at in range(12):
        shown = scene(at) if at < 6 else scene(0).rotate(4 * (at - 5), Image.Resampling.BICUBIC)
        shown.save(f"{tmp_path}/{at:02d}.png")
    canvases = open_photos(str(tmp_path), 32)
    angle_N = np.deg2rad([*range(20, 320, 60), 0, *range(1, 7)])
    x_ND = torch.from_numpy(np.stack([np.cos(angle_N), np.sin(angle_N)], 1)).float()
    order = [5, 0, 1, 2, 3, 4, *range(6, 12)]  # the first scene lies among its copies
    found = copies_within(canvases, x_ND[order], above=1.0)
    assert [(copy.group, copy.position) for copy in found] == [(1, at) for at in (0, *range(6, 12))]
    assert [copy.level for copy in found] == ["first", *["edited"] * 6]
    assert "turned by -12°" in found[3].changes
    monkeypatch.setattr("mast.search.edits.edit_between", None)
    assert copies_within(canvases, x_ND[order], above=1.0) == found


def test_edits_that_no_encoder_finds_share_local_features(tmp_path: Path) -> None:
    """Half of a picture, turned by 45° and mirrored, whatever the features are."""
    for at in range(30):
        scene(at).save(f"{tmp_path}/{at:02d}.png")
    picture = Image.new("RGB", (900, 450), "khaki")
    picture.paste(ImageOps.mirror(scene(3)).rotate(45, Image.Resampling.BICUBIC, expand=True))
    picture.paste(scene(40).resize((450, 450)), (450, 0))
    picture.save(tmp_path / "picture.png")
    canvases = open_photos(str(tmp_path), 32)
    x_ND = torch.randn(31, 8, generator=torch.Generator().manual_seed(0))
    found = copies_within(canvases, x_ND, above=1.0)
    assert [(copy.position, copy.level) for copy in found] == [(3, "first"), (30, "edited")]
    assert "mirrored, turned by" in found[1].changes
    assert copies_within(canvases, x_ND, "near", above=1.0) == []


def test_edits_of_a_set_without_files_are_found() -> None:
    canvases = tiny_set(6).subset([0, 1])
    (edit,) = EditFinder(canvases)([(0, 0)])
    assert edit.agreement == pytest.approx(1) or np.isnan(edit.agreement)
