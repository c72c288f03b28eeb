"""The verbs of the command line, what each prints, and the next command to suggest."""

from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from mast.core.errors import UserError, one_line, visible


class Verb(NamedTuple):
    """One command."""

    function: str  # its module in the package and its name
    words: tuple[str, ...] = ()  # positional parameters, in order; the last may take several values
    configured: bool = False  # whether its `config` is built from options and key=value
    package: str = "mast.commands"

    def load(self) -> Callable[..., Any]:
        """Its function."""
        module, _, name = self.function.partition(":")
        function: Callable[..., Any] = getattr(import_module(f"{self.package}.{module}"), name)
        return function

    @property
    def summary(self) -> str:
        """One-line description."""
        return (self.load().__doc__ or "").partition("\n")[0]


# --------------------------------------------------------------------------------------- output


def show(result: Any) -> None:
    """Print a command's result, and raise if any of its runs failed."""
    from mast.core.display import terminal
    from mast.core.run import RunFolder

    if isinstance(result, RunFolder):  # the command printed its progress itself
        return
    if isinstance(result, list) and not hasattr(result, "shown"):
        for each in result:
            show(each)
        return
    for part in result.shown() if hasattr(result, "shown") else (result,):
        if isinstance(part, str | Path):
            print((one_line if isinstance(part, Path) else visible)(str(part).rstrip("\n")))
        else:
            terminal().print(part)
    if problems := getattr(result, "problems", ()):
        print(*map(visible, problems), sep="\n")
        runs = "a run" if len(problems) == 1 else f"{len(problems)} runs"
        raise UserError(f"{runs} failed; the same command retries")


# ---------------------------------------------------------------------------------------- verbs

_DATA = ("data",)
VERBS: dict[str, Verb] = {
    "demo": Verb("demo:demo"),
    "neighbours": Verb("neighbours:neighbours", _DATA),
    "duplicates": Verb("duplicates:duplicates", _DATA),
    "browse": Verb("browse:browse", _DATA),
    "outliers": Verb("outliers:outliers", _DATA),
    "adapt": Verb("adapt:adapt", _DATA),
    "fit": Verb("fit:fit", _DATA),
    "predict": Verb("predict:predict", _DATA),
    "embed": Verb("embed:embed", _DATA),
    "pretrain": Verb("pretrain:pretrain", _DATA, configured=True),
    "plan": Verb("plan:plan", _DATA),
    "shard": Verb("shard:shard", _DATA),
    "evaluate": Verb("evaluate:evaluate", ("encoder",)),
    "compare": Verb("compare:compare", ("runs",)),
    "analyze": Verb("analyze:analyze", ("run",)),
    "report": Verb("report:report", ("run",)),
    "export": Verb("export:export", ("model",)),
}
TOPICS: dict[str, Verb] = {
    "operators": Verb("show:show_operators"),
    "recipes": Verb("show:show_recipes"),
    "config": Verb("show:show_config", _DATA, configured=True),
    "views": Verb("show:show_views", _DATA, configured=True),
    "cache": Verb("show:show_cache"),
}
# Topics that list a registry, with their titles.
REGISTRIES = {
    "protocols": "mast.evaluation.protocols:EVALUATORS",
    "analyses": "mast.analyses:ANALYSES",
    "formats": "mast.exports:FORMATS",
}


class Program(NamedTuple):
    """A program: its name, its verbs, and additions to registries."""

    name: str
    verbs: Mapping[str, Verb]
    register: Callable[[], None] = lambda: None  # adds to registries, before a command reads them


MAST = Program("mast", VERBS)


def named(name: str, program: Program = MAST) -> Verb:
    """A verb by name, such as "pretrain" or "show views"."""
    return TOPICS[name.removeprefix("show ")] if name.startswith("show ") else program.verbs[name]
