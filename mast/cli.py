"""The `mast` command: one sub-command for each public function."""

import json
import re
import sys
from argparse import ArgumentError
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from jsonargparse import ArgumentParser
from rich.console import Console

from mast.commands.advise import advise
from mast.commands.analyze import Insight, analyze
from mast.commands.compare import compare
from mast.commands.demo import demo
from mast.commands.embed import embed
from mast.commands.evaluate import evaluate
from mast.commands.export import export
from mast.commands.pretrain import pretrain
from mast.commands.report import report
from mast.commands.show import show_config, show_operators, show_recipes, show_views
from mast.commands.study import study
from mast.commands.uncertain import uncertain
from mast.config import PretrainConfig, configuration_parser, explain, parse, read
from mast.core.display import console as messages
from mast.core.errors import UserError, unknown
from mast.measure.result import tables
from mast.recipes import recipe

output = Console()

HELP = """usage: mast COMMAND [options]

  demo       pretrain on generated images and compare with VICReg (five minutes on a laptop)
  pretrain   pretrain an encoder on a folder of images; the same command continues a killed run
  evaluate   measure an encoder on labelled images by any of fourteen protocols;
             `mast evaluate --compare RUN RUN` puts what was measured side by side
  analyze    look into a run: training curves, masks, what each subspace forgets
  advise     say which augmentations a labelled task can afford
  study      retrain variants to answer a question: leave_one_out, growth, sensitivity, epochs,
             or an experiment from recipes; the same command continues
  uncertain  rank images by how unsure the run is of them, as a table
  report     write a run's page: how good it is, its figures, what was run
  embed      write the representations of a folder of images to .npz or .parquet
  export     write an encoder as a timm or torchvision state dict
  show       operators | recipes | config | views

`mast COMMAND --help` lists a command's options."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command.

    Args:
        arguments: The words after `mast`; those of the process if None.

    Returns:
        The exit code: 0; 2 for what the user must change, said in one line; 130 if interrupted.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        if not words or words[0] in ("-h", "--help"):
            output.print(HELP, highlight=False)
        elif words[0] == "--version":
            from importlib.metadata import version

            output.print(version("mast-ssl"), highlight=False)
        elif words[0] not in COMMANDS:
            raise unknown("command", words[0], COMMANDS)
        else:
            COMMANDS[words[0]](words[1:])
    except UserError as error:
        messages.print(
            f"error: {error}", style="red", highlight=False, markup=False, soft_wrap=True
        )
        return 2
    except KeyboardInterrupt:
        messages.print("interrupted; the same command continues a run from its last checkpoint")
        return 130
    return 0


def _demo(words: list[str]) -> None:
    result = demo(**_arguments(demo, "mast demo", words))
    output.print(result.table())
    output.print(f"open it in a browser: {result.page}", highlight=False)


def _pretrain(words: list[str]) -> None:
    if _asks_help(words):
        output.print(
            "usage: mast pretrain [--recipe NAME] [--config FILE] [--data FOLDER] [options]\n\n"
            "Defaults come from the recipe, then from the file, then from the options.\n"
            "`--data X` is short for `--data.spec X`.\n",
            highlight=False,
            markup=False,
        )
        _recipe_parser(words).print_help()
        return
    pretrain(configure_from_arguments(words))


def _evaluate(words: list[str]) -> None:
    if "--compare" in words:
        words = as_list(["--runs" if word == "--compare" else word for word in words], "--runs")
        comparison = compare(**_arguments(compare, "mast evaluate", words))
        output.print(comparison.table())
        for note in comparison.notes:
            output.print(note, highlight=False, markup=False)
        return
    if _asks_help(words):
        output.print(
            "usage: mast evaluate ENCODER [--data SET] [--protocols NAME …] [options]\n"
            "       mast evaluate --compare RUN RUN … [--seed N] [--resamples N]\n",
            highlight=False,
            markup=False,
        )
    words = as_list(words, "--protocols")
    arguments = _arguments(evaluate, "mast evaluate", words, positional="encoder")
    results = evaluate(**arguments)
    for shown in tables(results) if results else ():  # there are none in a second process
        output.print(shown)


def _analyze(words: list[str]) -> None:
    for option in ("--analyses", "--beside"):
        words = as_list(words, option)
    for insight in analyze(**_arguments(analyze, "mast analyze", words, positional="run")):
        output.print(_told(insight), highlight=False)


def _told(insight: Insight) -> str:
    where = f"  [dim]{insight.file}[/dim]" if insight.file is not None else ""
    return f"[bold]{insight.title}[/bold]{where}\n{insight.text}\n"


def _advise(words: list[str]) -> None:
    words = as_list(words, "--operators")
    advice = advise(**_arguments(advise, "mast advise", words, positional="run"))
    output.print(advice.table())
    output.print(advice.text, highlight=False, markup=False)


def _study(words: list[str]) -> None:
    for option in ("--seeds", "--protocols", "--only"):
        words = as_list(words, option)
    if words and not words[0].startswith("-"):
        words = [*words[1:], "--name", words[0]]
    words = _as_flag(words, "--dry")
    done = study(**_arguments(study, "mast study", words, positional="run"))
    output.print(done.table())
    if (results := done.results_table()) is not None:
        output.print(results)
    if done.insight is not None:
        output.print(_told(done.insight), highlight=False)


def _uncertain(words: list[str]) -> None:
    arguments = _arguments(uncertain, "mast uncertain", words, positional="run")
    output.print(str(uncertain(**arguments)), highlight=False)


def _embed(words: list[str]) -> None:
    arguments = _arguments(embed, "mast embed", words, positional="encoder")
    output.print(str(embed(**arguments)), highlight=False)


def _export(words: list[str]) -> None:
    arguments = _arguments(export, "mast export", words, positional="encoder")
    output.print(str(export(**arguments)), highlight=False)


def _show(words: list[str]) -> None:
    topics: dict[str, Callable[[list[str]], None]] = {
        "operators": lambda rest: output.print(
            show_operators(**_arguments(show_operators, "mast show operators", rest))
        ),
        "recipes": lambda rest: output.print(
            show_recipes(**_arguments(show_recipes, "mast show recipes", rest))
        ),
        "config": lambda rest: output.print(
            show_config(configure_from_arguments(rest)), highlight=False, markup=False, end=""
        ),
        "views": _show_views,
    }
    if not words or _asks_help(words[:1]):
        output.print(f"usage: mast show {'|'.join(topics)} [options]", markup=False)
        return
    if words[0] not in topics:
        raise unknown("topic", words[0], topics)
    topics[words[0]](words[1:])


def _show_views(words: list[str]) -> None:
    """`show views` takes its own options beside those of a configuration."""
    own = ArgumentParser(prog="mast show views", exit_on_error=False, allow_abbrev=False)
    own.add_function_arguments(show_views, skip={"config"})
    names = [option for action in own._actions for option in action.option_strings]
    mine: list[str] = []
    rest: list[str] = []
    target = rest
    for word in words:
        if word.startswith("--"):
            target = mine if word.partition("=")[0] in names else rest
        target.append(word)
    arguments = _arguments(show_views, "mast show views", mine, skip={"config"})
    output.print(str(show_views(configure_from_arguments(rest), **arguments)), highlight=False)


def _report(words: list[str]) -> None:
    words = as_list(words, "--beside")
    arguments = _arguments(report, "mast report", words, positional="run")
    output.print(str(report(**arguments)), highlight=False)


COMMANDS: dict[str, Callable[[list[str]], None]] = {
    "demo": _demo,
    "pretrain": _pretrain,
    "evaluate": _evaluate,
    "analyze": _analyze,
    "advise": _advise,
    "study": _study,
    "uncertain": _uncertain,
    "embed": _embed,
    "report": _report,
    "export": _export,
    "show": _show,
}


def _arguments(
    function: Callable[..., Any],
    program: str,
    words: list[str],
    positional: str | None = None,
    skip: set[str | int] | None = None,
) -> dict[str, Any]:
    """A function's arguments from command-line words; its docstring is the help."""
    parser = ArgumentParser(prog=program, exit_on_error=False, allow_abbrev=False)
    if positional is not None and words and not words[0].startswith("-"):
        words = [f"--{positional}", *words]
    parser.add_function_arguments(function, skip=skip)
    try:
        values = parser.instantiate(parser.parse_args(words))
    except ArgumentError as error:
        raise explain(error, parser) from error
    return dict(values)


def _as_flag(words: list[str], option: str) -> list[str]:
    """`--option` alone as the `--option true` that the parser takes."""
    if option not in words:
        return words
    at = words.index(option) + 1
    alone = at == len(words) or words[at].startswith("-")
    return [*words[:at], "true", *words[at:]] if alone else words


def _recipe_parser(words: list[str]) -> ArgumentParser:
    name = "mast5_small"
    for before, word in zip(["", *words], words, strict=False):
        if before == "--recipe":
            name = word
    return configuration_parser(recipe(name))


def configure_from_arguments(arguments: Sequence[str]) -> PretrainConfig:
    """The configuration that command-line options describe.

    Defaults come from `--recipe`, then from a YAML file `--config`, then from the options.
    `--data X` is short for `--data.spec X`; `--operators` takes names with spaces between them.

    Raises:
        UserError: An unknown option or a value of the wrong type, with the nearest valid one.
    """
    rest = list(arguments)
    name, file = _take(rest, "--recipe"), _take(rest, "--config")
    rest = as_list(rest, "--operators")
    rest = [re.sub(r"^--data(?==|$)", "--data.spec", argument) for argument in rest]
    base = recipe(name or "mast5_small")
    if file is not None:
        base = read(Path(file), base if name else None)
    return parse(base, lambda parser: parser.parse_args(rest))


def as_list(words: list[str], option: str) -> list[str]:
    """`--option a b` as the JSON list that the parser takes."""
    if option not in words:
        return words
    start = words.index(option) + 1
    stop = next((at for at in range(start, len(words)) if words[at].startswith("-")), len(words))
    values = words[start:stop]
    if len(values) == 1 and values[0].startswith("["):
        return words
    return [*words[:start], json.dumps(values), *words[stop:]]


def _take(arguments: list[str], option: str) -> str | None:
    """Remove `--option value` or `--option=value` from a list and return the value."""
    for position, argument in enumerate(arguments):
        if argument == option:
            if position + 1 == len(arguments):
                raise UserError(f"{option} needs a value")
            value = arguments[position + 1]
            del arguments[position : position + 2]
            return value
        if argument.startswith(option + "="):
            del arguments[position]
            return argument.partition("=")[2]
    return None


def _asks_help(words: list[str]) -> bool:
    return "-h" in words or "--help" in words


if __name__ == "__main__":
    sys.exit(main())
