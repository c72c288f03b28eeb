"""Find the images of a folder that are there more than once."""

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from torch import nn

from mast.core.entry import entry
from mast.core.errors import UserError
from mast.core.files import out_file
from mast.core.launch import Device, find_device
from mast.core.tabular import Columns, Listing, begins, images_of, write_table
from mast.data import CanvasSet, DataConfig, open_canvas
from mast.measure.compute import Compute
from mast.measure.duplicates import NEAR, Copy, copies_within
from mast.page import Item, Row, is_page, write_gallery
from mast.runs.features import Invariances, compared


@entry(draws=True)
def duplicates(
    encoder: str | Path | nn.Module,
    data: str | Path,
    above: float = NEAR,
    out: str | Path | None = None,
    size: int | None = None,
    device: Device = "auto",
    weights: str | Path | None = None,
    download: bool = False,
    seed: int = 0,
    max_broken: float = 1.0,
) -> Listing:
    """Find groups of exact copies and of near-copies in a set.

    Exact copies have the same pixels, at the size to which images are resized for the encoder.
    Near-copies look almost the same to the encoder: they were compressed again, resized, cropped or
    brightened a little. All pairs are compared.

    Args:
        encoder: A run folder, an `encoder.safetensors`, a checkpoint of another project, or a
            timm or torchvision name; a tag, as in `timm:resnet18.a1_in1k`, names weights too. In
            Python also a module from images (B, 3, H, W), RGB in [0, 1], to (B, D).
        data: The images; labels are not needed.
        above: Cosine of two images, each dimension of their representation standardised by the
            set, above which they are near-copies.
        out: Where to write the groups: a table that ends in .csv or .parquet (which needs the extra
            of that name), or a page of thumbnails that ends in .html; nowhere if not given.
        size: Side of the views in pixels; that of pretraining if not given. A module needs one.
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
        may be a chain whose ends are less similar than `above`.

    Raises:
        UserError: No such encoder or images, a cosine that cannot be, or a file that cannot be
            written.
    """
    if not -1 <= above <= 1:
        raise UserError(f"above is a cosine, from -1 to 1, got {above:g}")
    table = begins("group", "path", "kind", "cosine")
    kinds = {".csv": table, ".parquet": table, ".html": is_page}
    file = None if out is None else out_file(out, kinds)
    compute = Compute(find_device(device))
    by = compared(encoder, Invariances(), compute, size, seed, weights, download)
    canvases = open_canvas(
        DataConfig(str(data), max_broken=max_broken), by.size, model=by.encoder.module
    )
    features_ND = by.features(canvases).to(by.encoder.device)
    found = copies_within(canvases, features_ND, above)
    columns: Columns = {
        "group": [copy.group for copy in found],
        "path": [canvases.identifiers[copy.position] for copy in found],
        "kind": [copy.kind for copy in found],
        "cosine": [copy.cosine for copy in found],
    }
    said = _said(found, canvases)
    if file is not None and file.suffix == ".html":
        write_gallery(file, "Copies", said, _rows(found, canvases))
    elif file is not None:
        write_table(file, columns)
    return Listing(columns, {said: range(len(found))}, file)


def _said(found: Sequence[Copy], canvases: CanvasSet) -> str:
    kinds = [copy.kind for copy in found]
    return (
        f"{images_of(canvases.name, len(canvases), canvases.skipped)}: {kinds.count('first'):,} "
        f"are there more than once, with {kinds.count('exact'):,} exact copies and "
        f"{kinds.count('near'):,} near-copies."
    )


def _rows(found: Sequence[Copy], canvases: CanvasSet) -> list[Row]:
    """A row for each group, for the page."""
    return [
        Row(
            f"Group {group}",
            [
                Item(canvases, copy.position, _caption(copy), asked=copy.kind == "first")
                for copy in copies
            ],
        )
        for group, copies in groupby(found, key=lambda copy: copy.group)
    ]


def _caption(copy: Copy) -> str:
    return copy.kind if copy.kind == "first" else f"{copy.kind}, {copy.cosine:.4f}"
