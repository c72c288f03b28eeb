"""Every table that a command prints keeps its words in 80 columns."""

import io
import re

import pytest
from rich.console import Console
from rich.table import Table
from rich.text import Text

from mast.augment import OPERATORS
from mast.commands.show import show_operators, show_recipes
from mast.evaluation.result import Result, TargetResult, table

WIDTH = 80
TASKS = ("shape", "color", "orientation", "position", "texture", "sharpness")


def measured(values: dict[str, float]) -> TargetResult:
    """Values, each with an interval around it."""
    ends = {f"{name}_low": value - 1.5 for name, value in values.items()}
    ends |= {f"{name}_high": value + 1.5 for name, value in values.items()}
    return TargetResult({**values, **ends}, chosen={"penalty": 1.25e-05, "validation": 100.0})


def evaluations() -> list[Table]:
    accuracies = measured({"top1": 100.0, "top5": 100.0, "mean_per_class": 100.0})
    spaces = ["representation", "embedding", "told_color_jitter+grayscale"]
    spaces += ["ignore_color_jitter+grayscale", "match_color_jitter+grayscale", "chance"]
    precisions = measured({f"precision_{name}": 12.5 for name in spaces} | {"chance": 12.5})
    changed = {f"{name}@{share:g}": 50.0 for name in OPERATORS for share in (0.2, 0.4, 0.6, 0.8, 1)}
    robust = measured(dict.fromkeys(OPERATORS, 50.0) | {"changed": 50.0})
    robust.values.update(changed)
    settings = {"protocol": {"k": 10}}
    results = [
        ("linear_sgd", "sets/flowers17/test", {"class": accuracies}, {}),
        ("fewshot", "torchvision:Flowers102@test", {"class": accuracies}, {}),
        ("retrieval", "factors@test:4096", dict.fromkeys(TASKS, precisions), settings),
        ("robust", "sets/flowers17/test", {"orientation": robust}, {}),
    ]
    made = [
        Result(name, of, targets, settings, {}, {}, images="these")
        for name, of, targets, settings in results
    ]
    return [table(made)]


def words(cell: object) -> list[str]:
    return Text.from_markup(str(cell)).plain.split()


@pytest.mark.parametrize(
    "printed",
    [
        *(pytest.param(table, id=f"evaluate-{at}") for at, table in enumerate(evaluations())),
        pytest.param(show_operators(224), id="operators"),
        *(pytest.param(table, id="recipes") for table in show_recipes().renderables),
    ],
)
def test_no_word_of_a_table_is_broken(printed: Table) -> None:
    console = Console(width=WIDTH, file=io.StringIO())
    console.print(printed)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert max(map(len, text.splitlines())) <= WIDTH
    seen = re.sub("[┃│┏┓┗┛┡┩└┘├┤┬┴┼╇┳━─]", " ", text).split()
    cells = [cell for column in printed.columns for cell in (column.header, *column.cells)]
    expected = [word for cell in cells for word in words(cell)]
    around = words(printed.title) if printed.title else []
    assert set(expected) <= set(seen)
    assert set(seen) <= {*expected, *around}
