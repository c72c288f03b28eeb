"""Dataclasses from plain values, as YAML, JSON and command lines have them.

Names are checked, with the nearest valid one in the error, and so are types. Nested fields go by
dotted names, such as "optimizer.lr".
"""

import functools
import math
from collections.abc import Container, Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any, TypeVar, Union, get_type_hints

import numpy as np
from jsonargparse import ArgumentError, ArgumentParser

from mast.core.arguments import NAMES, choices, in_words, is_list, union
from mast.core.errors import UserError, unknown

Kind = TypeVar("Kind")
# Numbers of a configuration: products of a few of them are finite in float32, and are not 0.
SMALLEST, LARGEST = 1e-30, 10**9

TEXTUAL = {*NAMES, Path, type(None)}


def build(kind: type[Kind], values: Mapping[str, Any], noun: str) -> Kind:
    """A dataclass from values by field name; the other fields have their defaults.

    `noun` is what its fields are called in an error, such as "setting of knn".
    """
    hints = get_type_hints(kind)
    known = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    for name in values:
        if name not in known:
            raise unknown(noun, name, known)
    try:
        typed = {name: convert(value, hints[name], name) for name, value in values.items()}
        return kind(**typed)
    except UserError as error:
        raise UserError(f"{noun}: {error}") from error


def change(instance: Kind, values: Mapping[str, Any], noun: str) -> Kind:
    """A copy of a dataclass with other values: nested ones as dicts, or by dotted names.

    `noun` is what its fields are called in an error, such as "option".
    """
    hints = kinds(instance)
    changes: dict[str, Any] = {}
    for name, value in _flat(values, instance).items():
        if name not in hints:
            raise unknown(noun, name, hints)
        changes[name] = convert(value, hints[name], name)
    return _replaced(instance, changes)


def kinds(instance: Any) -> dict[str, Any]:
    """The type of each value of nested dataclasses, by dotted name."""
    return {name: hint for name, hint, _ in _walk(instance)}


def leaves(instance: Any) -> dict[str, Any]:
    """The values of nested dataclasses by dotted name; dicts are values."""
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
    """Refuse numbers with which float32 cannot compute: NaN, infinite, very large and very small.

    Those that are named in `endless` may be infinite.
    """
    for name, value in values.items():
        for each in value if isinstance(value, tuple) else (value,):
            if not isinstance(each, int | float) or (each == math.inf and name in endless):
                continue
            if not math.isfinite(each):
                raise UserError(f"{name} must be finite, got {each}")
            if each != 0 and not SMALLEST <= abs(each) <= LARGEST:
                raise UserError(
                    f"{name} must be 0 or from {SMALLEST:g} to {LARGEST:,} in size, got {each}"
                )


def convert(value: Any, hint: Any, name: str) -> Any:
    """A value of YAML, JSON or a command line as its type has it; `name` is for the error."""
    value = value.item() if isinstance(value, np.generic) else value
    optional = hint is Any or type(None) in union(hint)
    takes_text = hint is Any or {str, Path} & {hint, *union(hint)}
    words = ("null",) if takes_text or is_list(hint) else ("null", "none", "None")
    if optional and isinstance(value, str) and value in words and value not in choices(hint):
        return None
    if value is None and not optional:
        raise UserError(f"expected {name} to be {in_words(hint)}, got nothing")
    names = [choice for choice in choices(hint) if isinstance(choice, str)]
    if names and isinstance(value, str) and value not in names:
        raise unknown(f"value of {name}", value, names)
    if isinstance(value, str) and hint in (Path, Path | None):
        return Path(value)  # which jsonargparse makes of text that is UTF-8 alone
    plain = list(value) if isinstance(value, tuple) else value
    if is_list(hint) and isinstance(value, str) and not value.startswith("["):
        plain = [value]  # one name where a list is expected
    try:
        return _parser(hint).parse_object({"value": plain}).value
    except ArgumentError as error:
        raise UserError(f"expected {name} to be {in_words(hint)}, got {value!r}") from error


def in_text(hint: Any) -> Any:
    """A type without the classes of a union that no text stands for, such as a module."""
    members = [
        member
        for member in union(hint)
        if not isinstance(member, type) or member in TEXTUAL or is_dataclass(member)
    ]
    return Union[tuple(members)] if members else hint  # noqa: UP007


@functools.cache
def _parser(hint: Any) -> ArgumentParser:
    """What checks and converts values of one type."""
    parser = ArgumentParser(exit_on_error=False)
    parser.add_argument("--value", type=hint)
    return parser


def _flat(values: Mapping[Any, Any], instance: Any, prefix: str = "") -> dict[str, Any]:
    """Values by dotted name: dicts are entered where the field is a dataclass."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if not isinstance(name, str):
            raise UserError(f"expected names of fields, got {name!r}")
        nested = getattr(instance, name, None)
        if not is_dataclass(nested):
            given = {prefix + name: value}
        elif isinstance(value, Mapping):
            given = _flat(value, nested, f"{prefix}{name}.")
        elif type(value) is type(nested):
            given = {f"{prefix}{name}.{key}": each for key, each in leaves(value).items()}
        else:
            first = fields(nested)[0].name
            raise UserError(
                f"{prefix}{name} holds several fields, got {value!r}; give them by name, such as "
                f"{prefix}{name}.{first}"
            )
        if twice := sorted(flat.keys() & given.keys()):
            raise UserError(f"{twice[0]} is given twice")
        flat |= given
    return flat


def _replaced(instance: Any, changes: Mapping[str, Any]) -> Any:
    """A copy with values changed by dotted name."""
    direct: dict[str, Any] = {}
    nested: dict[str, dict[str, Any]] = {}
    for name, value in changes.items():
        first, _, rest = name.partition(".")
        if rest:
            nested.setdefault(first, {})[rest] = value
        else:
            direct[first] = value
    for name, inner in nested.items():
        direct[name] = _replaced(getattr(instance, name), inner)
    return replace(instance, **direct)
