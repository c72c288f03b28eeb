"""The `mast` command: words to functions; the only place that merges recipe < file < options.

A verb's options are the parameters of its function, whose docstring is their help; a verb that
takes a configuration has that configuration's fields as options too. The module of a verb is
imported when the verb is used.
"""

import argparse
import inspect
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from importlib import import_module
from typing import Any, NamedTuple, NoReturn, get_type_hints

from mast.core.errors import UserError, unknown


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


# --------------------------------------------------------------------------------------- output


def _print_rich(text: Any) -> None:
    from rich.console import Console

    Console().print(text, highlight=False)


def _print_plain(result: object) -> None:
    print(str(result).rstrip("\n"))


def _nothing(result: object) -> None:
    """Print nothing: the command reported while it ran."""


def _demo(result: Any) -> None:
    _print_rich(result.table())
    _print_plain(f"open it in a browser: {result.page}")


def _results(results: Any) -> None:
    from mast.measure.result import tables

    for table in tables(results) if results else ():  # there are none in a second process
        _print_rich(table)


def _comparison(result: Any) -> None:
    _print_rich(result.table())
    for note in result.notes:
        _print_plain(note)


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
        "pretrain on generated images and compare with VICReg (five minutes on a laptop)",
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
}  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command.

    Args:
        arguments: The words after `mast`; those of the process if None.

    Returns:
        The exit code: 0; 2 for an error that the user can fix, reported in one line; 130 if
        interrupted.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        _run(words)
    except UserError as error:
        from mast.core.display import console

        text = f"error: {error}"
        console.print(text, style="red", highlight=False, markup=False, soft_wrap=True)
        return 2
    except KeyboardInterrupt:
        print("interrupted; the same command continues a run from its last checkpoint",
              file=sys.stderr)  # fmt: skip
        return 130
    return 0


def _run(words: list[str]) -> None:
    if not words or words[0] in ("-h", "--help"):
        print(_overview("mast", "COMMAND", {**VERBS, "show": SHOW}))
    elif words[0] == "--version":
        from importlib.metadata import version

        print(version("mast-ssl"))
    elif words[0] == "show":
        if len(words) == 1 or words[1] in ("-h", "--help"):
            print(_overview("mast show", "TOPIC", TOPICS))
        elif words[1] not in TOPICS:
            raise unknown("topic", words[1], TOPICS)
        else:
            _call(f"show {words[1]}", words[2:])
    elif words[0] not in VERBS:
        raise unknown("command", words[0], [*VERBS, "show"])
    else:
        _call(words[0], words[1:])


# What stands for a value in the help, by its type in words.
WORDS = {
    "a whole number": "N",
    "a number": "X",
    "text": "WORD",
    "Path": "PATH",
    "a mapping": "JSON",
}
NEGATIVE = re.compile(r"-[0-9.]+([eE][+-]?[0-9]+)?")  # which argparse takes for an option
SHOW = Verb(" | ".join(TOPICS), "", (), _nothing)


def _overview(program: str, command: str, verbs: Mapping[str, Verb]) -> str:
    width = max(map(len, verbs)) + 2
    lines = [f"  {name:{width}}{verb.summary}" for name, verb in verbs.items()]
    hint = f"`{program} {command} --help` lists its options."
    return "\n".join([f"usage: {program} {command} [options]", "", *lines, "", hint])


# -------------------------------------------------------------------------------- words → values


class _Parser(argparse.ArgumentParser):
    """argparse, whose errors are those of this package."""

    def error(self, message: str) -> NoReturn:
        _, _, missing = message.partition("arguments are required: ")
        if missing:
            message = f"required: {missing}"
            if not missing.startswith("-"):  # it may have been read as one more value of an option
                message += f". The form is {self.usage}"
        raise UserError(f"{message}. See `{self.prog} --help`.")


class _Flag(argparse.Action):
    """An option that is there or not: `--download`, `--no_download`."""

    def __init__(self, option_strings: Sequence[str], dest: str, **options: Any) -> None:
        super().__init__(option_strings, dest, nargs=0, **options)

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        setattr(namespace, self.dest, option_string == self.option_strings[0])


class _Options:
    """The options of a verb: what each is called, its type, and the parser that finds them."""

    def __init__(self, program: str, verb: Verb, words: Sequence[str]) -> None:
        self.function = _function(verb)
        self.parser = _Parser(
            prog=program,
            usage=" ".join([program, *self._positional(verb), "[options]"]),
            description=_summary(self.function),
            epilog=None if verb.rows is None else _rows(*verb.rows),
            formatter_class=argparse.RawDescriptionHelpFormatter,
            argument_default=argparse.SUPPRESS,
            allow_abbrev=False,
        )
        self.hints: dict[str, Any] = {}
        self.configured: str | None = None  # the parameter that is a configuration
        self.base: Any = None
        self.groups: dict[str, type] = {}  # parameters that may be a dataclass of options
        self._names: list[str] = []
        helps, hints = _documented(self.function), get_type_hints(self.function)
        parameters = inspect.signature(self.function).parameters
        for name, parameter in parameters.items():
            if _is_configuration(hints[name]):
                self.configured = name
            elif group := _dataclass_in(hints[name]):
                self.groups[name] = group
                texts = _documented(group)
                for field, hint in get_type_hints(group).items():
                    self._add(field, hint, getattr(group, field), texts.get(field, ""), verb)
            else:
                self._add(name, hints[name], parameter.default, helps.get(name, ""), verb)
        if self.configured is not None:
            self._add_configuration(verb, words)
        self.sets_threads = verb.computes and "threads" not in self.hints
        if self.sets_threads:
            self._add(
                "threads", int | None, None, "CPU threads; PyTorch's choice if not given", verb
            )

    def _positional(self, verb: Verb) -> list[str]:
        """What is given without a name, as the usage shows it."""
        parameters = inspect.signature(self.function).parameters
        needed = {name: parameters[name].default is inspect.Parameter.empty for name in verb.words}
        return [name.upper() if needed[name] else f"[{name.upper()}]" for name in verb.words]

    def _add(self, name: str, hint: Any, default: Any, text: str, verb: Verb) -> None:
        from mast.core.fields import choices, in_words, is_list

        self.hints[name] = hint
        many = is_list(hint)
        help_text = f"{text} " if text else ""
        unsaid = (inspect.Parameter.empty, None, False)
        if not any(default is value for value in unsaid) and default != ():
            help_text += f"(default: {_short(default)})"
        help_text = help_text.replace("%", "%%")
        first = in_words(hint).removeprefix("a list, each ").partition(" or ")[0]
        metavar = "|".join(map(str, choices(hint))) or WORDS.get(first, "WORD")
        if name in verb.words:
            last = name == verb.words[-1]
            required = default is inspect.Parameter.empty
            nargs = ("+" if required else "*") if many and last else None if required else "?"
            self.parser.add_argument(name, nargs=nargs, help=help_text)
            return
        head, _, tail = name.rpartition(".")
        options = [f"--{name}"]
        if name == "data.spec":
            options.insert(0, "--data")
        self._names += options
        if hint is bool or bool in getattr(hint, "__args__", ()):
            options.append(f"--{head}.no_{tail}" if head else f"--no_{tail}")
            self.parser.add_argument(*options, dest=name, action=_Flag, help=help_text)
        else:
            self.parser.add_argument(
                *options, dest=name, nargs="+" if many else None, metavar=metavar, help=help_text,
                required=default is inspect.Parameter.empty, action="extend" if many else "store",
            )  # fmt: skip

    def _add_configuration(self, verb: Verb, words: Sequence[str]) -> None:
        """The fields of a configuration, with the defaults of recipe and file."""
        from mast.core.fields import kinds, leaves
        from mast.recipes import DEFAULT, merge

        self._add("recipe", str, DEFAULT, "Where the defaults come from; `mast show recipes`", verb)
        self._add(
            "config", str | None, None, "A YAML file, whose fields replace the recipe's", verb
        )
        first = _Parser(prog=self.parser.prog, add_help=False, allow_abbrev=False)
        for name in ("recipe", "config"):
            first.add_argument(f"--{name}")
        chosen = first.parse_known_args(words)[0]
        self.base = merge(chosen.recipe, chosen.config)
        defaults, texts = leaves(self.base), _field_texts(self.base)
        for name, hint in kinds(self.base).items():
            if name not in self.hints:  # the function's own options come first
                self._add(name, hint, defaults[name], texts.get(name, ""), verb)

    def arguments(self, words: Sequence[str]) -> dict[str, Any]:
        """The function's arguments from words."""
        from mast.core.fields import convert

        namespace, unknown_words = self.parser.parse_known_args(words)
        if unknown_words:
            raise self._unknown(unknown_words[0])
        values = vars(namespace)
        if self.sets_threads and "threads" in values:
            import torch

            threads = convert(values.pop("threads"), int, "threads")
            if threads < 1:
                raise UserError(f"threads must be 1 or more, got {threads}")
            torch.set_num_threads(threads)
        arguments = {name: self._grouped(group, values) for name, group in self.groups.items()}
        parameters = inspect.signature(self.function).parameters
        for name in [name for name in values if name in parameters]:
            arguments[name] = convert(_json_list(values.pop(name)), self.hints[name], name)
        if self.configured is not None:
            from mast.config import change

            fields = {
                name: _json_list(value)
                for name, value in values.items()
                if name not in ("recipe", "config")
            }
            arguments[self.configured] = change(self.base, fields)
        return arguments

    def _grouped(self, group: type, values: dict[str, Any]) -> Any:
        """A dataclass of options from what was given of them, which is taken out."""
        from mast.core.fields import build

        names = [name for name in values if name in get_type_hints(group)]
        return build(group, {name: values.pop(name) for name in names}, "option")

    def _unknown(self, word: str) -> UserError:
        name = word.partition("=")[0]
        if not name.startswith("-"):
            return UserError(f"unexpected {word!r}. See `{self.parser.prog} --help`.")
        close = get_close_matches(name, self._names, n=1, cutoff=0.4)
        hint = f" Did you mean {close[0]}?" if close else ""
        return UserError(f"unknown option {name}.{hint} See `{self.parser.prog} --help`.")


def arguments_of(name: str, words: Sequence[str]) -> dict[str, Any]:
    """What a command line gives to the function of a command.

    Args:
        name: Of the command, such as "pretrain" or "show views".
        words: What follows it.

    Raises:
        UserError: An unknown option, or a value of the wrong type.
    """
    verb = _verb(name)
    words = _normal(words)
    return _Options(f"mast {name}", verb, words).arguments(words)


def _call(name: str, words: list[str]) -> None:
    """Call a verb's function with the arguments that words give, and show its result."""
    verb = _verb(name)
    try:
        arguments = arguments_of(name, words)
    except SystemExit:  # after --help
        return
    verb.show(_function(verb)(**arguments))


def _verb(name: str) -> Verb:
    return TOPICS[name.removeprefix("show ")] if name.startswith("show ") else VERBS[name]


def _function(verb: Verb) -> Callable[..., Any]:
    module, _, name = verb.function.partition(":")
    function: Callable[..., Any] = getattr(import_module(module), name)
    return function


def _json_list(value: Any) -> Any:
    """`--operators '["a", "b"]'` as `--operators a b`."""
    is_json = isinstance(value, list) and len(value) == 1 and value[0].startswith("[")
    return value[0] if is_json else value


def _normal(words: Sequence[str]) -> list[str]:
    """`--batch-size=8` as `--batch_size=8`, `--x -1e-3` as `--x=-1e-3`; values stay as they are."""
    normal: list[str] = []
    for word in words:
        if word.startswith("--"):
            name, equals, value = word.partition("=")
            normal.append(f"--{name[2:].replace('-', '_')}{equals}{value}")
        elif NEGATIVE.fullmatch(word) and re.fullmatch("--[^=]+", normal[-1] if normal else ""):
            normal[-1] += f"={word}"
        else:
            normal.append(word)
    return normal


# ---------------------------------------------------------------------------------------- help


def _summary(function: Callable[..., Any]) -> str:
    """A function's docstring up to its first section."""
    import docstring_parser

    parsed = docstring_parser.parse(inspect.getdoc(function) or "")
    return "\n\n".join(filter(None, (parsed.short_description, parsed.long_description)))


def _documented(documented: Any) -> dict[str, str]:
    """What a docstring says of each parameter or attribute."""
    import docstring_parser

    parsed = docstring_parser.parse(inspect.getdoc(documented) or "")
    return {
        parameter.arg_name: " ".join((parameter.description or "").split())
        for parameter in parsed.params
    }


def _field_texts(config: Any, prefix: str = "") -> dict[str, str]:
    """What docstrings say of the fields of nested dataclasses, by dotted name."""
    from dataclasses import fields, is_dataclass

    texts = {prefix + name: text for name, text in _documented(type(config)).items()}
    for field in fields(config):
        value = getattr(config, field.name)
        if is_dataclass(value):
            texts |= _field_texts(value, f"{prefix}{field.name}.")
    return texts


def _rows(heading: str, place: str) -> str:
    """The names in a registry with their titles."""
    module, _, name = place.partition(":")
    registry = getattr(import_module(module), name)
    width = max(map(len, registry)) + 2
    lines = [f"  {key:{width}}{_title(row)}" for key, row in registry.items()]
    return "\n".join([f"{heading}:", *lines])


def _title(row: Any) -> str:
    return getattr(row, "title", None) or (inspect.getdoc(row) or "").partition("\n")[0]


def _short(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, tuple | list) else str(value)


def _dataclass_in(hint: Any) -> type | None:
    """The dataclass that a parameter may be, if it may be one."""
    from dataclasses import is_dataclass

    members = (hint, *getattr(hint, "__args__", ()))
    return next((m for m in members if isinstance(m, type) and is_dataclass(m)), None)


def _is_configuration(hint: Any) -> bool:
    from mast.config import PretrainConfig

    return hint is PretrainConfig


if __name__ == "__main__":
    sys.exit(main())
