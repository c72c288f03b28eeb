"""Names of classes, and where the data sets of torchvision keep these and their labels.

Legend: N images.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from mast.core.errors import UserError


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


def labels_of(name: str, dataset: Any) -> tuple[np.ndarray, tuple[str, ...]] | None:
    """The labels of a data set of torchvision.

    Args:
        name: What the user called it.
        dataset: An instance of a class of `torchvision.datasets`.

    Returns:
        Labels (N,) int64 and the classes' names, which are numbers where it has no names; None for
        a set without labels, and for one that leaves some images without (STL10's unlabeled).

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
        label_N = label_N.astype(np.int64)
        if label_N.min() < 0:
            return None
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
