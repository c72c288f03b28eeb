"""What do the analyses and studies of small runs say? In words and as tables."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, final

import numpy as np

import mast
from experiments.small_sets import RUNS, SmallRun, run_facts
from mast.analyses import ANALYSES, Grid, read_arrays
from mast.core.run import RunFolder
from paper.analyses import FIGURES
from paper.analyze import analyze
from paper.experiment import (
    SIZE,
    Experiment,
    Measured,
    Workplace,
    drawn_positions,
    link,
    link_cifar,
)
from paper.studies import STUDIES
from paper.studies.engine import StudyRun
from paper.study import study

LABELLED = "cifar10"  # images of CIFAR-10 with labels, for the probes
ANALYSED = (*ANALYSES, *FIGURES)


class Inquiry(NamedTuple):
    """The analyses and studies of a run.

    Attributes:
        data: A labelled set of the workplace ("cifar10"), or a name that `mast analyze` knows.
        analyses: Which.
        studies: By name the options of `python -m paper study`.
        beside: A run to show beside it, if any.
    """

    data: str
    analyses: tuple[str, ...]
    studies: Mapping[str, Mapping[str, Any]]
    beside: str | None = None


INQUIRIES = {
    "cifar_mast5": Inquiry(
        LABELLED,
        ANALYSED,
        {
            "leave_one_out": {"seeds": (0, 1, 2), "epochs": 3},
            "epochs": {"seeds": (0, 1), "epochs": 3},
        },
        "cifar_vicreg5",
    ),
    "cifar_exempt": Inquiry(LABELLED, ANALYSED, {}, "cifar_vicreg5"),
    "factors_mast5": Inquiry("factors", ANALYSED, {"leave_one_out": {"epochs": 6}}),
    "factors_small": Inquiry("factors", (), {"epochs": {}}),
}


@final
@dataclass(frozen=True)
class Findings(Experiment):
    """Every caption and table of some runs, their studies included; see docs/insight.md.

    It needs `cifar10/{train,test}`.
    """

    results: ClassVar[str] = "insight"

    inquiries: Mapping[str, Inquiry] = field(default_factory=lambda: INQUIRIES)
    runs: Mapping[str, SmallRun] = field(default_factory=lambda: RUNS)
    train: int = 10_000
    test: int = 4_000

    def plan(self, workplace: Workplace, seeds: Sequence[int]) -> list[StudyRun]:
        return [
            StudyRun(
                f"findings-{name}",
                {"recipe": self.runs[name].recipe},
                self.runs[name].configure(name, workplace),
            )
            for name in self.inquiries
        ]

    def prepare(self, workplace: Workplace) -> None:
        if any(inquiry.data == LABELLED for inquiry in self.inquiries.values()):
            link_cifar(workplace, self.train)
            for part, count in (("train", self.train), ("test", self.test)):
                images = workplace.open(f"cifar10/{part}", SIZE)
                target = workplace.derived(LABELLED) / part
                root = workplace.sets / "cifar10" / part
                link(images, root, drawn_positions(len(images), count), target, flat=False)

    def measure(self, run: StudyRun, workplace: Workplace) -> Measured:
        """The analyses and studies are made, then read."""
        assert run.config is not None
        name, path = run.folder.path.name, run.folder.path
        inquiry = self.inquiries[name]
        data = str(workplace.derived(LABELLED)) if inquiry.data == LABELLED else inquiry.data
        if inquiry.analyses:
            beside: list[Path] = []
            if inquiry.beside is not None:
                config = self.runs[inquiry.beside].configure(inquiry.beside, workplace)
                beside.append(mast.pretrain(config).path)
            analyze(path, data, inquiry.analyses, beside, device=workplace.device)
        for question, options in inquiry.studies.items():
            study(question, path, data, device=workplace.device, **options)
        return {
            "run": run_facts(name, run.config),
            "analyses": _answers(run.folder),
        }

    def table(self, measured: Mapping[str, Measured]) -> Grid:
        """What was found, in words."""
        rows = tuple(
            (result["run"]["name"], answer["title"], answer["caption"])
            for result in measured.values()
            for answer in result["analyses"].values()
        )
        return Grid(("run", "question", "answer"), rows)


def _answers(folder: RunFolder) -> dict[str, Any]:
    """What every analysis that was made of a run says."""
    answers = {}
    for name, entry in {**ANALYSES, **FIGURES, **STUDIES}.items():
        file = folder.analysis / f"{name}.npz"
        if file.is_file():
            arrays = read_arrays(file)
            analysis = entry.kind()
            grid = analysis.details(arrays).grid
            answers[name] = {
                "title": entry.title,
                "caption": analysis.caption(arrays),
                "columns": list(grid.columns) if grid else [],
                "rows": [[_plain(cell) for cell in row] for row in grid.rows] if grid else [],
            }
    return answers


def _plain(cell: str | float) -> str | float | None:
    """A cell of a table as JSON has it, which knows no NaN."""
    return None if isinstance(cell, float) and not np.isfinite(cell) else cell
