"""Columns of tables: which one holds the images, and which one the labels.

Where the names do not tell, the user names the column behind a #: `hf:owner/name@train#photo`.
"""

import functools
import logging
import os
from collections.abc import Sequence

from mast.core.errors import UserError, unknown
from mast.core.files import named

IMAGES = ("image", "img", "jpg", "jpeg", "png", "webp")  # what columns of images are called
LABELS = ("cls", "label", "labels", "class")  # what columns of labels are called
_log = logging.getLogger("mast")


def split_column(spec: str) -> tuple[str, str | None]:
    """A name without the column behind its last #, and that column; None where none is named."""
    before, sign, column = spec.rpartition("#")
    if not sign or "/" in column or "@" in column or os.path.exists(named(spec.partition(":")[2])):
        return spec, None
    return before, column


def image_column(name: str, columns: Sequence[str], wanted: str | None = None) -> str:
    """The column of the images: the one that the user names, is called so, or is the only one.

    Args:
        name: What the set is called.
        columns: All that may hold images; one or more.
        wanted: The one that the user names.

    Raises:
        UserError: There is no such column, or there are several and none is called as images are.
    """
    if wanted is not None:
        if wanted not in columns:
            raise unknown(f"column of images of {name}", wanted, columns)
        return wanted
    called = [of for kind in IMAGES for of in columns if of.lower() == kind]
    if not called and len(columns) > 1:
        raise UserError(
            f"{name} has several columns of images, {', '.join(columns)}: name one of them, as in "
            f"{name}#{columns[0]}"
        )
    chosen, *_ = [*called, *columns]
    if len(columns) > 1:
        _tell_once(name, chosen, ", ".join(of for of in columns if of != chosen))
    return chosen


@functools.cache
def _tell_once(name: str, chosen: str, others: str) -> None:
    _log.warning("%s: the images are those of the column %s, not of %s; %s#COLUMN takes another",
                 name, chosen, others, name)  # fmt: skip


def label_column(columns: Sequence[str]) -> str | None:
    """The column of the labels by its name, small letters first; None where there is none."""
    called = [of for kind in LABELS for of in sorted(columns, reverse=True) if of.lower() == kind]
    return next(iter(called), None)
