"""Weights under the names of another program, matched by their order and shapes, or refused."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from torch import Tensor

from mast.core.errors import UserError

BY_ORDER = "order:"  # before the name of a file whose weights are to be matched by their order
COUNTS = "num_batches_tracked"  # which not every program keeps, and nothing here uses


def checkpoint_of(weights: str | Path) -> tuple[Path, bool]:
    """The file that a user named, and whether its weights are to be matched by their order."""
    text = str(weights)
    return Path(text.removeprefix(BY_ORDER)), text.startswith(BY_ORDER)


def matched_by_order(
    tensors: Mapping[str, Tensor], expected: Mapping[str, Tensor]
) -> tuple[dict[str, Tensor], tuple[str, ...]]:
    """Weights under the names of a model that has the same shapes in the same order.

    Modules of the same shapes beside each other are told apart by their order alone, so they must
    be numbered in that order, in the file and in the model: as `bn1` and `bn2` are, but not `query`
    and `key`.

    Args:
        tensors: In the order of their modules; a classifier's weight and bias may come last.
        expected: The model's weights, perhaps on the meta device.

    Returns:
        The tensors that are the model's, by its names, and the keys of the classifier.

    Raises:
        UserError: They do not fit, or their order does not tell them apart.
    """
    given, wanted = (
        [key for key in keys if not key.endswith(COUNTS)] for keys in (tensors, expected)
    )
    for theirs, ours in zip(given, wanted, strict=False):
        shapes = tuple(tensors[theirs].shape), tuple(expected[ours].shape)
        if shapes[0] != shapes[1] or theirs.rpartition(".")[2] != ours.rpartition(".")[2]:
            raise UserError(
                f"its weights are not those of the encoder in the same order: {theirs} {shapes[0]} "
                f"stands where {ours} {shapes[1]} belongs"
            )
    head = [tensors[key] for key in given[len(wanted) :]]
    is_head = [tensor.ndim for tensor in head] in ([], [2], [2, 1])
    if len(given) < len(wanted) or not is_head or len({len(tensor) for tensor in head}) > 1:
        raise UserError(
            f"it has {len(given)} weights, the encoder has {len(wanted)}, and only a classifier "
            "may come behind them"
        )
    for keys, shaped in ((given[: len(wanted)], tensors), (wanted, expected)):
        for place, names in _unordered(keys, shaped):
            raise UserError(
                f"{' and '.join(names)}{place and f' of {place}'} have the same shapes, and no "
                "numbers that say which comes first: their order does not tell them apart"
            )
    fitting = {ours: tensors[theirs] for theirs, ours in zip(given, wanted, strict=False)}
    return fitting, tuple(given[len(wanted) :])


def _unordered(
    keys: Iterable[str], tensors: Mapping[str, Tensor]
) -> Iterator[tuple[str, list[str]]]:
    """Modules beside each other that have the same shapes and are not numbered in their order."""
    shapes: dict[str, dict[str, tuple[tuple[int, ...], ...]]] = defaultdict(dict)
    for key in keys:
        *modules, _ = key.split(".")
        for depth, name in enumerate(modules):
            beside = shapes[".".join(modules[:depth])]
            beside[name] = (*beside.get(name, ()), tuple(tensors[key].shape))
    for place, beside in shapes.items():
        alike: dict[object, list[str]] = defaultdict(list)
        for name, own in beside.items():
            alike[own].append(name)
        for names in alike.values():
            numbers = [[int(number) for number in re.findall(r"\d+", name)] for name in names]
            if len({re.sub(r"\d+", "0", name) for name in names}) > 1 or numbers != sorted(numbers):
                yield place, names
