"""Rank the images of a set by how little they fit in, and its labels by how little they fit."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from mast.commands.common import command, listing_file, or_default, write_listing
from mast.core.errors import UserError, unknown
from mast.core.kinds import Device, EncoderLike
from mast.core.run import RunFolder, plain
from mast.core.table import Columns, Listing, images_of, with_broken

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor

    from mast.core.compute import Compute
    from mast.data import CanvasSet
    from mast.encoders.frozen import FrozenEncoder
    from mast.encoders.load import EncoderOptions
    from mast.evaluation.label_errors import Checked
    from mast.invariance.choice import InvarianceChoice
    from mast.methods import MethodOutput
    from mast.page import GalleryRow, Item


_log = logging.getLogger("mast")

By = Literal["neighbours", "prediction"]
COLUMN = {"neighbours": "distance", "prediction": "trace"}
FARTHEST = "Farthest from all others"
KNOWN = 10_000  # images at most of another set among which neighbours are looked for


@command
def outliers(
    data: str | Path,
    encoder: EncoderLike | None = None,
    out: str | Path | None = None,
    by: By = "neighbours",
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
    max_broken: float = 1.0,
) -> Listing:
    """Rank images by how far they lie from all others, and find labels that may be wrong.

    Confident learning checks labels: out-of-fold probes give the probability of each class, and a
    label is suspect if another class is at least as probable as on average for its own images. If
    many labels are suspect, few are wrong: review the least probable ones first.

    Args:
        data: The images. Labels, such as one subfolder per class, are checked; images without one
            are ranked too.
        by: What ranks images. "neighbours": distance from the other images, in the representation
            and, for a run, in the embedding. "prediction": the covariance that a run trained with
            `objective.uncertainty` predicts.
        known: Images to measure distances from, such as the pretraining images (at most 10,000,
            sampled); by default the set itself.
        labels: Whether to check labels.
        target: The labels to check if the set has several kinds; by default the first.
        ignore: Changes that should not count, for distances and probes: operators, properties such
            as color, or "all".
        seed: Seed of the folds that check labels.

    Returns:
        A row for each image, the farthest first: `path`; `score`, from 0 to 1 over these images;
        and, comparable between calls, `distance` (one minus the cosine to the fifth nearest other
        image, copies counted once; for a run, the mean of the representation's and the embedding's
        cosine) or `trace` (of the predicted covariance). If labels are checked, also `label`;
        `suggested`, another class if the label is suspect; and `quality`, the label's out-of-fold
        probability, empty for a class with a single image. Images that cannot be decoded come last;
        the last column, `broken`, says why.
    """
    encoder = or_default(encoder, data)
    if known is not None and by != "neighbours":
        raise UserError("known images are for neighbours: leave known out, or by")
    if target is not None and not labels:
        raise UserError("target is for labels: leave it out, or check labels")
    import numpy as np
    import torch

    from mast.core.compute import Compute
    from mast.core.launch import find_device
    from mast.data import DataConfig, open_photos
    from mast.data.photos import opener
    from mast.encoders.extract import extract
    from mast.encoders.load import EncoderOptions, source_name
    from mast.evaluation.label_errors import checked_labels
    from mast.invariance.choice import InvarianceChoice
    from mast.search.duplicates import first_copies
    from mast.search.outliers import distances

    invariances = InvarianceChoice(ignore, match, space)
    if invariances.names and by != "neighbours":
        raise UserError("ignore, match and space are for neighbours: leave them out, or by")
    file = listing_file(out, "path", "score", tuple(COLUMN.values()))
    compute = Compute(find_device(device))
    photos = opener(DataConfig(str(data), max_broken=max_broken))
    options = EncoderOptions(encoder, size, weights, download, untrained)
    frozen_encoder, dim, size = _encoder(options, invariances, compute, photos)
    module = _uncertainty(encoder) if by == "prediction" else None
    bank = None
    if known is not None:
        config = DataConfig(str(known), max_broken=max_broken)
        bank = open_photos(config, size, frozen_encoder.module)
    if bank is not None and len(bank) > KNOWN:
        bank = bank.part(np.sort(np.random.default_rng(0).permutation(len(bank))[:KNOWN]))
    reading = bank.reading if bank is not None and bank.reading.layout.deep else None
    whole = frozen_encoder.whole or frozen_encoder
    canvases = photos(size, frozen_encoder.module, whole.see, reading)
    labelled = _labels(canvases, target) if labels else None
    needed = labelled is not None or (module is None and bank is None)
    first_N = first_copies(canvases) if needed else np.arange(len(canvases))
    if module is not None:
        value_N = extract(module, canvases, size, compute)[:, 0].numpy()
    else:
        unit_ND = _unit(frozen_encoder.features(canvases, size), dim).to(frozen_encoder.device)
        bank_ND, first_B = unit_ND, first_N
        if bank is not None:
            bank_ND = _unit(frozen_encoder.features(bank, size), dim).to(unit_ND.device)
            first_B = first_copies(bank)
        once_B, of_B = map(torch.from_numpy, np.unique(first_B, return_inverse=True))
        own_N = of_B.to(unit_ND.device) if bank is None else None
        value_N = distances(bank_ND[once_B], unit_ND, own_N).cpu().numpy()
    if not np.isfinite(value_N).all():
        raise UserError(f"{source_name(encoder)} gives numbers that are not finite: it diverged")
    largest = max(np.abs(value_N).max(), module is None)  # distances are rounded as cosines are
    if len(value_N) > 1 and np.ptp(value_N) <= 1e-6 * largest:
        raise UserError(
            f"{source_name(encoder)} finds every image equally far from the others: no ranking"
        )
    checked = None
    if labelled is not None:
        features_ND = frozen_encoder.features(canvases, size)[:, :dim].to(frozen_encoder.device)
        checked = checked_labels(canvases.units, *labelled, features_ND, first_N, seed)
    return _listed(canvases, value_N, COLUMN[by], checked, file)


def _encoder(
    options: EncoderOptions,
    invariances: InvarianceChoice,
    compute: Compute,
    photos: Callable[..., CanvasSet],
) -> tuple[FrozenEncoder, int | None, int]:
    """The encoder, the dimensions of its representation, and the side of a view.

    Behind the representation of a run is its embedding; else there is no more, and they are None.
    """
    from torch import nn

    from mast.encoders.load import frozen, load
    from mast.invariance.choice import load_search_encoder
    from mast.methods import MethodOutput
    from mast.runs.load import load_method

    run = options.run
    if (
        invariances.names
        or isinstance(run, nn.Module)
        or options.weights is not None
        or not RunFolder(run).config.is_file()
    ):
        by = load_search_encoder(options, invariances, compute, photos=photos)
        return by.encoder, None, by.size
    loaded, method = load(run, options.size), load_method(run)
    described = {**loaded.description, "with embedding": plain(method.config)}
    both = loaded._replace(module=MethodOutput(method, "both").eval(), description=described)
    return frozen(both, run, compute), method.encoder.dim, loaded.size


def _uncertainty(encoder: EncoderLike) -> MethodOutput:
    """What a run predicts of an image beside its embedding, in evaluation mode."""
    from torch import nn

    from mast.methods import MethodOutput
    from mast.runs.load import load_method

    if isinstance(encoder, nn.Module):
        raise UserError("a module predicts no covariance: give a run folder, or leave by out")
    return MethodOutput(load_method(encoder), "uncertainty").eval()


def _unit(features_ND: Tensor, dim: int | None) -> Tensor:
    """Features of which a cosine is the mean of the representation's and the embedding's."""
    import torch

    from mast.search.nearest import directions

    if dim is None:
        return features_ND
    parts = (features_ND[:, :dim], features_ND[:, dim:])
    return torch.cat([directions(part) for part in parts], dim=1)


def _labels(canvases: CanvasSet, target: str | None) -> tuple[np.ndarray, Sequence[str]] | None:
    """The labels to check, and the names of their classes; None where there are none."""
    from mast.data import UNLABELLED

    if not canvases.targets:
        if target is not None:
            raise UserError(f"{canvases.name} has no labels: leave target out")
        return None
    if target is not None and target not in canvases.targets:
        raise unknown(f"labels of {canvases.name}", target, canvases.targets)
    name = next(iter(canvases.targets)) if target is None else target
    label_N, classes = canvases.targets[name], canvases.classes[name]
    if without := int((label_N == UNLABELLED).sum()):
        _log.warning("%s: images without a label: %d of %d", canvases.name, without, len(label_N))
    return label_N, classes


def _listed(
    canvases: CanvasSet,
    value_N: np.ndarray,
    column: str,
    checked: Checked | None,
    file: Path | None,
) -> Listing:
    """All images, the farthest first, in a table or on a page."""
    from mast.evaluation.label_errors import Checked
    from mast.page import GalleryRow, Item
    from mast.search.outliers import rescaled

    order_N = (-value_N).argsort(kind="stable")
    ranked: Columns = {
        "path": canvases.identifiers,
        "score": rescaled(value_N, value_N).tolist(),
        column: value_N.tolist(),
    }
    sections: dict[str, Sequence[int]] = {FARTHEST: range(len(order_N))}
    if checked is not None:
        ranked = {**ranked, **checked.columns}
        sections[checked.heading] = order_N.argsort()[checked.suspects].tolist()
    ordered = {name: [values[at] for at in order_N] for name, values in ranked.items()}
    columns = with_broken(ordered, canvases.skipped)

    def rows() -> list[GalleryRow]:
        """The farthest, then a row for each label and what is suggested instead."""
        items: dict[str, list[Item]] = {
            FARTHEST: [Item(canvases, at, f"{column} {value_N[at]:.3g}") for at in order_N.tolist()]
        }
        about = Checked({}, [], "") if checked is None else checked
        for at in about.suspects:
            label, suggested, quality = (of[at] for of in about.columns.values())
            item = Item(canvases, at, f"quality {quality:.2f}")
            items.setdefault(f"Labelled {label}, perhaps {suggested}", []).append(item)
        return [GalleryRow(each, of) for each, of in items.items()]

    lead = f"{images_of(canvases.name, len(canvases), canvases.skipped)}. First those that fit in "
    lead += "least." + (f" Then {checked.heading}." if checked is not None else "")
    write_listing(file, columns, "Outliers", lead, rows)
    from mast.page import Thumbnails

    return Listing(columns, sections, file, picture=Thumbnails(canvases))
