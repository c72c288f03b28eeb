"""Ranges of settings, checked when they are made."""

from collections.abc import Mapping
from typing import Any, ClassVar

from mast.core.errors import UserError
from mast.core.fields import check_numbers


class Ranged:
    """A dataclass of settings with ranges; a tuple keeps to them with each of its values.

    Attributes:
        at_least: The smallest value of a field; 0 if not said.
        at_most: The largest one, where it is less than that of all numbers (`check_numbers`).
        above: What a field's value must exceed.
        may_be_empty: Tuples that need no value.
    """

    at_least: ClassVar[Mapping[str, float]] = {}
    at_most: ClassVar[Mapping[str, float]] = {}
    above: ClassVar[Mapping[str, float]] = {}
    may_be_empty: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        fields = vars(self)
        check_numbers({name: value for name, value in fields.items() if name != "seed"})
        for kind in type(self).__mro__:
            for name, bound in vars(kind).get("at_least", {}).items():
                self._require(name, lambda value, bound=bound: value >= bound, f"{bound:g} or more")
            for name, bound in vars(kind).get("at_most", {}).items():
                self._require(name, lambda value, bound=bound: value <= bound, f"{bound:g} or less")
            for name, bound in vars(kind).get("above", {}).items():
                self._require(name, lambda value, bound=bound: value > bound, f"above {bound:g}")
        for name, value in fields.items():
            if value == () and name not in self.may_be_empty:
                raise UserError(f"{name} must have one value or more, got none")
            self._require(name, lambda of: not isinstance(of, int | float) or of >= 0, "0 or more")

    def _require(self, name: str, holds: Any, expected: str) -> None:
        value = getattr(self, name)
        for each in value if isinstance(value, tuple) else (value,):
            if each is not None and not holds(each):
                raise UserError(f"{name} must be {expected}, got {each}")
