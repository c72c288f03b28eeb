"""Words to the arguments of a verb's function, and back to its help.

A verb's options are the parameters of its function, whose docstring is their help; a verb that
takes a configuration has that configuration's fields as options too.
"""

import inspect
import os
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from importlib import import_module
from typing import Any, get_type_hints

from mast.cli.form import FLAG, Form, Parser
from mast.cli.verbs import Verb, named
from mast.core.errors import UserError

# What stands for a value in the help, by its type in words.
WORDS = {
    "a whole number": "N",
    "a number": "X",
    "text": "WORD",
    "Path": "PATH",
    "a mapping": "JSON",
    "a mapping of mappings": "JSON",
}
# Fields of a configuration that `--help` shows; `--help all` shows the others.
COMMON = (
    "out", "data.spec", "data.channels", "data.exclude", "data.tile", "data.cache", "data.workers",
    "size", "views", "operators", "objective.exempt", "objective.masks", "objective.projector.dim",
    "objective.temperature", "encoder.name", "encoder.stem", "encoder.weights", "encoder.freeze",
    "optimizer.name", "optimizer.lr", "optimizer.weight_decay", "optimizer.warmup",
    "optimizer.layer_decay", "epochs", "batch_size", "accumulate", "seed", "device", "devices",
    "nodes", "threads", "precision", "compile", "score_every", "log_every", "wandb",
)  # fmt: skip

# -------------------------------------------------------------------------------- words → values


class _Options:
    """The options of a verb: what each is called, its type, and the form that they make."""

    def __init__(self, program: str, verb: Verb, words: Sequence[str]) -> None:
        from mast.config import PretrainConfig
        from mast.core.fields import in_text

        self.function, self.words = verb.load(), verb.words
        parameters = inspect.signature(self.function).parameters
        required = {name for name, one in parameters.items() if one.default is one.empty}
        words_of = (
            name.upper() if name in required
            else f"[{name.upper()}]"
            for name in verb.words
        )  # fmt: skip
        self.form = Form(
            program,
            usage=" ".join([program, *words_of, "[options]"]),
            description=_summary(self.function),
            epilog=None if verb.rows is None else _rows(*verb.rows),
        )
        self.hints: dict[str, Any] = {}
        self.configured: str | None = None  # the parameter that is a configuration
        self.base: Any = None
        self.groups: dict[str, type] = {}  # parameters that may be a dataclass of options
        self._names: list[str] = []
        helps = _documented(self.function)
        hints = {name: in_text(hint) for name, hint in get_type_hints(self.function).items()}
        for name, parameter in parameters.items():
            if hints[name] is PretrainConfig:
                self.configured = name
            elif group := _dataclass_in(hints[name]):
                self.groups[name] = group
                texts = _documented(group)
                for field, hint in get_type_hints(group).items():
                    self._add(field, hint, getattr(group, field), texts.get(field, ""))
            else:
                self._add(name, hints[name], parameter.default, helps.get(name, ""))
        if self.configured is not None:
            self._add_configuration(words)
        self.sets_threads = verb.computes and "threads" not in self.hints
        if self.sets_threads:
            self._add("threads", int | None, None, "CPU threads; PyTorch's choice by default.")

    def _add(self, name: str, hint: Any, default: Any, text: str, rare: bool = False) -> None:
        from mast.core.arguments import choices, in_words, is_list

        self.hints[name] = hint
        many = is_list(hint)
        help_text = f"{text} " if text else ""
        unsaid = (inspect.Parameter.empty, None, False)
        if not any(default is value for value in unsaid) and default != ():
            help_text += f"(default: {_short(default)})"
        help_text = help_text.replace("%", "%%")
        first = in_words(hint).removeprefix("a list, each ").partition(" or ")[0]
        metavar = "|".join(map(str, choices(hint))) or WORDS.get(first, "WORD")
        if name in self.words or (name == "data.spec" and "data" in self.words):
            last = name == self.words[-1]
            required = default is inspect.Parameter.empty
            nargs = ("+" if required else "*") if many and last else None if required else "?"
            self.form.add(name, nargs=nargs, help=help_text)
            return
        head, _, tail = name.rpartition(".")
        options = [f"--{name}"]
        self._names += options
        hidden = {"rare": True} if rare else {}
        if hint is bool or bool in getattr(hint, "__args__", ()):
            options.append(f"--{head}.no_{tail}" if head else f"--no_{tail}")
            self.form.add(*options, dest=name, action=FLAG, help=help_text, **hidden)
        else:
            self.form.add(
                *options, dest=name, nargs="+" if many else None, metavar=metavar, help=help_text,
                required=default is inspect.Parameter.empty, action="extend" if many else "store",
                **hidden,
            )  # fmt: skip

    def _add_configuration(self, words: Sequence[str]) -> None:
        """The fields of a configuration, with the defaults of recipe and file."""
        from mast.core.fields import kinds, leaves
        from mast.recipes import DEFAULT, merge

        self._add("recipe", str, DEFAULT, "Recipe that sets the defaults (`mast show recipes`)")
        self._add("config", str | None, None, "A YAML file whose fields override the recipe's")
        first = Parser(prog=self.form.program, add_help=False, allow_abbrev=False)
        for name in ("recipe", "config"):
            first.add_argument(f"--{name}")
        chosen = first.parse_known_args(words)[0]
        self.base = merge(chosen.recipe, chosen.config)
        defaults, texts = leaves(self.base), _field_texts(self.base)
        for name, hint in kinds(self.base).items():
            if name not in self.hints:  # the function's own options come first
                text = texts.get(name, "")
                self._add(name, hint, defaults[name], text, rare=name not in COMMON)

    def arguments(self, words: Sequence[str]) -> dict[str, Any]:
        """The function's arguments from words."""
        from mast.core.fields import build, convert

        namespace, unknown_words = self.form.parser().parse_known_intermixed_args(words)
        if unknown_words:
            raise self._unknown(unknown_words[0])
        values = vars(namespace)
        if self.sets_threads and "threads" in values:
            import torch

            from mast.core.launch import check_threads

            threads = convert(values.pop("threads"), int, "threads")
            check_threads(threads)
            torch.set_num_threads(threads)
        arguments: dict[str, Any] = {}
        for name, group in self.groups.items():
            parts = {part: values.pop(part) for part in get_type_hints(group) if part in values}
            arguments[name] = build(group, parts, "option")
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

    def _unknown(self, word: str) -> UserError:
        name = word.partition("=")[0]
        if not name.startswith("-"):
            return UserError(
                f"unexpected {word!r}. The form is {self.form.usage}. "
                f"See `{self.form.program} --help`."
            )
        names, last = [known.lstrip("-") for known in self._names], name.rpartition(".")[2]
        nested = [known for known in names if known.rpartition(".")[2] == last.lstrip("-")]
        close = nested or get_close_matches(name.lstrip("-"), names, n=1)
        hint = f" Did you mean --{close[0]}?" if close else ""
        return UserError(f"unknown option {name}.{hint} See `{self.form.program} --help`.")


def form_of(name: str) -> Form:
    """What a command takes, from its function."""
    return _Options(f"mast {name}", named(name), ()).form


def arguments_of(name: str, words: Sequence[str]) -> dict[str, Any]:
    """The arguments of a command's function, such as that of "show views", from words."""
    words = _normal(words)
    return _Options(f"mast {name}", named(name), words).arguments(words)


def _json_list(value: Any) -> Any:
    """`--operators '["a", "b"]'` as `--operators a b`; a file or folder may be called `[a]`."""
    one = isinstance(value, list) and len(value) == 1
    return value[0] if one and value[0].startswith("[") and not os.path.exists(value[0]) else value


def _normal(words: Sequence[str]) -> list[str]:
    """`--batch-size=8` as `--batch_size=8`; values stay as they are."""
    normal: list[str] = []
    for word in words:
        if word.startswith("--"):
            name, equals, value = word.partition("=")
            normal.append(f"--{name[2:].replace('-', '_')}{equals}{value}")
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

    kinds = [kind for kind in reversed(type(config).__mro__) if is_dataclass(kind)]
    texts = {prefix + name: text for kind in kinds for name, text in _documented(kind).items()}
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
