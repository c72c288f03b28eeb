"""Images ranked by how unsure a run is of them, for people who look through data."""

from pathlib import Path
from typing import Literal, get_args

import numpy as np

from mast.analyses.uncertainty import rescaled
from mast.config import PretrainConfig, configuration_of
from mast.core.errors import UserError, unknown
from mast.core.launch import Device, find_device
from mast.core.run import RunFolder
from mast.core.table import safe_cell, write_csv
from mast.data import CanvasSet, DataConfig, open_canvas
from mast.measure.compute import Compute
from mast.measure.features import extract
from mast.measure.result import readable
from mast.measure.unlike import distances
from mast.methods import EncoderAndEmbedding, PredictedUncertainty
from mast.runs.load import load_method

By = Literal["neighbours", "prediction"]
COLUMN = {"neighbours": "distance", "prediction": "trace"}
KNOWN = 10_000  # images at most among which neighbours are looked for


def uncertain(
    run: str | Path,
    data: str,
    out: str | Path | None = None,
    size: int | None = None,
    device: Device = "auto",
    by: By = "neighbours",
    known: str | None = None,
) -> Path:
    """Rank images by how unsure the run is of them, the least certain first.

    Args:
        run: A run folder.
        data: The images; labels are not needed.
        out: The table; `<set>-uncertainty.csv` in the current folder if not given.
        size: Side of the views in pixels; that of pretraining if not given.
        device: auto, cpu or cuda.
        by: "neighbours": how far from the known images an image lies, in the representation and
            the embedding, for a run of any method; or the paper's "prediction": the covariance that
            a method predicts which was trained with `objective.uncertainty`.
        known: The images among which neighbours are looked for; those that the run was trained
            on if not given. If there are more than 10,000, as many are drawn at random.

    Returns:
        A CSV file with the columns `path` (as in the set; with a single quote before a name that a
        spreadsheet would run as a formula), `score` (from 0 to 1 over these
        images) and, comparable between calls, `distance` (one minus the cosine to the fifth nearest
        known image, itself apart; the cosine is the mean of the representation's and the
        embedding's) or `trace` (of the predicted covariance).

    Raises:
        UserError: No such run or images, or the run predicts no uncertainty, or the same for every
            image.
    """
    if by not in get_args(By):
        raise unknown("way to tell the uncertainty", by, get_args(By))
    if known is not None and by != "neighbours":
        raise UserError("known images are for neighbours: leave known out, or by")
    folder = RunFolder(run).require()
    config = configuration_of(folder)
    method = load_method(folder.path)
    size = config.size if size is None else size
    kind = EncoderAndEmbedding if by == "neighbours" else PredictedUncertainty
    module, compute = kind(method).eval(), Compute(find_device(device))
    bank = _known_images(config, known, size) if by == "neighbours" else None
    canvases = open_canvas(DataConfig(data), size)
    output_ND = extract(module, canvases, size, compute)
    if bank is not None:
        output_ND = distances(extract(module, bank, size, compute), output_ND)[:, None]
    value_N = output_ND.squeeze(1).numpy()
    if not np.isfinite(value_N).all():
        raise UserError(f"what {folder.path} says of these images is not finite: it diverged")
    if len(value_N) > 1 and np.ptp(value_N) == 0:
        raise UserError(f"{folder.path} says the same of every image: no ranking")
    score_N = rescaled(value_N, value_N)
    target = Path(f"{readable(data)}-uncertainty.csv" if out is None else out)
    rows = (
        (safe_cell(canvases.identifiers[at]), f"{score_N[at]:.6f}", f"{value_N[at]:.6g}")
        for at in (-value_N).argsort(kind="stable")
    )
    write_csv(target, ("path", "score", COLUMN[by]), rows)
    return target


def _known_images(config: PretrainConfig, known: str | None, size: int) -> CanvasSet:
    """Those that are named, or that a run was trained on; some of very many."""
    try:
        bank = open_canvas(config.data if known is None else DataConfig(known), size)
    except UserError as error:
        hint = " Name other known images by known." if known is None else ""
        raise UserError(f"the images that are known: {error}{hint}") from error
    if len(bank) <= KNOWN:
        return bank
    return bank.subset(np.sort(np.random.default_rng(0).permutation(len(bank))[:KNOWN]))
