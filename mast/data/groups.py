"""Groups of images, such as a patient, a video or a file, that no split divides.

Legend: N images.
"""

import re
from collections.abc import Sequence

import numpy as np

from mast.core.errors import UserError, unknown
from mast.data.listed import columns_of
from mast.data.pieces import file_of, split_cut


def groups_of(units: Sequence[str]) -> np.ndarray | None:
    """Group numbers (N,) of images; None if every image is its own group."""
    names, group_N = np.unique(units, return_inverse=True)
    return None if len(names) == len(units) else group_N


def group_names(spec: str, identifiers: Sequence[str], groups: str) -> tuple[str, ...]:
    """The group of each image of a set, by a column, a folder level or a pattern."""
    files, columns = list(map(file_of, identifiers)), columns_of(split_cut(spec)[0])
    if groups in columns:
        names = [columns[groups].get(file) for file in files]
    elif groups.isdecimal():
        names = [dict(enumerate(file.split("/")[:-1], 1)).get(int(groups)) for file in files]
    elif "(" in groups:
        try:
            pattern = re.compile(groups)
        except re.error as error:
            raise UserError(f"groups: {groups!r} is no regular expression: {error}") from error
        if pattern.groups != 1:
            raise UserError(f"groups: expected one group in {groups!r}, got {pattern.groups}")
        names = [found and found[1] for found in map(pattern.search, files)]
    else:
        others = ("a level of subfolders such as 1", "a pattern such as '(p[0-9]+)-'")
        raise unknown("groups", groups, (*columns, *others))
    if missing := [file for file, name in zip(files, names, strict=True) if not name]:
        raise UserError(
            f"groups: {groups!r} fits no group of {len(missing)} of {len(files)} images, first "
            f"{missing[0]}"
        )
    return tuple(map(str, names))
