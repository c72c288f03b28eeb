"""Analyse a run: arrays and figures in the run folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from rich.text import Text

from mast.commands.common import command, write_arrays
from mast.core.arguments import as_list
from mast.core.checkpoint import write_json
from mast.core.display import doing, track
from mast.core.errors import UserError, one_line, unknown
from mast.core.files import named, quoted
from mast.core.kinds import Device
from mast.core.run import RunFolder, read_optional
from mast.core.table import Shown, literal

if TYPE_CHECKING:
    from mast.analyses import Analysis, Subject
    from mast.analyses.figure import Figure

    Question: TypeAlias = tuple[str, Analysis]  # with its title


class Insight(NamedTuple):
    """The outcome of an analysis."""

    name: str
    title: str
    text: str  # what to see in the figure, or why there is none
    file: Path | None  # the arrays; the .png and .svg have the same name


class Insights(Shown, list[Insight]):
    """The outcomes of several analyses; those missing for the same reason are shown together."""

    def shown(self) -> Iterator[str | Text]:
        for (file, text), alike in groupby(self, lambda insight: (insight.file, insight.text)):
            yield literal("; ".join(insight.title for insight in alike), "bold")
            if file is not None:
                yield one_line(str(file))
            yield literal(f"{text}\n")


@command
def analyze(
    run: str | Path,
    data: str | Path | None = None,
    analyses: Sequence[str] | str = (),
    beside: Sequence[str | Path] | str | Path = (),
    images: int = 512,
    device: Device = "auto",
    seed: int = 0,
) -> Insights:
    """Analyze a run; write arrays and figures to `analysis/` in the run folder.

    Args:
        run: A run folder.
        data: Images, such as `flowers17/test`; of a dataset with `train` and `test`, the test
            images. Without it, only analyses that need no images run.
        analyses: Names of analyses (`mast show analyses`); all by default.
        beside: Other run folders to show next to this one on the same images, such as VICReg's.
        images: Number of images to sample at random.
        seed: Seed for sampling images and for the operators.

    Returns:
        One insight per analysis; its text says what is missing if the run cannot be analyzed.
    """
    if images < 1:
        raise UserError(f"images: expected 1 or more, got {images}")
    from mast.analyses import ANALYSES
    from mast.core.launch import find_device
    from mast.data import DataConfig
    from mast.evaluation.compare import short_names
    from mast.runs.subject import subject_of

    questions = registered(as_list(analyses) or [*ANALYSES])
    folder, *others = (RunFolder(each).require() for each in (run, *as_list(beside)))
    _, *called = short_names([each.path.resolve() for each in (folder, *others)])
    place = find_device(device)
    data = None if data is None else str(data)
    images_of = None if data is None else parts_of(data).get("test", data)
    looked_at = None if images_of is None else DataConfig(images_of, max_broken=1.0)
    subject = subject_of(folder, looked_at, images, place, seed)
    runs_beside = tuple(
        replace(subject_of(other, looked_at, images, place, seed), name=name)
        for other, name in zip(others, called, strict=True)
    )
    return insights_of(replace(subject, beside=runs_beside), questions, folder.analysis)


@command
def draw(run: str | Path, analysis: str) -> Figure:
    """The figure of a finished analysis, for a notebook.

    Args:
        run: A run folder that `analyze` was run on.
        analysis: One of its analyses, such as "masks"; the arrays are `analysis/masks.npz`.
    """
    from mast.analyses import read_arrays, understood

    _, question = registered([analysis])[analysis]
    file = RunFolder(run).require().analysis / f"{analysis}.npz"
    if not file.is_file():
        raise UserError(
            f"{file} does not exist; make it first: on the command line with "
            f"mast analyze {quoted(run)} --data SET, in Python with analyze(run, data)"
        )
    with understood(file):
        return question.draw(read_arrays(file))


def parts_of(data: str) -> dict[str, str]:
    """Train, val and test of a set that has both train and test; empty for images alone."""
    from mast.data.pieces import split_cut
    from mast.data.registry import describe

    if ("@" in data or "+" in data) and not named(split_cut(data)[0]).is_dir():
        return {}
    parts = describe(data).with_test().parts
    return dict(parts) if {"train", "test"} <= parts.keys() else {}


def registered(names: Sequence[str]) -> dict[str, Question]:
    """Analyses by name."""
    from mast.analyses import ANALYSES

    for name in names:
        if name not in ANALYSES:
            error = unknown("analysis", name, ANALYSES)
            raise UserError(f"{error} From a clone, `python -m paper analyze` has more.")
    return {name: (ANALYSES[name].title, ANALYSES[name].kind()) for name in names}


def insights_of(subject: Subject, analyses: Mapping[str, Question], folder: Path) -> Insights:
    """Run analyses into a folder; `missing.json` says why others are missing. Those come last."""
    shown = track(analyses, "", len(analyses), "analyses", even=False)
    insights = [_insight(name, *analyses[name], subject, folder) for name in shown]
    file = folder / "missing.json"
    reasons = read_optional(file)
    for insight in insights:
        reasons.pop(insight.name, None)
        if insight.file is None:
            reasons[insight.name] = insight.text
    write_json(file, reasons)
    return Insights(sorted(insights, key=lambda of: (of.file is None, of.file is None and of.text)))


def _insight(name: str, title: str, analysis: Analysis, subject: Subject, folder: Path) -> Insight:
    import numpy as np

    from mast.analyses.figure import save

    try:
        with doing(name):
            lacking = analysis.lacking(subject)
            arrays = {} if lacking is not None else analysis.compute(subject)
    except UserError as error:  # the encoder's features of the images are not finite
        lacking = str(error)
    if lacking is not None:
        return Insight(name, title, lacking, None)
    file = folder / f"{name}.npz"
    file.with_suffix(".svg").unlink(missing_ok=True)  # drawn from older arrays
    write_arrays(file, np.savez_compressed, arrays)
    save(analysis.draw(arrays), file)
    return Insight(name, title, analysis.caption(arrays), file)
