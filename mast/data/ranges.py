"""The range of file values that becomes 0 to 1, from a sample of a set or from a single file.

Legend: N values, H height, W width, C channels.
"""

import functools
import logging
import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TypeAlias

import numpy as np
from PIL import Image

from mast.core.errors import UserError
from mast.core.reading import Layout, Reading
from mast.data.formats import Bands, is_deep
from mast.data.profiles import GRAYS

_log = logging.getLogger("mast")
Range: TypeAlias = tuple[float | str, ...]  # as in `DataConfig`
_VALUES = 16_384  # values to sample per image and channel
_TAILS = 0.1, 99.9  # percentiles
_NOISE = 0.05  # negative values up to this share of the largest are noise
_LEAST = 0.1  # share of the range below which a warning follows
_FLOATS = 1.0, 255.0, 65535.0  # usual maxima of floats
_NONE = 1e37  # magnitude of floats that mean "no data", such as -3.4e38
_CONVERTED = {3: (1, 4), 1: (3,), 4: (3,)}  # channel conversions: to, from
_BRIGHT = 250  # mean level of the visible part above which it would not show on white


def find_reading(
    name: str,
    images: Iterable[Image.Image | Bands],
    wanted: Range = ("auto",),
    channels: int = 3,
    no_data: float | None = None,
) -> Reading:
    """Find the value range of a set from a sample of its images.

    8-bit images count only if there are no others.

    Args:
        name: Name of the set, for messages.
        images: From `sampled`.
        wanted: Two numbers, which become 0 and 1, or a word (docs/data.md).
        channels: C, the encoder's channels; for 3, gray is repeated.
        no_data: Value that means "no data", in addition to those that files declare.
    """
    plain = wanted in (("auto",), ("dtype",))
    found, counts = list[Bands](), set[int]()
    for image in images:
        counts.add(image.channels if isinstance(image, Bands) else 1 if image.mode in GRAYS else 3)
        if isinstance(image, Bands) or not plain:
            with suppress(Exception):  # broken images are counted when all are decoded
                bands = image if isinstance(image, Bands) else Bands.of(image)
                step = max(1, math.isqrt(math.prod(bands.size) // _VALUES))
                some_HWC = bands.values_HWC[::step, ::step].copy()
                found.append(replace(bands, values_HWC=some_HWC, alpha_HW=None))
    if counts and not counts & {channels, *_CONVERTED.get(channels, ())}:
        several = " and ".join(map(str, sorted(counts)))
        raise UserError(
            f"data.channels: expected images of {channels} channels, got {several} in {name}; "
            f"mast pretrain data.channels={max(counts)} trains an encoder for {max(counts)}"
        )
    if channels == 3 and 4 in counts:
        _log.warning(
            "%s has images of 4 channels; using the first 3 (data.channels=4 for all)",
            name,
        )
    deep = [bands for bands in found if is_deep(bands)]
    layout, used = Layout(channels, deep=bool(deep)), deep or found
    if not used or (plain and not deep):
        return Reading(layout, no_data=no_data)
    reading = Reading(layout, *_limits(used, wanted, channels, no_data), no_data)
    _warn(name, reading, used)
    return reading


def alone(bands: Bands) -> Reading:
    """The mapping for an image outside a set: 8-bit RGB."""
    dtype, windowed = bands.values_HWC.dtype, bands.window is not None
    way = "dtype" if dtype == np.uint8 or (dtype == np.uint16 and not windowed) else "auto"
    return Reading(Layout(), *_limits([bands], (way,), 3, None))


def read_channels(bands: Bands, reading: Reading) -> Iterator[np.ndarray]:
    """The channels of an image, one by one, each (H, W) float32 in [0, 1].

    Transparent color images are composited over white, or over black if they would be invisible.
    """
    deep, alpha_HW = is_deep(bands), bands.alpha_HW
    if deep and not reading.layout.deep:
        own = alone(bands)
        reading = replace(reading, low=own.low, high=own.high)
    elif reading.layout.deep and not deep:
        reading = replace(reading, low=(0.0,), high=(255.0,))
    count, wanted = bands.channels, reading.layout.channels
    channel = functools.partial(_channel, bands, reading)
    channels: Iterable[np.ndarray] = map(channel, range(min(count, wanted)))
    if count == 1 and wanted == 3:
        channels = [channel(0)] * 3
    elif count == 3 and wanted == 1:
        red_HW, green_HW, blue_HW = map(channel, range(3))
        channels = [0.299 * red_HW + 0.587 * green_HW + 0.114 * blue_HW]
    elif count + 1 == wanted and alpha_HW is not None:
        channels = [*channels, alpha_HW.astype(np.float32)]
    elif count != wanted and (count, wanted) != (4, 3):
        raise ValueError(f"expected {wanted} channels, got {count}")
    if alpha_HW is None or wanted not in (1, 3):
        yield from channels
        return
    opaque_CHW = np.stack([*channels])
    ground = 0.0 if shows_nothing(255 * opaque_CHW.mean(0), alpha_HW) else 1.0
    for channel_HW in opaque_CHW:
        yield (channel_HW * alpha_HW + ground * (1 - alpha_HW)).astype(np.float32)


def _channel(bands: Bands, reading: Reading, at: int) -> np.ndarray:
    """One of the channels in the file, (H, W) float32 in [0, 1]."""
    stored_HW, low, high = bands.values_HWC[:, :, at], reading.low, reading.high
    # float32 has only 24 bits of precision
    values_HW = stored_HW.astype("f8" if stored_HW.dtype.itemsize > 2 else "f4", copy=False)
    least, most = low[at % len(low)], high[at % len(high)]
    with np.errstate(invalid="ignore", over="ignore"):
        unit_HW = ((values_HW - least) / (most - least)).clip(0, 1).astype(np.float32)
    unit_HW = 1 - unit_HW if bands.inverted else unit_HW
    there_HW = there(stored_HW, reading.no_data, bands.no_data)
    return unit_HW if there_HW is None else np.where(there_HW, unit_HW, np.float32(0))


def shows_nothing(level_HW: np.ndarray, alpha_HW: np.ndarray) -> bool:
    """Whether the visible part (brightness 0 to 255) is too bright to show on white."""
    total = float(alpha_HW.sum(dtype=np.float64))
    seen = np.einsum("hw,hw->", level_HW, alpha_HW, dtype=np.float64)
    return total > 0 and float(seen) > _BRIGHT * total


def there(values: np.ndarray, *no_data: float | None) -> np.ndarray | None:
    """Mask of valid values; None if all are valid."""
    there = None
    if values.dtype.kind == "f":
        there = np.isfinite(values) & (np.abs(values) < _NONE)
    for value in {*no_data} - {None}:
        there = (values != value) if there is None else there & (values != value)
    return there


def _sampled(images: Sequence[Bands], channel: int, no_data: float | None) -> np.ndarray:
    """Values of one channel, equally many per image."""
    parts = []
    for bands in images:
        some_N = bands.values_HWC[:, :, channel % bands.channels].ravel()
        there_N = there(some_N, no_data, bands.no_data)
        parts.append((some_N if there_N is None else some_N[there_N]).astype(np.float64))
    return np.concatenate(parts)


def _tails(values_N: np.ndarray) -> tuple[float, float]:
    low, high = np.percentile(values_N, _TAILS).tolist() if len(values_N) else (0.0, 1.0)
    return low, high


def _limits(
    images: Sequence[Bands], wanted: Range, channels: int, no_data: float | None
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The values that become 0 and 1: one number each, or one per channel."""
    if len(wanted) == 2:
        return (float(wanted[0]),), (float(wanted[1]),)
    if wanted == ("dtype",):
        lows, highs = zip(*map(_of_type, images), strict=True)
        return (min(lows),), (max(highs),)
    several = channels if max(bands.channels for bands in images) > 1 else 1
    values = [_sampled(images, at, no_data) for at in range(several)]
    if wanted == ("auto",) and (usual := _usual(images, np.concatenate(values))):
        return (usual[0],), (usual[1],)
    ends = [(low, high if high > low else low + 1) for low, high in map(_tails, values)]
    lows, highs = zip(*ends, strict=True)
    return lows, highs


def _usual(images: Sequence[Bands], every_N: np.ndarray) -> tuple[float, float] | None:
    """The range that files declare, or the usual range that contains the values, or None."""
    windows = [bands.window for bands in images if bands.window is not None]
    if len(windows) == len(images):
        low, high = np.median(windows, axis=0).tolist()
        return low, high
    if not len(every_N):
        return None
    kinds = {bands.values_HWC.dtype.kind for bands in images}
    (bottom, top), most = _tails(every_N), float(every_N.max())
    if "f" in kinds:
        fitting = [limit for limit in _FLOATS if top <= limit][:1]
        # ignore slight noise below 0
        is_usual = bottom >= -_NOISE * top and (top <= 1 or top >= _LEAST * max([0, *fitting]))
    else:
        bits = [bands.bits for bands in images if bands.bits is not None]
        if "i" in kinds or len(bits) < len(images):
            most = most if most <= 4 * top else top  # ignore single hot pixels
            bits = [number for number in (8, 10, 12, 14, 16) if most < 2**number][:1]
        fitting, is_usual = [2.0 ** max(bits) - 1] if bits else [], every_N.min() >= 0
    return (0.0, fitting[0]) if fitting and is_usual else None


def _of_type(bands: Bands) -> tuple[float, float]:
    """Smallest and largest possible value of an image."""
    kind = bands.values_HWC.dtype
    if kind.kind == "f":
        return 0.0, 1.0
    if bands.bits is not None and kind.kind == "u":
        return 0.0, 2.0**bands.bits - 1
    return float(np.iinfo(kind).min), float(np.iinfo(kind).max)


def _warn(name: str, reading: Reading, images: Sequence[Bands]) -> None:
    """Warn if most values use little of the range."""
    for at, (least, most) in enumerate(zip(reading.low, reading.high, strict=True)):
        some_N = _sampled(images, at, reading.no_data)
        ends = low, high = _tails(some_N)
        others_N = some_N[~np.isin(some_N, ends)]  # extreme values may mean "no data"
        if len(others_N) > _LEAST * len(some_N) and others_N.min() < others_N.max():
            low, high = _tails(others_N)
        if len(some_N) and min(high, most) - max(low, least) < _LEAST * (most - least):
            far = ends[ends[1] - high > low - ends[0]]
            _log.warning(
                "%s has values of %g to %g, less than a tenth of the range %g to %g: "
                "set data.range to percentile or two numbers to use more of it%s",
                name, low, high, least, most,
                f"; if {far:g} means no data, set data.no_data={far:g}" * (not low <= far <= high),
            )  # fmt: skip
            return
