"""Rank images by their distance to the others, and find labels that may be wrong."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mast.commands.common import command, listing_file, or_default, write_listing
from mast.core.errors import UserError, unknown
from mast.core.kinds import Device, EncoderLike
from mast.core.table import Columns, Listing, images_of, with_broken

if TYPE_CHECKING:
    import numpy as np

    from mast.data import CanvasSet
    from mast.evaluation.label_errors import Checked
    from mast.page import View


_log = logging.getLogger("mast")

FARTHEST = "Farthest from all others"
KNOWN = 10_000  # largest sample of `known` images


@command
def outliers(
    data: str | Path,
    encoder: EncoderLike | None = None,
    out: str | Path | None = None,
    known: str | Path | None = None,
    labels: bool = True,
    target: str | None = None,
    size: int | None = None,
    ignore: str | Sequence[str] = (),
    match: str | Sequence[str] = (),
    space: str | Path | None = None,
    device: Device = "auto",
    weights: str | Path | None = None,
    download: bool = False,
    untrained: bool = False,
    seed: int = 0,
) -> Listing:
    """Rank images by how far they lie from all others, and find labels that may be wrong.

    Confident learning checks labels: out-of-fold probes give the probability of each class, from
    which the number of wrong labels of each class is estimated. So many of its images, those of the
    least probable labels, are suspect. Review the least probable ones first.

    Args:
        data: The images. Labels, such as one subfolder per class, are checked; images without one
            are ranked too.
        known: Images to measure distances from, such as the pretraining images (at most 10,000,
            sampled); by default the set itself.
        labels: Whether to check labels.
        target: The labels to check if the set has several kinds; by default the first.
        seed: Seed of the folds that check labels.

    Returns:
        A row for each image, the farthest first: `path`; `score`, from 0 to 1 over these images;
        and, comparable between calls, `distance`, one minus the cosine to the fifth nearest other
        image, copies counted once. If labels are checked, also `label`; `suggested`, the most
        probable other class if the label is suspect; and `quality`, the label's out-of-fold
        probability, empty for a class with a single image. Images that cannot be decoded come last;
        the last column, `broken`, says why.
    """
    encoder = or_default(encoder, data)
    if target is not None and not labels:
        raise UserError("target: expected none without labels")
    file = listing_file(out, "path", "score", "distance")
    import numpy as np

    from mast.core.compute import Compute
    from mast.core.launch import find_device
    from mast.data import DataConfig, open_photos
    from mast.data.photos import opener
    from mast.encoders.load import EncoderOptions
    from mast.evaluation.label_errors import checked_labels
    from mast.invariance.choice import InvarianceChoice, load_search_encoder
    from mast.search.duplicates import first_copies
    from mast.search.outliers import distances

    photos = opener(DataConfig(str(data), max_broken=1.0))
    options = EncoderOptions(encoder, size, weights, download, untrained)
    invariances = InvarianceChoice(ignore, match, space)
    by = load_search_encoder(options, invariances, Compute(find_device(device)), photos=photos)
    reading = bank = None
    if known is not None:
        config = DataConfig(str(known), max_broken=1.0)
        bank = open_photos(config, by.size, by.encoder.module)
        if len(bank) > KNOWN:
            bank = bank.part(np.sort(np.random.default_rng(0).permutation(len(bank))[:KNOWN]))
        reading = bank.reading if bank.reading.layout.deep else None
    canvases = by.opened(photos, reading)
    labelled = labels_of(canvases, target) if labels else None
    features_ND, first_N = by.features(canvases).to(by.encoder.device), np.arange(len(canvases))
    if labelled is not None or bank is None:
        first_N = first_copies(canvases)
    if bank is None:
        distance_N = distances(features_ND, first_N).cpu().numpy()
    else:
        bank_ND = by.features(bank).to(features_ND.device)
        distance_N = distances(bank_ND, first_copies(bank), features_ND).cpu().numpy()
    checked = None
    if labelled is not None:
        checked = checked_labels(canvases.units, *labelled, features_ND, first_N, seed)
    return _listed(canvases, distance_N, checked, file)


def labels_of(
    canvases: CanvasSet, target: str | None = None
) -> tuple[np.ndarray, Sequence[str]] | None:
    """The labels to check, and the class names; None if there are no labels."""
    from mast.data.source import UNLABELLED

    if not canvases.targets:
        if target is not None:
            raise UserError(f"target: {canvases.name} has no labels")
        return None
    if target is not None and target not in canvases.targets:
        raise unknown(f"labels of {canvases.name}", target, canvases.targets)
    name = next(iter(canvases.targets)) if target is None else target
    label_N, classes = canvases.targets[name], canvases.classes[name]
    if without := int((label_N == UNLABELLED).sum()):
        _log.warning("%s: %d of %d images have no label", canvases.name, without, len(label_N))
    return label_N, classes


def _listed(
    canvases: CanvasSet,
    distance_N: np.ndarray,
    checked: Checked | None,
    file: Path | None,
) -> Listing:
    """All images, the farthest first, in a table or on a page."""
    from mast.page import Thumbnails
    from mast.search.outliers import rescaled

    order_N = (-distance_N).argsort(kind="stable")
    ranked: Columns = {
        "path": canvases.identifiers,
        "score": rescaled(distance_N, distance_N).tolist(),
        "distance": distance_N.tolist(),
    }
    sections: dict[str, Sequence[int]] = {FARTHEST: range(len(order_N))}
    about, suspects = ({}, []) if checked is None else (checked.columns, checked.suspects)
    if checked is not None:
        ranked = {**ranked, **about}
        sections[checked.heading] = order_N.argsort()[suspects].tolist()
    ordered = {name: [values[at] for at in order_N] for name, values in ranked.items()}
    columns = with_broken(ordered, canvases.skipped)

    images = images_of(canvases.name, len(canvases), canvases.skipped)
    write_listing(
        file, columns, "Outliers", lambda: outlier_views(canvases, distance_N, checked, images)
    )
    return Listing(columns, sections, file, picture=Thumbnails(canvases))


def outlier_views(
    canvases: CanvasSet, distance_N: np.ndarray, checked: Checked | None, images: str
) -> list[View]:
    """The farthest images of a set and, if labels were checked, the suspects, for a page."""
    from mast.page import GalleryRow, Item, View

    order_N = (-distance_N).argsort(kind="stable").tolist()
    far = [Item(canvases, at, f"distance {distance_N[at]:.3f}") for at in order_N]
    views = [
        View("Outliers", f"{images}, the farthest from all others first.", [GalleryRow("", far)])
    ]
    if checked is not None:
        rows = dict[str, list[Item]]()
        for at in checked.suspects:
            label, suggested, quality = (of[at] for of in checked.columns.values())
            item = Item(canvases, at, f"its label: {100 * quality:.0f} % probable")
            rows.setdefault(f"Labelled {label}, perhaps {suggested}", []).append(item)
        views.append(
            View("Labels", f"{checked.heading}.", [GalleryRow(*row) for row in rows.items()])
        )
    return views
