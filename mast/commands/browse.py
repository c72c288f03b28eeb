"""A page on which a set of images is searched, and what counts is chosen by a click."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mast.commands.common import command, open_search, or_default
from mast.core.errors import UserError
from mast.core.files import out_file
from mast.core.kinds import Device, EncoderLike

if TYPE_CHECKING:
    from torch import Tensor

    from mast.data import CanvasSet

MOST = 5000  # photos on a page


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
    max_broken: float = 1.0,
) -> Path:
    """Write a page of photos on which you choose what counts: neighbors, a map, copies, outliers.

    The page is one file that loads nothing. Each property (color, orientation, position, …) can be
    ignored or matched; the page then ranks all photos again. Above 5,000 photos, a sample is shown.

    Args:
        out: The page, an .html.

    Returns:
        The page.
    """
    encoder = or_default(encoder, data)
    from mast.page import is_page

    page = out_file(out, {".html": is_page}, "out")
    import numpy as np

    from mast.encoders.load import EncoderOptions
    from mast.invariance.choice import DEPTHS, InvarianceChoice
    from mast.invariance.measure import FEWEST
    from mast.invariance.reduced import reduced
    from mast.page.browse import Found, write_browser

    options = EncoderOptions(encoder, size, weights, download, untrained)
    by, canvases = open_search(options, data, InvarianceChoice(space=DEPTHS), device, max_broken)
    if by.adapted is None:
        raise UserError(f"data: expected {FEWEST} photos or more, got {len(canvases)}")
    lead = f"{len(canvases):,} photos of {canvases.name}."
    if len(canvases) > MOST:
        lead = f"{MOST:,} of {len(canvases):,} photos of {canvases.name}, drawn at random."
        drawn = np.random.default_rng(0).permutation(len(canvases))[:MOST]
        canvases = canvases.part(np.sort(drawn), canvases.name)
    features_NF = by.depths(canvases)
    last_ND = features_NF[:, -by.adapted.depths.widths[-1] :]
    found = Found(_copies(canvases, last_ND), _outliers(canvases, last_ND), [])
    space = reduced(features_NF, by.adapted.subspaces)
    write_browser(page, str(canvases.name), lead, canvases, space, found)
    return page


def _copies(canvases: CanvasSet, features_ND: Tensor) -> list[list[dict[str, Any]]]:
    """Groups of copies, those of certain copies first."""
    from itertools import groupby

    from mast.search.duplicates import copies_within

    groups = [
        [{"at": copy.position, "level": copy.level, "changes": copy.changes} for copy in group]
        for _, group in groupby(copies_within(canvases, features_ND), lambda copy: copy.group)
    ]
    levels = ("first", "exact", "near", "edited")
    return sorted(groups, key=lambda group: max(levels.index(each["level"]) for each in group))


def _outliers(canvases: CanvasSet, features_ND: Tensor) -> Sequence[tuple[int, float]]:
    """Photos and their distances, the farthest first."""
    import numpy as np
    import torch

    from mast.search.duplicates import first_copies
    from mast.search.outliers import distances

    once_B, of_N = map(torch.from_numpy, np.unique(first_copies(canvases), return_inverse=True))
    value_N = distances(features_ND[once_B], features_ND, of_N).numpy()
    return [(at, round(float(value_N[at]), 3)) for at in (-value_N).argsort(kind="stable").tolist()]
