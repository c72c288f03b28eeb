"""The demonstration: what methods keep of images of which the views destroy the colour."""

import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.box import SIMPLE

from mast.commands.analyze import analyze
from mast.commands.evaluate import evaluate
from mast.commands.report import report
from mast.commands.together import pretrain_together
from mast.core.display import say
from mast.core.entry import entry
from mast.core.launch import Device
from mast.core.run import RunFolder
from mast.core.table import FittedTable, Shown
from mast.data.toys import CLASSES
from mast.measure.result import PRECISION, TOLD
from mast.recipes import configure
from mast.studies.forgetting import DOUBLE, ONCE, PROJECTOR, SHARE, probed
from mast.studies.small_runs import NARROWER

SIZE = 32
VIEWS = "forget_color"
BLOCK = "color_jitter+grayscale"  # as `retrieval` names the operators that destroy the colour
ANALYSED = 192  # images of the analyses
ANALYSES = ("curves", "neighbours", "masks", "subspaces", "invariance")  # what takes seconds
# By column: recipe, folder, objective. MAST predicts twice, so that each weighs half as much.
RUNS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "VICReg": ("vicreg5_small", "vicreg", {}),
    "VICReg + prediction": ("vicreg5_augself_small", "augself", DOUBLE),
    "MAST": ("mast5_small", "mast", {**ONCE, "exempt_share": SHARE}),
}

Scores = dict[str, dict[str, float]]  # in percent, by task and column


@dataclass(frozen=True, repr=False)
class DemoResult(Shown):
    """What the demonstration measured.

    Attributes:
        run: The run folder of MAST.
        page: What was learned, on one page.
        accuracy: Linear accuracy of the representations.
        precision: Share of the ten nearest test images that have the query's label.
    """

    run: RunFolder
    page: Path
    accuracy: Scores
    precision: Scores

    def tables(self) -> list[FittedTable]:
        """Both, for a rich console."""
        return [
            _table("Linear accuracy (%)", self.accuracy, mean=True),
            _table("The ten nearest images that share it (%)", self.precision, mean=False),
        ]

    def shown(self) -> tuple[str | FittedTable, ...]:
        """Both, and the page."""
        return *self.tables(), f"open it in a browser: {self.page}"


@entry(draws=True)
def demo(
    out: str | Path = "runs/demo",
    epochs: int = 5,
    images: int = 8192,
    seed: int = 0,
    device: Device = "auto",
) -> DemoResult:
    """Pretrain VICReg, VICReg with prediction, and MAST where the views destroy the colour.

    Every image has six factors (shape, colour, orientation, position, texture, sharpness), each a
    task of its own. The views turn the hue anywhere, so that an encoder that has to be invariant to
    them cannot keep the colour. Beside VICReg there is VICReg that has to predict how the colours
    of the views differ, and MAST, a few of whose dimensions are exempt from the invariance and have
    to tell the same, as has its representation.

    Args:
        out: Folder of the runs.
        epochs: Passes over the images, for each of the three.
        images: Number of training images.
        seed: Seed of all runs.
        device: auto, cpu or cuda.

    Returns:
        Accuracies, precisions, the run folder of MAST and its page.
    """
    runs = pretrain_together({
        column: configure(
            recipe,
            out=str(Path(out) / folder),
            data=f"toys@train:{images}",
            views=VIEWS,
            size=SIZE,
            encoder=NARROWER,
            objective={"projector": PROJECTOR, **own},
            epochs=epochs,
            seed=seed,
            device=device,
            score_every=epochs,
        )
        for column, (recipe, folder, own) in RUNS.items()
    })  # fmt: skip
    sets = probed(images)
    accuracy: Scores = {}
    precision: Scores = {}
    for column, run in ({"untrained": runs["MAST"]} | runs).items():
        say(f"linear probes and retrieval of {column}")
        linear, retrieval = evaluate(
            run.path, sets, ("linear", "retrieval"), device=device, untrained=column == "untrained"
        )
        for task, scores in linear.targets.items():
            row = accuracy.setdefault(task, {"chance": 100 / len(CLASSES[task])})
            row[column] = scores.values["top1"]
        for task, scores in retrieval.targets.items():
            row = precision.setdefault(task, {"chance": scores.values["chance"]})
            row |= _precisions(column, scores.values)
    run, beside = runs["MAST"], [str(runs[column].path) for column in RUNS if column != "MAST"]
    analyze(
        run.path, sets.test, ANALYSES, beside=beside, images=ANALYSED, measure=False,
        device=device, seed=seed,
    )  # fmt: skip
    page = report(run.path, beside=beside)
    return DemoResult(run, page, accuracy, precision)


def _precisions(column: str, values: Mapping[str, float]) -> dict[str, float]:
    """Precision of an encoder by column: of its representation, and of what chooses a factor."""
    titles = {
        "representation": column,
        f"{TOLD}{BLOCK}": f"{column}, its heads",
        f"ignore_{BLOCK}": f"{column}, ignoring colour",
        f"match_{BLOCK}": f"{column}, matching colour",
    }
    return {
        title: values[f"{PRECISION}{space}"]
        for space, title in titles.items()
        if f"{PRECISION}{space}" in values
    }


def _table(title: str, scores: Scores, *, mean: bool) -> FittedTable:
    """A row an encoder or a space, a column a task, so that it fits into 80 characters."""
    table = FittedTable(1, title=title, box=SIMPLE, padding=0)
    table.add_column("", min_width=20)
    for name in (*scores, "mean") if mean else scores:
        table.add_column(name, justify="right", no_wrap=True)
    for column in next(iter(scores.values())):
        values = [row[column] for row in scores.values()]
        if mean:
            values.append(statistics.fmean(values))
        table.add_row(column, *(f"{value:.1f}" for value in values))
    return table
