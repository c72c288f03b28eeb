"""Parse command-line arguments with cyclopts; docstrings are the help.

Help and argument errors appear without importing PyTorch.
"""

import inspect
import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, Optional, get_args, get_origin

import docstring_parser
from cyclopts import App, CycloptsError, MissingArgumentError, Parameter, UnknownOptionError

from mast.cli.verbs import MAST, Program, Verb, named
from mast.commands.common import TEXTS
from mast.commands.options import OPTIONS, configured
from mast.core.arguments import hints_of, is_list, members
from mast.core.errors import UserError, visible

TEXTUAL = (str, int, float, bool)
# Options for splits in different places (`mast.NamedSets`).
SETS = {
    "train": "Training images, instead of those of --data.",
    "val": "Validation images, instead of those of --data.",
    "test": "Test images, instead of those of --data.",
    "root": "Folder with torchvision and Hugging Face sets.",
    "download": "Allow downloading the set and the weights.",
}
FIELD = re.compile(r"\w+([.]\w+)*=")  # how key=value begins
UNNAMED = " Default: EfficientNet-Lite0, ImageNet weights."
PYTHON = re.compile(r" ?In Python .*?[.](?= |$)")
Kind = inspect.Parameter


def help_of(name: str, program: Program = MAST) -> None:
    """Print a command's help."""
    _app(f"{program.name} {name}", named(name, program)).help_print([])


def arguments_of(name: str, words: Sequence[str], program: Program = MAST) -> dict[str, Any]:
    """The arguments of a command's function, and `threads` if the function does not take it."""
    verb, hint = named(name, program), f"See `{program.name} {name} --help`."
    app = _app(f"{program.name} {name}", verb)
    words = _in_order([_underscored(word) for word in words], verb)
    try:
        bound = app.parse_args(words, print_error=False, exit_on_error=False)[1]
    except CycloptsError as error:
        text = " ".join(str(error).split()).removeprefix("Parameter ")
        if isinstance(error, MissingArgumentError) and not text.startswith("--"):
            text += f" The form is {app.usage}."
        if isinstance(error, UnknownOptionError) and verb.configured:
            text += " Fields go without dashes, such as optimizer.lr=0.1 (`mast show config`)."
        raise UserError(visible(f"{text} {hint}")) from error
    given = {option: value for option, value in bound.arguments.items() if value != ()}
    if empty := [option for option, value in given.items() if value == []]:
        raise UserError(f"--{empty[0]}: expected a value, got nothing. {hint}")
    if "runs" in verb.words and "runs" not in given:
        raise UserError(f"expected one run or more. {hint}")
    if not verb.configured:
        return _as_arguments(verb, given)
    data, changes = given.pop("data", None), given.pop("changes", ())
    own = inspect.signature(verb.load()).parameters.keys() - {"config"}
    options = {option: given.pop(option) for option in given.keys() - own}
    images = data or options.get("config") or any("spec=" in word for word in changes)
    if verb is MAST.verbs["pretrain"] and not images:
        raise UserError(f"expected photos, or toys for generated images. {hint}")
    if data is not None and "=" in data and not os.path.exists(data):
        data, changes = None, (data, *changes)
    return {**given, "config": configured(data, *changes, **options)}


def _underscored(word: str) -> str:
    """`--batch-size=8` becomes `--batch_size=8`; values are unchanged."""
    name, equals, value = word.partition("=")
    return f"--{name[2:].replace('-', '_')}{equals}{value}" if name.startswith("--") else word


def _in_order(words: list[str], verb: Verb) -> list[str]:
    """Move key=value to the end, where no option can take it for one of its values."""
    if not (verb.configured or "settings" in inspect.signature(verb.load()).parameters):
        return words
    pairs = {
        at for at, word in enumerate(words)
        if FIELD.match(word) and not (at and words[at - 1].startswith("--"))
    }  # fmt: skip
    others = [word for at, word in enumerate(words) if at not in pairs]
    return [*others, "--", *(words[at] for at in sorted(pairs))] if pairs else others


def _as_arguments(verb: Verb, given: dict[str, Any]) -> dict[str, Any]:
    """Arguments with settings as a mapping, and with splits combined into `NamedSets`."""
    own = inspect.signature(verb.load()).parameters.keys()
    if changes := given.pop("changes", ()):
        given["settings"] = _settings(changes, nested="protocols" in own)
    if sets := {option: given.pop(option) for option in SETS.keys() & given.keys() - own}:
        from mast.evaluation.named_sets import NamedSets

        given["data"] = NamedSets(given.get("data"), **sets)
    return given


def _settings(words: Sequence[str], nested: bool) -> Mapping[str, Any]:
    """Settings from key=value, nested by protocol or flat."""
    settings: dict[str, Any] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or (nested and "." not in key):
            form = "protocol.setting=value, such as knn.temperatures=0.1" if nested else "key=value"
            raise UserError(f"expected {form}, got {word!r}")
        # such as finetune.changes.epochs=10
        *places, name = key.split(".", 2 if nested else 1)
        within = settings
        for place in places:
            within = within.setdefault(place, {})
        if name in within:
            raise UserError(f"{key}: expected once, got it twice")
        within[name] = value
    return settings


def options_of(verb: Verb) -> dict[str, tuple[Any, Any, str]]:
    """Type, default and help of each parameter of a command."""
    found: dict[str, tuple[Any, Any, str]] = {}
    function = verb.load()
    texts, hints = TEXTS | _texts(function), hints_of(function)
    for name, one in inspect.signature(function).parameters.items():
        made = verb.configured and name == "config"
        if one.kind is one.VAR_KEYWORD or made:
            continue
        option, text = "changes" if name == "settings" else name, texts.get(name, "")
        if one.default is Kind.empty:
            text = text.replace(UNNAMED, "")
        found[option] = _in_words(hints[name]), one.default, text
        if any(getattr(kind, "__name__", "") == "NamedSets" for kind in members(hints[name])):
            for part, text in SETS.items():
                found[part] = bool if part == "download" else str | None, None, text
    if verb.configured:
        options = {name: (_in_words(hint), None, text) for name, (hint, _, text) in OPTIONS.items()}
        found = found | {name: row for name, row in options.items() if name not in found}
    if "device" in found and "threads" not in found:
        found["threads"] = int | None, None, TEXTS["threads"]
    return found


def _in_words(hint: Any) -> Any:
    """The command-line type of an annotation: a list of text, or text for a path."""
    kinds = members(hint)
    if is_list(hint):
        inner = next(get_args(kind)[0] for kind in kinds if is_list(kind))
        return list[int] if inner is int else list[str]
    plain = next((kind for kind in kinds if kind in TEXTUAL or get_origin(kind) is Literal), str)
    return Optional[plain] if type(None) in kinds else plain  # noqa: UP045


def _app(command: str, verb: Verb) -> App:
    """A function with the command's parameters, for cyclopts."""
    order = [*verb.words, "changes"]
    parameters = [_parameter(name, *option, order) for name, option in options_of(verb).items()]
    parameters.sort(key=lambda one: order.index(one.name) if one.name in order else len(order))

    def called(*_: Any, **__: Any) -> None:
        """Placeholder for the command's function, which is called later."""

    called.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    called.__annotations__ = {one.name: one.annotation for one in parameters}
    usage = [command]
    for one in parameters:
        word = one.name.upper()
        if one.name == "changes":
            usage.append("[KEY=VALUE...]")
        elif one.name in order:
            word += "..." * (one.kind is Kind.VAR_POSITIONAL)
            usage.append(word if one.default is Kind.empty else f"[{word}]")
        elif one.default is Kind.empty:
            usage.append(f"--{one.name} {word}")
    app = App(
        name=command, usage=" ".join([*usage, "[options]"]), help=_summary(verb.load()),
        help_flags=(), version_flags=(), help_format="plaintext",
    )  # fmt: skip
    app.default(called)
    return app


def _parameter(
    name: str, hint: Any, default: Any, text: str, order: Sequence[str]
) -> inspect.Parameter:
    """A cyclopts parameter: one positional, several, or an option."""
    how = Parameter(
        name=None if name in order else f"--{name}",
        help=text,
        negative=f"--no_{name}" if bool in members(hint) and default is not False else (),
        consume_multiple=True,
        show_default=_shown if default not in (None, False, (), Kind.empty) else False,
    )
    kind: Any = Kind.KEYWORD_ONLY
    if name in order:
        several = name == "changes" or is_list(hint)
        kind = Kind.VAR_POSITIONAL if several else Kind.POSITIONAL_ONLY
        hint, default = (str, Kind.empty) if several else (hint, default)
    return Kind(name, kind, default=default, annotation=Annotated[hint, how])


def _shown(default: Any) -> str:
    return " ".join(map(str, default)) if isinstance(default, tuple) else str(default)


def _summary(function: Callable[..., Any]) -> str:
    """A docstring up to its first section."""
    parsed = docstring_parser.parse(inspect.getdoc(function) or "")
    paragraphs = "\n\n".join(filter(None, (parsed.short_description, parsed.long_description)))
    joined = re.sub(r"(?<!\n)\n(?!\n|- )", " ", paragraphs)  # a list keeps its lines
    return re.sub(" +", " ", joined)


def _texts(function: Callable[..., Any]) -> dict[str, str]:
    """The description of each parameter, without sentences about Python."""
    parsed = docstring_parser.parse(inspect.getdoc(function) or "")
    texts = {each.arg_name: " ".join((each.description or "").split()) for each in parsed.params}
    return {name: PYTHON.sub("", text) for name, text in texts.items()}
