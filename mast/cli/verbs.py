"""The verbs of the command line, with what each prints."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from mast.core.errors import UserError, one_line, visible
from mast.core.files import as_word


class Verb(NamedTuple):
    """One command."""

    summary: str  # what it does, in a line
    function: str  # its module and its name
    words: tuple[str, ...]  # parameters that need no name, in order; the last may take several
    show: Callable[[Any], None]  # prints the result
    rows: tuple[str, str] | None = None  # a heading, and the registry that the help lists below it
    following: "Following | None" = None  # the command that may come next
    computes: bool = True  # whether it does so much that the number of threads matters

    def load(self) -> Callable[..., Any]:
        """Its function, whose module is imported now."""
        module, _, name = self.function.partition(":")
        function: Callable[..., Any] = getattr(import_module(module), name)
        return function


# From a command's arguments and result to the words of the next; None where there is none.
Following = Callable[[Mapping[str, Any], Any], Sequence[str] | None]

# --------------------------------------------------------------------------------------- output


def _print_rich(text: Any) -> None:
    from mast.core.display import terminal

    terminal().print(visible(text) if isinstance(text, str) else text)


def _print_plain(result: object) -> None:
    shown = one_line if isinstance(result, Path) else visible
    print(shown(str(result).rstrip("\n")))


def _nothing(result: object) -> None:
    """Print nothing: the command reported while it ran."""


def _shown(result: Any) -> None:
    for part in result.shown():
        (_print_plain if isinstance(part, str) else _print_rich)(part)


def _insights(insights: Any) -> None:
    for insight in insights:
        _shown(insight)


def _finished(result: Any) -> None:
    """Print the results, and end in an error if any run failed, as then these are not all."""
    _shown(result)
    if problems := result.problems:
        for problem in problems:
            _print_plain(problem)
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

_COMMANDS = "mast.commands"
VERBS: dict[str, Verb] = {
    "demo": Verb(
        "search with invariances you choose, on generated images or your own photos (minutes)",
        f"{_COMMANDS}.demo:demo", ("data",), _shown,
    ),
    "pretrain": Verb(
        "pretrain an encoder on a folder of images; rerun the same command to resume",
        f"{_COMMANDS}.pretrain:pretrain", ("data",), _nothing, ("recipes", "mast.recipes:RECIPES"),
        following=_measure,
    ),
    "plan": Verb(
        "estimate the epochs, memory, disk space and hours of pretraining or `mast adapt`",
        f"{_COMMANDS}.plan:plan", ("data",), _shown,
    ),
    "evaluate": Verb(
        "evaluate an encoder on labeled images: kNN, linear probe, fine-tuning and others",
        f"{_COMMANDS}.evaluate:evaluate", ("encoder",), _shown,
        ("protocols", "mast.evaluation.protocols:EVALUATORS"), following=_write_page,
    ),
    "compare": Verb(
        "compare the evaluations of several runs, with paired intervals",
        f"{_COMMANDS}.compare:compare", ("runs",), _shown, computes=False,
    ),
    "analyze": Verb(
        "analyze a run: training curves, masks, what each subspace forgets",
        f"{_COMMANDS}.analyze:analyze", ("run",), _insights, ("analyses", "mast.studies:QUESTIONS"),
        following=_write_page,
    ),
    "advise": Verb(
        "estimate which augmentations a labeled task can afford, with any encoder",
        f"{_COMMANDS}.advise:advise", ("encoder",), _shown,
    ),
    "study": Verb(
        "retrain variants of a run to answer a question; rerun the same command to resume",
        f"{_COMMANDS}.study:study", ("name", "run"), _finished, ("studies", "mast.studies:STUDIES"),
    ),
    "reproduce": Verb(
        "train and evaluate a table of the paper, next to its published numbers",
        f"{_COMMANDS}.reproduce:reproduce", ("table",), _finished,
    ),
    "adapt": Verb(
        "measure how augmentations move an encoder's features, for `--ignore` and `--match`",
        "mast.runs.adapt:adapt", ("data",), _shown, following=_search,
    ),
    "neighbours": Verb(
        "find the images in a folder that are most similar to a query image",
        f"{_COMMANDS}.neighbours:neighbours", ("data",), _shown,
    ),
    "duplicates": Verb(
        "find copies and near-copies in a folder of images",
        f"{_COMMANDS}.duplicates:duplicates", ("data",), _shown,
    ),
    "outliers": Verb(
        "rank the images of a folder, outliers first, and find labels that may be wrong",
        f"{_COMMANDS}.outliers:outliers", ("data",), _shown,
    ),
    "report": Verb(
        "write a run's HTML report: verdict, figures, what was run",
        f"{_COMMANDS}.report:report", ("run",), _print_plain, computes=False,
    ),
    "fit": Verb(
        "train a classifier on top of an encoder from labeled images",
        f"{_COMMANDS}.fit:fit", ("data",), _shown, following=_classify,
    ),
    "predict": Verb(
        "classify a folder of images and write the predictions to a table",
        f"{_COMMANDS}.predict:predict", ("data",), _shown, following=_rank,
    ),
    "embed": Verb(
        "write the features of a folder of images to .npz or .parquet",
        f"{_COMMANDS}.embed:embed", ("data",), _print_plain, following=_read_features,
    ),
    "shard": Verb(
        "write a dataset as shards of resized images, for datasets that do not fit on one disk",
        f"{_COMMANDS}.shard:shard", ("data",), _shown, following=_plan_for_shards,
        computes=False,
    ),
    "export": Verb(
        "export an encoder or a classifier to ONNX, plain PyTorch or other libraries",
        f"{_COMMANDS}.export:export", ("model",), _shown, ("formats", "mast.exports:FORMATS"),
        computes=False,
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
        f"{_COMMANDS}.show:show_config", ("data",), _print_plain, computes=False,
    ),
    "views": Verb(
        "images next to the views that pretraining would see",
        f"{_COMMANDS}.show:show_views", ("data",), _print_plain, computes=False,
    ),
    "cache": Verb(
        "the cached sets of resized images, and whether they are intact",
        f"{_COMMANDS}.show:show_cache", (), _print_rich, computes=False,
    ),
}  # fmt: skip


def named(name: str) -> Verb:
    """A verb by name, such as "pretrain" or "show views"."""
    return TOPICS[name.removeprefix("show ")] if name.startswith("show ") else VERBS[name]
