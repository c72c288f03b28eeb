"""Values come out of files as they were written; what is broken is found out at once."""

import io
import os
import re
import struct
import sys
import time
import tracemalloc
import zlib
from functools import partial

import imagecodecs
import numpy as np
import pydicom
import pytest
import tifffile
from PIL import Image
from pydicom.encaps import encapsulate
from pydicom.sequence import Sequence

from mast.core.errors import UserError
from mast.data.decode import BrokenImageError, naming, open_image, to_canvas
from mast.data.folder import read_folder, walk
from mast.data.formats import Bands, extensions
from mast.data.ranges import alone

H, W = 18, 20
VALUES = np.random.default_rng(0).integers(0, 2**16, (H, W, 5), np.uint16)
GRAY = VALUES[..., 0]
LOSSLESS = {"codecformat": "j2k", "level": 0, "reversible": True}  # of JPEG 2000


def opened(content, page=0, deep=True):
    image = open_image(io.BytesIO(content), page=page)
    assert isinstance(image, Bands) or not deep
    bands = image if isinstance(image, Bands) else Bands.of(image)
    assert bands.values_HWC.dtype.isnative
    return bands


def array(values):
    file = io.BytesIO()
    np.save(file, values)
    return file.getvalue()


def tiff(values, photometric="minisblack", **more):
    file = io.BytesIO()
    more = {"planarconfig": "contig"} | more if values.ndim == 3 else more
    tifffile.imwrite(file, np.ascontiguousarray(values), photometric=photometric, **more)
    return file.getvalue()


def twelve_bits(values_HW):
    """A TIFF that packs two values into three bytes."""
    left, right = values_HW[:, ::2], values_HW[:, 1::2]
    parts = (left >> 4, (left & 15) << 4 | right >> 8, right & 255)
    packed = np.stack(parts, 2).astype(np.uint8).reshape(len(values_HW), -1)
    return patched(tiff(packed), t256=values_HW.shape[1], t258=12)


def tag(number, value):
    return [(number, 2 if isinstance(value, str) else 3, 1, value, True)]


def png(values):
    return imagecodecs.png_encode(np.ascontiguousarray(values))


def patched(content, **values):
    """A little-endian TIFF whose tags have other values, as numbers of 32 bits."""
    changed, numbers = bytearray(content), {f"t{number}": number for number in range(65536)}
    (at,) = struct.unpack_from("<I", content, 4)
    (tags,) = struct.unpack_from("<H", content, at)
    entries = {
        struct.unpack_from("<H", content, of)[0]: of for of in range(at + 2, at + 2 + 12 * tags, 12)
    }
    for name, value in values.items():
        struct.pack_into("<HII", changed, entries[numbers[name]] + 2, 4, 1, value)
    return bytes(changed)


# -------------------------------------------------------------------------------------- arrays


@pytest.mark.parametrize(
    ("values", "expected_HWC"),
    [
        (GRAY, GRAY[..., None]),
        (np.moveaxis(VALUES, 2, 0), VALUES),
        (np.asfortranarray(VALUES), VALUES),
        (VALUES.astype(">f4"), VALUES.astype("f4")),
        (VALUES.astype("i8"), VALUES.astype("i8")),
        (GRAY > 300, 255 * (GRAY > 300).astype("u1")[..., None]),
    ],
)
def test_an_array_is_an_image(values, expected_HWC):
    bands = opened(array(values))
    assert bands.values_HWC.dtype == expected_HWC.dtype
    np.testing.assert_array_equal(bands.values_HWC, expected_HWC)
    assert bands.size == (W, H)


def test_an_array_of_another_shape_is_named_by_it():
    for shape in ((5,), (0, 5), (20, 20, 17), (4, 20, 10), (17, 30, 40)):
        with pytest.raises(ValueError, match=re.escape(str(shape))):
            opened(array(np.zeros(shape, np.uint8)))


def header(shape, kind="<f4"):
    text = f"{{'descr': {kind!r}, 'fortran_order': False, 'shape': {shape}, }}".encode() + b"\n"
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(text)) + text


# --------------------------------------------------------------------------------------- TIFF


@pytest.mark.parametrize(
    "how",
    [
        {},
        {"byteorder": ">"},
        {"bigtiff": True},
        {"compression": "zlib", "predictor": True, "rowsperstrip": 5},
        {"compression": "lzw", "tile": (16, 16)},
    ],
)
def test_values_of_a_tiff_are_those_in_the_file(how):
    floats, wide = (VALUES / 7).astype(np.float32), VALUES.astype("u4") * 60_000
    for values in (VALUES, floats, (VALUES >> 8).astype(np.uint8)):
        planes = tiff(np.moveaxis(values, 2, 0), **how, planarconfig="separate")
        for bands in (opened(tiff(values, **how)), opened(planes)):
            assert bands.values_HWC.dtype == values.dtype
            np.testing.assert_array_equal(bands.values_HWC, values)
            assert (bands.alpha_HW, bands.bits, bands.inverted) == (None, None, False)
    for gray in (wide[..., 0], *(GRAY.astype(kind) for kind in ("u2", "i1", "i2", "i4", "f8"))):
        bands = opened(tiff(gray, **how))
        assert bands.values_HWC.dtype == gray.dtype
        np.testing.assert_array_equal(bands.values_HWC[..., 0], gray)


def test_a_turned_tiff_is_upright():
    turned_HW, turned = np.rot90(GRAY, -1), tag(274, 6)
    four = opened(tiff(VALUES[..., :4], "rgb", extrasamples=[2], extratags=turned))
    assert four.alpha_HW.shape == turned_HW.shape
    for bands in (opened(tiff(GRAY, extratags=turned)), four):
        np.testing.assert_array_equal(bands.values_HWC[..., 0], turned_HW)


def test_what_the_tags_of_a_tiff_say():
    bands = opened(twelve_bits(GRAY >> 4))
    assert bands.bits == 12
    np.testing.assert_array_equal(bands.values_HWC[..., 0], GRAY >> 4)
    assert opened(tiff(GRAY, "miniswhite")).inverted
    least = float(np.finfo(np.float32).min)
    for values, said, no_data in (
        (GRAY, "-9999", -9999),
        (GRAY, "none", None),
        (GRAY.astype(np.float32), "-3.4028234663852886e+38", least),
    ):
        assert opened(tiff(values, extratags=tag(42113, said))).no_data == no_data


@pytest.mark.parametrize(
    ("channels", "photometric", "extra", "opaque"),
    [
        (4, "rgb", [0], None),
        (4, "minisblack", [0] * 3, None),
        (4, "rgb", ["unassalpha"], 3),
        (5, "rgb", [0, 2], 4),
        (2, "minisblack", ["unassalpha"], 1),
    ],
)
def test_only_a_band_that_is_called_alpha_is_opacity(channels, photometric, extra, opaque):
    for values in (VALUES[..., :channels], (VALUES[..., :channels] >> 8).astype(np.uint8)):
        bands = opened(tiff(values, photometric, extrasamples=extra), deep=opaque is None)
        np.testing.assert_array_equal(bands.values_HWC, values[..., : opaque or channels])
        assert (bands.alpha_HW is None) == (opaque is None)
        if opaque is not None:
            expected = values[..., opaque] / np.iinfo(values.dtype).max
            np.testing.assert_allclose(bands.alpha_HW, expected, rtol=1e-6)


def test_colors_that_were_multiplied_by_opacity_are_divided():
    values = np.full((H, W, 4), 30_000, np.uint16)
    values[..., 3] = 40_000
    bands = opened(tiff(values, "rgb", extrasamples=["assocalpha"]))
    assert (bands.values_HWC == round(30_000 / 40_000 * 65535)).all()


def test_inks_become_colors_of_eight_bits():
    inks = (VALUES[..., :4] >> 8).astype(np.uint8)
    expected = np.asarray(Image.fromarray(inks, "CMYK").convert("RGB"))
    rgb_HWC = opened(tiff(inks.astype(np.uint16) * 257, "separated")).values_HWC
    np.testing.assert_array_equal(rgb_HWC, expected)


def test_pages_of_a_tiff_are_opened_one_by_one():
    content = tiff(np.moveaxis(VALUES, 2, 0), photometric="minisblack", planarconfig=None)
    for page in range(5):
        bands = opened(content, page)
        assert [*bands.pages] == ([0, 1, 2, 3, 4] if page == 0 else [])
        np.testing.assert_array_equal(bands.values_HWC[..., 0], VALUES[..., page])
    with pytest.raises(EOFError):
        opened(content, 5)


FIVE = tiff(VALUES)


# ---------------------------------------------------------------------------------- PNG and PPM


@pytest.mark.parametrize(("channels", "alpha"), [(1, 0), (2, 1), (3, 0), (4, 1)])
def test_colors_of_sixteen_bits_of_a_png(channels, alpha, tmp_path):
    values = VALUES[..., :channels]
    (tmp_path / "a.png").write_bytes(png(values))
    for bands in (opened(png(values)), open_image(tmp_path / "a.png")):
        assert (bands.values_HWC.dtype, bands.bits) == (np.uint16, None)
        np.testing.assert_array_equal(bands.values_HWC, values[..., : channels - alpha])
        if alpha:
            np.testing.assert_allclose(bands.alpha_HW, values[..., -1] / 65535, rtol=1e-6)
        else:
            assert bands.alpha_HW is None


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def test_a_color_of_a_deep_png_is_transparent_and_its_orientation_undone():
    clear = VALUES[3, 4, :3]
    exif = Image.Exif()
    exif[274] = 6
    written, at = png(VALUES[..., :3]), 33  # after the first chunk
    said = chunk(b"tRNS", clear.astype(">u2").tobytes()) + chunk(b"eXIf", exif.tobytes()[6:])
    bands = opened(written[:at] + said + written[at:])
    np.testing.assert_array_equal(bands.values_HWC, np.rot90(VALUES[..., :3], -1))
    expected = np.ones((H, W))
    expected[3, 4] = 0
    np.testing.assert_array_equal(bands.alpha_HW, np.rot90(expected, -1))


@pytest.mark.parametrize(("magic", "values"), [(b"P5", GRAY), (b"P6", VALUES[..., :3])])
def test_sixteen_bits_of_a_ppm(magic, values):
    for most, stored in ((65535, values), (1000, values // 66)):
        bands = opened(b"%b %d %d %d\n" % (magic, W, H, most) + stored.astype(">u2").tobytes())
        expected = np.rint(np.atleast_3d(stored) * (65535 / most))
        assert np.abs(bands.values_HWC - expected).max() <= (most < 65535)


# ------------------------------------------------------------------------------- modes of Pillow


@pytest.mark.parametrize("mode", ["1", "LA", "RGB", "RGBA", "PA", "CMYK"])
def test_any_mode_of_pillow_becomes_bands(mode):
    image = Image.fromarray((VALUES[..., :3] >> 8).astype(np.uint8)).convert("RGBA")
    image.putalpha(Image.fromarray((GRAY >> 8).astype(np.uint8)))
    image = (image if "A" in mode else image.convert("RGB")).convert(mode)
    bands = Bands.of(image)
    expected = np.asarray(image.convert("RGB"))[..., : 1 if mode in ("1", "LA") else 3]
    np.testing.assert_array_equal(bands.values_HWC, expected)
    if mode in ("LA", "RGBA", "PA"):
        np.testing.assert_allclose(bands.alpha_HW, np.asarray(image.getchannel("A")) / 255)
    else:
        assert bands.alpha_HW is None


# -------------------------------------------------------------------------------------- DICOM


def dicom(values, syntax=pydicom.uid.ExplicitVRLittleEndian, **more):
    data = pydicom.Dataset()
    data.file_meta = pydicom.dataset.FileMetaDataset()
    data.file_meta.TransferSyntaxUID = syntax
    data.SOPClassUID, data.SOPInstanceUID = "1.2.840.10008.5.1.4.1.1.2", "1.2.3"
    colors = values.shape[-1] if values.shape[-1] == 3 else 1
    bits = 8 * values.dtype.itemsize
    elements = {
        "Rows": H, "Columns": W, "SamplesPerPixel": colors, "BitsAllocated": bits,
        "PhotometricInterpretation": "RGB" if colors == 3 else "MONOCHROME2",
        "BitsStored": bits, "HighBit": bits - 1, "PixelData": values.tobytes(),
        "PixelRepresentation": int(values.dtype.kind == "i"),
    }  # fmt: skip
    elements |= {"PlanarConfiguration": 0} if colors == 3 else {}
    for name, value in (elements | more).items():
        setattr(data, name, value)
    data["PixelData"].VR = "OB" if bits == 8 or data["PixelData"].is_undefined_length else "OW"
    file = io.BytesIO()
    pydicom.dcmwrite(file, data, enforce_file_format=True)
    return file.getvalue()


STORED = (GRAY >> 4).astype(np.uint16)


def test_a_dicom_is_in_the_units_of_its_modality():
    bands = opened(dicom(STORED, BitsStored=12, HighBit=11))
    assert (bands.values_HWC.dtype, bands.bits, bands.window) == (np.uint16, 12, None)
    np.testing.assert_array_equal(bands.values_HWC[..., 0], STORED)
    ct = dicom(
        STORED, RescaleSlope="2", RescaleIntercept="-1024", PixelPaddingValue=0,
        WindowCenter=["40", "300"], WindowWidth=["400", "1500"],
        PhotometricInterpretation="MONOCHROME1",
    )  # fmt: skip
    bands = opened(ct)
    assert (bands.values_HWC.dtype, bands.bits, bands.inverted) == (np.float32, None, True)
    np.testing.assert_array_equal(bands.values_HWC[..., 0], STORED * 2.0 - 1024)
    assert (bands.no_data, bands.window) == (-1024, (-160, 239))
    exact = dicom(STORED, WindowCenter="40", WindowWidth="400", VOILUTFunction="LINEAR_EXACT")
    assert opened(exact).window == (-160, 240)
    narrow = alone(opened(dicom(STORED, WindowCenter="1000", WindowWidth="201")))
    assert (narrow.low, narrow.high) == ((899.5,), (1099.5,))
    colors = (VALUES[..., :3] >> 8).astype(np.uint8)
    np.testing.assert_array_equal(opened(dicom(colors)).values_HWC, colors)


def test_a_palette_of_a_dicom_becomes_colors():
    lut = {}
    for number, color in enumerate(("Red", "Green", "Blue")):
        lut[f"{color}PaletteColorLookupTableDescriptor"] = [256, 0, 16]
        table = np.arange(256, dtype="<u2") * 256 + number
        lut[f"{color}PaletteColorLookupTableData"] = table.tobytes()
    stored = (GRAY >> 8).astype(np.uint8)
    bands = opened(dicom(stored, PhotometricInterpretation="PALETTE COLOR", **lut))
    np.testing.assert_array_equal(
        bands.values_HWC, stored[..., None] * np.uint16(256) + np.arange(3)
    )


def test_frames_of_a_dicom_are_pages_each_with_its_own_slope():
    def group(slope):
        of, values, window = (pydicom.Dataset() for _ in range(3))
        values.RescaleSlope, values.RescaleIntercept = slope, "0"
        window.WindowCenter, window.WindowWidth = "100", "50"
        of.PixelValueTransformationSequence = Sequence([values])
        of.FrameVOILUTSequence = Sequence([window])
        return of

    frames = np.stack([STORED, STORED // 2])
    groups = Sequence([group("2"), group("3")])
    content = dicom(frames, NumberOfFrames=2, PerFrameFunctionalGroupsSequence=groups)
    for page, slope in enumerate((2, 3)):
        bands = opened(content, page)
        np.testing.assert_array_equal(bands.values_HWC[..., 0], frames[page] * float(slope))
        assert (bands.pages, bands.window) == (range(2), (75, 124))
    with pytest.raises(ValueError):
        opened(content, 2)


@pytest.mark.parametrize(
    ("syntax", "encode"),
    [
        ("JPEGLSLossless", imagecodecs.jpegls_encode),
        ("JPEGLosslessSV1", partial(imagecodecs.jpeg8_encode, lossless=True)),
        ("JPEG2000Lossless", partial(imagecodecs.jpeg2k_encode, **LOSSLESS)),
    ],
)
def test_a_compressed_dicom(syntax, encode):
    syntax = getattr(pydicom.uid, syntax)
    bands = opened(dicom(STORED, syntax, PixelData=encapsulate([bytes(encode(STORED))])))
    np.testing.assert_array_equal(bands.values_HWC[..., 0], STORED)
    for frame in (encode(STORED.repeat(9, 0)), encode(STORED)[:294]):  # too large, cut off
        with pytest.raises(Exception, match=r"."):
            opened(dicom(STORED, syntax, PixelData=encapsulate([bytes(frame)])))


PLAIN = dicom(STORED)


# ------------------------------------------------------------------------------------- folders


def test_a_folder_finds_dicom_with_or_without_an_ending(tmp_path):
    for name in ("a.DCM", "b.dicom", "IM0001", "1.2.840.10008", "d.pgm"):
        (tmp_path / name).write_bytes(PLAIN)
    (tmp_path / "IM0002").write_bytes(b"no DICOM")
    os.mkfifo(tmp_path / "pipe")
    found, unread = walk(tmp_path)
    assert [path for path, _, _ in found] == [
        "1.2.840.10008", "IM0001", "a.DCM", "b.dicom", "d.pgm",
    ]  # fmt: skip
    assert unread == ["IM0002", "pipe"]


def test_arrays_beside_images_are_no_images(tmp_path, caplog):
    for name in ("a.NPY", "b.npy", "c.npy"):
        (tmp_path / name).write_bytes(array(VALUES))
    (tmp_path / "d.png").write_bytes(png(GRAY))
    (tmp_path / "e.png").write_bytes(png(GRAY))
    assert len(read_folder(tmp_path)) == 5
    assert not caplog.text
    (tmp_path / "c.npy").unlink()
    assert [read_folder(tmp_path).identifier(index) for index in range(2)] == ["d.png", "e.png"]
    assert "2 .npy" in caplog.text


def test_without_the_extra_dicom_is_counted_and_the_extra_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pydicom", None)
    monkeypatch.setitem(sys.modules, "mast.data.dicom", None)
    extensions.cache_clear()
    try:
        (tmp_path / "a.dcm").write_bytes(PLAIN)
        with pytest.raises(UserError, match=r"1 \.dcm.*pip install 'mast-ssl\[dicom\]'"):
            read_folder(tmp_path)
        with pytest.raises(ImportError, match=r"pip install 'mast-ssl\[dicom\]'"):
            open_image(tmp_path / "a.dcm")
    finally:
        extensions.cache_clear()


# ------------------------------------------------------------------------------ what is broken


def in_png(*chunks, after=False):
    """A PNG with chunks more, before or after its pixels."""
    whole = encoded("PNG")
    at = whole.index(b"IEND") - 4 if after else 33
    return whole[:at] + b"".join(chunks) + whole[at:]


def encoded(kind, values=None, **options):
    file = io.BytesIO()
    Image.fromarray(np.full((8, 8, 3), 255, np.uint8) if values is None else values).save(
        file, kind, **options
    )
    return file.getvalue()


MEGABYTE = zlib.compress(bytes(1_000_000), 9)  # of a kilobyte
NOISE = np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)
DEFLATED = pydicom.uid.DeflatedExplicitVRLittleEndian
BROKEN = {
    "nothing": b"",
    "text": b"not an image",
    "a begin alone": b"\xff\xd8\xff",
    **{f"half a {kind}": encoded(kind, NOISE)[: len(encoded(kind, NOISE)) // 2]
       for kind in ("JPEG", "PNG", "WEBP", "BMP", "TIFF")},
    "a deep PNG that is cut": png(VALUES[..., :3])[:900],
    "half a PPM": b"P6 %d %d 65535\n" % (W, H) + bytes(50),
    # arrays
    **{f"an array of {kind}": array(np.zeros((5, 5), kind)) for kind in ("c8", "O", "f16")},
    **{f"an array of {shape}": header(shape) + bytes(100)
       for shape in ("(1000000, 1000000)", "(10000, 10000, 16)", "(-5, -5)", "(5.0, 5)")},
    "an array that is cut": header("(5, 5)") + bytes(99),
    "an array cut in its header": array(VALUES)[:50],
    # TIFF
    **{f"a TIFF cut at {length}": FIVE[:length] for length in (4, 10, 150, len(FIVE) - 1)},
    "a TIFF of 10^12 pixels": patched(FIVE, t256=10**6, t257=10**6),
    "a TIFF of 10^8 pixels": patched(FIVE, t256=10**4, t257=10**4),
    "60,000 bands": patched(FIVE, t277=60_000),
    "a TIFF of no width": patched(FIVE, t256=0),
    "a strip far away": patched(FIVE, t273=2**31),
    "large tiles": patched(tiff(VALUES, tile=(16, 16)), t322=2**20, t323=2**20),
    "large packed tiles": patched(tiff(VALUES, tile=(16, 16), compression="zstd"),
                                  t322=2**13, t323=2**13),
    "a TIFF that is text": b"II, said a text",
    "a TIFF of no tag": b"MM\0*" + bytes(20),
    # DICOM
    **{f"a DICOM cut at {length}": PLAIN[:length] for length in (132, 200, len(PLAIN) - 1)},
    "a DICOM of 3.6 * 10^9 pixels": dicom(STORED, Rows=60_000, Columns=60_000),
    "a DICOM of 10^8 pixels": dicom(STORED, Rows=10_000, Columns=10_000),
    "no RLE": dicom(STORED, pydicom.uid.RLELossless, PixelData=encapsulate([b"nothing "])),
    "noise as DICOM": bytes(128) + b"DICM" + VALUES.tobytes(),
    "a deflated DICOM": dicom(np.zeros((H, W), np.uint16), DEFLATED),
    "a PNG of 3.6 * 10^9 pixels": b"\x89PNG\r\n\x1a\n"
    + chunk(b"IHDR", struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0))
    + chunk(b"IDAT", MEGABYTE),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_is_named_at_once_and_takes_no_memory(name, recwarn, monkeypatch):
    began = time.process_time()
    tracemalloc.start()
    try:
        says = pytest.raises(BrokenImageError, match=r"key.*; replace or remove this file")
        content = io.BytesIO(BROKEN[name])
        with says, naming(lambda: "key"), open_image(content) as image:
            to_canvas(image, 8)
        assert tracemalloc.get_traced_memory()[1] < 30e6
    finally:
        tracemalloc.stop()
    assert time.process_time() - began < 3  # of this process alone; most take a few milliseconds


CHUNKS = (
    chunk(b"zTXt", b"key\0\0" + zlib.compress(bytes(10_000_000))),
    chunk(b"tEXt", b"key\0value")[:-4] + bytes(4),
    chunk(b"iCCP", b"name\0\0" + zlib.compress(bytes(5_000_000))),
    chunk(b"iTXt", bytes(3_000_000)),
)
PPMS = (b"P6 # of a camera\n1 1\n255\n\xff\xff\xff", b"P4 1 1\n ")
READ = (*(in_png(each, after=after) for after in (False, True) for each in CHUNKS), *PPMS)


@pytest.mark.parametrize("content", READ)
def test_what_images_do_have_is_read(tmp_path, content):
    (tmp_path / "a.jpg").write_bytes(content)
    assert read_folder(tmp_path).canvas(0, 8)[0].min() >= 250
    with open_image(io.BytesIO(content)) as image:  # as of a shard
        assert to_canvas(image, 8)[0].min() >= 250
