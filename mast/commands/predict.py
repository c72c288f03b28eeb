"""The classes of a folder of images, as a table."""

from collections.abc import Sequence
from pathlib import Path

from mast.core.errors import UserError
from mast.core.launch import Device, find_device
from mast.core.tabular import check_ending, write_table
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
    columns: dict[str, Sequence[str] | Sequence[float]] = {
        "path": canvases.identifiers,
        "class": said.classes,
        "probability": said.probability_B.tolist(),
        "margin": said.margin_B.tolist(),
    }
    if every_class:
        for name, probability_N in zip(model.classes, said.probability_BC.T, strict=True):
            columns[f"probability of {name}"] = probability_N.tolist()
    write_table(file, columns)
    return file
