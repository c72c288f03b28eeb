"""Which values of a set become 0 and 1, and what of them is kept."""

import numpy as np
import pytest
import tifffile
import torch
from PIL import Image
from torch import nn

from mast.core.errors import UserError
from mast.core.reading import Layout, Reading
from mast.data import CanvasSet, DataConfig, open_canvas
from mast.data.formats import Bands
from mast.data.ranges import find_reading, read_channels
from mast.encoders.extract import test_views as views_of
from mast.evaluation.labelled_sets import EvaluationData
from mast.evaluation.named_sets import NamedSets

SIDE = 48


def image(low, high, dtype, channels=1):
    """Values that rise evenly."""
    count = SIDE * SIDE * channels
    values = np.linspace(low, high, count).astype(dtype)
    return Bands(values.reshape(channels, SIDE, SIDE).transpose(1, 2, 0))


def with_pixel(bands, value):
    values_HWC = bands.values_HWC.copy()
    values_HWC[3, 4, 0] = value
    return Bands(values_HWC)


AUTO = {
    "12 bits in 16": ([image(0, 3900, np.uint16)], (0, 4095)),
    "all 16 bits": ([image(0, 65535, np.uint16)], (0, 65535)),
    "the brightest decides": ([image(0, 90, np.uint16), image(0, 900, np.uint16)], (0, 1023)),
    "a hot pixel does not": ([with_pixel(image(0, 900, np.uint16), 65535)], (0, 1023)),
    "uint32 above 2^31": ([image(0, 2**32 - 1, np.uint32)], None),
    "floats to 1": ([image(0, 0.95, np.float32)], (0, 1)),
    "one pixel beyond 1": ([with_pixel(image(0, 0.95, np.float32), 1.01)], (0, 1)),
    "floats to 255": ([image(0, 200, np.float32)], (0, 255)),
    "floats to 3": ([image(0, 3, np.float32)], None),
    "decibels": ([image(-30, 5, np.float32)], None),
    "no data": ([with_pixel(image(0, 0.9, np.float32), -3.4e38)], (0, 1)),
    "noise around 0": ([image(-0.01, 0.6, np.float32)], (0, 1)),
    "a declared depth": ([Bands(image(0, 900, np.uint16).values_HWC, bits=12)], (0, 4095)),
    "windows": (
        [Bands(image(-900, 900, np.float32).values_HWC, window=at) for at in ((-160, 240),) * 3],
        (-160, 240),
    ),
}


@pytest.mark.parametrize(("images", "expected"), AUTO.values(), ids=AUTO.keys())
def test_the_range_of_a_set(images, expected):
    reading = find_reading("set", images)
    assert reading.layout == Layout(3, deep=True)
    if expected is None:
        every_N = np.concatenate([bands.values_HWC.ravel() for bands in images]).astype(float)
        expected = tuple(np.percentile(every_N, (0.1, 99.9)))
        assert reading.low + reading.high == pytest.approx(expected, rel=2e-3)
    else:
        assert (reading.low, reading.high) == ((expected[0],), (expected[1],))


def test_a_range_that_is_named():
    images = [image(100, 3900, np.uint16, channels=5)]
    assert find_reading("set", images, (10, 20.5), 5).high == (20.5,)
    assert find_reading("set", images, ("dtype",), 5).high == (65535,)
    assert find_reading("set", [image(0, 9, np.int16)], ("dtype",)).low == (-32768,)
    found = find_reading("set", images, ("percentile",), 5)
    expected = np.percentile(images[0].values_HWC, (0.1, 99.9), axis=(0, 1))
    np.testing.assert_allclose((found.low, found.high), expected, atol=1)
    shallow = [image(50, 90, np.uint8)]
    assert find_reading("set", shallow) == Reading()
    stretched = find_reading("set", shallow, ("percentile",))
    assert stretched.layout == Layout()
    assert stretched.low + stretched.high == pytest.approx((50, 90), abs=1)


@pytest.mark.parametrize(
    "values", [2**31 + np.arange(2304, dtype=np.uint32), 1e8 + np.arange(2304) / 16]
)
def test_a_small_range_far_from_zero_keeps_its_levels(values):
    bands = Bands(values.reshape(SIDE, SIDE, 1))
    low, high = float(values[0]), float(values[-1])
    reading = Reading(Layout(1, deep=True), (low,), (high,))
    (channel_HW,) = read_channels(bands, reading)
    np.testing.assert_allclose(channel_HW.ravel(), np.linspace(0, 1, 2304), atol=1e-7)


@pytest.mark.parametrize(
    ("top", "end", "dtype"),
    [(300, None, np.uint16), (2500, -32768, np.int16), (2500, 65535, np.uint16)],
)
def test_little_of_a_range_is_warned_of(top, end, dtype, caplog):
    elevation = image(0, 20_000, dtype)
    find_reading("bright", [elevation], ("dtype",))
    assert not caplog.messages
    elevation = image(100, top, dtype)
    way = ("dtype",) if end is None else ("auto",)
    if end is not None:
        find_reading("set", [elevation])
        assert not caplog.messages
        elevation.values_HWC[:4] = end
    find_reading("set", [elevation], way)
    assert "less than a tenth" in caplog.text
    assert (f"data.no_data={end}" in caplog.text) == (end is not None)
    caplog.clear()
    find_reading("set", [elevation], no_data=end)
    assert not caplog.messages


def test_channels_are_matched_or_refused(caplog):
    with pytest.raises(UserError, match=r"data\.channels=13"):
        find_reading("set", [image(0, 1, np.float32, channels=13)])
    with pytest.raises(UserError, match="expected images of 4 channels, got 5"):
        find_reading("set", [image(0, 9, np.uint16, channels=5)], channels=4)
    with pytest.raises(UserError, match="expected images of 5 channels, got 3"):
        find_reading("set", [Image.new("RGB", (4, 4))], channels=5)
    find_reading("set", [image(0, 200, np.uint8, channels=4)])
    assert "data.channels=4" in caplog.text
    gray, five = image(0, 255, np.uint8), image(0, 255, np.uint8, channels=5)
    assert len([*read_channels(gray, Reading())]) == 3
    rgb = image(0, 255, np.uint8, channels=3)
    (luminance_HW,) = read_channels(rgb, Reading(Layout(1)))
    expected_HW = np.asarray(Image.fromarray(rgb.values_HWC).convert("L")) / 255
    np.testing.assert_allclose(luminance_HW, expected_HW, atol=0.5 / 255 + 1e-3)
    with pytest.raises(ValueError, match="expected 3 channels, got 5"):
        [*read_channels(five, Reading())]
    opaque_HW = np.full((SIDE, SIDE), 0.25, np.float32)
    *_, alpha_HW = read_channels(Bands(rgb.values_HWC, alpha_HW=opaque_HW), Reading(Layout(4)))
    np.testing.assert_array_equal(alpha_HW, opaque_HW)


def test_no_data_is_black_whatever_is_inverted():
    values_HWC = np.full((2, 2, 1), 50.0, np.float32)
    values_HWC[0] = [[-9999], [np.nan]]
    reading = Reading(Layout(1, deep=True), (0.0,), (200.0,), -9999.0)
    (channel_HW,) = read_channels(Bands(values_HWC), reading)
    np.testing.assert_array_equal(channel_HW, [[0, 0], [0.25, 0.25]])
    (channel_HW,) = read_channels(Bands(values_HWC, inverted=True), reading)
    np.testing.assert_array_equal(channel_HW, [[0, 0], [0.75, 0.75]])


# ---------------------------------------------------------------------------------- of a folder


def opened(folder, model=None, **options):
    config = DataConfig(str(folder), cache=folder.parent / "cache", **options)
    return open_canvas(config, SIDE, model=model)


def images_of(canvases):
    """What an encoder sees of images that are as large as its views."""
    return views_of(canvases, range(len(canvases)), SIDE)


def write(folder, images):
    folder.mkdir()
    for number, values in enumerate(images):
        tifffile.imwrite(folder / f"{number:02d}.tif", values, photometric="minisblack")
    return folder


def test_twelve_bits_stay_twelve_bits(tmp_path):
    values = [image(0, 4095, np.uint16).values_HWC[..., 0], np.zeros((SIDE, SIDE), np.uint16)]
    canvases = opened(write(tmp_path / "set", values))
    assert canvases.reading == Reading(Layout(3, deep=True), (0.0,), (4095.0,))
    seen_BCHW = images_of(canvases)
    np.testing.assert_allclose(seen_BCHW[0, 1], values[0] / 4095, atol=1 / 65535)
    assert len(seen_BCHW[0, 1].unique()) == len(np.unique(values[0])) > 500


def test_a_set_of_bands_and_of_no_data(tmp_path):
    generator = np.random.default_rng(0)
    cubes = [generator.uniform(-0.1, 0.9, (SIDE, SIDE, 13)).astype(np.float32) for _ in range(4)]
    folder = tmp_path / "cubes"
    folder.mkdir()
    for number, cube_HWC in enumerate(cubes):
        cube_HWC[:2] = -3.4e38
        np.save(folder / f"{number}.npy", cube_HWC)
    canvases = opened(folder, channels=13, range=(-0.5, 1.5))
    assert canvases.reading.layout == Layout(13, deep=True)
    seen_BCHW = images_of(canvases)
    assert seen_BCHW.shape == (4, 13, SIDE, SIDE)
    assert not seen_BCHW[:, :, :2].any()
    expected_CHW = (cubes[2].transpose(2, 0, 1) + 0.5) / 2
    np.testing.assert_allclose(seen_BCHW[2, :, 2:], expected_CHW[:, 2:], atol=1 / 65535)


def test_larger_images_are_read_by_the_same_range(tmp_path):
    """Test views, which are cut from the files, and canvases, which are smaller, agree."""
    generator = np.random.default_rng(0)
    smooth = Image.fromarray(generator.uniform(0, 4000, (5, 7)).astype(np.float32))
    large = np.asarray(smooth.resize((300, 220), Image.Resampling.BICUBIC)).clip(300, 3000)
    canvases = opened(write(tmp_path / "set", [large.astype(np.uint16)]))
    exact_BCHW = images_of(canvases)
    cut = views_of(CanvasSet(**{**vars(canvases), "test_views": None}), range(1), SIDE)
    torch.testing.assert_close(cut, exact_BCHW, rtol=0, atol=0.02)
    assert opened(tmp_path / "set").fingerprint == canvases.fingerprint
    again = opened(tmp_path / "set", range=("percentile",))
    assert again.fingerprint != canvases.fingerprint
    assert opened(tmp_path / "set").fingerprint == canvases.fingerprint  # both are kept


@pytest.mark.parametrize(
    ("learned", "read", "levels"),
    [
        (Reading(Layout(1, deep=True), (0.0,), (4095.0,)), None, 4095),
        # Otherwise 120 of 65,535 levels would be none, and all images copies.
        (Reading(Layout(1)), Reading(Layout(1, deep=True), (0.0,), (255.0,)), 255),
    ],
)
def test_another_set_is_read_as_what_was_learned_from(learned, read, levels, tmp_path):
    """But an encoder of 8 bits says nothing of deeper files."""
    model = nn.Sequential(nn.Identity())
    model.reading, model.channels = learned, 1
    folder = write(tmp_path / "dim", [np.full((SIDE, SIDE), of, np.uint16) for of in (30, 120)])
    assert opened(folder).reading.high == (255.0,)
    canvases = opened(folder, nn.Sequential(model))
    assert canvases.reading == (read or learned)
    seen = images_of(canvases)[:, 0, 0, 0].tolist()
    assert seen == pytest.approx([30 / levels, 120 / levels], abs=1e-5)


def test_parts_are_read_as_what_is_learned_from(tmp_path):
    """A test part that is brighter is clipped, not read by a range of its own."""
    for part, top in (("test", 30000), ("train", 3000), ("val", 200)):
        for label in "ab":
            (tmp_path / "set" / part).mkdir(parents=True, exist_ok=True)
            write(tmp_path / "set" / part / label, [image(0, top, np.uint16).values_HWC[..., 0]])
    model, sets = nn.Identity(), NamedSets(str(tmp_path / "set"))
    model.channels = 3
    for learned in (None, Reading(Layout(3, deep=True), (0.0,), (9000.0,))):
        model.reading = learned
        expected = learned or Reading(Layout(3, deep=True), (0.0,), (4095.0,))
        tested = sets.open(EvaluationData, SIDE, model=model)
        assert isinstance(tested, EvaluationData)
        pool = sets.learning(SIDE, model)
        parts = (tested.train, tested.val, tested.test, pool.train, pool.val)
        assert {of.reading for of in parts if of is not None} == {expected}
