"""Is the advice right? `python -m paper advise` beside what is known of generated images."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, final

import numpy as np

import mast
from experiments.small_sets import RUNS, SmallRun, run_facts
from mast.analyses import Grid
from mast.data.generated import CLASSES
from mast.evaluation.result import Result
from paper.advise import advise
from paper.experiment import Experiment, Measured, Workplace
from paper.studies.engine import StudyRun

COLUMNS = (
    "task",
    "top-1",
    "costs the task, points of accuracy (**bold**: destroys it by how the images are drawn)",
    "right order",
    "by subspaces",
)
# What operators destroy by how images are drawn.
DESTROYED_BY: dict[str, tuple[str, ...]] = {
    "shape": (),
    "color": ("color_jitter", "grayscale", "invert"),
    "orientation": ("horizontal_flip", "rotate"),
    "position": ("random_resized_crop", "translate_x", "translate_y", "horizontal_flip"),
    "texture": ("gaussian_blur", "cutout"),
    "sharpness": ("gaussian_blur", "sharpness", "motion_blur"),
}
MARKS = {"needs what it destroys": "!", "undecided": "?"}
ORDERED_BY = ("change", "kept_by_subspace")


@final
@dataclass(frozen=True)
class AdviceCheck(Experiment):
    """Which operators the tasks of `factors` need, beside what is known from how they are drawn.

    `DESTROYED_BY` says which operators destroy a task. By each of two numbers, the percentage is
    taken of the pairs of a destroying and another operator that the number puts in the right order.
    """

    results: ClassVar[str] = "insight"

    runs: Mapping[str, SmallRun] = field(
        default_factory=lambda: {
            name: RUNS[name] for name in ("factors64_mast15", "factors_exempt", "factors_mast5")
        }
    )

    def plan(self, workplace: Workplace, seeds: Sequence[int]) -> list[StudyRun]:
        return [
            StudyRun(f"advice-{name}", {"recipe": run.recipe}, run.configure(name, workplace))
            for name, run in self.runs.items()
        ]

    def measure(self, run: StudyRun, workplace: Workplace) -> Measured:
        """Of each task the ranking of the operators and the truth."""
        assert run.config is not None
        rows = advise(run.folder.path, "factors", device=workplace.device).rows
        (by_subspace,) = mast.evaluate(
            run.folder.path, "factors", "embedding", device=workplace.device
        )
        (file,) = run.folder.evaluations.glob("retained-factors-test.json")
        measured = Result.read(file).targets
        return {
            "run": run_facts(run.folder.path.name, run.config),
            "tasks": {
                task: _task(
                    task,
                    [row for row in rows if row[0] == task],
                    by_subspace.targets[task].values,
                )
                | {"accuracy": measured[task].values["top1"]}
                for task in CLASSES
            },
        }

    def table(self, measured: Mapping[str, Measured]) -> Grid:
        """Of each task the operators by what they cost it."""
        rows = []
        for result in measured.values():
            for name, task in result["tasks"].items():
                operators = [
                    ("**{}**" if entry["operator"] in task["destroyed_by"] else "{}").format(
                        f"{entry['operator'].replace('_', ' ')} {entry['change']:+.0f}"
                        + MARKS.get(entry["verdict"], "")
                    )
                    for entry in task["ranking"]
                ]
                shares = [task[f"found_by_{key}"] for key in ORDERED_BY]
                ordered = ["–" if share is None else f"{share:.0f} %" for share in shares]
                rows.append((name, f"{task['accuracy']:.0f}", ", ".join(operators), *ordered))
        return Grid(COLUMNS, tuple(rows))


def _task(
    name: str, rows: Sequence[Sequence[Any]], by_subspace: Mapping[str, float]
) -> dict[str, Any]:
    """The ranking of the operators, the costliest first, and how well two numbers order them."""
    operators = [str(row[1]).replace(" ", "_") for row in rows]
    task: dict[str, Any] = {
        "destroyed_by": [operator for operator in DESTROYED_BY[name] if operator in operators],
        "ranking": [
            {
                "operator": operator,
                "change": row[2],
                "interval": [row[3], row[4]],
                "verdict": row[5],
                "kept_by_subspace": by_subspace.get(f"advantage_{operator}"),
            }
            for operator, row in reversed(list(zip(operators, rows, strict=True)))
        ],
    }
    return task | {f"found_by_{key}": _ordered(task, key) for key in ORDERED_BY}


def _ordered(task: dict[str, Any], key: str) -> float | None:
    """Percent of (destroying, other) pairs of operators that a number puts in the right order."""
    values = {entry["operator"]: entry[key] for entry in task["ranking"]}
    destroying = [values[name] for name in task["destroyed_by"]]
    harmless = [value for name, value in values.items() if name not in task["destroyed_by"]]
    if None in (*destroying, *harmless) or not destroying or not harmless:
        return None
    pairs = [
        (first < second) + 0.5 * (first == second) for first in destroying for second in harmless
    ]
    return 100 * float(np.mean(pairs))
