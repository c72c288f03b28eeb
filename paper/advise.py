"""Advice for a labelled task, from any encoder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from mast.commands.analyze import insights_of
from mast.commands.common import command
from mast.core.arguments import as_list
from mast.core.errors import UserError, unknown
from mast.core.kinds import Device, EncoderLike, later
from mast.core.run import RunFolder
from mast.core.table import Columns, Rows, Shown, TextTable, columns_of

if TYPE_CHECKING:
    from mast.evaluation.named_sets import NamedSets
else:
    NamedSets = later("mast.evaluation.named_sets", "NamedSets")


VIEWS = "mast5"  # whose operators are measured where nobody says which


@dataclass(frozen=True, repr=False)
class AdviceResult(Shown, Rows):
    """Which augmentations the tasks of a set can afford, in words and as rows.

    A row is a task and an operator: task, operator, change of the accuracy where the operator acts
    in percentage points, the ends of its 95 % interval, and what follows.
    """

    text: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str | float, ...], ...]

    @property
    def by_column(self) -> Columns:
        return columns_of(self.columns, self.rows)

    def shown(self) -> tuple[TextTable, str]:
        """The table and the text."""
        table = TextTable(title="Which augmentations each task can afford (95 % intervals)")
        for column in self.columns:
            table.add_column(column, no_wrap=column == "operator")
        for row in self.rows:
            cells = (f"{cell:+.1f}" if isinstance(cell, float) else cell for cell in row)
            table.add_row(*(cell.replace("+nan", "–") for cell in cells))
        return table, self.text


@command
def advise(
    encoder: EncoderLike,
    data: str | Path | NamedSets | None = None,
    operators: Sequence[str] | str = (),
    device: Device = "auto",
    seed: int = 0,
    views: str | None = None,
    size: int | None = None,
    weights: str | Path | None = None,
    untrained: bool = False,
) -> AdviceResult:
    """Estimate which augmentations a labeled task can afford, with any encoder, before training.

    A linear probe is trained and tested with one operator at a time acting on half of the images.
    The accuracy it loses measures the class information that the operator hides, which an invariant
    encoder would lose. The paper instead trains once without each operator.

    Results are written where `mast evaluate` writes them, and the figure to `analysis/` next to
    `evaluations/`: in the run folder, or for other encoders in a folder of `runs/`. The next call
    measures only what is new; a module is measured again.

    Args:
        data: The labeled dataset, such as `flowers17`, or a folder with one subfolder per class,
            where a random fifth of each class is held out for testing. In Python also `NamedSets`,
            for splits in different places.
        operators: Operators to measure, in addition to those of a run's views and of `views`.
        seed: Seed of probes, operators, random weights, and the test split of a folder without
            splits.
        views: Preset whose operators are measured; by default `mast5`, unless the encoder is a run
            or operators are named.

    Returns:
        The advice on this set; the analysis `advice` has it too.

    Reference:
        MAST, Figures 1 and 6.
    """
    operators = as_list(operators)
    from mast.analyses import Subject
    from mast.augment import PRESETS
    from mast.encoders.load import load
    from mast.evaluation.named_sets import NamedSets
    from mast.evaluation.protocols.evaluator import check_operators
    from mast.models.encoders import channels_of
    from paper.analyses import FIGURES
    from paper.analyses.advice import Advice
    from paper.analyses.scores import scores_of
    from paper.measured import labelled_parts, measure_missing

    check_operators(operators)
    if views is not None and views not in PRESETS:
        raise unknown("preset of views", views, PRESETS)
    sets = data if isinstance(data, NamedSets) else NamedSets(data)
    if sets.data is None and sets.train is None and sets.test is None:
        raise UserError("give data, the labelled set of the tasks")
    loaded = load(encoder, size, weights, sets.download, untrained, seed)
    folder = RunFolder(loaded.folder)
    of_run = folder.config.is_file()
    if views is not None or not (of_run or operators):
        preset = PRESETS[views or VIEWS].of_channels(channels_of(loaded.module))
        operators = [*preset.operators, *operators]
    target_set = labelled_parts(sets, loaded.size, seed, loaded.module)
    if of_run:
        encoder, target_set = folder.path, replace(target_set, size=size)
    measure_missing(
        folder, target_set, device, seed, ["retained"], operators, encoder, weights, untrained
    )
    everything = Subject(folder.path.name, folder=folder.path)
    title = FIGURES["advice"].title
    insights_of(everything, {"advice": (title, Advice())}, folder.analysis)
    scores = tuple(scores_of(folder, lambda result: result.images == target_set.identity))
    arrays = Advice().compute(replace(everything, extras={"scores": scores}))
    grid = Advice().details(arrays).grid
    assert grid is not None
    return AdviceResult(Advice().caption(arrays), grid.columns, grid.rows)
