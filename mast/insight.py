"""Looking into a run: its analyses as arrays and figures in the run folder."""

import csv
import io
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from rich.table import Table
from torch import Tensor

from mast.analyze import (
    ANALYSES,
    Arrays,
    ChangeBy,
    Details,
    Images,
    Score,
    Subject,
    Trial,
)
from mast.analyze.figure import save
from mast.augment import center_views
from mast.core.checkpoint import write_atomically, write_json, write_text
from mast.core.errors import UserError, unknown
from mast.core.launch import Device, find_device
from mast.core.run import RunFolder
from mast.data import CanvasSet, DataConfig, describe, open_canvas
from mast.evaluate import FrozenEncoder, Result, extract, image_identity
from mast.evaluate.result import ENDS, readable
from mast.evaluate.robust import changed_by
from mast.loading import load_method
from mast.methods import Embedding, PredictedUncertainty
from mast.recipes import read_config
from mast.transfer import evaluate

THUMBNAIL = 64  # pixels
MEASURED = ("linear", "embedding")  # what the analyses of a labelled set are made of


class Insight(NamedTuple):
    """What an analysis gave.

    Attributes:
        name: Of the analysis.
        title: Its heading.
        text: What to see in the figure, or why there is none.
        file: The arrays, beside a .png and a .svg of the same name; None where there are none.
    """

    name: str
    title: str
    text: str
    file: Path | None


def analyze(
    run: str | Path,
    data: str | None = None,
    analyses: Sequence[str] = tuple(ANALYSES),
    beside: Sequence[str] = (),
    images: int = 512,
    measure: bool = True,
    device: Device = "auto",
    seed: int = 0,
) -> list[Insight]:
    """Look into a run: arrays first, then figures, in `analysis/` of the run folder.

    Args:
        run: A run folder with its checkpoint.
        data: A labelled set with `train` and `test`, of which the test images are looked at and
            the others are what probes learn from; or images alone, such as `flowers17/test`.
            Without any, the analyses that need none are made.
        analyses: Which: curves, masks, subspaces, invariance, predictions, uncertainty.
        beside: Other run folders to stand beside this one on the same images, such as VICReg's.
        images: How many images are looked at, drawn at random.
        measure: Whether to probe the labelled set, as `mast evaluate` does by the protocols linear
            and embedding, where that was not done before.
        device: auto, cpu or cuda.
        seed: Of the images and of the changes that are made to them.

    Returns:
        One insight an analysis; what the run lacks for one is said in its text.

    Raises:
        UserError: No run, or no images, at that place; an unknown analysis.
    """
    for name in analyses:
        if name not in ANALYSES:
            raise unknown("analysis", name, ANALYSES)
    if images < 1:
        raise UserError(f"images must be 1 or more, got {images}")
    folder = RunFolder(run).require()
    where = find_device(device)
    parts = {} if data is None else _parts(data)
    shown = parts.get("test", data)
    if measure and data is not None and "train" in parts:
        _measure(folder, data, shown, device, seed)
    subject = _subject(folder, shown, images, where, seed)
    others = tuple(
        _subject(RunFolder(other).require(), shown, images, where, seed) for other in beside
    )
    return look(replace(subject, beside=others), analyses, folder.analysis)


@dataclass(frozen=True)
class Advice:
    """Which augmentations the tasks of a set want; see `mast.analyze.predictions.Predictions`.

    Attributes:
        text: In words.
        details: One row a task and operator, best operator first.
        arrays: What it is computed from.
    """

    text: str
    details: Details
    arrays: Arrays

    def table(self) -> Table:
        """A table for a rich console."""
        grid = self.details.grid
        assert grid is not None
        shown = Table(title="Which augmentations each task wants (%, 95 % intervals)")
        for at, column in enumerate(grid.columns):
            shown.add_column(column, justify="right" if 2 <= at <= 5 else "left")
        task = None
        for row in grid.rows:
            cells = [f"{cell:.1f}" if isinstance(cell, float) else str(cell) for cell in row]
            if row[0] == task:
                cells[0] = ""
            elif task is not None:
                shown.add_section()
            task = row[0]
            shown.add_row(*cells)
        return shown


def advise(run: str | Path, data: str, device: Device = "auto", seed: int = 0) -> Advice:
    """Say which augmentations a labelled task wants, from one trained run.

    A linear probe on the embedding is asked for the class of each test image by one operator's
    subspace at a time: the more of the true class's probability an operator's subspace keeps, the
    less the task needs what that operator destroys. The paper offers this in place of training
    once without each operator, which `mast study leave_one_out` does.

    Args:
        run: A run folder of a method with masks.
        data: A labelled set with `train` and `test`.
        device: auto, cpu or cuda.
        seed: Of the probe.

    Returns:
        The advice, which also becomes the analysis `predictions` of the run.

    Raises:
        UserError: No run or no set there, or the run has no masks.
    """
    folder = RunFolder(run).require()
    parts = _parts(data)
    if "train" not in parts:
        raise UserError(f"{data} has no train and test images with labels: advice needs both")
    analysis = ANALYSES["predictions"]()
    subject = _subject(folder, None, 0, find_device(device), seed)
    if subject.mask_DK is None:
        raise UserError(f"{folder.path}: {analysis.lacking(subject)}")
    canvases = open_canvas(DataConfig(parts["test"]), load_size(folder))
    _measure(folder, data, parts["test"], device, seed, ("embedding",))
    tested = image_identity(canvases)
    scores = tuple(_scores(folder, lambda result: result.images == tested))
    subject = replace(subject, scores=scores)
    lacking = analysis.lacking(subject)
    if lacking is not None:
        raise UserError("the probe classifies no test image correctly: there is nothing to ask")
    arrays = analysis.compute(subject)
    look(replace(subject, scores=tuple(_scores(folder))), ("predictions",), folder.analysis)
    return Advice(analysis.caption(arrays), analysis.details(arrays), arrays)


def uncertain(
    run: str | Path,
    data: str,
    out: Path | None = None,
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
        UserError: No run or images there, or the run predicts no uncertainty.
    """
    folder = RunFolder(run).require()
    module = PredictedUncertainty(load_method(folder.path)).eval()
    size = load_size(folder) if size is None else size
    canvases = open_canvas(DataConfig(data), size)
    trace_N = extract(module, canvases, size, device=find_device(device)).squeeze(1).numpy()
    if not np.isfinite(trace_N).all():
        raise UserError(f"the uncertainty that {folder.path} predicts is not finite: it diverged")
    score_N = (trace_N - trace_N.min()) / max(float(np.ptp(trace_N)), 1e-12)
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(("path", "score", "trace"))
    for at in (-trace_N).argsort(kind="stable"):
        table.writerow((canvases.identifiers[at], f"{score_N[at]:.6f}", f"{trace_N[at]:.6g}"))
    if out is None:
        out = Path(f"{readable(data)}-uncertainty.csv")
    write_text(out, text.getvalue())
    return out


def load_size(folder: RunFolder) -> int:
    """Side in pixels of the views that a run was trained with."""
    return read_config(folder.config).size


def _parts(data: str) -> dict[str, str]:
    """Train, val and test of a set that has both train and test; nothing of images alone."""
    if "@" in data or "+" in data:
        return {}
    parts = describe(data).parts
    return dict(parts) if {"train", "test"} <= parts.keys() else {}


def _measure(
    folder: RunFolder,
    data: str,
    test: str | None,
    device: Device,
    seed: int,
    protocols: Sequence[str] = MEASURED,
) -> None:
    """Probe a labelled set by the protocols that were not run on it before."""
    assert test is not None
    canvases = open_canvas(DataConfig(test), load_size(folder))
    if not canvases.targets:
        return
    tested = image_identity(canvases)
    done = {result.protocol for result in _results(folder) if result.images == tested}
    missing = [name for name in protocols if name not in done]
    if missing:
        evaluate(folder.path, data, missing, device=device, seed=seed)


def look(subject: Subject, analyses: Sequence[str], folder: Path) -> list[Insight]:
    """Make analyses of a subject.

    Args:
        subject: What is looked at.
        analyses: Which.
        folder: Where their arrays and figures go; `missing.json` there says why others have none.

    Returns:
        One insight an analysis.
    """
    insights = [_look(name, subject, folder) for name in analyses]
    file = folder / "missing.json"
    reasons = json.loads(file.read_text()) if file.is_file() else {}
    for insight in insights:
        reasons.pop(insight.name, None)
        if insight.file is None:
            reasons[insight.name] = insight.text
    write_json(file, reasons)
    return insights


def _look(name: str, subject: Subject, folder: Path) -> Insight:
    analysis = ANALYSES[name]()
    lacking = analysis.lacking(subject)
    if lacking is not None:
        return Insight(name, analysis.title, lacking, None)
    arrays = analysis.compute(subject)
    file = folder / f"{name}.npz"
    write_atomically(file, lambda partial: _write(partial, arrays))
    save(analysis.draw(arrays), file)
    return Insight(name, analysis.title, analysis.caption(arrays), file)


def _write(path: Path, arrays: Arrays) -> None:
    named: dict[str, Any] = dict(arrays)
    with path.open("wb") as file:
        np.savez_compressed(file, **named)


def _subject(
    folder: RunFolder, data: str | None, images: int, device: torch.device, seed: int
) -> Subject:
    """A run as the analyses look at it."""
    config = read_config(folder.config)
    method = load_method(folder.path)
    embedding = Embedding(method).eval()
    with torch.no_grad():
        mask_DK = embedding.masks()
    schedule = config.schedule
    stages: tuple[tuple[str, float], ...] = ()
    if schedule.staged:
        stages = (
            ("operators begin to compose", schedule.stage1 * config.epochs),
            ("all operators act", schedule.full * config.epochs),
        )
    subject = Subject(
        name=folder.path.resolve().name,
        method=config.method,
        trained_with=config.preset.operators,
        operators=embedding.operators,
        mask_DK=mask_DK,
        epochs=config.epochs,
        stages=tuple(stage for stage in stages if 0 < stage[1] < config.epochs),
        log=folder.read_metrics(),
        scores=tuple(_scores(folder)),
        trials=tuple(_trials(folder)),
    )
    if data is None:
        return subject
    size = config.size
    canvases = open_canvas(DataConfig(data), size)
    order_N = np.random.default_rng(seed).permutation(len(canvases))
    index_N = np.sort(order_N[:images])
    chosen = canvases.subset(index_N)
    subject = replace(
        subject,
        images=_images(folder, canvases, chosen, index_N),
        embed=_outputs(FrozenEncoder(embedding, device), chosen, size, seed),
    )
    if config.method != "mast" or not method.mode.uncertainty:  # type: ignore[union-attr]
        return subject
    unsure = _outputs(
        FrozenEncoder(PredictedUncertainty(method).eval(), device), chosen, size, seed
    )
    return replace(subject, uncertainty=lambda change: unsure(change).squeeze(1))


def _outputs(
    encoder: FrozenEncoder, canvases: CanvasSet, size: int, seed: int
) -> Callable[[ChangeBy | None], Tensor]:
    """What a module says of the images as they are, which is kept, or after an operator."""

    def outputs(change: ChangeBy | None) -> Tensor:
        if change is None:
            return encoder.features(canvases, size)
        return encoder.take(canvases, size, changed_by(*change, size, len(canvases), seed))

    return outputs


def _images(
    folder: RunFolder, canvases: CanvasSet, chosen: CanvasSet, index_N: np.ndarray
) -> Images:
    """Thumbnails and labels of the chosen images, and whether the linear probe is right."""
    canvas_NHWC, aspect_N = chosen.batch(np.arange(len(chosen)))
    view_NCHW = center_views(canvas_NHWC, aspect_N, THUMBNAIL)
    thumbnails_NPP3 = (view_NCHW * 255 + 0.5).to(torch.uint8).permute(0, 2, 3, 1).numpy()
    tested = image_identity(canvases)
    hits = {
        target: measured.each["top1"].numpy()[index_N]
        for result in _results(folder)
        if result.protocol == "linear" and result.images == tested
        for target, measured in result.targets.items()
        if "top1" in measured.each
    }
    labels, classes = dict(chosen.targets), dict(chosen.classes)
    return Images(chosen.identifiers, thumbnails_NPP3, labels, classes, hits)


def _results(folder: RunFolder) -> Iterator[Result]:
    for file in sorted(folder.evaluations.glob("*.json")):
        yield Result.read(file)


def _scores(folder: RunFolder, which: Callable[[Result], bool] = lambda _: True) -> Iterator[Score]:
    """What was measured of a run."""
    for result in _results(folder):
        if not which(result):
            continue
        for target, measured in result.targets.items():
            for measure, value in measured.values.items():
                if not measure.endswith(ENDS):
                    low, high = (measured.values.get(f"{measure}{end}") for end in ENDS)
                    name = readable(result.set_name)
                    yield Score(result.protocol, name, target, measure, value, low, high)


def _trials(folder: RunFolder) -> Iterator[Trial]:
    """The finished and measured runs of a run's studies, `studies/<trial>-seed<N>`."""
    for path in sorted(folder.studies.glob("*-seed*")):
        trial = RunFolder(path)
        if trial.encoder.is_file() and any(trial.evaluations.glob("*.json")):
            name, _, seed = path.name.rpartition("-seed")
            yield Trial(name, int(seed), tuple(_scores(trial)))
