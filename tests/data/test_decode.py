"""Every mode that Pillow opens, as RGB pixels and as a canvas."""

import io
import os
import stat
import struct
import time
import zlib
from pathlib import Path
from zlib import crc32

import numpy as np
import pytest
from PIL import EpsImagePlugin, Image

from mast.core.errors import UserError
from mast.data import open_source, read_canvas
from mast.data.canvas import open_files
from mast.data.decode import to_canvas, to_pixels
from mast.data.folder import Folder
from mast.data.formats import BrokenImageError
from mast.data.shards.shard import Sample

RED, BLUE = (200, 40, 40), (40, 60, 200)


def halves(left: object, right: object, dtype: type = np.uint8) -> np.ndarray:
    """A 24 × 16 image (width × height), one value on the left and one on the right."""
    image = np.empty((16, 24, *np.shape(left)), dtype)
    image[:, :12], image[:, 12:] = left, right
    return image


def palette(transparent: bool) -> Image.Image:
    image = Image.fromarray(halves(0, 1)).convert("L")
    indexed = Image.frombytes("P", image.size, image.tobytes())
    indexed.putpalette([*RED, *BLUE])
    if transparent:
        indexed.info["transparency"] = 0
    return indexed


def mode(array: np.ndarray, name: str) -> Image.Image:
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
    ("gray.png", Image.fromarray(halves(0, 128)), {}, (0, 0, 0), GRAY, 0),
    ("gray.jpg", Image.fromarray(halves(0, 128)), {}, (0, 0, 0), GRAY, 4),
    ("bits.png", Image.fromarray(halves(0, 255)).convert("1"), {}, (0, 0, 0), WHITE, 0),
    ("palette.png", palette(False), {}, RED, BLUE, 0),
    ("palette-clear.png", palette(True), {"transparency": 0}, WHITE, BLUE, 0),
    ("rgba.png", Image.fromarray(halves((*RED, 0), (*BLUE, 255))), {}, WHITE, BLUE, 0),
    ("half.png", Image.fromarray(halves((0, 0, 0, 127), (0, 0, 0, 255))), {}, GRAY, (0, 0, 0), 1),
    ("rgba.webp", Image.fromarray(halves((*RED, 0), (*BLUE, 255))), LOSSLESS, WHITE, BLUE, 0),
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
    source = Folder(tmp_path)
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


def written(path: Path, values: np.ndarray, photometric: int, extra: tuple[int, ...] = ()) -> Path:
    """A TIFF with tags of its own, uncompressed."""
    height, width, samples = values.shape if values.ndim == 3 else (*values.shape, 1)
    bits, kind = 8 * values.itemsize, {"u": 1, "i": 2, "f": 3}[values.dtype.kind]
    tags = {256: (width,), 257: (height,), 258: (bits,) * samples, 259: (1,), 262: (photometric,)}
    tags |= {273: (8,), 277: (samples,), 278: (height,), 279: (values.nbytes,)}
    tags |= ({338: extra} if extra else {}) | {339: (kind,) * samples}
    lists, at = b"", 8 + values.nbytes
    entries = struct.pack("<H", len(tags))
    for tag, numbers in tags.items():
        packed = struct.pack(f"<{len(numbers)}H", *numbers)
        if len(packed) > 4:
            packed, lists = struct.pack("<I", at + len(lists)), lists + packed
        entries += struct.pack("<HHI", tag, 3, len(numbers)) + packed.ljust(4, b"\0")
    header = b"II*\0" + struct.pack("<I", at + len(lists))
    path.write_bytes(header + values.tobytes() + lists + entries + bytes(4))
    return path


def read(path: Path) -> list[tuple[int, ...]]:
    """The colours of the left and of the right half."""
    with Image.open(path) as image:
        pixels = to_pixels(image)
    return [tuple(pixels[8, column].tolist()) for column in (2, 20)]


@pytest.mark.parametrize("top", [np.uint8(255), np.uint16(65535), np.float32(1)])
def test_the_smallest_value_may_be_white(tmp_path: Path, top: np.generic) -> None:
    values = halves(0, top, top.dtype)
    black, white = (0, 0, 0), (255, 255, 255)
    assert read(written(tmp_path / "black.tif", values, 1)) == [black, white]
    assert read(written(tmp_path / "white.tif", values, 0)) == [white, black]


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
def test_a_fourth_band_is_no_alpha(tmp_path: Path, dtype: type) -> None:
    scale = np.iinfo(dtype).max // 255
    values = halves((*RED, 0), (*BLUE, 60), dtype) * dtype(scale)
    for name, extra in (("none", ()), ("unspecified", (0,))):
        assert read(written(tmp_path / f"{name}.tif", values, 2, extra)) == [RED, BLUE]
    seen = read(written(tmp_path / "alpha.tif", values, 2, (2,)))
    assert seen[0] == (255, 255, 255)


def test_the_largest_of_32_bits_are_no_negative_numbers(tmp_path: Path) -> None:
    ramp = np.linspace(0, 4e9, 24).astype(np.uint32)[None].repeat(16, 0)
    with Image.open(written(tmp_path / "large.tif", ramp, 1)) as image:
        pixels = to_pixels(image)
    assert (np.diff(pixels[8, :, 0].astype(int)) > 0).all()


def test_a_gray_value_of_a_deep_png_is_transparent(tmp_path: Path) -> None:
    """As the file says; what is left shows on white."""
    image = Image.fromarray(halves(300, 32896, np.uint16))
    content = io.BytesIO()
    image.save(content, "PNG")
    whole = content.getvalue()
    chunk = b"tRNS" + struct.pack(">H", 300)
    chunk = struct.pack(">I", 2) + chunk + struct.pack(">I", crc32(chunk))
    at = whole.index(b"IDAT") - 4
    (tmp_path / "clear.png").write_bytes(whole[:at] + chunk + whole[at:])
    assert read(tmp_path / "clear.png") == [(255, 255, 255), GRAY]


def test_dim_values_of_a_pgm_of_16_bits_stay_dim(tmp_path: Path) -> None:
    values = halves(0, 200, np.dtype(">u2"))
    (tmp_path / "dim.pgm").write_bytes(b"P5 24 16 65535\n" + values.tobytes())
    assert read(tmp_path / "dim.pgm") == [(0, 0, 0), (1, 1, 1)]


def test_white_on_transparent_ground_shows(tmp_path: Path) -> None:
    seen = {}
    for name, left in (("white", (255, 255, 255)), ("black", (0, 0, 0)), ("red", RED)):
        Image.fromarray(halves((*left, 255), (9, 9, 9, 0))).save(tmp_path / f"{name}.png")
        seen[name] = read(tmp_path / f"{name}.png")
    assert seen["white"] == [(255, 255, 255), (0, 0, 0)]
    assert seen["black"] == [(0, 0, 0), (255, 255, 255)]
    assert seen["red"] == [RED, (255, 255, 255)]
    faint = halves((255, 255, 255, 100), (9, 9, 9, 0))
    Image.fromarray(faint).save(tmp_path / "faint.png")
    assert read(tmp_path / "faint.png") == [(100, 100, 100), (0, 0, 0)]
    Image.new("RGBA", (24, 16)).save(tmp_path / "nothing.png")
    assert read(tmp_path / "nothing.png") == [(255, 255, 255)] * 2


@pytest.mark.parametrize("ending", ["jpg", "png", "webp", "tiff"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation_is_undone(tmp_path, orientation, ending):
    upright = np.zeros((16, 24, 3), np.uint8)
    upright[:8, :12] = 255  # a mark in the upper left
    # How a camera that was held this way stores it: the inverse of what a viewer does.
    stored = {
        1: upright, 2: upright[:, ::-1], 3: upright[::-1, ::-1], 4: upright[::-1],
        5: upright.transpose(1, 0, 2), 6: np.rot90(upright, 1),
        7: upright[::-1, ::-1].transpose(1, 0, 2), 8: np.rot90(upright, -1),
    }[orientation]  # fmt: skip
    exif = Image.Exif()
    exif[0x0112] = orientation
    options = {"quality": 95} if ending in ("jpg", "webp") else {}
    path = tmp_path / f"turned.{ending}"
    Image.fromarray(np.ascontiguousarray(stored)).save(path, exif=exif, **options)
    with Image.open(path) as image:
        pixels = to_pixels(image)
    assert pixels.shape == upright.shape
    assert np.abs(pixels.astype(int) - upright).mean() < 4
    with Image.open(path) as image:
        canvas, aspect = to_canvas(image, 5)
    assert aspect == 1.5
    assert canvas.shape == (4, 6, 3)
    assert canvas[0, 0].min() > 200
    assert max(canvas[0, 5].max(), canvas[3, 0].max(), canvas[3, 5].max()) < 40


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


def test_animation_gives_its_first_frame(tmp_path):
    frames = [Image.new("RGB", (8, 8), color) for color in ("white", "black")]
    frames[0].save(tmp_path / "a.webp", save_all=True, append_images=frames[1:], lossless=True)
    assert Folder(tmp_path).load(0).min() == 255


def truncated(path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)
    Image.fromarray(noise).save(path)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


@pytest.mark.parametrize("name", ["cut.jpg", "cut.png", "cut.webp", "cut.bmp", "cut.tif"])
def test_truncated_file_is_broken_and_named(tmp_path, name):
    truncated(tmp_path / name)
    for decode in (Folder(tmp_path).load, lambda index: Folder(tmp_path).canvas(index, 8)):
        with pytest.raises(BrokenImageError, match=name):
            decode(0)


@pytest.mark.parametrize("content", [b"", b"not an image", b"\xff\xd8\xff"])
def test_what_is_no_image_is_broken_and_named(tmp_path, content):
    (tmp_path / "no.jpg").write_bytes(content)
    with pytest.raises(BrokenImageError, match=r"no\.jpg.*replace or remove"):
        Folder(tmp_path).load(0)


def test_decompression_bomb_is_named(tmp_path, monkeypatch):
    Image.new("L", (64, 64)).save(tmp_path / "bomb.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    with pytest.raises(BrokenImageError, match=r"bomb\.png.*decompression bomb"):
        Folder(tmp_path).load(0)


def test_not_finite_pixels_become_black(tmp_path):
    Image.fromarray(halves(0.5, np.nan, np.float32)).save(tmp_path / "nan.tif")
    assert read(tmp_path / "nan.tif") == [(128, 128, 128), (0, 0, 0)]


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
    path.parent.mkdir()
    path.write_bytes(PROGRAM)
    opened = Image.open(path)  # which does not run it yet
    for decode in (
        lambda: Folder(path.parent).load(0),
        lambda: Folder(path.parent).canvas(0, 8),
        lambda: open_files([path], 8),
        lambda: read_canvas(path, 8),
        lambda: read_canvas(opened, 8),
        lambda: Sample("holiday", PROGRAM).canvas(8),
    ):
        with pytest.raises(BrokenImageError):
            decode()
    opened.close()
    assert not ghostscript.exists()


@pytest.mark.skipif(os.name == "nt", reason="the program is a script of a shell")
def test_postscript_in_a_set_of_torchvision_is_not_run(tmp_path, ghostscript, monkeypatch):
    folder = tmp_path / "imagenette2" / "train" / "n01440764"
    folder.mkdir(parents=True)
    (folder / "holiday.JPEG").write_bytes(PROGRAM)
    (tmp_path / "imagenette2" / "val").mkdir()
    source = open_source("torchvision:Imagenette@train", root=tmp_path)
    with pytest.raises(BrokenImageError):
        source.load(0)
    assert not ghostscript.exists()


def test_an_opened_image_of_another_format_is_read_once_it_is_decoded(tmp_path):
    Image.new("RGB", (6, 3), RED).save(tmp_path / "red.tga")
    image = Image.open(tmp_path / "red.tga")
    with pytest.raises(UserError, match="TGA"):
        read_canvas(image, 4)
    image.load()
    canvas, aspect = read_canvas(image, 4)
    assert canvas[0, 0].tolist() == list(RED)
    assert aspect == 2


def test_a_jpeg_of_several_images_gives_the_first(tmp_path):
    first, second = (Image.new("RGB", (16, 8), color) for color in (RED, BLUE))
    first.save(tmp_path / "both.jpg", "MPO", save_all=True, append_images=[second], quality=95)
    with Image.open(tmp_path / "both.jpg") as opened:
        assert opened.format == "MPO"
        assert np.abs(read_canvas(opened, 4)[0] - np.array(RED)).max() <= 4
    assert np.abs(Folder(tmp_path).load(0).astype(int) - RED).max() <= 4


@pytest.mark.parametrize("kind", ["GIF", "PPM", "WEBP", "TIFF"])
def test_what_is_in_a_file_counts_not_its_ending(tmp_path, kind):
    Image.new("RGB", (6, 3), "white").save(tmp_path / "white.jpg", kind)
    assert Folder(tmp_path).load(0).min() == 255


def chunk(kind, content=b""):
    return (
        struct.pack(">I", len(content)) + kind + content + struct.pack(">I", crc32(kind + content))
    )


def in_png(*chunks, after=False):
    """A PNG with chunks more, before or after its pixels."""
    whole = encoded("PNG")
    at = whole.index(b"IEND") - 4 if after else 33
    return whole[:at] + b"".join(chunks) + whole[at:]


def in_jpeg(*parts):
    whole = encoded("JPEG")
    return whole[:2] + b"".join(parts) + whole[2:]


def segment(number, content):
    return struct.pack(">BBH", 0xFF, number, len(content) + 2) + content


def tiff(tags, big=False):
    number, entry = ("<Q", "<HHQQ") if big else ("<H", "<HHII")
    head = (
        struct.pack("<2sHHHQ", b"II", 43, 8, 0, 16) if big else struct.pack("<2sHI", b"II", 42, 8)
    )
    return (
        head + struct.pack(number, len(tags)) + b"".join(struct.pack(entry, *tag) for tag in tags)
    )


def encoded(kind, **options):
    file = io.BytesIO()
    Image.new("RGB", (8, 8), "white").save(file, kind, **options)
    return file.getvalue()


def scans(count):
    """A progressive JPEG whose last scan over its pixels comes so often more."""
    whole = encoded("JPEG", progressive=True)
    last = whole[whole.rindex(b"\xff\xda") : -2]
    return whole[:-2] + last * count + whole[-2:]


MEGABYTE = zlib.compress(bytes(1_000_000), 9)  # of a kilobyte
BOMBS = {
    "exif.jpg": in_jpeg(*[segment(0xE1, b"Exif\0\0" + bytes(60_000))] * 150),
    "segments.jpg": in_jpeg(*[segment(0xFE, b"")] * 20_000),
    "fill.jpg": in_jpeg(b"\xff" * 1_000_000),
    "scans.jpg": scans(1000),
    "chunks.png": in_png(*[chunk(b"tEXt", b"key\0value")] * 20_000),
    "profiles.png": in_png(*[chunk(b"iCCP", b"name\0\0" + MEGABYTE)] * 2000),
    "behind.png": in_png(*[chunk(b"iCCP", b"name\0\0" + MEGABYTE)] * 2000, after=True),
    "empty.png": in_png(*[chunk(b"IDAT")] * 300_000),
    "long.png": in_png(chunk(b"zTXt", b"key\0\0" + zlib.compress(bytes(10_000_000)))),
    "tags.tif": tiff([(1000 + at, 3, 1, 1) for at in range(60_000)]),
    "tiles.tif": tiff([(324, 4, 10_000_000, 8)]),
    "strips.tif": tiff([(273, 4, 10_000_000, 8)], big=True),
    "comment.ppm": b"P6 1 1\n#" + bytes(1_000_000) + b"\n255\n\0\0\0",
    "pixels.png": b"\x89PNG\r\n\x1a\n"
    + chunk(b"IHDR", struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0))
    + chunk(b"IDAT", MEGABYTE),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_file_that_is_made_to_take_minutes_is_broken_at_once(tmp_path, name):
    path = tmp_path / name
    path.write_bytes(BOMBS[name])
    began = time.process_time()
    with pytest.raises(BrokenImageError):
        read_canvas(path, 8)
    with pytest.raises(BrokenImageError):
        Sample(name, BOMBS[name]).canvas(8)
    assert time.process_time() - began < 3  # of this process alone; most take a few milliseconds


@pytest.mark.parametrize(
    "content",
    [
        in_jpeg(*[segment(0xE1, b"http://ns.adobe.com/xmp/extension/\0" + bytes(60_000))] * 200),
        scans(20),
        in_jpeg(b"\xff" * 4096, segment(0xFE, b"padded")),
        in_png(*[chunk(b"tEXt", b"key\0value")] * 200),
        in_png(chunk(b"iCCP", b"name\0\0" + MEGABYTE)),
        b"P6 # of a camera\n1 1\n255\n\xff\xff\xff",
        b"P4 1 1\n ",
    ],
)
def test_what_images_do_have_is_read(tmp_path, content):
    (tmp_path / "a.jpg").write_bytes(content)
    assert read_canvas(tmp_path / "a.jpg", 8)[0].min() >= 250
