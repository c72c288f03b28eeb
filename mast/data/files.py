"""Single image files as a set of canvases, beside one of which they are looked at.

Legend: N images.
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from mast.core.files import named
from mast.core.reading import Reading
from mast.data.canvas import CanvasSet, canvas_size
from mast.data.decode import BrokenImageError, open_image, read_test_view, to_canvas
from mast.data.pixels import InMemory
from mast.data.test_views import TestViews


def open_files(
    paths: Sequence[str | Path], view_size: int, reading: Reading | None = None
) -> CanvasSet:
    """Decodes image files, without a cache.

    Args:
        paths: One or more files, by which the images are identified.
        view_size: Side in pixels of the views that will be cut from the canvases.
        reading: How the files of the set are read beside which they are looked at.

    Returns:
        The set, in memory and without labels; its canvases are as large as those of `open_canvas`.

    Raises:
        UserError: One of them is no image that can be read.
    """
    side = canvas_size(view_size)
    canvases, aspects, digest = [], [], hashlib.blake2b(digest_size=16)
    views = []
    for path in paths:
        try:
            with open_image(named(path)) as image:
                canvas_HWC, aspect = to_canvas(image, side, reading)
        except Exception as error:  # decoders raise OSError, SyntaxError, struct.error and more
            raise BrokenImageError.of(str(path), error) from error
        views.append(read_test_view(named(path), view_size, reading))
        canvases.append(canvas_HWC)
        aspects.append(aspect)
        digest.update(repr((canvas_HWC.shape, aspect)).encode() + canvas_HWC.tobytes())
    reading = reading or Reading()
    sizes_N2 = np.full((len(views), 2), view_size)
    values_T = np.concatenate([view.ravel() for view in views])
    of_size = InMemory(values_T, sizes_N2, reading.layout)
    return CanvasSet(
        name="files",
        pixels=InMemory.of(canvases, reading.layout),
        aspect_N=np.array(aspects, np.float32),
        targets={},
        classes={},
        identifiers=tuple(map(str, paths)),
        fingerprint=digest.hexdigest(),
        test_views=TestViews(lambda size: of_size if size == view_size else None),
        reading=reading,
    )
