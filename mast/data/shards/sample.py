"""One image of a shard, as it lies there."""

import io
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from mast.core.reading import Reading
from mast.data.decode import Opened, naming, open_image, to_canvas


class Sample(NamedTuple):
    """What a shard holds of an image.

    Attributes:
        key: Its name: the shard, and the key or the row in it.
        image: The encoded file; empty where it is no file, or was not read.
        label: Its class, as it is written.
        aspect: Width / height of the original of a canvas; None where the image is whole.
        name: What the original of a canvas was called.
        at: Its first byte in a tar, or its row in a Parquet file.
        size: Its bytes in a tar.
    """

    key: str
    image: bytes
    label: object = None
    aspect: float | None = None
    name: str | None = None
    at: int = 0
    size: int = 0

    def canvas(
        self,
        side: int,
        reading: Reading | None = None,
        note: Callable[[Opened], object] | None = None,
    ) -> tuple[np.ndarray, float]:
        with naming(lambda: self.key), open_image(io.BytesIO(self.image)) as image:
            if note is not None:
                note(image)
            canvas_HWC, aspect = to_canvas(image, side, reading)
        return canvas_HWC, aspect if self.aspect is None else self.aspect


def label_of(written: object) -> int:
    """The class number in a label of any type; -1 if it is no whole number from 0."""
    try:
        label = int(written)  # type: ignore[call-overload]  # others raise
    except (TypeError, ValueError, OverflowError):
        return -1
    whole = isinstance(written, str | bytes) or label == written
    return int(label) if whole and 0 <= label < 2**63 else -1
