"""The classes of a folder of images, as a table."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from mast.core.checkpoint import write_atomically
from mast.core.errors import UserError
from mast.core.files import as_unicode
from mast.core.launch import Device, find_device
from mast.core.table import check_ending, safe_cell, write_csv
from mast.data import DataConfig, open_canvas
from mast.measure.compute import Compute
from mast.measure.features import extract
from mast.measure.result import readable
from mast.models import Classifier, classifier_file, load_classifier


def predict(
    classifier: str | Path | Classifier,
    data: str | Path,
    out: str | Path | None = None,
    every_class: bool = False,
    device: Device = "auto",
) -> Path:
    """Tell the classes of images, as a table.

    Args:
        classifier: A file of `mast fit`, or a folder with one, such as a run folder; in Python also
            a classifier.
        data: The images; labels are not needed.
        out: The table, ending in .csv or .parquet (which needs the extra of that name);
            `<set>-<folder>-<classifier>.csv` in the current folder if not given.
        every_class: Also write the probability of every class, a column each.
        device: auto, cpu or cuda.

    Returns:
        The table, a row an image in the order of the set: `path` (as in the set; in a CSV file with
        a single quote before a name that a spreadsheet would run as a formula), the likeliest
        `class`, its `probability`, the `margin` by which it is above that of the next class, and
        `probability of <class>` where they are asked for.

    Raises:
        UserError: No such classifier or images, or an unknown kind of table.
    """
    if isinstance(classifier, Classifier):
        if out is None:
            raise UserError("give out: a classifier in memory has no name by which to call a table")
        file = Path(out)
    else:
        source = classifier_file(classifier)
        named = readable(str(source.resolve().with_suffix("")))
        file = Path(f"{readable(str(data))}-{named}.csv" if out is None else out)
    check_ending(file, (".csv", ".parquet"))
    model = classifier if isinstance(classifier, Classifier) else load_classifier(source)
    canvases = open_canvas(DataConfig(str(data)), model.size)
    said = model.told(extract(model, canvases, model.size, Compute(find_device(device))))
    numbers = {"probability": said.probability_B, "margin": said.margin_B}
    if every_class:
        of_each = zip(model.classes, said.probability_BC.T, strict=True)
        numbers |= {f"probability of {name}": probability_N for name, probability_N in of_each}
    write = _write_csv if file.suffix == ".csv" else _write_parquet
    write(file, canvases.identifiers, said.classes, numbers)
    return file


def _write_csv(
    file: Path, paths: Sequence[str], classes: Sequence[str], numbers: Mapping[str, Tensor]
) -> None:
    rows = (
        (safe_cell(path), safe_cell(name), *(f"{number:.6f}" for number in row_K))
        for path, name, row_K in zip(
            paths, classes, torch.column_stack([*numbers.values()]).tolist(), strict=True
        )
    )
    write_csv(file, ("path", "class", *numbers), rows)


def _write_parquet(
    file: Path, paths: Sequence[str], classes: Sequence[str], numbers: Mapping[str, Tensor]
) -> None:
    import pyarrow
    import pyarrow.parquet

    names = {"path": [as_unicode(path) for path in paths], "class": list(classes)}
    table = pyarrow.table({**names, **{name: value.numpy() for name, value in numbers.items()}})
    write_atomically(file, lambda partial: pyarrow.parquet.write_table(table, partial))
