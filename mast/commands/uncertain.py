"""Images ranked by how unsure a run is of them, for people who clean data."""

import csv
import io
from pathlib import Path

import numpy as np

from mast.analyses.uncertainty import rescaled
from mast.config import read
from mast.core.checkpoint import write_text
from mast.core.errors import UserError
from mast.core.launch import Device, find_device
from mast.core.run import RunFolder
from mast.data import DataConfig, open_canvas
from mast.measure.compute import Compute
from mast.measure.features import extract
from mast.measure.result import readable
from mast.methods import PredictedUncertainty
from mast.runs.load import load_method


def uncertain(
    run: str | Path,
    data: str,
    out: str | Path | None = None,
    size: int | None = None,
    device: Device = "auto",
) -> Path:
    """Rank images by how unsure the run is of them, the least certain first.

    Args:
        run: A run folder of a method that predicts an uncertainty.
        data: The images; labels are not needed.
        out: The table; `<set>-uncertainty.csv` in the current folder if not given.
        size: Side of the views in pixels; that of pretraining if not given.
        device: auto, cpu or cuda.

    Returns:
        A CSV file with the columns `path` (as in the set), `score` (from 0 to 1 over these
        images) and `trace` (of the predicted covariance, comparable between calls).

    Raises:
        UserError: No such run or images, or the run predicts no uncertainty, or the same for every
            image.
    """
    folder = RunFolder(run).require()
    module = PredictedUncertainty(load_method(folder.path)).eval()
    size = read(folder.config).size if size is None else size
    canvases = open_canvas(DataConfig(data), size)
    trace_N = extract(module, canvases, size, Compute(find_device(device))).squeeze(1).numpy()
    if not np.isfinite(trace_N).all():
        raise UserError(f"the uncertainty that {folder.path} predicts is not finite: it diverged")
    if len(trace_N) > 1 and np.ptp(trace_N) == 0:
        raise UserError(f"{folder.path} predicts the same uncertainty for every image: no ranking")
    score_N = rescaled(trace_N, trace_N)
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(("path", "score", "trace"))
    for at in (-trace_N).argsort(kind="stable"):
        table.writerow((canvases.identifiers[at], f"{score_N[at]:.6f}", f"{trace_N[at]:.6g}"))
    target = Path(f"{readable(data)}-uncertainty.csv" if out is None else out)
    write_text(target, text.getvalue())
    return target
