"""Ranges of settings, checked when they are made."""

from collections.abc import Mapping
from dataclasses import fields
from typing import ClassVar

from mast.core.errors import UserError
from mast.core.fields import check_within


class Ranged:
    """A dataclass of settings whose numbers are 0 or more; a tuple's values have one range.

    Attributes:
        limits: Other intervals of fields, such as "(0, 1]".
    """

    limits: ClassVar[Mapping[str, str]] = {}

    def __post_init__(self) -> None:
        limits = dict.fromkeys(vars(self), "[0, inf)")
        for kind in reversed(type(self).__mro__):
            limits |= vars(kind).get("limits", {})
        check_within(vars(self), limits)
        for field in fields(self):  # type: ignore[arg-type]
            if getattr(self, field.name) == () != field.default:
                raise UserError(f"{field.name}: expected one value or more, got none")
