"""Predict the classes of a folder of images, as a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mast.commands.common import command
from mast.core.errors import UserError
from mast.core.files import out_file, short_name
from mast.core.kinds import Device, later
from mast.core.table import Listing, begins, images_of, with_broken, write_table

if TYPE_CHECKING:
    from mast.models import Classifier
else:
    Classifier = later("mast.models", "Classifier")


UNCERTAIN = 0.5  # below it, a prediction is more likely wrong than right
NAMED = 5  # most frequent classes that the summary counts


@command
def predict(
    data: str | Path,
    classifier: str | Path | Classifier,
    out: str | Path | None = None,
    features: str | Path | None = None,
    every_class: bool = False,
    device: Device = "auto",
) -> Listing:
    """Classify images and write the predictions to a table.

    Args:
        classifier: A file from `mast fit`, or a folder with one, such as a run folder. In Python
            also a classifier.
        data: The images, or one file; labels are not needed.
        out: The table, .csv or .parquet (extra `parquet`); by default
            `predictions-<set>-by-<run>-<classifier>.csv` in the current folder. Replaces an older
            table.
        features: An .npz or .parquet with the features of these images, if the classifier was
            trained on such a file.
        every_class: Also write a column with the probability of each class.

    Returns:
        A row per image in the order of the set, those with a small margin shown first: `path` (as
        in the set; in a CSV file with a single quote before a name that a spreadsheet would run as
        a formula), the likeliest `class`, its `probability`, the `margin` over the next class's
        probability, and with every_class the columns `probability of <class>`. Images that cannot
        be decoded come last, without a class; the last column, `broken`, says why.
    """
    from mast.core.compute import Compute
    from mast.core.launch import find_device
    from mast.data import DataConfig, open_photos
    from mast.encoders.extract import extract
    from mast.encoders.feature_file import FeatureFile
    from mast.evaluation.result import readable
    from mast.models import Classifier, load_classifier
    from mast.models.classifier import classifier_file
    from mast.page import Thumbnails

    if out is None:
        by = ""
        if not isinstance(classifier, Classifier):
            by = f"-by-{readable(str(classifier_file(classifier).absolute().with_suffix('')))}"
        out = short_name(f"predictions-{readable(str(data))}{by}") + ".csv"
    table = begins("path", "class", "probability", "margin")
    file = out_file(out, {".csv": table, ".parquet": table})
    own = None if features is None else FeatureFile(Path(features))
    model = classifier if isinstance(classifier, Classifier) else load_classifier(classifier, own)
    if own is not None and "features" not in model.about.get("encoder", ()):
        raise UserError("features: expected none, as this classifier was trained on images")
    canvases = open_photos(DataConfig(str(data), max_broken=1.0), model.size, model)
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
    with_reasons = with_broken(columns, canvases.skipped)
    write_table(file, with_reasons)
    counts = Counter(predicted.classes).most_common()
    of_classes = [f"{name} {count:,}" for name, count in counts[:NAMED]]
    if len(counts) > NAMED:
        of_classes.append(f"others {sum(count for _, count in counts[NAMED:]):,}")
    summary = f"{images_of(canvases.name, len(canvases), canvases.skipped)}: "
    summary += ", ".join(of_classes)
    unsure = [at for at in predicted.margin_B.argsort(stable=True).tolist()
              if predicted.probability_B[at] < UNCERTAIN]  # fmt: skip
    sections = {
        summary: (),
        f"Probability below {100 * UNCERTAIN:g} %: {len(unsure):,}": unsure,
    }
    return Listing(with_reasons, sections, file, picture=Thumbnails(canvases))
