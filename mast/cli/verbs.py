"""The verbs of the command line, what each prints, and what may come next."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from mast.core.errors import UserError, one_line, visible
from mast.core.files import as_word

# From a command's arguments and result to the words of the next; None where there is none.
Following = Callable[[Mapping[str, Any], Any], Sequence[str] | None]


class Verb(NamedTuple):
    """One command."""

    function: str  # its module in the package and its name
    words: tuple[str, ...] = ()  # parameters that need no name, in order; the last may be several
    configured: bool = False  # whether its `config` is made from options and key=value
    left_out: tuple[str, ...] = ()  # parameters that only Python has
    following: Following | None = None  # the command that may come next
    package: str = "mast.commands"

    def load(self) -> Callable[..., Any]:
        """Its function."""
        module, _, name = self.function.partition(":")
        function: Callable[..., Any] = getattr(import_module(f"{self.package}.{module}"), name)
        return function

    @property
    def summary(self) -> str:
        """What it does, in a line."""
        return (self.load().__doc__ or "").partition("\n")[0]


# --------------------------------------------------------------------------------------- output


def show(result: Any) -> None:
    """Print what a command returned, and end in an error if any run of it failed."""
    from mast.core.display import terminal
    from mast.core.run import RunFolder

    if isinstance(result, RunFolder):  # the command reported while it ran
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
        raise UserError(f"{runs} failed; the same command tries again")


# --------------------------------------------------------------------------- what may come next


def _measure(arguments: Mapping[str, Any], run: Any) -> Sequence[str]:
    return "mast", "evaluate", as_word(run.path), "--data", "SET"


def _run_of(place: Path) -> Path | None:
    """The run folder that something is or lies in, if there is one."""
    from mast.config import read

    run = place if place.is_dir() else place.parent
    if not place.exists() or not (run / "config.yaml").is_file():
        return None
    with suppress(UserError):  # it may be another program's
        read(run / "config.yaml")
        return run
    return None


def _write_page(arguments: Mapping[str, Any], result: Any) -> Sequence[str] | None:
    """The page of the run that was looked into; what training has added where that is known now.

    Results in a space are on no page.
    """
    run = _run_of(Path(arguments["encoder"] if "encoder" in arguments else arguments["run"]))
    if run is None or any(arguments.get(chosen) for chosen in ("ignore", "match", "space")):
        return None
    both = arguments.get("untrained") and any((run / "evaluations").glob("*.json"))
    return "mast", "compare" if both else "report", as_word(run)


def _classify(arguments: Mapping[str, Any], fitted: Any) -> Sequence[str]:
    words = ["mast", "predict", "FOLDER", "--classifier", as_word(fitted.path)]
    of_features = str(arguments.get("encoder")).endswith((".npz", ".parquet"))
    return [*words, "--features", "FEATURES"] if of_features else words


def _search(arguments: Mapping[str, Any], found: Any) -> Sequence[str]:
    """The neighbours of the first photo, ignoring what may be ignored."""
    properties = found.adapted.subspaces.properties
    ignored = "color" if "color" in properties else properties[0]
    words = ["mast", "neighbours", as_word(arguments["data"]), "--encoder", as_word(found.path)]
    return [*words, "--query", "0", "--ignore", ignored]


def _rank(arguments: Mapping[str, Any], predicted: Any) -> Sequence[str] | None:
    """What finds the images that are like none of the others, of which a class says little."""
    from mast.page import is_page

    run, page = _run_of(Path(arguments["classifier"])), Path("outliers.html")
    if run is None or sum(predicted.counts.values()) == 1:  # which has no other to be like
        return None
    words = ["mast", "outliers", as_word(arguments["data"]), "--encoder", as_word(run)]
    free = not page.exists() or (page.is_file() and is_page(page))
    return [*words, "--out", str(page)] if free else words


def _plan_for_shards(arguments: Mapping[str, Any], sharded: Any) -> Sequence[str]:
    """What finds a recipe that suits their number and this machine."""
    return "mast", "plan", f"shards:{sharded.path}"


def _read_features(arguments: Mapping[str, Any], file: Path) -> Sequence[str]:
    read = 'import numpy, sys; print(numpy.load(sys.argv[1])["features"].shape)'
    if file.suffix == ".parquet":
        read = "import pyarrow.parquet, sys; print(pyarrow.parquet.read_schema(sys.argv[1]))"
    return "python", "-c", read, str(file)


# ---------------------------------------------------------------------------------------- verbs

_DATA = ("data",)
VERBS: dict[str, Verb] = {
    "demo": Verb("demo:demo", _DATA),
    "neighbours": Verb("neighbours:neighbours", _DATA),
    "duplicates": Verb("duplicates:duplicates", _DATA),
    "outliers": Verb("outliers:outliers", _DATA),
    "adapt": Verb("adapt:adapt", _DATA, following=_search),
    "fit": Verb("fit:fit", _DATA, following=_classify),
    "predict": Verb("predict:predict", _DATA, following=_rank),
    "embed": Verb("embed:embed", _DATA, following=_read_features),
    "pretrain": Verb("pretrain:pretrain", _DATA, configured=True, following=_measure),
    "plan": Verb("plan:plan", _DATA),
    "shard": Verb("shard:shard", _DATA, following=_plan_for_shards),
    "evaluate": Verb("evaluate:evaluate", ("encoder",), following=_write_page),
    "compare": Verb("compare:compare", ("runs",)),
    "analyze": Verb("analyze:analyze", ("run",), following=_write_page),
    "advise": Verb("advise:advise", ("encoder",)),
    "report": Verb("report:report", ("run",)),
    "export": Verb("export:export", ("model",)),
    "study": Verb("study:study", ("name", "run")),
}
TOPICS: dict[str, Verb] = {
    "operators": Verb("show:show_operators"),
    "recipes": Verb("show:show_recipes"),
    "config": Verb("show:show_config", _DATA, configured=True),
    "views": Verb("show:show_views", _DATA, configured=True),
    "cache": Verb("show:show_cache"),
}
# Topics whose rows are those of a registry, with their titles.
REGISTRIES = {
    "protocols": "mast.evaluation.protocols:EVALUATORS",
    "analyses": "mast.studies:QUESTIONS",
    "studies": "mast.studies:STUDIES",
    "formats": "mast.exports:FORMATS",
}


class Program(NamedTuple):
    """What a command line begins with, and the verbs that may follow."""

    name: str
    verbs: Mapping[str, Verb]


MAST = Program("mast", VERBS)


def named(name: str, program: Program = MAST) -> Verb:
    """A verb by name, such as "pretrain" or "show views"."""
    return TOPICS[name.removeprefix("show ")] if name.startswith("show ") else program.verbs[name]
