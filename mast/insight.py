"""Looking into a run: its analyses as arrays and figures in the run folder."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
import yaml
from torch import Tensor

from mast.analyze import (
    ANALYSES,
    Arrays,
    ChangeBy,
    Images,
    Subject,
    Trial,
)
from mast.analyze.figure import save
from mast.augment import center_views
from mast.core.checkpoint import write_atomically, write_json
from mast.core.display import console
from mast.core.errors import UserError, unknown
from mast.core.launch import Device, find_device
from mast.core.run import RunFolder
from mast.data import CanvasSet, DataConfig, open_canvas
from mast.evaluate import FrozenEncoder, image_identity
from mast.evaluate.robust import changed_by
from mast.loading import load_method
from mast.measured import labelled, measure_missing, parts_of, results_of, scores_of
from mast.methods import Embedding, MastConfig, MethodConfig, PredictedUncertainty
from mast.recipes import read_config

if TYPE_CHECKING:
    from mast.analyze.figure import Figure

THUMBNAIL = 64  # pixels
MEASURED = ("linear", "embedding", "retained")  # what the analyses of a labelled set are made of


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
        analyses: Which: curves, masks, subspaces, invariance, advice, predictions, uncertainty;
            and the studies of which runs are finished: leave_one_out, growth, sensitivity, epochs.
        beside: Other run folders to stand beside this one on the same images, such as VICReg's.
        images: How many images are looked at, drawn at random.
        measure: Whether to probe the labelled set, as `mast evaluate` does by the protocols linear,
            embedding and retained, where that was not done before.
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
    shown = data if data is None else parts_of(data).get("test", data)
    if measure and data is not None and shown != data:
        try:
            measure_missing(folder, labelled(data, folder), device, seed, MEASURED)
        except UserError as error:  # features that are not finite: the other analyses go on
            console.print(f"not measured: {error}", style="yellow", highlight=False, markup=False)
    subject = subject_of(folder, shown, images, where, seed)
    others = tuple(
        subject_of(RunFolder(other).require(), shown, images, where, seed) for other in beside
    )
    return look(replace(subject, beside=others), analyses, folder.analysis)


def draw(run: str | Path, analysis: str) -> "Figure":
    """The figure of an analysis that was made, for a notebook.

    Args:
        run: A run folder in which `analyze` was.
        analysis: One of its analyses, such as "masks"; the arrays are `analysis/masks.npz`.

    Raises:
        UserError: An unknown analysis, or one that was not made.
    """
    if analysis not in ANALYSES:
        raise unknown("analysis", analysis, ANALYSES)
    file = RunFolder(run).require().analysis / f"{analysis}.npz"
    if not file.is_file():
        raise UserError(f"{file} is not there; make it first: mast analyze {run} --data SET")
    with np.load(file) as kept:
        return ANALYSES[analysis]().draw(dict(kept))


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
    try:
        lacking = analysis.lacking(subject)
        arrays = {} if lacking is not None else analysis.compute(subject)
    except UserError as error:  # what the encoder gives of the images is not finite
        lacking = str(error)
    if lacking is not None:
        return Insight(name, analysis.title, lacking, None)
    file = folder / f"{name}.npz"
    file.with_suffix(".svg").unlink(missing_ok=True)  # it would be of other arrays
    write_atomically(file, lambda partial: _write(partial, arrays))
    save(analysis.draw(arrays), file)
    return Insight(name, analysis.title, analysis.caption(arrays), file)


def _write(path: Path, arrays: Arrays) -> None:
    named: dict[str, Any] = dict(arrays)
    with path.open("wb") as file:
        np.savez_compressed(file, **named)


def subject_of(
    folder: RunFolder, data: str | None, images: int, device: torch.device, seed: int
) -> Subject:
    """A run as the analyses look at it.

    Args:
        folder: The run, with its checkpoint.
        data: The images that it is looked at with, if any.
        images: How many of them.
        device: Where they are embedded.
        seed: Of the choice of images and of the changes made to them.
    """
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
        scores=tuple(scores_of(folder)),
        coefficients=_coefficients(config.objective),
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
        embed=outputs(FrozenEncoder(embedding, device), chosen, size, seed),
    )
    if config.method != "mast" or not method.mode.uncertainty:  # type: ignore[union-attr]
        return subject
    unsure = outputs(FrozenEncoder(PredictedUncertainty(method).eval(), device), chosen, size, seed)
    return replace(subject, uncertainty=lambda change: unsure(change).squeeze(1))


def _coefficients(objective: MethodConfig) -> dict[str, float]:
    """MAST's three coefficients as they act, 0 where there is nothing that they weigh."""
    if not isinstance(objective, MastConfig):
        return {}
    mode = objective.resolved()
    return {
        "objective.masked_weight": mode.masked_weight,
        "objective.sparsity_weight": mode.sparsity_weight * (objective.masks == "learned"),
        "objective.kl_weight": mode.kl_weight * mode.uncertainty,
    }


def outputs(
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
        for result in results_of(folder)
        if result.protocol == "linear" and result.images == tested
        for target, measured in result.targets.items()
        if "top1" in measured.each
    }
    labels, classes = dict(chosen.targets), dict(chosen.classes)
    return Images(chosen.identifiers, thumbnails_NPP3, labels, classes, hits)


def _trials(folder: RunFolder) -> Iterator[Trial]:
    """The finished and measured runs of a run's studies, `studies/<trial>-seed<N>`."""
    for path in sorted(folder.studies.glob("*-seed*")):
        trial = RunFolder(path)
        name, _, seed = path.name.rpartition("-seed")
        if not seed.isdecimal():  # a copy that somebody put beside
            continue
        if trial.encoder.is_file() and any(trial.evaluations.glob("*.json")):
            epochs = yaml.safe_load(trial.config.read_text())["epochs"]
            yield Trial(name, int(seed), tuple(scores_of(trial)), epochs)
