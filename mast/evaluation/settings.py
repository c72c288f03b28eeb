"""Ranges of settings, checked when they are made."""

from collections.abc import Mapping
from typing import ClassVar

from mast.core.errors import UserError
from mast.core.fields import check_numbers


class Ranged:
    """A dataclass of settings whose numbers are 0 or more; a tuple's values have one range.

    Attributes:
        above: What a field's value must exceed.
        at_most: The largest value of a field.
        may_be_empty: Tuples that need no value.
    """

    above: ClassVar[Mapping[str, float]] = {}
    at_most: ClassVar[Mapping[str, float]] = {}
    may_be_empty: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        fields = vars(self)
        check_numbers({name: value for name, value in fields.items() if name != "seed"})
        above, at_most = dict[str, float](), dict[str, float]()
        for kind in type(self).__mro__:
            above |= vars(kind).get("above", {})
            at_most |= vars(kind).get("at_most", {})
        for name, value in fields.items():
            if value == () and name not in self.may_be_empty:
                raise UserError(f"{name} must have one value or more, got none")
            for each in value if isinstance(value, tuple) else (value,):
                if not isinstance(each, int | float):
                    continue
                if each < 0 or each <= above.get(name, -1):
                    least = f"above {above[name]:g}" if name in above else "0 or more"
                    raise UserError(f"{name} must be {least}, got {each}")
                if each > at_most.get(name, each):
                    raise UserError(f"{name} must be {at_most[name]:g} or less, got {each}")
