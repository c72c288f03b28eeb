"""Dataclasses from plain values of YAML, JSON and command lines.

Names and types are checked; errors suggest the nearest valid name. Nested fields have dotted names,
such as "optimizer.lr".
"""

import math
from collections.abc import Container, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any, TypeVar, get_args, get_type_hints

import yaml

from mast.core.arguments import argument, choices, in_words, is_list, members
from mast.core.errors import UserError, unknown

Kind = TypeVar("Kind")


def change(
    instance: Kind,
    values: Mapping[str, Any],
    noun: str,
    prefix: str = "",
    every: Iterable[str] = (),
) -> Kind:
    """A copy of a dataclass with changed values: nested ones as dicts, or by dotted names.

    `noun` is the word for a field in errors, such as "option". For a nested dataclass, `prefix` is
    the start of its dotted names, and `every` lists all names of the whole.
    """
    hints, every = get_type_hints(type(instance)), every or kinds(instance)
    changes, nested = dict[str, Any](), dict[str, dict[str, Any]]()
    for name, value in values.items():
        if not isinstance(name, str):
            raise UserError(f"expected names of fields, got {name!r}")
        first, _, rest = name.partition(".")
        part = getattr(instance, first) if first in hints else None
        if is_dataclass(part) and type(value) is not type(part):
            if not (rest or isinstance(value, Mapping)):
                raise UserError(
                    f"{prefix}{name}: expected fields by name, such as "
                    f"{prefix}{name}.{fields(part)[0].name}, got {value!r}"
                )
            inner, known = {rest: value} if rest else value, nested.setdefault(first, {})
            if twice := sorted(inner.keys() & known.keys()):
                raise UserError(f"{prefix}{first}.{twice[0]}: expected once, got it twice")
            known |= inner
        elif name in hints:
            changes[name] = convert(value, hints[name], prefix + name)
        else:
            raise unknown(noun, prefix + name, every)
    for name, inner in nested.items():
        changes[name] = change(getattr(instance, name), inner, noun, f"{prefix}{name}.", every)
    return replace(instance, **changes)  # type: ignore[type-var]


def kinds(instance: Any) -> dict[str, Any]:
    """Type of each field of nested dataclasses, by dotted name."""
    return {name: hint for name, hint, _ in _walk(instance)}


def leaves(instance: Any) -> dict[str, Any]:
    """Values of nested dataclasses by dotted name; dicts count as values."""
    return {name: value for name, _, value in _walk(instance)}


def _walk(instance: Any, prefix: str = "") -> Iterator[tuple[str, Any, Any]]:
    hints = get_type_hints(type(instance))
    for field in fields(instance):
        value = getattr(instance, field.name)
        if is_dataclass(value):
            yield from _walk(value, f"{prefix}{field.name}.")
        else:
            yield prefix + field.name, hints[field.name], value


def check_numbers(values: Mapping[str, Any], endless: Container[str] = ()) -> None:
    """Refuse NaN and infinity; fields in `endless` may be infinite."""
    for name, value in values.items():
        for each in value if isinstance(value, tuple) else (value,):
            if not isinstance(each, int | float) or (each == math.inf and name in endless):
                continue
            if not math.isfinite(each):
                raise UserError(f"{name}: expected a finite number, got {each}")


def check_within(values: Mapping[str, Any], limits: Mapping[str, str], prefix: str = "") -> None:
    """Refuse numbers outside of their intervals, such as "(0, 1]"; None is no number.

    All numbers of a tuple have the interval of its name.
    """
    for name, limit in limits.items():
        value = values.get(name)
        low, high = map(float, limit[1:-1].split(","))
        for each in value if isinstance(value, tuple) else (value,):
            if isinstance(each, int | float) and not (
                (low < each or (limit[0] == "[" and low == each))
                and (each < high or (limit[-1] == "]" and each == high))
            ):
                raise UserError(f"{prefix}{name}: expected a number in {limit}, got {each}")


def convert(value: Any, hint: Any, name: str) -> Any:
    """Convert a value of YAML, JSON or a command line to its type; `name` is for the error."""
    kinds, several, read = members(hint), is_list(hint), value
    if isinstance(value, str) and value not in choices(hint):
        textual = bool({Any, str, Path} & {*kinds})
        if value == "null" or (value in ("none", "None") and not (textual or several)):
            read = None if {Any, type(None)} & {*kinds} else value
        elif several and not value.startswith("["):  # one name, or several separated by commas
            read = value.split(",")
        elif not textual or {int, float} & {*kinds}:
            number = _read(value)
            read = value if textual and isinstance(number, bool | list | dict | None) else number
    if read is None and not {Any, type(None)} & {*kinds}:
        raise UserError(f"{name}: expected {in_words(hint)}, got nothing")
    if several and isinstance(read, list | tuple):
        inner = next(get_args(each) for each in kinds if is_list(each))
        if len(inner) == 1 or inner[-1] is ...:
            inner = (inner[0],) * len(read)
        if len(inner) == len(read):
            return tuple(convert(each, of, name) for each, of in zip(read, inner, strict=True))
    read = argument(read, hint, name)
    if isinstance(read, str) and Path in kinds and str not in kinds:
        return Path(read)
    return float(read) if type(read) is int and float in kinds and int not in kinds else read


def _read(text: str) -> Any:
    """Parse text as a number, true, null, a list or a mapping; otherwise return the text."""
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text)
    with suppress(yaml.YAMLError, ValueError, RecursionError):
        return text if "&" in text else yaml.safe_load(text)  # no aliases: they can be endless
    return text
