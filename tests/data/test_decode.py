"""Every mode that Pillow opens, as RGB pixels and as a canvas."""

import os
import stat
import struct

import numpy as np
import pytest
from PIL import EpsImagePlugin, Image, ImageCms, ImageOps
from tifffile import imwrite

from mast.core.errors import UserError
from mast.data import open_source
from mast.data.canvas import open_files
from mast.data.decode import BrokenImageError, open_image, read_image, to_canvas, to_pixels
from mast.data.folder import read_folder
from mast.data.formats import Bands

RED, BLUE = (200, 40, 40), (40, 60, 200)


def halves(left, right, dtype=np.uint8):
    """A 24 × 16 image (width × height), one value on the left and one on the right."""
    image = np.empty((16, 24, *np.shape(left)), dtype)
    image[:, :12], image[:, 12:] = left, right
    return image


def palette(transparent):
    image = Image.fromarray(halves(0, 1)).convert("L")
    indexed = Image.frombytes("P", image.size, image.tobytes())
    indexed.putpalette([*RED, *BLUE])
    if transparent:
        indexed.info["transparency"] = 0
    return indexed


def mode(array, name):
    return Image.fromarray(array).convert(name)


LOSSLESS, FINE = {"lossless": True}, {"quality": 95, "subsampling": 0}
WHITE, GRAY = (255, 255, 255), (128, 128, 128)
# name, image, keywords of save, expected left, expected right, tolerance
MODES = [
    ("rgb.png", Image.fromarray(halves(RED, BLUE)), {}, RED, BLUE, 0),
    ("rgb.JPG", Image.fromarray(halves(RED, BLUE)), FINE, RED, BLUE, 4),
    ("rgb.webp", Image.fromarray(halves(RED, BLUE)), LOSSLESS, RED, BLUE, 0),
    ("rgb.bmp", Image.fromarray(halves(RED, BLUE)), {}, RED, BLUE, 0),
    ("rgb.tiff", Image.fromarray(halves(RED, BLUE)), {"compression": "tiff_lzw"}, RED, BLUE, 0),
    ("gray.jpg", Image.fromarray(halves(0, 128)), {}, (0, 0, 0), GRAY, 4),
    ("bits.png", Image.fromarray(halves(0, 255)).convert("1"), {}, (0, 0, 0), WHITE, 0),
    ("palette.png", palette(False), {}, RED, BLUE, 0),
    ("palette-clear.png", palette(True), {"transparency": 0}, WHITE, BLUE, 0),
    ("rgba.png", Image.fromarray(halves((*RED, 0), (*BLUE, 255))), {}, WHITE, BLUE, 0),
    ("half.png", Image.fromarray(halves((0, 0, 0, 127), (0, 0, 0, 255))), {}, GRAY, (0, 0, 0), 1),
    ("la.png", mode(halves((9, 9, 9, 0), (128, 128, 128, 255)), "LA"), {}, WHITE, GRAY, 0),
    ("rgb-clear.png", Image.fromarray(halves(RED, BLUE)), {"transparency": RED}, WHITE, BLUE, 0),
    ("cmyk.jpg", mode(halves(WHITE, (0, 0, 0)), "CMYK"), {"quality": 95}, WHITE, (0, 0, 0), 4),
    ("cmyk.tif", mode(halves(RED, BLUE), "CMYK"), {}, RED, BLUE, 2),
    ("deep.png", Image.fromarray(halves(0, 32896, np.uint16)), {}, (0, 0, 0), GRAY, 0),
    ("deep.tif", Image.fromarray(halves(257, 65535, np.uint16)), {}, (1, 1, 1), WHITE, 0),
    ("dim.tif", Image.fromarray(halves(0, 514, np.uint16)), {}, (0, 0, 0), (2, 2, 2), 0),
    ("int32.tif", Image.fromarray(halves(0, 32896, np.int32)), {}, (0, 0, 0), GRAY, 0),
    ("int32-bytes.tif", Image.fromarray(halves(0, 128, np.int32)), {}, (0, 0, 0), GRAY, 0),
    ("unit.tif", Image.fromarray(halves(0, 128 / 255, np.float32)), {}, (0, 0, 0), GRAY, 0),
    ("signed.tif", Image.fromarray(halves(-3, 5, np.float32)), {}, (0, 0, 0), WHITE, 0),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "image", "options", "left", "right", "tolerance"), MODES, ids=[row[0] for row in MODES]
)
def test_mode(tmp_path, name, image, options, left, right, tolerance):
    image.save(tmp_path / name, **options)
    source = read_folder(tmp_path)
    pixels = source.load(0)
    assert pixels.dtype == np.uint8
    assert pixels.shape == (16, 24, 3)
    # Away from the edge, where JPEG rings.
    assert np.abs(pixels[:, :8].astype(int) - left).max() <= tolerance
    assert np.abs(pixels[:, 16:].astype(int) - right).max() <= tolerance
    canvas, aspect = source.canvas(0, 8)
    assert canvas.shape == (7, 9, 3)
    assert aspect == 1.5
    # The filter overshoots a little beside the edge.
    assert np.abs(canvas[:, 0].astype(int) - left).max() <= tolerance + 12


def read(path):
    """The colors of the left and of the right half."""
    with open_image(path) as image:
        pixels = to_pixels(image)
    return [tuple(pixels[8, column].tolist()) for column in (2, 20)]


@pytest.mark.parametrize("top", [np.uint8(255), np.uint16(65535), np.float32(1)])
def test_the_smallest_value_may_be_white(tmp_path, top):
    imwrite(tmp_path / "a.tif", halves(0, top, top.dtype), photometric="miniswhite")
    assert read(tmp_path / "a.tif") == [(255,) * 3, (0,) * 3]


def test_white_on_transparent_ground_shows(tmp_path):
    for left, opacity, expected in (
        (WHITE, 255, [WHITE, (0, 0, 0)]),
        (WHITE, 100, [(100, 100, 100), (0, 0, 0)]),
        (RED, 255, [RED, WHITE]),
        (RED, 0, [WHITE, WHITE]),
    ):
        Image.fromarray(halves((*left, opacity), (9, 9, 9, 0))).save(tmp_path / "a.png")
        assert read(tmp_path / "a.png") == expected


@pytest.mark.parametrize(
    ("orientation", "ending"),
    [*((number, "jpg") for number in range(1, 9)), (6, "png"), (6, "webp"), (6, "tiff")],
)
def test_exif_orientation_is_undone(tmp_path, orientation, ending):
    stored, exif, path = halves(RED, BLUE), Image.Exif(), tmp_path / f"turned.{ending}"
    stored[:8, :12] = 255  # a mark in the upper left
    exif[0x0112] = orientation
    Image.fromarray(stored).save(path, exif=exif)
    with Image.open(path) as image:
        upright = np.asarray(ImageOps.exif_transpose(image))
    with Image.open(path) as image:
        np.testing.assert_array_equal(to_pixels(image), upright)
    with Image.open(path) as image:
        canvas, aspect = to_canvas(image, 8)
    height, width, _ = upright.shape
    assert aspect == width / height
    expected = Image.fromarray(upright).resize(canvas.shape[1::-1], Image.Resampling.BOX)
    assert np.abs(canvas - np.asarray(expected, int)).mean() < 9


def test_reduced_jpeg_is_close_to_the_whole_one(tmp_path):
    y, x = np.mgrid[0:512, 0:768]
    wave = np.stack([np.sin(x / 40), np.cos(y / 30), np.sin((x + y) / 50)], -1)
    image = Image.fromarray((127 + 120 * wave).astype(np.uint8))
    image.save(tmp_path / "big.jpg", quality=95)
    with Image.open(tmp_path / "big.jpg") as opened:
        canvas, aspect = to_canvas(opened, 32)
    expected = np.asarray(image.resize((39, 26), Image.Resampling.LANCZOS)).astype(int)
    assert aspect == 1.5
    assert np.abs(canvas - expected).mean() < 1.5


PROGRAM = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 4 4\n%%EndComments\nshowpage\n%%EOF\n"


@pytest.fixture
def ghostscript(tmp_path, monkeypatch):
    """A program that runs as `gs` and leaves a file, which is returned, where it was started."""
    (tmp_path / "bin").mkdir()
    started, gs = tmp_path / "started", tmp_path / "bin" / "gs"
    gs.write_text(f'#!/bin/sh\necho "$@" >> {started}\n')
    gs.chmod(gs.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{gs.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(EpsImagePlugin, "gs_binary", None)  # as in a process that met no EPS yet
    return started


@pytest.mark.skipif(os.name == "nt", reason="the program is a script of a shell")
def test_postscript_that_is_called_as_an_image_is_broken_and_never_run(tmp_path, ghostscript):
    path = tmp_path / "photos" / "holiday.jpg"
    in_torchvision = tmp_path / "imagenette2" / "train" / "n01440764" / "holiday.JPEG"
    for file in (path, in_torchvision, tmp_path / "imagenette2" / "val" / "a"):
        file.parent.mkdir(parents=True)
        file.write_bytes(PROGRAM)
    opened = Image.open(path)  # which does not run it yet
    for decode in (
        lambda: read_folder(path.parent).load(0),
        lambda: read_folder(path.parent).canvas(0, 8),
        lambda: open_files([path], 8),
        lambda: read_image(path, to_pixels),
        lambda: read_image(opened, to_pixels),
        lambda: open_source("torchvision:Imagenette@train", root=tmp_path).load(0),
    ):
        with pytest.raises(BrokenImageError):
            decode()
    opened.close()
    assert not ghostscript.exists()


def test_an_opened_image_of_another_format_is_read_once_it_is_decoded(tmp_path):
    Image.new("RGB", (6, 3), RED).save(tmp_path / "red.tga")
    image = Image.open(tmp_path / "red.tga")
    with pytest.raises(UserError, match="TGA"):
        read_image(image, to_pixels)
    image.load()
    canvas, aspect = read_image(image, lambda opened: to_canvas(opened, 4))
    assert canvas[0, 0].tolist() == list(RED)
    assert aspect == 2


# ------------------------------------------------------------------------------ color profiles

SRGB = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
SWAPPED = SRGB.replace(b"rXYZ", b"____").replace(b"gXYZ", b"rXYZ").replace(b"____", b"gXYZ")
CURVE = struct.pack(">4sxxxxHxxi", b"para", 3, round(2.4 * 65536))
LINEAR_GRAY = (
    SRGB.replace(b"RGB XYZ ", b"GRAYXYZ ")
    .replace(b"rTRC", b"kTRC")
    .replace(CURVE, struct.pack(">4sxxxxHxxi", b"para", 0, 65536))
)
PROFILED = {
    "rgb.jpg": (Image.fromarray(halves(RED, BLUE)), FINE),
    "rgb.webp": (Image.fromarray(halves(RED, BLUE)), LOSSLESS),
    "rgb.tif": (Image.fromarray(halves(RED, BLUE)), {}),
    "palette.png": (palette(False), {}),
    "rgba.png": (Image.fromarray(halves((*RED, 255), (*BLUE, 255))), {}),
}


def swapped(color):
    return color[1], color[0], color[2]


@pytest.mark.parametrize("name", PROFILED)
def test_a_profile_says_what_color_a_pixel_has(tmp_path, name):
    image, options = PROFILED[name]
    for profile, left, right in (
        (SWAPPED, swapped(RED), swapped(BLUE)),
        (SRGB, RED, BLUE),
        (SWAPPED[:400], RED, BLUE),  # damaged
        (LINEAR_GRAY, RED, BLUE),  # of another space
    ):
        image.save(tmp_path / name, icc_profile=profile, **options)
        found = read(tmp_path / name)
        assert np.abs(np.subtract(found, [left, right])).max() <= (4 if name == "rgb.jpg" else 1)
        with Image.open(tmp_path / name) as opened:
            of_bands = Bands.of(opened).values_HWC[8, [2, 20]]
        np.testing.assert_array_equal(of_bands, found)


def test_a_profile_of_gray_keeps_one_channel_and_opacity(tmp_path):
    values = halves(60, 128)
    levels = np.array([60, 128]) / 255
    expected = 255 * (1.055 * levels ** (1 / 2.4) - 0.055)  # sRGB's curve
    for mode in ("L", "LA"):
        Image.fromarray(values).convert(mode).save(tmp_path / "a.png", icc_profile=LINEAR_GRAY)
        with Image.open(tmp_path / "a.png") as opened:
            bands = Bands.of(opened)
        assert bands.channels == 1
        assert (bands.alpha_HW is None) == (mode == "L")
        assert np.abs(bands.values_HWC[8, [2, 20], 0] - expected).max() <= 1
        assert np.abs(np.subtract(read(tmp_path / "a.png"), expected[:, None])).max() <= 1
