"""Ranges of settings, checked when they are made."""

from collections.abc import Mapping
from typing import ClassVar

from mast.core.errors import UserError
from mast.core.fields import check_within


class Ranged:
    """A dataclass of settings whose numbers are 0 or more; a tuple's values have one range.

    Attributes:
        limits: Other intervals of fields, such as "(0, 1]".
        may_be_empty: Tuples that need no value.
    """

    limits: ClassVar[Mapping[str, str]] = {}
    may_be_empty: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        limits = dict.fromkeys(vars(self), "[0, inf)")
        for kind in reversed(type(self).__mro__):
            limits |= vars(kind).get("limits", {})
        check_within(vars(self), limits)
        for name, value in vars(self).items():
            if value == () and name not in self.may_be_empty:
                raise UserError(f"{name}: expected one value or more, got none")
