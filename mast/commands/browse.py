"""A page on which a set is searched, and what counts is chosen by a click."""

from __future__ import annotations

from pathlib import Path

from mast.commands.common import command, open_search, opened, or_default
from mast.commands.duplicates import copies_view, groups_of
from mast.commands.outliers import labels_of, outlier_views
from mast.core.errors import UserError, counted
from mast.core.files import named, out_file
from mast.core.kinds import Device, EncoderLike
from mast.core.table import images_of


@command
def browse(
    data: str | Path,
    out: str | Path = "photos.html",
    encoder: EncoderLike | None = None,
    size: int | None = None,
    device: Device = "auto",
    weights: str | Path | None = None,
    download: bool = False,
    untrained: bool = False,
) -> Path:
    """Write a page on which you search photos and choose what counts, and open it.

    Click a photo to see its neighbors, then ignore or match its properties: color, orientation,
    position, focus, noise, parts. The page also has a map, copies, outliers and, in a set with
    labels, labels that may be wrong. It is one file, which you can send: it loads nothing.

    Args:
        data: The photos; of more than 5,000, a random sample is shown.
        out: The page, an .html.

    Returns:
        The page.
    """
    encoder = or_default(encoder, data)
    from mast.page import Searched, is_page, write_gallery

    page = out_file(out, {".html": is_page}, "out")
    import numpy as np

    from mast.data.pieces import split_cut
    from mast.encoders.load import EncoderOptions
    from mast.evaluation.label_errors import checked_labels
    from mast.invariance.choice import DEPTHS, InvarianceChoice
    from mast.invariance.measure import FEWEST
    from mast.page.gallery import PHOTOS
    from mast.search.duplicates import copies_within, first_copies
    from mast.search.outliers import distances
    from mast.search.preference import preferred
    from mast.search.reduced import reduced

    options = EncoderOptions(encoder, size, weights, download, untrained)
    by, photos = open_search(options, data, InvarianceChoice(space=DEPTHS), device)
    if by.adapted is None:
        raise UserError(f"data: expected {FEWEST} different photos or more, got {len(photos)}")
    lead = images_of(photos.name, len(photos), photos.skipped)
    if len(photos) > PHOTOS:
        lead += f"; {PHOTOS:,} of them, drawn at random"
        drawn = np.random.default_rng(0).permutation(len(photos))[:PHOTOS]
        photos = photos.part(np.sort(drawn))
    features_NF = by.depths(photos)
    space = reduced(features_NF, by.adapted.subspaces)
    features_ND = features_NF[:, -by.adapted.depths.widths[-1] :]
    order_N = preferred(photos, "largest", named(split_cut(str(data))[0]), None)
    ordered = photos.part(order_N)
    groups = groups_of([*copies_within(ordered, features_ND[order_N])], ordered)
    views = [copies_view(groups, ordered, f"{counted(len(groups), 'group')} of copies.")]
    first_N = first_copies(photos)
    distance_N = distances(features_ND, first_N).numpy()
    labelled = labels_of(photos)
    checked = labelled and checked_labels(photos.units, *labelled, features_ND, first_N, 0)
    views += outlier_views(photos, distance_N, checked, counted(len(photos), "photo"))
    title = photos.name.rstrip("/").rpartition("/")[2]
    write_gallery(page, title, views, Searched(photos, space), f"{lead}.")
    return opened(page)
