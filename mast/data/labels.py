"""Names of classes, and where torchvision's sets and tables keep labels and images.

Where the names do not tell, the user names the column behind a #: `hf:owner/name@train#photo`.

Legend: N images.
"""

import functools
import logging
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from mast.core.errors import UserError, unknown
from mast.core.files import named
from mast.data.source import UNLABELLED

_NUMBERED = 2**16  # classes at most that are called by all numbers up to the highest


def told_apart(names: Sequence[str], numbers: Sequence[object] | None = None) -> tuple[str, ...]:
    """Names of classes, with its number behind each that several share: ImageNet has two cranes.

    Args:
        names: One a class; what UTF-8 cannot hold is escaped.
        numbers: What the set calls each, all different; its position if not given.
    """
    numbers = range(len(names)) if numbers is None else numbers
    names = [name.encode("utf-8", "backslashreplace").decode() for name in names]
    while len(counts := Counter(names)) < len(names):
        names = [
            f"{name} ({number})" if counts[name] > 1 else name
            for name, number in zip(names, numbers, strict=True)
        ]
    return tuple(names)


def numbered(values: Sequence[Any]) -> tuple[np.ndarray, tuple[str, ...]]:
    """Labels as numbers of classes.

    Args:
        values: N texts or whole numbers; None, "" and numbers below 0 are no labels.

    Returns:
        Labels (N,) int64, `UNLABELLED` where there is none, and the names of the classes.
    """
    if any(isinstance(value, str) for value in values):
        known = sorted({value for value in values if value})
        number = {value: at for at, value in enumerate(known)}
        return np.array([number.get(value, UNLABELLED) for value in values], np.int64), tuple(known)
    return by_number(
        np.array([UNLABELLED if value is None else int(value) for value in values], np.int64)
    )


def by_number(number_N: np.ndarray) -> tuple[np.ndarray, tuple[str, ...]]:
    """Labels of numbers without names, which stay what they are unless they are very high.

    So parts agree even if a class is missing in one. Arguments and what is returned as of
    `numbered`.
    """
    label_N = np.maximum(number_N, UNLABELLED)
    highest = int(label_N.max(initial=UNLABELLED))
    if highest < _NUMBERED:
        return label_N, tuple(map(str, range(highest + 1)))
    known, found_N = np.unique(label_N, return_inverse=True)
    below = int(known[0] == UNLABELLED)  # which is no class
    return found_N.reshape(-1) - below, tuple(map(str, known[below:].tolist()))


def labels_of(name: str, dataset: Any) -> tuple[np.ndarray, tuple[str, ...]] | None:
    """The labels of a data set of torchvision.

    Args:
        name: What the user called it.
        dataset: An instance of a class of `torchvision.datasets`.

    Returns:
        Labels (N,) int64, `UNLABELLED` of an image without one (STL10's unlabeled), and the
        classes' names, which are numbers where it has no names; None for a set without labels.

    Raises:
        UserError: If the labels do not fit the images or the classes.
    """
    for values in _candidates(dataset):
        try:
            label_N = np.asarray(values)
        except ValueError:  # lists of unequal length: no labels of one class an image
            continue
        if label_N.ndim != 1 or label_N.dtype.kind not in "iu" or len(label_N) == 0:
            continue
        if len(label_N) != len(dataset):
            raise UserError(
                f"a label file of {name} does not fit its images: {len(label_N)} labels for "
                f"{len(dataset)} images."
            )
        label_N = np.maximum(label_N.astype(np.int64), UNLABELLED)
        highest = int(label_N.max())
        names = _names(dataset) or tuple(map(str, range(highest + 1)))
        if highest >= len(names):
            raise UserError(
                f"a label file of {name} does not fit its classes: the highest label is "
                f"{highest}, and there are {len(names)} classes, from 0."
            )
        return label_N, names
    return None


def _candidates(dataset: Any) -> Iterator[Any]:
    """What may be the labels; torchvision has a name for them in every decade of its sets."""
    for attribute in ("targets", "labels", "_labels", "y"):
        values = getattr(dataset, attribute, None)
        if values is not None:
            yield values
    # Pairs: (file, label) of StanfordCars, GTSRB and others, (label, file) of INaturalist.
    for attribute, at in (("_samples", 1), ("index", 0)):
        pairs = getattr(dataset, attribute, None)
        if pairs and all(isinstance(pair, tuple) and len(pair) == 2 for pair in pairs):
            yield [pair[at] for pair in pairs]


def _names(dataset: Any) -> tuple[str, ...]:
    # Places365 sorts its `classes` by name, whatever their numbers.
    numbers = getattr(dataset, "class_to_idx", None) or {}
    if sorted(numbers.values()) == list(range(len(numbers))):
        names = sorted(numbers, key=numbers.__getitem__)
    else:
        names = []
    for attribute in ("classes", "categories", "all_categories"):
        names = names or getattr(dataset, attribute, None) or []
    # ImageNet has several words for a class.
    return tuple(", ".join(name) if isinstance(name, tuple) else str(name) for name in names)


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
