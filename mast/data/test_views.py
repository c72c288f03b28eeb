"""The views of a set by which encoders are tested, cut from whole images and not from canvases.

Legend: N images, V pixels of a view along an axis.
"""

from collections.abc import Callable
from typing import final

import numpy as np

from mast.data.pixels import Chosen, Pixels


@final
class TestViews:
    """The test views of a set, made when a size is first asked for.

    Args:
        make: From a size V to the views of all images, each 3 × V × V; None where they are those of
            the canvases, which shrank no image.
        index_N: Which of the images these are; all if not given.
    """

    __test__ = False  # pytest takes the name for its own

    def __init__(
        self, make: Callable[[int], Pixels | None], index_N: np.ndarray | None = None
    ) -> None:
        self._make = make
        self._index_N = index_N
        self._made: dict[int, Pixels | None] = {}

    def at(self, size: int) -> Pixels | None:
        """The views of a size; None as above."""
        if size not in self._made:
            made = self._make(size)
            if made is not None and self._index_N is not None:
                made = Chosen(made, self._index_N)
            self._made[size] = made
        return self._made[size]

    def some(self, index_B: np.ndarray) -> "TestViews":
        """Those of some images."""
        return TestViews(self.at, index_B)
