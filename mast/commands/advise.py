"""Advice for a labelled task, from one trained run."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mast.analyses import ANALYSES, Subject
from mast.augment import OPERATORS
from mast.commands.analyze import insights_of
from mast.commands.evaluate import measure_missing
from mast.core.arguments import as_list
from mast.core.errors import unknown
from mast.core.launch import Device, find_device
from mast.core.run import RunFolder
from mast.core.table import FittedTable
from mast.runs.scores import labelled, scores_of
from mast.runs.subject import subject_of


@dataclass(frozen=True)
class AdviceResult:
    """Which augmentations the tasks of a set can afford; see `mast.analyses.advice`.

    Attributes:
        text: In words.
        columns: Headings of the rows.
        rows: One a task and operator: task, operator, change of the accuracy where the operator
            acts in percentage points, the ends of its 95 % interval, what follows, and what the
            operator's subspace keeps of the true class's probability beside the mean of all
            subspaces (NaN without masks).
    """

    text: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str | float, ...], ...]

    def table(self) -> FittedTable:
        """A table for a rich console."""
        table = FittedTable(2, title="Which augmentations each task can afford (95 % intervals)")
        for column in self.columns:
            table.add_column(column, no_wrap=column == "operator")
        for at, row in enumerate(self.rows):
            cells = [f"{cell:+.1f}" if isinstance(cell, float) else cell for cell in row]
            again = at > 0 and row[0] == self.rows[at - 1][0]
            if at > 0 and not again:
                table.add_section()
            table.add_row("" if again else cells[0], *cells[1:-1], cells[-1].replace("+nan", "–"))
        return table


def advise(
    run: str | Path,
    data: str | Path,
    operators: Sequence[str] | str = (),
    device: Device = "auto",
    seed: int = 0,
) -> AdviceResult:
    """Say which augmentations a labelled task can afford, from one trained run.

    A linear probe learns and is tested where one operator at a time acts on half of the images:
    the accuracy that it loses is what the operator hides of the class, which an encoder that is
    invariant to it would not keep. Beside it is what the operator's subspace, if there are
    masks, keeps of the true class's probability. The paper asks the same by training once without
    each operator, which `mast study leave_one_out` does.

    Args:
        run: A run folder; masks are not needed.
        data: A labelled set with `train` and `test`.
        operators: Operators to measure beside those of the run's views.
        device: auto, cpu or cuda.
        seed: Of the probes and of what the operators draw.

    Returns:
        The advice on this set; the analyses `advice` and `predictions` of the run have it too.

    Raises:
        UserError: No such run or labelled set, or an unknown operator.

    Reference:
        MAST, Figures 1 and 6.
    """
    folder = RunFolder(run).require()
    operators = as_list(operators)
    for name in operators:
        if name not in OPERATORS:
            raise unknown("operator", name, OPERATORS)
    target_set = labelled(str(data), folder)
    subject = subject_of(folder, None, 0, find_device(device), seed)
    protocols = ["retained", *(["embedding"] if subject.operators else [])]
    measure_missing(folder, target_set, device, seed, protocols, operators)
    everything = replace(subject, scores=tuple(scores_of(folder)))
    insights_of(everything, ("advice", "predictions"), folder.analysis)
    scores = tuple(scores_of(folder, lambda result: result.images == target_set.identity))
    return _advice(replace(subject, scores=scores))


def _advice(subject: Subject) -> AdviceResult:
    """The two analyses of a set's tasks as one table."""
    affordable, predicted = ANALYSES["advice"].kind(), ANALYSES["predictions"].kind()
    arrays = affordable.compute(subject)
    grid = affordable.details(arrays).grid
    assert grid is not None
    beside: dict[tuple[str | float, str | float], float] = {}
    if predicted.lacking(subject) is None:
        by_mask = predicted.details(predicted.compute(subject)).grid
        assert by_mask is not None
        beside = {(row[0], row[1]): float(row[3]) for row in by_mask.rows}
    columns = (*grid.columns, "kept by its subspace (points)")
    rows = tuple((*row, beside.get((row[0], row[1]), float("nan"))) for row in grid.rows)
    return AdviceResult(affordable.caption(arrays), columns, rows)
