"""Predict the classes of a folder of images, as a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from mast.commands.common import command
from mast.core.errors import UserError, one_line
from mast.core.files import out_file, short_name
from mast.core.kinds import Device, later
from mast.core.table import Columns, Rows, ShownText, begins, with_broken, write_table

if TYPE_CHECKING:
    from mast.models import Classifier
else:
    Classifier = later("mast.models", "Classifier")


UNCERTAIN = 0.5  # a class of a smaller probability is likelier to be wrong than right
NAMED = 5  # of the classes, the most frequent, that the text counts one by one


@dataclass(frozen=True, repr=False)
class Predicted(ShownText, Rows):
    """A table of classes."""

    path: Path
    counts: Mapping[str, int]  # images of each class, the most frequent first
    uncertain: int  # how many of them have a probability below `UNCERTAIN`
    broken: int = 0  # images that cannot be decoded
    columns: Columns = field(default_factory=dict)  # those of the table

    @property
    def by_column(self) -> Columns:
        return self.columns

    @property
    def text(self) -> str:
        """What was found, in a few lines; the last one says where."""
        images, percent = sum(self.counts.values()), f"{100 * UNCERTAIN:g} %"
        named = [f"{name} {count:,}" for name, count in list(self.counts.items())[:NAMED]]
        if (more := len(self.counts) - len(named)) > 0:
            rest = images - sum(list(self.counts.values())[:NAMED])
            named.append(f"{more} other class{'es' if more > 1 else ''} {rest:,}")
        lines = [
            f"{images:,} image{'s' if images > 1 else ''}: {', '.join(named)}",
            f"probability below {percent}: {self.uncertain:,}"
            + (": look at those with the smallest margin first" if self.uncertain else ""),
            f"table: {self.path.absolute()}",
        ]
        if self.broken:
            are = "are" if self.broken > 1 else "is"
            lines.insert(2, f"{self.broken:,} more {are} broken: the table ends with the reasons")
        return "\n".join(map(one_line, lines))


@command
def predict(
    data: str | Path,
    classifier: str | Path | Classifier,
    out: str | Path | None = None,
    features: str | Path | None = None,
    every_class: bool = False,
    device: Device = "auto",
    max_broken: float = 1.0,
) -> Predicted:
    """Classify images and write the predictions to a table.

    Args:
        classifier: A file from `mast fit`, or a folder with one, such as a run folder. In Python
            also a classifier.
        data: The images, or one file; labels are not needed.
        out: The table, .csv or .parquet (extra `parquet`); by default
            `predictions-<set>-by-<run>-<kind>-<training set>.csv` in the current folder, or
            `predictions-<set>-by-<file>.csv` if classifier is a file. Replaces an older table.
        features: An .npz or .parquet with the features of these images, if the classifier was
            trained on such a file.
        every_class: Also write a column with the probability of each class.

    Returns:
        The table's path and what was found. The table has a row per image in the order of the set:
        `path` (as in the set; in a CSV file with a single quote before a name that a spreadsheet
        would run as a formula), the likeliest `class`, its `probability`, the `margin` over the
        next class's probability, and with every_class the columns `probability of <class>`.
        Images that cannot be decoded come last, without a class; the last column, `broken`, says
        why.
    """
    from mast.core.compute import Compute
    from mast.core.launch import find_device
    from mast.data import DataConfig, open_photos
    from mast.encoders.extract import extract
    from mast.encoders.feature_file import FeatureFile
    from mast.evaluation.result import readable
    from mast.models import Classifier, load_classifier

    name = out or short_name(f"predictions-{readable(str(data))}{_by(classifier)}") + ".csv"
    table = begins("path", "class", "probability", "margin")
    file = out_file(name, {".csv": table, ".parquet": table})
    own = None if features is None else FeatureFile(Path(features))
    if own is not None and _encodes(classifier):
        raise UserError("the classifier encodes images itself: leave features out")
    model = classifier
    if not isinstance(model, Classifier):
        model = load_classifier(model, own)
    canvases = open_photos(DataConfig(str(data), max_broken=max_broken), model.size, model)
    predicted = model.from_probabilities(
        extract(model, canvases, model.size, Compute(find_device(device)))
        if own is None
        else model.of_features(own.of(canvases))
    )
    columns: dict[str, Sequence[str] | Sequence[float]] = {
        "path": canvases.identifiers,
        "class": predicted.classes,
        "probability": predicted.probability_B.tolist(),
        "margin": predicted.margin_B.tolist(),
    }
    if every_class:
        for name, probability_N in zip(model.classes, predicted.probability_BC.T, strict=True):
            columns[f"probability of {name}"] = probability_N.tolist()
    table_columns = with_broken(columns, canvases.skipped)
    write_table(file, table_columns)
    uncertain = int((predicted.probability_B < UNCERTAIN).sum())
    counts = dict(Counter(predicted.classes).most_common())
    return Predicted(file, counts, uncertain, len(canvases.skipped), table_columns)


def _encodes(classifier: str | Path | Classifier) -> bool:
    """Whether a classifier learned from an encoder, not from features of a file."""
    from mast.models import Classifier, classifier_file, read_about

    if isinstance(classifier, Classifier):
        return "features" not in classifier.about.get("encoder", ())
    about = read_about(classifier_file(classifier))
    return about is not None and "features" not in about.get("encoder", ())


def _by(classifier: str | Path | Classifier) -> str:
    """What the name of a table says of a file's classifier, so that none replaces another's."""
    from mast.models import Classifier, classifier_file
    from mast.models.classifier import NAME

    if isinstance(classifier, Classifier):
        return ""
    file = classifier_file(classifier).absolute()
    own = file.stem.removeprefix(f"{NAME}-")
    by_default = own != file.stem  # as `mast fit` calls it, which does not say of which encoder
    return f"-by-{file.parent.name}-{own}" if by_default else f"-by-{own}"
