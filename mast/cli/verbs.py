"""The verbs of the command line, with what each prints."""

from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple


class Verb(NamedTuple):
    """One command.

    Attributes:
        summary: What it does, in a line.
        function: Its module and function.
        words: Parameters that are given without a name, in their order; the last may take several.
        show: Prints the result.
        rows: A heading, and the registry whose rows the help lists below it.
        computes: Whether it does so much that the number of threads matters.
    """

    summary: str
    function: str
    words: tuple[str, ...]
    show: Callable[[Any], None]
    rows: tuple[str, str] | None = None
    computes: bool = True

    def load(self) -> Callable[..., Any]:
        """Its function, whose module is imported now."""
        module, _, name = self.function.partition(":")
        function: Callable[..., Any] = getattr(import_module(module), name)
        return function


# --------------------------------------------------------------------------------------- output


def _print_rich(text: Any) -> None:
    from rich.console import Console

    Console().print(text, highlight=False)


def _print_plain(result: object) -> None:
    print(str(result).rstrip("\n"))


def _nothing(result: object) -> None:
    """Print nothing: the command reported while it ran."""


def _demo(result: Any) -> None:
    for table in result.tables():
        _print_rich(table)
    _print_plain(f"open it in a browser: {result.page}")


def _results(results: Any) -> None:
    from mast.measure.result import tables

    for table in tables(results) if results else ():  # there are none in a second process
        _print_rich(table)


def _comparison(result: Any) -> None:
    _print_rich(result.table())
    for note in result.notes:
        _print_plain(note)
    _print_plain(f"\n{result.verdict}")


def _insights(insights: Any) -> None:
    for insight in insights:
        file = f"  [dim]{insight.file}[/dim]" if insight.file is not None else ""
        _print_rich(f"[bold]{insight.title}[/bold]{file}\n{insight.text}\n")


def _advice(result: Any) -> None:
    _print_rich(result.table())
    _print_plain(result.text)


def _study(result: Any) -> None:
    _print_rich(result.table())
    if (results := result.results_table()) is not None:
        _print_rich(results)
    if result.insight is not None:
        _insights([result.insight])


# ---------------------------------------------------------------------------------------- verbs

_COMMANDS = "mast.commands"
VERBS: dict[str, Verb] = {
    "demo": Verb(
        "pretrain on generated images and compare with VICReg (minutes on a laptop)",
        f"{_COMMANDS}.demo:demo", (), _demo,
    ),
    "pretrain": Verb(
        "pretrain an encoder on a folder of images; the same command continues a killed run",
        f"{_COMMANDS}.pretrain:pretrain", (), _nothing, ("recipes", "mast.recipes:RECIPES"),
    ),
    "evaluate": Verb(
        "measure an encoder on labelled images, by any of the protocols",
        f"{_COMMANDS}.evaluate:evaluate", ("encoder",), _results,
        ("protocols", "mast.protocols:EVALUATORS"),
    ),
    "compare": Verb(
        "put what was measured of several runs side by side, with paired intervals",
        f"{_COMMANDS}.compare:compare", ("runs",), _comparison, computes=False,
    ),
    "analyze": Verb(
        "look into a run: training curves, masks, what each subspace forgets",
        f"{_COMMANDS}.analyze:analyze", ("run",), _insights, ("analyses", "mast.studies:QUESTIONS"),
    ),
    "advise": Verb(
        "say which augmentations a labelled task can afford",
        f"{_COMMANDS}.advise:advise", ("run",), _advice,
    ),
    "study": Verb(
        "retrain variants of a run to answer a question; the same command continues",
        f"{_COMMANDS}.study:study", ("name", "run"), _study, ("studies", "mast.studies:STUDIES"),
    ),
    "uncertain": Verb(
        "rank images by how unsure the run is of them, as a table",
        f"{_COMMANDS}.uncertain:uncertain", ("run",), _print_plain,
    ),
    "report": Verb(
        "write a run's page: how good it is, its figures, what was run",
        f"{_COMMANDS}.report:report", ("run",), _print_plain, computes=False,
    ),
    "embed": Verb(
        "write the representations of a folder of images to .npz or .parquet",
        f"{_COMMANDS}.embed:embed", ("encoder",), _print_plain,
    ),
    "export": Verb(
        "write an encoder as a timm or torchvision state dict",
        f"{_COMMANDS}.export:export", ("encoder",), _print_plain, computes=False,
    ),
}  # fmt: skip
TOPICS: dict[str, Verb] = {
    "operators": Verb(
        "augmentation operators, with their probability and magnitudes",
        f"{_COMMANDS}.show:show_operators", (), _print_rich, computes=False,
    ),
    "recipes": Verb(
        "recipes, with what each trains",
        f"{_COMMANDS}.show:show_recipes", (), _print_rich, computes=False,
    ),
    "config": Verb(
        "a configuration as YAML, from recipe, file and options",
        f"{_COMMANDS}.show:show_config", (), _print_plain, computes=False,
    ),
    "views": Verb(
        "images beside the views that pretraining would see",
        f"{_COMMANDS}.show:show_views", (), _print_plain, computes=False,
    ),
    "cache": Verb(
        "the sets whose resized images are kept, and whether they are whole",
        f"{_COMMANDS}.show:show_cache", (), _print_rich, computes=False,
    ),
}  # fmt: skip


def named(name: str) -> Verb:
    """A verb by name, such as "pretrain" or "show views"."""
    return TOPICS[name.removeprefix("show ")] if name.startswith("show ") else VERBS[name]
