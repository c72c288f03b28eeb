"""Settings that a user gave, checked: their names, types and ranges."""

from __future__ import annotations

import re
from argparse import ArgumentError
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, ClassVar, TypeVar

from mast.core.errors import UserError, unknown

Kind = TypeVar("Kind")


class Ranged:
    """A dataclass of settings with ranges; a tuple keeps to them with each of its values.

    Attributes:
        at_least: The smallest value of a field.
        above: What a field's value must exceed.
        may_be_empty: Tuples that need no value.
    """

    at_least: ClassVar[Mapping[str, float]] = {}
    above: ClassVar[Mapping[str, float]] = {}
    may_be_empty: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        for kind in type(self).__mro__:
            for name, bound in vars(kind).get("at_least", {}).items():
                self._require(name, lambda value, bound=bound: value >= bound, f"{bound:g} or more")
            for name, bound in vars(kind).get("above", {}).items():
                self._require(name, lambda value, bound=bound: value > bound, f"above {bound:g}")
        for name, value in vars(self).items():
            if value == () and name not in self.may_be_empty:
                raise UserError(f"{name} must have one value or more, got none")

    def _require(self, name: str, holds: Any, expected: str) -> None:
        value = getattr(self, name)
        for one in value if isinstance(value, tuple) else (value,):
            if one is not None and not holds(one):
                raise UserError(f"{name} must be {expected}, got {one}")


def build(kind: type[Kind], values: Mapping[str, Any], what: str) -> Kind:
    """A dataclass of settings from what differs from its defaults.

    Args:
        kind: The dataclass.
        values: Field names and values, as YAML and JSON have them: lists stand for tuples.
        what: What it is called in an error, such as "semi".

    Raises:
        UserError: An unknown field, or a value of the wrong type or out of its range.
    """
    from jsonargparse import ArgumentParser

    known = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    for name in values:
        if name not in known:
            raise unknown(f"setting of {what}", name, known)
    parser = ArgumentParser(exit_on_error=False)
    parser.add_class_arguments(kind, as_group=False)
    plain = {name: list(v) if isinstance(v, tuple) else v for name, v in values.items()}
    try:
        checked = dict(parser.instantiate(parser.parse_object(plain)))
    except ArgumentError as error:
        text = re.sub(r"\s+", " ", str(error)).removeprefix("Parser key ")
        text = re.sub(r"<class '(\w+)'>|typing\.", r"\1", text)
        raise UserError(f"settings of {what}: {text}") from error
    try:
        return kind(**checked)
    except UserError as error:
        raise UserError(f"settings of {what}: {error}") from error
