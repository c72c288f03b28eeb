"""Find the images of a folder that are there more than once."""

import math
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from torch import nn

from mast.core.entry import entry
from mast.core.errors import UserError
from mast.core.files import out_file
from mast.core.launch import Device, find_device
from mast.core.tabular import Listing, begins, images_of, write_table
from mast.data import CanvasSet, DataConfig, open_canvas
from mast.measure.compute import Compute
from mast.measure.duplicates import MARGIN, NEAR, SAME, Copy, copies_within
from mast.page import Item, Row, is_page, write_gallery
from mast.runs.features import Compared, Invariances, compared


@entry(draws=True)
def duplicates(
    encoder: str | Path | nn.Module,
    data: str | Path,
    above: float | None = None,
    out: str | Path | None = None,
    size: int | None = None,
    ignore: str | Sequence[str] = (),
    match: str | Sequence[str] = (),
    space: str | Path | None = None,
    margin: float = MARGIN,
    device: Device = "auto",
    weights: str | Path | None = None,
    download: bool = False,
    seed: int = 0,
    max_broken: float = 1.0,
) -> Listing:
    """Find groups of exact copies and of near-copies in a set.

    Exact copies have the same pixels, at the size to which images are resized for the encoder.
    Near-copies look almost the same to the encoder: they were compressed again, resized, cropped or
    brightened a little. Of an encoder that was adapted they may also be turned, mirrored, cropped
    or recolored, as far as that is ignored. All pairs are compared.

    Args:
        encoder: A run folder, an `encoder.safetensors`, a checkpoint of another project, or a
            timm or torchvision name; a tag, as in `timm:resnet18.a1_in1k`, names weights too. In
            Python also a module from images (B, 3, H, W), RGB in [0, 1], to (B, D). Or an .npz or
            .parquet with features of any model: `features` (N, D) and `paths` (N,), or what
            `mast embed` writes.
        data: The images; labels are not needed.
        above: Cosine above which two images are near-copies. If not given 0.99, each dimension of
            their representation being standardised by the set; 0.95 with ignore; with match or
            space only margin decides.
        out: Where to write the groups: a table that ends in .csv or .parquet (which needs the extra
            of that name), or a page of thumbnails that ends in .html; nowhere if not given.
        size: Side of the views in pixels; that of pretraining if not given. A module needs one.
        ignore: Of a folder that `mast adapt` wrote: operators, or properties such as orientation,
            in which copies may differ; "all" for all that were looked at.
        match: Likewise, the only ones by which images are compared, so that a gray version is no
            copy where color is matched.
        space: A .json file that `mast neighbours` wrote of pairs of images, which says how much
            each property counts, in place of ignore and match.
        margin: With ignore, match or space, pairs are near-copies, too, whose cosine exceeds by
            this much the mean cosine of both to their three nearest other images.
        device: auto, cpu or cuda.
        weights: A checkpoint with weights for the name; `order:FILE` matches weights of other names
            by their order and shapes. If not given, those that the name names, or random ones where
            it names none.
        download: Whether the weights that the name names may be downloaded.
        seed: Of the random weights of a name.
        max_broken: Share of the images that may be broken; those that are get listed and left out.

    Returns:
        A row for each image of a group: `group`, a number from 1; `path` in the set; `kind`, which
        is "first" for the group's first in the order of the set, "exact" for one with the same
        pixels as an image above it in the group, else "near"; and `cosine` to the first. A group
        may be a chain whose ends are less similar than `above`. Of an adapted encoder also
        `changed_by`, the property in which a near-copy probably differs from the first, such as
        "orientation", or "none" of those that were looked at, and its `probability`.

    Raises:
        UserError: No such encoder or images, a cosine that cannot be, a choice that the encoder
            does not have, or a file that cannot be written.
    """
    if above is not None and not -1 <= above <= 1:
        raise UserError(f"above is a cosine, from -1 to 1, got {above:g}")
    if not 0 < margin <= 2:
        raise UserError(f"margin is a difference of cosines, above 0 and up to 2, got {margin:g}")
    table = begins("group", "path", "kind", "cosine")
    kinds = {".csv": table, ".parquet": table, ".html": is_page}
    file = None if out is None else out_file(out, kinds)
    compute = Compute(find_device(device))
    invariances = Invariances(None, ignore, match, space=space)
    by = compared(encoder, invariances, compute, size, seed, weights, download)
    canvases = open_canvas(
        DataConfig(str(data), max_broken=max_broken), by.size, model=by.encoder.module
    )
    features_ND = by.features(canvases).to(by.encoder.device)
    chosen = bool(by.chosen)
    usual = NEAR if not chosen else SAME if [*by.chosen] == ["ignored"] else 1.0
    least = usual if above is None else above
    found = copies_within(canvases, features_ND, least, margin if chosen else None)
    columns: dict[str, Any] = {
        "group": [copy.group for copy in found],
        "path": [canvases.identifiers[copy.position] for copy in found],
        "kind": [copy.kind for copy in found],
        "cosine": [copy.cosine for copy in found],
    }
    changed = _changed_by(by, canvases, found)
    if by.adapted is not None:
        named = [changed.get(copy.position, ("", math.nan)) for copy in found]
        columns["changed_by"] = [name for name, _ in named]
        columns["probability"] = [probability for _, probability in named]
    said = _said(found, canvases)
    if file is not None and file.suffix == ".html":
        write_gallery(file, "Copies", said, _rows(found, canvases, changed))
    elif file is not None:
        write_table(file, columns)
    return Listing(columns, {said: range(len(found))}, file)


def _changed_by(
    by: Compared, canvases: CanvasSet, found: Sequence[Copy]
) -> dict[int, tuple[str, float]]:
    """What was changed of its group's first, and how probable that is, by position of near-copies.

    Nothing is known of encoders that were not adapted.
    """
    near = [copy for copy in found if copy.kind == "near"]
    if by.adapted is None or not near:
        return {}
    first = {copy.group: copy.position for copy in found if copy.kind == "first"}
    assert by.encoder.whole is not None
    features_NF = by.encoder.whole.features(canvases, by.size)
    ends = [[first[copy.group] for copy in near], [copy.position for copy in near]]
    named = by.adapted.changed_by(*(features_NF[places] for places in ends))
    return dict(zip(ends[1], named, strict=True))


def _said(found: Sequence[Copy], canvases: CanvasSet) -> str:
    kinds = [copy.kind for copy in found]
    return (
        f"{images_of(canvases.name, len(canvases), canvases.skipped)}: {kinds.count('first'):,} "
        f"are there more than once, with {kinds.count('exact'):,} exact copies and "
        f"{kinds.count('near'):,} near-copies."
    )


def _rows(
    found: Sequence[Copy], canvases: CanvasSet, changed: Mapping[int, tuple[str, float]]
) -> list[Row]:
    """A row for each group, for the page."""
    return [
        Row(
            f"Group {group}",
            [
                Item(canvases, copy.position, _caption(copy, changed), asked=copy.kind == "first")
                for copy in copies
            ],
        )
        for group, copies in groupby(found, key=lambda copy: copy.group)
    ]


def _caption(copy: Copy, changed: Mapping[int, tuple[str, float]]) -> str:
    if copy.kind == "first":
        return copy.kind
    name, probability = changed.get(copy.position, ("", 0.0))
    by = f", {name} {100 * probability:.0f} %" if name else ""
    return f"{copy.kind}, {copy.cosine:.4f}{by}"
